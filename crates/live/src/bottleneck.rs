//! What limits the throughput into the satellite, judged for each interval by what was seen in it.
//!
//! The first of these that holds is the bottleneck:
//!
//! 1. *nothing*: no payload was sent, and none waits.
//! 2. *spacelink*: the spacelink is down, or it held data back that the regulator had let go for at least half of the
//!    interval: a window of QUIC was full.
//! 3. *regulator*: at least [`BUSY`] of the capacity was used, or at least one packet waited in the transmit queue on
//!    average: there is more than the satellite takes.
//! 4. *terminal*: at the interval's end a PEP buffer was full, and at least half of what the PEP holds had arrived at the
//!    other end: who is to receive it does not take it.
//! 5. *window*: at the interval's end a PEP buffer was full, and most of what the PEP holds was still under way: a
//!    connection has W bytes in a round trip, as many as its buffer holds.
//! 6. *server*: anything else. Data went, nothing waits and no buffer is full: senders, or the way from them, give no more.

use bentpipe_units::{Duration, Rate};

/// Share of the capacity from which the regulator counts as busy: what is left is headers that nobody counts.
pub const BUSY: f64 = 0.95;

/// What limits the throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bottleneck {
    /// There is nothing to send.
    #[default]
    Nothing,
    /// The regulator's rate.
    Regulator,
    /// The senders, or the way from them to here.
    Server,
    /// The PEP's buffers.
    Window,
    /// The other end's receivers.
    Terminal,
    /// The spacelink.
    Spacelink,
}

impl Bottleneck {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Nothing, Self::Regulator, Self::Server, Self::Window, Self::Terminal, Self::Spacelink];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Regulator => "regulator",
            Self::Server => "server",
            Self::Window => "window",
            Self::Terminal => "terminal",
            Self::Spacelink => "spacelink",
        }
    }
}

/// What the bottleneck is judged by. What is counted, is counted from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Bytes that the regulator let go, and what it was charged for [bytes].
    pub sent: u64,
    /// Packets waiting in the transmit queue, integrated over time [packet s].
    pub packet_seconds: f64,
    /// For how long the spacelink has held back what the regulator had let go [ns].
    pub held_back_ns: u64,
    /// Whether the spacelink is up.
    pub up: bool,
    /// Connections whose PEP buffer is full now.
    pub full: u64,
    /// What the PEP holds now [bytes].
    pub buffered: u64,
    /// What of it the other end has, but has not handed on [bytes].
    pub arrived: u64,
}

/// Share of the capacity that was used between two states; NaN without a capacity, or without time.
#[must_use]
pub fn utilization(before: &Evidence, after: &Evidence, time: Duration, capacity: Option<Rate>) -> f64 {
    let room = capacity.map_or(f64::NAN, Rate::bytes_per_sec) * time.as_secs_f64();
    if room > 0.0 { after.sent.saturating_sub(before.sent) as f64 / room } else { f64::NAN }
}

/// The bottleneck between two states.
#[must_use]
pub fn judge(before: &Evidence, after: &Evidence, time: Duration, capacity: Option<Rate>) -> Bottleneck {
    let waiting = (after.packet_seconds - before.packet_seconds) / time.as_secs_f64();
    let held_back = after.held_back_ns.saturating_sub(before.held_back_ns);
    if after.sent == before.sent && after.buffered == 0 && waiting.is_nan() | (waiting <= 0.0) {
        Bottleneck::Nothing
    } else if !after.up || held_back * 2 >= time.as_nanos() {
        Bottleneck::Spacelink
    } else if utilization(before, after, time, capacity) >= BUSY || waiting >= 1.0 {
        Bottleneck::Regulator
    } else if after.full > 0 && after.arrived * 2 >= after.buffered {
        Bottleneck::Terminal
    } else if after.full > 0 {
        Bottleneck::Window
    } else {
        Bottleneck::Server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at 20 Mbit/s: 2 500 000 bytes.
    fn judged(change: impl FnOnce(&mut Evidence)) -> Bottleneck {
        let before =
            Evidence { sent: 1000, packet_seconds: 3.0, held_back_ns: 7, up: true, ..Evidence::default() };
        let mut after = Evidence { sent: 1_001_000, buffered: 400_000, ..before };
        change(&mut after);
        judge(&before, &after, Duration::from_secs(1), Some(Rate::from_bps(20_000_000)))
    }

    /// One step after the other of the list above, each with the figure that just makes it hold.
    #[test]
    fn each_is_told_by_its_sign() {
        assert_eq!(judged(|_| {}), Bottleneck::Server);
        assert_eq!(judged(|e| (e.sent, e.buffered) = (1000, 0)), Bottleneck::Nothing);
        assert_eq!(judged(|e| e.sent = 1000 + 2_375_000), Bottleneck::Regulator);
        assert_eq!(judged(|e| e.sent = 1000 + 2_374_999), Bottleneck::Server);
        assert_eq!(judged(|e| e.packet_seconds = 4.0), Bottleneck::Regulator);
        assert_eq!(judged(|e| e.full = 1), Bottleneck::Window);
        assert_eq!(judged(|e| (e.full, e.arrived) = (1, 200_000)), Bottleneck::Terminal);
        assert_eq!(judged(|e| (e.full, e.arrived) = (1, 199_999)), Bottleneck::Window);
        assert_eq!(judged(|e| e.arrived = 400_000), Bottleneck::Server);
        assert_eq!(judged(|e| e.held_back_ns = 500_000_007), Bottleneck::Spacelink);
        assert_eq!(judged(|e| e.held_back_ns = 500_000_005), Bottleneck::Server);
        assert_eq!(judged(|e| e.up = false), Bottleneck::Spacelink);
        // Down and with nothing to do is nothing to worry about.
        assert_eq!(judged(|e| (e.up, e.sent, e.buffered) = (false, 1000, 0)), Bottleneck::Nothing);
    }

    #[test]
    fn without_a_rate_the_queue_tells() {
        let before = Evidence { up: true, ..Evidence::default() };
        let after = Evidence { sent: u64::MAX, ..before };
        assert_eq!(judge(&before, &after, Duration::from_secs(1), None), Bottleneck::Server);
        assert!(utilization(&before, &after, Duration::from_secs(1), None).is_nan());
        assert_eq!(judge(&before, &before, Duration::ZERO, None), Bottleneck::Nothing);
    }
}
