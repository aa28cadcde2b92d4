//! REM, random exponential marking: a price for the link grows with queue and load, and determines the probability.
//!
//! Athuraliya, Li, Low & Yin 2001. At times `interval` apart, with `x` packets arrived since the previous time, `b`
//! packets in the watched queue and `c` packets that the link could have sent in an interval:
//!
//! ```text
//! price = max(price + gamma (alpha (b - b_ref) + x - c), 0)
//! p = 1 - phi^-price
//! ```
//!
//! Each arrival at the mark point is marked with probability `p`. The exponential makes the end-to-end probability
//! along a path of independently marking links a function of the sum of their prices.
//!
//! *Departures:* none.
//!
//! *In a satellite gateway:* it watches the length of the transmit queue and the load at the mark point, so it can mark
//! ahead of the PEP. The load counts all arrivals, including dropped packets, and so exceeds the load of the link if
//! marks are drops: the price then settles at a queue shorter than `b_ref`, or empty. The step `gamma` is per packet,
//! so a faster link needs a smaller one. With one bottleneck the sum of prices is of no use.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::pi::Q_REF;
use crate::descriptor::{Algorithm, Placement};
use crate::fluid::{Arrivals, FluidConfig, FluidModel, Inputs};
use crate::{Aqm, Context, Packet, Param, Range, Tune, Unit, Values, Verdict};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "rem",
    title: "Random exponential marking",
    source: "Athuraliya et al. 2001",
    params: PARAMS,
    presets: &[],
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(Rem::new(values))),
    fluid: Some(|values, given| Ok(Box::new(RemFluid::new(values, given)))),
};

const PARAMS: &[Param] = &[
    Param { name: "b_ref", ..Q_REF }.symbol("b*"),
    Param::number("gamma", Unit::One, 0.001, Range::above(0.0, 1.0))
        .doc("Step of the price")
        .symbol("γ")
        .origin("ns-2's default")
        .tune(Tune::Log(1e-5, 0.1)),
    Param::number("alpha", Unit::One, 0.1, Range::above(0.0, 1.0))
        .doc("Weight of the queue relative to that of the rate")
        .symbol("α")
        .origin("Athuraliya et al. 2001")
        .tune(Tune::Log(0.01, 1.0)),
    Param::number("phi", Unit::One, 1.001, Range::above(1.0, 1e6))
        .doc("Base of the probability")
        .symbol("φ")
        .origin("ns-2's default")
        .tune(Tune::Log(1.0001, 2.0)),
    Param::number("interval", Unit::Seconds, 0.002, Range::between(1e-6, 60.0))
        .doc("Time between two updates of the price")
        .origin("ns-2's default")
        .tune(Tune::Log(0.001, 0.1)),
    Param::from_link("mean_packet", Unit::Bytes, Range::above(0.0, 65535.0), |link| link.mean_packet)
        .default_doc("the link's mean packet")
        .doc("Mean length of a packet, to count the link's capacity in packets")
        .origin("the link"),
];

/// REM's state.
#[derive(Debug)]
pub struct Rem {
    b_ref: f64,
    gamma: f64,
    alpha: f64,
    phi: f64,
    mean_packet: f64,
    every: Duration,
    /// x: packets that arrived since the last update.
    arrived: f64,
    price: f64,
    p: f64,
    next: Instant,
}

impl Rem {
    fn new(v: &Values) -> Self {
        let every = Duration::from_secs_f64(v.number("interval"));
        Self {
            b_ref: v.number("b_ref"),
            gamma: v.number("gamma"),
            alpha: v.number("alpha"),
            phi: v.number("phi"),
            mean_packet: v.number("mean_packet"),
            every,
            arrived: 0.0,
            price: 0.0,
            p: 0.0,
            next: Instant::ZERO + every,
        }
    }
}

impl Aqm for Rem {
    fn arrive(&mut self, _pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.arrived += 1.0;
        if cx.rng.uniform() < self.p { Verdict::Mark } else { Verdict::Pass }
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        let c = cx.queue.capacity.bytes_per_sec() * self.every.as_secs_f64() / self.mean_packet;
        let mismatch = self.alpha * (f64::from(cx.queue.packets) - self.b_ref) + self.arrived - c;
        self.price = (self.price + self.gamma * mismatch).max(0.0);
        self.p = 1.0 - libm::pow(self.phi, -self.price);
        self.arrived = 0.0;
        self.next += self.every;
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.arrived = was.arrived;
        self.price = was.price;
        self.p = was.p;
        self.next = was.next;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.p);
        out("price", self.price);
    }
}

/// REM as a fluid: an update adds `gamma (alpha (b - b_ref) + x - c)` to the price, where `x` and `c` are the arrivals
/// and the capacity in an interval: `d price / dt = gamma (alpha (b - b_ref) / interval + λ - c)`, at least 0, and
/// `p = 1 - phi^-price`, as in Athuraliya et al. with the interval as unit of time. `c` counts packets of `mean_packet`
/// bytes.
struct RemFluid {
    rule: Rem,
    ln_phi: f64,
    interval: f64,
    /// Packets of `mean_packet` bytes per packet of the link.
    packets: f64,
}

impl RemFluid {
    fn new(v: &Values, given: &FluidConfig) -> Self {
        Self {
            rule: Rem::new(v),
            ln_phi: libm::log(v.number("phi")),
            interval: v.number("interval"),
            packets: given.packet / v.number("mean_packet"),
        }
    }

    fn probability(&self, price: f64) -> f64 {
        -libm::expm1(-self.ln_phi * price.max(0.0))
    }
}

impl FluidModel for RemFluid {
    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        self.probability(x[0])
    }

    fn derivatives(&self, x: &[f64], _p: f64, inputs: &Inputs, dx: &mut [f64]) {
        let mismatch = inputs.offered - inputs.capacity * self.packets;
        let change =
            self.rule.gamma * (self.rule.alpha * (inputs.q - self.rule.b_ref) / self.interval + mismatch);
        dx[0] = inputs.within(x[0], change, 0.0, f64::INFINITY);
    }

    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability(x[0]));
        out("price", x[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{INPUTS, Steps, derivatives, fluid, fluid_probes};
    use super::*;
    use crate::Value;
    use crate::fluid::FluidVariant;

    /// Worked out by hand: a link that sends 20 packets of 500 bytes in 10 ms (8 Mbit/s), gamma = 0.1, alpha = 0.5,
    /// b_ref = 4, phi = 2. 22 arrivals and 8 waiting: 0.5 * 4 + 2 = 4, price 0.4, p = 1 - 2^-0.4. No arrivals and an
    /// empty queue: -2 - 20 = -22, price max(0.4 - 2.2, 0) = 0.
    #[test]
    fn updates_follow_the_equation() {
        let given = [
            ("b_ref", 4.0),
            ("gamma", 0.1),
            ("alpha", 0.5),
            ("phi", 2.0),
            ("interval", 0.01),
            ("mean_packet", 500.0),
        ];
        let mut rem = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        for us in 0..22 {
            assert_eq!(rem.arrive(us, 500), Verdict::Pass);
        }
        rem.state.packets = 8;
        assert_eq!(rem.wake(), 10_000);
        assert!((rem.probe("price") - 0.4).abs() < 1e-12);
        assert!((rem.probe("p") - 0.242_141_716_744_801_17).abs() < 1e-12);
        rem.state.packets = 0;
        assert_eq!(rem.wake(), 20_000);
        assert_eq!((rem.probe("price"), rem.probe("p")), (0.0, 0.0));
    }

    /// A price of 1 to the base 2 marks half of 10,000 arrivals, within five standard errors of 50.
    #[test]
    fn marks_with_its_probability() {
        let given = [("b_ref", 0.0), ("gamma", 1.0), ("alpha", 1.0), ("phi", 2.0), ("interval", 0.01)];
        let mut rem = Steps::new(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))));
        rem.state.packets = 11;
        rem.wake();
        assert_eq!((rem.probe("price"), rem.probe("p")), (1.0, 0.5));
        let marks = (0..10_000).filter(|us| rem.arrive(10_001 + us, 1000) == Verdict::Mark).count();
        assert!((4750..=5250).contains(&marks), "{marks}");
    }

    /// Packets of 1000 bytes count as two of `mean_packet`: at q = 8 with 2100 arrivals/s
    /// `gamma (alpha (b - b_ref) / interval + λ - c)` = 0.1 (0.5 4 / 0.01 + 2100 - 2000) = 30. The price does not fall below
    /// zero; one of 1 marks 1 - 1/2.
    #[test]
    fn fluid_follows_the_equation() {
        let given = [
            ("b_ref", 4.0),
            ("gamma", 0.1),
            ("alpha", 0.5),
            ("phi", 2.0),
            ("interval", 0.01),
            ("mean_packet", 500.0),
        ];
        let rem = fluid(&ALGORITHM, &given.map(|(name, x)| (name, Value::Number(x))), FluidVariant::Actual);
        for (price, q, offered, change) in
            [(1.0, 8.0, 2100.0, 30.0), (1.0, 0.0, 2100.0, -10.0), (0.0, 0.0, 0.0, 0.0)]
        {
            let [found] = derivatives(&*rem, [price], 0.5, &Inputs { q, offered, ..INPUTS });
            assert!((found - change).abs() < 1e-9, "{found}, not {change}, at price {price} and q {q}");
        }
        for (price, p) in [(1.0, 0.5), (2.0, 0.75), (0.0, 0.0), (-1.0, 0.0)] {
            assert!((rem.mark(&[price], &INPUTS.arrivals()) - p).abs() < 1e-12, "at price {price}");
        }
        assert_eq!(fluid_probes(&*rem, &[0.0]), [("p", 0.0), ("price", 0.0)]);
        let found = fluid_probes(&*rem, &[2.0]);
        assert!((found[0].1 - 0.75).abs() < 1e-12 && found[1].1 == 2.0, "{found:?}");
    }
}
