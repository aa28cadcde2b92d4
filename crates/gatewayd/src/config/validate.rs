//! Checks of keys against each other.

use std::net::SocketAddr;
use std::path::Path;

use bentpipe_queue::Marking;
use bentpipe_scenario::{Document, Error, Gateway};

use super::file::File;
use super::{MOST_SAMPLES, Role};

/// Checks that each end has its own outside, and only that.
pub(super) fn sides(document: &Document, file: &File) -> Result<(), Error> {
    let (this, other) = match file.role {
        Role::Gateway => ("internet", "users"),
        Role::Terminal => ("users", "internet"),
    };
    let role = file.role.name();
    if document.has(other) {
        let problem = format!("found a table; allowed: [{this}] if role = \"{role}\"");
        return Err(document.error(other, problem));
    }
    if !document.has(this) {
        let what = if this == "internet" { "servers" } else { "users" };
        let problem =
            format!("missing; required: the network device towards the {what}, if role = \"{role}\"");
        return Err(document.error(this, problem));
    }
    let clients = file.internet.as_ref().map(|i| &i.clients).or(file.users.as_ref().map(|u| &u.clients));
    if clients.is_some_and(Vec::is_empty) {
        let problem = "found []; allowed: at least one prefix, such as [\"10.3.0.0/24\"]".to_owned();
        return Err(document.error(&format!("{this}.clients"), problem));
    }
    Ok(())
}

pub(super) fn addresses(document: &Document, file: &File) -> Result<(), Error> {
    let local = file.satellite.local.0;
    match (&file.satellite.peer, &file.terminals) {
        (Some(_), Some(_)) => {
            let problem = "found a table; allowed: [terminals] or satellite.peer, not both";
            return Err(document.error("terminals", problem.to_owned()));
        }
        (None, None) => {
            let problem = "missing; required: the UDP address of the other end, such as \"10.2.0.2:4400\", or [terminals] at a \
                           gateway with many";
            return Err(document.error("satellite.peer", problem.to_owned()));
        }
        (None, Some(_)) if file.role == Role::Terminal => {
            let problem = "found a table; allowed: only if role = \"gateway\"";
            return Err(document.error("terminals", problem.to_owned()));
        }
        (None, Some(_)) => {}
        (Some(peer), None) => check_peer(document, local, peer.0)?,
    }
    // RFC 9000, section 14: QUIC needs a path that carries datagrams of 1200 bytes.
    let least = 1200 + 8 + if local.is_ipv4() { 20 } else { 40 };
    let mtu = file.satellite.mtu;
    if mtu.0 < least {
        let problem =
            format!("found \"{mtu:?}\"; allowed: at least {least} B, since QUIC needs 1200 B of payload");
        return Err(document.error("satellite.mtu", problem));
    }
    Ok(())
}

fn check_peer(document: &Document, local: SocketAddr, peer: SocketAddr) -> Result<(), Error> {
    if local.is_ipv4() != peer.is_ipv4() {
        let version = if local.is_ipv4() { "IPv4" } else { "IPv6" };
        let problem =
            format!("found \"{peer}\"; allowed: an {version} address, since satellite.local is \"{local}\"");
        return Err(document.error("satellite.peer", problem));
    }
    if peer.ip().is_unspecified() || peer.port() == 0 {
        let problem = format!("found \"{peer}\"; allowed: the address and the port of the other end");
        return Err(document.error("satellite.peer", problem));
    }
    if local == peer {
        let problem =
            format!("found \"{peer}\", this end's own address; allowed: the address of the other end");
        return Err(document.error("satellite.peer", problem));
    }
    Ok(())
}

pub(super) fn times(document: &Document, file: &File) -> Result<(), Error> {
    if let Some(record) = file.record.as_ref().filter(|record| record.interval.0 < 1_000_000) {
        let problem = format!("found \"{:?}\"; allowed: at least 1 ms", record.interval);
        return Err(document.error("record.interval", problem));
    }
    if let Some(metrics) = &file.metrics {
        let (interval, keep) = (metrics.interval, metrics.keep);
        if interval.0 < 100_000_000 {
            let problem = format!("found \"{interval:?}\"; allowed: at least 100 ms");
            return Err(document.error("metrics.interval", problem));
        }
        if keep.0 < interval.0 || keep.0 / interval.0 > MOST_SAMPLES {
            let problem = format!(
                "found \"{keep:?}\"; allowed: at least metrics.interval (\"{interval:?}\"), and at most {MOST_SAMPLES} \
                 times that"
            );
            return Err(document.error("metrics.keep", problem));
        }
    }
    Ok(())
}

/// Checks that the queues of the return direction can run at a real terminal. A gateway reads them and has none of them.
pub(super) fn check_return(document: &Document, file: &File, gateway: &Gateway) -> Result<(), Error> {
    let Some(back) = &gateway.back else { return Ok(()) };
    let refuse = |key: &str, problem: String| {
        let key = if file.scenario.is_some() { "scenario.file" } else { key };
        Err(document.error(key, problem))
    };
    if back.carrier.is_some() {
        let problem = "found a return carrier that terminals share (gateway.return.carrier); allowed: only in simulations";
        return refuse("gateway.return.carrier", problem.to_owned());
    }
    if file.role == Role::Gateway {
        return Ok(());
    }
    let marking = back.marking.method.marking;
    if marking == Marking::Window || back.marks_behind_pep() {
        let place = if marking == Marking::Window { "" } else { " behind the PEP" };
        let problem = format!(
            "found \"{}\"{place} (gateway.return.marking); allowed at a terminal: \"drop\", or \"ecn\" ahead of the PEP",
            back.marking.method.name
        );
        return refuse("gateway.return.marking", problem);
    }
    if back.regulator.follows_link && file.satellite.rate.is_none() {
        let problem = "rate: missing; required: the rate of the return link, since gateway.return has an AQM or a scheduler";
        return Err(document.error("satellite", problem.to_owned()));
    }
    Ok(())
}

/// Checks that the modem's rate is used, and that its path fits a socket.
pub(super) fn check_modem(
    document: &Document,
    file: &File,
    gateway: &Gateway,
    path: &Path,
) -> Result<(), Error> {
    let found = file.satellite.modem.as_deref().unwrap_or_default();
    if file.role == Role::Terminal || !gateway.regulator.follows_link {
        let problem = format!(
            "found {found:?}; allowed: only if role = \"gateway\" and gateway.regulator.rate = \"link\""
        );
        return Err(document.error("satellite.modem", problem));
    }
    // unix(7): sun_path has 108 bytes including the final zero.
    if found.is_empty() || path.as_os_str().len() > 107 {
        let problem =
            format!("found {found:?}; allowed: a socket path of at most 107 bytes including its folder");
        return Err(document.error("satellite.modem", problem));
    }
    Ok(())
}

/// Checks that an estimated rate is used, has bounds, and no other source.
pub(super) fn check_estimate(document: &Document, file: &File, gateway: &Gateway) -> Result<(), Error> {
    let Some(estimate) = file.satellite.estimate else { return Ok(()) };
    let refuse = |key: &str, problem: String| Err(document.error(key, problem));
    if file.role == Role::Gateway && (!gateway.regulator.follows_link || file.terminals.is_some()) {
        let problem = "found a table; allowed: at a terminal, or at a gateway with gateway.regulator.rate = \"link\" and one terminal";
        return refuse("satellite.estimate", problem.to_owned());
    }
    if let Some(modem) = &file.satellite.modem {
        return refuse(
            "satellite.modem",
            format!("found {modem:?}; allowed: only without satellite.estimate"),
        );
    }
    let Some(most) = file.satellite.rate.map(|rate| rate.rate()) else {
        return refuse(
            "satellite",
            "rate: missing; required: the greatest rate, since satellite.estimate is there".to_owned(),
        );
    };
    let least = estimate.least.rate();
    if least.as_bps() == 0 || least > most {
        let problem =
            format!("found \"{least}\"; allowed: more than zero, at most satellite.rate (\"{most}\")");
        return refuse("satellite.estimate.least", problem);
    }
    Ok(())
}

/// Warns of rates without effect or without a source.
pub(super) fn rates(file: &File, gateway: &Gateway, warnings: &mut Vec<String>) {
    if file.role == Role::Terminal {
        return;
    }
    if !gateway.regulator.follows_link && file.satellite.rate.is_some() {
        warnings.push(format!(
            "satellite.rate: has no effect, since the gateway's regulator has its own rate (gateway.regulator.rate, {})",
            gateway.regulator.rate
        ));
    }
    if gateway.regulator.follows_link && file.satellite.modem.is_none() && file.satellite.estimate.is_none() {
        warnings.push(format!(
            "gateway.regulator.rate: follows the link, but satellite.modem is missing: the rate stays {} until the configuration is \
             reloaded",
            gateway.regulator.rate
        ));
    }
}

/// Warns of sizes that do not fit each other.
pub(super) fn sizes(file: &File, gateway: &Gateway, warnings: &mut Vec<String>) {
    let (packet, mtu) = (gateway.spacelink.packet, file.satellite.mtu.0);
    if packet > mtu {
        warnings.push(format!(
            "gateway.spacelink.packet: {packet} B exceeds satellite.mtu ({mtu} B); packets are limited to that"
        ));
    }
    if file.role == Role::Terminal && file.satellite.rate.is_none() {
        warnings.push(
            "satellite.rate: missing, so the terminal sends without limit; a queue builds up in front of a slower link"
                .to_owned(),
        );
    }
    let buffer = file.limits.memory.0;
    if buffer < gateway.pep.buffer {
        warnings.push(format!(
            "limits.memory: {buffer} B is less than one buffer of the PEP (gateway.pep.buffer, {} B)",
            gateway.pep.buffer
        ));
    }
    if file.metrics.as_ref().is_some_and(|m| !m.listen.0.ip().is_loopback()) {
        warnings.push(
            "metrics.listen: not a loopback address; any host that reaches it sees the state of the gateway"
                .to_owned(),
        );
    }
}
