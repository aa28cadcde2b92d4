//! Paths: the hops of packets.

use crate::ids::{GatewayId, LineId, LinkDirectionId};
use crate::memory::{grow, prefetch};

/// One hop of a path.
#[derive(Clone, Copy, Debug)]
pub enum Hop {
    /// Over a link, on one of its delay lines.
    Link { link: LinkDirectionId, line: LineId },
    /// Into a gateway from the internet: through it, or, if it splits the flow, to its end of the connection.
    Gateway { gateway: GatewayId, splits: bool },
    /// The spacelink adds bytes to the packet's length, or removes them.
    Resize { bytes: i32 },
}

/// A range of hops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The hops of all paths.
#[derive(Default)]
pub struct Paths(Vec<Hop>);

impl Paths {
    pub fn add(&mut self, hops: impl IntoIterator<Item = Hop>) -> Path {
        let start = self.0.len() as u32;
        for hop in hops {
            if self.0.len() == self.0.capacity() {
                grow(&mut self.0);
            }
            self.0.push(hop);
        }
        Path { start, end: self.0.len() as u32 }
    }

    /// The first hop of a path; `None` at its end.
    #[inline]
    pub fn first(&self, path: Path) -> Option<Hop> {
        (path.start < path.end).then(|| self.0[path.start as usize])
    }

    /// Fetches the hop of a path behind this number of others into the cache.
    #[inline]
    pub fn prefetch(&self, path: Path, place: u32) {
        if let Some(hop) = self.0.get((path.start + place) as usize) {
            prefetch(hop);
        }
    }

    /// The hop of a path behind this number of others; `None` at its end.
    #[inline]
    pub fn hop(&self, path: Path, place: u32) -> Option<Hop> {
        (path.start + place < path.end).then(|| self.0[(path.start + place) as usize])
    }

    /// One hop.
    #[inline]
    pub(super) fn at(&self, place: u32) -> Hop {
        self.0[place as usize]
    }

    /// The first gateway on a path, and the rest of the path behind it; `None` without a gateway.
    pub fn behind_gateway(&self, path: Path) -> Option<(GatewayId, Path)> {
        let find = |(place, hop): (u32, &Hop)| match hop {
            Hop::Gateway { gateway, .. } => Some((*gateway, Path { start: path.start + place + 1, ..path })),
            Hop::Link { .. } | Hop::Resize { .. } => None,
        };
        (0..).zip(self.hops(path)).find_map(find)
    }

    pub fn hops(&self, path: Path) -> &[Hop] {
        &self.0[path.start as usize..path.end as usize]
    }

    /// The hops of all paths.
    pub fn all_mut(&mut self) -> &mut [Hop] {
        &mut self.0
    }

    pub fn hops_mut(&mut self, path: Path) -> &mut [Hop] {
        &mut self.0[path.start as usize..path.end as usize]
    }
}
