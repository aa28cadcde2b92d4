//! Applications: what the hosts at both ends of a flow do.
//!
//! Sessions and sources decide when flows begin; [`hosts`](self) answers what the transports deliver. They schedule their
//! own events; the engine opens and closes their flows.

mod dash;
mod hosts;
mod source;
mod traffic;

use bentpipe_traffic::{BROWSER_CONNECTIONS, TLS_FLIGHT};
use bentpipe_units::{Duration, Instant, Rng};

use crate::clock::{Clock, Event};
use crate::endpoints::{FlowSlot, Owner, Transfer};
use crate::ids::{IdVec, MovingId, SessionId, SlotId, SourceId, TrafficId};
use crate::record::{self, ProbeSteps, Recorder};

pub use source::{Due, Source};
pub use traffic::{Group, Kind, Loading, Moving, Traffic, Transport};

/// A user of pages: always waiting for one, or thinking.
pub struct Session {
    pub traffic: TrafficId,
    /// Number within the traffic.
    pub number: u32,
    pages: u32,
    /// The current page.
    page: PageLoad,
    /// Connections that wait for the next page from their servers, and since when.
    kept: Vec<(SlotId, Instant)>,
    /// True once it has no next page.
    is_gone: bool,
    rng: Rng,
}

/// A page that is being loaded.
#[derive(Clone, Copy, Debug, Default)]
struct PageLoad {
    opened: Instant,
    /// Arrival of the first byte of an object.
    first_byte: Option<Instant>,
    /// Arrival of the last byte of the objects that block rendering.
    rendered: Option<Instant>,
    /// Connections that are not done yet.
    pending: u32,
    /// Objects that no connection has requested yet, over HTTP/1.1.
    waiting: u32,
    /// Connections to open for them.
    to_open: u32,
    has_first_object: bool,
    has_failed: bool,
    /// Times of the steps of a probe, and the start of the current one.
    steps: ProbeSteps,
    step_at: Instant,
}

impl Session {
    pub fn new(traffic: TrafficId, number: u32, rng: Rng) -> Self {
        Self { traffic, number, pages: 0, page: PageLoad::default(), kept: Vec::new(), is_gone: false, rng }
    }
}

impl PageLoad {
    /// Records the end of a step of a probe: the handshake, or the exchange of an object.
    fn end_step(&mut self, transfer: &Transfer, now: Instant) {
        let begin = std::mem::replace(&mut self.step_at, now);
        match transfer.answered {
            0 => self.steps.connect = now - self.opened,
            1 => self.steps.tls = now - begin,
            _ => {
                self.steps.http = now - begin;
                self.steps.request = transfer.answered_at - begin;
            }
        }
    }
}

/// A page that a session opens.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub traffic: TrafficId,
    /// The server and the user, each numbered within its group.
    pub hosts: (u32, u32),
    pub connections: u32,
    /// Objects on each connection; `None`: until the client closes it.
    pub objects: Option<u32>,
}

/// All applications of a run.
#[derive(Default)]
pub struct Apps {
    pub traffic: IdVec<TrafficId, Traffic>,
    pub sessions: IdVec<SessionId, Session>,
    pub sources: IdVec<SourceId, Source>,
    pub moving: IdVec<MovingId, Moving>,
    /// True if a traffic has another codepoint than the default.
    pub has_codepoints: bool,
}

impl Apps {
    /// Number of a session or source within its traffic.
    pub fn number(&self, owner: Owner) -> u32 {
        match owner {
            Owner::Session(id) => self.sessions[id].number,
            Owner::Source(id) => self.sources[id].number,
        }
    }

    /// Random stream of a session or source.
    pub fn rng(&mut self, owner: Owner) -> &mut Rng {
        match owner {
            Owner::Session(id) => &mut self.sessions[id].rng,
            Owner::Source(id) => &mut self.sources[id].rng,
        }
    }

    /// Begins the next page of a session, or continues the current one on more connections.
    pub fn next_page(&mut self, id: SessionId, now: Instant) -> Option<Page> {
        let s = &mut self.sessions[id];
        let t = &self.traffic[s.traffic];
        let Kind::Pages { objects_per_page, loading, .. } = t.kind else { return None };
        let (connections, objects) = if s.page.to_open > 0 {
            let connections = std::mem::take(&mut s.page.to_open);
            s.page.pending += connections;
            (connections, 1)
        } else {
            s.pages += 1;
            let (connections, objects) = match loading {
                Loading::InSequence | Loading::Probe => (1, objects_per_page),
                Loading::AtOnce => (objects_per_page, 1),
                Loading::Http1 => (1, 1),
                Loading::Http2 | Loading::Http3 => (1, objects_per_page.min(2)),
            };
            let waiting = if loading == Loading::Http1 { objects_per_page - 1 } else { 0 };
            s.page = PageLoad { opened: now, pending: connections, waiting, ..PageLoad::default() };
            (connections, objects)
        };
        let page = s.pages - 1;
        let hosts = (s.number.wrapping_add(page) % t.from.count, s.number % t.to.count);
        // Over HTTP/1.1 a server cannot know which object is a connection's last: the client closes.
        let objects = (loading != Loading::Http1).then_some(objects);
        Some(Page { traffic: s.traffic, hosts, connections, objects })
    }

    /// Time at which a session gives up the page that it opens now; `None` if it waits.
    pub fn gives_up_at(&self, id: SessionId, now: Instant) -> Option<Instant> {
        let s = &self.sessions[id];
        let Kind::Pages { patience: Some(patience), .. } = self.traffic[s.traffic].kind else { return None };
        (s.page.opened == now).then_some(now + patience)
    }

    /// Gives up a session's page if its time is over: no more connections are opened for it. Returns true if connections
    /// of it are left, which then have to be aborted.
    pub fn give_up_page(&mut self, id: SessionId, now: Instant) -> bool {
        let s = &mut self.sessions[id];
        let Kind::Pages { patience: Some(patience), .. } = self.traffic[s.traffic].kind else { return false };
        if s.page.pending == 0 || s.page.opened + patience != now {
            return false;
        }
        (s.page.waiting, s.page.to_open) = (0, 0);
        true
    }

    /// Keeps a connection for the session's next page, for some time.
    fn keep(&mut self, id: SessionId, slot: SlotId, time: Duration, clock: &mut Clock) {
        self.sessions[id].kept.push((slot, clock.now()));
        clock.at(clock.now() + time, Event::SessionTimeout(id));
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, id: SessionId, slot: SlotId) {
        self.sessions[id].kept.retain(|(kept, _)| *kept != slot);
    }

    /// Lets a session that has no next page open one now.
    pub fn call_back(&mut self, id: SessionId, clock: &mut Clock) {
        if std::mem::take(&mut self.sessions[id].is_gone) {
            clock.at(clock.now(), Event::Session(id));
        }
    }

    /// Takes the connections that a session has kept for long enough, and since when.
    pub fn take_expired(&mut self, id: SessionId, now: Instant) -> Vec<(SlotId, Instant)> {
        let Session { traffic, kept, .. } = &mut self.sessions[id];
        let Kind::Pages { keep_alive: Some(time), .. } = self.traffic[*traffic].kind else {
            return Vec::new();
        };
        kept.extract_if(.., |(_, since)| now - *since >= time).collect()
    }

    /// Takes a kept connection with these hosts.
    pub fn take_kept(&mut self, id: SessionId, has_hosts: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        let kept = &mut self.sessions[id].kept;
        let at = kept.iter().position(|(slot, _)| has_hosts(*slot))?;
        Some(kept.swap_remove(at).0)
    }

    /// True if connections of pages stay open for the next page.
    pub fn keeps_alive(&self, traffic: TrafficId) -> bool {
        matches!(self.traffic[traffic].kind, Kind::Pages { keep_alive: Some(_), .. })
    }

    /// Gives a connection the next object of an HTTP/1.1 page, if one is waiting. After the first object of the page, the
    /// session opens more connections for the others.
    fn next_object(&mut self, id: SessionId, clock: &mut Clock) -> bool {
        let page = &mut self.sessions[id].page;
        if page.waiting == 0 {
            return false;
        }
        page.waiting -= 1;
        if !std::mem::replace(&mut page.has_first_object, true) {
            page.to_open = page.waiting.min(BROWSER_CONNECTIONS - 1);
            page.waiting -= page.to_open;
            if page.to_open > 0 {
                clock.at(clock.now(), Event::Session(id));
            }
        }
        true
    }

    /// Draws the size of a flow's next object; over HTTP/2 and HTTP/3 of all objects but the first together.
    pub fn draw_object(&mut self, slot: &mut FlowSlot, is_first: bool) {
        if let Kind::Pages { object_size, objects_per_page, loading, .. } = &self.traffic[slot.traffic].kind
            && let Owner::Session(session) = slot.owner
        {
            if *loading == Loading::Probe && is_first {
                slot.transfer.size = TLS_FLIGHT;
                return;
            }
            let rng = &mut self.sessions[session].rng;
            let all_at_once = matches!(loading, Loading::Http2 | Loading::Http3);
            let count = if all_at_once && !is_first { objects_per_page - 1 } else { 1 };
            slot.transfer.size = 0;
            for _ in 0..count {
                let size = object_size.draw(rng);
                slot.transfer.size += size;
                if *loading == Loading::Http3 {
                    slot.object_sizes.push(size);
                }
            }
        }
    }

    /// A connection of a session's page is done, or has failed. After the last the session thinks, then opens its next
    /// page.
    pub fn page_connection_done(
        &mut self,
        id: SessionId,
        completed: bool,
        recorder: &mut Recorder,
        clock: &mut Clock,
    ) {
        let s = &mut self.sessions[id];
        s.page.pending -= 1;
        s.page.has_failed |= !completed;
        if s.page.pending > 0 || s.page.to_open > 0 {
            return;
        }
        let PageLoad { opened, first_byte, rendered, has_failed, steps, .. } = s.page;
        let t = &self.traffic[s.traffic];
        if let Kind::Pages { loading: Loading::Probe, .. } = t.kind {
            recorder.finish_probe(s.traffic, (!has_failed).then_some(steps), clock.now());
        } else {
            let terminal = t.layout.terminals((0, s.number % t.to.count))[1];
            let times = record::PageLoad { opened, first_byte, rendered, closed: clock.now() };
            recorder.finish_page((s.traffic, terminal), &times, !has_failed);
        }
        if let Kind::Pages { think_time, .. } = &t.kind {
            let think = think_time.draw(&mut s.rng);
            let next = t.presence.present(s.number, clock.now() + think);
            s.is_gone = next.is_none();
            clock.at_any(next, Event::Session(id));
        }
    }
}
