//! Hosts that change their addresses: connections over QUIC migrate, those over TCP fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::common::results;
use bentpipe_queue::{Aqm, Context, FlowEvent, FlowId, Packet as Queued, Verdict};
use bentpipe_quic::frames::{Frame, frames};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Observation, Packet, Progress, Results, Sinks, Watch, run_watched, run_with};

/// Users behind a link of 10 Mbit/s and 25 ms, whose addresses change at 10, 20, 30 … s.
fn text(traffic: &str) -> String {
    format!(
        r#"
title = "Users who move"
[run]
duration = "40 s"
[host.server]
[host.user]
count = 2
address_changes = {{ interval = "10 s" }}
[router.far]
[link.satellite]
between = ["server", "far"]
rate = "10 Mbps"
delay = "25 ms"
queue = {{ limit = "50000 B", aqm = {{ algorithm = "droptail" }} }}
[link.access]
between = ["far", "user"]
[transport.quic]
protocol = "quic"
[transport.tcp]
{traffic}"#
    )
}

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn scenario(traffic: &str) -> Scenario {
    parse(&text(traffic))
}

fn bulk(transport: &str, keys: &str) -> String {
    format!(
        "[traffic.load]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\ntransport = \"{transport}\"\nflows = 1\n{keys}\n"
    )
}

fn observed(scenario: &Scenario) -> (Results, Vec<Observation>) {
    let watch = Watch { links: vec!["satellite".to_owned()], ..Watch::default() };
    let mut seen = Vec::new();
    let r = run_watched(scenario, 1, &Progress::default(), &watch, &mut |packet| seen.push(packet.clone()))
        .unwrap();
    (r, seen)
}

/// A download of 40 MB takes about 33 s, with three changes of address. It stays one flow, which the user opens, and all of it arrives.
/// At each change the user sends from the new address at once, and the server asks there and at the old one for an answer
/// (RFC 9000, section 9.3.3).
#[test]
fn a_download_survives_changes_of_address_as_one_flow() {
    let (r, seen) = observed(&scenario(&bulk("quic", "bytes = \"40 MB\"")));
    assert_eq!(r.flows.len(), 1);
    let flow = &r.flows[0];
    assert!(flow.completed && flow.delivered == 40_000_000, "{flow:?}");
    let mut first: BTreeMap<u32, f64> = BTreeMap::new();
    let mut asked = BTreeSet::new();
    let mut answers = BTreeMap::new();
    for packet in &seen {
        let Packet::Quic { ends, payload, .. } = &packet.packet else { panic!("{packet:?}") };
        assert!(!ends.sender_opened, "the user opens");
        let time = packet.time.as_secs_f64();
        if !ends.with_data {
            first.entry(ends.address).or_insert(time);
        }
        for frame in frames(payload) {
            match frame {
                Frame::PathChallenge(_) => drop(asked.insert((time.floor() as u32, ends.address))),
                Frame::PathResponse(_) => *answers.entry(ends.address).or_insert(0) += 1,
                _ => {}
            }
        }
    }
    // Packets from the user are observed where they arrive, at the server.
    let wanted = [(0, 0.0), (1, 10.025), (2, 20.025), (3, 30.025)];
    assert!(
        first.iter().zip(wanted).all(|((of, at), (address, time))| *of == address && at - time < 0.06),
        "{first:?}"
    );
    let wanted = [(10, 0), (10, 1), (20, 1), (20, 2), (30, 2), (30, 3)];
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), wanted);
    assert_eq!(answers.into_keys().collect::<Vec<_>>(), [1, 2, 3]);
}

/// A change costs what was on the way, and a new slow start: three of them less than a tenth of 40 s.
#[test]
fn a_change_of_address_costs_little_of_the_goodput() {
    let text = text(&bulk("quic", ""));
    let goodput = |text: &str| {
        let r = results(&parse(text), 1);
        r.flows[0].goodput(r.begin, r.end)
    };
    let (moves, stays) =
        (goodput(&text), goodput(&text.replace("address_changes = { interval = \"10 s\" }", "")));
    assert!((0.9..0.999).contains(&(moves / stays)), "{moves} of {stays}");
}

/// TCP is bound to its addresses (RFC 9293, section 3.4): a transfer ends with the first change, at 10 s, and a user's page fails,
/// after which the user loads another.
#[test]
fn connections_over_tcp_end_with_the_address() {
    let r = results(&scenario(&bulk("tcp", "")), 1);
    assert_eq!(r.flows.len(), 1);
    let closed = r.flows[0].closed.map(|at| at.as_secs_f64());
    assert!(!r.flows[0].completed && closed == Some(10.0), "{closed:?}");

    let pages = "[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"user\"\ntransport = \"tcp\"\nsessions = 1\n\
                 object_size = \"1 MB\"\n";
    let r = results(&scenario(pages), 1);
    let failed: Vec<_> =
        r.flows.iter().filter(|flow| !flow.completed).filter_map(|flow| flow.closed).collect();
    assert_eq!(failed.iter().map(|at| at.as_secs_f64()).collect::<Vec<_>>(), [10.0, 20.0, 30.0, 40.0]);
    assert!(r.flows.iter().filter(|flow| flow.completed).count() >= 3);
}

/// A page that is opened just before a change, so that its handshake is not confirmed: it fails, as a client must not migrate then
/// (RFC 9000, section 9), and the next one loads.
#[test]
fn a_connection_fails_if_the_address_changes_in_its_handshake() {
    let pages = "[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"user\"\ntransport = \"quic\"\nsessions = 1\n\
                 http = \"3\"\nobject_size = \"10 KB\"\nthink_time = \"1 s\"\n";
    let text = text(pages).replace("interval = \"10 s\"", "interval = \"60 s\", offset = \"60 ms\"");
    let r = results(&parse(&text), 1);
    let failed: Vec<_> = r.flows.iter().map(|flow| flow.closed.is_some() && !flow.completed).collect();
    assert!(failed[0] && !failed[1..].contains(&true) && failed.len() > 20, "{failed:?}");
}

/// Notifications to the link's queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Packet(u32),
    Flow(u32, FlowEvent),
}

struct Spy(Arc<Mutex<Vec<Told>>>);

impl Aqm for Spy {
    fn arrive(&mut self, pkt: &Queued, _: &mut Context<'_>) -> Verdict {
        self.0.lock().unwrap().push(Told::Packet(pkt.flow.0));
        Verdict::Pass
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, _: &mut Context<'_>) {
        self.0.lock().unwrap().push(Told::Flow(flow.0, event));
    }
}

/// A queue that tells flows apart by their addresses sees another flow after each change. Nobody tells it when they begin or end,
/// which QUIC encrypts. Drops are recorded with the number of the flow in results.
#[test]
fn queues_see_another_flow_after_each_change() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut make = || -> Box<dyn Aqm> { Box::new(Spy(told.clone())) };
    let sinks = Sinks { observe: &mut |_| {}, log: &mut |_| {} };
    let scenario = scenario(&bulk("quic", "bytes = \"40 MB\""));
    let (r, _) =
        run_with(&scenario, 1, &Progress::default(), &Watch::default(), sinks, Some(&mut make)).unwrap();
    let told = told.lock().unwrap();
    let numbers = [0, u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];
    let first = |number| told.iter().position(|known| *known == Told::Packet(number)).unwrap();
    assert!(numbers.map(first).is_sorted());
    assert!(told.iter().all(|told| matches!(told, Told::Packet(number) if numbers.contains(number))));
    let (flows, overflow) = (&r.drops.flow, r.drops.flow.len());
    assert!(overflow > 0 && flows.iter().all(|flow| *flow == 0), "{overflow} drops");
}
