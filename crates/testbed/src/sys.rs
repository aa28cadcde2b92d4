//! Linux calls that neither `std` nor `nix` nor the gateway wraps, and small wrappers of others.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

pub use bentpipe_gatewayd::sys::clock::monotonic;
use bentpipe_units::{Duration, Instant, Rate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};

/// Time of a scenario that runs in real time: CLOCK_MONOTONIC from an origin on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC at the scenario's time zero [ns].
    origin: u64,
}

impl Clock {
    /// A clock that shows zero until CLOCK_MONOTONIC reaches `origin` [ns].
    #[must_use]
    pub const fn new(origin: u64) -> Self {
        Self { origin }
    }

    /// The current time; zero before the origin.
    #[must_use]
    pub fn now(self) -> Instant {
        self.time(monotonic())
    }

    /// CLOCK_MONOTONIC at a time [ns].
    #[must_use]
    pub const fn monotonic(self, at: Instant) -> u64 {
        self.origin.saturating_add(at.as_nanos())
    }

    /// The time at which CLOCK_MONOTONIC was `at` [ns]; zero before the origin.
    #[must_use]
    pub const fn time(self, at: u64) -> Instant {
        Instant::from_nanos(at.saturating_sub(self.origin))
    }

    /// True before the origin.
    #[must_use]
    pub fn is_early(self) -> bool {
        monotonic() < self.origin
    }

    /// Time left until `at`; zero once it has passed.
    #[must_use]
    pub fn until(self, at: Instant) -> Duration {
        Duration::from_nanos(self.monotonic(at).saturating_sub(monotonic()))
    }
}

/// Sleeps for `time`, or a little longer.
pub fn sleep(time: Duration) {
    std::thread::sleep(std::time::Duration::from_nanos(time.as_nanos()));
}

/// Converts a duration for a system call.
#[must_use]
pub fn timespec(time: Duration) -> TimeSpec {
    TimeSpec::nanoseconds(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

/// True if poll(2) reported any event for this descriptor.
#[must_use]
pub fn is_ready(fd: &PollFd<'_>) -> bool {
    fd.revents().is_some_and(|events| !events.is_empty())
}

/// Runs `work` in the network namespace at `path` and returns to the current one; without a path, runs it here.
///
/// # Errors
/// If the namespace cannot be opened or entered; errors of `work`.
pub fn inside<T>(path: Option<&Path>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(path) = path else { return work() };
    let home = File::open("/proc/self/ns/net")?;
    enter(path)?;
    let done = work();
    setns(home, CloneFlags::CLONE_NEWNET)?;
    done
}

/// Enters the network namespace at `path`.
///
/// # Errors
/// If it cannot be opened or entered.
pub fn enter(path: &Path) -> io::Result<()> {
    Ok(setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?)
}

/// Lets the kernel pace a TCP connection (SO_MAX_PACING_RATE).
///
/// # Errors
/// If it is not a socket.
pub fn pace(socket: &impl AsFd, rate: Rate) -> io::Result<()> {
    let bytes = u64::try_from(rate.bytes_per_sec() as i64).unwrap_or(0);
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes.to_ne_bytes())
}

/// Limits the unsent data in a TCP socket's buffer [bytes], so that thousands of connections do not fill the memory.
///
/// # Errors
/// If it is not a TCP socket.
pub fn limit_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Sets the DSCP of the packets that a socket sends; connections inherit it from their listener.
///
/// # Errors
/// If it is not an IP socket.
pub fn set_dscp(socket: &impl AsFd, is_ipv6: bool, dscp: u8) -> io::Result<()> {
    let value = (i32::from(dscp) << 2).to_ne_bytes();
    if is_ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_TOS, &value)
    }
}

/// Lets a UDP socket send packets that must not be fragmented, of any length (RFC 9000, section 14).
///
/// # Errors
/// If it is not an IP socket.
pub fn forbid_fragments(socket: &impl AsFd, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE.to_ne_bytes())
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE.to_ne_bytes())
    }
}

fn set(socket: &impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let (at, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    #[expect(unsafe_code, reason = "nix does not wrap these options; `len` is the length of `value`")]
    let done = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, at, len) };
    nix::errno::Errno::result(done).map(drop).map_err(Into::into)
}

/// CPU time of the process, user and system [s].
#[must_use]
pub fn cpu_time() -> f64 {
    let (user, system) = bentpipe_gatewayd::sys::cpu_time();
    user + system
}

/// Request to stop: SIGTERM, SIGINT, or the end of standard input if that is a pipe or socket.
pub struct Stop {
    signals: SignalFd,
    /// Standard input, if its end means that the parent process is gone.
    input: Option<OwnedFd>,
}

impl Stop {
    /// Blocks the default action of both signals from now on.
    ///
    /// # Errors
    /// If signals cannot be blocked.
    pub fn new() -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // /dev/null and other files are at their end from the start.
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let kind = File::from(input.try_clone()?).metadata()?.file_type();
        let is_watched = kind.is_fifo() || kind.is_socket();
        Ok(Self { signals, input: is_watched.then_some(input) })
    }

    /// Descriptors that become readable on a request.
    #[must_use]
    pub fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        let input = self.input.as_ref().map(AsFd::as_fd);
        std::iter::once(self.signals.as_fd()).chain(input).collect()
    }

    /// True on a request to stop. Call it when a descriptor is readable.
    pub fn is_requested(&mut self) -> bool {
        if matches!(self.signals.read_signal(), Ok(Some(_))) {
            return true;
        }
        let Some(input) = &self.input else { return false };
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::ZERO).unwrap_or(0) > 0;
        ready && matches!(nix::unistd::read(input, &mut [0; 256]), Ok(0))
    }
}

/// Counters of the devices in a namespace.
pub struct DeviceCounters(File);

impl DeviceCounters {
    /// Counters of the calling thread's namespace. They stay readable after the thread has left it.
    ///
    /// # Errors
    /// If /proc is not mounted.
    pub fn here() -> io::Result<Self> {
        File::open("/proc/thread-self/net/dev").map(Self)
    }

    /// Packets that were dropped because the transmit queue of `device` was full [packets].
    #[must_use]
    pub fn dropped(&self, device: &str) -> u64 {
        use std::os::unix::fs::FileExt;
        let mut text = vec![0; 1 << 16];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]).into_owned();
        let row = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        // Eight receive columns, then bytes, packets, errs, drop of transmit.
        row.and_then(|row| row.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
    }
}
