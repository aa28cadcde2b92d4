//! Log of one end: its datagrams with complete packet numbers, and its loss recovery.
//!
//! quinn reports counters, and not which packet was lost or when a probe was due. The log follows RFC 9002, appendix A, as
//! quinn implements it, from the packets alone; debug builds compare it with quinn's counters after each step.

use std::collections::{BTreeMap, BTreeSet};

use bentpipe_transport::tcp::Ecn;
use bentpipe_units::{Duration, Instant, Rate};

use crate::frames::{Ack, Frame, Packet, PacketType, packets};

/// kGranularity of RFC 9002, section 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);
/// kPacketThreshold of RFC 9002, section 6.1.1.
pub const PACKET_THRESHOLD: u64 = 3;
/// kTimeThreshold of RFC 9002, section 6.1.2.
pub const TIME_THRESHOLD: f32 = 9.0 / 8.0;
/// Defaults of the transport parameters (RFC 9000, section 18.2), which all hosts use.
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
const ACK_DELAY_EXPONENT: u64 = 3;
/// Largest backoff exponent of quinn.
const MAX_BACKOFF_EXPONENT: u32 = 16;
/// Packets without an acknowledgement to come that quinn remembers after the latest one with.
const MAX_TAIL: u64 = 1000;

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The end sent a datagram.
    Sent(Logged),
    /// The end received a datagram.
    Received(Logged),
    /// The end declared a packet lost.
    Lost {
        /// Type of the packet.
        kind: PacketType,
        /// Its number.
        number: u64,
        /// The threshold that it passed.
        cause: LossCause,
    },
    /// A packet that was declared lost has been acknowledged.
    SpuriousLoss {
        /// Type of the packet.
        kind: PacketType,
        /// Its number.
        number: u64,
    },
    /// The probe timeout expired.
    ProbeTimeout,
    /// The connection was idle too long.
    IdleTimeout,
    /// State of the sender, which may be that of before.
    State(State),
}

/// State of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Loss recovery.
    pub recovery: Metrics,
    /// Congestion window [bytes].
    pub cwnd: u64,
    /// Slow start threshold [bytes], if there is one.
    pub ssthresh: Option<u64>,
    /// Pacing rate that the congestion control sets.
    pub pacing: Option<Rate>,
}

/// A logged datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its payload.
    pub payload: Vec<u8>,
    /// Its code point.
    pub ecn: Ecn,
    /// The complete number of each of its [`packets`], and false if the end could not read the packet.
    pub numbers: Vec<(u64, bool)>,
}

/// Reason to declare a packet lost (RFC 9002, section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// A packet sent at least three packets later was acknowledged.
    PacketThreshold,
    /// It was sent long before an acknowledged one.
    TimeThreshold,
}

/// State of loss recovery (RFC 9002, appendix A.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Minimum RTT; `None` before the first sample, as the other times.
    pub min_rtt: Option<Duration>,
    /// Smoothed RTT.
    pub srtt: Option<Duration>,
    /// Latest RTT sample.
    pub rtt: Option<Duration>,
    /// RTT variation.
    pub rttvar: Option<Duration>,
    /// Probe timeouts in a row.
    pub pto_count: u32,
    /// Bytes of packets in flight.
    pub bytes_in_flight: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// True in a recovery period (RFC 9002, section 7.3.2).
    pub in_recovery: bool,
}

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    at: Instant,
    /// Number of the path that it was sent on.
    path: u32,
    /// Its length; 0 if it is not in flight.
    size: u64,
    ack_eliciting: bool,
}

/// A packet number space.
#[derive(Debug, Default)]
struct Space {
    largest_sent: Option<u64>,
    largest_received: Option<u64>,
    sent: BTreeMap<u64, SentPacket>,
    /// Packets that were declared lost, and have not been acknowledged.
    lost: BTreeSet<u64>,
    largest_acked: Option<u64>,
    largest_acked_at: Instant,
    loss_time: Option<Instant>,
    last_ack_eliciting: Option<Instant>,
    /// Number of the latest packet that asks for an acknowledgement, and packets that do not since.
    tail: (u64, u64),
    is_discarded: bool,
}

/// RTT estimator (RFC 9002, section 5).
#[derive(Clone, Copy, Debug)]
struct Rtt {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
}

/// Facts that only the connection knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub is_handshaking: bool,
    pub is_closed: bool,
    /// The connection was closed before the latest packet: quinn counts its frames then, and does nothing else with them.
    pub was_closed: bool,
}

const INITIAL: usize = 0;
const HANDSHAKE: usize = 1;
const DATA: usize = 2;

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    notes: Vec<(Instant, Note)>,
    is_client: bool,
    spaces: [Space; 3],
    rtt: Rtt,
    pto_count: u32,
    /// Probe timeouts so far.
    timeouts: u64,
    /// When the timer of loss detection is due.
    timer: Option<Instant>,
    /// Bytes sent and received before the peer's address is validated (RFC 9000, section 8.1).
    amplification: Option<(u64, u64)>,
    /// RTT before the first sample.
    initial_rtt: Duration,
    /// Number of the path, and the latest validated one before it, with its RTT.
    path: u32,
    path_before: Option<(u32, Rtt)>,
    /// Paths so far.
    paths: u32,
    /// Packets lost so far, and their bytes in flight.
    lost: (u64, u64),
    /// Start of the recovery period.
    recovery: Option<Instant>,
    was_handshaking: bool,
}

fn space_of(kind: PacketType) -> Option<usize> {
    match kind {
        PacketType::Initial => Some(INITIAL),
        PacketType::Handshake => Some(HANDSHAKE),
        PacketType::OneRtt | PacketType::ZeroRtt => Some(DATA),
        PacketType::Retry | PacketType::StatelessReset | PacketType::Scone => None,
    }
}

fn kind_of(space: usize) -> PacketType {
    [PacketType::Initial, PacketType::Handshake, PacketType::OneRtt][space]
}

impl Log {
    pub fn new(is_client: bool, initial_rtt: Duration) -> Self {
        Self {
            notes: Vec::new(),
            is_client,
            spaces: Default::default(),
            rtt: Rtt::new(initial_rtt),
            initial_rtt,
            path: 0,
            path_before: None,
            paths: 1,
            pto_count: 0,
            timeouts: 0,
            timer: None,
            amplification: (!is_client).then_some((0, 0)),
            lost: (0, 0),
            recovery: None,
            was_handshaking: true,
        }
    }

    pub fn take_notes(&mut self) -> std::vec::Drain<'_, (Instant, Note)> {
        self.notes.drain(..)
    }

    pub fn note_state(&mut self, now: Instant, state: State) {
        self.notes.push((now, Note::State(state)));
    }

    /// Packets lost so far, and their bytes in flight.
    pub fn lost(&self) -> (u64, u64) {
        self.lost
    }

    /// Probe timeouts so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    pub fn srtt(&self) -> Duration {
        self.rtt.get()
    }

    /// Probe timeout without backoff and the peer's max_ack_delay (RFC 9002, section 6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.rtt.probe_timeout()
    }

    pub fn metrics(&self) -> Metrics {
        let known = |value| self.rtt.smoothed.map(|_| value);
        let sent = self.spaces.iter().flat_map(|space| space.sent.values());
        let flying = sent.filter(|packet| packet.size > 0 && packet.path == self.path);
        let (packets, bytes) = flying.fold((0, 0), |(n, bytes), packet| (n + 1, bytes + packet.size));
        Metrics {
            min_rtt: known(self.rtt.min),
            srtt: self.rtt.smoothed,
            rtt: known(self.rtt.latest),
            rttvar: known(self.rtt.variation),
            pto_count: self.pto_count,
            bytes_in_flight: bytes,
            packets_in_flight: packets,
            in_recovery: self.recovery.is_some(),
        }
    }

    /// The congestion window was reduced.
    pub fn begin_recovery(&mut self, now: Instant) {
        self.recovery = Some(now);
    }

    // ----- migration -----------------------------------------------------------------------------------------

    /// The client has moved to another address, after its latest packet.
    pub fn on_migrated(&mut self) {
        self.rtt = Rtt::new(self.initial_rtt);
        self.recovery = None;
    }

    /// The latest packet, of `received` bytes, came from another address of the client, which has to be validated.
    pub fn on_peer_migrated(&mut self, now: Instant, received: u64, facts: Facts) {
        if self.amplification.is_none() {
            self.path_before = Some((self.path, self.rtt));
        }
        self.path = self.paths;
        self.paths += 1;
        self.amplification = Some((0, received));
        self.on_migrated();
        self.arm(now, facts);
    }

    /// The client's new address could not be validated: its packets go to the one before again.
    pub fn on_returned(&mut self) {
        if let Some((path, rtt)) = self.path_before {
            (self.path, self.rtt) = (path, rtt);
        }
        self.amplification = None;
    }

    // ----- packets -------------------------------------------------------------------------------------------

    /// Takes a datagram that was sent on the path, or to another address: quinn does not expect an acknowledgement of that.
    pub fn on_sent(&mut self, now: Instant, payload: &[u8], ecn: Ecn, facts: Facts, is_on_path: bool) {
        let mut numbers = Vec::new();
        if let Some((sent, _)) = self.amplification.as_mut().filter(|_| is_on_path) {
            *sent += payload.len() as u64;
        }
        for packet in packets(payload) {
            let Some(space) = space_of(packet.kind) else {
                numbers.push((0, true));
                continue;
            };
            if space == HANDSHAKE && self.is_client {
                self.discard(INITIAL);
            }
            numbers.push((self.track(now, space, &packet, is_on_path), true));
        }
        self.arm(now, facts);
        self.notes.push((now, Note::Sent(Logged { payload: payload.to_vec(), ecn, numbers })));
    }

    /// Adds a sent packet to those in flight; returns its number.
    fn track(&mut self, now: Instant, space: usize, packet: &Packet<'_>, is_on_path: bool) -> u64 {
        let (space, path) = (&mut self.spaces[space], self.path);
        let number = packet.full_number(space.largest_sent);
        space.largest_sent = Some(number);
        let (mut ack_eliciting, mut padded, mut closes) = (false, false, false);
        for frame in packet.frames() {
            ack_eliciting |= frame.is_ack_eliciting();
            padded |= matches!(frame, Frame::Padding { .. });
            closes |= matches!(frame, Frame::ConnectionClose { .. });
        }
        if closes || !is_on_path {
            return number;
        }
        let size = if ack_eliciting || padded { packet.len as u64 } else { 0 };
        if ack_eliciting {
            space.tail = (number, 0);
            space.last_ack_eliciting = Some(now);
        } else if space.tail.1 > MAX_TAIL {
            let oldest = space.sent.range(space.tail.0 + 1..).next().map(|(number, _)| *number);
            oldest.and_then(|oldest| space.sent.remove(&oldest));
        } else {
            space.tail.1 += 1;
        }
        space.sent.insert(number, SentPacket { at: now, path, size, ack_eliciting });
        number
    }

    /// Takes a received datagram; `processed` has quinn's counts of the frames that it has processed.
    pub fn on_received(&mut self, now: Instant, payload: &[u8], ecn: Ecn, processed: Counts, facts: Facts) {
        let found: Vec<_> = packets(payload).collect();
        let read = readable(&found, processed);
        if let Some((_, received)) = &mut self.amplification {
            *received += payload.len() as u64;
        }
        let mut numbers = Vec::with_capacity(found.len());
        for (place, packet) in found.iter().enumerate() {
            let is_read = facts.is_closed || read & 1 << place != 0;
            let number = space_of(packet.kind).map_or(0, |space| {
                let space = &mut self.spaces[space];
                let number = packet.full_number(space.largest_received);
                if is_read {
                    space.largest_received = space.largest_received.max(Some(number));
                }
                number
            });
            numbers.push((number, is_read));
        }
        let logged = Logged { payload: payload.to_vec(), ecn, numbers };
        self.notes.push((now, Note::Received(logged)));
        for (place, packet) in found.iter().enumerate() {
            let is_processed = !facts.was_closed && read & 1 << place != 0;
            let Some(space) = space_of(packet.kind).filter(|_| is_processed) else { continue };
            if space == HANDSHAKE && !self.is_client {
                self.discard(INITIAL);
                self.amplification = None;
            }
            for frame in packet.frames() {
                match frame {
                    Frame::Ack(ack) => self.on_ack(now, space, &ack, facts),
                    Frame::HandshakeDone => self.discard(HANDSHAKE),
                    Frame::PathResponse(_) => self.amplification = None,
                    _ => {}
                }
            }
        }
        if !self.is_client && self.was_handshaking && !facts.is_handshaking {
            self.discard(HANDSHAKE);
        }
        self.was_handshaking = facts.is_handshaking;
        self.arm(now, facts);
    }

    fn on_ack(&mut self, now: Instant, at: usize, ack: &Ack<'_>, facts: Facts) {
        let space = &mut self.spaces[at];
        let is_new_largest = space.largest_acked.is_none_or(|largest| ack.largest > largest);
        if is_new_largest {
            space.largest_acked = Some(ack.largest);
            if let Some(packet) = space.sent.get(&ack.largest) {
                space.largest_acked_at = packet.at;
            }
        }
        let (mut acked, mut eliciting) = (false, false);
        for (start, end) in ack.ranges() {
            while let Some((&number, &packet)) = space.sent.range(start..=end).next() {
                space.sent.remove(&number);
                acked = true;
                eliciting |= packet.ack_eliciting;
                if self.recovery.is_some_and(|begin| packet.at > begin) {
                    self.recovery = None;
                }
            }
            while let Some(&number) = space.lost.range(start..=end).next() {
                space.lost.remove(&number);
                self.notes.push((now, Note::SpuriousLoss { kind: kind_of(at), number }));
            }
        }
        if !acked {
            return;
        }
        if is_new_largest && eliciting {
            let delay = if at == DATA {
                Duration::from_micros(ack.delay << ACK_DELAY_EXPONENT).min(MAX_ACK_DELAY)
            } else {
                Duration::ZERO
            };
            let sample = now - self.spaces[at].largest_acked_at;
            self.rtt.update(delay, sample);
        }
        self.detect_lost(now, at);
        if self.peer_knows_address(facts) {
            self.pto_count = 0;
        }
    }

    /// Gives up a packet number space (RFC 9001, section 4.9).
    fn discard(&mut self, space: usize) {
        let space = &mut self.spaces[space];
        if !std::mem::replace(&mut space.is_discarded, true) {
            space.sent.clear();
            (space.last_ack_eliciting, space.loss_time) = (None, None);
        }
    }

    // ----- timer ---------------------------------------------------------------------------------------------

    /// The connection has handled its timers; `timed_out` tells that it was idle too long.
    pub fn on_timeout(&mut self, now: Instant, timed_out: bool, facts: Facts) {
        if timed_out {
            self.notes.push((now, Note::IdleTimeout));
        }
        if facts.is_closed || self.timer.is_none_or(|at| at > now) {
            return;
        }
        let times = (0..3).filter_map(|space| Some((self.spaces[space].loss_time?, space)));
        if let Some((_, space)) = times.min() {
            self.detect_lost(now, space);
        } else {
            self.pto_count += 1;
            self.timeouts += 1;
            self.notes.push((now, Note::ProbeTimeout));
        }
        self.arm(now, facts);
    }

    /// Sets the timer of loss detection (RFC 9002, appendix A.8).
    fn arm(&mut self, now: Instant, facts: Facts) {
        if facts.is_closed {
            return;
        }
        let is_blocked = self.amplification.is_some_and(|(sent, received)| 3 * received < sent + 1);
        self.timer = match self.spaces.iter().filter_map(|space| space.loss_time).min() {
            Some(at) => Some(at),
            None if is_blocked => None,
            None => self.probe_time(now, facts),
        };
    }

    /// GetPtoTimeAndSpace of RFC 9002, appendix A.8.
    fn probe_time(&self, now: Instant, facts: Facts) -> Option<Instant> {
        let backoff = 1u64 << self.pto_count.min(MAX_BACKOFF_EXPONENT);
        let timeout = self.rtt.probe_timeout().times(backoff);
        let mut packets = self.spaces.iter().flat_map(|space| space.sent.values());
        if !packets.any(|packet| packet.ack_eliciting && packet.path == self.path) {
            return (!self.peer_knows_address(facts)).then_some(now + timeout);
        }
        let due = |(number, space): (usize, &Space)| {
            let is_flying = space.sent.values().any(|packet| packet.size > 0);
            let delay = if number == DATA { MAX_ACK_DELAY.times(backoff) } else { Duration::ZERO };
            let is_early = number == DATA && facts.is_handshaking;
            space.last_ack_eliciting.filter(|_| is_flying && !is_early).map(|last| last + timeout + delay)
        };
        self.spaces.iter().enumerate().filter_map(due).min()
    }

    /// PeerCompletedAddressValidation of RFC 9002, appendix A.8.
    fn peer_knows_address(&self, facts: Facts) -> bool {
        !self.is_client
            || facts.is_closed
            || self.spaces[HANDSHAKE].largest_acked.is_some()
            || self.spaces[DATA].largest_acked.is_some()
            || self.spaces[HANDSHAKE].is_discarded
    }

    // ----- losses --------------------------------------------------------------------------------------------

    /// DetectAndRemoveLostPackets of RFC 9002, appendix A.10.
    fn detect_lost(&mut self, now: Instant, at: usize) {
        let delay = self.rtt.loss_delay();
        let space = &mut self.spaces[at];
        space.loss_time = None;
        let Some(largest) = space.largest_acked else { return };
        let mut lost = Vec::new();
        for (&number, packet) in space.sent.range(..largest) {
            let is_old = now - packet.at >= delay;
            if is_old || largest >= number + PACKET_THRESHOLD {
                let far = largest >= number + PACKET_THRESHOLD;
                lost.push((number, if far { LossCause::PacketThreshold } else { LossCause::TimeThreshold }));
            } else {
                let next = packet.at + delay;
                space.loss_time = Some(space.loss_time.map_or(next, |time| time.min(next)));
            }
        }
        for (number, cause) in lost {
            if let Some(packet) = space.sent.remove(&number) {
                self.lost.0 += 1;
                self.lost.1 += packet.size;
            }
            space.lost.insert(number);
            self.notes.push((now, Note::Lost { kind: kind_of(at), number, cause }));
        }
    }
}

impl Rtt {
    fn new(initial: Duration) -> Self {
        Self { latest: initial, smoothed: None, variation: initial.part(2), min: initial }
    }

    fn get(&self) -> Duration {
        self.smoothed.unwrap_or(self.latest)
    }

    fn probe_timeout(&self) -> Duration {
        self.get() + self.variation.times(4).max(GRANULARITY)
    }

    /// Time after which a packet sent before an acknowledged one is lost (RFC 9002, section 6.1.2).
    fn loss_delay(&self) -> Duration {
        let rtt = std::time::Duration::from_nanos(self.get().max(self.latest).as_nanos());
        // With the rounding of quinn, which multiplies numbers of single precision.
        Duration::from_nanos(rtt.mul_f32(TIME_THRESHOLD).as_nanos() as u64).max(GRANULARITY)
    }

    /// Takes a sample (RFC 9002, section 5.3).
    fn update(&mut self, ack_delay: Duration, sample: Duration) {
        self.latest = sample;
        self.min = self.min.min(sample);
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation, self.min) = (Some(sample), sample.part(2), sample);
            return;
        };
        let adjusted = if self.min + ack_delay <= sample { sample.saturating_sub(ack_delay) } else { sample };
        let distance = smoothed.max(adjusted).saturating_sub(smoothed.min(adjusted));
        self.variation = (self.variation.times(3) + distance).part(4);
        self.smoothed = Some((smoothed.times(7) + adjusted).part(8));
    }
}

/// Numbers of ACK, CRYPTO, PING, STREAM and other frames.
pub(crate) type Counts = [u64; 5];

/// Counts frames; quinn does not count PADDING.
fn count(packet: &Packet<'_>) -> Counts {
    let mut counts = Counts::default();
    for frame in packet.frames() {
        match frame {
            Frame::Padding { .. } => {}
            Frame::Ack(_) => counts[0] += 1,
            Frame::Crypto { .. } => counts[1] += 1,
            Frame::Ping => counts[2] += 1,
            Frame::Stream { .. } => counts[3] += 1,
            _ => counts[4] += 1,
        }
    }
    counts
}

/// The packets that were read, as a set of bits: the largest set whose frames are those that were processed. Others had no
/// keys yet, or none any more.
fn readable(packets: &[Packet<'_>], processed: Counts) -> u32 {
    let counts: Vec<_> = packets.iter().map(count).collect();
    let all = 1u32 << counts.len().min(8);
    let fits = |set: &u32| {
        let mut sum = Counts::default();
        for (place, counts) in counts.iter().enumerate().filter(|(place, _)| set & 1 << place != 0) {
            debug_assert!(place < 8);
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sum == processed
    };
    (0..all).rev().filter(fits).max_by_key(|set| set.count_ones()).unwrap_or(0)
}
