//! The log of one end.

use bentpipe_units::Instant;
use quinn_proto::FrameStats;

use super::Connection;
use crate::config::std_duration;
use crate::log::{Counts, Facts, Log, Note, State};

impl Connection {
    /// Logs the datagrams and the loss recovery of this end, which has sent nothing yet; its packets must be readable.
    pub fn start_log(&mut self) {
        debug_assert!(self.is_readable);
        self.log = Some(Box::new(Log::new(self.is_client, self.initial_rtt)));
    }

    /// Takes what the log has noted, with the times.
    pub fn take_notes(&mut self) -> Option<std::vec::Drain<'_, (Instant, Note)>> {
        self.log.as_mut().map(|log| log.take_notes())
    }

    /// Notes the state of this end in its log.
    pub fn log_state(&mut self, now: Instant) {
        let pacing = self.pacing_rate();
        if let (Some(log), Some((_, quic))) = (&mut self.log, &self.quic) {
            let controller = quic.congestion_state().metrics();
            let (cwnd, ssthresh) = (controller.congestion_window, controller.ssthresh);
            log.note_state(now, State { recovery: log.metrics(), cwnd, ssthresh, pacing });
        }
    }

    pub(super) fn facts(&self) -> Facts {
        let quic = self.quic.as_ref().map(|(_, quic)| quic);
        Facts {
            is_handshaking: quic.is_none_or(|quic| quic.is_handshaking()),
            is_closed: quic.is_some_and(|quic| quic.is_closed()),
            was_closed: false,
        }
    }

    /// Frames that quinn has processed, and the congestion window.
    pub(super) fn before_log(&self) -> (Counts, u64) {
        let Some((_, quic)) = &self.quic else { return (Counts::default(), 0) };
        (processed(quic), quic.congestion_state().window())
    }

    /// Compares the log with quinn after a step from a congestion window of `before`.
    pub(super) fn check_log(&mut self, now: Instant, before: u64) {
        let (Some(log), Some((_, quic))) = (&mut self.log, &self.quic) else { return };
        if quic.congestion_state().window() < before {
            log.begin_recovery(now);
        }
        let path = quic.stats().path;
        debug_assert_eq!(log.lost(), (path.lost_packets, path.lost_bytes), "at {now:?}");
        debug_assert_eq!(std_duration(log.srtt()), quic.rtt(), "at {now:?}");
        self.log_state(now);
    }
}

/// Frames that quinn has processed.
pub(super) fn processed(quic: &quinn_proto::Connection) -> Counts {
    counts(quic.stats().frame_rx)
}

/// Frames that quinn has sent and that ask for an ACK.
pub(super) fn eliciting(quic: &quinn_proto::Connection) -> u64 {
    let [_acks, others @ ..] = counts(quic.stats().frame_tx);
    others.into_iter().sum()
}

fn counts(f: FrameStats) -> Counts {
    let others = f.ack_frequency
        + f.connection_close
        + f.data_blocked
        + f.datagram
        + u64::from(f.handshake_done)
        + f.immediate_ack
        + f.max_data
        + f.max_stream_data
        + f.max_streams_bidi
        + f.max_streams_uni
        + f.new_connection_id
        + f.new_token
        + f.path_challenge
        + f.path_response
        + f.reset_stream
        + f.retire_connection_id
        + f.stream_data_blocked
        + f.streams_blocked_bidi
        + f.streams_blocked_uni
        + f.stop_sending;
    [f.acks, f.crypto, f.ping, f.stream, others]
}
