//! Events of the agenda.

use crate::ids::{
    CarrierId, ConnId, GatewayId, HandoverId, Id, LineId, LinkDirectionId, MovingId, PacketId, QuicEndId,
    ReturnCarrierId, RtpId, SctpEndId, SessionId, SharedLineId, SourceId, TerminalId,
};
use crate::side::Side;

/// An event of one component.
// Sixteen kinds fit in the packed form. Variants whose indexes need fewer bits share a kind, and the lowest bit distinguishes them;
// `Sample` is index 0 of the kind of `Handover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first packet of a delay line arrives.
    Line(LineId),
    /// The first packet of a delay line that links share arrives.
    SharedLine(SharedLineId),
    /// A packet of a link that does not keep order arrives.
    Packet(PacketId),
    /// A packet passes from a link to the one that follows, and is observed there.
    Passing(PacketId),
    /// A link's sender is free.
    LinkFree(LinkDirectionId),
    /// A link's queue wants to be woken.
    QueueWake(LinkDirectionId),
    /// A link's capacity changes.
    Capacity(LinkDirectionId),
    /// A TCP connection's timer.
    ConnTimer(ConnId),
    /// A TCP connection's pacing lets the next segment go.
    ConnPace(ConnId),
    /// A gateway wants to be woken.
    Gateway(GatewayId),
    /// The terminal whose queues these are may send in its slot.
    Slot(GatewayId),
    /// A carrier's turn.
    Carrier(CarrierId),
    /// A superframe of a return carrier begins.
    Superframe(ReturnCarrierId),
    /// The timer of the PEP link to a terminal, at one end.
    PepTimer(TerminalId, Side),
    /// A session opens its next page.
    Session(SessionId),
    /// A session gives up its page, unless it is complete, or ends connections that it has kept for long enough.
    SessionTimeout(SessionId),
    /// A source opens its flow, or sends its next packet.
    Source(SourceId),
    /// The timer of one end of an SCTP association.
    SctpTimer(SctpEndId),
    /// The timer of one end of a QUIC connection.
    QuicTimer(QuicEndId),
    /// An RTP session's sender report.
    SenderReport(RtpId),
    /// An RTP session's receiver report.
    ReceiverReport(RtpId),
    /// The hosts of a group change their addresses.
    NewAddress(MovingId),
    /// Terminals move to another gateway.
    Handover(HandoverId),
    /// The recorder takes a sample, after everything else at its time.
    Sample,
}

const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 24;
/// Bits of a packed event.
pub(super) const EVENT_BITS: u32 = INDEX_BITS + KIND_BITS;
/// Highest index of a component that the agenda can store.
pub const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;
/// Highest index of a packet that the agenda can store: its two events share a kind.
pub const MAX_PACKET: u32 = MAX_INDEX / 2;

impl Event {
    const fn kind(self) -> u64 {
        match self {
            Self::Line(_) => 0,
            Self::Packet(_) | Self::Passing(_) => 1,
            Self::LinkFree(_) => 2,
            Self::QueueWake(_) => 3,
            Self::Capacity(_) => 4,
            Self::ConnTimer(_) => 5,
            Self::ConnPace(_) => 6,
            Self::Gateway(_) | Self::Slot(_) => 7,
            Self::PepTimer(..) => 8,
            Self::Carrier(_) | Self::Superframe(_) => 9,
            Self::Session(_) | Self::SessionTimeout(_) => 10,
            Self::Source(_) => 11,
            Self::SctpTimer(_) | Self::QuicTimer(_) => 12,
            Self::SenderReport(_) | Self::SharedLine(_) => 13,
            Self::ReceiverReport(_) | Self::NewAddress(_) => 14,
            Self::Sample | Self::Handover(_) => 15,
        }
    }

    #[inline(always)]
    pub(super) fn pack(self) -> u64 {
        let index = match self {
            Self::Line(id) => id.index(),
            Self::Packet(id) => 2 * id.index(),
            Self::Passing(id) => 2 * id.index() + 1,
            Self::LinkFree(id) | Self::QueueWake(id) | Self::Capacity(id) => id.index(),
            Self::ConnTimer(id) | Self::ConnPace(id) => id.index(),
            Self::Gateway(id) => 2 * id.index(),
            Self::Slot(id) => 2 * id.index() + 1,
            Self::Carrier(id) => 2 * id.index(),
            Self::Superframe(id) => 2 * id.index() + 1,
            Self::PepTimer(id, side) => 2 * id.index() + u32::from(side.is_far()),
            Self::Session(id) => 2 * id.index(),
            Self::SessionTimeout(id) => 2 * id.index() + 1,
            Self::Source(id) => id.index(),
            Self::SctpTimer(id) => 2 * id.index(),
            Self::QuicTimer(id) => 2 * id.index() + 1,
            Self::SenderReport(id) => 2 * id.index(),
            Self::SharedLine(id) => 2 * id.index() + 1,
            Self::ReceiverReport(id) => 2 * id.index(),
            Self::NewAddress(id) => 2 * id.index() + 1,
            Self::Handover(id) => 1 + id.index(),
            Self::Sample => 0,
        };
        u64::from(index) << KIND_BITS | self.kind()
    }

    #[inline(always)]
    pub(super) fn unpack(bits: u64) -> Self {
        let index = (bits >> KIND_BITS) as u32 & MAX_INDEX;
        match bits & ((1 << KIND_BITS) - 1) {
            0 => Self::Line(Id::new(index)),
            1 if index % 2 == 1 => Self::Passing(Id::new(index / 2)),
            1 => Self::Packet(Id::new(index / 2)),
            2 => Self::LinkFree(Id::new(index)),
            3 => Self::QueueWake(Id::new(index)),
            4 => Self::Capacity(Id::new(index)),
            5 => Self::ConnTimer(Id::new(index)),
            6 => Self::ConnPace(Id::new(index)),
            7 if index % 2 == 1 => Self::Slot(Id::new(index / 2)),
            7 => Self::Gateway(Id::new(index / 2)),
            8 => Self::PepTimer(Id::new(index / 2), if index % 2 == 1 { Side::Far } else { Side::Near }),
            9 if index % 2 == 1 => Self::Superframe(Id::new(index / 2)),
            9 => Self::Carrier(Id::new(index / 2)),
            10 if index % 2 == 1 => Self::SessionTimeout(Id::new(index / 2)),
            10 => Self::Session(Id::new(index / 2)),
            11 => Self::Source(Id::new(index)),
            12 if index % 2 == 1 => Self::QuicTimer(Id::new(index / 2)),
            12 => Self::SctpTimer(Id::new(index / 2)),
            13 if index % 2 == 1 => Self::SharedLine(Id::new(index / 2)),
            13 => Self::SenderReport(Id::new(index / 2)),
            14 if index % 2 == 1 => Self::NewAddress(Id::new(index / 2)),
            14 => Self::ReceiverReport(Id::new(index / 2)),
            _ if index > 0 => Self::Handover(Id::new(index - 1)),
            _ => Self::Sample,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_packing() {
        for event in [
            Event::Line(Id::new(0)),
            Event::SharedLine(Id::new(1)),
            Event::Packet(Id::new(1)),
            Event::Packet(Id::new(MAX_PACKET)),
            Event::Passing(Id::new(MAX_PACKET)),
            Event::LinkFree(Id::new(MAX_INDEX)),
            Event::QueueWake(Id::new(7)),
            Event::Capacity(Id::new(7)),
            Event::ConnTimer(Id::new(7)),
            Event::ConnPace(Id::new(7)),
            Event::Gateway(Id::new(7)),
            Event::Gateway(Id::new(MAX_INDEX / 2)),
            Event::Slot(Id::new(MAX_INDEX / 2)),
            Event::Carrier(Id::new(7)),
            Event::Superframe(Id::new(7)),
            Event::PepTimer(Id::new(7), Side::Near),
            Event::PepTimer(Id::new(MAX_INDEX / 2), Side::Far),
            Event::Session(Id::new(MAX_INDEX / 2)),
            Event::SessionTimeout(Id::new(MAX_INDEX / 2)),
            Event::Source(Id::new(7)),
            Event::SctpTimer(Id::new(7)),
            Event::QuicTimer(Id::new(MAX_INDEX / 2)),
            Event::SenderReport(Id::new(7)),
            Event::ReceiverReport(Id::new(7)),
            Event::NewAddress(Id::new(MAX_INDEX / 2)),
            Event::Handover(Id::new(0)),
            Event::Handover(Id::new(MAX_INDEX - 1)),
            Event::Sample,
        ] {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }
}
