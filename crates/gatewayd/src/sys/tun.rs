//! The TUN device for packets that are not split: packets routed into it are read here, and packets written leave it.

#![expect(unsafe_code, reason = "ioctls that no safe wrapper has")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;

/// `_IOW('T', 226, int)`.
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;

/// A TUN device, removed when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    /// Name of the device.
    pub name: String,
}

impl Tun {
    /// Creates a device for packets of `mtu` bytes and brings it up.
    ///
    /// # Errors
    /// If it exists already or permission is missing.
    pub fn open(name: &str, mtu: u32) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF takes an ifreq, which outlives the call.
        Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let tun = Self { file, name: name.to_owned() };
        tun.bring_up(mtu)?;
        // Once, and before real-time scheduling: while others change the network, the kernel makes writers here retry without
        // sleeping.
        for family in ["ipv4", "ipv6"] {
            // Missing without IPv6.
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
        // SAFETY: SIOCSIFMTU takes an ifreq with the MTU.
        Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) })?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: SIOCSIFFLAGS takes an ifreq with the flags.
        Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
        Ok(())
    }

    /// Sets the length of the queue of packets to read. Where that is not allowed, as in a user namespace, the default stays.
    ///
    /// # Errors
    /// None known.
    pub fn set_queue(&self, packets: i32) -> io::Result<()> {
        let socket =
            std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("[::]:0"))?;
        let mut request = request(&self.name)?;
        // A union: the queue length uses the field of the MTU.
        request.ifr_ifru.ifru_mtu = packets;
        // SAFETY: SIOCSIFTXQLEN takes an ifreq with the number.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN, &raw const request) };
        match Errno::result(done) {
            Err(Errno::EPERM) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    /// Switches the carrier. Routes into a device without carrier are ignored, and others take their place.
    ///
    /// # Errors
    /// None known from Linux 4.20 on.
    pub fn set_carrier(&self, on: bool) -> io::Result<()> {
        let on = libc::c_int::from(on);
        // SAFETY: TUNSETCARRIER takes an int, which outlives the call.
        Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETCARRIER, &raw const on) })?;
        Ok(())
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// As read(2); [`io::ErrorKind::WouldBlock`] if none waits.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(packet)
    }

    /// Writes a packet, which leaves the device.
    ///
    /// # Errors
    /// As write(2), for example if it is no IP packet.
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
    // SAFETY: an all-zero ifreq is one without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name for a device"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
