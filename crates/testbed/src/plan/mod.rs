#![doc = include_str!("../../plan.md")]

mod file;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use bentpipe_scenario::{HostIndex, Scenario, Traffic};
use bentpipe_units::{Duration, Instant};
use serde::Deserialize;

/// Mistake in a plan: key, value found, values allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// A checked plan.
#[derive(Debug)]
pub struct Plan {
    /// The scenario.
    pub scenario: Scenario,
    /// Seed of all random numbers.
    pub seed: u64,
    /// CLOCK_MONOTONIC at the scenario's time zero [ns]; `None`: the start of the command.
    pub origin: Option<u64>,
    /// End of the load.
    pub until: Instant,
    /// Namespaces of `load` and `serve`.
    pub netns: Netns,
    /// Addresses for each host group of the scenario; `None` for a group that the plan does not mention.
    pub hosts: Vec<Option<Hosts>>,
    /// Emulated segments.
    pub segments: Vec<Segment>,
    /// Workloads, in the order of the scenario's traffic.
    pub workloads: Vec<Workload>,
    /// File for the flow records.
    pub out: Option<PathBuf>,
}

/// Index of a [`Workload`] in [`Plan::workloads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadId(u32);

impl WorkloadId {
    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Network namespaces of the two sides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netns {
    /// Namespace of `serve`; `None`: that of the command.
    pub servers: Option<PathBuf>,
    /// Namespace of `load`; `None`: that of the command.
    pub clients: Option<PathBuf>,
}

/// Side of the network that hosts are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The namespace of `serve` or nginx.
    Servers,
    /// The namespace of `load`, which opens all connections.
    Clients,
}

/// Server program of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `bentpipe-testbed serve`.
    #[default]
    Serve,
    /// nginx, or another HTTP server that sends ranges of a file.
    Nginx,
}

/// Hosts of a group.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Side of the network.
    pub side: Side,
    /// Addresses of each host.
    pub addresses: Vec<Vec<IpAddr>>,
}

/// Part of the path between two namespaces, with a device at each end.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Name in statistics.
    pub name: String,
    /// Maximum length of a packet [bytes].
    pub mtu: u32,
    /// Both ends.
    pub ends: [End; 2],
    /// Links that packets pass from the first end to the second, in this order.
    pub links: Vec<SegmentLink>,
}

/// End of a segment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Namespace of the device; `None`: that of the command.
    pub netns: Option<PathBuf>,
    /// Name of the device.
    pub device: String,
}

/// Link of a segment.
#[derive(Clone, Debug)]
pub struct SegmentLink {
    /// Index of the scenario's link.
    pub link: usize,
    /// Terminal at its end, by its number in its group; `None` for a link that is not one of several terminals.
    pub terminal: Option<u32>,
    /// True if the link's forward direction leads from the segment's second end to the first.
    pub against: bool,
    /// Impairments in addition to those of the scenario.
    pub extras: Extras,
    /// Modem socket of a gateway that is told the capacity towards the segment's second end.
    pub modem: Option<PathBuf>,
}

/// Impairments of a link in both directions, in addition to those of the scenario.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Outages, from and to: all packets sent in between are lost.
    pub outages: Vec<(Instant, Instant)>,
    /// Loss probability.
    pub loss: f64,
    /// Probability that a packet is delayed while others overtake it, and the additional delay.
    pub reorder: (f64, Duration),
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
}

/// Traffic of the scenario that is generated.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Index of the scenario's traffic.
    pub traffic: usize,
    /// Port of the servers.
    pub port: u16,
    /// Server program.
    pub by: By,
    /// Path of the requested object.
    pub path: String,
    /// True for IPv6, false for IPv4.
    pub ipv6: bool,
    /// True if received bytes are compared with [`crate::content`].
    pub verify: bool,
    /// Congestion control of the sending sockets; `None`: the system's default.
    pub congestion: Option<String>,
    /// True if clients send.
    pub upload: bool,
}

impl Plan {
    /// Parses a plan; `name` stands for it in messages.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn parse(text: &str, name: &str) -> Result<Self, PlanError> {
        file::parse(text).map_err(|problem| PlanError(format!("{name}: {problem}")))
    }

    /// Reads a plan's file.
    ///
    /// # Errors
    /// If the file cannot be read; the first mistake found.
    pub fn load(path: &str) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| PlanError(format!("{path}: cannot be read: {e}; allowed: a plan in JSON")))?;
        Self::parse(&text, path)
    }

    /// Begin and end of the measurement.
    #[must_use]
    pub fn measured(&self) -> (Instant, Instant) {
        let begin = Instant::ZERO + self.scenario.run.warmup;
        (begin, begin + self.scenario.run.duration)
    }

    /// All workloads with their ids.
    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        (0..).map(WorkloadId).zip(&self.workloads)
    }

    /// The workload with this id.
    #[must_use]
    pub fn workload(&self, id: WorkloadId) -> &Workload {
        &self.workloads[id.index()]
    }

    /// The scenario's traffic of a workload.
    #[must_use]
    pub fn traffic(&self, workload: &Workload) -> &Traffic {
        &self.scenario.traffic[workload.traffic]
    }

    /// Address of a host of a group; hosts beyond the group's address list share its addresses in turn.
    #[must_use]
    pub fn address(&self, group: HostIndex, host: u32, ipv6: bool) -> Option<IpAddr> {
        let hosts = self.hosts.get(group.0)?.as_ref()?;
        let addresses = hosts.addresses.get(host as usize % hosts.addresses.len().max(1))?;
        addresses.iter().find(|address| address.is_ipv6() == ipv6).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation, with a scenario that is shipped.
    #[test]
    fn the_example_in_the_documentation_is_a_valid_plan() {
        let text = include_str!("../../plan.md").split("```").nth(1).unwrap().trim_start_matches("json");
        let folder = "../../scenarios/";
        let plan = Plan::parse(&text.replace("scenarios/", folder), "example").unwrap();
        assert_eq!((plan.segments.len(), plan.workloads.len()), (3, 1));
        assert_eq!(plan.scenario.label(), "avqred");
        assert_eq!(plan.address(HostIndex(0), 5, true), Some("fd01::1".parse().unwrap()));
        assert_eq!(plan.address(HostIndex(1), 12, false), Some("10.3.0.3".parse().unwrap()));
        assert_eq!(plan.address(HostIndex(1), 0, true), None);
        let extras = &plan.segments[1].links[0].extras;
        assert_eq!(extras.reorder, (0.01, Duration::from_millis(20)));
        assert_eq!(extras.outages[0].1, Instant::ZERO + Duration::from_secs(70));
        assert!(!plan.workloads[0].upload);
    }

    /// A gateway with two terminals, and a link from each to its client.
    const TERMINALS: &str = "title = \"t\"\n[run]\nduration = \"1 s\"\n[host.server]\n[host.user]\ncount = 2\n\
        [terminal.home]\ncount = 2\n[link.a]\nbetween = [\"server\", \"gateway\"]\n\
        [link.homes]\nbetween = [\"gateway\", \"home\"]\n[link.access]\nbetween = [\"home\", \"user\"]\n\
        [gateway]\nterminals = [\"home\"]\naqm = { algorithm = \"red\" }\nregulator = { rate = \"1 Mbps\" }\n\
        [traffic.x]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"user\"\n";

    #[test]
    fn each_of_several_terminals_has_a_satellite_link_and_a_link_to_its_hosts() {
        let plan = |entries: [serde_json::Value; 2]| {
            let segment = |n: usize, end: &str, links: &serde_json::Value| {
                serde_json::json!({ "a": { "device": format!("{end}a{n}") }, "b": { "device": format!("{end}b{n}") },
                                    "links": [links] })
            };
            let satellite = entries.iter().enumerate().map(|(n, entry)| segment(n, "s", entry));
            let access = [0, 1].map(|n| segment(n, "l", &"access".into()));
            let users = serde_json::json!({ "side": "clients", "addresses": ["10.3.0.1", "10.3.1.1"] });
            let text = serde_json::json!({
                "scenario": { "file": "t.toml", "text": TERMINALS },
                "hosts": { "user": users },
                "segments": satellite.chain(access).collect::<Vec<_>>(),
            });
            Plan::parse(&text.to_string(), "plan")
        };
        let link = |terminal: u32| serde_json::json!({ "link": "homes", "terminal": terminal });
        let found = plan([link(0), link(1)]).unwrap();
        let terminals: Vec<_> = found.segments.iter().map(|segment| segment.links[0].terminal).collect();
        assert_eq!(terminals, [Some(0), Some(1), None, None]);
        for (entries, problem) in [
            ([link(0), link(0)], "plan: segments[1].links[0]: found \"homes\" a second time"),
            ([link(0), link(2)], "plan: segments[1].links[0].terminal: found 2; allowed: 0 to 1"),
            (
                [link(0), "homes".into()],
                "plan: segments[1].links[0]: found a link of 2 terminals without \"terminal\"; allowed: the number of one",
            ),
            (
                [link(0), serde_json::json!({ "link": "a", "terminal": 0 })],
                "plan: segments[1].links[0].terminal: found 0; allowed: only for a link between a gateway and several",
            ),
        ] {
            let message = plan(entries).unwrap_err().to_string();
            assert!(message.starts_with(problem), "{message}");
        }
    }

    #[test]
    fn a_plan_can_contain_the_scenario_and_its_files() {
        let text = "title = \"t\"\n[run]\nduration = \"1 s\"\n[host.a]\n[host.b]\n[link.l]\nbetween = [\"a\", \"b\"]\n\
                    capacity = { trace = \"t.dat\" }\nqueue = { aqm = { algorithm = \"red\" } }\n\
                    [traffic.x]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n";
        let plan = |content: &str| {
            let files = serde_json::json!({ "t.dat": content });
            let scenario = serde_json::json!({ "file": "t.toml", "text": text, "files": files });
            Plan::parse(&serde_json::json!({ "scenario": scenario }).to_string(), "plan")
        };
        // "1\n2\n"
        assert!(plan("MQoyCg==").is_ok());
        let message = plan("?").unwrap_err().to_string();
        assert!(message.starts_with("plan: scenario.files.\"t.dat\": found "), "{message}");
    }
}
