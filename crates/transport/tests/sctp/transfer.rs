//! Bulk transfers between two associations over a [`Channel`].

use bentpipe_transport::sctp::{Association, Config, Packet};
use bentpipe_units::{Duration, Instant};

pub use crate::channel::Application;
use crate::channel::{self, Channel, Outcome, Reader, assert_later, carry};

/// One end and its observed behaviour.
pub struct End {
    pub association: Association,
    cfg: Config,
    application: Application,
    pub reader: Reader,
    pub timer_calls: u64,
}

/// Lets both ends transfer their data and shut down.
pub fn transfer(
    cfgs: [&Config; 2],
    apps: [Application; 2],
    channel: &Channel,
    seed: u64,
    limit: Duration,
) -> Outcome<End> {
    let [first, second] = apps;
    let end = |mut association: Association, cfg: &Config, application: Application| {
        association.write(cfg, application.bytes);
        association.close();
        End { association, cfg: cfg.clone(), reader: Reader::new(&application), application, timer_calls: 0 }
    };
    let mut ends = [
        end(Association::connect(cfgs[0]), cfgs[0], first),
        end(Association::listen(cfgs[1]), cfgs[1], second),
    ];
    let took = carry(&mut ends, channel, seed, limit);
    for end in &mut ends {
        end.reader.total += end.association.readable();
    }
    Outcome { ends, took }
}

impl channel::End for End {
    type Packet = Packet;

    fn run(&mut self, now: Instant) {
        if self.association.poll_timeout().is_some_and(|at| at <= now) {
            self.association.handle_timeout(&self.cfg, now);
            self.timer_calls += 1;
            assert_later(self.association.poll_timeout(), now);
        }
        if let Some(n) = self.reader.read(now, self.association.readable()) {
            self.association.read(n);
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
        let read = self.reader.next(self.association.readable());
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
        assert!(self.association.readable() + self.reader.total <= self.association.received());
        assert!(self.association.acked() + self.association.send_queue() == self.application.bytes);
    }
}
