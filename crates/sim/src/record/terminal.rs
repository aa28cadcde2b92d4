//! Terminals of gateways with several: what each was sent, and what each sent.

use bentpipe_scenario::Scenario;
use bentpipe_units::Duration;
use hdrhistogram::Histogram;

use crate::ids::{IdVec, TerminalId};

/// Greatest recorded queueing delay [ns], and the digits to which quantiles are exact: a few kB a terminal.
const MAX_DELAY: u64 = 1_000_000_000_000;
const LEAST_DELAY: u64 = 100_000;
const DIGITS: u8 = 2;

/// Records of a terminal over the measurement.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// Its name: that of its group, with its number there if there are several.
    pub name: String,
    /// Name of its group.
    pub group: String,
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
    /// Queueing delays in the transmit queue [ns].
    delays: Option<Histogram<u32>>,
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
}

impl Back {
    fn new() -> Self {
        Self {
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            delivered_bytes: 0,
            carrier_time: Duration::ZERO,
            delays: delays(),
        }
    }

    /// As [`Terminal::queue_delay`], in its own transmit queue.
    #[must_use]
    pub fn queue_delay(&self) -> [f64; 4] {
        summary(self.delays.as_ref())
    }
}

impl Terminal {
    fn new(name: String, group: String, has_back: bool) -> Self {
        Self {
            name,
            group,
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            carrier_time: Duration::ZERO,
            delivered_bytes: 0,
            delays: delays(),
            back: has_back.then(|| Box::new(Back::new())),
        }
    }

    /// It sends a packet over the satellite.
    pub(super) fn sent_back(&mut self, bytes: u32, delay: Duration) {
        if let Some(back) = &mut self.back {
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

    pub(super) fn sent(&mut self, bytes: u32, delay: Duration, carrier_time: Duration) {
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
        summary(self.delays.as_ref())
    }
}

/// An empty distribution of queueing delays.
fn delays() -> Option<Histogram<u32>> {
    Histogram::new_with_bounds(LEAST_DELAY, MAX_DELAY, DIGITS).ok()
}

fn summary(delays: Option<&Histogram<u32>>) -> [f64; 4] {
    let Some(delays) = delays.filter(|delays| !delays.is_empty()) else { return [f64::NAN; 4] };
    let percentile = |q: f64| delays.value_at_quantile(q) as f64 * 1e-9;
    [delays.mean() * 1e-9, percentile(0.5), percentile(0.95), percentile(0.99)]
}

/// The terminals of a scenario; none if each gateway has one.
pub(super) fn terminals(scenario: &Scenario) -> IdVec<TerminalId, Terminal> {
    if scenario.gateways.iter().all(|gateway| gateway.terminals.only().is_some()) {
        return IdVec::default();
    }
    let groups = scenario
        .gateways
        .iter()
        .flat_map(|gateway| gateway.terminals.iter().map(|group| (group, gateway.back.is_some())));
    let members = groups.flat_map(|(group, has_back)| {
        (0..group.count).map(move |member| match group.count {
            1 => Terminal::new(group.name.clone(), group.name.clone(), has_back),
            _ => Terminal::new(format!("{}.{member}", group.name), group.name.clone(), has_back),
        })
    });
    members.collect()
}
