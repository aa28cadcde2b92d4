//! The child with the least key, among any number of them, in several orders.

/// Slots of a group.
const GROUP: usize = 4;

/// Key of a slot that is not in an order.
const ABSENT: u64 = u64::MAX;

/// Keys of a group's slots in each of `N` orders.
type Group<const N: usize> = [[u64; GROUP]; N];

/// Index of the first group of each level, from the top: level `l` has `4^l` groups.
const LEVELS: [usize; 17] = {
    let (mut levels, mut l) = ([0; 17], 1);
    while l < levels.len() {
        levels[l] = GROUP * levels[l - 1] + 1;
        l += 1;
    }
    levels
};

/// Keys by slot in `N` orders, and the slot with the least key of each: a group hands its least keys to a slot of the level
/// above. Of equal keys the one with the lowest slot comes first.
///
/// A change recomputes one group per level. No entry moves, so no child needs to know its place, and the levels hardly wait
/// for each other, since the least of the other slots of each group is known before.
#[derive(Clone, Debug)]
pub struct Tournaments<const N: usize> {
    least: [u64; N],
    depth: usize,
    /// Groups of all levels, from the top; those of the lowest level hold the slots.
    groups: Vec<Group<N>>,
}

impl<const N: usize> Default for Tournaments<N> {
    fn default() -> Self {
        Self { least: [ABSENT; N], depth: 0, groups: Vec::new() }
    }
}

impl<const N: usize> Tournaments<N> {
    /// Makes room for slots below `slots`.
    pub fn resize(&mut self, slots: usize) {
        let (former, mut depth) = (self.depth, self.depth.max(1));
        while GROUP * (LEVELS[depth] - LEVELS[depth - 1]) < slots {
            depth += 1;
        }
        let size = LEVELS[depth - 1] + slots.div_ceil(GROUP);
        if depth == former {
            self.groups.resize(size.max(self.groups.len()), [[ABSENT; GROUP]; N]);
            return;
        }
        let below = std::mem::replace(&mut self.groups, vec![[[ABSENT; GROUP]; N]; size]);
        self.depth = depth;
        for (i, group) in below.iter().skip(LEVELS[former.max(1) - 1]).enumerate() {
            for (order, keys) in group.iter().enumerate() {
                keys.iter().enumerate().for_each(|(j, key)| self.write(order, GROUP * i + j, *key));
            }
        }
    }

    /// True if no slot is in an order.
    pub fn is_empty(&self, order: usize) -> bool {
        self.least[order] == ABSENT
    }

    /// The least key of an order; the greatest number if it is empty.
    pub fn least(&self, order: usize) -> u64 {
        self.least[order]
    }

    /// The slot with the least key of an order.
    pub fn first(&self, order: usize) -> usize {
        let least = self.least[order];
        LEVELS[..self.depth].iter().fold(0, |at, level| {
            let keys = &self.groups[level + at][order];
            // Without branches, which a processor would have to guess.
            let equal = (0..GROUP).fold(0, |bits: usize, i| bits | usize::from(keys[i] == least) << i);
            GROUP * at + equal.trailing_zeros() as usize % GROUP
        })
    }

    /// Sets the key of a slot in an order.
    pub fn set(&mut self, order: usize, slot: usize, key: u64) {
        self.write(order, slot, key.min(ABSENT - 1));
    }

    /// Takes a slot out of an order.
    pub fn clear(&mut self, order: usize, slot: usize) {
        self.write(order, slot, ABSENT);
    }

    #[inline]
    fn write(&mut self, order: usize, slot: usize, mut key: u64) {
        let mut at = slot;
        for level in LEVELS[..self.depth].iter().rev() {
            let keys = &mut self.groups[level + at / GROUP][order];
            let place = at % GROUP;
            let others = keys[place ^ 1].min(keys[place ^ 2].min(keys[place ^ 3]));
            if std::mem::replace(&mut keys[place], key) == key {
                return;
            }
            key = key.min(others);
            at /= GROUP;
        }
        self.least[order] = key;
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rng;

    use super::*;

    /// Compared with a list of keys, while slots are added, set and cleared at random.
    #[test]
    fn first_is_the_lowest_slot_with_the_least_key() {
        let mut rng = Rng::stream(1, "tournament", 0, "test");
        let (mut tournament, mut keys) = (Tournaments::<2>::default(), Vec::new());
        for _ in 0..20_000 {
            if rng.below(10) == 0 && keys.len() < 700 {
                keys.push(None);
                tournament.resize(keys.len());
            }
            if let Some(slot) =
                rng.below(keys.len().max(1) as u64).try_into().ok().filter(|at| *at < keys.len())
            {
                keys[slot] = (rng.below(3) > 0).then(|| rng.below(50));
                match keys[slot] {
                    Some(key) => tournament.set(1, slot, key),
                    None => tournament.clear(1, slot),
                }
            }
            let first = keys.iter().enumerate().filter_map(|(slot, key)| Some(((*key)?, slot))).min();
            assert_eq!(tournament.is_empty(1), first.is_none());
            if let Some((key, slot)) = first {
                assert_eq!((tournament.least(1), tournament.first(1)), (key, slot));
            }
        }
        assert!(keys.len() == 700, "several levels");
    }

    /// The top group has four slots; with 4, 16, 64 slots one to three levels of 1, 4, 16 groups are full, and one more slot needs
    /// another level: 17 slots take 1 + 4 + 5 groups. So it is with slots that are added all at once.
    #[test]
    fn groups_are_as_few_as_slots_allow() {
        for (slots, groups) in [(1, 1), (4, 1), (5, 3), (16, 5), (17, 10), (64, 21), (65, 38)] {
            let mut tournament = Tournaments::<2>::default();
            tournament.resize(slots);
            assert_eq!(tournament.groups.len(), groups, "{slots} slots");
            (0..slots).for_each(|slot| tournament.set(0, slot, 1000 - slot as u64));
            assert_eq!((tournament.least(0), tournament.first(0)), (1001 - slots as u64, slots - 1));
        }
    }

    /// The greatest key counts, although no key has its value.
    #[test]
    fn the_greatest_key_is_a_key() {
        let mut tournament = Tournaments::<2>::default();
        tournament.resize(1);
        tournament.set(1, 0, u64::MAX);
        assert!(!tournament.is_empty(1));
        assert_eq!(tournament.first(1), 0);
    }
}
