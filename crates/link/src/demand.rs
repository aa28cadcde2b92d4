//! Capacity that a terminal asks for (demand assigned multiple access), by volume, as in DVB-RCS: ETSI EN 301 790,
//! section 8.4, VBDC and, without asking, CRA.
//!
//! Time is cut in frames. At the beginning of each the terminal asks for what waits and has not been asked for; the
//! grant is for the first frame that begins a round trip later, or, where that is full, for those that follow. In a
//! frame the terminal may send what was granted for it, and what it has without asking, from the frame's beginning on;
//! what it does not use is lost. A packet that does not fit is sent in parts.

use std::collections::VecDeque;

use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Instant, Rate};

/// A terminal that asks for capacity.
#[derive(Clone, Debug)]
pub struct Demand {
    frame: Duration,
    round_trip: Duration,
    rate: Rate,
    /// Of a frame: what there is without asking, and what there can be at all [bytes].
    free: u64,
    most: u64,
    /// The frame that is worked on.
    number: u64,
    /// What may still be sent in it [bytes], and from when on.
    left: u64,
    free_at: Instant,
    /// Frames to come, and what was granted for each [bytes].
    grants: VecDeque<(u64, u64)>,
    /// Asked for, and not yet come [bytes].
    asked: u64,
}

impl Demand {
    /// A terminal that sends at `rate` in its time.
    #[must_use]
    pub fn new(demand: &scenario::Demand, rate: Rate) -> Self {
        let bytes = |rate: Rate| (rate.bytes_per_sec() * demand.frame.as_secs_f64()) as u64;
        Self {
            frame: demand.frame,
            round_trip: demand.round_trip,
            rate,
            free: bytes(demand.free),
            most: bytes(rate).max(1),
            // No frame has begun.
            number: u64::MAX,
            left: 0,
            free_at: Instant::ZERO,
            grants: VecDeque::new(),
            asked: 0,
        }
    }

    fn begin(&self, number: u64) -> Instant {
        Instant::ZERO + self.frame.times(number)
    }

    /// When a packet may go, at `now`, where `backlog` bytes wait: at once, or look again at that time.
    pub fn ready(&mut self, now: Instant, backlog: u64) -> Instant {
        let number = now.as_nanos() / self.frame.as_nanos().max(1);
        if number != self.number && self.begin(number) == now {
            self.number = number;
            self.open(number);
            self.ask(number, backlog);
        }
        if number == self.number && self.left > 0 && self.free_at == now {
            return now;
        }
        self.begin(number + 1)
    }

    /// A frame begins: what may be sent in it.
    fn open(&mut self, number: u64) {
        let mut granted = 0;
        while let Some(&(frame, bytes)) = self.grants.front()
            && frame <= number
        {
            self.grants.pop_front();
            self.asked = self.asked.saturating_sub(bytes);
            if frame == number {
                granted = bytes;
            }
        }
        self.left = (self.free + granted).min(self.most);
        self.free_at = self.begin(number);
    }

    fn ask(&mut self, number: u64, backlog: u64) {
        let mut wanted = backlog.saturating_sub(self.asked);
        let from = (self.begin(number) + self.round_trip).as_nanos().div_ceil(self.frame.as_nanos().max(1));
        let mut frame = from.max(number + 1);
        if let Some(&(last, bytes)) = self.grants.back() {
            frame = frame.max(last);
            let room = self.most.saturating_sub(self.free + bytes);
            if frame == last {
                if room == 0 {
                    frame += 1;
                } else if let Some(grant) = self.grants.back_mut() {
                    let part = wanted.min(room);
                    grant.1 += part;
                    self.asked += part;
                    wanted -= part;
                    frame += 1;
                }
            }
        }
        let room = self.most.saturating_sub(self.free);
        // A hundred frames ahead is far enough; what is left is asked for again.
        while wanted > 0 && room > 0 && frame < from + 100 {
            let part = wanted.min(room);
            self.grants.push_back((frame, part));
            self.asked += part;
            wanted -= part;
            frame += 1;
        }
    }

    /// Sends `len` bytes from `now` on: when they have gone, or how many are left [bytes] when the frame's share is used
    /// up, and when to look again.
    pub fn send(&mut self, len: u32, now: Instant) -> Result<Instant, (u32, Instant)> {
        let part = u64::from(len).min(self.left);
        self.left -= part;
        self.free_at = now + self.rate.time_to_send(part);
        let rest = len - part as u32;
        if rest == 0 { Ok(self.free_at) } else { Err((rest, self.begin(self.number.wrapping_add(1)))) }
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

    /// Sends packets of 1000 bytes that all come at `from`: when each has gone.
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

    /// A packet comes at 20 ms: asked for at 50, granted for the frame at 550, sent in 8 ms.
    #[test]
    fn the_first_packet_waits_for_request_round_trip_and_grant() {
        assert_eq!(send(&mut terminal(0), at(20), 1), [at(558)]);
        // At a frame's beginning it asks at once; and a round trip that is no multiple is rounded up.
        assert_eq!(send(&mut terminal(0), at(100), 1), [at(608)]);
        let mut odd = terminal(0);
        odd.round_trip = Duration::from_millis(510);
        assert_eq!(send(&mut odd, at(20), 1), [at(608)]);
    }

    /// Eight packets are 8000 bytes: 6250 in the frame at 550, the other 1750 in that at 600; the seventh packet has 250
    /// bytes in the first, and 750 (6 ms) in the second.
    #[test]
    fn what_a_frame_does_not_hold_goes_in_the_next() {
        let mut expected: Vec<_> = (1..=6).map(|n| at(550 + 8 * n)).collect();
        expected.extend([at(606), at(614)]);
        assert_eq!(send(&mut terminal(0), at(20), 8), expected);
    }

    /// 160 kbit/s are 1000 bytes a frame without asking: the first packet goes in the frame at 50, the second at 100, and
    /// so on; what was asked for at 50 comes at 550 and is no longer of use.
    #[test]
    fn free_capacity_needs_no_request() {
        let expected: Vec<_> = (1..=5).map(|n| at(50 * n + 8)).collect();
        assert_eq!(send(&mut terminal(160), at(20), 5), expected);
    }

    /// Of twelve packets ten go without asking up to the frame at 500 (50, 100, ... 500); the other two, and more, were
    /// granted for that at 550.
    #[test]
    fn a_grant_comes_on_top_of_free_capacity() {
        let mut expected: Vec<_> = (1..=10).map(|n| at(50 * n + 8)).collect();
        expected.extend([at(558), at(566)]);
        assert_eq!(send(&mut terminal(160), at(20), 12), expected);
    }

    /// A terminal that always has something to send gets the whole link once the first grant has come.
    #[test]
    fn under_load_all_of_the_capacity_is_used() {
        let gone = send(&mut terminal(0), at(0), 2000);
        // 2 MB at 1 Mbit/s are 16 s.
        let took = (gone[1999] - at(500)).as_secs_f64();
        assert!((took - 16.0).abs() < 0.06, "{took}");
    }
}
