//! Window growth: RFC 5681 sections 3.1 and 4.1, RFC 7661.

use bentpipe_transport::tcp::{Algorithm, Config, Ecn, Flags, Sack, Segment, Timestamps};
use bentpipe_units::{Duration, Instant};

use crate::trace::{config, established, run, segments};

fn window(segments: u32) -> Config {
    Config { initial_window: segments, ..config() }
}

/// RFC 5681 eq. (2): one segment per ACK, however much it covers.
#[test]
fn slow_start_adds_a_segment_per_ack() {
    established(
        &window(2),
        65_535,
        "100  write 100000
              > . 1:1001
              > . 1001:2001
         200  < . 1:1 a1001 w65535
              > . 2001:3001
              > . 3001:4001
              = cwnd 3000
         200  < . 1:1 a2001 w65535
              > . 4001:5001
              > . 5001:6001
         300  < . 1:1 a4001 w65535
              > . 6001:7001
              > . 7001:8001
              > . 8001:9001
              = cwnd 5000
         300  < . 1:1 a4501 w65535      # N < SMSS
              > . 9001:10001
              = cwnd 5500",
    );
}

/// RFC 5681 eq. (3), worked out by hand: 4000 + 250, then 1e6 / 4250 = 235 remainder 1250, (1e6 + 1250) / 4485 = 223
/// remainder 1095, (1e6 + 1095) / 4708 = 212.
#[test]
fn congestion_avoidance_adds_a_segment_per_rtt() {
    let cfg = Config { initial_ssthresh: Some(4000), ..window(4) };
    established(
        &cfg,
        65_535,
        "100  write 100000
              > . 1:1001
              > . 1001:2001
              > . 2001:3001
              > . 3001:4001
         200  < . 1:1 a1001 w65535
              > . 4001:5001
              = cwnd 4250
         200  < . 1:1 a2001 w65535
              > . 5001:6001
              = cwnd 4485
         200  < . 1:1 a3001 w65535
              > . 6001:7001
              = cwnd 4708
         200  < . 1:1 a4001 w65535
              > . 7001:8001
              = cwnd 4920",
    );
}

/// A window of 600 segments grows by one segment per RTT, not by the 600 bytes that rounding to whole bytes would give.
#[test]
fn a_large_window_grows_by_a_segment_per_rtt() {
    let cfg = Config { initial_ssthresh: Some(600_000), receive_window: 2_000_000, ..window(600) };
    let mut c = established(&cfg, 2_000_000, "");
    let now = Instant::ZERO + Duration::from_millis(100);
    c.write(10_000_000);
    while c.poll_transmit(&cfg, now).is_some() {}
    for i in 1..=600u64 {
        let ack = Segment {
            seq: 1,
            ack: 1 + i * 1000,
            len: 0,
            window: 2_000_000,
            cwnd: 0,
            sack: Sack::NONE,
            timestamps: Timestamps::NONE,
            flags: Flags::ACK,
            retransmission: false,
            ecn: Ecn::NotEct,
        };
        c.on_segment(&cfg, now, &ack);
        while c.poll_transmit(&cfg, now).is_some() {}
    }
    let grown = c.stats().cwnd - 600_000;
    assert!((998..=1000).contains(&grown), "{grown}");
}

/// RFC 5681 section 4.1: nothing sent for more than an RTO (1 s), so cwnd is RW = min(IW, cwnd).
#[test]
fn window_is_restarted_after_an_idle_rto() {
    let grown = "100  write 6000
                      > . 1:1001
                      > . 1001:2001
                 200  < . 1:1 a1001 w65535
                      > . 2001:3001
                      > . 3001:4001
                 200  < . 1:1 a2001 w65535
                      > . 4001:5001
                      > . 5001:6001
                 300  < . 1:1 a6001 w65535
                      = cwnd 5000
                 ";
    // The last segment was sent at 200 ms; 1200 ms is not more than an RTO later.
    let five = "> . 6001:7001\n > . 7001:8001\n > . 8001:9001\n > . 9001:10001\n > . 10001:11001\n";
    let two = "> . 6001:7001\n > . 7001:8001\n = cwnd 2000";
    established(&window(2), 65_535, &format!("{grown}\n 1200 write 10000\n {five}"));
    established(&window(2), 65_535, &format!("{grown}\n 1201 write 10000\n {two}"));
    let cfg = Config { slow_start_restart: false, ..window(2) };
    established(&cfg, 65_535, &format!("{grown}\n 9000 write 10000\n {five}"));
}

/// Linux `tcp_cwnd_restart()`: half of four segments after more than one RTO (1 s), where RFC 5681 leaves the initial window of one.
#[test]
fn cubic_of_linux_halves_the_window_after_an_idle_rto() {
    for (algorithm, sent) in
        [(Algorithm::NewReno, "> . 3001:4001"), (Algorithm::CubicLinux, "> . 3001:4001\n> . 4001:5001")]
    {
        let trace = "100  write 1000
                          > . 1:1001
                     200  < . 1:1 a1001 w65535
                     200  write 2000
                          > . 1001:2001
                          > . 2001:3001
                     300  < . 1:1 a3001 w65535
                          = cwnd 4000
                     1201 write 10000";
        established(&Config { algorithm, abc: true, ..window(1) }, 65_535, &format!("{trace}\n{sent}"));
    }
}

/// RFC 5681 section 4.1: RW = min(IW, cwnd).
#[test]
fn idle_restart_does_not_increase_the_window() {
    established(
        &window(4),
        65_535,
        "200   write 1000
               > . 1:1001
         1200  timer
               > . 1:1001 rtx
         1300  < . 1:1 a1001 w65535
               = cwnd 2000
         9000  write 10000
               > . 1001:2001
               > . 2001:3001",
    );
}

/// RFC 7661 section 4: an unused window does not grow.
#[test]
fn an_unused_window_does_not_grow() {
    established(
        &window(10),
        65_535,
        "100  write 2000
              > . 1:1001
              > . 1001:2001
         200  < . 1:1 a1001 w65535
         200  < . 1:1 a2001 w65535
              = cwnd 10000",
    );
}

/// RFC 6817 section 2.4.2: LEDBAT's window falls to a segment more than was outstanding before each ACK, two at least.
#[test]
fn the_unused_window_of_ledbat_falls() {
    established(
        &Config { algorithm: Algorithm::Ledbat, ..window(10) },
        65_535,
        "100  write 4000
              > . 1:1001
              > . 1001:2001
              > . 2001:3001
              > . 3001:4001
         200  < . 1:1 a1001 w65535
              = cwnd 5000
         200  < . 1:1 a3001 w65535
              = cwnd 4000
         200  < . 1:1 a4001 w65535
              = cwnd 2000",
    );
}

#[test]
fn max_window_limits_the_sender() {
    let cfg = Config { max_window: 3000, ..window(2) };
    established(
        &cfg,
        65_535,
        "100  write 100000
              > . 1:1001
              > . 1001:2001
         200  < . 1:1 a2001 w65535
              > . 2001:3001
              > . 3001:4001
              > . 4001:5001
         300  < . 1:1 a5001 w65535
              > . 5001:6001
              > . 6001:7001
              > . 7001:8001
              = in_flight 3000
         400  < . 1:1 a8001 w65535
              > . 8001:9001
              > . 9001:10001
              > . 10001:11001
              = cwnd 4000           # unused, so no growth",
    );
}

/// RFC 3465 section 2.2: in slow start an ACK counts for at most two segments. Section 2.1: in congestion avoidance it
/// counts for all it covers, 6500 + 1000 * 2000 / 6500.
#[test]
fn byte_counting_uses_the_acknowledged_bytes() {
    let cfg = Config { abc: true, initial_ssthresh: Some(6500), ..window(4) };
    established(
        &cfg,
        65_535,
        "100  write 100000
              > . 1:1001
              > . 1001:2001
              > . 2001:3001
              > . 3001:4001
         200  < . 1:1 a501 w65535
              > . 4001:5001
              = cwnd 4500
         200  < . 1:1 a4001 w65535
              > . 5001:6001
              > . 6001:7001
              > . 7001:8001
              > . 8001:9001
              > . 9001:10001
              = cwnd 6500
         300  < . 1:1 a6001 w65535
              > . 10001:11001
              > . 11001:12001
              = cwnd 6807",
    );
}

/// RFC 3465 section 2.3: after a timeout an ACK counts for one segment until all data sent before is acknowledged.
#[test]
fn byte_counting_after_a_timeout_counts_one_segment_per_ack() {
    let cfg = Config { abc: true, ..window(4) };
    established(
        &cfg,
        65_535,
        "200   write 4000
               > . 1:1001
               > . 1001:2001
               > . 2001:3001
               > . 3001:4001
         1200  timer
               > . 1:1001 rtx
         1300  < . 1:1 a3001 w65535
               > . 3001:4001 rtx
               = cwnd 2000",
    );
    // The ACK of the last of that data counts for one as well.
    let eight = segments(8, "");
    established(
        &Config { abc: true, ..window(8) },
        65_535,
        &format!(
            "200   write 8000
                   {eight}
             1200  timer
                   > . 1:1001 rtx
             1300  < . 1:1 a3001 w65535
                   > . 3001:4001 rtx
                   > . 4001:5001 rtx
             1400  < . 1:1 a8001 w65535
                   = cwnd 3000"
        ),
    );
}

/// Linux `tcp_slow_start()`: an ACK of four segments counts for four, where RFC 3465 allows two. If one of them was SACKed before,
/// it counts for three.
#[test]
fn cubic_of_linux_counts_all_that_an_ack_delivers() {
    let four = segments(4, "");
    let cfg = Config { abc: true, algorithm: Algorithm::CubicLinux, sack: true, ..window(4) };
    let begin = "0 connect\n> S 0:0 sackOK\n100 < S. 0:0 a1 w65535 sackOK\n> . 1:1 a1\n200 write 50000";
    for (ack, cwnd, sent) in [
        ("300 < . 1:1 a4001 w65535", 8000, 4..12),
        (
            "300 < . 1:1 a1 w65535 sack2001:3001
                 > . 4001:5001
             300 < . 1:1 a4001 w65535",
            7000,
            5..11,
        ),
    ] {
        let sent: String = sent.map(|i| format!("> . {}:{}\n", 1 + i * 1000, 1001 + i * 1000)).collect();
        run(&cfg, &format!("{begin}\n{four}\n{ack}\n{sent}\n= cwnd {cwnd}"));
    }
}

/// With `half_of_cwnd` a loss halves the congestion window, whatever is outstanding; what duplicate ACKs added to it does not
/// count when the timer expires in the recovery.
#[test]
fn half_of_cwnd_leaves_out_the_inflation() {
    let eight = segments(8, "");
    for (segments, reduced, inflated, after) in [(12, 6000, 9000, 3000), (10, 5000, 8000, 2000)] {
        established(
            &Config { half_of_cwnd: true, initial_ssthresh: Some(20_000), ..window(segments) },
            65_535,
            &format!(
                "200   write 8000
                       {eight}
                 300   < . 1:1 a1 w65535
                 300   < . 1:1 a1 w65535
                 300   < . 1:1 a1 w65535
                       > . 1:1001 rtx
                       = ssthresh {reduced}
                       = cwnd {inflated}            # three segments more
                 1300  timer
                       > . 1:1001 rtx
                       = ssthresh {after}           # in whole segments"
            ),
        );
    }
}

/// RFC 7661 section 4: half of the window was used, so an ACK says nothing about a larger one.
#[test]
fn a_window_with_room_for_another_segment_does_not_grow() {
    established(&window(2), 65_535, "200 write 1000\n > . 1:1001\n 300 < . 1:1 a1001 w65535\n = cwnd 2000");
}
