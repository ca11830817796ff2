//! A checkpoint is never needed: with one, without one, with a bad one, the journal comes to the same state.

use super::fault_disk::FaultDisk;
use super::*;
use disk::Kind;

fn options() -> Options {
    Options { segment_max_bytes: 8192, group_max_bytes: 4096, ..Options::default() }
}

type Image = BTreeMap<u32, Vec<u8>>;

fn open(image: &Image) -> (State, bool) {
    let disk = FaultDisk::holding(image);
    let journal = Journal::open(disk.clone(), options()).unwrap();
    assert_eq!(journal.damages(), []);
    (state(&journal), matches!(journal.base, Base::Checkpoint(..)))
}

fn without(image: &Image) -> Image {
    image.iter().filter(|(segment, _)| Kind::of(**segment) != Kind::Checkpoint).map(|(s, b)| (*s, b.clone())).collect()
}

fn checkpoint_of(image: &Image) -> u32 {
    *image.keys().find(|segment| Kind::of(**segment) == Kind::Checkpoint).unwrap()
}

/// A journal with rests, packs and a checkpoint after which something happened, and an older checkpoint of it.
async fn journal(first: u8) -> (Image, Vec<u8>) {
    let disk = FaultDisk::default();
    let mut run = start_with(disk.clone(), options());
    let text = |n: u8| format!("{n} {}", "word ".repeat(30));
    for n in 0..60 {
        run.append(vec![message(thread(first + n % 20), &text(n))]).await.unwrap();
    }
    (0..10).for_each(|n| run.to.put(ToJournal::Rest(rest(thread(first + n), 3))));
    run.append(vec![message(thread(first + 15), "more")]).await.unwrap();
    assert!(run.handle.checkpoint().await);
    let older = disk.image()[&checkpoint_of(&disk.image())].clone();
    run.append((0..5).map(|n| message(thread(first + n), "woken")).collect()).await.unwrap();
    assert!(run.handle.pack().await);
    for n in 60..100 {
        run.append(vec![message(thread(first + 8 + n % 12), &text(n))]).await.unwrap();
    }
    assert!(run.handle.checkpoint().await);
    (2..4).for_each(|n| run.to.put(ToJournal::Rest(rest(thread(first + n), 4))));
    for n in 100..130 {
        run.append(vec![message(thread(first + 8 + n % 15), &text(n))]).await.unwrap();
    }
    run.to.put(ToJournal::Rest(rest(thread(first + 4), 4)));
    run.close().await;
    (disk.image(), older)
}

#[tokio::test]
async fn a_checkpoint_is_never_needed() {
    let (image, older) = journal(1).await;
    let (other, _) = journal(1).await;
    let (stranger, _) = journal(50).await;
    let segment = checkpoint_of(&image);
    let (whole, used) = open(&image);
    assert!(used && !whole.resting.is_empty() && !whole.unsettled.is_empty());
    let (scanned, used) = open(&without(&image));
    assert_eq!(whole, scanned);
    // There are packs, so one was written at the opening.
    assert!(used);
    let with = |bytes: &[u8]| {
        let mut image = image.clone();
        image.insert(segment, bytes.to_vec());
        image
    };
    let mine = &image[&segment];
    let mut cases = 0;
    for at in 0..mine.len() {
        let mut flipped = mine.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(open(&with(&flipped)).0, whole, "flipped at {at}");
        assert_eq!(open(&with(&mine[..at])).0, whole, "torn at {at}");
        cases += 2;
    }
    for bytes in [&older, &other[&checkpoint_of(&other)], &stranger[&checkpoint_of(&stranger)], &vec![0; 4096], &vec![]]
    {
        assert_eq!(open(&with(bytes)).0, whole);
        cases += 1;
    }
    eprintln!("{cases} bad checkpoints");
    // And a log that is shorter than the checkpoint says is not made up for.
    let last = *image.keys().rfind(|segment| Kind::of(**segment) == Kind::Log).unwrap();
    let mut short = image.clone();
    short.get_mut(&last).unwrap().truncate(format::SEGMENT_HEAD);
    assert_eq!(open(&short).0, open(&without(&short)).0);
}

#[tokio::test]
async fn an_opening_reads_only_what_follows_the_checkpoint() {
    let disk = FaultDisk::default();
    let mut run = start_with(disk.clone(), options());
    for n in 0..200 {
        run.append(vec![message(thread(n), &"text ".repeat(100))]).await.unwrap();
    }
    assert!(run.handle.checkpoint().await);
    run.append(vec![message(thread(1), "more")]).await.unwrap();
    run.close().await;
    let disk = FaultDisk::holding(&disk.image());
    assert_eq!(Journal::open(disk.clone(), options()).unwrap().shared.index.len(), 200);
    let bytes = disk.bytes_read();
    let all: usize = disk.image().values().map(Vec::len).sum();
    assert!(bytes < all / 5, "{bytes} of {all} bytes were read");
}

/// The log is not read without end at an opening: checkpoints come by themselves.
#[tokio::test]
async fn checkpoints_are_written_while_running() {
    let disk = FaultDisk::default();
    let often =
        Options { segment_max_bytes: 64 << 10, checkpoint_bytes: 64 << 10, pack_after_ms: 0, ..Options::default() };
    let mut run = start_with(disk.clone(), often);
    let mut waited = 0;
    while disk.image().keys().all(|segment| Kind::of(*segment) != Kind::Checkpoint) {
        run.append((0..20).map(|n| message(thread(n), &"text ".repeat(200))).collect()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        waited += 1;
        assert!(waited < 3_000, "a checkpoint comes by itself");
    }
    run.close().await;
}

/// So many sleepers are not told of all at once; none is forgotten, and who has gone on meanwhile is not told of any more.
#[tokio::test]
async fn very_many_sleepers_are_all_told() {
    let disk = FaultDisk::default();
    let name = |n: u16| ThreadId::from_bytes([[1; 14].as_slice(), &n.to_be_bytes()].concat().try_into().unwrap());
    let many = 3 * super::super::keeper::TOLD_AT_ONCE as u16;
    let mut run = start(disk.clone());
    run.append((0..many).map(|n| message(name(n), "sleeps")).collect()).await.unwrap();
    (0..many).for_each(|n| run.to.put(ToJournal::Rest(rest(name(n), 1))));
    run.close().await;
    let mut run = start(disk);
    run.to.put(ToJournal::Append(vec![message(name(many - 1), "wakes")]));
    let (mut told, mut woken) = (std::collections::BTreeSet::new(), false);
    while told.len() < usize::from(many) - 1 || !woken {
        match run.next().await {
            Some(FromJournal::Resting(rest)) => {
                assert!(!woken || rest.thread != name(many - 1), "it has gone on");
                assert!(rest.thread == name(many - 1) || told.insert(rest.thread), "told twice");
            }
            Some(FromJournal::Committed(_)) => woken = true,
            other => panic!("{other:?}"),
        }
    }
    run.close().await;
}
