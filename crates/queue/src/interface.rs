//! The interface between an algorithm and whoever hosts it.

use bentpipe_units::{Duration, Instant, Rate, Rng};

/// Which flow a packet belongs to. What a flow *is* (connection, user, prefix) is the host's choice.
pub type FlowId = u32;

/// What a queue needs to know of a packet; its bytes stay with the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Length on the wire [bytes].
    pub len: u32,
    /// The flow it belongs to.
    pub flow: FlowId,
    /// The host's own reference to the packet.
    pub handle: u32,
    /// When it entered the queue that holds it; set by [`crate::Queue::enqueue`].
    pub arrival: Instant,
    /// Its ECN field (RFC 3168, section 5).
    pub ecn: Ecn,
    /// Whether its connection ends at the gateway ahead, so that the window advertised to its sender can be cut.
    pub split: bool,
    /// Whether it tells the gateway to cut that window; set by [`crate::Queue::offer`] with [`crate::Marking::Window`].
    pub marked: bool,
    /// What TCP says of it, if TCP carries it.
    pub tcp: Option<Tcp>,
    /// How many packets had been judged before it; set by [`crate::Queue::offer`].
    pub number: u64,
}

impl Packet {
    /// A packet of `len` bytes of a flow, of which nothing else is known.
    #[must_use]
    pub const fn new(len: u32, flow: FlowId, handle: u32) -> Self {
        let (arrival, ecn) = (Instant::ZERO, Ecn::NotEct);
        Self { len, flow, handle, arrival, ecn, split: false, marked: false, tcp: None, number: 0 }
    }
}

/// What TCP says of a packet.
///
/// A satellite packet that carries the bytes of a connection which a PEP has ended has them from that connection: the
/// window that was last heard of from its sender, and the place of the bytes in its stream. The first byte opens it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The sender's congestion window when the packet left it [bytes]. Exact in the simulator; a live gateway
    /// estimates it.
    pub window: u32,
    /// Sequence number of its first byte; initial numbers are random, and they wrap (RFC 9293, section 3.4).
    pub seq: u32,
    /// Whether it opens its connection.
    pub syn: bool,
}

/// What becomes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// It begins.
    Opened,
    /// It is over; its number may come again, for another.
    Closed,
}

/// The ECN field of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Its transport does not understand congestion marks.
    NotEct,
    /// Its transport understands congestion marks: ECT(0).
    Ect,
    /// Its transport understands congestion marks, and reduces its rate in proportion to them: ECT(1) (RFC 9331).
    Ect1,
    /// It carries a congestion mark.
    Ce,
}

/// What an [`Aqm`] says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to signal.
    Pass,
    /// Signal congestion; how is the [`crate::Marking`] method's business.
    Mark,
    /// DropHandler, whatever the marking method.
    Drop,
    /// DropHandler, and with it the waiting packet that [`Context::sample`] has shown (CHOKe).
    DropBoth(QueueSlot),
    /// Keep it out of the queue for so long, a nanosecond at least, then ask again (RED-FC). Later packets may overtake it.
    Hold(Duration),
}

/// Action taken for a packet that the Aqm marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Drop the packet.
    Drop,
    /// Set its ECN field to CE; drop a packet of a transport without ECN (RFC 3168, section 5).
    Ecn,
    /// Accept it, and tell the gateway behind the mark point to cut the window advertised to the packet's sender ([B07] 2.3);
    /// drop a packet whose connection is not split at the gateway.
    Window,
}

/// How many waiting packets are discarded at most, for signals, before one goes on without: so that the work for a packet
/// that leaves is bounded, however many are due. As many as a batch of FQ-CoDel's (RFC 8290, section 4.1).
pub const MAX_DROPS_PER_DEQUEUE: u32 = 64;

/// Where a waiting packet stands, until its scheduler next takes or gives one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSlot(pub u32);

/// Why a packet was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The Aqm signalled congestion with it.
    Aqm,
    /// The queue was full.
    Overflow,
}

impl DropReason {
    /// The reason as it appears in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aqm => "aqm",
            Self::Overflow => "overflow",
        }
    }
}

/// How much a queue may hold; both bounds apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// At most so many packets.
    pub packets: u32,
    /// At most so many bytes.
    pub bytes: u64,
}

impl Limit {
    /// No bound.
    pub const NONE: Self = Self { packets: u32::MAX, bytes: u64::MAX };

    /// Whether there is a bound.
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        self.packets < u32::MAX || self.bytes < u64::MAX
    }

    /// Whether a queue of `packets` and `bytes` may take `len` bytes more.
    #[must_use]
    pub const fn has_room(&self, packets: u32, bytes: u64, len: u32) -> bool {
        packets < self.packets && bytes.saturating_add(len as u64) <= self.bytes
    }
}

/// The watched queue as a packet finds it, the packet itself not counted.
#[derive(Clone, Copy, Debug)]
pub struct QueueState {
    /// Packets waiting.
    pub packets: u32,
    /// Bytes waiting.
    pub bytes: u64,
    /// Packets held back at the mark point ([`Verdict::Hold`]).
    pub held: u32,
    /// What the queue may hold.
    pub limit: Limit,
    /// Capacity of the link that drains the queue.
    pub capacity: Rate,
    /// Bytes that have left the queue over its link since the run began.
    pub sent_bytes: u64,
    /// Since when the link has had nothing to send; none while a packet waits or is being sent.
    pub idle_since: Option<Instant>,
}

impl QueueState {
    /// How full the queue is, from 0 to 1: of packets or of bytes, whichever is the greater share.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let packets = f64::from(self.packets) / f64::from(self.limit.packets.max(1));
        packets.max(self.bytes as f64 / self.limit.bytes.max(1) as f64)
    }
}

/// All that an algorithm may see: it reads no clock and owns no randomness.
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// The watched queue.
    pub queue: &'a QueueState,
    /// This algorithm's random stream.
    pub rng: &'a mut Rng,
    waiting: Option<&'a dyn Scheduler>,
}

impl<'a> Context<'a> {
    /// What an algorithm sees that may not look at single waiting packets.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, queue: &'a QueueState, rng: &'a mut Rng) -> Self {
        Self { now, queue, rng, waiting: None }
    }

    /// … that may look at those of `waiting`.
    #[inline]
    #[must_use]
    pub fn among(self, waiting: &'a dyn Scheduler) -> Self {
        Self { waiting: Some(waiting), ..self }
    }

    /// One of the packets that wait in the watched queue, each as likely as any other. None where none waits, in every
    /// call but [`Aqm::arrive`], and where the scheduler cannot part with a packet out of turn.
    pub fn sample(&mut self) -> Option<(QueueSlot, &'a Packet)> {
        self.waiting?.sample(self.rng)
    }
}

/// Decides which packets signal congestion.
///
/// Every method but [`Aqm::arrive`] has a body that does nothing, so an algorithm names only the events it
/// reacts to.
pub trait Aqm: Send {
    /// A packet is at the mark point.
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict;
    /// The packet was accepted at the mark point, marked or not.
    fn admit(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// The packet entered the watched queue. Each that did leaves it again by [`Aqm::depart`] or by
    /// [`Aqm::overflowed`], unless a scheduler with Aqms of its own discards it for one of these.
    fn enqueued(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// The packet is at the head of the watched queue and about to leave it.
    fn depart(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        Verdict::Pass
    }
    /// The watched queue was full, and this packet, the newest or one that had been waiting, was discarded.
    fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// A flow begins or is over. Flows that nobody announces (datagrams) come without.
    fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {}
    /// When [`Aqm::wake`] wants to be called next.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// The time asked for has come.
    fn wake(&mut self, _cx: &mut Context<'_>) {}
    /// Reports internal state for traces: name (as in the paper) and value.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Stores packets and chooses which leaves next.
pub trait Scheduler: Send {
    /// Takes a packet. Whatever is sacrificed for want of room, the packet itself perhaps, goes to `out`.
    fn push(&mut self, pkt: Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost);
    /// Gives the packet that leaves next; none only where none is left. For signals it discards no more than
    /// [`MAX_DROPS_PER_DEQUEUE`] before.
    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet>;
    /// The packet that would leave next; one that [`Scheduler::pop`] may still discard, to give another or none.
    fn peek(&self) -> Option<&Packet>;
    /// One of the waiting packets, each as likely as any other, and its place.
    fn sample(&self, _rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        None
    }
    /// Takes out the packet at a place that [`Scheduler::sample`] has just shown.
    fn remove(&mut self, _slot: QueueSlot) -> Option<Packet> {
        None
    }
    /// A flow begins or is over. Flows that nobody announces (datagrams) come without.
    fn flow(&mut self, _flow: FlowId, _event: FlowEvent) {}
    /// When [`Scheduler::wake`] wants to be called next.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// The time asked for has come.
    fn wake(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) {}
    /// Reports internal state for traces, as [`Aqm::probe`] does.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Hears from a scheduler what becomes of packets that it has been given.
pub trait SchedulerHost {
    /// A packet was discarded.
    fn dropped(&mut self, pkt: Packet, reason: DropReason);
    /// Congestion is to be signalled with a packet, in the way of the marking method. Gives it back if it may go on; else
    /// it has been discarded, and that is noted.
    fn mark(&mut self, pkt: Packet) -> Option<Packet>;
}

/// Hears from a queue what it discards.
pub trait DropHandler {
    /// A packet was discarded.
    fn dropped(&mut self, pkt: Packet, reason: DropReason);
}
