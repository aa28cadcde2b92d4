//! Typed indexes of the simulator's parts.

pub use bentpipe_units::{Id, IdRange, IdVec, Slab};
use bentpipe_units::{id_types, optional_id_types};

id_types! {
    /// A packet in flight.
    pub PacketId,
    /// An acknowledgement between a gateway and its terminal.
    pub AckId,
    /// An SCTP packet.
    pub SctpPacketId,
    /// One direction of a link.
    pub LinkDirectionId,
    /// A delay line.
    pub LineId,
    /// The queues of a gateway.
    pub GatewayId,
    /// A carrier that several queues share.
    pub CarrierId,
    /// A return carrier that terminals share by demand assignment.
    pub ReturnCarrierId,
    /// A terminal.
    pub TerminalId,
    /// A stream of a split connection on one PEP link.
    pub StreamId,
    /// One end of a TCP connection.
    pub ConnId,
    /// A TCP configuration.
    pub TcpConfigId,
    /// The payload of a UDP datagram of QUIC.
    pub DatagramId,
    /// A QUIC configuration.
    pub QuicConfigId,
    /// An SCTP configuration.
    pub SctpConfigId,
    /// An RTP configuration.
    pub RtpConfigId,
    /// A traffic of the scenario.
    pub TrafficId,
    /// A user of pages.
    pub SessionId,
    /// A source of transfers or packets.
    pub SourceId,
    /// A class of traffic.
    pub ClassId,
    /// A group of hosts whose addresses change.
    pub MovingId,
    /// A handover of terminals to another gateway.
    pub HandoverId,
}

optional_id_types! {
    /// A delay line that links share.
    pub SharedLineId,
    /// A slot for end-to-end flows.
    pub SlotId,
    /// One end of a QUIC connection.
    pub QuicEndId,
    /// One end of an SCTP association.
    pub SctpEndId,
    /// An RTP session.
    pub RtpId,
    /// A traced sender.
    pub TraceId,
    /// An interface at which packets are observed.
    pub InterfaceId,
    /// A place with a queue, as recorded.
    pub PlaceId,
    /// A call, as recorded at its listener.
    pub CallId,
    /// A viewing, as recorded at its viewer.
    pub ViewingId,
}
