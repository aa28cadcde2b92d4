//! Single calls, without a path in between.

use bentpipe_transport::pep_link::{
    Ack, AckRange, Config, Data, Endpoint, Event, MAX_ACK_RANGES, MAX_ACK_WINDOWS, Packet, WindowUpdate,
};
use bentpipe_units::{Duration, Instant};

use crate::net::{at, ms};

const NOW: Instant = Instant::ZERO;

fn ends(cfg: Config) -> [Endpoint; 2] {
    [Endpoint::new(cfg.clone()), Endpoint::new(cfg)]
}

fn send_all(end: &mut Endpoint) -> Vec<Data> {
    send_all_at(end, NOW)
}

fn send_all_at(end: &mut Endpoint, now: Instant) -> Vec<Data> {
    std::iter::from_fn(|| end.poll_data(now)).collect()
}

/// Delivers everything that `from` may send, and the acknowledgements that are due at once.
fn deliver(from: &mut Endpoint, to: &mut Endpoint) {
    for data in send_all(from) {
        to.on_data(NOW, &data);
    }
    while let Some(ack) = to.poll_ack(NOW) {
        from.on_ack(NOW, &ack);
    }
}

fn events(end: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| end.poll_event()).collect()
}

/// An acknowledgement of the packets from `first` to `last`.
fn ack_of(first: u64, last: u64) -> Ack {
    let mut ack = Ack::new(Duration::ZERO);
    ack.push_range(AckRange { first, last });
    ack
}

/// An acknowledgement of no packets, with a window.
fn window_of(stream: u32, generation: u32, limit: u64) -> Ack {
    let mut ack = Ack::new(Duration::ZERO);
    ack.push_window(WindowUpdate { stream, generation, limit });
    ack
}

#[test]
fn a_late_packet_is_acknowledged_at_once() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ..Config::default() });
    near.open(0);
    near.write(0, 300);
    let sent = send_all(&mut near);
    far.on_data(NOW, &sent[0]);
    far.on_data(NOW, &sent[2]);
    assert!(far.poll_ack(NOW).is_none(), "one packet above a gap is not enough");
    assert_eq!(far.poll_timeout(), Some(at(50)));
    far.on_data(at(9), &sent[1]);
    let ack = far.poll_ack(at(10)).expect("a late packet is acknowledged at once");
    assert_eq!((ack.largest(), ack.ranges().len(), ack.delay), (Some(2), 1, ms(10)));
    assert_eq!(far.poll_timeout(), None);
}

/// A queue in front of the link sends packets in reverse order and drops one: packets are numbered as they leave the
/// queue, a packet waiting there is neither lost nor probed for, and only the dropped one is resent, once three later
/// ones have arrived.
#[test]
fn reordering_in_the_host_queue_is_not_loss() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ack_every: 1, ..Config::default() });
    near.open(0);
    near.write(0, 1000);
    let mut queued: Vec<_> = std::iter::from_fn(|| near.poll_unnumbered(NOW)).collect();
    assert_eq!((queued.len(), near.poll_timeout()), (10, None));
    queued.reverse();
    for (i, data) in queued.iter_mut().enumerate() {
        near.assign_number(at(i as u64), data);
        assert_eq!(data.number, i as u64);
        if i != 4 {
            far.on_data(at(300), data);
        }
    }
    while let Some(ack) = far.poll_ack(at(300)) {
        near.on_ack(at(600), &ack);
    }
    let resent: Vec<_> =
        std::iter::from_fn(|| near.poll_unnumbered(at(600))).map(|data| data.offset).collect();
    assert_eq!(resent, [500]);
}

#[test]
fn window_updates_are_sent_at_once() {
    let cfg = Config { stream_window: 1000, ..Config::default() };
    let [mut near, mut far] = ends(cfg);
    for s in 0..20 {
        near.open(s);
        near.write(s, 1500);
    }
    for data in send_all(&mut near) {
        far.on_data(NOW, &data);
    }
    while let Some(event) = far.poll_event() {
        if let Event::Readable { stream, bytes } = event {
            far.consume(stream, bytes);
        }
    }
    while let Some(ack) = far.poll_ack(NOW) {
        near.on_ack(NOW, &ack);
    }
    assert_eq!(send_all(&mut near).len(), 20);
}

#[test]
fn consume_is_limited_to_the_data_received() {
    let [mut near, mut far] = ends(Config { stream_window: 1000, ..Config::default() });
    near.open(0);
    near.write(0, 5000);
    for data in send_all(&mut near) {
        far.on_data(NOW, &data);
    }
    far.consume(0, u64::MAX);
    let ack = far.poll_ack(NOW).expect("the window opened");
    assert_eq!(ack.windows()[0].limit, 2000);
}

#[test]
fn a_window_below_a_packet_allows_one_packet() {
    let [mut near, mut far] = ends(Config { window: 10, ..Config::default() });
    near.open(0);
    near.write(0, 2000);
    let sent = send_all(&mut near);
    assert_eq!((sent.len(), sent[0].len), (1, 1360));
    far.on_data(NOW, &sent[0]);
    near.on_ack(at(50), &far.poll_ack(at(50)).expect("after the ack delay"));
    assert_eq!(near.poll_data(at(50)).map(|data| data.len), Some(640));
}

#[test]
fn a_packet_of_a_later_generation_is_left_unacknowledged() {
    let [mut near, mut far] = ends(Config::default());
    near.open(0);
    let open = send_all(&mut near)[0];
    far.on_data(NOW, &open);
    far.on_data(NOW, &Data { number: 1, generation: open.generation + 1, len: 9, ..open });
    let ack = far.poll_ack(at(50)).expect("after the ack delay");
    assert_eq!(ack.largest(), Some(0));
    assert_eq!((far.poll_event(), far.poll_event()), (Some(Event::Opened { stream: 0 }), None));
}

#[test]
fn acks_of_numbers_never_sent_are_ignored() {
    let [mut near, mut far] = ends(Config::default());
    near.open(0);
    near.write(0, 100);
    let sent = send_all(&mut near)[0];
    far.on_data(NOW, &Data { number: 1, ..sent });
    far.on_data(NOW, &sent);
    near.on_ack(NOW, &far.poll_ack(NOW).expect("a late packet is acknowledged at once"));
    assert_eq!((near.poll_event(), near.stats().acked), (None, 0));
}

#[test]
fn stream_ids_out_of_range_are_ignored() {
    let [mut near, _] = ends(Config::default());
    near.open(u32::MAX);
    near.write(u32::MAX, 10);
    assert!(send_all(&mut near).is_empty());
    assert!(!near.is_writable(u32::MAX));
}

#[test]
fn probe_timeout_counts_from_the_latest_progress() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ..Config::default() });
    near.open(0);
    near.write(0, 200);
    let sent = send_all(&mut near);
    assert_eq!(near.poll_timeout(), Some(at(2150)), "three initial round trips and the delay");
    far.on_data(at(350), &sent[0]);
    near.on_ack(at(700), &far.poll_ack(at(400)).expect("after the ack delay"));
    // 700 ms and four times half of it, and the ack delay, counted from 700 ms.
    assert_eq!(near.poll_timeout(), Some(at(700 + 2150)));
    near.handle_timeout(at(2849));
    assert_eq!(near.poll_data(at(2849)), None);
    near.handle_timeout(at(2850));
    let probe = near.poll_data(at(2850)).expect("the probe");
    assert_eq!((probe.number, probe.offset, probe.retransmission), (2, 100, true));
    assert_eq!(near.poll_timeout(), Some(at(2850 + 2 * 2150)));
}

#[test]
fn a_payload_of_zero_is_replaced_by_one_byte() {
    let cfg = Config { max_payload: 0, window: 5000, ..Config::default() };
    let mut near = Endpoint::new(cfg.clone());
    assert_eq!(near.config(), &Config { max_payload: 1, ..cfg });
    near.open(0);
    near.write(0, 2);
    assert_eq!(send_all(&mut near).iter().map(|data| data.len).collect::<Vec<_>>(), [1, 1]);
}

/// Packets of 131 bytes, two of which fill the window of the association.
#[test]
fn queries_follow_the_state_of_a_stream() {
    let cfg = Config { max_payload: 100, window: 262, ack_every: 1, ..Config::default() };
    let [mut near, mut far] = ends(cfg);
    let state = |end: &Endpoint, s| (end.is_writable(s), end.has_unacknowledged(s), end.is_window_limited(s));
    let idle = (false, false, false);
    near.open(1);
    deliver(&mut near, &mut far);
    assert_eq!((state(&near, 0), state(&near, 2)), (idle, idle), "not open");
    near.open(0);
    assert_eq!(state(&near, 0), (true, false, false));
    near.write(0, 150);
    assert_eq!(state(&near, 0), (true, true, false), "room for all");
    let sent = send_all(&mut near);
    assert_eq!(state(&near, 0), (true, true, false), "131 and 81 bytes in flight, nothing left to send");
    near.write(0, 100);
    assert_eq!(state(&near, 0), (true, true, true));
    assert_eq!(near.poll_data(NOW), None);
    near.finish(0);
    assert_eq!(state(&near, 0), (false, true, true));
    for data in &sent {
        far.on_data(NOW, data);
        near.on_ack(NOW, &far.poll_ack(NOW).expect("one for each packet"));
    }
    assert_eq!(state(&near, 0), (false, true, false), "150 of 250 bytes acknowledged");
    deliver(&mut near, &mut far);
    assert_eq!(state(&near, 0), idle, "all acknowledged");

    near.write(1, 300);
    assert_eq!(send_all(&mut near).len(), 2, "the window is used in full");
    assert_eq!(state(&near, 1), (true, true, true));
    near.reset(1);
    assert_eq!(state(&near, 1), idle, "reset");

    let [mut near, mut far] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    near.write(0, 100);
    let sent = send_all(&mut near);
    assert_eq!(state(&near, 0), (true, true, false), "the window of the stream is used in full");
    near.write(0, 1);
    assert_eq!(state(&near, 0), (true, true, true), "it does not allow another byte");
    far.on_data(NOW, &sent[0]);
    far.consume(0, 50);
    near.on_ack(NOW, &far.poll_ack(NOW).expect("the window opened"));
    assert_eq!(state(&near, 0), (true, true, false));
}

/// A packet is a duplicate if its number arrived before, or all its data did: at the end of what was read, within it, or
/// ahead of a gap. A late open packet without data is not, nor is data of a stream that this end has reset.
#[test]
fn duplicates_are_counted() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ..Config::default() });
    near.open(0);
    let open = send_all(&mut near)[0];
    near.write(0, 500);
    let sent = send_all(&mut near);
    let mut receive = |data: Data| {
        far.on_data(NOW, &data);
        (far.stats().received, far.stats().duplicates)
    };
    assert_eq!((sent.len(), receive(sent[0])), (5, (1, 0)));
    assert_eq!(receive(open), (2, 0), "late");
    assert_eq!(receive(sent[0]), (3, 1), "the same number");
    assert_eq!(receive(Data { number: 10, ..sent[0] }), (4, 2), "up to the next byte expected");
    assert_eq!(receive(sent[1]), (5, 2));
    assert_eq!(receive(Data { number: 11, ..sent[0] }), (6, 3), "below the next byte expected");
    assert_eq!(receive(sent[3]), (7, 3), "ahead of a gap");
    assert_eq!(receive(Data { number: 12, ..sent[3] }), (8, 4));
    assert_eq!(receive(Data { number: 13, len: 150, ..sent[3] }), (9, 4), "half of it is new");
    assert_eq!(receive(Data { number: 14, generation: 0, ..sent[4] }), (10, 5), "an earlier stream");
    far.reset(0);
    far.on_data(NOW, &sent[4]);
    far.on_data(NOW, &Data { number: 15, ..sent[0] });
    assert_eq!((far.stats().received, far.stats().duplicates), (12, 5), "reset");
}

#[test]
fn packets_and_acknowledgements_are_counted_at_both_ends() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ack_every: 2, ..Config::default() });
    near.open(0);
    near.write(0, 600);
    deliver(&mut near, &mut far);
    let (near, far) = (near.stats(), far.stats());
    assert_eq!((near.sent, near.acked, near.lost, near.in_flight, near.acks_received), (6, 6, 0, 0, 1));
    assert_eq!((far.received, far.acks_sent, far.acks_received), (6, 1, 0));
}

/// A packet of a stream that both ends have closed is a duplicate, whatever its number.
#[test]
fn packets_of_a_closed_stream_are_ignored() {
    let [mut near, mut far] = ends(Config { ack_every: 1, ..Config::default() });
    near.open(0);
    near.write(0, 10);
    near.finish(0);
    let sent = near.poll_data(NOW).expect("one packet");
    far.on_data(NOW, &sent);
    near.on_ack(NOW, &far.poll_ack(NOW).expect("at once"));
    far.finish(0);
    deliver(&mut far, &mut near);
    assert_eq!(events(&mut far).last(), Some(&Event::Closed { stream: 0 }));
    assert_eq!(events(&mut near).last(), Some(&Event::Closed { stream: 0 }));
    far.on_data(NOW, &Data { number: 1, ..sent });
    assert_eq!((events(&mut far), far.stats().duplicates), (vec![], 1));
    assert!(!far.is_writable(0));
}

/// The first event of a stream decides its place: packet 3 of stream 0 brings none, because it follows a gap.
#[test]
fn streams_report_events_in_the_order_in_which_they_got_them() {
    let [mut near, mut far] = ends(Config { max_payload: 100, ack_every: 1, ..Config::default() });
    near.open(0);
    near.open(1);
    deliver(&mut near, &mut far);
    let opened = [Event::Opened { stream: 0 }, Event::Opened { stream: 1 }];
    assert_eq!((events(&mut far), events(&mut near)), (opened.to_vec(), vec![]));
    near.write(0, 200);
    let ahead = send_all(&mut near);
    near.write(1, 100);
    let other = send_all(&mut near);
    for data in [ahead[1], other[0], ahead[0]] {
        far.on_data(NOW, &data);
    }
    assert_eq!(
        events(&mut far),
        [Event::Readable { stream: 1, bytes: 100 }, Event::Readable { stream: 0, bytes: 200 }]
    );

    // Nor does the acknowledgement of an open packet without data.
    let [mut near, _] = ends(Config::default());
    near.open(0);
    assert_eq!(send_all(&mut near).len(), 1);
    near.open(1);
    near.write(1, 100);
    near.write(0, 50);
    let order: Vec<_> = send_all(&mut near).iter().map(|data| data.stream).collect();
    assert_eq!(order, [1, 0]);
    near.on_ack(NOW, &ack_of(0, 2));
    assert_eq!(
        events(&mut near),
        [Event::Acked { stream: 1, bytes: 100 }, Event::Acked { stream: 0, bytes: 50 }]
    );
}

#[test]
fn a_stream_reset_before_its_events_are_taken_is_still_reported_as_opened() {
    let [mut near, mut far] = ends(Config { ack_every: 1, ..Config::default() });
    near.open(0);
    near.write(0, 10);
    deliver(&mut near, &mut far);
    far.reset(0);
    assert_eq!(events(&mut far), [Event::Opened { stream: 0 }]);
    deliver(&mut far, &mut near);
    assert_eq!(events(&mut far), [Event::Closed { stream: 0 }]);
    assert_eq!(
        events(&mut near),
        [Event::Acked { stream: 0, bytes: 10 }, Event::Reset { stream: 0 }, Event::Closed { stream: 0 }]
    );
}

/// An update is sent three times, 50 ms apart, with the latest limit, and no longer once the end of the stream is known
/// or the stream is reset.
#[test]
fn a_window_update_is_repeated_while_the_stream_is_open() {
    for (finish, reset) in [(false, false), (true, false), (false, true)] {
        let [mut near, mut far] = ends(Config { stream_window: 1000, ..Config::default() });
        near.open(0);
        near.write(0, 1000);
        far.on_data(NOW, &send_all(&mut near)[0]);
        far.consume(0, 500);
        far.consume(0, 500);
        let mut limits = |ms: u64| -> Option<Vec<u64>> {
            let ack = far.poll_ack(at(ms))?;
            Some(ack.windows().iter().map(|update| update.limit).collect())
        };
        assert_eq!((limits(0), limits(0)), (Some(vec![2000]), None));
        if finish || reset {
            if finish {
                near.finish(0)
            } else {
                near.reset(0)
            }
            far.on_data(at(10), &send_all(&mut near)[0]);
            assert_eq!(far.poll_ack(at(50)).map(|ack| ack.windows().len()), Some(0));
        } else {
            assert_eq!((limits(49), limits(50)), (None, Some(vec![2000])));
            assert_eq!((limits(99), limits(100)), (None, Some(vec![2000])));
        }
        assert_eq!(far.poll_timeout(), None);
    }
}

/// Two repetitions of an update are left when the stream is reset and its id reused. They carry the window of the new
/// stream.
#[test]
fn an_id_left_in_the_queue_of_window_updates_stands_for_its_next_stream() {
    let [mut near, mut far] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    near.write(0, 100);
    far.on_data(NOW, &send_all(&mut near)[0]);
    far.consume(0, 100);
    near.on_ack(NOW, &far.poll_ack(NOW).expect("the window opened"));
    far.reset(0);
    near.on_data(NOW, &send_all(&mut far)[0]);
    far.on_ack(at(50), &near.poll_ack(at(50)).expect("after the ack delay"));
    for end in [&mut near, &mut far] {
        assert_eq!(events(end).last(), Some(&Event::Closed { stream: 0 }));
    }
    near.open(0);
    far.on_data(at(50), &send_all(&mut near)[0]);
    for ms in [50, 100] {
        let ack = far.poll_ack(at(ms)).expect("after the ack delay");
        assert_eq!(ack.windows(), [WindowUpdate { stream: 0, generation: 2, limit: 100 }]);
    }
    assert_eq!(far.poll_timeout(), None);
}

/// Half of a window of 101 bytes is 51.
#[test]
fn half_of_an_odd_window_is_rounded_up() {
    let [mut near, mut far] = ends(Config { stream_window: 101, ..Config::default() });
    near.open(0);
    near.write(0, 101);
    far.on_data(NOW, &send_all(&mut near)[0]);
    far.consume(0, 50);
    assert!(far.poll_ack(NOW).is_none());
    far.consume(0, 1);
    assert_eq!(far.poll_ack(NOW).map(|ack| ack.windows()[0].limit), Some(152));
}

/// A probe asks for the window, however little it has opened. If it has not, or the stream is reset, it is only
/// acknowledged.
#[test]
fn a_probe_is_answered_if_the_window_has_opened() {
    let [mut near, mut far] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    near.write(0, 200);
    let sent = send_all(&mut near)[0];
    far.on_data(NOW, &sent);
    near.on_ack(at(700), &far.poll_ack(at(50)).expect("after the ack delay"));
    near.handle_timeout(at(2150));
    let probe = near.poll_data(at(2150)).expect("a probe");
    assert_eq!((probe.offset, probe.len, probe.open || probe.fin || probe.reset), (100, 0, false));
    far.on_data(at(3000), &probe);
    assert!(far.poll_ack(at(3000)).is_none(), "nothing to tell");
    assert_eq!(far.poll_ack(at(3050)).map(|ack| ack.windows().len()), Some(0));
    far.consume(0, 10);
    far.on_data(at(4000), &Data { number: 2, ..probe });
    let ack = far.poll_ack(at(4000)).expect("the window has opened");
    assert_eq!((ack.largest(), ack.windows()[0].limit), (Some(2), 110));
    let [mut near, mut far] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    far.on_data(NOW, &send_all(&mut near)[0]);
    far.reset(0);
    far.on_data(NOW, &Data { number: 1, generation: 1, offset: 50, ..probe });
    assert!(far.poll_ack(NOW).is_none(), "reset");
}

#[test]
fn window_updates_of_other_generations_and_lower_limits_are_ignored() {
    let [mut near, _] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    near.write(0, 300);
    assert_eq!(send_all(&mut near)[0].generation, 1);
    for (generation, limit, bytes) in [(0, 200, None), (2, 200, None), (1, 100, None), (1, 150, Some(50))] {
        near.on_ack(NOW, &window_of(0, generation, limit));
        assert_eq!(near.poll_data(NOW).map(|data| data.len), bytes, "{generation}, {limit}");
    }
    near.on_ack(NOW, &window_of(0, 1, 120));
    near.on_ack(NOW, &window_of(0, 1, 160));
    assert_eq!(near.poll_data(NOW).map(|data| data.len), Some(10));
}

/// The interval is the probe timeout of three initial RTTs and the ack delay, 2150 ms, and doubles up to eight times
/// that. An update that repeats the limit does not restart it, one that opens the window does.
#[test]
fn window_probes_back_off_until_the_window_opens() {
    let [mut near, _] = ends(Config { stream_window: 100, ..Config::default() });
    near.open(0);
    near.write(0, 300);
    assert_eq!(send_all(&mut near).len(), 1);
    near.on_ack(at(700), &ack_of(0, 0));
    let mut number = 0;
    let mut due = 0;
    let mut probe = |near: &mut Endpoint, wait: u64| {
        due += wait;
        assert_eq!(near.poll_timeout(), Some(at(due)));
        near.handle_timeout(at(due - 1));
        assert_eq!(near.poll_data(at(due - 1)), None);
        near.handle_timeout(at(due));
        number += 1;
        let sent = send_all_at(near, at(due));
        let sent: Vec<_> = sent.iter().map(|data| (data.number, data.offset, data.len)).collect();
        assert_eq!(sent, [(number, 100, 0)]);
        near.on_ack(at(due + 700), &ack_of(number, number));
    };
    for wait in [2150, 4300, 8600, 17_200, 17_200] {
        probe(&mut near, wait);
    }
    near.on_ack(at(50_000), &window_of(0, 1, 100));
    for _ in 0..2 {
        probe(&mut near, 17_200);
    }
    near.on_ack(at(90_000), &window_of(0, 1, 150));
    assert_eq!(near.poll_data(at(90_000)).map(|data| (data.offset, data.len)), Some((100, 50)));
    near.on_ack(at(90_700), &ack_of(8, 8));
    assert_eq!(near.poll_timeout(), Some(at(90_000 + 2150)));
    assert_eq!(near.stats().window_probes, 7);
}

/// Stream 0 is blocked at 0 and stream 1 at 500 ms; the window of the first opens after its first probe. The interval of
/// three initial RTTs and the ack delay, 6050 ms, doubles.
#[test]
fn each_blocked_stream_is_probed_at_its_own_time() {
    let initial_rtt = ms(2000);
    let [mut near, _] = ends(Config { stream_window: 100, initial_rtt, ..Config::default() });
    for s in 0..2 {
        near.open(s);
        near.write(s, 150);
        assert_eq!(send_all_at(&mut near, at(500 * u64::from(s))).len(), 1);
    }
    near.on_ack(at(1200), &ack_of(0, 1));
    let mut probes = Vec::new();
    while let Some(due) = near.poll_timeout().filter(|&due| due <= at(43_000)) {
        near.handle_timeout(due);
        for data in send_all_at(&mut near, due) {
            probes.push((due, data.stream));
            near.on_ack(due, &ack_of(data.number, data.number));
        }
        if probes.len() == 1 {
            near.on_ack(due, &window_of(0, 1, 200));
            let rest = near.poll_data(due).expect("the rest of stream 0");
            near.on_ack(due, &ack_of(rest.number, rest.number));
        }
    }
    assert_eq!(probes, [(at(6050), 0), (at(6550), 1), (at(18_650), 1), (at(42_850), 1)]);
}

/// RFC 9002, 5.1: of the packets sent at 0 and 20 ms, the later gives the sample, and a packet below the largest number
/// that was acknowledged before gives none.
#[test]
fn rtt_is_measured_with_the_largest_newly_acknowledged_number() {
    let [mut near, _] = ends(Config { max_payload: 100, ..Config::default() });
    near.open(0);
    for i in 0..3 {
        near.write(0, 100);
        assert_eq!(send_all_at(&mut near, at(10 * i)).len(), 1);
    }
    let mut ack = ack_of(2, 2);
    ack.push_range(AckRange { first: 0, last: 0 });
    near.on_ack(at(720), &ack);
    near.on_ack(at(750), &ack_of(0, 2));
    let stats = near.stats();
    assert_eq!((stats.acked, stats.srtt, stats.rttvar, stats.min_rtt), (3, ms(700), ms(350), ms(700)));
}

/// Two window probes are the oldest packets in flight. At the probe timeout, two packets with data are resent.
#[test]
fn a_probe_timeout_resends_data_instead_of_window_probes() {
    let cfg = Config { stream_window: 100, max_payload: 50, ..Config::default() };
    let [mut near, _] = ends(cfg);
    for s in 0..2 {
        near.open(s);
        near.write(s, 150);
    }
    assert_eq!(send_all(&mut near).len(), 4);
    near.on_ack(at(700), &ack_of(0, 3));
    near.handle_timeout(at(2150));
    assert_eq!(send_all_at(&mut near, at(2150)).len(), 2, "window probes");
    near.open(2);
    near.write(2, 100);
    assert_eq!(send_all_at(&mut near, at(2200)).len(), 2);
    near.handle_timeout(at(2200 + 2150));
    let resent = send_all_at(&mut near, at(4350));
    assert_eq!(
        resent.iter().map(|data| (data.stream, data.offset)).collect::<Vec<_>>(),
        [(2, 0), (2, 50)],
        "{:?}",
        near.stats()
    );
}

/// Header of 31 bytes, 8 fixed bytes, 4 for each range after the first and 8 for each window.
#[test]
fn acknowledgements_have_the_length_of_their_ranges_and_windows() {
    let cfg = Config::default();
    let mut ack = Ack::new(Duration::ZERO);
    assert_eq!((ack.largest(), ack.wire_len(&cfg)), (None, 39));
    for n in 0..MAX_ACK_RANGES as u64 {
        assert!(ack.push_range(AckRange { first: 100 - 2 * n, last: 100 - 2 * n }));
    }
    assert!(!ack.push_range(AckRange::default()), "full");
    assert_eq!((ack.largest(), ack.ranges().len(), ack.wire_len(&cfg)), (Some(100), 32, 39 + 31 * 4));
    for limit in 0..MAX_ACK_WINDOWS as u64 {
        assert!(ack.push_window(WindowUpdate { stream: 0, generation: 1, limit }));
    }
    assert!(!ack.push_window(WindowUpdate::default()), "full");
    let limits: Vec<_> = ack.windows().iter().map(|update| update.limit).collect();
    assert_eq!(limits, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(Packet::Ack(ack).wire_len(&cfg), 39 + 31 * 4 + 8 * 8);
}
