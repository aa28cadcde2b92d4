//! Handshake: RFC 9293 section 3.5, RFC 6298 (5.7), RFC 5681 section 3.1.

use bentpipe_transport::tcp::Config;
use bentpipe_units::Duration;

use crate::trace::{config, run};

#[test]
fn active_open() {
    run(
        &config(),
        "0    connect
              > S 0:0 w65535
              = established false
         100  < S. 0:0 a1 w9000
              > . 1:1 a1 w65535
              = established true
              = srtt 100
              = rto 1000          # RFC 6298 (2.4): 100 + 4 x 50 is rounded up to 1 s
              = timer none",
    );
}

#[test]
fn passive_open() {
    run(
        &config(),
        "0    listen
              = timer none
         5    < S 0:0 w9000
              > S. 0:0 a1 w65535
              = timer 1005
              = established false
         105  < . 1:1 a1 w9000
              = established true
              = srtt 100
         105  < . 1:1001 a1 w9000
              > . 1:1 a1001 w64535
              = readable 1000",
    );
}

/// Data written before the handshake is sent with its third segment.
#[test]
fn data_written_early_is_sent_with_the_last_ack() {
    run(
        &config(),
        "0    connect
              > S 0:0
         0    write 500
         100  < S. 0:0 a1 w9000
              > . 1:501 a1",
    );
}

/// RFC 9293 section 3.10.7.2: a listener waits for a SYN.
#[test]
fn a_listener_ignores_all_but_a_syn() {
    run(
        &config(),
        "0    listen
         1    < . 1:101 a1 w9000
         2    < - 1:101 w9000
         3    < F 1:1 w9000
         4    < S. 0:0 a1 w9000
         5    < SR 0:0 w9000
         6    < S 0:0 w9000
              > S. 0:0 a1",
    );
}

/// RFC 9293 section 3.10.7.4: a segment beyond the window is acknowledged before the handshake ends, too. A window that opens
/// meanwhile is announced later.
#[test]
fn an_unacceptable_segment_is_acknowledged_in_the_handshake() {
    run(
        &config(),
        "0    listen
         0    window 1000
         5    < S 0:0 w9000
              > S. 0:0 a1 w1000
         10   < . 5000:5001 a1 w9000
              > . 1:1 a1
         20   window 65535
              = established false
         105  < . 1:1 a1 w9000
              > . 1:1 a1 w65535",
    );
}

/// RFC 9293 section 3.5, figure 7.
#[test]
fn simultaneous_open() {
    run(
        &config(),
        "0    connect
              > S 0:0
         50   < S 0:0 w9000
              > S. 0:0 a1
              = established false
         100  < S. 0:0 a1 w9000
              = established true
              = srtt none          # it is unknown which of the two SYNs was acknowledged
         100  write 10
              > . 1:11 a1",
    );
}

#[test]
fn a_lost_syn_is_resent_at_doubling_intervals() {
    run(
        &config(),
        "0     connect
               > S 0:0
         1000  timer
               > S 0:0 rtx
         3000  timer
               > S 0:0 rtx
               = timer 7000
         3100  < S. 0:0 a1 w65535
               > . 1:1 a1
               = srtt none         # RFC 6298 (3): no sample from a retransmitted SYN
               = rto 3000          # RFC 6298 (5.7)
               = cwnd 1000         # RFC 5681 3.1: one segment after a lost SYN
         3200  write 5000
               > . 1:1001
               = timer 6200",
    );
}

#[test]
fn a_lost_syn_ack_is_resent() {
    run(
        &config(),
        "0     listen
         0     < S 0:0 w9000
               > S. 0:0 a1
         1000  timer
               > S. 0:0 a1 rtx
         1100  < . 1:1 a1 w9000
               = cwnd 1000
               = rto 3000",
    );
}

/// RFC 6298 (5.7): an RTO of 3 s or more is kept.
#[test]
fn a_long_initial_rto_is_kept_after_a_lost_syn() {
    let cfg = Config { initial_rto: Duration::from_secs(5), ..config() };
    run(
        &cfg,
        "0     connect
               > S 0:0
         5000  timer
               > S 0:0 rtx
         5100  < S. 0:0 a1 w65535
               > . 1:1 a1
               = rto 5000",
    );
}

#[test]
fn open_fails_after_unanswered_syns() {
    let cfg = Config { syn_retries: 2, ..config() };
    run(
        &cfg,
        "0     connect
               > S 0:0
         1000  timer
               > S 0:0 rtx
         3000  timer
               > S 0:0 rtx
         7000  timer
               = failed true
               = closed true
               = timer none",
    );
}

#[test]
fn an_ack_of_anything_but_the_syn_is_ignored() {
    run(
        &config(),
        "0  connect
            > S 0:0
         1  < . 1:1 a5 w9000
         2  < R. 0:0 a5
         3  < S. 0:0 a2 w9000
            = established false
            = failed false
         4  < R. 0:0 a1
            = failed true",
    );
}

/// RFC 9293 section 3.10.7.4 and RFC 5961 section 4: the peer has not received our ACK.
#[test]
fn a_duplicate_syn_ack_is_acknowledged_again() {
    run(
        &config(),
        "0    connect
              > S 0:0
         100  < S. 0:0 a1 w9000
              > . 1:1 a1
         200  < S. 0:0 a1 w9000
              > . 1:1 a1",
    );
}

#[test]
fn initial_window_follows_the_configuration() {
    for segments in [1u32, 2, 3, 10] {
        let cfg = Config { initial_window: segments, ..config() };
        let sent: String =
            (0..segments).map(|i| format!("> . {}:{}\n", 1 + i * 1000, 1001 + i * 1000)).collect();
        run(
            &cfg,
            &format!(
                "0 connect\n > S 0:0\n 0 write 50000\n 100 < S. 0:0 a1 w65535\n {sent} = in_flight {segments}000"
            ),
        );
    }
}
