//! A delay that makes a plain link as long as a satellite's.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bentpipe_gatewayd::intercept::nfqueue::{Lost, PacketId, Queue, Settings, Verdict};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::common::Namespace;

/// Number of the queue; the daemons use 0 and 1.
const NUMBER: u16 = 90;

#[expect(clippy::disallowed_methods, reason = "real packets wait for real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// One direction: delays packets that enter a namespace.
pub struct Satellite {
    held: Arc<[AtomicU64; 3]>,
    stop: Arc<AtomicBool>,
}

/// Delays of packets.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Mean [s].
    pub mean: f64,
    /// Maximum.
    pub most: Duration,
}

impl Satellite {
    /// Delays what enters `namespace` by `device`.
    pub fn start(namespace: &Namespace, device: &str, delay: Duration) -> Self {
        Self::with_rate(namespace, device, delay, None)
    }

    /// As [`Self::start`], at this rate [bit/s] with a queue in front.
    pub fn with_rate(namespace: &Namespace, device: &str, delay: Duration, rate: Option<f64>) -> Self {
        for command in ["iptables-nft", "ip6tables-nft"] {
            namespace.command(&format!(
                "{command} -t raw -A PREROUTING -i {device} -j NFQUEUE --queue-num {NUMBER}"
            ));
        }
        let satellite = Self { held: Arc::default(), stop: Arc::default() };
        let (held, stop) = (Arc::clone(&satellite.held), Arc::clone(&satellite.stop));
        let (opened, open) = channel();
        namespace.spawn(move || {
            let mut queue = crate::common::bound(|| Queue::open(NUMBER, &Settings::default()));
            opened.send(()).expect("a receiver");
            let mut waiting: VecDeque<(Instant, PacketId)> = VecDeque::new();
            let mut sent = now();
            while !stop.load(Ordering::Relaxed) {
                let next =
                    waiting.front().map_or(100, |(due, _)| due.saturating_duration_since(now()).as_millis());
                let timeout = PollTimeout::from(next.min(100) as u16);
                // Interrupted calls are repeated.
                let _ = poll(&mut [PollFd::new(queue.as_fd(), PollFlags::POLLIN)], timeout);
                let time = now();
                let come = |id, packet: &mut [u8]| {
                    let took = rate.map_or(0.0, |rate| packet.len() as f64 * 8.0 / rate);
                    sent = sent.max(time) + Duration::from_secs_f64(took);
                    let due = if rate.is_some() { sent } else { time };
                    waiting.push_back((due + delay, id));
                    Verdict::Later
                };
                queue.receive(&mut { come }).expect("packets");
                while let Some(&(due, id)) = waiting.front()
                    && due <= time
                {
                    waiting.pop_front();
                    queue.accept(id);
                    let took = (delay + (time - due)).as_nanos() as u64;
                    held[0].fetch_add(1, Ordering::Relaxed);
                    held[1].fetch_add(took, Ordering::Relaxed);
                    held[2].fetch_max(took, Ordering::Relaxed);
                }
                queue.flush().expect("verdicts");
            }
            assert_eq!(queue.lost().expect("counters"), Lost::default());
        });
        open.recv().expect("a queue");
        satellite
    }

    /// Delays since the last call; without packets, the intended delay.
    pub fn held(&self) -> Held {
        let [count, sum, most] = [0, 1, 2].map(|at| self.held[at].swap(0, Ordering::Relaxed));
        Held { mean: sum as f64 / count as f64 / 1e9, most: Duration::from_nanos(most) }
    }
}

impl Drop for Satellite {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
