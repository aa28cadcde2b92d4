//! What the kernel must be told so that packets come to a gateway, and how to take all of it back.
//!
//! | what | how |
//! |---|---|
//! | packets from the internet to clients, to be judged | raw PREROUTING: NFQUEUE, with bypass where nobody listens |
//! | packets of split connections to this host's sockets | mangle PREROUTING: match on a transparent socket, mark; a routing rule by that mark; a table that says "local" |
//! | users' new connections to the terminal's listener | mangle PREROUTING: TPROXY, SYNs only |
//! | this host's acknowledgements to servers, to have their windows rewritten | mangle OUTPUT: NFQUEUE, with bypass |
//! | what is not split, into the TUN device | a routing rule by address or interface, a table with one route; mangle FORWARD: MSS clamped to the device's MTU |
//!
//! TPROXY takes SYNs only, so that a connection that went by before the daemon came, or while it was full, goes on by
//! itself. Its listener is on the loopback address, where only TPROXY leads.
//!
//! Everything here can be told from what others have made: chains are named `bentpipe-NAME-…`, routing rules and routes
//! have the protocol number [`PROTOCOL`]. What cannot be named so (kernel settings, offloads) is written down in a file
//! before it is changed. So [`remove`] takes away what a killed process has left, and nothing else; [`Rules::install`]
//! begins with that. Tools needed: `iptables-nft-restore` and `-save`, their IPv6 siblings, and `ip`.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Error, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::config::{Device, Prefix};
use crate::intercept::offload::{self, Feature};

/// Protocol number of our routes and routing rules (`proto 98`), by which they are known.
pub const PROTOCOL: u8 = 98;
/// Firewall mark of packets that are for this host's sockets, in the bits of [`MASK`].
pub const MARK: u32 = 0x6270_0000;
/// The bits of the firewall mark that are ours.
pub const MASK: u32 = 0xffff_0000;

/// Which way an interface faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The internet: packets to clients are judged, and those of split connections end here.
    Internet {
        /// NFQUEUE number of packets to clients.
        queue: u16,
        /// NFQUEUE number of this host's own TCP packets to servers, where windows are rewritten.
        windows: Option<u16>,
    },
    /// The users: their new connections end here.
    Users {
        /// The port of the listeners on 127.0.0.1 and ::1, whose sockets are transparent; 0: none is taken.
        port: u16,
    },
}

/// What is to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Tells gateways of one host apart: 1 to 10 letters and digits.
    pub name: String,
    /// Folder for the file in which old values are written down; it should not outlive a restart of the host (/run).
    pub folder: PathBuf,
    /// The interface that packets come in by.
    pub interface: String,
    /// Which way it faces.
    pub side: Side,
    /// The users' prefixes. IPv6 is left alone where none is of it, and so is IPv4.
    pub clients: Vec<Prefix>,
    /// TUN device for what is not split; it must be there.
    pub tunnel: Option<String>,
    /// Whether this host's own connections ask for ECN.
    pub ecn: bool,
    /// Whether receive offload is taken from the interface, so that the kernel does not put together what it would take
    /// apart again for the queue.
    pub offload: bool,
    /// Number of the first of two routing tables, and priority of the first of three routing rules.
    pub table: u32,
}

/// What was changed and has no name of ours.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Written {
    /// The network namespace that it was changed in.
    namespace: String,
    /// The first routing table.
    table: u32,
    sysctls: Vec<Sysctl>,
    offloads: Vec<Offload>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sysctl {
    /// Below /proc/sys.
    path: String,
    old: String,
    new: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offload {
    interface: String,
    feature: Feature,
}

/// The two families of iptables: flag of `ip`, commands, whether a prefix is of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Those that this kernel has.
    fn present() -> impl Iterator<Item = Self> {
        let v6 = Path::new("/proc/thread-self/net/if_inet6").exists();
        Self::BOTH.into_iter().filter(move |family| *family == Self::V4 || v6)
    }

    fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// iptables' command that ends so.
    fn command(self, end: &str) -> String {
        let start = match self {
            Self::V4 => "iptables-nft",
            Self::V6 => "ip6tables-nft",
        };
        format!("{start}-{end}")
    }

    fn has(self, prefix: &Prefix) -> bool {
        prefix.address.is_ipv4() == (self == Self::V4)
    }

    fn loopback(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.1",
            Self::V6 => "::1",
        }
    }

    fn icmp(self) -> &'static str {
        match self {
            Self::V4 => "icmp",
            Self::V6 => "ipv6-icmp",
        }
    }
}

/// What is installed.
#[derive(Debug)]
pub struct Rules {
    setup: Setup,
    /// Whether new connections go by; none where a command that was to change it has failed.
    bypassing: Option<bool>,
    /// What the commands that have ended came to.
    in_effect: bool,
    /// Commands that have not ended.
    running: Vec<Child>,
}

impl Rules {
    /// Installs everything, after removing what an earlier process of this name has left.
    ///
    /// # Errors
    /// When the setup cannot be meant, a tool is missing or says no. What was done by then is taken back.
    pub fn install(setup: Setup) -> io::Result<Self> {
        check(&setup)?;
        remove(&setup)?;
        let result = settings(&setup).and_then(|()| routes(&setup)).and_then(|()| chains(&setup));
        if let Err(error) = result {
            // The first error is what there is to say.
            let _ = remove(&setup);
            return Err(error);
        }
        Ok(Self { setup, bypassing: Some(false), in_effect: false, running: Vec::new() })
    }

    /// Lets users' new connections go by, or takes them again. The commands that do it are started and not waited for;
    /// [`Rules::settle`] collects them.
    ///
    /// # Errors
    /// When a command cannot be started.
    pub fn bypass(&mut self, on: bool) -> io::Result<()> {
        if self.bypassing == Some(on) {
            return Ok(());
        }
        // One after the other: the last word must not be overtaken.
        while !self.settle()? {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.bypassing = None;
        for family in Family::present() {
            let Some(rules) = takes(&self.setup, family) else { continue };
            let rules = if on { "" } else { &rules };
            let script = format!("*mangle\n:{} - [0:0]\n{rules}COMMIT\n", chain(&self.setup, "new"));
            self.running.push(start(&family.command("restore"), &["--noflush"], &script)?);
        }
        self.bypassing = Some(on);
        Ok(())
    }

    /// True while new connections go by; a change counts once [`Rules::settle`] has seen its commands end.
    #[must_use]
    pub fn bypassing(&self) -> bool {
        self.in_effect
    }

    /// Looks after started commands. True if none is left.
    ///
    /// # Errors
    /// When one has failed: then what it was to change is as it was, and [`Rules::bypass`] tries it again.
    pub fn settle(&mut self) -> io::Result<bool> {
        let mut place = 0;
        while place < self.running.len() {
            if self.running[place].try_wait()?.is_none() {
                place += 1;
                continue;
            }
            if let Err(error) = ended("iptables-nft-restore", self.running.swap_remove(place)) {
                self.bypassing = None;
                return Err(error);
            }
        }
        if self.running.is_empty() {
            self.in_effect = self.bypassing.unwrap_or(self.in_effect);
        }
        Ok(self.running.is_empty())
    }

    /// Takes everything away.
    ///
    /// # Errors
    /// As [`remove`].
    pub fn remove(mut self) -> io::Result<()> {
        let ended = self.running.drain(..).map(|child| ended("iptables-nft-restore", child).map(drop));
        // Each is waited for, lest it undo what is removed; and what it says keeps nothing from being removed.
        let ended = ended.fold(Ok(()), io::Result::and);
        remove(&self.setup).and(ended)
    }
}

/// Takes away what is installed under this name, whoever installed it; nothing if nothing is. Only its name, its folder and
/// its tables are looked at.
///
/// # Errors
/// When a tool says no. Everything else is taken away nevertheless.
pub fn remove(setup: &Setup) -> io::Result<()> {
    check_own(setup)?;
    let mut result = Ok(());
    // Tables as they were then, if that was another setup.
    let tables = read(setup).map_or(setup.table, |written| written.table);
    for family in Family::present() {
        result = result.and(remove_chains(setup, family)).and(remove_routes(family, setup.table));
        if tables != setup.table {
            result = result.and(remove_routes(family, tables));
        }
    }
    result.and(restore(setup))
}

fn invalid(what: String) -> Error {
    Error::new(io::ErrorKind::InvalidInput, what)
}

/// Everything here ends up in scripts of other tools.
fn check(setup: &Setup) -> io::Result<()> {
    check_own(setup)?;
    for device in [Some(&setup.interface), setup.tunnel.as_ref()].into_iter().flatten() {
        if device.parse::<Device>().is_err() {
            return Err(invalid(format!("interface {device:?}: {} is allowed", Device::ALLOWED)));
        }
    }
    if setup.clients.is_empty() {
        return Err(invalid("clients: at least one prefix is needed".to_owned()));
    }
    Ok(())
}

/// What tells our own from that of others.
fn check_own(Setup { name, table, .. }: &Setup) -> io::Result<()> {
    if name.is_empty() || name.len() > 10 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(invalid(format!("name {name:?}: 1 to 10 letters and digits are allowed")));
    }
    if !(256..=32_000).contains(table) {
        return Err(invalid(format!("routing table {table}: 256 to 32000 are allowed")));
    }
    Ok(())
}

fn chain(setup: &Setup, end: &str) -> String {
    format!("bentpipe-{}-{end}", setup.name)
}

// Commands.

fn failed(command: &str, why: impl fmt::Display) -> Error {
    Error::other(format!("{command}: {why}"))
}

fn start(command: &str, arguments: &[&str], input: &str) -> io::Result<Child> {
    let mut child = Command::new(command)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(command, error))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that reads nothing says why itself.
        let _ = pipe.write_all(input.as_bytes());
    }
    Ok(child)
}

/// What a command has written, once it has ended well.
fn ended(command: &str, child: Child) -> io::Result<String> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(command, format_args!("{} ({})", said.trim().replace('\n', "; "), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(command: &str, arguments: &[&str], input: &str) -> io::Result<String> {
    ended(command, start(command, arguments, input)?)
}

// Chains.

/// The families that clients have.
fn families(setup: &Setup) -> impl Iterator<Item = Family> {
    Family::BOTH.into_iter().filter(|family| setup.clients.iter().any(|prefix| family.has(prefix)))
}

fn clients(setup: &Setup, family: Family) -> impl Iterator<Item = &Prefix> {
    setup.clients.iter().filter(move |prefix| family.has(prefix))
}

/// The rules of the chain that takes new connections.
fn takes(setup: &Setup, family: Family) -> Option<String> {
    let Side::Users { port: port @ 1.. } = setup.side else { return None };
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

fn chains(setup: &Setup) -> io::Result<()> {
    let device = &setup.interface;
    for family in families(setup) {
        let (mut raw, mut mangle, mut jumps) = (String::new(), String::new(), String::new());
        let into = chain(setup, "in");
        let _ = writeln!(mangle, ":{into} - [0:0]");
        let _ = writeln!(jumps, "-I PREROUTING 1 -i {device} -j {into}");
        // An ICMP error about a packet of a socket is for that socket.
        for protocol in ["tcp", family.icmp()] {
            let _ = writeln!(
                mangle,
                "-A {into} -p {protocol} -m socket --transparent -j MARK --set-xmark {MARK:#x}/{MASK:#x}"
            );
        }
        match setup.side {
            Side::Internet { queue, windows } => {
                let tap = chain(setup, "tap");
                let _ = writeln!(raw, "*raw\n:{tap} - [0:0]\n-I PREROUTING 1 -i {device} -j {tap}");
                for prefix in clients(setup, family) {
                    let _ =
                        writeln!(raw, "-A {tap} -d {prefix} -j NFQUEUE --queue-num {queue} --queue-bypass");
                }
                raw.push_str("COMMIT\n");
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

fn remove_chains(setup: &Setup, family: Family) -> io::Result<()> {
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

// Routes.

fn routes(setup: &Setup) -> io::Result<()> {
    let (local, tunnel) = (setup.table, setup.table + 1);
    let device = &setup.interface;
    for family in families(setup) {
        let mut batch = String::new();
        let mut rule = |place: u32, what: fmt::Arguments<'_>| {
            let _ = writeln!(batch, "rule add priority {} {what} protocol {PROTOCOL}", setup.table + place);
        };
        rule(0, format_args!("fwmark {MARK:#x}/{MASK:#x} lookup {local}"));
        if setup.tunnel.is_some() {
            for prefix in clients(setup, family) {
                match setup.side {
                    Side::Internet { .. } => rule(1, format_args!("to {prefix} lookup {tunnel}")),
                    Side::Users { .. } => {
                        // From one user to another.
                        rule(1, format_args!("to {prefix} lookup main"));
                        rule(2, format_args!("from {prefix} iif {device} lookup {tunnel}"));
                    }
                }
            }
        }
        let _ = writeln!(batch, "route add local default dev lo table {local} proto {PROTOCOL}");
        if let Some(name) = &setup.tunnel {
            let _ = writeln!(batch, "route add default dev {name} table {tunnel} proto {PROTOCOL}");
        }
        run("ip", &[family.flag(), "-batch", "-"], &batch)?;
    }
    Ok(())
}

/// A routing rule as `ip -json rule` shows it.
#[derive(Deserialize)]
struct Listed {
    priority: u32,
    #[serde(default)]
    table: String,
    #[serde(default)]
    protocol: String,
}

fn remove_routes(family: Family, first: u32) -> io::Result<()> {
    let listed = run("ip", &[family.flag(), "-N", "-json", "rule", "show"], "")?;
    let listed: Vec<Listed> =
        serde_json::from_str(&listed).map_err(|error| failed("ip -json rule show", error))?;
    let places = first..first + 3;
    let mut batch = String::new();
    for rule in
        listed.iter().filter(|rule| rule.protocol == PROTOCOL.to_string() && places.contains(&rule.priority))
    {
        let _ =
            writeln!(batch, "rule del priority {} lookup {} protocol {PROTOCOL}", rule.priority, rule.table);
    }
    for table in [first, first + 1] {
        let table = table.to_string();
        let protocol = PROTOCOL.to_string();
        let list = ["route", "show", "table", &table, "proto", &protocol];
        let list: Vec<&str> = [family.flag()].into_iter().chain(list).collect();
        // The kernel says no where it has no such table.
        if run("ip", &list, "").is_ok_and(|routes| !routes.trim().is_empty()) {
            let _ = writeln!(batch, "route flush table {table} proto {protocol}");
        }
    }
    if !batch.is_empty() {
        run("ip", &[family.flag(), "-batch", "-"], &batch)?;
    }
    Ok(())
}

// Settings of the kernel and of interfaces.

fn file(setup: &Setup) -> PathBuf {
    setup.folder.join(format!("{}.json", setup.name))
}

fn namespace() -> io::Result<String> {
    Ok(fs::read_link("/proc/thread-self/ns/net")?.to_string_lossy().into_owned())
}

fn about(path: &Path) -> impl FnOnce(Error) -> Error {
    move |error| failed(&path.display().to_string(), error)
}

fn write(setup: &Setup, written: &Written) -> io::Result<()> {
    let (path, next) = (file(setup), file(setup).with_extension("next"));
    let text = serde_json::to_vec_pretty(written)?;
    fs::create_dir_all(&setup.folder).map_err(about(&setup.folder))?;
    fs::write(&next, text).map_err(about(&next))?;
    fs::rename(&next, &path).map_err(about(&path))
}

fn sysctl(path: &str) -> PathBuf {
    Path::new("/proc/sys").join(path)
}

fn settings(setup: &Setup) -> io::Result<()> {
    let value = |path: &str| fs::read_to_string(sysctl(path)).map(|text| text.trim().to_owned());
    let mut wanted: Vec<(String, &str)> = Vec::new();
    for family in families(setup) {
        let path = match family {
            Family::V4 => "net/ipv4/ip_forward",
            Family::V6 => "net/ipv6/conf/all/forwarding",
        };
        wanted.push((path.to_owned(), "1"));
    }
    if setup.ecn {
        wanted.push(("net/ipv4/tcp_ecn".to_owned(), "1"));
    }
    // Packets come back by another interface than their answers take. The stricter of "all" and the interface's own
    // value holds; 2 asks only that there is a way back at all. IPv6 has no such setting.
    let has_v4 = families(setup).any(|family| family == Family::V4);
    for device in [Some(&setup.interface), setup.tunnel.as_ref()].into_iter().flatten().filter(|_| has_v4) {
        let path = format!("net/ipv4/conf/{device}/rp_filter");
        let strict = |path: &str| Ok::<_, Error>(value(path).map_err(about(&sysctl(path)))? == "1");
        if strict("net/ipv4/conf/all/rp_filter")? || strict(&path)? {
            wanted.push((path, "2"));
        }
    }
    let mut written = Written { namespace: namespace()?, table: setup.table, ..Written::default() };
    for (path, new) in wanted {
        let old = value(&path).map_err(about(&sysctl(&path)))?;
        if old != new {
            written.sysctls.push(Sysctl { path, old, new: new.to_owned() });
        }
    }
    let interface = &setup.interface;
    for feature in [Feature::Gro, Feature::Lro] {
        if setup.offload && offload::get(interface, feature).map_err(|error| failed(interface, error))? {
            written.offloads.push(Offload { interface: interface.clone(), feature });
        }
    }
    write(setup, &written)?;
    for Sysctl { path, new, .. } in &written.sysctls {
        fs::write(sysctl(path), new).map_err(about(&sysctl(path)))?;
    }
    for Offload { interface, feature } in &written.offloads {
        offload::set(interface, *feature, false).map_err(|error| failed(interface, error))?;
    }
    Ok(())
}

/// What is written down, if anything that can be read is.
fn read(setup: &Setup) -> Option<Written> {
    serde_json::from_slice(&fs::read(file(setup)).ok()?).ok()
}

/// Puts old values back where nobody has changed them since.
fn restore(setup: &Setup) -> io::Result<()> {
    let path = file(setup);
    if !path.exists() {
        leave(setup);
        return Ok(());
    }
    let here = namespace()?;
    // A file that cannot be read says nothing that could be put back.
    let mut written = read(setup).unwrap_or_default();
    if written.namespace == here {
        // What another gateway of this host relies on is handed to it.
        if let Some((other, mut theirs)) = neighbour(setup, &here) {
            for sysctl in written.sysctls.drain(..) {
                if !theirs.sysctls.iter().any(|known| known.path == sysctl.path) {
                    theirs.sysctls.push(sysctl);
                }
            }
            write(&other, &theirs)?;
        }
        for Sysctl { path, old, new } in &written.sysctls {
            let path = sysctl(path);
            // A device's settings go with it.
            if fs::read_to_string(&path).is_ok_and(|now| now.trim() == new) {
                fs::write(&path, old).map_err(about(&path))?;
            }
        }
        for Offload { interface, feature } in &written.offloads {
            // So do its features.
            if offload::get(interface, *feature).is_ok_and(|on| !on) {
                offload::set(interface, *feature, true).map_err(|error| failed(interface, error))?;
            }
        }
    }
    fs::remove_file(&path).map_err(about(&path))?;
    leave(setup);
    Ok(())
}

/// Removes the folder, unless another gateway has a file in it.
fn leave(setup: &Setup) {
    let _ = fs::remove_dir(&setup.folder);
}

/// Another gateway of this namespace whose file is in the same folder, and what it says.
fn neighbour(setup: &Setup, here: &str) -> Option<(Setup, Written)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&setup.folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter(|path| path.extension() == Some(OsStr::new("json"))).find_map(|path| {
        let name = path.file_stem()?.to_str()?;
        let written: Written = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (name != setup.name && written.namespace == here)
            .then(|| (Setup { name: name.to_owned(), ..setup.clone() }, written))
    })
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// A command that has failed, when users' new connections were to go by, keeps no rule where it is.
    #[test]
    fn rules_are_removed_whatever_failed_before() {
        let folder = std::env::temp_dir().join(format!("bentpipe-removed-{}", std::process::id()));
        let setup = Setup {
            name: "x".to_owned(),
            folder: folder.clone(),
            interface: "lo".to_owned(),
            side: Side::Users { port: 5000 },
            clients: vec!["10.3.0.0/24".parse().unwrap()],
            tunnel: None,
            ecn: false,
            offload: false,
            table: 6300,
        };
        let done = std::thread::spawn(|| {
            // Only where a namespace of its own can be had; root may.
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let mut rules = Rules::install(setup).unwrap();
            assert!(run("iptables-nft-save", &[], "").unwrap().contains("bentpipe-x"));
            // What failed is tried again.
            rules.bypass(true).unwrap();
            rules.running.push(start("false", &[], "").unwrap());
            let settled = |rules: &mut Rules| loop {
                match rules.settle() {
                    Ok(false) => std::thread::sleep(std::time::Duration::from_millis(1)),
                    other => return other,
                }
            };
            assert!(settled(&mut rules).is_err() && !rules.bypassing());
            assert!(settled(&mut rules).is_ok());
            rules.bypass(true).unwrap();
            assert!(!rules.running.is_empty() && settled(&mut rules).unwrap() && rules.bypassing());
            rules.bypass(true).unwrap();
            assert!(rules.running.is_empty());
            rules.running.extend([start("false", &[], "").unwrap(), start("true", &[], "").unwrap()]);
            let error = rules.remove().unwrap_err().to_string();
            Some((error, run("iptables-nft-save", &[], "").unwrap()))
        });
        if let Some((error, left)) = done.join().unwrap() {
            assert!(error.starts_with("iptables-nft-restore: "), "{error}");
            assert!(!left.contains("bentpipe-x"), "{left}");
            assert!(!folder.exists());
        }
    }
}
