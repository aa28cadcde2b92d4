//! The watched queue: queue of the scenario's subject, with its AQM and limit.

use bentpipe_queue::{Limit, Marking};
use bentpipe_scenario::{AqmSpec, Direction, Gateway, GatewayQueue, Hop, LinkIndex, Scenario, Subject};

use crate::capacity::Capacity;
use crate::error::{Error, wrong};

/// The watched queue.
pub(crate) struct WatchedQueue<'a> {
    pub(crate) gateway: Option<&'a Gateway>,
    /// Link behind the queue or gateway.
    pub(crate) link: LinkIndex,
    pub(crate) aqm: &'a AqmSpec,
    pub(crate) marking: Marking,
    /// Factor of a window decrease.
    pub(crate) decrease: f64,
    pub(crate) limit: Limit,
}

impl<'a> WatchedQueue<'a> {
    /// Returns the queue of the subject.
    pub(crate) fn of(scenario: &'a Scenario) -> Result<Self, Error> {
        if let Some(moving) = scenario.traffic.iter().find(|traffic| !traffic.routes_after.is_empty()) {
            return wrong(format!(
                "traffic.{}: found a way over a terminal with a handover to another gateway; allowed in a fluid model: \
                 terminals that stay",
                moving.name
            ));
        }
        match scenario.subject {
            Subject::Gateway(i) => {
                let gateway = &scenario.gateways[i];
                let Some(terminal) = gateway.terminals.only() else {
                    return wrong(format!(
                        "gateway: found {} terminals; allowed in a fluid model: one",
                        gateway.terminals.count()
                    ));
                };
                let scheduler = gateway.transmit_queue.scheduler.discipline;
                if scheduler.signals {
                    return wrong(format!(
                        "transmit_queue.scheduler: found {}, which signals congestion itself; allowed in a fluid model: \
                         one that does not",
                        scheduler.name
                    ));
                }
                if !gateway.aqm.is_none()
                    && (gateway.watch, gateway.mark) != (GatewayQueue::Transmit, GatewayQueue::Receive)
                {
                    let name = |place| if place == GatewayQueue::Receive { "receive" } else { "transmit" };
                    return wrong(format!(
                        "gateway: found watch = {} and mark = {}; allowed in a fluid model: an AQM that watches the \
                         transmit queue and marks at the receive queue",
                        name(gateway.watch),
                        name(gateway.mark)
                    ));
                }
                let marking = gateway.marking.method.marking;
                let decrease =
                    if marking == Marking::Window { gateway.marking.values.number("decr") } else { 0.5 };
                let (link, limit) = (terminal.link, gateway.transmit_queue.limit);
                Ok(Self { gateway: Some(gateway), link, aqm: &gateway.aqm, marking, decrease, limit })
            }
            Subject::Return(i) => wrong(format!(
                "run.subject: found the queues at the terminals of {}; allowed in a fluid model: a gateway, or a link",
                scenario.gateways[i].name
            )),
            Subject::Link(link) => {
                let Some(queue) = &scenario.links[link].forward.queue else {
                    let problem = "found no queue; allowed in a fluid model: one with a limit or an AQM";
                    return wrong(format!("link.{}: {problem}", scenario.links[link].name));
                };
                if queue.scheduler.discipline.signals {
                    return wrong(format!(
                        "queue.scheduler: found {}, which signals congestion itself; allowed in a fluid model: one that \
                         does not",
                        queue.scheduler.discipline.name
                    ));
                }
                Ok(Self {
                    gateway: None,
                    link,
                    aqm: &queue.aqm,
                    marking: queue.marking,
                    decrease: 0.5,
                    limit: queue.limit,
                })
            }
        }
    }

    /// Refuses a link behind the queue with effects that the equations do not include.
    pub(crate) fn check_link(&self, scenario: &Scenario) -> Result<(), Error> {
        let (hop, link) = (self.hop(), &scenario.links[self.link]);
        let direction = direction_of(scenario, hop);
        let (key, found) = if direction.access.is_some() {
            (key_of(scenario, hop, "access"), "a link layer")
        } else if direction.demand.is_some() {
            (key_of(scenario, hop, "demand"), "demand assignment")
        } else if link.handover.is_some() {
            (format!("link.{}.handover", link.name), "handovers between satellites")
        } else {
            return Ok(());
        };
        wrong(format!("{key}: found {found} behind the subject's queue; allowed in a fluid model: none"))
    }

    /// Returns its link, with its direction.
    fn hop(&self) -> Hop {
        let terminal = self.gateway.and_then(|gateway| gateway.terminals.only());
        Hop { link: self.link, forward: terminal.is_none_or(|terminal| terminal.link_forward) }
    }

    /// Returns the capacity of its link; `seed` seeds a random one.
    pub(crate) fn capacity(&self, scenario: &Scenario, packet: f64, seed: u64) -> Result<Capacity, Error> {
        let link = &scenario.links[self.link];
        let rate = match self.gateway {
            Some(g) if !g.regulator.follows_link => Some(g.regulator.rate),
            Some(_) => {
                let direction = direction_of(scenario, self.hop());
                return Capacity::of(direction, &link.name, packet, (&scenario.run, seed));
            }
            None => link.forward.rate.filter(|_| link.forward.capacity.is_none()),
        };
        match rate {
            Some(rate) => Ok(Capacity::fixed(rate, packet)),
            None => Capacity::of(&link.forward, &link.name, packet, (&scenario.run, seed)),
        }
    }
}

/// Returns the direction of a link that a hop takes.
pub(crate) fn direction_of(scenario: &Scenario, hop: Hop) -> &Direction {
    let link = &scenario.links[hop.link];
    if hop.forward { &link.forward } else { &link.reverse }
}

/// Returns the name of a key of the direction that a hop takes, as in a scenario file.
pub(crate) fn key_of(scenario: &Scenario, hop: Hop, key: &str) -> String {
    let reverse = if hop.forward { "" } else { "reverse." };
    format!("link.{}.{reverse}{key}", scenario.links[hop.link].name)
}
