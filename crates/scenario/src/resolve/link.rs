//! Links.

use bentpipe_units::Duration;

use super::cx::{Cx, descending, one_of};
use super::gateway::path_of;
use super::nodes::named;
use super::queue::queue;
use super::{access, capacity, distribution, loss};
use crate::error::{Error, quoted};
use crate::model::{Delay, Direction, Distribution, Gateway, Host, Link, Per};
use crate::reader::tree::{Path, step};
use crate::schema::channel::Carrier;
use crate::schema::forms::{Either, Named};
use crate::schema::link::{self as file, PerName};
use crate::schema::quantity::Quantity;

pub fn link(
    cx: &mut Cx<'_>,
    name: &str,
    raw: &mut file::Link,
    (hosts, carriers): (&[Host], &Named<Carrier>),
    mean_packet: f64,
) -> Result<Link, Error> {
    let path = named("link", name);
    let back = step(&path, "reverse");
    let at = |key: &str| step(&path, key);
    let back_at = |key: &str| step(&back, key);
    inherit(cx, &back, raw);
    let access = access::access(cx, &at("access"), &mut raw.access, &mut raw.rate)?;
    let mut forward = Direction {
        rate: raw.rate.map(|r| r.rate()),
        capacity: capacity::capacity(cx, &at("capacity"), raw.capacity.as_ref(), (hosts, carriers))?,
        demand: None,
        access,
        delay: delay(cx, &at("delay"), &mut raw.delay)?,
        loss: loss::loss(cx, &at("loss"), &mut raw.loss)?,
        queue: None,
    };
    let shared_delay = raw.reverse.delay.is_none() && forward.delay.per == Per::Connection;
    let access = access::access(cx, &back_at("access"), &mut raw.reverse.access, &mut raw.reverse.rate)?;
    let mut reverse = Direction {
        rate: raw.reverse.rate.map(|r| r.rate()),
        capacity: capacity::capacity(
            cx,
            &back_at("capacity"),
            raw.reverse.capacity.as_ref(),
            (hosts, carriers),
        )?,
        demand: None,
        access,
        delay: match &mut raw.reverse.delay {
            Some(raw) => delay(cx, &back_at("delay"), raw)?,
            None => forward.delay.clone(),
        },
        loss: match &mut raw.reverse.loss {
            Some(raw) => loss::loss(cx, &back_at("loss"), raw)?,
            None => forward.loss.clone(),
        },
        queue: None,
    };
    if raw.reverse.delay.is_none() && !shared_delay {
        raw.reverse.delay = Some(raw.delay.clone());
    }
    let round_trip = forward.delay.longest() + reverse.delay.longest();
    forward.demand = access::demand(cx, &at("demand"), raw.demand.as_mut(), round_trip);
    reverse.demand = access::demand(cx, &back_at("demand"), raw.reverse.demand.as_mut(), round_trip);
    for (path, direction) in [(&path, &forward), (&back, &reverse)] {
        capacity::check_capacity(cx, path, direction)?;
    }
    let mut link = Link {
        name: name.to_owned(),
        between: (raw.between[0].clone(), raw.between[1].clone()),
        forward,
        reverse,
        shared_delay,
        handover: access::handover(cx, &at("handover"), raw.handover.as_mut())?,
    };
    link.forward.queue = queue(cx, &path, raw.queue.as_mut(), &link.forward, mean_packet)?;
    link.reverse.queue = queue(cx, &back, raw.reverse.queue.as_mut(), &link.reverse, mean_packet)?;
    Ok(link)
}

/// Fills in what the reverse direction inherits from the forward direction.
fn inherit(cx: &mut Cx<'_>, back: &Path, raw: &mut file::Link) {
    let reverse = &mut raw.reverse;
    let own = reverse.rate.is_some() || reverse.access.is_some() || reverse.demand.is_some();
    if reverse.capacity.is_none() && !own {
        reverse.capacity.clone_from(&raw.capacity);
    }
    if reverse.capacity.is_none() {
        reverse.rate = reverse.rate.or(raw.rate);
        if reverse.access.is_none() {
            reverse.access.clone_from(&raw.access);
        }
    }
    if let (Some(Either::Table(table)), Some(forward)) = (&mut reverse.access, &raw.access) {
        table.inherit(forward);
    }
    reverse.loss.get_or_insert_with(|| raw.loss.clone());
    for key in ["rate", "delay", "loss"] {
        let key = step(back, key);
        if cx.root.find(&key).is_none() {
            cx.note(&key, None, "as on the way forward".to_owned());
        }
    }
}

fn delay(cx: &Cx<'_>, path: &Path, raw: &mut file::Delay) -> Result<Delay, Error> {
    let table = match raw {
        Either::Plain(fixed) => {
            let per = Per::Packet { ordered: true };
            return Ok(Delay { fixed: fixed.time(), jitter: Distribution::Fixed(Duration::ZERO), per });
        }
        Either::Table(table) => table,
    };
    let fixed = table.fixed.map(|t| t.time());
    let jitter = match (&table.uniform, &table.normal, fixed, &table.jitter) {
        (Some([low, high]), None, None, None) => {
            if low.0 > high.0 {
                return Err(descending(
                    cx,
                    &step(path, "uniform"),
                    &low.time().to_string(),
                    &high.time().to_string(),
                ));
            }
            Distribution::Uniform(low.time(), high.time())
        }
        (None, Some(normal), None, None) => {
            Distribution::Normal { mean: normal.mean.time(), std: normal.std.time() }
        }
        (None, None, Some(_), Some(jitter)) => {
            distribution::distribution(cx, &step(path, "jitter"), jitter, Quantity::time)?
        }
        (uniform, normal, fixed, jitter) => {
            let keys = [
                ("uniform", uniform.is_some()),
                ("normal", normal.is_some()),
                ("fixed", fixed.is_some()),
                ("jitter", jitter.is_some()),
            ];
            return Err(one_of(cx, path, &keys, "uniform, normal, fixed with jitter"));
        }
    };
    let fixed = fixed.unwrap_or_default();
    let per = match table.per.get_or_insert(PerName::Packet) {
        PerName::Packet => Per::Packet { ordered: *table.ordered.get_or_insert(true) },
        PerName::Connection => Per::Connection,
    };
    if per == Per::Connection && table.ordered.is_some() {
        let problem = "allowed: only with per = \"packet\"; with per = \"connection\" the packets of a connection always keep their order";
        return Err(cx.error(&step(path, "ordered"), problem.to_owned()));
    }
    Ok(Delay { fixed, jitter, per })
}

/// Returns the number of links that a link of the file stands for: one for each host or terminal of a group.
pub fn members(link: &Link, hosts: &[Host], gateways: &[Gateway]) -> u32 {
    let ends = [&link.between.0, &link.between.1];
    let hosts = hosts.iter().map(|host| (&host.name, host.count));
    let terminals = gateways.iter().flat_map(|gateway| gateway.terminals.iter());
    let groups = hosts.chain(terminals.map(|group| (&group.name, group.count)));
    groups.filter(|(name, _)| ends.contains(name)).map(|(_, count)| count).max().unwrap_or(1)
}

/// Rejects a link whose name also denotes another queue in results: of a gateway, a reverse direction, or a member
/// link.
pub fn check_unique_names(
    cx: &Cx<'_>,
    links: &[Link],
    hosts: &[Host],
    gateways: &[Gateway],
) -> Result<(), Error> {
    for (i, gateway) in gateways.iter().enumerate() {
        let taken = |other: &&Gateway| other.back.as_ref().is_some_and(|back| back.name == gateway.name);
        if let Some(other) = gateways.iter().find(taken) {
            let problem = format!(
                "found {}; allowed: a unique name; in results the return direction of gateway {} has the same name",
                quoted(&gateway.name),
                quoted(&other.name)
            );
            return Err(cx.error(&step(&path_of(cx, i), "name"), problem));
        }
    }
    for link in links {
        let name = link.name.as_str();
        let way_back = name.strip_suffix(" reverse");
        let base = way_back.unwrap_or(name);
        let taken_by_link = |other: &&Link| {
            let members = members(other, hosts, gateways);
            let member = base.strip_prefix(other.name.as_str()).and_then(|rest| rest.strip_prefix('.'));
            let is_member =
                |n: &str| n.parse::<u32>().is_ok_and(|number| number < members && number.to_string() == n);
            (way_back.is_some() && base == other.name && members == 1)
                || (members > 1 && member.is_some_and(is_member))
        };
        let taken_by_gateway = |g: &&Gateway| {
            let queue = name.strip_prefix(g.name.as_str());
            let back = queue.and_then(|queue| queue.strip_prefix(" return")).filter(|_| g.back.is_some());
            [queue, back].iter().any(|queue| matches!(queue, Some("" | " receive" | " transmit")))
        };
        let by = if let Some(other) = links.iter().find(taken_by_link) {
            format!("link {}", quoted(&other.name))
        } else if let Some(gateway) = gateways.iter().find(taken_by_gateway) {
            format!("gateway {}", quoted(&gateway.name))
        } else {
            continue;
        };
        let problem =
            format!("found {}; allowed: a unique name; in results {by} has the same name", quoted(name));
        return Err(cx.key_error(&named("link", name), problem));
    }
    Ok(())
}
