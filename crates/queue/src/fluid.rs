//! Fluid models: an algorithm averaged over many packets, as differential equations.
//!
//! A fluid model has rates and levels in place of packets. The equations of the network pass the watched queue and the
//! rates around it ([`Inputs`]) to an algorithm's [`FluidModel`], which has state variables (an average, a virtual
//! queue, a probability) and returns their derivatives and the share of packets that is marked. Rates are in packets/s,
//! times in seconds. The effect of marks on the senders is the network's part.

/// Maximum number of state variables.
pub const MAX_STATES: usize = 4;

/// Variant of the equations, where the printed one differs from the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FluidVariant {
    /// As printed in the paper; reproduces the paper's results.
    Printed,
    /// As the algorithm acts, packet by packet.
    Actual,
}

/// Configuration of a fluid model besides the algorithm's parameters.
#[derive(Clone, Copy, Debug)]
pub struct FluidConfig {
    /// Mean length of a packet on the watched queue's link [bytes].
    pub packet: f64,
    /// Limit of the watched queue [packets].
    pub limit: f64,
    /// Variant of the equations.
    pub variant: FluidVariant,
}

/// Arrivals at the mark point, and the queue that they find.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Length of the watched queue [packets].
    pub q: f64,
    /// Offered load, in packets of the link's mean length [packets/s].
    pub load: f64,
    /// Capacity of the watched queue's link [packets/s].
    pub capacity: f64,
}

/// Dependence of a queue's service rate on its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Full rate while anything waits: a fluid through a pipe.
    Full,
    /// As in an M/M/1 queue in equilibrium whose mean length is `level`: `μ level / (1 + level)`.
    Mm1,
    /// As in such an M/D/1 queue: `μ (level + 1 - sqrt(level² + 1))`.
    Md1,
}

impl Service {
    /// Returns the rate of change of a queue of `level` packets with `inflow` and a service rate of up to `rate`
    /// [packets/s]. The level takes at least the time `resolution` [s] to reach zero, so it never falls below.
    #[must_use]
    pub fn change(self, level: f64, inflow: f64, rate: f64, resolution: f64) -> f64 {
        (inflow - rate * self.busy(level)).max(-level / resolution)
    }

    /// Returns the service rate of a queue of `level` packets as a share of the full rate.
    #[must_use]
    pub fn busy(self, level: f64) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Mm1 => level / (1.0 + level),
            // Equal to level + 1 - sqrt(level² + 1), which cancels for long queues.
            Self::Md1 => 2.0 * level / (level + 1.0 + (level * level + 1.0).sqrt()),
        }
    }
}

/// Inputs of an algorithm's fluid model.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Length of the watched queue [packets].
    pub q: f64,
    /// Its rate of change [packets/s].
    pub dq: f64,
    /// Arrivals at the mark point, in packets of the length that they have there [packets/s].
    pub offered: f64,
    /// The same in packets of the link's mean length [packets/s].
    pub load: f64,
    /// Packets accepted there, marked or not, in packets of the link's mean length [packets/s].
    pub accepted: f64,
    /// Capacity of the watched queue's link [packets/s].
    pub capacity: f64,
    /// Output of the link [packets/s].
    pub output: f64,
    /// Service of a virtual queue.
    pub service: Service,
    /// Unit of time in the paper's model [s], for equations printed without units.
    pub unit: f64,
    /// Shortest time in which a bounded variable reaches its bound [s].
    pub resolution: f64,
}

impl Inputs {
    /// Returns the inputs that are known before anything is marked.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals { q: self.q, load: self.load, capacity: self.capacity }
    }

    /// Returns the rate of change of a virtual queue of `level` packets with `inflow` and a service rate of up to
    /// `rate` [packets/s].
    #[must_use]
    pub fn virtual_queue(&self, level: f64, inflow: f64, rate: f64) -> f64 {
        self.service.change(level, inflow, rate, self.resolution)
    }

    /// Limits the rate of change `dx` so that `x` stays between `low` and `high`.
    #[must_use]
    pub fn within(&self, x: f64, dx: f64, low: f64, high: f64) -> f64 {
        dx.max((low - x) / self.resolution).min((high - x) / self.resolution)
    }

    /// Returns the share of time in which the link is idle.
    #[must_use]
    pub fn idle(&self) -> f64 {
        if self.capacity > 0.0 { (1.0 - self.output / self.capacity).max(0.0) } else { 0.0 }
    }
}

/// Condition that an algorithm in equilibrium imposes on the rest of the system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Equilibrium {
    /// The watched queue has this length [packets].
    Queue(f64),
    /// The accepted load keeps a virtual queue, served at up to `rate`, at `level`.
    Virtual {
        /// [packets]
        level: f64,
        /// [packets/s]
        rate: f64,
    },
}

/// An algorithm in a fluid model.
pub trait FluidModel: Send + Sync {
    /// Returns the number of state variables, at most [`MAX_STATES`]; 1 by default.
    fn states(&self) -> usize {
        1
    }

    /// Writes the initial values of the state variables; zeros by default.
    fn start(&self, _x: &mut [f64]) {}

    /// Returns the share of packets that is marked, 0 to 1, for the state variables `x`; by default the first of them.
    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[0].clamp(0.0, 1.0)
    }

    /// Writes the derivatives of the state variables `x` [1/s] to `dx`, while the share `p` is marked.
    fn derivatives(&self, x: &[f64], p: f64, inputs: &Inputs, dx: &mut [f64]);

    /// Writes an equilibrium of the state variables to `x`, and returns the condition for it. The equilibria form a
    /// curve from the least to the most marks, along which `share` goes from 0 to 1. The watched queue is served as
    /// `service` says, at up to `capacity` [packets/s]. `None` if there is no equilibrium with marks or none is known.
    fn equilibrium(
        &self,
        _share: f64,
        _capacity: f64,
        _service: Service,
        _x: &mut [f64],
    ) -> Option<Equilibrium> {
        None
    }

    /// Reports the state for tables, under the names and in the units of the algorithm's probes
    /// ([`crate::Aqm::probe`]).
    fn probe(&self, x: &[f64], out: &mut dyn FnMut(&'static str, f64));
}

/// RED's marking function: 0 up to `min_th`, then rising to `max_p` at `max_th`, then 1; with `gentle` a second ramp
/// from `max_p` to 1 at twice `max_th`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    pub min_th: f64,
    pub max_th: f64,
    pub gentle: bool,
}

impl Ramp {
    /// Returns the level from which on all packets are marked.
    pub fn end(&self) -> f64 {
        if self.gentle { 2.0 * self.max_th } else { self.max_th }
    }

    /// Returns the probability at level `x`.
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

/// A virtual queue of limited length that marks packets that do not fit. Marked packets are not added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundedVirtualQueue(pub f64);

impl BoundedVirtualQueue {
    /// Returns the share of `load` that does not fit while `v` packets are served at `rate` [packets/s]: 0 while there
    /// is room, then the excess over the service, `1 - rate / load`, so that the queue stays full. A single packet does
    /// not fit if less than one packet of room is left, so a full queue lacks between zero and one packet, half a
    /// packet on average.
    pub fn mark(self, v: f64, load: f64, rate: f64) -> f64 {
        if self.0 < 1.0 {
            1.0
        } else if v > self.0 - 0.5 && load > rate {
            1.0 - rate / load
        } else {
            0.0
        }
    }

    /// Returns its rate of change [packets/s] while the share `p` of the load is marked.
    pub fn change(self, v: f64, p: f64, rate: f64, inputs: &Inputs) -> f64 {
        inputs.within(v, inputs.virtual_queue(v, (1.0 - p) * inputs.load, rate), 0.0, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels with known service: a load of 0.8 keeps 0.8 / 0.2 = 4 packets in an M/M/1 queue and 0.8 + 0.64 / 0.4 =
    /// 2.4 in an M/D/1 queue (Pollaczek and Khinchine), so these do not change.
    #[test]
    fn queues_are_in_equilibrium_at_their_mean_lengths() {
        assert!(Service::Mm1.change(4.0, 80.0, 100.0, 1e-3).abs() < 1e-12);
        assert!(Service::Md1.change(2.4, 80.0, 100.0, 1e-3).abs() < 1e-12);
        assert_eq!(Service::Full.change(4.0, 80.0, 100.0, 1e-3), -20.0);
    }

    /// An empty queue stays empty under a load below 1, and a hundredth of a packet is served within the resolution of time.
    #[test]
    fn queue_length_does_not_fall_below_zero() {
        for service in [Service::Full, Service::Mm1, Service::Md1] {
            assert!(service.change(0.0, 0.0, 100.0, 1e-3) <= 0.0);
            assert!(service.change(0.0, 0.0, 100.0, 1e-3) >= 0.0);
        }
        assert_eq!(Service::Full.change(0.01, 0.0, 100.0, 1e-3), -10.0);
    }

    #[test]
    fn marking_function_has_reds_ramps() {
        let mut ramp = Ramp { min_th: 60.0, max_th: 120.0, gentle: false };
        for (x, p) in [(0.0, 0.0), (59.9, 0.0), (60.0, 0.0), (90.0, 0.35), (120.0, 1.0), (180.0, 1.0)] {
            assert!((ramp.at(x, 0.7) - p).abs() < 1e-12, "at {x}");
        }
        ramp.gentle = true;
        for (x, p) in [(90.0, 0.35), (120.0, 0.7), (180.0, 0.85), (240.0, 1.0), (1e9, 1.0)] {
            assert!((ramp.at(x, 0.7) - p).abs() < 1e-12, "at {x}");
        }
    }

    /// A model whose state does not change.
    struct Still;

    impl FluidModel for Still {
        fn derivatives(&self, _x: &[f64], _p: f64, _inputs: &Inputs, dx: &mut [f64]) {
            dx.fill(0.0);
        }

        fn probe(&self, _x: &[f64], _out: &mut dyn FnMut(&'static str, f64)) {}
    }

    #[test]
    fn a_model_marks_its_first_state_between_none_and_all_by_default() {
        let arrivals = Arrivals { q: 0.0, load: 0.0, capacity: 1.0 };
        for (x, p) in [(0.3, 0.3), (-0.5, 0.0), (1.5, 1.0)] {
            assert_eq!(Still.mark(&[x, 0.7], &arrivals), p);
        }
    }

    /// Of a load of 100 served at 80 a full queue marks a fifth: from half a packet of room on. One that holds no packet marks
    /// all.
    #[test]
    fn a_bounded_virtual_queue_marks_what_does_not_fit() {
        let queue = BoundedVirtualQueue;
        assert_eq!([0.0, 0.9].map(|limit| queue(limit).mark(0.0, 100.0, 80.0)), [1.0, 1.0]);
        for (v, p) in [(0.0, 0.0), (9.5, 0.0), (9.6, 0.2), (10.0, 0.2)] {
            assert!((queue(10.0).mark(v, 100.0, 80.0) - p).abs() < 1e-12, "at {v}");
        }
        assert_eq!(queue(1.0).mark(0.5, 100.0, 80.0), 0.0);
        assert_eq!([80.0, 70.0].map(|load| queue(10.0).mark(10.0, load, 80.0)), [0.0, 0.0]);
    }
}
