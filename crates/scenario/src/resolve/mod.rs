//! Resolves names, fills in defaults and rejects contradictions.

mod access;
pub mod aqm;
mod capacity;
pub mod cx;
mod dash;
mod distribution;
mod gateway;
mod handover;
mod link;
mod loss;
mod marking;
mod measures;
mod models;
pub mod nodes;
pub mod overrides;
mod packets;
mod param;
mod pool;
pub mod presets;
mod profile;
mod queue;
mod run;
mod scheduler;
mod subject;
mod terminal;
mod threshold;
mod traffic;
mod transport;
mod warnings;

use std::sync::Arc;

use serde::Deserialize as _;

use crate::effective::{self, Origin};
use crate::error::Error;
use crate::model::{GatewayIndex, Host, HostIndex, LinkIndex, MEASURES, Subject};
use crate::reader::Input;
use crate::reader::de::Reader;
use crate::reader::source::Source;
use crate::reader::tree::{Node, Step, step};
use crate::scenario::Scenario;
use crate::schema::file::File;
use crate::schema::json;
use crate::warning::WarningKind;
use cx::Cx;
pub use link::members;
use nodes::{Kind, Nodes, named};
use overrides::Choice;

/// Resolves a scenario, optionally with another algorithm at its subject.
pub fn resolve(input: &Arc<Input>, choice: Option<&Choice>) -> Result<Scenario, Error> {
    let (root, unused_overrides) = overrides::apply(input, choice)?;
    resolve_tree(input, root, unused_overrides, choice)
}

/// Returns the tree of the file with the overrides, and those that were not applicable, as errors.
pub fn overridden(input: &Input) -> Result<(Node, Vec<Error>), Error> {
    overrides::apply(input, None)
}

/// Resolves the scenario in the tree `root`, which derives from `input`.
pub fn resolve_tree(
    input: &Arc<Input>,
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
    let run = run::run(cx, &file.run)?;
    let hosts: Vec<Host> = file.host.0.iter_mut().map(|(name, host)| nodes::host(name, host)).collect();
    let nodes = topology(cx, &mut file, &hosts)?;
    for (name, kind) in nodes.alone() {
        let part = match kind {
            Kind::Host(_) => "host",
            Kind::Router => "router",
            // A gateway without a satellite link is reported elsewhere.
            Kind::Gateway(_) | Kind::Terminal(..) => continue,
        };
        cx.warn(WarningKind::Unconnected, &named(part, name), "no link connects it");
    }
    let transports = transport::transports(cx, &mut file)?;
    let patterns = packets::patterns(cx, &mut file)?;
    let mean_packet = traffic::mean_packet(cx, &file, &transports, &patterns)?;
    let mut links = Vec::new();
    for (name, raw) in &mut file.link.0 {
        links.push(link::link(cx, name, raw, (&hosts, &file.carrier), mean_packet)?);
    }
    let mut gateways = Vec::new();
    for (i, raw) in file.gateway.0.iter_mut().enumerate() {
        let tables = terminal::Tables {
            terminals: &file.terminal,
            plans: &file.plan,
            pools: &file.pool,
            hosts: &file.host,
        };
        let mut terminals = terminal::terminals(cx, i, raw, &nodes, tables)?;
        let pools = pool::pools(cx, raw, &mut terminals, tables)?;
        let is_upload = |(_, t): (&str, &crate::schema::traffic::Traffic)| {
            let common = t.source().common();
            nodes.uploads(common.from, common.to).contains(&GatewayIndex(i))
        };
        if raw.back.is_none() && file.traffic.iter().any(is_upload) {
            raw.back = Some(crate::schema::gateway::Return::default());
        }
        let path = gateway::path_of(cx, i);
        gateways.push(gateway::gateway(cx, &path, raw, (terminals, pools), (&links, mean_packet))?);
    }
    pool::check(cx, &file.pool, &gateways)?;
    terminal::check_subscribers(cx, &file.host, &gateways)?;
    handover::check(cx, &gateways)?;
    link::check_unique_names(cx, &links, &hosts, &gateways)?;
    capacity::check_regions(cx, &links)?;
    capacity::check_carriers(cx, &file)?;
    let traffic = traffic::traffic(cx, &file, &hosts, &transports, &nodes, (&gateways, &links), patterns)?;
    capacity::check_groups(cx, &links, &traffic, &hosts)?;
    warnings::late_starts(cx, &traffic, run.warmup);
    warnings::late_handovers(cx, &gateways, run.warmup + run.duration);
    warnings::one_sided_ecn(cx, (&links, &gateways), (&traffic, &transports));
    warnings::unsplit_windows(cx, &gateways, &traffic, &transports);
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
        thresholds: measures::thresholds(cx, &mut file.thresholds)?,
        models: models::models(cx, file.model.as_ref())?,
        subject: Subject::Link(LinkIndex(0)),
        warnings: Vec::new(),
        unused_overrides,
        input: input.clone(),
        setting: choice.map(|choice| choice.name.clone()),
        effective: Vec::new(),
    };
    scenario.subject = subject::subject(cx, &mut file, &scenario)?;
    subject::settings(cx, &mut file, &mut scenario, mean_packet)?;
    if let (Some(choice), Some(aqm)) = (choice, scenario.subject_aqm_mut()) {
        aqm.label = choice.name.clone();
    }
    subject::printed(cx, &file, &mut scenario);
    scenario.effective = effective::list((cx.root, &cx.notes), &file);
    scenario.warnings = std::mem::take(&mut cx.warnings);
    Ok(scenario)
}

/// Deserializes the tree.
fn read(source: &Source, root: &Node, setting: &str) -> Result<File, Error> {
    File::deserialize(Reader(root)).map_err(|wrong| {
        let path: Vec<Step> = wrong.way.into_iter().rev().collect();
        let problem = match wrong.problem.as_str() {
            "missing" => format!("missing; {}", json::required(&path)),
            _ => unquoted_measure(&path).unwrap_or(wrong.problem),
        };
        source.error(root, &path, wrong.key, problem, setting)
    })
}

/// Returns the message for a measure of quality whose name, which has a dot, is not in quotes.
fn unquoted_measure(path: &[Step]) -> Option<String> {
    let [Step::Key(section), Step::Key(first), Step::Key(second)] = path else { return None };
    let name = format!("{first}.{second}");
    let is_measure = section == "thresholds" && MEASURES.iter().any(|measure| measure.name == name);
    is_measure.then(|| format!("found without quotes; allowed: \"{name}\", because the name has a dot"))
}

fn topology(cx: &Cx<'_>, file: &mut File, hosts: &[Host]) -> Result<Nodes, Error> {
    let mut nodes = Nodes::default();
    for (i, name) in file.host.names().enumerate() {
        nodes.add(cx, &named("host", name), name, Kind::Host(HostIndex(i)))?;
    }
    for name in file.router.names() {
        nodes.add(cx, &named("router", name), name, Kind::Router)?;
    }
    for (i, g) in file.gateway.0.iter().enumerate() {
        let path = gateway::path_of(cx, i);
        nodes.add(cx, &step(&path, "name"), &g.name, Kind::Gateway(GatewayIndex(i)))?;
    }
    terminal::nodes(cx, file, &mut nodes)?;
    for (name, link) in file.link.iter() {
        let path = named("link", name);
        nodes::check_name(cx, &path, name)?;
        nodes.join(cx, &step(&path, "between"), &link.between, hosts)?;
    }
    for (name, terminal) in file.terminal.iter() {
        if let Some(handover) = &terminal.handover {
            nodes.hand_over(name, &handover.to);
        }
    }
    Ok(nodes)
}
