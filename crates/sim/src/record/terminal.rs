//! Terminals of gateways with several: what each was sent.

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
}

impl Terminal {
    fn new(name: String, group: String) -> Self {
        Self {
            name,
            group,
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            carrier_time: Duration::ZERO,
            delivered_bytes: 0,
            delays: Histogram::new_with_bounds(LEAST_DELAY, MAX_DELAY, DIGITS).ok(),
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
        let Some(delays) = self.delays.as_ref().filter(|delays| !delays.is_empty()) else {
            return [f64::NAN; 4];
        };
        let percentile = |q: f64| delays.value_at_quantile(q) as f64 * 1e-9;
        [delays.mean() * 1e-9, percentile(0.5), percentile(0.95), percentile(0.99)]
    }
}

/// The terminals of a scenario; none if each gateway has one.
pub(super) fn terminals(scenario: &Scenario) -> IdVec<TerminalId, Terminal> {
    if scenario.gateways.iter().all(|gateway| gateway.terminals.only().is_some()) {
        return IdVec::default();
    }
    let groups = scenario.gateways.iter().flat_map(|gateway| gateway.terminals.iter());
    let members = groups.flat_map(|group| {
        (0..group.count).map(move |member| match group.count {
            1 => Terminal::new(group.name.clone(), group.name.clone()),
            _ => Terminal::new(format!("{}.{member}", group.name), group.name.clone()),
        })
    });
    members.collect()
}
