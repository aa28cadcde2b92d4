//! Publishes the state at intervals: for the HTTP thread, and as signs of life for the service manager.

use bentpipe_units::{Duration, Instant};
use nix::time::{ClockId, clock_gettime};

use crate::config::Config;
use crate::observe::metrics::{About, Snapshot};
use crate::observe::state::Shared;
use crate::sys::clock::monotonic_ms;
use crate::sys::notify;

/// When the state is published next, and to whom.
pub struct Publisher {
    /// The state that the HTTP thread serves; `None` without `[metrics]`.
    pub shared: Option<Shared>,
    interval: Duration,
    next: Instant,
    /// Interval of the service manager's watchdog, and the time of the next sign of life.
    watchdog: Option<(Duration, Instant)>,
}

impl Publisher {
    /// The publisher for a configuration.
    pub fn new(config: &Config, now: Instant) -> Self {
        let metrics = config.metrics.as_ref();
        let interval = metrics.map_or(Duration::from_secs(1), |m| m.interval.time());
        let shared = metrics.map(|m| Shared::new(about(config), interval, m.keep.time()));
        let watchdog = notify::watchdog().map(|every| {
            let every = Duration::from_nanos(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
            (every, now)
        });
        Self { shared, interval, next: now, watchdog }
    }

    /// Time of the next publication or sign of life.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let sample = self.shared.as_ref().map(|_| self.next);
        let alive = self.watchdog.map(|(_, next)| next);
        sample.into_iter().chain(alive).min()
    }

    /// Sends a sign of life to the service manager if one is due.
    pub fn feed_watchdog(&mut self, now: Instant) {
        if let Some((every, next)) = &mut self.watchdog
            && *next <= now
        {
            *next = now + *every;
            let _ = notify::notify("WATCHDOG=1");
        }
    }

    /// True if a snapshot is due. The next one is due an interval later; intervals that a late loop missed are skipped.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.next > now {
            return false;
        }
        self.next += self.interval;
        if self.next <= now {
            self.next = now + self.interval;
        }
        self.shared.is_some()
    }

    /// Publishes a snapshot.
    pub fn publish(&self, snapshot: Snapshot) {
        if let Some(shared) = &self.shared {
            shared.publish(snapshot, unix_ms(), monotonic_ms());
        }
    }

    /// Publishes the result of reading the configuration again.
    pub fn reloaded(&self, config: &Config, succeeded: bool) {
        if let Some(shared) = &self.shared {
            let label = about(config).aqm;
            shared.set_about(|about| {
                about.reloaded = (unix_ms() as f64 / 1e3, succeeded);
                about.aqm = label;
            });
        }
    }
}

fn about(config: &Config) -> About {
    let (aqm, scheduler, marking) = match config.queues() {
        Some(queues) => (
            queues.aqm.label.clone(),
            queues.transmit_queue.scheduler.discipline.name,
            queues.marking.method.name,
        ),
        None => ("none".to_owned(), "fifo", "none"),
    };
    About {
        role: config.role,
        aqm,
        scheduler: scheduler.to_owned(),
        marking: marking.to_owned(),
        reloaded: (unix_ms() as f64 / 1e3, true),
    }
}

fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME);
    now.map_or(0, |t| t.tv_sec().unsigned_abs() * 1000 + t.tv_nsec().unsigned_abs() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of 100 ms: one that is 250 ms late is followed by a whole interval, one that is 50 ms late by the rest of its interval.
    #[test]
    fn a_late_sample_is_followed_by_no_interval_of_microseconds() {
        let text = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
             [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
             [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n\
             [metrics]\nlisten = \"127.0.0.1:9100\"\ninterval = \"100 ms\"\nkeep = \"60 s\"\n";
        let config = Config::parse(text, "g.toml").unwrap();
        let mut publisher = Publisher::new(&config, Instant::ZERO);
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        for (us, is_due) in [
            (0, true),
            (50_000, false),
            (350_000, true),
            (350_020, false),
            (449_999, false),
            (500_000, true),
            (549_999, false),
            (550_000, true),
        ] {
            assert_eq!(publisher.is_due(at(us)), is_due, "{us} us");
        }
    }
}
