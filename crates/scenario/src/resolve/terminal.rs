//! Terminals of gateways.

use bentpipe_units::Rate;

use super::cx::Cx;
use super::gateway::path_of;
use super::nodes::{Kind, Nodes, named};
use crate::error::{Error, quoted};
use crate::model::{GatewayIndex, Plan, QueuesPer, TerminalGroup, Terminals};
use crate::reader::tree::{Step, step};
use crate::schema::file::File;
use crate::schema::gateway as file;
use crate::schema::quantity::Rate as RawRate;

/// Name of the terminal of a gateway that names none.
const TERMINAL: &str = "terminal";

/// Adds the terminals of all gateways to the nodes.
pub fn nodes(cx: &Cx<'_>, file: &mut File, nodes: &mut Nodes) -> Result<(), Error> {
    for (i, gateway) in file.gateway.0.iter_mut().enumerate() {
        let path = path_of(cx, i);
        if gateway.terminals.is_empty() {
            let name = gateway.terminal.get_or_insert_with(|| TERMINAL.to_owned());
            nodes.add(cx, &step(&path, "terminal"), name, Kind::Terminal(GatewayIndex(i), 1))?;
            continue;
        }
        if let Some(name) = &gateway.terminal {
            let problem = format!("found {} beside terminals; allowed: one of the two", quoted(name));
            return Err(cx.error(&step(&path, "terminal"), problem));
        }
        for (k, name) in gateway.terminals.iter().enumerate() {
            let path = [step(&path, "terminals"), vec![Step::Index(k)]].concat();
            let Some((_, raw)) = file.terminal.iter().find(|(known, _)| known == name) else {
                return Err(cx.unknown(&path, name, file.terminal.names()));
            };
            nodes.add(cx, &path, name, Kind::Terminal(GatewayIndex(i), raw.count.0))?;
        }
    }
    for name in file.terminal.names() {
        if !file.gateway.0.iter().any(|gateway| gateway.terminals.iter().any(|known| known == name)) {
            let problem = "no gateway has it; allowed: terminals that a gateway names in terminals";
            return Err(cx.key_error(&named("terminal", name), problem.to_owned()));
        }
    }
    Ok(())
}

/// Resolves the terminals of the i-th gateway.
pub fn terminals(
    cx: &mut Cx<'_>,
    i: usize,
    raw: &file::Gateway,
    nodes: &Nodes,
    tables: Tables<'_>,
) -> Result<Terminals, Error> {
    let path = path_of(cx, i);
    if let Some(name) = &raw.terminal {
        let (link, link_forward) = nodes.satellite(cx, &step(&path, "terminal"), &raw.name, name)?;
        if raw.queues_per == QueuesPer::Terminal {
            let problem = "found \"terminal\"; allowed: only with terminals";
            return Err(cx.error(&step(&path, "queues_per"), problem.to_owned()));
        }
        return Ok(Terminals(vec![TerminalGroup {
            name: name.clone(),
            count: 1,
            link,
            link_forward,
            plan: None,
            up: None,
        }]));
    }
    let mut groups = Vec::new();
    for (k, name) in raw.terminals.iter().enumerate() {
        let at = [step(&path, "terminals"), vec![Step::Index(k)]].concat();
        let (link, link_forward) = nodes.satellite(cx, &at, &raw.name, name)?;
        let Some((_, terminal)) = tables.terminals.iter().find(|(known, _)| known == name) else { continue };
        let (plan, up) = match &terminal.plan {
            Some(plan) => self::plan(cx, raw, name, plan, tables.plans)?,
            None => (None, None),
        };
        let (name, count) = (name.clone(), terminal.count.0);
        groups.push(TerminalGroup { name, count, link, link_forward, plan, up });
    }
    Ok(Terminals(groups))
}

/// Tables of a file that gateways refer to.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    pub terminals: &'a crate::schema::forms::Named<crate::schema::terminal::Terminal>,
    pub plans: &'a crate::schema::forms::Named<crate::schema::terminal::Plan>,
}

/// Resolves the plan of a group of terminals: its shares in the carrier to the terminals and in the return carrier.
fn plan(
    cx: &Cx<'_>,
    raw: &file::Gateway,
    group: &str,
    name: &str,
    plans: &crate::schema::forms::Named<crate::schema::terminal::Plan>,
) -> Result<(Option<Plan>, Option<Plan>), Error> {
    let at = step(&named("terminal", group), "plan");
    let Some((_, plan)) = plans.iter().find(|(known, _)| *known == name) else {
        return Err(cx.unknown(&at, name, plans.names()));
    };
    let own = named("plan", name);
    let check = |way: &str, key: &str, rate: Rate, pir: Option<Rate>| match pir.filter(|pir| *pir < rate) {
        Some(pir) => {
            let at = step(&step(&own, way), "pir");
            Err(cx.error(&at, format!("found \"{pir}\"; allowed: at least {key} (\"{rate}\")")))
        }
        None => Ok(()),
    };
    let up = match &plan.up {
        None => None,
        Some(_) if raw.back.as_ref().is_none_or(|back| back.carrier.is_none()) => {
            let problem = "allowed: only with [gateway.return.carrier], because terminals with separate return links do not \
                           share them";
            return Err(cx.key_error(&step(&own, "up"), problem.to_owned()));
        }
        Some(up) => {
            let rate = |rate: Option<RawRate>| rate.map(|rate| rate.rate()).unwrap_or_default();
            let (cra, cir, pir) = (rate(up.cra), rate(up.cir), up.pir.map(|pir| pir.rate()));
            check("up", "cra", cra, pir)?;
            check("up", "cir", cir, pir)?;
            Some(Plan { cra, cir, pir, weight: up.weight.0, burst: 0 })
        }
    };
    if raw.queues_per == QueuesPer::Carrier {
        if up.is_some() && cx.root.find(&step(&own, "down")).is_none() {
            return Ok((None, up));
        }
        let problem = format!(
            "found {}; allowed: only at a gateway with queues_per = \"terminal\", because terminals that share a queue share \
             the carrier as its packets come",
            quoted(name)
        );
        return Err(cx.error(&at, problem));
    }
    let down = &plan.down;
    let (cir, pir) = (down.cir.map(|cir| cir.rate()).unwrap_or_default(), down.pir.map(|pir| pir.rate()));
    check("down", "cir", cir, pir)?;
    let cra = Rate::default();
    Ok((Some(Plan { cra, cir, pir, weight: down.weight.0, burst: down.burst.0 }), up))
}
