//! No allocation per packet, with and without losses.

mod counting;

use std::collections::VecDeque;

use bentpipe_transport::pep_link::{Config, Data, Endpoint, Event};
use bentpipe_units::{Duration, Instant, Rng};
use counting::allocations;

/// An association, the packets in transit for the next 500 ms, and the random losses.
struct Flow {
    ends: [Endpoint; 2],
    in_transit: VecDeque<Option<Data>>,
    now: Instant,
    losses: Rng,
}

impl Flow {
    /// Carries one packet per millisecond from the first end to the second.
    fn run(&mut self, steps: u64, loss: f64) {
        let [near, far] = &mut self.ends;
        for _ in 0..steps {
            self.now += Duration::from_millis(1);
            self.in_transit.push_back(near.poll_data(self.now));
            if self.in_transit.len() > 500
                && let Some(Some(data)) = self.in_transit.pop_front()
                && self.losses.uniform() >= loss
            {
                far.on_data(self.now, &data);
            }
            while let Some(event) = far.poll_event() {
                if let Event::Readable { stream, bytes } = event {
                    far.consume(stream, bytes);
                }
            }
            while let Some(ack) = far.poll_ack(self.now) {
                near.on_ack(self.now, &ack);
            }
            for end in [&mut *near, &mut *far] {
                end.handle_timeout(self.now);
                while end.poll_event().is_some() {}
            }
        }
    }
}

#[test]
fn no_allocation_per_packet() {
    for loss in [0.0, 0.02, 0.15] {
        let cfg = Config { stream_window: 1 << 20, ..Config::default() };
        let mut ends = [Endpoint::new(cfg.clone()), Endpoint::new(cfg)];
        for s in 0..10 {
            ends[0].open(s);
            ends[0].write(s, 1 << 40);
        }
        let losses = Rng::stream(1, "path", 0, "loss");
        let mut flow = Flow { ends, in_transit: VecDeque::with_capacity(1000), now: Instant::ZERO, losses };
        // Heavy losses first, so that every queue has reached its maximum size.
        flow.run(30_000, 0.3);
        let before = allocations();
        let sent = flow.ends[0].stats().sent;
        flow.run(50_000, loss);
        assert_eq!(allocations() - before, 0, "{loss} lost");
        let stats = flow.ends[0].stats();
        assert!(stats.sent - sent > 45_000, "{stats:?}");
    }
}
