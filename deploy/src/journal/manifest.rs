//! The manifest: which packs there are, and where the log begins.
//!
//! In: what the keeper has made durable. Out: a small segment of its own, and the one that holds at an opening. Always: a pack
//! counts only when a manifest names it, and nothing is removed before a manifest without it is on stable storage; its
//! contents stand in it twice, so that one damaged place takes nothing away.

use super::disk::{Disk, Kind, of_kind, read_all};
use super::format::{VERSION, sum, summed, u32_at};
use serde::{Deserialize, Serialize};
use std::io;

const MAGIC: [u8; 4] = *b"\xffSM\xfe";
const HEAD: usize = 16;

/// What the journal consists of beside the log's newest segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The log's first segment; what is below was packed and is removed.
    pub(super) oldest: u32,
    /// The packs, in ascending order.
    pub(super) packs: Vec<Pack>,
    /// The highest number that a pack ever had: none has it twice, so that what once led to a pack never leads to another.
    pub(super) last_pack: u32,
}

/// A pack as the manifest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pack {
    pub(super) segment: u32,
    /// Its length.
    pub(super) bytes: u32,
    /// How many of them are of blocks that were packed again since: an estimate, by which it is decided what is packed anew.
    pub(super) dead: u32,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { oldest: 1, packs: Vec::new(), last_pack: 0 }
    }
}

/// The manifest that holds, and what else was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) manifest: Manifest,
    /// Its segment, if there is one.
    pub(super) segment: Option<u32>,
    /// Whether there are manifests and none of them can be read.
    pub(super) is_damaged: bool,
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let body = postcard::to_allocvec(self).expect("invariant: a manifest is plain data");
        let mut piece = vec![0; HEAD];
        piece[4..8].copy_from_slice(&MAGIC);
        piece[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
        piece[12..14].copy_from_slice(&VERSION.to_le_bytes());
        piece.extend_from_slice(&body);
        sum(&mut piece);
        [piece.clone(), piece].concat()
    }

    /// Reads what `encode` wrote, from whichever of its halves is whole.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let half = |piece: &[u8]| {
            let piece = summed(piece.get(..HEAD + u32_at(piece.get(..HEAD)?, 8) as usize)?)?;
            (piece[4..8] == MAGIC).then(|| postcard::from_bytes(&piece[HEAD..]).ok())?
        };
        half(bytes).or_else(|| half(bytes.get(bytes.len() / 2..)?))
    }

    /// Makes this the manifest that holds; those before it are removed.
    ///
    /// # Errors
    /// When the disk fails. Either this or the one before it holds then.
    pub(super) fn store(&self, disk: &dyn Disk) -> io::Result<()> {
        let segments = disk.segments()?;
        let last = of_kind(&segments, Kind::Manifest).next_back();
        let segment = last.map_or_else(|| Kind::Manifest.segment(1), |(last, _)| last + 1);
        disk.create(segment)?;
        self.write(disk, segment)?;
        disk.sync_directory()?;
        of_kind(&segments, Kind::Manifest).try_for_each(|(before, _)| disk.remove(before))
    }

    /// Writes it, or writes it again where it is.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn write(&self, disk: &dyn Disk, segment: u32) -> io::Result<()> {
        disk.write_at(segment, 0, &self.encode())?;
        disk.sync(segment)
    }

    /// Finds the one that holds: the newest that can be read. One that was never finished is passed over; the one before it
    /// was kept until then.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn find(disk: &dyn Disk, segments: &[(u32, u64)]) -> io::Result<Found> {
        let mut is_damaged = false;
        for (segment, length) in of_kind(segments, Kind::Manifest).rev() {
            match read_all(disk, segment, length) {
                Ok(bytes) => {
                    if let Some(manifest) = Self::decode(&bytes) {
                        return Ok(Found { manifest, segment: Some(segment), is_damaged: false });
                    }
                }
                Err(error) if super::disk::is_lost(&error) => {}
                Err(error) => return Err(error),
            }
            is_damaged = true;
        }
        // Without one nothing was ever taken away, unless there was one: then the log does not begin at its first batch, which
        // is seen. Packs that are there may be referred to.
        let packs = of_kind(segments, Kind::Pack).map(|(segment, length)| Pack {
            segment,
            bytes: u32::try_from(length).unwrap_or(u32::MAX),
            dead: 0,
        });
        let packs: Vec<_> = if is_damaged { packs.collect() } else { Vec::new() };
        let last_pack = packs.last().map_or(0, |pack| super::disk::number_of(pack.segment));
        Ok(Found { manifest: Self { oldest: 1, packs, last_pack }, segment: None, is_damaged })
    }

    pub(super) fn pack(&self, segment: u32) -> Option<&Pack> {
        self.packs.binary_search_by_key(&segment, |pack| pack.segment).ok().map(|at| &self.packs[at])
    }

    /// Whether a place in this segment can be part of a chain.
    pub(super) fn holds(&self, segment: u32) -> bool {
        match Kind::of(segment) {
            Kind::Log => segment >= self.oldest,
            Kind::Pack => self.pack(segment).is_some(),
            _ => false,
        }
    }
}
