//! RTP sessions: media from one host to another. A PEP splits only TCP, so a session runs from end to end.

use bentpipe_transport::rtp;
use bentpipe_units::{Alarm, Instant, Rate};

use crate::clock::{Clock, Event};
use crate::ids::{IdVec, RtpConfigId, RtpId, SlotId};
use crate::network::{Body, PacketInFlight, Path};

/// Both ends of an RTP session.
pub struct RtpSession {
    sender: rtp::Sender,
    receiver: rtp::Receiver,
    config: RtpConfigId,
    pub slot: SlotId,
    /// The path of the media, and of the receiver's reports.
    paths: (Path, Path),
    /// Rate of the source without adaptation.
    nominal: Rate,
    /// The sender's and the receiver's next reports, as scheduled.
    sender_report: Alarm,
    receiver_report: Alarm,
}

/// All RTP sessions.
#[derive(Default)]
pub struct RtpSessions {
    sessions: IdVec<RtpId, RtpSession>,
    pub configs: IdVec<RtpConfigId, rtp::Config>,
}

impl RtpSessions {
    pub fn add(
        &mut self,
        slot: SlotId,
        config: RtpConfigId,
        nominal: Rate,
        paths: (Path, Path),
        now: Instant,
    ) -> RtpId {
        self.sessions.push(RtpSession {
            sender: rtp::Sender::new(&self.configs[config], now, nominal, 0),
            receiver: rtp::Receiver::default(),
            config,
            slot,
            paths,
            nominal,
            sender_report: Alarm::default(),
            receiver_report: Alarm::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Sends the packets of a session on other paths.
    pub fn reroute(&mut self, id: RtpId, paths: (Path, Path)) {
        self.sessions[id].paths = paths;
    }

    pub fn slot(&self, id: RtpId) -> SlotId {
        self.sessions[id].slot
    }

    /// Starts a session for another flow.
    pub fn start(&mut self, id: RtpId, clock: &mut Clock) {
        let s = &mut self.sessions[id];
        s.sender = rtp::Sender::new(&self.configs[s.config], clock.now(), s.nominal, 0);
        s.receiver = rtp::Receiver::default();
        (s.sender_report, s.receiver_report) = (Alarm::default(), Alarm::default());
        self.arm(id, clock);
    }

    /// Rate that the source is to send at, as a share of its nominal rate.
    pub fn rate_share(&self, id: RtpId) -> f64 {
        self.sessions[id].sender.rate_ratio()
    }

    /// Gives a packet of media of `len` bytes, headers included.
    pub fn send(&mut self, id: RtpId, len: u32, now: Instant) -> PacketInFlight {
        let s = &mut self.sessions[id];
        let config = &self.configs[s.config];
        let payload = len.saturating_sub(rtp::Packet::header_len(config));
        let body = Body::Rtp { packet: s.sender.send(config, now, payload) };
        PacketInFlight::new(body, s.slot, len, s.paths.0)
    }

    /// Handles a packet or a report; returns the payload received [bytes].
    pub fn receive(&mut self, id: RtpId, body: &Body, len: u32, clock: &mut Clock) -> Option<u64> {
        let (s, now) = (&mut self.sessions[id], clock.now());
        let config = &self.configs[s.config];
        let mut payload = None;
        match body {
            Body::Rtp { packet } => {
                s.receiver.on_packet(config, now, packet, len);
                payload = Some(len.saturating_sub(rtp::Packet::header_len(config)).into());
            }
            Body::SenderReport { report } => s.receiver.on_report(now, report),
            Body::ReceiverReport { report } => s.sender.on_report(config, now, report),
            _ => {}
        }
        self.arm(id, clock);
        payload
    }

    /// Begins a scheduled sender report; false if it is out of date.
    pub fn begin_sender_report(&mut self, id: RtpId, now: Instant) -> bool {
        self.sessions[id].sender_report.end(now)
    }

    /// Begins a scheduled receiver report; false if it is out of date.
    pub fn begin_receiver_report(&mut self, id: RtpId, now: Instant) -> bool {
        self.sessions[id].receiver_report.end(now)
    }

    pub fn sender_report(&mut self, id: RtpId, now: Instant) -> Option<PacketInFlight> {
        let s = &mut self.sessions[id];
        let config = &self.configs[s.config];
        let body = Body::SenderReport { report: s.sender.poll_report(config, now)? };
        Some(PacketInFlight::new(body, s.slot, rtp::SenderReport::wire_len(config), s.paths.0))
    }

    pub fn receiver_report(&mut self, id: RtpId, now: Instant) -> Option<PacketInFlight> {
        let s = &mut self.sessions[id];
        let config = &self.configs[s.config];
        let report = s.receiver.poll_report(config, now)?;
        let len = report.wire_len(config);
        Some(PacketInFlight::new(Body::ReceiverReport { report }, s.slot, len, s.paths.1))
    }

    /// Schedules the reports of a session.
    pub fn arm(&mut self, id: RtpId, clock: &mut Clock) {
        let s = &mut self.sessions[id];
        let at = s.sender.next_report();
        if s.sender_report.set(at) {
            clock.at(at, Event::SenderReport(id));
        }
        if let Some(at) = s.receiver.next_report()
            && s.receiver_report.set(at)
        {
            clock.at(at, Event::ReceiverReport(id));
        }
    }
}
