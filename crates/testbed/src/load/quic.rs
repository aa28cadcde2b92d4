//! Clients of QUIC servers.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bentpipe_quic::Chunk;
use bentpipe_scenario::{Http, TrafficKind};
use bentpipe_units::Instant;

use super::{Clients, describe};
use crate::content;
use crate::flows::{End, Flow};
use crate::plan::WorkloadId;
use crate::quic::request::request;
use crate::quic::transport;
use crate::table::Token;
use crate::users::{Open, UserId};

/// Connection of a user, as its application sees it.
pub(super) struct Viewer {
    user: UserId,
    workload: WorkloadId,
    pub(super) flow: Flow,
    /// Objects not complete yet, as [`Open::objects`].
    objects: u32,
    /// Size of the first object [bytes]; `None`: endless, or chosen once connected.
    bytes: Option<u64>,
    /// Sizes of the requested objects [bytes], and the stream of each.
    requested: Vec<(usize, Option<u64>)>,
    /// Objects that wait for a stream [bytes].
    waiting: VecDeque<u64>,
    /// Bytes of the objects that have arrived, by stream.
    received: Vec<u64>,
    has_requested: bool,
    pub(super) is_done: bool,
}

/// Application of a connection; `None` for the server's ends, which this side does not have.
pub(super) type App = Option<Box<Viewer>>;

impl Clients<'_> {
    /// True if a user's connections are over QUIC.
    pub(super) fn is_quic(&self, user: UserId) -> bool {
        let (id, _) = self.endpoint.users.workload(user);
        transport(self.endpoint.plan, self.endpoint.plan.workload(id)).is_some()
    }

    /// Records the flows that are still open at the end of the run.
    pub(super) fn close_quic(&mut self) -> io::Result<()> {
        let open: Vec<_> = self.quic.drain().filter_map(|end| end.app).filter(|v| !v.is_done).collect();
        for viewer in open {
            self.record(viewer.user, viewer.workload, viewer.flow, End::Open)?;
        }
        Ok(())
    }

    /// Opens a connection over QUIC.
    pub(super) fn open_quic(&mut self, open: Open) -> io::Result<()> {
        let ep = &mut self.endpoint;
        let (id, number) = ep.users.workload(open.user);
        let workload = ep.plan.workload(id);
        let traffic = ep.plan.traffic(workload);
        let server = ep.plan.address(traffic.from, open.hosts.0, workload.ipv6);
        let client = ep.plan.address(traffic.to, open.hosts.1, workload.ipv6);
        let (Some(server), Some(client)) = (server, client) else { return Ok(()) };
        let remote = SocketAddr::new(server, workload.port);
        let mut flow = ep.flows.open(traffic, number, open.bytes.is_some(), ep.now);
        if let Some(dash) = ep.users.dash(open.user) {
            ep.flows.open_viewing(&mut flow, dash);
        }
        let viewer = Viewer {
            user: open.user,
            workload: id,
            flow: flow.clone(),
            objects: open.objects,
            bytes: open.bytes,
            requested: Vec::new(),
            waiting: VecDeque::new(),
            received: Vec::new(),
            has_requested: false,
            is_done: false,
        };
        let ends = (SocketAddr::new(client, 0), remote);
        let app = Some(Box::new(viewer));
        match self.quic.connect(&ep.reactor, ends, (id, traffic.dscp), app, ep.now) {
            Ok((token, local)) => {
                if let Some(viewer) = self.quic.get(token).and_then(|end| end.app.as_mut()) {
                    viewer.flow.ends = Some((local, remote));
                }
                self.of_user[open.user.index()] = Some(token);
                self.quic.flush(token, ep.now);
                Ok(())
            }
            Err(e) => {
                self.record(open.user, id, flow, End::Failed(&describe(&e)))?;
                self.connection_done(open.user, true, None)
            }
        }
    }

    /// Handles the connections that have received something, or whose timers are due.
    pub(super) fn on_quic(&mut self, active: &mut Vec<Token>) -> io::Result<()> {
        for token in active.drain(..) {
            self.advance_quic(token)?;
            self.quic.flush(token, self.endpoint.now);
        }
        Ok(())
    }

    /// A user closes its connection.
    pub(super) fn leave_quic(&mut self, user: UserId) -> io::Result<()> {
        let Some(token) = self.of_user[user.index()].take() else { return Ok(()) };
        let now = self.endpoint.now;
        if let Some(end) = self.quic.get(token) {
            end.quic.abort(now);
        }
        self.end_quic(token, End::Left)?;
        self.quic.flush(token, now);
        Ok(())
    }

    /// The player of a user requests the next segment, chosen at `at`.
    pub(super) fn segment_quic(&mut self, user: UserId, at: Instant) -> io::Result<()> {
        let Some(token) = self.of_user[user.index()] else { return Ok(()) };
        self.request_segment_quic(token, at);
        self.quic.flush(token, self.endpoint.now);
        Ok(())
    }

    fn request_segment_quic(&mut self, token: Token, at: Instant) {
        let Some(viewer) = self.quic.get(token).and_then(|end| end.app.as_mut()).filter(|v| !v.is_done)
        else {
            return;
        };
        if let Some(bytes) = self.endpoint.users.request_segment(viewer.user, at) {
            viewer.waiting.push_back(bytes);
            self.request_quic(token);
        }
    }

    /// Records the flow of a connection, unless that is recorded already.
    fn end_quic(&mut self, token: Token, end: End<'_>) -> io::Result<()> {
        let Some(viewer) = self.quic.get(token).and_then(|end| end.app.as_mut()) else { return Ok(()) };
        if std::mem::replace(&mut viewer.is_done, true) {
            return Ok(());
        }
        let (user, workload, flow) = (viewer.user, viewer.workload, viewer.flow.clone());
        self.of_user[user.index()].take_if(|own| *own == token);
        self.record(user, workload, flow, end)?;
        if end == End::Left { Ok(()) } else { self.connection_done(user, end != End::Completed, None) }
    }

    fn advance_quic(&mut self, token: Token) -> io::Result<()> {
        let (ep, Some(end)) = (&mut self.endpoint, self.quic.get(token)) else { return Ok(()) };
        let Some(viewer) = &mut end.app else { return Ok(()) };
        if let Some(problem) = end.quic.failure() {
            return self.end_quic(token, End::Failed(&problem));
        }
        if !end.quic.is_established() {
            return Ok(());
        }
        viewer.flow.connected.get_or_insert(ep.now);
        let workload = ep.plan.workload(viewer.workload);
        for Chunk { at, bytes, .. } in end.quic.take_chunks() {
            if workload.verify {
                let is_intact = content::is_intact(at, &bytes);
                viewer.flow.intact = Some(viewer.flow.intact.unwrap_or(true) && is_intact);
            }
        }
        for stream in 0..end.quic.streams() {
            let bytes = end.quic.readable(stream);
            if bytes == 0 {
                continue;
            }
            end.quic.read(stream, bytes);
            viewer.received.resize(viewer.received.len().max(stream + 1), 0);
            viewer.received[stream] += bytes;
            if !viewer.is_done {
                ep.flows.deliver(&mut viewer.flow, bytes, ep.now);
                ep.users.deliver(viewer.user, ep.now);
            }
        }
        if !std::mem::replace(&mut viewer.has_requested, true) {
            let (user, now) = (viewer.user, ep.now);
            if ep.users.dash(user).is_some() {
                self.request_segment_quic(token, now);
                return Ok(());
            }
            match viewer.bytes {
                Some(bytes) => viewer.waiting.push_back(bytes),
                None => {
                    viewer.requested.push((0, None));
                    if let Some(stream) = end.quic.open() {
                        end.quic.write_bytes(stream, &request(None, 0));
                        end.quic.finish(stream);
                    }
                }
            }
        }
        self.request_quic(token);
        self.complete_quic(token)
    }

    /// Requests the objects that wait, as far as the peer allows more streams.
    fn request_quic(&mut self, token: Token) {
        let (ep, Some(end)) = (&self.endpoint, self.quic.get(token)) else { return };
        let Some(viewer) = &mut end.app else { return };
        let kind = &ep.plan.traffic(ep.plan.workload(viewer.workload)).kind;
        let (size, has_streams) = match kind {
            TrafficKind::Pages(pages) => (pages.request_size, pages.http == Some(Http::Three)),
            TrafficKind::Dash(dash) => (dash.request_size, false),
            _ => (0, false),
        };
        let is_last = viewer.objects <= 1 && !matches!(kind, TrafficKind::Dash(_));
        while let Some(bytes) = viewer.waiting.front().copied() {
            let stream = if has_streams || end.quic.streams() == 0 { end.quic.open() } else { Some(0) };
            let Some(stream) = stream else { return };
            viewer.waiting.pop_front();
            end.quic.write_bytes(stream, &request(Some(bytes), size));
            if has_streams || is_last {
                end.quic.finish(stream);
            }
            viewer.requested.push((stream, Some(bytes)));
        }
    }

    /// Handles the objects that have arrived.
    fn complete_quic(&mut self, token: Token) -> io::Result<()> {
        loop {
            let (ep, Some(end)) = (&mut self.endpoint, self.quic.get(token)) else { return Ok(()) };
            let Some(viewer) = end.app.as_mut().filter(|viewer| !viewer.is_done) else { return Ok(()) };
            let Viewer { received, requested, .. } = &mut **viewer;
            let Some(done) = requested.iter().position(|(stream, bytes)| {
                bytes.is_some_and(|bytes| received.get(*stream).copied().unwrap_or(0) >= bytes)
            }) else {
                return Ok(());
            };
            let (stream, bytes) = viewer.requested.remove(done);
            let bytes = bytes.unwrap_or(0);
            if let Some(received) = viewer.received.get_mut(stream) {
                *received -= bytes;
            }
            if ep.users.dash(viewer.user).is_some() {
                let (flow, flows) = (&mut viewer.flow, &ep.flows);
                let next =
                    ep.users.receive_segment(viewer.user, bytes, ep.now, |period| flows.view(flow, period));
                if let Some(next) = next {
                    viewer.waiting.push_back(next);
                    self.request_quic(token);
                }
                continue;
            }
            if !viewer.requested.is_empty() || !viewer.waiting.is_empty() {
                continue;
            }
            viewer.objects = viewer.objects.saturating_sub(1);
            viewer.waiting = ep.users.next_objects(viewer.user, viewer.objects, ep.now);
            if viewer.waiting.is_empty() {
                return self.end_quic(token, End::Completed);
            }
            self.request_quic(token);
        }
    }
}
