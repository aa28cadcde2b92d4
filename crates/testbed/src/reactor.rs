//! Waiting for sockets, for a time, and for the request to stop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use bentpipe_units::Duration;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::sys::{self, Stop};
use crate::table::Token;

/// Maximum number of events per wait.
const BATCH: usize = 512;
/// Tags above the bits of a [`Token`].
const LISTENER: u64 = 1 << Token::BITS;
const DATAGRAMS: u64 = 2 << Token::BITS;
const QUIC: u64 = 3 << Token::BITS;

/// Socket that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A connection.
    Connection(Token),
    /// The listening socket with this index.
    Listener(u32),
    /// The datagram socket with this index.
    Datagrams(u32),
    /// The socket of QUIC connections with this index.
    Quic(u32),
}

impl Source {
    fn bits(self) -> u64 {
        match self {
            Self::Connection(token) => token.bits(),
            Self::Listener(index) => LISTENER | u64::from(index),
            Self::Datagrams(index) => DATAGRAMS | u64::from(index),
            Self::Quic(index) => QUIC | u64::from(index),
        }
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let tag = bits >> Token::BITS << Token::BITS;
        match tag {
            LISTENER => Some(Self::Listener(bits as u32)),
            DATAGRAMS => Some(Self::Datagrams(bits as u32)),
            QUIC => Some(Self::Quic(bits as u32)),
            _ => Token::from_bits(bits).map(Self::Connection),
        }
    }
}

/// Readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Data to read, or the end of the stream.
    pub read: bool,
    /// Space to write.
    pub write: bool,
}

impl Interest {
    /// Only readable.
    pub const READ: Self = Self { read: true, write: false };
    /// Only writable.
    pub const WRITE: Self = Self { read: false, write: true };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
        flags
    }
}

/// Waits for sockets, for a time, and for the request to stop.
pub struct Reactor {
    epoll: Epoll,
    stop: Stop,
    events: Vec<EpollEvent>,
}

impl Reactor {
    /// A reactor without sockets.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, stop: Stop::new()?, events: vec![EpollEvent::empty(); BATCH] })
    }

    /// Waits for a socket from now until it is closed.
    ///
    /// # Errors
    /// If the socket was added before.
    pub fn add(&self, socket: &impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(interest.flags(), source.bits()))?)
    }

    /// Changes the readiness to wait for.
    ///
    /// # Errors
    /// If the socket was not added.
    pub fn change(&self, socket: &impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.modify(socket, &mut EpollEvent::new(interest.flags(), source.bits()))?)
    }

    /// Waits for at most `timeout` and appends the ready sockets to `ready`. Returns false when asked to stop.
    ///
    /// # Errors
    /// Those of ppoll(2) and epoll_wait(2).
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut VecDeque<Source>) -> io::Result<bool> {
        let stops = self.stop.descriptors();
        let mut fds = vec![PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        fds.extend(stops.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        // epoll_wait(2) counts in milliseconds, ppoll(2) in nanoseconds.
        match ppoll(&mut fds, timeout.map(sys::timespec), None) {
            Err(Errno::EINTR) | Ok(0) => return Ok(true),
            Err(e) => return Err(e.into()),
            Ok(_) => {}
        }
        let (has_sockets, has_stop) = (sys::is_ready(&fds[0]), fds[1..].iter().any(sys::is_ready));
        drop(fds);
        drop(stops);
        if has_stop && self.stop.is_requested() {
            return Ok(false);
        }
        if has_sockets {
            let count = match self.epoll.wait(&mut self.events, EpollTimeout::ZERO) {
                Err(Errno::EINTR) => 0,
                other => other?,
            };
            ready.extend(self.events[..count].iter().filter_map(|event| Source::from_bits(event.data())));
        }
        Ok(true)
    }
}
