//! Observations of the loop: counters, delays and drops for the metrics, and the recorded run.

use std::io;
use std::net::SocketAddr;

use bentpipe_gateway::{GatewayQueue, PepBuffers};
use bentpipe_queue::DropReason;
use bentpipe_spacelink::{PeerId, Stats};
use bentpipe_units::{Duration, Instant};

use crate::observe::cause::Cause;
use crate::observe::counters::Counters;
use crate::observe::log;
use crate::observe::metrics::{Histogram, Traffic};
use crate::observe::record::{Carried, Drop, QueuesState, Recorder};

/// Of the receive queue and the transmit queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerQueue<T> {
    receive: T,
    transmit: T,
}

impl<T> PerQueue<T> {
    /// The value of a queue.
    pub fn of(&self, place: GatewayQueue) -> &T {
        match place {
            GatewayQueue::Receive => &self.receive,
            GatewayQueue::Transmit => &self.transmit,
        }
    }

    fn of_mut(&mut self, place: GatewayQueue) -> &mut T {
        match place {
            GatewayQueue::Receive => &mut self.receive,
            GatewayQueue::Transmit => &mut self.transmit,
        }
    }
}

/// Packets that a queue dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drops {
    /// By the AQM.
    pub aqm: u64,
    /// For lack of room.
    pub overflow: u64,
}

/// Collects observations of the loop.
#[derive(Default)]
pub struct Observer {
    /// Totals since the start.
    pub counters: Counters,
    /// Delays of packets that left a queue.
    pub delays: PerQueue<Histogram>,
    /// Dropped packets.
    pub drops: PerQueue<Drops>,
    /// UDP over the satellite.
    pub udp: Traffic,
    /// Other packets that are not split.
    pub other: Traffic,
    /// Bytes of relayed connections that the peer delivered.
    pub delivered: u64,
    /// Time during which the window of all streams held data back.
    pub window_limited: Duration,
    recorder: Option<Recorder>,
    last_turn: Instant,
}

impl Observer {
    /// Nothing observed yet. A `recorder` writes a file.
    pub fn new(recorder: Option<Recorder>, now: Instant) -> Self {
        Self { recorder, last_turn: now, ..Self::default() }
    }

    /// A turn begins. `window_limited` is true if data has waited for the spacelink's window since the last turn, `late_ns`
    /// the delay of the gateway's wake-up.
    pub fn turn(&mut self, now: Instant, window_limited: bool, late_ns: Option<u64>) {
        self.counters.turns += 1;
        if window_limited {
            self.window_limited += now - self.last_turn;
        }
        self.last_turn = now;
        self.counters.latest_ns = self.counters.latest_ns.max(late_ns.unwrap_or(0));
    }

    /// A packet has left the receive queue after `delay`.
    pub fn packet_received(&mut self, delay: Duration) {
        self.delays.of_mut(GatewayQueue::Receive).observe(delay);
    }

    /// A packet of `bytes` has left the transmit queue for a peer after `delay`.
    pub fn packet_sent(&mut self, peer: PeerId, bytes: u32, delay: Duration, now: Instant) {
        if let Some(recorder) = &mut self.recorder {
            recorder.left(peer, bytes, delay, now);
        }
        self.delays.of_mut(GatewayQueue::Transmit).observe(delay);
    }

    /// A queue has dropped a packet.
    pub fn packet_dropped(&mut self, drop: &Drop<'_>, now: Instant) {
        let drops = self.drops.of_mut(drop.place);
        *(if drop.reason == DropReason::Overflow { &mut drops.overflow } else { &mut drops.aqm }) += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(drop, now);
        }
    }

    /// A terminal is added, perhaps with the number of a removed one.
    pub fn terminal_added(&mut self, peer: PeerId) {
        if let Some(recorder) = &mut self.recorder {
            recorder.terminal_added(peer);
        }
    }

    /// A terminal is removed; its number may become another's.
    pub fn terminal_removed(&mut self, peer: PeerId, name: &str) {
        if let Some(recorder) = &mut self.recorder {
            recorder.terminal_removed(peer, name);
        }
    }

    /// Bytes enter the transmit queue `time` after they came to the gateway.
    pub fn transit(&mut self, time: Duration) {
        if let Some(recorder) = &mut self.recorder {
            recorder.passed(time);
        }
    }

    /// The peer has delivered bytes of relayed connections.
    pub fn delivered(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    /// A packet that is not split was sent to the peer, or received from it.
    pub fn datagram(&mut self, packet: &[u8], sent: bool) {
        let is_udp = bentpipe_packet::parse(packet).is_some_and(|info| info.protocol == bentpipe_packet::UDP);
        let class = if is_udp { &mut self.udp } else { &mut self.other };
        let bytes = packet.len() as u64;
        if sent { class.sent += bytes } else { class.received += bytes }
    }

    /// Counts and logs the reset of a connection.
    pub fn connection_reset(&mut self, cause: Cause, client: SocketAddr, server: SocketAddr, why: &str) {
        self.counters.resets[cause as usize] += 1;
        let write = if cause.is_usual() { log::debug } else { log::info };
        let fields = [
            ("cause", cause.name().into()),
            ("client", client.to_string().into()),
            ("server", server.to_string().into()),
            ("why", why.into()),
        ];
        write("reset", &fields[..fields.len() - usize::from(why.is_empty())]);
    }

    /// Counts and logs an error that does not end the process.
    pub fn fault(&mut self, problem: &str) {
        self.counters.faults += 1;
        log::warn("fault", &[("problem", problem.into())]);
    }

    /// Time of the recorder's next sample.
    #[must_use]
    pub fn next_sample(&self) -> Option<Instant> {
        self.recorder.as_ref().and_then(Recorder::next)
    }

    /// Records a sample if one is due.
    pub fn sample<'a>(
        &mut self,
        now: Instant,
        queues: impl FnOnce() -> QueuesState<'a>,
        buffers: &PepBuffers,
        spacelink: impl FnOnce() -> Stats,
    ) {
        let datagram_bytes = self.udp.sent + self.other.sent;
        if let Some(recorder) = &mut self.recorder {
            recorder.sample(now, queues, buffers, || Carried { spacelink: spacelink(), datagram_bytes });
        }
    }

    /// Ends the recorded run, with the `names` of terminals and `more` in its last line.
    pub fn finish(
        &mut self,
        now: Instant,
        queues: &QueuesState<'_>,
        names: impl Fn(PeerId) -> String,
        more: serde_json::Value,
    ) -> io::Result<()> {
        self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(now, queues, names, more))
    }
}
