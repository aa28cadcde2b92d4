//! Explicit congestion notification: RFC 3168.

use bentpipe_transport::tcp::{Algorithm, Config};

use crate::trace::{config, run, segments};

fn ecn() -> Config {
    Config { ecn: true, initial_window: 8, ..config() }
}

/// Runs a trace on a connection that negotiated ECN.
fn negotiated(trace: &str) {
    run(&ecn(), &format!("0 connect\n > SEW 0:0\n 100 < SE. 0:0 a1 w65535\n > . 1:1\n {trace}"));
}

/// RFC 3168 section 6.1.1.
#[test]
fn ecn_is_negotiated_in_the_handshake() {
    // The peer declines, or reflects the offer like a broken server.
    for answer in ["S.", "SEW."] {
        run(
            &ecn(),
            &format!("0 connect\n > SEW 0:0\n 100 < {answer} 0:0 a1 w9000\n > . 1:1\n 100 write 1\n > . 1:2"),
        );
    }
    negotiated("100 write 1\n > . 1:2 ect");
    let passive = |cfg: &Config, offer, answer, data| {
        let trace = format!(
            "0 listen\n 0 < {offer} 0:0 w9000\n > {answer} 0:0\n 1 < . 1:1 a1 w9000\n 1 write 1\n > . 1:2 {data}"
        );
        run(cfg, &trace);
    };
    passive(&ecn(), "SEW", "SE.", "ect");
    passive(&ecn(), "S", "S.", "");
    passive(&ecn(), "SE", "S.", "");
    passive(&config(), "SEW", "S.", "");
}

/// RFC 3168 section 6.1.2: one reduction per window of data, and no growth for an ACK with ECN-Echo.
#[test]
fn marks_reduce_once_per_window() {
    let eight = segments(8, "ect");
    negotiated(&format!(
        "200  write 100000
              {eight}
         300  < E. 1:1 a1001 w65535
              = cwnd 4000
              = ssthresh 4000
         300  < E. 1:1 a2001 w65535
         300  < E. 1:1 a3001 w65535
         300  < E. 1:1 a4001 w65535
              = cwnd 4000
         300  < E. 1:1 a5001 w65535
              > W. 8001:9001 ect       # CWR with the first new data
         300  < E. 1:1 a6001 w65535
              > . 9001:10001 ect
         300  < E. 1:1 a8001 w65535
              > . 10001:11001 ect
              > . 11001:12001 ect
              = cwnd 4000
         400  < E. 1:1 a9001 w65535    # data sent after the reduction: the next one
              = cwnd 2000
              = retransmissions 0"
    ));
}

/// RFC 3168 section 6.1.2 treats a mark as a loss, for which RFC 5681 eq. (4) leaves two segments. ns-2's floor is in `ns2`.
#[test]
fn marks_reduce_the_window_to_two_segments() {
    run(
        &Config { initial_window: 3, ..ecn() },
        "0 connect
              > SEW 0:0
         100  < SE. 0:0 a1 w65535
              > . 1:1
         200  write 100000
              > . 1:1001 ect
              > . 1001:2001 ect
              > . 2001:3001 ect
         300  < E. 1:1 a1001 w65535
              = cwnd 2000
              = ssthresh 2000
         301  < E. 1:1 a2001 w65535
              > W. 3001:4001 ect
         302  < E. 1:1 a3001 w65535
              > . 4001:5001 ect
         401  < E. 1:1 a4001 w65535
              > W. 5001:6001 ect
              = cwnd 2000
              = ssthresh 2000",
    );
}

/// RFC 3168 section 6.1.2: a loss in a window already reduced for a mark causes no reduction; retransmissions are not
/// ECN-capable (6.1.5).
#[test]
fn a_loss_after_a_mark_does_not_reduce_again() {
    let eight = segments(8, "ect");
    negotiated(&format!(
        "200  write 8000
              {eight}
         300  < E. 1:1 a1001 w65535
              = ssthresh 4000
         300  < E. 1:1 a1001 w65535
         300  < E. 1:1 a1001 w65535
         300  < E. 1:1 a1001 w65535
              > . 1001:2001 rtx
              = ssthresh 4000
              = cwnd 7000"
    ));
}

/// RFC 3168 section 6.1.2: no growth for an ACK with ECN-Echo, not even by CUBIC, whose window grows with time.
#[test]
fn cubic_does_not_grow_for_a_marked_ack() {
    let cfg = Config { algorithm: Algorithm::Cubic, initial_ssthresh: Some(8000), ..ecn() };
    let eight = segments(8, "ect");
    run(
        &cfg,
        &format!(
            "0 connect\n > SEW 0:0\n 100 < SE. 0:0 a1 w65535\n > . 1:1
             200  write 8000
                  {eight}
             300  < E. 1:1 a1001 w65535
                  = cwnd 5600               # 8000 * 0.7
             400  < E. 1:1 a2001 w65535
                  = cwnd 5600"
        ),
    );
}

/// A timeout counts as a reduction too; CWR is sent with data.
#[test]
fn a_mark_after_a_timeout_does_not_reduce_again() {
    let eight = segments(8, "ect");
    negotiated(&format!(
        "200   write 8000
               {eight}
         1200  timer
               > . 1:1001 rtx
               = ssthresh 4000
         1300  < E. 1:1 a8001 w65535
               = ssthresh 4000
         1300  close
               > F. 8001:8001"
    ));
}

/// RFC 3168 section 6.1.3.
#[test]
fn marks_are_echoed_until_cwr() {
    negotiated(
        "200  < . 1:1001 a1 w65535 ect
              > . 1:1 a1001
         210  < . 1001:2001 a1 w65535 ect ce
              > E. 1:1 a2001
         220  < . 2001:3001 a1 w65535 ect
              > E. 1:1 a3001
         230  < W. 3001:4001 a1 w65535 ect
              > . 1:1 a4001
         240  < W. 4001:5001 a1 w65535 ect ce   # marked again
              > E. 1:1 a5001
         250  write 10
              > E. 1:11 ect",
    );
}

#[test]
fn without_ecn_marks_are_ignored() {
    run(
        &config(),
        "0 connect\n > S 0:0\n 100 < SE. 0:0 a1 w9000\n > . 1:1\n 200 < . 1:11 a1 w9000 ce\n > . 1:1 a11",
    );
}
