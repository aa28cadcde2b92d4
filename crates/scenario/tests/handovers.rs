//! Handovers of terminals to other gateways: routes, and mistakes.

use bentpipe_scenario::{OnHandover, Scenario};

const MOVING: &str = r#"title = "Handover"
[run]
duration = "1 s"
subject = "west"
[host.server]
[host.user]
count = 4
[terminal.van]
count = 2
handover = { to = "van east", at = "10 s" }
[terminal."van east"]
count = 2
[terminal.home]
[[gateway]]
name = "west"
terminals = ["van"]
regulator = { rate = "8 Mbps" }
[[gateway]]
name = "east"
terminals = ["van east"]
regulator = { rate = "8 Mbps" }
[[gateway]]
name = "north"
terminals = ["home"]
regulator = { rate = "8 Mbps" }
[host.neighbour]
[link.to-east]
between = ["server", "east"]
[link.to-west]
between = ["server", "west"]
[link.to-north]
between = ["server", "north"]
[link.sky-east]
between = ["east", "van east"]
reverse = { rate = "2 Mbps" }
[link.sky-west]
between = ["west", "van"]
reverse = { rate = "2 Mbps" }
[link.sky-north]
between = ["north", "home"]
reverse = { rate = "2 Mbps" }
[link.lan-east]
between = ["van east", "user"]
[link.lan]
between = ["van", "user"]
[link.home]
between = ["home", "neighbour"]
[traffic.web]
kind = "bulk"
from = "server"
to = "user"
flows = 1
"#;

fn parse(changes: &[(&str, &str)]) -> Result<Scenario, String> {
    let text = changes.iter().fold(MOVING.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    Scenario::parse(&text, "my.toml", &[]).map_err(|error| error.to_string())
}

#[test]
fn handover_after_the_end_of_the_run_is_a_warning() {
    let warnings = |duration: &str| -> Vec<String> {
        let changed = format!("duration = \"{duration}\"");
        let scenario = parse(&[("duration = \"1 s\"", &changed)]).unwrap();
        scenario.warnings.iter().map(ToString::to_string).filter(|text| text.contains("handover")).collect()
    };
    let expected =
        "terminal.van.handover.at: \"10 s\" is not before the end of the run (\"10 s\"), so nothing moves";
    assert_eq!(warnings("10 s"), [expected]);
    assert!(warnings("11 s").is_empty());
}

/// The links by east come first in the file, but carry nothing before the handover.
#[test]
fn traffic_takes_the_old_gateway_before_the_handover_and_the_new_one_after() {
    for (from, to, expected) in [
        ("server", "user", [["to-west", "sky-west", "lan"], ["to-east", "sky-east", "lan-east"]]),
        ("user", "server", [["lan", "sky-west", "to-west"], ["lan-east", "sky-east", "to-east"]]),
    ] {
        let ends = format!("from = \"{from}\"\nto = \"{to}\"");
        let scenario = parse(&[("from = \"server\"\nto = \"user\"", &ends)]).unwrap();
        let traffic = &scenario.traffic[0];
        let routes: Vec<Vec<_>> = std::iter::once(&traffic.route)
            .chain(&traffic.routes_after)
            .map(|route| route.iter().map(|hop| scenario.links[hop.link].name.as_str()).collect())
            .collect();
        assert_eq!(routes, expected);
        assert_eq!(scenario.route(from, to).unwrap(), traffic.route);
        // Both gateways have queues at the terminals if data are uploaded.
        let backs: Vec<_> = scenario.gateways.iter().map(|gateway| gateway.back.is_some()).collect();
        assert_eq!(backs, [from == "user", from == "user", false]);
        let handover = scenario.gateways[0].terminals.iter().next().unwrap().handover.unwrap();
        assert_eq!(handover.connections, OnHandover::Break);
    }
}

#[test]
fn mistakes_in_handovers_are_explained() {
    for (changes, expected) in [
        (
            &[("to = \"van east\"", "to = \"van esat\"")][..],
            "my.toml:10:19: terminal.van.handover.to: found \"van esat\"; did you mean \"van east\"? allowed: van, van east, home",
        ),
        (
            &[("to = \"van east\"", "to = \"van\"")],
            "my.toml:10:19: terminal.van.handover.to: found \"van\", terminals of the same gateway, \"west\"; allowed: a group of \
             2 terminals of another gateway",
        ),
        (
            &[("to = \"van east\"", "to = \"home\"")],
            "my.toml:10:19: terminal.van.handover.to: found \"home\", which has 1 terminals; allowed: a group of 2 terminals of \
             another gateway",
        ),
        (
            &[
                ("terminals = [\"van\"]", "terminals = [\"van\", \"ship\"]"),
                (
                    "[host.neighbour]",
                    "[terminal.ship]\n[link.ship]\nbetween = [\"west\", \"ship\"]\n[host.neighbour]",
                ),
            ],
            "my.toml:10:1: terminal.van.handover: found a handover of terminals that share their queues at \"west\" with others; \
             allowed: with queues_per = \"terminal\" or \"subscriber\", because their packets are handed over too",
        ),
        (
            &[("[link.lan-east]\nbetween = [\"van east\", \"user\"]", "")],
            "my.toml:10:19: terminal.van.handover.to: found a group of terminals that data from \"server\" to \"user\" cannot pass; \
             allowed: one with links to the same hosts, at a gateway that they reach",
        ),
        (
            &[("name = \"east\"", "name = \"east\"\npep = { split = [] }")],
            "my.toml:10:19: terminal.van.handover.to: found \"van east\", a terminal of \"east\"; allowed: a terminal of a gateway \
             that splits the same connections as \"west\" (pep.split, and return with its pep.split), because connections keep \
             their parts",
        ),
        (
            &[(
                "[terminal.\"van east\"]",
                "[terminal.\"van east\"]\nhandover = { to = \"van\", at = \"5 s\" }",
            )],
            "my.toml:10:36: terminal.van.handover.at: found \"10 s\"; allowed: before \"5 s\", the time of the handover of \
             \"van east\"",
        ),
        (
            &[(
                "[terminal.\"van east\"]",
                "[terminal.\"van east\"]\nhandover = { to = \"van\", at = \"15 s\" }",
            )],
            "my.toml:12:31: terminal.\"van east\".handover.at: found \"15 s\"; allowed: before \"10 s\", the time of the handover \
             of \"van\"",
        ),
        (
            &[
                (
                    "[terminal.home]",
                    "[terminal.home]\ncount = 2\nhandover = { to = \"van east\", at = \"10 s\" }",
                ),
                ("[host.neighbour]", "[host.neighbour]\ncount = 2"),
            ],
            "my.toml:15:19: terminal.home.handover.to: found \"van east\", to which \"van\" moves too; allowed: a group for each \
             group that moves",
        ),
        (
            &[
                ("from = \"server\"", "from = \"neighbour\""),
                (
                    "[link.to-north]\nbetween = [\"server\", \"north\"]",
                    "[link.to-north]\nbetween = [\"west\", \"north\"]\n[link.north-east]\nbetween = [\"east\", \"north\"]",
                ),
            ],
            "my.toml:10:1: terminal.van.handover: found for data from \"neighbour\" to \"user\", which pass two satellite links; \
             allowed: with one on the way",
        ),
        (
            &[("at = \"10 s\"", "at = \"10 s\", connections = \"move\"")],
            "my.toml:10:58: terminal.van.handover.connections: found \"move\"; allowed: break, survive",
        ),
    ] {
        assert_eq!(parse(changes).err().as_deref().unwrap_or("none"), expected);
    }
}
