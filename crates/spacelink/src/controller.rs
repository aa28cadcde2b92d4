//! A congestion controller that leaves the rate to the regulator.
//!
//! The gateway's regulator shares the satellite's rate, so losses come from the channel, and slowing down for them would
//! leave the link idle. The window exceeds everything ever in flight (streams are limited by the send window, datagrams by
//! [`super::Spacelink::datagram`]); above 2^32 - 1 bytes quinn's pacer does not delay packets either.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// The window [bytes].
const WINDOW: u64 = 1 << 40;

/// Counters of a connection on all its paths: QUIC builds another controller when the peer's address changes.
#[derive(Debug, Default)]
pub struct Ledger {
    acked: AtomicU64,
    acked_packets: AtomicU64,
    lost: AtomicU64,
    marks: AtomicU64,
}

impl Ledger {
    /// Bytes of acknowledged packets.
    pub fn acked(&self) -> u64 {
        self.acked.load(Relaxed)
    }

    /// Number of acknowledged packets.
    pub fn acked_packets(&self) -> u64 {
        self.acked_packets.load(Relaxed)
    }

    /// Bytes of packets declared lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Number of ECN marks that the peer reported.
    pub fn marks(&self) -> u64 {
        self.marks.load(Relaxed)
    }
}

/// Builds a connection's controllers, which share its ledger.
pub struct Uncontrolled(pub Arc<Ledger>);

impl ControllerFactory for Uncontrolled {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Counting { ledger: self.0.clone() })
    }
}

#[derive(Clone)]
struct Counting {
    ledger: Arc<Ledger>,
}

impl Controller for Counting {
    fn on_ack(&mut self, _now: Instant, _sent: Instant, bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {
        self.ledger.acked.fetch_add(bytes, Relaxed);
        self.ledger.acked_packets.fetch_add(1, Relaxed);
    }

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _persistent: bool, lost: u64) {
        if lost == 0 {
            self.ledger.marks.fetch_add(1, Relaxed);
        }
        self.ledger.lost.fetch_add(lost, Relaxed);
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
