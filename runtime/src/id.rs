//! Names: what identifies a thread, a record, a call, a request.
//!
//! In: bytes and text from the edge. Out: small copyable values. Always: a name never changes its meaning, its text
//! form reads back to the same value, and names order the same way everywhere (`Ord` is the order of the bytes).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The position of a record in its thread, counted from 1. The journal gives it out; it never has a gap.
pub type Number = u64;

/// Names one conversation: 16 bytes, shown and read as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId([u8; 16]);

impl ThreadId {
    /// The thread with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, in the order in which they are compared and hashed.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The child that a call of this thread makes. It follows from the two alone, so a birth that is repeated after a crash
    /// is the same child's. The first half of the name is the root's, which keeps a tree on one shard; the second half is
    /// a mix of the parent's name and the call's, marked as a UUID's second half is (RFC 9562, section 4.1).
    pub fn child(&self, call: CallId) -> Self {
        let parent = mix(self.0.iter().fold(FNV_BASIS, fnv));
        let mut name = mix(parent ^ mix((call.number << 16) ^ u64::from(call.index)));
        let mut bytes = self.0;
        loop {
            bytes[8..].copy_from_slice(&name.to_be_bytes());
            bytes[8] = bytes[8] & 0x3f | 0x80;
            if bytes != self.0 {
                return Self(bytes);
            }
            name = mix(name.wrapping_add(1));
        }
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not the name it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadId {
    /// What was expected, in words.
    pub expected: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for BadId {}

impl FromStr for ThreadId {
    type Err = BadId;

    /// Reads a hyphenated UUID (RFC 9562, section 4), in either case.
    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = BadId { expected: "a thread id, which is a UUID such as 018f3c2e-5b1a-7c3d-9e4f-0123456789ab" };
        let text = text.as_bytes();
        if text.len() != 36 || [8, 13, 18, 23].iter().any(|&at| text[at] != b'-') {
            return Err(bad);
        }
        let mut digits = text.iter().filter(|&&c| c != b'-').map(|&c| (c as char).to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(bad);
            };
            *byte = (high * 16 + low) as u8;
        }
        if digits.next().is_some() { Err(bad) } else { Ok(Self(bytes)) }
    }
}

/// The name that a sender gave its input. The same id in the same thread is the same input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId(pub String);

/// Names one call in its thread: the number of the completion that made it, and its place among that completion's
/// calls. It follows from the record, so a dispatch that is repeated after a crash has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The number of the completion's record.
    pub number: Number,
    /// The place of the call among the calls of that completion, from 0.
    pub index: u16,
}

impl CallId {
    /// The call's name in the whole world: what a tool is given as the id of its work.
    pub fn effect_id(&self, thread: ThreadId) -> String {
        format!("{thread}.{self}")
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.index)
    }
}

impl FromStr for CallId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = BadId { expected: "a call id, which is a record number and an index such as 4.0" };
        let Some((number, index)) = text.split_once('.') else {
            return Err(bad);
        };
        match (number.parse(), index.parse()) {
            (Ok(number), Ok(index)) => Ok(Self { number, index }),
            _ => Err(bad),
        }
    }
}

/// Names something that one thread sends to another: it follows from the sender's record, so one that is repeated after a
/// crash is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PostId {
    /// The sender.
    pub from: ThreadId,
    /// The number of the sender's record.
    pub number: Number,
    /// The place among that record's posts, from 0.
    pub index: u16,
}

/// Names one output of a thread: the record it came from and its place among that record's outputs. Clients resume
/// after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutputId {
    /// The number of the record.
    pub number: Number,
    /// The place among the outputs of that record, from 0.
    pub index: u16,
}

impl fmt::Display for OutputId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.index)
    }
}

impl FromStr for OutputId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let CallId { number, index } = text.parse().map_err(|_| BadId {
            expected: "the id of an output, which is a record number and an index such as 7.1",
        })?;
        Ok(Self { number, index })
    }
}

/// Names the request that somebody holds open for an answer: which gateway, and which of its requests. It lives only
/// as long as the process that made it and is never journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// The gateway's number in its cluster; 0 in one process.
    pub gateway: u32,
    /// The request's number at that gateway.
    pub request: u64,
}

/// The shard that owns a thread, of so many, counted from 0: the same everywhere and at every start. When a shard is added,
/// only threads that move to it move (rendezvous hashing: Thaler and Ravishankar, 1998). Only the first half of the name
/// counts, so that a tree is at one shard.
///
/// # Panics
/// When there are no shards.
pub fn shard_of(thread: ThreadId, shards: u32) -> u32 {
    (0..shards).max_by_key(|&shard| weight(thread, shard)).expect("invariant: a cluster has a shard")
}

/// The virtual shard of a thread, of so many, counted from 0: the same everywhere and for ever. A cluster keeps their number
/// and says by a table which process has which of them. As in [`shard_of`], a tree has one.
///
/// # Panics
/// When there are no virtual shards.
pub fn virtual_shard_of(thread: ThreadId, virtual_shards: u32) -> u32 {
    let tree = thread.as_bytes()[..8].iter().fold(FNV_BASIS, fnv);
    (mix(tree) % u64::from(virtual_shards)) as u32
}

/// The weight of a shard for a tree: FNV-1a over both, mixed, since FNV alone mixes its last bytes too little.
fn weight(thread: ThreadId, shard: u32) -> u64 {
    let tree = thread.as_bytes()[..8].iter().fold(FNV_BASIS, fnv);
    mix(shard.to_le_bytes().iter().fold(tree, fnv))
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: &u8) -> u64 {
    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
}

/// The finalizer of SplitMix64: one to one, and every bit of its input moves half of the output's.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn names_read_back_what_they_show() {
        let id = ThreadId::from_bytes(*b"\x01\x8f\x3c\x2e\x5b\x1a\x7c\x3d\x9e\x4f\x01\x23\x45\x67\x89\xab");
        assert_eq!(id.to_string(), "018f3c2e-5b1a-7c3d-9e4f-0123456789ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        let call = CallId { number: 12, index: 3 };
        assert_eq!(call.to_string().parse(), Ok(call));
        assert_eq!(call.effect_id(id), "018f3c2e-5b1a-7c3d-9e4f-0123456789ab.12.3");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            "abc",
            "018f3c2e-5b1a-7c3d-9e4f-0123456789a",
            "018f3c2e-5b1a-7c3d-9e4f-0123456789ag",
            "018f3c2e05b1a-7c3d-9e4f-0123456789ab",
            "-18f3c2e-5b1a-7c3d-9e4f-0123456789ab",
        ] {
            assert!(text.parse::<ThreadId>().is_err(), "{text}");
        }
        for text in ["", "1", "1.", ".1", "a.0", "1.70000", "-1.0"] {
            assert!(text.parse::<CallId>().is_err(), "{text}");
        }
    }

    fn threads() -> impl Iterator<Item = ThreadId> {
        (0..10_000_u128)
            .map(|n| ThreadId::from_bytes(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_0c2d_3b1a_5e77).to_be_bytes()))
    }

    #[test]
    fn threads_are_spread_evenly() {
        let mut owned = [0_u32; 5];
        threads().for_each(|thread| owned[shard_of(thread, 5) as usize] += 1);
        assert!(owned.iter().all(|&count| (1_800..2_200).contains(&count)), "{owned:?}");
    }

    #[test]
    fn threads_are_spread_evenly_over_virtual_shards() {
        let mut owned = [0_u32; 8];
        threads().for_each(|thread| owned[virtual_shard_of(thread, 8) as usize] += 1);
        assert!(owned.iter().all(|&count| (1_100..1_400).contains(&count)), "{owned:?}");
        // Changing this loses the threads of every cluster that there is.
        let demo: ThreadId = "812c0a6d-7438-8772-b551-c7e779b9a354".parse().unwrap();
        assert_eq!(virtual_shard_of(demo, 256), 134);
    }

    #[test]
    fn a_new_shard_takes_threads_and_moves_no_others() {
        for thread in threads() {
            let (before, after) = (shard_of(thread, 4), shard_of(thread, 5));
            assert!(after == before || after == 4);
        }
    }

    #[test]
    fn a_tree_is_at_one_shard_and_each_of_its_threads_has_a_name_of_its_own() {
        let root = ThreadId::from_bytes(*b"\x01\x8f\x3c\x2e\x5b\x1a\x7c\x3d\x9e\x4f\x01\x23\x45\x67\x89\xab");
        let call = |number, index| CallId { number, index };
        let mut names = std::collections::BTreeSet::from([root]);
        for number in 2..20_002 {
            for index in 0..4 {
                assert!(names.insert(root.child(call(number, index))), "{number}.{index}");
            }
        }
        let child = root.child(call(2, 0));
        assert_eq!(child, root.child(call(2, 0)), "the same call makes the same child");
        assert!((2..20_002).all(|number| names.insert(child.child(call(number, 0)))));
        assert!(names.iter().all(|name| shard_of(*name, 7) == shard_of(root, 7)));
        assert!(names.iter().all(|name| virtual_shard_of(*name, 256) == virtual_shard_of(root, 256)));
        assert!(names.iter().all(|name| name.to_string().parse() == Ok(*name)));
        assert!(names.iter().filter(|name| **name != root).all(|name| name.as_bytes()[8] >> 6 == 2));
    }
}
