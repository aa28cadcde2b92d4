//! The longest of many queues, for schedulers that drop from it.

use std::cmp::Reverse;

use bentpipe_units::Id as _;

use super::flows::{Flows, SlotId};
use super::heap::Heap;

/// Finds the longest queue; of those as long, the one with the lowest rank. Ranks differ, and that of a slot may rise, not
/// fall.
///
/// The entry of a slot is an upper bound of its queue: it rises with the queue, and falls only once it is the highest. So
/// most packets change no entry, and the highest bound that is exact belongs to the longest queue. A queue that is over
/// leaves its entry to the next one in its slot.
#[derive(Debug, Default)]
pub struct Longest {
    bounds: Heap<SlotId, (u64, Reverse<u64>)>,
    /// The bound of each queue's length by its slot, plus one [bytes]; 0 without an entry.
    bound: Vec<u64>,
}

impl Longest {
    /// Takes note of a packet that a queue got.
    #[inline]
    pub fn grew(&mut self, slot: SlotId, flows: &Flows, rank: u64) {
        let (index, bytes) = (slot.index() as usize, flows.bytes(slot));
        if self.bound.len() <= index {
            self.bound.resize(index + 1, 0);
        }
        if bytes >= self.bound[index] {
            self.set(slot, bytes, rank);
        }
    }

    /// The longest queue.
    pub fn find(&mut self, flows: &Flows, rank: impl Fn(SlotId) -> u64) -> Option<SlotId> {
        while self.lower(flows, &rank) {}
        self.bounds.first().map(|(_, slot)| slot)
    }

    /// Lowers the highest bound to its queue, or removes it with a queue that is over. Returns false if it is exact. Called
    /// for each packet that leaves, it saves [`Longest::find`] the work of many at once.
    #[inline]
    pub fn lower(&mut self, flows: &Flows, rank: impl Fn(SlotId) -> u64) -> bool {
        let Some((bound, slot)) = self.bounds.first() else { return false };
        let (bytes, rank) = (flows.bytes(slot), rank(slot));
        if flows.head(slot).is_none() {
            self.bound[slot.index() as usize] = 0;
            self.bounds.remove(slot);
        } else if (bytes, Reverse(rank)) < bound {
            self.set(slot, bytes, rank);
        } else {
            return false;
        }
        true
    }

    fn set(&mut self, slot: SlotId, bytes: u64, rank: u64) {
        self.bound[slot.index() as usize] = bytes + 1;
        self.bounds.set(slot, (bytes, Reverse(rank)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bentpipe_units::Rng;

    use super::*;
    use crate::{FlowId, Packet};

    /// Compared with a look at every queue, while queues grow, shrink, end and give their slots to others, and their ranks
    /// rise; some packets are empty.
    #[test]
    fn the_longest_queue_is_that_of_a_look_at_all() {
        let mut rng = Rng::stream(1, "longest", 0, "test");
        let (mut flows, mut longest) = (Flows::default(), Longest::default());
        let (mut slots, mut found) = (BTreeSet::new(), 0);
        let mut ranks: [u64; 60] = std::array::from_fn(|index| index as u64);
        for step in 0..100_000 {
            let grows = step / 1000 % 2 == 0;
            if rng.below(10) < if grows { 7 } else { 3 } {
                let flow = FlowId(rng.below(60) as u32);
                let (_, slot) = flows.push(&Packet::new(100 * rng.below(3) as u32, flow, 0));
                longest.grew(slot, &flows, ranks[slot.index() as usize]);
                slots.insert(slot);
            } else if let Some((node, _)) = flows.sample(&mut rng) {
                let slot = flows.slot_of(node);
                flows.remove(node);
                slots.retain(|other| Some(*other) != slot || flows.head(*other).is_some());
                longest.lower(&flows, |slot| ranks[slot.index() as usize]);
            }
            ranks[rng.below(60) as usize] += 60 * rng.below(2);
            if rng.below(20) == 0 {
                let rank = |slot: SlotId| ranks[slot.index() as usize];
                let expected =
                    slots.iter().copied().max_by_key(|slot| (flows.bytes(*slot), Reverse(rank(*slot))));
                assert_eq!(longest.find(&flows, rank), expected, "step {step}");
                found += usize::from(expected.is_some());
            }
        }
        assert!(found > 1000, "{found}");
    }
}
