//! Netfilter queues (NFQUEUE): packets that the kernel holds until it gets a verdict.
//!
//! A [`Queue`] is a netlink socket (NETLINK_NETFILTER, nfnetlink_queue) bound to one queue number of the network namespace
//! in which it was opened. It is read when its descriptor is readable and never blocks. Verdicts are collected and sent by
//! [`Queue::flush`] in the order of arrival, a run of accepted packets in one message.
//!
//! - **Segmentation**: NFQA_CFG_F_GSO stays off, so the kernel segments super-packets first, and each segment gets a verdict
//!   whatever the interface's offloads are.
//! - **Checksums**: with that flag off the kernel also completes checksums left to hardware (NFQA_SKB_INFO never says
//!   CSUMNOTREADY), so they can be adjusted. It takes the checksum of a changed packet as complete but unverified; its TCP
//!   verifies it.
//! - **Losses**: packets for which the socket's buffer has no room never arrive. The kernel drops and counts them, or
//!   accepts them ([`Settings::fail_open`]). [`Queue::lost`] reports both, so that they are not taken for drops of the AQM.
//!
//! Opening and verdicts need CAP_NET_ADMIN.

use std::fs::File;
use std::io::{self, Error};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, send, setsockopt, socket,
    sockopt,
};

use super::netlink::{ATTRIBUTE, CONFIG, Message, attribute, begin, end, message_at};
use super::verdicts::{Decision, Decisions};

/// Setup of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of packets that wait for a verdict.
    pub limit: u32,
    /// Receive buffer of the socket [bytes]; the kernel charges about 2.3 kB for a packet of 1500.
    pub buffer: u32,
    /// Bytes of each packet that are copied, from the IP header on, at most [`WHOLE`]. A truncated packet cannot be changed.
    pub copy: u32,
    /// True to accept packets without a verdict when the socket's buffer is full, instead of dropping them.
    pub fail_open: bool,
}

/// Longest payload of a netlink attribute, for [`Settings::copy`]: any whole packet but those of the four greatest lengths
/// that IPv4 allows.
pub const WHOLE: u32 = 0xffff - ATTRIBUTE as u32;

impl Default for Settings {
    /// 64 MiB, for about 25 000 packets, and a limit that is not reached before.
    fn default() -> Self {
        Self { limit: 1 << 18, buffer: 64 << 20, copy: WHOLE, fail_open: false }
    }
}

/// Number of a packet in its queue, given by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketId(pub(crate) u32);

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward it.
    Accept,
    /// Forward it as changed in place.
    Changed,
    /// Drop it.
    Drop,
    /// Wait for [`Queue::accept`], [`Queue::drop_packet`] or [`Queue::accept_changed`].
    Later,
}

/// Packets that a queue has lost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Dropped because [`Settings::limit`] packets waited (`queue_dropped`).
    pub queue: u64,
    /// Dropped because the socket's buffer was full (`user_dropped`).
    pub user: u64,
    /// Accepted without a verdict because the socket's buffer was full ([`Settings::fail_open`]).
    pub passed: u64,
}

/// Datagrams read with one system call.
const BATCH: usize = 64;
/// Space for a packet and its netlink attributes [bytes].
const SLOT: usize = 65_536 + 512;
/// A queue bound by this process.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    socket: OwnedFd,
    /// The kernel's counters of the queue's network namespace.
    counters: File,
    /// A batch of datagrams, `slot` bytes each.
    read: Vec<u8>,
    slot: usize,
    decisions: Decisions,
    out: Vec<u8>,
    /// Skipped ids.
    skipped: u64,
    /// Verdicts that the kernel refused.
    refused: u64,
}

impl Queue {
    /// Binds a queue in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN or the kernel's nfnetlink_queue, or if another process has bound the number.
    pub fn open(number: u16, settings: &Settings) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let buffer = settings.buffer as usize;
        if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
            // In a user namespace the limit of all sockets applies (net.core.rmem_max).
            setsockopt(&socket, sockopt::RcvBuf, &buffer)?;
        }
        no_enobufs(&socket)?;
        let slot = settings.copy.min(WHOLE) as usize + (SLOT - WHOLE as usize);
        let mut queue = Self {
            number,
            socket,
            counters: File::open("/proc/thread-self/net/netfilter/nfnetlink_queue")?,
            read: vec![0; BATCH * slot],
            slot,
            decisions: Decisions::new(),
            out: Vec::new(),
            skipped: 0,
            refused: 0,
        };
        queue.configure(settings)?;
        Ok(queue)
    }

    fn configure(&mut self, settings: &Settings) -> io::Result<()> {
        let mut out = Vec::new();
        let start = begin(&mut out, CONFIG, libc::NLM_F_REQUEST | libc::NLM_F_ACK, self.number);
        attribute(&mut out, libc::NFQA_CFG_CMD, &[libc::NFQNL_CFG_CMD_BIND as u8, 0, 0, 0]);
        let range = settings.copy.min(WHOLE).to_be_bytes();
        let params = [range[0], range[1], range[2], range[3], libc::NFQNL_COPY_PACKET as u8];
        attribute(&mut out, libc::NFQA_CFG_PARAMS, &params);
        attribute(&mut out, libc::NFQA_CFG_QUEUE_MAXLEN, &settings.limit.to_be_bytes());
        let flags = if settings.fail_open { libc::NFQA_CFG_F_FAIL_OPEN } else { 0 };
        let mask = libc::NFQA_CFG_F_FAIL_OPEN | libc::NFQA_CFG_F_GSO;
        attribute(&mut out, libc::NFQA_CFG_FLAGS, &flags.cast_unsigned().to_be_bytes());
        attribute(&mut out, libc::NFQA_CFG_MASK, &mask.cast_unsigned().to_be_bytes());
        end(&mut out, start);
        send(self.socket.as_raw_fd(), &out, MsgFlags::empty())?;
        // The kernel has replied by now; packets may precede its reply.
        let mut answer = None;
        while answer.is_none() {
            self.batch(&mut |_, _| Verdict::Accept, &mut answer)?;
        }
        match answer.map(|code| Error::from_raw_os_error(-code)) {
            Some(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let why =
                    format!("NFQUEUE {}: bound by another process, or CAP_NET_ADMIN is missing", self.number);
                Err(Error::new(io::ErrorKind::PermissionDenied, why))
            }
            Some(error) if error.raw_os_error() != Some(0) => Err(error),
            _ => self.flush(),
        }
    }

    /// Receives a batch of packets, each from its IP header on, and collects the verdicts of `each`. Returns the number of
    /// packets, 0 if none waits.
    ///
    /// # Errors
    /// Only errors from which the socket does not recover.
    pub fn receive(&mut self, each: &mut dyn FnMut(PacketId, &mut [u8]) -> Verdict) -> io::Result<usize> {
        match self.batch(each, &mut None) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    fn batch(
        &mut self,
        each: &mut dyn FnMut(PacketId, &mut [u8]) -> Verdict,
        answer: &mut Option<i32>,
    ) -> io::Result<usize> {
        let mut lengths = [0; BATCH];
        let datagrams = receive_many(&self.socket, &mut self.read, self.slot, &mut lengths)?;
        let mut packets = 0;
        for (place, &length) in lengths[..datagrams].iter().enumerate() {
            let bytes = &mut self.read[place * self.slot..][..length];
            let mut at = 0;
            while let Some((message, next)) = message_at(bytes, at) {
                at = next;
                match message {
                    Message::Packet { id, at, len, whole } => {
                        packets += 1;
                        self.skipped += u64::from(self.decisions.add(id));
                        let packet = &mut bytes[at..at + len];
                        match each(PacketId(id), packet) {
                            Verdict::Later => {}
                            Verdict::Drop => self.decisions.decide(id, Decision::Drop),
                            Verdict::Changed if len == whole => self.decisions.decide_changed(id, packet),
                            Verdict::Accept | Verdict::Changed => self.decisions.decide(id, Decision::Accept),
                        }
                    }
                    Message::Status(code) => {
                        *answer = Some(code);
                        self.refused += u64::from(code != 0);
                    }
                    Message::Other => {}
                }
            }
        }
        Ok(packets)
    }

    /// Accepts a packet that got [`Verdict::Later`].
    pub fn accept(&mut self, id: PacketId) {
        self.decisions.decide(id.0, Decision::Accept);
    }

    /// Drops a packet that got [`Verdict::Later`].
    pub fn drop_packet(&mut self, id: PacketId) {
        self.decisions.decide(id.0, Decision::Drop);
    }

    /// Accepts a packet that got [`Verdict::Later`] with these bytes: the whole packet from its IP header on.
    pub fn accept_changed(&mut self, id: PacketId, packet: &[u8]) {
        self.decisions.decide_changed(id.0, packet);
    }

    /// Sends the verdicts to the kernel.
    ///
    /// # Errors
    /// If the kernel refuses them. They are then lost and their packets stay in the queue.
    pub fn flush(&mut self) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        self.decisions.send_verdicts(self.number, &mut self.out, &mut |bytes| {
            send(socket, bytes, MsgFlags::empty())?;
            Ok(())
        })
    }

    /// Number of received packets without a verdict.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.decisions.list.iter().filter(|decision| **decision == Decision::Waiting).count()
    }

    /// Number of verdicts that the kernel refused, for packets that it no longer had.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Size of the receive buffer that the kernel has set [bytes]: twice the requested size, or less if that is not allowed.
    ///
    /// # Errors
    /// If the socket cannot be queried.
    pub fn buffer(&self) -> io::Result<u64> {
        Ok(nix::sys::socket::getsockopt(&self.socket, sockopt::RcvBuf)? as u64)
    }

    /// Packets that the queue has lost so far.
    ///
    /// # Errors
    /// If the kernel's table of queues cannot be read.
    pub fn lost(&self) -> io::Result<Lost> {
        let mut table = [0; 16 << 10];
        let length = self.counters.read_at(&mut table, 0)?;
        let [queue, user] = str::from_utf8(&table[..length])
            .ok()
            .and_then(|text| counters(text, self.number))
            .ok_or_else(|| {
                Error::other(format!("queue {} is not in /proc/net/netfilter/nfnetlink_queue", self.number))
            })?;
        Ok(Lost { queue, user, passed: self.skipped.saturating_sub(user) })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Queue {
    /// Accepts the packets that wait; the kernel would drop them.
    fn drop(&mut self) {
        for place in 0..self.decisions.list.len() {
            self.accept(PacketId(self.decisions.first.wrapping_add(place as u32)));
        }
        // Nothing is left to report an error to.
        let _ = self.flush();
    }
}

/// `queue_dropped` and `user_dropped` of a queue in the kernel's table: number, port, waiting, copy mode, copy range, these
/// two, last id, 1.
fn counters(table: &str, number: u16) -> Option<[u64; 2]> {
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let mut field = |skip: usize| fields.nth(skip)?.ok();
        (field(0)? == u64::from(number)).then_some(())?;
        Some([field(4)?, field(0)?])
    })
}

/// Without this option the kernel sends nothing after an overflow until the buffer is empty.
fn no_enobufs(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    #[expect(unsafe_code, reason = "no wrapper knows this option")]
    // SAFETY: the kernel reads as many bytes of `on` as the length says.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_NO_ENOBUFS,
            (&raw const on).cast(),
            mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Reads up to [`BATCH`] datagrams, each into its slot of `buffer`, and sets their lengths. Returns their number.
fn receive_many(
    socket: &OwnedFd,
    buffer: &mut [u8],
    slot: usize,
    lengths: &mut [usize; BATCH],
) -> io::Result<usize> {
    let mut places = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
    for (place, bytes) in places.iter_mut().zip(buffer.chunks_exact_mut(slot)) {
        *place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    }
    #[expect(
        unsafe_code,
        reason = "a wrapper would allocate for each call; this is the path of every packet"
    )]
    // SAFETY: an all-zero mmsghdr has no name, control data or buffers.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    for (header, place) in headers.iter_mut().zip(&mut places) {
        header.msg_hdr.msg_iov = place;
        header.msg_hdr.msg_iovlen = 1;
    }
    #[expect(
        unsafe_code,
        reason = "a wrapper would allocate for each call; this is the path of every packet"
    )]
    // SAFETY: each header points to one iovec, each iovec to its own slot of `buffer` with the slot's length (or to nothing,
    // with length 0); both arrays and `buffer` outlive the call.
    let result = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            BATCH as libc::c_uint,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    match Errno::result(result) {
        Ok(count) => {
            for (length, header) in lengths.iter_mut().zip(&headers).take(count as usize) {
                *length = (header.msg_len as usize).min(slot);
            }
            Ok(count as usize)
        }
        // These lose nothing; the next call continues.
        Err(Errno::EINTR | Errno::ENOBUFS) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_queue() {
        let table = "    0  12345     3 2 65535     7    11      900  1\n   10   4242     0 2 65535    13     0        1  1\n";
        assert_eq!(counters(table, 0), Some([7, 11]));
        assert_eq!(counters(table, 10), Some([13, 0]));
        assert_eq!(counters(table, 1), None);
        assert_eq!(counters("0 1 2", 0), None);
    }
}
