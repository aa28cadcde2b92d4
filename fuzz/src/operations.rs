//! A sequence of operations on any AQM and scheduler of the registry with any parameters, read from bytes.
//!
//! The first bytes select an AQM, a scheduler, their parameters, a marking method, limits, a link and a start time. Each
//! further byte is an operation: packets of any length, flow and ECN field are offered, enqueued and dequeued, time passes,
//! flows open and close, the capacity changes. After each operation no packet may be missing or duplicated, counters must
//! agree, probed values must be finite, and probabilities must be within 0 and 1. Missing bytes count as zeros.

use std::collections::VecDeque;

use bentpipe_queue::registry::{AQMS, MARKINGS, SCHEDULERS};
use bentpipe_queue::{
    DropHandler, DropReason, Ecn, FlowEvent, FlowId, Limit, Link, Packet, Param, Queue, QueueConfig, Tcp,
    Unit, Value, Values,
};
use bentpipe_units::{Duration, Instant, Rate};

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A value within the range of a parameter; `None` for its default.
    fn value(&mut self, param: &Param) -> Option<Value> {
        let byte = self.byte();
        if byte < 96 {
            return None;
        }
        Some(match param.unit {
            Unit::Flag => Value::Flag(byte.is_multiple_of(2)),
            Unit::Name(names) => Value::Name(names[usize::from(byte) % names.len()]),
            unit => {
                let (min, max) = (param.range.min.max(-1e18), param.range.max.min(1e18));
                let least = if param.range.above { min + (max - min) * 1e-12 } else { min };
                // Linear, or logarithmic above the minimum.
                let share = f64::from(byte - 96) / 159.0;
                let x = if byte.is_multiple_of(2) {
                    least + (max - least) * share
                } else {
                    least + (max - least) * libm::exp2(-40.0 * (1.0 - share))
                };
                let x = if unit == Unit::Count { x.round() } else { x };
                if !param.range.allows(x) {
                    return None;
                }
                Value::Number(x)
            }
        })
    }
}

/// Position of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Offered to the AQM, or held back by it.
    Offered,
    /// Admitted, but not yet in the queue.
    Admitted,
    Queued,
    Gone,
}

#[derive(Default)]
struct Model {
    stages: Vec<Stage>,
    lens: Vec<u32>,
    /// Number of packets at each stage.
    counts: [u32; 4],
    dropped: Vec<(Packet, DropReason)>,
}

impl DropHandler for Model {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.dropped.push((pkt, reason));
    }
}

impl Model {
    fn count(&self, stage: Stage) -> u32 {
        self.counts[stage as usize]
    }

    /// Adds a packet of `len` bytes; returns its handle.
    fn add(&mut self, len: u32) -> u32 {
        self.stages.push(Stage::Offered);
        self.lens.push(len);
        self.counts[Stage::Offered as usize] += 1;
        self.stages.len() as u32 - 1
    }

    fn move_packet(&mut self, pkt: &Packet, from: &[Stage], to: Stage) -> Result<(), String> {
        let stage = self.stages.get_mut(pkt.handle as usize).ok_or(format!("{pkt:?} was never offered"))?;
        if !from.contains(stage) || self.lens[pkt.handle as usize] != pkt.len {
            return Err(format!("{pkt:?} moves to {to:?}, but was {stage:?}"));
        }
        self.counts[*stage as usize] -= 1;
        self.counts[to as usize] += 1;
        *stage = to;
        Ok(())
    }

    /// Removes the packets that an operation dropped.
    fn remove_dropped(&mut self) -> Result<(), String> {
        for (pkt, _) in std::mem::take(&mut self.dropped) {
            self.move_packet(&pkt, &[Stage::Offered, Stage::Queued], Stage::Gone)?;
        }
        Ok(())
    }
}

struct Run<'a> {
    bytes: Bytes<'a>,
    queue: Queue,
    now: Instant,
    admitted: VecDeque<Packet>,
    model: Model,
    signals: bool,
}

/// Runs the operations that the bytes encode.
///
/// # Errors
/// The algorithms, the operation and the rule that it violates.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes(bytes);
    let algorithm = &AQMS[usize::from(bytes.byte()) % AQMS.len()];
    let discipline = &SCHEDULERS[usize::from(bytes.byte()) % SCHEDULERS.len()];
    let capacity = Rate::from_bps(bytes.one_of(&[20_000_000, 1, 64_000, 10_000_000_000]));
    let link = Link { capacity, mean_packet: bytes.one_of(&[1400.0, 40.0, 65_535.0]) };
    let mut values = |params: &'static [Param]| {
        let given: Vec<_> = params.iter().map(|param| (param.name, bytes.value(param))).collect();
        let named = |name: &str| given.iter().find(|(param, _)| *param == name).and_then(|(_, value)| *value);
        Values::resolve(params, &link, &named).map_err(|error| format!("{error}"))
    };
    let defaults = |params| Values::resolve(params, &link, &|_| None).map_err(|error| format!("{error}"));
    let (of_aqm, of_scheduler) = (values(algorithm.params)?, values(discipline.params)?);
    let name = || {
        let list = |values: &Values| {
            values.iter().map(|(param, value)| format!("{} = {value:?}", param.name)).collect::<Vec<_>>()
        };
        format!(
            "{} {:?} on {} {:?}, {link:?}",
            algorithm.name,
            list(&of_aqm),
            discipline.name,
            list(&of_scheduler)
        )
    };
    // Contradictory values are rejected: use the defaults instead.
    let aqm = (algorithm.build)(&of_aqm).or_else(|_| (algorithm.build)(&defaults(algorithm.params).unwrap()));
    let scheduler = (discipline.build)(&of_scheduler)
        .or_else(|_| (discipline.build)(&defaults(discipline.params).unwrap()));
    let setup = QueueConfig {
        marking: MARKINGS[usize::from(bytes.byte()) % MARKINGS.len()].marking,
        limit: Limit {
            packets: bytes.one_of(&[100, 0, 1, 10, 1000, u32::MAX]),
            bytes: bytes.one_of(&[u64::MAX, 0, 1500, 100_000]),
        },
        capacity,
        seed: u64::from(bytes.byte()),
        name: "operations".to_owned(),
    };
    let now = Instant::from_nanos(bytes.one_of(&[0, 0, 1, u64::MAX / 2, u64::MAX - 1_000_000_000]));
    let (aqm, scheduler) =
        (aqm.map_err(|e| format!("{}: {e}", name()))?, scheduler.map_err(|e| e.to_string())?);
    let mut run = Run {
        bytes,
        queue: Queue::new(scheduler, aqm, &setup),
        now,
        admitted: VecDeque::new(),
        model: Model::default(),
        signals: discipline.signals || !matches!(algorithm.name, "droptail"),
    };
    run.all().map_err(|problem| format!("{}, {:?}: {problem}", name(), setup.limit))
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), String> {
        let mut operations = 0;
        while !self.bytes.0.is_empty() && operations < 4096 {
            let operation = self.bytes.byte();
            self.step(operation).and_then(|()| self.check()).map_err(|problem| {
                format!("operation {operations} ({operation}) at {:?}: {problem}", self.now)
            })?;
            operations += 1;
        }
        while self.queue.state().packets > 0 {
            let before = self.queue.state().packets;
            self.dequeue()?;
            if self.queue.state().packets >= before {
                return Err(format!("{before} packets are queued and none is dequeued"));
            }
        }
        self.check()
    }

    fn step(&mut self, operation: u8) -> Result<(), String> {
        match operation % 16 {
            0..=3 => self.offer(),
            // A burst.
            4 => (0..self.bytes.byte()).try_for_each(|_| self.offer()),
            5 => self.enqueue(),
            6 | 7 => self.dequeue(),
            8 => (0..self.bytes.byte()).try_for_each(|_| self.dequeue()),
            unit @ 9..=12 => {
                let n = u64::from(self.bytes.byte());
                self.advance(match unit {
                    9 => Duration::from_nanos(n),
                    10 => Duration::from_micros(10 * n),
                    11 => Duration::from_millis(n),
                    _ => Duration::from_secs(60 * n),
                })
            }
            13 => match self.queue.wake_at() {
                Some(at) => self.advance(at.max(self.now) - self.now),
                None => Ok(()),
            },
            14 => {
                let event = if operation < 128 { FlowEvent::Opened } else { FlowEvent::Closed };
                let flow = self.flow();
                self.queue.flow(FlowId(flow), event, self.now);
                self.model.remove_dropped()
            }
            _ => {
                let rates = [20_000_000, 0, 1, 64_000, 1_000_000_000, 100_000_000_000];
                self.queue.set_capacity(Rate::from_bps(self.bytes.one_of(&rates)));
                Ok(())
            }
        }
    }

    fn flow(&mut self) -> u32 {
        match self.bytes.byte() {
            255 => u32::MAX,
            254 => self.bytes.word(),
            few => u32::from(few % 16),
        }
    }

    fn offer(&mut self) -> Result<(), String> {
        let kind = self.bytes.byte();
        let len = [1400, 40, 1500, 0, 65_535, 1400, 576, 1][usize::from(kind % 8)];
        let tcp = kind & 8 != 0;
        let pkt = Packet {
            ecn: [Ecn::NotEct, Ecn::Ect, Ecn::Ect1, Ecn::Ce][usize::from(kind >> 4 & 3)],
            split: kind & 64 != 0,
            tcp: tcp.then(|| Tcp { window: self.bytes.word(), seq: self.bytes.word(), syn: kind & 128 != 0 }),
            ..Packet::new(len, FlowId(self.flow()), self.model.add(len))
        };
        let mut offered = pkt;
        let passes = self.queue.offer(&mut offered, self.now, &mut self.model);
        if (Packet { ecn: pkt.ecn, marked: false, number: 0, ..offered }) != pkt {
            return Err(format!("offer() changed {pkt:?} to {offered:?}"));
        }
        self.model.remove_dropped()?;
        self.admit(passes.then_some(offered))?;
        // Most are enqueued at once; others stay in the PEP.
        if kind < 200 { self.enqueue() } else { Ok(()) }
    }

    fn admit(&mut self, pkt: Option<Packet>) -> Result<(), String> {
        if let Some(pkt) = pkt {
            self.model.move_packet(&pkt, &[Stage::Offered], Stage::Admitted)?;
            self.admitted.push_back(pkt);
        }
        Ok(())
    }

    fn enqueue(&mut self) -> Result<(), String> {
        let Some(pkt) = self.admitted.pop_front() else { return Ok(()) };
        self.model.move_packet(&pkt, &[Stage::Admitted], Stage::Queued)?;
        self.queue.enqueue(pkt, self.now, &mut self.model);
        self.model.remove_dropped()
    }

    fn dequeue(&mut self) -> Result<(), String> {
        let next = self.queue.peek().copied();
        let waiting = self.queue.state().packets;
        if next.is_some() != (waiting > 0) {
            return Err(format!("{waiting} packets are queued, but peek() returns {next:?}"));
        }
        let sent = self.queue.dequeue(self.now, &mut self.model);
        if !self.signals && sent.map(|pkt| pkt.handle) != next.map(|pkt| pkt.handle) {
            return Err(format!("dequeue() returned {sent:?}, but peek() {next:?}"));
        }
        if let Some(pkt) = sent {
            self.model.move_packet(&pkt, &[Stage::Queued], Stage::Gone)?;
        }
        self.model.remove_dropped()
    }

    /// Advances the time and wakes the queue when it asks for it.
    fn advance(&mut self, span: Duration) -> Result<(), String> {
        let until = self.now + span;
        let (mut last, mut remaining) = (Instant::ZERO, 0);
        // Bounds the work per operation; the host then wakes the queue too late.
        for _ in 0..2000 {
            let Some(at) = self.queue.wake_at().filter(|at| *at <= until) else { break };
            self.now = at.max(self.now);
            // The AQM, the scheduler and each held packet may ask for the same time once.
            if at > last || last == Instant::ZERO {
                (last, remaining) = (at, self.queue.state().held + 2);
            } else if remaining == 0 && at < Instant::from_nanos(u64::MAX) {
                return Err(format!("asks repeatedly to be woken at {at:?}"));
            }
            remaining = remaining.saturating_sub(1);
            let pkt = self.queue.wake(self.now, &mut self.model);
            self.model.remove_dropped()?;
            self.admit(pkt)?;
        }
        self.now = until;
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        let state = self.queue.state();
        let waiting = self.model.count(Stage::Queued);
        if state.packets != waiting || state.held != self.model.count(Stage::Offered) {
            return Err(format!("{waiting} packets are queued, but the state is {state:?}"));
        }
        let mut problem = None;
        self.queue.probe(&mut |_, name, value| {
            let probability = name == "p" || name.starts_with("p_");
            if !value.is_finite() || probability && !(0.0..=1.0).contains(&value) {
                problem = Some(format!("{name} is {value}"));
            }
        });
        problem.map_or(Ok(()), Err)
    }
}
