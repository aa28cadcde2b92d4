//! Runs with an AQM supplied by the caller.

use crate::common::{results, shipped};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, Results, Sinks, Watch, run_with};

/// Results of `scenario` with the AQM of `other` supplied by the caller, and the number of AQMs built.
fn given(scenario: &Scenario, other: &Scenario) -> (Results, u32) {
    let spec = other.subject_aqm().unwrap();
    let mut made = 0;
    let mut make = || {
        made += 1;
        (spec.algorithm.build)(&spec.values).unwrap()
    };
    let watch = Watch::default();
    let sinks = Sinks { observe: &mut |_| {}, log: &mut |_| {} };
    let (found, _) = run_with(scenario, 1, &Progress::default(), &watch, sinks, Some(&mut make)).unwrap();
    (found, made)
}

/// A supplied AQM replaces that of a setting, at a gateway and on a link, and draws from the same random stream.
#[test]
fn a_supplied_aqm_gives_the_results_of_the_same_setting() {
    for (name, setting) in [("small-gateway", "avqred"), ("red-dumbbell", "avq")] {
        let scenario = shipped(name, &["run.duration=20 s"]);
        let set = scenario.with_setting(setting).unwrap();
        let (found, made) = given(&scenario, &set);
        let wanted = results(&set, 1);
        assert_eq!(made, 1, "{name}");
        assert_eq!(format!("{:?}", found.series), format!("{:?}", wanted.series), "{name}");
        assert_eq!(format!("{:?}", found.drops), format!("{:?}", wanted.drops), "{name}");
        assert_eq!(format!("{:?}", found.flows), format!("{:?}", wanted.flows), "{name}");
        assert_ne!(found.events, results(&scenario, 1).events, "{name}: {setting} changes something");
    }
}

/// Threshold control applies to a supplied AQM as to any other.
#[test]
fn a_supplied_aqm_can_be_under_threshold_control() {
    let overrides =
        ["run.duration=20 s", "gateway.aqm.threshold=0.5", "gateway.transmit_queue.limit=60 packets"];
    let scenario = shipped("small-gateway", &overrides);
    let set = scenario.with_setting("avqred").unwrap();
    let (found, _) = given(&scenario, &set);
    assert_eq!(format!("{:?}", found.series), format!("{:?}", results(&set, 1).series));
}
