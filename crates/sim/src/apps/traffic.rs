//! Traffic between two groups of hosts.

use std::collections::VecDeque;
use std::sync::Arc;

use bentpipe_scenario::{Dash, Distribution, Pattern, Rendering};
use bentpipe_traffic::Presence;
use bentpipe_units::{Duration, Rate};

use crate::endpoints::Layout;
use crate::ids::{QuicConfigId, RtpConfigId, SctpConfigId, SlotId, TcpConfigId};

/// Traffic between two groups of hosts.
pub struct Traffic {
    pub name: String,
    /// Layout of its flows.
    pub layout: Layout,
    /// Layouts after the handovers of the terminals on its way, in order of time.
    pub layouts_after: VecDeque<Layout>,
    /// The group that sends the data.
    pub from: Group,
    /// The group that receives the data.
    pub to: Group,
    pub kind: Kind,
    pub transport: Transport,
    /// True if connections that their sender would open are opened by the receiver, whose address changes: only clients
    /// migrate.
    pub receiver_opens: bool,
    /// Codepoint of its packets.
    pub dscp: u8,
    /// Presence of its users.
    pub presence: Presence,
    /// Slots that are not in use, by [`Layout::pool`].
    pub free_slots: Vec<Vec<SlotId>>,
}

/// A group of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Number of the group's first host among all hosts.
    pub first: u32,
    pub count: u32,
}

impl Group {
    /// True if a host, by its number among all, belongs to it.
    pub fn has(self, host: u32) -> bool {
        (self.first..self.first + self.count).contains(&host)
    }
}

/// Hosts that change their addresses together.
#[derive(Clone, Copy, Debug)]
pub struct Moving {
    pub hosts: Group,
    /// Time between two changes.
    pub interval: Duration,
}

/// Application of a traffic entry.
pub enum Kind {
    /// Users who request pages.
    Pages {
        object_size: Distribution<u64>,
        objects_per_page: u32,
        loading: Loading,
        /// Time for which an idle connection stays open for the next page.
        keep_alive: Option<Duration>,
        think_time: Distribution<Duration>,
        /// Time after which a session gives up a page.
        patience: Option<Duration>,
        request_size: u64,
        /// Objects that a browser needs first, if they are told apart.
        rendering: Option<Rendering>,
    },
    /// Sources that begin transfers.
    Files { interval: Distribution<Duration>, size: Distribution<u64>, transfers: u32 },
    /// Long-lived transfers.
    Bulk {
        /// `None` if a transfer has no end.
        bytes: Option<u64>,
        lifetime: Option<Distribution<Duration>>,
    },
    /// Viewers of adaptive video.
    Dash(Box<Dash>),
    /// Sources that send packets.
    Packets { pattern: Arc<Pattern> },
}

/// Loading of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// All objects in sequence on one connection.
    InSequence,
    /// Each object on a separate connection, all at once.
    AtOnce,
    /// The first object; then all others on up to six connections, each with one request at a time.
    Http1,
    /// The first object; then all others at once on the same connection.
    Http2,
    /// As HTTP/2, with each object on a separate stream of a QUIC connection.
    Http3,
    /// The server's part of a TLS handshake, then an object of 1 byte, on one connection.
    Probe,
}

/// Transport of a traffic entry, with its configuration.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Tcp {
        /// Of the host that sends the data.
        sender: TcpConfigId,
        /// Of every other end.
        other: TcpConfigId,
    },
    Udp,
    Quic {
        /// Of the host that sends the data.
        sender: QuicConfigId,
        /// Of the other host.
        other: QuicConfigId,
        /// True if the packets of sources travel in unreliable datagrams.
        datagrams: bool,
    },
    Sctp {
        config: SctpConfigId,
    },
    Rtp {
        config: RtpConfigId,
        /// Rate of a source without adaptation.
        nominal: Rate,
    },
}
