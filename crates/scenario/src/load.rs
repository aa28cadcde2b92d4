//! Loading a scenario, and deriving others from it.

use std::path::Path;
use std::sync::Arc;

use bentpipe_gateway::GatewayQueue;
use bentpipe_queue::Marking;
use bentpipe_queue::descriptor::Placement;
use bentpipe_queue::registry;

use crate::effective::{Effective, Origin};
use crate::error::{Error, Location, choices, quoted};
use crate::model::{Digest, GatewayIndex, Hop, NO_AQM, Subject, Traffic};
use crate::reader::Input;
use crate::reader::files::{Files, read_text};
use crate::reader::source::Source;
use crate::reader::tree::{At, Node, Step, Value, dotted};
use crate::resolve::overrides::Choice;
use crate::resolve::{self, nodes};
use crate::scenario::Scenario;
use crate::settings::{self, Found};

/// Everything that a scenario was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Name of the scenario file in messages.
    pub file: String,
    /// Text of the file, without overrides.
    pub text: String,
    /// Overrides, each `key=value`.
    pub overrides: Vec<String>,
    /// Applied setting; `None` for the scenario's own algorithms.
    pub setting: Option<String>,
    /// Parameter names of AQMs outside the registry, which the overrides may name.
    pub parameters: Vec<String>,
    /// Files that the scenario names: path and SHA-256 of the content.
    pub files: Vec<(String, Digest)>,
}

/// A key of an AQM that is implemented outside.
#[derive(Clone, Debug)]
pub struct OutsideKey {
    /// Name within the AQM's table.
    pub key: String,
    /// Value as a scenario file has it.
    pub value: String,
    /// Source of the value.
    pub origin: Origin,
    /// Explanation; may be empty.
    pub note: String,
}

impl Scenario {
    /// Loads a scenario file and applies `overrides`, each `key=value` with a dotted key. A value that is not TOML is taken as
    /// text.
    ///
    /// # Errors
    /// The file cannot be read, or the errors of [`Scenario::parse`].
    pub fn load(path: impl AsRef<Path>, overrides: &[String]) -> Result<Self, Error> {
        Self::load_with_parameters(path, overrides, Vec::new())
    }

    /// Like [`Scenario::load`]; overrides may also name `parameters` of AQMs outside the registry.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn load_with_parameters(
        path: impl AsRef<Path>,
        overrides: &[String],
        parameters: Vec<String>,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let (text, file) = (read_text(path, "a scenario")?, path.display().to_string());
        Self::parse_with(Files::around(&file), &text, &file, overrides, parameters)
    }

    /// Parses a scenario. `file` is its name in messages.
    ///
    /// # Errors
    /// The first mistake in the text or in an override.
    pub fn parse(text: &str, file: &str, overrides: &[String]) -> Result<Self, Error> {
        Self::parse_with(Files::around(file), text, file, overrides, Vec::new())
    }

    fn parse_with(
        files: Files,
        text: &str,
        file: &str,
        overrides: &[String],
        parameters: Vec<String>,
    ) -> Result<Self, Error> {
        let (source, base) = Source::parse(file, text, overrides)?;
        resolve::resolve(&Arc::new(Input { source, base, files, parameters }), None)
    }

    /// Packs everything that the scenario was read from, to be read again on another machine. Later changes of fields are
    /// not included. Returns `None` if the AQM is implemented outside.
    #[must_use]
    pub fn packed(&self) -> Option<Packed> {
        if self.subject_aqm().is_some_and(|aqm| !aqm.outside.is_empty()) {
            return None;
        }
        let files = self.input.files.all();
        Some(Packed {
            file: self.input.source.file.clone(),
            text: self.text().to_owned(),
            overrides: self.overrides().map(str::to_owned).collect(),
            setting: self.setting.clone(),
            parameters: self.input.parameters.clone(),
            files: files.iter().map(|data| (data.name.clone(), data.digest)).collect(),
        })
    }

    /// Returns the content of a file that the scenario names, by its path in [`Packed::files`].
    #[must_use]
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.input.files.all().into_iter().find(|data| data.name == path).map(|data| data.bytes.clone())
    }

    /// Reads a packed scenario. `files` are the contents of its files by path; nothing is read from disk.
    ///
    /// # Errors
    /// A missing file, or the errors of [`Scenario::parse`] and [`Scenario::with_setting`].
    pub fn unpack(
        packed: &Packed,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, Error> {
        let files = Files::packed(&packed.file, files);
        let (text, file) = (&packed.text, &packed.file);
        let scenario = Self::parse_with(files, text, file, &packed.overrides, packed.parameters.clone())?;
        packed.setting.as_ref().map_or(Ok(scenario.clone()), |name| scenario.with_setting(name))
    }

    /// Returns the scenario with the subject's AQM replaced: by the scenario's own setting `name`, else by a preset, else by an
    /// algorithm with its defaults; or with the subject's scheduler replaced and no AQM. Case is ignored unless a name
    /// matches exactly.
    ///
    /// A preset with a marking method replaces the gateway's, and gives each connection its own buffer if that method cuts
    /// windows. An AQM that acts on dequeued packets marks at the watched queue, whatever the scenario's mark point.
    /// Overrides of AQM parameters apply to the new AQM if it has them; the others are in
    /// [`Scenario::unused_overrides`]. Later changes of fields are not kept.
    ///
    /// # Errors
    /// No such setting, or one that cannot be used at the subject.
    pub fn with_setting(&self, name: &str) -> Result<Self, Error> {
        let name = name.trim();
        let Some(found) = settings::find(&self.settings, name) else {
            return Err(Error {
                place: Location::Setting(name.to_owned()),
                key: String::new(),
                problem: format!("no setting of that name; {}", choices(name, self.setting_names())),
            });
        };
        self.with_found(found)
    }

    /// Returns the scenario with an AQM at the subject that is implemented outside and called `label`. `keys` identify it,
    /// its name first. Overrides of its `parameters` are in use; the caller applies their values
    /// ([`Scenario::aqm_overrides`]).
    ///
    /// # Errors
    /// An AQM that cannot be used at the subject.
    pub fn with_outside(
        &self,
        label: &str,
        placement: Placement,
        keys: &[OutsideKey],
        parameters: &[String],
    ) -> Result<Self, Error> {
        let mut new = self.with_found(Found::aqm(label, "algorithm", NO_AQM, placement))?;
        let path = dotted(&self.input.base, &[self.subject_path(), steps(&["aqm"])].concat());
        if let Some(aqm) = new.subject_aqm_mut() {
            aqm.outside = keys.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
        }
        let own =
            |e: &Error| e.key.strip_prefix(&path).and_then(|key| key.strip_prefix('.')).map(str::to_owned);
        new.unused_overrides.retain(|e| own(e).is_none_or(|name| !parameters.contains(&name)));
        for unused in &mut new.unused_overrides {
            let Some(name) = own(unused) else { continue };
            unused.problem = if parameters.is_empty() {
                format!("{label} has no parameters")
            } else {
                format!("no parameter of {label}; {}", choices(&name, parameters.iter().map(String::as_str)))
            };
        }
        let rows = keys.iter().map(|row| Effective {
            key: format!("{path}.{}", row.key),
            value: row.value.clone(),
            origin: row.origin,
            note: row.note.clone(),
        });
        if let Some(at) = new.effective.iter().position(|row| row.key == format!("{path}.algorithm")) {
            new.effective.splice(at..=at, rows);
        }
        Ok(new)
    }

    /// Returns the overrides of parameters of the subject's AQM, as names and values in the order of the overrides; text without
    /// quotes.
    #[must_use]
    pub fn aqm_overrides(&self) -> Vec<(String, String)> {
        let of = [self.subject_path(), steps(&["aqm"])].concat();
        let found = self.input.source.overrides.iter().filter_map(|change| {
            let path = resolve::overrides::path_of(&self.input.base, change).ok()?;
            let Some((Step::Key(name), owner)) = path.split_last() else { return None };
            let value = match &change.node.value {
                Value::Text(text) => text.clone(),
                _ => change.node.to_string(),
            };
            (owner == of.as_slice()).then(|| (name.clone(), value))
        });
        found.collect()
    }

    fn is_overridden(&self, path: &[Step]) -> bool {
        let of = |change| resolve::overrides::path_of(&self.input.base, change);
        self.input.source.overrides.iter().any(|change| of(change).is_ok_and(|found| found == path))
    }

    fn with_found(&self, found: Found) -> Result<Self, Error> {
        let subject = self.subject_path();
        let at = |keys: &[&str]| [subject.as_slice(), &steps(keys)].concat();
        let mut changes = vec![(at(&["aqm"]), found.aqm)];
        let gateway = self.subject_gateway();
        if let Some(name) = found.scheduler {
            let keys = if gateway.is_some() { &["transmit_queue", "scheduler"][..] } else { &["scheduler"] };
            changes.push((at(keys), Node::text(name, At::Setting)));
        }
        if let Some(gateway) = gateway
            && found.placement == Placement::WatchedQueue
            && gateway.watch != gateway.mark
        {
            let queue = match gateway.watch {
                GatewayQueue::Receive => "receive",
                GatewayQueue::Transmit => "transmit",
            };
            changes.push((at(&["mark"]), Node::text(queue, At::Setting)));
        }
        if let (Some(_), Some(method)) = (gateway, found.marking) {
            changes.push((at(&["marking"]), Node::text(method.name, At::Setting)));
            // A buffer for each connection, unless an override says otherwise.
            let key = at(&["pep", "buffer_per"]);
            if method.marking == Marking::Window && !self.is_overridden(&key) {
                changes.push((key, Node::text("connection", At::Setting)));
            }
        }
        resolve::resolve(&self.input, Some(&Choice { name: found.name, changes }))
    }

    /// Returns the names of all settings that can be used at the subject (the scenario's list, then AQMs, then schedulers with
    /// their defaults), and the errors of those that cannot.
    #[must_use]
    pub fn all_settings(&self) -> (Vec<String>, Vec<Error>) {
        let named = self.run.settings.iter().map(String::as_str);
        let algorithms =
            registry::AQMS.iter().map(|a| a.name).chain(registry::SCHEDULERS.iter().map(|s| s.name));
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for name in named.chain(algorithms) {
            match self.with_setting(name) {
                Ok(s) if able.iter().any(|other| other == s.label()) => {}
                Ok(s) => able.push(s.label().to_owned()),
                Err(error) => unable.push(error),
            }
        }
        (able, unable)
    }

    /// Returns the scenario with each of the settings, in their order.
    ///
    /// # Errors
    /// A setting that occurs twice, an override that no setting uses, or the errors of [`Scenario::with_setting`].
    pub fn with_settings<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Self>, Error> {
        let mut all: Vec<Self> = Vec::new();
        for name in names {
            let next = self.with_setting(name.as_ref())?;
            if all.iter().any(|s| s.label() == next.label()) {
                let name = next.label().to_owned();
                let problem = format!("found {} twice; allowed: each setting once", quoted(&name));
                return Err(Error { place: Location::Setting(name), key: String::new(), problem });
            }
            all.push(next);
        }
        if let Some((first, others)) = all.split_first() {
            first.used_with(others.iter())?;
        }
        Ok(all)
    }

    /// Checks that each override has an effect in this scenario or in one of `others`.
    ///
    /// # Errors
    /// The first override without effect.
    pub fn used_with<'a>(&self, others: impl Iterator<Item = &'a Self> + Clone) -> Result<(), Error> {
        let everywhere =
            |e: &&Error| others.clone().all(|s| s.unused_overrides.iter().any(|u| u.place == e.place));
        self.unused_overrides.iter().find(everywhere).map_or(Ok(()), |unused| Err(unused.clone()))
    }

    /// Returns the route with the fewest links between two nodes; among equals the one through the earlier link of the file.
    /// Hosts do not forward. Returns `None` if no links connect the nodes.
    #[must_use]
    pub fn route(&self, from: &str, to: &str) -> Option<Vec<Hop>> {
        nodes::of(&self.hosts, &self.routers, &self.gateways, &self.links).route(from, to)
    }

    /// Returns true if data of a traffic entry pass the subject in its direction, from the start or after a handover.
    #[must_use]
    pub fn passes_subject(&self, traffic: &Traffic) -> bool {
        let mut routes = std::iter::once(&traffic.route).chain(&traffic.routes_after);
        routes.any(|route| match self.subject {
            Subject::Gateway(i) => self.gateways[i.0].serves(route),
            Subject::Return(i) => self.gateways[i.0].back.as_ref().is_some_and(|back| back.serves(route)),
            Subject::Link(link) => route.contains(&Hop { link, forward: true }),
        })
    }

    /// Path of the subject in the file: a gateway, its return direction, or a link's queue.
    fn subject_path(&self) -> Vec<Step> {
        let gateway = |i: GatewayIndex| match self.input.base.get("gateway").map(|n| &n.value) {
            Some(Value::Array(_)) => [steps(&["gateway"]), vec![Step::Index(i.0)]].concat(),
            _ => steps(&["gateway"]),
        };
        match self.subject {
            Subject::Gateway(i) => gateway(i),
            Subject::Return(i) => [gateway(i), steps(&["return"])].concat(),
            Subject::Link(i) => steps(&["link", &self.links[i].name, "queue"]),
        }
    }
}

fn steps(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| Step::Key((*key).to_owned())).collect()
}
