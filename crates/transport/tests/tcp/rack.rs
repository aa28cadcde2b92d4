//! Loss detection by time: RACK-TLP, RFC 8985, and D-SACK, RFC 2883.
//!
//! The handshake took 100 ms, so SRTT is 100 ms and RTO its minimum, 1 s. The segments are sent at 200 ms.

use bentpipe_transport::tcp::Config;
use bentpipe_units::Duration;

use crate::sack::{selective, sent};
use crate::trace::{run, segments};

fn timed(initial_window: u32) -> Config {
    Config { rack: true, prr: true, limited_transmit: true, ..selective(initial_window) }
}

/// RFC 2883 sections 4.1 and 4.2: a duplicate is reported first and once; above the ACK, together with the block that
/// contains it.
#[test]
fn duplicates_are_reported_by_dsack() {
    sent(
        &timed(4),
        0,
        0,
        "200  < . 1:1001 a1 w65535
              > . 1:1 a1001
         210  < . 1:1001 a1 w65535
              > . 1:1 a1001 dsack1:1001
         220  < . 2001:3001 a1 w65535
              > . 1:1 a1001 sack2001:3001
         230  < . 2001:3001 a1 w65535
              > . 1:1 a1001 dsack2001:3001 sack2001:3001
         240  < . 1501:2501 a1 w65535
              > . 1:1 a1001 dsack2001:2501 sack1501:3001
         250  < . 501:1501 a1 w65535
              > . 1:1 a3001 dsack501:1001",
    );
    let without = Config { rack: false, ..timed(4) };
    sent(
        &without,
        0,
        0,
        "200 < . 1:1001 a1 w65535\n > . 1:1 a1001\n 210 < . 1:1001 a1 w65535\n > . 1:1 a1001",
    );
}

/// RFC 2883 section 4.1: the segment that fills the gap repeats the data after it as well.
#[test]
fn the_end_of_a_segment_that_fills_a_gap_is_reported_by_dsack() {
    sent(
        &timed(4),
        0,
        0,
        "200  < . 1:1001 a1 w65535
              > . 1:1 a1001
         210  < . 2001:3001 a1 w65535
              > . 1:1 a1001 sack2001:3001
         220  < . 1001:3001 a1 w65535
              > . 1:1 a3001 dsack2001:3001",
    );
}

/// RFC 8985 section 6.2, step 5. The second segment arrived: RACK.rtt = RACK.min_RTT = 100, RACK.reo_wnd = 100 / 4, so
/// the first is lost at 200 + 100 + 25. RFC 9937 section 6.2 with DeliveredData = 0: one segment may be sent, with Pipe
/// = 9 - 1 SACKed - 1 lost.
#[test]
fn a_segment_is_lost_after_a_quarter_rtt() {
    sent(
        &timed(8),
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
              > . 8001:9001             # as much as arrived
              = timer 325
         325  timer
              > . 1:1001 rtx
              = fast_retransmits 1
              = ssthresh 4000
              = cwnd 8000
              = timer 1325
         326  < . 1:1 a1 w65535 sack1001:3001
              = cwnd 7000               # 1000 * 4 / 8 - 1000 < 0
         425  < . 1:1 a9001 w65535
              > . 9001:10001
              > . 10001:11001
              > . 11001:12001
              > . 12001:13001
              = cwnd 4000
              = timeouts 0",
    );
}

/// Section 6.2, step 4: without reordering so far, three SACKed segments suffice: RACK.reo_wnd = 0. CRB: Pipe = 8 - 3 -
/// 1 is ssthresh, so only the forced retransmission is sent.
#[test]
fn three_sacked_segments_suffice_without_reordering() {
    sent(
        &timed(8),
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
              = ssthresh 4000
              = cwnd 5000",
    );
}

/// Step 3: the first segment arrives after the second, and was not resent. From then on DupThresh does not count: the
/// third is lost at 200 + RACK.rtt 120 + RACK.reo_wnd 25. SRTT = 7/8 x 100 + 1/8 x 110 for the PTO.
#[test]
fn reordering_enables_the_reordering_window() {
    sent(
        &timed(8),
        8000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
              = timer 325
         310  < . 1:1 a2001 w65535
              = timer 512.5             # 310 + 2 SRTT
         320  < . 1:1 a2001 w65535 sack3001:6001
              = fast_retransmits 0
              = timer 345
         345  timer
              > . 2001:3001 rtx
              = fast_retransmits 1",
    );
}

/// While RACK waits, each SACKed segment releases another; those do not count in FlightSize (RFC 5681 section 3.2 step
/// 2, RFC 3042): of the 12 outstanding at 345, the last three. Without limited transmit there are none, of nine.
#[test]
fn limited_transmit_segments_are_not_in_flight_size() {
    let trace = |sixth: &str, last: &str| {
        format!(
            "300  < . 1:1 a1 w65535 sack1001:2001
                  {sixth}
             310  < . 1:1 a2001 w65535
                  = cwnd 9000
                  {last}
             345  timer
                  > . 2001:3001 rtx
                  = ssthresh 4500"
        )
    };
    let with = trace(
        "> . 8001:9001",
        "> . 9001:10001
                  > . 10001:11001
             320  < . 1:1 a2001 w65535 sack3001:6001
                  > . 11001:12001
                  > . 12001:13001
                  > . 13001:14001",
    );
    sent(&timed(8), 100_000, 8, &with);
    let without = trace(
        "",
        "> . 8001:9001
                  > . 9001:10001
                  > . 10001:11001
             320  < . 1:1 a2001 w65535 sack3001:6001",
    );
    sent(&Config { limited_transmit: false, ..timed(8) }, 100_000, 8, &without);
}

/// Step 4: the retransmission at 325 was spurious, as its D-SACK shows, so RACK.reo_wnd_mult = 2, and the next loss is
/// detected after 2 x 100 / 4.
#[test]
fn reordering_window_grows_with_dsacks() {
    sent(
        &timed(8),
        8000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
         325  timer
              > . 1:1001 rtx
         330  < . 1:1 a2001 w65535
         331  < . 1:1 a8001 w65535
              = cwnd 4000
         430  < . 1:1 a8001 w65535 dsack1:1001
         440  write 4000
              > . 8001:9001
              > . 9001:10001
              > . 10001:11001
              > . 11001:12001
         540  < . 1:1 a8001 w65535 sack9001:10001
              = timer 590
         590  timer
              > . 8001:9001 rtx",
    );
}

/// Once per RTT: a second D-SACK before SND.UNA has passed RACK.dsack_round is ignored.
#[test]
fn reordering_window_grows_at_most_once_per_rtt() {
    sent(
        &timed(8),
        8000,
        8,
        "300  < . 1:1 a2001 w65535
         310  < . 1:1 a2001 w65535 dsack1:1001
         320  < . 1:1 a2001 w65535 dsack1001:2001
         330  < . 1:1 a2001 w65535 sack3001:4001
              = timer 380               # 200 + 130 + 50",
    );
}

/// A lost retransmission is detected by what was sent after it: here the ninth segment. Pipe is zero: 6 SACKed, 3 lost.
/// CRB: 6000 delivered, 2000 sent.
#[test]
fn a_lost_retransmission_is_detected() {
    let trace = |end: &str| {
        format!(
            "300  < . 1:1 a1 w65535 sack1001:4001
                  > . 1:1001 rtx
             300  < . 1:1 a1 w65535 sack1001:5001
             300  < . 1:1 a1 w65535 sack1001:6001
                  > . 8001:9001
             400  < . 1:1 a1 w65535 sack8001:9001,1001:6001
                  > . 1:1001 rtx
                  > . 6001:7001 rtx
                  {end}"
        )
    };
    sent(
        &timed(8),
        100_000,
        8,
        &trace("> . 7001:8001 rtx\n > . 9001:10001\n = cwnd 4000\n = ssthresh 4000\n = timeouts 0"),
    );
    // RFC 8985 section 9.3: without PRR, that is another reduction.
    sent(
        &Config { prr: false, ..timed(8) },
        100_000,
        8,
        &trace("= ssthresh 2000\n = cwnd 2000\n = timeouts 0"),
    );
}

/// Section 6.2, step 2: an ACK less than an RTT after the retransmission belongs to the original and says nothing about
/// segments sent before the retransmission. A later one belongs to the retransmission; with timestamps too, because
/// data above a gap does not change the echo (RFC 7323 section 4.3), which here stays that of the SYN.
#[test]
fn an_early_ack_after_a_retransmission_belongs_to_the_original() {
    sent(
        &timed(4),
        4000,
        4,
        "400  timer                     # PTO
              > . 3001:4001 rtx
         410  < . 1:1 a1 w65535 sack3001:4001
              = fast_retransmits 0
              = timer 1400",
    );
    sent(
        &timed(4),
        4000,
        4,
        "400  timer
              > . 3001:4001 rtx
         500  < . 1:1 a1 w65535 sack3001:4001
              > . 1:1001 rtx
              = fast_retransmits 1",
    );
    let cfg = Config { timestamps: true, ..timed(4) };
    run(
        &cfg,
        "1    connect
                      > S 0:0 ts1:0 sackOK
                 101  < S. 0:0 a1 w65535 sackOK ts1:1
                      > . 1:1 a1
                 200  write 4000
                      > . 1:1001
                      > . 1001:2001
                      > . 2001:3001
                      > . 3001:4001 ts200:1
                 400  timer
                      > . 3001:4001 rtx ts400:1
                 500  < . 1:1 a1 w65535 sack3001:4001 ts300:1
                      > . 1:1001 rtx",
    );
}

/// Section 7: the last three of eight are lost. PTO = 2 SRTT after the last ACK; the SACK of the probe lets RACK detect
/// the others, which were sent 300 ms earlier.
#[test]
fn a_lost_tail_is_detected_by_a_probe() {
    sent(
        &timed(8),
        8000,
        8,
        "300  < . 1:1 a5001 w65535
              = timer 500
         500  timer
              > . 7001:8001 rtx
              = timer 1500              # the retransmission timer again
         600  < . 1:1 a5001 w65535 sack7001:8001
              > . 5001:6001 rtx
              = ssthresh 2000
              = cwnd 1000               # CRB: 1000 arrived, Pipe is 0
         700  < . 1:1 a6001 w65535 sack7001:8001
              > . 6001:7001 rtx
              = cwnd 2000               # SSRB: and one more
         800  < . 1:1 a8001 w65535
              = timeouts 0
              = timer none",
    );
}

/// Section 7.2: with one segment in flight, the receiver may delay its ACK: PTO = 2 SRTT + 200 ms. Section 7.4.2: an
/// ACK beyond the probe without a D-SACK shows that the probe repaired a loss, which counts as one.
#[test]
fn a_loss_repaired_by_a_probe_reduces_the_window() {
    let trace = |answer: &str, end: &str| {
        format!(
            "300   < . 1:1 a3001 w65535
                   = timer 700
             700   timer
                   > . 3001:4001 rtx
                   = timer 1700
             800   < . 1:1 a4001 w65535
                   = cwnd 5000
             {answer}
             900   write 1000
                   > . 4001:5001
             1000  < . 1:1 a5001 w65535
                   {end}"
        )
    };
    sent(&timed(4), 4000, 4, &trace("", "= ssthresh 2000\n = cwnd 2000"));
    // Case 1: both arrived. Case 2: the same, with a receiver without D-SACK.
    for answer in ["810 < . 1:1 a4001 w65535 dsack3001:4001", "810 < . 1:1 a4001 w65535"] {
        sent(&timed(4), 4000, 4, &trace(answer, "= cwnd 5000"));
    }
}

/// Section 7.3: new data is preferred, even if the congestion window is used up; section 7.4.2: its ACK says nothing
/// about a loss.
#[test]
fn a_probe_carries_new_data_if_available() {
    sent(
        &timed(4),
        100_000,
        4,
        "400  timer
              > . 4001:5001
              = timer 1400
         450  < . 1:1 a5001 w65535
              > . 5001:6001
              > . 6001:7001
              > . 7001:8001
              > . 8001:9001
              > . 9001:10001
              = cwnd 5000",
    );
    // Not beyond the receiver's window.
    sent(
        &timed(4),
        100_000,
        4,
        "300  < . 1:1 a1 w4000
         400  timer
              > . 3001:4001 rtx",
    );
}

/// Section 7.3: one probe at a time, and none until an RTT was measured; the retransmission timer stays.
#[test]
fn no_second_probe_before_an_rtt_sample() {
    sent(
        &timed(4),
        4000,
        4,
        "300   < . 1:1 a3001 w65535
         700   timer
               > . 3001:4001 rtx
         1700  timer
               > . 3001:4001 rtx
               = timeouts 1
               = cwnd 1000
               = rto 2000
         1800  < . 1:1 a4001 w65535
         1900  write 2000
               > . 4001:5001
               > . 5001:6001
               = timer 3900
         2000  < . 1:1 a6001 w65535
         2100  write 2000
               > . 6001:7001
               > . 7001:8001
               = timer 2300",
    );
}

/// Section 7.2: the probe timer does not exceed the retransmission timer.
#[test]
fn a_probe_is_sent_no_later_than_the_rto() {
    let cfg = Config { min_rto: Duration::ZERO, ..timed(4) };
    sent(&cfg, 1000, 1, "500 timer\n > . 1:1001 rtx\n = timer 800\n = timeouts 0");
}

/// Section 6.3: after a timeout the first segment is lost, and those sent at least RACK.rtt + RACK.reo_wnd ago: not the
/// one sent 50 ms before. Slow start resends them.
#[test]
fn a_timeout_does_not_resend_recent_segments() {
    sent(
        &timed(4),
        1000,
        1,
        "300   < . 1:1 a1001 w65535
         300   write 2000
               > . 1001:2001
               > . 2001:3001
         500   timer
               > . 2001:3001 rtx
         1450  write 1000
               > . 3001:4001
         1500  timer
               > . 1001:2001 rtx
               = cwnd 1000
               = timeouts 1
         1600  < . 1:1 a2001 w65535 sack3001:4001
               > . 2001:3001 rtx
               = cwnd 2000
         1700  < . 1:1 a4001 w65535
               = retransmissions 3
               = timer none",
    );
}

/// Section 6.3, with all segments old.
#[test]
fn a_timeout_resends_all_old_segments() {
    sent(
        &timed(4),
        4000,
        4,
        "400   timer
               > . 3001:4001 rtx
         1400  timer
               > . 1:1001 rtx
               = cwnd 1000
               = ssthresh 2000
         1500  < . 1:1 a1001 w65535
               > . 1001:2001 rtx
               > . 2001:3001 rtx
         1600  < . 1:1 a3001 w65535
               > . 3001:4001 rtx
         1700  < . 1:1 a4001 w65535
               = timer none
               = timeouts 1",
    );
}

/// RFC 2018 section 8: SACKed data that is requested again was discarded by the receiver.
#[test]
fn reneged_data_is_resent_after_a_timeout() {
    sent(
        &timed(4),
        4000,
        4,
        "300   < . 1:1 a1 w65535 sack1001:4001
               > . 1:1001 rtx
         400   < . 1:1 a1001 w65535
         1400  timer
               > . 1001:2001 rtx
         1500  < . 1:1 a2001 w65535
               > . 2001:3001 rtx
               > . 3001:4001 rtx
         1600  < . 1:1 a4001 w65535
               = timer none",
    );
}

/// RFC 3522 section 3.2: the first ACK after a timeout echoes the timestamp of the original, which was late, not of the
/// retransmission at 1400. RFC 4015 section 3.2: cwnd is FlightSize + min(bytes acked, IW), ssthresh is restored; R' =
/// 1250 becomes SRTT, and R' / 2 RTTVAR.
#[test]
fn a_spurious_timeout_is_undone() {
    let cfg = Config { timestamps: true, eifel: true, clock_granularity: Duration::ZERO, ..timed(4) };
    let trace = |end: &str| {
        format!(
            "1     connect
                   > S 0:0 sackOK
             101   < S. 0:0 a1 w65535 sackOK ts1:1
                   > . 1:1 a1
             200   write 4000
                   > . 1:1001
                   > . 1001:2001
                   > . 2001:3001
                   > . 3001:4001 ts200:1
             400   timer                    # PTO
                   > . 3001:4001 rtx
             1400  timer
                   > . 1:1001 rtx ts1400:1
                   = cwnd 1000
                   = ssthresh 2000
             {end}"
        )
    };
    run(
        &cfg,
        &trace(
            "1450  < . 1:1 a1001 w65535 ts90:200
                   = cwnd 4000
                   = ssthresh none
                   = srtt 1250
                   = rto 3750
             1460  < . 1:1 a4001 w65535 ts100:200
                   = retransmissions 2
                   = timer none",
        ),
    );
    for (cfg, echo) in [(&cfg, 1400), (&Config { eifel: false, ..cfg.clone() }, 200)] {
        let end = format!(
            "1450 < . 1:1 a1001 w65535 ts90:{echo}\n > . 1001:2001 rtx\n > . 2001:3001 rtx\n = cwnd 2000"
        );
        run(cfg, &trace(&end));
    }
}

/// RFC 2018 section 3: a block ends after its last position, which a FIN takes. A probe with the FIN is thus known to
/// have arrived, and the two segments before it are known to be lost.
#[test]
fn a_sack_block_covers_the_fin() {
    sent(
        &timed(4),
        0,
        0,
        "200  < F. 1001:2001 a1 w65535
              > . 1:1 a1 sack1001:2002
         210  < . 1:1001 a1 w65535
              > . 1:1 a2002",
    );
    sent(
        &timed(4),
        0,
        0,
        "200  write 3000
              > . 1:1001
              > . 1001:2001
              > . 2001:3001
         200  close
              > F. 3001:3001
         400  timer                     # PTO
              > F. 3001:3001 rtx
         500  < . 1:1 a1 w65535 sack3001:3002
              > . 1:1001 rtx
              = fast_retransmits 1",
    );
}

/// A peer cannot have data that was never sent.
#[test]
fn blocks_beyond_what_was_sent_are_ignored() {
    sent(&timed(8), 100_000, 8, "300 < . 1:1 a1 w65535 sack8001:9001\n = in_flight 8000");
}

/// RFC 3168 section 6.1.2: no growth for an ACK with ECN-Echo, 4000 + 1000 * 1000 / 4000.
#[test]
fn a_marked_ack_does_not_increase_the_window() {
    let eight = segments(8, "ect");
    run(
        &Config { ecn: true, ..timed(8) },
        &format!(
            "0 connect\n > SEW 0:0 sackOK\n 100 < SE. 0:0 a1 w65535 sackOK\n > . 1:1 a1
             200 write 8000\n {eight}
             300 < E. 1:1 a1001 w65535
                 = cwnd 4000
             310 < E. 1:1 a2001 w65535
                 = cwnd 4000"
        ),
    );
}

/// RFC 8985 section 6.2, step 4: RACK.reo_wnd is zero in a recovery, so the third segment is lost 126 after its transmission,
/// as old as the fourth is. After the recovery it is a quarter of the minimum RTT again, of 99.
#[test]
fn no_reordering_is_expected_during_a_recovery() {
    sent(
        &timed(8),
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
              > . 8001:9001
         325  timer
              > . 1:1001 rtx
              = in_flight 8000
         326  < . 1:1 a1 w65535 sack3001:4001,1001:2001
              = in_flight 6000
              = timer 1325",
    );
    sent(
        &Config { prr: false, ..timed(8) },
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
              = cwnd 4000
         301  < . 1:1 a1 w65535 sack1001:7001
              > . 8001:9001
              > . 9001:10001
         400  < . 1:1 a8001 w65535 sack9001:10001
              > . 10001:11001
              > . 11001:12001
              > . 12001:13001
              = timer 424.75",
    );
}

/// Only recoveries use up the persistence of a wider reordering window, not every ACK: after a D-SACK it is half of the
/// minimum RTT, 16 ACKs later, too.
#[test]
fn acks_outside_a_recovery_do_not_narrow_the_reordering_window() {
    let acks: String = (2..18).map(|i| format!("300 < . 1:1 a{}001 w65535\n", i)).collect();
    sent(
        &timed(20),
        20_000,
        20,
        &format!(
            "300  < . 1:1 a1001 w65535 dsack1:501
             {acks}
             300  < . 1:1 a17001 w65535 sack18001:19001
                  = timer 350"
        ),
    );
}

/// RFC 9937 section 6.2. With Pipe = 0, as much is resent as arrived; then one segment for the ninth, by an ACK that does not
/// advance and so adds none; and nothing for an ACK that says nothing new.
#[test]
fn only_delivered_data_releases_retransmissions() {
    sent(
        &timed(12),
        12_000,
        12,
        "300  < . 1:1 a1 w65535 sack9001:12001
              > . 1:1001 rtx
              > . 1001:2001 rtx
              > . 2001:3001 rtx
              = ssthresh 6000
              = cwnd 3000
         300  < . 1:1 a1 w65535 sack8001:12001
              > . 3001:4001 rtx
              = cwnd 4000
         300  < . 1:1 a1 w65535 sack8001:12001
              = cwnd 4000",
    );
}

/// RFC 8985 section 7.2: every new segment starts the probe's timer again, 2 SRTT ahead, and 200 more for a single one.
#[test]
fn new_data_postpones_the_probe() {
    sent(
        &timed(4),
        0,
        0,
        "200  write 1000
              > . 1:1001
              = timer 600
         250  write 1000
              > . 1001:2001
              = timer 450
         300  write 1000
              > . 2001:3001
              = timer 500",
    );
}
