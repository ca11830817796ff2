//! A block: a run of a thread's records, one after another and compressed.
//!
//! In: records as they are in frames. Out: a body for a frame, and the records again. Always: a block says which records it
//! holds and with which dictionary; what it does not hold to the last byte is not read at all.

use super::dictionary::Dictionaries;
use serde::{Deserialize, Serialize};
use slackwater_core::id::{CallId, Number};

/// The version of a block's body.
const VERSION: u8 = 1;
/// What stands before each record: when it was received, and its length.
const RECORD_HEAD: usize = 12;
/// No block holds more than this, so that a damaged length takes no memory.
const RAW_MAX: usize = 1 << 30;

/// What stands before the compressed records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockHead {
    /// The number of its first record.
    pub(super) first: Number,
    /// The thread's timers, if it rests after the last of them.
    pub(super) rest: Option<Vec<(CallId, u64)>>,
    /// The dictionary's key; 0 for none.
    pub(super) dictionary: u32,
    /// How long its records are when they are not compressed.
    pub(super) raw: u32,
}

/// Records of a thread, in order and not compressed.
#[derive(Debug, Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
    /// Where each begins.
    starts: Vec<usize>,
}

impl Run {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    pub(super) fn push(&mut self, at_ms: u64, body: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(&at_ms.to_le_bytes());
        self.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(body);
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When a record was received, and its body.
    pub(super) fn get(&self, index: usize) -> (u64, &[u8]) {
        let start = self.starts[index];
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        let at_ms = u64::from_le_bytes(self.bytes[start..start + 8].try_into().expect("invariant: eight bytes"));
        (at_ms, &self.bytes[start + RECORD_HEAD..end])
    }

    /// Finds the records in the bytes.
    fn find(&mut self, count: u64) -> Option<()> {
        self.starts.clear();
        let mut at = 0;
        while at < self.bytes.len() {
            let head = self.bytes.get(at..at + RECORD_HEAD)?;
            self.starts.push(at);
            at += RECORD_HEAD + super::format::u32_at(head, 8) as usize;
        }
        (at == self.bytes.len() && self.starts.len() as u64 == count).then_some(())
    }
}

/// Appends a block's body.
pub(super) fn write(head: &BlockHead, compressed: &[u8], to: &mut Vec<u8>) {
    to.push(VERSION);
    let head = postcard::to_allocvec(head).expect("invariant: a block's head is plain data");
    to.extend_from_slice(&head);
    to.extend_from_slice(compressed);
}

/// Reads what stands before the records, and gives the compressed rest.
///
/// # Errors
/// What is wrong with the bytes, in words.
pub(super) fn read_head(body: &[u8]) -> Result<(BlockHead, &[u8]), String> {
    match body.split_first() {
        Some((&VERSION, bytes)) => {
            postcard::take_from_bytes(bytes).map_err(|error| format!("the head of a block cannot be read: {error}"))
        }
        Some((found, _)) => Err(format!(
            "a block has version {found} and this program reads version {VERSION}; a newer program wrote it"
        )),
        None => Err("a block is empty".to_owned()),
    }
}

/// Reads a block that ends with record `through` into `run`.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn read(
    body: &[u8],
    through: Number,
    dictionaries: &Dictionaries,
    run: &mut Run,
) -> Result<BlockHead, String> {
    let (head, compressed) = read_head(body)?;
    let raw = Some(head.raw as usize).filter(|raw| *raw <= RAW_MAX).ok_or("a block says that it is too long")?;
    run.clear();
    run.bytes.reserve(raw);
    dictionaries.decompress(head.dictionary, compressed, &mut run.bytes)?;
    let count = (through + 1).checked_sub(head.first).filter(|_| head.first > 0 && run.bytes.len() == raw);
    count.and_then(|count| run.find(count)).ok_or("a block does not hold the records that it should")?;
    Ok(head)
}
