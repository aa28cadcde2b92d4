//! The modem's rate: datagrams to a Unix socket, each a rate as in configurations, such as `12 Mbps`.
//!
//! Any process that knows the rate can send it: a script that asks the modem, `bentpipe-gateway rate`, or an emulated
//! satellite. A socket in the file system has an owner and permissions, keeps messages in order and needs no polling.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use bentpipe_scenario::quantity::RATE;
use bentpipe_units::Rate;

/// Messages read at once; the last counts.
const MOST: usize = 64;
/// Longest message [bytes].
const LONGEST: usize = 64;

/// Parses a rate; zero is allowed.
///
/// # Errors
/// If it is no rate; says what is allowed.
pub fn rate(text: &str) -> Result<Rate, String> {
    RATE.read_within(text, 0, u64::MAX)
        .map(Rate::from_bps)
        .map_err(|allowed| format!("found {text:?}; allowed: {allowed}"))
}

/// The socket, removed when dropped.
#[derive(Debug)]
pub struct Modem {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Modem {
    /// Binds the socket at `path`, for its owner and group. A socket left there is replaced, another file is not.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn open(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let socket = UnixDatagram::bind(path)?;
        // Whatever the umask: who may write here sets the gateway's rate.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// The last rate received since the last call, or its error.
    pub fn read_rate(&self) -> Option<Result<Rate, String>> {
        let mut bytes = [0; LONGEST];
        let mut last = None;
        for _ in 0..MOST {
            let Ok(len) = self.socket.recv(&mut bytes) else { break };
            last = Some(rate(&String::from_utf8_lossy(&bytes[..len])));
        }
        last
    }
}

impl AsFd for Modem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Modem {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Sends a rate to the gateway that listens at `path`.
///
/// # Errors
/// If nobody listens there.
pub fn send_rate(path: &Path, rate: Rate) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A gateway that does not read must not block the sender.
    socket.set_nonblocking(true)?;
    socket.send_to(format!("{} bps", rate.as_bps()).as_bytes(), path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_rate_applies_and_errors_are_reported() {
        let path = std::env::temp_dir().join(format!("bentpipe-modem-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        assert!(send_rate(&path, Rate::from_bps(1)).is_err());
        let modem = Modem::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(modem.read_rate(), None);
        send_rate(&path, Rate::from_bps(1_000_000)).unwrap();
        send_rate(&path, Rate::from_bps(0)).unwrap();
        assert_eq!(modem.read_rate(), Some(Ok(Rate::from_bps(0))));
        assert_eq!(modem.read_rate(), None);
        let say = |text: &[u8]| UnixDatagram::unbound().unwrap().send_to(text, &path).unwrap();
        say(b"12.5 Mbps\n");
        assert_eq!(modem.read_rate(), Some(Ok(Rate::from_bps(12_500_000))));
        for wrong in [&b"12"[..], b"", b"-1 bps", &[0xff; 200]] {
            say(wrong);
            let problem = modem.read_rate().unwrap().unwrap_err();
            assert!(problem.contains("; allowed: a rate"), "{problem}");
        }
        // A socket left by a killed process is replaced; a file is not.
        std::mem::forget(modem);
        drop(Modem::open(&path).unwrap());
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(Modem::open(&path).is_err());
        fs::remove_file(&path).unwrap();
    }
}
