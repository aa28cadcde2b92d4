//! The spacelink on real sockets: the smallest loop that drives an end, and a transfer over loopback.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bentpipe_spacelink::{Event, Identity, Setup, Spacelink, keygen};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use crate::net::{byte, bytes, open};

/// An end and its socket.
struct End {
    link: Spacelink,
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    /// Buffers for received datagrams, several of which may be merged, and for sent ones.
    input: Vec<Vec<u8>>,
    output: Vec<u8>,
}

impl End {
    fn new(address: &str, make: impl FnOnce() -> Spacelink) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        Self {
            link: make(),
            socket,
            state,
            address,
            input: vec![vec![0; 65_536]; BATCH_SIZE],
            output: Vec::new(),
        }
    }

    /// Receives, runs timers, and sends. Call it when the socket is readable, when [`Spacelink::timer`] is due, and after
    /// writing.
    fn turn(&mut self, now: Instant) {
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        loop {
            let mut buffers: Vec<IoSliceMut<'_>> =
                self.input.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let Ok(count) = self.state.recv(UdpSockRef::from(&self.socket), &mut buffers, &mut meta) else {
                break;
            };
            for (meta, buffer) in meta.iter().zip(&self.input).take(count) {
                let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    self.link.receive(now, meta.addr, meta.dst_ip, ecn, datagram);
                }
            }
        }
        if self.link.timer().is_some_and(|at| at <= now) {
            self.link.on_timer(now);
        }
        let most = self.state.max_gso_segments().min(10);
        while let Some(transmit) = self.link.transmit(now, most, &mut self.output) {
            let sent = self.state.try_send(
                UdpSockRef::from(&self.socket),
                &Transmit {
                    destination: transmit.to,
                    ecn: EcnCodepoint::from_bits(transmit.ecn),
                    contents: &self.output,
                    segment_size: transmit.segment,
                    src_ip: transmit.from,
                },
            );
            // A full socket loses the packet, like a full link.
            let _ = sent;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
fn now() -> Instant {
    Instant::now()
}

/// Both ends over loopback, with keys from files.
fn ends(address: &str) -> [End; 2] {
    let dir =
        std::env::temp_dir().join(format!("bentpipe-spacelink-{}-{}", std::process::id(), address.len()));
    let read = |name: &str| {
        let [key, certificate] = keygen(&dir, name, true).unwrap();
        Identity::read(&key, &certificate).unwrap()
    };
    let (gateway, terminal) = (read("gateway"), read("terminal"));
    std::fs::remove_dir_all(&dir).unwrap();
    let (g, t) = (gateway.certificate(), terminal.certificate());
    let setup = |identity, peer| Setup::new(identity, peer, None, Duration::from_millis(10));
    let listening = End::new(address, || Spacelink::listen(&setup(gateway, t), None, now()).unwrap());
    let to = listening.address;
    let connecting = End::new(address, || Spacelink::connect(&setup(terminal, g), to, now()).unwrap());
    [listening, connecting]
}

/// Sends 5 MB from one end to the other. Returns the time from the first byte on.
fn transfer(address: &str) -> Duration {
    const ALL: u64 = 5_000_000;
    let [mut gateway, mut terminal] = ends(address);
    let (start, mut first) = (now(), None);
    let (mut stream, mut written, mut read, mut freed) = (None, 0u64, 0u64, 0u64);
    let (mut finished, mut closed) = (false, false);
    let mut buffer = vec![0; 65_536];
    while !(finished && closed) {
        assert!(now() - start < Duration::from_secs(20), "{written} written, {read} read");
        for end in [&mut gateway, &mut terminal] {
            end.turn(now());
        }
        while let Some(event) = gateway.link.poll() {
            match event {
                Event::Opened { stream: key, header } => {
                    assert_eq!(header, open());
                    gateway.link.finish(key);
                }
                Event::Readable(key) => {
                    while let got @ 1.. = gateway.link.read(key, &mut buffer) {
                        assert!(buffer[..got].iter().zip(read..).all(|(&b, at)| b == byte(at)));
                        read += got as u64;
                        gateway.link.delivered(key, got as u64);
                    }
                }
                Event::Finished(_) => finished = true,
                _ => {}
            }
        }
        while let Some(event) = terminal.link.poll() {
            match event {
                Event::Up => stream = terminal.link.open(&open()),
                Event::Readable(key) => assert_eq!(terminal.link.read(key, &mut buffer), 0),
                Event::Acknowledged { bytes, .. } => freed += bytes,
                Event::Closed(_) => closed = true,
                _ => {}
            }
        }
        // Without a regulator: no more in flight than a socket's buffer holds.
        if let Some(key) = stream
            && written < ALL
            && written < freed + 100_000
        {
            first.get_or_insert_with(now);
            written += terminal.link.write(key, &bytes(written, 50_000.min((ALL - written) as usize))) as u64;
            if written == ALL {
                terminal.link.finish(key);
            }
        }
    }
    assert_eq!((read, freed), (ALL, ALL));
    now() - first.unwrap()
}

#[test]
fn bytes_cross_loopback() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        transfer(address);
    }
}
