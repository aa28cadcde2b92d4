//! Congestion control algorithms and the windows they control.
//!
//! Loss detection and recovery (RFC 6582, RFC 3042) belong to the connection; an algorithm decides how the window grows
//! and how far congestion reduces it. An algorithm with a model of the path sets the window itself with every ACK. To
//! add one, write its file and its line in the registry below, which also says what ends its fast recovery. State
//! larger than a word is boxed, because every connection reserves room for the largest one.

mod bbr;
mod bbr3;
mod controller;
mod cubic;
mod cubic_linux;
mod dctcp;
mod hybla;
pub(super) mod hystart;
mod hystart_linux;
mod ledbat;
mod prague;
mod reno;
mod resume;
pub(super) mod search;
mod validation_linux;

use std::num::NonZeroU64;

use bentpipe_units::{Duration, Instant, Rate};

use super::Config;
use super::delivery::Sample;

pub use controller::Controller;
pub use resume::SavedPath;

/// Windows of a sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Congestion window [bytes], below one segment only after a mark with the recovery of ns-2.
    pub(super) cwnd: u64,
    /// Slow start threshold, plus one [bytes]; `None` before the first: RFC 5681 section 3.1, arbitrarily high.
    ssthresh: Option<NonZeroU64>,
}

impl Window {
    pub(super) fn new(cwnd: u64, ssthresh: Option<u64>) -> Self {
        Self { cwnd, ssthresh: ssthresh.map(|bytes| NonZeroU64::MIN.saturating_add(bytes)) }
    }

    /// Slow start threshold, if there is one [bytes].
    #[inline]
    pub(super) fn ssthresh(&self) -> Option<u64> {
        self.ssthresh.map(|ssthresh| ssthresh.get() - 1)
    }

    #[inline]
    pub(super) fn set_ssthresh(&mut self, bytes: u64) {
        *self = Self::new(self.cwnd, Some(bytes));
    }

    /// True in slow start.
    #[inline]
    pub(super) fn is_in_slow_start(&self) -> bool {
        self.ssthresh().is_none_or(|ssthresh| self.cwnd < ssthresh)
    }

    /// True if slow start has room to double the window.
    pub(super) fn may_double(&self) -> bool {
        self.ssthresh().is_none_or(|ssthresh| self.cwnd < ssthresh / 2)
    }

    /// Window as reduced at the last loss or mark: ssthresh, which every reduction sets [bytes].
    pub(super) fn reduced(&self) -> u64 {
        self.ssthresh().unwrap_or(self.cwnd)
    }
}

/// Event that ends fast recovery without SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Any ACK of new data, RFC 5681 section 3.2 step 6.
    NewAck,
    /// An ACK of everything sent before the loss was detected; partial ACKs continue recovery, RFC 6582.
    FullAck,
}

/// An ACK of new data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// Newly acknowledged [bytes].
    pub(super) bytes: u64,
    /// Amount that counts in slow start [bytes]: `min(N, SMSS)` of RFC 5681 eq. (2), or `min(N, L SMSS)` of RFC 3465
    /// section 2.2.
    pub(super) slow_start: u64,
    /// Amount that counts in congestion avoidance [bytes]: one segment, or `bytes` with RFC 3465 section 2.1.
    pub(super) avoidance: u64,
    /// Outstanding before the ACK [bytes].
    pub(super) flight: u64,
    /// Smoothed RTT; zero before the first measurement.
    pub(super) rtt: Duration,
}

#[cfg(test)]
impl Acked {
    /// An ACK of one segment of 1000 bytes, which was all that was outstanding.
    fn segment(rtt: Duration) -> Self {
        Self { bytes: 1000, slow_start: 1000, avoidance: 1000, flight: 1000, rtt }
    }
}

/// Data that left at once, or waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// SND.UNA and SND.NXT.
    pub(super) una: u64,
    pub(super) nxt: u64,
    /// Neither acknowledged nor SACKed nor lost, as far as known [bytes].
    pub(super) in_flight: u64,
    /// True if the application wrote more.
    pub(super) has_more: bool,
}

/// A packet found lost, for an algorithm that sets its window itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// P.size [bytes].
    pub(super) size: u64,
    /// P.tx_in_flight: in flight after its departure [bytes].
    pub(super) tx_in_flight: u64,
    /// Lost since its departure, including it [bytes].
    pub(super) lost: u64,
    /// Sent while the application had too little to send.
    pub(super) app_limited: bool,
    /// False if the packet found lost before it is the one sent before it.
    pub(super) begins_range: bool,
    /// C.delivered [bytes].
    pub(super) total: u64,
}

/// Interface of an algorithm.
trait Control {
    /// True if an ACK may let the window grow. `is_limit` tells whether the window was the limit when data last left or had to wait:
    /// RFC 7661 section 4, otherwise the ACK says nothing about a larger one.
    #[inline]
    fn may_grow(&self, _window: &Window, is_limit: bool) -> bool {
        is_limit
    }

    /// An ACK of new data arrived, and the window [may grow](Self::may_grow).
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant);

    /// Loss or mark with `flight` bytes outstanding: sets `ssthresh`.
    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, now: Instant);

    /// An ACK arrived, for an algorithm that [sets its window itself](Algorithm::sets_cwnd); `srtt` is the smoothed
    /// RTT. Returns true if rate samples of data now in flight must be marked as application-limited.
    fn on_sample(
        &mut self,
        _window: &mut Window,
        _sample: &Sample,
        _cfg: &Config,
        _srtt: Option<Duration>,
        _now: Instant,
    ) -> bool {
        false
    }

    /// A packet was found lost, before [`Self::on_sample`] reports all losses of an ACK.
    fn on_lost(&mut self, _window: &Window, _lost: &Lost, _cfg: &Config, _now: Instant) {}

    /// An ACK reports a mark, for an algorithm that sets its window itself: once per window of data with RFC 3168.
    fn on_congestion_mark(&mut self, _window: &Window) {}

    /// The last timeout was spurious, for an algorithm that sets its window itself.
    fn on_spurious_timeout(&mut self) {}

    /// An ACK up to `una` with accurate ECN feedback reports `acked` bytes, `marked` of them with a mark; data up to
    /// `nxt` has been sent.
    fn on_ecn_feedback(&mut self, _acked: u64, _marked: u64, _una: u64, _nxt: u64, _now: Instant) {}

    /// Such an ACK reports marks, for an algorithm that [reduces in proportion](State::is_proportional): it may reduce
    /// the window. Data up to `max` has been sent.
    fn on_mark(&mut self, _window: &mut Window, _una: u64, _max: u64, _smss: u64, _now: Instant) {}

    /// Nothing was sent for `idle`, more than the timeout `rto`, and nothing is in flight: RFC 5681 section 4.1.
    fn restart(&mut self, window: &mut Window, _idle: Duration, _rto: Duration, cfg: &Config) {
        window.cwnd = window.cwnd.min(cfg.iw());
    }

    /// Data is sent while nothing is in flight, `idle` after the last.
    fn on_transmit_start(&mut self, _idle: Duration, _now: Instant) {}

    /// Data has left, or waits, for CUBIC of Linux.
    fn on_burst(&mut self, _window: &Window, _burst: &Burst, _smss: u64) {}

    /// The application sends again after an idle time, for an algorithm that sets its window itself.
    fn on_restart(&mut self, _window: &mut Window, _cfg: &Config, _now: Instant) {}

    /// Pacing rate of payload; `None` if the algorithm has none.
    fn pacing_rate(&self, _window: &Window, _srtt: Option<Duration>) -> Option<Rate> {
        None
    }

    /// A timeout, after [`Self::on_congestion`]; everything below `nxt` was sent.
    fn on_timeout(&mut self, _nxt: u64, _now: Instant) {}

    /// An ACK up to `una` measured an RTT, before [`Self::on_ack`]; everything below `nxt` was sent.
    fn on_round_trip(
        &mut self,
        _window: &mut Window,
        _rtt: Duration,
        _una: u64,
        _nxt: u64,
        _smss: u64,
        _now: Instant,
    ) {
    }
}

/// Generates the public enum of algorithms and the state of a connection from one line per algorithm.
macro_rules! registry {
    ($(#[doc = $doc:literal] $name:ident = $state:ty, $text:literal, $recovery:ident;)+) => {
        /// A congestion control algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm { $(#[doc = $doc] $name,)+ }

        impl Algorithm {
            /// All algorithms.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Names of all algorithms, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// Description in one sentence, with its source.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $doc.trim_ascii(),)+ }
            }

            /// Name in scenario files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// True if it sets the window itself with every ACK, in and out of recovery.
            #[inline]
            #[must_use]
            pub const fn sets_cwnd(self) -> bool {
                matches!(self, Self::Bbr | Self::Bbr3)
            }

            /// True if it has a pacing rate.
            #[inline]
            pub(super) const fn has_pacing_rate(self) -> bool {
                matches!(self, Self::Bbr | Self::Bbr3 | Self::Prague)
            }

            /// True if its packets are L4S and may be marked early, RFC 9331.
            #[must_use]
            pub const fn is_l4s(self) -> bool {
                matches!(self, Self::Prague)
            }

            /// True if it reduces its window in proportion to accurate ECN feedback.
            #[must_use]
            pub const fn is_proportional(self) -> bool {
                matches!(self, Self::Dctcp | Self::Prague)
            }

            /// True if its slow start is that of RFC 5681, which HyStart++ or SEARCH may end.
            #[must_use]
            pub const fn has_slow_start(self) -> bool {
                matches!(self, Self::Reno | Self::NewReno | Self::Cubic)
            }
        }

        /// State of the selected algorithm.
        #[derive(Clone, Debug)]
        pub(super) enum State { $($name($state),)+ }

        impl Default for State {
            fn default() -> Self {
                Self::new(Algorithm::NewReno)
            }
        }

        impl State {
            pub(super) fn new(algorithm: Algorithm) -> Self {
                match algorithm { $(Algorithm::$name => Self::$name(<$state>::default()),)+ }
            }

            /// Remainder of RFC 5681 eq. (3), for Reno and NewReno [bytes^2].
            pub(super) fn remainder(&mut self) -> Option<&mut u64> {
                match self {
                    Self::Reno(state) | Self::NewReno(state) => Some(&mut state.remainder),
                    _ => None,
                }
            }

            pub(super) fn recovery(&self) -> Recovery {
                match self { $(Self::$name(_) => Recovery::$recovery,)+ }
            }

            #[inline]
            pub(super) fn may_grow(&self, window: &Window, is_limit: bool) -> bool {
                match self { $(Self::$name(state) => state.may_grow(window, is_limit),)+ }
            }

            #[inline]
            pub(super) fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant) {
                match self { $(Self::$name(state) => state.on_ack(window, ack, smss, now),)+ }
            }

            pub(super) fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, now: Instant) {
                match self { $(Self::$name(state) => state.on_congestion(window, flight, smss, now),)+ }
            }

            /// As [`Algorithm::sets_cwnd`].
            #[inline]
            pub(super) fn sets_cwnd(&self) -> bool {
                matches!(self, Self::Bbr(_) | Self::Bbr3(_))
            }

            /// True if it reduces its window in proportion to accurate ECN feedback.
            pub(super) fn is_proportional(&self) -> bool {
                matches!(self, Self::Dctcp(_) | Self::Prague(_))
            }

            pub(super) fn on_ecn_feedback(&mut self, acked: u64, marked: u64, una: u64, nxt: u64, now: Instant) {
                match self { $(Self::$name(state) => state.on_ecn_feedback(acked, marked, una, nxt, now),)+ }
            }

            pub(super) fn on_mark(&mut self, window: &mut Window, una: u64, max: u64, smss: u64, now: Instant) {
                match self { $(Self::$name(state) => state.on_mark(window, una, max, smss, now),)+ }
            }

            pub(super) fn on_sample(
                &mut self,
                window: &mut Window,
                sample: &Sample,
                cfg: &Config,
                srtt: Option<Duration>,
                now: Instant,
            ) -> bool {
                match self { $(Self::$name(state) => state.on_sample(window, sample, cfg, srtt, now),)+ }
            }

            pub(super) fn on_lost(&mut self, window: &Window, lost: &Lost, cfg: &Config, now: Instant) {
                match self { $(Self::$name(state) => state.on_lost(window, lost, cfg, now),)+ }
            }

            pub(super) fn on_congestion_mark(&mut self, window: &Window) {
                match self { $(Self::$name(state) => state.on_congestion_mark(window),)+ }
            }

            pub(super) fn on_spurious_timeout(&mut self) {
                match self { $(Self::$name(state) => state.on_spurious_timeout(),)+ }
            }

            pub(super) fn restart(
                &mut self,
                window: &mut Window,
                idle: Duration,
                rto: Duration,
                cfg: &Config,
            ) {
                match self { $(Self::$name(state) => state.restart(window, idle, rto, cfg),)+ }
            }

            pub(super) fn on_transmit_start(&mut self, idle: Duration, now: Instant) {
                match self { $(Self::$name(state) => state.on_transmit_start(idle, now),)+ }
            }

            pub(super) fn on_burst(&mut self, window: &Window, burst: &Burst, smss: u64) {
                match self { $(Self::$name(state) => state.on_burst(window, burst, smss),)+ }
            }

            pub(super) fn on_restart(&mut self, window: &mut Window, cfg: &Config, now: Instant) {
                match self { $(Self::$name(state) => state.on_restart(window, cfg, now),)+ }
            }

            pub(super) fn pacing_rate(&self, window: &Window, srtt: Option<Duration>) -> Option<Rate> {
                match self { $(Self::$name(state) => state.pacing_rate(window, srtt),)+ }
    }

            pub(super) fn on_timeout(&mut self, nxt: u64, now: Instant) {
                match self { $(Self::$name(state) => state.on_timeout(nxt, now),)+ }
            }

            #[inline]
            pub(super) fn on_round_trip(
                &mut self,
                window: &mut Window,
                rtt: Duration,
                una: u64,
                nxt: u64,
                smss: u64,
                now: Instant,
            ) {
                match self { $(Self::$name(state) => state.on_round_trip(window, rtt, una, nxt, smss, now),)+ }
            }
        }
    };
}

registry! {
    /// RFC 5681 without partial ACKs: fast recovery repairs one loss.
    Reno = reno::Reno, "reno", NewAck;
    /// RFC 5681 with the recovery of RFC 6582.
    NewReno = reno::Reno, "newreno", FullAck;
    /// CUBIC, RFC 9438.
    Cubic = Box<cubic::Cubic>, "cubic", FullAck;
    /// CUBIC and HyStart as in Linux.
    CubicLinux = Box<cubic_linux::CubicLinux>, "cubic-linux", FullAck;
    /// Hybla, designed for satellite links (Caini and Firrincieli 2004).
    Hybla = Box<hybla::Hybla>, "hybla", FullAck;
    /// LEDBAT, which yields to other traffic (RFC 6817).
    Ledbat = Box<ledbat::Ledbat>, "ledbat", FullAck;
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr = Box<bbr::Bbr>, "bbr", FullAck;
    /// BBR, version 3 (draft-ietf-ccwg-bbr-06).
    Bbr3 = Box<bbr3::Bbr3>, "bbr3", FullAck;
    /// DCTCP, RFC 8257.
    Dctcp = Box<dctcp::Dctcp>, "dctcp", FullAck;
    /// Prague, DCTCP for the Internet (draft-briscoe-iccrg-prague-congestion-control-04).
    Prague = Box<prague::Prague>, "prague", FullAck;
}
