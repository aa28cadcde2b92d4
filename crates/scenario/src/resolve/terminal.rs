//! Terminals of gateways.

use bentpipe_units::Rate;

use super::cx::Cx;
use super::gateway::path_of;
use super::handover::handover;
use super::nodes::{Kind, Nodes, named};
use crate::error::{Error, quoted};
use crate::model::{
    Gateway, GatewayIndex, HostIndex, Plan, QueuesPer, Subscribers, TerminalGroup, Terminals,
};
use crate::reader::tree::{Path, Step, step};
use crate::schema::file::{File, Host};
use crate::schema::forms::Named;
use crate::schema::gateway as file;
use crate::schema::quantity::Rate as RawRate;
use crate::schema::terminal as schema;
use crate::warning::WarningKind;

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
        if raw.queues_per != QueuesPer::Carrier {
            let problem = format!("found {}; allowed: only with terminals", quoted(raw.queues_per.name()));
            return Err(cx.error(&step(&path, "queues_per"), problem));
        }
        return Ok(Terminals(vec![TerminalGroup::new(name, 1, (link, link_forward))]));
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
        let group = TerminalGroup::new(name, terminal.count.0, (link, link_forward));
        let subscribers = match raw.queues_per {
            QueuesPer::Subscriber => subscribers(cx, &group, nodes, tables)?,
            QueuesPer::Carrier | QueuesPer::Terminal => Vec::new(),
        };
        let handover = match &terminal.handover {
            Some(of) => Some(handover(cx, (i, raw), (name, of), (nodes, tables.terminals))?),
            None => None,
        };
        let group = TerminalGroup { plan, up, subscribers, handover, ..group };
        if let Some(plan) = &group.plan {
            let each = group.subscribers.iter().map(|hosts| hosts.committed().as_bps());
            let of = Rate::from_bps(each.fold(0, u64::saturating_add));
            let own = named("plan", terminal.plan.as_deref().unwrap_or_default());
            warn_of_committed(cx, &own, plan, of, "what is behind a terminal");
        }
        groups.push(group);
    }
    Ok(Terminals(groups))
}

/// Tables of a file that gateways refer to.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    pub terminals: &'a Named<schema::Terminal>,
    pub plans: &'a Named<schema::Plan>,
    pub pools: &'a Named<schema::Pool>,
    pub hosts: &'a Named<Host>,
}

/// Returns the hosts behind a group of terminals of a gateway.
fn subscribers(
    cx: &Cx<'_>,
    group: &TerminalGroup,
    nodes: &Nodes,
    tables: Tables<'_>,
) -> Result<Vec<Subscribers>, Error> {
    let mut found = Vec::new();
    for (number, (name, host)) in tables.hosts.iter().enumerate() {
        let route = nodes.route(&group.name, name).unwrap_or_default();
        if route.is_empty() || route.iter().any(|hop| hop.link == group.link) {
            continue;
        }
        let plan = match &host.plan {
            None => None,
            Some(plan) => {
                let at = step(&named("host", name), "plan");
                let Some((_, raw)) = tables.plans.iter().find(|(known, _)| known == plan) else {
                    return Err(cx.unknown(&at, plan, tables.plans.names()));
                };
                if raw.up.is_some() {
                    let problem = format!(
                        "found {}, which has a share in the return carrier; allowed: a plan without up, because subscribers \
                         share the return carrier as their terminal",
                        quoted(plan)
                    );
                    return Err(cx.error(&at, problem));
                }
                let down = plan_of(&raw.down);
                check_peak(cx, &step(&named("plan", plan), "down"), "cir", down.cir, down.pir)?;
                Some(down)
            }
        };
        let (host, each) = (HostIndex(number), host.count.0 / group.count);
        found.push(Subscribers { host, each, plan });
    }
    Ok(found)
}

/// Rejects plans of hosts without queues at a gateway.
pub fn check_subscribers(cx: &Cx<'_>, hosts: &Named<Host>, gateways: &[Gateway]) -> Result<(), Error> {
    for (number, (name, host)) in hosts.iter().enumerate() {
        let groups = gateways.iter().flat_map(|gateway| gateway.terminals.iter());
        let mut subscribers = groups.flat_map(|group| &group.subscribers);
        if let Some(plan) = &host.plan
            && !subscribers.any(|hosts| hosts.host == HostIndex(number))
        {
            let problem = format!(
                "found {}; allowed: only behind the terminals of a gateway with queues_per = \"subscriber\", because other hosts \
                 share a queue with those behind their terminal",
                quoted(plan)
            );
            return Err(cx.error(&step(&named("host", name), "plan"), problem));
        }
    }
    Ok(())
}

/// Returns a share as plain data.
pub fn plan_of(raw: &schema::Share) -> Plan {
    Plan {
        cra: Rate::default(),
        cir: raw.cir.map(|cir| cir.rate()).unwrap_or_default(),
        pir: raw.pir.map(|pir| pir.rate()),
        weight: raw.weight.0,
        burst: raw.burst.0,
    }
}

/// Rejects a peak rate below the rate of another key; `path` is that of the share.
pub fn check_peak(cx: &Cx<'_>, path: &Path, key: &str, rate: Rate, pir: Option<Rate>) -> Result<(), Error> {
    match pir.filter(|pir| *pir < rate) {
        Some(pir) => {
            let problem = format!("found \"{pir}\"; allowed: at least {key} (\"{rate}\")");
            Err(cx.error(&step(path, "pir"), problem))
        }
        None => Ok(()),
    }
}

/// Warns of committed rates, all together `inside`, above the rates of what they are in, whose share is `own`.
pub fn warn_of_committed(cx: &mut Cx<'_>, path: &Path, own: &Plan, inside: Rate, what: &str) {
    let down = step(path, "down");
    let (key, limit, effect) = match own.pir {
        Some(pir) if pir < inside => ("pir", pir, "they cannot all be kept"),
        _ if own.cir.as_bps() > 0 && own.cir < inside => {
            ("cir", own.cir, "they are kept at the expense of the rest of the carrier")
        }
        _ => return,
    };
    let text = format!("found \"{limit}\"; {what} has committed rates of {inside} in total: {effect}");
    cx.warn(WarningKind::CommittedRates, &step(&down, key), &text);
}

/// Resolves the plan of a group of terminals: its shares in the carrier to the terminals and in the return carrier.
fn plan(
    cx: &Cx<'_>,
    raw: &file::Gateway,
    group: &str,
    name: &str,
    plans: &Named<schema::Plan>,
) -> Result<(Option<Plan>, Option<Plan>), Error> {
    let at = step(&named("terminal", group), "plan");
    let Some((_, plan)) = plans.iter().find(|(known, _)| *known == name) else {
        return Err(cx.unknown(&at, name, plans.names()));
    };
    let own = named("plan", name);
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
            check_peak(cx, &step(&own, "up"), "cra", cra, pir)?;
            check_peak(cx, &step(&own, "up"), "cir", cir, pir)?;
            Some(Plan { cra, cir, pir, weight: up.weight.0, burst: 0 })
        }
    };
    if raw.queues_per == QueuesPer::Carrier {
        if up.is_some() && cx.root.find(&step(&own, "down")).is_none() {
            return Ok((None, up));
        }
        let problem = format!(
            "found {}; allowed: only at a gateway with queues_per = \"terminal\" or \"subscriber\", because terminals that share a queue share \
             the carrier as its packets come",
            quoted(name)
        );
        return Err(cx.error(&at, problem));
    }
    let down = plan_of(&plan.down);
    check_peak(cx, &step(&own, "down"), "cir", down.cir, down.pir)?;
    Ok((Some(down), up))
}
