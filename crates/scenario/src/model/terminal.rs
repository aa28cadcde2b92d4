//! Terminals of a gateway, and their plans.

use bentpipe_gateway::Request;
use bentpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::indexes::LinkIndex;
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
}

impl TerminalGroup {
    /// Returns the highest rate of a terminal on a carrier of this rate: that of its plan, or the carrier's.
    #[must_use]
    pub fn peak(&self, carrier: Rate) -> Rate {
        self.plan.and_then(|plan| plan.pir).map_or(carrier, |pir| pir.min(carrier))
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
        match self.only().filter(|group| group.plan.is_none()) {
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

/// Share of a terminal in the carrier.
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
    /// Weight by which terminals share what the committed rates leave.
    pub weight: u32,
    /// Bytes that may exceed the peak rate at once [bytes].
    pub burst: u64,
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

/// Terminals that share a gateway's receive queue, AQM and transmit queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueuesPer {
    /// All terminals of the carrier share them.
    #[default]
    Carrier,
    /// Each terminal has its own; a scheduler shares the carrier among the terminals by their plans.
    Terminal,
}

impl QueuesPer {
    /// Returns true for the default.
    #[must_use]
    pub fn is_carrier(&self) -> bool {
        *self == Self::Carrier
    }
}
