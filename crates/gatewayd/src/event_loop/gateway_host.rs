//! The host of the sans-IO [`Gateway`]s: the items behind its packets, the time that it is told, and its rate.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use bentpipe_gateway::{Carrier, Event, Gateway, GatewayQueue, InFlight, Snapshot, Turn, UNLIMITED};
use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::tree::{NodeId, Share};
use bentpipe_queue::{Counters, Packet, Queue};
use bentpipe_spacelink::{PeerId, StreamKey};
use bentpipe_units::{Duration, Id as _, Instant, Rate};
use slab::Slab;

use crate::intercept::nfqueue::PacketId;
use crate::observe::metrics::PeerQueue;
use crate::observe::record::QueuesState;
use crate::sys::clock::catch_up;

/// Longest delay that a late loop catches up.
pub const CATCH_UP: Duration = Duration::from_millis(15);
/// Shortest time between two wake-ups for the gateway alone; what falls due in between is handled together.
const MERGE: Duration = Duration::from_micros(500);
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

/// The queues of all terminals, or of one of them.
struct Node {
    gateway: Gateway,
    /// Its leaf of the carrier; `None` if it has a regulator.
    leaf: Option<NodeId>,
    /// Its peak rate; `None` for the carrier's rate.
    pir: Option<Rate>,
    /// True while the carrier knows that packets wait.
    is_offered: bool,
    /// Time for which it is listed to be woken.
    due: Option<Instant>,
    /// True while it is listed to be polled.
    to_poll: bool,
}

/// The carrier that the queues of several terminals share.
struct SharedCarrier {
    carrier: Carrier,
    /// The terminal of each leaf, by its number.
    leaves: Vec<PeerId>,
}

/// Counters of gateways together, removed ones included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Their queues.
    pub queues: PeerQueue,
    /// Counters of the queues that they watch.
    pub watched: Counters,
    /// Bytes that left their transmit queues.
    pub sent_bytes: u64,
}

impl Totals {
    /// Adds the counters of a gateway.
    pub fn add(&mut self, gateway: &Gateway, now: Instant) {
        let [receive, transmit] = [gateway.receive_queue(), gateway.transmit_queue()];
        self.queues.packets += u64::from(transmit.state().packets);
        self.queues.bytes += transmit.state().bytes;
        self.queues.packet_seconds += transmit.packet_seconds(now);
        self.queues.counters[0] += *receive.counters();
        self.queues.counters[1] += *transmit.counters();
        self.watched += *gateway.watched_queue().counters();
        self.sent_bytes += transmit.state().sent_bytes;
    }
}

/// The gateways and their host's state: one gateway for all peers, or one for each, whose transmit queues share a carrier.
pub struct GatewayHost {
    /// By [`PeerId`]; the only one is that of peer 0.
    nodes: Vec<Option<Node>>,
    carrier: Option<SharedCarrier>,
    due: BTreeSet<(Instant, PeerId)>,
    to_poll: VecDeque<PeerId>,
    /// Events of removed gateways.
    orphans: VecDeque<Event>,
    /// Counters of removed gateways.
    removed: Snapshot,
    removed_totals: Totals,
    /// Estimated windows of the senders.
    pub senders: InFlight,
    /// Time that the gateway is told: that of the turn, or earlier while the loop catches up.
    pub at: Instant,
    rate: Option<Rate>,
    items: Slab<Item>,
    spare: Vec<Vec<u8>>,
    woken: Instant,
}

/// Sets the rate that a gateway may have: its peak rate or the carrier's `rate`, whichever is less. A carrier that stands still changes
/// nothing.
fn set_peak(gateway: &mut Gateway, pir: Option<Rate>, rate: Rate) {
    if rate.as_bps() > 0 {
        gateway.set_peak(pir.map_or(rate, |pir| pir.min(rate)));
    }
}

impl GatewayHost {
    /// The host of one `gateway` for all peers, whose regulator has `rate`, or no limit.
    pub fn new(gateway: Gateway, rate: Option<Rate>, now: Instant) -> Self {
        let mut host = Self::empty(rate, now);
        let (leaf, pir, due) = (None, None, None);
        host.nodes.push(Some(Node { gateway, leaf, pir, is_offered: false, due, to_poll: false }));
        host
    }

    /// A host without gateways, for one of each peer; they share a carrier of `rate` with the regulator's `tick`.
    pub fn sharing(rate: Rate, tick: Duration, now: Instant) -> Self {
        let carrier = SharedCarrier { carrier: Carrier::new(rate, tick), leaves: Vec::new() };
        Self { carrier: Some(carrier), ..Self::empty(Some(rate), now) }
    }

    fn empty(rate: Option<Rate>, now: Instant) -> Self {
        Self {
            nodes: Vec::new(),
            carrier: None,
            due: BTreeSet::new(),
            to_poll: VecDeque::new(),
            orphans: VecDeque::new(),
            removed: Snapshot::default(),
            removed_totals: Totals::default(),
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

    // ----- gateways -------------------------------------------------------------------------------------------

    /// True if each peer has its gateway.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.carrier.is_some()
    }

    fn number(&self, peer: PeerId) -> PeerId {
        if self.is_shared() { peer } else { PeerId(0) }
    }

    /// The gateway for a peer.
    #[must_use]
    pub fn gateway(&self, peer: PeerId) -> Option<&Gateway> {
        self.nodes.get(self.number(peer).index())?.as_ref().map(|node| &node.gateway)
    }

    /// All gateways.
    pub fn gateways(&self) -> impl Iterator<Item = &Gateway> {
        self.nodes.iter().flatten().map(|node| &node.gateway)
    }

    /// The queue whose AQM state is recorded: the one that it watches, unless there are several.
    #[must_use]
    pub fn watched(&self) -> Option<&Queue> {
        self.gateway(PeerId(0)).filter(|_| !self.is_shared()).map(Gateway::watched_queue)
    }

    /// The queue at whose entry packets are marked; `None` without gateways.
    #[must_use]
    pub fn mark_point(&self) -> Option<GatewayQueue> {
        self.gateways().next().map(Gateway::mark_point)
    }

    /// State of all queues at `now`, and the counters of removed ones.
    #[must_use]
    pub fn state(&self, now: Instant) -> QueuesState<'_> {
        let mut state =
            QueuesState { snapshot: self.removed, watched: self.watched(), ..QueuesState::default() };
        for gateway in self.gateways() {
            let transmit = gateway.transmit_queue().state();
            state.receive_packets += u64::from(gateway.receive_queue().state().packets);
            state.transmit_packets += u64::from(transmit.packets);
            state.transmit_bytes += transmit.bytes;
            state.snapshot = [state.snapshot, Snapshot::of_gateway(gateway, now)].into_iter().sum();
        }
        state
    }

    /// Counters of all gateways at `now`, and of removed ones.
    #[must_use]
    pub fn totals(&self, now: Instant) -> Totals {
        let mut totals = self.removed_totals;
        self.gateways().for_each(|gateway| totals.add(gateway, now));
        totals
    }

    /// Rate that a peer may have: its peak rate or that of the regulator, whichever is less; `None` without a limit.
    #[must_use]
    pub fn peak(&self, peer: PeerId) -> Option<Rate> {
        let own = self.nodes.get(self.number(peer).index()).and_then(|node| node.as_ref()?.pir);
        [own, self.rate].into_iter().flatten().min()
    }

    /// Does something with the gateway for a peer at the host's time. Returns `None` without one.
    pub fn with<T>(&mut self, peer: PeerId, act: impl FnOnce(&mut Gateway, Instant) -> T) -> Option<T> {
        let (peer, at) = (self.number(peer), self.at);
        let node = self.nodes.get_mut(peer.index())?.as_mut()?;
        let result = act(&mut node.gateway, at);
        self.after(peer);
        Some(result)
    }

    /// Does something with every gateway.
    pub fn with_all(&mut self, mut act: impl FnMut(&mut Gateway, Instant)) {
        for peer in (0..self.nodes.len() as u32).map(PeerId) {
            self.with(peer, &mut act);
        }
    }

    /// Lists a gateway for all that follows from a change.
    fn after(&mut self, peer: PeerId) {
        let Some(Some(node)) = self.nodes.get_mut(peer.index()) else { return };
        if !std::mem::replace(&mut node.to_poll, true) {
            self.to_poll.push_back(peer);
        }
        let due = node.gateway.wake_at();
        if due != node.due {
            if let Some(old) = std::mem::replace(&mut node.due, due) {
                self.due.remove(&(old, peer));
            }
            self.due.extend(due.map(|at| (at, peer)));
        }
        if let (Some(shared), Some(leaf)) = (&mut self.carrier, node.leaf)
            && !node.is_offered
            && node.gateway.is_backlogged()
        {
            node.is_offered = true;
            shared.carrier.offer(leaf, self.at);
        }
    }

    /// Adds the gateway of a peer that has this share of the carrier.
    pub fn add(&mut self, peer: PeerId, mut gateway: Gateway, share: Share) {
        let Some(shared) = &mut self.carrier else { return };
        set_peak(&mut gateway, share.pir, Self::rate_or_unlimited(self.rate));
        let leaf = shared.carrier.add(share);
        let index = leaf.index() as usize;
        if shared.leaves.len() <= index {
            shared.leaves.resize(index + 1, PeerId(0));
        }
        shared.leaves[index] = peer;
        if self.nodes.len() <= peer.index() {
            self.nodes.resize_with(peer.index() + 1, || None);
        }
        self.nodes[peer.index()] = Some(Node {
            gateway,
            leaf: Some(leaf),
            pir: share.pir,
            is_offered: false,
            due: None,
            to_poll: false,
        });
    }

    /// Changes the share of a peer's gateway.
    pub fn set_share(&mut self, peer: PeerId, share: Share) {
        let rate = Self::rate_or_unlimited(self.rate);
        let node = self.nodes.get_mut(peer.index()).and_then(Option::as_mut);
        if let (Some(shared), Some(node)) = (&mut self.carrier, node)
            && let Some(leaf) = node.leaf
        {
            shared.carrier.set(leaf, share, self.at);
            node.pir = share.pir;
            set_peak(&mut node.gateway, share.pir, rate);
        }
    }

    /// Stops the queue of a peer during an outage of its link, and starts it again, while the others go on.
    pub fn set_outage(&mut self, peer: PeerId, outage: bool) {
        let gateway = self.gateway(peer).filter(|_| self.is_shared());
        if gateway.is_some_and(|gateway| gateway.is_down() != outage) {
            // The carrier has the rate; the gateway needs to know only that its link is up.
            let rate = if outage { Rate::from_bps(0) } else { UNLIMITED };
            self.with(peer, |gateway, at| gateway.set_rate(rate, at));
        }
    }

    /// Drops what waits for a peer in its transmit queue; nobody is left to take it.
    pub fn purge(&mut self, peer: PeerId) {
        if self.is_shared() {
            self.set_outage(peer, false);
            self.with(peer, |gateway, at| while gateway.release(at).is_some() {});
        }
    }

    /// Removes the gateway of a peer. Packets ahead of its transmit queue pass.
    pub fn remove(&mut self, peer: PeerId) {
        let Some(mut node) = self.nodes.get_mut(peer.index()).and_then(Option::take) else { return };
        if let Some(due) = node.due {
            self.due.remove(&(due, peer));
        }
        self.to_poll.retain(|other| *other != peer);
        if let (Some(shared), Some(leaf)) = (&mut self.carrier, node.leaf) {
            shared.carrier.remove(leaf, self.at);
        }
        let mut at = self.at;
        // An AQM could hold packets again and again while nothing is sent.
        node.gateway.set_aqm(Box::new(DropTail), at);
        // Timers of the queues may never end.
        while node.gateway.is_working()
            && let Some(due) = node.gateway.wake_at()
        {
            at = at.max(due);
            node.gateway.wake(at);
            self.orphans.extend(std::iter::from_fn(|| node.gateway.poll()));
        }
        node.gateway.set_rate(UNLIMITED, at);
        while node.gateway.release(at).is_some() {}
        self.orphans.extend(std::iter::from_fn(|| node.gateway.poll()));
        self.removed = [self.removed, Snapshot::of_gateway(&node.gateway, at)].into_iter().sum();
        self.removed_totals.add(&node.gateway, at);
    }

    /// Charges bytes sent to a peer that its gateway did not release.
    pub fn charge(&mut self, peer: PeerId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let leaf = self.nodes.get(peer.index()).and_then(|node| node.as_ref()?.leaf);
        match (&mut self.carrier, leaf) {
            (Some(shared), Some(leaf)) => shared.carrier.charge(leaf, bytes, self.at),
            (Some(_), None) => {}
            (None, _) => drop(self.with(peer, |gateway, at| gateway.charge(bytes, at))),
        }
    }

    /// Bytes sent for which the rate has not compensated by `now`.
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        match &self.carrier {
            Some(shared) => shared.carrier.debt(now),
            None => self.gateways().map(|gateway| gateway.debt(now)).sum(),
        }
    }

    // ----- time -----------------------------------------------------------------------------------------------

    /// Time of the next wake-up.
    fn wake_at(&self) -> Option<Instant> {
        let carrier = self.carrier.as_ref().and_then(|shared| shared.carrier.wake_at());
        [self.due.first().map(|(at, _)| *at), carrier].into_iter().flatten().min()
    }

    /// Wakes a gateway or the carrier if something is due at `now`, and tells it the time at which that was due, up to
    /// [`CATCH_UP`] ago, so that a late loop keeps the rate. Returns false, and sets the time to `now`, if nothing is due.
    pub fn wake_if_due(&mut self, now: Instant) -> bool {
        let Some(due) = self.wake_at().filter(|due| *due <= now) else {
            self.at = now;
            return false;
        };
        self.woken = now;
        self.at = catch_up(due, now, CATCH_UP);
        // Packets that the PEP has just processed still go with this tick.
        match self.due.first() {
            Some(&(first, peer)) if first <= due => drop(self.with(peer, |gateway, at| gateway.wake(at))),
            _ => self.wake_carrier(),
        }
        true
    }

    /// The carrier sends the packets of one turn.
    fn wake_carrier(&mut self) {
        let at = self.at;
        let Some(shared) = &mut self.carrier else { return };
        shared.carrier.wake(at);
        while let Some(shared) = &mut self.carrier
            && let Turn::Leaf(leaf) = shared.carrier.turn(at)
        {
            let peer = shared.leaves[leaf.index() as usize];
            let node = self.nodes.get_mut(peer.index()).and_then(Option::as_mut);
            match node.and_then(|node| node.gateway.release(at)) {
                Some(pkt) => drop(shared.carrier.sent(leaf, pkt.len, None, at)),
                None => {
                    shared.carrier.emptied(leaf, at);
                    if let Some(Some(node)) = self.nodes.get_mut(peer.index()) {
                        node.is_offered = false;
                    }
                }
            }
            self.after(peer);
        }
    }

    /// Delay of the next wake-up at `now` [ns]; `None` without one.
    #[must_use]
    pub fn lateness_ns(&self, now: Instant) -> Option<u64> {
        self.wake_at().map(|due| now.since(due).as_nanos())
    }

    /// Time of the next wake-up, not sooner than `MERGE` after the last.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        self.wake_at().map(|at| at.max(self.woken + MERGE))
    }

    /// The next event of a gateway.
    pub fn poll(&mut self) -> Option<Event> {
        if let Some(event) = self.orphans.pop_front() {
            return Some(event);
        }
        while let Some(&peer) = self.to_poll.front() {
            if let Some(Some(node)) = self.nodes.get_mut(peer.index()) {
                if let Some(event) = node.gateway.poll() {
                    return Some(event);
                }
                node.to_poll = false;
            }
            self.to_poll.pop_front();
        }
        None
    }

    // ----- items ----------------------------------------------------------------------------------------------

    /// Keeps an item until it is taken.
    pub fn insert(&mut self, item: Item) -> ItemId {
        ItemId(self.items.insert(item) as u32)
    }

    /// An item.
    #[must_use]
    pub fn item(&self, id: ItemId) -> Option<&Item> {
        self.items.get(id.0 as usize)
    }

    /// Number of items.
    pub fn items(&self) -> usize {
        self.items.len()
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
        let rate = Self::rate_or_unlimited(rate);
        match &mut self.carrier {
            Some(shared) => {
                shared.carrier.set_rate(rate, now);
                for node in self.nodes.iter_mut().flatten() {
                    set_peak(&mut node.gateway, node.pir, rate);
                }
            }
            None => self.with_all(|gateway, _| gateway.set_rate(rate, now)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::FlowId;

    use super::*;
    use crate::config::Config;

    const RATE: Rate = Rate::from_bps(20_000_000);

    /// A gateway's configuration with further lines in its table `gateway`.
    fn config(lines: &str) -> Config {
        let text = format!(
            "role = \"gateway\"\n[gateway]\nregulator = {{ rate = \"20 Mbps\" }}\n{lines}\n\
             [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
             [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n"
        );
        Config::parse(&text, "g.toml").unwrap()
    }

    /// A host of the gateways of two terminals that share a carrier.
    fn sharing(lines: &str) -> GatewayHost {
        let queues = config(lines).gateway;
        let mut host = GatewayHost::sharing(RATE, Duration::ZERO, Instant::ZERO);
        for peer in [PeerId(0), PeerId(1)] {
            let setup = bentpipe_gateway::Config { peak: Some(RATE), ..queues.config(None, None).unwrap() };
            host.add(peer, setup.build(queues.aqm.build().unwrap(), 1), Share::default());
        }
        host
    }

    /// A packet for a terminal, behind which is an item.
    fn packet(host: &mut GatewayHost, peer: PeerId) -> Packet {
        let item = host.insert(Item::Datagram { peer, bytes: vec![7; 1000] });
        Packet::new(1000, FlowId(0), item.handle())
    }

    /// Takes the items of all packets with an event, as the daemon does. Returns the events.
    fn take_items(host: &mut GatewayHost) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = host.poll() {
            let (Event::Received(pkt) | Event::Processed(pkt) | Event::Sent(pkt) | Event::Dropped(pkt, ..)) =
                event;
            assert!(host.take(ItemId::of(&pkt)).is_some());
            events.push(event);
        }
        events
    }

    /// A packet that is copied into a recycled buffer has no bytes of an earlier one in front.
    #[test]
    fn recycled_buffers_are_empty() {
        let config = config("");
        let gateway = config.gateway.config(None, None).unwrap().build(Box::new(DropTail), 1);
        let mut host = GatewayHost::new(gateway, config.rate(), Instant::ZERO);
        host.recycle(vec![7; 100]);
        let buffer = host.buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
    }

    /// Two packets wait for a terminal when the modem reports 0 bps and the terminal's link is silent.
    fn stopped_by_the_modem() -> GatewayHost {
        let mut host = sharing("");
        for _ in 0..2 {
            let pkt = packet(&mut host, PeerId(0));
            host.with(PeerId(0), |gateway, at| gateway.transmit(pkt, at));
        }
        assert!(host.set_rate(Some(Rate::from_bps(0)), Instant::ZERO));
        host.set_outage(PeerId(0), true);
        assert_eq!((host.items(), host.gateway(PeerId(0)).unwrap().is_down()), (2, true));
        host
    }

    #[test]
    fn purge_at_rate_zero_drops_what_waits() {
        let mut host = stopped_by_the_modem();
        host.purge(PeerId(0));
        assert_eq!((take_items(&mut host).len(), host.items()), (2, 0));
        assert_eq!(host.gateway(PeerId(0)).unwrap().transmit_queue().state().packets, 0);
    }

    #[test]
    fn an_outage_that_ends_at_rate_zero_is_over() {
        let mut host = stopped_by_the_modem();
        host.set_outage(PeerId(0), false);
        assert!(!host.gateway(PeerId(0)).unwrap().is_down());
        assert!(!host.wake_if_due(Instant::ZERO + Duration::from_secs(1)), "the carrier sends at 0 bps");
        host.set_rate(Some(RATE), Instant::ZERO + Duration::from_secs(2));
        while host.wake_if_due(Instant::ZERO + Duration::from_secs(3)) {}
        assert_eq!((take_items(&mut host).len(), host.items()), (2, 0));
    }

    #[test]
    fn a_terminal_removed_at_rate_zero_leaves_no_items() {
        let mut host = stopped_by_the_modem();
        host.remove(PeerId(0));
        assert_eq!((take_items(&mut host).len(), host.items()), (2, 0));
    }

    /// A terminal that a reload adds, or moves to another plan, has the carrier's present rate, and keeps its own while that is 0.
    #[test]
    fn an_added_or_moved_terminal_has_the_present_rate() {
        let mut host = sharing("");
        let capacity =
            |host: &GatewayHost| host.gateway(PeerId(2)).unwrap().transmit_queue().state().capacity;
        let share = |mbps: u64| Share { pir: Some(Rate::from_bps(mbps * 1_000_000)), ..Share::default() };
        let add = |host: &mut GatewayHost, share| {
            let queues = config("").gateway;
            let setup = bentpipe_gateway::Config { peak: Some(RATE), ..queues.config(None, None).unwrap() };
            host.add(PeerId(2), setup.build(queues.aqm.build().unwrap(), 1), share);
        };
        host.set_rate(Some(Rate::from_bps(5_000_000)), Instant::ZERO);
        for (share, expected) in [(Share::default(), 5_000_000), (share(3), 3_000_000), (share(9), 5_000_000)]
        {
            add(&mut host, share);
            assert_eq!(capacity(&host).as_bps(), expected);
            host.remove(PeerId(2));
        }
        host.set_rate(Some(Rate::from_bps(0)), Instant::ZERO);
        add(&mut host, Share::default());
        assert_eq!(capacity(&host), RATE);
        host.set_share(PeerId(2), share(3));
        assert_eq!(capacity(&host), RATE);
        host.set_rate(Some(Rate::from_bps(5_000_000)), Instant::ZERO);
        assert_eq!(capacity(&host).as_bps(), 3_000_000);
    }

    #[test]
    fn counters_do_not_fall_when_a_terminal_is_removed() {
        let mut host = sharing("");
        for peer in [PeerId(0), PeerId(0), PeerId(1)] {
            let pkt = packet(&mut host, peer);
            host.with(peer, |gateway, at| gateway.arrive(pkt, at));
            let pkt = packet(&mut host, peer);
            host.with(peer, |gateway, at| gateway.transmit(pkt, at));
        }
        host.at = Instant::ZERO + Duration::from_millis(100);
        host.remove(PeerId(0));
        host.remove(PeerId(1));
        let totals = host.totals(host.at);
        assert_eq!((totals.watched.offered, totals.watched.offered_bytes), (3, 3000));
        assert_eq!((totals.queues.counters[1].sent, totals.sent_bytes), (3, 3000));
        assert_eq!((totals.queues.packets, totals.queues.bytes), (0, 0));
        // Three packets for 100 ms.
        assert!((totals.queues.packet_seconds - 0.3).abs() < 1e-9, "{}", totals.queues.packet_seconds);
    }

    /// PIE and DualPI2 always have a timer, FQ-PIE while packets wait. REDFC holds a packet again while the transmit queue is long.
    #[test]
    fn a_terminal_is_removed_although_its_queues_always_have_a_timer() {
        for lines in [
            "aqm.algorithm = \"pie\"",
            "transmit_queue.scheduler = \"dualpi2\"",
            "transmit_queue.scheduler = \"fq_pie\"",
            "aqm = { algorithm = \"redfc\", min_th = 1, max_th = 2, w_q = 1.0 }",
        ] {
            let mut host = sharing(lines);
            for _ in 0..5 {
                let pkt = packet(&mut host, PeerId(1));
                host.with(PeerId(1), |gateway, at| gateway.transmit(pkt, at));
            }
            let pkt = packet(&mut host, PeerId(1));
            host.with(PeerId(1), |gateway, at| gateway.arrive(pkt, at));
            let pkt = packet(&mut host, PeerId(1));
            host.with(PeerId(1), |gateway, at| gateway.process(pkt, at));
            host.remove(PeerId(1));
            assert!(host.gateway(PeerId(1)).is_none());
            let events = take_items(&mut host);
            assert_eq!((events.len(), host.items()), (7, 0), "{lines}: {events:?}");
        }
    }
}
