//! Loading a scenario, and deriving others from it.

use std::path::Path;
use std::sync::Arc;

use bentpipe_gateway::GatewayQueue;
use bentpipe_queue::Marking;
use bentpipe_queue::descriptor::Placement;
use bentpipe_queue::registry;

use crate::effective::{Effective, Origin};
use crate::error::{Error, Location, choices, quoted};
use crate::model::{Digest, Hop, NO_AQM, Subject};
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
    /// Files that the scenario names: path and SHA-256 of the content.
    pub files: Vec<(String, Digest)>,
}

impl Scenario {
    /// Loads a scenario file and applies `overrides`, each `key=value` with a dotted key. A value that is not TOML is taken as
    /// text.
    ///
    /// # Errors
    /// The file cannot be read, or the errors of [`Scenario::parse`].
    pub fn load(path: impl AsRef<Path>, overrides: &[String]) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::parse(&read_text(path, "a scenario")?, &path.display().to_string(), overrides)
    }

    /// Parses a scenario. `file` is its name in messages.
    ///
    /// # Errors
    /// The first mistake in the text or in an override.
    pub fn parse(text: &str, file: &str, overrides: &[String]) -> Result<Self, Error> {
        Self::parse_with(Files::around(file), text, file, overrides)
    }

    fn parse_with(files: Files, text: &str, file: &str, overrides: &[String]) -> Result<Self, Error> {
        let (source, base) = Source::parse(file, text, overrides)?;
        resolve::resolve(&Arc::new(Input { source, base, files }), None)
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
        let scenario = Self::parse_with(files, &packed.text, &packed.file, &packed.overrides)?;
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
    /// its name first: key, value and note.
    ///
    /// # Errors
    /// An AQM that cannot be used at the subject.
    pub fn with_outside(
        &self,
        label: &str,
        placement: Placement,
        keys: &[(String, String, String)],
    ) -> Result<Self, Error> {
        let mut new = self.with_found(Found::aqm(label, "algorithm", NO_AQM, placement))?;
        let path = dotted(&self.input.base, &[self.subject_path(), steps(&["aqm"])].concat());
        if let Some(aqm) = new.subject_aqm_mut() {
            aqm.outside = keys.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        }
        for unused in new.unused_overrides.iter_mut().filter(|e| e.key.starts_with(&format!("{path}."))) {
            unused.problem = format!("{label} is implemented outside and has no parameters in a scenario");
        }
        let rows = keys.iter().map(|(key, value, note)| Effective {
            key: format!("{path}.{key}"),
            value: value.clone(),
            origin: Origin::Setting,
            note: note.clone(),
        });
        if let Some(at) = new.effective.iter().position(|row| row.key == format!("{path}.algorithm")) {
            new.effective.splice(at..=at, rows);
        }
        Ok(new)
    }

    fn with_found(&self, found: Found) -> Result<Self, Error> {
        let subject = self.subject_path();
        let at = |keys: &[&str]| [subject.as_slice(), &steps(keys)].concat();
        let mut changes = vec![(at(&["aqm"]), found.aqm)];
        let gateway = match self.subject {
            Subject::Gateway(i) => self.gateways.get(i),
            Subject::Link(_) => None,
        };
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
            if method.marking == Marking::Window {
                changes.push((at(&["pep", "buffer_per"]), Node::text("connection", At::Setting)));
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
            let everywhere =
                |e: &&Error| others.iter().all(|s| s.unused_overrides.iter().any(|u| u.place == e.place));
            if let Some(unused) = first.unused_overrides.iter().find(everywhere) {
                return Err(unused.clone());
            }
        }
        Ok(all)
    }

    /// Returns the route with the fewest links between two nodes; among equals the one through the earlier link of the file.
    /// Hosts do not forward. Returns `None` if no links connect the nodes.
    #[must_use]
    pub fn route(&self, from: &str, to: &str) -> Option<Vec<Hop>> {
        nodes::of(&self.hosts, &self.routers, &self.gateways, &self.links).route(from, to)
    }

    /// Path of the subject in the file: a gateway, or a link's queue.
    fn subject_path(&self) -> Vec<Step> {
        match self.subject {
            Subject::Gateway(i) => match self.input.base.get("gateway").map(|n| &n.value) {
                Some(Value::Array(_)) => [steps(&["gateway"]), vec![Step::Index(i)]].concat(),
                _ => steps(&["gateway"]),
            },
            Subject::Link(i) => {
                let name = self.links.get(i).map_or("", |l| l.name.as_str());
                steps(&["link", name, "queue"])
            }
        }
    }
}

fn steps(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| Step::Key((*key).to_owned())).collect()
}
