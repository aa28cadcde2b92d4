//! Pools of carriers.

use bentpipe_units::Rate;

use super::cx::Cx;
use super::gateway::path_of;
use super::nodes::named;
use super::terminal::{Tables, check_peak, plan_of, warn_of_committed};
use crate::error::{Error, quoted};
use crate::model::{Gateway, Plan, Pool, QueuesPer, Terminals};
use crate::reader::tree::{Path, step};
use crate::schema::forms::Named;
use crate::schema::gateway as file;
use crate::schema::terminal as raw;

/// Resolves the pools of a gateway, each behind the one that it is in, and tells its terminals theirs.
pub fn pools(
    cx: &mut Cx<'_>,
    gateway: &file::Gateway,
    terminals: &mut Terminals,
    tables: Tables<'_>,
) -> Result<Vec<Pool>, Error> {
    let mut pools = Vec::new();
    for group in &mut terminals.0 {
        let Some((_, terminal)) = tables.terminals.iter().find(|(known, _)| *known == group.name) else {
            continue;
        };
        let Some(name) = &terminal.pool else { continue };
        let at = step(&named("terminal", &group.name), "pool");
        if gateway.queues_per == QueuesPer::Carrier {
            let problem = format!(
                "found {}; allowed: only at a gateway with queues_per = \"terminal\" or \"subscriber\", because terminals that \
                 share a queue share the carrier as its packets come",
                quoted(name)
            );
            return Err(cx.error(&at, problem));
        }
        let number = add(cx, &at, name, tables, &mut pools, &mut Vec::new())?;
        group.pool = Some(number);
        let above = std::iter::successors(Some(number), |pool| pools[*pool].parent);
        group.pool_pir = above.filter_map(|pool| pools[pool].share.pir).min();
    }
    check_return(cx, gateway, terminals, &pools)?;
    for (number, pool) in pools.iter().enumerate() {
        let inside = committed_in(terminals, &pools, number);
        warn_of_committed(cx, &named("pool", &pool.name), &pool.share, inside, "what is in the pool");
    }
    Ok(pools)
}

/// Adds a pool after those that it is in; `at` is the path of the key that names it. Returns its number.
fn add<'a>(
    cx: &Cx<'_>,
    at: &Path,
    name: &'a str,
    tables: Tables<'a>,
    pools: &mut Vec<Pool>,
    below: &mut Vec<&'a str>,
) -> Result<usize, Error> {
    let Some((_, raw)) = tables.pools.iter().find(|(known, _)| *known == name) else {
        return Err(cx.unknown(at, name, tables.pools.names()));
    };
    if below.contains(&name) {
        let round: Vec<_> = below.iter().chain([&name]).map(|name| quoted(name)).collect();
        let problem = format!(
            "found {}, which makes a circle: {}; allowed: a pool that is not in this one",
            quoted(name),
            round.join(" in ")
        );
        return Err(cx.error(at, problem));
    }
    if let Some(number) = pools.iter().position(|pool| pool.name == name) {
        return Ok(number);
    }
    below.push(name);
    let parent = match &raw.parent {
        Some(parent) => Some(add(cx, &step(&named("pool", name), "parent"), parent, tables, pools, below)?),
        None => None,
    };
    let up = raw.up.as_ref().map(|up| return_share(cx, name, up)).transpose()?;
    pools.push(Pool { name: name.to_owned(), parent, share: share(cx, name, &raw.down)?, up });
    Ok(pools.len() - 1)
}

/// Resolves the share of a pool in the return carrier.
fn return_share(cx: &Cx<'_>, name: &str, raw: &raw::ReturnShare) -> Result<Plan, Error> {
    let own = step(&named("pool", name), "up");
    if let Some(cra) = raw.cra {
        let problem = format!(
            "found \"{cra:?}\" for a pool; allowed: in the plans of its terminals (plan.NAME.up), because constant rates are \
             assigned to terminals"
        );
        return Err(cx.error(&step(&own, "cra"), problem));
    }
    let (cir, pir) = (raw.cir.map(|rate| rate.rate()).unwrap_or_default(), raw.pir.map(|rate| rate.rate()));
    check_peak(cx, &own, "cir", cir, pir)?;
    Ok(Plan { cra: Rate::default(), cir, pir, weight: raw.weight.0, burst: 0 })
}

/// Rejects shares of pools in the return direction without a return carrier, and peak rates below what is committed in a pool.
fn check_return(
    cx: &Cx<'_>,
    gateway: &file::Gateway,
    terminals: &Terminals,
    pools: &[Pool],
) -> Result<(), Error> {
    let has_carrier = gateway.back.as_ref().is_some_and(|back| back.carrier.is_some());
    let mut inside = vec![0_u64; pools.len()];
    for group in terminals.iter() {
        if let (Some(pool), Some(up)) = (group.pool, group.up) {
            let each = up.cra.as_bps().saturating_add(up.cir.as_bps());
            inside[pool] = inside[pool].saturating_add(each.saturating_mul(group.count.into()));
        }
    }
    for (number, pool) in pools.iter().enumerate().rev() {
        let up = pool.up.unwrap_or(Plan::NONE);
        let own = step(&named("pool", &pool.name), "up");
        if pool.up.is_some() && !has_carrier {
            let problem = "allowed: only with [gateway.return.carrier], because terminals with separate return links do not share \
                           them";
            return Err(cx.key_error(&own, problem.to_owned()));
        }
        let least = Rate::from_bps(inside[number]);
        if let Some(pir) = up.pir.filter(|pir| *pir < least) {
            let problem = format!(
                "found \"{pir}\"; allowed: at least \"{least}\", what is committed (cra, cir) to the terminals and pools in it"
            );
            return Err(cx.error(&step(&own, "pir"), problem));
        }
        if let Some(parent) = pool.parent {
            inside[parent] = inside[parent].saturating_add(inside[number].max(up.cir.as_bps()));
        }
    }
    Ok(())
}

/// Resolves the share of a pool.
fn share(cx: &Cx<'_>, name: &str, raw: &raw::Share) -> Result<Plan, Error> {
    let share = plan_of(raw);
    check_peak(cx, &step(&named("pool", name), "down"), "cir", share.cir, share.pir)?;
    Ok(share)
}

/// Returns the committed rates of what is directly in a pool, or on the carrier: terminals, and pools with their own rate
/// or that of what is in them.
fn committed_in(terminals: &Terminals, pools: &[Pool], pool: usize) -> Rate {
    let of_terminals = terminals
        .iter()
        .filter(|group| group.pool == Some(pool))
        .map(|group| group.committed().as_bps().saturating_mul(group.count.into()));
    let inner = pools.iter().enumerate().filter(|(_, inner)| inner.parent == Some(pool));
    let of_pools =
        inner.map(|(number, inner)| inner.share.cir.max(committed_in(terminals, pools, number)).as_bps());
    Rate::from_bps(of_terminals.chain(of_pools).fold(0, u64::saturating_add))
}

/// Rejects pools that no terminal is in, and pools on two carriers.
pub fn check(cx: &Cx<'_>, pools: &Named<raw::Pool>, gateways: &[Gateway]) -> Result<(), Error> {
    for name in pools.names() {
        let own = named("pool", name);
        let mut with =
            gateways.iter().enumerate().filter(|(_, g)| g.pools.iter().any(|pool| pool.name == name));
        let Some((_, first)) = with.next() else {
            let problem = "no terminal is in it; allowed: pools that a terminal names in pool, or that a pool with terminals names in parent";
            return Err(cx.key_error(&own, problem.to_owned()));
        };
        if let Some((i, second)) = with.next() {
            let problem = format!(
                "has terminals of {} and of {} ({}); allowed: terminals of one gateway, whose carrier it is a part of",
                quoted(&first.name),
                quoted(&second.name),
                cx.dotted(&path_of(cx, i))
            );
            return Err(cx.key_error(&own, problem));
        }
    }
    Ok(())
}
