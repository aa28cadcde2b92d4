//! Packets in flight.

use bentpipe_transport::{pep_link, rtp, sctp, tcp};
use bentpipe_units::{Duration, Instant};

use super::Path;
use crate::clock::EventNumber;
use crate::ids::{
    AckId, ConnId, DatagramId, IdVec, PacketId, QuicEndId, SctpEndId, SctpPacketId, Slab, SlotId, StreamId,
    TerminalId,
};
use crate::memory::{grow, prefetch};
use crate::side::Side;

/// A packet from one end of its path to the other.
// Aligned to cache lines, so that it takes two.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct PacketInFlight {
    pub body: Body,
    /// The slot of its flow; `None` if it belongs to no flow.
    pub slot: Option<SlotId>,
    /// Length on the wire [bytes].
    pub len: u32,
    /// The hops that are left.
    pub path: Path,
    /// Time at which it left its sender.
    sent_at: Instant,
    /// True on a line that links share.
    pub(super) is_on_shared_line: bool,
    /// True once its arrival from there is scheduled.
    pub(super) is_scheduled: bool,
    /// Number of the event of its arrival, and the packet that follows it on its link; only on a line that links share.
    pub(super) number: EventNumber,
    pub(super) next_on_link: Option<PacketId>,
}

impl PacketInFlight {
    pub fn new(body: Body, slot: SlotId, len: u32, path: Path) -> Self {
        Self { slot: Some(slot), ..Self::without_flow(body, len, path) }
    }

    /// The packet that follows it on its link, if that is known.
    pub fn next_on_link(&self) -> Option<PacketId> {
        self.next_on_link
    }

    /// A packet that belongs to no flow.
    pub fn without_flow(body: Body, len: u32, path: Path) -> Self {
        let (number, next_on_link) = (EventNumber::UNKNOWN, None);
        let (sent_at, is_on_shared_line, is_scheduled) = (Instant::ZERO, false, false);
        Self { body, slot: None, len, path, sent_at, is_on_shared_line, is_scheduled, number, next_on_link }
    }
}

/// Content of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A TCP segment for one end of a connection.
    Tcp { to: ConnId, segment: tcp::Segment },
    /// Stream data between a gateway and its terminal.
    PepData { terminal: TerminalId, to: Side, data: pep_link::Data },
    /// An acknowledgement between a gateway and its terminal, stored apart for its size.
    PepAck { terminal: TerminalId, to: Side, ack: AckId },
    /// A packet for one end of an SCTP association, stored apart for its size.
    Sctp { to: SctpEndId, packet: SctpPacketId, has_data: bool },
    /// A datagram for one end of a QUIC connection, its payload stored apart, from or to an address of the client, by its number. It
    /// carries data of streams or not, and may repeat all of it.
    Quic {
        to: QuicEndId,
        datagram: DatagramId,
        ecn: tcp::Ecn,
        has_data: bool,
        is_repeated: bool,
        address: u32,
    },
    /// An RTP packet.
    Rtp { packet: rtp::Packet },
    /// An RTCP sender report.
    SenderReport { report: rtp::SenderReport },
    /// An RTCP receiver report.
    ReceiverReport { report: rtp::ReceiverReport },
    /// A UDP datagram.
    Datagram,
    /// Bytes of a stream that the PEP is processing; they are on no link.
    Chunk { terminal: TerminalId, stream: StreamId, bytes: u64, fin: bool },
}

impl Body {
    /// True if it carries payload.
    pub fn has_payload(&self) -> bool {
        match self {
            Self::Tcp { segment, .. } => segment.len > 0,
            Self::PepData { data, .. } => data.len > 0,
            Self::Rtp { .. } | Self::Datagram | Self::Chunk { .. } => true,
            Self::SenderReport { .. } | Self::ReceiverReport { .. } | Self::PepAck { .. } => false,
            Self::Sctp { has_data, .. } | Self::Quic { has_data, .. } => *has_data,
        }
    }
}

/// All packets in flight.
#[derive(Default)]
pub struct Packets {
    slab: Slab<PacketId, PacketInFlight>,
    /// Packets in flight of each slot.
    of_slot: IdVec<SlotId, u32>,
    pub acks: Slab<AckId, pep_link::Ack>,
    pub sctp: Slab<SctpPacketId, sctp::Packet>,
    pub datagrams: Slab<DatagramId, Vec<u8>>,
}

impl Packets {
    /// Makes room for the packets of another slot.
    pub fn add_slot(&mut self) {
        self.of_slot.make_room(grow);
        self.of_slot.push(0);
    }

    #[inline(always)]
    pub fn insert(&mut self, packet: PacketInFlight, now: Instant) -> PacketId {
        if let Some(slot) = packet.slot {
            self.of_slot[slot] += 1;
        }
        self.slab.make_room(grow);
        self.slab.insert(PacketInFlight { sent_at: now, ..packet })
    }

    #[inline]
    pub fn remove(&mut self, id: PacketId) -> PacketInFlight {
        let packet = self.slab.remove(id);
        if let Some(slot) = packet.slot {
            self.of_slot[slot] -= 1;
        }
        packet
    }

    /// Removes a packet with the content that is stored apart, except the payload of a datagram of QUIC, which is
    /// [`take`](Slab::take)n.
    pub fn discard(&mut self, id: PacketId) -> PacketInFlight {
        let packet = self.remove(id);
        match packet.body {
            Body::PepAck { ack, .. } => drop(self.acks.remove(ack)),
            Body::Sctp { packet, .. } => drop(self.sctp.take(packet)),
            _ => {}
        }
        packet
    }

    /// Fetches a packet into the cache.
    #[inline]
    pub fn prefetch(&self, id: PacketId) {
        prefetch(&self.slab[id]);
    }

    /// Time at which a packet left its sender; also of one just removed.
    #[inline]
    pub fn sent_at(&self, id: PacketId) -> Instant {
        self.slab[id].sent_at
    }

    /// Time since a packet left its sender; also of one just removed.
    #[inline]
    pub fn age(&self, id: PacketId, now: Instant) -> Duration {
        now - self.sent_at(id)
    }

    /// True if packets of a slot are in flight.
    #[inline]
    pub fn has_any_of(&self, slot: SlotId) -> bool {
        self.of_slot[slot] > 0
    }

    /// All packets in flight.
    pub fn iter(&self) -> impl Iterator<Item = (PacketId, &PacketInFlight)> {
        self.slab.iter()
    }

    /// Packets in flight.
    pub fn len(&self) -> usize {
        self.slab.len()
    }
}

impl std::ops::Index<PacketId> for Packets {
    type Output = PacketInFlight;
    #[inline(always)]
    fn index(&self, id: PacketId) -> &PacketInFlight {
        &self.slab[id]
    }
}

impl std::ops::IndexMut<PacketId> for Packets {
    #[inline(always)]
    fn index_mut(&mut self, id: PacketId) -> &mut PacketInFlight {
        &mut self.slab[id]
    }
}
