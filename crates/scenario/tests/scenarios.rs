//! The shipped scenarios, and guarantees of reading a scenario.

use std::path::PathBuf;

use bentpipe_queue::registry::{self, AQMS, MARKINGS};
use bentpipe_queue::{Limit, Marking, Value};
use bentpipe_scenario::{
    AqmSpec, Capacity, Distribution, Drawn, GatewayIndex, GatewayQueue, Hop, LinkIndex, Origin, Per,
    Scenario, Sharing, Subject, TrafficKind, json_schema,
};
use bentpipe_units::{Duration, Rate};

/// The names of all shipped scenarios.
fn names() -> Vec<String> {
    let folder = path("x").parent().expect("a folder").to_owned();
    std::fs::read_dir(folder)
        .expect("the folder")
        .map(|f| f.expect("a file").file_name().to_string_lossy().into_owned())
        .filter_map(|f| f.strip_suffix(".toml").map(str::to_owned))
        .collect()
}

/// Kinds of traffic.
const KINDS: [&str; 12] = [
    "pages", "files", "bulk", "dash", "probe", "cbr", "poisson", "on_off", "mmpp", "video", "voip", "replay",
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("../../scenarios/{name}.toml"))
}

fn load(name: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<_> = overrides.iter().map(|o| (*o).to_owned()).collect();
    Scenario::load(path(name), &overrides).unwrap_or_else(|e| panic!("{e}"))
}

fn number(scenario: &Scenario, parameter: &str) -> f64 {
    scenario.subject_aqm().expect("an AQM").values.number(parameter)
}

#[test]
fn shipped_scenarios_load_without_warnings() {
    assert!(names().len() > 20);
    for name in names() {
        let scenario = load(&name, &[]);
        assert_eq!(scenario.warnings, [""; 0], "{name}");
        let settings = scenario.run.settings.clone();
        assert!(!settings.is_empty());
        let compared = scenario.with_settings(&settings).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(compared.iter().map(Scenario::label).collect::<Vec<_>>(), settings, "{name}");
    }
}

/// Parameters of the 2007 emulation, as passed to an engine.
#[test]
fn byun2007_gateway_matches_its_description() {
    let s = load("byun2007-gateway", &[]);
    assert_eq!((s.run.warmup, s.run.duration), (Duration::from_secs(220), Duration::from_secs(1200)));
    assert_eq!(s.subject, Subject::Gateway(GatewayIndex(0)));
    let g = &s.gateways[0];
    assert_eq!(
        (g.watch, g.mark, g.aqm.label.as_str()),
        (GatewayQueue::Transmit, GatewayQueue::Receive, "RED 4")
    );
    assert_eq!(
        (g.regulator.rate, g.regulator.tick),
        (Rate::from_bps(20_000_000), Some(Duration::from_millis(5)))
    );
    assert_eq!((g.pep.delay, g.pep.buffer), (Duration::from_millis(12), 625_000));
    assert_eq!(g.transmit_queue.limit, Limit { packets: 100_000, ..Limit::NONE });
    assert_eq!(g.mean_packet, 1400.0);
    let terminal = g.terminals.only().unwrap();
    assert_eq!((s.links[terminal.link].name.as_str(), terminal.link_forward), ("satellite", true));
    let ingress = s.links.iter().find(|l| l.name == "ingress").expect("a link");
    assert!(ingress.shared_delay, "a round trip is twice the delay drawn");
    assert_eq!(ingress.forward.delay.per, Per::Connection);
    let satellite = &s.links[terminal.link];
    assert_eq!((satellite.forward.rate, satellite.reverse.rate), (None, Some(Rate::from_bps(1_000_000))));
    assert_eq!(
        (satellite.reverse.delay.longest(), satellite.reverse.delay.per),
        (Duration::from_millis(400), Per::Packet { ordered: true })
    );
    let tcp = s.transports[0].tcp().expect("TCP");
    assert_eq!((tcp.full_segment(), tcp.initial_window, tcp.receive_window), (1400, 3, 16_000));
    let TrafficKind::Pages(pages) = &s.traffic[0].kind else { panic!("pages") };
    assert_eq!((pages.sessions, &pages.object_size), (400, &Distribution::Uniform(250_000, 550_000)));
    assert_eq!(s.traffic[0].route.len(), 5);
    assert!(s.traffic[0].route.iter().all(|hop| hop.forward));
    assert_eq!(s.printed.len(), 30);
    let printed = |setting: &str, metric: &str| {
        let row = s.printed.iter().find(|p| p.setting == setting && p.metric == metric).expect("a row");
        (row.value, row.unit.as_str(), row.calibrated)
    };
    assert_eq!(printed("RED 4", "throughput_std"), (0.107, "Mbit/s", false));
    assert_eq!(printed("AVQRED", "queue_mean"), (29.62, "packets", true));
    assert_eq!(printed("AVQ", "drops"), (484_639.0, "packets", true));
}

#[test]
fn dumbbell_matches_its_description() {
    let s = load("red-dumbbell", &[]);
    assert_eq!(s.subject, Subject::Link(LinkIndex(1)));
    let bottleneck = &s.links[1];
    let queue = bottleneck.forward.queue.as_ref().expect("a queue");
    assert_eq!((queue.limit.packets, queue.mean_packet), (400, 1040.0));
    assert!(bottleneck.reverse.queue.is_none(), "only the forward direction has a queue");
    assert_eq!(bottleneck.reverse.rate, Some(Rate::from_bps(20_000_000)));
    let round_trip =
        s.links.iter().fold(Duration::ZERO, |t, l| t + l.forward.delay.longest() + l.reverse.delay.longest());
    assert_eq!(round_trip, Duration::from_millis(560));
    assert_eq!(s.transports[0].tcp().expect("TCP").max_window, Some(10_000_000));
}

/// Both variants of the generic gateway, which differ in the capacity and in AVQRED's knowledge of it.
#[test]
fn generic_gateway_matches_its_description() {
    for (name, low) in [("byun-generic", 20), ("byun-generic-13-25", 13)] {
        let s = load(name, &[]);
        let Subject::Link(link) = s.subject else { panic!("a link") };
        let link = &s.links[link];
        let mbps = |mbps: u64| Rate::from_bps(mbps * 1_000_000);
        let drawn = Drawn { uniform: (mbps(low), mbps(25)), every: Duration::from_millis(100) };
        assert_eq!(link.forward.capacity, Some(Capacity::Drawn(drawn)), "{name}");
        assert_eq!(link.forward.mean_rate(), Some(Rate::from_bps((low + 25) * 500_000)), "{name}");
        assert_eq!((number(&s, "min_capacity"), number(&s, "max_capacity")), (low as f64 * 1e6, 25e6));
        let TrafficKind::Bulk(bulk) = &s.traffic[0].kind else { panic!("bulk") };
        assert_eq!(
            (bulk.flows, &bulk.lifetime),
            (4000, &Some(Distribution::Exponential(Duration::from_secs(20))))
        );
        assert_eq!(s.transports[0].tcp().expect("TCP").full_segment(), 1400);
        let settings = s.run.settings.clone();
        let compared = s.with_settings(&settings).unwrap_or_else(|e| panic!("{name}: {e}"));
        let of = |s: &Scenario, parameter: &str| s.subject_aqm().map(|aqm| aqm.values.number(parameter));
        // AVQ uses the mean, GKVQ follows the capacity.
        let avq = compared.iter().find(|s| s.label() == "AVQ 22").expect("a setting");
        assert_eq!(of(avq, "capacity"), Some((low + 25) as f64 * 5e5), "{name}");
        let ared = compared.iter().find(|s| s.label() == "ARED 11/33").expect("a setting");
        assert_eq!(of(ared, "hysteresis"), Some(4.0), "{name}");
        assert_eq!(
            load(name, &["run.warmup=1 s"]).warnings,
            [
                "traffic.connections.ramp: the last transfer starts after the warm-up (\"1 s\"), at up to \"195 s\""
            ]
        );
    }
}

#[test]
fn routes_lead_through_two_gateways() {
    let s = load("two-gateways", &[]);
    assert_eq!(s.subject, Subject::Gateway(GatewayIndex(1)));
    let route = s.route("server", "client").expect("a route");
    assert_eq!(route, s.traffic[0].route);
    assert_eq!(route.iter().map(|hop| hop.link.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let back: Vec<_> = route.iter().rev().map(|hop| Hop { forward: false, ..*hop }).collect();
    assert_eq!(s.route("client", "server"), Some(back));
    assert_eq!(s.route("client", "nowhere"), None);
    let s = load("two-gateways", &["gateway.ship.regulator.rate=5 Mbps"]);
    let rates: Vec<_> = s.gateways.iter().map(|g| g.regulator.rate.as_bps()).collect();
    assert_eq!(rates, [20_000_000, 5_000_000]);
}

#[test]
fn aqm_defaults_follow_from_the_link() {
    // 33 ms of 1 Mbit/s are 4125 bytes: 2.75 packets of 1500 bytes.
    let rate = "gateway.regulator.rate=1 Mbps";
    let s = load("small-gateway", &[rate]);
    assert_eq!((number(&s, "min_th"), number(&s, "max_th")), (2.75, 5.5));
    let s = load("small-gateway", &["gateway.regulator.rate=2 Mbps"]);
    assert_eq!(number(&s, "min_th"), 5.5);
    let s = load("small-gateway", &[rate, "gateway.aqm.mean_packet=750 B"]);
    assert_eq!((s.gateways[0].mean_packet, number(&s, "min_th")), (750.0, 5.5));
    let s = s.with_setting("avq").expect("a setting");
    assert_eq!(s.gateways[0].mean_packet, 750.0, "a packet's length is the link's, not the algorithm's");
}

#[test]
fn an_aqm_at_the_receive_queue_uses_its_rate() {
    let rates = ["gateway.regulator.rate=1 Mbps", "gateway.receive_queue.rate=4 Mbps"];
    let s = load("small-gateway", &[&rates[..], &["gateway.watch=receive"]].concat());
    assert_eq!((s.gateways[0].watched_rate().as_bps(), number(&s, "min_th")), (4_000_000, 11.0));
    let s = load("small-gateway", &rates);
    assert_eq!((s.gateways[0].watched_rate().as_bps(), number(&s, "min_th")), (1_000_000, 2.75));
}

/// Ten sessions, one of them lossy, ahead of the bottleneck or behind it.
#[test]
fn one_session_can_have_its_own_loss() {
    let text = r#"
title = "Ten sessions"
run.duration = "2000 s"
host = { s0 = {}, s = { count = 9 }, d0 = {}, d = { count = 9 } }
router = { r1 = {}, r2 = {} }
traffic.lossy = { kind = "bulk", from = "s0", to = "d0" }
traffic.others = { kind = "bulk", from = "s", to = "d", flows = 9 }
[link]
s0 = { between = ["s0", "r1"], rate = "10 Mbps", delay = "248 ms" }
s = { between = ["s", "r1"], rate = "10 Mbps", delay = "248 ms" }
d0 = { between = ["r2", "d0"], rate = "10 Mbps", delay = "1 ms" }
d = { between = ["r2", "d"], rate = "10 Mbps", delay = "1 ms" }
bottleneck = { between = ["r1", "r2"], rate = "1 Mbps", delay = "1 ms", queue = { limit = "50 packets" } }
"#;
    for lossy in ["s0", "d0"] {
        let s =
            Scenario::parse(text, "ten.toml", &[format!("link.{lossy}.loss=0.1")]).expect("a valid scenario");
        let name = |hop: &Hop| s.links[hop.link].name.as_str();
        assert_eq!(s.traffic[0].route.iter().map(name).collect::<Vec<_>>(), ["s0", "bottleneck", "d0"]);
        assert_eq!(s.traffic[1].route.iter().map(name).collect::<Vec<_>>(), ["s", "bottleneck", "d"]);
        let losses: Vec<_> =
            s.links.iter().filter(|l| !l.forward.loss.is_none()).map(|l| l.name.as_str()).collect();
        assert_eq!(losses, [lossy]);
        assert_eq!(s.label(), "droptail");
    }
}

#[test]
fn a_setting_replaces_only_the_subjects_aqm() {
    let s = load("two-gateways", &[]).with_setting("avqred").expect("a setting");
    let names: Vec<_> = s.gateways.iter().map(|g| g.aqm.algorithm.name).collect();
    assert_eq!(names, ["red", "avqred"]);
    let s = load("red-dumbbell", &[]);
    let slow = s.with_setting("red SLOW").expect("setting names ignore case");
    assert_eq!((slow.label(), number(&slow, "w_q"), number(&slow, "max_p")), ("RED slow", 0.002, 0.5));
    let back = slow.with_setting("RED 60/120").expect("a setting");
    let (back, first) = (back.canonical_json(), s.canonical_json());
    assert_eq!(back, first, "the setting is what the file has");
}

#[test]
fn an_exact_setting_name_precedes_other_case() {
    let s = load("small-gateway", &["gateway.regulator.rate=1 Mbps"]);
    let capacity = |name: &str| {
        let s = s.with_setting(name).expect("a setting");
        (s.label().to_owned(), number(&s, "max_capacity"))
    };
    assert_eq!(capacity("avqred"), ("avqred".to_owned(), 1e6));
    assert_eq!(capacity("AVQRED"), ("AVQRED".to_owned(), 20e6));
    assert_eq!(capacity(" AvqRed "), ("AVQRED".to_owned(), 20e6));
}

/// The parameters of a setting follow the capacity if those of the file's own AQM do: not at terminals with a regulator each, but
/// at the only terminal of a carrier whose queues are per terminal.
#[test]
fn settings_follow_the_capacity_like_the_own_aqm() {
    let parsed = |name: &str, changes: &[(&str, &str)], overrides: &[&str]| {
        let text = std::fs::read_to_string(path(name)).expect("a scenario");
        let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
        let text = format!("{text}\n[setting.mine]\nalgorithm = \"avqred\"\n");
        let overrides: Vec<_> = overrides.iter().map(|o| (*o).to_owned()).collect();
        Scenario::parse(&text, "t.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
    };
    let back = [
        "run.subject=satellite return",
        "gateway.return.regulator.rate=1 Mbps",
        "gateway.return.aqm.algorithm=avqred",
    ];
    let one = [("count = 10\n", "count = 1\n"), ("\"red\" }", "\"avqred\" }")];
    for (s, follows) in
        [(parsed("mesh-on-board", &[], &back), false), (parsed("gateway-handover", &one, &[]), true)]
    {
        let mine = s.settings.iter().find(|setting| setting.name == "mine").expect("a setting");
        let own = s.subject_aqm().expect("an AQM");
        let of = |aqm: &AqmSpec| aqm.values.follows("max_capacity");
        assert_eq!((of(own), of(&mine.aqm)), (follows, follows), "{:?}", s.subject);
    }
}

#[test]
fn an_override_of_a_link_layer_given_by_name_keeps_the_name() {
    let by_name = load("small-gateway", &["link.access.access=wifi", "link.access.access.tries=3"]);
    let as_table = load("small-gateway", &["link.access.access={ kind = \"wifi\", tries = 3 }"]);
    assert_eq!(by_name.canonical_json(), as_table.canonical_json());
}

#[test]
fn overrides_apply_to_settings_with_the_parameter() {
    let s = load("byun2007-gateway", &["gateway.aqm.max_p=0.5"]);
    assert_eq!((number(&s, "max_p"), s.label()), (0.5, "RED 4"));
    assert_eq!(s.subject_aqm().expect("an AQM").changed, ["max_p"]);
    let [red, avq] = &s.with_settings(&["RED 4", "AVQ"]).expect("a parameter of RED")[..] else {
        panic!("two")
    };
    assert_eq!((number(red, "max_p"), number(red, "w_q")), (0.5, 0.1));
    assert_eq!((red.unused_overrides.len(), avq.unused_overrides.len()), (0, 1));
    // Another algorithm removes the file's parameters but not the command line's.
    let s = load(
        "red-dumbbell",
        &["link.bottleneck.queue.aqm.w_q=0.5", "link.bottleneck.queue.aqm.preset=RED 3"],
    );
    assert_eq!((number(&s, "w_q"), number(&s, "max_p")), (0.5, 0.5));
    let s = load("red-dumbbell", &["link.bottleneck.queue.aqm.algorithm=avq"]);
    assert_eq!(s.label(), "avq");
}

/// An AQM that is implemented outside reads the values itself.
#[test]
fn overrides_of_outside_parameters_are_read_as_toml() {
    let values = ["33 ms", "\"33 ms\"", "'33 ms'", "1_000", "0x10", "0.5", "true"];
    let changes: Vec<_> = values.iter().map(|value| format!("gateway.aqm.level={value}")).collect();
    let s = Scenario::load_with_parameters(path("small-gateway"), &changes, vec!["level".to_owned()]);
    let found: Vec<_> =
        s.expect("a valid scenario").aqm_overrides().into_iter().map(|(_, value)| value).collect();
    assert_eq!(found, ["33 ms", "33 ms", "33 ms", "1000", "16", "0.5", "true"]);
}

#[test]
fn overrides_of_a_link_apply_whatever_its_name_is() {
    let text = std::fs::read_to_string(path("small-gateway")).expect("the scenario");
    for name in ["aqm", "scheduler", "marking"] {
        let text = text.replace("[link.access]", &format!("[link.{name}]"));
        let changes = [format!("link.{name}.rate=7 Mbps")];
        let s = Scenario::parse(&text, "my.toml", &changes).expect("a valid scenario");
        assert_eq!(s.unused_overrides, [], "{name}");
        let link = s.links.iter().find(|link| link.name == name).expect("the link");
        assert_eq!(link.forward.rate.map(|rate| rate.as_bps()), Some(7_000_000), "{name}");
    }
}

/// TOML gives these characters a meaning outside quotes.
#[test]
fn overrides_name_keys_in_quotes_with_any_characters() {
    let text = std::fs::read_to_string(path("small-gateway")).expect("the scenario");
    for name in ["sat #1", "a = b", "[x]", "{y}", "it's \\\"z\\\""] {
        let text = text.replace("[link.access]", &format!("[link.\"{name}\"]"));
        let change = format!("link.\"{name}\".rate=7 Mbps");
        let s = Scenario::parse(&text, "my.toml", &[change]).expect("a valid scenario");
        assert_eq!(
            s.links.last().and_then(|link| link.forward.rate).map(|rate| rate.as_bps()),
            Some(7_000_000)
        );
    }
}

/// The threshold is a share of the transmit queue's limit and a key of any AQM; a setting has its own or none.
#[test]
fn threshold_control_works_with_any_aqm() {
    let limit = "gateway.transmit_queue.limit=400 packets";
    let s = load("byun2007-gateway", &[limit, "gateway.aqm.threshold=0.5"]);
    let th = |s: &Scenario| s.subject_aqm().expect("an AQM").threshold.clone().and_then(|th| th.constant());
    assert_eq!((s.label(), th(&s)), ("RED 4, threshold 0.5", Some(0.5)));
    assert!(s.canonical_json().contains("\"threshold\":0.5"));
    let listed: Vec<_> = s.effective().iter().filter(|v| v.key == "gateway.aqm.threshold").collect();
    assert_eq!((listed.len(), listed[0].value.as_str(), listed[0].origin), (1, "0.5", Origin::Override));
    for name in ["avq", "SRED 2", "pi"] {
        let setting = s.with_setting(name).expect("a setting");
        assert_eq!((setting.label(), th(&setting)), (name, Some(0.5)));
        assert!(setting.subject_aqm().expect("an AQM").build().is_ok());
    }
    let plain = load("byun2007-gateway", &[limit]);
    assert_eq!((plain.label(), th(&plain)), ("RED 4", None));
    assert!(!plain.canonical_json().contains("threshold"));
    // The threshold requires a limit: at the gateway, and for a setting of the file.
    let text = std::fs::read_to_string(path("small-gateway")).expect("the scenario");
    let own = |limit: &str| {
        let text = format!("{text}\n[setting.Mine]\npreset = \"RED 4\"\nthreshold = 0.75\n");
        Scenario::parse(&text, "my.toml", &[limit.to_owned()]).map(|s| s.settings[0].aqm.threshold.clone())
    };
    assert_eq!(own(limit).expect("a limit"), Some(0.75.into()));
    let error = own("run.seed=1").expect_err("no limit").to_string();
    assert!(
        error.contains("setting.Mine.threshold: found 0.75, a share of the watched queue's limit"),
        "{error}"
    );
    // Changing thresholds have their own canonical form, and are listed as written.
    let steps = "gateway.aqm.threshold=[[\"0 s\", 0.95], [\"125 s\", 0.5]]";
    let changing = load("byun2007-gateway", &[limit, steps]);
    assert_eq!((changing.label(), th(&changing)), ("RED 4, threshold 0.95, from 125 s 0.5", None));
    assert!(changing.canonical_json().contains("\"threshold\":[[0,0.95],[125000000000,0.5]]"));
    let listed: Vec<_> = changing.effective().iter().filter(|v| v.key == "gateway.aqm.threshold").collect();
    assert_eq!((listed.len(), listed[0].value.as_str()), (1, "[[\"0 s\", 0.95], [\"125 s\", 0.5]]"));
}

/// CoDel acts on dequeued packets, so as a setting it moves the mark point; RED keeps the scenario's.
#[test]
fn a_setting_moves_the_mark_point_if_needed() {
    let s = load("byun2007-gateway", &[]);
    let place = |name: &str| {
        let s = s.with_setting(name).expect("a setting");
        (s.gateways[0].mark, s.signals_behind_pep(), s.warnings.len())
    };
    assert_eq!(place("codel"), (GatewayQueue::Transmit, true, 1));
    assert_eq!(place("red"), (GatewayQueue::Receive, false, 0));
}

fn window(s: &Scenario) -> (f64, f64, f64) {
    let values = &s.gateways[0].marking.values;
    (values.number("decr"), values.number("incr"), values.number("freeze"))
}

/// [B07] Table 3.2 sets the marking method with the AQM, and chapter 6 a buffer per connection: as a setting it replaces
/// both.
#[test]
fn a_preset_sets_its_marking_method() {
    let s = load("byun2007-gateway", &[]);
    assert_eq!(s.gateways[0].marking.method.marking, Marking::Drop);
    for (name, algorithm, decr) in [
        ("RED FC 1", "red", 0.97),
        ("RED FC 5", "red", 0.5),
        ("AVQRED FC 2", "avqred", 0.95),
        ("avqred fc 4", "avqred", 0.8),
    ] {
        let s = s.with_setting(name).expect("a setting");
        let g = &s.gateways[0];
        assert_eq!((g.aqm.algorithm.name, g.marking.method.name), (algorithm, "window"));
        assert_eq!((window(&s), g.pep.buffer_per), ((decr, 0.01, 0.2), Sharing::PerConnection));
        assert_eq!((number(&s, "min_th"), number(&s, "max_th")), (60.0, 120.0));
        assert!(
            s.warnings.is_empty() && s.subject_aqm().is_some_and(|aqm| aqm.changed.is_empty()),
            "{:?}",
            s.warnings
        );
        let back = s.with_setting("RED 4").expect("a setting").gateways[0].clone();
        assert_eq!((back.marking.method.name, back.pep.buffer_per), ("drop", Sharing::PerUser));
    }
    let shared = load("byun2007-gateway", &["gateway.pep.buffer_per=user"]);
    let shared = shared.with_setting("RED FC 1").expect("a setting");
    assert_eq!((shared.gateways[0].pep.buffer_per, window(&shared)), (Sharing::PerUser, (0.97, 0.01, 0.2)));
}

/// A processing time that varies is correlated over 1 s by default; the return direction inherits it.
#[test]
fn pep_delay_may_vary() {
    let varying = ["gateway.pep.delay_std=6 ms", "gateway.pep.rate=40 Mbps", "gateway.return={}"];
    let s = load("byun2007-gateway", &varying);
    let back = s.gateways[0].back.as_ref().expect("a return direction");
    for pep in [&s.gateways[0].pep, &back.pep] {
        let times = (pep.delay, pep.delay_std, pep.delay_correlation);
        let ms = Duration::from_millis;
        assert_eq!((times, pep.rate), ((ms(12), ms(6), ms(1000)), Some(Rate::from_bps(40_000_000))));
    }
    let s = load("byun2007-gateway", &["gateway.pep.delay_std=0 s"]);
    assert_eq!(s.canonical_json(), load("byun2007-gateway", &[]).canonical_json());
}

/// A preset in the file also sets the method, which further keys and overrides modify; an override can apply to some settings
/// of a comparison.
#[test]
fn marking_parameters_can_be_overridden() {
    let s = load("small-gateway", &["gateway.aqm.preset=RED FC 3"]);
    assert_eq!((window(&s), s.gateways[0].pep.buffer_per), ((0.9, 0.01, 0.2), Sharing::PerConnection));
    let s = load("small-gateway", &["gateway.aqm.preset=RED FC 3", "gateway.marking.incr=0.05"]);
    assert_eq!(window(&s), (0.9, 0.05, 0.2));
    assert_eq!(s.subject_aqm().expect("an AQM").changed, ["marking.incr"]);
    let s = load("small-gateway", &["gateway.marking=window", "gateway.marking.freeze=1 s"]);
    assert_eq!((window(&s), s.label()), ((0.97, 0.01, 1.0), "red"));
    let s = load("byun2007-gateway", &["gateway.marking.freeze=100 ms"]);
    assert_eq!(s.unused_overrides.len(), 1);
    let [fc, red] = &s.with_settings(&["RED FC 1", "RED 4"]).expect("an override for one setting")[..] else {
        panic!("two")
    };
    assert_eq!(
        (window(fc), fc.unused_overrides.len(), red.unused_overrides.len()),
        ((0.97, 0.01, 0.1), 0, 1)
    );
    let unused = s.with_settings(&["RED 4", "AVQ"]).expect_err("none has it").to_string();
    let expected = "--set gateway.marking.freeze=100 ms: gateway.marking.freeze: drop has no parameters";
    assert_eq!(unused, expected);
}

/// A scheduler's name selects that scheduler without an AQM; only the scheduler's parameters can be overridden.
#[test]
fn a_scheduler_name_is_a_setting() {
    let scheduler = "gateway.transmit_queue.scheduler.quantum=700 B";
    let s = load("byun2007-gateway", &[scheduler, "gateway.aqm.max_p=0.5"]);
    let drr = s.with_setting("DRR").expect("a setting");
    let queue = &drr.gateways[0].transmit_queue;
    assert_eq!((queue.scheduler.discipline.name, drr.label()), ("drr", "drr"));
    assert_eq!(queue.scheduler.values.number("quantum"), 700.0);
    assert!(drr.gateways[0].aqm.is_none());
    assert_eq!(drr.unused_overrides.len(), 1);
    let red = s.with_setting("red").expect("a setting");
    assert_eq!(red.gateways[0].transmit_queue.scheduler.discipline.name, "fifo");
    assert_eq!(red.unused_overrides.len(), 1);
    // Together the settings use both overrides.
    assert!(s.with_settings(&["red", "drr"]).is_ok());
    assert!(s.with_settings(&["red", "avqred"]).is_err());
    // At a link, it is the scheduler of the queue.
    let drr = load("red-dumbbell", &[]).with_setting("drr").expect("a setting");
    let Subject::Link(i) = drr.subject else { panic!("a link") };
    let queue = drr.links[i].forward.queue.as_ref().expect("a queue");
    assert_eq!(queue.scheduler.discipline.name, "drr");
}

/// As with AQMs, parameters that the file gives belong to the algorithm in the file; those of overrides stay.
#[test]
fn another_scheduler_or_marking_method_drops_the_parameters_of_the_file() {
    let text = load("byun2007-gateway", &[]).text().to_owned();
    let text =
        text.replace("scheduler = \"fifo\"", "scheduler = { algorithm = \"drr\", quantum = \"700 B\" }");
    let text = text.replace("marking = \"drop\"", "marking = { method = \"window\", incr = 0.05 }");
    let gateway = |changes: &[&str]| {
        let changes: Vec<_> = changes.iter().map(|change| format!("gateway.{change}")).collect();
        let s = Scenario::parse(&text, "my.toml", &changes).unwrap_or_else(|e| panic!("{e}"));
        s.gateways[0].clone()
    };
    let scheduler = |changes: &[&str]| {
        let changes: Vec<_> =
            changes.iter().map(|change| format!("transmit_queue.scheduler.{change}")).collect();
        gateway(&changes.iter().map(String::as_str).collect::<Vec<_>>()).transmit_queue.scheduler
    };
    assert_eq!(scheduler(&["algorithm=fifo"]).discipline.name, "fifo");
    assert_eq!(scheduler(&["algorithm=drr"]).values.number("quantum"), 700.0);
    for changes in [["algorithm=drr", "quantum=800 B"], ["quantum=800 B", "algorithm=drr"]] {
        assert_eq!(scheduler(&changes).values.number("quantum"), 800.0);
    }
    assert_eq!(gateway(&["marking.method=drop"]).marking.method.name, "drop");
    assert_eq!(gateway(&["marking.method=window"]).marking.values.number("incr"), 0.05);
}

#[test]
fn a_setting_can_name_its_scheduler() {
    let text = load("byun2007-gateway", &[]).text().to_owned();
    let text = format!("{text}\n[setting.Fair]\npreset = \"AVQRED\"\nscheduler = \"drr\"\n");
    let fair = Scenario::parse(&text, "my.toml", &[])
        .and_then(|s| s.with_setting("Fair"))
        .expect("a valid scenario");
    let gateway = &fair.gateways[0];
    assert_eq!((gateway.aqm.algorithm.name, fair.label()), ("avqred", "Fair"));
    assert_eq!(gateway.transmit_queue.scheduler.discipline.name, "drr");
}

/// The scenario's list, then every algorithm once.
#[test]
fn all_settings_lists_every_usable_algorithm() {
    let (able, unable) = load("byun2007-gateway", &[]).all_settings();
    assert!(unable.is_empty(), "{unable:?}");
    assert_eq!(able[..3], ["RED 4", "AVQ", "AVQRED"]);
    let names = registry::AQMS.iter().map(|a| a.name).chain(registry::SCHEDULERS.iter().map(|s| s.name));
    assert_eq!(able[3..], names.collect::<Vec<_>>());
}

#[test]
fn a_single_gateway_is_addressed_with_or_without_name() {
    let named = load("small-gateway", &["gateway.gateway.regulator.rate=3 Mbps"]);
    let short = load("small-gateway", &["gateway.regulator.rate=\"3 Mbps\""]);
    assert_eq!(named.canonical_json(), short.canonical_json());
    assert_eq!(short.gateways[0].regulator.rate.as_bps(), 3_000_000);
}

/// The listed key of a value overrides it, also of a gateway without a name in an array, and of one called like a part of it.
#[test]
fn listed_keys_of_a_gateway_override_it() {
    let text = std::fs::read_to_string(path("small-gateway")).expect("the scenario");
    for gateway in ["[[gateway]]\n", "[gateway]\n"] {
        let text = text.replace("[gateway]\n", gateway);
        let parse = |change: Option<String>| {
            Scenario::parse(&text, "my.toml", &change.into_iter().collect::<Vec<_>>()).expect("valid")
        };
        let original = parse(None);
        let key =
            &original.effective().iter().find(|e| e.key.ends_with("regulator.rate")).expect("a rate").key;
        let changed = parse(Some(format!("{key}=3 Mbps")));
        assert_eq!(changed.gateways[0].regulator.rate.as_bps(), 3_000_000, "{key}");
    }
    let text =
        text.replace("[gateway]\n", "[gateway]\nname = \"return\"\n").replace("\"gateway\"", "\"return\"");
    let change = "gateway.return.regulator.rate=100 kbps".to_owned();
    let s = Scenario::parse(&text, "my.toml", &[change]).expect("a valid scenario");
    let back = s.gateways[0].back.as_ref().expect("a return direction");
    assert_eq!((s.gateways[0].regulator.rate.as_bps(), back.regulator.rate.as_bps()), (4_000_000, 100_000));
}

/// 100 Mbit/s over 250 + 250 ms and 50 ms for acknowledgements are 6.875 MB.
#[test]
fn spacelink_windows_follow_the_bandwidth_delay_product() {
    let windows = |overrides: &[&str]| {
        let s = load("small-gateway", overrides);
        let note = |key: &str| {
            let found = s.effective().iter().find(|row| row.key == format!("gateway.spacelink.{key}"));
            found.map(|row| row.note.clone()).unwrap_or_default()
        };
        let link = &s.gateways[0].spacelink;
        assert!(s.warnings.is_empty(), "{:?}", s.warnings);
        (link.window, link.stream_window, note("window"), note("stream_window"))
    };
    // 4 Mbit/s: 0.275 MB, below the least defaults.
    let (window, stream, why, _) = windows(&[]);
    assert_eq!((window, stream), (4_000_000, 1_000_000));
    assert_eq!(why, "the least default; twice 4 Mbps x 550 ms (round trip and ack_delay) are 0.6 MB");
    let fast = "gateway.regulator.rate=100 Mbps";
    let (window, stream, why, each) = windows(&[fast]);
    assert_eq!((window, stream), (13_800_000, 6_900_000));
    assert_eq!(
        why,
        "the bandwidth-delay product: twice 100 Mbps x 550 ms (round trip and ack_delay), rounded up"
    );
    assert_eq!(each, "the bandwidth-delay product: 100 Mbps x 550 ms (round trip and ack_delay), rounded up");
    // A given window bounds the other's default.
    let (window, stream, ..) = windows(&["gateway.spacelink.window=500 KB"]);
    assert_eq!((window, stream), (500_000, 500_000));
    let (window, stream, ..) = windows(&["gateway.spacelink.stream_window=9 MB"]);
    assert_eq!((window, stream), (9_000_000, 9_000_000));
    // A regulator that follows the link counts with the highest rate. Steps repeat with a mean of 52 and a maximum of
    // 100 Mbit/s; each satellite adds up to 25 ms, there and back.
    let steps =
        "link.satellite.capacity={ steps = [['0 s', '4 Mbps'], ['10 s', '100 Mbps']], repeat = '20 s' }";
    let handover = "link.satellite.handover={ interval = '15 s', delay = ['0 ms', '25 ms'] }";
    let (window, stream, ..) = windows(&["gateway.regulator.rate=link", steps, handover]);
    assert_eq!((window, stream), (15_000_000, 7_500_000));
}

/// 200 ms are 100 KB at 4 Mbit/s, and 20 KB at 800 kbit/s; a varying link counts with its nominal rate.
#[test]
fn queue_limits_in_time_are_bytes_at_the_nominal_rate() {
    let limit = |overrides: &[&str]| {
        let s = load("small-gateway", overrides);
        let row = s.effective().iter().find(|row| row.key == "gateway.transmit_queue.limit").unwrap();
        (s.gateways[0].transmit_queue.limit, row.value.clone(), row.note.clone())
    };
    let (found, value, note) = limit(&["gateway.transmit_queue.limit=200 ms"]);
    assert_eq!((found.packets, found.bytes), (u32::MAX, 100_000));
    assert_eq!(value, "200 ms");
    assert_eq!(note, "100000 B at 4 Mbps: 66 packets of 1500 B, the longest of the traffic");
    let (found, value, _) = limit(&["gateway.transmit_queue.limit={ packets = 50, time = '1 s' }"]);
    assert_eq!((found.packets, found.bytes), (50, 500_000));
    assert_eq!(value, "{ packets = \"50 packets\", time = \"1 s\" }");
    let steps = "link.satellite.capacity={ steps = [['0 s', '800 kbps'], ['10 s', '400 kbps']] }";
    let (found, ..) = limit(&["gateway.transmit_queue.limit=200 ms", "gateway.regulator.rate=link", steps]);
    assert_eq!(found.bytes, 20_000);
    let same = load("small-gateway", &["gateway.transmit_queue.limit=100 KB"]);
    assert_eq!(
        load("small-gateway", &["gateway.transmit_queue.limit=200 ms"]).canonical_json(),
        same.canonical_json()
    );
}

/// EF is 101110, AF41 100010 (RFC 3246, RFC 2597). The default changes no canonical form.
#[test]
fn codepoints_have_names_and_numbers() {
    let dscp = |text: &str| load("small-gateway", &[&format!("traffic.web.dscp={text}")]);
    for (text, number) in [("EF", 0b10_1110), ("AF41", 0b10_0010), ("LE", 1), ("46", 46), ("5", 5)] {
        assert_eq!(dscp(text).traffic[0].dscp, number, "{text}");
    }
    assert_eq!(dscp("CS0").canonical_json(), load("small-gateway", &[]).canonical_json());
    assert_eq!(dscp("EF").canonical_json(), dscp("46").canonical_json());
}

#[test]
fn limits_of_quality_are_filled_in_and_are_not_canonical() {
    let plain = load("small-gateway", &[]);
    let strict =
        load("small-gateway", &["thresholds.\"voice.mos\"={ bad = 3.6 }", "thresholds.\"page.load\".good=3"]);
    assert_eq!(plain.canonical_json(), strict.canonical_json());
    let found: Vec<_> = strict.thresholds.iter().map(|t| (t.measure, t.good, t.bad)).collect();
    assert_eq!(found, [("voice.mos", 4.03, 3.6), ("page.load", 3.0, 4.0)]);
    let shown = strict.effective().iter().find(|row| row.key == "thresholds.\"voice.mos\".bad");
    assert_eq!(shown.map(|row| row.value.as_str()), Some("3.6"));
}

#[test]
fn a_measure_in_an_override_needs_no_quotes() {
    let quoted =
        load("small-gateway", &["thresholds.\"voice.mos\".bad=3.6", "thresholds.responsiveness.bad=200"]);
    for (limit, table) in [("voice.mos.bad=3.6", "voice.mos={ bad = 3.6 }")] {
        for text in [limit, table] {
            let overrides = [&format!("thresholds.{text}"), "thresholds.responsiveness={ bad = 200 }"];
            assert_eq!(load("small-gateway", &overrides).thresholds, quoted.thresholds, "{text}");
        }
    }
}

/// A game's packet is of no use after 200 ms, an IoT device's after 10 s, unless the scenario says otherwise.
#[test]
fn an_application_has_a_deadline() {
    let deadline = |keys: &str| {
        let traffic = format!(
            "traffic={{ x = {{ kind = 'cbr', from = 'server', to = 'client', rate = '8 kbps', packet = '100 B'{keys} }} }}"
        );
        load("small-gateway", &[&traffic]).traffic[0].application.map(|(_, deadline)| deadline.to_string())
    };
    assert_eq!(deadline(""), None);
    assert_eq!(deadline(", application = 'game'").as_deref(), Some("200 ms"));
    assert_eq!(deadline(", application = 'iot'").as_deref(), Some("10 s"));
    assert_eq!(deadline(", application = 'game', deadline = '80 ms'").as_deref(), Some("80 ms"));
}

#[test]
fn warnings_name_probable_mistakes() {
    let warnings = |overrides: &[&str]| load("small-gateway", overrides).warnings;
    assert_eq!(
        warnings(&["gateway.mark=transmit"]),
        [
            "gateway.mark: packets of split connections are dropped behind the PEP: the senders do not notice, the spacelink retransmits"
        ]
    );
    let by_user = |scheduler: &str| warnings(&["gateway.flow_key=user", scheduler]);
    assert_eq!(
        by_user("gateway.transmit_queue.scheduler=ssf"),
        [
            "gateway.transmit_queue.scheduler: sequence numbers of several connections are not comparable; with flow_key = \"user\" or \"prefix\" set position = \"seen\""
        ]
    );
    assert!(by_user("gateway.transmit_queue.scheduler={ algorithm = 'ssf', position = 'seen' }").is_empty());
    assert!(warnings(&["gateway.transmit_queue.scheduler=ssf"]).is_empty());
    assert_eq!(
        warnings(&["gateway.watch=receive"]),
        ["gateway.watch: the receive queue is always empty, because it has no rate"]
    );
    assert_eq!(
        warnings(&["gateway.regulator.rate=100 Mbps", "gateway.spacelink.window=4 MB"]),
        [
            "gateway.spacelink.window: less than the regulator sends in a round trip of the satellite link, up to 6.9 MB"
        ]
    );
    // 100 offices of 4.8 Mbit/s on 400 Mbit/s.
    let beam = |overrides: &[&str]| load("beam", overrides).warnings;
    assert_eq!(
        beam(&["gateway.regulator.rate=400 Mbps", "plan.office.down.cir=4.8 Mbps"]),
        [
            "gateway: the committed rates (cra, cir) of the plans take 120 % of the carrier; they cannot all be kept"
        ]
    );
    // 100 offices of 32 + 968 kbit/s on a return carrier of 80 Mbit/s.
    let both =
        load("beam-two-way", &["gateway.return.regulator.rate=80 Mbps", "plan.office.up.cir=968 kbps"]);
    assert_eq!(
        both.warnings,
        [
            "gateway.return: the committed rates (cra, cir) of the plans take 125 % of the carrier; they cannot all be kept"
        ]
    );
    assert!(beam(&["plan.office.down.cir=6 Mbps"])[0].text.contains(" % of the carrier in clear sky; "));
    assert!(beam(&["gateway.regulator.rate=400 Mbps", "plan.office.down.cir=4 Mbps"]).is_empty());
    assert_eq!(
        warnings(&["run.warmup=1 s"]),
        ["traffic.web.ramp: the last session starts after the warm-up (\"1 s\"), at up to \"5 s\""]
    );
    let no_ecn = ["gateway.marking: no transport in use has ecn = true, so every mark is a drop"];
    assert_eq!(warnings(&["gateway.marking=ecn"]), no_ecn);
    assert_eq!(warnings(&["gateway.marking=ecn", "transport.linux.ecn=true"]), no_ecn);
    assert_eq!(
        warnings(&["transport.default.ecn=true"]),
        ["transport.default.ecn: no queue has marking = \"ecn\", so every mark is a drop"]
    );
    assert!(warnings(&["transport.default.ecn=true", "gateway.marking=ecn"]).is_empty());
    let over_quic = load("quic-geo", &["transport.quic.ecn=true", "gateway.marking=ecn"]).warnings;
    assert!(!over_quic.iter().any(|warning| warning.text.contains("every mark is a drop")), "{over_quic:?}");
    let voice = "traffic={ talk = { kind = 'voip', from = 'server', to = 'client' } }";
    assert_eq!(
        warnings(&[voice, "gateway.marking=window"]),
        ["gateway.marking: the gateway splits no connection, so every mark is a drop"]
    );
    assert!(warnings(&["gateway.marking=window"]).is_empty());
    assert_eq!(
        warnings(&["link.satellite.rate=500 kbps"]),
        ["link.satellite.rate: below the regulator's rate: packets will wait in front of the satellite link"]
    );
    assert_eq!(
        warnings(&["gateway.transmit_queue.limit=1 KB"]),
        ["gateway.transmit_queue.limit: less than the longest packet, which is always dropped"]
    );
    assert_eq!(
        warnings(&[
            "printed=[{setting='SRED 9', metric='drops', value=1, unit='packets', source='a table'}]"
        ]),
        ["printed[1].setting: no setting is called \"SRED 9\""]
    );
}

#[test]
fn effective_values_reproduce_the_scenario() {
    for name in names() {
        let s = load(&name, &[]);
        for e in s.effective() {
            if e.value == "none" {
                continue;
            }
            let change = format!("{}={}", e.key, e.value);
            let same = load(&name, &[&change]);
            assert_eq!(same.canonical_json(), s.canonical_json(), "{name}: --set {change}");
            let again = same.effective().iter().find(|a| a.key == e.key).expect("the same key");
            assert_eq!(
                (again.value.as_str(), again.origin),
                (e.value.as_str(), Origin::Override),
                "{change}"
            );
        }
    }
}

#[test]
fn effective_values_have_origins() {
    let s = load("byun2007-gateway", &["gateway.aqm.max_p=0.5", "run.seed=7"]);
    let find = |s: &Scenario, key: &str| {
        let e = s.effective().iter().find(|e| e.key == key).unwrap_or_else(|| panic!("{key}"));
        (e.value.clone(), e.origin, e.note.clone())
    };
    let row = |value: &str, origin, note: &str| (value.to_owned(), origin, note.to_owned());
    assert_eq!(find(&s, "gateway.regulator.rate"), row("20 Mbps", Origin::Given, ""));
    assert_eq!(find(&s, "run.seed"), row("7", Origin::Override, ""));
    assert_eq!(find(&s, "gateway.aqm.max_p"), row("0.5", Origin::Override, ""));
    assert_eq!(find(&s, "gateway.aqm.min_th"), row("60 packets", Origin::Preset, "RED 4, [B07] Table 3.1"));
    assert_eq!(find(&s, "gateway.aqm.gentle"), row("false", Origin::Default, ""));
    assert_eq!(
        find(&s, "gateway.aqm.mean_packet"),
        row("1400 B", Origin::Default, "the longest packet of the traffic")
    );
    assert_eq!(find(&s, "run.subject"), row("gateway", Origin::Default, "the only gateway"));
    assert_eq!(find(&s, "gateway.receive_queue.rate"), row("none", Origin::Default, ""));
    assert_eq!(find(&s, "link.satellite.reverse.rate"), row("1 Mbps", Origin::Given, ""));
    assert_eq!(
        find(&s, "link.access.reverse.rate"),
        row("100 Mbps", Origin::Default, "as on the way forward")
    );
    let avq = s.with_setting("AVQ").expect("a setting");
    assert_eq!(find(&avq, "gateway.aqm.preset"), row("AVQ", Origin::Setting, "of avq, [B07] Table 3.1"));
    // Algorithms given by name alone.
    let drr = s.with_setting("drr").expect("a setting");
    assert_eq!(find(&drr, "gateway.transmit_queue.scheduler.algorithm"), row("drr", Origin::Setting, ""));
    assert_eq!(find(&drr, "gateway.transmit_queue.scheduler.head_drop").1, Origin::Default);
    let window = load("byun2007-gateway", &["gateway.marking=window", "gateway.pep.buffer_per=connection"]);
    assert_eq!(find(&window, "gateway.marking.method"), row("window", Origin::Override, ""));
}

/// Distributions, loss models and limits have keys of these names, and are listed as one value.
#[test]
fn names_of_tables_do_not_change_the_list_of_effective_values() {
    let text = std::fs::read_to_string(path("small-gateway")).expect("the scenario");
    let keys = |from: &str, to: &str| {
        let scenario = Scenario::parse(&text.replace(from, to), "my.toml", &[]).expect("a valid scenario");
        let (from, to) = (format!(".{from}."), format!(".{to}."));
        scenario.effective().iter().map(|e| e.key.replace(&to, &from)).collect::<Vec<_>>()
    };
    for name in ["trace", "uniform", "normal", "jitter", "nth", "packets", "time"] {
        assert_eq!(keys("web", name), keys("web", "web"), "traffic.{name}");
        assert_eq!(keys("client", name), keys("client", "client"), "host.{name}");
    }
}

#[test]
fn canonical_form_contains_only_what_affects_results() {
    let first = load("small-gateway", &[]).canonical_json();
    for same in [
        "title=\"x\"",
        "description=\"x\"",
        "run.runs=9",
        "run.settings=[]",
        "printed=[]",
        "gateway.marking=drop",
        "gateway.marking={ method = 'drop' }",
        "gateway.flow_key=connection",
    ] {
        assert_eq!(load("small-gateway", &[same]).canonical_json(), first, "{same}");
    }
    for other in [
        "run.seed=2",
        "run.sample_interval=50 ms",
        "gateway.aqm.w_q=0.021",
        "gateway.pep.delay=13 ms",
        "gateway.pep.delay_std=1 ms",
        "gateway.pep.rate=1 Gbps",
        "traffic.web.patience=1 min",
        "gateway.marking=window",
        "gateway.flow_key=user",
        "link.access.reverse.delay=3 ms",
        "traffic.web.think_time=2 s",
        "transport.default.retries=14",
        "host.server.count=6",
    ] {
        assert_ne!(load("small-gateway", &[other]).canonical_json(), first, "{other}");
    }
    let mut changed = load("small-gateway", &[]);
    changed.run.seed = 2;
    assert_eq!(changed.canonical_json(), load("small-gateway", &["run.seed=2"]).canonical_json());
}

#[test]
fn scenarios_are_send_and_sync() {
    fn requires_send_and_sync<T: Clone + Send + Sync + 'static>() {}
    requires_send_and_sync::<Scenario>();
}

/// A collision would make a key of an AQM's table ambiguous.
#[test]
fn no_parameter_name_collides_with_common_keys() {
    for algorithm in AQMS {
        for key in ["algorithm", "preset", "scheduler", "threshold"] {
            assert!(algorithm.params.iter().all(|p| p.name != key), "{}: {key}", algorithm.name);
        }
    }
}

#[test]
fn schema_covers_every_algorithm_and_parameter() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).expect("JSON");
    let alternatives = schema["$defs"]["Aqm"]["anyOf"].as_array().expect("alternatives");
    for algorithm in AQMS {
        let of_name = alternatives.iter().find(|a| a["properties"]["algorithm"]["const"] == algorithm.name);
        let properties = &of_name.expect("an alternative")["properties"];
        let one = &properties["threshold"]["anyOf"][0];
        let step = &properties["threshold"]["anyOf"][1]["items"]["prefixItems"];
        for share in [one, &step[1]] {
            assert_eq!((&share["minimum"], &share["maximum"]), (&0.25.into(), &0.95.into()));
        }
        for param in algorithm.params {
            let described = properties[param.name]["description"].as_str().expect("a description");
            assert!(described.starts_with(param.doc), "{described}");
            if let bentpipe_queue::Default::Is(Value::Flag(x)) = param.default {
                assert_eq!(properties[param.name]["default"], x);
            }
        }
        for preset in algorithm.presets {
            let names = |a: &&serde_json::Value| {
                a["properties"]["preset"]["enum"].as_array().is_some_and(|n| n.contains(&preset.name.into()))
            };
            assert_eq!(alternatives.iter().filter(names).count(), 1, "{}", preset.name);
        }
    }
    let methods = schema["$defs"]["GatewayMarking"]["anyOf"].as_array().expect("alternatives");
    for method in MARKINGS {
        assert_eq!(methods.iter().filter(|m| m["const"] == method.name).count(), 1, "{}", method.name);
        let table = methods.iter().find(|m| m["properties"]["method"]["const"] == method.name);
        let properties = table.expect("a table")["properties"].as_object().expect("keys");
        let expected: Vec<_> = ["method"].into_iter().chain(method.params.iter().map(|p| p.name)).collect();
        assert_eq!(properties.keys().collect::<Vec<_>>(), expected);
    }
    assert!(!json_schema().contains("null"), "TOML has no null");
    let kinds = schema["$defs"]["Traffic"]["oneOf"].as_array().expect("kinds");
    let names: Vec<_> = kinds.iter().map(|k| k["properties"]["kind"]["const"].as_str()).collect();
    assert_eq!(names, KINDS.map(Some));
}

/// The documented transports load, and their effective values load again.
#[test]
fn documented_transports_load_and_round_trip() {
    let page = include_str!("../../../docs/transports.md");
    let examples: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 4);
    for example in examples {
        let name = example.split(['.', ']']).nth(1).expect("a name");
        let text = format!(
            "title = \"t\"\nrun = {{ duration = \"1 s\" }}\nhost = {{ a = {{}}, b = {{}} }}\n[link.l]\n\
             between = [\"a\", \"b\"]\nqueue = {{}}\nrate = \"1 Mbps\"\n{example}[traffic.t]\nkind = \"cbr\"\nfrom = \"a\"\n\
             to = \"b\"\ntransport = \"{name}\"\nrate = \"1 Mbps\"\npacket = \"1 KB\"\n"
        );
        let scenario = Scenario::parse(&text, "my.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        assert!(scenario.warnings.is_empty(), "{:?}", scenario.warnings);
        let shown: Vec<_> = scenario
            .effective()
            .iter()
            .filter(|e| e.key.starts_with("transport.") && e.value != "none")
            .map(|e| format!("{}={}", e.key, e.value))
            .collect();
        assert!(shown.len() > 10, "{shown:?}");
        let again = Scenario::parse(&text, "my.toml", &shown).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.canonical_json(), scenario.canonical_json());
    }
}
