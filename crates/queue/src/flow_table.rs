//! Per-flow state of an algorithm: a table by flow number.
//!
//! Open addressing with linear probing in one flat array whose length is a power of two, at most half full. Removing a
//! flow leaves no tombstone: the entries behind it move up. So look-up, insertion and removal cost a few neighbouring
//! slots, whatever numbers flows have. The array doubles when needed. A large one halves once less than an eighth is used, so
//! that a flood of flows does not keep its memory.

use crate::FlowId;

/// Length of the array of a new table [slots].
const FIRST: usize = 16;
/// Length up to which an array keeps its memory [slots]: ordinary traffic does not allocate when its flows become fewer.
const KEPT: usize = 1 << 15;

/// A table with one value per flow.
#[derive(Clone, Debug)]
pub struct FlowTable<T> {
    slots: Vec<Option<(FlowId, T)>>,
    len: usize,
    /// Slot at which [`FlowTable::sweep`] continues.
    next: usize,
}

impl<T> Default for FlowTable<T> {
    fn default() -> Self {
        let mut slots = Vec::new();
        slots.resize_with(FIRST, || None);
        Self { slots, len: 0, next: 0 }
    }
}

impl<T> FlowTable<T> {
    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of a flow.
    #[must_use]
    #[inline]
    pub fn get(&self, flow: FlowId) -> Option<&T> {
        self.slots[self.find(flow)].as_ref().map(|(_, known)| known)
    }

    /// Returns the value of a flow for changes.
    #[inline]
    pub fn get_mut(&mut self, flow: FlowId) -> Option<&mut T> {
        let at = self.find(flow);
        self.slots[at].as_mut().map(|(_, known)| known)
    }

    /// Returns the value of a flow, inserting the result of `fresh` if the flow is not known.
    #[inline]
    pub fn get_or_insert_with(&mut self, flow: FlowId, fresh: impl FnOnce() -> T) -> &mut T {
        let mut at = self.find(flow);
        if self.slots[at].is_none() {
            if 2 * (self.len + 1) > self.slots.len() {
                self.resize(2 * self.slots.len());
                at = self.find(flow);
            }
            self.len += 1;
        }
        &mut self.slots[at].get_or_insert_with(|| (flow, fresh())).1
    }

    /// Removes a flow and returns its value.
    pub fn remove(&mut self, flow: FlowId) -> Option<T> {
        let at = self.find(flow);
        let gone = self.take(at);
        self.shrink();
        gone
    }

    /// Removes all flows.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Visits the next `slots` slots of the array, continuing where the last call stopped, and removes the flows for
    /// which `keep` returns false. With two slots per packet, an array of `n` is visited within `n / 2` packets.
    pub fn sweep(&mut self, slots: usize, mut keep: impl FnMut(FlowId, &mut T) -> bool) {
        for _ in 0..slots {
            let at = self.next;
            if self.slots[at].as_mut().is_some_and(|(flow, known)| !keep(*flow, known)) {
                // The next call visits the entry that moves up into this slot.
                self.take(at);
            } else {
                self.next = self.after(at);
            }
        }
        self.shrink();
    }

    /// Returns the flow's slot, or the empty slot where it would be inserted.
    #[inline]
    fn find(&self, flow: FlowId) -> usize {
        let mut at = self.home(flow);
        while self.slots[at].as_ref().is_some_and(|(other, _)| *other != flow) {
            at = self.after(at);
        }
        at
    }

    /// Preferred slot of a flow. The mixer is the last step of MurmurHash3, a bijection that spreads close numbers and
    /// numbers with common factors.
    #[inline]
    fn home(&self, flow: FlowId) -> usize {
        let FlowId(mut x) = flow;
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        (x ^ (x >> 16)) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Empties a slot and closes the gap: entries displaced beyond it move up.
    fn take(&mut self, at: usize) -> Option<T> {
        let (_, gone) = self.slots[at].take()?;
        self.len -= 1;
        let (mut gap, mut at) = (at, at);
        loop {
            at = self.after(at);
            let Some((flow, _)) = self.slots[at] else { return Some(gone) };
            // It may move into the gap unless its preferred slot lies between the gap and its current slot.
            let from_home = at.wrapping_sub(self.home(flow)) & (self.slots.len() - 1);
            let from_gap = at.wrapping_sub(gap) & (self.slots.len() - 1);
            if from_home >= from_gap {
                self.slots.swap(gap, at);
                gap = at;
            }
        }
    }

    /// Halves a large array once less than an eighth is used. A quarter is used then, so neither the next insertion nor the
    /// next removal resizes it again.
    #[inline]
    fn shrink(&mut self) {
        if 8 * self.len < self.slots.len() && self.slots.len() > KEPT {
            self.resize(self.slots.len() / 2);
            self.next &= self.slots.len() - 1;
        }
    }

    #[cold]
    fn resize(&mut self, length: usize) {
        let mut slots = Vec::new();
        slots.resize_with(length, || None);
        for (flow, known) in std::mem::replace(&mut self.slots, slots).into_iter().flatten() {
            let at = self.find(flow);
            self.slots[at] = Some((flow, known));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bentpipe_units::Rng;

    use super::*;

    /// The table and an ordered map hold the same after the same operations, for numbers that are close together, share
    /// factors or lie at the ends of the range.
    #[test]
    fn table_holds_the_same_as_an_ordered_map() {
        let mut rng = Rng::stream(1, "table", 0, "test");
        let (mut table, mut map) = (FlowTable::default(), BTreeMap::new());
        for step in 0..200_000_u64 {
            let i = rng.below(600) as u32;
            let flow = FlowId(match i % 3 {
                0 => i,
                1 => u32::MAX - i,
                _ => i << 20,
            });
            match rng.below(4) {
                0 => assert_eq!(table.remove(flow), map.remove(&flow)),
                1 => assert_eq!(table.get(flow), map.get(&flow)),
                _ => {
                    let (ours, theirs) =
                        (table.get_or_insert_with(flow, || step), map.entry(flow).or_insert(step));
                    assert_eq!(ours, theirs);
                    *ours += 1;
                    *theirs += 1;
                }
            }
            assert_eq!(table.len(), map.len());
        }
        for (flow, known) in &map {
            assert_eq!(table.get_mut(*flow), Some(&mut known.clone()));
        }
    }

    /// After visits to twice the number of slots all refused flows are gone, and no others.
    #[test]
    fn sweep_removes_the_refused_flows() {
        let mut table = FlowTable::default();
        for flow in 0..1000_u32 {
            table.get_or_insert_with(FlowId(flow), || flow);
        }
        for _ in 0..2048 {
            table.sweep(2, |_, known| *known % 3 == 0);
        }
        assert_eq!(table.len(), 334);
        assert!((0..1000).all(|flow| table.get(FlowId(flow)).is_some() == (flow % 3 == 0)));
        table.clear();
        assert!(table.is_empty() && table.get(FlowId(3)).is_none());
    }

    /// A million flows that come once leave an array for those that stay.
    #[test]
    fn array_shrinks_after_a_flood_of_flows() {
        let mut table = FlowTable::default();
        for flow in 0..1_000_000_u32 {
            table.get_or_insert_with(FlowId(flow), || flow);
        }
        assert_eq!(table.slots.len(), 1 << 21);
        while table.len() > 100 {
            table.sweep(2, |_, known| *known < 100);
        }
        assert_eq!(table.slots.len(), KEPT);
        assert!((0..100).all(|flow| table.get(FlowId(flow)) == Some(&flow)));
        for flow in 0..100 {
            assert_eq!(table.remove(FlowId(flow)), Some(flow));
        }
        assert!(table.is_empty());
    }

    /// Dense numbers, numbers 10,000 apart, and multiples of the array's length form short chains.
    #[test]
    fn probe_chains_are_short() {
        for stride in [1, 10_000, 1 << 18, 0x9e37_79b9] {
            let mut table = FlowTable::default();
            for i in 0..10_000_u32 {
                table.get_or_insert_with(FlowId(i.wrapping_mul(stride)), || ());
            }
            let mut longest = 0;
            let mut chain = 0;
            for slot in &table.slots {
                chain = if slot.is_some() { chain + 1 } else { 0 };
                longest = longest.max(chain);
            }
            assert!(longest < 60, "a chain of {longest} at stride {stride}");
        }
    }

    /// Eight flows take half of 16 slots. The array halves once an eighth is more than its flows need: 40,000 take 131,072, of
    /// which an eighth is 16,384.
    #[test]
    fn the_array_is_at_most_half_full_and_a_large_one_an_eighth_at_least() {
        let mut table = FlowTable::default();
        let mut lengths = Vec::new();
        for flow in 1..=40_000 {
            table.get_or_insert_with(FlowId(flow), || ());
            if [8, 9, 16, 17, 40_000].contains(&flow) {
                lengths.push(table.slots.len());
            }
        }
        assert_eq!(lengths, [16, 32, 32, 64, 131_072]);
        for flow in 16_385..=40_000 {
            table.remove(FlowId(flow));
        }
        assert_eq!((table.len(), table.slots.len()), (16_384, 131_072));
        table.remove(FlowId(1));
        assert_eq!(table.slots.len(), 65_536);
        for flow in 2..=16_384 {
            table.remove(FlowId(flow));
        }
        assert_eq!((table.len(), table.slots.len()), (0, KEPT));
    }

    /// The published hash of no bytes is the mixer of its seed: MurmurHash3_x86_32 with seed 1 is 0x514e28b7, and with seed
    /// 0xffffffff 0x81f16f39. A table takes the last bits.
    #[test]
    fn flows_are_spread_as_murmurhash3_mixes() {
        let mut table = FlowTable::<()>::default();
        table.resize(1 << 20);
        assert_eq!([1, u32::MAX].map(|flow| table.home(FlowId(flow))), [0xe_28b7, 0x1_6f39]);
    }
}
