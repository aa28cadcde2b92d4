//! Whatever a channel does, every byte arrives once and in order, and the association closes.

use bentpipe_transport::sctp::{Association, Config, Control, Cookie, Data, Packet, Sack};
use bentpipe_units::{Duration, Instant};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::channel::Channel;
use crate::transfer::{Application, transfer};

fn configs() -> impl Strategy<Value = Config> {
    // Messages no longer than the peer's buffer; longer ones are delivered in parts.
    let sizes = (100u32..=1500, 1u32..6000, 1000u32..100_000, 2u64..=200);
    let times = (50u64..=1000, 1u64..=500, 1u32..=4);
    (sizes, times, 1u32..=8).prop_map(|((pmtu, message, a_rwnd, ssthresh), (min, delay, every), burst)| {
        Config {
            pmtu,
            message_len: message,
            a_rwnd,
            initial_ssthresh: Some(ssthresh * 1000),
            rto_min: Duration::from_millis(min),
            rto_max: Duration::from_secs(5),
            sack_delay: Duration::from_millis(delay),
            sack_every: every,
            cookie_len: 20,
            max_burst: burst,
            association_max_retrans: 1000,
            max_init_retransmits: 1000,
            ..Config::default()
        }
    })
}

fn channels() -> impl Strategy<Value = Channel> {
    (0.0..0.3, 0.0..0.2, 0u64..300, 0u64..300).prop_map(|(loss, duplication, delay, jitter)| Channel {
        loss,
        duplication,
        marking: 0.0,
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(jitter),
    })
}

fn applications() -> impl Strategy<Value = Application> {
    (prop_oneof![0u64..3000, 0u64..100_000], 1u64..100_000, 0u64..500).prop_map(|(bytes, read, every)| {
        Application {
            bytes,
            chunk: bytes,
            read: read.max(bytes / 50),
            read_every: Duration::from_millis(every),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_once_and_in_order(
        cfgs in (configs(), configs()),
        apps in (applications(), applications()),
        channel in channels(),
        seed in any::<u64>(),
    ) {
        // A path has a single MTU.
        let cfgs = (cfgs.0.clone(), Config { pmtu: cfgs.0.pmtu, ..cfgs.1 });
        let bytes = [apps.0.bytes, apps.1.bytes];
        let limit = Duration::from_secs(1_000_000);
        let outcome = transfer([&cfgs.0, &cfgs.1], [apps.0, apps.1], &channel, seed, limit);
        for (i, end) in outcome.ends.iter().enumerate() {
            prop_assert_eq!(end.reader.total, bytes[1 - i]);
            prop_assert_eq!(end.association.acked(), bytes[i]);
            // No timer storm: a timer expires only after something was sent or received.
            let stats = end.association.stats();
            prop_assert!(end.timer_calls <= 2 * (stats.packets_sent + stats.packets_received));
        }
    }

    /// No packet, however malformed, causes a panic.
    #[test]
    fn malformed_packets_never_panic(
        cfg in configs(),
        active in any::<bool>(),
        events in proptest::collection::vec((0u64..8, 0u64..40, 0u64..40, any::<u16>(), any::<u8>()), 1..200),
    ) {
        let mut a = if active { Association::connect(&cfg) } else { Association::listen(&cfg) };
        let mut now = Instant::ZERO;
        for (what, first, second, len, bits) in events {
            now += Duration::from_millis(first * 20);
            let extreme = |n: u64| if bits & 8 == 8 { u64::MAX - n } else { n };
            match what {
                0 => a.write(&cfg, if bits < 4 { u64::MAX } else { len.into() }),
                1 => a.read(second * 1000),
                2 if bits == 0 => a.abort(),
                2 if bits < 9 => a.close(),
                _ => {
                    let cookie = Cookie { a_rwnd: u32::from(len), created_at: now };
                    let control = match bits % 32 {
                        0 => Control::Init { a_rwnd: len.into() },
                        1 => Control::InitAck { a_rwnd: len.into(), cookie },
                        2 => Control::CookieEcho { cookie },
                        3 => Control::CookieAck,
                        4 if len < 5000 => Control::Shutdown { cum_tsn_ack: extreme(second) },
                        5 if len < 5000 => Control::ShutdownAck,
                        6 if len < 5000 => Control::Abort,
                        7 => Control::StaleCookie,
                        _ => Control::None,
                    };
                    let mut packet = Packet::control(control);
                    if bits & 1 == 1 {
                        let at = (first % 7) as u16;
                        packet.sack = Some(Sack {
                            cum_tsn_ack: extreme(second),
                            a_rwnd: len.into(),
                            blocks: vec![(at, at + 3), (at / 2, at), (len, u16::MAX), (5, 2)],
                            ..Sack::default()
                        });
                    }
                    for tsn in [first, second] {
                        packet.push(Data { tsn: extreme(tsn), len, begin: bits & 2 == 2, end: bits & 4 == 4 });
                    }
                    a.on_packet(&cfg, now, &packet);
                }
            }
            a.handle_timeout(&cfg, now);
            prop_assert!(a.poll_timeout().is_none_or(|at| at > now));
            for _ in 0..10_000 {
                let Some(packet) = a.poll_transmit(&cfg, now) else { break };
                prop_assert!(packet.wire_len(&cfg) <= cfg.pmtu.max(200));
            }
            prop_assert!(a.stats().cwnd >= cfg.pmdcs());
            prop_assert!(a.readable() <= a.received());
        }
    }
}

/// Without loss a receive buffer of W bytes carries W per RTT; with random losses, a chunk times sqrt(3 / (2 p)), as
/// for any sender that halves its window and adds a packet per RTT (Mathis et al. 1997).
#[test]
fn throughput_follows_window_and_loss_rate() {
    const BYTES: u64 = 300_000_000;
    let cfg = Config { pmtu: 1032, message_len: 984, a_rwnd: 49_200, sack_every: 1, ..Config::default() };
    let bulk = Application { bytes: BYTES, chunk: BYTES, read: u64::MAX, read_every: Duration::ZERO };
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
        BYTES as f64 / outcome.took.as_secs_f64()
    };
    let full = run(&cfg, 0.0);
    assert!((full / 492_000.0 - 1.0).abs() < 0.05, "{full} bytes/s");
    // The formula holds in the long run: the first slow start, up to the first loss, is excluded.
    let wide = Config { a_rwnd: 4_000_000, initial_ssthresh: Some(30_000), ..cfg };
    for p in [0.0005f64, 0.002, 0.008] {
        let formula = 984.0 * (1.5 / p).sqrt() / 0.1;
        let share = run(&wide, p) / formula;
        assert!((0.8..1.2).contains(&share), "p = {p}: {share} of the formula's {formula} bytes/s");
    }
}
