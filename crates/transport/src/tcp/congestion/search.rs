//! SEARCH, Slow start Exit At Right CHokepoint (draft-chung-ccwg-search-09): slow start ends once less is delivered than was
//! sent a round trip before.
//!
//! - bins of a tenth of a window of 3.5 initial RTTs record what was sent and what was delivered so far;
//! - at the end of a bin, `norm_diff = (prev_sent - curr_delv) / prev_sent` compares what was delivered in the last window
//!   with what was sent in the window that ended an RTT before; slow start is over from 0.26 on;
//! - drain phase: the window follows the data in flight, plus a segment for three delivered, down to what was delivered in
//!   the last initial RTT, where congestion avoidance begins;
//! - after a pause of more than a window, SEARCH starts again with a new initial RTT.
//!
//! It needs a window and an RTT of samples, 4.5 initial RTTs, and RTTs of less than 5.25 of them. The threshold is reached
//! four to five initial RTTs after the link is busy, if a queue of as many bandwidth-delay products holds the excess. It
//! applies to the first slow start only, and not after a loss or a mark.
//!
//! Departures: a window that ended between two bins is interpolated with the bin before, as implementations do. Bins hold
//! whole bytes; the draft's scaling saves memory.

use bentpipe_units::{Duration, Instant};

use super::Window;

/// W: bins of a window.
const W: u64 = 10;
/// EXTRA_BINS: the longest RTT [bins].
const EXTRA_BINS: u64 = 15;
const ACKED_BINS: usize = W as usize + 1;
const SENT_BINS: usize = ACKED_BINS + EXTRA_BINS as usize;
/// WINDOW_SIZE [initial RTTs], as a fraction.
const WINDOW: (u64, u64) = (7, 2);
/// THRESH.
const THRESH: f64 = 0.26;
/// Segments delivered for each that is sent while the queue drains.
const DRAIN: u64 = 3;

/// State of SEARCH.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Search {
    /// Sent and delivered since SEARCH started [bytes].
    sent: u64,
    delivered: u64,
    /// BIN_DURATION; zero before the first RTT.
    bin: Duration,
    bin_end: Instant,
    /// Number of the current bin.
    current: u64,
    sent_bins: [u64; SENT_BINS],
    acked_bins: [u64; ACKED_BINS],
    /// Window at which congestion avoidance begins, in the drain phase [bytes].
    target: Option<u64>,
    /// Delivered in the drain phase and not yet answered by a segment [bytes].
    credit: u64,
    /// The first slow start has ended.
    over: bool,
}

/// An ACK of new data.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct SearchAck {
    pub(in crate::tcp) now: Instant,
    /// Newly delivered [bytes].
    pub(in crate::tcp) bytes: u64,
    /// In flight after it [bytes].
    pub(in crate::tcp) in_flight: u64,
    pub(in crate::tcp) rtt: Option<Duration>,
    /// Initial window [bytes].
    pub(in crate::tcp) iw: u64,
    /// Segment [bytes].
    pub(in crate::tcp) smss: u64,
}

impl Search {
    /// `bytes` have been sent.
    pub(in crate::tcp) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// `bytes` of those sent last ask for no ACK.
    pub(in crate::tcp) fn on_not_in_flight(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_sub(bytes);
    }

    /// Processes an ACK, before the window grows.
    pub(in crate::tcp) fn on_ack(&mut self, window: &mut Window, ack: &SearchAck) {
        if self.over || !window.is_in_slow_start() {
            self.over = true;
            return;
        }
        self.delivered += ack.bytes;
        if let Some(target) = self.target {
            self.drain(window, target, ack);
        } else if let Some(rtt) = ack.rtt
            && self.is_at_capacity(rtt, ack.now)
        {
            // As many bins as an initial RTT has.
            let bins = (W * WINDOW.1).div_ceil(WINDOW.0);
            let delivered = self.acked(self.current) - self.acked(self.current - bins);
            self.target = Some(delivered.max(ack.iw).min(window.cwnd));
        }
    }

    /// Shrinks the window to the target as the queue drains.
    fn drain(&mut self, window: &mut Window, target: u64, ack: &SearchAck) {
        self.credit += ack.bytes;
        let segments = self.credit / (DRAIN * ack.smss);
        self.credit %= DRAIN * ack.smss;
        window.cwnd = (ack.in_flight + segments * ack.smss).max(target).min(window.cwnd);
        if window.cwnd == target {
            window.set_ssthresh(target);
            self.over = true;
        }
    }

    /// Records an ACK; returns true if it ends a bin in which `norm_diff` has reached the threshold.
    fn is_at_capacity(&mut self, rtt: Duration, now: Instant) -> bool {
        if self.bin.is_zero() {
            self.bin = Duration::from_nanos((rtt.as_nanos() * WINDOW.0 / WINDOW.1 / W).max(1));
            self.bin_end = now + self.bin;
            self.current = 0;
            (self.sent_bins[0], self.acked_bins[0]) = (self.sent, self.delivered);
            return false;
        }
        if now <= self.bin_end {
            return false;
        }
        let passed = (now - self.bin_end).as_nanos() / self.bin.as_nanos() + 1;
        if passed > W {
            *self = Self::default();
            return false;
        }
        for skipped in 1..passed {
            let number = (self.current + skipped) as usize;
            self.sent_bins[number % SENT_BINS] = self.sent(self.current);
            self.acked_bins[number % ACKED_BINS] = self.acked(self.current);
        }
        self.current += passed;
        self.bin_end += self.bin.times(passed);
        self.sent_bins[self.current as usize % SENT_BINS] = self.sent;
        self.acked_bins[self.current as usize % ACKED_BINS] = self.delivered;
        let back = rtt.as_nanos() / self.bin.as_nanos();
        if back >= EXTRA_BINS || self.current <= back + W {
            return false;
        }
        let fraction = (rtt.as_nanos() % self.bin.as_nanos()) as f64 / self.bin.as_nanos() as f64;
        let curr_delv = (self.acked(self.current) - self.acked(self.current - W)) as f64;
        let prev_sent = self.sent_before(self.current - back, fraction);
        // Negative or not a number if nothing was sent.
        (prev_sent - curr_delv) / prev_sent >= THRESH
    }

    /// Sent in the window that ended `fraction` of a bin before the end of bin `number` [bytes].
    fn sent_before(&self, number: u64, fraction: f64) -> f64 {
        let window = |end: u64| (self.sent(end) - self.sent(end - W)) as f64;
        window(number) * (1.0 - fraction) + window(number - 1) * fraction
    }

    /// Sent up to the end of a bin [bytes].
    fn sent(&self, number: u64) -> u64 {
        self.sent_bins[number as usize % SENT_BINS]
    }

    /// Delivered up to the end of a bin [bytes].
    fn acked(&self, number: u64) -> u64 {
        self.acked_bins[number as usize % ACKED_BINS]
    }

    /// True if the window does not grow, because SEARCH reduces it.
    pub(in crate::tcp) fn holds_window(&self) -> bool {
        self.target.is_some() && !self.over
    }

    /// Ends SEARCH after a loss or a mark.
    pub(in crate::tcp) fn stop(&mut self) {
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMSS: u64 = 1000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ack(ms: u64, bytes: u64, rtt: u64) -> SearchAck {
        let rtt = Some(Duration::from_millis(rtt));
        SearchAck { now: at(ms), bytes, in_flight: 0, rtt, iw: 10 * SMSS, smss: SMSS }
    }

    /// The window is 3.5 times 100 ms, and a bin a tenth of it.
    #[test]
    fn bins_are_a_tenth_of_three_and_a_half_rtts() {
        let (mut search, mut window) = (Search::default(), Window::new(10_000, None));
        search.on_sent(10_000);
        search.on_ack(&mut window, &ack(100, 1000, 100));
        assert_eq!((search.bin, search.bin_end), (Duration::from_millis(35), at(135)));
        search.on_ack(&mut window, &ack(135, 1000, 100));
        assert_eq!(search.current, 0);
        // Bins that pass without an ACK repeat the one before.
        search.on_sent(2000);
        search.on_ack(&mut window, &ack(135 + 36, 1000, 100));
        assert_eq!(search.current, 2);
        assert_eq!([0, 1, 2].map(|bin| search.acked(bin)), [1000, 1000, 3000]);
        assert_eq!([0, 1, 2].map(|bin| search.sent(bin)), [10_000, 10_000, 12_000]);
        // Ten bins are a window.
        search.on_ack(&mut window, &ack(205 + 349, 1000, 100));
        assert_eq!((search.current, search.bin_end), (12, at(555)));
        // More than ten bins: the next RTT is the initial one.
        search.on_ack(&mut window, &ack(555 + 350, 1000, 100));
        assert!(search.bin.is_zero());
        search.on_ack(&mut window, &ack(1000, 1000, 200));
        assert_eq!(search.bin, Duration::from_millis(70));
    }

    /// With an RTT of 100 ms, a window ended 100 / 35 = 2.86 bins before: 0.86 of a bin before the end of the second last.
    #[test]
    fn the_window_of_the_data_sent_is_interpolated() {
        let mut search = Search { current: 20, ..Search::default() };
        for number in 0..=20u64 {
            search.sent_bins[number as usize % SENT_BINS] = number * number * 100;
        }
        let at = |end: u64| (end * end - (end - 10) * (end - 10)) as f64 * 100.0;
        let found = search.sent_before(18, 30.0 / 35.0);
        assert!((found - (at(18) / 7.0 + at(17) * 6.0 / 7.0)).abs() < 1e-6, "{found}");
    }

    /// As above, 70 000 bytes were sent in the ten bins up to bin 18, and 77 000 in those up to bin 17: with 6/7 of the latter
    /// `prev_sent` is 76 000. `norm_diff` is 0.26 if 56 240 bytes were delivered in the ten bins up to bin 20.
    #[test]
    fn slow_start_is_over_once_norm_diff_is_the_threshold() {
        for (delivered, is_over) in [(56_241, false), (56_239, true)] {
            let mut search = Search {
                bin: Duration::from_millis(35),
                bin_end: at(700),
                current: 19,
                delivered: 20_000 + delivered,
                ..Search::default()
            };
            for (bin, sent) in [(7, 0), (8, 10_000), (17, 77_000), (18, 80_000)] {
                search.sent_bins[bin] = sent;
            }
            search.acked_bins[10] = 20_000;
            assert!(!search.is_at_capacity(Duration::from_millis(100), at(700)));
            assert_eq!(search.is_at_capacity(Duration::from_millis(100), at(701)), is_over);
            assert_eq!((search.current, search.acked(20)), (20, 20_000 + delivered));
        }
    }

    /// An ACK outside of slow start ends SEARCH for good, as does a loss or a mark, also in the drain phase.
    #[test]
    fn search_applies_to_the_first_slow_start_only() {
        let (mut search, mut window) = (Search::default(), Window::new(10_000, Some(10_000)));
        search.on_ack(&mut window, &ack(100, 1000, 100));
        window.cwnd = 1000;
        search.on_ack(&mut window, &ack(200, 1000, 100));
        assert!(search.over && search.bin.is_zero());
        let mut search = Search { target: Some(50_000), ..Search::default() };
        search.stop();
        let mut window = Window::new(100_000, None);
        search.on_ack(&mut window, &ack(1, 1000, 100));
        assert_eq!((window.cwnd, window.ssthresh(), search.holds_window()), (100_000, None, false));
    }

    /// A path of 1 MB/s and 100 ms, without a queue limit, on which the window doubles every RTT. Returns the largest window,
    /// and that in which congestion avoidance begins, in bandwidth-delay products of 100 kB.
    fn run(rtt_ms: u64) -> (f64, f64) {
        let (mut search, mut window) = (Search::default(), Window::new(10_000, None));
        let bdp = (rtt_ms * 1000) as f64;
        // Times at which segments arrive, and when they were sent.
        let mut arrivals = std::collections::VecDeque::new();
        let (mut free_at, mut in_flight, mut largest, mut now) = (0u64, 0u64, 0, 0u64);
        loop {
            while in_flight + SMSS <= window.cwnd {
                // The link sends a segment per millisecond.
                free_at = free_at.max(now) + 1;
                arrivals.push_back((free_at + rtt_ms, now));
                in_flight += SMSS;
                search.on_sent(SMSS);
            }
            let Some((then, sent)) = arrivals.pop_front() else { panic!("nothing in flight") };
            now = then;
            in_flight -= SMSS;
            let ack = SearchAck { in_flight, ..ack(now, SMSS, now - sent) };
            search.on_ack(&mut window, &ack);
            if search.over {
                return (largest as f64 / bdp, window.cwnd as f64 / bdp);
            }
            if !search.holds_window() {
                window.cwnd += SMSS;
            }
            largest = largest.max(window.cwnd);
            assert!(now < 100_000, "slow start does not end");
        }
    }

    /// From the time at which the link is busy, twice its rate is sent, and the window grows by a bandwidth-delay product per
    /// initial RTT. After `T` of them, the newest ACK is for data sent at `s = (T - 1) / 2`, and 3.5 are delivered. Sent in the
    /// window up to then: `2 s + 1 + (2.5 - s) / 2` if the rate was 1 and then 1/2 before. `norm_diff` is 0.22 for `T = 4` and
    /// 0.33 for `T = 5`, so slow start ends in between, at a window of 5 to 6 products. What was delivered in three bins, 1.05
    /// initial RTTs, is its end.
    #[test]
    fn slow_start_ends_four_to_five_round_trips_after_the_link_is_busy() {
        for rtt_ms in [600, 1200] {
            let (largest, last) = run(rtt_ms);
            assert!((5.0..6.0).contains(&largest), "{rtt_ms} ms: {largest}");
            assert!((1.0..1.1).contains(&last), "{rtt_ms} ms: {last}");
        }
    }

    /// A segment is sent for each three delivered, until the target is reached.
    #[test]
    fn the_drain_phase_replaces_a_third_of_what_is_delivered() {
        let mut search = Search { target: Some(50_000), ..Search::default() };
        let mut window = Window::new(100_000, None);
        for left in [99_000, 98_000] {
            search.on_ack(&mut window, &SearchAck { in_flight: left, ..ack(1, 1000, 100) });
            assert_eq!(window.cwnd, left);
        }
        search.on_ack(&mut window, &SearchAck { in_flight: 97_000, ..ack(1, 1000, 100) });
        assert_eq!((window.cwnd, window.ssthresh(), search.holds_window()), (98_000, None, true));
        search.on_ack(&mut window, &SearchAck { in_flight: 49_000, ..ack(1, 1000, 100) });
        assert_eq!((window.cwnd, window.ssthresh(), search.holds_window()), (50_000, Some(50_000), false));
    }
}
