//! The configuration of a gateway, and the gateway that it builds.

use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{Aqm, Limit, Marking, Queue, QueueConfig, Scheduler};
use bentpipe_units::{Duration, Rate};

use crate::{Gateway, GatewayQueue, Regulator, Setup};

/// What drains a transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A regulator of its own.
    Regulator,
    /// A [`Carrier`](crate::Carrier) that it shares.
    Carrier,
}

/// The configuration of a gateway.
pub struct Config {
    /// Name of the gateway. The random streams of its queues derive from it.
    pub name: String,
    /// The queue that the AQM watches.
    pub watch: GatewayQueue,
    /// The queue at whose entry the AQM marks.
    pub mark: GatewayQueue,
    /// Effect of a mark.
    pub marking: Marking,
    /// Capacity of the receive queue.
    pub receive_limit: Limit,
    /// Service rate of the receive queue; `None` if packets pass it at once.
    pub receive_rate: Option<Rate>,
    /// Scheduler of the transmit queue.
    pub scheduler: Box<dyn Scheduler>,
    /// Capacity of the transmit queue.
    pub transmit_limit: Limit,
    /// Rate that drains the transmit queue.
    pub rate: Rate,
    /// What drains it.
    pub pace: Pace,
    /// Time between two ticks of the regulator; `None` if packets leave one by one.
    pub tick: Option<Duration>,
    /// Processing time of the PEP.
    pub processing: Duration,
}

impl Config {
    /// Builds the gateway, empty. `aqm` runs at the watched queue; `seed` is the run's seed.
    #[must_use]
    pub fn build(self, aqm: Box<dyn Aqm>, seed: u64) -> Gateway {
        let mut aqm = Some(aqm);
        let mut queue = |which, scheduler, limit, capacity, name| {
            let watched = which == self.watch;
            let aqm = aqm.take_if(|_| watched).unwrap_or_else(|| Box::new(DropTail));
            let marking = if watched { self.marking } else { Marking::Drop };
            Queue::new(scheduler, aqm, &QueueConfig { marking, limit, capacity, seed, name })
        };
        let receive = queue(
            GatewayQueue::Receive,
            Box::<Fifo>::default(),
            self.receive_limit,
            self.receive_rate.unwrap_or_default(),
            format!("{} receive", self.name),
        );
        let transmit = queue(
            GatewayQueue::Transmit,
            self.scheduler,
            self.transmit_limit,
            self.rate,
            format!("{} transmit", self.name),
        );
        Gateway::new(Setup {
            receive,
            receive_rate: self.receive_rate,
            transmit,
            watch: self.watch,
            mark: self.mark,
            processing: self.processing,
            regulator: (self.pace == Pace::Regulator)
                .then(|| Regulator::new(self.rate, self.tick.unwrap_or_default())),
            tick: self.tick.unwrap_or_default(),
        })
    }
}
