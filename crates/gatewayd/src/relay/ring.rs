//! A ring buffer that grows as needed.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

/// Minimum allocation [bytes].
const LEAST: usize = 4 << 10;

/// A queue of bytes.
#[derive(Debug, Default)]
pub struct Ring {
    /// Storage: empty, or a power of two.
    bytes: Vec<u8>,
    head: usize,
    len: usize,
}

impl Ring {
    /// Bytes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all bytes and keeps the memory.
    pub fn clear(&mut self) {
        (self.head, self.len) = (0, 0);
    }

    /// Reads at most `most` bytes from `from` in one call. Bytes without room go through `spill`, so that the ring grows only
    /// to what it holds.
    ///
    /// # Errors
    /// Those of reading.
    pub fn fill(&mut self, from: &mut impl Read, most: usize, spill: &mut [u8]) -> io::Result<usize> {
        let free = most.min(self.bytes.len() - self.len);
        let rest = (most - free).min(spill.len());
        let (first, second) = self.free(free);
        let third = &mut spill[..rest];
        let slices = &mut [IoSliceMut::new(first), IoSliceMut::new(second), IoSliceMut::new(third)];
        let read = from.read_vectored(slices)?;
        let here = read.min(free);
        self.len += here;
        self.put(&spill[..read - here]);
        Ok(read)
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let (first, second) = self.free(bytes.len());
        let (a, b) = bytes.split_at(first.len());
        first.copy_from_slice(a);
        second.copy_from_slice(b);
        self.len += bytes.len();
    }

    /// Writes its bytes to `to` in one call. Returns how many were written.
    ///
    /// # Errors
    /// Those of writing.
    pub fn drain(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let (first, second) = self.front(self.len);
        let written = to.write_vectored(&[IoSlice::new(first), IoSlice::new(second)])?;
        self.consume(written);
        Ok(written)
    }

    /// The oldest bytes, at most `most`, in two parts.
    #[must_use]
    pub fn front(&self, most: usize) -> (&[u8], &[u8]) {
        let len = self.len.min(most);
        let first = len.min(self.bytes.len() - self.head);
        (&self.bytes[self.head..self.head + first], &self.bytes[..len - first])
    }

    /// Removes the oldest bytes.
    pub fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len);
        self.len -= bytes;
        self.head = if self.len == 0 { 0 } else { (self.head + bytes) & (self.bytes.len() - 1) };
    }

    /// Space for the next `most` bytes; there is enough.
    fn free(&mut self, most: usize) -> (&mut [u8], &mut [u8]) {
        if self.bytes.is_empty() {
            return (&mut [], &mut []);
        }
        let size = self.bytes.len();
        let tail = (self.head + self.len) & (size - 1);
        let most = most.min(size - self.len);
        let first = most.min(size - tail);
        let (before, after) = self.bytes.split_at_mut(tail);
        (&mut after[..first], &mut before[..most - first])
    }

    fn reserve(&mut self, more: usize) {
        let wanted = self.len + more;
        if wanted <= self.bytes.len() {
            return;
        }
        let mut bytes = vec![0; wanted.next_power_of_two().max(LEAST)];
        let (first, second) = self.front(self.len);
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..self.len].copy_from_slice(second);
        (self.bytes, self.head) = (bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bentpipe_units::Rng;

    use super::*;

    /// Compared with a VecDeque, with pieces of any length, so that the ring wraps and grows.
    #[test]
    fn bytes_keep_their_order() {
        let mut rng = Rng::stream(1, "ring", 0, "test");
        let mut spill = [0; 9000];
        let (mut ring, mut model, mut next) = (Ring::default(), VecDeque::<u8>::new(), 0_u8);
        for step in 0..3000 {
            let piece: Vec<u8> = (0..rng.below(9000))
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            if step % 2 == 0 {
                ring.put(&piece);
                model.extend(&piece);
            } else {
                let read = ring.fill(&mut piece.as_slice(), piece.len(), &mut spill).unwrap_or_default();
                assert_eq!(read, piece.len());
                model.extend(&piece);
            }
            let most = rng.below(12_000) as usize;
            let (first, second) = ring.front(most);
            let out: Vec<u8> = first.iter().chain(second).copied().collect();
            assert!(out.iter().eq(model.iter().take(most)));
            ring.consume(out.len());
            model.drain(..out.len());
            assert_eq!(ring.len(), model.len());
        }
        let mut all = Vec::new();
        while !ring.is_empty() {
            ring.drain(&mut all).unwrap_or_default();
        }
        assert!(all.iter().eq(model.iter()));
        assert!(ring.capacity() <= 1 << 22, "{}", ring.capacity());
    }
}
