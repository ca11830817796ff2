//! What is inside a frame: a record, or a rest's timers.
//!
//! In: a value. Out: a version byte and the value in postcard, appended to a buffer; and back. Always: a body is read to
//! its last byte or not at all.

use postcard::ser_flavors::{Flavor, Size};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slackwater_core::id::CallId;
use slackwater_core::record::Record;

/// The version of `Record`'s encoding. It changes when a variant or field is added.
const RECORD_VERSION: u8 = 1;
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
    read(body, RECORD_VERSION)
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
        Some((&found, bytes)) if found == version => match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(format!("its body has {} bytes too many", rest.len())),
            Err(error) => Err(format!("its body cannot be read: {error}")),
        },
        Some((&found, _)) => Err(format!(
            "its body has version {found} and this program reads version {version}; a newer program wrote it"
        )),
        None => Err("its body is empty".to_owned()),
    }
}
