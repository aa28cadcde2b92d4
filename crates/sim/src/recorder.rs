//! What a run writes down: time series, drops, flows, and the counters behind the metrics.

use bentpipe_gateway::{Gateway, GatewayQueue, LIMIT_SERIES, SERIES};
use bentpipe_queue::{Counters, DropReason, Packet, Queue};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use crate::network::Link;
use crate::world::Station;

/// A quantity sampled at regular times.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name, with the place in front unless that is the subject.
    pub name: String,
    /// One value a sample; NaN where there was nothing to measure.
    pub values: Vec<f64>,
}

/// Every packet that was discarded while measuring, column by column.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    /// When [s since measuring began].
    pub time: Vec<f64>,
    /// Its number among the arrivals at the place's mark point since measuring began.
    pub arrival: Vec<u64>,
    /// Where (an index of [`Recorder::place_names`]).
    pub place: Vec<u32>,
    /// Why (an index of [`REASONS`]).
    pub reason: Vec<u8>,
    /// Whose.
    pub flow: Vec<u32>,
    /// How long [bytes].
    pub bytes: Vec<u32>,
}

/// Why packets are discarded.
pub const REASONS: [&str; 3] = ["aqm", "overflow", "loss"];

/// One connection from end to end.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The traffic it belongs to (an index of [`crate::Results::traffic`]).
    pub traffic: u32,
    /// The number of its session or source in its traffic.
    pub session: u32,
    /// When its first packet left.
    pub opened: Instant,
    /// When its last byte came, or it was given up.
    pub closed: Option<Instant>,
    /// Whether all of it came.
    pub completed: bool,
    /// Whether it was closed because its source left, as the scenario says.
    pub left: bool,
    /// Whether it has an end at all.
    pub finite: bool,
    /// Payload delivered in all [bytes].
    pub delivered: u64,
    /// Payload delivered while measuring [bytes].
    pub measured: u64,
    /// Packets of it that were discarded anywhere while measuring.
    pub drops: u32,
    /// Its packets with data that came from end to end while measuring, those that were sent again among them; none are
    /// counted where a PEP splits it.
    pub received_packets: u32,
    /// Sum of their delays, and of the differences between those of successive ones [ns].
    delay_sum: u64,
    jitter_sum: u64,
    /// The delay of the last [ns].
    last_delay: u64,
}

impl Flow {
    /// From opening to the last byte [s]; NaN where it was not completed.
    #[must_use]
    pub fn completion_time(&self) -> f64 {
        match self.closed {
            Some(closed) if self.completed => (closed - self.opened).as_secs_f64(),
            _ => f64::NAN,
        }
    }

    /// Mean delay of its packets from end to end [s]; NaN without any.
    #[must_use]
    pub fn delay(&self) -> f64 {
        self.delay_sum as f64 * 1e-9 / f64::from(self.received_packets)
    }

    /// Mean difference between the delays of packets that came one after the other (RFC 3550, section 6.4.1, D; RFC 3393)
    /// [s]; NaN without two.
    #[must_use]
    pub fn jitter(&self) -> f64 {
        self.jitter_sum as f64 * 1e-9 / (f64::from(self.received_packets) - 1.0).max(0.0)
    }

    /// Payload over time [bit/s], for a measurement from `begin` to `end`. A finite flow counts where it was completed
    /// in that time, an endless one over the time that it was open in it; NaN otherwise.
    #[must_use]
    pub fn goodput(&self, begin: Instant, end: Instant) -> f64 {
        if !self.finite {
            let until = self.closed.unwrap_or(end);
            return self.measured as f64 * 8.0 / (until - self.opened.max(begin)).as_secs_f64();
        }
        if self.closed.is_none_or(|closed| closed < begin) {
            return f64::NAN;
        }
        self.delivered as f64 * 8.0 / self.completion_time()
    }
}

/// What went over the spacelinks since the run began [packets].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PepLinkCounters {
    /// Data packets, in both directions, repeated ones among them.
    pub sent: u64,
    /// Data packets whose content had been sent before.
    pub retransmitted: u64,
    /// Acknowledgements.
    pub acks: u64,
}

/// What the subject's counters say of the measured time.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Packets at the mark point.
    pub offered_packets: u64,
    /// Bytes at the mark point.
    pub offered_bytes: u64,
    /// Packets that the Aqm signalled congestion with.
    pub marked_packets: u64,
    /// Packets discarded at the mark point for the Aqm's verdict.
    pub aqm_drops: u64,
    /// Packets discarded at the mark point for want of room.
    pub overflow_drops: u64,
    /// Packets discarded at the gateway's other queue.
    pub drops_elsewhere: u64,
    /// Packets that left over the link.
    pub sent_packets: u64,
    /// Bytes that left over the link.
    pub sent_bytes: u64,
    /// Mean over time [packets].
    pub queue_time_average: f64,
    /// Queueing delay of packets that left [s]: mean, percentiles 50, 95, 99, greatest.
    pub queue_delay: [f64; 5],
    /// Mean difference between the queueing delays of successive packets (RFC 3393) [s].
    pub jitter: f64,
}

impl crate::Results {
    /// Counters of the run by name, from which metrics are computed; NaN where nothing was measured.
    ///
    /// A counter added here reaches Python and the files of a run without further changes.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, f64)> {
        let s = &self.summary;
        let [mean, p50, p95, p99, max] = s.queue_delay;
        vec![
            ("offered_packets", s.offered_packets as f64),
            ("offered_bytes", s.offered_bytes as f64),
            ("dropped_packets", (s.aqm_drops + s.overflow_drops) as f64),
            ("aqm_drops", s.aqm_drops as f64),
            ("overflow_drops", s.overflow_drops as f64),
            ("drops_elsewhere", s.drops_elsewhere as f64),
            ("marked_packets", s.marked_packets as f64),
            ("sent_packets", s.sent_packets as f64),
            ("sent_bytes", s.sent_bytes as f64),
            ("queue_time_average", s.queue_time_average),
            ("queue_delay_mean", mean),
            ("queue_delay_p50", p50),
            ("queue_delay_p95", p95),
            ("queue_delay_p99", p99),
            ("queue_delay_max", max),
            ("jitter", s.jitter),
            ("space_packets", self.pep_link.sent as f64),
            ("space_retransmissions", self.pep_link.retransmitted as f64),
            ("space_acks", self.pep_link.acks as f64),
            ("events", self.events as f64),
            ("measured_seconds", (self.end - self.begin).as_secs_f64()),
            ("simulated_seconds", self.end.as_secs_f64()),
        ]
    }
}

/// Where packets queue, as seen by the recorder.
struct Place {
    kind: PlaceKind,
    /// Indexes of its names among [`Recorder::place_names`]: ahead of the PEP, behind it; a port has one.
    names: [u32; 2],
    /// Counters at the last sample.
    last: Snapshot,
    /// Counters when measuring began.
    begin: Snapshot,
    /// Queueing delays since the last sample [ns], and how many.
    delay_sum: u64,
    delay_count: u64,
    /// Times from the receive queue to the transmit queue since the last sample [ns], and how many.
    transit_sum: u64,
    transit_count: u64,
    /// Where its columns begin.
    first_series: usize,
    /// Whether its capacity changes, and so is a column.
    changes: bool,
    /// Names of the Aqm's internal state.
    detail: Detail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    Gateway(u32),
    Link(u32),
}

#[derive(Clone, Copy, Default)]
struct Snapshot {
    /// Of the queue whose Aqm judges.
    counters: Counters,
    /// Packets discarded at the mark point, for the Aqm's verdict and for want of room.
    aqm_drops: u64,
    overflow_drops: u64,
    /// Packets discarded at the place's other queue.
    elsewhere: u64,
    /// Of the transmit queue.
    sent: u64,
    sent_bytes: u64,
    packet_seconds: f64,
    arrived_bytes: u64,
}

/// The queues of a place.
struct Queues<'a> {
    /// The one whose Aqm judges.
    watched: &'a Queue,
    /// The transmit queue.
    shown: &'a Queue,
    /// A gateway's packets in the receive queue, and bytes in the PEP's buffers.
    gateway: Option<(f64, f64)>,
    /// … and where marks cut windows, the mean limit, and the windows that are closed.
    limits: Option<(f64, u32)>,
}

impl Place {
    /// The place as it stands.
    fn look<'a>(
        &self,
        now: Instant,
        links: &'a [Link],
        stations: &'a [Station],
    ) -> Option<(Snapshot, Queues<'a>)> {
        let mut limits = None;
        let (watched, at_mark, other, shown, arrived_bytes, gateway) = match self.kind {
            PlaceKind::Link(link) => {
                let queue = links[link as usize].engine.queue()?;
                (queue, queue, None, queue, 0, None)
            }
            PlaceKind::Gateway(station) => {
                let s = &stations[station as usize];
                let (receive, transmit) = (s.gateway.receive_queue(), s.gateway.transmit_queue());
                let (at_mark, other) = match s.gateway.mark_point() {
                    GatewayQueue::Receive => (receive, transmit),
                    GatewayQueue::Transmit => (transmit, receive),
                };
                let extra = (f64::from(receive.state().packets), s.buffers.occupied() as f64);
                let arrived = s.gateway.arrived_bytes();
                limits = s.buffers.limits();
                (s.gateway.watched_queue(), at_mark, Some(other), transmit, arrived, Some(extra))
            }
        };
        let snapshot = Snapshot {
            counters: *watched.counters(),
            aqm_drops: watched.counters().dropped_on_arrival + at_mark.counters().dropped_in_queue,
            overflow_drops: at_mark.counters().overflowed,
            elsewhere: other.map_or(0, |q| q.counters().overflowed + q.counters().dropped_in_queue),
            sent: shown.counters().sent,
            sent_bytes: shown.state().sent_bytes,
            packet_seconds: shown.packet_seconds(now),
            arrived_bytes,
        };
        Some((snapshot, Queues { watched, shown, gateway, limits }))
    }
}

/// What is kept of the subject alone.
struct Detail {
    delays: Option<Histogram<u64>>,
    jitter_sum: u64,
    jitter_count: u64,
    last_delay: Option<u64>,
    runs: Runs,
}

/// Runs of consecutive drops.
#[derive(Default)]
struct Runs {
    /// How many there were of each length.
    counts: Vec<u64>,
    length: usize,
    last: u64,
}

impl Runs {
    /// The `arrival`-th packet was discarded.
    fn drop(&mut self, arrival: u64) {
        if self.length > 0 && arrival == self.last + 1 {
            self.length += 1;
        } else {
            self.close();
            self.length = 1;
        }
        self.last = arrival;
    }

    fn close(&mut self) {
        if self.length == 0 {
            return;
        }
        if self.counts.len() <= self.length {
            self.counts.resize(self.length + 1, 0);
        }
        self.counts[self.length] += 1;
        self.length = 0;
    }
}

/// Writes down what happens in a run.
pub struct Recorder {
    warmup: Instant,
    end: Instant,
    interval: Duration,
    measuring: bool,
    samples: u64,
    places: Vec<Place>,
    /// The place of each port and each gateway.
    of_link: Vec<usize>,
    of_gateway: Vec<usize>,
    subject: usize,
    pub place_names: Vec<String>,
    /// The first name that belongs to a link, for packets that it loses.
    first_link_name: usize,
    pub series: Vec<Series>,
    pub drops: Drops,
    pub flows: Vec<Flow>,
    pub summary: Summary,
}

/// What the recorder has to know beforehand.
pub struct Setup<'a> {
    pub warmup: Duration,
    pub duration: Duration,
    pub interval: Duration,
    /// Name and gateway of each station, whether its regulator's rate changes, and whether marks cut its windows.
    pub gateways: Vec<(&'a str, &'a Gateway, bool, bool)>,
    pub links: &'a [Link],
    /// Whether the subject is a gateway, and its number among the gateways or ports.
    pub subject: (bool, u32),
}

/// Queueing delays are told apart up to here [ns]; longer ones count as this.
const LONGEST_DELAY: u64 = 1_000_000_000_000;

const LINK_SERIES: [&str; 6] = [
    "offered_load",
    "throughput",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
];

/// Follows where the link's capacity changes.
const CAPACITY: &str = "capacity";

fn series(fixed: &[&'static str], changes: bool, limits: bool) -> Vec<&'static str> {
    let limits = LIMIT_SERIES.iter().copied().filter(|_| limits);
    fixed.iter().copied().chain(changes.then_some(CAPACITY)).chain(limits).collect()
}

impl Recorder {
    pub fn new(setup: &Setup<'_>) -> Self {
        let mut recorder = Self {
            warmup: Instant::ZERO + setup.warmup,
            end: Instant::ZERO + setup.warmup + setup.duration,
            interval: setup.interval,
            measuring: false,
            samples: 0,
            places: Vec::new(),
            of_link: Vec::new(),
            of_gateway: Vec::new(),
            subject: 0,
            place_names: Vec::new(),
            first_link_name: 0,
            series: vec![Series { name: "time".to_owned(), values: Vec::new() }],
            drops: Drops::default(),
            flows: Vec::new(),
            summary: Summary::default(),
        };
        for (station, &(name, gateway, changes, limits)) in setup.gateways.iter().enumerate() {
            let names = [format!("{name} receive"), format!("{name} transmit")];
            let place = recorder.places.len();
            recorder.of_gateway.push(place);
            let kind = PlaceKind::Gateway(station as u32);
            let queue = gateway.watched_queue();
            let series = series(&SERIES, changes, limits);
            recorder.add(kind, name, &names, queue, &series, setup.subject);
        }
        for (index, link) in setup.links.iter().enumerate() {
            let place = recorder.places.len();
            recorder.of_link.push(place);
            let Some(queue) = link.engine.queue() else { continue };
            let (kind, names) = (PlaceKind::Link(index as u32), [link.name.clone()]);
            let series = series(&LINK_SERIES, link.engine.first_update().is_some(), false);
            recorder.add(kind, &link.name, &names, queue, &series, setup.subject);
        }
        recorder.first_link_name = recorder.place_names.len();
        recorder.place_names.extend(setup.links.iter().map(|link| link.name.clone()));
        recorder
    }

    fn add(
        &mut self,
        kind: PlaceKind,
        name: &str,
        names: &[String],
        queue: &Queue,
        series: &[&str],
        subject: (bool, u32),
    ) {
        let is_subject = match kind {
            PlaceKind::Gateway(g) => subject == (true, g),
            PlaceKind::Link(l) => subject == (false, l),
        };
        if is_subject {
            self.subject = self.places.len();
        }
        let prefix = if is_subject { String::new() } else { format!("{name}.") };
        let first_name = self.place_names.len() as u32;
        self.place_names.extend(names.iter().cloned());
        let first_series = self.series.len();
        let mut columns: Vec<String> = series.iter().map(|s| (*s).to_owned()).collect();
        queue.probe(&mut |whose, name, _| columns.push(format!("{whose}.{name}")));
        for column in columns {
            self.series.push(Series { name: format!("{prefix}{column}"), values: Vec::new() });
        }
        self.places.push(Place {
            kind,
            names: [first_name, first_name + names.len() as u32 - 1],
            last: Snapshot::default(),
            begin: Snapshot::default(),
            delay_sum: 0,
            delay_count: 0,
            transit_sum: 0,
            transit_count: 0,
            first_series,
            changes: series.contains(&CAPACITY),
            detail: Detail {
                delays: is_subject.then(|| Histogram::new_with_max(LONGEST_DELAY, 3).ok()).flatten(),
                jitter_sum: 0,
                jitter_count: 0,
                last_delay: None,
                runs: Runs::default(),
            },
        });
    }

    // ----- what happens --------------------------------------------------------------------------------------

    pub fn open_flow(&mut self, now: Instant, traffic: u32, session: u32, finite: bool) -> u32 {
        self.flows.push(Flow {
            traffic,
            session,
            opened: now,
            closed: None,
            completed: false,
            left: false,
            finite,
            delivered: 0,
            measured: 0,
            drops: 0,
            received_packets: 0,
            delay_sum: 0,
            jitter_sum: 0,
            last_delay: 0,
        });
        (self.flows.len() - 1) as u32
    }

    pub fn close_flow(&mut self, now: Instant, flow: u32, completed: bool) {
        let flow = &mut self.flows[flow as usize];
        flow.closed = Some(now);
        flow.completed = completed;
    }

    /// The flow's source left.
    pub fn leave_flow(&mut self, now: Instant, flow: u32) {
        let flow = &mut self.flows[flow as usize];
        flow.closed = Some(now);
        flow.left = true;
    }

    #[inline]
    pub fn delivered(&mut self, flow: u32, bytes: u64) {
        let flow = &mut self.flows[flow as usize];
        flow.delivered += bytes;
        flow.measured += if self.measuring { bytes } else { 0 };
    }

    /// A packet with the flow's data came from end to end.
    #[inline]
    pub fn came(&mut self, flow: u32, delay: Duration) {
        if !self.measuring {
            return;
        }
        let (flow, delay) = (&mut self.flows[flow as usize], delay.as_nanos());
        if flow.received_packets > 0 {
            flow.jitter_sum += flow.last_delay.abs_diff(delay);
        }
        flow.delay_sum += delay;
        flow.last_delay = delay;
        flow.received_packets += 1;
    }

    /// A packet of the flow was discarded.
    pub fn count_drop(&mut self, flow: u32) {
        self.flows[flow as usize].drops += u32::from(self.measuring);
    }

    #[inline]
    pub fn left_link(&mut self, link: u32, delay: Duration) {
        self.left(self.of_link[link as usize], delay);
    }

    #[inline]
    pub fn left_gateway(&mut self, station: u32, delay: Duration) {
        self.left(self.of_gateway[station as usize], delay);
    }

    /// A packet that has not been there before comes to a gateway's transmit queue, so long after its bytes entered the
    /// receive queue.
    #[inline]
    pub fn passed_gateway(&mut self, station: u32, transit: Duration) {
        if self.measuring {
            let place = &mut self.places[self.of_gateway[station as usize]];
            place.transit_sum += transit.as_nanos();
            place.transit_count += 1;
        }
    }

    #[inline]
    fn left(&mut self, place: usize, delay: Duration) {
        if !self.measuring {
            return;
        }
        let place = &mut self.places[place];
        let delay = delay.as_nanos();
        place.delay_sum += delay;
        place.delay_count += 1;
        if let Some(delays) = &mut place.detail.delays {
            delays.saturating_record(delay);
            if let Some(last) = place.detail.last_delay.replace(delay) {
                place.detail.jitter_sum += last.abs_diff(delay);
                place.detail.jitter_count += 1;
            }
        }
    }

    pub fn dropped_at_link(&mut self, now: Instant, link: u32, pkt: &Packet, reason: DropReason) {
        let place = self.of_link[link as usize];
        let name = self.places[place].names[0];
        self.note(now, place, name, true, pkt, reason);
    }

    pub fn dropped_at_gateway(
        &mut self,
        now: Instant,
        station: u32,
        gateway: &Gateway,
        pkt: &Packet,
        reason: DropReason,
        at: GatewayQueue,
    ) {
        let place = self.of_gateway[station as usize];
        let name = self.places[place].names[usize::from(at == GatewayQueue::Transmit)];
        // What overflows elsewhere was judged a while ago, or never: it has no number.
        self.note(now, place, name, at == gateway.mark_point(), pkt, reason);
    }

    fn note(
        &mut self,
        now: Instant,
        place: usize,
        name: u32,
        judged: bool,
        pkt: &Packet,
        reason: DropReason,
    ) {
        if !self.measuring {
            return;
        }
        // A packet that was judged before measuring began has no number either.
        let begin = self.places[place].begin.counters.offered;
        let arrival = pkt.number.checked_sub(begin).filter(|_| judged);
        if let Some(arrival) = arrival {
            self.places[place].detail.runs.drop(arrival);
        }
        let reason = match reason {
            DropReason::Aqm => 0,
            DropReason::Overflow => 1,
        };
        self.push_drop(now, arrival.unwrap_or(u64::MAX), name, reason, pkt.flow, pkt.len);
    }

    /// A link has lost a packet.
    pub fn lost(&mut self, now: Instant, link: u32, flow: u32, len: u32) {
        if self.measuring {
            let name = (self.first_link_name + link as usize) as u32;
            self.push_drop(now, u64::MAX, name, 2, flow, len);
        }
    }

    fn push_drop(&mut self, now: Instant, arrival: u64, place: u32, reason: u8, flow: u32, bytes: u32) {
        self.drops.time.push((now - self.warmup).as_secs_f64());
        self.drops.arrival.push(arrival);
        self.drops.place.push(place);
        self.drops.reason.push(reason);
        self.drops.flow.push(flow);
        self.drops.bytes.push(bytes);
    }

    // ----- samples -------------------------------------------------------------------------------------------

    /// Takes a sample; gives the time of the next. The one that begins the measurement only notes where the
    /// counters stand.
    pub fn sample(&mut self, now: Instant, links: &[Link], stations: &[Station]) -> Option<Instant> {
        let began = self.measuring;
        self.measuring = true;
        if began {
            self.series[0].values.push((now - self.warmup).as_secs_f64());
        }
        for place in &mut self.places {
            let Some((snapshot, queues)) = place.look(now, links, stations) else { continue };
            let Queues { watched: queue, shown, gateway: extra, limits } = queues;
            if !began {
                (place.begin, place.last) = (snapshot, snapshot);
                continue;
            }
            let seconds = self.interval.as_secs_f64();
            let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
            let last = std::mem::replace(&mut place.last, snapshot);
            let judged = snapshot.counters.offered - last.counters.offered;
            let marked = snapshot.counters.marked - last.counters.marked;
            let offered = rate(snapshot.counters.offered_bytes - last.counters.offered_bytes);
            let out = rate(snapshot.sent_bytes - last.sent_bytes);
            let (packets, bytes) = (f64::from(shown.state().packets), shown.state().bytes as f64);
            let delay = place.delay_sum as f64 * 1e-9 / place.delay_count as f64;
            (place.delay_sum, place.delay_count) = (0, 0);
            let transit = place.transit_sum as f64 * 1e-9 / place.transit_count as f64;
            (place.transit_sum, place.transit_count) = (0, 0);
            // A scheduler's own marks go on while nothing arrives.
            let marks = if judged == 0 { f64::NAN } else { marked as f64 / judged as f64 };
            let mut column = place.first_series;
            let mut put = |value: f64| {
                self.series[column].values.push(value);
                column += 1;
            };
            match extra {
                Some((received, buffered)) => {
                    let arriving = rate(snapshot.arrived_bytes - last.arrived_bytes);
                    let fixed = [offered, arriving, out, received, packets, bytes, delay, marks, buffered];
                    fixed.into_iter().chain([transit]).for_each(&mut put);
                }
                None => {
                    for value in [offered, out, packets, bytes, delay, marks] {
                        put(value);
                    }
                }
            }
            if place.changes {
                put(shown.state().capacity.as_bps() as f64);
            }
            if let Some((mean, closed)) = limits {
                put(mean);
                put(f64::from(closed));
            }
            queue.probe(&mut |_, _, value| put(value));
        }
        self.samples += u64::from(began);
        let next = now + self.interval;
        (next <= self.end).then_some(next)
    }

    /// Works out the summary, at the end of the run.
    pub fn finish(&mut self, now: Instant, links: &[Link], stations: &[Station]) {
        let place = &mut self.places[self.subject];
        place.detail.runs.close();
        let Some((end, _)) = place.look(now, links, stations) else { return };
        let begin = &place.begin;
        let seconds = (now - self.warmup).as_secs_f64();
        let delays = place.detail.delays.as_ref();
        let percentile = |q: f64| delays.map_or(f64::NAN, |d| d.value_at_quantile(q) as f64 * 1e-9);
        self.summary = Summary {
            offered_packets: end.counters.offered - begin.counters.offered,
            offered_bytes: end.counters.offered_bytes - begin.counters.offered_bytes,
            marked_packets: end.counters.marked - begin.counters.marked,
            aqm_drops: end.aqm_drops - begin.aqm_drops,
            overflow_drops: end.overflow_drops - begin.overflow_drops,
            drops_elsewhere: end.elsewhere - begin.elsewhere,
            sent_packets: end.sent - begin.sent,
            sent_bytes: end.sent_bytes - begin.sent_bytes,
            queue_time_average: (end.packet_seconds - begin.packet_seconds) / seconds,
            queue_delay: match delays {
                Some(d) if !d.is_empty() => [
                    d.mean() * 1e-9,
                    percentile(0.5),
                    percentile(0.95),
                    percentile(0.99),
                    d.max() as f64 * 1e-9,
                ],
                _ => [f64::NAN; 5],
            },
            jitter: place.detail.jitter_sum as f64 * 1e-9 / place.detail.jitter_count as f64,
        };
    }

    /// Runs of consecutive drops at the subject's mark point: length and how many.
    pub fn drop_runs(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let counts = &self.places[self.subject].detail.runs.counts;
        counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(length, n)| (length as u32, *n))
    }

    /// When measuring begins, with the first sample.
    pub fn begin(&self) -> Instant {
        self.warmup
    }

    /// Checks that the records agree with each other.
    ///
    /// # Errors
    /// Names what does not.
    pub fn check(&self) -> Result<(), String> {
        for series in &self.series {
            if series.values.len() as u64 != self.samples {
                return Err(format!(
                    "{}: {} values, {} samples",
                    series.name,
                    series.values.len(),
                    self.samples
                ));
            }
        }
        let names = self.places[self.subject].names;
        let placed = self.drops.place.iter().zip(&self.drops.arrival);
        let (mut here, mut numbered) = (0, 0);
        for (_, &arrival) in placed.filter(|(place, _)| names.contains(place)) {
            here += 1;
            numbered += u64::from(arrival != u64::MAX);
        }
        let s = &self.summary;
        let counted = s.aqm_drops + s.overflow_drops + s.drops_elsewhere;
        if counted != here {
            return Err(format!("{here} drops recorded at the subject, {counted} counted"));
        }
        let runs: u64 = self.drop_runs().map(|(length, n)| u64::from(length) * n).sum();
        if runs != numbered {
            return Err(format!("{runs} drops in runs, {numbered} numbered"));
        }
        Ok(())
    }
}
