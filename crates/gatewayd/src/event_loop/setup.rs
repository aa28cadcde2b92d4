//! Setup of the daemon: everything that the loop needs, the rules last.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use bentpipe_gateway::{Drain, Gateway, GatewayQueue, PepBuffers, Processor, Regulator, Setup};
use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{Limit, Marking, Queue, QueueConfig};
use bentpipe_scenario::{Protocol, QueuesPer};
use bentpipe_spacelink::{Certificate, PeerId, RateBounds, RateEstimator};
use bentpipe_units::{Duration, Instant, Rate};

use super::Daemon;
use super::ack_filter::AckFilter;
use super::flows::{FlowClassifier, FlowHasher};
use super::gateway_host::GatewayHost;
use super::sources::{Source, Sources};
use crate::config::{Config, Role, Terminal};
use crate::intercept::inject::Injector;
use crate::intercept::interceptor::Interceptor;
use crate::intercept::steering::Steering;
use crate::intercept::terminal_routes::RouteTarget;
use crate::intercept::{nfqueue, rules};
use crate::observe::observer::Observer;
use crate::observe::publisher::Publisher;
use crate::observe::record::Recorder;
use crate::relay::admission::Admission;
use crate::relay::chunks::Chunks;
use crate::relay::connection::PIECE;
use crate::relay::memory::PepMemory;
use crate::relay::spacelink_socket::SpacelinkSocket;
use crate::relay::table::Relays;
use crate::relay::terminals::Terminals;
use crate::sys::clock::Clock;
use crate::sys::modem::Modem;
use crate::sys::tun::Tun;
use crate::sys::{self, TcpOptions};

/// Unsent bytes that the kernel holds for a relayed connection (TCP_NOTSENT_LOWAT).
const UNSENT: u32 = 128 << 10;

/// Reason for the daemon not to start, or to end.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Names `what` failed in front of an error.
pub fn failed(what: &str) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |e| Failure(format!("{what}: {e}"))
}

/// Names `what` failed in front of an error number.
pub fn failed_nix(what: &str) -> impl FnOnce(nix::Error) -> Failure + '_ {
    move |e| Failure(format!("{what}: {e}"))
}

/// Folder for the file with changed settings: one for each network namespace.
fn state_folder() -> PathBuf {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Path::new("/run/bentpipe").join(number)
}

/// Rules and routes that an end with this configuration installs.
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
            // Without splitting there is no listener, so no connections are taken.
            let splits = config.gateway.pep.split.contains(&Protocol::Tcp);
            let side = rules::Side::Users {
                port: if splits { users.port.0 as u16 } else { 0 },
                queue: config.queues().map(|_| users.queue.0 as u16),
            };
            (users.device.0.clone(), users.clients.clone(), side)
        }
        (None, None) => return rules_left(config.role),
    };
    rules::Setup {
        interface,
        side,
        clients,
        tunnel: Some(config.tunnel.name.0.clone()),
        terminals: config.terminals.is_some(),
        ecn: config.queues().is_some_and(|queues| queues.marking.method.marking == Marking::Ecn),
        offload: true,
        ..rules_left(config.role)
    }
}

/// Enough of an end's rules to remove them, whatever its configuration says.
#[must_use]
pub fn rules_left(role: Role) -> rules::Setup {
    rules::Setup {
        name: role.name().to_owned(),
        folder: state_folder(),
        interface: String::new(),
        side: rules::Side::Users { port: 0, queue: None },
        clients: Vec::new(),
        tunnel: None,
        terminals: false,
        ecn: false,
        offload: false,
        table: 9800,
    }
}

/// The `queues` of this end for all peers, or for one of many terminals.
///
/// # Errors
/// A contradiction between two parameters, which reading the configuration has excluded.
pub(super) fn build_gateway(
    config: &Config,
    queues: &bentpipe_scenario::Gateway,
    terminal: Option<&Terminal>,
) -> Result<Gateway, Failure> {
    let aqm = queues.aqm.build().map_err(|e| Failure(format!("aqm: {e}")))?;
    let mut setup = queues.config(None, None).map_err(|e| Failure(format!("gateway: {e}")))?;
    if let Some(terminal) = terminal {
        let rate = queues.regulator.rate;
        setup.peak = Some(terminal.share.pir.map_or(rate, |pir| pir.min(rate)));
        // Each terminal has its own random numbers, whichever others there are.
        setup.name = format!("{} {}", setup.name, terminal.name);
    }
    Ok(setup.build(aqm, config.seed))
}

/// Gateway and buffers at a terminal without `gateway.return`: first in, first out, without AQM.
fn plain_terminal(config: &Config, rate: Rate) -> (Gateway, PepBuffers) {
    let terminal = config.gateway.terminals.only().map_or("terminal", |terminal| terminal.name.as_str());
    let queue = |name: &str| {
        let setup = QueueConfig {
            marking: Marking::Drop,
            limit: Limit::NONE,
            capacity: rate,
            seed: config.seed,
            name: format!("{terminal} {name}"),
        };
        Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup)
    };
    let gateway = Gateway::new(Setup {
        receive: queue("receive"),
        receive_rate: None,
        transmit: queue("transmit"),
        watch: GatewayQueue::Transmit,
        mark: GatewayQueue::Receive,
        processing: Processor::constant(Duration::ZERO),
        drain: Drain::Regulator(Regulator::new(rate, Duration::ZERO)),
    });
    (gateway, PepBuffers::new(config.gateway.pep.buffer, config.gateway.pep.buffer_per))
}

/// The estimator of the satellite link's rate, if the configuration has one, and the time of its first observation.
fn estimator(config: &Config, now: Instant) -> Option<(RateEstimator, Instant)> {
    let (estimate, most) = config.satellite.estimate.zip(config.rate())?;
    let bounds = RateBounds { least: estimate.least.rate(), most, delay: estimate.delay.time() };
    Some((RateEstimator::new(bounds), now))
}

impl Daemon {
    /// Opens everything that the loop needs, the rules last.
    ///
    /// # Errors
    /// If the system refuses something; names what.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let clock = Clock::start();
        let now = clock.now();
        let descriptors = sys::raise_descriptors();
        let sources = Sources::open()?;

        let rate = config.rate();
        let tick = config.gateway.regulator.tick.unwrap_or_default();
        let (host, buffers) = match config.queues() {
            Some(queues) if config.queues_per() == QueuesPer::Terminal => {
                let rate = GatewayHost::rate_or_unlimited(rate);
                (GatewayHost::sharing(rate, tick, now), queues.buffers())
            }
            Some(queues) => {
                (GatewayHost::new(build_gateway(&config, queues, None)?, rate, now), queues.buffers())
            }
            None => {
                let (gateway, buffers) = plain_terminal(&config, GatewayHost::rate_or_unlimited(rate));
                (GatewayHost::new(gateway, rate, now), buffers)
            }
        };
        let spacelink = SpacelinkSocket::open(&config, rate, &clock, now)?;
        let s = &config.gateway.spacelink;
        // A full packet of the scenario, unless the satellite's packets are smaller.
        let payload = (s.packet - s.header).min(spacelink.hub.max_chunk() as u64).max(1);
        let chunks = Chunks::new(payload, s.header, s.window, s.stream_window);
        let tun = Tun::open(&config.tunnel.name.0, config.satellite.mtu.0 as u32)
            .map_err(failed(&format!("TUN device {}", config.tunnel.name)))?;
        let rules = rules_setup(&config);
        let recorder = match &config.record {
            Some(record) => {
                let limits = buffers.has_control();
                let name = config.queues().map_or("terminal", |queues| queues.name.as_str());
                let watched = (host.watched(), host.is_shared());
                let made = Recorder::new(record, name, &clock, now, watched, limits);
                Some(made.map_err(failed(&record.file.display().to_string()))?)
            }
            None => None,
        };
        let receive_buffer = config.gateway.pep.receive_buffer.unwrap_or(config.tcp.receive_buffer.0);
        let tcp_options = TcpOptions {
            congestion: config.tcp.congestion.clone(),
            receive_buffer: usize::try_from(receive_buffer).unwrap_or(usize::MAX),
            unsent: UNSENT,
            keepalive: config.tcp.keepalive.time(),
            user_timeout: config.tcp.user_timeout.time(),
        };
        let hasher = FlowHasher::default();
        let mut daemon = Self {
            clock,
            now,
            sources,
            host,
            modem: None,
            estimator: estimator(&config, now),
            flows: FlowClassifier::new(
                config.queues().unwrap_or(&config.gateway).flow_key,
                rules.clients.clone(),
                hasher.clone(),
            ),
            chunks,
            spacelink,
            terminals: Terminals::default(),
            tun,
            ack_filter: config.queues().is_some_and(|queues| queues.ack_filter).then(AckFilter::default),
            interceptor: Interceptor::default(),
            steering: Steering::new(rules),
            relays: Relays::new(hasher),
            memory: PepMemory::new(
                buffers,
                config.queues().unwrap_or(&config.gateway).pep.buffer_per,
                config.limits.memory.0,
            ),
            admission: Admission::new(&config, descriptors, now),
            tcp_options,
            observer: Observer::new(recorder, now),
            publisher: Publisher::new(&config, now),
            scratch: vec![0; PIECE],
            next_maintenance: now,
            stopping: false,
            config,
        };
        daemon.add_terminals()?;
        daemon.open_outside()?;
        Ok(daemon)
    }

    /// Accepts the peers that the configuration names.
    fn add_terminals(&mut self) -> Result<(), Failure> {
        let Some(terminals) = self.config.terminals.clone() else {
            self.terminals = Terminals::only(PeerId(0));
            return Ok(());
        };
        let certificates = terminals.certificates().map_err(Failure)?;
        for (terminal, certificate) in terminals.list.iter().zip(&certificates) {
            self.add_terminal(terminal, certificate)?;
        }
        Ok(())
    }

    /// Accepts a terminal from now on.
    pub(super) fn add_terminal(
        &mut self,
        terminal: &Terminal,
        certificate: &Certificate,
    ) -> Result<(), Failure> {
        let gateway = match self.host.is_shared() {
            true => Some(build_gateway(&self.config, &self.config.gateway, Some(terminal))?),
            false => None,
        };
        let peer = self.spacelink.hub.add(certificate);
        self.observer.terminal_added(peer);
        let known = (terminal.name.clone(), certificate.clone());
        self.terminals.insert(peer, Some(known), terminal.clients.clone());
        self.terminals.set_plan(peer, terminal.plan.as_deref());
        self.lead_terminal(peer);
        if let Some(gateway) = gateway {
            self.host.add(peer, gateway, terminal.share);
        }
        Ok(())
    }

    /// Opens queues and listeners, registers all sources and installs the rules that lead packets here.
    fn open_outside(&mut self) -> Result<(), Failure> {
        self.sources.add_readable(self.spacelink.as_fd(), Source::Spacelink)?;
        self.sources.add_readable(self.tun.as_fd(), Source::Tun)?;
        if let Some(path) = &self.config.modem {
            let modem = Modem::open(path).map_err(failed(&format!("satellite.modem: {}", path.display())))?;
            self.sources.add_readable(&modem, Source::Modem)?;
            self.modem = Some(modem);
        }
        match self.steering.setup.side {
            rules::Side::Internet { queue, windows } => self.open_queues(queue, windows)?,
            rules::Side::Users { port, queue } => {
                if let Some(queue) = queue {
                    self.open_queues(queue, None)?;
                }
                self.open_listeners(port)?;
            }
        }
        let folder = &self.steering.setup.folder;
        std::fs::create_dir_all(folder).map_err(failed(&folder.display().to_string()))?;
        self.steering.install().map_err(failed("rules"))?;
        for (_, terminal) in self.terminals.iter() {
            self.steering.set_routes(&terminal.clients, RouteTarget::Bypass).map_err(failed("routes"))?;
        }
        self.set_up(false);
        Ok(())
    }

    /// Listens for users' connections; port 0 takes none.
    fn open_listeners(&mut self, port: u16) -> Result<(), Failure> {
        if port > 0 {
            for v6 in [false, true] {
                match sys::listener(v6, port, &self.tcp_options) {
                    Ok(listener) => self.admission.listeners.push(listener),
                    // A machine without IPv6.
                    Err(e) if v6 && e.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {}
                    Err(e) => return Err(Failure(format!("port {port} for TPROXY: {e}"))),
                }
            }
            self.listen(true);
        }
        Ok(())
    }

    fn open_queues(&mut self, packets: u16, acks: Option<u16>) -> Result<(), Failure> {
        let settings = nfqueue::Settings::default();
        let open =
            |number| nfqueue::Queue::open(number, &settings).map_err(failed(&format!("NFQUEUE {number}")));
        let interceptor = &mut self.interceptor;
        let queue = interceptor.packets.insert(open(packets)?);
        self.sources.add_readable(queue, Source::Packets)?;
        if let Some(number) = acks {
            let queue = interceptor.acks.insert(open(number)?);
            interceptor.injector = Some(Injector::open().map_err(failed("raw socket"))?);
            self.sources.add_readable(queue, Source::Acks)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metrics name the queue by this number, too.
    #[test]
    fn a_terminal_with_an_aqm_has_the_queue_of_its_users() {
        let text = "role = \"terminal\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\nRETURN\
             [satellite]\nlocal = \"10.2.0.2:4400\"\npeer = \"10.2.0.1:4400\"\nkeys = \"keys\"\nrate = \"2 Mbps\"\n\
             [users]\ndevice = \"us0\"\nclients = [\"10.3.0.0/24\"]\nqueue = 7\n";
        let queue = |lines: &str| {
            let config = Config::parse(&text.replace("RETURN", lines), "t.toml").unwrap();
            rules_setup(&config).side.queue()
        };
        assert_eq!(queue("return = { aqm.algorithm = \"red\" }\n"), Some(7));
        assert_eq!(queue(""), None);
    }
}
