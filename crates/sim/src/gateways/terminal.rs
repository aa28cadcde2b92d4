//! A terminal, and a PEP link between it and its gateway.

use bentpipe_gateway::PepBuffers;
use bentpipe_transport::pep_link;
use bentpipe_units::{Alarm, Instant, Rate};

use super::pep_delay::PepDelay;
use crate::clock::{Clock, Event};
use crate::ids::{ConnId, GatewayId, Id, IdVec, LinkDirectionId, SlotId, StreamId, TerminalId};
use crate::network::Path;
use crate::side::{BySide, Side};

/// A terminal and a PEP link for the data of one direction: both ends, and the PEP's buffers at the near one.
///
/// The PEP link of downloads has its near end at the gateway, that of uploads at the terminal.
pub struct Terminal {
    /// Its number in results: that of the PEP link of its downloads.
    pub number: TerminalId,
    /// True if the PEP link carries uploads.
    pub is_return: bool,
    /// The queues that packets of the near end pass; those of a stream may have others.
    pub gateway: GatewayId,
    /// The queues that packets of the far end pass, likewise; `None` if they enter the satellite link directly.
    pub far_gateway: Option<GatewayId>,
    pub buffers: PepBuffers,
    /// Receive buffer of each near connection, ahead of the PEP's buffers [bytes]; `None` if servers see the room in these.
    pub receive_buffer: Option<u64>,
    pub config: pep_link::Config,
    pub ends: BySide<pep_link::Endpoint>,
    /// The path from each end to the other.
    pub paths: BySide<Path>,
    /// Its committed rate, and the link that determines how long a packet to it takes the carrier; `None` without.
    pub committed: Option<(Rate, LinkDirectionId)>,
    /// The same once it has moved to its gateway, if it is at another one before.
    pub committed_later: Option<(Rate, LinkDirectionId)>,
    pub streams: IdVec<StreamId, SplitStream>,
    /// Time for which the timer of each end is scheduled.
    timers: BySide<Alarm>,
}

/// A stream of the PEP link: it joins two TCP connections of a split flow.
#[derive(Debug)]
pub struct SplitStream {
    pub slot: SlotId,
    /// The TCP connection at each end.
    pub conns: BySide<ConnId>,
    /// The queues that its packets pass from each end; `None` if they enter the satellite link directly.
    pub queues: BySide<Option<GatewayId>>,
    /// Bytes of it in the PEP's buffers.
    pub held: u64,
    /// True at each end while the stream is open there.
    pub is_open: BySide<bool>,
    /// Time that its bytes spend in the PEP.
    pub pep_delay: PepDelay,
}

impl SplitStream {
    pub fn new(slot: SlotId, conns: BySide<ConnId>) -> Self {
        let is_open = BySide::new(false, false);
        let queues = BySide::new(None, None);
        Self { slot, conns, queues, held: 0, is_open, pep_delay: PepDelay::default() }
    }
}

impl Terminal {
    /// The PEP link of downloads.
    pub fn new(
        number: TerminalId,
        gateway: GatewayId,
        (buffers, receive_buffer): (PepBuffers, Option<u64>),
        config: pep_link::Config,
        paths: BySide<Path>,
    ) -> Self {
        let end = || pep_link::Endpoint::new(config.clone());
        Self {
            number,
            is_return: false,
            gateway,
            far_gateway: None,
            buffers,
            receive_buffer,
            ends: BySide::new(end(), end()),
            config,
            paths,
            committed: None,
            committed_later: None,
            streams: IdVec::default(),
            timers: BySide::new(Alarm::default(), Alarm::default()),
        }
    }

    /// The PEP link of uploads over the same terminal; `gateway` are the terminal's queues.
    pub fn of_uploads(&self, gateway: GatewayId, buffers: (PepBuffers, Option<u64>)) -> Self {
        let paths = BySide::new(self.paths[Side::Far], self.paths[Side::Near]);
        let far_gateway = Some(self.gateway);
        let uploads = Self::new(self.number, gateway, buffers, self.config.clone(), paths);
        Self { is_return: true, far_gateway, ..uploads }
    }

    /// The queues that packets of an end pass which belong to no stream; `None` if they enter the satellite link directly.
    pub fn queues(&self, side: Side) -> Option<GatewayId> {
        if side.is_far() { self.far_gateway } else { Some(self.gateway) }
    }

    // ----- timers --------------------------------------------------------------------------------------------

    /// Schedules the timer of one end of the PEP link.
    pub fn arm_end(&mut self, id: TerminalId, side: Side, clock: &mut Clock) {
        if let Some(at) = self.ends[side].poll_timeout()
            && self.timers[side].set(at)
        {
            clock.at(at, Event::PepTimer(id, side));
        }
    }

    /// Handles the timer of one end of the PEP link; false if it is out of date.
    pub fn on_timer(&mut self, side: Side, now: Instant) -> bool {
        if !self.timers[side].end(now) {
            return false;
        }
        if self.ends[side].poll_timeout().is_some_and(|at| at <= now) {
            self.ends[side].handle_timeout(now);
        }
        true
    }

    // ----- buffers -------------------------------------------------------------------------------------------

    /// Buffer whose free part a stream's near connection may advertise [bytes].
    pub fn window(&self, stream: StreamId) -> u32 {
        let bytes = self.receive_buffer.unwrap_or_else(|| self.buffers.room(stream.index()));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Bytes that the PEP may read of a stream's near connection. What was advertised as room in its buffers has to be read.
    #[inline]
    pub fn most_readable(&self, stream: StreamId) -> u64 {
        if self.receive_buffer.is_some() { self.buffers.share(stream.index()) } else { u64::MAX }
    }

    /// True if a stream's buffer has less room than the connection's largest window.
    pub fn is_tight(&self, stream: StreamId, receive_window: u32) -> bool {
        self.buffers.room(stream.index()) < u64::from(receive_window)
    }

    /// Takes bytes of a stream into the buffers.
    pub fn hold(&mut self, stream: StreamId, bytes: u64) {
        self.buffers.take(stream.index(), bytes);
        self.streams[stream].held += bytes;
    }

    /// Frees room of a stream in the buffers. A stream that was reset has released all its bytes already.
    pub fn release(&mut self, stream: StreamId, bytes: u64) {
        let held = &mut self.streams[stream].held;
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.buffers.release(stream.index(), bytes);
    }

    // ----- checks --------------------------------------------------------------------------------------------

    /// Checks the buffers.
    ///
    /// # Errors
    /// Buffers whose counters contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let (held, occupied) = (self.streams.iter().map(|s| s.held).sum::<u64>(), self.buffers.occupied());
        if held != occupied {
            return Err(format!("PEP buffers hold {occupied} bytes, their connections {held}"));
        }
        Ok(())
    }
}
