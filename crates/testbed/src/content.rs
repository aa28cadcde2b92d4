//! Content of the objects that users fetch: each byte depends on its position, so that lost, changed, repeated and
//! reordered bytes are detected.

use std::io::{self, ErrorKind, Write};

use bentpipe_units::mix;

const WORD: u64 = 8;
/// Bytes per call of write(2).
const CHUNK: usize = 16 << 10;

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
}
