//! Demand-assigned capacity (DAMA) as in DVB-RCS: ETSI EN 301 790, section 8.4, volume-based (VBDC) and constant (CRA).
//!
//! Time is divided in frames. At the beginning of each frame the terminal requests capacity for the backlog that it has
//! not requested yet. The grant is for the first frame that begins one round trip later, and for the following frames if
//! that one is full. From the beginning of a frame the terminal may send its grant and its constant share; unused capacity
//! is lost. A packet that does not fit is sent in parts.
//!
//! A frame holds whole bytes: as many as have been completed since its beginning at the link's rate, counted from the
//! beginning of the first frame. Frames of 12.5 bytes thus hold 12 and 13 in turn.

use std::collections::VecDeque;

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rate};

/// A terminal that requests capacity.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    frame: Duration,
    round_trip: Duration,
    rate: Rate,
    /// Rate of the constant share.
    free: Rate,
    /// The current frame; `None` before the first.
    number: Option<u64>,
    /// Capacity left in it [bytes], and the time from which it can be used.
    left: u64,
    free_at: Instant,
    /// Future frames with their grants [bytes].
    grants: VecDeque<(u64, u64)>,
    /// Requested, and not yet granted or used [bytes].
    requested: u64,
}

impl Demand {
    /// A terminal that sends at `rate`.
    #[must_use]
    pub fn new(demand: &scenario::Demand, rate: Rate) -> Self {
        Self {
            frame: demand.frame,
            round_trip: demand.round_trip,
            rate,
            free: demand.free,
            ..Self::default()
        }
    }

    /// Bytes of a frame at a rate.
    fn bytes(&self, rate: Rate, number: u64) -> u64 {
        let bit_ns = u128::from(rate.as_bps()) * u128::from(self.frame.as_nanos());
        let until = |number: u64| bit_ns * u128::from(number) / 8_000_000_000;
        (until(number + 1) - until(number)) as u64
    }

    /// Bytes of a frame beyond the constant share.
    fn room(&self, number: u64) -> u64 {
        self.bytes(self.rate, number).saturating_sub(self.bytes(self.free, number))
    }

    fn begin(&self, number: u64) -> Instant {
        Instant::ZERO + self.frame.times(number)
    }

    /// Time at which the next packet may be sent while `backlog` bytes wait: `now`, or a time at which to ask again.
    pub fn ready(&mut self, now: Instant, backlog: u64) -> Instant {
        let number = now.as_nanos() / self.frame.as_nanos().max(1);
        if self.number != Some(number) && self.begin(number) == now {
            self.number = Some(number);
            let granted = self.begin_frame(number);
            self.request(number, backlog.saturating_sub(granted));
        }
        if self.number == Some(number) && self.left > 0 && self.free_at == now {
            return now;
        }
        self.begin(number + 1)
    }

    /// Begins a frame; returns its grant.
    fn begin_frame(&mut self, number: u64) -> u64 {
        let mut granted = 0;
        while let Some(&(frame, bytes)) = self.grants.front()
            && frame <= number
        {
            self.grants.pop_front();
            self.requested = self.requested.saturating_sub(bytes);
            if frame == number {
                granted = bytes;
            }
        }
        self.left = (self.bytes(self.free, number) + granted).min(self.bytes(self.rate, number));
        self.free_at = self.begin(number);
        granted
    }

    /// Requests capacity for the backlog that the grant of the current frame leaves.
    fn request(&mut self, number: u64, backlog: u64) {
        let mut wanted = backlog.saturating_sub(self.requested);
        let from = (self.begin(number) + self.round_trip).as_nanos().div_ceil(self.frame.as_nanos().max(1));
        let mut frame = from.max(number + 1);
        // The last frame with a grant may have room for more.
        if let Some(&(last, granted)) = self.grants.back()
            && last >= frame
        {
            let part = wanted.min(self.room(last).saturating_sub(granted));
            self.grants.pop_back();
            self.grants.push_back((last, granted + part));
            self.requested += part;
            wanted -= part;
            frame = last + 1;
        }
        // At most a hundred frames ahead; the rest is requested again.
        while wanted > 0 && self.rate > self.free && frame < from + 100 {
            let part = wanted.min(self.room(frame));
            if part > 0 {
                self.grants.push_back((frame, part));
            }
            self.requested += part;
            wanted -= part;
            frame += 1;
        }
    }

    /// Sends `len` bytes from `now` on; returns the time at which they have been sent.
    ///
    /// # Errors
    /// The bytes left when the capacity of the frame is used up, and the time at which to ask again.
    pub fn send(&mut self, len: u32, now: Instant) -> Result<Instant, (u32, Instant)> {
        let part = u64::from(len).min(self.left);
        self.left -= part;
        let next = self.begin(self.number.map_or(0, |number| number + 1));
        // The last byte of a frame has begun in the frame before, where the frames do not hold whole bytes.
        self.free_at = (now + self.rate.time_to_send(part)).min(next);
        let rest = len - part as u32;
        if rest == 0 { Ok(self.free_at) } else { Err((rest, next)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Frames of 50 ms at 1 Mbit/s hold 6250 bytes.
    fn terminal(free_kbps: u64) -> Demand {
        let demand = scenario::Demand {
            frame: Duration::from_millis(50),
            round_trip: Duration::from_millis(500),
            free: Rate::from_bps(free_kbps * 1000),
        };
        Demand::new(&demand, Rate::from_bps(1_000_000))
    }

    /// Sends packets of 1000 bytes that arrive at `from`. Returns the times at which they have been sent.
    fn send(t: &mut Demand, from: Instant, packets: u32) -> Vec<Instant> {
        let (mut now, mut gone, mut left) = (from, Vec::new(), 1000);
        while gone.len() < packets as usize {
            let waiting = u64::from(packets - 1 - gone.len() as u32) * 1000 + u64::from(left);
            let ready = t.ready(now, waiting);
            if ready > now {
                now = ready;
                continue;
            }
            match t.send(left, now) {
                Ok(end) => {
                    gone.push(end);
                    (now, left) = (end, 1000);
                }
                Err((rest, again)) => (now, left) = (again, rest),
            }
        }
        gone
    }

    /// A packet arrives at 20 ms: requested at 50, granted for the frame at 550, sent in 8 ms.
    #[test]
    fn the_first_packet_waits_for_request_round_trip_and_grant() {
        assert_eq!(send(&mut terminal(0), at(20), 1), [at(558)]);
        // At the beginning of a frame it is requested at once; the round trip is rounded up to a multiple of frames.
        assert_eq!(send(&mut terminal(0), at(100), 1), [at(608)]);
        let mut odd = terminal(0);
        odd.round_trip = Duration::from_millis(510);
        assert_eq!(send(&mut odd, at(20), 1), [at(608)]);
    }

    /// Eight packets are 8000 bytes: 6250 in the frame at 550, the other 1750 in that at 600; the seventh packet has 250
    /// bytes in the first, and 750 (6 ms) in the second.
    #[test]
    fn bytes_beyond_a_frame_are_sent_in_the_next() {
        let mut expected: Vec<_> = (1..=6).map(|n| at(550 + 8 * n)).collect();
        expected.extend([at(606), at(614)]);
        assert_eq!(send(&mut terminal(0), at(20), 8), expected);
    }

    /// 160 kbit/s are a constant share of 1000 bytes a frame: the first packet is sent in the frame at 50, the second at 100,
    /// and so on; the grant of 550, requested at 50, is not needed any more.
    #[test]
    fn the_constant_share_needs_no_request() {
        let expected: Vec<_> = (1..=5).map(|n| at(50 * n + 8)).collect();
        assert_eq!(send(&mut terminal(160), at(20), 5), expected);
    }

    /// Of twelve packets ten are sent in the constant share up to the frame at 500 (50, 100, ... 500); the other two have
    /// grants for the frame at 550.
    #[test]
    fn a_grant_adds_to_the_constant_share() {
        let mut expected: Vec<_> = (1..=10).map(|n| at(50 * n + 8)).collect();
        expected.extend([at(558), at(566)]);
        assert_eq!(send(&mut terminal(160), at(20), 12), expected);
    }

    #[test]
    fn a_constant_share_of_the_whole_link_keeps_no_grants() {
        let mut t = terminal(1000);
        assert_eq!(send(&mut t, at(50), 7).last(), Some(&at(106)));
        assert!(t.grants.is_empty());
    }

    /// A terminal with a permanent backlog gets the whole link from the first grant on.
    #[test]
    fn a_backlogged_terminal_uses_all_capacity() {
        let gone = send(&mut terminal(0), at(0), 2000);
        // 2 MB at 1 Mbit/s are 16 s.
        let took = (gone[1999] - at(500)).as_secs_f64();
        assert!((took - 16.0).abs() < 0.06, "{took}");
    }

    /// Bytes that a terminal with a permanent backlog sends in its first frames.
    fn backlogged(t: &mut Demand, frames: u64) -> u64 {
        let (end, mut now, mut sent) = (t.begin(frames), Instant::ZERO, 0);
        while now < end {
            let ready = t.ready(now, 1_000_000_000);
            if ready > now {
                now = ready;
                continue;
            }
            let (rest, then) = match t.send(1000, now) {
                Ok(end) => (0, end),
                Err(rest) => rest,
            };
            (now, sent) = (then, sent + u64::from(1000 - rest));
        }
        assert_eq!(now, end, "a frame ends at the beginning of the next");
        sent
    }

    /// Rates [bit/s] and frames of 0.625 to 126 562.8 bytes.
    const FRACTIONS: [(u64, Duration); 4] = [
        (1_000_000, Duration::from_micros(5)),
        (1_000_000, Duration::from_micros(17)),
        (1_234_567, Duration::from_millis(5)),
        (999_999_937, Duration::from_nanos(1_012_503)),
    ];

    fn total(bps: u64, frame: Duration, frames: u64) -> u64 {
        (u128::from(bps) * u128::from(frame.as_nanos()) * u128::from(frames) / 8_000_000_000) as u64
    }

    #[test]
    fn constant_shares_of_fractional_bytes_add_up_to_their_rate() {
        let shares = [(1500, Duration::from_millis(5)), (16_123, Duration::from_millis(50))];
        for (bps, free, frame) in FRACTIONS
            .map(|(bps, frame)| (bps, bps, frame))
            .into_iter()
            .chain(shares.map(|(free, frame)| (2_000_000, free, frame)))
        {
            // Requests are granted after the end.
            let round_trip = Duration::from_secs(20);
            let demand = scenario::Demand { frame, round_trip, free: Rate::from_bps(free) };
            let frames = 10_000_000_000 / frame.as_nanos();
            let sent = backlogged(&mut Demand::new(&demand, Rate::from_bps(bps)), frames);
            assert_eq!(sent, total(free, frame, frames), "{demand:?}");
        }
    }

    #[test]
    fn grants_of_fractional_bytes_add_up_to_the_rate() {
        for (bps, frame) in FRACTIONS {
            let demand = scenario::Demand { frame, round_trip: frame.times(20), free: Rate::default() };
            let frames = 1_000_000_000 / frame.as_nanos();
            let sent = backlogged(&mut Demand::new(&demand, Rate::from_bps(bps)), frames);
            // The first request is granted for frame 20.
            assert_eq!(sent, total(bps, frame, frames) - total(bps, frame, 20), "{demand:?}");
        }
    }

    /// Bytes sent in each frame, where `arrivals` are the bytes that arrive at the beginning of a frame.
    fn by_frame(t: &mut Demand, arrivals: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut backlog, mut sent) = (0, Vec::new());
        for frame in 0..150 {
            let now = at(50 * frame);
            backlog +=
                arrivals.iter().filter(|arrival| arrival.0 == frame).map(|arrival| arrival.1).sum::<u64>();
            if backlog > 0 && t.ready(now, backlog) == now {
                let rest = t.send(backlog as u32, now).map_or_else(|(rest, _)| u64::from(rest), |_| 0);
                sent.push((frame, backlog - rest));
                backlog = rest;
            }
        }
        sent
    }

    /// Requests of frame n are granted for frame n + 10 and later ones, 6250 bytes each less the constant share.
    ///
    /// | arrivals | grants |
    /// |---|---|
    /// | 1000 in frame 1, 1000 in 15 | each once, though the first waits for ten frames: 11, 25 |
    /// | 8000 in 0, 5000 in 1, 1000 in 13 | 6250 in 10 and 1750 in 11; then 4500 more in 11, 500 in 12; 1000 in 23 |
    /// | 12 500 in 0, 1000 in 1 | 6250 in 10 and 11; 11 is full, so 12 |
    #[test]
    fn later_requests_fill_the_last_grant_and_count_what_is_pending() {
        for (arrivals, sent) in [
            (vec![(1, 1000), (15, 1000)], vec![(11, 1000), (25, 1000)]),
            (vec![(0, 8000), (1, 5000), (13, 1000)], vec![(10, 6250), (11, 6250), (12, 500), (23, 1000)]),
            (vec![(0, 12_500), (1, 1000)], vec![(10, 6250), (11, 6250), (12, 1000)]),
        ] {
            assert_eq!(by_frame(&mut terminal(0), &arrivals), sent, "{arrivals:?}");
        }
    }

    /// A constant share of 1000 bytes leaves 5250 of a frame. 8000 bytes in frame 0 are granted 5250 in 10 and 2750 in 11. In
    /// frame 1 the backlog is 7000 + 20 000, of which 8000 have been requested: 2500 more in 11, 5250 in 12 and so on. 10 000
    /// bytes are sent before frame 10, then 6250, 6250 and the last 5500.
    #[test]
    fn grants_leave_room_for_the_constant_share() {
        let mut sent: Vec<_> = (0..10).map(|frame| (frame, 1000)).collect();
        sent.extend([(10, 6250), (11, 6250), (12, 5500)]);
        assert_eq!(by_frame(&mut terminal(160), &[(0, 8000), (1, 20_000)]), sent);
        // A constant share of the whole rate leaves nothing to request.
        assert_eq!(by_frame(&mut terminal(1000), &[(0, 15_000)]), [(0, 6250), (1, 6250), (2, 2500)]);
    }

    #[test]
    fn without_a_round_trip_the_grant_is_for_the_next_frame() {
        let mut near = terminal(0);
        near.round_trip = Duration::ZERO;
        assert_eq!(by_frame(&mut near, &[(0, 1000), (4, 1000)]), [(1, 1000), (5, 1000)]);
    }

    /// In frame 0 the backlog is 150 frames, of which 100 are granted: 10 to 109. The queue drops it. In frame 105 ten frames'
    /// worth arrives: five frames have grants, 105 to 109, and the other five are requested for 115 to 119.
    #[test]
    fn grants_reach_a_hundred_frames_ahead() {
        let mut t = terminal(0);
        assert_eq!(t.ready(at(0), 150 * 6250), at(50));
        let sent: Vec<_> = (105..110).chain(115..120).map(|frame| (frame, 6250)).collect();
        assert_eq!(by_frame(&mut t, &[(105, 10 * 6250)]), sent);
    }
}
