//! Timeouts, fast retransmit and reneging: sections 6.2.1, 6.3, 7.2.3 and 7.2.4.

use bentpipe_transport::sctp::Config;
use bentpipe_units::Duration;

use crate::trace::{config, established};

const FOUR: &str = "200 write 100000\n > data 1:984\n > data 2:984\n > data 3:984\n > data 4:984\n";

/// Sections 6.3.3 and 7.2.3.
#[test]
fn a_timeout_restarts_with_one_packet() {
    let trace = "
              = timer 1200
         1200 timer
              > data 1:984 rtx
              = ssthresh 4000        # max(4000 / 2, 4 x 1000)
              = cwnd 1000
              = in_flight 1000
              = rwnd 64551           # section 6.2.1 (C): 65535 - 984
              = timer 3200           # E2
         1300 < sack 1
              > data 2:984 rtx
              > data 3:984 rtx
              = cwnd 2000
              = rto 2000             # C5: nothing was measured
              = timer 3300
         1400 < sack 3
              > data 4:984 rtx       # section 6.1 (C): before new data
              > data 5:984
              > data 6:984
              = cwnd 3000
              = retransmissions 4
         1500 < sack 6
              > data 7:984
              > data 8:984
              > data 9:984
              > data 10:984
              = rto 1000             # section 6.3.3: collapsed by a measurement
              = timeouts 1";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.3: "no more than one SCTP packet will be in flight" after a timeout, however short it is.
#[test]
fn one_packet_is_in_flight_after_a_timeout() {
    let cfg = Config { message_len: 100, ..config() };
    established(
        &cfg,
        9000,
        "200  write 2000
              > data 1:100 data 2:100 data 3:100 data 4:100 data 5:100 data 6:100 data 7:100 data 8:100
              > data 9:100 data 10:100 data 11:100 data 12:100 data 13:100 data 14:100 data 15:100 data 16:100
              > data 17:100 data 18:100 data 19:100 data 20:100
         1200 timer
              > data 1:100 data 2:100 data 3:100 data 4:100 data 5:100 data 6:100 data 7:100 data 8:100 rtx
              = in_flight 928
              = cwnd 1000
         1300 < sack 8
              > data 9:100 data 10:100 data 11:100 data 12:100 data 13:100 data 14:100 data 15:100 data 16:100 rtx
              > data 17:100 data 18:100 data 19:100 data 20:100 rtx
              = cwnd 1000            # 928 of it were used",
    );
}

/// Section 7.2.4.
#[test]
fn three_miss_indications_start_a_fast_retransmit() {
    let trace = "
         300  < sack 0 g2-2
              > data 5:984
              > data 6:984
              = cwnd 5000
         310  < sack 0 g2-3
              > data 7:984
              > data 8:984
              = cwnd 6000
              = timer 1200           # nothing restarted it
         320  < sack 0 g2-4
              > data 1:984 rtx       # whatever cwnd is
              = ssthresh 4000        # max(7000 / 2, 4000), after growing to 7000
              = cwnd 4000
              = in_flight 5000
              = rwnd 60615           # section 6.2.1 (C): 65535 - 5 x 984
              = timer 1320           # (4): it is the first outstanding
              = fast_retransmits 1
         400  < sack 0 g2-5
         410  < sack 0 g2-6
              > data 9:984
         420  < sack 6
              > data 10:984
              = cwnd 4000            # Fast Recovery goes on to TSN 8
              = timer 1420
         425  < sack 7
              > data 11:984
         430  < sack 8               # (6): its exit point
              > data 12:984
              = cwnd 4000
         440  < sack 9
              > data 13:984
              > data 14:984
              = cwnd 5000
              = rwnd 60615           # 65535 - 5 x 984
              = retransmissions 1";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.4 (3), (5): what does not fit into the first packet is sent as cwnd allows.
#[test]
fn retransmissions_respect_cwnd() {
    let trace = "
         300  < sack 0 g3-3
              > data 5:984
              > data 6:984
         310  < sack 0 g3-4
              > data 7:984
              > data 8:984
         320  < sack 0 g3-5
              > data 1:984 rtx
              = in_flight 4000       # 1, 6, 7, 8: 2 is lost and not outstanding
              = cwnd 4000
         400  < sack 0 g3-6
              > data 2:984 rtx
         420  < sack 1 g3-6
              > data 9:984
         430  < sack 8
              = retransmissions 2
              > data 10:984
              > data 11:984
              > data 12:984
              = fast_retransmits 1";
    // 430: one is outstanding, so three more fill a window of 4000.
    let trace = trace
        .replace("= retransmissions 2\n", "\n")
        .replace("= fast_retransmits 1", "= fast_retransmits 1\n= retransmissions 2");
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.4, the HTNA algorithm: only TSNs below the highest newly acknowledged get a miss indication.
#[test]
fn a_sack_without_new_data_is_not_a_miss_indication() {
    let trace = "
         300  < sack 0 g2-2
              > data 5:984
              > data 6:984
         310  < sack 0 g2-2
         320  < sack 0 g2-2
         330  < sack 0 g2-2
              = fast_retransmits 0
              = cwnd 5000";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
    let trace = "
         300  < sack 0 g4-4          # 1, 2, 3 miss once
              > data 5:984
              > data 6:984
         310  < sack 0 g2-2,4-4      # 1 twice
              > data 7:984
              > data 8:984
         320  < sack 0 g2-2,4-5      # 1 three times, 3 twice
              > data 1:984 rtx
              = cwnd 4000
              = in_flight 5000
              = timer 1320
         330  < sack 0 g2-2,4-6      # 3 three times
              > data 3:984 rtx
              = timer 1320
              = fast_retransmits 1   # one reduction
              = cwnd 4000";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.4: before Fast Recovery, a SACK that advances the ack point is no miss indication for TSNs above the highest
/// one newly acknowledged.
#[test]
fn before_fast_recovery_an_advance_counts_for_no_higher_tsns() {
    let trace = "
         300  < sack 0 g4-4          # 2 and 3 miss once
              > data 5:984
              > data 6:984
         310  < sack 1 g4-4
              > data 7:984
              > data 8:984
         320  < sack 2 g4-4
              > data 9:984
              > data 10:984
              = fast_retransmits 0
              = cwnd 7000";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.4: in Fast Recovery, a SACK that advances the ack point counts for all TSNs it reports missing.
#[test]
fn in_fast_recovery_an_advance_counts_for_all_missing_tsns() {
    let trace = "
         300  < sack 0 g2-2,4-4      # 1 and 3 miss once
              > data 5:984
              > data 6:984
              > data 7:984
              = in_flight 5000
         310  < sack 0 g2-2,4-5
              > data 8:984
              > data 9:984
              = in_flight 6000
         320  < sack 0 g2-2,4-6      # three times both
              > data 1:984 rtx
              = in_flight 4000       # 7, 8, 9 and 1
              = cwnd 4000
         330  < sack 0 g2-2,4-6,8-8
              > data 3:984 rtx       # 7 misses once
         340  < sack 2 g4-6,8-8      # 7 twice, though 1 and 2 lie before it
              > data 10:984
         350  < sack 6 g8-8          # 7 three times
              > data 7:984 rtx
              > data 11:984
              = retransmissions 3
              = fast_retransmits 1";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 7.2.4 (5): a fast retransmitted chunk is not fast retransmitted again; T3-rtx resends it.
#[test]
fn a_chunk_is_fast_retransmitted_once() {
    let trace = "
         300  < sack 0 g2-2\n > data 5:984\n > data 6:984
         310  < sack 0 g2-3\n > data 7:984\n > data 8:984
         320  < sack 0 g2-4\n > data 1:984 rtx
         400  < sack 0 g2-5
         410  < sack 0 g2-6\n > data 9:984
         420  < sack 0 g2-7\n > data 10:984
         430  < sack 0 g2-8\n > data 11:984
         440  < sack 0 g2-9\n > data 12:984
              = retransmissions 1
              = timer 1320
         1320 timer
              > data 1:984 rtx
              = cwnd 1000";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 6.2.1 (D) iii.
#[test]
fn reneged_chunks_are_outstanding_again() {
    let trace = "
         300  < sack 0 g2-3
              > data 5:984
              > data 6:984
              > data 7:984
              = in_flight 5000
         310  < sack 0 g2-2
              = in_flight 6000
         320  < sack 7
              > data 8:984
              > data 9:984
              > data 10:984
              > data 11:984
              = in_flight 4000
              = cwnd 6000";
    established(&config(), 65_535, &format!("{FOUR}{trace}"));
}

/// Section 6.3.1 C2, C3, C6, C7 and G1, without a minimum.
#[test]
fn rto_follows_the_rtt() {
    let cfg = Config { rto_min: Duration::ZERO, ..config() };
    established(
        &cfg,
        65_535,
        "200  write 984
              > data 1:984
              = srtt 100
              = rto 250              # RTTVAR = 3/4 x 50 = 37.5 after the second of two equal ones
         380  < sack 1               # R' = 180: RTTVAR = 3/4 x 37.5 + 1/4 x 80 = 48.125, SRTT = 7/8 x 100 + 180/8
              = srtt 110
              = rto 302.5",
    );
    let cfg = Config { rto_max: Duration::from_millis(1500), ..config() };
    established(&cfg, 9000, "200 write 984\n> data 1:984\n1200 timer\n> data 1:984 rtx\n= timer 2700");
}

/// Section 7.2.3: ssthresh <- max(cwnd / 2, 4 PMDCS), here half of 16 chunks.
#[test]
fn a_timeout_halves_a_large_window() {
    let cfg = Config { slow_start_limit: 10, max_burst: 100, ..config() };
    let data = |from: u64, to: u64| (from..=to).map(|tsn| format!("> data {tsn}:984\n")).collect::<String>();
    let (second, third) = (data(5, 12), data(13, 28));
    let trace = format!(
        "300 < sack 4\n{second}= cwnd 8000\n400 < sack 12\n{third}= cwnd 16000
         1400 timer\n> data 13:984 rtx\n= ssthresh 8000\n= cwnd 1000"
    );
    established(&cfg, 65_535, &format!("{FOUR}{trace}"));
}

/// After a timeout that was too early, chunks marked for retransmission are acknowledged: cumulatively, or by a gap ack
/// block. They are not resent.
#[test]
fn acknowledged_chunks_are_not_resent_after_a_timeout() {
    let timeout = "1200 timer\n> data 1:984 rtx\n";
    let trace =
        "1210 < sack 4\n> data 5:984\n> data 6:984\n= cwnd 2000\n= in_flight 2000\n= retransmissions 1";
    established(&config(), 65_535, &format!("{FOUR}{timeout}{trace}"));
    let trace = "1210 < sack 0 g2-3\n> data 4:984 rtx\n= in_flight 2000\n= cwnd 2000
                 1220 < sack 3\n> data 5:984\n> data 6:984\n= cwnd 3000\n= in_flight 3000";
    established(&config(), 65_535, &format!("{FOUR}{timeout}{trace}"));
}

/// Section 8.1: only an acknowledgement of DATA clears the error counter, and section 7.2.3: only that lets more than one
/// packet be in flight. A SACK does not keep a timeout from counting, unless the window is closed.
#[test]
fn a_sack_that_acknowledges_nothing_clears_no_errors() {
    let cfg = Config { association_max_retrans: 1, ..config() };
    established(
        &cfg,
        9000,
        "200  write 1968
              > data 1:984
              > data 2:984
         1200 timer
              > data 1:984 rtx
         1300 < sack 0
         3200 timer
              = failed true",
    );
    let cfg = Config { association_max_retrans: 0, ..config() };
    established(
        &cfg,
        9000,
        "200  write 1968
              > data 1:984
              > data 2:984
         300  < sack 1
         1300 timer
              = failed true",
    );
}

/// Section 6.3.2, R4: a SACK without a TSN that an earlier one reported starts T3-rtx if it does not run.
#[test]
fn reneging_starts_the_timer() {
    established(
        &config(),
        9000,
        "200  write 984
              > data 1:984
         300  < sack 0 g1-1
              = in_flight 0
         1200 timer
              = timer none
         1300 < sack 0
              = in_flight 1000
              = timer 3300           # the RTO has doubled
         3300 timer
              > data 1:984 rtx",
    );
}

/// Two gap ack blocks fill a packet with 24 bytes of chunks. A full report that ends before TSN 10 does not withdraw
/// it, but TSN 8, between its blocks. One with a single block withdraws both.
#[test]
fn a_report_that_fills_its_packet_says_nothing_about_later_tsns() {
    let small = Config { pmtu: 20 + 12 + 24, message_len: 8, cookie_len: 8, ..config() };
    let cfg = Config { max_burst: 10, slow_start_limit: 9, ..small };
    established(
        &cfg,
        9000,
        "200  write 80
              > data 1:8\n > data 2:8\n > data 3:8\n > data 4:8
         300  < sack 4
              > data 5:8\n > data 6:8\n > data 7:8\n > data 8:8\n > data 9:8\n > data 10:8
              = cwnd 192
              = in_flight 144
         310  < sack 4 g8-8,10-10
              = in_flight 96
         320  < sack 4 g6-6,8-8
              = in_flight 72
         330  < sack 4 g6-6,10-10
              = in_flight 96
         340  < sack 4 g6-6
              = in_flight 120",
    );
}
