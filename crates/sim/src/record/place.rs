//! Places where packets queue: their series and their measurement.

use bentpipe_gateway::{LIMIT_SERIES, Meter, SERIES, Sample, Snapshot, Summary};
use bentpipe_queue::Queue;
use bentpipe_units::Instant;

use crate::gateways::GatewayNode;
use crate::ids::{GatewayId, IdVec, LinkDirectionId};
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

/// A place with a queue, or the two queues of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Gateway(GatewayId),
    Link(LinkDirectionId),
}

/// Records of a place.
pub(super) struct Place {
    kind: PlaceKind,
    /// Its names among [`crate::Results::places`]: ahead of the PEP and behind it; a link has one.
    pub(super) names: [u32; 2],
    pub(super) meter: Meter,
    /// Its first series.
    first_series: usize,
    /// True if its capacity changes, and is a series.
    has_capacity: bool,
}

/// The queues of a place.
struct Queues<'a> {
    /// The queue whose AQM decides.
    watched: &'a Queue,
    /// The transmit queue.
    transmit: &'a Queue,
    gateway: Option<&'a GatewayNode>,
}

impl Queues<'_> {
    fn snapshot(&self, now: Instant) -> Snapshot {
        match self.gateway {
            Some(node) => Snapshot::of_gateway(&node.gateway, now),
            None => Snapshot::of_queue(self.transmit, now),
        }
    }
}

impl PlaceKind {
    /// The queues of the place; `None` for a link without a queue.
    fn queues<'a>(
        self,
        links: &'a IdVec<LinkDirectionId, LinkDirection>,
        gateways: &'a IdVec<GatewayId, GatewayNode>,
    ) -> Option<Queues<'a>> {
        match self {
            Self::Link(link) => {
                let queue = links[link].engine.queue()?;
                Some(Queues { watched: queue, transmit: queue, gateway: None })
            }
            Self::Gateway(id) => {
                let node = &gateways[id];
                let (watched, transmit) = (node.gateway.watched_queue(), node.gateway.transmit_queue());
                Some(Queues { watched, transmit, gateway: Some(node) })
            }
        }
    }

    /// Names of its series, AQM and scheduler state included; `None` for a link without a queue.
    pub(super) fn series(
        self,
        links: &IdVec<LinkDirectionId, LinkDirection>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) -> Option<(Vec<String>, bool)> {
        let queues = self.queues(links, gateways)?;
        let (fixed, has_capacity, has_limits): (&[_], _, _) = match self {
            Self::Link(link) => (&LINK_SERIES, links[link].engine.first_update().is_some(), false),
            Self::Gateway(id) => {
                (&SERIES, gateways[id].follows.is_some(), gateways[id].buffers.has_control())
            }
        };
        let limits = LIMIT_SERIES.iter().filter(|_| has_limits);
        let names = fixed.iter().chain(has_capacity.then_some(&CAPACITY)).chain(limits);
        let mut names: Vec<_> = names.map(|name| (*name).to_owned()).collect();
        queues.watched.probe(&mut |whose, name, _| names.push(format!("{whose}.{name}")));
        Some((names, has_capacity))
    }
}

impl Place {
    pub(super) fn new(
        kind: PlaceKind,
        names: [u32; 2],
        first_series: usize,
        has_capacity: bool,
        begin: Instant,
        is_subject: bool,
    ) -> Self {
        Self { kind, names, meter: Meter::new(begin, is_subject), first_series, has_capacity }
    }

    /// Begins the measurement.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        links: &IdVec<LinkDirectionId, LinkDirection>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) {
        if let Some(queues) = self.kind.queues(links, gateways) {
            self.meter.begin(queues.snapshot(now), now);
        }
    }

    /// Takes a sample: `put` gets the number of a series and its value.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        links: &IdVec<LinkDirectionId, LinkDirection>,
        gateways: &IdVec<GatewayId, GatewayNode>,
        mut put: impl FnMut(usize, f64),
    ) {
        let Some(queues) = self.kind.queues(links, gateways) else { return };
        let Sample { offered, arrived, sent, queue_delay, mark_probability, transit_time } =
            self.meter.sample(queues.snapshot(now), now);
        let mut series = self.first_series;
        let mut put = |value: f64| {
            put(series, value);
            series += 1;
        };
        let state = queues.transmit.state();
        put(offered);
        if queues.gateway.is_some() {
            put(arrived);
        }
        put(sent);
        if let Some(node) = queues.gateway {
            put(f64::from(node.gateway.receive_queue().state().packets));
        }
        put(f64::from(state.packets));
        put(state.bytes as f64);
        put(queue_delay);
        put(mark_probability);
        if let Some(node) = queues.gateway {
            put(node.buffers.occupied() as f64);
            put(transit_time);
        }
        if self.has_capacity {
            put(state.capacity.as_bps() as f64);
        }
        if let Some((mean, closed)) = queues.gateway.and_then(|node| node.buffers.limits()) {
            put(mean);
            put(f64::from(closed));
        }
        queues.watched.probe(&mut |_, _, value| put(value));
    }

    /// Summary of the measurement until `now`, if it is the subject.
    pub(super) fn summary(
        &self,
        now: Instant,
        links: &IdVec<LinkDirectionId, LinkDirection>,
        gateways: &IdVec<GatewayId, GatewayNode>,
    ) -> Option<Summary> {
        self.meter.summary(&self.kind.queues(links, gateways)?.snapshot(now), now)
    }
}
