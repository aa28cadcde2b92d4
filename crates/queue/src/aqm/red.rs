//! RED, random early detection.
//!
//! Floyd & Jacobson 1993; [B07] 2.2.1. On every arrival at the mark point, with `q` packets in the watched
//! queue: `avg += w_q (q - avg)`; where the link has been idle, `avg *= (1 - w_q)^m` with `m` the number of
//! packets that could have been sent in the time. Then the lottery on `avg` between `min_th` and `max_th`.
//!
//! *Departures:* the average is updated by arrivals at the mark point, not at the watched queue: there a
//! gateway whose marks stop all arrivals would never learn that its queue has drained. `gentle` raises the
//! probability from `max_p` to 1 between `max_th` and `2 max_th` (Floyd 2000), in place of the step to 1. In byte
//! mode (`bytes = true`, Floyd & Jacobson 1993, section V) `p_b` is scaled by the packet's length over the mean.

use bentpipe_units::Instant;

use super::lottery::Lottery;
use crate::registry::{Algorithm, Placement, Preset};
use crate::{Aqm, Cx, Packet, Param, ParamError, Range, Unit, Value, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "red",
    title: "Random early detection",
    source: "Floyd & Jacobson 1993; [B07] 2.2.1",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Red::new(values)?)),
};

const PARAMS: &[Param] = &[
    Param::from_link(
        "min_th",
        Unit::Packets,
        |link| link.packets_in(0.033),
        "33 ms of the link's capacity, at least one packet",
        Range::between(0.0, 1e9),
        "Average queue below which no packet is marked",
    ),
    Param::from_link(
        "max_th",
        Unit::Packets,
        |link| 2.0 * link.packets_in(0.033),
        "66 ms of the link's capacity, at least two packets",
        Range::above(0.0, 1e9),
        "Average queue from which on every packet is marked",
    ),
    Param::number(
        "w_q",
        Unit::One,
        0.02,
        Range::above(0.0, 1.0),
        "Weight of the newest sample in the average",
    ),
    Param::number("max_p", Unit::One, 0.5, Range::above(0.0, 1.0), "Marking probability at `max_th`"),
    Param::flag("gentle", false, "Ramp from `max_p` to 1 between `max_th` and twice it"),
    Param::flag("bytes", false, "Mark in proportion to a packet's length"),
    Param::from_link(
        "mean_packet",
        Unit::Bytes,
        |link| link.mean_packet,
        "the link's mean packet",
        Range::above(0.0, 65535.0),
        "Mean length of a packet, for the decay of the average while the link is idle",
    ),
];

const PRESETS: &[Preset] = &[
    Preset { name: "RED 1", source: TABLE, values: &[MIN_TH, MAX_TH, w_q(0.02), max_p(0.5)] },
    Preset { name: "RED 2", source: TABLE, values: &[MIN_TH, MAX_TH, w_q(0.05), max_p(0.7)] },
    Preset { name: "RED 3", source: TABLE, values: &[MIN_TH, MAX_TH, w_q(0.10), max_p(0.5)] },
    Preset { name: "RED 4", source: TABLE, values: &[MIN_TH, MAX_TH, w_q(0.10), max_p(0.7)] },
];
const TABLE: &str = "[B07] Table 3.1";
const MIN_TH: (&str, Value) = ("min_th", Value::Number(60.0));
const MAX_TH: (&str, Value) = ("max_th", Value::Number(120.0));

const fn w_q(x: f64) -> (&'static str, Value) {
    ("w_q", Value::Number(x))
}

const fn max_p(x: f64) -> (&'static str, Value) {
    ("max_p", Value::Number(x))
}

/// RED's state.
#[derive(Debug)]
pub struct Red {
    w_q: f64,
    bytes: bool,
    mean_packet: f64,
    avg: f64,
    lottery: Lottery,
    /// Up to when an idle link has been taken into account.
    decayed: Instant,
}

impl Red {
    /// # Errors
    /// Unless `min_th < max_th`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        Ok(Self {
            w_q: v.number("w_q"),
            bytes: v.flag("bytes"),
            mean_packet: v.number("mean_packet"),
            avg: 0.0,
            lottery: Lottery::new(
                v.number("min_th"),
                v.number("max_th"),
                v.number("max_p"),
                v.flag("gentle"),
            ),
            decayed: Instant::ZERO,
        })
    }

    fn average(&mut self, cx: &Cx<'_>) {
        match cx.queue.idle_since {
            None => self.avg += self.w_q * (f64::from(cx.queue.packets) - self.avg),
            Some(since) => {
                let idle = (cx.now - since.max(self.decayed)).as_secs_f64();
                let m = idle * cx.queue.capacity.bytes_per_sec() / self.mean_packet;
                self.avg *= libm::pow(1.0 - self.w_q, m);
                self.decayed = cx.now;
            }
        }
    }
}

impl Aqm for Red {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Cx<'_>) -> Verdict {
        self.average(cx);
        let share = if self.bytes { f64::from(pkt.len) / self.mean_packet } else { 1.0 };
        if self.lottery.draw(self.avg, share, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("avg", self.avg);
        out("p", self.lottery.probability());
    }
}
