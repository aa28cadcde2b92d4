//! Bulk transfers between two associations over a [`Channel`].

use bentpipe_transport::sctp::{Association, Config, Packet};
use bentpipe_units::{Duration, Instant};

use crate::channel::{self, Channel, carry};

/// Behaviour of the application at one end.
#[derive(Clone, Debug)]
pub struct Application {
    /// Data to write in total [bytes].
    pub bytes: u64,
    /// Maximum size of a read [bytes], and the interval between reads.
    pub read: u64,
    pub read_every: Duration,
}

/// One end and its observed behaviour.
pub struct End {
    pub association: Association,
    cfg: Config,
    application: Application,
    pub read: u64,
    next_read: Instant,
    pub timer_calls: u64,
}

/// Result of a transfer.
pub struct Outcome {
    pub ends: [End; 2],
    pub took: Duration,
}

/// Lets both ends transfer their data and shut down.
pub fn transfer(
    cfgs: [&Config; 2],
    apps: [Application; 2],
    channel: &Channel,
    seed: u64,
    limit: Duration,
) -> Outcome {
    let [first, second] = apps;
    let end = |mut association: Association, cfg: &Config, application: Application| {
        association.write(cfg, application.bytes);
        association.close();
        let next_read = Instant::ZERO + application.read_every;
        End { association, cfg: cfg.clone(), next_read, application, read: 0, timer_calls: 0 }
    };
    let mut ends = [
        end(Association::connect(cfgs[0]), cfgs[0], first),
        end(Association::listen(cfgs[1]), cfgs[1], second),
    ];
    let took = carry(&mut ends, channel, seed, limit);
    for end in &mut ends {
        end.read += end.association.readable();
    }
    Outcome { ends, took }
}

impl channel::End for End {
    type Packet = Packet;

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

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.association.poll_transmit(&self.cfg, now)?;
        assert!(packet.wire_len(&self.cfg) <= self.cfg.pmtu, "{packet:?}");
        Some(packet)
    }

    fn on_packet(&mut self, now: Instant, packet: &Packet) {
        self.association.on_packet(&self.cfg, now, packet);
    }

    fn next_call(&self) -> Option<Instant> {
        let read = (self.association.readable() > 0).then_some(self.next_read);
        [self.association.poll_timeout(), read].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.association.is_closed()
    }

    fn failed(&self) -> bool {
        self.association.failed()
    }

    fn check(&self) {
        let stats = self.association.stats();
        assert!(stats.cwnd >= self.cfg.pmdcs(), "cwnd {}", stats.cwnd);
        assert!(self.association.readable() + self.read <= self.association.received());
        assert!(self.association.acked() + self.association.send_queue() == self.application.bytes);
    }
}
