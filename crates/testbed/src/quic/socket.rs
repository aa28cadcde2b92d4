//! UDP sockets whose packets carry DSCP and ECN.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bentpipe_transport::tcp::Ecn;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};

use crate::sys;

/// Receive buffer [bytes].
const RECEIVE_BUFFER: usize = 4 << 20;

/// A UDP socket.
pub struct Socket {
    udp: UdpSocket,
    dscp: u8,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

impl Socket {
    /// Binds a socket.
    ///
    /// # Errors
    /// If the address is not local or in use.
    pub fn bind(local: SocketAddr, dscp: u8) -> io::Result<Self> {
        let udp = UdpSocket::bind(local)?;
        udp.set_nonblocking(true)?;
        if local.is_ipv6() {
            setsockopt(&udp, sockopt::Ipv6RecvTClass, &true)?;
        } else {
            setsockopt(&udp, sockopt::IpRecvTos, &true)?;
        }
        sys::forbid_fragments(&udp, local.is_ipv6())?;
        // Exceeds net.core.rmem_max; without CAP_NET_ADMIN the default size stays.
        let _ = setsockopt(&udp, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        Ok(Self { udp, dscp })
    }

    /// The local address and port.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn send(&self, payload: &[u8], to: SocketAddr, ecn: Ecn) -> io::Result<()> {
        let tos = self.dscp << 2 | bits(ecn);
        let class = i32::from(tos);
        let mark =
            if to.is_ipv6() { ControlMessage::Ipv6TClass(&class) } else { ControlMessage::Ipv4Tos(&tos) };
        let (parts, to) = ([IoSlice::new(payload)], SockaddrStorage::from(to));
        sendmsg(self.udp.as_raw_fd(), &parts, &[mark], MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Receives a packet: its length [bytes], its sender and its code point.
    ///
    /// # Errors
    /// Those of recvmsg(2), also if no packet waits.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Ecn)> {
        let mut control = nix::cmsg_space!(i32, i32);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.udp.as_raw_fd();
        let found = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::empty())?;
        let tos = found.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        });
        let v4 =
            found.address.and_then(|from| from.as_sockaddr_in().map(|from| SocketAddr::V4((*from).into())));
        let v6 =
            found.address.and_then(|from| from.as_sockaddr_in6().map(|from| SocketAddr::V6((*from).into())));
        let from = v4.or(v6).ok_or(io::ErrorKind::InvalidData)?;
        Ok((found.bytes, from, point(tos.unwrap_or(0))))
    }
}

/// Code point in a TOS or traffic class (RFC 3168, section 5).
fn point(tos: u8) -> Ecn {
    [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(tos & 3)]
}

fn bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_code_points() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || Socket::bind(host.parse().unwrap(), 46).unwrap();
            let (a, b) = (bind(), bind());
            let to = b.local().unwrap();
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                a.send(&[7; 100], to, ecn).unwrap();
                let mut buffer = [0; 200];
                // Loopback delivers before sendmsg(2) returns.
                assert_eq!(b.receive(&mut buffer).unwrap(), (100, a.local().unwrap(), ecn));
            }
            assert_eq!(b.receive(&mut [0; 200]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
}
