//! Notes, kept by name: PUT /<name> stores the body, GET /<name> answers it, DELETE /<name> forgets it, GET / lists the
//! names, GET /?<prefix> those that begin so. Every note is also told to the actor journal/all, once, by a message.
use holdfast_actor::{actor, delete, get, list, log, put, reply_text, send, text_of, Actor, Error, Http, Outcome};

struct Notes;

fn key(name: &[u8]) -> Vec<u8> {
    [b"note/", name].concat()
}

fn names(prefix: &[u8]) -> Result<String, Error> {
    let mut out = String::new();
    for (key, value) in list(&key(prefix), b"", 0, false)? {
        out += &format!("{} {}\n", text_of(&key[5..])?, value.len());
    }
    Ok(out)
}

impl Actor for Notes {
    fn http(request: &Http) -> Outcome {
        let name = &request.path()[1..];
        match (request.method, name.is_empty()) {
            (b"GET", true) => reply_text(200, &names(request.query())?),
            (b"GET", false) => match get(&key(name))? {
                Some(text) => reply_text(200, &text_of(&text)?),
                None => reply_text(404, "no such note\n"),
            },
            (b"PUT", false) => {
                put(&key(name), request.body)?;
                send("journal/all", "noted", name)?;
                log(2, format_args!("{} has {} bytes", text_of(name)?, request.body.len()));
                reply_text(200, "kept\n")
            }
            (b"DELETE", false) => match delete(&key(name))? {
                true => reply_text(200, "forgotten\n"),
                false => reply_text(404, "no such note\n"),
            },
            _ => reply_text(405, "notes know GET, PUT and DELETE\n"),
        }
    }
}
actor!(Notes);
