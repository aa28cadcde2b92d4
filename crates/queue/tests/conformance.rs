//! What must hold of every algorithm in the registry.

use bentpipe_queue::registry::{AQMS, Algorithm, Discipline, SCHEDULERS};
use bentpipe_queue::{
    Aqm, Discard, DropReason, Limit, Link, Marking, Packet, Queue, Scheduler, Setup, Unit, Value, Values,
};
use bentpipe_units::{Duration, Instant, Rate, Rng};

const CAPACITY: Rate = Rate::from_bps(20_000_000);

fn link() -> Link {
    Link { capacity: CAPACITY, mean_packet: 1400.0 }
}

fn defaults(algorithm: &Algorithm) -> Box<dyn Aqm> {
    let values = Values::resolve(algorithm.params, &link(), &|_| None).unwrap();
    (algorithm.build)(&values).unwrap()
}

fn scheduler_with_defaults(discipline: &Discipline) -> Box<dyn Scheduler> {
    let values = Values::resolve(discipline.params, &link(), &|_| None).unwrap();
    (discipline.build)(&values).unwrap()
}

/// Every AQM on every scheduler.
fn each(mut test: impl FnMut(&str, Queue)) {
    for algorithm in AQMS {
        for scheduler in SCHEDULERS {
            let setup = Setup {
                marking: Marking::Drop,
                limit: Limit { packets: 400, bytes: u64::MAX },
                capacity: CAPACITY,
                seed: 1,
                name: "conformance".to_owned(),
            };
            let name = format!("{} on {}", algorithm.name, scheduler.name);
            test(&name, Queue::new(scheduler_with_defaults(scheduler), defaults(algorithm), &setup));
        }
    }
}

#[derive(Default)]
struct Lost(Vec<(Packet, DropReason)>);

impl Discard for Lost {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}

fn packet(handle: u32, flow: u32, len: u32) -> Packet {
    Packet::new(len, flow, handle)
}

/// Offers packets at `load` times the link's capacity for `count` packets; gives what became of each.
fn drive(
    queue: &mut Queue,
    start: Instant,
    count: u32,
    load: f64,
    flows: u32,
    len: u32,
) -> (Vec<u32>, Vec<u32>) {
    let (mut sent, mut lost) = (Vec::new(), Lost::default());
    let mut rng = Rng::stream(9, "traffic", 0, "test");
    let transmission = CAPACITY.time_to_send(u64::from(len.max(40)));
    let (mut now, mut link_free) = (start, start);
    for handle in 0..count {
        now += transmission.scaled(rng.exponential(1.0 / load));
        while link_free <= now {
            match queue.leave(link_free, &mut lost) {
                Some(pkt) => {
                    sent.push(pkt.handle);
                    link_free += transmission;
                }
                None => link_free = now + Duration::from_nanos(1),
            }
        }
        while queue.wake_at().is_some_and(|at| at <= now) {
            if let Some(pkt) = queue.wake(now, &mut lost) {
                queue.enter(pkt, now, &mut lost);
            }
        }
        let flow = rng.below(u64::from(flows)) as u32;
        if let Some(pkt) = queue.judge(packet(handle, flow, len), now, &mut lost) {
            queue.enter(pkt, now, &mut lost);
        }
        queue.probe(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
        queue.probe(&mut |name, value| {
            assert!(
                !(name == "p" || name.starts_with("p_")) || (0.0..=1.0).contains(&value),
                "{name} is {value}"
            );
        });
        queue.check().unwrap();
    }
    (sent, lost.0.iter().map(|(pkt, _)| pkt.handle).collect())
}

#[test]
fn packets_are_conserved() {
    each(|name, mut queue| {
        let (mut sent, lost) = drive(&mut queue, Instant::ZERO, 20_000, 1.2, 50, 1400);
        let held = (queue.state().packets + queue.state().held) as usize;
        assert_eq!(sent.len() + lost.len() + held, 20_000, "{name}");
        sent.extend(lost);
        sent.sort_unstable();
        sent.dedup();
        assert_eq!(sent.len(), 20_000 - held, "{name}: a packet left twice");
    });
}

#[test]
fn equal_seeds_give_equal_verdicts() {
    let mut first = Vec::new();
    each(|_, mut queue| first.push(drive(&mut queue, Instant::ZERO, 5_000, 1.5, 50, 1400)));
    let mut again = first.into_iter();
    each(|name, mut queue| {
        let run = drive(&mut queue, Instant::ZERO, 5_000, 1.5, 50, 1400);
        assert_eq!(Some(run), again.next(), "{name}");
    });
}

#[test]
fn a_light_load_loses_nothing() {
    each(|name, mut queue| {
        let (_, lost) = drive(&mut queue, Instant::ZERO, 5_000, 0.3, 10, 1400);
        assert!(lost.is_empty(), "{name} lost {} of 5000", lost.len());
    });
}

#[test]
fn an_idle_hour_upsets_nothing() {
    each(|name, mut queue| {
        drive(&mut queue, Instant::ZERO, 2_000, 2.0, 10, 1400);
        let (drained, later) = (Duration::from_secs(10), Duration::from_secs(3610));
        while queue.leave(Instant::ZERO + drained, &mut Lost::default()).is_some() {}
        let (_, lost) = drive(&mut queue, Instant::ZERO + later, 2_000, 0.3, 10, 1400);
        assert!(lost.is_empty(), "{name} still loses {} of 2000", lost.len());
    });
}

#[test]
fn hundredfold_overload_odd_lengths_and_many_flows_are_survived() {
    for (load, flows, len) in [(100.0, 1, 1400), (1.5, 100_000, 1400), (1.5, 10, 0), (1.5, 10, 65_535)] {
        each(|name, mut queue| {
            let (sent, lost) = drive(&mut queue, Instant::ZERO, 20_000, load, flows, len);
            let held = (queue.state().packets + queue.state().held) as usize;
            assert_eq!(sent.len() + lost.len() + held, 20_000, "{name} at load {load}");
            assert!(!sent.is_empty(), "{name} at load {load} sends nothing");
        });
    }
}

#[test]
fn time_may_stand_still() {
    each(|name, mut queue| {
        let (mut out, mut lost) = (0, Lost::default());
        for handle in 0..5_000 {
            let now = Instant::from_nanos(7);
            if let Some(pkt) = queue.judge(packet(handle, handle % 3, 1400), now, &mut lost) {
                queue.enter(pkt, now, &mut lost);
            }
            if handle % 2 == 0 {
                out += usize::from(queue.leave(now, &mut lost).is_some());
            }
        }
        assert_eq!(
            out + lost.0.len() + (queue.state().packets + queue.state().held) as usize,
            5_000,
            "{name}"
        );
        queue.check().unwrap();
    });
}

#[test]
fn every_parameter_has_a_default_in_its_range_and_a_description() {
    for algorithm in AQMS {
        let values = Values::resolve(algorithm.params, &link(), &|_| None).unwrap();
        for (param, value) in values.iter() {
            let at = format!("{}.{}", algorithm.name, param.name);
            assert!(!param.doc.is_empty() && !param.doc.ends_with('.'), "{at}");
            match value {
                Value::Number(x) => assert!(param.unit != Unit::Flag && param.range.allows(x), "{at} = {x}"),
                Value::Flag(_) => assert!(param.unit == Unit::Flag, "{at}"),
                Value::Name(x) => {
                    assert!(matches!(param.unit, Unit::Name(names) if names.contains(&x)), "{at} = {x}");
                }
            }
        }
    }
}

#[test]
fn every_preset_can_be_built() {
    for algorithm in AQMS {
        for preset in algorithm.presets {
            for (name, _) in preset.values {
                assert!(algorithm.params.iter().any(|p| p.name == *name), "{}: {name}", preset.name);
            }
            let given = |name: &str| preset.values.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
            let values = Values::resolve(algorithm.params, &link(), &given).unwrap();
            assert!((algorithm.build)(&values).is_ok(), "{}", preset.name);
        }
    }
}

#[test]
fn a_value_outside_its_range_is_refused_with_its_name_and_what_is_allowed() {
    for algorithm in AQMS {
        for param in algorithm.params.iter().filter(|p| p.unit != Unit::Flag) {
            for bad in [f64::NAN, param.range.max + param.range.max.abs().max(1.0), -1.0] {
                let given = |name: &str| (name == param.name).then_some(Value::Number(bad));
                let error = Values::resolve(algorithm.params, &link(), &given).unwrap_err();
                assert_eq!(error.name, param.name);
                assert!(error.problem.contains("allowed: "), "{error}");
            }
        }
    }
}
