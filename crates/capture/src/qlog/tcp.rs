//! Events of TCP in the project's own schema, named and shaped like those of QUIC.

use std::collections::BTreeSet;

use bentpipe_sim::{LogEntry, LoggedEnd, LoggedTransport};
use bentpipe_transport::tcp::{CongestionPhase, Ecn, Flags, Probe, Segment, Stats};
use bentpipe_units::Duration;

use super::quic::ecn_name;
use super::text::{duration, optional};
use super::{Changes, Events, addresses};

/// State of the log of one end.
#[derive(Default)]
pub struct Log {
    has_states: bool,
    is_over: bool,
    /// Timeouts and fast retransmits so far, and the later of the two.
    causes: (u64, u64, &'static str),
    /// Positions of segments that were declared lost, until the peer reports duplicates of them.
    lost: BTreeSet<u64>,
    min_rtt: Option<Duration>,
    last: [String; 9],
    congestion: &'static str,
}

impl Log {
    pub fn log(&mut self, entry: &LogEntry, out: &mut Events<'_>) {
        match entry {
            LogEntry::Begin(end) => self.begin(end, out),
            LogEntry::SegmentSent { segment, len, probe, stats } => {
                self.sent(segment, *len, *probe, stats, out);
            }
            LogEntry::SegmentReceived { segment, len } => {
                out.add("tcp:packet_received", format_args!("{}", packet(segment, *len)));
                self.find_spurious(segment, out);
            }
            LogEntry::TcpState { stats, phase, is_over, failed } => {
                self.state(stats, *phase, out);
                if *is_over && !std::mem::replace(&mut self.is_over, true) {
                    let trigger = if *failed { "error" } else { "application" };
                    out.add("tcp:connection_closed", format_args!("\"trigger\":\"{trigger}\""));
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, end: &LoggedEnd, out: &mut Events<'_>) {
        let LoggedTransport::Tcp(config) = &end.transport else { return };
        self.has_states = !config.algorithm.sets_cwnd();
        out.add("tcp:connection_started", format_args!("{}", addresses(end)));
        let scale =
            config.window_scale.map_or_else(String::new, |shift| format!(",\"window_scale\":{shift}"));
        out.add(
            "tcp:parameters_set",
            format_args!(
                "\"initiator\":\"local\",\"maximum_segment_size\":{},\"receive_window\":{}{scale},\
                 \"sack_permitted\":{},\"timestamps\":{},\"ecn\":{}",
                config.mss, config.receive_window, config.sack, config.timestamps, config.ecn,
            ),
        );
        out.add(
            "tcp:recovery_parameters_set",
            format_args!(
                "\"initial_rto\":{},\"min_rto\":{},\"initial_congestion_window\":{}",
                duration(config.initial_rto),
                duration(config.min_rto),
                u64::from(config.initial_window) * u64::from(config.mss),
            ),
        );
    }

    fn sent(
        &mut self,
        segment: &Segment,
        len: u32,
        probe: Option<Probe>,
        stats: &Stats,
        out: &mut Events<'_>,
    ) {
        let (timeouts, fast, cause) = &mut self.causes;
        if stats.timeouts > *timeouts {
            *cause = "retransmission_timeout";
        } else if stats.fast_retransmits > *fast {
            *cause = "fast_retransmit";
        }
        (*timeouts, *fast) = (stats.timeouts, stats.fast_retransmits);
        if segment.retransmission && probe.is_none() {
            let (seq, bytes) = (segment.seq, segment.len);
            self.lost.insert(seq);
            let cause = if cause.is_empty() { "fast_retransmit" } else { cause };
            out.add(
                "tcp:packet_lost",
                format_args!(
                    "\"header\":{{\"sequence_number\":{seq}}},\"raw\":{{\"payload_length\":{bytes}}},\
                     \"trigger\":\"{cause}\""
                ),
            );
        }
        let again = if segment.retransmission { ",\"is_retransmission\":true" } else { "" };
        let trigger = match probe {
            Some(Probe::Loss) => ",\"trigger\":\"tail_loss_probe\"",
            Some(Probe::Window) => ",\"trigger\":\"window_probe\"",
            None => "",
        };
        out.add("tcp:packet_sent", format_args!("{}{again}{trigger}", packet(segment, len)));
    }

    /// A D-SACK block (RFC 2883) tells that a segment arrived twice: its retransmission was not needed.
    fn find_spurious(&mut self, segment: &Segment, out: &mut Events<'_>) {
        let Some((start, end)) = segment.sack.dsack(segment.ack) else { return };
        while let Some(seq) = self.lost.range(start..end).next().copied() {
            self.lost.remove(&seq);
            out.add("tcp:spurious_loss", format_args!("\"header\":{{\"sequence_number\":{seq}}}"));
        }
    }

    fn state(&mut self, stats: &Stats, phase: CongestionPhase, out: &mut Events<'_>) {
        self.min_rtt = self.min_rtt.into_iter().chain(stats.rtt).min();
        let rows = [
            ("min_rtt", optional(self.min_rtt)),
            ("smoothed_rtt", optional(stats.srtt)),
            ("latest_rtt", optional(stats.rtt)),
            ("retransmission_timeout", duration(stats.rto)),
            ("timeouts", stats.timeouts.to_string()),
            ("congestion_window", stats.cwnd.to_string()),
            ("bytes_in_flight", stats.in_flight.to_string()),
            ("ssthresh", stats.ssthresh.map_or_else(String::new, |ssthresh| ssthresh.to_string())),
            ("retransmissions", stats.retransmissions.to_string()),
        ];
        let mut changes = Changes::default();
        for ((name, value), last) in rows.into_iter().zip(&mut self.last) {
            changes.add(name, last, &value);
            *last = value;
        }
        if !changes.0.is_empty() {
            out.add("tcp:recovery_metrics_updated", format_args!("{}", changes.0));
        }
        let phase = match phase {
            CongestionPhase::Recovery => "recovery",
            CongestionPhase::Timeout => "timeout_recovery",
            _ if !self.has_states => "open",
            CongestionPhase::SlowStart => "slow_start",
            CongestionPhase::Avoidance => "congestion_avoidance",
        };
        if phase != self.congestion {
            let old = match self.congestion {
                "" => String::new(),
                old => format!("\"old\":\"{old}\","),
            };
            self.congestion = phase;
            out.add("tcp:congestion_state_updated", format_args!("{old}\"new\":\"{phase}\""));
        }
    }
}

/// Header and lengths of a segment.
fn packet(segment: &Segment, len: u32) -> String {
    let names = [
        (Flags::SYN, "SYN"),
        (Flags::FIN, "FIN"),
        (Flags::RST, "RST"),
        (Flags::ACK, "ACK"),
        (Flags::ECE, "ECE"),
        (Flags::CWR, "CWR"),
        (Flags::AE, "AE"),
    ];
    let flags: Vec<_> = names.iter().filter(|(flag, _)| segment.flags.has(*flag)).collect();
    let flags: Vec<_> = flags.iter().map(|(_, name)| format!("\"{name}\"")).collect();
    let mut text =
        format!("\"header\":{{\"sequence_number\":{},\"flags\":[{}]", segment.seq, flags.join(","));
    if segment.flags.has(Flags::ACK) {
        text += &format!(",\"acknowledgement_number\":{}", segment.ack);
    }
    text += &format!(",\"window\":{}", segment.window);
    let blocks = segment.sack.wire_blocks(segment.ack);
    let blocks: Vec<_> = blocks.map(|(start, end)| format!("[{start},{end}]")).collect();
    if !segment.flags.has(Flags::SYN) && !blocks.is_empty() {
        text += &format!(",\"sack\":[{}]", blocks.join(","));
    }
    text += &format!("}},\"raw\":{{\"length\":{len},\"payload_length\":{}}}", segment.len);
    if segment.ecn != Ecn::NotEct {
        text += &format!(",\"ecn\":\"{}\"", ecn_name(segment.ecn));
    }
    text
}
