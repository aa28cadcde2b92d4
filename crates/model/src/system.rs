//! Parameters of the equations, derived from a scenario.

use bentpipe_queue::aqm::threshold::ThresholdFluid;
use bentpipe_queue::fluid::{FluidConfig, FluidVariant};
use bentpipe_queue::registry::AQMS;
use bentpipe_queue::{FluidModel, Marking};
use bentpipe_scenario::{self as scenario_model, AqmSpec, Equations, Feedback, Fourier, Ramp, Scenario};
use bentpipe_units::Duration;

use crate::capacity::Capacity;
use crate::error::{Error, wrong};
use crate::fourier::Series;
use crate::padhye::Padhye;
use crate::population::Rules;
use crate::senders::Senders;
use crate::watched_queue::WatchedQueue;

/// Minimum number of integration steps per round trip: fewer do not resolve the senders' equations.
const STEPS_PER_ROUND_TRIP: f64 = 10.0;

/// Parameters of the equations. Rates are in packets/s, times in s.
pub struct System {
    /// Equations.
    pub equations: Equations,
    /// Delay of the senders' feedback.
    pub feedback: Feedback,
    /// Fluid model of the AQM.
    pub aqm: Box<dyn FluidModel>,
    /// m: number of long-lived TCP connections, or of sessions without think time, once all have started.
    pub connections: f64,
    /// Ramps of connection starts.
    pub ramps: Vec<(f64, Option<Ramp>)>,
    /// TCP parameters, with the equations `timeouts`.
    pub(crate) rules: Option<Rules>,
    /// TCP parameters, with the equations `padhye`.
    pub(crate) padhye: Option<Padhye>,
    /// True if a PEP ends the senders' connections ahead of the queue.
    pub(crate) split: bool,
    /// Share of connections replaced by new ones [1/s].
    pub replaced: f64,
    /// R: mean round-trip time of a sender without queueing delay [s]; with a PEP, to the PEP and back.
    pub round_trip: f64,
    /// μ: capacity of the link.
    pub capacity: Capacity,
    /// Packets on the link per segment: one, unless a spacelink splits segments differently.
    pub packets_per_segment: f64,
    /// Length of a packet on the link [bytes].
    pub packet: f64,
    /// Length of a segment at the mark point [bytes].
    pub segment: f64,
    /// Capacity of the watched queue [packets].
    pub limit: f64,
    /// MaxRcvWin: receive window [segments].
    pub window: f64,
    /// Initial window [segments].
    pub initial_window: f64,
    /// Datagrams at the mark point, which do not react to marks [bytes/s].
    pub background: f64,
    /// True if a mark drops the packet of a sender; it drops a datagram in any case.
    pub drops: bool,
    /// Factor of a window decrease: a half, or `decr` if marks cut advertised windows.
    pub decrease: f64,
    /// d(t): delay from the receive queue to the transmit queue [s].
    pub pep_delay: Series,
    /// ω(t): load ratio.
    pub load_ratio: Series,
    /// υ(t): share of new connections.
    pub new_connections: Option<Series>,
    /// Unit of time of the paper [s].
    pub unit: f64,
    /// Step of the integration [s].
    pub step: f64,
    /// Length of the history [s].
    pub history: f64,
}

impl System {
    /// Returns true if the queue is on the senders' path.
    pub(crate) fn is_on_path(&self) -> bool {
        is_on_path(self.equations, self.split)
    }

    /// Derives the parameters from a scenario with its subject's AQM. `seed` seeds a random capacity.
    ///
    /// # Errors
    /// [`Error::Scenario`] for a scenario that the equations do not cover.
    pub fn of(scenario: &Scenario, seed: u64) -> Result<Self, Error> {
        let queue = WatchedQueue::of(scenario)?;
        let models = &scenario.models;
        let split = queue.gateway.is_some_and(|g| !g.pep.split.is_empty());
        let equations = models.equations.unwrap_or(match queue.gateway {
            Some(_) if queue.marking == Marking::Window => Equations::NewConnections,
            Some(_) if split => Equations::Gateway,
            _ => Equations::EndToEnd,
        });
        let series = models.series.as_ref().map(Result::as_ref).transpose();
        let series = series.map_err(|e| Error::Scenario(e.to_string()))?;
        let measured = |of: &Fourier, period| Series::new(of.clone(), period);
        match (equations, queue.gateway) {
            (Equations::Gateway | Equations::NewConnections | Equations::Timeouts, None) => {
                return wrong(format!(
                    "model.equations: found {}, but the subject is a link; allowed: single_queue, end_to_end, padhye",
                    name(equations)
                ));
            }
            (Equations::Gateway | Equations::NewConnections | Equations::Timeouts, Some(_)) if !split => {
                return wrong(format!(
                    "model.equations: found {}, but the gateway's PEP splits no connections; allowed: single_queue, \
                     end_to_end, padhye, or pep.split = [\"tcp\"]",
                    name(equations)
                ));
            }
            (Equations::SingleQueue | Equations::EndToEnd, Some(_)) if split => {
                return wrong(format!(
                    "model.equations: found {}, but the gateway's PEP splits the connections; allowed: gateway, \
                     timeouts, padhye, new_connections, or pep.split = []",
                    name(equations)
                ));
            }
            _ => {}
        }
        let new_connections =
            series.and_then(|s| s.new_connections.as_ref().map(|of| measured(of, s.period)));
        if equations == Equations::NewConnections && new_connections.is_none() {
            return wrong(
                "model.series: found none with the share of new connections, which the equations new_connections are \
                 driven by; allowed: a file of `bentpipe model capture`"
                    .to_owned(),
            );
        }
        queue.check_link(scenario)?;
        let senders = Senders::of(scenario, &queue)?;
        let marking = senders.effect(queue.marking)?;
        let tick = queue.gateway.and_then(|g| g.regulator.tick).unwrap_or(Duration::ZERO);
        let mean_delay = queue.gateway.map_or(0.0, |g| g.pep.delay.as_secs_f64() + 0.5 * tick.as_secs_f64());
        let pep_delay =
            series.map_or_else(|| Series::constant(mean_delay), |s| measured(&s.pep_delay, s.period));
        // Packets of connections that are not split are processed, too.
        let round_trip = senders.round_trip + if split { 0.0 } else { pep_delay.mean().max(0.0) };
        // In whole nanoseconds, as in a file.
        let longest = (1e9 * round_trip / STEPS_PER_ROUND_TRIP).floor() / 1e9;
        let step = models.step.as_secs_f64();
        if step > longest {
            return wrong(format!(
                "model.step: found {step} s; allowed: at most {longest} s, a tenth of the senders' round trip"
            ));
        }
        let rules = match equations {
            Equations::Timeouts => Some(senders.rules(marking)?),
            _ => None,
        };
        let padhye = match equations {
            Equations::Padhye => Some(senders.padhye(marking)?),
            _ => None,
        };
        let on_path = is_on_path(equations, split);
        // The spacelink packs anew the data of connections that the PEP splits; other segments it only lengthens.
        let (segment, packet, packets_per_segment) = match queue.gateway.map(|g| &g.spacelink) {
            Some(link) if split => {
                let payload = (link.packet - link.header) as f64;
                (senders.segment, link.packet as f64, senders.payload / payload)
            }
            link => {
                let segment = senders.segment + link.and_then(|l| l.datagram_header).map_or(0.0, f64::from);
                (segment, segment, 1.0)
            }
        };
        let variant = match (models.fluid_variant, equations) {
            (Some(scenario_model::FluidVariant::Printed), _) => FluidVariant::Printed,
            (Some(scenario_model::FluidVariant::Actual), _) => FluidVariant::Actual,
            (None, _) if on_path => FluidVariant::Actual,
            (None, _) => FluidVariant::Printed,
        };
        let limit = f64::from(queue.limit.packets).min(queue.limit.bytes as f64 / packet);
        let aqm = fluid_model(queue.aqm, &FluidConfig { packet, limit, variant })?;
        if on_path && models.feedback == Some(Feedback::None) {
            return wrong(format!(
                "model.feedback: found none, but the round trip is part of the equations {}{}; allowed: round_trip",
                name(equations),
                if equations == Equations::Padhye { " without a PEP" } else { "" }
            ));
        }
        let capacity = queue.capacity(scenario, packet, seed)?;
        senders.check_caps(8.0 * packet * capacity.mean())?;
        let end = scenario.run.warmup.as_secs_f64() + scenario.run.duration.as_secs_f64();
        if let Some(at) = capacity.outage(end).filter(|_| on_path) {
            return wrong(format!(
                "link.{}.capacity: found a rate of 0 bps at {at} s, which makes the round trip of the equations {} \
                 infinite; allowed: rates above 0 bps, or bentpipe compare, which simulates outages",
                scenario.links[queue.link].name,
                name(equations)
            ));
        }
        Ok(Self {
            equations,
            feedback: models.feedback.unwrap_or(match equations {
                Equations::Timeouts | Equations::Padhye => Feedback::RoundTrip,
                _ => Feedback::None,
            }),
            aqm,
            connections: senders.connections,
            ramps: senders.ramps,
            rules,
            padhye,
            split,
            replaced: senders.replaced,
            round_trip,
            capacity,
            packets_per_segment,
            packet,
            segment,
            limit,
            window: senders.window,
            initial_window: senders.initial_window,
            background: senders.background,
            drops: marking == Marking::Drop,
            decrease: queue.decrease,
            pep_delay,
            load_ratio: series.map_or_else(|| Series::constant(1.0), |s| measured(&s.load_ratio, s.period)),
            new_connections,
            unit: models.time_unit.as_secs_f64(),
            step: models.step.as_secs_f64(),
            history: models.history.as_secs_f64(),
        })
    }
}

/// Returns true if the queue is on the senders' path, so that the round trip includes its delay and is part of the equations.
const fn is_on_path(equations: Equations, split: bool) -> bool {
    match equations {
        Equations::EndToEnd => true,
        Equations::Padhye => !split,
        _ => false,
    }
}

/// Name of equations in a scenario file.
pub(crate) fn name(equations: Equations) -> &'static str {
    match equations {
        Equations::Gateway => "gateway",
        Equations::Timeouts => "timeouts",
        Equations::NewConnections => "new_connections",
        Equations::SingleQueue => "single_queue",
        Equations::EndToEnd => "end_to_end",
        Equations::Padhye => "padhye",
    }
}

/// Returns the fluid model of `aqm`.
fn fluid_model(aqm: &AqmSpec, given: &FluidConfig) -> Result<Box<dyn FluidModel>, Error> {
    let algorithm = aqm.algorithm;
    let with: Vec<_> = AQMS.iter().filter(|a| a.fluid.is_some()).map(|a| a.name).collect();
    if !aqm.outside.is_empty() {
        return wrong(format!(
            "aqm: found {}, written in Python; allowed in a fluid model: {}",
            aqm.label,
            with.join(", ")
        ));
    }
    let Some(fluid) = algorithm.fluid else {
        return wrong(format!(
            "aqm.algorithm: found {}; allowed in a fluid model: {}",
            algorithm.name,
            with.join(", ")
        ));
    };
    let model =
        fluid(&aqm.values, given).map_err(|e| Error::Scenario(format!("aqm.{}: {}", e.name, e.problem)))?;
    let Some(threshold) = &aqm.threshold else { return Ok(model) };
    match threshold.constant() {
        Some(th) => Ok(Box::new(ThresholdFluid::new(model, th, given))),
        None => wrong(
            "aqm.threshold: found one that changes; allowed in a fluid model: one that does not".to_owned(),
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bentpipe_queue::{Link, Value, Values};
    use bentpipe_units::Rate;

    use super::*;

    /// Fluid model of an algorithm on a link of `capacity` [packets/s] with packets of 1000 bytes.
    pub fn aqm(name: &str, capacity: f64, given: &[(&str, f64)]) -> Box<dyn FluidModel> {
        let algorithm = AQMS.iter().find(|a| a.name == name).unwrap();
        let link = Link { capacity: Rate::from_bps((8000.0 * capacity) as u64), mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(of, _)| *of == name).map(|(_, x)| Value::Number(*x));
        let values = Values::resolve(algorithm.params, &link, &value).unwrap();
        let given = FluidConfig { packet: 1000.0, limit: 1e9, variant: FluidVariant::Printed };
        algorithm.fluid.unwrap()(&values, &given).unwrap()
    }

    /// System of `connections` with a round-trip time of `round_trip` [s] in front of a link of `capacity` [packets/s];
    /// marks drop nothing.
    pub fn plain(
        equations: Equations,
        aqm: Box<dyn FluidModel>,
        connections: f64,
        round_trip: f64,
        capacity: f64,
    ) -> System {
        System {
            equations,
            feedback: Feedback::None,
            aqm,
            connections,
            ramps: vec![(connections, None)],
            rules: None,
            padhye: None,
            split: false,
            replaced: 0.0,
            round_trip,
            capacity: Capacity::Fixed(capacity),
            packets_per_segment: 1.0,
            packet: 1000.0,
            segment: 1000.0,
            limit: 1e9,
            window: 1e9,
            initial_window: 2.0,
            background: 0.0,
            drops: false,
            decrease: 0.5,
            pep_delay: Series::constant(0.0),
            load_ratio: Series::constant(1.0),
            new_connections: None,
            unit: 0.1,
            step: 0.001,
            history: 10.0,
        }
    }
}
