//! SSF, smallest sequence number first: serves the packet closest to the beginning of its flow.
//!
//! Jain & Modiano, section II. The bytes that a flow has sent are a lower bound of its length, so short transfers, and
//! the beginnings of long ones, go first: packets leave by their position in the flow, the least first, and if there is
//! no room the packet with the greatest is dropped, including the arriving one. Among equal positions the earliest
//! arrival leaves first and the latest is dropped. With `position = "sequence"` the position is the sequence number
//! relative to the SYN's, unwrapped [bytes], so that a retransmission ranks by its position; with `"seen"` it is the
//! number of packets of the flow that have arrived before, the paper's remedy for arbitrary initial numbers. With
//! `order = "packet"` each packet is ranked by itself, so a retransmission overtakes its flow; with `order = "flow"`
//! all packets of a flow are ranked by the position of its latest and leave in the order of arrival.
//!
//! *Departures:* the paper ranks each packet by itself; `order = "flow"` is a choice. Positions of a flow without a SYN
//! count from its first packet. Packets without TCP are ranked by `other` (in packets of the length of each if positions
//! are), by default the median of the positions of the waiting TCP packets (of those that waited last, if none does). A
//! flow is removed when it ends; an unannounced one after a minute without packets: then it starts again.
//!
//! *In a satellite gateway:* for links shared by short and long transfers, to speed up web pages. A long transfer ranks
//! ever lower, and is slowed down more as the load approaches the capacity (several times its time behind a FIFO at
//! 0.8, little at 0.5): while enough new flows arrive to fill the link it stops, and on a link overloaded for minutes
//! it may time out and fail. Many requests on one connection make it a long flow. It signals no congestion: put an AQM
//! ahead of it. It orders the transmit queue; there a satellite packet has the position of its bytes in the server's
//! stream, and when the queue is full the dropped packet is one that the PEP has already accepted and retransmits. If a
//! user or a prefix is the flow, choose `position = "seen"`: the sequence numbers of several connections are not
//! comparable.

use bentpipe_units::{Duration, Instant, Rng};

use super::ranked::{self, Ranked};
use crate::descriptor::SchedulerAlgorithm;
use crate::{
    Context, FlowEvent, FlowId, FlowTable, Packet, Param, QueueSlot, Scheduler, SchedulerHost, Tcp, Tune,
    Values,
};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "ssf",
    title: "Smallest sequence number first",
    source: "Jain & Modiano",
    params: PARAMS,
    signals: false,
    build: |values| Ok(Box::new(Ssf::new(values))),
};

const PARAMS: &[Param] = &[
    Param::name(
        "position",
        &["sequence", "seen"],
        "sequence",
        "Position in the flow: bytes since its SYN, or packets that have arrived",
    )
    .origin("the paper's; the other is its remedy")
    .tune(Tune::Each),
    ranked::ORDER,
    ranked::OTHER,
];

/// Time for which an unannounced flow is kept without packets.
const SILENCE: Duration = Duration::from_secs(60);

/// SSF's state.
#[derive(Debug)]
pub struct Ssf {
    ranked: Ranked,
    flows: FlowTable<Known>,
    seen: bool,
    /// Rank of packets without TCP, unless the median is used [bytes].
    other: u64,
}

/// State of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Maximum position so far [bytes], or packets so far.
    top: u64,
    /// Time of the last arrival.
    last_arrival: Instant,
    /// Sequence number from which positions count, once there was a TCP packet.
    begin: u32,
    has_begun: bool,
    announced: bool,
}

// An entry of the table, of which one is read for each packet.
const _: () = assert!(size_of::<Option<(FlowId, Known)>>() == 32);

impl Ssf {
    fn new(values: &Values) -> Self {
        Self {
            ranked: Ranked::new(values),
            flows: FlowTable::default(),
            seen: values.name("position") == "seen",
            other: values.number("other") as u64,
        }
    }
}

impl Known {
    /// Counts a packet, and returns the number of those before it.
    fn count(&mut self) -> u64 {
        self.top += 1;
        self.top - 1
    }

    /// Returns the position of a sequence number [bytes]: of all positions that it may stand for, the one nearest to
    /// the greatest so far.
    fn position(&mut self, tcp: &Tcp) -> u64 {
        // A SYN with another number belongs to another connection; with the same it is a retransmission.
        if !self.has_begun || tcp.syn && self.begin != tcp.seq {
            (self.begin, self.has_begun, self.top) = (tcp.seq, true, 0);
        }
        let expected = self.begin.wrapping_add(self.top as u32);
        let ahead = tcp.seq.wrapping_sub(expected).cast_signed();
        let position = self.top.saturating_add_signed(i64::from(ahead));
        self.top = self.top.max(position);
        position
    }
}

impl Scheduler for Ssf {
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        let now = cx.now;
        self.flows.sweep(2, |_, known| known.announced || now - known.last_arrival <= SILENCE);
        let rank = match &pkt.tcp {
            Some(tcp) => {
                let known = self.flows.get_or_insert_with(pkt.flow, Known::default);
                known.last_arrival = now;
                if self.seen { known.count() } else { known.position(tcp) }
            }
            None => match self.ranked.median() {
                Some(median) => median,
                None if self.seen => self.other / u64::from(pkt.len.max(1)),
                None => self.other,
            },
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

    fn flow(&mut self, flow: FlowId, event: FlowEvent) {
        match event {
            FlowEvent::Opened => {
                let known = Known { announced: true, ..Known::default() };
                *self.flows.get_or_insert_with(flow, || known) = known;
            }
            FlowEvent::Closed => drop(self.flows.remove(flow)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare::BareScheduler;
    use super::*;
    use crate::Value;

    fn sent(handle: u32, flow: u32, seq: u32, syn: bool) -> Packet {
        Packet { tcp: Some(Tcp { window: 0, seq, syn }), ..Packet::new(1000, FlowId(flow), handle) }
    }

    fn steps(position: &'static str, order: &'static str, packets: u32) -> BareScheduler {
        let given = [("position", Value::Name(position)), ("order", Value::Name(order))];
        BareScheduler::new(&ALGORITHM, &given, packets)
    }

    /// Flow 1 begins at 4,294,966,000, 1296 before the numbers wrap, and has sent five segments: SYN at position 0,
    /// then 1, 1001, 2001 (number 705), 3001. Flow 2 begins at 7: positions 0, 1 and 1001. The first of flow 1 is then
    /// retransmitted: position 1, as the other, but later. By sequence numbers: SYNs (1, 6), then those at 1 (2, 7, 9),
    /// at 1001 (3, 8), 2001, 3001. By packets seen, flow 1 counts 0 to 5 and flow 2 0 to 2: in pairs, and the
    /// retransmission last.
    #[test]
    fn positions_count_from_the_syn_and_are_unwrapped() {
        let begin = 4_294_966_000_u32;
        for (position, expected) in
            [("sequence", [1, 6, 2, 7, 9, 3, 8, 4, 5]), ("seen", [1, 6, 2, 7, 3, 8, 4, 5, 9])]
        {
            let mut steps = steps(position, "packet", 100);
            for (handle, place) in [(1, 0), (2, 1), (3, 1001), (4, 2001), (5, 3001)] {
                steps.push(sent(handle, 1, begin.wrapping_add(place), handle == 1));
            }
            for (handle, place) in [(6, 0), (7, 1), (8, 1001)] {
                steps.push(sent(handle, 2, 7 + place, handle == 6));
            }
            steps.push(sent(9, 1, begin.wrapping_add(1), false));
            assert_eq!(steps.rest(), expected, "{position}");
        }
    }

    /// A flow of 3 · 2^32 B in steps of 2^30: its numbers wrap three times, but each of its packets ranks after a
    /// packet of another flow with a slightly smaller position, and before one with a slightly greater.
    #[test]
    fn positions_continue_beyond_four_gigabytes() {
        let mut known = Known::default();
        let begin = 0xdead_beef_u32;
        let at = |place: u64, syn| Tcp { window: 0, seq: begin.wrapping_add(place as u32), syn };
        assert_eq!(known.position(&at(0, true)), 0);
        for step in 1..=12_u64 {
            let place = step << 30;
            assert_eq!(known.position(&at(place, false)), place);
            // A retransmission up to 2^31 B back, and the SYN, while it is no farther.
            assert_eq!(known.position(&at(place - (1 << 30), false)), place - (1 << 30));
        }
        // A connection that reuses the flow's number starts again.
        assert_eq!(known.position(&Tcp { window: 0, seq: 77, syn: true }), 0);
        assert_eq!(known.position(&Tcp { window: 0, seq: 78, syn: false }), 1);
        // A retransmitted SYN is no other connection.
        assert_eq!(known.position(&Tcp { window: 0, seq: 1078, syn: false }), 1001);
        assert_eq!(known.position(&Tcp { window: 0, seq: 77, syn: true }), 0);
        assert_eq!(known.position(&Tcp { window: 0, seq: 2078, syn: false }), 2001);
    }

    /// In a flow without a SYN the first packet has position 0; an earlier one that arrives later has too.
    #[test]
    fn flow_without_syn_starts_at_its_first_packet() {
        let mut known = Known::default();
        let at = |seq| Tcp { window: 0, seq, syn: false };
        assert_eq!([5000, 6000, 4000, 7000].map(|seq| known.position(&at(seq))), [0, 1000, 0, 2000]);
    }

    /// Room for three, taken by flow 1's positions 1, 1001 and 2001. The first of flow 2 arrives: 2001 is dropped. The
    /// second of flow 1 arrives again: it has 1001 as well, and is the latest: dropped. By flows: flow 1 ranks at 2001,
    /// its newest is dropped; then at 1001 with all its packets, the arriving one its newest: dropped.
    #[test]
    fn greatest_position_is_dropped() {
        for order in ["packet", "flow"] {
            let mut steps = steps("sequence", order, 3);
            steps.flow(1, FlowEvent::Opened);
            steps.push(sent(0, 1, 9, true));
            assert_eq!(steps.pop(), Some(0));
            for (handle, seq) in [(1, 10), (2, 1010), (3, 2010)] {
                assert_eq!(steps.push(sent(handle, 1, seq, false)), []);
            }
            assert_eq!(steps.push(sent(4, 2, 500, true)), [3]);
            assert_eq!(steps.push(sent(5, 1, 1010, false)), [5]);
            assert_eq!(steps.rest(), [4, 1, 2], "{order}");
        }
    }

    /// Flows that end are removed at once; unannounced ones a minute after their last packet, when packets of others
    /// arrive; announced ones are kept.
    #[test]
    fn inactive_flows_are_removed() {
        let given = [("position", Value::Name("seen"))];
        let values = Values::resolve(PARAMS, &link(), &|name| {
            given.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
        });
        let mut ssf = Ssf::new(&values.unwrap());
        let mut rng = Rng::stream(1, "ssf", 0, "test");
        let state = BareScheduler::new(&ALGORITHM, &[], u32::MAX).state;
        let mut push = |ssf: &mut Ssf, now: u64, flow: u32| {
            let mut cx = Context::new(Instant::ZERO + Duration::from_secs(now), &state, &mut rng);
            ssf.push(&sent(0, flow, 5, false), &mut cx, &mut Deaf);
        };
        for flow in [1, 2] {
            ssf.flow(FlowId(flow), FlowEvent::Opened);
        }
        for flow in 0..1000 {
            push(&mut ssf, 0, flow);
        }
        ssf.flow(FlowId(2), FlowEvent::Closed);
        assert_eq!((ssf.flows.len(), ssf.flows.get(FlowId(1)).unwrap().top), (999, 1));
        for _ in 0..2000 {
            push(&mut ssf, 60, 5000);
        }
        assert_eq!(ssf.flows.len(), 1000, "a minute is not over");
        for _ in 0..2000 {
            push(&mut ssf, 61, 5000);
        }
        assert_eq!(ssf.flows.len(), 2);
        assert!(ssf.flows.get(FlowId(1)).is_some() && ssf.flows.get(FlowId(5000)).unwrap().top == 4000);
    }

    fn link() -> crate::Link {
        crate::Link { capacity: bentpipe_units::Rate::from_bps(1_000_000), mean_packet: 1000.0 }
    }

    struct Deaf;

    impl SchedulerHost for Deaf {
        fn dropped(&mut self, _: Packet, _: crate::DropReason) {}

        fn mark(&mut self, pkt: Packet) -> Option<Packet> {
            Some(pkt)
        }
    }

    /// Nine packets of three flows are removed as they are drawn: each once, and then none waits.
    #[test]
    fn drawn_packets_are_removed_once() {
        for order in ["packet", "flow"] {
            let mut steps = steps("sequence", order, 10);
            (0..9).for_each(|handle| drop(steps.push(sent(handle, handle % 3, 1000 * handle, handle < 3))));
            let mut removed: Vec<_> = std::iter::from_fn(|| steps.remove()).collect();
            removed.sort_unstable();
            assert_eq!(removed, (0..9).collect::<Vec<_>>(), "{order}");
            assert_eq!(steps.rest(), []);
        }
    }

    /// A rank of 2500 bytes, or of two packets of 1000: a packet without TCP, the first to arrive, leaves ahead of the
    /// other flow's third packet by count, and ahead of its fourth by position.
    #[test]
    fn packets_without_tcp_have_the_given_rank() {
        for (position, expected) in [("seen", [1, 2, 0, 3, 4]), ("sequence", [1, 2, 3, 0, 4])] {
            let given = [("position", Value::Name(position)), ("other", Value::Number(2500.0))];
            let mut steps = BareScheduler::new(&ALGORITHM, &given, 10);
            steps.push(Packet::new(1000, FlowId(9), 0));
            for handle in 1..5 {
                steps.push(sent(handle, 1, 1000 * handle, handle == 1));
            }
            assert_eq!(steps.rest(), expected, "{position}");
        }
    }
}
