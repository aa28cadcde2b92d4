//! The PEP's buffers: how much each server may still send.
//!
//! The window that the PEP advertises to a server is what is left of the connection's buffer. With [`FlowControl`] it is
//! what is left of a limit `B` on it, at first the whole buffer ([B07] 2.3, equation 2.1):
//!
//! - a marked packet: `B *= decr`, but not below a segment;
//! - an unmarked one, at most once in `freeze`: `B = min(buffer, B (1 + incr))`;
//! - the window: `W = clamp(B - occupied, 0, MaxRcvWind)`; MaxRcvWind is the TCP's business.
//!
//! *Departures:* "1 % of the available buffer" is taken as that share of the present limit; with one of the whole buffer
//! no setting of the paper but the last slows anything down. The least limit is our own: from less, steps of 1 % take
//! minutes to come back. Less than a segment is not offered (RFC 9293 section 3.8.6.2.2).

use bentpipe_units::{Duration, Instant};

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

/// How marks cut what may be filled of a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowControl {
    /// Factor by which a mark cuts the limit.
    pub decr: f64,
    /// Share of the limit by which it grows again.
    pub incr: f64,
    /// Time between two such steps.
    pub freeze: Duration,
}

/// The bytes that the PEP holds, from the moment it takes them from a server until the satellite side has
/// acknowledged them ([B07] 2.3).
#[derive(Debug)]
pub struct PepBuffers {
    sharing: Sharing,
    /// Size of one buffer [bytes].
    size: u64,
    control: Option<FlowControl>,
    /// Bytes held in all.
    occupied: u64,
    /// Buffers, by user or by connection.
    pools: Vec<Pool>,
    connections: Vec<Member>,
}

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// The pool that it uses.
    pool: u32,
    /// Payload of a full segment [bytes].
    segment: u64,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    occupied: u64,
    /// `B`: what of it may be filled [bytes].
    limit: f64,
    /// When `B` may grow again.
    thawed: Instant,
    /// The connections that use it.
    members: Vec<Connection>,
}

impl PepBuffers {
    /// Empty buffers of `size` bytes each.
    #[must_use]
    pub fn new(size: u64, sharing: Sharing) -> Self {
        Self { sharing, size, control: None, occupied: 0, pools: Vec::new(), connections: Vec::new() }
    }

    /// … whose limits marks cut. What is cut is a buffer's limit, so each connection should have one of its own.
    #[must_use]
    pub fn with_control(self, control: Option<FlowControl>) -> Self {
        Self { control, ..self }
    }

    /// Whether marks cut limits.
    #[must_use]
    #[inline]
    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// A user opens a connection, with segments of `segment` bytes of payload.
    pub fn open(&mut self, conn: Connection, user: u32, segment: u64) {
        if self.connections.len() <= conn as usize {
            self.connections.resize(conn as usize + 1, Member::default());
        }
        let pool = match self.sharing {
            Sharing::PerConnection => conn,
            Sharing::PerUser => user,
        };
        if self.pools.len() <= pool as usize {
            self.pools.resize(pool as usize + 1, Pool::default());
        }
        self.connections[conn as usize] = Member { pool, segment };
        let pool = &mut self.pools[pool as usize];
        if pool.members.is_empty() {
            (pool.limit, pool.thawed) = (self.size as f64, Instant::ZERO);
        }
        pool.members.push(conn);
    }

    /// A packet of the connection has come, marked or not. Whether that moved the limit.
    pub fn heed(&mut self, conn: Connection, marked: bool, now: Instant) -> bool {
        let Some(FlowControl { decr, incr, freeze }) = self.control else { return false };
        let size = self.size as f64;
        let least = (self.connections[conn as usize].segment as f64).min(size);
        let pool = self.pool_mut(conn);
        let before = pool.limit;
        if marked {
            pool.limit = (pool.limit * decr).max(least);
        } else if now >= pool.thawed {
            pool.limit = (pool.limit * (1.0 + incr)).min(size);
            pool.thawed = now + freeze;
        }
        pool.limit != before
    }

    /// A connection is over; `held` of its bytes were never acknowledged.
    pub fn close(&mut self, conn: Connection, held: u64) {
        self.release(conn, held);
        self.pool_mut(conn).members.retain(|&member| member != conn);
    }

    /// The PEP took bytes from the server.
    pub fn take(&mut self, conn: Connection, bytes: u64) {
        self.occupied += bytes;
        self.pool_mut(conn).occupied += bytes;
    }

    /// The satellite side acknowledged bytes.
    pub fn release(&mut self, conn: Connection, bytes: u64) {
        let pool = self.pool_mut(conn);
        debug_assert!(pool.occupied >= bytes, "more acknowledged than taken");
        let bytes = bytes.min(pool.occupied);
        pool.occupied -= bytes;
        self.occupied -= bytes;
    }

    /// What the connection's server may still send [bytes].
    ///
    /// RFC 9293 section 3.8.6.2.2: nothing rather than less than a segment, or than half of the buffer if that is less.
    #[must_use]
    pub fn room(&self, conn: Connection) -> u64 {
        let member = self.connections[conn as usize];
        let pool = &self.pools[member.pool as usize];
        let room = (pool.limit as u64).saturating_sub(pool.occupied);
        if room < member.segment.min(self.size / 2) { 0 } else { room }
    }

    /// Whether marks move limits, and if so: their mean over the open buffers [bytes], NaN where none is, and how many
    /// connections are offered nothing at all.
    #[must_use]
    pub fn limits(&self) -> Option<(f64, u32)> {
        self.control?;
        let open = || self.pools.iter().filter(|pool| !pool.members.is_empty());
        let sum: f64 = open().map(|pool| pool.limit).sum();
        let closed = open().flat_map(|pool| &pool.members).filter(|&&conn| self.room(conn) == 0).count();
        Some((sum / open().count() as f64, closed as u32))
    }

    /// The connections that share this one's buffer, itself among them.
    #[must_use]
    pub fn sharers(&self, conn: Connection) -> &[Connection] {
        &self.pools[self.connections[conn as usize].pool as usize].members
    }

    /// Bytes held in all.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    fn pool_mut(&mut self, conn: Connection) -> &mut Pool {
        &mut self.pools[self.connections[conn as usize].pool as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_connections_share_one_buffer() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerUser);
        let (a, b, other) = (0, 1, 2);
        buffers.open(a, 0, 100);
        buffers.open(b, 0, 100);
        buffers.open(other, 1, 100);
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
        buffers.open(a, 0, 100);
        buffers.open(b, 0, 100);
        buffers.take(a, 1500);
        assert_eq!([buffers.room(a), buffers.room(b)], [0, 1000]);
        buffers.close(a, 1500);
        buffers.open(a, 7, 100);
        assert_eq!(buffers.room(a), 1000);
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// FC 4 of Table 3.2 with a buffer of 10 000 bytes and segments of 1000, 3000 of them occupied.
    ///
    /// The first packet, unmarked, finds the limit at the whole buffer: the step to 10 100 is cut to 10 000, and the next
    /// may come 200 ms later. Two marks: 8000, 6400. Unmarked at 199 ms: too early. At 200 ms: 6400 · 1.01 = 6464. At
    /// 300 ms: too early, at 400 ms: 6528.64. A mark does not wait: 5222.912.
    #[test]
    fn marks_cut_the_limit_and_other_packets_let_it_grow() {
        let control = FlowControl { decr: 0.8, incr: 0.01, freeze: Duration::from_millis(200) };
        let mut buffers = PepBuffers::new(10_000, Sharing::PerConnection).with_control(Some(control));
        buffers.open(0, 0, 1000);
        buffers.open(1, 0, 1000);
        buffers.take(0, 3000);
        let steps = [
            (0, false, false, 7000),
            (10, true, true, 5000),
            (20, true, true, 3400),
            (199, false, false, 3400),
            (200, false, true, 3464),
            (300, false, false, 3464),
            (400, false, true, 3528),
            (400, true, true, 2222),
        ];
        for (ms, marked, moved, room) in steps {
            assert_eq!((buffers.heed(0, marked, at(ms)), buffers.room(0)), (moved, room), "at {ms} ms");
        }
        assert_eq!(buffers.room(1), 10_000, "the other connection's limit");
        let (mean, closed) = buffers.limits().unwrap();
        assert!((mean - (5222.912 + 10_000.0) / 2.0).abs() < 1e-9 && closed == 0, "{mean} {closed}");
    }

    /// Ten halvings of 10 000 bytes leave 9.8, but the limit stays at a segment. While it is occupied the window is closed;
    /// once it is not, it opens by a whole segment, not by the 999 bytes that were free before (RFC 9293 3.8.6.2.2).
    #[test]
    fn a_limit_keeps_a_segment_and_a_window_opens_by_one() {
        let control = FlowControl { decr: 0.5, incr: 0.01, freeze: Duration::from_millis(200) };
        let mut buffers = PepBuffers::new(10_000, Sharing::PerConnection).with_control(Some(control));
        buffers.open(0, 0, 1000);
        buffers.take(0, 1000);
        for ms in 0..10 {
            buffers.heed(0, true, at(ms));
        }
        assert_eq!((buffers.room(0), buffers.limits()), (0, Some((1000.0, 1))));
        buffers.release(0, 999);
        assert_eq!(buffers.room(0), 0);
        buffers.release(0, 1);
        assert_eq!(buffers.room(0), 1000);
        // The next connection of that number begins anew.
        buffers.close(0, 0);
        buffers.open(0, 3, 1000);
        assert_eq!(buffers.room(0), 10_000);
    }

    /// A buffer of less than a segment is the least limit there is; half of it is enough to be offered.
    #[test]
    fn a_small_buffer_opens_by_its_half() {
        let control = FlowControl { decr: 0.5, incr: 0.01, freeze: Duration::ZERO };
        let mut buffers = PepBuffers::new(600, Sharing::PerConnection).with_control(Some(control));
        buffers.open(0, 0, 1000);
        assert!(!buffers.heed(0, true, at(0)));
        buffers.take(0, 301);
        assert_eq!(buffers.room(0), 0);
        buffers.release(0, 1);
        assert_eq!(buffers.room(0), 300);
    }

    /// Without flow control nothing moves.
    #[test]
    fn marks_are_not_heeded_without_flow_control() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerConnection);
        buffers.open(0, 0, 100);
        assert!(!buffers.heed(0, true, at(0)));
        assert_eq!((buffers.room(0), buffers.limits()), (1000, None));
    }
}
