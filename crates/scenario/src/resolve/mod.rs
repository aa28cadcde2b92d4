//! Looks names up, works defaults out and refuses what is impossible.

pub mod aqm;
mod channel;
mod gateway;
mod link;
mod marking;
mod models;
pub mod nodes;
pub mod overrides;
mod packets;
pub mod presets;
mod scheduler;
mod traffic;
mod transport;

use std::collections::BTreeMap;

use bentpipe_queue::descriptor::Preset;
use bentpipe_queue::registry;
use bentpipe_queue::{Limit, Marking};
use bentpipe_units::Rate;
use serde::Deserialize as _;

use crate::de::Reader;
use crate::effective;
use crate::error::{Error, choices, quoted};
use crate::file::{self, Either, File, MarkingName, OneOf};
use crate::files::{Data, Files};
use crate::model::{Ecn, Gateway, Host, Link, Printed, QueueSpec, Run, Setting, Subject, Traffic, Transport};
use crate::scenario::{Origin, Scenario};
use crate::schema;
use crate::source::Source;
use crate::tree::{At, Node, Path, Step};
use nodes::{Kind, Nodes, named};
use overrides::Choice;

/// What a scenario was read from.
#[derive(Debug)]
pub struct Input {
    pub source: Source,
    /// The file, before any override.
    pub base: Node,
    /// The files around it.
    pub files: Files,
}

/// The tree being resolved, and what is to be said of it.
pub struct Cx<'a> {
    pub source: &'a Source,
    pub root: &'a Node,
    pub files: &'a Files,
    /// The setting that was asked for, or nothing.
    pub setting: &'a str,
    pub warnings: Vec<String>,
    /// How values came about, by dotted key.
    pub notes: BTreeMap<String, (Option<Origin>, String)>,
}

impl<'a> Cx<'a> {
    /// One of `root`, of which nothing has been said yet.
    pub fn of(input: &'a Input, root: &'a Node, setting: &'a str) -> Self {
        let (warnings, notes) = (Vec::new(), BTreeMap::new());
        Self { source: &input.source, root, files: &input.files, setting, warnings, notes }
    }

    /// A mistake in the value at `path`.
    pub fn error(&self, path: &Path, problem: String) -> Error {
        self.source.error(self.root, path, false, problem, self.setting)
    }

    /// A mistake in the key at `path`.
    pub fn key_error(&self, path: &Path, problem: String) -> Error {
        self.source.error(self.root, path, true, problem, self.setting)
    }

    /// The name `name` at `path` is none of `known`.
    pub fn unknown<'k>(
        &self,
        path: &Path,
        name: &str,
        known: impl IntoIterator<Item = &'k str> + Clone,
    ) -> Error {
        self.error(path, format!("found {}; {}", quoted(name), choices(name, known)))
    }

    /// Reads the file `name` that the value at `path` names, and takes out of it what `take` finds there. `what` it is
    /// to be, as "a trace of frame sizes", is for messages.
    pub fn read<T>(
        &self,
        path: &Path,
        name: &str,
        what: &str,
        take: impl FnOnce(&Data) -> Result<T, String>,
    ) -> Result<T, Error> {
        let data = self.files.read(name, what).and_then(|data| take(&data));
        data.map_err(|problem| self.error(path, problem))
    }

    pub fn note(&mut self, path: &Path, origin: Option<Origin>, text: String) {
        self.notes.insert(self.dotted(path), (origin, text));
    }

    pub fn warn(&mut self, path: &Path, text: &str) {
        let text = format!("{}: {text}", self.dotted(path));
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    fn dotted(&self, path: &Path) -> String {
        crate::tree::dotted(self.root, path)
    }
}

/// The path of `key` in the table at `path`.
pub fn step(path: &Path, key: &str) -> Vec<Step> {
    [path, &[Step::Key(key.to_owned())]].concat()
}

/// The scenario of `input`, with another AQM at its subject where one is chosen.
pub fn resolve(input: &std::sync::Arc<Input>, choice: Option<&Choice>) -> Result<Scenario, Error> {
    let (root, unused_overrides) = overrides::apply(input, choice)?;
    resolve_tree(input, root, unused_overrides, choice)
}

/// The scenario that the tree `root` says, which is that of `input` but for what was put in place there.
pub fn resolve_tree(
    input: &std::sync::Arc<Input>,
    mut root: Node,
    unused_overrides: Vec<Error>,
    choice: Option<&Choice>,
) -> Result<Scenario, Error> {
    let filled = presets::fill(&mut root);
    let setting = choice.map_or("", |c| &c.name);
    let mut file = read(&input.source, &root, setting)?;
    let cx = &mut Cx::of(input, &root, setting);
    for (path, preset) in filled {
        cx.note(&path, Some(Origin::Preset), format!("{}: {}", preset.name, preset.title));
    }
    let run = run(cx, &file.run)?;
    let hosts: Vec<Host> =
        file.host.iter().map(|(name, h)| Host { name: name.to_owned(), count: h.count.0 }).collect();
    let nodes = topology(cx, &file, &hosts)?;
    for (name, kind) in nodes.alone() {
        let part = match kind {
            Kind::Host(_) => "host",
            Kind::Router => "router",
            // A gateway without its satellite is an error of its own.
            Kind::Gateway(_) | Kind::Terminal(_) => continue,
        };
        cx.warn(&named(part, name), "no link leads to it");
    }
    let transports = traffic::transports(cx, &mut file)?;
    let patterns = packets::patterns(cx, &mut file)?;
    let mean_packet = traffic::mean_packet(cx, &file, &transports, &patterns)?;
    let mut links = Vec::new();
    for (name, raw) in &mut file.link.0 {
        links.push(link::link(cx, name, raw, &hosts, mean_packet)?);
    }
    let mut gateways = Vec::new();
    for (i, raw) in file.gateway.0.iter_mut().enumerate() {
        gateways.push(gateway::gateway(cx, i, raw, &nodes, &mut links, mean_packet)?);
    }
    link::own_names(cx, &links, &hosts, &gateways)?;
    let traffic = traffic::traffic(cx, &file, &hosts, &transports, &nodes, &gateways, patterns)?;
    traffic::late_sessions(cx, &traffic, run.warmup);
    unheard_marks(cx, &links, &gateways, &transports);
    unheard_windows(cx, &gateways, &traffic, &transports);
    let mut scenario = Scenario {
        title: file.title.clone(),
        description: file.description.clone(),
        source: file.source.clone(),
        run,
        hosts,
        routers: file.router.names().map(str::to_owned).collect(),
        links,
        gateways,
        transports,
        traffic,
        settings: Vec::new(),
        printed: Vec::new(),
        models: models::models(cx, file.model.as_ref())?,
        subject: Subject::Link(0),
        warnings: Vec::new(),
        unused_overrides,
        input: input.clone(),
        setting: choice.map(|choice| choice.name.clone()),
        effective: Vec::new(),
    };
    scenario.subject = subject(cx, &mut file, &scenario)?;
    settings(cx, &mut file, &mut scenario, mean_packet)?;
    if let Some(choice) = choice {
        scenario.subject_aqm_mut(|aqm| aqm.label = choice.name.clone());
    }
    printed(cx, &file, &mut scenario);
    scenario.effective = effective::list(cx, &file);
    scenario.warnings = std::mem::take(&mut cx.warnings);
    Ok(scenario)
}

/// Reads the tree into what a file may say.
fn read(source: &Source, root: &Node, setting: &str) -> Result<File, Error> {
    File::deserialize(Reader(root)).map_err(|wrong| {
        let path: Vec<Step> = wrong.way.into_iter().rev().collect();
        let problem = match wrong.problem.as_str() {
            "missing" => format!("missing; {}", schema::required(&path)),
            _ => wrong.problem,
        };
        source.error(root, &path, wrong.key, problem, setting)
    })
}

/// The most samples of a time series.
const MOST_SAMPLES: u64 = 10_000_000;

fn run(cx: &Cx<'_>, raw: &file::Run) -> Result<Run, Error> {
    let path = [Step::Key("run".to_owned())];
    let (duration, interval) = (raw.duration.time(), raw.sample_interval.time());
    let least = duration.as_nanos().div_ceil(MOST_SAMPLES);
    if interval > duration || interval.as_nanos() < least {
        let least = bentpipe_units::Duration::from_nanos(least);
        let problem = format!(
            "found \"{interval}\"; allowed: at most run.duration (\"{duration}\"), and at least \"{least}\", \
             which makes {MOST_SAMPLES} samples"
        );
        return Err(cx.error(&step(&path, "sample_interval"), problem));
    }
    if duration.as_nanos() % interval.as_nanos() != 0 {
        let problem =
            format!("found \"{duration}\"; allowed: a multiple of sample_interval (\"{interval}\")");
        return Err(cx.error(&step(&path, "duration"), problem));
    }
    Ok(Run {
        warmup: raw.warmup.time(),
        duration,
        sample_interval: interval,
        seed: raw.seed,
        runs: raw.runs.0,
        settings: raw.settings.clone(),
    })
}

fn topology(cx: &Cx<'_>, file: &File, hosts: &[Host]) -> Result<Nodes, Error> {
    let mut nodes = Nodes::default();
    for (i, name) in file.host.names().enumerate() {
        nodes.add(cx, &named("host", name), name, Kind::Host(i))?;
    }
    for name in file.router.names() {
        nodes.add(cx, &named("router", name), name, Kind::Router)?;
    }
    for (i, g) in file.gateway.0.iter().enumerate() {
        let path = gateway::path_of(cx, i);
        nodes.add(cx, &step(&path, "name"), &g.name, Kind::Gateway(i))?;
        nodes.add(cx, &step(&path, "terminal"), &g.terminal, Kind::Terminal(i))?;
    }
    for (name, link) in file.link.iter() {
        let path = named("link", name);
        nodes::check_name(cx, &path, name)?;
        nodes.join(cx, &step(&path, "between"), &link.between, hosts)?;
    }
    Ok(nodes)
}

/// The bounds of a uniform distribution are in the wrong order.
fn falling(cx: &Cx<'_>, path: &Path, low: &str, high: &str) -> Error {
    cx.error(path, format!("found [\"{low}\", \"{high}\"]; allowed: the lower bound first"))
}

fn queue(
    cx: &mut Cx<'_>,
    link: &Path,
    raw: Option<&mut file::Queue>,
    rate: Option<Rate>,
    mean_packet: f64,
) -> Result<Option<QueueSpec>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let path = step(link, "queue");
    let Some(rate) = rate else {
        let problem =
            "missing; a queue needs the rate at which it is worked off, such as \"20 Mbps\", or a capacity";
        return Err(cx.error(&step(link, "rate"), problem.to_owned()));
    };
    let scheduler = scheduler::resolve(cx, &step(&path, "scheduler"), &mut raw.scheduler, rate, mean_packet)?;
    let limit = limit(cx, &step(&path, "limit"), raw.limit.as_ref(), mean_packet)?;
    let aqm = aqm::resolve(cx, &step(&path, "aqm"), &mut raw.aqm, rate, mean_packet)?;
    without_marking(cx, &step(&path, "aqm"), aqm.preset)?;
    aqm::check_threshold(cx, &step(&path, "aqm"), &aqm.spec, limit)?;
    Ok(Some(QueueSpec {
        scheduler,
        limit,
        marking: plain_marking(raw.marking),
        aqm: aqm.spec,
        mean_packet: aqm.mean_packet,
    }))
}

fn limit(cx: &mut Cx<'_>, path: &Path, raw: Option<&file::Limit>, mean_packet: f64) -> Result<Limit, Error> {
    // A limit fits in 32 bits: the file's own bound on packets says so.
    let packets = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let limit = match raw {
        None => Limit::NONE,
        Some(Either::Plain(OneOf::First(n))) => Limit { packets: packets(n.0), ..Limit::NONE },
        Some(Either::Plain(OneOf::Second(bytes))) => Limit { bytes: bytes.0, ..Limit::NONE },
        Some(Either::Table(both)) => Limit {
            packets: both.packets.map_or(u32::MAX, |n| packets(n.0)),
            bytes: both.bytes.map_or(u64::MAX, |bytes| bytes.0),
        },
    };
    if (limit.bytes as f64) < mean_packet {
        cx.warn(path, "less than the longest packet, which will never pass");
    }
    Ok(limit)
}

/// Warns of marks that no transport understands, so that each is a drop.
fn unheard_marks(cx: &mut Cx<'_>, links: &[Link], gateways: &[Gateway], transports: &[Transport]) {
    if transports.iter().any(|t| matches!(t, Transport::Tcp(tcp) if tcp.ecn != Ecn::Off)) {
        return;
    }
    let text = "no transport has ecn = true, so every mark is a drop";
    for link in links {
        let path = named("link", &link.name);
        for (path, direction) in [(path.clone(), &link.forward), (step(&path, "reverse"), &link.reverse)] {
            if direction.queue.as_ref().is_some_and(|q| q.marking == Marking::Ecn) {
                cx.warn(&step(&step(&path, "queue"), "marking"), text);
            }
        }
    }
    for (i, gateway) in gateways.iter().enumerate() {
        if gateway.marking.method.marking == Marking::Ecn {
            cx.warn(&step(&gateway::path_of(cx, i), "marking"), text);
        }
    }
}

/// Warns of windows that are nobody's, because no connection passes that the gateway splits: then each mark is a drop.
fn unheard_windows(cx: &mut Cx<'_>, gateways: &[Gateway], traffic: &[Traffic], transports: &[Transport]) {
    let is_tcp = |t: &Traffic| t.kind.transport().is_some_and(|i| transports[i].tcp().is_some());
    for (i, g) in gateways.iter().enumerate() {
        let is_split = |t: &Traffic| is_tcp(t) && t.route.iter().any(|hop| hop.link == g.link);
        if g.marking.method.marking == Marking::Window && !traffic.iter().any(is_split) {
            let text = "no connection that the gateway splits passes it, so every mark is a drop";
            cx.warn(&step(&gateway::path_of(cx, i), "marking"), text);
        }
    }
}

/// Refuses a preset that a marking method belongs to where no gateway ends connections.
fn without_marking(cx: &Cx<'_>, path: &Path, preset: Option<&'static Preset>) -> Result<(), Error> {
    let Some((preset, (method, _))) = preset.and_then(|p| Some((p, p.marking?))) else { return Ok(()) };
    let problem = format!(
        "found {}; allowed: at a gateway, for its marks cut advertised windows (marking = {}), and no connection ends at a \
         link's queue",
        quoted(preset.name),
        quoted(method.name)
    );
    Err(cx.error(&step(path, "preset"), problem))
}

fn plain_marking(name: MarkingName) -> Marking {
    match name {
        MarkingName::Drop => Marking::Drop,
        MarkingName::Ecn => Marking::Ecn,
    }
}

/// Whose queue the settings apply to.
fn subject(cx: &mut Cx<'_>, file: &mut File, s: &Scenario) -> Result<Subject, Error> {
    let path = named("run", "subject");
    let queued = || s.links.iter().enumerate().filter(|(_, l)| l.forward.queue.is_some());
    if let Some(name) = &file.run.subject {
        if let Some(i) = s.gateways.iter().position(|g| g.name == *name) {
            return Ok(Subject::Gateway(i));
        }
        return match s.links.iter().position(|l| l.name == *name) {
            Some(i) if s.links[i].forward.queue.is_some() => Ok(Subject::Link(i)),
            Some(_) => {
                let problem =
                    format!("found {}; allowed: a link with a queue on its way forward", quoted(name));
                Err(cx.error(&path, problem))
            }
            None => {
                let known = s.gateways.iter().map(|g| &g.name).chain(queued().map(|(_, l)| &l.name));
                Err(cx.unknown(&path, name, known.map(String::as_str)))
            }
        };
    }
    let with_aqm = |&(_, l): &(usize, &Link)| {
        let path = [named("link", &l.name), named("queue", "aqm")].concat();
        cx.root.find(&path).is_some()
    };
    let only = |mut found: Box<dyn Iterator<Item = (usize, &Link)> + '_>| match (found.next(), found.next()) {
        (Some((i, _)), None) => Some(i),
        _ => None,
    };
    let subject = if s.gateways.len() == 1 {
        Subject::Gateway(0)
    } else {
        let link = if s.gateways.is_empty() {
            only(Box::new(queued().filter(with_aqm))).or_else(|| only(Box::new(queued())))
        } else {
            None
        };
        let Some(link) = link else {
            let known: Vec<_> = s
                .gateways
                .iter()
                .map(|g| g.name.as_str())
                .chain(queued().map(|(_, l)| l.name.as_str()))
                .collect();
            let problem = if known.is_empty() {
                "missing, and there is no gateway and no link with a queue that it could be".to_owned()
            } else {
                format!("missing; which one the metrics are to describe: {}", known.join(", "))
            };
            return Err(cx.error(&path, problem));
        };
        Subject::Link(link)
    };
    let (name, why) = match subject {
        Subject::Gateway(i) => (&s.gateways[i].name, "the only gateway"),
        Subject::Link(i) => (&s.links[i].name, "the only link with such a queue"),
    };
    file.run.subject = Some(name.clone());
    cx.note(&path, None, why.to_owned());
    Ok(subject)
}

/// Checks the scenario's own settings at the subject, and the names of those to compare.
fn settings(cx: &mut Cx<'_>, file: &mut File, s: &mut Scenario, mean_packet: f64) -> Result<(), Error> {
    let (capacity, mean_packet, limit) = match s.subject {
        Subject::Gateway(i) => {
            let gateway = &s.gateways[i];
            (gateway.watched_rate(), gateway.mean_packet, gateway.watched_limit())
        }
        Subject::Link(i) => {
            let forward = &s.links[i].forward;
            let mean = forward.queue.as_ref().map_or(mean_packet, |q| q.mean_packet);
            let limit = forward.queue.as_ref().map_or(Limit::NONE, |q| q.limit);
            (forward.mean_rate().unwrap_or_default(), mean, limit)
        }
    };
    for (name, raw) in &mut file.setting.0 {
        let path = named("setting", name);
        nodes::check_name(cx, &path, name)?;
        if name.trim().eq_ignore_ascii_case("all") {
            let problem =
                "found as a setting's name; allowed: another one, for \"all\" stands for every algorithm";
            return Err(cx.key_error(&path, problem.to_owned()));
        }
        let scheduler = scheduler::of_setting(cx, &path, raw)?;
        let aqm = aqm::resolve(cx, &path, raw, capacity, mean_packet)?;
        aqm::check_threshold(cx, &path, &aqm.spec, limit)?;
        let lower = name.to_lowercase();
        let known = registry::aqm(&lower).is_some() || registry::scheduler(&lower).is_some();
        if registry::preset(name).is_some() || known {
            cx.warn(&path, "takes the place of what every scenario knows by this name");
        }
        let mut node = cx.root.find(&path).cloned().unwrap_or_else(|| Node::table(At::Setting));
        node.retain(|entry| entry.key != "scheduler");
        s.settings.push(Setting { name: name.clone(), aqm: aqm.spec, scheduler, node });
    }
    for (i, name) in s.run.settings.iter().enumerate() {
        let path = [named("run", "settings"), vec![Step::Index(i)]].concat();
        if s.find_setting(name).is_none() {
            return Err(cx.unknown(&path, name, s.setting_names()));
        }
    }
    Ok(())
}

fn printed(cx: &mut Cx<'_>, file: &File, s: &mut Scenario) {
    for (i, p) in file.printed.iter().enumerate() {
        if s.find_setting(&p.setting).is_none() {
            let path = [step(&[], "printed"), vec![Step::Index(i)]].concat();
            cx.warn(&step(&path, "setting"), &format!("no setting is called {}", quoted(&p.setting)));
        }
        s.printed.push(Printed {
            setting: p.setting.clone(),
            metric: p.metric.clone(),
            value: p.value,
            unit: p.unit.clone(),
            std: p.std,
            source: p.source.clone(),
            calibrated: p.calibrated,
        });
    }
}
