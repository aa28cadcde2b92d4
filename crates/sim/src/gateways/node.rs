//! A gateway with its terminal.

use bentpipe_gateway::{Gateway, PepBuffers};
use bentpipe_queue::{FlowEvent, FlowId, FlowTable};
use bentpipe_scenario::FlowKey;
use bentpipe_transport::pep_link;
use bentpipe_units::{Alarm, Instant};

use super::pep_delay::PepDelay;
use crate::clock::{Clock, Event};
use crate::ids::{ConnId, GatewayId, Id, IdVec, LinkDirectionId, SlotId, StreamId};
use crate::network::Path;
use crate::side::{BySide, Side};

/// A gateway, the PEP's buffers, and both ends of its PEP link.
pub struct GatewayNode {
    pub gateway: Gateway,
    pub buffers: PepBuffers,
    /// Key by which the gateway's queues tell flows apart.
    pub flow_key: FlowKey,
    /// True if the scheduler of the transmit queue tells flows apart, so that they wait for different times.
    pub has_flow_scheduler: bool,
    /// Announced flows that are open, by the gateway's flow number.
    open_flows: FlowTable<u32>,
    pub config: pep_link::Config,
    pub ends: BySide<pep_link::Endpoint>,
    /// The path from each end to the other.
    pub paths: BySide<Path>,
    pub streams: IdVec<StreamId, SplitStream>,
    /// The link whose capacity the regulator follows, if any.
    pub follows: Option<LinkDirectionId>,
    /// Time for which the gateway is scheduled.
    wake: Alarm,
    /// Time for which the timer of each end is scheduled.
    timers: BySide<Alarm>,
    /// True while the gateway's events are handled further up the call stack.
    pub is_draining: bool,
}

/// A stream of the PEP link: it joins two TCP connections of a split flow.
#[derive(Debug)]
pub struct SplitStream {
    pub slot: SlotId,
    /// The TCP connection at each end.
    pub conns: BySide<ConnId>,
    /// Bytes of it in the PEP's buffers.
    pub held: u64,
    /// True at each end while the stream is open there.
    pub is_open: BySide<bool>,
    /// Time that its bytes spend in the PEP.
    pub pep_delay: PepDelay,
}

impl SplitStream {
    pub fn new(slot: SlotId, conns: BySide<ConnId>) -> Self {
        let is_open = BySide::new(false, false);
        Self { slot, conns, held: 0, is_open, pep_delay: PepDelay::default() }
    }
}

impl GatewayNode {
    pub fn new(
        gateway: Gateway,
        buffers: PepBuffers,
        flow_key: FlowKey,
        config: pep_link::Config,
        paths: BySide<Path>,
        follows: Option<LinkDirectionId>,
    ) -> Self {
        let end = || pep_link::Endpoint::new(config.clone());
        Self {
            gateway,
            buffers,
            flow_key,
            has_flow_scheduler: false,
            open_flows: FlowTable::default(),
            ends: BySide::new(end(), end()),
            config,
            paths,
            streams: IdVec::default(),
            follows,
            wake: Alarm::default(),
            timers: BySide::new(Alarm::default(), Alarm::default()),
            is_draining: false,
        }
    }

    // ----- timers --------------------------------------------------------------------------------------------

    /// Schedules the gateway's next wake-up.
    #[inline]
    pub fn arm(&mut self, id: GatewayId, clock: &mut Clock) {
        if let Some(at) = self.gateway.wake_at()
            && self.wake.set(at)
        {
            clock.at(at, Event::Gateway(id));
        }
    }

    /// Begins a wake-up; false if it is out of date.
    pub fn begin_wake(&mut self, now: Instant) -> bool {
        self.wake.end(now)
    }

    /// Schedules the timer of one end of the PEP link.
    pub fn arm_end(&mut self, id: GatewayId, side: Side, clock: &mut Clock) {
        if let Some(at) = self.ends[side].poll_timeout()
            && self.timers[side].set(at)
        {
            clock.at(at, if side.is_far() { Event::FarPepTimer(id) } else { Event::NearPepTimer(id) });
        }
    }

    /// Handles the timer of one end of the PEP link; false if it is out of date.
    pub fn on_timer(&mut self, side: Side, now: Instant) -> bool {
        if !self.timers[side].end(now) {
            return false;
        }
        if self.ends[side].poll_timeout().is_some_and(|at| at <= now) {
            self.ends[side].handle_timeout(now);
        }
        true
    }

    // ----- buffers -------------------------------------------------------------------------------------------

    /// Window that a stream's near connection may advertise [bytes].
    pub fn window(&self, stream: StreamId) -> u32 {
        u32::try_from(self.buffers.room(stream.index())).unwrap_or(u32::MAX)
    }

    /// True if a stream's buffer has less room than the connection's largest window.
    pub fn is_tight(&self, stream: StreamId, receive_window: u32) -> bool {
        self.buffers.room(stream.index()) < u64::from(receive_window)
    }

    /// Takes bytes of a stream into the buffers.
    pub fn hold(&mut self, stream: StreamId, bytes: u64) {
        self.buffers.take(stream.index(), bytes);
        self.streams[stream].held += bytes;
    }

    /// Frees room of a stream in the buffers. A stream that was reset has released all its bytes already.
    pub fn release(&mut self, stream: StreamId, bytes: u64) {
        let held = &mut self.streams[stream].held;
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.buffers.release(stream.index(), bytes);
    }

    // ----- flows ---------------------------------------------------------------------------------------------

    /// Announces a flow to the gateway's queues: its first opening and its last closing under the same key.
    pub fn announce(&mut self, flow: FlowId, event: FlowEvent, now: Instant) -> bool {
        let open = self.open_flows.get_or_insert_with(flow, || 0);
        let others = match event {
            FlowEvent::Opened => std::mem::replace(open, *open + 1),
            FlowEvent::Closed => {
                *open = open.saturating_sub(1);
                *open
            }
        };
        if others > 0 {
            return false;
        }
        if event == FlowEvent::Closed {
            self.open_flows.remove(flow);
        }
        self.gateway.flow(flow, event, now);
        true
    }

    // ----- checks --------------------------------------------------------------------------------------------

    /// Counts the packets in the gateway.
    ///
    /// # Errors
    /// Queues or buffers whose counters contradict each other.
    pub fn count(&self) -> Result<u64, String> {
        let mut count = self.gateway.in_work() as u64;
        for queue in [self.gateway.receive_queue(), self.gateway.transmit_queue()] {
            queue.check().map_err(|e| format!("gateway: {e}"))?;
            count += u64::from(queue.state().packets) + u64::from(queue.state().held);
        }
        let (held, occupied) = (self.streams.iter().map(|s| s.held).sum::<u64>(), self.buffers.occupied());
        if held != occupied {
            return Err(format!("PEP buffers hold {occupied} bytes, their connections {held}"));
        }
        Ok(count)
    }
}
