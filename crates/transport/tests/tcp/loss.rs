//! Fast retransmit and fast recovery: RFC 5681 section 3.2, RFC 6582, RFC 3042.

use bentpipe_transport::tcp::{Algorithm, Config};

use crate::trace::{config, established, segments};

/// Eight segments at once, no limited transmit.
fn eight() -> Config {
    Config { initial_window: 8, limited_transmit: false, ..config() }
}

/// A trace after eight segments were sent at 200 ms.
fn sent(trace: &str) -> String {
    let segments = segments(8, "");
    format!("200 write 100000\n {segments} {trace}")
}

#[test]
fn fast_retransmit_at_the_third_duplicate_ack() {
    established(
        &eight(),
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  = fast_retransmits 0
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = ssthresh 4000       # FlightSize / 2
                  = cwnd 7000           # ssthresh + 3 SMSS
                  = fast_retransmits 1
             300  < . 1:1 a1 w65535
                  = cwnd 8000
             300  < . 1:1 a1 w65535     # a segment has left the network, another enters
                  > . 8001:9001
             300  < . 1:1 a1 w65535
                  > . 9001:10001
             300  < . 1:1 a1 w65535
                  > . 10001:11001
             400  < . 1:1 a8001 w65535  # full acknowledgement
                  > . 11001:12001
                  = cwnd 4000
                  = retransmissions 1
                  = timeouts 0",
        ),
    );
}

#[test]
fn limited_transmit_sends_new_data_on_two_duplicate_acks() {
    let cfg = Config { limited_transmit: true, ..eight() };
    established(
        &cfg,
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
                  > . 8001:9001
                  = cwnd 8000
             300  < . 1:1 a1 w65535
                  > . 9001:10001
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = ssthresh 4000       # the two above do not count
                  = cwnd 7000",
        ),
    );
}

/// RFC 3042 section 2: limited by the peer's window.
#[test]
fn limited_transmit_respects_the_peers_window() {
    let cfg = Config { limited_transmit: true, ..eight() };
    established(
        &cfg,
        9000,
        &sent("300  < . 1:1 a1 w9000\n > . 8001:9001\n 300  < . 1:1 a1 w9000\n = in_flight 9000"),
    );
}

/// Segments 1 and 3 are lost.
#[test]
fn a_partial_ack_resends_the_next_gap() {
    established(
        &eight(),
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = timer 1300
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 8001:9001
             300  < . 1:1 a1 w65535
                  > . 9001:10001
                  = cwnd 10000
             400  < . 1:1 a2001 w65535  # partial: 10000 - 2000 + 1000
                  > . 2001:3001 rtx
                  > . 10001:11001
                  = cwnd 9000
                  = timer 1400
             410  < . 1:1 a2001 w65535  # 8001:9001 arrived
                  > . 11001:12001
             410  < . 1:1 a2001 w65535
                  > . 12001:13001
                  = cwnd 11000
             500  < . 1:1 a10001 w65535
                  > . 13001:14001
                  = cwnd 4000
                  = retransmissions 2
                  = fast_retransmits 1",
        ),
    );
}

/// Segments 1, 3 and 5 are lost. RFC 6582 section 4: which partial ACKs restart the timer.
#[test]
fn impatient_restarts_the_timer_only_once() {
    for (impatient, timer) in [(true, 1400), (false, 1500)] {
        let cfg = Config { impatient, ..eight() };
        established(
            &cfg,
            65_535,
            &sent(&format!(
                "300  < . 1:1 a1 w65535
                 300  < . 1:1 a1 w65535
                 300  < . 1:1 a1 w65535
                      > . 1:1001 rtx
                 400  < . 1:1 a2001 w65535
                      > . 2001:3001 rtx
                      = cwnd 6000
                 500  < . 1:1 a4001 w65535
                      > . 4001:5001 rtx
                      > . 8001:9001
                      = cwnd 5000
                      = timer {timer}"
            )),
        );
    }
}

/// RFC 6582 section 3.2 step 3: a partial ACK of less than a segment adds nothing back.
#[test]
fn a_small_partial_ack_deflates_by_its_full_size() {
    established(
        &eight(),
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
             400  < . 1:1 a501 w65535
                  > . 501:1501 rtx
                  = cwnd 6500",
        ),
    );
}

/// RFC 5681 section 2: ACKs that are not duplicates.
#[test]
fn only_duplicate_acks_are_counted() {
    for other in [
        ". 1:11 a1 w65535\n > . 8001:8001 a11", // (b) carries data
        ". 1:1 a1 w65534",                      // (e) another window
        "F. 1:1 a1 w65535\n > . 8001:8001 a2",  // (c) FIN
    ] {
        let next = if other.starts_with("F") { 2 } else { 1 };
        let window = if other.contains("65534") { 65_534 } else { 65_535 };
        established(
            &eight(),
            65_535,
            &sent(&format!(
                "300  < . 1:1 a1 w65535
                 300  < . 1:1 a1 w65535
                 300  < {other}
                      = fast_retransmits 0
                 300  < . {next}:{next} a1 w{window}
                      > . 1:1001 rtx"
            )),
        );
    }
    // (a) Nothing is outstanding.
    let same = "300 < . 1:1 a1 w9000\n";
    established(&eight(), 9000, &format!("{}= fast_retransmits 0", same.repeat(5)));
}

/// RFC 6582 section 3.2 step 2: duplicates of an ACK that does not cover more than `recover` answer duplicate segments.
#[test]
fn at_most_one_fast_retransmit_per_window() {
    established(
        &eight(),
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 8001:9001
             400  < . 1:1 a8001 w65535
                  > . 9001:10001
                  > . 10001:11001
                  > . 11001:12001
             401  < . 1:1 a8001 w65535
             401  < . 1:1 a8001 w65535
             401  < . 1:1 a8001 w65535
                  = fast_retransmits 1
             500  < . 1:1 a9001 w65535
                  > . 12001:13001
             501  < . 1:1 a9001 w65535
             501  < . 1:1 a9001 w65535
             501  < . 1:1 a9001 w65535  # more than `recover` is covered: a loss
                  > . 9001:10001 rtx
                  > . 13001:14001       # cwnd is 4000 / 2 + 3000
                  = fast_retransmits 2",
        ),
    );
}

#[test]
fn no_fast_retransmit_of_data_sent_before_a_timeout() {
    established(
        &eight(),
        65_535,
        &sent(
            "1200  timer
                   > . 1:1001 rtx
             1300  < . 1:1 a1 w65535
             1300  < . 1:1 a1 w65535
             1300  < . 1:1 a1 w65535
                   = fast_retransmits 0
                   = cwnd 1000",
        ),
    );
}

/// RFC 6582 section 3.2 step 4: a timeout ends fast recovery.
#[test]
fn a_timeout_ends_fast_recovery() {
    established(
        &eight(),
        65_535,
        &sent(
            "300   < . 1:1 a1 w65535
             300   < . 1:1 a1 w65535
             300   < . 1:1 a1 w65535
                   > . 1:1001 rtx
             1300  timer
                   > . 1:1001 rtx
                   = cwnd 1000
                   = ssthresh 4000
             1400  < . 1:1 a1001 w65535
                   > . 1001:2001 rtx
                   > . 2001:3001 rtx
                   = cwnd 2000",
        ),
    );
}

/// RFC 3042 section 2: limited transmit applies to new data only.
#[test]
fn limited_transmit_resends_nothing() {
    let cfg = Config { limited_transmit: true, ..eight() };
    established(
        &cfg,
        65_535,
        &sent(
            "1200  timer
                   > . 1:1001 rtx
             1300  < . 1:1 a1 w65535
             1300  < . 1:1 a1 w65535
                   = in_flight 1000",
        ),
    );
}

/// RFC 3042 section 2: two segments, however many duplicates follow without a fast retransmit.
#[test]
fn limited_transmit_ends_with_the_second_duplicate_ack() {
    let cfg = Config { limited_transmit: true, ..eight() };
    established(
        &cfg,
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
                  > . 8001:9001
             300  < . 1:1 a1 w65535
                  > . 9001:10001
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
             400  < . 1:1 a10001 w65535
                  > . 10001:11001
                  > . 11001:12001
                  > . 12001:13001
                  > . 13001:14001
             401  < . 1:1 a10001 w65535
                  > . 14001:15001
             401  < . 1:1 a10001 w65535
                  > . 15001:16001
             401  < . 1:1 a10001 w65535
             401  < . 1:1 a10001 w65535
                  = fast_retransmits 1",
        ),
    );
}

/// Segments 1 and 3 are lost. RFC 5681 section 3.2 step 6: an ACK of new data ends fast recovery, even a partial one;
/// its duplicates start no other, because they do not cover more than was sent before.
#[test]
fn reno_leaves_fast_recovery_at_the_first_new_ack() {
    let cfg = Config { algorithm: Algorithm::Reno, ..eight() };
    established(
        &cfg,
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = ssthresh 4000
                  = cwnd 7000
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 8001:9001
             300  < . 1:1 a1 w65535
                  > . 9001:10001
                  = cwnd 10000
             400  < . 1:1 a2001 w65535  # 8000 bytes outstanding
                  = cwnd 4000
                  = timer 1400
             410  < . 1:1 a2001 w65535
             410  < . 1:1 a2001 w65535
             410  < . 1:1 a2001 w65535
                  = fast_retransmits 1
             1400 timer
                  > . 2001:3001 rtx
                  = ssthresh 4000
                  = cwnd 1000
             1500 < . 1:1 a10001 w65535 # nothing is left of the window before
                  > . 10001:11001
                  > . 11001:12001
                  = cwnd 2000
                  = timeouts 1",
        ),
    );
}

/// RFC 9438: ssthresh is 0.7 FlightSize; then, because K = cbrt(2.4 / 0.4) = 1.8 s is long, the window grows like
/// Reno's, by alpha = 0.9 / 1.7 of a segment per window: 5600 + 529.4 / 5.6.
#[test]
fn cubic_reduces_by_three_tenths() {
    let cfg = Config { algorithm: Algorithm::Cubic, ..eight() };
    established(
        &cfg,
        65_535,
        &sent(
            "300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
             300  < . 1:1 a1 w65535
                  > . 1:1001 rtx
                  = ssthresh 5600
                  = cwnd 8600
             400  < . 1:1 a8001 w65535
                  > . 8001:9001
                  > . 9001:10001
                  > . 10001:11001
                  > . 11001:12001
                  > . 12001:13001
                  = cwnd 5600
             500  < . 1:1 a9001 w65535
                  > . 13001:14001
                  = cwnd 5694",
        ),
    );
}
