//! AVQRED: RED's lottery on a virtual queue that follows the measured output rate.
//!
//! [B07] 4.2; Byun & Baras. On every arrival, `delta` after the last measurement:
//! `output_rate = bytes transmitted since / delta`;
//! `v_cap = clamp(alpha output_rate + (1 - alpha) v_cap, min_capacity, max_capacity)`;
//! `VQ = max(VQ - v_cap delta, 0)`; then the lottery on `VQ / mean_packet` with `max_p = 1`. The virtual queue is
//! served and the rate measured only when more than 1 ms has passed since the last time.
//!
//! *Departures:* every accepted packet, marked or not, joins the virtual queue, whatever the region; the printed
//! listing's indentation would let it grow only below `min_th`, and the transmit queue then grows without bound.

use bentpipe_units::{Duration, Instant};

use super::lottery::Lottery;
use crate::registry::{Algorithm, Placement, Preset};
use crate::{Aqm, Cx, Link, Packet, Param, ParamError, Range, Unit, Value, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "avqred",
    title: "Adaptive virtual queue random early detection",
    source: "[B07] 4.2; Byun & Baras",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(AvqRed::new(values)?)),
};

/// The rate is measured over no less than this.
const MEASURE: Duration = Duration::from_millis(1);

fn capacity(link: &Link) -> f64 {
    8.0 * link.capacity.bytes_per_sec()
}

const PARAMS: &[Param] = &[
    Param::from_link(
        "min_th",
        Unit::Packets,
        |link| link.packets_in(0.033),
        "33 ms of the link's capacity, at least one packet",
        Range::between(0.0, 1e9),
        "Virtual queue below which no packet is marked",
    ),
    Param::from_link(
        "max_th",
        Unit::Packets,
        |link| 2.0 * link.packets_in(0.033),
        "66 ms of the link's capacity, at least two packets",
        Range::above(0.0, 1e9),
        "Virtual queue from which on every packet is marked",
    ),
    Param::number(
        "alpha",
        Unit::One,
        0.05,
        Range::above(0.0, 1.0),
        "Weight of the newest measurement in the virtual capacity",
    ),
    Param::from_link(
        "min_capacity",
        Unit::BitsPerSecond,
        capacity,
        "the link's capacity",
        Range::above(0.0, 1e15),
        "Least virtual capacity",
    ),
    Param::from_link(
        "max_capacity",
        Unit::BitsPerSecond,
        capacity,
        "the link's capacity",
        Range::above(0.0, 1e15),
        "Greatest virtual capacity",
    ),
    Param::from_link(
        "mean_packet",
        Unit::Bytes,
        |link| link.mean_packet,
        "the link's mean packet",
        Range::above(0.0, 65535.0),
        "Mean length of a packet, which turns the virtual queue's bytes into packets",
    ),
];

const PRESETS: &[Preset] = &[Preset {
    name: "AVQRED",
    source: "[B07] Table 3.1",
    values: &[
        ("min_th", Value::Number(60.0)),
        ("max_th", Value::Number(120.0)),
        ("min_capacity", Value::Number(20e6)),
        ("max_capacity", Value::Number(20e6)),
    ],
}];

/// AVQRED's state.
#[derive(Debug)]
pub struct AvqRed {
    alpha: f64,
    /// [bytes/s]
    min_capacity: f64,
    /// [bytes/s]
    max_capacity: f64,
    mean_packet: f64,
    lottery: Lottery,
    /// Virtual capacity [bytes/s].
    v_cap: f64,
    /// Virtual queue [bytes].
    vq: f64,
    /// The last measurement.
    last: Instant,
    /// Bytes transmitted up to then.
    sent: u64,
}

impl AvqRed {
    /// # Errors
    /// Unless `min_th < max_th` and `min_capacity <= max_capacity`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let (min, max) = (v.number("min_capacity"), v.number("max_capacity"));
        if min > max {
            let problem = format!("found {min}, but it must not exceed max_capacity, which is {max}");
            return Err(ParamError { name: "min_capacity", problem });
        }
        Ok(Self {
            alpha: v.number("alpha"),
            min_capacity: min / 8.0,
            max_capacity: max / 8.0,
            mean_packet: v.number("mean_packet"),
            lottery: Lottery::new(v.number("min_th"), v.number("max_th"), 1.0, false),
            v_cap: max / 8.0,
            vq: 0.0,
            last: Instant::ZERO,
            sent: 0,
        })
    }

    /// Measures the output rate and serves the virtual queue, at most once a millisecond.
    fn serve(&mut self, cx: &Cx<'_>) {
        let delta = cx.now - self.last;
        if delta <= MEASURE {
            return;
        }
        let delta = delta.as_secs_f64();
        let output_rate = (cx.queue.sent_bytes - self.sent) as f64 / delta;
        self.v_cap = (self.alpha * output_rate + (1.0 - self.alpha) * self.v_cap)
            .clamp(self.min_capacity, self.max_capacity);
        self.vq = (self.vq - self.v_cap * delta).max(0.0);
        self.last = cx.now;
        self.sent = cx.queue.sent_bytes;
    }
}

impl Aqm for AvqRed {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Cx<'_>) -> Verdict {
        self.serve(cx);
        if self.lottery.draw(self.vq / self.mean_packet, 1.0, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Cx<'_>) {
        self.vq += f64::from(pkt.len);
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.vq / self.mean_packet);
        out("v_cap", 8.0 * self.v_cap);
        out("p", self.lottery.probability());
    }
}
