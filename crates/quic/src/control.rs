//! Congestion control: quinn's interface on one side, [`Controller`] on the other.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bentpipe_transport::tcp::{Controller, SavedPath};
use bentpipe_units::{Duration, Instant};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{self, ControllerFactory, ControllerMetrics};

type StdInstant = std::time::Instant;

/// State that a connection shares with its controller, which quinn owns.
#[derive(Debug, Default)]
pub struct Shared {
    /// Marked packets that the ACKs have reported.
    pub marks: AtomicU64,
    /// Bytes of packets sent, and neither acknowledged nor lost.
    pub in_flight: AtomicU64,
    /// Bytes of the packet sent last, if it asks for no ACK and is thus not in flight (RFC 9002, section 2): quinn reports it as
    /// sent all the same. Else zero.
    not_in_flight: AtomicU64,
    /// Bytes that the path carried in a round trip, and its minimum RTT [ns]; zero if there is nothing to save.
    observed: (AtomicU64, AtomicU64),
    /// A resumed path met congestion.
    pub has_retreated: AtomicBool,
    /// A controller was built: the next one is that of another path.
    has_path: AtomicBool,
    /// Latest RTT sample, and the smoothed RTT (RFC 9002, section 5.3); zero before the first [ns].
    rtt: AtomicU64,
    srtt: AtomicU64,
}

impl Shared {
    /// Latest RTT sample, and the smoothed RTT.
    pub fn round_trip(&self) -> (Option<Duration>, Option<Duration>) {
        let known = |value: &AtomicU64| {
            Some(Duration::from_nanos(value.load(Relaxed))).filter(|value| !value.is_zero())
        };
        (known(&self.rtt), known(&self.srtt))
    }

    /// Forgets the RTT of a path that is left.
    pub fn forget_path(&self) {
        self.rtt.store(0, Relaxed);
        self.srtt.store(0, Relaxed);
    }

    /// Parameters of the path for a later connection.
    pub fn observed(&self) -> Option<SavedPath> {
        let (cwnd, rtt) = (self.observed.0.load(Relaxed), self.observed.1.load(Relaxed));
        (cwnd > 0).then(|| SavedPath { cwnd, rtt: Duration::from_nanos(rtt) })
    }

    /// The packet sent last, of `bytes`, asks for no ACK.
    pub fn on_not_in_flight(&self, bytes: u64) {
        self.in_flight.fetch_sub(bytes.min(self.in_flight.load(Relaxed)), Relaxed);
        self.not_in_flight.store(bytes, Relaxed);
    }

    fn sample(&self, rtt: Duration, srtt: Duration) {
        self.rtt.store(rtt.as_nanos(), Relaxed);
        self.srtt.store(srtt.as_nanos(), Relaxed);
    }
}

/// A controller as quinn sees it; also builds the controllers of a connection's paths.
#[derive(Clone)]
pub struct Control {
    controller: Controller,
    /// The controller of another path.
    unsaved: Arc<Controller>,
    epoch: StdInstant,
    shared: Arc<Shared>,
    /// Sending time of the latest packet that the ACK being processed acknowledges.
    sent: Option<StdInstant>,
    srtt: Option<Duration>,
    /// An ACK has been processed.
    has_sample: bool,
    /// Marks that the controller knows of.
    known_marks: u64,
    /// The sender has a greatest rate, which may leave its window unused.
    has_rate_cap: bool,
}

impl Control {
    /// Controls of a connection's paths: of the first, which may resume a `saved` one, and of those after migrations.
    pub fn new(
        controller: Controller,
        saved: Option<SavedPath>,
        epoch: StdInstant,
        shared: Arc<Shared>,
    ) -> Self {
        let unsaved = Arc::new(controller.clone());
        let mut controller = controller;
        if let Some(saved) = saved {
            controller.resume(saved);
        }
        Self {
            controller,
            unsaved,
            epoch,
            shared,
            sent: None,
            srtt: None,
            has_sample: false,
            known_marks: 0,
            has_rate_cap: false,
        }
    }

    /// The control of a sender with a greatest rate: the window does not grow while less than half of it is in flight (RFC 9002,
    /// section 7.8), which quinn knows only of senders that wait for data.
    pub fn with_rate_cap(mut self, has_rate_cap: bool) -> Self {
        self.has_rate_cap = has_rate_cap;
        self
    }

    fn store_observed(&self) {
        let (cwnd, rtt) = self.controller.observed().map_or((0, 0), |path| (path.cwnd, path.rtt.as_nanos()));
        self.shared.observed.0.store(cwnd, Relaxed);
        self.shared.observed.1.store(rtt, Relaxed);
        self.shared.has_retreated.store(self.controller.has_retreated(), Relaxed);
    }

    /// Takes back the packet sent last, if it is not in flight.
    fn take_back(&mut self) {
        let bytes = self.shared.not_in_flight.swap(0, Relaxed);
        if bytes > 0 {
            self.controller.on_not_in_flight(bytes);
        }
    }

    fn time(&self, at: StdInstant) -> Instant {
        Instant::ZERO + duration(at.saturating_duration_since(self.epoch))
    }
}

fn duration(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(duration.as_nanos() as u64)
}

impl ControllerFactory for Control {
    fn build(self: Arc<Self>, _now: StdInstant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        let mut control = (*self).clone();
        if self.shared.has_path.swap(true, Relaxed) {
            // Nothing is known of the client's new path (RFC 9000, section 9.4), saved parameters are of another.
            control.controller = (*self.unsaved).clone();
        }
        control.known_marks = control.shared.marks.load(Relaxed);
        control.controller.set_packet(current_mtu.into());
        Box::new(control)
    }
}

impl congestion::Controller for Control {
    fn on_sent(&mut self, now: StdInstant, bytes: u64, last_packet_number: u64) {
        self.take_back();
        self.shared.in_flight.fetch_add(bytes, Relaxed);
        self.controller.on_sent(self.time(now), bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: StdInstant,
        sent: StdInstant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.take_back();
        // quinn gives its initial RTT until the first ACK has been processed.
        let srtt = duration(if self.has_sample { rtt.get() } else { now.saturating_duration_since(sent) });
        (self.srtt, self.sent) = (Some(srtt), self.sent.max(Some(sent)));
        self.controller.on_ack(self.time(now), self.time(sent), bytes, srtt);
    }

    fn on_end_acks(
        &mut self,
        now: StdInstant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let before = self.shared.in_flight.swap(in_flight, Relaxed);
        let app_limited = app_limited || self.has_rate_cap && 2 * before < self.controller.window();
        // quinn calls this for packets that ask for no ACK, too.
        let (Some(sent), Some(srtt)) = (self.sent.take(), self.srtt) else { return };
        self.has_sample = true;
        self.shared.sample(duration(now.saturating_duration_since(sent)), srtt);
        let marks = self.shared.marks.load(Relaxed);
        let marked = marks - std::mem::replace(&mut self.known_marks, marks);
        let largest = largest_packet_num_acked.unwrap_or_default();
        self.controller.on_end_acks(self.time(now), in_flight, app_limited, largest, marked);
        self.store_observed();
    }

    fn on_congestion_event(
        &mut self,
        now: StdInstant,
        sent: StdInstant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.take_back();
        let (now, sent) = (self.time(now), self.time(sent));
        if lost_bytes == 0 {
            self.controller.on_marked(now, sent);
        } else {
            self.shared.in_flight.fetch_sub(lost_bytes.min(self.shared.in_flight.load(Relaxed)), Relaxed);
            self.controller.on_lost(now, sent, lost_bytes, is_persistent_congestion);
        }
        self.store_observed();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.set_packet(new_mtu.into());
    }

    fn window(&self) -> u64 {
        self.controller.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.controller.window();
        metrics.ssthresh = self.controller.ssthresh();
        metrics.pacing_rate = self.controller.pacing_rate(self.srtt).map(|rate| rate.as_bps());
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
