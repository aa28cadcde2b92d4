//! Two associations over a channel that loses, reorders and duplicates, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bentpipe_transport::sctp::{Association, Config, Packet};
use bentpipe_units::{Duration, Instant, Rng};

/// What a channel does to packets.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Probability of a loss, each way.
    pub loss: f64,
    /// Probability that a packet arrives twice.
    pub duplication: f64,
    /// Propagation each way.
    pub delay: Duration,
    /// Further delay, uniform from zero on, so that packets overtake each other.
    pub jitter: Duration,
}

/// What one end's application does.
#[derive(Clone, Debug)]
pub struct Application {
    /// Bytes to write in all.
    pub bytes: u64,
    /// Reads at most so much at a time, each so often.
    pub read: u64,
    pub read_every: Duration,
}

/// An end, and what was seen of it.
pub struct End {
    pub association: Association,
    cfg: Config,
    application: Application,
    pub read: u64,
    next_read: Instant,
    pub timer_calls: u64,
}

/// How it ended.
pub struct Outcome {
    pub ends: [End; 2],
    pub took: Duration,
}

/// Lets both ends transfer what they have to, and shut down. Panics where an invariant does not hold, or at `limit`.
pub fn transfer(
    cfgs: [&Config; 2],
    apps: [Application; 2],
    channel: &Channel,
    seed: u64,
    limit: Duration,
) -> Outcome {
    let mut rng = Rng::stream(seed, "test", 0, "channel");
    let start = Instant::ZERO;
    let mut wire: BinaryHeap<Reverse<(Instant, u64, usize)>> = BinaryHeap::new();
    let mut packets: Vec<Packet> = Vec::new();
    let [first, second] = apps;
    let end = |mut association: Association, cfg: &Config, application: Application| {
        association.write(cfg, application.bytes);
        association.close();
        let next_read = start + application.read_every;
        End { association, cfg: cfg.clone(), next_read, application, read: 0, timer_calls: 0 }
    };
    let mut ends = [
        end(Association::connect(cfgs[0]), cfgs[0], first),
        end(Association::listen(cfgs[1]), cfgs[1], second),
    ];
    let mut now = start;
    loop {
        for (i, end) in ends.iter_mut().enumerate() {
            end.run(now);
            while let Some(packet) = end.association.poll_transmit(&end.cfg, now) {
                assert!(packet.wire_len(&end.cfg) <= end.cfg.pmtu, "{packet:?}");
                let copies = if rng.uniform() < channel.loss {
                    0
                } else {
                    1 + u32::from(rng.uniform() < channel.duplication)
                };
                for _ in 0..copies {
                    let at = now + channel.delay + channel.jitter.scaled(rng.uniform());
                    wire.push(Reverse((at, packets.len() as u64, 1 - i)));
                    packets.push(packet.clone());
                }
            }
            end.check();
        }
        if ends.iter().all(|end| end.association.is_closed()) {
            break;
        }
        assert!(ends.iter().all(|end| !end.association.failed()), "an association failed at {now:?}");
        let next = [wire.peek().map(|Reverse((at, ..))| *at), ends.iter().filter_map(End::wakes).min()];
        now = next.into_iter().flatten().min().expect("something is yet to happen").max(now);
        assert!(now - start <= limit, "not done by {now:?}");
        // One at a time, so that each is answered before the next.
        if wire.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, id, to))) = wire.pop() else { break };
            let end = &mut ends[to];
            end.association.on_packet(&end.cfg, now, &packets[id as usize]);
            end.check();
        }
    }
    for end in &mut ends {
        end.read += end.association.readable();
    }
    Outcome { ends, took: now - start }
}

impl End {
    fn wakes(&self) -> Option<Instant> {
        let read = (self.association.readable() > 0).then_some(self.next_read);
        [self.association.poll_timeout(), read].into_iter().flatten().min()
    }

    /// Timers and the application.
    fn run(&mut self, now: Instant) {
        if self.association.poll_timeout().is_some_and(|at| at <= now) {
            self.association.handle_timeout(&self.cfg, now);
            self.timer_calls += 1;
            let again = self.association.poll_timeout();
            assert!(again.is_none_or(|at| at > now), "the timer is due again at {again:?}, it is {now:?}");
        }
        if now >= self.next_read {
            let n = self.association.readable().min(self.application.read);
            self.association.read(n);
            self.read += n;
            self.next_read = now + self.application.read_every;
        }
    }

    fn check(&self) {
        let stats = self.association.stats();
        assert!(stats.cwnd >= self.cfg.pmdcs(), "cwnd {}", stats.cwnd);
        assert!(self.association.readable() + self.read <= self.association.received());
        assert!(self.association.acked() + self.association.send_queue() == self.application.bytes);
    }
}
