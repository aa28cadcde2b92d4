//! Pools of a carrier, and subscribers behind terminals.

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

use crate::common;

/// A carrier of 20 Mbit/s with three levels of nodes:
///
/// ```text
/// carrier 20 ─┬─ pool isp (cir 6) ─┬─ home.0 ─┬─ guest.0 (pir 1)
///             │                    │          └─ resident.0
///             │                    └─ home.1 …
///             └─ pool navy (weight 3, pir 9) ─┬─ pool fleet (weight 2) ─┬─ ship.0 ── crew.0, crew.2
///                                             │                         └─ ship.1 ── crew.1, crew.3
///                                             └─ port ── clerk
/// ```
fn carrier(queues_per: &str, traffic: &str, extra: &[&str]) -> Results {
    let guests = if queues_per == "subscriber" { "plan = \"guest\"" } else { "" };
    let flows = |name: &str, flows: u32| {
        format!("[traffic.{name}]\n{traffic}\nfrom = \"server\"\nto = \"{name}\"\nflows = {flows}\n")
    };
    let traffic =
        [("guest", 2), ("resident", 2), ("crew", 4), ("clerk", 1)].map(|(name, n)| flows(name, n)).concat();
    let text = format!(
        r#"
        title = "Pools"
        [run]
        warmup = "5 s"
        duration = "20 s"
        [host.server]
        [host.guest]
        count = 2
        {guests}
        [host.resident]
        count = 2
        [host.crew]
        count = 4
        [host.clerk]
        [terminal.home]
        count = 2
        pool = "isp"
        [terminal.ship]
        count = 2
        pool = "fleet"
        [terminal.port]
        pool = "navy"
        [pool.isp.down]
        cir = "6 Mbps"
        [pool.fleet]
        parent = "navy"
        down = {{ weight = 2 }}
        [pool.navy.down]
        pir = "9 Mbps"
        weight = 3
        [plan.guest.down]
        pir = "1 Mbps"
        [gateway]
        terminals = ["home", "ship", "port"]
        queues_per = "{queues_per}"
        transmit_queue = {{ limit = "100 packets" }}
        regulator = {{ rate = "20 Mbps" }}
        spacelink = {{ window = "16 MB" }}
        [link.ingress]
        between = ["server", "gateway"]
        delay = "10 ms"
        [link.homes]
        between = ["gateway", "home"]
        delay = "20 ms"
        [link.ships]
        between = ["gateway", "ship"]
        delay = "20 ms"
        [link.ports]
        between = ["gateway", "port"]
        delay = "20 ms"
        [link.guests]
        between = ["home", "guest"]
        [link.residents]
        between = ["home", "resident"]
        [link.crew]
        between = ["ship", "crew"]
        [link.clerk]
        between = ["port", "clerk"]
        {traffic}
        "#
    );
    let overrides: Vec<_> = extra.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse(&text, "pools.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    common::results(&scenario, 1)
}

const DATAGRAMS: &str = "kind = \"cbr\"\nrate = \"12 Mbps\"\npacket = \"1500 B\"";

/// Goodput of each flow [Mbit/s]: guests, residents, crew, clerk.
fn goodput(results: &Results) -> Vec<f64> {
    results.flows.iter().map(|flow| flow.measured as f64 * 8e-6 / 20.0).collect()
}

fn assert_near(found: &[f64], expected: &[f64], part: f64, tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (one, other) in found.iter().zip(expected) {
        assert!((one / (other * part) - 1.0).abs() < tolerance, "{found:?} {expected:?} * {part}");
    }
}

/// isp has 6 committed; 20 - 6 = 14 by 1 : 3 would be 3.5 and 10.5, but navy has 9 at most, so isp gets 11, and each home 5.5.
/// navy's 9 by 2 : 1 are 6 for the fleet, 3 for each ship, and 3 for the port. Half a home's 5.5 is more than a guest may
/// have: 1, and 4.5 for the resident; the crew of a ship gets 1.5 each.
const SHARES: [f64; 9] = [1.0, 1.0, 4.5, 4.5, 1.5, 1.5, 1.5, 1.5, 3.0];

#[test]
fn pools_terminals_and_subscribers_get_their_shares() {
    let results = carrier("subscriber", DATAGRAMS, &[]);
    assert_near(&goodput(&results), &SHARES, 1472.0 / 1500.0, 0.005);
    let pools: Vec<_> = results.terminals.iter().map(|t| t.pool.as_deref().unwrap()).collect();
    assert_eq!(pools, ["isp", "isp", "navy/fleet", "navy/fleet", "navy"]);
    let time = |pool: &str| -> f64 {
        let mine = results.terminals.iter().filter(|t| t.pool.as_deref().unwrap().starts_with(pool));
        mine.map(|t| t.carrier_time.as_secs_f64()).sum::<f64>() / 20.0
    };
    assert!((time("isp") - 0.55).abs() < 0.002 && (time("navy") - 0.45).abs() < 0.002);
}

/// With a queue per terminal each home's 5.5 go to its guest and its resident as their equal loads come.
#[test]
fn pools_share_among_terminals_with_a_queue_each() {
    let results = carrier("terminal", DATAGRAMS, &[]);
    let found = goodput(&results);
    let terminals =
        [found[0] + found[2], found[1] + found[3], found[4] + found[6], found[5] + found[7], found[8]];
    assert_near(&terminals, &[5.5, 5.5, 3.0, 3.0, 3.0], 1472.0 / 1500.0, 0.005);
}

/// A load of 2 Mbit/s to each: the port's is less than its 3, so the crew shares 7 of navy's 9. isp's four have what they
/// load, or their peak rate.
#[test]
fn a_terminal_below_its_share_leaves_the_rest_to_its_pool() {
    let results = carrier("subscriber", &DATAGRAMS.replace("12", "2"), &[]);
    let expected = [1.0, 1.0, 2.0, 2.0, 1.75, 1.75, 1.75, 1.75, 2.0];
    assert_near(&goodput(&results), &expected, 1472.0 / 1500.0, 0.005);
}

/// Split connections; of 1491 bytes of a packet on the PEP link 1460 are data.
#[test]
fn split_connections_fill_the_shares_of_their_subscribers() {
    let extra = ["gateway.pep.buffer=1 MB", "gateway.transmit_queue.limit=1 GB"];
    let results = carrier("subscriber", "kind = \"bulk\"", &extra);
    assert_near(&goodput(&results), &SHARES, 1460.0 / 1491.0, 0.01);
}

/// Each subscriber has half of the ship's carrier, the captain with one connection as the sailor with fifteen.
#[test]
fn a_subscriber_gets_no_more_by_opening_connections() {
    let text = r#"
        title = "A ship"
        [run]
        warmup = "5 s"
        duration = "20 s"
        [host.server]
        [host.captain]
        [host.sailor]
        [terminal.ship]
        [gateway]
        terminals = ["ship"]
        queues_per = "subscriber"
        regulator = { rate = "8 Mbps" }
        transmit_queue = { limit = "1 GB" }
        pep = { buffer = "256 KB" }
        spacelink = { window = "16 MB" }
        [link.ingress]
        between = ["server", "gateway"]
        delay = "10 ms"
        [link.satellite]
        between = ["gateway", "ship"]
        delay = "20 ms"
        reverse = { rate = "8 Mbps" }
        [link.bridge]
        between = ["ship", "captain"]
        [link.deck]
        between = ["ship", "sailor"]
        [traffic.captain]
        kind = "bulk"
        from = "server"
        to = "captain"
        flows = 1
        [traffic.sailor]
        kind = "bulk"
        from = "server"
        to = "sailor"
        flows = 15
        [traffic.up]
        kind = "bulk"
        from = "sailor"
        to = "server"
        bytes = "200 KB"
        flows = 2
    "#;
    let scenario = Scenario::parse(text, "ship.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    let results = common::results(&scenario, 1);
    let mut rates = [0.0; 2];
    for flow in results.flows.iter().filter(|flow| flow.traffic < 2) {
        rates[flow.traffic as usize] += flow.measured as f64 * 8e-6 / 20.0;
    }
    // The queue of the ship itself has the spacelink's acknowledgements of requests, which are a few packets.
    assert_near(&rates, &[4.0, 4.0], 1460.0 / 1491.0, 0.01);
    // Uploads and their acknowledgements pass the queues of both ends.
    for flow in results.flows.iter().filter(|flow| flow.traffic == 2) {
        assert!(flow.completed && flow.delivered == 200_000, "{}", flow.delivered);
    }
}

/// The same pools on a return carrier of 20 Mbit/s, with uploads of 12 Mbit/s from each host; subscribers share their terminal.
#[test]
fn pools_divide_the_return_carrier_as_the_forward_one() {
    let text = r#"
        title = "Pools of the return direction"
        [run]
        warmup = "5 s"
        duration = "20 s"
        [host.server]
        [host.resident]
        count = 2
        [host.crew]
        count = 2
        [host.clerk]
        [terminal.home]
        count = 2
        pool = "isp"
        [terminal.ship]
        count = 2
        pool = "fleet"
        [terminal.port]
        pool = "navy"
        [pool.isp.up]
        cir = "6 Mbps"
        [pool.fleet]
        parent = "navy"
        up = { weight = 2 }
        [pool.navy.up]
        pir = "9 Mbps"
        weight = 3
        [gateway]
        terminals = ["home", "ship", "port"]
        queues_per = "terminal"
        regulator = { rate = "20 Mbps" }
        [gateway.return]
        transmit_queue = { limit = "100 packets" }
        regulator = { rate = "20 Mbps" }
        [gateway.return.carrier]
        superframe = "25 ms"
        [link.ingress]
        between = ["server", "gateway"]
        delay = "10 ms"
        [link.homes]
        between = ["gateway", "home"]
        delay = "20 ms"
        [link.ships]
        between = ["gateway", "ship"]
        delay = "20 ms"
        [link.ports]
        between = ["gateway", "port"]
        delay = "20 ms"
        [link.residents]
        between = ["home", "resident"]
        [link.crew]
        between = ["ship", "crew"]
        [link.clerk]
        between = ["port", "clerk"]
    "#;
    let flows = |(name, flows): (&str, u32)| {
        format!("[traffic.{name}]\n{DATAGRAMS}\nfrom = \"{name}\"\nto = \"server\"\nflows = {flows}\n")
    };
    let text = text.to_owned() + &[("resident", 2), ("crew", 2), ("clerk", 1)].map(flows).concat();
    let scenario = Scenario::parse(&text, "pools.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
    let results = common::results(&scenario, 1);
    assert_near(&goodput(&results), &[5.5, 5.5, 3.0, 3.0, 3.0], 1472.0 / 1500.0, 0.01);
}
