//! Measurement of a queue or a gateway: counters, delays and drop runs, as simulations and live runs report them.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;

use bentpipe_queue::{Counters, Queue};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use crate::{Gateway, GatewayQueue};

/// Queueing delays above this are recorded as this [ns].
const MAX_DELAY: u64 = 1_000_000_000_000;

/// Counters of a queue or a gateway at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Counters of the queue whose AQM decides.
    counters: Counters,
    /// Packets dropped at the mark point by the AQM, and for lack of room.
    aqm_drops: u64,
    overflow_drops: u64,
    /// Packets dropped at the gateway's other queue.
    drops_elsewhere: u64,
    receive: QueueCounters,
    transmit: QueueCounters,
    /// Packets and bytes that left the transmit queue.
    sent_packets: u64,
    sent_bytes: u64,
    /// Integral over time of the transmit queue [packet s].
    packet_seconds: f64,
    /// Bytes that arrived at the gateway.
    arrived_bytes: u64,
    /// Integral of the regulator's rate over time [bits]; 0 without one.
    capacity: f64,
}

/// Packets at one of a gateway's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets that arrived at the queue.
    pub arrived: u64,
    /// Packets dropped on arrival or in the queue, for whatever reason.
    pub dropped: u64,
}

impl QueueCounters {
    /// Counters of a queue at which `arrived` packets arrived, and its AQM, if it decides there, dropped `on_arrival`.
    fn new(queue: &Queue, arrived: u64, on_arrival: u64) -> Self {
        let counters = queue.counters();
        Self { arrived, dropped: on_arrival + counters.overflowed + counters.dropped_in_queue }
    }

    fn since(self, begin: Self) -> Self {
        Self { arrived: self.arrived - begin.arrived, dropped: self.dropped - begin.dropped }
    }
}

impl Snapshot {
    /// Counters of a queue without a gateway.
    #[must_use]
    pub fn of_queue(queue: &Queue, now: Instant) -> Self {
        let counters = *queue.counters();
        Self {
            counters,
            aqm_drops: counters.dropped_on_arrival + counters.dropped_in_queue,
            overflow_drops: counters.overflowed,
            drops_elsewhere: 0,
            receive: QueueCounters::default(),
            transmit: QueueCounters::new(queue, counters.offered, counters.dropped_on_arrival),
            sent_packets: counters.sent,
            sent_bytes: queue.state().sent_bytes,
            packet_seconds: queue.packet_seconds(now),
            arrived_bytes: 0,
            capacity: 0.0,
        }
    }

    /// Counters of a gateway.
    #[must_use]
    pub fn of_gateway(gateway: &Gateway, now: Instant) -> Self {
        let (receive, transmit) = (gateway.receive_queue().counters(), gateway.transmit_queue().counters());
        let (at_mark, other) = match gateway.mark_point() {
            GatewayQueue::Receive => (receive, transmit),
            GatewayQueue::Transmit => (transmit, receive),
        };
        let watched = *gateway.watched_queue().counters();
        let (transmit_arrived, early_receive_drops, early_transmit_drops) = match gateway.mark_point() {
            GatewayQueue::Receive => (transmit.enqueued, watched.dropped_on_arrival, 0),
            GatewayQueue::Transmit => (watched.offered, 0, watched.dropped_on_arrival),
        };
        Self {
            counters: watched,
            aqm_drops: watched.dropped_on_arrival + at_mark.dropped_in_queue,
            overflow_drops: at_mark.overflowed,
            drops_elsewhere: other.overflowed + other.dropped_in_queue,
            receive: QueueCounters::new(
                gateway.receive_queue(),
                gateway.arrived_packets(),
                early_receive_drops,
            ),
            transmit: QueueCounters::new(gateway.transmit_queue(), transmit_arrived, early_transmit_drops),
            arrived_bytes: gateway.arrived_bytes(),
            capacity: gateway.regulator().map_or(0.0, |regulator| regulator.capacity_until(now)),
            ..Self::of_queue(gateway.transmit_queue(), now)
        }
    }
}

impl Snapshot {
    /// Packets that have arrived, left, and been dropped.
    #[must_use]
    pub fn passed(&self) -> [u64; 3] {
        let arrived = self.counters.offered + self.receive.arrived + self.transmit.arrived;
        [arrived, self.sent_packets, self.aqm_drops + self.overflow_drops + self.drops_elsewhere]
    }
}

impl Sum for Snapshot {
    /// The counters of several gateways together.
    fn sum<I: Iterator<Item = Self>>(snapshots: I) -> Self {
        let mut all = Self::default();
        for snapshot in snapshots {
            all.counters += snapshot.counters;
            all.aqm_drops += snapshot.aqm_drops;
            all.overflow_drops += snapshot.overflow_drops;
            all.drops_elsewhere += snapshot.drops_elsewhere;
            all.receive += snapshot.receive;
            all.transmit += snapshot.transmit;
            all.sent_packets += snapshot.sent_packets;
            all.sent_bytes += snapshot.sent_bytes;
            all.packet_seconds += snapshot.packet_seconds;
            all.arrived_bytes += snapshot.arrived_bytes;
            all.capacity += snapshot.capacity;
        }
        all
    }
}

impl AddAssign for QueueCounters {
    fn add_assign(&mut self, other: Self) {
        self.arrived += other.arrived;
        self.dropped += other.dropped;
    }
}

/// Means and rates between two samples; NaN without data.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Rate offered to the AQM [bit/s].
    pub offered: f64,
    /// Rate that arrived at the gateway [bit/s].
    pub arrived: f64,
    /// Rate sent over the link [bit/s].
    pub sent: f64,
    /// Mean queueing delay in the transmit queue [s].
    pub queue_delay: f64,
    /// Probability of being marked, on arrival at the mark point or in the queue.
    pub mark_probability: f64,
    /// Mean time from the receive queue to the transmit queue [s].
    pub transit_time: f64,
}

/// Counters and delays over the measurement.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Packets offered at the mark point.
    pub offered_packets: u64,
    /// Bytes offered at the mark point.
    pub offered_bytes: u64,
    /// Packets with which the AQM signalled congestion.
    pub marked_packets: u64,
    /// Those of them that were in the queue.
    pub marked_in_queue: u64,
    /// Packets that left the queue that the AQM watches: sent, or dropped there by a signal.
    pub left_queue: u64,
    /// Packets dropped at the mark point by the AQM.
    pub aqm_drops: u64,
    /// Packets dropped at the mark point for lack of room.
    pub overflow_drops: u64,
    /// Packets dropped at the gateway's other queue.
    pub drops_elsewhere: u64,
    /// Packets at the receive queue; none if the subject is a link's queue.
    pub receive: QueueCounters,
    /// Packets at the transmit queue, or at the link's queue.
    pub transmit: QueueCounters,
    /// Packets sent over the link.
    pub sent_packets: u64,
    /// Bytes sent over the link.
    pub sent_bytes: u64,
    /// Share used of what a regulator could release, of a carrier's time, or of a link's capacity that varies; NaN elsewhere.
    pub used_share: f64,
    /// Mean backlog over time [packets].
    pub queue_time_average: f64,
    /// Queueing delay of packets that left [s]: mean, percentiles 50, 95 and 99, maximum.
    pub queue_delay: [f64; 5],
    /// Mean difference between the queueing delays of successive packets (RFC 3393) [s].
    pub jitter: f64,
}

impl Summary {
    /// Counters by name, from which metrics are computed; times in seconds.
    ///
    /// A counter added here reaches the results of simulated and live runs.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, f64); 23] {
        let [mean, p50, p95, p99, max] = self.queue_delay;
        [
            ("offered_packets", self.offered_packets as f64),
            ("offered_bytes", self.offered_bytes as f64),
            ("dropped_packets", (self.aqm_drops + self.overflow_drops) as f64),
            ("aqm_drops", self.aqm_drops as f64),
            ("overflow_drops", self.overflow_drops as f64),
            ("drops_elsewhere", self.drops_elsewhere as f64),
            ("receive_packets", self.receive.arrived as f64),
            ("receive_drops", self.receive.dropped as f64),
            ("transmit_packets", self.transmit.arrived as f64),
            ("transmit_drops", self.transmit.dropped as f64),
            ("marked_packets", self.marked_packets as f64),
            ("marked_in_queue", self.marked_in_queue as f64),
            ("left_queue", self.left_queue as f64),
            ("sent_packets", self.sent_packets as f64),
            ("sent_bytes", self.sent_bytes as f64),
            ("used_share", self.used_share),
            ("queue_time_average", self.queue_time_average),
            ("queue_delay_mean", mean),
            ("queue_delay_p50", p50),
            ("queue_delay_p95", p95),
            ("queue_delay_p99", p99),
            ("queue_delay_max", max),
            ("jitter", self.jitter),
        ]
    }
}

/// Sum and number of times.
#[derive(Clone, Copy, Debug, Default)]
struct MeanTime {
    sum: u64,
    count: u64,
}

impl MeanTime {
    #[inline]
    fn add(&mut self, ns: u64) {
        self.sum += ns;
        self.count += 1;
    }

    /// The mean [s]; NaN of nothing.
    fn get(self) -> f64 {
        self.sum as f64 * 1e-9 / self.count as f64
    }
}

/// Distribution of queueing delays, and the differences between successive ones.
#[derive(Clone, Debug)]
struct Delays {
    histogram: Histogram<u64>,
    jitter: MeanTime,
    last: Option<u64>,
}

impl Delays {
    fn new() -> Option<Self> {
        let histogram = Histogram::new_with_max(MAX_DELAY, 3).ok()?;
        Some(Self { histogram, jitter: MeanTime::default(), last: None })
    }

    #[inline]
    fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        if let Some(last) = self.last.replace(ns) {
            self.jitter.add(last.abs_diff(ns));
        }
    }

    /// Percentiles 50, 95 and 99, and the maximum [s]; NaN without delays.
    fn summary(&self) -> [f64; 4] {
        let histogram = &self.histogram;
        if histogram.is_empty() {
            return [f64::NAN; 4];
        }
        let percentile = |q: f64| histogram.value_at_quantile(q) as f64 * 1e-9;
        [percentile(0.5), percentile(0.95), percentile(0.99), histogram.max() as f64 * 1e-9]
    }
}

/// Runs of consecutive drops.
#[derive(Clone, Debug, Default)]
struct DropRuns {
    /// Number of finished runs by length.
    counts: BTreeMap<u32, u64>,
    length: u32,
    last: u64,
}

impl DropRuns {
    fn add(&mut self, arrival: u64) {
        if arrival == self.last + 1 {
            self.length += 1;
        } else {
            self.close();
            self.length = 1;
        }
        self.last = arrival;
    }

    fn close(&mut self) {
        if self.length > 0 {
            *self.counts.entry(self.length).or_default() += 1;
        }
        self.length = 0;
    }
}

/// Measurement of one queue or gateway. The host calls it only during the measurement, after [`Meter::begin`].
#[derive(Clone, Debug, Default)]
pub struct Meter {
    begin: Snapshot,
    begin_at: Instant,
    last: Snapshot,
    last_at: Instant,
    /// Queueing delays since the last sample.
    queue_delay: MeanTime,
    /// Sum [ns] and number of the queueing delays before the last sample.
    sampled: (u128, u64),
    /// Times from the receive queue to the transmit queue since the last sample.
    transit_time: MeanTime,
    delays: Option<Delays>,
    runs: DropRuns,
}

impl Meter {
    /// A meter for a measurement that is scheduled to begin at `begin`. Without a summary, it keeps no distribution of delays.
    #[must_use]
    pub fn new(begin: Instant, has_summary: bool) -> Self {
        Self {
            begin_at: begin,
            last_at: begin,
            delays: has_summary.then(Delays::new).flatten(),
            ..Self::default()
        }
    }

    /// Begins the measurement.
    pub fn begin(&mut self, snapshot: Snapshot, now: Instant) {
        (self.begin, self.begin_at) = (snapshot, now);
        (self.last, self.last_at) = (snapshot, now);
    }

    /// Records the queueing delay of a packet that leaves the transmit queue.
    #[inline]
    pub fn left(&mut self, delay: Duration) {
        let ns = delay.as_nanos();
        self.queue_delay.add(ns);
        if let Some(delays) = &mut self.delays {
            delays.add(ns);
        }
    }

    /// Records the time of a packet from the receive queue to the transmit queue.
    #[inline]
    pub fn passed(&mut self, transit: Duration) {
        self.transit_time.add(transit.as_nanos());
    }

    /// Records a drop at the mark point. `number` is that of the packet among all arrivals there; returns its number among
    /// the arrivals since the measurement began, or `None` if it arrived before.
    pub fn dropped(&mut self, number: u64) -> Option<u64> {
        let arrival = number.checked_sub(self.begin.counters.offered)?;
        self.runs.add(arrival);
        Some(arrival)
    }

    /// Means and rates since the last sample, or since the measurement began.
    pub fn sample(&mut self, snapshot: Snapshot, now: Instant) -> Sample {
        let last = std::mem::replace(&mut self.last, snapshot);
        let seconds = (now - std::mem::replace(&mut self.last_at, now)).as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
        self.sampled = self.all_delays();
        Sample {
            offered: rate(snapshot.counters.offered_bytes - last.counters.offered_bytes),
            arrived: rate(snapshot.arrived_bytes - last.arrived_bytes),
            sent: rate(snapshot.sent_bytes - last.sent_bytes),
            queue_delay: std::mem::take(&mut self.queue_delay).get(),
            mark_probability: marked_share(&snapshot.counters, &last.counters),
            transit_time: std::mem::take(&mut self.transit_time).get(),
        }
    }

    /// Snapshot and time of the last sample.
    #[must_use]
    pub fn last(&self) -> (Snapshot, Instant) {
        (self.last, self.last_at)
    }

    /// Start of the measurement.
    #[must_use]
    pub fn begin_at(&self) -> Instant {
        self.begin_at
    }

    /// Summary of the measurement up to a snapshot; `None` for a meter without.
    #[must_use]
    pub fn summary(&self, end: &Snapshot, now: Instant) -> Option<Summary> {
        let (begin, delays) = (&self.begin, self.delays.as_ref()?);
        let (sum, count) = self.all_delays();
        let [p50, p95, p99, max] = delays.summary();
        let seconds = (now - self.begin_at).as_secs_f64();
        Some(Summary {
            offered_packets: end.counters.offered - begin.counters.offered,
            offered_bytes: end.counters.offered_bytes - begin.counters.offered_bytes,
            marked_packets: end.counters.marked - begin.counters.marked,
            marked_in_queue: end.counters.marked_in_queue - begin.counters.marked_in_queue,
            left_queue: left_queue(&end.counters) - left_queue(&begin.counters),
            aqm_drops: end.aqm_drops - begin.aqm_drops,
            overflow_drops: end.overflow_drops - begin.overflow_drops,
            drops_elsewhere: end.drops_elsewhere - begin.drops_elsewhere,
            receive: end.receive.since(begin.receive),
            transmit: end.transmit.since(begin.transmit),
            sent_packets: end.sent_packets - begin.sent_packets,
            sent_bytes: end.sent_bytes - begin.sent_bytes,
            used_share: if end.capacity > begin.capacity {
                8.0 * (end.sent_bytes - begin.sent_bytes) as f64 / (end.capacity - begin.capacity)
            } else {
                f64::NAN
            },
            queue_time_average: (end.packet_seconds - begin.packet_seconds) / seconds,
            queue_delay: [sum as f64 * 1e-9 / count as f64, p50, p95, p99, max],
            jitter: delays.jitter.get(),
        })
    }

    /// Sum [ns] and number of the queueing delays of the measurement.
    fn all_delays(&self) -> (u128, u64) {
        let (sum, count) = self.sampled;
        (sum + u128::from(self.queue_delay.sum), count + self.queue_delay.count)
    }

    /// Lengths of runs of consecutive drops at the mark point, and the number of runs of each length.
    pub fn drop_runs(&self) -> impl Iterator<Item = (u32, u64)> + use<> {
        let mut runs = self.runs.clone();
        runs.close();
        runs.counts.into_iter()
    }
}

/// Probability of being marked between two times, NaN without packets: 1 − (1 − a)(1 − q), where a is the share of arrivals
/// marked at the mark point, and q the share of packets leaving the queue, sent or dropped, marked there.
fn marked_share(end: &Counters, begin: &Counters) -> f64 {
    let offered = end.offered - begin.offered;
    let in_queue = end.marked_in_queue - begin.marked_in_queue;
    let on_arrival = (end.marked - begin.marked - in_queue) as f64 / offered as f64;
    if in_queue == 0 {
        return on_arrival;
    }
    let left = left_queue(end) - left_queue(begin);
    1.0 - (1.0 - if offered == 0 { 0.0 } else { on_arrival }) * (1.0 - in_queue as f64 / left as f64)
}

/// Packets that left the queue: sent, or dropped in it by a signal.
fn left_queue(counters: &Counters) -> u64 {
    counters.sent + counters.dropped_in_queue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(delays: impl IntoIterator<Item = u64>) -> Summary {
        let mut meter = Meter::new(Instant::ZERO, true);
        delays.into_iter().for_each(|ns| meter.left(Duration::from_nanos(ns)));
        meter.summary(&Snapshot::default(), Instant::ZERO).unwrap()
    }

    #[test]
    fn probability_of_a_mark_joins_the_mark_point_and_the_queue() {
        let counters = |offered, marked, marked_in_queue, sent, dropped_in_queue| Counters {
            offered,
            marked,
            marked_in_queue,
            sent,
            dropped_in_queue,
            ..Counters::default()
        };
        let begin = counters(100, 7, 2, 80, 2);
        // One of 10 arrivals; 3 of 6 packets that left, of which the queue dropped 2 and marked 1.
        assert!((marked_share(&counters(110, 11, 5, 84, 4), &begin) - (1.0 - 0.9 * 0.5)).abs() < 1e-12);
        // Packets leave while none arrives.
        assert!((marked_share(&counters(100, 9, 4, 82, 4), &begin) - 0.5).abs() < 1e-12);
        assert!((marked_share(&counters(110, 8, 2, 80, 2), &begin) - 0.1).abs() < 1e-12);
        assert!(marked_share(&begin, &begin).is_nan());
    }

    /// Delays of 1 to 100 ms.
    #[test]
    fn quantiles_are_exact_to_a_thousandth() {
        let expected = [0.0505, 0.050, 0.095, 0.099, 0.100];
        for (found, expected) in of((1..=100).map(|ms| ms * 1_000_000)).queue_delay.into_iter().zip(expected)
        {
            assert!((found / expected - 1.0).abs() < 0.001, "{found} {expected}");
        }
        for ns in [0, 1, 1023, 1024, 1025, 2047, 2048, 1_000_000, 123_456_789, MAX_DELAY] {
            let exact = ns as f64 * 1e-9;
            for found in of([ns]).queue_delay {
                assert!((found - exact).abs() <= 1e-9 + exact / 1000.0, "{found} {exact}");
            }
        }
        assert!(of([]).queue_delay.iter().all(|value| value.is_nan()));
    }

    /// A histogram has 123,456,789 ns in a bucket of 65,536 ns. Delays before and after a sample count.
    #[test]
    fn mean_delay_is_exact() {
        let mut meter = Meter::new(Instant::ZERO, true);
        meter.left(Duration::from_nanos(123_456_789));
        meter.sample(Snapshot::default(), Instant::ZERO + Duration::from_millis(1));
        meter.left(Duration::from_nanos(1));
        let found = meter.summary(&Snapshot::default(), Instant::ZERO).unwrap().queue_delay[0];
        assert!((found - 0.061_728_395).abs() < 1e-15, "{found}");
    }

    #[test]
    fn jitter_is_the_mean_difference_of_successive_delays() {
        assert!((of([1_000_000, 3_000_000, 2_000_000]).jitter - 1.5e-3).abs() < 1e-15);
        assert!(of([1]).jitter.is_nan());
    }

    #[test]
    fn consecutive_drops_form_runs() {
        let mut meter = Meter::new(Instant::ZERO, false);
        meter.begin.counters.offered = 10;
        assert_eq!(meter.dropped(9), None);
        let arrivals = [10, 11, 12, 14, 16, 17].map(|number| meter.dropped(number));
        assert_eq!(arrivals, [0, 1, 2, 4, 6, 7].map(Some));
        assert_eq!(meter.drop_runs().collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 1)]);
    }

    /// A snapshot whose counters are different multiples of `k`.
    fn multiples(k: u64) -> Snapshot {
        Snapshot {
            counters: Counters {
                offered: k,
                offered_bytes: 2 * k,
                admitted: 3 * k,
                admitted_bytes: 4 * k,
                marked: 6 * k,
                marked_in_queue: 5 * k,
                dropped_on_arrival: 7 * k,
                enqueued: 8 * k,
                overflowed: 9 * k,
                dropped_in_queue: 10 * k,
                sent: 11 * k,
            },
            aqm_drops: 12 * k,
            overflow_drops: 13 * k,
            drops_elsewhere: 14 * k,
            receive: QueueCounters { arrived: 15 * k, dropped: 16 * k },
            transmit: QueueCounters { arrived: 17 * k, dropped: 18 * k },
            sent_packets: 19 * k,
            sent_bytes: 20 * k,
            packet_seconds: 21.0 * k as f64,
            arrived_bytes: 22 * k,
            capacity: 23.0 * k as f64,
        }
    }

    #[test]
    fn counters_of_gateways_add_up() {
        let sum: Snapshot = [multiples(1), multiples(10)].into_iter().sum();
        assert_eq!(format!("{sum:?}"), format!("{:?}", multiples(11)));
        // Arrived at the mark point and at both queues; sent; dropped.
        assert_eq!(sum.passed(), [(1 + 15 + 17) * 11, 19 * 11, (12 + 13 + 14) * 11]);
    }

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    /// Each counter grows by nine times its multiple in 3 s.
    #[test]
    fn a_summary_counts_from_the_begin_of_the_measurement() {
        let mut meter = Meter::new(at(1), true);
        assert_eq!((meter.begin_at(), meter.last().1), (at(1), at(1)));
        meter.begin(multiples(1), at(2));
        for ms in [1, 3, 2] {
            meter.left(Duration::from_millis(ms));
        }
        let summary = meter.summary(&multiples(10), at(5)).unwrap();
        let found: Vec<_> = summary.counters().into_iter().take(17).collect();
        let expected = [
            ("offered_packets", 9.0),
            ("offered_bytes", 18.0),
            ("dropped_packets", 225.0),
            ("aqm_drops", 108.0),
            ("overflow_drops", 117.0),
            ("drops_elsewhere", 126.0),
            ("receive_packets", 135.0),
            ("receive_drops", 144.0),
            ("transmit_packets", 153.0),
            ("transmit_drops", 162.0),
            ("marked_packets", 54.0),
            ("marked_in_queue", 45.0),
            ("left_queue", 189.0),
            ("sent_packets", 171.0),
            ("sent_bytes", 180.0),
            // 1440 of 207 bits.
            ("used_share", 1440.0 / 207.0),
            ("queue_time_average", 63.0),
        ];
        assert_eq!(found, expected);
        // Differences of 2 and 1 ms.
        assert!((summary.jitter - 0.0015).abs() < 1e-12);
        assert!(Meter::new(at(1), false).summary(&multiples(10), at(5)).is_none());
    }

    #[test]
    fn a_sample_covers_the_time_since_the_last_one() {
        let mut meter = Meter::new(at(1), false);
        meter.begin(multiples(1), at(2));
        for ms in [1, 3] {
            meter.left(Duration::from_millis(ms));
            meter.passed(Duration::from_millis(10 * ms));
        }
        let sample = meter.sample(multiples(10), at(5));
        assert_eq!([sample.offered, sample.arrived, sample.sent], [48.0, 528.0, 480.0]);
        assert!((sample.queue_delay - 0.002).abs() < 1e-12 && (sample.transit_time - 0.02).abs() < 1e-12);
        let (last, time) = meter.last();
        assert_eq!((last.sent_bytes, time), (200, at(5)));
        let sample = meter.sample(multiples(20), at(7));
        assert_eq!([sample.offered, sample.arrived, sample.sent], [80.0, 880.0, 800.0]);
        assert!(sample.queue_delay.is_nan() && sample.transit_time.is_nan());
    }
}
