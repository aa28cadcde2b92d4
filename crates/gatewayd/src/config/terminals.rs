//! Terminals of a gateway with many: a folder with a file for each.

use std::fs;
use std::path::{Path, PathBuf};

use bentpipe_queue::tree::Share;
use bentpipe_scenario::{Document, Effective, Error, QueuesPer};
use bentpipe_spacelink::Certificate;
use bentpipe_units::Rate;
use serde::{Deserialize, Serialize};

use super::file::{File, Prefix};
use crate::relay::terminals::{is_within, overlap};

/// Longest name of a terminal.
const LONGEST_NAME: usize = 63;

/// Required keys of a terminal's file and their meaning.
const REQUIRED: &[(&str, &str)] = &[
    ("certificate", "the terminal's certificate, such as \"office-1.crt\""),
    ("clients", "the addresses of the users behind the terminal, such as [\"10.3.0.0/24\", \"fd00:3::/64\"]"),
];

/// A terminal's file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TerminalFile {
    /// The certificate by which the terminal is known.
    certificate: String,
    /// Addresses of the users behind it.
    clients: Vec<Prefix>,
    /// Name of its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
}

/// A terminal of a gateway with many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Name: that of its file.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// File with its certificate.
    pub certificate: PathBuf,
    /// Addresses of the users behind it.
    pub clients: Vec<Prefix>,
    /// Name of its plan.
    pub plan: Option<String>,
    /// Its share of the carrier, by its plan.
    pub share: Share,
}

/// The terminals of a gateway with many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminals {
    /// Folder with their files.
    pub folder: PathBuf,
    /// Terminals that share the queues.
    pub queues_per: QueuesPer,
    /// Maximum number of split connections of one terminal.
    pub connections: u32,
    /// By name.
    pub list: Vec<Terminal>,
}

impl Terminals {
    /// Certificates of the terminals, in the order of the list.
    ///
    /// # Errors
    /// The first that cannot be read, or that another terminal has.
    pub fn certificates(&self) -> Result<Vec<Certificate>, String> {
        let mut read: Vec<Certificate> = Vec::with_capacity(self.list.len());
        for terminal in &self.list {
            let file = terminal.file.display();
            let certificate = Certificate::read(&terminal.certificate)
                .map_err(|e| format!("{file}: certificate: {e}; copy it from the terminal, where bentpipe-gateway keygen makes it"))?;
            if let Some(other) = read.iter().position(|known| *known == certificate) {
                let other = &self.list[other].name;
                return Err(format!(
                    "{file}: certificate: found the certificate of terminal {other:?}; allowed: one that no other terminal has"
                ));
            }
            read.push(certificate);
        }
        Ok(read)
    }
}

/// Reads the terminals that the configuration `file` in `folder` names, of a gateway with this rate, and appends their
/// effective keys and warnings.
pub(super) fn read(
    document: &Document,
    file: &File,
    (folder, rate): (&Path, Rate),
    (rows, warnings): (&mut Vec<Effective>, &mut Vec<String>),
) -> Result<Option<Terminals>, Error> {
    check_plans(document, file)?;
    let Some(section) = &file.terminals else { return Ok(None) };
    let folder = folder.join(&section.folder);
    let found = &section.folder;
    let entries = fs::read_dir(&folder).map_err(|e| {
        let problem =
            format!("found {found:?}: {e}; allowed: a folder with a file NAME.toml for each terminal");
        document.error("terminals.folder", problem)
    })?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    let mut read = Vec::new();
    for path in files {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(allowed) {
            let problem = format!(
                "found the file {}; allowed: names of 1 to {LONGEST_NAME} letters, digits and -_., then .toml",
                path.display()
            );
            return Err(document.error("terminals.folder", problem));
        }
        let its = Document::load(&path)?;
        let keys: TerminalFile = its.read(REQUIRED)?;
        if keys.clients.is_empty() {
            let problem = "found []; allowed: at least one prefix, such as [\"10.3.0.0/24\"]".to_owned();
            return Err(its.error("clients", problem));
        }
        let own = its.effective(&keys);
        rows.extend(
            own.into_iter().map(|row| Effective { key: format!("terminal.{name}.{}", row.key), ..row }),
        );
        let certificate = folder.join(&keys.certificate);
        let share = share(file, section.queues_per, &its, keys.plan.as_deref())?;
        read.push((
            its,
            Terminal { name, file: path, certificate, clients: keys.clients, plan: keys.plan, share },
        ));
    }
    check_clients(file, &read)?;
    let list: Vec<_> = read.into_iter().map(|(_, terminal)| terminal).collect();
    let committed: u64 = list.iter().map(|terminal| terminal.share.cir.as_bps()).sum();
    if committed > rate.as_bps() {
        let committed = Rate::from_bps(committed);
        warnings.push(format!(
            "plan: the committed rates of all terminals, {committed}, exceed gateway.regulator.rate ({rate}); each gets the same \
             part of its rate"
        ));
    }
    if list.is_empty() {
        warnings.push(format!("terminals.folder: found no file NAME.toml in {}", folder.display()));
    }
    Ok(Some(Terminals { folder, queues_per: section.queues_per, connections: section.connections.0, list }))
}

/// Checks the plans, and that there are terminals for them.
fn check_plans(document: &Document, file: &File) -> Result<(), Error> {
    if file.terminals.as_ref().is_some_and(|section| section.queues_per == QueuesPer::Subscriber) {
        let problem = "found \"subscriber\"; allowed: \"carrier\", \"terminal\", because only simulations have queues for each \
                       subscriber; to keep their flows apart, use a scheduler such as cake_users"
            .to_owned();
        return Err(document.error("terminals.queues_per", problem));
    }
    for (name, plan) in &file.plan {
        let key = format!("plan.{name}");
        if file.terminals.as_ref().is_none_or(|section| section.queues_per == QueuesPer::Carrier) {
            let problem = "found a table; allowed: only with terminals.queues_per = \"terminal\", because terminals that share a \
                           queue share its order";
            return Err(document.error(&key, problem.to_owned()));
        }
        if let (Some(cir), Some(pir)) = (plan.cir, plan.pir)
            && pir.rate() < cir.rate()
        {
            let problem = format!("found \"{}\"; allowed: at least cir (\"{}\")", pir.rate(), cir.rate());
            return Err(document.error(&format!("{key}.pir"), problem));
        }
    }
    Ok(())
}

/// The share that a terminal has by its plan.
fn share(file: &File, queues_per: QueuesPer, its: &Document, plan: Option<&str>) -> Result<Share, Error> {
    let Some(name) = plan else { return Ok(Share::default()) };
    if queues_per == QueuesPer::Carrier {
        let problem = format!(
            "found {name:?}; allowed: only if the gateway has terminals.queues_per = \"terminal\", because terminals that share \
             a queue share its order"
        );
        return Err(its.error("plan", problem));
    }
    let Some(plan) = file.plan.get(name) else {
        let known: Vec<_> = file.plan.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "a plan of the gateway's configuration, [plan.NAME]".to_owned()
        } else {
            known.join(", ")
        };
        return Err(its.error("plan", format!("found {name:?}; allowed: {known}")));
    };
    Ok(Share {
        cir: plan.cir.map_or(Rate::from_bps(0), |cir| cir.rate()),
        pir: plan.pir.map(|pir| pir.rate()),
        weight: plan.weight.0,
        burst: plan.burst.0,
    })
}

/// Checks that each prefix is behind one terminal only, and that the rules of the gateway cover it.
fn check_clients(file: &File, read: &[(Document, Terminal)]) -> Result<(), Error> {
    let outer = file.internet.as_ref().map(|internet| internet.clients.as_slice()).unwrap_or_default();
    let mut all = Vec::new();
    for (number, (document, terminal)) in read.iter().enumerate() {
        for prefix in &terminal.clients {
            if !outer.iter().any(|outer| is_within(prefix, outer)) {
                let list: Vec<_> = outer.iter().map(Prefix::to_string).collect();
                let problem = format!(
                    "found \"{prefix}\"; allowed: prefixes within internet.clients ({}) of the gateway's configuration",
                    list.join(", ")
                );
                return Err(document.error("clients", problem));
            }
            all.push((number, *prefix));
        }
    }
    let Some([(first, a), (second, b)]) = overlap(&all) else { return Ok(()) };
    let (other, (document, _)) = (&read[first].1.name, &read[second]);
    let of = if first == second { "the same terminal".to_owned() } else { format!("terminal {other:?}") };
    let problem =
        format!("found \"{b}\", which overlaps \"{a}\" of {of}; allowed: prefixes without common addresses");
    Err(document.error("clients", problem))
}

#[cfg(test)]
mod tests {
    use bentpipe_spacelink::keygen;

    use super::*;
    use crate::config::{Config, check};

    const GATEWAY: &str = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
        [satellite]\nlocal = \"10.2.0.1:4400\"\nkeys = \"keys\"\n\
        [terminals]\nfolder = \"terminals\"\n\
        [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/16\", \"fd03::/48\"]\n";

    /// A folder with a configuration and the files of its terminals.
    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bentpipe-terminals-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("terminals")).unwrap();
        for (file, text) in files {
            fs::write(folder.join("terminals").join(file), text).unwrap();
        }
        folder
    }

    const ONE: &str = "certificate = \"a.crt\"\nclients = [\"10.3.1.0/24\", \"fd03:0:0:1::/64\"]\n";

    #[test]
    fn each_file_is_a_terminal() {
        let two = "certificate = \"b.crt\"\nclients = [\"10.3.2.0/24\"]\n";
        let folder = folder("files", &[("b.toml", two), ("a.toml", ONE), ("notes.txt", "none")]);
        let config = Config::parse(GATEWAY, folder.join("g.toml")).unwrap();
        let terminals = config.terminals.as_ref().unwrap();
        let names: Vec<_> = terminals.list.iter().map(|terminal| terminal.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(terminals.list[0].certificate, folder.join("terminals/a.crt"));
        let row = config.effective.iter().find(|row| row.key == "terminal.b.clients").unwrap();
        assert_eq!(row.value, "[\"10.3.2.0/24\"]");
        // Keys of a gateway with one terminal.
        for key in ["gateway.terminal", "gateway.queues_per"] {
            assert!(config.effective.iter().all(|row| row.key != key), "{key}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_mistake_in_a_terminals_file_gives_one_message_with_its_place() {
        for (case, files, message) in [
            (
                "key",
                [("a.toml", "clients = []\ncert = \"\"\n"), ("b.toml", ONE)],
                "/terminals/a.toml:2:1: cert: no such key",
            ),
            (
                "missing",
                [("a.toml", "clients = [\"10.3.0.0/24\"]\n"), ("b.toml", ONE)],
                "/terminals/a.toml:1:1: certificate: missing; required: the terminal's certificate",
            ),
            (
                "none",
                [("a.toml", "certificate = \"a.crt\"\nclients = []\n"), ("b.toml", ONE)],
                "/terminals/a.toml:2:11: clients: found []; allowed: at least one prefix",
            ),
            (
                "overlap",
                [("a.toml", ONE), ("b.toml", "certificate = \"b.crt\"\nclients = [\"10.3.1.128/25\"]\n")],
                "/terminals/b.toml:2:11: clients: found \"10.3.1.128/25\", which overlaps \"10.3.1.0/24\" of terminal \"a\"; \
                 allowed: prefixes without common addresses",
            ),
            (
                "outside",
                [("a.toml", ONE), ("b.toml", "certificate = \"b.crt\"\nclients = [\"10.4.0.0/24\"]\n")],
                "/terminals/b.toml:2:11: clients: found \"10.4.0.0/24\"; allowed: prefixes within internet.clients \
                 (10.3.0.0/16, fd03::/48)",
            ),
            ("name", [("a b.toml", ONE), ("c.toml", ONE)], "/g.toml:8:10: terminals.folder: found the file "),
        ] {
            let folder = folder(case, &files);
            let error = Config::parse(GATEWAY, folder.join("g.toml")).unwrap_err().to_string();
            let expected = format!("{}{message}", folder.display());
            assert!(error.starts_with(&expected), "{error}\n{expected}");
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn terminals_and_a_peer_exclude_each_other() {
        let folder = folder("sides", &[("a.toml", ONE)]);
        for (from, to, message) in [
            (
                "keys = \"keys\"\n",
                "keys = \"keys\"\npeer = \"10.2.0.2:4400\"\n",
                "terminals: found a table; allowed: [terminals] or satellite.peer, not both",
            ),
            ("folder = \"terminals\"", "folder = \"none\"", "terminals.folder: found \"none\": "),
            (
                "[terminals]\nfolder = \"terminals\"\n",
                "",
                "satellite.peer: missing; required: the UDP address of the other end, such as \"10.2.0.2:4400\", or [terminals] \
                 at a gateway with many",
            ),
        ] {
            assert!(GATEWAY.contains(from), "{from}");
            let error =
                Config::parse(&GATEWAY.replacen(from, to, 1), folder.join("g.toml")).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let terminal = GATEWAY.replace("\"gateway\"", "\"terminal\"").replace("[internet]", "[users]");
        let error = Config::parse(&terminal, folder.join("g.toml")).unwrap_err().to_string();
        assert!(error.contains("terminals: found a table; allowed: only if role = \"gateway\""), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn plans_are_shares_of_the_carrier() {
        let planned = ONE.to_owned() + "plan = \"home\"\n";
        let folder = folder("plans", &[("a.toml", &planned)]);
        let read = |plans: &str| {
            let text =
                GATEWAY.replace("folder = \"terminals\"\n", &format!("folder = \"terminals\"\n{plans}"));
            Config::parse(&text, folder.join("g.toml"))
        };
        let queues = "queues_per = \"terminal\"\n";
        let home = "[plan.home]\ncir = \"1 Mbps\"\npir = \"8 Mbps\"\nweight = 3\nburst = \"30 KB\"\n";
        let config = read(&format!("{queues}{home}")).unwrap();
        let share = Share {
            cir: Rate::from_bps(1_000_000),
            pir: Some(Rate::from_bps(8_000_000)),
            weight: 3,
            burst: 30_000,
        };
        assert_eq!(config.terminals.as_ref().unwrap().list[0].share, share);
        assert_eq!((config.queues_per(), config.warnings.len()), (QueuesPer::Terminal, 0));
        let over = read(&format!("{queues}[plan.home]\ncir = \"21 Mbps\"\n")).unwrap();
        assert!(
            over.warnings[0].starts_with("plan: the committed rates of all terminals, 21 Mbps, exceed"),
            "{:?}",
            over.warnings
        );
        for (plans, message) in [
            (
                home.to_owned(),
                "g.toml:9:7: plan.home: found a table; allowed: only with terminals.queues_per = \"terminal\"",
            ),
            (
                String::new(),
                "a.toml:3:8: plan: found \"home\"; allowed: only if the gateway has terminals.queues_per",
            ),
            (
                queues.to_owned(),
                "a.toml:3:8: plan: found \"home\"; allowed: a plan of the gateway's configuration, [plan.NAME]",
            ),
            (
                format!("{queues}[plan.office]\n[plan.other]\n"),
                "a.toml:3:8: plan: found \"home\"; allowed: office, other",
            ),
            (
                format!("{queues}[plan.home]\ncir = \"9 Mbps\"\npir = \"8 Mbps\"\n"),
                "g.toml:12:7: plan.home.pir: found \"8 Mbps\"; allowed: at least cir (\"9 Mbps\")",
            ),
            (
                format!("{queues}[plan.home]\nweight = 0\n"),
                "g.toml:11:10: plan.home.weight: found 0; allowed: ",
            ),
        ] {
            let error = read(&plans).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\n{message}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn missing_and_duplicate_certificates_are_found() {
        let two = "certificate = \"b.crt\"\nclients = [\"10.3.2.0/24\"]\n";
        let folder = folder("certificates", &[("a.toml", ONE), ("b.toml", two)]);
        let own = keygen(&folder.join("keys"), "gateway", false).unwrap();
        assert!(own[0].exists());
        let errors = || check(&Config::parse(GATEWAY, folder.join("g.toml")).unwrap()).errors;
        let found = errors();
        assert!(found.len() == 1 && found[0].contains("terminals/a.toml: certificate: "), "{found:?}");
        keygen(&folder.join("terminals"), "a", false).unwrap();
        fs::copy(folder.join("terminals/a.crt"), folder.join("terminals/b.crt")).unwrap();
        let found = errors();
        assert!(
            found.len() == 1
                && found[0].ends_with(
                    "terminals/b.toml: certificate: found the certificate of terminal \"a\"; allowed: one that no other terminal has"
                ),
            "{found:?}"
        );
        fs::remove_file(folder.join("terminals/b.crt")).unwrap();
        keygen(&folder.join("terminals"), "b", false).unwrap();
        assert_eq!(errors(), Vec::<String>::new());
        fs::remove_dir_all(folder).unwrap();
    }
}
