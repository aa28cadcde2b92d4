//! Admission of new connections: which are relayed, which wait, and which bypass the PEP.

use std::collections::VecDeque;
use std::net::TcpListener;

use bentpipe_spacelink::{Open, PeerId, StreamKey};
use bentpipe_units::{Duration, Instant};

use crate::config::{Config, Role};
use crate::sys;

/// Lifetime of an incomplete handshake in the kernel (tcp_synack_retries = 5: 1 + 2 + 4 + … + 32 s), and a second.
const HANDSHAKE: Duration = Duration::from_secs(64);
/// Connections relayed beyond the limit: those accepted before the bypass took effect.
pub const SPARE: u32 = 256;
/// Descriptors for everything but relayed connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Change that admission requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bypass the PEP for new connections, or end the bypass.
    Bypass(bool),
    /// Report to the peer that this end has no room, or room again.
    ReportFull(bool),
}

/// Quantities that are limited.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Relayed connections.
    pub open: u32,
    /// Connections that are not open at both ends yet.
    pub half_open: u64,
    /// Bytes held by the PEP.
    pub memory: u64,
}

/// Limits of this end, room at the peer, and SYN floods.
pub struct Admission {
    role: Role,
    /// Maximum number of connections.
    connections: u32,
    /// Maximum number of connections that are not open at both ends.
    handshakes: u32,
    /// Maximum number of bytes held by the PEP.
    memory: u64,
    /// Sockets that TPROXY leads to.
    pub listeners: Vec<TcpListener>,
    /// True while the loop waits for connections there.
    pub listening: bool,
    /// Connections to servers that wait until fewer are half-open.
    pub waiting: VecDeque<(StreamKey, Open)>,
    /// True if connections were opened since the limits were last checked.
    pub unchecked: bool,
    /// True while the peer has no room for further connections.
    peer_full: bool,
    /// True while the peer knows that this end has none.
    reported_full: bool,
    /// Handshakes that found the listeners' queues full, as the kernel counts them.
    overflows: u64,
    /// Until then the queues may still be full.
    flooded_until: Instant,
}

impl Admission {
    /// Admission by the limits of a configuration, in a process that may open `descriptors` files.
    pub fn new(config: &Config, descriptors: u64, now: Instant) -> Self {
        let mut admission = Self {
            role: config.role,
            connections: 0,
            handshakes: 0,
            memory: 0,
            listeners: Vec::new(),
            listening: false,
            waiting: VecDeque::new(),
            unchecked: false,
            peer_full: false,
            reported_full: false,
            overflows: sys::syn_queue_overflows(),
            flooded_until: now,
        };
        admission.set_limits(config, descriptors);
        admission
    }

    /// Takes over the limits of a configuration.
    pub fn set_limits(&mut self, config: &Config, descriptors: u64) {
        let limits = &config.limits;
        let others = OTHER_DESCRIPTORS + u64::from(SPARE);
        let descriptors = u32::try_from(descriptors.saturating_sub(others)).unwrap_or(u32::MAX);
        self.connections = limits.connections.0.min(descriptors);
        (self.handshakes, self.memory) = (limits.handshakes.0, limits.memory.0);
    }

    /// True if not even the spare connections are left.
    #[must_use]
    pub fn is_exhausted(&self, open: u32) -> bool {
        open >= self.connections.saturating_add(SPARE)
    }

    /// True if a further connection to a server may begin.
    #[must_use]
    pub fn may_connect(&self, connecting: u32) -> bool {
        connecting < self.handshakes
    }

    /// True if so few connections are open that half-open ones need not be counted.
    #[must_use]
    pub fn is_far_from_handshakes(&self, open: u32) -> bool {
        let handshakes = u64::from(self.handshakes);
        u64::from(open) < handshakes - handshakes / 10
    }

    /// The peer has no room for further connections, or room again.
    pub fn set_peer_full(&mut self, full: bool) {
        self.peer_full = full;
    }

    /// Forgets everything about a peer that is gone; `last` if no other is left.
    pub fn peer_lost(&mut self, peer: PeerId, last: bool) {
        self.waiting.retain(|(key, _)| key.peer() != peer);
        if last {
            (self.peer_full, self.reported_full) = (false, false);
        }
    }

    /// Forgets a stream that waits to be connected.
    pub fn forget(&mut self, key: StreamKey) {
        self.waiting.retain(|(other, _)| *other != key);
    }

    /// True while the peer knows that this end has no room.
    #[must_use]
    pub fn reported_full(&self) -> bool {
        self.reported_full
    }

    /// Checks whether the listeners' queues overflowed. Handshakes answered with SYN cookies are never completed, since
    /// TPROXY takes only SYNs, so all new connections bypass the PEP until the queues are empty. Returns true when a
    /// flood begins.
    pub fn check_syn_flood(&mut self, now: Instant) -> bool {
        if self.listeners.is_empty() {
            return false;
        }
        let overflows = sys::syn_queue_overflows();
        if std::mem::replace(&mut self.overflows, overflows) == overflows {
            return false;
        }
        let begins = self.flooded_until <= now;
        self.flooded_until = now + HANDSHAKE;
        begins
    }

    /// Decides on the bypass: it begins when a limit is reached at either end, a SYN flood fills the listeners' queues, or the
    /// peer is down, and ends when the load is a tenth below every limit. Only a terminal can bypass; a gateway tells it.
    #[must_use]
    pub fn decide(&mut self, load: Load, up: bool, now: Instant) -> Option<Decision> {
        let filled = [
            (u64::from(load.open), u64::from(self.connections)),
            (load.half_open + self.waiting.len() as u64, u64::from(self.handshakes)),
            // Delivered bytes make room for those that wait at once, so full memory is seldom seen: 90 % count as full.
            (load.memory, self.memory - self.memory / 10),
        ];
        let is_full = filled.iter().any(|(is, most)| is >= most);
        let has_room = filled.iter().all(|(is, most)| *is < most - most / 10);
        match self.role {
            Role::Gateway => {
                let changes = is_full && !self.reported_full || has_room && self.reported_full;
                (up && changes).then(|| {
                    self.reported_full = is_full;
                    Decision::ReportFull(is_full)
                })
            }
            // Without a listener nothing is split.
            Role::Terminal if self.listeners.is_empty() => None,
            Role::Terminal if !up || self.peer_full || self.flooded_until > now || is_full => {
                Some(Decision::Bypass(true))
            }
            Role::Terminal => has_room.then_some(Decision::Bypass(false)),
        }
    }
}
