//! Datagrams, timeouts and events.

use std::sync::atomic::Ordering::Relaxed;

use bentpipe_transport::tcp::Ecn;
use bentpipe_units::{Duration, Instant, Rate};
use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionError, DatagramEvent, Dir, EcnCodepoint, Event, StreamEvent, VarInt};

use super::addresses::{SERVER, address_number, client_address};
use super::logging::{eliciting, processed};
use super::streams::{read, write};
use super::{Connection, Datagram, GIVEN_UP};
use crate::frames::{Ack, Frame, frames};
use crate::log::Facts;
use crate::null_crypto::HandshakeFacts;
use crate::stream::Stream;

impl Connection {
    /// Handles a datagram on the path of the latest.
    pub fn receive(&mut self, now: Instant, ecn: Ecn, payload: Vec<u8>) {
        self.receive_from(now, ecn, payload, self.address);
    }

    /// Handles a datagram from or to the client's `address`, by its number. A datagram to an address that the client has left must
    /// not reach it.
    pub fn receive_from(&mut self, now: Instant, ecn: Ecn, mut payload: Vec<u8>, address: u32) {
        if self.counts_marks {
            for frame in frames(&payload) {
                if let Frame::Ack(Ack { ecn: Some([.., marks]), .. }) = frame {
                    self.shared.marks.fetch_max(marks, Relaxed);
                }
            }
        }
        let logged = self.log.is_some().then(|| (payload.clone(), self.before_log(), self.facts().is_closed));
        let signal = self.scone.as_mut().and_then(|scone| scone.receive(&mut payload));
        let advised = signal.map(|signal| (signal, self.before_log().0));
        let (at, remote) = (self.std(now), if self.is_client { SERVER } else { client_address(address) });
        let path_before = self.remote();
        let codepoint = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 | Ecn::Ect1 => Some(EcnCodepoint::Ect0),
            Ecn::Ce => Some(EcnCodepoint::Ce),
        };
        let mut buf = Vec::new();
        let payload = BytesMut::from(Bytes::from(payload));
        match self.endpoint.handle(at, remote, None, codepoint, payload, &mut buf) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, quic)) = &mut self.quic {
                    quic.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.quic.is_some() {
                    self.endpoint.ignore(incoming);
                } else {
                    self.quic = self.endpoint.accept(incoming, at, &mut buf, None).ok();
                }
            }
            Some(DatagramEvent::Response(_)) => self.response = Some(buf),
            None => {}
        }
        self.handle_events();
        let has_migrated = path_before.is_some() && self.remote() != path_before;
        if let (Some((signal, before)), Some(scone)) = (advised, &mut self.scone) {
            // Advice counts only if the packet behind it does (section 5.3): then its frames were processed.
            let after = self.quic.as_ref().map_or(before, |(_, quic)| processed(quic));
            if after != before {
                scone.record(now, signal);
            }
        }
        if let Some((payload, (before, window), was_closed)) = logged {
            let (after, facts) = (self.before_log().0, Facts { was_closed, ..self.facts() });
            let processed = std::array::from_fn(|place| after[place] - before[place]);
            if let Some(log) = &mut self.log {
                log.on_received(now, &payload, ecn, processed, facts);
                if has_migrated {
                    log.on_peer_migrated(now, payload.len() as u64, facts);
                }
            }
            // The initial window of another path is no reduction of this one's.
            self.check_log(now, if has_migrated { 0 } else { window });
        }
        if has_migrated {
            self.address = address;
            self.migrations += 1;
            self.begin_path(now);
            self.shared.in_flight.store(0, Relaxed);
        }
    }

    /// Gives the next datagram to send. A client whose streams are all complete closes the connection.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Datagram> {
        if self.is_client
            && !self.keeps_open
            && !self.streams.is_empty()
            && self.streams.iter().all(Stream::is_over)
        {
            self.close(now, VarInt::from_u32(0));
        }
        if let Some(payload) = self.response.take() {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_sent(now, &payload, Ecn::NotEct, facts, true);
            }
            return Some(Datagram {
                payload,
                ecn: Ecn::NotEct,
                has_data: false,
                is_repeated: false,
                fresh: 0,
                address: self.address,
            });
        }
        self.is_held = now < self.paced_until;
        if self.is_held {
            return None;
        }
        let at = self.std(now);
        let (_, quic) = self.quic.as_mut()?;
        let mut payload = Vec::new();
        let data_frames = |quic: &quinn_proto::Connection| {
            let frames = quic.stats().frame_tx;
            frames.stream + frames.datagram
        };
        let before = if self.is_readable { 0 } else { data_frames(quic) };
        let eliciting_before = eliciting(quic);
        let sent = quic.poll_transmit(at, 1, &mut payload);
        let Some(sent) = sent else {
            self.pass_endpoint_events();
            return None;
        };
        if eliciting(quic) == eliciting_before {
            self.shared.on_not_in_flight(payload.len() as u64);
        }
        // A server asks the address before for an answer (RFC 9000, section 9.3.3), besides all else.
        let is_on_path = self.is_client || sent.destination == quic.remote_address();
        let address = if is_on_path { self.address } else { address_number(sent.destination) };
        let (mut has_data, mut has_datagram, mut fresh) = (false, false, 0);
        if !self.is_readable {
            has_data = data_frames(quic) > before;
        }
        for frame in self.is_readable.then(|| frames(&payload)).into_iter().flatten() {
            match frame {
                Frame::Stream { id, offset, len, .. } => {
                    has_data = true;
                    if let Some(stream) = self.streams.iter_mut().find(|stream| u64::from(stream.id) == id) {
                        fresh += stream.send(offset, len);
                    }
                }
                Frame::Datagram(_) => (has_data, has_datagram) = (true, true),
                _ => {}
            }
        }
        let is_repeated = self.is_readable && has_data && !has_datagram && fresh == 0;
        if has_data && let Some(rate) = self.pacing_rate() {
            self.paced_until = now.max(self.paced_until) + rate.time_to_send(payload.len() as u64);
        }
        let ecn = match sent.ecn {
            Some(EcnCodepoint::Ect0) if self.has_ecn && self.is_l4s => Ecn::Ect1,
            Some(EcnCodepoint::Ect0) if self.has_ecn => Ecn::Ect0,
            _ => Ecn::NotEct,
        };
        if let Some(scone) = &mut self.scone {
            scone.send(now, &mut payload, has_data);
        }
        if self.log.is_some() {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_sent(now, &payload, ecn, facts, is_on_path);
            }
        }
        Some(Datagram { payload, ecn, has_data, is_repeated, fresh, address })
    }

    pub(super) fn pacing_rate(&self) -> Option<Rate> {
        let (_, quic) = self.quic.as_ref()?;
        let pacing = quic.congestion_state().metrics().pacing_rate.map(Rate::from_bps);
        pacing.into_iter().chain(self.rate_cap).min()
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let epoch = self.epoch;
        let timer = self.quic.as_mut().and_then(|(_, quic)| quic.poll_timeout()).map(|at| {
            Instant::ZERO + Duration::from_nanos(at.saturating_duration_since(epoch).as_nanos() as u64)
        });
        let held = self.is_held.then_some(self.paced_until);
        timer.into_iter().chain(held).min()
    }

    /// Handles a timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        let at = self.std(now);
        let logged = self.log.is_some().then(|| (self.facts().is_closed, self.before_log().1));
        let path_before = self.remote();
        if let Some((_, quic)) = &mut self.quic {
            quic.handle_timeout(at);
        }
        self.handle_events();
        if let Some(remote) = self.remote().filter(|remote| Some(*remote) != path_before) {
            // The client did not answer from its new address (RFC 9000, section 9.3.2).
            self.address = address_number(remote);
            if let Some(log) = &mut self.log {
                log.on_returned();
            }
        }
        if let Some((was_closed, window)) = logged {
            let facts = self.facts();
            if let Some(log) = &mut self.log {
                log.on_timeout(now, facts.is_closed && !was_closed, facts);
            }
            self.check_log(now, window);
        }
    }

    fn pass_endpoint_events(&mut self) {
        let Some((handle, quic)) = &mut self.quic else { return };
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                quic.handle_event(event);
            }
        }
    }

    pub(super) fn handle_events(&mut self) {
        self.pass_endpoint_events();
        while let Some((_, quic)) = &mut self.quic
            && let Some(event) = quic.poll()
        {
            let kept = self.fill.map(|_| &mut self.chunks);
            match event {
                Event::Connected => {
                    self.is_established = true;
                    if let Some(scone) = &mut self.scone {
                        let facts = quic.crypto_session().handshake_data();
                        let facts = facts.and_then(|facts| facts.downcast::<HandshakeFacts>().ok());
                        scone.peer_supports = facts.is_some_and(|facts| facts.peer_has_scone);
                    }
                }
                Event::ConnectionLost { reason } => {
                    self.failure = Some(reason).filter(|why| !is_in_order(why))
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    let mut kept = kept;
                    while let Some(id) = quic.streams().accept(Dir::Bi) {
                        self.streams.push(Stream::new(id));
                        read(quic, &mut self.streams, id, kept.as_deref_mut());
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => read(quic, &mut self.streams, id, kept),
                Event::Stream(StreamEvent::Writable { id }) => {
                    if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                        write(quic, stream, self.fill);
                    }
                }
                Event::DatagramReceived => {
                    while let Some(data) = quic.datagrams().recv() {
                        let label = data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                        self.arrived.push((label, data.len() as u64));
                    }
                }
                Event::Stream(StreamEvent::Finished { id }) => {
                    if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                        stream.is_acked = true;
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn close(&mut self, now: Instant, code: VarInt) {
        let at = self.std(now);
        if let Some((_, quic)) = &mut self.quic
            && !quic.is_closed()
        {
            quic.close(at, code, Bytes::new());
        }
    }
}

/// True for the end of a connection that both sides wanted.
fn is_in_order(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::ApplicationClosed(close) => close.error_code != GIVEN_UP,
        ConnectionError::LocallyClosed => true,
        _ => false,
    }
}
