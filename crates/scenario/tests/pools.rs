//! Pools of carriers and subscribers: mistakes, and warnings of committed rates.

use bentpipe_scenario::Scenario;

/// A beam whose homes are in a pool, with changes.
fn pools(changes: &[(&str, &str)]) -> (String, Vec<String>) {
    const POOLS: &str = r#"title = "Pools"
[run]
duration = "1 s"
[host.server]
[host.user]
count = 4
[host.crew]
[terminal.home]
count = 2
plan = "basic"
pool = "isp"
[terminal.ship]
[plan.basic.down]
cir = "1 Mbps"
[pool.isp]
parent = "region"
[pool.region.down]
[gateway]
terminals = ["home", "ship"]
queues_per = "terminal"
regulator = { rate = "10 Mbps" }
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
[link.ships]
between = ["gateway", "ship"]
[link.access]
between = ["home", "user"]
[link.deck]
between = ["ship", "crew"]
[traffic.web]
kind = "bulk"
from = "server"
to = "user"
flows = 1
"#;
    let mut text = POOLS.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    match Scenario::parse(&text, "my.toml", &[]) {
        Ok(scenario) => (String::new(), scenario.warnings.iter().map(ToString::to_string).collect()),
        Err(error) => (error.to_string(), Vec::new()),
    }
}

#[test]
fn mistakes_in_pools_are_explained() {
    assert_eq!(pools(&[]), (String::new(), Vec::new()));
    let subscriber = ("queues_per = \"terminal\"", "queues_per = \"subscriber\"");
    let planned = ("[host.crew]", "[host.crew]\nplan = \"basic\"");
    assert_eq!(pools(&[subscriber, planned]), (String::new(), Vec::new()));
    for (changes, expected) in [
        (
            &[("\"isp\"", "\"ips\"")][..],
            "my.toml:11:8: terminal.home.pool: found \"ips\"; did you mean \"isp\"? allowed: isp, region",
        ),
        (
            &[("\"region\"", "\"regio\"")],
            "my.toml:16:10: pool.isp.parent: found \"regio\"; did you mean \"region\"? allowed: isp, region",
        ),
        (
            &[("[pool.region.down]", "[pool.region]\nparent = \"isp\"")],
            "my.toml:18:10: pool.region.parent: found \"isp\", which makes a circle: \"isp\" in \"region\" in \"isp\"; allowed: a \
             pool that is not in this one",
        ),
        (
            &[("pool = \"isp\"", "")],
            "my.toml:15:7: pool.isp: no terminal is in it; allowed: pools that a terminal names in pool, or that a pool with \
             terminals names in parent",
        ),
        (
            &[("[pool.region.down]", "[pool.region.down]\ncir = \"3 Mbps\"\npir = \"2 Mbps\"")],
            "my.toml:19:7: pool.region.down.pir: found \"2 Mbps\"; allowed: at least cir (\"3 Mbps\")",
        ),
        (
            &[("queues_per = \"terminal\"", ""), ("plan = \"basic\"", "")],
            "my.toml:11:8: terminal.home.pool: found \"isp\"; allowed: only at a gateway with queues_per = \"terminal\" or \
             \"subscriber\", because terminals that share a queue share the carrier as its packets come",
        ),
        (
            &[planned],
            "my.toml:8:8: host.crew.plan: found \"basic\"; allowed: only behind the terminals of a gateway with queues_per = \
             \"subscriber\", because other hosts share a queue with those behind their terminal",
        ),
        (
            &[subscriber, ("[host.crew]", "[host.crew]\nplan = \"basik\"")],
            "my.toml:8:8: host.crew.plan: found \"basik\"; did you mean \"basic\"? allowed: basic",
        ),
        (
            &[subscriber, ("[host.server]", "[host.server]\nplan = \"basic\"")],
            "my.toml:5:8: host.server.plan: found \"basic\"; allowed: only behind the terminals of a gateway with queues_per = \
             \"subscriber\", because other hosts share a queue with those behind their terminal",
        ),
    ] {
        assert_eq!(pools(changes).0, expected);
    }
}

/// Two homes of 1 Mbit/s each.
#[test]
fn committed_rates_above_those_of_their_pool_are_warned_of() {
    let warnings = |share: &str| pools(&[("[pool.region.down]", &format!("[pool.region.down]\n{share}"))]).1;
    assert_eq!(
        warnings("pir = \"1500 kbps\""),
        [
            "pool.region.down.pir: found \"1500 kbps\"; what is in the pool has committed rates of 2 Mbps in total: they cannot \
             all be kept"
        ]
    );
    assert_eq!(
        warnings("cir = \"1500 kbps\""),
        [
            "pool.region.down.cir: found \"1500 kbps\"; what is in the pool has committed rates of 2 Mbps in total: they are kept \
             at the expense of the rest of the carrier"
        ]
    );
    assert!(warnings("cir = \"2 Mbps\"").is_empty());
    // More than the carrier of 10 Mbit/s.
    assert_eq!(
        warnings("cir = \"12 Mbps\""),
        [
            "gateway: the committed rates (cra, cir) of the plans take 120 % of the carrier; they cannot all be kept"
        ]
    );
    // Users of 1 Mbit/s each, two behind each home of 1 Mbit/s.
    let subscribers = [
        ("queues_per = \"terminal\"", "queues_per = \"subscriber\""),
        ("[host.user]", "[host.user]\nplan = \"basic\""),
    ];
    assert_eq!(
        pools(&subscribers).1,
        [
            "plan.basic.down.cir: found \"1 Mbps\"; what is behind a terminal has committed rates of 2 Mbps in total: \
             they are kept at the expense of the rest of the carrier"
        ]
    );
}

/// The pools of the return direction are those of the gateway with their `up`.
#[test]
fn mistakes_in_pools_of_the_return_direction_are_explained() {
    let carrier = (
        "[link.ingress]",
        "[gateway.return]\nregulator = { rate = \"4 Mbps\" }\n[gateway.return.carrier]\n[link.ingress]",
    );
    let region = |up: &str| format!("[pool.region]\nup = {up}");
    for (up, has_carrier, expected) in [
        ("{ cir = \"1 Mbps\", pir = \"2 Mbps\", weight = 3 }", true, ""),
        (
            "{ cir = \"1 Mbps\" }",
            false,
            "my.toml:18:1: pool.region.up: allowed: only with [gateway.return.carrier], because terminals with separate return \
             links do not share them",
        ),
        (
            "{ cra = \"1 Mbps\" }",
            true,
            "my.toml:18:14: pool.region.up.cra: found \"1 Mbps\" for a pool; allowed: in the plans of its terminals (plan.NAME.up), \
             because constant rates are assigned to terminals",
        ),
        (
            "{ cir = \"3 Mbps\", pir = \"2 Mbps\" }",
            true,
            "my.toml:18:30: pool.region.up.pir: found \"2 Mbps\"; allowed: at least cir (\"3 Mbps\")",
        ),
        (
            "{ pir = \"1 Mbps\" }",
            true,
            "my.toml:18:14: pool.region.up.pir: found \"1 Mbps\"; allowed: at least \"1500 kbps\", what is committed (cra, cir) to the \
             terminals and pools in it",
        ),
    ] {
        let region = region(up);
        let plan = "[plan.basic.up]\ncra = \"250 kbps\"\ncir = \"500 kbps\"\n[gateway]";
        let mut changes = vec![("[pool.region.down]", region.as_str())];
        if has_carrier {
            changes.extend([carrier, ("[gateway]", plan)]);
        }
        assert_eq!(pools(&changes).0, expected, "{up}");
    }
}

/// Two million subscribers of the highest rate: 2e21 bit/s, above 64 bits.
#[test]
fn committed_rates_of_any_size_give_a_warning() {
    let changes = [
        ("queues_per = \"terminal\"", "queues_per = \"subscriber\""),
        ("[terminal.ship]", "[terminal.ship]\nplan = \"basic\""),
        (
            "[host.crew]",
            "[host.crew]\ncount = 1000000\nplan = \"most\"\n[host.cabin]\ncount = 1000000\nplan = \"most\"",
        ),
        (
            "[link.deck]",
            "[plan.most.down]\ncir = \"1000000 Gbps\"\n[link.cabins]\nbetween = [\"ship\", \"cabin\"]\n[link.deck]",
        ),
    ];
    let (error, warnings) = pools(&changes);
    assert_eq!(error, "");
    assert!(
        warnings.iter().any(|text| text.starts_with("plan.basic.down.cir: found \"1 Mbps\"")),
        "{warnings:?}"
    );
}
