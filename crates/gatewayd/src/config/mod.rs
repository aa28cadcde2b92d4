//! The configuration: a TOML file for each end, whose `[gateway]` is that of a scenario.
//!
//! The scenario's reader reads it, so units, presets and messages are the same.

mod check;
mod file;
mod reload;
mod terminals;
mod validate;

use std::path::{Path, PathBuf};

use bentpipe_scenario::{Document, Effective, Error, Gateway, QueuesPer, Scenario};
use bentpipe_units::{Duration, Rate};

pub use check::{Findings, check, listing};
pub use file::{
    Address, Device, Format, Internet, Level, Limits, Log, Prefix, Process, Role, Satellite, ScenarioFile,
    Tcp, Tunnel, Users,
};
pub use reload::Changes;
pub use terminals::{Terminal, Terminals};

use file::File;
use validate::{addresses, check_estimate, check_modem, check_return, rates, sides, sizes, times};

/// A complete and checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// File that it was read from.
    pub path: PathBuf,
    /// This end.
    pub role: Role,
    /// The gateway of the scenario.
    pub gateway: Gateway,
    /// Seed of the algorithms' random numbers.
    pub seed: u64,
    /// The link between the two ends.
    pub satellite: Satellite,
    /// Folder with the keys.
    pub keys: PathBuf,
    /// Socket for the modem's rate.
    pub modem: Option<PathBuf>,
    /// Terminals of a gateway with many.
    pub terminals: Option<Terminals>,
    /// Side of the servers; present at a gateway.
    pub internet: Option<Internet>,
    /// Side of the users; present at a terminal.
    pub users: Option<Users>,
    /// Device for packets that are not split.
    pub tunnel: Tunnel,
    /// TCP of the relayed connections.
    pub tcp: Tcp,
    /// Limits of splitting.
    pub limits: Limits,
    /// Scheduling of the process.
    pub process: Process,
    /// HTTP server for metrics.
    pub metrics: Option<file::Metrics>,
    /// The log on stderr.
    pub log: Log,
    /// Recording of a run.
    pub record: Option<Record>,
    /// Every key with its effective value.
    pub effective: Vec<Effective>,
    /// Values that are allowed but probably not intended.
    pub warnings: Vec<String>,
}

/// Recording of a run.
#[derive(Clone, Debug)]
pub struct Record {
    /// File to write.
    pub file: PathBuf,
    /// Time between two samples.
    pub interval: Duration,
    /// CLOCK_MONOTONIC that counts as time zero [ns]; `None`: when the daemon starts.
    pub origin_ns: Option<u64>,
    /// Time before recording begins.
    pub warmup: Duration,
    /// Length of the record; `None`: until the daemon ends.
    pub duration: Option<Duration>,
    /// True to record every drop.
    pub drops: bool,
}

/// Sockets of a running daemon, from its configuration.
#[derive(Clone, Debug)]
pub struct Contacts {
    /// Socket that takes the modem's rate.
    pub modem: Option<PathBuf>,
    /// Metrics page.
    pub metrics: Option<file::Metrics>,
}

impl Contacts {
    /// Reads them from a configuration. The files of the terminals are not read: a daemon runs on while one is invalid.
    ///
    /// # Errors
    /// The first error, with its place.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file: File = Document::load(path)?.read(file::REQUIRED)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Ok(Self { modem: file.satellite.modem.map(|modem| folder.join(modem)), metrics: file.metrics })
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first error, with its place.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::of(&Document::load(path)?, path)
    }

    /// Reads a configuration from `text`; messages call it `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::of(&Document::parse(text, &path.display().to_string())?, path)
    }

    fn of(document: &Document, path: &Path) -> Result<Self, Error> {
        let file: File = document.read(file::REQUIRED)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        sides(document, &file)?;
        addresses(document, &file)?;
        times(document, &file)?;
        let (gateway, mut rows, mut warnings) = gateway(document, &file, folder)?;
        if file.terminals.is_some() {
            // `terminals` and `terminals.queues_per` say it.
            rows.retain(|row| !["gateway.terminal", "gateway.queues_per"].contains(&row.key.as_str()));
        }
        check_return(document, &file, &gateway)?;
        if gateway.marks_behind_pep() {
            let key = if file.scenario.is_some() { "scenario.file" } else { "gateway.marking" };
            let problem = "found \"ecn\" behind the PEP (mark = \"transmit\", or a scheduler that marks); allowed: only in simulations, because the kernel's TCP cannot echo these marks";
            return Err(document.error(key, problem.to_owned()));
        }
        if gateway.throughput_advice.is_some() {
            let key = if file.scenario.is_some() { "scenario.file" } else { "gateway.throughput_advice" };
            let problem = "found throughput advice (gateway.throughput_advice); allowed: only in simulations";
            return Err(document.error(key, problem.to_owned()));
        }
        let mut effective = document.effective(&file);
        let behind_role = effective.iter().position(|row| row.key == "role").map_or(0, |i| i + 1);
        effective.splice(behind_role..behind_role, rows);
        let rate = gateway.regulator.rate;
        let terminals = terminals::read(document, &file, (folder, rate), (&mut effective, &mut warnings))?;
        let modem = file.satellite.modem.as_ref().map(|path| folder.join(path));
        if let Some(path) = &modem {
            check_modem(document, &file, &gateway, path)?;
        }
        check_estimate(document, &file, &gateway)?;
        rates(&file, &gateway, &mut warnings);
        sizes(&file, &gateway, &mut warnings);
        let record = file.record.map(|r| Record {
            file: folder.join(r.file),
            interval: r.interval.time(),
            origin_ns: r.origin_ns,
            warmup: r.warmup.map_or(Duration::ZERO, |t| t.time()),
            duration: r.duration.map(|t| t.time()),
            drops: r.drops,
        });
        Ok(Self {
            path: path.to_owned(),
            role: file.role,
            gateway,
            seed: file.seed,
            keys: folder.join(&file.satellite.keys),
            modem,
            satellite: file.satellite,
            terminals,
            internet: file.internet,
            users: file.users,
            tunnel: file.tunnel,
            tcp: file.tcp,
            limits: file.limits,
            process: file.process,
            metrics: file.metrics,
            log: file.log,
            record,
            effective,
            warnings,
        })
    }

    /// Terminals that share the queues of a gateway with many.
    #[must_use]
    pub fn queues_per(&self) -> QueuesPer {
        self.terminals.as_ref().map_or(QueuesPer::Carrier, |terminals| terminals.queues_per)
    }

    /// The queues of this end: a gateway's, or those of the return direction at a terminal. `None` at a terminal without
    /// `gateway.return`, which sends first in, first out.
    #[must_use]
    pub fn queues(&self) -> Option<&Gateway> {
        match self.role {
            Role::Gateway => Some(&self.gateway),
            Role::Terminal => self.gateway.back.as_deref(),
        }
    }

    /// Rate at which this end sends over the satellite; `None` without a limit.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        let own = match self.role {
            Role::Gateway => Some(&self.gateway),
            Role::Terminal => self.gateway.back.as_deref().filter(|back| !back.regulator.follows_link),
        };
        own.map(|queues| queues.regulator.rate).or(self.satellite.rate.map(|rate| rate.rate()))
    }
}

/// Maximum number of samples kept for the page.
pub(crate) const MOST_SAMPLES: u64 = 3600;

/// The gateway with its effective keys and warnings.
fn gateway(
    document: &Document,
    file: &File,
    folder: &Path,
) -> Result<(Gateway, Vec<Effective>, Vec<String>), Error> {
    let Some(from) = &file.scenario else {
        let rate = match file.role {
            Role::Gateway => file.satellite.rate.map(|rate| rate.rate()),
            // A terminal does not use the other end's regulator; if that follows the satellite, any rate will do.
            Role::Terminal => {
                Some(file.satellite.rate.map_or(Rate::from_bps(20_000_000), |rate| rate.rate()))
            }
        };
        let section = document.gateway(file.satellite.round_trip.time(), rate)?;
        return Ok((section.gateway, section.effective, section.warnings));
    };
    if document.has("gateway") {
        let problem = "found a table; allowed: [gateway] or [scenario], not both".to_owned();
        return Err(document.error("scenario", problem));
    }
    let scenario = Scenario::load(folder.join(&from.file), &from.overrides)?;
    let scenario = match &from.setting {
        Some(setting) => scenario.with_setting(setting)?,
        None => scenario,
    };
    scenario.all_used()?;
    let names = || scenario.gateways.iter().map(|g| g.name.as_str());
    let index = match &from.gateway {
        None => Some(0),
        Some(name) => names().position(|known| known == name),
    };
    let Some(gateway) = index.and_then(|i| scenario.gateways.get(i)) else {
        let known: Vec<_> = names().collect();
        let (key, problem) = match &from.gateway {
            Some(name) => ("scenario.gateway", format!("found {name:?}; allowed: {}", known.join(", "))),
            None => (
                "scenario.file",
                "found a scenario without a gateway; allowed: one with a gateway".to_owned(),
            ),
        };
        return Err(document.error(key, problem));
    };
    let own = match scenario.gateways.len() {
        1 => "gateway.".to_owned(),
        _ => format!("gateway.{}.", gateway.name),
    };
    let is_its = |key: &str| key.starts_with(&own);
    let rows = scenario.effective().iter().filter(|row| is_its(&row.key));
    let rows = rows.map(|row| Effective {
        key: format!("gateway.{}", row.key.strip_prefix(&own).unwrap_or_default()),
        ..row.clone()
    });
    let warnings = scenario.warnings.iter().map(|warning| warning.text.clone()).filter(|text| is_its(text));
    let (rows, warnings) = (rows.collect(), warnings.collect());
    let mut gateway = gateway.clone();
    // In the scenario it is the mean of the return links of all terminals.
    if file.role == Role::Terminal
        && let Some(back) = gateway.back.as_deref_mut().filter(|back| back.regulator.follows_link)
        && let Some(rate) = file.satellite.rate
    {
        back.regulator.rate = rate.rate();
    }
    Ok((gateway, rows, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "role = \"gateway\"\n\
        [gateway]\naqm = { preset = \"AVQRED\" }\nregulator = { rate = \"20 Mbps\" }\n\
        [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
        [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\", \"fd00:3::/64\"]\n";

    #[test]
    fn the_required_keys_suffice() {
        let config = Config::parse(TEXT, "/etc/bentpipe/g.toml").unwrap();
        assert_eq!(config.keys, Path::new("/etc/bentpipe/keys"));
        assert_eq!(config.rate().map(Rate::as_bps), Some(20_000_000));
        assert_eq!(config.warnings, Vec::<String>::new());
        let value =
            |key: &str| config.effective.iter().find(|row| row.key == key).map(|row| row.value.as_str());
        assert_eq!(value("satellite.mtu"), Some("1500 B"));
        assert_eq!(value("internet.clients"), Some("[\"10.3.0.0/24\", \"fd00:3::/64\"]"));
        assert_eq!(value("gateway.regulator.rate"), Some("20 Mbps"));
        assert_eq!(value("tcp.idle_timeout"), Some("3600 s"));
        assert_eq!(value("metrics.listen"), None);
        let keys: Vec<_> = config.effective.iter().map(|row| &row.key).collect();
        let mut once = keys.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), keys.len());
    }

    /// A mistake each, and its message.
    #[test]
    fn every_mistake_gives_one_message_with_its_place() {
        for (from, to, message) in [
            ("\"gateway\"", "\"router\"", "g.toml:1:8: role: found \"router\"; allowed: gateway, terminal"),
            (
                "20 Mbps",
                "0 Mbps",
                "g.toml:4:22: gateway.regulator.rate: found \"0 Mbps\"; allowed: a rate above 0",
            ),
            (
                "20 Mbps\" }\n",
                "20 Mbps\" }\nthroughput_advice = \"share\"\n",
                "g.toml:5:21: gateway.throughput_advice: found throughput advice (gateway.throughput_advice); allowed: only in \
                 simulations",
            ),
            ("keys = \"keys\"\n", "", "g.toml:5:2: satellite.keys: missing; required: the folder made by"),
            (
                "20 Mbps\" }\n",
                "20 Mbps\" }\nmarking = \"ecn\"\ntransmit_queue.scheduler = \"dualpi2\"\n",
                "g.toml:5:11: gateway.marking: found \"ecn\" behind the PEP (mark = \"transmit\", or a scheduler that marks); \
                 allowed: only in simulations, because the kernel's TCP cannot echo these marks",
            ),
            (
                "peer = \"10.2.0.2:4400\"",
                "peer = \"[fd00::2]:44\"",
                "g.toml:7:8: satellite.peer: found \"[fd00::2]:44\"; allowed: an IPv4",
            ),
            (
                "10.2.0.2:4400",
                "10.2.0.1:4400",
                "g.toml:7:8: satellite.peer: found \"10.2.0.1:4400\", this end's own",
            ),
            (
                "10.2.0.2:4400",
                "0.0.0.0:4400",
                "g.toml:7:8: satellite.peer: found \"0.0.0.0:4400\"; allowed: the address and",
            ),
            (
                "10.2.0.2:4400",
                "10.2.0.2",
                "g.toml:7:8: satellite.peer: found \"10.2.0.2\"; allowed: an address with its port",
            ),
            ("keys = \"keys\"", "keys = 1", "g.toml:8:8: satellite.keys: found 1; allowed: a text in quotes"),
            (
                "keys = \"keys\"",
                "keys = \"k\"\nmtu = \"1227 B\"",
                "g.toml:9:7: satellite.mtu: found \"1227 B\"; allowed: at least 1228 B",
            ),
            (
                "keys = \"keys\"",
                "keys = \"k\"\nmodem = \"m\"",
                "g.toml:9:9: satellite.modem: found \"m\"; allowed: only if role = \"gateway\" and",
            ),
            (
                "\"20 Mbps\" }\n[satellite]\n",
                "\"link\" }\n[satellite]\nrate = \"20 Mbps\"\nmodem = \"\"\n",
                "g.toml:7:9: satellite.modem: found \"\"; allowed: a socket path of at most 107 bytes",
            ),
            (
                "keys = \"keys\"",
                "keys = \"k\"\nestimate = { least = \"1 Mbps\" }",
                "g.toml:9:1: satellite.estimate: found a table; allowed: at a terminal, or at a gateway with",
            ),
            (
                "\"20 Mbps\" }\n[satellite]\n",
                "\"link\" }\n[satellite]\nrate = \"20 Mbps\"\nestimate = { least = \"21 Mbps\" }\n",
                "g.toml:7:22: satellite.estimate.least: found \"21 Mbps\"; allowed: more than zero, at most satellite.rate",
            ),
            (
                "\"20 Mbps\" }\n[satellite]\n",
                "\"link\" }\n[satellite]\nrate = \"20 Mbps\"\nestimate = { least = \"1 Mbps\" }\nmodem = \"m\"\n",
                "g.toml:8:9: satellite.modem: found \"m\"; allowed: only without satellite.estimate",
            ),
            (
                "\"20 Mbps\" }",
                "\"link\" }",
                "g.toml:4:22: gateway.regulator.rate: found \"link\"; allowed: a rate such as \"20 Mbps\", because the satellite link \
                 has none",
            ),
            (
                "[internet]",
                "[users]",
                "g.toml:9:2: users: found a table; allowed: [internet] if role = \"gateway\"",
            ),
            (
                "clients = [\"10.3.0.0/24\", \"fd00:3::/64\"]",
                "clients = []",
                "g.toml:11:11: internet.clients: found []; allowed: at least one prefix",
            ),
            (
                "10.3.0.0/24",
                "10.3.0.1/24",
                "g.toml:11:12: internet.clients[1]: found \"10.3.0.1/24\"; allowed: the first address",
            ),
            (
                "\"fd00:3::/64\"",
                "\"fd00:3::/129\"",
                "g.toml:11:27: internet.clients[2]: found \"fd00:3::/129\"; allowed:",
            ),
            (
                "in0",
                "a/b",
                "g.toml:10:10: internet.device: found \"a/b\"; allowed: the name of a network device",
            ),
            (
                "[internet]",
                "[log]\nlevel = \"inform\"\n[internet]",
                "g.toml:10:9: log.level: found \"inform\"; did you mean \"info\"?",
            ),
            (
                "[internet]",
                "[metrics]\n[internet]",
                "g.toml:9:2: metrics.listen: missing; required: the address and port",
            ),
            (
                "[internet]",
                "[metrics]\nlisten = \"[::1]:1\"\nkeep = \"1 h\"\ninterval = \"100 ms\"\n[internet]",
                "g.toml:11:8: metrics.keep: found \"3600 s\"; allowed: at least metrics.interval (\"100 ms\"), and at most 3600 times",
            ),
            (
                "local = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"",
                "local = \"[fd02::1]:44\"\npeer = \"[fd02::2]:44\"\nmtu = \"1247 B\"",
                "g.toml:8:7: satellite.mtu: found \"1247 B\"; allowed: at least 1248 B",
            ),
            (
                "10.2.0.2:4400",
                "10.2.0.2:0",
                "g.toml:7:8: satellite.peer: found \"10.2.0.2:0\"; allowed: the address and the port",
            ),
            (
                "[internet]",
                "[metrics]\nlisten = \"[::1]:1\"\ninterval = \"99 ms\"\n[internet]",
                "g.toml:11:12: metrics.interval: found \"99 ms\"; allowed: at least 100 ms",
            ),
            (
                "[internet]",
                "[record]\nfile = \"r.jsonl\"\ninterval = \"999 us\"\n[internet]",
                "g.toml:11:12: record.interval: found \"999 us\"; allowed: at least 1 ms",
            ),
            (
                "in0",
                "a'b",
                "g.toml:10:10: internet.device: found \"a'b\"; allowed: the name of a network device",
            ),
            (
                "[internet]",
                "[scenario]\nfile = \"x.toml\"\n[internet]",
                "g.toml:9:2: scenario: found a table; allowed: [gateway] or [scenario]",
            ),
            (
                "role = \"gateway\"",
                "role = \"terminal\"",
                "g.toml:9:2: internet: found a table; allowed: [users] if role = \"terminal\"",
            ),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Config::parse(&TEXT.replacen(from, to, 1), "g.toml").unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}\n{message}");
        }
        let text = TEXT.split("[internet]").next().unwrap_or_default();
        let error = Config::parse(text, "g.toml").unwrap_err().to_string();
        assert_eq!(
            error,
            "g.toml:1:1: internet: missing; required: the network device towards the servers, if role = \"gateway\""
        );
    }

    /// Each at its threshold: one less, or one more, gives no warning.
    #[test]
    fn inconsistent_values_are_reported() {
        let warned = |from: &str, to: &str| {
            assert!(TEXT.contains(from), "{from}");
            Config::parse(&TEXT.replacen(from, to, 1), "g.toml").unwrap().warnings.join("; ")
        };
        for (from, to, said) in [
            ("[satellite]", "spacelink = { packet = \"1500 B\" }\n[satellite]", ""),
            (
                "[satellite]",
                "spacelink = { packet = \"1501 B\" }\n[satellite]",
                "gateway.spacelink.packet: 1501 B exceeds",
            ),
            ("[satellite]", "pep = { buffer = \"1 MB\" }\n[limits]\nmemory = \"1 MB\"\n[satellite]", ""),
            (
                "[satellite]",
                "pep = { buffer = \"1 MB\" }\n[limits]\nmemory = \"999999 B\"\n[satellite]",
                "limits.memory: 999999 B is less",
            ),
            ("[internet]", "[metrics]\nlisten = \"127.0.0.2:1\"\nkeep = \"1 h\"\n[internet]", ""),
            ("[internet]", "[metrics]\nlisten = \"0.0.0.0:1\"\n[internet]", "metrics.listen: not a loopback"),
        ] {
            let told = warned(from, to);
            assert!(told.starts_with(said) && told.is_empty() == said.is_empty(), "{to}: {told}");
        }
    }

    /// The same `[gateway]` at both ends: the gateway has the queues of the forward direction, the terminal those of the
    /// return direction.
    #[test]
    fn a_terminal_has_the_queues_of_the_return_direction() {
        let with = |back: &str, rate: &str| {
            let text = TEXT.replace("20 Mbps\" }\n", &format!("20 Mbps\" }}\nreturn = {{ {back} }}\n"));
            let text = text.replace("[internet]", &format!("{rate}[internet]"));
            let other = text.replace("internet", "users").replace("\"gateway\"", "\"terminal\"");
            (Config::parse(&text, "g.toml"), Config::parse(&other, "t.toml"))
        };
        let of = |config: Result<Config, Error>| {
            let config = config.unwrap();
            let queues = config.queues().map(|queues| queues.aqm.label.clone());
            (queues.unwrap(), config.rate().map(Rate::as_bps))
        };
        let (gateway, terminal) = with("aqm.algorithm = \"red\"", "rate = \"2 Mbps\"\n");
        assert_eq!(of(gateway), ("AVQRED".to_owned(), Some(20_000_000)));
        assert_eq!(of(terminal), ("red".to_owned(), Some(2_000_000)));
        let (_, terminal) = with("regulator.rate = \"1 Mbps\"", "");
        assert_eq!(of(terminal).1, Some(1_000_000));
        for (back, rate, message) in [
            (
                "marking = \"window\", regulator.rate = \"1 Mbps\"",
                "",
                "found \"window\" (gateway.return.marking)",
            ),
            (
                "aqm.algorithm = \"red\", marking = \"ecn\", mark = \"transmit\", regulator.rate = \"1 Mbps\"",
                "",
                "found \"ecn\" behind the PEP (gateway.return.marking); allowed at a terminal: \"drop\", or \"ecn\" ahead of the PEP",
            ),
        ] {
            let (gateway, terminal) = with(back, rate);
            assert!(gateway.is_ok(), "{gateway:?}");
            let error = terminal.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    /// A terminal may have the same `[gateway]` as the other end, whose followed rate is unknown here.
    #[test]
    fn a_terminal_needs_no_forward_rate() {
        let text = TEXT.replace("\"20 Mbps\"", "\"link\"").replace("internet", "users");
        let config =
            Config::parse(&text.replace("role = \"gateway\"", "role = \"terminal\""), "t.toml").unwrap();
        assert_eq!(config.rate(), None);
    }

    /// The return links of the scenario have 1 and 2 Mbit/s, 1.5 Mbit/s on average.
    #[test]
    fn queues_of_a_terminal_follow_its_own_return_link_and_not_the_mean_of_all() {
        let scenario = "title = \"t\"\n[run]\nduration = \"1 s\"\n[host.server]\n[host.user]\n[host.clerk]\n\
            [terminal.home]\n[terminal.office]\n[link.out]\nbetween = [\"server\", \"gateway\"]\n\
            [link.homes]\nbetween = [\"gateway\", \"home\"]\nreverse = { rate = \"1 Mbps\" }\n\
            [link.offices]\nbetween = [\"gateway\", \"office\"]\nreverse = { rate = \"2 Mbps\" }\n\
            [link.in]\nbetween = [\"home\", \"user\"]\n[link.lan]\nbetween = [\"office\", \"clerk\"]\n\
            [gateway]\nterminals = [\"home\", \"office\"]\naqm = { algorithm = \"red\" }\n\
            regulator = { rate = \"20 Mbps\" }\n[gateway.return]\n\
            [traffic.x]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\n";
        let file = std::env::temp_dir().join(format!("bentpipe-return-{}.toml", std::process::id()));
        std::fs::write(&file, scenario).unwrap();
        for rate in [1_000_000, 2_000_000] {
            let text = format!(
                "role = \"terminal\"\n[scenario]\nfile = \"{}\"\n[satellite]\nlocal = \"10.2.0.2:4400\"\n\
                 peer = \"10.2.0.1:4400\"\nkeys = \"keys\"\nrate = \"{rate} bps\"\n[users]\ndevice = \"tc0\"\n\
                 clients = [\"10.3.0.0/24\"]\n",
                file.display()
            );
            let config = Config::parse(&text, "t.toml").unwrap();
            let queues = config.queues().unwrap();
            assert_eq!((queues.regulator.rate.as_bps(), queues.watched_rate().as_bps()), (rate, rate));
            assert_eq!(config.rate().map(Rate::as_bps), Some(rate));
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn prefixes_contain_their_addresses() {
        let p: Prefix = "10.3.0.0/24".parse().unwrap();
        assert!(p.contains("10.3.0.255".parse().unwrap()) && !p.contains("10.3.1.0".parse().unwrap()));
        let all: Prefix = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()) && !all.contains("10.0.0.1".parse().unwrap()));
        let one: Prefix = "fd00::1/128".parse().unwrap();
        assert!(one.contains("fd00::1".parse().unwrap()) && !one.contains("fd00::2".parse().unwrap()));
        for bad in ["10.3.0.0", "10.3.0.0/33", "10.3.0.0/+8", "0.0.0.1/0", "/8", "x/8", "10.3.0.0/"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    /// A valid file with parts removed or replaced is accepted, or refused by a single line that names a place.
    #[test]
    fn invalid_files_give_one_line_messages() {
        let whole = TEXT.to_owned()
            + "[tcp]\nidle_timeout = \"1 h\"\n[limits]\nmemory = \"1 GB\"\n[metrics]\nlisten = \"[::1]:80\"\n";
        assert!(Config::parse(&whole, "g.toml").is_ok());
        let (mut taken, mut refused) = (0, 0);
        for begin in (0..whole.len()).step_by(3) {
            for end in [begin + 1, begin + 4, begin + 30] {
                for other in ["", "\"", "-1", "é", "= {", "[gateway]\n", "\u{0}", "99999999999999999999"] {
                    let Some((head, tail)) = whole.get(..begin).zip(whole.get(end..)) else { continue };
                    match Config::parse(&[head, other, tail].concat(), "g.toml") {
                        Ok(_) => taken += 1,
                        Err(e) => {
                            let text = e.to_string();
                            assert!(text.starts_with("g.toml:") && text.lines().count() == 1, "{text}");
                            refused += 1;
                        }
                    }
                }
            }
        }
        assert!(taken > 20 && refused > 2000, "{taken} {refused}");
    }
}
