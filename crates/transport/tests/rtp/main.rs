//! RTP against the text of RFC 3550: its appendices worked out by hand, and counters over a channel that loses,
//! reorders and duplicates.

use bentpipe_transport::rtp::{
    Adaptation, Config, Feedback, Nada, Packet, Receiver, ReceiverReport, ReportBlock, Sender, SenderReport,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Telephony: 8 ticks per millisecond.
fn config() -> Config {
    Config { clock_rate: 8000, ..Config::default() }
}

fn packet(seq: u16, sent: u64) -> Packet {
    Packet { seq, timestamp: 8 * sent as u32 }
}

/// The block of the report at `at`.
fn block(receiver: &mut Receiver, cfg: &Config, at: u64) -> ReportBlock {
    assert_eq!(receiver.next_report(), Some(ms(at)));
    receiver.poll_report(cfg, ms(at)).expect("it is due").block.expect("an event")
}

/// Appendix A.3.
#[test]
fn losses_are_counted_per_interval_and_in_total() {
    let (cfg, mut receiver) = (config(), Receiver::default());
    assert_eq!(receiver.next_report(), None);
    for seq in [0u16, 1, 3, 4, 6, 8, 9] {
        receiver.on_packet(&cfg, ms(u64::from(seq)), &packet(seq, 0), 1000);
    }
    // Ten expected, seven received: 3 x 256 / 10 = 76.
    let report = block(&mut receiver, &cfg, 900);
    assert_eq!((report.fraction_lost, report.cumulative_lost, report.highest_seq), (76, 3, 9));
    assert_eq!((report.lsr, report.dlsr), (0, 0));
    // Four more, each of them duplicated: none lost, and four more received than sent.
    for seq in [10u16, 10, 11, 11, 12, 12, 13, 13] {
        receiver.on_packet(&cfg, ms(1000), &packet(seq, 0), 1000);
    }
    let report = block(&mut receiver, &cfg, 1800);
    assert_eq!((report.fraction_lost, report.cumulative_lost, report.highest_seq), (0, -1, 13));
    // Section 6.4: nothing arrived, so there is no block; losses meanwhile are reported in the next one.
    assert_eq!(receiver.poll_report(&cfg, ms(2699)), None);
    assert_eq!(receiver.poll_report(&cfg, ms(2700)), Some(ReceiverReport { block: None, nada: None }));
    receiver.on_packet(&cfg, ms(2800), &packet(17, 0), 1000);
    let report = block(&mut receiver, &cfg, 3600);
    assert_eq!((report.fraction_lost, report.cumulative_lost, report.highest_seq), (192, 2, 17));
}

/// Appendix A.1.
#[test]
fn sequence_numbers_wrap_and_jump() {
    let (cfg, mut receiver) = (config(), Receiver::default());
    for seq in [65_533u16, 65_534, 0, 65_535, 1] {
        receiver.on_packet(&cfg, ms(0), &packet(seq, 0), 1000);
    }
    let report = block(&mut receiver, &cfg, 900);
    assert_eq!((report.fraction_lost, report.cumulative_lost, report.highest_seq), (0, 0, 65_537));
    // A jump counts once it is confirmed, and then as a restart.
    receiver.on_packet(&cfg, ms(1000), &packet(20_000, 0), 1000);
    assert_eq!(receiver.received(), 5);
    receiver.on_packet(&cfg, ms(1000), &packet(20_001, 0), 1000);
    receiver.on_packet(&cfg, ms(1000), &packet(20_003, 0), 1000);
    let report = block(&mut receiver, &cfg, 1800);
    assert_eq!((report.fraction_lost, report.cumulative_lost, report.highest_seq), (85, 1, 20_003));
}

/// Appendix A.1: less than 3000 ahead is a loss, and less than 100 behind is late. Anything else counts once it is
/// confirmed.
#[test]
fn jumps_of_sequence_numbers_are_told_from_losses_and_late_packets() {
    for (seq, received, highest) in
        [(3999, 2, 3999), (4000, 1, 1000), (900, 1, 1000), (901, 2, 1000), (1000, 2, 1000)]
    {
        let (cfg, mut receiver) = (config(), Receiver::default());
        receiver.on_packet(&cfg, ms(0), &packet(1000, 0), 1000);
        receiver.on_packet(&cfg, ms(10), &packet(seq, 0), 1000);
        assert_eq!(receiver.received(), received, "{seq}");
        assert_eq!(block(&mut receiver, &cfg, 900).highest_seq, highest, "{seq}");
    }
}

/// Appendix A.3: the number of packets lost has 24 bits and a sign. Of 3000 steps each loses 2998 packets.
#[test]
fn cumulative_loss_is_limited_to_24_bits() {
    let (cfg, mut receiver) = (config(), Receiver::default());
    for i in 0..3000_u32 {
        receiver.on_packet(&cfg, ms(0), &packet((2999 * i) as u16, 0), 1000);
    }
    let report = block(&mut receiver, &cfg, 900);
    assert_eq!((report.cumulative_lost, report.highest_seq), (0x7f_ffff, 2999 * 2999));
    // 255.9 of 256 are lost.
    assert_eq!(report.fraction_lost, 255);
}

/// Appendix A.8, with a clock of 8 kHz.
#[test]
fn jitter_is_smoothed_with_gain_one_sixteenth() {
    let (cfg, mut receiver) = (config(), Receiver::default());
    receiver.on_packet(&cfg, ms(100), &packet(0, 0), 1000);
    // 5 ms later than the previous one: D = 40, J = 40.
    receiver.on_packet(&cfg, ms(125), &packet(1, 20), 1000);
    assert_eq!(block(&mut receiver, &cfg, 1000).jitter, 40 >> 4);
    // 5 ms earlier again: D = -40, J = 40 + 40 - 48 / 16 = 77.
    receiver.on_packet(&cfg, ms(1100), &packet(2, 1000), 1000);
    assert_eq!(block(&mut receiver, &cfg, 1900).jitter, 77 >> 4);
    // As late as the previous one: D = 0, J = 77 - 85 / 16 = 72.
    receiver.on_packet(&cfg, ms(2100), &packet(3, 2000), 1000);
    assert_eq!(block(&mut receiver, &cfg, 2800).jitter, 72 >> 4);
}

/// Section 6.4.1, with 300 ms in each direction, and 200 ms between the two reports.
#[test]
fn rtt_follows_from_lsr_and_dlsr() {
    let cfg = config();
    let mut sender = Sender::new(&cfg, ms(0), Rate::from_bps(64_000), 7);
    let mut receiver = Receiver::default();
    let sent = sender.send(&cfg, ms(0), 160);
    assert_eq!(sent, Packet { seq: 7, timestamp: 0 });
    receiver.on_packet(&cfg, ms(500), &sent, 1000);
    assert_eq!(sender.poll_report(&cfg, ms(899)), None);
    let report = sender.poll_report(&cfg, ms(900)).expect("it is due");
    // 0.9 x 65536 = 58982.4.
    assert_eq!(report, SenderReport { ntp: 58_982, packets: 1, octets: 160 });
    assert_eq!(sender.next_report(), ms(1800));
    receiver.on_report(ms(1200), &report);
    let report = block(&mut receiver, &cfg, 1400);
    assert_eq!((report.lsr, report.dlsr), (58_982, 91_750 - 78_643));
    sender.on_report(&cfg, ms(1700), &ReceiverReport { block: Some(report), nada: None });
    let error = sender.rtt().expect("measured").as_secs_f64() - 0.6;
    assert!(error.abs() < 3.0 / 65_536.0, "{error}");
}

/// Section 6.4.1: A - LSR - DLSR at 10 s, 655,360 in units of 2^-16 s. A clock with these steps may seem to run
/// backwards, which makes an RTT of zero; up to half of the range, 2^31 - 1 units, it is a time.
#[test]
fn rtt_is_not_negative() {
    let cfg = config();
    for (lsr, dlsr, nanos) in [
        (655_360 - 65_536, 32_768, Some(500_000_000)),
        (655_360, 0, Some(0)),
        (655_360, 1, Some(0)),
        (655_361, 0, Some(0)),
        (655_360_u32.wrapping_sub((1 << 31) - 1), 0, Some(32_767_999_984_741)),
        (655_360_u32.wrapping_sub(1 << 31), 0, Some(0)),
        (0, 0, None),
    ] {
        let mut sender = Sender::new(&cfg, ms(0), Rate::from_bps(64_000), 0);
        let block =
            ReportBlock { fraction_lost: 0, cumulative_lost: 0, highest_seq: 0, jitter: 0, lsr, dlsr };
        sender.on_report(&cfg, ms(10_000), &ReceiverReport { block: Some(block), nada: None });
        assert_eq!(sender.rtt().map(Duration::as_nanos), nanos, "{lsr}, {dlsr}");
    }
}

/// RFC 8698 sections 4.2 and 4.3: 51 packets of 1000 bytes within 500 ms are 816 kbit/s. On an idle path without a known
/// RTT the rate is 1 + 0.05 / (0.1 + 0.12) of that. Later packets wait for 20 ms, which are
/// 160 ticks.
#[test]
fn nada_ramps_up_while_the_path_is_idle() {
    let nada = Nada { priority: 1.0, min_rate: Rate::from_bps(150_000), max_rate: None };
    let cfg = Config { adaptation: None, nada: Some(nada), ..config() };
    let mut sender = Sender::new(&cfg, ms(0), Rate::from_bps(1_500_000), 0);
    assert_eq!(sender.rate().as_bps(), 150_000);
    let mut receiver = Receiver::default();
    for i in 0..=90_u16 {
        let sent = u64::from(i) * 10;
        receiver.on_packet(&cfg, ms(sent + 250), &packet(i, sent), 1000);
    }
    let report = receiver.poll_report(&cfg, ms(1150)).expect("it is due");
    let feedback = report.nada.expect("packets came");
    assert_eq!(
        (feedback.is_idle, feedback.congestion, feedback.received.as_bps()),
        (true, Duration::ZERO, 816_000)
    );
    assert_eq!(report.wire_len(&cfg), 20 + 8 + 32 + 20 + 28);
    sender.on_report(&cfg, ms(1400), &report);
    assert_eq!(sender.rate().as_bps(), 1_001_454);
    for i in 91..178_u16 {
        let sent = u64::from(i) * 10;
        receiver.on_packet(&cfg, ms(sent + 270), &packet(i, sent), 1000);
    }
    let report = receiver.poll_report(&cfg, ms(2050)).expect("it is due");
    let feedback = report.nada.expect("packets came");
    assert!(!feedback.is_idle && feedback.congestion.as_nanos().abs_diff(20_000_000) < 1000, "{feedback:?}");

    let nada = Some(Nada { max_rate: Some(Rate::from_bps(100_000)), ..nada });
    let sender = Sender::new(&Config { nada, ..cfg }, ms(0), Rate::from_bps(1_500_000), 0);
    assert_eq!(sender.rate().as_bps(), 100_000, "the maximum takes precedence");
}

/// Busse et al. 1996, worked out by hand: alpha 0.3, unloaded up to 2 %, congested from 4 %.
#[test]
fn the_rate_follows_the_smoothed_loss() {
    let adaptation = Adaptation {
        smoothing: 0.3,
        unloaded: 0.02,
        congested: 0.04,
        decrease: 0.875,
        increase: Rate::from_bps(50_000),
        min_rate: Rate::from_bps(800_000),
        max_rate: None,
    };
    let cfg = Config { adaptation: Some(adaptation), ..Config::default() };
    let mut sender = Sender::new(&cfg, ms(0), Rate::from_bps(1_000_000), 0);
    let steps = [
        // 26/256 lost: lambda = 0.0305, 0.0518, 0.0667.
        (26, 1_000_000),
        (26, 875_000),
        (26, 800_000), // 765,625 is below the least
        // No loss: 0.0467, 0.0327, 0.0229, 0.0160.
        (0, 800_000),
        (0, 800_000),
        (0, 800_000),
        (0, 850_000),
        (0, 900_000),
        (0, 950_000),
        (0, 1_000_000),
        (0, 1_000_000),
    ];
    for (step, (fraction_lost, bps)) in steps.into_iter().enumerate() {
        let block =
            ReportBlock { fraction_lost, cumulative_lost: 0, highest_seq: 0, jitter: 0, lsr: 0, dlsr: 0 };
        sender.on_report(&cfg, ms(0), &ReceiverReport { block: Some(block), nada: None });
        assert_eq!(sender.rate().as_bps(), bps, "step {step}");
        if step == 0 {
            assert_eq!(sender.loss(), 0.3 * (26.0 / 256.0));
        }
        assert_eq!(sender.rate_ratio(), bps as f64 / 1e6);
    }
    // A report without a block says nothing about loss.
    sender.on_report(&cfg, ms(0), &ReceiverReport { block: None, nada: None });
    assert_eq!(sender.rate().as_bps(), 1_000_000);
    let fixed = Config { adaptation: None, ..cfg };
    let mut sender = Sender::new(&fixed, ms(0), Rate::from_bps(10_000), 0);
    let block =
        ReportBlock { fraction_lost: 255, cumulative_lost: 0, highest_seq: 0, jitter: 0, lsr: 0, dlsr: 0 };
    sender.on_report(&fixed, ms(0), &ReceiverReport { block: Some(block), nada: None });
    assert_eq!(sender.rate().as_bps(), 10_000);
}

/// RFC 3550 sections 5.1, 6.4 and 6.5, RFC 768, RFC 791.
#[test]
fn packet_sizes_follow_the_rfc() {
    let cfg = Config::default();
    assert_eq!(Packet::header_len(&cfg), 20 + 8 + 12);
    // A name of 16 bytes, its type, its length and a zero: 19, padded to 20; with header and source 28.
    assert_eq!(SenderReport::wire_len(&cfg), 20 + 8 + 28 + 28);
    assert_eq!(ReceiverReport { block: None, nada: None }.wire_len(&cfg), 20 + 8 + 8 + 28);
    let block =
        ReportBlock { fraction_lost: 0, cumulative_lost: 0, highest_seq: 0, jitter: 0, lsr: 0, dlsr: 0 };
    assert_eq!(ReceiverReport { block: Some(block), nada: None }.wire_len(&cfg), 20 + 8 + 32 + 28);
    // NADA: 12 bytes of header and 8 of values.
    let nada = Feedback { is_idle: true, congestion: Duration::ZERO, received: Rate::from_bps(0) };
    assert_eq!(ReceiverReport { block: None, nada: Some(nada) }.wire_len(&cfg), 20 + 8 + 8 + 20 + 28);
    // Names of other lengths, with type, length and zero: 21, padded to 24; 3, padded to 4; at most 258, padded to 260.
    for (cname_len, item) in [(18, 24), (0, 4), (300, 260)] {
        let cfg = Config { cname_len, ..Config::default() };
        assert_eq!(SenderReport::wire_len(&cfg), 20 + 8 + 28 + 8 + item);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Whatever a channel does, the reports are consistent: packets sent up to the highest number are those received,
    /// less duplicates, plus those lost; and the rate stays within its limits.
    #[test]
    fn reports_are_consistent(
        loss in 0.0..0.5,
        duplication in 0.0..0.3,
        jitter in 0u64..400,
        first in any::<u16>(),
        seed in any::<u64>(),
    ) {
        const PACKETS: u64 = 3000;
        let cfg = Config::default();
        let mut rng = Rng::stream(seed, "test", 0, "channel");
        let mut sender = Sender::new(&cfg, ms(0), Rate::from_bps(1_000_000), first);
        let mut arrivals: Vec<(u64, u64, Packet)> = Vec::new();
        for i in 0..PACKETS {
            let packet = sender.send(&cfg, ms(10 * i), 1000);
            // The first and the last packet arrive, so that the ends are known.
            let ends = i == 0 || i == PACKETS - 1;
            let copies = match (ends, rng.uniform() < loss) {
                (false, true) => 0,
                _ => 1 + u64::from(!ends && rng.uniform() < duplication),
            };
            for _ in 0..copies {
                arrivals.push((10 * i + if ends { 400 } else { rng.below(jitter + 1) + 400 }, i, packet));
            }
        }
        arrivals.sort_by_key(|&(at, i, _)| (at, i));
        let mut receiver = Receiver::default();
        let (mut reports, mut last) = (0u64, None);
        let came = arrivals.len() as u64;
        for (at, _, packet) in arrivals {
            while let Some(due) = receiver.next_report().filter(|&due| due <= ms(at)) {
                let report = receiver.poll_report(&cfg, due).expect("it is due");
                sender.on_report(&cfg, due, &report);
                let bps = sender.rate().as_bps();
                prop_assert!((50_000..=1_000_000).contains(&bps), "{bps}");
                prop_assert!((0.0..=1.0).contains(&sender.loss()));
                reports += 1;
                last = report.block;
            }
            receiver.on_packet(&cfg, ms(at), &packet, 1000);
        }
        let end = receiver.next_report().expect("it has begun");
        last = receiver.poll_report(&cfg, end).expect("it is due").block.or(last);
        let block = last.expect("packets came");
        // 30 s with a report every 900 ms.
        prop_assert!((33..=34).contains(&reports), "{reports}");
        prop_assert_eq!(block.highest_seq, u32::from(first) + PACKETS as u32 - 1);
        prop_assert_eq!(i64::from(block.cumulative_lost), PACKETS as i64 - came as i64);
        prop_assert_eq!(receiver.received(), came);
    }
}
