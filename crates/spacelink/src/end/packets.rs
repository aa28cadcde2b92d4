//! IP packets that are not split.

use super::*;

/// Length of a QUIC packet's short header, with an identifier of 8 bytes and a packet number of 2, its authentication tag, and the
/// header of one DATAGRAM frame with its type [bytes] (RFC 9000, section 17.3; RFC 9001, section 5.3; RFC 9221, section 4).
const DATAGRAM_HEADER: u32 = (1 + 8 + 2) + 16 + (1 + 2);

impl Spacelink {
    /// Length of an IP packet of `len` bytes on the wire, in one datagram or several, UDP and IP headers included [bytes]. Short
    /// packets that share a datagram take less.
    #[must_use]
    pub fn wire_len(&mut self, len: u32) -> u32 {
        let Some(at) = self.active() else { return len };
        let conn = &mut self.connections[at].conn;
        let each = header(conn.remote_address()) as u32 + DATAGRAM_HEADER;
        let most = conn.datagrams().max_size().unwrap_or(usize::MAX);
        if (len as usize) < most {
            return len + each + 1;
        }
        let pieces = (len as usize).div_ceil(most.saturating_sub(FRAGMENT_HEADER).max(1)) as u32;
        len.saturating_add(pieces.saturating_mul(each + FRAGMENT_HEADER as u32))
    }

    /// Longest IP packet that fits one datagram [bytes]; longer ones are fragmented. `None` while the peer is not connected.
    #[must_use]
    pub fn max_datagram(&mut self) -> Option<usize> {
        let at = self.active()?;
        self.connections[at].conn.datagrams().max_size().map(|size| size.saturating_sub(1))
    }

    /// Sends an IP packet, in fragments if it is longer than [`Self::max_datagram`]. Lost packets are not retransmitted.
    ///
    /// # Errors
    /// If it cannot be sent now, or at all.
    pub fn datagram(&mut self, packet: &[u8]) -> Result<(), NotSent> {
        let at = self.active().ok_or(NotSent::Down)?;
        if packet.is_empty() || packet.len() > usize::from(u16::MAX) {
            return Err(NotSent::Length);
        }
        // In an outage it would be lost, and only take memory.
        if self.connections[at].silent {
            self.stats.silenced_ip += 1;
            return Err(NotSent::Silent);
        }
        let mut datagrams = self.connections[at].conn.datagrams();
        let most = datagrams.max_size().ok_or(NotSent::Down)?;
        if packet.len() < most {
            self.stats.sent_ip += 1;
            let _ = datagrams.send(frames::packet_datagram(packet).into(), true);
            return Ok(());
        }
        let room = most.checked_sub(FRAGMENT_HEADER).filter(|room| *room > 0).ok_or(NotSent::Length)?;
        let pieces = packet.len().div_ceil(room);
        if pieces > MAX_FRAGMENTS {
            return Err(NotSent::Length);
        }
        self.stats.sent_ip += 1;
        // Fragments of equal length, which the shaper spreads better.
        let each = packet.len().div_ceil(pieces);
        for (index, data) in packet.chunks(each).enumerate() {
            let piece = frames::fragment_datagram(self.packet, index as u8, pieces as u8, data);
            let _ = datagrams.send(piece.into(), true);
        }
        self.packet = self.packet.wrapping_add(1);
        self.stats.fragmented_ip += 1;
        Ok(())
    }

    /// Takes IP packets and credits that arrived as datagrams.
    pub(super) fn take_datagrams(&mut self, now: Instant, at: usize) {
        if self.current != Some(self.connections[at].handle) {
            return;
        }
        while let Some(bytes) = self.connections[at].conn.datagrams().recv() {
            match Datagram::parse(&bytes) {
                Ok(Datagram::Packet(packet)) => self.deliver(packet.to_vec()),
                Ok(Datagram::Fragment { packet, index, count, data }) => {
                    if let Some(packet) = self.reassembly.fragment(now, packet, index, count, data) {
                        self.deliver(packet);
                    }
                }
                Ok(Datagram::Credits(credits)) => credits.for_each(|credit| self.credited(credit)),
                Err(_) => self.stats.malformed += 1,
            }
        }
    }

    pub(super) fn deliver(&mut self, packet: Vec<u8>) {
        self.stats.received_ip += 1;
        self.events.push_back(Event::Datagram(packet));
    }
}
