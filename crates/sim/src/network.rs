//! Links, the packets on them, and the paths these take.

use std::collections::VecDeque;

use bentpipe_link::{Capacity, Loss, Satellite, Sender};
use bentpipe_queue::{DropHandler, DropReason, Packet, Queue};
use bentpipe_scenario::{Delay, Direction, LossAt, LossOf, Per};
use bentpipe_transport::{pep_link, rtp, tcp};
use bentpipe_units::{Duration, Instant, Rate, Rng};

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

/// How long packets are under way on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All as long.
    Fixed(Duration),
    /// Each as long as is drawn for it, in order or not.
    Drawn { ordered: bool },
    /// Each as long as all of its connection.
    Connection,
}

/// One direction of a link.
pub struct Link {
    pub name: String,
    pub rate: Option<Rate>,
    pub way: Way,
    /// Whether packets are lost before the queue.
    pub loses_early: bool,
    /// Whether anything but time befalls packets on the way, or they are seen there.
    pub is_eventful: bool,
    /// What befalls packets, if anything does.
    pub channel: Option<Box<Channel>>,
    pub delay: Box<Delay>,
    /// What sends on it, where that is more than a rate; there is a port then.
    pub sender: Option<Box<Sender>>,
    /// What its capacity will be, where that changes with time.
    pub capacity: Option<Box<Capacity>>,
    /// The hosts whose packets take times of their own: the first, and how many.
    pub hosts: (u32, u32),
    /// The managed queue in front of it, if any.
    pub port: Option<u32>,
    /// Its own delay line, unless each connection has one.
    pub line: u32,
    /// When it has sent all that it was given; only without a port.
    busy_until: Instant,
    delay_rng: Rng,
    pub counters: LinkCounters,
    /// The interfaces that see what enters it and what leaves it, if any.
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
    pub fn new(
        name: String,
        direction: &Direction,
        sender: Option<Sender>,
        satellite: Option<Satellite>,
        line: u32,
        port: Option<u32>,
        seed: u64,
    ) -> Self {
        let (delay, loss) = (direction.delay.clone(), &direction.loss);
        let channel = Channel {
            loss: Loss::new(loss),
            of: loss.of,
            at: loss.at,
            satellite,
            rng: Rng::stream(seed, &name, 0, "loss"),
        };
        let has_channel = !loss.is_none() || channel.satellite.is_some();
        Self {
            rate: direction.rate,
            way: match (delay.per, delay.fixed()) {
                (Per::Connection, _) => Way::Connection,
                (Per::Packet { ordered: true }, Some(delay)) => Way::Fixed(delay),
                (Per::Packet { ordered }, _) => Way::Drawn { ordered },
            },
            delay: Box::new(delay),
            loses_early: !loss.is_none() && loss.at == LossAt::BeforeQueue,
            is_eventful: has_channel,
            channel: has_channel.then(|| Box::new(channel)),
            capacity: sender.as_ref().and_then(Sender::changing).map(Box::new),
            sender: sender.map(Box::new),
            hosts: (0, 0),
            port,
            line,
            busy_until: Instant::ZERO,
            delay_rng: Rng::stream(seed, &name, 0, "delay"),
            counters: LinkCounters::default(),
            seen_leaving: NONE,
            seen_arriving: NONE,
            name,
        }
    }

    /// When a packet of `len` bytes that comes at `now` has been sent.
    #[inline]
    pub fn send(&mut self, len: u32, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        self.busy_until = self.busy_until.max(now) + rate.time_to_send(u64::from(len));
        self.busy_until
    }

    /// The delay of one packet, where it is drawn.
    pub fn draw_delay(&mut self) -> Duration {
        self.delay.draw(&mut self.delay_rng)
    }

    /// Whether each connection has its own delay on this link.
    pub fn is_per_connection(&self) -> bool {
        self.way == Way::Connection
    }

    /// Whether a packet passes it as if it were not there.
    pub fn is_trivial(&self) -> bool {
        self.rate.is_none()
            && self.delay.is_none()
            && self.sender.is_none()
            && self.channel.is_none()
            && self.port.is_none()
            && !self.is_per_connection()
    }
}

/// What befalls packets on a link.
pub struct Channel {
    loss: Loss,
    of: LossOf,
    at: LossAt,
    /// The satellites that it goes over, where they change.
    satellite: Option<Satellite>,
    rng: Rng,
}

impl Channel {
    /// Whether it loses a packet, at `now`.
    pub fn loses(&mut self, flight: &Flight, now: Instant) -> bool {
        let counts = self.of == LossOf::All || flight.body.has_payload();
        counts && self.loss.loses(flight.len, now, &mut self.rng)
    }

    /// What befalls a packet on the way that has been sent up to `sent`: when it would have been sent if the satellite
    /// were as near as ever, or that it is lost.
    pub fn befall(&mut self, flight: &Flight, sent: Instant) -> Option<Instant> {
        if self.at == LossAt::AfterQueue && self.loses(flight, sent) {
            return None;
        }
        let Some(satellite) = &mut self.satellite else { return Some(sent) };
        if satellite.loses() && satellite.outage(sent).is_some() {
            return None;
        }
        Some(sent + satellite.delay(sent))
    }
}

/// Packets under way that arrive in the order in which they left; only the first is on the agenda.
#[derive(Debug, Default)]
pub struct Line {
    pub flights: VecDeque<(Instant, u32)>,
    /// Arrival of the last packet.
    pub last: Instant,
    /// The delay of the connection that it belongs to.
    pub delay: Duration,
}

/// A managed queue in front of a link.
pub struct Port {
    pub queue: Queue,
    pub link: u32,
    pub busy: bool,
    /// When the agenda next wakes the queue.
    pub wake_at: Instant,
    /// Whether its link is more than a rate.
    pub has_sender: bool,
    /// A packet that has been sent in part, and what is left of it [bytes].
    pub partly: Option<(Packet, u32)>,
}

/// Collects what a queue discards.
#[derive(Debug, Default)]
pub struct Discarded(pub Vec<(Packet, DropReason)>);

impl DropHandler for Discarded {
    fn dropped(&mut self, pkt: Packet, reason: DropReason) {
        self.0.push((pkt, reason));
    }
}
