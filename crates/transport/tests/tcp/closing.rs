//! Closing and resetting a connection: RFC 9293 sections 3.6 and 3.10, RFC 5961.

use bentpipe_transport::tcp::Config;
use bentpipe_units::Duration;

use crate::trace::{config, established, run};

/// RFC 9293 section 3.6, case 1.
#[test]
fn active_close() {
    established(
        &config(),
        9000,
        "200  write 1500
              > . 1:1001
              > . 1001:1501
         200  close
              > F. 1501:1501 a1
              = closed false
         300  < . 1:1 a1502 w9000      # FIN-WAIT-2
              = timer none
              = acked 1500
              = time_wait false
         400  < F. 1:1 a1502 w9000
              > . 1502:1502 a2
              = time_wait true
              = closed false
              = peer_closed true
              = timer none
         500  < F. 1:1 a1502 w9000     # our ACK was lost
              > . 1502:1502 a2
         600  < R. 2:2 a1502           # RFC 1337
              = time_wait true
              = failed false",
    );
}

/// RFC 9293 section 3.6, case 3: as an ACK of the data leaves the FIN unacknowledged, the peer's FIN leads to CLOSING.
#[test]
fn an_ack_of_all_data_does_not_acknowledge_the_fin() {
    established(
        &config(),
        9000,
        "200  write 500
              > . 1:501
         200  close
              > F. 501:501 a1
         300  < . 1:1 a501 w9000
         310  < F. 1:1 a501 w9000
              > . 502:502 a2
              = time_wait false
         400  < . 2:2 a502 w9000
              = time_wait true",
    );
}

/// A FIN alone does not wait for room in the congestion window, here of two segments.
#[test]
fn a_fin_is_sent_with_a_full_window() {
    let cfg = Config { initial_window: 2, ..config() };
    established(&cfg, 9000, "200 write 2000\n > . 1:1001\n > . 1001:2001\n 210 close\n > F. 2001:2001");
}

/// RFC 9293 section 3.6, case 2.
#[test]
fn passive_close() {
    established(
        &config(),
        9000,
        "200  < F. 1:501 a1 w9000
              > . 1:1 a502
              = peer_closed true
              = received 500
              = readable 500
         300  write 200                # CLOSE-WAIT: the other direction is open
              > . 1:201 a502
         350  close
              > F. 201:201 a502
         400  < . 502:502 a202 w9000
              = closed true
              = failed false
              = established false
              = timer none",
    );
}

/// RFC 9293 section 3.6, case 3: both FINs cross.
#[test]
fn simultaneous_close() {
    established(
        &config(),
        9000,
        "200  close
              > F. 1:1 a1
         250  < F. 1:1 a1 w9000        # CLOSING
              > . 2:2 a2
              = time_wait false
         300  < . 2:2 a2 w9000
              = time_wait true",
    );
}

#[test]
fn fin_is_sent_with_the_last_data() {
    run(
        &config(),
        "0    connect
              > S 0:0
         0    write 1500
         0    close
         100  < S. 0:0 a1 w9000
              > . 1:1001 a1
              > F. 1001:1501 a1
         200  < F. 1:1 a1502 w9000
              > . 1502:1502 a2
              = time_wait true",
    );
}

#[test]
fn a_lost_fin_is_resent() {
    established(
        &config(),
        9000,
        "200   write 500
               > . 1:501
         200   close
               > F. 501:501
         300   < . 1:1 a501 w9000
               = timer 1300
         1300  timer
               > F. 501:501 rtx
         1400  < . 1:1 a502 w9000
               = timer none",
    );
}

/// The FIN is resent with the data before it.
#[test]
fn data_and_fin_lost_together_are_resent_together() {
    established(
        &config(),
        9000,
        "200   write 500
               > . 1:501
         200   close
               > F. 501:501
         1200  timer
               > F. 1:501 rtx
         1300  < . 1:1 a502 w9000
               = acked 500",
    );
}

#[test]
fn data_and_fin_above_a_gap_wait() {
    established(
        &config(),
        9000,
        "200  < F. 1001:1501 a1 w9000
              > . 1:1 a1
              = peer_closed false
         210  < . 1:1001 a1 w9000
              > . 1:1 a1502
              = peer_closed true
              = received 1500",
    );
}

#[test]
fn writes_after_close_are_ignored() {
    established(&config(), 9000, "200 close\n > F. 1:1\n 300 write 100\n = send_queue 0");
}

#[test]
fn abort_sends_a_reset() {
    established(
        &config(),
        9000,
        "200  write 500
              > . 1:501
         300  abort
              > R 501:501
              = closed true
              = failed false
              = timer none",
    );
    // An ACK that was due is not sent.
    let delayed = Config { delayed_ack: Some(Duration::from_millis(200)), ..config() };
    established(&delayed, 9000, "200 < . 1:501 a1 w9000\n = timer 400\n 300 abort\n > R 1:1\n = timer none");
    run(&config(), "0 connect\n > S 0:0\n 1 abort\n = closed true");
    run(&config(), "0 listen\n 1 abort\n = closed true");
}

#[test]
fn a_reset_is_accepted_only_at_the_next_position() {
    let trace = |seq| format!("200 < . 1:101 a1 w9000\n > . 1:1 a101\n 300 < R {seq}:{seq}\n");
    // RFC 5961 section 3.2: exactly the next position.
    established(&config(), 9000, &(trace(101) + "= failed true\n= closed true\n= timer none"));
    // Elsewhere in the window: a challenge ACK.
    established(&config(), 9000, &(trace(102) + "> . 1:1 a101\n= failed false"));
    // Outside the window.
    established(&config(), 9000, &(trace(100) + "= failed false"));
}

/// RFC 9293 section 3.10.7.1.
#[test]
fn segments_for_a_closed_connection_are_answered_with_a_reset() {
    established(
        &config(),
        9000,
        "200  abort
              > R 1:1
         300  < . 1:101 a1 w9000
              > R 1:1
         400  < S 0:0 w9000
              > R. 0:0 a1
         450  < - 200:300 w9000
              > R. 0:0 a300
         500  < R 1:1
              = closed true
              = received 0",
    );
}

/// RFC 9293 section 3.8.3.
#[test]
fn connection_fails_after_unanswered_retransmissions() {
    let cfg = Config { retries: 2, ..config() };
    established(
        &cfg,
        9000,
        "100   write 500
               > . 1:501
         1100  timer
               > . 1:501 rtx
         3100  timer
               > . 1:501 rtx
         7100  timer
               = failed true
               = closed true
               = established false
               = timer none",
    );
}
