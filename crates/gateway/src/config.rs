//! The configuration of a gateway, and the gateway that it builds.

use bentpipe_queue::aqm::droptail::DropTail;
use bentpipe_queue::sched::fifo::Fifo;
use bentpipe_queue::{Aqm, Limit, Marking, Queue, QueueConfig, Scheduler};
use bentpipe_units::{Duration, Rate};

use crate::{Drain, Gateway, GatewayQueue, Processing, Processor, Regulator, Setup};

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
    /// Rate of the regulator.
    pub rate: Rate,
    /// Highest rate at which a [`Carrier`](crate::Carrier) drains the transmit queue in place of a regulator.
    pub peak: Option<Rate>,
    /// Time between two ticks of the regulator; `None` if packets leave one by one.
    pub tick: Option<Duration>,
    /// Processing times of the PEP.
    pub processing: Processing,
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
            self.peak.unwrap_or(self.rate),
            format!("{} transmit", self.name),
        );
        let tick = self.tick.unwrap_or_default();
        Gateway::new(Setup {
            receive,
            receive_rate: self.receive_rate,
            transmit,
            watch: self.watch,
            mark: self.mark,
            processing: Processor::new(self.processing, seed, &self.name),
            drain: match self.peak {
                Some(peak) => Drain::Carrier { peak, tick },
                None => Drain::Regulator(Regulator::new(self.rate, tick)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::{Context, FlowId, Packet, Verdict};
    use bentpipe_units::Instant;

    use super::*;

    /// Marks every packet.
    struct MarkAll;

    impl Aqm for MarkAll {
        fn arrive(&mut self, _pkt: &Packet, _cx: &mut Context<'_>) -> Verdict {
            Verdict::Mark
        }
    }

    #[test]
    fn the_aqm_and_the_marking_are_those_of_the_watched_queue() {
        for watch in [GatewayQueue::Receive, GatewayQueue::Transmit] {
            let config = Config {
                name: "gateway".to_owned(),
                watch,
                mark: GatewayQueue::Receive,
                marking: Marking::Window,
                receive_limit: Limit::NONE,
                receive_rate: None,
                scheduler: Box::<Fifo>::default(),
                transmit_limit: Limit::NONE,
                rate: Rate::from_bps(20_000_000),
                peak: None,
                tick: None,
                processing: Processing::default(),
            };
            let mut gateway = config.build(Box::new(MarkAll), 1);
            let split = Packet { split: true, ..Packet::new(1000, FlowId(0), 0) };
            gateway.arrive(split, Instant::ZERO);
            let Some(crate::Event::Received(pkt)) = gateway.poll() else { panic!("{watch:?}: dropped") };
            assert!(pkt.marked, "{watch:?}");
            assert_eq!(gateway.watched_queue().counters().marked, 1);
        }
    }
}
