//! Careful Resume, RFC 9959: a sender jumps to half the window that an earlier connection of the same path had.
//!
//! - Observing: the bytes acknowledged in a round trip are kept, half of them in slow start (section 4.1), and the minimum
//!   RTT.
//! - Reconnaissance: slow start until the initial window is acknowledged without congestion, the RTT is more than half and at
//!   most ten times the saved one, and the window limits the sender.
//! - Unvalidated: `cwnd = saved_cwnd / 2`, for a round trip at most, paced by the transport; `PipeSize` is what the path has
//!   been seen to carry.
//! - Validating: until the last packet sent in that time is acknowledged; the window grows as usual.
//! - Safe Retreat: congestion in one of the two leaves `PipeSize / 2`, without growth until that packet is acknowledged; then
//!   `ssthresh = PipeSize / 2`.

use bentpipe_units::{Duration, Instant};

use super::Window;

/// Congestion control parameters of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// `saved_cwnd`: bytes that the path carried in a round trip.
    pub cwnd: u64,
    /// `saved_rtt`: minimum RTT.
    pub rtt: Duration,
}

/// Windows below this many initial windows are not worth saving (section 3.1).
const WORTH_SAVING: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reconnaissance,
    /// The first packet sent in it, and the time of its start.
    Unvalidated {
        first: u64,
        since: Instant,
    },
    /// The last packet sent in the phase before.
    Validating {
        last: u64,
    },
    SafeRetreat {
        last: u64,
    },
}

/// An ACK, as Careful Resume sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) now: Instant,
    pub(super) bytes: u64,
    pub(super) in_flight: u64,
    pub(super) is_app_limited: bool,
    /// The largest packet that it acknowledges, and the next one to be sent.
    pub(super) largest: u64,
    pub(super) next: u64,
    pub(super) rtt: Duration,
    pub(super) srtt: Duration,
}

/// State of Careful Resume at a sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Resume {
    saved: Option<SavedPath>,
    /// `None` if the sender uses normal congestion control.
    phase: Option<Phase>,
    pipe: u64,
    acked: u64,
    min_rtt: Option<Duration>,
    /// Bytes acknowledged in the current round trip, which ends with this packet.
    round: u64,
    round_end: u64,
    /// The most in a round trip so far.
    observed: u64,
    has_retreated: bool,
}

impl Resume {
    pub(super) fn new(saved: Option<SavedPath>) -> Self {
        Self { saved, phase: saved.map(|_| Phase::Reconnaissance), ..Self::default() }
    }

    /// Parameters to save; `None` if the path has carried little, or less than expected.
    pub(super) fn observed(&self, initial_window: u64) -> Option<SavedPath> {
        let is_worth = !self.has_retreated && self.observed >= WORTH_SAVING * initial_window;
        self.min_rtt.filter(|_| is_worth).map(|rtt| SavedPath { cwnd: self.observed, rtt })
    }

    /// True if a resumed path met congestion, so that its parameters are of no use.
    pub(super) fn has_retreated(&self) -> bool {
        self.has_retreated
    }

    /// True if the window may grow.
    pub(super) fn may_grow(&self) -> bool {
        !matches!(self.phase, Some(Phase::Unvalidated { .. } | Phase::SafeRetreat { .. }))
    }

    /// Processes an ACK before the window grows.
    pub(super) fn on_ack(&mut self, window: &mut Window, initial_window: u64, packet: u64, ack: &Ack) {
        self.acked += ack.bytes;
        self.min_rtt = Some(self.min_rtt.map_or(ack.rtt, |least| least.min(ack.rtt)));
        self.round += ack.bytes;
        if ack.largest >= self.round_end {
            let carried = if window.is_in_slow_start() { self.round / 2 } else { self.round };
            self.observed = self.observed.max(carried);
            (self.round, self.round_end) = (0, ack.next);
        }
        let (Some(phase), Some(saved)) = (self.phase, self.saved) else { return };
        if phase != Phase::Reconnaissance {
            self.pipe += ack.bytes;
        }
        match phase {
            Phase::Reconnaissance => {
                if self.acked < initial_window || ack.is_app_limited {
                    return;
                }
                let jump = saved.cwnd / 2;
                let is_same_path =
                    self.min_rtt.is_some_and(|rtt| rtt.times(2) > saved.rtt && rtt <= saved.rtt.times(10));
                if !is_same_path || jump <= window.cwnd {
                    self.phase = None;
                    return;
                }
                self.pipe = ack.in_flight;
                window.cwnd = jump;
                self.phase = Some(Phase::Unvalidated { first: ack.next, since: ack.now });
            }
            Phase::Unvalidated { first, since } => {
                let is_sent = ack.in_flight + packet > window.cwnd;
                if !is_sent && ack.largest < first && ack.now <= since + ack.srtt {
                    return;
                }
                if ack.in_flight < initial_window || ack.in_flight <= self.pipe {
                    window.cwnd = self.pipe.max(initial_window);
                    self.phase = None;
                } else {
                    window.cwnd = ack.in_flight;
                    self.phase = Some(Phase::Validating { last: ack.next - 1 });
                }
            }
            Phase::Validating { last } => {
                if ack.largest >= last {
                    self.phase = None;
                }
            }
            Phase::SafeRetreat { last } => {
                if ack.largest >= last {
                    window.set_ssthresh((self.pipe / 2).max(2 * packet));
                    self.phase = None;
                }
            }
        }
    }

    /// Congestion was detected, with packets below `next` sent. Returns the window if Careful Resume sets it.
    pub(super) fn on_congestion(&mut self, packet: u64, next: u64) -> Option<u64> {
        let last = match self.phase? {
            Phase::Reconnaissance => {
                self.phase = None;
                return None;
            }
            Phase::Unvalidated { .. } => next.saturating_sub(1),
            Phase::Validating { last } | Phase::SafeRetreat { last } => last,
        };
        self.has_retreated = true;
        self.phase = Some(Phase::SafeRetreat { last });
        Some((self.pipe / 2).max(2 * packet))
    }

    /// Persistent congestion ends Careful Resume.
    pub(super) fn stop(&mut self) {
        self.has_retreated |= self.phase.is_some();
        self.phase = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9959, section 3.1: the window is saved if it is four initial windows of 12 000 bytes or more. In slow start, half
    /// of what a round trip delivers was in flight before the window doubled.
    #[test]
    fn a_window_of_four_initial_windows_is_saved() {
        let (initial, rtt) = (12_000, Duration::from_millis(80));
        for (ssthresh, bytes, saved) in [
            (Some(50_000), 47_999, None),
            (Some(50_000), 48_000, Some(48_000)),
            (None, 95_999, None),
            (None, 96_000, Some(48_000)),
        ] {
            let mut window = Window::new(100_000, ssthresh);
            let ack = Ack {
                now: Instant::ZERO + rtt,
                bytes,
                in_flight: 0,
                is_app_limited: false,
                largest: 0,
                next: 80,
                rtt,
                srtt: rtt,
            };
            let mut resume = Resume::new(None);
            resume.on_ack(&mut window, initial, 1200, &ack);
            assert_eq!(
                resume.observed(initial).map(|path| (path.cwnd, path.rtt)),
                saved.map(|cwnd| (cwnd, rtt))
            );
        }
    }
}
