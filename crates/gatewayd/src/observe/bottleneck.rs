//! What limits the throughput into the satellite, judged for each interval by what was seen in it.
//!
//! The first of these that holds is the bottleneck:
//!
//! 1. *nothing*: no payload was sent, and none waits.
//! 2. *spacelink*: it is down.
//! 3. *regulator*: at least [`BUSY`] of the capacity was used, or at least one packet waited in the transmit queue on
//!    average: there is more than the satellite takes.
//! 4. *spacelink*: a window of it held data back, that of all streams for at least half of the interval, or that of a stream
//!    at its end.
//! 5. *terminal*: at the interval's end a PEP buffer was full, and delivery takes longer than two round trips: who is to
//!    receive does not take what has arrived. The time is Little's law's: what is under way over what is delivered in a
//!    second.
//! 6. *window*: at the interval's end a PEP buffer was full, and delivery takes no longer: a connection has as many bytes
//!    in a round trip as its buffer holds.
//! 7. *server*: anything else. Data went, nothing waits and no buffer is full: senders, or the way from them, give no more.

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
    /// Bytes of users' traffic that were sent [bytes].
    pub payload: u64,
    /// Bytes that the regulator let go, and what it was charged for [bytes].
    pub sent: u64,
    /// Packets waiting in the transmit queue, integrated over time [packet s].
    pub packet_seconds: f64,
    /// For how long the window of all streams has held data back [ns].
    pub held_back_ns: u64,
    /// Connections that the window of their stream holds back now.
    pub held_streams: u64,
    /// Whether the spacelink is up.
    pub up: bool,
    /// Connections whose PEP buffer is full now.
    pub full: u64,
    /// What the PEP holds now [bytes].
    pub buffered: u64,
    /// What of it was sent, and not delivered by the other end yet [bytes].
    pub under_way: u64,
    /// Bytes that the other end has delivered.
    pub delivered: u64,
    /// The spacelink's round trip; zero where it is not known.
    pub round_trip: Duration,
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
    if after.payload == before.payload && after.buffered == 0 && waiting.is_nan() | (waiting <= 0.0) {
        Bottleneck::Nothing
    } else if !after.up {
        Bottleneck::Spacelink
    } else if utilization(before, after, time, capacity) >= BUSY || waiting >= 1.0 {
        Bottleneck::Regulator
    } else if held_back * 2 >= time.as_nanos() || after.held_streams > 0 {
        Bottleneck::Spacelink
    } else if after.full == 0 {
        Bottleneck::Server
    } else {
        let in_two_round_trips = after.delivered.saturating_sub(before.delivered) as f64 / time.as_secs_f64()
            * after.round_trip.times(2).as_secs_f64();
        if after.under_way as f64 > in_two_round_trips { Bottleneck::Terminal } else { Bottleneck::Window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at 20 Mbit/s, which has room for 2 500 000 bytes, over 600 ms; 300 000 are delivered, 360 000 in two round
    /// trips.
    fn judged(change: impl FnOnce(&mut Evidence)) -> Bottleneck {
        let round_trip = Duration::from_millis(600);
        let before = Evidence {
            payload: 900,
            sent: 1000,
            packet_seconds: 3.0,
            held_back_ns: 7,
            delivered: 5,
            up: true,
            round_trip,
            ..Evidence::default()
        };
        let mut after =
            Evidence { payload: 1_000_900, sent: 1_001_000, buffered: 400_000, delivered: 300_005, ..before };
        change(&mut after);
        judge(&before, &after, Duration::from_secs(1), Some(Rate::from_bps(20_000_000)))
    }

    /// One step after the other of the list above, each with the figure that just makes it hold.
    #[test]
    fn each_is_told_by_its_sign() {
        assert_eq!(judged(|_| {}), Bottleneck::Server);
        assert_eq!(judged(|e| (e.payload, e.buffered) = (900, 0)), Bottleneck::Nothing);
        assert_eq!(judged(|e| e.sent = 1000 + 2_375_000), Bottleneck::Regulator);
        assert_eq!(judged(|e| e.sent = 1000 + 2_374_999), Bottleneck::Server);
        assert_eq!(judged(|e| e.packet_seconds = 4.0), Bottleneck::Regulator);
        assert_eq!(judged(|e| e.full = 1), Bottleneck::Window);
        assert_eq!(judged(|e| (e.full, e.under_way) = (1, 360_000)), Bottleneck::Window);
        assert_eq!(judged(|e| (e.full, e.under_way) = (1, 360_001)), Bottleneck::Terminal);
        assert_eq!(judged(|e| e.under_way = 400_000), Bottleneck::Server);
        assert_eq!(judged(|e| e.held_back_ns = 500_000_007), Bottleneck::Spacelink);
        assert_eq!(judged(|e| e.held_back_ns = 500_000_006), Bottleneck::Server);
        assert_eq!(judged(|e| e.held_streams = 1), Bottleneck::Spacelink);
        assert_eq!(judged(|e| (e.held_streams, e.packet_seconds) = (1, 4.0)), Bottleneck::Regulator);
        assert_eq!(judged(|e| e.up = false), Bottleneck::Spacelink);
        // Down and with nothing to do is nothing to worry about.
        assert_eq!(judged(|e| (e.up, e.payload, e.buffered) = (false, 900, 0)), Bottleneck::Nothing);
    }

    #[test]
    fn without_a_rate_the_queue_tells() {
        let before = Evidence { up: true, ..Evidence::default() };
        let after = Evidence { payload: 1, sent: u64::MAX, ..before };
        assert_eq!(judge(&before, &after, Duration::from_secs(1), None), Bottleneck::Server);
        assert!(utilization(&before, &after, Duration::from_secs(1), None).is_nan());
        assert_eq!(judge(&before, &before, Duration::ZERO, None), Bottleneck::Nothing);
    }
}
