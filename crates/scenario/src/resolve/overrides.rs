//! Applies overrides and the requested setting to the tree of a file.
//!
//! Parameters of an AQM come last and apply only if the AQM in use has them, so that one override can apply to some of the
//! settings of a comparison.

use bentpipe_queue::descriptor::{Algorithm, MarkingMethod, SchedulerAlgorithm};
use bentpipe_queue::registry;

use super::aqm;
use super::param::unknown_parameter;
use super::transport::DEFAULT;
use crate::error::{Error, choices};
use crate::model::NO_AQM;
use crate::reader::Input;
use crate::reader::source::Override;
use crate::reader::tree::{At, Node, Path, Step, Value};
use crate::schema::presets;

/// A setting in use: the keys that it replaces.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Label in results.
    pub name: String,
    /// Paths and new values; algorithms are replaced as a whole.
    pub changes: Vec<(Vec<Step>, Node)>,
}

/// Applies overrides and the setting to the tree. Also returns the overrides that were not applicable, as errors.
pub fn apply(input: &Input, choice: Option<&Choice>) -> Result<(Node, Vec<Error>), Error> {
    let mut root = input.base.clone();
    let mut unused = Vec::new();
    let mut parameters = Vec::new();
    for change in &input.source.overrides {
        let path = path_of(&root, change)?;
        if parameter(&path).is_some() {
            parameters.push((change, path));
        } else if let Some(choice) = choice.filter(|c| c.changes.iter().any(|(p, _)| path.starts_with(p))) {
            let problem = format!("the setting {:?} replaces it", choice.name);
            unused.push(fault(&root, change, &path, problem));
        } else {
            put(&mut root, &path, change);
        }
    }
    for (path, node) in choice.iter().flat_map(|choice| &choice.changes) {
        let kept = root.find(path).and_then(|aqm| aqm.get("mean_packet")).cloned();
        root.set(path, node.clone());
        // The packet length belongs to the link, not to the algorithm.
        if let (Some(kept), Some(aqm)) = (kept, root.find_mut(path))
            && aqm.get("mean_packet").is_none()
        {
            aqm.set(&[Step::Key("mean_packet".to_owned())], kept);
        }
    }
    check_transports(input, &root)?;
    for (change, path) in parameters {
        let Some((owner, name)) = parameter(&path) else { continue };
        let problem = if is_marking(owner) {
            let method = method(&root, owner);
            let known = registry::MARKINGS.iter().any(|m| m.params.iter().any(|p| p.name == name));
            let has = method.is_none_or(|method| method.params.iter().any(|p| p.name == name));
            method.filter(|_| known && !has).map(|method| unknown_parameter(method.name, method.params, name))
        } else if is_scheduler(owner) {
            discipline(root.find(owner)).and_then(|discipline| {
                let known = registry::SCHEDULERS.iter().any(|s| s.params.iter().any(|p| p.name == name));
                let has = discipline.params.iter().any(|p| p.name == name);
                (known && !has).then(|| unknown_parameter(discipline.name, discipline.params, name))
            })
        } else {
            algorithm(root.find(owner)).and_then(|algorithm| {
                let known = registry::AQMS.iter().any(|a| a.params.iter().any(|p| p.name == name))
                    || input.parameters.iter().any(|known| known == name);
                let has = name == "mean_packet" || algorithm.params.iter().any(|p| p.name == name);
                (known && !has).then(|| aqm::unknown_parameter(algorithm, name))
            })
        };
        match problem {
            Some(problem) => unused.push(fault(&root, change, &path, problem)),
            None => {
                if is_scheduler(owner) {
                    open(&mut root, owner, "algorithm");
                } else if is_marking(owner) {
                    open(&mut root, owner, "method");
                }
                root.set(&path, change.node.clone());
            }
        }
    }
    Ok((root, unused))
}

/// Rejects overrides of transports that neither the file defines nor traffic uses; presets may be overridden in any case.
fn check_transports(input: &Input, root: &Node) -> Result<(), Error> {
    let overrides = &input.source.overrides;
    if overrides.iter().any(|change| change.keys == ["transport"]) {
        return Ok(());
    }
    let entries =
        |root: &Node, part: &str| root.get(part).map(|node| node.entries().to_vec()).unwrap_or_default();
    let defined: Vec<_> = entries(&input.base, "transport").into_iter().map(|entry| entry.key).collect();
    let traffic = entries(root, "traffic");
    let used = traffic.iter().filter_map(|entry| entry.node.get_text("transport"));
    let presets = presets::PRESETS.iter().map(|preset| preset.name);
    let mut known: Vec<&str> = Vec::new();
    for name in defined.iter().map(String::as_str).chain(used).chain([DEFAULT]).chain(presets) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    for change in overrides {
        if let [part, name, ..] = change.keys.as_slice()
            && part == "transport"
            && !known.contains(&name.as_str())
        {
            let problem = format!("no transport of that name; {}", choices(name, known.iter().copied()));
            return Err(Error { place: change.place(), key: format!("transport.{name}"), problem });
        }
    }
    Ok(())
}

fn fault(root: &Node, change: &Override, path: &Path, problem: String) -> Error {
    Error { place: change.place(), key: crate::reader::tree::dotted(root, path), problem }
}

/// Applies an override. Another algorithm, preset or marking method removes the parameters that the file gives.
fn put(root: &mut Node, path: &Path, change: &Override) {
    if let [around @ .., Step::Key(aqm), Step::Key(key)] = path
        && aqm == "aqm"
        && matches!(key.as_str(), "algorithm" | "preset")
    {
        let aqm = [around, &[Step::Key(aqm.clone())]].concat();
        if let Some(aqm) = root.find_mut(&aqm)
            && !matches!((&change.node.value, aqm.get_text(key)), (Value::Text(x), Some(y)) if x == y)
        {
            aqm.retain(|e| e.key == "mean_packet" || matches!(e.at, At::Override(_)));
        }
    }
    if let [owner @ .., Step::Key(key)] = path
        && ((is_scheduler(owner) && key == "algorithm") || (is_marking(owner) && key == "method"))
        && let Some(owner) = root.find_mut(owner)
        && let Some(old) = owner.get_text(key)
        && !matches!(&change.node.value, Value::Text(new) if new == old)
    {
        owner.retain(|e| matches!(e.at, At::Override(_)));
    }
    if let [.., Step::Key(owner), Step::Key(_)] = path
        && owner == "access"
    {
        open(root, &path[..path.len() - 1], "kind");
    }
    root.set(path, change.node.clone());
}

/// Expands a scheduler, marking method or link layer given by name to a table, which can hold parameters.
fn open(root: &mut Node, owner: &Path, key: &str) {
    let Some(node) = root.find_mut(owner) else { return };
    if let Value::Text(_) = node.value {
        let mut table = Node::table(node.at);
        table.set(&[Step::Key(key.to_owned())], node.clone());
        *node = table;
    }
}

fn is_scheduler(path: &Path) -> bool {
    matches!(path.last(), Some(Step::Key(key)) if key == "scheduler")
}

fn is_marking(path: &Path) -> bool {
    matches!(path.last(), Some(Step::Key(key)) if key == "marking")
}

/// Returns the marking method in use: that of the file, else that of the AQM's preset, else the default; `None` for an
/// unknown name.
fn method(root: &Node, path: &Path) -> Option<&'static MarkingMethod> {
    let name = root.find(path).and_then(|marking| match &marking.value {
        Value::Text(name) => Some(name.as_str()),
        _ => marking.get_text("method"),
    });
    let aqm = path.split_last().and_then(|(_, gateway)| root.find(gateway)?.get("aqm"));
    match (name, aqm.and_then(|aqm| registry::preset(aqm.get_text("preset")?)?.1.marking)) {
        (Some(name), _) => registry::marking(name),
        (None, Some((method, _))) => Some(method),
        (None, None) => registry::MARKINGS.first(),
    }
}

/// Returns the scheduler in use, or the default; `None` for an unknown name.
fn discipline(scheduler: Option<&Node>) -> Option<&'static SchedulerAlgorithm> {
    match scheduler.map(|node| &node.value) {
        Some(Value::Text(name)) => registry::scheduler(name),
        Some(_) => scheduler.and_then(|s| s.get_text("algorithm")).and_then(registry::scheduler),
        None => registry::SCHEDULERS.first(),
    }
}

/// Splits a path to a parameter of an AQM, scheduler or marking method into the algorithm's path and the parameter's
/// name.
fn parameter(path: &Path) -> Option<(&Path, &str)> {
    let (last, owner) = path.split_last()?;
    // At a link the second key is a name.
    let least = if matches!(path.first()?, Step::Key(part) if part == "link") { 4 } else { 2 };
    match (path.first()?, owner.last()?, last) {
        (Step::Key(part), Step::Key(key), Step::Key(name))
            if matches!(part.as_str(), "gateway" | "link")
                && owner.len() >= least
                && matches!(key.as_str(), "aqm" | "scheduler" | "marking")
                && !matches!(name.as_str(), "algorithm" | "preset" | "method") =>
        {
            Some((owner, name))
        }
        _ => None,
    }
}

/// Returns the algorithm that an AQM's table names; `None` for an unknown name.
fn algorithm(aqm: Option<&Node>) -> Option<&'static Algorithm> {
    let text = |key| aqm.and_then(|a| a.get_text(key));
    match (text("algorithm"), text("preset")) {
        (Some(name), _) => registry::aqm(name),
        (None, Some(name)) => registry::preset(name).map(|(algorithm, _)| algorithm),
        (None, None) => registry::aqm(NO_AQM),
    }
}

/// Returns the path of an override; several gateways are addressed by name.
pub fn path_of(root: &Node, change: &Override) -> Result<Vec<Step>, Error> {
    let keys: Vec<&str> = change.keys.iter().map(String::as_str).collect();
    let fault = |key: &str, problem| Error { place: change.place(), key: key.to_owned(), problem };
    let steps = |keys: &[&str]| keys.iter().map(|k| Step::Key((*k).to_owned())).collect::<Vec<_>>();
    match (keys.as_slice(), keys.first().and_then(|first| root.get(first)).map(|n| &n.value)) {
        (["gateway", name, rest @ ..], Some(Value::Array(gateways))) => {
            let named = |g: &Node| g.get_text("name").unwrap_or("gateway").to_owned();
            let names: Vec<String> = gateways.iter().map(named).collect();
            match names.iter().position(|n| n == name) {
                Some(i) => Ok([steps(&["gateway"]), vec![Step::Index(i)], steps(rest)].concat()),
                None => {
                    let known = choices(name, names.iter().map(String::as_str));
                    Err(fault(&format!("gateway.{name}"), format!("no gateway of that name; {known}")))
                }
            }
        }
        (["gateway", name, rest @ ..], Some(Value::Table(_))) if !rest.is_empty() => {
            let gateway = root.get("gateway");
            let given = gateway.and_then(|g| g.get_text("name")).unwrap_or("gateway");
            let key = matches!(
                *name,
                "aqm"
                    | "marking"
                    | "receive_queue"
                    | "pep"
                    | "transmit_queue"
                    | "regulator"
                    | "spacelink"
                    | "return"
            );
            if *name == given && !key {
                Ok([steps(&["gateway"]), steps(rest)].concat())
            } else {
                Ok(steps(&keys))
            }
        }
        ([part @ ("link" | "host" | "router" | "terminal" | "plan" | "traffic"), name, ..], found) => {
            let names: Vec<&str> = match found {
                Some(Value::Table(entries)) => entries.iter().map(|e| e.key.as_str()).collect(),
                _ => Vec::new(),
            };
            if names.contains(name) {
                Ok(steps(&keys))
            } else {
                let known = choices(name, names.iter().copied());
                Err(fault(&format!("{part}.{name}"), format!("no {part} of that name; {known}")))
            }
        }
        ([part, _, ..], Some(Value::Array(_))) => {
            Err(fault(part, "an array; allowed: to be set as a whole".to_owned()))
        }
        _ => Ok(steps(&keys)),
    }
}
