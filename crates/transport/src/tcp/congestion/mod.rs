//! Congestion control algorithms, and the windows they steer.
//!
//! Loss detection and recovery (RFC 6582, RFC 3042) are the connection's; an algorithm says how the window
//! grows and what is left of it after congestion. One that goes by a model of the path sets the window itself,
//! with every ACK. To add one, write its file and its line in the registry below, which also says what ends its
//! fast recovery. State of more than a word is boxed, for every connection takes as much as the largest.

mod bbr;
mod cubic;
mod cubic_linux;
mod dctcp;
mod hybla;
pub(super) mod hystart;
mod hystart_linux;
mod prague;
mod reno;

use bentpipe_units::{Duration, Instant, Rate};

use super::Config;
use super::delivery::Sample;

/// The windows of a sender.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Congestion window [bytes], never below one segment.
    pub(super) cwnd: u64,
    /// Slow start threshold [bytes].
    pub(super) ssthresh: u64,
}

/// What ends a fast recovery without SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Any ACK of new data, RFC 5681 section 3.2 step 6.
    NewAck,
    /// The ACK of all that was sent before the loss was found; those of a part of it keep it going, RFC 6582.
    FullAck,
}

/// An ACK of new data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// What it acknowledged [bytes].
    pub(super) bytes: u64,
    /// What it counts for in slow start [bytes]: `min(N, SMSS)` of RFC 5681 eq. (2), or `min(N, L SMSS)` of
    /// RFC 3465 section 2.2.
    pub(super) slow_start: u64,
    /// What it counts for in congestion avoidance [bytes]: a segment, or with RFC 3465 section 2.1 `bytes`.
    pub(super) avoidance: u64,
    /// Smoothed round trip; zero before the first measurement.
    pub(super) rtt: Duration,
}

/// What an algorithm decides.
trait Control {
    /// New data was acknowledged while `cwnd` was what held the sender back.
    fn on_ack(&mut self, window: &mut Window, ack: &Acked, smss: u64, now: Instant);

    /// Loss or a mark, with `flight` bytes outstanding: sets `ssthresh`.
    fn on_congestion(&mut self, window: &mut Window, flight: u64, smss: u64, now: Instant);

    /// An ACK arrived, where the algorithm [sets its window itself](Algorithm::sets_cwnd); `srtt` is the smoothed round
    /// trip. Whether rate samples of what is now in the network say nothing about the path.
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

    /// An ACK up to `una` tells of `acked` bytes, `marked` of which arrived with a mark, where the feedback is accurate;
    /// data up to `nxt` has been sent.
    fn on_ecn_feedback(&mut self, _acked: u64, _marked: u64, _una: u64, _nxt: u64, _now: Instant) {}

    /// Such an ACK told of marks, where the algorithm [reduces in proportion](State::is_proportional): it may reduce the window.
    /// Data up to `max` has been sent.
    fn on_mark(&mut self, _window: &mut Window, _una: u64, _max: u64, _smss: u64, _now: Instant) {}

    /// The application has something to send again, after a pause.
    fn on_restart(&mut self) {}

    /// How fast payload may leave, where the algorithm says.
    fn pacing_rate(&self, _window: &Window, _srtt: Option<Duration>) -> Option<Rate> {
        None
    }

    /// A timeout, after [`Self::on_congestion`]; all below `nxt` was sent.
    fn on_timeout(&mut self, _nxt: u64, _now: Instant) {}

    /// An ACK of what lies below `una` measured a round trip, before [`Self::on_ack`]; all below `nxt` was sent.
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

/// Makes, of one line for each algorithm, the names users choose from and the state a connection holds.
macro_rules! registry {
    ($($(#[$doc:meta])* $name:ident = $state:ty, $text:literal, $recovery:ident;)+) => {
        /// A congestion control algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm { $($(#[$doc])* $name,)+ }

        impl Algorithm {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name in a scenario.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Whether it sets the window itself with every ACK, in recovery and out of it.
            #[inline]
            pub(super) const fn sets_cwnd(self) -> bool {
                matches!(self, Self::Bbr)
            }

            /// Whether it says how fast data may leave.
            #[inline]
            pub(super) const fn has_pacing_rate(self) -> bool {
                matches!(self, Self::Bbr | Self::Prague)
            }

            /// Whether its packets may be marked early: RFC 9331.
            pub(super) const fn is_l4s(self) -> bool {
                matches!(self, Self::Prague)
            }

            /// Whether its slow start is that of RFC 5681, which HyStart++ may end.
            #[must_use]
            pub const fn has_slow_start(self) -> bool {
                matches!(self, Self::Reno | Self::NewReno | Self::Cubic)
            }
        }

        /// State of the algorithm chosen.
        #[derive(Clone, Debug)]
        pub(super) enum State { $($name($state),)+ }

        impl State {
            pub(super) fn new(algorithm: Algorithm) -> Self {
                match algorithm { $(Algorithm::$name => Self::$name(<$state>::default()),)+ }
            }

            pub(super) fn recovery(&self) -> Recovery {
                match self { $(Self::$name(_) => Recovery::$recovery,)+ }
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
                matches!(self, Self::Bbr(_))
            }

            /// Whether it reduces its window in proportion to accurate feedback.
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

            pub(super) fn on_restart(&mut self) {
                match self { $(Self::$name(state) => state.on_restart(),)+ }
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
    /// RFC 5681 alone: one loss for each fast recovery.
    Reno = reno::Reno, "reno", NewAck;
    /// RFC 5681 with the recovery of RFC 6582.
    NewReno = reno::Reno, "newreno", FullAck;
    /// CUBIC, RFC 9438.
    Cubic = Box<cubic::Cubic>, "cubic", FullAck;
    /// CUBIC and HyStart as Linux has them.
    CubicLinux = Box<cubic_linux::CubicLinux>, "cubic-linux", FullAck;
    /// Hybla, made for satellites (Caini and Firrincieli 2004).
    Hybla = Box<hybla::Hybla>, "hybla", FullAck;
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr = Box<bbr::Bbr>, "bbr", FullAck;
    /// DCTCP, RFC 8257.
    Dctcp = Box<dctcp::Dctcp>, "dctcp", FullAck;
    /// Prague, DCTCP for the Internet (draft-briscoe-iccrg-prague-congestion-control-04).
    Prague = Box<prague::Prague>, "prague", FullAck;
}
