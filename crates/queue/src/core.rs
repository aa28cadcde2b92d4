//! The interface between an algorithm and whoever hosts it.

use bentpipe_units::{Instant, Rate, Rng};

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
    /// When it entered the queue that holds it; set by [`crate::Queue::enter`].
    pub arrival: Instant,
    /// Its ECN field (RFC 3168, section 5).
    pub ecn: Ecn,
    /// How many packets had been judged before it; set by [`crate::Queue::judge`].
    pub number: u64,
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
    /// Discard, whatever the marking method.
    Drop,
}

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
    /// What the queue may hold.
    pub limit: Limit,
    /// Capacity of the link that drains the queue.
    pub capacity: Rate,
    /// Bytes that have left the queue over its link since the run began.
    pub sent_bytes: u64,
    /// Since when the link has had nothing to send; none while a packet waits or is being sent.
    pub idle_since: Option<Instant>,
}

/// All that an algorithm may see: it reads no clock and owns no randomness.
pub struct Cx<'a> {
    /// The time.
    pub now: Instant,
    /// The watched queue.
    pub queue: &'a QueueState,
    /// This algorithm's random stream.
    pub rng: &'a mut Rng,
}

/// Decides which packets signal congestion.
///
/// Every method but [`Aqm::arrive`] has a body that does nothing, so an algorithm names only the events it
/// reacts to.
pub trait Aqm: Send {
    /// A packet is at the mark point.
    fn arrive(&mut self, pkt: &Packet, cx: &mut Cx<'_>) -> Verdict;
    /// The packet was accepted at the mark point, marked or not.
    fn admit(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) {}
    /// The packet entered the watched queue. Each that did leaves it again by [`Aqm::depart`] or by
    /// [`Aqm::overflowed`], unless a scheduler with Aqms of its own discards it for one of these.
    fn enqueued(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) {}
    /// The packet is at the head of the watched queue and about to leave it.
    fn depart(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) -> Verdict {
        Verdict::Pass
    }
    /// The watched queue was full, and this packet, the newest or one that had been waiting, was discarded.
    fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) {}
    /// When [`Aqm::wake`] wants to be called next.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// The time asked for has come.
    fn wake(&mut self, _cx: &mut Cx<'_>) {}
    /// Reports internal state for traces: name (as in the paper) and value.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Stores packets and chooses which leaves next.
pub trait Scheduler: Send {
    /// Takes a packet. Whatever is sacrificed for want of room, the packet itself perhaps, goes to `out`.
    fn push(&mut self, pkt: Packet, cx: &mut Cx<'_>, out: &mut dyn Outcome);
    /// Gives the packet that leaves next.
    fn pop(&mut self, cx: &mut Cx<'_>, out: &mut dyn Outcome) -> Option<Packet>;
    /// The packet that would leave next.
    fn peek(&self) -> Option<&Packet>;
}

/// Hears what became of packets that do not leave a queue by its link.
pub trait Outcome {
    /// A packet was discarded.
    fn dropped(&mut self, pkt: Packet, reason: DropReason);
}
