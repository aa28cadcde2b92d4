//! The two ends of a PEP link, which carries the data of split connections in one direction.

use std::ops::{Index, IndexMut};

/// One end of a PEP link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At the sending side: the gateway or, for uploads, the terminal.
    Near,
    /// At the receiving side.
    Far,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    pub const fn is_far(self) -> bool {
        matches!(self, Self::Far)
    }
}

/// A value for each end of a PEP link.
#[derive(Clone, Copy, Debug)]
pub struct BySide<T>([T; 2]);

impl<T> BySide<T> {
    pub const fn new(near: T, far: T) -> Self {
        Self([near, far])
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> Index<Side> for BySide<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, side: Side) -> &T {
        &self.0[usize::from(side.is_far())]
    }
}

impl<T> IndexMut<Side> for BySide<T> {
    #[inline(always)]
    fn index_mut(&mut self, side: Side) -> &mut T {
        &mut self.0[usize::from(side.is_far())]
    }
}
