//! SACKs, gaps and the receive buffer: sections 6.2, 6.7 and 6.9.

use bentpipe_transport::sctp::Config;

use crate::trace::{config, established};

fn delayed() -> Config {
    Config { sack_every: 2, ..config() }
}

#[test]
fn every_second_packet_is_acknowledged_at_once() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1               # section 5.1: the first at once
         310  < data 2:984
              = timer 510
         320  < data 3:984
              > sack 3
              = timer none
         330  < data 4:100 data 5:100    # one packet
              = timer 530
         530  timer
              > sack 5",
    );
}

/// Section 6.7; duplicates: section 6.2.
#[test]
fn gaps_and_duplicates_are_reported_at_once() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1
         600  < data 3:984
              > sack 1 w63567 g3-3   # 65535 - 2 x 984
         605  < data 3:984
              > sack 1 w63567 g3-3 d1
         610  < data 5:984
              > sack 1 g3-3,5-5
         620  < data 2:984
              > sack 3 g5-5
         630  < data 4:984
              > sack 5
         640  < data 5:984
              > sack 5 d1
              = received 4920
         650  < data 6:984
              = timer 850",
    );
}

/// Section 6.1: a SACK is bundled with DATA if it fits.
#[test]
fn a_sack_is_bundled_if_it_fits() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1
         650  < data 2:984
              = timer 850
         660  send 100
              > sack 2 data 1:100
              = timer 1660           # T3-rtx
         700  < data 3:984
              = timer 900
         710  send 984               # it does not fit
              > data 2:984
              = timer 900",
    );
}

/// Section 6.2: the window excludes buffered data; without room, a new TSN is dropped.
#[test]
fn the_window_is_the_free_buffer() {
    let cfg = Config { a_rwnd: 3000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 1:984
              > sack 1 w2016
         310  < data 2:984
              > sack 2 w1032
         320  < data 3:984
              > sack 3 w48
         330  < data 4:984
              > sack 4 w0
         340  < data 5:984
              > sack 4 w0
              = readable 3936
         400  read 984
         410  read 984
         420  read 984               # RFC 1122 section 4.2.3.3: half of the buffer
              > sack 4 w2016",
    );
}

/// Section 6.2: the highest TSN is dropped to make room for a lower one.
#[test]
fn a_full_buffer_makes_room_for_missing_tsns() {
    let cfg = Config { a_rwnd: 2000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 3:984
              > sack 0 w1016 g3-3
         310  < data 4:984
              > sack 0 w32 g3-4
         320  < data 5:984
              > sack 0 w0 g3-5
         330  < data 1:984
              > sack 1 w0 g3-4
         340  < data 6:984
              > sack 1 w0 g3-4
         350  < data 5:984           # the next above the highest
              > sack 1 w0 g3-4
         360  read 984               # room for 32 bytes
         370  < data 2:984
              > sack 4 w0",
    );
}

/// Section 6.9: complete messages are delivered, or parts of messages that would never fit.
#[test]
fn messages_are_reassembled() {
    let cfg = Config { a_rwnd: 2000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 1:484-
              > sack 1 w1516
              = readable 0
         310  < data -2:16
              > sack 2 w1500
              = readable 500
         320  < data 3:984-
              > sack 3 w516
              = readable 500
         330  < data -4:984-
              > sack 4 w0
              = readable 2468",
    );
}

/// Section 6.2: a SACK is due at once if a chunk is dropped, although others of its packet are accepted. A chunk without
/// data is dropped.
#[test]
fn dropped_chunks_are_reported_at_once() {
    let cfg = Config { a_rwnd: 2000, ..delayed() };
    established(
        &cfg,
        9000,
        "300  < data 1:984
              > sack 1 w1016
         310  < data 2:1016 data 3:10
              > sack 2 w0
         320  read 2000
              > sack 2 w2000
         330  < data 3:10 data 4:0
              > sack 3 w1990
              = received 2010",
    );
}

/// Section 3.3.4: the offsets of gap ack blocks have 16 bits.
#[test]
fn tsns_beyond_the_reach_of_gap_ack_blocks_are_dropped() {
    established(
        &config(),
        9000,
        "300  < data 65536:10
              > sack 0 w65535
         310  < data 65535:10
              > sack 0 w65525 g65535-65535
         320  < data 65534:10
              > sack 0 w65515 g65534-65535",
    );
}

/// RFC 1122 section 4.2.3.3: a window below one PMDCS is announced again once it has grown by two PMDCS, 2000, or half
/// of the buffer, whichever is less.
#[test]
fn a_window_is_announced_once_it_has_grown_enough() {
    for (a_rwnd, fill, growth) in [(3000, 3, 1500), (10_000, 10, 2000), (4935, 4, 2000)] {
        let cfg = Config { a_rwnd, ..config() };
        let mut trace = String::new();
        for tsn in 1..=fill {
            trace += &format!("300 < data {tsn}:984\n> sack {tsn} w{}\n", a_rwnd - 984 * tsn);
        }
        let left = a_rwnd - 984 * fill;
        trace += &format!("310 read {}\n311 read 1\n> sack {fill} w{}\n", growth - 1, left + growth);
        established(&cfg, 9000, &trace);
    }
    let cfg = Config { a_rwnd: 4936, ..config() };
    let filled = "300 < data 1:984\n> sack 1\n300 < data 2:984\n> sack 2\n300 < data 3:984\n> sack 3
                  300 < data 4:984\n> sack 4 w1000\n310 read 4936";
    established(&cfg, 9000, filled);
}

/// Section 6.1: a SACK of 16 bytes is bundled if it fits, with as many duplicates of 4 bytes as fit too: 960 bytes of
/// data and 16 of header leave 24 of 1000. Beside 968 bytes of data there is just room for a SACK. With gaps none is
/// bundled, because it may be long.
#[test]
fn duplicates_are_bundled_as_far_as_they_fit() {
    let six = "data 1:10 data 1:10 data 1:10 data 1:10 data 1:10 data 1:10";
    for (len, arriving, sent) in [
        (956, six, "> sack 1 d3 data 2:956"),
        (968, "data 1:10", "> sack 1 data 2:968"),
        (972, "data 1:10", "> data 2:972\n> sack 1"),
        (100, "data 2:10", "> data 2:100\n> sack 0 g2-2"),
    ] {
        let trace = format!(
            "200 send 100\n> data 1:100\n= rwnd 0\n210 send {len}\n300 < sack 1 w9000 {arriving}\n{sent}"
        );
        established(&config(), 100, &trace);
    }
}

/// Section 6.2: the chunk dropped for TSN 2 was the only one ahead, so no TSN is missing any more.
#[test]
fn a_gap_ends_with_the_chunk_that_is_dropped() {
    let cfg = Config { a_rwnd: 2000, ..delayed() };
    established(
        &cfg,
        9000,
        "300  < data 1:984
              > sack 1 w1016
         310  read 984
         320  < data 4:2000
              > sack 1 w0 g4-4
         330  < data 2:984
              > sack 2 w1016
         340  < data 3:10
              = timer 540
         540  timer
              > sack 3",
    );
}
