//! What an event says. Everything borrows from the event's bytes.

/// Reads flat fields: `u32` length, little-endian, then that many bytes.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > self.0.len() {
            return None;
        }
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        Some(taken)
    }
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    pub fn field(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(n as usize)
    }
}

pub struct Http<'a> {
    pub method: &'a [u8],
    /// The path after the actor's name, "/" at least, with "?query".
    pub url: &'a [u8],
    headers: &'a [u8],
    count: u32,
    pub body: &'a [u8],
}

impl<'a> Http<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Http<'a>> {
        let method = reader.field()?;
        let url = reader.field()?;
        let count = reader.u32()?;
        let before = reader.0;
        for _ in 0..count {
            reader.field()?;
            reader.field()?;
        }
        let headers = &before[..before.len() - reader.0.len()];
        Some(Http { method, url, headers, count, body: reader.field()? })
    }
    pub fn path(&self) -> &'a [u8] {
        match self.url.iter().position(|&b| b == b'?') {
            Some(at) => &self.url[..at],
            None => self.url,
        }
    }
    /// Without the "?".
    pub fn query(&self) -> &'a [u8] {
        match self.url.iter().position(|&b| b == b'?') {
            Some(at) => &self.url[at + 1..],
            None => &[],
        }
    }
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut reader = Reader(self.headers);
        (0..self.count).map_while(move |_| Some((reader.field()?, reader.field()?)))
    }
    /// The first of that name, compared without case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v)
    }
}

pub struct Call<'a> {
    /// Sent, not called: an answer goes nowhere.
    pub one_way: bool,
    /// The same however often this message is delivered.
    pub id: u128,
    /// "class/name"; empty: the outside.
    pub caller: &'a [u8],
    pub method: &'a [u8],
    pub body: &'a [u8],
}

pub struct Alarm {
    /// The same through all attempts.
    pub id: u64,
    pub due_ms: i64,
    /// From 1.
    pub attempt: u32,
}

pub struct SocketMessage<'a> {
    pub connection: u64,
    pub binary: bool,
    pub data: &'a [u8],
}

pub struct SocketClosed<'a> {
    pub connection: u64,
    pub code: u32,
    pub reason: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    Move,
    Drain,
    Passivate,
    Evict,
}

pub struct Stop {
    pub reason: StopReason,
    pub deadline_ms: i64,
}
