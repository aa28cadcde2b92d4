//! Counters over the measurement, behind the metrics.

use std::borrow::Cow;

/// Packets on the PEP links since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PepLinkCounters {
    /// Data packets in both directions, retransmissions included.
    pub sent: u64,
    /// Retransmitted data packets.
    pub retransmitted: u64,
    /// Acknowledgements.
    pub acks: u64,
}

impl crate::Results {
    /// Counters of the run by name, from which metrics are computed; NaN where nothing was measured. Those of a class are
    /// named `CLASS.COUNTER`; times in seconds.
    ///
    /// A counter added here, or to [`bentpipe_gateway::Summary::counters`], reaches Python and the files of a run.
    #[must_use]
    pub fn counters(&self) -> Vec<(Cow<'static, str>, f64)> {
        let mut counters: Vec<_> =
            self.summary.counters().into_iter().map(|(name, value)| (name.into(), value)).collect();
        let of_run = [
            ("space_packets", self.pep_link.sent as f64),
            ("space_retransmissions", self.pep_link.retransmitted as f64),
            ("space_acks", self.pep_link.acks as f64),
            ("events", self.events as f64),
            ("measured_seconds", (self.end - self.begin).as_secs_f64()),
            ("simulated_seconds", self.end.as_secs_f64()),
        ];
        counters.extend(of_run.map(|(name, value)| (name.into(), value)));
        for class in &self.classes {
            let of_class = class
                .counters()
                .into_iter()
                .map(|(name, value)| (format!("{}.{name}", class.name).into(), value));
            counters.extend(of_class);
        }
        counters
    }
}
