//! The far end: the spacelink and the UDP socket that it goes over.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Instant as StdInstant;

use bentpipe_units::{Instant, Rate};
use nix::sys::epoll::EpollFlags;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSocketState};
use serde_json::json;

use super::{Daemon, Failure, failed};
use crate::config::{Config, Role};
use crate::observe::cause::Cause;
use crate::observe::log;
use crate::sys;
use crate::sys::clock::Clock;
use bentpipe_spacelink::{Certificate, Event, Identity, Setup, Spacelink, Transmit};

/// Batches of datagrams read in one turn.
const MOST_BATCHES: usize = 4;
/// Errors of the network taken in at once.
const MOST_ERRORS: usize = 64;
/// What the system may keep of datagrams [bytes].
const RECEIVE_BUFFER: usize = 16 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// The spacelink and its socket.
pub struct Space {
    pub link: Spacelink,
    pub socket: UdpSocket,
    state: UdpSocketState,
    /// Datagrams that go in one call: as many as the system segments, and an IP packet can be.
    most: usize,
    /// Room for a batch of datagrams.
    batch: Vec<Vec<u8>>,
    /// Datagrams to send.
    out: Vec<u8>,
    /// … that the system did not take yet.
    unsent: Option<Transmit>,
}

impl Space {
    /// Opens the socket, and listens or begins to connect. The link towards the far end has `rate`, or carries anything.
    pub fn open(config: &Config, rate: Option<Rate>, clock: &Clock, now: Instant) -> Result<Self, Failure> {
        let (own, other) = match config.role {
            Role::Gateway => ("gateway", "terminal"),
            Role::Terminal => ("terminal", "gateway"),
        };
        let at = |name: &str, end: &str| config.keys.join(format!("{name}.{end}"));
        let key = |e: bentpipe_spacelink::KeyError| Failure(format!("satellite.keys: {e}"));
        let identity = Identity::read(&at(own, "key"), &at(own, "crt")).map_err(key)?;
        let peer = Certificate::read(&at(other, "crt")).map_err(key)?;
        let (local, to) = (config.satellite.local.0, config.satellite.peer.0);
        let round_trip = config.satellite.round_trip.time();
        let round_trip = std::time::Duration::from_nanos(round_trip.as_nanos());
        let mut setup = Setup::new(identity, peer, rate, round_trip);
        let headers = if local.is_ipv4() { 28 } else { 48 };
        setup.mtu = u16::try_from(config.satellite.mtu.0.saturating_sub(headers)).unwrap_or(u16::MAX);
        setup.streams = config.limits.connections.0.saturating_add(1000);
        setup.ack_every = config.gateway.spacelink.ack_every;
        setup.ack_delay = std::time::Duration::from_nanos(config.gateway.spacelink.ack_delay.as_nanos());
        let now = clock.std(now);
        let link = match config.role {
            Role::Gateway => Spacelink::listen(&setup, now),
            Role::Terminal => Spacelink::connect(&setup, to, now),
        };
        let socket = UdpSocket::bind(local).map_err(failed(&format!("UDP {local}")))?;
        sys::deepen(socket.as_fd(), RECEIVE_BUFFER, SEND_BUFFER);
        let state = UdpSocketState::new((&socket).into()).map_err(failed("UDP"))?;
        state.enable_transport_errors((&socket).into()).map_err(failed("UDP"))?;
        let room = state.gro_segments().max(1) * usize::from(setup.mtu);
        let most = state.max_gso_segments().min(65_000 / usize::from(setup.mtu)).max(1);
        Ok(Self {
            link: link.map_err(key)?,
            most,
            batch: (0..BATCH_SIZE).map(|_| vec![0; room.max(65_536)]).collect(),
            socket,
            state,
            out: Vec::new(),
            unsent: None,
        })
    }

    /// When the spacelink wants to be woken.
    pub fn timer(&mut self, clock: &Clock) -> Option<Instant> {
        self.link.timer().map(|at| clock.from_std(at))
    }

    /// Wakes it, if it is time.
    pub fn tick(&mut self, now: StdInstant) {
        if self.link.timer().is_some_and(|due| due <= now) {
            self.link.on_timer(now);
        }
    }

    /// Whether the system took less than there was to send.
    pub fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    /// Says farewell.
    pub fn close(&mut self, now: StdInstant) {
        self.link.close(now);
    }

    /// What the spacelink counted, as JSON.
    pub fn report(&self) -> serde_json::Value {
        let s = self.link.stats();
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

    /// Takes in what the network has said of datagrams that were sent. The next call on the socket would fail for it.
    fn hear_errors(&mut self, now: StdInstant) {
        for _ in 0..MOST_ERRORS {
            let Ok(Some(error)) = self.state.recv_transport_error((&self.socket).into()) else { return };
            if let (Some(host), nix::libc::ECONNREFUSED) = (error.addr, error.raw_errno) {
                self.link.unreachable(now, host.ip());
            }
        }
    }

    /// Sends what the spacelink has to send, until the system takes no more.
    fn flush(&mut self, now: StdInstant, lost: &mut u64) {
        let mut again = true;
        loop {
            let transmit = match self.unsent.take() {
                Some(transmit) => transmit,
                None => match self.link.transmit(now, self.most, &mut self.out) {
                    Some(transmit) => transmit,
                    None => return,
                },
            };
            let datagrams = quinn_udp::Transmit {
                destination: transmit.to,
                ecn: EcnCodepoint::from_bits(transmit.ecn),
                contents: &self.out,
                segment_size: transmit.segment,
                src_ip: transmit.from,
            };
            match self.state.try_send((&self.socket).into(), &datagrams) {
                Ok(()) => again = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some(transmit);
                    return;
                }
                // It may have been about an earlier one.
                Err(_) if again => {
                    again = false;
                    self.unsent = Some(transmit);
                    self.hear_errors(now);
                }
                // Lost, as on the way: the spacelink sends it again.
                Err(_) => *lost += 1,
            }
        }
    }

    /// Reads a batch of datagrams; how many there were.
    fn receive(&mut self, now: StdInstant) -> io::Result<usize> {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<_> = self.batch.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
        let count = self.state.recv((&self.socket).into(), &mut slices, &mut meta)?;
        drop(slices);
        for (meta, bytes) in meta.iter().zip(&self.batch).take(count) {
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            for datagram in bytes[..meta.len].chunks(meta.stride.max(1)) {
                self.link.receive(now, meta.addr, meta.dst_ip, ecn, datagram);
            }
        }
        Ok(count)
    }
}

impl Daemon {
    /// Takes in what has come from the far end.
    pub(super) fn receive_space(&mut self, events: EpollFlags) {
        let now = self.clock.std(self.now);
        if events.contains(EpollFlags::EPOLLERR) {
            self.space.hear_errors(now);
        }
        if events.contains(EpollFlags::EPOLLIN) {
            for _ in 0..MOST_BATCHES {
                match self.space.receive(now) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        self.counters.faults += 1;
                        break;
                    }
                }
                self.heed_space();
            }
        }
    }

    /// Acts on what the spacelink has heard.
    pub(super) fn heed_space(&mut self) {
        while let Some(event) = self.space.link.poll() {
            match event {
                Event::Up => {
                    log::info("spacelink_up", &[("peer", self.config.satellite.peer.to_string().into())]);
                    self.lead(true);
                }
                Event::Down(reason) => {
                    self.counters.downs += 1;
                    log::warn("spacelink_down", &[("reason", reason.to_string().into())]);
                    self.unreached.clear();
                    (self.far_full, self.told_full) = (false, false);
                    self.lead(false);
                    self.say(&json!({ "spacelink": "down", "reason": reason.to_string() }));
                }
                Event::Failed(reason) => self.complain(&format!("spacelink: {reason}")),
                Event::Opened { stream, header } => self.reach(stream, header),
                Event::Readable(key) => self.with_key(key, |relay| {
                    relay.far_readable = true;
                    relay.answered = true;
                }),
                Event::Writable(key) => {
                    self.write_paid(key);
                    self.with_key(key, |_| {});
                }
                Event::Finished(key) => self.with_key(key, |relay| relay.far_ended = true),
                Event::Reset(key) => self.far_reset(key, Cause::Far),
                Event::Lost(key) => self.far_reset(key, Cause::Spacelink),
                Event::Closed(key) => self.closed(key),
                Event::Acknowledged { stream, bytes } => self.acknowledged(stream, bytes),
                Event::Datagram(packet) => self.deliver_datagram(&packet),
                Event::Full(full) => {
                    self.far_full = full;
                    self.mind_limits();
                }
            }
        }
    }

    /// Sends what there is to send to the far end, and has the regulator pay for what it did not count.
    pub(super) fn flush_space(&mut self) {
        let now = self.clock.std(self.now);
        let mut lost = 0;
        self.space.flush(now, &mut lost);
        self.counters.unsent_datagrams += lost;
        let beyond = self.space.link.charge(std::mem::take(&mut self.counted));
        if beyond > 0 {
            self.counters.charged_bytes += beyond;
            self.gateway.charge(beyond, self.at);
        }
    }
}
