//! The spacelink's sender while its socket has no room: the kernel keeps datagrams to a neighbour that has not answered yet,
//! and they fill the socket's buffer.

use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use bentpipe_gatewayd::relay::sender::{Sender, Socket};
use bentpipe_spacelink::Transmit;
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::UdpSocketState;

use crate::common::{Namespace, retry};
use crate::ends::{LONG, wait_until};

const TO: &str = "10.9.0.77:4400";

/// A source for `flush` of datagrams with these numbers.
fn numbered(mut numbers: Range<u64>) -> impl FnMut(&mut Vec<u8>) -> Option<Transmit> {
    let to: SocketAddr = TO.parse().expect("an address");
    move |out| {
        out.clear();
        out.extend(numbers.next()?.to_be_bytes());
        Some(Transmit { to, from: None, segment: None, ecn: 0 })
    }
}

/// A sender with the smallest buffer, whose neighbour does not answer, and the neighbour with its socket.
fn pair() -> Option<(Sender, Namespace, Namespace, UdpSocket)> {
    let [here, there] = [Namespace::new()?, Namespace::new()?];
    here.join("x", &there, "y", 9);
    // It would be given up after three seconds.
    here.sysctl("net/ipv4/neigh/x/mcast_solicit", "100000");
    let receiver = there.run(|| UdpSocket::bind("0.0.0.0:4400").expect("a socket"));
    receiver.set_read_timeout(Some(LONG)).expect("a time-out");
    let udp = here.run(|| UdpSocket::bind("10.9.0.1:0").expect("a socket"));
    setsockopt(&udp, sockopt::SndBuf, &1).expect("a smaller buffer");
    let state = UdpSocketState::new((&udp).into()).expect("offloads");
    Some((Sender::new(Arc::new(Socket { udp, state })), here, there, receiver))
}

fn received(socket: &UdpSocket) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(retry(|| socket.recv(&mut bytes)).expect("a datagram"), 8);
    u64::from_be_bytes(bytes)
}

/// Datagrams wait, are sent in their order once the neighbour answers, and none is lost: those that the loop sends itself, and
/// those that it gave the thread.
#[test]
fn datagrams_wait_for_room_in_the_socket() {
    for with_thread in [false, true] {
        let Some((mut sender, _here, there, receiver)) = pair() else { return };
        if with_thread {
            sender.start_thread(false).expect("a thread");
        }
        let mut source = numbered(0..100);
        let mut lost = sender.flush(&mut source);
        assert_eq!(sender.is_blocked(), !with_thread, "only the thread takes what the socket does not");
        there.ip("addr add 10.9.0.77/24 dev y");
        wait_until("the socket takes all", || {
            lost += sender.flush(&mut source);
            !sender.is_blocked()
        });
        assert!((0..100).eq((0..100).map(|_| received(&receiver))));
        assert_eq!(lost + sender.flush(&mut source), 0);
    }
}

/// The neighbour never answers: what the thread was given is lost.
#[test]
fn a_thread_that_waits_for_room_ends_with_its_sender() {
    let Some((mut sender, _here, _there, receiver)) = pair() else { return };
    sender.start_thread(false).expect("a thread");
    sender.flush(numbered(0..100));
    let dropped = thread::spawn(|| drop(sender));
    wait_until("the thread ends", || dropped.is_finished());
    receiver.set_nonblocking(true).expect("a socket");
    assert!(receiver.recv(&mut [0; 8]).is_err(), "the socket had room");
}
