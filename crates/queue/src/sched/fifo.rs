//! FIFO, first in, first out: one queue for all flows; a full queue drops the arriving packet (tail drop).
//!
//! Folklore. Packets leave in the order of arrival.
//!
//! *Departures:* none.
//!
//! *In a satellite gateway:* what most gateways have, and sufficient if an AQM ahead of the PEP keeps the transmit
//! queue short. It isolates no flows: a faster flow gets more, and every flow has the same delay. The order within each
//! connection is kept, so it causes no reordering on the satellite side.

use std::collections::VecDeque;

use bentpipe_units::Rng;

use crate::descriptor::SchedulerAlgorithm;
use crate::{Context, DropReason, Packet, QueueSlot, Scheduler, SchedulerHost};

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "fifo",
    title: "First in, first out",
    source: "folklore",
    params: &[],
    signals: false,
    build: |_| Ok(Box::new(Fifo::default())),
};

/// First in, first out.
#[derive(Debug, Default)]
pub struct Fifo {
    /// A packet removed out of order leaves its place as a gap; the head is never a gap, and there are at most as many
    /// gaps as packets.
    waiting: VecDeque<Packet>,
    /// Number of the place at the head; places are numbered in the order of arrival.
    first: u64,
    /// Numbers of the gaps, in order. (An `Option` of each packet would cost a fifth more time.)
    gaps: VecDeque<u64>,
}

impl Fifo {
    /// Removes gaps at the head, and all of them if they are more than the packets.
    #[cold]
    fn close(&mut self) {
        while self.gaps.front() == Some(&self.first) {
            self.gaps.pop_front();
            self.waiting.pop_front();
            self.first += 1;
        }
        if 2 * self.gaps.len() > self.waiting.len() {
            let mut number = self.first..;
            self.waiting
                .retain(|_| number.next().is_some_and(|number| self.gaps.binary_search(&number).is_err()));
            self.gaps.clear();
        }
    }
}

impl Scheduler for Fifo {
    #[inline]
    fn push(&mut self, pkt: &Packet, cx: &mut Context<'_>, out: &mut dyn SchedulerHost) {
        if cx.queue.limit.has_room(cx.queue.packets, cx.queue.bytes, pkt.len) {
            self.waiting.push_back(*pkt);
        } else {
            out.dropped(*pkt, DropReason::Overflow);
        }
    }

    #[inline]
    fn pop(&mut self, _cx: &mut Context<'_>, _out: &mut dyn SchedulerHost) -> Option<Packet> {
        let pkt = self.waiting.pop_front();
        self.first += 1;
        if !self.gaps.is_empty() {
            self.close();
        }
        pkt
    }

    fn peek(&self) -> Option<&Packet> {
        self.waiting.front()
    }

    fn upcoming(&self, place: usize) -> Option<&Packet> {
        self.waiting.get(place)
    }

    fn sample(&self, rng: &mut Rng) -> Option<(QueueSlot, &Packet)> {
        if self.waiting.is_empty() {
            return None;
        }
        // At most as many gaps as packets: at most two draws on average.
        loop {
            let slot = rng.below(self.waiting.len() as u64);
            if self.gaps.binary_search(&(self.first + slot)).is_err() {
                return Some((QueueSlot(slot), &self.waiting[slot as usize]));
            }
        }
    }

    fn remove(&mut self, slot: QueueSlot) -> Option<Packet> {
        let pkt = *self.waiting.get(slot.0 as usize)?;
        let number = self.first + slot.0;
        let place = self.gaps.binary_search(&number).err()?;
        self.gaps.insert(place, number);
        self.close();
        Some(pkt)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Instant, Rate};

    use super::*;
    use crate::{FlowId, QueueState};

    struct Nobody;

    impl SchedulerHost for Nobody {
        fn dropped(&mut self, pkt: Packet, _: DropReason) {
            panic!("lost {}", pkt.handle);
        }

        fn mark(&mut self, pkt: Packet) -> Option<Packet> {
            Some(pkt)
        }
    }

    /// A fifo with the packets 0, 1, ….
    fn holding(count: u32) -> (Fifo, Rng) {
        let (mut fifo, mut rng) = (Fifo::default(), Rng::stream(1, "fifo", 0, "test"));
        for handle in 0..count {
            push(&mut fifo, handle, &mut rng);
        }
        (fifo, rng)
    }

    fn with<T>(rng: &mut Rng, act: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let state = QueueState::empty(Rate::from_bps(1));
        act(&mut Context::new(Instant::ZERO, &state, rng))
    }

    fn push(fifo: &mut Fifo, handle: u32, rng: &mut Rng) {
        with(rng, |cx| fifo.push(&Packet::new(1000, FlowId(0), handle), cx, &mut Nobody));
    }

    fn pop(fifo: &mut Fifo, rng: &mut Rng) -> Option<u32> {
        let next = fifo.peek().map(|pkt| pkt.handle);
        let pkt = with(rng, |cx| fifo.pop(cx, &mut Nobody)).map(|pkt| pkt.handle);
        assert_eq!(pkt, next, "peek");
        pkt
    }

    #[test]
    fn upcoming_packets_are_known() {
        let (mut fifo, mut rng) = holding(3);
        let upcoming = |fifo: &Fifo| [0, 2, 3].map(|place| fifo.upcoming(place).map(|pkt| pkt.handle));
        assert_eq!(upcoming(&fifo), [Some(0), Some(2), None]);
        pop(&mut fifo, &mut rng);
        assert_eq!(upcoming(&fifo), [Some(1), None, None]);
    }

    #[test]
    fn removal_keeps_the_order_of_the_rest() {
        let (mut fifo, mut rng) = holding(6);
        assert_eq!(fifo.remove(QueueSlot(2)).unwrap().handle, 2);
        assert!(fifo.remove(QueueSlot(2)).is_none(), "a gap");
        assert!(fifo.remove(QueueSlot(6)).is_none(), "beyond the end");
        assert_eq!(fifo.remove(QueueSlot(0)).unwrap().handle, 0);
        // The head is a packet again: 1, gap, 3, 4, 5.
        assert_eq!(fifo.remove(QueueSlot(4)).unwrap().handle, 5);
        assert_eq!([(); 4].map(|()| pop(&mut fifo, &mut rng)), [Some(1), Some(3), Some(4), None]);
    }

    /// After random insertions and removals the order is that of a plain list.
    #[test]
    fn order_matches_a_list_with_removals() {
        let (mut fifo, mut rng) = holding(0);
        let mut list: Vec<u32> = Vec::new();
        for handle in 0..50_000 {
            match rng.below(5) {
                0 | 1 => {
                    push(&mut fifo, handle, &mut rng);
                    list.push(handle);
                }
                2 => assert_eq!(
                    pop(&mut fifo, &mut rng),
                    (!list.is_empty()).then(|| list.remove(0)),
                    "step {handle}"
                ),
                _ => {
                    let shown = fifo.sample(&mut rng).map(|(slot, pkt)| (slot, pkt.handle));
                    assert_eq!(shown.is_none(), list.is_empty());
                    if let Some((slot, shown)) = shown {
                        assert_eq!(fifo.remove(slot).unwrap().handle, shown);
                        list.remove(list.iter().position(|h| *h == shown).unwrap());
                    }
                }
            }
            assert!(2 * fifo.gaps.len() <= fifo.waiting.len());
            assert_eq!(fifo.waiting.len() - fifo.gaps.len(), list.len());
        }
    }

    /// Of ten packets five are removed; each of the others is drawn a fifth of the time. In 50,000 draws a share has a
    /// standard deviation of 0.0018.
    #[test]
    fn waiting_packets_are_drawn_uniformly() {
        let (mut fifo, mut rng) = holding(10);
        for handle in [1, 2, 5, 6, 9] {
            fifo.remove(QueueSlot(handle)).unwrap();
        }
        let mut shown = [0.0_f64; 10];
        for _ in 0..50_000 {
            shown[fifo.sample(&mut rng).unwrap().1.handle as usize] += 1.0 / 50_000.0;
        }
        for (handle, share) in shown.iter().enumerate() {
            let expected = if [0, 3, 4, 7, 8].contains(&handle) { 0.2 } else { 0.0 };
            assert!((share - expected).abs() < 0.01, "{handle}: {share}");
        }
    }
}
