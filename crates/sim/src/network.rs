//! Links, the packets on them, and the paths these take.

use bentpipe_link::LinkEngine;
use bentpipe_queue::{DropHandler, DropReason, Packet};
use bentpipe_transport::{pep_link, rtp, tcp};

use crate::world::NONE;

/// One hop of a path.
#[derive(Clone, Copy, Debug)]
pub enum Hop {
    /// Over a link, on one of its delay lines.
    Link { link: u32, line: u32 },
    /// Into a gateway, from the internet: through it, or, where it splits, to its end of the connection.
    Gateway { station: u32, splits: bool },
}

/// A path: a range of hops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub start: u32,
    pub end: u32,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub body: Body,
    /// The circuit it belongs to.
    pub circuit: u32,
    /// Length on the wire [bytes].
    pub len: u32,
    /// The hop it is on, and where its path ends.
    pub hop: u32,
    pub end: u32,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A segment for a connection.
    Tcp {
        to: u32,
        segment: tcp::Segment,
    },
    /// Stream data between a station's ends.
    Space {
        station: u32,
        to_far: bool,
        data: pep_link::Data,
    },
    /// An acknowledgement between a station's ends, kept apart for its size.
    SpaceAck {
        station: u32,
        to_far: bool,
        ack: u32,
    },
    /// A packet for an end of an association, kept apart for its size.
    Sctp {
        to: u32,
        packet: u32,
        data: bool,
    },
    /// A packet of a medium, and the reports of its ends.
    Rtp {
        packet: rtp::Packet,
    },
    SenderReport {
        report: rtp::SenderReport,
    },
    ReceiverReport {
        report: rtp::ReceiverReport,
    },
    /// A datagram.
    Datagram,
    /// Bytes of a stream that the PEP works on; they are on no link.
    Chunk {
        stream: u32,
        bytes: u64,
        fin: bool,
    },
}

impl Body {
    /// Whether it has payload.
    pub fn has_payload(&self) -> bool {
        match self {
            Self::Tcp { segment, .. } => segment.len > 0,
            Self::Space { data, .. } => data.len > 0,
            Self::Rtp { .. } | Self::Datagram | Self::Chunk { .. } => true,
            Self::SenderReport { .. } | Self::ReceiverReport { .. } => false,
            Self::SpaceAck { .. } => false,
            Self::Sctp { data, .. } => *data,
        }
    }
}

/// A store with places that are used again.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = item;
                index
            }
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub fn get(&self, index: u32) -> &T {
        &self.items[index as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }

    /// Items in use.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<T: Copy> Slab<T> {
    #[inline]
    pub fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        self.items[index as usize]
    }
}

impl<T: Default> Slab<T> {
    /// Takes out an item that cannot be copied.
    pub fn take(&mut self, index: u32) -> T {
        self.free.push(index);
        std::mem::take(&mut self.items[index as usize])
    }
}

/// One direction of a link, with what the run keeps of it.
pub struct Link {
    pub name: String,
    pub engine: LinkEngine,
    /// True if the channel may affect packets, or they are observed when sent.
    pub is_eventful: bool,
    /// The hosts whose packets have a rate each: the first, and how many.
    pub hosts: (u32, u32),
    /// Its delay line, unless each connection has one.
    pub line: u32,
    pub counters: LinkCounters,
    /// The interfaces at which sent and arriving packets are observed.
    pub seen_leaving: u32,
    pub seen_arriving: u32,
}

/// What went over a link since the run began [packets; bytes].
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCounters {
    pub sent: u64,
    pub sent_bytes: u64,
    pub lost: u64,
    pub arrived: u64,
}

impl Link {
    pub fn new(name: String, engine: LinkEngine, line: u32) -> Self {
        Self {
            name,
            is_eventful: engine.has_channel(),
            engine,
            hosts: (0, 0),
            line,
            counters: LinkCounters::default(),
            seen_leaving: NONE,
            seen_arriving: NONE,
        }
    }
}

/// Collects what a queue discards.
#[derive(Debug, Default)]
pub struct Discarded(pub Vec<(Packet, DropReason)>);

impl DropHandler for Discarded {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}
