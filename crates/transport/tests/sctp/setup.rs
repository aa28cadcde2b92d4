//! Setup and shutdown of an association, and packet sizes: sections 4, 5, 8 and 9.

use bentpipe_transport::sctp::{Association, Config, Control, Cookie, Data, MAX_CHUNKS, Packet, Sack};
use bentpipe_units::{Duration, Instant};

use crate::trace::{config, established, run};

/// Section 5.1, and 6.3.1 C1-C3: the setup measures the RTT.
#[test]
fn setup_takes_four_packets() {
    run(
        &config(),
        "0    connect
              > init w65535
              = timer 1000          # T1-init, RTO.Initial
              = established false
              = srtt none
              = rtt none
         100  < init-ack w9000
              > cookie-echo
              = srtt 100
              = rtt 100
              = timer 1100          # T1-cookie: RTO = 100 + 4 x 50, but RTO.Min is 1 s
         200  < cookie-ack
              = established true
              = timer none
              = rwnd 9000
              = cwnd 4000           # section 7.2.1: min(4 x 1000, max(2 x 1000, 4404))
              = rto 1000
         210  < init-ack w5         # section 5.2.3: not waited for
              = rwnd 9000
              = packets_sent 2
              = packets_received 3",
    );
}

/// Section 5.1.3: an INIT leaves no state; section 5.2.4 (D): a cookie may be duplicated.
#[test]
fn the_passive_end_keeps_no_state_before_the_cookie() {
    run(
        &config(),
        "0    listen
              = closed false
         100  < init w9000
              > init-ack w65535
              = established false
              = timer none
         200  < cookie-echo w9000
              > cookie-ack
              = established true
              = rwnd 9000
         250  < cookie-echo w9000
              > cookie-ack
         260  < init w9000          # section 5.2.2: late, and harmless
              > init-ack w65535
              = established true",
    );
}

/// Sections 4 (2) and 6.3.3 E2: the association fails after Max.Init.Retransmits.
#[test]
fn an_init_is_resent_eight_times() {
    let trace = "0 connect\n> init\n1000 timer\n> init\n3000 timer\n> init\n7000 timer\n> init\n15000 timer\n> init
                 31000 timer\n> init\n63000 timer\n> init\n123000 timer\n> init\n183000 timer\n> init\n= failed false
                 243000 timer\n= failed true\n= closed true\n= timer none\n= timeouts 9";
    run(&config(), trace);
}

/// Section 5.2.4 (D): the COOKIE ACK was lost and the SHUTDOWN after it found the peer in setup; otherwise neither end
/// could proceed. RTO = RTO.Initial, because the passive end has no measurement; doubled at 1200.
#[test]
fn a_cookie_echo_is_answered_after_a_shutdown() {
    run(
        &config(),
        "0    listen
         100  < init w9000\n> init-ack w65535
         150  close
         200  < cookie-echo w9000
              > cookie-ack
              > shutdown 0
              = timer 1200
         1200 timer
              > shutdown 0
         1250 < cookie-echo w9000
              > cookie-ack
         3200 timer
              > shutdown 0
         3300 < shutdown-ack
              > shutdown-complete
              = closed true
              = failed false",
    );
}

/// Section 5.1.5: a cookie older than Valid.Cookie.Life; section 5.2.6 (1): a new one is requested.
#[test]
fn a_stale_cookie_is_refused() {
    run(
        &config(),
        "0      listen
         61000  < cookie-echo w9000 -60001
                > stale
                = established false
         61100  < cookie-echo w9000 -60000
                > cookie-ack
                = established true",
    );
    run(
        &config(),
        "0    connect\n> init
         100  < init-ack w9000\n> cookie-echo
         1100 timer\n> cookie-echo
         1200 < stale\n> init
         1300 < init-ack w9000\n> cookie-echo
         1400 < cookie-ack\n= established true",
    );
}

/// Section 5.2.6 (2): Valid.Cookie.Life is shorter than the RTT of 600 ms. After Max.Init.Retransmits new cookies the
/// association fails.
#[test]
fn an_association_whose_cookies_are_always_stale_fails() {
    let cfg = Config { max_init_retransmits: 2, ..config() };
    run(
        &cfg,
        "0    connect\n> init
         600  < init-ack w9000\n> cookie-echo
         1200 < stale\n> init
              = rtt 600             # from the COOKIE ECHO to the answer
         1800 < init-ack w9000\n> cookie-echo
              = rtt 600
         2400 < stale\n> init
         3000 < init-ack w9000\n> cookie-echo
              = failed false
         3600 < stale
              = failed true
              = closed true
              = timer none",
    );
}

/// Section 5.2.1: both ends open at the same time.
#[test]
fn simultaneous_inits_set_up_one_association() {
    run(
        &config(),
        "0    connect\n> init
         50   < init w9000\n> init-ack w65535
         100  < cookie-echo w9000\n> cookie-ack\n= established true\n= rwnd 9000
         110  < init-ack w9000
         120  < cookie-ack",
    );
}

/// Section 9.2.
#[test]
fn shutdown_waits_until_everything_is_acknowledged() {
    established(
        &config(),
        9000,
        "200  write 984
              > data 1:984
         250  close
         260  write 984              # no more is taken
         300  < sack 1
              > shutdown 0
              = timer 1300           # T2-shutdown
         350  < data 1:10            # the peer has not done yet
              > shutdown 1 sack 1
              = timer 1350
         360  < data 3:10            # a gap
              > shutdown 1 sack 1 g3-3
              = timer 1360
         1360 timer
              > shutdown 1
              = timer 3360
         1400 < shutdown-ack
              > shutdown-complete
              = closed true
              = failed false
              = timer none
         1500 < shutdown-ack         # section 8.4 (5): the SHUTDOWN COMPLETE was lost
              > shutdown-complete
         1600 < data 2:10            # section 8.4 (8)
              > abort
         1700 < abort
              = closed true",
    );
}

#[test]
fn shutdown_is_answered_once_everything_is_acknowledged() {
    established(
        &config(),
        9000,
        "200  write 984
              > data 1:984
         250  < shutdown 0           # its SACK is still on the way
              = peer_closed true
         260  write 984              # section 9.2: no new data
         300  < shutdown 1
              > shutdown-ack
              = timer 1300
         1300 timer
              > shutdown-ack
         1400 < shutdown-complete
              = closed true
              = failed false",
    );
}

#[test]
fn simultaneous_shutdown() {
    established(
        &config(),
        9000,
        "200  close\n> shutdown 0
         250  < shutdown 0\n> shutdown-ack
         300  < shutdown-ack\n> shutdown-complete\n= closed true\n= failed false",
    );
}

/// Section 9.1.
#[test]
fn abort_closes_at_once() {
    established(&config(), 9000, "300 abort\n> abort\n= closed true\n= failed false");
    established(&config(), 9000, "300 < abort\n= closed true\n= failed true");
}

/// Section 8.1: the counter counts consecutive timeouts.
#[test]
fn association_fails_if_the_peer_is_unreachable() {
    let cfg = Config { association_max_retrans: 2, ..config() };
    established(
        &cfg,
        9000,
        "200   write 984\n> data 1:984
         1200  timer\n> data 1:984 rtx
         3200  timer\n> data 1:984 rtx
         3300  < sack 1              # it answers: the counter is cleared
         3300  write 984\n> data 2:984
         7300  timer\n> data 2:984 rtx
         15300 timer\n> data 2:984 rtx
               = failed false
         31300 timer
               = failed true",
    );
}

/// Sections 3.1 and 3.3, with 20 bytes of IPv4.
#[test]
fn packet_sizes_follow_the_rfc() {
    let cfg = Config::default();
    let cookie = Cookie::default();
    for (control, length) in [
        (Control::Init { a_rwnd: 1 }, 20 + 12 + 20),
        (Control::InitAck { a_rwnd: 1, cookie }, 20 + 12 + 20 + 4 + 100),
        (Control::CookieEcho { cookie }, 20 + 12 + 4 + 100),
        (Control::CookieAck, 20 + 12 + 4),
        (Control::Shutdown { cum_tsn_ack: 0 }, 20 + 12 + 8),
        (Control::ShutdownAck, 20 + 12 + 4),
        (Control::ShutdownComplete, 20 + 12 + 4),
        (Control::Abort, 20 + 12 + 4),
        (Control::StaleCookie, 20 + 12 + 4 + 4 + 4),
    ] {
        assert_eq!(Packet::control(control).wire_len(&cfg), length, "{control:?}");
    }
    let mut packet = Packet::default();
    packet.sack = Some(Sack { blocks: vec![(2, 2), (4, 9)], duplicates: 1, ..Sack::default() });
    assert_eq!(packet.wire_len(&cfg), 20 + 12 + 16 + 2 * 4 + 4);
    // A chunk is padded to a multiple of four.
    assert!(packet.push(Data { tsn: 1, len: 5, begin: true, end: true }));
    assert_eq!(packet.wire_len(&cfg), 60 + 16 + 8);
    assert_eq!((cfg.pmdcs(), cfg.max_fragment()), (1468, 1452));
    // So is the cookie.
    let cfg = Config { cookie_len: 98, ip_header: 40, ..cfg };
    assert_eq!(Packet::control(Control::InitAck { a_rwnd: 1, cookie }).wire_len(&cfg), 40 + 12 + 24 + 100);
    assert_eq!(Packet::control(Control::CookieEcho { cookie }).wire_len(&cfg), 40 + 12 + 4 + 100);

    let mut packet = Packet::default();
    for tsn in 1..=MAX_CHUNKS as u64 {
        assert!(packet.push(Data { tsn, len: 4, begin: true, end: true }));
    }
    assert!(!packet.push(Data::default()), "full");
    assert_eq!(packet.data().len(), 16);
}

/// Sections 7.2 and 7.2.1: a chunk of a multiple of four bytes, with at least one word of data, and at most 4 chunks or
/// 4404 bytes, or two chunks, in the initial window.
#[test]
fn pmdcs_and_initial_window_follow_from_the_pmtu() {
    for (pmtu, ip_header, pmdcs, cwnd) in [
        (1500, 20, 1468, 4404),
        (1500, 40, 1448, 4404),
        (1035, 20, 1000, 4000),
        (4032, 20, 4000, 8000),
        (100_000, 20, 65_500, 131_000),
        (0, 20, 20, 80),
    ] {
        let cfg = Config { pmtu, ip_header, ..Config::default() };
        let found = (cfg.pmdcs(), cfg.max_fragment(), Association::connect(&cfg).stats().cwnd);
        assert_eq!(found, (pmdcs, pmdcs as u32 - 16, cwnd), "{pmtu}, {ip_header}");
    }
}

/// T1-init expires at 1 s.
#[test]
fn timers_do_not_expire_early() {
    let cfg = config();
    let mut end = Association::connect(&cfg);
    assert!(end.poll_transmit(&cfg, Instant::ZERO).is_some());
    for (ms, resent) in [(999, false), (1500, true)] {
        let now = Instant::ZERO + Duration::from_millis(ms);
        end.handle_timeout(&cfg, now);
        assert_eq!(end.poll_transmit(&cfg, now).is_some(), resent, "{ms}");
    }
}

/// Karn's rule, section 6.3.1 C5: an INIT that was resent gives no RTT, the COOKIE ECHO after it does.
#[test]
fn a_resent_init_gives_no_rtt() {
    run(
        &config(),
        "0    connect\n> init
         1000 timer\n> init
         1300 < init-ack w9000
              > cookie-echo
              = srtt none
         1400 < cookie-ack
              = srtt 100",
    );
}

/// Sections 5.2.5, 5.2.6, 6, 8.5.1 and 9.2: chunks that the state does not allow are discarded.
#[test]
fn unexpected_chunks_are_discarded() {
    run(
        &config(),
        "0    connect\n> init
         10   < cookie-ack
         20   < stale
         30   < shutdown 0
         40   < shutdown-complete
         50   < data 1:10
              = received 0
         60   < shutdown-ack         # section 8.5.1 (E): of an earlier association
              > shutdown-complete
              = established false
              = closed false
              = timer 1000
         100  < init-ack w9000\n> cookie-echo
         110  < data 1:10
              = received 0
         200  < cookie-ack\n= established true",
    );
    established(
        &config(),
        9000,
        "200  write 984
              > data 1:984
              = timer 1200
         300  < cookie-ack
         310  < stale
         320  < shutdown-ack
         330  < shutdown-complete
              = established true
              = peer_closed false
              = timer 1200           # of T3-rtx
         340  < shutdown 0
         350  < data 1:10            # after the peer's SHUTDOWN
              = received 0
         400  < sack 1
              > shutdown-ack
         410  < init w9000           # section 9.2: the peer has restarted
              > shutdown-ack
         420  < data 1:10
              = received 0
         430  < abort                # all data of both ends has arrived
              = closed true
              = failed false",
    );
    run(&config(), "0 listen\n10 < abort\n= closed false\n= failed false");
}

/// Section 8.4: an ABORT answers a packet for a closed association, unless it is an ABORT or belongs to the end of one.
#[test]
fn a_closed_association_answers_with_an_abort() {
    established(
        &config(),
        9000,
        "300  abort\n> abort
         310  < sack 0\n> abort
         320  < init w9000\n> abort
         330  < shutdown 0\n> abort
         340  < shutdown-ack\n> shutdown-complete
         350  < shutdown-complete
         360  < abort
         400  write 984              # nothing is taken any more
              = send_queue 0",
    );
    let mut end = Association::connect(&config());
    assert!(!end.is_closed());
    end.abort();
    assert!(end.is_closed(), "the peer knows nothing of it");
    assert_eq!(end.poll_transmit(&config(), Instant::ZERO), None);
}

#[test]
fn an_aborted_association_is_closed_once_the_abort_is_sent() {
    let mut end = established(&config(), 9000, "300 write 10\n> data 1:10");
    end.abort();
    assert!(!end.is_closed());
    let sent = end.poll_transmit(&config(), Instant::ZERO).map(|packet| packet.control);
    assert_eq!((sent, end.is_closed()), (Some(Control::Abort), true));
}

/// A SHUTDOWN acknowledges DATA as well, but none that was never sent, section 6.2.1 (D).
#[test]
fn a_shutdown_acknowledges_data() {
    established(
        &config(),
        9000,
        "200  write 2952
              > data 1:984
              > data 2:984
              > data 3:984
         300  < shutdown 4
              = acked 0
         310  < shutdown 2
              = acked 1968
              = in_flight 1000
              = send_queue 984
              = timer 1310
         320  < shutdown 0           # an older one
              = timer 1310
         330  < shutdown 3
              > shutdown-ack",
    );
}

#[test]
fn what_is_written_is_limited_to_a_quarter_of_the_counter() {
    let cfg = config();
    let mut end = Association::connect(&cfg);
    end.write(&cfg, u64::MAX / 4 - 100);
    end.send(&cfg, 101);
    assert_eq!(end.send_queue(), u64::MAX / 4 - 100, "101 bytes are too many");
    end.send(&cfg, 60);
    end.write(&cfg, u64::MAX);
    assert_eq!(end.send_queue(), u64::MAX / 4);
}
