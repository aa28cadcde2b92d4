//! The spacelink: datagrams from and to the peer, and what they bring.

use std::io;

use bentpipe_spacelink::{Event, PeerId, Reason, Spacelink};
use nix::sys::epoll::EpollFlags;
use serde_json::json;

use super::Daemon;
use crate::intercept::terminal_routes::RouteTarget;
use crate::observe::cause::Cause;
use crate::observe::log;
use crate::relay::spacelink_socket::MOST_BATCHES;

impl Daemon {
    /// Receives datagrams from the peer.
    pub(super) fn receive_spacelink(&mut self, events: EpollFlags) {
        let now = self.clock.std(self.now);
        if events.contains(EpollFlags::EPOLLERR) {
            self.spacelink.read_errors(now);
        }
        if events.contains(EpollFlags::EPOLLIN) {
            for _ in 0..MOST_BATCHES {
                match self.spacelink.receive(now) {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        self.observer.counters.faults += 1;
                        break;
                    }
                }
                self.handle_spacelink_events();
            }
        }
    }

    /// Handles the spacelink's pending events.
    pub(super) fn handle_spacelink_events(&mut self) {
        while let Some((peer, event)) = self.spacelink.hub.poll() {
            match (peer, event) {
                (Some(peer), event) => self.handle_peer_event(peer, event),
                (None, Event::Failed(reason)) => self.on_refused(&reason),
                (None, _) => {}
            }
        }
    }

    /// Reports a failed attempt of an unknown host, with the name of a removed terminal whose certificate it has shown.
    fn on_refused(&mut self, reason: &Reason) {
        let shown = match reason {
            Reason::Refused(_) => self.spacelink.hub.take_refused(),
            _ => None,
        };
        match shown.and_then(|certificate| self.terminals.former(&certificate)) {
            Some(name) => {
                let problem = "it is not in terminals.folder any more, or has another certificate there";
                log::warn("terminal_refused", &[("terminal", name.into()), ("problem", problem.into())]);
            }
            None => self.observer.fault(&format!("spacelink: {reason}")),
        }
    }

    /// Handles an event of the spacelink to a peer.
    pub(super) fn handle_peer_event(&mut self, peer: PeerId, event: Event) {
        match event {
            Event::Up => {
                let fields = self.peer_fields(peer, ("peer", self.peer_address(peer).into()));
                log::info("spacelink_up", &fields);
                self.terminals.set_up(peer, true);
                self.lead_terminal(peer);
                if self.admission.reported_full()
                    && let Some(link) = self.spacelink.hub.link_mut(peer)
                {
                    link.set_full(true);
                }
                self.update_up();
            }
            Event::Down(reason) => {
                self.observer.counters.downs += 1;
                let fields = self.peer_fields(peer, ("reason", reason.to_string().into()));
                log::warn("spacelink_down", &fields);
                self.terminals.set_up(peer, false);
                self.lead_terminal(peer);
                self.host.purge(peer);
                self.admission.peer_lost(peer, !self.terminals.is_one_up());
                self.update_up();
                self.report_peer(peer, json!({ "spacelink": "down", "reason": reason.to_string() }));
            }
            Event::Failed(reason) => self.observer.fault(&format!("spacelink: {reason}")),
            Event::Opened { stream, header } => self.connect(stream, header),
            Event::Readable(key) => self.relays.update_by_key(key, |relay| {
                relay.stream_readable = true;
                relay.answered = true;
            }),
            Event::Writable(key) => {
                let hub = &mut self.spacelink.hub;
                self.relays.update_by_key(key, |relay| relay.write_released(hub));
            }
            Event::Finished(key) => self.relays.update_by_key(key, |relay| relay.stream_ended = true),
            Event::Reset(key) => self.on_stream_reset(key, Cause::Peer),
            Event::Lost(key) => self.on_stream_reset(key, Cause::Spacelink),
            Event::Closed(key) => self.on_stream_closed(key),
            Event::Acknowledged { stream, bytes } => self.on_delivered(stream, bytes),
            Event::Datagram(packet) => self.deliver_datagram(peer, &packet),
            Event::Full(full) => {
                self.admission.set_peer_full(full);
                self.update_bypass();
            }
        }
    }

    /// Leads packets for users behind one of many terminals to it while it is connected, otherwise past the gateway.
    pub(super) fn lead_terminal(&mut self, peer: PeerId) {
        let Some(terminal) = self.terminals.get(peer) else { return };
        let target = if terminal.up { RouteTarget::Tunnel } else { RouteTarget::Bypass };
        if let Err(e) = self.steering.set_routes(&terminal.clients, target) {
            self.observer.fault(&e.to_string());
        }
    }

    /// Address of a peer while it is connected.
    fn peer_address(&self, peer: PeerId) -> String {
        let address = self.spacelink.hub.link(peer).and_then(Spacelink::peer);
        address.map_or_else(String::new, |address| address.to_string())
    }

    /// Fields of a log line about a peer: its name if it is one of many, and another.
    fn peer_fields<'a>(&self, peer: PeerId, more: log::Field<'a>) -> Vec<log::Field<'a>> {
        let name = self.terminals.name(peer);
        let named = (!name.is_empty()).then(|| ("terminal", name.into()));
        named.into_iter().chain([more]).collect()
    }

    /// Reports an event of a peer, with its name if it is one of many.
    fn report_peer(&self, peer: PeerId, mut value: serde_json::Value) {
        let name = self.terminals.name(peer);
        if !name.is_empty() {
            value["terminal"] = name.into();
        }
        self.report(&value);
    }

    /// Sends datagrams to the peer, and charges the regulator for bytes that it did not count.
    pub(super) fn flush_spacelink(&mut self) {
        let now = self.clock.std(self.now);
        self.observer.counters.unsent_datagrams += self.spacelink.flush(now);
        let Self { spacelink, terminals, host, observer, .. } = self;
        let counted = |peer| terminals.take_released(peer);
        spacelink.hub.charge(counted, |peer, link, beyond| {
            observer.counters.charged_bytes += beyond;
            host.charge(peer, beyond);
            host.set_outage(peer, link.is_silent());
        });
    }

    /// Leads packets to the peers while one of them is up, otherwise past both ends.
    fn update_up(&mut self) {
        let up = self.terminals.is_one_up();
        if up == self.steering.up && self.config.terminals.is_some() {
            self.steering.report_up = up;
            self.update_bypass();
        } else {
            self.set_up(up);
        }
    }

    /// Tells all peers whether this end has room for further connections.
    pub(super) fn report_full(&mut self, full: bool) {
        let up = self.terminals.iter().filter(|(_, terminal)| terminal.up);
        let up: Vec<_> = up.map(|(peer, terminal)| (peer, terminal.full)).collect();
        for (peer, is_full) in up {
            if let Some(link) = self.spacelink.hub.link_mut(peer) {
                link.set_full(full || is_full);
            }
        }
    }

    /// Leads packets to the peers, or past both ends while all are down.
    pub(super) fn set_up(&mut self, up: bool) {
        (self.steering.up, self.steering.report_up) = (up, up);
        if let Err(e) = self.tun.set_carrier(up) {
            self.observer.fault(&format!("{}: {e}", self.tun.name));
        }
        self.update_bypass();
    }

    /// Reports peers that are up once packets are led to them.
    pub(super) fn report_up(&mut self) {
        if self.steering.report_up && self.rules_settled() {
            self.update_bypass();
            self.steering.report_up = !self.rules_settled();
            if !self.steering.report_up {
                for peer in self.terminals.take_unreported() {
                    self.report_peer(peer, json!({ "spacelink": "up" }));
                }
            }
        }
    }

    /// True once no command that changes the rules is running; one that has failed is reported.
    pub(super) fn rules_settled(&mut self) -> bool {
        self.steering.is_settled().unwrap_or_else(|e| {
            self.observer.fault(&format!("rules: {e}"));
            true
        })
    }
}
