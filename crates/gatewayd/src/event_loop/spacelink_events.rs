//! The spacelink: datagrams from and to the peer, and what they bring.

use std::io;

use bentpipe_spacelink::Event;
use nix::sys::epoll::EpollFlags;
use serde_json::json;

use super::Daemon;
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
        while let Some(event) = self.spacelink.link.poll() {
            match event {
                Event::Up => {
                    log::info("spacelink_up", &[("peer", self.config.satellite.peer.to_string().into())]);
                    self.set_up(true);
                }
                Event::Down(reason) => {
                    self.observer.counters.downs += 1;
                    log::warn("spacelink_down", &[("reason", reason.to_string().into())]);
                    self.admission.peer_lost();
                    self.set_up(false);
                    self.report(&json!({ "spacelink": "down", "reason": reason.to_string() }));
                }
                Event::Failed(reason) => self.observer.fault(&format!("spacelink: {reason}")),
                Event::Opened { stream, header } => self.connect(stream, header),
                Event::Readable(key) => self.relays.update_by_key(key, |relay| {
                    relay.stream_readable = true;
                    relay.answered = true;
                }),
                Event::Writable(key) => {
                    let link = &mut self.spacelink.link;
                    self.relays.update_by_key(key, |relay| relay.write_released(link));
                }
                Event::Finished(key) => self.relays.update_by_key(key, |relay| relay.stream_ended = true),
                Event::Reset(key) => self.on_stream_reset(key, Cause::Peer),
                Event::Lost(key) => self.on_stream_reset(key, Cause::Spacelink),
                Event::Closed(key) => self.on_stream_closed(key),
                Event::Acknowledged { stream, bytes } => self.on_delivered(stream, bytes),
                Event::Datagram(packet) => self.deliver_datagram(&packet),
                Event::Full(full) => {
                    self.admission.set_peer_full(full);
                    self.update_bypass();
                }
            }
        }
    }

    /// Sends datagrams to the peer, and charges the regulator for bytes that it did not count.
    pub(super) fn flush_spacelink(&mut self) {
        let now = self.clock.std(self.now);
        self.observer.counters.unsent_datagrams += self.spacelink.flush(now);
        let beyond = self.spacelink.link.charge(self.host.take_released());
        if beyond > 0 {
            self.observer.counters.charged_bytes += beyond;
            self.host.gateway.charge(beyond, self.host.at);
        }
    }

    /// Leads packets to the peer, or past both ends while the peer is down.
    pub(super) fn set_up(&mut self, up: bool) {
        (self.steering.up, self.steering.report_up) = (up, up);
        if let Err(e) = self.tun.set_carrier(up) {
            self.observer.fault(&format!("{}: {e}", self.tun.name));
        }
        self.update_bypass();
    }

    /// Reports that the peer is up once packets are led to it.
    pub(super) fn report_up(&mut self) {
        if self.steering.report_up && self.rules_settled() {
            self.update_bypass();
            self.steering.report_up = !self.rules_settled();
            if !self.steering.report_up {
                self.report(&json!({ "spacelink": "up" }));
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
