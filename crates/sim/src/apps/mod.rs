//! Applications: what the hosts at both ends of a flow do.
//!
//! Sessions and sources decide when flows begin; [`hosts`](self) answers what the transports deliver. They schedule their
//! own events; the engine opens and closes their flows.

mod hosts;
mod source;
mod traffic;

use bentpipe_scenario::{Absence, ConnectionPer};
use bentpipe_units::{Instant, Rng};

use crate::clock::{Clock, Event};
use crate::endpoints::{FlowSlot, Owner};
use crate::ids::{IdVec, SessionId, SourceId, TrafficId};

pub use source::{Due, Source};
pub use traffic::{Group, Kind, Traffic, Transport};

/// A user of pages: always waiting for one, or thinking.
pub struct Session {
    pub traffic: TrafficId,
    /// Number within the traffic.
    pub number: u32,
    pages: u32,
    /// Connections of the current page that are not done yet.
    pending: u32,
    rng: Rng,
}

impl Session {
    pub fn new(traffic: TrafficId, number: u32, rng: Rng) -> Self {
        Self { traffic, number, pages: 0, pending: 0, rng }
    }
}

/// A page that a session opens.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub traffic: TrafficId,
    /// The server and the user, each numbered within its group.
    pub hosts: (u32, u32),
    pub connections: u32,
    /// Objects on each connection.
    pub objects: u32,
}

/// All applications of a run.
#[derive(Default)]
pub struct Apps {
    pub traffic: IdVec<TrafficId, Traffic>,
    pub sessions: IdVec<SessionId, Session>,
    pub sources: IdVec<SourceId, Source>,
}

/// `at`, or the end of the absence that it falls in.
pub fn present(away: &[Absence], at: Instant) -> Instant {
    let since = at.since(Instant::ZERO);
    let absence = away.iter().find(|absence| (absence.from..absence.until).contains(&since));
    absence.map_or(at, |absence| Instant::ZERO + absence.until)
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

    /// Begins the next page of a session.
    pub fn next_page(&mut self, id: SessionId) -> Option<Page> {
        let s = &mut self.sessions[id];
        let page = s.pages;
        s.pages += 1;
        let t = &self.traffic[s.traffic];
        let Kind::Pages { objects_per_page, connection_per, .. } = t.kind else { return None };
        let (connections, objects) = match connection_per {
            ConnectionPer::Page => (1, objects_per_page),
            ConnectionPer::Object => (objects_per_page, 1),
        };
        s.pending = connections;
        let hosts = (s.number.wrapping_add(page) % t.from.count, s.number % t.to.count);
        Some(Page { traffic: s.traffic, hosts, connections, objects })
    }

    /// Draws the size of a flow's next object.
    pub fn draw_object(&mut self, slot: &mut FlowSlot) {
        if let Kind::Pages { object_size, .. } = &self.traffic[slot.traffic].kind
            && let Owner::Session(session) = slot.owner
        {
            slot.transfer.size = object_size.draw(&mut self.sessions[session].rng);
        }
    }

    /// A connection of a session's page is done, or has failed. After the last the session thinks, then opens its next
    /// page.
    pub fn page_connection_done(&mut self, id: SessionId, clock: &mut Clock) {
        let s = &mut self.sessions[id];
        s.pending -= 1;
        if s.pending > 0 {
            return;
        }
        let t = &self.traffic[s.traffic];
        if let Kind::Pages { think_time, .. } = &t.kind {
            let think = think_time.draw(&mut s.rng);
            clock.at(present(&t.away, clock.now() + think), Event::Session(id));
        }
    }
}
