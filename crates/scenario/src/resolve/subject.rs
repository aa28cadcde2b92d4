//! The subject, and the settings that apply to it.

use bentpipe_queue::Limit;
use bentpipe_queue::registry;

use super::cx::Cx;
use super::nodes::{self, named};
use super::{aqm, scheduler, threshold};
use crate::error::{Error, quoted};
use crate::model::{Gateway, GatewayIndex, Link, LinkIndex, Subject};
use crate::reader::tree::{At, Node, Step, step};
use crate::scenario::Scenario;
use crate::schema::file::File;
use crate::settings::{self, Setting};
use crate::warning::WarningKind;

/// Resolves the subject: the queue that settings apply to and metrics describe.
pub fn subject(cx: &mut Cx<'_>, file: &mut File, s: &Scenario) -> Result<Subject, Error> {
    let path = named("run", "subject");
    let queued = || s.links.iter().enumerate().filter(|(_, l)| l.forward.queue.is_some());
    if let Some(name) = &file.run.subject {
        if let Some(i) = s.gateways.iter().position(|g| g.name == *name) {
            return Ok(Subject::Gateway(GatewayIndex(i)));
        }
        if let Some(i) = s.gateways.iter().position(|g| g.back.as_ref().is_some_and(|b| b.name == *name)) {
            return Ok(Subject::Return(GatewayIndex(i)));
        }
        return match s.links.iter().position(|l| l.name == *name) {
            Some(i) if s.links[i].forward.queue.is_some() => Ok(Subject::Link(LinkIndex(i))),
            Some(_) => {
                let problem =
                    format!("found {}; allowed: a link with a queue on its way forward", quoted(name));
                Err(cx.error(&path, problem))
            }
            None => {
                let gateways = s.gateways.iter().flat_map(Gateway::directions).map(|g| &g.name);
                let known: Vec<_> =
                    gateways.chain(queued().map(|(_, l)| &l.name)).map(String::as_str).collect();
                Err(cx.unknown(&path, name, known))
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
        Subject::Gateway(GatewayIndex(0))
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
                "missing, and the scenario has no gateway and no link with a queue".to_owned()
            } else {
                format!("missing; required: the queue that metrics describe: {}", known.join(", "))
            };
            return Err(cx.error(&path, problem));
        };
        Subject::Link(LinkIndex(link))
    };
    let (name, why) = match subject {
        Subject::Gateway(i) | Subject::Return(i) => (&s.gateways[i].name, "the only gateway"),
        Subject::Link(i) => (&s.links[i].name, "the only link with such a queue"),
    };
    file.run.subject = Some(name.clone());
    cx.note(&path, None, why.to_owned());
    Ok(subject)
}

/// Checks the scenario's own settings at the subject, and the names of those to compare.
pub fn settings(cx: &mut Cx<'_>, file: &mut File, s: &mut Scenario, mean_packet: f64) -> Result<(), Error> {
    let (rate, varies, mean_packet, limit) = match (s.subject, s.subject_gateway()) {
        (_, Some(gateway)) => (
            gateway.watched_rate(),
            gateway.watched_rate_varies(),
            gateway.mean_packet,
            gateway.watched_limit(),
        ),
        (Subject::Gateway(_) | Subject::Return(_), None) => return Ok(()),
        (Subject::Link(i), None) => {
            let forward = &s.links[i].forward;
            let mean = forward.queue.as_ref().map_or(mean_packet, |q| q.mean_packet);
            let limit = forward.queue.as_ref().map_or(Limit::NONE, |q| q.limit);
            (forward.mean_rate().unwrap_or_default(), forward.varies(), mean, limit)
        }
    };
    let capacity = aqm::Capacity { rate, varies };
    for (name, raw) in &mut file.setting.0 {
        let path = named("setting", name);
        nodes::check_name(cx, &path, name)?;
        if name.trim().eq_ignore_ascii_case("all") {
            let problem =
                "found as a setting's name; allowed: another name, because \"all\" means every algorithm";
            return Err(cx.key_error(&path, problem.to_owned()));
        }
        let scheduler = scheduler::of_setting(cx, &path, raw)?;
        let aqm = aqm::resolve(cx, &path, raw, capacity, mean_packet)?;
        threshold::check_threshold(cx, &path, &aqm.spec, limit)?;
        let lower = name.to_lowercase();
        let known = registry::aqm(&lower).is_some() || registry::scheduler(&lower).is_some();
        if registry::preset(name).is_some() || known {
            cx.warn(WarningKind::ShadowedName, &path, "replaces the algorithm or preset of this name");
        }
        let mut node = cx.root.find(&path).cloned().unwrap_or_else(|| Node::table(At::Setting));
        node.retain(|entry| entry.key != "scheduler");
        s.settings.push(Setting { name: name.clone(), aqm: aqm.spec, scheduler, node });
    }
    for (i, name) in s.run.settings.iter().enumerate() {
        let path = [named("run", "settings"), vec![Step::Index(i)]].concat();
        if settings::find(&s.settings, name).is_none() {
            return Err(cx.unknown(&path, name, s.setting_names()));
        }
    }
    Ok(())
}

pub fn printed(cx: &mut Cx<'_>, file: &File, s: &mut Scenario) {
    for (i, p) in file.printed.iter().enumerate() {
        if settings::find(&s.settings, &p.setting).is_none() {
            let path = [step(&[], "printed"), vec![Step::Index(i)]].concat();
            cx.warn(
                WarningKind::UnknownPrintedSetting,
                &step(&path, "setting"),
                &format!("no setting is called {}", quoted(&p.setting)),
            );
        }
        s.printed.push(p.clone());
    }
}
