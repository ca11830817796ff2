//! A snapshot: a journal's directory as it is at a moment, whoever runs on it.
//!
//! In: a path. Out: a [`Disk`] that is only read. Always: what it shows fits together: all that its manifest names, and the
//! log from there to the end that it had at that moment; it takes no lock and changes nothing. Files that the owner removes
//! meanwhile are kept by the system until the snapshot is gone.

use super::disk::{Disk, Kind, file_name, of_kind, segment_named};
use super::error::JournalError;
use super::manifest::Manifest;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// How often it is tried again when the owner has just removed something.
const ATTEMPTS: usize = 100;

/// A directory that others may be writing to.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    files: BTreeMap<u32, (File, u64)>,
}

impl Snapshot {
    /// Takes one.
    ///
    /// # Errors
    /// When there is no such directory, it holds no journal, or it cannot be read.
    pub fn take(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        super::directory::refuse_half_repaired(&path)?;
        let failed = |source| JournalError::Directory { path: path.clone(), source };
        for _ in 0..ATTEMPTS {
            let files = open_all(&path).map_err(failed)?;
            if files.keys().all(|segment| Kind::of(*segment) != Kind::Log) {
                return Err(JournalError::Nothing { path });
            }
            let snapshot = Self { path: path.clone(), files };
            // Chains lead only to packs that a manifest named before, and nothing is removed that one names. So if the
            // manifest is the same after the files were opened, they are all there.
            let manifest = snapshot.manifest().map_err(failed)?;
            if manifest == newest_manifest(&path).map_err(failed)? && snapshot.is_complete().map_err(failed)? {
                return Ok(snapshot);
            }
        }
        Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "what it holds changes too fast to be read")))
    }

    fn manifest(&self) -> io::Result<Option<u32>> {
        Ok(of_kind(&self.segments()?, Kind::Manifest).next_back().map(|(segment, _)| segment))
    }

    /// Whether all is there that belongs together.
    fn is_complete(&self) -> io::Result<bool> {
        let segments = self.segments()?;
        let found = Manifest::find(self, &segments)?;
        let packs = &found.manifest.packs;
        let has_packs = packs
            .iter()
            .all(|pack| self.files.get(&pack.segment).is_some_and(|(_, length)| *length >= u64::from(pack.bytes)));
        let first =
            of_kind(&segments, Kind::Log).map(|(segment, _)| segment).find(|segment| *segment >= found.manifest.oldest);
        // What is really missing is damage, which is named when it is read.
        Ok(found.is_damaged || has_packs && first == Some(found.manifest.oldest))
    }

    /// The file of a segment and how much of it belongs to the snapshot.
    pub(super) fn file(&self, segment: u32) -> io::Result<(&File, u64)> {
        self.files.get(&segment).map(|(file, length)| (file, *length)).ok_or(io::ErrorKind::NotFound.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn segments_of(path: &Path) -> io::Result<Vec<u32>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(path)? {
        segments.extend(entry?.file_name().to_str().and_then(segment_named));
    }
    segments.sort_unstable();
    Ok(segments)
}

fn newest_manifest(path: &Path) -> io::Result<Option<u32>> {
    Ok(segments_of(path)?.into_iter().rfind(|segment| Kind::of(*segment) == Kind::Manifest))
}

/// Opens what is there. The manifest is the first to be opened.
fn open_all(path: &Path) -> io::Result<BTreeMap<u32, (File, u64)>> {
    let mut segments = segments_of(path)?;
    segments.sort_unstable_by_key(|segment| (Kind::of(*segment) != Kind::Manifest, *segment));
    let mut files = BTreeMap::new();
    for segment in segments {
        match File::open(path.join(file_name(segment))) {
            Ok(file) => {
                let length = file.metadata()?.len();
                files.insert(segment, (file, length));
            }
            // It was removed just now; whether it belonged here is seen by the manifest.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

fn only_read<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a snapshot is only read"))
}

impl Disk for Snapshot {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        Ok(self.files.iter().map(|(&segment, (_, length))| (segment, *length)).collect())
    }

    fn create(&self, _: u32) -> io::Result<()> {
        only_read()
    }

    fn write_at(&self, _: u32, _: u64, _: &[u8]) -> io::Result<()> {
        only_read()
    }

    fn sync(&self, _: u32) -> io::Result<()> {
        only_read()
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (file, length) = self.file(segment)?;
        let wanted = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut filled = 0;
        while filled < wanted {
            match file.read_at(&mut buffer[filled..wanted], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn truncate(&self, _: u32, _: u64) -> io::Result<()> {
        only_read()
    }

    fn remove(&self, _: u32) -> io::Result<()> {
        only_read()
    }

    fn sync_directory(&self) -> io::Result<()> {
        only_read()
    }

    fn directory(&self) -> String {
        self.path.display().to_string()
    }
}
