//! Event sources of the loop: one epoll instance, its timer and the signals.

use std::os::fd::AsFd;

use bentpipe_units::Instant;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::setup::{Failure, failed_nix};
use crate::relay::RelayId;
use crate::sys::clock::Clock;
use crate::sys::timer::Timer;

/// Source of an epoll event. Epoll stores 64 bits with each descriptor: [`Source::encode`] and [`Source::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The loop's timer.
    Timer,
    /// SIGTERM, SIGINT and SIGHUP.
    Signals,
    /// The spacelink's UDP socket.
    Spacelink,
    /// The TUN device.
    Tun,
    /// NFQUEUE with packets for clients.
    Packets,
    /// NFQUEUE with this host's acknowledgements.
    Acks,
    /// The socket on which the modem reports its rate.
    Modem,
    /// A listening socket, by its index.
    Listener(u8),
    /// The socket of a relayed connection.
    Relay {
        /// Slot of the connection.
        id: RelayId,
        /// Tells connections apart that used the same slot one after the other.
        generation: Generation,
    },
}

/// Number of a connection among all that were relayed, modulo 2^31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & 0x7fff_ffff)
    }
}

impl Source {
    /// Highest bit: set for everything but relays, whose generation has 31 bits.
    const FIXED: u64 = 1 << 63;

    /// The 64 bits that epoll stores.
    #[must_use]
    pub fn encode(self) -> u64 {
        let fixed = |kind: u64, index: u8| Self::FIXED | kind << 8 | u64::from(index);
        match self {
            Self::Timer => fixed(0, 0),
            Self::Signals => fixed(1, 0),
            Self::Spacelink => fixed(2, 0),
            Self::Tun => fixed(3, 0),
            Self::Packets => fixed(4, 0),
            Self::Acks => fixed(5, 0),
            Self::Modem => fixed(6, 0),
            Self::Listener(index) => fixed(7, index),
            Self::Relay { id, generation } => u64::from(generation.0) << 32 | u64::from(id.0),
        }
    }

    /// The source with these 64 bits; `None` if there is no such source.
    #[must_use]
    pub fn decode(bits: u64) -> Option<Self> {
        if bits & Self::FIXED == 0 {
            let (id, generation) = (RelayId(bits as u32), Generation((bits >> 32) as u32));
            return Some(Self::Relay { id, generation });
        }
        Some(match (bits & !Self::FIXED) >> 8 {
            0 => Self::Timer,
            1 => Self::Signals,
            2 => Self::Spacelink,
            3 => Self::Tun,
            4 => Self::Packets,
            5 => Self::Acks,
            6 => Self::Modem,
            7 => Self::Listener(bits as u8),
            _ => return None,
        })
    }
}

/// The epoll instance with the timer and the signals registered.
pub struct Sources {
    epoll: Epoll,
    timer: Timer,
    signals: SignalFd,
}

impl Sources {
    /// Blocks the signals for the process and registers them and the timer.
    pub fn open() -> Result<Self, Failure> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed_nix("epoll"))?;
        let timer = Timer::new().map_err(failed_nix("timerfd"))?;
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().map_err(failed_nix("signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).map_err(failed_nix("signalfd"))?;
        let sources = Self { epoll, timer, signals };
        let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        sources.add(&sources.timer, Source::Timer, edge).map_err(failed_nix("epoll"))?;
        sources.add_readable(&sources.signals, Source::Signals)?;
        Ok(sources)
    }

    /// Reports events of `fd` as `source`.
    pub fn add(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(flags, source.encode()))
    }

    /// Reports, level-triggered, that `fd` is readable.
    pub fn add_readable(&self, fd: impl AsFd, source: Source) -> Result<(), Failure> {
        self.add(fd, source, EpollFlags::EPOLLIN).map_err(failed_nix("epoll"))
    }

    /// Reports no more events of `fd`.
    pub fn remove(&self, fd: impl AsFd) -> nix::Result<()> {
        self.epoll.delete(fd)
    }

    /// Waits for events, or only collects them if `block` is false. Returns their number.
    pub fn wait(&self, events: &mut [EpollEvent], block: bool) -> nix::Result<usize> {
        self.epoll.wait(events, if block { EpollTimeout::NONE } else { EpollTimeout::ZERO })
    }

    /// The next pending signal.
    pub fn read_signal(&mut self) -> Option<Signal> {
        let info = self.signals.read_signal().ok()??;
        Signal::try_from(info.ssi_signo.cast_signed()).ok()
    }

    /// Sets the timer to `at`.
    pub fn set_timer(&mut self, at: Instant, clock: &Clock) -> nix::Result<()> {
        self.timer.set(at, clock)
    }

    /// Notes that the timer may have expired by `now`.
    pub fn timer_passed(&mut self, now: Instant) {
        self.timer.passed(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_encoding() {
        let last = Generation(0x7fff_ffff);
        assert_eq!(last.next(), Generation(0));
        for source in [
            Source::Timer,
            Source::Signals,
            Source::Spacelink,
            Source::Tun,
            Source::Packets,
            Source::Acks,
            Source::Modem,
            Source::Listener(0),
            Source::Listener(255),
            Source::Relay { id: RelayId(0), generation: Generation(0) },
            Source::Relay { id: RelayId(u32::MAX), generation: last },
        ] {
            assert_eq!(Source::decode(source.encode()), Some(source));
        }
        assert_eq!(Source::decode(u64::MAX), None);
    }
}
