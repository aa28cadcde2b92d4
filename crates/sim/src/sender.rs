//! Links that are more than a rate: their senders decide when a packet goes.

use bentpipe_link::Sent;
use bentpipe_queue::Packet;
use bentpipe_units::Instant;

use crate::agenda::Event;
use crate::network::Hop;
use crate::world::{NONE, World};

impl World {
    /// As [`Self::serve_port`], where the link is more than a rate.
    pub fn serve_by_sender(&mut self, port: u32) {
        let now = self.now;
        let p = &mut self.ports[port as usize];
        let l = &mut self.links[p.link as usize];
        let Some(sender) = &mut l.sender else { return };
        p.busy = true;
        if p.partly.is_some() || p.queue.peek().is_some() {
            let backlog = p.queue.state().bytes + p.partly.map_or(0, |(_, left)| u64::from(left));
            let ready = sender.ready(now, backlog);
            if ready > now {
                return self.agenda.at(ready, Event::Port(port));
            }
        }
        let next = p.partly.take().or_else(|| {
            let pkt = p.queue.dequeue(now, &mut self.discarded)?;
            self.recorder.left_port(port, now - pkt.arrival);
            Some((pkt, pkt.len))
        });
        match next {
            Some((pkt, left)) => self.send_part(port, pkt, left),
            None => {
                sender.rest();
                p.busy = false;
            }
        }
        if !self.discarded.0.is_empty() {
            self.bury_at_port(port);
        }
    }

    /// Sends what is left of a packet, as far as its link's sender can.
    fn send_part(&mut self, port: u32, pkt: Packet, left: u32) {
        self.note_mark(pkt);
        let link = self.ports[port as usize].link;
        let host = self.host_of(pkt.handle, self.links[link as usize].hosts);
        let l = &mut self.links[link as usize];
        let Some(sender) = &mut l.sender else { return };
        match sender.send(left, host, self.now) {
            Sent::Part { left, again } => {
                self.ports[port as usize].partly = Some((pkt, left));
                self.agenda.at(again, Event::Port(port));
            }
            Sent::Whole { at, delay, lost } => {
                self.agenda.at(at, Event::Port(port));
                let hop = self.flights.get(pkt.handle).hop;
                if lost {
                    l.counters.sent += 1;
                    l.counters.sent_bytes += u64::from(pkt.len);
                    l.counters.lost += 1;
                    if l.seen_leaving != NONE {
                        let interface = l.seen_leaving;
                        self.observe(interface, pkt.handle, true);
                    }
                    self.lose(pkt.handle, pkt.len, link);
                } else if let Hop::Link { line, .. } = self.hops[hop as usize] {
                    self.propagate(pkt.handle, pkt.len, link, line, at + delay);
                }
            }
        }
    }

    /// The host of a group that a packet goes to or comes from, counted within the group.
    fn host_of(&self, index: u32, (first, count): (u32, u32)) -> Option<u32> {
        let circuit = self.flights.get(index).circuit;
        if count == 0 || circuit == NONE {
            return None;
        }
        let c = &self.circuits[circuit as usize];
        let t = &self.traffic[c.traffic as usize];
        [t.to.first + c.hosts.1, t.from.first + c.hosts.0]
            .into_iter()
            .filter_map(|host| host.checked_sub(first))
            .find(|host| *host < count)
    }

    /// A link has another capacity: its queue learns of it, and a gateway in front that follows it.
    pub fn change_capacity(&mut self, link: u32) {
        let Some(capacity) = &mut self.links[link as usize].capacity else { return };
        let (rate, next) = capacity.tell(self.now);
        if next != Instant::FAR_FUTURE {
            self.agenda.at(next, Event::Capacity(link));
        }
        if let Some(port) = self.links[link as usize].port
            && rate.as_bps() > 0
        {
            self.ports[port as usize].queue.set_capacity(rate);
        }
        for station in 0..self.stations.len() as u32 {
            let s = &mut self.stations[station as usize];
            if s.follows == Some(link) {
                s.gateway.set_rate(rate, self.now);
                self.arm_gateway(station);
            }
        }
    }
}
