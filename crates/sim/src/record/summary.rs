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
    /// A counter added here reaches Python and the files of a run without further changes.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        let s = &self.summary;
        let [mean, p50, p95, p99, max] = s.queue_delay;
        vec![
            ("offered_packets", s.offered_packets as f64),
            ("offered_bytes", s.offered_bytes as f64),
            ("dropped_packets", (s.aqm_drops + s.overflow_drops) as f64),
            ("aqm_drops", s.aqm_drops as f64),
            ("overflow_drops", s.overflow_drops as f64),
            ("drops_elsewhere", s.drops_elsewhere as f64),
            ("marked_packets", s.marked_packets as f64),
            ("sent_packets", s.sent_packets as f64),
            ("sent_bytes", s.sent_bytes as f64),
            ("queue_time_average", s.queue_time_average),
            ("queue_delay_mean", mean),
            ("queue_delay_p50", p50),
            ("queue_delay_p95", p95),
            ("queue_delay_p99", p99),
            ("queue_delay_max", max),
            ("jitter", s.jitter),
            ("space_packets", self.pep_link.sent as f64),
            ("space_retransmissions", self.pep_link.retransmitted as f64),
            ("space_acks", self.pep_link.acks as f64),
            ("events", self.events as f64),
            ("measured_seconds", (self.end - self.begin).as_secs_f64()),
            ("simulated_seconds", self.end.as_secs_f64()),
        ]
    }
}
