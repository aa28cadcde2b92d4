//! The spacelink over a network in memory, on a clock that the tests turn.

mod net;

use std::time::Duration;

use bentpipe_live::spacelink::{Event, Identity, NotSent, Reason};
use bentpipe_units::Rate;

use net::{GATEWAY, Net, Source, TERMINAL, bytes, open, setups};

const ROUND_TRIP: Duration = Duration::from_millis(600);

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn ends_find_each_other_in_two_round_trips() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    assert_eq!(net.hosts[TERMINAL].saw(|e| *e == Event::Up), Some(2 * ROUND_TRIP));
    assert_eq!(net.hosts[GATEWAY].saw(|e| *e == Event::Up), Some(ROUND_TRIP * 3 / 2));
    assert_eq!(net.hosts[GATEWAY].link.peer(), Some(net.hosts[TERMINAL].address));
}

#[test]
fn a_stream_carries_bytes_both_ways_with_half_close_and_credits() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    assert_eq!(net.hosts[TERMINAL].write(up, 3000), 3000);
    net.hosts[TERMINAL].link.finish(up);
    net.run(net.time() + s(1.0));
    let (&down, stream) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    assert_eq!((stream.header, stream.read, stream.finished), (Some(open()), 3000, true));
    // The other half is open still.
    assert_eq!(net.hosts[GATEWAY].write(down, 500_000), 500_000);
    net.run(net.time() + s(1.0));
    assert_eq!(net.hosts[TERMINAL].streams[&up].read, 500_000);
    assert!(!net.hosts[TERMINAL].streams[&up].finished);
    net.hosts[GATEWAY].link.finish(down);
    net.run(net.time() + s(3.0));
    assert_eq!((net.hosts[GATEWAY].acknowledged, net.hosts[TERMINAL].acknowledged), (500_000, 3000));
    for host in &net.hosts {
        assert!(host.streams.is_empty() && host.saw(|e| matches!(e, Event::Closed(_))).is_some());
        assert_eq!(host.link.stats().streams, 0);
    }
}

#[test]
fn a_reset_reaches_the_far_end_though_it_does_not_read() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[GATEWAY].reads = false;
    net.hosts[TERMINAL].write(up, 10_000);
    net.run(net.time() + s(1.0));
    let (&down, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    net.hosts[TERMINAL].link.reset(up);
    net.run(net.time() + s(0.4));
    assert!(net.hosts[GATEWAY].saw(|e| *e == Event::Reset(down)).is_some());
    // Its key is void, at both ends.
    assert_eq!(net.hosts[GATEWAY].link.write(down, b"x"), 0);
    assert_eq!(net.hosts[GATEWAY].link.read(down, &mut [0; 10]), 0);
    assert_eq!(net.hosts[TERMINAL].link.write(up, b"x"), 0);
}

#[test]
fn ip_packets_of_any_length_pass() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    assert_eq!(net.hosts[TERMINAL].link.datagram(&[0; 100]), Err(NotSent::Down));
    net.connect();
    let most = net.hosts[TERMINAL].link.max_datagram().unwrap();
    assert!((1400..1472).contains(&most), "{most}");
    let lengths = [1, 20, most - 1, most, most + 1, 1500, 9000, 65_535];
    for length in lengths {
        net.hosts[TERMINAL].link.datagram(&bytes(0, length)).unwrap();
    }
    assert_eq!(net.hosts[TERMINAL].link.datagram(&[]), Err(NotSent::Length));
    assert_eq!(net.hosts[TERMINAL].link.datagram(&[0; 65_536]), Err(NotSent::Length));
    net.run(net.time() + s(1.0));
    let came: Vec<Vec<u8>> = net.hosts[GATEWAY]
        .events
        .iter()
        .filter_map(
            |(_, event)| if let Event::Datagram(packet) = event { Some(packet.clone()) } else { None },
        )
        .collect();
    assert_eq!(came, lengths.map(|length| bytes(0, length)));
    assert_eq!(net.hosts[TERMINAL].link.stats().fragmented_ip, 4);
}

#[test]
fn a_wrong_certificate_is_refused_at_both_ends() {
    for wrong in [GATEWAY, TERMINAL] {
        let mut setups = setups(None, ROUND_TRIP);
        setups[wrong].peer = Identity::generate("somebody").unwrap().certificate();
        let mut net = Net::new(&setups, 1);
        net.run(s(20.0));
        for host in &net.hosts {
            assert!(host.saw(|e| *e == Event::Up).is_none());
            let refused = |e: &Event| matches!(e, Event::Failed(Reason::Refused(_)));
            assert!(host.saw(refused).is_some(), "{:?}", host.events);
        }
    }
}

#[test]
fn a_paced_stream_fills_the_link() {
    let rate = Rate::from_bps(20_000_000);
    let mut net = Net::new(&setups(Some(rate), ROUND_TRIP), 1);
    net.ways[GATEWAY].rate = Some(rate);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 1);
    net.run(net.time() + s(1.0));
    let (&stream, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    let next = net.time();
    Source { end: GATEWAY, stream, rate, chunk: 1360, left: u64::MAX, counts: 65, next }
        .run(&mut net, s(10.0));
    let goodput = net.hosts[TERMINAL].goodput(50, 100);
    // A chunk of 1360 bytes takes 65 or 66 bytes more on the wire.
    assert!(goodput > 20e6 * 1360.0 / 1427.0, "{goodput}");
    assert_eq!(net.ways[GATEWAY].overflown, 0);
}
