//! A sequence of operations over any algorithms and parameters of the registry, read from bytes.
//!
//! The first bytes choose an AQM, a scheduler, their parameters, a marking method, limits, a link and a time to begin
//! at; each that follows is an operation: packets of all lengths, flows and ECN fields are judged, wait, enter and
//! leave, time passes or stands still, flows open and close, the capacity changes. After each operation packets must be
//! neither lost nor doubled, counters must agree, and what is probed must be finite and, where it is a probability,
//! within 0 and 1. Where bytes end, zeros follow.

use std::collections::VecDeque;

use bentpipe_queue::registry::{AQMS, MARKINGS, SCHEDULERS};
use bentpipe_queue::{
    DropHandler, DropReason, Ecn, FlowEvent, Limit, Link, Packet, Param, Queue, QueueConfig, Tcp, Unit,
    Value, Values,
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

    /// A value for a parameter: none, for its default, or one within its range.
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
                // Evenly, or evenly in the exponent up from the least.
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

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the mark point, or held back there.
    Judged,
    /// Past the mark point, not yet in the queue.
    Between,
    Waiting,
    Gone,
}

#[derive(Default)]
struct Model {
    places: Vec<Place>,
    lens: Vec<u32>,
    /// Packets at each place.
    counts: [u32; 4],
    lost: Vec<(Packet, DropReason)>,
}

impl DropHandler for Model {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.lost.push((pkt, reason));
    }
}

impl Model {
    fn count(&self, place: Place) -> u32 {
        self.counts[place as usize]
    }

    /// A packet of so many bytes comes; gives its handle.
    fn come(&mut self, len: u32) -> u32 {
        self.places.push(Place::Judged);
        self.lens.push(len);
        self.counts[Place::Judged as usize] += 1;
        self.places.len() as u32 - 1
    }

    fn go(&mut self, pkt: &Packet, from: &[Place], to: Place) -> Result<(), String> {
        let place = self.places.get_mut(pkt.handle as usize).ok_or(format!("{pkt:?} was never offered"))?;
        if !from.contains(place) || self.lens[pkt.handle as usize] != pkt.len {
            return Err(format!("{pkt:?} goes to {to:?}, but was {place:?}"));
        }
        self.counts[*place as usize] -= 1;
        self.counts[to as usize] += 1;
        *place = to;
        Ok(())
    }

    /// Takes note of the packets that an operation discarded.
    fn settle(&mut self) -> Result<(), String> {
        for (pkt, _) in std::mem::take(&mut self.lost) {
            self.go(&pkt, &[Place::Judged, Place::Waiting], Place::Gone)?;
        }
        Ok(())
    }
}

struct Run<'a> {
    bytes: Bytes<'a>,
    queue: Queue,
    now: Instant,
    between: VecDeque<Packet>,
    model: Model,
    signals: bool,
}

/// Runs the operations that the bytes stand for.
///
/// # Errors
/// Says which algorithms broke which rule.
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
    // Values that do not go together are refused: the defaults then.
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
        between: VecDeque::new(),
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
            self.leave()?;
            if self.queue.state().packets >= before {
                return Err(format!("{before} packets wait and none leaves"));
            }
        }
        self.check()
    }

    fn step(&mut self, operation: u8) -> Result<(), String> {
        match operation % 16 {
            0..=3 => self.offer(),
            // A burst, all alike.
            4 => (0..self.bytes.byte()).try_for_each(|_| self.offer()),
            5 => self.enter(),
            6 | 7 => self.leave(),
            8 => (0..self.bytes.byte()).try_for_each(|_| self.leave()),
            unit @ 9..=12 => {
                let n = u64::from(self.bytes.byte());
                self.pass(match unit {
                    9 => Duration::from_nanos(n),
                    10 => Duration::from_micros(10 * n),
                    11 => Duration::from_millis(n),
                    _ => Duration::from_secs(60 * n),
                })
            }
            13 => match self.queue.wake_at() {
                Some(at) => self.pass(at.max(self.now) - self.now),
                None => Ok(()),
            },
            14 => {
                let event = if operation < 128 { FlowEvent::Opened } else { FlowEvent::Closed };
                let flow = self.flow();
                self.queue.flow(flow, event, self.now);
                self.model.settle()
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
            ..Packet::new(len, self.flow(), self.model.come(len))
        };
        let mut offered = pkt;
        let passes = self.queue.offer(&mut offered, self.now, &mut self.model);
        if (Packet { ecn: pkt.ecn, marked: false, number: 0, ..offered }) != pkt {
            return Err(format!("{pkt:?} came back as {offered:?}"));
        }
        self.model.settle()?;
        self.passed(passes.then_some(offered))?;
        // Most enter at once; others wait for the PEP.
        if kind < 200 { self.enter() } else { Ok(()) }
    }

    fn passed(&mut self, pkt: Option<Packet>) -> Result<(), String> {
        if let Some(pkt) = pkt {
            self.model.go(&pkt, &[Place::Judged], Place::Between)?;
            self.between.push_back(pkt);
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), String> {
        let Some(pkt) = self.between.pop_front() else { return Ok(()) };
        self.model.go(&pkt, &[Place::Between], Place::Waiting)?;
        self.queue.enqueue(pkt, self.now, &mut self.model);
        self.model.settle()
    }

    fn leave(&mut self) -> Result<(), String> {
        let next = self.queue.peek().copied();
        let waiting = self.queue.state().packets;
        if next.is_some() != (waiting > 0) {
            return Err(format!("{waiting} packets wait, but next is {next:?}"));
        }
        let sent = self.queue.dequeue(self.now, &mut self.model);
        if !self.signals && sent.map(|pkt| pkt.handle) != next.map(|pkt| pkt.handle) {
            return Err(format!("{sent:?} left, but next was {next:?}"));
        }
        if let Some(pkt) = sent {
            self.model.go(&pkt, &[Place::Waiting], Place::Gone)?;
        }
        self.model.settle()
    }

    /// Time passes, and the algorithm wakes when it has asked for it.
    fn pass(&mut self, span: Duration) -> Result<(), String> {
        let until = self.now + span;
        let (mut last, mut left) = (Instant::ZERO, 0);
        // A host that was away for long comes too late for the rest.
        for _ in 0..2000 {
            let Some(at) = self.queue.wake_at().filter(|at| *at <= until) else { break };
            self.now = at.max(self.now);
            // The Aqm, the scheduler and every packet held back may ask for the same time, each once.
            if at > last || last == Instant::ZERO {
                (last, left) = (at, self.queue.state().held + 2);
            } else if left == 0 && at < Instant::from_nanos(u64::MAX) {
                return Err(format!("asks again and again to be woken at {at:?}"));
            }
            left = left.saturating_sub(1);
            let pkt = self.queue.wake(self.now, &mut self.model);
            self.model.settle()?;
            self.passed(pkt)?;
        }
        self.now = until;
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        let state = self.queue.state();
        let waiting = self.model.count(Place::Waiting);
        if state.packets != waiting || state.held != self.model.count(Place::Judged) {
            return Err(format!("{waiting} packets wait, but the queue says {state:?}"));
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
