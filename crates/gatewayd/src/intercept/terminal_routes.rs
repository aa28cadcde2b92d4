//! Routes of the users behind each of many terminals, in the table of packets that are not split.
//!
//! While a terminal is connected, its prefixes lead into the TUN device. Otherwise they are `throw` routes, with which the
//! kernel continues with the next routing rule: packets are routed past the gateway. They are changed by rtnetlink
//! (rtnetlink(7)) and not by commands, because a change takes some microseconds and is complete when the call returns.

use std::io::{self, Error};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

use super::netlink::{Message, attribute, end, message_at};
use super::rules::PROTOCOL;
use crate::config::Prefix;

/// Attributes of a route (linux/rtnetlink.h).
const RTA_DST: libc::c_int = 1;
const RTA_OIF: libc::c_int = 4;
const RTA_PRIORITY: libc::c_int = 6;
const RTA_TABLE: libc::c_int = 15;
/// Metric of all routes, so that one replaces another.
pub(super) const METRIC: u32 = 1024;
/// Messages sent with one call, whose replies fit into the socket's buffer.
const BATCH: usize = 64;

/// Destination of packets to users behind a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// Into the TUN device.
    Tunnel,
    /// Past the gateway: the following routing rules decide.
    Bypass,
    /// No route: these addresses are nobody's.
    None,
}

/// The routes of all terminals.
#[derive(Debug)]
pub struct TerminalRoutes {
    socket: OwnedFd,
    table: u32,
    /// Index of the TUN device.
    device: u32,
}

impl TerminalRoutes {
    /// Opens the socket, in the calling thread's network namespace.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn open(table: u32, device: &str) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let device = nix::net::if_::if_nametoindex(device)?;
        Ok(Self { socket, table, device })
    }

    /// Sets the routes of these prefixes. An IP version that the kernel does not have is left out.
    ///
    /// # Errors
    /// If the kernel refuses a route; the others are changed.
    pub fn set_routes(&self, prefixes: &[Prefix], target: RouteTarget) -> io::Result<()> {
        let mut result = Ok(());
        for prefixes in prefixes.chunks(BATCH) {
            let mut out = Vec::new();
            for prefix in prefixes {
                encode(&mut out, prefix, target, self.table, self.device);
            }
            send(self.socket.as_raw_fd(), &out, MsgFlags::empty())?;
            for prefix in prefixes {
                let done =
                    self.reply(target).map_err(|e| Error::new(e.kind(), format!("route to {prefix}: {e}")));
                result = result.and(done);
            }
        }
        result
    }

    /// Reads the result of a message.
    fn reply(&self, target: RouteTarget) -> io::Result<()> {
        let mut reply = [0; 4096];
        let length = loop {
            match recv(self.socket.as_raw_fd(), &mut reply, MsgFlags::empty()) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other?,
            }
        };
        match message_at(&reply[..length], 0) {
            Some((Message::Status(0), _)) => Ok(()),
            Some((Message::Status(code), _)) => match -code {
                libc::EAFNOSUPPORT | libc::EOPNOTSUPP => Ok(()),
                libc::ESRCH if target == RouteTarget::None => Ok(()),
                code => Err(Error::from_raw_os_error(code)),
            },
            _ => Err(Error::other("an unexpected answer of the kernel")),
        }
    }
}

/// Adds the message that sets or removes a route.
fn encode(out: &mut Vec<u8>, prefix: &Prefix, target: RouteTarget, table: u32, device: u32) {
    let removes = target == RouteTarget::None;
    let (kind, more) = if removes {
        (libc::RTM_DELROUTE, 0)
    } else {
        (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
    };
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK | more) as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    let (family, address) = match prefix.address {
        std::net::IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        std::net::IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let (scope, route) = match target {
        RouteTarget::Tunnel => (libc::RT_SCOPE_LINK, libc::RTN_UNICAST),
        RouteTarget::Bypass => (libc::RT_SCOPE_UNIVERSE, libc::RTN_THROW),
        RouteTarget::None => (libc::RT_SCOPE_NOWHERE, libc::RTN_UNSPEC),
    };
    // struct rtmsg; the table is in an attribute, since its number may be above 255.
    out.extend_from_slice(&[family as u8, prefix.length, 0, 0, libc::RT_TABLE_UNSPEC, PROTOCOL]);
    out.extend_from_slice(&[scope, route, 0, 0, 0, 0]);
    attribute(out, RTA_DST, &address);
    attribute(out, RTA_TABLE, &table.to_ne_bytes());
    attribute(out, RTA_PRIORITY, &METRIC.to_ne_bytes());
    if target == RouteTarget::Tunnel {
        attribute(out, RTA_OIF, &device.to_ne_bytes());
    }
    end(out, start);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    fn ip(line: &str) -> String {
        let output = Command::new("ip").args(line.split_whitespace()).output().expect("ip");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The kernel's own tool shows the routes; `ip route get` shows where packets go. The second rule stands for the host's
    /// own routes.
    #[test]
    fn routes_change_between_tunnel_and_host() {
        let done = std::thread::spawn(|| {
            // Needs a network namespace, which root may create.
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            for line in [
                "link set lo up",
                "link add tun type veth peer name tun-end",
                "link add host type veth peer name host-end",
                "link set tun up",
                "link set tun-end up",
                "link set host up",
                "link set host-end up",
                "rule add priority 6301 to 10.3.0.0/16 lookup 6301",
                "-6 rule add priority 6301 to fd03::/48 lookup 6301",
                "route add unreachable 10.3.0.0/16 table 6301 metric 2048",
                "-6 route add unreachable fd03::/48 table 6301 metric 2048",
                "route add 10.3.0.0/16 dev host",
                "-6 route add fd03::/48 dev host",
            ] {
                ip(line);
            }
            let routes = TerminalRoutes::open(6301, "tun").expect("a socket");
            let prefixes: Vec<Prefix> =
                ["10.3.1.0/24", "fd03:0:0:1::/64"].iter().map(|text| text.parse().unwrap()).collect();
            let place = |address: &str| {
                let got = Command::new("ip").args(["route", "get", address]).output().expect("ip");
                let text = String::from_utf8_lossy(&got.stdout).into_owned();
                ["tun", "host"]
                    .into_iter()
                    .find(|dev| text.contains(&format!("dev {dev} ")))
                    .unwrap_or("none")
            };
            let places = || ["10.3.1.9", "fd03:0:0:1::9", "10.3.2.9", "fd03:0:0:2::9"].map(place);
            assert_eq!(places(), ["none"; 4]);
            // Each twice, and each after each.
            for target in [
                RouteTarget::Bypass,
                RouteTarget::Tunnel,
                RouteTarget::Tunnel,
                RouteTarget::Bypass,
                RouteTarget::Bypass,
                RouteTarget::None,
                RouteTarget::None,
                RouteTarget::Tunnel,
                RouteTarget::None,
            ] {
                routes.set_routes(&prefixes, target).expect("routes");
                let expected = match target {
                    RouteTarget::Tunnel => "tun",
                    RouteTarget::Bypass => "host",
                    RouteTarget::None => "none",
                };
                assert_eq!(places(), [expected, expected, "none", "none"], "{target:?}");
            }
            // A terminal with all users.
            let all = ["10.3.0.0/16".parse().unwrap(), "fd03::/48".parse().unwrap()];
            routes.set_routes(&all, RouteTarget::Tunnel).expect("routes");
            assert_eq!(places(), ["tun"; 4]);
            routes.set_routes(&all, RouteTarget::None).expect("routes");
            assert_eq!(places(), ["none"; 4]);
            // More than one batch.
            let many: Vec<Prefix> = (0..=255).map(|n| format!("10.3.{n}.0/24").parse().unwrap()).collect();
            routes.set_routes(&many, RouteTarget::Bypass).expect("routes");
            assert_eq!(ip("route show table 6301 proto 98").lines().count(), 256);
            ip("link del tun");
            let error =
                routes.set_routes(&prefixes[..1], RouteTarget::Tunnel).expect_err("a device that is gone");
            assert!(error.to_string().starts_with("route to 10.3.1.0/24: "), "{error}");
            Some(())
        });
        done.join().expect("no panic");
    }
}
