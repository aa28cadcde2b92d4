//! Speed of the simulator: `cargo bench -p bentpipe-sim`, or `make bench`.
//!
//! Each scenario runs a few times with one seed; the fastest run counts, as other load can only slow a run down. Then flows over a
//! dumbbell run here and, if it is installed, on ns-2, by turns, since a machine's speed changes within minutes. A beam with ten to
//! ten thousand terminals comes last.

#![allow(clippy::print_stdout)]

use std::process::Command;

use bentpipe_scenario::Scenario;
use bentpipe_sim::{Progress, Results, run};
use cpu_time::ThreadTime;

const SCENARIOS: &[(&str, &str)] =
    &[("byun2007-gateway", "RED 4"), ("byun2007-gateway", "AVQRED"), ("red-dumbbell", "")];
const RUNS: u32 = 3;
/// Runs of a dumbbell on each simulator, by turns.
const ROUNDS: u32 = 9;

/// Flows over one link with RED, on both simulators.
struct Dumbbell {
    name: &'static str,
    flows: u32,
    rate_mbps: u32,
    round_trip_ms: u32,
    /// Lengths of two runs [s], whose difference leaves out what it takes to set one up.
    ends: [u32; 2],
    /// Thresholds of RED, and the length of its queue [packets].
    queue: [u32; 3],
}

const QUEUE: [u32; 3] = [60, 120, 400];

/// The scenarios that ns-2 runs, too.
const DUMBBELLS: [Dumbbell; 3] = [
    Dumbbell { name: "S1", flows: 50, rate_mbps: 20, round_trip_ms: 560, ends: [20, 200], queue: QUEUE },
    Dumbbell { name: "S2", flows: 400, rate_mbps: 20, round_trip_ms: 60, ends: [20, 120], queue: QUEUE },
    Dumbbell { name: "S3", flows: 400, rate_mbps: 200, round_trip_ms: 60, ends: [10, 30], queue: QUEUE },
];

/// The state of all flows is larger than a processor's cache.
const LARGE: Dumbbell = Dumbbell {
    name: "S4",
    flows: 50_000,
    rate_mbps: 20_000,
    round_trip_ms: 60,
    ends: [1, 10],
    queue: [60_000, 120_000, 400_000],
};

/// Numbers of terminals that share one carrier with the same traffic.
const TERMINALS: [u32; 4] = [10, 100, 1000, 10_000];

/// Lengths of two runs of a beam [s].
const BEAM_ENDS: [u32; 2] = [20, 50];

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_wanted = |label: &str| only.is_empty() || only.iter().any(|part| label.contains(part.as_str()));
    println!(
        "{:32} {:>10} {:>12} {:>14} {:>14}",
        "scenario", "CPU s", "sim s/CPU s", "packets/CPU s", "events/CPU s"
    );
    for (name, setting) in SCENARIOS {
        let label = format!("{name} {setting}");
        if !is_wanted(&label) {
            continue;
        }
        let path = format!("../../scenarios/{name}.toml");
        let mut scenario = Scenario::load(&path, &[]).expect("the scenario can be read");
        if !setting.is_empty() {
            scenario = scenario.with_setting(setting).expect("the setting exists");
        }
        let (best, results) = fastest(&scenario, RUNS);
        let simulated = results.end.as_secs_f64();
        println!(
            "{label:32} {best:>10.3} {:>12.0} {:>14.0} {:>14.0}",
            simulated / best,
            packets(&results) / best,
            results.events as f64 / best
        );
    }
    if DUMBBELLS.iter().chain([&LARGE]).any(|dumbbell| is_wanted(dumbbell.name)) {
        println!();
        println!("{:32} {:>10} {:>12} {:>14}", "dumbbell", "ns/packet", "of ns-2", "ns-2 = 1");
    }
    for dumbbell in DUMBBELLS.iter().filter(|dumbbell| is_wanted(dumbbell.name)) {
        let label = dumbbell.label();
        let (mut ours, mut theirs) = ([(f64::INFINITY, 0.0); 2], [None; 2]);
        for _ in 0..ROUNDS {
            for (end, (best, there)) in dumbbell.ends.into_iter().zip(ours.iter_mut().zip(&mut theirs)) {
                *best = faster(dumbbell.simulate(end, 1), *best);
                *there = dumbbell.run_on_ns2(end).map(|run| there.map_or(run, |best| faster(run, best)));
            }
        }
        let ours = per_packet(ours);
        match theirs {
            [Some(short), Some(long)] => {
                let theirs = per_packet([short, long]);
                println!("{label:32} {ours:>10.0} {theirs:>12.0} {:>14.1}", theirs / ours);
            }
            _ => println!("{label:32} {ours:>10.0} {:>12} {:>14}", "–", "–"),
        }
    }
    if is_wanted(LARGE.name) {
        // The long run comes first: memory that another one has left would count.
        let (long, memory) = (LARGE.simulate(LARGE.ends[1], 1), peak_memory());
        let short = LARGE.simulate(LARGE.ends[0], 1);
        println!("{:32} {:>10.0} {:>12} {:>14}", LARGE.label(), per_packet([short, long]), "–", "–");
        println!("    {:.1} CPU s for {} s, memory up to {memory:.0} MB", long.0, LARGE.ends[1]);
    }
    if is_wanted("beam") {
        println!("\n{:32} {:>10} {:>14}", "beam", "ns/packet", "10 = 1");
        let mut of_ten = None;
        for terminals in TERMINALS {
            let ours = per_packet(BEAM_ENDS.map(|end| simulate_beam(terminals, end)));
            let growth = ours / *of_ten.get_or_insert(ours);
            println!("{:32} {ours:>10.0} {growth:>14.2}", format!("{terminals} terminals"));
        }
    }
}

/// Time [CPU s] and packets of the scenario `beam` with other numbers of terminals and the same committed rate in total.
fn simulate_beam(terminals: u32, end: u32) -> (f64, f64) {
    let (homes, offices) = (terminals / 10 * 9, terminals / 10);
    let overrides = [
        "run.warmup=0 s".to_owned(),
        format!("run.duration={end} s"),
        format!("terminal.home.count={homes}"),
        format!("terminal.office.count={offices}"),
        format!("host.resident.count={}", homes.max(1800)),
        format!("host.clerk.count={}", offices.max(200)),
        "plan.home.down.pir=1 Gbps".to_owned(),
        format!("plan.office.down={{ cir = \"{} kbps\", pir = \"1 Gbps\", weight = 4 }}", 100_000 / offices),
    ];
    let scenario = Scenario::load("../../scenarios/beam.toml", &overrides);
    let (best, results) = fastest(&scenario.expect("the scenario can be read"), RUNS);
    (best, packets(&results))
}

/// Peak memory of this process [MB].
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("its state");
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    kilobytes.and_then(|text| text.trim().parse::<f64>().ok()).expect("a number") * 1024e-6
}

/// The shortest of some runs [CPU s], and the results.
fn fastest(scenario: &Scenario, runs: u32) -> (f64, Results) {
    let mut best: Option<(f64, Results)> = None;
    for _ in 0..runs {
        let started = ThreadTime::now();
        let results = run(scenario, 1, &Progress::default()).expect("the run succeeds");
        let elapsed = started.elapsed().as_secs_f64();
        let least = best.as_ref().map_or(f64::INFINITY, |(best, _)| *best);
        best = Some((elapsed.min(least), results));
    }
    best.expect("there are runs")
}

/// Packets of a run. The summary counts the measured time only; the warm-up's packets are in proportion.
fn packets(results: &Results) -> f64 {
    let simulated = results.end.as_secs_f64();
    let measured = (results.end - results.begin).as_secs_f64();
    results.summary.sent_packets as f64 * simulated / measured
}

/// The faster of two runs, each with its time [CPU s] and its packets.
fn faster(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    if one.0 < other.0 { one } else { other }
}

/// Time per packet [ns] of a long run beyond a short one, each with its time [CPU s] and its packets.
fn per_packet([short, long]: [(f64, f64); 2]) -> f64 {
    (long.0 - short.0) * 1e9 / (long.1 - short.1)
}

impl Dumbbell {
    fn label(&self) -> String {
        let Self { name, flows, rate_mbps, round_trip_ms, .. } = self;
        format!("{name}: {flows} flows, {rate_mbps} Mbit/s, {round_trip_ms} ms")
    }

    /// Delay of the links at both ends, as in `speed.tcl` [ms].
    fn edge_ms(&self) -> u32 {
        if self.round_trip_ms < 100 { 10 } else { 15 }
    }

    /// Time of the fastest of some runs [CPU s], and its packets.
    fn simulate(&self, end: u32, runs: u32) -> (f64, f64) {
        let edge = self.edge_ms();
        let [min_th, max_th, limit] = self.queue;
        let overrides = [
            "run.warmup=0 s".to_owned(),
            format!("run.duration={end} s"),
            format!("host.s.count={}", self.flows),
            format!("host.d.count={}", self.flows),
            format!("traffic.bulk.flows={}", self.flows),
            format!("link.left.delay={edge} ms"),
            format!("link.right.delay={edge} ms"),
            format!("link.bottleneck.delay={} ms", self.round_trip_ms / 2 - 2 * edge),
            format!("link.bottleneck.rate={} Mbps", self.rate_mbps),
            format!("link.bottleneck.queue.limit={limit} packets"),
            format!("link.bottleneck.queue.aqm.min_th={min_th}"),
            format!("link.bottleneck.queue.aqm.max_th={max_th}"),
        ];
        let scenario = Scenario::load("../../scenarios/red-dumbbell.toml", &overrides);
        let (best, results) = fastest(&scenario.expect("the scenario can be read"), runs);
        (best, packets(&results))
    }

    /// Time [CPU s] and packets of a run on ns-2; `None` if it is not installed.
    fn run_on_ns2(&self, end: u32) -> Option<(f64, f64)> {
        let output = Command::new("bash")
            .args(["-c", "TIMEFORMAT=%U; time ns \"$@\"", "ns", "../../python/tests/truth/speed.tcl"])
            .arg(format!("{}Mb", self.rate_mbps))
            .arg(format!("{}", f64::from(self.round_trip_ms) / 1000.0))
            .args([self.flows.to_string(), end.to_string()])
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let packets = text(&output.stdout).parse().ok()?;
        Some((text(&output.stderr).lines().last()?.parse().ok()?, packets))
    }
}
