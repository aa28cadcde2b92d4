//! Operation: start and reload, the modem's rate, and the published state.

use bentpipe_gateway::GatewayQueue;
use bentpipe_units::{Duration, Rate};

use super::{Daemon, Failure};
use crate::config::{Changes, Config, Role};
use crate::intercept::nfqueue::Queue;
use crate::observe::bottleneck::Evidence;
use crate::observe::metrics::{Connections, NfqueueLost, QueueState, Snapshot, Spacelink, Traffic};
use crate::observe::{http, log};
use crate::sys::modem::Modem;
use crate::sys::{self, notify, privileges};

impl Daemon {
    /// Drops privileges, starts the HTTP server, and tells the service manager that the daemon is ready.
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
        let (observer, gateway, link) = (&self.observer, &self.host.gateway, self.spacelink.hub.stats());
        let counters = &observer.counters;
        let queue = |place: GatewayQueue| {
            let queue = match place {
                GatewayQueue::Receive => gateway.receive_queue(),
                GatewayQueue::Transmit => gateway.transmit_queue(),
            };
            QueueState {
                packets: u64::from(queue.state().packets),
                bytes: queue.state().bytes,
                aqm_drops: observer.drops.of(place).aqm,
                overflow_drops: observer.drops.of(place).overflow,
                delay: *observer.delays.of(place),
            }
        };
        let watched = gateway.watched_queue();
        let mut probes = Vec::new();
        watched.probe(&mut |owner, name, value| probes.push((owner, name, value)));
        let round_trip = Duration::from_nanos(u64::try_from(link.round_trip.as_nanos()).unwrap_or(u64::MAX));
        let survey = self.survey();
        let buffers = self.memory.buffers();
        Snapshot {
            now: self.now,
            receive: queue(GatewayQueue::Receive),
            transmit: queue(GatewayQueue::Transmit),
            held: u64::from(watched.state().held),
            aqm_offered_packets: watched.counters().offered,
            aqm_offered_bytes: watched.counters().offered_bytes,
            aqm_bypassed_packets: counters.aqm_bypassed,
            marked: watched.counters().marked,
            nfqueue: self.nfqueue_losses(),
            capacity: self.host.rate(),
            debt: gateway.debt(self.now),
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
            probes,
            evidence: Evidence {
                payload: link.written_bytes + observer.udp.sent + observer.other.sent,
                sent: gateway.transmit_queue().state().sent_bytes + counters.charged_bytes,
                packet_seconds: gateway.transmit_queue().packet_seconds(self.now),
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

    fn nfqueue_losses(&self) -> Vec<NfqueueLost> {
        let number = self.config.internet.as_ref().map_or(0, |i| i.queue.0 as u16);
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
        let aqm = match self.config.role {
            Role::Gateway if changes.aqm => {
                Some(new.gateway.aqm.build().map_err(|e| format!("gateway.aqm: {e}"))?)
            }
            _ => None,
        };
        self.config.take(new, &changes);
        log::set(self.config.log.level, self.config.log.format);
        if let Some(aqm) = aqm {
            self.host.gateway.set_aqm(aqm, self.now);
        }
        if changes.rate {
            self.set_rate(self.config.rate());
        }
        self.admission.set_limits(&self.config, sys::raise_descriptors());
        self.memory.set_limit(self.config.limits.memory.0);
        self.update_bypass();
        let names =
            [(changes.aqm, "aqm"), (changes.rate, "rate"), (changes.limits, "limits"), (changes.log, "log")];
        let changed: Vec<_> = names.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(",") };
        log::info("reloaded", &[("changed", changed.into())]);
        for key in &changes.fixed {
            log::warn("reload_needs_restart", &[("key", key.as_str().into())]);
        }
        Ok(())
    }

    /// Reads the rate that the modem reports.
    pub(super) fn read_modem(&mut self) {
        match self.modem.as_ref().and_then(Modem::read_rate) {
            Some(Ok(rate)) => self.set_rate(Some(rate)),
            Some(Err(problem)) => self.observer.fault(&format!("satellite.modem: {problem}")),
            None => {}
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
