//! AVQ, the adaptive virtual queue.
//!
//! Kunniyur & Srikant 2001; [B07] 2.2.6. A virtual queue of `buffer` bytes is served at the virtual capacity
//! `C'`. On every arrival of `b` bytes, `t - s` after the last one: `VQ = max(VQ - C' (t - s), 0)`; where
//! `VQ + b` exceeds the buffer the packet is marked, otherwise `VQ += b`. Then
//! `C' = max(min(C' + alpha gamma C (t - s), C) - alpha b, 0)`.
//!
//! *Departures:* with `adapt = false` the virtual capacity stays at `gamma C`, as in [B07]'s emulation; adapting
//! leaves a fifth of that link idle.

use bentpipe_units::Instant;

use crate::registry::{Algorithm, Placement, Preset};
use crate::{Aqm, Cx, Packet, Param, ParamError, Range, Unit, Value, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "avq",
    title: "Adaptive virtual queue",
    source: "Kunniyur & Srikant 2001; [B07] 2.2.6",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Avq::new(values)?)),
};

const PARAMS: &[Param] = &[
    Param::number(
        "gamma",
        Unit::One,
        0.98,
        Range::above(0.0, 1.0),
        "Share of the link's capacity that is to be used",
    ),
    Param::number(
        "alpha",
        Unit::One,
        0.15,
        Range::above(0.0, 1.0),
        "How fast the virtual capacity follows the load",
    ),
    Param::flag("adapt", true, "Whether the virtual capacity follows the load"),
    Param::from_link(
        "buffer",
        Unit::Bytes,
        |link| (0.05 * link.capacity.bytes_per_sec()).max(2.0 * link.mean_packet),
        "50 ms of the link's capacity, at least two packets",
        Range::above(0.0, 1e12),
        "Size of the virtual queue",
    ),
    Param::from_link(
        "capacity",
        Unit::BitsPerSecond,
        |link| 8.0 * link.capacity.bytes_per_sec(),
        "the link's capacity",
        Range::above(0.0, 1e15),
        "C: capacity that the virtual one is a share of",
    ),
];

const PRESETS: &[Preset] = &[Preset {
    name: "AVQ",
    source: "[B07] Table 3.1",
    values: &[
        ("gamma", Value::Number(1.0)),
        ("adapt", Value::Flag(false)),
        ("buffer", Value::Number(123_750.0)),
        ("capacity", Value::Number(20e6)),
    ],
}];

/// AVQ's state.
#[derive(Debug)]
pub struct Avq {
    gamma: f64,
    alpha: f64,
    adapt: bool,
    buffer: f64,
    /// C [bytes/s].
    capacity: f64,
    /// C' [bytes/s].
    virtual_capacity: f64,
    /// VQ [bytes].
    vq: f64,
    /// s: the last arrival.
    last: Instant,
}

impl Avq {
    /// # Errors
    /// None beyond the ranges of single parameters.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        let capacity = v.number("capacity") / 8.0;
        let gamma = v.number("gamma");
        Ok(Self {
            gamma,
            alpha: v.number("alpha"),
            adapt: v.flag("adapt"),
            buffer: v.number("buffer"),
            capacity,
            virtual_capacity: gamma * capacity,
            vq: 0.0,
            last: Instant::ZERO,
        })
    }
}

impl Aqm for Avq {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Cx<'_>) -> Verdict {
        let since = (cx.now - self.last).as_secs_f64();
        let b = f64::from(pkt.len);
        self.last = cx.now;
        self.vq = (self.vq - self.virtual_capacity * since).max(0.0);
        let verdict = if self.vq + b > self.buffer {
            Verdict::Mark
        } else {
            self.vq += b;
            Verdict::Pass
        };
        if self.adapt {
            let grown = self.virtual_capacity + self.alpha * self.gamma * self.capacity * since;
            self.virtual_capacity = (grown.min(self.capacity) - self.alpha * b).max(0.0);
        }
        verdict
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.vq);
        out("virtual_capacity", 8.0 * self.virtual_capacity);
    }
}
