//! Chains and rules of iptables.

use std::fmt::Write as _;
use std::io;

use super::command::run;
use super::{Family, MARK, MASK, Setup, Side, clients, families};

/// Full name of a chain.
pub(super) fn chain(setup: &Setup, end: &str) -> String {
    format!("bentpipe-{}-{end}", setup.name)
}

/// Rules of the chain that takes new connections; `None` if it takes none.
pub(super) fn takes(setup: &Setup, family: Family) -> Option<String> {
    let Side::Users { port: port @ 1.., .. } = setup.side else { return None };
    let (chain, address) = (chain(setup, "new"), family.loopback());
    let mut rules = String::new();
    for prefix in clients(setup, family) {
        let _ = writeln!(
            rules,
            "-A {chain} -s {prefix} -p tcp --syn -m addrtype ! --dst-type LOCAL -j TPROXY --on-ip {address} \
             --on-port {port} --tproxy-mark {MARK:#x}/{MASK:#x}"
        );
    }
    (!rules.is_empty()).then_some(rules)
}

pub(super) fn chains(setup: &Setup) -> io::Result<()> {
    let device = &setup.interface;
    for family in families(setup) {
        let (mut raw, mut mangle, mut jumps) = (String::new(), String::new(), String::new());
        let into = chain(setup, "in");
        // Packets for the AQM, by their destination or source.
        let tapped = match setup.side {
            Side::Internet { queue, .. } => Some((queue, "-d")),
            Side::Users { queue, .. } => queue.map(|queue| (queue, "-s")),
        };
        if let Some((queue, end)) = tapped {
            let tap = chain(setup, "tap");
            let _ = writeln!(raw, "*raw\n:{tap} - [0:0]\n-I PREROUTING 1 -i {device} -j {tap}");
            for prefix in clients(setup, family) {
                let _ =
                    writeln!(raw, "-A {tap} {end} {prefix} -j NFQUEUE --queue-num {queue} --queue-bypass");
            }
            raw.push_str("COMMIT\n");
        }
        let _ = writeln!(mangle, ":{into} - [0:0]");
        let _ = writeln!(jumps, "-I PREROUTING 1 -i {device} -j {into}");
        // An ICMP error about a socket's packet goes to that socket.
        for protocol in ["tcp", family.icmp()] {
            let _ = writeln!(
                mangle,
                "-A {into} -p {protocol} -m socket --transparent -j MARK --set-xmark {MARK:#x}/{MASK:#x}"
            );
        }
        match setup.side {
            Side::Internet { windows, .. } => {
                if let Some(windows) = windows {
                    let out = chain(setup, "out");
                    let _ = writeln!(mangle, ":{out} - [0:0]");
                    let _ = writeln!(jumps, "-I OUTPUT 1 -o {device} -j {out}");
                    for prefix in clients(setup, family) {
                        let _ = writeln!(
                            mangle,
                            "-A {out} -s {prefix} -p tcp -j NFQUEUE --queue-num {windows} --queue-bypass"
                        );
                    }
                }
            }
            Side::Users { .. } => {
                let new = chain(setup, "new");
                let rules = takes(setup, family).unwrap_or_default();
                let _ = writeln!(
                    mangle,
                    ":{new} - [0:0]\n-A {into} -m mark --mark {MARK:#x}/{MASK:#x} -j RETURN"
                );
                let _ = write!(mangle, "-A {into} -j {new}\n{rules}");
            }
        }
        if let Some(tunnel) = &setup.tunnel {
            let mss = chain(setup, "mss");
            let _ = writeln!(mangle, ":{mss} - [0:0]");
            let _ = writeln!(mangle, "-A {mss} -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu");
            let _ = writeln!(jumps, "-I FORWARD 1 -o {tunnel} -j {mss}");
        }
        let script = format!("{raw}*mangle\n{mangle}{jumps}COMMIT\n");
        run(&family.command("restore"), &["--noflush"], &script)?;
    }
    Ok(())
}

pub(super) fn remove_chains(setup: &Setup, family: Family) -> io::Result<()> {
    let ours = chain(setup, "");
    let mut script = String::new();
    for table in ["raw", "mangle"] {
        let saved = run(&family.command("save"), &["-t", table], "")?;
        let names: Vec<&str> = saved
            .lines()
            .filter_map(|line| line.strip_prefix(':')?.split_whitespace().next())
            .filter(|name| name.starts_with(&ours))
            .collect();
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(script, "*{table}");
        for line in saved.lines() {
            let jumps = || line.split_once(" -j ").is_some_and(|(_, to)| names.contains(&to.trim()));
            if let Some(rule) = line.strip_prefix("-A ").filter(|rule| !rule.starts_with(&ours))
                && jumps()
            {
                let _ = writeln!(script, "-D {rule}");
            }
        }
        for name in &names {
            let _ = writeln!(script, "-F {name}");
        }
        for name in &names {
            let _ = writeln!(script, "-X {name}");
        }
        script.push_str("COMMIT\n");
    }
    if !script.is_empty() {
        run(&family.command("restore"), &["--noflush"], &script)?;
    }
    Ok(())
}
