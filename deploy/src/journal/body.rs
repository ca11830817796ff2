//! What is inside a frame: a record, or a rest's timers.
//!
//! In: a value. Out: a version byte and the value in postcard, appended to a buffer; and back. Always: a body is read to
//! its last byte or not at all.

use postcard::ser_flavors::{Flavor, Size};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_core::id::CallId;
use slackwater_core::record::{Post, PostBody, Record};

/// The version of `Record`'s encoding. It changes when a field is added.
const RECORD_VERSION: u8 = 2;
/// The oldest version that is still read: in it a birth ends before its terms.
const RECORD_VERSION_OLDEST: u8 = 1;
/// The version of a rest's encoding.
const REST_VERSION: u8 = 1;

/// Appends a record.
pub(super) fn write_record(record: &Record, to: &mut Vec<u8>) {
    to.push(RECORD_VERSION);
    write(record, to);
}

/// How long a value is in postcard, in bytes.
pub(super) fn length<T: Serialize + ?Sized>(value: &T) -> u64 {
    let length = postcard::serialize_with_flavor(value, Size::default());
    length.expect("invariant: the words are plain data") as u64
}

/// Reads a record.
///
/// # Errors
/// What is wrong with the bytes, in words.
pub(super) fn read_record(body: &[u8]) -> Result<Record, String> {
    match body.split_first() {
        Some((&RECORD_VERSION_OLDEST, bytes)) => read_bytes(bytes).or_else(|error| {
            // What was added since stands at a birth's end and may be nothing, which is written as a zero.
            match read_bytes(&[bytes, &[0]].concat()) {
                Ok(birth @ Record::Post(Post { body: PostBody::Birth(_), .. })) => Ok(birth),
                _ => Err(error),
            }
        }),
        _ => read(body, RECORD_VERSION),
    }
}

/// Appends a rest's timers.
pub(super) fn write_timers(timers: &[(CallId, u64)], to: &mut Vec<u8>) {
    to.push(REST_VERSION);
    write(timers, to);
}

/// Reads a rest's timers.
///
/// # Errors
/// What is wrong with the bytes, in words.
pub(super) fn read_timers(body: &[u8]) -> Result<Vec<(CallId, u64)>, String> {
    read(body, REST_VERSION)
}

/// Postcard's output, at the end of a buffer that is already there.
struct Appending<'a>(&'a mut Vec<u8>);

impl Flavor for Appending<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn write<T: Serialize + ?Sized>(value: &T, to: &mut Vec<u8>) {
    // It fails only for sequences of unknown length and custom errors, and the words have neither.
    postcard::serialize_with_flavor(value, Appending(to)).expect("invariant: the words are plain data");
}

fn read<T: DeserializeOwned>(body: &[u8], version: u8) -> Result<T, String> {
    match body.split_first() {
        Some((&found, bytes)) if found == version => read_bytes(bytes),
        Some((&found, _)) => Err(format!(
            "its body has version {found} and this program reads version {version}; a newer program wrote it"
        )),
        None => Err("its body is empty".to_owned()),
    }
}

fn read_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("its body has {} bytes too many", rest.len())),
        Err(error) => Err(format!("its body cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use slackwater_core::id::{InputId, PostId, ThreadId};
    use slackwater_core::record::{Birth, Cause, Origin, Stop};

    #[test]
    fn a_record_of_the_first_version_is_still_read() {
        let root = ThreadId::from_bytes([1; 16]);
        let spawn = Cause { name: "spawn_thread".into(), provider_id: "a".into(), arguments: "{}".into() };
        let birth = Birth { ancestors: vec![root], through: 3, fresh: false, spawn, event: None, terms: None };
        let id = PostId { from: root, number: 4, index: 0 };
        let birth = Record::Post(Post { id, body: PostBody::Birth(Box::new(birth)) });
        let stop = Record::Stop(Stop { id: InputId("s".into()), origin: Origin::runtime() });
        for (record, added) in [(birth, 1), (stop, 0)] {
            let mut body = Vec::new();
            write_record(&record, &mut body);
            assert_eq!(read_record(&body), Ok(record.clone()));
            body[0] = RECORD_VERSION_OLDEST;
            body.truncate(body.len() - added);
            assert_eq!(read_record(&body), Ok(record));
            body.pop();
            assert!(read_record(&body).is_err(), "a record that is cut is not read");
        }
    }
}
