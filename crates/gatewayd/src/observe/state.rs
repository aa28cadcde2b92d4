//! The state that the HTTP thread serves: the latest snapshot, and a sample of each interval for the page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_units::Duration;
use serde_json::{Value, json};

use crate::observe::bottleneck::{Bottleneck, bottleneck, utilization};
use crate::observe::metrics::{About, CLASSES, PeerState, Snapshot, Traffic};
use crate::observe::peers::{self, PeerRates};
use crate::observe::prometheus::{BottleneckTimes, prometheus};

/// The daemon's state, shared by the loop and the HTTP thread.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    about: About,
    /// Time between two snapshots.
    interval: Duration,
    /// Maximum number of samples kept.
    keep: usize,
    last: Option<Snapshot>,
    /// Monotonic time of the last snapshot [ms].
    published_ms: u64,
    samples: VecDeque<Sample>,
    bottleneck: Bottleneck,
    times: BottleneckTimes,
    utilization: f64,
    /// Each peer in the last interval.
    peers: Vec<PeerRates>,
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
            published_ms: 0,
            samples: VecDeque::with_capacity(keep),
            bottleneck: Bottleneck::Nothing,
            times: [0.0; Bottleneck::ALL.len()],
            utilization: f64::NAN,
            peers: Vec::new(),
        })))
    }

    /// Publishes the state at the end of an interval. `unix_ms` is the time since 1970 [ms], `now_ms` monotonic time [ms].
    pub fn publish(&self, snapshot: Snapshot, unix_ms: u64, now_ms: u64) {
        let mut state = self.lock();
        state.published_ms = now_ms;
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
        Some(prometheus(
            &state.about,
            last,
            &state.peers,
            (state.utilization, state.bottleneck),
            &state.times,
        ))
    }

    /// The samples after `since` [ms since 1970], as JSON. If the clock was set back, these are the ones behind the sample of
    /// that time, which may have earlier times.
    #[must_use]
    pub fn json(&self, since: u64) -> String {
        let state = self.lock();
        let since = since as f64;
        let same = state.samples.iter().rposition(|sample| sample[0] == since);
        let before = same.or_else(|| state.samples.iter().rposition(|sample| sample[0] <= since));
        let first = before.map_or(0, |before| before + 1);
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

    /// Every peer in the last interval, as JSON.
    #[must_use]
    pub fn peers(&self) -> String {
        let state = self.lock();
        let rows: Vec<Value> = state.peers().map(|(peer, rates)| rates.row(peer)).collect();
        state.document("terminals", rows.into())
    }

    /// The peer with this name in the last interval, as JSON; `None` if there is no such peer.
    #[must_use]
    pub fn peer(&self, name: &str) -> Option<String> {
        let state = self.lock();
        let (peer, rates) = state.peers().find(|(peer, _)| peer.name == name)?;
        Some(state.document("terminal", rates.row(peer)))
    }

    /// Every plan in the last interval, as JSON.
    #[must_use]
    pub fn plans(&self) -> String {
        let state = self.lock();
        let rows = peers::plans(state.peers());
        state.document("plans", rows.into())
    }

    /// Health at the monotonic time `now_ms` [ms]: good if the last snapshot is at most three intervals old.
    ///
    /// # Errors
    /// Otherwise; says since when snapshots are missing.
    pub fn health(&self, now_ms: u64) -> Result<&'static str, String> {
        let state = self.lock();
        if state.samples.is_empty() {
            return Err("no sample yet".to_owned());
        }
        let age = now_ms.saturating_sub(state.published_ms) as f64 / 1e3;
        if age > 3.0 * state.interval.as_secs_f64() {
            return Err(format!("no sample for {age:.0} s"));
        }
        Ok(if state.last.as_ref().is_some_and(|s| s.spacelink.up) { "ok" } else { "ok, spacelink down" })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Every peer, with its rates.
    fn peers(&self) -> impl Iterator<Item = (&PeerState, PeerRates)> {
        let peers = self.last.iter().flat_map(|last| &last.peers);
        peers.zip(self.peers.iter().copied().chain(std::iter::repeat(PeerRates::UNKNOWN)))
    }

    /// A JSON document with `value` under this key.
    fn document(&self, key: &str, value: Value) -> String {
        json!({ "version": env!("CARGO_PKG_VERSION"), "role": self.about.role.name(), key: value })
            .to_string()
    }

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
        let were: BTreeMap<&str, &PeerState> =
            before.peers.iter().map(|peer| (peer.name.as_str(), peer)).collect();
        let rates = |peer: &PeerState| match were.get(peer.name.as_str()) {
            Some(was) => {
                let shared = (&before.queue, &after.queue);
                PeerRates::between(was, peer, shared, time)
            }
            None => PeerRates::UNKNOWN,
        };
        self.peers = after.peers.iter().map(rates).collect();
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
