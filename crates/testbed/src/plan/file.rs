//! A plan's JSON file, and the check of everything in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use bentpipe_scenario::{Http, Packed, Pages, Scenario, TrafficKind, Transport};
use bentpipe_units::{Duration, Instant};
use serde::Deserialize;

use super::{By, End, Extras, Hosts, Netns, Plan, Segment, SegmentLink, Side, Workload};

/// Maximum length of a device name (IFNAMSIZ without the final zero) [bytes].
const MAX_DEVICE_NAME: usize = 15;

/// Parses and checks a plan.
pub fn parse(text: &str) -> Result<Plan, String> {
    let file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
    file.resolve()
}

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
    terminal: Option<u32>,
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

/// An error with the place, the value found and the values allowed.
fn wrong<T>(place: &str, found: impl fmt::Display, allowed: impl fmt::Display) -> Result<T, String> {
    Err(format!("{place}: found {found}; allowed: {allowed}"))
}

fn names<'a>(of: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<_> = of.map(|name| format!("\"{name}\"")).collect();
    if list.is_empty() { "nothing, since the scenario has none".to_owned() } else { list.join(", ") }
}

/// Checks a time from the origin [s].
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
        let workloads = resolve_traffic(&scenario, &hosts, self.traffic)?;
        Ok(Plan {
            scenario,
            seed: self.seed,
            origin: self.origin_ns,
            until: Instant::ZERO + until,
            netns: self.netns,
            hosts,
            segments,
            workloads,
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
            let allowed = names(scenario.hosts.iter().map(|host| host.name.as_str()));
            return wrong(&place, "no such group in the scenario", allowed);
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
            let allowed = format!("1 to {count}, the number in the scenario");
            return wrong(&format!("{place}.addresses"), format!("{} hosts", addresses.len()), allowed);
        }
        for address in addresses.iter().flatten() {
            if let Some(other) = seen.insert(*address, name.clone()) {
                return wrong(&place, format!("{address}, which is also in {other}"), "each address once");
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
        (used_links, used_devices): &mut (UsedLinks, BTreeSet<(Option<PathBuf>, String)>),
    ) -> Result<Segment, String> {
        if !(68..=65_535).contains(&self.mtu) {
            return wrong(&format!("{place}.mtu"), self.mtu, "68 to 65535 bytes");
        }
        for (end, side) in [(&self.a, "a"), (&self.b, "b")] {
            let name = &end.device;
            let is_valid = !name.is_empty()
                && name.len() <= MAX_DEVICE_NAME
                && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
            if !is_valid || !used_devices.insert((end.netns.clone(), name.clone())) {
                let allowed = format!("a unique name of 1 to {MAX_DEVICE_NAME} bytes in its namespace");
                return wrong(&format!("{place}.{side}.device"), format!("\"{name}\""), allowed);
            }
        }
        let mut links = Vec::new();
        let own = place;
        for (i, entry) in self.links.into_iter().enumerate() {
            let place = format!("{own}.links[{i}]");
            let entry = match entry {
                LinkEntry::Name(link) => LinkFile { link, ..LinkFile::default() },
                LinkEntry::Link(link) => link,
            };
            let link = entry.resolve(&place, scenario, hosts)?;
            // Of the links between terminals and their hosts, each segment has those of one terminal.
            let of_segment = terminals_at(scenario, link.link).filter(|_| link.terminal.is_none());
            if !used_links.insert((link.link, link.terminal, of_segment.map(|_| own.to_owned()))) {
                let name = &scenario.links[link.link].name;
                return wrong(&place, format!("\"{name}\" a second time"), "each link once");
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
            let allowed = names(scenario.links.iter().map(|link| link.name.as_str()));
            return wrong(place, format!("\"{}\"", self.link), allowed);
        };
        let (x, y) = &scenario.links[link].between;
        for (group, host) in scenario.hosts.iter().enumerate() {
            if host.count > 1 && [x, y].contains(&&host.name) && hosts[group].is_none() {
                let allowed =
                    format!("addresses in hosts.{}, since each host has a separate link", host.name);
                return wrong(place, format!("a link of {} hosts without addresses", host.count), allowed);
            }
        }
        let to_gateway = scenario.gateways.iter().any(|gateway| [x, y].contains(&&gateway.name));
        match (terminals_at(scenario, link).filter(|_| to_gateway), self.terminal) {
            (Some(count), None) => {
                let found = format!("a link of {count} terminals without \"terminal\"");
                return wrong(place, found, format!("the number of one, 0 to {}", count - 1));
            }
            (Some(count), Some(terminal)) if terminal >= count => {
                return wrong(&format!("{place}.terminal"), terminal, format!("0 to {}", count - 1));
            }
            (None, Some(terminal)) => {
                let allowed = "only for a link between a gateway and several terminals";
                return wrong(&format!("{place}.terminal"), terminal, allowed);
            }
            _ => {}
        }
        let mut outages = Vec::new();
        for (i, (from, to)) in self.outage.iter().enumerate() {
            let place = format!("{place}.outage[{i}]");
            let (from, to) = (time(&place, *from)?, time(&place, *to)?);
            if from >= to {
                return wrong(&place, format!("{from} to {to}"), "a begin before the end");
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
        Ok(SegmentLink { link, terminal: self.terminal, against: self.against, extras, modem: self.modem })
    }
}

/// Links in use: index, terminal, and the segment for the links of a terminal's hosts.
type UsedLinks = BTreeSet<(usize, Option<u32>, Option<String>)>;

/// Number of terminals in the group at an end of a link; `None` without a group of several.
fn terminals_at(scenario: &Scenario, link: usize) -> Option<u32> {
    let (x, y) = &scenario.links[link].between;
    let mut groups = scenario.gateways.iter().flat_map(|gateway| gateway.terminals.iter());
    groups.find(|group| group.count > 1 && [x, y].contains(&&group.name)).map(|group| group.count)
}

fn resolve_traffic(
    scenario: &Scenario,
    hosts: &[Option<Hosts>],
    mut file: BTreeMap<String, TrafficFile>,
) -> Result<Vec<Workload>, String> {
    let mut workloads = Vec::new();
    let mut ports = BTreeMap::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let Some(entry) = file.remove(&traffic.name) else { continue };
        let place = format!("traffic.{}", traffic.name);
        let workload = entry.resolve(index, &place, scenario, hosts)?;
        // Several workloads can share one nginx.
        if let Some((other, by)) = ports.insert(workload.port, (place.clone(), workload.by))
            && (by, workload.by) != (By::Nginx, By::Nginx)
        {
            let found = format!("{}, which {other} also uses", workload.port);
            return wrong(&format!("{place}.port"), found, "a port that is not in use");
        }
        workloads.push(workload);
    }
    if let Some(name) = file.keys().next() {
        let allowed = names(scenario.traffic.iter().map(|traffic| traffic.name.as_str()));
        return wrong(&format!("traffic.{name}"), "no such traffic in the scenario", allowed);
    }
    Ok(workloads)
}

impl TrafficFile {
    fn resolve(
        self,
        index: usize,
        place: &str,
        scenario: &Scenario,
        hosts: &[Option<Hosts>],
    ) -> Result<Workload, String> {
        let traffic = &scenario.traffic[index];
        if let Some(transport) = traffic.kind.transport().map(|i| &scenario.transports[i])
            && !is_carried(transport, &traffic.kind)
        {
            let found = format!(
                "{} over transport.{}, which is {}",
                traffic.kind.name(),
                transport.name(),
                transport.protocol()
            );
            return wrong(
                place,
                found,
                "TCP; QUIC for pages, files, bulk and dash; datagrams without a transport",
            );
        }
        let ipv6 = match self.family.unwrap_or(4) {
            4 => false,
            6 => true,
            other => return wrong(&format!("{place}.family"), other, "4 or 6"),
        };
        let mut sides = Vec::new();
        for group in [traffic.from, traffic.to] {
            let name = &scenario.hosts[group].name;
            let Some(hosts) = &hosts[group.0] else {
                return wrong(
                    &format!("hosts.{name}"),
                    "nothing",
                    format!("the addresses of both ends of {place}"),
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
            return wrong(place, "both ends on the same side", "one end on each side");
        }
        let upload = sides[0] == Side::Clients;
        let is_probe = matches!(traffic.kind, TrafficKind::Pages(Pages { http: Some(Http::Probe), .. }));
        let is_download = matches!(traffic.kind, TrafficKind::Pages(_) | TrafficKind::Files(_)) && !upload;
        let transport = traffic.kind.transport().map(|i| &scenario.transports[i]);
        let is_quic = matches!(transport, Some(Transport::Quic(_)));
        if self.by == By::Nginx && (!is_download || is_probe || is_quic) {
            return wrong(
                &format!("{place}.by"),
                "\"nginx\"",
                "\"serve\"; \"nginx\" only for pages and files over TCP to clients, not for probes",
            );
        }
        if upload && (is_quic || matches!(traffic.kind, TrafficKind::Pages(_) | TrafficKind::Dash(_))) {
            let kind = traffic.kind.name();
            return wrong(place, format!("{kind} from clients"), format!("{kind} from servers"));
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
        Ok(Workload {
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

/// True if the testbed carries this kind of traffic over this transport.
fn is_carried(transport: &Transport, kind: &TrafficKind) -> bool {
    match transport {
        Transport::Tcp(_) => true,
        Transport::Quic(_) => !matches!(kind, TrafficKind::Packets(_)),
        _ => false,
    }
}
