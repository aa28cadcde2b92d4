//! Two endpoints connected by a path, on a virtual clock, and hosts that check their events.
//!
//! The path records which bytes it delivered, so readable and acknowledged bytes are compared with what was
//! transmitted, not with the endpoint's own counters.

use std::collections::BTreeMap;

use bentpipe_transport::pep_link::{Config, Data, Endpoint, Event, Packet, StreamId};
use bentpipe_units::{Duration, Instant, Rate};

/// Treatment of a packet by the path.
#[derive(Clone, Copy, Debug)]
pub enum Treatment {
    Arrive(Duration),
    Twice(Duration, Duration),
    Lost,
}

/// Decides about a packet sent by an end at a time.
type Treat = dyn FnMut(Instant, usize, &Packet) -> Treatment;

/// A host's view of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamView {
    pub opened: bool,
    pub written: u64,
    pub readable: u64,
    pub unconsumed: u64,
    pub acked: u64,
    pub finished: bool,
    pub reset: bool,
    pub closed: u32,
}

/// Bytes of the latest stream with an id that reached an end.
#[derive(Default)]
struct Delivered {
    generation: u32,
    bits: Vec<bool>,
    /// Bytes received, in total and in order.
    total: u64,
    in_order: u64,
}

impl Delivered {
    fn add(&mut self, data: &Data) {
        if data.generation > self.generation {
            *self = Self { generation: data.generation, ..Self::default() };
        } else if data.generation < self.generation {
            return;
        }
        let (start, end) = (data.offset as usize, data.offset as usize + data.len as usize);
        self.bits.resize(self.bits.len().max(end), false);
        for bit in &mut self.bits[start..end] {
            self.total += u64::from(!*bit);
            *bit = true;
        }
        self.in_order += self.bits[self.in_order as usize..].iter().take_while(|&&bit| bit).count() as u64;
    }
}

#[derive(Default)]
pub struct Side {
    pub seen: BTreeMap<StreamId, StreamView>,
    arrived: BTreeMap<StreamId, Delivered>,
    /// Time when the regulator's queue in front of this end's link becomes empty.
    clear_at: Instant,
    wake_at: Option<Instant>,
    last_arrival: Instant,
}

pub struct Net {
    pub now: Instant,
    pub ends: [Endpoint; 2],
    pub sides: [Side; 2],
    pub rate: Rate,
    pub max_queue: Duration,
    /// Preserve the order of packets whatever the delays.
    pub in_order: bool,
    /// The hosts consume data as it arrives.
    pub consume: bool,
    treat: Box<Treat>,
    /// All data packets sent by each end.
    pub log: [Vec<Data>; 2],
    in_transit: BTreeMap<(Instant, u64), (usize, Packet)>,
    order: u64,
    cfg: Config,
}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

impl Net {
    pub fn new(cfg: Config, treat: impl FnMut(Instant, usize, &Packet) -> Treatment + 'static) -> Self {
        Self {
            now: Instant::ZERO,
            ends: [Endpoint::new(cfg.clone()), Endpoint::new(cfg.clone())],
            sides: [Side::default(), Side::default()],
            rate: Rate::from_bps(20_000_000),
            max_queue: ms(500),
            in_order: true,
            consume: true,
            treat: Box::new(treat),
            log: [Vec::new(), Vec::new()],
            in_transit: BTreeMap::new(),
            order: 0,
            cfg,
        }
    }

    pub fn open(&mut self, end: usize, s: StreamId, bytes: u64, finish: bool) {
        self.ends[end].open(s);
        self.append(end, s, bytes);
        if finish {
            self.ends[end].finish(s);
        }
        self.pump(end);
    }

    /// Writes without polling the endpoint.
    pub fn append(&mut self, end: usize, s: StreamId, bytes: u64) {
        self.ends[end].write(s, bytes);
        self.sides[end].seen.entry(s).or_default().written += bytes;
    }

    pub fn write(&mut self, end: usize, s: StreamId, bytes: u64) {
        self.append(end, s, bytes);
        self.pump(end);
    }

    pub fn finish(&mut self, end: usize, s: StreamId) {
        self.ends[end].finish(s);
        self.pump(end);
    }

    pub fn reset(&mut self, end: usize, s: StreamId) {
        self.ends[end].reset(s);
        self.pump(end);
    }

    pub fn consume(&mut self, end: usize, s: StreamId, bytes: u64) {
        self.sides[end].seen.get_mut(&s).unwrap().unconsumed -= bytes;
        self.ends[end].consume(s, bytes);
        self.pump(end);
    }

    pub fn seen(&self, end: usize, s: StreamId) -> &StreamView {
        &self.sides[end].seen[&s]
    }

    /// Forgets a stream, so that its id can be reused.
    pub fn forget(&mut self, s: StreamId) {
        for side in &mut self.sides {
            side.seen.remove(&s);
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let in_transit = self.in_transit.keys().next().map(|key| key.0);
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout);
        let wakes = self.sides.iter().filter_map(|side| side.wake_at);
        in_transit.into_iter().chain(timers).chain(wakes).min()
    }

    /// Runs until the given time.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(next) = self.next_time().filter(|&next| next <= until) {
            self.step(next);
        }
        self.now = until;
    }

    /// Runs until nothing is left to do. Panics if that takes too long.
    pub fn run_out(&mut self) {
        let mut steps = 0;
        while let Some(next) = self.next_time() {
            self.step(next);
            steps += 1;
            assert!(steps < 2_000_000, "not idle at {:?}", self.now);
        }
    }

    fn step(&mut self, next: Instant) {
        assert!(next >= self.now, "a timer in the past: {next:?} at {:?}", self.now);
        assert!(
            next - self.now <= Duration::from_secs(61),
            "a timer too far ahead: {next:?} at {:?}",
            self.now
        );
        self.now = next;
        while let Some(entry) = self.in_transit.first_entry().filter(|entry| entry.key().0 <= next) {
            let (to, packet) = entry.remove();
            self.deliver(to, &packet);
        }
        for end in 0..2 {
            if self.sides[end].wake_at.is_some_and(|at| at <= next) {
                self.sides[end].wake_at = None;
            }
            if self.ends[end].poll_timeout().is_some_and(|at| at <= next) {
                self.ends[end].handle_timeout(next);
                let timer = self.ends[end].poll_timeout();
                assert!(timer.is_none_or(|at| at > next), "the timer stays at {timer:?}");
            }
            self.pump(end);
        }
    }

    fn deliver(&mut self, to: usize, packet: &Packet) {
        if let Packet::Data(data) = packet {
            self.sides[to].arrived.entry(data.stream).or_default().add(data);
        }
        self.ends[to].on_packet(self.now, packet);
        self.pump(to);
    }

    fn take_events(&mut self, end: usize) {
        while let Some(event) = self.ends[end].poll_event() {
            let stream = match event {
                Event::Opened { stream }
                | Event::Readable { stream, .. }
                | Event::Acked { stream, .. }
                | Event::Finished { stream }
                | Event::Reset { stream }
                | Event::Closed { stream } => stream,
            };
            let far = self.sides[1 - end].arrived.get(&stream).map_or(0, |it| it.total);
            let side = &mut self.sides[end];
            let seen = side.seen.entry(stream).or_default();
            assert_eq!(seen.closed, 0, "{event:?} after Closed");
            match event {
                Event::Opened { .. } => {
                    assert!(!seen.opened && *seen == StreamView::default(), "opened late: {seen:?}");
                    seen.opened = true;
                }
                Event::Readable { bytes, .. } => {
                    assert!(bytes > 0 && !seen.finished && !seen.reset);
                    seen.readable += bytes;
                    let in_order = side.arrived.get(&stream).map_or(0, |it| it.in_order);
                    assert_eq!(seen.readable, in_order, "stream {stream}");
                    if self.consume {
                        self.ends[end].consume(stream, bytes);
                    } else {
                        seen.unconsumed += bytes;
                    }
                }
                Event::Acked { bytes, .. } => {
                    assert!(bytes > 0);
                    seen.acked += bytes;
                    assert!(seen.acked <= far, "{} acknowledged, {far} arrived", seen.acked);
                }
                Event::Finished { .. } => {
                    assert!(!seen.finished);
                    seen.finished = true;
                }
                Event::Reset { .. } => seen.reset = true,
                Event::Closed { .. } => seen.closed += 1,
            }
        }
    }

    fn pump(&mut self, end: usize) {
        self.take_events(end);
        loop {
            let backlog = self.sides[end].clear_at - self.now;
            if backlog >= self.max_queue {
                self.sides[end].wake_at = Some(self.now + (backlog.saturating_sub(self.max_queue)) + ms(1));
                break;
            }
            let Some(packet) = self.ends[end].poll_transmit(self.now) else { break };
            let stats = self.ends[end].stats();
            assert!(stats.in_flight <= self.cfg.window, "{} in flight", stats.in_flight);
            if let Packet::Data(data) = packet {
                self.log[end].push(data);
            }
            let wire = u64::from(packet.wire_len(&self.cfg));
            let leaves = self.sides[end].clear_at.max(self.now) + self.rate.time_to_send(wire);
            self.sides[end].clear_at = leaves;
            match (self.treat)(self.now, end, &packet) {
                Treatment::Arrive(delay) => self.transmit(end, leaves + delay, packet),
                Treatment::Twice(first, second) => {
                    self.transmit(end, leaves + first, packet);
                    self.transmit(end, leaves + second, packet);
                }
                Treatment::Lost => {}
            }
        }
    }

    fn transmit(&mut self, from: usize, arrival: Instant, packet: Packet) {
        let last = self.sides[from].last_arrival;
        let arrival = if self.in_order { arrival.max(last) } else { arrival };
        self.sides[from].last_arrival = arrival;
        self.in_transit.insert((arrival, self.order), (1 - from, packet));
        self.order += 1;
    }
}
