//! Runs that are advanced in steps and changed in between.

use bentpipe_queue::Aqm;
use bentpipe_queue::descriptor::Placement;
use bentpipe_scenario::{Origin, OutsideKey, Scenario};
use bentpipe_sim::{At, Progress, Results, Simulation, run};
use bentpipe_units::{Duration, Instant};

use crate::common::shipped;

/// A shipped scenario of half a minute, measured from its start.
fn scenario(name: &str, changes: &[&str]) -> Scenario {
    let whole = ["run.warmup=0 s", "run.duration=30 s"];
    shipped(name, &[&whole, changes].concat())
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn advanced(simulation: &mut Simulation, ms: u64) {
    simulation.advance(at(ms)).unwrap_or_else(|e| panic!("{e}"));
}

fn begun(scenario: &Scenario) -> Simulation {
    Simulation::new(scenario, 1, None).unwrap_or_else(|e| panic!("{e}"))
}

fn mean(simulation: &Simulation, name: &str, from: usize, to: usize) -> f64 {
    let series = simulation.series().iter().find(|series| series.name == name);
    let values = &series.unwrap_or_else(|| panic!("no series {name}")).values[from..to];
    values.iter().sum::<f64>() / values.len() as f64
}

fn counted(results: &Results) -> String {
    format!("{:?} {:?}", results.counters(), results.drops)
}

#[test]
fn steps_do_not_change_the_course_of_a_run() {
    for name in ["small-gateway", "red-dumbbell", "quic-geo"] {
        let scenario = scenario(name, &[]);
        let whole = run(&scenario, 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
        let mut simulation = begun(&scenario);
        let mut ms = 0;
        while simulation.now() < simulation.end() {
            // Some steps by time, some by packets.
            ms += 373;
            let now = simulation.now();
            simulation.advance(at(ms).max(now)).unwrap_or_else(|e| panic!("{e}"));
            for _ in 0..7 {
                simulation.step().unwrap_or_else(|e| panic!("{e}"));
            }
        }
        assert_eq!(counted(&simulation.results()), counted(&whole), "{name}");
    }
}

#[test]
fn goodput_of_each_sample_does_not_depend_on_the_steps() {
    let scenario = scenario("quic-geo", &[]);
    let goodput =
        |simulation: &Simulation| -> Vec<Vec<f64>> { simulation.goodput().map(<[f64]>::to_vec).collect() };
    let mut whole = begun(&scenario);
    advanced(&mut whole, 10_000);
    let mut stepped = begun(&scenario);
    while stepped.now() < at(9_900) {
        stepped.step().unwrap_or_else(|e| panic!("{e}"));
    }
    advanced(&mut stepped, 10_000);
    assert_eq!(goodput(&stepped), goodput(&whole));
    assert!(goodput(&whole).iter().flatten().any(|&rate| rate > 0.0));
}

#[test]
fn a_step_ends_with_one_packet_at_the_subject() {
    let mut simulation = begun(&scenario("small-gateway", &[]));
    let mut last = simulation.now();
    for _ in 0..1000 {
        assert!(simulation.step().is_ok_and(|stepped| stepped));
        assert!(simulation.now() >= last);
        last = simulation.now();
    }
    // At 3 Mbit/s a thousand arrivals, departures and drops of 1500 bytes take about two seconds at most.
    assert!(last < at(5000), "{last:?}");
}

#[test]
fn a_new_rate_limits_the_throughput_from_then_on() {
    let plain = scenario("small-gateway", &[]);
    let slower = scenario("small-gateway", &["gateway.regulator.rate=1 Mbps"]);
    let mut simulation = begun(&plain);
    advanced(&mut simulation, 15_000);
    assert_eq!(simulation.change(&slower), Ok(vec!["gateway.regulator.rate".to_owned()]));
    advanced(&mut simulation, 30_000);
    let samples = simulation.series()[0].values.len();
    let (before, after) = (
        mean(&simulation, "throughput", samples / 6, samples / 2),
        mean(&simulation, "throughput", samples * 2 / 3, samples),
    );
    assert!(before > 2e6, "{before}");
    // RED keeps the link from being full.
    assert!((0.5e6..1.01e6).contains(&after), "{after}");
}

#[test]
fn changes_at_time_zero_are_those_of_the_scenario() {
    let changed = scenario("small-gateway", &["gateway.regulator.rate=2 Mbps", "gateway.aqm.max_p=0.2"]);
    let mut simulation = begun(&scenario("small-gateway", &["gateway.aqm.max_p=0.3"]));
    simulation.change(&changed).unwrap_or_else(|e| panic!("{e}"));
    advanced(&mut simulation, 30_000);
    let whole = run(&changed, 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(counted(&simulation.results()), counted(&whole));
}

/// From then on each link of a group has its own delay line, and packets on one do not wait for those on another.
#[test]
fn a_change_that_changes_nothing_keeps_the_results() {
    let unchanged = scenario("small-gateway", &[]);
    let mut simulation = begun(&unchanged);
    for milliseconds in [5_000, 15_000] {
        advanced(&mut simulation, milliseconds);
        assert_eq!(simulation.change(&unchanged), Ok(Vec::new()));
    }
    advanced(&mut simulation, 30_000);
    let whole = run(&unchanged, 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(counted(&simulation.results()), counted(&whole));
}

#[test]
fn red_keeps_its_average_when_its_parameters_change() {
    let red = |max_p: &str| scenario("small-gateway", &["gateway.aqm.w_q=0.002", max_p]);
    let average = |change: Option<&str>| {
        let mut simulation = begun(&red("gateway.aqm.max_p=0.5"));
        advanced(&mut simulation, 15_000);
        if let Some(max_p) = change {
            simulation.change(&red(max_p)).unwrap_or_else(|e| panic!("{e}"));
        }
        advanced(&mut simulation, 15_200);
        let samples = simulation.series()[0].values.len();
        mean(&simulation, "aqm.avg", samples - 1, samples)
    };
    let (unchanged, changed) = (average(None), average(Some("gateway.aqm.max_p=0.49")));
    // In 200 ms some 70 packets arrive, each of which moves the average by 0.2 % of its distance to the queue.
    assert!(unchanged > 1.0 && (changed - unchanged).abs() < 0.1 * unchanged, "{unchanged} {changed}");
}

#[test]
fn fewer_and_more_users_leave_and_come() {
    let users = |count: &str| scenario("small-gateway", &[&format!("traffic.web.sessions={count}")]);
    let mut simulation = begun(&users("20"));
    let open = |simulation: &Simulation| {
        simulation.results().flows.iter().filter(|flow| flow.closed.is_none()).map(|flow| flow.session).max()
    };
    advanced(&mut simulation, 10_000);
    assert!(open(&simulation).is_some_and(|highest| highest >= 10), "{:?}", open(&simulation));
    simulation.change(&users("3")).unwrap_or_else(|e| panic!("{e}"));
    advanced(&mut simulation, 20_000);
    assert!(open(&simulation).is_none_or(|highest| highest < 3), "{:?}", open(&simulation));
    simulation.change(&users("40")).unwrap_or_else(|e| panic!("{e}"));
    advanced(&mut simulation, 30_000);
    assert!(simulation.results().flows.iter().any(|flow| flow.session == 39));
}

#[test]
fn what_shapes_the_network_is_refused_and_nothing_changes() {
    let mut simulation = begun(&scenario("small-gateway", &[]));
    advanced(&mut simulation, 1_000);
    let other = scenario("small-gateway", &["gateway.regulator.rate=1 Mbps", "host.client.count=30"]);
    let refused = simulation.change(&other);
    assert!(refused.as_ref().is_err_and(|e| e.starts_with("host.client.count cannot change")), "{refused:?}");
    advanced(&mut simulation, 30_000);
    let whole =
        run(&scenario("small-gateway", &[]), 1, &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(counted(&simulation.results()), counted(&whole));
}

#[test]
fn packets_in_flight_move_along_their_links() {
    let mut simulation = begun(&scenario("small-gateway", &[]));
    advanced(&mut simulation, 5_000);
    let names: Vec<String> = simulation.links().map(str::to_owned).collect();
    let on_satellite = |simulation: &Simulation| -> Vec<(u32, f32)> {
        let place = |position: &bentpipe_sim::Position| match position.at {
            At::Link(link, share) if names[link as usize] == "satellite" => Some((position.packet, share)),
            _ => None,
        };
        simulation.positions().iter().filter_map(place).collect()
    };
    let before = on_satellite(&simulation);
    assert!(before.len() > 10, "{}", before.len());
    assert!(before.iter().all(|(_, share)| (0.0..=1.0).contains(share)));
    advanced(&mut simulation, 5_010);
    let after = on_satellite(&simulation);
    let moved = before.iter().filter_map(|(packet, share)| {
        let later = after.iter().find(|(other, _)| other == packet)?;
        (later.1 > *share).then_some(later.1 - share)
    });
    let moved: Vec<f32> = moved.collect();
    // 10 ms of the link's delay.
    assert!(moved.len() > before.len() / 2, "{} of {}", moved.len(), before.len());
    assert!(moved.iter().all(|share| *share > 0.0 && *share < 0.2), "{moved:?}");
}

/// A caller's AQM at a link's queue or at a gateway, with a parameter k.
#[test]
fn a_supplied_aqm_cannot_change_during_a_run() {
    for (name, place) in [("red-dumbbell", "link.bottleneck"), ("small-gateway", "gateway")] {
        let with = |k: &str| {
            let row = |key: &str, value: &str| OutsideKey {
                key: key.to_owned(),
                value: value.to_owned(),
                origin: Origin::Override,
                note: String::new(),
            };
            let keys = [row("algorithm", "steps.Step"), row("k", k)];
            scenario(name, &[])
                .with_outside("Step", Placement::Anywhere, &keys, &["k".to_owned()])
                .unwrap_or_else(|e| panic!("{e}"))
        };
        let spec = scenario(name, &[]).subject_aqm().cloned().unwrap_or_else(|| panic!("{name}"));
        let make: &mut dyn FnMut() -> Box<dyn Aqm> = &mut || spec.build().unwrap_or_else(|e| panic!("{e}"));
        let mut simulation = Simulation::new(&with("10"), 1, Some(make)).unwrap_or_else(|e| panic!("{e}"));
        advanced(&mut simulation, 1_000);
        let refused = simulation.change(&with("20"));
        let expected = format!("{place}: the AQM Step is written in Python, and cannot change during a run");
        assert_eq!(refused, Err(expected), "{name}");
    }
}
