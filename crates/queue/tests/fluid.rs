//! Every fluid model compared with its algorithm, packet by packet.
//!
//! Algorithm and model get the same inputs: packets at a steady rate, and a watched queue of given length behind a busy
//! link; or light traffic that never waits. The mean of several runs of the algorithm has to match the model, solved
//! with Euler's method, within five standard errors plus an allowance for effects that a fluid does not have: packets
//! and intervals.

use bentpipe_queue::aqm::threshold::{Threshold, ThresholdFluid};
use bentpipe_queue::descriptor::Algorithm;
use bentpipe_queue::fluid::{Arrivals, FluidConfig, FluidVariant, Inputs, MAX_STATES, Service};
use bentpipe_queue::registry::AQMS;
use bentpipe_queue::{
    Aqm, Context, FlowId, FluidModel, Limit, Link, Packet, QueueState, Value, Values, Verdict,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};

const CAPACITY: Rate = Rate::from_bps(20_000_000);
/// Length of a packet [bytes].
const PACKET: u32 = 1000;
/// Capacity of the link [packets/s].
const MU: f64 = 2500.0;
/// Limit of the queue [packets].
const LIMIT: u32 = 1000;
/// Length of a window of comparison [s].
const WINDOW: f64 = 0.5;
const WINDOWS: usize = 8;
const MIDDLE: f64 = 2.0;
const RUNS: u64 = 8;

/// Inputs of algorithm and model.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Offered load as a share of the capacity.
    load: f64,
    /// Queue after the first window, in which it fills [s of the link's time].
    from: f64,
    /// Queue at the end; with 0 nothing ever waits.
    to: f64,
    /// Load from the middle on; the queue drains in a window, and after that nothing waits.
    then: Option<f64>,
    /// True if a mark drops the packet.
    drops: bool,
}

impl Point {
    fn all() -> Vec<Self> {
        let shown = [
            (0.6, 0.0, 0.0),
            (0.8, 0.01, 0.01),
            (1.3, 0.02, 0.02),
            (0.8, 0.044, 0.044),
            (1.3, 0.044, 0.044),
            (1.6, 0.06, 0.06),
            (0.8, 0.1, 0.1),
            (1.3, 0.1, 0.1),
            (1.3, 0.01, 0.15),
            (0.7, 0.15, 0.01),
        ];
        let point = |(load, from, to), drops| Self { load, from, to, then: None, drops };
        let steady = shown.iter().flat_map(|x| [point(*x, false), point(*x, true)]);
        // Up and down again: while a variable is 0 its decrease cannot be observed.
        let change = [(1.4, 0.1, 0.5), (1.6, 0.05, 0.6)];
        let changing = change.map(|(load, q, then)| Self { then: Some(then), ..point((load, q, q), true) });
        steady.chain(changing).collect()
    }

    /// Arrival rate at `t` [packets/s].
    fn arrives(&self, t: f64) -> f64 {
        MU * if t < MIDDLE { self.load } else { self.then.unwrap_or(self.load) }
    }

    /// True if packets wait at `t`.
    fn waits(&self, t: f64) -> bool {
        self.to > 0.0 && (self.then.is_none() || t < MIDDLE + WINDOW)
    }

    /// Queue at `t` [packets] and its rate of change [packets/s].
    fn queue(&self, t: f64) -> (f64, f64) {
        if self.then.is_some() && t >= MIDDLE {
            let drains = if self.waits(t) { self.to * MU / WINDOW } else { 0.0 };
            return (drains * (MIDDLE + WINDOW - t), -drains);
        }
        let (before, since) = (t.min(WINDOW), (t - WINDOW).max(0.0));
        let fills = self.from * MU / WINDOW;
        let growth = (self.to - self.from) * MU / (WINDOW * (WINDOWS - 1) as f64);
        (fills * before + growth * since, if since > 0.0 { growth } else { fills })
    }
}

/// Share of packets marked in each window, and mean of each probe.
struct Course {
    marked: [f64; WINDOWS],
    probes: Vec<(&'static str, [f64; WINDOWS])>,
}

/// An algorithm in a test case: name, parameters that differ from the defaults, and threshold.
struct Case {
    algorithm: &'static Algorithm,
    given: &'static [(&'static str, Value)],
    threshold: Option<f64>,
}

impl Case {
    fn values(&self) -> Values {
        let link = Link { capacity: CAPACITY, mean_packet: f64::from(PACKET) };
        let value = |name: &str| self.given.iter().find(|(of, _)| *of == name).map(|(_, x)| *x);
        Values::resolve(self.algorithm.params, &link, &value).expect("allowed values")
    }

    fn aqm(&self) -> Box<dyn Aqm> {
        let aqm = (self.algorithm.build)(&self.values()).expect("consistent values");
        match self.threshold {
            Some(th) => Box::new(Threshold::new(aqm, th)),
            None => aqm,
        }
    }

    fn fluid_model(&self) -> Box<dyn FluidModel> {
        let given =
            FluidConfig { packet: f64::from(PACKET), limit: f64::from(LIMIT), variant: FluidVariant::Actual };
        let make = self.algorithm.fluid.expect("a fluid model");
        let model = make(&self.values(), &given).expect("a fluid model for these values");
        match self.threshold {
            Some(th) => Box::new(ThresholdFluid::new(model, th, &given)),
            None => model,
        }
    }

    /// Solves the fluid model.
    fn fluid(&self, point: &Point) -> Course {
        let model = self.fluid_model();
        let mut x = [0.0; MAX_STATES];
        let x = &mut x[..model.states()];
        model.start(x);
        let mut course = Course { marked: [0.0; WINDOWS], probes: Vec::new() };
        model.probe(x, &mut |name, _| course.probes.push((name, [0.0; WINDOWS])));
        let steps = 2000;
        let resolution = WINDOW / f64::from(steps);
        for window in 0..WINDOWS {
            for i in 0..steps {
                let t = (window as f64 + (f64::from(i) + 0.5) / f64::from(steps)) * WINDOW;
                let ((q, dq), load) = (point.queue(t), point.arrives(t));
                let p = model.mark(x, &Arrivals { q, load, capacity: MU });
                let accepted = if point.drops { (1.0 - p) * load } else { load };
                let inputs = Inputs {
                    q,
                    dq,
                    offered: load,
                    load,
                    accepted,
                    capacity: MU,
                    output: if point.waits(t) { MU } else { accepted.min(MU) },
                    service: Service::Full,
                    unit: 0.1,
                    resolution,
                };
                let mut dx = [0.0; MAX_STATES];
                model.derivatives(x, p, &inputs, &mut dx[..x.len()]);
                x.iter_mut().zip(dx).for_each(|(x, dx)| *x += resolution * dx);
                course.marked[window] += p / f64::from(steps);
                let mut probes = course.probes.iter_mut();
                model.probe(x, &mut |_, value| {
                    probes.next().expect("as many probes as before").1[window] += value / f64::from(steps);
                });
            }
        }
        course
    }

    /// Runs the algorithm.
    fn packets(&self, point: &Point, run: u64) -> Course {
        let mut aqm = self.aqm();
        let mut traffic = Rng::stream(run, "traffic", 0, "fluid");
        let mut rng = Rng::stream(run, "aqm", 0, "fluid");
        let transmission = Duration::from_secs_f64(1.0 / MU);
        let limit = Limit { packets: LIMIT, bytes: u64::MAX };
        let mut state = QueueState {
            packets: 0,
            bytes: 0,
            held: 0,
            limit,
            capacity: CAPACITY,
            sent_bytes: 0,
            idle_since: (!point.waits(0.0)).then_some(Instant::ZERO),
        };
        let mut course = Course { marked: [0.0; WINDOWS], probes: Vec::new() };
        aqm.probe(&mut |name, _| course.probes.push((name, [0.0; WINDOWS])));
        let (mut free, mut arrived) = (Instant::ZERO, [0.0; WINDOWS]);
        // Start of the idle time at a moment, if the link is free from `free` on.
        let idle = |at: Instant, free: Instant| {
            (!point.waits((at - Instant::ZERO).as_secs_f64()) && free <= at).then_some(free)
        };
        let mut due = Instant::ZERO;
        loop {
            // Each up to one gap late, so that arrivals are not in phase with any interval; light traffic is fully
            // random, because that determines whether it finds the link busy.
            let at = (due - Instant::ZERO).as_secs_f64();
            let mut gap = transmission.scaled(MU / point.arrives(at));
            let mut now = due;
            if point.waits(at) {
                now += gap.scaled(traffic.uniform());
            } else {
                gap = gap.scaled(traffic.exponential(1.0));
            }
            due += gap;
            let seconds = (now - Instant::ZERO).as_secs_f64();
            let window = (seconds / WINDOW) as usize;
            if window >= WINDOWS {
                break;
            }
            let packet = Packet { arrival: now, ..Packet::new(PACKET, FlowId(0), 0) };
            let queue_at = |state: &mut QueueState, at: Instant| {
                state.packets = point.queue((at - Instant::ZERO).as_secs_f64()).0.round() as u32;
                state.bytes = u64::from(state.packets * PACKET);
            };
            // Earlier events: the link takes the next packet, or the algorithm wakes.
            loop {
                let wakes = aqm.wake_at().unwrap_or(now).min(now);
                if free < wakes && point.waits((free - Instant::ZERO).as_secs_f64()) {
                    queue_at(&mut state, free);
                    let waited = transmission.times(u64::from(state.packets));
                    let arrival = Instant::ZERO + (free - Instant::ZERO).saturating_sub(waited);
                    let left = Packet { arrival, ..packet };
                    aqm.depart(&left, &mut Context::new(free, &state, &mut rng));
                    state.sent_bytes += u64::from(PACKET);
                    free += transmission;
                } else if wakes < now {
                    queue_at(&mut state, wakes);
                    state.idle_since = idle(wakes, free);
                    aqm.wake(&mut Context::new(wakes, &state, &mut rng));
                } else {
                    break;
                }
            }
            queue_at(&mut state, now);
            state.idle_since = idle(now, free);
            arrived[window] += 1.0;
            let marked = match aqm.arrive(&packet, &mut Context::new(now, &state, &mut rng)) {
                Verdict::Pass => false,
                Verdict::Mark | Verdict::Drop => true,
                other => panic!("{}: no model is of an algorithm that says {other:?}", self.name()),
            };
            course.marked[window] += f64::from(u8::from(marked));
            if !(marked && point.drops) {
                aqm.admit(&packet, &mut Context::new(now, &state, &mut rng));
                aqm.enqueued(&packet, &mut Context::new(now, &state, &mut rng));
                if !point.waits(seconds) {
                    // It is sent at once, or after the packet that is being sent.
                    state.idle_since = None;
                    aqm.depart(&packet, &mut Context::new(now, &state, &mut rng));
                    state.sent_bytes += u64::from(PACKET);
                    free = free.max(now) + transmission;
                }
            }
            let mut probes = course.probes.iter_mut();
            aqm.probe(&mut |_, value| probes.next().expect("as many probes as before").1[window] += value);
        }
        for (window, arrived) in arrived.into_iter().enumerate() {
            course.marked[window] /= arrived;
            course.probes.iter_mut().for_each(|(_, values)| values[window] /= arrived);
        }
        course
    }

    fn name(&self) -> String {
        format!(
            "{} {:?}{}",
            self.algorithm.name,
            self.given,
            self.threshold.map_or(String::new(), |th| format!(" th {th}"))
        )
    }

    /// Time between two updates of the algorithm [s], if it has any.
    fn interval(&self) -> f64 {
        let steps = ["interval", "freeze_time", "t_update"];
        let name =
            self.algorithm.params.iter().find(|param| steps.contains(&param.name)).map(|param| param.name);
        name.map_or(0.0, |name| self.values().number(name))
    }

    /// Allowed deviation of a probe because packets are whole or its intervals have a length.
    fn resolution(&self, probe: &str, light: bool) -> f64 {
        let packets = if light { 5.1 } else { 2.0 };
        match (probe, self.algorithm.name) {
            // The packet just added and one that waits for it; in light traffic those of an M/D/1 queue, whose load may
            // be 0.88 of AVQRED's service rate: 4.1, and the one just added. In the probe's unit.
            ("VQ", "avqred" | "avqred_backlog") => packets,
            ("VQ", _) => f64::from(PACKET) * packets,
            // See AVQRED's model on light traffic: 1.12 times 0.6 of the link at a = 1.5.
            ("v_cap", _) => {
                if light {
                    0.12 * 12e6
                } else {
                    0.0
                }
            }
            // One update of PIE.
            ("burst_allowance", _) => 0.015,
            // One packet in the shortest interval, as a share of the capacity.
            ("x" | "dx", _) => 0.01,
            ("virtual_capacity", _) => 0.0,
            ("avg", _) => 0.5,
            _ => 0.001,
        }
    }

    /// Compares the two at a point.
    fn compare(&self, point: &Point, wrong: &mut Vec<String>) {
        let fluid = self.fluid(point);
        let runs: Vec<_> = (0..RUNS).map(|run| self.packets(point, run)).collect();
        let mut check = |what: &str, course: &[f64; WINDOWS], runs: Vec<&[f64; WINDOWS]>, resolution: f64| {
            let n = runs.len() as f64;
            let greatest = course.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let mut worst = (1.0, String::new());
            for (window, model) in course.iter().enumerate() {
                let mean = runs.iter().map(|run| run[window]).sum::<f64>() / n;
                let square = runs.iter().map(|run| (run[window] - mean) * (run[window] - mean)).sum::<f64>();
                let error = (square / (n - 1.0) / n).sqrt();
                // Change of the model within an interval of the algorithm.
                let near = &course[window.saturating_sub(1)..(window + 2).min(WINDOWS)];
                let least = near.iter().copied().fold(f64::INFINITY, f64::min);
                let change = near.iter().copied().fold(-f64::INFINITY, f64::max) - least;
                let late = change * (self.interval() / WINDOW).min(1.0);
                let allowed = 5.0 * error + 0.02 * greatest + late + resolution;
                let times = (model - mean).abs() / allowed;
                assert!(
                    times.is_finite(),
                    "{}, {point:?}, {what} in window {window}: {mean}, {model}",
                    self.name()
                );
                if times > worst.0 {
                    let found = format!(
                        "window {window}: {mean:.5}, the model says {model:.5}, allowed {allowed:.5}"
                    );
                    worst = (times, format!("{}, {point:?}, {what} in {found}", self.name()));
                }
            }
            if worst.0 > 1.0 {
                wrong.push(worst.1);
            }
        };
        check("share marked", &fluid.marked, runs.iter().map(|run| &run.marked).collect(), 0.002);
        for (name, model) in &fluid.probes {
            let found = |run: &'_ Course| run.probes.iter().position(|(of, _)| of == name);
            let at = found(&runs[0]).unwrap_or_else(|| panic!("{}: no probe {name}", self.name()));
            check(
                name,
                model,
                runs.iter().map(|run| &run.probes[at].1).collect(),
                self.resolution(name, !point.waits(3.9)),
            );
        }
    }

    fn try_all(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        Point::all().iter().for_each(|point| self.compare(point, &mut wrong));
        wrong
    }
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

#[test]
fn every_fluid_model_matches_its_algorithm() {
    let with_fluid = AQMS.iter().filter(|a| a.fluid.is_some());
    let wrong: Vec<_> =
        with_fluid.flat_map(|algorithm| Case { algorithm, given: &[], threshold: None }.try_all()).collect();
    assert_none(&wrong);
}

const ON: Value = Value::Flag(true);
const OFF: Value = Value::Flag(false);

/// Parameters that change a model.
#[test]
fn options_match_their_algorithms() {
    let cases: &[(&str, &[(&str, Value)])] = &[
        ("red", &[("gentle", ON)]),
        ("red", &[("wait", ON), ("max_p", Value::Number(0.1))]),
        ("red", &[("w_q", Value::Number(0.002)), ("max_p", Value::Number(1.0))]),
        ("ared", &[("gentle", OFF), ("w_q", Value::Number(0.01)), ("interval", Value::Number(0.02))]),
        ("avq", &[("adapt", OFF)]),
        ("avq", &[("accepted", ON), ("gamma", Value::Number(0.8))]),
        ("avqred", &[("min_capacity", Value::Number(5e6)), ("max_capacity", Value::Number(30e6))]),
        ("pi", &[("a", Value::Number(2e-5)), ("b", Value::Number(1e-5))]),
        ("pie", &[("derandomize", OFF), ("cap", OFF)]),
        // Batches of two whole packets: a measurement ends with the packet that passes the threshold, which the model
        // does not have.
        ("pie", &[("delay", Value::Name("rate")), ("dq_threshold", Value::Number(2000.0))]),
        ("pie", &[("max_burst", Value::Number(1.0))]),
        ("vrc", &[("accepted", OFF)]),
        ("yellow", &[("accepted", OFF), ("delta", Value::Number(0.1))]),
        ("rem", &[("phi", Value::Number(1.01))]),
        ("gkvq", &[("theta", Value::Number(0.9))]),
        (
            "aaqm",
            &[
                ("u_low", Value::Number(0.7)),
                ("u_high", Value::Number(1.0)),
                ("p1", Value::Number(0.0006)),
                ("p2", Value::Number(0.0003)),
            ],
        ),
        ("blue", &[("freeze_time", Value::Number(0.01))]),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .flat_map(|(name, given)| {
            let algorithm = AQMS.iter().find(|a| a.name == *name).expect("a registered AQM");
            Case { algorithm, given, threshold: None }.try_all()
        })
        .collect();
    assert_none(&wrong);
}

/// 0.25 of the limit is a queue of 0.1 s, which one of the points reaches and some exceed.
#[test]
fn threshold_control_matches_its_algorithms() {
    let wrong: Vec<_> = ["droptail", "red", "avq", "pi"]
        .iter()
        .flat_map(|name| {
            let algorithm = AQMS.iter().find(|a| a.name == *name).expect("a registered AQM");
            Case { algorithm, given: &[], threshold: Some(0.25) }.try_all()
        })
        .collect();
    assert_none(&wrong);
}
