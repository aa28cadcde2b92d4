//! Parsing, rewriting and building: packets worked out by hand, and random ones.

#[path = "../../../fuzz/src/packets.rs"]
mod packets;

use std::net::{IpAddr, SocketAddr};

use bentpipe_packet::build::{checksum, window_update};
use bentpipe_packet::{Info, TCP, TcpInfo, UDP, flag, header_len, parse, set_ce, set_window};
use bentpipe_queue::Ecn;
use packets::residue;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A SYN from 10.3.0.7:40000 to 10.1.0.1:80, ECN set up: MSS 1460, SACK permitted, timestamps, scale 7.
fn syn() -> Vec<u8> {
    bytes(
        "45 00 00 3c  12 34 40 00  40 06 00 00  0a 03 00 07  0a 01 00 01
         9c 40 00 50  01 02 03 04  00 00 00 00  a0 c2 fa f0  00 00 00 00
         02 04 05 b4  04 02 08 0a  00 00 00 01  00 00 00 00  01 03 03 07",
    )
}

/// An acknowledgement from fd03::7 to fd01::1 with 4 bytes of payload, ECT(1), behind a hop-by-hop header.
fn v6() -> Vec<u8> {
    bytes(
        "60 10 00 00  00 20 00 40
         fd 03 00 00 00 00 00 00 00 00 00 00 00 00 00 07  fd 01 00 00 00 00 00 00 00 00 00 00 00 00 00 01
         06 00 01 04 00 00 00 00
         9c 40 00 50  01 02 03 05  0a 0b 0c 0d  50 18 01 f6  00 00 00 00  de ad be ef",
    )
}

/// Fills in all checksums, computed byte by byte as RFC 1071 describes.
fn with_checksums(mut packet: Vec<u8>, transport: usize) -> Vec<u8> {
    let addresses = if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let sum = 65_535 - residue(&packet[..20]) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        12..20
    } else {
        8..40
    };
    packet[transport + 16..transport + 18].fill(0);
    let length = (packet.len() - transport) as u64;
    let sum = (residue(&packet[addresses]) + residue(&packet[transport..]) + 6 + length) % 65_535;
    packet[transport + 16..transport + 18].copy_from_slice(&(65_535 - sum as u16).to_be_bytes());
    packet
}

fn tcp_checksum_is_valid(packet: &[u8], transport: usize) -> bool {
    let addresses = if packet[0] >> 4 == 4 { 12..20 } else { 8..40 };
    let length = (packet.len() - transport) as u64;
    (residue(&packet[addresses]) + residue(&packet[transport..]) + 6 + length).is_multiple_of(65_535)
}

#[test]
fn checksums_match_the_examples_of_the_rfcs() {
    // RFC 1071, section 3: these words add up to ddf2.
    assert_eq!(checksum(&[&bytes("00 01 f2 03 f4 f5 f6 f7")]), !0xddf2);
    // Two parts, the second of odd length.
    assert_eq!(checksum(&[&bytes("00 01"), &bytes("f2 03 f4")]), !0xe605);
    // RFC 1624, section 4: dd2f becomes 0000 when 5555 becomes 3285, here as the window of a segment.
    let mut packet = syn();
    packet[34..36].copy_from_slice(&[0x55, 0x55]);
    packet[36..38].copy_from_slice(&[0xdd, 0x2f]);
    assert!(set_window(&mut packet, 0x3285));
    assert_eq!(packet[34..38], bytes("32 85 00 00"));
}

#[test]
fn options_of_a_syn_are_read() {
    let info = parse(&syn()).unwrap();
    assert_eq!((info.version, info.protocol, info.len, info.fragment), (4, TCP, 60, false));
    assert_eq!((info.src, info.dst), ("10.3.0.7:40000".parse().unwrap(), "10.1.0.1:80".parse().unwrap()));
    assert_eq!(info.ecn, Ecn::NotEct);
    let expected = TcpInfo {
        seq: 0x0102_0304,
        ack: 0,
        window: 64_240,
        flags: flag::SYN | flag::ECE | flag::CWR,
        payload: 0,
        scale: Some(7),
        mss: Some(1460),
        sack: false,
    };
    assert_eq!(info.tcp, Some(expected));
    assert_eq!(header_len(&syn()), Some(60));
    // RFC 7323, section 2.3: a shift above 14 counts as 14.
    let mut large = syn();
    large[59] = 200;
    assert_eq!(parse(&large).unwrap().tcp.unwrap().scale, Some(14));
    // An option with an invalid length ends the options.
    for (at, byte) in [(41, 60), (41, 1), (41, 0), (40, 0)] {
        let mut broken = syn();
        broken[at] = byte;
        let tcp = parse(&broken).unwrap().tcp.unwrap();
        assert_eq!((tcp.mss, tcp.scale), (None, None), "byte {at} is {byte}");
    }
}

#[test]
fn extension_headers_are_skipped() {
    let info = parse(&v6()).unwrap();
    assert_eq!((info.version, info.protocol, info.len, info.fragment), (6, TCP, 72, false));
    assert_eq!((info.src, info.dst), ("[fd03::7]:40000".parse().unwrap(), "[fd01::1]:80".parse().unwrap()));
    assert_eq!(info.ecn, Ecn::Ect1);
    let tcp = info.tcp.unwrap();
    assert_eq!((tcp.seq, tcp.ack, tcp.window, tcp.payload), (0x0102_0305, 0x0a0b_0c0d, 502, 4));
    // A fragment header in place of the hop-by-hop header: the first fragment, then one at offset 8.
    let mut first = v6();
    first[6] = 44;
    first[40..48].copy_from_slice(&bytes("06 00 00 01 00 00 00 09"));
    let info = parse(&first).unwrap();
    assert!(info.fragment && info.tcp.is_some() && info.src.port() == 40_000);
    first[43] = 8;
    let info = parse(&first).unwrap();
    assert_eq!((info.fragment, info.tcp, info.src.port(), info.protocol), (true, None, 0, TCP));
    // An atomic fragment is a whole packet (RFC 6946).
    first[43] = 0;
    assert!(!parse(&first).unwrap().fragment);
    // An authentication header of 12 bytes: length in words, minus 2 (RFC 4302).
    let mut signed = v6();
    (signed[5], signed[6]) = (36, 51);
    signed.splice(40..48, bytes("06 01 00 00 00 00 00 00 00 00 00 00"));
    let info = parse(&signed).unwrap();
    assert_eq!((info.len, info.dst.port(), info.tcp.unwrap().payload), (76, 80, 4));
    // Extension headers that exceed the length in the IP header.
    let mut short = v6();
    short[5] = 7;
    assert_eq!(parse(&short), None);
    short[5] = 8;
    assert_eq!(parse(&short).unwrap().tcp, None);
    // A payload length of 0 marks a jumbogram: the length of the buffer counts.
    let mut jumbo = v6();
    jumbo[4..6].fill(0);
    assert_eq!(parse(&jumbo).unwrap().len, 72);
}

#[test]
fn only_the_first_fragment_of_ipv4_has_ports() {
    let mut packet = syn();
    packet[6..8].copy_from_slice(&[0x20, 0]);
    let info = parse(&packet).unwrap();
    assert!(info.fragment && info.tcp.is_some());
    packet[6..8].copy_from_slice(&[0, 1]);
    for protocol in [TCP, UDP] {
        packet[9] = protocol;
        let info = parse(&packet).unwrap();
        assert_eq!((info.fragment, info.tcp, info.dst.port()), (true, None, 0));
    }
}

#[test]
fn ports_are_read_from_udp_only_if_its_header_is_complete() {
    let mut packet =
        bytes("45 02 00 24 00 00 00 00 40 11 00 00 0a 01 00 01 0a 03 00 07 00 35 9c 40 00 10 00 00");
    packet.resize(36, 0);
    let info = parse(&packet).unwrap();
    assert_eq!((info.protocol, info.src.port(), info.dst.port()), (UDP, 53, 40_000));
    assert_eq!((info.ecn, info.len, info.tcp), (Ecn::Ect, 36, None));
    // A UDP header that is truncated, or exceeds the length in the IP header, counts as absent.
    for (length, total) in [(36, 28), (28, 36), (36, 27), (27, 36)] {
        let mut cut = packet[..length].to_vec();
        cut[3] = total;
        let port = parse(&cut).unwrap().dst.port();
        assert_eq!(port != 0, length.min(total.into()) == 28, "{length} bytes, {total} by the header");
    }
    packet[9] = 1;
    assert_eq!(parse(&packet).unwrap().src.port(), 0);
}

#[test]
fn truncated_and_contradictory_headers_are_rejected() {
    for packet in [syn(), v6()] {
        let whole = parse(&packet).unwrap();
        let header = header_len(&packet).unwrap();
        for length in 0..packet.len() {
            let info = parse(&packet[..length]);
            // The payload may be missing, headers may not.
            assert_eq!(info == Some(whole), length >= header, "{length} bytes");
        }
    }
    let broken: [(usize, u8); 5] = [(0, 0x35), (0, 0x44), (3, 19), (2, 0), (0, 0)];
    for (at, byte) in broken {
        let mut packet = syn();
        packet[at] = byte;
        let info = parse(&packet);
        assert!(info.is_none() || at == 2, "byte {at} is {byte}: {info:?}");
    }
    // A TCP header that exceeds the length in the IP header, one below 20 bytes, and one beyond the buffer.
    for (at, byte) in [(3, 50), (32, 0x40), (32, 0xf0)] {
        let mut packet = syn();
        packet[at] = byte;
        let info = parse(&packet).unwrap();
        assert_eq!((info.tcp, info.src.port()), (None, 0), "byte {at} is {byte}");
        assert!(!set_window(&mut packet, 1));
    }
    assert_eq!(parse(&[]), None);
}

#[test]
fn marking_adjusts_the_checksum() {
    for (ecn, name) in [(0, Ecn::NotEct), (1, Ecn::Ect1), (2, Ecn::Ect), (3, Ecn::Ce)] {
        let mut packet = syn();
        packet[1] = 0xb8 | ecn;
        let before = with_checksums(packet, 20);
        assert_eq!(parse(&before).map(|info| (info.ecn, info.dscp)), Some((name, 46)));
        let mut after = before.clone();
        assert_eq!(set_ce(&mut after), ecn != 0);
        // Expected: the checksum computed from scratch.
        let mut expected = before.clone();
        if ecn != 0 {
            expected[1] |= 3;
        }
        assert_eq!(after, with_checksums(expected, 20));

        let mut packet = v6();
        packet[0..2].copy_from_slice(&[0x6b, 0x8a | ecn << 4]);
        assert_eq!(parse(&packet).map(|info| (info.ecn, info.dscp)), Some((name, 46)));
        let mut after = packet.clone();
        assert_eq!(set_ce(&mut after), ecn != 0);
        if ecn != 0 {
            packet[1] |= 0x30;
        }
        assert_eq!(after, packet);
    }
}

#[test]
fn setting_the_window_adjusts_the_checksum() {
    for (packet, transport) in [(syn(), 20), (v6(), 48)] {
        for window in [0, 1, 255, 256, 501, 32_767, 65_534, 65_535] {
            let mut after = with_checksums(packet.clone(), transport);
            assert!(tcp_checksum_is_valid(&after, transport));
            assert!(set_window(&mut after, window));
            assert!(tcp_checksum_is_valid(&after, transport), "window {window}");
            assert_eq!(parse(&after).unwrap().tcp.unwrap().window, window);
            // A wrong checksum stays wrong.
            let mut wrong = with_checksums(packet.clone(), transport);
            wrong[transport + 5] ^= 1;
            assert!(set_window(&mut wrong, window));
            assert!(!tcp_checksum_is_valid(&wrong, transport), "window {window}");
        }
    }
}

#[test]
fn a_window_update_keeps_acknowledgement_and_timestamps_only() {
    let mut out = vec![1, 2, 3];
    // 10.3.0.7 acknowledges with 5 bytes of payload, ECE and PSH, timestamps 1 and 2 and a SACK block.
    let packet = bytes(
        "45 02 00 45  12 34 00 00  40 06 00 00  0a 03 00 07  0a 01 00 01
         9c 40 00 50  00 00 00 0a  00 00 00 64  b0 58 01 00  00 00 00 00
         01 01 08 0a  00 00 00 01  00 00 00 02  01 01 05 0a  00 00 01 00  00 00 02 00  68 65 6c 6c 6f",
    );
    assert!(window_update(&packet, 15, 77, &mut out));
    let expected = bytes(
        "45 00 00 34  00 00 40 00  40 06 00 00  0a 03 00 07  0a 01 00 01
         9c 40 00 50  00 00 00 0f  00 00 00 64  80 50 00 4d  00 00 00 00
         01 01 08 0a  00 00 00 01  00 00 00 02",
    );
    assert_eq!(out, with_checksums(expected, 20));

    assert!(window_update(&v6(), 15, 77, &mut out));
    let expected = bytes(
        "60 00 00 00  00 14 06 40
         fd 03 00 00 00 00 00 00 00 00 00 00 00 00 00 07  fd 01 00 00 00 00 00 00 00 00 00 00 00 00 00 01
         9c 40 00 50  00 00 00 0f  0a 0b 0c 0d  50 10 00 4d  00 00 00 00",
    );
    assert_eq!(out, with_checksums(expected, 40));

    assert!(!window_update(&syn(), 15, 77, &mut out));
    assert!(out.is_empty());
}

/// 10.1.0.1:80 to 10.3.0.2:4000, TCP with 20 bytes of header and `payload` bytes.
fn tcp(payload: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 3, 0, 2];
    packet[2..4].copy_from_slice(&(40 + payload).to_be_bytes());
    packet.extend([0, 80, 0x0f, 0xa0]);
    packet.extend([0; 8]);
    packet.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    packet.extend(vec![7; payload.into()]);
    packet
}

fn reversed(mut packet: Vec<u8>) -> Vec<u8> {
    for i in 0..4 {
        packet.swap(12 + i, 16 + i);
    }
    packet.swap(20, 22);
    packet.swap(21, 23);
    packet
}

#[test]
fn the_connection_hash_ignores_direction_but_not_ports() {
    let forward = parse(&tcp(100)).unwrap();
    let back = parse(&reversed(tcp(0))).unwrap();
    assert_eq!(forward.src.ip(), "10.1.0.1".parse::<IpAddr>().unwrap());
    assert_eq!((forward.src, forward.connection()), (back.dst, back.connection()));
    assert!(forward.has_payload() && !back.has_payload());
    let mut other = tcp(100);
    other[23] ^= 1;
    assert_ne!(parse(&other).unwrap().connection(), forward.connection());
}

#[test]
fn all_fragments_share_the_connection_hash() {
    let (mut first, mut second) = (tcp(100), tcp(100));
    first[6] = 0x20;
    second[7] = 8;
    second[20..24].copy_from_slice(&[9, 9, 9, 9]);
    assert_eq!(parse(&first).unwrap().connection(), parse(&second).unwrap().connection());
}

#[test]
fn multicast_of_link_local_scope_is_recognized() {
    let info = parse(&tcp(0)).unwrap();
    let to =
        |dst: &str| Info { dst: SocketAddr::new(dst.parse().unwrap(), 0), ..info }.is_link_local_multicast();
    assert!(["224.0.0.22", "ff02::16", "ff12::1"].map(to).iter().all(|local| *local));
    assert!(["224.0.1.1", "239.1.1.1", "10.0.0.1", "ff05::1", "fe80::1"].map(to).iter().all(|local| !local));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_parsed_and_rewritten_consistently(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(packets::run(&bytes), Ok(()));
    }

    /// Packets with some bytes changed and the end truncated.
    #[test]
    fn damaged_packets_are_parsed_and_rewritten_consistently(
        which in 0usize..2, changes in prop::collection::vec((0usize..72, any::<u8>()), 0..6), length in 20usize..100,
    ) {
        let mut bytes = vec![syn(), v6()].swap_remove(which);
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(length);
        prop_assert_eq!(packets::run(&bytes), Ok(()));
    }
}
