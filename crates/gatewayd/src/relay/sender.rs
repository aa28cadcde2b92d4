//! Sends the spacelink's datagrams: in the loop's thread, or in a separate one.
//!
//! The kernel carries a datagram through its network stack within the call that sends it, and with many terminals each has
//! another destination. docs/decisions/0034-send-thread.md says what a separate thread gains.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bentpipe_spacelink::Transmit;
use quinn_udp::{EcnCodepoint, UdpSocketState};

use crate::sys;

/// Datagrams, or groups of equal ones, that the thread is given at once.
const BATCH: usize = 32;
/// So few are sent by the loop itself, unless others are still with the thread: waking it costs a system call, too.
const FEW: usize = 4;
/// Length of the datagrams that may wait for the thread [bytes]; then the loop waits.
const MOST_WAITING: usize = 1 << 20;
/// Buffers kept to be used again.
const MOST_SPARE: usize = 2 * BATCH;
/// Time until the thread tries again to send on a full socket.
const AGAIN: Duration = Duration::from_micros(500);

/// The spacelink's UDP socket.
pub struct Socket {
    /// The socket.
    pub udp: UdpSocket,
    /// Offloads that the kernel has for it.
    pub state: UdpSocketState,
}

/// A datagram, or several of one length, and where they go.
struct Outgoing {
    transmit: Transmit,
    bytes: Vec<u8>,
}

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Yes,
    /// The kernel has no room.
    Full,
    /// Lost as on the way: the spacelink retransmits.
    Lost,
}

impl Socket {
    /// Number of datagrams that one call may send, at most `most`: one after the kernel has refused to segment a group.
    pub fn group(&self, most: usize) -> usize {
        self.state.max_gso_segments().min(most).max(1)
    }

    /// Sends. The datagrams of a group that the kernel does not segment go one by one; those sent are removed from `outgoing`.
    fn send(&self, outgoing: &mut Outgoing) -> Sent {
        let transmit = outgoing.transmit;
        let result = self.send_once(&transmit, &outgoing.bytes);
        let refused = result == Sent::Lost && self.group(usize::MAX) == 1;
        let Some(len) = transmit.segment.filter(|_| refused) else { return result };
        let single = Transmit { segment: None, ..transmit };
        let mut result = Sent::Yes;
        while !outgoing.bytes.is_empty() {
            let len = len.clamp(1, outgoing.bytes.len());
            match self.send_once(&single, &outgoing.bytes[..len]) {
                Sent::Yes => {}
                Sent::Full => return Sent::Full,
                Sent::Lost => result = Sent::Lost,
            }
            outgoing.bytes.drain(..len);
        }
        result
    }

    /// Sends in one call; tries twice, since an error may belong to an earlier datagram. The loop reads such errors when epoll reports
    /// them.
    fn send_once(&self, transmit: &Transmit, bytes: &[u8]) -> Sent {
        let datagrams = quinn_udp::Transmit {
            destination: transmit.to,
            ecn: EcnCodepoint::from_bits(transmit.ecn),
            contents: bytes,
            segment_size: transmit.segment,
            src_ip: transmit.from,
        };
        for _ in 0..2 {
            match self.state.try_send((&self.udp).into(), &datagrams) {
                Ok(()) => return Sent::Yes,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Sent::Full,
                Err(_) => {}
            }
        }
        Sent::Lost
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Datagrams on their way to the kernel.
pub struct Sender {
    socket: Arc<Socket>,
    /// Not yet with the kernel or the thread, in order.
    outgoing: VecDeque<Outgoing>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    thread: Option<Thread>,
}

impl Sender {
    /// Sends on `socket` in the caller's thread.
    pub fn new(socket: Arc<Socket>) -> Self {
        Self { socket, outgoing: VecDeque::new(), spare: Vec::new(), thread: None }
    }

    /// Sends in a separate thread from now on, under SCHED_FIFO if `realtime`.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start_thread(&mut self, realtime: bool) -> io::Result<()> {
        self.thread = Some(Thread::start(self.socket.clone(), realtime)?);
        Ok(())
    }

    /// True if the kernel, or the thread, has not taken all datagrams.
    pub fn is_blocked(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what `next` writes into the buffer it is given until it returns `None`, or until no more is taken. Returns the
    /// number of calls whose datagrams were lost.
    pub fn flush(&mut self, mut next: impl FnMut(&mut Vec<u8>) -> Option<Transmit>) -> u64 {
        let mut lost = self.thread.as_ref().map_or(0, Thread::take_lost);
        // What it had is lost.
        self.thread.take_if(|thread| thread.has_ended());
        let most = if self.thread.is_some() { BATCH } else { 1 };
        loop {
            while self.outgoing.len() < most {
                let mut bytes = self.spare.pop().unwrap_or_default();
                let Some(transmit) = next(&mut bytes) else {
                    self.spare.push(bytes);
                    break;
                };
                self.outgoing.push_back(Outgoing { transmit, bytes });
            }
            if self.outgoing.is_empty() {
                return lost;
            }
            let thread = self.thread.as_ref().filter(|thread| self.outgoing.len() > FEW || thread.is_busy());
            let taken = match thread {
                Some(thread) => thread.give(&mut self.outgoing, &mut self.spare),
                None => self.send_here(&mut lost),
            };
            if !taken {
                return lost;
            }
        }
    }

    /// Sends all that waits. Returns false if the kernel does not take it.
    fn send_here(&mut self, lost: &mut u64) -> bool {
        while let Some(mut outgoing) = self.outgoing.pop_front() {
            match self.socket.send(&mut outgoing) {
                Sent::Yes => {}
                Sent::Lost => *lost += 1,
                Sent::Full => {
                    self.outgoing.push_front(outgoing);
                    return false;
                }
            }
            self.spare.push(outgoing.bytes);
        }
        true
    }
}

/// The thread, as the loop sees it. It ends, with what it was given sent or lost, when this is dropped.
struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    /// Told when there is work for a thread that sleeps.
    wake: Condvar,
    /// Calls whose datagrams were lost.
    lost: AtomicU64,
}

#[derive(Default)]
struct Work {
    waiting: VecDeque<Outgoing>,
    /// Length of the waiting datagrams [bytes].
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// The thread sends: it looks again before it sleeps.
    sending: bool,
    stopping: bool,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        // Each change is whole before anything can panic.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thread {
    fn start(socket: Arc<Socket>, realtime: bool) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let run = move || {
            if realtime {
                let _ = sys::set_realtime(1);
            }
            run(&socket, &own);
        };
        let handle = thread::Builder::new().name("send".to_owned()).spawn(run)?;
        Ok(Self { shared, handle: Some(handle) })
    }

    /// True while datagrams wait for the thread or are being sent, which later ones must not overtake.
    fn is_busy(&self) -> bool {
        let work = self.shared.work();
        work.sending || !work.waiting.is_empty()
    }

    /// Gives the thread all of `outgoing` and takes buffers back. Returns false, and gives nothing, if too much waits there.
    fn give(&self, outgoing: &mut VecDeque<Outgoing>, spare: &mut Vec<Vec<u8>>) -> bool {
        let mut work = self.shared.work();
        spare.append(&mut work.spare);
        if work.bytes > MOST_WAITING {
            return false;
        }
        work.bytes += outgoing.iter().map(|outgoing| outgoing.bytes.len()).sum::<usize>();
        work.waiting.append(outgoing);
        let sleeps = !std::mem::replace(&mut work.sending, true);
        drop(work);
        if sleeps {
            self.shared.wake.notify_one();
        }
        true
    }

    /// True if the thread has panicked.
    fn has_ended(&self) -> bool {
        self.handle.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn take_lost(&self) -> u64 {
        self.shared.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.work().stopping = true;
        self.shared.wake.notify_one();
        if let Some(handle) = self.handle.take() {
            // A panic there has been printed.
            let _ = handle.join();
        }
    }
}

/// Sends what comes until the loop drops its end.
fn run(socket: &Socket, shared: &Shared) {
    let mut batch = VecDeque::<Outgoing>::new();
    loop {
        let mut work = shared.work();
        let room = MOST_SPARE.saturating_sub(work.spare.len());
        work.spare.extend(batch.drain(..).take(room).map(|outgoing| outgoing.bytes));
        while work.waiting.is_empty() {
            if work.stopping {
                return;
            }
            work.sending = false;
            work = shared.wake.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut work.waiting, &mut batch);
        work.bytes = 0;
        drop(work);
        for outgoing in &mut batch {
            while let result @ (Sent::Full | Sent::Lost) = socket.send(outgoing) {
                if result == Sent::Lost || shared.work().stopping {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                thread::sleep(AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// A sender on loopback, and the socket that receives from it.
    fn pair() -> (Sender, UdpSocket, SocketAddr) {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        to.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let state = UdpSocketState::new((&from).into()).unwrap();
        let address = to.local_addr().unwrap();
        (Sender::new(Arc::new(Socket { udp: from, state })), to, address)
    }

    /// A source for `flush` of datagrams with these numbers.
    fn numbered(
        mut numbers: impl Iterator<Item = u64>,
        to: SocketAddr,
    ) -> impl FnMut(&mut Vec<u8>) -> Option<Transmit> {
        move |out| {
            out.clear();
            out.extend(numbers.next()?.to_be_bytes());
            Some(Transmit { to, from: None, segment: None, ecn: 0 })
        }
    }

    fn received(socket: &UdpSocket) -> u64 {
        let mut bytes = [0; 9];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 8);
        u64::from_be_bytes(bytes[..8].try_into().unwrap())
    }

    /// Turns with few datagrams and with many take turns, each twice without a pause: the loop and the thread both send.
    #[test]
    fn datagrams_keep_their_order_between_loop_and_thread() {
        for with_thread in [false, true] {
            let (mut sender, socket, to) = pair();
            if with_thread {
                sender.start_thread(false).unwrap();
            }
            let mut first = 0;
            for round in 0..2000 {
                let end = first + [1, FEW as u64, 3 * BATCH as u64][round % 3];
                for numbers in [first..end, end..end + 2] {
                    assert_eq!(sender.flush(numbered(numbers, to)), 0);
                }
                assert!(!sender.is_blocked());
                for number in first..end + 2 {
                    assert_eq!(received(&socket), number);
                }
                first = end + 2;
            }
        }
    }

    #[test]
    fn what_the_thread_was_given_is_sent_before_it_ends() {
        let (mut sender, socket, to) = pair();
        sender.start_thread(false).unwrap();
        sender.flush(numbered(0..100, to));
        drop(sender);
        (0..100).for_each(|number| assert_eq!(received(&socket), number));
    }

    /// A thread that never runs.
    #[test]
    fn the_loop_keeps_what_a_busy_thread_does_not_take() {
        let (mut sender, _, to) = pair();
        sender.thread = Some(Thread { shared: Arc::default(), handle: None });
        let most = MOST_WAITING as u64 / 8;
        assert_eq!(sender.flush(numbered(0..most, to)), 0);
        assert!(!sender.is_blocked());
        // One batch beyond the limit is taken whole; nothing after it.
        let mut numbers = most..;
        sender.flush(numbered(&mut numbers, to));
        assert!(sender.is_blocked());
        let work = sender.thread.as_ref().unwrap().shared.work();
        assert_eq!(work.waiting.len() as u64, numbers.start - sender.outgoing.len() as u64);
        assert_eq!(work.bytes, work.waiting.len() * 8);
        assert!(work.bytes > MOST_WAITING && work.bytes <= MOST_WAITING + BATCH * 8);
        let order = work.waiting.iter().chain(&sender.outgoing).map(|outgoing| &outgoing.bytes[..]);
        assert!(order.eq((0..numbers.start).map(u64::to_be_bytes)));
    }

    #[test]
    fn the_loop_sends_when_the_thread_has_ended() {
        let (mut sender, socket, to) = pair();
        sender.thread = Some(Thread { shared: Arc::default(), handle: Some(thread::spawn(|| {})) });
        while !sender.thread.as_ref().unwrap().has_ended() {
            thread::yield_now();
        }
        sender.flush(numbered(0..100, to));
        (0..100).for_each(|number| assert_eq!(received(&socket), number));
    }

    /// The kernel segments at most 64 or 128 datagrams (UDP_MAX_SEGMENTS) and refuses more with EINVAL, as a device without checksums
    /// refuses any group with EIO.
    #[test]
    fn datagrams_of_a_group_that_the_kernel_refuses_are_sent_one_by_one() {
        let (mut sender, socket, to) = pair();
        let before = sender.socket.group(44);
        let mut group = Some(0..200_u64);
        let lost = sender.flush(|out| {
            out.clear();
            out.extend(group.take()?.flat_map(u64::to_be_bytes));
            Some(Transmit { to, from: None, segment: Some(8), ecn: 0 })
        });
        assert_eq!(lost, 0);
        (0..200).for_each(|number| assert_eq!(received(&socket), number));
        // Of a kernel without segmentation, too.
        assert!((1..=44).contains(&before));
        assert_eq!(sender.socket.group(44), 1);
    }

    #[test]
    fn datagrams_that_cannot_be_sent_are_counted() {
        let (mut sender, _, _) = pair();
        // An IPv4 socket has no way to an IPv6 address.
        let to = "[::1]:9".parse().unwrap();
        assert_eq!(sender.flush(numbered(0..3, to)), 3);
        sender.start_thread(false).unwrap();
        let mut lost = sender.flush(numbered(0..40, to));
        while lost < 40 {
            thread::yield_now();
            lost += sender.flush(|_| None);
        }
        assert_eq!(lost, 40);
    }
}
