//! A scenario as a whole.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use bentpipe_gateway::GatewayQueue;
use bentpipe_queue::Marking;
use bentpipe_queue::descriptor::{Algorithm, MarkingMethod, Placement};
use bentpipe_queue::registry;
use serde::Serialize;

use crate::error::{Error, Location, choices, quoted};
use crate::files::{Digest, Files};
use crate::model::{AqmSpec, Gateway, Hop, Host, Link, Printed, Run, Setting, Subject, Traffic, Transport};
use crate::models::Models;
use crate::resolve::overrides::Choice;
use crate::resolve::{self, Input, nodes};
use crate::source::Source;
use crate::tree::{At, Node, Step, Value, dotted};

/// A scenario, checked and complete.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Its title.
    #[serde(skip)]
    pub title: String,
    /// What it shows, in full.
    #[serde(skip)]
    pub description: Option<String>,
    /// Where it comes from.
    #[serde(skip)]
    pub source: Option<String>,
    /// How long to run, and how to measure.
    pub run: Run,
    /// The groups of hosts, in the order of the file (as are all lists).
    pub hosts: Vec<Host>,
    /// The routers.
    pub routers: Vec<String>,
    /// The links.
    pub links: Vec<Link>,
    /// The gateways.
    pub gateways: Vec<Gateway>,
    /// The TCPs; one called "default" is among them where traffic names none.
    pub transports: Vec<Transport>,
    /// The traffic.
    pub traffic: Vec<Traffic>,
    /// The scenario's own named settings.
    #[serde(skip)]
    pub settings: Vec<Setting>,
    /// Printed values to compare with.
    #[serde(skip)]
    pub printed: Vec<Printed>,
    /// How the models see it.
    #[serde(skip)]
    pub models: Models,
    /// Whose queue the settings apply to and the metrics describe.
    pub subject: Subject,
    /// What is allowed but most likely not meant.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// Overrides of AQM parameters that the AQM in place does not have, as the errors they are unless another
    /// setting of the same comparison has them. See [`Scenario::all_used`] and [`Scenario::with_settings`].
    #[serde(skip)]
    pub unused_overrides: Vec<Error>,
    /// What it was read from, to put a setting in place.
    #[serde(skip)]
    pub(crate) input: Arc<Input>,
    /// The setting that was put in place, as it is called.
    #[serde(skip)]
    pub(crate) setting: Option<String>,
    #[serde(skip)]
    pub(crate) effective: Vec<Effective>,
}

/// What a scenario was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The scenario file's name, as messages call it.
    pub file: String,
    /// Its text, overrides not applied.
    pub text: String,
    /// The overrides, each `key=value`.
    pub overrides: Vec<String>,
    /// The setting that was put in place, or the scenario's own.
    pub setting: Option<String>,
    /// The files that it names: their paths, and the SHA-256 of what is in them.
    pub files: Vec<(String, Digest)>,
}

/// The largest file that can be a scenario [bytes].
const LARGEST: u64 = 4 << 20;

impl Scenario {
    /// Reads the scenario of a file, with keys overridden: each override is `key=value`, the key dotted, the value
    /// in TOML or else taken as text.
    ///
    /// # Errors
    /// Where the file cannot be read, or as [`Scenario::parse`].
    pub fn load(path: impl AsRef<Path>, overrides: &[String]) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::parse(&read_text(path, "a scenario")?, &path.display().to_string(), overrides)
    }

    /// Reads a scenario from `text`; `file` is what messages call it.
    ///
    /// # Errors
    /// Where anything in it is wrong or impossible: the first such thing.
    pub fn parse(text: &str, file: &str, overrides: &[String]) -> Result<Self, Error> {
        Self::parse_among(Files::around(file), text, file, overrides)
    }

    fn parse_among(files: Files, text: &str, file: &str, overrides: &[String]) -> Result<Self, Error> {
        let (source, base) = Source::parse(file, text, overrides)?;
        resolve::resolve(&Arc::new(Input { source, base, files }), None)
    }

    /// All that it was read from, to be read again where there are no files around it; nothing where an AQM is made
    /// outside. What was changed in the fields since it was read is not in it.
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

    /// What was in one of the files that the scenario names, by its path, see [`Packed::files`].
    #[must_use]
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.input.files.all().into_iter().find(|data| data.name == path).map(|data| data.bytes.clone())
    }

    /// Reads a scenario again that was packed elsewhere. `files` holds what is in its files, by their paths; nothing is read
    /// from the disk.
    ///
    /// # Errors
    /// As [`Scenario::parse`] and [`Scenario::with_setting`], and where a file did not come along.
    pub fn unpack(
        packed: &Packed,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, Error> {
        let files = Files::packed(&packed.file, files);
        let scenario = Self::parse_among(files, &packed.text, &packed.file, &packed.overrides)?;
        packed.setting.as_ref().map_or(Ok(scenario.clone()), |name| scenario.with_setting(name))
    }

    /// The same scenario with the subject's AQM replaced: by the scenario's own setting of that name, else by a
    /// preset, else by an algorithm with its defaults; or with the subject's scheduler replaced, and no AQM beside it.
    /// Where nothing is called exactly so, capitals are ignored. A preset that a marking method belongs to takes the place of
    /// the gateway's, and gives each connection a buffer of its own where that cuts windows. An AQM that acts on packets that leave the queue marks
    /// there, whatever the scenario's mark point.
    /// Overrides of the AQM's parameters hold
    /// for the new one as far as it has them; the others are in [`Scenario::unused_overrides`]. What was changed in the
    /// fields since the scenario was read is not kept.
    ///
    /// # Errors
    /// Where there is no such setting, or where it cannot be in the subject's place.
    pub fn with_setting(&self, name: &str) -> Result<Self, Error> {
        let name = name.trim();
        let Some(found) = self.find_setting(name) else {
            return Err(Error {
                place: Location::Setting(name.to_owned()),
                key: String::new(),
                problem: format!("no setting of that name; {}", choices(name, self.setting_names())),
            });
        };
        self.with_found(found)
    }

    /// The same scenario with the subject's queue left to an AQM that is made outside and called `label`. `keys` are what
    /// identifies it, the first one its name: keys, values and notes. It may be placed as `placement` says.
    ///
    /// # Errors
    /// Where it cannot be in the subject's place.
    pub fn with_outside(
        &self,
        label: &str,
        placement: Placement,
        keys: &[(String, String, String)],
    ) -> Result<Self, Error> {
        let mut aqm = Node::table(At::Setting);
        aqm.set(&steps(&["algorithm"]), Node::text(resolve::aqm::NONE, At::Setting));
        let mut new = self.with_found(Found {
            name: label.to_owned(),
            aqm,
            scheduler: None,
            placement,
            marking: None,
        })?;
        let path = dotted(&self.input.base, &[self.subject_path(), steps(&["aqm"])].concat());
        new.subject_aqm_mut(|aqm| {
            aqm.outside = keys.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        });
        for unused in new.unused_overrides.iter_mut().filter(|e| e.key.starts_with(&format!("{path}."))) {
            unused.problem = format!("no parameter of {label}, which is made outside");
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

    /// The same scenario with what a setting stands for.
    fn with_found(&self, found: Found) -> Result<Self, Error> {
        let place = self.subject_path();
        let at = |keys: &[&str]| [place.as_slice(), &steps(keys)].concat();
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
            let place = match gateway.watch {
                GatewayQueue::Receive => "receive",
                GatewayQueue::Transmit => "transmit",
            };
            changes.push((at(&["mark"]), Node::text(place, At::Setting)));
        }
        if let (Some(_), Some(method)) = (gateway, found.marking) {
            changes.push((at(&["marking"]), Node::text(method.name, At::Setting)));
            if method.marking == Marking::Window {
                changes.push((at(&["pep", "buffer_per"]), Node::text("connection", At::Setting)));
            }
        }
        resolve::resolve(&self.input, Some(&Choice { name: found.name, changes }))
    }

    /// Every algorithm with its defaults, AQMs and then schedulers, after the scenario's own list of settings: the names of
    /// those that can be in the subject's place, and why the others cannot.
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

    /// Whether congestion is signalled with packets that a gateway has already acknowledged to their senders: behind its PEP,
    /// where each is lost to the satellite and sent again.
    #[must_use]
    pub fn signals_behind_pep(&self) -> bool {
        let Subject::Gateway(i) = self.subject else { return false };
        self.gateways.get(i).is_some_and(Gateway::signals_behind_pep)
    }

    /// The scenario with each of the settings, in their order.
    ///
    /// # Errors
    /// As [`Scenario::with_setting`]; where two are the same; and where none of them has a parameter that is
    /// overridden.
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

    /// That every override has its effect; for a single run.
    ///
    /// # Errors
    /// The first override of a parameter that the AQM does not have.
    pub fn all_used(&self) -> Result<(), Error> {
        self.unused_overrides.first().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// The text that it was read from, overrides not applied.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.input.source.text
    }

    /// The overrides that it was read with, as they were given.
    pub fn overrides(&self) -> impl Iterator<Item = &str> {
        self.input.source.overrides.iter().map(|change| change.text.as_str())
    }

    /// What the subject's AQM is called in results.
    #[must_use]
    pub fn label(&self) -> &str {
        self.subject_aqm().map_or("", |aqm| &aqm.label)
    }

    /// The AQM of the subject.
    #[must_use]
    pub fn subject_aqm(&self) -> Option<&AqmSpec> {
        match self.subject {
            Subject::Gateway(i) => self.gateways.get(i).map(|g| &g.aqm),
            Subject::Link(i) => self.links.get(i)?.forward.queue.as_ref().map(|q| &q.aqm),
        }
    }

    pub(crate) fn subject_aqm_mut(&mut self, change: impl FnOnce(&mut AqmSpec)) {
        let aqm = match self.subject {
            Subject::Gateway(i) => self.gateways.get_mut(i).map(|g| &mut g.aqm),
            Subject::Link(i) => {
                self.links.get_mut(i).and_then(|l| l.forward.queue.as_mut()).map(|q| &mut q.aqm)
            }
        };
        if let Some(aqm) = aqm {
            change(aqm);
        }
    }

    /// Every key with the value in effect, in the order of the documentation.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Everything that determines a run's result, as JSON on one line: equal text, equal result. Made from the
    /// fields as they are now; title, description, printed values, the number of runs and the names of settings
    /// are left out.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The way with the fewest links from one node to another, the earlier link of the file where there are
    /// several; none where nothing joins them. Hosts pass nothing on.
    #[must_use]
    pub fn route(&self, from: &str, to: &str) -> Option<Vec<Hop>> {
        nodes::of(&self.hosts, &self.routers, &self.gateways, &self.links).route(from, to)
    }

    /// The names that [`Scenario::with_setting`] knows.
    pub fn setting_names(&self) -> impl Iterator<Item = &str> + Clone {
        let own = self.settings.iter().map(|s| s.name.as_str());
        let presets = registry::AQMS.iter().flat_map(|a| a.presets.iter().map(|p| p.name));
        let bare = registry::AQMS.iter().map(|a| a.name).chain(registry::SCHEDULERS.iter().map(|s| s.name));
        own.chain(presets).chain(bare)
    }

    /// What a setting stands for. A name as it is written goes before one that differs in
    /// its capitals: "avq" is the algorithm with its defaults, "AVQ" a paper's preset.
    pub(crate) fn find_setting(&self, name: &str) -> Option<Found> {
        let name = name.trim();
        let alike = |known: &str| known.to_lowercase() == name.to_lowercase();
        self.find_setting_where(|known| known == name).or_else(|| self.find_setting_where(alike))
    }

    fn find_setting_where(&self, is: impl Fn(&str) -> bool) -> Option<Found> {
        let chosen = |key: &str, name: &str, algorithm: &Algorithm| {
            let mut aqm = Node::table(At::Setting);
            aqm.set(&steps(&[key]), Node::text(name, At::Setting));
            Found {
                name: name.to_owned(),
                aqm,
                scheduler: None,
                placement: algorithm.placement,
                marking: None,
            }
        };
        let own = self.settings.iter().find(|s| is(&s.name)).map(|s| Found {
            name: s.name.clone(),
            aqm: s.node.clone(),
            scheduler: s.scheduler,
            placement: s.aqm.algorithm.placement,
            marking: s.node.get_text("preset").and_then(|name| Some(registry::preset(name)?.1.marking?.0)),
        });
        let preset = || {
            let mut presets = registry::AQMS.iter().flat_map(|a| a.presets.iter().map(move |p| (a, p)));
            let (a, p) = presets.find(|(_, p)| is(p.name))?;
            Some(Found { marking: p.marking.map(|(method, _)| method), ..chosen("preset", p.name, a) })
        };
        let bare = || registry::AQMS.iter().find(|a| is(a.name)).map(|a| chosen("algorithm", a.name, a));
        let scheduler = || {
            let scheduler = registry::SCHEDULERS.iter().find(|s| is(s.name))?;
            let alone = chosen("algorithm", resolve::aqm::NONE, registry::aqm(resolve::aqm::NONE)?);
            Some(Found { name: scheduler.name.to_owned(), scheduler: Some(scheduler.name), ..alone })
        };
        own.or_else(preset).or_else(bare).or_else(scheduler)
    }

    /// Where the subject stands in the file: a gateway, or a link's queue.
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

/// The text of a file that is to be `what`, such as "a scenario", in TOML.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String, Error> {
    let name = path.display().to_string();
    let fault =
        |problem: String| Error { place: Location::WholeFile(name.clone()), key: String::new(), problem };
    let unreadable = |e: std::io::Error| fault(format!("cannot be read: {e}"));
    if path.is_dir() {
        return Err(fault(format!("found a folder; allowed: {what} file, in TOML")));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(fault(format!("more than {} MiB; allowed: {what} file, in TOML", LARGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let (valid, bytes) = (e.utf8_error().valid_up_to(), e.as_bytes());
        let before = &bytes[..valid];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before.rsplit(|b| *b == b'\n').next().unwrap_or_default());
        let place = Location::File(name.clone(), line, column.chars().count() + 1);
        let found = bytes.get(valid).copied().unwrap_or_default();
        let problem = format!("found the byte 0x{found:02x}; allowed: {what} in TOML, in UTF-8");
        Error { place, key: String::new(), problem }
    })
}

fn steps(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| Step::Key((*key).to_owned())).collect()
}

/// What a setting stands for.
pub(crate) struct Found {
    /// Its name in full.
    name: String,
    /// The AQM's table.
    aqm: Node,
    /// The scheduler, where it says one.
    scheduler: Option<&'static str>,
    /// Where the AQM may be placed.
    placement: Placement,
    /// The marking method that belongs to its preset.
    marking: Option<&'static MarkingMethod>,
}

/// A key of a scenario with the value in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// The key, dotted as `--set` takes it.
    pub key: String,
    /// The value with its unit, as `--set` takes it; "none" where the key has no value and needs none.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
    /// How it came about, where there is more to say; else empty.
    pub note: String,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The scenario file.
    Given,
    /// An override.
    Override,
    /// The setting that was asked for.
    Setting,
    /// The preset that the AQM names.
    Preset,
    /// The default.
    Default,
}
