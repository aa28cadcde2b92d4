//! Every term of the equations at single points, compared with values computed by hand; the fluid model records its inputs.

use bentpipe_model::{Capacity, Delayed, Fluid, Series, System, integrate, run};
use bentpipe_queue::FluidModel;
use bentpipe_queue::fluid::{Arrivals, Inputs};
use bentpipe_scenario::{Equations, Feedback, Fourier, Ramp, Scenario};
use bentpipe_units::Duration;

const SENDERS: usize = 0;
const QUEUE: usize = 1;
const AQM: usize = 6;
/// Number of variables, enough for all equations except those with timeouts.
const N: usize = 12;
const PI: f64 = std::f64::consts::PI;

/// A fluid model whose mark probability is its first variable. Its derivatives are its inputs: accepted rate, output rate,
/// mark probability, and rate of change of a virtual queue that the fourth variable holds, served at 100 packets/s.
struct RecordsInputs;

impl FluidModel for RecordsInputs {
    fn states(&self) -> usize {
        4
    }

    fn mark(&self, x: &[f64], _arrivals: &Arrivals) -> f64 {
        x[0]
    }

    fn derivatives(&self, x: &[f64], p: f64, seen: &Inputs, dx: &mut [f64]) {
        dx.copy_from_slice(&[seen.accepted, seen.output, p, seen.virtual_queue(x[3], 0.0, 100.0)]);
    }

    fn probe(&self, _x: &[f64], _out: &mut dyn FnMut(&'static str, f64)) {}
}

/// `mean + cos cos(2πt/4) + sin sin(2πt/4)`.
fn wave(mean: f64, cos: f64, sin: f64) -> Series {
    Series::new(Fourier { mean, cos: vec![cos], sin: vec![sin] }, 4.0)
}

/// 100 connections with a round trip of 0.1 s, a link of 300 packets/s, two packets per segment, 10 segments/s of datagrams and a
/// step of 1 ms. ω is 1/2 at 2 s and 1 at 1 s, which is the delayed time at 2 s.
fn system(equations: Equations) -> System {
    let text = include_str!("../../../scenarios/red-dumbbell.toml");
    let scenario = Scenario::parse(text, "t.toml", &[]).unwrap();
    let mut system = System::of(&scenario, 1).unwrap();
    system.equations = equations;
    system.aqm = Box::new(RecordsInputs);
    system.connections = 100.0;
    system.ramps = vec![(100.0, None)];
    system.round_trip = 0.1;
    system.capacity = Capacity::Fixed(300.0);
    system.packets_per_segment = 2.0;
    system.packet = 0.5 * system.segment;
    system.limit = 1000.0;
    system.window = 8.0;
    system.initial_window = 3.0;
    system.background = 10.0 * system.segment;
    system.drops = true;
    system.decrease = 0.5;
    system.pep_delay = wave(0.5, -0.5, 0.0);
    system.load_ratio = wave(1.0, 0.5, 0.0);
    system
}

/// Variables with this rate or window, queue and mark probability, and 3/4 of a packet in the virtual queue.
fn at(senders: f64, q: f64, p: f64) -> [f64; N] {
    let mut y = [0.0; N];
    (y[SENDERS], y[QUEUE], y[AQM], y[AQM + 3]) = (senders, q, p, 0.75);
    y
}

/// Derivatives of senders, queue, offered, marked, sent, lost and the AQM's variables.
fn change(system: &System, t: f64, now: [f64; N], then: [f64; N]) -> [f64; 10] {
    let late = if system.feedback == Feedback::RoundTrip { then } else { now };
    let dy = Fluid::<N>::new(system).derive(t, &now, &[then, late]);
    std::array::from_fn(|i| dy[i])
}

#[track_caller]
fn same(found: [f64; 10], expected: [f64; 10]) {
    for (i, (x, y)) in found.into_iter().zip(expected).enumerate() {
        assert!((x - y).abs() < 1e-9 * y.abs().max(1.0), "{i}: {x}, not {y}");
    }
}

/// Now 200 packets/s, a queue of 50 and p = 0.2; a delay ago 400 packets/s and p = 1/2. The offered rate is 0.5 200 + 10 =
/// 110, 220 packets/s on the link, of which 176 are accepted; a delay ago it was 1 400 + 10 = 410, 820 on the link, of which
/// 410 arrive now. dλ/dt = 0.8 100 / 0.01 - 0.2 200² / (2 100).
#[test]
fn gateway_equations_match_hand_computed_values() {
    let mut system = system(Equations::Gateway);
    let (now, then) = (at(200.0, 50.0, 0.2), at(400.0, 20.0, 0.5));
    let sent = |dq: f64, lost: f64| [7960.0, dq, 110.0, 22.0, 300.0, lost, 176.0, 300.0, 0.2, -100.0];
    same(change(&system, 2.0, now, then), sent(110.0, 0.0));
    // 0.02 packets fit, in half a step; a queue above its limit shrinks at the same rate.
    system.limit = 50.02;
    same(change(&system, 2.0, now, then), sent(40.0, 70.0));
    system.limit = 40.0;
    same(change(&system, 2.0, now, then), sent(-410.0, 520.0));
    // q >= 0: arrivals are sent at once, plus 0.01 packets in half a step.
    let empty = change(&system, 2.0, at(200.0, 0.01, 0.2), at(400.0, 0.0, 0.9));
    assert_eq!((empty[QUEUE], empty[4].round()), (-20.0, 102.0));
    // λ >= 0, and if marks are not drops, all packets but the datagrams are accepted.
    system.drops = false;
    let many = change(&system, 2.0, at(1e6, 0.0, 1.0), then);
    assert_eq!((many[SENDERS], many[AQM]), (-2e9, 1_000_000.0));
    system.limit = 1000.0;
    assert!((change(&system, 2.0, now, then)[QUEUE] - 510.0).abs() < 1e-9);
}

/// [B07] 6.4: a fifth of the connections is new at 2 s, and this share falls by π/20 per second; marks reduce a window by a
/// quarter and drop datagrams only: 4 of 20 packets/s now, 10 a delay ago. dλ/dt = 0.8 80 / 0.01 - (1/4) 0.2 200² / 80 + dn/dt, n = υ 100 8 / 0.1. At 0 s the share rises
/// as fast, and ω is 3/2.
#[test]
fn equations_with_new_connections_match_hand_computed_values() {
    let mut system = system(Equations::NewConnections);
    (system.drops, system.decrease, system.new_connections) = (false, 0.75, Some(wave(0.2, 0.0, 0.1)));
    let (now, then) = (at(200.0, 50.0, 0.2), at(400.0, 20.0, 0.5));
    let all = [6375.0 - 400.0 * PI, 510.0, 110.0, 22.0, 300.0, 4.0, 216.0, 300.0, 0.2, -100.0];
    same(change(&system, 2.0, now, then), all);
    let all = [6375.0 + 400.0 * PI, 910.0, 310.0, 62.0, 300.0, 4.0, 616.0, 300.0, 0.2, -100.0];
    same(change(&system, 0.0, now, then), all);
    // If all connections are new, marks have no effect; a negative share, as printed, adds connections that react.
    system.new_connections = Some(wave(1.0, 0.0, 0.0));
    assert_eq!(change(&system, 2.0, now, then)[SENDERS], 0.0);
    system.new_connections = Some(wave(-0.25, 0.0, 0.0));
    assert!((change(&system, 2.0, now, then)[SENDERS] - (10_000.0 - 16.0)).abs() < 1e-9);
}

/// [BB] section 6: an M/M/1 queue with 4 packets has a utilization of 4/5, an M/D/1 queue with 3/4 of a packet one of 1/2.
/// 210 packets/s are offered, 420 on the link, of which 336 are accepted; 240 are sent. 40 of the 100 connections start, ten
/// in 2 s with pauses of 2 s: 15 have started at 5 s, at 5 per second; 20 at 7 s, at 0 per second; all from 16 s on. A
/// fiftieth per second is replaced, with windows of 3.
#[test]
fn single_queue_equations_match_hand_computed_values() {
    let mut system = system(Equations::SingleQueue);
    let ramp = |over, pause| Ramp {
        sessions: 10,
        over: Duration::from_secs_f64(over),
        pause: Duration::from_secs_f64(pause),
    };
    (system.replaced, system.ramps) = (0.02, vec![(60.0, None), (40.0, Some(ramp(2.0, 2.0)))]);
    let (now, then) = (at(200.0, 4.0, 0.2), at(400.0, 4.0, 0.5));
    for (t, m, dm) in [(5.0, 75.0, 5.0), (7.0, 80.0, 0.0), (17.0, 100.0, 0.0), (30.0, 100.0, 0.0)] {
        let senders = 80.0 * m - 4000.0 / m + (dm + 0.02 * m) * 30.0 - 4.0;
        let all = [senders, 96.0, 210.0, 42.0, 240.0, 0.0, 336.0, 240.0, 0.2, -50.0];
        same(change(&system, t, now, then), all);
    }
    // Losses of a full queue, 96 of 336, act like marks: 1 - 0.8 (1 - 2/7) = 3/7.
    system.limit = 4.0;
    let senders = 4.0 / 7.0 * 7500.0 - 0.5 * 3.0 / 7.0 * 40_000.0 / 75.0 + 195.0 - 4.0;
    let all = [senders, 0.0, 210.0, 42.0, 240.0, 96.0, 336.0, 240.0, 0.2, -50.0];
    same(change(&system, 5.0, now, then), all);
    // Feedback a round trip later: then 820 arrived, half were marked, 320 of the others were sent: 1 - 1/2 (1 - 90/410) =
    // 25/41.
    system.feedback = Feedback::RoundTrip;
    system.capacity = Capacity::Steps(vec![(0.0, 400.0), (5.0, 300.0)], None);
    let senders = 16.0 / 41.0 * 7500.0 - 0.5 * 25.0 / 41.0 * 80_000.0 / 75.0 + 195.0 - 4.0;
    assert!((change(&system, 5.0, now, then)[SENDERS] - senders).abs() < 1e-9);
    // Two groups that start in parallel.
    system.feedback = Feedback::None;
    system.ramps = vec![(40.0, Some(ramp(2.0, 2.0))), (30.0, Some(ramp(4.0, 0.0)))];
    system.limit = 1000.0;
    let senders = 80.0 * 27.5 - 4000.0 / 27.5 + (7.5 + 0.02 * 27.5) * 30.0 - 4.0;
    assert!((change(&system, 5.0, now, then)[SENDERS] - senders).abs() < 1e-9);
    // Ten at once every 2 s: at 3 s twenty have started. Without connections there is no division by 0.
    system.ramps = vec![(40.0, Some(ramp(0.0, 2.0)))];
    assert!((change(&system, 3.0, now, then)[SENDERS] - (1600.0 - 200.0 + 12.0 - 4.0)).abs() < 1e-9);
    system.ramps = vec![(40.0, Some(ramp(2.0, 2.0)))];
    assert!((change(&system, 0.0, at(0.0, 0.0, 0.0), then)[SENDERS] - 150.0).abs() < 1e-9);
}

/// The round trip is 0.1 + 60 / 300 = 0.3 s, so the delayed time is 1.7 s, when the link sent 600 packets/s: with a queue of 30
/// the round trip was 0.15 s. 100 windows of 3 offer 1000 packets/s; with datagrams it is 1010, of which 808 are accepted.
/// dW/dt = 1 / 0.3 - (1/2) 3 5 (1/2) / 0.15.
#[test]
fn end_to_end_equations_match_hand_computed_values() {
    let mut system = system(Equations::EndToEnd);
    (system.packets_per_segment, system.packet) = (1.0, system.segment);
    system.capacity = Capacity::Steps(vec![(0.0, 600.0), (1.8, 300.0)], None);
    let now = at(3.0, 60.0, 0.2);
    let rest = |dq: f64, lost: f64| [dq, 1010.0, 202.0, 300.0, lost, 808.0, 300.0, 0.2, -100.0];
    let all = |dw: f64, rest: [f64; 9]| std::array::from_fn(|i| if i == 0 { dw } else { rest[i - 1] });
    same(change(&system, 2.0, now, at(5.0, 30.0, 0.5)), all(1.0 / 0.3 - 25.0, rest(508.0, 0.0)));
    // Full at both times: 100 5 / 0.2 + 10 arrived then, half were marked, and of 1255 the link sent 600: 1 - 1/2 600/1255 =
    // 191/251.
    system.limit = 60.0;
    let dw = 1.0 / 0.3 - 0.5 * 15.0 * 191.0 / 251.0 / 0.2;
    same(change(&system, 2.0, now, at(5.0, 60.0, 0.5)), all(dw, rest(0.0, 508.0)));
    // A window within 0.001 segments of its limit grows only to the limit in half a step.
    system.window = 3.001;
    assert!((change(&system, 2.0, now, at(5.0, 30.0, 0.0))[SENDERS] - 2.0).abs() < 1e-9);
}

/// A fitted PEP delay below 0 counts as 0; marks take effect a round trip later if configured. After a step, rate and queue
/// are at least 0, and the queue is at most its limit.
#[test]
fn delays_rates_and_queues_stay_within_bounds() {
    let mut of = system(Equations::Gateway);
    let lags = |system: &System, t| Fluid::<N>::new(system).lags(t, &at(3.0, 60.0, 0.0));
    assert_eq!(lags(&of, 2.0), [1.0, 0.0]);
    of.pep_delay = wave(0.5, -0.75, 0.0);
    assert_eq!(lags(&of, 0.0), [0.0, 0.0]);
    of.feedback = Feedback::RoundTrip;
    assert_eq!(lags(&of, 0.0), [0.0, 0.1]);
    let mut end_to_end = system(Equations::EndToEnd);
    end_to_end.feedback = Feedback::RoundTrip;
    assert!((lags(&end_to_end, 0.0)[0] - 0.3).abs() < 1e-12 && lags(&end_to_end, 0.0)[1] == 0.0);
    assert_eq!(Fluid::<N>::new(&end_to_end).start()[SENDERS], 3.0);
    for (q, kept) in [(-1.0, 0.0), (70.0, 70.0), (1001.0, 1000.0)] {
        let mut y = at(-1.0, q, 0.0);
        Fluid::<N>::new(&of).confine(&mut y);
        assert_eq!((y[SENDERS], y[QUEUE]), (0.0, kept));
    }
}

/// Connections with a window of 5 send it once per round trip, and the share ω of it, half at 2 s, arrives at the mark point.
#[test]
fn windows_determine_the_offered_rate_with_timeouts() {
    let path = "../../scenarios/byun2007-gateway.toml";
    let changes = ["model.equations=timeouts", "transport.byun2007.initial_window=5"].map(str::to_owned);
    let mut system = System::of(&Scenario::load(path, &changes).unwrap(), 1).unwrap();
    system.load_ratio = wave(1.0, 0.5, 0.0);
    let fluid = Fluid::<128>::new(&system);
    let y = fluid.start();
    let offered = fluid.derive(2.0, &y, &[y, y])[2];
    assert!(
        (offered / (0.5 * system.connections * 5.0 / system.round_trip) - 1.0).abs() < 1e-12,
        "{offered}"
    );
}

/// A series has a cosine and a sine; a warm-up is rounded up to whole samples: 2.05 s are 21 samples of 100 ms.
#[test]
fn series_add_waves_and_warm_up_is_rounded_up_to_samples() {
    let (value, slope) = wave(1.0, 2.0, 3.0).at(1.0);
    assert!((value - 4.0).abs() < 1e-12 && (slope + PI).abs() < 1e-12);
    let of = |warmup: &str| {
        let text = include_str!("../../../scenarios/red-dumbbell.toml");
        let changes = [format!("run.warmup={warmup}"), "run.duration=1 s".to_owned()];
        run(&Scenario::parse(text, "t.toml", &changes).unwrap(), 1).unwrap()
    };
    assert_eq!(of("2.05 s"), of("2.1 s"));
    assert_ne!(of("2.05 s"), of("2 s"));
}

/// Losses are offered minus sent segments, each of two packets here (1360 bytes in 680 each): overflow, and marks if they are
/// drops.
#[test]
fn losses_are_offered_minus_sent() {
    let folder = "../../scenarios/";
    let of = |name: &str, changes: &[&str]| {
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        let table = run(&Scenario::load(format!("{folder}{name}.toml"), &changes).unwrap(), 1).unwrap();
        let columns = ["offered_load", "throughput", "mark_probability", "loss_rate"];
        columns.map(|name| *table.column(name).unwrap().last().unwrap())
    };
    let gateway = [
        "run.warmup=20 s",
        "run.duration=1 s",
        "model.equations=gateway",
        "gateway.spacelink.packet=711 B",
        "gateway.transmit_queue.limit=50 packets",
    ];
    let full =
        of("byun2007-gateway", &[&gateway[..], &["gateway.aqm={ algorithm = \"droptail\" }"]].concat());
    let (offered, sent) = (full[0] / (8.0 * 1400.0), full[1] / (8.0 * 711.0));
    assert!((full[3] / (1.0 - sent / (2.0 * offered)) - 1.0).abs() < 1e-3, "{full:?}");
    let marked =
        of("byun2007-gateway", &[&gateway[..], &["gateway.aqm={ algorithm = \"avqred\" }"]].concat());
    assert!(marked[2] > 0.1 && (marked[3] - marked[2]).abs() < 1e-9, "{marked:?}");
    let signals = [
        "link.bottleneck.queue.marking=ecn",
        "transport.ns2.ecn=true",
        "model.equations=single_queue",
        "link.bottleneck.queue.aqm.min_th=0",
    ];
    let ecn = of("red-dumbbell", &[&signals[..], &["run.warmup=20 s", "run.duration=1 s"]].concat());
    assert!(ecn[2] > 0.0 && ecn[3] == 0.0, "{ecn:?}");
}

/// Repeated steps, steps without repetition, and random rates; the last rate stays.
#[test]
fn capacity_follows_steps_and_draws() {
    let steps = vec![(0.0, 10.0), (2.0, 20.0), (3.0, 30.0)];
    let repeated = Capacity::Steps(steps.clone(), Some(5.0));
    let once = Capacity::Steps(steps, None);
    for (t, x) in [(0.0, 10.0), (1.9, 10.0), (2.0, 20.0), (3.5, 30.0), (5.0, 10.0), (7.5, 20.0)] {
        assert_eq!((repeated.at(t), once.at(t)), (x, if t < 5.0 { x } else { 30.0 }), "at {t}");
    }
    let drawn = Capacity::Drawn(vec![1.0, 2.0, 3.0], 2.0);
    for (t, x) in [(0.0, 1.0), (1.9, 1.0), (2.0, 2.0), (5.9, 3.0), (100.0, 3.0)] {
        assert_eq!(drawn.at(t), x, "at {t}");
    }
}

/// In an outage packets wait at the last rate, at the start for the first one.
#[test]
fn last_capacity_above_zero_outlasts_outages() {
    let steps = vec![(0.0, 0.0), (1.0, 10.0), (2.0, 0.0), (3.0, 30.0)];
    let repeated = Capacity::Steps(steps.clone(), Some(5.0));
    let once = Capacity::Steps(steps, None);
    for (t, x) in [(0.5, 10.0), (1.0, 10.0), (2.5, 10.0), (3.0, 30.0), (4.9, 30.0)] {
        assert_eq!((repeated.last_above_zero(t), once.last_above_zero(t)), (x, x), "at {t}");
    }
    for (t, x) in [(5.5, 30.0), (6.5, 10.0), (7.5, 10.0)] {
        assert_eq!((repeated.last_above_zero(t), once.last_above_zero(t)), (x, 30.0), "at {t}");
    }
    assert_eq!(Capacity::Fixed(7.0).last_above_zero(3.0), 7.0);
}

/// `y' = f(t, y(t - d(t)))`.
struct Scalar<D: Fn(f64) -> f64, F: Fn(f64, f64) -> f64>(D, F);

impl<D: Fn(f64) -> f64, F: Fn(f64, f64) -> f64> Delayed<1, 1> for Scalar<D, F> {
    fn lags(&self, t: f64, _y: &[f64; 1]) -> [f64; 1] {
        [(self.0)(t)]
    }

    fn derive(&self, t: f64, _y: &[f64; 1], past: &[[f64; 1]; 1]) -> [f64; 1] {
        [(self.1)(t, past[0][0])]
    }
}

/// From 1, with `steps` steps.
fn solved(
    d: impl Fn(f64) -> f64,
    f: impl Fn(f64, f64) -> f64,
    (step, steps): (f64, usize),
    history: f64,
) -> f64 {
    let mut last = f64::NAN;
    integrate(&Scalar(d, f), [1.0], (step, steps), history, steps, |_, y| {
        last = y[0];
        Ok(())
    })
    .unwrap();
    last
}

/// A delay may be as long as the history: `y' = -y(t - 1)` is `1 - t + (t - 1)² / 2` from 1 to 2. A delay shorter than a step
/// counts as a step: `1 - x + (x - h)² / 2 - …` over 10 steps of h = 1/10, summed by the method of steps.
#[test]
fn longest_and_shortest_delays_work() {
    assert!((solved(|_| 1.0, |_, y| -y, (0.1, 20), 1.0) + 0.5).abs() < 1e-9);
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..=11_i32 {
        let x = 1.0 - 0.1 * f64::from(k - 1);
        term = (1..=k).fold(1.0, |term, i| -term * x / f64::from(i));
        sum += term;
    }
    assert!(term.abs() < 1e-9);
    for short in [0.0, 0.03, 0.1] {
        assert!((solved(|_| short, |_, y| -y, (0.1, 10), 1.0) - sum).abs() < 1e-6, "{short}");
    }
}

/// Rates and delays are evaluated at the time of each stage: `y' = cos t` is `1 + sin t`, and `y' = y(t / 2)` is `Σ tⁿ / (n! 2^(n(n-1)/2))`.
#[test]
fn time_dependent_rates_and_delays_work() {
    assert!((solved(|_| 1.0, |t, _| libm::cos(t), (0.1, 20), 1.0) - 1.0 - libm::sin(2.0)).abs() < 1e-6);
    let series: f64 = (0..20_i32)
        .map(|n| {
            (1..=n).map(|i| 2.0 / f64::from(i)).product::<f64>() * libm::exp2(f64::from(-n * (n - 1) / 2))
        })
        .sum();
    assert!((solved(|t| 0.5 * t, |_, y| y, (0.001, 2000), 1.0) - series).abs() < 1e-5);
}

/// Parameters worked out by hand from a scenario's keys.
#[test]
fn scenario_keys_map_to_parameters() {
    let of = |changes: &[&str]| {
        let text = format!(
            "{}\n[transport.short]\npreset = \"ns2\"\nreceive_window = \"100 segments\"\nmax_window = \"40 segments\"\n{}\n{}",
            include_str!("../../../scenarios/red-dumbbell.toml"),
            "[traffic.more]\nkind = \"bulk\"\nfrom = \"s\"\nto = \"d\"\ntransport = \"short\"\nflows = 150",
            "[traffic.calls]\nkind = \"on_off\"\nfrom = \"s\"\nto = \"d\"\nflows = 2\nrate = \"1 Mbps\"\npacket = \"1 KB\"\n\
             on = { exponential = \"100 ms\" }\noff = { exponential = \"300 ms\" }\n",
        );
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        System::of(&Scenario::parse(&text, "t.toml", &changes).unwrap(), 1).unwrap()
    };
    let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-9 * y, "{x}, not {y}");
    // Windows of 50 connections are 10 000 segments, those of 150 the lesser of 100 and 40.
    let plain = of(&[]);
    close(plain.connections, 200.0);
    close(plain.window, (50.0 * 1e4 + 150.0 * 40.0) / 200.0);
    close(plain.round_trip, 0.56);
    // 1 Mbit/s of each while on, a quarter of the time.
    close(plain.background, 62_500.0);
    assert_eq!((plain.limit, plain.feedback, plain.drops), (400.0, Feedback::None, true));
    // In bytes: 100 packets of 1040 B. The way back is another; 50 of 200 connections live for 10 s.
    let other = of(&[
        "link.bottleneck.queue.limit=104000 B",
        "link.bottleneck.reverse.delay=100 ms",
        "traffic.bulk.lifetime={ exponential = \"10 s\" }",
    ]);
    close(other.limit, 100.0);
    close(other.round_trip, 0.41);
    close(other.replaced, 0.25 / 10.0);
    let gateway = |changes: &[&str]| {
        let path = "../../scenarios/byun2007-gateway.toml";
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        System::of(&Scenario::load(path, &changes).unwrap(), 1).unwrap()
    };
    let ecn = gateway(&[
        "gateway.marking={ method = \"window\", decr = 0.3 }",
        "gateway.pep.buffer_per=connection",
    ]);
    assert_eq!((ecn.decrease, ecn.drops, ecn.equations), (0.3, false, Equations::NewConnections));
    assert_eq!(gateway(&["model.equations=timeouts"]).feedback, Feedback::RoundTrip);
    close(
        gateway(&["traffic.web.connection_per=object", "traffic.web.objects_per_page=3"]).connections,
        3.0 * gateway(&["traffic.web.connection_per=page"]).connections,
    );
}
