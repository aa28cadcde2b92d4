//! Typed indexes, and the tables that they index.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// An index into one kind of table.
pub trait Id: Copy {
    /// The id of place `index`.
    fn new(index: u32) -> Self;
    /// The place in its table.
    fn index(self) -> u32;
}

macro_rules! id_types {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(u32);

        impl Id for $name {
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

id_types! {
    /// A packet in flight.
    PacketId,
    /// An acknowledgement between a gateway and its terminal.
    AckId,
    /// An SCTP packet.
    SctpPacketId,
    /// One direction of a link.
    LinkId,
    /// A delay line.
    LineId,
    /// A gateway with its terminal.
    GatewayId,
    /// A stream of a split connection at one gateway.
    StreamId,
    /// One end of a TCP connection.
    ConnId,
    /// A TCP configuration.
    TcpConfigId,
    /// An SCTP configuration.
    SctpConfigId,
    /// An RTP configuration.
    RtpConfigId,
    /// A traffic of the scenario.
    TrafficId,
    /// A user of pages.
    SessionId,
    /// A source of transfers or packets.
    SourceId,
}

/// Set in every optional id; indexes take 31 bits.
const TAG: NonZeroU32 = NonZeroU32::new(1 << 31).expect("not zero");

/// Ids of which an `Option` takes no more room. Their tag costs an instruction each time they are used.
macro_rules! optional_id_types {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(NonZeroU32);

        impl Id for $name {
            #[inline(always)]
            fn new(index: u32) -> Self {
                Self(TAG | index)
            }

            #[inline(always)]
            fn index(self) -> u32 {
                self.0.get() & !TAG.get()
            }
        }
    )*};
}

optional_id_types! {
    /// A slot for end-to-end flows.
    SlotId,
    /// One end of an SCTP association.
    SctpEndId,
    /// An RTP session.
    RtpId,
    /// A traced sender.
    TraceId,
    /// An interface at which packets are observed.
    InterfaceId,
    /// A place with a queue, as recorded.
    PlaceId,
}

/// A table that grows, indexed by `I`.
#[derive(Debug)]
pub struct IdVec<I, T>(Vec<T>, PhantomData<I>);

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self(Vec::new(), PhantomData)
    }
}

impl<I: Id, T> IdVec<I, T> {
    pub fn push(&mut self, item: T) -> I {
        self.0.push(item);
        I::new(self.0.len() as u32 - 1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The id that the next item gets.
    pub fn next_id(&self) -> I {
        I::new(self.0.len() as u32)
    }

    pub fn get(&self, id: I) -> Option<&T> {
        self.0.get(id.index() as usize)
    }

    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.0.len() as u32).map(I::new)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

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
    pub start: I,
    pub len: u32,
}

impl<I: Id> IdRange<I> {
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    pub fn at(self, place: u32) -> I {
        I::new(self.start.index() + place)
    }

    /// The last id; `None` if the range is empty.
    pub fn last(self) -> Option<I> {
        self.len.checked_sub(1).map(|last| self.at(last))
    }

    pub fn iter(self) -> impl Iterator<Item = I> {
        (0..self.len).map(move |place| self.at(place))
    }
}

/// A table whose places are used again.
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

    /// Items in use.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<I: Id, T: Copy> Slab<I, T> {
    #[inline]
    pub fn remove(&mut self, id: I) -> T {
        self.free.push(id);
        self.items[id]
    }
}

impl<I: Id, T: Default> Slab<I, T> {
    /// Removes an item that cannot be copied.
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
