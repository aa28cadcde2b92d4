//! What was sent and is not acknowledged, segment by segment: when, and what became of it.
//!
//! The segments are kept in order of position, without gaps. Those in flight, neither SACKed nor lost, form a
//! list in order of time as well, so that finding those sent long ago takes no search (RFC 8985 section 6.2,
//! step 5). Its links are distances, for positions in the ring change.

use std::collections::VecDeque;

use bentpipe_units::Instant;

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSegment {
    pub(super) start: u64,
    /// When it was last sent, Segment.xmit_ts.
    pub(super) at: Instant,
    /// How many were sent until then, those sent again counted anew.
    pub(super) order: u64,
    /// What it takes of the stream [bytes], with the one of a FIN.
    len: u32,
    /// How many segments on, or back, the next one sent after it and the one before it are; 0: none.
    later: i32,
    earlier: i32,
    pub(super) resent: bool,
    pub(super) sacked: bool,
    /// Lost, and not sent again since.
    pub(super) lost: bool,
}

impl SentSegment {
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// No segment.
const NONE: u64 = u64::MAX;

/// All there are.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    ring: VecDeque<SentSegment>,
    /// Number of the first in the ring; they are counted from the beginning of the connection.
    first: u64,
    /// How many were sent.
    sent: u64,
    /// Numbers of the ends of the list by time.
    oldest: u64,
    latest: u64,
    /// No segment before this position is lost.
    lost_hint: u64,
    /// Size of those lost [bytes].
    pub(super) lost: u64,
    /// Size of those found lost since that was asked for [bytes].
    newly_lost: u64,
    /// How many are SACKed, RACK.segs_sacked.
    pub(super) sacked: usize,
}

impl Default for Segments {
    fn default() -> Self {
        Self {
            ring: VecDeque::new(),
            first: 0,
            sent: 0,
            oldest: NONE,
            latest: NONE,
            lost_hint: NONE,
            lost: 0,
            newly_lost: 0,
            sacked: 0,
        }
    }
}

impl Segments {
    #[inline]
    fn get(&self, number: u64) -> Option<&SentSegment> {
        self.ring.get(number.wrapping_sub(self.first) as usize)
    }

    #[inline]
    fn get_mut(&mut self, number: u64) -> Option<&mut SentSegment> {
        self.ring.get_mut(number.wrapping_sub(self.first) as usize)
    }

    fn next_send_order(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Appends a segment to the list by time.
    #[inline]
    fn link(&mut self, number: u64) {
        let latest = self.latest;
        let distance = number.wrapping_sub(latest) as i32;
        if let Some(before) = self.get_mut(latest) {
            before.later = distance;
        } else {
            self.oldest = number;
        }
        if let Some(segment) = self.get_mut(number) {
            segment.later = 0;
            segment.earlier = if latest == NONE { 0 } else { -distance };
        }
        self.latest = number;
    }

    /// Takes a segment off the list by time.
    #[inline]
    fn unlink(&mut self, number: u64) {
        let Some(&SentSegment { earlier, later, .. }) = self.get(number) else { return };
        let to = |distance: i32| number.wrapping_add_signed(i64::from(distance));
        match self.get_mut(to(earlier)).filter(|_| earlier != 0) {
            Some(before) => before.later = if later == 0 { 0 } else { later - earlier },
            None => self.oldest = if later == 0 { NONE } else { to(later) },
        }
        match self.get_mut(to(later)).filter(|_| later != 0) {
            Some(after) => after.earlier = if earlier == 0 { 0 } else { earlier - later },
            None => self.latest = if earlier == 0 { NONE } else { to(earlier) },
        }
    }

    /// What lies from `seq` to `end` leaves, not or not all of it for the first time.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, seq: u64, end: u64) {
        let known = self.ring.back().map_or(seq, SentSegment::end);
        if seq < known {
            let mut number = self.first + self.ring.partition_point(|s| s.end() <= seq) as u64;
            while let Some(&segment) = self.get(number).filter(|s| s.start < end) {
                if !segment.sacked {
                    if segment.lost {
                        self.lost -= u64::from(segment.len);
                    } else {
                        self.unlink(number);
                    }
                    let order = self.next_send_order();
                    if let Some(segment) = self.get_mut(number) {
                        (segment.at, segment.order) = (now, order);
                        (segment.resent, segment.lost) = (true, false);
                    }
                    self.link(number);
                }
                number += 1;
            }
        }
        let start = seq.max(known);
        if start < end {
            let len = (end - start) as u32;
            let number = self.first + self.ring.len() as u64;
            let order = self.next_send_order();
            self.ring.push_back(SentSegment {
                start,
                at: now,
                order,
                len,
                later: 0,
                earlier: 0,
                resent: false,
                sacked: false,
                lost: false,
            });
            self.link(number);
        }
    }

    /// Takes off the next segment that all of is before `una`, where there is one, as it was.
    #[inline]
    pub(super) fn pop_acked(&mut self, una: u64) -> Option<SentSegment> {
        let front = *self.ring.front()?;
        if front.end() > una {
            if front.start < una {
                // What is left of it.
                if front.lost {
                    self.lost -= una - front.start;
                }
                if let Some(front) = self.ring.front_mut() {
                    (front.start, front.len) = (una, (front.end() - una) as u32);
                }
            }
            return None;
        }
        self.leave_flight(self.first, &front);
        self.sacked -= usize::from(front.sacked);
        self.ring.pop_front();
        self.first += 1;
        Some(front)
    }

    /// A segment is neither in flight nor lost any more.
    #[inline]
    fn leave_flight(&mut self, number: u64, segment: &SentSegment) {
        if segment.lost {
            self.lost -= u64::from(segment.len);
        } else if !segment.sacked {
            self.unlink(number);
        }
    }

    /// The segments from `from` to `to` that `is_sacked` are, and were not before: marks each, and hands it on.
    pub(super) fn mark_sacked(
        &mut self,
        from: u64,
        to: u64,
        is_sacked: impl Fn(&SentSegment) -> bool,
        mut each: impl FnMut(&SentSegment),
    ) {
        let mut number = self.first + self.ring.partition_point(|s| s.end() <= from) as u64;
        while let Some(&segment) = self.get(number).filter(|s| s.start < to) {
            if !segment.sacked && is_sacked(&segment) {
                self.leave_flight(number, &segment);
                if let Some(segment) = self.get_mut(number) {
                    (segment.sacked, segment.lost) = (true, false);
                }
                self.sacked += 1;
                each(&segment);
            }
            number += 1;
        }
    }

    /// Walks through the segments in flight from the one sent first on, and marks those lost that `classify` says
    /// are, until it says to stop.
    pub(super) fn classify(&mut self, mut classify: impl FnMut(&SentSegment) -> Verdict) {
        let mut number = self.oldest;
        while let Some(&segment) = self.get(number) {
            let verdict = classify(&segment);
            if verdict == Verdict::Stop {
                return;
            }
            let later = number.wrapping_add_signed(i64::from(segment.later));
            let next = if segment.later == 0 { NONE } else { later };
            if verdict == Verdict::Lost {
                self.unlink(number);
                if let Some(segment) = self.get_mut(number) {
                    segment.lost = true;
                }
                self.lost += u64::from(segment.len);
                self.newly_lost += u64::from(segment.len);
                self.lost_hint = self.lost_hint.min(segment.start);
            }
            number = next;
        }
    }

    /// Size of those found lost since the last call [bytes].
    pub(super) fn take_newly_lost(&mut self) -> u64 {
        std::mem::take(&mut self.newly_lost)
    }

    /// The first segment that is lost.
    pub(super) fn next_lost(&mut self) -> Option<SentSegment> {
        if self.lost == 0 {
            self.lost_hint = NONE;
            return None;
        }
        let at = self.ring.partition_point(|s| s.end() <= self.lost_hint);
        let lost = self.ring.iter().skip(at).find(|s| s.lost).copied();
        self.lost_hint = lost.map_or(NONE, |segment| segment.start);
        lost
    }

    /// Whether there is but one.
    pub(super) fn is_single(&self) -> bool {
        self.ring.len() == 1
    }

    /// The segment with the highest position.
    pub(super) fn last(&self) -> Option<SentSegment> {
        self.ring.back().copied()
    }

    /// What was lost and not sent again is in flight after all.
    pub(super) fn unmark_lost(&mut self) {
        let mut numbers: Vec<(u64, u64)> = (self.first..)
            .zip(&self.ring)
            .filter(|(_, segment)| !segment.sacked)
            .map(|(number, segment)| (segment.order, number))
            .collect();
        numbers.sort_unstable();
        (self.oldest, self.latest, self.lost) = (NONE, NONE, 0);
        for (_, number) in numbers {
            if let Some(segment) = self.get_mut(number) {
                segment.lost = false;
            }
            self.link(number);
        }
    }

    /// What was SACKed is not any more, and lost: the receiver threw it away.
    pub(super) fn renege(&mut self) {
        for segment in self.ring.iter_mut().filter(|s| s.sacked) {
            (segment.sacked, segment.lost) = (false, true);
            self.lost += u64::from(segment.len);
        }
        self.sacked = 0;
        self.lost_hint = 0;
    }
}

/// What a segment in flight is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    InFlight,
    Lost,
    /// As are all sent after it: in flight.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment as the list must know it: start, end, order of sending; SACKed, lost.
    type Plain = (u64, u64, u64, bool, bool);

    fn in_order_of_time(segments: &mut Segments) -> Vec<u64> {
        let mut orders = Vec::new();
        segments.classify(|s| {
            orders.push(s.order);
            Verdict::InFlight
        });
        orders
    }

    #[test]
    fn agrees_with_a_plain_list() {
        let mut rng = bentpipe_units::Rng::stream(7, "sent", 0, "test");
        for _ in 0..300 {
            let (mut segments, mut plain) = (Segments::default(), Vec::<Plain>::new());
            let (mut una, mut max, mut sent) = (1, 1, 0);
            for step in 0..60 {
                let now = Instant::from_nanos(step);
                let some = |rng: &mut bentpipe_units::Rng, n: usize| rng.below(n as u64 + 1) as usize;
                let (a, b) = (some(&mut rng, plain.len()), some(&mut rng, plain.len()));
                let picked = a.min(b)..a.max(b);
                match rng.below(7) {
                    0 | 1 => {
                        let end = max + 1 + rng.below(5);
                        segments.on_sent(now, max, end);
                        sent += 1;
                        plain.push((max, end, sent, false, false));
                        max = end;
                    }
                    2 if !picked.is_empty() => {
                        segments.on_sent(now, plain[picked.start].0, plain[picked.end - 1].1);
                        for s in plain[picked].iter_mut().filter(|s| !s.3) {
                            sent += 1;
                            (s.2, s.4) = (sent, false);
                        }
                    }
                    3 => {
                        una += rng.below(max - una + 1).min(6);
                        while segments.pop_acked(una).is_some() {}
                        plain.retain(|s| s.1 > una);
                        if let Some(first) = plain.first_mut() {
                            first.0 = first.0.max(una);
                        }
                    }
                    4 if !picked.is_empty() => {
                        let (from, to) = (plain[picked.start].0, plain[picked.end - 1].1);
                        let mut seen = Vec::new();
                        segments.mark_sacked(from, to, |_| true, |s| seen.push(s.order));
                        let fresh: Vec<_> =
                            plain[picked.clone()].iter().filter(|s| !s.3).map(|s| s.2).collect();
                        assert_eq!(seen, fresh);
                        for s in &mut plain[picked] {
                            (s.3, s.4) = (true, false);
                        }
                    }
                    5 => {
                        let until = rng.below(sent + 1);
                        segments.classify(|s| if s.order <= until { Verdict::Lost } else { Verdict::Stop });
                        for s in plain.iter_mut().filter(|s| !s.3 && s.2 <= until) {
                            s.4 = true;
                        }
                    }
                    6 => {
                        segments.unmark_lost();
                        plain.iter_mut().for_each(|s| s.4 = false);
                    }
                    _ => {}
                }
                let lost: u64 = plain.iter().filter(|s| s.4).map(|s| s.1 - s.0).sum();
                assert_eq!(segments.lost, lost);
                assert_eq!(segments.sacked, plain.iter().filter(|s| s.3).count());
                let first = plain.iter().find(|s| s.4).map(|s| (s.0, s.1));
                assert_eq!(segments.next_lost().map(|s| (s.start, s.end())), first);
                assert_eq!(segments.last().map(|s| (s.start, s.end())), plain.last().map(|s| (s.0, s.1)));
                assert_eq!(segments.is_single(), plain.len() == 1);
                let mut orders: Vec<_> = plain.iter().filter(|s| !s.3 && !s.4).map(|s| s.2).collect();
                orders.sort_unstable();
                assert_eq!(in_order_of_time(&mut segments), orders);
            }
        }
    }
}
