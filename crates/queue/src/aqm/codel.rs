//! CoDel, controlled delay: drops by how long packets have waited, not by how many wait.
//!
//! RFC 8289. Each packet's waiting time is known when it leaves. When every packet that leaves during `interval` has
//! waited longer than `target`, one is marked; then one more after `interval / sqrt(count)` each, where `count` is the
//! number of marks since then, until a packet has waited less than `target` or no more than one full packet waits
//! behind it:
//!
//!     next mark = last mark + interval / sqrt(count)
//!
//! *Departures:* the host asks packet by packet, so the RFC's loop inside `dequeue` becomes one decision per departing
//! packet: after a packet is marked by being dropped, the host comes back with the next at the same time.
//!
//! *In a satellite gateway:* it reads the time a packet has waited in the queue that it leaves, so it has to mark
//! there: at the receive queue it keeps that queue short, and knows nothing of the transmit queue, where a gateway's
//! packets wait; at the transmit queue it drops behind the PEP, segments that have been acknowledged and must be sent
//! again over the satellite. Such a scenario is accepted with a warning. Where a gateway splits nothing (no PEP) none
//! of this holds; then `interval` has to be of the order of the round trip, 600 ms and more over a geostationary
//! satellite, for the default of 100 ms takes the normal reaction time of such connections for a standing queue.

use bentpipe_units::{Duration, Instant};

use crate::registry::{Algorithm, Placement};
use crate::{Aqm, Cx, Packet, Param, ParamError, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "codel",
    title: "Controlled delay",
    source: "RFC 8289",
    params: PARAMS,
    presets: &[],
    placement: Placement::WatchedQueue,
    build: |values| Ok(Box::new(Codel::new(values)?)),
};

const PARAMS: &[Param] = &[
    Param::number(
        "target",
        Unit::Seconds,
        0.005,
        Range::above(0.0, 1e3),
        "Queueing delay that is acceptable",
    )
    .symbol("TARGET")
    .origin("RFC 8289 section 4.2")
    .tune(Tune::Log(0.001, 0.1)),
    Param::number(
        "interval",
        Unit::Seconds,
        0.1,
        Range::above(0.0, 1e3),
        "How long the delay may stay above the target: the longest round trip that is usual",
    )
    .symbol("INTERVAL")
    .origin("RFC 8289 section 4.3")
    .tune(Tune::Log(0.02, 2.0)),
    Param::from_link(
        "mean_packet",
        Unit::Bytes,
        |link| link.mean_packet,
        "the link's mean packet",
        Range::above(0.0, 65535.0),
        "Backlog that is never marked, for the link is busy with it anyway (the RFC's MTU)",
    )
    .symbol("maxpacket")
    .origin("the link"),
];

/// CoDel's state, under the RFC's names.
#[derive(Debug)]
pub struct Codel {
    target: Duration,
    interval: Duration,
    maxpacket: f64,
    first_above_time: Option<Instant>,
    drop_next: Instant,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// Whether the last packet was dropped at `drop_next`, which then has to move on.
    dropped: bool,
}

impl Codel {
    /// # Errors
    /// None beyond the ranges of single parameters.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        Ok(Self {
            target: Duration::from_secs_f64(v.number("target")),
            interval: Duration::from_secs_f64(v.number("interval")),
            maxpacket: v.number("mean_packet"),
            first_above_time: None,
            drop_next: Instant::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
            dropped: false,
        })
    }

    /// RFC 8289, section 5.6: whether the delay has been above the target for an interval.
    fn ok_to_drop(&mut self, pkt: &Packet, cx: &Cx<'_>) -> bool {
        if cx.now - pkt.arrival < self.target || cx.queue.bytes as f64 <= self.maxpacket {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(cx.now + self.interval);
                false
            }
            Some(time) => cx.now >= time,
        }
    }

    /// RFC 8289, section 5.3: `t + interval / sqrt(count)`.
    fn control_law(&self, t: Instant) -> Instant {
        t + self.interval.scaled(1.0 / f64::from(self.count).sqrt())
    }
}

impl Aqm for Codel {
    fn arrive(&mut self, _pkt: &Packet, _cx: &mut Cx<'_>) -> Verdict {
        Verdict::Pass
    }

    /// RFC 8289, section 5.5.
    fn depart(&mut self, pkt: &Packet, cx: &mut Cx<'_>) -> Verdict {
        let ok_to_drop = self.ok_to_drop(pkt, cx);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                self.dropped = false;
            } else {
                if std::mem::take(&mut self.dropped) {
                    // RFC 8289, section 5.5: the next time follows the last one, if the packet behind a dropped one
                    // is still too late.
                    self.drop_next = self.control_law(self.drop_next);
                }
                if cx.now >= self.drop_next {
                    self.count += 1;
                    self.dropped = true;
                    return Verdict::Mark;
                }
            }
        } else if ok_to_drop {
            self.dropping = true;
            // RFC 8289, section 5.5: resume near the rate that controlled the queue last time, if that was lately.
            let delta = self.count.wrapping_sub(self.lastcount);
            let lately = cx.now - self.drop_next < self.interval.times(16);
            self.count = if delta > 1 && lately { delta } else { 1 };
            self.drop_next = self.control_law(cx.now);
            self.lastcount = self.count;
            return Verdict::Mark;
        }
        Verdict::Pass
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("count", f64::from(self.count));
        out("dropping", f64::from(u8::from(self.dropping)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Steps;
    use super::*;

    /// RFC 8289's control law worked out by hand, target 5 ms and interval 100 ms. Every packet waits 10 ms. The delay is
    /// first seen above the target at 0; from 100 ms on a packet may be dropped, and the next drops follow after
    /// 100 ms, 100/sqrt(2) = 70.7 ms, 100/sqrt(3) = 57.7 ms.
    #[test]
    fn drops_follow_the_control_law() {
        let mut codel = Steps::new(&ALGORITHM, &[]);
        codel.state.bytes = 100_000;
        let mut drops = Vec::new();
        for ms in 0..340 {
            if codel.depart(10_000 + ms * 1000, ms * 1000, 1000) == Verdict::Mark {
                drops.push(ms);
            }
        }
        // 100, + 100 = 200, + 70.7 = 270.7, + 57.7 = 328.4, each at the next packet.
        assert_eq!(drops, [100, 200, 271, 329]);
    }

    #[test]
    fn a_short_delay_or_a_short_queue_ends_it() {
        let mut codel = Steps::new(&ALGORITHM, &[]);
        codel.state.bytes = 100_000;
        for ms in 0..=100 {
            codel.depart(10_000 + ms * 1000, ms * 1000, 1000);
        }
        assert_eq!(codel.probe("dropping"), 1.0);
        assert_eq!(codel.depart(300_000, 299_000, 1000), Verdict::Pass);
        assert_eq!(codel.probe("dropping"), 0.0);
        // No more than a full packet behind: never dropped, however late.
        codel.state.bytes = 1000;
        assert!((0..400).all(|ms| codel.depart(500_000 + ms * 1000, 0, 1000) == Verdict::Pass));
    }
}
