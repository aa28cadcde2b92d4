//! Whatever a channel does, every byte arrives once and in order, and the connection closes.

use bentpipe_transport::tcp::{
    Algorithm, Config, Connection, Ecn, Estimator, Flags, Sack, Segment, Timestamps,
};
use bentpipe_units::{Duration, Instant, Rate};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::channel::Channel;
use crate::transfer::{Application, transfer};

fn configs() -> impl Strategy<Value = Config> {
    let sizes = (100u32..=1500, 1u32..=10, 1u32..=100, 1u64..=50, 2u64..=200);
    let times = (prop_oneof![Just(0u64), Just(10)], 50u64..=1000, proptest::option::of(1u64..=200));
    let pacing = (proptest::option::of(100_000u64..=10_000_000), proptest::option::of(0u8..=14));
    let switches: [bool; 15] = Default::default();
    let algorithm = proptest::sample::select(Algorithm::ALL);
    (sizes, times, pacing, switches.map(|_| any::<bool>()), algorithm).prop_map(
        |(
            (mss, initial_window, receive, most, ssthresh),
            (tick, min_rto, delay),
            (pacing, scale),
            switches,
            algorithm,
        )| Config {
            mss,
            initial_window,
            // From a single byte, less than a segment.
            receive_window: receive * receive * mss / 30,
            max_window: most * most * u64::from(mss),
            initial_ssthresh: Some(ssthresh * u64::from(mss)),
            min_rto: Duration::from_millis(min_rto),
            max_rto: Duration::from_secs(5),
            clock_granularity: Duration::from_millis(tick),
            delayed_ack: delay.map(Duration::from_millis),
            pacing: pacing.map(Rate::from_bps),
            limited_transmit: switches[0],
            impatient: switches[1],
            go_back_n: switches[2],
            slow_start_restart: switches[3],
            ecn: switches[4],
            sack: switches[5],
            prr: switches[6],
            abc: switches[7],
            timestamps: switches[8],
            rack: switches[13],
            eifel: switches[14],
            // A unit does not exceed the buffer.
            window_scale: scale.map(|shift: u8| shift.min((receive * receive * mss / 30).ilog2() as u8)),
            hystart: switches[9],
            pace_window: switches[10],
            estimator: if switches[11] { Estimator::Linux } else { Estimator::Rfc6298 },
            initial_receive_window: switches[12].then_some(mss),
            accurate_ecn: switches[13],
            syn_retries: 1000,
            retries: 1000,
            algorithm,
            ..Config::default()
        },
    )
}

fn channels() -> impl Strategy<Value = Channel> {
    (0.0..0.3, 0.0..0.2, 0.0..0.3, 0u64..300, 0u64..300).prop_map(
        |(loss, duplication, marking, delay, jitter)| Channel {
            loss,
            duplication,
            marking,
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
        },
    )
}

fn applications() -> impl Strategy<Value = Application> {
    (prop_oneof![0u64..3000, 0u64..200_000], 1u64..100_000, 1u64..100_000, 0u64..500).prop_map(
        |(bytes, chunk, read, every)| Application {
            bytes,
            chunk: chunk.max(bytes / 50),
            read: read.max(bytes / 50),
            read_every: Duration::from_millis(every),
        },
    )
}

/// Extreme configurations: segments of a few bytes, windows of one segment, zero timeouts, and clock granularities from
/// zero to half a second.
fn extremes() -> impl Strategy<Value = Config> {
    let pick = (0usize..4, 0usize..3, 0usize..3, any::<[bool; 2]>());
    (configs(), 1u32..=20, 0u32..4, pick).prop_map(
        |(cfg, mss, initial_window, (n, rto, ssthresh, [half_of_cwnd, bsd]))| {
            let receive_window = cfg.receive_window.clamp(1, 200 * mss);
            Config {
                mss,
                initial_window,
                receive_window,
                max_window: [1, 3 * u64::from(mss), 50 * u64::from(mss), u64::MAX][n],
                initial_ssthresh: [Some(0), Some(20 * u64::from(mss)), None][ssthresh],
                min_rto: Duration::from_millis([0, 1, 1000][rto]),
                initial_rto: Duration::from_millis([1, 1000, 3000][ssthresh]),
                max_rto: Duration::from_secs(60),
                clock_granularity: Duration::from_nanos([0, 1, 1_000_000, 500_000_000][n]),
                half_of_cwnd,
                estimator: if bsd { Estimator::Bsd } else { cfg.estimator },
                window_scale: cfg.window_scale.map(|shift| shift.min(receive_window.ilog2() as u8)),
                initial_receive_window: cfg.initial_receive_window.map(|_| mss),
                ..cfg
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_once_and_in_order(
        cfgs in (configs(), configs()),
        apps in (applications(), applications()),
        channel in channels(),
        seed in any::<u64>(),
    ) {
        let bytes = [apps.0.bytes, apps.1.bytes];
        let limit = Duration::from_secs(1_000_000);
        let outcome = transfer([&cfgs.0, &cfgs.1], [apps.0, apps.1], &channel, seed, limit);
        for (i, end) in outcome.ends.iter().enumerate() {
            prop_assert_eq!(end.reader.total, bytes[1 - i]);
            prop_assert_eq!(end.connection.acked(), bytes[i]);
            prop_assert!(end.connection.peer_closed());
            // No timer storm: a timer expires only after something was sent or received.
            prop_assert!(end.timer_calls <= 2 * (end.sent + end.received));
        }
    }

    /// Also with extreme configurations, over paths with an RTT of up to two minutes.
    #[test]
    fn extreme_configurations_deliver_every_byte(
        cfgs in (extremes(), extremes()),
        bytes in (0u64..3000, 0u64..300),
        (chunk, every) in (1u64..1000, 0u64..500),
        channel in channels(),
        (times, quiet) in (prop_oneof![Just(1u64), Just(20), Just(200)], any::<bool>()),
        seed in any::<u64>(),
    ) {
        let far = Channel { delay: channel.delay.times(times), ..channel };
        let none = Duration::ZERO;
        let channel = if quiet { Channel { loss: 0.0, duplication: 0.0, jitter: none, ..far } } else { far };
        let app = |bytes: u64| {
            let chunk = chunk.max(bytes / 50);
            Application { bytes, chunk, read: chunk, read_every: Duration::from_millis(every) }
        };
        let limit = Duration::from_secs(10_000_000);
        let apps = [app(bytes.0), app(bytes.1)];
        let outcome = transfer([&cfgs.0, &cfgs.1], apps, &channel, seed, limit);
        for (end, (sent, received)) in outcome.ends.iter().zip([bytes, (bytes.1, bytes.0)]) {
            prop_assert_eq!((end.connection.acked(), end.reader.total), (sent, received));
            prop_assert!(end.timer_calls <= 2 * (end.sent + end.received));
        }
    }

    /// As above with the recovery of ns-2, whose senders also wait after marks.
    #[test]
    fn recovery_of_ns2_delivers_every_byte(
        (usual, extreme) in (configs(), extremes()),
        is_usual in any::<bool>(),
        apps in (applications(), applications()),
        channel in channels(),
        seed in any::<u64>(),
    ) {
        let cfg = if is_usual { usual } else { extreme };
        let cfg = Config { ns2_recovery: true, half_of_cwnd: true, max_rto: Duration::from_secs(5), ..cfg };
        let small = |app: Application| Application { bytes: app.bytes.min(3000), ..app };
        let apps = if is_usual { [apps.0, apps.1] } else { [small(apps.0), small(apps.1)] };
        let bytes = [apps[0].bytes, apps[1].bytes];
        let outcome = transfer([&cfg, &cfg], apps, &channel, seed, Duration::from_secs(10_000_000));
        for (i, end) in outcome.ends.iter().enumerate() {
            prop_assert_eq!((end.connection.acked(), end.reader.total), (bytes[i], bytes[1 - i]));
            prop_assert!(end.timer_calls <= 2 * (end.sent + end.received));
        }
    }

    /// No segment, however malformed, causes a panic.
    #[test]
    fn malformed_segments_never_panic(
        cfg in configs(),
        active in any::<bool>(),
        events in proptest::collection::vec(
            (0u64..6, 0u64..3000, 0u64..3000, any::<u32>(), 0u32..3000, any::<u8>(), 0u64..4),
            1..200,
        ),
    ) {
        let mut c = if active { Connection::connect(&cfg, Instant::ZERO) } else { Connection::listen(&cfg) };
        let mut now = Instant::ZERO;
        let mut edge = 0;
        for (what, seq, ack, window, len, bits, extreme) in events {
            now += Duration::from_millis(seq / 3);
            match what {
                0 => c.write(if extreme == 0 { u64::MAX } else { seq }),
                1 => c.read(ack),
                2 => c.limit_receive_buffer(window),
                3 if bits == 0 => c.abort(),
                3 if bits < 9 => c.close(),
                _ => {
                    let flag = |i: u32, flag| Flags::NONE.with(flag, bits >> i & 1 == 1);
                    // Half of the segments are plain data or ACKs, so that the others meet every state.
                    let flags = if bits < 128 {
                        Flags::ACK
                    } else {
                        flag(0, Flags::SYN) | flag(1, Flags::FIN) | flag(2, Flags::ACK) | flag(3, Flags::ECE)
                            | flag(4, Flags::CWR) | flag(5, Flags::RST) | flag(6, Flags::AE)
                    };
                    let (seq, ack, len) = match extreme {
                        0 if bits % 5 == 0 => (u64::MAX - seq, u64::MAX - ack, u32::MAX - len),
                        0 => (c.received() + 1, 1 + c.acked(), len),
                        1 => (u64::from(bits & 1), 1, 0),
                        _ => (seq, ack, len),
                    };
                    let ce = bits & 2 == 2;
                    let (cwnd, retransmission) = (0, false);
                    let ecn = if ce { Ecn::Ce } else { Ecn::NotEct };
                    let near = ack.min(u64::MAX / 2) + u64::from(window % 3000);
                    let sack = match bits % 4 {
                        0 => Sack::NONE,
                        1 => Sack::PERMITTED,
                        2 => Sack::new(ack, &[(near, near + 700)]).with_dsack(ack, (near / 2, near / 2 + 90)),
                        _ => Sack::new(ack, &[(near + 900, near + 901), (near, near + 1), (near, near + 400)]),
                    };
                    let sack = sack.with_scale((bits % 3 == 0).then_some(bits));
                    let timestamps = match extreme {
                        0 => Timestamps { value: window, echo: len },
                        1 => Timestamps::NONE,
                        _ => Timestamps::new(now, window),
                    };
                    let segment = Segment {
                        seq, ack, len, window, cwnd, sack, timestamps, flags, retransmission, ecn,
                    };
                    c.on_segment(&cfg, now, &segment);
                }
            }
            c.handle_timeout(&cfg, now);
            prop_assert!(c.poll_timeout().is_none_or(|at| at > now));
            // The window may hold millions of segments; some of them suffice.
            for _ in 0..10_000 {
                let Some(segment) = c.poll_transmit(&cfg, now) else { break };
                if !segment.flags.has(Flags::RST | Flags::SYN) {
                    // RFC 7323 section 2.4: the edge may seem to move back by less than one unit.
                    let unit = 1u64 << cfg.window_scale.unwrap_or(0);
                    prop_assert!(segment.ack + u64::from(segment.window) + unit > edge);
                    edge = edge.max(segment.ack + u64::from(segment.window));
                }
            }
            prop_assert!(c.stats().cwnd >= u64::from(cfg.mss));
            prop_assert!(c.readable() <= c.received());
        }
    }
}

/// Without loss a window of W bytes carries W per RTT; with random losses, W = SMSS sqrt(3 / (2 p)) (Mathis et al.
/// 1997).
#[test]
fn throughput_follows_window_and_loss_rate() {
    const BYTES: u64 = 300_000_000;
    let cfg = Config { mss: 1000, receive_window: 50_000, delayed_ack: None, ..Config::default() };
    let bulk = Application { bytes: BYTES, chunk: 1_000_000, read: u64::MAX, read_every: Duration::ZERO };
    let idle = Application { bytes: 0, ..bulk.clone() };
    let run = |cfg: &Config, loss: f64| {
        let channel = Channel {
            loss,
            duplication: 0.0,
            marking: 0.0,
            delay: Duration::from_millis(50),
            jitter: Duration::ZERO,
        };
        let limit = Duration::from_secs(100_000);
        let outcome = transfer([cfg, cfg], [bulk.clone(), idle.clone()], &channel, 1, limit);
        let sender = &outcome.ends[0];
        let resent = sender.connection.stats().retransmissions as f64 / sender.sent as f64;
        (BYTES as f64 / outcome.took.as_secs_f64(), resent)
    };
    let (full, _) = run(&cfg, 0.0);
    assert!((full / 500_000.0 - 1.0).abs() < 0.05, "{full} bytes/s");
    let wide = Config { receive_window: 4_000_000, ..cfg };
    for (sack, prr, rack) in [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, false, true),
        (true, true, true),
    ] {
        let wide = Config { sack, prr, rack, ..wide.clone() };
        for p in [0.0005f64, 0.002, 0.008] {
            let formula = 1000.0 * (1.5 / p).sqrt() / 0.1;
            let (measured, resent) = run(&wide, p);
            // Only lost segments are resent.
            assert!(!sack || (0.8..1.2).contains(&(resent / p)), "p = {p}, {prr} {rack}: {resent} resent");
            let share = measured / formula;
            assert!(
                (0.85..1.15).contains(&share),
                "p = {p}, {sack} {prr} {rack}: {share} of the formula's {formula} bytes/s"
            );
        }
    }
}

/// Segments overtake each other by up to 20 ms in each direction, and none is lost. Detection by count takes most of it
/// for loss; detection by time does so only until it has seen late segments and D-SACKs have increased its window (RFC
/// 8985 section 6.2, step 4).
#[test]
fn rack_does_not_take_reordering_for_loss() {
    const BYTES: u64 = 20_000_000;
    let bulk = Application { bytes: BYTES, chunk: 1_000_000, read: u64::MAX, read_every: Duration::ZERO };
    let idle = Application { bytes: 0, ..bulk.clone() };
    let channel = Channel {
        loss: 0.0,
        duplication: 0.0,
        marking: 0.0,
        delay: Duration::from_millis(50),
        jitter: Duration::from_millis(20),
    };
    let run = |rack| {
        let cfg = Config {
            mss: 1000,
            receive_window: 100_000,
            delayed_ack: None,
            sack: true,
            prr: true,
            rack,
            ..Config::default()
        };
        let apps = [bulk.clone(), idle.clone()];
        let outcome = transfer([&cfg, &cfg], apps, &channel, 1, Duration::from_secs(10_000));
        (outcome.ends[0].connection.stats().retransmissions, outcome.took.as_secs_f64())
    };
    let ((by_count, slow), (by_time, fast)) = (run(false), run(true));
    assert!(by_count > 100 && by_time < 10, "{by_count} and {by_time} resent");
    // 200 windows of 100 segments, each in slightly more than the mean RTT of 120 ms.
    assert!(slow > 60.0 && fast < 32.0, "{slow} s and {fast} s");
}
