//! Many terminals behind one hub, 300 ms away, on a virtual clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_spacelink::{
    Certificate, Event, Hub, Identity, Open, PeerId, Reason, Setup, Spacelink, StreamKey,
};

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
        let mut beam = Self {
            start,
            now: start,
            hub,
            events: Vec::new(),
            read: BTreeMap::new(),
            terminals: Vec::new(),
            certificate,
            air: BTreeMap::new(),
            number: 0,
        };
        for n in 0..count {
            beam.add(n, true);
        }
        beam
    }

    /// Makes a terminal that connects; the hub accepts it if `known`.
    fn add(&mut self, n: u8, known: bool) -> Option<PeerId> {
        let identity = Identity::generate("terminal").unwrap();
        let certificate = identity.certificate();
        let peer = known.then(|| self.hub.add(&certificate));
        let setup = setup(identity, Some(self.certificate.clone()), n + 1);
        let link = Spacelink::connect(&setup, ADDRESS.parse().unwrap(), self.now).unwrap();
        let address = format!("198.51.100.{n}:50000").parse().unwrap();
        self.terminals.push(Terminal { link, address, certificate, events: Vec::new() });
        peer
    }

    fn work(&mut self) {
        while let Some((peer, event)) = self.hub.poll() {
            if let (Some(peer), Event::Readable(key)) = (peer, &event) {
                let mut buffer = [0; 65_536];
                let link = self.hub.link_mut(peer).unwrap();
                let count = link.read(*key, &mut buffer);
                link.delivered(*key, count as u64);
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
    }
    assert_eq!(beam.hub.stats().opened, 4);
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
    for _ in 0..3 {
        let link = &mut beam.terminals[0].link;
        opened.push(std::iter::from_fn(|| link.open(&header)).take(5000).count());
        beam.run(Duration::from_secs(2));
    }
    assert_eq!(opened, [448, 448, 896]);
    assert_eq!(beam.hub.link(PeerId(0)).unwrap().streams(), 1792);
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
    let events = beam.hub.remove(PeerId(1), beam.now);
    assert!(matches!(events[..], [Event::Lost(_), Event::Down(Reason::Closed)]), "{events:?}");
    beam.run(Duration::from_secs(5));
    assert_eq!(beam.up(), [PeerId(0), PeerId(2)]);
    let told = &beam.terminals[1].events;
    assert!(told.contains(&Event::Down(Reason::Closed)), "{told:?}");
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
