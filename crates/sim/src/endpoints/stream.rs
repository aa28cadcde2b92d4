//! A connection as the applications at its two ends see it.

use bentpipe_quic::Priority;
use bentpipe_units::{Instant, Rate};

use super::tcp::Conn;

/// A reliable stream of bytes in both directions.
pub trait ByteStream {
    fn is_established(&self) -> bool;
    /// True the first time after the connection is established.
    fn greet(&mut self) -> bool;
    /// Reads all bytes that have arrived; returns their number.
    fn read_all(&mut self) -> u64;
    fn write(&mut self, bytes: u64);
    /// Ends the stream in this direction.
    fn close(&mut self);
    /// True if the peer has ended it in its direction.
    fn peer_closed(&self) -> bool;

    /// Rate that the network advises the peer not to exceed.
    fn advice(&self, _now: Instant) -> Option<Rate> {
        None
    }

    /// Requests objects.
    fn request_objects(&mut self, count: u64, request_size: u64) {
        self.write(count * request_size);
    }

    /// Answers the requests of HTTP/3 that have arrived, by the sizes of their objects [bytes], and with the priority of each, by
    /// its place in the page, if there are any.
    fn answer_objects(
        &mut self,
        _request_size: u64,
        _sizes: &[u64],
        _priority: Option<impl Fn(usize) -> Priority>,
    ) {
    }

    /// True once the first `count` objects of an HTTP/3 page are complete.
    fn has_objects(&self, _count: usize) -> bool {
        false
    }
}

impl ByteStream for Conn {
    fn is_established(&self) -> bool {
        self.tcp.is_established()
    }

    fn greet(&mut self) -> bool {
        self.tcp.is_established() && !std::mem::replace(&mut self.is_greeted, true)
    }

    fn read_all(&mut self) -> u64 {
        let bytes = self.tcp.readable();
        self.tcp.read(bytes);
        bytes
    }

    fn write(&mut self, bytes: u64) {
        self.tcp.write(bytes);
    }

    fn close(&mut self) {
        self.tcp.close();
    }

    fn peer_closed(&self) -> bool {
        self.tcp.peer_closed()
    }
}
