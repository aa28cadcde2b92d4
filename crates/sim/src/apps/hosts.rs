//! The hosts at both ends of a flow.

use bentpipe_quic::Priority;
use bentpipe_transport::sctp;
use bentpipe_units::Instant;

use super::dash::serve_segments;
use super::{Apps, Kind, Loading};
use crate::clock::Clock;
use crate::endpoints::sctp::SctpEnd;
use crate::endpoints::{ByteStream, FlowSlot, Owner, Phase};
use crate::ids::SlotId;
use crate::record::Recorder;

/// Priority that a browser requests for the object at a place of its page, of which the first is the document and as many as
/// `blocking` after it block rendering.
///
/// That of Chromium (its `ConvertRequestPriorityToQuicPriority` and `ShouldLoadIncremental`), simplified: the document has
/// urgency 0, style sheets and scripts 0 or 1 and cannot be used in part, images have 3 and can.
fn browser_priority(place: usize, blocking: u32) -> Priority {
    match place {
        0 => Priority { urgency: 0, incremental: true },
        place if place <= blocking as usize => Priority { urgency: 1, incremental: false },
        _ => Priority { urgency: 3, incremental: true },
    }
}

/// Bytes of a transfer without end.
const ENDLESS: u64 = u64::MAX / 8;

impl Apps {
    /// The host that sends the data answers requests, or sends by itself.
    pub fn serve_sender(&self, c: &mut impl ByteStream, slot: &mut FlowSlot, now: Instant) {
        let transfer = &mut slot.transfer;
        match self.traffic[slot.traffic].kind {
            Kind::Pages { request_size, loading: Loading::Http3, rendering, .. } => {
                let priority = rendering
                    .filter(|rendering| rendering.priorities)
                    .map(|rendering| move |place| browser_priority(place, rendering.blocking));
                c.answer_objects(request_size, &slot.object_sizes, priority);
            }
            Kind::Pages { request_size, keep_alive, .. } => {
                transfer.request_bytes += c.read_all();
                while transfer.request_bytes >= (transfer.answered + 1) * request_size
                    && transfer.objects != Some(0)
                    && transfer.size > 0
                    && !transfer.is_answered
                {
                    transfer.answered += 1;
                    transfer.answered_at = now;
                    c.write(transfer.size);
                    if transfer.objects == Some(1) {
                        transfer.is_answered = true;
                        if keep_alive.is_none() {
                            c.close();
                        }
                    }
                }
                if c.peer_closed() {
                    c.close();
                }
            }
            Kind::Bulk { bytes, .. } => {
                if c.greet() {
                    c.write(bytes.unwrap_or(ENDLESS));
                    if bytes.is_some() {
                        c.close();
                    }
                }
            }
            Kind::Files { .. } => {
                if c.greet() {
                    c.write(transfer.size);
                    c.close();
                }
            }
            Kind::Dash(ref dash) => serve_segments(c, transfer, dash),
            // The source writes when a packet is due.
            Kind::Packets { .. } => {}
        }
    }

    /// The host that receives the data requests it, and counts it.
    pub fn serve_receiver(
        &mut self,
        c: &mut impl ByteStream,
        id: SlotId,
        slot: &mut FlowSlot,
        recorder: &mut Recorder,
        clock: &mut Clock,
    ) {
        let n = c.read_all();
        slot.transfer.received += n;
        if n > 0 {
            // Probes are no load: their data are no units of their class.
            if let Kind::Pages { loading: Loading::Probe, .. } = self.traffic[slot.traffic].kind {
                recorder.delivered(slot.flow, n);
            } else {
                read_units(slot, n, recorder, clock.now());
            }
        }
        if let (
            &Kind::Pages { request_size, objects_per_page, loading, keep_alive, rendering, .. },
            Owner::Session(session),
        ) = (&self.traffic[slot.traffic].kind, slot.owner)
        {
            let transfer = &mut slot.transfer;
            let is_complete = transfer.size > 0 && transfer.received >= transfer.size;
            if n > 0 {
                self.sessions[session].page.first_byte.get_or_insert(clock.now());
            }
            if let Some(rendering) = rendering
                && self.sessions[session].page.rendered.is_none()
                && c.has_objects(1 + rendering.blocking as usize)
            {
                self.sessions[session].page.rendered = Some(clock.now());
            }
            if c.greet() {
                self.sessions[session].page.end_step(transfer, clock.now());
                c.request_objects(1, request_size);
            } else if slot.phase == Phase::Live && is_complete {
                self.sessions[session].page.end_step(transfer, clock.now());
                let has_more = match &mut transfer.objects {
                    None => self.next_object(session, clock),
                    Some(left) => {
                        *left -= 1;
                        *left > 0
                    }
                };
                if has_more {
                    slot.transfer.received = 0;
                    let all_at_once = matches!(loading, Loading::Http2 | Loading::Http3);
                    let requests = if all_at_once { u64::from(objects_per_page) - 1 } else { 1 };
                    c.request_objects(requests, request_size);
                    self.draw_object(slot, false);
                } else {
                    if loading == Loading::Http1 {
                        c.close();
                    }
                    if let Some(time) = keep_alive {
                        slot.phase = Phase::Idle;
                        self.keep(session, id, time, clock);
                    } else {
                        slot.phase = Phase::Closing;
                        recorder.close_flow(clock.now(), slot.flow, true);
                    }
                    self.page_connection_done(session, true, recorder, clock);
                }
            }
        } else if let Kind::Dash(_) = self.traffic[slot.traffic].kind {
            self.serve_viewer(c, slot, recorder, clock);
        } else {
            self.check_completed(id, slot, recorder, clock.now());
        }
        if c.peer_closed() {
            c.close();
        }
    }

    /// Closes a bulk or file transfer once all its bytes have been received.
    #[inline(always)]
    fn check_completed(&mut self, id: SlotId, slot: &mut FlowSlot, recorder: &mut Recorder, now: Instant) {
        let (size, is_bulk) = match self.traffic[slot.traffic].kind {
            Kind::Bulk { bytes: Some(bytes), .. } => (bytes, true),
            Kind::Files { .. } => (slot.transfer.size, false),
            _ => return,
        };
        if slot.transfer.received < size || slot.phase != Phase::Live {
            return;
        }
        slot.phase = Phase::Closing;
        recorder.close_flow(now, slot.flow, true);
        if let Owner::Source(source) = slot.owner
            && is_bulk
        {
            self.detach(source, id);
        }
    }

    /// [`Apps::serve_sender`] over SCTP.
    pub fn serve_sctp_sender(&self, end: &mut SctpEnd, config: &sctp::Config, slot: &FlowSlot) {
        if !end.sctp.is_established() || std::mem::replace(&mut end.is_greeted, true) {
            return;
        }
        let bytes = match self.traffic[slot.traffic].kind {
            Kind::Bulk { bytes: None, .. } => return end.sctp.write(config, ENDLESS),
            Kind::Bulk { bytes: Some(bytes), .. } => bytes,
            Kind::Files { .. } => slot.transfer.size,
            // The source writes when a packet is due.
            Kind::Packets { .. } | Kind::Pages { .. } | Kind::Dash(_) => return,
        };
        end.sctp.write(config, bytes);
        end.sctp.close();
    }

    /// [`Apps::serve_receiver`] over SCTP.
    pub fn serve_sctp_receiver(
        &mut self,
        end: &mut SctpEnd,
        slot: &mut FlowSlot,
        recorder: &mut Recorder,
        now: Instant,
    ) {
        let n = end.sctp.readable();
        end.sctp.read(n);
        slot.transfer.received += n;
        if n > 0 {
            read_units(slot, n, recorder, now);
        }
        self.check_completed(end.slot, slot, recorder, now);
    }
}

/// Records payload that the receiving application reads, and the units that it completes.
#[inline]
fn read_units(slot: &mut FlowSlot, bytes: u64, recorder: &mut Recorder, now: Instant) {
    recorder.delivered(slot.flow, bytes);
    recorder.received_units(slot.flow, slot.units.read(bytes), now);
}
