//! Content of the objects that users fetch: each byte depends on its position, so that lost, changed, repeated and
//! reordered bytes are detected. In an object that `serve` sends, each block begins with the time at which it was written (CLOCK_MONOTONIC [ns]).

use std::io::{self, ErrorKind, Write};

use bentpipe_units::mix;

const WORD: u64 = 8;
/// Bytes per call of write(2).
const CHUNK: usize = 16 << 10;
/// Length of a block: a data unit of an object [bytes].
pub const BLOCK: u64 = 1 << 10;
/// Length of a block's time [bytes].
const STAMP: u64 = 8;

/// The byte at a position.
#[must_use]
pub fn byte(at: u64) -> u8 {
    mix(at / WORD).to_le_bytes()[(at % WORD) as usize]
}

/// Fills a buffer with the content from `at` on.
pub fn fill(mut at: u64, buffer: &mut [u8]) {
    let lead = ((WORD - at % WORD) % WORD).min(buffer.len() as u64) as usize;
    let (first, rest) = buffer.split_at_mut(lead);
    for slot in first {
        *slot = byte(at);
        at += 1;
    }
    for chunk in rest.chunks_mut(WORD as usize) {
        let word = mix(at / WORD).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
        at += WORD;
    }
}

/// True if a buffer holds the content from `at` on.
#[must_use]
pub fn is_intact(mut at: u64, buffer: &[u8]) -> bool {
    let lead = ((WORD - at % WORD) % WORD).min(buffer.len() as u64) as usize;
    let (first, rest) = buffer.split_at(lead);
    let starts = (at..).zip(first).all(|(at, found)| *found == byte(at));
    at += lead as u64;
    starts
        && rest.chunks(WORD as usize).zip(at / WORD..).all(|(chunk, word)| {
            // Only the last word can be incomplete.
            chunk == &mix(word).to_le_bytes()[..chunk.len()]
        })
}

/// Writes the first `bytes` of the content.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut at = 0;
    while at < bytes {
        let part = (bytes - at).min(buffer.len() as u64) as usize;
        fill(at, &mut buffer[..part]);
        out.write_all(&buffer[..part])?;
        at += part as u64;
    }
    out.flush()
}

/// Sends up to `limit` bytes of the content from `*at` on, until a non-blocking stream has no space. Advances `*at` by the
/// bytes sent, also if an error follows.
///
/// # Errors
/// Those of the stream.
pub fn send(stream: &mut impl Write, at: &mut u64, limit: u64) -> io::Result<()> {
    send_with(stream, at, limit, fill)
}

fn send_with(
    stream: &mut impl Write,
    at: &mut u64,
    limit: u64,
    mut fill: impl FnMut(u64, &mut [u8]),
) -> io::Result<()> {
    let mut chunk = [0; CHUNK];
    let end = at.saturating_add(limit);
    while *at < end {
        let len = (end - *at).min(CHUNK as u64) as usize;
        fill(*at, &mut chunk[..len]);
        match stream.write(&chunk[..len]) {
            Ok(len) => *at += len as u64,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes the times of an object's blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockWriter {
    /// Time at which the block was written of which only a part has been sent.
    begun: u64,
}

impl BlockWriter {
    /// [`send`] with the time `now` at the start of each block.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, stream: &mut impl Write, at: &mut u64, limit: u64, now: u64) -> io::Result<()> {
        let (from, begun) = (*at, self.begun);
        let done = send_with(stream, at, limit, |at, chunk| {
            fill(at, chunk);
            stamp(at, chunk, |block| if block < from { begun } else { now });
        });
        if at.saturating_sub(1) / BLOCK * BLOCK >= from {
            self.begun = now;
        }
        done
    }
}

/// Overwrites the content from `at` on with the times of the blocks that begin at these positions.
fn stamp(at: u64, buffer: &mut [u8], time: impl Fn(u64) -> u64) {
    let end = at + buffer.len() as u64;
    for block in (at / BLOCK * BLOCK..end).step_by(BLOCK as usize) {
        let bytes = time(block).to_be_bytes();
        for (position, byte) in (block..end.min(block + STAMP)).zip(bytes) {
            if position >= at {
                buffer[(position - at) as usize] = byte;
            }
        }
    }
}

/// Reads an object of blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockReader {
    /// Time of the current block.
    stamp: [u8; STAMP as usize],
}

impl BlockReader {
    /// Reads the bytes from `at` on; `is_end` if the object ends with them. `received` gets the time of every block that they
    /// complete. Returns true if what lies between the times is the content.
    pub fn read(
        &mut self,
        mut at: u64,
        mut bytes: &[u8],
        is_end: bool,
        mut received: impl FnMut(u64),
    ) -> bool {
        let mut is_content = true;
        while !bytes.is_empty() {
            let offset = at % BLOCK;
            let (part, rest) = bytes.split_at(bytes.len().min((BLOCK - offset) as usize));
            let in_stamp = part.len().min(STAMP.saturating_sub(offset) as usize);
            let (time, content) = part.split_at(in_stamp);
            for (slot, byte) in self.stamp.iter_mut().skip(offset as usize).zip(time) {
                *slot = *byte;
            }
            is_content &= is_intact(at + in_stamp as u64, content);
            at += part.len() as u64;
            bytes = rest;
            let is_complete = at.is_multiple_of(BLOCK) || (bytes.is_empty() && is_end);
            if is_complete && offset + part.len() as u64 >= STAMP {
                received(u64::from_be_bytes(self.stamp));
            }
        }
        is_content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_any_part_is_detected() {
        for (at, len) in [(0, 100), (1, 20), (7, 1), (8, 9), (13, 0), (100_003, 77)] {
            let mut part = vec![0; len];
            fill(at, &mut part);
            assert!(part.iter().zip(at..).all(|(found, at)| *found == byte(at)));
            assert!(is_intact(at, &part));
            for i in 0..len {
                part[i] ^= 1;
                assert!(!is_intact(at, &part), "{at} {i}");
                part[i] ^= 1;
            }
        }
        let mut whole = Vec::new();
        write(200_000, &mut whole).unwrap();
        assert!(whole.len() == 200_000 && is_intact(0, &whole));
        // A gap of any length.
        assert!((1..5000).all(|gap| !is_intact(1000, &whole[1000 + gap..1100 + gap])));
    }

    /// A stream that takes a few bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = self.1 * 7 % 97 + 1;
            let len = bytes.len().min(self.1 % 50);
            self.0.extend_from_slice(&bytes[..len]);
            if len == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(len) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_block_has_the_time_of_its_first_byte_however_it_is_cut() {
        const SIZE: u64 = 5 * BLOCK + 20;
        let (mut stream, mut writer, mut at) = (Narrow(Vec::new(), 1), BlockWriter::default(), 0);
        let mut times = vec![0; 6];
        for turn in 1.. {
            let (now, before) = (turn << 40 | turn, at);
            writer.send(&mut stream, &mut at, (SIZE - before).min(700), now).unwrap();
            for block in before..at {
                if block % BLOCK == 0 {
                    times[(block / BLOCK) as usize] = now;
                }
            }
            if at == SIZE {
                break;
            }
        }
        for step in [1, 3, 8, 1000, 1024, 6000] {
            let (mut reader, mut found) = (BlockReader::default(), Vec::new());
            for (i, part) in stream.0.chunks(step).enumerate() {
                let at = (i * step) as u64;
                let is_end = at + part.len() as u64 == SIZE;
                assert!(reader.read(at, part, is_end, |time| found.push(time)), "{at}");
            }
            assert_eq!(found, times, "in parts of {step} bytes");
        }
        stream.0[1500] ^= 1;
        assert!(!BlockReader::default().read(0, &stream.0, true, |_| {}));
    }

    #[test]
    fn an_end_shorter_than_a_time_is_no_block() {
        let mut object = vec![0; BLOCK as usize + 7];
        fill(0, &mut object);
        stamp(0, &mut object, |block| block + 1);
        let mut found = Vec::new();
        assert!(BlockReader::default().read(0, &object, true, |time| found.push(time)));
        assert_eq!(found, [1]);
    }
}
