//! The table of relayed connections: slots, users, and the list of those that are ready.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use bentpipe_queue::FlowTable;
use bentpipe_spacelink::StreamKey;

use super::connection::Relay;
use crate::event_loop::flows::FlowHasher;
use crate::event_loop::sources::Generation;

/// Slot of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayId(pub u32);

impl RelayId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a user, from 0 on; reused after the user's last connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserId(pub u32);

/// All relayed connections.
pub struct Relays {
    slots: Vec<Option<Box<Relay>>>,
    free: Vec<RelayId>,
    /// Slots by the peer and the slot of the stream; those of ended connections are out of date.
    streams: Vec<Vec<Option<RelayId>>>,
    ready: VecDeque<RelayId>,
    /// Connections by number.
    pairs: FlowTable<RelayId>,
    hasher: FlowHasher,
    users: Users,
    generation: Generation,
    open: u32,
    connecting: u32,
}

impl Relays {
    /// No connections; `hasher` numbers them.
    pub fn new(hasher: FlowHasher) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            streams: Vec::new(),
            ready: VecDeque::new(),
            pairs: FlowTable::default(),
            hasher,
            users: Users::default(),
            generation: Generation::default(),
            open: 0,
            connecting: 0,
        }
    }

    /// Number of connections.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Number of connections whose server has not answered yet.
    #[must_use]
    pub fn connecting(&self) -> u32 {
        self.connecting
    }

    /// A connection.
    #[must_use]
    pub fn get(&self, id: RelayId) -> Option<&Relay> {
        self.slots.get(id.index())?.as_deref()
    }

    /// A connection, to change it.
    pub fn get_mut(&mut self, id: RelayId) -> Option<&mut Relay> {
        self.slots.get_mut(id.index())?.as_deref_mut()
    }

    /// The slot of a stream's connection.
    #[must_use]
    pub fn id(&self, key: StreamKey) -> Option<RelayId> {
        let id = (*self.streams.get(key.peer().index())?.get(key.slot())?)?;
        self.get(id).is_some_and(|relay| relay.key == key).then_some(id)
    }

    /// The connection of a stream.
    #[must_use]
    pub fn by_key(&self, key: StreamKey) -> Option<&Relay> {
        self.get(self.id(key)?)
    }

    /// The connection of a stream, to change it.
    pub fn by_key_mut(&mut self, key: StreamKey) -> Option<&mut Relay> {
        self.get_mut(self.id(key)?)
    }

    /// The slot for the next connection.
    #[must_use]
    pub fn vacant(&self) -> RelayId {
        self.free.last().copied().unwrap_or(RelayId(self.slots.len() as u32))
    }

    /// The connection between a client and a server.
    #[must_use]
    pub fn by_ends(&self, client: SocketAddr, server: SocketAddr) -> Option<RelayId> {
        let id = *self.pairs.get(self.hasher.tcp(client, server))?;
        let relay = self.get(id)?;
        (relay.client == client && relay.server == server).then_some(id)
    }

    /// All connections with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (RelayId, &Relay)> {
        (0..).map(RelayId).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_deref()?)))
    }

    /// All slots, in use or not.
    pub fn ids(&self) -> impl Iterator<Item = RelayId> + use<> {
        (0..self.slots.len() as u32).map(RelayId)
    }

    /// The generation for the next connection.
    pub fn next_generation(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.generation
    }

    /// The number of a user with one more connection.
    pub fn enter_user(&mut self, address: IpAddr) -> UserId {
        self.users.enter(address)
    }

    /// Adds a connection in the slot [`Self::vacant`].
    pub fn insert(&mut self, relay: Box<Relay>) {
        let (key, pair) = (relay.key, self.hasher.tcp(relay.client, relay.server));
        let id = self.vacant();
        if self.free.pop().is_none() {
            self.slots.push(None);
        }
        let peer = key.peer().index();
        if self.streams.len() <= peer {
            self.streams.resize_with(peer + 1, Vec::new);
        }
        let streams = &mut self.streams[peer];
        if streams.len() <= key.slot() {
            streams.resize(key.slot() + 1, None);
        }
        streams[key.slot()] = Some(id);
        self.open += 1;
        self.connecting += u32::from(!relay.is_connected());
        self.slots[id.index()] = Some(relay);
        self.pairs.remove(pair);
        self.pairs.get_or_insert_with(pair, || id);
    }

    /// Counts a connection as connected.
    pub fn count_connected(&mut self) {
        self.connecting -= 1;
    }

    /// Removes a connection and its user's share. Also returns true if no later connection has the same ends.
    pub fn remove(&mut self, id: RelayId) -> Option<(Relay, bool)> {
        let relay = *self.slots.get_mut(id.index())?.take()?;
        self.free.push(id);
        self.users.leave(relay.client.ip());
        let pair = self.hasher.tcp(relay.client, relay.server);
        let is_last = self.pairs.get(pair) == Some(&id);
        if is_last {
            self.pairs.remove(pair);
        }
        self.open -= 1;
        self.connecting -= u32::from(!relay.is_connected());
        Some((relay, is_last))
    }

    /// Appends a connection to the ready list if it is not there yet.
    pub fn mark_ready(&mut self, id: RelayId) {
        let Some(relay) = self.slots.get_mut(id.index()).and_then(Option::as_deref_mut) else { return };
        if !std::mem::replace(&mut relay.is_listed, true) {
            self.ready.push_back(id);
        }
    }

    /// Changes a connection and marks it ready.
    pub fn update(&mut self, id: RelayId, change: impl FnOnce(&mut Relay)) {
        if let Some(relay) = self.get_mut(id) {
            change(relay);
            self.mark_ready(id);
        }
    }

    /// Changes the connection of a stream and marks it ready.
    pub fn update_by_key(&mut self, key: StreamKey, change: impl FnOnce(&mut Relay)) {
        if let Some(id) = self.id(key) {
            self.update(id, change);
        }
    }

    /// Number of ready connections.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Takes the first connection off the ready list. Its slot may be empty by now.
    pub fn next_ready(&mut self) -> Option<RelayId> {
        let id = self.ready.pop_front()?;
        if let Some(relay) = self.get_mut(id) {
            relay.is_listed = false;
        }
        Some(id)
    }
}

/// Users by address, with the number of their connections.
#[derive(Debug, Default)]
struct Users {
    known: BTreeMap<IpAddr, (UserId, u32)>,
    free: Vec<UserId>,
    next: u32,
}

impl Users {
    fn enter(&mut self, address: IpAddr) -> UserId {
        if let Some((user, connections)) = self.known.get_mut(&address) {
            *connections += 1;
            return *user;
        }
        let user = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            UserId(self.next - 1)
        });
        self.known.insert(address, (user, 1));
        user
    }

    fn leave(&mut self, address: IpAddr) {
        let Some((user, connections)) = self.known.get_mut(&address) else { return };
        *connections -= 1;
        if *connections == 0 {
            self.free.push(*user);
            self.known.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use bentpipe_gateway::{PepBuffers, Sharing};
    use bentpipe_spacelink::PeerId;
    use bentpipe_units::Instant;

    use super::*;
    use crate::relay::memory::PepMemory;

    /// A client resets its connection and opens another from the same port, which arrives before the old one is removed.
    #[test]
    fn a_closing_connection_leaves_a_later_one_between_the_same_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ends: [SocketAddr; 2] = ["10.3.0.1:40000", "10.1.0.1:80"].map(|text| text.parse().unwrap());
        let mut relays = Relays::new(FlowHasher::default());
        let mut memory =
            PepMemory::new(PepBuffers::new(1000, Sharing::PerConnection), Sharing::PerConnection, 1000);
        let mut insert = |relays: &mut Relays, serial| {
            let id = relays.vacant();
            let user = relays.enter_user(ends[0].ip());
            let buffer = (memory.open(id, user, 1400), memory.ring());
            let socket = (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), true);
            let key = StreamKey::new(PeerId(0), serial, serial);
            let generation = relays.next_generation();
            relays.insert(Box::new(Relay::new(key, ends, socket, buffer, generation, Instant::ZERO)));
            id
        };
        let (old, new) = (insert(&mut relays, 1), insert(&mut relays, 2));
        assert_eq!(relays.by_ends(ends[0], ends[1]), Some(new));
        assert!(relays.remove(old).is_some_and(|(_, is_last)| !is_last));
        assert_eq!(relays.by_ends(ends[0], ends[1]), Some(new));
        assert!(relays.remove(new).is_some_and(|(_, is_last)| is_last));
        assert_eq!(relays.by_ends(ends[0], ends[1]), None);
    }
}
