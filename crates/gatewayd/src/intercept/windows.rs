//! Window marking on real connections: the window that the kernel advertises is cut to what the PEP's buffer offers.
//!
//! The kernel's own receive window says what its socket buffer can take, which the PEP empties at once; what the server
//! may send is for [`bentpipe_gateway::PepBuffers::room`] to say. So each acknowledgement to the server is rewritten on
//! its way out. For a connection with window scale `s` (RFC 7323), its acknowledgement `ack` and the right edge `right`
//! that it has been offered so far, the window field is
//!
//! ```text
//! max(⌊room / 2^s⌋, ⌈(right − ack) / 2^s⌉), and never more than the kernel's own
//! ```
//!
//! so that the right edge never moves back (RFC 9293, section 3.8.6), and is `ack + room` exact to one unit of the scale
//! where it may be. An edge that stays is rounded up, so units should be small: where SO_RCVBUF is set before the
//! connection is made, the kernel chooses its scale for that buffer (units of 8 bytes for 256 kB), otherwise for the
//! largest that it may ever have (1 kB and more).
//!
//! The kernel advertises a window that grew when it has something to acknowledge. A server that has used up a small one
//! would wait for its persist timer, so [`Windows::update`] writes the window update that the kernel does not know of;
//! the host sends it. Pure: packets and bytes go in and come out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bentpipe_packet::{Info, TcpInfo, flag};

/// Segment size of a connection whose SYN names none (RFC 9293, section 3.7.1) [bytes].
const LEAST_MSS: u16 = 536;

/// A connection from this host.
#[derive(Clone, Debug, Default)]
struct Window {
    /// Its own scale: of its SYN, which holds if the other side's has one too.
    scale: Option<u8>,
    /// Binary logarithm of the unit of its window fields, once that is settled.
    shift: Option<u8>,
    /// Window of the SYN, until the number is known that it counts from [bytes].
    offered: u16,
    /// Right edge that was advertised.
    right: Option<u32>,
    /// Next byte expected from the server, and window field, as the kernel said them last.
    ack: u32,
    window: u16,
    /// Acknowledgement and window field of an update that is on its way out, which the kernel has not said.
    update: Option<(u32, u16)>,
    /// Next sequence number of its own.
    seq: Option<u32>,
    /// Headers of the last acknowledgement.
    last: Vec<u8>,
    mss: u16,
    /// Sequence number of the server's FIN.
    theirs: Option<u32>,
}

/// Of each connection that this host has opened, what window it was offered.
///
/// A connection is named by its client (the address that this host's socket is bound to) and its server.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    connections: BTreeMap<(SocketAddr, SocketAddr), Window>,
}

/// `a` is after `b` (RFC 9293, section 3.4).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Windows {
    /// Without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet to a server, on its way out: its window is cut to `room(client, server)` [bytes], counted from its
    /// acknowledgement; with none it stays as it is. True if the packet was changed.
    ///
    /// What the PEP has not yet read from the socket is acknowledged and not in its buffer, so `room` is less by that.
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
            // The server has sent all that it has.
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

    /// The SYN, whose window is never scaled.
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

    /// A packet from a server, on its way in: its SYN settles the scale, its FIN the end. Whether a reset is one is for
    /// the kernel to say, which looks at its sequence number: whoever has the socket learns of it, and forgets.
    pub fn incoming(&mut self, info: &Info) {
        let Some(tcp) = info.tcp else { return };
        if tcp.flags & (flag::SYN | flag::FIN) == 0 {
            return;
        }
        let Some(window) = self.connections.get_mut(&(info.dst, info.src)) else { return };
        // One that does not acknowledge our SYN is of another connection, or anybody's.
        if tcp.flags & flag::SYN != 0 && window.shift.is_none() && Some(tcp.ack) == window.seq {
            window.shift = Some(if tcp.scale.is_some() { window.scale.unwrap_or(0) } else { 0 });
            window.right = Some(tcp.seq.wrapping_add(1 + u32::from(window.offered)));
        }
        if tcp.flags & flag::FIN != 0 {
            window.theirs = Some(tcp.seq.wrapping_add(tcp.payload));
        }
    }

    /// A window update to send to the server now, if that would let it go on: it has less than two segments left of what
    /// it was offered, and `room` [bytes] from the last acknowledgement on is at least a segment more.
    ///
    /// True if there is one; it is put into `out`, which is emptied first.
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

    /// The connection is over.
    pub fn forget(&mut self, client: SocketAddr, server: SocketAddr) {
        self.connections.remove(&(client, server));
    }

    /// Connections that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether no connection is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

impl Window {
    /// The window field for `room` bytes from the last acknowledgement on.
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
