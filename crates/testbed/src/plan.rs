#![doc = include_str!("../plan.md")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use bentpipe_scenario::{Hop, Packed, Scenario, Traffic, TrafficKind, Transport};
use bentpipe_units::{Duration, Instant};
use serde::Deserialize;

/// The longest name of a device [bytes].
const LONGEST_NAME: usize = 15;

/// What is wrong with a plan: what, where, what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenario: Source,
    #[serde(default = "one")]
    seed: u64,
    origin_ns: Option<u64>,
    until_s: Option<f64>,
    #[serde(default)]
    netns: Netns,
    #[serde(default)]
    hosts: BTreeMap<String, HostsFile>,
    #[serde(default)]
    segments: Vec<SegmentFile>,
    #[serde(default)]
    traffic: BTreeMap<String, TrafficFile>,
    out: Option<PathBuf>,
}

const fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    file: String,
    text: Option<String>,
    #[serde(default)]
    overrides: Vec<String>,
    setting: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// The namespaces of [`Plan::netns`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netns {
    /// Where `serve` runs; none: where it is started.
    pub servers: Option<PathBuf>,
    /// Where `load` runs; none: where it is started.
    pub clients: Option<PathBuf>,
}

/// In whose namespace hosts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// In that of `serve` or nginx.
    Servers,
    /// In that of `load`, which opens all connections.
    Clients,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    side: Side,
    addresses: Vec<Addresses>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Addresses {
    One(IpAddr),
    Some(Vec<IpAddr>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentFile {
    name: Option<String>,
    #[serde(default = "mtu")]
    mtu: u32,
    a: End,
    b: End,
    links: Vec<LinkEntry>,
}

const fn mtu() -> u32 {
    1500
}

/// One end of a segment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The namespace that the device is made in; none: that of the command.
    pub netns: Option<PathBuf>,
    /// Name of the device.
    pub device: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum LinkEntry {
    Name(String),
    Link(LinkFile),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    link: String,
    #[serde(default)]
    against: bool,
    #[serde(default)]
    outage: Vec<(f64, f64)>,
    #[serde(default)]
    loss: f64,
    reorder: Option<ReorderFile>,
    #[serde(default)]
    duplicate: f64,
    modem: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReorderFile {
    probability: f64,
    by_s: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficFile {
    port: Option<u16>,
    #[serde(default)]
    by: By,
    path: Option<String>,
    family: Option<u8>,
    verify: Option<bool>,
    congestion: Option<String>,
}

/// Who answers in the servers' namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `bentpipe-testbed serve`.
    #[default]
    Serve,
    /// nginx, or another HTTP server with a file for ranges of it.
    Nginx,
}

/// What is to be played, checked.
#[derive(Debug)]
pub struct Plan {
    /// The scenario.
    pub scenario: Scenario,
    /// What random numbers hang on.
    pub seed: u64,
    /// CLOCK_MONOTONIC at the scenario's time zero [ns]; none: when the command begins.
    pub origin: Option<u64>,
    /// When load ends.
    pub until: Instant,
    /// The namespaces of load and serve.
    pub netns: Netns,
    /// For each group of the scenario's hosts; none where the plan says nothing of it.
    pub hosts: Vec<Option<Hosts>>,
    /// What is emulated.
    pub segments: Vec<Segment>,
    /// What is loaded, in the order of the scenario.
    pub traffic: Vec<Load>,
    /// Where flows are written.
    pub out: Option<PathBuf>,
}

/// The hosts of a group.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Where they are.
    pub side: Side,
    /// For each host, its addresses.
    pub addresses: Vec<Vec<IpAddr>>,
}

/// A stretch of the way between two namespaces.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name, in statistics.
    pub name: String,
    /// The longest packet [bytes].
    pub mtu: u32,
    /// Its ends.
    pub ends: [End; 2],
    /// What packets pass from the first end to the second, one after the other.
    pub links: Vec<SegmentLink>,
}

/// A link of a segment.
#[derive(Clone, Debug)]
pub struct SegmentLink {
    /// The scenario's link (an index).
    pub link: usize,
    /// Whether its way forward leads from the segment's second end to its first.
    pub against: bool,
    /// What befalls packets beside what the scenario says.
    pub extras: Extras,
    /// A gateway's socket, which is told the capacity of the way to the segment's second end.
    pub modem: Option<PathBuf>,
}

/// What befalls packets of a link, both ways, beside what the scenario says.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// When all that is sent is lost: from, to.
    pub outages: Vec<(Instant, Instant)>,
    /// Probability to be lost.
    pub loss: f64,
    /// Probability to be late, and by how much; the next packets overtake.
    pub reorder: (f64, Duration),
    /// Probability to arrive twice.
    pub duplicate: f64,
}

/// Traffic to be played.
#[derive(Clone, Debug)]
pub struct Load {
    /// The scenario's traffic (an index).
    pub traffic: usize,
    /// The servers' port.
    pub port: u16,
    /// Who answers there.
    pub by: By,
    /// What is asked for.
    pub path: String,
    /// Whether IPv6 carries it.
    pub ipv6: bool,
    /// Whether bytes are compared with [`crate::content`].
    pub verify: bool,
    /// Congestion control of the sending sockets; none: the system's.
    pub congestion: Option<String>,
    /// Whether clients send.
    pub upload: bool,
}

impl Plan {
    /// Reads a plan; `name` is what messages call it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, name: &str) -> Result<Self, PlanError> {
        let file: File = serde_json::from_str(text).map_err(|e| PlanError(format!("{name}: {e}")))?;
        file.resolve().map_err(|problem| PlanError(format!("{name}: {problem}")))
    }

    /// A plan's file.
    ///
    /// # Errors
    /// Where it cannot be read, and as [`Plan::parse`].
    pub fn load(path: &str) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| PlanError(format!("{path}: cannot be read: {e}; allowed: a plan in JSON")))?;
        Self::parse(&text, path)
    }

    /// When measuring begins and ends.
    #[must_use]
    pub fn measured(&self) -> (Instant, Instant) {
        let begin = Instant::ZERO + self.scenario.run.warmup;
        (begin, begin + self.scenario.run.duration)
    }

    /// The scenario's side of some traffic.
    #[must_use]
    pub fn traffic(&self, load: &Load) -> &Traffic {
        &self.scenario.traffic[load.traffic]
    }

    /// An address of a host of a group, counted round and round.
    #[must_use]
    pub fn address(&self, group: usize, host: u32, ipv6: bool) -> Option<IpAddr> {
        let hosts = self.hosts.get(group)?.as_ref()?;
        let addresses = hosts.addresses.get(host as usize % hosts.addresses.len().max(1))?;
        addresses.iter().find(|address| address.is_ipv6() == ipv6).copied()
    }
}

/// What was found, and what is allowed.
fn wrong<T>(place: &str, found: impl fmt::Display, allowed: impl fmt::Display) -> Result<T, String> {
    Err(format!("{place}: found {found}; allowed: {allowed}"))
}

fn names<'a>(of: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<_> = of.map(|name| format!("\"{name}\"")).collect();
    if list.is_empty() { "none, for the scenario has none".to_owned() } else { list.join(", ") }
}

/// A time from the origin [s].
fn time(place: &str, seconds: f64) -> Result<Duration, String> {
    if (0.0..1e9).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    wrong(place, seconds, "a time in seconds, 0 to 1e9")
}

fn probability(place: &str, p: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&p) { Ok(p) } else { wrong(place, p, "a probability, 0 to 1") }
}

impl File {
    fn resolve(self) -> Result<Plan, String> {
        let scenario = self.scenario.read()?;
        let hosts = resolve_hosts(&scenario, self.hosts)?;
        let end = scenario.run.warmup + scenario.run.duration;
        let until = self.until_s.map_or(Ok(end), |s| time("until_s", s))?;
        let mut used = (BTreeSet::new(), BTreeSet::new());
        let segments = self
            .segments
            .into_iter()
            .enumerate()
            .map(|(i, segment)| segment.resolve(&format!("segments[{i}]"), &scenario, &hosts, &mut used))
            .collect::<Result<_, _>>()?;
        let traffic = resolve_traffic(&scenario, &hosts, self.traffic)?;
        Ok(Plan {
            scenario,
            seed: self.seed,
            origin: self.origin_ns,
            until: Instant::ZERO + until,
            netns: self.netns,
            hosts,
            segments,
            traffic,
            out: self.out,
        })
    }
}

impl Source {
    fn read(self) -> Result<Scenario, String> {
        let Some(text) = self.text else {
            let scenario = Scenario::load(&self.file, &self.overrides).map_err(|e| e.to_string())?;
            let Some(setting) = self.setting else { return Ok(scenario) };
            return scenario.with_setting(&setting).map_err(|e| e.to_string());
        };
        let mut files = Vec::new();
        for (path, content) in self.files {
            match base64::engine::general_purpose::STANDARD.decode(&content) {
                Ok(bytes) => files.push((path, bytes)),
                Err(e) => return wrong(&format!("scenario.files.\"{path}\""), e, "a file in base64"),
            }
        }
        let Self { file, overrides, setting, .. } = self;
        let (parameters, files_named) = (Vec::new(), Vec::new());
        let packed = Packed { file, text, overrides, setting, parameters, files: files_named };
        Scenario::unpack(&packed, files).map_err(|e| e.to_string())
    }
}

fn resolve_hosts(
    scenario: &Scenario,
    file: BTreeMap<String, HostsFile>,
) -> Result<Vec<Option<Hosts>>, String> {
    let mut hosts = vec![None; scenario.hosts.len()];
    let mut seen = BTreeMap::new();
    for (name, group) in file {
        let place = format!("hosts.{name}");
        let Some(index) = scenario.hosts.iter().position(|host| host.name == name) else {
            let known = names(scenario.hosts.iter().map(|host| host.name.as_str()));
            return wrong(&place, "no such group in the scenario", known);
        };
        let addresses: Vec<_> = group
            .addresses
            .into_iter()
            .map(|addresses| match addresses {
                Addresses::One(address) => vec![address],
                Addresses::Some(addresses) => addresses,
            })
            .collect();
        let count = scenario.hosts[index].count;
        if !(1..=count as usize).contains(&addresses.len()) {
            let allowed = format!("1 to {count}, as many as the scenario has");
            return wrong(&format!("{place}.addresses"), format!("{} hosts", addresses.len()), allowed);
        }
        for address in addresses.iter().flatten() {
            if let Some(other) = seen.insert(*address, name.clone()) {
                return wrong(&place, format!("{address}, which is in {other} as well"), "an address once");
            }
        }
        hosts[index] = Some(Hosts { side: group.side, addresses });
    }
    Ok(hosts)
}

impl SegmentFile {
    fn resolve(
        self,
        place: &str,
        scenario: &Scenario,
        hosts: &[Option<Hosts>],
        (used_links, used_devices): &mut (BTreeSet<usize>, BTreeSet<(Option<PathBuf>, String)>),
    ) -> Result<Segment, String> {
        if !(68..=65_535).contains(&self.mtu) {
            return wrong(&format!("{place}.mtu"), self.mtu, "68 to 65535 bytes");
        }
        for (end, side) in [(&self.a, "a"), (&self.b, "b")] {
            let name = &end.device;
            let is_fit = !name.is_empty()
                && name.len() <= LONGEST_NAME
                && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
            if !is_fit || !used_devices.insert((end.netns.clone(), name.clone())) {
                let allowed = format!("a name of 1 to {LONGEST_NAME} bytes that no other device there has");
                return wrong(&format!("{place}.{side}.device"), format!("\"{name}\""), allowed);
            }
        }
        let mut links = Vec::new();
        for (i, entry) in self.links.into_iter().enumerate() {
            let place = format!("{place}.links[{i}]");
            let entry = match entry {
                LinkEntry::Name(link) => LinkFile { link, ..LinkFile::default() },
                LinkEntry::Link(link) => link,
            };
            let link = entry.resolve(&place, scenario, hosts)?;
            if !used_links.insert(link.link) {
                let name = &scenario.links[link.link].name;
                return wrong(&place, format!("\"{name}\" again"), "each link once");
            }
            links.push(link);
        }
        let name = self.name.unwrap_or_else(|| format!("{}-{}", self.a.device, self.b.device));
        Ok(Segment { name, mtu: self.mtu, ends: [self.a, self.b], links })
    }
}

impl LinkFile {
    fn resolve(
        self,
        place: &str,
        scenario: &Scenario,
        hosts: &[Option<Hosts>],
    ) -> Result<SegmentLink, String> {
        let Some(link) = scenario.links.iter().position(|link| link.name == self.link) else {
            let known = names(scenario.links.iter().map(|link| link.name.as_str()));
            return wrong(place, format!("\"{}\"", self.link), known);
        };
        let (x, y) = &scenario.links[link].between;
        for (group, host) in scenario.hosts.iter().enumerate() {
            if host.count > 1 && [x, y].contains(&&host.name) && hosts[group].is_none() {
                let allowed = format!("their addresses in hosts.{}: each has a link of its own", host.name);
                return wrong(place, format!("a link of {} hosts", host.count), allowed);
            }
        }
        let mut outages = Vec::new();
        for (i, (from, to)) in self.outage.iter().enumerate() {
            let place = format!("{place}.outage[{i}]");
            let (from, to) = (time(&place, *from)?, time(&place, *to)?);
            if from >= to {
                return wrong(&place, format!("{from} to {to}"), "a beginning before the end");
            }
            outages.push((Instant::ZERO + from, Instant::ZERO + to));
        }
        let reorder = match self.reorder {
            None => (0.0, Duration::ZERO),
            Some(r) => {
                let p = probability(&format!("{place}.reorder.probability"), r.probability)?;
                (p, time(&format!("{place}.reorder.by_s"), r.by_s)?)
            }
        };
        let extras = Extras {
            outages,
            loss: probability(&format!("{place}.loss"), self.loss)?,
            reorder,
            duplicate: probability(&format!("{place}.duplicate"), self.duplicate)?,
        };
        Ok(SegmentLink { link, against: self.against, extras, modem: self.modem })
    }
}

fn resolve_traffic(
    scenario: &Scenario,
    hosts: &[Option<Hosts>],
    mut file: BTreeMap<String, TrafficFile>,
) -> Result<Vec<Load>, String> {
    let mut loads = Vec::new();
    let mut ports = BTreeMap::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let Some(entry) = file.remove(&traffic.name) else { continue };
        let place = format!("traffic.{}", traffic.name);
        let load = entry.resolve(index, &place, scenario, hosts)?;
        // Pages of several traffics may come from the same nginx.
        if let Some((other, by)) = ports.insert(load.port, (place.clone(), load.by))
            && (by, load.by) != (By::Nginx, By::Nginx)
        {
            let found = format!("{}, which {other} has as well", load.port);
            return wrong(&format!("{place}.port"), found, "a port of its own");
        }
        loads.push(load);
    }
    if let Some(name) = file.keys().next() {
        let known = names(scenario.traffic.iter().map(|traffic| traffic.name.as_str()));
        return wrong(&format!("traffic.{name}"), "no such traffic in the scenario", known);
    }
    Ok(loads)
}

impl TrafficFile {
    fn resolve(
        self,
        index: usize,
        place: &str,
        scenario: &Scenario,
        hosts: &[Option<Hosts>],
    ) -> Result<Load, String> {
        let traffic = &scenario.traffic[index];
        if let Some(transport) = traffic.kind.transport().map(|i| &scenario.transports[i])
            && !matches!(transport, Transport::Tcp(_))
        {
            let found = format!("transport.{}, which is {}", transport.name(), transport.protocol());
            return wrong(place, found, "TCP, or datagrams: the kernel's");
        }
        let ipv6 = match self.family.unwrap_or(4) {
            4 => false,
            6 => true,
            other => return wrong(&format!("{place}.family"), other, "4 or 6"),
        };
        let mut sides = Vec::new();
        for group in [traffic.from, traffic.to] {
            let name = &scenario.hosts[group].name;
            let Some(hosts) = &hosts[group] else {
                return wrong(
                    &format!("hosts.{name}"),
                    "nothing",
                    format!("the addresses that {place} is between"),
                );
            };
            let has_address = |addresses: &Vec<IpAddr>| addresses.iter().any(|a| a.is_ipv6() == ipv6);
            if let Some(host) = hosts.addresses.iter().position(|addresses| !has_address(addresses)) {
                let found = format!("no IPv{} address", if ipv6 { 6 } else { 4 });
                return wrong(&format!("hosts.{name}.addresses[{host}]"), found, format!("one, for {place}"));
            }
            sides.push(hosts.side);
        }
        if sides[0] == sides[1] {
            return wrong(place, "both ends on one side", "one among servers, one among clients");
        }
        let upload = sides[0] == Side::Clients;
        let is_download = matches!(traffic.kind, TrafficKind::Pages(_) | TrafficKind::Files(_)) && !upload;
        if self.by == By::Nginx && !is_download {
            return wrong(
                &format!("{place}.by"),
                "\"nginx\"",
                "\"serve\", but for pages and files to clients",
            );
        }
        if upload && matches!(traffic.kind, TrafficKind::Pages(_)) {
            return wrong(place, "pages from clients", "pages from servers");
        }
        let path = self.path.unwrap_or_else(|| "/object".to_owned());
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong(&format!("{place}.path"), format!("{path:?}"), "a path, /…");
        }
        let port = match (self.port, self.by) {
            (Some(0), _) => return wrong(&format!("{place}.port"), 0, "1 to 65535"),
            (Some(port), _) => port,
            (None, By::Nginx) => 80,
            (None, By::Serve) => 8001 + index as u16,
        };
        Ok(Load {
            traffic: index,
            port,
            by: self.by,
            path,
            ipv6,
            verify: self.verify.unwrap_or(true),
            congestion: self.congestion,
            upload,
        })
    }
}

/// The links that some traffic passes.
#[must_use]
pub fn route(traffic: &Traffic) -> &[Hop] {
    &traffic.route
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the documentation is one, for a scenario that is shipped.
    #[test]
    fn the_example_is_a_plan() {
        let text = include_str!("../plan.md").split("```").nth(1).unwrap().trim_start_matches("json");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
        let plan = Plan::parse(&text.replace("scenarios/", folder), "example").unwrap();
        assert_eq!((plan.segments.len(), plan.traffic.len()), (3, 1));
        assert_eq!(plan.scenario.label(), "avqred");
        assert_eq!(plan.address(0, 5, true), Some("fd01::1".parse().unwrap()));
        assert_eq!(plan.address(1, 12, false), Some("10.3.0.3".parse().unwrap()));
        assert_eq!(plan.address(1, 0, true), None);
        let extras = &plan.segments[1].links[0].extras;
        assert_eq!(extras.reorder, (0.01, Duration::from_millis(20)));
        assert_eq!(extras.outages[0].1, Instant::ZERO + Duration::from_secs(70));
        assert!(!plan.traffic[0].upload);
    }

    /// A scenario may come with the plan, with its files.
    #[test]
    fn a_scenario_may_come_along_with_its_files() {
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
        let said = plan("?").unwrap_err().to_string();
        assert!(said.starts_with("plan: scenario.files.\"t.dat\": found "), "{said}");
    }
}
