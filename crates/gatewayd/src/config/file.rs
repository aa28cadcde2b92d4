//! Keys of a configuration. The messages about wrong keys and values follow from these structs, and so does the list of
//! effective keys.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use bentpipe_scenario::quantity::{PacketSize, Rate, Size, Span, Whole};
use bentpipe_scenario::{PlanShare, QueuesPer};
use serde::de::{Deserializer, Error, IgnoredAny, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Required keys and their meaning.
pub const REQUIRED: &[(&str, &str)] = &[
    ("role", "the role of this end, \"gateway\" or \"terminal\""),
    ("satellite", "the link between the two ends"),
    ("satellite.local", "the UDP address of this end, such as \"10.2.0.1:4400\""),
    ("satellite.keys", "the folder made by bentpipe-gateway keygen, such as \"/etc/bentpipe\""),
    ("internet.device", "the network device that leads to the servers, such as \"eth0\""),
    ("internet.clients", "the users' addresses, such as [\"10.3.0.0/24\", \"fd00:3::/64\"]"),
    ("users.device", "the network device that leads to the users, such as \"eth1\""),
    ("users.clients", "the users' addresses, such as [\"10.3.0.0/24\", \"fd00:3::/64\"]"),
    ("terminals.folder", "a folder with a file NAME.toml for each terminal"),
    ("metrics.listen", "the address and port of /metrics and the page, such as \"127.0.0.1:9180\""),
    ("record.file", "where to write, such as \"gateway.jsonl\""),
    ("scenario.file", "a scenario, such as \"byun2007-gateway.toml\""),
];

/// A configuration file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// This end.
    pub role: Role,
    /// Read by the scenario's reader.
    #[serde(default, rename = "gateway", skip_serializing)]
    _gateway: Option<IgnoredAny>,
    /// Scenario file with the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<ScenarioFile>,
    /// Seed of the algorithms' random numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// The link between the two ends.
    pub satellite: Satellite,
    /// Terminals of a gateway with many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminals: Option<TerminalsSection>,
    /// Plans of terminals, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plan: BTreeMap<String, PlanShare>,
    /// Side of the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internet: Option<Internet>,
    /// Side of the users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Users>,
    /// Device for packets that are not split.
    #[serde(default)]
    pub tunnel: Tunnel,
    /// TCP of the relayed connections.
    #[serde(default)]
    pub tcp: Tcp,
    /// Limits of splitting.
    #[serde(default)]
    pub limits: Limits,
    /// Scheduling of the process.
    #[serde(default)]
    pub process: Process,
    /// HTTP server for metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// The log on stderr.
    #[serde(default)]
    pub log: Log,
    /// Recording of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

/// Role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The end that faces the internet.
    Gateway,
    /// The end that faces the users.
    Terminal,
}

impl Role {
    /// Name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Terminal => "terminal",
        }
    }
}

/// Scenario file with the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Path, relative to the configuration's folder.
    pub file: String,
    /// Overrides, each `key=value`.
    #[serde(default)]
    pub overrides: Vec<String>,
    /// Setting to apply; absent: the scenario's own.
    pub setting: Option<String>,
    /// Name of the gateway; absent: the first.
    pub gateway: Option<String>,
}

/// Estimate of the rate that the satellite link has, at most `satellite.rate`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Minimum rate.
    pub least: Rate,
    /// Standing delay that is tolerated.
    #[serde(default = "Span::just::<50_000_000>")]
    pub delay: Span,
}

/// The link between the two ends.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Satellite {
    /// UDP address of this end.
    pub local: Address,
    /// UDP address of the other end; absent at a gateway with many terminals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Address>,
    /// Folder with the keys.
    pub keys: String,
    /// Largest IP packet between the two ends.
    #[serde(default = "PacketSize::just::<1500>")]
    pub mtu: PacketSize,
    /// At a terminal: rate of the return direction. At a gateway: the satellite's rate, if the regulator follows it.
    pub rate: Option<Rate>,
    /// At a gateway whose regulator follows the satellite: Unix socket for the modem's rate.
    pub modem: Option<String>,
    /// The rate is estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Round trip without queueing.
    #[serde(default = "Span::just::<600_000_000>")]
    pub round_trip: Span,
}

/// Terminals of a gateway with many.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalsSection {
    /// Folder with a file for each, relative to the configuration's folder.
    pub folder: String,
    /// Terminals that share the receive queue, the AQM and the transmit queue.
    #[serde(default)]
    pub queues_per: QueuesPer,
    /// Maximum number of split connections of one terminal.
    #[serde(default = "Whole::<10, 100_000>::just::<1000>")]
    pub connections: Whole<10, 100_000>,
}

/// Side of the servers, at a gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Internet {
    /// Network device that leads to the servers.
    pub device: Device,
    /// Addresses of the users.
    pub clients: Vec<Prefix>,
    /// NFQUEUE number; window marking uses the next one as well.
    #[serde(default = "Whole::<0, 65_534>::just::<0>")]
    pub queue: Whole<0, 65_534>,
}

/// Side of the users, at a terminal.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// Network device that leads to the users.
    pub device: Device,
    /// Addresses of the users.
    pub clients: Vec<Prefix>,
    /// Port of the listener for TPROXY.
    #[serde(default = "Whole::<1, 65_535>::just::<5000>")]
    pub port: Whole<1, 65_535>,
    /// NFQUEUE number, with queues of the return direction.
    #[serde(default = "Whole::<0, 65_534>::just::<0>")]
    pub queue: Whole<0, 65_534>,
}

/// Device for packets that are not split.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tunnel {
    /// Name of the TUN device.
    pub name: Device,
}

/// TCP of the relayed connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Congestion control.
    pub congestion: String,
    /// Idle time after which a connection is reset.
    pub idle_timeout: Span,
    /// Idle time before keep-alive probes.
    pub keepalive: Span,
    /// Longest time that sent data stays unacknowledged (TCP_USER_TIMEOUT).
    pub user_timeout: Span,
    /// Longest time to connect to a server.
    pub connect_timeout: Span,
    /// Receive buffer in the kernel (SO_RCVBUF).
    pub receive_buffer: Size,
}

/// Limits of splitting; connections beyond them bypass the PEP.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: Whole<1, 1_000_000>,
    /// Maximum number of connections that are not open at both ends.
    pub handshakes: Whole<1, 1_000_000>,
    /// Maximum number of bytes in the PEP's buffers.
    pub memory: Size,
}

/// Scheduling of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Process {
    /// Use SCHED_FIFO if allowed.
    pub realtime: bool,
    /// Send the spacelink's datagrams in a separate thread where there are two processors or more.
    pub send_thread: bool,
}

/// HTTP server for metrics.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Address and port of the HTTP server.
    pub listen: Address,
    /// Time between two samples.
    #[serde(default = "Span::just::<1_000_000_000>")]
    pub interval: Span,
    /// Time for which samples are kept.
    #[serde(default = "Span::just::<600_000_000_000>")]
    pub keep: Span,
}

/// The log on stderr.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Least important level that is written.
    pub level: Level,
    /// Format of a line.
    pub format: Format,
}

/// Level of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Errors.
    Error,
    /// Conditions that are probably not intended.
    Warn,
    /// Occasional events.
    #[default]
    Info,
    /// Frequent events.
    Debug,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `level=info event=… key=value …`
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Recording of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Path, relative to the configuration's folder.
    pub file: String,
    /// Time between two samples.
    #[serde(default = "Span::just::<100_000_000>")]
    pub interval: Span,
    /// CLOCK_MONOTONIC that counts as time zero [ns]; absent: when the daemon starts.
    pub origin_ns: Option<u64>,
    /// Time before recording begins.
    pub warmup: Option<bentpipe_scenario::quantity::Time>,
    /// Length of the record; absent: until the daemon ends.
    pub duration: Option<Span>,
    /// Record every drop.
    #[serde(default = "yes")]
    pub drops: bool,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// First address.
    pub address: IpAddr,
    /// Length [bits].
    pub length: u8,
}

impl Prefix {
    /// True if it contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.checked_shr(32 - u32::from(self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let plain = length.bytes().all(|b| b.is_ascii_digit());
        let length: u8 = length.parse().map_err(|_| ())?;
        let (first, bits) = match address {
            IpAddr::V4(a) => (u128::from(u32::from(a)) << 96, 32),
            IpAddr::V6(a) => (u128::from(a), 128),
        };
        let beyond = first.checked_shl(u32::from(length)).unwrap_or(0);
        if plain && length <= bits && beyond == 0 { Ok(Self { address, length }) } else { Err(()) }
    }
}

/// Name of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device(pub String);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Device {
    /// Allowed names. IFNAMSIZ is 16 including the final zero. Names become part of scripts for other tools: iptables takes "+"
    /// for a wildcard, and all take a leading "-" for an option.
    pub(crate) const ALLOWED: &str =
        "the name of a network device, such as \"eth0\", of 1 to 15 letters, digits and -_.@";
}

impl FromStr for Device {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        let fits = (1..=15).contains(&text.len()) && !text.starts_with(['-', '.']);
        if fits && text.bytes().all(allowed) { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

/// An address with port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().map(Self).map_err(|_| ())
    }
}

/// Types that are strings in the file.
macro_rules! texts {
    ($($kind:ident: $allowed:expr;)*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $kind;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($allowed)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(|()| E::invalid_value(Unexpected::Str(text), &self))
                    }
                }
                from.deserialize_any(Reader)
            }
        }
    )*};
}

texts! {
    Prefix: "the first address and the length of a prefix, such as \"10.3.0.0/24\" or \"fd00:3::/64\"";
    Device: Device::ALLOWED;
    Address: "an address with its port, such as \"10.2.0.1:4400\" or \"[fd00:2::1]:4400\"";
}

impl Default for Tunnel {
    fn default() -> Self {
        Self { name: Device("bp0".to_owned()) }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            congestion: "cubic".to_owned(),
            idle_timeout: Span::of(3_600_000_000_000),
            keepalive: Span::of(60_000_000_000),
            user_timeout: Span::of(120_000_000_000),
            connect_timeout: Span::of(30_000_000_000),
            receive_buffer: Size::of(128_000),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: Whole(9000), handshakes: Whole(1000), memory: Size::of(1_000_000_000) }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self { realtime: true, send_thread: true }
    }
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}
