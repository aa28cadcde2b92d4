//! A congestion controller that trusts the regulator.
//!
//! The satellite's rate is the gateway's to share, and its regulator shares it: what is lost is lost to the channel, and
//! sending less for it would leave the link idle. The window is larger than anything that is ever in flight (streams are
//! bounded by the send window, datagrams by [`super::Spacelink::datagram`]); above 2^32 - 1 bytes quinn's pacer lets
//! everything pass as well.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::{Connection, RttEstimator};

/// The window [bytes].
const WINDOW: u64 = 1 << 40;

/// What controllers count, over all connections of an end.
#[derive(Debug, Default)]
pub struct Ledger {
    acked: AtomicU64,
    lost: AtomicU64,
    marks: AtomicU64,
}

impl Ledger {
    /// Bytes of packets that the far end acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked.load(Relaxed)
    }

    /// Bytes of packets that were found lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How often the far end told of ECN marks on packets.
    pub fn marks(&self) -> u64 {
        self.marks.load(Relaxed)
    }
}

/// Makes controllers that count in one ledger.
pub struct Trusting(pub Arc<Ledger>);

impl ControllerFactory for Trusting {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Counting { ledger: self.0.clone(), acked: 0 })
    }
}

#[derive(Clone)]
struct Counting {
    ledger: Arc<Ledger>,
    /// Bytes acknowledged of this connection.
    acked: u64,
}

/// Bytes of a connection's packets that the far end acknowledged.
pub fn acked(conn: &Connection) -> u64 {
    conn.congestion_state().clone_box().into_any().downcast::<Counting>().map_or(0, |it| it.acked)
}

impl Controller for Counting {
    fn on_ack(&mut self, _now: Instant, _sent: Instant, bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {
        self.acked += bytes;
        self.ledger.acked.fetch_add(bytes, Relaxed);
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
