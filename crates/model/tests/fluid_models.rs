//! Choice of the AQM's fluid model, and its effect on the solution.

use bentpipe_model::{Table, run};
use bentpipe_queue::registry::AQMS;
use bentpipe_scenario::Scenario;

/// Fifty connections with a round trip of 100 ms and a RED whose queue reaches an equilibrium, without the `wait` of ns-2;
/// `rest` are other keys of `[model]`.
fn solved(rest: &str) -> Table {
    let text = include_str!("../../../scenarios/red-dumbbell.toml");
    let aqm = "{ algorithm = \"red\", min_th = 0, max_th = 400, max_p = 0.5, w_q = 0.0001 }";
    let change = [
        "link.bottleneck.delay = \"20 ms\"".to_owned(),
        "run.duration = \"50 s\"".to_owned(),
        format!("link.bottleneck.queue.aqm = {aqm}"),
    ];
    let scenario =
        Scenario::parse(&format!("{text}\n[model]\n{rest}\n"), "test.toml", &change).expect("no mistake");
    run(&scenario, 1).expect("a covered scenario")
}

fn mean(table: &Table, column: &str) -> f64 {
    let values = table.column(column).expect("a column");
    values.iter().sum::<f64>() / values.len() as f64
}

/// RED's marking function rises from 0 at an average of 0 packets to 1/2 at 400. In the printed model this is the share of
/// marks; the algorithm spaces marks uniformly, so a probability of 1/n marks a share of 2/n.
#[test]
fn red_marks_its_function_or_twice_that() {
    for (rest, low, high) in [
        ("laws = \"printed\"", 0.999, 1.001),
        ("laws = \"actual\"", 1.999, 2.001),
        ("", 1.999, 2.001),
        ("equations = \"single_queue\"", 0.999, 1.001),
    ] {
        let table = solved(rest);
        let function = mean(&table, "aqm.avg") / 800.0;
        let times = mean(&table, "mark_probability") / function;
        assert!(function < 0.1 && (low..high).contains(&times), "{rest}: {function}, {times}");
    }
}

/// The dumbbell for twenty seconds with another AQM.
fn with_aqm(aqm: &str) -> Result<Table, String> {
    let text = include_str!("../../../scenarios/red-dumbbell.toml");
    let change = [
        "run.warmup = \"0 s\"".to_owned(),
        "run.duration = \"20 s\"".to_owned(),
        format!("link.bottleneck.queue.aqm = {aqm}"),
    ];
    let scenario = Scenario::parse(text, "test.toml", &change).expect("no mistake");
    run(&scenario, 1).map_err(|e| e.to_string())
}

/// Every AQM with a fluid model is solved; others are rejected by name.
#[test]
fn every_aqm_is_solved_or_rejected() {
    for algorithm in AQMS {
        let found = with_aqm(&format!("{{ algorithm = \"{}\" }}", algorithm.name));
        match (algorithm.fluid, found) {
            (Some(_), Ok(table)) => {
                let mean = mean(&table, "throughput");
                assert!(mean > 1e6 && mean <= 20.001e6, "{}: {mean} bit/s", algorithm.name);
            }
            (None, Err(message)) => {
                let start =
                    format!("aqm.algorithm: found {}; allowed in a fluid model: droptail, ", algorithm.name);
                assert!(message.starts_with(&start), "{message}");
            }
            (fluid, _) => panic!("{}: has a fluid model: {}", algorithm.name, fluid.is_some()),
        }
    }
    for (aqm, message) in [
        (
            "{ algorithm = \"ared\", variant = \"feng\" }",
            "aqm.variant: found feng; allowed in a fluid model: floyd",
        ),
        ("{ algorithm = \"pie\", activate = 0.3 }", "aqm.activate: found 0.3; allowed in a fluid model: 0"),
        (
            "{ algorithm = \"pi\", threshold = [[\"0 s\", 0.5], [\"9 s\", 0.9]] }",
            "aqm.threshold: found one that changes; allowed in a fluid model: one that does not",
        ),
    ] {
        assert_eq!(with_aqm(aqm).map(|_| ()), Err(message.to_owned()));
    }
}

/// The limit is 400 packets: with a threshold of 1/2 no packet is marked up to a queue of 200; above it droptail under control
/// marks the share `(q - 200) / 200`. The share over a sample lies between those at its ends.
#[test]
fn threshold_control_suppresses_marks() {
    let table = with_aqm("{ algorithm = \"droptail\", threshold = 0.5 }").expect("a solution");
    let (queue, share) = (table.column("transmit_queue").unwrap(), table.column("mark_probability").unwrap());
    let mut above = 0;
    for (q, p) in queue.windows(2).zip(&share[1..]) {
        let (low, high) = (q[0].min(q[1]), q[0].max(q[1]));
        let ramp = |q: f64| ((q - 200.0) / 200.0).clamp(0.0, 1.0);
        assert!(*p >= ramp(low) - 0.01 && *p <= ramp(high) + 0.01, "{low} to {high} packets: {p}");
        above += u32::from(*p > 0.0);
    }
    assert!(above > 5, "{above} samples above the threshold");
}
