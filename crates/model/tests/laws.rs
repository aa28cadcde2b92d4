//! Which law of an AQM the fluid equations take, and what of it is seen in their solution.

use bentpipe_model::{Table, run};
use bentpipe_scenario::Scenario;

/// Fifty connections with a round trip of 100 ms behind a RED that lets their queue stand still, without the `wait` of ns-2,
/// under `rest` of the table `[model]`.
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
    run(&scenario, 1).expect("it is covered")
}

fn mean(table: &Table, column: &str) -> f64 {
    let values = table.column(column).expect("it is there");
    values.iter().sum::<f64>() / values.len() as f64
}

/// RED's marking function rises from 0 at an average of no packets to 1/2 at 400. Printed, that is the share of marks; the
/// algorithm spreads marks evenly, and with a probability of 1/n marks 2/n.
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
