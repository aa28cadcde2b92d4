//! PEP buffers: how much each server may still send.
//!
//! The PEP advertises the free part of a connection's or user's buffer to its servers. With [`FlowControl`] it is the
//! free part of a limit `B`, at first the whole buffer ([B07] 2.3, equation 2.1):
//!
//! - a marked packet: `B *= decr`, but not below a segment;
//! - an unmarked packet, at most once per `freeze`: `B = min(buffer, B (1 + incr))`;
//! - the window: `W = clamp(B - occupied, 0, MaxRcvWind)`; TCP applies MaxRcvWind.
//!
//! *Departures:* "1 % of the available buffer" is taken as a share of the current limit; as a share of the whole
//! buffer, no setting of the paper but the last would slow anything down. The minimum limit is not from the paper: from
//! less, steps of 1 % take minutes to recover. Less than a segment is not offered (RFC 9293 section 3.8.6.2.2).

use bentpipe_units::{Duration, Instant};

/// Index of a connection in [`PepBuffers`], chosen by the host: small numbers, each in use once at a time.
pub type ConnectionIndex = u32;

/// Sharing of buffers between connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One buffer per connection.
    PerConnection,
    /// One buffer per user, shared by all connections of the user.
    PerUser,
}

/// Flow control: parameters of the limit on a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowControl {
    /// Factor by which a mark reduces the limit.
    pub decr: f64,
    /// Share of the limit by which it increases again.
    pub incr: f64,
    /// Minimum time between two increases.
    pub freeze: Duration,
}

/// Buffers of the PEP: bytes from their arrival from a server until the satellite side has acknowledged them ([B07]
/// 2.3).
#[derive(Debug)]
pub struct PepBuffers {
    sharing: Sharing,
    /// Size of a buffer [bytes].
    size: u64,
    control: Option<FlowControl>,
    /// Bytes held in total.
    occupied: u64,
    /// Buffers, indexed by user or by connection.
    buffers: Vec<Buffer>,
    connections: Vec<Member>,
}

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Buffer of the connection.
    buffer: u32,
    /// Payload of a full segment [bytes].
    segment: u64,
}

#[derive(Clone, Debug, Default)]
struct Buffer {
    occupied: u64,
    /// `B`: part of the buffer that may be filled [bytes].
    limit: f64,
    /// Earliest time of the next increase of `B`.
    next_increase: Instant,
    /// Connections that use the buffer.
    members: Vec<ConnectionIndex>,
}

impl PepBuffers {
    /// Empty buffers of `size` bytes each.
    #[must_use]
    pub fn new(size: u64, sharing: Sharing) -> Self {
        Self { sharing, size, control: None, occupied: 0, buffers: Vec::new(), connections: Vec::new() }
    }

    /// Sets the flow control. It reduces the limit of a buffer, for all connections that share it.
    #[must_use]
    pub fn with_control(self, control: Option<FlowControl>) -> Self {
        Self { control, ..self }
    }

    /// True if marks reduce limits.
    #[must_use]
    #[inline]
    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Opens a connection of a user, with segments of `segment` bytes of payload.
    pub fn open(&mut self, conn: ConnectionIndex, user: u32, segment: u64) {
        if self.connections.len() <= conn as usize {
            self.connections.resize(conn as usize + 1, Member::default());
        }
        let buffer = match self.sharing {
            Sharing::PerConnection => conn,
            Sharing::PerUser => user,
        };
        if self.buffers.len() <= buffer as usize {
            self.buffers.resize(buffer as usize + 1, Buffer::default());
        }
        self.connections[conn as usize] = Member { buffer, segment };
        let buffer = &mut self.buffers[buffer as usize];
        if buffer.members.is_empty() {
            (buffer.limit, buffer.next_increase) = (self.size as f64, Instant::ZERO);
        }
        buffer.members.push(conn);
    }

    /// Processes a packet of a connection, marked or not. Returns true if it changed the limit.
    pub fn on_packet(&mut self, conn: ConnectionIndex, marked: bool, now: Instant) -> bool {
        let Some(FlowControl { decr, incr, freeze }) = self.control else { return false };
        let size = self.size as f64;
        let least = (self.connections[conn as usize].segment as f64).min(size);
        let buffer = self.buffer_mut(conn);
        let before = buffer.limit;
        if marked {
            buffer.limit = (buffer.limit * decr).max(least);
        } else if now >= buffer.next_increase {
            buffer.limit = (buffer.limit * (1.0 + incr)).min(size);
            buffer.next_increase = now + freeze;
        }
        buffer.limit != before
    }

    /// Closes a connection, of which `held` bytes were never acknowledged.
    pub fn close(&mut self, conn: ConnectionIndex, held: u64) {
        self.release(conn, held);
        self.buffer_mut(conn).members.retain(|&member| member != conn);
    }

    /// Adds bytes taken from the server.
    pub fn take(&mut self, conn: ConnectionIndex, bytes: u64) {
        self.occupied += bytes;
        self.buffer_mut(conn).occupied += bytes;
    }

    /// Removes bytes acknowledged by the satellite side.
    pub fn release(&mut self, conn: ConnectionIndex, bytes: u64) {
        let buffer = self.buffer_mut(conn);
        debug_assert!(buffer.occupied >= bytes, "more acknowledged than taken");
        let bytes = bytes.min(buffer.occupied);
        buffer.occupied -= bytes;
        self.occupied -= bytes;
    }

    /// Window of the connection's server [bytes].
    ///
    /// RFC 9293 section 3.8.6.2.2: zero instead of less than a segment, or less than half of the buffer if that is
    /// smaller.
    #[must_use]
    pub fn room(&self, conn: ConnectionIndex) -> u64 {
        let member = self.connections[conn as usize];
        let buffer = &self.buffers[member.buffer as usize];
        let room = (buffer.limit as u64).saturating_sub(buffer.occupied);
        if room < member.segment.min(self.size / 2) { 0 } else { room }
    }

    /// Mean limit of the open buffers [bytes], NaN if there are no open buffers, and the number of connections with a
    /// closed window; `None` without flow control.
    #[must_use]
    pub fn limits(&self) -> Option<(f64, u32)> {
        self.control?;
        let open = || self.buffers.iter().filter(|buffer| !buffer.members.is_empty());
        let sum: f64 = open().map(|buffer| buffer.limit).sum();
        let closed = open().flat_map(|buffer| &buffer.members).filter(|&&conn| self.room(conn) == 0).count();
        Some((sum / open().count() as f64, closed as u32))
    }

    /// The connections that share this one's buffer, including itself; those that read last come last.
    #[must_use]
    pub fn sharers(&self, conn: ConnectionIndex) -> &[ConnectionIndex] {
        &self.buffers[self.connections[conn as usize].buffer as usize].members
    }

    /// Bytes that a connection may read into its buffer now: its part of the room, or two segments if that is more.
    #[must_use]
    pub fn share(&self, conn: ConnectionIndex) -> u64 {
        let room = self.room(conn);
        let part = room / self.sharers(conn).len().max(1) as u64;
        part.max(2 * self.connections[conn as usize].segment).min(room)
    }

    /// Puts a connection that has read behind those that share its buffer.
    pub fn has_read(&mut self, conn: ConnectionIndex) {
        let members = &mut self.buffer_mut(conn).members;
        if let Some(place) = members.iter().position(|&member| member == conn) {
            members[place..].rotate_left(1);
        }
    }

    /// Bytes held in total.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    fn buffer_mut(&mut self, conn: ConnectionIndex) -> &mut Buffer {
        &mut self.buffers[self.connections[conn as usize].buffer as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer of 12 segments: each of three connections may read four of them, then a third of the rest, but two segments at
    /// least while there is room.
    #[test]
    fn connections_that_share_a_buffer_read_in_turn() {
        let mut buffers = PepBuffers::new(1200, Sharing::PerUser);
        (0..3).for_each(|conn| buffers.open(conn, 0, 100));
        let mut shares = Vec::new();
        for _ in 0..5 {
            let first = buffers.sharers(0)[0];
            shares.push((first, buffers.share(first)));
            buffers.take(first, buffers.share(first));
            buffers.has_read(first);
        }
        assert_eq!(shares, [(0, 400), (1, 266), (2, 200), (0, 200), (1, 134)]);
        assert_eq!(buffers.share(2), 0);
    }

    #[test]
    fn connections_of_a_user_share_a_buffer() {
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
    fn connections_have_separate_buffers() {
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
    /// The first packet, unmarked, finds the limit at the whole buffer: the increase to 10 100 is limited to 10 000,
    /// and the next one is possible 200 ms later. Two marks: 8000, 6400. Unmarked at 199 ms: too early. At 200 ms: 6400
    /// · 1.01 = 6464. At 300 ms: too early, at 400 ms: 6528.64. A mark takes effect at once: 5222.912.
    #[test]
    fn marks_reduce_the_limit_and_unmarked_packets_increase_it() {
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
            assert_eq!((buffers.on_packet(0, marked, at(ms)), buffers.room(0)), (moved, room), "at {ms} ms");
        }
        assert_eq!(buffers.room(1), 10_000, "the other connection's limit");
        let (mean, closed) = buffers.limits().unwrap();
        assert!((mean - (5222.912 + 10_000.0) / 2.0).abs() < 1e-9 && closed == 0, "{mean} {closed}");
    }

    /// Ten halvings of 10 000 bytes give 9.8, but the limit stays at a segment. While the segment is occupied the
    /// window is closed; then it opens by a whole segment, not by the 999 bytes that were free before (RFC 9293
    /// 3.8.6.2.2).
    #[test]
    fn the_limit_is_at_least_a_segment_and_the_window_opens_by_one() {
        let control = FlowControl { decr: 0.5, incr: 0.01, freeze: Duration::from_millis(200) };
        let mut buffers = PepBuffers::new(10_000, Sharing::PerConnection).with_control(Some(control));
        buffers.open(0, 0, 1000);
        buffers.take(0, 1000);
        for ms in 0..10 {
            buffers.on_packet(0, true, at(ms));
        }
        assert_eq!((buffers.room(0), buffers.limits()), (0, Some((1000.0, 1))));
        buffers.release(0, 999);
        assert_eq!(buffers.room(0), 0);
        buffers.release(0, 1);
        assert_eq!(buffers.room(0), 1000);
        // The next connection with this number starts with the whole buffer.
        buffers.close(0, 0);
        buffers.open(0, 3, 1000);
        assert_eq!(buffers.room(0), 10_000);
    }

    /// A buffer of less than a segment is the minimum limit; half of it is enough to be offered.
    #[test]
    fn a_small_buffer_opens_by_half_of_it() {
        let control = FlowControl { decr: 0.5, incr: 0.01, freeze: Duration::ZERO };
        let mut buffers = PepBuffers::new(600, Sharing::PerConnection).with_control(Some(control));
        buffers.open(0, 0, 1000);
        assert!(!buffers.on_packet(0, true, at(0)));
        buffers.take(0, 301);
        assert_eq!(buffers.room(0), 0);
        buffers.release(0, 1);
        assert_eq!(buffers.room(0), 300);
    }

    #[test]
    fn marks_have_no_effect_without_flow_control() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerConnection);
        buffers.open(0, 0, 100);
        assert!(!buffers.on_packet(0, true, at(0)));
        assert_eq!((buffers.room(0), buffers.limits()), (1000, None));
    }

    #[test]
    fn occupied_bytes_are_those_of_all_buffers() {
        let mut buffers = PepBuffers::new(1000, Sharing::PerConnection);
        buffers.open(0, 0, 100);
        buffers.open(1, 0, 100);
        buffers.take(0, 300);
        buffers.take(1, 400);
        assert_eq!(buffers.occupied(), 700);
        buffers.release(0, 200);
        assert_eq!(buffers.occupied(), 500);
        assert!(!buffers.has_control());
        let control = FlowControl { decr: 0.5, incr: 0.01, freeze: Duration::ZERO };
        assert!(buffers.with_control(Some(control)).has_control());
    }
}
