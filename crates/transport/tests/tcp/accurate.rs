//! Accurate ECN feedback: RFC 9768.

use bentpipe_transport::tcp::{Algorithm, Config};
use bentpipe_units::Duration;

use crate::trace::{config, run};

fn accurate() -> Config {
    Config { ecn: true, accurate_ecn: true, initial_window: 8, ..config() }
}

/// RFC 9768 table 2, as a client: the SYN-ACK's answer to the SYN, the ACK of it, and the first data. With a peer that
/// does not support it, the connection uses RFC 3168 or no ECN.
#[test]
fn client_negotiates_accurate_ecn() {
    for (answer, ack, data) in [
        ("SW.", "W.", "EA. 1:2 ect"),
        ("SEW.", "W.", "EA. 1:2 ect"),
        ("SA.", "W.", "EA. 1:2 ect"),
        ("SWA.", "W.", "EA. 1:2 ect"),
        ("SE.", ".", ". 1:2 ect"),
        ("SEA.", ".", ". 1:2 ect"),
        ("S.", ".", ". 1:2"),
        ("SEWA.", ".", ". 1:2"),
    ] {
        run(
            &accurate(),
            &format!(
                "0 connect\n > SEWA 0:0\n 100 < {answer} 0:0 a1 w9000\n > {ack} 1:1\n 100 write 1\n > {data}"
            ),
        );
    }
    // Table 3: the ECN field of the SYN-ACK. A mark counts.
    for (field, ack, data) in [("ect1", "EW.", "EA."), ("ect", "A.", "EA."), ("ce", "WA.", "WA.")] {
        run(
            &accurate(),
            &format!(
                "0 connect\n > SEWA 0:0\n 100 < SW. 0:0 a1 w9000 {field}\n > {ack} 1:1\n 100 write 1\n > {data} 1:2 ect"
            ),
        );
    }
}

/// As a server: the SYN-ACK returns the ECN field of the SYN.
#[test]
fn server_negotiates_accurate_ecn() {
    let passive = |cfg: &Config, offer: &str, answer: &str, ack: &str, data: &str| {
        let trace = format!(
            "0 listen\n 0 < {offer}\n > {answer} 0:0\n 1 < {ack} 1:1 a1 w9000\n 1 write 1\n > {data}"
        );
        run(cfg, &trace);
    };
    let cfg = accurate();
    passive(&cfg, "SEWA 0:0 w9000", "SW.", "W.", "EA. 1:2 ect");
    passive(&cfg, "SEWA 0:0 w9000 ect", "SA.", "W.", "EA. 1:2 ect");
    passive(&cfg, "SEWA 0:0 w9000 ect1", "SEW.", "W.", "EA. 1:2 ect");
    // Section 3.2.2.2: a mark on a SYN is not counted but returned.
    passive(&cfg, "SEWA 0:0 w9000 ce", "SWA.", "W.", "EA. 1:2 ect");
    // Reserved for later versions.
    passive(&cfg, "SEA 0:0 w9000", "SW.", "W.", "EA. 1:2 ect");
    passive(&cfg, "SEW 0:0 w9000", "SE.", ".", ". 1:2 ect");
    passive(&cfg, "S 0:0 w9000", "S.", ".", ". 1:2");
    let classic = Config { accurate_ecn: false, ..accurate() };
    passive(&classic, "SEWA 0:0 w9000", "SE.", ".", ". 1:2 ect");
}

fn negotiated(cfg: &Config, trace: &str) {
    run(cfg, &format!("0 connect\n > SEWA 0:0\n 100 < SW. 0:0 a1 w65535\n > W. 1:1\n {trace}"));
}

/// r.cep starts at 5, and ACKs carry its lowest three bits: 6, 7, 0, 1.
#[test]
fn receiver_counts_marks_modulo_eight() {
    negotiated(
        &accurate(),
        "200  < EA. 1:1001 a1 w65535 ect ce
              > WA. 1:1 a1001
         210  < EA. 1001:2001 a1 w65535 ect
              > WA. 1:1 a2001
         220  < EA. 2001:3001 a1 w65535 ce
              > EWA. 1:1 a3001
         230  < EA. 3001:4001 a1 w65535 ce
              > . 1:1 a4001
         240  < EA. 4001:5001 a1 w65535 ce
              > E. 1:1 a5001
         250  write 10
              > E. 1:11 ect",
    );
}

/// Section 3.2.2.5.1: the first mark after unmarked packets and every second mark are acknowledged at once.
#[test]
fn marks_are_acknowledged_at_once() {
    negotiated(
        &Config { delayed_ack: Some(Duration::from_millis(200)), ..accurate() },
        "200  < EA. 1:101 a1 w65535 ect
         210  < EA. 101:201 a1 w65535 ce
              > WA. 1:1 a201
         220  < EA. 201:301 a1 w65535 ce
         230  < EA. 301:401 a1 w65535 ce
              > . 1:1 a401
         240  < EA. 401:501 a1 w65535 ect
         440  timer
              > . 1:1 a501",
    );
}

const EIGHT: &str = "200  write 100000
     > EA. 1:1001 ect\n > EA. 1001:2001 ect\n > EA. 2001:3001 ect\n > EA. 3001:4001 ect
     > EA. 4001:5001 ect\n > EA. 5001:6001 ect\n > EA. 6001:7001 ect\n > EA. 7001:8001 ect\n";

/// NewReno halves once per window of data, however many marks arrive, and sends no CWR.
#[test]
fn newreno_reduces_once_per_window() {
    negotiated(
        &accurate(),
        &format!(
            "{EIGHT}
             300  < WA. 1:1 a1001 w65535      # one mark
                  = cwnd 4000
             300  < EWA. 1:1 a2001 w65535     # another
                  = cwnd 4000
             300  < . 1:1 a5001 w65535        # a third, of three segments
                  = cwnd 4000
                  > EA. 8001:9001 ect
             300  < . 1:1 a8001 w65535
                  > EA. 9001:10001 ect
                  > EA. 10001:11001 ect
                  > EA. 11001:12001 ect
                  = ssthresh 4000"
        ),
    );
}

/// RFC 9768 section 3.2.2.1 and table 4: the ACK of the SYN-ACK returns the ECN field of the SYN-ACK, which is no count of marks. A
/// mark on the SYN-ACK is part of the client's counter, 6, from then on. If that ACK carries data, it has the counter.
#[test]
fn server_learns_of_a_mark_on_its_syn_ack() {
    let accepted = "0 listen\n 0 < SEWA 0:0 w65535\n > SW. 0:0\n";
    for (ack, counter) in [("W.", "EA."), ("EW.", "EA."), ("A.", "EA."), ("WA.", "WA.")] {
        run(
            &accurate(),
            &format!(
                "{accepted}
                 100  < {ack} 1:1 a1 w65535
                      = cwnd 8000
                 200  write 1000
                      > EA. 1:1001 ect
                 300  < {counter} 1:1 a1001 w65535
                      = ssthresh none"
            ),
        );
    }
    for (counter, answer, ssthresh) in [("EA.", "EA.", "none"), ("WA.", "EA.", "2000")] {
        run(
            &accurate(),
            &format!(
                "{accepted}
                 100  < {counter} 1:1001 a1 w65535
                      > {answer} 1:1 a1001
                      = ssthresh {ssthresh}"
            ),
        );
    }
}

/// An ACK of nothing new counts marks as well.
#[test]
fn a_duplicate_ack_reports_marks() {
    negotiated(&accurate(), &format!("{EIGHT} 300 < WA. 1:1 a1 w65535\n = cwnd 4000"));
}

/// RFC 3168 section 6.1.2: losses and marks of one window of data reduce the window once, here by the timeout to 8000 / 2. The
/// mark was on data sent before it.
#[test]
fn a_mark_on_data_sent_before_a_timeout_reduces_no_further() {
    negotiated(
        &Config { algorithm: Algorithm::Dctcp, ..accurate() },
        &format!(
            "{EIGHT}
             1200 timer
                  > EA. 1:1001 rtx
             1300 < WA. 1:1 a8001 w65535
                  > EA. 8001:9001 ect
                  = ssthresh 4000"
        ),
    );
}

/// DCTCP: the first ACK, without a mark, sets alpha to 15/16 and increases the window by a segment; the mark after it
/// leaves 9000 (1 - 15/32) = 4781. The next alpha reflects one mark in the window.
#[test]
fn dctcp_reduces_in_proportion_to_the_marks() {
    negotiated(
        &Config { algorithm: Algorithm::Dctcp, ..accurate() },
        &format!(
            "{EIGHT}
             300  < EA. 1:1 a1001 w65535
                  = cwnd 9000
                  > EA. 8001:9001 ect
                  > EA. 9001:10001 ect
             300  < WA. 1:1 a2001 w65535
                  = cwnd 4781
                  = ssthresh 4781
             300  < EWA. 1:1 a3001 w65535
                  = cwnd 4781"
        ),
    );
}

/// RFC 9331 section 4.1: ECT(1), or ECT(0) with a peer without accurate feedback. Paced at twice the window per RTT:
/// 100 ms / 16.
#[test]
fn prague_sends_ect1_and_paces() {
    let cfg = Config { algorithm: Algorithm::Prague, ..accurate() };
    negotiated(
        &cfg,
        "200 write 2000\n > EA. 1:1001 ect1\n = pace 206.25\n 206.25 pace\n > EA. 1001:2001 ect1",
    );
    run(&cfg, "0 connect\n > SEWA 0:0\n 100 < SE. 0:0 a1 w9000\n > . 1:1\n 200 write 1000\n > . 1:1001 ect");
}
