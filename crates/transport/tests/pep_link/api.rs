//! Single calls, without a path in between.

use bentpipe_transport::pep_link::{Config, Data, Endpoint, Event};
use bentpipe_units::Instant;

use crate::net::{at, ms};

const NOW: Instant = Instant::ZERO;

fn ends(cfg: Config) -> [Endpoint; 2] {
    [Endpoint::new(cfg.clone()), Endpoint::new(cfg)]
}

fn send_all(end: &mut Endpoint) -> Vec<Data> {
    std::iter::from_fn(|| end.poll_data(NOW)).collect()
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
