//! Bulk transfers between two connections over a [`Channel`].

use bentpipe_transport::tcp::{Config, Connection, Ecn, Flags, Segment};
use bentpipe_units::{Duration, Instant};

pub use crate::channel::Application;
use crate::channel::{self, Channel, Outcome, Reader, assert_later, carry};

/// One end and its observed behaviour.
pub struct End {
    pub connection: Connection,
    cfg: Config,
    application: Application,
    written: u64,
    pub reader: Reader,
    /// The right edge it advertised last, and the highest one it received.
    advertised: u64,
    granted: u64,
    pub timer_calls: u64,
    /// Segments sent and received.
    pub sent: u64,
    pub received: u64,
}

/// Lets both ends transfer their data and close.
pub fn transfer(
    cfgs: [&Config; 2],
    apps: [Application; 2],
    channel: &Channel,
    seed: u64,
    limit: Duration,
) -> Outcome<End> {
    let [first, second] = apps;
    let end = |connection, cfg: &Config, application: Application| End {
        connection,
        cfg: cfg.clone(),
        reader: Reader::new(&application),
        application,
        written: 0,
        advertised: 0,
        granted: 0,
        timer_calls: 0,
        sent: 0,
        received: 0,
    };
    let mut ends = [
        end(Connection::connect(cfgs[0], Instant::ZERO), cfgs[0], first),
        end(Connection::listen(cfgs[1]), cfgs[1], second),
    ];
    let took = carry(&mut ends, channel, seed, limit);
    for end in &mut ends {
        end.reader.total += end.connection.readable();
    }
    Outcome { ends, took }
}

impl channel::End for End {
    type Packet = Segment;

    fn run(&mut self, now: Instant) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(&self.cfg, now);
            self.timer_calls += 1;
            assert_later(self.connection.poll_timeout(), now);
        }
        if self.connection.send_queue() < self.application.chunk && self.written < self.application.bytes {
            let chunk = self.application.chunk.min(self.application.bytes - self.written);
            self.connection.write(chunk);
            self.written += chunk;
        }
        if self.written == self.application.bytes {
            self.connection.close();
        }
        if let Some(n) = self.reader.read(now, self.connection.readable()) {
            self.connection.read(n);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let segment = self.connection.poll_transmit(&self.cfg, now)?;
        self.sent += 1;
        let probe = 1;
        assert!(segment.end() <= self.granted + probe, "{segment:?} beyond the window, {}", self.granted);
        assert!(segment.len <= self.cfg.mss);
        if !segment.flags.has(Flags::RST | Flags::SYN) {
            let edge = segment.ack + u64::from(segment.window);
            // RFC 7323 section 2.4: the edge may seem to move back by less than one unit.
            let unit = 1 << self.cfg.window_scale.unwrap_or(0);
            assert!(edge + unit > self.advertised, "{segment:?} takes the edge {} back", self.advertised);
            self.advertised = self.advertised.max(edge);
        }
        Some(segment)
    }

    fn on_packet(&mut self, now: Instant, segment: &Segment) {
        self.received += 1;
        self.granted = self.granted.max(segment.ack + u64::from(segment.window));
        if segment.flags.has(Flags::SYN) {
            self.granted = self.granted.max(1 + u64::from(segment.window));
        }
        self.connection.on_segment(&self.cfg, now, segment);
    }

    fn next_call(&self) -> Option<Instant> {
        let read = self.reader.next(self.connection.readable());
        [self.connection.poll_timeout(), self.connection.paced_until(), read].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.connection.is_closed() || self.connection.in_time_wait()
    }

    fn failed(&self) -> bool {
        self.connection.failed()
    }

    fn check(&self) {
        let stats = self.connection.stats();
        // With ns-2's recovery a mark may leave less.
        assert!(stats.cwnd >= u64::from(self.cfg.mss) || (self.cfg.ns2_recovery && self.cfg.ecn));
        assert!(self.connection.readable() + self.reader.total == self.connection.received());
        assert!(self.connection.readable() <= u64::from(self.cfg.receive_window));
        assert!(self.connection.acked() + self.connection.send_queue() == self.written);
        // RFC 6675 counts data twice that is resent without being lost.
        assert!(stats.in_flight <= 2 * (self.written + 2));
    }

    fn is_ecn_capable(segment: &Segment) -> bool {
        segment.ecn != Ecn::NotEct
    }

    fn mark(segment: &mut Segment) {
        segment.ecn = Ecn::Ce;
    }
}
