//! The floors: what the machine does when nothing but the unavoidable is asked of it.
//!
//! In: a directory on the disk that is measured. Out: times. Always: plain files, plain writes, `fdatasync`.

use crate::corpus::Corpus;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often one sync is tried.
const SYNCS: usize = 100;

/// How long it takes to write so many bytes with so many syncs, and nothing else.
pub fn journal(directory: &Path, bytes: u64, syncs: u64, corpus: &Corpus) -> io::Result<Duration> {
    let path = directory.join("probe");
    let length = usize::try_from(bytes / syncs.max(1)).expect("a group fits into memory");
    // Groups are longer than the corpus only if it is cut short for a trial.
    let group: Vec<u8> = corpus.head(1 << 20).iter().copied().cycle().take(length).collect();
    let mut file = File::create(&path)?;
    let begun = Instant::now();
    for _ in 0..syncs {
        file.write_all(&group)?;
        file.sync_data()?;
    }
    let took = begun.elapsed();
    std::fs::remove_file(path)?;
    Ok(took)
}

/// The median time of one small write with its sync.
pub fn sync_p50(directory: &Path) -> io::Result<Duration> {
    let mut times = syncs(directory, Duration::ZERO)?;
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

/// How long some small writes took, each with its sync, with so long a pause before each: what others have written meanwhile
/// has to be synced too on some file systems.
pub fn syncs(directory: &Path, pause: Duration) -> io::Result<Vec<Duration>> {
    let path = directory.join("probe");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        std::thread::sleep(pause);
        let begun = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}

/// How much memory of this process is resident, in bytes.
pub fn resident() -> io::Result<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("/proc/self/smaps_rollup has no Rss"))
}

/// The bytes of the files in a directory.
pub fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// Has the system forget what it holds of the files in a directory, so that the next read comes from the disk.
pub fn forget_pages(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let file = File::open(entry?.path())?;
        // Only what is on the disk can be forgotten.
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// How long it takes to read so many bytes at a random place of the largest file of a directory.
pub fn cold_read(directory: &Path, length: usize, choice: u64) -> io::Result<Duration> {
    let mut largest = (0, PathBuf::new());
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        largest = largest.max((entry.metadata()?.len(), entry.path()));
    }
    let file = File::open(largest.1)?;
    let mut buffer = vec![0; length];
    let offset = choice % largest.0.saturating_sub(length as u64).max(1);
    let begun = Instant::now();
    file.read_at(&mut buffer, offset)?;
    Ok(begun.elapsed())
}
