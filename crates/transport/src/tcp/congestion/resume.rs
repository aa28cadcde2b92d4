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

    const PACKET: u64 = 1200;
    const INITIAL: u64 = 10 * PACKET;

    /// An ACK of `bytes` at 80 ms, the RTT, after packets up to 79 have been sent.
    fn ack(bytes: u64, in_flight: u64, largest: u64) -> Ack {
        let rtt = Duration::from_millis(80);
        let now = Instant::ZERO + rtt;
        Ack { now, bytes, in_flight, is_app_limited: false, largest, next: 80, rtt, srtt: rtt }
    }

    /// A sender that resumes a path of 300 packets, in a phase.
    fn resuming(phase: Phase, pipe: u64) -> Resume {
        let saved = SavedPath { cwnd: 300 * PACKET, rtt: Duration::from_millis(80) };
        Resume { phase: Some(phase), pipe, ..Resume::new(Some(saved)) }
    }

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
            let mut resume = Resume::new(None);
            resume.on_ack(&mut window, initial, PACKET, &ack(bytes, 0, 0));
            assert_eq!(
                resume.observed(initial).map(|path| (path.cwnd, path.rtt)),
                saved.map(|cwnd| (cwnd, rtt))
            );
        }
    }

    /// RFC 9959, section 3.2: the jump to 150 packets waits until the initial window is acknowledged, and until the window
    /// limits the sender.
    #[test]
    fn the_jump_needs_an_initial_window_acknowledged_and_data_to_send() {
        for (bytes, is_app_limited, packets) in
            [(INITIAL - 1, false, 10), (INITIAL, true, 10), (INITIAL, false, 150)]
        {
            let (mut resume, mut window) = (resuming(Phase::Reconnaissance, 0), Window::new(INITIAL, None));
            resume.on_ack(&mut window, INITIAL, PACKET, &Ack { is_app_limited, ..ack(bytes, 0, 9) });
            assert_eq!(window.cwnd, packets * PACKET);
        }
    }

    /// RFC 9959, section 3.3, at the ACK of the first unvalidated packet, which adds to PipeSize: what is in flight becomes the
    /// window, to be validated up to the last packet sent. If that is below the initial window, or not more than PipeSize, no
    /// window is validated: it becomes PipeSize, and at least the initial window.
    #[test]
    fn the_unvalidated_phase_leaves_what_is_in_flight_if_it_exceeds_pipe_size() {
        let validating = Some(Phase::Validating { last: 79 });
        for (pipe, in_flight, cwnd, phase) in [
            (4, INITIAL - 1, INITIAL, None),
            (4, INITIAL, INITIAL, validating),
            (19, 20 * PACKET, 20 * PACKET, None),
            (19, 20 * PACKET + 1, 20 * PACKET + 1, validating),
        ] {
            let unvalidated = Phase::Unvalidated { first: 29, since: Instant::ZERO };
            let (mut resume, mut window) =
                (resuming(unvalidated, pipe * PACKET), Window::new(150 * PACKET, None));
            resume.on_ack(&mut window, INITIAL, PACKET, &ack(PACKET, in_flight, 29));
            assert_eq!((window.cwnd, resume.phase), (cwnd, phase), "{in_flight} bytes in flight");
        }
    }

    /// RFC 9959, section 3.3: the phase lasts for a round trip, here of 80 ms, at most, if no unvalidated packet is acknowledged
    /// and the window is not in flight.
    #[test]
    fn the_unvalidated_phase_ends_after_a_round_trip() {
        for (ms, cwnd) in [(80, 150 * PACKET), (81, 30 * PACKET)] {
            let unvalidated = Phase::Unvalidated { first: 29, since: Instant::ZERO };
            let (mut resume, mut window) = (resuming(unvalidated, 0), Window::new(150 * PACKET, None));
            let now = Instant::ZERO + Duration::from_millis(ms);
            resume.on_ack(&mut window, INITIAL, PACKET, &Ack { now, ..ack(PACKET, 30 * PACKET, 28) });
            assert_eq!(window.cwnd, cwnd, "after {ms} ms");
        }
    }

    /// RFC 9959, section 3.4: the last unvalidated packet ends the Validating Phase; congestion after it is no longer that of the
    /// jump. Section 3.5: before, half of PipeSize is left, at least two packets, and the same once that packet is acknowledged.
    #[test]
    fn congestion_causes_a_safe_retreat_until_the_last_unvalidated_packet_is_acknowledged() {
        for (largest, pipe, left) in [(78, 20, Some(10)), (78, 2, Some(2)), (79, 20, None)] {
            let (mut resume, mut window) = (
                resuming(Phase::Validating { last: 79 }, (pipe - 1) * PACKET),
                Window::new(150 * PACKET, None),
            );
            resume.on_ack(&mut window, INITIAL, PACKET, &ack(PACKET, 0, largest));
            assert_eq!(resume.on_congestion(PACKET, 100), left.map(|packets| packets * PACKET));
            assert_eq!(resume.has_retreated(), left.is_some());
            resume.on_ack(&mut window, INITIAL, PACKET, &ack(0, 0, 78));
            assert_eq!((window.ssthresh(), resume.may_grow()), (None, left.is_none()));
            resume.on_ack(&mut window, INITIAL, PACKET, &ack(0, 0, 79));
            assert_eq!((window.ssthresh(), resume.may_grow()), (left.map(|packets| packets * PACKET), true));
        }
    }

    /// Persistent congestion in any phase means that the saved parameters are of no use (RFC 9959, section 3.5), and there is no
    /// jump any more. A connection that does not resume has none, and a retreat is not forgotten.
    #[test]
    fn persistent_congestion_ends_careful_resume() {
        let mut resume = resuming(Phase::Reconnaissance, 0);
        resume.stop();
        let mut window = Window::new(INITIAL, None);
        resume.on_ack(&mut window, INITIAL, PACKET, &ack(4 * INITIAL, 0, 9));
        assert_eq!((window.cwnd, resume.has_retreated()), (INITIAL, true));
        resume.stop();
        assert!(resume.has_retreated());
        let mut normal = Resume::new(None);
        normal.stop();
        assert!(!normal.has_retreated());
    }
}
