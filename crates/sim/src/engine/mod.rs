//! The engine: takes events in order of time, and passes between the parts what one needs of another.
//!
//! Parts hold no references to each other. An event goes to the part that owns its component; whatever crosses from one
//! part to another is a method of [`Engine`], in a file by subject: [`forwarding`] from hop to hop, [`splitting`] at
//! gateways, [`carriers`] behind them, [`flows`] from opening to closing, [`connections`] for transports, [`users`] for applications, [`migration`] for their changes of address.

mod bottlenecks;
mod carriers;
mod changes;
mod connections;
mod descriptor;
mod fetching;
mod flows;
mod forwarding;
mod handover;
mod logging;
mod migration;
mod observation;
mod positions;
mod slots;
mod splitting;
mod users;

use bentpipe_units::Instant;

pub use bottlenecks::Loads;
pub use handover::Handover;
pub use positions::{At, Position};

use crate::apps::Apps;
use crate::clock::{Clock, Event, MAX_PACKET};
use crate::endpoints::Endpoints;
use crate::gateways::{CarrierNode, GatewayNode, ReturnCarrierNode, Terminal};
use crate::ids::{CarrierId, GatewayId, HandoverId, IdVec, ReturnCarrierId, TerminalId};
use crate::network::Network;
use crate::record::{Parts, PepLinkCounters, Record};
use crate::side::Side;

/// Packets in flight at most: half of what the agenda can index, as the limit is not checked at every event.
const MAX_PACKETS: usize = MAX_PACKET as usize / 2;

/// Slots from which on the state of a run is larger than a processor's cache.
pub(crate) const MANY_SLOTS: usize = 1000;

/// A run in progress.
pub struct Engine {
    pub clock: Clock,
    pub network: Network,
    pub gateways: IdVec<GatewayId, GatewayNode>,
    pub terminals: IdVec<TerminalId, Terminal>,
    pub carriers: IdVec<CarrierId, CarrierNode>,
    pub return_carriers: IdVec<ReturnCarrierId, ReturnCarrierNode>,
    /// Handovers of terminals to other gateways.
    pub handovers: IdVec<HandoverId, Handover>,
    pub endpoints: Endpoints,
    pub apps: Apps,
    pub record: Record,
    pub loads: Loads,
    /// True if the state of all flows is larger than a processor's cache, so that it is fetched before it is used.
    pub is_large: bool,
    /// Reason for which the run cannot go on, once it has grown beyond a limit.
    pub fault: Option<String>,
}

impl Engine {
    /// Handles the events up to and including `end`. Every 4096 events it calls `proceed`; returns false if that or a fault ended
    /// the run.
    pub fn run_until(&mut self, end: Instant, mut proceed: impl FnMut(&mut Self) -> bool) -> bool {
        let mut countdown = 0u32;
        while let Some(event) = self.clock.advance(end) {
            self.dispatch(event);
            countdown = countdown.wrapping_sub(1) & 0xfff;
            if countdown == 0 && (self.has_fault() || !proceed(self)) {
                return false;
            }
        }
        !self.has_fault()
    }

    /// Returns true if the run has grown beyond a limit.
    fn has_fault(&mut self) -> bool {
        let packets = self.network.packets.len();
        if packets > MAX_PACKETS {
            self.fault = Some(format!("{packets} packets in flight; at most {MAX_PACKETS} are possible"));
        }
        self.fault.is_some()
    }

    /// Handles an event: a frequent one within the loop, any other by a call.
    #[inline(always)]
    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Line(line) => {
                if let Some(packet) = self.network.pop_line(line, &mut self.clock) {
                    if self.is_large {
                        self.fetch_from_line(line);
                    }
                    self.arrive(packet);
                }
            }
            Event::SharedLine(line) => {
                if let Some(packet) = self.network.pop_shared_line(line, &mut self.clock) {
                    if self.is_large {
                        self.fetch_from_shared_line(line);
                    }
                    self.arrive(packet);
                }
            }
            Event::Packet(packet) => self.arrive(packet),
            Event::LinkFree(link) => self.serve_link(link),
            _ => self.dispatch_rare(event),
        }
    }

    #[inline(never)]
    fn dispatch_rare(&mut self, event: Event) {
        match event {
            // These are not rare.
            Event::Line(_) | Event::SharedLine(_) | Event::Packet(_) | Event::LinkFree(_) => {}
            Event::Passing(packet) => self.observe_passing(packet),
            Event::QueueWake(link) => self.wake_queue(link),
            Event::Capacity(link) => self.update_capacity(link),
            Event::ConnTimer(conn) => {
                if self.endpoints.tcp.on_timer(conn, &mut self.clock) {
                    self.pump(conn);
                }
            }
            Event::ConnPace(conn) => {
                if self.endpoints.tcp.on_pace(conn, self.clock.now()) {
                    self.send(conn);
                }
            }
            Event::Gateway(gateway) => self.wake_gateway(gateway),
            Event::Carrier(carrier) => self.carrier_turn(carrier),
            Event::Superframe(carrier) => self.begin_superframe(carrier),
            Event::Slot(queues) => self.send_in_slot(queues),
            Event::PepTimer(terminal, side) => self.pep_timer(terminal, side),
            Event::Session(session) => self.open_page(session),
            Event::SessionTimeout(session) => self.session_timeout(session),
            Event::Source(source) => self.source_due(source),
            Event::SctpTimer(end) => {
                if self.endpoints.sctp.on_timer(end, &mut self.clock) {
                    self.pump_sctp(end);
                }
            }
            Event::QuicTimer(end) => {
                if self.endpoints.quic.on_timer(end, &mut self.clock) {
                    self.pump_quic(end);
                }
            }
            Event::SenderReport(session) => self.send_sender_report(session),
            Event::ReceiverReport(session) => self.send_receiver_report(session),
            Event::NewAddress(group) => self.change_addresses(group),
            Event::Handover(handover) => self.hand_over(handover),
            Event::Sample => self.sample(),
        }
    }

    fn pep_timer(&mut self, terminal: TerminalId, side: Side) {
        if self.terminals[terminal].on_timer(side, self.clock.now()) {
            self.pump_pep(terminal, side);
        }
    }

    fn sample(&mut self) {
        self.sample_bottlenecks();
        let parts =
            Parts { links: &self.network.links, gateways: &self.gateways, terminals: &self.terminals };
        let next = self.record.recorder.sample(self.clock.now(), parts);
        if let Some(at) = next {
            self.clock.at(at, Event::Sample);
        }
    }

    /// Summarizes the measurement at the end of the run.
    pub fn finish(&mut self, end: Instant) {
        let parts =
            Parts { links: &self.network.links, gateways: &self.gateways, terminals: &self.terminals };
        self.record.recorder.finish(end, parts);
    }

    /// The parts with queues.
    pub fn parts(&self) -> Parts<'_> {
        Parts { links: &self.network.links, gateways: &self.gateways, terminals: &self.terminals }
    }

    /// Schedules what does not depend on traffic.
    pub fn start(&mut self) {
        for link in self.network.links.ids() {
            self.network.arm(link, &mut self.clock);
        }
        for link in self.network.links.ids() {
            if let Some(at) = self.network.links[link].engine.first_update() {
                self.clock.at(at, Event::Capacity(link));
            }
        }
        for gateway in self.gateways.ids() {
            self.arm_gateway(gateway);
        }
        for handover in self.handovers.ids() {
            self.clock.at(self.handovers[handover].at, Event::Handover(handover));
        }
        for carrier in self.return_carriers.ids() {
            self.clock.at(Instant::ZERO, Event::Superframe(carrier));
        }
        self.clock.at(self.record.recorder.begin(), Event::Sample);
    }

    /// Packets on all PEP links.
    pub fn pep_link_counters(&self) -> PepLinkCounters {
        let mut counters = PepLinkCounters::default();
        for end in self.terminals.iter().flat_map(|terminal| terminal.ends.iter()) {
            let stats = end.stats();
            counters.sent += stats.sent;
            counters.retransmitted += stats.retransmissions;
            counters.acks += stats.acks_sent;
        }
        counters
    }

    /// Checks that no packet appeared or vanished, and no sample is missing.
    ///
    /// # Errors
    /// The identity that does not hold, with its figures.
    pub fn check(&self) -> Result<(), String> {
        let mut found = self.network.count(self.record.recorder.link_names())?;
        for gateway in self.gateways.iter() {
            found += gateway.count()?;
        }
        self.terminals.iter().try_for_each(Terminal::check)?;
        let in_flight = self.network.packets.len();
        if found != in_flight as u64 {
            return Err(format!("{in_flight} packets are in flight, but {found} can be found"));
        }
        if self.clock.is_exhausted() {
            return Err("more events than the agenda can keep in order".to_owned());
        }
        if let Some(sample) = self.record.recorder.next_sample().filter(|sample| *sample <= self.clock.now())
        {
            return Err(format!("the sample at {} s is missing", sample.as_secs_f64()));
        }
        self.record.recorder.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Id, PacketId};

    #[test]
    fn the_agenda_indexes_twice_the_packets_of_the_limit() {
        let last = PacketId::new(2 * MAX_PACKETS as u32);
        let mut clock = Clock::default();
        for event in [Event::Packet(last), Event::Passing(last)] {
            clock.at(Instant::ZERO, event);
            assert_eq!(clock.advance(Instant::ZERO), Some(event));
        }
    }
}
