//! Retransmission timer: RFC 6298, RFC 5681 section 3.1.

use bentpipe_transport::tcp::{Config, Estimator};
use bentpipe_units::Duration;

use crate::trace::{config, established, segments};

fn quick() -> Config {
    Config { min_rto: Duration::ZERO, ..config() }
}

/// Worked out by hand:
///
/// - the SYN took R = 100 ms, so SRTT = 100, RTTVAR = 50, RTO = 100 + 4 x 50;
/// - R' = 200: RTTVAR = 3/4 x 50 + 1/4 x 100 = 62.5, SRTT = 7/8 x 100 + 1/8 x 200 = 112.5, RTO = 112.5 + 250;
/// - R' = 112.5: RTTVAR = 46.875, SRTT = 112.5, RTO = 300.
#[test]
fn rto_follows_rfc_6298() {
    established(
        &quick(),
        9000,
        "100    write 10
                > . 1:11
                = rto 300
                = timer 400
         300    < . 1:1 a11 w9000
                = srtt 112.5
                = rto 362.5
         300    write 10
                > . 11:21
         412.5  < . 1:1 a21 w9000
                = srtt 112.5
                = rto 300",
    );
}

/// RFC 6298 (2.4).
#[test]
fn min_rto_limits_the_rto() {
    let cfg = Config { min_rto: Duration::from_millis(350), ..config() };
    established(&cfg, 9000, "100 write 10\n > . 1:11\n = rto 350\n = timer 450");
}

/// As in Linux, worked out by hand; deviations are four times the mean one.
///
/// - The SYN took 100: SRTT = 100, mdev = 200, which is also the minimum RTTVAR, RTO = 300.
/// - 200: mdev = 3/4 x 200 + 100 = 250 = RTTVAR, SRTT = 112.5. The round ends with a maximum of 250: RTTVAR stays.
/// - 112.5: mdev = 187.5. The maximum of this round is 200, so RTTVAR = 250 - 50/4 = 237.5.
/// - 104.5: 8 less, which is less than mdev / 4 = 46.875: mdev = 140.625 + 8, SRTT = 111.5, RTTVAR = 237.5 - 37.5/4.
/// - 31.5: 80 less, of which 37.15625 are mdev / 4: mdev = 111.46875 + 37.15625 + 42.84375 / 8 = 153.98, SRTT = 101.5,
///   RTTVAR = 228.125 - 28.125/4.
#[test]
fn rto_follows_linux() {
    let cfg = Config { min_rto: Duration::from_millis(200), estimator: Estimator::Linux, ..config() };
    established(
        &cfg,
        9000,
        "100   write 10
               > . 1:11
               = rto 300
         300   < . 1:1 a11 w9000
               = srtt 112.5
               = rto 362.5
         300   write 10
               > . 11:21
         412.5 < . 1:1 a21 w9000
               = srtt 112.5
               = rto 350
         412.5 write 10
               > . 21:31
         517   < . 1:1 a31 w9000
               = srtt 111.5
               = rto 339.625
         517   write 10
               > . 31:41
         548.5 < . 1:1 a41 w9000
               = srtt 101.5
               = rto 322.59375",
    );
}

/// As in 4.4BSD, worked out by hand, with ticks of 10.
///
/// - The SYN took 100, so SRTT = 80/8 and RTTVAR = 20/4 ticks, RTO is 10 and 20 ticks.
/// - From 100 to 205 the clock ticks 10 times (at 110 … 200): no deviation, RTTVAR = (20 - 5)/4, RTO is 10 and 15.
/// - From 205 to 310 it ticks 11 times: SRTT = 81/8, RTTVAR = (15 + 1 - 3)/4, RTO is 10 and 13.
/// - Then 10 times each: SRTT stays at 81/8, which is 10 in whole ticks, and RTTVAR falls 13, 10, 8, 6, 5, 4, 3 and no
///   further, because 3/4 is zero in whole ticks.
#[test]
fn rto_follows_bsd() {
    let tick = Duration::from_millis(10);
    let cfg = Config { clock_granularity: tick, estimator: Estimator::Bsd, ..quick() };
    let mut trace = String::from("100 write 1\n > . 1:2\n = rto 300\n");
    let mut now = 100;
    for (n, (took, rto)) in [
        (105, 250),
        (105, 230),
        (100, 200),
        (100, 180),
        (100, 160),
        (100, 150),
        (100, 140),
        (100, 130),
        (100, 130),
    ]
    .into_iter()
    .enumerate()
    {
        now += took;
        let next = n + 2;
        trace +=
            &format!("{now} < . 1:1 a{next} w9000\n = rto {rto}\n {now} write 1\n > . {next}:{}\n", next + 1);
    }
    established(&cfg, 9000, &trace);
}

/// RFC 6298 (2.3): RTO = SRTT + max(G, 4 RTTVAR), and samples are whole ticks.
#[test]
fn samples_are_rounded_to_clock_ticks() {
    let cfg = Config { clock_granularity: Duration::from_millis(40), ..quick() };
    // 100 ms are 2.5 ticks, rounded to 3.
    let mut trace = String::from("100 write 1\n > . 1:2\n = srtt 120\n = rto 360\n");
    // With constant RTTs of 3 ticks RTTVAR vanishes: 60 x (3/4)^n < 10 from n = 7 on.
    for n in 0..7 {
        let at = 100 + n * 130;
        let next = n + 2;
        trace += &format!("{} < . 1:1 a{next} w9000\n {0} write 1\n > . {next}:{}\n", at + 130, next + 1);
    }
    established(&cfg, 9000, &(trace + "= srtt 120\n = rto 160"));
    // A sample is at least one tick.
    let cfg = Config { clock_granularity: Duration::from_secs(1), ..quick() };
    established(&cfg, 9000, "100 write 1\n > . 1:2\n = srtt 1000\n = rto 3000");
}

/// RFC 6298 (5.5) and Karn's algorithm, (3).
#[test]
fn backoff_lasts_until_the_next_sample() {
    established(
        &config(),
        9000,
        "200   write 500
               > . 1:501
         1200  timer
               > . 1:501 rtx
               = timer 3200
               = ssthresh 2000       # RFC 5681 eq. (4): no less than two segments
         3200  timer
               > . 1:501 rtx
               = timer 7200
               = timeouts 2
         3300  < . 1:1 a501 w9000
               = srtt 100            # not 3100, and not 100 measured from the last
               = rto 4000
               = timer none
         3300  write 500
               > . 501:1001
               = timer 7300
         3500  < . 1:1 a1001 w9000
               = srtt 112.5
               = rto 1000",
    );
}

/// New data that is acknowledged only in part gives no sample, but shows that the path works again.
#[test]
fn backoff_ends_with_an_ack_beyond_what_was_outstanding() {
    established(
        &config(),
        9000,
        "200   write 500
               > . 1:501
         1200  timer
               > . 1:501 rtx
         1300  < . 1:1 a501 w9000
               = rto 2000
         1300  write 1000
               > . 501:1501
         1400  < . 1:1 a1001 w9000
               = srtt 100
               = rto 1000",
    );
}

/// RFC 6298 (2.5).
#[test]
fn max_rto_limits_the_rto() {
    let cfg = Config { max_rto: Duration::from_millis(1500), ..config() };
    established(
        &cfg,
        9000,
        "200   write 500
               > . 1:501
         1200  timer
               > . 1:501 rtx
               = timer 2700
         2700  timer
               > . 1:501 rtx
               = timer 4200",
    );
}

/// One measurement at a time: the second segment is not timed.
#[test]
fn one_sample_per_rtt() {
    established(
        &quick(),
        9000,
        "100  write 10
              > . 1:11
         150  write 10
              > . 11:21
         200  < . 1:1 a11 w9000
              = srtt 100
              = rto 250              # RTTVAR = 3/4 x 50
         390  < . 1:1 a21 w9000
              = srtt 100
              = rto 250",
    );
}

/// RFC 6298 (5.1)-(5.3).
#[test]
fn data_starts_the_timer_and_its_ack_stops_it() {
    established(
        &config(),
        9000,
        "200  write 1000
              > . 1:1001
              = timer 1200
         250  write 1000
              > . 1001:2001
              = timer 1200           # it runs
         300  < . 1:1 a1001 w9000
              = timer 1300
         350  < . 1:1 a2001 w9000
              = timer none",
    );
}

fn four() -> Config {
    Config { initial_window: 4, ..config() }
}

const FOUR: &str = "200 write 100000\n > . 1:1001\n > . 1001:2001\n > . 2001:3001\n > . 3001:4001\n";

/// RFC 5681 section 3.1: cwnd is one segment, ssthresh half of the outstanding data; then slow start.
#[test]
fn go_back_n_resends_everything_after_a_timeout() {
    established(
        &four(),
        65_535,
        &(FOUR.to_owned()
            + "1200  timer
                     > . 1:1001 rtx
                     = cwnd 1000
                     = ssthresh 2000
                     = in_flight 1000
               1300  < . 1:1 a1001 w65535
                     > . 1001:2001 rtx
                     > . 2001:3001 rtx
                     = cwnd 2000
               1400  < . 1:1 a4001 w65535   # beyond the retransmission
                     > . 4001:5001
                     > . 5001:6001
                     = cwnd 2500
                     = retransmissions 3"),
    );
}

#[test]
fn without_go_back_n_each_ack_resends_one_gap() {
    let cfg = Config { go_back_n: false, ..four() };
    established(
        &cfg,
        65_535,
        &(FOUR.to_owned()
            + "1200  timer
                     > . 1:1001 rtx
                     = cwnd 1000
               1300  < . 1:1 a2001 w65535   # the third was lost as well
                     > . 2001:3001 rtx
                     = cwnd 2000
               1400  < . 1:1 a4001 w65535
                     > . 4001:5001
                     > . 5001:6001
                     = retransmissions 2"),
    );
}

/// New data sent meanwhile lies beyond what the timeout resends.
#[test]
fn without_go_back_n_nothing_beyond_the_timeout_is_resent() {
    let cfg = Config { go_back_n: false, ..four() };
    established(
        &cfg,
        65_535,
        &(FOUR.to_owned()
            + "1200  timer
                     > . 1:1001 rtx
               1300  < . 1:1 a2001 w65535
                     > . 2001:3001 rtx
               1350  < . 1:1 a3001 w65535
                     > . 3001:4001 rtx
                     > . 4001:5001
               1400  < . 1:1 a4001 w65535
                     > . 5001:6001
                     = retransmissions 3"),
    );
}

/// RFC 3042 applies after a timeout as well.
#[test]
fn limited_transmit_sends_new_data_after_a_timeout() {
    let cfg = Config { initial_window: 1, limited_transmit: true, ..config() };
    established(
        &cfg,
        65_535,
        "200   write 5000
               > . 1:1001
         1200  timer
               > . 1:1001 rtx
         1300  < . 1:1 a1 w65535
               > . 1001:2001
         1400  < . 1:1 a1 w65535
               > . 2001:3001",
    );
}

/// RFC 5681 section 3.1: ssthresh is unchanged if the timer expires again for the same segment.
#[test]
fn ssthresh_is_kept_at_the_second_timeout() {
    let cfg = Config { initial_window: 8, ..config() };
    let eight = segments(8, "");
    established(
        &cfg,
        65_535,
        &format!(
            "200 write 8000\n {eight}
             1200  timer
                   > . 1:1001 rtx
                   = ssthresh 4000
             3200  timer
                   > . 1:1001 rtx
                   = ssthresh 4000
                   = cwnd 1000"
        ),
    );
}

/// SND.NXT lies before what the peer expects, so an ACK carries SND.MAX.
#[test]
fn acks_after_going_back_carry_snd_max() {
    established(
        &four(),
        65_535,
        &(FOUR.to_owned()
            + "1200  timer
                     > . 1:1001 rtx
               1250  < . 1:101 a1 w65535
                     > . 4001:4001 a101"),
    );
}

#[test]
fn early_handle_timeout_has_no_effect() {
    let mut c = established(&config(), 9000, "200 write 500\n > . 1:501");
    let before = format!("{c:?}");
    c.handle_timeout(&config(), bentpipe_units::Instant::from_nanos(1_199_999_999));
    assert_eq!(before, format!("{c:?}"));
}
