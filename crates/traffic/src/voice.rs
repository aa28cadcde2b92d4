//! Calls at the listener: a jitter buffer delays packets until they are played, and loses those that are late.

use std::collections::VecDeque;

use bentpipe_scenario::{Codec, Pattern, TrafficKind};
use bentpipe_units::{Duration, Instant};

/// Weight of the past in the estimates of delay and variation (Ramjee et al. 1994, algorithm 1).
const ALPHA: f64 = 0.998_002;

/// Voice of a call, and the listener's jitter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// Codec.
    pub codec: Codec,
    /// Time between two packets of a talk spurt.
    pub interval: Duration,
    /// Delay added to that of the first packet of a call; `None` if it adapts.
    ///
    /// An adaptive buffer sets the playout delay at the start of a talk spurt to the mean delay plus four times its
    /// variation (Ramjee, Kurose, Towsley & Schulzrinne 1994, algorithm 1), and adds at least one interval.
    pub fixed_buffer: Option<Duration>,
}

impl Voice {
    /// Voice of the calls of some traffic; `None` if it carries none.
    #[must_use]
    pub fn of(kind: &TrafficKind) -> Option<Self> {
        let TrafficKind::Packets(packets) = kind else { return None };
        match *packets.pattern {
            Pattern::Voip { interval, codec, jitter_buffer, .. } => {
                Some(Self { codec, interval, fixed_buffer: jitter_buffer })
            }
            _ => None,
        }
    }
}

/// A packet whose fate is unknown, or waits for that of an earlier one.
#[derive(Clone, Copy, Debug)]
struct Pending {
    sent_at: Instant,
    /// Number of its talk spurt.
    spurt: u32,
    fate: Option<Fate>,
    /// Delay from sending to playing, if it is played [ns].
    playout_delay: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Played,
    Late,
    Lost,
}

/// One call at its listener. Counts are over the packets sent during the measurement.
#[derive(Clone, Debug)]
pub struct Call {
    /// Codec and jitter buffer.
    pub voice: Voice,
    /// Time from which packets count.
    begin: Instant,
    /// Longest time between two packets of a talk spurt.
    longest_gap: Duration,
    pending: VecDeque<Pending>,
    /// Number of the latest talk spurt sent, and of the one that is played.
    spurt_sent: u32,
    spurt_played: u32,
    last_sent: Option<Instant>,
    /// Estimates of the delay and of its variation [ns].
    delay: Option<f64>,
    variation: f64,
    /// Delay from sending to playing [ns].
    playout_delay: f64,
    was_lost: bool,
    /// Sum of the playout delays of the played packets [ns].
    playout_sum: f64,
    /// Packets played.
    pub played: u64,
    /// Packets that arrived too late to be played.
    pub late: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Runs of consecutive packets that were late or lost.
    pub loss_runs: u64,
}

impl Call {
    /// A call whose packets count from `begin` on. A sender in real time is up to `lateness` late with a packet.
    #[must_use]
    pub fn new(voice: Voice, begin: Instant, lateness: Duration) -> Self {
        Self {
            voice,
            begin,
            longest_gap: voice.interval + lateness,
            pending: VecDeque::new(),
            spurt_sent: 0,
            spurt_played: 0,
            last_sent: None,
            delay: None,
            variation: 0.0,
            playout_delay: 0.0,
            was_lost: false,
            playout_sum: 0.0,
            played: 0,
            late: 0,
            lost: 0,
            loss_runs: 0,
        }
    }

    /// A packet is sent.
    pub fn send(&mut self, now: Instant) {
        let gap = self.last_sent.map_or(Duration::ZERO, |last| now - last);
        self.send_after(gap, now);
    }

    /// A packet is sent, at the source's nominal rate this long after the last one: packets at a lower rate are farther apart,
    /// but belong to the same talk spurt.
    pub fn send_after(&mut self, nominal_gap: Duration, now: Instant) {
        let paused = self.last_sent.is_none() || nominal_gap > self.longest_gap;
        self.last_sent = Some(now);
        self.spurt_sent += u32::from(paused);
        self.pending.push_back(Pending {
            sent_at: now,
            spurt: self.spurt_sent,
            fate: None,
            playout_delay: 0.0,
        });
    }

    /// The packet sent at `sent_at` arrives.
    pub fn receive(&mut self, sent_at: Instant, now: Instant) {
        let Ok(index) = self.pending.binary_search_by_key(&sent_at, |packet| packet.sent_at) else { return };
        let delay = (now - sent_at).as_nanos() as f64;
        let (is_first, spurt) = (self.delay.is_none(), self.pending[index].spurt);
        let mean = self.delay.map_or(delay, |mean| ALPHA * mean + (1.0 - ALPHA) * delay);
        self.variation = ALPHA * self.variation + (1.0 - ALPHA) * (mean - delay).abs();
        self.delay = Some(mean);
        match self.voice.fixed_buffer {
            Some(added) if is_first => self.playout_delay = delay + added.as_nanos() as f64,
            None if spurt > self.spurt_played => {
                let added = (4.0 * self.variation).max(self.voice.interval.as_nanos() as f64);
                self.playout_delay = mean + added;
            }
            _ => {}
        }
        self.spurt_played = self.spurt_played.max(spurt);
        let fate = if delay <= self.playout_delay { Fate::Played } else { Fate::Late };
        self.decide(index, fate);
    }

    /// The packet sent at `sent_at` is lost.
    pub fn lose(&mut self, sent_at: Instant) {
        if let Ok(index) = self.pending.binary_search_by_key(&sent_at, |packet| packet.sent_at) {
            self.decide(index, Fate::Lost);
        }
    }

    fn decide(&mut self, index: usize, fate: Fate) {
        let packet = &mut self.pending[index];
        (packet.fate, packet.playout_delay) = (Some(fate), self.playout_delay);
        // In the order of sending, so that the counters agree with each other whichever packets are still on their way.
        while let Some(&Pending { sent_at, fate: Some(fate), playout_delay, .. }) = self.pending.front() {
            self.pending.pop_front();
            if sent_at < self.begin {
                continue;
            }
            match fate {
                Fate::Played => {
                    self.played += 1;
                    self.playout_sum += playout_delay;
                }
                Fate::Late => self.late += 1,
                Fate::Lost => self.lost += 1,
            }
            let is_lost = fate != Fate::Played;
            self.loss_runs += u64::from(is_lost && !self.was_lost);
            self.was_lost = is_lost;
        }
    }

    /// Mean delay from sending to playing [s]; NaN if nothing was played.
    #[must_use]
    pub fn playout_delay(&self) -> f64 {
        self.playout_sum * 1e-9 / self.played as f64
    }

    /// Mean delay from speaking to playing [s]: a packet's voice, the encoder's look-ahead, and the playout delay; NaN if
    /// nothing was played.
    #[must_use]
    pub fn mouth_to_ear_delay(&self) -> f64 {
        (self.voice.interval + self.voice.codec.look_ahead()).as_secs_f64() + self.playout_delay()
    }

    /// Length of the mean loss run over that of independent losses at the same rate (ITU-T G.107, BurstR); NaN without
    /// losses.
    #[must_use]
    pub fn burst_ratio(&self) -> f64 {
        let losses = (self.late + self.lost) as f64;
        let share = losses / (losses + self.played as f64);
        losses / self.loss_runs as f64 * (1.0 - share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn call(fixed: Option<Duration>) -> Call {
        let voice = Voice { codec: Codec::G729, interval: INTERVAL, fixed_buffer: fixed };
        Call::new(voice, Instant::ZERO, Duration::ZERO)
    }

    #[test]
    fn a_fixed_buffer_plays_what_arrives_within_its_delay() {
        let mut call = call(Some(Duration::from_millis(60)));
        for (number, delay) in [300, 360, 361, 250].into_iter().enumerate() {
            let sent = at(20 * number as u64);
            call.send(sent);
            call.receive(sent, sent + Duration::from_millis(delay));
        }
        assert_eq!((call.played, call.late, call.lost), (3, 1, 0));
        assert!((call.playout_delay() - 0.36).abs() < 1e-12);
        assert!((call.mouth_to_ear_delay() - 0.385).abs() < 1e-12);
    }

    #[test]
    fn an_adaptive_buffer_follows_a_longer_path_at_the_next_talk_spurt() {
        let mut call = call(None);
        let mut sent = at(0);
        let mut talk = |call: &mut Call, delay: u64| {
            for _ in 0..50 {
                call.send(sent);
                call.receive(sent, sent + Duration::from_millis(delay));
                sent += INTERVAL;
            }
            sent += Duration::from_secs(1);
        };
        talk(&mut call, 100);
        assert_eq!((call.played, call.late), (50, 0));
        talk(&mut call, 150);
        assert_eq!(
            call.late, 50,
            "the buffer has 20 ms, and the mean follows with a time constant of 500 packets"
        );
        for _ in 0..9 {
            talk(&mut call, 150);
        }
        let late = call.late;
        talk(&mut call, 150);
        assert_eq!(call.late, late);
    }

    /// The first packet is still on its way when the second is played.
    #[test]
    fn delays_are_those_of_the_packets_that_count() {
        let mut call = call(None);
        call.send(at(0));
        call.send(at(20));
        call.receive(at(20), at(120));
        assert_eq!(call.played, 0);
        assert!(call.mouth_to_ear_delay().is_nan());
        call.lose(at(0));
        // 100 ms and a buffer of 20 ms; a packet's voice of 20 ms and 5 ms of look-ahead (G.729).
        assert_eq!((call.played, call.lost), (1, 1));
        assert!((call.mouth_to_ear_delay() - 0.145).abs() < 1e-12);
    }

    /// Packets 2 to 4 of ten are lost in one run: 3 losses in a run, 1/(1 - 0.3) if independent.
    #[test]
    fn burst_ratio_compares_runs_with_independent_losses() {
        let mut call = call(None);
        for number in 0..10 {
            let sent = at(20 * number);
            call.send(sent);
            if (2..5).contains(&number) {
                call.lose(sent);
            } else {
                call.receive(sent, sent + Duration::from_millis(10));
            }
        }
        assert_eq!((call.played, call.lost, call.loss_runs), (7, 3, 1));
        assert!((call.burst_ratio() - 3.0 * 0.7).abs() < 1e-12);
    }

    /// The first packet is lost after the second has arrived.
    #[test]
    fn losses_known_late_count_in_the_order_of_sending() {
        let mut call = call(None);
        (0..3).for_each(|number| call.send(at(20 * number)));
        call.receive(at(20), at(30));
        assert_eq!(call.played, 0);
        call.lose(at(0));
        call.lose(at(40));
        assert_eq!((call.played, call.lost, call.loss_runs), (1, 2, 2));
    }

    /// At half the rate, packets are 40 ms apart.
    #[test]
    fn packets_at_a_lower_rate_are_one_talk_spurt() {
        let mut call = call(None);
        (0..5).for_each(|number| call.send_after(INTERVAL, at(40 * number)));
        assert_eq!(call.spurt_sent, 1);
        call.send_after(INTERVAL.times(3), at(280));
        assert_eq!(call.spurt_sent, 2);
    }

    #[test]
    fn packets_sent_before_the_measurement_do_not_count() {
        let mut call = call(None);
        call.begin = at(20);
        (0..2).for_each(|number| call.send(at(20 * number)));
        call.lose(at(0));
        call.receive(at(20), at(30));
        assert_eq!((call.played, call.lost, call.loss_runs), (1, 0, 0));
    }
}
