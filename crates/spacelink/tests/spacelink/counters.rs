//! Counters, what a regulator is charged, and limits.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_spacelink::{Event, Setup, Spacelink, Stats};
use bentpipe_units::Rate;

use crate::net::{GATEWAY, Net, TERMINAL, setups};
use crate::{ROUND_TRIP, s};

/// One packet in twenty is lost, later ones are marked, and all of it still counts after the connection is gone.
#[test]
fn counters_outlive_their_connection() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 21);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 1);
    net.run(s(3.0));
    net.directions[GATEWAY].lose = 0.05;
    let (&down, _) = net.hosts[GATEWAY].streams.first_key_value().unwrap();
    assert_eq!(net.hosts[GATEWAY].write(down, 500_000), 500_000);
    net.run(s(10.0));
    // A loss is no mark.
    assert_eq!(net.hosts[GATEWAY].link.stats().marks, 0);
    (net.directions[GATEWAY].lose, net.directions[GATEWAY].mark) = (0.0, true);
    assert_eq!(net.hosts[GATEWAY].write(down, 100_000), 100_000);
    net.run(s(15.0));
    let now = net.now;
    net.hosts[GATEWAY].link.close(now);
    let before = net.hosts[GATEWAY].link.stats();
    let lost = net.directions[GATEWAY].lost;
    assert!(before.marks > 0 && before.acknowledged_bytes > 600_000);
    assert!(lost > 5 && (lost - 2..=lost).contains(&before.lost_packets), "{before:?}");
    // All of those are full, with a UDP payload of 1472 bytes.
    assert_eq!(before.lost_bytes, 1472 * before.lost_packets);
    // Three probe time-outs later QUIC has forgotten it.
    net.run(s(60.0));
    let after = net.hosts[GATEWAY].link.stats();
    let of = |stats: Stats| {
        (
            stats.marks,
            stats.sent_packets,
            stats.acknowledged_bytes,
            stats.delivered_bytes,
            stats.lost_packets,
            stats.lost_bytes,
            stats.written_bytes,
        )
    };
    assert_eq!(of(after), of(before));
}

/// Packets of 200 bytes, each in a datagram, have a tenth of their length in headers of 28 bytes.
#[test]
fn delivered_bytes_include_headers_as_those_sent_do() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 25);
    net.connect();
    net.run(s(5.0));
    let before = net.hosts[GATEWAY].link.stats();
    for packet in 0..200 {
        net.hosts[GATEWAY].link.datagram(&[7; 200]).unwrap();
        net.run(s(5.0 + 0.01 * f64::from(packet)));
    }
    net.run(s(12.0));
    let after = net.hosts[GATEWAY].link.stats();
    let delivered = after.delivered_bytes - before.delivered_bytes;
    let headers = delivered - (after.acknowledged_bytes - before.acknowledged_bytes);
    let packets = headers / 28;
    assert_eq!(headers, 28 * packets);
    assert!((200..220).contains(&packets), "{packets}");
    let sent = after.sent_bytes - before.sent_bytes;
    assert!(delivered <= sent && 20 * delivered > 19 * sent, "{delivered} of {sent}");
}

#[test]
fn both_ends_count_what_the_link_carries() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 22);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.hosts[TERMINAL].write(up, 40_000);
    net.hosts[TERMINAL].link.datagram(&[0; 5000]).unwrap();
    net.run(s(4.0));
    while net.in_transit(GATEWAY).is_some() || net.in_transit(TERMINAL).is_some() {
        net.step(s(60.0));
    }
    let stats = net.hosts.each_ref().map(|host| host.link.stats());
    for (sender, receiver) in [(GATEWAY, TERMINAL), (TERMINAL, GATEWAY)] {
        let (from, to) = (&stats[sender], &stats[receiver]);
        assert_eq!(from.sent_datagrams, to.received_datagrams);
        assert_eq!(from.sent_bytes, net.directions[sender].carried);
        assert_eq!(to.received_bytes, net.directions[sender].carried);
        assert_eq!((from.written_bytes, from.sent_ip, from.connections), (to.read_bytes, to.received_ip, 1));
        assert_eq!((from.opened, from.streams, from.marks), (1, 1, 0));
        assert_eq!(from.round_trip, ROUND_TRIP);
    }
    assert_eq!(stats[GATEWAY].read_bytes, 40_000);
}

/// Over time, what is released and what is charged are the bytes on the wire.
#[test]
fn bytes_beyond_those_released_are_charged_once() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 23);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.run(s(3.0));
    let sent = |net: &Net| net.hosts[TERMINAL].link.stats().sent_bytes;
    let charge = |net: &mut Net, counted| net.hosts[TERMINAL].link.charge(counted);
    let handshake = sent(&net);
    assert_eq!((charge(&mut net, 0), charge(&mut net, 0)), (handshake, 0));
    // Released before it is sent: the first 10,000 bytes on the wire are not charged.
    assert_eq!(charge(&mut net, 10_000), 0);
    net.hosts[TERMINAL].write(up, 4000);
    net.flush();
    assert!(sent(&net) > handshake + 4000);
    assert_eq!(charge(&mut net, 0), 0);
    net.hosts[TERMINAL].write(up, 20_000);
    net.flush();
    let all = sent(&net);
    assert_eq!((charge(&mut net, 0), charge(&mut net, 0)), (all - handshake - 10_000, 0));
    // Released and sent.
    net.hosts[TERMINAL].write(up, 1000);
    net.flush();
    let more = sent(&net) - all;
    assert_eq!(charge(&mut net, 1000), more - 1000);
}

/// Five datagrams are lost, and five more 100 ms later. At 8 kbit/s one retransmission may be sent at once, and the next after 1.5 s.
#[test]
fn lost_bytes_are_charged_once_and_before_their_retransmission() {
    let slow = Some(Rate::from_bps(8000));
    let mut net = Net::new(&setups(None, ROUND_TRIP), 32);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    let chunk = net.hosts[TERMINAL].link.max_chunk();
    net.run(s(3.0));
    let charge = |net: &mut Net| net.hosts[TERMINAL].link.charge(0);
    let lost = |net: &Net| net.hosts[TERMINAL].link.stats().lost_bytes;
    let mut charged = 0;
    for at in [3.0, 3.1] {
        net.run(s(at));
        for lose in [1.0, 0.0] {
            net.directions[TERMINAL].lose = lose;
            for _ in 0..5 {
                net.hosts[TERMINAL].write(up, chunk);
                net.flush();
            }
        }
    }
    let mut known = 0;
    for _ in 0..2 {
        net.hosts[TERMINAL].link.set_rate(slow);
        net.hosts[TERMINAL].write(up, chunk);
        net.flush();
        charged += charge(&mut net);
        while lost(&net) == known {
            net.step(s(4.0));
        }
        let more = lost(&net) - known;
        assert!((5 * chunk as u64..=5 * 1472).contains(&more), "{more}");
        assert_eq!([charge(&mut net), charge(&mut net)], [more, 0]);
        charged += more;
        known += more;
    }
    net.hosts[TERMINAL].link.set_rate(None);
    net.run(s(6.0));
    assert_eq!((net.hosts[GATEWAY].read, lost(&net)), (22 * chunk as u64, known));
    charged += charge(&mut net);
    assert_eq!(charged, net.hosts[TERMINAL].link.stats().sent_bytes);
}

/// 8 Mbit/s carry a megabyte in a second.
#[test]
fn an_outage_is_charged_as_if_the_link_were_busy() {
    let mut net = Net::new(&setups(Some(Rate::from_bps(8_000_000)), ROUND_TRIP), 24);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.run(s(3.0));
    for way in &mut net.directions {
        way.outage = Some((s(3.0), s(60.0)));
    }
    net.hosts[TERMINAL].write(up, 1000);
    net.run(s(10.0));
    assert!(net.hosts[TERMINAL].link.is_silent());
    let charge = |net: &mut Net| {
        net.flush();
        net.hosts[TERMINAL].link.charge(0)
    };
    charge(&mut net);
    let before = net.hosts[TERMINAL].link.stats().sent_bytes;
    net.run(s(11.0));
    let charged = charge(&mut net);
    let pings = net.hosts[TERMINAL].link.stats().sent_bytes - before;
    assert!(pings > 0 && pings < 2000, "{pings}");
    assert_eq!(charged, 1_000_000 + pings);
}

/// 8 Mbit/s carry 1000 bytes in a millisecond, and 20 ms may be sent ahead.
#[test]
fn a_rate_that_is_set_later_spreads_packets() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 25);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.run(s(3.0));
    let before = net.hosts[TERMINAL].link.stats().sent_bytes;
    net.hosts[TERMINAL].link.set_rate(Some(Rate::from_bps(8_000_000)));
    assert_eq!(net.hosts[TERMINAL].write(up, 500_000), 500_000);
    for (ms, most) in [(0, 20_000), (100, 120_000), (200, 220_000)] {
        net.run(s(3.0) + Duration::from_millis(ms));
        net.flush();
        let sent = net.hosts[TERMINAL].link.stats().sent_bytes - before;
        // Another datagram may begin until the bound.
        assert!((most - 1500..=most + 1500).contains(&sent), "{sent} after {ms} ms");
    }
    net.hosts[TERMINAL].link.set_rate(None);
    net.flush();
    assert!(net.hosts[TERMINAL].link.stats().sent_bytes - before > 500_000);
}

#[test]
fn a_stream_without_room_in_the_window_is_refused() {
    let mut setups = setups(None, ROUND_TRIP);
    for setup in &mut setups {
        (setup.stream_window, setup.window) = (20_000, 20_000);
    }
    let mut net = Net::new(&setups, 26);
    net.connect();
    net.hosts[GATEWAY].reads = false;
    let up = net.hosts[TERMINAL].open().unwrap();
    // 13 bytes are the header, 4 the greeting on the control stream.
    assert_eq!(net.hosts[TERMINAL].write(up, 30_000), 20_000 - 13 - 4);
    assert_eq!(net.hosts[TERMINAL].open(), None);
    let stats = net.hosts[TERMINAL].link.stats();
    assert_eq!((stats.refused_streams, stats.opened, stats.streams), (1, 1, 1));
    net.run(net.time() + s(1.0));
    let (time, down) = (net.time(), *net.hosts[GATEWAY].streams.first_key_value().unwrap().0);
    net.hosts[GATEWAY].read(time, down);
    net.run(net.time() + s(2.0));
    assert!(net.hosts[TERMINAL].open().is_some());
    net.run(net.time() + s(1.0));
    assert_eq!(net.hosts[GATEWAY].streams.len(), 2);
}

/// The header of a stream has 13 bytes and the greeting on the control stream 4. All 20,000 bytes of the window are used, and no more
/// are wanted.
#[test]
fn a_stream_that_took_all_data_is_not_reported_writable() {
    let mut setups = setups(None, ROUND_TRIP);
    for setup in &mut setups {
        (setup.stream_window, setup.window) = (20_000, 20_000);
    }
    let mut net = Net::new(&setups, 31);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    assert_eq!(net.hosts[TERMINAL].write(up, 20_000 - 13 - 4), 20_000 - 13 - 4);
    net.run(net.time() + s(3.0));
    assert_eq!(net.hosts[GATEWAY].read, 20_000 - 13 - 4);
    assert_eq!(net.hosts[TERMINAL].saw(|event| matches!(event, Event::Writable(_))), None);
}

/// Two strangers get a handshake, the others a Retry, of which 16 wait to be sent.
#[test]
fn replies_to_strangers_are_limited() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 27);
    let (now, to) = (net.now, net.hosts[GATEWAY].address);
    let mut setups = setups(None, ROUND_TRIP);
    for n in 0..40u8 {
        setups[TERMINAL].seed = Some([n; 32]);
        let mut link = Spacelink::connect(&setups[TERMINAL], to, now).unwrap();
        let mut out = Vec::new();
        link.transmit(now, 1, &mut out).unwrap();
        net.hosts[GATEWAY].link.receive(now, format!("203.0.113.{n}:1000").parse().unwrap(), None, 0, &out);
    }
    net.flush();
    // RFC 9000, section 17.2.5: a Retry has a long header of type 3.
    let is_retry = |(_, reply): &&(SocketAddr, Vec<u8>)| reply[0] & 0xf0 == 0xf0;
    assert_eq!(net.to_others.iter().filter(is_retry).count(), 16);
}

/// 20 ms of 8 Mbit/s are 20,000 bytes: 13 packets of 1472 bytes and the longest headers, 48 bytes.
#[test]
fn a_batch_fits_what_may_be_sent_ahead() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 28);
    net.connect();
    let up = net.hosts[TERMINAL].open().unwrap();
    net.run(s(3.0));
    let now = net.now;
    let link = &mut net.hosts[TERMINAL].link;
    link.set_rate(Some(Rate::from_bps(8_000_000)));
    link.write(up, &[0; 100_000]);
    let mut out = Vec::new();
    let sent = link.transmit(now, 64, &mut out).unwrap();
    assert_eq!(out.len().div_ceil(sent.segment.unwrap()), 13);
}

/// The first packets of `count` clients, each followed by the answer to a Retry. Returns how many got a handshake.
fn knock(net: &mut Net, setup: &mut Setup, first: u16, count: u16) -> usize {
    let (now, to) = (net.now, net.hosts[GATEWAY].address);
    let mut handshakes = 0;
    for n in first..first + count {
        let from = SocketAddr::from(([203, 0, 113, n as u8], 1000));
        setup.seed = Some([n as u8; 32]);
        let mut link = Spacelink::connect(setup, to, now).unwrap();
        let (mut out, mut is_accepted) = (Vec::new(), false);
        for _ in 0..2 {
            while link.transmit(now, 1, &mut out).is_some() {
                net.hosts[GATEWAY].link.receive(now, from, None, 0, &out);
            }
            net.flush();
            for (_, reply) in net.to_others.drain(..) {
                // RFC 9000, table 5: a long header of type 0, with any fixed bit (RFC 9287), or a Retry.
                if reply[0] & 0xb0 == 0x80 {
                    is_accepted = true;
                } else if reply[0] & 0xb0 == 0xb0 {
                    link.receive(now, to, None, 0, &reply);
                }
            }
        }
        handshakes += usize::from(is_accepted);
    }
    handshakes
}

/// A place is free again after the 6.8 s in which a greeting is due.
#[test]
fn strangers_have_eight_places_at_a_time() {
    let mut net = Net::new(&setups(None, ROUND_TRIP), 29);
    let mut strange = setups(None, ROUND_TRIP).into_iter().nth(TERMINAL).unwrap();
    net.connect();
    for round in 0..3 {
        assert_eq!(knock(&mut net, &mut strange, 20 * round, 12), 8, "round {round}");
        net.run(net.time() + s(6.9));
    }
    assert!(net.hosts.iter().all(|host| host.up));
}

/// One connection in use and one half open at the peer's host are no two half open ones: a third needs no Retry.
#[test]
fn a_connection_in_use_takes_no_place_of_those_half_open() {
    let setups = setups(None, ROUND_TRIP);
    let mut net = Net::new(&setups, 30);
    net.connect();
    let (now, to) = (net.now, net.hosts[GATEWAY].address);
    let from = SocketAddr::new(net.hosts[TERMINAL].address.ip(), 999);
    let strange = crate::net::setups(None, ROUND_TRIP);
    let mut link = Spacelink::connect(&strange[TERMINAL], to, now).unwrap();
    let mut out = Vec::new();
    link.transmit(now, 1, &mut out).unwrap();
    net.hosts[GATEWAY].link.receive(now, from, None, 0, &out);
    net.flush();
    let began = net.time();
    net.restart(TERMINAL, &setups);
    net.run(began + s(3.0));
    assert_eq!(net.hosts[TERMINAL].saw(|event| *event == Event::Up), Some(began + 2 * ROUND_TRIP));
}
