//! Reliable transport between the two ends of a satellite gateway in the simulator: many streams over one association.
//!
//! A performance-enhancing proxy terminates TCP on the ground and carries the data across the satellite with a protocol
//! made for it. This one is the loss recovery of QUIC (RFC 9002) without the parts that a link of known rate does not
//! need: no handshake, no encryption and no congestion control. The regulator in front of the link paces the packets of
//! [`Endpoint::poll_transmit`], and [`Config::window`] limits the amount in flight.
//!
//! ```text
//!  host ── open, write, finish, reset, consume ──▶ Endpoint ── poll_transmit ──▶ link
//!  host ◀── poll_event ────────────────────────── Endpoint ◀── on_packet ────── link
//!                          poll_timeout, handle_timeout
//! ```
//!
//! After any call that changes it, a host takes the events, sends while the link accepts packets, and returns at
//! [`Endpoint::poll_timeout`]. No clock is read, and the same calls give the same packets.
//!
//! ```
//! use bentpipe_transport::pep_link::{Config, Endpoint, Event};
//! use bentpipe_units::Instant;
//!
//! let (mut ground, mut terminal) = (Endpoint::new(Config::default()), Endpoint::new(Config::default()));
//! ground.open(0);
//! ground.write(0, 2000);
//! let now = Instant::ZERO;
//! while let Some(packet) = ground.poll_transmit(now) {
//!     terminal.on_packet(now, &packet);
//! }
//! assert_eq!(terminal.poll_event(), Some(Event::Opened { stream: 0 }));
//! assert_eq!(terminal.poll_event(), Some(Event::Readable { stream: 0, bytes: 2000 }));
//! ```
//!
//! *Files*: `config` is what the host sets and `event` what it is told; `packet` is the wire format; `stream` holds the
//! two directions of a stream, `recovery` the packets in flight and their timers, `rtt` the RTT estimate, `received`
//! the packet numbers that arrived and the pending acknowledgement.
//!
//! # Departures from RFC 9002
//! - A probe (6.2.4) removes the oldest packets from flight and sends their content under new numbers, so that a byte
//!   is never in flight twice; acknowledgements of the old numbers no longer count.
//! - The probe timeout is at least 2 s or three initial RTTs, plus the ack delay: half a second of queueing at the
//!   regulator must not look like a loss. Its backoff ends at a factor of 32, or one minute.
//! - Acknowledgements are separate packets without numbers; instead of having them acknowledged, each data packet
//!   carries the number below which its sender needs none.

mod config;
mod event;
mod packet;
mod received;
mod recovery;
mod rtt;
mod stream;

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant};

pub use config::Config;
pub use event::{Event, Stats};
pub use packet::{Ack, AckRange, Data, MAX_ACK_RANGES, MAX_ACK_WINDOWS, Packet, WindowUpdate};
use received::ReceivedPackets;
use recovery::{Frame, Recovery};
use stream::{Fin, Phase, Stream};

/// Stream id: a dense index chosen by the host, unique among open streams.
///
/// A host may reuse it once both ends have reported [`Event::Closed`]. Packets still in flight then do no harm, because
/// they carry the generation of their stream.
pub type StreamId = u32;

/// Ids at and above this are ignored, so that a stray packet cannot exhaust memory.
pub const MAX_STREAMS: u32 = 1 << 20;

/// Number of acknowledgements that carry each window update, because they may be lost.
const WINDOW_REPEATS: u8 = 3;
/// Maximum number of times the interval between window probes doubles.
const MAX_WINDOW_BACKOFF: u32 = 3;

/// One end of an association.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    cfg: Config,
    streams: Vec<Stream>,
    recovery: Recovery,
    received: ReceivedPackets,
    /// Streams with something to send, in round-robin order.
    ready: VecDeque<StreamId>,
    /// Streams with pending events.
    events: VecDeque<StreamId>,
    /// Streams with a window update to send, and how many of them have not sent it yet.
    window_updates: VecDeque<StreamId>,
    unsent_updates: usize,
    /// Streams blocked by the peer's window, and the time of the next window probe.
    blocked: Vec<StreamId>,
    window_probe_at: Option<Instant>,
    stats: Stats,
}

impl Endpoint {
    /// An endpoint without streams.
    #[must_use]
    pub fn new(cfg: Config) -> Self {
        let cfg = Config { max_payload: cfg.max_payload.max(1), ..cfg };
        Self { recovery: Recovery::new(&cfg), received: ReceivedPackets::new(&cfg), cfg, ..Self::default() }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.cfg
    }

    /// Opens a stream and announces it to the peer, with an empty packet if there is no data. No effect if it is open.
    pub fn open(&mut self, s: StreamId) {
        let window = self.cfg.stream_window;
        let Some(stream) = stream_slot(&mut self.streams, s) else { return };
        if stream.phase == Phase::Idle {
            stream.start(stream.generation.wrapping_add(1), window, true);
            self.make_ready(s);
        }
    }

    /// Writes `bytes` to a stream. No effect unless it is [writable](Self::is_writable).
    pub fn write(&mut self, s: StreamId, bytes: u64) {
        if let Some(stream) = live_stream(&mut self.streams, s).filter(|stream| stream.fin == Fin::Unset) {
            stream.written = stream.written.saturating_add(bytes);
            self.make_ready(s);
        }
    }

    /// Ends our direction of a stream after the data written.
    pub fn finish(&mut self, s: StreamId) {
        if let Some(stream) = live_stream(&mut self.streams, s).filter(|stream| stream.fin == Fin::Unset) {
            stream.fin = Fin::Wanted;
            self.make_ready(s);
        }
    }

    /// Resets a stream in both directions: nothing more of it is sent, delivered or reported except `Closed`, once the
    /// peer has acknowledged the reset.
    pub fn reset(&mut self, s: StreamId) {
        if let Some(stream) = live_stream(&mut self.streams, s) {
            stream.abandon();
            self.make_ready(s);
        }
    }

    /// True if a stream accepts [`Self::write`]: it is open, this end has not finished it, and neither end has reset
    /// it.
    #[must_use]
    pub fn is_writable(&self, s: StreamId) -> bool {
        self.streams
            .get(s as usize)
            .is_some_and(|stream| stream.phase == Phase::Live && stream.fin == Fin::Unset)
    }

    /// True if a stream has data that the peer has not acknowledged, sent or not.
    #[must_use]
    pub fn has_unacknowledged(&self, s: StreamId) -> bool {
        let stream = self.streams.get(s as usize);
        stream.is_some_and(|stream| stream.phase == Phase::Live && stream.acked < stream.written)
    }

    /// True if data of a stream wait for the window of the stream, or of the association.
    #[must_use]
    pub fn is_window_limited(&self, s: StreamId) -> bool {
        let is_full = !self.recovery.has_room(self.cfg.max_payload, self.cfg.window);
        self.streams.get(s as usize).is_some_and(|stream| {
            stream.is_blocked() || (stream.phase == Phase::Live && stream.written > stream.sent && is_full)
        })
    }

    /// Consumes `bytes` of a stream, which opens its window. The peer is told when half of the window is used up. No
    /// effect if the stream is not open.
    pub fn consume(&mut self, s: StreamId, bytes: u64) {
        let window = self.cfg.stream_window;
        let Some(stream) = live_stream(&mut self.streams, s) else { return };
        stream.consumed = stream.consumed.saturating_add(bytes).min(stream.next);
        let limit = stream.consumed.saturating_add(window);
        // If the end of the stream is known, the window was wide enough.
        if stream.end.is_none() && limit - stream.advertised >= window.div_ceil(2).max(1) {
            self.advertise(s);
        }
    }

    /// Returns the next packet to send, acknowledgements first; `None` if nothing is due or the window is full.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        match self.poll_ack(now) {
            Some(ack) => Some(Packet::Ack(ack)),
            None => self.poll_data(now).map(Packet::Data),
        }
    }

    /// Returns the acknowledgement that is due, if any.
    pub fn poll_ack(&mut self, now: Instant) -> Option<Ack> {
        let mut ack = self.received.take_ack(now)?;
        for _ in 0..self.window_updates.len().min(MAX_ACK_WINDOWS) {
            let Some(s) = self.window_updates.pop_front() else { break };
            let Some(stream) = self.streams.get_mut(s as usize) else { continue };
            self.unsent_updates -= usize::from(stream.queued.window_updates == WINDOW_REPEATS);
            stream.queued.window_updates -= 1;
            if stream.phase == Phase::Live && stream.end.is_none() {
                let (generation, limit) = (stream.generation, stream.advertised);
                ack.push_window(WindowUpdate { stream: s, generation, limit });
            } else {
                stream.queued.window_updates = 0;
            }
            if stream.queued.window_updates > 0 {
                self.window_updates.push_back(s);
            }
        }
        if self.unsent_updates > 0 {
            self.received.ack_at_once();
        } else if !self.window_updates.is_empty() {
            // A blocked sender triggers no acknowledgements, so the repetitions schedule their own.
            self.received.ack_later(now);
        }
        self.stats.acks_sent += 1;
        Some(ack)
    }

    /// Returns the next data packet, lost ones first; `None` without data to send or if the window is full.
    pub fn poll_data(&mut self, now: Instant) -> Option<Data> {
        let mut data = self.poll_unnumbered(now)?;
        self.assign_number(now, &mut data);
        Some(data)
    }

    /// Like [`Self::poll_data`], for a host with a queue in front of the link: the packet counts as in flight from now
    /// on, but has no number until [`Self::assign_number`]. A queue that reorders or drops packets is then not mistaken
    /// for loss or reordering on the link.
    #[inline]
    pub fn poll_unnumbered(&mut self, now: Instant) -> Option<Data> {
        // Hosts poll until nothing is left, so most calls find nothing.
        if self.recovery.lost.is_empty() && self.ready.is_empty() { None } else { self.poll_pending(now) }
    }

    /// Like [`Self::poll_unnumbered`], after the fast path.
    fn poll_pending(&mut self, now: Instant) -> Option<Data> {
        while let Some(frame) = self.recovery.lost.front().copied() {
            let wanted = self
                .streams
                .get(frame.stream as usize)
                .is_some_and(|stream| stream.needs_retransmission(&frame));
            if wanted {
                if !self.recovery.has_room(frame.len, self.cfg.window) {
                    return None;
                }
                self.recovery.lost.pop_front();
                self.stats.retransmissions += 1;
                return Some(self.reserve(frame, true));
            }
            self.recovery.lost.pop_front();
        }
        while let Some(&s) = self.ready.front() {
            let Some(stream) = self.streams.get_mut(s as usize) else {
                self.ready.pop_front();
                continue;
            };
            let frame = stream.next_frame(s, self.cfg.max_payload);
            if let Some(frame) = frame {
                if !self.recovery.has_room(frame.len, self.cfg.window) {
                    return None;
                }
                stream.on_sent(&frame);
            }
            // Round robin: a stream with more to send goes to the end.
            stream.queued.ready = stream.next_frame(s, self.cfg.max_payload).is_some();
            if self.ready.len() > 1 || !stream.queued.ready {
                self.ready.pop_front();
                if stream.queued.ready {
                    self.ready.push_back(s);
                }
            }
            if stream.is_blocked() {
                self.schedule_window_probe(now, s);
            }
            if let Some(frame) = frame {
                self.stats.window_probes += u64::from(!frame.must_arrive());
                return Some(self.reserve(frame, false));
            }
        }
        None
    }

    /// Processes a packet from the peer.
    pub fn on_packet(&mut self, now: Instant, p: &Packet) {
        match p {
            Packet::Data(data) => self.on_data(now, data),
            Packet::Ack(ack) => self.on_ack(now, ack),
        }
    }

    /// Processes a data packet from the peer.
    pub fn on_data(&mut self, now: Instant, data: &Data) {
        let window = self.cfg.stream_window;
        let Some(stream) = stream_slot(&mut self.streams, data.stream) else { return };
        let newer = data.generation.wrapping_sub(stream.generation).cast_signed() > 0;
        if newer && stream.phase != Phase::Idle {
            // The peer's host reused the id too early. The packet is left unacknowledged and will be resent.
            return;
        }
        self.stats.received += 1;
        if !self.received.on_data(now, data) {
            self.stats.duplicates += 1;
            return;
        }
        if newer {
            // Any packet opens the stream, because the one marked `open` may be lost or late.
            stream.start(data.generation, window, false);
        } else if data.generation != stream.generation || stream.phase == Phase::Idle {
            self.stats.duplicates += 1;
            return;
        }
        if data.len == 0 && data.is_probe() {
            if stream.phase == Phase::Live && stream.consumed.saturating_add(window) > data.offset {
                self.advertise(data.stream);
            }
        } else if !stream.on_data(data) && data.len > 0 && stream.phase == Phase::Live {
            self.stats.duplicates += 1;
        }
        self.queue_event(data.stream);
    }

    /// Processes an acknowledgement from the peer.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.stats.acks_received += 1;
        let (streams, events) = (&mut self.streams, &mut self.events);
        self.recovery.on_ack(now, ack, &mut self.stats, |frame| {
            let s = frame.stream;
            if let Some(stream) = streams.get_mut(s as usize).filter(|it| it.generation == frame.generation) {
                stream.on_acked(frame);
                if !stream.queued.events && stream.has_event() {
                    stream.queued.events = true;
                    events.push_back(s);
                }
            }
        });
        for update in ack.windows() {
            let Some(stream) = live_stream(&mut self.streams, update.stream) else { continue };
            if stream.generation == update.generation && update.limit > stream.limit {
                stream.limit = update.limit;
                stream.probes = 0;
                stream.probe_wanted = false;
                self.make_ready(update.stream);
            }
        }
    }

    /// Time of the next call of [`Self::handle_timeout`]; `None` if no timer runs. Any call may change it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let earlier = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        earlier(earlier(self.received.poll_timeout(), self.recovery.poll_timeout()), self.window_probe_at)
    }

    /// Handles the timers that have expired at `now`; early calls have no effect. [`Self::poll_transmit`] then returns
    /// the packets to send.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.received.poll_timeout().is_some_and(|at| at <= now) {
            self.received.ack_at_once();
        }
        let streams = &self.streams;
        self.recovery.handle_timeout(now, &mut self.stats, |frame| {
            streams.get(frame.stream as usize).is_some_and(|stream| stream.needs_retransmission(frame))
        });
        if self.window_probe_at.is_some_and(|at| at <= now) {
            self.queue_window_probes(now);
        }
    }

    /// Returns the next event of a stream.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(&s) = self.events.front() {
            if let Some(stream) = self.streams.get_mut(s as usize) {
                if let Some(event) = stream.next_event(s) {
                    return Some(event);
                }
                stream.queued.events = false;
            }
            self.events.pop_front();
        }
        None
    }

    /// Counters and path state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let rtt = &self.recovery.rtt;
        Stats {
            in_flight: self.recovery.bytes_in_flight,
            srtt: rtt.smoothed.srtt,
            rttvar: rtt.smoothed.rttvar,
            min_rtt: rtt.min.unwrap_or(Duration::ZERO),
            ..self.stats
        }
    }

    fn reserve(&mut self, frame: Frame, retransmission: bool) -> Data {
        self.stats.sent += 1;
        self.recovery.reserve(frame.len);
        let Frame { offset, stream, generation, len, open, fin, reset } = frame;
        let (number, least_unacked) = (u64::MAX, 0);
        Data { number, least_unacked, offset, stream, generation, len, open, fin, reset, retransmission }
    }

    /// Numbers a packet of [`Self::poll_unnumbered`] as it leaves for the link. A host that drops the packet must call
    /// this too; it then counts as lost like any other that does not arrive.
    pub fn assign_number(&mut self, now: Instant, data: &mut Data) {
        let &mut Data { offset, stream, generation, len, open, fin, reset, .. } = data;
        data.number = self.recovery.on_sent(now, Frame { offset, stream, generation, len, open, fin, reset });
        data.least_unacked = self.recovery.least_unacked();
    }

    fn make_ready(&mut self, s: StreamId) {
        if let Some(stream) = self.streams.get_mut(s as usize).filter(|stream| !stream.queued.ready) {
            stream.queued.ready = true;
            self.ready.push_back(s);
        }
    }

    fn queue_event(&mut self, s: StreamId) {
        if let Some(stream) = self.streams.get_mut(s as usize)
            && !stream.queued.events
            && stream.has_event()
        {
            stream.queued.events = true;
            self.events.push_back(s);
        }
    }

    /// Sends a stream's window with the next acknowledgements.
    fn advertise(&mut self, s: StreamId) {
        let Some(stream) = self.streams.get_mut(s as usize) else { return };
        stream.advertised = stream.consumed.saturating_add(self.cfg.stream_window);
        if stream.queued.window_updates == 0 {
            self.window_updates.push_back(s);
        }
        self.unsent_updates += usize::from(stream.queued.window_updates < WINDOW_REPEATS);
        stream.queued.window_updates = WINDOW_REPEATS;
        self.received.ack_at_once();
    }

    /// Schedules a window probe of a blocked stream, in case the peer's update is lost.
    fn schedule_window_probe(&mut self, now: Instant, s: StreamId) {
        let Some(stream) = self.streams.get_mut(s as usize) else { return };
        if stream.probe_from == Some(stream.sent) {
            // The stream has not advanced since, so the interval continues.
            return;
        }
        stream.probe_from = Some(stream.sent);
        stream.probe_at = now + window_probe_wait(&self.recovery, stream.probes);
        self.window_probe_at =
            Some(self.window_probe_at.map_or(stream.probe_at, |at| at.min(stream.probe_at)));
        if !stream.queued.blocked {
            stream.queued.blocked = true;
            self.blocked.push(s);
        }
    }

    fn queue_window_probes(&mut self, now: Instant) {
        self.window_probe_at = None;
        let mut kept = 0;
        for index in 0..self.blocked.len() {
            let Some(&s) = self.blocked.get(index) else { break };
            let Some(stream) = self.streams.get_mut(s as usize) else { continue };
            if !stream.is_blocked() {
                stream.queued.blocked = false;
                continue;
            }
            if stream.probe_at <= now {
                stream.probe_wanted = true;
                stream.probes = (stream.probes + 1).min(MAX_WINDOW_BACKOFF);
                stream.probe_at = now + window_probe_wait(&self.recovery, stream.probes);
                if !stream.queued.ready {
                    stream.queued.ready = true;
                    self.ready.push_back(s);
                }
            }
            self.window_probe_at =
                Some(self.window_probe_at.map_or(stream.probe_at, |at| at.min(stream.probe_at)));
            if let Some(slot) = self.blocked.get_mut(kept) {
                *slot = s;
            }
            kept += 1;
        }
        self.blocked.truncate(kept);
    }
}

fn window_probe_wait(recovery: &Recovery, probes: u32) -> Duration {
    recovery.rtt.probe_timeout().times(1 << probes)
}

/// Returns the slot of a stream, created if missing; `None` if the id is out of range.
fn stream_slot(streams: &mut Vec<Stream>, s: StreamId) -> Option<&mut Stream> {
    let index = s as usize;
    if index >= streams.len() {
        if s >= MAX_STREAMS {
            return None;
        }
        streams.resize_with(index + 1, Stream::default);
    }
    streams.get_mut(index)
}

/// Returns the stream if it is open.
fn live_stream(streams: &mut [Stream], s: StreamId) -> Option<&mut Stream> {
    streams.get_mut(s as usize).filter(|stream| stream.phase == Phase::Live)
}
