//! The ends of SCTP associations. A PEP splits only TCP, so an association runs from end to end.

use bentpipe_transport::sctp;
use bentpipe_units::{Alarm, Instant};

use crate::clock::{Clock, Event};
use crate::ids::{Id, IdVec, SctpConfigId, SctpEndId, SlotId, TraceId};
use crate::network::Path;

/// One end of an association.
pub struct SctpEnd {
    pub sctp: sctp::Association,
    config: SctpConfigId,
    pub slot: SlotId,
    /// The other end.
    pub peer: SctpEndId,
    /// The path there.
    pub path: Path,
    /// True if it sends the data.
    pub is_sender: bool,
    /// Its timer, as scheduled.
    timer: Alarm,
    /// True once the application knows that it is established.
    pub is_greeted: bool,
    /// Data sent at least once: the last TSN, and its end in the stream [bytes].
    tsn_sent: u64,
    stream_sent: u64,
    pub trace: Option<TraceId>,
}

/// All ends of SCTP associations.
#[derive(Default)]
pub struct SctpEnds {
    ends: IdVec<SctpEndId, SctpEnd>,
    pub configs: IdVec<SctpConfigId, sctp::Config>,
}

/// Both ends of an association, by its sending end.
pub fn both(sender: SctpEndId) -> [SctpEndId; 2] {
    [sender, Id::new(sender.index() + 1)]
}

impl SctpEnds {
    /// Sends the packets of an end on another path.
    pub fn reroute(&mut self, id: SctpEndId, path: Path) {
        self.ends[id].path = path;
    }

    /// Adds an association; returns its sending end.
    pub fn add(&mut self, slot: SlotId, config: SctpConfigId, (down, up): (Path, Path)) -> SctpEndId {
        let [sender, receiver] = both(self.ends.next_id());
        for (peer, path, is_sender) in [(receiver, down, true), (sender, up, false)] {
            self.ends.push(SctpEnd {
                sctp: sctp::Association::listen(&self.configs[config]),
                config,
                slot,
                peer,
                path,
                is_sender,
                timer: Alarm::default(),
                is_greeted: false,
                tsn_sent: 0,
                stream_sent: 0,
                trace: None,
            });
        }
        sender
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Makes both ends listen for another flow; `trace` traces the sending end.
    pub fn listen(&mut self, sender: SctpEndId, trace: Option<TraceId>) {
        for id in both(sender) {
            let end = &mut self.ends[id];
            end.sctp = sctp::Association::listen(&self.configs[end.config]);
            (end.timer, end.is_greeted) = (Alarm::default(), false);
            (end.tsn_sent, end.stream_sent) = (0, 0);
        }
        self.ends[sender].trace = trace;
    }

    /// Opens an association from its sending end.
    pub fn connect(&mut self, sender: SctpEndId) {
        let end = &mut self.ends[sender];
        end.sctp = sctp::Association::connect(&self.configs[end.config]);
    }

    pub fn receive(&mut self, to: SctpEndId, packet: &sctp::Packet, now: Instant) {
        let end = &mut self.ends[to];
        end.sctp.on_packet(&self.configs[end.config], now, packet);
    }

    /// Gives the next packet to send, and its length [bytes].
    pub fn poll_transmit(&mut self, id: SctpEndId, now: Instant) -> Option<(sctp::Packet, u32)> {
        let end = &mut self.ends[id];
        let config = &self.configs[end.config];
        let packet = end.sctp.poll_transmit(config, now)?;
        let len = packet.wire_len(config);
        Some((packet, len))
    }

    /// End in the stream of the data sent so far, if a packet carries data for the first time.
    pub fn stream_sent(&mut self, id: SctpEndId, packet: &sctp::Packet) -> Option<u64> {
        let end = &mut self.ends[id];
        let before = end.stream_sent;
        for chunk in packet.data() {
            if chunk.tsn > end.tsn_sent {
                (end.tsn_sent, end.stream_sent) = (chunk.tsn, end.stream_sent + u64::from(chunk.len));
            }
        }
        (end.stream_sent > before).then_some(end.stream_sent)
    }

    /// Queues one message for sending.
    pub fn send_message(&mut self, sender: SctpEndId, len: u32) {
        let end = &mut self.ends[sender];
        end.sctp.send(&self.configs[end.config], len);
    }

    /// An end with its configuration.
    pub fn with_config(&mut self, id: SctpEndId) -> (&mut SctpEnd, &sctp::Config) {
        let end = &mut self.ends[id];
        let config = &self.configs[end.config];
        (end, config)
    }

    /// Handles a scheduled timer; true if it has gone off.
    pub fn on_timer(&mut self, id: SctpEndId, clock: &mut Clock) -> bool {
        let (end, now) = (&mut self.ends[id], clock.now());
        if !end.timer.end(now) {
            return false;
        }
        let is_due = end.sctp.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            end.sctp.handle_timeout(&self.configs[end.config], now);
        } else {
            self.arm(id, clock);
        }
        is_due
    }

    /// Schedules an end's timer. A timer that moves later stays scheduled, and is checked when it goes off.
    pub fn arm(&mut self, id: SctpEndId, clock: &mut Clock) {
        let end = &mut self.ends[id];
        if let Some(at) = end.sctp.poll_timeout()
            && end.timer.set(at)
        {
            clock.at(at, Event::SctpTimer(id));
        }
    }

    /// Resets one end of an association; false if it was closed already.
    pub fn abort(&mut self, id: SctpEndId) -> bool {
        let sctp = &mut self.ends[id].sctp;
        let is_open = !sctp.is_closed();
        if is_open {
            sctp.abort();
        }
        is_open
    }

    /// True if both ends are closed, or the association never began.
    pub fn is_over(&self, sender: SctpEndId) -> bool {
        both(sender).into_iter().all(|id| self.ends[id].sctp.is_closed())
    }
}

impl std::ops::Index<SctpEndId> for SctpEnds {
    type Output = SctpEnd;
    fn index(&self, id: SctpEndId) -> &SctpEnd {
        &self.ends[id]
    }
}
