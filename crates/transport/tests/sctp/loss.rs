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
              = timer 1320           # (4): it is the first outstanding
              = fast_retransmits 1
         400  < sack 0 g2-5
         410  < sack 0 g2-6
              > data 9:984
         420  < sack 6
              > data 10:984
              = cwnd 4000            # Fast Recovery goes on to TSN 8
              = timer 1420
         430  < sack 8               # (6): its exit point
              > data 11:984
              > data 12:984
              = cwnd 4000
         440  < sack 9
              > data 13:984
              > data 14:984
              = cwnd 5000
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
