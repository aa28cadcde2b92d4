//! The state that the HTTP thread serves: the latest snapshot, and a sample of each interval for the page.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_units::Duration;
use serde_json::{Value, json};

use crate::observe::bottleneck::{Bottleneck, bottleneck, utilization};
use crate::observe::metrics::{About, CLASSES, PeerState, Snapshot, Traffic};
use crate::observe::prometheus::{BottleneckTimes, prometheus};

/// The daemon's state, shared by the loop and the HTTP thread.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    about: About,
    /// Time between two snapshots.
    interval: Duration,
    /// Most samples kept.
    keep: usize,
    last: Option<Snapshot>,
    samples: VecDeque<Sample>,
    bottleneck: Bottleneck,
    times: BottleneckTimes,
    utilization: f64,
    /// Rates of each peer in the last interval.
    peers: Vec<PeerRates>,
}

/// Rates of a peer in an interval; NaN for those that could not be measured.
#[derive(Clone, Copy, Debug)]
struct PeerRates {
    /// Sent to it, and received from it [bit/s].
    sent: f64,
    received: f64,
    /// Lost packets / sent packets.
    loss: f64,
}

/// Names of a sample's values.
pub const COLUMNS: [&str; 28] = [
    "time_ms",
    "utilization",
    "capacity_bps",
    "sent_bps",
    "queue_packets",
    "queue_bytes",
    "receive_packets",
    "delay_mean_s",
    "delay_p95_s",
    "aqm_drops_per_s",
    "overflow_drops_per_s",
    "marks_per_s",
    "nfqueue_lost_per_s",
    "tcp_split_sent_bps",
    "udp_sent_bps",
    "other_sent_bps",
    "tcp_split_received_bps",
    "udp_received_bps",
    "other_received_bps",
    "open",
    "half_open",
    "refused_per_s",
    "reset_per_s",
    "rtt_s",
    "loss_ratio",
    "up",
    "bypass",
    "bottleneck",
];

/// Sample of an interval, by [`COLUMNS`]; NaN for a value that could not be measured.
type Sample = [f64; COLUMNS.len()];

impl Shared {
    /// Empty state. A snapshot is expected every `interval`; samples are kept for `keep`.
    #[must_use]
    pub fn new(about: About, interval: Duration, keep: Duration) -> Self {
        let keep =
            (keep.as_nanos() / interval.as_nanos().max(1)).clamp(1, crate::config::MOST_SAMPLES) as usize;
        Self(Arc::new(Mutex::new(State {
            about,
            interval,
            keep,
            last: None,
            samples: VecDeque::with_capacity(keep),
            bottleneck: Bottleneck::Nothing,
            times: [0.0; Bottleneck::ALL.len()],
            utilization: f64::NAN,
            peers: Vec::new(),
        })))
    }

    /// Publishes the state at the end of an interval; `unix_ms` is the time since 1970 [ms].
    pub fn publish(&self, snapshot: Snapshot, unix_ms: u64) {
        let mut state = self.lock();
        if let Some(before) = state.last.take() {
            state.add(&before, &snapshot, unix_ms);
        }
        state.last = Some(snapshot);
    }

    /// Changes what is published about the daemon.
    pub fn set_about(&self, change: impl FnOnce(&mut About)) {
        change(&mut self.lock().about);
    }

    /// The bottleneck in the last interval.
    #[must_use]
    pub fn bottleneck(&self) -> Bottleneck {
        self.lock().bottleneck
    }

    /// All metrics in Prometheus' text format; `None` before the first snapshot.
    #[must_use]
    pub fn prometheus(&self) -> Option<String> {
        let state = self.lock();
        let last = state.last.as_ref()?;
        Some(prometheus(&state.about, last, state.utilization, state.bottleneck, &state.times))
    }

    /// The samples after `since` [ms since 1970], as JSON.
    #[must_use]
    pub fn json(&self, since: u64) -> String {
        let state = self.lock();
        let first = state.samples.partition_point(|sample| sample[0] <= since as f64);
        let rows: Vec<Value> = state.samples.range(first..).map(|row| Value::from(row.to_vec())).collect();
        let names: Vec<&str> = Bottleneck::ALL.iter().map(|b| b.name()).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "role": state.about.role.name(),
            "aqm": state.about.aqm,
            "scheduler": state.about.scheduler,
            "marking": state.about.marking,
            "interval_s": state.interval.as_secs_f64(),
            "keep": state.keep,
            "classes": CLASSES,
            "bottlenecks": names,
            "columns": COLUMNS,
            "samples": rows,
        })
        .to_string()
    }

    /// Every peer with its rates in the last interval, as JSON.
    #[must_use]
    pub fn peers(&self) -> String {
        let state = self.lock();
        let peers = state.last.iter().flat_map(|last| &last.peers);
        let unknown = PeerRates { sent: f64::NAN, received: f64::NAN, loss: f64::NAN };
        let rates = state.peers.iter().copied().chain(std::iter::repeat(unknown));
        let row = |(peer, rates): (&PeerState, PeerRates)| {
            json!({
                "terminal": if peer.name.is_empty() { "-" } else { &peer.name },
                "state": if !peer.up { "down" } else if peer.silent { "outage" } else { "up" },
                "sent_bps": rates.sent,
                "received_bps": rates.received,
                "queue_packets": peer.queue.map(|(packets, _)| packets),
                "queue_bytes": peer.queue.map(|(_, bytes)| bytes),
                "loss_ratio": rates.loss,
                "rtt_s": peer.round_trip.map(|time| time.as_secs_f64()),
                "connections": peer.connections,
            })
        };
        let rows: Vec<Value> = peers.zip(rates).map(row).collect();
        json!({ "version": env!("CARGO_PKG_VERSION"), "role": state.about.role.name(), "terminals": rows })
            .to_string()
    }

    /// Health at `unix_ms`: good if the last snapshot is at most three intervals old.
    ///
    /// # Errors
    /// Otherwise; says since when snapshots are missing.
    pub fn health(&self, unix_ms: u64) -> Result<&'static str, String> {
        let state = self.lock();
        let Some(last) = state.samples.back() else { return Err("no sample yet".to_owned()) };
        let age = (unix_ms as f64 - last[0]) / 1e3;
        if age > 3.0 * state.interval.as_secs_f64() {
            return Err(format!("no sample for {age:.0} s"));
        }
        Ok(if state.last.as_ref().is_some_and(|s| s.spacelink.up) { "ok" } else { "ok, spacelink down" })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerRates {
    /// The rates of `peer` since a state `seconds` before.
    fn between(before: &[PeerState], peer: &PeerState, seconds: f64) -> Self {
        let Some(was) = before.iter().find(|was| was.name == peer.name) else {
            return Self { sent: f64::NAN, received: f64::NAN, loss: f64::NAN };
        };
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let packets = per_second(peer.sent_packets, was.sent_packets);
        let lost = per_second(peer.lost_packets, was.lost_packets);
        Self {
            sent: 8.0 * per_second(peer.sent_bytes, was.sent_bytes),
            received: 8.0 * per_second(peer.received_bytes, was.received_bytes),
            loss: if packets > 0.0 { lost / packets } else { f64::NAN },
        }
    }
}

impl State {
    /// Adds the sample of the interval between two snapshots.
    fn add(&mut self, before: &Snapshot, after: &Snapshot, unix_ms: u64) {
        let time = after.now - before.now;
        let seconds = time.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let rate = |count: fn(&Snapshot) -> u64| count(after).saturating_sub(count(before)) as f64 / seconds;
        let bps = |class: usize, count: fn(&Traffic) -> u64| {
            let bytes = |s: &Snapshot| s.traffic.get(class).map_or(0, count);
            bytes(after).saturating_sub(bytes(before)) as f64 * 8.0 / seconds
        };
        self.utilization = utilization(&before.evidence, &after.evidence, time, after.capacity);
        self.bottleneck = bottleneck(&before.evidence, &after.evidence, time, after.capacity);
        let index = Bottleneck::ALL.iter().position(|b| *b == self.bottleneck).unwrap_or(0);
        self.times[index] += seconds;
        self.peers =
            after.peers.iter().map(|peer| PeerRates::between(&before.peers, peer, seconds)).collect();
        let delay = after.transmit.delay.since(&before.transmit.delay);
        let packets = rate(|s| s.spacelink.sent_packets);
        let aqm_drops = rate(|s| s.receive.aqm_drops + s.transmit.aqm_drops);
        let sample = [
            unix_ms as f64,
            self.utilization,
            after.capacity.map_or(f64::NAN, |rate| rate.as_bps() as f64),
            rate(|s| s.evidence.sent) * 8.0,
            (after.evidence.packet_seconds - before.evidence.packet_seconds) / seconds,
            after.transmit.bytes as f64,
            after.receive.packets as f64,
            delay.mean_s().unwrap_or(f64::NAN),
            delay.quantile_s(0.95).unwrap_or(f64::NAN),
            aqm_drops,
            rate(|s| s.receive.overflow_drops + s.transmit.overflow_drops),
            // Without the signals that dropped their packet.
            (rate(|s| s.marked) - aqm_drops).max(0.0),
            rate(|s| s.nfqueue.iter().map(|lost| lost.queue_full + lost.buffer_full).sum()),
            bps(0, |t| t.sent),
            bps(1, |t| t.sent),
            bps(2, |t| t.sent),
            bps(0, |t| t.received),
            bps(1, |t| t.received),
            bps(2, |t| t.received),
            after.connections.open as f64,
            after.connections.half_open as f64,
            rate(|s| s.connections.refused),
            rate(|s| s.connections.reset),
            after.spacelink.round_trip.map_or(f64::NAN, |time| time.as_secs_f64()),
            if packets > 0.0 { rate(|s| s.spacelink.lost_packets) / packets } else { f64::NAN },
            f64::from(u8::from(after.spacelink.up)),
            f64::from(u8::from(after.connections.bypassing)),
            index as f64,
        ];
        if self.samples.len() == self.keep {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}
