//! Warnings about combinations that work but rarely make sense.

use bentpipe_queue::Marking;
use bentpipe_units::Duration;

use super::cx::Cx;
use super::gateway;
use super::nodes::named;
use crate::model::{Bulk, Ecn, Gateway, Link, Pages, Traffic, TrafficKind, Transport, TransportIndex};
use crate::reader::tree::{Step, step};
use crate::warning::WarningKind;

/// Warns of ECN on one side only, in queues or in transports that traffic uses: every mark is then a drop.
pub fn one_sided_ecn(
    cx: &mut Cx<'_>,
    (links, gateways): (&[Link], &[Gateway]),
    (traffic, transports): (&[Traffic], &[Transport]),
) {
    let mut marks = Vec::new();
    for link in links {
        let path = named("link", &link.name);
        for (path, direction) in [(path.clone(), &link.forward), (step(&path, "reverse"), &link.reverse)] {
            if direction.queue.as_ref().is_some_and(|q| q.marking == Marking::Ecn) {
                marks.push(step(&step(&path, "queue"), "marking"));
            }
        }
    }
    for (path, gateway) in directions(cx, gateways) {
        if gateway.marking.method.marking == Marking::Ecn {
            marks.push(step(&path, "marking"));
        }
    }
    let supports = |t: &&Transport| match t {
        Transport::Tcp(tcp) => tcp.ecn != Ecn::Off,
        Transport::Quic(quic) => quic.ecn,
        _ => false,
    };
    let used: Vec<_> = traffic.iter().filter_map(|t| t.kind.transport()).collect();
    let numbered = transports.iter().enumerate().filter(|(i, _)| used.contains(&TransportIndex(*i)));
    let in_use = numbered.map(|(_, transport)| transport);
    let supporting: Vec<_> = in_use.filter(supports).map(Transport::name).collect();
    if supporting.is_empty() {
        for path in &marks {
            cx.warn(WarningKind::NoEcn, path, "no transport in use has ecn = true, so every mark is a drop");
        }
    }
    if marks.is_empty() {
        for name in supporting {
            let path = step(&named("transport", name), "ecn");
            cx.warn(
                WarningKind::NoEcnMarks,
                &path,
                "no queue has marking = \"ecn\", so every mark is a drop",
            );
        }
    }
}

/// Warns of marks that cut windows at a gateway that splits no connection: every mark is then a drop.
pub fn unsplit_windows(cx: &mut Cx<'_>, gateways: &[Gateway], traffic: &[Traffic], transports: &[Transport]) {
    let is_tcp = |t: &Traffic| t.kind.transport().is_some_and(|i| transports[i].tcp().is_some());
    for (path, g) in directions(cx, gateways) {
        let is_split = |t: &Traffic| is_tcp(t) && g.serves(&t.route);
        if g.marking.method.marking == Marking::Window && !traffic.iter().any(is_split) {
            let text = "the gateway splits no connection, so every mark is a drop";
            cx.warn(WarningKind::NothingSplit, &step(&path, "marking"), text);
        }
    }
}

/// Both directions of all gateways, with their tables.
fn directions<'a>(cx: &Cx<'_>, gateways: &'a [Gateway]) -> Vec<(Vec<Step>, &'a Gateway)> {
    let mut all = Vec::new();
    for (i, gateway) in gateways.iter().enumerate() {
        let path = gateway::path_of(cx, i);
        let back = gateway.back.as_deref().map(|back| (step(&path, "return"), back));
        all.push((path, gateway));
        all.extend(back);
    }
    all
}

/// Warns of a handover of terminals after the end of the run.
pub fn late_handovers(cx: &mut Cx<'_>, gateways: &[Gateway], end: Duration) {
    for group in gateways.iter().flat_map(|gateway| gateway.terminals.iter()) {
        if let Some(handover) = group.handover.filter(|handover| handover.at >= end) {
            let text =
                format!("\"{}\" is not before the end of the run (\"{end}\"), so nothing moves", handover.at);
            let path = step(&step(&named("terminal", &group.name), "handover"), "at");
            cx.warn(WarningKind::LateHandover, &path, &text);
        }
    }
}

/// Warns of a ramp that ends after the warm-up.
pub fn late_starts(cx: &mut Cx<'_>, traffic: &[Traffic], warmup: Duration) {
    for t in traffic {
        let (number, ramp, what) = match &t.kind {
            TrafficKind::Pages(Pages { sessions, ramp: Some(ramp), .. }) => (*sessions, ramp, "session"),
            TrafficKind::Bulk(Bulk { flows, ramp: Some(ramp), .. }) => (*flows, ramp, "transfer"),
            TrafficKind::Dash(dash) => match &dash.ramp {
                Some(ramp) => (dash.flows, ramp, "viewer"),
                None => continue,
            },
            _ => continue,
        };
        let steps = u64::from(number.div_ceil(ramp.sessions));
        let last = (ramp.over + ramp.pause).times(steps.saturating_sub(1)) + ramp.over;
        if last > warmup {
            let text =
                format!("the last {what} starts after the warm-up (\"{warmup}\"), at up to \"{last}\"");
            cx.warn(WarningKind::LateStart, &step(&named("traffic", &t.name), "ramp"), &text);
        }
    }
}
