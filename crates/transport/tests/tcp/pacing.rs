//! Pacing.

use bentpipe_transport::tcp::{Algorithm, Config};
use bentpipe_units::Rate;

use crate::trace::{config, established};

/// 1400 bytes on the wire at 5 Mbit/s take 2.24 ms.
fn paced() -> Config {
    Config { mss: 1360, header_len: 40, pacing: Some(Rate::from_bps(5_000_000)), ..config() }
}

#[test]
fn segments_are_paced_at_the_configured_rate() {
    established(
        &paced(),
        65_535,
        "100     write 3000
                 > . 1:1361
                 = pace 102.24
         101     write 0                # asked early
                 = pace 102.24
         102.24  pace
                 > . 1361:2721
                 = pace 104.48
         104.48  pace
                 > . 2721:3001
                 = pace none            # nothing waits
         104.5   write 1360             # 320 bytes take 0.512 ms
                 = pace 104.992
         104.992 pace
                 > . 3001:4361",
    );
}

/// Pacing does not ask to be called while the window blocks the data.
#[test]
fn no_pacing_deadline_while_the_window_blocks() {
    let cfg = Config { initial_window: 1, ..paced() };
    established(
        &cfg,
        65_535,
        "100     write 9000
                 > . 1:1361
                 = pace none
         101     < . 1:1 a1361 w65535
                 = pace 102.24
         102.24  pace
                 > . 1361:2721
                 = pace 104.48",
    );
}

#[test]
fn retransmissions_are_paced_and_acks_are_not() {
    established(
        &paced(),
        65_535,
        "100     write 9000
                 > . 1:1361
         101     < . 1:101 a1 w65535
                 > . 1361:1361 a101",
    );
    let cfg = Config { initial_window: 1, pacing: Some(Rate::from_bps(5_000)), ..paced() };
    established(
        &cfg,
        65_535,
        "100     write 1360
                 > . 1:1361
         1100    timer                  # 1400 bytes at 5 kbit/s take 2.24 s
                 = pace 2340
         2340    pace
                 > . 1:1361 rtx",
    );
}

/// Idle time does not accumulate credit for a burst.
#[test]
fn idle_time_gives_no_burst_credit() {
    established(
        &paced(),
        65_535,
        "100     write 1360
                 > . 1:1361
         200     write 2720
                 > . 1361:2721
                 = pace 202.24
         202.24  pace
                 > . 2721:4081",
    );
}

/// The initial window is sent at once. Then three segments of 1000 bytes per RTT of 100 ms: at factor 2 in slow start,
/// one every 100 / 6 ms; at factor 1.2, once the window is half of ssthresh, one every 100 / 3.6 ms. A segment more of ssthresh
/// leaves room to double.
#[test]
fn window_is_paced_over_the_rtt() {
    let spread = Config { pace_window: true, initial_window: 2, ..config() };
    let trace = |next: &str| {
        format!(
            "100 write 100000\n > . 1:1001\n > . 1001:2001\n 200 < . 1:1 a1001 w65535\n > . 2001:3001\n = cwnd 3000
             = pace {next}\n {next} pace\n > . 3001:4001"
        )
    };
    established(&spread, 65_535, &trace("216.666667"));
    let near = Config { initial_ssthresh: Some(6000), ..spread.clone() };
    established(&near, 65_535, &trace("227.777778"));
    let far = Config { initial_ssthresh: Some(7000), ..spread.clone() };
    established(&far, 65_535, &trace("216.666667"));
    // A fixed rate of 10 kbit/s allows one per 800 ms, if that is slower.
    let capped = Config { header_len: 0, pacing: Some(Rate::from_bps(10_000)), ..spread };
    established(&capped, 65_535, "100 write 2000\n > . 1:1001\n = pace 900\n 900 pace\n > . 1001:2001");
}

/// draft-cardwell-iccrg-bbr-congestion-control-00 section 4.2.1: 2 / ln 2 times the initial window per RTT, so ten
/// segments take 100 ms ln 2 / 2, 3.465 736 ms each, or a nanosecond more at a whole number of bits per second; headers
/// do not count.
#[test]
fn bbr_starts_at_the_high_gain() {
    let cfg = Config { algorithm: Algorithm::Bbr, ..config() };
    established(
        &cfg,
        65_535,
        "100        write 10000
                    > . 1:1001
                    = pace 103.465737
         103.465737 pace
                    > . 1001:2001
                    = pace 106.931474",
    );
}
