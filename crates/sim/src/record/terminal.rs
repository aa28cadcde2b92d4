//! Terminals of gateways with several: what each was sent, and what each sent.

use bentpipe_gateway::{Interval, Intervals};
use bentpipe_scenario::{Gateway, Scenario, TerminalGroup, pool_path};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use crate::ids::{IdVec, TerminalId};

/// Maximum recorded queueing delay [ns], and the digits to which quantiles are exact: a few kB a terminal.
const MAX_DELAY: u64 = 1_000_000_000_000;
const LEAST_DELAY: u64 = 100_000;
const DIGITS: u8 = 2;

/// Loading times of the pages of a terminal's users.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageTimes {
    /// Number of pages.
    pub count: u64,
    /// Longest loading time.
    pub max: Duration,
    sum: Duration,
}

impl PageTimes {
    pub(super) fn add(&mut self, load: Duration) {
        self.count += 1;
        self.max = self.max.max(load);
        self.sum += load;
    }

    /// Mean loading time [s]; NaN without pages.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum.as_secs_f64() / self.count as f64
    }
}

/// A page of a user behind a terminal that ended during the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Time of its last byte, or of the failure of a connection.
    pub ended: Instant,
    /// Its class of traffic (an index of [`Results::classes`](crate::Results::classes)).
    pub class: u32,
    /// Its terminal (an index of [`Results::terminals`](crate::Results::terminals)).
    pub terminal: u32,
    /// Time from opening its first connection to its last byte; `None` if a connection failed.
    pub load_time: Option<Duration>,
}

/// Records of a terminal over the measurement.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// Its name: that of its group, with its number there if there are several.
    pub name: String,
    /// Name of its group.
    pub group: String,
    /// Names of the pools that it is in, the outermost first, divided by slashes; `None` if it is in none.
    pub pool: Option<String>,
    /// Weight of its plan.
    pub weight: u32,
    /// Packets sent to it over the satellite.
    pub sent_packets: u64,
    /// Bytes sent to it over the satellite.
    pub sent_bytes: u64,
    /// Packets of its flows that the gateway dropped.
    pub dropped_packets: u64,
    /// Time for which packets to it took the carrier.
    pub carrier_time: Duration,
    /// Payload that its users received [bytes].
    pub delivered_bytes: u64,
    /// Pages that its users loaded.
    pub pages: PageTimes,
    /// Queueing delays in the transmit queue [ns].
    delays: Option<Histogram<u32>>,
    /// Packets sent to it in each of the [`Intervals`].
    pub intervals: Vec<Interval>,
    /// Its return direction; `None` if it has no queues there.
    pub back: Option<Box<Back>>,
}

/// Records of the return direction of a terminal over the measurement.
#[derive(Clone, Debug)]
pub struct Back {
    /// Packets that it sent over the satellite.
    pub sent_packets: u64,
    /// Bytes that it sent over the satellite.
    pub sent_bytes: u64,
    /// Packets that it dropped.
    pub dropped_packets: u64,
    /// Payload that its users sent, as received [bytes].
    pub delivered_bytes: u64,
    /// Time for which its packets took a return carrier; zero if it has a separate return link.
    pub carrier_time: Duration,
    /// Queueing delays in its transmit queue [ns].
    delays: Option<Histogram<u32>>,
    /// Packets that it sent in each of the [`Intervals`].
    pub intervals: Vec<Interval>,
}

impl Back {
    fn new(intervals: Intervals) -> Self {
        Self {
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            delivered_bytes: 0,
            carrier_time: Duration::ZERO,
            delays: delays(),
            intervals: vec![Interval::default(); intervals.count()],
        }
    }

    /// As [`Terminal::queue_delay`], in its own transmit queue.
    #[must_use]
    pub fn queue_delay(&self) -> [f64; 4] {
        summary(self.delays.as_ref(), &self.intervals)
    }
}

impl Terminal {
    fn new(name: String, gateway: &Gateway, group: &TerminalGroup, intervals: Intervals) -> Self {
        Self {
            name,
            group: group.name.clone(),
            pool: group.pool.map(|pool| pool_path(&gateway.pools, pool)),
            weight: group.plan.map_or(1, |plan| plan.weight),
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            carrier_time: Duration::ZERO,
            delivered_bytes: 0,
            pages: PageTimes::default(),
            delays: delays(),
            intervals: vec![Interval::default(); intervals.count()],
            back: gateway.back.as_ref().map(|_| Box::new(Back::new(intervals))),
        }
    }

    /// Payload that its users received, or sent if `is_upload` [bytes].
    pub(super) fn delivered(&mut self, is_upload: bool) -> &mut u64 {
        match self.back.as_mut().filter(|_| is_upload) {
            Some(back) => &mut back.delivered_bytes,
            None => &mut self.delivered_bytes,
        }
    }

    /// It sends a packet over the satellite in an interval.
    pub(super) fn sent_back(&mut self, bytes: u32, delay: Duration, interval: usize) {
        if let Some(back) = &mut self.back {
            if let Some(interval) = back.intervals.get_mut(interval) {
                interval.add(bytes, delay, Duration::ZERO);
            }
            back.sent_packets += 1;
            back.sent_bytes += u64::from(bytes);
            if let Some(delays) = &mut back.delays {
                delays.saturating_record(delay.as_nanos());
            }
        }
    }

    /// A packet of its flows is dropped, by its own queues if `is_back`.
    pub(super) fn drop_packet(&mut self, is_back: bool) {
        match self.back.as_mut().filter(|_| is_back) {
            Some(back) => back.dropped_packets += 1,
            None => self.dropped_packets += 1,
        }
    }

    /// A packet to it takes the carrier in an interval.
    pub(super) fn sent(&mut self, bytes: u32, delay: Duration, carrier_time: Duration, interval: usize) {
        if let Some(interval) = self.intervals.get_mut(interval) {
            interval.add(bytes, delay, carrier_time);
        }
        self.sent_packets += 1;
        self.sent_bytes += u64::from(bytes);
        self.carrier_time += carrier_time;
        if let Some(delays) = &mut self.delays {
            delays.saturating_record(delay.as_nanos());
        }
    }

    /// Queueing delay in the transmit queue [s]: mean, percentiles 50, 95 and 99; NaN without packets.
    #[must_use]
    pub fn queue_delay(&self) -> [f64; 4] {
        summary(self.delays.as_ref(), &self.intervals)
    }
}

/// An empty distribution of queueing delays.
fn delays() -> Option<Histogram<u32>> {
    Histogram::new_with_bounds(LEAST_DELAY, MAX_DELAY, DIGITS).ok()
}

fn summary(delays: Option<&Histogram<u32>>, intervals: &[Interval]) -> [f64; 4] {
    let Some(delays) = delays.filter(|delays| !delays.is_empty()) else { return [f64::NAN; 4] };
    let percentile = |q: f64| delays.value_at_quantile(q) as f64 * 1e-9;
    let (sum, packets) = intervals
        .iter()
        .fold((0.0, 0), |(sum, packets), each| (sum + each.delay.as_secs_f64(), packets + each.packets));
    [sum / packets as f64, percentile(0.5), percentile(0.95), percentile(0.99)]
}

/// The terminals of a scenario; none if no gateway shares its carrier.
pub(super) fn terminals(scenario: &Scenario, intervals: Intervals) -> IdVec<TerminalId, Terminal> {
    if !scenario.gateways.iter().any(|gateway| gateway.shares_carrier) {
        return IdVec::default();
    }
    let groups = scenario
        .gateways
        .iter()
        .flat_map(|gateway| gateway.terminals.iter().map(move |group| (gateway, group)));
    let members = groups.flat_map(|(gateway, group)| {
        (0..group.count).map(move |member| {
            let name = match group.count {
                1 => group.name.clone(),
                _ => format!("{}.{member}", group.name),
            };
            Terminal::new(name, gateway, group, intervals)
        })
    });
    members.collect()
}
