//! The event loop: one thread that waits for sockets, netfilter queues, signals and one timer together.
//!
//! A turn does a bounded amount of everything that is ready, so that nothing starves anything else. `Daemon::turn` lists
//! its steps:
//!
//! 1. what the gateway had due before this turn, each thing at its own time;
//! 2. the events: packets from netfilter, datagrams, new connections, sockets, signals;
//! 3. the spacelink's timers, then its events;
//! 4. relayed connections in the ready list, a piece each; connections that waited to be opened; chunks to send again;
//! 5. what the gateway has due by now;
//! 6. output: verdicts to netfilter, datagrams to the peer;
//! 7. reports and maintenance, then the timer for what is due next.
//!
//! All of a turn happens at one time, that of its beginning. Only the gateway is told earlier times in step 1, up to
//! [`CATCH_UP`] ago, so that a loop which is late keeps the rate.
//!
//! The parts of [`Daemon`] hold the state, each with a few methods; the files of this module move packets and bytes between
//! them.

mod ack_filter;
mod connections;
pub mod flows;
mod gateway_events;
pub mod gateway_host;
mod operation;
mod packets;
mod relay_chunks;
pub mod setup;
pub mod sources;
mod spacelink_events;

use std::io;

use bentpipe_spacelink::{PeerId, RateEstimator};
use bentpipe_units::{Duration, Instant};
use nix::sys::epoll::EpollEvent;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::config::Config;
use crate::intercept::interceptor::Interceptor;
use crate::intercept::steering::Steering;
use crate::observe::log;
use crate::observe::observer::Observer;
use crate::observe::publisher::Publisher;
use crate::relay::admission::Admission;
use crate::relay::chunks::Chunks;
use crate::relay::memory::PepMemory;
use crate::relay::spacelink_socket::SpacelinkSocket;
use crate::relay::table::Relays;
use crate::relay::terminals::Terminals;
use crate::sys::clock::Clock;
use crate::sys::modem::Modem;
use crate::sys::tun::Tun;
use crate::sys::{self, TcpOptions, notify};

use ack_filter::AckFilter;
use flows::FlowClassifier;
pub use gateway_host::CATCH_UP;
use gateway_host::GatewayHost;
use setup::failed;
pub use setup::{Failure, rules_left, rules_setup};
use sources::{Source, Sources};

/// Time between two rounds of maintenance.
const MAINTENANCE: Duration = Duration::from_millis(500);
/// Time until something that could not be done is tried again.
const AGAIN: Duration = Duration::from_micros(500);
/// Events collected at once.
const MOST_EVENTS: usize = 256;

/// An end of the gateway at work.
pub struct Daemon {
    config: Config,
    clock: Clock,
    /// Time of this turn.
    now: Instant,
    sources: Sources,
    /// The gateway, and what its packets stand for.
    host: GatewayHost,
    /// Reports the rate of the satellite link.
    modem: Option<Modem>,
    /// Estimates it, and the time of the next observation.
    estimator: Option<(RateEstimator, Instant)>,
    flows: FlowClassifier,
    /// The spacelinks' send windows.
    chunks: Chunks,
    spacelink: SpacelinkSocket,
    /// The peers, and the users behind each.
    terminals: Terminals,
    /// The device for packets that are not split.
    tun: Tun,
    /// Filters acknowledgements in the transmit queue, if asked for.
    ack_filter: Option<AckFilter>,
    interceptor: Interceptor,
    steering: Steering,
    relays: Relays,
    memory: PepMemory,
    admission: Admission,
    tcp_options: TcpOptions,
    observer: Observer,
    publisher: Publisher,
    /// A piece of a connection.
    scratch: Vec<u8>,
    next_maintenance: Instant,
    stopping: bool,
}

impl Daemon {
    /// Runs until a signal ends it, then removes the rules.
    ///
    /// # Errors
    /// If the loop itself cannot continue.
    pub fn run(mut self) -> Result<(), Failure> {
        if self.config.process.realtime {
            self.observer.counters.realtime = sys::set_realtime(1);
        }
        if let Err(failure) = self.go_public() {
            return self.stop().and(Err(failure));
        }
        self.report(&json!({ "ready": true }));
        let mut events = vec![EpollEvent::empty(); MOST_EVENTS];
        // Without any event: the first turn begins to connect and sets the timer.
        self.turn(&[]);
        let ran = loop {
            if self.stopping {
                break Ok(());
            }
            match self.sources.wait(&mut events, self.relays.ready() == 0) {
                Ok(count) => self.turn(&events[..count]),
                Err(nix::Error::EINTR) => {}
                Err(e) => break Err(Failure(format!("epoll: {e}"))),
            }
        };
        let removed = self.stop();
        ran.and(removed)
    }

    /// One turn, in the steps of the module's page.
    fn turn(&mut self, events: &[EpollEvent]) {
        self.begin_turn();
        // 1. The gateway's past.
        self.run_gateway();
        // 2. Events.
        for event in events {
            if let Some(source) = Source::decode(event.data()) {
                self.dispatch(source, event);
            }
        }
        // 3. The spacelink.
        self.spacelink.run_timers(self.clock.std(self.now));
        self.handle_spacelink_events();
        // 4. Relayed connections.
        self.serve_relays();
        self.connect_waiting();
        self.retry_chunks();
        // 5. The gateway's present.
        self.run_gateway();
        // 6. Output. Step 4 may have read the last byte of a stream, which the spacelink reports as an event.
        self.flush_verdicts();
        self.handle_spacelink_events();
        self.flush_spacelink();
        // 7. Reports, maintenance, timer.
        self.estimate_rate();
        self.report_up();
        if self.now >= self.next_maintenance {
            self.periodic_maintenance();
        }
        let spacelink = || self.spacelink.hub.stats();
        self.observer.sample(self.now, || self.host.state(self.now), self.memory.buffers(), spacelink);
        self.publish();
        self.arm_timer();
    }

    fn begin_turn(&mut self) {
        self.now = self.clock.now();
        self.sources.timer_passed(self.now);
        let late = self.host.lateness_ns(self.now);
        self.observer.turn(self.now, self.chunks.is_waiting(), late);
    }

    fn dispatch(&mut self, source: Source, event: &EpollEvent) {
        match source {
            Source::Timer => self.observer.counters.timer_wakes += 1,
            Source::Signals => self.handle_signals(),
            Source::Spacelink => self.receive_spacelink(event.events()),
            Source::Tun => self.read_tun(),
            Source::Packets => self.receive_intercepted(),
            Source::Acks => self.cut_windows(),
            Source::Modem => self.read_modem(),
            Source::Listener(index) => self.accept(index),
            Source::Relay { id, generation } => self.on_socket(id, generation, event.events()),
        }
    }

    /// Sets the timer to the next time at which something is due.
    fn arm_timer(&mut self) {
        let blocked = self.steering.report_up || self.spacelink.is_blocked();
        let due = [
            Some(self.next_maintenance),
            self.host.next_wake(),
            self.spacelink.next_timer(&self.clock),
            self.chunks.next_retry(),
            self.observer.next_sample(),
            self.publisher.next(),
            self.estimator.as_ref().map(|(_, next)| *next),
            blocked.then_some(self.now + AGAIN),
        ];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_maintenance);
        if self.sources.set_timer(next, &self.clock).is_err() {
            self.observer.counters.faults += 1;
        }
    }

    /// Handles what changes slowly.
    fn periodic_maintenance(&mut self) {
        self.next_maintenance = self.now + MAINTENANCE;
        // Learns which commands have ended.
        self.rules_settled();
        self.listen(true);
        self.reset_idle();
        let full: Vec<_> =
            self.terminals.iter().filter(|(_, terminal)| terminal.full).map(|(peer, _)| peer).collect();
        full.into_iter().for_each(|peer| self.check_room(peer));
        self.check_syn_flood();
        self.update_bypass();
    }

    fn handle_signals(&mut self) {
        while let Some(signal) = self.sources.read_signal() {
            match signal {
                Signal::SIGTERM | Signal::SIGINT => self.stopping = true,
                Signal::SIGHUP => self.reload(),
                _ => {}
            }
        }
    }

    /// Stops: resets connections, removes rules, ends the record.
    fn stop(mut self) -> Result<(), Failure> {
        log::info("stopping", &[]);
        let _ = notify::notify("STOPPING=1");
        sys::clear_realtime();
        let removed = self.steering.remove().map_err(failed("rules"));
        self.now = self.clock.now();
        self.reset_all();
        self.spacelink.hub.close(self.clock.std(self.now));
        self.flush_spacelink();
        let (user, system) = sys::cpu_time();
        let more = json!({
            "nfqueue": self.lost_packets(),
            "spacelink": self.spacelink.report(),
            "counters": self.observer.counters.report(),
            "cpu": { "user_s": user, "system_s": system },
        });
        let names = |peer: PeerId| self.terminals.name(peer).to_owned();
        let state = self.host.state(self.now);
        let recorded = self.observer.finish(self.now, &state, names, more).map_err(failed("record"));
        removed.and(recorded)
    }

    /// Packets lost ahead of the AQM, as JSON.
    fn lost_packets(&self) -> serde_json::Value {
        let Some(queue) = &self.interceptor.packets else { return serde_json::Value::Null };
        match queue.lost() {
            Ok(lost) => {
                json!({ "queue_dropped": lost.queue, "user_dropped": lost.user, "passed": lost.passed })
            }
            Err(e) => json!({ "error": e.to_string() }),
        }
    }

    /// Writes a line of JSON for the process that started this one.
    fn report(&self, value: &serde_json::Value) {
        use std::io::Write as _;
        // The reader may be gone.
        let _ = writeln!(io::stdout(), "{value}").and_then(|()| io::stdout().flush());
    }
}
