//! Packets to send and window growth: sections 6.1, 6.9, 6.10, 7.2.1 and 7.2.2.

use bentpipe_transport::sctp::Config;

use crate::trace::{config, established, run};

const FOUR: &str = "200 write 100000\n > data 1:984\n > data 2:984\n > data 3:984\n > data 4:984\n";

/// Section 7.2.1.
#[test]
fn slow_start_adds_at_most_one_chunk_per_sack() {
    let trace = "
         300  < sack 1
              > data 5:984
              > data 6:984
              = cwnd 5000
              = timer 1300           # section 6.3.2, R3
         310  < sack 2
              > data 7:984
              > data 8:984
              = cwnd 6000
         320  < sack 4               # two chunks, L = 1
              > data 9:984
              > data 10:984
              > data 11:984
              = cwnd 7000
         330  < sack 8               # room for five packets, but Max.Burst is 4 (section 6.1 D)
              > data 12:984
              > data 13:984
              > data 14:984
              > data 15:984
              = cwnd 8000
              = in_flight 7000
         340  < sack 9               # the window was not used in full
              > data 16:984
              > data 17:984
              = cwnd 8000
         350  < sack 8 w5            # section 6.2.1 (D) i: an older one
              = rwnd 57663           # 65535 - 8 x 984";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.1: a larger L.
#[test]
fn slow_start_limit_allows_more_chunks_per_sack() {
    let cfg = Config { slow_start_limit: 2, ..config() };
    let trace = "300 < sack 3
                 > data 5:984\n> data 6:984\n> data 7:984\n> data 8:984\n = cwnd 6000";
    established(&cfg, 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.2.
#[test]
fn congestion_avoidance_adds_a_chunk_per_window() {
    let cfg = Config { initial_ssthresh: Some(3999), ..config() };
    let trace = "
         300  < sack 1
              > data 5:984
              = pba 1000
         310  < sack 2
              > data 6:984
         320  < sack 3
              > data 7:984
              = pba 3000
              = cwnd 4000
         330  < sack 4
              > data 8:984
              > data 9:984
              = pba 0
              = cwnd 5000
         340  < sack 4 g6-6          # gap ack blocks count too
              > data 10:984
              = pba 1000";
    established(&cfg, 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.2: partial_bytes_acked is at most cwnd while less than that is outstanding, and zero once everything is
/// acknowledged.
#[test]
fn partial_bytes_acked_is_limited_while_the_window_is_unused() {
    let cfg = Config { initial_ssthresh: Some(3999), ..config() };
    established(
        &cfg,
        65_535,
        "200  write 5904
              > data 1:984\n> data 2:984\n> data 3:984\n> data 4:984
         300  < sack 2
              > data 5:984\n> data 6:984
              = pba 2000
         310  < sack 3               # 4000 were outstanding
              = pba 3000
         320  < sack 5               # 3000 were
              = pba 4000             # not 5000
              = cwnd 4000
         330  < sack 6
              = pba 0
              = cwnd 4000
              = timer none",
    );
}

/// Section 7.2.1: cwnd <- max(cwnd / 2, 4 PMDCS) for each RTO without data, after ssthresh <- cwnd.
#[test]
fn cwnd_is_halved_for_each_idle_rto() {
    let cfg = Config { max_burst: 100, ..config() };
    // Windows of 4, 5, 6, 7 and 8 chunks, 30 in total; the last is sent at 600 ms.
    let mut trace = format!("200 write {}\n", 30 * 984);
    let mut next = 1;
    for (i, window) in (4..=8).enumerate() {
        if i > 0 {
            trace += &format!("{} < sack {}\n", 200 + 100 * i, next - 1);
        }
        for tsn in next..next + window {
            trace += &format!("> data {tsn}:984\n");
        }
        next += window;
    }
    trace += "700 < sack 30\n= cwnd 9000\n";
    let first = "> data 31:984\n> data 32:984\n> data 33:984\n> data 34:984\n";
    let more = "> data 35:984\n> data 36:984\n> data 37:984\n> data 38:984\n> data 39:984\n";
    established(
        &cfg,
        65_535,
        &format!("{trace}1599 write 100000\n{first}{more}= cwnd 9000\n= ssthresh none"),
    );
    let fifth = "> data 35:984\n";
    established(
        &cfg,
        65_535,
        &format!("{trace}1600 write 100000\n{first}{fifth}= cwnd 4500\n= ssthresh 9000"),
    );
    established(&cfg, 65_535, &format!("{trace}2600 write 100000\n{first}= cwnd 4000\n= ssthresh 9000"));
    let least = "200 write 984\n> data 1:984\n300 < sack 1\n5000 write 984\n> data 2:984\n= cwnd 4000\n= ssthresh none";
    established(&cfg, 65_535, least);
}

/// Section 6.9: fragments fill a packet; section 6.10: short messages are bundled.
#[test]
fn messages_are_fragmented_and_bundled() {
    run(
        &config(),
        "0    connect\n> init
         50   send 2500
         50   send 400
         50   send 500
         100  < init-ack w9000\n> cookie-echo
         200  < cookie-ack
              > data 1:984-
              > data -2:984-
              > data -3:532 data 4:400     # 548 and 416 of 1000 bytes
              > data 5:500
              = in_flight 3480",
    );
    // 116 bytes each on the wire, so eight fit.
    let cfg = Config { message_len: 100, ..config() };
    run(
        &cfg,
        "0    connect\n> init
         50   send 100
         50   send 100
         50   write 320
         100  < init-ack w9000\n> cookie-echo
         200  < cookie-ack
              > data 1:100 data 2:100 data 3:100 data 4:100 data 5:100 data 6:20",
    );
    established(
        &cfg,
        9000,
        "200  write 1000
              > data 1:100 data 2:100 data 3:100 data 4:100 data 5:100 data 6:100 data 7:100 data 8:100
              > data 9:100 data 10:100
              = in_flight 1160",
    );
}

/// Section 6.1 (A).
#[test]
fn a_closed_window_is_probed_while_the_peer_answers() {
    let cfg = Config { association_max_retrans: 1, ..config() };
    let closed = "
         200  write 5000
              > data 1:984
              > data 2:984
              = rwnd 0
         300  < sack 2 w0
              > data 3:984           # the first probe at once
              = timer 1300\n";
    established(
        &cfg,
        1968,
        &format!(
            "{closed}
         400  < sack 2 w0
         1300 timer
              > data 3:984 rtx
              = timer 3300
         1400 < sack 2 w0
         3300 timer
              > data 3:984 rtx
              = timer 7300
         3400 < sack 2 w0
         7300 timer
              > data 3:984 rtx
              = failed false
         7400 < sack 3 w3000
              > data 4:984
              > data 5:984
              = cwnd 2000
              = rwnd 1032"
        ),
    );
    established(&cfg, 1968, &format!("{closed} 1300 timer\n> data 3:984 rtx\n3300 timer\n= failed true"));
}

/// Section 7.2.2: partial_bytes_acked also grows by the size of the duplicates that the peer reports, with a SACK that
/// acknowledges nothing new, too. With 4000 bytes in flight, a window's worth opens the window by a packet.
#[test]
fn duplicates_count_in_congestion_avoidance() {
    let cfg = Config { initial_ssthresh: Some(3999), ..config() };
    let trace = "
         300  < sack 1 b500
              > data 5:984
              = pba 1500
         310  < sack 1 b2499
              = pba 3999
              = cwnd 4000
         320  < sack 1 b1
              > data 6:984
              = pba 0
              = cwnd 5000";
    established(&cfg, 65_535, &format!("{FOUR}{trace}"));
}

/// Messages of 4 bytes take 20 each. A packet has at most 16 chunks, when they are sent and when they are resent.
#[test]
fn a_packet_has_at_most_sixteen_chunks() {
    let cfg = Config { message_len: 4, ..config() };
    let chunks = |from: u64, to: u64| (from..=to).map(|tsn| format!(" data {tsn}:4")).collect::<String>();
    let (first, rest) = (chunks(1, 16), chunks(17, 20));
    let trace = format!(
        "200 write 80\n>{first}\n>{rest}\n= in_flight 400
         1200 timer\n>{first} rtx\n= in_flight 320
         1300 < sack 16\n>{rest} rtx\n= in_flight 80
         1400 < sack 20\n= acked 80\n= timer none"
    );
    established(&cfg, 9000, &trace);
}

/// Section 6.2.1 (D): TSN 5 was never sent.
#[test]
fn a_sack_of_a_tsn_never_sent_is_ignored() {
    let trace = "
         300  < sack 5 w1
              = acked 0
              = rwnd 61599           # 65535 - 4 x 984
         310  < sack 4 w1
              > data 5:984           # a probe
              = acked 3936";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}
