//! Changes in the middle of a run: rates, delays, AQMs, the number of users and what they do.

use bentpipe_queue::Aqm;
use bentpipe_scenario::{AqmSpec, Delay, Direction, Effective, Gateway, Origin, Per, Scenario, TrafficKind};
use bentpipe_units::{Duration, Rate, Rng};

use super::Engine;
use crate::apps::{Session, Source};
use crate::build;
use crate::ids::{GatewayId, Id, LinkDirectionId, SessionId, SourceId, TrafficId};

/// Keys of a traffic that may change during a run.
const OF_TRAFFIC: [&str; 17] = [
    "sessions",
    "flows",
    "sources",
    "object_size",
    "objects_per_page",
    "think_time",
    "patience",
    "request_size",
    "interval",
    "size",
    "rate",
    "packet",
    "on",
    "off",
    "peak",
    "burst",
    "shape",
];

/// Keys that may change during a run, for messages.
pub const CHANGEABLE: &str = "gateway.regulator.rate, gateway.aqm.*; link.NAME.rate if constant, link.NAME.delay if fixed, \
                              link.NAME.queue.aqm.*; traffic.NAME.* for the number of users and the sizes, times and rates \
                              of what they do";

/// AQMs, each for the queues of a gateway.
type Aqms = Vec<(GatewayId, Box<dyn Aqm>)>;

/// A change that has been checked, and can be made.
enum Change {
    GatewayRate(usize, Rate),
    GatewayAqm(Aqms),
    LinkRate(LinkDirectionId, Rate),
    LinkDelay(LinkDirectionId, Duration),
    LinkAqm(LinkDirectionId, Box<dyn Aqm>),
    Kind(TrafficId, Box<TrafficKind>),
    Users(TrafficId, u32, u32),
}

impl Engine {
    /// Continues as the scenario `new` says in place of `old`; returns the keys that differ.
    ///
    /// A default that follows from a changed value stays as it was. An AQM whose parameters change keeps its state.
    ///
    /// # Errors
    /// A key that cannot change during a run; then nothing is changed.
    pub fn change(&mut self, old: &Scenario, new: &Scenario, seed: u64) -> Result<Vec<String>, String> {
        let keys = differing(old.effective(), new.effective());
        if let Some(key) = keys.iter().find(|key| !is_changeable(&steps(key))) {
            return Err(format!("{key} cannot change during a run; changeable are {CHANGEABLE}"));
        }
        let changes = self.checked(old, new, &keys)?;
        self.network.separate_links();
        for change in changes {
            self.make(change, seed);
        }
        Ok(keys)
    }

    /// The changes of these keys.
    fn checked(&self, old: &Scenario, new: &Scenario, keys: &[String]) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        let has_aqm_of = |kind: &str, name: &str, is_only: bool| {
            keys.iter().any(|key| {
                let steps = steps(key);
                let is_its = is_only || steps.get(1).is_some_and(|step| step == name);
                steps[0] == kind && is_its && is_of_aqm(&steps)
            })
        };
        let is_only = new.gateways.len() == 1;
        for (number, (before, after)) in old.gateways.iter().zip(&new.gateways).enumerate() {
            if before.regulator.rate != after.regulator.rate && !after.regulator.follows_link {
                changes.push(Change::GatewayRate(number, after.regulator.rate));
            }
            if has_aqm_of("gateway", &after.name, is_only) {
                changes.push(Change::GatewayAqm(self.aqms_of(number, after)?));
            }
        }
        let mut first = 0;
        for (before, after) in old.links.iter().zip(&new.links) {
            let name = &after.name;
            let members = new.members(after);
            let directions = [(&before.forward, &after.forward), (&before.reverse, &after.reverse)];
            for member in 0..members {
                for (place, (before, after)) in (0..).zip(directions) {
                    let link = LinkDirectionId::new(first + 2 * member + place);
                    changes.extend(changes_of_link((name, keys), link, before, after)?);
                    if has_aqm_of("link", name, false)
                        && let Some(queue) = &after.queue
                    {
                        let aqm = changed_aqm(&queue.aqm, &format!("link.{name}"))?;
                        changes.push(Change::LinkAqm(link, aqm));
                    }
                }
            }
            first += 2 * members;
        }
        for (id, (before, after)) in self.apps.traffic.ids().zip(old.traffic.iter().zip(&new.traffic)) {
            let is_of = |key: &String| {
                let steps = steps(key);
                steps[0] == "traffic" && steps.get(1) == Some(&after.name)
            };
            if !keys.iter().any(is_of) {
                continue;
            }
            if self.apps.traffic[id].presence.has_profile() {
                return Err(format!("traffic.{}: the number of its users follows a profile", after.name));
            }
            changes.push(Change::Kind(id, Box::new(after.kind.clone())));
            let (were, are) = (build::users(&before.kind), build::users(&after.kind));
            if were != are {
                changes.push(Change::Users(id, were, are));
            }
        }
        Ok(changes)
    }

    /// The AQMs of a gateway's queues.
    fn aqms_of(&self, number: usize, gateway: &Gateway) -> Result<Aqms, String> {
        let mut aqms = Vec::new();
        for id in self.gateways.ids() {
            let node = &self.gateways[id];
            let back = gateway.back.as_deref().filter(|_| node.terminal.is_some());
            let spec = &back.unwrap_or(gateway).aqm;
            if node.number == number {
                aqms.push((id, changed_aqm(spec, &gateway.name)?));
            }
        }
        Ok(aqms)
    }

    fn make(&mut self, change: Change, seed: u64) {
        let now = self.clock.now();
        match change {
            Change::GatewayRate(number, rate) => self.set_gateway_rate(number, rate),
            Change::GatewayAqm(aqms) => {
                for (id, aqm) in aqms {
                    self.gateways[id].gateway.set_aqm(aqm, now);
                    self.arm_gateway(id);
                }
            }
            Change::LinkRate(link, rate) => {
                self.network.links[link].engine.set_rate(rate);
                self.set_rate_of_followers(link, rate);
            }
            Change::LinkDelay(link, delay) => {
                self.network.links[link].engine.set_delay(delay);
            }
            Change::LinkAqm(link, aqm) => {
                self.network.links[link].engine.set_aqm(aqm, now);
                self.network.arm(link, &mut self.clock);
            }
            Change::Kind(traffic, kind) => {
                self.apps.traffic[traffic].kind = build::kind(&kind);
                let sources: Vec<SourceId> = self.sources_of(traffic).collect();
                sources.into_iter().for_each(|source| self.apps.renew_pattern(source));
            }
            Change::Users(traffic, before, after) => self.set_users(traffic, before, after, seed),
        }
    }

    fn set_gateway_rate(&mut self, number: usize, rate: Rate) {
        let now = self.clock.now();
        for id in self.gateways.ids() {
            let node = &mut self.gateways[id];
            if node.number != number || node.terminal.is_some() {
                continue;
            }
            node.rate = rate;
            if let Some(advisor) = &mut node.advisor {
                advisor.set_capacity(rate);
            }
            if let Some((carrier, _)) = node.carrier {
                self.carriers[carrier].carrier.set_rate(rate, now);
                self.carriers[carrier].arm(carrier, &mut self.clock);
            } else {
                node.gateway.set_rate(rate, now);
            }
            self.arm_gateway(id);
        }
    }

    fn sources_of(&self, traffic: TrafficId) -> impl Iterator<Item = SourceId> {
        self.apps.sources.ids().filter(move |id| self.apps.sources[*id].traffic == traffic)
    }

    /// Changes the number of users of a traffic entry: the last ones finish their page or leave at once, or others come.
    fn set_users(&mut self, traffic: TrafficId, before: u32, after: u32, seed: u64) {
        self.apps.traffic[traffic].presence.set_users(after);
        let is_pages = matches!(self.apps.traffic[traffic].kind, crate::apps::Kind::Pages { .. });
        let sessions: Vec<SessionId> =
            self.apps.sessions.ids().filter(|id| self.apps.sessions[*id].traffic == traffic).collect();
        let sources: Vec<SourceId> = self.sources_of(traffic).collect();
        let known = if is_pages { sessions.len() } else { sources.len() } as u32;
        for id in sessions {
            if (before..after).contains(&self.apps.sessions[id].number) {
                self.apps.call_back(id, &mut self.clock);
            }
        }
        for id in sources {
            let number = self.apps.sources[id].number;
            if (after..before).contains(&number) {
                if self.apps.send_away(id) {
                    self.leave(id);
                }
            } else if (before..after).contains(&number) {
                self.apps.call_in(id, &mut self.clock);
            }
        }
        let name = format!("traffic.{}", self.apps.traffic[traffic].name);
        for number in known..after {
            let rng = Rng::stream(seed, &name, u64::from(number), "flow");
            if is_pages {
                let session = self.apps.sessions.push(Session::new(traffic, number, rng));
                self.clock.at(self.clock.now(), crate::clock::Event::Session(session));
            } else {
                let source = self.apps.sources.push(Source::new(traffic, number, rng, None));
                self.apps.call_in(source, &mut self.clock);
            }
        }
    }
}

/// Builds an AQM that changes at `place`.
fn changed_aqm(spec: &AqmSpec, place: &str) -> Result<Box<dyn Aqm>, String> {
    if !spec.outside.is_empty() {
        return Err(format!(
            "{place}: the AQM {} is written in Python, and cannot change during a run",
            spec.label
        ));
    }
    spec.build().map_err(|e| format!("{place}: {e}"))
}

/// Keys that were given and whose values differ.
fn differing(old: &[Effective], new: &[Effective]) -> Vec<String> {
    let find = |rows: &[Effective], key: &str| rows.iter().find(|row| row.key == key).cloned();
    let is_default = |row: &Option<Effective>| row.as_ref().is_none_or(|row| row.origin == Origin::Default);
    let keys = old.iter().chain(new).map(|row| row.key.clone());
    let mut found = Vec::new();
    for key in keys {
        let (before, after) = (find(old, &key), find(new, &key));
        let value = |row: &Option<Effective>| row.as_ref().map(|row| row.value.clone());
        let is_derived = is_default(&before) && is_default(&after);
        if value(&before) != value(&after) && !is_derived && !found.contains(&key) {
            found.push(key);
        }
    }
    found
}

fn changes_of_link(
    (name, keys): (&str, &[String]),
    link: LinkDirectionId,
    before: &Direction,
    after: &Direction,
) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    if before.rate != after.rate {
        let is_constant = |d: &Direction| {
            d.capacity.is_none() && d.demand.is_none() && d.access.is_none() && d.rate.is_some()
        };
        let rate = after.rate.filter(|_| is_constant(before) && is_constant(after));
        let rate =
            rate.ok_or_else(|| format!("link.{name}.rate can change during a run only if it is constant"))?;
        changes.push(Change::LinkRate(link, rate));
    }
    let fixed = |delay: &Delay| delay.fixed().filter(|_| matches!(delay.per, Per::Packet { ordered: true }));
    let key = format!("link.{name}.");
    let is_named = |key_of: &str| keys.iter().any(|other| other.starts_with(&key) && other.ends_with(key_of));
    if is_named("delay") && fixed(&before.delay) != fixed(&after.delay) {
        let (Some(_), Some(delay)) = (fixed(&before.delay), fixed(&after.delay)) else {
            return Err(format!(
                "link.{name}.delay can change during a run only if it is the same for all packets"
            ));
        };
        changes.push(Change::LinkDelay(link, delay));
    }
    Ok(changes)
}

/// True for a key of an AQM. A link may have that name itself.
fn is_of_aqm(steps: &[String]) -> bool {
    let names = if steps[0] == "link" { 2 } else { 1 };
    steps.iter().skip(names).any(|step| step == "aqm")
}

fn is_changeable(steps: &[String]) -> bool {
    match steps.first().map(String::as_str) {
        Some("gateway") => is_of_aqm(steps) || steps.ends_with(&["regulator".to_owned(), "rate".to_owned()]),
        Some("link") => {
            is_of_aqm(steps) || steps.last().is_some_and(|last| last == "rate" || last == "delay")
        }
        Some("traffic") => steps.get(2).is_some_and(|key| OF_TRAFFIC.contains(&key.as_str())),
        _ => false,
    }
}

/// The steps of a dotted key; a quoted step may have points.
fn steps(key: &str) -> Vec<String> {
    let (mut steps, mut is_quoted) = (vec![String::new()], false);
    for c in key.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => steps.push(String::new()),
            c => steps.last_mut().into_iter().for_each(|step| step.push(c)),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_key_may_be_quoted() {
        assert_eq!(steps("link.\"a.b\".rate"), ["link", "a.b", "rate"]);
        assert_eq!(steps("run"), ["run"]);
    }

    #[test]
    fn keys_that_shape_the_network_cannot_change() {
        let changeable = |key: &str| is_changeable(&steps(key));
        for key in [
            "gateway.regulator.rate",
            "gateway.aqm.max_p",
            "link.a.delay",
            "link.a.reverse.rate",
            "link.aqm.queue.aqm.max_p",
            "traffic.w.sessions",
        ] {
            assert!(changeable(key), "{key}");
        }
        for key in [
            "gateway.watch",
            "run.duration",
            "host.client.count",
            "traffic.web.from",
            "link.a.between",
            "link.aqm.between",
        ] {
            assert!(!changeable(key), "{key}");
        }
    }
}
