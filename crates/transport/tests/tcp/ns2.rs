//! Recovery as in ns-2.35, worked out by hand from the rules of its agents. `python/tests/test_ns2_sequences.py`
//! compares whole flows with ns-2.

use bentpipe_transport::tcp::Config;

use crate::trace::{config, established, run, segments};

fn ns2() -> Config {
    Config { ns2_recovery: true, half_of_cwnd: true, initial_ssthresh: Some(8000), ..config() }
}

fn with_sack() -> Config {
    Config { sack: true, initial_window: 8, ..ns2() }
}

/// Runs what follows eight segments of a connection with SACK.
fn sack1(rest: &str) {
    sack1_of(&with_sack(), 65_535, 100_000, rest);
}

/// As [`sack1`], with `window` and `bytes` written.
fn sack1_of(cfg: &Config, window: u32, bytes: u64, rest: &str) {
    let eight = segments(8, "");
    run(
        cfg,
        &format!(
            "0 connect
                  > S 0:0 sackOK
             100  < S. 0:0 a1 w{window} sackOK
                  > . 1:1 a1
             200  write {bytes}
                  {eight}
             {rest}"
        ),
    );
}

/// Segments 2 and 5 of eight are lost. Pipe starts with ten segments outstanding less three, and the window of 8.1
/// segments falls to 4.06: the second hole and new data are sent once fewer than four segments are in Pipe.
#[test]
fn sack1_resends_a_hole_as_soon_as_pipe_allows_and_keeps_its_window() {
    sack1(
        "300  < . 1:1 a1001 w65535
              > . 8001:9001
              = cwnd 8125
         301  < . 1:1 a1001 w65535 sack2001:3001
              > . 9001:10001
         302  < . 1:1 a1001 w65535 sack2001:4001
              > . 10001:11001
         303  < . 1:1 a1001 w65535 sack5001:6001,2001:4001
              > . 1001:2001 rtx
              = cwnd 4062
              = ssthresh 4000
         304  < . 1:1 a1001 w65535 sack5001:7001,2001:4001
         305  < . 1:1 a1001 w65535 sack5001:8001,2001:4001
         306  < . 1:1 a1001 w65535 sack5001:9001,2001:4001
         307  < . 1:1 a1001 w65535 sack5001:10001,2001:4001
              > . 4001:5001 rtx
         308  < . 1:1 a1001 w65535 sack5001:11001,2001:4001
              > . 11001:12001
         403  < . 1:1 a4001 w65535 sack5001:11001
              > . 12001:13001
              > . 13001:14001
         407  < . 1:1 a11001 w65535
              > . 14001:15001
              = cwnd 4062
         408  < . 1:1 a11001 w65535 sack12001:13001     # all sent before is acknowledged, and the next loss counts
              > . 15001:16001
         409  < . 1:1 a11001 w65535 sack12001:14001
              > . 16001:17001
         410  < . 1:1 a11001 w65535 sack12001:15001
              > . 11001:12001 rtx",
    );
}

/// ns-2 increases the window whether it was used or not, up to the peer's.
#[test]
fn an_unused_window_grows_up_to_the_peers() {
    established(
        &Config { initial_window: 3, ..ns2() },
        4000,
        "200  write 1000
              > . 1:1001
         300  < . 1:1 a1001 w4000
              = cwnd 4000
         300  write 1000
              > . 1001:2001
         400  < . 1:1 a2001 w4000
              = cwnd 4000",
    );
}

/// Limited transmit of `Sack1` counts ACKs, not SACKed segments.
#[test]
fn sack1_sends_one_segment_for_each_of_two_duplicates() {
    sack1(
        "300  < . 1:1 a1 w65535 sack1001:3001
              > . 8001:9001
         301  < . 1:1 a1 w65535 sack1001:5001
              > . 9001:10001",
    );
}

#[test]
fn a_timeout_halves_the_window() {
    established(
        &Config { initial_window: 8, ..ns2() },
        65_535,
        &format!(
            "200   write 8000
                   {}
             1200  timer
                   > . 1:1001 rtx
                   = ssthresh 4000
                   = cwnd 1000",
            segments(8, "")
        ),
    );
}

/// After a timeout the first two duplicate ACKs allow one retransmission each, the third none.
#[test]
fn limited_transmit_resends_after_a_timeout() {
    established(
        &Config { initial_window: 8, limited_transmit: true, ..ns2() },
        65_535,
        &format!(
            "200   write 8000
                   {}
             300   < . 1:1 a1001 w65535
             1300  timer
                   > . 1001:2001 rtx
             1310  < . 1:1 a1001 w65535
                   > . 2001:3001 rtx
             1320  < . 1:1 a1001 w65535
                   > . 3001:4001 rtx
             1330  < . 1:1 a1001 w65535
                   = retransmissions 3",
            segments(8, "")
        ),
    );
}

/// After a timeout `Sack1` ignores duplicate ACKs until new data is acknowledged.
#[test]
fn sack1_ignores_duplicates_after_a_timeout() {
    sack1(
        "300   < . 1:1 a1001 w65535
               > . 8001:9001
         1300  timer
               > . 1001:2001 rtx
         1310  < . 1:1 a1001 w65535 sack2001:3001
         1320  < . 1:1 a1001 w65535 sack2001:4001
         1330  < . 1:1 a1001 w65535 sack2001:5001
               = fast_retransmits 0",
    );
}

/// Pipe falls to three segments of four, but all data is sent.
#[test]
fn sack1_sends_nothing_beyond_the_data() {
    sack1_of(
        &with_sack(),
        65_535,
        8000,
        "300  < . 1:1 a1 w65535 sack1001:2001
         301  < . 1:1 a1 w65535 sack1001:3001
         302  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
         303  < . 1:1 a1 w65535 sack1001:5001
         304  < . 1:1 a1 w65535 sack1001:6001
         305  < . 1:1 a1 w65535 sack1001:7001
         306  < . 1:1 a1 w65535 sack1001:8001
              = retransmissions 1",
    );
}

/// New data in a recovery stays within the peer's window, here of nine segments.
#[test]
fn sack1_sends_no_new_data_beyond_the_window() {
    sack1_of(
        &Config { limited_transmit: false, ..with_sack() },
        9000,
        100_000,
        "300  < . 1:1 a1 w9000 sack1001:2001
         301  < . 1:1 a1 w9000 sack1001:3001
         302  < . 1:1 a1 w9000 sack1001:4001
              > . 1:1001 rtx
         303  < . 1:1 a1 w9000 sack1001:5001
         304  < . 1:1 a1 w9000 sack1001:6001
              > . 8001:9001
         305  < . 1:1 a1 w9000 sack1001:7001
         306  < . 1:1 a1 w9000 sack1001:8001",
    );
}

/// ns-2 counts an ACK as a duplicate only if it SACKs something new.
#[test]
fn sack1_ignores_acks_that_say_nothing_new() {
    sack1(
        "300  < . 1:1 a1001 w65535
              > . 8001:9001
         301  < . 1:1 a1001 w65535
         302  < . 1:1 a1001 w65535
         303  < . 1:1 a1001 w65535
              = fast_retransmits 0",
    );
}

/// ns-2 counts an ACK as a duplicate only if it repeats the highest one.
#[test]
fn sack1_ignores_the_blocks_of_old_acks() {
    sack1(
        "300  < . 1:1 a1001 w65535
              > . 8001:9001
         301  < . 1:1 a1 w65535 sack2001:3001
         302  < . 1:1 a1 w65535 sack2001:4001
         303  < . 1:1 a1 w65535 sack2001:5001
              = fast_retransmits 0",
    );
}

/// The first partial ACK covers four segments, one more than duplicate ACKs reported, and leaves one of these; the second
/// covers three, two more: the window of four segments falls to three and one, where RFC 6582 restores four at the end. The
/// ACK that ends recovery adds one, as in slow start.
#[test]
fn newreno_leaves_recovery_with_the_deflated_window() {
    let cfg = Config { initial_window: 8, limited_transmit: false, ..ns2() };
    established(
        &cfg,
        65_535,
        &format!(
            "200  write 8000
                  {}
             301  < . 1:1 a1 w65535
             302  < . 1:1 a1 w65535
             303  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = cwnd 4000
             403  < . 1:1 a4001 w65535
                  > . 4001:5001 rtx
                  = cwnd 3000
             503  < . 1:1 a7001 w65535
                  > . 7001:8001 rtx
                  = cwnd 1000
             603  < . 1:1 a8001 w65535
                  = cwnd 2000
                  = ssthresh 4000
                  = timer none",
            segments(8, "")
        ),
    );
}

/// Five segments would fit when the peer's window opens with a partial ACK: six are outstanding, of a window of four and the
/// seven duplicates that are left. Two are sent besides the retransmission.
#[test]
fn newreno_sends_at_most_two_segments_for_a_partial_ack() {
    let cfg = Config { initial_window: 8, limited_transmit: false, ..ns2() };
    let duplicates = "302 < . 1:1 a1 w8000\n".repeat(5);
    established(
        &cfg,
        8000,
        &format!(
            "200  write 100000
                  {}
             301  < . 1:1 a1 w8000
             301  < . 1:1 a1 w8000
             301  < . 1:1 a1 w8000
                  > . 1:1001 rtx
                  = cwnd 4000
             {duplicates}
             403  < . 1:1 a2001 w65535
                  > . 2001:3001 rtx
                  > . 8001:9001
                  > . 9001:10001",
            segments(8, "")
        ),
    );
}

/// RFC 3168 section 6.1.2: a sender whose window a mark leaves below one segment waits for the retransmission timer. Each
/// further mark doubles the timeout of a second; an ACK without an echo and a measurement end that. The floor of two
/// segments is tested in `ecn`.
#[test]
fn marks_on_a_window_of_one_segment_make_the_sender_wait_for_its_timer() {
    let cfg = Config { ecn: true, initial_window: 3, ..ns2() };
    run(
        &cfg,
        "0 connect
              > SEW 0:0
         100  < SE. 0:0 a1 w65535
              > . 1:1
         200  write 100000
              > . 1:1001 ect
              > . 1001:2001 ect
              > . 2001:3001 ect
         300  < E. 1:1 a1001 w65535
              = cwnd 1500
              = ssthresh 2000
         301  < E. 1:1 a2001 w65535
         302  < E. 1:1 a3001 w65535
              > W. 3001:4001 ect
         402  < E. 1:1 a4001 w65535
              = cwnd 750
              = ssthresh 2000
         1402 timer
              > W. 4001:5001 ect
              = cwnd 1000
         1502 < E. 1:1 a5001 w65535
              = cwnd 500
         2502 timer
              > W. 5001:6001 ect
         2602 < E. 1:1 a6001 w65535
              = rto 2000
         4602 timer
              > W. 6001:7001 ect
         4702 < . 1:1 a7001 w65535
              > . 7001:8001 ect
              > . 8001:9001 ect
              = cwnd 2000
              = rto 1000",
    );
}

/// The ACK of retransmitted data does not end the backoff, that of timed data does.
#[test]
fn only_a_measurement_ends_the_backoff() {
    let cfg = Config { initial_window: 1, ..ns2() };
    established(
        &cfg,
        65_535,
        "200   write 3000
               > . 1:1001
         1200  timer
               > . 1:1001 rtx
               = rto 2000
         1300  < . 1:1 a1001 w65535
               > . 1001:2001
               > . 2001:3001
               = rto 2000
         1350  < . 1:1 a1501 w65535         # a part of the timed segment
               = rto 2000
         1400  < . 1:1 a2001 w65535
               = rto 1000",
    );
}

/// A measurement by an ACK that echoes a mark ends the backoff as well, unless the window is down to one segment.
#[test]
fn a_marked_measurement_ends_the_backoff_of_a_larger_window() {
    let cfg = Config { ecn: true, initial_window: 1, ..ns2() };
    run(
        &cfg,
        "0 connect
               > SEW 0:0
         100   < SE. 0:0 a1 w65535
               > . 1:1
         200   write 3000
               > . 1:1001 ect
         1200  timer
               > W. 1:1001 rtx ect
               = rto 2000
         1300  < . 1:1 a1001 w65535
               > . 1001:2001 ect
               > . 2001:3001 ect
         1400  < E. 1:1 a2001 w65535
               = cwnd 1000
               = rto 1000",
    );
}

/// Once everything is acknowledged, the timer runs only if the window is less than one segment.
#[test]
fn the_timer_stops_with_a_window_of_one_segment() {
    let cfg = Config { ecn: true, initial_window: 2, ..ns2() };
    run(
        &cfg,
        "0 connect
               > SEW 0:0
         100   < SE. 0:0 a1 w65535
               > . 1:1
         200   write 2000
               > . 1:1001 ect
               > . 1001:2001 ect
         300   < E. 1:1 a2001 w65535
               = cwnd 1000
               = timer none
         400   write 1000
               > W. 2001:3001 ect
         500   < E. 1:1 a3001 w65535
               = cwnd 500
               = timer 1500",
    );
}
