//! The bottleneck of the throughput into the satellite, found for each interval.
//!
//! The first of these conditions that holds decides:
//!
//! 1. *nothing*: no payload was sent and none waits.
//! 2. *spacelink*: it is down.
//! 3. *regulator*: at least [`BUSY`] of the capacity was used, or at least one packet on average waited in the transmit
//!    queue: there is more than the satellite carries.
//! 4. *spacelink*: its window held data back, that of all streams for at least half of the interval, or that of a stream at
//!    the end of it.
//! 5. *terminal*: at the end of the interval a PEP buffer was full, and delivery takes longer than two round trips: the
//!    receivers do not take what has arrived. By Little's law this time is the number of bytes in flight over the delivery
//!    rate.
//! 6. *window*: at the end of the interval a PEP buffer was full, and delivery takes no longer: a connection sends one
//!    buffer per round trip.
//! 7. *server*: otherwise. Data was sent, nothing waits and no buffer is full: the senders, or the path from them, are the
//!    limit.

use bentpipe_units::{Duration, Rate};

/// Share of the capacity from which the regulator counts as busy; the rest is headers that are not counted.
pub const BUSY: f64 = 0.95;

named_enum! {
    /// The limit of the throughput.
    #[derive(Default)]
    pub enum Bottleneck {
        /// Nothing to send.
        #[default]
        Nothing = "nothing",
        /// The regulator's rate.
        Regulator = "regulator",
        /// The senders, or the path from them to here.
        Server = "server",
        /// The PEP's buffers.
        Window = "window",
        /// The receivers behind the peer.
        Terminal = "terminal",
        /// The spacelink.
        Spacelink = "spacelink",
    }
}

/// Evidence for the bottleneck. Counters count from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Payload sent [bytes].
    pub payload: u64,
    /// Bytes that the regulator released or was charged for.
    pub sent: u64,
    /// Packets in the transmit queue, integrated over time [packet s].
    pub packet_seconds: f64,
    /// Time during which the window of all streams held data back [ns].
    pub window_limited_ns: u64,
    /// Connections held back by the window of their stream now.
    pub window_limited_streams: u64,
    /// True while the spacelink is up.
    pub up: bool,
    /// Connections with a full PEP buffer now.
    pub full_buffers: u64,
    /// Bytes held by the PEP now.
    pub buffered: u64,
    /// Bytes held that were sent and not delivered by the peer yet.
    pub in_flight: u64,
    /// Bytes that the peer delivered.
    pub delivered: u64,
    /// Round trip of the spacelink; zero if unknown.
    pub round_trip: Duration,
}

/// Share of the capacity used between two states; NaN without a capacity or without time.
#[must_use]
pub fn utilization(before: &Evidence, after: &Evidence, time: Duration, capacity: Option<Rate>) -> f64 {
    let room = capacity.map_or(f64::NAN, Rate::bytes_per_sec) * time.as_secs_f64();
    if room > 0.0 { after.sent.saturating_sub(before.sent) as f64 / room } else { f64::NAN }
}

/// The bottleneck between two states.
#[must_use]
pub fn bottleneck(before: &Evidence, after: &Evidence, time: Duration, capacity: Option<Rate>) -> Bottleneck {
    let waiting = (after.packet_seconds - before.packet_seconds) / time.as_secs_f64();
    let window_limited = after.window_limited_ns.saturating_sub(before.window_limited_ns);
    if after.payload == before.payload && after.buffered == 0 && waiting.is_nan() | (waiting <= 0.0) {
        Bottleneck::Nothing
    } else if !after.up {
        Bottleneck::Spacelink
    } else if utilization(before, after, time, capacity) >= BUSY || waiting >= 1.0 {
        Bottleneck::Regulator
    } else if window_limited * 2 >= time.as_nanos() || after.window_limited_streams > 0 {
        Bottleneck::Spacelink
    } else if after.full_buffers == 0 {
        Bottleneck::Server
    } else {
        let in_two_round_trips = after.delivered.saturating_sub(before.delivered) as f64 / time.as_secs_f64()
            * after.round_trip.times(2).as_secs_f64();
        if after.in_flight as f64 > in_two_round_trips { Bottleneck::Terminal } else { Bottleneck::Window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at 20 Mbit/s (2 500 000 bytes) over 600 ms, in which 300 000 bytes are delivered: 360 000 in two round
    /// trips.
    fn between(change: impl FnOnce(&mut Evidence)) -> Bottleneck {
        let round_trip = Duration::from_millis(600);
        let before = Evidence {
            payload: 900,
            sent: 1000,
            packet_seconds: 3.0,
            window_limited_ns: 7,
            delivered: 5,
            up: true,
            round_trip,
            ..Evidence::default()
        };
        let mut after =
            Evidence { payload: 1_000_900, sent: 1_001_000, buffered: 400_000, delivered: 300_005, ..before };
        change(&mut after);
        bottleneck(&before, &after, Duration::from_secs(1), Some(Rate::from_bps(20_000_000)))
    }

    /// The conditions of the list above in order, each with the value that just fulfils it.
    #[test]
    fn each_bottleneck_is_found_by_its_sign() {
        assert_eq!(between(|_| {}), Bottleneck::Server);
        assert_eq!(between(|e| (e.payload, e.buffered) = (900, 0)), Bottleneck::Nothing);
        assert_eq!(between(|e| e.sent = 1000 + 2_375_000), Bottleneck::Regulator);
        assert_eq!(between(|e| e.sent = 1000 + 2_374_999), Bottleneck::Server);
        assert_eq!(between(|e| e.packet_seconds = 4.0), Bottleneck::Regulator);
        assert_eq!(between(|e| e.full_buffers = 1), Bottleneck::Window);
        assert_eq!(between(|e| (e.full_buffers, e.in_flight) = (1, 360_000)), Bottleneck::Window);
        assert_eq!(between(|e| (e.full_buffers, e.in_flight) = (1, 360_001)), Bottleneck::Terminal);
        assert_eq!(between(|e| e.in_flight = 400_000), Bottleneck::Server);
        assert_eq!(between(|e| e.window_limited_ns = 500_000_007), Bottleneck::Spacelink);
        assert_eq!(between(|e| e.window_limited_ns = 500_000_006), Bottleneck::Server);
        assert_eq!(between(|e| e.window_limited_streams = 1), Bottleneck::Spacelink);
        assert_eq!(
            between(|e| (e.window_limited_streams, e.packet_seconds) = (1, 4.0)),
            Bottleneck::Regulator
        );
        assert_eq!(between(|e| e.up = false), Bottleneck::Spacelink);
        // Down and without data.
        assert_eq!(between(|e| (e.up, e.payload, e.buffered) = (false, 900, 0)), Bottleneck::Nothing);
    }

    #[test]
    fn without_a_rate_the_queue_decides() {
        let before = Evidence { up: true, ..Evidence::default() };
        let after = Evidence { payload: 1, sent: u64::MAX, ..before };
        assert_eq!(bottleneck(&before, &after, Duration::from_secs(1), None), Bottleneck::Server);
        assert!(utilization(&before, &after, Duration::from_secs(1), None).is_nan());
        assert_eq!(bottleneck(&before, &before, Duration::ZERO, None), Bottleneck::Nothing);
    }
}
