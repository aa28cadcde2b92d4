//! Who asks for what when, without any socket: the scenario's traffic, by the simulator's laws and random streams, so that
//! the n-th session asks for the same objects, and thinks as long, as in a simulation with the same seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bentpipe_scenario::{
    Absence, ConnectionPer, Delay, Distribution, Pages, Per, Ramp, Scenario, TrafficKind,
};
use bentpipe_traffic::Generator;
use bentpipe_units::{Duration, Instant, Rng};

use crate::plan::{Load, Plan};

/// A user whose page has failed waits so long at least before the next.
const PATIENCE: Duration = Duration::from_secs(1);

/// Something to be done for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Open a connection.
    Open(Open),
    /// Give up whatever the user has open.
    Leave {
        /// The user.
        user: u32,
    },
    /// Send a packet, as a datagram or into the user's connection.
    Packet {
        /// The user.
        user: u32,
        /// Its length, as a datagram on the wire [bytes].
        len: u32,
    },
}

/// A connection to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The user that it is for.
    pub user: u32,
    /// The hosts of the traffic's `from` and `to`, counted within their groups.
    pub hosts: (u32, u32),
    /// What comes over it first, or at all [bytes]; none: without end.
    pub bytes: Option<u64>,
    /// Objects that come over it, one after the other.
    pub objects: u32,
}

/// A session, or a source of transfers or packets.
struct User {
    load: u32,
    number: u32,
    rng: Rng,
    /// When it does something next; an event at another time is of no account.
    due: Instant,
    /// When it leaves.
    leaves: Instant,
    /// Pages or transfers that it has begun.
    begun: u32,
    /// Connections of its page that are not done.
    pending: u32,
    has_failed: bool,
    generator: Option<Generator>,
    is_there: bool,
    /// Length of the packet that is due [bytes].
    len: u32,
}

/// Traffic as users need it.
struct Kind {
    load: Load,
    name: String,
    kind: TrafficKind,
    counts: (u32, u32),
    /// Delays that the simulator draws for a connection from its user's stream, there and back.
    delays: Vec<(Delay, Option<Delay>)>,
}

/// All users of some of a plan's traffic.
pub struct Users {
    kinds: Vec<Kind>,
    users: Vec<User>,
    agenda: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    number: u64,
}

/// The time itself, or when who is away then comes back.
fn present(away: &[Absence], at: Instant) -> Instant {
    let since = at.since(Instant::ZERO);
    let absence = away.iter().find(|absence| (absence.from..absence.until).contains(&since));
    absence.map_or(at, |absence| Instant::ZERO + absence.until)
}

/// When the step of a session, or transfer, of that number has it start.
fn ramp_start(ramp: Option<&Ramp>, number: u32) -> Duration {
    let Some(ramp) = ramp else { return Duration::ZERO };
    let (step, place) = (number / ramp.sessions.max(1), number % ramp.sessions.max(1));
    let within = ramp.over.times(u64::from(place)).part(u64::from(ramp.sessions.max(1)));
    (ramp.over + ramp.pause).times(u64::from(step)) + within
}

/// How many users some traffic has.
#[must_use]
pub fn count(kind: &TrafficKind) -> u32 {
    match kind {
        TrafficKind::Pages(t) => t.sessions,
        TrafficKind::Files(t) => t.sources,
        TrafficKind::Bulk(t) => t.flows,
        TrafficKind::Packets(t) => t.flows,
    }
}

fn away(kind: &TrafficKind) -> &[Absence] {
    match kind {
        TrafficKind::Pages(t) => &t.away,
        TrafficKind::Files(t) => &t.away,
        TrafficKind::Bulk(t) => &t.away,
        TrafficKind::Packets(t) => &t.away,
    }
}

/// The delays that are a connection's own on the way of some traffic.
fn own_delays(scenario: &Scenario, load: &Load) -> Vec<(Delay, Option<Delay>)> {
    let mut delays = Vec::new();
    for hop in &scenario.traffic[load.traffic].route {
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
    /// The users of the traffic that `wanted` picks, before anything has happened.
    #[must_use]
    pub fn new(plan: &Plan, wanted: impl Fn(&Load) -> bool) -> Self {
        let mut all = Self { kinds: Vec::new(), users: Vec::new(), agenda: BinaryHeap::new(), number: 0 };
        for load in plan.traffic.iter().filter(|load| wanted(load)) {
            let traffic = plan.traffic(load);
            let count_of = |group: usize| plan.scenario.hosts[group].count;
            all.kinds.push(Kind {
                load: load.clone(),
                name: traffic.name.clone(),
                kind: traffic.kind.clone(),
                counts: (count_of(traffic.from), count_of(traffic.to)),
                delays: own_delays(&plan.scenario, load),
            });
            for number in 0..count(&traffic.kind) {
                all.add(number, plan.seed);
            }
        }
        all
    }

    /// Adds a user of the latest traffic.
    fn add(&mut self, number: u32, seed: u64) {
        let Some(kind) = self.kinds.last() else { return };
        let mut rng = Rng::stream(seed, &format!("traffic.{}", kind.name), u64::from(number), "flow");
        let zero = Instant::ZERO;
        let due = match &kind.kind {
            TrafficKind::Pages(t) => present(&t.away, zero + ramp_start(t.ramp.as_ref(), number)),
            TrafficKind::Bulk(t) => {
                let step = ramp_start(t.ramp.as_ref(), number);
                present(&t.away, zero + step + t.start.draw(&mut rng))
            }
            TrafficKind::Packets(t) => present(&t.away, zero + t.start.draw(&mut rng)),
            TrafficKind::Files(t) => {
                let start = zero + t.start.draw(&mut rng);
                next_transfer(&t.away, &t.interval, start, &mut rng)
            }
        };
        let user = self.users.len() as u32;
        self.users.push(User {
            load: self.kinds.len() as u32 - 1,
            number,
            rng,
            due,
            leaves: Instant::FAR_FUTURE,
            begun: 0,
            pending: 0,
            has_failed: false,
            generator: None,
            is_there: false,
            len: 0,
        });
        self.enter(due, user);
    }

    fn enter(&mut self, at: Instant, user: u32) {
        if at < Instant::FAR_FUTURE {
            self.number += 1;
            self.agenda.push(Reverse((at, self.number, user)));
        }
    }

    /// How many users there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The traffic that a user belongs to, and its number in it.
    #[must_use]
    pub fn who(&self, user: u32) -> (&Load, u32) {
        let user = &self.users[user as usize];
        (&self.kinds[user.load as usize].load, user.number)
    }

    /// The user of that number of some traffic (an index of the scenario's).
    #[must_use]
    pub fn find(&self, traffic: usize, number: u32) -> Option<u32> {
        let kind = self.kinds.iter().position(|kind| kind.load.traffic == traffic)? as u32;
        let is_it = |user: &User| user.load == kind && user.number == number;
        self.users.iter().position(is_it).map(|user| user as u32)
    }

    /// When a user does something next.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((at, _, _))| *at)
    }

    /// What is to be done up to `now`. What hangs on the clock does so by the times that were planned.
    pub fn advance(&mut self, now: Instant, tasks: &mut Vec<Task>) {
        while let Some(&Reverse((at, _, user))) = self.agenda.peek()
            && at <= now
        {
            self.agenda.pop();
            self.act(user, at, tasks);
        }
    }

    fn act(&mut self, user: u32, now: Instant, tasks: &mut Vec<Task>) {
        let u = &mut self.users[user as usize];
        if now == u.leaves {
            return self.leave(user, now, tasks);
        }
        if now != u.due {
            return;
        }
        match &self.kinds[u.load as usize].kind {
            TrafficKind::Pages(_) => self.open_page(user, tasks),
            TrafficKind::Files(_) => self.begin_transfer(user, now, tasks),
            TrafficKind::Bulk(_) => {
                u.due = Instant::FAR_FUTURE;
                self.arrive(user, now, tasks);
            }
            TrafficKind::Packets(t) => {
                if !u.is_there {
                    u.generator = Some(Generator::new(&t.pattern, &mut u.rng));
                    self.arrive(user, now, tasks);
                    self.draw_packet(user, now);
                    if self.users[user as usize].due > now {
                        let due = self.users[user as usize].due;
                        return self.enter(due, user);
                    }
                }
                let u = &self.users[user as usize];
                if u.len > 0 {
                    tasks.push(Task::Packet { user, len: u.len });
                }
                self.draw_packet(user, now);
                let due = self.users[user as usize].due;
                self.enter(due, user);
            }
        }
    }

    /// Takes from a user's stream what the simulator draws for a connection's delays.
    fn aim(&mut self, user: u32) {
        let u = &mut self.users[user as usize];
        for (there, back) in &self.kinds[u.load as usize].delays {
            let _ = there.draw(&mut u.rng);
            if let Some(back) = back {
                let _ = back.draw(&mut u.rng);
            }
        }
    }

    fn open_page(&mut self, user: u32, tasks: &mut Vec<Task>) {
        let u = &mut self.users[user as usize];
        let kind = &self.kinds[u.load as usize];
        let TrafficKind::Pages(Pages { objects_per_page, connection_per, .. }) = &kind.kind else { return };
        let hosts = (u.number.wrapping_add(u.begun) % kind.counts.0, u.number % kind.counts.1);
        let (connections, objects) = match connection_per {
            ConnectionPer::Page => (1, *objects_per_page),
            ConnectionPer::Object => (*objects_per_page, 1),
        };
        u.begun += 1;
        u.pending = connections;
        u.has_failed = false;
        for _ in 0..connections {
            self.aim(user);
            let bytes = self.next_object(user);
            tasks.push(Task::Open(Open { user, hosts, bytes, objects }));
        }
    }

    /// Draws the size of a user's next object [bytes].
    pub fn next_object(&mut self, user: u32) -> Option<u64> {
        let u = &mut self.users[user as usize];
        match &self.kinds[u.load as usize].kind {
            TrafficKind::Pages(t) => Some(t.object_size.draw(&mut u.rng)),
            _ => None,
        }
    }

    fn begin_transfer(&mut self, user: u32, now: Instant, tasks: &mut Vec<Task>) {
        let u = &mut self.users[user as usize];
        let kind = &self.kinds[u.load as usize];
        let TrafficKind::Files(t) = &kind.kind else { return };
        let bytes = Some(t.size.draw(&mut u.rng));
        let hosts = (u.number.wrapping_add(u.begun) % kind.counts.0, u.number % kind.counts.1);
        u.begun += 1;
        self.aim(user);
        tasks.push(Task::Open(Open { user, hosts, bytes, objects: 1 }));
        let u = &mut self.users[user as usize];
        if let TrafficKind::Files(t) = &self.kinds[u.load as usize].kind {
            u.due = next_transfer(&t.away, &t.interval, now, &mut u.rng);
        }
        let due = u.due;
        self.enter(due, user);
    }

    /// A source is there: opens what it has, and leaves again some time.
    fn arrive(&mut self, user: u32, now: Instant, tasks: &mut Vec<Task>) {
        let u = &mut self.users[user as usize];
        let kind = &self.kinds[u.load as usize];
        let gone = away(&kind.kind).iter().map(|away| Instant::ZERO + away.from).find(|from| *from > now);
        let (over, bytes) = match &kind.kind {
            TrafficKind::Bulk(t) => (t.lifetime.as_ref().map(|life| now + life.draw(&mut u.rng)), t.bytes),
            _ => (None, None),
        };
        let leaves = gone.into_iter().chain(over).min();
        u.leaves = leaves.unwrap_or(Instant::FAR_FUTURE);
        u.is_there = true;
        let hosts = (u.number % kind.counts.0, u.number % kind.counts.1);
        self.enter(leaves.unwrap_or(Instant::FAR_FUTURE), user);
        self.aim(user);
        tasks.push(Task::Open(Open { user, hosts, bytes, objects: 1 }));
    }

    /// A source leaves: it comes back later, which is at once after a life.
    fn leave(&mut self, user: u32, now: Instant, tasks: &mut Vec<Task>) {
        let u = &mut self.users[user as usize];
        u.due = present(away(&self.kinds[u.load as usize].kind), now);
        u.leaves = Instant::FAR_FUTURE;
        u.generator = None;
        u.is_there = false;
        let due = u.due;
        self.enter(due, user);
        tasks.push(Task::Leave { user });
    }

    fn draw_packet(&mut self, user: u32, now: Instant) {
        let u = &mut self.users[user as usize];
        let step = u.generator.as_mut().and_then(|generator| generator.next(&mut u.rng));
        (u.due, u.len) = step.map_or((Instant::FAR_FUTURE, 0), |step| (now + step.gap, step.len));
    }

    /// A connection of a user has done its work, or failed.
    pub fn done(&mut self, user: u32, has_failed: bool, now: Instant) {
        let u = &mut self.users[user as usize];
        match &self.kinds[u.load as usize].kind {
            TrafficKind::Pages(t) => {
                u.pending = u.pending.saturating_sub(1);
                u.has_failed |= has_failed;
                if u.pending > 0 {
                    return;
                }
                let think = t.think_time.draw(&mut u.rng);
                let think = if u.has_failed { think.max(PATIENCE) } else { think };
                u.due = present(&t.away, now + think);
                let due = u.due;
                self.enter(due, user);
            }
            // It sends no more until it comes back.
            TrafficKind::Packets(_) => {
                u.generator = None;
                u.due = Instant::FAR_FUTURE;
            }
            TrafficKind::Bulk(_) | TrafficKind::Files(_) => {}
        }
    }
}

/// When the transfer after `last` begins. One that would begin while the source is away does not, and the time to the next
/// counts from its return.
fn next_transfer(
    away: &[Absence],
    interval: &Distribution<Duration>,
    last: Instant,
    rng: &mut Rng,
) -> Instant {
    let mut at = last + interval.draw(rng);
    while present(away, at) > at {
        at = present(away, at) + interval.draw(rng);
    }
    at
}
