//! A return carrier that terminals share by demand assignment (DAMA), as in DVB-RCS2 (ETSI EN 301 545-2, clause 7.2 and
//! ETSI EN 301 790, section 8.4): constant rates (CRA), and requests for a rate (RBDC) or a volume (VBDC).
//!
//! Time is divided in superframes. At the beginning of each superframe every terminal requests capacity; the grant is for
//! the superframe that begins one round trip later. A grant is a part of the superframe's time, so a terminal with fewer
//! bits per symbol needs more of it for the same bytes. Time is granted in this order: the constant rates; the committed
//! rates of terminals that request them; what is left by weight, up to the request and to the peak rate. Rates that do not
//! fit are reduced by the same factor. Time that nobody requests is not granted, and a grant that its terminal does not use
//! is lost.
//!
//! Terminals may be in pools, and pools in others. After the committed rates of terminals come those of pools, the inner ones
//! first; then every pool and terminal shares what is left by weight with those in the same pool. Peak rates of pools count the
//! bytes of their terminals.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Rate};

/// Kind of the requests of terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    /// A rate (RBDC): that of the arrivals of the last superframe, and the backlog over a round trip.
    #[default]
    Rate,
    /// A volume (VBDC): the backlog that it has not requested yet and that its constant rate will not serve.
    Volume,
}

/// Share of a terminal in the return carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Constant rate, assigned without a request (CRA).
    pub cra: Rate,
    /// Committed rate: granted first to those who request it.
    pub cir: Rate,
    /// Peak rate of constant rate and grants; `None` for that of the carrier.
    pub pir: Option<Rate>,
    /// Weight by which terminals share what the others leave.
    pub weight: u32,
}

impl Default for Assignment {
    fn default() -> Self {
        Self { cra: Rate::default(), cir: Rate::default(), pir: None, weight: 1 }
    }
}

/// State of a terminal at the beginning of a superframe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Bytes in its transmit queue.
    pub backlog: u64,
    /// Bytes that have entered its transmit queue since the run began.
    pub arrived: u64,
    /// Rate at which it sends if it has the whole carrier; zero in an outage.
    pub rate: Rate,
}

/// A part of a superframe, granted to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the terminal, in the order of [`DemandCarrier::add`].
    pub terminal: usize,
    /// Begin, after that of the superframe.
    pub offset: Duration,
    /// Length.
    pub length: Duration,
}

/// A terminal or a pool in a pool or on the carrier, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Terminal(usize),
    Pool(usize),
}

/// A pool of terminals and other pools, or all that share the carrier directly.
#[derive(Debug, Default)]
struct Pool {
    share: Assignment,
    /// The pool that it is in; `None` if it shares the carrier directly.
    parent: Option<usize>,
    /// Number of pools that it is in.
    depth: usize,
    /// Those that need least for their weight first.
    members: Vec<Member>,
    /// Time that its members can use beyond their grants [ns].
    demand: u64,
    /// Amount that its terminals can send in their grants [ns bit/s].
    granted: u128,
}

/// A return carrier with its terminals.
#[derive(Debug)]
pub struct DemandCarrier {
    superframe: Duration,
    /// Superframes from a request to its grant.
    delay: u64,
    request: Request,
    terminals: Vec<Terminal>,
    /// Pools, each behind the one that it is in.
    pools: Vec<Pool>,
    /// Terminals and pools in none.
    root: Pool,
    /// Requests on their way, oldest superframe first [bytes per superframe, or bytes].
    on_way: VecDeque<Vec<u64>>,
    number: u64,
    slots: Vec<Slot>,
    /// Terminals that compete for what is left, and the time that they need.
    open: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct Terminal {
    share: Assignment,
    arrived: u64,
    /// Bytes requested and not granted; for volumes only.
    requested: u64,
    /// Request that has arrived: bytes of each superframe, or bytes left of all volumes.
    demand: u64,
    rate: Rate,
    /// Time granted in the current superframe [ns]: the constant rate's part, and all.
    constant: u64,
    granted: u64,
    /// The pool that it is in.
    pool: Option<usize>,
    /// Time that it can use beyond its grant, if there are pools [ns].
    need: u64,
}

/// Time for which `bytes` take the carrier [ns], rounded up.
fn time(bytes: u64, rate: Rate) -> u64 {
    let ns = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate.as_bps().max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Time of a superframe in which a terminal with `rate` sends at `part` of it on average [ns].
fn part_of(superframe: Duration, part: Rate, rate: Rate) -> u64 {
    let ns = u128::from(superframe.as_nanos()) * u128::from(part.as_bps()) / u128::from(rate.as_bps().max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).min(superframe.as_nanos())
}

/// `part` reduced as much as `sum` must be to fit into `room`.
fn scaled(part: u64, sum: u64, room: u64) -> u64 {
    if sum <= room { part } else { (u128::from(part) * u128::from(room) / u128::from(sum)) as u64 }
}

impl DemandCarrier {
    /// A carrier without terminals. A request takes `round_trip` to its grant.
    #[must_use]
    pub fn new(superframe: Duration, round_trip: Duration, request: Request) -> Self {
        let delay = round_trip.as_nanos().div_ceil(superframe.as_nanos().max(1)).max(1);
        Self {
            superframe,
            delay,
            request,
            terminals: Vec::new(),
            pools: Vec::new(),
            root: Pool::default(),
            on_way: VecDeque::new(),
            number: 0,
            slots: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds a pool in another one, or on the carrier; its constant rate does not count. Returns its number.
    pub fn add_pool(&mut self, share: Assignment, parent: Option<usize>) -> usize {
        let number = self.pools.len();
        self.pool_mut(parent).members.push(Member::Pool(number));
        let depth = parent.map_or(0, |parent| self.pools[parent].depth + 1);
        self.pools.push(Pool { share, parent, depth, ..Pool::default() });
        number
    }

    fn pool_mut(&mut self, pool: Option<usize>) -> &mut Pool {
        pool.map_or(&mut self.root, |pool| &mut self.pools[pool])
    }

    /// Adds a terminal on the carrier.
    pub fn add(&mut self, share: Assignment) {
        self.add_to(share, None);
    }

    /// Adds a terminal in a pool, or on the carrier.
    pub fn add_to(&mut self, share: Assignment, pool: Option<usize>) {
        let number = self.terminals.len();
        self.pool_mut(pool).members.push(Member::Terminal(number));
        self.terminals.push(Terminal {
            pool,
            need: 0,
            share,
            arrived: 0,
            requested: 0,
            demand: 0,
            rate: Rate::default(),
            constant: 0,
            granted: 0,
        });
    }

    /// Length of a superframe.
    #[must_use]
    pub fn superframe(&self) -> Duration {
        self.superframe
    }

    /// Begins the next superframe with a report of each terminal, in their order. Returns the slots in order of time.
    pub fn begin(&mut self, reports: impl IntoIterator<Item = Report>) -> &[Slot] {
        self.request(reports);
        self.receive();
        self.grant();
        self.slots.clear();
        let (count, mut offset) = (self.terminals.len() as u64, 0);
        for place in 0..count {
            // The order of slots rotates, so that no terminal is always the last.
            let number = ((place + self.number) % count) as usize;
            let length = self.terminals[number].granted;
            if length > 0 {
                let (start, length) = (Duration::from_nanos(offset), Duration::from_nanos(length));
                self.slots.push(Slot { terminal: number, offset: start, length });
                offset += length.as_nanos();
            }
        }
        self.number += 1;
        &self.slots
    }

    /// The terminals send their requests.
    fn request(&mut self, reports: impl IntoIterator<Item = Report>) {
        let mut requests = match self.on_way.len() as u64 > self.delay {
            true => self.on_way.pop_front().unwrap_or_default(),
            false => Vec::with_capacity(self.terminals.len()),
        };
        requests.clear();
        for (terminal, report) in self.terminals.iter_mut().zip(reports) {
            let before = std::mem::replace(&mut terminal.arrived, report.arrived);
            let arrived = report.arrived.saturating_sub(before);
            terminal.rate = report.rate;
            let wanted = match self.request {
                Request::Rate => arrived + report.backlog.div_ceil(self.delay),
                Request::Volume => {
                    let seconds = self.superframe.times(self.delay).as_secs_f64();
                    let constant = (terminal.share.cra.bytes_per_sec() * seconds) as u64;
                    let wanted = report.backlog.saturating_sub(terminal.requested + constant);
                    terminal.requested += wanted;
                    wanted
                }
            };
            requests.push(wanted);
        }
        self.on_way.push_back(requests);
    }

    /// Requests made one round trip ago arrive.
    fn receive(&mut self) {
        if self.on_way.len() as u64 <= self.delay {
            return;
        }
        // They stay in the list until the next superframe, which uses their memory again.
        let Some(requests) = self.on_way.front() else { return };
        for (terminal, &request) in self.terminals.iter_mut().zip(requests) {
            match self.request {
                Request::Rate => terminal.demand = request,
                Request::Volume => terminal.demand += request,
            }
        }
    }

    /// Divides the superframe's time.
    fn grant(&mut self) {
        let superframe = self.superframe.as_nanos();
        let constant = |t: &Terminal| match t.rate.as_bps() {
            0 => 0,
            _ => part_of(self.superframe, t.share.cra, t.rate),
        };
        let wanted = |t: &Terminal| {
            let demand =
                time(t.demand, t.rate) + if self.request == Request::Volume { t.constant } else { 0 };
            let most = t.share.pir.map_or(superframe, |pir| part_of(self.superframe, pir, t.rate));
            demand.min(most).max(t.constant)
        };
        let constants: u64 = self.terminals.iter().map(constant).fold(0, u64::saturating_add);
        for number in 0..self.terminals.len() {
            let part = scaled(constant(&self.terminals[number]), constants, superframe);
            let terminal = &mut self.terminals[number];
            (terminal.constant, terminal.granted) = (part, part);
        }
        let mut left = superframe.saturating_sub(constants);
        // Committed rates, beyond the constant ones.
        let committed = |t: &Terminal| {
            let cir = part_of(self.superframe, t.share.cir, t.rate);
            cir.min(wanted(t)).saturating_sub(t.constant)
        };
        let is_up = |t: &&Terminal| t.rate.as_bps() > 0;
        let sum = self.terminals.iter().filter(is_up).map(committed).fold(0, u64::saturating_add);
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        for number in 0..self.terminals.len() {
            let terminal = &self.terminals[number];
            if !is_up(&terminal) {
                continue;
            }
            let (part, wanted) = (scaled(committed(terminal), sum, left), wanted(terminal));
            let terminal = &mut self.terminals[number];
            terminal.granted += part;
            let need = wanted - terminal.granted.min(wanted);
            terminal.need = need;
            if need > 0 {
                open.push((number, need));
            }
        }
        if !self.pools.is_empty() {
            open.clear();
            self.grant_in_pools();
        }
        left = left.saturating_sub(sum);
        // The rest by weight: those who need least for their weight first (max-min fairness).
        let weight = |number: usize| u128::from(self.terminals[number].share.weight.max(1));
        open.sort_by(|a, b| {
            let (x, y) = (u128::from(a.1) * weight(b.0), u128::from(b.1) * weight(a.0));
            x.cmp(&y).then(a.0.cmp(&b.0))
        });
        let mut weights: u128 = open.iter().map(|(number, _)| weight(*number)).sum();
        let mut parts = Vec::with_capacity(open.len());
        for &(number, need) in &open {
            let fair = (u128::from(left) * weight(number) / weights.max(1)) as u64;
            let part = need.min(fair);
            left -= part;
            weights -= weight(number);
            parts.push(part);
        }
        for (&(number, _), part) in open.iter().zip(parts) {
            self.terminals[number].granted += part;
        }
        self.open = open;
        if self.request == Request::Volume {
            for t in &mut self.terminals {
                let ns = u128::from(t.granted - t.constant) * u128::from(t.rate.as_bps());
                let bytes = u64::try_from(ns.div_ceil(8_000_000_000)).unwrap_or(u64::MAX).min(t.demand);
                t.demand -= bytes;
                t.requested = t.requested.saturating_sub(bytes);
            }
        }
    }

    // ----- pools ---------------------------------------------------------------------------------------------

    /// Grants the committed rates of pools, the inner ones first, and what is left by weight.
    fn grant_in_pools(&mut self) {
        for terminal in self.terminals.iter_mut().filter(|t| t.rate.as_bps() == 0) {
            terminal.need = 0;
        }
        let superframe = self.superframe.as_nanos();
        let deepest = self.pools.iter().map(|pool| pool.depth).max().unwrap_or_default();
        for depth in (0..=deepest).rev() {
            self.update_demands();
            let at_depth = |(_, pool): &(usize, &Pool)| pool.depth == depth;
            let committed = self.pools.iter().enumerate().filter(at_depth).map(|(number, pool)| {
                let room = self.bits(pool.share.cir).saturating_sub(pool.granted);
                (number, self.longest(pool, pool.demand, room))
            });
            let committed: Vec<_> = committed.collect();
            let sum = committed.iter().map(|(_, time)| *time).fold(0, u64::saturating_add);
            let left = self.left(superframe);
            for (number, time) in committed {
                self.hand_out(Some(number), scaled(time, sum, left));
            }
        }
        self.update_demands();
        self.hand_out(None, self.left(superframe));
    }

    /// Time of the superframe that is not granted [ns].
    fn left(&self, superframe: u64) -> u64 {
        self.terminals.iter().fold(superframe, |left, terminal| left.saturating_sub(terminal.granted))
    }

    /// Amount that a rate sends in a superframe [ns bit/s].
    fn bits(&self, rate: Rate) -> u128 {
        u128::from(self.superframe.as_nanos()) * u128::from(rate.as_bps())
    }

    /// Time that a member can use [ns], and its weight.
    fn demand(&self, member: Member) -> (u64, u64) {
        let (demand, weight) = match member {
            Member::Terminal(number) => (self.terminals[number].need, self.terminals[number].share.weight),
            Member::Pool(number) => (self.pools[number].demand, self.pools[number].share.weight),
        };
        (demand, u64::from(weight.max(1)))
    }

    /// Updates what pools have been granted, what they can use up to their peak rates, and the order of their members.
    fn update_demands(&mut self) {
        for pool in &mut self.pools {
            pool.granted = 0;
        }
        for number in 0..self.terminals.len() {
            let terminal = &self.terminals[number];
            let granted = u128::from(terminal.granted) * u128::from(terminal.rate.as_bps());
            let mut above = terminal.pool;
            while let Some(pool) = above {
                self.pools[pool].granted += granted;
                above = self.pools[pool].parent;
            }
        }
        for number in (0..self.pools.len()).rev().map(Some).chain([None]) {
            let mut members = std::mem::take(&mut self.pool_mut(number).members);
            let key = |member: &Member| self.demand(*member);
            members.sort_by(|a, b| {
                let ((x, w), (y, v)) = (key(a), key(b));
                (u128::from(x) * u128::from(v)).cmp(&(u128::from(y) * u128::from(w)))
            });
            let most = members.iter().map(|member| key(member).0).fold(0, u64::saturating_add);
            self.pool_mut(number).members = members;
            if let Some(number) = number {
                let pool = &self.pools[number];
                let room = pool.share.pir.map(|pir| self.bits(pir).saturating_sub(pool.granted));
                self.pools[number].demand = room.map_or(most, |room| self.longest(pool, most, room));
            }
        }
    }

    /// Divides time among the members of a pool by weight, to each at most what it can use (max-min fairness).
    fn divide(&self, pool: &Pool, time: u64, mut give: impl FnMut(Member, u64)) {
        let mut left = u128::from(time);
        let mut weights: u128 = pool.members.iter().map(|member| u128::from(self.demand(*member).1)).sum();
        for &member in &pool.members {
            let (demand, weight) = self.demand(member);
            let part = u128::from(demand).min(left * u128::from(weight) / weights.max(1));
            (left, weights) = (left - part, weights - u128::from(weight));
            give(member, part as u64);
        }
    }

    /// Amount that the terminals in a pool can send if it is given `time` [ns bit/s].
    fn sent_in(&self, pool: &Pool, time: u64) -> u128 {
        let mut sent = 0;
        self.divide(pool, time, |member, part| {
            sent += match member {
                Member::Terminal(number) => {
                    u128::from(part) * u128::from(self.terminals[number].rate.as_bps())
                }
                Member::Pool(inner) => self.sent_in(&self.pools[inner], part),
            };
        });
        sent
    }

    /// Longest time up to `most` in which the terminals in a pool send no more than `room` [ns].
    fn longest(&self, pool: &Pool, most: u64, room: u128) -> u64 {
        if self.sent_in(pool, most) <= room {
            return most;
        }
        let (mut low, mut high) = (0, most.min(self.superframe.as_nanos()) + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.sent_in(pool, middle) <= room {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Grants time to a pool, or to all that share the carrier directly.
    fn hand_out(&mut self, pool: Option<usize>, time: u64) {
        let mut parts = Vec::new();
        let of = pool.map_or(&self.root, |pool| &self.pools[pool]);
        self.divide(of, time, |member, part| parts.push((member, part)));
        for (member, part) in parts {
            match member {
                Member::Terminal(number) => {
                    let terminal = &mut self.terminals[number];
                    terminal.granted += part;
                    terminal.need -= part;
                }
                Member::Pool(number) => self.hand_out(Some(number), part),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn rate(mbps: u64) -> Rate {
        Rate::from_bps(mbps * MBPS)
    }

    /// A carrier of 8 Mbit/s: 25 000 bytes in a superframe of 25 ms. A request takes four of them.
    fn carrier(request: Request, shares: &[Assignment]) -> DemandCarrier {
        let mut carrier = DemandCarrier::new(Duration::from_millis(25), Duration::from_millis(100), request);
        shares.iter().for_each(|share| carrier.add(*share));
        carrier
    }

    /// Bytes granted to each terminal in `count` superframes after `before` others; each is always backlogged with
    /// `backlog` bytes and sends at a rate.
    fn granted(
        carrier: &mut DemandCarrier,
        rates: &[u64],
        backlog: u64,
        before: u64,
        count: u64,
    ) -> Vec<f64> {
        let mut bytes = vec![0.0; rates.len()];
        let mut arrived = 0;
        for number in 0..before + count {
            arrived += backlog;
            let reports = rates.iter().map(|&mbps| Report { backlog, arrived, rate: rate(mbps) });
            let slots = carrier.begin(reports).to_vec();
            let mut end = 0;
            for slot in &slots {
                assert!(slot.offset.as_nanos() >= end, "slots do not overlap");
                end = (slot.offset + slot.length).as_nanos();
                if number >= before {
                    bytes[slot.terminal] +=
                        slot.length.as_secs_f64() * rates[slot.terminal] as f64 * 1e6 / 8.0;
                }
            }
            assert!(end <= carrier.superframe().as_nanos());
        }
        bytes
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-4, "{found} {expected}");
        }
    }

    #[test]
    fn a_lone_terminal_gets_the_carrier_one_round_trip_after_its_request() {
        for request in [Request::Rate, Request::Volume] {
            let mut carrier = carrier(request, &[Assignment::default()]);
            for number in 0..8 {
                let report = Report { backlog: 1_000_000, arrived: 1_000_000, rate: rate(8) };
                let slots = carrier.begin([report]);
                let expected =
                    Slot { terminal: 0, offset: Duration::ZERO, length: Duration::from_millis(25) };
                assert_eq!(slots.to_vec(), vec![expected; usize::from(number >= 4)], "{number}");
            }
        }
    }

    /// 15 000 bytes are 15 ms of the carrier, once.
    #[test]
    fn a_volume_is_granted_once() {
        let mut carrier = carrier(Request::Volume, &[Assignment::default()]);
        let lengths = (0..12).map(|number| {
            let backlog = if number < 5 { 15_000 } else { 0 };
            let slots = carrier.begin([Report { backlog, arrived: 15_000, rate: rate(8) }]);
            slots.iter().map(|slot| slot.length.as_nanos() / 1_000_000).sum::<u64>()
        });
        let lengths: Vec<_> = lengths.collect();
        assert_eq!(lengths, [0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// 1 of 8 Mbit/s without any request, at each rate that the terminal may have; twice the carrier is halved.
    #[test]
    fn constant_rates_are_assigned_without_requests() {
        let share = Assignment { cra: rate(1), ..Assignment::default() };
        for mbps in [8, 4] {
            let mut carrier = carrier(Request::Rate, &[share]);
            assert_near(&granted(&mut carrier, &[mbps], 0, 0, 40), &[125_000.0]);
        }
        let share = Assignment { cra: rate(8), ..Assignment::default() };
        let mut carrier = carrier(Request::Rate, &[share, share]);
        assert_near(&granted(&mut carrier, &[8, 8], 0, 0, 40), &[500_000.0; 2]);
    }

    /// Equal terminals share equally; weights 1 : 3 share 8 Mbit/s in 2 and 6. Of terminals with rates of 8 and 4 Mbit/s, each
    /// gets half of the time.
    #[test]
    fn weights_share_the_time() {
        for request in [Request::Rate, Request::Volume] {
            let equal = [Assignment::default(); 4];
            let found = granted(&mut carrier(request, &equal), &[8; 4], 1_000_000, 4, 40);
            assert_near(&found, &[250_000.0; 4]);
            let weights = [1, 3].map(|weight| Assignment { weight, ..Assignment::default() });
            let found = granted(&mut carrier(request, &weights), &[8; 2], 1_000_000, 4, 40);
            assert_near(&found, &[250_000.0, 750_000.0]);
            let found = granted(&mut carrier(request, &equal[..2]), &[8, 4], 1_000_000, 4, 40);
            assert_near(&found, &[500_000.0, 250_000.0]);
        }
    }

    /// 3 Mbit/s committed to the first of three, 1 constant and 2 at most for the second. Of the 4 left the second needs 1,
    /// the others get 1.5 each.
    #[test]
    fn committed_and_peak_rates_are_kept() {
        let shares = [
            Assignment { cir: rate(3), ..Assignment::default() },
            Assignment { cra: rate(1), pir: Some(rate(2)), ..Assignment::default() },
            Assignment::default(),
        ];
        for request in [Request::Rate, Request::Volume] {
            let found = granted(&mut carrier(request, &shares), &[8; 3], 1_000_000, 4, 40);
            assert_near(&found, &[4.5, 2.0, 1.5].map(|mbps| mbps * 125_000.0));
        }
        // Committed rates of 6 and 4 get 0.8 of each, and leave nothing to the third.
        let shares = [6, 4, 0].map(|mbps| Assignment { cir: rate(mbps), ..Assignment::default() });
        let found = granted(&mut carrier(Request::Rate, &shares), &[8; 3], 1_000_000, 4, 40);
        assert_near(&found[..2], &[600_000.0, 400_000.0]);
        assert!(found[2] < 10.0, "{}", found[2]);
    }

    /// Bytes per second granted to backlogged terminals, each with its rate and pool [Mbit/s].
    fn in_pools(
        pools: &[(Assignment, Option<usize>)],
        terminals: &[(u64, Assignment, Option<usize>)],
    ) -> Vec<f64> {
        let mut results = Vec::new();
        for request in [Request::Rate, Request::Volume] {
            let mut carrier = carrier(request, &[]);
            for (share, parent) in pools {
                carrier.add_pool(*share, *parent);
            }
            for (_, share, pool) in terminals {
                carrier.add_to(*share, *pool);
            }
            let rates: Vec<_> = terminals.iter().map(|terminal| terminal.0).collect();
            // 40 superframes are a second.
            let found = granted(&mut carrier, &rates, 1_000_000, 4, 40);
            let found: Vec<_> = found.iter().map(|bytes| bytes / 125_000.0).collect();
            if request == Request::Volume {
                let differ = |(found, other): (&f64, &f64)| (found - other).abs() > 1e-3;
                assert!(!found.iter().zip(&results).any(differ), "{found:?} {results:?}");
            }
            results = found;
        }
        results
    }

    const PLAIN: Assignment =
        Assignment { cra: Rate::from_bps(0), cir: Rate::from_bps(0), pir: None, weight: 1 };

    /// Weights of 1 and 3 share 8 Mbit/s in 2 and 6, whatever the number of terminals; a terminal in no pool is one of three.
    #[test]
    fn pools_share_by_weight_before_their_terminals_do() {
        let heavy = Assignment { weight: 3, ..PLAIN };
        let pools = [(PLAIN, None), (heavy, None)];
        let terminals = [(8, PLAIN, Some(0)), (8, PLAIN, Some(0)), (8, PLAIN, Some(1)), (8, heavy, Some(1))];
        assert_near(&in_pools(&pools, &terminals), &[1.0, 1.0, 1.5, 4.5]);
        let terminals =
            [(8, PLAIN, Some(0)), (8, PLAIN, Some(0)), (8, Assignment { weight: 2, ..PLAIN }, None)];
        assert_near(&in_pools(&pools, &terminals), &[4.0 / 3.0, 4.0 / 3.0, 16.0 / 3.0]);
    }

    /// 6 of 8 Mbit/s are committed to the first pool; the other 2 by 1 : 3. A committed rate of a terminal, 1, is part of it.
    #[test]
    fn committed_rates_of_pools_are_kept_and_lent() {
        let pools = [(Assignment { cir: rate(6), ..PLAIN }, None), (Assignment { weight: 3, ..PLAIN }, None)];
        let sure = Assignment { cir: rate(1), ..PLAIN };
        let terminals = [(8, sure, Some(0)), (8, PLAIN, Some(0)), (8, PLAIN, Some(1))];
        assert_near(&in_pools(&pools, &terminals), &[1.0 + 2.75, 2.75, 1.5]);
        let terminals = [(0, sure, Some(0)), (8, PLAIN, Some(1))];
        assert_near(&in_pools(&pools, &terminals)[1..], &[8.0]);
    }

    /// At most 3 Mbit/s to the pool, whose terminals have the same time: with 8 and 4 Mbit/s 2 and 1. The third gets the time
    /// that is left, half of 8 Mbit/s.
    #[test]
    fn peak_rates_of_pools_count_bytes() {
        let pools = [(Assignment { pir: Some(rate(3)), ..PLAIN }, None)];
        let terminals = [(8, PLAIN, Some(0)), (4, PLAIN, Some(0)), (8, PLAIN, None)];
        assert_near(&in_pools(&pools, &terminals), &[2.0, 1.0, 4.0]);
    }

    /// The shares of the forward direction's test (`crates/sim/tests/pools.rs`), on 20 Mbit/s: isp has 6 committed, navy 9 at
    /// most of its 10.5 by weight. isp gets 11; of navy's 9 the fleet gets 6 for two ships, and the port 3.
    #[test]
    fn pools_in_pools_share_as_those_of_the_forward_direction() {
        let pools = [
            (Assignment { cir: rate(6), ..PLAIN }, None),
            (Assignment { pir: Some(rate(9)), weight: 3, ..PLAIN }, None),
            (Assignment { weight: 2, ..PLAIN }, Some(1)),
        ];
        let homes = [(20, PLAIN, Some(0)); 2];
        let ships = [(20, PLAIN, Some(2)); 2];
        let terminals = [&homes[..], &ships, &[(20, PLAIN, Some(1))]].concat();
        assert_near(&in_pools(&pools, &terminals), &[5.5, 5.5, 3.0, 3.0, 3.0]);
    }

    /// A committed rate that its terminal does not request is lent to the others.
    #[test]
    fn unused_commitments_go_to_others() {
        let shares = [Assignment { cir: rate(6), ..Assignment::default() }, Assignment::default()];
        let mut carrier = carrier(Request::Rate, &shares);
        let mut time = 0;
        for number in 0..44 {
            let reports = [0, 1_000_000].map(|backlog| Report { backlog, arrived: backlog, rate: rate(8) });
            let slots = carrier.begin(reports);
            assert!(slots.iter().all(|slot| slot.terminal == 1));
            time += slots.iter().filter(|_| number >= 4).map(|slot| slot.length.as_nanos()).sum::<u64>();
        }
        assert_eq!(time, 40 * 25_000_000);
    }

    #[test]
    fn a_terminal_in_an_outage_gets_nothing() {
        let share = Assignment { cra: rate(1), cir: rate(1), ..Assignment::default() };
        let found = granted(&mut carrier(Request::Rate, &[share, share]), &[0, 8], 1_000_000, 4, 40);
        assert_near(&found[1..], &[1_000_000.0]);
        assert!(found[0] == 0.0, "{}", found[0]);
    }

    #[test]
    fn the_first_slot_of_a_superframe_rotates() {
        let mut carrier = carrier(Request::Rate, &[Assignment { cra: rate(1), ..PLAIN }; 3]);
        let first: Vec<_> = (0..7)
            .map(|_| carrier.begin([Report { rate: rate(8), ..Report::default() }; 3])[0].terminal)
            .collect();
        assert_eq!(first, [0, 1, 2, 0, 1, 2, 0]);
    }

    /// The constant rate serves 3125 bytes in a superframe (3125 µs), 12 500 until a grant, so that 10 000 of 22 500 are requested.
    /// The peak rate allows 3125 more in a superframe: three of these, and 625 bytes in the fourth.
    #[test]
    fn a_volume_beyond_the_constant_rate_is_granted_up_to_the_peak_rate() {
        let share = Assignment { cra: rate(1), pir: Some(rate(2)), ..PLAIN };
        let mut carrier = carrier(Request::Volume, &[share]);
        let lengths = (0..10).map(|number| {
            let backlog = if number < 5 { 22_500 } else { 0 };
            let slots = carrier.begin([Report { backlog, arrived: 22_500, rate: rate(8) }]);
            slots.iter().map(|slot| slot.length.as_nanos() / 1000).sum::<u64>()
        });
        let lengths: Vec<_> = lengths.collect();
        assert_eq!(lengths, [3125, 3125, 3125, 3125, 6250, 6250, 6250, 3750, 3125, 3125]);
    }

    /// Of 8 Mbit/s 2 are constant. The terminal of weight 4 needs 4, less than its 4.8 of the 6 left; so the other gets 2.
    #[test]
    fn what_a_heavy_terminal_does_not_need_goes_to_the_others() {
        let light = Assignment { pir: Some(rate(3)), ..PLAIN };
        let heavy = Assignment { pir: Some(rate(4)), weight: 4, ..PLAIN };
        let constant = Assignment { cra: rate(2), pir: Some(rate(2)), ..PLAIN };
        for request in [Request::Rate, Request::Volume] {
            let carrier = |shares: [Assignment; 3]| {
                granted(&mut self::carrier(request, &shares), &[8; 3], 1_000_000, 4, 40)
            };
            assert_near(&carrier([light, heavy, constant]), &[250_000.0, 500_000.0, 250_000.0]);
            assert_near(&carrier([heavy, light, constant]), &[500_000.0, 250_000.0, 250_000.0]);
        }
        let in_pool =
            |shares: [Assignment; 3]| in_pools(&[(PLAIN, None)], &shares.map(|share| (8, share, Some(0))));
        assert_near(&in_pool([light, heavy, constant]), &[2.0, 4.0, 2.0]);
        assert_near(&in_pool([heavy, light, constant]), &[4.0, 2.0, 2.0]);
    }

    /// The committed rate of a terminal two pools deep, 3 Mbit/s, is part of the outer pool's peak rate of 4. The other 1 is shared
    /// by both terminals there.
    #[test]
    fn the_peak_rate_of_a_pool_covers_the_pools_in_it() {
        let pools = [(Assignment { pir: Some(rate(4)), ..PLAIN }, None), (PLAIN, Some(0))];
        let sure = Assignment { cir: rate(3), ..PLAIN };
        let terminals = [(8, sure, Some(1)), (8, PLAIN, Some(1)), (8, PLAIN, None)];
        assert_near(&in_pools(&pools, &terminals), &[3.5, 0.5, 4.0]);
    }

    /// The committed rate of the inner pool, 4 Mbit/s, is part of that of the outer pool. The other 4 are shared with the terminal in
    /// no pool.
    #[test]
    fn the_committed_rate_of_a_pool_covers_the_pools_in_it() {
        let sure = Assignment { cir: rate(4), ..PLAIN };
        let terminals = [(8, PLAIN, Some(1)), (8, PLAIN, None)];
        assert_near(&in_pools(&[(sure, None), (sure, Some(0))], &terminals), &[6.0, 2.0]);
    }

    /// The terminal needs 3 Mbit/s, of which its pool has 2 committed; the third is its share of the rest.
    #[test]
    fn a_committed_rate_of_a_pool_is_part_of_what_its_terminals_need() {
        let pools = [(Assignment { cir: rate(2), ..PLAIN }, None)];
        let terminals = [(8, Assignment { pir: Some(rate(3)), ..PLAIN }, Some(0)), (8, PLAIN, None)];
        assert_near(&in_pools(&pools, &terminals), &[3.0, 5.0]);
    }

    /// A peak rate as high as the carrier's leaves no nanosecond unused.
    #[test]
    fn a_pool_with_the_peak_rate_of_the_carrier_gets_all_of_it() {
        let mut carrier = carrier(Request::Rate, &[]);
        let pool = carrier.add_pool(Assignment { pir: Some(rate(8)), ..PLAIN }, None);
        (0..2).for_each(|_| carrier.add_to(PLAIN, Some(pool)));
        let mut lengths = Vec::new();
        for _ in 0..5 {
            let slots = carrier.begin([Report { backlog: 1_000_000, arrived: 0, rate: rate(8) }; 2]);
            lengths = slots.iter().map(|slot| slot.length.as_nanos()).collect();
        }
        assert_eq!(lengths, [12_500_000; 2]);
    }
}
