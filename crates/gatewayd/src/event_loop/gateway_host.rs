//! The host of the sans-IO [`Gateway`]: the items behind its packets, the time that it is told, and its rate.

use std::net::SocketAddr;

use bentpipe_gateway::{Event, Gateway, InFlight};
use bentpipe_queue::Packet;
use bentpipe_spacelink::{PeerId, StreamKey};
use bentpipe_units::{Duration, Instant, Rate};
use slab::Slab;

use crate::intercept::nfqueue::PacketId;
use crate::sys::clock::catch_up;

/// Longest delay that a late loop catches up.
pub const CATCH_UP: Duration = Duration::from_millis(15);
/// Shortest time between two wake-ups for the gateway alone; what falls due in between is handled together.
const MERGE: Duration = Duration::from_micros(500);
/// Rate of a direction without a limit.
const UNLIMITED: Rate = Rate::from_bps(100_000_000_000);
/// Unused packet buffers that are kept.
const MOST_SPARE: usize = 4096;

/// Meaning of a packet of the gateway.
#[derive(Debug)]
pub enum Item {
    /// A packet that netfilter holds.
    Intercepted {
        /// Its number in the queue.
        id: PacketId,
        /// Client and server.
        ends: (SocketAddr, SocketAddr),
        /// The whole packet if it may have to be marked, otherwise empty.
        bytes: Vec<u8>,
    },
    /// Bytes read from a relayed connection that the PEP processes.
    Read {
        /// Their stream.
        key: StreamKey,
        /// Length [bytes].
        bytes: u64,
    },
    /// A chunk of a relayed connection in the transmit queue.
    Chunk {
        /// Its stream.
        key: StreamKey,
        /// Payload [bytes].
        bytes: u64,
    },
    /// A packet from the TUN device.
    Datagram {
        /// The peer that it goes to.
        peer: PeerId,
        /// The packet.
        bytes: Vec<u8>,
    },
}

/// Handle of an [`Item`]: the handle of the gateway's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemId(u32);

impl ItemId {
    /// The item of a packet.
    #[must_use]
    pub fn of(pkt: &Packet) -> Self {
        Self(pkt.handle)
    }

    /// The handle that the gateway's packet carries.
    #[must_use]
    pub fn handle(self) -> u32 {
        self.0
    }
}

/// The gateway and its host's state.
pub struct GatewayHost {
    /// The gateway.
    pub gateway: Gateway,
    /// Estimated windows of the senders.
    pub senders: InFlight,
    /// Time that the gateway is told: that of the turn, or earlier while the loop catches up.
    pub at: Instant,
    rate: Option<Rate>,
    items: Slab<Item>,
    spare: Vec<Vec<u8>>,
    woken: Instant,
}

impl GatewayHost {
    /// The host of `gateway`, whose regulator has `rate`, or no limit.
    pub fn new(gateway: Gateway, rate: Option<Rate>, now: Instant) -> Self {
        Self {
            gateway,
            senders: InFlight::default(),
            at: now,
            rate,
            items: Slab::new(),
            spare: Vec::new(),
            woken: Instant::ZERO,
        }
    }

    /// The rate for a gateway whose link has `rate`, or no limit.
    #[must_use]
    pub fn rate_or_unlimited(rate: Option<Rate>) -> Rate {
        rate.unwrap_or(UNLIMITED)
    }

    /// Wakes the gateway if something is due at `now`, and tells it the time at which that was due, up to [`CATCH_UP`]
    /// ago, so that a late loop keeps the rate. Returns false, and sets the time to `now`, if nothing is due.
    pub fn wake_if_due(&mut self, now: Instant) -> bool {
        let Some(due) = self.gateway.wake_at().filter(|due| *due <= now) else {
            self.at = now;
            return false;
        };
        self.woken = now;
        self.at = catch_up(due, now, CATCH_UP);
        self.gateway.wake(self.at);
        true
    }

    /// Delay of the gateway's next wake-up at `now` [ns]; `None` if it has none.
    #[must_use]
    pub fn lateness_ns(&self, now: Instant) -> Option<u64> {
        self.gateway.wake_at().map(|due| now.since(due).as_nanos())
    }

    /// Time of the next wake-up, not sooner than `MERGE` after the last.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        self.gateway.wake_at().map(|at| at.max(self.woken + MERGE))
    }

    /// The gateway's next event.
    pub fn poll(&mut self) -> Option<Event> {
        self.gateway.poll()
    }

    /// Keeps an item until it is taken.
    pub fn insert(&mut self, item: Item) -> ItemId {
        ItemId(self.items.insert(item) as u32)
    }

    /// An item.
    #[must_use]
    pub fn item(&self, id: ItemId) -> Option<&Item> {
        self.items.get(id.0 as usize)
    }

    /// An item, to change it.
    pub fn item_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.items.get_mut(id.0 as usize)
    }

    /// Removes an item.
    pub fn take(&mut self, id: ItemId) -> Option<Item> {
        self.items.try_remove(id.0 as usize)
    }

    /// An empty packet buffer.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a packet buffer for later use.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < MOST_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Rate of the regulator; `None` without a limit.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Sets the rate of the regulator, `None` for no limit, at `now`. Returns false if it is the same as before.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Instant) -> bool {
        if rate == self.rate {
            return false;
        }
        self.rate = rate;
        self.gateway.set_rate(Self::rate_or_unlimited(rate), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::aqm::droptail::DropTail;

    use super::*;
    use crate::config::Config;

    /// A packet that is copied into a recycled buffer has no bytes of an earlier one in front.
    #[test]
    fn recycled_buffers_are_empty() {
        let text = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n";
        let config = Config::parse(text, "g.toml").unwrap();
        let gateway = config.gateway.config(None).unwrap().build(Box::new(DropTail), 1);
        let mut host = GatewayHost::new(gateway, config.rate(), Instant::ZERO);
        host.recycle(vec![7; 100]);
        let buffer = host.buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
    }
}
