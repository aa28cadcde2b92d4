//! Parameters of the equations, derived from a scenario.

use std::fmt;

use bentpipe_queue::aqm::threshold::ThresholdFluid;
use bentpipe_queue::fluid::{FluidConfig, FluidForm};
use bentpipe_queue::registry::AQMS;
use bentpipe_queue::{FluidModel, Limit, Marking};
use bentpipe_scenario::{
    AqmSpec, Capacity as LinkCapacity, Delay, Direction, Equations, Feedback, FluidVariant, Gateway,
    GatewayQueue, Hop, Pattern, Ramp, Run, Scenario, Subject, Tcp, Traffic, TrafficKind,
};
use bentpipe_units::{Duration, Rng};

use crate::fourier::Series;
use crate::population::{MOST_WINDOW, Rules};

/// An error of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// A scenario that the equations do not cover: key, value found and permitted values.
    Scenario(String),
    /// A delay longer than the history [s].
    Delay {
        /// Delay.
        lag: f64,
        /// Time at which it occurs.
        at: f64,
        /// Length of the history.
        history: f64,
    },
    /// A diverging solution.
    Diverges {
        /// Variable (index).
        variable: usize,
        /// Time at which it is no longer finite [s].
        at: f64,
        /// Step of the integration [s].
        step: f64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(text) => f.write_str(text),
            Self::Delay { lag, at, history } => write!(
                f,
                "model.history: the delay at {at} s is {lag} s, found a history of {history} s; allowed: at least the \
                 longest delay"
            ),
            Self::Diverges { variable, at, step } => write!(
                f,
                "model.step: variable {variable} grows without bound at {at} s, found a step of {step} s; allowed: a \
                 shorter one, unless the parameters themselves allow no bounded solution"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Minimum number of integration steps per round trip: fewer do not resolve the senders' equations.
const STEPS_PER_ROUND_TRIP: f64 = 10.0;

fn wrong<T>(text: String) -> Result<T, Error> {
    Err(Error::Scenario(text))
}

/// Capacity of the watched queue's link [packets/s].
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// Constant.
    Fixed(f64),
    /// Start times [s] and rates; repeated if there is a period.
    Steps(Vec<(f64, f64)>, Option<f64>),
    /// Rates of equal duration [s]; the last one stays.
    Drawn(Vec<f64>, f64),
}

impl Capacity {
    /// Returns the capacity at `t` [s].
    #[must_use]
    pub fn at(&self, t: f64) -> f64 {
        match self {
            Self::Fixed(rate) => *rate,
            Self::Steps(steps, period) => {
                let t = period.map_or(t, |p| t - p * (t / p).floor());
                let after = steps.partition_point(|step| step.0 <= t);
                steps[after.saturating_sub(1)].1
            }
            Self::Drawn(rates, every) => rates[((t / every) as usize).min(rates.len() - 1)],
        }
    }

    /// Returns the mean over the period; without a period over all steps, where the last lasts as long as the others on
    /// average.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (steps, period) = match self {
            Self::Fixed(rate) => return *rate,
            Self::Drawn(rates, _) => return rates.iter().sum::<f64>() / rates.len() as f64,
            Self::Steps(steps, period) => (steps, period),
        };
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return f64::NAN };
        if steps.len() == 1 {
            return last.1;
        }
        let end = period.unwrap_or(last.0 + (last.0 - first.0) / (steps.len() - 1) as f64);
        let times = steps.iter().skip(1).map(|step| step.0).chain([end]);
        let sum: f64 = steps.iter().zip(times).map(|((from, rate), to)| rate * (to - from)).sum();
        sum / (end - first.0)
    }
}

/// Parameters of the equations. Rates are in packets/s, times in s.
pub struct System {
    /// Equations.
    pub equations: Equations,
    /// Delay of the senders' feedback.
    pub feedback: Feedback,
    /// Fluid model of the AQM.
    pub law: Box<dyn FluidModel>,
    /// m: number of long-lived TCP connections, or of sessions without think time, once all have started.
    pub connections: f64,
    /// Ramps of connection starts.
    pub ramps: Vec<(f64, Option<Ramp>)>,
    /// TCP parameters, with the equations `timeouts`.
    pub(crate) rules: Option<Rules>,
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
    /// Datagrams at the mark point, which do not react to marks.
    pub background: f64,
    /// True if a mark drops the packet.
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
    /// Derives the parameters from a scenario with its subject's AQM. `seed` seeds a random capacity.
    ///
    /// # Errors
    /// [`Error::Scenario`] for a scenario that the equations do not cover.
    pub fn of(scenario: &Scenario, seed: u64) -> Result<Self, Error> {
        let found = Found::of(scenario)?;
        let models = &scenario.models;
        let equations = models.equations.unwrap_or(match found.gateway {
            Some(_) if found.marking == Marking::Window => Equations::NewConnections,
            Some(_) => Equations::Gateway,
            None => Equations::EndToEnd,
        });
        let series = models.series.as_ref().map(Result::as_ref).transpose();
        let series = series.map_err(|e| Error::Scenario(e.to_string()))?;
        let measured = |of: &bentpipe_scenario::Fourier, period| Series::new(of.clone(), period);
        match (equations, found.gateway) {
            (Equations::Gateway | Equations::NewConnections | Equations::Timeouts, None) => {
                return wrong(format!(
                    "model.equations: found {}, but the subject is a link; allowed: single_queue, end_to_end",
                    name(equations)
                ));
            }
            (Equations::SingleQueue | Equations::EndToEnd, Some(g)) if !g.pep.split.is_empty() => {
                return wrong(format!(
                    "model.equations: found {}, but the gateway's PEP splits the connections; allowed: gateway, \
                     timeouts, new_connections, or pep.split = []",
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
        let senders = Senders::of(scenario, &found)?;
        // In whole nanoseconds, as in a file.
        let longest = (1e9 * senders.round_trip / STEPS_PER_ROUND_TRIP).floor() / 1e9;
        let step = models.step.as_secs_f64();
        if step > longest {
            return wrong(format!(
                "model.step: found {step} s; allowed: at most {longest} s, a tenth of the senders' round trip"
            ));
        }
        let rules = match equations {
            Equations::Timeouts => Some(senders.rules(found.marking)?),
            _ => None,
        };
        let packet = found.gateway.map_or(senders.segment, |g| g.spacelink.packet as f64);
        let packets_per_segment =
            found.gateway.map_or(1.0, |g| senders.payload / (g.spacelink.packet - g.spacelink.header) as f64);
        let reading = match (models.laws, equations) {
            (Some(FluidVariant::Printed), _) => FluidForm::Printed,
            (Some(FluidVariant::Actual), _) | (None, Equations::EndToEnd) => FluidForm::Actual,
            (None, _) => FluidForm::Printed,
        };
        let limit = f64::from(found.limit.packets).min(found.limit.bytes as f64 / packet);
        let law = law(found.aqm, &FluidConfig { packet, limit, form: reading })?;
        let tick = found.gateway.and_then(|g| g.regulator.tick).unwrap_or(Duration::ZERO);
        let mean_delay = found.gateway.map_or(0.0, |g| g.pep.delay.as_secs_f64() + 0.5 * tick.as_secs_f64());
        if equations == Equations::EndToEnd && models.feedback == Some(Feedback::None) {
            return wrong(
                "model.feedback: found none, but the round trip is part of the equations end_to_end; allowed: round_trip"
                    .to_owned(),
            );
        }
        Ok(Self {
            equations,
            feedback: models.feedback.unwrap_or(match equations {
                Equations::Timeouts => Feedback::RoundTrip,
                _ => Feedback::None,
            }),
            law,
            connections: senders.connections,
            ramps: senders.ramps,
            rules,
            replaced: senders.replaced,
            round_trip: senders.round_trip,
            capacity: found.capacity(scenario, packet, seed)?,
            packets_per_segment,
            packet,
            segment: senders.segment,
            limit,
            window: senders.window,
            initial_window: senders.initial_window,
            background: senders.background,
            drops: found.marking == Marking::Drop,
            decrease: found.decrease,
            pep_delay: series
                .map_or_else(|| Series::constant(mean_delay), |s| measured(&s.pep_delay, s.period)),
            load_ratio: series.map_or_else(|| Series::constant(1.0), |s| measured(&s.load_ratio, s.period)),
            new_connections,
            unit: models.time_unit.as_secs_f64(),
            step: models.step.as_secs_f64(),
            history: models.history.as_secs_f64(),
        })
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
    }
}

fn law(aqm: &AqmSpec, given: &FluidConfig) -> Result<Box<dyn FluidModel>, Error> {
    let algorithm = aqm.algorithm;
    let with: Vec<_> = AQMS.iter().filter(|a| a.fluid.is_some()).map(|a| a.name).collect();
    if !aqm.outside.is_empty() {
        return wrong(format!(
            "aqm: found {}, written in Python; allowed in a fluid model: {}",
            aqm.label,
            with.join(", ")
        ));
    }
    let Some(law) = algorithm.fluid else {
        return wrong(format!(
            "aqm.algorithm: found {}; allowed in a fluid model: {}",
            algorithm.name,
            with.join(", ")
        ));
    };
    let law =
        law(&aqm.values, given).map_err(|e| Error::Scenario(format!("aqm.{}: {}", e.name, e.problem)))?;
    let Some(threshold) = &aqm.threshold else { return Ok(law) };
    match threshold.constant() {
        Some(th) => Ok(Box::new(ThresholdFluid::new(law, th, given))),
        None => wrong(
            "aqm.threshold: found one that changes; allowed in a fluid model: one that does not".to_owned(),
        ),
    }
}

/// The subject's queue.
struct Found<'a> {
    gateway: Option<&'a Gateway>,
    /// Link behind the queue or gateway.
    link: usize,
    aqm: &'a AqmSpec,
    marking: Marking,
    decrease: f64,
    limit: Limit,
}

impl<'a> Found<'a> {
    fn of(scenario: &'a Scenario) -> Result<Self, Error> {
        match scenario.subject {
            Subject::Gateway(i) => {
                let gateway = &scenario.gateways[i];
                let scheduler = gateway.transmit_queue.scheduler.discipline;
                if scheduler.signals {
                    return wrong(format!(
                        "transmit_queue.scheduler: found {}, which signals congestion itself; allowed in a fluid model: \
                         one that does not",
                        scheduler.name
                    ));
                }
                if !gateway.aqm.is_none()
                    && (gateway.watch, gateway.mark) != (GatewayQueue::Transmit, GatewayQueue::Receive)
                {
                    let name = |place| if place == GatewayQueue::Receive { "receive" } else { "transmit" };
                    return wrong(format!(
                        "gateway: found watch = {} and mark = {}; allowed in a fluid model: an AQM that watches the \
                         transmit queue and marks at the receive queue",
                        name(gateway.watch),
                        name(gateway.mark)
                    ));
                }
                let marking = gateway.marking.method.marking;
                let decrease =
                    if marking == Marking::Window { gateway.marking.values.number("decr") } else { 0.5 };
                let (link, limit) = (gateway.link, gateway.transmit_queue.limit);
                Ok(Self { gateway: Some(gateway), link, aqm: &gateway.aqm, marking, decrease, limit })
            }
            Subject::Link(link) => {
                let Some(queue) = &scenario.links[link].forward.queue else {
                    let problem = "found no queue; allowed in a fluid model: one with a limit or an AQM";
                    return wrong(format!("link.{}: {problem}", scenario.links[link].name));
                };
                if queue.scheduler.discipline.signals {
                    return wrong(format!(
                        "queue.scheduler: found {}, which signals congestion itself; allowed in a fluid model: one that \
                         does not",
                        queue.scheduler.discipline.name
                    ));
                }
                Ok(Self {
                    gateway: None,
                    link,
                    aqm: &queue.aqm,
                    marking: queue.marking,
                    decrease: 0.5,
                    limit: queue.limit,
                })
            }
        }
    }

    fn capacity(&self, scenario: &Scenario, packet: f64, seed: u64) -> Result<Capacity, Error> {
        let link = &scenario.links[self.link];
        let per = |bps: u64| bps as f64 / (8.0 * packet);
        let rate = match self.gateway {
            Some(g) if !g.regulator.follows_link => Some(g.regulator.rate),
            Some(g) if g.link_forward => {
                return changing(&link.forward, &link.name, &per, (&scenario.run, seed));
            }
            Some(_) => return changing(&link.reverse, &link.name, &per, (&scenario.run, seed)),
            None => link.forward.rate.filter(|_| link.forward.capacity.is_none()),
        };
        match rate {
            Some(rate) => Ok(Capacity::Fixed(per(rate.as_bps()))),
            None => changing(&link.forward, &link.name, &per, (&scenario.run, seed)),
        }
    }
}

fn changing(
    direction: &Direction,
    link: &str,
    per: &dyn Fn(u64) -> f64,
    (run, seed): (&Run, u64),
) -> Result<Capacity, Error> {
    match (&direction.capacity, direction.rate) {
        (None, Some(rate)) => Ok(Capacity::Fixed(per(rate.as_bps()))),
        (Some(LinkCapacity::Steps(steps)), _) => {
            let at =
                |(time, rate): &(Duration, bentpipe_units::Rate)| (time.as_secs_f64(), per(rate.as_bps()));
            Ok(Capacity::Steps(steps.steps.iter().map(at).collect(), steps.repeat.map(|r| r.as_secs_f64())))
        }
        (Some(LinkCapacity::Drawn(drawn)), _) => {
            let every = drawn.every.as_secs_f64();
            let count = ((run.warmup.as_secs_f64() + run.duration.as_secs_f64()) / every).ceil() as usize + 1;
            let mut rng = Rng::stream(seed, "model", 0, "capacity");
            let (low, high) = (per(drawn.uniform.0.as_bps()), per(drawn.uniform.1.as_bps()));
            Ok(Capacity::Drawn((0..count).map(|_| rng.uniform_in(low, high)).collect(), every))
        }
        (Some(_), _) => wrong(format!(
            "link.{link}.capacity: found a kind that the fluid model does not follow; allowed: a rate, steps, or one \
             that is drawn anew"
        )),
        (None, None) => wrong(format!(
            "link.{link}.rate: found none; allowed in a fluid model: a rate, for the queue to form behind"
        )),
    }
}

/// Aggregate of all senders.
struct Senders {
    connections: f64,
    ramps: Vec<(f64, Option<Ramp>)>,
    /// Share replaced by new connections [1/s]; a number of connections until all are added.
    replaced: f64,
    round_trip: f64,
    /// Mean length of a segment on the wire [bytes].
    segment: f64,
    /// Mean payload of a segment [bytes].
    payload: f64,
    window: f64,
    initial_window: f64,
    /// Segments per ACK.
    per_ack: f64,
    /// Share with limited transmit.
    limited: f64,
    /// Minimum and maximum retransmission timeout [s].
    timeout: f64,
    longest: f64,
    /// First transport that the equations `timeouts` do not cover, and the reason.
    unruly: Option<(String, &'static str)>,
    /// Datagrams at the mark point [packets/s].
    background: f64,
}

impl Senders {
    fn of(scenario: &Scenario, found: &Found<'_>) -> Result<Self, Error> {
        let mut sum = Self {
            connections: 0.0,
            ramps: Vec::new(),
            replaced: 0.0,
            round_trip: 0.0,
            segment: 0.0,
            payload: 0.0,
            window: 0.0,
            initial_window: 0.0,
            per_ack: 0.0,
            limited: 0.0,
            timeout: 0.0,
            longest: 0.0,
            unruly: None,
            background: 0.0,
        };
        for traffic in &scenario.traffic {
            let Some(at) = traffic.route.iter().position(|hop| hop.link == found.link) else { continue };
            let tcp = traffic.kind.transport().and_then(|i| scenario.transports[i].tcp());
            let (count, ramp) = match &traffic.kind {
                TrafficKind::Pages(pages) => {
                    let side_by_side = match pages.connection_per {
                        bentpipe_scenario::ConnectionPer::Page => 1,
                        bentpipe_scenario::ConnectionPer::Object => pages.objects_per_page,
                    };
                    (f64::from(pages.sessions) * f64::from(side_by_side), pages.ramp)
                }
                TrafficKind::Bulk(bulk) => {
                    let lifetime =
                        bulk.lifetime.as_ref().map_or(f64::INFINITY, |law| law.mean().as_secs_f64());
                    sum.replaced += f64::from(bulk.flows) / lifetime;
                    (f64::from(bulk.flows), bulk.ramp)
                }
                TrafficKind::Packets(packets) if packets.transport.is_none() => {
                    sum.background += f64::from(packets.flows) * mean_rate(&traffic.name, &packets.pattern)?;
                    continue;
                }
                _ => return not_fluid(traffic, "short transfers, or a source behind a transport"),
            };
            let Some(tcp) = tcp else { return not_fluid(traffic, "a transport other than TCP") };
            let split = found.gateway.is_some_and(|g| !g.pep.split.is_empty());
            let way = if split { &traffic.route[..at] } else { &traffic.route[..] };
            if sum.unruly.is_none() {
                sum.unruly = unruly(tcp).map(|what| (tcp.name.clone(), what));
            }
            sum.add(count, ramp, tcp, way.iter().map(|hop| both_ways(scenario, *hop)).sum());
        }
        if sum.connections == 0.0 {
            return wrong(
                "traffic: found no long-lived TCP through the subject's queue; allowed in a fluid model: kinds pages and \
                 bulk, with datagrams beside them"
                    .to_owned(),
            );
        }
        sum.replaced /= sum.connections;
        if sum.round_trip <= 0.0 {
            return wrong("link: found no delay on the way of the senders; allowed in a fluid model: a round trip above 0 s".to_owned());
        }
        Ok(sum)
    }

    /// Returns the TCP parameters of all senders.
    fn rules(&self, marking: Marking) -> Result<Rules, Error> {
        let of = "the equations timeouts";
        if marking != Marking::Drop {
            let found = "marks that do not drop";
            return wrong(format!("gateway.marking: found {found}; allowed with {of}: \"drop\""));
        }
        if let Some((name, what)) = &self.unruly {
            return wrong(format!(
                "transport.{name}: found {what}; allowed with {of}: newreno with sack = false and go_back_n = true"
            ));
        }
        let window = self.window.floor();
        if !(2.0..=MOST_WINDOW as f64).contains(&window) {
            return wrong(format!(
                "transport.receive_window: found {} segments in the mean; allowed with {of}: from 2 to {MOST_WINDOW}",
                self.window
            ));
        }
        Ok(Rules {
            window: window as usize,
            initial_window: self.initial_window,
            segments_per_ack: self.per_ack,
            limited_transmit: self.limited,
            round_trip: self.round_trip,
            timeout: self.timeout,
            longest: self.longest,
        })
    }

    /// Adds `count` connections and updates the means.
    fn add(&mut self, count: f64, ramp: Option<Ramp>, tcp: &Tcp, round_trip: f64) {
        let (old, new) = (self.connections, self.connections + count);
        let mean = |of: &mut f64, x: f64| *of = (*of * old + x * count) / new;
        mean(&mut self.round_trip, round_trip);
        mean(&mut self.segment, tcp.full_segment() as f64);
        mean(&mut self.payload, tcp.mss as f64);
        let window = tcp.receive_window.min(tcp.max_window.unwrap_or(u64::MAX));
        mean(&mut self.window, window as f64 / tcp.mss as f64);
        mean(&mut self.initial_window, f64::from(tcp.initial_window));
        mean(&mut self.per_ack, if tcp.delayed_ack.is_some() { 2.0 } else { 1.0 });
        mean(&mut self.limited, f64::from(tcp.limited_transmit));
        mean(&mut self.timeout, tcp.min_rto.as_secs_f64());
        mean(&mut self.longest, tcp.max_rto.as_secs_f64());
        self.connections = new;
        self.ramps.push((count, ramp));
    }
}

/// Describes the property of a transport that the equations `timeouts` do not cover.
fn unruly(tcp: &Tcp) -> Option<&'static str> {
    if tcp.algorithm != bentpipe_scenario::Congestion::NewReno {
        Some("another algorithm")
    } else if tcp.sack {
        Some("sack = true")
    } else if !tcp.go_back_n {
        Some("go_back_n = false")
    } else {
        None
    }
}

fn not_fluid<T>(traffic: &Traffic, what: &str) -> Result<T, Error> {
    wrong(format!(
        "traffic.{}: found {what}; allowed in a fluid model: TCP that always has something to send (kinds pages and \
         bulk), and datagrams (cbr, poisson, on_off)",
        traffic.name
    ))
}

/// Mean rate of a source of datagrams [packets/s].
fn mean_rate(name: &str, pattern: &Pattern) -> Result<f64, Error> {
    let share = match pattern {
        Pattern::Cbr { .. } | Pattern::Poisson { .. } => 1.0,
        Pattern::OnOff { on, off, .. } => {
            let (on, off) = (on.mean().as_secs_f64(), off.mean().as_secs_f64());
            on / (on + off)
        }
        _ => {
            return wrong(format!(
                "traffic.{name}.kind: found {}; allowed for datagrams in a fluid model: cbr, poisson, on_off",
                pattern.name()
            ));
        }
    };
    Ok(share * pattern.nominal_rate().bytes_per_sec() / pattern.typical_packet())
}

/// Mean round-trip delay of a link [s].
fn both_ways(scenario: &Scenario, hop: Hop) -> f64 {
    let link = &scenario.links[hop.link];
    mean_delay(&link.forward.delay) + mean_delay(&link.reverse.delay)
}

fn mean_delay(delay: &Delay) -> f64 {
    delay.fixed.as_secs_f64() + delay.jitter.mean().as_secs_f64()
}

#[cfg(test)]
pub(crate) mod tests {
    use bentpipe_queue::{Link, Value, Values};
    use bentpipe_units::Rate;

    use super::*;

    /// Fluid model of an algorithm on a link of `capacity` [packets/s] with packets of 1000 bytes.
    pub fn law(name: &str, capacity: f64, given: &[(&str, f64)]) -> Box<dyn FluidModel> {
        let algorithm = AQMS.iter().find(|a| a.name == name).unwrap();
        let link = Link { capacity: Rate::from_bps((8000.0 * capacity) as u64), mean_packet: 1000.0 };
        let value = |name: &str| given.iter().find(|(of, _)| *of == name).map(|(_, x)| Value::Number(*x));
        let values = Values::resolve(algorithm.params, &link, &value).unwrap();
        let given = FluidConfig { packet: 1000.0, limit: 1e9, form: FluidForm::Printed };
        algorithm.fluid.unwrap()(&values, &given).unwrap()
    }

    /// System of `connections` with a round-trip time of `round_trip` [s] in front of a link of `capacity` [packets/s];
    /// marks drop nothing.
    pub fn plain(
        equations: Equations,
        law: Box<dyn FluidModel>,
        connections: f64,
        round_trip: f64,
        capacity: f64,
    ) -> System {
        System {
            equations,
            feedback: Feedback::None,
            law,
            connections,
            ramps: vec![(connections, None)],
            rules: None,
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
