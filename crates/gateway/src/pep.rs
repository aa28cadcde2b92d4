//! The PEP's buffers: how much each server may still send.

/// A connection's index in [`PepBuffers`]: the host's choice, small numbers, each in use once at a time.
pub type Connection = u32;

/// Who shares a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each connection has a buffer of its own.
    PerConnection,
    /// All connections of a user share one.
    PerUser,
}

/// The bytes that the PEP holds, from the moment it takes them from a server until the satellite side has
/// acknowledged them ([B07] 2.3).
#[derive(Debug)]
pub struct PepBuffers {
    sharing: Sharing,
    /// Size of one buffer [bytes].
    size: u64,
    /// Buffers, by user or by connection.
    pools: Vec<Pool>,
    /// Which pool a connection uses.
    connections: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    occupied: u64,
    /// The connections that use it.
    members: Vec<Connection>,
}

impl PepBuffers {
    /// Empty buffers of `size` bytes each.
    #[must_use]
    pub fn new(size: u64, sharing: Sharing) -> Self {
        Self { sharing, size, pools: Vec::new(), connections: Vec::new() }
    }

    /// A user opens a connection.
    pub fn open(&mut self, conn: Connection, user: u32) {
        if self.connections.len() <= conn as usize {
            self.connections.resize(conn as usize + 1, 0);
        }
        let pool = match self.sharing {
            Sharing::PerConnection => conn,
            Sharing::PerUser => user,
        };
        if self.pools.len() <= pool as usize {
            self.pools.resize(pool as usize + 1, Pool::default());
        }
        self.connections[conn as usize] = pool;
        self.pools[pool as usize].members.push(conn);
    }

    /// A connection is over; `held` of its bytes were never acknowledged.
    pub fn close(&mut self, conn: Connection, held: u64) {
        self.release(conn, held);
        self.pool_mut(conn).members.retain(|&member| member != conn);
    }

    /// The PEP took bytes from the server.
    pub fn take(&mut self, conn: Connection, bytes: u64) {
        self.pool_mut(conn).occupied += bytes;
    }

    /// The satellite side acknowledged bytes.
    pub fn release(&mut self, conn: Connection, bytes: u64) {
        let pool = self.pool_mut(conn);
        debug_assert!(pool.occupied >= bytes, "more acknowledged than taken");
        pool.occupied = pool.occupied.saturating_sub(bytes);
    }

    /// What the connection's server may still send [bytes].
    #[must_use]
    pub fn room(&self, conn: Connection) -> u64 {
        self.size.saturating_sub(self.pools[self.connections[conn as usize] as usize].occupied)
    }

    /// The connections that share this one's buffer, itself among them.
    #[must_use]
    pub fn sharers(&self, conn: Connection) -> &[Connection] {
        &self.pools[self.connections[conn as usize] as usize].members
    }

    /// Bytes held in all.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.pools.iter().map(|pool| pool.occupied).sum()
    }

    fn pool_mut(&mut self, conn: Connection) -> &mut Pool {
        &mut self.pools[self.connections[conn as usize] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_connections_share_one_buffer() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerUser);
        let (a, b, other) = (0, 1, 2);
        buffers.open(a, 0);
        buffers.open(b, 0);
        buffers.open(other, 1);
        buffers.take(a, 700);
        assert_eq!([buffers.room(a), buffers.room(b), buffers.room(other)], [300, 300, 1000]);
        assert_eq!(buffers.sharers(b), [a, b]);
        buffers.release(a, 200);
        assert_eq!(buffers.room(b), 500);
        buffers.close(a, 500);
        assert_eq!((buffers.room(b), buffers.occupied()), (1000, 0));
    }

    #[test]
    fn a_connections_own_buffer_is_its_own() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerConnection);
        let (a, b) = (0, 1);
        buffers.open(a, 0);
        buffers.open(b, 0);
        buffers.take(a, 1500);
        assert_eq!([buffers.room(a), buffers.room(b)], [0, 1000]);
        buffers.close(a, 1500);
        buffers.open(a, 7);
        assert_eq!(buffers.room(a), 1000);
    }
}
