//! Pacing.

use bentpipe_transport::tcp::Config;
use bentpipe_units::Rate;

use crate::trace::{config, established};

/// 1400 bytes on the wire at 5 Mbit/s take 2.24 ms.
fn paced() -> Config {
    Config { mss: 1360, header: 40, pacing: Some(Rate::from_bps(5_000_000)), ..config() }
}

#[test]
fn segments_leave_at_the_rate() {
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

/// A window that holds data back is not for pacing to open.
#[test]
fn pacing_asks_only_for_what_may_go() {
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
fn acks_are_not_paced_but_retransmissions_are() {
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

/// A pause does not save up for a burst.
#[test]
fn an_idle_rate_is_lost() {
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
