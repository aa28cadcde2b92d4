//! Linux interfaces that the standard library lacks: transparent sockets, socket options, scheduling.

#![expect(unsafe_code, reason = "socket options and ioctls that no safe wrapper has")]

pub mod clock;
pub mod modem;
pub mod notify;
pub mod privileges;
pub mod timer;
pub mod tun;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bentpipe_units::Duration;
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, listen,
    setsockopt, socket, sockopt,
};

/// Socket options of relayed connections.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Congestion control, by its kernel name.
    pub congestion: String,
    /// Receive buffer in the kernel [bytes].
    pub receive_buffer: usize,
    /// Unsent bytes that the kernel holds (TCP_NOTSENT_LOWAT) [bytes].
    pub unsent: u32,
    /// Idle time before keep-alive probes.
    pub keepalive: Duration,
    /// Longest time that sent data stays unacknowledged.
    pub user_timeout: Duration,
}

/// Sets an integer option.
fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> nix::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of `value`, which outlives the call.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    Errno::result(done).map(drop)
}

fn get(fd: BorrowedFd<'_>, level: i32, name: i32) -> nix::Result<i32> {
    let (mut value, mut size) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `size` bytes to `value`.
    let done =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut size) };
    Errno::result(done).map(|_| value)
}

fn new_socket(address: &SocketAddr, kind: SockType, protocol: SockProtocol) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(family, kind, flags, protocol)
}

/// Allows a socket to use a foreign address (IP_TRANSPARENT); needs CAP_NET_ADMIN or CAP_NET_RAW.
fn make_transparent(fd: BorrowedFd<'_>, address: &SocketAddr) -> nix::Result<()> {
    if address.is_ipv4() {
        set(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1)
    } else {
        set(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)
    }
}

/// Sets the options that a connection needs from its handshake on, its buffers among them. Accepted connections inherit
/// them from the listener.
fn prepare(fd: BorrowedFd<'_>, options: &TcpOptions) -> nix::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, i32::try_from(options.receive_buffer).unwrap_or(i32::MAX))?;
    setsockopt(&fd, sockopt::TcpCongestion, &options.congestion.clone().into())?;
    let seconds = |time: Duration| i32::try_from(time.as_nanos() / 1_000_000_000).unwrap_or(i32::MAX).max(1);
    let keepalive = seconds(options.keepalive);
    // Zero would mean the system's default.
    let user_timeout = i32::try_from(options.user_timeout.as_nanos() / 1_000_000).unwrap_or(i32::MAX).max(1);
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, keepalive.min(32_767)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (keepalive / 4).clamp(1, 32_767)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, user_timeout),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, i32::try_from(options.unsent).unwrap_or(i32::MAX)),
    ] {
        set(fd, level, name, value)?;
    }
    Ok(())
}

/// Opens a listener for intercepted connections: TPROXY leads them to `port` with their original addresses.
///
/// # Errors
/// If the port is taken or the process has no permission.
pub fn listener(v6: bool, port: u16, options: &TcpOptions) -> io::Result<TcpListener> {
    // Only TPROXY reaches the loopback address.
    let own = if v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let address = SocketAddr::new(own, port);
    let fd = new_socket(&address, SockType::Stream, SockProtocol::Tcp)?;
    make_transparent(fd.as_fd(), &address)?;
    set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if v6 {
        set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    prepare(fd.as_fd(), options)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&fd, Backlog::new(4096).unwrap_or(Backlog::MAXCONN))?;
    Ok(fd.into())
}

/// Accepts an intercepted connection: the socket, the client's address and the server's.
///
/// # Errors
/// As accept(2); [`io::ErrorKind::WouldBlock`] if none waits.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr, SocketAddr)> {
    let (stream, client) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let server = stream.local_addr()?;
    Ok((stream, unmapped(client), unmapped(server)))
}

/// Begins a connection from `client`'s own address to `server`, from another port if that one is taken. Returns the socket and the
/// address that the server sees.
///
/// # Errors
/// If it cannot begin. Its result is known when the socket becomes writable.
pub fn connect_as(
    client: SocketAddr,
    server: SocketAddr,
    options: &TcpOptions,
) -> io::Result<(TcpStream, SocketAddr)> {
    let socket = match connect_from(client, server, options) {
        // Another socket has the port, or an earlier connection of the two has only just ended.
        Err(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL) if client.port() != 0 => {
            connect_from(SocketAddr::new(client.ip(), 0), server, options)?
        }
        other => other?,
    };
    let seen = unmapped(socket.local_addr()?);
    Ok((socket, seen))
}

fn connect_from(client: SocketAddr, server: SocketAddr, options: &TcpOptions) -> nix::Result<TcpStream> {
    let fd = new_socket(&server, SockType::Stream, SockProtocol::Tcp)?;
    make_transparent(fd.as_fd(), &server)?;
    prepare(fd.as_fd(), options)?;
    set(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_SYNCNT, 4)?;
    // With port 0 the kernel chooses one once it knows the server.
    let reuse = if client.port() == 0 {
        (libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT)
    } else {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR)
    };
    set(fd.as_fd(), reuse.0, reuse.1, 1)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(client))?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd.into()),
        Err(e) => Err(e),
    }
}

/// MSS of the sender as the kernel knows it [bytes].
#[must_use]
pub fn segment(stream: &TcpStream) -> u64 {
    get(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG).map_or(536, |mss| u64::from(mss.unsigned_abs()))
}

/// Received bytes in the kernel that were not read yet.
#[must_use]
pub fn unread(stream: &TcpStream) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes an int to `bytes`.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    if done == 0 { u64::from(bytes.unsigned_abs()) } else { 0 }
}

/// Closes a connection with a reset.
pub fn abort(stream: TcpStream) {
    reset_when_closed(&stream, true);
}

/// Makes a connection end with a reset when it is closed, also by the kernel because this process was killed; or, as usual,
/// after what was written.
pub fn reset_when_closed(stream: &TcpStream, reset: bool) {
    let linger = libc::linger { l_onoff: reset.into(), l_linger: 0 };
    // TCP sockets do not refuse it.
    let _ = setsockopt(stream, sockopt::Linger, &linger);
}

/// An address with its IPv4-mapped IPv6 form resolved.
#[must_use]
pub fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Number of handshakes, in the process's network namespace, that met a full queue of half-open connections and were
/// answered with SYN cookies or dropped.
#[must_use]
pub fn syn_queue_overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    // A line of names and a line of values.
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    let full = pairs.filter(|(name, _)| matches!(*name, "TCPReqQFullDoCookies" | "TCPReqQFullDrop"));
    full.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

/// Raises the limit of open files to the hard limit. Returns the limit.
#[must_use]
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// Requests real-time scheduling (SCHED_FIFO, priority from 1 on). Returns true if it is granted.
#[must_use]
pub fn set_realtime(priority: i32) -> bool {
    schedule(libc::SCHED_FIFO, priority)
}

/// Returns to normal scheduling. Required before the kernel's network settings are changed: if the lock is taken
/// (rtnl_trylock), the kernel retries in a loop, and the lock's holder would never get the CPU.
pub fn clear_realtime() {
    let _ = schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: i32, priority: i32) -> bool {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` outlives the call.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const param) == 0 }
}

/// CPU time of the process: user and system [s].
#[must_use]
pub fn cpu_time() -> (f64, f64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return (f64::NAN, f64::NAN) };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

/// Enlarges the buffers of a datagram socket, beyond the system's limits if that is allowed.
pub fn enlarge_buffers(socket: BorrowedFd<'_>, receive: usize, send: usize) {
    let number = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    for (force, plain, bytes) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send)]
    {
        if set(socket, libc::SOL_SOCKET, force, number(bytes)).is_err() {
            let _ = set(socket, libc::SOL_SOCKET, plain, number(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real-time scheduling can be given up without privileges.
    #[test]
    fn realtime_scheduling_can_be_given_up() {
        // SAFETY: the call only reads this thread's policy.
        let policy = || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        // A separate thread: others are to keep their policy.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if set_realtime(1) {
                    assert_eq!(policy(), libc::SCHED_FIFO);
                    clear_realtime();
                }
                assert_eq!(policy(), libc::SCHED_OTHER);
            });
        });
    }

    #[test]
    fn a_taken_port_is_replaced() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let options = TcpOptions {
            congestion: "reno".to_owned(),
            receive_buffer: 128_000,
            unsent: 128 << 10,
            keepalive: Duration::from_secs(60),
            user_timeout: Duration::from_secs(60),
        };
        let begin = |client| connect_as(client, to, &options);
        // Only root may use a foreign address.
        let Ok((first, client)) = begin("127.0.0.9:0".parse().unwrap()) else { return };
        assert_eq!(client.ip().to_string(), "127.0.0.9");
        // The same ends again; again while the first connection is closing; and a port with a listener.
        let listener = TcpListener::bind("127.0.0.9:0").unwrap();
        let (_end, seen) = server.accept().unwrap();
        assert_eq!(client, seen);
        let taken = |port: SocketAddr| {
            let (_socket, other) = begin(port).unwrap();
            assert_eq!(other, server.accept().unwrap().1);
            assert!(other.ip() == client.ip() && other.port() != port.port(), "{other} {port}");
        };
        taken(client);
        drop(first);
        taken(client);
        taken(listener.local_addr().unwrap());
    }
}
