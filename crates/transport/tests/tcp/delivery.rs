//! Delivery records in use: BBR (draft-cardwell-iccrg-bbr-congestion-control-00), HyStart++ (RFC 9406) and SEARCH
//! (draft-chung-ccwg-search-09).

use bentpipe_transport::tcp::{Algorithm, Config};

use crate::sack;
use crate::trace::{config, established, segments};

fn bbr(initial_window: u32) -> Config {
    Config { algorithm: Algorithm::Bbr, limited_transmit: false, initial_window, ..config() }
}

/// Sections 4.3.5 and 4.4.3: RTprop of 300 ms is older than 10 s at 10 400 ms. The connection had nothing in flight for lack
/// of data, so ProbeRTT is left out: the window grows by a segment per ACK, where ProbeRTT would leave four.
#[test]
fn bbr_skips_probe_rtt_after_an_idle_time() {
    established(
        &bbr(10),
        65_535,
        "200   write 1000
               > . 1:1001
         300   < . 1:1 a1001 w65535
         10300 write 1000
               > . 1001:2001
         10400 < . 1:1 a2001 w65535
               = cwnd 12000",
    );
}

/// As above, but with data always in flight since 10 000 ms: the ACK at 10 150 ms ends the restart, RTprop expires at
/// 10 300 ms, and ProbeRTT begins with the ACK after that.
#[test]
fn bbr_probes_the_rtt_while_data_is_in_flight() {
    established(
        &bbr(10),
        65_535,
        "200   write 1000
               > . 1:1001
         300   < . 1:1 a1001 w65535
         10000 write 1000
               > . 1001:2001
         10050 write 1000
               > . 2001:3001
         10150 < . 1:1 a2001 w65535
               = cwnd 12000
         10200 write 1000
               > . 3001:4001
         10310 < . 1:1 a3001 w65535
               = cwnd 4000",
    );
}

/// Section 4.4.3: only a sender without data restarts from idle. The peer's window is closed from 300 to 10 250 ms.
///
/// - A window of one segment is full at 200 ms, so the pause is the peer's: ProbeRTT leaves four segments.
/// - With room for another segment, the first 1000 bytes are application-limited. No more than those have been delivered at
///   10 250 ms, so the mark still counts, and the window grows from the minimum of four segments to five.
#[test]
fn bbr_restarts_only_after_a_lack_of_data() {
    for (initial_window, cwnd) in [(1, 4000), (2, 5000)] {
        established(
            &bbr(initial_window),
            1000,
            &format!(
                "200   write 1000
                       > . 1:1001
                 250   write 9000
                 300   < . 1:1 a1001 w0
                       = cwnd 4000
                 1300  timer
                       > . 1001:1002
                 1400  < . 1:1 a1001 w0
                 3300  timer
                       > . 1001:1002 rtx
                 3400  < . 1:1 a1001 w0
                 7300  timer
                       > . 1001:1002 rtx
                 7400  < . 1:1 a1001 w0
                 10250 < . 1:1 a1001 w65535
                       > . 1001:2001
                 10360 < . 1:1 a2001 w65535
                       > . 2001:3001
                       = cwnd {cwnd}"
            ),
        );
    }
}

/// Section 4.2.3.4, without SACK: each duplicate ACK counts as a segment delivered, a segment with data as none. The third
/// duplicate starts recovery: what is in flight, 1000 bytes, and the segment delivered. The full ACK ends it: the window of
/// 6000 before the recovery, and the 4000 bytes delivered.
#[test]
fn bbr_conserves_packets_in_fast_recovery_and_restores_the_window() {
    established(
        &bbr(4),
        65_535,
        "150  < . 1:1001 a1 w65535
              > . 1:1 a1001
              = cwnd 4000
         200  write 1000
              > . 1:1001
         210  write 1000
              > . 1001:2001
         220  write 1000
              > . 2001:3001
         230  write 1000
              > . 3001:4001
         310  < . 1001:1001 a1 w65535
              = cwnd 5000
         315  < . 1001:2001 a1 w65535
              > . 4001:4001 a2001
              = cwnd 5000
         320  < . 2001:2001 a1 w65535
              = cwnd 6000
         330  < . 2001:2001 a1 w65535
              > . 1:1001 rtx
              = cwnd 2000
         430  < . 2001:2001 a4001 w65535
              = cwnd 10000",
    );
}

/// Section 4.2.3.4, with SACK. Segments 1 and 6 of ten are lost.
///
/// - Recovery begins with 6000 in flight and 1000 delivered.
/// - Segment 6 is resent at 360 ms by NextSeg() (3) of RFC 6675 and found lost at 380 ms: 7000 - 1000, more than the 3000 in
///   flight and the 1000 delivered.
#[test]
fn bbr_reduces_the_window_by_what_is_lost_in_recovery() {
    let sent: String = (0..10)
        .map(|i| format!("{} write 1000\n > . {}:{}\n", 200 + 10 * i, 1 + 1000 * i, 1001 + 1000 * i))
        .collect();
    sack::sent(
        &Config { sack: true, ..bbr(10) },
        0,
        0,
        &format!(
            "{sent}
             310  < . 1:1 a1 w65535 sack1001:2001
             320  < . 1:1 a1 w65535 sack1001:3001
                  = cwnd 12000
             330  < . 1:1 a1 w65535 sack1001:4001
                  > . 1:1001 rtx
                  = cwnd 7000
             340  < . 1:1 a1 w65535 sack1001:5001
             360  < . 1:1 a1 w65535 sack6001:7001,1001:5001
                  > . 5001:6001 rtx
             370  < . 1:1 a1 w65535 sack6001:8001,1001:5001
                  = cwnd 7000
             380  < . 1:1 a1 w65535 sack6001:9001,1001:5001
                  = cwnd 6000
                  = in_flight 3000"
        ),
    );
}

/// RFC 9406 section 4.2: the RTT grows from 100 ms to 113 ms, more than by an eighth, so from the eighth sample of the second
/// round on the window grows by quarters: 20 000 + 7 * 1000 + 11 * 250. Segments of the peer that acknowledge nothing new end
/// none of the five rounds after which slow start is over.
#[test]
fn hystart_counts_rounds_of_new_acks() {
    let sent = |from: u64| format!("> . {}:{}\n", from * 1000 + 1, from * 1000 + 1001);
    let acks = |ms: u64, from: u64, to: u64, sends: bool| {
        (from..=to)
            .map(|i| {
                let released = [10 + 2 * (i - 1), 11 + 2 * (i - 1)]
                    .map(|n| if sends && n < 28 { sent(n) } else { String::new() });
                format!("{ms} < . 1:1 a{} w65535\n {}", i * 1000 + 1, released.concat())
            })
            .collect::<String>()
    };
    let data: String = (0..5)
        .map(|i| {
            format!(
                "500 < . {}:{} a28001 w65535\n > . 28001:28001 a{}\n",
                i * 10 + 1,
                i * 10 + 11,
                i * 10 + 11
            )
        })
        .collect();
    established(
        &Config { hystart: true, initial_window: 10, ..config() },
        65_535,
        &format!(
            "200 write 28000\n {}\n {}\n = cwnd 20000\n {}\n = cwnd 29750\n {data}\n = ssthresh none",
            (0..10).map(sent).collect::<String>(),
            acks(300, 1, 10, true),
            acks(413, 11, 28, false),
        ),
    );
}

/// RFC 9406 section 4.3: an ACK of ten segments counts for `L` = 8 of them, or for all if the sender paces them. After a timeout
/// an ACK of new data counts for a segment, RFC 5681 eq. (2).
#[test]
fn hystart_counts_acknowledged_bytes_in_the_first_slow_start() {
    let cfg = Config { hystart: true, initial_window: 10, ..config() };
    let ten = segments(10, "");
    let acknowledged =
        |cwnd: u64| format!("200 write 10000\n {ten} 300 < . 1:1 a10001 w65535\n = cwnd {cwnd}");
    established(&cfg, 65_535, &acknowledged(18_000));
    established(&Config { pace_window: true, ..cfg.clone() }, 65_535, &acknowledged(20_000));
    established(
        &cfg,
        65_535,
        &format!(
            "200  write 10000
                  {ten}
             1200 timer
                  > . 1:1001 rtx
             1300 < . 1:1 a9001 w65535
                  > . 9001:10001 rtx
                  = cwnd 2000"
        ),
    );
}

/// Three segments are sent every 36 ms. The first RTT of 100 ms makes bins of 35 ms, one of which ends with each ACK.
///
/// - If three are delivered for each three sent, `norm_diff` is 0 and slow start continues.
/// - If two are, it is 1/3 once a window and an RTT have passed: at the end of bin 21, as the RTT of 352 ms then has ten bins. The
///   next ACK of new data, but no other segment, finds the window, unused so far, at its target.
#[test]
fn search_ends_slow_start_if_less_is_delivered_than_sent() {
    for (delivered, ssthresh) in [(3000, "none"), (2000, "100000")] {
        let mut events = three_per_bin();
        for bin in 0..23 {
            let state = if bin == 22 { ssthresh } else { "none" };
            let ack = (bin + 1) * delivered + 1;
            events.push((300 + 36 * bin, format!("< . 1:1 a{ack} w65535\n = ssthresh {state}")));
        }
        let ack = 22 * delivered + 1;
        events.push((
            300 + 36 * 21 + 1,
            format!("< . 1:11 a{ack} w65535\n > . 72001:72001 a11\n = ssthresh none"),
        ));
        established(&Config { search: true, initial_window: 100, ..config() }, 65_535, &in_order(events));
    }
}

/// The first of each three segments arrives 1 ms after the others, which only SACK blocks report. All that is sent is delivered, so
/// slow start continues.
#[test]
fn search_counts_data_that_arrives_out_of_order() {
    let mut events = three_per_bin();
    for bin in 0..23 {
        let ms = 300 + 36 * bin;
        let una = 3000 * bin + 1;
        events.push((ms, format!("< . 1:1 a{una} w65535 sack{}:{}", una + 1000, una + 3000)));
        events.push((ms + 1, format!("< . 1:1 a{} w65535\n = ssthresh none", una + 3000)));
    }
    let cfg = Config { search: true, ..sack::selective(100) };
    sack::sent(&cfg, 0, 0, &in_order(events));
}

/// Events that send three segments every 36 ms, from 200 ms on.
fn three_per_bin() -> Vec<(u64, String)> {
    let sent = |n: u64| format!("> . {}:{}\n", n * 1000 + 1, n * 1000 + 1001);
    (0..26)
        .map(|i| (200 + 36 * i, format!("write 3000\n {}", (3 * i..3 * i + 3).map(sent).collect::<String>())))
        .collect()
}

fn in_order(mut events: Vec<(u64, String)>) -> String {
    events.sort_by_key(|event| event.0);
    events.iter().map(|(ms, event)| format!("{ms} {event}\n")).collect()
}
