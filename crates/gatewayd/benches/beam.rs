//! A thousand terminals behind the real daemon: `make beam-bench`, as root, or
//! `cargo bench -p bentpipe-gatewayd --bench beam -- 1000 [--rate MBIT/S] [--aqm TABLE] [--send-thread BOOL] [--json FILE]`.
//!
//! Servers, gateway and terminals are network namespaces of one machine. The daemon is the one that is installed; this process
//! emulates all terminals, each with its own key, address, UDP socket and QUIC connection, and delays their datagrams by
//! 300 ms each way. They open streams as terminals do for their users, and check and acknowledge every byte.
//!
//! The gateway's loop has the first processor, and the last one does what the kernels of servers and terminals would do elsewhere.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

#[path = "../tests/common/mod.rs"]
mod common;

#[path = "beam/daemon.rs"]
mod daemon;
#[path = "beam/emulator.rs"]
mod emulator;
#[path = "beam/servers.rs"]
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_spacelink::keygen;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Map, Value, json};

use common::Namespace;
use daemon::Daemon;
use emulator::{Command, Emulator};

/// One-way delay of the satellite.
const DELAY: Duration = Duration::from_millis(300);
/// Rate of the carrier without `--rate` [Mbit/s]: with headers, 200 for users.
const RATE: u64 = 212;
/// Keys of the AQM without `--aqm`.
const AQM: &str = "aqm = { algorithm = \"avqred\" }";
/// Connections of each terminal.
const CONNECTIONS: usize = 4;
/// Plans, and the weight of each; terminals take turns.
const PLANS: [(&str, u32); 3] = [("home", 1), ("shop", 2), ("office", 4)];
/// Time in which idle terminals are measured, and those under load.
const IDLE: Duration = Duration::from_secs(10);
const LOAD: Duration = Duration::from_secs(20);
/// Time after which the load is steady: slow start over 600 ms, and the AQM's first reaction.
const WARM_UP: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Address of terminal `n` on the satellite's side.
fn satellite_address(n: usize) -> [u8; 4] {
    [10, 16, (n >> 8) as u8, n as u8]
}

/// Address of the user behind terminal `n`.
fn user_address(n: usize) -> [u8; 4] {
    [10, 64, (n >> 8) as u8, n as u8]
}

/// Writes the configuration of a gateway with this many terminals, and their keys.
fn configure(folder: &Path, count: usize, rate: u64, aqm: &str, send_thread: &str) -> PathBuf {
    fs::create_dir_all(folder.join("terminals")).expect("a folder");
    let _ = keygen(&folder.join("keys"), "gateway", false);
    for n in 0..count {
        let keys = folder.join(format!("keys{n}"));
        let file = folder.join(format!("terminals/t{n}.toml"));
        if file.exists() {
            continue;
        }
        let [_, certificate] = keygen(&keys, "terminal", false).expect("keys");
        fs::copy(certificate, folder.join(format!("terminals/t{n}.crt"))).expect("a copy");
        let [a, b, c, d] = user_address(n);
        let plan = PLANS[n % PLANS.len()].0;
        let text =
            format!("certificate = \"t{n}.crt\"\nclients = [\"{a}.{b}.{c}.{d}/32\"]\nplan = \"{plan}\"\n");
        fs::write(file, text).expect("a file");
    }
    let plans: String =
        PLANS.iter().map(|(name, weight)| format!("[plan.{name}]\nweight = {weight}\n")).collect();
    let text = format!(
        "role = \"gateway\"\n[gateway]\n{aqm}\nregulator = {{ rate = \"{rate} Mbps\" }}\n\
         pep = {{ buffer = \"32 KB\", buffer_per = \"connection\" }}\ntransmit_queue = {{ limit = \"2 MB\" }}\n\
         [terminals]\nfolder = \"terminals\"\nqueues_per = \"terminal\"\n{plans}[satellite]\nkeys = \"keys\"\n\
         round_trip = \"600 ms\"\nlocal = \"0.0.0.0:4400\"\n[internet]\ndevice = \"in0\"\nclients = [\"10.64.0.0/16\"]\n\
         [metrics]\nlisten = \"127.0.0.1:9180\"\n[process]\nsend_thread = {send_thread}\n"
    );
    let path = folder.join("gateway.toml");
    fs::write(&path, text).expect("a file");
    path
}

/// Jain's index: 1 if all are equal.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (values.len() as f64 * squares)
}

/// Figures by name.
struct Figures(Map<String, Value>);

impl Figures {
    fn note(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name}: {value:.3} {unit}");
        self.0.insert(name.to_owned(), json!(value));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.first().and_then(|word| word.parse().ok()).unwrap_or(1000);
    let after = |option: &str| words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
    let (file, rate) = (after("--json"), after("--rate").and_then(|text| text.parse().ok()).unwrap_or(RATE));
    let aqm = after("--aqm").map_or(AQM, String::as_str);
    let send_thread = after("--send-thread").map_or("true", String::as_str);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("a limit");
    let Some((servers, gateway, terminals)) = world() else { return };
    let folder = std::env::temp_dir().join(format!("bentpipe-beam-bench-{}", std::process::id()));
    let mut figures = Figures(Map::new());
    figures.note("terminals", count as f64, "");
    figures.note("rate", rate as f64, "Mbit/s");
    figures.note(
        "release",
        f64::from(u8::from(!cfg!(debug_assertions))),
        "(1: built with full optimization)",
    );

    // The daemon's memory with one terminal, and with all of them, none of which is connected.
    let config = configure(&folder, 1, rate, aqm, send_thread);
    let alone = Daemon::start(&gateway, &config);
    let base = alone.memory();
    alone.stop();
    let config = configure(&folder, count, rate, aqm, send_thread);
    let daemon = Daemon::start(&gateway, &config);
    let configured = daemon.memory();
    let each = |bytes: f64| bytes / 1e3 / count as f64;
    figures.note("memory_configured", each(configured - base), "KB for each configured terminal");

    let counters = servers::serve(&servers);
    let emulator = Emulator::start(&terminals, &folder, count);
    let (cpu, begin) = (daemon.cpu(), now());
    emulator.send(Command::Connect);
    emulator.wait("connected", |state| state.up == count);
    figures.note("joined", begin.elapsed().as_secs_f64(), "s until all have joined");
    figures.note("join_cpu", (daemon.cpu() - cpu) * 1e3 / count as f64, "ms of the gateway's CPU for each");

    // Until the first pings and repetitions are over.
    thread::sleep(Duration::from_secs(5));
    figures.note("memory_idle", each(daemon.memory() - base), "KB for each idle terminal");
    let cpu = daemon.cpu();
    thread::sleep(IDLE);
    figures.note(
        "idle_cpu",
        100.0 * (daemon.cpu() - cpu) / IDLE.as_secs_f64(),
        "% of a core while all are idle",
    );

    emulator.send(Command::Open(CONNECTIONS));
    emulator.wait("open", |state| state.streams_with_data == count * CONNECTIONS);
    thread::sleep(WARM_UP);
    let cpu_now = || (daemon.cpu(), daemon.send_thread_cpu(), daemon::own_cpu(), daemon::machine_cpu());
    let (begin, before, cpu) = (now(), emulator.received(), cpu_now());
    thread::sleep(LOAD);
    let (time, then, cpu_then) = (begin.elapsed().as_secs_f64(), emulator.received(), cpu_now());
    let received: Vec<f64> =
        then.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
    figures.note("goodput", received.iter().sum::<f64>() * 8e-6 / time, "Mbit/s received by users");
    figures.note("load_cpu", (cpu_then.0 - cpu.0) / time, "cores of the gateway under load");
    figures.note("send_cpu", (cpu_then.1 - cpu.1) / time, "of them cores of its thread that sends");
    figures.note("others_cpu", (cpu_then.2 - cpu.2) / time, "cores of terminals and servers under load");
    figures.note(
        "machine_cpu",
        (cpu_then.3 - cpu.3) / time,
        "cores of the whole machine, its kernel included",
    );
    figures.note("memory_load", each(daemon.memory() - base), "KB for each terminal under load");
    let mut means = Vec::new();
    for (at, (name, weight)) in PLANS.iter().enumerate() {
        let of_plan: Vec<f64> = received.iter().skip(at).step_by(PLANS.len()).copied().collect();
        figures.note(&format!("jain_{name}"), jain(&of_plan), &format!("Jain's index within {name}"));
        means.push(of_plan.iter().sum::<f64>() / of_plan.len() as f64 / f64::from(*weight));
    }
    let (least, most) = means.iter().fold((f64::MAX, 0f64), |(least, most), x| (least.min(*x), most.max(*x)));
    figures.note("plans", 100.0 * (most / least - 1.0), "% between plans, by weight");

    let begin = now();
    daemon.reload();
    figures.note("reload", begin.elapsed().as_secs_f64() * 1e3, "ms for a reload under load");
    let begin = now();
    let text = daemon.get("/metrics");
    figures.note("metrics", begin.elapsed().as_secs_f64() * 1e3, "ms for the metrics");
    figures.note("metrics_size", text.len() as f64 / 1e3, "KB of metrics");
    let of = |name: &str| daemon::sum(&text, name);
    figures.note("nfqueue_lost", of("bentpipe_nfqueue_lost_packets_total"), "packets lost ahead of the AQM");
    figures.note("spacelink_lost", of("bentpipe_spacelink_lost_packets_total"), "packets of spacelinks lost");
    figures.note("resets", of("bentpipe_connection_resets_total"), "connections reset");
    let state = emulator.state();
    assert_eq!((state.wrong, state.ended), (0, 0), "bytes that are wrong, and streams that ended");
    assert_eq!(counters.failed(), 0, "failed connections at the servers");
    if let Some(file) = file {
        let text = serde_json::to_string_pretty(&Value::Object(figures.0)).expect("JSON");
        fs::write(file, text + "\n").expect("the file");
    }
    emulator.stop();
    daemon.stop();
    let _ = fs::remove_dir_all(&folder);
}

/// Servers, gateway and terminals; `None` if this process may not create namespaces.
fn world() -> Option<(Namespace, Namespace, Namespace)> {
    let (servers, gateway, terminals) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    servers.join("out", &gateway, "in0", 1);
    gateway.join("sat", &terminals, "sat", 2);
    servers.ip("route add default via 10.1.0.2");
    gateway.ip("route add 10.16.0.0/16 via 10.2.0.2");
    gateway.sysctl("net/ipv4/ip_forward", "1");
    // Every address of the terminals is local there.
    terminals.ip("route add local 10.16.0.0/16 dev lo");
    terminals.ip("route add default via 10.2.0.1");
    let (_, last) = daemon::processors();
    receive_on(&servers, "out", last);
    receive_on(&terminals, "sat", last);
    Some((servers, gateway, terminals))
}

/// Lets the kernel take packets that arrive at a device through its network stack on this processor (RPS). Otherwise it does
/// so within the call that sends them, and the gateway would do the work of servers and terminals.
fn receive_on(namespace: &Namespace, device: &str, processor: usize) {
    let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    // The devices of a namespace are in the /sys that was mounted there.
    let script = format!("mount -t sysfs sysfs /sys && echo {:x} >{file}", 1u64 << processor);
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let set = namespace.run(move || command.status());
    assert!(set.expect("unshare").success(), "RPS of {device}");
}
