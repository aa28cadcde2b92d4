//! Counters over the measurement, behind the metrics.

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
    /// Counters of the run by name, from which metrics are computed; NaN where nothing was measured.
    ///
    /// A counter added here, or to [`bentpipe_gateway::Summary::counters`], reaches Python and the files of a run.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        let mut counters = self.summary.counters().to_vec();
        counters.extend([
            ("space_packets", self.pep_link.sent as f64),
            ("space_retransmissions", self.pep_link.retransmitted as f64),
            ("space_acks", self.pep_link.acks as f64),
            ("events", self.events as f64),
            ("measured_seconds", (self.end - self.begin).as_secs_f64()),
            ("simulated_seconds", self.end.as_secs_f64()),
        ]);
        counters
    }
}
