//! The bytes of what is beside the log do not drift: a change of them needs a new version.

use super::super::block::{self, BlockHead};
use super::super::checkpoint::{Mark, Writing};
use super::super::format::Location;
use super::super::index::{Entry, Index};
use super::super::manifest::{Manifest, Pack};
use super::fault_disk::FaultDisk;
use super::*;
use disk::Kind;

fn lines(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(16).map(|bytes| line(bytes) + "\n").collect()
}

fn manifest() -> Manifest {
    let pack = |number, bytes, dead| Pack { segment: Kind::Pack.segment(number), bytes, dead };
    Manifest { oldest: 7, packs: vec![pack(2, 5000, 100), pack(4, 900, 0)], last_pack: 5 }
}

#[test]
fn a_manifest_does_not_drift() {
    let disk = FaultDisk::default();
    manifest().store(&disk).unwrap();
    let bytes = &disk.image()[&Kind::Manifest.segment(1)];
    assert_eq!(lines(bytes), MANIFEST.trim_start());
    assert_eq!(Manifest::decode(bytes), Some(manifest()));
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        assert_eq!(Manifest::decode(&bytes), Some(manifest()), "its other half is whole, byte {at}");
        bytes.truncate(at);
        assert!(Manifest::decode(&bytes).is_none_or(|found| found == manifest()), "cut at {at}");
    }
}

#[test]
fn a_block_does_not_drift() {
    let timers = vec![(CallId { number: 9, index: 1 }, 1000)];
    let head = BlockHead { first: 3, rest: Some(timers), dictionary: 0x0102_0304, raw: 700 };
    let mut bytes = Vec::new();
    block::write(&head, b"compressed", &mut bytes);
    assert_eq!(lines(&bytes), BLOCK.trim_start());
    assert_eq!(block::read_head(&bytes).unwrap(), (head, &b"compressed"[..]));
    let mut run = block::Run::default();
    run.push(0x0102_0304, b"hi");
    run.push(5, b"there");
    assert_eq!(lines(run.bytes()), RUN.trim_start());
}

#[test]
fn a_checkpoint_does_not_drift() {
    let disk = FaultDisk::default();
    let start = Mark { segment: 7, end: 0x1234, sequence: 42, foot: [0xaa; 32] };
    let index = Index::default();
    index.set(thread(0x11), Entry::new(Location { segment: 7, offset: 64 }, 3));
    let mut writing = Writing::begin(&disk, start, 1, &manifest()).unwrap();
    writing.entries(&index, |_| Ok::<_, std::io::Error>(())).unwrap();
    writing.rests([rest(thread(0x11), 3)].into_iter()).unwrap();
    let segment = writing.end(Mark { end: 0x2345, sequence: 43, ..start }).unwrap();
    assert_eq!(lines(&disk.image()[&segment]), CHECKPOINT.trim_start());
    let packed = Entry::packed(Location { segment: Kind::Pack.segment(2), offset: 64 }, 20, 5000, true);
    assert_eq!(packed.to_bits().1, 1 << 63 | 1 << 62 | 13 << 56 | 20);
}

/// Twice: the sum, the mark, the length, the version; the first segment, the packs, the last pack.
const MANIFEST: &str = "
66aa6d18ff534dfe1300000002000000
07028280808008882764848080800884
07000566aa6d18ff534dfe1300000002
00000007028280808008882764848080
800884070005
";

/// The version; the first record, the timers, the dictionary, the length; the compressed records.
const BLOCK: &str = "
010301010901e80784868808bc05636f
6d70726573736564
";

/// Of each record: when it was received, its length, its bytes.
const RUN: &str = "
04030201000000000200000068690500
000000000000050000007468657265
";

/// Pieces: the head, the entries, the rests, the end; each with its sum, its length and its kind.
const CHECKPOINT: &str = "
6b914c9531000000010000000207b424
2aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aa010282808080088480808008ff596b
04200000000200000011111111111111
11111111111111111107000000400000
00030000000000000059fd2f461b0000
00030000000111111111111111111111
1111111111110301030080f0cc86a637
030bdd86260000000400000007c5462b
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
0101
";
