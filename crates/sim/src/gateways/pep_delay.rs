//! Time that the bytes of a stream spend in a PEP: from the arrival of their segment at the receive queue until they first
//! enter the transmit queue.
//!
//! Meanwhile bytes wait for missing bytes before them, are processed, and wait for the windows of the PEP link. Arrival
//! times are summed over bytes, so that bytes which wait together take one entry.

use std::collections::VecDeque;

use bentpipe_units::Instant;

/// Maximum number of spans kept, as by the TCP receiver.
const MAX_SPANS: usize = 4096;

/// Arrival times of one stream's bytes in the PEP.
#[derive(Debug, Default)]
pub struct PepDelay {
    /// Bytes received out of order: ascending, disjoint spans.
    out_of_order: Vec<Span>,
    /// Mean arrival time of the bytes that came in order last.
    arrival: Instant,
    /// Bytes written to the PEP link so far.
    written: u64,
    /// Parts that the PEP link has not sent: the end of each in the stream, and the mean arrival time of its bytes.
    parts: VecDeque<(u64, Instant)>,
}

/// Contiguous bytes of the stream.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// Sum of the arrival times of its bytes [ns].
    times: u128,
}

impl Span {
    /// Bytes of it between two positions.
    fn overlap(&self, from: u64, to: u64) -> u64 {
        self.end.min(to).saturating_sub(self.start.max(from))
    }
}

impl PepDelay {
    /// Starts again for another flow.
    pub fn clear(&mut self) {
        self.out_of_order.clear();
        self.parts.clear();
        self.written = 0;
    }

    /// A segment with the bytes `start..end` arrived at `arrival`; it moved the end of the bytes in order from `before` to
    /// `after`.
    #[inline]
    pub fn segment(&mut self, (start, end): (u64, u64), arrival: Instant, (before, after): (u64, u64)) {
        if after > before {
            self.arrival = if self.out_of_order.is_empty() {
                arrival
            } else {
                self.mean_in_order(arrival, before, after)
            };
        } else if start > after {
            self.keep_out_of_order(start, end, arrival);
        }
    }

    /// Keeps the arrival time of bytes received out of order. For bytes received twice the first time counts. Beyond
    /// [`MAX_SPANS`] it is not kept: such bytes count as arriving with the segment that fills the gap.
    #[inline(never)]
    fn keep_out_of_order(&mut self, start: u64, end: u64, arrival: Instant) {
        let first = self.out_of_order.partition_point(|span| span.end < start);
        let mut all = Span { start, end, times: 0 };
        let (mut new_bytes, mut behind) = (end - start, first);
        while let Some(span) = self.out_of_order.get(behind).filter(|span| span.start <= end) {
            new_bytes -= span.overlap(start, end);
            let times = all.times + span.times;
            all = Span { start: all.start.min(span.start), end: all.end.max(span.end), times };
            behind += 1;
        }
        all.times += u128::from(new_bytes) * u128::from(arrival.as_nanos());
        if first < behind {
            self.out_of_order[first] = all;
            self.out_of_order.drain(first + 1..behind);
        } else if self.out_of_order.len() < MAX_SPANS {
            self.out_of_order.insert(first, all);
        }
    }

    /// Mean arrival time of the bytes `before..after`; bytes in no span arrived with the last segment.
    #[inline(never)]
    fn mean_in_order(&mut self, arrival: Instant, before: u64, after: u64) -> Instant {
        let (mut known, mut times, mut taken) = (0, 0, 0);
        for span in &mut self.out_of_order {
            if span.start >= after {
                break;
            }
            let (part, whole) = (span.overlap(before, after), span.end - span.start);
            known += part;
            times += span.times * u128::from(part) / u128::from(whole);
            if span.end > after {
                span.times = span.times * u128::from(span.end - after) / u128::from(whole);
                span.start = after;
                break;
            }
            taken += 1;
        }
        self.out_of_order.drain(..taken);
        let bytes = after - before;
        times += u128::from(bytes - known) * u128::from(arrival.as_nanos());
        mean(times, bytes)
    }

    /// Mean arrival time of the bytes that came in order last.
    #[inline]
    pub fn arrival(&self) -> Instant {
        self.arrival
    }

    /// Notes bytes written to the PEP link that arrived at `arrival`.
    #[inline]
    pub fn write(&mut self, bytes: u64, arrival: Instant) {
        self.written += bytes;
        if bytes > 0 {
            self.parts.push_back((self.written, arrival));
        }
    }

    /// The PEP link first sends the `len` bytes up to `end`; returns their mean arrival time, `None` for bytes never written.
    #[inline]
    pub fn send(&mut self, end: u64, len: u32) -> Option<Instant> {
        let &(first, arrival) = self.parts.front()?;
        if first > end {
            return Some(arrival);
        }
        self.parts.pop_front();
        let start = end.saturating_sub(u64::from(len));
        if first == end {
            return Some(arrival);
        }
        let weigh =
            |from: u64, to: u64, arrival: Instant| u128::from(to - from) * u128::from(arrival.as_nanos());
        let mut from = first.max(start);
        let mut times = weigh(start, from, arrival);
        while from < end
            && let Some(&(upto, arrival)) = self.parts.front()
        {
            times += weigh(from, upto.min(end), arrival);
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

    /// Segments of 100 bytes at 10, 20, … ns, the second of which is lost and arrives at 70 ns. The first passes at once;
    /// the other four wait for it: (70 + 30 + 40 + 50 + 60) / 5 = 50.
    #[test]
    fn bytes_out_of_order_wait_for_the_missing_ones() {
        let mut pep_delay = PepDelay::default();
        pep_delay.segment((0, 100), at(10), (0, 100));
        assert_eq!(pep_delay.arrival(), at(10));
        for n in 2..6 {
            pep_delay.segment((100 * n, 100 * n + 100), at(10 * (n + 1)), (100, 100));
        }
        // A segment received twice: the first time counts.
        pep_delay.segment((300, 400), at(65), (100, 100));
        pep_delay.segment((100, 200), at(70), (100, 600));
        assert_eq!(pep_delay.arrival(), at(50));
        pep_delay.segment((600, 700), at(80), (600, 700));
        assert_eq!(pep_delay.arrival(), at(80));
    }

    /// Parts of 300 and 50 bytes go out as packets of 100, and the last of 50 with 50 more: (50 · 7 + 50 · 9) / 100 = 8.
    #[test]
    fn a_packet_has_the_mean_arrival_time_of_its_bytes() {
        let mut pep_delay = PepDelay::default();
        pep_delay.write(300, at(5));
        let ends: Vec<_> = (1..=3).map(|n| pep_delay.send(100 * n, 100)).collect();
        assert_eq!(ends, [Some(at(5)); 3]);
        assert_eq!(pep_delay.send(400, 100), None);
        pep_delay.write(50, at(7));
        pep_delay.write(60, at(9));
        assert_eq!(pep_delay.send(400, 100), Some(at(8)));
        assert_eq!(pep_delay.send(410, 10), Some(at(9)));
        assert!(pep_delay.parts.is_empty());
    }

    /// Compared with an arrival time for each byte: segments of any length, lost, late and duplicated; packets of any length.
    #[test]
    fn means_agree_with_one_arrival_time_per_byte() {
        let mut rng = Rng::stream(3, "transit", 0, "test");
        for _ in 0..300 {
            let (mut pep_delay, mut times, mut next) = (PepDelay::default(), [None; 200], 0_u64);
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
                    pep_delay.segment((start, end), at(now), (before, next));
                    if next > before {
                        pep_delay.write(next - before, pep_delay.arrival());
                        let sum: u64 = times[before as usize..next as usize].iter().flatten().sum();
                        assert_eq!(pep_delay.arrival(), at(sum / (next - before)));
                        // The PEP link sends all of it with the mean.
                        times[before as usize..next as usize].fill(Some(sum / (next - before)));
                    }
                }
                let ready = next - sent;
                if ready > 0 && rng.below(2) == 0 {
                    let len = 1 + rng.below(ready);
                    let sum: u64 = times[sent as usize..(sent + len) as usize].iter().flatten().sum();
                    sent += len;
                    assert_eq!(pep_delay.send(sent, len as u32), Some(at(sum / len)));
                }
            }
            assert!(pep_delay.out_of_order.is_empty() && pep_delay.parts.is_empty());
        }
    }
}
