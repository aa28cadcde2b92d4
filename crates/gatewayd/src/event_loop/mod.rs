//! The loop that hosts a [`Gateway`]: one thread, which waits for sockets, queues and one timer together.
//!
//! A turn does a bounded amount of everything that is ready, so that nothing starves anything else:
//!
//! ```text
//! what was due ─▶ packets to judge, datagrams, new connections ─▶ connections that are ready, in turn ─▶ what is due now
//!      ▲                                                                                                     │
//!      └────────── wait for events, or for the next time something is due ◀── datagrams to the far end ◀─────┘
//! ```
//!
//! All of a turn happens at one time, that of its beginning. What was due before is told its own time, up to
//! [`CATCH_UP`] back, so that a loop which comes late keeps the rate.

mod counters;
mod judge;
mod operate;
mod relays;
mod space;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;

use bentpipe_gateway::{
    Event as GatewayEvent, Gateway, GatewayQueue, InFlight, PepBuffers, Regulator, Setup,
};
use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{FlowTable, Limit, Marking, Packet, Queue, QueueConfig};
use bentpipe_scenario::{FlowKey, Protocol};
use bentpipe_units::{Duration, Instant, Rate};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::json;
use slab::Slab;

use crate::config::{Config, Role};
use crate::intercept::inject::Injector;
use crate::intercept::nfqueue;
use crate::intercept::rules::{self, Rules};
use crate::intercept::windows::Windows;
use crate::observe::log;
use crate::observe::record::Recorder;
use crate::relay::ring::Ring;
use crate::sys::clock::{Clock, catch_up};
use crate::sys::modem::Modem;
use crate::sys::notify;
use crate::sys::timer::Timer;
use crate::sys::tun::Tun;
use crate::sys::{self, TcpOptions};
use bentpipe_spacelink::{Open, StreamKey};

pub use counters::Counters;
use operate::Watch;
use relays::Relay;
use space::Space;

/// What a late loop makes up for.
pub const CATCH_UP: Duration = Duration::from_millis(15);
/// The gateway is not woken more often than this for its own sake: what falls due in between goes together.
const MERGE: Duration = Duration::from_micros(500);
/// Between two looks at what changes slowly.
const CARE: Duration = Duration::from_millis(500);
/// How long the kernel keeps a handshake that nobody ends (tcp_synack_retries = 5: 1 + 2 + 4 + … + 32 s), and a second.
const HANDSHAKE: Duration = Duration::from_secs(64);
/// Turns of the gateway before datagrams go out.
const MOST_WAKES: usize = 256;
/// Connections that are served in one turn.
const MOST_SERVED: usize = 64;
/// Bytes kept for datagrams in front of the terminal's transmit queue: half a second, or this.
const LEAST_BACKLOG: u64 = 64 << 10;

/// What may go wrong before the loop runs, in words.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// What a packet of the gateway stands for.
#[derive(Debug)]
enum Item {
    /// A packet that netfilter holds, and all of it if it may have to be changed.
    Judged { id: u32, pair: (SocketAddr, SocketAddr), bytes: Vec<u8> },
    /// Bytes that the PEP works on.
    Read { key: StreamKey, bytes: u64 },
    /// Bytes in the transmit queue.
    Chunk { key: StreamKey, bytes: u64 },
    /// A packet from the TUN device.
    Datagram(Vec<u8>),
}

/// What the loop waits for, by its number.
mod token {
    pub const TIMER: u64 = u64::MAX;
    pub const SIGNAL: u64 = u64::MAX - 1;
    pub const SPACE: u64 = u64::MAX - 2;
    pub const TUN: u64 = u64::MAX - 3;
    pub const JUDGE: u64 = u64::MAX - 4;
    pub const WINDOWS: u64 = u64::MAX - 5;
    pub const MODEM: u64 = u64::MAX - 6;
    pub const LISTENER: u64 = u64::MAX - 16;
}

/// An end of the gateway at work.
pub struct Daemon {
    config: Config,
    clock: Clock,
    /// The time at which this turn began.
    now: Instant,
    /// The time that the gateway is told: the same, or earlier while something is made up for.
    at: Instant,
    epoll: Epoll,
    timer: Timer,
    signals: SignalFd,

    gateway: Gateway,
    /// What the regulator lets go; none: anything.
    rate: Option<Rate>,
    modem: Option<Modem>,
    buffers: PepBuffers,
    /// Payload of a full chunk, and what a chunk has besides [bytes].
    chunk: u64,
    header: u64,
    items: Slab<Item>,
    /// Buffers for packets, not in use.
    spare: Vec<Vec<u8>>,
    /// Bytes that the regulator has let go and the wire has not been compared with yet.
    counted: u64,
    /// When the gateway last was woken.
    woken: Instant,
    /// Chunks that were discarded, and when they are sent again.
    retries: VecDeque<(Instant, StreamKey, u64)>,
    /// Bytes that are allowed on their way over the satellite: in all, and of one stream.
    window: u64,
    stream_window: u64,
    in_flight: u64,
    flight: InFlight,

    space: Space,
    tun: Tun,
    queue: Option<nfqueue::Queue>,
    acks: Option<nfqueue::Queue>,
    windows: Windows,
    injector: Option<Injector>,
    /// What was decided about packets since the queue was last told.
    verdicts: Vec<(u32, Option<Vec<u8>>, bool)>,
    listeners: Vec<TcpListener>,
    /// Whether the loop hears of what comes there.
    listening: bool,
    rules: Option<Rules>,
    rules_setup: rules::Setup,
    /// Whether the far end is there, and packets are led to it.
    up: bool,
    /// Whether that is to be told once the rules are changed.
    tell_up: bool,
    options: TcpOptions,

    relays: Vec<Option<Box<Relay>>>,
    open: u32,
    /// Of these, those whose server has not answered.
    opening: u32,
    /// Connections to servers that are not begun, for as many are half-open as may be.
    unreached: VecDeque<(StreamKey, Open)>,
    most: u32,
    /// Whether the far end takes no further connections, and whether it was told so of this one.
    far_full: bool,
    told_full: bool,
    /// Whether connections were begun since limits were last looked at.
    entered: bool,
    /// Handshakes that found the listeners' queues full, and until when these may be so.
    beyond: u64,
    flooded: Instant,
    /// Connections that wait until the PEP may hold more in all.
    starved: VecDeque<u32>,
    generation: u32,
    ready: VecDeque<u32>,
    /// Connections by the flow that both their addresses make.
    pairs: FlowTable<u32>,
    users: Users,
    /// Connections that wait for room in a buffer, by the buffer, the longest first.
    thirsty: Vec<VecDeque<u32>>,
    rings: Vec<Ring>,
    scratch: Vec<u8>,
    waiting: Vec<StreamKey>,
    scratch_packet: Vec<u8>,

    recorder: Option<Recorder>,
    watch: Watch,
    /// What was counted since the start.
    pub counters: Counters,
    next_care: Instant,
    stopping: bool,
}

/// Users by their addresses, numbered from zero.
#[derive(Debug, Default)]
struct Users {
    known: BTreeMap<IpAddr, (u32, u32)>,
    free: Vec<u32>,
    next: u32,
}

impl Users {
    fn enter(&mut self, address: IpAddr) -> u32 {
        if let Some((number, connections)) = self.known.get_mut(&address) {
            *connections += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.known.insert(address, (number, 1));
        number
    }

    fn leave(&mut self, address: IpAddr) {
        let Some((number, connections)) = self.known.get_mut(&address) else { return };
        *connections -= 1;
        if *connections == 0 {
            self.free.push(*number);
            self.known.remove(&address);
        }
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |e| Failure(format!("{what}: {e}"))
}

fn failed_nix(what: &str) -> impl FnOnce(nix::Error) -> Failure + '_ {
    move |e| Failure(format!("{what}: {e}"))
}

/// Where the settings that were changed are written down: a folder for each network namespace.
fn folder() -> std::path::PathBuf {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Path::new("/run/bentpipe").join(number)
}

/// What an end tells netfilter and routing.
#[must_use]
pub fn rules_setup(config: &Config) -> rules::Setup {
    let (interface, clients, side) = match (&config.internet, &config.users) {
        (Some(internet), _) => {
            let queue = internet.queue.0 as u16;
            let windows = config.gateway.marking.method.marking == Marking::Window;
            let side = rules::Side::Internet { queue, windows: windows.then_some(queue + 1) };
            (internet.device.0.clone(), internet.clients.clone(), side)
        }
        (None, Some(users)) => {
            // Where nothing is split, nothing is taken: it has no listener.
            let splits = config.gateway.pep.split.contains(&Protocol::Tcp);
            let side = rules::Side::Users { port: if splits { users.port.0 as u16 } else { 0 } };
            (users.device.0.clone(), users.clients.clone(), side)
        }
        (None, None) => return rules_left(config.role),
    };
    rules::Setup {
        interface,
        side,
        clients,
        tunnel: Some(config.tunnel.name.0.clone()),
        ecn: config.gateway.marking.method.marking == Marking::Ecn,
        offload: true,
        ..rules_left(config.role)
    }
}

/// What must be known of an end's rules to remove them, whatever its configuration says.
#[must_use]
pub fn rules_left(role: Role) -> rules::Setup {
    rules::Setup {
        name: role.name().to_owned(),
        folder: folder(),
        interface: String::new(),
        side: rules::Side::Users { port: 0 },
        clients: Vec::new(),
        tunnel: None,
        ecn: false,
        offload: false,
        table: 9800,
    }
}

/// The gateway of a terminal's own direction: nothing judges, and the first in is the first out.
fn plain_gateway(config: &Config, rate: Rate) -> (Gateway, PepBuffers) {
    let queue = |name: &str| {
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit::NONE,
            capacity: rate,
            seed: config.seed,
            name: format!("{} {name}", config.gateway.terminal),
        };
        Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup)
    };
    let gateway = Gateway::new(Setup {
        receive: queue("receive"),
        receive_rate: None,
        transmit: queue("transmit"),
        watch: GatewayQueue::Transmit,
        mark: GatewayQueue::Receive,
        processing: Duration::ZERO,
        regulator: Regulator::new(rate, Duration::ZERO),
    });
    (gateway, PepBuffers::new(config.gateway.pep.buffer, config.gateway.pep.buffer_per))
}

/// How many connections may be split at a time; some descriptors are for other things.
fn most_connections(config: &Config, descriptors: u64) -> u32 {
    config
        .limits
        .connections
        .0
        .min(u32::try_from(descriptors.saturating_sub(64 + u64::from(relays::SPARE))).unwrap_or(u32::MAX))
}

/// The rate of a direction that nothing limits.
const ANY_RATE: Rate = Rate::from_bps(100_000_000_000);

impl Daemon {
    /// Makes everything that the loop needs, the rules last.
    ///
    /// # Errors
    /// Where the system does not let it, in words.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let clock = Clock::start();
        let now = clock.now();
        let descriptors = sys::raise_descriptors();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed_nix("epoll"))?;
        let timer = Timer::new().map_err(failed_nix("timerfd"))?;
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().map_err(failed_nix("signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).map_err(failed_nix("signalfd"))?;

        let rate = config.rate();
        let (gateway, buffers) = match config.role {
            Role::Gateway => {
                let aqm = config.gateway.aqm.build().map_err(|e| Failure(format!("gateway.aqm: {e}")))?;
                let setup = config.gateway.config().map_err(|e| Failure(format!("gateway: {e}")))?;
                setup.build(aqm, config.seed)
            }
            Role::Terminal => plain_gateway(&config, rate.unwrap_or(ANY_RATE)),
        };
        let s = &config.gateway.spacelink;
        let space = Space::open(&config, rate, &clock, now)?;
        // A full packet of the scenario's, unless the satellite's packets are smaller.
        let chunk = (s.packet - s.header).min(space.link.max_chunk() as u64).max(1);
        let tun = Tun::open(&config.tunnel.name.0, config.satellite.mtu.0 as u32)
            .map_err(failed(&format!("TUN device {}", config.tunnel.name)))?;
        let setup = rules_setup(&config);
        let recorder = match &config.record {
            Some(record) => {
                let limits = buffers.has_control();
                let made = Recorder::new(record, &config.gateway.name, &clock, now, &gateway, limits);
                Some(made.map_err(failed(&record.file.display().to_string()))?)
            }
            None => None,
        };
        let options = TcpOptions {
            congestion: config.tcp.congestion.clone(),
            receive_buffer: usize::try_from(config.tcp.receive_buffer.0).unwrap_or(usize::MAX),
            unsent: 128 << 10,
            keepalive: config.tcp.keepalive.time(),
            user_timeout: config.tcp.user_timeout.time(),
        };
        let most = most_connections(&config, descriptors);
        let watch = Watch::new(&config, now);
        let mut daemon = Self {
            window: s.window,
            stream_window: s.stream_window,
            header: s.header,
            config,
            clock,
            now,
            at: now,
            epoll,
            timer,
            signals,
            gateway,
            rate,
            modem: None,
            buffers,
            chunk,
            items: Slab::new(),
            spare: Vec::new(),
            counted: 0,
            woken: Instant::ZERO,
            retries: VecDeque::new(),
            in_flight: 0,
            flight: InFlight::default(),
            space,
            tun,
            queue: None,
            acks: None,
            windows: Windows::new(),
            injector: None,
            verdicts: Vec::new(),
            listeners: Vec::new(),
            listening: false,
            rules: None,
            rules_setup: setup,
            up: false,
            tell_up: false,
            options,
            relays: Vec::new(),
            open: 0,
            opening: 0,
            unreached: VecDeque::new(),
            most,
            far_full: false,
            told_full: false,
            entered: false,
            beyond: sys::handshakes_beyond(),
            flooded: now,
            starved: VecDeque::new(),
            generation: 0,
            ready: VecDeque::new(),
            pairs: FlowTable::default(),
            users: Users::default(),
            thirsty: Vec::new(),
            rings: Vec::new(),
            scratch: vec![0; relays::PIECE],
            waiting: Vec::new(),
            scratch_packet: Vec::new(),
            recorder,
            watch,
            counters: Counters::default(),
            next_care: now,
            stopping: false,
        };
        daemon.open_outside()?;
        Ok(daemon)
    }

    /// Opens what leads outside, and has packets brought there.
    fn open_outside(&mut self) -> Result<(), Failure> {
        let level = EpollFlags::EPOLLIN;
        self.watch_fd(token::TIMER, level | EpollFlags::EPOLLET, |d| d.timer.as_fd())?;
        self.watch_fd(token::SIGNAL, level, |d| d.signals.as_fd())?;
        self.watch_fd(token::SPACE, level, |d| d.space.socket.as_fd())?;
        self.watch_fd(token::TUN, level, |d| d.tun.as_fd())?;
        if let Some(path) = &self.config.modem {
            let modem = Modem::open(path).map_err(failed(&format!("satellite.modem: {}", path.display())))?;
            self.epoll.add(&modem, EpollEvent::new(level, token::MODEM)).map_err(failed_nix("epoll"))?;
            self.modem = Some(modem);
        }
        match self.rules_setup.side {
            rules::Side::Internet { queue, windows } => {
                let settings = nfqueue::Settings::default();
                let open = |number| {
                    nfqueue::Queue::open(number, &settings).map_err(failed(&format!("NFQUEUE {number}")))
                };
                self.queue = Some(open(queue)?);
                self.acks = windows.map(open).transpose()?;
                if self.acks.is_some() {
                    self.injector = Some(Injector::open().map_err(failed("raw socket"))?);
                }
                for (number, queue) in [(token::JUDGE, &self.queue), (token::WINDOWS, &self.acks)] {
                    if let Some(queue) = queue {
                        let event = EpollEvent::new(level, number);
                        self.epoll.add(queue, event).map_err(failed_nix("epoll"))?;
                    }
                }
            }
            rules::Side::Users { port: port @ 1.. } => {
                for v6 in [false, true] {
                    match sys::listener(v6, port, &self.options) {
                        Ok(listener) => self.listeners.push(listener),
                        // A machine without IPv6.
                        Err(e) if v6 && e.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {}
                        Err(e) => return Err(Failure(format!("port {port} for TPROXY: {e}"))),
                    }
                }
                self.listen(true);
            }
            rules::Side::Users { .. } => {}
        }
        std::fs::create_dir_all(&self.rules_setup.folder)
            .map_err(failed(&self.rules_setup.folder.display().to_string()))?;
        self.rules = Some(Rules::install(self.rules_setup.clone()).map_err(failed("rules"))?);
        self.lead(false);
        Ok(())
    }

    fn watch_fd<'a>(
        &'a self,
        number: u64,
        flags: EpollFlags,
        fd: impl FnOnce(&'a Self) -> std::os::fd::BorrowedFd<'a>,
    ) -> Result<(), Failure> {
        self.epoll.add(fd(self), EpollEvent::new(flags, number)).map_err(failed_nix("epoll"))
    }

    /// Runs until a signal ends it, then takes the rules away.
    ///
    /// # Errors
    /// Where the loop itself cannot go on.
    pub fn run(mut self) -> Result<(), Failure> {
        if self.config.process.realtime {
            self.counters.urgent = sys::be_urgent(1);
        }
        if let Err(failure) = self.go_public() {
            return self.stop().and(Err(failure));
        }
        self.say(&json!({ "ready": true }));
        let mut events = vec![EpollEvent::empty(); 256];
        // Nothing may come from outside: the first turn begins to connect, and sets the timer.
        self.turn(&[]);
        let ran = loop {
            if self.stopping {
                break Ok(());
            }
            let timeout = if self.ready.is_empty() { EpollTimeout::NONE } else { EpollTimeout::ZERO };
            match self.epoll.wait(&mut events, timeout) {
                Ok(count) => self.turn(&events[..count]),
                Err(nix::Error::EINTR) => {}
                Err(e) => break Err(Failure(format!("epoll: {e}"))),
            }
        };
        let removed = self.stop();
        ran.and(removed)
    }

    /// One turn.
    fn turn(&mut self, events: &[EpollEvent]) {
        self.counters.turns += 1;
        self.now = self.clock.now();
        self.timer.passed(self.now);
        self.watch.turn(self.now, !self.waiting.is_empty());
        if let Some(due) = self.gateway.wake_at() {
            let late = self.now.since(due).as_nanos();
            self.counters.latest_ns = self.counters.latest_ns.max(late);
        }
        self.run_gateway();
        for event in events {
            match event.data() {
                token::TIMER => self.counters.timer_wakes += 1,
                token::SIGNAL => self.heed_signals(),
                token::SPACE => self.receive_space(event.events()),
                token::TUN => self.read_tun(),
                token::JUDGE => self.judge(),
                token::WINDOWS => self.cut_windows(),
                token::MODEM => self.hear_modem(),
                number if number > token::LISTENER - 8 => self.accept((token::LISTENER - number) as usize),
                number => self.note(number, event.events()),
            }
        }
        self.space.tick(self.clock.std(self.now));
        self.heed_space();
        self.serve();
        self.reach_on();
        self.retry();
        self.run_gateway();
        self.tell_verdicts();
        // What was read may have been the last of a stream.
        self.heed_space();
        self.flush_space();
        if self.tell_up {
            self.tell_up();
        }
        if self.now >= self.next_care {
            self.care();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.sample(self.now, &self.gateway, &self.buffers);
        }
        self.look();
        self.arm();
    }

    /// Lets the gateway do what is due, each thing at its time.
    fn run_gateway(&mut self) {
        let mut wakes = 0;
        while let Some(due) = self.gateway.wake_at().filter(|due| *due <= self.now) {
            self.woken = self.now;
            self.at = catch_up(due, self.now, CATCH_UP);
            self.gateway.wake(self.at);
            self.drain_gateway();
            wakes += 1;
            if wakes % MOST_WAKES == 0 {
                self.flush_space();
            }
        }
        self.at = self.now;
        if wakes > 0 {
            self.flush_space();
        }
    }

    /// Acts on what the gateway did.
    fn drain_gateway(&mut self) {
        while let Some(event) = self.gateway.poll() {
            self.act(event);
        }
    }

    fn act(&mut self, event: GatewayEvent) {
        match event {
            GatewayEvent::Received(pkt) => self.received(pkt),
            GatewayEvent::Processed(pkt) => self.processed(pkt),
            GatewayEvent::Sent(pkt) => self.sent(pkt),
            GatewayEvent::Dropped(pkt, reason, place) => {
                self.watch.dropped(place, reason);
                let ends = self.ends(pkt.handle as usize);
                if let Some(recorder) = &mut self.recorder {
                    recorder.dropped(&pkt, ends, reason, place, &self.gateway, self.at);
                }
                self.discard(pkt);
            }
        }
    }

    fn processed(&mut self, pkt: Packet) {
        match self.items.get(pkt.handle as usize) {
            Some(&Item::Read { key, bytes }) => {
                self.items.remove(pkt.handle as usize);
                self.finish_work(key, bytes, pkt.arrival);
            }
            Some(Item::Datagram(_)) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.passed(self.at - pkt.arrival);
                }
                self.gateway.transmit(pkt, self.at);
            }
            _ => {}
        }
    }

    fn sent(&mut self, pkt: Packet) {
        if let Some(recorder) = &mut self.recorder {
            recorder.left(self.at - pkt.arrival);
        }
        self.watch.left(GatewayQueue::Transmit, self.at.since(pkt.arrival));
        self.counted += u64::from(pkt.len);
        match self.items.try_remove(pkt.handle as usize) {
            Some(Item::Chunk { key, bytes }) => self.let_go(key, bytes),
            Some(Item::Datagram(bytes)) => self.send_datagram(pkt, bytes),
            _ => {}
        }
    }

    fn discard(&mut self, pkt: Packet) {
        match self.items.try_remove(pkt.handle as usize) {
            Some(Item::Judged { id, bytes, .. }) => {
                self.counters.dropped += 1;
                self.verdicts.push((id, None, false));
                self.recycle(bytes);
            }
            Some(Item::Chunk { key, bytes }) => self.lose(key, bytes),
            Some(Item::Datagram(bytes)) => self.recycle(bytes),
            _ => {}
        }
    }

    /// The client and the server that a packet is between.
    fn ends(&self, handle: usize) -> Option<(SocketAddr, SocketAddr)> {
        match self.items.get(handle)? {
            Item::Judged { pair, .. } => Some(*pair),
            Item::Read { key, .. } | Item::Chunk { key, .. } => {
                let relay = self.relays.get(key.slot())?.as_deref().filter(|relay| relay.key == *key)?;
                Some((relay.client, relay.server))
            }
            Item::Datagram(bytes) => bentpipe_packet::parse(bytes).map(|info| match self.config.role {
                Role::Gateway => (info.dst, info.src),
                Role::Terminal => (info.src, info.dst),
            }),
        }
    }

    /// A buffer for a packet.
    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < 4096 {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Sets the timer to what is due next.
    fn arm(&mut self) {
        let merged = self.woken + MERGE;
        let mut next = self.next_care;
        let recorder = self.recorder.as_ref().and_then(Recorder::next);
        for at in [
            self.gateway.wake_at().map(|at| at.max(merged)),
            self.space.timer(&self.clock),
            self.retries.front().map(|(at, ..)| *at),
            recorder,
            self.watch.next(),
            (self.tell_up || self.space.is_blocked()).then_some(self.now + MERGE),
        ]
        .into_iter()
        .flatten()
        {
            next = next.min(at);
        }
        if self.timer.set(next, &self.clock).is_err() {
            self.counters.faults += 1;
        }
    }

    /// Leads packets to the far end, or, while that is not there, past both.
    fn lead(&mut self, up: bool) {
        self.up = up;
        self.tell_up = up;
        if let Err(e) = self.tun.set_carrier(up) {
            self.complain(&format!("{}: {e}", self.tun.name));
        }
        self.mind_limits();
    }

    /// Says that the far end is there, once what comes is led to it.
    fn tell_up(&mut self) {
        if self.is_settled() {
            self.mind_limits();
            self.tell_up = !self.is_settled();
            if !self.tell_up {
                self.say(&json!({ "spacelink": "up" }));
            }
        }
    }

    /// Whether no command is at work on the rules.
    fn is_settled(&mut self) -> bool {
        let settled = self.rules.as_mut().map_or(Ok(true), Rules::settle);
        settled.unwrap_or_else(|e| {
            self.complain(&format!("rules: {e}"));
            true
        })
    }

    /// Looks after what changes slowly.
    fn care(&mut self) {
        self.next_care = self.now + CARE;
        // Learns which commands have ended.
        self.is_settled();
        self.listen(true);
        self.give_up_idle();
        self.mind_flood();
        self.mind_limits();
    }

    fn heed_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let signal = Signal::try_from(signal.ssi_signo.cast_signed());
            match signal {
                Ok(Signal::SIGTERM | Signal::SIGINT) => self.stopping = true,
                Ok(Signal::SIGHUP) => self.reload(),
                _ => {}
            }
        }
    }

    /// Says farewell: connections are reset, rules removed, the record is finished.
    fn stop(mut self) -> Result<(), Failure> {
        log::info("stopping", &[]);
        let _ = notify::notify("STOPPING=1");
        sys::be_ordinary();
        let removed = self.rules.take().map_or(Ok(()), Rules::remove).map_err(failed("rules"));
        self.now = self.clock.now();
        self.reset_all();
        self.space.close(self.clock.std(self.now));
        self.flush_space();
        let more = json!({
            "nfqueue": self.lost(),
            "spacelink": self.space.report(),
            "counters": self.counters.report(),
            "cpu": { "user_s": sys::cpu_time().0, "system_s": sys::cpu_time().1 },
        });
        let recorded = match self.recorder.take() {
            Some(recorder) => recorder.finish(self.now, &self.gateway, more).map_err(failed("record")),
            None => Ok(()),
        };
        removed.and(recorded)
    }

    /// What NFQUEUE lost.
    fn lost(&self) -> serde_json::Value {
        let Some(queue) = &self.queue else { return serde_json::Value::Null };
        match queue.lost() {
            Ok(lost) => {
                json!({ "queue_dropped": lost.queue, "user_dropped": lost.user, "passed": lost.passed })
            }
            Err(e) => json!({ "error": e.to_string() }),
        }
    }

    /// A line for whoever started this.
    fn say(&self, value: &serde_json::Value) {
        use std::io::Write as _;
        // It goes on without whoever that was.
        let _ = writeln!(io::stdout(), "{value}").and_then(|()| io::stdout().flush());
    }

    /// A line about something that went wrong and is no reason to end.
    fn complain(&mut self, text: &str) {
        self.counters.faults += 1;
        log::warn("fault", &[("problem", text.into())]);
    }

    /// The flow of what goes between a client and a server.
    fn flow(&self, client: SocketAddr, server: SocketAddr, protocol: u8) -> u32 {
        match self.config.gateway.flow_key {
            FlowKey::Connection => judge::pair_number(client, server, protocol),
            FlowKey::User => judge::number_of(&[judge::bits(client.ip())]),
            FlowKey::Prefix => {
                let clients = &self.rules_setup.clients;
                clients
                    .iter()
                    .position(|prefix| prefix.contains(client.ip()))
                    .map_or(u32::MAX, |at| at as u32)
            }
        }
    }
}
