//! Migration of a client to another address (RFC 9000, section 9).

use std::net::SocketAddr;

use bentpipe_units::Instant;

use super::Connection;

impl Connection {
    /// Address of the peer, as quinn knows it.
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.quic.as_ref().map(|(_, quic)| quic.remote_address())
    }

    /// Forgets what is known of the path before.
    pub(super) fn begin_path(&mut self, now: Instant) {
        self.shared.forget_path();
        self.paced_until = self.paced_until.min(now);
    }

    /// Moves a client to another address (RFC 9000, section 9.2): it takes the next of the server's connection ids (section
    /// 9.5), begins with the initial window and no RTT (section 9.4), and sends a packet from there, whose address the
    /// server validates (section 9.3).
    ///
    /// Returns false if that is not possible: at a server, before the handshake is confirmed (section 9), or after the end of
    /// the connection.
    pub fn migrate(&mut self, now: Instant) -> bool {
        let at = self.std(now);
        let Some((_, quic)) = self.quic.as_mut().filter(|_| self.is_client) else { return false };
        if quic.is_closed() || quic.stats().frame_rx.handshake_done == 0 {
            return false;
        }
        quic.local_address_changed();
        quic.path_changed(at);
        self.handle_events();
        self.address += 1;
        self.migrations += 1;
        self.begin_path(now);
        if let Some(log) = &mut self.log {
            log.on_migrated();
        }
        true
    }

    /// True for a datagram to an address that this client has left.
    #[must_use]
    pub fn has_left(&self, address: u32) -> bool {
        self.is_client && address != self.address
    }
}
