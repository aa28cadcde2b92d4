//! One direction of a link, without IO.
//!
//! ```text
//! arrival ─▶ loss ─▶ AQM ─▶ queue ─▶ sender ─▶ loss, outage, handover ─▶ delay ─▶
//! ```
//!
//! The host owns the packets and the clock. For each packet it calls
//!
//! 1. [`LinkEngine::loses_on_arrival`];
//! 2. [`LinkEngine::transmit`] if the link [has no queue](LinkEngine::queue); otherwise [`LinkEngine::offer`], then
//!    [`LinkEngine::enqueue`] if the AQM admits the packet, then [`LinkEngine::serve`] if the sender is free;
//! 3. [`LinkEngine::apply_channel`] and [`LinkEngine::delay`] when the packet has been sent.
//!
//! It schedules three timers: when `serve` wants to be called again, when the queue [wants to be
//! woken](LinkEngine::next_wake), and when the [capacity changes](LinkEngine::update_capacity).

use std::borrow::Cow;

use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{Aqm, DropHandler, FlowEvent, FlowId, Limit, Marking, Packet, Queue, QueueConfig};
use bentpipe_scenario::{AqmSpec, Delay, Direction, Distribution, Handover, Per};
use bentpipe_units::{Alarm, Duration, Instant, Rate};

use crate::channel::Channel;
use crate::delay::Propagation;
use crate::{Capacity, DelayModel, Impairments, LossCause, Satellite, Sender, Sent};

/// Names of one direction of a link, from which its random streams derive.
#[derive(Clone, Debug)]
pub struct Names {
    /// The link, the same in both directions.
    pub link: String,
    /// The direction.
    pub direction: String,
}

impl Names {
    /// Names of a direction of `link`; `member` counts the links of a group of hosts.
    #[must_use]
    pub fn new(link: &str, member: Option<u32>, is_forward: bool) -> Self {
        let link = member.map_or_else(|| link.to_owned(), |member| format!("{link}.{member}"));
        let direction = if is_forward { link.clone() } else { format!("{link} reverse") };
        Self { link, direction }
    }
}

/// One direction of a link.
pub struct LinkEngine {
    rate: Option<Rate>,
    /// The last length sent [bytes], and the time that it takes.
    last_sent: (u32, Duration),
    /// True if the channel loses packets before the queue.
    loses_on_arrival: bool,
    channel: Option<Box<Channel>>,
    /// Delay if it is not the same for every packet.
    propagation: Option<Box<Propagation>>,
    /// Delay if it is the same for every packet, the usual case.
    fixed_delay: Option<Duration>,
    egress: Option<Box<Egress>>,
    /// Time at which the link has sent every packet it was given; only without a queue.
    busy_until: Instant,
}

/// A queue, and what drains it.
struct Egress {
    queue: Queue,
    /// `None` if the link's rate drains the queue.
    sender: Option<Sender>,
    /// A copy of the sender's capacity that announces its changes, and the last one announced.
    capacity: Option<Capacity>,
    announced: Option<Rate>,
    is_busy: bool,
    /// The queue's next wake-up, as the host has scheduled it.
    wake: Alarm,
    /// A packet that has been sent in part, and the rest of it [bytes].
    partial: Option<(Packet, u32)>,
}

/// Result of [`LinkEngine::serve`].
#[derive(Debug)]
pub enum Service {
    /// The queue is empty.
    Idle,
    /// The next packet may go at this time: call `serve` again then.
    Blocked(Instant),
    /// A packet is being sent.
    Sending {
        /// The packet.
        pkt: Packet,
        /// True if it has just left the queue; false if the rest of it is being sent.
        dequeued: bool,
        /// Time at which to call `serve` again.
        next: Instant,
        /// Progress of the packet.
        progress: Progress,
    },
}

/// Progress of a packet at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Part of it has been sent.
    Partial,
    /// All of it has been sent at this time, delays of the link layer included.
    Sent(Instant),
    /// The link layer has given it up ([`LossCause::LinkLayer`]).
    Lost,
}

/// A packet that the queue's AQM held back, and releases.
#[derive(Debug)]
pub enum Release {
    /// No more packets are due.
    Done,
    /// The AQM dropped a packet, or changed its state.
    None,
    /// The packet may enter the queue.
    Packet(Packet),
}

impl LinkEngine {
    /// One direction of a link as the scenario describes it; `make_aqm` makes the AQM of its queue.
    ///
    /// # Errors
    /// Parameters that the AQM or the scheduler refuses.
    pub fn new(
        direction: &Direction,
        handover: Option<Handover>,
        names: &Names,
        seed: u64,
        impairments: Option<Impairments>,
        make_aqm: impl FnOnce(&AqmSpec) -> Result<Box<dyn Aqm>, String>,
    ) -> Result<Self, String> {
        let name = &names.direction;
        let satellite = handover.map(|handover| Satellite::new(handover, seed, &names.link));
        let sender = Sender::new(direction, satellite.as_ref(), seed, names);
        let queue = queue(direction, sender.is_some(), seed, name, make_aqm)?;
        let egress = queue.map(|queue| {
            let capacity = sender.as_ref().and_then(Sender::variable_capacity);
            Box::new(Egress {
                queue,
                sender,
                capacity,
                announced: None,
                is_busy: false,
                wake: Alarm::default(),
                partial: None,
            })
        });
        let channel = Channel::new(&direction.loss, satellite, impairments, seed, name);
        let propagation = Propagation::new(&direction.delay, seed, name);
        let fixed_delay = if let DelayModel::Fixed(delay) = propagation.model { Some(delay) } else { None };
        Ok(Self {
            rate: direction.rate,
            last_sent: (0, Duration::ZERO),
            loses_on_arrival: channel.as_ref().is_some_and(Channel::loses_on_arrival),
            channel: channel.map(Box::new),
            propagation: fixed_delay.is_none().then(|| Box::new(propagation)),
            fixed_delay,
            egress,
            busy_until: Instant::ZERO,
        })
    }

    // ----- arrival -------------------------------------------------------------------------------------------

    /// Decides whether the channel loses a packet before it reaches the queue.
    #[inline]
    pub fn loses_on_arrival(&mut self, len: u32, has_payload: impl FnOnce() -> bool, now: Instant) -> bool {
        self.loses_on_arrival
            && self.channel.as_mut().is_some_and(|channel| channel.loses(len, has_payload(), now))
    }

    /// The queue; `None` if packets are sent one after the other, however many wait.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> Option<&Queue> {
        self.egress.as_ref().map(|egress| &egress.queue)
    }

    /// Time that the link needs for what waits in front of it, at its current capacity.
    #[must_use]
    pub fn backlog(&self, now: Instant) -> Duration {
        match self.queue() {
            Some(queue) => queue.state().capacity.time_to_send(queue.state().bytes),
            None => self.busy_until.max(now) - now,
        }
    }

    /// Sends a packet over a link without a queue; returns the time at which its last bit leaves.
    #[inline]
    pub fn transmit(&mut self, len: u32, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        self.busy_until = self.busy_until.max(now) + self.time_to_send(len, rate);
        self.busy_until
    }

    /// Time to send `len` bytes at the link's rate. Most packets are as long as the one before, which saves a division.
    #[inline]
    fn time_to_send(&mut self, len: u32, rate: Rate) -> Duration {
        if self.last_sent.0 != len {
            self.last_sent = (len, rate.time_to_send(u64::from(len)));
        }
        self.last_sent.1
    }

    /// Offers a packet to the queue's AQM. Returns true if the packet may enter now; otherwise it was dropped, and `out`
    /// has it, or is held back for [`LinkEngine::release`].
    #[inline]
    pub fn offer(&mut self, pkt: &mut Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        self.egress.as_mut().is_none_or(|egress| egress.queue.offer(pkt, now, out))
    }

    /// Puts a packet in the queue. Returns true if the sender is free, so that the host calls [`LinkEngine::serve`].
    #[inline]
    pub fn enqueue(&mut self, pkt: Packet, now: Instant, out: &mut dyn DropHandler) -> bool {
        let Some(egress) = &mut self.egress else { return false };
        egress.queue.enqueue(pkt, now, out);
        !egress.is_busy
    }

    // ----- departure -----------------------------------------------------------------------------------------

    /// Sends the next packet, or the rest of one. `terminal` is the host of a packet, for a capacity that differs from
    /// host to host.
    #[inline(always)]
    pub fn serve(
        &mut self,
        now: Instant,
        out: &mut dyn DropHandler,
        terminal: impl FnOnce(&Packet) -> Option<u32>,
    ) -> Service {
        let Some(egress) = &mut self.egress else { return Service::Idle };
        if egress.sender.is_some() {
            return egress.serve_by_sender(now, out, terminal);
        }
        let next = egress.queue.dequeue(now, out);
        egress.is_busy = next.is_some();
        let Some(pkt) = next else { return Service::Idle };
        let sent = self.rate.map_or(now, |rate| now + self.time_to_send(pkt.len, rate));
        Service::Sending { pkt, dequeued: true, next: sent, progress: Progress::Sent(sent) }
    }

    // ----- timers --------------------------------------------------------------------------------------------

    /// Time at which the queue wants to be woken; `None` if the host has already scheduled it for that time or earlier.
    #[inline]
    pub fn next_wake(&mut self) -> Option<Instant> {
        let egress = self.egress.as_mut()?;
        egress.queue.wake_at().filter(|at| egress.wake.set(*at))
    }

    /// Begins a wake-up that was scheduled for `now`; false if it is out of date.
    pub fn wake(&mut self, now: Instant) -> bool {
        self.egress.as_mut().is_some_and(|egress| egress.wake.end(now))
    }

    /// Lets the AQM act on one packet that it held back until `now`. The host calls it until it is done.
    pub fn release(&mut self, now: Instant, out: &mut dyn DropHandler) -> Release {
        match &mut self.egress {
            Some(egress) if egress.queue.wake_at().is_some_and(|at| at <= now) => {
                egress.queue.wake(now, out).map_or(Release::None, Release::Packet)
            }
            _ => Release::Done,
        }
    }

    /// Present rate; during an outage the last one before it; the mean if hosts have different ones; `None` if transmission takes no
    /// time.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        let Some(queue) = self.queue() else { return self.rate };
        Some(queue.state().capacity).filter(|capacity| capacity.as_bps() > 0)
    }

    /// As [`LinkEngine::rate`], but zero during an outage.
    #[must_use]
    pub fn present_rate(&self) -> Option<Rate> {
        self.egress.as_ref().and_then(|egress| egress.announced).or_else(|| self.rate())
    }

    /// Time of the first [`LinkEngine::update_capacity`]; `None` if the capacity is constant.
    #[must_use]
    pub fn first_update(&self) -> Option<Instant> {
        self.egress.as_ref()?.capacity.as_ref().map(Capacity::first_update)
    }

    /// A copy of its capacity that can be read ahead; `None` if it is constant.
    #[must_use]
    pub fn variable_capacity(&self) -> Option<Capacity> {
        self.egress.as_ref()?.capacity.clone()
    }

    /// Tells the queue of a new capacity; returns it, and the time of the next update.
    pub fn update_capacity(&mut self, now: Instant) -> Option<(Rate, Option<Instant>)> {
        let egress = self.egress.as_mut()?;
        let (rate, next) = egress.capacity.as_mut()?.update(now);
        egress.announced = Some(rate);
        if rate.as_bps() > 0 {
            egress.queue.set_capacity(rate);
        }
        Some((rate, next))
    }

    /// Sets the rate of a link whose rate is constant, from the next packet on; false for any other link.
    pub fn set_rate(&mut self, rate: Rate) -> bool {
        let has_sender = self.egress.as_ref().is_some_and(|egress| egress.sender.is_some());
        if self.rate.is_none() || has_sender || rate.as_bps() == 0 {
            return false;
        }
        self.rate = Some(rate);
        self.last_sent = (0, Duration::ZERO);
        if let Some(egress) = &mut self.egress {
            egress.queue.set_capacity(rate);
        }
        true
    }

    /// Sets the delay of a link that delays all packets alike, from the next packet on; false for any other link.
    pub fn set_delay(&mut self, delay: Duration) -> bool {
        if self.fixed_delay.is_none() {
            return false;
        }
        self.fixed_delay = Some(delay);
        true
    }

    /// Replaces the AQM of the queue from `now` on; false without a queue.
    pub fn set_aqm(&mut self, aqm: Box<dyn Aqm>, now: Instant) -> bool {
        let Some(egress) = &mut self.egress else { return false };
        egress.queue.set_aqm(aqm, now);
        true
    }

    /// True if no packet overtakes another on the way.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        !matches!(self.delay_model(), Some(DelayModel::Drawn { ordered: false }))
    }

    /// Delay of all packets, if it is the same.
    #[must_use]
    pub fn fixed_delay(&self) -> Option<Duration> {
        self.fixed_delay
    }

    /// Announces to the queue that a flow begins or ends.
    pub fn announce(&mut self, flow: FlowId, event: FlowEvent, now: Instant) {
        if let Some(egress) = &mut self.egress {
            egress.queue.flow(flow, event, now);
        }
    }

    // ----- on the way ----------------------------------------------------------------------------------------

    /// True if [`LinkEngine::apply_channel`] may have an effect.
    #[inline]
    #[must_use]
    pub fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// True if the link may lose packets: in the channel, or at the limit of tries of its link layer.
    #[must_use]
    pub fn may_lose(&self) -> bool {
        let sender = self.egress.as_ref().and_then(|egress| egress.sender.as_ref());
        self.has_channel() || sender.is_some_and(Sender::may_give_up)
    }

    /// Applies the channel to a packet sent at `sent`; returns `sent` plus the delay that the satellite adds.
    ///
    /// # Errors
    /// The reason for which the packet is lost.
    #[inline]
    pub fn apply_channel(
        &mut self,
        len: u32,
        has_payload: bool,
        sent: Instant,
    ) -> Result<Instant, LossCause> {
        self.channel.as_mut().map_or(Ok(sent), |channel| channel.apply(len, has_payload, sent))
    }

    /// Draws the propagation delay of a packet, and whether it keeps its order; `own` is the delay of its connection,
    /// where each connection has its own.
    #[inline(always)]
    pub fn delay(&mut self, own: impl FnOnce() -> Duration) -> (Duration, bool) {
        match (self.fixed_delay, &mut self.propagation) {
            (Some(delay), _) => (delay, true),
            (None, Some(propagation)) => match propagation.model {
                DelayModel::Drawn { ordered } => (propagation.draw(), ordered),
                _ => (own(), true),
            },
            (None, None) => (Duration::ZERO, true),
        }
    }

    /// Delay model, unless the delay is the same for every packet.
    fn delay_model(&self) -> Option<&DelayModel> {
        self.propagation.as_ref().map(|propagation| &propagation.model)
    }

    /// Draws whether the impairments hold a packet back, and for how long.
    pub fn held_back(&mut self) -> Option<Duration> {
        self.channel.as_mut().and_then(|channel| channel.held_back())
    }

    /// Draws whether the impairments duplicate a packet.
    pub fn duplicates(&mut self) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.duplicates())
    }

    // ----- properties ----------------------------------------------------------------------------------------

    /// Distribution of the propagation delay.
    #[must_use]
    pub fn delay_distribution(&self) -> Cow<'_, Delay> {
        match &self.propagation {
            Some(propagation) => Cow::Borrowed(&propagation.distribution),
            None => Cow::Owned(Delay {
                fixed: self.fixed_delay.unwrap_or_default(),
                jitter: Distribution::Fixed(Duration::ZERO),
                per: Per::Packet { ordered: true },
            }),
        }
    }

    /// True if each connection has its own delay.
    #[must_use]
    pub fn has_own_delays(&self) -> bool {
        matches!(self.delay_model(), Some(DelayModel::PerConnection))
    }

    /// True if packets pass it without any effect.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.rate.is_none()
            && self.egress.is_none()
            && self.channel.is_none()
            && self.delay_distribution().is_none()
            && !self.has_own_delays()
    }

    /// True if it sends at a constant rate, loses nothing, and delays all packets alike: when a packet has been sent, its
    /// arrival is known, and no later packet overtakes it.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.rate.is_some() && self.is_regular()
    }

    /// True if it is [steady](Self::is_steady), or takes no time to send.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        let has_sender = self.egress.as_ref().is_some_and(|egress| egress.sender.is_some());
        !has_sender && self.channel.is_none() && self.fixed_delay.is_some()
    }

    /// True if it has no queue, loses nothing, draws no delays, and is at least as fast as a link `before` it.
    #[must_use]
    pub fn passes_on(&self, before: &Self) -> bool {
        self.egress.is_none()
            && self.channel.is_none()
            && !matches!(self.delay_model(), Some(DelayModel::Drawn { .. }))
            && self.rate.is_none_or(|rate| before.rate.is_some_and(|before| rate >= before))
    }

    /// Packets in the queue, held back by its AQM, or sent in part.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.egress.as_ref().map_or(0, |egress| {
            let state = egress.queue.state();
            u64::from(state.packets) + u64::from(state.held) + u64::from(egress.partial.is_some())
        })
    }
}

impl Egress {
    /// [`LinkEngine::serve`] where the link is more than a constant rate.
    #[inline(never)]
    fn serve_by_sender(
        &mut self,
        now: Instant,
        out: &mut dyn DropHandler,
        terminal: impl FnOnce(&Packet) -> Option<u32>,
    ) -> Service {
        let Some(sender) = &mut self.sender else { return Service::Idle };
        self.is_busy = true;
        if self.partial.is_some() || self.queue.peek().is_some() {
            let backlog = self.queue.state().bytes + self.partial.map_or(0, |(_, rest)| u64::from(rest));
            let ready = sender.ready(now, backlog);
            if ready > now {
                return Service::Blocked(ready);
            }
        }
        let dequeued = self.partial.is_none();
        let next = self.partial.take().or_else(|| self.queue.dequeue(now, out).map(|pkt| (pkt, pkt.len)));
        let Some((pkt, rest)) = next else {
            sender.on_idle();
            self.is_busy = false;
            return Service::Idle;
        };
        let (next, progress) = match sender.send(rest, terminal(&pkt), now) {
            Sent::Part { left, again } => {
                self.partial = Some((pkt, left));
                (again, Progress::Partial)
            }
            Sent::Whole { at, lost: true, .. } => (at, Progress::Lost),
            Sent::Whole { at, delay, lost: false } => (at, Progress::Sent(at + delay)),
        };
        Service::Sending { pkt, dequeued, next, progress }
    }
}

/// The queue of one direction; `None` if it needs none.
fn queue(
    direction: &Direction,
    has_sender: bool,
    seed: u64,
    name: &str,
    make_aqm: impl FnOnce(&AqmSpec) -> Result<Box<dyn Aqm>, String>,
) -> Result<Option<Queue>, String> {
    let mut setup = QueueConfig {
        marking: Marking::Drop,
        limit: Limit::NONE,
        capacity: direction.mean_rate().unwrap_or_default(),
        seed,
        name: name.to_owned(),
    };
    let Some(spec) = &direction.queue else {
        return Ok(has_sender.then(|| Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup)));
    };
    (setup.marking, setup.limit) = (spec.marking, spec.limit);
    let aqm = make_aqm(&spec.aqm).map_err(|e| format!("{name}: {e}"))?;
    let scheduler =
        (spec.scheduler.discipline.build)(&spec.scheduler.values).map_err(|e| format!("{name}: {e}"))?;
    Ok(Some(Queue::new(scheduler, aqm, &setup)))
}
