//! From a scenario's gateway to one that works: the simulator's and the live gateway's are made here.

use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{Aqm, Limit, Marking, Queue, QueueConfig, Scheduler};
use bentpipe_scenario as scenario;
use bentpipe_units::{Duration, Rate};

use crate::{FlowControl, Gateway, PepBuffers, Place, Regulator, Setup, Sharing};

/// A gateway as `spec` describes it, with nothing in it, and its PEP's buffers. `aqm` is what judges; random streams come
/// of `seed` and of the gateway's name.
///
/// # Errors
/// Where two of the scheduler's values do not go together, which the scenario has ruled out.
pub fn build(
    spec: &scenario::Gateway,
    aqm: Box<dyn Aqm>,
    seed: u64,
) -> Result<(Gateway, PepBuffers), String> {
    let mut judge = Some(aqm);
    let mut queue = |place, scheduler: Box<dyn Scheduler>, limit: Limit, rate: Rate, name: String| {
        let watched = place == spec.watch;
        let aqm = judge.take_if(|_| watched).unwrap_or_else(|| Box::new(DropTail));
        let marking = if watched { spec.marking.method.marking } else { Marking::Drop };
        Queue::new(scheduler, aqm, &QueueConfig { marking, limit, capacity: rate, seed, name })
    };
    let receive_rate = spec.receive_queue.rate;
    let receive = queue(
        scenario::Place::Receive,
        Box::<Fifo>::default(),
        spec.receive_queue.limit,
        receive_rate.unwrap_or_default(),
        format!("{} receive", spec.name),
    );
    let t = &spec.transmit_queue;
    let scheduler = (t.scheduler.discipline.build)(&t.scheduler.values);
    let transmit = queue(
        scenario::Place::Transmit,
        scheduler.map_err(|e| format!("{}: {e}", spec.name))?,
        t.limit,
        spec.regulator.rate,
        format!("{} transmit", spec.name),
    );
    let place = |place| match place {
        scenario::Place::Receive => Place::Receive,
        scenario::Place::Transmit => Place::Transmit,
    };
    let gateway = Gateway::new(Setup {
        receive,
        receive_rate,
        transmit,
        watch: place(spec.watch),
        mark: place(spec.mark),
        processing: spec.pep.delay,
        regulator: Regulator::new(spec.regulator.rate, spec.regulator.tick.unwrap_or(Duration::ZERO)),
    });
    let sharing = match spec.pep.buffer_per {
        scenario::BufferPer::User => Sharing::PerUser,
        scenario::BufferPer::Connection => Sharing::PerConnection,
    };
    let values = &spec.marking.values;
    let control = (spec.marking.method.marking == Marking::Window).then(|| FlowControl {
        decr: values.number("decr"),
        incr: values.number("incr"),
        freeze: Duration::from_secs_f64(values.number("freeze")),
    });
    Ok((gateway, PepBuffers::new(spec.pep.buffer, sharing).with_control(control)))
}
