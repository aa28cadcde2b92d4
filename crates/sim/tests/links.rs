//! What links do to packets, against what can be worked out by hand.

mod common;

use bentpipe_scenario::Scenario;
use bentpipe_sim::Results;
use common::results;

/// Two hosts on a wire of 1 Mbit/s and 50 ms whose keys and traffic the tests give.
fn wire(link: &str, traffic: &str) -> Results {
    let text = format!(
        "title = \"A wire\"\n\
         run = {{ duration = \"10 s\", subject = \"wire\" }}\n\
         host = {{ a = {{}}, b = {{}} }}\n\
         transport.plain = {{ mss = \"1000 B\" }}\n\
         [link.wire]\n\
         between = [\"a\", \"b\"]\n\
         {link}\n\
         [traffic.t]\n\
         from = \"a\"\n\
         to = \"b\"\n\
         {traffic}\n"
    );
    results(&Scenario::parse(&text, "wire.toml", &[]).unwrap_or_else(|e| panic!("{e}")), 1)
}

const WIRE: &str = "rate = \"1 Mbps\"\ndelay = \"50 ms\"\nqueue = { limit = \"1000 packets\" }\n";
/// 1000-byte datagrams, the n-th at n x 10 ms: a thousand, the last at the end.
const CBR: &str = "kind = \"cbr\"\nflows = 1\nrate = \"800 kbps\"\npacket = \"1000 B\"\nstart = \"10 ms\"\n";
const BULK: &str =
    "kind = \"bulk\"\nflows = 1\ntransport = \"plain\"\nbytes = \"100 KB\"\nstart = \"10 ms\"\n";

/// The packets that the wire lost: when each had come to the wire, in units of 10 ms, and its length.
fn lost(r: &Results) -> Vec<(u32, u32)> {
    let drops = r.drops.time.iter().zip(&r.drops.bytes).zip(&r.drops.reason);
    drops
        .filter(|(_, reason)| **reason == 2)
        .map(|((t, bytes), _)| ((t * 100.0).round() as u32, *bytes))
        .collect()
}

#[test]
fn the_packets_with_the_given_numbers_are_lost() {
    for at in ["before_queue", "after_queue"] {
        let r = wire(&format!("{WIRE}loss = {{ nth = [1, 5, 17], at = \"{at}\" }}"), CBR);
        assert_eq!(lost(&r), [(1, 1000), (5, 1000), (17, 1000)], "{at}");
        let queued = if at == "before_queue" { 997 } else { 1000 };
        assert_eq!(r.summary.offered_packets, queued, "{at}");
    }
}

/// Of a transfer's packets only those with payload are lost: a SYN and the client's ACKs do not count. 40 bytes of
/// headers make 1040 of a full segment.
#[test]
fn only_packets_with_payload_are_lost_where_data_is_asked_for() {
    let there = wire(&format!("{WIRE}loss = {{ nth = [1, 2, 60], of = \"data\" }}"), BULK);
    assert_eq!(lost(&there).iter().map(|l| l.1).collect::<Vec<_>>(), [1040; 3]);
    assert!(there.flows[0].completed);
    let back = wire(&format!("{WIRE}reverse.loss = {{ probability = 0.9, of = \"data\" }}"), BULK);
    assert_eq!(lost(&back), []);
    let all = wire(&format!("{WIRE}loss = {{ nth = [1] }}"), BULK);
    assert_eq!(
        lost(&all),
        [(1, 40), (106, 40)],
        "the SYN, and the answer to the next, a second and 50 ms later"
    );
}

/// 1600 kbit/s of 1000-byte datagrams at a link of 1 Mbit/s, of which half are lost before the queue: the rest fit.
#[test]
fn what_is_lost_before_the_queue_takes_no_room_in_it() {
    let heavy = CBR.replace("800 kbps", "1600 kbps");
    let queue = WIRE.replace("1000 packets", "50 packets");
    let early = wire(&format!("{queue}loss = {{ probability = 0.5, at = \"before_queue\" }}"), &heavy);
    // Standard error of 2000 draws: 22 packets; the bound is five of it.
    assert!(early.summary.offered_packets.abs_diff(1000) < 112, "{}", early.summary.offered_packets);
    assert_eq!(early.summary.overflow_drops, 0);
    let late = wire(&format!("{queue}loss = 0.5"), &heavy);
    assert!(late.summary.overflow_drops > 600, "{}", late.summary.overflow_drops);
    assert!(late.summary.offered_packets == 1999);
}
