//! Dictionaries: what the records of a shard have in common, so that each thread's can be compressed alone.
//!
//! In: the shard's own text. Out: compressed bytes, and the text again. Always: a dictionary is known by its checksum and is
//! kept in each pack that needs it, so that a pack can be read by itself.

use super::disk::Disk;
use super::format::{BATCH_END, FRAME_HEAD, FrameHead, SEGMENT_HEAD, kind};
use super::manifest::Manifest;
use hashbrown::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::DecoderDictionary;

/// How long a dictionary is at most. Four times as long as is usual: threads are compressed each alone, and four times makes
/// them 6 % smaller.
const BYTES_MAX: usize = 256 << 10;
/// From less text than makes a dictionary so long nothing is learnt.
const BYTES_MIN: usize = 64 << 10;
/// A dictionary is made of so many times its own length.
const SAMPLES: usize = 16;
/// How much text is enough to learn from.
pub(super) const LEARNT_FROM_BYTES: usize = 2 * BYTES_MAX * SAMPLES;
/// zstd's level: 6 makes 6 % less than 3 in twice the time, which is still more than what packing may read a second; 9 makes
/// 3 % less than 6.
const LEVEL: i32 = 6;

/// A dictionary and its key.
#[derive(Clone, Debug)]
pub(super) struct Dictionary {
    pub(super) key: u32,
    pub(super) bytes: Arc<[u8]>,
}

impl Dictionary {
    /// Of these bytes. The key is never 0, which stands for none.
    pub(super) fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { key: crc32c::crc32c(&bytes).max(1), bytes }
    }

    /// Learns one from runs of records; none when there are too few of them to learn from.
    pub(super) fn learn(samples: &[&[u8]]) -> Option<Self> {
        let length = samples.iter().map(|sample| sample.len()).sum::<usize>() / SAMPLES;
        if length < BYTES_MIN {
            return None;
        }
        // A failure means that they have nothing in common.
        zstd::dict::from_samples(samples, length.min(BYTES_MAX)).ok().map(Self::new)
    }
}

/// Compresses with a dictionary or without.
pub(super) struct Packing {
    compressor: Compressor<'static>,
    pub(super) dictionary: Option<Dictionary>,
}

impl Packing {
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(dictionary: Option<Dictionary>) -> io::Result<Self> {
        let bytes = dictionary.as_ref().map(|dictionary| &*dictionary.bytes).unwrap_or_default();
        let compressor = Compressor::with_dictionary(LEVEL, bytes)?;
        Ok(Self { compressor, dictionary })
    }

    pub(super) fn key(&self) -> u32 {
        self.dictionary.as_ref().map_or(0, |dictionary| dictionary.key)
    }

    /// # Errors
    /// When there is no memory for it.
    pub(super) fn compress(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.compressor.compress(bytes)
    }
}

/// The dictionaries of a journal's packs.
#[derive(Default)]
pub(super) struct Dictionaries(RwLock<HashMap<u32, Arc<DecoderDictionary<'static>>>>);

impl fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dictionaries").field(&self.0.read().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl Dictionaries {
    /// Reads those of all packs. One that cannot be read is missing when it is needed, and its threads are refused then.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn load(&self, disk: &dyn Disk, manifest: &Manifest) -> io::Result<Option<Dictionary>> {
        let mut newest = None;
        for pack in &manifest.packs {
            match self.read(disk, pack.segment) {
                Ok(dictionary) => newest = dictionary.or(newest),
                Err(error) if error.kind() == io::ErrorKind::NotFound || super::disk::is_lost(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(newest)
    }

    /// A pack's dictionary stands in its first frame, and again in its last.
    fn read(&self, disk: &dyn Disk, segment: u32) -> io::Result<Option<Dictionary>> {
        let first = (SEGMENT_HEAD + BATCH_END) as u64;
        let mut head = [0; FRAME_HEAD];
        disk.read_at(segment, first, &mut head)?;
        let length = FrameHead::stated_length(&head).unwrap_or(0);
        if length > BYTES_MAX {
            return Ok(None);
        }
        let mut frame = vec![0; FRAME_HEAD + length];
        let read = disk.read_at(segment, first, &mut frame)?;
        Ok(FrameHead::read(&frame[..read])
            .filter(|(head, _)| head.row.kind == kind::DICTIONARY)
            .and_then(|(head, body)| self.add(head.row.number as u32, body)))
    }

    /// Adds one that was found; nothing if it is not what it says.
    pub(super) fn add(&self, key: u32, bytes: &[u8]) -> Option<Dictionary> {
        let dictionary = Dictionary::new(bytes);
        if key != dictionary.key {
            return None;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_insert_with(|| Arc::new(DecoderDictionary::copy(bytes)));
        Some(dictionary)
    }

    /// Puts the bytes that these were before they were compressed into `to`, which has room for them.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn decompress(&self, key: u32, compressed: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
        let words = |error: io::Error| format!("a block cannot be decompressed: {error}");
        let length = match key {
            0 => Decompressor::new().and_then(|mut plain| plain.decompress_to_buffer(compressed, to)),
            key => {
                let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
                let dictionary = all.get(&key).cloned().ok_or("the dictionary of a block cannot be read")?;
                drop(all);
                Decompressor::with_prepared_dictionary(&dictionary)
                    .and_then(|mut prepared| prepared.decompress_to_buffer(compressed, to))
            }
        };
        length.map(drop).map_err(words)
    }
}
