//! SACK: RFC 2018, and recovery with it, RFC 6675 and RFC 9937.

use bentpipe_transport::tcp::Config;

use crate::trace::{config, run, segments};

/// A configuration with SACK and an initial window of `initial_window` segments, without limited transmit.
pub fn selective(initial_window: u32) -> Config {
    Config { sack: true, initial_window, limited_transmit: false, ..config() }
}

/// Runs a trace after a handshake that negotiated SACK; the first `count` segments of the `bytes` written are sent at 200 ms.
pub fn sent(cfg: &Config, bytes: u64, count: u64, trace: &str) {
    let segments = segments(count, "");
    run(
        cfg,
        &format!(
            "0 connect\n > S 0:0 sackOK\n 100 < S. 0:0 a1 w65535 sackOK\n > . 1:1 a1\n
             200 write {bytes}\n {segments} {trace}"
        ),
    );
}

/// RFC 2018 section 2.
#[test]
fn sack_needs_both_ends() {
    let (with, without) = (selective(4), config());
    run(&with, "0 listen\n 10 < S 0:0 w9000 sackOK\n > S. 0:0 a1 sackOK");
    run(&with, "0 listen\n 10 < S 0:0 w9000\n > S. 0:0 a1");
    run(&without, "0 listen\n 10 < S 0:0 w9000 sackOK\n > S. 0:0 a1");
    for (cfg, syn, answer, block) in [
        (&with, "S 0:0 sackOK", "S. 0:0 a1 w9000 sackOK", "sack1001:2001"),
        (&with, "S 0:0 sackOK", "S. 0:0 a1 w9000", ""),
        (&without, "S 0:0", "S. 0:0 a1 w9000 sackOK", ""),
    ] {
        run(
            cfg,
            &format!(
                "0    connect
                      > {syn}
                 100  < {answer}
                      > . 1:1 a1
                 200  < . 1001:2001 a1 w9000
                      > . 1:1 a1 {block}"
            ),
        );
    }
}

/// RFC 2018 section 7, case 3: the second, fourth, sixth and eighth of eight segments are lost; then the fourth
/// arrives, then the second.
#[test]
fn the_most_recent_block_comes_first() {
    sent(
        &selective(4),
        0,
        0,
        "200  < . 1:501 a1 w65535
              > . 1:1 a501
         210  < . 1001:1501 a1 w65535
              > . 1:1 a501 sack1001:1501
         220  < . 2001:2501 a1 w65535
              > . 1:1 a501 sack2001:2501,1001:1501
         230  < . 3001:3501 a1 w65535
              > . 1:1 a501 sack3001:3501,2001:2501,1001:1501
         240  < . 1501:2001 a1 w65535
              > . 1:1 a501 sack1001:2501,3001:3501
         250  < . 501:1001 a1 w65535
              > . 1:1 a2501 sack3001:3501",
    );
}

/// Three blocks fit; the oldest are left out.
#[test]
fn at_most_three_blocks_are_reported() {
    sent(
        &selective(4),
        0,
        0,
        "200  < . 1001:1501 a1 w65535
              > . 1:1 a1 sack1001:1501
         210  < . 2001:2501 a1 w65535
              > . 1:1 a1 sack2001:2501,1001:1501
         220  < . 3001:3501 a1 w65535
              > . 1:1 a1 sack3001:3501,2001:2501,1001:1501
         230  < . 4001:4501 a1 w65535
              > . 1:1 a1 sack4001:4501,3001:3501,2001:2501
         240  < . 1501:1601 a1 w65535
              > . 1:1 a1 sack1001:1601,4001:4501,3001:3501",
    );
}

/// Two blocks that a segment joins are one, and there is room for the oldest again.
#[test]
fn joined_blocks_make_room_for_the_oldest() {
    sent(
        &selective(4),
        0,
        0,
        "200  < . 1001:1501 a1 w65535
              > . 1:1 a1 sack1001:1501
         210  < . 2001:2501 a1 w65535
              > . 1:1 a1 sack2001:2501,1001:1501
         220  < . 3001:3501 a1 w65535
              > . 1:1 a1 sack3001:3501,2001:2501,1001:1501
         230  < . 4001:4501 a1 w65535
              > . 1:1 a1 sack4001:4501,3001:3501,2001:2501
         240  < . 3501:4001 a1 w65535
              > . 1:1 a1 sack3001:4501,2001:2501,1001:1501",
    );
}

/// Segments 1 and 3 are lost. RFC 6675 section 5; the comments work out Pipe.
#[test]
fn two_gaps_are_filled_in_one_recovery() {
    sent(
        &selective(8),
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack3001:4001,1001:2001
              = fast_retransmits 0
         300  < . 1:1 a1 w65535 sack3001:5001,1001:2001     # the third duplicate
              > . 1:1001 rtx
              = ssthresh 4000
              = cwnd 4000
              = fast_retransmits 1
         300  < . 1:1 a1 w65535 sack3001:6001,1001:2001     # 2000 not lost + 1000 again
              > . 2001:3001 rtx
         300  < . 1:1 a1 w65535 sack3001:7001,1001:2001     # 1000 + 2000
              > . 8001:9001
         300  < . 1:1 a1 w65535 sack3001:8001,1001:2001
              > . 9001:10001
         400  < . 1:1 a2001 w65535 sack3001:8001            # 2000 + 1000
              > . 10001:11001
              = timer 1400
         410  < . 1:1 a2001 w65535 sack3001:9001
              > . 11001:12001
         500  < . 1:1 a10001 w65535
              > . 12001:13001
              > . 13001:14001
              = cwnd 4000
              = retransmissions 2
              = fast_retransmits 1",
    );
}

/// RFC 6675 section 5 (2): more than two segments' worth was SACKed, in however few ACKs.
#[test]
fn one_ack_can_start_recovery() {
    for (block, lost) in [("1001:3001", false), ("1001:3002", true), ("6001:8001", false)] {
        let resent = if lost { "> . 1:1001 rtx" } else { "" };
        sent(&selective(8), 100_000, 8, &format!("300 < . 1:1 a1 w65535 sack{block}\n {resent}"));
    }
    // Three separate ranges, however small.
    sent(
        &selective(8),
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:1002,1004:1005
         300  < . 1:1 a1 w65535 sack1007:1008
              > . 1:1001 rtx",
    );
}

/// RFC 6675 section 2: a duplicate SACKs data that no earlier ACK did. Section 5 (3): limited transmit follows Pipe.
#[test]
fn limited_transmit_follows_pipe() {
    let cfg = Config { limited_transmit: true, ..selective(8) };
    sent(
        &cfg,
        100_000,
        8,
        "300  < . 1:1 a1 w65535
         300  < . 1:1 a1 w65535
         300  < . 1:1 a1 w65535
         300  < . 1:1 a1 w65535 sack1001:2001
              > . 8001:9001
              = in_flight 8000
         300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack1001:3001
              > . 9001:10001
              = fast_retransmits 0
         300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
              = ssthresh 4000           # the two above do not count",
    );
}

/// NextSeg rule 3: data that may be lost is resent if there is nothing else to send.
#[test]
fn a_possible_loss_is_resent_if_there_is_no_new_data() {
    sent(
        &selective(8),
        6000,
        6,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack1001:3001
         300  < . 1:1 a1 w65535 sack4001:5001,1001:3001
              > . 1:1001 rtx
              = cwnd 3000
              = in_flight 3000                              # 1, resent, 3001 and 5001
         300  < . 1:1 a1 w65535 sack4001:6001,1001:3001     # 1000 + 1000
              > . 3001:4001 rtx
         400  < . 1:1 a6001 w65535
              = in_flight 0
              = cwnd 3000",
    );
}

/// NextSeg rule 4: the first and the last of eight are lost. The last is rescued once.
#[test]
fn a_lost_tail_is_rescued_once() {
    sent(
        &selective(8),
        8000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack1001:3001
         300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
         300  < . 1:1 a1 w65535 sack1001:5001
         300  < . 1:1 a1 w65535 sack1001:6001
         300  < . 1:1 a1 w65535 sack1001:7001
         400  < . 1:1 a7001 w65535
              > . 7001:8001 rtx
         410  < . 1:1 a7001 w65535
         500  < . 1:1 a8001 w65535
              = retransmissions 2
              = timeouts 0",
    );
}

/// RFC 9937 section 6. Segment 1 of 16 is lost: ssthresh is 8000, RecoverFS 14000 (2000 were SACKed before), so 4 are
/// sent for 7 delivered, including the fast retransmit.
#[test]
fn prr_sends_in_proportion_to_delivered_data() {
    let cfg = Config { prr: true, ..selective(16) };
    sent(
        &cfg,
        100_000,
        16,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack1001:3001
         300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
              = ssthresh 8000
              = cwnd 12572              # 12000 + 1000 * 8 / 14
         300  < . 1:1 a1 w65535 sack1001:4001
              = cwnd 12572              # nothing delivered
         300  < . 1:1 a1 w65535 sack1001:5001
              = cwnd 12143              # 12000 + 2000 * 8 / 14 - 1000
         300  < . 1:1 a1 w65535 sack1001:6001
              = cwnd 11715
         300  < . 1:1 a1 w65535 sack1001:7001
              > . 16001:17001
              = cwnd 11286
         300  < . 1:1 a1 w65535 sack1001:8001
              = cwnd 10858
         300  < . 1:1 a1 w65535 sack1001:9001
              > . 17001:18001
              = cwnd 10429
         300  < . 1:1 a1 w65535 sack1001:10001
              > . 18001:19001
              = cwnd 10000
         400  < . 1:1 a16001 w65535
              > . 19001:20001
              > . 20001:21001
              > . 21001:22001
              > . 22001:23001
              > . 23001:24001
              = cwnd 8000",
    );
}

/// PRR-SSRB: with less outstanding than ssthresh, an ACK that advances SND.UNA without indicating further loss releases
/// one segment more than was delivered. Segments 1 and 3 to 9 of 12 are lost, so Pipe is 2000 with ssthresh 6000.
#[test]
fn prr_slow_start_bound_adds_one_segment() {
    let cfg = Config { prr: true, ..selective(12) };
    sent(
        &cfg,
        100_000,
        12,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack9001:10001,1001:2001
         300  < . 1:1 a1 w65535 sack9001:11001,1001:2001
              > . 1:1001 rtx
              = ssthresh 6000
              = cwnd 8600               # 8000 + 1000 * 6 / 10
         300  < . 1:1 a1 w65535 sack9001:12001,1001:2001
              > . 2001:3001 rtx
              = cwnd 2000               # 1000 + 1000 arrived; all below is lost now
              = in_flight 2000
         400  < . 1:1 a2001 w65535 sack9001:12001
              > . 3001:4001 rtx
              > . 4001:5001 rtx
              = cwnd 3000               # 1000 + 1000 arrived + 1000
         500  < . 1:1 a3001 w65535 sack9001:12001
              > . 5001:6001 rtx
              > . 6001:7001 rtx
              = cwnd 4000",
    );
}

/// Without PRR cwnd is ssthresh from the first retransmission on, RFC 6675 section 5 (4.2).
#[test]
fn without_prr_the_window_stays_at_ssthresh() {
    sent(
        &selective(16),
        100_000,
        16,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack1001:3001
         300  < . 1:1 a1 w65535 sack1001:4001
              > . 1:1001 rtx
              = cwnd 8000
         300  < . 1:1 a1 w65535 sack1001:5001
              = cwnd 8000",
    );
}

/// RFC 9937 section 6.2, SafeACK: an ACK adds a segment only if it advances SND.UNA and indicates no further loss. As before,
/// Pipe is below ssthresh: 2000 of 6000 and of 8000.
#[test]
fn prr_adds_no_segment_for_an_unsafe_ack() {
    let prr = |segments| Config { prr: true, ..selective(segments) };
    sent(
        &prr(12),
        100_000,
        12,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack9001:10001,1001:2001
         300  < . 1:1 a1 w65535 sack9001:11001,1001:2001
              > . 1:1001 rtx
         300  < . 1:1 a1 w65535 sack9001:12001,1001:2001
              > . 2001:3001 rtx
         300  < . 1:1 a1 w65535 sack8001:12001,1001:2001
              > . 3001:4001 rtx
              = cwnd 3000               # 2000 + 1000 arrived",
    );
    sent(
        &prr(16),
        100_000,
        16,
        "300  < . 1:1 a1 w65535 sack1001:2001
         300  < . 1:1 a1 w65535 sack9001:10001,1001:2001
         300  < . 1:1 a1 w65535 sack9001:11001,1001:2001
              > . 1:1001 rtx
         300  < . 1:1 a1 w65535 sack12001:13001,9001:11001,1001:2001
              > . 2001:3001 rtx
              = cwnd 6000               # 5000 + 1000 arrived
         400  < . 1:1 a2001 w65535 sack12001:15001,9001:11001
              > . 3001:4001 rtx
              > . 4001:5001 rtx
              > . 5001:6001 rtx
              = cwnd 5000               # 2000 + 3000 arrived; 11001:12001 is lost, too",
    );
}

/// RFC 6675 section 5 (2): IsLost() of the first octet that is not acknowledged. Nothing lies below a block that begins there.
#[test]
fn data_sacked_from_the_first_octet_on_is_no_loss() {
    sent(&selective(8), 100_000, 8, "300  < . 1:1 a1 w65535 sack1:4001\n = fast_retransmits 0");
}

/// RFC 6675 section 4, NextSeg() (2): new data fills Pipe only as far as the receiver's window, here of eight segments.
#[test]
fn recovery_sends_no_new_data_beyond_the_window() {
    sent(
        &selective(8),
        100_000,
        8,
        "300  < . 1:1 a1 w8000 sack1001:2001
         300  < . 1:1 a1 w8000 sack1001:3001
         300  < . 1:1 a1 w8000 sack1001:4001
              > . 1:1001 rtx
         300  < . 1:1 a1 w8000 sack1001:8001
              = cwnd 4000               # Pipe is 1000
         400  < . 1:1 a8001 w8000
              > . 8001:9001
              > . 9001:10001
              > . 10001:11001
              > . 11001:12001",
    );
}

/// RFC 2018 section 8: a timeout clears the scoreboard. Data SACKed after it is not resent.
#[test]
fn after_a_timeout_only_gaps_are_resent() {
    sent(
        &selective(8),
        100_000,
        8,
        "300   < . 1:1 a1 w65535 sack1001:2001
         300   < . 1:1 a1 w65535 sack3001:4001,1001:2001
         1200  timer
               > . 1:1001 rtx
               = cwnd 1000
               = in_flight 1000
         1300  < . 1:1 a2001 w65535 sack3001:4001
               > . 2001:3001 rtx
               > . 4001:5001 rtx
               = cwnd 2000
               = in_flight 2000         # without the segment SACKed again
         1400  < . 1:1 a5001 w65535
               > . 5001:6001 rtx
               > . 6001:7001 rtx
               > . 7001:8001 rtx
         1500  < . 1:1 a8001 w65535
               > . 8001:9001
               > . 9001:10001
               > . 10001:11001
               > . 11001:12001
               = cwnd 4000
               = timeouts 1",
    );
}

/// RFC 6675 section 5 (3): two segments SACKed at once release two. RFC 3042: an ACK that advances, and so is no duplicate,
/// releases only what the window allows, whatever is SACKed.
#[test]
fn limited_transmit_counts_sacked_data_of_duplicates_only() {
    let cfg = Config { limited_transmit: true, ..selective(8) };
    sent(
        &cfg,
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack1001:3001
              > . 8001:9001
              > . 9001:10001",
    );
    sent(
        &cfg,
        100_000,
        8,
        "300  < . 1:1 a1 w65535 sack2001:3001
              > . 8001:9001
         310  < . 1:1 a1001 w65535 sack2001:3001
              = cwnd 9000
              > . 9001:10001",
    );
}

/// RFC 6675 section 5.1: no recovery until all data sent before the timeout is acknowledged.
#[test]
fn no_recovery_for_data_sent_before_a_timeout() {
    sent(
        &selective(8),
        100_000,
        8,
        "1200  timer
               > . 1:1001 rtx
         1300  < . 1:1 a1 w65535 sack1001:5001
               = fast_retransmits 0
               = cwnd 1000",
    );
}

/// RFC 6675 section 5.1: recovery is allowed once RecoveryPoint, here 8001, is acknowledged and no more. The first of four
/// segments sent then is lost: ssthresh is two segments, so that one new segment follows the retransmission.
#[test]
fn recovery_for_the_first_segment_after_a_timeout() {
    sent(
        &selective(8),
        100_000,
        8,
        "1200  timer
               > . 1:1001 rtx
         1300  < . 1:1 a5001 w65535
               > . 5001:6001 rtx
               > . 6001:7001 rtx
         1400  < . 1:1 a7001 w65535
               > . 7001:8001 rtx
               > . 8001:9001
               > . 9001:10001
         1500  < . 1:1 a8001 w65535
               > . 10001:11001
               > . 11001:12001
         1600  < . 1:1 a8001 w65535 sack9001:12001
               > . 8001:9001 rtx
               = fast_retransmits 1
               = ssthresh 2000
               > . 12001:13001",
    );
}
