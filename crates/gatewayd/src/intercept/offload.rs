//! Segmentation offloads of network interfaces: the ioctl behind `ethtool -k` and `-K`.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use serde::{Deserialize, Serialize};

/// An offload that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feature {
    /// Generic receive offload: the kernel merges received segments.
    Gro,
    /// Large receive offload: the hardware merges received segments.
    Lro,
    /// Generic segmentation offload: the kernel segments as late as possible.
    Gso,
    /// TCP segmentation offload: the hardware segments.
    Tso,
}

/// Constants of linux/ethtool.h.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_LRO: u32 = 1 << 15;

impl Feature {
    /// Commands that get and set the feature.
    const fn commands(self) -> (u32, u32) {
        match self {
            Self::Gro => (0x2b, 0x2c),
            Self::Lro => (ETHTOOL_GFLAGS, ETHTOOL_SFLAGS),
            Self::Gso => (0x23, 0x24),
            Self::Tso => (0x1e, 0x1f),
        }
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// True if an interface of the calling thread's network namespace has a feature switched on.
///
/// # Errors
/// If there is no such interface.
pub fn get(interface: &str, feature: Feature) -> io::Result<bool> {
    let data = ask(interface, feature.commands().0, 0)?;
    Ok(if feature == Feature::Lro { data & ETH_FLAG_LRO != 0 } else { data != 0 })
}

/// Switches a feature of an interface.
///
/// # Errors
/// If there is no such interface, it does not support the feature, or CAP_NET_ADMIN is missing.
pub fn set(interface: &str, feature: Feature, on: bool) -> io::Result<()> {
    let data = if feature == Feature::Lro {
        // The flags are set together.
        let flags = ask(interface, ETHTOOL_GFLAGS, 0)?;
        if on { flags | ETH_FLAG_LRO } else { flags & !ETH_FLAG_LRO }
    } else {
        u32::from(on)
    };
    ask(interface, feature.commands().1, data).map(drop)
}

fn ask(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let name = interface.as_bytes();
    let mut ifr_name = [0; libc::IFNAMSIZ];
    if name.len() >= ifr_name.len() || name.contains(&0) {
        return Err(Errno::ENODEV.into());
    }
    for (to, from) in ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed() as libc::c_char;
    }
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut value = Value { command, data };
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut value).cast() };
    let mut request = libc::ifreq { ifr_name, ifr_ifru };
    #[expect(unsafe_code, reason = "no wrapper knows this request")]
    // SAFETY: these commands read and write one ethtool_value, which `request` points to and which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    Errno::result(result)?;
    Ok(value.data)
}
