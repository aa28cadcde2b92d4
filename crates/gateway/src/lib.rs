//! The forward direction of a satellite gateway, sans-IO.
//!
//! A [`Gateway`] connects the queues of the queue crate ([B07] Fig. 1.2):
//!
//! ```text
//! internet ─▶ receive queue ─▶ PEP ─▶ transmit queue ─▶ regulator ─▶ satellite
//! ```
//!
//! Its host (the simulator, or a daemon with sockets) passes packets in with [`Gateway::arrive`], [`Gateway::process`]
//! and [`Gateway::transmit`], calls [`Gateway::wake`] at [`Gateway::wake_at`], and after each of these takes the events
//! from [`Gateway::poll`]. The host owns the TCP connections that the performance-enhancing proxy (PEP) terminates;
//! [`PepBuffers`] gives the window of each, which [`FlowControl`] reduces for each packet that [`Event::Received`]
//! reports as marked.

mod advice;
mod carrier;
mod config;
mod demand;
mod flight;
mod meter;
mod pep;
mod processing;
mod regulator;
mod service_rate;
mod terminal_meter;

use std::collections::VecDeque;

use bentpipe_queue::{Aqm, DropHandler, DropReason, FlowEvent, FlowId, Packet, Queue};
use bentpipe_units::{Duration, Instant, Rate};

pub use advice::{Advice, Advisor};
pub use carrier::{Carrier, Turn};
pub use config::Config;
pub use demand::{Assignment, DemandCarrier, Report, Request, Slot};
pub use flight::InFlight;
pub use meter::{Meter, QueueCounters, Sample, Snapshot, Summary};
pub use pep::{ConnectionIndex, FlowControl, PepBuffers, Sharing};
pub use processing::{Processing, Processor};
pub use regulator::{Regulator, UNLIMITED};
use service_rate::ServiceRate;
pub use terminal_meter::{Interval, Intervals, TerminalMeter};

/// Names of the sampled series of a gateway, after the time, in simulations and live runs.
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

/// Names of the additional series with flow control.
pub const LIMIT_SERIES: [&str; 2] = ["window_limit", "windows_closed"];

/// One of the gateway's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayQueue {
    /// Receive queue, in front of the PEP.
    Receive,
    /// Transmit queue, behind the PEP.
    Transmit,
}

/// An event for the gateway's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet has left the receive queue: terminate its connection, or pass it to [`Gateway::process`].
    Received(Packet),
    /// The PEP has processed the packet: make satellite packets of it and pass them to [`Gateway::transmit`].
    Processed(Packet),
    /// The packet is sent to the satellite.
    Sent(Packet),
    /// The packet was dropped, at this queue.
    Dropped(Packet, DropReason, GatewayQueue),
}

/// Parts of a gateway.
pub struct Setup {
    /// Receive queue.
    pub receive: Queue,
    /// Service rate of the receive queue; `None` if packets pass it at once.
    pub receive_rate: Option<Rate>,
    /// Transmit queue.
    pub transmit: Queue,
    /// Queue that the AQM watches.
    pub watch: GatewayQueue,
    /// Mark point: the queue at whose entry the AQM decides.
    pub mark: GatewayQueue,
    /// The PEP's processing, between the two queues.
    pub processing: Processor,
    /// The part that drains the transmit queue.
    pub drain: Drain,
}

/// The part that drains a transmit queue.
#[derive(Debug)]
pub enum Drain {
    /// Its regulator.
    Regulator(Regulator),
    /// A [`Carrier`] that it shares.
    Carrier {
        /// Highest rate that it gets.
        peak: Rate,
        /// Time between the ticks at which the PEP delivers; zero if it delivers at any time.
        tick: Duration,
    },
}

/// The forward direction of a satellite gateway.
pub struct Gateway {
    receive: Queue,
    receive_rate: Option<Rate>,
    /// The packet in service at the receive queue, and when its service ends.
    serving: Option<(Instant, Packet)>,
    processing: Processor,
    transmit: Queue,
    watch: GatewayQueue,
    mark: GatewayQueue,
    regulator: Option<Regulator>,
    tick: Duration,
    /// Rate at which a carrier serves the transmit queue.
    service: Option<ServiceRate>,
    /// True during an outage of the satellite link.
    is_down: bool,
    events: VecDeque<Event>,
    arrived_packets: u64,
    arrived_bytes: u64,
}

impl Gateway {
    /// An empty gateway.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let (regulator, service, tick) = match setup.drain {
            Drain::Regulator(regulator) => {
                let tick = regulator.time_between_ticks();
                (Some(regulator), None, tick)
            }
            Drain::Carrier { peak, tick } => (None, Some(ServiceRate::new(peak)), tick),
        };
        Self {
            receive: setup.receive,
            receive_rate: setup.receive_rate,
            serving: None,
            processing: setup.processing,
            transmit: setup.transmit,
            watch: setup.watch,
            mark: setup.mark,
            regulator,
            tick,
            service,
            is_down: false,
            events: VecDeque::new(),
            arrived_packets: 0,
            arrived_bytes: 0,
        }
    }

    /// Accepts a packet from the internet.
    pub fn arrive(&mut self, mut pkt: Packet, now: Instant) {
        self.count_arrival(&pkt);
        if self.offer(&mut pkt, now, GatewayQueue::Receive) {
            self.receive(pkt, now);
        }
    }

    /// Accepts a packet from the internet that bypasses the AQM in front of the PEP: during an outage, the queue behind
    /// the PEP says nothing about the load.
    pub fn admit(&mut self, pkt: Packet, now: Instant) {
        self.count_arrival(&pkt);
        self.receive(pkt, now);
    }

    fn count_arrival(&mut self, pkt: &Packet) {
        self.arrived_packets += 1;
        self.arrived_bytes += u64::from(pkt.len);
    }

    /// Puts a packet that the AQM let pass into the receive queue; without a service rate it leaves at once.
    fn receive(&mut self, mut pkt: Packet, now: Instant) {
        if self.receive_rate.is_none() {
            pkt.arrival = now;
            self.events.push_back(Event::Received(pkt));
            return;
        }
        self.receive.enqueue(pkt, now, &mut Drops { events: &mut self.events, queue: GatewayQueue::Receive });
        if self.serving.is_none() {
            self.serve_receive(now);
        }
    }

    /// Passes a packet to the PEP, which will send it over the satellite.
    pub fn process(&mut self, pkt: Packet, now: Instant) {
        // The PEP delivers at the ticks of the regulator.
        self.processing.start(pkt, now, self.tick);
    }

    /// Passes a packet to the transmit queue.
    pub fn transmit(&mut self, mut pkt: Packet, now: Instant) {
        if self.offer(&mut pkt, now, GatewayQueue::Transmit) {
            self.enqueue_transmit(pkt, now);
        }
    }

    /// Puts a packet that the AQM let pass into the transmit queue.
    fn enqueue_transmit(&mut self, pkt: Packet, now: Instant) {
        self.transmit.enqueue(
            pkt,
            now,
            &mut Drops { events: &mut self.events, queue: GatewayQueue::Transmit },
        );
        self.request(now);
    }

    /// Requests a tick of the regulator if packets wait.
    fn request(&mut self, now: Instant) {
        if let Some(regulator) = &mut self.regulator
            && self.transmit.peek().is_some()
        {
            regulator.request(now);
        }
    }

    /// Reports the start or the end of a flow to the queues.
    pub fn flow(&mut self, flow: FlowId, event: FlowEvent, now: Instant) {
        self.receive.flow(flow, event, now);
        self.transmit.flow(flow, event, now);
    }

    /// Sets the rate of the satellite link; zero during an outage.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.is_down = rate.as_bps() == 0;
        if let Some(regulator) = &mut self.regulator {
            regulator.set_rate(rate, now);
        }
        if rate.as_bps() > 0 {
            // Behind a carrier the queue's capacity is what the carrier gives it.
            if self.regulator.is_some() {
                self.transmit.set_capacity(rate);
            }
            self.request(now);
        } else if let Some(service) = &mut self.service {
            service.pause(now);
        }
    }

    /// Sets the highest rate that it gets from a [`Carrier`].
    pub fn set_peak(&mut self, peak: Rate) {
        if self.service.is_some() {
            self.service = Some(ServiceRate::new(peak));
            self.transmit.set_capacity(peak);
        }
    }

    /// Charges `bytes` sent over the satellite without passing the transmit queue: headers, acknowledgements,
    /// retransmissions. The regulator compensates for them.
    pub fn charge(&mut self, bytes: u64, now: Instant) {
        if let Some(regulator) = &mut self.regulator {
            regulator.charge(bytes, now);
        }
    }

    /// Its regulator; `None` behind a carrier.
    #[must_use]
    pub fn regulator(&self) -> Option<&Regulator> {
        self.regulator.as_ref()
    }

    /// Bytes sent over the satellite that the regulator's rate has not compensated for by `now` [bytes].
    #[must_use]
    pub fn debt(&self, now: Instant) -> u64 {
        self.regulator.as_ref().map_or(0, |regulator| regulator.debt(now))
    }

    /// Replaces the AQM at the watched queue from `now` on.
    pub fn set_aqm(&mut self, aqm: Box<dyn Aqm>, now: Instant) {
        match self.watch {
            GatewayQueue::Receive => self.receive.set_aqm(aqm, now),
            GatewayQueue::Transmit => self.transmit.set_aqm(aqm, now),
        }
    }

    /// Time of the next call of [`Gateway::wake`]; `None` while idle.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let mut next = self.serving.map(|(done, _)| done);
        for other in [
            self.processing.next(),
            self.regulator.as_ref().and_then(Regulator::wake_at),
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

    /// Does everything due at `now`. Take the events from [`Gateway::poll`] and call it again while
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
        while let Some(pkt) = self.processing.finish(now) {
            self.events.push_back(Event::Processed(pkt));
        }
        // Packets just processed by the PEP still go with this tick, so the host handles them first.
        let wake_at = self.regulator.as_ref().and_then(Regulator::wake_at);
        if self.events.len() == before && wake_at.is_some_and(|at| at <= now) {
            self.serve_transmit(now);
        }
    }

    /// Sends the next packet of the transmit queue for a [`Carrier`]; `None` if it is empty.
    pub fn release(&mut self, now: Instant) -> Option<Packet> {
        if self.is_down {
            return None;
        }
        let mut out = Drops { events: &mut self.events, queue: GatewayQueue::Transmit };
        let pkt = self.transmit.dequeue(now, &mut out);
        out.events.extend(pkt.map(Event::Sent));
        if let Some(service) = &mut self.service {
            match pkt {
                Some(pkt) => service.send(pkt.len, now),
                None => service.pause(now),
            }
            if let Some(rate) = service.measured(now) {
                self.transmit.set_capacity(rate);
            }
        }
        pkt
    }

    /// Takes the next packet out of the transmit queue without sending it over the satellite, for another gateway to send;
    /// `None` if it is empty. The queue counts it as sent.
    pub fn take(&mut self, now: Instant) -> Option<Packet> {
        self.transmit.dequeue(now, &mut Drops { events: &mut self.events, queue: GatewayQueue::Transmit })
    }

    /// True during an outage of the satellite link.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// True if packets wait in the transmit queue, and the satellite link is up.
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        !self.is_down && self.transmit.peek().is_some()
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Receive queue.
    #[must_use]
    pub fn receive_queue(&self) -> &Queue {
        &self.receive
    }

    /// Transmit queue.
    #[must_use]
    pub fn transmit_queue(&self) -> &Queue {
        &self.transmit
    }

    /// Queue that the AQM watches.
    #[must_use]
    pub fn watched_queue(&self) -> &Queue {
        match self.watch {
            GatewayQueue::Receive => &self.receive,
            GatewayQueue::Transmit => &self.transmit,
        }
    }

    /// True if the AQM watches the transmit queue and decides at the receive queue, in front of the PEP.
    #[must_use]
    pub fn marks_before_pep(&self) -> bool {
        (self.watch, self.mark) == (GatewayQueue::Transmit, GatewayQueue::Receive)
    }

    /// Mark point: the queue at whose entry the AQM decides.
    #[must_use]
    pub fn mark_point(&self) -> GatewayQueue {
        self.mark
    }

    /// Packets received from the internet since the start of the run.
    #[must_use]
    pub fn arrived_packets(&self) -> u64 {
        self.arrived_packets
    }

    /// Bytes received from the internet since the start of the run.
    #[must_use]
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// Packets in service at the receive queue or being processed by the PEP.
    #[must_use]
    pub fn in_work(&self) -> usize {
        self.processing.len() + usize::from(self.serving.is_some())
    }

    /// True while packets are on their way to the transmit queue: held by the AQM, in the receive queue or in the PEP.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.in_work() > 0 || self.receive.state().held + self.transmit.state().held > 0
    }

    /// Offers a packet to the AQM. Returns true if it passes, which it always does if this is not the mark point.
    fn offer(&mut self, pkt: &mut Packet, now: Instant, which: GatewayQueue) -> bool {
        if self.mark != which {
            return true;
        }
        let queue = match self.watch {
            GatewayQueue::Receive => &mut self.receive,
            GatewayQueue::Transmit => &mut self.transmit,
        };
        queue.offer(pkt, now, &mut Drops { events: &mut self.events, queue: which })
    }

    /// Does what is due at a queue by `now`; packets that the AQM held at the mark point continue from there.
    fn wake_queue(&mut self, which: GatewayQueue, now: Instant) {
        loop {
            let queue = match which {
                GatewayQueue::Receive => &mut self.receive,
                GatewayQueue::Transmit => &mut self.transmit,
            };
            if queue.wake_at().is_none_or(|at| at > now) {
                return;
            }
            // Only the AQM of the watched queue holds packets and drops them at the mark point; a scheduler drops at
            // its own queue.
            let at = if which == self.watch { self.mark } else { which };
            let released = queue.wake(now, &mut Drops { events: &mut self.events, queue: at });
            match (released, self.mark) {
                (Some(pkt), GatewayQueue::Receive) => self.receive(pkt, now),
                (Some(pkt), GatewayQueue::Transmit) => self.enqueue_transmit(pkt, now),
                (None, _) => {}
            }
        }
    }

    fn serve_receive(&mut self, now: Instant) {
        let next =
            self.receive.dequeue(now, &mut Drops { events: &mut self.events, queue: GatewayQueue::Receive });
        let rate = self.receive_rate.unwrap_or_default();
        self.serving = next.map(|pkt| (now + rate.time_to_send(u64::from(pkt.len)), pkt));
    }

    fn serve_transmit(&mut self, now: Instant) {
        let Some(regulator) = &mut self.regulator else { return };
        regulator.tick(now);
        let mut out = Drops { events: &mut self.events, queue: GatewayQueue::Transmit };
        loop {
            match self.transmit.peek().map(|head| head.len) {
                Some(len) if regulator.allows(len, now) => {
                    if let Some(pkt) = self.transmit.dequeue(now, &mut out) {
                        regulator.spend(pkt.len, now);
                        out.events.push_back(Event::Sent(pkt));
                    }
                }
                Some(_) => return regulator.request(now),
                None if regulator.is_busy(now) => {
                    regulator.clear_credit();
                    return regulator.request(now);
                }
                None => {
                    // An unsuccessful dequeue tells the queue that its link is idle.
                    let nothing = self.transmit.dequeue(now, &mut out);
                    debug_assert!(nothing.is_none(), "a scheduler that showed no packet gave one");
                    return regulator.clear_credit();
                }
            }
        }
    }
}

/// Reports the packets that a queue drops.
struct Drops<'a> {
    events: &'a mut VecDeque<Event>,
    queue: GatewayQueue,
}

impl DropHandler for Drops<'_> {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.events.push_back(Event::Dropped(pkt, reason, self.queue));
    }
}
