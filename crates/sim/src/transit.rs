//! How long a PEP has had the bytes of a stream: from their segment's entering the receive queue to their first entering
//! the transmit queue.
//!
//! On the way bytes wait for others that are missing before them, are worked on, and wait for the spacelink's windows.
//! Times are added up by the byte, so that what waits together is one entry, however much it is.

use std::collections::VecDeque;

use bentpipe_units::Instant;

/// The most spans kept, as by TCP's own receiver.
const MOST: usize = 4096;

/// One stream's bytes in the PEP.
#[derive(Debug, Default)]
pub struct Transit {
    /// What came ahead of bytes that are missing: ascending, apart from each other.
    ahead: Vec<Span>,
    /// When the bytes came, on average, that were last put in order.
    came: Instant,
    /// Bytes given to the spacelink so far.
    written: u64,
    /// What the spacelink has not sent yet: where each part ends in the stream, and when its bytes came, on average.
    parts: VecDeque<(u64, Instant)>,
}

/// Bytes that follow each other in the stream.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// The sum over its bytes of when they came [ns].
    times: u128,
}

impl Span {
    fn cut(&self, from: u64, to: u64) -> u64 {
        self.end.min(to).saturating_sub(self.start.max(from))
    }
}

impl Transit {
    /// Another stream begins.
    pub fn clear(&mut self) {
        self.ahead.clear();
        self.parts.clear();
        self.written = 0;
    }

    /// A segment with the bytes `start..end` came at `came`; by it the bytes in order went from `before` to `after`.
    #[inline]
    pub fn segment(&mut self, (start, end): (u64, u64), came: Instant, (before, after): (u64, u64)) {
        if after > before {
            self.came = if self.ahead.is_empty() { came } else { self.put_in_order(came, before, after) };
        } else if start > after {
            self.put_ahead(start, end, came);
        }
    }

    /// Keeps when bytes came that others are missing before. Of those that came before, the first time counts.
    #[inline(never)]
    fn put_ahead(&mut self, start: u64, end: u64, came: Instant) {
        let first = self.ahead.partition_point(|span| span.end < start);
        let mut all = Span { start, end, times: 0 };
        let (mut fresh, mut behind) = (end - start, first);
        while let Some(span) = self.ahead.get(behind).filter(|span| span.start <= end) {
            fresh -= span.cut(start, end);
            let times = all.times + span.times;
            all = Span { start: all.start.min(span.start), end: all.end.max(span.end), times };
            behind += 1;
        }
        all.times += u128::from(fresh) * u128::from(came.as_nanos());
        if first < behind {
            self.ahead[first] = all;
            self.ahead.drain(first + 1..behind);
        } else if self.ahead.len() < MOST {
            self.ahead.insert(first, all);
        }
    }

    /// When the bytes `before..after` came, on average: those that nothing is known of came with the last segment.
    #[inline(never)]
    fn put_in_order(&mut self, came: Instant, before: u64, after: u64) -> Instant {
        let (mut known, mut times, mut taken) = (0, 0, 0);
        for span in &mut self.ahead {
            if span.start >= after {
                break;
            }
            let (part, whole) = (span.cut(before, after), span.end - span.start);
            known += part;
            times += span.times * u128::from(part) / u128::from(whole);
            if span.end > after {
                span.times = span.times * u128::from(span.end - after) / u128::from(whole);
                span.start = after;
                break;
            }
            taken += 1;
        }
        self.ahead.drain(..taken);
        let bytes = after - before;
        times += u128::from(bytes - known) * u128::from(came.as_nanos());
        mean(times, bytes)
    }

    /// When the bytes came, on average, that were last put in order.
    #[inline]
    pub fn came(&self) -> Instant {
        self.came
    }

    /// The spacelink is given bytes that came at `came`.
    #[inline]
    pub fn write(&mut self, bytes: u64, came: Instant) {
        self.written += bytes;
        if bytes > 0 {
            self.parts.push_back((self.written, came));
        }
    }

    /// The spacelink sends the bytes up to `end`, `len` of them, for the first time: when they came, on average.
    #[inline]
    pub fn send(&mut self, end: u64, len: u32) -> Option<Instant> {
        let &(first, came) = self.parts.front()?;
        if first > end {
            return Some(came);
        }
        self.parts.pop_front();
        let start = end.saturating_sub(u64::from(len));
        if first == end {
            return Some(came);
        }
        let weigh = |from: u64, to: u64, came: Instant| u128::from(to - from) * u128::from(came.as_nanos());
        let mut from = first.max(start);
        let mut times = weigh(start, from, came);
        while from < end
            && let Some(&(upto, came)) = self.parts.front()
        {
            times += weigh(from, upto.min(end), came);
            from = upto.min(end);
            if upto <= end {
                self.parts.pop_front();
            }
        }
        (from > start).then(|| mean(times, from - start))
    }
}

fn mean(times: u128, bytes: u64) -> Instant {
    Instant::from_nanos(u64::try_from(times / u128::from(bytes)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// Segments of 100 bytes at 10, 20, … ns, the second of which is lost and comes at 70 ns. The first passes at once; the
    /// other four wait for it: (70 + 30 + 40 + 50 + 60) / 5 = 50.
    #[test]
    fn bytes_wait_for_those_that_are_missing() {
        let mut transit = Transit::default();
        transit.segment((0, 100), at(10), (0, 100));
        assert_eq!(transit.came(), at(10));
        for n in 2..6 {
            transit.segment((100 * n, 100 * n + 100), at(10 * (n + 1)), (100, 100));
        }
        // One comes again: the first time counts.
        transit.segment((300, 400), at(65), (100, 100));
        transit.segment((100, 200), at(70), (100, 600));
        assert_eq!(transit.came(), at(50));
        transit.segment((600, 700), at(80), (600, 700));
        assert_eq!(transit.came(), at(80));
    }

    /// Parts of 300 and 50 bytes go out as packets of 100, and the last of 50 with 50 more: (50 · 7 + 50 · 9) / 100 = 8.
    #[test]
    fn packets_take_the_times_of_their_bytes() {
        let mut transit = Transit::default();
        transit.write(300, at(5));
        let ends: Vec<_> = (1..=3).map(|n| transit.send(100 * n, 100)).collect();
        assert_eq!(ends, [Some(at(5)); 3]);
        assert_eq!(transit.send(400, 100), None);
        transit.write(50, at(7));
        transit.write(60, at(9));
        assert_eq!(transit.send(400, 100), Some(at(8)));
        assert_eq!(transit.send(410, 10), Some(at(9)));
        assert!(transit.parts.is_empty());
    }

    /// Against a time for each byte: segments of any length, lost, late and twice, and packets of any length.
    #[test]
    fn agrees_with_a_time_per_byte() {
        let mut rng = Rng::stream(3, "transit", 0, "test");
        for _ in 0..300 {
            let (mut transit, mut times, mut next) = (Transit::default(), [None; 200], 0_u64);
            let (mut sent, mut now) = (0, 0);
            while sent < 200 {
                now += 1 + rng.below(50);
                let start = next.saturating_sub(5) + rng.below(30);
                let end = (start + 1 + rng.below(20)).min(200);
                if start < end {
                    let before = next;
                    for byte in start..end {
                        times[byte as usize].get_or_insert(now);
                    }
                    while next < 200 && times[next as usize].is_some() {
                        next += 1;
                    }
                    transit.segment((start, end), at(now), (before, next));
                    if next > before {
                        transit.write(next - before, transit.came());
                        let sum: u64 = times[before as usize..next as usize].iter().flatten().sum();
                        assert_eq!(transit.came(), at(sum / (next - before)));
                        // All that the spacelink sends of it goes by its mean.
                        times[before as usize..next as usize].fill(Some(sum / (next - before)));
                    }
                }
                let ready = next - sent;
                if ready > 0 && rng.below(2) == 0 {
                    let len = 1 + rng.below(ready);
                    let sum: u64 = times[sent as usize..(sent + len) as usize].iter().flatten().sum();
                    sent += len;
                    assert_eq!(transit.send(sent, len as u32), Some(at(sum / len)));
                }
            }
            assert!(transit.ahead.is_empty() && transit.parts.is_empty());
        }
    }
}
