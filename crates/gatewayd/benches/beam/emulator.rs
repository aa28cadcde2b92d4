//! Emulated terminals: the connecting ends of all spacelinks, on one thread, with the satellite's delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_spacelink::{Certificate, Event, Identity, Open, Setup, Spacelink, StreamKey};
use bentpipe_units::Rate;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};

use crate::common::Namespace;
use crate::servers::{BLOCK, block};
use crate::{DELAY, now, satellite_address, user_address};

const GATEWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1)), 4400);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), 80);
/// Rate of each terminal's return link.
const RETURN: Rate = Rate::from_bps(2_000_000);

/// Terminals that open their streams at once.
const AT_ONCE: usize = 2;

/// A command to the emulator.
pub enum Command {
    /// All begin to connect.
    Connect,
    /// Each opens so many streams.
    Open(usize),
    /// It ends.
    Stop,
}

/// State that the emulator publishes.
#[derive(Default)]
struct Shared {
    up: AtomicUsize,
    streams_with_data: AtomicUsize,
    wrong: AtomicUsize,
    ended: AtomicUsize,
    received: Vec<AtomicU64>,
}

/// Counts of the emulator.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Terminals that are connected.
    pub up: usize,
    /// Streams that have brought bytes.
    pub streams_with_data: usize,
    /// Pieces with wrong bytes.
    pub wrong: usize,
    /// Streams that ended.
    pub ended: usize,
}

/// The thread of all terminals.
pub struct Emulator {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Emulator {
    /// Starts `count` terminals, which do not connect yet. Their keys are in `folder`.
    pub fn start(namespace: &Namespace, folder: &Path, count: usize) -> Self {
        let received = (0..count).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { received, ..Shared::default() });
        let (commands, receiver) = channel();
        let (ours, folder) = (Arc::clone(&shared), folder.to_owned());
        let (started, ready) = channel();
        let thread = namespace.spawn(move || {
            let mut world = World::new(&folder, count, ours);
            started.send(()).expect("a receiver");
            world.run(&receiver);
        });
        ready.recv().expect("terminals");
        Self { commands, shared, thread }
    }

    pub fn send(&self, command: Command) {
        self.commands.send(command).expect("a running emulator");
    }

    pub fn state(&self) -> State {
        let of = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let Shared { up, streams_with_data, wrong, ended, .. } = &*self.shared;
        State { up: of(up), streams_with_data: of(streams_with_data), wrong: of(wrong), ended: of(ended) }
    }

    /// Bytes received by the users of each terminal.
    pub fn received(&self) -> Vec<u64> {
        self.shared.received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    /// Waits for a condition; five minutes at most.
    pub fn wait(&self, what: &str, is_so: impl Fn(State) -> bool) {
        let begin = now();
        while !is_so(self.state()) {
            assert!(begin.elapsed() < Duration::from_secs(300), "not {what}: {:?}", self.state());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn stop(self) {
        self.send(Command::Stop);
        self.thread.join().expect("no panic");
    }
}

struct Terminal {
    socket: UdpSocket,
    setup: Setup,
    link: Option<Spacelink>,
    timer: Option<Instant>,
    /// Bytes received on each stream.
    streams: BTreeMap<StreamKey, u64>,
}

/// A datagram on its way: its time of arrival, its terminal and its bytes.
type Datagram = (Instant, usize, Vec<u8>);

/// Takes the first datagram if it has arrived.
fn pop_due(queue: &mut VecDeque<Datagram>, now: Instant) -> Option<Datagram> {
    queue.front().filter(|(due, ..)| *due <= now)?;
    queue.pop_front()
}

struct World {
    epoll: Epoll,
    terminals: Vec<Terminal>,
    timers: BTreeSet<(Instant, usize)>,
    /// Datagrams on their way: to a terminal, or from it.
    forward: VecDeque<Datagram>,
    back: VecDeque<Datagram>,
    spare: Vec<Vec<u8>>,
    /// The next terminal to open streams, and their number.
    opening: Option<(usize, usize)>,
    expected: Vec<u8>,
    scratch: Vec<u8>,
    shared: Arc<Shared>,
}

impl World {
    fn new(folder: &Path, count: usize, shared: Arc<Shared>) -> Self {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
        let gateway = Certificate::read(&folder.join("keys/gateway.crt")).expect("a certificate");
        let terminal = |n: usize| {
            let keys: PathBuf = folder.join(format!("keys{n}"));
            let identity =
                Identity::read(&keys.join("terminal.key"), &keys.join("terminal.crt")).expect("keys");
            let setup =
                Setup { streams: 1000, ..Setup::new(identity, gateway.clone(), Some(RETURN), 2 * DELAY) };
            let socket = UdpSocket::bind((Ipv4Addr::from(satellite_address(n)), 4400)).expect("a socket");
            socket.set_nonblocking(true).expect("an option");
            // As much as arrives while this process has no processor.
            setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20)).expect("an option");
            let flags = EpollFlags::EPOLLIN;
            epoll.add(socket.as_fd(), EpollEvent::new(flags, n as u64)).expect("epoll");
            Terminal { socket, setup, link: None, timer: None, streams: BTreeMap::new() }
        };
        let terminals = (0..count).map(terminal).collect();
        Self {
            epoll,
            terminals,
            timers: BTreeSet::new(),
            forward: VecDeque::new(),
            back: VecDeque::new(),
            spare: Vec::new(),
            opening: None,
            expected: block(),
            scratch: vec![0; BLOCK],
            shared,
        }
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        let mut events = vec![EpollEvent::empty(); 1024];
        loop {
            for command in commands.try_iter().collect::<Vec<_>>() {
                match command {
                    Command::Connect => (0..self.terminals.len()).for_each(|n| self.connect(n)),
                    Command::Open(count) => self.opening = Some((0, count)),
                    Command::Stop => return,
                }
            }
            // Some terminals in each turn, so that servers are not asked for all connections at once.
            if let Some((next, count)) = self.opening {
                let end = (next + AT_ONCE).min(self.terminals.len());
                (next..end).for_each(|n| self.open(n, count));
                self.opening = (end < self.terminals.len()).then_some((end, count));
            }
            // Whole milliseconds are short enough beside the satellite's delay.
            let ready = self.epoll.wait(&mut events, EpollTimeout::from(1u8)).unwrap_or(0);
            for event in &events[..ready] {
                self.read(event.data() as usize);
            }
            let time = now();
            while let Some((_, n, datagram)) = pop_due(&mut self.forward, time) {
                if let Some(link) = &mut self.terminals[n].link {
                    link.receive(time, GATEWAY, None, 0, &datagram);
                }
                self.spare.push(datagram);
                self.after(n, time);
            }
            while let Some(&(due, n)) = self.timers.first().filter(|(due, _)| *due <= time) {
                self.timers.remove(&(due, n));
                self.terminals[n].timer = None;
                if let Some(link) = &mut self.terminals[n].link {
                    link.on_timer(time);
                }
                self.after(n, time);
            }
            while let Some((_, n, datagram)) = pop_due(&mut self.back, time) {
                // A full buffer is a loss on the link.
                let _ = self.terminals[n].socket.send_to(&datagram, GATEWAY);
                self.spare.push(datagram);
            }
        }
    }

    fn connect(&mut self, n: usize) {
        let time = now();
        let terminal = &mut self.terminals[n];
        terminal.link = Some(Spacelink::connect(&terminal.setup, GATEWAY, time).expect("keys that match"));
        self.after(n, time);
    }

    fn open(&mut self, n: usize, count: usize) {
        let time = now();
        let terminal = &mut self.terminals[n];
        let link = terminal.link.as_mut().expect("a connected terminal");
        for k in 0..count {
            let client = SocketAddr::from((user_address(n), 10_000 + k as u16));
            let key = link.open(&Open { client, server: SERVER }).expect("a stream");
            terminal.streams.insert(key, 0);
        }
        self.after(n, time);
    }

    /// Reads the datagrams of a terminal's socket.
    fn read(&mut self, n: usize) {
        let due = now() + DELAY;
        loop {
            let mut datagram = self.spare.pop().unwrap_or_default();
            datagram.resize(2048, 0);
            match self.terminals[n].socket.recv(&mut datagram) {
                Ok(length) => {
                    datagram.truncate(length);
                    self.forward.push_back((due, n, datagram));
                }
                Err(_) => return self.spare.push(datagram),
            }
        }
    }

    /// Handles the events of a terminal's link, and sends.
    fn after(&mut self, n: usize, time: Instant) {
        let Terminal { link: Some(link), timer, streams, .. } = &mut self.terminals[n] else { return };
        let shared = &self.shared;
        while let Some(event) = link.poll() {
            match event {
                Event::Up => drop(shared.up.fetch_add(1, Ordering::Relaxed)),
                Event::Down(reason) => panic!("terminal {n}: {reason}"),
                Event::Readable(key) => {
                    let Some(total) = streams.get_mut(&key) else { continue };
                    loop {
                        let at = (*total % BLOCK as u64) as usize;
                        let most = BLOCK - at;
                        let count = link.read(key, &mut self.scratch[..most]);
                        if count == 0 {
                            break;
                        }
                        if *total == 0 {
                            shared.streams_with_data.fetch_add(1, Ordering::Relaxed);
                        }
                        if self.scratch[..count] != self.expected[at..at + count] {
                            shared.wrong.fetch_add(1, Ordering::Relaxed);
                        }
                        *total += count as u64;
                        link.delivered(key, count as u64);
                        shared.received[n].fetch_add(count as u64, Ordering::Relaxed);
                    }
                }
                Event::Finished(_) | Event::Reset(_) | Event::Lost(_) | Event::Closed(_) => {
                    shared.ended.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        loop {
            let mut datagram = self.spare.pop().unwrap_or_default();
            if link.transmit(time, 1, &mut datagram).is_none() {
                self.spare.push(datagram);
                break;
            }
            self.back.push_back((time + DELAY, n, datagram));
        }
        let due = link.timer();
        if due != *timer {
            if let Some(old) = std::mem::replace(timer, due) {
                self.timers.remove(&(old, n));
            }
            self.timers.extend(due.map(|at| (at, n)));
        }
    }
}
