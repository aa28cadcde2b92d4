//! The few calls of Linux that neither `std` nor `nix` has, and small wrappers of those that they have.
//!
//! This is the only module that reads the clock.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use bentpipe_units::{Duration, Instant, Rate};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, counted from an origin of its own: the time of a scenario that is played in real time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC at the scenario's time zero [ns].
    origin: u64,
}

/// CLOCK_MONOTONIC [ns].
#[must_use]
pub fn monotonic() -> u64 {
    let nanos = |t: TimeSpec| u64::try_from(t.num_nanoseconds()).unwrap_or(0);
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, nanos)
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

/// Packets that a TUN device holds for whoever reads it.
const WAITING: i32 = 10_000;

/// The longest name of a device [bytes].
pub const LONGEST_NAME: usize = 15;

/// A new TUN device in the namespace of the caller, up, without addresses. It is gone when it is closed.
///
/// # Errors
/// Where there is a device of that name, or it may not be made.
pub fn tun(name: &str, mtu: u32) -> io::Result<OwnedFd> {
    let device: OwnedFd =
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(OwnedFd::from)?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    ask(&device, libc::TUNSETIFF as libc::c_ulong, name, &flags.to_ne_bytes())?;
    nonblocking(&device)?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
    ask(&socket, libc::SIOCSIFMTU as libc::c_ulong, name, &mtu.to_ne_bytes())?;
    // In a user namespace the kernel takes this by rtnetlink alone, from whoever gives addresses.
    match ask(&socket, libc::SIOCSIFTXQLEN as libc::c_ulong, name, &WAITING.to_ne_bytes()) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {}
        done => done?,
    }
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    ask(&socket, libc::SIOCSIFFLAGS as libc::c_ulong, name, &flags.to_ne_bytes())?;
    Ok(device)
}

/// An ioctl on a device that is told by its name.
fn ask(on: &impl AsFd, request: libc::c_ulong, name: &str, value: &[u8]) -> io::Result<()> {
    // struct ifreq: the name, then a union of 24 bytes.
    let mut request_for = [0u8; 40];
    let name = &name.as_bytes()[..name.len().min(LONGEST_NAME)];
    request_for[..name.len()].copy_from_slice(name);
    request_for[16..16 + value.len()].copy_from_slice(value);
    #[expect(
        unsafe_code,
        reason = "neither std nor nix has these requests; the buffer is as long as struct ifreq"
    )]
    let done = unsafe { libc::ioctl(on.as_fd().as_raw_fd(), request, request_for.as_mut_ptr()) };
    nix::errno::Errno::result(done).map(drop).map_err(Into::into)
}

/// Lets calls on a descriptor return at once.
///
/// # Errors
/// Where it is none of that kind.
pub fn nonblocking(fd: &impl AsFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop).map_err(Into::into)
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

/// Has a TCP connection end with a reset when it is closed.
///
/// # Errors
/// Where it is no TCP socket.
pub fn reset_when_closed(fd: &impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(nix::sys::socket::setsockopt(fd, nix::sys::socket::sockopt::Linger, &linger)?)
}

fn set(fd: &impl AsFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let (at, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    #[expect(unsafe_code, reason = "nix does not have these options; the value is as long as is said")]
    let done = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, at, len) };
    nix::errno::Errno::result(done).map(drop).map_err(Into::into)
}

/// Asks to be run before others, and to be woken in time: whether real-time priority was given.
#[must_use]
pub fn hurry(priority: i32) -> bool {
    // The default slack is 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
    schedule(libc::SCHED_FIFO, priority)
}

/// Asks to be run as others are, as one must be who ends a device: the kernel has its network settings locked meanwhile,
/// and waits for others, which on one processor get little of it.
pub fn take_time() {
    let _ = schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: i32, priority: i32) -> bool {
    let wish = libc::sched_param { sched_priority: priority };
    #[expect(unsafe_code, reason = "nix does not have this call; its structure outlives it")]
    let done = unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const wish) };
    done == 0
}

/// Allows as many open files as may be allowed: how many.
#[must_use]
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// CPU time of the process [s].
#[must_use]
pub fn cpu_time() -> f64 {
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |used| seconds(used.user_time()) + seconds(used.system_time()))
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
