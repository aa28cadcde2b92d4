//! SWF, smallest window first: serves the packet whose sender had the smallest congestion window.
//!
//! Jain & Modiano, section II. A sender at the beginning of a transfer, or just after losses, has a small window and
//! waits for each packet of it; one with a large window has others in flight. So packets leave by the window that their
//! sender had when it sent them [bytes], the smallest first, and if there is no room the packet with the largest window
//! is dropped, including the arriving one. Among equal windows the earliest arrival leaves first and the latest is
//! dropped. With `order = "packet"` each packet is ranked by its own window, so the packets of a flow whose window has
//! halved overtake its earlier ones; with `order = "flow"` all packets of a flow are ranked by the window of its latest
//! and leave in the order of arrival.
//!
//! *Departures:* the paper ranks each packet by itself; `order = "flow"` is a choice for receivers that take reordering
//! for loss. It has a price: a growing window delays the packets sent before it grew. With files of 10 and 100 KB over
//! 1 Mbit/s at a load of 0.8, even the short ones then take longer than behind a FIFO. Packets without TCP have no
//! window and are ranked by `other`, by default the median of the windows of the waiting TCP packets (of those that
//! waited last, if none does). The window is exact in the simulator. A live gateway estimates it: the highest byte seen
//! from the sender minus the last byte acknowledged to it.
//!
//! *In a satellite gateway:* for links shared by short and long transfers, to speed up web pages. It favours flows that
//! TCP has slowed down already, so long transfers are delayed but continue; still, a flow with a large window waits
//! while packets with smaller ones arrive: little at half load, half as long again and more as the load approaches the
//! capacity. It signals no congestion: put an AQM ahead of it. It orders the transmit queue; there a satellite packet
//! is ranked by the last known window of the server whose bytes it carries, and when the queue is full the dropped
//! packet is one that the PEP has already accepted and retransmits. Behind a PEP reordering only delays bytes that wait
//! for earlier ones; without a PEP, TCP takes it for loss. A live gateway with split connections sees little of what a
//! sender has in flight, so its estimates are low.

use bentpipe_units::Rng;

use super::ranked::{self, Ranked};
use crate::descriptor::SchedulerAlgorithm;
use crate::{Context, Packet, Param, QueueSlot, Scheduler, SchedulerHost, Values};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "swf",
    title: "Smallest window first",
    source: "Jain & Modiano",
    params: PARAMS,
    signals: false,
    build: |values| Ok(Box::new(Swf::new(values))),
};

const PARAMS: &[Param] = &[ranked::ORDER, ranked::OTHER];

/// SWF's state.
#[derive(Debug)]
pub struct Swf {
    ranked: Ranked,
    /// Rank of packets without TCP, unless the median is used [bytes].
    other: u64,
}

impl Swf {
    fn new(values: &Values) -> Self {
        Self { ranked: Ranked::new(values), other: values.number("other") as u64 }
    }
}

impl Scheduler for Swf {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let rank = match pkt.tcp {
            Some(tcp) => u64::from(tcp.window),
            None => self.ranked.median().unwrap_or(self.other),
        };
        self.ranked.push(pkt, rank, cx, out);
    }

    fn pop(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) -> Option<Packet> {
        self.ranked.pop()
    }

    fn peek(&self) -> Option<&Packet> {
        self.ranked.peek()
    }

    fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        self.ranked.sample(rng)
    }

    fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
        self.ranked.remove(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare::BareScheduler;
    use super::*;
    use crate::{FlowId, Tcp, Value};

    fn sent(handle: u32, flow: u32, window: u32) -> Packet {
        Packet { tcp: Some(Tcp { window, seq: 0, syn: false }), ..Packet::new(1000, FlowId(flow), handle) }
    }

    fn steps(order: &'static str, other: f64, packets: u32) -> BareScheduler {
        let given = [("order", Value::Name(order)), ("other", Value::Number(other))];
        BareScheduler::new(&ALGORITHM, &given, packets)
    }

    /// Flow 1 sends 1 and 2 with a window of 8000 B, flow 2 sends 3 with 4000 and flow 3 sends 4 with 8000; then flow
    /// 1, its window halved, sends 5 with 4000. By packets: 3 and 5 have 4000, then 1, 2 and 4 have 8000, each in order
    /// of arrival: 5 has overtaken 1 and 2. By flows: flow 1 has 4000 for all of its packets, and its oldest arrived
    /// before 3: 1, then 2 (which arrived before 3 too); then 3 before 5; 4 last.
    #[test]
    fn smallest_window_leaves_first() {
        for (order, expected) in [("packet", [3, 5, 1, 2, 4]), ("flow", [1, 2, 3, 5, 4])] {
            let mut steps = steps(order, 0.0, 10);
            for (handle, flow, window) in
                [(1, 1, 8000), (2, 1, 8000), (3, 2, 4000), (4, 3, 8000), (5, 1, 4000)]
            {
                assert_eq!(steps.push(sent(handle, flow, window)), []);
            }
            assert_eq!(steps.rest(), expected, "{order}");
        }
    }

    /// Room for three, taken by windows of 3000, 9000 and 5000 B. One of 4000 arrives: 9000 is dropped. One of 6000
    /// arrives and is the largest: dropped. One of 5000 arrives: of the two with 5000 the latest is dropped, the
    /// arriving one.
    #[test]
    fn largest_window_is_dropped_including_the_arriving_one() {
        let mut steps = steps("packet", 0.0, 3);
        for (handle, window, lost) in [
            (1, 3000, vec![]),
            (2, 9000, vec![]),
            (3, 5000, vec![]),
            (4, 4000, vec![2]),
            (5, 6000, vec![5]),
            (6, 5000, vec![6]),
        ] {
            assert_eq!(steps.push(sent(handle, handle, window)), lost, "packet {handle}");
        }
        assert_eq!(steps.rest(), [1, 4, 3]);
    }

    /// Room for three: flow 1 has 1 and 2 waiting with 2000 B, flow 2 has 3 with 5000. Then flow 1 sends 4 with a
    /// window of 6000, and so ranks last with all its packets: its newest, 4, is dropped; 3 leaves before 1 and 2. With
    /// individual ranks 4 would have been dropped too, but 1 and 2 would have left first.
    #[test]
    fn flow_ranks_by_its_latest_packet() {
        for (order, expected) in [("flow", [3, 1, 2]), ("packet", [1, 2, 3])] {
            let mut steps = steps(order, 0.0, 3);
            for (handle, flow, window) in [(1, 1, 2000), (2, 1, 2000), (3, 2, 5000)] {
                steps.push(sent(handle, flow, window));
            }
            assert_eq!(steps.push(sent(4, 1, 6000)), [4], "{order}");
            assert_eq!(steps.rest(), expected, "{order}");
        }
    }

    /// Flow 1 has a packet waiting with 2000 B, and then one with 3000; from then on a new flow brings one with 2500
    /// for each that leaves. By packets the first leaves at once and only the second waits until these end; by flows
    /// the second delays the first behind 2500: while the others arrive neither leaves, short as the flow is.
    #[test]
    fn growing_window_delays_its_flow() {
        for (order, first) in [("packet", 0), ("flow", 100)] {
            let mut steps = steps(order, 0.0, 10);
            steps.push(sent(1000, 1, 2000));
            steps.push(sent(1001, 1, 3000));
            let mut left = Vec::new();
            for handle in 0..100 {
                steps.push(sent(handle, 10 + handle, 2500));
                left.extend(steps.pop());
            }
            left.extend(steps.rest());
            assert_eq!(left.iter().position(|&handle| handle == 1000), Some(first), "{order}");
            assert_eq!(left.last(), Some(&1001), "{order}");
        }
    }

    /// Windows of 2000, 4000 and 9000 B wait: a datagram ranks with 4000, behind the packet that arrived before it, and
    /// so does a second one, because datagrams do not change the median. With `other = "3 KB"` they rank between 2000
    /// and 4000.
    #[test]
    fn datagrams_rank_with_the_median_or_other() {
        for (other, expected) in [(0.0, [1, 2, 4, 5, 3]), (3000.0, [1, 4, 5, 2, 3])] {
            let mut steps = steps("packet", other, 10);
            for (handle, window) in [(1, 2000), (2, 4000), (3, 9000)] {
                steps.push(sent(handle, handle, window));
            }
            for handle in [4, 5] {
                steps.push(Packet::new(1000, FlowId(9), handle));
            }
            assert_eq!(steps.rest(), expected, "other {other}");
        }
    }

    /// Once the TCP packets have left, a datagram ranks with the last of them: with 4000 B, behind one of 3000 that
    /// arrives later, and before one of 5000.
    #[test]
    fn median_is_kept_without_tcp_packets() {
        let mut steps = steps("packet", 0.0, 10);
        steps.push(sent(1, 1, 4000));
        assert_eq!(steps.pop(), Some(1));
        for packet in [Packet::new(1000, FlowId(9), 2), sent(3, 1, 5000), sent(4, 1, 3000)] {
            steps.push(packet);
        }
        assert_eq!(steps.rest(), [4, 2, 3]);
    }

    /// Nine packets of three flows are removed as they are drawn: each once, and then none waits.
    #[test]
    fn drawn_packets_are_removed_once() {
        for order in ["packet", "flow"] {
            let mut steps = steps(order, 0.0, 10);
            (0..9).for_each(|handle| drop(steps.push(sent(handle, handle % 3, 1000 * handle))));
            let mut removed: Vec<_> = std::iter::from_fn(|| steps.remove()).collect();
            removed.sort_unstable();
            assert_eq!(removed, (0..9).collect::<Vec<_>>(), "{order}");
            assert_eq!(steps.rest(), []);
        }
    }
}
