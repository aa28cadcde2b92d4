//! Sends packets built by this process, with the source address that they contain.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};

/// Raw sockets for IPv4 and IPv6. Opening them needs CAP_NET_RAW.
#[derive(Debug)]
pub struct Injector {
    v4: OwnedFd,
    /// `None` on a kernel without IPv6.
    v6: Option<OwnedFd>,
}

impl Injector {
    /// Opens both sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        // With protocol "raw" packets include their IP header, and the socket receives nothing.
        let open = |family| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            socket(family, SockType::Raw, flags, SockProtocol::Raw)
        };
        let v6 = match open(AddressFamily::Inet6) {
            Err(Errno::EAFNOSUPPORT) => None,
            opened => Some(opened?),
        };
        Ok(Self { v4: open(AddressFamily::Inet)?, v6 })
    }

    /// Sends a packet, complete from its IP header on.
    ///
    /// # Errors
    /// If it cannot be parsed or the kernel refuses it.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let info = bentpipe_packet::parse(packet).ok_or(io::ErrorKind::InvalidData)?;
        let to = SockaddrStorage::from(SocketAddr::new(info.dst.ip(), 0));
        let socket = if info.version == 4 { Some(&self.v4) } else { self.v6.as_ref() };
        let socket = socket.ok_or(Errno::EAFNOSUPPORT)?;
        sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty())?;
        Ok(())
    }
}
