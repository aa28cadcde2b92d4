//! TCP options: timestamps and window scaling, RFC 7323, and their length on the wire.

use bentpipe_transport::tcp::{Config, Connection};
use bentpipe_units::{Duration, Instant};

use crate::trace::{config, parse, run};

fn stamped() -> Config {
    Config { timestamps: true, min_rto: Duration::ZERO, ..config() }
}

/// Runs a trace after a handshake that began at 1 ms and took 100 ms: SRTT = 100, RTTVAR = 50, RTO = 300.
fn agreed(cfg: &Config, trace: &str) {
    run(
        cfg,
        &format!(
            "1 connect\n > S 0:0 ts1:0\n 101 < S. 0:0 a1 w65535 ts500:1\n > . 1:1 a1 ts101:500\n = rto 300\n {trace}"
        ),
    );
}

/// RFC 7323 section 3.2: only if both ends offer them, then in every segment; a segment without them is dropped.
#[test]
fn timestamps_are_negotiated_in_the_handshake() {
    agreed(
        &stamped(),
        "200  < . 1:1001 a1 w65535
         210  < . 1:1001 a1 w65535 ts610:101
              > . 1:1 a1001 ts210:610
         220  abort
              > R 1:1",
    );
    run(
        &stamped(),
        "1 connect\n > S 0:0 ts1:0\n 101 < S. 0:0 a1 w9000\n > . 1:1 a1\n 200 write 10\n > . 1:11",
    );
    run(&stamped(), "1 listen\n 101 < S 0:0 w9000 ts7:0\n > S. 0:0 a1 ts101:7");
    run(&config(), "1 listen\n 101 < S 0:0 w9000 ts7:0\n > S. 0:0 a1\n 201 < . 1:11 a1 w9000\n > . 1:1 a11");
}

/// Section 3.2: in every segment, if negotiated, but in no reset of ours.
#[test]
fn segments_carry_timestamps_only_if_both_ends_offered_them() {
    let cfg = stamped();
    for (answer, is_agreed) in [("ts500:1", true), ("", false)] {
        let trace = format!("1 connect\n > S 0:0 ts1:0\n 101 < S. 0:0 a1 w9000 {answer}\n > . 1:1 a1");
        let mut c = run(&cfg, &trace);
        let mut is_stamped = |act: fn(&mut Connection)| {
            act(&mut c);
            let sent = c.poll_transmit(&cfg, Instant::from_nanos(200_000_000));
            sent.map(|segment| segment.timestamps.is_some())
        };
        assert_eq!(is_stamped(|c| c.write(10)), Some(is_agreed));
        assert_eq!(is_stamped(Connection::abort), Some(false));
    }
}

/// RFC 7323 section 4: retransmissions are measured too, because the echo tells which transmission arrived. Worked out
/// by hand: R' = 350 and RTTVAR = 3/4 x 50 + 1/4 x 250, SRTT = 7/8 x 100 + 1/8 x 350, or R' = 50 and RTTVAR = 3/4 x 50
/// + 1/4 x 50, SRTT = 7/8 x 100 + 1/8 x 50; RTO = SRTT + 4 RTTVAR, without backoff.
#[test]
fn timestamps_measure_retransmissions() {
    for (echo, srtt, rto) in [("200", "131.25", "531.25"), ("500", "93.75", "293.75")] {
        agreed(
            &stamped(),
            &format!(
                "200  write 10
                      > . 1:11 ts200:500
                 500  timer
                      > . 1:11 ts500:500 rtx
                      = rto 600
                 550  < . 1:1 a11 w65535 ts950:{echo}
                      = srtt {srtt}
                      = rto {rto}"
            ),
        );
    }
}

/// RFC 7323 appendix G: ExpectedSamples = ceil(FlightSize / 2 SMSS) is 2 for both ACKs, so the gains are 1/16 and 1/8.
/// R' = 200: RTTVAR = 7/8 x 50 + 1/8 x 100, SRTT = 15/16 x 100 + 1/16 x 200; then again.
#[test]
fn frequent_samples_have_smaller_gains() {
    let cfg = Config { initial_window: 4, ..stamped() };
    agreed(
        &cfg,
        "200  write 4000
              > . 1:1001
              > . 1001:2001
              > . 2001:3001
              > . 3001:4001
         400  < . 1:1 a1001 w65535 ts800:200
              = srtt 106.25
              = rto 331.25
         400  < . 1:1 a2001 w65535 ts800:200
              = srtt 112.109375
              = rto 355.859375",
    );
}

/// RFC 7323 section 4.1: no measurement from an ACK that does not advance SND.UNA, nor from an echo of a timestamp
/// never sent.
#[test]
fn old_acks_and_invalid_echoes_are_not_measured() {
    agreed(
        &stamped(),
        "200  write 10
              > . 1:11
         350  < . 1:1 a1 w60000 ts750:200
              = srtt 100
         360  < . 1:1 a11 w60000 ts760:90000
              = srtt 100",
    );
}

/// RFC 7323 section 4.3, both examples: a delayed ACK echoes the earlier of two segments, and with a gap an ACK echoes
/// the last segment that advanced RCV.NXT.
#[test]
fn ts_recent_follows_rfc_7323_examples() {
    agreed(
        &Config { delayed_ack: Some(Duration::from_millis(200)), ..stamped() },
        "200  < . 1:1001 a1 w65535 ts600:101
         210  < . 1001:2001 a1 w65535 ts610:101
              > . 1:1 a2001 ts210:600",
    );
    agreed(
        &stamped(),
        "200  < . 1:1001 a1 w65535 ts601:101        # A
              > . 1:1 a1001 ts200:601
         201  < . 2001:3001 a1 w65535 ts603:101     # C
              > . 1:1 a1001 ts201:601
         202  < . 1001:2001 a1 w65535 ts602:101     # B
              > . 1:1 a3001 ts202:602
         203  < . 4001:5001 a1 w65535 ts605:101     # E
              > . 1:1 a3001 ts203:602
         204  < . 3001:4001 a1 w65535 ts604:101     # D
              > . 1:1 a5001 ts204:604",
    );
}

fn scaled(shift: u8, receive_window: u32) -> Config {
    Config { window_scale: Some(shift), receive_window, ..config() }
}

/// RFC 7323 sections 2.2 and 2.3: the window of a SYN is not scaled; others are whole units of 1 << shift, at most 65
/// 535 of them; without the peer's option the unit is one byte.
#[test]
fn windows_are_scaled_if_both_ends_offer_it() {
    let (seven, zero) = (scaled(7, 1_000_000), scaled(0, 1_000_000));
    for (cfg, offer, answer, window) in [
        (&seven, "scale7", "scale3", 999_936), // 7812 x 128
        (&seven, "scale7", "", 65_535),
        (&zero, "scale0", "scale9", 65_535),
        (&scaled(3, 1_000_000), "scale3", "scale0", 524_280), // 65 535 x 8
        (&scaled(15, 2_000_000_000), "scale14", "scale0", 1_073_725_440), // 65 535 x 2^14
        (&Config { window_scale: None, ..zero.clone() }, "", "scale7", 1_000_000),
    ] {
        let first = if offer.is_empty() { 1_000_000 } else { 65_535 };
        run(
            cfg,
            &format!(
                "0 connect\n > S 0:0 w{first} {offer}\n 100 < S. 0:0 a1 w9000 {answer}\n > . 1:1 a1 w{window}"
            ),
        );
    }
    run(&seven, "0 listen\n 10 < S 0:0 w9000 scale5\n > S. 0:0 a1 w65535 scale7");
    run(&seven, "0 listen\n 10 < S 0:0 w9000\n > S. 0:0 a1 w65535");
}

/// RFC 7323 section 2.4: the right edge seems to move back by less than a unit: first 999 937, then 1001 + 7804 x 128 =
/// 999 913. The edge advertised counts: a segment up to it is accepted.
#[test]
fn data_up_to_the_advertised_edge_is_accepted() {
    run(
        &scaled(7, 1_000_000),
        "0    connect
              > S 0:0 scale7
         100  < S. 0:0 a1 w9000 scale7
              > . 1:1 a1 w999936
         200  < . 1:1001 a1 w9000
              > . 1:1 a1001 w998912
         200  < . 998937:999937 a1 w9000
              > . 1:1 a1001 w998912
         300  < . 1001:998937 a1 w9000
              > . 1:1 a999937 w0
              = received 999936",
    );
}

/// A buffer of less than two units: the rest is not worth a unit until it is read.
#[test]
fn a_window_below_one_unit_is_advertised_as_zero() {
    run(
        &scaled(9, 1000),
        "0    connect
              > S 0:0 w1000 scale9
         100  < S. 0:0 a1 w9000 scale9
              > . 1:1 a1 w512
         200  < . 1:513 a1 w9000
              > . 1:1 a513 w0
         300  read 512
              > . 1:1 a513 w512",
    );
    // A buffer of less than one unit is advertised as one; otherwise the window would never open.
    run(&scaled(10, 600), "0 connect\n > S 0:0 w600 scale10\n 9 < S. 0:0 a1 w9 scale0\n > . 1:1 a1 w1024");
}

/// Lengths by RFC 9293 section 3.7.1, RFC 2018 sections 2 and 3, and RFC 7323 sections 2.2 and 3.2 with the padding of
/// its appendix A; 20 bytes are those of Linux's SYN, and 40 is the maximum.
#[test]
fn options_len_follows_the_rfcs() {
    for (text, options) in [
        ("S 0:0", 4),
        ("S 0:0 sackOK", 8),
        ("S 0:0 scale7", 8),
        ("S 0:0 ts1:0", 16),
        ("S 0:0 sackOK ts1:0", 16),
        ("S 0:0 sackOK ts1:0 scale0", 20),
        (". 1:1461 a1", 0),
        (". 1:1449 a1 ts1:1", 12),
        (". 1:1 a1 sack2:3", 12),
        (". 1:1 a1 sack2:3,4:5,6:7", 28),
        (". 1:1 a1 ts1:1 sack2:3", 24),
        (". 1:1 a1 ts1:1 sack2:3,4:5,6:7", 40),
    ] {
        let segment = parse(&text.split_whitespace().collect::<Vec<_>>());
        assert_eq!(segment.options_len(), options, "{text}");
        let cfg = config();
        assert_eq!(cfg.wire_len(&segment), 40 + segment.len);
        assert_eq!(Config { option_bytes: true, ..cfg }.wire_len(&segment), 40 + segment.len + options);
    }
}
