//! Queries of a connection's state.

use bentpipe_transport::tcp::{Config, CongestionPhase, Connection, Limit, Probe};
use bentpipe_units::{Duration, Instant};

use crate::sack::selective;
use crate::trace::{config, established, parse, run};

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn four() -> Config {
    Config { initial_window: 4, limited_transmit: false, ..config() }
}

const FOUR: &str = "200 write 4000\n > . 1:1001\n > . 1001:2001\n > . 2001:3001\n > . 3001:4001\n";
const DUPLICATE: &str = "300 < . 1:1 a1 w65535\n";

/// Slow start lasts while cwnd is below ssthresh, RFC 5681 section 3.1.
#[test]
fn phases_follow_loss_recovery() {
    for (ssthresh, phase) in [
        (None, CongestionPhase::SlowStart),
        (Some(4001), CongestionPhase::SlowStart),
        (Some(4000), CongestionPhase::Avoidance),
    ] {
        let cfg = Config { initial_ssthresh: ssthresh, ..four() };
        assert_eq!(established(&cfg, 65_535, FOUR).congestion_phase(), phase, "{ssthresh:?}");
    }
    let lost = format!("{FOUR}{}> . 1:1001 rtx", DUPLICATE.repeat(3));
    assert_eq!(established(&four(), 65_535, &lost).congestion_phase(), CongestionPhase::Recovery);
    let expired = "0 connect\n > S 0:0 sackOK\n 100 < S. 0:0 a1 w65535 sackOK\n > . 1:1 a1
                   200 write 2000\n > . 1:1001\n > . 1001:2001\n 1200 timer\n > . 1:1001 rtx";
    assert_eq!(run(&selective(4), expired).congestion_phase(), CongestionPhase::Timeout);
}

/// With and without go-back-N, also with recovery as in ns-2.
#[test]
fn retransmission_after_a_timeout_is_not_fast_recovery() {
    let timeout = format!("{FOUR} 1200 timer\n > . 1:1001 rtx");
    for cfg in [Config { go_back_n: false, ..four() }, Config { ns2_recovery: true, ..four() }] {
        assert_eq!(established(&cfg, 65_535, &timeout).congestion_phase(), CongestionPhase::Timeout);
    }
}

#[test]
fn the_window_limits_unless_there_is_nothing_to_send() {
    assert_eq!(Connection::connect(&config(), at(0)).limit(&config()), Limit::CongestionWindow, "handshake");
    let limit = |window, trace: &str| established(&four(), window, trace).limit(&four());
    assert_eq!(limit(65_535, FOUR), Limit::Sender);
    let more = FOUR.replace("4000", "5000");
    assert_eq!(limit(4000, &more), Limit::ReceiveWindow);
    assert_eq!(limit(4001, &more), Limit::CongestionWindow);
    // A retransmission that is due is something to send.
    let mut c = established(&four(), 65_535, &format!("{FOUR}{}", DUPLICATE.repeat(2)));
    assert_eq!(c.limit(&four()), Limit::Sender);
    c.on_segment(&four(), at(300), &parse(&[".", "1:1", "a1", "w65535"]));
    assert_eq!(c.limit(&four()), Limit::CongestionWindow);
}

#[test]
fn a_probe_is_due_until_it_is_sent() {
    let closed = "200 write 3000\n > . 1:1001\n 300 < . 1:1 a1001 w0\n = timer 1300";
    let tail = "0 connect\n > S 0:0 sackOK\n 100 < S. 0:0 a1 w65535 sackOK\n > . 1:1 a1
                200 write 1000\n > . 1:1001\n = timer 600";
    let by_time = Config { rack: true, prr: true, ..selective(4) };
    for (mut c, cfg, ms, probe) in [
        (established(&config(), 1000, closed), config(), 1300, Probe::Window),
        (run(&by_time, tail), by_time, 600, Probe::Loss),
    ] {
        assert_eq!(c.due_probe(), None);
        c.handle_timeout(&cfg, at(ms));
        assert_eq!(c.due_probe(), Some(probe));
        assert!(c.poll_transmit(&cfg, at(ms)).is_some());
        assert_eq!(c.due_probe(), None);
    }
}
