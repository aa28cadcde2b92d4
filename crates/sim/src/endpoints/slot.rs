//! Slots for end-to-end flows.
//!
//! A flow runs from the sending host to the receiving host in as many legs as the gateways on the way make of it. Each TCP
//! leg has two ends, the first nearer the data's sender; at a gateway that splits the flow, a stream of its PEP link joins
//! the second end of one leg to the first of the next. A slot has the ends, streams, paths and delay lines of one flow, laid
//! out once; when the flow is over, another flow of the same traffic uses the slot.

use bentpipe_queue::FlowId;
use bentpipe_units::{Duration, Instant};

use super::UnitsInFlight;
use crate::bottleneck::Bottleneck;
use crate::ids::{
    ConnId, GatewayId, Id, IdRange, LineId, LinkDirectionId, QuicEndId, RtpId, SctpEndId, SessionId,
    SourceId, StreamId, TerminalId, TrafficId,
};
use crate::network::Path;
use crate::side::BySide;

/// The member of a group, of links or terminals, that a path takes.
#[derive(Clone, Copy, Debug)]
pub enum Member {
    /// There is only one.
    One,
    /// One of several: that of the sending host, which is its number modulo `members`.
    From { members: u32 },
    /// One of several: that of the receiving host, which is its number modulo `members`.
    To { members: u32 },
    /// One of `each` queues of one of several terminals: that of a host behind it.
    Host(HostMember),
}

/// The queue of a host behind a terminal.
#[derive(Clone, Copy, Debug)]
pub struct HostMember {
    /// True for the sending host, false for the receiving one.
    pub sends: bool,
    /// Number of terminals.
    pub terminals: u32,
    /// Number of queues of each terminal, and of those before the first of the group of hosts.
    pub each: u32,
    pub before: u32,
}

impl Member {
    /// Number of members from which it is one.
    pub fn members(self) -> u32 {
        match self {
            Self::One => 1,
            Self::From { members } | Self::To { members } => members,
            Self::Host(host) => host.terminals * host.each,
        }
    }

    /// Number of the member within its group, between two hosts, each numbered within its group.
    pub fn index(self, from: u32, to: u32) -> u32 {
        match self {
            Self::One => 0,
            Self::From { members } => from % members,
            Self::To { members } => to % members,
            Self::Host(HostMember { sends, terminals, each, before }) => {
                let host = if sends { from } else { to };
                (host % terminals) * each + before + host / terminals
            }
        }
    }
}

/// Queues of a gateway, or of its terminals, of which there may be a group.
#[derive(Clone, Copy, Debug)]
pub struct QueuesOf {
    pub first: GatewayId,
    pub member: Member,
}

impl QueuesOf {
    /// The queues for packets between two hosts, each numbered within its group.
    pub fn gateway(self, from: u32, to: u32) -> GatewayId {
        GatewayId::new(self.first.index() + self.member.index(from, to))
    }
}

/// One hop of a layout, before the hosts are known.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Over a link.
    Link(LinkStep),
    /// Into a gateway.
    Gateway { queues: QueuesOf, splits: bool },
    /// The spacelink adds bytes to the packet's length, or removes them.
    Resize { bytes: i32 },
}

/// A hop over a link of a group.
#[derive(Clone, Copy, Debug)]
pub struct LinkStep {
    /// The forward direction of the group's first link; each link takes two places, forward and reverse.
    pub base: LinkDirectionId,
    pub member: Member,
    pub is_reverse: bool,
    /// The slot's own delay line that it uses, if any: an index of [`FlowSlot::own_lines`], and which of the two.
    pub own_line: Option<(usize, Direction)>,
}

/// A direction along a flow's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// With the data.
    Down,
    /// Against the data.
    Up,
}

impl LinkStep {
    /// The link between two hosts, each numbered within its group.
    pub fn link(&self, from: u32, to: u32) -> LinkDirectionId {
        let member = self.member.index(from, to);
        LinkDirectionId::new(self.base.index() + 2 * member + u32::from(self.is_reverse))
    }
}

/// One leg of a layout: the steps with the data, and against it.
#[derive(Clone, Debug, Default)]
pub struct LegLayout {
    pub down: Vec<Step>,
    pub up: Vec<Step>,
}

/// A propagation delay that is drawn for each connection.
#[derive(Clone, Copy, Debug)]
pub struct OwnDelay {
    /// The directions whose delays apply: with the data, and against it.
    pub links: (LinkDirectionId, LinkDirectionId),
    /// True if one draw holds in both directions.
    pub is_shared: bool,
}

/// The terminal, of a group, over whose PEP link a flow is split.
#[derive(Clone, Copy, Debug)]
pub struct Joint {
    /// The group's first terminal.
    pub first: TerminalId,
    pub member: Member,
}

impl Joint {
    /// The terminal between two hosts, each numbered within its group.
    pub fn terminal(self, from: u32, to: u32) -> TerminalId {
        TerminalId::new(self.first.index() + self.member.index(from, to))
    }
}

/// A gateway that the data of a flow pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Number of the gateway in the scenario.
    pub gateway: usize,
    /// The terminal on the way, by its number in results.
    pub terminal: Joint,
    /// True if the data come from the terminal.
    pub is_upload: bool,
}

/// Layout of the slots of one traffic entry.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub legs: Vec<LegLayout>,
    /// The terminals over whose PEP links one leg ends and the next begins.
    pub joints: Vec<Joint>,
    /// The queues that packets of each end of these PEP links pass; `None` if they enter the satellite link directly.
    pub joint_queues: Vec<BySide<Option<QueuesOf>>>,
    /// The gateways that the data pass, split or not.
    pub passes: Vec<Pass>,
    /// Each takes two delay lines of the slot: with the data, and against it.
    pub own_delays: Vec<OwnDelay>,
}

impl Layout {
    /// Number of the pool whose free slots serve flows between two hosts: slots split over the PEP links of different
    /// terminals do not replace each other.
    pub fn pool(&self, (from, to): (u32, u32)) -> usize {
        let members = self.joints.iter().map(|joint| joint.member);
        members.fold(0, |pool, member| pool * member.members() as usize + member.index(from, to) as usize)
    }

    /// The pass of a gateway, numbered in the scenario; of two, from one terminal to another, the first or the second.
    pub fn pass(&self, gateway: usize, is_upload: bool) -> Option<&Pass> {
        let mut passes = self.passes.iter().filter(|pass| pass.gateway == gateway);
        let first = passes.next()?;
        passes.find(|pass| pass.is_upload == is_upload && first.is_upload != is_upload).or(Some(first))
    }

    /// The terminals from which and to which data between two hosts go, by their numbers in results.
    pub fn terminals(&self, (from, to): (u32, u32)) -> [Option<TerminalId>; 2] {
        [true, false].map(|is_upload| {
            let mut passes = self.passes.iter();
            passes.find(|pass| pass.is_upload == is_upload).map(|pass| pass.terminal.terminal(from, to))
        })
    }
}

/// Progress of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The slot is not in use.
    Free,
    /// Data are being transferred.
    Live,
    /// The connection waits for the user's next page.
    Idle,
    /// Completed or failed; the connections are draining.
    Closing,
}

/// The user or source that a flow works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Session(SessionId),
    Source(SourceId),
}

/// A place with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Link(LinkDirectionId),
    Gateway(GatewayId),
}

/// Packets of a flow that left a queue whose scheduler tells flows apart.
#[derive(Clone, Copy, Debug)]
pub struct Departures {
    pub place: Place,
    pub packets: u32,
    pub bytes: u64,
    /// Sum of their queueing delays.
    pub waited: Duration,
}

/// A slot for end-to-end flows.
// Aligned to cache lines, so that it takes five.
#[repr(align(64))]
pub struct FlowSlot {
    pub traffic: TrafficId,
    pub flow: FlowId,
    /// The hosts that send and receive the data, each numbered within its group.
    pub hosts: (u32, u32),
    /// Its user: the host behind the terminals, or without a gateway the one that receives the data.
    pub user: FlowId,
    /// The ends of its TCP legs, two for each.
    pub conns: IdRange<ConnId>,
    /// The sending end of its SCTP association; the receiving end follows.
    pub sctp: Option<SctpEndId>,
    /// The sending end of its QUIC connection; the receiving end follows.
    pub quic: Option<QuicEndId>,
    pub rtp: Option<RtpId>,
    /// Its streams on the PEP links of the terminals at which it is split.
    pub streams: Vec<(TerminalId, StreamId)>,
    /// The paths of each leg: with the data, and against it.
    pub paths: Vec<(Path, Path)>,
    /// Delay lines of the slot: with the data, and against it.
    pub own_lines: Vec<(LineId, LineId)>,
    pub owner: Owner,
    pub phase: Phase,
    pub has_failed: bool,
    /// True if no other flow can use the slot, whose streams belong to a terminal at its former gateway.
    pub is_retired: bool,
    pub transfer: Transfer,
    /// Numbers under which queues know its packets after the first, second, … change of its client's address.
    pub aliases: Vec<FlowId>,
    /// Sizes of the objects of an HTTP/3 page, in the order of their requests [bytes].
    pub object_sizes: Vec<u64>,
    /// The resource that took the latest of its TCP segments with data; `None` if all arrived.
    pub last_drop: Option<Bottleneck>,
    /// Its packets that left queues since the last look for its bottleneck.
    pub departures: Vec<Departures>,
    /// Data units on their way, if it is a byte stream.
    pub units: UnitsInFlight,
}

/// State of the applications at the two ends of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    /// Objects left, the current one included; `None`: until the client closes the connection.
    pub objects: Option<u32>,
    /// Size of the current object [bytes].
    pub size: u64,
    /// Bytes of it received.
    pub received: u64,
    /// Bytes of requests that the server has received.
    pub request_bytes: u64,
    /// Requests that the server has answered, and the time of the last.
    pub answered: u64,
    pub answered_at: Instant,
    /// The server has answered the last request.
    pub is_answered: bool,
}

impl FlowSlot {
    /// Begins another flow between two hosts.
    pub fn begin(&mut self, flow: FlowId, hosts: (u32, u32), user: FlowId) {
        (self.flow, self.hosts, self.user) = (flow, hosts, user);
        (self.phase, self.has_failed) = (Phase::Live, false);
        self.transfer = Transfer { objects: Some(1), ..Transfer::default() };
        self.object_sizes.clear();
        self.aliases.clear();
        self.last_drop = None;
        self.departures.clear();
        self.units.clear();
    }

    /// Begins another page on the same connection.
    pub fn continue_with_page(&mut self) {
        self.phase = Phase::Live;
        self.transfer = Transfer { objects: Some(1), ..Transfer::default() };
        self.object_sizes.clear();
    }

    /// Number under which queues know its packets from or to its client's address with this number.
    #[inline]
    pub fn flow_from(&self, address: u32) -> FlowId {
        let alias = address.checked_sub(1).and_then(|place| self.aliases.get(place as usize));
        alias.copied().unwrap_or(self.flow)
    }

    /// Counts a packet of `bytes` that leaves a queue after it `waited`. Returns true if it is the first since the last look.
    #[inline]
    pub fn count_departure(&mut self, place: Place, bytes: u64, waited: Duration) -> bool {
        if let Some(left) = self.departures.iter_mut().find(|left| left.place == place) {
            *left = Departures {
                packets: left.packets + 1,
                bytes: left.bytes + bytes,
                waited: left.waited + waited,
                ..*left
            };
            return false;
        }
        self.departures.push(Departures { place, packets: 1, bytes, waited });
        true
    }

    /// True if a transport with a handshake carries it.
    pub fn has_handshake(&self) -> bool {
        self.is_announced() || self.quic.is_some()
    }

    /// True if its beginning and end can be seen on the way. Those of QUIC are encrypted (RFC 9001, section 5).
    pub fn is_announced(&self) -> bool {
        !self.conns.is_empty() || self.sctp.is_some()
    }
}
