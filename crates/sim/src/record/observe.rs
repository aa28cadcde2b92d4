//! Observed packets: the types in which the caller sees them. Observing changes nothing of the run.

use bentpipe_scenario::Scenario;
use bentpipe_transport::{pep_link, sctp, tcp};
use bentpipe_units::{Instant, Rate};

use super::log::LogWatch;
use super::trace::Selector;

/// Links and flows to observe.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Names of links whose packets are observed. If a link stands for one per host, its name selects all of them, and the
    /// name with `.0`, `.1`, … one of them.
    pub links: Vec<String>,
    /// Flows whose senders are traced.
    pub flows: Vec<Selector>,
    /// Connections that are logged.
    pub logs: Option<LogWatch>,
}

/// One direction of a watched link. All packets are observed at the link's first node: those that it sends, and those that
/// arrive there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index of the link among [`Watch::links`].
    pub watched: usize,
    /// Name of the direction, as in the table of drops.
    pub name: String,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// True if the first node sends them, false if they arrive there.
    pub outbound: bool,
    /// Mean rate; `None` if unlimited.
    pub rate: Option<Rate>,
    /// Place of the direction among the run's links.
    pub(crate) link: u32,
}

/// The interfaces of the links with these names.
///
/// # Errors
/// A link that does not exist, or is named twice; and the links that exist.
pub fn interfaces(scenario: &Scenario, names: &[String]) -> Result<Vec<Interface>, String> {
    let mut found: Vec<Interface> = Vec::new();
    for (watched, name) in names.iter().enumerate() {
        let before = found.len();
        let mut first = 0;
        for link in &scenario.links {
            let members = scenario.members(link);
            for member in 0..members {
                let one = if members == 1 { link.name.clone() } else { format!("{}.{member}", link.name) };
                let index = first + 2 * member;
                if *name != link.name && *name != one {
                    continue;
                }
                if found.iter().any(|other| other.link == index) {
                    return Err(format!("link {name}: is named twice"));
                }
                let node = |node: &String| {
                    let hosts = scenario.hosts.iter().map(|host| (&host.name, host.count));
                    let terminals = scenario.gateways.iter().flat_map(|gateway| gateway.terminals.iter());
                    let mut groups = hosts.chain(terminals.map(|group| (&group.name, group.count)));
                    let group = groups.any(|(name, count)| name == node && count == members);
                    if group && members > 1 { format!("{node}.{member}") } else { node.clone() }
                };
                let (a, b) = (node(&link.between.0), node(&link.between.1));
                found.push(Interface {
                    watched,
                    name: one.clone(),
                    from: a.clone(),
                    to: b.clone(),
                    outbound: true,
                    rate: link.forward.mean_rate(),
                    link: index,
                });
                found.push(Interface {
                    watched,
                    name: format!("{one} reverse"),
                    from: b,
                    to: a,
                    outbound: false,
                    rate: link.reverse.mean_rate(),
                    link: index + 1,
                });
            }
            first += 2 * members;
        }
        if found.len() == before {
            let names: Vec<_> = scenario.links.iter().map(|link| link.name.as_str()).collect();
            return Err(format!("there is no link \"{name}\"; there are {}", names.join(", ")));
        }
    }
    Ok(found)
}

/// A packet observed on a watched link.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Time.
    pub time: Instant,
    /// Interface (an index of [`interfaces`]).
    pub interface: u32,
    /// Length on the wire, as simulated [bytes].
    pub len: u32,
    /// True if the link loses it.
    pub lost: bool,
    /// Its content.
    pub packet: Packet,
}

/// Content of an observed packet.
#[derive(Clone, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp {
        /// Its hosts.
        ends: Ends,
        /// The segment, congestion marks included.
        segment: tcp::Segment,
        /// Maximum segment size that its sender announces [bytes].
        mss: u32,
        /// Largest window that its sender may advertise [bytes].
        receive_window: u32,
        /// Window scale of its sender; `None` if windows have 32 bits.
        window_scale: Option<u8>,
    },
    /// An SCTP packet.
    Sctp {
        /// Its hosts.
        ends: Ends,
        /// The packet.
        packet: Box<sctp::Packet>,
    },
    /// A datagram of QUIC.
    Quic {
        /// Its hosts.
        ends: Ends,
        /// Its code point.
        ecn: tcp::Ecn,
        /// True if all data of streams in it was sent before.
        is_repeated: bool,
        /// Its payload, with null crypto.
        payload: Vec<u8>,
    },
    /// A datagram.
    Datagram {
        /// Its hosts.
        ends: Ends,
    },
    /// Data on a PEP link.
    PepData {
        /// Its ends.
        ends: PepEnds,
        /// The packet.
        data: pep_link::Data,
    },
    /// An acknowledgement on a PEP link.
    PepAck {
        /// Its ends.
        ends: PepEnds,
        /// The acknowledgement.
        ack: Box<pep_link::Ack>,
    },
}

/// The ends of a PEP link between which a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PepEnds {
    /// Number of the terminal among all of the scenario.
    pub terminal: u32,
    /// True if it goes to the terminal.
    pub to_terminal: bool,
    /// True on the PEP link of uploads.
    pub of_uploads: bool,
}

/// The hosts between which a packet of a flow travels. PEPs are transparent: they send in the names of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The flow.
    pub flow: u32,
    /// Its traffic (an index of [`crate::Results::traffic`]).
    pub traffic: u32,
    /// Leg of the flow, in the direction of the data.
    pub leg: u32,
    /// Host that sends the flow's data, numbered among all hosts of the scenario.
    pub sender: u32,
    /// Host that receives it.
    pub receiver: u32,
    /// True if the packet travels with the data, false if against it.
    pub with_data: bool,
    /// True if the data's sender opened the connection.
    pub sender_opened: bool,
    /// Changes of the address of the host that opened it before the packet was sent.
    pub address: u32,
}
