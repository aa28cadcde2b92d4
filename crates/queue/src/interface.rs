//! The interface between an algorithm and its host.

use std::any::Any;

use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::queue::Passage;

/// Number of a flow. The host defines what a flow is (connection, user, prefix).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// A packet as a queue sees it; the host keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Length on the wire [bytes].
    pub len: u32,
    /// Flow of the packet.
    pub flow: FlowId,
    /// User of the packet, for schedulers that are fair between users; [`Packet::new`] takes the flow's number.
    pub user: FlowId,
    /// The host's reference to the packet.
    pub handle: u32,
    /// Time when it entered the queue that holds it; set by [`crate::Queue::enqueue`].
    pub arrival: Instant,
    /// ECN field (RFC 3168, section 5).
    pub ecn: Ecn,
    /// Differentiated services codepoint (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// True if its connection is split at the gateway ahead, so that the window advertised to its sender can be cut.
    pub split: bool,
    /// True if it tells the gateway to cut that window; set by [`crate::Queue::offer`] with [`crate::Marking::Window`].
    pub marked: bool,
    /// TCP fields; `None` without TCP.
    pub tcp: Option<Tcp>,
    /// Number of packets offered before it; set by [`crate::Queue::offer`].
    pub number: u64,
}

impl Packet {
    /// A packet of `len` bytes of a flow, without ECN and TCP, with the default codepoint.
    #[must_use]
    pub const fn new(len: u32, flow: FlowId, handle: u32) -> Self {
        let (arrival, ecn) = (Instant::ZERO, Ecn::NotEct);
        let (split, marked, tcp, number) = (false, false, None, 0);
        Self { len, flow, user: flow, handle, arrival, ecn, dscp: 0, split, marked, tcp, number }
    }
}

/// TCP fields of a packet.
///
/// Of a satellite packet that carries bytes of a split connection, the fields come from that connection: the last known
/// window of its sender and the position of the bytes in its stream. The first byte counts as the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Congestion window of the sender when the packet left it [bytes]. Exact in the simulator, estimated by a live
    /// gateway.
    pub window: u32,
    /// Sequence number of the first byte. Initial numbers are random, and numbers wrap (RFC 9293, section 3.4).
    pub seq: u32,
    /// True if it opens its connection.
    pub syn: bool,
}

/// Beginning or end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// The flow begins.
    Opened,
    /// The flow is over; its number may be reused.
    Closed,
}

/// The ECN field of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not support ECN.
    NotEct,
    /// ECT(0): the transport supports ECN.
    Ect,
    /// ECT(1): the transport supports ECN and reduces its rate in proportion to the marks (RFC 9331).
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Decision of an [`Aqm`] about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No signal.
    Pass,
    /// Signal congestion, in the way that [`crate::Marking`] determines.
    Mark,
    /// Drop the packet, whatever the marking method.
    Drop,
    /// Drop the packet and the waiting packet that [`Context::sample`] returned (CHOKe).
    DropBoth(QueueSlot),
    /// Hold the packet back at the mark point for this time, at least 1 ns, then ask again (RED-FC). Later packets may
    /// overtake it.
    Hold(Duration),
}

/// Action taken for a packet that the AQM marks.
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

/// Maximum number of packets that a signal drops before the next one leaves without a signal. It bounds the work per
/// departure, like the batch of FQ-CoDel (RFC 8290, section 4.1).
pub const MAX_DROPS_PER_DEQUEUE: u32 = 64;

/// Position of a waiting packet, valid until its scheduler is next changed.
// As wide as the duration of `Verdict::Hold`, so that a verdict is passed in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSlot(pub u64);

/// Cause of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The AQM signalled congestion.
    Aqm,
    /// The queue was full.
    Overflow,
}

impl DropReason {
    /// Returns the name used in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aqm => "aqm",
            Self::Overflow => "overflow",
        }
    }
}

/// Capacity limits of a queue; both apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Maximum number of packets.
    pub packets: u32,
    /// Maximum number of bytes.
    pub bytes: u64,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self { packets: u32::MAX, bytes: u64::MAX };

    /// Returns true if there is a limit.
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        self.packets < u32::MAX || self.bytes < u64::MAX
    }

    /// Returns true if a queue of `packets` and `bytes` has room for `len` bytes more.
    #[must_use]
    pub const fn has_room(&self, packets: u32, bytes: u64, len: u32) -> bool {
        packets < self.packets && bytes.saturating_add(len as u64) <= self.bytes
    }
}

/// State of the watched queue as a packet finds it, without the packet itself.
#[derive(Clone, Copy, Debug)]
pub struct QueueState {
    /// Packets waiting.
    pub packets: u32,
    /// Bytes waiting.
    pub bytes: u64,
    /// Packets held back at the mark point ([`Verdict::Hold`]).
    pub held: u32,
    /// Limits of the queue.
    pub limit: Limit,
    /// Capacity of the link that drains the queue.
    pub capacity: Rate,
    /// Bytes sent over the link since the start of the run.
    pub sent_bytes: u64,
    /// Time since which the link has been idle; `None` while a packet waits or is being sent.
    pub idle_since: Option<Instant>,
}

impl QueueState {
    /// Returns the share of the limits that is used, 0 to 1: of packets or of bytes, whichever is greater.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let packets = f64::from(self.packets) / f64::from(self.limit.packets.max(1));
        packets.max(self.bytes as f64 / self.limit.bytes.max(1) as f64)
    }
}

#[cfg(test)]
impl QueueState {
    /// An empty queue without limits, whose link is not said to be idle.
    pub(crate) fn empty(capacity: Rate) -> Self {
        let (limit, idle_since) = (Limit::NONE, None);
        Self { packets: 0, bytes: 0, held: 0, limit, capacity, sent_bytes: 0, idle_since }
    }
}

/// Everything that an algorithm may use: it has no clock and no random numbers of other origin.
pub struct Context<'a> {
    /// Current time.
    pub now: Instant,
    /// The watched queue.
    pub queue: &'a QueueState,
    /// Random stream of this algorithm.
    pub rng: &'a mut Rng,
    waiting: Option<&'a dyn Scheduler>,
}

impl<'a> Context<'a> {
    /// A context without access to single waiting packets.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, queue: &'a QueueState, rng: &'a mut Rng) -> Self {
        Self { now, queue, rng, waiting: None }
    }

    /// Adds access to the packets that wait in `waiting`.
    #[inline]
    #[must_use]
    pub fn among(self, waiting: &'a dyn Scheduler) -> Self {
        Self { waiting: Some(waiting), ..self }
    }

    /// Returns a waiting packet of the watched queue, drawn uniformly. `None` if none waits, if the scheduler cannot
    /// remove packets out of order, and in all calls but [`Aqm::arrive`].
    pub fn sample(&mut self) -> Option<(QueueSlot, &'a Packet)> {
        self.waiting?.sample(self.rng)
    }
}

/// Decides which packets signal congestion.
///
/// All methods but [`Aqm::arrive`] do nothing by default. Every AQM has those of `Passage`.
pub trait Aqm: Any + Send + Passage {
    /// Decides about a packet at the mark point.
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict;
    /// Takes note of a packet that was accepted at the mark point, marked or not.
    fn admit(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// Takes note of a packet that entered the watched queue. [`Aqm::depart`] or [`Aqm::overflowed`] follows, unless a
    /// scheduler with AQMs inside drops the packet for one of these.
    fn enqueued(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// Decides about a packet at the head of the watched queue that is about to leave.
    fn depart(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
        Verdict::Pass
    }
    /// Takes note of a packet, the newest or a waiting one, that was dropped because the watched queue was full.
    fn overflowed(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) {}
    /// Takes note of the beginning or end of a flow. Datagram flows are not announced.
    fn flow(&mut self, _flow: FlowId, _event: FlowEvent, _cx: &mut Context<'_>) {}
    /// Returns the time of the next [`Aqm::wake`].
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// Acts at the time that [`Aqm::wake_at`] returned.
    fn wake(&mut self, _cx: &mut Context<'_>) {}
    /// Takes over the state of `previous`, the same algorithm under other parameters. Returns false, and changes nothing, for any
    /// other AQM.
    fn resume(&mut self, _previous: &mut dyn Any) -> bool {
        false
    }
    /// Reports internal state for traces: name (as in the paper) and value.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Stores packets and chooses the next to leave.
pub trait Scheduler: Any + Send {
    /// Adds a packet. Packets dropped because the queue was full, which may include the packet itself, go to `out`.
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost);
    /// Removes and returns the packet that leaves next; `None` only if none is left. Before that it drops at most
    /// [`MAX_DROPS_PER_DEQUEUE`] packets to signal congestion.
    fn pop(&mut self, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) -> Option<Packet>;
    /// Returns the packet that would leave next; [`Scheduler::pop`] may still drop it and return another or none.
    fn peek(&self) -> Option<&Packet>;
    /// Returns the packet that leaves behind this number of others, as a hint: it may have been removed.
    fn upcoming(&self, _place: usize) -> Option<&Packet> {
        None
    }
    /// Returns a waiting packet drawn uniformly, and its position.
    fn sample(&self, _rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        None
    }
    /// Removes the packet at a position that [`Scheduler::sample`] has just returned.
    fn remove(&mut self, _slot: QueueSlot) -> Option<Packet> {
        None
    }
    /// Takes note of the beginning or end of a flow. Datagram flows are not announced.
    fn flow(&mut self, _flow: FlowId, _event: FlowEvent) {}
    /// Returns the time of the next [`Scheduler::wake`].
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// Acts at the time that [`Scheduler::wake_at`] returned.
    fn wake(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) {}
    /// Reports internal state for traces, as [`Aqm::probe`] does.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Receives the drops and marks of a scheduler.
pub trait SchedulerHost {
    /// Takes a dropped packet.
    fn dropped(&mut self, pkt: Packet, reason: DropReason);
    /// Signals congestion with a packet by the marking method. Returns the packet if it is kept; otherwise it has been
    /// dropped and counted.
    fn mark(&mut self, pkt: Packet) -> Option<Packet>;
    /// Returns true if [`SchedulerHost::mark`] is sure to keep such a packet; by default it is not.
    fn can_mark(&self, _pkt: &Packet) -> bool {
        false
    }
}

/// Receives the drops of a queue.
pub trait DropHandler {
    /// Takes a dropped packet.
    fn dropped(&mut self, pkt: Packet, reason: DropReason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_in_packets_or_bytes_is_a_bound() {
        let limit = |packets, bytes| Limit { packets, bytes };
        assert!(!Limit::NONE.is_bounded());
        assert!(
            limit(5, u64::MAX).is_bounded() && limit(u32::MAX, 5).is_bounded() && limit(5, 5).is_bounded()
        );
        assert!(limit(5, 1000).has_room(4, 900, 100));
        assert!(!limit(5, 1000).has_room(5, 900, 100) && !limit(5, 1000).has_room(4, 901, 100));
        assert!(Limit::NONE.has_room(0, u64::MAX, 1));
    }

    #[test]
    fn drops_have_the_names_of_results() {
        assert_eq!([DropReason::Aqm, DropReason::Overflow].map(DropReason::name), ["aqm", "overflow"]);
    }
}
