//! The satellite gateway without any IO.
//!
//! A [`Gateway`] places what the queue crate defines ([B07] Fig. 1.2):
//!
//! ```text
//! internet ─▶ receive queue ─▶ PEP ─▶ transmit queue ─▶ regulator ─▶ satellite
//! ```
//!
//! Its host (the simulator, or a daemon with sockets) moves packets in by [`Gateway::arrive`],
//! [`Gateway::process`] and [`Gateway::transmit`], calls [`Gateway::wake`] when [`Gateway::wake_at`] says so, and
//! after each of these takes what came of it from [`Gateway::poll`]. The TCP connections that a performance
//! enhancing proxy (PEP) ends are the host's; [`PepBuffers`] says how much each may still send, and with
//! [`FlowControl`] less for each packet that [`Event::Received`] gives as marked.

mod config;
mod flight;
mod pep;
mod regulator;

use std::collections::VecDeque;

use bentpipe_queue::{Aqm, DropHandler, DropReason, FlowEvent, FlowId, Packet, Queue};
use bentpipe_units::{Duration, Instant, Rate};

pub use config::Config;
pub use flight::InFlight;
pub use pep::{Connection, FlowControl, PepBuffers, Sharing};
pub use regulator::Regulator;

/// The names of what is sampled of a gateway, in a simulation and on a live one alike, behind the time.
pub const SERIES: [&str; 10] = [
    "offered_load",
    "arrival_rate",
    "throughput",
    "receive_queue",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
    "pep_buffers",
    "transit_time",
];

/// Further names where marks cut windows.
pub const LIMIT_SERIES: [&str; 2] = ["window_limit", "windows_closed"];

/// One of the gateway's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayQueue {
    /// The receive queue, ahead of the PEP.
    Receive,
    /// The transmit queue, behind the PEP.
    Transmit,
}

/// What the gateway's host has to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet has passed the receive queue: end its connection here, or hand it to [`Gateway::process`].
    Received(Packet),
    /// The PEP has finished with it: make satellite packets of it, and hand them to [`Gateway::transmit`].
    Processed(Packet),
    /// The packet leaves for the satellite.
    Sent(Packet),
    /// The packet was discarded.
    Dropped(Packet, DropReason, GatewayQueue),
}

/// How a gateway is built.
pub struct Setup {
    /// The receive queue.
    pub receive: Queue,
    /// How fast the receive queue is worked off; at once where none.
    pub receive_rate: Option<Rate>,
    /// The transmit queue.
    pub transmit: Queue,
    /// The queue whose Aqm judges.
    pub watch: GatewayQueue,
    /// Where it judges.
    pub mark: GatewayQueue,
    /// From leaving the receive queue to entering the transmit queue.
    pub processing: Duration,
    /// What drains the transmit queue.
    pub regulator: Regulator,
}

/// A satellite gateway's forward direction.
pub struct Gateway {
    receive: Queue,
    receive_rate: Option<Rate>,
    /// The packet that the receive queue's server works on, and when it will be done.
    serving: Option<(Instant, Packet)>,
    /// What the PEP works on, oldest first, and when it will be done.
    processing: VecDeque<(Instant, Packet)>,
    delay: Duration,
    transmit: Queue,
    watch: GatewayQueue,
    mark: GatewayQueue,
    regulator: Regulator,
    events: VecDeque<Event>,
    arrived_bytes: u64,
}

impl Gateway {
    /// An empty gateway.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            receive: setup.receive,
            receive_rate: setup.receive_rate,
            serving: None,
            processing: VecDeque::new(),
            delay: setup.processing,
            transmit: setup.transmit,
            watch: setup.watch,
            mark: setup.mark,
            regulator: setup.regulator,
            events: VecDeque::new(),
            arrived_bytes: 0,
        }
    }

    /// A packet comes in from the internet.
    pub fn arrive(&mut self, mut pkt: Packet, now: Instant) {
        self.arrived_bytes += u64::from(pkt.len);
        if self.passes(&mut pkt, now, GatewayQueue::Receive) {
            self.receive(pkt, now);
        }
    }

    /// A packet comes in from the internet that no Aqm is asked about ahead of the PEP: while the satellite is out, the queue
    /// behind it says nothing of the load.
    pub fn admit(&mut self, pkt: Packet, now: Instant) {
        self.arrived_bytes += u64::from(pkt.len);
        self.receive(pkt, now);
    }

    /// A packet that may go on enters the receive queue, and leaves it at once where that has no rate.
    fn receive(&mut self, mut pkt: Packet, now: Instant) {
        if self.receive_rate.is_none() {
            pkt.arrival = now;
            self.events.push_back(Event::Received(pkt));
            return;
        }
        self.receive.enqueue(pkt, now, &mut Drops { events: &mut self.events, place: GatewayQueue::Receive });
        if self.serving.is_none() {
            self.serve_receive(now);
        }
    }

    /// The PEP takes something over that is to go out over the satellite.
    pub fn process(&mut self, pkt: Packet, now: Instant) {
        // Work is handed on when the regulator looks for it: at its ticks.
        let done = self.regulator.next_look(now + self.delay);
        self.processing.push_back((done, pkt));
    }

    /// A packet enters the transmit queue.
    pub fn transmit(&mut self, mut pkt: Packet, now: Instant) {
        if self.passes(&mut pkt, now, GatewayQueue::Transmit) {
            self.queue_up(pkt, now);
        }
    }

    /// A packet that may go on enters the transmit queue.
    fn queue_up(&mut self, pkt: Packet, now: Instant) {
        self.transmit.enqueue(
            pkt,
            now,
            &mut Drops { events: &mut self.events, place: GatewayQueue::Transmit },
        );
        if self.transmit.peek().is_some() {
            self.regulator.want(now);
        }
    }

    /// A flow begins or is over.
    pub fn flow(&mut self, flow: FlowId, event: FlowEvent, now: Instant) {
        self.receive.flow(flow, event, now);
        self.transmit.flow(flow, event, now);
    }

    /// The satellite has another rate from now on; at rate zero, none at all.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.regulator.set_rate(rate);
        if rate.as_bps() > 0 {
            self.transmit.set_capacity(rate);
            if self.transmit.peek().is_some() {
                self.regulator.want(now);
            }
        }
    }

    /// `bytes` have gone over the satellite that no packet stands for: headers, acknowledgements, what was sent again. The
    /// regulator makes up for them.
    pub fn charge(&mut self, bytes: u64, now: Instant) {
        self.regulator.charge(bytes, now);
    }

    /// What has gone over the satellite, and the regulator's rate has not made up for by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        self.regulator.debt(now)
    }

    /// Another Aqm watches and judges from `now` on, where the one before did.
    pub fn set_aqm(&mut self, aqm: Box<dyn Aqm>, now: Instant) {
        match self.watch {
            GatewayQueue::Receive => self.receive.set_aqm(aqm, now),
            GatewayQueue::Transmit => self.transmit.set_aqm(aqm, now),
        }
    }

    /// When [`Gateway::wake`] wants to be called next.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let mut next = self.serving.map(|(done, _)| done);
        for other in [
            self.processing.front().map(|(done, _)| *done),
            self.regulator.wake_at(),
            self.receive.wake_at(),
            self.transmit.wake_at(),
        ] {
            next = match (next, other) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        next
    }

    /// The time asked for has come. Call it again, after [`Gateway::poll`] has been emptied, while
    /// [`Gateway::wake_at`] is not later than `now`.
    pub fn wake(&mut self, now: Instant) {
        for queue in [GatewayQueue::Receive, GatewayQueue::Transmit] {
            self.wake_queue(queue, now);
        }
        if let Some((done, pkt)) = self.serving
            && done <= now
        {
            self.events.push_back(Event::Received(pkt));
            self.serve_receive(now);
        }
        let before = self.events.len();
        while let Some(&(done, pkt)) = self.processing.front()
            && done <= now
        {
            self.processing.pop_front();
            self.events.push_back(Event::Processed(pkt));
        }
        // What the PEP has just finished goes out with this tick already, so the host comes first.
        if self.events.len() == before && self.regulator.wake_at().is_some_and(|at| at <= now) {
            self.serve_transmit(now);
        }
    }

    /// What there is to act on.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The receive queue.
    #[must_use]
    pub fn receive_queue(&self) -> &Queue {
        &self.receive
    }

    /// The transmit queue.
    #[must_use]
    pub fn transmit_queue(&self) -> &Queue {
        &self.transmit
    }

    /// The queue whose Aqm judges.
    #[must_use]
    pub fn watched_queue(&self) -> &Queue {
        match self.watch {
            GatewayQueue::Receive => &self.receive,
            GatewayQueue::Transmit => &self.transmit,
        }
    }

    /// Whether packets ahead of the PEP are judged by the queue behind it.
    #[must_use]
    pub fn judges_ahead(&self) -> bool {
        (self.watch, self.mark) == (GatewayQueue::Transmit, GatewayQueue::Receive)
    }

    /// Where the Aqm judges.
    #[must_use]
    pub fn mark_point(&self) -> GatewayQueue {
        self.mark
    }

    /// Bytes that have come in from the internet since the run began.
    #[must_use]
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// Packets that the PEP or the receive queue's server works on.
    #[must_use]
    pub fn in_work(&self) -> usize {
        self.processing.len() + usize::from(self.serving.is_some())
    }

    /// Whether a packet may go on; it may if this is not the mark point.
    fn passes(&mut self, pkt: &mut Packet, now: Instant, place: GatewayQueue) -> bool {
        if self.mark != place {
            return true;
        }
        let queue = match self.watch {
            GatewayQueue::Receive => &mut self.receive,
            GatewayQueue::Transmit => &mut self.transmit,
        };
        queue.offer(pkt, now, &mut Drops { events: &mut self.events, place })
    }

    /// What a queue has to do by `now`; packets that it held back at the mark point go on from there.
    fn wake_queue(&mut self, place: GatewayQueue, now: Instant) {
        loop {
            let queue = match place {
                GatewayQueue::Receive => &mut self.receive,
                GatewayQueue::Transmit => &mut self.transmit,
            };
            if queue.wake_at().is_none_or(|at| at > now) {
                return;
            }
            // Only the watched queue's Aqm holds packets back and drops them here; a scheduler drops where it stands.
            let at = if place == self.watch { self.mark } else { place };
            let released = queue.wake(now, &mut Drops { events: &mut self.events, place: at });
            match (released, self.mark) {
                (Some(pkt), GatewayQueue::Receive) => self.receive(pkt, now),
                (Some(pkt), GatewayQueue::Transmit) => self.queue_up(pkt, now),
                (None, _) => {}
            }
        }
    }

    fn serve_receive(&mut self, now: Instant) {
        let next =
            self.receive.dequeue(now, &mut Drops { events: &mut self.events, place: GatewayQueue::Receive });
        let rate = self.receive_rate.unwrap_or_default();
        self.serving = next.map(|pkt| (now + rate.time_to_send(u64::from(pkt.len)), pkt));
    }

    fn serve_transmit(&mut self, now: Instant) {
        self.regulator.tick(now);
        let mut out = Drops { events: &mut self.events, place: GatewayQueue::Transmit };
        loop {
            match self.transmit.peek().map(|head| head.len) {
                Some(len) if self.regulator.allows(len, now) => {
                    if let Some(pkt) = self.transmit.dequeue(now, &mut out) {
                        self.regulator.spend(pkt.len, now);
                        out.events.push_back(Event::Sent(pkt));
                    }
                }
                Some(_) => return self.regulator.want(now),
                None if self.regulator.is_busy(now) => {
                    self.regulator.rest();
                    return self.regulator.want(now);
                }
                None => {
                    // Asked in vain, the queue learns that its link is idle.
                    let nothing = self.transmit.dequeue(now, &mut out);
                    debug_assert!(nothing.is_none(), "a scheduler that showed no packet gave one");
                    return self.regulator.rest();
                }
            }
        }
    }
}

/// Hears what a queue discards.
struct Drops<'a> {
    events: &'a mut VecDeque<Event>,
    place: GatewayQueue,
}

impl DropHandler for Drops<'_> {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.events.push_back(Event::Dropped(pkt, reason, self.place));
    }
}
