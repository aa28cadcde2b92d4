//! Helpers for tests of whole runs.

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, Results, run};

/// A scenario of the project, with overrides.
#[allow(dead_code)]
pub fn shipped(name: &str, overrides: &[&str]) -> Scenario {
    let path = format!("../../scenarios/{name}.toml");
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::load(&path, &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// Results of a run that must succeed; the run itself checks its counter identities.
pub fn results(scenario: &Scenario, seed: u64) -> Results {
    run(scenario, seed, &Progress::default()).unwrap_or_else(|e| panic!("{}: {e}", scenario.title))
}

/// The mean of a series.
#[allow(dead_code)]
pub fn mean(results: &Results, series: &str) -> f64 {
    let values = &results.series.iter().find(|s| s.name == series).unwrap().values;
    values.iter().sum::<f64>() / values.len() as f64
}
