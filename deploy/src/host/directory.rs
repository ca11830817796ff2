//! The directory of a cluster: what of it lasts.
//!
//! In: a path. Out: the cluster's name and placement, the state of its shards, and what its processes are told. Always: what
//! lasts is replaced as a whole and on stable storage; a shard's state is only used by the shard of the cluster that made it, and
//! state that should be there and is not is an error with the shard's name, never an empty start.

use crate::placement::Placement;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The version of what this file writes.
pub const FORMAT: u32 = 1;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The system says no.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("{}: it is damaged ({what}); restore it from a backup", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// In which way.
        what: String,
    },
    /// It was written by a later version.
    #[error(
        "{}: it has the format {found}, and this version reads up to {FORMAT}; use the version of slackwater that wrote it, or a later one",
        path.display()
    )]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A shard's state should be there and is not.
    #[error(
        "shard {shard}: its state is gone: {} {what}. Mount its disk or restore it from a backup; it is not started empty, because that would lose what was acknowledged",
        path.display()
    )]
    Gone {
        /// Which shard.
        shard: u32,
        /// Where it should be.
        path: PathBuf,
        /// What is there instead.
        what: &'static str,
    },
    /// It is the state of something else.
    #[error("{}: it is the state of {found}, not of {wanted}; give the directory that belongs to it, or another one", path.display())]
    Other {
        /// Where.
        path: PathBuf,
        /// What it belongs to.
        found: String,
        /// What it should belong to.
        wanted: String,
    },
}

/// What a cluster is, in `cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this form.
    pub format: u32,
    /// The cluster's name: a UUID.
    pub cluster: String,
    /// Where its threads are.
    pub placement: Placement,
    /// Where they will be, while they are being moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_to: Option<Placement>,
    /// Whether all that moves is on stable storage at its new place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copied: bool,
    /// How often it was begun to move threads, or gone on with it.
    #[serde(default)]
    pub attempts: u64,
    /// The shards that have run, in ascending order: their state must be there.
    pub known: Vec<u32>,
}

/// Whose state a shard's directory is, in its `shard.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    format: u32,
    cluster: String,
    shard: u32,
}

/// The file that says what a cluster is.
pub fn manifest_file(cluster: &Path) -> PathBuf {
    cluster.join("cluster.json")
}

/// The state directory of a shard, in the cluster's directory on its host.
pub fn shard_directory(cluster: &Path, shard: u32) -> PathBuf {
    cluster.join(format!("shard-{shard}"))
}

/// What the locations are configured with, in the cluster's directory on their host.
pub fn settings_file(cluster: &Path) -> PathBuf {
    cluster.join("run").join("settings.toml")
}

/// What the locations of a cell are told of the cluster.
pub fn cell_file(cluster: &Path, cell: u32) -> PathBuf {
    cluster.join("run").join(format!("cell-{cell}.json"))
}

/// What the supervisor is told.
pub fn plan_file(cluster: &Path) -> PathBuf {
    cluster.join("run").join("plan.json")
}

/// What the supervisor says of the cluster.
pub fn state_file(cluster: &Path) -> PathBuf {
    cluster.join("run").join("state.json")
}

/// Held as long as the supervisor runs.
pub fn lock_file(cluster: &Path) -> PathBuf {
    cluster.join("run").join("lock")
}

/// What the supervisor and the locations have said.
pub fn log_file(cluster: &Path) -> PathBuf {
    cluster.join("cluster.log")
}

impl Manifest {
    /// A new cluster's.
    pub fn new(placement: Placement) -> Self {
        let cluster = uuid::Uuid::new_v4().to_string();
        Self { format: FORMAT, cluster, placement, moving_to: None, copied: false, attempts: 0, known: Vec::new() }
    }

    /// The one in a directory, if there is a cluster.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(cluster: &Path) -> Result<Option<Self>, DirectoryError> {
        let path = manifest_file(cluster);
        let Some(manifest) = read::<Self>(&path)? else { return Ok(None) };
        let fault = manifest.placement.fault().or_else(|| manifest.moving_to.as_ref().and_then(Placement::fault));
        match fault {
            Some(what) => Err(DirectoryError::Damaged { path, what }),
            None => Ok(Some(manifest)),
        }
    }

    /// Puts it in place of the one in a directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, cluster: &Path) -> Result<(), DirectoryError> {
        store(&manifest_file(cluster), self)
    }

    /// Looks whether a shard's state can be used, and changes nothing.
    ///
    /// # Errors
    /// When the state is gone, another's or newer.
    pub fn check(&self, cluster: &Path, shard: u32) -> Result<(), DirectoryError> {
        look(&shard_directory(cluster, shard), &self.cluster, shard, self.known.contains(&shard)).map(|_| ())
    }
}

/// Takes a shard's directory: it is there and the shard's, or it is made, if the shard has never run.
///
/// # Errors
/// When the state is gone, another's or newer.
pub fn claim(directory: &Path, cluster: &str, shard: u32, known: bool) -> Result<(), DirectoryError> {
    if look(directory, cluster, shard, known)? {
        return Ok(());
    }
    make_directory(directory)?;
    store(&directory.join("shard.json"), &Owner { format: FORMAT, cluster: cluster.to_owned(), shard })
}

/// Whether a shard's state is there.
fn look(directory: &Path, cluster: &str, shard: u32, known: bool) -> Result<bool, DirectoryError> {
    let gone = |what| DirectoryError::Gone { shard, path: directory.to_owned(), what };
    match read::<Owner>(&directory.join("shard.json"))? {
        Some(owner) if owner.cluster == cluster && owner.shard == shard => Ok(true),
        Some(owner) => Err(DirectoryError::Other {
            path: directory.to_owned(),
            found: format!("shard {} of the cluster {}", owner.shard, owner.cluster),
            wanted: format!("shard {shard} of the cluster {cluster}"),
        }),
        None if known && !directory.is_dir() => Err(gone("is not there")),
        None if known => Err(gone("has no shard.json")),
        None if is_empty(directory)? => Ok(false),
        None => Err(DirectoryError::Other {
            path: directory.to_owned(),
            found: "something that is no shard".to_owned(),
            wanted: format!("shard {shard} of the cluster {cluster}"),
        }),
    }
}

fn is_empty(directory: &Path) -> Result<bool, DirectoryError> {
    match fs::read_dir(directory) {
        // What a file system has by itself is no state.
        Ok(entries) => Ok(entries.flatten().all(|entry| entry.file_name() == "lost+found")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(DirectoryError::Io { path: directory.to_owned(), source }),
    }
}

/// Makes a directory for its owner only, if it is not there.
///
/// # Errors
/// When it cannot be made.
pub fn make_directory(path: &Path) -> Result<(), DirectoryError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| DirectoryError::Io { path: path.to_owned(), source })
}

/// Reads what [`store`] wrote; nothing when there is nothing.
///
/// # Errors
/// When it cannot be read or was written by a later version.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DirectoryError> {
    #[derive(Deserialize)]
    struct Version {
        format: Option<u32>,
    }
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(DirectoryError::Io { path: path.to_owned(), source }),
    };
    let damaged = |error: serde_json::Error| DirectoryError::Damaged { path: path.to_owned(), what: error.to_string() };
    let version: Version = serde_json::from_slice(&text).map_err(damaged)?;
    match version.format {
        Some(found) if found > FORMAT => Err(DirectoryError::Newer { path: path.to_owned(), found }),
        _ => serde_json::from_slice(&text).map_err(damaged).map(Some),
    }
}

/// Writes something in place of what is there, for its owner only: after a crash there is the old or the new.
///
/// # Errors
/// When it cannot be written.
pub fn store<T: Serialize>(path: &Path, value: &T) -> Result<(), DirectoryError> {
    let text = serde_json::to_string_pretty(value).expect("invariant: what is stored has text keys");
    replace(path, text.as_bytes())
}

/// Puts a file in place of what is there, as [`store`] does.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, text: &[u8]) -> Result<(), DirectoryError> {
    let named = |source| DirectoryError::Io { path: path.to_owned(), source };
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside);
    file.and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all())).map_err(named)?;
    fs::rename(&aside, path).map_err(named)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(named)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn a_shard_whose_disk_is_gone_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new(Placement::even(1, 2, 8));
        let directory = shard_directory(place.path(), 1);
        manifest.check(place.path(), 1).unwrap();
        claim(&directory, &manifest.cluster, 1, false).unwrap();
        manifest.known = vec![1];
        manifest.check(place.path(), 1).unwrap();
        claim(&directory, &manifest.cluster, 1, true).unwrap();

        // The disk is not mounted: an empty directory is there instead, or none.
        fs::remove_file(directory.join("shard.json")).unwrap();
        for _ in 0..2 {
            let error = manifest.check(place.path(), 1).unwrap_err();
            assert!(matches!(error, DirectoryError::Gone { shard: 1, .. }), "{error}");
            assert!(error.to_string().starts_with("shard 1: "), "{error}");
            let error = claim(&directory, &manifest.cluster, 1, true).unwrap_err();
            assert!(matches!(error, DirectoryError::Gone { shard: 1, .. }), "{error}");
            // Again without the directory.
            let _ = fs::remove_dir(&directory);
        }
        assert!(!directory.exists(), "nothing was made in its place");
    }

    #[test]
    fn the_state_of_something_else_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (ours, other) = (Manifest::new(Placement::even(1, 2, 8)), Manifest::new(Placement::even(1, 2, 8)));
        let directory = shard_directory(place.path(), 0);
        claim(&directory, &other.cluster, 0, false).unwrap();
        let error = ours.check(place.path(), 0).unwrap_err();
        assert!(matches!(error, DirectoryError::Other { .. }), "{error}");
        assert!(error.to_string().contains(&other.cluster) && error.to_string().contains(&ours.cluster), "{error}");

        // A directory with something else in it is not taken over either.
        let directory = shard_directory(place.path(), 1);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("letters.txt"), "dear").unwrap();
        let error = claim(&directory, &ours.cluster, 1, false).unwrap_err();
        assert!(error.to_string().contains("something that is no shard"), "{error}");
    }

    #[test]
    fn a_newer_format_and_damage_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::load(place.path()).unwrap(), None);
        let manifest = Manifest::new(Placement::even(2, 2, 8));
        manifest.store(place.path()).unwrap();
        assert_eq!(Manifest::load(place.path()).unwrap(), Some(manifest.clone()));
        let path = place.path().join("cluster.json");
        fs::write(&path, r#"{"format": 2, "more": true}"#).unwrap();
        assert!(matches!(Manifest::load(place.path()), Err(DirectoryError::Newer { found: 2, .. })));
        for text in ["", "{}", r#"{"format": 1}"#] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Manifest::load(place.path()), Err(DirectoryError::Damaged { .. })), "{text}");
        }
        let mut lost = manifest;
        lost.placement.table[0] = 9;
        lost.store(place.path()).unwrap();
        assert!(matches!(Manifest::load(place.path()), Err(DirectoryError::Damaged { .. })));
    }
}
