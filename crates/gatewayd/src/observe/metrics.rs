//! The state of the daemon as numbers, and as Prometheus reads them (text format 0.0.4).
//!
//! The loop fills a [`Snapshot`] at every interval and hands it to [`Shared`], from which the HTTP thread answers.

use std::fmt::{self, Write as _};
use std::fs;

use bentpipe_units::{Duration, Instant, Rate};

use crate::config::Role;
use crate::observe::bottleneck::{Bottleneck, Evidence};
use crate::observe::cause::{Cause, Resets};

/// Upper bounds of the classes that delays are counted in [ns]: 1, 2 and 5 times a power of ten.
pub const BOUNDS: [u64; 12] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
];

/// How many delays lay in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// For each of [`BOUNDS`] the delays up to it and above the bound before; at last those above all.
    pub counts: [u64; BOUNDS.len() + 1],
    /// The sum of all [ns].
    pub sum_ns: u64,
}

impl Histogram {
    /// One more.
    pub fn observe(&mut self, delay: Duration) {
        let ns = delay.as_nanos();
        let class = BOUNDS.partition_point(|bound| *bound < ns);
        self.counts[class] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// How many in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.counts;
        for (new, old) in counts.iter_mut().zip(before.counts) {
            *new = new.saturating_sub(old);
        }
        Self { counts, sum_ns: self.sum_ns.saturating_sub(before.sum_ns) }
    }

    /// The mean [s]; none of none.
    #[must_use]
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64 * 1e-9)
    }

    /// A quantile [s], with values taken as even within their class, as Prometheus' `histogram_quantile` does; none of none.
    #[must_use]
    pub fn quantile_s(&self, q: f64) -> Option<f64> {
        let wanted = q * self.count() as f64;
        let mut below = 0.0;
        if self.count() == 0 {
            return None;
        }
        for (i, bound) in BOUNDS.iter().enumerate() {
            let inside = self.counts[i] as f64;
            if inside > 0.0 && below + inside >= wanted {
                let low = if i == 0 { 0 } else { BOUNDS[i - 1] } as f64;
                return Some((low + (*bound as f64 - low) * ((wanted - below) / inside).max(0.0)) * 1e-9);
            }
            below += inside;
        }
        BOUNDS.last().map(|bound| *bound as f64 * 1e-9)
    }
}

/// One of the gateway's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Packets waiting.
    pub packets: u64,
    /// Bytes waiting.
    pub bytes: u64,
    /// Packets discarded because the Aqm said so.
    pub aqm_drops: u64,
    /// Packets discarded for want of room.
    pub overflow_drops: u64,
    /// How long packets waited that left.
    pub delay: Histogram,
}

/// What passes, by kind; the satellite's side of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent into the satellite, headers of the spacelink not counted.
    pub sent: u64,
    /// Bytes received from it, counted alike.
    pub received: u64,
}

/// The kinds of traffic, in the order of [`Snapshot::traffic`].
pub const CLASSES: [&str; 3] = ["tcp_split", "udp", "other"];

/// TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Split, and open at both ends.
    pub open: u64,
    /// Split, and not yet open at both ends.
    pub half_open: u64,
    /// Split since the start.
    pub accepted: u64,
    /// Of those, not reached at the far end.
    pub refused: u64,
    /// Of those, ended by a reset or a time-out.
    pub reset: u64,
    /// Reset, by cause.
    pub resets: Resets,
    /// Whether new ones are not split, because a limit has been reached.
    pub bypassing: bool,
}

/// The spacelink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spacelink {
    /// Whether the other end is there.
    pub up: bool,
    /// How often it came up.
    pub connections: u64,
    /// Round trip, smoothed; none while down.
    pub round_trip: Option<Duration>,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets found lost; what was in them was sent again.
    pub lost_packets: u64,
    /// Bytes of these.
    pub lost_bytes: u64,
    /// Bytes sent, UDP and IP headers included.
    pub sent_bytes: u64,
    /// Bytes received, UDP and IP headers included.
    pub received_bytes: u64,
}

/// What netfilter's queue has lost without anybody's verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfqueueLost {
    /// Its number.
    pub queue: u16,
    /// Packets that found the kernel's queue full.
    pub queue_full: u64,
    /// Packets that found the daemon's netlink buffer full.
    pub buffer_full: u64,
}

/// Everything that is counted and measured, as it is at one time. Counters count from the start.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time.
    pub now: Instant,
    /// Ahead of the PEP.
    pub receive: QueueState,
    /// Behind it.
    pub transmit: QueueState,
    /// Packets held back at the mark point.
    pub held: u64,
    /// Packets judged.
    pub judged_packets: u64,
    /// Bytes judged.
    pub judged_bytes: u64,
    /// Packets of split connections that it was not asked about, for the satellite was out.
    pub spared: u64,
    /// Packets that the Aqm signalled congestion with, in whatever way.
    pub marked: u64,
    /// What netfilter lost.
    pub nfqueue: Vec<NfqueueLost>,
    /// Rate of the regulator; none: no limit.
    pub capacity: Option<Rate>,
    /// What the regulator has let go and still has to make up for [bytes].
    pub debt: u64,
    /// By [`CLASSES`].
    pub traffic: [Traffic; CLASSES.len()],
    /// TCP connections.
    pub connections: Connections,
    /// What the PEP holds [bytes].
    pub buffered: u64,
    /// With window marking: mean limit of a buffer [bytes], NaN where none is open.
    pub buffer_limit: Option<f64>,
    /// The spacelink.
    pub spacelink: Spacelink,
    /// What the Aqm and the scheduler tell of themselves: whose, name, value.
    pub probes: Vec<(&'static str, &'static str, f64)>,
    /// What the bottleneck is judged by.
    pub evidence: Evidence,
}

/// What does not change, or seldom.
#[derive(Clone, Debug)]
pub struct About {
    /// Which end this is.
    pub role: Role,
    /// The Aqm, as results call it.
    pub aqm: String,
    /// The scheduler.
    pub scheduler: String,
    /// What a mark does.
    pub marking: String,
    /// When the configuration was last read [s since 1970], and whether that went well.
    pub reloaded: (f64, bool),
}

/// How long each bottleneck was one [s].
pub type BottleneckTimes = [f64; Bottleneck::ALL.len()];

/// All families, one after the other.
struct Page(String);

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        fill(&mut Family { out: &mut self.0, name });
    }
}

/// A metric family: its lines, in Prometheus' text format.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    /// A sample; `labels` are names and values.
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Number>) {
        self.line("", labels, value.into());
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: Number) {
        let _ = write!(self.out, "{}{suffix}", self.name);
        for (i, (key, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{key}=\"{}\"", if i == 0 { '{' } else { ',' }, Escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    /// A histogram's samples.
    fn histogram(&mut self, label: (&str, &str), histogram: &Histogram) {
        let mut below = 0;
        for (count, bound) in histogram.counts.iter().zip(BOUNDS.iter().map(Some).chain([None])) {
            below += count;
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |ns| (*ns as f64 / 1e9).to_string());
            self.line("_bucket", &[label, ("le", &bound)], below.into());
        }
        self.line("_sum", &[label], (histogram.sum_ns as f64 * 1e-9).into());
        self.line("_count", &[label], histogram.count().into());
    }
}

/// A value of the text format.
enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(x: u64) -> Self {
        Self::Whole(x)
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

impl From<bool> for Number {
    fn from(x: bool) -> Self {
        Self::Whole(u64::from(x))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(x) => write!(f, "{x}"),
            Self::Real(f64::INFINITY) => f.write_str("+Inf"),
            Self::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Self::Real(x) => write!(f, "{x}"),
        }
    }
}

/// A label's value: backslash, quote and line feed are escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// All metrics, in Prometheus' text format.
#[must_use]
pub fn prometheus(
    about: &About,
    state: &Snapshot,
    utilization: f64,
    bottleneck: Bottleneck,
    times: &BottleneckTimes,
) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.family("bentpipe_build_info", "gauge", "What runs here; always 1.", |f| {
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("role", about.role.name()),
            ("aqm", &about.aqm),
            ("scheduler", &about.scheduler),
            ("marking", &about.marking),
        ];
        f.sample(&labels, true);
    });
    let queues = [("receive", &state.receive), ("transmit", &state.transmit)];
    page.family("bentpipe_queue_packets", "gauge", "Packets waiting.", |f| {
        queues.iter().for_each(|(name, q)| f.sample(&[("queue", name)], q.packets));
    });
    page.family("bentpipe_queue_bytes", "gauge", "Bytes waiting.", |f| {
        queues.iter().for_each(|(name, q)| f.sample(&[("queue", name)], q.bytes));
    });
    page.family(
        "bentpipe_queue_delay_seconds",
        "histogram",
        "How long packets waited that left a queue.",
        |f| {
            queues.iter().for_each(|(name, q)| f.histogram(("queue", name), &q.delay));
        },
    );
    page.family(
        "bentpipe_held_packets",
        "gauge",
        "Packets that the AQM holds back at the mark point.",
        |f| {
            f.sample(&[], state.held);
        },
    );
    page.family("bentpipe_dropped_packets_total", "counter", "Packets discarded, by where and why.", |f| {
        for (place, q) in queues {
            f.sample(&[("place", place), ("reason", "aqm")], q.aqm_drops);
            f.sample(&[("place", place), ("reason", "overflow")], q.overflow_drops);
        }
    });
    page.family("bentpipe_judged_packets_total", "counter", "Packets that the AQM was asked about.", |f| {
        f.sample(&[], state.judged_packets);
    });
    page.family(
        "bentpipe_judged_bytes_total",
        "counter",
        "Bytes of packets that the AQM was asked about.",
        |f| {
            f.sample(&[], state.judged_bytes);
        },
    );
    let help = "Packets of split connections that passed without asking the AQM while the satellite was out.";
    page.family("bentpipe_spared_packets_total", "counter", help, |f| f.sample(&[], state.spared));
    let help =
        "Packets that the AQM signalled congestion with: by a mark, or by a drop where it could not mark.";
    page.family("bentpipe_marked_packets_total", "counter", help, |f| f.sample(&[], state.marked));
    let help = "Packets lost ahead of the AQM, without its verdict: the kernel's queue or the netlink buffer was full.";
    page.family("bentpipe_nfqueue_lost_packets_total", "counter", help, |f| {
        for lost in &state.nfqueue {
            let queue = lost.queue.to_string();
            f.sample(&[("queue", &queue), ("cause", "queue_full")], lost.queue_full);
            f.sample(&[("queue", &queue), ("cause", "buffer_full")], lost.buffer_full);
        }
    });
    page.family(
        "bentpipe_capacity_bytes_per_second",
        "gauge",
        "Rate of the regulator; +Inf without one.",
        |f| {
            f.sample(&[], state.capacity.map_or(f64::INFINITY, |rate| rate.bytes_per_sec()));
        },
    );
    page.family(
        "bentpipe_utilization_ratio",
        "gauge",
        "Share of the capacity used in the last interval.",
        |f| {
            f.sample(&[], utilization);
        },
    );
    let help = "Bytes sent beyond what the regulator let go, which it still has to make up for.";
    page.family("bentpipe_regulator_debt_bytes", "gauge", help, |f| f.sample(&[], state.debt));
    let help = "Payload over the satellite, by kind and direction seen from this end.";
    page.family("bentpipe_traffic_bytes_total", "counter", help, |f| {
        for (class, traffic) in CLASSES.iter().zip(&state.traffic) {
            f.sample(&[("class", class), ("direction", "sent")], traffic.sent);
            f.sample(&[("class", class), ("direction", "received")], traffic.received);
        }
    });
    let c = &state.connections;
    page.family("bentpipe_connections", "gauge", "Split TCP connections there are.", |f| {
        f.sample(&[("state", "open")], c.open);
        f.sample(&[("state", "half_open")], c.half_open);
    });
    let help = "TCP connections that were split, and of these what could not be reached or was cut off.";
    page.family("bentpipe_connections_total", "counter", help, |f| {
        f.sample(&[("event", "accepted")], c.accepted);
        f.sample(&[("event", "refused")], c.refused);
        f.sample(&[("event", "reset")], c.reset);
    });
    let help = "Connections that this end has reset, those that were never split among them, by why.";
    page.family("bentpipe_connection_resets_total", "counter", help, |f| {
        for (cause, count) in Cause::ALL.iter().zip(c.resets) {
            f.sample(&[("cause", cause.name())], count);
        }
    });
    let help = "Whether new connections are not split, for a limit has been reached.";
    page.family("bentpipe_bypass", "gauge", help, |f| f.sample(&[], c.bypassing));
    page.family("bentpipe_pep_buffered_bytes", "gauge", "What the PEP holds.", |f| {
        f.sample(&[], state.buffered)
    });
    if let Some(limit) = state.buffer_limit {
        let help = "Mean limit that marks leave of a buffer; NaN where none is open.";
        page.family("bentpipe_pep_buffer_limit_bytes", "gauge", help, |f| f.sample(&[], limit));
    }
    let s = &state.spacelink;
    page.family("bentpipe_spacelink_up", "gauge", "Whether the other end is there.", |f| f.sample(&[], s.up));
    page.family("bentpipe_spacelink_connections_total", "counter", "How often it came up.", |f| {
        f.sample(&[], s.connections);
    });
    page.family("bentpipe_spacelink_rtt_seconds", "gauge", "Round trip, smoothed; NaN while down.", |f| {
        f.sample(&[], s.round_trip.map_or(f64::NAN, |time| time.as_secs_f64()));
    });
    page.family("bentpipe_spacelink_sent_packets_total", "counter", "QUIC packets sent.", |f| {
        f.sample(&[], s.sent_packets);
    });
    let help = "QUIC packets found lost; what was in them was sent again.";
    page.family("bentpipe_spacelink_lost_packets_total", "counter", help, |f| f.sample(&[], s.lost_packets));
    page.family("bentpipe_spacelink_lost_bytes_total", "counter", "Bytes of QUIC packets found lost.", |f| {
        f.sample(&[], s.lost_bytes);
    });
    page.family(
        "bentpipe_spacelink_bytes_total",
        "counter",
        "Bytes on the wire, UDP and IP headers included.",
        |f| {
            f.sample(&[("direction", "sent")], s.sent_bytes);
            f.sample(&[("direction", "received")], s.received_bytes);
        },
    );
    page.family(
        "bentpipe_algorithm_state",
        "gauge",
        "What AQM and scheduler tell of themselves, in their own units.",
        |f| {
            for (owner, name, value) in &state.probes {
                f.sample(&[("owner", owner), ("name", name)], *value);
            }
        },
    );
    page.family(
        "bentpipe_bottleneck",
        "gauge",
        "1 for what limited the throughput in the last interval.",
        |f| {
            for b in Bottleneck::ALL {
                f.sample(&[("limit", b.name())], b == bottleneck);
            }
        },
    );
    page.family(
        "bentpipe_bottleneck_seconds_total",
        "counter",
        "How long each limited the throughput.",
        |f| {
            for (b, seconds) in Bottleneck::ALL.iter().zip(times) {
                f.sample(&[("limit", b.name())], *seconds);
            }
        },
    );
    let help = "Whether the configuration was read without a mistake the last time.";
    page.family("bentpipe_config_last_reload_successful", "gauge", help, |f| f.sample(&[], about.reloaded.1));
    let help = "When the configuration was read the last time, since 1970.";
    page.family("bentpipe_config_last_reload_timestamp_seconds", "gauge", help, |f| {
        f.sample(&[], about.reloaded.0)
    });
    process(&mut page);
    page.0
}

/// What the kernel tells of this process, by the names that all exporters use.
fn process(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may have spaces; what follows it is the third field of proc(5).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let of = |name| nix::unistd::sysconf(name).ok().flatten().map(|x| x as f64);
    let tick = of(nix::unistd::SysconfVar::CLK_TCK).unwrap_or(100.0);
    let page_size = of(nix::unistd::SysconfVar::PAGE_SIZE).unwrap_or(4096.0);
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        page.family("process_cpu_seconds_total", "counter", "Processor time used.", |f| {
            f.sample(&[], (user + system) / tick);
        });
    }
    if let Some(pages) = field(24) {
        page.family("process_resident_memory_bytes", "gauge", "Memory in use.", |f| {
            f.sample(&[], pages * page_size)
        });
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let open = open.count() as u64;
        page.family("process_open_fds", "gauge", "Descriptors open.", |f| f.sample(&[], open));
    }
    if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        page.family("process_max_fds", "gauge", "Descriptors that may be open.", |f| f.sample(&[], soft));
    }
}
