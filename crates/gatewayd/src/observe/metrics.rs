//! The daemon's state at one time. The loop fills a [`Snapshot`] at every interval and hands it to
//! [`Shared`](super::state::Shared), from which the HTTP thread answers.

use bentpipe_queue::Counters;
use bentpipe_units::{Duration, Instant, Rate};

use crate::config::Role;
use crate::observe::bottleneck::Evidence;
use crate::observe::cause::Resets;
pub use crate::observe::histogram::{BOUNDS, Histogram};

/// State of one of the gateway's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Packets waiting.
    pub packets: u64,
    /// Bytes waiting.
    pub bytes: u64,
    /// Packets dropped by the AQM.
    pub aqm_drops: u64,
    /// Packets dropped for lack of room.
    pub overflow_drops: u64,
    /// Delays of the packets that left.
    pub delay: Histogram,
}

/// Traffic over the satellite, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent, without the spacelink's headers.
    pub sent: u64,
    /// Bytes received, without the spacelink's headers.
    pub received: u64,
}

/// The kinds of traffic, in the order of [`Snapshot::traffic`].
pub const CLASSES: [&str; 3] = ["tcp_split", "udp", "other"];

/// TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Open at both ends.
    pub open: u64,
    /// Not open at both ends yet.
    pub half_open: u64,
    /// Split since the start.
    pub accepted: u64,
    /// Connections refused at this end: unreachable server or no resources.
    pub refused: u64,
    /// Connections ended by a reset or a time-out.
    pub reset: u64,
    /// Resets by cause.
    pub resets: Resets,
    /// True while new connections bypass the PEP.
    pub bypassing: bool,
}

/// The spacelink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spacelink {
    /// True while the peer is connected.
    pub up: bool,
    /// Connections to the peer since the start.
    pub connections: u64,
    /// Smoothed round trip; `None` while down.
    pub round_trip: Option<Duration>,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets declared lost; their data is retransmitted.
    pub lost_packets: u64,
    /// Bytes of lost packets.
    pub lost_bytes: u64,
    /// Bytes sent, UDP and IP headers included.
    pub sent_bytes: u64,
    /// Bytes received, UDP and IP headers included.
    pub received_bytes: u64,
}

/// A peer: one of many terminals, or the only one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerState {
    /// Name of the terminal; empty for the only peer.
    pub name: String,
    /// True while it is connected.
    pub up: bool,
    /// True while an answer is overdue: an outage of its link.
    pub silent: bool,
    /// Smoothed round trip; `None` while down.
    pub round_trip: Option<Duration>,
    /// Bytes sent to it, UDP and IP headers included.
    pub sent_bytes: u64,
    /// Bytes received from it, UDP and IP headers included.
    pub received_bytes: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets declared lost.
    pub lost_packets: u64,
    /// Split connections.
    pub connections: u64,
    /// Name of its plan; empty without one.
    pub plan: String,
    /// Rate that it may have: its peak rate, or that of the carrier; `None` without a limit.
    pub capacity: Option<Rate>,
    /// Its own queues; `None` if all terminals share them.
    pub queue: Option<PeerQueue>,
    /// Evidence for its bottleneck.
    pub evidence: Evidence,
}

/// Queues that packets to a peer pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerQueue {
    /// Packets in the transmit queue.
    pub packets: u64,
    /// Bytes in the transmit queue.
    pub bytes: u64,
    /// Packets in the transmit queue, integrated over time [packet s].
    pub packet_seconds: f64,
    /// Counters of receive queue and transmit queue.
    pub counters: [Counters; 2],
}

impl PeerQueue {
    /// Packets dropped by both queues.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counters.iter().map(|c| c.dropped_on_arrival + c.dropped_in_queue + c.overflowed).sum()
    }

    /// Mean queueing delay of the packets that left the transmit queue since an earlier state [s]: packets waiting, integrated
    /// over time, by departures (Little's law). Zero if none left and none waited, NaN if those that wait do not leave.
    #[must_use]
    pub fn delay_since(&self, before: &Self) -> f64 {
        let waited = self.packet_seconds - before.packet_seconds;
        let left = self.counters[1].sent.saturating_sub(before.counters[1].sent);
        match left {
            0 if waited <= 0.0 => 0.0,
            0 => f64::NAN,
            left => waited / left as f64,
        }
    }

    /// Share of packets that the queues have dropped since an earlier state: on arrival, for want of room, or in the queue.
    #[must_use]
    pub fn drop_ratio_since(&self, before: &Self) -> f64 {
        let passed = self.counters.iter().zip(&before.counters).map(|(now, then)| {
            let since = |of: fn(&Counters) -> u64| of(now).saturating_sub(of(then)) as f64;
            let enqueued = since(|c| c.enqueued);
            let share = |dropped: f64, of: f64| if of > 0.0 { 1.0 - dropped / of } else { 1.0 };
            share(since(|c| c.dropped_on_arrival), since(|c| c.offered))
                * share(since(|c| c.overflowed), enqueued + since(|c| c.overflowed))
                * share(since(|c| c.dropped_in_queue), enqueued)
        });
        1.0 - passed.product::<f64>()
    }
}

/// Packets that a netfilter queue lost without a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfqueueLost {
    /// Number of the queue.
    pub queue: u16,
    /// Packets that found the kernel's queue full.
    pub queue_full: u64,
    /// Packets that found the daemon's netlink buffer full.
    pub buffer_full: u64,
}

/// The state at one time. Counters count from the start.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub now: Instant,
    /// Receive queue, ahead of the PEP.
    pub receive: QueueState,
    /// Transmit queue, behind the PEP.
    pub transmit: QueueState,
    /// Packets that the AQM holds at the mark point.
    pub held: u64,
    /// Packets offered to the AQM.
    pub aqm_offered_packets: u64,
    /// Bytes offered to the AQM.
    pub aqm_offered_bytes: u64,
    /// Packets of split connections that bypassed the AQM during an outage.
    pub aqm_bypassed_packets: u64,
    /// Packets with which the AQM signalled congestion, by a mark or a drop.
    pub marked: u64,
    /// Losses of the netfilter queues.
    pub nfqueue: Vec<NfqueueLost>,
    /// Rate of the regulator; `None` without a limit.
    pub capacity: Option<Rate>,
    /// Bytes sent beyond those released, which the regulator still has to wait for.
    pub debt: u64,
    /// Traffic by [`CLASSES`].
    pub traffic: [Traffic; CLASSES.len()],
    /// TCP connections.
    pub connections: Connections,
    /// Bytes held by the PEP.
    pub buffered: u64,
    /// Mean limit of an open buffer [bytes], NaN if none is open; `None` without window marking.
    pub buffer_limit: Option<f64>,
    /// The spacelink.
    pub spacelink: Spacelink,
    /// Every peer.
    pub peers: Vec<PeerState>,
    /// The queues of all peers together.
    pub queue: PeerQueue,
    /// Internal state of AQM and scheduler: owner, name, value.
    pub probes: Vec<(&'static str, &'static str, f64)>,
    /// Evidence for the bottleneck.
    pub evidence: Evidence,
}

/// State that changes seldom.
#[derive(Clone, Debug)]
pub struct About {
    /// This end.
    pub role: Role,
    /// Name of the AQM.
    pub aqm: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Effect of a mark.
    pub marking: String,
    /// Time of the last reload of the configuration [s since 1970], and true if it succeeded.
    pub reloaded: (f64, bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 200 packets offered 20 are dropped on arrival; of the 180 that come to the transmit queue 18 find no room, and of the 162
    /// in it 81 are dropped there: 0.9 * 0.9 * 0.5 = 0.405 pass. 81 leave, after 8.1 packet seconds.
    #[test]
    fn delay_and_drops_are_those_of_the_interval() {
        let before = PeerQueue::default();
        let receive = Counters { enqueued: 180, ..Counters::default() };
        let transmit = Counters {
            offered: 200,
            dropped_on_arrival: 20,
            enqueued: 162,
            overflowed: 18,
            dropped_in_queue: 81,
            sent: 81,
            ..Counters::default()
        };
        let after = PeerQueue { packet_seconds: 8.1, counters: [receive, transmit], ..before };
        assert!((after.drop_ratio_since(&before) - 0.595).abs() < 1e-12);
        assert!((after.delay_since(&before) - 0.1).abs() < 1e-12);
        assert_eq!(after.dropped(), 119);
        // Nothing happened since.
        assert_eq!((after.drop_ratio_since(&after), after.delay_since(&after)), (0.0, 0.0));
        // Packets wait, and none leaves.
        let stuck = PeerQueue { packet_seconds: 9.0, ..after };
        assert!(stuck.delay_since(&after).is_nan());
    }
}
