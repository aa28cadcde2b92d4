//! Rules, routes and settings that lead packets to the daemon, and their removal.
//!
//! | packets | mechanism |
//! |---|---|
//! | from the internet to clients, at a terminal from users, for the AQM | raw PREROUTING: NFQUEUE with bypass if nobody listens |
//! | of split connections, to this host's sockets | mangle PREROUTING: match on a transparent socket, mark; a routing rule by that mark; a table with a local route |
//! | users' new connections, to the terminal's listener | mangle PREROUTING: TPROXY, only SYNs |
//! | this host's acknowledgements to servers, for window marking | mangle OUTPUT: NFQUEUE with bypass |
//! | not split, into the TUN device | a routing rule by address or interface, a table with one route, or one for each terminal's users; mangle FORWARD: MSS clamped to the device's MTU |
//!
//! TPROXY takes only SYNs, so that connections that bypassed the PEP continue undisturbed. Its listener is bound to the
//! loopback address, which only TPROXY reaches.
//!
//! Everything installed is recognizable: chains are named `bentpipe-NAME-…`, routing rules and routes have
//! protocol number [`PROTOCOL`]. Kernel settings and offloads, which have no name, are recorded in a file before they are
//! changed. So [`remove`] removes exactly what a killed process has left, and [`Rules::install`] begins with it. The tools
//! needed are `iptables-nft-restore` and `-save`, their IPv6 variants, and `ip`.

mod chains;
mod command;
mod routes;
mod settings;

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::config::{Device, Prefix};
use chains::{chain, chains, remove_chains, takes};
use command::{ended, start};
use routes::{remove_routes, routes};
use settings::{read, restore, settings};

/// Protocol number of the installed routes and routing rules (`proto 98`).
pub const PROTOCOL: u8 = 98;
/// Firewall mark of packets for this host's sockets, within [`MASK`].
pub const MARK: u32 = 0x6270_0000;
/// Bits of the firewall mark that are used.
pub const MASK: u32 = 0xffff_0000;

/// Direction that an interface faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The internet: packets to clients go to the AQM, and those of split connections to sockets.
    Internet {
        /// NFQUEUE number of packets to clients.
        queue: u16,
        /// NFQUEUE number of this host's TCP packets to servers, whose windows are cut; `None` without window marking.
        windows: Option<u16>,
    },
    /// The users: their new connections go to a listener.
    Users {
        /// Port of the transparent listeners on 127.0.0.1 and ::1; 0 takes no connections.
        port: u16,
        /// NFQUEUE number of packets from users, for the AQM of the return direction; `None` without.
        queue: Option<u16>,
    },
}

impl Side {
    /// NFQUEUE number of the packets for the AQM; `None` without.
    #[must_use]
    pub fn queue(self) -> Option<u16> {
        match self {
            Self::Internet { queue, .. } => Some(queue),
            Self::Users { queue, .. } => queue,
        }
    }
}

/// Setup of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Name of the gateway, unique on its host: 1 to 10 letters and digits.
    pub name: String,
    /// Folder for the file with old settings; it should not survive a reboot (/run).
    pub folder: PathBuf,
    /// Interface on which packets arrive.
    pub interface: String,
    /// Direction that it faces.
    pub side: Side,
    /// Prefixes of the users. An IP version without a prefix is left alone.
    pub clients: Vec<Prefix>,
    /// Existing TUN device for packets that are not split.
    pub tunnel: Option<String>,
    /// True if each terminal's users have routes into that device
    /// ([`TerminalRoutes`](super::terminal_routes::TerminalRoutes)). Others among `clients` are unreachable.
    pub terminals: bool,
    /// True to request ECN on this host's connections.
    pub ecn: bool,
    /// True to switch off receive offload on the interface, so that the kernel does not merge segments that it would split
    /// again for the queue.
    pub offload: bool,
    /// First of two routing tables, and priority of the first of three routing rules.
    pub table: u32,
}

/// IP version of iptables and ip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The versions that this kernel supports.
    fn present() -> impl Iterator<Item = Self> {
        Self::supported(has_ipv6())
    }

    /// The versions of a kernel with IPv6, or without.
    fn supported(has_ipv6: bool) -> impl Iterator<Item = Self> {
        Self::BOTH.into_iter().filter(move |family| *family == Self::V4 || has_ipv6)
    }

    fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// Name of the iptables command with this ending.
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

/// Installed rules.
#[derive(Debug)]
pub struct Rules {
    setup: Setup,
    /// State of the bypass that was requested last; `None` after a command failed.
    bypassing: Option<bool>,
    /// State of the bypass in the kernel, as far as commands have ended.
    in_effect: bool,
    /// Running commands.
    running: Vec<Child>,
}

impl Rules {
    /// Installs everything, after removing what an earlier process of this name has left.
    ///
    /// # Errors
    /// If the setup is invalid, a tool is missing or fails. Everything done until then is undone.
    pub fn install(setup: Setup) -> io::Result<Self> {
        check(&setup)?;
        remove(&setup)?;
        let result = settings(&setup).and_then(|()| routes(&setup)).and_then(|()| chains(&setup));
        if let Err(error) = result {
            // The first error is reported.
            let _ = remove(&setup);
            return Err(error);
        }
        Ok(Self { setup, bypassing: Some(false), in_effect: false, running: Vec::new() })
    }

    /// Begins or ends the bypass of users' new connections. It starts commands, after waiting for those of an earlier change;
    /// [`Rules::settle`] collects their results.
    ///
    /// # Errors
    /// If a command of an earlier change failed, or one cannot be started.
    pub fn bypass(&mut self, on: bool) -> io::Result<()> {
        if self.bypassing == Some(on) {
            return Ok(());
        }
        // One change at a time, so that none overtakes another.
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

    /// True while new connections bypass the PEP. A change counts once [`Rules::settle`] has seen its commands end.
    #[must_use]
    pub fn bypassing(&self) -> bool {
        self.in_effect
    }

    /// Collects the results of running commands. Returns true if none is left.
    ///
    /// # Errors
    /// If a command has failed. Its rules are unchanged, and [`Rules::bypass`] tries again.
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

    /// Removes everything.
    ///
    /// # Errors
    /// As [`remove`].
    pub fn remove(mut self) -> io::Result<()> {
        let ended = self.running.drain(..).map(|child| ended("iptables-nft-restore", child).map(drop));
        // Each command is waited for, so that none undoes the removal; a failed one does not prevent it.
        let ended = ended.fold(Ok(()), io::Result::and);
        remove(&self.setup).and(ended)
    }
}

/// Removes everything installed under this name, by whichever process. Looks only at its name, its folder and its tables.
///
/// # Errors
/// If a tool fails. Everything else is removed all the same.
pub fn remove(setup: &Setup) -> io::Result<()> {
    check_own(setup)?;
    let mut result = Ok(());
    // The tables of that process, whose setup may have differed.
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

/// Checks all values that become part of scripts.
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

/// Checks the values that identify a gateway's rules.
fn check_own(Setup { name, table, .. }: &Setup) -> io::Result<()> {
    if name.is_empty() || name.len() > 10 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(invalid(format!("name {name:?}: 1 to 10 letters and digits are allowed")));
    }
    if !(256..=32_000).contains(table) {
        return Err(invalid(format!("routing table {table}: 256 to 32000 are allowed")));
    }
    Ok(())
}

/// True if this kernel supports IPv6.
#[must_use]
pub fn has_ipv6() -> bool {
    Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// IP versions of the clients that this kernel supports.
fn families(setup: &Setup) -> impl Iterator<Item = Family> {
    families_of(&setup.clients, has_ipv6())
}

fn families_of(clients: &[Prefix], has_ipv6: bool) -> impl Iterator<Item = Family> {
    Family::supported(has_ipv6).filter(|family| clients.iter().any(|prefix| family.has(prefix)))
}

fn clients(setup: &Setup, family: Family) -> impl Iterator<Item = &Prefix> {
    setup.clients.iter().filter(move |prefix| family.has(prefix))
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::command::run;
    use super::*;

    #[test]
    fn rules_leave_ipv6_out_on_a_kernel_without() {
        let families = |texts: &[&str], has_ipv6| {
            let clients: Vec<Prefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
            families_of(&clients, has_ipv6).collect::<Vec<_>>()
        };
        let both = ["10.3.0.0/24", "fd03::/64"];
        assert_eq!(families(&both, true), [Family::V4, Family::V6]);
        assert_eq!(families(&both, false), [Family::V4]);
        assert_eq!(families(&both[1..], true), [Family::V6]);
        assert_eq!(families(&both[1..], false), []);
    }

    /// A failed command to bypass connections does not keep rules from being removed.
    #[test]
    fn rules_are_removed_whatever_failed_before() {
        let folder = std::env::temp_dir().join(format!("bentpipe-removed-{}", std::process::id()));
        let setup = Setup {
            name: "x".to_owned(),
            folder: folder.clone(),
            interface: "lo".to_owned(),
            side: Side::Users { port: 5000, queue: None },
            clients: vec!["10.3.0.0/24".parse().unwrap()],
            tunnel: None,
            terminals: false,
            ecn: false,
            offload: false,
            table: 6300,
        };
        let done = std::thread::spawn(|| {
            // Needs a network namespace, which root may create.
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let mut rules = Rules::install(setup).unwrap();
            assert!(run("iptables-nft-save", &[], "").unwrap().contains("bentpipe-x"));
            // A failed command is tried again.
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
