//! Notification of the service manager (sd_notify(3)): a datagram to the socket named by `NOTIFY_SOCKET`.
//!
//! Without a service manager nothing is sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends `state`: lines such as `READY=1`, `WATCHDOG=1`, `STOPPING=1`, `STATUS=…`.
///
/// # Errors
/// If the service manager does not listen.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    send(name.as_bytes(), state)
}

/// Reports that a reload began at `monotonic_ns` of CLOCK_MONOTONIC; `READY=1` ends it.
///
/// # Errors
/// As [`notify`].
pub fn reloading(monotonic_ns: u64) -> io::Result<()> {
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_ns / 1000))
}

/// Interval for `WATCHDOG=1`: half of the service manager's time-out. `None` without a watchdog for this process.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let number = |key: &str| env::var(key).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|us| *us > 0).map(|us| Duration::from_micros(us / 2))
}

fn send(name: &[u8], state: &str) -> io::Result<()> {
    let to = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not delay packets.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &to).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_paths_and_abstract_names() {
        let name = format!("bentpipe-notify-{}", std::process::id());
        let path = env::temp_dir().join(&name);
        let heard = |socket: UnixDatagram, name: &[u8]| {
            send(name, "READY=1\nSTATUS=up").unwrap();
            let mut text = [0; 64];
            let len = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..len], b"READY=1\nSTATUS=up");
        };
        let _ = std::fs::remove_file(&path);
        heard(UnixDatagram::bind(&path).unwrap(), path.as_os_str().as_bytes());
        std::fs::remove_file(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        heard(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}").as_bytes());
        assert!(send(path.as_os_str().as_bytes(), "").is_err());
    }
}
