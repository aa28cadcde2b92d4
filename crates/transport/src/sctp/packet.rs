//! Packets, the unit of exchange between two associations.

use bentpipe_units::Instant;

use super::Config;

/// Common header of a packet, RFC 9260 section 3.1 [bytes].
pub(super) const COMMON_HEADER: u32 = 12;
/// Header of a DATA chunk, section 3.3.1 [bytes].
pub(super) const DATA_HEADER: u32 = 16;
/// SACK chunk without blocks, section 3.3.4 [bytes].
pub(super) const SACK_HEADER: u32 = 16;

/// Maximum number of DATA chunks in a packet. More very short messages would fit, but are not bundled.
pub const MAX_CHUNKS: usize = 16;

/// Control chunk of a packet, which comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Control {
    /// No control chunk.
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
        /// State cookie.
        cookie: Cookie,
    },
    /// COOKIE ECHO, section 3.3.11.
    CookieEcho {
        /// The cookie, returned unchanged.
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

/// State cookie, section 5.1.3: what an endpoint without state needs to set up the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cookie {
    /// Receive buffer offered in the INIT [bytes].
    pub a_rwnd: u32,
    /// Creation time.
    pub created_at: Instant,
}

/// A DATA chunk without its payload, section 3.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Data {
    /// Transmission sequence number, starting at one.
    pub tsn: u64,
    /// User data [bytes].
    pub len: u16,
    /// B bit: first fragment of a message.
    pub begin: bool,
    /// E bit: last fragment of a message.
    pub end: bool,
}

impl Data {
    /// Length on the wire, including header and padding [bytes].
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
    /// Cumulative TSN ack: last TSN before the first missing one.
    pub cum_tsn_ack: u64,
    /// Free receive buffer [bytes].
    pub a_rwnd: u32,
    /// Gap ack blocks: first and last TSN received, as offsets from `cum_tsn_ack`, in ascending order.
    pub blocks: Vec<(u16, u16)>,
    /// Number of duplicate TSNs reported.
    pub duplicates: u16,
    /// Size of their chunks, which a real sender would know from the TSNs [bytes].
    pub duplicate_bytes: u32,
}

impl Sack {
    /// Length on the wire [bytes].
    #[must_use]
    pub fn size(&self) -> u32 {
        SACK_HEADER + 4 * (self.blocks.len() as u32 + u32::from(self.duplicates))
    }
}

/// An SCTP packet without its payload, of which only the length is kept.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Packet {
    /// Control chunk, if any.
    pub control: Control,
    /// SACK, if any.
    pub sack: Option<Sack>,
    /// DATA chunks; only the first `count` are valid.
    chunks: [Data; MAX_CHUNKS],
    count: u8,
    /// True if its DATA was sent before. Not part of the protocol; traces read it.
    pub retransmission: bool,
}

impl Packet {
    /// A packet with only a control chunk.
    #[must_use]
    pub fn control(control: Control) -> Self {
        Self { control, ..Self::default() }
    }

    /// DATA chunks.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[Data] {
        &self.chunks[..usize::from(self.count)]
    }

    /// Adds a DATA chunk. Returns false if the packet is full.
    pub fn push(&mut self, chunk: Data) -> bool {
        let Some(slot) = self.chunks.get_mut(usize::from(self.count)) else { return false };
        *slot = chunk;
        self.count += 1;
        true
    }

    /// True if another DATA chunk may be added.
    pub(super) fn has_space(&self) -> bool {
        usize::from(self.count) < MAX_CHUNKS
    }

    /// Length on the wire, including the IP header [bytes].
    #[must_use]
    pub fn wire_len(&self, cfg: &Config) -> u32 {
        let control = match self.control {
            Control::None => 0,
            // Section 3.3.2: 20 bytes and no parameters.
            Control::Init { .. } => 20,
            // Section 3.3.3: as INIT, with the cookie as a parameter.
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
