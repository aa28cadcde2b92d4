//! Drops every privilege that is not needed once sockets, devices and rules are set up.
//!
//! CAP_NET_ADMIN (rules, routes, transparent sockets, verdicts) and CAP_NET_RAW remain. Capabilities use version 3 of
//! capabilities(7): two words of 32 bits each, for permitted, effective and inheritable.

use std::io;

/// Capabilities that remain: CAP_NET_ADMIN and CAP_NET_RAW.
const KEPT: u64 = 1 << 12 | 1 << 13;

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Capabilities of a thread, as bit sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Effective capabilities.
    pub effective: u64,
    /// Permitted capabilities.
    pub permitted: u64,
}

/// Capabilities of this thread.
///
/// # Errors
/// The kernel's error.
pub fn held() -> io::Result<Capabilities> {
    let words = get()?;
    let wide = |part: fn(&Word) -> u32| u64::from(part(&words[0])) | u64::from(part(&words[1])) << 32;
    Ok(Capabilities { effective: wide(|w| w.effective), permitted: wide(|w| w.permitted) })
}

/// Drops all capabilities but CAP_NET_ADMIN and CAP_NET_RAW, for this thread, threads started later and their programs,
/// which gain none by exec. Call it before a second thread exists: others keep theirs. Returns what remains.
///
/// # Errors
/// The kernel's error.
pub fn reduce() -> io::Result<Capabilities> {
    // Programs started by root get the whole bounding set, so it is reduced too if that is allowed (CAP_SETPCAP).
    for capability in (0..64).filter(|c| KEPT & 1 << c == 0) {
        // EINVAL: the kernel does not know this capability or higher ones.
        match prctl(libc::PR_CAPBSET_READ, capability) {
            Ok(0) => {}
            Ok(_) => match prctl(libc::PR_CAPBSET_DROP, capability) {
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => break,
                other => drop(other?),
            },
            Err(_) => break,
        }
    }
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    let mut words = get()?;
    for (i, word) in words.iter_mut().enumerate() {
        let kept = (KEPT >> (32 * i)) as u32;
        word.permitted &= kept;
        word.effective = word.permitted;
        word.inheritable &= word.permitted;
    }
    set(&words)?;
    held()
}

fn get() -> io::Result<[Word; 2]> {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut words = [Word::default(); 2];
    #[expect(
        unsafe_code,
        reason = "capget has no safe wrapper; both structs are the kernel's and outlive the call"
    )]
    let code = unsafe { libc::syscall(libc::SYS_capget, &raw const header, words.as_mut_ptr()) };
    if code == 0 { Ok(words) } else { Err(io::Error::last_os_error()) }
}

fn set(words: &[Word; 2]) -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    #[expect(
        unsafe_code,
        reason = "capset has no safe wrapper; both structs are the kernel's and outlive the call"
    )]
    let code = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<libc::c_int> {
    #[expect(unsafe_code, reason = "these options take numbers alone")]
    let code = unsafe { libc::prctl(option, value, 0, 0, 0) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}
