//! Whatever the path does, every byte arrives once and in order, and both ends become idle.

use bentpipe_transport::pep_link::{Ack, AckRange, Config, Data, Endpoint, Packet, WindowUpdate};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::net::{Net, Treatment, ms};

#[derive(Clone, Debug)]
struct Path {
    seed: u64,
    loss: f64,
    duplication: f64,
    jitter: u64,
    in_order: bool,
    max_queue: u64,
}

fn path() -> impl Strategy<Value = Path> {
    (any::<u64>(), 0.0..0.3f64, 0.0..0.2f64, 0..400u64, any::<bool>(), 1..600u64).prop_map(
        |(seed, loss, duplication, jitter, in_order, max_queue)| Path {
            seed,
            loss,
            duplication,
            jitter,
            in_order,
            max_queue,
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    (40..2000u32, 4000..400_000u64, 500..60_000u64, 1..6u32, 1..40u32, 0..80u64).prop_map(
        |(max_payload, window, stream_window, packet_threshold, ack_every, ack_delay)| Config {
            max_payload,
            window: window.max(u64::from(max_payload) + 31),
            stream_window,
            packet_threshold,
            ack_every,
            ack_delay: ms(ack_delay),
            ..Config::default()
        },
    )
}

/// Data of a stream in both directions [bytes], the end that opens it, when [ms], and the end that resets it after how
/// long [ms], if any.
type Plan = (u64, u64, usize, u64, Option<(usize, u64)>);

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let reset = prop_oneof![4 => Just(None), 1 => (0..2usize, 0..5000u64).prop_map(Some)];
    proptest::collection::vec((0..40_000u64, 0..40_000u64, 0..2usize, 0..4000u64, reset), 1..6)
}

fn build(cfg: Config, path: &Path) -> Net {
    let mut rng = Rng::stream(path.seed, "path", 0, "fate");
    let Path { loss, duplication, jitter, in_order, max_queue, .. } = *path;
    let mut net = Net::new(cfg, move |_, _, _| {
        let mut delay = || ms(300 + rng.below(jitter + 1));
        let (first, second) = (delay(), delay());
        if rng.uniform() < loss {
            Treatment::Lost
        } else if rng.uniform() < duplication {
            Treatment::Twice(first, second)
        } else {
            Treatment::Arrive(first)
        }
    });
    net.in_order = in_order;
    net.max_queue = ms(max_queue);
    net.rate = Rate::from_bps(5_000_000);
    net
}

/// Carries out the plans at both hosts: each writes in two parts and then finishes.
fn play(net: &mut Net, plans: &[Plan]) {
    let mut acts: Vec<(u64, usize, usize, u8)> = Vec::new();
    for (s, &(_, _, opener, start, reset)) in plans.iter().enumerate() {
        acts.push((start, s, opener, 0));
        acts.push((start + 300, s, opener, 1));
        if let Some((end, later)) = reset {
            acts.push((start + later, s, end, 2));
        }
    }
    acts.sort_unstable();
    for (time, s, end, act) in acts {
        net.run_until(Instant::ZERO + ms(time));
        let plan = plans[s];
        let bytes = if end == 0 { plan.0 } else { plan.1 };
        match act {
            0 => net.open(end, s as u32, bytes / 3, false),
            1 => {
                // An end cannot write after a reset.
                if !net.ends[end].is_writable(s as u32) {
                    continue;
                }
                net.write(end, s as u32, bytes - bytes / 3);
                net.finish(end, s as u32);
            }
            _ => net.reset(end, s as u32),
        }
    }
    // The other end answers as soon as it can.
    let mut answered = vec![false; plans.len()];
    let mut rounds = 0;
    loop {
        net.run_until(net.now + ms(100));
        for (s, &(a, b, opener, ..)) in plans.iter().enumerate() {
            let (end, id) = (1 - opener, s as u32);
            if !answered[s] && net.ends[end].is_writable(id) {
                answered[s] = true;
                net.write(end, id, if end == 0 { a } else { b });
                net.finish(end, id);
            }
        }
        let over =
            |end: usize, s: usize| net.sides[end].seen.get(&(s as u32)).is_some_and(|seen| seen.closed == 1);
        if (0..plans.len()).all(|s| over(0, s) && over(1, s)) {
            break;
        }
        rounds += 1;
        assert!(rounds < 30_000, "streams stay open");
    }
    net.run_out();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_once_and_in_order(cfg in config(), path in path(), plans in plans()) {
        let mut net = build(cfg, &path);
        play(&mut net, &plans);
        for (s, plan) in plans.iter().enumerate() {
            for end in 0..2 {
                let (here, there) = (net.seen(end, s as u32), net.seen(1 - end, s as u32));
                prop_assert_eq!(here.closed, 1);
                if plan.4.is_none() {
                    prop_assert_eq!(here.written, if end == 0 { plan.0 } else { plan.1 });
                    prop_assert_eq!(here.acked, here.written);
                    prop_assert_eq!(there.readable, here.written);
                    prop_assert!(here.finished && !here.reset);
                }
            }
        }
        for end in &net.ends {
            let stats = end.stats();
            prop_assert_eq!(stats.in_flight, 0);
            prop_assert_eq!(stats.sent, stats.acked + stats.lost);
            prop_assert_eq!(end.poll_timeout(), None);
        }
    }

    #[test]
    fn a_stream_id_can_be_reused_with_packets_in_transit(path in path(), packet_threshold in 1..4u32) {
        let mut net = build(Config { packet_threshold, stream_window: 6000, ..Config::default() }, &path);
        let mut rng = Rng::stream(path.seed, "hosts", 0, "lives");
        for generation in 0..8 {
            for s in 0..2 {
                let (opener, bytes) = (rng.below(2) as usize, rng.below(9000));
                net.open(opener, s, bytes, true);
                let mut rounds = 0;
                // The id is reused as soon as both ends have closed the stream.
                while !(0..2).all(|end| net.sides[end].seen.get(&s).is_some_and(|seen| seen.closed == 1)) {
                    net.run_until(net.now + ms(5));
                    if net.sides[1 - opener].seen.contains_key(&s) && net.ends[1 - opener].is_writable(s) {
                        net.write(1 - opener, s, 2 * bytes);
                        net.finish(1 - opener, s);
                    }
                    rounds += 1;
                    prop_assert!(rounds < 200_000, "generation {generation} does not close");
                }
                prop_assert_eq!(net.seen(opener, s).readable, 2 * bytes);
                prop_assert_eq!(net.seen(1 - opener, s).readable, bytes);
                net.forget(s);
            }
        }
        net.run_out();
        prop_assert!(net.sides.iter().all(|side| side.seen.is_empty()), "late packets opened a stream");
    }

    #[test]
    fn the_same_calls_give_the_same_packets(path in path(), plans in plans()) {
        let run = || {
            let mut net = build(Config { stream_window: 8000, ..Config::default() }, &path);
            play(&mut net, &plans);
            (net.now, net.log)
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn malformed_packets_never_panic(seed in any::<u64>()) {
        let mut rng = Rng::stream(seed, "noise", 0, "packets");
        let mut end = Endpoint::new(Config {
            window: rng.below(9000),
            stream_window: rng.below(9000),
            max_payload: rng.below(2000) as u32,
            packet_threshold: rng.bits() as u32 >> rng.below(32),
            ..Config::default()
        });
        let mut now = Instant::ZERO;
        for _ in 0..300 {
            now += Duration::from_nanos(rng.bits() >> (24 + rng.below(40)));
            // Mostly small numbers, some very large.
            let mut number = || match rng.below(8) {
                0 => u64::MAX - rng.below(3),
                1 => rng.bits(),
                _ => rng.below(12),
            };
            let (a, b, c, d, e) = (number(), number(), number(), number(), number());
            let s = d as u32;
            match e % 12 {
                0 => end.open(s),
                1 => end.write(s, a),
                2 => end.finish(s),
                3 => end.reset(s),
                4 => end.consume(s, a),
                5 => end.handle_timeout(now),
                6 | 7 => {
                    let mut ack = Ack::new(Duration::from_nanos(a));
                    ack.push_range(AckRange { first: a, last: b });
                    ack.push_range(AckRange { first: c, last: d });
                    ack.push_window(WindowUpdate { stream: s, generation: 1, limit: a });
                    end.on_packet(now, &Packet::Ack(ack));
                }
                _ => end.on_packet(now, &Packet::Data(Data {
                    number: a,
                    least_unacked: b,
                    offset: c,
                    stream: s,
                    generation: number() as u32,
                    len: number() as u32,
                    open: e & 16 != 0,
                    fin: e & 1 != 0,
                    reset: e & 3 == 3,
                    retransmission: false,
                })),
            }
            for _ in 0..20 {
                let _ = (end.poll_transmit(now), end.poll_event(), end.poll_timeout());
            }
        }
    }
}
