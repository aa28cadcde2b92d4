//! The table `model`: defaults, mistakes and measured series.

use std::fs;
use std::path::PathBuf;

use bentpipe_scenario::{Equations, MeasuredSeries, ModelKind, Scenario};

const LINK: &str = r#"title = "t"
[run]
duration = "10 s"
[host.s]
[host.d]
[link.l]
between = ["s", "d"]
rate = "1 Mbps"
queue = { limit = "10 packets" }
[traffic.t]
kind = "poisson"
from = "s"
to = "d"
rate = "500 kbps"
packet = "1000 B"
"#;

const SERIES: &str = r#"{"bentpipe": "measured series", "version": 1, "interval": 0.1, "points": 500, "more": [1],
"pep_delay": {"unit": "s", "mean": 0.01, "cos": [1e-3], "sin": [2e-3]},
"load_ratio": {"mean": 1.0, "cos": [], "sin": []}}"#;

/// Temporary folder with the scenario and optionally its series.
fn folder(name: &str, series: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("models-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("my.toml"), LINK).unwrap();
    if let Some(series) = series {
        fs::write(folder.join("s.json"), series).unwrap();
    }
    folder
}

fn with(changes: &[&str]) -> Result<Scenario, String> {
    let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
    Scenario::parse(LINK, "my.toml", &changes).map_err(|e| e.to_string())
}

fn read(name: &str, series: &str) -> Result<MeasuredSeries, String> {
    let folder = folder(name, Some(series));
    let scenario = Scenario::load(folder.join("my.toml"), &["model.series=s.json".to_owned()]).unwrap();
    scenario.models.series.unwrap().map_err(|e| e.to_string().replace(&format!("{}/", folder.display()), ""))
}

/// Without the table, the papers' values apply and no key is listed.
#[test]
fn model_defaults_follow_the_papers() {
    let scenario = with(&[]).unwrap();
    let m = &scenario.models;
    assert_eq!((m.time_unit.as_nanos(), m.step.as_nanos()), (100_000_000, 1_000_000));
    assert_eq!((m.erlang_stages, m.states, m.kind, m.equations), (4, None, None, None));
    assert!(scenario.effective().iter().all(|row| !row.key.starts_with("model")));
    let given = with(&["model.kind=markov", "model.equations=end_to_end"]).unwrap();
    assert_eq!(
        (given.models.kind, given.models.equations),
        (Some(ModelKind::Markov), Some(Equations::EndToEnd))
    );
    assert!(given.effective().iter().any(|row| row.key == "model.step" && row.value == "1 ms"));
}

/// Simulations ignore the table, so it is not part of the canonical form.
#[test]
fn model_keys_do_not_change_the_canonical_form() {
    assert_eq!(with(&[]).unwrap().canonical_json(), with(&["model.step=2 ms"]).unwrap().canonical_json());
}

#[test]
fn model_mistakes_give_one_message() {
    for (changes, message) in [
        (
            &["model.step=1 s"][..],
            "--set model.step=1 s: model.step: found 1 s; allowed: at most time_unit, 100 ms",
        ),
        (
            &["model.history=10000 s", "model.step=1 us"],
            "--set model.history=10000 s: model.history: found 10000 s; allowed: at most 1000000 times step, 1 us",
        ),
    ] {
        assert_eq!(with(changes).unwrap_err(), message);
    }
    let unknown = with(&["model.kind=petri"]).unwrap_err();
    assert!(
        unknown.contains("petri") && unknown.contains("fluid") && unknown.contains("markov"),
        "{unknown}"
    );
}

#[test]
fn measured_series_load() {
    let series = read("good", SERIES).unwrap();
    assert_eq!((series.period, series.pep_delay.mean, series.pep_delay.sin[0]), (50.0, 0.01, 2e-3));
    assert!(series.new_connections.is_none());
}

#[test]
fn invalid_series_give_one_message() {
    for (name, from, to, message) in [
        (
            "kind",
            "measured series",
            "manifest",
            "s.json: found \"manifest\", version 1; allowed: measured series, a file of `bentpipe model capture`, version 1",
        ),
        (
            "points",
            "500",
            "0",
            "s.json: found 0 points at an interval of 0.1 s; allowed: more than none, further apart than 0 s",
        ),
        (
            "lengths",
            "\"cos\": [1e-3]",
            "\"cos\": []",
            "s.json, pep_delay: found 0 cosines and 1 sines; allowed: as many of each",
        ),
        (
            "json",
            "\"mean\": 1.0,",
            "",
            "s.json: found JSON with a mistake, missing field `mean` at line 3 column 37; allowed: measured series, a file of `bentpipe model capture`",
        ),
    ] {
        let found = read(name, &SERIES.replace(from, to)).unwrap_err();
        assert!(found.ends_with(message), "{found}");
    }
}

/// Simulations ignore the series, so only a model reports that it is missing.
#[test]
fn a_missing_series_fails_only_in_the_model() {
    let scenario = with(&["model.series=nothing.json"]).unwrap();
    let message = scenario.models.series.unwrap().unwrap_err().to_string();
    assert!(
        message.contains("nothing.json cannot be read") && message.contains("bentpipe model capture"),
        "{message}"
    );
}
