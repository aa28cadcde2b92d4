//! The queues of a gateway.

use bentpipe_gateway::{Advisor, Gateway};
use bentpipe_queue::tree::NodeId;
use bentpipe_queue::{FlowEvent, FlowId, FlowTable};
use bentpipe_scenario::FlowKey;
use bentpipe_units::{Alarm, Instant, Rate};

use crate::clock::{Clock, Event};
use crate::ids::{CarrierId, GatewayId, LinkDirectionId, TerminalId};

/// The queues of a gateway, for all its terminals or for one of them; or the queues of a terminal.
pub struct GatewayNode {
    pub gateway: Gateway,
    /// Number of the gateway in the scenario; that of a terminal's queues is its gateway's.
    pub number: usize,
    /// The terminal at which the queues are, by its number in results; `None` at the gateway.
    pub terminal: Option<TerminalId>,
    /// The only terminal whose packets are in the queues at a gateway, likewise; `None` if several share them.
    pub serves: Option<TerminalId>,
    /// Key by which the gateway's queues tell flows apart.
    pub flow_key: FlowKey,
    /// True if the scheduler of the transmit queue tells flows apart, so that they wait for different times.
    pub has_flow_scheduler: bool,
    /// True if an acknowledgement takes the place of an older one of its connection that waits.
    pub ack_filter: bool,
    /// True if acknowledgements of the PEP link do not wait in the transmit queue.
    pub has_ack_priority: bool,
    /// Announced flows that are open, by the gateway's flow number.
    open_flows: FlowTable<u32>,
    /// The link whose capacity the regulator follows, if any.
    pub follows: Option<LinkDirectionId>,
    /// The carrier that drains the transmit queue, and its leaf there; `None` if it has a regulator.
    pub carrier: Option<(CarrierId, NodeId)>,
    /// Rate of the regulator, unless it follows a link.
    pub rate: Rate,
    /// Time of its slots on a return carrier that it has not used yet [ns]; negative if its last packet took more.
    pub slot_time: i64,
    /// Time at which it may send its next packet in its slot.
    pub slot_at: Alarm,
    /// True while the carrier knows that packets wait.
    pub is_offered: bool,
    /// True once its terminals have moved to another gateway, to which it forwards what it still receives for them.
    pub forwards: bool,
    /// Gives throughput advice, if the gateway does.
    pub advisor: Option<Box<Advisor>>,
    /// Time for which the gateway is scheduled.
    wake: Alarm,
    /// True while the gateway's events are handled further up the call stack.
    pub is_draining: bool,
}

impl GatewayNode {
    pub fn new(gateway: Gateway, number: usize, flow_key: FlowKey, follows: Option<LinkDirectionId>) -> Self {
        Self {
            gateway,
            number,
            terminal: None,
            serves: None,
            flow_key,
            has_flow_scheduler: false,
            ack_filter: false,
            has_ack_priority: false,
            open_flows: FlowTable::default(),
            follows,
            carrier: None,
            rate: Rate::default(),
            slot_time: 0,
            slot_at: Alarm::default(),
            is_offered: false,
            forwards: false,
            advisor: None,
            wake: Alarm::default(),
            is_draining: false,
        }
    }

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

    /// Counts the packets in the queues.
    ///
    /// # Errors
    /// Queues whose counters contradict each other.
    pub fn count(&self) -> Result<u64, String> {
        let mut count = self.gateway.in_work() as u64;
        for queue in [self.gateway.receive_queue(), self.gateway.transmit_queue()] {
            queue.check().map_err(|e| format!("gateway: {e}"))?;
            count += u64::from(queue.state().packets) + u64::from(queue.state().held);
        }
        Ok(count)
    }
}
