//! Window marking on real connections: the kernel's advertised window is cut to the room in the PEP's buffer.
//!
//! The kernel advertises the room in its socket buffer, which the PEP empties at once. The server, however, may send only
//! as much as [`bentpipe_gateway::PepBuffers::room`] allows, so each acknowledgement to it is rewritten. For a connection
//! with window scale `s` (RFC 7323), acknowledgement `ack` and right edge `right` offered so far, the window field is
//!
//! ```text
//! max(⌊room / 2^s⌋, ⌈(right − ack) / 2^s⌉), at most the kernel's own
//! ```
//!
//! so the right edge never moves back (RFC 9293, section 3.8.6), and otherwise is `ack + room` up to one unit of the scale.
//! An edge that stays is rounded up, so units should be small. If SO_RCVBUF is set before the connection is made, the kernel
//! chooses the scale for that buffer (units of 8 bytes for 256 kB), otherwise for its largest possible buffer (1 kB and
//! more).
//!
//! The kernel advertises a larger window only with an acknowledgement. A server that has used up a small window would wait
//! for its persist timer, so [`Windows::update`] builds the window update that the kernel does not send. Pure functions on
//! packets.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bentpipe_packet::{Info, TcpInfo, flag};

/// MSS of a connection whose SYN has no MSS option (RFC 9293, section 3.7.1) [bytes].
const LEAST_MSS: u16 = 536;

/// A connection from this host.
#[derive(Clone, Debug, Default)]
struct Window {
    /// Window scale of this host's SYN, used if the server's SYN has one too.
    scale: Option<u8>,
    /// Window scale in use, once both SYNs are known.
    shift: Option<u8>,
    /// Window of the SYN, until the sequence number it counts from is known [bytes].
    offered: u16,
    /// Advertised right edge.
    right: Option<u32>,
    /// Acknowledgement and window field of the kernel's last packet.
    ack: u32,
    window: u16,
    /// Acknowledgement and window field of an update that is being sent and that the kernel does not know of.
    update: Option<(u32, u16)>,
    /// Next sequence number of this host.
    seq: Option<u32>,
    /// Headers of the last acknowledgement.
    last: Vec<u8>,
    mss: u16,
    /// Sequence number of the server's FIN.
    theirs: Option<u32>,
}

/// Windows offered on the connections that this host opened.
///
/// A connection is identified by its client (the address that this host's socket is bound to) and its server.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    connections: BTreeMap<(SocketAddr, SocketAddr), Window>,
}

/// True if `a` is after `b` (RFC 9293, section 3.4).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Windows {
    /// No connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles a packet on its way to a server: cuts its window to `room(client, server)` [bytes] from its acknowledgement on,
    /// or leaves it if that is `None`. Returns true if the packet was changed.
    ///
    /// Bytes that the PEP has not read from the socket are acknowledged but not in its buffer; `room` excludes them.
    pub fn outgoing(
        &mut self,
        packet: &mut [u8],
        room: &mut dyn FnMut(SocketAddr, SocketAddr) -> Option<u64>,
    ) -> bool {
        let Some(Info { src, dst, tcp: Some(tcp), .. }) = bentpipe_packet::parse(packet) else {
            return false;
        };
        if tcp.flags & flag::RST != 0 {
            self.forget(src, dst);
            return false;
        }
        if tcp.flags & flag::SYN != 0 {
            return self.opening(packet, src, dst, &tcp, room);
        }
        let Some(window) = self.connections.get_mut(&(src, dst)) else { return false };
        let end = tcp.seq.wrapping_add(tcp.payload + u32::from(tcp.flags & flag::FIN));
        if window.seq.is_none_or(|seq| after(end, seq)) {
            window.seq = Some(end);
        }
        if tcp.flags & flag::ACK == 0 {
            return false;
        }
        if window.theirs.is_some_and(|fin| after(tcp.ack, fin)) {
            // The server has sent everything.
            self.forget(src, dst);
            return false;
        }
        if tcp.payload == 0 && window.update == Some((tcp.ack, tcp.window)) {
            window.update = None;
            return false;
        }
        if let Some(length) = bentpipe_packet::header_len(packet) {
            window.last.clear();
            window.last.extend_from_slice(&packet[..length]);
        }
        (window.ack, window.window) = (tcp.ack, tcp.window);
        let (Some(shift), Some(room)) = (window.shift, room(src, dst)) else { return false };
        let field = window.field(shift, room);
        window.advertise(shift, field);
        field != tcp.window && bentpipe_packet::set_window(packet, field)
    }

    /// Handles the SYN, whose window is never scaled.
    fn opening(
        &mut self,
        packet: &mut [u8],
        client: SocketAddr,
        server: SocketAddr,
        tcp: &TcpInfo,
        room: &mut dyn FnMut(SocketAddr, SocketAddr) -> Option<u64>,
    ) -> bool {
        let Some(room) = room(client, server) else { return false };
        if tcp.flags & flag::ACK != 0 {
            return false;
        }
        let offered = u64::from(tcp.window).min(room) as u16;
        let window = Window {
            scale: tcp.scale,
            offered,
            mss: tcp.mss.unwrap_or(LEAST_MSS),
            seq: Some(tcp.seq.wrapping_add(1)),
            ..Window::default()
        };
        self.connections.insert((client, server), window);
        offered != tcp.window && bentpipe_packet::set_window(packet, offered)
    }

    /// Handles a packet from a server: its SYN fixes the scale, its FIN the end. Resets are left to the kernel, which checks
    /// their sequence number; the socket's owner then calls [`Self::forget`].
    pub fn incoming(&mut self, info: &Info) {
        let Some(tcp) = info.tcp else { return };
        if tcp.flags & (flag::SYN | flag::FIN) == 0 {
            return;
        }
        let Some(window) = self.connections.get_mut(&(info.dst, info.src)) else { return };
        // A SYN that does not acknowledge this host's is of another connection, or forged.
        if tcp.flags & flag::SYN != 0 && window.shift.is_none() && Some(tcp.ack) == window.seq {
            window.shift = Some(if tcp.scale.is_some() { window.scale.unwrap_or(0) } else { 0 });
            window.right = Some(tcp.seq.wrapping_add(1 + u32::from(window.offered)));
        }
        if tcp.flags & flag::FIN != 0 {
            window.theirs = Some(tcp.seq.wrapping_add(tcp.payload));
        }
    }

    /// Builds a window update if the server needs one: it has less than two segments of its window left, and `room` [bytes] from
    /// the last acknowledgement on is at least a segment more.
    ///
    /// Returns true if `out`, which is cleared first, contains an update.
    pub fn update(&mut self, client: SocketAddr, server: SocketAddr, room: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(window) = self.connections.get_mut(&(client, server)) else { return false };
        let (Some(shift), Some(right), Some(seq)) = (window.shift, window.right, window.seq) else {
            return false;
        };
        let left = right.wrapping_sub(window.ack).cast_signed();
        let field = window.field(shift, room);
        let grown = window.edge(shift, field).wrapping_sub(right).cast_signed();
        let mss = i32::from(window.mss);
        if window.last.is_empty() || left >= 2 * mss || grown < mss {
            return false;
        }
        if !bentpipe_packet::build::window_update(&window.last, seq, field, out) {
            return false;
        }
        window.advertise(shift, field);
        window.update = Some((window.ack, field));
        true
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, client: SocketAddr, server: SocketAddr) {
        self.connections.remove(&(client, server));
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// True without connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

impl Window {
    /// Window field for `room` bytes from the last acknowledgement on.
    fn field(&self, shift: u8, room: u64) -> u16 {
        let offered = room >> shift;
        let held = self.right.map_or(0, |right| {
            let left = right.wrapping_sub(self.ack);
            if left.cast_signed() > 0 { u64::from(left.div_ceil(1 << shift)) } else { 0 }
        });
        offered.max(held).min(u64::from(self.window)) as u16
    }

    fn edge(&self, shift: u8, field: u16) -> u32 {
        self.ack.wrapping_add(u32::from(field) << shift)
    }

    fn advertise(&mut self, shift: u8, field: u16) {
        let edge = self.edge(shift, field);
        if self.right.is_none_or(|right| after(edge, right)) {
            self.right = Some(edge);
        }
    }
}
