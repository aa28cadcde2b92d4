//! Memory of the PEP: its buffers, and the connections that wait for room in them.
//!
//! A connection reads only while its buffer has room and the PEP as a whole may hold more. Otherwise it waits in a list,
//! and a release of bytes wakes as many connections of the list as find room, the longest waiting first.

use std::collections::VecDeque;

use bentpipe_gateway::{PepBuffers, Sharing};

use super::connection::{PIECE, Relay, SEGMENT};
use super::ring::Ring;
use super::table::{RelayId, Relays, UserId};

/// Bytes that a connection may hold whatever others hold, so that none waits for connections that stand still.
const GUARANTEED: u64 = 8 * SEGMENT;
/// Rings kept for later connections.
const SPARE_RINGS: usize = 256;
/// Largest ring that is kept [bytes].
const LARGEST_SPARE: usize = 256 << 10;

/// A buffer of the PEP: one for each user or each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(u32);

/// Reason for a connection not to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Its buffer is full.
    Buffer,
    /// The PEP holds as much as it may.
    Memory,
}

/// The buffers with the waiting lists.
pub struct PepMemory {
    buffers: PepBuffers,
    sharing: Sharing,
    /// Maximum number of bytes in all buffers together.
    limit: u64,
    waiting_for_memory: VecDeque<RelayId>,
    /// By [`PoolId`].
    waiting_for_buffer: Vec<VecDeque<RelayId>>,
    rings: Vec<Ring>,
}

impl PepMemory {
    /// Memory of at most `limit` bytes, in `buffers` that each user or each connection has.
    pub fn new(buffers: PepBuffers, sharing: Sharing, limit: u64) -> Self {
        Self {
            buffers,
            sharing,
            limit,
            waiting_for_memory: VecDeque::new(),
            waiting_for_buffer: Vec::new(),
            rings: Vec::new(),
        }
    }

    /// Sets the most bytes in all buffers together.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The buffers.
    #[must_use]
    pub fn buffers(&self) -> &PepBuffers {
        &self.buffers
    }

    /// The buffers, to apply marks to their limits.
    pub fn buffers_mut(&mut self) -> &mut PepBuffers {
        &mut self.buffers
    }

    /// Opens the buffer of a connection with segments of `segment` bytes.
    pub fn open(&mut self, id: RelayId, user: UserId, segment: u64) -> PoolId {
        self.buffers.open(id.0, user.0, segment);
        let pool = match self.sharing {
            Sharing::PerUser => PoolId(user.0),
            Sharing::PerConnection => PoolId(id.0),
        };
        if self.waiting_for_buffer.len() <= pool.0 as usize {
            self.waiting_for_buffer.resize_with(pool.0 as usize + 1, VecDeque::new);
        }
        pool
    }

    /// Closes the buffer of a connection that held `held` bytes.
    pub fn close(&mut self, id: RelayId, held: u64) {
        self.buffers.close(id.0, held);
    }

    /// A ring for a new connection.
    pub fn ring(&mut self) -> Ring {
        self.rings.pop().unwrap_or_default()
    }

    /// Keeps the ring of a closed connection for a later one.
    pub fn recycle(&mut self, mut ring: Ring) {
        ring.clear();
        if self.rings.len() < SPARE_RINGS && ring.capacity() <= LARGEST_SPARE {
            self.rings.push(ring);
        }
    }

    /// Counts bytes that a connection read.
    pub fn take(&mut self, id: RelayId, bytes: u64) {
        self.buffers.take(id.0, bytes);
    }

    /// Counts bytes of a connection that the peer delivered.
    pub fn release(&mut self, id: RelayId, bytes: u64) {
        self.buffers.release(id.0, bytes);
    }

    /// Bytes that all connections may still read together.
    fn spare(&self) -> u64 {
        self.limit.saturating_sub(self.buffers.occupied())
    }

    /// Bytes that a connection may still read within the PEP's limit: some in any case.
    #[must_use]
    pub fn left(&self, relay: &Relay) -> u64 {
        self.spare().max(GUARANTEED.saturating_sub(relay.out.held()))
    }

    /// Window for a connection's server [bytes]: the room in its buffer, less what is still to be read into it.
    #[must_use]
    pub fn window(&self, id: RelayId, relays: &Relays) -> u64 {
        let relay = relays.get(id);
        let left = relay.map_or(u64::MAX, |relay| self.left(relay));
        self.buffers.room(id.0).min(left).saturating_sub(relay.map_or(0, Relay::unread))
    }

    /// Bytes that a connection may read now: a piece, but no more than its part of a shared buffer, or two segments.
    pub fn readable(&self, id: RelayId, relay: &Relay) -> Result<usize, NoRoom> {
        match (self.buffers.room(id.0), self.left(relay)) {
            (0, _) => Err(NoRoom::Buffer),
            (_, 0) => Err(NoRoom::Memory),
            (room, left) => Ok(self.share(id, room.min(left))),
        }
    }

    fn share(&self, id: RelayId, room: u64) -> usize {
        let part = (room / self.buffers.sharers(id.0).len().max(1) as u64).max(2 * SEGMENT);
        usize::try_from(part.min(room)).unwrap_or(usize::MAX).min(PIECE)
    }

    /// Has a connection wait for room. It is woken after those that wait already.
    pub fn wait(&mut self, id: RelayId, relay: &mut Relay, reason: NoRoom) {
        let (is_waiting, list) = match reason {
            NoRoom::Memory => (&mut relay.waiting_for_memory, &mut self.waiting_for_memory),
            NoRoom::Buffer => {
                (&mut relay.waiting_for_buffer, &mut self.waiting_for_buffer[relay.pool.0 as usize])
            }
        };
        if !std::mem::replace(is_waiting, true) {
            list.push_back(id);
        }
    }

    /// Wakes a connection that waits for memory and holds less than it is guaranteed.
    pub fn wake_below_guarantee(&self, id: RelayId, relays: &mut Relays) {
        if relays.get(id).is_some_and(|relay| relay.waiting_for_memory && relay.out.held() < GUARANTEED) {
            relays.mark_ready(id);
        }
    }

    /// Wakes as many of the connections that wait for memory as find a piece of it.
    pub fn wake_memory_waiters(&mut self, relays: &mut Relays) {
        let mut left = self.spare();
        while left > 0
            && let Some(id) = self.waiting_for_memory.pop_front()
        {
            left = left.saturating_sub(PIECE as u64);
            relays.update(id, |relay| relay.waiting_for_memory = false);
        }
    }

    /// Wakes as many of the connections that wait for a buffer as find room in it.
    pub fn wake_buffer_waiters(&mut self, pool: PoolId, relays: &mut Relays) {
        let Some(mut waiting) = self.waiting_for_buffer.get_mut(pool.0 as usize).map(std::mem::take) else {
            return;
        };
        let mut room = None;
        while let Some(&id) = waiting.front() {
            // A connection that has ended meanwhile stays in the list until its turn.
            if relays.get(id).is_some_and(|relay| relay.waiting_for_buffer && relay.pool == pool) {
                let left = room.unwrap_or_else(|| self.buffers.room(id.0));
                if left == 0 {
                    break;
                }
                room = Some(left - self.share(id, left) as u64);
                relays.update(id, |relay| relay.waiting_for_buffer = false);
            }
            waiting.pop_front();
        }
        self.waiting_for_buffer[pool.0 as usize] = waiting;
    }
}
