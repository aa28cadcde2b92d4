//! The spacelink over a simulated network, on a virtual clock.

mod counters;
mod hub;
mod net;
mod udp;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_spacelink::{Event, Identity, NotSent, Reason, Spacelink};
use bentpipe_units::Rate;

use net::{GATEWAY, Net, Source, TERMINAL, bytes, open, setups};

const ROUND_TRIP: Duration = Duration::from_millis(600);

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn ends_connect_in_two_round_trips() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    assert_eq!(net.hosts[TERMINAL].saw(|e| *e == Event::Up), Some(2 * ROUND_TRIP));
    assert_eq!(net.hosts[GATEWAY].saw(|e| *e == Event::Up), Some(ROUND_TRIP * 3 / 2));
    assert_eq!(net.hosts[GATEWAY].link.peer(), Some(net.hosts[TERMINAL].address));
}

#[test]
fn streams_carry_bytes_both_ways_with_half_close_and_credits() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    assert_eq!(net.hosts[TERMINAL].write(up, 3000), 3000);
    net.hosts[TERMINAL].link.finish(up);
    net.run(net.time() + s(1.0));
    let (&down, stream) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    assert_eq!((stream.header, stream.read, stream.finished), (Some(open()), 3000, true));
    // The other direction is still open.
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
fn a_reset_reaches_a_peer_that_does_not_read() {
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
    // Its key is invalid at both ends.
    assert_eq!(net.hosts[GATEWAY].link.write(down, b"x"), 0);
    assert_eq!(net.hosts[GATEWAY].link.read(down, &mut [0; 10]), 0);
    assert_eq!(net.hosts[TERMINAL].link.write(up, b"x"), 0);
}

#[test]
fn ip_packets_of_any_length_are_carried() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    assert_eq!(net.hosts[TERMINAL].link.datagram(&[0; 100]), Err(NotSent::Down));
    net.connect();
    let most = net.hosts[TERMINAL].link.max_datagram().unwrap();
    assert!((1400..1472).contains(&most), "{most}");
    // Twice as long as a datagram: with their headers, the halves do not fit, so there are three fragments.
    let lengths = [1, 20, most - 1, most, most + 1, 1500, 2 * (most + 1), 9000, 65_535];
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
    let (sent, received) = (net.hosts[TERMINAL].link.stats(), net.hosts[GATEWAY].link.stats());
    assert_eq!((sent.sent_ip, sent.fragmented_ip), (9, 5));
    assert_eq!((received.received_ip, received.unassembled_ip, received.malformed), (9, 0, 0));
}

/// Each packet is sent alone, and what it takes is counted: packet numbers of one byte to three, and an acknowledgement in one
/// datagram of each round.
#[test]
fn the_length_of_a_packet_on_the_wire_is_known_before_it_is_sent() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    assert_eq!(net.hosts[TERMINAL].link.wire_len(100), 100);
    net.connect();
    // IPv4 and UDP, a short header with a packet number of two bytes, a tag, and a DATAGRAM frame's type and length (RFC 9000,
    // section 17.3; RFC 9221, section 4), are 28 + 11 + 16 + 3 = 58 bytes. A type follows, or the 5 bytes of a fragment's header.
    assert_eq!(net.hosts[TERMINAL].link.wire_len(100), 100 + 58 + 1);
    assert_eq!(net.hosts[TERMINAL].link.wire_len(1500), 1500 + 2 * (58 + 5));
    let most = net.hosts[TERMINAL].link.max_datagram().unwrap() as u32;
    for _ in 0..200 {
        let mut beyond = 0;
        for length in [100, 1378, most, most + 1, 1500, 9000] {
            let expected = u64::from(net.hosts[TERMINAL].link.wire_len(length));
            let before = net.hosts[TERMINAL].link.stats();
            net.hosts[TERMINAL].link.datagram(&bytes(0, length as usize)).unwrap();
            net.flush();
            let after = net.hosts[TERMINAL].link.stats();
            let pieces = after.sent_datagrams - before.sent_datagrams;
            let sent = after.sent_bytes - before.sent_bytes;
            assert!(sent.abs_diff(expected) <= pieces || sent > expected, "{length}: {sent}, not {expected}");
            beyond += sent.saturating_sub(expected + pieces);
        }
        assert!(beyond <= 16, "{beyond} bytes besides packets");
        net.run(net.time() + s(0.05));
    }
}

#[test]
fn a_wrong_certificate_is_refused_at_both_ends() {
    for wrong in [GATEWAY, TERMINAL] {
        let mut setups = setups(None, ROUND_TRIP);
        setups[wrong].peer = Some(Identity::generate("another").unwrap().certificate());
        let mut net = Net::new(&setups, 1);
        net.run(s(20.0));
        // A quarter of a second until the next attempt, and twice as long each time, at most two seconds.
        let failed = |(at, event): &(Duration, Event)| matches!(event, Event::Failed(_)).then_some(*at);
        let failed: Vec<_> = net.hosts[TERMINAL].events.iter().filter_map(failed).collect();
        let between: Vec<_> = failed.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let waited: Vec<_> = between[..5].iter().map(|time| (*time - failed[0]).as_millis()).collect();
        assert_eq!(waited, [250, 500, 1000, 2000, 2000]);
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
    net.directions[GATEWAY].rate = Some(rate);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 1);
    net.run(net.time() + s(1.0));
    let (&stream, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    let next = net.time();
    Source { end: GATEWAY, stream, rate, chunk: 1360, left: u64::MAX, counts: 65, next }
        .run(&mut net, s(10.0));
    let goodput = net.hosts[TERMINAL].goodput(50, 100);
    // A chunk of 1360 bytes takes 65 or 66 more bytes on the wire.
    assert!(goodput > 20e6 * 1360.0 / 1427.0, "{goodput}");
    assert_eq!(net.directions[GATEWAY].overflows, 0);
}

/// A download at 20 Mbit/s over an impaired link.
struct Download {
    net: Net,
    source: Source,
}

impl Download {
    fn new(rate: Rate, bytes: u64, seed: u64) -> Self {
        let mut net = Net::new(&setups(Some(rate), ROUND_TRIP), seed);
        net.directions[GATEWAY].rate = Some(rate);
        net.connect();
        let up = net.hosts[TERMINAL].open().unwrap();
        net.hosts[TERMINAL].write(up, 1);
        net.run(net.time() + s(1.0));
        let (&stream, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
        let next = net.time();
        Self {
            net,
            source: Source { end: GATEWAY, stream, rate, chunk: 1360, left: bytes, counts: 66, next },
        }
    }

    fn run(&mut self, until: Duration) {
        self.source.run(&mut self.net, until);
    }
}

/// Goodput of chunks of 1360 bytes, each 65 bytes longer on the wire, at 20 Mbit/s or another rate.
fn ceiling(rate: Rate) -> f64 {
    rate.as_bps() as f64 * 1360.0 / 1425.0
}

#[test]
fn random_loss_costs_only_retransmissions() {
    let rate = Rate::from_bps(20_000_000);
    for lose in [0.01, 0.02, 0.05] {
        let mut download = Download::new(rate, u64::MAX, 3);
        for way in &mut download.net.directions {
            way.lose = lose;
        }
        download.run(s(8.0));
        let before = download.net.hosts[GATEWAY].link.stats().written_bytes;
        download.run(s(33.0));
        let way = &download.net.directions[GATEWAY];
        let sent = download.net.hosts[GATEWAY].link.stats();
        let share = way.lost as f64 / sent.sent_datagrams as f64;
        // New bytes leave at the rate, less retransmissions.
        let goodput = (sent.written_bytes - before) as f64 * 8.0 / 25.0;
        let ceiling = (1.0 - share) * ceiling(rate);
        assert!((0.995 * ceiling..1.005 * ceiling).contains(&goodput), "{lose}: {goodput} of {ceiling}");
        // They arrive in order at most three round trips later.
        let late = sent.written_bytes - download.net.hosts[TERMINAL].read;
        assert!(late as f64 * 8.0 < 20e6 * 3.5 * 0.6, "{lose}: {late} bytes late");
        // Never more than the rate, including lost packets; every retransmission belongs to a loss.
        assert!(sent.sent_bytes * 8 <= 20_000_000 * 33, "{lose}");
        assert!(
            sent.lost_packets <= way.lost + 2,
            "{lose}: {} found lost of {}",
            sent.lost_packets,
            way.lost
        );
        assert_eq!(way.overflows, 0, "{lose}");
    }
}

#[test]
fn bytes_survive_loss_duplication_and_reordering() {
    let mut download = Download::new(Rate::from_bps(20_000_000), 10_000_000, 4);
    for way in &mut download.net.directions {
        (way.lose, way.double, way.late) = (0.02, 0.05, 0.1);
        way.outage = Some((s(5.0), s(6.0)));
    }
    download.run(s(40.0));
    let [gateway, terminal] = &download.net.hosts;
    // Every byte is compared when it is read.
    assert_eq!((terminal.read, gateway.acknowledged), (10_000_000, 10_000_000));
    assert!(terminal.saw(|e| matches!(e, Event::Finished(_))).is_some());
}

#[test]
fn an_idle_connection_sends_keep_alives() {
    let rate = Rate::from_bps(2_000_000);
    let mut net = Net::new(&setups(Some(rate), ROUND_TRIP), 1);
    net.connect();
    net.run(net.time() + s(4.0));
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 1000);
    let begin = net.time();
    while net.time() < begin + s(1.0) {
        net.run(net.time() + s(0.02));
        assert!(!net.hosts[TERMINAL].link.stats().silent, "{:?} after the question", net.time() - begin);
    }
    // An unanswered packet is noticed after a pause as well.
    net.directions[GATEWAY].outage = Some((net.time(), net.time() + s(9.0)));
    net.run(net.time() + s(4.0));
    net.hosts[TERMINAL].write(up, 1000);
    net.run(net.time() + s(2.0));
    assert!(net.hosts[TERMINAL].link.stats().silent);
}

#[test]
fn the_link_is_full_within_a_round_trip_after_an_outage() {
    let rate = Rate::from_bps(20_000_000);
    // An outage of both directions, or of the data's direction only: then packets of the peer arrive without acknowledgements.
    // Two round trips of data are lost, and a third until answers in flight have arrived.
    for (directions, most) in [(&[GATEWAY, TERMINAL][..], 4_000_000), (&[GATEWAY], 5_500_000)] {
        let mut download = Download::new(rate, u64::MAX, 5);
        for &way in directions {
            download.net.directions[way].outage = Some((s(6.0), s(36.0)));
        }
        let lost = lost_in_outage(download, rate);
        assert!((2_500_000..most).contains(&lost), "{lost}");
    }
}

/// Bytes lost in an outage from 6 to 36 s, after which everything arrives.
fn lost_in_outage(mut download: Download, rate: Rate) -> u64 {
    download.run(s(45.0));
    let host = &download.net.hosts[TERMINAL];
    assert!(host.saw(|e| matches!(e, Event::Down(_))).is_none());
    assert_eq!(host.goodput(70, 360), 0.0);
    // The answer to a ping sent within 100 ms (600 ms), then a packet's way (300 ms): full from the eleventh tenth on.
    let full = (360..450).find(|&at| host.tenths[at] > 0).unwrap();
    assert!(full <= 370, "{full}");
    for at in full + 1..450 {
        let goodput = host.goodput(at, at + 1);
        assert!(goodput > 0.985 * ceiling(rate), "{goodput} in tenth {at}");
    }
    // Retransmissions went at the link's rate.
    assert_eq!(download.net.directions[GATEWAY].overflows, 0);
    download.net.hosts[GATEWAY].link.stats().lost_bytes
}

#[test]
fn a_stream_with_many_gaps_is_reordered() {
    let rate = Rate::from_bps(200_000_000);
    let mut download = Download::new(rate, 45_000_000, 6);
    download.net.directions[GATEWAY].lose = 0.05;
    download.run(s(12.0));
    assert_eq!(download.net.hosts[TERMINAL].read, 45_000_000);
    let finished = download.net.hosts[TERMINAL].saw(|e| matches!(e, Event::Finished(_))).unwrap();
    // From 3.1 s on: 2 s at 95 % of the link, a packet's way, and four more round trips. Of 33 000 packets some are lost three
    // times, hardly one five times.
    assert!(finished < s(8.1), "{finished:?}");
}

#[test]
fn a_restarted_end_reconnects() {
    for end in [TERMINAL, GATEWAY] {
        let setups = setups(None, ROUND_TRIP);
        let mut net = Net::new(&setups, 7);
        net.connect();
        for _ in 0..3 {
            let up = net.hosts[TERMINAL].open().unwrap();
            net.hosts[TERMINAL].write(up, 1000);
        }
        net.run(s(5.0));
        let other = 1 - end;
        assert_eq!(net.hosts[other].streams.len(), 3);
        net.restart(end, &setups);
        // The other end sends something within these 20 ms, or nothing; both must work.
        let busy = *net.hosts[other].streams.first_key_value().unwrap().0;
        net.hosts[other].write(busy, 1000);
        net.run(s(12.0));
        let saw = |wanted: &dyn Fn(&Event) -> bool| net.hosts[other].saw(wanted);
        let down = saw(&|e| matches!(e, Event::Down(_))).unwrap();
        assert!(down <= s(5.0) + ROUND_TRIP * 2, "{down:?}");
        let resets = net.hosts[other].events.iter().filter(|(_, e)| matches!(e, Event::Lost(_))).count();
        assert_eq!(resets, 3);
        assert!(net.hosts.iter().all(|host| host.up && host.link.is_up()), "{:?}", net.hosts[other].events);
        let ups: Vec<_> =
            net.hosts[other].events.iter().filter(|(_, e)| *e == Event::Up).map(|(at, _)| *at).collect();
        assert!(ups.len() == 2 && ups[1] <= s(5.0) + ROUND_TRIP * 4, "{ups:?}");
        // Streams work as before.
        let up = net.hosts[TERMINAL].open().unwrap();
        net.hosts[TERMINAL].write(up, 5000);
        net.run(s(13.0));
        assert_eq!(net.hosts[GATEWAY].streams.values().map(|stream| stream.read).sum::<u64>(), 5000);
    }
}

#[test]
fn a_stopping_end_notifies_the_peer() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 1);
    net.connect();
    let now = net.now;
    net.hosts[GATEWAY].link.close(now);
    net.run(net.time() + s(0.4));
    assert!(net.hosts[TERMINAL].saw(|e| *e == Event::Down(Reason::Closed)).is_some());
    net.run(s(45.0));
    // The gateway has stopped; the terminal keeps trying, nine seconds each time.
    assert!(!net.hosts[TERMINAL].up);
    assert!(net.hosts[TERMINAL].events.iter().filter(|(_, e)| matches!(e, Event::Failed(_))).count() > 3);
}

#[test]
fn garbage_is_ignored() {
    let mut download = Download::new(Rate::from_bps(5_000_000), 2_000_000, 8);
    let net = &mut download.net;
    let mut received = 0;
    for round in 0..600u64 {
        for end in [GATEWAY, TERMINAL] {
            let from = [net.hosts[1 - end].address, "198.51.100.7:9".parse().unwrap()][net.random(2)];
            let bytes = match (net.random(3), net.in_transit(end)) {
                // A replayed datagram, a corrupted one, and random bytes.
                (0, Some(again)) => again,
                (1, Some(mut bent)) => {
                    let at = net.random(bent.len());
                    bent[at] ^= 1 << net.random(8);
                    bent.truncate(1 + net.random(bent.len()));
                    bent
                }
                _ => {
                    let length = net.random(1600);
                    (0..length).map(|_| net.random(256) as u8).collect()
                }
            };
            let now = net.now;
            net.hosts[end].link.receive(now, from, None, (round % 4) as u8, &bytes);
            received += 1;
        }
        let until = net.time() + s(0.01);
        download.source.run(net, until);
    }
    assert_eq!(received, 1200);
    download.run(s(20.0));
    assert_eq!(download.net.hosts[TERMINAL].read, 2_000_000);
    for host in &download.net.hosts {
        assert!(host.saw(|e| matches!(e, Event::Down(_))).is_none(), "{:?}", host.events);
    }
}

#[test]
fn connection_floods_do_not_keep_the_peer_out() {
    let setups = setups(None, ROUND_TRIP);
    let mut net = Net::new(&setups, 9);
    // Initial packets, each from another address, of clients that never continue.
    let stranger = |net: &mut Net, n: u16| {
        let mut setup = net::setups(None, ROUND_TRIP);
        setup[TERMINAL].seed = Some([n as u8; 32]);
        let mut link = Spacelink::connect(&setup[TERMINAL], net.hosts[GATEWAY].address, net.now).unwrap();
        let mut out = Vec::new();
        link.transmit(net.now, 1, &mut out).unwrap();
        let from = format!("203.0.113.{}:{}", n % 250, 1000 + n).parse().unwrap();
        let now = net.now;
        net.hosts[GATEWAY].link.receive(now, from, None, 0, &out);
        net.flush();
        out.len() as u64
    };
    let knocked: u64 = (0..100).map(|n| stranger(&mut net, n)).sum();
    // Replies to unverified addresses stay below QUIC's limit: three times for a few, less than received for the rest.
    let replies: u64 = net.to_others.iter().map(|(_, reply)| reply.len() as u64).sum();
    assert!(replies < knocked, "{replies} for {knocked}");
    net.connect();
    assert!(net.time() <= 4 * ROUND_TRIP, "{:?}", net.time());
    for n in 100..150 {
        stranger(&mut net, n);
    }
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 5000);
    net.run(s(10.0));
    assert_eq!(net.hosts[GATEWAY].read, 5000);
}

/// Strangers who prove their addresses and then say nothing, each from another host, two at a time twice a second.
#[test]
fn half_open_strangers_do_not_keep_a_restarted_peer_out() {
    let setups = setups(None, ROUND_TRIP);
    let mut net = Net::new(&setups, 10);
    net.connect();
    let knock = |net: &mut Net, n: u16| {
        let address: SocketAddr = format!("203.0.113.{}:{}", n % 250, 1000 + n).parse().unwrap();
        let setup = net::setups(None, ROUND_TRIP);
        let mut stranger = Spacelink::connect(&setup[TERMINAL], net.hosts[GATEWAY].address, net.now).unwrap();
        let (now, from) = (net.now, net.hosts[GATEWAY].address);
        let mut out = Vec::new();
        net.to_others.clear();
        // The first packet, and after a Retry the same with its token.
        for _ in 0..2 {
            while stranger.transmit(now, 1, &mut out).is_some() {
                net.hosts[GATEWAY].link.receive(now, address, None, 0, &out);
            }
            net.flush();
            for (to, reply) in net.to_others.drain(..) {
                assert_eq!(to, address);
                // Only a Retry is answered: a long header of type 3 (RFC 9000, 17.2.5).
                if reply[0] & 0xf0 == 0xf0 {
                    stranger.receive(now, from, None, 0, &reply);
                }
            }
        }
    };
    let mut number = 0;
    let mut knock_until = |net: &mut Net, end: Duration| {
        while net.time() < end {
            knock(net, number);
            knock(net, number + 1);
            number += 2;
            net.run(net.time() + s(0.5));
        }
    };
    let end = net.time() + s(10.0);
    knock_until(&mut net, end);
    net.restart(TERMINAL, &setups);
    let began = net.time();
    knock_until(&mut net, began + 5 * ROUND_TRIP);
    let up = net.hosts[TERMINAL].saw(|event| matches!(event, Event::Up)).expect("the peer is up again");
    assert!(up - began <= 4 * ROUND_TRIP, "{:?}", up - began);
}

#[test]
fn streams_are_limited_and_freed() {
    let mut setups = setups(None, ROUND_TRIP);
    for setup in &mut setups {
        setup.streams = 50;
    }
    let mut net = Net::new(&setups, 10);
    net.connect();
    net.run(net.time() + s(1.0));
    for round in 0..20 {
        let opened: Vec<_> = std::iter::from_fn(|| net.hosts[TERMINAL].open()).collect();
        assert_eq!(opened.len(), 50, "round {round}");
        assert_eq!(net.hosts[TERMINAL].link.stats().refused_streams, round + 1);
        assert!(opened.iter().all(|key| key.slot() < 50));
        for &key in &opened {
            net.hosts[TERMINAL].write(key, 100);
        }
        net.run(net.time() + s(0.5));
        assert_eq!(net.hosts[GATEWAY].streams.len(), 50);
        for (n, &key) in opened.iter().enumerate() {
            let host = &mut net.hosts[TERMINAL];
            if n % 2 == 0 {
                host.link.reset(key);
                host.streams.remove(&key);
            } else {
                host.link.finish(key);
            }
        }
        net.run(net.time() + s(0.5));
        let keys: Vec<_> = net.hosts[GATEWAY].streams.keys().copied().collect();
        assert_eq!(keys.len(), 25);
        for key in keys {
            net.hosts[GATEWAY].link.finish(key);
        }
        net.run(net.time() + s(2.0));
        for host in &net.hosts {
            assert_eq!((host.streams.len(), host.link.stats().streams), (0, 0));
        }
    }
    assert_eq!(net.hosts[GATEWAY].link.stats().opened, 1000);
}

#[test]
fn a_slow_reader_stops_only_its_writer() {
    let mut setups = setups(None, ROUND_TRIP);
    for setup in &mut setups {
        setup.stream_window = 100_000;
    }
    let mut net = Net::new(&setups, 11);
    net.connect();
    let [slow, fast] = [(); 2].map(|()| net.hosts[TERMINAL].open().unwrap());
    net.hosts[GATEWAY].reads = false;
    let taken = net.hosts[TERMINAL].write(slow, 150_000);
    assert!((99_000..=100_000).contains(&taken), "{taken}");
    assert_eq!(net.hosts[TERMINAL].write(slow, 1), 0);
    assert_eq!(net.hosts[TERMINAL].write(fast, 50_000), 50_000);
    net.run(net.time() + s(2.0));
    let time = net.time();
    let keys: Vec<_> = net.hosts[GATEWAY].streams.keys().copied().collect();
    net.hosts[GATEWAY].read(time, keys[1]);
    assert_eq!(net.hosts[GATEWAY].read, 50_000);
    assert!(net.hosts[TERMINAL].saw(|e| matches!(e, Event::Writable(_))).is_none());
    net.hosts[GATEWAY].read(time, keys[0]);
    net.run(net.time() + s(0.4));
    assert!(net.hosts[TERMINAL].saw(|e| *e == Event::Writable(slow)).is_some());
    net.hosts[GATEWAY].reads = true;
    assert_eq!(net.hosts[TERMINAL].write(slow, 50_000), 50_000);
    net.run(net.time() + s(2.0));
    assert_eq!(net.hosts[GATEWAY].read, taken as u64 + 100_000);
}

#[test]
fn outages_delay_connecting_and_time_out() {
    let mut setups = setups(None, ROUND_TRIP);
    setups[TERMINAL].idle = s(20.0);
    let mut net = Net::new(&setups, 12);
    for way in &mut net.directions {
        way.outage = Some((s(0.0), s(10.0)));
    }
    net.connect();
    assert!(net.time() < s(10.0) + ROUND_TRIP * 2 + s(2.5), "{:?}", net.time());
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 1000);
    net.run(s(20.0));
    for way in &mut net.directions {
        way.outage = Some((s(20.0), s(60.0)));
    }
    net.run(s(40.0));
    assert_eq!(net.hosts[TERMINAL].link.datagram(&[0; 100]), Err(NotSent::Silent));
    let stats = net.hosts[TERMINAL].link.stats();
    assert_eq!((stats.silenced_ip, stats.sent_ip), (1, 0));
    assert!(stats.silent && stats.up && net.hosts[TERMINAL].link.is_silent());
    net.run(s(59.0));
    for host in &net.hosts {
        assert!(host.saw(|e| *e == Event::Down(Reason::Silent)).is_some(), "{:?}", host.events);
    }
    net.run(s(66.0));
    assert!(net.hosts.iter().all(|host| host.up), "{:?}", net.hosts[TERMINAL].events);
    assert!(net.hosts.iter().all(|host| !host.link.is_silent()));
}

/// A connection whose terminal sends data at 4 s, when an outage of 56 s begins.
fn with_data_in_an_outage(seed: u64) -> Net {
    let mut net = Net::new(&setups(None, ROUND_TRIP), seed);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.run(s(4.0));
    for way in &mut net.directions {
        way.outage = Some((s(4.0), s(60.0)));
    }
    net.hosts[TERMINAL].write(up, 1000);
    net
}

/// An answer is usual within five quarters of the round trip and twice the longest delay of an acknowledgement, 850 ms; 300 ms more
/// are silence, which is found at the next check, one in 100 ms.
#[test]
fn an_outage_is_noticed_in_time() {
    let mut net = with_data_in_an_outage(17);
    net.run(s(5.14));
    assert!(!net.hosts[TERMINAL].link.is_silent());
    net.run(s(5.36));
    assert!(net.hosts[TERMINAL].link.is_silent() && !net.hosts[GATEWAY].link.is_silent());
}

/// A ping every 100 ms, however often the host runs the timers.
#[test]
fn a_silent_peer_is_pinged_ten_times_a_second() {
    let mut net = with_data_in_an_outage(19);
    net.run(s(6.0));
    let before = net.hosts[TERMINAL].link.stats().sent_datagrams;
    for ms in 0..1000 {
        net.run(s(6.0) + Duration::from_millis(ms));
        let now = net.now;
        net.hosts[TERMINAL].link.on_timer(now);
    }
    net.run(s(7.0));
    assert_eq!(net.hosts[TERMINAL].link.stats().sent_datagrams - before, 10);
}

/// The checks after a round trip and the delay of an acknowledgement, at 700, 800 and 900 ms, ping the peer; then only the
/// keep-alives of every 5 s are left.
#[test]
fn a_new_connection_is_pinged_three_times() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 18);
    net.connect();
    let up = net.hosts[TERMINAL].saw(|event| *event == Event::Up).unwrap();
    let mut sent = Vec::new();
    for ms in [100, 690, 710, 790, 810, 890, 910, 1200] {
        net.run(up + Duration::from_millis(ms));
        sent.push(net.hosts[TERMINAL].link.stats().sent_datagrams);
    }
    let more: Vec<_> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(more, [0, 1, 0, 1, 0, 1, 0]);
    net.run(up + s(3.0));
    let before = net.hosts[TERMINAL].link.stats().sent_datagrams;
    net.run(up + s(13.0));
    let idle = net.hosts[TERMINAL].link.stats().sent_datagrams - before;
    assert!((2..=6).contains(&idle), "{idle}");
}

/// An ICMP error about the peer's port counts only while the peer is silent; silence without an error is an outage.
#[test]
fn a_peer_that_stopped_listening_is_given_up() {
    let reports = |net: &mut Net, until: Duration, from: &str| {
        while net.time() < until {
            let (now, at) = (net.now, net.time());
            net.hosts[GATEWAY].link.unreachable(now, from.parse().unwrap());
            net.run(at + s(0.1));
        }
    };
    let mut net = Net::new(&setups(None, ROUND_TRIP), 3);
    let peer = net.hosts[TERMINAL].address.ip().to_string();
    net.connect();
    reports(&mut net, s(30.0), &peer);
    assert!(net.hosts[GATEWAY].up, "it answers: {:?}", net.hosts[GATEWAY].events);
    for way in &mut net.directions {
        way.outage = Some((s(30.0), s(100.0)));
    }
    // An error about another host, then no error.
    reports(&mut net, s(40.0), "192.0.2.77");
    net.run(s(50.0));
    assert!(net.hosts[GATEWAY].up, "an outage");
    reports(&mut net, s(53.0), &peer);
    let gone = net.hosts[GATEWAY].saw(|e| *e == Event::Down(Reason::Gone)).unwrap();
    assert!(gone >= s(50.0) && gone < s(52.0), "{gone:?}");
    assert!(net.hosts[TERMINAL].up, "the terminal has not been notified");
}

#[test]
fn a_chunk_fits_one_datagram_at_any_offset() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 13);
    net.connect();
    let chunk = net.hosts[TERMINAL].link.max_chunk();
    let key = net.hosts[TERMINAL].open().unwrap();
    let mut longest = 0;
    for n in 0..3000 {
        let before = net.hosts[TERMINAL].link.stats();
        assert_eq!(net.hosts[TERMINAL].write(key, chunk), chunk);
        net.flush();
        let after = net.hosts[TERMINAL].link.stats();
        assert_eq!(after.sent_datagrams - before.sent_datagrams, 1, "chunk {n}");
        longest = longest.max(after.sent_bytes - before.sent_bytes);
        if n % 100 == 0 {
            net.run(net.time() + s(0.1));
        }
    }
    // The link's longest packet, less the space for larger numbers.
    assert!((1500 - 28..=1500).contains(&longest), "{longest}");
    net.run(net.time() + s(1.0));
    assert_eq!(net.hosts[GATEWAY].read, 3000 * chunk as u64);
}

#[test]
fn all_allowed_streams_are_available_at_once() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 14);
    while !net.hosts[TERMINAL].up {
        net.step(s(10.0));
    }
    for n in 0..2000 {
        assert!(net.hosts[TERMINAL].open().is_some(), "{n}");
    }
    net.run(net.time() + s(1.0));
    assert_eq!(net.hosts[GATEWAY].streams.len(), 2000);
}

#[test]
fn the_terminal_may_change_its_address() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 15);
    net.connect();
    let key = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(key, 10_000);
    net.run(net.time() + s(1.0));
    net.hosts[TERMINAL].address = "198.51.100.200:6000".parse().unwrap();
    net.hosts[TERMINAL].write(key, 10_000);
    net.run(net.time() + s(3.0));
    let (&down, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    net.hosts[GATEWAY].write(down, 30_000);
    net.run(net.time() + s(3.0));
    assert_eq!((net.hosts[GATEWAY].read, net.hosts[TERMINAL].read), (20_000, 30_000));
    assert_eq!(net.hosts[GATEWAY].link.peer(), Some(net.hosts[TERMINAL].address));
    assert!(net.hosts.iter().all(|host| host.saw(|e| matches!(e, Event::Down(_))).is_none()));
}

#[test]
fn ends_connect_at_a_loss_of_a_third() {
    for seed in 0..10 {
        let mut net = Net::new(&setups(None, ROUND_TRIP), seed);
        for way in &mut net.directions {
            way.lose = 0.33;
        }
        net.connect();
        let key = net.hosts[TERMINAL].open().unwrap();
        net.hosts[TERMINAL].write(key, 20_000);
        net.run(net.time() + s(30.0));
        assert_eq!(net.hosts[GATEWAY].read, 20_000, "seed {seed}");
    }
}

/// Random operations of both hosts over an impaired link: what is read was written, and no stream is left at the end.
#[test]
fn random_operations_leave_no_streams() {
    for seed in 0..12 {
        let mut setups = setups(Some(Rate::from_bps(10_000_000)), ROUND_TRIP);
        for setup in &mut setups {
            (setup.streams, setup.stream_window, setup.window) = (40, 60_000, 400_000);
        }
        let mut net = Net::new(&setups, seed);
        for way in &mut net.directions {
            (way.lose, way.double, way.late) = (0.03, 0.02, 0.1);
        }
        for round in 0..600 {
            let end = net.random(2);
            let keys: Vec<_> = net.hosts[end].streams.keys().copied().collect();
            let key = (!keys.is_empty()).then(|| keys[net.random(keys.len())]);
            let (choice, length) = (net.random(100), net.random(50_000));
            let (now, time) = (net.now, net.time());
            let host = &mut net.hosts[end];
            match (choice, key) {
                (0..20, _) => drop(host.open()),
                (20..60, Some(key)) => drop(host.write(key, length)),
                (60..70, Some(key)) => host.link.finish(key),
                (70..75, Some(key)) => {
                    host.link.reset(key);
                    host.streams.remove(&key);
                    // The key is invalid from then on.
                    assert_eq!(host.link.write(key, b"x"), 0);
                    host.link.delivered(key, 10);
                    host.link.finish(key);
                }
                (75..85, _) => drop(host.link.datagram(&bytes(0, 1 + length % 9000))),
                (85..90, _) => host.reads = false,
                (90..95, _) => {
                    host.reads = true;
                    for key in keys {
                        host.read(time, key);
                    }
                }
                (95, _) if round % 7 == 0 => net.restart(end, &setups),
                (96, _) => host.link.on_timer(now),
                (97, _) => {
                    for way in &mut net.directions {
                        way.outage = Some((time, time + s(0.001 * length as f64)));
                    }
                }
                _ => {}
            }
            let until = net.time() + Duration::from_millis(net.random(100) as u64);
            net.run(until);
        }
        for way in &mut net.directions {
            (way.outage, way.lose) = (None, 0.0);
        }
        let until = net.time() + s(10.0);
        net.run(until);
        assert!(net.hosts.iter().all(|host| host.up), "seed {seed}: {:?}", net.hosts[0].events);
        // One end closes half of the rest, then both close everything.
        for end in [GATEWAY, TERMINAL] {
            let time = net.time();
            net.hosts[end].reads = true;
            let keys: Vec<_> = net.hosts[end].streams.keys().copied().collect();
            for (n, &key) in keys.iter().enumerate() {
                net.hosts[end].read(time, key);
                if n % 2 == 0 && end == GATEWAY {
                    net.hosts[end].link.reset(key);
                    net.hosts[end].streams.remove(&key);
                } else {
                    net.hosts[end].link.finish(key);
                }
            }
            let until = net.time() + s(10.0);
            net.run(until);
        }
        for host in &net.hosts {
            let left = (host.streams.len(), host.link.stats().streams, host.link.stats().malformed);
            assert_eq!(left, (0, 0, 0), "seed {seed}");
        }
        let opened: Vec<_> = std::iter::from_fn(|| net.hosts[TERMINAL].open()).collect();
        assert_eq!(opened.len(), 40, "seed {seed}");
    }
}

#[test]
fn a_lost_last_credit_is_repeated() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 16);
    net.connect();
    let key = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(key, 1000);
    // The bytes arrive, but nothing that the gateway sends within 200 ms.
    let now = net.time();
    net.directions[GATEWAY].outage = Some((now + s(0.3), now + s(0.5)));
    net.run(now + s(1.1));
    assert_eq!((net.hosts[GATEWAY].read, net.hosts[TERMINAL].acknowledged), (1000, 0));
    // 300 ms to the gateway, 19 until the credit, 500 until its repetition, and 300 back.
    net.run(now + s(1.13));
    assert_eq!(net.hosts[TERMINAL].acknowledged, 1000);
}
