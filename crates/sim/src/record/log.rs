//! Logs of connections: what each end of a TCP or QUIC connection sends, receives and decides.

use bentpipe_quic::log::Note;
use bentpipe_transport::tcp;
use bentpipe_units::Instant;

use super::observe::Ends;
use super::trace::Selector;

/// Connections to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogWatch {
    /// Flows whose connections are logged; all if empty.
    pub flows: Vec<Selector>,
    /// Largest number of flows logged; further ones are only counted.
    pub limit: u32,
}

/// An event of one end of a logged connection.
#[derive(Clone, Debug)]
pub struct LogEvent {
    /// Time.
    pub time: Instant,
    /// The end, by the number that [`LogEntry::Begin`] introduced.
    pub end: u32,
    /// The event.
    pub entry: LogEntry,
}

/// The event of a logged connection.
#[derive(Clone, Debug)]
pub enum LogEntry {
    /// The end opens its connection, or receives its first packet.
    Begin(Box<LoggedEnd>),
    /// A QUIC end's note.
    Quic(Note),
    /// A TCP end sent a segment.
    SegmentSent {
        /// The segment.
        segment: tcp::Segment,
        /// Its length on the wire [bytes].
        len: u32,
        /// The kind of probe, if it is one.
        probe: Option<tcp::Probe>,
        /// State of the sender.
        stats: Box<tcp::Stats>,
    },
    /// A TCP end received a segment.
    SegmentReceived {
        /// The segment.
        segment: tcp::Segment,
        /// Its length on the wire [bytes].
        len: u32,
    },
    /// State of a TCP end, which may be that of before.
    TcpState {
        /// Counters, windows and timers.
        stats: tcp::Stats,
        /// State of loss recovery.
        phase: tcp::CongestionPhase,
        /// True once the connection has ended at this end, except for late segments.
        is_over: bool,
        /// True if it ended in any way but in order.
        failed: bool,
    },
    /// The end is over.
    End,
}

/// One end of a logged connection.
#[derive(Clone, Debug)]
pub struct LoggedEnd {
    /// Its flow, and the hosts; [`Ends::with_data`] is true for the end nearer the data's sender.
    pub ends: Ends,
    /// Legs of its flow.
    pub legs: u32,
    /// True if it opened the connection.
    pub is_client: bool,
    /// Its transport.
    pub transport: LoggedTransport,
}

/// Transport of a logged connection.
#[derive(Clone, Debug)]
pub enum LoggedTransport {
    /// QUIC.
    Quic {
        /// Destination connection id of the first packet.
        original_destination: [u8; 8],
        /// Configuration.
        config: bentpipe_quic::Config,
    },
    /// TCP.
    Tcp(tcp::Config),
}
