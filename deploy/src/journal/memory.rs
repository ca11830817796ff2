//! A segment in memory: bytes in blocks of one size, so that growing copies nothing and takes no more than a block too much.
//!
//! In: writes at offsets, as a file takes them. Out: the bytes. Always: what was never written between others reads as zeros.

/// The size of a block.
const BLOCK: usize = 256 << 10;

/// A segment that is held in memory.
#[derive(Debug, Default)]
pub(super) struct MemorySegment {
    blocks: Vec<Box<[u8]>>,
    length: usize,
}

impl MemorySegment {
    pub(super) fn length(&self) -> u64 {
        self.length as u64
    }

    pub(super) fn write_at(&mut self, offset: u64, mut bytes: &[u8]) {
        let mut at = offset as usize;
        let end = at + bytes.len();
        while self.blocks.len() * BLOCK < end {
            self.blocks.push(vec![0; BLOCK].into_boxed_slice());
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - at % BLOCK));
            self.blocks[at / BLOCK][at % BLOCK..][..now.len()].copy_from_slice(now);
            (at, bytes) = (at + now.len(), later);
        }
        self.length = self.length.max(end);
    }

    /// Fills the buffer as far as there is something, and returns how far that is.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut at = (offset as usize).min(self.length);
        let wanted = buffer.len().min(self.length - at);
        let mut left = &mut buffer[..wanted];
        while !left.is_empty() {
            let length = left.len().min(BLOCK - at % BLOCK);
            let (now, later) = left.split_at_mut(length);
            now.copy_from_slice(&self.blocks[at / BLOCK][at % BLOCK..][..length]);
            (at, left) = (at + length, later);
        }
        wanted
    }

    pub(super) fn truncate(&mut self, length: u64) {
        self.length = self.length.min(length as usize);
        self.blocks.truncate(self.length.div_ceil(BLOCK));
        if let Some(last) = self.blocks.last_mut()
            && !self.length.is_multiple_of(BLOCK)
        {
            last[self.length % BLOCK..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(segment: &MemorySegment) -> Vec<u8> {
        let mut bytes = vec![9; segment.length + 10];
        let read = segment.read_at(0, &mut bytes);
        bytes.truncate(read);
        bytes
    }

    #[test]
    fn it_reads_as_a_file_does() {
        let mut segment = MemorySegment::default();
        let mut file = Vec::new();
        let lengths = [1, BLOCK - 2, 5, 3 * BLOCK, BLOCK, 700];
        for (round, length) in lengths.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
            // The third is written over the end of what is there, the others after it.
            let offset = if round == 2 { file.len() - 3 } else { file.len() };
            segment.write_at(offset as u64, &bytes);
            file.truncate(offset);
            file.extend(bytes);
            assert!(all(&segment) == file);
        }
        for at in [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 17, file.len(), file.len() + 5] {
            let mut buffer = vec![9; BLOCK + 3];
            let read = segment.read_at(at as u64, &mut buffer);
            let there = file.get(at..).unwrap_or_default();
            assert!(buffer[..read] == there[..there.len().min(buffer.len())], "at {at}");
        }
    }

    #[test]
    fn what_was_cut_does_not_come_back() {
        let mut segment = MemorySegment::default();
        segment.write_at(0, &[7; BLOCK + 10]);
        segment.truncate(5);
        segment.write_at(8, &[8]);
        assert_eq!(all(&segment), [7, 7, 7, 7, 7, 0, 0, 0, 8]);
        segment.truncate(100);
        assert_eq!(segment.length(), 9);
    }
}
