//! Associations: circuits that SCTP carries, from end to end. A PEP splits TCP alone, so they have one leg and no relay.

use bentpipe_transport::sctp;
use bentpipe_units::Instant;

use crate::agenda::Event;
use crate::circuit::Phase;
use crate::network::{Body, Path};
use crate::traffic::Kind;
use crate::world::{NONE, World};

/// One end of an association.
pub struct Association {
    pub sctp: sctp::Association,
    pub config: u32,
    pub circuit: u32,
    /// The other end.
    peer: u32,
    /// Its way there.
    path: Path,
    /// Whether it sends the data; if not, they are for it.
    sends: bool,
    /// When the agenda next calls for its timer.
    timer_at: Instant,
    /// Whether the application has been told that it is established.
    greeted: bool,
    /// Its place among the traced senders, if it is one.
    pub trace: u32,
}

impl World {
    /// Makes room for a circuit's association; the index of its sending end, which the receiving one follows.
    pub fn lay_out_association(&mut self, circuit: u32, config: u32, down: Path, up: Path) -> u32 {
        let first = self.associations.len() as u32;
        for (peer, path, sends) in [(first + 1, down, true), (first, up, false)] {
            let sctp = sctp::Association::listen(&self.sctp_configs[config as usize]);
            let timer_at = Instant::FAR_FUTURE;
            self.associations.push(Association {
                sctp,
                config,
                circuit,
                peer,
                path,
                sends,
                timer_at,
                greeted: false,
                trace: NONE,
            });
        }
        first
    }

    /// Makes both ends of an association ready to be opened; `trace` is the sending end's place among the traced senders.
    pub fn prepare_association(&mut self, first: u32, trace: u32) {
        for end in &mut self.associations[first as usize..first as usize + 2] {
            end.sctp = sctp::Association::listen(&self.sctp_configs[end.config as usize]);
            (end.timer_at, end.greeted) = (Instant::FAR_FUTURE, false);
        }
        self.associations[first as usize].trace = trace;
    }

    /// The sending end opens the association.
    pub fn associate(&mut self, first: u32) {
        let end = &mut self.associations[first as usize];
        end.sctp = sctp::Association::connect(&self.sctp_configs[end.config as usize]);
        self.pump_association(first);
    }

    /// A packet has come to an end.
    pub fn deliver_sctp(&mut self, to: u32, packet: u32) {
        let packet = self.sctp_packets.take(packet);
        let end = &mut self.associations[to as usize];
        end.sctp.on_packet(&self.sctp_configs[end.config as usize], self.now, &packet);
        self.pump_association(to);
    }

    pub fn association_timer(&mut self, index: u32) {
        let end = &mut self.associations[index as usize];
        if end.timer_at != self.now {
            return;
        }
        end.timer_at = Instant::FAR_FUTURE;
        if end.sctp.poll_timeout().is_some_and(|at| at <= self.now) {
            end.sctp.handle_timeout(&self.sctp_configs[end.config as usize], self.now);
            self.pump_association(index);
        } else {
            self.arm_association(index);
        }
    }

    /// Lets an end's owner act on what it has heard, then sends what there is to send.
    fn pump_association(&mut self, index: u32) {
        let end = &self.associations[index as usize];
        let (circuit, sends) = (end.circuit, end.sends);
        if end.sctp.failed() {
            self.fail(circuit);
        } else if sends {
            self.serve_sctp_sender(index);
        } else {
            self.serve_sctp_receiver(index);
        }
        self.transmit_sctp(index);
        self.settle(circuit);
    }

    /// Sends what an end has to send.
    pub fn transmit_sctp(&mut self, index: u32) {
        loop {
            let end = &mut self.associations[index as usize];
            let config = &self.sctp_configs[end.config as usize];
            let Some(packet) = end.sctp.poll_transmit(config, self.now) else { break };
            let (len, to, circuit, path) = (packet.wire_len(config), end.peer, end.circuit, end.path);
            let data = !packet.data().is_empty();
            let body = Body::Sctp { to, packet: self.sctp_packets.insert(packet), data };
            let flight = self.launch(body, circuit, len, path);
            self.forward(flight);
        }
        if self.associations[index as usize].trace != NONE {
            self.trace_association(index);
        }
        self.arm_association(index);
    }

    /// The source of an association's data hands over a message.
    pub fn send_message(&mut self, first: u32, len: u32) {
        let end = &mut self.associations[first as usize];
        end.sctp.send(&self.sctp_configs[end.config as usize], len);
        self.transmit_sctp(first);
    }

    /// Puts an end's timer on the agenda. One that moves later is looked at again when it would have gone off.
    fn arm_association(&mut self, index: u32) {
        let end = &mut self.associations[index as usize];
        if let Some(at) = end.sctp.poll_timeout()
            && at < end.timer_at
        {
            end.timer_at = at;
            self.agenda.at(at, Event::Association(index));
        }
    }

    /// Gives up both ends of an association.
    pub fn abort_association(&mut self, first: u32) {
        for index in [first, first + 1] {
            if !self.associations[index as usize].sctp.is_closed() {
                self.associations[index as usize].sctp.abort();
                self.transmit_sctp(index);
            }
        }
    }

    /// Whether nothing of an association is left at its ends. One that never began is nothing either.
    pub fn is_association_over(&self, first: u32) -> bool {
        self.associations[first as usize..first as usize + 2].iter().all(|end| end.sctp.is_closed())
    }

    /// The host that sends the data.
    fn serve_sctp_sender(&mut self, index: u32) {
        let end = &mut self.associations[index as usize];
        let config = &self.sctp_configs[end.config as usize];
        if !end.sctp.is_established() || std::mem::replace(&mut end.greeted, true) {
            return;
        }
        let circuit = &self.circuits[end.circuit as usize];
        let bytes = match self.traffic[circuit.traffic as usize].kind {
            Kind::Bulk { bytes: None, .. } => return end.sctp.write(config, u64::MAX / 8),
            Kind::Bulk { bytes: Some(bytes), .. } => bytes,
            Kind::Files { .. } => circuit.size,
            // Its source writes when a packet is due.
            Kind::Packets { .. } | Kind::Pages { .. } => return,
        };
        end.sctp.write(config, bytes);
        end.sctp.close();
    }

    /// The host that the data is for: counts it.
    fn serve_sctp_receiver(&mut self, index: u32) {
        let end = &mut self.associations[index as usize];
        let circuit = &mut self.circuits[end.circuit as usize];
        let n = end.sctp.readable();
        end.sctp.read(n);
        circuit.got += n;
        if n > 0 {
            self.recorder.delivered(circuit.flow, n);
        }
        let (size, of_source) = match self.traffic[circuit.traffic as usize].kind {
            Kind::Bulk { bytes: Some(bytes), .. } => (bytes, true),
            Kind::Files { .. } => (circuit.size, false),
            _ => return,
        };
        if circuit.got >= size && circuit.phase == Phase::Live {
            circuit.phase = Phase::Closing;
            let (flow, owner, index) = (circuit.flow, circuit.owner, end.circuit);
            self.recorder.close_flow(self.now, flow, true);
            if of_source {
                self.part_from_circuit(owner, index);
            }
        }
    }
}
