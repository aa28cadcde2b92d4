//! An end whose peer has the key but violates the protocol.

use std::time::{Duration, Instant};

use super::*;

/// RFC 9000, section 13.2.1: not ACK, PADDING and CONNECTION_CLOSE.
#[test]
fn each_frame_that_asks_for_an_acknowledgement_counts_once() {
    let mut sent = FrameStats::default();
    (sent.acks, sent.connection_close) = (1000, 1000);
    (sent.stream, sent.datagram, sent.ping, sent.immediate_ack) = (3, 5, 7, 11);
    (sent.crypto, sent.max_data, sent.max_stream_data, sent.max_streams_bidi) = (13, 17, 19, 23);
    (sent.reset_stream, sent.stop_sending, sent.new_connection_id, sent.ack_frequency) = (29, 31, 37, 41);
    assert_eq!(ack_eliciting(&sent), 236);
}

const END: &str = "192.0.2.1:4433";
const FOREIGN: &str = "192.0.2.2:50000";

/// A listening end, and a QUIC connection to it whose streams and datagrams the test writes. There is no delay between them.
struct Foreign {
    end: Spacelink,
    events: Vec<Event>,
    endpoint: SharedEndpoint,
    handle: ConnectionHandle,
    conn: Connection,
    control: StreamId,
    /// Code with which the end closed the connection.
    code: Option<u64>,
    now: Instant,
}

impl Foreign {
    /// A connection whose control stream begins with `greeting`.
    fn new(greeting: &[u8]) -> Self {
        Self::with(greeting, |_| {})
    }

    /// A connection as [`Self::new`] makes it, with other parameters of QUIC at the foreign side.
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
    fn with(greeting: &[u8], change: impl FnOnce(&mut TransportConfig)) -> Self {
        let now = Instant::now();
        let [own, other] = ["end", "foreign"].map(|name| Identity::generate(name).unwrap());
        let (certificate, trip) = (own.certificate(), Duration::from_millis(10));
        let end = Setup::new(own, other.certificate(), None, trip);
        let end = Spacelink::listen(&end, None, now).unwrap();
        let setup = Setup { stream_window: 1000, ..Setup::new(other, certificate.clone(), None, trip) };
        let config = keys::client(&setup.identity, &certificate).unwrap();
        let mut config = ClientConfig::new(Arc::new(config));
        let mut transport = setup.parameters().transport(&Arc::default());
        change(&mut transport);
        config.transport_config(Arc::new(transport));
        let endpoint = SharedEndpoint::new(&setup, None);
        let made = endpoint.get().connect(now, config, END.parse().unwrap(), "spacelink");
        let (handle, conn) = made.unwrap();
        let control = StreamId::new(quinn_proto::Side::Client, Dir::Uni, 0);
        let mut foreign = Self { end, events: Vec::new(), endpoint, handle, conn, control, code: None, now };
        // The greeting follows the last packet of the handshake at once.
        while foreign.conn.is_handshaking() {
            foreign.step();
        }
        assert_eq!(foreign.conn.streams().open(Dir::Uni), Some(control));
        foreign.say(greeting);
        foreign
    }

    /// A connection that is in use.
    fn greeted() -> Self {
        let mut foreign = Self::new(&HELLO);
        assert_eq!(foreign.events(), [Event::Up]);
        foreign
    }

    /// Writes to the control stream.
    fn say(&mut self, bytes: &[u8]) {
        assert_eq!(self.conn.send_stream(self.control).write(bytes), Ok(bytes.len()));
        self.run(20);
    }

    fn say_frame(&mut self, frame: Control) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.say(&bytes);
    }

    /// Opens a stream and writes `bytes`.
    fn open(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.conn.streams().open(Dir::Bi).unwrap();
        assert_eq!(self.conn.send_stream(id).write(bytes), Ok(bytes.len()));
        self.run(20);
        id
    }

    /// Opens a stream with a valid header. Returns its key at the end.
    fn opened(&mut self) -> (StreamId, StreamKey) {
        let id = self.open(&header_bytes());
        let Some(Event::Opened { stream, .. }) = self.events().pop() else { panic!("not opened") };
        (id, stream)
    }

    /// True if the end has reset the stream.
    fn is_reset(&mut self, id: StreamId) -> bool {
        let mut stream = self.conn.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return true };
        let found = chunks.next(1);
        let _ = chunks.finalize();
        matches!(found, Err(quinn_proto::ReadError::Reset(_)))
    }

    /// Everything that the end has written to its control stream since the last call.
    fn told(&mut self) -> Vec<u8> {
        let mut stream = self.conn.recv_stream(StreamId::new(quinn_proto::Side::Server, Dir::Uni, 0));
        let mut told = Vec::new();
        let Ok(mut chunks) = stream.read(true) else { return told };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            told.extend_from_slice(&chunk.bytes);
        }
        let _ = chunks.finalize();
        told
    }

    /// The end's datagrams since the last call.
    fn datagrams(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.conn.datagrams().recv()).map(|bytes| bytes.to_vec()).collect()
    }

    /// The packets that have to be sent, for the test to deliver.
    fn packets(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut out = Vec::new();
        while self.conn.poll_transmit(self.now, 1, &mut out).is_some() {
            packets.push(std::mem::take(&mut out));
        }
        packets
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.end.receive(self.now, FOREIGN.parse().unwrap(), None, 0, packet);
    }

    /// The end's events since the last call.
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Runs both for some milliseconds.
    fn run(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while self.now < until {
            self.step();
        }
    }

    /// Delivers what both have to send; the time passes if neither has anything.
    fn step(&mut self) {
        let (end, foreign) = (END.parse().unwrap(), FOREIGN.parse().unwrap());
        let mut out = Vec::new();
        while let Some(event) = self.conn.poll_endpoint_events() {
            let answer = self.endpoint.get().handle_event(self.handle, event);
            answer.into_iter().for_each(|event| self.conn.handle_event(event));
        }
        while let Some(event) = self.conn.poll() {
            if let quinn_proto::Event::ConnectionLost { reason: ConnectionError::ApplicationClosed(close) } =
                event
            {
                self.code = Some(close.error_code.into_inner());
            }
        }
        let mut quiet = true;
        while self.conn.poll_transmit(self.now, 1, &mut out).is_some() {
            self.end.receive(self.now, foreign, None, 0, &out);
            out.clear();
            quiet = false;
        }
        self.events.extend(std::iter::from_fn(|| self.end.poll()));
        while self.end.transmit(self.now, 1, &mut out).is_some() {
            let datagram = BytesMut::from(&out[..]);
            let event = self.endpoint.get().handle(self.now, end, None, None, datagram, &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.conn.handle_event(event);
            }
            quiet = false;
        }
        if quiet {
            self.now += Duration::from_millis(1);
            if self.conn.poll_timeout().is_some_and(|due| due <= self.now) {
                self.conn.handle_timeout(self.now);
            }
            if self.end.timer().is_some_and(|due| due <= self.now) {
                self.end.on_timer(self.now);
            }
        }
    }
}

fn header_bytes() -> Vec<u8> {
    let header = Open { client: "10.3.0.1:40000".parse().unwrap(), server: "10.1.0.1:80".parse().unwrap() };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes
}

fn another_protocol() -> Reason {
    Reason::Failed("the peer speaks another protocol".to_owned())
}

#[test]
fn a_greeting_may_arrive_byte_by_byte() {
    let mut foreign = Foreign::new(&[]);
    for byte in HELLO {
        assert_eq!(foreign.events(), []);
        foreign.say(&[byte]);
    }
    assert_eq!(foreign.events(), [Event::Up]);
    // A frame in two parts, then two frames at once.
    foreign.say_frame(Control::Full(true));
    foreign.say(&[2]);
    foreign.say(&[0, 4, 3]);
    assert_eq!(foreign.events(), [true, false, true].map(Event::Full));
    assert_eq!(foreign.end.stats().malformed, 0);
}

/// Answers are checked every 100 ms, the first time after the first interval.
#[test]
fn nothing_is_due_when_the_greeting_arrives() {
    let mut foreign = Foreign::new(&[]);
    assert_eq!(foreign.conn.send_stream(foreign.control).write(&HELLO), Ok(HELLO.len()));
    let packets = foreign.packets();
    packets.iter().for_each(|packet| foreign.deliver(packet));
    assert_eq!(foreign.end.poll(), Some(Event::Up));
    assert!(foreign.end.timer().is_some_and(|at| at > foreign.now));
}

/// While an answer is overdue, a ping is sent every 100 ms, although timers run every millisecond. QUIC adds fewer than three probes in
/// that second, since their interval doubles each time (RFC 9002, section 6.2.1).
#[test]
fn pings_during_an_outage_keep_their_interval() {
    let mut foreign = Foreign::greeted();
    let (_, stream) = foreign.opened();
    foreign.run(1000);
    assert_eq!(foreign.end.write(stream, &[0; 100]), 100);
    let pings = |foreign: &Foreign| foreign.end.connections[0].conn.stats().frame_tx.ping;
    let (mut out, mut counts) = (Vec::new(), [0; 2]);
    for count in &mut counts {
        *count = pings(&foreign);
        for _ in 0..1000 {
            while foreign.end.transmit(foreign.now, 1, &mut out).is_some() {}
            foreign.now += Duration::from_millis(1);
            foreign.end.on_timer(foreign.now);
        }
    }
    let sent = pings(&foreign) - counts[1];
    assert!(foreign.end.is_silent() && (10..13).contains(&sent), "{sent}");
}

/// The close code is 2. A connection without a greeting was never up, so it fails and does not go down.
#[test]
fn a_peer_that_speaks_another_protocol_is_given_up() {
    for greeting in [b"BPS\x01", b"HTTP"] {
        let mut foreign = Foreign::new(greeting);
        assert_eq!(foreign.events(), [Event::Failed(another_protocol())]);
        assert_eq!((foreign.end.stats().malformed, foreign.code), (1, Some(2)));
    }
    let finish = |foreign: &mut Foreign| foreign.conn.send_stream(foreign.control).finish().unwrap();
    let reset = |foreign: &mut Foreign| foreign.conn.send_stream(foreign.control).reset(RESET).unwrap();
    let kind = |foreign: &mut Foreign| foreign.say(&[5]);
    for violate in [finish, reset, kind] {
        let mut foreign = Foreign::greeted();
        let (_, stream) = foreign.opened();
        violate(&mut foreign);
        foreign.run(20);
        let expected = [Event::Lost(stream), Event::Down(another_protocol())];
        assert_eq!(foreign.events(), expected);
        assert_eq!((foreign.end.stats().malformed, foreign.code), (1, Some(2)));
    }
}

#[test]
fn credits_for_more_than_was_written_do_not_count() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    assert_eq!(foreign.end.write(stream, &[0; 100]), 100);
    let credit = |stream: u64, delivered| Control::Credit(Credit { stream, delivered });
    let acknowledged = |bytes| Event::Acknowledged { stream, bytes };
    let id = u64::from(id);
    for (frame, expected, malformed) in [
        (credit(id, 40), vec![acknowledged(40)], 0),
        // No more, and less than before: credits may be repeated, and overtake each other.
        (credit(id, 40), vec![], 0),
        (credit(id, 30), vec![], 0),
        (credit(id, 101), vec![], 1),
        (credit(id, u64::MAX), vec![], 2),
        // An unknown stream may be one that has ended.
        (credit(id + 400, 1), vec![], 2),
        (credit(id, 100), vec![acknowledged(60)], 2),
    ] {
        foreign.say_frame(frame);
        assert_eq!(foreign.events(), expected, "{frame:?}");
        assert_eq!(foreign.end.stats().malformed, malformed, "{frame:?}");
    }
}

/// Of the size that the peer announces, quinn uses all but 9 bytes. A connection without room for packets is never up, whatever follows.
#[test]
fn a_peer_that_accepts_no_or_only_short_datagrams_is_given_up() {
    for size in [None, Some(0), Some(5), Some(13), Some(14), Some(15), Some(500), Some(1008)] {
        let mut foreign = Foreign::with(&HELLO, |config| {
            config.datagram_receive_buffer_size(size);
        });
        assert_eq!(foreign.events(), [Event::Failed(another_protocol())], "{size:?}");
        assert_eq!((foreign.end.stats().malformed, foreign.code), (1, Some(2)), "{size:?}");
        assert_eq!(foreign.end.max_datagram(), None);
        assert!(matches!(foreign.end.datagram(&[0; 1500]), Err(NotSent::Down)), "{size:?}");
    }
    let mut foreign = Foreign::with(&HELLO, |config| {
        config.datagram_receive_buffer_size(Some(1009));
    });
    assert_eq!(foreign.events(), [Event::Up]);
    assert_eq!(foreign.end.max_datagram(), Some(999));
    assert_eq!(foreign.end.wire_len(1500), 1500 + 2 * (28 + 30 + 5));
    foreign.end.datagram(&[0; 1500]).unwrap();
    foreign.run(20);
    // The foreign side has room for the last one only.
    assert_eq!(foreign.datagrams().iter().map(Vec::len).collect::<Vec<_>>(), [755]);
    assert_eq!(foreign.end.stats().fragmented_ip, 1);
}

/// A fragment has room for 995 bytes, and 64 of them for 63,680.
#[test]
fn a_packet_that_is_too_long_is_not_counted_as_sent() {
    let mut foreign = Foreign::with(&HELLO, |config| {
        config.datagram_receive_buffer_size(Some(1009));
    });
    assert!(matches!(foreign.end.datagram(&vec![0; 64 * 995 + 1]), Err(NotSent::Length)));
    assert_eq!(foreign.end.stats().sent_ip, 0);
    foreign.end.datagram(&vec![0; 64 * 995]).unwrap();
    assert_eq!((foreign.end.stats().sent_ip, foreign.end.stats().fragmented_ip), (1, 1));
}

#[test]
fn malformed_datagrams_are_counted() {
    let mut foreign = Foreign::greeted();
    for datagram in [&[][..], &[7, 7], &[0], &[1, 0, 0, 1, 1, 9], &[0, 0x45]] {
        foreign.conn.datagrams().send(Bytes::copy_from_slice(datagram), true).unwrap();
    }
    foreign.run(20);
    assert_eq!(foreign.events(), [Event::Datagram(vec![0x45])]);
    let stats = foreign.end.stats();
    assert_eq!((stats.malformed, stats.received_ip), (4, 1));
}

#[test]
fn streams_with_malformed_headers_are_reset() {
    let mut foreign = Foreign::greeted();
    let wrong = foreign.open(&[0x45]);
    let short = foreign.open(&header_bytes()[..12]);
    assert!(foreign.is_reset(wrong) && !foreign.is_reset(short));
    foreign.conn.send_stream(short).finish().unwrap();
    foreign.run(20);
    assert!(foreign.is_reset(short));
    // A header in two parts is valid.
    let parts = foreign.open(&header_bytes()[..12]);
    foreign.conn.send_stream(parts).write(&header_bytes()[12..]).unwrap();
    foreign.run(20);
    assert!(matches!(foreign.events()[..], [Event::Opened { .. }]));
    let stats = foreign.end.stats();
    assert_eq!((stats.malformed, stats.streams), (2, 1));
}

/// A reset on the control stream overtakes its stream. Only a stream that the peer may still open is remembered.
#[test]
fn a_stream_that_is_reset_before_it_arrives_is_not_opened() {
    let mut foreign = Foreign::greeted();
    let (_, stream) = foreign.opened();
    // The peer's second and fourth stream, its control stream, and this end's first one.
    for id in [4, 12, 2, 1] {
        foreign.say_frame(Control::Reset(id));
    }
    assert_eq!(foreign.end.early_resets.len(), 2);
    let second = foreign.open(&header_bytes());
    assert_eq!(foreign.events(), []);
    let (third, _) = foreign.opened();
    let fourth = foreign.open(&header_bytes());
    assert_eq!(foreign.events(), []);
    assert_eq!([second, third, fourth].map(|id| foreign.is_reset(id)), [true, false, true]);
    assert_eq!([second, third, fourth].map(u64::from), [4, 8, 12]);
    assert!(foreign.end.early_resets.is_empty());
    let (_, fifth) = foreign.opened();
    // One that has arrived is reset at once, and not remembered when it is no more: the first, and the last.
    for (id, stream) in [(0, stream), (16, fifth)] {
        foreign.say_frame(Control::Reset(id));
        foreign.say_frame(Control::Reset(id));
        assert_eq!(foreign.events(), [Event::Reset(stream)]);
        assert!(foreign.end.early_resets.is_empty());
    }
}

#[test]
fn at_most_a_thousand_early_resets_are_remembered() {
    let mut foreign = Foreign::greeted();
    for index in 0..2000 {
        foreign.say_frame(Control::Reset(4 * index));
    }
    assert_eq!(foreign.end.early_resets.len(), MOST_EARLY_RESETS);
}

#[test]
fn no_event_names_a_stream_after_its_reset() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    let (_, other) = foreign.opened();
    foreign.end.events.extend([Event::Readable(stream), Event::Full(true), Event::Readable(other)]);
    foreign.end.reset(stream);
    foreign.run(20);
    assert_eq!(foreign.events(), [Event::Full(true), Event::Readable(other)]);
    assert!(foreign.is_reset(id));
}

#[test]
fn frames_in_reordered_packets_are_read_in_order() {
    let mut foreign = Foreign::greeted();
    let is_full = |n: &u32| n * n % 7 < 3;
    let frames: Vec<u8> = (0..4200).map(|n| if is_full(&n) { 3 } else { 4 }).collect();
    assert_eq!(foreign.conn.send_stream(foreign.control).write(&frames), Ok(frames.len()));
    let packets = foreign.packets();
    assert!(packets.len() >= 3, "{}", packets.len());
    packets.iter().rev().for_each(|packet| foreign.deliver(packet));
    foreign.run(20);
    let expected: Vec<_> = (0..4200).map(|n| Event::Full(is_full(&n))).collect();
    assert_eq!(foreign.events(), expected);
}

#[test]
fn a_full_end_says_so_on_its_control_stream() {
    let mut foreign = Foreign::greeted();
    assert_eq!(foreign.told(), HELLO);
    foreign.end.set_full(true);
    foreign.end.set_full(false);
    foreign.run(20);
    assert_eq!(foreign.told(), [3, 4]);
    // The peer's window of 1000 bytes is full, until it has read.
    (0..1500).for_each(|_| foreign.end.set_full(true));
    foreign.run(20);
    let first = foreign.told().len();
    foreign.run(20);
    assert!((900..=1000).contains(&first), "{first}");
    assert_eq!(first + foreign.told().len(), 1500);
}

/// The codes of the crate; another one is not known.
#[test]
fn a_close_code_tells_the_reason() {
    let reason = |code: u32| {
        let mut foreign = Foreign::greeted();
        foreign.conn.close(foreign.now, VarInt::from_u32(code), Bytes::new());
        foreign.run(20);
        match foreign.events().pop() {
            Some(Event::Down(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([reason(0), reason(1)], [Reason::Closed, Reason::Replaced]);
    assert!(matches!(reason(2), Reason::Failed(_)));
}

#[test]
fn streams_beyond_the_limit_are_reset() {
    let mut foreign = Foreign::greeted();
    foreign.end.setup.streams = 2;
    let ids = [(); 3].map(|()| foreign.open(&header_bytes()));
    assert_eq!(ids.map(|id| foreign.is_reset(id)), [false, false, true]);
    let stats = foreign.end.stats();
    assert_eq!((stats.opened, stats.streams, stats.refused_streams), (2, 2, 1));
}

/// A credit waits for a share of the round trip, here for the shortest interval of 5 ms, and covers all that was delivered
/// meanwhile. It is repeated half a second later, once.
#[test]
fn a_credit_covers_all_deliveries_of_an_interval() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    foreign.conn.send_stream(id).write(&[0; 30]).unwrap();
    foreign.run(20);
    foreign.told();
    assert_eq!(foreign.end.read(stream, &mut [0; 100]), 30);
    // Delivered in three parts; no more than was received counts.
    for bytes in [10, 15, 50] {
        foreign.end.delivered(stream, bytes);
        foreign.run(1);
    }
    assert_eq!(foreign.datagrams(), <[Vec<u8>; 0]>::default());
    foreign.run(4);
    assert_eq!(foreign.datagrams(), [[2, 0, 30]]);
    assert!(foreign.end.timer().is_some_and(|at| at > foreign.now));
    foreign.run(490);
    assert_eq!(foreign.told(), []);
    foreign.run(20);
    assert_eq!(foreign.told(), [1, 0, 30]);
    foreign.run(2000);
    assert_eq!((foreign.told(), foreign.datagrams()), (vec![], vec![]));
}

/// 32 packets of 1472 bytes are 47,104.
#[test]
fn a_credit_for_many_bytes_is_sent_at_once() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    let mut buffer = vec![0; 100_000];
    for (bytes, waits) in [(47_103, true), (47_104, false), (47_103, true)] {
        foreign.conn.send_stream(id).write(&vec![0; bytes]).unwrap();
        foreign.run(40);
        assert_eq!(foreign.end.read(stream, &mut buffer), bytes);
        foreign.datagrams();
        foreign.end.delivered(stream, bytes as u64);
        foreign.run(1);
        assert_eq!(foreign.datagrams().is_empty(), waits, "{bytes}");
        foreign.run(20);
    }
}

/// Credits a tenth of a second apart: only the last is repeated, half a second to a second later.
#[test]
fn a_credit_that_another_follows_is_not_repeated() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    foreign.told();
    for _ in 0..13 {
        foreign.conn.send_stream(id).write(&[0; 3]).unwrap();
        foreign.run(50);
        assert_eq!(foreign.end.read(stream, &mut [0; 100]), 3);
        foreign.end.delivered(stream, 3);
        foreign.run(50);
        assert_eq!(foreign.told(), []);
    }
    foreign.run(1000);
    assert_eq!(foreign.told(), [1, 0, 39]);
}

/// Both directions finished, everything delivered: the last credit does not wait, neither for the datagrams' interval nor for the
/// repetition.
#[test]
fn the_last_credit_of_a_stream_is_sent_at_once_on_the_control_stream() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    foreign.conn.send_stream(id).write(&[0; 30]).unwrap();
    foreign.run(20);
    foreign.told();
    assert_eq!(foreign.end.read(stream, &mut [0; 20]), 20);
    foreign.end.delivered(stream, 20);
    foreign.run(20);
    assert_eq!((foreign.told(), foreign.datagrams()), (vec![], vec![vec![2, 0, 20]]));
    foreign.conn.send_stream(id).finish().unwrap();
    foreign.end.finish(stream);
    foreign.run(20);
    // Reading on changes nothing.
    assert_eq!([(); 2].map(|()| foreign.end.read(stream, &mut [0; 20])), [10, 0]);
    foreign.end.delivered(stream, 10);
    foreign.run(7);
    assert_eq!((foreign.told(), foreign.datagrams()), (vec![1, 0, 30], vec![]));
    foreign.run(60);
    let events = foreign.events();
    assert_eq!(
        events,
        [Event::Readable(stream), Event::Readable(stream), Event::Finished(stream), Event::Closed(stream)]
    );
    // A stream without data needs no credit.
    let (id, stream) = foreign.opened();
    foreign.conn.send_stream(id).finish().unwrap();
    foreign.end.finish(stream);
    foreign.run(20);
    assert_eq!(foreign.end.read(stream, &mut [0; 20]), 0);
    foreign.run(60);
    assert!(foreign.events().ends_with(&[Event::Closed(stream)]));
    assert_eq!((foreign.told(), foreign.datagrams()), (vec![], vec![]));
}

/// QUIC's windows do not bound what arrives behind a gap, since it is taken from QUIC at once: twice the window of all streams does.
#[test]
fn a_peer_that_leaves_gaps_cannot_fill_the_memory() {
    let mut foreign = Foreign::greeted();
    let (id, stream) = foreign.opened();
    // As if other streams held all but 1000 bytes.
    let others = 2 * foreign.end.setup.window - 1000;
    foreign.end.scattered = others;
    let mut withheld = Vec::new();
    for (bytes, is_kept) in [(100, false), (1000, true), (1, true)] {
        foreign.conn.send_stream(id).write(&vec![7; bytes]).unwrap();
        let packets = foreign.packets();
        assert_eq!(packets.len(), 1);
        assert!(foreign.end.find(stream).is_some());
        if is_kept {
            foreign.deliver(&packets[0]);
            assert_eq!(foreign.end.scattered, others + if bytes == 1000 { 1000 } else { 0 });
        } else {
            withheld = packets;
        }
    }
    assert_eq!(foreign.end.poll(), Some(Event::Reset(stream)));
    assert_eq!(foreign.end.scattered, others);
    foreign.deliver(&withheld[0]);
    foreign.run(20);
    assert_eq!(foreign.events(), []);
}

/// A peer that reads nothing of the control stream, and makes this end write to it.
#[test]
fn a_peer_that_does_not_read_resets_is_given_up() {
    let mut foreign = Foreign::with(&HELLO, |config| {
        config.stream_receive_window(VarInt::from_u32(0));
    });
    foreign.end.setup.streams = 0;
    // As if the resets of many streams had been written.
    let pending = |foreign: &mut Foreign| std::mem::take(&mut foreign.end.connections[0].control_pending);
    foreign.open(&header_bytes());
    let first = pending(&mut foreign);
    assert_eq!(first[HELLO.len()..], [2, 0]);
    foreign.end.connections[0].control_pending = vec![3; MOST_CONTROL - 2];
    foreign.open(&header_bytes());
    assert_eq!(foreign.events(), [Event::Up]);
    foreign.open(&header_bytes());
    assert_eq!(foreign.events(), [Event::Down(another_protocol())]);
    assert_eq!((foreign.end.stats().malformed, foreign.code), (1, Some(2)));
}

#[test]
fn headers_of_ip_and_udp_have_28_or_48_bytes() {
    for (to, expected) in [("192.0.2.1:1", 28), ("[2001:db8::1]:1", 48), ("[::ffff:192.0.2.1]:1", 28)] {
        assert_eq!(header(to.parse().unwrap()), expected, "{to}");
    }
}
