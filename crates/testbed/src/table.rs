//! Connections by their tokens, of which no two are the same: an event that is about one that is gone finds none in its
//! place.

/// Things by tokens of 62 bits.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    /// Things that there have been, to tell one from the next in its place.
    begun: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), begun: 0 }
    }
}

fn place(token: u64) -> usize {
    (token & u64::from(u32::MAX)) as usize
}

impl<T> Table<T> {
    /// Enters what `make` makes of its token, which is returned.
    ///
    /// # Errors
    /// Where `make` fails; nothing is entered then.
    pub fn enter<E>(&mut self, make: impl FnOnce(u64) -> Result<T, E>) -> Result<u64, E> {
        let next = self.free.last().map_or(self.places.len() as u64, |place| u64::from(*place));
        self.begun = (self.begun + 1) & (u32::MAX >> 2);
        let token = u64::from(self.begun) << 32 | next;
        let made = Some((token, make(token)?));
        match self.free.pop() {
            Some(place) => self.places[place as usize] = made,
            None => self.places.push(made),
        }
        Ok(token)
    }

    /// What has this token, if it is still there.
    pub fn get(&mut self, token: u64) -> Option<&mut T> {
        let (own, thing) = self.places.get_mut(place(token))?.as_mut()?;
        (*own == token).then_some(thing)
    }

    /// Takes out what has this token, if it is still there.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        self.get(token)?;
        self.free.push(place(token) as u32);
        self.places[place(token)].take().map(|(_, thing)| thing)
    }

    /// All of them, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().map(|(_, thing)| thing)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out all.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().flatten().map(|(_, thing)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_its_token_is_not() {
        let mut table = Table::default();
        let enter = |table: &mut Table<char>, thing| table.enter(|_| Ok::<_, ()>(thing)).unwrap();
        let [a, b] = ['a', 'b'].map(|thing| enter(&mut table, thing));
        assert_eq!((table.remove(a), table.remove(a), table.get(a)), (Some('a'), None, None));
        assert_eq!(table.enter(|_| Err::<char, _>(7)), Err(7));
        let c = enter(&mut table, 'c');
        assert_eq!(place(c), place(a));
        assert_ne!(c, a);
        assert_eq!((table.len(), table.get(a)), (2, None));
        assert_eq!((table.get(c).copied(), table.get(b).copied()), (Some('c'), Some('b')));
        assert!(a < 1 << 62 && table.get(u64::MAX >> 2).is_none());
        assert_eq!(table.iter().collect::<String>(), "cb");
        assert_eq!(table.drain().collect::<String>(), "cb");
        assert!(table.is_empty() && table.get(b).is_none());
    }
}
