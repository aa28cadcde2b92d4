//! Operation: start and reload, the modem's rate, and the published state.

use std::thread;

use bentpipe_gateway::{Gateway, GatewayQueue};
use bentpipe_spacelink::{Certificate, LinkObservation, PeerId};
use bentpipe_units::{Duration, Rate};

use super::connections::Survey;
use super::gateway_host::Totals;
use super::setup::failed;
use super::{Daemon, Failure};
use crate::config::{self, Changes, Config};
use crate::intercept::nfqueue::Queue;
use crate::intercept::terminal_routes::RouteTarget;
use crate::observe::bottleneck::Evidence;
use crate::observe::metrics::{
    Connections, NfqueueLost, PeerQueue, PeerState, QueueState, Snapshot, Spacelink, Traffic,
};
use crate::observe::{http, log};
use crate::relay::terminals::Terminal;
use crate::sys::modem::Modem;
use crate::sys::{self, notify, privileges};

/// Time between two observations of the link for an estimate of its rate.
const OBSERVE: Duration = Duration::from_millis(20);

impl Daemon {
    /// Drops privileges, starts the threads, and tells the service manager that the daemon is ready.
    pub(super) fn go_public(&mut self) -> Result<(), Failure> {
        match privileges::reduce() {
            Ok(left) => log::debug("privileges", &[("capabilities", format!("{:x}", left.permitted).into())]),
            Err(e) => log::warn("privileges", &[("problem", e.to_string().into())]),
        }
        if let (Some(shared), Some(metrics)) = (&self.publisher.shared, &self.config.metrics) {
            let listen = metrics.listen.0;
            let address = http::serve(listen, shared.clone())
                .map_err(|e| Failure(format!("metrics.listen: {listen}: {e}")))?;
            log::info("metrics", &[("listen", address.to_string().into())]);
        }
        let realtime = self.observer.counters.realtime;
        if self.config.process.send_thread && thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            self.spacelink.start_sender(realtime).map_err(failed("process.send_thread"))?;
        }
        log::info("ready", &[("role", self.config.role.name().into()), ("realtime", realtime.into())]);
        // Without a service manager nobody listens.
        let _ = notify::notify("READY=1");
        Ok(())
    }

    /// Publishes the state if that is due.
    pub(super) fn publish(&mut self) {
        self.publisher.feed_watchdog(self.now);
        if self.publisher.is_due(self.now) {
            self.publisher.publish(self.snapshot());
        }
    }

    fn snapshot(&self) -> Snapshot {
        let (observer, host, link) = (&self.observer, &self.host, self.spacelink.hub.stats());
        let sum = |of: &dyn Fn(&Gateway) -> u64| host.gateways().map(of).sum::<u64>();
        let counters = &observer.counters;
        let queue = |place: GatewayQueue| {
            let of = |gateway: &Gateway| match place {
                GatewayQueue::Receive => *gateway.receive_queue().state(),
                GatewayQueue::Transmit => *gateway.transmit_queue().state(),
            };
            QueueState {
                packets: sum(&|gateway| u64::from(of(gateway).packets)),
                bytes: sum(&|gateway| of(gateway).bytes),
                aqm_drops: observer.drops.of(place).aqm,
                overflow_drops: observer.drops.of(place).overflow,
                delay: *observer.delays.of(place),
            }
        };
        let mut probes = Vec::new();
        if let Some(gateway) = host.gateway(PeerId(0)).filter(|_| !host.is_shared()) {
            gateway.watched_queue().probe(&mut |owner, name, value| probes.push((owner, name, value)));
        }
        let round_trip = Duration::from_nanos(u64::try_from(link.round_trip.as_nanos()).unwrap_or(u64::MAX));
        let surveys = self.surveys();
        let survey = surveys.iter().copied().fold(Survey::default(), Survey::with);
        let buffers = self.memory.buffers();
        let totals = host.totals(self.now);
        Snapshot {
            now: self.now,
            receive: queue(GatewayQueue::Receive),
            transmit: queue(GatewayQueue::Transmit),
            held: sum(&|gateway| u64::from(gateway.watched_queue().state().held)),
            aqm_offered_packets: totals.watched.offered,
            aqm_offered_bytes: totals.watched.offered_bytes,
            aqm_bypassed_packets: counters.aqm_bypassed,
            marked: totals.watched.marked,
            nfqueue: self.nfqueue_losses(),
            capacity: self.host.rate(),
            debt: host.debt(self.now),
            traffic: [
                Traffic { sent: link.written_bytes, received: link.read_bytes },
                observer.udp,
                observer.other,
            ],
            connections: Connections {
                open: u64::from(self.relays.open()) - survey.half_open,
                half_open: survey.half_open,
                accepted: counters.opened,
                refused: counters.unreachable + counters.refused,
                reset: counters.reset,
                resets: counters.resets,
                bypassing: self.admission.reported_full() || self.steering.is_bypassing(),
            },
            buffered: buffers.occupied(),
            buffer_limit: buffers.limits().map(|(mean, _)| mean),
            spacelink: Spacelink {
                up: link.up,
                connections: link.connections,
                round_trip: link.up.then_some(round_trip),
                sent_packets: link.sent_packets,
                lost_packets: link.lost_packets,
                lost_bytes: link.lost_bytes,
                sent_bytes: link.sent_bytes,
                received_bytes: link.received_bytes,
            },
            peers: self
                .terminals
                .iter()
                .filter_map(|(peer, _)| {
                    let survey = surveys.get(peer.index()).copied().unwrap_or_default();
                    self.peer_state(peer, survey, &totals.queues)
                })
                .collect(),
            queue: totals.queues,
            probes,
            evidence: Evidence {
                payload: link.written_bytes + observer.udp.sent + observer.other.sent,
                sent: totals.sent_bytes + counters.charged_bytes,
                packet_seconds: totals.queues.packet_seconds,
                window_limited_ns: observer.window_limited.as_nanos(),
                window_limited_streams: survey.window_limited,
                up: link.up && !link.silent,
                full_buffers: survey.full_buffers,
                buffered: buffers.occupied(),
                in_flight: survey.in_flight,
                delivered: observer.delivered,
                round_trip,
            },
        }
    }

    /// State of a peer with these connections; `all` are the queues of all peers together.
    fn peer_state(&self, peer: PeerId, survey: Survey, all: &PeerQueue) -> Option<PeerState> {
        let link = self.spacelink.hub.link(peer)?.stats();
        let terminal = self.terminals.get(peer)?;
        let queue = self.host.gateway(peer).filter(|_| self.host.is_shared()).map(|gateway| {
            let mut own = Totals::default();
            own.add(gateway, self.now);
            own.queues
        });
        let round_trip = Duration::from_nanos(u64::try_from(link.round_trip.as_nanos()).unwrap_or(u64::MAX));
        Some(PeerState {
            name: self.terminals.name(peer).to_owned(),
            up: link.up,
            silent: link.silent,
            round_trip: link.up.then_some(round_trip),
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
            sent_packets: link.sent_packets,
            lost_packets: link.lost_packets,
            connections: link.streams,
            plan: terminal.plan.clone(),
            capacity: self.host.peak(peer),
            queue,
            evidence: Evidence {
                payload: link.written_bytes + link.sent_ip,
                sent: link.sent_bytes,
                packet_seconds: queue.as_ref().unwrap_or(all).packet_seconds,
                window_limited_streams: survey.window_limited + self.chunks.waiting(peer) as u64,
                up: link.up && !link.silent,
                full_buffers: survey.full_buffers,
                buffered: survey.buffered,
                in_flight: survey.in_flight,
                delivered: terminal.delivered,
                round_trip,
                ..Evidence::default()
            },
        })
    }

    fn nfqueue_losses(&self) -> Vec<NfqueueLost> {
        let number = self.steering.setup.side.queue().unwrap_or(0);
        let losses = |queue: &Option<Queue>, number: u16| {
            let lost = queue.as_ref()?.lost().ok()?;
            Some(NfqueueLost { queue: number, queue_full: lost.queue, buffer_full: lost.user })
        };
        let Self { interceptor, .. } = self;
        [losses(&interceptor.packets, number), losses(&interceptor.acks, number.saturating_add(1))]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Reads the configuration again and takes over what can change while connections are open. A configuration with a
    /// mistake changes nothing.
    pub(super) fn reload(&mut self) {
        let _ = notify::reloading(self.clock.monotonic(self.now));
        let done = self.try_reload();
        if let Err(problem) = &done {
            log::error("reload_refused", &[("problem", problem.as_str().into())]);
        }
        self.publisher.reloaded(&self.config, done.is_ok());
        let _ = notify::notify("READY=1");
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let new = Config::load(&self.config.path).map_err(|e| e.to_string())?;
        let changes = Changes::between(&self.config, &new);
        let aqm = match new.queues() {
            Some(queues) if changes.aqm => {
                let build = |_| queues.aqm.build().map_err(|e| format!("aqm: {e}"));
                Some(self.host.gateways().map(build).collect::<Result<Vec<_>, _>>()?)
            }
            _ => None,
        };
        let certificates = match &new.terminals {
            Some(terminals) => terminals.certificates()?,
            None => Vec::new(),
        };
        let before = self.config.terminals.clone();
        self.config.take(new, &changes);
        log::set(self.config.log.level, self.config.log.format);
        if let Some(aqm) = aqm {
            let mut aqms = aqm.into_iter();
            self.host.with_all(|gateway, at| {
                if let Some(aqm) = aqms.next() {
                    gateway.set_aqm(aqm, at);
                }
            });
        }
        if changes.rate {
            let rate = self.config.rate();
            if let Some(((estimator, _), most)) = self.estimator.as_mut().zip(rate) {
                estimator.set_most(most);
            }
            self.set_rate(rate);
        }
        self.update_terminals(before.as_ref(), &certificates)?;
        self.admission.set_limits(&self.config, sys::raise_descriptors());
        self.memory.set_limit(self.config.limits.memory.0);
        self.update_bypass();
        let names = [
            (changes.aqm, "aqm"),
            (changes.rate, "rate"),
            (changes.limits, "limits"),
            (changes.log, "log"),
            (changes.terminals, "terminals"),
        ];
        let changed: Vec<_> = names.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(",") };
        log::info("reloaded", &[("changed", changed.into())]);
        for key in &changes.fixed {
            log::warn("reload_needs_restart", &[("key", key.as_str().into())]);
        }
        Ok(())
    }

    /// Adds, changes and removes terminals as the configuration says, in place of those `before`, without touching the
    /// connections of others. `certificates` are those of the configuration's terminals.
    fn update_terminals(
        &mut self,
        before: Option<&config::Terminals>,
        certificates: &[Certificate],
    ) -> Result<(), String> {
        let Some(terminals) = self.config.terminals.clone().filter(|_| before.is_some()) else {
            return Ok(());
        };
        let find =
            |name: &str| terminals.list.iter().zip(certificates).find(|(terminal, _)| terminal.name == name);
        let (mut gone, mut moved, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for (peer, running) in self.terminals.iter() {
            let name = running.name.as_deref().unwrap_or_default();
            let Some((terminal, _)) =
                find(name).filter(|(_, own)| running.certificate.as_ref() == Some(*own))
            else {
                gone.push(peer);
                continue;
            };
            let was = before.and_then(|before| before.list.iter().find(|other| other.name == name));
            if was.is_none_or(|was| was.share != terminal.share) {
                shares.push((peer, terminal.share));
            }
            if running.clients != terminal.clients {
                moved.push((peer, terminal.clients.clone()));
            }
        }
        for peer in gone {
            log::info("terminal_removed", &[("terminal", self.terminals.name(peer).into())]);
            for event in self.spacelink.hub.remove(peer, self.clock.std(self.now)) {
                self.handle_peer_event(peer, event);
            }
            self.host.remove(peer);
            self.observer.terminal_removed(peer, self.terminals.name(peer));
            self.withdraw_terminal(peer);
            self.terminals.remove(peer);
        }
        let mut changed: Vec<_> = moved.iter().map(|(peer, _)| (*peer, "clients")).collect();
        changed.extend(shares.iter().map(|(peer, _)| (*peer, "plan")));
        for (peer, key) in changed {
            let fields = [("terminal", self.terminals.name(peer).into()), ("key", key.into())];
            log::info("terminal_changed", &fields);
        }
        let moving: Vec<_> = moved.iter().map(|(peer, _)| *peer).collect();
        moving.iter().for_each(|peer| self.withdraw_terminal(*peer));
        self.terminals.set_clients(moved);
        moving.iter().for_each(|peer| self.lead_terminal(*peer));
        for (peer, share) in shares {
            self.host.set_share(peer, share);
        }
        let named: Vec<_> =
            self.terminals.iter().map(|(peer, running)| (peer, running.name.clone())).collect();
        for (peer, name) in named {
            let plan = find(name.as_deref().unwrap_or_default()).and_then(|(own, _)| own.plan.as_deref());
            self.terminals.set_plan(peer, plan);
        }
        for (terminal, certificate) in terminals.list.iter().zip(certificates) {
            let is_there = |(_, running): (_, &Terminal)| running.name.as_deref() == Some(&terminal.name);
            if !self.terminals.iter().any(is_there) {
                log::info("terminal_added", &[("terminal", terminal.name.as_str().into())]);
                self.add_terminal(terminal, certificate).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes the routes of a terminal's users.
    fn withdraw_terminal(&mut self, peer: PeerId) {
        let Some(terminal) = self.terminals.get(peer) else { return };
        if let Err(e) = self.steering.set_routes(&terminal.clients, RouteTarget::None) {
            self.observer.fault(&e.to_string());
        }
    }

    /// Reads the rate that the modem reports.
    pub(super) fn read_modem(&mut self) {
        match self.modem.as_ref().and_then(Modem::read_rate) {
            Some(Ok(rate)) => self.set_rate(Some(rate)),
            Some(Err(problem)) => self.observer.fault(&format!("satellite.modem: {problem}")),
            None => {}
        }
    }

    /// Observes the link for the estimate of its rate, if that is due.
    pub(super) fn estimate_rate(&mut self) {
        let Some((estimator, next)) = &mut self.estimator else { return };
        if *next > self.now {
            return;
        }
        *next = self.now + OBSERVE;
        let Some(link) = self.spacelink.hub.link(PeerId(0)).map(|link| link.stats()) else { return };
        let known = link.up && !link.silent;
        let round_trip = u64::try_from(link.round_trip.as_nanos()).unwrap_or(u64::MAX);
        let waiting = self.host.gateway(PeerId(0)).is_some_and(Gateway::is_backlogged);
        let seen = LinkObservation {
            delivered: link.delivered_bytes,
            round_trip: if known { Duration::from_nanos(round_trip) } else { Duration::ZERO },
            is_busy: waiting,
        };
        if let Some(rate) = estimator.observe(seen, self.now) {
            self.set_rate(Some(rate));
        }
    }

    /// Sets the rate of the link to the peer: `None` for no limit, zero to stop.
    fn set_rate(&mut self, rate: Option<Rate>) {
        if self.host.set_rate(rate, self.now) {
            let text = rate.map_or("any".to_owned(), |rate| rate.to_string());
            log::debug("rate", &[("rate", text.into())]);
            self.spacelink.hub.set_rate(rate);
        }
    }
}
