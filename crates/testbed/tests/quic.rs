//! QUIC between hosts with real sockets, over an emulated link.

use serde_json::{Value, json};

use crate::common::two;
use crate::load::{flows, has_completed, late, number, pages, play, run_until, run_until_kept};

/// Time limit of a run that ends on a condition [s].
const HANGS: f64 = 280.0;

const TRANSPORT: &str = "[transport.quic]\nprotocol = \"quic\"\nmax_udp_payload = \"1350 B\"\n";

/// Files over a link that loses, duplicates and reorders packets: every byte is correct, and none completes in less than the
/// round trip of the handshake and that of the request.
#[test]
fn files_over_quic_arrive_intact_over_a_link_with_loss_and_reordering() {
    let Some(spaces) = two() else { return };
    for family in [4, 6] {
        let traffic = format!(
            "{TRANSPORT}[traffic.files]\nkind = \"files\"\nfrom = \"server\"\nto = \"client\"\ntransport = \"quic\"\n\
             sources = 5\ninterval = \"300 ms\"\nsize = {{ uniform = [\"1 KB\", \"200 KB\"] }}\n"
        );
        let extras =
            json!({ "loss": 0.01, "duplicate": 0.02, "reorder": { "probability": 0.02, "by_s": 0.01 } });
        let (mut plan, out) =
            play(&spaces, &traffic, json!({ "files": { "family": family } }), HANGS, extras);
        let (flows, _, load, _) = run_until(&spaces, &mut plan, &out, |load| has_completed(load, 25));
        let done: Vec<_> = flows.iter().filter(|flow| flow["completed"] == json!(true)).collect();
        assert!(done.len() > 25, "{load}");
        for flow in &done {
            assert_eq!(flow["intact"], json!(true), "{flow:?}");
            assert!(number(flow, "connected") >= 0.04 && number(flow, "first_byte") >= 0.08, "{flow:?}");
            assert!(number(flow, "completion_time") >= 0.08, "{flow:?}");
            assert!((1e3..=200e3).contains(&number(flow, "delivered")), "{flow:?}");
        }
        assert_eq!(load["traffic"]["files"]["failed"], json!(0));
        assert_eq!(load["traffic"]["files"]["corrupt"], json!(0));
    }
}

/// A page over HTTP/3 takes one connection, with the handshake, the first object and all others in a round trip each.
#[test]
fn pages_over_quic_take_one_connection_with_a_stream_per_object() {
    let Some(spaces) = two() else { return };
    let traffic = format!(
        "{TRANSPORT}tls_flight = \"2 KB\"\n[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\n\
         transport = \"quic\"\nsessions = 1\nobjects_per_page = 9\nhttp = \"3\"\nobject_size = \"1 KB\"\n\
         think_time = \"10 ms\"\n"
    );
    let (mut plan, out) = play(&spaces, &traffic, json!({ "web": {} }), HANGS, json!({}));
    let (load, _) = run_until_kept(&spaces, &mut plan, &|load| has_completed(load, 3));
    let (pages, flows) = (pages(&out), flows(&out));
    assert!(pages.len() >= 3, "{load}");
    let lengths: Vec<_> = pages
        .iter()
        .map(|page| {
            let time = |key: &str| page[key].as_f64().unwrap();
            let own: Vec<_> = flows
                .iter()
                .filter(|flow| (time("opened")..=time("closed")).contains(&number(flow, "opened")))
                .collect();
            assert_eq!(own.len(), 1, "{page}");
            assert!(own[0]["intact"] == json!(true) && own[0]["completed"] == json!(true), "{page}");
            assert_eq!(number(own[0], "delivered"), 9.0 * 1000.0);
            time("closed") - time("opened")
        })
        .collect();
    assert!(lengths.iter().all(|took| *took >= 0.12), "{lengths:?}");
    // A busy machine adds to the three round trips.
    let most = 0.16 + late(&load);
    assert!(lengths.iter().any(|took| *took < most), "a fourth round trip: {lengths:?}");
}

/// Endless transfers with a lifetime of 500 ms, one after the other: each leaves on time, with content at no more than its rate
/// cap.
#[test]
fn transfers_over_quic_leave_on_time_and_keep_their_rate_cap() {
    let Some(spaces) = two() else { return };
    let traffic = format!(
        "{TRANSPORT}[traffic.lives]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\ntransport = \"quic\"\n\
         lifetime = \"500 ms\"\nrate_cap = \"4 Mbps\"\n"
    );
    let (mut plan, out) = play(&spaces, &traffic, json!({ "lives": {} }), HANGS, json!({}));
    // On a busy machine a transfer may leave before the server's first byte arrives.
    let enough = |load: &Value| load["opened"].as_u64() > Some(6) && load["bytes"].as_u64() > Some(0);
    let (flows, _, load, _) = run_until(&spaces, &mut plan, &out, enough);
    let late = late(&load);
    let left: Vec<_> = flows.iter().filter(|flow| !flow["closed"].is_null()).collect();
    assert!(left.len() >= 6, "{load}");
    assert!(flows.iter().any(|flow| flow["intact"] == json!(true)), "{load}");
    for (flow, due) in left.into_iter().zip((0..).map(|number| 0.5 * f64::from(number))) {
        let took = number(flow, "closed") - number(flow, "opened");
        assert!((due - 1e-6..=due + late + 1e-6).contains(&number(flow, "opened")), "{flow:?}");
        assert!((0.5 - late - 1e-6..=0.5 + late + 1e-6).contains(&took), "{flow:?}");
        assert!(flow["failed"] == json!(false) && flow["completed"] == json!(false), "{flow:?}");
        let bytes = number(flow, "delivered");
        assert!(flow["intact"] == json!(true) || bytes == 0.0, "{flow:?}");
        assert!(bytes <= 4e6 / 8.0 * took + 2.0 * 1350.0, "{flow:?}");
    }
}
