//! Records of data units from application to application, for each class of traffic.
//!
//! A unit is what the sending application hands over at once: a packet of a packet source, whatever its transport. The
//! application of a transfer writes whenever the transport can send, so its units are the segments sent for the first
//! time. A unit counts as sent at that time, and as received when the receiving application has read its last byte. On
//! the way a PEP may split the connection, and segments may be retransmitted and cut in other ways: positions in the byte
//! stream identify the units of a stream.

use std::borrow::Cow;
use std::sync::Arc;

use bentpipe_scenario::{Scenario, Traffic};
use bentpipe_traffic::voice::Voice;
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use super::bottleneck::Bottlenecks;
use super::probe::{ProbeSteps, Probes};
use crate::ids::{ClassId, Id, IdVec, TrafficId};

/// Times above this are recorded as this, and those below the least as equal [ns].
const MAX_TIME: u64 = 1_000_000_000_000;
const LEAST_TIME: u64 = 1_000;
/// Bits of a time below the resolution of the least time, and bits that a bucket's times have in common.
const UNIT_BITS: u32 = LEAST_TIME.ilog2();
const COMMON_BITS: u32 = 11;

/// Distribution of times, exact to a thousandth or a microsecond.
///
/// It has the buckets of [`Histogram`], whose recording took half of the instructions of a received unit.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// Times by bucket.
    counts: Vec<u32>,
    /// Sum of the times [ns].
    sum: u64,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; Self::bucket(MAX_TIME) + 1], sum: 0 }
    }

    /// Bucket of a time: its leading bits, after the number of bits that follow them.
    #[inline]
    fn bucket(time: u64) -> usize {
        let units = time.min(MAX_TIME) >> UNIT_BITS;
        let shift = (units | 1).ilog2().saturating_sub(COMMON_BITS - 1);
        ((u64::from(shift) << (COMMON_BITS - 1)) + (units >> shift)) as usize
    }

    /// Shortest time of a bucket [ns].
    fn shortest(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        let shift = (bucket >> (COMMON_BITS - 1)).saturating_sub(1);
        (bucket - (shift << (COMMON_BITS - 1))) << shift << UNIT_BITS
    }

    #[inline]
    pub(super) fn add(&mut self, time: Duration) {
        self.sum += time.as_nanos();
        self.counts[Self::bucket(time.as_nanos())] += 1;
    }

    /// Mean [s]; NaN without any.
    fn mean(&self) -> f64 {
        self.sum as f64 * 1e-9 / self.count() as f64
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    fn histogram(&self) -> Option<Histogram<u64>> {
        let mut histogram = Histogram::new_with_bounds(LEAST_TIME, MAX_TIME, 3).ok()?;
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(Self::shortest(bucket), u64::from(count));
        }
        Some(histogram)
    }

    /// Mean of the shortest `share` of them [s]; NaN without any.
    pub(super) fn trimmed_mean(&self, share: f64) -> f64 {
        let most = (share * self.count() as f64).ceil();
        let (mut sum, mut left) = (0.0, most);
        for value in self.histogram().iter().flat_map(Histogram::iter_recorded) {
            let count = (value.count_at_value() as f64).min(left);
            sum += count * value.value_iterated_to() as f64;
            left -= count;
        }
        sum * 1e-9 / most
    }

    /// Number of those longer than `time`.
    fn count_above(&self, time: u64) -> u64 {
        self.histogram().map_or(0, |histogram| histogram.count_between(time + 1, MAX_TIME))
    }

    /// Quantile [s]; NaN without any.
    fn quantile(&self, share: f64) -> f64 {
        let histogram = self.histogram().filter(|histogram| !histogram.is_empty());
        histogram.map_or(f64::NAN, |histogram| histogram.value_at_quantile(share) as f64 * 1e-9)
    }
}

/// Times of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLoad {
    /// Opening of its first connection.
    pub opened: Instant,
    /// Arrival of the first byte of an object.
    pub first_byte: Option<Instant>,
    /// Arrival of the last byte of the objects that block rendering, if they are told apart.
    pub rendered: Option<Instant>,
    /// Arrival of the last byte, or its failure.
    pub closed: Instant,
}

/// Pages of a class that were loaded, or failed, during the measurement.
#[derive(Clone, Debug)]
struct Pages {
    load: Times,
    first_byte: Times,
    rendered: Times,
    failed: u64,
    /// Begin and end of the page that took longest.
    slowest: Option<(Instant, Instant)>,
}

/// Units of one class that were sent during the measurement and whose fate is known, and its pages.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Units received.
    pub received: u64,
    /// Units lost: dropped or lost datagrams, and units of streams that failed.
    pub lost: u64,
    /// Payload delivered since the run began [bytes].
    pub(crate) delivered: u64,
    /// Delays of the received units.
    delays: Times,
    /// Sum over the received units of their flow's jitter estimate [ns].
    jitter_sum: u64,
    /// `None` if the class has no pages.
    pages: Option<Box<Pages>>,
    /// One-way delay above which a packet is of no use to the application; `None` if any is of use.
    deadline: Option<Duration>,
    /// `None` if the class has no probes.
    probes: Option<Box<Probes>>,
    pub(super) bottlenecks: Bottlenecks,
}

impl Class {
    fn new(
        name: &str,
        has: impl Fn(&str) -> bool,
        deadline: Option<Duration>,
        links: &Arc<[String]>,
    ) -> Self {
        let pages = has("pages").then(|| Pages {
            load: Times::new(),
            first_byte: Times::new(),
            rendered: Times::new(),
            failed: 0,
            slowest: None,
        });
        Self {
            name: name.to_owned(),
            received: 0,
            lost: 0,
            delivered: 0,
            delays: Times::new(),
            jitter_sum: 0,
            pages: pages.map(Box::new),
            deadline,
            probes: has("probe").then(Probes::new).map(Box::new),
            bottlenecks: Bottlenecks::new(Arc::clone(links)),
        }
    }

    #[inline]
    pub(super) fn receive(&mut self, delay: Duration, jitter: u64) {
        self.received += 1;
        self.jitter_sum += jitter;
        self.delays.add(delay);
    }

    pub(super) fn finish_page(&mut self, completed: bool, page: &PageLoad) {
        let Some(pages) = &mut self.pages else { return };
        if completed {
            pages.load.add(page.closed - page.opened);
            if pages.slowest.is_none_or(|(opened, closed)| closed - opened < page.closed - page.opened) {
                pages.slowest = Some((page.opened, page.closed));
            }
            page.first_byte.into_iter().for_each(|at| pages.first_byte.add(at - page.opened));
            page.rendered.into_iter().for_each(|at| pages.rendered.add(at - page.opened));
        } else {
            pages.failed += 1;
        }
    }

    /// Begin and end of the page that took longest, so far.
    #[must_use]
    pub fn slowest_page(&self) -> Option<(Instant, Instant)> {
        self.pages.as_ref()?.slowest
    }

    pub(super) fn finish_probe(&mut self, steps: Option<ProbeSteps>) {
        if let Some(probes) = &mut self.probes {
            probes.add(steps);
        }
    }

    /// Counters by name; times [s] are NaN without data.
    ///
    /// `jitter` is the interarrival jitter (RFC 3550, section 6.4.1, J): mean over the units of their flow's estimate. A
    /// page's time begins with the opening of its first connection.
    #[must_use]
    pub fn counters(&self) -> Vec<(Cow<'static, str>, f64)> {
        let delays = &self.delays;
        let mut counters = vec![
            ("received_units", self.received as f64),
            ("lost_units", self.lost as f64),
            ("delay_mean", delays.mean()),
            ("delay_p50", delays.quantile(0.5)),
            ("delay_p95", delays.quantile(0.95)),
            ("delay_p99", delays.quantile(0.99)),
            ("jitter", self.jitter_sum as f64 * 1e-9 / self.received as f64),
        ];
        if let Some(pages) = &self.pages {
            counters.extend([
                ("pages", pages.load.count() as f64),
                ("pages_failed", pages.failed as f64),
                ("page_time_mean", pages.load.mean()),
                ("page_time_p50", pages.load.quantile(0.5)),
                ("page_time_p75", pages.load.quantile(0.75)),
                ("page_time_p95", pages.load.quantile(0.95)),
                ("first_byte_p50", pages.first_byte.quantile(0.5)),
                ("first_byte_p95", pages.first_byte.quantile(0.95)),
            ]);
            if pages.rendered.count() > 0 {
                counters.extend([
                    ("render_time_p50", pages.rendered.quantile(0.5)),
                    ("render_time_p75", pages.rendered.quantile(0.75)),
                ]);
            }
        }
        if let Some(deadline) = self.deadline {
            counters.push(("late_units", self.delays.count_above(deadline.as_nanos()) as f64));
        }
        counters.extend(self.probes.iter().flat_map(|probes| probes.counters(&self.delays)));
        let mut counters: Vec<_> = counters.into_iter().map(|(name, value)| (name.into(), value)).collect();
        counters.extend(self.bottlenecks.counters());
        counters
    }
}

/// The classes of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    pub(super) all: IdVec<ClassId, Class>,
    /// Class of each traffic entry.
    pub(super) of_traffic: IdVec<TrafficId, ClassId>,
    /// Voice of each traffic entry's calls; `None` if it carries none.
    pub(super) voice: IdVec<TrafficId, Option<Voice>>,
}

impl Classes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let names = scenario.classes();
        let traffic = &scenario.traffic;
        let has = |name: &str, kind: &str| traffic.iter().any(|t| t.class() == name && t.kind.name() == kind);
        // A class has at most one.
        let deadline = |name: &str| {
            let mut applications = traffic.iter().filter(|t| t.class() == name).filter_map(|t| t.application);
            applications.next().map(|(_, deadline)| deadline)
        };
        let links = scenario.links.iter().map(|link| link.name.clone()).collect();
        let class_of = |traffic: &Traffic| {
            let place = names.iter().position(|name| *name == traffic.class());
            ClassId::new(place.unwrap_or_default() as u32)
        };
        Self {
            all: names
                .iter()
                .map(|name| Class::new(name, |kind| has(name, kind), deadline(name), &links))
                .collect(),
            of_traffic: scenario.traffic.iter().map(class_of).collect(),
            voice: scenario.traffic.iter().map(|traffic| Voice::of(&traffic.kind)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times over the whole range, at and beside the ends of buckets.
    fn times() -> impl Iterator<Item = u64> {
        let powers = (0..39).map(|exponent| 1_u64 << exponent);
        powers.flat_map(|time| [time - 1, time, time + 1, time * 3 / 2, time + time / 1000]).chain([MAX_TIME])
    }

    #[test]
    fn buckets_are_those_of_the_histogram() {
        let mut histogram = Histogram::<u64>::new_with_bounds(LEAST_TIME, MAX_TIME, 3).unwrap();
        let mut recorded = Times::new();
        for time in times() {
            histogram.saturating_record(time);
            recorded.add(Duration::from_nanos(time));
            let shortest = Times::shortest(Times::bucket(time));
            assert_eq!(shortest, histogram.lowest_equivalent(time.min(MAX_TIME)), "{time} ns");
        }
        let found = recorded.histogram().unwrap();
        let counts = |histogram: &Histogram<u64>| {
            histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect::<Vec<_>>()
        };
        assert_eq!(counts(&found), counts(&histogram));
        assert_eq!(recorded.count(), histogram.len());
        assert_eq!(Times::bucket(u64::MAX), Times::bucket(MAX_TIME));
    }
}
