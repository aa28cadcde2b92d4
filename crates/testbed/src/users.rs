//! Users without sockets: which user requests what, and when. Distributions and random streams are the simulator's, so the
//! n-th session requests the same objects, with the same think times, as in a simulation with the same seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bentpipe_scenario::{
    Absence, ConnectionPer, Dash, Delay, HostIndex, Http, Pages, Per, Ramp, Scenario, TrafficKind,
};
use bentpipe_traffic::dash::{Period, Player};
use bentpipe_traffic::{BROWSER_CONNECTIONS, Generator, Presence, TLS_FLIGHT};
use bentpipe_units::{Duration, Instant, Rng};

use crate::plan::{Plan, Workload, WorkloadId};

/// Minimum time between a failed page or viewing and the next.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A session, or a source of transfers or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserId(u32);

impl UserId {
    /// Index among all users.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Action of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Open a connection.
    Open(Open),
    /// Close everything that the user has open.
    Leave(UserId),
    /// Request the next segment of a viewing on the user's connection.
    Segment {
        /// The user.
        user: UserId,
        /// Time for which the request was scheduled: its rate depends on the buffer's level at that time.
        at: Instant,
    },
    /// Send a packet, as a datagram or on the user's connection.
    Packet {
        /// The user.
        user: UserId,
        /// Length as a datagram with IP and UDP headers [bytes].
        len: u32,
    },
}

/// A connection to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The user.
    pub user: UserId,
    /// Hosts of the traffic's `from` and `to`, as indexes into their groups.
    pub hosts: (u32, u32),
    /// Size of the first object [bytes]; `None`: endless, or chosen by [`Users::request_segment`] once connected.
    pub bytes: Option<u64>,
    /// Number of objects, one after the other; over HTTP/2 all objects but the first count as one. Over HTTP/1.1
    /// [`Users::next_objects`] decides, and the client closes the connection.
    pub objects: u32,
}

/// A page that is being loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLoad {
    /// Time at which its first connection was opened.
    pub opened: Instant,
    /// Arrival of the first byte of an object.
    pub first_byte: Option<Instant>,
    /// True if one of its connections failed.
    pub has_failed: bool,
    /// Connections that are not done.
    pending: u32,
    /// Objects that no connection has requested yet, over HTTP/1.1.
    waiting: u32,
    /// Connections to open for them.
    to_open: u32,
    has_first_object: bool,
}

/// State of a user.
struct User {
    /// Index in [`Users::kinds`].
    kind: usize,
    number: u32,
    rng: Rng,
    /// Time of the next action. Agenda entries with another time are obsolete.
    due: Option<Instant>,
    /// Time at which the user leaves.
    leaves: Option<Instant>,
    /// Pages or transfers started.
    started: u32,
    page: PageLoad,
    generator: Option<Generator>,
    /// Player of the current viewing, and of one that the viewer has left.
    player: Option<Box<Player>>,
    left: Option<Box<Player>>,
    is_present: bool,
    /// Length of the packet that is due [bytes]; 0 if none is.
    len: u32,
}

/// Traffic of a workload, as its users need it.
struct Kind {
    workload: WorkloadId,
    name: String,
    kind: TrafficKind,
    presence: Presence,
    /// Numbers of hosts in the groups `from` and `to`.
    counts: (u32, u32),
    /// Delays that the simulator draws per connection from its user's stream, there and back.
    delays: Vec<(Delay, Option<Delay>)>,
}

/// All users of some workloads.
pub struct Users {
    kinds: Vec<Kind>,
    users: Vec<User>,
    /// Times, order of entry, users.
    agenda: BinaryHeap<Reverse<(Instant, u64, UserId)>>,
    entries: u64,
}

/// Start of the session or transfer with this number in a ramp.
fn ramp_start(ramp: Option<&Ramp>, number: u32) -> Duration {
    let Some(ramp) = ramp else { return Duration::ZERO };
    let (step, index) = (number / ramp.sessions.max(1), number % ramp.sessions.max(1));
    let within = ramp.over.times(u64::from(index)).part(u64::from(ramp.sessions.max(1)));
    (ramp.over + ramp.pause).times(u64::from(step)) + within
}

/// Number of users of some traffic.
#[must_use]
pub fn count(kind: &TrafficKind) -> u32 {
    match kind {
        TrafficKind::Pages(t) => t.sessions,
        TrafficKind::Files(t) => t.sources,
        TrafficKind::Bulk(t) => t.flows,
        TrafficKind::Dash(t) => t.flows,
        TrafficKind::Packets(t) => t.flows,
    }
}

fn away(kind: &TrafficKind) -> &[Absence] {
    match kind {
        TrafficKind::Pages(t) => &t.away,
        TrafficKind::Files(t) => &t.away,
        TrafficKind::Bulk(t) => &t.away,
        TrafficKind::Dash(t) => &t.away,
        TrafficKind::Packets(t) => &t.away,
    }
}

/// Delays on the route of a workload that are drawn per connection.
fn connection_delays(scenario: &Scenario, workload: &Workload) -> Vec<(Delay, Option<Delay>)> {
    let mut delays = Vec::new();
    for hop in &scenario.traffic[workload.traffic].route {
        let link = &scenario.links[hop.link];
        let (there, back) =
            if hop.forward { (&link.forward, &link.reverse) } else { (&link.reverse, &link.forward) };
        if [there, back].iter().any(|direction| direction.delay.per == Per::Connection) {
            delays.push((there.delay.clone(), (!link.shared_delay).then(|| back.delay.clone())));
        }
    }
    delays
}

impl Users {
    /// The users of the workloads that `wanted` selects.
    #[must_use]
    pub fn new(plan: &Plan, wanted: impl Fn(&Workload) -> bool) -> Self {
        let mut all = Self { kinds: Vec::new(), users: Vec::new(), agenda: BinaryHeap::new(), entries: 0 };
        for (id, workload) in plan.workloads().filter(|(_, workload)| wanted(workload)) {
            let traffic = plan.traffic(workload);
            let count_of = |group: HostIndex| plan.scenario.hosts[group].count;
            all.kinds.push(Kind {
                workload: id,
                name: traffic.name.clone(),
                kind: traffic.kind.clone(),
                presence: Presence::new(
                    away(&traffic.kind).to_vec(),
                    traffic.profile.as_ref(),
                    count(&traffic.kind),
                ),
                counts: (count_of(traffic.from), count_of(traffic.to)),
                delays: connection_delays(&plan.scenario, workload),
            });
            for number in 0..count(&traffic.kind) {
                all.add(number, plan.seed);
            }
        }
        all
    }

    /// Adds a user of the latest workload.
    fn add(&mut self, number: u32, seed: u64) {
        let Some(kind) = self.kinds.last() else { return };
        let mut rng = Rng::stream(seed, &format!("traffic.{}", kind.name), u64::from(number), "flow");
        let zero = Instant::ZERO;
        let present = |at| kind.presence.present(number, at);
        let due = match &kind.kind {
            TrafficKind::Pages(t) => present(zero + ramp_start(t.ramp.as_ref(), number)),
            TrafficKind::Bulk(t) => {
                let step = ramp_start(t.ramp.as_ref(), number);
                present(zero + step + t.start.draw(&mut rng))
            }
            TrafficKind::Packets(t) => present(zero + t.start.draw(&mut rng)),
            TrafficKind::Dash(t) => {
                let step = ramp_start(t.ramp.as_ref(), number);
                present(zero + step + t.start.draw(&mut rng))
            }
            TrafficKind::Files(t) => {
                let start = zero + t.start.draw(&mut rng);
                Some(kind.presence.next_arrival(start, || t.interval.draw(&mut rng)))
            }
        };
        let user = UserId(self.users.len() as u32);
        self.users.push(User {
            kind: self.kinds.len() - 1,
            number,
            rng,
            due: None,
            leaves: None,
            started: 0,
            page: PageLoad::default(),
            generator: None,
            player: None,
            left: None,
            is_present: false,
            len: 0,
        });
        self.schedule(user, due);
    }

    /// Sets the time of a user's next action.
    fn schedule(&mut self, user: UserId, due: Option<Instant>) {
        self.users[user.index()].due = due;
        self.enter(user, due);
    }

    fn enter(&mut self, user: UserId, at: Option<Instant>) {
        if let Some(at) = at {
            self.entries += 1;
            self.agenda.push(Reverse((at, self.entries, user)));
        }
    }

    /// All users.
    pub fn ids(&self) -> impl Iterator<Item = UserId> + use<> {
        (0..self.users.len() as u32).map(UserId)
    }

    /// Number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True without users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The user's workload, and the user's number in it.
    #[must_use]
    pub fn workload(&self, user: UserId) -> (WorkloadId, u32) {
        let user = &self.users[user.index()];
        (self.kinds[user.kind].workload, user.number)
    }

    /// The user with this number in a workload.
    #[must_use]
    pub fn find(&self, workload: WorkloadId, number: u32) -> Option<UserId> {
        self.ids().find(|user| self.workload(*user) == (workload, number))
    }

    /// Time of the next action.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Appends all actions up to `now` to `tasks`. Later actions count from the scheduled times, not from `now`.
    pub fn advance(&mut self, now: Instant, tasks: &mut VecDeque<Task>) {
        while let Some(&Reverse((at, _, user))) = self.agenda.peek()
            && at <= now
        {
            self.agenda.pop();
            self.act(user, at, tasks);
        }
    }

    fn act(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        let u = &mut self.users[user.index()];
        if u.leaves == Some(now) {
            return self.leave(user, now, tasks);
        }
        if u.due != Some(now) {
            return;
        }
        match &self.kinds[u.kind].kind {
            TrafficKind::Pages(_) => self.open_page(user, now, tasks),
            TrafficKind::Files(_) => self.start_transfer(user, now, tasks),
            TrafficKind::Bulk(_) => {
                u.due = None;
                self.arrive(user, now, tasks);
            }
            TrafficKind::Dash(_) => {
                u.due = None;
                if u.player.is_some() {
                    tasks.push_back(Task::Segment { user, at: now });
                } else {
                    self.begin_viewing(user, now, tasks);
                }
            }
            TrafficKind::Packets(t) => {
                if !u.is_present {
                    u.generator = Some(Generator::new(&t.pattern, &mut u.rng));
                    self.arrive(user, now, tasks);
                    self.draw_packet(user, now);
                    let due = self.users[user.index()].due;
                    if due != Some(now) {
                        return self.enter(user, due);
                    }
                }
                let u = &self.users[user.index()];
                if u.len > 0 {
                    tasks.push_back(Task::Packet { user, len: u.len });
                }
                self.draw_packet(user, now);
                self.enter(user, self.users[user.index()].due);
            }
        }
    }

    /// Draws a connection's delays as the simulator does, to keep the random streams aligned.
    fn skip_connection_delays(&mut self, user: UserId) {
        let u = &mut self.users[user.index()];
        for (there, back) in &self.kinds[u.kind].delays {
            let _ = there.draw(&mut u.rng);
            if let Some(back) = back {
                let _ = back.draw(&mut u.rng);
            }
        }
    }

    /// Opens the next page of a user, or more connections for the current one.
    fn open_page(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        let u = &mut self.users[user.index()];
        let kind = &self.kinds[u.kind];
        let TrafficKind::Pages(Pages { objects_per_page, connection_per, http, .. }) = &kind.kind else {
            return;
        };
        let (connections, objects) = if u.page.to_open > 0 {
            let connections = std::mem::take(&mut u.page.to_open);
            u.page.pending += connections;
            (connections, 1)
        } else {
            let (connections, objects) = match (http, connection_per) {
                (Some(Http::One), _) => (1, 1),
                (Some(Http::Two | Http::Three | Http::Probe), _) => (1, (*objects_per_page).min(2)),
                (None, ConnectionPer::Page) => (1, *objects_per_page),
                (None, ConnectionPer::Object) => (*objects_per_page, 1),
            };
            let waiting = if *http == Some(Http::One) { objects_per_page.saturating_sub(1) } else { 0 };
            u.page = PageLoad { opened: now, pending: connections, waiting, ..PageLoad::default() };
            u.started += 1;
            (connections, objects)
        };
        let page = u.started - 1;
        let hosts = (u.number.wrapping_add(page) % kind.counts.0, u.number % kind.counts.1);
        for _ in 0..connections {
            self.skip_connection_delays(user);
            let bytes = if self.is_probe(user) { Some(TLS_FLIGHT) } else { self.next_object(user) };
            tasks.push_back(Task::Open(Open { user, hosts, bytes, objects }));
        }
    }

    /// Draws the sizes of the objects that a connection requests next [bytes], with this many of its objects left. Empty: the
    /// connection is done. After the first object of a page over HTTP/1.1, more connections are due at `now`.
    pub fn next_objects(&mut self, user: UserId, left: u32, now: Instant) -> VecDeque<u64> {
        let u = &mut self.users[user.index()];
        let TrafficKind::Pages(pages) = &self.kinds[u.kind].kind else { return VecDeque::new() };
        let count = match pages.http {
            Some(Http::One) => {
                let page = &mut u.page;
                let count = page.waiting.min(1);
                page.waiting -= count;
                if count > 0 && !std::mem::replace(&mut page.has_first_object, true) {
                    page.to_open = page.waiting.min(BROWSER_CONNECTIONS - 1);
                    page.waiting -= page.to_open;
                    if page.to_open > 0 {
                        self.schedule(user, Some(now));
                    }
                }
                count
            }
            Some(Http::Two | Http::Three | Http::Probe) if left > 0 => pages.objects_per_page - 1,
            _ => left.min(1),
        };
        (0..count).filter_map(|_| self.next_object(user)).collect()
    }

    /// Reports that data of a user's page arrived.
    pub fn deliver(&mut self, user: UserId, now: Instant) {
        self.users[user.index()].page.first_byte.get_or_insert(now);
    }

    /// True if the client closes a user's connections: over HTTP/1.1 a server does not know which object is the last.
    #[must_use]
    pub fn is_closed_by_client(&self, user: UserId) -> bool {
        let kind = &self.kinds[self.users[user.index()].kind].kind;
        matches!(kind, TrafficKind::Pages(Pages { http: Some(Http::One), .. }))
    }

    /// True if a user's pages are probes of responsiveness: the server's part of a TLS handshake, then an object.
    #[must_use]
    pub fn is_probe(&self, user: UserId) -> bool {
        let kind = &self.kinds[self.users[user.index()].kind].kind;
        matches!(kind, TrafficKind::Pages(Pages { http: Some(Http::Probe), .. }))
    }

    /// Draws the size of a user's next object [bytes].
    fn next_object(&mut self, user: UserId) -> Option<u64> {
        let u = &mut self.users[user.index()];
        match &self.kinds[u.kind].kind {
            TrafficKind::Pages(t) => Some(t.object_size.draw(&mut u.rng)),
            _ => None,
        }
    }

    fn start_transfer(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        let u = &mut self.users[user.index()];
        let kind = &self.kinds[u.kind];
        let TrafficKind::Files(t) = &kind.kind else { return };
        let bytes = Some(t.size.draw(&mut u.rng));
        let hosts = (u.number.wrapping_add(u.started) % kind.counts.0, u.number % kind.counts.1);
        u.started += 1;
        self.skip_connection_delays(user);
        tasks.push_back(Task::Open(Open { user, hosts, bytes, objects: 1 }));
        let u = &mut self.users[user.index()];
        let Kind { kind, presence, .. } = &self.kinds[u.kind];
        if let TrafficKind::Files(t) = kind {
            let is_last = t.transfers.is_some_and(|transfers| u.started >= transfers);
            let due = (!is_last).then(|| presence.next_arrival(now, || t.interval.draw(&mut u.rng)));
            self.schedule(user, due);
        }
    }

    /// Opens the flow of a source that is now present, and schedules its departure.
    fn arrive(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        let u = &mut self.users[user.index()];
        let kind = &self.kinds[u.kind];
        let absence = kind.presence.leaves(u.number, now);
        let (end, bytes) = match &kind.kind {
            TrafficKind::Bulk(t) => {
                (t.lifetime.as_ref().map(|lifetime| now + lifetime.draw(&mut u.rng)), t.bytes)
            }
            TrafficKind::Dash(t) => (t.watch.as_ref().map(|watch| now + watch.draw(&mut u.rng)), None),
            _ => (None, None),
        };
        let leaves = absence.into_iter().chain(end).min();
        u.leaves = leaves;
        u.is_present = true;
        let hosts = (u.number % kind.counts.0, u.number % kind.counts.1);
        self.enter(user, leaves);
        self.skip_connection_delays(user);
        tasks.push_back(Task::Open(Open { user, hosts, bytes, objects: 1 }));
    }

    /// Begins a viewing. As in the simulator, the sizes of its segments come from a separate random stream.
    fn begin_viewing(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        self.arrive(user, now, tasks);
        let u = &mut self.users[user.index()];
        let sizes = Rng::stream(u.rng.bits(), "segment", 0, "size");
        u.player = Some(Box::new(Player::new(now, sizes)));
    }

    /// The adaptive video of a user's traffic.
    #[must_use]
    pub fn dash(&self, user: UserId) -> Option<&Dash> {
        match &self.kinds[self.users[user.index()].kind].kind {
            TrafficKind::Dash(dash) => Some(dash),
            _ => None,
        }
    }

    /// The player of a user requests the next segment at `now`; returns its size [bytes]. `None` without a player.
    pub fn request_segment(&mut self, user: UserId, now: Instant) -> Option<u64> {
        let u = &mut self.users[user.index()];
        let TrafficKind::Dash(dash) = &self.kinds[u.kind].kind else { return None };
        u.player.as_mut().map(|player| player.request(dash, None, now))
    }

    /// Reports that the requested segment has arrived; `seen` gets the periods that the viewer has seen. Returns the size of the
    /// next segment [bytes] if it is requested at once; otherwise [`Task::Segment`] follows.
    pub fn receive_segment(
        &mut self,
        user: UserId,
        bytes: u64,
        now: Instant,
        seen: impl FnMut(Period),
    ) -> Option<u64> {
        let u = &mut self.users[user.index()];
        let (TrafficKind::Dash(dash), Some(player)) = (&self.kinds[u.kind].kind, &mut u.player) else {
            return None;
        };
        let next = player.receive(dash, bytes, now, seen);
        if next <= now {
            return Some(player.request(dash, None, now));
        }
        self.schedule(user, Some(next));
        None
    }

    /// Ends a user's viewing, also one that the user has just left; `seen` gets the periods that the viewer has seen.
    pub fn end_viewing(&mut self, user: UserId, now: Instant, seen: impl FnMut(Period)) {
        let u = &mut self.users[user.index()];
        if let TrafficKind::Dash(dash) = &self.kinds[u.kind].kind
            && let Some(mut player) = u.left.take().or_else(|| u.player.take())
        {
            player.advance(dash, now, seen);
        }
    }

    /// Closes the flow of a source. The source returns after its absence: at once if its lifetime has ended, a viewer after a
    /// think time.
    fn leave(&mut self, user: UserId, now: Instant, tasks: &mut VecDeque<Task>) {
        let u = &mut self.users[user.index()];
        let Kind { kind, presence, .. } = &self.kinds[u.kind];
        let pause = match kind {
            TrafficKind::Dash(t) => t.think_time.draw(&mut u.rng),
            _ => Duration::ZERO,
        };
        let due = presence.present(u.number, now + pause);
        u.leaves = None;
        u.generator = None;
        u.left = u.player.take();
        u.is_present = false;
        self.schedule(user, due);
        tasks.push_back(Task::Leave(user));
    }

    fn draw_packet(&mut self, user: UserId, now: Instant) {
        let u = &mut self.users[user.index()];
        let step = u.generator.as_mut().and_then(|generator| generator.next(&mut u.rng));
        u.due = step.map(|step| now + step.gap);
        u.len = step.map_or(0, |step| step.len);
    }

    /// Reports that a connection of a user is done or has failed; returns the page that it ends.
    pub fn done(&mut self, user: UserId, has_failed: bool, now: Instant) -> Option<PageLoad> {
        let u = &mut self.users[user.index()];
        match &self.kinds[u.kind].kind {
            TrafficKind::Pages(t) => {
                u.page.pending = u.page.pending.saturating_sub(1);
                u.page.has_failed |= has_failed;
                if u.page.pending > 0 || u.page.to_open > 0 {
                    return None;
                }
                let page = u.page;
                let think = t.think_time.draw(&mut u.rng);
                let think = if page.has_failed { think.max(RETRY_DELAY) } else { think };
                let due = self.kinds[u.kind].presence.present(u.number, now + think);
                self.schedule(user, due);
                Some(page)
            }
            // The source is silent until its next arrival.
            TrafficKind::Packets(_) => {
                u.generator = None;
                u.due = None;
                None
            }
            TrafficKind::Dash(t) => {
                let think = t.think_time.draw(&mut u.rng).max(RETRY_DELAY);
                let due = self.kinds[u.kind].presence.present(u.number, now + think);
                (u.player, u.leaves, u.is_present) = (None, None, false);
                self.schedule(user, due);
                None
            }
            TrafficKind::Bulk(_) | TrafficKind::Files(_) => None,
        }
    }
}
