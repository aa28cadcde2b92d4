//! Generators against closed forms: mean rates, conserved bytes, exact times.

use std::sync::Arc;

use bentpipe_scenario::{Capture, Codec, Digest, Distribution, Frames, Gop, Movie, Pattern, State};
use bentpipe_traffic::{Generator, Step};
use bentpipe_units::{Duration, Rate, Rng};

const DATAGRAM_HEADER: u64 = 28;

fn rng(number: u64) -> Rng {
    Rng::stream(1, "test", number, "generator")
}

/// Rate at which flows of a pattern send for `seconds` each: the mean over the flows, and its standard error [bit/s].
fn rate(pattern: &Pattern, flows: u32, seconds: u64) -> (f64, f64) {
    let end = Duration::from_secs(seconds);
    let rates: Vec<f64> = (0..flows)
        .map(|flow| {
            let mut rng = rng(u64::from(flow));
            let mut generator = Generator::new(pattern, &mut rng);
            let (mut now, mut bytes) = (Duration::ZERO, 0u64);
            while let Some(step) = generator.next(&mut rng) {
                now += step.gap;
                if now >= end {
                    break;
                }
                bytes += u64::from(step.len);
            }
            bytes as f64 * 8.0 / seconds as f64
        })
        .collect();
    let n = f64::from(flows);
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// Checks that the mean rate is within three standard errors of the expected one, and that these are small.
fn check_rate(pattern: &Pattern, expected: f64) {
    let (found, error) = rate(pattern, 50, 1000);
    assert!((found - expected).abs() <= 3.0 * error.max(1e-4 * expected), "{found} ± {error}: {expected}");
    assert!(error < 0.01 * expected, "{found} ± {error}: {expected}");
}

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

const MBPS: Rate = Rate::from_bps(1_000_000);

#[test]
fn constant_and_poisson_sources_have_their_rates() {
    let packet = Distribution::Erlang { shape: 3, mean: 700 };
    check_rate(&Pattern::Cbr { rate: MBPS, packet: packet.clone() }, 1e6);
    check_rate(&Pattern::Poisson { rate: MBPS, packet }, 1e6);
}

/// A thousandth of the first lengths is above 65535 B, and clipping it takes a quarter of the bytes.
#[test]
fn poisson_sources_with_clipped_lengths_have_their_rates() {
    let rate = Rate::from_bps(200_000);
    let tail = |shape, mean| Distribution::Pareto { shape, mean };
    let mixed =
        Distribution::Choice(Arc::new([(0.5, tail(1.2, 1400)), (0.5, Distribution::Exponential(30_000))]));
    for packet in [tail(1.2, 1400), mixed] {
        check_rate(&Pattern::Poisson { rate, packet: packet.clone() }, 2e5);
        let state = State { rate, sojourn: secs(1.0) };
        let transitions = vec![vec![0.0, 1.0], vec![1.0, 0.0]];
        check_rate(&Pattern::Mmpp { states: vec![state, state], transitions, packet }, 2e5);
    }
}

/// R11: 800 ms on, 200 ms off: four fifths of the rate, even if a packet takes longer than the on time.
#[test]
fn on_off_rate_is_the_on_share_of_the_rate() {
    for (on, off, bytes) in [(0.8, 0.2, 1000), (0.008, 0.002, 2000)] {
        let on_off = |on, off| Pattern::OnOff { rate: MBPS, packet: Distribution::Fixed(bytes), on, off };
        check_rate(&on_off(Distribution::Exponential(secs(on)), Distribution::Exponential(secs(off))), 0.8e6);
        check_rate(&on_off(Distribution::Fixed(secs(on)), Distribution::Fixed(secs(off))), 0.8e6);
    }
    // With a shape of 3 the variance is finite, so the standard error is meaningful.
    let pareto = |mean| Distribution::Pareto { shape: 3.0, mean: secs(mean) };
    let packet = Distribution::Fixed(1000);
    check_rate(&Pattern::OnOff { rate: MBPS, packet, on: pareto(0.8), off: pareto(0.2) }, 0.8e6);
}

/// On times, from the steps of a source that sends a packet every 10 ms while it is on [packets].
fn bursts(on: Distribution<Duration>) -> Vec<u32> {
    let pattern = Pattern::Voip {
        packet: 200,
        interval: Duration::from_millis(10),
        talk: on,
        silence: Distribution::Fixed(Duration::from_secs(1)),
        codec: Codec::G711,
        jitter_buffer: None,
    };
    let mut rng = rng(9);
    let mut generator = Generator::new(&pattern, &mut rng);
    let (mut all, mut packets, mut is_on) = (Vec::new(), 0, false);
    while all.len() < 40_000 {
        let step = generator.next(&mut rng).expect("an endless source");
        if step.len > 0 {
            packets += 1;
            is_on = true;
        } else if is_on {
            all.push(packets);
            (packets, is_on) = (0, false);
        }
    }
    all
}

/// With a mean of 1 s and shape 1.5 the minimum is 1/3 s: one in 30^1.5 = 164 exceeds 10 s, and of exponential times
/// one in e^10 = 22000. Both have their theoretical medians: 0.529 s and 0.693 s.
#[test]
fn pareto_bursts_have_the_heavier_tail() {
    let share = |bursts: &[u32], longer: u32| {
        bursts.iter().filter(|b| **b > longer).count() as f64 / bursts.len() as f64
    };
    let pareto = bursts(Distribution::Pareto { shape: 1.5, mean: secs(1.0) });
    let exponential = bursts(Distribution::Exponential(secs(1.0)));
    // Standard errors: 0.00039, 0.0025, 0.000034 and 0.0025; the tolerances are four standard errors.
    assert!((share(&pareto, 1000) - 1.0 / 164.3).abs() < 0.0016, "{}", share(&pareto, 1000));
    assert!((share(&pareto, 53) - 0.5).abs() < 0.015, "{}", share(&pareto, 53));
    assert!(share(&exponential, 1000) < 0.0002);
    assert!((share(&exponential, 69) - 0.5).abs() < 0.015, "{}", share(&exponential, 69));
}

/// P.59: a speaker talks 1.004 s of every 2.591 s. G.711 in packets of 200 bytes every 20 ms is 80 kbit/s.
#[test]
fn voice_rate_is_the_talk_share_of_the_rate() {
    let voip = Pattern::Voip {
        packet: 200,
        interval: Duration::from_millis(20),
        talk: Distribution::Exponential(secs(1.004)),
        silence: Distribution::Exponential(secs(1.587)),
        codec: Codec::G711,
        jitter_buffer: None,
    };
    check_rate(&voip, 80_000.0 * 1.004 / 2.591);
}

/// Three states: two, four and four tenths of the time (see the test of the chain).
#[test]
fn mmpp_rate_is_the_mean_over_the_states() {
    let state = |bps, sojourn| State { rate: Rate::from_bps(bps), sojourn: secs(sojourn) };
    let mmpp = Pattern::Mmpp {
        states: vec![state(0, 0.1), state(500_000, 0.2), state(2_000_000, 0.4)],
        transitions: vec![vec![0.0, 1.0, 0.0], vec![0.5, 0.0, 0.5], vec![1.0, 0.0, 0.0]],
        packet: Distribution::Exponential(1000),
    };
    check_rate(&mmpp, 0.4 * 0.5e6 + 0.4 * 2e6);
}

/// Index of dispersion of counts of a two-state process that is silent half of the time, each state for a second: 1 +
/// λ_on² π(1-π) 2 τ (1 - (1 - e^(-t/τ)) τ/t) / λ, where τ = 0.5 s is the relaxation time of the chain.
#[test]
fn mmpp_dispersion_matches_the_closed_form() {
    let on = 100.0;
    let pattern = Pattern::Mmpp {
        states: vec![
            State { rate: Rate::from_bps(800_000), sojourn: secs(1.0) },
            State { rate: Rate::from_bps(0), sojourn: secs(1.0) },
        ],
        transitions: vec![vec![0.0, 1.0], vec![1.0, 0.0]],
        packet: Distribution::Fixed(1000),
    };
    let (window, flows) = (5.0, 4000);
    let counts: Vec<f64> = (0..flows)
        .map(|flow| {
            let mut rng = rng(1000 + flow);
            let mut generator = Generator::new(&pattern, &mut rng);
            let (mut now, mut count) = (Duration::ZERO, 0.0);
            loop {
                let step = generator.next(&mut rng).expect("an endless source");
                now += step.gap;
                if now.as_secs_f64() >= window {
                    return count;
                }
                count += f64::from(u8::from(step.len > 0));
            }
        })
        .collect();
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / (n - 1.0);
    let tau = 0.5;
    let forgotten = 1.0 - (1.0 - libm::exp(-window / tau)) * tau / window;
    let expected = 1.0 + on * on * 0.25 * 2.0 * tau * forgotten / (on / 2.0);
    // The relative standard error of a variance is about √(2/n) = 0.022.
    assert!((variance / mean / expected - 1.0).abs() < 0.09, "{} by hand {expected}", variance / mean);
}

fn video(sizes: &[u32], spread: bool, random_start: bool) -> Pattern {
    let movie = Movie { sizes: sizes.into(), digest: Digest::of(b"") };
    let interval = Duration::from_millis(40);
    Pattern::Video { frames: Frames::Trace(movie), interval, packet: 1028, spread, random_start }
}

/// The first steps of a new flow.
fn steps(pattern: &Pattern, number: u64, count: usize) -> Vec<Step> {
    let mut rng = rng(number);
    let mut generator = Generator::new(pattern, &mut rng);
    (0..count).map_while(|_| generator.next(&mut rng)).collect()
}

/// Frames of 2500, 0, 1000 and 1 bytes give packets of 1000, 1000 and 500, none, 1000, and 1 byte, plus 28 bytes of
/// headers each.
#[test]
fn video_frames_are_sent_completely_at_their_times() {
    let ms = |ms: u64| Duration::from_millis(ms);
    let step = |gap, payload: u32| Step { gap, len: payload + if payload > 0 { 28 } else { 0 } };
    let burst = [
        step(ms(0), 1000),
        step(ms(0), 1000),
        step(ms(0), 500),
        step(ms(40), 0),
        step(ms(40), 1000),
        step(ms(40), 1),
        step(ms(40), 1000),
    ];
    assert_eq!(steps(&video(&[2500, 0, 1000, 1], false, false), 0, 7), burst);
    let third = Duration::from_nanos(13_333_333);
    let spread = [
        step(ms(0), 1000),
        step(third, 1000),
        step(Duration::from_nanos(13_333_333), 500),
        step(Duration::from_nanos(13_333_334), 0),
        step(ms(40), 1000),
        step(ms(40), 1),
        step(ms(40), 1000),
    ];
    assert_eq!(steps(&video(&[2500, 0, 1000, 1], true, false), 0, 7), spread);
}

#[test]
fn video_bytes_are_conserved_from_any_start() {
    let sizes: Vec<u32> = (0..500).map(|i| i * 37 % 7001).collect();
    let total: u64 = sizes.iter().map(|s| u64::from(*s)).sum();
    let mut firsts = Vec::new();
    for number in 0..8 {
        for spread in [false, true] {
            let pattern = video(&sizes, spread, true);
            let mut rng = rng(number);
            let mut generator = Generator::new(&pattern, &mut rng);
            let (mut now, mut bytes) = (Duration::ZERO, 0);
            loop {
                let step = generator.next(&mut rng).expect("an endless source");
                now += step.gap;
                // One complete cycle of 500 frames of 40 ms each.
                if now >= Duration::from_secs(20) {
                    break;
                }
                bytes += u64::from(step.len).saturating_sub(DATAGRAM_HEADER);
            }
            assert_eq!(bytes, total, "flow {number}");
        }
        firsts.push(steps(&video(&sizes, false, true), number, 20));
    }
    firsts.dedup();
    assert!(firsts.len() > 6, "flows start at different frames");
}

/// I, P and B frames of 1600, 600 and 300 bytes, in the order of the group.
#[test]
fn gop_frames_have_the_size_of_their_type() {
    let gop = Gop {
        pattern: "IBBP".to_owned(),
        i: Distribution::Fixed(1600),
        p: Distribution::Fixed(600),
        b: Distribution::Fixed(300),
    };
    let pattern = Pattern::Video {
        frames: Frames::Gop(gop),
        interval: Duration::from_millis(40),
        packet: 2000,
        spread: false,
        random_start: false,
    };
    let sizes: Vec<_> = steps(&pattern, 0, 6).iter().map(|s| s.len - 28).collect();
    assert_eq!(sizes, [1600, 300, 300, 600, 1600, 300]);
}

#[test]
fn replay_repeats_times_and_lengths_exactly() {
    let times = [0, 7, 7, 1_000_000_123, 86_400_000_000_000];
    let packets: Arc<[_]> =
        times.iter().zip([60, 1514, 40, 1, 65_535]).map(|(t, len)| (Duration::from_nanos(*t), len)).collect();
    let pattern = Pattern::Replay { capture: Capture { packets: packets.clone(), digest: Digest::of(b"") } };
    let mut now = Duration::ZERO;
    let sent: Vec<_> = steps(&pattern, 0, 100)
        .iter()
        .map(|step| {
            now += step.gap;
            (now, step.len)
        })
        .collect();
    assert_eq!(sent, *packets);
}

/// A step takes bounded time whatever the parameters.
#[test]
fn steps_are_bounded_work_at_extreme_parameters() {
    let tick = Distribution::Fixed(Duration::from_nanos(1));
    let packet = Distribution::Fixed(65_535);
    let slow = Rate::from_bps(1);
    for pattern in [
        Pattern::OnOff { rate: slow, packet: packet.clone(), on: tick.clone(), off: tick.clone() },
        Pattern::OnOff {
            rate: slow,
            packet: packet.clone(),
            on: tick,
            off: Distribution::Fixed(Duration::ZERO),
        },
        Pattern::Poisson { rate: Rate::from_bps(u64::MAX), packet: Distribution::Exponential(u64::MAX) },
        Pattern::Cbr { rate: slow, packet },
    ] {
        assert_eq!(steps(&pattern, 0, 10_000).len(), 10_000);
    }
}
