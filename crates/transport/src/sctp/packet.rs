//! What two associations exchange.

use bentpipe_units::Instant;

use super::Config;

/// Common header of a packet, RFC 9260 section 3.1 [bytes].
pub(super) const COMMON_HEADER: u32 = 12;
/// Header of a DATA chunk, section 3.3.1 [bytes].
pub(super) const DATA_HEADER: u32 = 16;
/// SACK chunk without blocks, section 3.3.4 [bytes].
pub(super) const SACK_HEADER: u32 = 16;

/// The most DATA chunks in a packet: more would fit where messages are very short, but are not bundled.
pub const MAX_CHUNKS: usize = 16;

/// Chunks that manage the association, and come first in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Control {
    /// None.
    #[default]
    None,
    /// INIT, section 3.3.2.
    Init {
        /// The sender's receive buffer [bytes].
        a_rwnd: u32,
    },
    /// INIT ACK, section 3.3.3.
    InitAck {
        /// The sender's receive buffer [bytes].
        a_rwnd: u32,
        /// The state of an association that is not yet one.
        cookie: Cookie,
    },
    /// COOKIE ECHO, section 3.3.11.
    CookieEcho {
        /// The cookie, unchanged.
        cookie: Cookie,
    },
    /// COOKIE ACK, section 3.3.12.
    CookieAck,
    /// ERROR with the cause "stale cookie", section 3.3.10.3.
    StaleCookie,
    /// SHUTDOWN, section 3.3.8.
    Shutdown {
        /// Cumulative TSN ack.
        cum_tsn_ack: u64,
    },
    /// SHUTDOWN ACK, section 3.3.9.
    ShutdownAck,
    /// SHUTDOWN COMPLETE, section 3.3.13.
    ShutdownComplete,
    /// ABORT, section 3.3.7.
    Abort,
}

/// What an endpoint that keeps no state needs to know again, section 5.1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cookie {
    /// The receive buffer that the INIT offered [bytes].
    pub a_rwnd: u32,
    /// When it was made.
    pub created_at: Instant,
}

/// A DATA chunk without its payload, section 3.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Data {
    /// Transmission sequence number, from one on.
    pub tsn: u64,
    /// User data [bytes].
    pub len: u16,
    /// Whether it is the first fragment of a message (B), and the last (E).
    pub begin: bool,
    /// See `begin`.
    pub end: bool,
}

impl Data {
    /// Length on the wire, header and padding included [bytes].
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        size(self.len)
    }
}

/// Length of a DATA chunk on the wire [bytes].
#[inline]
pub(super) fn size(len: u16) -> u32 {
    (DATA_HEADER + u32::from(len)).next_multiple_of(4)
}

/// A selective acknowledgement, section 3.3.4.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sack {
    /// The last TSN before which none is missing.
    pub cum_tsn_ack: u64,
    /// Room in the receive buffer [bytes].
    pub a_rwnd: u32,
    /// Gap ack blocks: first and last TSN received, as distances from `cum_tsn_ack`, in ascending order.
    pub blocks: Vec<(u16, u16)>,
    /// Duplicate TSNs reported, and the bytes of their chunks, which a sender would know from their numbers.
    pub duplicates: u16,
    /// See `duplicates`.
    pub duplicate_bytes: u32,
}

impl Sack {
    /// Length on the wire [bytes].
    #[must_use]
    pub fn size(&self) -> u32 {
        SACK_HEADER + 4 * (self.blocks.len() as u32 + u32::from(self.duplicates))
    }
}

/// An SCTP packet without its payload, whose length is all a simulator needs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Packet {
    /// The chunk that manages the association, if any.
    pub control: Control,
    /// The SACK, if any.
    pub sack: Option<Sack>,
    /// DATA chunks; of use are the first `count`.
    chunks: [Data; MAX_CHUNKS],
    count: u8,
    /// Whether its DATA was sent before. No part of the protocol: traces read it.
    pub retransmission: bool,
}

impl Packet {
    /// A packet with a control chunk alone.
    #[must_use]
    pub fn control(control: Control) -> Self {
        Self { control, ..Self::default() }
    }

    /// Its DATA chunks.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[Data] {
        &self.chunks[..usize::from(self.count)]
    }

    /// Adds a DATA chunk; whether there was a place for it.
    pub fn push(&mut self, chunk: Data) -> bool {
        let Some(place) = self.chunks.get_mut(usize::from(self.count)) else { return false };
        *place = chunk;
        self.count += 1;
        true
    }

    /// Whether there is a place for another DATA chunk.
    pub(super) fn has_space(&self) -> bool {
        usize::from(self.count) < MAX_CHUNKS
    }

    /// Length on the wire, IP header included [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        let control = match self.control {
            Control::None => 0,
            // Section 3.3.2: 20 bytes and no parameters.
            Control::Init { .. } => 20,
            // Section 3.3.3: as INIT, and the cookie as a parameter.
            Control::InitAck { .. } => 24 + cfg.cookie_len.next_multiple_of(4),
            Control::CookieEcho { .. } => 4 + cfg.cookie_len.next_multiple_of(4),
            Control::Shutdown { .. } => 8,
            // Section 3.3.10.3: chunk header, cause header, measure of staleness.
            Control::StaleCookie => 12,
            Control::CookieAck | Control::ShutdownAck | Control::ShutdownComplete | Control::Abort => 4,
        };
        let data: u32 = self.data().iter().map(Data::size).sum();
        cfg.ip_header + COMMON_HEADER + control + self.sack.as_ref().map_or(0, Sack::size) + data
    }
}
