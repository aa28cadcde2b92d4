//! Waits for sockets, for a time, and for the word to stop.

use std::io;
use std::os::fd::AsFd;

use bentpipe_units::Duration;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::sys::{self, Stop};

/// Events of one wait.
const BATCH: usize = 512;

/// What to wait for on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Something to read, or the end.
    pub read: bool,
    /// Room to write.
    pub write: bool,
}

/// Waits for sockets, for a time, and for the word to stop.
pub struct Reactor {
    epoll: Epoll,
    stop: Stop,
    events: Vec<EpollEvent>,
}

impl Interest {
    /// To read alone.
    pub const READ: Self = Self { read: true, write: false };
    /// To write alone.
    pub const WRITE: Self = Self { read: false, write: true };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
        flags
    }
}

impl Reactor {
    /// Without any socket.
    ///
    /// # Errors
    /// Where the system has none to give.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, stop: Stop::new()?, events: vec![EpollEvent::empty(); BATCH] })
    }

    /// Waits for a socket from now on, which is called `token`; until it is closed.
    ///
    /// # Errors
    /// Where it is no socket, or known.
    pub fn add(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(interest.flags(), token))?)
    }

    /// Waits for something else of a socket.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn change(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(interest.flags(), token))?)
    }

    /// Waits, as long as `time` says at most; the sockets that are ready go to `ready`. False: stop.
    ///
    /// # Errors
    /// Where the system cannot wait.
    pub fn wait(&mut self, time: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<bool> {
        let stops = self.stop.descriptors();
        let mut fds = vec![PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        fds.extend(stops.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        match ppoll(&mut fds, time.map(sys::timespec), None) {
            Err(Errno::EINTR) | Ok(0) => return Ok(true),
            Err(e) => return Err(e.into()),
            Ok(_) => {}
        }
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        let (has_sockets, is_asked) = (is_ready(&fds[0]), fds[1..].iter().any(is_ready));
        drop(fds);
        drop(stops);
        if is_asked && self.stop.is_due() {
            return Ok(false);
        }
        if has_sockets {
            let count = match self.epoll.wait(&mut self.events, EpollTimeout::ZERO) {
                Err(Errno::EINTR) => 0,
                other => other?,
            };
            ready.extend(self.events[..count].iter().map(EpollEvent::data));
        }
        Ok(true)
    }
}
