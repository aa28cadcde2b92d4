//! Receive window and ACKs: RFC 9293 section 3.8.6, RFC 5681 section 4.2.

use bentpipe_transport::tcp::Config;
use bentpipe_units::{Duration, Instant};

use crate::trace::{config, established, parse, run};

fn delayed() -> Config {
    Config { delayed_ack: Some(Duration::from_millis(200)), ..config() }
}

#[test]
fn every_second_segment_is_acknowledged_at_once() {
    established(
        &delayed(),
        9000,
        "200  < . 1:1001 a1 w9000
              = timer 400
         210  < . 1001:2001 a1 w9000
              > . 1:1 a2001
              = timer none
         220  < . 2001:3001 a1 w9000
              = timer 420
         420  timer
              > . 1:1 a3001
              = timer none
         430  < . 3001:3501 a1 w9000   # three small ones are not two full ones
         440  < . 3501:4001 a1 w9000
         450  < . 4001:4501 a1 w9000
              = timer 630
         460  < . 4501:5001 a1 w9000
              > . 1:1 a5001",
    );
}

/// As in Linux: each segment increases the window by two and is acknowledged at once, until the window has its full
/// size.
#[test]
fn a_growing_window_is_announced_at_once() {
    let cfg = Config { initial_receive_window: Some(3000), receive_window: 7000, ..delayed() };
    run(
        &cfg,
        "0    listen
         0    < S 0:0 w9000
              > S. 0:0 a1 w3000
         100  < . 1:1 a1 w9000
         200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w4000       # of 5000, 1000 are not read
         200  read 1000
         210  < . 1001:2001 a1 w9000
              > . 1:1 a2001 w6000       # of 7000
         210  read 1000
         220  < . 2001:3001 a1 w9000    # it has grown
              = timer 420
         230  < . 3001:4001 a1 w9000
              > . 1:1 a4001 w5000",
    );
}

/// RFC 5681 section 4.2.
#[test]
fn out_of_order_data_is_acknowledged_at_once() {
    established(
        &delayed(),
        9000,
        "200  < . 2001:3001 a1 w9000    # opens a gap
              > . 1:1 a1
         210  < . 3001:4001 a1 w9000
              > . 1:1 a1
         220  < . 1:1001 a1 w9000       # fills part of it
              > . 1:1 a1001
         230  < . 1001:2001 a1 w9000    # and the rest
              > . 1:1 a4001
              = received 4000
         240  < . 1001:2001 a1 w9000    # a duplicate
              > . 1:1 a4001
              = received 4000
         250  < . 3501:4501 a1 w9000    # half a duplicate
              = received 4500
         260  < F. 4501:4501 a1 w9000
              > . 1:1 a4502",
    );
}

/// Overlapping and repeated segments, in an order that merges ranges from both sides.
#[test]
fn overlapping_segments_are_reassembled() {
    established(
        &config(),
        9000,
        "200  < . 5001:6001 a1 w9000
              > . 1:1 a1
         200  < . 1001:2001 a1 w9000
              > . 1:1 a1
         200  < . 3001:4001 a1 w9000
              > . 1:1 a1
         200  < . 3001:4001 a1 w9000
              > . 1:1 a1
         200  < . 1501:5501 a1 w9000
              > . 1:1 a1
              = received 0
         200  < . 1:1001 a1 w9000
              > . 1:1 a6001
              = received 6000
              = readable 6000
         300  < . 7001:8001 a1 w9000
              > . 1:1 a6001
         300  < . 6001:9001 a1 w9000    # more than what was kept
              > . 1:1 a9001
              = received 9000",
    );
}

#[test]
fn data_carries_the_pending_ack() {
    established(
        &delayed(),
        9000,
        "200 < . 1:1001 a1 w9000\n 250 write 10\n > . 1:11 a1001\n 300 < . 1:1 a11 w9000\n = timer none",
    );
}

/// RFC 9293 section 3.8.6.1: first after an RTO, then at doubling intervals as long as the peer answers.
#[test]
fn a_closed_window_is_probed() {
    let cfg = Config { retries: 2, ..config() };
    established(
        &cfg,
        1000,
        "100   write 3000
               > . 1:1001
         200   < . 1:1 a1001 w0
               = timer 1200
         1200  timer
               > . 1001:1002
               = timer 3200
         1300  < . 1:1 a1001 w0
               = timer 3200
         3200  timer
               > . 1001:1002 rtx
         3300  < . 1:1 a1001 w0
               = timer 7200
         7200  timer
               > . 1001:1002 rtx
         7300  < . 1:1 a1001 w0
         15200 timer
               > . 1001:1002 rtx
         15300 < . 1:1 a1001 w0
               = failed false
               = timeouts 0
               = retransmissions 3
         15400 < . 1:1 a1001 w5000      # the update
               > . 1001:2001
               > . 2001:3001
               = timer 16400
         15500 < . 1:1 a3001 w0
         15600 write 100
               = timer 16600            # the next closed window begins anew
         16600 timer
               > . 3001:3002
               = timer 18600",
    );
}

#[test]
fn the_byte_of_a_window_probe_can_be_accepted() {
    established(
        &config(),
        1000,
        "100   write 3000
               > . 1:1001
         200   < . 1:1 a1001 w0
         1200  timer
               > . 1001:1002
         1300  < . 1:1 a1002 w3000
               > . 1002:2002
               > . 2002:3001
               = acked 1001",
    );
}

#[test]
fn a_fin_beyond_the_window_is_sent_as_a_probe() {
    established(
        &config(),
        1000,
        "100   write 1000
               > . 1:1001
         100   close
         200   < . 1:1 a1001 w0
         1200  timer
               > F. 1001:1001
         1300  < . 1:1 a1002 w0         # FIN-WAIT-2
               = timer none
         1400  < F. 1:1 a1002 w0
               > . 1002:1002 a2
               = time_wait true",
    );
}

/// The FIN waits, so that its segment is not cut at the edge of the window.
#[test]
fn a_fin_beyond_the_window_is_not_sent_with_data() {
    run(
        &config(),
        "0     connect
               > S 0:0
         0     write 1000
         0     close
         100   < S. 0:0 a1 w1000
               > . 1:1001
         200   < . 1:1 a1001 w1000
               > F. 1001:1001",
    );
    // Nor when the data is resent.
    established(&config(), 1000, "100 write 1000\n > . 1:1001\n 100 close\n 1100 timer\n > . 1:1001 rtx");
}

#[test]
fn unanswered_window_probes_fail_the_connection() {
    let cfg = Config { retries: 2, ..config() };
    established(
        &cfg,
        1000,
        "100   write 3000
               > . 1:1001
         200   < . 1:1 a1001 w0
         1200  timer
               > . 1001:1002
         3200  timer
               > . 1001:1002 rtx
         7200  timer
               = failed true",
    );
}

/// RFC 9293 section 3.8.6.2.1: less than a segment waits, unless it is half of the largest window or the last data.
#[test]
fn sender_avoids_silly_windows() {
    established(
        &config(),
        1500,
        "100   write 5000
               > . 1:1001
         200   < . 1:1 a1001 w500
               = timer 1200
         1200  timer                    # overridden
               > . 1001:1501
         1300  < . 1:1 a1501 w750
               > . 1501:2251",
    );
    established(&config(), 1500, "100 write 1400\n > . 1:1001\n > . 1001:1401");
}

/// RFC 9293 section 3.8.6.2.1: a window that has opened, but by too little, is overridden one timeout later.
#[test]
fn a_window_that_opens_a_little_restarts_the_timer() {
    established(
        &config(),
        1500,
        "100   write 5000
               > . 1:1001
         200   < . 1:1 a1001 w0
               = timer 1200
         700   < . 1:1 a1001 w100
               = timer 1700
         1700  timer
               > . 1001:1101",
    );
}

/// RFC 9293 section 3.8.6: data sent into a window that shrank is resent.
#[test]
fn a_shrunk_window_blocks_only_new_data() {
    established(
        &config(),
        2000,
        "100   write 5000
               > . 1:1001
               > . 1001:2001
         200   < . 1:1 a1 w0
         1100  timer
               > . 1:1001 rtx
         1200  < . 1:1 a1001 w0
               > . 1001:2001 rtx
         1300  < . 1:1 a2001 w0
               = in_flight 0",
    );
}

#[test]
fn a_fin_sent_before_the_window_shrank_is_resent() {
    run(
        &config(),
        "0     connect
               > S 0:0
         0     write 500
         0     close
         100   < S. 0:0 a1 w1000
               > F. 1:501
         200   < . 1:1 a1 w0
         1100  timer
               > F. 1:501 rtx",
    );
}

/// A late old segment does not restore its window.
#[test]
fn only_the_newest_segment_updates_the_window() {
    established(
        &config(),
        1000,
        "100  write 9000
              > . 1:1001
         200  < . 11:11 a1001 w1000
              > . 1001:2001
         201  < . 1:1 a1001 w5000
              = in_flight 1000
         300  < . 11:11 a2001 w1000
              > . 2001:3001",
    );
}

fn small() -> Config {
    Config { receive_window: 4000, ..config() }
}

/// Four segments fill the buffer. RFC 9293 section 3.8.6.2.2: the window reopens by at least a segment.
#[test]
fn a_reopened_window_is_announced() {
    established(
        &small(),
        9000,
        "200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w3000
         200  < . 1001:2001 a1 w9000
              > . 1:1 a2001 w2000
         200  < . 2001:3001 a1 w9000
              > . 1:1 a3001 w1000
         200  < . 3001:4001 a1 w9000
              > . 1:1 a4001 w0
         210  < . 4001:4002 a1 w9000    # a probe
              > . 1:1 a4001 w0
              = readable 4000
         220  read 999
         230  < . 4001:4002 a1 w9000
              > . 1:1 a4001 w0
         240  read 1
              > . 1:1 a4001 w1000
         250  read 999
         260  read 1
              > . 1:1 a4001 w2000       # twice what the peer knew of
         270  read 1000                 # not
         280  read 1000
              > . 1:1 a4001 w4000",
    );
}

#[test]
fn unread_bytes_reduce_the_window() {
    established(
        &small(),
        9000,
        "200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w3000
         210  read 1000
         220  < . 1001:2001 a1 w9000
              > . 1:1 a2001 w3000
         220  read 1000
         230  < . 2001:2501 a1 w9000    # the edge moves by the 1000 that were read, not by less than a segment
              > . 1:1 a2501 w3500
         240  read 500
         250  < . 2501:3001 a1 w9000
              > . 1:1 a3001 w3000       # 500 could be gained
         260  read 500
         270  < . 3001:3501 a1 w9000
              > . 1:1 a3501 w3500",
    );
}

/// RFC 9293 section 3.8.6: an advertised right edge is never moved back.
#[test]
fn a_smaller_buffer_keeps_the_edge() {
    established(
        &small(),
        9000,
        "200  window 1000
         210  < . 1:1001 a1 w9000
              > . 1:1 a1001 w3000       # the edge is still 4001
         210  read 1000
         220  < . 1001:2001 a1 w9000
              > . 1:1 a2001 w2000
         220  read 1000
         230  < . 2001:3501 a1 w9000
              > . 1:1 a3501 w500
         230  read 1500
              > . 1:1 a3501 w1000       # now the limit counts
         240  window 0
         250  < . 3501:4501 a1 w9000
              > . 1:1 a4501 w0
         250  read 1000
         260  window 4000
              > . 1:1 a4501 w4000",
    );
}

/// The host reads the data but limits the buffer, as a gateway does, down to zero. The edge stays, a probe finds the
/// window closed, and a larger limit reopens it once that is worth announcing.
#[test]
fn the_buffer_limit_closes_and_reopens_the_window() {
    established(
        &small(),
        9000,
        "200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w3000
         200  window 3000               # of 4000, 1000 are held
         200  read 1000
         210  < . 1001:2001 a1 w9000
              > . 1:1 a2001 w2000
         210  window 500                # a mark
         210  read 1000
         220  < . 2001:3001 a1 w9000
              > . 1:1 a3001 w1000       # the edge of 4001 stands
         220  read 1000
         220  window 0
         230  < . 3001:4001 a1 w9000
              > . 1:1 a4001 w0
         230  read 1000
         1230 < . 4001:4002 a1 w9000    # a probe
              > . 1:1 a4001 w0
              = received 4000
         1300 window 1000
              > . 1:1 a4001 w1000
         1310 window 1400               # by less than a segment
         1320 window 2000
              > . 1:1 a4001 w2000
         1330 < . 4001:5001 a1 w9000
              > . 1:1 a5001 w1000",
    );
}

#[test]
fn the_first_window_respects_the_limit() {
    run(&small(), "0 connect\n > S 0:0 w4000");
    run(&small(), "0 listen\n 0 window 1500\n 1 < S 0:0 w9000\n > S. 0:0 a1 w1500");
}

/// A peer that used up the window stands at its edge, and its ACKs are valid.
#[test]
fn an_ack_at_the_window_edge_is_valid() {
    established(
        &small(),
        9000,
        "100  write 10
              > . 1:11
         200  < . 1:4001 a1 w9000
              > . 11:11 a4001 w0
         300  < . 4001:4001 a11 w9000
              = acked 10",
    );
}

#[test]
fn a_fin_outside_the_window_is_trimmed() {
    established(
        &small(),
        9000,
        "200  < F. 1:4001 a1 w9000
              > . 1:1 a4001 w0
              = peer_closed false
         210  read 4000
              > . 1:1 a4001 w4000
         220  < F. 3001:4001 a1 w9000   # only the FIN is not a duplicate
              > . 1:1 a4002
              = peer_closed true
              = received 4000",
    );
}

#[test]
fn no_window_update_after_the_peers_fin() {
    established(
        &small(),
        9000,
        "200  < F. 1:3001 a1 w9000
              > . 1:1 a3002
         210  read 3000
              = readable 0",
    );
}

/// A peer blocked by the window gets an update, with or without a gap.
#[test]
fn a_reopened_window_is_announced_despite_a_gap() {
    established(
        &small(),
        9000,
        "200  < . 1:3001 a1 w9000
              > . 1:1 a3001 w1000
         210  < . 3501:4001 a1 w9000
              > . 1:1 a3001 w1000
         220  read 3000
              > . 1:1 a3001 w4000",
    );
}

/// Read before the duplicate ACK has left, the data makes room that this ACK does not announce.
#[test]
fn a_window_update_follows_a_duplicate_ack_at_once() {
    let cfg = small();
    let mut c = established(&cfg, 9000, "200 < . 1:3001 a1 w9000\n > . 1:1 a3001 w1000");
    let now = Instant::from_nanos(210_000_000);
    c.on_segment(&cfg, now, &parse(&[".", "3501:4001", "a1", "w9000"]));
    c.read(3000);
    assert_eq!(c.poll_transmit(&cfg, now).map(|segment| segment.window), Some(1000));
    assert!(!c.is_drained());
    assert_eq!(c.poll_transmit(&cfg, now).map(|segment| segment.window), Some(4000));
    assert!(c.is_drained());
    assert!(c.poll_transmit(&cfg, now).is_none());
}

#[test]
fn a_segment_trimmed_at_the_edge_is_acknowledged_at_once() {
    let cfg = Config { receive_window: 1500, ..delayed() };
    established(
        &cfg,
        9000,
        "200  < . 1:1001 a1 w9000
              = timer 400
         210  < . 1001:2001 a1 w9000
              > . 1:1 a1501 w0",
    );
}

/// While a gap is open ACKs are duplicates, which by RFC 5681 section 2 count only with an unchanged window.
#[test]
fn the_edge_is_kept_while_a_gap_is_open() {
    established(
        &small(),
        9000,
        "200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w3000
         210  < . 2001:3001 a1 w9000
              > . 1:1 a1001 w3000
         220  read 1000
         230  < . 3001:4001 a1 w9000
              > . 1:1 a1001 w3000
         240  < . 1001:2001 a1 w9000
              > . 1:1 a4001 w1000",
    );
}

#[test]
fn segments_outside_the_window_are_dropped_and_acknowledged() {
    established(
        &small(),
        9000,
        "200  < . 4001:5001 a1 w9000
              > . 1:1 a1
         210  < . 3501:4501 a1 w9000    # half of it
              > . 1:1 a1
         220  < . 1:3501 a1 w9000
              > . 1:1 a4001 w0
              = received 4000
         230  < . 9001:9001 a1 w9000
              > . 1:1 a4001
         240  < . 4001:4001 a2 w9000    # acknowledges what was never sent
              > . 1:1 a4001",
    );
}
