//! Terminals of a gateway, and their plans.

use bentpipe_gateway::Request;
use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::indexes::{HostIndex, LinkIndex};
use super::link::{Direction, Link};

/// A group of terminals of one gateway, alike but for what their links draw at random.
#[derive(Clone, Debug, Serialize)]
pub struct TerminalGroup {
    /// Name of the group's node.
    pub name: String,
    /// Number of terminals.
    pub count: u32,
    /// Satellite links, one per terminal: those between the gateway and the group.
    pub link: LinkIndex,
    /// True if the satellite links' forward direction leads from the gateway to the terminals.
    pub link_forward: bool,
    /// Share of each terminal in the carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Share of each terminal in the return carrier; that of the gateway's return direction is its plan.
    #[serde(skip)]
    pub up: Option<Plan>,
    /// The pool that they are in, by its number among the gateway's; `None` if they share the carrier directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<usize>,
    /// Lowest peak rate of the pools above.
    #[serde(skip)]
    pub pool_pir: Option<Rate>,
    /// Hosts with queues at the gateway, if each has its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Subscribers>,
    /// Handover of the terminals to another gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<GatewayHandover>,
}

/// Handover of the terminals of a group to another gateway.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GatewayHandover {
    /// Time since the start of the run.
    pub at: Duration,
    /// Satellite links of the group that stands for the terminals at the other gateway.
    pub to: LinkIndex,
    /// Fate of connections.
    pub connections: OnHandover,
}

/// Fate of connections when their terminal moves to another gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnHandover {
    /// They end, and sources open new ones.
    #[default]
    Break,
    /// They continue, with the state of the PEP and of the spacelink.
    Survive,
}

/// A group of hosts behind the terminals of a group: host `i` is behind terminal `i mod n` of `n`.
#[derive(Clone, Debug, Serialize)]
pub struct Subscribers {
    /// The group.
    pub host: HostIndex,
    /// Number of them behind each terminal.
    pub each: u32,
    /// Share of each in its terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

/// A part of a carrier that several terminals or pools share.
#[derive(Clone, Debug, Serialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The pool that it is in, by its number among the gateway's, which is less than its own; `None` if it shares the carrier
    /// directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Its share in the parent.
    pub share: Plan,
    /// Its share in the parent in the return direction, which is the pool's share there.
    #[serde(skip)]
    pub up: Option<Plan>,
}

/// Returns the names of a pool and of those that it is in, the outermost first, divided by slashes.
#[must_use]
pub fn pool_path(pools: &[Pool], pool: usize) -> String {
    let above = std::iter::successors(Some(pool), |pool| pools[*pool].parent);
    let mut names: Vec<_> = above.map(|pool| pools[pool].name.as_str()).collect();
    names.reverse();
    names.join("/")
}

impl Subscribers {
    /// Returns the committed rate of those behind a terminal, all together.
    #[must_use]
    pub fn committed(&self) -> Rate {
        let cir = self.plan.map_or(0, |plan| plan.cir.as_bps());
        Rate::from_bps(cir.saturating_mul(self.each.into()))
    }
}

impl TerminalGroup {
    /// Returns a group without plan, pool and subscribers; the link is given with its direction.
    #[must_use]
    pub(crate) fn new(name: &str, count: u32, (link, link_forward): (LinkIndex, bool)) -> Self {
        let (plan, up, pool, pool_pir, handover) = (None, None, None, None, None);
        let (name, subscribers) = (name.to_owned(), Vec::new());
        Self { name, count, link, link_forward, plan, up, pool, pool_pir, subscribers, handover }
    }

    /// Returns the highest rate of a terminal on a carrier of this rate: the lowest of the carrier's, those of its pools and
    /// that of its plan.
    #[must_use]
    pub fn peak(&self, carrier: Rate) -> Rate {
        let own = self.plan.and_then(|plan| plan.pir);
        own.into_iter().chain(self.pool_pir).fold(carrier, Rate::min)
    }

    /// Returns the number of queues for each terminal if each subscriber has its own: those of its hosts, and that of the
    /// terminal itself for packets of no host, such as acknowledgements of the spacelink.
    #[must_use]
    pub fn queues_each(&self) -> u32 {
        1 + self.subscribers.iter().map(|group| group.each).sum::<u32>()
    }

    /// Returns the place of the first host of a group among the queues of its terminal.
    #[must_use]
    pub fn first_queue_of(&self, group: HostIndex) -> Option<u32> {
        let place = self.subscribers.iter().position(|known| known.host == group)?;
        Some(1 + self.subscribers[..place].iter().map(|known| known.each).sum::<u32>())
    }

    /// Returns the committed rate of a terminal: that of its plan, or the sum of its subscribers' if that is more.
    #[must_use]
    pub fn committed(&self) -> Rate {
        let own = self.plan.map_or(Rate::default(), |plan| plan.cir);
        let each = self.subscribers.iter().map(|group| group.committed().as_bps());
        own.max(Rate::from_bps(each.fold(0, u64::saturating_add)))
    }

    /// Returns the direction of the satellite links that leads to the terminals.
    #[must_use]
    pub fn downlink<'a>(&self, links: &'a [Link]) -> &'a Direction {
        let link = &links[self.link];
        if self.link_forward { &link.forward } else { &link.reverse }
    }
}

/// The terminals of a gateway: at least one group.
///
/// Host `i` of a group of hosts behind `n` terminals is behind terminal `i mod n`.
#[derive(Clone, Debug)]
pub struct Terminals(pub Vec<TerminalGroup>);

impl Terminals {
    /// Returns the only terminal; `None` if there are several.
    #[must_use]
    pub fn only(&self) -> Option<&TerminalGroup> {
        match self.0.as_slice() {
            [group] if group.count == 1 => Some(group),
            _ => None,
        }
    }

    /// Returns the number of terminals.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|group| group.count).sum()
    }

    /// Returns the groups.
    pub fn iter(&self) -> std::slice::Iter<'_, TerminalGroup> {
        self.0.iter()
    }

    /// Returns the number of the first terminal of the group whose satellite links these are, among the gateway's terminals,
    /// and the group.
    #[must_use]
    pub fn on_link(&self, link: LinkIndex) -> Option<(u32, &TerminalGroup)> {
        let mut first = 0;
        for group in &self.0 {
            if group.link == link {
                return Some((first, group));
            }
            first += group.count;
        }
        None
    }
}

impl Serialize for Terminals {
    /// Serializes the only terminal as three keys, several as a list.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let is_plain = |group: &&TerminalGroup| {
            group.plan.is_none()
                && group.pool.is_none()
                && group.subscribers.is_empty()
                && group.handover.is_none()
        };
        match self.only().filter(is_plain) {
            Some(group) => {
                map.serialize_entry("terminal", &group.name)?;
                map.serialize_entry("link", &group.link)?;
                map.serialize_entry("link_forward", &group.link_forward)?;
            }
            None => map.serialize_entry("terminals", &self.0)?,
        }
        map.end()
    }
}

/// Share of a terminal, a pool or a subscriber in what is above it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Constant rate, assigned without requests (CRA) in the return direction; zero for none.
    #[serde(skip_serializing_if = "is_none")]
    pub cra: Rate,
    /// Committed information rate; zero for none.
    pub cir: Rate,
    /// Peak information rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pir: Option<Rate>,
    /// Weight by which they share what the committed rates leave.
    pub weight: u32,
    /// Bytes that may exceed the peak rate at once [bytes].
    pub burst: u64,
}

impl Plan {
    /// Share without rates, of weight 1.
    pub(crate) const NONE: Self =
        Self { cra: Rate::from_bps(0), cir: Rate::from_bps(0), pir: None, weight: 1, burst: 0 };
}

/// A return carrier that terminals share by demand assignment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReturnCarrier {
    /// Length of a superframe.
    pub superframe: Duration,
    /// Time from a request to the superframe that it is granted in.
    pub round_trip: Duration,
    /// Kind of the requests of terminals.
    #[serde(serialize_with = "request")]
    pub request: Request,
}

fn request<S: Serializer>(request: &Request, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match request {
        Request::Rate => "rbdc",
        Request::Volume => "vbdc",
    })
}

fn is_none(rate: &Rate) -> bool {
    rate.as_bps() == 0
}

/// Users of one receive queue, AQM and transmit queue of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueuesPer {
    /// All terminals of the carrier share them.
    #[default]
    Carrier,
    /// Each terminal has its own; a scheduler shares the carrier among the terminals by their plans.
    Terminal,
    /// Each host behind a terminal has its own; a scheduler shares the carrier among terminals, and what each gets among its
    /// hosts, by their plans.
    Subscriber,
}

impl QueuesPer {
    /// Returns the name in a scenario.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Carrier => "carrier",
            Self::Terminal => "terminal",
            Self::Subscriber => "subscriber",
        }
    }

    /// Returns true for the default.
    #[must_use]
    pub fn is_carrier(&self) -> bool {
        *self == Self::Carrier
    }
}
