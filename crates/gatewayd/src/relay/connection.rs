//! A relayed connection: a kernel socket at this end, a stream to the peer.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use bentpipe_spacelink::{Hub, StreamKey};
use bentpipe_units::{Duration, Instant};
use nix::sys::epoll::EpollFlags;

use super::memory::PoolId;
use super::outbound::Outbound;
use super::ring::Ring;
use crate::event_loop::sources::Generation;
use crate::sys::{self, segment};

/// Bytes moved for a connection before others have their turn.
pub const PIECE: usize = 64 << 10;
/// Payload of a segment until the kernel knows the real one [bytes].
pub const SEGMENT: u64 = 1400;

/// A relayed connection.
pub struct Relay {
    /// Its stream.
    pub key: StreamKey,
    /// The client's address, with the port that the server sees.
    pub client: SocketAddr,
    /// The client's address at its own host.
    pub origin: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// Its buffer.
    pub pool: PoolId,
    /// Its number among all connections.
    pub generation: Generation,
    /// Bytes from the socket to the stream.
    pub out: Outbound,
    /// Arrival time of the bytes that are ready for the transmit queue.
    pub arrival: Instant,
    /// True once the stream has something to read.
    pub stream_readable: bool,
    /// True once the peer has shown that it is connected as well: by data, or by what it delivered.
    pub answered: bool,
    /// True once the peer has sent everything and all of it was read.
    pub stream_ended: bool,
    /// Sequence number of the sender's first byte.
    pub first_seq: Option<u32>,
    /// Bytes that the sender had in flight when its last packet arrived.
    pub sender_in_flight: u32,
    /// Codepoint (DSCP) of the sender's last packet.
    pub dscp: u8,
    /// True while it is in the ready list.
    pub is_listed: bool,
    /// True while it waits for room in its buffer.
    pub waiting_for_buffer: bool,
    /// True while it waits until the PEP may hold more.
    pub waiting_for_memory: bool,
    socket: TcpStream,
    connected: bool,
    readable: bool,
    writable: bool,
    /// True if a FIN or an error may follow what can be read.
    hung_up: bool,
    /// Bytes read from the stream that the socket did not take.
    inward: Ring,
    /// True once the socket was shut down for writing.
    shut: bool,
    opened: Instant,
    last_activity: Instant,
}

/// Result of reading from a relay's socket.
pub enum Input {
    /// Bytes read.
    Bytes(usize),
    /// End of the data.
    End,
    /// Nothing now.
    Nothing,
    /// Interrupted: try again.
    Again,
}

impl Relay {
    /// A connection with a socket that is connected, to a client, or that connects, to a server.
    pub fn new(
        key: StreamKey,
        [client, server]: [SocketAddr; 2],
        (socket, connected): (TcpStream, bool),
        (pool, ring): (PoolId, Ring),
        generation: Generation,
        now: Instant,
    ) -> Self {
        Self {
            key,
            client,
            origin: client,
            server,
            pool,
            generation,
            out: Outbound::new(ring),
            arrival: now,
            stream_readable: true,
            // The terminal opens a stream only when it has the client's connection.
            answered: !connected,
            stream_ended: false,
            first_seq: None,
            sender_in_flight: 0,
            dscp: 0,
            is_listed: false,
            waiting_for_buffer: false,
            waiting_for_memory: false,
            socket,
            connected,
            readable: false,
            writable: connected,
            hung_up: false,
            inward: Ring::default(),
            shut: false,
            opened: now,
            last_activity: now,
        }
    }

    /// Payload of the sender's segments [bytes].
    #[must_use]
    pub fn segment_of(socket: &TcpStream, connected: bool) -> u64 {
        if connected { segment(socket) } else { SEGMENT }
    }

    /// True once the socket is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// True once both ends are connected.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connected && self.answered
    }

    /// Notes events of the socket.
    pub fn on_events(&mut self, events: EpollFlags) {
        let over = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        self.readable |= events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | over);
        self.writable |= events.intersects(EpollFlags::EPOLLOUT | over);
        self.hung_up |= events.intersects(EpollFlags::EPOLLRDHUP | over);
    }

    /// Notes activity at `now`.
    pub fn touch(&mut self, now: Instant) {
        self.last_activity = now;
    }

    /// Time without activity.
    #[must_use]
    pub fn idle(&self, now: Instant) -> Duration {
        now - self.last_activity
    }

    /// Time since the connection was opened while its server has not answered; `None` once it has.
    #[must_use]
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        (!self.connected).then(|| now - self.opened)
    }

    /// Bytes in the kernel that were not read yet.
    #[must_use]
    pub fn unread(&self) -> u64 {
        sys::unread(&self.socket)
    }

    /// The error of a socket that failed to connect.
    pub fn connect_error(&mut self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// True if the socket is not connected yet but could be, by what epoll reported.
    #[must_use]
    pub fn may_be_connected(&self) -> bool {
        !self.connected && self.writable
    }

    /// Notes that the socket is connected.
    pub fn set_connected(&mut self) {
        self.connected = true;
    }

    /// Gives up the socket and the bytes on their way to the stream.
    pub fn into_parts(self) -> (TcpStream, Outbound) {
        (self.socket, self.out)
    }

    /// Moves up to a piece from the stream to the socket. Returns the bytes moved, and true if there is more to do now.
    pub fn move_inward(
        &mut self,
        link: &mut Hub,
        scratch: &mut [u8],
        now: Instant,
    ) -> (u64, io::Result<bool>) {
        let mut moved = 0;
        let result = self.try_move_inward(link, scratch, now, &mut moved);
        (moved as u64, result)
    }

    fn try_move_inward(
        &mut self,
        link: &mut Hub,
        scratch: &mut [u8],
        now: Instant,
        moved: &mut usize,
    ) -> io::Result<bool> {
        while self.writable && !self.shut {
            let written = if self.inward.is_empty() {
                if !self.stream_readable || *moved >= PIECE {
                    break;
                }
                let read = link.read(self.key, scratch);
                self.stream_readable = read == scratch.len();
                if read == 0 {
                    break;
                }
                let written = write(&mut self.socket, &scratch[..read])?;
                self.inward.put(&scratch[written..read]);
                written
            } else {
                match self.inward.drain(&mut self.socket) {
                    Ok(written) => written,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(e) => return Err(e),
                }
            };
            if written > 0 {
                *moved += written;
                self.last_activity = now;
                link.delivered(self.key, written as u64);
            }
            self.writable = self.inward.is_empty();
        }
        if self.stream_ended && self.inward.is_empty() && !self.shut && self.connected {
            self.shut = true;
            // It fails if the connection is gone, which reading will show.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        Ok(self.writable && self.stream_readable && !self.shut)
    }

    /// True if the socket may have something to read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.readable && !self.out.ended
    }

    /// Reads at most `most` bytes from the socket.
    pub fn read(&mut self, most: usize, scratch: &mut [u8], now: Instant) -> io::Result<Input> {
        let read = match self.out.ring.fill(&mut self.socket, most, scratch) {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(Input::Nothing);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Input::Again),
            Err(e) => return Err(e),
        };
        self.last_activity = now;
        if read == 0 {
            self.out.ended = true;
            self.readable = false;
            return Ok(Input::End);
        }
        self.out.took(read as u64);
        // Fewer bytes than asked for: there is no more, except perhaps the end.
        self.readable = read == most || self.hung_up;
        Ok(Input::Bytes(read))
    }

    /// Writes released bytes to the stream, as many as it takes, and finishes it after the last.
    pub fn write_released(&mut self, link: &mut Hub) {
        loop {
            let (first, _) = self.out.payable();
            if first.is_empty() {
                break;
            }
            let wanted = first.len();
            let written = link.write(self.key, first);
            self.out.wrote(written as u64);
            if written < wanted {
                break;
            }
        }
        self.finish_stream(link);
    }

    /// Finishes the stream once the last byte is written.
    pub fn finish_stream(&mut self, link: &mut Hub) {
        if self.out.may_finish() {
            self.out.finished = true;
            link.finish(self.key);
        }
    }
}

/// Writes as much as the socket takes.
fn write(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
