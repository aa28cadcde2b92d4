//! The TUN device for what is not split: what is routed into it is read here, and what is written comes out of it.

#![expect(unsafe_code, reason = "ioctls that no safe wrapper has")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;

/// `_IOW('T', 226, int)`.
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;

/// A TUN device that lives as long as this does.
#[derive(Debug)]
pub struct Tun {
    file: File,
    /// Its name.
    pub name: String,
}

impl Tun {
    /// Makes a device of that name for packets of `mtu` bytes, and brings it up.
    ///
    /// # Errors
    /// Where there is one already, or no right to make one.
    pub fn open(name: &str, mtu: u32) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF takes an ifreq, which lives through the call.
        Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let tun = Self { file, name: name.to_owned() };
        tun.bring_up(mtu)?;
        // Once, and not with real-time priority: while others change the network, the kernel has who writes here try again and
        // again without sleeping.
        for family in ["ipv4", "ipv6"] {
            // Without IPv6 there is no such setting.
            let _ = std::fs::write(
                format!("/proc/sys/net/{family}/conf/{name}/ignore_routes_with_linkdown"),
                "1",
            );
        }
        Ok(tun)
    }

    fn bring_up(&self, mtu: u32) -> io::Result<()> {
        let socket =
            std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("[::]:0"))?;
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        // SAFETY: SIOCSIFMTU takes an ifreq with the MTU in it.
        Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) })?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: SIOCSIFFLAGS takes an ifreq with the flags in it.
        Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
        Ok(())
    }

    /// Lets so many packets wait to be read; where the system does not let that be changed, as in a user namespace, as many
    /// as it gives a device.
    ///
    /// # Errors
    /// None that are known.
    pub fn set_queue(&self, packets: i32) -> io::Result<()> {
        let socket =
            std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("[::]:0"))?;
        let mut request = request(&self.name)?;
        // A union, in which the queue's length has the MTU's place.
        request.ifr_ifru.ifru_mtu = packets;
        // SAFETY: SIOCSIFTXQLEN takes an ifreq with the number in it.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN, &raw const request) };
        match Errno::result(done) {
            Err(Errno::EPERM) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    /// Says whether anything can go through: routes into a device that has no carrier are passed over, and others take their
    /// place.
    ///
    /// # Errors
    /// None that are known, from Linux 4.20 on.
    pub fn set_carrier(&self, on: bool) -> io::Result<()> {
        let on = libc::c_int::from(on);
        // SAFETY: TUNSETCARRIER takes an int, which lives through the call.
        Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETCARRIER, &raw const on) })?;
        Ok(())
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// As read(2): [`io::ErrorKind::WouldBlock`] where none waits.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(packet)
    }

    /// Lets a packet out of the device.
    ///
    /// # Errors
    /// As write(2): where it is no IP packet, for example.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq of zeros is one without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name for a device"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
