//! Viewers of adaptive video and their servers.

use bentpipe_queue::FlowId;
use bentpipe_scenario::Dash;
use bentpipe_traffic::dash::Player;
use bentpipe_units::{Instant, Rng};

use super::{Apps, Kind};
use crate::clock::{Clock, Event};
use crate::endpoints::{ByteStream, FlowSlot, Owner, Phase, Transfer};
use crate::ids::SourceId;
use crate::record::Recorder;

/// The server answers requests with the segments that they ask for.
pub(super) fn serve_segments(c: &mut impl ByteStream, transfer: &mut Transfer, dash: &Dash) {
    transfer.request_bytes += c.read_all();
    // A player waits for a segment before it requests the next.
    if transfer.request_bytes >= (transfer.answered + 1) * dash.request_size {
        transfer.answered += 1;
        c.write(transfer.size);
    }
    if c.peer_closed() {
        c.close();
    }
}

impl Apps {
    /// A viewer begins a viewing. The sizes of its segments come from a separate random stream, so that their number does not
    /// change later viewings.
    pub fn begin_viewing(&mut self, id: SourceId, now: Instant) {
        let s = &mut self.sources[id];
        let sizes = Rng::stream(s.rng.bits(), "segment", 0, "size");
        s.player = Some(Box::new(Player::new(now, sizes)));
    }

    /// The player requests its next segment.
    pub fn request_segment(
        &mut self,
        id: SourceId,
        c: &mut impl ByteStream,
        transfer: &mut Transfer,
        now: Instant,
    ) {
        let s = &mut self.sources[id];
        if let (Kind::Dash(dash), Some(player)) = (&self.traffic[s.traffic].kind, &mut s.player) {
            transfer.received = 0;
            transfer.size = player.request(dash, c.advice(now), now);
            c.write(dash.request_size);
        }
    }

    /// The player has read what its connection received: it requests the first segment, and the next after each.
    pub fn serve_viewer(
        &mut self,
        c: &mut impl ByteStream,
        slot: &mut FlowSlot,
        recorder: &mut Recorder,
        clock: &mut Clock,
    ) {
        let (Kind::Dash(dash), Owner::Source(id)) = (&self.traffic[slot.traffic].kind, slot.owner) else {
            return;
        };
        if slot.phase != Phase::Live || !c.is_established() {
            return;
        }
        let s = &mut self.sources[id];
        if c.greet() {
            return self.request_segment(id, c, &mut slot.transfer, clock.now());
        }
        let Some(player) = &mut s.player else { return };
        let transfer = &mut slot.transfer;
        if transfer.size == 0 || transfer.received < transfer.size {
            return;
        }
        let flow = slot.flow;
        let next = player.receive(dash, transfer.size, clock.now(), |period| recorder.viewed(flow, period));
        transfer.size = 0;
        if next == clock.now() {
            self.request_segment(id, c, &mut slot.transfer, next);
        } else {
            s.due = Some(next);
            clock.at(next, Event::Source(id));
        }
    }

    /// A viewing ends: the viewer leaves, the connection fails, or the run ends.
    pub fn end_viewing(&mut self, id: SourceId, flow: FlowId, now: Instant, recorder: &mut Recorder) {
        let s = &mut self.sources[id];
        if let (Kind::Dash(dash), Some(mut player)) = (&self.traffic[s.traffic].kind, s.player.take()) {
            player.advance(dash, now, |period| recorder.viewed(flow, period));
        }
    }

    /// Schedules the viewing that follows one whose connection has failed.
    pub fn schedule_viewing(&mut self, id: SourceId, clock: &mut Clock) {
        let s = &mut self.sources[id];
        let t = &self.traffic[s.traffic];
        let Kind::Dash(dash) = &t.kind else { return };
        (s.slot, s.leaves) = (None, None);
        s.due = t.presence.present(s.number, clock.now() + dash.think_time.draw(&mut s.rng));
        clock.at_any(s.due, Event::Source(id));
    }
}
