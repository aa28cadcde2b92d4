//! Any text as a scenario: nothing panics; what is accepted is read again to the same, and begins to run if it is small.
//!
//! The first byte selects what the rest is: a whole scenario, lines of overrides of a small scenario, or a file that a
//! scenario names (a capacity trace, a packet capture, sizes of video frames, a table of sizes).

use bentpipe_scenario::{Packed, Scenario};
use bentpipe_sim::Simulation;
use bentpipe_units::{Duration, Instant};

/// A dumbbell, a gateway, and many parts together.
pub const BASES: [&str; 3] = [
    include_str!("../../scenarios/red-dumbbell.toml"),
    include_str!("../../scenarios/small-gateway.toml"),
    include_str!("../../scenarios/unsplit-udp.toml"),
];

/// Traffic and links that read the file `f`.
const READERS: [&str; 4] = [
    "link.bottleneck.capacity={ trace = 'f' }",
    "traffic.more={ kind = 'replay', from = 's', to = 'd', capture = 'f' }",
    "traffic.more={ kind = 'video', from = 's', to = 'd', rate = '1 Mbps', trace = 'f' }",
    "traffic.more={ kind = 'files', from = 's', to = 'd', sources = 2, size = { trace = 'f' }, think_time = '1 s' }",
];

/// Most hosts, terminals, flows and samples of a scenario that begins to run.
const MOST: u64 = 2000;

/// Fate of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has a mistake, which the message names.
    Refused,
    /// It is a scenario, too large to begin here, or without a packet at its subject.
    Read,
    /// Packets passed its subject.
    Begun,
}

/// Reads the text; returns the first problem found.
pub fn run(bytes: &[u8]) -> Result<Fate, String> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(Fate::Refused) };
    let text = || String::from_utf8_lossy(rest).into_owned();
    match kind % 4 {
        0 => read(&text(), &[], None),
        1 => {
            let (base, lines) = rest.split_first().unwrap_or((&0, &[]));
            let lines = String::from_utf8_lossy(lines).into_owned();
            let overrides: Vec<_> = lines.lines().take(20).map(str::to_owned).collect();
            read(BASES[usize::from(*base) % BASES.len()], &overrides, None)
        }
        _ => {
            let (reader, file) = rest.split_first().unwrap_or((&0, &[]));
            let reader = READERS[usize::from(*reader) % READERS.len()].to_owned();
            read(BASES[0], &[reader], Some(file))
        }
    }
}

/// Reads a scenario that names the file `f` if there is one, whose content is `file`.
fn read(text: &str, overrides: &[String], file: Option<&[u8]>) -> Result<Fate, String> {
    let packed = Packed {
        file: "x.toml".to_owned(),
        text: text.to_owned(),
        overrides: overrides.to_vec(),
        setting: None,
        parameters: Vec::new(),
        files: Vec::new(),
    };
    let files = || file.map(|bytes| ("f".to_owned(), bytes.to_vec()));
    let scenario = match Scenario::unpack(&packed, files()) {
        Ok(scenario) => scenario,
        Err(error) => return message(&error.to_string()).map(|()| Fate::Refused),
    };
    let again = scenario.packed().map(|packed| Scenario::unpack(&packed, files()));
    match again {
        Some(Ok(again)) if again.canonical_json() != scenario.canonical_json() => {
            return Err("a packed scenario differs from its origin".to_owned());
        }
        Some(Err(error)) => return Err(format!("a packed scenario is refused: {error}")),
        _ => {}
    }
    if is_small(&scenario) { begin(&scenario) } else { Ok(Fate::Read) }
}

/// Fails unless an error's text is one line that says where.
fn message(text: &str) -> Result<(), String> {
    let is_placed = text.starts_with("x.toml") || text.starts_with("--set ") || text.starts_with("f:");
    match text {
        _ if text.contains('\n') => Err(format!("a message has several lines: {text:?}")),
        _ if !is_placed => Err(format!("a message does not say where: {text:?}")),
        _ => Ok(()),
    }
}

fn is_small(scenario: &Scenario) -> bool {
    let hosts: u64 = scenario.hosts.iter().map(|host| u64::from(host.count)).sum();
    let links: u64 = scenario.links.iter().map(|link| u64::from(scenario.members(link))).sum();
    let run = &scenario.run;
    let samples = run.duration.as_nanos() / run.sample_interval.as_nanos().max(1);
    hosts + links + samples < MOST && run.warmup + run.duration <= Duration::from_secs(3)
}

/// Simulates the first packets.
fn begin(scenario: &Scenario) -> Result<Fate, String> {
    // A scenario may be refused when it is built, with a reason.
    let Ok(mut simulation) = Simulation::new(scenario, 1, None) else { return Ok(Fate::Read) };
    let mut last = Instant::ZERO;
    let mut fate = Fate::Read;
    for _ in 0..50 {
        if !simulation.step().map_err(|e| e.to_string())? {
            break;
        }
        fate = Fate::Begun;
        if simulation.now() < last {
            return Err("time goes back".to_owned());
        }
        last = simulation.now();
    }
    Ok(fate)
}
