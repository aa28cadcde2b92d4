//! Packets that netfilter's NFQUEUE target holds until told what becomes of them.
//!
//! A [`Queue`] is a netlink socket (NETLINK_NETFILTER, nfnetlink_queue) bound to one queue number of the network
//! namespace it was opened in. It is read when its descriptor is readable and never blocks. Verdicts are collected and
//! go out with [`Queue::flush`], in the order in which packets came, a run of packets that pass in one message.
//!
//! - **Segmentation**: NFQA_CFG_F_GSO stays off, so that the kernel cuts what is larger than a segment before it asks,
//!   and there is a verdict for each segment, whatever the interface's offloads are.
//! - **Checksums**: with that flag off the kernel also completes checksums that hardware was to compute (NFQA_SKB_INFO
//!   never says CSUMNOTREADY), so that one can be adjusted as it stands. A changed packet is taken as having a whole
//!   checksum that nobody has verified, which the kernel's TCP then does.
//! - **Losses**: what does not fit the socket's buffer never comes here. The kernel drops it and counts it, or lets it
//!   pass unjudged ([`Settings::fail_open`]); either way [`Queue::lost`] tells, so that nobody takes it for an AQM's
//!   drop.
//!
//! Needs CAP_NET_ADMIN, as long as it lives.

use std::collections::VecDeque;
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

use crate::intercept::netlink::{
    ATTRIBUTE, CONFIG, Message, VERDICT, VERDICT_BATCH, attribute, begin, end, message_at, verdict,
};

/// How a queue is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Packets that may wait for a verdict.
    pub limit: u32,
    /// The socket's receive buffer [bytes]; the kernel counts about 2.3 kB for a packet of 1 500.
    pub buffer: u32,
    /// Bytes of each packet that are handed over, from its IP header on, at most [`WHOLE`]. A packet of which there is
    /// only a part cannot be changed.
    pub copy: u32,
    /// Whether what finds no place passes unjudged instead of being dropped.
    pub fail_open: bool,
}

/// As many bytes of a packet as an attribute of netlink can have, for [`Settings::copy`]: all of any packet but one of the
/// last four lengths that IPv4 allows.
pub const WHOLE: u32 = 0xffff - ATTRIBUTE as u32;

impl Default for Settings {
    /// 64 MiB, so that about 25 000 packets find place, and a limit that is not reached before.
    fn default() -> Self {
        Self { limit: 1 << 18, buffer: 64 << 20, copy: WHOLE, fail_open: false }
    }
}

/// Number of a packet in its queue, given by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketId(pub(crate) u32);

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It goes on as it was changed where it was shown.
    Changed,
    /// It is dropped.
    Drop,
    /// One of [`Queue::accept`], [`Queue::drop_packet`] and [`Queue::accept_changed`] will tell.
    Later,
}

/// Packets that a queue lost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Dropped because as many as [`Settings::limit`] waited (`queue_dropped`).
    pub queue: u64,
    /// Dropped because the socket's buffer was full (`user_dropped`).
    pub user: u64,
    /// Passed unjudged because the socket's buffer was full, under [`Settings::fail_open`].
    pub passed: u64,
}

/// What was decided about a packet that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Waiting,
    Accept,
    Drop,
    /// With `len` bytes at `at` of what was changed.
    Changed {
        at: usize,
        len: usize,
    },
    /// Told to the kernel, or never shown.
    Gone,
}

/// Packets read with one call to the kernel.
const BATCH: usize = 64;
/// Room for a packet and what netlink says of it [bytes].
const SLOT: usize = 65_536 + 512;
/// Verdicts go out in datagrams of about this size [bytes].
const DATAGRAM: usize = 32 << 10;

/// Decisions about packets in the order of their ids, until the kernel knows them.
#[derive(Debug)]
struct Decisions {
    /// The id of the first of `list`, or the next one to come.
    first: u32,
    list: VecDeque<Decision>,
    /// Decided and not told.
    ready: usize,
    /// What changed packets are now.
    changed: Vec<u8>,
}

impl Decisions {
    fn new() -> Self {
        // A queue's first packet has the id 1.
        Self { first: 1, list: VecDeque::new(), ready: 0, changed: Vec::new() }
    }

    /// A packet was shown. Returns how many ids were left out since the one before.
    fn shown(&mut self, id: u32) -> u32 {
        let left_out = id.wrapping_sub(self.first.wrapping_add(self.list.len() as u32));
        // Ids only rise.
        if left_out > u32::MAX / 2 {
            return 0;
        }
        if self.list.is_empty() {
            self.first = id;
        } else {
            self.list.extend(std::iter::repeat_n(Decision::Gone, left_out as usize));
        }
        self.list.push_back(Decision::Waiting);
        left_out
    }

    fn decide(&mut self, id: u32, decision: Decision) {
        let place = id.wrapping_sub(self.first) as usize;
        if let Some(slot @ Decision::Waiting) = self.list.get_mut(place) {
            *slot = decision;
            self.ready += 1;
        }
    }

    fn decide_changed(&mut self, id: u32, packet: &[u8]) {
        let at = self.changed.len();
        self.changed.extend_from_slice(packet);
        self.decide(id, Decision::Changed { at, len: packet.len() });
    }

    /// Writes what was decided as messages, and calls `send` with about [`DATAGRAM`] bytes of them at a time.
    ///
    /// Packets go on in the order in which they came, whatever the order of decisions within this call.
    fn tell(
        &mut self,
        number: u16,
        out: &mut Vec<u8>,
        send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.ready == 0 {
            return Ok(());
        }
        out.clear();
        let mut sent = Ok(());
        // The last of a run that passes, which one message for all up to an id can tell: none before it waits.
        let (mut run, mut waits) = (None, false);
        for place in 0..self.list.len() {
            let id = self.first.wrapping_add(place as u32);
            match mem::replace(&mut self.list[place], Decision::Gone) {
                Decision::Gone => continue,
                Decision::Waiting => {
                    self.list[place] = Decision::Waiting;
                    waits = true;
                    if let Some(last) = run.take() {
                        verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
                    }
                }
                Decision::Accept if !waits => run = Some(id),
                Decision::Accept => verdict(out, number, VERDICT, libc::NF_ACCEPT, id, None),
                // Before the run's message, which would let it pass.
                Decision::Drop => verdict(out, number, VERDICT, libc::NF_DROP, id, None),
                Decision::Changed { at, len } => {
                    if let Some(last) = run.take() {
                        verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
                    }
                    verdict(out, number, VERDICT, libc::NF_ACCEPT, id, Some(&self.changed[at..at + len]));
                }
            }
            if out.len() >= DATAGRAM {
                sent = send(out).and(sent);
                out.clear();
            }
        }
        if let Some(last) = run {
            verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
        }
        if !out.is_empty() {
            sent = send(out).and(sent);
        }
        while let Some(Decision::Gone) = self.list.front() {
            self.list.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.ready = 0;
        self.changed.clear();
        sent
    }
}

/// A queue that this process judges.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    socket: OwnedFd,
    /// The kernel's counters, of the network namespace that the queue is in.
    counters: File,
    /// A batch of datagrams, `slot` bytes for each.
    read: Vec<u8>,
    slot: usize,
    decisions: Decisions,
    out: Vec<u8>,
    /// Ids that never came.
    left_out: u64,
    /// Verdicts that the kernel would not have.
    refused: u64,
}

impl Queue {
    /// Binds the queue of this number in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, without the kernel's nfnetlink_queue, or when another process has the number.
    pub fn open(number: u16, settings: &Settings) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkNetFilter)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let buffer = settings.buffer as usize;
        if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
            // In a user namespace the limit of all sockets holds (net.core.rmem_max).
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
            left_out: 0,
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
        // The kernel has answered by now; packets may have come before its answer.
        let mut answer = None;
        while answer.is_none() {
            self.batch(&mut |_, _| Verdict::Accept, &mut answer)?;
        }
        match answer.map(|code| Error::from_raw_os_error(-code)) {
            Some(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let why =
                    format!("NFQUEUE {}: another process has it, or CAP_NET_ADMIN is missing", self.number);
                Err(Error::new(io::ErrorKind::PermissionDenied, why))
            }
            Some(error) if error.raw_os_error() != Some(0) => Err(error),
            _ => self.flush(),
        }
    }

    /// Shows a batch of packets, each from its IP header on, and takes down what `each` says of them. Returns how many
    /// there were: 0 when none waits.
    ///
    /// # Errors
    /// Only those that the socket will not recover from.
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
                        self.left_out += u64::from(self.decisions.shown(id));
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

    /// Lets a packet go on about which `each` said [`Verdict::Later`].
    pub fn accept(&mut self, id: PacketId) {
        self.decisions.decide(id.0, Decision::Accept);
    }

    /// Drops a packet about which `each` said [`Verdict::Later`].
    pub fn drop_packet(&mut self, id: PacketId) {
        self.decisions.decide(id.0, Decision::Drop);
    }

    /// Lets a packet about which `each` said [`Verdict::Later`] go on as these bytes, all of it from its IP header on.
    pub fn accept_changed(&mut self, id: PacketId, packet: &[u8]) {
        self.decisions.decide_changed(id.0, packet);
    }

    /// Tells the kernel what was decided.
    ///
    /// # Errors
    /// When the kernel does not take it; what it was to be told is then forgotten, and those packets stay where they
    /// are.
    pub fn flush(&mut self) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        self.decisions.tell(self.number, &mut self.out, &mut |bytes| {
            send(socket, bytes, MsgFlags::empty())?;
            Ok(())
        })
    }

    /// Packets shown for which there is no verdict yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.decisions.list.iter().filter(|decision| **decision == Decision::Waiting).count()
    }

    /// Verdicts that the kernel refused since the queue was opened: about packets that it no longer had.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The size of the receive buffer as the kernel has set it [bytes]: twice what was asked for, or less if that was
    /// not allowed.
    ///
    /// # Errors
    /// When the socket cannot be asked.
    pub fn buffer(&self) -> io::Result<u64> {
        Ok(nix::sys::socket::getsockopt(&self.socket, sockopt::RcvBuf)? as u64)
    }

    /// Packets that this queue lost so far.
    ///
    /// # Errors
    /// When the kernel's table of queues cannot be read.
    pub fn lost(&self) -> io::Result<Lost> {
        let mut table = [0; 16 << 10];
        let length = self.counters.read_at(&mut table, 0)?;
        let [queue, user] = str::from_utf8(&table[..length])
            .ok()
            .and_then(|text| counters(text, self.number))
            .ok_or_else(|| {
                Error::other(format!("queue {} is not in /proc/net/netfilter/nfnetlink_queue", self.number))
            })?;
        Ok(Lost { queue, user, passed: self.left_out.saturating_sub(user) })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Queue {
    /// Packets that wait go on; the kernel would drop them.
    fn drop(&mut self) {
        for place in 0..self.decisions.list.len() {
            self.accept(PacketId(self.decisions.first.wrapping_add(place as u32)));
        }
        // Nobody is left to be told.
        let _ = self.flush();
    }
}

/// `queue_dropped` and `user_dropped` of a queue in the kernel's table: number, port, waiting, copy mode, copy range,
/// these two, last id, 1.
fn counters(table: &str, number: u16) -> Option<[u64; 2]> {
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let mut field = |skip: usize| fields.nth(skip)?.ok();
        (field(0)? == u64::from(number)).then_some(())?;
        Some([field(4)?, field(0)?])
    })
}

/// Without this the kernel sends nothing more after an overflow until the buffer is empty.
fn no_enobufs(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    #[expect(unsafe_code, reason = "no wrapper knows this option")]
    // SAFETY: the kernel reads as many bytes of `on` as it is told that there are.
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

/// Reads up to [`BATCH`] datagrams, each into its slot of `buffer`, and says how long they are and how many.
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
    // SAFETY: an all-zero mmsghdr is one without name, control data and places.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    for (header, place) in headers.iter_mut().zip(&mut places) {
        header.msg_hdr.msg_iov = place;
        header.msg_hdr.msg_iovlen = 1;
    }
    #[expect(
        unsafe_code,
        reason = "a wrapper would allocate for each call; this is the path of every packet"
    )]
    // SAFETY: each header points to one place, each place to a slot of `buffer` that no other has, with its length (or
    // to nothing, with length 0); both arrays and `buffer` outlive the call.
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
        // Nothing was lost to these; the next call reads on.
        Err(Errno::EINTR | Errno::ENOBUFS) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intercept::netlink::{big, native};

    /// Verdicts as the kernel would read them: whether for all up to the id, pass (1) or drop (0), id, bytes.
    fn told(decisions: &mut Decisions) -> Vec<(bool, u32, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut read = |bytes: &[u8]| {
            let mut at = 0;
            while at < bytes.len() {
                let length = native(bytes, at).unwrap() as usize;
                let kind = u16::from_ne_bytes([bytes[at + 4], bytes[at + 5]]);
                assert!(kind == 0x0301 || kind == 0x0303);
                // Request, no answer; any family, version 0, queue 515.
                assert_eq!(bytes[at + 6..at + 8], 1u16.to_ne_bytes());
                assert_eq!(bytes[at + 16..at + 20], [0, 0, 2, 3]);
                // Attribute 2: 12 bytes with its header.
                assert_eq!(bytes[at + 20..at + 24], [12u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
                let payload = if length > 32 {
                    let size = usize::from(u16::from_ne_bytes([bytes[at + 32], bytes[at + 33]]));
                    assert_eq!(bytes[at + 34..at + 36], 10u16.to_ne_bytes());
                    bytes[at + 36..at + 32 + size].to_vec()
                } else {
                    Vec::new()
                };
                all.push((
                    kind == 0x0303,
                    big(bytes, at + 24).unwrap(),
                    big(bytes, at + 28).unwrap(),
                    payload,
                ));
                assert_eq!(length % 4, 0);
                at += length;
            }
            Ok(())
        };
        decisions.tell(515, &mut Vec::new(), &mut read).unwrap();
        all
    }

    fn of(first: u32, count: u32) -> Decisions {
        let mut decisions = Decisions { first, ..Decisions::new() };
        for place in 0..count {
            assert_eq!(decisions.shown(first.wrapping_add(place)), 0);
        }
        decisions
    }

    #[test]
    fn a_run_that_passes_is_one_message() {
        let mut decisions = of(1, 5);
        assert_eq!(told(&mut decisions), []);
        for id in [3, 1, 2, 5, 4] {
            decisions.decide(id, Decision::Accept);
        }
        assert_eq!(told(&mut decisions), [(true, 1, 5, vec![])]);
        assert_eq!(told(&mut decisions), []);
        assert_eq!((decisions.first, decisions.list.len()), (6, 0));
    }

    #[test]
    fn a_drop_is_told_before_the_run_around_it() {
        let mut decisions = of(1, 4);
        for id in [1, 2, 4] {
            decisions.decide(id, Decision::Accept);
        }
        decisions.decide(3, Decision::Drop);
        assert_eq!(told(&mut decisions), [(false, 0, 3, vec![]), (true, 1, 4, vec![])]);
    }

    #[test]
    fn a_changed_packet_keeps_its_place() {
        let mut decisions = of(1, 5);
        for id in [1, 3, 5] {
            decisions.decide(id, Decision::Accept);
        }
        decisions.decide_changed(4, &[7; 5]);
        decisions.decide_changed(2, &[8; 4]);
        let expected = [
            (true, 1, 1, vec![]),
            (false, 1, 2, vec![8; 4]),
            (true, 1, 3, vec![]),
            (false, 1, 4, vec![7; 5]),
            (true, 1, 5, vec![]),
        ];
        assert_eq!(told(&mut decisions), expected);
    }

    #[test]
    fn the_longest_packet_fits_an_attribute() {
        let mut decisions = of(1, 1);
        decisions.decide_changed(1, &vec![7; WHOLE as usize]);
        assert_eq!(told(&mut decisions), [(false, 1, 1, vec![7; WHOLE as usize])]);
    }

    #[test]
    fn nothing_is_said_of_what_waits() {
        let mut decisions = of(1, 5);
        for id in [1, 2, 4, 5] {
            decisions.decide(id, Decision::Accept);
        }
        // A second word on the same packet is not heard, nor one on a packet never shown.
        decisions.decide(4, Decision::Drop);
        decisions.decide(9, Decision::Drop);
        decisions.decide(0, Decision::Drop);
        assert_eq!(
            told(&mut decisions),
            [(true, 1, 2, vec![]), (false, 1, 4, vec![]), (false, 1, 5, vec![])]
        );
        decisions.decide(3, Decision::Drop);
        assert_eq!(told(&mut decisions), [(false, 0, 3, vec![])]);
        assert_eq!((decisions.first, decisions.list.len()), (6, 0));
    }

    #[test]
    fn ids_may_be_left_out_and_begin_again() {
        let mut decisions = of(u32::MAX - 1, 1);
        assert_eq!(decisions.shown(2), 3);
        // An id that has been there is another queue's, or nonsense.
        assert_eq!(decisions.shown(0), 0);
        for id in [u32::MAX - 1, 2] {
            decisions.decide(id, Decision::Accept);
        }
        assert_eq!(told(&mut decisions), [(true, 1, 2, vec![])]);
        assert_eq!(decisions.shown(5), 2);
        assert_eq!(decisions.first, 5);
    }

    #[test]
    fn much_is_told_in_parts() {
        let mut decisions = of(1, 100);
        for id in 1..=100 {
            decisions.decide_changed(id, &[1; 1500]);
        }
        let mut parts = Vec::new();
        let mut count = |bytes: &[u8]| {
            parts.push(bytes.len());
            if parts.len() == 2 { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        };
        // What comes after a part that the kernel does not take is told nevertheless, and so is the error.
        assert!(decisions.tell(0, &mut Vec::new(), &mut count).is_err());
        assert_eq!(parts.iter().sum::<usize>(), 100 * (20 + 12 + 4 + 1500));
        assert!(parts.len() > 3 && parts.iter().all(|part| *part < DATAGRAM + 1600), "{parts:?}");
    }

    #[test]
    fn the_kernels_table_is_read_by_queue() {
        let table = "    0  12345     3 2 65535     7    11      900  1\n   10   4242     0 2 65535    13     0        1  1\n";
        assert_eq!(counters(table, 0), Some([7, 11]));
        assert_eq!(counters(table, 10), Some([13, 0]));
        assert_eq!(counters(table, 1), None);
        assert_eq!(counters("0 1 2", 0), None);
    }
}
