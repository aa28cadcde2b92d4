//! An end whose peer has the key but violates the protocol.

use std::time::{Duration, Instant};

use super::*;

/// RFC 9000, section 13.2.1: all frames but ACK, PADDING and CONNECTION_CLOSE.
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
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
    fn new(greeting: &[u8]) -> Self {
        let now = Instant::now();
        let [own, other] = ["end", "foreign"].map(|name| Identity::generate(name).unwrap());
        let (certificate, trip) = (own.certificate(), Duration::from_millis(10));
        let end = Setup::new(own, other.certificate(), None, trip);
        let end = Spacelink::listen(&end, None, now).unwrap();
        let setup = Setup::new(other, certificate.clone(), None, trip);
        let config = keys::client(&setup.identity, &certificate).unwrap();
        let mut config = ClientConfig::new(Arc::new(config));
        config.transport_config(Arc::new(setup.parameters().transport(&Arc::default())));
        let endpoint = SharedEndpoint::new(&setup, None);
        let made = endpoint.get().connect(now, config, END.parse().unwrap(), "spacelink");
        let (handle, conn) = made.unwrap();
        let control = StreamId::new(quinn_proto::Side::Client, Dir::Uni, 0);
        let mut foreign = Self { end, events: Vec::new(), endpoint, handle, conn, control, code: None, now };
        foreign.run(20);
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

    /// The end's events since the last call.
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Runs both for some milliseconds.
    fn run(&mut self, ms: u64) {
        let (end, foreign) = (END.parse().unwrap(), FOREIGN.parse().unwrap());
        let until = self.now + Duration::from_millis(ms);
        let mut out = Vec::new();
        while self.now < until {
            while let Some(event) = self.conn.poll_endpoint_events() {
                let answer = self.endpoint.get().handle_event(self.handle, event);
                answer.into_iter().for_each(|event| self.conn.handle_event(event));
            }
            while let Some(event) = self.conn.poll() {
                if let quinn_proto::Event::ConnectionLost {
                    reason: ConnectionError::ApplicationClosed(close),
                } = event
                {
                    self.code = Some(close.error_code.into_inner());
                }
            }
            let mut quiet = true;
            out.clear();
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
    // The peer's second and third stream, its control stream, and this end's first one.
    for id in [4, 8, 2, 1] {
        foreign.say_frame(Control::Reset(id));
    }
    assert_eq!(foreign.end.early_resets.len(), 2);
    let (second, third) = (foreign.open(&header_bytes()), foreign.open(&header_bytes()));
    assert_eq!((u64::from(second), u64::from(third)), (4, 8));
    assert_eq!(foreign.events(), []);
    assert!(foreign.is_reset(second) && foreign.is_reset(third) && foreign.end.early_resets.is_empty());
    let (_, fourth) = foreign.opened();
    // One that has arrived is reset at once, and not remembered when it is no more.
    for _ in 0..2 {
        foreign.say_frame(Control::Reset(0));
    }
    assert_eq!(foreign.events(), [Event::Reset(stream)]);
    assert!(foreign.end.early_resets.is_empty() && foreign.end.find(fourth).is_some());
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
