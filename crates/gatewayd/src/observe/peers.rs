//! Peers over an interval: rates, delay, loss, an estimate of the quality of calls, and the bottleneck of each; and plans.

use std::collections::BTreeMap;

use bentpipe_units::Duration;
use serde_json::{Value, json};

use crate::observe::bottleneck::{Bottleneck, bottleneck};
use crate::observe::metrics::{PeerQueue, PeerState};
use crate::observe::voice;

/// A peer in an interval; NaN for values that could not be measured.
#[derive(Clone, Copy, Debug)]
pub struct PeerRates {
    /// Sent to it [bit/s].
    pub sent: f64,
    /// Received from it [bit/s].
    pub received: f64,
    /// Packets that the link lost / sent packets.
    pub loss: f64,
    /// Packets that its queues dropped / packets for it.
    pub drops: f64,
    /// Mean delay of the transmit queue [s].
    pub delay: f64,
    /// Estimated MOS of a call towards it ([`voice`]); `None` if delay or loss is unknown.
    pub mos: Option<f64>,
    /// The limit of the throughput towards it.
    pub bottleneck: Bottleneck,
}

impl PeerRates {
    /// Before the second snapshot.
    pub const UNKNOWN: Self = Self {
        sent: f64::NAN,
        received: f64::NAN,
        loss: f64::NAN,
        drops: f64::NAN,
        delay: f64::NAN,
        mos: None,
        bottleneck: Bottleneck::Nothing,
    };

    /// A peer between two states, whose packets pass its own queues, or else the queues `shared` by all.
    #[must_use]
    pub fn between(
        was: &PeerState,
        peer: &PeerState,
        shared: (&PeerQueue, &PeerQueue),
        time: Duration,
    ) -> Self {
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / time.as_secs_f64();
        let packets = per_second(peer.sent_packets, was.sent_packets);
        let lost = per_second(peer.lost_packets, was.lost_packets);
        let loss = if packets > 0.0 { lost / packets } else { f64::NAN };
        let (before, after) = was.queue.as_ref().zip(peer.queue.as_ref()).unwrap_or(shared);
        let (delay, drops) = (after.delay_since(before), after.drop_ratio_since(before));
        let one_way = peer.round_trip.map_or(f64::NAN, |time| time.as_secs_f64() / 2.0);
        // Without packets the link has lost none.
        let link = if loss.is_nan() { 0.0 } else { loss.min(1.0) };
        let silent = peer.silent || !peer.up;
        Self {
            sent: 8.0 * per_second(peer.sent_bytes, was.sent_bytes),
            received: 8.0 * per_second(peer.received_bytes, was.received_bytes),
            loss,
            drops,
            delay,
            mos: voice::call(one_way + delay, 1.0 - (1.0 - drops) * (1.0 - link)).filter(|_| !silent),
            bottleneck: bottleneck(&was.evidence, &peer.evidence, time, peer.capacity),
        }
    }

    /// The peer as JSON.
    #[must_use]
    pub fn row(&self, peer: &PeerState) -> Value {
        json!({
            "terminal": if peer.name.is_empty() { "-" } else { &peer.name },
            "plan": (!peer.plan.is_empty()).then_some(&peer.plan),
            "state": if !peer.up { "down" } else if peer.silent { "outage" } else { "up" },
            "sent_bps": self.sent,
            "received_bps": self.received,
            "capacity_bps": peer.capacity.map(|rate| rate.as_bps()),
            "queue_packets": peer.queue.map(|queue| queue.packets),
            "queue_bytes": peer.queue.map(|queue| queue.bytes),
            "queue_delay_s": self.delay,
            "drop_ratio": self.drops,
            "loss_ratio": self.loss,
            "rtt_s": peer.round_trip.map(|time| time.as_secs_f64()),
            "mos": self.mos,
            "connections": peer.connections,
            "buffered_bytes": peer.evidence.buffered,
            "bottleneck": self.bottleneck.name(),
        })
    }
}

/// The terminals of a plan.
#[derive(Default)]
struct Plan {
    terminals: u64,
    up: u64,
    connections: u64,
    queue_bytes: u64,
    /// Rate towards each connected terminal [bit/s].
    sent: Vec<f64>,
    received: f64,
    mos: Vec<f64>,
}

/// Every plan, by name, with its terminals together. Those without a plan are one more, without a name.
#[must_use]
pub fn plans<'a>(peers: impl Iterator<Item = (&'a PeerState, PeerRates)>) -> Vec<Value> {
    let mut plans: BTreeMap<&str, Plan> = BTreeMap::new();
    for (peer, rates) in peers {
        let plan = plans.entry(&peer.plan).or_default();
        plan.terminals += 1;
        plan.connections += peer.connections;
        plan.queue_bytes += peer.queue.map_or(0, |queue| queue.bytes);
        plan.mos.extend(rates.mos);
        if peer.up {
            plan.up += 1;
            plan.sent.push(if rates.sent.is_nan() { 0.0 } else { rates.sent });
            plan.received += if rates.received.is_nan() { 0.0 } else { rates.received };
        }
    }
    let row = |(name, mut plan): (&str, Plan)| {
        let (sum, squares) = (plan.sent.iter().sum::<f64>(), plan.sent.iter().map(|x| x * x).sum::<f64>());
        plan.mos.sort_by(f64::total_cmp);
        json!({
            "plan": (!name.is_empty()).then_some(name),
            "terminals": plan.terminals,
            "up": plan.up,
            "connections": plan.connections,
            "queue_bytes": plan.queue_bytes,
            "sent_bps": sum,
            "received_bps": plan.received,
            // Jain, Chiu and Hawe 1984; null without traffic.
            "jain_index": sum * sum / (plan.sent.len() as f64 * squares),
            "mos_least": plan.mos.first(),
            "mos_median": plan.mos.get(plan.mos.len() / 2),
        })
    };
    plans.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use bentpipe_queue::Counters;
    use bentpipe_units::Rate;

    use super::*;
    use crate::observe::bottleneck::Evidence;

    fn peer(name: &str, plan: &str, sent_bytes: u64) -> PeerState {
        PeerState {
            name: name.to_owned(),
            plan: plan.to_owned(),
            up: true,
            sent_bytes,
            ..PeerState::default()
        }
    }

    /// A second in which 100 of 400 packets are dropped, 300 leave after 60 packet seconds (0.2 s each) and the link, 180 ms
    /// long, loses 1 % of 200 packets. A call has 0.18 + 0.2 + 0.06 s and 25.75 % of loss.
    #[test]
    fn quality_is_that_of_delay_and_loss_at_the_terminals_queue() {
        let queue = |packet_seconds, n| {
            let c = Counters {
                offered: 4 * n,
                dropped_on_arrival: n,
                enqueued: 3 * n,
                sent: 3 * n,
                ..Counters::default()
            };
            PeerQueue { packets: 9, bytes: 9000, packet_seconds, counters: [Counters::default(), c] }
        };
        let at = |n: u64| PeerState {
            queue: Some(queue(60.0 * n as f64, 100 * n)),
            round_trip: Some(Duration::from_millis(360)),
            sent_packets: 200 * n,
            lost_packets: 2 * n,
            capacity: Some(Rate::from_bps(1_000_000)),
            evidence: Evidence {
                payload: n,
                packet_seconds: 60.0 * n as f64,
                up: true,
                ..Evidence::default()
            },
            ..peer("a", "", 125_000 * n)
        };
        let shared = PeerQueue::default();
        let between = |was: &PeerState, now: &PeerState| {
            PeerRates::between(was, now, (&shared, &shared), Duration::from_secs(1))
        };
        let rates = between(&at(1), &at(2));
        assert!((rates.sent - 1e6).abs() < 1e-6 && (rates.loss - 0.01).abs() < 1e-12);
        assert!((rates.drops - 0.25).abs() < 1e-12 && (rates.delay - 0.2).abs() < 1e-12);
        let expected = voice::mos(voice::rating(440.0, 25.75));
        assert!((rates.mos.unwrap() - expected).abs() < 1e-9, "{:?}, not {expected}", rates.mos);
        assert_eq!(rates.bottleneck, Bottleneck::Regulator);
        assert_eq!(rates.row(&at(2))["queue_bytes"], 9000);
        // In an outage a call has no quality.
        assert_eq!(between(&at(1), &PeerState { silent: true, ..at(2) }).mos, None);
        // Without its own queues those of all count.
        let own = |n| PeerState { queue: None, ..at(n) };
        let (before, after) = (queue(0.0, 0), queue(30.0, 100));
        let rates = PeerRates::between(&own(1), &own(2), (&before, &after), Duration::from_secs(1));
        assert!((rates.delay - 0.1).abs() < 1e-12);
    }

    /// 1, 2 and 3 Mbit/s: Jain's index is 36 / (3 * 14). A terminal that is down has no share.
    #[test]
    fn plans_are_sums_of_their_terminals() {
        let of = |sent| PeerRates { sent, received: 1.0, mos: Some(sent / 1e6), ..PeerRates::UNKNOWN };
        let down = PeerState { up: false, ..peer("d", "x", 0) };
        let all = [
            (peer("a", "x", 0), of(1e6)),
            (peer("b", "x", 0), of(2e6)),
            (peer("c", "x", 0), of(3e6)),
            (down, PeerRates::UNKNOWN),
            (peer("e", "", 0), of(5e6)),
        ];
        let rows = plans(all.iter().map(|(peer, rates)| (peer, *rates)));
        assert_eq!((rows.len(), &rows[0]["plan"], &rows[1]["plan"]), (2, &Value::Null, &"x".into()));
        let x = &rows[1];
        assert_eq!((&x["terminals"], &x["up"], &x["sent_bps"]), (&4.into(), &3.into(), &6e6.into()));
        assert!((x["jain_index"].as_f64().unwrap() - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!((&x["mos_least"], &x["mos_median"]), (&1.0.into(), &2.0.into()));
    }
}
