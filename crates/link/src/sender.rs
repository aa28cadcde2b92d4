//! The sender of a link that is more than a constant rate.
//!
//! The owner of the queue asks [`Sender::ready`] for the time at which the next packet may be sent; at that time it dequeues
//! the packet and calls [`Sender::send`], which returns the time at which the packet has been sent. It calls
//! [`Sender::on_idle`] when the queue is empty.

use bentpipe_scenario as scenario;
use bentpipe_scenario::{Direction, Modulation};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::engine::Names;
use crate::fade::Streams;
use crate::{Access, Demand, Drawn, Fade, Satellite, Steps, Trace};

/// The sender of a link that is more than a constant rate.
#[derive(Clone, Debug)]
pub struct Sender {
    capacity: Capacity,
    /// Handovers whose outages it waits for.
    outages: Option<Satellite>,
    rng: Rng,
}

/// Model of a capacity.
#[derive(Clone, Debug)]
pub enum Capacity {
    /// A rate; `None` if unlimited.
    Rate(Option<Rate>),
    /// A rate with steps at given times.
    Steps(Steps),
    /// A rate drawn at regular times.
    Drawn(Drawn),
    /// A rate under rain fade.
    Fade(Box<Fade>),
    /// Opportunities of a trace.
    Trace(Trace),
    /// A rate for each host; for packets of no host the lowest, which every receiver decodes.
    Hosts(Vec<Rate>),
    /// Capacity on demand.
    Demand(Demand),
    /// A link layer at a rate.
    Access(Access),
}

/// Result of [`Sender::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of the packet is sent.
    Whole {
        /// Time at which it has been sent, and the next packet may be.
        at: Instant,
        /// Delay that the link layer adds.
        delay: Duration,
        /// True if the link layer has given it up.
        lost: bool,
    },
    /// Part of the packet is sent.
    Part {
        /// Rest of the packet [bytes].
        left: u32,
        /// Time at which to ask for the rest.
        again: Instant,
    },
}

impl Sender {
    /// True if it may give up packets ([`LossCause::LinkLayer`](crate::LossCause::LinkLayer)).
    pub(crate) fn may_give_up(&self) -> bool {
        matches!(self.capacity, Capacity::Access(_))
    }

    /// The sender of a direction; `None` if it is a constant rate, or unlimited.
    #[must_use]
    pub fn new(
        direction: &Direction,
        handover: Option<&Satellite>,
        seed: u64,
        names: &Names,
    ) -> Option<Self> {
        let outages = handover.filter(|h| h.has_outages() && !h.loses()).cloned();
        let rate = direction.rate.unwrap_or_default();
        let stream = |purpose| Rng::stream(seed, &names.direction, 0, purpose);
        let capacity = match (&direction.capacity, &direction.demand, &direction.access) {
            (Some(capacity), _, _) => Capacity::new(capacity, seed, names),
            (_, Some(demand), _) => Capacity::Demand(Demand::new(demand, rate)),
            (_, _, Some(access)) => Capacity::Access(Access::new(access, rate)),
            _ if outages.is_some() => Capacity::Rate(direction.rate),
            _ => return None,
        };
        Some(Self { capacity, outages, rng: stream("access") })
    }

    /// Time at which the next packet of a backlog [bytes] may be sent: `now`, or a time at which to ask again.
    pub fn ready(&mut self, now: Instant, backlog: u64) -> Instant {
        if let Some(end) = self.outages.as_ref().and_then(|o| o.outage(now)) {
            return end;
        }
        match &mut self.capacity {
            Capacity::Trace(trace) => trace.ready(now),
            Capacity::Demand(demand) => demand.ready(now, backlog),
            _ => now,
        }
    }

    /// Sends `len` bytes; `host` selects the rate if each host has its own.
    pub fn send(&mut self, len: u32, host: Option<u32>, now: Instant) -> Sent {
        let whole = |at| Sent::Whole { at, delay: Duration::ZERO, lost: false };
        match &mut self.capacity {
            Capacity::Rate(rate) => whole(rate.map_or(now, |rate| now + rate.time_to_send(u64::from(len)))),
            Capacity::Steps(steps) => finish(len, now, |at| steps.at(at)),
            Capacity::Drawn(drawn) => finish(len, now, |at| drawn.at(at)),
            Capacity::Fade(fade) => finish(len, now, |at| fade.at(at)),
            Capacity::Trace(trace) => whole(trace.send(len, now)),
            Capacity::Hosts(rates) => {
                let own = host.and_then(|host| rates.get(host as usize % rates.len().max(1)));
                let rate = own.or(rates.iter().min()).copied().unwrap_or_default();
                whole(now + rate.time_to_send(u64::from(len)))
            }
            Capacity::Demand(demand) => match demand.send(len, now) {
                Ok(at) => whole(at),
                Err((left, again)) => Sent::Part { left, again },
            },
            Capacity::Access(access) => {
                let tried = access.send(len, now, &mut self.rng);
                Sent::Whole { at: tried.free, delay: tried.delay, lost: tried.lost }
            }
        }
    }

    /// The queue is empty.
    pub fn on_idle(&mut self) {
        if let Capacity::Trace(trace) = &mut self.capacity {
            trace.on_idle();
        }
    }

    /// A copy of its capacity that can be read ahead without sending; `None` if it does not change with time.
    #[must_use]
    pub fn variable_capacity(&self) -> Option<Capacity> {
        let changes = matches!(
            self.capacity,
            Capacity::Steps(_) | Capacity::Drawn(_) | Capacity::Fade(_) | Capacity::Trace(_)
        );
        changes.then(|| self.capacity.clone())
    }
}

/// Time over which the capacity of a trace is averaged: a second, so that its bits are the rate.
const AVERAGED: Duration = Duration::from_secs(1);

impl Capacity {
    fn new(capacity: &scenario::Capacity, seed: u64, names: &Names) -> Self {
        match capacity {
            scenario::Capacity::Trace(trace) => Self::Trace(Trace::new(trace)),
            scenario::Capacity::Steps(steps) => Self::Steps(Steps::new(steps)),
            scenario::Capacity::Drawn(drawn) => {
                Self::Drawn(Drawn::new(*drawn, Rng::stream(seed, &names.direction, 0, "capacity")))
            }
            scenario::Capacity::Carrier(carrier) => match &carrier.modulation {
                Modulation::Fixed(modcod) => Self::Rate(Some(carrier.rate(modcod))),
                Modulation::Hosts { modcods, .. } => {
                    Self::Hosts(modcods.iter().map(|m| carrier.rate(m)).collect())
                }
                Modulation::Fade(fade) => {
                    let streams = Streams::of(fade, seed, &names.link, &names.direction);
                    Self::Fade(Box::new(Fade::new(carrier, fade, streams)))
                }
            },
        }
    }

    /// Time of the first [`Capacity::update`].
    #[must_use]
    pub const fn first_update(&self) -> Instant {
        match self {
            Self::Trace(_) => Instant::from_nanos(AVERAGED.as_nanos()),
            _ => Instant::ZERO,
        }
    }

    /// The capacity at `now`, and the time of the next update, if any; for copies from [`Sender::variable_capacity`]. The capacity of a
    /// trace is its mean over the last second.
    pub fn update(&mut self, now: Instant) -> (Rate, Option<Instant>) {
        match self {
            Self::Steps(steps) => steps.at(now),
            Self::Drawn(drawn) => drawn.at(now),
            Self::Fade(fade) => fade.at(now),
            Self::Trace(trace) => (Rate::from_bps(trace.passed(now) * 8), Some(now + AVERAGED)),
            _ => (Rate::default(), None),
        }
    }

    /// Data that can be sent from `begin` to `end` [bits]; for copies whose last update was no later than `begin`.
    #[must_use]
    pub fn between(mut self, begin: Instant, end: Instant) -> f64 {
        if let Self::Trace(trace) = &mut self {
            trace.passed(begin);
            return 8.0 * trace.passed(end) as f64;
        }
        let (mut bits, mut at) = (0.0, begin);
        while at < end {
            let (rate, next) = self.update(at);
            let until = next.map_or(end, |next| next.min(end));
            bits += rate.as_bps() as f64 * (until - at).as_secs_f64();
            at = until;
        }
        bits
    }
}

/// Maximum number of rates that one call goes through, as rain may stop a carrier for long.
const MAX_RATES: usize = 1000;

/// Sends `len` bytes from `now` on, at rates that hold for a time each.
fn finish(len: u32, now: Instant, mut rate_at: impl FnMut(Instant) -> (Rate, Option<Instant>)) -> Sent {
    // In billionths of a bit, of which a rate sends a whole number in each nanosecond.
    const BYTE: u128 = 8_000_000_000;
    let whole = |at| Sent::Whole { at, delay: Duration::ZERO, lost: false };
    let mut left = u128::from(len) * BYTE;
    let mut at = now;
    for _ in 0..MAX_RATES {
        let (rate, until) = rate_at(at);
        let bps = u128::from(rate.as_bps());
        let room = until.map(|until| (until, bps * u128::from((until - at).as_nanos())));
        match room {
            Some((until, room)) if room < left => (left, at) = (left - room, until),
            // Without a rate the packet is never sent: the time saturates, as `Rate::time_to_send` does.
            _ => {
                let ns = if bps == 0 { u128::MAX } else { left.div_ceil(bps) };
                return whole(at + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)));
            }
        }
    }
    // A byte sent in part is sent again: at most one in each call.
    Sent::Part { left: left.div_ceil(BYTE) as u32, again: at }
}

#[cfg(test)]
mod tests {
    use bentpipe_scenario::ModcodTable;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// 1 Mbit/s for 2 s, then 3 Mbit/s, each 5 s anew: from 1 to 8 s 1 + 9 + 2 + 3 Mbit. Opportunities at 5, twice at 10, and 20 ms,
    /// each 20 ms anew: after 5 ms and up to 30 ms, six.
    #[test]
    fn what_a_capacity_can_send_is_its_integral() {
        let rate = |mbps: u64| Rate::from_bps(mbps * 1_000_000);
        let steps = vec![(Duration::ZERO, rate(1)), (Duration::from_secs(2), rate(3))];
        let steps = scenario::Steps { steps, repeat: Some(Duration::from_secs(5)) };
        let steps = Capacity::Steps(Steps::new(&steps));
        assert_eq!(steps.between(at(1000), at(8000)), 15e6);
        let digest = bentpipe_scenario::Digest::of(b"test");
        let trace = Trace::new(&scenario::Trace { times: [5, 10, 10, 20][..].into(), digest });
        assert_eq!(Capacity::Trace(trace).between(at(5), at(30)), 6.0 * 1500.0 * 8.0);
    }

    /// 8 Mbit/s for 10 ms (10 000 bytes), nothing for 5 ms, then 4 Mbit/s. Packets of 1000 bytes (1 and 2 ms) wait from
    /// 0.5 ms on: half of the tenth is sent before the gap, half after it: 0.5 ms at 8 Mbit/s, 1 ms at 4.
    #[test]
    fn a_packet_across_steps_is_sent_at_each_rate_in_turn() {
        let rate = |mbps: u64| Rate::from_bps(mbps * 1_000_000);
        let steps = vec![
            (Duration::ZERO, rate(8)),
            (Duration::from_millis(10), rate(0)),
            (Duration::from_millis(15), rate(4)),
        ];
        let steps = scenario::Steps { steps, repeat: None };
        let capacity = Capacity::Steps(Steps::new(&steps));
        let rng = Rng::stream(1, "sender", 0, "access");
        let mut sender = Sender { capacity, outages: None, rng };
        let mut now = Instant::ZERO + Duration::from_micros(500);
        let mut gone = Vec::new();
        for _ in 0..12 {
            assert_eq!(sender.ready(now, 1000), now);
            let Sent::Whole { at, .. } = sender.send(1000, None, now) else { panic!("sent in part") };
            gone.push(at);
            now = at;
        }
        let us = |us: u64| Instant::ZERO + Duration::from_micros(us);
        assert_eq!(gone[..9], (1..=9).map(|n| us(500 + n * 1000)).collect::<Vec<_>>());
        assert_eq!(gone[9..], [at(16), at(18), at(20)]);
    }

    /// One byte each millisecond, in steps of one millisecond: 1500 bytes take more steps than one call goes through.
    #[test]
    fn a_packet_across_many_steps_is_sent_in_parts() {
        let steps = (0..2000).map(|ms| (Duration::from_millis(ms), Rate::from_bps(8000))).collect();
        let capacity = Capacity::Steps(Steps::new(&scenario::Steps { steps, repeat: None }));
        let mut sender = Sender { capacity, outages: None, rng: Rng::stream(1, "sender", 0, "access") };
        let sent = sender.send(1500, None, Instant::ZERO);
        assert_eq!(sent, Sent::Part { left: 500, again: at(1000) });
        let sent = sender.send(500, None, at(1000));
        assert_eq!(sent, Sent::Whole { at: at(1500), delay: Duration::ZERO, lost: false });
    }

    /// A permanent attenuation of 100 dB: nothing is ever sent, but the call returns.
    #[test]
    fn an_endless_fade_blocks_the_packet_but_not_the_caller() {
        let fade = scenario::Fade {
            clear_sky: 14.0,
            median: 100.0,
            sigma: 0.001,
            correlation_time: Duration::from_secs(100),
            rain: 1.0,
            margin: 1.0,
            step: Duration::from_secs(1),
            region: None,
        };
        let carrier = scenario::Carrier {
            symbol_rate: 10_000_000,
            modcods: ModcodTable::DvbS2,
            modulation: Modulation::Fade(fade.clone()),
        };
        let streams = Streams::of(&fade, 1, "sender", "sender");
        let capacity = Capacity::Fade(Box::new(Fade::new(&carrier, &fade, streams)));
        let mut sender = Sender { capacity, outages: None, rng: Rng::stream(1, "sender", 0, "access") };
        assert_eq!(sender.send(1500, None, at(0)), Sent::Part { left: 1500, again: at(1_000_000) });
    }

    /// The bytes sent in a busy period are the integral of the rate, to a bit.
    #[test]
    fn the_bytes_sent_are_the_integral_of_the_capacity() {
        let mut rng = Rng::stream(5, "sender", 0, "steps");
        let mut from = Duration::ZERO;
        let mut steps = Vec::new();
        for i in 0..200 {
            steps.push((from, Rate::from_bps(if i % 7 == 3 { 0 } else { rng.below(5_000_000) + 1 })));
            from += Duration::from_nanos(1 + rng.below(100_000_000));
        }
        let list = scenario::Steps { steps, repeat: Some(from) };
        let capacity = Capacity::Steps(Steps::new(&list));
        let mut sender = Sender { capacity, outages: None, rng: rng.clone() };
        let (mut now, mut bytes) = (Instant::ZERO, 0u64);
        while now < Instant::ZERO + from.times(3) {
            let len = 1 + rng.below(1500) as u32;
            let Sent::Whole { at, .. } = sender.send(len, None, now) else { panic!("sent in part") };
            bytes += u64::from(len);
            now = at;
        }
        let mut integral = 0.0;
        let mut steps = Steps::new(&list);
        let mut at = Instant::ZERO;
        while at < now {
            let (rate, until) = steps.at(at);
            let until = until.map_or(now, |until| until.min(now));
            integral += rate.as_bps() as f64 * (until - at).as_secs_f64();
            at = until;
        }
        // The end of each packet is rounded up to a nanosecond.
        assert!((integral / 8.0 - bytes as f64).abs() < 5.0, "{integral} {bytes}");
    }
}
