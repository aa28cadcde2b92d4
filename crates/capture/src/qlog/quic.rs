//! Events of QUIC (draft-ietf-quic-qlog-quic-events-13).

use bentpipe_quic::frames::{Frame, Packet, PacketType, packets, varint};
use bentpipe_quic::log::{Logged, LossCause, Note, PACKET_THRESHOLD, State, TIME_THRESHOLD};
use bentpipe_sim::{LogEntry, LoggedEnd, LoggedTransport};
use bentpipe_transport::tcp::Ecn;

use super::text::{duration, hex, optional};
use super::{Changes, Events, addresses};

/// Names of the transport's errors (RFC 9000, section 20.1), by their codes.
const ERRORS: [&str; 17] = [
    "no_error",
    "internal_error",
    "connection_refused",
    "flow_control_error",
    "stream_limit_error",
    "stream_state_error",
    "final_size_error",
    "frame_encoding_error",
    "transport_parameter_error",
    "connection_id_limit_error",
    "protocol_violation",
    "invalid_token",
    "application_error",
    "crypto_buffer_exceeded",
    "key_update_error",
    "aead_limit_reached",
    "no_viable_path",
];

/// Transport parameters that are numbers (RFC 9000, section 18.2; RFC 9221), and their names.
const PARAMETERS: [(u64, &str); 12] = [
    (0x01, "max_idle_timeout"),
    (0x03, "max_udp_payload_size"),
    (0x04, "initial_max_data"),
    (0x05, "initial_max_stream_data_bidi_local"),
    (0x06, "initial_max_stream_data_bidi_remote"),
    (0x07, "initial_max_stream_data_uni"),
    (0x08, "initial_max_streams_bidi"),
    (0x09, "initial_max_streams_uni"),
    (0x0a, "ack_delay_exponent"),
    (0x0b, "max_ack_delay"),
    (0x0e, "active_connection_id_limit"),
    (0x20, "max_datagram_frame_size"),
];

/// Connection ids among the transport parameters.
const IDS: [(u64, &str); 3] = [
    (0x00, "original_destination_connection_id"),
    (0x0f, "initial_source_connection_id"),
    (0x10, "retry_source_connection_id"),
];

/// State of the log of one end.
#[derive(Default)]
pub struct Log {
    is_client: bool,
    /// Algorithms that set their window themselves have no slow start threshold, and none of its states.
    has_states: bool,
    /// Transport parameters of this end and of the peer have been logged.
    knows: [bool; 2],
    is_closed: bool,
    last: [String; 10],
    congestion: &'static str,
}

impl Log {
    pub fn log(&mut self, entry: &LogEntry, out: &mut Events<'_>) {
        match entry {
            LogEntry::Begin(end) => self.begin(end, out),
            LogEntry::Quic(note) => self.note(note, out),
            _ => {}
        }
    }

    fn begin(&mut self, end: &LoggedEnd, out: &mut Events<'_>) {
        let LoggedTransport::Quic { config, .. } = &end.transport else { return };
        self.is_client = end.is_client;
        self.has_states = !config.algorithm.sets_cwnd();
        out.add("quic:connection_started", format_args!("{}", addresses(end)));
        let side = if end.is_client { "client" } else { "server" };
        out.add(
            "quic:version_information",
            format_args!("\"{side}_versions\":[\"00000001\"],\"chosen_version\":\"00000001\""),
        );
        out.add(
            "quic:recovery_parameters_set",
            format_args!(
                "\"reordering_threshold\":{PACKET_THRESHOLD},\"time_threshold\":{TIME_THRESHOLD:?},\
                 \"timer_granularity\":1,\"initial_rtt\":{},\"max_datagram_size\":{},\
                 \"initial_congestion_window\":{},\"persistent_congestion_threshold\":3",
                duration(config.initial_rtt),
                config.max_udp_payload,
                u64::from(config.max_udp_payload) * u64::from(config.initial_window),
            ),
        );
    }

    fn note(&mut self, note: &Note, out: &mut Events<'_>) {
        match note {
            Note::Sent(logged) => self.datagram(logged, true, out),
            Note::Received(logged) => self.datagram(logged, false, out),
            Note::Lost { kind, number, cause } => {
                let trigger = match cause {
                    LossCause::PacketThreshold => "reordering_threshold",
                    LossCause::TimeThreshold => "time_threshold",
                };
                let kind = type_name(*kind);
                out.add(
                    "quic:packet_lost",
                    format_args!(
                        "\"header\":{{\"packet_type\":\"{kind}\",\"packet_number\":{number}}},\
                         \"trigger\":\"{trigger}\""
                    ),
                );
            }
            Note::SpuriousLoss { kind, number } => {
                let kind = type_name(*kind);
                out.add(
                    "bentpipe:spurious_loss",
                    format_args!("\"packet_type\":\"{kind}\",\"packet_number\":{number}"),
                );
            }
            Note::ProbeTimeout => out
                .add("quic:timer_updated", format_args!("\"timer_type\":\"pto\",\"event_type\":\"expired\"")),
            Note::IdleTimeout => {
                self.is_closed = true;
                out.add(
                    "quic:connection_closed",
                    format_args!("\"initiator\":\"local\",\"trigger\":\"idle_timeout\""),
                );
            }
            Note::State(state) => self.state(state, out),
        }
    }

    fn datagram(&mut self, logged: &Logged, is_sent: bool, out: &mut Events<'_>) {
        if logged.ecn != Ecn::NotEct {
            let event = if is_sent { "quic:udp_datagrams_sent" } else { "quic:udp_datagrams_received" };
            let (len, ecn) = (logged.payload.len(), ecn_name(logged.ecn));
            out.add(event, format_args!("\"count\":1,\"raw\":[{{\"length\":{len}}}],\"ecn\":[\"{ecn}\"]"));
        }
        for (packet, (number, is_read)) in packets(&logged.payload).zip(&logged.numbers) {
            let header = header(&packet, *number);
            let raw =
                format!("\"raw\":{{\"length\":{},\"payload_length\":{}}}", packet.len, packet.payload_len());
            if !is_read {
                out.add(
                    "quic:packet_dropped",
                    format_args!("\"header\":{header},{raw},\"trigger\":\"key_unavailable\""),
                );
                continue;
            }
            let name = if is_sent { "quic:packet_sent" } else { "quic:packet_received" };
            let frames: Vec<_> = packet.frames().map(|frame| frame_text(&frame)).collect();
            let frames = frames.join(",");
            out.add(name, format_args!("\"header\":{header},\"frames\":[{frames}],{raw}"));
            for frame in packet.frames() {
                match frame {
                    Frame::Crypto { offset: 0, data } => self.parameters(packet.kind, data, is_sent, out),
                    Frame::ConnectionClose { by_application, error, .. } => {
                        self.close(by_application, error, is_sent, out);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The transport parameters at the start of the client's first message and of the server's encrypted ones, as null
    /// crypto writes them.
    fn parameters(&mut self, kind: PacketType, data: &[u8], is_sent: bool, out: &mut Events<'_>) {
        let by_client = is_sent == self.is_client;
        let expected = if by_client { PacketType::Initial } else { PacketType::Handshake };
        let known = &mut self.knows[usize::from(!is_sent)];
        if kind != expected || *known {
            return;
        }
        let Some(text) = parameters_text(data) else { return };
        *known = true;
        let initiator = if is_sent { "local" } else { "remote" };
        out.add("quic:parameters_set", format_args!("\"initiator\":\"{initiator}\"{text}"));
    }

    fn close(&mut self, by_application: bool, error: u64, is_sent: bool, out: &mut Events<'_>) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let initiator = if is_sent { "local" } else { "remote" };
        let trigger = match (by_application, error) {
            (true, 0) => "application",
            (true, _) => "aborted",
            (false, _) => "error",
        };
        let error = error_text(by_application, error);
        out.add(
            "quic:connection_closed",
            format_args!("\"initiator\":\"{initiator}\",{error},\"trigger\":\"{trigger}\""),
        );
    }

    fn state(&mut self, state: &State, out: &mut Events<'_>) {
        let metrics = &state.recovery;
        let rows = [
            ("min_rtt", optional(metrics.min_rtt)),
            ("smoothed_rtt", optional(metrics.srtt)),
            ("latest_rtt", optional(metrics.rtt)),
            ("rtt_variance", optional(metrics.rttvar)),
            ("pto_count", metrics.pto_count.to_string()),
            ("congestion_window", state.cwnd.to_string()),
            ("bytes_in_flight", metrics.bytes_in_flight.to_string()),
            ("ssthresh", state.ssthresh.map_or_else(String::new, |ssthresh| ssthresh.to_string())),
            ("packets_in_flight", metrics.packets_in_flight.to_string()),
            ("pacing_rate", state.pacing.map_or_else(String::new, |rate| rate.as_bps().to_string())),
        ];
        let mut changes = Changes::default();
        for ((name, value), last) in rows.into_iter().zip(&mut self.last) {
            changes.add(name, last, &value);
            *last = value;
        }
        if !changes.0.is_empty() {
            out.add("quic:recovery_metrics_updated", format_args!("{}", changes.0));
        }
        let phase = match state.ssthresh {
            _ if metrics.in_recovery => "recovery",
            Some(ssthresh) if state.cwnd >= ssthresh => "congestion_avoidance",
            _ => "slow_start",
        };
        if self.has_states && phase != self.congestion {
            let old = match self.congestion {
                "" => String::new(),
                old => format!("\"old\":\"{old}\","),
            };
            self.congestion = phase;
            out.add("quic:congestion_state_updated", format_args!("{old}\"new\":\"{phase}\""));
        }
    }
}

fn type_name(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Initial => "initial",
        PacketType::ZeroRtt => "0RTT",
        PacketType::Handshake => "handshake",
        PacketType::Retry => "retry",
        PacketType::OneRtt => "1RTT",
        PacketType::StatelessReset => "stateless_reset",
        PacketType::Scone => "unknown",
    }
}

pub fn ecn_name(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::NotEct => "Not-ECT",
        Ecn::Ect0 => "ECT(0)",
        Ecn::Ect1 => "ECT(1)",
        Ecn::Ce => "CE",
    }
}

/// PacketHeader of section 8.7.
fn header(packet: &Packet<'_>, number: u64) -> String {
    let kind = type_name(packet.kind);
    let mut text = format!("{{\"packet_type\":\"{kind}\"");
    if packet.number_len > 0 {
        text += &format!(",\"packet_number_length\":{},\"packet_number\":{number}", packet.number_len);
    }
    if let Some(version) = packet.version {
        let (source, destination) = (packet.source, packet.destination);
        text += &format!(
            ",\"version\":\"{version:08x}\",\"scil\":{},\"dcil\":{},\"scid\":\"{}\",\"dcid\":\"{}\"",
            source.len(),
            destination.len(),
            hex(source),
            hex(destination)
        );
    }
    text + "}"
}

/// A frame of section 8.13.
fn frame_text(frame: &Frame<'_>) -> String {
    let named = |name: &str, rest: String| format!("{{\"frame_type\":\"{name}\"{rest}}}");
    let direction = |bidirectional: bool| if bidirectional { "bidirectional" } else { "unidirectional" };
    match frame {
        Frame::Padding { count } => named("padding", format!(",\"raw\":{{\"payload_length\":{count}}}")),
        Frame::Ping => named("ping", String::new()),
        Frame::Ack(ack) => {
            let range = |(start, end)| {
                if start == end { format!("[{start}]") } else { format!("[{start},{end}]") }
            };
            let ranges: Vec<_> = ack.ranges().map(range).collect();
            // In microseconds divided by 8, which all hosts use (RFC 9000, section 18.2).
            let delay = duration(bentpipe_units::Duration::from_micros(ack.delay * 8));
            let counts = ack.ecn.map_or_else(String::new, |[ect0, ect1, ce]| {
                format!(",\"ect0\":{ect0},\"ect1\":{ect1},\"ce\":{ce}")
            });
            named("ack", format!(",\"ack_delay\":{delay},\"acked_ranges\":[{}]{counts}", ranges.join(",")))
        }
        Frame::ResetStream { id, error, final_size } => named(
            "reset_stream",
            format!(
                ",\"stream_id\":{id},\"error\":\"unknown\",\"error_code\":{error},\"final_size\":{final_size}"
            ),
        ),
        Frame::StopSending { id, error } => {
            named("stop_sending", format!(",\"stream_id\":{id},\"error\":\"unknown\",\"error_code\":{error}"))
        }
        Frame::Crypto { offset, data } => {
            named("crypto", format!(",\"offset\":{offset},\"raw\":{{\"length\":{}}}", data.len()))
        }
        Frame::NewToken(token) => {
            let len = token.len();
            named("new_token", format!(",\"token\":{{\"type\":\"resumption\",\"raw\":{{\"length\":{len}}}}}"))
        }
        Frame::Stream { id, offset, len, fin } => {
            let fin = if *fin { ",\"fin\":true" } else { "" };
            named(
                "stream",
                format!(",\"stream_id\":{id},\"offset\":{offset}{fin},\"raw\":{{\"length\":{len}}}"),
            )
        }
        Frame::MaxData(maximum) => named("max_data", format!(",\"maximum\":{maximum}")),
        Frame::MaxStreamData { id, maximum } => {
            named("max_stream_data", format!(",\"stream_id\":{id},\"maximum\":{maximum}"))
        }
        Frame::MaxStreams { bidirectional, maximum } => named(
            "max_streams",
            format!(",\"stream_type\":\"{}\",\"maximum\":{maximum}", direction(*bidirectional)),
        ),
        Frame::DataBlocked(limit) => named("data_blocked", format!(",\"limit\":{limit}")),
        Frame::StreamDataBlocked { id, limit } => {
            named("stream_data_blocked", format!(",\"stream_id\":{id},\"limit\":{limit}"))
        }
        Frame::StreamsBlocked { bidirectional, limit } => named(
            "streams_blocked",
            format!(",\"stream_type\":\"{}\",\"limit\":{limit}", direction(*bidirectional)),
        ),
        Frame::NewConnectionId { sequence, retire_prior_to, id, .. } => named(
            "new_connection_id",
            format!(
                ",\"sequence_number\":{sequence},\"retire_prior_to\":{retire_prior_to},\
                 \"connection_id_length\":{},\"connection_id\":\"{}\"",
                id.len(),
                hex(id)
            ),
        ),
        Frame::RetireConnectionId(sequence) => {
            named("retire_connection_id", format!(",\"sequence_number\":{sequence}"))
        }
        Frame::PathChallenge(data) => named("path_challenge", format!(",\"data\":\"{}\"", hex(data))),
        Frame::PathResponse(data) => named("path_response", format!(",\"data\":\"{}\"", hex(data))),
        Frame::ConnectionClose { by_application, error, frame_type } => {
            let space = if *by_application { "application" } else { "transport" };
            let error = match error_text(*by_application, *error) {
                text if *by_application => text.replacen("application_error", "error", 1),
                text => text.replacen("connection_error", "error", 1),
            };
            let cause = frame_type.map_or_else(String::new, |kind| format!(",\"trigger_frame_type\":{kind}"));
            named("connection_close", format!(",\"error_space\":\"{space}\",{error}{cause}"))
        }
        Frame::HandshakeDone => named("handshake_done", String::new()),
        Frame::Datagram(data) => named("datagram", format!(",\"raw\":{{\"length\":{}}}", data.len())),
        Frame::Extension(kind) => named("unknown", format!(",\"frame_type_bytes\":{kind}")),
    }
}

/// The error of a connection, with its code if it has no name.
fn error_text(by_application: bool, error: u64) -> String {
    if by_application {
        return format!("\"application_error\":\"unknown\",\"error_code\":{error}");
    }
    match (ERRORS.get(error as usize), error) {
        (Some(name), _) => format!("\"connection_error\":\"{name}\""),
        (None, 0x100..=0x1ff) => format!("\"connection_error\":\"crypto_error_0x{error:03x}\""),
        (None, _) => format!("\"connection_error\":\"unknown\",\"error_code\":{error}"),
    }
}

/// Transport parameters of a message of null crypto, as members of an object, each after a comma.
fn parameters_text(message: &[u8]) -> Option<String> {
    // Type and length of the message, and length of the parameters.
    let (len, rest) = message.get(4..)?.split_first_chunk::<2>()?;
    let mut rest = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    if rest.is_empty() {
        return None;
    }
    let mut text = String::new();
    while !rest.is_empty() {
        let id = varint(&mut rest)?;
        let len = usize::try_from(varint(&mut rest)?).ok()?;
        let (mut value, after) = rest.split_at_checked(len)?;
        rest = after;
        if let Some((_, name)) = PARAMETERS.iter().find(|(number, _)| *number == id) {
            text += &format!(",\"{name}\":{}", varint(&mut value)?);
        } else if let Some((_, name)) = IDS.iter().find(|(number, _)| *number == id) {
            text += &format!(",\"{name}\":\"{}\"", hex(value));
        } else if id == 0x0c {
            text += ",\"disable_active_migration\":true";
        }
    }
    Some(text)
}
