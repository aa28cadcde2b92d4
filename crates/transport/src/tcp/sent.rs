//! Record of every segment sent and not acknowledged: transmission time, and whether it is SACKed or lost.
//!
//! Segments are stored in order of position, without gaps. Those in flight, neither SACKed nor lost, also form a list
//! in order of transmission, so that finding the oldest needs no search (RFC 8985 section 6.2, step 5). Its links are
//! distances, because positions in the ring change.

use std::collections::VecDeque;
use std::num::{NonZeroI32, NonZeroU64};

use bentpipe_units::Instant;

/// A segment sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSegment {
    pub(super) start: u64,
    /// Segment.xmit_ts: time of the last transmission.
    pub(super) at: Instant,
    /// Serial number of the last transmission, counting retransmissions.
    pub(super) order: u64,
    /// Sequence space taken, including a FIN [bytes].
    len: u32,
    /// Distances in the ring to the next and the previous segment in order of transmission.
    later: Option<NonZeroI32>,
    earlier: Option<NonZeroI32>,
    pub(super) resent: bool,
    pub(super) sacked: bool,
    /// Lost and not resent since.
    pub(super) lost: bool,
}

impl SentSegment {
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// Number of a segment, counted from 1 at the start of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number(NonZeroU64);

impl Number {
    /// Returns the number `distance` further on.
    #[inline]
    fn at(self, distance: NonZeroI32) -> Option<Self> {
        NonZeroU64::new(self.0.get().wrapping_add_signed(i64::from(distance.get()))).map(Self)
    }

    /// Returns the distance from `other` to this number.
    #[inline]
    fn since(self, other: Self) -> Option<NonZeroI32> {
        NonZeroI32::new(self.0.get().wrapping_sub(other.0.get()) as i32)
    }
}

/// All segments sent and not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    ring: VecDeque<SentSegment>,
    /// Number of the first segment in the ring.
    first: Number,
    /// Number of transmissions so far.
    sent: u64,
    /// Numbers of the first and the last segment in order of transmission.
    oldest: Option<Number>,
    latest: Option<Number>,
    /// No segment before this position is lost.
    lost_hint: u64,
    /// Lost and not resent [bytes].
    pub(super) lost: u64,
    /// Found lost since the list was last read, if it is kept.
    pub(super) newly_lost: Vec<(u64, u64)>,
    pub(super) lists_lost: bool,
    /// RACK.segs_sacked: number of SACKed segments.
    pub(super) sacked: usize,
}

impl Default for Segments {
    fn default() -> Self {
        Self {
            ring: VecDeque::new(),
            first: Number(NonZeroU64::MIN),
            sent: 0,
            oldest: None,
            latest: None,
            lost_hint: u64::MAX,
            lost: 0,
            newly_lost: Vec::new(),
            lists_lost: false,
            sacked: 0,
        }
    }
}

impl Segments {
    #[inline]
    fn get(&self, number: Number) -> Option<&SentSegment> {
        self.ring.get(self.place(number))
    }

    #[inline]
    fn get_mut(&mut self, number: Number) -> Option<&mut SentSegment> {
        self.ring.get_mut(self.place(number))
    }

    /// Returns the place of a segment in the ring.
    #[inline]
    fn place(&self, number: Number) -> usize {
        number.0.get().wrapping_sub(self.first.0.get()) as usize
    }

    /// Returns the number of the segment at a place in the ring.
    #[inline]
    fn number(&self, place: usize) -> Number {
        Number(self.first.0.saturating_add(place as u64))
    }

    fn next_send_order(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Appends a segment to the transmission order.
    #[inline]
    fn link(&mut self, number: Number) {
        let latest = self.latest.replace(number);
        match latest.and_then(|latest| self.get_mut(latest).map(|before| (before, latest))) {
            Some((before, latest)) => before.later = number.since(latest),
            None => self.oldest = Some(number),
        }
        if let Some(segment) = self.get_mut(number) {
            segment.later = None;
            segment.earlier = latest.and_then(|latest| latest.since(number));
        }
    }

    /// Removes a segment from the transmission order.
    #[inline]
    fn unlink(&mut self, number: Number) {
        let Some(&SentSegment { earlier, later, .. }) = self.get(number) else { return };
        let [before, after] = [earlier, later].map(|distance| number.at(distance?));
        match before.and_then(|before| self.get_mut(before)) {
            Some(segment) => segment.later = after.and_then(|after| after.since(before?)),
            None => self.oldest = after,
        }
        match after.and_then(|after| self.get_mut(after)) {
            Some(segment) => segment.earlier = before.and_then(|before| before.since(after?)),
            None => self.latest = before,
        }
    }

    /// Records the transmission of `seq..end`, some or all of which may have been sent before.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, seq: u64, end: u64) {
        let known = self.ring.back().map_or(seq, SentSegment::end);
        if seq < known {
            let mut place = self.ring.partition_point(|s| s.end() <= seq);
            while let Some(&segment) = self.ring.get(place).filter(|s| s.start < end) {
                let number = self.number(place);
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
                place += 1;
            }
        }
        let start = seq.max(known);
        if start < end {
            let len = (end - start) as u32;
            let number = self.number(self.ring.len());
            let order = self.next_send_order();
            self.ring.push_back(SentSegment {
                start,
                at: now,
                order,
                len,
                later: None,
                earlier: None,
                resent: false,
                sacked: false,
                lost: false,
            });
            self.link(number);
        }
    }

    /// Removes and returns the first segment if it lies entirely below `una`; a segment that `una` splits is shortened.
    #[inline]
    pub(super) fn pop_acked(&mut self, una: u64) -> Option<SentSegment> {
        let front = *self.ring.front()?;
        if front.end() > una {
            if front.start < una {
                // Keep the part above `una`.
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
        self.first = self.number(1);
        Some(front)
    }

    /// Removes a segment from those in flight or lost.
    #[inline]
    fn leave_flight(&mut self, number: Number, segment: &SentSegment) {
        if segment.lost {
            self.lost -= u64::from(segment.len);
        } else if !segment.sacked {
            self.unlink(number);
        }
    }

    /// Marks the segments of `from..to` that `is_sacked` accepts and that were not SACKed before, and passes each to
    /// `each`.
    pub(super) fn mark_sacked(
        &mut self,
        from: u64,
        to: u64,
        is_sacked: impl Fn(&SentSegment) -> bool,
        mut each: impl FnMut(&SentSegment),
    ) {
        let mut place = self.ring.partition_point(|s| s.end() <= from);
        while let Some(&segment) = self.ring.get(place).filter(|s| s.start < to) {
            if !segment.sacked && is_sacked(&segment) {
                self.leave_flight(self.number(place), &segment);
                if let Some(segment) = self.ring.get_mut(place) {
                    (segment.sacked, segment.lost) = (true, false);
                }
                self.sacked += 1;
                each(&segment);
            }
            place += 1;
        }
    }

    /// Visits the segments in flight in order of transmission and marks those lost that `classify` calls lost, until it
    /// returns `Stop`.
    pub(super) fn classify(&mut self, mut classify: impl FnMut(&SentSegment) -> Verdict) {
        let mut next = self.oldest;
        while let Some(number) = next
            && let Some(&segment) = self.get(number)
        {
            let verdict = classify(&segment);
            if verdict == Verdict::Stop {
                return;
            }
            next = segment.later.and_then(|distance| number.at(distance));
            if verdict == Verdict::Lost {
                self.unlink(number);
                if let Some(segment) = self.get_mut(number) {
                    segment.lost = true;
                }
                self.lost += u64::from(segment.len);
                if self.lists_lost {
                    self.newly_lost.push((segment.start, segment.end()));
                }
                self.lost_hint = self.lost_hint.min(segment.start);
            }
        }
    }

    /// The first lost segment.
    pub(super) fn next_lost(&mut self) -> Option<SentSegment> {
        if self.lost == 0 {
            self.lost_hint = u64::MAX;
            return None;
        }
        let at = self.ring.partition_point(|s| s.end() <= self.lost_hint);
        let lost = self.ring.iter().skip(at).find(|s| s.lost).copied();
        self.lost_hint = lost.map_or(u64::MAX, |segment| segment.start);
        lost
    }

    /// True if exactly one segment is outstanding.
    pub(super) fn is_single(&self) -> bool {
        self.ring.len() == 1
    }

    /// The segment with the highest position.
    pub(super) fn last(&self) -> Option<SentSegment> {
        self.ring.back().copied()
    }

    /// Puts lost segments that were not resent back in flight.
    pub(super) fn unmark_lost(&mut self) {
        let mut places: Vec<(u64, usize)> = self
            .ring
            .iter()
            .enumerate()
            .filter(|(_, segment)| !segment.sacked)
            .map(|(place, segment)| (segment.order, place))
            .collect();
        places.sort_unstable();
        (self.oldest, self.latest, self.lost) = (None, None, 0);
        for (_, place) in places {
            self.ring[place].lost = false;
            self.link(self.number(place));
        }
    }

    /// Marks SACKed segments as lost: the receiver discarded them.
    pub(super) fn renege(&mut self) {
        for segment in self.ring.iter_mut().filter(|s| s.sacked) {
            (segment.sacked, segment.lost) = (false, true);
            self.lost += u64::from(segment.len);
        }
        self.sacked = 0;
        self.lost_hint = 0;
    }
}

/// Classification of a segment in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    InFlight,
    Lost,
    /// In flight, as are all segments sent after it.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment in the reference model: start, end, transmission number, SACKed, lost.
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
    fn records_agree_with_a_plain_list() {
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
