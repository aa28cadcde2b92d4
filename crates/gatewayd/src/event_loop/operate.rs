//! What an end shows to those who look on, and what it takes over when its configuration is read again.

use bentpipe_gateway::GatewayQueue;
use bentpipe_queue::DropReason;
use bentpipe_units::{Duration, Instant, Rate};
use nix::time::{ClockId, clock_gettime};

use super::{Daemon, Failure};
use crate::config::{Changes, Config, Role};
use crate::observe::bottleneck::Evidence;
use crate::observe::metrics::{
    About, Connections, Histogram, NfqueueLost, QueueState, Snapshot, Spacelink, Traffic,
};
use crate::observe::state::Shared;
use crate::observe::{http, log};
use crate::sys::modem::Modem;
use crate::sys::{self, notify, privileges};

/// What is counted for those who look on.
pub struct Watch {
    shared: Option<Shared>,
    interval: Duration,
    /// When the next sample is due.
    next: Instant,
    /// How often the service manager's watchdog wants to hear of us, and when next.
    alive: Option<(Duration, Instant)>,
    /// Of the receive queue and the transmit queue, as all pairs here.
    delays: [Histogram; 2],
    /// By the Aqm, and for want of room.
    drops: [[u64; 2]; 2],
    udp: Traffic,
    other: Traffic,
    delivered: u64,
    held_back: Duration,
    turned: Instant,
}

impl Watch {
    pub fn new(config: &Config, now: Instant) -> Self {
        let metrics = config.metrics.as_ref();
        let interval = metrics.map_or(Duration::from_secs(1), |m| m.interval.time());
        let shared = metrics.map(|m| Shared::new(about(config), interval, m.keep.time()));
        let alive = notify::watchdog().map(|every| {
            let every = Duration::from_nanos(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
            (every, now)
        });
        Self {
            shared,
            interval,
            next: now,
            alive,
            delays: [Histogram::default(); 2],
            drops: [[0; 2]; 2],
            udp: Traffic::default(),
            other: Traffic::default(),
            delivered: 0,
            held_back: Duration::ZERO,
            turned: now,
        }
    }

    /// When it wants to look again.
    pub fn next(&self) -> Option<Instant> {
        let sample = self.shared.as_ref().map(|_| self.next);
        let alive = self.alive.map(|(_, next)| next);
        sample.into_iter().chain(alive).min()
    }

    /// A turn begins; `held` says whether data has waited for the spacelink's window since the last.
    pub fn turn(&mut self, now: Instant, held: bool) {
        if held {
            self.held_back += now - self.turned;
        }
        self.turned = now;
    }

    /// A packet has left a queue.
    pub fn left(&mut self, place: GatewayQueue, delay: Duration) {
        self.delays[index(place)].observe(delay);
    }

    /// A packet was discarded.
    pub fn dropped(&mut self, place: GatewayQueue, reason: DropReason) {
        self.drops[index(place)][usize::from(reason == DropReason::Overflow)] += 1;
    }

    /// The far end has delivered bytes.
    pub fn delivered(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    /// A packet that is not split goes over the satellite, or comes.
    pub fn datagram(&mut self, packet: &[u8], sent: bool) {
        let is_udp = bentpipe_packet::parse(packet).is_some_and(|info| info.protocol == bentpipe_packet::UDP);
        let class = if is_udp { &mut self.udp } else { &mut self.other };
        let bytes = packet.len() as u64;
        if sent { class.sent += bytes } else { class.received += bytes }
    }
}

const fn index(place: GatewayQueue) -> usize {
    match place {
        GatewayQueue::Receive => 0,
        GatewayQueue::Transmit => 1,
    }
}

fn about(config: &Config) -> About {
    let (aqm, scheduler, marking) = match config.role {
        Role::Gateway => (
            config.gateway.aqm.label.clone(),
            config.gateway.transmit_queue.scheduler.discipline.name,
            config.gateway.marking.method.name,
        ),
        // What goes back is not judged.
        Role::Terminal => ("none".to_owned(), "fifo", "none"),
    };
    About {
        role: config.role,
        aqm,
        scheduler: scheduler.to_owned(),
        marking: marking.to_owned(),
        reloaded: (unix_ms() as f64 / 1e3, true),
    }
}

fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME);
    now.map_or(0, |t| t.tv_sec().unsigned_abs() * 1000 + t.tv_nsec().unsigned_abs() / 1_000_000)
}

impl Daemon {
    /// Gives up privileges, begins to answer those who look on, and says that it is ready.
    pub(super) fn go_public(&mut self) -> Result<(), Failure> {
        match privileges::reduce() {
            Ok(left) => log::debug("privileges", &[("capabilities", format!("{:x}", left.permitted).into())]),
            Err(e) => log::warn("privileges", &[("problem", e.to_string().into())]),
        }
        if let (Some(shared), Some(metrics)) = (&self.watch.shared, &self.config.metrics) {
            let listen = metrics.listen.0;
            let address = http::serve(listen, shared.clone())
                .map_err(|e| Failure(format!("metrics.listen: {listen}: {e}")))?;
            log::info("metrics", &[("listen", address.to_string().into())]);
        }
        let urgent = self.counters.urgent;
        log::info("ready", &[("role", self.config.role.name().into()), ("realtime", urgent.into())]);
        // Nobody who waits for it is nobody to tell.
        let _ = notify::notify("READY=1");
        Ok(())
    }

    /// Takes a sample, and tells the watchdog that the loop goes on.
    pub(super) fn look(&mut self) {
        if let Some((every, next)) = &mut self.watch.alive
            && *next <= self.now
        {
            *next = self.now + *every;
            let _ = notify::notify("WATCHDOG=1");
        }
        if self.watch.next > self.now {
            return;
        }
        // After an outage of the loop itself there is nothing to make up for.
        self.watch.next = (self.watch.next + self.watch.interval).max(self.now);
        if let Some(shared) = &self.watch.shared {
            shared.publish(self.snapshot(), unix_ms());
        }
    }

    fn snapshot(&self) -> Snapshot {
        let (w, s) = (&self.watch, self.space.link.stats());
        let queue = |place: GatewayQueue| {
            let queue = match place {
                GatewayQueue::Receive => self.gateway.receive_queue(),
                GatewayQueue::Transmit => self.gateway.transmit_queue(),
            };
            let [aqm_drops, overflow_drops] = w.drops[index(place)];
            QueueState {
                packets: u64::from(queue.state().packets),
                bytes: queue.state().bytes,
                aqm_drops,
                overflow_drops,
                delay: w.delays[index(place)],
            }
        };
        let watched = self.gateway.watched_queue();
        let counters = watched.counters();
        let mut probes = Vec::new();
        watched.probe(&mut |owner, name, value| probes.push((owner, name, value)));
        let round_trip = Duration::from_nanos(u64::try_from(s.round_trip.as_nanos()).unwrap_or(u64::MAX));
        let marks = |queue: &Option<crate::intercept::nfqueue::Queue>, number: u16| {
            let lost = queue.as_ref()?.lost().ok()?;
            Some(NfqueueLost { queue: number, queue_full: lost.queue, buffer_full: lost.user })
        };
        let number = self.config.internet.as_ref().map_or(0, |i| i.queue.0 as u16);
        let seen = self.seen();
        let c = &self.counters;
        Snapshot {
            now: self.now,
            receive: queue(GatewayQueue::Receive),
            transmit: queue(GatewayQueue::Transmit),
            held: u64::from(watched.state().held),
            judged_packets: counters.offered,
            judged_bytes: counters.offered_bytes,
            spared: c.spared,
            marked: counters.marked,
            nfqueue: [marks(&self.queue, number), marks(&self.acks, number.saturating_add(1))]
                .into_iter()
                .flatten()
                .collect(),
            capacity: self.rate,
            debt: self.gateway.debt(self.now),
            traffic: [Traffic { sent: s.written_bytes, received: s.read_bytes }, w.udp, w.other],
            connections: Connections {
                open: u64::from(self.open) - seen.half_open,
                half_open: seen.half_open,
                accepted: c.opened,
                refused: c.unreachable + c.refused,
                reset: c.reset,
                resets: c.resets,
                bypassing: self.told_full
                    || self.rules.as_ref().is_some_and(crate::intercept::rules::Rules::bypassing),
            },
            buffered: self.buffers.occupied(),
            buffer_limit: self.buffers.limits().map(|(mean, _)| mean),
            spacelink: Spacelink {
                up: s.up,
                connections: s.connections,
                round_trip: s.up.then_some(round_trip),
                sent_packets: s.sent_packets,
                lost_packets: s.lost_packets,
                lost_bytes: s.lost_bytes,
                sent_bytes: s.sent_bytes,
                received_bytes: s.received_bytes,
            },
            probes,
            evidence: Evidence {
                payload: s.written_bytes + w.udp.sent + w.other.sent,
                sent: self.gateway.transmit_queue().state().sent_bytes + c.charged_bytes,
                packet_seconds: self.gateway.transmit_queue().packet_seconds(self.now),
                held_back_ns: w.held_back.as_nanos(),
                held_streams: seen.held,
                up: s.up && !s.silent,
                full: seen.full,
                buffered: self.buffers.occupied(),
                under_way: seen.under_way,
                delivered: w.delivered,
                round_trip,
            },
        }
    }

    /// Reads the configuration again, and takes over what can change while connections are open. One with a mistake changes
    /// nothing.
    pub(super) fn reload(&mut self) {
        let _ = notify::reloading(self.clock.monotonic(self.now));
        let done = self.try_reload();
        if let Err(problem) = &done {
            log::error("reload_refused", &[("problem", problem.as_str().into())]);
        }
        if let Some(shared) = &self.watch.shared {
            let label = about(&self.config).aqm;
            shared.set_about(|about| {
                about.reloaded = (unix_ms() as f64 / 1e3, done.is_ok());
                about.aqm = label;
            });
        }
        let _ = notify::notify("READY=1");
    }

    /// The modem has another rate, or somebody says what is none.
    pub(super) fn hear_modem(&mut self) {
        match self.modem.as_ref().and_then(Modem::told) {
            Some(Ok(rate)) => self.set_rate(Some(rate)),
            Some(Err(problem)) => self.complain(&format!("satellite.modem: {problem}")),
            None => {}
        }
    }

    /// The link into the satellite has this rate from now on, or carries anything; zero: nothing may go.
    fn set_rate(&mut self, rate: Option<Rate>) {
        if rate == self.rate {
            return;
        }
        let told = rate.map_or("any".to_owned(), |rate| rate.to_string());
        log::debug("rate", &[("rate", told.into())]);
        self.rate = rate;
        self.gateway.set_rate(rate.unwrap_or(super::ANY_RATE), self.now);
        self.space.link.set_rate(rate);
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
            self.gateway.set_aqm(aqm, self.now);
        }
        if changes.rate {
            self.set_rate(self.config.rate());
        }
        self.most = super::most_connections(&self.config, sys::raise_descriptors());
        self.mind_limits();
        let said =
            [(changes.aqm, "aqm"), (changes.rate, "rate"), (changes.limits, "limits"), (changes.log, "log")];
        let changed: Vec<_> = said.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(",") };
        log::info("reloaded", &[("changed", changed.into())]);
        for key in &changes.fixed {
            log::warn("reload_needs_restart", &[("key", key.as_str().into())]);
        }
        Ok(())
    }
}
