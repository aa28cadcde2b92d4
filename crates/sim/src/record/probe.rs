//! Records of probes of responsiveness.

use bentpipe_units::Duration;

use super::units::Times;

/// Share of the times that count: the longest are left out (draft-ietf-ippm-responsiveness, TMP).
const TRIMMED: f64 = 0.95;

/// Times of one probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeSteps {
    /// TCP handshake (tcp_f of the draft).
    pub connect: Duration,
    /// TLS handshake of one round trip (tls_f).
    pub tls: Duration,
    /// Request and response (http_f).
    pub http: Duration,
    /// The part of `http` until the server has the request.
    pub request: Duration,
}

/// Probes of a class that ended during the measurement.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    steps: [Times; 4],
    failed: u64,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self { steps: std::array::from_fn(|_| Times::new()), failed: 0 }
    }

    /// Adds a probe; `None` if it failed.
    pub(super) fn add(&mut self, steps: Option<ProbeSteps>) {
        let Some(ProbeSteps { connect, tls, http, request }) = steps else {
            self.failed += 1;
            return;
        };
        self.steps.iter_mut().zip([connect, tls, http, request]).for_each(|(times, time)| times.add(time));
    }

    /// Counters by name; `load` has the one-way delays of the load-generating connections.
    pub(super) fn counters(&self, load: &Times) -> [(&'static str, f64); 7] {
        let [connect, tls, http, request] = self.steps.each_ref().map(|times| times.trimmed_mean(TRIMMED));
        [
            ("probes", self.steps[0].count() as f64),
            ("probes_failed", self.failed as f64),
            ("probe_connect", connect),
            ("probe_tls", tls),
            ("probe_http", http),
            ("probe_request", request),
            ("load_delay", load.trimmed_mean(TRIMMED)),
        ]
    }
}
