//! Typed indexes, and the tables that they index.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// An index into one kind of table.
pub trait Id: Copy {
    /// Returns the id of position `index`.
    fn new(index: u32) -> Self;
    /// Returns the position in the table.
    fn index(self) -> u32;
}

/// Defines types of ids.
#[macro_export]
macro_rules! id_types {
    ($($(#[$doc:meta])* $vis:vis $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis struct $name(u32);

        impl $crate::Id for $name {
            #[inline(always)]
            fn new(index: u32) -> Self {
                Self(index)
            }

            #[inline(always)]
            fn index(self) -> u32 {
                self.0
            }
        }
    )*};
}

/// Defines types of ids of which an `Option` takes no more room. Indexes take 31 bits.
#[macro_export]
macro_rules! optional_id_types {
    ($($(#[$doc:meta])* $vis:vis $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis struct $name($crate::NicheIndex);

        impl $crate::Id for $name {
            #[inline(always)]
            fn new(index: u32) -> Self {
                Self($crate::NicheIndex::new(index))
            }

            #[inline(always)]
            fn index(self) -> u32 {
                self.0.get()
            }
        }
    )*};
}

/// An index of 31 bits, of which an `Option` takes no more room. Its tag costs an instruction each time it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NicheIndex(NonZeroU32);

impl NicheIndex {
    const TAG: NonZeroU32 = NonZeroU32::new(1 << 31).expect("not zero");

    /// Stores an index below 2^31.
    #[must_use]
    #[inline(always)]
    pub fn new(index: u32) -> Self {
        Self(Self::TAG | index)
    }

    /// Returns the index.
    #[must_use]
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0.get() & !Self::TAG.get()
    }
}

/// A table that grows, indexed by `I`.
#[derive(Clone, Debug)]
pub struct IdVec<I, T>(Vec<T>, PhantomData<I>);

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self(Vec::new(), PhantomData)
    }
}

impl<I: Id, T> IdVec<I, T> {
    /// Appends an item and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.0.push(item);
        I::new(self.0.len() as u32 - 1)
    }

    /// Lets `grow` make room for another item in a full table.
    #[inline]
    pub fn make_room(&mut self, grow: impl FnOnce(&mut Vec<T>)) {
        if self.0.len() == self.0.capacity() {
            grow(&mut self.0);
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true without items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the id that the next item gets.
    #[must_use]
    pub fn next_id(&self) -> I {
        I::new(self.0.len() as u32)
    }

    /// Returns an item; `None` beyond the end.
    #[must_use]
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.0.get(id.index() as usize)
    }

    /// Returns all ids in order.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.0.len() as u32).map(I::new)
    }

    /// Returns all items in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Returns all items in order, for changes.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        Self(items.into_iter().collect(), PhantomData)
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.0[id.index() as usize]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.0[id.index() as usize]
    }
}

/// Ids that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct IdRange<I> {
    /// First id.
    pub start: I,
    /// Number of ids.
    pub len: u32,
}

impl<I: Id> IdRange<I> {
    /// Returns true without ids.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the id at position `place`.
    #[must_use]
    pub fn at(self, place: u32) -> I {
        I::new(self.start.index() + place)
    }

    /// Returns the last id; `None` if the range is empty.
    #[must_use]
    pub fn last(self) -> Option<I> {
        self.len.checked_sub(1).map(|last| self.at(last))
    }

    /// Returns all ids in order.
    pub fn iter(self) -> impl Iterator<Item = I> {
        (0..self.len).map(move |place| self.at(place))
    }
}

/// A table whose positions are used again.
#[derive(Debug)]
pub struct Slab<I, T> {
    items: IdVec<I, T>,
    free: Vec<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { items: IdVec::default(), free: Vec::new() }
    }
}

impl<I: Id, T> Slab<I, T> {
    /// Adds an item at the position freed last, else at the end.
    #[inline]
    pub fn insert(&mut self, item: T) -> I {
        match self.free.pop() {
            Some(id) => {
                self.items[id] = item;
                id
            }
            None => self.items.push(item),
        }
    }

    /// Lets `grow` make room for another item in a full table.
    #[inline]
    pub fn make_room(&mut self, grow: impl FnOnce(&mut Vec<T>)) {
        if self.free.is_empty() {
            self.items.make_room(grow);
        }
    }

    /// Returns the number of items in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Returns true without items in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item at a position, in use or freed; `None` beyond the end.
    #[must_use]
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id)
    }

    /// Returns the items in use, in the order of their positions.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let mut is_free = vec![false; self.items.len()];
        self.free.iter().for_each(|id| is_free[id.index() as usize] = true);
        self.items.ids().zip(self.items.iter()).zip(is_free).filter(|(_, free)| !free).map(|(item, _)| item)
    }
}

impl<I: Id, T: Copy> Slab<I, T> {
    /// Frees an item's position and returns the item.
    #[inline]
    pub fn remove(&mut self, id: I) -> T {
        self.free.push(id);
        self.items[id]
    }
}

impl<I: Id, T: Default> Slab<I, T> {
    /// Frees the position of an item that cannot be copied, and returns the item.
    pub fn take(&mut self, id: I) -> T {
        self.free.push(id);
        std::mem::take(&mut self.items[id])
    }
}

impl<I: Id, T> Index<I> for Slab<I, T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.items[id]
    }
}

impl<I: Id, T> IndexMut<I> for Slab<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    id_types! { pub(super) AckId }
    optional_id_types! { pub(super) SlotId }

    #[test]
    fn an_optional_id_takes_four_bytes_and_an_id_keeps_its_index() {
        assert_eq!(size_of::<Option<SlotId>>(), 4);
        for index in [0, 1, 0x7fff_ffff] {
            assert_eq!(SlotId::new(index).index(), index);
        }
    }

    #[test]
    fn a_slab_uses_places_again() {
        let mut slab = Slab::<AckId, u8>::default();
        let (a, b) = (slab.insert(1), slab.insert(2));
        assert_eq!((slab.remove(a), slab.len()), (1, 1));
        assert_eq!((slab.insert(3), slab[a], slab[b]), (a, 3, 2));
    }
}
