//! Metrics in Prometheus' text format (0.0.4).

use std::fmt::{self, Write as _};
use std::fs;

use crate::observe::bottleneck::Bottleneck;
use crate::observe::cause::Cause;
use crate::observe::histogram::{BOUNDS, Histogram};
use crate::observe::metrics::{About, CLASSES, PeerQueue, PeerState, Snapshot};
use crate::observe::peers::PeerRates;

/// Time that each bottleneck lasted [s].
pub type BottleneckTimes = [f64; Bottleneck::ALL.len()];

/// Text of all families.
struct Page(String);

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        fill(&mut Family { out: &mut self.0, name });
    }

    /// A gauge without labels.
    fn gauge(&mut self, name: &'static str, help: &str, value: impl Into<Number>) {
        self.family(name, "gauge", help, |f| f.sample(&[], value));
    }

    /// A counter without labels.
    fn counter(&mut self, name: &'static str, help: &str, value: impl Into<Number>) {
        self.family(name, "counter", help, |f| f.sample(&[], value));
    }
}

/// Lines of a metric family.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a sample; `labels` are names and values.
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

    /// Adds the samples of a histogram.
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

/// Value of a sample.
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

/// Value of a label, with backslash, quote and line feed escaped.
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

/// All metrics in Prometheus' text format.
#[must_use]
pub fn prometheus(
    about: &About,
    state: &Snapshot,
    peers: &[PeerRates],
    (utilization, bottleneck): (f64, Bottleneck),
    times: &BottleneckTimes,
) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.family("bentpipe_build_info", "gauge", "Version and configuration; always 1.", |f| {
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("role", about.role.name()),
            ("aqm", &about.aqm),
            ("scheduler", &about.scheduler),
            ("marking", &about.marking),
        ];
        f.sample(&labels, true);
    });
    queues(&mut page, state);
    aqm(&mut page, state);
    link(&mut page, state, utilization);
    connections(&mut page, state);
    spacelink(&mut page, state);
    terminals(&mut page, state, peers);
    page.family("bentpipe_bottleneck", "gauge", "1 for the bottleneck in the last interval.", |f| {
        for b in Bottleneck::ALL {
            f.sample(&[("limit", b.name())], b == bottleneck);
        }
    });
    page.family("bentpipe_bottleneck_seconds_total", "counter", "Time that each bottleneck lasted.", |f| {
        for (b, seconds) in Bottleneck::ALL.iter().zip(times) {
            f.sample(&[("limit", b.name())], *seconds);
        }
    });
    let help = "1 if the last reload of the configuration succeeded.";
    page.gauge("bentpipe_config_last_reload_successful", help, about.reloaded.1);
    let help = "Time of the last reload of the configuration since the epoch.";
    page.gauge("bentpipe_config_last_reload_timestamp_seconds", help, about.reloaded.0);
    process(&mut page);
    page.0
}

fn queues(page: &mut Page, state: &Snapshot) {
    let queues = [("receive", &state.receive), ("transmit", &state.transmit)];
    page.family("bentpipe_queue_packets", "gauge", "Packets in the queue.", |f| {
        queues.iter().for_each(|(name, q)| f.sample(&[("queue", name)], q.packets));
    });
    page.family("bentpipe_queue_bytes", "gauge", "Bytes in the queue.", |f| {
        queues.iter().for_each(|(name, q)| f.sample(&[("queue", name)], q.bytes));
    });
    let help = "Queueing delay of packets that left the queue.";
    page.family("bentpipe_queue_delay_seconds", "histogram", help, |f| {
        queues.iter().for_each(|(name, q)| f.histogram(("queue", name), &q.delay));
    });
    let help = "Dropped packets by queue and reason.";
    page.family("bentpipe_queue_dropped_packets_total", "counter", help, |f| {
        for (name, q) in queues {
            f.sample(&[("queue", name), ("reason", "aqm")], q.aqm_drops);
            f.sample(&[("queue", name), ("reason", "overflow")], q.overflow_drops);
        }
    });
}

fn aqm(page: &mut Page, state: &Snapshot) {
    let help = "Packets that the AQM holds at the mark point.";
    page.gauge("bentpipe_aqm_held_packets", help, state.held);
    let help = "Packets offered to the AQM.";
    page.counter("bentpipe_aqm_offered_packets_total", help, state.aqm_offered_packets);
    let help = "Bytes of packets offered to the AQM.";
    page.counter("bentpipe_aqm_offered_bytes_total", help, state.aqm_offered_bytes);
    let help = "Packets of split connections that bypassed the AQM during an outage of the satellite.";
    page.counter("bentpipe_aqm_bypassed_packets_total", help, state.aqm_bypassed_packets);
    let help = "Packets with which the AQM signalled congestion, by a mark, or by a drop if it cannot mark.";
    page.counter("bentpipe_aqm_marked_packets_total", help, state.marked);
    let help = "Packets lost ahead of the AQM: the kernel's queue or the netlink buffer was full.";
    page.family("bentpipe_nfqueue_lost_packets_total", "counter", help, |f| {
        for lost in &state.nfqueue {
            let queue = lost.queue.to_string();
            f.sample(&[("queue", &queue), ("cause", "queue_full")], lost.queue_full);
            f.sample(&[("queue", &queue), ("cause", "buffer_full")], lost.buffer_full);
        }
    });
    let help = "Internal state of AQM and scheduler, in their own units.";
    page.family("bentpipe_algorithm_state", "gauge", help, |f| {
        for (owner, name, value) in &state.probes {
            f.sample(&[("owner", owner), ("name", name)], *value);
        }
    });
}

fn link(page: &mut Page, state: &Snapshot, utilization: f64) {
    let capacity = state.capacity.map_or(f64::INFINITY, |rate| rate.bytes_per_sec());
    let help = "Rate of the regulator; +Inf without a limit.";
    page.gauge("bentpipe_capacity_bytes_per_second", help, capacity);
    let help = "Share of the capacity used in the last interval.";
    page.gauge("bentpipe_utilization_ratio", help, utilization);
    let help = "Bytes sent beyond those released, which the regulator still has to wait for.";
    page.gauge("bentpipe_regulator_debt_bytes", help, state.debt);
    let help = "Payload over the satellite, by kind and by direction as seen from this end.";
    page.family("bentpipe_traffic_bytes_total", "counter", help, |f| {
        for (class, traffic) in CLASSES.iter().zip(&state.traffic) {
            f.sample(&[("class", class), ("direction", "sent")], traffic.sent);
            f.sample(&[("class", class), ("direction", "received")], traffic.received);
        }
    });
}

fn connections(page: &mut Page, state: &Snapshot) {
    let c = &state.connections;
    page.family("bentpipe_connections", "gauge", "Split TCP connections by state.", |f| {
        f.sample(&[("state", "open")], c.open);
        f.sample(&[("state", "half_open")], c.half_open);
    });
    let help = "TCP connections accepted for splitting, refused at this end, and reset.";
    page.family("bentpipe_connections_total", "counter", help, |f| {
        f.sample(&[("event", "accepted")], c.accepted);
        f.sample(&[("event", "refused")], c.refused);
        f.sample(&[("event", "reset")], c.reset);
    });
    let help = "Resets of connections by this end, by cause; includes connections that were never split.";
    page.family("bentpipe_connection_resets_total", "counter", help, |f| {
        for (cause, count) in Cause::ALL.iter().zip(c.resets) {
            f.sample(&[("cause", cause.name())], count);
        }
    });
    page.gauge("bentpipe_bypass", "1 while new connections bypass the PEP.", c.bypassing);
    page.gauge("bentpipe_pep_buffered_bytes", "Bytes held by the PEP.", state.buffered);
    if let Some(limit) = state.buffer_limit {
        let help = "Mean limit of an open buffer under window marking; NaN if none is open.";
        page.gauge("bentpipe_pep_buffer_limit_bytes", help, limit);
    }
}

fn spacelink(page: &mut Page, state: &Snapshot) {
    let s = &state.spacelink;
    page.gauge("bentpipe_spacelink_up", "1 while the peer is connected.", s.up);
    let help = "Connections to the peer.";
    page.counter("bentpipe_spacelink_connections_total", help, s.connections);
    let round_trip = s.round_trip.map_or(f64::NAN, |time| time.as_secs_f64());
    page.gauge("bentpipe_spacelink_rtt_seconds", "Smoothed round trip; NaN while down.", round_trip);
    page.counter("bentpipe_spacelink_sent_packets_total", "QUIC packets sent.", s.sent_packets);
    let help = "QUIC packets declared lost; their data is retransmitted.";
    page.counter("bentpipe_spacelink_lost_packets_total", help, s.lost_packets);
    let help = "Bytes of QUIC packets declared lost.";
    page.counter("bentpipe_spacelink_lost_bytes_total", help, s.lost_bytes);
    let help = "Bytes on the wire, UDP and IP headers included.";
    page.family("bentpipe_spacelink_bytes_total", "counter", help, |f| {
        f.sample(&[("direction", "sent")], s.sent_bytes);
        f.sample(&[("direction", "received")], s.received_bytes);
    });
}

/// Metrics of each terminal of a gateway with many.
fn terminals(page: &mut Page, state: &Snapshot, rates: &[PeerRates]) {
    let rates = rates.iter().copied().chain(std::iter::repeat(PeerRates::UNKNOWN));
    let all: Vec<(&PeerState, PeerRates)> =
        state.peers.iter().zip(rates).filter(|(peer, _)| !peer.name.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    page.family("bentpipe_terminal_info", "gauge", "Plan of the terminal; always 1.", |f| {
        for (peer, _) in &all {
            f.sample(&[("terminal", &peer.name), ("plan", &peer.plan)], true);
        }
    });
    let help = "Connected terminals by their bottleneck in the last interval.";
    page.family("bentpipe_terminals_by_bottleneck", "gauge", help, |f| {
        for b in Bottleneck::ALL {
            let count = all.iter().filter(|(peer, rates)| peer.up && rates.bottleneck == b).count();
            f.sample(&[("limit", b.name())], count as u64);
        }
    });
    let help =
        "Estimated MOS of a call towards the terminal (E-model), from delay and loss of the last interval.";
    page.family("bentpipe_terminal_voice_mos", "gauge", help, |f| {
        for (peer, rates) in &all {
            if let Some(mos) = rates.mos {
                f.sample(&[("terminal", &peer.name)], mos);
            }
        }
    });
    let mut each = |name: &'static str, kind: &str, help: &str, value: fn(&PeerState) -> Option<Number>| {
        page.family(name, kind, help, |f| {
            for (peer, _) in &all {
                if let Some(value) = value(peer) {
                    f.line("", &[("terminal", &peer.name)], value);
                }
            }
        });
    };
    each("bentpipe_terminal_up", "gauge", "1 while the terminal is connected.", |p| Some(p.up.into()));
    each("bentpipe_terminal_silent", "gauge", "1 while an answer is overdue: an outage.", |p| {
        Some(p.silent.into())
    });
    each("bentpipe_terminal_rtt_seconds", "gauge", "Smoothed round trip; NaN while down.", |p| {
        Some(p.round_trip.map_or(f64::NAN, |time| time.as_secs_f64()).into())
    });
    each(
        "bentpipe_terminal_sent_bytes_total",
        "counter",
        "Bytes sent to the terminal, UDP and IP headers included.",
        |p| Some(p.sent_bytes.into()),
    );
    each(
        "bentpipe_terminal_received_bytes_total",
        "counter",
        "Bytes received from the terminal, UDP and IP headers included.",
        |p| Some(p.received_bytes.into()),
    );
    each("bentpipe_terminal_sent_packets_total", "counter", "QUIC packets sent.", |p| {
        Some(p.sent_packets.into())
    });
    each("bentpipe_terminal_lost_packets_total", "counter", "QUIC packets declared lost.", |p| {
        Some(p.lost_packets.into())
    });
    each("bentpipe_terminal_connections", "gauge", "Split TCP connections.", |p| Some(p.connections.into()));
    each("bentpipe_terminal_pep_buffered_bytes", "gauge", "Bytes held by the PEP.", |p| {
        Some(p.evidence.buffered.into())
    });
    if all.iter().any(|(peer, _)| peer.queue.is_some()) {
        each("bentpipe_terminal_queue_packets", "gauge", "Packets in the transmit queue.", |p| {
            p.queue.map(|queue| queue.packets.into())
        });
        each("bentpipe_terminal_queue_bytes", "gauge", "Bytes in the transmit queue.", |p| {
            p.queue.map(|queue| queue.bytes.into())
        });
        let help = "Packets dropped by the terminal's queues.";
        each("bentpipe_terminal_queue_dropped_packets_total", "counter", help, |p| {
            p.queue.as_ref().map(|queue| PeerQueue::dropped(queue).into())
        });
    }
}

/// Metrics of the process, under the names that all exporters use.
fn process(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may contain spaces; field 3 of proc(5) follows it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let of = |name| nix::unistd::sysconf(name).ok().flatten().map(|x| x as f64);
    let tick = of(nix::unistd::SysconfVar::CLK_TCK).unwrap_or(100.0);
    let page_size = of(nix::unistd::SysconfVar::PAGE_SIZE).unwrap_or(4096.0);
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        page.counter("process_cpu_seconds_total", "CPU time used.", (user + system) / tick);
    }
    if let Some(pages) = field(24) {
        page.gauge("process_resident_memory_bytes", "Resident memory.", pages * page_size);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors.", open.count() as u64);
    }
    if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        page.gauge("process_max_fds", "Most open file descriptors.", soft);
    }
}
