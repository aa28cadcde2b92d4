//! Speed of the simulator: `cargo bench -p bentpipe-sim`, or `make bench`.
//!
//! Each scenario runs a few times with one seed; the fastest run counts, as other load can only slow a run down.

#![allow(clippy::print_stdout)]

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, run};
use cpu_time::ThreadTime;

const SCENARIOS: &[(&str, &str)] =
    &[("byun2007-gateway", "RED 4"), ("byun2007-gateway", "AVQRED"), ("red-dumbbell", "")];
const RUNS: u32 = 3;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    println!(
        "{:32} {:>10} {:>12} {:>14} {:>14}",
        "scenario", "CPU s", "sim s/CPU s", "packets/CPU s", "events/CPU s"
    );
    for (name, setting) in SCENARIOS {
        let label = format!("{name} {setting}");
        if !only.is_empty() && !only.iter().any(|part| label.contains(part.as_str())) {
            continue;
        }
        let path = format!("../../scenarios/{name}.toml");
        let mut scenario = Scenario::load(&path, &[]).expect("the scenario can be read");
        if !setting.is_empty() {
            scenario = scenario.with_setting(setting).expect("the setting exists");
        }
        let mut best = f64::INFINITY;
        let (mut simulated, mut packets, mut events) = (0.0, 0.0, 0.0);
        for _ in 0..RUNS {
            let started = ThreadTime::now();
            let results = run(&scenario, 1, &Progress::default()).expect("the run succeeds");
            best = best.min(started.elapsed().as_secs_f64());
            simulated = results.end.as_secs_f64();
            // The summary counts the measured time only; the warm-up's packets are in proportion.
            let measured = (results.end - results.begin).as_secs_f64();
            packets = results.summary.sent_packets as f64 * simulated / measured;
            events = results.events as f64;
        }
        println!(
            "{label:32} {best:>10.3} {:>12.0} {:>14.0} {:>14.0}",
            simulated / best,
            packets / best,
            events / best
        );
    }
}
