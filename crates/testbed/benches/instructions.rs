//! Sections of which Callgrind counts the instructions: `make instructions`.
//!
//! Each section runs once, after a warm-up that is not counted. A line is printed for each: its name, the unit that the
//! count is divided by, and the number of units.

#![allow(clippy::print_stdout)]

#[path = "../../queue/benches/packets/load.rs"]
#[expect(dead_code, reason = "the speed benchmark uses the rest")]
mod load;
#[path = "../../spacelink/benches/spacelink/transfer.rs"]
#[expect(dead_code, reason = "the speed benchmark uses the rest")]
mod transfer;

use bentpipe_scenario::Scenario;
use bentpipe_sim::Simulation;
use bentpipe_units::Instant;

use load::Load;
use transfer::Transfer;

/// Scenarios and settings, as in the simulator's speed benchmark.
const SCENARIOS: &[(&str, &str)] =
    &[("red-dumbbell", "RED 60/120"), ("byun2007-gateway", "RED 4"), ("byun2007-gateway", "AVQRED")];
/// Counted time of a scenario: beginning and end [s].
const SECONDS: (u64, u64) = (20, 25);
/// Counted packets of an algorithm, and as many twice before them; a power of two.
const PACKETS: usize = 1 << 13;
/// Flows of these packets.
const FLOWS: u32 = 1000;
/// Rounds of a spacelink: before the counted ones, and counted.
const ROUNDS: (usize, usize) = (500, 1000);

/// Callgrind writes the number of instructions since the last call, and begins again at zero.
#[inline(never)]
fn section_boundary(place: &str) {
    std::hint::black_box(place);
}

/// Runs a section and describes it: its name, the unit, and the number of units.
fn count(name: &str, unit: &str, units: u64, section: impl FnOnce()) {
    section_boundary("begin");
    section();
    section_boundary("end");
    println!("{name}\t{unit}\t{units}");
}

fn simulator() {
    for (name, setting) in SCENARIOS {
        let path = format!("../../scenarios/{name}.toml");
        let scenario = Scenario::load(&path, &[]).expect("the scenario can be read");
        let scenario = scenario.with_setting(setting).expect("the setting exists");
        let mut simulation = Simulation::new(&scenario, 1, None).expect("the run can begin");
        let [begin, end] = [SECONDS.0, SECONDS.1].map(|s| Instant::from_nanos(s * 1_000_000_000));
        simulation.advance(begin).expect("the run continues");
        let label = format!("simulator: {name}, {setting}");
        count(&label, "simulated second", SECONDS.1 - SECONDS.0, || {
            simulation.advance(end).expect("the run continues");
        });
    }
}

fn algorithms() {
    for (name, make) in load::all() {
        let mut load = Load::passing(&*make, FLOWS, load::standing(), PACKETS);
        count(&format!("algorithm: {name}"), "packet", PACKETS as u64, || load.run(PACKETS));
    }
}

fn spacelink() {
    for case in transfer::CASES {
        let mut transfer = Transfer::new(case, u64::MAX);
        while !transfer.is_open() {
            transfer.round();
        }
        (0..ROUNDS.0).for_each(|_| transfer.round());
        count(&format!("spacelink: {}", case.name), "round", ROUNDS.1 as u64, || {
            (0..ROUNDS.1).for_each(|_| transfer.round());
        });
    }
}

fn main() {
    simulator();
    algorithms();
    spacelink();
}
