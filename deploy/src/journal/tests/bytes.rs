//! The bytes: every record reads back, and the format does not drift.

use super::super::batch::{Batch, find};
use super::super::body;
use super::super::format::{FRAME_HEAD, FrameHead, Location, Row, SEGMENT_HEAD, SegmentHead, kind};
use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use slackwater_core::record::{Block, Completion, End, Failure, FailureClass, Sealed, Stop, ToolResult, Usage};

fn call_id() -> impl Strategy<Value = CallId> {
    (any::<u64>(), any::<u16>()).prop_map(|(number, index)| CallId { number, index })
}

fn origin() -> impl Strategy<Value = Origin> {
    let proofs = [Proof::Process, Proof::Loopback, Proof::Capability, Proof::Key];
    (".*", prop::sample::select(proofs.to_vec())).prop_map(|(who, proof)| Origin { who, proof })
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let piece = prop_oneof![
        ".*".prop_map(Content::Text),
        (".*", ".*").prop_map(|(media_type, data)| Content::Image { media_type, data }),
        (".*", ".*", ".*").prop_map(|(name, media_type, data)| Content::File { name, media_type, data }),
    ];
    vec(piece, 0..3)
}

fn block() -> impl Strategy<Value = Block> {
    let sealed = option::of((".*", ".*").prop_map(|(provider, json)| Sealed { provider, json }));
    prop_oneof![
        ".*".prop_map(Block::Text),
        (".*", sealed).prop_map(|(text, sealed)| Block::Reasoning { text, sealed }),
        (".*", ".*", ".*").prop_map(|(provider_id, name, arguments)| Block::Call { provider_id, name, arguments }),
    ]
}

fn completion() -> impl Strategy<Value = Record> {
    let ends = [End::Finished, End::Length, End::Declined, End::Cut];
    let usage = any::<[u64; 3]>().prop_map(|[input_tokens, output_tokens, cached_tokens]| Usage {
        input_tokens,
        output_tokens,
        cached_tokens,
    });
    (any::<u64>(), vec(block(), 0..4), prop::sample::select(ends.to_vec()), usage, ".*").prop_map(
        |(seen, blocks, end, usage, model)| Record::Completion(Completion { seen, blocks, end, usage, model }),
    )
}

fn record() -> impl Strategy<Value = Record> {
    let classes = [FailureClass::Transient, FailureClass::Throttled, FailureClass::Overflow, FailureClass::Fatal];
    prop_oneof![
        (".*", origin(), content(), option::of(".*"), option::of(".*")).prop_map(
            |(id, origin, content, thread_name, metadata)| Record::Message(Message {
                id: InputId(id),
                origin,
                content,
                thread_name,
                metadata
            })
        ),
        completion(),
        (any::<u64>(), prop::sample::select(classes.to_vec()), ".*", any::<u32>())
            .prop_map(|(seen, class, message, attempts)| Record::Failure(Failure { seen, class, message, attempts })),
        call_id().prop_map(Record::Accepted),
        (call_id(), any::<u64>()).prop_map(|(call, due_ms)| Record::Armed { call, due_ms }),
        (call_id(), origin(), content(), any::<bool>(), any::<bool>(), option::of(".*")).prop_map(
            |(call, origin, content, is_error, subscription, display)| Record::Result(ToolResult {
                call,
                origin,
                content,
                is_error,
                subscription,
                display
            })
        ),
        call_id().prop_map(Record::Fired),
        (".*", origin()).prop_map(|(id, origin)| Record::Stop(Stop { id: InputId(id), origin })),
    ]
}

proptest! {
    #[test]
    fn every_record_reads_back(record in record()) {
        let mut bytes = Vec::new();
        body::write_record(&record, &mut bytes);
        prop_assert_eq!(body::read_record(&bytes), Ok(record));
        bytes.push(0);
        prop_assert!(body::read_record(&bytes).is_err(), "a byte too many is seen");
    }

    #[test]
    fn garbage_is_read_as_nothing(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(find(&bytes, 0, 1).is_none());
        prop_assert!(FrameHead::read(&bytes).is_none());
        prop_assert!(SegmentHead::read(&bytes).is_none());
        let _ = body::read_record(&bytes);
    }

    #[test]
    fn a_batch_reads_back(records in vec((any::<[u8; 16]>(), 1..1_u64 << 56, any::<u64>(), record()), 1..8)) {
        let at = Location { segment: 3, offset: 100 };
        let mut batch = Batch::default();
        batch.begin(at);
        let mut heads = Vec::new();
        for (thread, number, at_ms, record) in &records {
            let row = Row { thread: ThreadId::from_bytes(*thread), number: *number, kind: kind::RECORD, length: 0 };
            let head = FrameHead { row, previous: Location { segment: 1, offset: *at_ms as u32 }, at_ms: *at_ms };
            let location = batch.push(head, |bytes| body::write_record(record, bytes));
            heads.push((head, location));
        }
        let length = batch.length();
        let mut segment = vec![0; 100];
        segment.extend_from_slice(batch.seal(9));
        prop_assert_eq!(length + 100, segment.len());
        let found = find(&segment, 100, 9).unwrap();
        prop_assert!(found.is_whole() && found.flaws.is_empty());
        for ((frame, (head, location)), (_, _, _, record)) in found.frames.iter().zip(heads).zip(&records) {
            prop_assert_eq!(frame.offset as u32, location.offset);
            let (read, body) = FrameHead::read(&segment[frame.offset..]).unwrap();
            prop_assert_eq!((read.row.thread, read.row.number), (head.row.thread, head.row.number));
            prop_assert_eq!((read.previous, read.at_ms), (head.previous, head.at_ms));
            prop_assert_eq!(&body::read_record(body).unwrap(), record);
        }
    }
}

#[test]
fn the_format_does_not_drift() {
    let head = SegmentHead { version: 1, segment: 7, first: 42 }.write();
    let mut batch = Batch::default();
    batch.begin(Location { segment: 7, offset: SEGMENT_HEAD as u32 });
    let row = Row { thread: thread(0x11), number: 3, kind: kind::RECORD, length: 0 };
    let previous = Location { segment: 6, offset: 0x1234 };
    let record = message(thread(0x11), "hi").record;
    let first = batch.push(FrameHead { row, previous, at_ms: 0x0102_0304 }, |bytes| body::write_record(&record, bytes));
    assert_eq!(first, Location { segment: 7, offset: 64 });
    let row = Row { thread: thread(0x22), number: 9, kind: kind::REST, length: 0 };
    let timers = [(CallId { number: 9, index: 1 }, 1000)];
    batch.push(FrameHead { row, previous: Location::default(), at_ms: 0 }, |bytes| body::write_timers(&timers, bytes));
    let bytes = [&head[..], batch.seal(42)].concat();
    let lines: Vec<String> =
        bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(lines.join("\n"), GOLDEN.trim(), "a change of the format needs a new version");
    let found = find(&bytes, SEGMENT_HEAD, 42).unwrap();
    assert!(found.is_whole());
    assert_eq!(FrameHead::read(&bytes[64..]).unwrap().1.len(), found.frames[1].offset - 64 - FRAME_HEAD);
}

/// The segment's header, the batch's head, a message's frame, a rest's frame, the table, the foot.
const GOLDEN: &str = "
c23c7afbff736c61636b77fe01000000
070000002a0000000000000000000000
bdd135f4ff5342fef000000002000000
2a00000000000000cbb98de400000000
b8f15ae4120000001111111111111111
11111111111111110300000000000001
06000000341200000403020100000000
02000268690475736572010100026869
0000f997a27906000000222222222222
22222222222222222222090000000000
00020000000000000000000000000000
000001010901e8071200000011111111
11111111111111111111111103000000
00000001060000002222222222222222
22222222222222220900000000000002
904d7c34ff5345fef000000002000000
2a00000000000000cbb98de400000000
";
