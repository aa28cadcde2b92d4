//! Media: circuits that RTP carries, from end to end. A PEP splits TCP alone, so they have one leg.

use bentpipe_transport::rtp;
use bentpipe_units::{Instant, Rate};

use crate::agenda::Event;
use crate::circuit::Phase;
use crate::network::Body;
use crate::world::World;

/// Both ends of a medium.
pub struct Medium {
    sender: rtp::Sender,
    receiver: rtp::Receiver,
    config: u32,
    circuit: u32,
    /// What its source sends by itself.
    nominal: Rate,
    /// When the agenda next calls for a report of the sender, and of the receiver.
    report_at: [Instant; 2],
}

impl World {
    /// Makes room for a circuit's medium.
    pub fn lay_out_medium(&mut self, circuit: u32, config: u32, nominal: Rate) -> u32 {
        let sender = rtp::Sender::new(&self.rtp_configs[config as usize], self.now, nominal, 0);
        let report_at = [Instant::FAR_FUTURE; 2];
        let receiver = rtp::Receiver::default();
        self.media.push(Medium { sender, receiver, config, circuit, nominal, report_at });
        self.media.len() as u32 - 1
    }

    /// Makes a medium ready for its first packet.
    pub fn prepare_medium(&mut self, index: u32) {
        let m = &mut self.media[index as usize];
        m.sender = rtp::Sender::new(&self.rtp_configs[m.config as usize], self.now, m.nominal, 0);
        m.receiver = rtp::Receiver::default();
        m.report_at = [Instant::FAR_FUTURE; 2];
        self.arm_medium(index);
    }

    /// What the source is to send, as a share of what it sends by itself.
    pub fn medium_scale(&self, index: u32) -> f64 {
        self.media[index as usize].sender.rate_ratio()
    }

    /// Sends a packet of `len` bytes, headers included.
    pub fn send_media(&mut self, index: u32, len: u32) {
        let m = &mut self.media[index as usize];
        let config = &self.rtp_configs[m.config as usize];
        let payload = len.saturating_sub(rtp::Packet::header_len(config));
        let body = Body::Rtp { packet: m.sender.send(config, self.now, payload) };
        self.launch_media(index, body, len, true);
    }

    fn launch_media(&mut self, index: u32, body: Body, len: u32, with_data: bool) {
        let circuit = self.media[index as usize].circuit;
        let Some(&(down, up)) = self.circuits[circuit as usize].paths.first() else { return };
        let flight = self.launch(body, circuit, len, if with_data { down } else { up });
        self.forward(flight);
    }

    /// A packet or a report has come.
    pub fn deliver_media(&mut self, circuit: u32, body: &Body, len: u32) {
        let c = &self.circuits[circuit as usize];
        let Some(index) = c.medium else { return };
        let m = &mut self.media[index as usize];
        let config = &self.rtp_configs[m.config as usize];
        match body {
            Body::Rtp { packet } => {
                m.receiver.on_packet(config, self.now, packet);
                self.recorder.delivered(c.flow, len.saturating_sub(rtp::Packet::header_len(config)).into());
            }
            Body::SenderReport { report } => m.receiver.on_report(self.now, report),
            Body::ReceiverReport { report } => m.sender.on_report(config, self.now, report),
            _ => {}
        }
        self.arm_medium(index);
        self.settle(circuit);
    }

    /// A report is due: of the sender, or of the receiver. None once the source has left.
    pub fn report_due(&mut self, index: u32, of_receiver: bool) {
        let side = usize::from(of_receiver);
        let m = &mut self.media[index as usize];
        if m.report_at[side] != self.now {
            return;
        }
        m.report_at[side] = Instant::FAR_FUTURE;
        if self.circuits[m.circuit as usize].phase != Phase::Live {
            return;
        }
        let config = &self.rtp_configs[m.config as usize];
        if of_receiver {
            if let Some(report) = m.receiver.poll_report(config, self.now) {
                let len = report.wire_len(config);
                self.launch_media(index, Body::ReceiverReport { report }, len, false);
            }
        } else if let Some(report) = m.sender.poll_report(config, self.now) {
            let len = rtp::SenderReport::wire_len(config);
            self.launch_media(index, Body::SenderReport { report }, len, true);
        }
        self.arm_medium(index);
    }

    /// Puts a medium's reports on the agenda.
    fn arm_medium(&mut self, index: u32) {
        let m = &mut self.media[index as usize];
        let at = [m.sender.next_report(), m.receiver.next_report().unwrap_or(Instant::FAR_FUTURE)];
        for (side, at) in (0..).zip(at) {
            if at < m.report_at[side as usize] {
                m.report_at[side as usize] = at;
                self.agenda.at(at, Event::Report(2 * index + side));
            }
        }
    }
}
