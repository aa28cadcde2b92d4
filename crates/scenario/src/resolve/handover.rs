//! Handovers of terminals to other gateways.

use super::cx::Cx;
use super::nodes::{Nodes, named};
use crate::error::{Error, quoted};
use crate::model::{Gateway, GatewayHandover, GatewayIndex, Hop, QueuesPer, TerminalGroup};
use crate::reader::tree::step;
use crate::schema::forms::Named;
use crate::schema::gateway as file;
use crate::schema::terminal as schema;

/// Resolves the handover of a group of terminals of the i-th gateway.
pub fn handover(
    cx: &Cx<'_>,
    (i, gateway): (usize, &file::Gateway),
    (name, raw): (&str, &schema::GatewayHandover),
    (nodes, groups): (&Nodes, &Named<schema::Terminal>),
) -> Result<GatewayHandover, Error> {
    let own = step(&named("terminal", name), "handover");
    let at = step(&own, "to");
    let count = nodes.terminals(name).map_or(0, |(_, _, count)| count);
    let problem = match nodes.terminals(&raw.to) {
        None => return Err(cx.unknown(&at, &raw.to, groups.names())),
        Some((GatewayIndex(to), _, _)) if to == i => {
            format!("terminals of the same gateway, {}", quoted(&gateway.name))
        }
        Some((_, _, other)) if other != count => format!("which has {other} terminals"),
        Some((_, to, _)) => {
            if gateway.queues_per == QueuesPer::Carrier && gateway.terminals.len() > 1 {
                let problem = format!(
                    "found a handover of terminals that share their queues at {} with others; allowed: with queues_per = \
                     \"terminal\" or \"subscriber\", because their packets are handed over too",
                    quoted(&gateway.name)
                );
                return Err(cx.key_error(&own, problem));
            }
            let (link, _) = nodes.satellite(cx, &at, to, &raw.to)?;
            return Ok(GatewayHandover { at: raw.at.time(), to: link, connections: raw.connections });
        }
    };
    let problem = format!(
        "found {}, {problem}; allowed: a group of {count} terminals of another gateway",
        quoted(&raw.to)
    );
    Err(cx.error(&at, problem))
}

/// Rejects handovers between gateways that differ in what they split, in circles and against time.
pub fn check(cx: &Cx<'_>, gateways: &[Gateway]) -> Result<(), Error> {
    let groups =
        || gateways.iter().flat_map(|gateway| gateway.terminals.iter().map(move |group| (gateway, group)));
    for (gateway, group) in groups() {
        let Some(handover) = group.handover else { continue };
        let Some((other, to)) = groups().find(|(_, to)| to.link == handover.to) else { continue };
        let own = step(&named("terminal", &group.name), "handover");
        let refuse = |key: &str, problem: String| Err(cx.error(&step(&own, key), problem));
        let same = groups().find(|(_, first)| first.handover.is_some_and(|first| first.to == handover.to));
        if let Some((_, first)) = same.filter(|(_, first)| first.name != group.name) {
            let problem = format!(
                "found {}, to which {} moves too; allowed: a group for each group that moves",
                quoted(&to.name),
                quoted(&first.name)
            );
            return refuse("to", problem);
        }
        if let Some(next) = to.handover.filter(|next| next.at <= handover.at) {
            let problem = format!(
                "found \"{}\"; allowed: before \"{}\", the time of the handover of {}",
                handover.at,
                next.at,
                quoted(&to.name)
            );
            return refuse("at", problem);
        }
        let split = |gateway: &Gateway| {
            let back = gateway.back.as_ref().map(|back| back.pep.split.clone());
            (gateway.pep.split.clone(), back)
        };
        if split(gateway) != split(other) {
            let problem = format!(
                "found {}, a terminal of {}; allowed: a terminal of a gateway that splits the same connections as {} (pep.split, \
                 and return with its pep.split), because connections keep their parts",
                quoted(&to.name),
                quoted(&other.name),
                quoted(&gateway.name)
            );
            return refuse("to", problem);
        }
    }
    Ok(())
}

/// Returns the routes of a traffic entry after the handovers of terminals on its way.
pub fn routes_after(
    cx: &Cx<'_>,
    (from, to): (&str, &str),
    route: &[Hop],
    nodes: &Nodes,
    gateways: &[Gateway],
) -> Result<Vec<Vec<Hop>>, Error> {
    let group_on = |route: &[Hop]| -> Option<&TerminalGroup> {
        let groups = gateways.iter().flat_map(|gateway| gateway.terminals.iter());
        groups
            .filter(|group| group.handover.is_some())
            .find(|group| route.iter().any(|hop| hop.link == group.link))
    };
    let satellites =
        route.iter().filter(|hop| gateways.iter().any(|gateway| gateway.has_link(hop.link))).count();
    let mut last = route.to_vec();
    let mut routes = Vec::new();
    for next in nodes.routes_after(from, to) {
        let Some(group) = group_on(&last) else { break };
        let own = step(&named("terminal", &group.name), "handover");
        let between = format!("data from {} to {}", quoted(from), quoted(to));
        if satellites > 1 {
            let problem =
                format!("found for {between}, which pass two satellite links; allowed: with one on the way");
            return Err(cx.key_error(&own, problem));
        }
        let Some(next) = next else {
            let problem = format!(
                "found a group of terminals that {between} cannot pass; allowed: one with links to the same hosts, at a gateway \
                 that they reach"
            );
            return Err(cx.error(&step(&own, "to"), problem));
        };
        last.clone_from(&next);
        routes.push(next);
    }
    Ok(routes)
}
