//! The return direction: uploads, and two-way traffic.

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;

use crate::common;

/// A gateway with one terminal, of which the return link has 2 Mbit/s, and this traffic.
fn one_terminal(traffic: &str, extra: &[&str]) -> Results {
    let text = format!(
        r#"
        title = "Uploads"
        [run]
        warmup = "10 s"
        duration = "30 s"
        [host.server]
        [host.user]
        count = 2
        [link.ingress]
        between = ["server", "gateway"]
        rate = "100 Mbps"
        delay = "10 ms"
        [gateway]
        regulator = {{ rate = "20 Mbps" }}
        [link.satellite]
        between = ["gateway", "terminal"]
        delay = "250 ms"
        reverse = {{ rate = "2 Mbps" }}
        [link.access]
        between = ["terminal", "user"]
        rate = "100 Mbps"
        delay = "1 ms"
        [transport.default]
        receive_window = "2 MB"
        {traffic}
        "#
    );
    run(&text, extra)
}

fn run(text: &str, extra: &[&str]) -> Results {
    let overrides: Vec<_> = extra.iter().map(|&o| o.to_owned()).collect();
    let scenario = Scenario::parse(text, "uploads.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    common::results(&scenario, 1)
}

const UPLOAD: &str = r#"
        [traffic.upload]
        kind = "bulk"
        from = "user"
        to = "server"
        flows = 2
"#;

const DOWNLOAD: &str = r#"
        [traffic.download]
        kind = "bulk"
        from = "server"
        to = "user"
        flows = 2
"#;

/// Goodput of a traffic entry [Mbit/s].
fn goodput(results: &Results, traffic: &str) -> f64 {
    let traffic = results.traffic.iter().position(|name| name == traffic).unwrap() as u32;
    let flows = results.flows.iter().filter(|flow| flow.traffic == traffic);
    flows.map(|flow| flow.measured).sum::<u64>() as f64 * 8e-6 / 30.0
}

fn counter(results: &Results, name: &str) -> f64 {
    let counters = results.counters();
    counters.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "found {found}, expected {expected}");
}

/// Packets of the PEP link have 1460 of 1491 bytes of payload.
#[test]
fn split_uploads_fill_the_return_link() {
    let results = one_terminal(UPLOAD, &[]);
    assert_near(goodput(&results, "upload"), 2.0 * 1460.0 / 1491.0, 0.003);
    assert_near(counter(&results, "return_sent_bytes") * 8.0 / 30.0, 2e6, 0.003);
    // Only acknowledgements and handshakes pass the gateway's own queues.
    assert!(counter(&results, "sent_bytes") < 0.03 * counter(&results, "return_sent_bytes"));
    assert!(counter(&results, "sent_packets") > 0.0);
}

/// Segments have 1460 of 1500 bytes of payload. A queue of 700 packets, a bandwidth-delay product of 87 and windows of at most
/// 2 MB: no losses.
#[test]
fn unsplit_uploads_fill_the_return_link() {
    let overrides = ["gateway.pep.split=[]", "transport.default.receive_window=500 KB"];
    let results = one_terminal(UPLOAD, &overrides);
    assert_near(goodput(&results, "upload"), 2.0 * 1460.0 / 1500.0, 0.003);
    assert_eq!(results.drops.time.len(), 0);
}

/// 3 Mbit/s into 2 Mbit/s: a third is dropped at the terminal. 28 of 1000 bytes are headers.
#[test]
fn datagrams_beyond_the_return_link_are_dropped_at_the_terminal() {
    let cbr = "[traffic.upload]\nkind = \"cbr\"\nrate = \"3 Mbps\"\npacket = \"1000 B\"\nfrom = \"user\"\nto = \"server\"";
    let results = one_terminal(cbr, &["gateway.return.transmit_queue.limit=50 packets"]);
    assert_near(goodput(&results, "upload"), 2.0 * 972.0 / 1000.0, 0.002);
    let dropped = counter(&results, "return_overflow_drops") + counter(&results, "return_drops_elsewhere");
    assert_near(dropped, 30.0 * 1e6 / 8000.0, 0.005);
    let places: Vec<_> = results.drops.place.iter().map(|&place| &results.places[place as usize]).collect();
    assert_eq!(places.len() as f64, dropped);
    assert!(places.iter().all(|place| *place == "gateway return transmit"), "{places:?}");
    // 50 packets of 8000 bits at 2 Mbit/s.
    assert_near(counter(&results, "return_queue_delay_mean"), 0.2, 0.05);
}

/// With 60 bytes of the spacelink around each packet, 972 of 1060 bytes are payload on links that are offered half as much
/// again, in both directions; the packets of the one that is delivered have their own length again.
#[test]
fn the_spacelinks_header_takes_its_share_of_both_directions() {
    let cbr = |name: &str, rate: &str, from: &str, to: &str| {
        format!(
            "[traffic.{name}]\nkind = \"cbr\"\nrate = \"{rate}\"\npacket = \"1000 B\"\nfrom = \"{from}\"\nto = \"{to}\"\n"
        )
    };
    let traffic = [cbr("up", "3 Mbps", "user", "server"), cbr("down", "30 Mbps", "server", "user")].concat();
    let results = one_terminal(&traffic, &["gateway.spacelink.datagram_header=60 B"]);
    assert_near(goodput(&results, "up"), 2.0 * 972.0 / 1060.0, 0.003);
    assert_near(goodput(&results, "down"), 20.0 * 972.0 / 1060.0, 0.003);
    assert_near(counter(&results, "sent_bytes") / counter(&results, "sent_packets"), 1060.0, 1e-9);
    assert_near(counter(&results, "return_sent_bytes") * 8.0 / 30.0, 2e6, 0.003);
}

/// Each direction has its own carrier; what one direction needs on the other's is headers and acknowledgements.
#[test]
fn both_directions_fill_their_links_at_once() {
    let overrides = ["gateway.pep.buffer=4 MB", "gateway.return.transmit_queue.scheduler=drr"];
    let results = one_terminal(&[UPLOAD, DOWNLOAD].concat(), &overrides);
    let payload = 1460.0 / 1491.0;
    let (up, down) = (goodput(&results, "upload"), goodput(&results, "download"));
    assert!(up > 0.97 * 2.0 * payload && up < 2.0 * payload, "{up}");
    assert!(down > 0.99 * 20.0 * payload && down < 20.0 * payload, "{down}");
    let uploaded = up / payload * 1e6 * 30.0 / 8.0;
    let acks = counter(&results, "return_sent_bytes") - uploaded;
    // An acknowledgement for every 32 of 1677 packets/s, and for handshakes and windows now and then.
    assert!(acks > 30.0 * 52.0 * 32.0 && acks < 30.0 * 52.0 * 200.0, "{acks}");
}

/// Acknowledgements of downloads with priority do not wait behind uploads, and uploads leave room for them: 32 to 200 of 52
/// bytes in a second.
#[test]
fn acknowledgements_with_priority_take_their_share_of_the_return_link_without_waiting() {
    let run = |priority: &str| {
        let more = ["gateway.pep.buffer=4 MB", priority];
        one_terminal(&[UPLOAD, DOWNLOAD].concat(), &more)
    };
    let (waiting, first) = (run("run.runs=1"), run("gateway.spacelink.ack_priority=true"));
    let sent = |r: &Results, name: &str| counter(r, name) * 8.0 / 30.0;
    assert_near(sent(&waiting, "return_sent_bytes"), 2e6, 0.003);
    let (least, most) = (52.0 * 32.0 * 8.0, 52.0 * 200.0 * 8.0);
    let left = 2e6 - sent(&first, "return_sent_bytes");
    assert!((least..most).contains(&left), "{left} bit/s for acknowledgements");
    // They waited for the whole queue, and so did the PEP's buffer for downloads.
    let (before, after) = (goodput(&waiting, "download"), goodput(&first, "download"));
    assert!(after > 1.2 * before && after > 0.97 * 20.0 * 1460.0 / 1491.0, "{before}, then {after}");
}

/// Files of 200 KB in both directions, with losses on both links: each is delivered to the byte, and PEP buffers are empty
/// again (the run checks them against the connections).
#[test]
fn transfers_in_both_directions_are_delivered_to_the_byte() {
    let files = |name: &str, from: &str, to: &str| {
        format!(
            "[traffic.{name}]\nkind = \"files\"\nsources = 2\nsize = \"200 KB\"\ninterval = \"4 s\"\nfrom = \"{from}\"\nto = \"{to}\"\n"
        )
    };
    let traffic = [files("up", "user", "server"), files("down", "server", "user")].concat();
    for split in ["gateway.pep.split=[\"tcp\"]", "gateway.pep.split=[]"] {
        let overrides = [
            split,
            "gateway.return.transmit_queue.limit=30 packets",
            "link.satellite.loss=0.01",
            "link.satellite.reverse.loss=0.01",
            "run.warmup=0 s",
            "run.duration=60 s",
        ];
        let results = one_terminal(&traffic, &overrides);
        assert!(counter(&results, "return_transmit_drops") > 0.0, "{split}");
        for traffic in 0..2 {
            let flows: Vec<_> = results.flows.iter().filter(|flow| flow.traffic == traffic).collect();
            let completed = flows.iter().filter(|flow| flow.completed).count();
            assert!(completed > 20, "{split}: {completed}");
            assert!(flows.iter().all(|flow| !flow.completed || flow.delivered == 200_000));
            assert!(flows.iter().all(|flow| flow.delivered <= 200_000));
        }
    }
}

/// The same network seen in a mirror: an upload meets what a download meets whose gateway is the terminal.
#[test]
fn an_upload_is_a_download_in_a_mirror() {
    let network = |inside: &str, outside: &str, gateway: &str, slow: &str| {
        format!(
            r#"
            title = "A mirror"
            [run]
            duration = "60 s"
            [host.a]
            count = 3
            [host.b]
            [link.a]
            between = ["a", "{inside}"]
            rate = "50 Mbps"
            delay = "3 ms"
            [link.b]
            between = ["{outside}", "b"]
            rate = "10 Mbps"
            delay = "20 ms"
            [gateway]
            {gateway}
            [link.satellite]
            between = ["{inside}", "{outside}"]
            rate = "2 Mbps"
            delay = "250 ms"
            {slow}
            [traffic.files]
            kind = "files"
            sources = 3
            size = "300 KB"
            interval = "5 s"
            from = "a"
            to = "b"
            [traffic.pages]
            kind = "pages"
            sessions = 2
            object_size = "40 KB"
            think_time = "2 s"
            from = "b"
            to = "a"
            "#
        )
    };
    // The rate towards a is that of the other direction's regulator, in front of a link without a rate.
    let up = network(
        "terminal",
        "gateway",
        "regulator = { rate = \"8 Mbps\" }\nreturn.regulator = { rate = \"link\" }\npep.split = SPLIT",
        "reverse = {}",
    );
    let down = network(
        "gateway",
        "terminal",
        "regulator = { rate = \"link\" }\nreturn.regulator = { rate = \"8 Mbps\" }\npep.split = SPLIT",
        "reverse = {}",
    );
    for split in ["[\"tcp\"]", "[]"] {
        let flows = |text: &str| {
            let results = run(&text.replace("SPLIT", split), &["link.satellite.reverse.rate=100 Mbps"]);
            assert!(counter(&results, "sent_bytes") > 1e6 && counter(&results, "return_sent_bytes") > 1e6);
            results
                .flows
                .iter()
                .map(|flow| (flow.traffic, flow.opened, flow.closed, flow.delivered))
                .collect::<Vec<_>>()
        };
        let (up, down) = (flows(&up), flows(&down));
        assert!(up.len() > 40, "{}", up.len());
        assert_eq!(up, down);
    }
}

/// An unsplit download's acknowledgements wait behind an upload of datagrams that fill the terminal's queue of 100 packets
/// (0.6 s), unless a scheduler tells flows apart.
#[test]
fn acknowledgements_wait_in_the_terminal_queue() {
    let traffic = [
        DOWNLOAD,
        "[traffic.upload]\nkind = \"cbr\"\nrate = \"3 Mbps\"\npacket = \"1500 B\"\nfrom = \"user\"\nto = \"server\"",
    ]
    .concat();
    // One window per round trip of 522 ms, or of 522 ms + 600 ms.
    let delay = |scheduler: &str| {
        let scheduler = format!("gateway.return.transmit_queue.scheduler={scheduler}");
        let overrides = [
            "gateway.pep.split=[]",
            "gateway.return.transmit_queue.limit=100 packets",
            "transport.default.receive_window=100 KB",
            "traffic.download.flows=1",
            &scheduler,
        ];
        100.0 * 8.0 / goodput(&one_terminal(&traffic, &overrides), "download")
    };
    // With drr one packet of the upload at a time, 6 ms.
    assert!((522.0..522.0 + 20.0).contains(&delay("drr")), "{}", delay("drr"));
    assert!(delay("fifo") > 522.0 + 500.0, "{}", delay("fifo"));
}

/// The terminal's AQM is another than the gateway's, and drops ahead of the terminal's PEP.
#[test]
fn the_terminal_has_an_aqm_of_its_own() {
    let aqm =
        "[gateway.return.aqm]\nalgorithm = \"red\"\nmin_th = \"30 packets\"\nmax_th = \"120 packets\"\n";
    let overrides = ["gateway.aqm.algorithm=avqred", "gateway.pep.buffer=4 MB"];
    let results = one_terminal(&[UPLOAD, DOWNLOAD, aqm].concat(), &overrides);
    assert!(counter(&results, "return_aqm_drops") > 0.0 && counter(&results, "aqm_drops") > 0.0);
    let at = |name: &str| {
        results.drops.place.iter().filter(|&&place| results.places[place as usize] == *name).count()
    };
    assert_eq!(at("gateway return receive") as f64, counter(&results, "return_aqm_drops"));
    assert_eq!(at("gateway receive") as f64, counter(&results, "aqm_drops"));
    let has = |name: &str| results.series.iter().any(|series| series.name == name);
    assert!(has("queue_delay") && has("gateway return.queue_delay"));
}

/// Three terminals with 1, 2 and 2 Mbit/s: each fills its own return link, whatever the others do, and the records of
/// terminals add up to the counters.
#[test]
fn terminals_upload_over_their_own_return_links() {
    for queues_per in ["terminal", "carrier"] {
        let text = format!(
            r#"
            title = "Uploads of several terminals"
            [run]
            warmup = "10 s"
            duration = "30 s"
            [host.server]
            [host.home]
            [host.office]
            count = 4
            [terminal.basic]
            [terminal.better]
            count = 2
            [gateway]
            terminals = ["basic", "better"]
            queues_per = "{queues_per}"
            regulator = {{ rate = "20 Mbps" }}
            [link.ingress]
            between = ["server", "gateway"]
            delay = "10 ms"
            [link.basic]
            between = ["gateway", "basic"]
            delay = "250 ms"
            reverse = {{ rate = "1 Mbps" }}
            [link.better]
            between = ["better", "gateway"]
            rate = "2 Mbps"
            delay = "250 ms"
            reverse = {{}}
            [link.homes]
            between = ["basic", "home"]
            [link.offices]
            between = ["better", "office"]
            [traffic.homes]
            kind = "bulk"
            from = "home"
            to = "server"
            flows = 1
            [traffic.offices]
            kind = "bulk"
            from = "office"
            to = "server"
            flows = 4
            [traffic.download]
            kind = "bulk"
            from = "server"
            to = "office"
            flows = 4
            "#
        );
        let overrides = ["link.better.reverse.rate=100 Mbps", "gateway.return.transmit_queue.scheduler=drr"];
        let results = run(&text, &overrides);
        let payload = 1460.0 / 1491.0;
        assert_eq!(results.terminals.len(), 3);
        for (terminal, rate) in results.terminals.iter().zip([1.0, 2.0, 2.0]) {
            let back = terminal.back.as_ref().unwrap();
            assert_near(back.delivered_bytes as f64 * 8e-6 / 30.0, rate * payload, 0.03);
            assert_near(back.sent_bytes as f64 * 8e-6 / 30.0, rate, 0.005);
        }
        let sum: u64 = results.terminals.iter().map(|t| t.back.as_ref().unwrap().sent_bytes).sum();
        assert_eq!(sum as f64, counter(&results, "return_sent_bytes"));
        let downloaded: u64 = results.terminals.iter().map(|t| t.delivered_bytes).sum();
        assert_near(downloaded as f64 * 8e-6 / 30.0, 20.0 * payload, 0.01);
        let sent: u64 = results.terminals.iter().map(|t| t.sent_bytes).sum();
        assert_eq!(sent as f64, counter(&results, "sent_bytes"));
    }
}

/// Requests go up and pages come down from a server behind the terminal, and the other way round.
#[test]
fn pages_load_from_servers_behind_the_terminal() {
    let pages = "[traffic.pages]\nkind = \"pages\"\nsessions = 4\nobject_size = \"10 KB\"\nthink_time = \"1 s\"\n\
                 from = \"user\"\nto = \"server\"\n";
    let results = one_terminal(pages, &[]);
    let completed: Vec<_> = results.flows.iter().filter(|flow| flow.completed).collect();
    assert!(completed.len() > 40, "{}", completed.len());
    assert!(completed.iter().all(|flow| flow.delivered == 10_000));
}

// ----- return carriers -----------------------------------------------------------------------------------------------

/// Four terminals that share a return carrier of 8 Mbit/s in superframes of 25 ms, 500 ms from the request to the grant. A volume
/// request covers at most the queue of 500 kB, so a terminal gets at most 7.6 Mbit/s with it.
fn shared(request: &str, plans: [&str; 2], traffic: &str, extra: &[&str]) -> Results {
    let [basic, better] = plans;
    let text = format!(
        r#"
        title = "A return carrier"
        [run]
        warmup = "10 s"
        duration = "30 s"
        [host.server]
        [host.home]
        count = 2
        [host.office]
        count = 2
        [terminal.basic]
        count = 2
        plan = "basic"
        [terminal.better]
        count = 2
        plan = "better"
        [plan.basic.up]
        {basic}
        [plan.better.up]
        {better}
        [gateway]
        terminals = ["basic", "better"]
        regulator = {{ rate = "20 Mbps" }}
        [gateway.return]
        transmit_queue = {{ limit = "500 packets" }}
        regulator = {{ rate = "8 Mbps" }}
        [gateway.return.carrier]
        superframe = "25 ms"
        request = "{request}"
        [link.ingress]
        between = ["server", "gateway"]
        delay = "10 ms"
        [link.basic]
        between = ["gateway", "basic"]
        delay = "250 ms"
        [link.better]
        between = ["gateway", "better"]
        delay = "250 ms"
        [link.homes]
        between = ["basic", "home"]
        [link.offices]
        between = ["better", "office"]
        {traffic}
        "#
    );
    run(&text, extra)
}

fn cbr(from: &str, rate: &str) -> String {
    format!(
        "[traffic.{from}]\nkind = \"cbr\"\nrate = \"{rate}\"\npacket = \"1000 B\"\nfrom = \"{from}\"\nto = \"server\"\nflows = 2\n"
    )
}

/// Rate that each terminal sends [Mbit/s].
fn sent(results: &Results) -> Vec<f64> {
    results.terminals.iter().map(|t| t.back.as_ref().unwrap().sent_bytes as f64 * 8e-6 / 30.0).collect()
}

/// Four terminals that offer 5 Mbit/s each get 2; by weights 1 and 3, 1 and 3; beside committed 3 and 3, (8 - 6) / 4 more each.
#[test]
fn terminals_share_the_return_carrier_by_plan() {
    let traffic = [cbr("home", "5 Mbps"), cbr("office", "5 Mbps")].concat();
    for request in ["rbdc", "vbdc"] {
        for (plans, expected) in [
            (["", ""], [2.0, 2.0]),
            (["", "weight = 3"], [1.0, 3.0]),
            (["", "cir = \"3 Mbps\""], [0.5, 3.5]),
            (["pir = \"500 kbps\"", ""], [0.5, 3.5]),
            (["cra = \"1 Mbps\"", "weight = 2\npir = \"1.5 Mbps\""], [2.5, 1.5]),
        ] {
            let results = shared(request, plans, &traffic, &[]);
            for (found, expected) in
                sent(&results).into_iter().zip([expected[0], expected[0], expected[1], expected[1]])
            {
                assert_near(found, expected, 0.01);
            }
            let time: f64 =
                results.terminals.iter().map(|t| t.back.as_ref().unwrap().carrier_time.as_secs_f64()).sum();
            assert_near(time, 30.0, 0.002);
        }
    }
}

/// Of terminals that offer 1 Mbit/s each, two at 8 and two at 4 Mbit/s: 2/8 + 2/4 of the carrier's time.
#[test]
fn the_used_share_of_a_return_carrier_is_that_of_its_time() {
    let traffic = [cbr("home", "500 kbps"), cbr("office", "500 kbps")].concat();
    let links = [
        "gateway.return.regulator.rate=link",
        "link.basic.reverse.rate=8 Mbps",
        "link.better.reverse.rate=4 Mbps",
    ];
    let results = shared("rbdc", ["", ""], &traffic, &links);
    assert_near(
        results.back_summary.as_ref().unwrap().used_share,
        0.75 * sent(&results).iter().sum::<f64>() / 4.0,
        0.01,
    );
}

/// Terminals of which two send at 8 Mbit/s and two at 4 get a quarter of the time each: in rain, a terminal has fewer bits in
/// the same time. A committed rate counts bytes: 1.5 of 4 Mbit/s take 3/8 of the time, and leave 1/8 to each of the others.
#[test]
fn the_return_carrier_is_shared_by_time() {
    let traffic = [cbr("home", "5 Mbps"), cbr("office", "5 Mbps")].concat();
    let links = [
        "gateway.return.regulator.rate=link",
        "link.basic.reverse.rate=8 Mbps",
        "link.better.reverse.rate=4 Mbps",
    ];
    for (plan, expected) in [("", [2.0, 1.0]), ("cir = \"1.5 Mbps\"\npir = \"1.5 Mbps\"", [1.0, 1.5])] {
        let results = shared("rbdc", ["", plan], &traffic, &links);
        for (terminal, found) in sent(&results).into_iter().enumerate() {
            assert_near(found, expected[terminal / 2], 0.01);
        }
    }
}

/// A lone user who offers less than the carrier waits for a round trip; with a constant rate, for part of a superframe.
#[test]
fn requests_cost_a_round_trip_and_constant_rates_do_not() {
    let mean_delay = |request: &str, plan: &str| {
        let results = shared(request, [plan, ""], &cbr("home", "400 kbps"), &[]);
        let flows: Vec<_> = results.flows.iter().collect();
        assert!(flows.iter().all(|flow| flow.drops == 0), "{request} {plan}");
        for found in &sent(&results)[..2] {
            assert_near(*found, 0.4, 0.01);
        }
        flows.iter().map(|flow| flow.delay()).sum::<f64>() / flows.len() as f64
    };
    // 260 ms over the links and 1 ms to send. A packet is requested at the next superframe, 12.5 ms later on average, and
    // granted 500 ms after that, in a slot anywhere in the superframe.
    let volume = mean_delay("vbdc", "");
    assert!((0.261 + 0.5125..0.261 + 0.5125 + 0.030).contains(&volume), "{volume}");
    // A constant rate is there in every superframe.
    let constant = mean_delay("rbdc", "cra = \"800 kbps\"");
    assert!((0.261..0.261 + 0.050).contains(&constant), "{constant}");
    // A steady rate is requested for the packets to come.
    let rate = mean_delay("rbdc", "");
    assert!((0.261..0.261 + 0.100).contains(&rate), "{rate}");
}

/// TCP uploads and downloads at once over the shared carrier never exceed it; split connections fill it.
#[test]
fn tcp_fills_the_return_carrier() {
    let bulk = |from: &str, to: &str| {
        format!("[traffic.{from}_{to}]\nkind = \"bulk\"\nfrom = \"{from}\"\nto = \"{to}\"\nflows = 4\n")
    };
    let traffic = [bulk("home", "server"), bulk("office", "server"), bulk("server", "office")].concat();
    for (split, least) in [("[\"tcp\"]", 7.9), ("[]", 1.0)] {
        let split = format!("gateway.pep.split={split}");
        let results = shared(
            "rbdc",
            ["", "cir = \"1 Mbps\""],
            &traffic,
            &[&split, "transport.default.receive_window=2 MB"],
        );
        let sum: f64 = sent(&results).iter().sum();
        assert!((least..8.01).contains(&sum), "{split}: {sum}");
    }
}

// ----- ACK filtering -------------------------------------------------------------------------------------------------

/// An unsplit download over a return link of 128 kbit/s, which carries 400 acknowledgements of 40 bytes in a second, one for each
/// segment of 1500 bytes: 4.8 Mbit/s. Filtered, the acknowledgements that wait become one per connection, and the download fills the
/// forward link.
#[test]
fn filtered_acknowledgements_let_a_download_fill_the_link() {
    let traffic = "[traffic.download]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\nflows = 2\n";
    let run = |filter: bool| {
        let filter = format!("gateway.return.ack_filter={filter}");
        let overrides = [
            "gateway.pep.split=[]",
            "link.satellite.reverse.rate=128 kbps",
            "transport.default.receive_window=4 MB",
            "run.warmup=0 s",
            "run.duration=60 s",
            &filter,
        ];
        one_terminal(traffic, &overrides)
    };
    let rate = |results: &Results| {
        let late = |series: &str| {
            let values = &results.series.iter().find(|s| s.name == series).unwrap().values;
            let late = &values[values.len() / 2..];
            late.iter().sum::<f64>() / late.len() as f64 * 1e-6
        };
        late("throughput")
    };
    let (plain, filtered) = (run(false), run(true));
    assert_eq!((plain.filtered_acks, plain.drops.time.len()), (0, 0));
    assert_near(rate(&plain), 400.0 * 12_000.0 * 1e-6, 0.01);
    assert_near(rate(&filtered), 20.0, 0.01);
    // Every acknowledgement is sent, filtered, or waits at the end; the receivers send one for each segment.
    let acks = counter(&filtered, "return_sent_packets") + filtered.filtered_acks as f64;
    let segments = counter(&filtered, "sent_packets");
    assert!((acks / segments - 1.0).abs() < 0.02, "{acks} acknowledgements of {segments} segments");
    assert!(
        counter(&filtered, "return_queue_delay_max") < 0.02,
        "{}",
        counter(&filtered, "return_queue_delay_max")
    );
    assert!(counter(&plain, "return_queue_delay_max") > 0.5, "{}", counter(&plain, "return_queue_delay_max"));
}

/// With a loss in ten thousand and a return link of 64 kbit/s, connections with SACK and without recover: they carry half as much
/// again with the filter.
#[test]
fn connections_recover_with_filtered_acknowledgements() {
    let traffic = "[traffic.download]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\nflows = 2\n";
    for sack in ["true", "false"] {
        let sack = format!("transport.default.sack={sack}");
        let rate = |filter: &str| {
            let overrides = [
                "gateway.pep.split=[]",
                "link.satellite.reverse.rate=64 kbps",
                "link.satellite.loss=0.0001",
                "transport.default.abc=true",
                "run.duration=120 s",
                "transport.default.receive_window=4 MB",
                &sack,
                filter,
            ];
            let results = one_terminal(traffic, &overrides);
            assert!(counter(&results, "link_losses") > 0.0);
            goodput(&results, "download")
        };
        let (plain, filtered) =
            (rate("gateway.return.ack_filter=false"), rate("gateway.return.ack_filter=true"));
        assert!(filtered > 1.5 * plain, "{sack}: {filtered} filtered, {plain} not");
    }
}

/// Of split uploads the clients' acknowledgements end at the terminal's PEP, and none waits for another. Some close their
/// connections while others begin: the return link carries less than they offer.
#[test]
fn acknowledgements_of_split_uploads_are_not_filtered() {
    let traffic = "[traffic.up]\nkind = \"files\"\nsources = 20\nsize = \"30 KB\"\nfrom = \"user\"\nto = \"server\"\n\
                   interval = { exponential = \"2 s\" }\n";
    let run = |filter: &str| one_terminal(traffic, &["gateway.pep.buffer=4 MB", filter]);
    let (plain, filtered) = (run("gateway.return.ack_filter=false"), run("gateway.return.ack_filter=true"));
    assert!(plain.flows.iter().filter(|flow| flow.completed).count() > 200);
    assert_eq!(filtered.filtered_acks, 0);
    assert_eq!(format!("{:?}", filtered.flows), format!("{:?}", plain.flows));
}
