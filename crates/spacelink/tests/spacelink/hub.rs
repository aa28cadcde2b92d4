//! Many terminals behind one hub, 300 ms away, on a virtual clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_spacelink::{
    Certificate, Event, Hub, Identity, NotSent, Open, PeerId, Reason, Setup, Spacelink, Stats, StreamKey,
};
use bentpipe_units::Rate;

use crate::net::bytes;

const DELAY: Duration = Duration::from_millis(300);
const ADDRESS: &str = "192.0.2.1:4433";

struct Terminal {
    link: Spacelink,
    address: SocketAddr,
    certificate: Certificate,
    events: Vec<Event>,
}

struct Beam {
    start: Instant,
    now: Instant,
    hub: Hub,
    /// By the order in which they were made; removed ones too.
    events: Vec<(Option<PeerId>, Event)>,
    /// Bytes read from each stream.
    read: BTreeMap<StreamKey, Vec<u8>>,
    terminals: Vec<Terminal>,
    certificate: Certificate,
    /// Datagrams in flight: to the hub from an address, or to an address.
    air: BTreeMap<(Instant, u64), (bool, SocketAddr, Vec<u8>)>,
    number: u64,
}

fn setup(identity: Identity, peer: Option<Certificate>, seed: u8) -> Setup {
    let own = identity.certificate();
    let made = Setup::new(identity, own, None, 2 * DELAY);
    Setup { peer, seed: Some([seed; 32]), ..made }
}

impl Beam {
    /// A hub that knows `count` terminals, all of which connect.
    fn new(count: u8) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
        let start = Instant::now();
        let own = Identity::generate("gateway").unwrap();
        let certificate = own.certificate();
        let hub = Hub::listen(&setup(own, None, 0), start).unwrap();
        let mut beam = Self::with(hub, certificate, start);
        for n in 0..count {
            beam.add(n, true);
        }
        beam
    }

    /// A hub that has only one terminal.
    fn single() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test's times")]
        let start = Instant::now();
        let [own, other] = ["gateway", "terminal"].map(|name| Identity::generate(name).unwrap());
        let (certificate, peer) = (own.certificate(), other.certificate());
        let listening = Spacelink::listen(&setup(own, Some(peer.clone()), 0), None, start).unwrap();
        let mut beam = Self::with(Hub::of(listening), certificate, start);
        beam.connect(0, other);
        beam
    }

    fn with(hub: Hub, certificate: Certificate, start: Instant) -> Self {
        Self {
            start,
            now: start,
            hub,
            events: Vec::new(),
            read: BTreeMap::new(),
            terminals: Vec::new(),
            certificate,
            air: BTreeMap::new(),
            number: 0,
        }
    }

    /// Makes a terminal that connects; the hub accepts it if `known`.
    fn add(&mut self, n: u8, known: bool) -> Option<PeerId> {
        let identity = Identity::generate("terminal").unwrap();
        let certificate = identity.certificate();
        let peer = known.then(|| self.hub.add(&certificate));
        self.connect(n, identity);
        peer
    }

    fn connect(&mut self, n: u8, identity: Identity) {
        let certificate = identity.certificate();
        let setup = setup(identity, Some(self.certificate.clone()), n + 1);
        let link = Spacelink::connect(&setup, ADDRESS.parse().unwrap(), self.now).unwrap();
        let address = format!("198.51.100.{n}:50000").parse().unwrap();
        self.terminals.push(Terminal { link, address, certificate, events: Vec::new() });
    }

    fn work(&mut self) {
        while let Some((peer, event)) = self.hub.poll() {
            if let (Some(peer), Event::Readable(key)) = (peer, &event) {
                let mut buffer = [0; 65_536];
                assert_eq!(key.peer(), peer);
                let count = self.hub.read(*key, &mut buffer);
                self.hub.delivered(*key, count as u64);
                self.read.entry(*key).or_default().extend_from_slice(&buffer[..count]);
            }
            self.events.push((peer, event));
        }
        for terminal in &mut self.terminals {
            while let Some(event) = terminal.link.poll() {
                terminal.events.push(event);
            }
        }
        let mut out = Vec::new();
        while let Some(sent) = self.hub.transmit(self.now, 1, &mut out) {
            self.number += 1;
            self.air.insert((self.now + DELAY, self.number), (false, sent.to, out.clone()));
        }
        for terminal in &mut self.terminals {
            while terminal.link.transmit(self.now, 1, &mut out).is_some() {
                self.number += 1;
                self.air.insert((self.now + DELAY, self.number), (true, terminal.address, out.clone()));
            }
        }
    }

    /// Advances by `time`.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.work();
            let timers = self.terminals.iter_mut().filter_map(|terminal| terminal.link.timer());
            let arrival = self.air.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.chain(arrival).chain(self.hub.timer()).min().filter(|at| *at < until)
            else {
                self.now = until;
                return;
            };
            self.now = next.max(self.now);
            while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to_hub, address, datagram) = entry.remove();
                if to_hub {
                    self.hub.receive(self.now, address, None, 0, &datagram);
                } else if let Some(terminal) = self.terminals.iter_mut().find(|t| t.address == address) {
                    terminal.link.receive(self.now, ADDRESS.parse().unwrap(), None, 0, &datagram);
                }
            }
            if self.hub.timer().is_some_and(|at| at <= self.now) {
                self.hub.on_timer(self.now);
            }
            for terminal in &mut self.terminals {
                if terminal.link.timer().is_some_and(|at| at <= self.now) {
                    terminal.link.on_timer(self.now);
                }
            }
        }
    }

    fn up(&self) -> Vec<PeerId> {
        self.hub.peers().filter(|peer| self.hub.link(*peer).is_some_and(Spacelink::is_up)).collect()
    }

    /// Has terminal `n` open a stream and write `length` bytes that begin at `from`.
    fn send(&mut self, n: usize, from: u64, length: usize) -> StreamKey {
        let header = Open {
            client: format!("10.3.{n}.1:40000").parse().unwrap(),
            server: "10.1.0.1:80".parse().unwrap(),
        };
        let key = self.terminals[n].link.open(&header).unwrap();
        assert_eq!(self.terminals[n].link.write(key, &bytes(from, length)), length);
        key
    }

    /// Bytes of terminal `n` that the hub has delivered.
    fn acknowledged(&self, n: usize) -> u64 {
        let bytes = |event: &Event| if let Event::Acknowledged { bytes, .. } = event { *bytes } else { 0 };
        self.terminals[n].events.iter().map(bytes).sum()
    }

    /// The peers that are charged, each with the bytes, if 50 bytes were released for each.
    fn charge(&mut self) -> Vec<(PeerId, u64)> {
        let mut charged = Vec::new();
        self.hub.charge(|_| 50, |peer, _, bytes| charged.push((peer, bytes)));
        charged.sort();
        charged
    }

    fn saw(&self, peer: PeerId, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(whose, event)| *whose == Some(peer) && wanted(event))
    }
}

#[test]
fn a_certificate_decides_which_peer_a_terminal_is() {
    let mut beam = Beam::new(4);
    beam.run(Duration::from_secs(2));
    assert_eq!(beam.up(), (0..4).map(PeerId).collect::<Vec<_>>());
    assert!(beam.hub.peers().all(|peer| !beam.hub.is_silent(peer)));
    assert!(beam.hub.max_chunk() > 1000 && beam.hub.max_chunk() == beam.terminals[0].link.max_chunk());
    for n in 0..4 {
        beam.send(n, 1000 * n as u64, 5000);
    }
    beam.run(Duration::from_secs(2));
    assert_eq!(beam.read.len(), 4);
    for (n, peer) in (0..4).map(PeerId).enumerate() {
        let (key, read) = beam.read.iter().find(|(key, _)| key.peer() == peer).unwrap();
        assert_eq!(*read, bytes(1000 * n as u64, 5000), "bytes of terminal {n}");
        let client = format!("10.3.{n}.1:40000").parse().unwrap();
        let opened = |event: &Event| matches!(event, Event::Opened { stream, header } if stream == key && header.client == client);
        assert!(beam.saw(peer, opened));
        assert_eq!(beam.acknowledged(n), 5000);
        // A key is of no use for another peer, whose stream has the same place.
        let (key, other) = (*key, PeerId((peer.0 + 1) % 4));
        assert_eq!(beam.hub.link_mut(other).unwrap().write(key, b"x"), 0);
    }
    assert_eq!((beam.hub.stats().opened, beam.hub.stats().connections), (4, 4));
    // Everything in flight has arrived: the hub's counters are those of the terminals.
    while !beam.air.is_empty() {
        beam.run(Duration::from_millis(1));
    }
    let (hub, terminals) = (beam.hub.stats(), beam.terminals.iter().map(|terminal| terminal.link.stats()));
    let all = terminals.reduce(|all, one| all.with(&one)).unwrap();
    assert_eq!((hub.received_datagrams, hub.received_bytes), (all.sent_datagrams, all.sent_bytes));
    assert_eq!((hub.sent_datagrams, hub.sent_bytes), (all.received_datagrams, all.received_bytes));
}

#[test]
fn an_unknown_certificate_is_refused_and_disturbs_nobody() {
    let mut beam = Beam::new(1);
    assert_eq!(beam.add(1, false), None);
    beam.run(Duration::from_secs(3));
    assert_eq!(beam.up(), [PeerId(0)]);
    let refused = |event: &Event| matches!(event, Event::Failed(Reason::Refused(_)));
    assert!(beam.events.iter().any(|(whose, event)| whose.is_none() && refused(event)), "{:?}", beam.events);
    // TLS 1.3: the client is told after its own handshake.
    assert!(beam.terminals[1].events.iter().any(refused), "{:?}", beam.terminals[1].events);
    let shown: Vec<_> = std::iter::from_fn(|| beam.hub.take_refused()).collect();
    assert!(
        !shown.is_empty() && shown.iter().all(|certificate| *certificate == beam.terminals[1].certificate)
    );
}

/// At 8 kbit/s a datagram takes more than a second. Once the rate has no limit, the next does not wait for the end of that.
#[test]
fn a_higher_rate_sends_at_once_what_the_lower_held_back() {
    let mut beam = Beam::new(1);
    beam.run(Duration::from_secs(2));
    let header = Open { client: "10.3.0.1:40000".parse().unwrap(), server: "10.1.0.1:80".parse().unwrap() };
    let key = beam.hub.open(PeerId(0), &header).unwrap();
    beam.hub.set_rate(Some(Rate::from_bps(8000)));
    assert_eq!(beam.hub.write(key, &[1; 50_000]), 50_000);
    let mut out = Vec::new();
    assert!(beam.hub.transmit(beam.now, 1, &mut out).is_some());
    assert_eq!(beam.hub.transmit(beam.now, 1, &mut out), None);
    beam.hub.set_rate(None);
    assert!(beam.hub.transmit(beam.now, 1, &mut out).is_some());
}

/// A terminal that vanishes after its first datagram is given up once, and the hub has no timer in the past then.
#[test]
fn a_handshake_that_stops_half_way_is_given_up_once() {
    let mut beam = Beam::new(1);
    beam.run(DELAY + Duration::from_millis(1));
    beam.terminals.clear();
    let end = beam.start + Duration::from_secs(60);
    let mut turns = 0;
    while let Some(at) = beam.hub.timer().filter(|at| *at < end) {
        beam.now = beam.now.max(at);
        beam.hub.on_timer(beam.now);
        beam.work();
        turns += 1;
        assert!(turns < 1000, "the timer stays at {:?}", at - beam.start);
    }
    let failed = |event: &&(Option<PeerId>, Event)| matches!(event, (None, Event::Failed(_)));
    assert_eq!(beam.events.iter().filter(failed).count(), 1, "{:?}", beam.events);
}

/// A terminal may open 448 streams within a round trip, and further ones as those are open: QUIC keeps memory for each stream that
/// may be opened.
#[test]
fn a_terminal_may_open_more_streams_as_it_uses_them() {
    let mut beam = Beam::new(1);
    beam.run(Duration::from_secs(2));
    let header = Open { client: "10.3.0.1:40000".parse().unwrap(), server: "10.1.0.1:80".parse().unwrap() };
    let mut opened = Vec::new();
    // Exactly half of those allowed is not more than half: 224 of 448, and 448 of 896.
    for most in [224, 5000, 1, 5000, 5000] {
        let link = &mut beam.terminals[0].link;
        opened.push(std::iter::from_fn(|| link.open(&header)).take(most).count());
        beam.run(Duration::from_secs(2));
    }
    assert_eq!(opened, [224, 224, 1, 1792 - 449, 1792]);
    assert_eq!(beam.terminals[0].link.stats().refused_streams, 3);
    assert_eq!(beam.hub.link(PeerId(0)).unwrap().streams(), 3584);
}

/// RFC 9000, section 9: a connection survives a change of the client's address.
#[test]
fn a_terminal_keeps_its_streams_when_its_address_changes() {
    let mut beam = Beam::new(2);
    beam.run(Duration::from_secs(2));
    let key = beam.send(1, 0, 1000);
    beam.run(Duration::from_secs(1));
    beam.terminals[1].address = "203.0.113.77:1234".parse().unwrap();
    assert_eq!(beam.terminals[1].link.write(key, &bytes(1000, 1000)), 1000);
    beam.run(Duration::from_secs(3));
    assert_eq!(beam.read.values().next().unwrap(), &bytes(0, 2000));
    assert_eq!(beam.hub.link(PeerId(1)).unwrap().peer(), Some(beam.terminals[1].address));
    assert!(!beam.saw(PeerId(1), |event| matches!(event, Event::Down(_))));
}

#[test]
fn a_lost_terminal_takes_only_its_own_streams() {
    let mut beam = Beam::new(3);
    beam.run(Duration::from_secs(2));
    for n in 0..3 {
        beam.send(n, 0, 100);
    }
    beam.run(Duration::from_secs(1));
    // Silent from now on; the others go on past the idle time-out of three minutes.
    beam.terminals[1].address = "203.0.113.99:9".parse().unwrap();
    beam.terminals.remove(1);
    beam.run(Duration::from_secs(200));
    assert_eq!(beam.up(), [PeerId(0), PeerId(2)]);
    assert!(beam.saw(PeerId(1), |event| matches!(event, Event::Lost(_))));
    assert!(beam.saw(PeerId(1), |event| *event == Event::Down(Reason::Silent)));
    for peer in [PeerId(0), PeerId(2)] {
        assert!(!beam.saw(peer, |event| matches!(event, Event::Lost(_) | Event::Down(_))));
    }
}

#[test]
fn removed_and_added_peers_leave_the_others_alone() {
    let mut beam = Beam::new(3);
    beam.run(Duration::from_secs(2));
    for n in 0..3 {
        beam.send(n, 0, 100);
    }
    beam.run(Duration::from_secs(1));
    // The others wait to be polled, to send, to be charged and to have their timers read.
    for peer in [PeerId(0), PeerId(2)] {
        assert_eq!(beam.hub.datagram(peer, &[0x45; 20]), Ok(()));
    }
    let removed = beam.terminals[1].certificate.clone();
    let events = beam.hub.remove(PeerId(1), beam.now);
    let mut charged = Vec::new();
    beam.hub.charge(|_| 0, |peer, _, _| charged.push(peer));
    charged.sort();
    assert_eq!(charged, [PeerId(0), PeerId(2)]);
    assert_eq!(beam.hub.remove(PeerId(1), beam.now), []);
    assert!(matches!(events[..], [Event::Lost(_), Event::Down(Reason::Closed)]), "{events:?}");
    beam.run(Duration::from_secs(5));
    assert_eq!(beam.up(), [PeerId(0), PeerId(2)]);
    let told = &beam.terminals[1].events;
    assert!(told.contains(&Event::Down(Reason::Closed)), "{told:?}");
    // It tries again, and is refused as an unknown one.
    beam.run(Duration::from_secs(2));
    assert_eq!(beam.hub.take_refused(), Some(removed));
    for n in [0, 2] {
        assert!(beam.terminals[n].events.contains(&Event::Datagram(vec![0x45; 20])));
        beam.send(n, 0, 700);
    }
    beam.run(Duration::from_secs(1));
    assert_eq!([0, 2].map(|n| beam.acknowledged(n)), [800, 800]);
    // Its number is used again, and nothing of the former peer with it.
    assert_eq!(beam.add(7, true), Some(PeerId(1)));
    beam.run(Duration::from_secs(5));
    assert_eq!(beam.up(), [PeerId(0), PeerId(1), PeerId(2)]);
    assert_eq!(beam.hub.link(PeerId(1)).unwrap().stats().streams, 0);
    for peer in [PeerId(0), PeerId(2)] {
        assert!(!beam.saw(peer, |event| matches!(event, Event::Lost(_) | Event::Down(_))));
    }
    assert!(beam.start < beam.now);
}

#[test]
fn a_restarted_terminal_replaces_its_connection() {
    let mut beam = Beam::new(1);
    let identity = Identity::generate("terminal").unwrap();
    let certificate = identity.certificate();
    let peer = beam.hub.add(&certificate);
    let setup = setup(identity, Some(beam.certificate.clone()), 9);
    for n in [20, 21] {
        let link = Spacelink::connect(&setup, ADDRESS.parse().unwrap(), beam.now).unwrap();
        let address = format!("198.51.100.{n}:50000").parse().unwrap();
        beam.terminals.push(Terminal { link, address, certificate: certificate.clone(), events: Vec::new() });
        beam.run(Duration::from_secs(2));
        assert_eq!(beam.hub.link(peer).unwrap().peer(), Some(address));
    }
    assert!(beam.saw(peer, |event| *event == Event::Down(Reason::Replaced)));
    assert_eq!(beam.up().len(), 2);
}

#[test]
fn operations_go_to_the_peer_that_is_named() {
    let mut beam = Beam::new(2);
    assert!(!beam.hub.is_up() && !beam.hub.is_peer_up(PeerId(1)));
    beam.run(Duration::from_secs(2));
    let unknown = PeerId(9);
    assert!(beam.hub.is_up() && beam.hub.is_peer_up(PeerId(1)) && !beam.hub.is_peer_up(unknown));
    let header = Open { client: "10.1.0.1:40000".parse().unwrap(), server: "10.3.1.1:80".parse().unwrap() };
    let [kept, reset] = [(); 2].map(|()| beam.hub.open(PeerId(1), &header).unwrap());
    assert_eq!(beam.hub.open(unknown, &header), None);
    assert_eq!(beam.hub.write(kept, &bytes(0, 300)), 300);
    beam.hub.finish(kept);
    assert_eq!(beam.hub.datagram(PeerId(1), &[0x45; 100]), Ok(()));
    assert_eq!(beam.hub.datagram(unknown, &[0x45; 100]), Err(NotSent::Down));
    // The hand-worked length of the other test, and the packet's own while nobody is connected.
    assert_eq!((beam.hub.wire_len(PeerId(1), 100), beam.hub.wire_len(unknown, 100)), (159, 100));
    beam.run(Duration::from_millis(400));
    beam.hub.reset(reset);
    beam.run(Duration::from_millis(400));
    let Terminal { link, events, .. } = &mut beam.terminals[1];
    let opened: Vec<_> = events
        .iter()
        .filter_map(|event| if let Event::Opened { stream, .. } = event { Some(*stream) } else { None })
        .collect();
    assert_eq!(opened.len(), 2);
    let mut buffer = [0; 1000];
    assert_eq!((link.read(opened[0], &mut buffer), &buffer[..300]), (300, &bytes(0, 300)[..]));
    assert_eq!(link.poll(), Some(Event::Finished(opened[0])));
    assert!(events.contains(&Event::Reset(opened[1])) && events.contains(&Event::Datagram(vec![0x45; 100])));
    assert!(beam.terminals[0].events.iter().all(|event| *event == Event::Up));
}

/// Counted bytes: 50 for each peer.
#[test]
fn only_peers_with_something_to_charge_are_charged() {
    let mut beam = Beam::new(3);
    beam.run(Duration::from_secs(2));
    let sent = |beam: &Beam, peer| beam.hub.link(peer).unwrap().stats().sent_bytes;
    let all: Vec<_> = (0..3).map(PeerId).map(|peer| (peer, sent(&beam, peer) - 50)).collect();
    assert_eq!(beam.charge(), all);
    assert_eq!(beam.charge(), []);
    let before = sent(&beam, PeerId(1));
    beam.hub.datagram(PeerId(1), &[0x45; 1000]).unwrap();
    beam.work();
    assert_eq!(beam.charge(), [(PeerId(1), sent(&beam, PeerId(1)) - before - 50)]);
}

/// The only peer of a hub is charged each time, since time counts during an outage.
#[test]
fn the_hub_of_one_peer_is_that_peer() {
    let mut beam = Beam::single();
    beam.run(Duration::from_secs(2));
    assert_eq!(beam.up(), [PeerId(0)]);
    beam.send(0, 0, 100);
    beam.run(Duration::from_secs(1));
    assert_eq!(beam.acknowledged(0), 100);
    let sent = beam.hub.stats().sent_bytes;
    assert_eq!(beam.charge(), [(PeerId(0), sent - 50)]);
    assert_eq!(beam.charge(), [(PeerId(0), 0)]);
    let before = beam.hub.link(PeerId(0)).unwrap().stats();
    assert_eq!(beam.hub.stats(), before);
}

/// 8 Mbit/s carry 20,000 bytes in the 20 ms that packets may be ahead.
#[test]
fn a_new_rate_holds_for_every_peer() {
    let mut beam = Beam::new(2);
    beam.run(Duration::from_secs(2));
    beam.hub.set_rate(Some(Rate::from_bps(8_000_000)));
    let header = Open { client: "10.1.0.1:40000".parse().unwrap(), server: "10.3.1.1:80".parse().unwrap() };
    for peer in [PeerId(0), PeerId(1)] {
        let before = beam.hub.link(peer).unwrap().stats().sent_bytes;
        let key = beam.hub.open(peer, &header).unwrap();
        assert_eq!(beam.hub.write(key, &bytes(0, 100_000)), 100_000);
        beam.work();
        let sent = beam.hub.link(peer).unwrap().stats().sent_bytes - before;
        assert!((18_500..=21_500).contains(&sent), "{sent}");
    }
}

#[test]
fn a_terminal_whose_host_reports_a_closed_port_is_given_up() {
    let mut beam = Beam::new(2);
    beam.run(Duration::from_secs(2));
    let host = beam.terminals.remove(1).address.ip();
    beam.hub.datagram(PeerId(1), &[0x45; 100]).unwrap();
    beam.run(Duration::from_secs(5));
    assert_eq!([PeerId(0), PeerId(1), PeerId(9)].map(|peer| beam.hub.is_silent(peer)), [false, true, false]);
    assert!(beam.hub.stats().silent);
    beam.hub.unreachable(beam.now, "198.51.100.77".parse().unwrap());
    beam.run(Duration::from_millis(200));
    assert_eq!(beam.up(), [PeerId(0), PeerId(1)]);
    beam.hub.unreachable(beam.now, host);
    beam.run(Duration::from_millis(200));
    assert_eq!(beam.up(), [PeerId(0)]);
    assert!(beam.saw(PeerId(1), |event| *event == Event::Down(Reason::Gone)));
}

#[test]
fn a_closed_hub_tells_terminals_and_those_that_are_connecting() {
    let mut beam = Beam::new(2);
    beam.run(Duration::from_secs(2));
    beam.add(2, true);
    beam.run(DELAY + Duration::from_millis(1));
    beam.hub.close(beam.now);
    beam.run(DELAY + Duration::from_millis(1));
    assert!(!beam.hub.is_up());
    for n in 0..2 {
        assert_eq!(beam.terminals[n].events.last(), Some(&Event::Down(Reason::Closed)));
    }
    assert!(matches!(beam.terminals[2].events[..], [Event::Failed(_)]), "{:?}", beam.terminals[2].events);
}

/// A client that sends its first packets and nothing more. Returns true if it got a Retry, and true if it got a handshake.
fn knock(beam: &mut Beam, setup: &mut Setup, from: SocketAddr) -> [bool; 2] {
    beam.number += 1;
    let seed = setup.seed.insert([0; 32]);
    seed[..8].copy_from_slice(&beam.number.to_be_bytes());
    let to = ADDRESS.parse().unwrap();
    let mut link = Spacelink::connect(setup, to, beam.now).unwrap();
    let (mut out, mut got) = (Vec::new(), [false; 2]);
    for _ in 0..2 {
        while link.transmit(beam.now, 1, &mut out).is_some() {
            beam.hub.receive(beam.now, from, None, 0, &out);
        }
        while let Some(sent) = beam.hub.transmit(beam.now, 1, &mut out) {
            assert_eq!(sent.to, from);
            // RFC 9000, table 5: long headers of types 3 and 0; the second bit may be either (RFC 9287).
            got[0] |= out[0] & 0xb0 == 0xb0;
            got[1] |= out[0] & 0xb0 == 0x80;
            link.receive(beam.now, to, None, 0, &out);
        }
    }
    got
}

/// From the third connection of a host on it must prove its address; it has at most eight.
#[test]
fn a_host_has_eight_places_in_the_lobby() {
    let mut beam = Beam::new(0);
    let mut setup = setup(Identity::generate("stranger").unwrap(), Some(beam.certificate.clone()), 1);
    let got: Vec<_> = (0..12)
        .map(|n| knock(&mut beam, &mut setup, SocketAddr::from(([203, 0, 113, 1], 1000 + n))))
        .collect();
    assert_eq!(got[..2], [[false, true]; 2]);
    assert_eq!(got[2..8], [[true, true]; 6]);
    assert_eq!(got[8..], [[false, false]; 4]);
    assert_eq!(knock(&mut beam, &mut setup, "203.0.113.2:1000".parse().unwrap()), [false, true]);
}

/// From the 257th connection on, of 512, all hosts must prove their addresses.
#[test]
fn hosts_prove_their_addresses_when_the_lobby_is_half_full() {
    let mut beam = Beam::new(0);
    let mut setup = setup(Identity::generate("stranger").unwrap(), Some(beam.certificate.clone()), 1);
    let mut knock = |n: u16| {
        let [high, low] = n.to_be_bytes();
        knock(&mut beam, &mut setup, SocketAddr::from(([203, 0, high, low], 1000)))
    };
    assert!((0..256).all(|n| knock(n) == [false, true]));
    assert_eq!([knock(256), knock(257)], [[true, true]; 2]);
}

/// Versions like 0x?a?a?a?a are not used by any protocol (RFC 9000, section 15). A reply names the hub's own versions, after a version
/// of zero (section 17.2.1).
#[test]
fn replies_to_unknown_versions_are_limited() {
    let mut beam = Beam::new(0);
    let mut datagram = [0; 1200];
    datagram[..6].copy_from_slice(&[0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 8]);
    for n in 0..600_u16 {
        datagram[6..8].copy_from_slice(&n.to_be_bytes());
        beam.hub.receive(beam.now, SocketAddr::from(([203, 0, 113, 1], n)), None, 0, &datagram);
    }
    let (mut out, mut replies) = (Vec::new(), 0);
    while beam.hub.transmit(beam.now, 1, &mut out).is_some() {
        assert_eq!((out[0] & 0x80, &out[1..5]), (0x80, &[0; 4][..]));
        replies += 1;
    }
    assert_eq!(replies, 512);
}

/// The handshake is due 6.8 s after the first packet arrived. It ends between that time and the timer's run.
#[test]
fn a_handshake_that_ends_too_late_is_refused() {
    let mut beam = Beam::new(1);
    beam.run(3 * DELAY);
    assert!(beam.hub.timer().is_some_and(|at| at > beam.now));
    let late: Vec<_> = std::mem::take(&mut beam.air).into_values().filter(|(to_hub, ..)| *to_hub).collect();
    beam.now += Duration::from_secs(7);
    for (_, address, datagram) in late {
        beam.hub.receive(beam.now, address, None, 0, &datagram);
    }
    beam.work();
    assert_eq!(beam.events, [(None, Event::Failed(Reason::Silent))]);
    assert_eq!(beam.hub.link(PeerId(0)).unwrap().stats(), Stats::default());
}

/// A restarted terminal answers the hub's close with a stateless reset (RFC 9000, section 10.3). The hub knows its token, since the
/// terminal has moved and the hub uses a new connection ID.
#[test]
fn a_reset_of_a_closed_connection_is_not_reported() {
    let mut beam = Beam::new(0);
    let identity = Identity::generate("terminal").unwrap();
    let certificate = identity.certificate();
    let peer = beam.hub.add(&certificate);
    let setup = setup(identity, Some(beam.certificate.clone()), 9);
    let started = |beam: &Beam, address: SocketAddr| {
        let link = Spacelink::connect(&setup, ADDRESS.parse().unwrap(), beam.now).unwrap();
        Terminal { link, address, certificate: certificate.clone(), events: Vec::new() }
    };
    let [first, second] = [1, 2].map(|n| SocketAddr::from(([198, 51, 100, n], 50_000)));
    beam.terminals.push(started(&beam, first));
    beam.run(Duration::from_secs(2));
    beam.terminals[0].address = second;
    beam.send(0, 0, 1000);
    beam.run(Duration::from_secs(3));
    assert_eq!(beam.hub.link(peer).unwrap().peer(), Some(second));
    beam.terminals[0] = started(&beam, second);
    beam.hub.remove(peer, beam.now);
    beam.run(2 * DELAY + Duration::from_millis(1));
    let failed = |(whose, _): &&(Option<PeerId>, Event)| whose.is_none();
    assert_eq!(beam.events.iter().find(failed), None);
}
