//! A table of connections. Tokens are never reused, so a late event of a closed connection does not reach its successor.

use std::num::NonZeroU64;

/// Key of an entry: the slot in the lower 32 bits, a generation of 30 bits, at least 1, above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(NonZeroU64);

impl Token {
    /// Number of significant bits.
    pub const BITS: u32 = 62;

    /// The token as a number below 2^[`Token::BITS`].
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// The token with this number; `None` for 0.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self)
    }

    fn slot(self) -> usize {
        (self.bits() & u64::from(u32::MAX)) as usize
    }
}

/// Entries by token.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Option<(Token, T)>>,
    free: Vec<u32>,
    generation: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), generation: 0 }
    }
}

impl<T> Table<T> {
    /// Inserts the entry that `make` returns for its token.
    ///
    /// # Errors
    /// The error of `make`; nothing is inserted then.
    pub fn insert<E>(&mut self, make: impl FnOnce(Token) -> Result<T, E>) -> Result<Token, E> {
        let slot = self.free.last().map_or(self.slots.len() as u64, |slot| u64::from(*slot));
        self.generation = self.generation % (u32::MAX >> 2) + 1;
        // Not zero: the generation is at least 1.
        let bits = u64::from(self.generation) << 32 | slot;
        let token = Token(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN));
        let entry = Some((token, make(token)?));
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize] = entry,
            None => self.slots.push(entry),
        }
        Ok(token)
    }

    /// The entry of this token; `None` once it has been removed.
    pub fn get(&mut self, token: Token) -> Option<&mut T> {
        let (own, entry) = self.slots.get_mut(token.slot())?.as_mut()?;
        (*own == token).then_some(entry)
    }

    /// Removes and returns the entry of this token; `None` if it has been removed before.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.get(token)?;
        self.free.push(token.slot() as u32);
        self.slots[token.slot()].take().map(|(_, entry)| entry)
    }

    /// All entries, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, entry)| entry)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().flatten().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_but_tokens_are_not() {
        let mut table = Table::default();
        let insert = |table: &mut Table<char>, entry| table.insert(|_| Ok::<_, ()>(entry)).unwrap();
        let [a, b] = ['a', 'b'].map(|entry| insert(&mut table, entry));
        assert_eq!((table.remove(a), table.remove(a), table.get(a)), (Some('a'), None, None));
        assert_eq!(table.insert(|_| Err::<char, _>(7)), Err(7));
        let c = insert(&mut table, 'c');
        assert_eq!(c.slot(), a.slot());
        assert_ne!(c, a);
        assert_eq!((table.len(), table.get(a)), (2, None));
        assert_eq!((table.get(c).copied(), table.get(b).copied()), (Some('c'), Some('b')));
        assert!(a.bits() < 1 << Token::BITS && Token::from_bits(a.bits()) == Some(a));
        assert!(Token::from_bits(u64::MAX >> 2).and_then(|token| table.get(token)).is_none());
        assert_eq!(table.iter().collect::<String>(), "cb");
        assert_eq!(table.drain().collect::<String>(), "cb");
        assert!(table.is_empty() && table.get(b).is_none());
    }
}
