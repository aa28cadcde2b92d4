//! Places where packets queue: their series and their measurement.

use bentpipe_gateway::{LIMIT_SERIES, Meter, SERIES, Sample, Snapshot, Summary};
use bentpipe_link::Capacity;
use bentpipe_queue::Queue;
use bentpipe_scenario::GatewayIndex;
use bentpipe_units::{Duration, Instant};

use crate::gateways::{GatewayNode, Terminal};
use crate::ids::{GatewayId, IdRange, IdVec, LinkDirectionId, TerminalId};
use crate::network::LinkDirection;

/// Series of a link's queue.
const LINK_SERIES: [&str; 6] = [
    "offered_load",
    "throughput",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
];

/// Series of a place whose capacity changes.
const CAPACITY: &str = "capacity";

/// Series of a carrier with committed rates.
const COMMITTED: &str = "committed_share";

/// A link's queue, or all queues of one of the scenario's gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Gateway(GatewayIndex),
    /// The queues at the terminals of a gateway.
    Return(GatewayIndex),
    Link(LinkDirectionId),
}

/// The queues of a place.
#[derive(Clone, Copy)]
pub(super) enum Queues {
    Link(LinkDirectionId),
    /// The queues of a gateway, for all its terminals or one pair for each.
    Gateway {
        queues: IdRange<GatewayId>,
        terminals: IdRange<TerminalId>,
    },
}

/// The parts of a run that have queues.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    pub links: &'a IdVec<LinkDirectionId, LinkDirection>,
    pub gateways: &'a IdVec<GatewayId, GatewayNode>,
    pub terminals: &'a IdVec<TerminalId, Terminal>,
}

impl Queues {
    /// The gateways of the place; none if it is a link.
    pub(super) fn gateways(self) -> impl Iterator<Item = GatewayId> {
        let queues = match self {
            Self::Link(_) => IdRange { start: crate::ids::Id::new(0), len: 0 },
            Self::Gateway { queues, .. } => queues,
        };
        queues.iter()
    }

    /// The queue whose AQM has series: the one that it watches, unless there are several.
    fn watched<'a>(self, parts: Parts<'a>) -> Option<&'a Queue> {
        match self {
            Self::Link(link) => parts.links[link].engine.queue(),
            Self::Gateway { queues, .. } if queues.len == 1 => {
                Some(parts.gateways[queues.start].gateway.watched_queue())
            }
            Self::Gateway { .. } => None,
        }
    }

    /// Names of its series, AQM and scheduler state included, and true if the capacity is one; `None` for a link without a
    /// queue.
    pub(super) fn series(self, parts: Parts<'_>) -> Option<(Vec<String>, bool)> {
        let (fixed, has_capacity, has_limits, is_committed): (&[_], _, _, _) = match self {
            Self::Link(link) => {
                parts.links[link].engine.queue()?;
                (&LINK_SERIES, parts.links[link].engine.first_update().is_some(), false, false)
            }
            Self::Gateway { queues, terminals } => {
                let follows = terminals.len == 1 && parts.gateways[queues.start].follows.is_some();
                let held = Held::of(terminals, parts);
                (&SERIES, follows, held.limits().is_some(), held.committed.is_some())
            }
        };
        let limits = LIMIT_SERIES.iter().filter(|_| has_limits);
        let names = fixed.iter().chain(has_capacity.then_some(&CAPACITY)).chain(limits);
        let names = names.chain(is_committed.then_some(&COMMITTED));
        let mut names: Vec<_> = names.map(|name| (*name).to_owned()).collect();
        if let Some(watched) = self.watched(parts) {
            watched.probe(&mut |whose, name, _| names.push(format!("{whose}.{name}")));
        }
        Some((names, has_capacity))
    }

    fn snapshot(self, parts: Parts<'_>, now: Instant) -> Option<Snapshot> {
        match self {
            Self::Link(link) => Some(Snapshot::of_queue(parts.links[link].engine.queue()?, now)),
            Self::Gateway { queues, .. } => {
                Some(queues.iter().map(|id| Snapshot::of_gateway(&parts.gateways[id].gateway, now)).sum())
            }
        }
    }
}

/// Sums over terminals.
#[derive(Default)]
struct Held {
    /// Bytes in PEP buffers.
    bytes: u64,
    /// Terminals with flow control, those of them with open windows, and the sum of the mean limits of these.
    controlled: u32,
    open: u32,
    limit_sum: f64,
    /// Closed windows.
    closed: u32,
    /// Share of the carrier's time that the committed rates of terminals would take at the current rates of their links; in an
    /// outage a terminal takes none. `None` without committed rates.
    committed: Option<f64>,
}

impl Held {
    fn of(terminals: IdRange<TerminalId>, parts: Parts<'_>) -> Self {
        let mut held = Self::default();
        for terminal in terminals.iter().map(|id| &parts.terminals[id]) {
            held.bytes += terminal.buffers.occupied();
            if let Some((mean, windows)) = terminal.buffers.limits() {
                held.controlled += 1;
                held.closed += windows;
                if !mean.is_nan() {
                    held.limit_sum += mean;
                    held.open += 1;
                }
            }
            if let Some((cir, link)) = terminal.committed {
                let rate = parts.links[link].engine.present_rate().unwrap_or_default().as_bps();
                let share = if rate > 0 { cir.as_bps() as f64 / rate as f64 } else { 0.0 };
                held.committed = Some(held.committed.map_or(share, |sum| sum + share));
            }
        }
        held
    }

    /// Mean limit of the open PEP buffers, and closed windows; `None` without flow control.
    fn limits(&self) -> Option<(f64, u32)> {
        (self.controlled > 0).then(|| (self.limit_sum / f64::from(self.open), self.closed))
    }
}

/// Records of a place.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) queues: Queues,
    /// Its names among [`crate::Results::places`]: ahead of the PEP and behind it; a link has one.
    pub(super) names: [u32; 2],
    pub(super) meter: Meter,
    /// Its first series.
    first_series: usize,
    /// True if its capacity changes, and is a series.
    has_capacity: bool,
    /// Time that its packets have taken a carrier.
    pub(super) occupied: Duration,
    /// A copy of the link's capacity, if it varies, as the measurement begins.
    capacity: Option<Capacity>,
    /// True if its queues are at terminals.
    pub(super) is_back: bool,
    /// True if samples are taken of it.
    pub(super) has_series: bool,
}

impl Place {
    pub(super) fn new(
        queues: Queues,
        names: [u32; 2],
        first_series: usize,
        has_capacity: bool,
        begin: Instant,
        has_summary: bool,
    ) -> Self {
        Self {
            queues,
            names,
            meter: Meter::new(begin, has_summary),
            first_series,
            has_capacity,
            occupied: Duration::ZERO,
            capacity: None,
            is_back: false,
            has_series: true,
        }
    }

    /// True if its packets are numbered in one order of arrival.
    pub(super) fn is_one_queue(&self) -> bool {
        !matches!(self.queues, Queues::Gateway { queues, .. } if queues.len > 1)
    }

    /// Begins the measurement.
    pub(super) fn begin(&mut self, now: Instant, parts: Parts<'_>) {
        if let Some(snapshot) = self.queues.snapshot(parts, now) {
            self.meter.begin(snapshot, now);
        }
        if let (Queues::Link(link), true) = (self.queues, self.has_series) {
            self.capacity = parts.links[link].engine.variable_capacity();
        }
    }

    /// Takes a sample: `put` gets the number of a series and its value.
    pub(super) fn sample(&mut self, now: Instant, parts: Parts<'_>, mut put: impl FnMut(usize, f64)) {
        // With many queues most of the time goes into fetching them, so each is visited once.
        let (mut receive, mut packets, mut bytes) = (0u64, 0u64, 0);
        let snapshot = match self.queues {
            Queues::Link(_) => self.queues.snapshot(parts, now),
            Queues::Gateway { queues, .. } => Some(
                queues
                    .iter()
                    .map(|id| {
                        let gateway = &parts.gateways[id].gateway;
                        let transmit = gateway.transmit_queue().state();
                        receive += u64::from(gateway.receive_queue().state().packets);
                        packets += u64::from(transmit.packets);
                        bytes += transmit.bytes;
                        Snapshot::of_gateway(gateway, now)
                    })
                    .sum(),
            ),
        };
        let Some(snapshot) = snapshot else { return };
        let Sample { offered, arrived, sent, queue_delay, mark_probability, transit_time } =
            self.meter.sample(snapshot, now);
        let present_rate = |link: LinkDirectionId| {
            parts.links[link].engine.present_rate().unwrap_or_default().as_bps() as f64
        };
        let mut series = self.first_series;
        let mut put = |value: f64| {
            put(series, value);
            series += 1;
        };
        match self.queues {
            Queues::Link(link) => {
                let Some(queue) = parts.links[link].engine.queue() else { return };
                let state = queue.state();
                for value in [offered, sent, f64::from(state.packets), state.bytes as f64] {
                    put(value);
                }
                put(queue_delay);
                put(mark_probability);
                if self.has_capacity {
                    put(present_rate(link));
                }
            }
            Queues::Gateway { queues, terminals } => {
                for value in [offered, arrived, sent, receive as f64, packets as f64, bytes as f64] {
                    put(value);
                }
                put(queue_delay);
                put(mark_probability);
                let held = Held::of(terminals, parts);
                put(held.bytes as f64);
                put(transit_time);
                if self.has_capacity {
                    put(parts.gateways[queues.start].follows.map_or(0.0, present_rate));
                }
                if let Some((mean, closed)) = held.limits() {
                    put(mean);
                    put(f64::from(closed));
                }
                if let Some(share) = held.committed {
                    put(share);
                }
            }
        }
        if let Some(watched) = self.queues.watched(parts) {
            watched.probe(&mut |_, _, value| put(value));
        }
    }

    /// Packets that have arrived, left, and been dropped.
    pub(super) fn passed(&self, parts: Parts<'_>) -> [u64; 3] {
        self.queues.snapshot(parts, Instant::ZERO).map_or([0; 3], |snapshot| snapshot.passed())
    }

    /// Summary of the measurement until `now`, if it has one.
    pub(super) fn summary(&self, now: Instant, parts: Parts<'_>) -> Option<Summary> {
        let mut summary = self.meter.summary(&self.queues.snapshot(parts, now)?, now)?;
        let begin = self.meter.begin_at();
        if let Some(capacity) = &self.capacity {
            summary.used_share = 8.0 * summary.sent_bytes as f64 / capacity.clone().between(begin, now);
        } else if !self.occupied.is_zero() {
            summary.used_share = self.occupied.as_secs_f64() / (now - begin).as_secs_f64();
        }
        Some(summary)
    }
}
