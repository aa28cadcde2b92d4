//! Loss recovery, flow control and streams on constructed paths.

use std::cell::Cell;
use std::rc::Rc;

use bentpipe_transport::pep_link::{Config, Packet};
use bentpipe_units::{Duration, Instant, Rate, Rng};

use crate::net::{Net, Treatment, at, ms};

const FULL: u64 = 1360;

fn cfg() -> Config {
    Config::default()
}

/// A path that drops the packets selected by `lost` and delays the others by 350 ms.
fn steady(mut lost: impl FnMut(Instant, usize, &Packet) -> bool + 'static) -> Net {
    Net::new(
        cfg(),
        move |now, from, packet| {
            if lost(now, from, packet) { Treatment::Lost } else { Treatment::Arrive(ms(350)) }
        },
    )
}

fn assert_whole(net: &Net, streams: std::ops::Range<u32>) {
    for s in streams {
        for end in 0..2 {
            let (here, there) = (net.seen(end, s), net.seen(1 - end, s));
            assert_eq!(here.closed, 1, "stream {s} at {end}: {here:?}");
            assert!(here.finished && !here.reset, "stream {s} at {end}");
            assert_eq!((here.acked, there.readable), (here.written, here.written), "stream {s} from {end}");
        }
    }
    for end in &net.ends {
        assert_eq!(end.stats().in_flight, 0);
    }
}

#[test]
fn no_retransmissions_without_loss() {
    for (seed, rate) in [(1, 3_000_000), (2, 20_000_000), (3, 90_000_000), (4, 20_000_000)] {
        let mut jitter = Rng::stream(seed, "path", 0, "delay");
        let mut net = Net::new(cfg(), move |_, _, _| Treatment::Arrive(ms(300 + jitter.below(101))));
        net.rate = Rate::from_bps(rate);
        let mut load = Rng::stream(seed, "hosts", 0, "load");
        let mut time = Instant::ZERO;
        let streams = 60;
        for s in 0..streams {
            // Bursts of up to half a second of the link rate, with pauses of up to ten seconds.
            let most = rate / 8;
            for end in 0..2 {
                net.open(end, s, 1 + load.below(most), false);
            }
            time += ms(load.below(if s % 5 == 0 { 10_000 } else { 800 }));
            net.run_until(time);
            for end in 0..2 {
                net.write(end, s, load.below(3000));
                net.finish(end, s);
            }
        }
        net.run_out();
        assert_whole(&net, 0..streams);
        for end in &net.ends {
            let stats = end.stats();
            assert_eq!(
                (stats.retransmissions, stats.lost, stats.probe_timeouts, stats.duplicates),
                (0, 0, 0, 0)
            );
            assert_eq!(stats.sent, stats.acked);
            assert!(stats.srtt > ms(600) && stats.srtt < ms(1850), "{:?}", stats.srtt);
        }
    }
}

#[test]
fn a_long_steady_rtt_causes_no_early_probe() {
    // The RTT variation vanishes during 40 s of small packets; then a burst meets half a second of queueing.
    let mut net = steady(|_, _, _| false);
    net.open(0, 0, 100, false);
    for n in 1..400 {
        net.run_until(at(n * 100));
        net.write(0, 0, 100);
    }
    assert!(net.ends[0].stats().rttvar < ms(30), "{:?}", net.ends[0].stats());
    net.write(0, 0, 4_000_000);
    net.finish(0, 0);
    net.open(1, 1, 1, true);
    net.run_out();
    assert_eq!(net.ends[0].stats().retransmissions, 0);
    assert_eq!(net.ends[0].stats().probe_timeouts, 0);
}

#[test]
fn acknowledgements_follow_ack_every_and_ack_delay() {
    let mut net = Net::new(Config { stream_window: 32 << 20, ..cfg() }, |_, _, _| Treatment::Arrive(ms(350)));
    net.open(0, 0, 3200 * FULL, true);
    net.run_out();
    assert_eq!((net.ends[0].stats().sent, net.ends[1].stats().acks_sent), (3200, 100));
    // A single packet is acknowledged after the ack delay.
    let start = net.now;
    net.write(1, 0, 1);
    net.run_until(start + ms(400));
    assert_eq!(net.ends[0].stats().acks_sent, 0);
    net.run_until(start + ms(401));
    assert_eq!(net.ends[0].stats().acks_sent, 1);
}

#[test]
fn one_lost_packet_is_resent_once() {
    let mut net = steady(|_, from, packet| matches!(packet, Packet::Data(d) if from == 0 && d.number == 50));
    net.open(0, 0, 400 * FULL, true);
    net.ends[1].finish(0);
    net.run_out();
    let resent: Vec<_> = net.log[0].iter().filter(|data| data.retransmission).collect();
    assert_eq!(resent.len(), 1);
    assert_eq!((resent[0].offset, resent[0].len, resent[0].number), (50 * FULL, 1360, 400));
    assert_eq!((net.ends[0].stats().retransmissions, net.ends[0].stats().probe_timeouts), (1, 0));
    assert_eq!(net.seen(1, 0).readable, 400 * FULL);
    assert_eq!(net.seen(0, 0).acked, 400 * FULL);
}

#[test]
fn a_gap_is_reported_at_the_packet_threshold() {
    // 11 ms per packet: the next regular acknowledgement would be sent 50 ms after the first packet, with the fifth.
    let mut net = steady(|_, from, packet| matches!(packet, Packet::Data(d) if from == 0 && d.number == 7));
    net.rate = Rate::from_bps(1_000_000);
    net.max_queue = Duration::MAX;
    net.open(0, 0, 40 * FULL, true);
    // Packet 10 is the third after the gap. It arrives after the time of eleven packets, and so does its report.
    let arrived = Instant::ZERO + net.rate.time_to_send(1391).times(11) + ms(350);
    let reported = arrived + net.rate.time_to_send(31 + 8 + 4) + ms(350);
    net.run_until(Instant::from_nanos(reported.as_nanos() - 1));
    assert_eq!(net.ends[0].stats().lost, 0);
    net.run_until(reported);
    assert_eq!(net.ends[0].stats().lost, 1);
    let resent: Vec<_> =
        net.log[0].iter().filter(|data| data.retransmission).map(|data| data.offset).collect();
    assert_eq!(resent, [7 * FULL]);
}

#[test]
fn a_loss_near_the_tail_is_detected_by_time() {
    // Only one packet follows the lost one, so the threshold of three is never reached.
    let mut net = steady(|_, from, packet| matches!(packet, Packet::Data(d) if from == 0 && d.number == 8));
    net.open(0, 0, 10 * FULL, true);
    net.run_until(at(700));
    assert_eq!(net.ends[0].stats().lost, 0);
    net.run_until(at(1300));
    assert!(net.seen(1, 0).finished);
    assert_eq!((net.ends[0].stats().retransmissions, net.ends[0].stats().probe_timeouts), (1, 0));
}

#[test]
fn a_long_queue_is_not_loss_while_acks_arrive() {
    let mut net = steady(|_, _, _| false);
    (net.rate, net.max_queue) = (Rate::from_bps(1_000_000), Duration::MAX);
    net.open(0, 0, 500 * FULL, true);
    net.run_until(at(15_000));
    assert!(net.seen(1, 0).finished && net.seen(0, 0).acked == 500 * FULL);
    assert_eq!((net.ends[0].stats().probe_timeouts, net.ends[0].stats().retransmissions), (0, 0));
}

#[test]
fn repaired_gaps_are_no_longer_reported() {
    let longest = Rc::new(Cell::new(0));
    let seen = longest.clone();
    let mut net = steady(move |now, from, packet| {
        if let Packet::Ack(ack) = packet
            && now > at(3000)
        {
            seen.set(seen.get().max(ack.ranges().len()));
        }
        matches!(packet, Packet::Data(d) if from == 0 && d.number < 400 && d.number % 10 == 3)
    });
    net.open(0, 0, 4000 * FULL, true);
    net.run_out();
    assert_eq!((net.ends[0].stats().retransmissions, longest.get()), (40, 1));
}

#[test]
fn lost_acknowledgements_cause_few_retransmissions() {
    // Every second one, and all of one second.
    let mut turn = 0;
    let mut net = steady(move |now, _, packet| {
        turn += u32::from(matches!(packet, Packet::Ack(_)));
        matches!(packet, Packet::Ack(_)) && (turn % 2 == 0 || (now > at(1500) && now < at(2500)))
    });
    net.open(0, 0, 4_000_000, true);
    net.run_until(at(600));
    net.finish(1, 0);
    net.run_out();
    assert_whole(&net, 0..1);
    assert!(net.ends[0].stats().retransmissions <= 2, "{:?}", net.ends[0].stats());
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    let mut net = steady(|now, from, packet| {
        matches!(packet, Packet::Data(d) if from == 0 && d.number >= 97) && now < at(1500)
    });
    net.open(0, 0, 100 * FULL, true);
    net.run_until(at(1500));
    assert_eq!(net.seen(1, 0).readable, 97 * FULL);
    net.run_until(at(5000));
    assert_eq!(net.seen(1, 0).readable, 100 * FULL);
    assert!(net.seen(1, 0).finished);
    // The probe resends the two oldest; their acknowledgement shows that the third is lost.
    let stats = net.ends[0].stats();
    assert_eq!((stats.probe_timeouts, stats.retransmissions, stats.lost), (1, 3, 3));
}

#[test]
fn probes_back_off_during_an_outage() {
    let mut net = steady(|now, _, _| now > at(1000) && now < at(60_000));
    net.open(0, 0, 50 * FULL, false);
    net.run_until(at(2000));
    net.write(0, 0, 50 * FULL);
    net.finish(0, 0);
    net.finish(1, 0);
    net.run_until(at(60_000));
    let probes = net.ends[0].stats().probe_timeouts;
    assert!((3..=5).contains(&probes), "{probes}");
    net.run_out();
    assert_whole(&net, 0..1);
    assert!(net.now < at(150_000), "{:?}", net.now);
}

#[test]
fn a_stream_id_can_be_reused() {
    let mut net = steady(|_, _, packet| matches!(packet, Packet::Data(d) if d.number % 3 == 1));
    for generation in 0..20 {
        let (here, bytes) = ((generation % 2) as usize, 1 + generation * 700);
        net.open(here, 5, bytes, true);
        net.run_until(net.now + ms(400));
        if net.sides[1 - here].seen.get(&5).is_none_or(|seen| !seen.opened) {
            net.run_until(net.now + Duration::from_secs(10));
        }
        net.write(1 - here, 5, 2 * bytes);
        net.finish(1 - here, 5);
        net.run_out();
        assert_whole(&net, 5..6);
        assert_eq!(net.seen(here, 5).readable, 2 * bytes);
        net.forget(5);
    }
}

#[test]
fn late_packets_of_an_earlier_generation_are_ignored() {
    // The only packet of the first stream is delayed by ten seconds, is resent meanwhile, and arrives after the id was
    // reused.
    let mut net = Net::new(cfg(), |_, from, packet| match packet {
        Packet::Data(d) if from == 0 && d.number == 0 => Treatment::Arrive(ms(10_000)),
        _ => Treatment::Arrive(ms(350)),
    });
    net.in_order = false;
    net.open(0, 0, 1000, true);
    net.run_until(at(3000));
    net.finish(1, 0);
    net.run_until(at(6000));
    assert_whole(&net, 0..1);
    net.forget(0);
    net.open(0, 0, 5, false);
    net.run_until(at(9900));
    assert_eq!(net.seen(1, 0).readable, 5);
    net.run_until(at(11_000));
    assert_eq!((net.seen(1, 0).readable, net.seen(1, 0).finished), (5, false));
}

#[test]
fn acknowledgements_of_an_earlier_generation_are_ignored() {
    // The peer resets in the middle of a transfer; the id is reused while the last packets are unacknowledged, and
    // every seventh of them is lost.
    let mut net =
        steady(|_, from, packet| matches!(packet, Packet::Data(d) if from == 0 && d.number % 7 == 3));
    net.open(0, 0, 3_000_000, false);
    net.run_until(at(600));
    net.reset(1, 0);
    while (0..2).any(|end| net.seen(end, 0).closed == 0) {
        net.run_until(net.now + ms(1));
    }
    assert!(net.ends[0].stats().in_flight > 0);
    net.forget(0);
    let (before, sent) = (net.ends[0].stats(), net.log[0].len());
    net.open(0, 0, 5, false);
    net.run_until(net.now + ms(5000));
    assert!(net.ends[0].stats().lost > before.lost);
    assert!(net.log[0][sent..].iter().all(|data| data.offset == 0 && data.len == 5));
    assert_eq!((net.seen(0, 0).acked, net.seen(1, 0).readable), (5, 5));
}

#[test]
fn a_probe_skips_frames_of_reset_streams() {
    let mut net = steady(|now, _, _| now < at(500));
    net.open(0, 0, 5 * FULL, false);
    net.open(0, 1, FULL, true);
    net.reset(0, 0);
    net.run_until(at(4000));
    assert!(net.seen(1, 0).reset && net.seen(1, 1).finished);
    assert_eq!((net.ends[0].stats().probe_timeouts, net.ends[0].stats().retransmissions), (1, 2));
}

#[test]
fn writes_do_not_postpone_window_probes() {
    let mut net = Net::new(Config { stream_window: 4000, ..cfg() }, |now, _, packet| match packet {
        Packet::Ack(ack) if !ack.windows().is_empty() && now < at(1500) => Treatment::Lost,
        _ => Treatment::Arrive(ms(350)),
    });
    net.open(0, 0, 5000, false);
    for n in 1..20 {
        net.run_until(at(n * 500));
        net.write(0, 0, 100);
    }
    assert!(net.seen(1, 0).readable > 6000, "{:?}", net.seen(1, 0));
}

#[test]
fn flow_control_blocks_and_resumes() {
    let window = 20 * FULL;
    for updates_lost in [0, 1, 2, 3, 5] {
        let mut left = updates_lost;
        let mut net = Net::new(Config { stream_window: window, ..cfg() }, move |_, _, packet| match packet {
            Packet::Ack(ack) if !ack.windows().is_empty() && left > 0 => {
                left -= 1;
                Treatment::Lost
            }
            _ => Treatment::Arrive(ms(350)),
        });
        net.consume = false;
        net.open(0, 0, 50 * FULL, true);
        net.open(0, 1, 5 * FULL, true);
        net.run_until(at(1900));
        assert_eq!((net.seen(1, 0).readable, net.seen(1, 1).readable), (window, 5 * FULL));
        assert_eq!(net.log[0].len(), 25);
        // Less than half of the window is not worth an update.
        let acks = net.ends[1].stats().acks_sent;
        net.consume(1, 0, window / 2 - 1);
        assert_eq!(net.ends[1].stats().acks_sent, acks);
        net.consume(1, 0, 1);
        assert_eq!(net.ends[1].stats().acks_sent, acks + 1);
        // The update is repeated twice at 50 ms; if none arrives, the sender probes after its probe timeout.
        net.run_until(at(if updates_lost < 3 { 2750 } else { 20_000 }));
        assert_eq!(net.seen(1, 0).readable, window * 3 / 2, "{updates_lost} lost");
        net.consume(1, 0, window);
        net.run_until(net.now + ms(20_000));
        assert_eq!(net.seen(1, 0).readable, 50 * FULL, "{updates_lost} lost");
        assert!(net.seen(1, 0).finished);
        let stats = net.ends[0].stats();
        assert_eq!(stats.retransmissions, 0);
        assert!(stats.window_probes <= 8, "{stats:?}");
    }
}

#[test]
fn window_probes_to_a_stalled_host_are_rare() {
    let mut net = steady(|_, _, _| false);
    net.consume = false;
    net.open(0, 0, 10 << 20, true);
    net.run_until(at(300_000));
    assert_eq!(net.seen(1, 0).readable, 4 << 20);
    let probes = net.ends[0].stats().window_probes;
    assert!((10..=25).contains(&probes), "{probes}");
}

#[test]
fn the_window_limits_the_packets_in_flight() {
    let mut net = Net::new(Config { window: 10 * 1391 + 5, ..cfg() }, |_, _, _| Treatment::Arrive(ms(350)));
    net.open(0, 0, 100 * FULL, true);
    assert_eq!(net.log[0].len(), 10);
    assert_eq!(net.ends[0].stats().in_flight, 13_910);
    net.run_out();
    assert_eq!(net.seen(1, 0).readable, 100 * FULL);
}

#[test]
fn streams_are_served_round_robin() {
    let mut net = steady(|_, _, _| false);
    net.max_queue = Duration::MAX;
    for s in 0..4 {
        net.ends[0].open(s);
        net.append(0, s, 3 * FULL);
    }
    net.write(0, 4, 0);
    let order: Vec<_> = net.log[0].iter().map(|data| data.stream).collect();
    assert_eq!(order, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn flags_are_sent_with_data() {
    let mut net = steady(|_, _, _| false);
    // Everything in one packet.
    net.ends[0].open(0);
    net.append(0, 0, 10);
    net.finish(0, 0);
    // An empty open, and a packet for each small write.
    net.open(0, 1, 0, false);
    net.write(0, 1, 7);
    net.write(0, 1, 8);
    net.finish(0, 1);
    // Open flag on the first packet and FIN on the last.
    net.ends[0].open(2);
    net.append(0, 2, 2 * FULL + 1);
    net.finish(0, 2);
    let sent: Vec<_> =
        net.log[0].iter().map(|d| (d.stream, d.offset, d.len, d.open, d.fin, d.reset)).collect();
    assert_eq!(
        sent,
        [
            (0, 0, 10, true, true, false),
            (1, 0, 0, true, false, false),
            (1, 0, 7, false, false, false),
            (1, 7, 8, false, false, false),
            (1, 15, 0, false, true, false),
            (2, 0, 1360, true, false, false),
            (2, FULL, 1360, false, false, false),
            (2, 2 * FULL, 1, false, true, false),
        ]
    );
    net.run_until(at(500));
    for s in 0..3 {
        assert!(net.seen(1, s).opened && net.seen(1, s).finished);
        net.open(1, s, 3, true);
    }
    net.run_out();
    assert_whole(&net, 0..3);
}

#[test]
fn a_reset_closes_the_stream_at_both_ends() {
    // The reset itself is lost once; another stream continues.
    let mut resets = 0;
    let mut net = steady(move |_, _, packet| {
        let reset = matches!(packet, Packet::Data(d) if d.reset);
        resets += u32::from(reset);
        reset && resets == 1
    });
    net.open(0, 0, 3_000_000, false);
    net.open(0, 1, 3_000_000, true);
    net.run_until(at(800));
    net.write(1, 0, 1_000_000);
    net.run_until(at(1000));
    net.reset(0, 0);
    let (sent, before) = (net.log[0].len(), net.seen(0, 0).clone());
    net.run_until(at(5000));
    assert!(net.log[0][sent..].iter().all(|data| data.stream != 0 || data.reset));
    assert!(net.seen(1, 0).reset && net.seen(1, 0).closed == 1);
    assert_eq!((net.seen(0, 0).closed, net.seen(0, 0).reset), (1, false));
    assert_eq!((net.seen(0, 0).readable, net.seen(0, 0).acked), (before.readable, before.acked));
    net.finish(1, 1);
    net.run_out();
    assert_whole(&net, 1..2);
}

#[test]
fn a_stream_reset_before_sending_is_announced() {
    let mut net = steady(|_, _, _| false);
    net.ends[0].open(0);
    net.append(0, 0, 10);
    net.reset(0, 0);
    net.run_out();
    assert_eq!(net.log[0].len(), 1);
    let far = net.seen(1, 0);
    assert_eq!((far.opened, far.readable, far.reset, far.closed), (true, 0, true, 1));
    assert_eq!(net.seen(0, 0).closed, 1);
}

#[test]
fn simultaneous_resets_close_the_stream() {
    let mut net = steady(|_, _, _| false);
    net.open(0, 0, 100, false);
    net.run_until(at(1000));
    net.reset(0, 0);
    net.reset(1, 0);
    net.run_out();
    for end in 0..2 {
        assert_eq!((net.seen(end, 0).closed, net.seen(end, 0).reset), (1, false));
    }
}
