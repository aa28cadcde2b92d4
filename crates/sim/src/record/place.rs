//! Places where packets queue: what is sampled there, and what is counted over the measurement.

use bentpipe_gateway::{GatewayQueue, LIMIT_SERIES, SERIES};
use bentpipe_queue::{Counters, Queue};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use super::Summary;
use super::drops::Runs;
use crate::gateways::GatewayNode;
use crate::ids::{GatewayId, IdVec, LinkId};
use crate::network::Link;

/// Queueing delays above this are recorded as this [ns].
const LONGEST_DELAY: u64 = 1_000_000_000_000;

/// Series of a link's queue.
const LINK_SERIES: [&str; 6] = [
    "offered_load",
    "throughput",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
];

/// Series of a place whose capacity changes.
const CAPACITY: &str = "capacity";

/// A place with a queue, or the two queues of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Gateway(GatewayId),
    Link(LinkId),
}

/// Sums since the last sample.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    #[inline]
    fn add(&mut self, time: Duration) {
        self.sum += time.as_nanos();
        self.count += 1;
    }

    /// The mean [s], NaN of nothing; starts again.
    fn take(&mut self) -> f64 {
        let Self { sum, count } = std::mem::take(self);
        sum as f64 * 1e-9 / count as f64
    }
}

/// Records of a place.
pub(super) struct Place {
    kind: PlaceKind,
    /// Its names among [`crate::Results::places`]: ahead of the PEP and behind it; a link has one.
    pub(super) names: [u32; 2],
    /// Counters at the last sample, and when the measurement began.
    last: Snapshot,
    begin: Snapshot,
    /// Queueing delay of packets that left.
    delay: Mean,
    /// Time from the receive queue to the transmit queue.
    pep_delay: Mean,
    /// Its first series.
    first_series: usize,
    /// True if its capacity changes, and is a series.
    has_capacity: bool,
    pub(super) runs: Runs,
    /// Only of the subject.
    delays: Option<Delays>,
}

/// Queueing delays of the subject's packets.
struct Delays {
    histogram: Histogram<u64>,
    jitter: Mean,
    last: Option<Duration>,
}

/// Counters of a place at one time.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    /// Of the queue whose AQM decides.
    counters: Counters,
    /// Packets dropped at the mark point by the AQM, and for lack of room.
    aqm_drops: u64,
    overflow_drops: u64,
    /// Packets dropped at the other queue of the place.
    drops_elsewhere: u64,
    /// Of the transmit queue.
    sent: u64,
    sent_bytes: u64,
    packet_seconds: f64,
    arrived_bytes: u64,
}

/// The queues of a place.
struct Queues<'a> {
    /// The queue whose AQM decides.
    watched: &'a Queue,
    /// The queue at the mark point.
    at_mark: &'a Queue,
    /// The other queue of a gateway.
    other: Option<&'a Queue>,
    /// The transmit queue.
    transmit: &'a Queue,
    gateway: Option<GatewayState>,
}

/// State of a gateway beside its transmit queue.
struct GatewayState {
    arrived_bytes: u64,
    receive_queue: f64,
    pep_buffers: f64,
    /// Mean limit and number of closed windows; `None` unless marks cut windows.
    limits: Option<(f64, u32)>,
}

impl Queues<'_> {
    fn snapshot(&self, now: Instant) -> Snapshot {
        let (watched, at_mark) = (self.watched.counters(), self.at_mark.counters());
        Snapshot {
            counters: *watched,
            aqm_drops: watched.dropped_on_arrival + at_mark.dropped_in_queue,
            overflow_drops: at_mark.overflowed,
            drops_elsewhere: self
                .other
                .map_or(0, |q| q.counters().overflowed + q.counters().dropped_in_queue),
            sent: self.transmit.counters().sent,
            sent_bytes: self.transmit.state().sent_bytes,
            packet_seconds: self.transmit.packet_seconds(now),
            arrived_bytes: self.gateway.as_ref().map_or(0, |g| g.arrived_bytes),
        }
    }
}

impl PlaceKind {
    /// The queues of the place; `None` for a link without a queue.
    fn queues<'a>(
        self,
        links: &'a IdVec<LinkId, Link>,
        gateways: &'a IdVec<GatewayId, GatewayNode>,
    ) -> Option<Queues<'a>> {
        match self {
            Self::Link(link) => {
                let queue = links[link].engine.queue()?;
                let gateway = None;
                Some(Queues { watched: queue, at_mark: queue, other: None, transmit: queue, gateway })
            }
            Self::Gateway(id) => {
                let GatewayNode { gateway, buffers, .. } = &gateways[id];
                let (receive, transmit) = (gateway.receive_queue(), gateway.transmit_queue());
                let (at_mark, other) = match gateway.mark_point() {
                    GatewayQueue::Receive => (receive, transmit),
                    GatewayQueue::Transmit => (transmit, receive),
                };
                Some(Queues {
                    watched: gateway.watched_queue(),
                    at_mark,
                    other: Some(other),
                    transmit,
                    gateway: Some(GatewayState {
                        arrived_bytes: gateway.arrived_bytes(),
                        receive_queue: f64::from(receive.state().packets),
                        pep_buffers: buffers.occupied() as f64,
                        limits: buffers.limits(),
                    }),
                })
            }
        }
    }

    /// Names of its series, AQM and scheduler state included; `None` for a link without a queue.
    pub(super) fn series(
        self,
        links: &IdVec<LinkId, Link>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) -> Option<(Vec<String>, bool)> {
        let queues = self.queues(links, gateways)?;
        let (fixed, has_capacity, has_limits): (&[_], _, _) = match self {
            Self::Link(link) => (&LINK_SERIES, links[link].engine.first_update().is_some(), false),
            Self::Gateway(id) => {
                (&SERIES, gateways[id].follows.is_some(), gateways[id].buffers.has_control())
            }
        };
        let limits = LIMIT_SERIES.iter().filter(|_| has_limits);
        let names = fixed.iter().chain(has_capacity.then_some(&CAPACITY)).chain(limits);
        let mut names: Vec<_> = names.map(|name| (*name).to_owned()).collect();
        queues.watched.probe(&mut |whose, name, _| names.push(format!("{whose}.{name}")));
        Some((names, has_capacity))
    }
}

impl Place {
    pub(super) fn new(
        kind: PlaceKind,
        names: [u32; 2],
        first_series: usize,
        has_capacity: bool,
        is_subject: bool,
    ) -> Self {
        let histogram = is_subject.then(|| Histogram::new_with_max(LONGEST_DELAY, 3).ok()).flatten();
        Self {
            kind,
            names,
            last: Snapshot::default(),
            begin: Snapshot::default(),
            delay: Mean::default(),
            pep_delay: Mean::default(),
            first_series,
            has_capacity,
            runs: Runs::default(),
            delays: histogram.map(|histogram| Delays { histogram, jitter: Mean::default(), last: None }),
        }
    }

    /// Number of a packet among the arrivals at the mark point since the measurement began; `None` if it arrived before.
    pub(super) fn arrival_number(&self, number: u64) -> Option<u64> {
        number.checked_sub(self.begin.counters.offered)
    }

    /// Notes the queueing delay of a packet that left.
    #[inline]
    pub(super) fn left(&mut self, delay: Duration) {
        self.delay.add(delay);
        if let Some(delays) = &mut self.delays {
            delays.histogram.saturating_record(delay.as_nanos());
            if let Some(last) = delays.last.replace(delay) {
                delays.jitter.add(Duration::from_nanos(last.as_nanos().abs_diff(delay.as_nanos())));
            }
        }
    }

    /// Notes the time that a packet spent in the PEP.
    #[inline]
    pub(super) fn passed_pep(&mut self, delay: Duration) {
        self.pep_delay.add(delay);
    }

    /// Begins the measurement.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        links: &IdVec<LinkId, Link>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) {
        if let Some(queues) = self.kind.queues(links, gateways) {
            self.begin = queues.snapshot(now);
            self.last = self.begin;
        }
    }

    /// Takes a sample: `put` gets the number of a series and its value.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        interval: Duration,
        links: &IdVec<LinkId, Link>,
        gateways: &IdVec<GatewayId, GatewayNode>,
        mut put: impl FnMut(usize, f64),
    ) {
        let Some(queues) = self.kind.queues(links, gateways) else { return };
        let snapshot = queues.snapshot(now);
        let last = std::mem::replace(&mut self.last, snapshot);
        let seconds = interval.as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
        let mut series = self.first_series;
        let mut put = |value: f64| {
            put(series, value);
            series += 1;
        };
        let offered = snapshot.counters.offered - last.counters.offered;
        let marked = snapshot.counters.marked - last.counters.marked;
        // Without arrivals there is no share, though a scheduler may mark meanwhile.
        let marked = if offered == 0 { f64::NAN } else { marked as f64 / offered as f64 };
        let state = queues.transmit.state();
        put(rate(snapshot.counters.offered_bytes - last.counters.offered_bytes));
        if queues.gateway.is_some() {
            put(rate(snapshot.arrived_bytes - last.arrived_bytes));
        }
        put(rate(snapshot.sent_bytes - last.sent_bytes));
        if let Some(gateway) = &queues.gateway {
            put(gateway.receive_queue);
        }
        put(f64::from(state.packets));
        put(state.bytes as f64);
        put(self.delay.take());
        put(marked);
        let pep_delay = self.pep_delay.take();
        if let Some(gateway) = &queues.gateway {
            put(gateway.pep_buffers);
            put(pep_delay);
        }
        if self.has_capacity {
            put(state.capacity.as_bps() as f64);
        }
        if let Some((mean, closed)) = queues.gateway.as_ref().and_then(|gateway| gateway.limits) {
            put(mean);
            put(f64::from(closed));
        }
        queues.watched.probe(&mut |_, _, value| put(value));
    }

    /// Summary of the measurement from `begin` to `now`, if it is the subject.
    pub(super) fn summary(
        &self,
        begin: Instant,
        now: Instant,
        links: &IdVec<LinkId, Link>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) -> Option<Summary> {
        let end = self.kind.queues(links, gateways)?.snapshot(now);
        let (start, delays) = (&self.begin, self.delays.as_ref()?);
        let histogram = &delays.histogram;
        let percentile = |q: f64| histogram.value_at_quantile(q) as f64 * 1e-9;
        Some(Summary {
            offered_packets: end.counters.offered - start.counters.offered,
            offered_bytes: end.counters.offered_bytes - start.counters.offered_bytes,
            marked_packets: end.counters.marked - start.counters.marked,
            aqm_drops: end.aqm_drops - start.aqm_drops,
            overflow_drops: end.overflow_drops - start.overflow_drops,
            drops_elsewhere: end.drops_elsewhere - start.drops_elsewhere,
            sent_packets: end.sent - start.sent,
            sent_bytes: end.sent_bytes - start.sent_bytes,
            queue_time_average: (end.packet_seconds - start.packet_seconds) / (now - begin).as_secs_f64(),
            queue_delay: if histogram.is_empty() {
                [f64::NAN; 5]
            } else {
                let max = histogram.max() as f64 * 1e-9;
                [histogram.mean() * 1e-9, percentile(0.5), percentile(0.95), percentile(0.99), max]
            },
            jitter: { delays.jitter }.take(),
        })
    }
}
