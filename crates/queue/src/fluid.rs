//! Fluid laws: what an algorithm does on the average of many packets, as differential equations.
//!
//! A fluid model knows rates and levels in place of packets. It shows an algorithm's [`FluidModel`] the watched queue and the
//! rates around it ([`Inputs`]); the law has state variables of its own (an average, a virtual queue, a probability) and
//! says how they change and which share of the packets is marked. Rates are in packets a second, times in seconds. A law
//! knows nothing of what the marks do to the senders: that is the model's.

/// The most state variables that a law may have.
pub const MAX_STATES: usize = 4;

/// Which of two laws is meant where the papers print one that differs from what the algorithm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FluidForm {
    /// As the papers print it: what their models have shown is shown again.
    Printed,
    /// As the algorithm acts, packet by packet.
    Actual,
}

/// What a law is made for, besides the algorithm's parameters.
#[derive(Clone, Copy, Debug)]
pub struct FluidConfig {
    /// Mean length of a packet on the watched queue's link [bytes].
    pub packet: f64,
    /// What the watched queue may hold [packets].
    pub limit: f64,
    /// Which law is meant.
    pub form: FluidForm,
}

/// What arrives at the mark point, and what it finds.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// The watched queue [packets].
    pub q: f64,
    /// What arrives, in packets as long as the link's [packets/s].
    pub load: f64,
    /// What the watched queue's link can send [packets/s].
    pub capacity: f64,
}

/// How a queue's service depends on its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// At the full rate while anything waits: a fluid through a pipe.
    Full,
    /// As in an M/M/1 queue in equilibrium whose mean number of packets is the level: `μ q / (1 + q)`.
    Mm1,
    /// As in such an M/D/1 queue: `μ (v + 1 - sqrt(v² + 1))`.
    Md1,
}

impl Service {
    /// The rate at which `level` packets change, with `inflow` and service at up to `rate` [packets/s]. A level falls no
    /// faster than to zero in the time `grain` [s], and so never below it.
    #[must_use]
    pub fn change(self, level: f64, inflow: f64, rate: f64, grain: f64) -> f64 {
        (inflow - rate * self.busy(level)).max(-level / grain)
    }

    /// The share of its rate that a queue of `level` packets is served at.
    #[must_use]
    pub fn busy(self, level: f64) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Mm1 => level / (1.0 + level),
            // The same as v + 1 - sqrt(v² + 1), which for a long queue loses all its digits.
            Self::Md1 => 2.0 * level / (level + 1.0 + (level * level + 1.0).sqrt()),
        }
    }
}

/// What a fluid model shows a law.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// The watched queue [packets].
    pub q: f64,
    /// How fast it grows [packets/s].
    pub dq: f64,
    /// What arrives at the mark point, in packets as they are there [packets/s].
    pub offered: f64,
    /// The same in packets as long as the link's [packets/s].
    pub load: f64,
    /// What is accepted there, marked or not, in packets as long as the link's [packets/s].
    pub accepted: f64,
    /// What the watched queue's link can send [packets/s].
    pub capacity: f64,
    /// What it sends [packets/s].
    pub output: f64,
    /// How a virtual queue is served.
    pub service: Service,
    /// The unit of time of the paper whose model it is [s]: for equations that are printed without their own.
    pub unit: f64,
    /// The shortest time in which a bounded variable may reach its bound [s].
    pub grain: f64,
}

impl Inputs {
    /// What of this is known before anything is marked.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals { q: self.q, load: self.load, capacity: self.capacity }
    }

    /// The rate at which a virtual queue of `level` packets changes that `inflow` joins and that is served at `rate`
    /// [packets/s].
    #[must_use]
    pub fn virtual_queue(&self, level: f64, inflow: f64, rate: f64) -> f64 {
        self.service.change(level, inflow, rate, self.grain)
    }

    /// The rate of change `dx` of a variable that stays within `low` and `high`.
    #[must_use]
    pub fn within(&self, x: f64, dx: f64, low: f64, high: f64) -> f64 {
        dx.max((low - x) / self.grain).min((high - x) / self.grain)
    }

    /// The share of the time for which the link has nothing to send.
    #[must_use]
    pub fn idle(&self) -> f64 {
        if self.capacity > 0.0 { (1.0 - self.output / self.capacity).max(0.0) } else { 0.0 }
    }
}

/// What a law at rest asks of the rest of the system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Equilibrium {
    /// That the watched queue stands at this [packets].
    Queue(f64),
    /// That what is accepted keeps a virtual queue at `level` [packets] that is served at up to `rate` [packets/s].
    Virtual {
        /// [packets]
        level: f64,
        /// [packets/s]
        rate: f64,
    },
}

/// An algorithm in a fluid model.
pub trait FluidModel: Send + Sync {
    /// How many state variables it has; at most [`MAX_STATES`].
    fn states(&self) -> usize;

    /// Writes their values at the start, one for each; zeros where nothing is done.
    fn start(&self, _x: &mut [f64]) {}

    /// The share of the packets that is marked, 0 to 1, with the state variables `x`.
    fn mark(&self, x: &[f64], arrivals: &Arrivals) -> f64;

    /// Writes how fast the state variables `x` change [1/s] to `dx`, one for each, where the share `p` is marked.
    fn derivatives(&self, x: &[f64], p: f64, inputs: &Inputs, dx: &mut [f64]);

    /// Where its state variables stand still, written to `x`, and what they ask for that: a series of points from where it
    /// marks least to where it marks most, with `share` from 0 to 1. The watched queue is served as `service` says, at up to
    /// `capacity` [packets/s]. None: the law never stands still while it marks, or it is not known where.
    fn equilibrium(
        &self,
        _share: f64,
        _capacity: f64,
        _service: Service,
        _x: &mut [f64],
    ) -> Option<Equilibrium> {
        None
    }

    /// Reports the state for tables, under the names and in the units of the algorithm's own probes
    /// ([`crate::Aqm::probe`]).
    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64));
}

/// RED's marking function: 0 up to `min_th`, from there up to `max_p` at `max_th`, then 1; with `gentle` a second ramp from
/// `max_p` to 1 at twice `max_th`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    pub min_th: f64,
    pub max_th: f64,
    pub gentle: bool,
}

impl Ramp {
    /// From which level on all is marked.
    pub fn end(&self) -> f64 {
        if self.gentle { 2.0 * self.max_th } else { self.max_th }
    }

    /// The probability at the level `x`.
    pub fn at(&self, x: f64, max_p: f64) -> f64 {
        if x < self.min_th {
            0.0
        } else if x < self.max_th {
            max_p * (x - self.min_th) / (self.max_th - self.min_th)
        } else if self.gentle && x < 2.0 * self.max_th {
            max_p + (1.0 - max_p) * (x - self.max_th) / self.max_th
        } else {
            1.0
        }
    }
}

/// A virtual queue of so many packets that marks what would not fit in it. Marked packets do not join it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundedVirtualQueue(pub f64);

impl BoundedVirtualQueue {
    /// The share of `load` that finds no room where `v` packets are served at `rate` [packets/s]: none while there is room,
    /// and then what exceeds the service, `1 - rate / load`, so that the queue stays full. Single packets find no room where
    /// less than one would fit, so a queue that is full lacks between none and one of its size: half a packet on average.
    pub fn mark(self, v: f64, load: f64, rate: f64) -> f64 {
        if self.0 < 1.0 {
            1.0
        } else if v > self.0 - 0.5 && load > rate {
            1.0 - rate / load
        } else {
            0.0
        }
    }

    /// How fast it grows [packets/s] where the share `p` of the load is marked.
    pub fn change(self, v: f64, p: f64, rate: f64, inputs: &Inputs) -> f64 {
        inputs.within(v, inputs.virtual_queue(v, (1.0 - p) * inputs.load, rate), 0.0, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels whose service is known: a load of 0.8 keeps 0.8 / 0.2 = 4 packets in an M/M/1 queue and 0.8 + 0.64 / 0.4 =
    /// 2.4 in an M/D/1 queue (Pollaczek and Khinchine), so there neither grows nor shrinks.
    #[test]
    fn queues_stand_still_at_their_mean_lengths() {
        assert!(Service::Mm1.change(4.0, 80.0, 100.0, 1e-3).abs() < 1e-12);
        assert!(Service::Md1.change(2.4, 80.0, 100.0, 1e-3).abs() < 1e-12);
        assert_eq!(Service::Full.change(4.0, 80.0, 100.0, 1e-3), -20.0);
    }

    /// An empty queue stays empty while less arrives than could be sent, and one with a hundredth of a packet loses it in
    /// the grain of time.
    #[test]
    fn no_queue_falls_below_zero() {
        for service in [Service::Full, Service::Mm1, Service::Md1] {
            assert!(service.change(0.0, 0.0, 100.0, 1e-3) <= 0.0);
            assert!(service.change(0.0, 0.0, 100.0, 1e-3) >= 0.0);
        }
        assert_eq!(Service::Full.change(0.01, 0.0, 100.0, 1e-3), -10.0);
    }

    #[test]
    fn the_ramp_is_reds() {
        let mut ramp = Ramp { min_th: 60.0, max_th: 120.0, gentle: false };
        for (x, p) in [(0.0, 0.0), (59.9, 0.0), (60.0, 0.0), (90.0, 0.35), (120.0, 1.0), (180.0, 1.0)] {
            assert!((ramp.at(x, 0.7) - p).abs() < 1e-12, "at {x}");
        }
        ramp.gentle = true;
        for (x, p) in [(90.0, 0.35), (120.0, 0.7), (180.0, 0.85), (240.0, 1.0), (1e9, 1.0)] {
            assert!((ramp.at(x, 0.7) - p).abs() < 1e-12, "at {x}");
        }
    }
}
