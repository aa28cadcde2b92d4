//! Topology: nodes, links and routes.

use std::collections::VecDeque;

use super::cx::Cx;
use crate::error::{Error, choices, quoted};
use crate::model::{AddressChanges, Gateway, GatewayIndex, Hop, Host, HostIndex, Link, LinkIndex};
use crate::reader::tree::{Path, Step, step};
use crate::schema::file;
use crate::schema::quantity::Time;

/// Returns a group of hosts.
pub fn host(name: &str, raw: &mut file::Host) -> Host {
    let address_changes = raw.address_changes.as_mut().map(|changes| {
        let interval = changes.interval.time();
        let offset = changes.offset.get_or_insert(Time::of(interval.as_nanos())).time();
        AddressChanges { interval, offset }
    });
    Host { name: name.to_owned(), count: raw.count.0, address_changes }
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Group of hosts.
    Host(HostIndex),
    Router,
    /// Gateway.
    Gateway(GatewayIndex),
    /// Group of terminals of this gateway, and their number.
    Terminal(GatewayIndex, u32),
}

/// Topology: nodes and the links between them.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: Vec<(String, Kind)>,
    /// Nodes at the ends of each link (indexes).
    links: Vec<(usize, usize)>,
    /// Handovers of terminals to other gateways: satellite links before and after (indexes).
    handovers: Vec<(usize, usize)>,
}

impl Nodes {
    /// Adds a node; `path` is that of its name.
    pub fn add(&mut self, cx: &Cx<'_>, path: &Path, name: &str, kind: Kind) -> Result<(), Error> {
        check_name(cx, path, name)?;
        if let Some((_, other)) = self.nodes.iter().find(|(n, _)| n == name) {
            let other = match other {
                Kind::Host(_) => "a group of hosts",
                Kind::Router => "a router",
                Kind::Gateway(_) => "a gateway",
                Kind::Terminal(..) => "a terminal",
            };
            let problem =
                format!("found {}; allowed: a unique name; {other} already has this one", quoted(name));
            return Err(cx.key_error(path, problem));
        }
        self.nodes.push((name.to_owned(), kind));
        Ok(())
    }

    /// Adds a link; `path` is that of its `between`.
    pub fn join(
        &mut self,
        cx: &Cx<'_>,
        path: &Path,
        between: &[String; 2],
        hosts: &[Host],
    ) -> Result<(), Error> {
        let mut ends = [0; 2];
        for (i, name) in between.iter().enumerate() {
            ends[i] = self.find(name).ok_or_else(|| {
                let known = choices(name, self.nodes.iter().map(|(n, _)| n.as_str()));
                cx.error(&[path, &[Step::Index(i)]].concat(), format!("found {}; {known}", quoted(name)))
            })?;
        }
        let [a, b] = ends;
        if a == b {
            return Err(cx.error(path, format!("found {} twice; allowed: two nodes", quoted(&between[0]))));
        }
        let kinds = (self.nodes[a].1, self.nodes[b].1);
        match kinds {
            (Kind::Host(x), Kind::Host(y)) if hosts[x].count > 1 && hosts[y].count > 1 => {
                let problem = "found two groups of several hosts; allowed: a group at one end only";
                return Err(cx.error(path, problem.to_owned()));
            }
            (Kind::Terminal(g, terminals), other) | (other, Kind::Terminal(g, terminals))
                if terminals > 1 =>
            {
                let problem = match other {
                    Kind::Gateway(to) if to == g => None,
                    Kind::Host(host) if hosts[host].count.is_multiple_of(terminals) => None,
                    Kind::Host(host) => Some(format!("{} hosts", hosts[host].count)),
                    _ => Some("another node".to_owned()),
                };
                if let Some(found) = problem {
                    let problem = format!(
                        "found {found} at the other end of the links of {terminals} terminals; allowed: their gateway, or \
                         hosts whose number is a multiple of {terminals}"
                    );
                    return Err(cx.error(path, problem));
                }
            }
            _ => {}
        }
        self.links.push((a, b));
        Ok(())
    }

    /// Returns the groups of hosts and routers without a link.
    pub fn alone(&self) -> impl Iterator<Item = (&str, Kind)> {
        let joined = |node: usize| self.links.iter().any(|&(a, b)| a == node || b == node);
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(move |(i, _)| !joined(*i)).map(|(_, (name, kind))| (name.as_str(), *kind))
    }

    /// Adds a handover of terminals to another gateway, where another group stands for them; none if either has no satellite
    /// link.
    pub fn hand_over(&mut self, from: &str, to: &str) {
        self.handovers.extend(self.satellite_of(from).zip(self.satellite_of(to)));
    }

    /// Returns the gateway of a group of terminals, its name, and the number of terminals.
    pub fn terminals(&self, name: &str) -> Option<(GatewayIndex, &str, u32)> {
        let Kind::Terminal(gateway, count) = self.nodes[self.find(name)?].1 else { return None };
        let (of, _) = self.nodes.iter().find(|(_, kind)| *kind == Kind::Gateway(gateway))?;
        Some((gateway, of, count))
    }

    fn satellite_of(&self, terminal: &str) -> Option<usize> {
        let (gateway, _, _) = self.terminals(terminal)?;
        let (end, other) = (self.find(terminal)?, Kind::Gateway(gateway));
        let joins = |a: usize, b: usize| a == end && self.nodes[b].1 == other;
        self.links.iter().position(|&(a, b)| joins(a, b) || joins(b, a))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|(n, _)| n == name)
    }

    /// Finds the one link between a gateway and its terminal. Also returns whether its forward direction leads to the
    /// terminal.
    pub fn satellite(
        &self,
        cx: &Cx<'_>,
        path: &Path,
        name: &str,
        terminal: &str,
    ) -> Result<(LinkIndex, bool), Error> {
        let (a, b) = (self.find(name), self.find(terminal));
        let joins = |&(_, &(x, y)): &(usize, &(usize, usize))| {
            (Some(x), Some(y)) == (a, b) || (Some(x), Some(y)) == (b, a)
        };
        let found: Vec<_> = self.links.iter().enumerate().filter(joins).collect();
        match found.as_slice() {
            [(i, (x, _))] => Ok((LinkIndex(*i), Some(*x) == a)),
            _ => {
                let problem = format!(
                    "found {} links between {} and {}; allowed: one, the satellite",
                    found.len(),
                    quoted(name),
                    quoted(terminal)
                );
                Err(cx.error(path, problem))
            }
        }
    }

    /// Returns the route with the fewest links between two nodes; among equals the one through the earlier link of the
    /// file. Hosts do not forward, and satellite links carry nothing before the handover to them.
    pub fn route(&self, from: &str, to: &str) -> Option<Vec<Hop>> {
        let closed: Vec<_> = self.handovers.iter().map(|(_, after)| *after).collect();
        self.route_without(from, to, &closed)
    }

    /// Returns the routes between two nodes after each handover of a terminal on the way, in order; the last one is `None` if
    /// the way does not lead over the terminal at its new gateway.
    pub fn routes_after(&self, from: &str, to: &str) -> Vec<Option<Vec<Hop>>> {
        let mut closed: Vec<_> = self.handovers.iter().map(|(_, after)| *after).collect();
        let mut last = self.route_without(from, to, &closed).unwrap_or_default();
        let takes = |route: &[Hop], link: usize| route.iter().any(|hop| hop.link.0 == link);
        let mut routes = Vec::new();
        for _ in 0..self.handovers.len() {
            let Some(&(before, after)) = self.handovers.iter().find(|(before, _)| takes(&last, *before))
            else {
                break;
            };
            closed.retain(|link| *link != after);
            closed.push(before);
            let next = self.route_without(from, to, &closed).filter(|route| takes(route, after));
            routes.push(next.clone());
            last = next.unwrap_or_default();
        }
        routes
    }

    /// Returns the route without the links that are closed.
    fn route_without(&self, from: &str, to: &str, closed: &[usize]) -> Option<Vec<Hop>> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let mut came_by: Vec<Option<(usize, Hop)>> = vec![None; self.nodes.len()];
        let mut next = VecDeque::from([from]);
        while let Some(node) = next.pop_front() {
            if node != from && matches!(self.nodes[node].1, Kind::Host(_)) {
                continue;
            }
            for (link, &(a, b)) in self.links.iter().enumerate() {
                if closed.contains(&link) {
                    continue;
                }
                let (other, forward) = match node {
                    n if n == a => (b, true),
                    n if n == b => (a, false),
                    _ => continue,
                };
                if other != from && came_by[other].is_none() {
                    came_by[other] = Some((node, Hop { link: LinkIndex(link), forward }));
                    next.push_back(other);
                }
            }
        }
        let mut route = Vec::new();
        let mut node = to;
        while node != from {
            let (before, hop) = came_by[node]?;
            route.push(hop);
            node = before;
        }
        route.reverse();
        Some(route)
    }

    /// Returns the first gateway that a route does not pass over exactly one of its satellite links, and true if the route
    /// takes two of them: from one terminal to another.
    pub fn wrong_way<'a>(
        &self,
        from: &str,
        route: &[Hop],
        gateways: &'a [Gateway],
    ) -> Option<(&'a Gateway, bool)> {
        let mut node = self.find(from)?;
        let mut last: Option<Hop> = None;
        for hop in route {
            let (a, b) = *self.links.get(hop.link.0)?;
            let (kind, next) = (self.nodes[node].1, if hop.forward { b } else { a });
            if let Kind::Gateway(i) | Kind::Terminal(i, _) = kind {
                let comes = last.is_some_and(|last| gateways[i].has_link(last.link));
                let leaves = gateways[i].has_link(hop.link);
                if comes == leaves {
                    return Some((&gateways[i], comes));
                }
            }
            (node, last) = (next, Some(*hop));
        }
        None
    }

    /// Returns the gateways that data between two nodes pass from their terminals.
    pub fn uploads(&self, from: &str, to: &str) -> Vec<GatewayIndex> {
        let mut hops = self.route(from, to).unwrap_or_default();
        hops.extend(self.routes_after(from, to).into_iter().flatten().flatten());
        let gateway = |hop: Hop| {
            let (a, b) = self.links[hop.link.0];
            let (start, end) = if hop.forward { (a, b) } else { (b, a) };
            match (self.nodes[start].1, self.nodes[end].1) {
                (Kind::Terminal(of, _), Kind::Gateway(gateway)) if of == gateway => Some(gateway),
                _ => None,
            }
        };
        hops.into_iter().filter_map(gateway).collect()
    }
}

/// Rejects names that are unsuitable for results and overrides.
pub fn check_name(cx: &Cx<'_>, path: &Path, name: &str) -> Result<(), Error> {
    name_problem(name).map_or(Ok(()), |problem| Err(cx.key_error(path, problem)))
}

/// Returns what is wrong with a name; `None` if nothing is.
pub fn name_problem(name: &str) -> Option<String> {
    let is_valid = !name.is_empty() && name.chars().count() <= 64 && !name.chars().any(char::is_control);
    (!is_valid).then(|| {
        format!(
            "found the name {}; allowed: 1 to 64 characters, none of them control characters",
            quoted(name)
        )
    })
}

/// Returns the topology of resolved links.
pub fn of(hosts: &[Host], routers: &[String], gateways: &[Gateway], links: &[Link]) -> Nodes {
    let mut nodes: Vec<_> =
        hosts.iter().enumerate().map(|(i, h)| (h.name.clone(), Kind::Host(HostIndex(i)))).collect();
    nodes.extend(routers.iter().map(|name| (name.clone(), Kind::Router)));
    nodes.extend(gateways.iter().enumerate().map(|(i, g)| (g.name.clone(), Kind::Gateway(GatewayIndex(i)))));
    for (i, gateway) in gateways.iter().enumerate() {
        let kind = |count| Kind::Terminal(GatewayIndex(i), count);
        nodes.extend(gateway.terminals.iter().map(|group| (group.name.clone(), kind(group.count))));
    }
    let mut all = Nodes { nodes, ..Nodes::default() };
    all.links =
        links.iter().filter_map(|l| Some((all.find(&l.between.0)?, all.find(&l.between.1)?))).collect();
    let groups = gateways.iter().flat_map(|gateway| gateway.terminals.iter());
    all.handovers = groups.filter_map(|group| Some((group.link.0, group.handover?.to.0))).collect();
    all
}

/// Returns the path of a named table.
pub fn named(part: &str, name: &str) -> Vec<Step> {
    step(&[Step::Key(part.to_owned())], name)
}
