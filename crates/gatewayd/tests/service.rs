//! The daemon as seen by its service manager: it reports readiness and liveness, serves its state, applies changes of its
//! configuration, refuses an invalid one, and cleans up.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use crate::common::{Namespace, retry};
use crate::prometheus::parse;
use bentpipe_spacelink::keygen;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PORT: u16 = 9180;

/// A daemon that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("bentpipe-service-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    ["gateway", "terminal"]
        .iter()
        .for_each(|name| drop(keygen(&folder.join("keys"), name, false).expect("keys")));
    folder
}

/// Configuration of a gateway; `max_p` is RED's.
fn text(max_p: &str, rate: &str, more: &str) -> String {
    format!(
        "role = \"gateway\"\n[gateway]\naqm = {{ algorithm = \"red\", max_p = {max_p} }}\nregulator = {{ rate = \"{rate}\" }}\n\
         [satellite]\nlocal = \"10.1.0.1:4400\"\npeer = \"10.1.0.9:4400\"\nkeys = \"keys\"\n\
         [internet]\ndevice = \"to-b\"\nclients = [\"10.3.0.0/24\"]\n\
         [metrics]\nlisten = \"127.0.0.1:{PORT}\"\ninterval = \"100 ms\"\nkeep = \"10 s\"\n{more}"
    )
}

/// Starts the daemon in a namespace, with a socket in place of the service manager's. `under` is a wrapper command.
fn start(namespace: &Namespace, config: &Path, manager: &Path, under: &'static [&'static str]) -> Running {
    let (config, manager) = (config.to_owned(), manager.to_owned());
    Running(namespace.run(move || {
        let words = [under, &[env!("CARGO_BIN_EXE_bentpipe-gateway"), "run"]].concat();
        Command::new(words[0])
            .args(&words[1..])
            .arg(config)
            .env("NOTIFY_SOCKET", manager)
            .env("WATCHDOG_USEC", "400000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon starts")
    }))
}

/// Waits for a message to the service manager that begins with `wanted`. Returns the number of messages before it.
fn heard(manager: &UnixDatagram, wanted: &str) -> usize {
    let mut bytes = [0; 256];
    for before in 0..200 {
        let len = retry(|| manager.recv(&mut bytes)).unwrap_or_else(|e| panic!("{wanted} did not come: {e}"));
        if bytes[..len].starts_with(wanted.as_bytes()) {
            return before;
        }
    }
    panic!("{wanted} did not come");
}

/// Polls the metrics ten times a second until `is_so`, for at most twenty seconds.
fn wait_for(namespace: &Namespace, is_so: impl Fn(&str) -> bool) -> crate::prometheus::Parsed {
    let mut text = get(namespace, "/metrics");
    for _ in 0..200 {
        if is_so(&text) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
        text = get(namespace, "/metrics");
    }
    parse(&text)
}

fn get(namespace: &Namespace, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    namespace.run(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", PORT)).expect("a listener");
        stream.write_all(request.as_bytes()).expect("a request sent");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.split_once("\r\n\r\n").expect("a head").1.to_owned()
    })
}

#[test]
fn the_service_manager_starts_watches_reloads_and_stops_it() {
    let Some((a, _b)) = crate::common::pair() else { return };
    let folder = folder("run");
    let (config, socket) = (folder.join("g.toml"), folder.join("manager"));
    fs::write(&config, text("0.1", "20 Mbps", "")).expect("a file");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let rules = a.command("iptables-nft-save");
    let mut daemon = start(&a, &config, &socket, &[]);
    let pid = Pid::from_raw(daemon.0.id().cast_signed());
    heard(&manager, "READY=1");
    heard(&manager, "WATCHDOG=1");
    heard(&manager, "WATCHDOG=1");

    // CAP_NET_ADMIN and CAP_NET_RAW remain, in every thread.
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten() {
        let status = fs::read_to_string(task.path().join("status")).expect("a status");
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let line = status.lines().find(|line| line.starts_with(set)).expect(set);
            assert!(line.ends_with("0000000000003000"), "{line}");
        }
    }

    let metrics = wait_for(&a, |metrics| metrics.contains("bentpipe_capacity_bytes_per_second 2500000\n"));
    assert_eq!(metrics.value("bentpipe_capacity_bytes_per_second", &[]), 2_500_000.0);
    assert_eq!(metrics.value("bentpipe_spacelink_up", &[]), 0.0);
    assert_eq!(metrics.value("bentpipe_bottleneck", &[("limit", "nothing")]), 1.0);
    assert_eq!(metrics.value("bentpipe_config_last_reload_successful", &[]), 1.0);
    assert_eq!(get(&a, "/healthz"), "ok, spacelink down\n");
    assert!(get(&a, "/state.json").contains("\"aqm\":\"red\""));

    // Algorithm and rate change at once; the MTU needs a restart.
    let changed = text("0.1", "10 Mbps", "")
        .replace("red\", max_p = 0.1", "avq\"")
        .replace("keys =", "mtu = \"1400 B\"\nkeys =");
    fs::write(&config, changed).expect("a file");
    kill(pid, Signal::SIGHUP).expect("a running process");
    heard(&manager, "RELOADING=1\nMONOTONIC_USEC=");
    heard(&manager, "READY=1");
    let metrics = wait_for(&a, |metrics| metrics.contains("bentpipe_capacity_bytes_per_second 1250000\n"));
    assert_eq!(metrics.value("bentpipe_capacity_bytes_per_second", &[]), 1_250_000.0);
    assert!(get(&a, "/state.json").contains("\"aqm\":\"avq\""));

    // An invalid file changes nothing.
    fs::write(&config, text("7", "5 Mbps", "")).expect("a file");
    kill(pid, Signal::SIGHUP).expect("a running process");
    heard(&manager, "RELOADING=1");
    heard(&manager, "READY=1");
    let refused = "bentpipe_config_last_reload_successful 0\n";
    let metrics = wait_for(&a, |metrics| metrics.contains(refused));
    assert_eq!(metrics.value("bentpipe_config_last_reload_successful", &[]), 0.0);
    assert_eq!(metrics.value("bentpipe_capacity_bytes_per_second", &[]), 1_250_000.0);

    kill(pid, Signal::SIGTERM).expect("a running process");
    heard(&manager, "STOPPING=1");
    assert!(daemon.0.wait().expect("an exit").success());
    let mut log = String::new();
    daemon.0.stderr.take().expect("its log").read_to_string(&mut log).expect("text");
    for line in [
        "event=ready role=gateway",
        "event=reloaded changed=aqm,rate",
        "event=reload_needs_restart key=satellite.mtu",
        "event=reload_refused problem=",
        "event=stopping",
    ] {
        assert!(log.contains(line), "{line} is not in {log}");
    }
    assert!(log.contains("gateway.aqm.max_p: found 7; allowed: "), "{log}");
    let comments = |text: &str| {
        text.lines().filter(|l| !l.starts_with(['#', ':'])).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!comments(&a.command("iptables-nft-save")).iter().any(|line| line.contains("bentpipe")));
    assert!(comments(&rules).iter().all(|line| comments(&a.command("iptables-nft-save")).contains(line)));
    fs::remove_dir_all(&folder).expect("an existing file");
}

/// Started as by the unit: root with two capabilities, none gained by exec.
#[test]
fn two_capabilities_suffice() {
    let Some((a, _b)) = crate::common::pair() else { return };
    let folder = folder("two");
    let (config, socket) = (folder.join("g.toml"), folder.join("manager"));
    fs::write(&config, text("0.1", "20 Mbps", "")).expect("a file");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let under = &[
        "setpriv",
        "--no-new-privs",
        "--bounding-set=-all,+net_admin,+net_raw",
        "--inh-caps=-all,+net_admin,+net_raw",
        "--ambient-caps=-all,+net_admin,+net_raw",
    ];
    let mut daemon = start(&a, &config, &socket, under);
    heard(&manager, "READY=1");
    assert!(a.command("iptables-nft-save").contains("-j NFQUEUE"));
    kill(Pid::from_raw(daemon.0.id().cast_signed()), Signal::SIGTERM).expect("a running process");
    assert!(daemon.0.wait().expect("an exit").success());
    assert!(!a.command("iptables-nft-save").contains("-j NFQUEUE"));
    fs::remove_dir_all(&folder).expect("an existing file");
}

fn gateway(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bentpipe-gateway"))
        .args(arguments)
        .output()
        .expect("a running process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_lists_values_and_errors() {
    let folder = folder("check");
    let config = folder.join("g.toml");
    let path = config.to_str().expect("text");
    fs::write(&config, text("0.1", "20 Mbps", "")).expect("a file");
    let (code, out, err) = gateway(&["check", path]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let words = |key: &str| {
        let line = out
            .lines()
            .find(|line| line.split_whitespace().next() == Some(key))
            .unwrap_or_else(|| panic!("{out}"));
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words("gateway.aqm.max_p"), "0.1 given");
    assert_eq!(words("tcp.congestion"), "cubic default");
    assert!(out.contains("\"to-b\" does not exist now"), "{out}");

    fs::write(folder.join("keys/gateway.key"), "no key").expect("a file");
    let (code, out, _) = gateway(&["check", path]);
    assert_eq!(code, Some(2));
    assert!(out.contains("keys/gateway.key"), "{out}");
    let (code, _, err) = gateway(&["run", path]);
    assert_eq!((code, err.lines().count()), (Some(2), 1), "{err}");
    assert!(err.starts_with("bentpipe-gateway: satellite.keys: ") && err.contains("gateway.key"), "{err}");

    fs::write(&config, text("0.1", "20 Mbs", "")).expect("a file");
    for verb in ["check", "run", "cleanup"] {
        let (code, out, err) = gateway(&[verb, path]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{verb}");
        assert!(err.contains("g.toml:4:22: gateway.regulator.rate: found \"20 Mbs\"; allowed: "), "{err}");
        assert!(err.lines().count() == 1 || verb == "cleanup", "{err}");
    }
    fs::remove_dir_all(&folder).expect("an existing file");
}

/// Arguments that are not UTF-8, and a reader that closes the pipe.
#[test]
fn odd_arguments_and_closed_pipes_are_handled() {
    let odd = OsStr::from_bytes(b"/none/\xff.toml");
    let program = || Command::new(env!("CARGO_BIN_EXE_bentpipe-gateway"));
    for (words, expected) in [(&["check".as_ref(), odd][..], "/none/\u{fffd}.toml"), (&[odd], "usage: ")] {
        let output = program().args(words).output().expect("a running process");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(expected), "{err}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output =
        program().arg("help").stdout(writer).stderr(Stdio::piped()).output().expect("a running process");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// A configuration that became invalid does not prevent the removal of rules.
#[test]
fn cleanup_removes_rules_despite_an_invalid_file() {
    let Some((a, _b)) = crate::common::pair() else { return };
    let folder = folder("killed");
    let (config, socket) = (folder.join("g.toml"), folder.join("manager"));
    fs::write(&config, text("0.1", "20 Mbps", "")).expect("a file");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let daemon = start(&a, &config, &socket, &[]);
    heard(&manager, "READY=1");
    drop(daemon);
    assert!(a.command("iptables-nft-save").contains("bentpipe-gateway-in"));
    fs::write(&config, "role = ").expect("a file");
    let path = config.to_str().expect("text").to_owned();
    let (code, out, err) = a.run(move || gateway(&["cleanup", &path]));
    assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    assert!(!a.command("iptables-nft-save").contains("bentpipe"));
    assert!(!a.ip("rule show").contains("9800"));
    fs::remove_dir_all(&folder).expect("an existing file");
}
