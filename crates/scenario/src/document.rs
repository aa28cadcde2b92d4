//! A TOML file with a scenario's gateway: the configuration of the live gateway.
//!
//! Its other sections are structs of the caller, made of [`crate::quantity`]; mistakes in them are reported with their location.

use std::path::Path as FilePath;
use std::sync::Arc;

use bentpipe_units::{Duration, Rate};
use serde::{Serialize, de::DeserializeOwned};

use crate::effective::{self, Effective, Notes};
use crate::error::{Error, Location};
use crate::model::Gateway;
use crate::reader::de::Reader;
use crate::reader::files::{Files, read_text};

use crate::reader::Input;
use crate::resolve;
use crate::schema::quantity::TIME;

use crate::reader::source::{Source, read_toml};
use crate::reader::tree::{At, Entry, Node, Step, Value, bare_or_quoted};

/// A TOML file with a section `[gateway]`.
#[derive(Debug)]
pub struct Document {
    input: Arc<Input>,
}

/// The gateway of a [`Document`].
#[derive(Clone, Debug)]
pub struct Section {
    /// Gateway.
    pub gateway: Gateway,
    /// Every key of the gateway with its effective value.
    pub effective: Vec<Effective>,
    /// Warnings: permitted combinations that are probably mistakes.
    pub warnings: Vec<String>,
}

/// Names of the hosts around the gateway. No gateway can have them.
const SERVERS: &str = "outside-of-the-gateway";
const CLIENTS: &str = "outside-of-the-terminal";

impl Document {
    /// Loads a file.
    ///
    /// # Errors
    /// The file cannot be read or is not TOML.
    pub fn load(path: impl AsRef<FilePath>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = read_text(path, "a configuration")?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses `text`. `file` is its name in messages.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            let problem = "the file is empty; allowed: a configuration, in TOML".to_owned();
            return Err(Error { place: Location::WholeFile(file.to_owned()), key: String::new(), problem });
        }
        let (source, base) = Source::parse(file, text, &[])?;
        Ok(Self {
            input: Arc::new(Input { source, base, files: Files::around(file), parameters: Vec::new() }),
        })
    }

    /// Returns true if the file has a key, dotted.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.input.base.find(&steps(key)).is_some()
    }

    /// Deserializes the whole file, including the gateway's section. `required` lists the required keys, dotted, and
    /// what they are for.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn read<T: DeserializeOwned>(&self, required: &[(&str, &str)]) -> Result<T, Error> {
        T::deserialize(Reader(&self.input.base)).map_err(|wrong| {
            let path: Vec<Step> = wrong.way.into_iter().rev().collect();
            let problem = match wrong.problem.as_str() {
                "missing" => {
                    let key = crate::reader::tree::dotted(&self.input.base, &path);
                    let what = required.iter().find(|(name, _)| *name == key).map(|(_, what)| *what);
                    format!("missing; required: {}", what.unwrap_or("it has no default"))
                }
                _ => wrong.problem,
            };
            self.input.source.error(&self.input.base, &path, wrong.key, problem, "")
        })
    }

    /// Returns an error in the value of a key, dotted; an array element is a further part, counted from zero.
    #[must_use]
    pub fn error(&self, key: &str, problem: String) -> Error {
        self.input.source.error(&self.input.base, &steps(key), false, problem, "")
    }

    /// Returns every key of `file`, which was read from this document, with its effective value.
    #[must_use]
    pub fn effective<T: Serialize>(&self, file: &T) -> Vec<Effective> {
        let Ok(serde_json::Value::Object(sections)) = serde_json::to_value(file) else { return Vec::new() };
        let mut rows = Vec::new();
        for (name, value) in &sections {
            effective::flatten(
                (&self.input.base, &Notes::new()),
                &[Step::Key(name.clone())],
                value,
                &mut rows,
            );
        }
        rows
    }

    /// Resolves the gateway, in front of a satellite link with a round-trip delay and optionally a rate.
    ///
    /// # Errors
    /// Those of [`crate::Scenario::parse`].
    pub fn gateway(&self, round_trip: Duration, rate: Option<Rate>) -> Result<Section, Error> {
        let base = &self.input.base;
        let key = [Step::Key("gateway".to_owned())];
        let whole = |problem: &str| Err(self.input.source.error(base, &key, false, problem.to_owned(), ""));
        let Some(node) = base.get("gateway") else {
            return whole("missing; required: the gateway, as a scenario has it");
        };
        if let Value::Array(_) = node.value {
            return whole("found an array; allowed: one gateway, a table");
        }
        // Other mistakes in a name get a scenario's message.
        let name = |key: &str, default: &'static str| {
            let name = node.get_text(key).unwrap_or(default);
            if name.is_empty() { default.to_owned() } else { name.to_owned() }
        };
        let root = around(&name("name", "gateway"), &name("terminal", "terminal"), round_trip, rate)
            .map_err(|problem| Error {
                place: Location::WholeFile(self.input.source.file.clone()),
                key: String::new(),
                problem,
            })?;
        let root = with_gateway(root, node);
        // Only nodes of the file have locations in it, so all mistakes are the gateway's.
        let mut scenario = resolve::resolve_tree(&self.input, root, Vec::new(), None)?;
        let is_its = |text: &str| text.starts_with("gateway.") || text.starts_with("gateway:");
        scenario.effective.retain(|row| is_its(&row.key));
        let mut warnings: Vec<_> = scenario.warnings.into_iter().map(|warning| warning.text).collect();
        warnings.retain(|text| is_its(text));
        match scenario.gateways.pop() {
            Some(gateway) => Ok(Section { gateway, effective: scenario.effective, warnings }),
            None => whole("missing; required: the gateway, as a scenario has it"),
        }
    }
}

/// A scenario around the gateway.
fn around(gateway: &str, terminal: &str, round_trip: Duration, rate: Option<Rate>) -> Result<Node, String> {
    let quoted = |name: &str| serde_json::Value::from(name).to_string();
    let (gateway, terminal) = (quoted(gateway), quoted(terminal));
    let way = (TIME.write)(round_trip.as_nanos() / 2);
    let rate = rate.map(|rate| format!(", rate = \"{rate}\"")).unwrap_or_default();
    let (servers, clients) = (bare_or_quoted(SERVERS), bare_or_quoted(CLIENTS));
    let text = format!(
        "title = \"A gateway alone\"\nrun.duration = \"1 s\"\nhost.{servers} = {{}}\nhost.{clients} = {{}}\n\
         link.outside = {{ between = [\"{SERVERS}\", {gateway}] }}\n\
         link.satellite = {{ between = [{gateway}, {terminal}], delay = \"{way}\"{rate} }}\n\
         link.inside = {{ between = [{terminal}, \"{CLIENTS}\"] }}\n\
         transport.default = {{ ecn = true }}\n\
         traffic.any = {{ kind = \"bulk\", from = \"{SERVERS}\", to = \"{CLIENTS}\" }}\n"
    );
    read_toml(&text).map(|root| root.relocated(At::File(0))).map_err(|(message, _)| message)
}

fn with_gateway(mut root: Node, gateway: &Node) -> Node {
    if let Value::Table(entries) = &mut root.value {
        entries.push(Entry { key: "gateway".to_owned(), at: gateway.at, node: gateway.clone() });
    }
    root
}

fn steps(key: &str) -> Vec<Step> {
    let step = |part: &str| part.parse().map_or_else(|_| Step::Key(part.to_owned()), Step::Index);
    key.split('.').map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::IgnoredAny;

    use super::*;
    use crate::schema::quantity::{Size, Span};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "gateway")]
        _gateway: Option<IgnoredAny>,
        #[serde(default)]
        limits: Limits,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        memory: Option<Size>,
        #[serde(rename = "idle")]
        _idle: Option<Span>,
    }

    const TEXT: &str = "# a comment\n[limits]\nmemory = \"1 MB\"\n\n[gateway]\naqm = { preset = \"AVQRED\" }\n\
                        regulator = { rate = \"20 Mbps\" }\n";

    fn of(text: &str) -> (Document, Result<Section, Error>) {
        let document = Document::parse(text, "g.toml").unwrap();
        let section = document.gateway(Duration::from_millis(600), None);
        (document, section)
    }

    /// 20 Mbit/s over 600 ms are 1.5 MB, with the acknowledgements' 50 ms 1.625 MB: less than the window's 4 MB.
    #[test]
    fn a_document_resolves_its_gateway_like_a_scenario() {
        let (document, section) = of(TEXT);
        let section = section.unwrap();
        assert_eq!(section.gateway.regulator.rate.as_bps(), 20_000_000);
        assert_eq!(
            (section.gateway.aqm.label.as_str(), section.gateway.aqm.algorithm.name),
            ("AVQRED", "avqred")
        );
        assert_eq!(section.warnings, Vec::<String>::new());
        assert!(
            section.effective.iter().all(|row| row.key.starts_with("gateway.")),
            "{:?}",
            section.effective
        );
        assert_eq!(document.read::<File>(&[]).unwrap().limits.memory.map(|size| size.0), Some(1_000_000));
        let (_, section) = of(&(TEXT.to_owned() + "spacelink = { window = \"1100 KB\" }\n"));
        let warnings = section.unwrap().warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("up to 1.7 MB"), "{warnings:?}");
    }

    /// 20 Mbit/s are the rate before the modem's first message.
    #[test]
    fn default_capacity_follows_a_regulator_that_follows_the_modem() {
        for (regulator, follows) in [("\"link\"", true), ("\"20 Mbps\"", false)] {
            let text =
                format!("[gateway]\naqm = {{ algorithm = \"avqred\" }}\nregulator.rate = {regulator}\n");
            let document = Document::parse(&text, "g.toml").unwrap();
            let section =
                document.gateway(Duration::from_millis(600), Some(Rate::from_bps(20_000_000))).unwrap();
            let values = &section.gateway.aqm.values;
            assert_eq!((values.number("max_capacity"), values.follows("max_capacity")), (20e6, follows));
        }
    }

    #[test]
    fn mistakes_are_located_in_the_file() {
        for (from, to, message) in [
            ("20 Mbps", "20 Mbs", "g.toml:7:22: gateway.regulator.rate: found \"20 Mbs\"; allowed: a rate"),
            (
                "AVQRED",
                "AVQRAD",
                "g.toml:6:18: gateway.aqm.preset: found \"AVQRAD\"; did you mean \"AVQRED\"?",
            ),
            (
                "regulator",
                "regulater",
                "g.toml:7:1: gateway.regulater: no such key; did you mean \"regulator\"?",
            ),
            (
                "rate = \"20 Mbps\"",
                "tick = \"5 ms\"",
                "g.toml:7:1: gateway.regulator.rate: missing; required: Rate of the regulator",
            ),
            (
                "\"20 Mbps\"",
                "\"link\"",
                "g.toml:7:22: gateway.regulator.rate: found \"link\"; allowed: a rate",
            ),
        ] {
            let error = of(&TEXT.replace(from, to)).1.unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        for (from, to, message) in [
            ("1 MB", "1 M", "g.toml:3:10: limits.memory: found \"1 M\"; allowed: a size such as"),
            ("memory", "memori", "g.toml:3:1: limits.memori: no such key; did you mean \"memory\"?"),
            (
                "memory = \"1 MB\"",
                "idle = \"0 s\"",
                "g.toml:3:8: limits.idle: found \"0 s\"; allowed: a time above 0",
            ),
        ] {
            let error = of(&TEXT.replace(from, to)).0.read::<File>(&[]).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
