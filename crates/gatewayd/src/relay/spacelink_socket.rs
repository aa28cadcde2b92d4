//! The spacelink's UDP socket.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use bentpipe_spacelink::{Certificate, Hub, Identity, KeyError, Setup, Spacelink};
use bentpipe_units::{Instant, Rate};
use nix::libc::ECONNREFUSED;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use serde_json::json;

use crate::config::{Config, Role};
use crate::event_loop::setup::{Failure, failed};
use crate::relay::sender::{Sender, Socket};
use crate::sys::{self, clock::Clock};

/// Batches of datagrams read in one turn.
pub const MOST_BATCHES: usize = 4;
/// ICMP errors read at once.
const MOST_ERRORS: usize = 64;
/// Kernel buffer for received datagrams [bytes].
const RECEIVE_BUFFER: usize = 16 << 20;
/// Kernel buffer for datagrams to send [bytes].
const SEND_BUFFER: usize = 4 << 20;

/// The spacelink and its socket.
pub struct SpacelinkSocket {
    /// The sans-IO ends of the spacelinks, one for each peer.
    pub hub: Hub,
    socket: Arc<Socket>,
    sender: Sender,
    /// Most datagrams sent by one call: as many as fit an IP packet.
    most: usize,
    /// Space for a received batch.
    batch: Vec<Vec<u8>>,
}

impl SpacelinkSocket {
    /// Opens the socket, and listens or begins to connect. The link towards the peer has `rate`, or no limit.
    pub fn open(config: &Config, rate: Option<Rate>, clock: &Clock, now: Instant) -> Result<Self, Failure> {
        let (own, other) = match config.role {
            Role::Gateway => ("gateway", "terminal"),
            Role::Terminal => ("terminal", "gateway"),
        };
        let at = |name: &str, end: &str| config.keys.join(format!("{name}.{end}"));
        let key = |e: KeyError| Failure(format!("satellite.keys: {e}"));
        let identity = Identity::read(&at(own, "key"), &at(own, "crt")).map_err(key)?;
        let local = config.satellite.local.0;
        let peer = match config.satellite.peer {
            Some(address) => Some((address.0, Certificate::read(&at(other, "crt")).map_err(key)?)),
            None => None,
        };
        let std_time = |time: bentpipe_units::Duration| StdDuration::from_nanos(time.as_nanos());
        let certificate = peer.as_ref().map(|(_, certificate)| certificate.clone());
        let mut setup = Setup::new(identity, certificate, rate, std_time(config.satellite.round_trip.time()));
        let headers = if local.is_ipv4() { 28 } else { 48 };
        setup.mtu = u16::try_from(config.satellite.mtu.0.saturating_sub(headers)).unwrap_or(u16::MAX);
        // QUIC reserves memory for each stream that a peer may open.
        setup.streams = match &config.terminals {
            Some(terminals) => terminals.connections,
            None => config.limits.connections.0.saturating_add(1000),
        };
        setup.ack_every = config.gateway.spacelink.ack_every;
        setup.ack_delay = std_time(config.gateway.spacelink.ack_delay);
        let now = clock.std(now);
        let hub = match (config.role, peer) {
            (Role::Gateway, Some((to, _))) => Spacelink::listen(&setup, Some(to.ip()), now).map(Hub::of),
            (Role::Terminal, Some((to, _))) => Spacelink::connect(&setup, to, now).map(Hub::of),
            (_, None) => Hub::listen(&setup, now),
        };
        let socket = bind_when_free(local, thread::sleep).map_err(failed(&format!("UDP {local}")))?;
        sys::enlarge_buffers(socket.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
        let state = UdpSocketState::new((&socket).into()).map_err(failed("UDP"))?;
        state.enable_transport_errors((&socket).into()).map_err(failed("UDP"))?;
        let room = state.gro_segments().max(1) * usize::from(setup.mtu);
        let most = (65_000 / usize::from(setup.mtu)).max(1);
        let socket = Arc::new(Socket { udp: socket, state });
        Ok(Self {
            hub: hub.map_err(key)?,
            most,
            batch: (0..BATCH_SIZE).map(|_| vec![0; room.max(65_536)]).collect(),
            sender: Sender::new(socket.clone()),
            socket,
        })
    }

    /// Sends in a separate thread from now on, under SCHED_FIFO if `realtime`.
    pub fn start_sender(&mut self, realtime: bool) -> io::Result<()> {
        self.sender.start_thread(realtime)
    }

    /// Time of the spacelink's next timer.
    pub fn next_timer(&mut self, clock: &Clock) -> Option<Instant> {
        self.hub.timer().map(|at| clock.from_std(at))
    }

    /// Runs the spacelink's timers that are due.
    pub fn run_timers(&mut self, now: StdInstant) {
        if self.hub.timer().is_some_and(|due| due <= now) {
            self.hub.on_timer(now);
        }
    }

    /// True if the kernel did not take all datagrams.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.sender.is_blocked()
    }

    /// Counters of the spacelink as JSON.
    #[must_use]
    pub fn report(&self) -> serde_json::Value {
        let s = self.hub.stats();
        json!({
            "up": s.up,
            "round_trip_s": s.round_trip.as_secs_f64(),
            "connections": s.connections,
            "sent_datagrams": s.sent_datagrams,
            "sent_bytes": s.sent_bytes,
            "received_datagrams": s.received_datagrams,
            "received_bytes": s.received_bytes,
            "sent_packets": s.sent_packets,
            "lost_packets": s.lost_packets,
            "lost_bytes": s.lost_bytes,
            "streams_opened": s.opened,
            "written_bytes": s.written_bytes,
            "read_bytes": s.read_bytes,
            "sent_ip": s.sent_ip,
            "received_ip": s.received_ip,
            "fragmented_ip": s.fragmented_ip,
            "unassembled_ip": s.unassembled_ip,
            "malformed": s.malformed,
        })
    }

    /// Reads pending ICMP errors, which the next call on the socket would report otherwise.
    pub fn read_errors(&mut self, now: StdInstant) {
        for _ in 0..MOST_ERRORS {
            let Ok(Some(error)) = self.socket.state.recv_transport_error((&self.socket.udp).into()) else {
                return;
            };
            if let (Some(host), ECONNREFUSED) = (error.addr, error.raw_errno) {
                self.hub.unreachable(now, host.ip());
            }
        }
    }

    /// Sends the spacelink's datagrams until the kernel takes no more. Returns the number of calls whose datagrams were lost.
    pub fn flush(&mut self, now: StdInstant) -> u64 {
        let (hub, most) = (&mut self.hub, self.socket.group(self.most));
        self.sender.flush(|out| hub.transmit(now, most, out))
    }

    /// Reads a batch of datagrams.
    pub fn receive(&mut self, now: StdInstant) -> io::Result<()> {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<_> = self.batch.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
        let count = self.socket.state.recv((&self.socket.udp).into(), &mut slices, &mut meta)?;
        drop(slices);
        for (meta, bytes) in meta.iter().zip(&self.batch).take(count) {
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            for datagram in bytes[..meta.len].chunks(meta.stride.max(1)) {
                self.hub.receive(now, meta.addr, meta.dst_ip, ecn, datagram);
            }
        }
        Ok(())
    }
}

/// Binds a socket to an address, and waits up to a second for one that is taken: a command that a killed daemon had just started
/// holds the daemon's sockets until it has replaced its copy of the process.
fn bind_when_free(local: SocketAddr, mut pause: impl FnMut(StdDuration)) -> io::Result<UdpSocket> {
    for _ in 0..100 {
        match UdpSocket::bind(local) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => pause(StdDuration::from_millis(10)),
            other => return other,
        }
    }
    UdpSocket::bind(local)
}

impl AsFd for SpacelinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_becomes_free_is_bound() {
        let mut taken = Some(UdpSocket::bind("127.0.0.1:0").unwrap());
        let local = taken.as_ref().unwrap().local_addr().unwrap();
        let mut waited = StdDuration::ZERO;
        let refused = bind_when_free(local, |time| waited += time).unwrap_err();
        assert_eq!((refused.kind(), waited), (io::ErrorKind::AddrInUse, StdDuration::from_secs(1)));
        let mut pauses = 0;
        let bound = bind_when_free(local, |_| {
            pauses += 1;
            taken.take_if(|_| pauses == 3);
        });
        assert_eq!((bound.unwrap().local_addr().unwrap(), pauses), (local, 3));
    }
}
