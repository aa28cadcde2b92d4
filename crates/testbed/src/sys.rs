//! The few calls of Linux that neither `std` nor `nix` nor the gateway has, and small wrappers of those that they have.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

pub use bentpipe_gatewayd::sys::clock::monotonic;
use bentpipe_units::{Duration, Instant, Rate};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};

/// CLOCK_MONOTONIC, counted from an origin of its own: the time of a scenario that is played in real time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC at the scenario's time zero [ns].
    origin: u64,
}

impl Clock {
    /// A clock that shows zero when CLOCK_MONOTONIC shows `origin` [ns], and before.
    #[must_use]
    pub const fn new(origin: u64) -> Self {
        Self { origin }
    }

    /// The time; zero where that is yet to come.
    #[must_use]
    pub fn now(self) -> Instant {
        Instant::from_nanos(monotonic().saturating_sub(self.origin))
    }

    /// Whether time zero is yet to come.
    #[must_use]
    pub fn is_early(self) -> bool {
        monotonic() < self.origin
    }

    /// How long to wait until `at`.
    #[must_use]
    pub fn until(self, at: Instant) -> Duration {
        let at = self.origin.saturating_add(at.as_nanos());
        Duration::from_nanos(at.saturating_sub(monotonic()))
    }
}

/// Waits so long, or a little longer.
pub fn sleep(time: Duration) {
    std::thread::sleep(std::time::Duration::from_nanos(time.as_nanos()));
}

/// As a system call wants it.
#[must_use]
pub fn timespec(time: Duration) -> TimeSpec {
    TimeSpec::nanoseconds(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

/// Runs `work` in the network namespace at `path`, or here where there is no path, and comes back.
///
/// # Errors
/// Where the namespace cannot be opened or entered; and what `work` fails with.
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
/// Where it cannot be opened or entered.
pub fn enter(path: &Path) -> io::Result<()> {
    Ok(setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?)
}

/// Has the kernel pace a TCP connection.
///
/// # Errors
/// Where it is no socket.
pub fn pace(fd: &impl AsFd, rate: Rate) -> io::Result<()> {
    let bytes = u64::try_from(rate.bytes_per_sec() as i64).unwrap_or(0);
    set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes.to_ne_bytes())
}

/// Bounds what a TCP connection holds that has not been sent [bytes], so that thousands do not fill the memory.
///
/// # Errors
/// Where it is no TCP socket.
pub fn hold_little_unsent(fd: &impl AsFd, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

fn set(fd: &impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let (at, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    #[expect(unsafe_code, reason = "nix does not have these options; the value is as long as is said")]
    let done = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, at, len) };
    nix::errno::Errno::result(done).map(drop).map_err(Into::into)
}

/// CPU time of the process [s].
#[must_use]
pub fn cpu_time() -> f64 {
    let (user, system) = bentpipe_gatewayd::sys::cpu_time();
    user + system
}

/// Tells when to stop: at SIGTERM or SIGINT, or when whoever started this is gone.
pub struct Stop {
    signals: SignalFd,
    /// Standard input, where its end says that the starter is gone.
    input: Option<OwnedFd>,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    ///
    /// # Errors
    /// Where signals cannot be caught.
    pub fn new() -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // A file that is empty, as /dev/null, says nothing of the starter.
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let kind = File::from(input.try_clone()?).metadata()?.file_type();
        let watched = kind.is_fifo() || kind.is_socket();
        Ok(Self { signals, input: watched.then_some(input) })
    }

    /// What becomes readable.
    #[must_use]
    pub fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        let input = self.input.as_ref().map(AsFd::as_fd);
        std::iter::once(self.signals.as_fd()).chain(input).collect()
    }

    /// Whether to stop; to be asked when a descriptor is readable.
    pub fn is_due(&mut self) -> bool {
        if matches!(self.signals.read_signal(), Ok(Some(_))) {
            return true;
        }
        let Some(input) = &self.input else { return false };
        let mut fds = [nix::poll::PollFd::new(input.as_fd(), nix::poll::PollFlags::POLLIN)];
        let ready = nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap_or(0) > 0;
        ready && matches!(nix::unistd::read(input, &mut [0; 256]), Ok(0))
    }
}

/// Counters of the devices of a namespace, see [`Devices::dropped`].
pub struct Devices(File);

impl Devices {
    /// Those of the caller's namespace, now and later.
    ///
    /// # Errors
    /// Where /proc is not there.
    pub fn here() -> io::Result<Self> {
        File::open("/proc/thread-self/net/dev").map(Self)
    }

    /// Packets to be sent that the device did not take: those that found it full, of a TUN device [packets].
    #[must_use]
    pub fn dropped(&self, device: &str) -> u64 {
        use std::os::unix::fs::FileExt;
        let mut text = vec![0; 1 << 16];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]).into_owned();
        let row = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        // Eight columns of what was received; then bytes, packets, errs, drop.
        row.and_then(|row| row.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
    }
}

/// A descriptor of a call that gives a bare number.
///
/// # Errors
/// Those of the call.
pub fn owned(fd: nix::Result<i32>) -> io::Result<OwnedFd> {
    let fd = fd?;
    #[expect(unsafe_code, reason = "the call has just made it, and nobody else knows of it")]
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
