//! Guest SDK of Holdfast in Rust: an actor is a type with handlers, made into a module's exports by [`actor!`].
//!
//! ```ignore
//! use holdfast_actor::{actor, reply_text, Actor, Http, Outcome};
//! struct Greeter;
//! impl Actor for Greeter {
//!     fn http(request: &Http) -> Outcome {
//!         reply_text(200, "hello\n")
//!     }
//! }
//! actor!(Greeter);
//! ```
//!
//! No dependencies, no standard library; an actor may use it, though (Debian's `rustc` with `libstd-rust-dev-wasm32`):
//!
//! ```text
//! rustc --edition 2021 --target wasm32-unknown-unknown --crate-type rlib --crate-name holdfast_actor -O -C panic=abort src/lib.rs
//! rustc --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -O -C panic=abort -C strip=symbols \
//!       -C link-arg=-zstack-size=65536 --extern holdfast_actor=libholdfast_actor.rlib mine.rs
//! ```
//!
//! A handler that answers `Err`, a panic and a missed deadline undo every write of the event. This crate is dedicated to the
//! public domain: use it in your actors without conditions.
#![no_std]
extern crate alloc;

mod events;
pub mod host;

use alloc::{string::String, vec, vec::Vec};
use core::fmt;

pub use events::{Alarm, Call, Http, Reader, SocketClosed, SocketMessage, Stop, StopReason};

/// What the host refuses by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such key.
    Absent,
    /// An argument that makes no sense.
    Argument,
    /// A limit; fail the event and the caller is told its name.
    Limit,
    /// Busy, or the call would wait for itself.
    Busy,
    /// The time is up.
    Timeout,
    /// The other actor failed.
    Failed,
    /// A second reply, or another kind's; not in this node's role.
    NotNow,
    /// A number of the actor's own, below zero.
    Other(i32),
}

impl Error {
    fn code(self) -> i32 {
        match self {
            Error::Absent => -1,
            Error::Argument => -2,
            Error::Limit => -3,
            Error::Busy => -4,
            Error::Timeout => -5,
            Error::Failed => -6,
            Error::NotNow => -7,
            Error::Other(code) => code.min(-8),
        }
    }
}

/// What a handler answers, and most functions of the host.
pub type Outcome = Result<(), Error>;

fn checked(rc: i32) -> Result<u32, Error> {
    match rc {
        0.. => Ok(rc as u32),
        -1 => Err(Error::Absent),
        -2 => Err(Error::Argument),
        -3 => Err(Error::Limit),
        -4 => Err(Error::Busy),
        -5 => Err(Error::Timeout),
        -6 => Err(Error::Failed),
        -7 => Err(Error::NotNow),
        _ => Err(Error::Other(rc)),
    }
}
fn done(rc: i32) -> Outcome {
    checked(rc).map(|_| ())
}
fn len(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

/// What an actor does with each kind of event. None of it has `self`: memory is a cache, the state is what was put.
pub trait Actor {
    fn http(_request: &Http) -> Outcome {
        reply_text(404, "no HTTP here\n")
    }
    fn call(_call: &Call) -> Outcome {
        Err(Error::NotNow)
    }
    fn alarm(_alarm: &Alarm) -> Outcome {
        Ok(())
    }
    fn socket_opened(_connection: u64, _request: &Http) -> Outcome {
        reply_text(404, "no WebSocket here\n")
    }
    fn socket_message(_message: &SocketMessage) -> Outcome {
        Ok(())
    }
    fn socket_closed(_closed: &SocketClosed) -> Outcome {
        Ok(())
    }
    /// With `actor!(Mine, restored)`.
    fn restored() -> Outcome {
        Ok(())
    }
    /// With `actor!(Mine, stop)`.
    fn stop(_stop: &Stop) -> Outcome {
        Ok(())
    }
}

/// The value of a key.
pub fn get(key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut out = vec![0; 256];
    loop {
        // SAFETY: both ranges are whole slices of this memory.
        match checked(unsafe { host::kv_get(key.as_ptr(), len(key), out.as_mut_ptr(), len(&out)) }) {
            Ok(n) if n as usize > out.len() => out.resize(n as usize, 0),
            Ok(n) => {
                out.truncate(n as usize);
                return Ok(Some(out));
            }
            Err(Error::Absent) => return Ok(None),
            Err(why) => return Err(why),
        }
    }
}
pub fn put(key: &[u8], value: &[u8]) -> Outcome {
    // SAFETY: as above; so are all calls below.
    done(unsafe { host::kv_put(key.as_ptr(), len(key), value.as_ptr(), len(value)) })
}
/// False when it was not there.
pub fn delete(key: &[u8]) -> Result<bool, Error> {
    match done(unsafe { host::kv_delete(key.as_ptr(), len(key)) }) {
        Ok(()) => Ok(true),
        Err(Error::Absent) => Ok(false),
        Err(why) => Err(why),
    }
}

/// The pairs whose keys begin with a prefix, in order; it sees the writes of this event.
pub struct Pairs {
    cursor: i32,
    buffer: Vec<u8>,
}
/// From `start` on (empty: from the first), at most `limit` (0: all).
pub fn list(prefix: &[u8], start: &[u8], limit: u32, descending: bool) -> Result<Pairs, Error> {
    let rc = unsafe {
        host::kv_list(prefix.as_ptr(), len(prefix), start.as_ptr(), len(start), limit, descending as u32)
    };
    checked(rc).map(|_| Pairs { cursor: rc, buffer: vec![0; 1024] })
}
impl Iterator for Pairs {
    type Item = (Vec<u8>, Vec<u8>);
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let n = unsafe { host::kv_next(self.cursor, self.buffer.as_mut_ptr(), len(&self.buffer)) };
            let n = checked(n).ok()? as usize;
            if n > self.buffer.len() {
                self.buffer.resize(n, 0);
                continue;
            }
            let mut reader = Reader(&self.buffer[..n]);
            let key_len = reader.u32()? as usize;
            reader.u32()?;
            let (key, value) = reader.0.split_at(key_len);
            return Some((key.to_vec(), value.to_vec()));
        }
    }
}
impl Drop for Pairs {
    fn drop(&mut self) {
        unsafe { host::kv_close(self.cursor) };
    }
}

/// Headers: name and value.
pub fn reply(status: u32, headers: &[(&str, &str)], body: &[u8]) -> Outcome {
    let mut flat = Vec::new();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        flat.extend_from_slice(&len(text.as_bytes()).to_le_bytes());
        flat.extend_from_slice(text.as_bytes());
    }
    done(unsafe { host::http_reply(status, flat.as_ptr(), len(&flat), body.as_ptr(), len(body)) })
}
pub fn reply_text(status: u32, text: &str) -> Outcome {
    reply(status, &[("content-type", "text/plain")], text.as_bytes())
}
/// The answer to a call.
pub fn answer(body: &[u8]) -> Outcome {
    done(unsafe { host::reply(body.as_ptr(), len(body)) })
}

/// Waits for another actor, "class/name", to answer. `timeout_ms` 0: as long as this event may take.
pub fn call(target: &str, method: &str, body: &[u8], timeout_ms: u32) -> Result<Vec<u8>, Error> {
    let handle = unsafe {
        host::call(
            target.as_ptr(),
            len(target.as_bytes()),
            method.as_ptr(),
            len(method.as_bytes()),
            body.as_ptr(),
            len(body),
            timeout_ms,
        )
    };
    checked(handle)?;
    let size = checked(unsafe { host::result_read(handle, core::ptr::null_mut(), 0) })?;
    let mut out = vec![0; size as usize];
    done(unsafe { host::result_read(handle, out.as_mut_ptr(), size) })?;
    Ok(out)
}
/// A message that is kept with this event's writes and applied once, in order for each target.
pub fn send(target: &str, method: &str, body: &[u8]) -> Outcome {
    done(unsafe {
        host::send(
            target.as_ptr(),
            len(target.as_bytes()),
            method.as_ptr(),
            len(method.as_bytes()),
            body.as_ptr(),
            len(body),
        )
    })
}

/// One alarm an actor, Unix ms; another one replaces it.
pub fn alarm_set(at_ms: i64) -> Outcome {
    done(unsafe { host::alarm_set(at_ms) })
}
pub fn alarm_get() -> Option<i64> {
    Some(unsafe { host::alarm_get() }).filter(|&at| at != 0)
}
pub fn alarm_clear() -> Outcome {
    done(unsafe { host::alarm_clear() })
}
pub fn socket_text(connection: u64, text: &str) -> Outcome {
    done(unsafe { host::ws_send(connection, 1, text.as_ptr(), len(text.as_bytes())) })
}
pub fn socket_binary(connection: u64, bytes: &[u8]) -> Outcome {
    done(unsafe { host::ws_send(connection, 2, bytes.as_ptr(), len(bytes)) })
}
pub fn socket_close(connection: u64, code: u32, reason: &str) -> Outcome {
    done(unsafe { host::ws_close(connection, code, reason.as_ptr(), len(reason.as_bytes())) })
}
/// Leave memory after this event.
pub fn passivate() -> Outcome {
    done(unsafe { host::passivate() })
}
/// The same all through one event.
pub fn now_ms() -> i64 {
    unsafe { host::now_ms() }
}
pub fn random(out: &mut [u8]) {
    unsafe { host::random(out.as_mut_ptr(), len(out)) }
}
/// Level 0 trace to 4 error.
pub fn log(level: u32, text: fmt::Arguments) {
    let line = alloc::fmt::format(text);
    unsafe { host::log(level, line.as_ptr(), len(line.as_bytes())) }
}
/// Ends the event; the caller is told the text.
pub fn abort(text: &str) -> ! {
    unsafe { host::abort(text.as_ptr(), len(text.as_bytes())) };
    core::unreachable!()
}
/// Bytes as text, or `Error::Argument`.
pub fn text_of(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Argument)
}

/// For [`actor!`]: one event.
pub fn dispatch<A: Actor>(kind: u32, bytes: &[u8]) -> i32 {
    match event::<A>(kind, &mut Reader(bytes)).unwrap_or(Err(Error::Argument)) {
        Ok(()) => 0,
        Err(why) => why.code(),
    }
}

fn event<A: Actor>(kind: u32, reader: &mut Reader) -> Option<Outcome> {
    Some(match kind {
        1 => A::http(&Http::read(reader)?),
        2 => {
            let one_way = reader.u32()? & 1 != 0;
            let id = u128::from(reader.u64()?) << 64 | u128::from(reader.u64()?);
            A::call(&Call { one_way, id, caller: reader.field()?, method: reader.field()?, body: reader.field()? })
        }
        3 => A::alarm(&Alarm { id: reader.u64()?, due_ms: reader.u64()? as i64, attempt: reader.u32()? }),
        4 => A::socket_opened(reader.u64()?, &Http::read(reader)?),
        5 => A::socket_message(&SocketMessage {
            connection: reader.u64()?,
            binary: reader.u32()? != 0,
            data: reader.field()?,
        }),
        6 => A::socket_closed(&SocketClosed {
            connection: reader.u64()?,
            code: reader.u32()?,
            reason: reader.field()?,
        }),
        7 => A::restored(),
        8 => {
            let reason = match reader.u32()? {
                1 => StopReason::Move,
                2 => StopReason::Drain,
                3 => StopReason::Passivate,
                4 => StopReason::Evict,
                _ => return None,
            };
            A::stop(&Stop { reason, deadline_ms: reader.u64()? as i64 })
        }
        _ => return None,
    })
}

/// For [`actor!`]: room for the bytes of an event, given back with [`give_back`].
pub fn room(len: u32) -> *mut u8 {
    // Never null: zero bytes have room anywhere.
    Vec::<u8>::with_capacity((len as usize).max(1)).leak_start()
}
/// For [`actor!`].
///
/// # Safety
/// `at` is what [`room`] answered for `len`.
pub unsafe fn give_back(at: *mut u8, len: u32) {
    drop(Vec::from_raw_parts(at, 0, (len as usize).max(1)));
}

trait LeakStart {
    fn leak_start(self) -> *mut u8;
}
impl LeakStart for Vec<u8> {
    fn leak_start(self) -> *mut u8 {
        core::mem::ManuallyDrop::new(self).as_mut_ptr()
    }
}

/// The exports of a module whose actor is `$actor`; `restored` and `stop` after it ask for those events.
#[macro_export]
macro_rules! actor {
    ($actor:ty $(, $event:ident)*) => {
        #[no_mangle]
        pub extern "C" fn actor_abi_v1() {}
        #[no_mangle]
        pub extern "C" fn actor_alloc(len: u32) -> *mut u8 {
            $crate::room(len)
        }
        #[no_mangle]
        pub unsafe extern "C" fn actor_free(at: *mut u8, len: u32) {
            $crate::give_back(at, len)
        }
        #[no_mangle]
        pub unsafe extern "C" fn actor_event(kind: u32, at: *const u8, len: u32) -> i32 {
            $crate::dispatch::<$actor>(kind, core::slice::from_raw_parts(at, len as usize))
        }
        $($crate::actor!(@wants $event);)*
    };
    (@wants restored) => {
        #[no_mangle]
        pub extern "C" fn actor_on_restored() {}
    };
    (@wants stop) => {
        #[no_mangle]
        pub extern "C" fn actor_on_stop() {}
    };
}
