//! The recorder: it is told what happens, and takes samples at regular times.

use std::iter::repeat_n;
use std::sync::Arc;

use bentpipe_gateway::{Gateway, GatewayQueue, Intervals};
use bentpipe_queue::{DropReason, FlowId, Packet};
use bentpipe_scenario::{GatewayIndex, Scenario, TrafficKind};
use bentpipe_units::{Duration, Instant, Rate};

use super::drops::{Drop, Drops};
use super::flow::{Flow, Flows};
use super::name_list::NameList;
use super::place::{Parts, Place, PlaceKind, Queues};
use super::probe::ProbeSteps;
use super::summary::Carried;
use super::terminal::{Page, Terminal};
use super::units::{Class, Classes, PageLoad};
use super::{Series, Summary};
use crate::bottleneck::Bottleneck;
use crate::ids::{
    CallId, ClassId, GatewayId, Id, IdRange, IdVec, LinkDirectionId, PlaceId, TerminalId, TrafficId,
    ViewingId,
};
use bentpipe_traffic::dash::{Period, Viewing};
use bentpipe_traffic::voice::Call;

/// Highest number that a queue knows a flow by; the one above is that of packets without a flow.
const LAST_ALIAS: u32 = u32::MAX - 1;

/// Series of the data that arrive from end to end, over the flows whose data pass the subject.
const ARRIVED_SERIES: [&str; 2] = ["goodput", "one_way_delay"];

/// Data that have arrived from end to end since the last sample.
#[derive(Clone, Copy, Default)]
struct Arrived {
    /// Payload [bytes].
    bytes: u64,
    /// Data units, and the sum of their delays [ns].
    units: u64,
    delay_sum: u64,
}

impl Arrived {
    /// Values of [`ARRIVED_SERIES`] after a sample's interval: [bit/s], [s].
    fn values(self, interval: Duration) -> [f64; 2] {
        [self.bytes as f64 * 8.0 / interval.as_secs_f64(), self.delay_sum as f64 * 1e-9 / self.units as f64]
    }
}

/// Goodput of a class of traffic at the samples.
#[derive(Clone)]
struct ClassGoodput {
    /// Payload delivered until the last sample [bytes].
    delivered: u64,
    /// Goodput in the interval before each sample [bit/s].
    values: Vec<f64>,
}

/// Records of a run.
#[derive(Clone)]
pub struct Recorder {
    warmup: Instant,
    end: Instant,
    interval: Duration,
    is_measuring: bool,
    samples: u64,
    places: IdVec<PlaceId, Place>,
    of_link: IdVec<LinkDirectionId, Option<PlaceId>>,
    of_gateway: IdVec<GatewayId, PlaceId>,
    subject: PlaceId,
    /// The queues at the terminals of the gateway that is the subject, if there are any.
    back: Option<PlaceId>,
    place_names: NameList,
    /// The first name of a link, for the packets that it loses.
    first_link_name: u32,
    series: Vec<Series>,
    /// The first of [`ARRIVED_SERIES`], which are the last series.
    first_arrived: usize,
    arrived: Arrived,
    /// Goodput of each class; none unless it was asked for.
    class_goodput: Vec<ClassGoodput>,
    /// True for a traffic entry whose data pass the subject.
    passes_subject: IdVec<TrafficId, bool>,
    drops: Drops,
    flows: Flows,
    /// Flows with further numbers at queues, which count down from [`LAST_ALIAS`].
    aliases: Vec<FlowId>,
    classes: Classes,
    calls: IdVec<CallId, Call>,
    /// Ladder of each traffic entry; `None` if it is not adaptive video.
    ladders: IdVec<TrafficId, Option<Arc<[Rate]>>>,
    viewings: IdVec<ViewingId, Viewing>,
    /// Terminals of gateways with several; none if each has one.
    terminals: IdVec<TerminalId, Terminal>,
    /// Division of the measurement for [`Self::terminals`].
    intervals: Intervals,
    /// Pages of users behind [`Self::terminals`], in the order in which they ended.
    pages: Vec<Page>,
    summary: Summary,
    /// Summary of [`Self::back`].
    back_summary: Option<Summary>,
    /// Acknowledgements that terminals have filtered.
    filtered_acks: u64,
    /// Flows that moved with their terminals to another gateway, and survived or broke; `None` without handovers.
    handed_over: Option<[u64; 2]>,
    /// Payload that users had received before their flow moved: the terminal then, the terminal after, true for uploads [bytes].
    moved_bytes: Vec<(TerminalId, TerminalId, bool, u64)>,
    /// Packets on links when the measurement began, then those of the measurement.
    carried: Carried,
}

/// Largest group of links each of which has series. With ten thousand terminals their columns would be most of a result.
const MOST_WITH_SERIES: u32 = 1000;

/// Settings of a recorder, and the places that it records.
pub struct Setup<'a> {
    pub scenario: &'a Scenario,
    pub parts: Parts<'a>,
    /// Names of the directions of links.
    pub link_names: &'a NameList,
    /// The first queues and the first terminal of each gateway.
    pub first: &'a [(GatewayId, TerminalId)],
    /// The first queues at a terminal and the first PEP link of uploads of each gateway, if it has any.
    pub first_back: &'a [(GatewayId, TerminalId)],
    pub subject: PlaceKind,
}

/// The tables of a finished run.
pub struct Tables {
    pub series: Vec<Series>,
    pub drops: Drops,
    pub drop_runs: Vec<(u32, u64)>,
    pub places: NameList,
    pub flows: Vec<Flow>,
    pub classes: Vec<Class>,
    pub class_of: Vec<u32>,
    pub calls: IdVec<CallId, Call>,
    pub viewings: IdVec<ViewingId, Viewing>,
    pub terminals: IdVec<TerminalId, Terminal>,
    pub intervals: Intervals,
    pub pages: Vec<Page>,
    pub summary: Summary,
    pub back_summary: Option<Summary>,
    pub filtered_acks: u64,
    pub handed_over: Option<[u64; 2]>,
    pub carried: Carried,
}

impl Recorder {
    pub fn new(setup: &Setup<'_>) -> Self {
        let run = &setup.scenario.run;
        let intervals = Intervals::new(Instant::ZERO + run.warmup, run.duration);
        let mut recorder = Self {
            warmup: Instant::ZERO + run.warmup,
            end: Instant::ZERO + run.warmup + run.duration,
            interval: run.sample_interval,
            is_measuring: false,
            samples: 0,
            places: IdVec::default(),
            of_link: IdVec::default(),
            of_gateway: IdVec::default(),
            subject: Id::new(0),
            back: None,
            place_names: NameList::default(),
            first_link_name: 0,
            series: vec![Series { name: "time".to_owned(), values: Vec::new() }],
            first_arrived: 0,
            arrived: Arrived::default(),
            class_goodput: Vec::new(),
            passes_subject: setup.scenario.traffic.iter().map(|t| setup.scenario.passes_subject(t)).collect(),
            drops: Drops::default(),
            flows: Flows::default(),
            aliases: Vec::new(),
            classes: Classes::new(setup.scenario),
            calls: IdVec::default(),
            ladders: setup.scenario.traffic.iter().map(|traffic| ladder_of(&traffic.kind)).collect(),
            viewings: IdVec::default(),
            terminals: super::terminal::terminals(setup.scenario, intervals),
            intervals,
            pages: Vec::new(),
            summary: Summary::default(),
            back_summary: None,
            filtered_acks: 0,
            handed_over: has_handovers(setup.scenario).then_some([0; 2]),
            moved_bytes: Vec::new(),
            carried: Carried::default(),
        };
        let gateways = &setup.scenario.gateways;
        for (number, (gateway, first)) in gateways.iter().zip(setup.first).enumerate() {
            recorder.add_gateway(PlaceKind::Gateway(GatewayIndex(number)), gateway, *first, setup);
        }
        for (number, (gateway, first)) in gateways.iter().zip(setup.first_back).enumerate() {
            if let Some(back) = &gateway.back {
                recorder.add_gateway(PlaceKind::Return(GatewayIndex(number)), back, *first, setup);
            }
        }
        let groups = setup.scenario.links.iter().map(|link| setup.scenario.members(link));
        // Each member has two directions.
        let members = groups.flat_map(|members| repeat_n(members, 2 * members as usize));
        for ((id, name), members) in setup.parts.links.ids().zip(setup.link_names.iter()).zip(members) {
            let (kind, queues) = (PlaceKind::Link(id), Queues::Link(id));
            let has_series = members <= MOST_WITH_SERIES;
            let place = recorder.add(kind, queues, name, &[name], has_series, setup);
            recorder.of_link.push(place);
        }
        recorder.first_arrived = recorder.series.len();
        let arrived = ARRIVED_SERIES.map(|name| Series { name: name.to_owned(), values: Vec::new() });
        recorder.series.extend(arrived);
        recorder.first_link_name = recorder.place_names.len() as u32;
        recorder.place_names.extend(setup.link_names.iter());
        recorder
    }

    /// Adds the queues of a gateway, or those at its terminals.
    fn add_gateway(
        &mut self,
        kind: PlaceKind,
        gateway: &bentpipe_scenario::Gateway,
        first: (GatewayId, TerminalId),
        setup: &Setup<'_>,
    ) {
        let name = &gateway.name;
        let names = ["receive", "transmit"].map(|queue| format!("{name} {queue}"));
        let names = names.each_ref().map(String::as_str);
        let queues = Queues::Gateway {
            queues: IdRange { start: first.0, len: gateway.queues() },
            terminals: IdRange { start: first.1, len: gateway.terminals.count() },
        };
        let place = self.add(kind, queues, name, &names, true, setup).unwrap_or(self.subject);
        for _ in queues.gateways() {
            self.of_gateway.push(place);
        }
    }

    /// Adds a place; `None` if it has no queue. The subject always has series.
    fn add(
        &mut self,
        kind: PlaceKind,
        queues: Queues,
        name: &str,
        names: &[&str],
        has_series: bool,
        setup: &Setup<'_>,
    ) -> Option<PlaceId> {
        let (mut series, has_capacity) = queues.series(setup.parts)?;
        let is_subject = kind == setup.subject;
        let has_series = has_series || is_subject;
        if !has_series {
            series.clear();
        }
        let prefix = if is_subject { String::new() } else { format!("{name}.") };
        let first_name = self.place_names.len() as u32;
        self.place_names.extend(names.iter().copied());
        let first_series = self.series.len();
        let series =
            series.into_iter().map(|column| Series { name: format!("{prefix}{column}"), values: Vec::new() });
        self.series.extend(series);
        let names = [first_name, first_name + names.len() as u32 - 1];
        let is_back =
            matches!((kind, setup.subject), (PlaceKind::Return(a), PlaceKind::Gateway(b)) if a == b);
        let mut place =
            Place::new(queues, names, first_series, has_capacity, self.warmup, is_subject || is_back);
        place.is_back = matches!(kind, PlaceKind::Return(_));
        place.has_series = has_series;
        let place = self.places.push(place);
        if is_subject {
            self.subject = place;
        }
        if is_back {
            self.back = Some(place);
        }
        Some(place)
    }

    // ----- flows ---------------------------------------------------------------------------------------------

    pub fn open_flow(&mut self, now: Instant, traffic: TrafficId, session: u32, finite: bool) -> FlowId {
        let (class, passes_subject) = (self.classes.of_traffic[traffic], self.passes_subject[traffic]);
        let id = self.flows.open(now, traffic.index(), session, class, passes_subject, finite);
        if let Some(voice) = self.classes.voice[traffic] {
            self.flows.get(id).call = Some(self.calls.push(Call::new(voice, self.warmup, Duration::ZERO)));
        }
        if let Some(ladder) = &self.ladders[traffic] {
            let viewing = Viewing::new(ladder.clone(), now, self.warmup);
            self.flows.get(id).viewing = Some(self.viewings.push(viewing));
        }
        id
    }

    /// A flow is completed, or has failed.
    pub fn close_flow(&mut self, now: Instant, flow: FlowId, completed: bool) {
        let flow = self.flows.get(flow);
        flow.closed = Some(now);
        flow.completed = completed;
    }

    /// The source of a flow leaves.
    pub fn leave_flow(&mut self, now: Instant, flow: FlowId) {
        let flow = self.flows.get(flow);
        flow.closed = Some(now);
        flow.left = true;
    }

    /// The receiving host of a flow reads payload.
    #[inline]
    pub fn delivered(&mut self, flow: FlowId, bytes: u64) {
        let flow = self.flows.get(flow);
        flow.delivered += bytes;
        flow.measured += if self.is_measuring { bytes } else { 0 };
        self.arrived.bytes += if flow.passes_subject { bytes } else { 0 };
        self.classes.all[flow.class].delivered += bytes;
    }

    /// A packet with a flow's data arrives from end to end.
    #[inline]
    pub fn received(&mut self, flow: FlowId, delay: Duration) {
        if self.is_measuring {
            self.flows.received(flow, delay);
        }
    }

    /// A packet of a flow is dropped or lost.
    pub fn count_drop(&mut self, flow: FlowId) {
        self.flows.get(flow).drops += u32::from(self.is_measuring);
    }

    /// A viewer has seen a period of a viewing.
    pub fn viewed(&mut self, flow: FlowId, period: Period) {
        if let Some(viewing) = self.flows.get(flow).viewing {
            self.viewings[viewing].add(period);
        }
    }

    // ----- data units ----------------------------------------------------------------------------------------

    /// A packet source sends a unit, at its nominal rate this long after the last one.
    #[inline]
    pub fn sent_unit(&mut self, flow: FlowId, nominal_gap: Duration, now: Instant) {
        if let Some(call) = self.flows.get(flow).call {
            self.calls[call].send_after(nominal_gap, now);
        }
    }

    /// The receiving application has read all of the units that were sent at these times.
    #[inline]
    pub fn received_units(&mut self, flow: FlowId, sent: impl Iterator<Item = Instant>, now: Instant) {
        let flow = self.flows.get(flow);
        let class = &mut self.classes.all[flow.class];
        for sent_at in sent {
            if let Some(call) = flow.call {
                self.calls[call].receive(sent_at, now);
            }
            let delay = now - sent_at;
            if flow.passes_subject {
                self.arrived.units += 1;
                self.arrived.delay_sum += delay.as_nanos();
            }
            if sent_at >= self.warmup {
                class.receive(delay, flow.receive_unit(delay));
            }
        }
    }

    /// A unit is lost for good.
    pub fn lost_unit(&mut self, flow: FlowId, sent_at: Instant) {
        let flow = self.flows.get(flow);
        if let Some(call) = flow.call {
            self.calls[call].lose(sent_at);
        }
        if sent_at >= self.warmup {
            flow.lost_units += 1;
            self.classes.all[flow.class].lost += 1;
        }
    }

    /// A resource limits a flow, as seen at a sample.
    pub fn limited(&mut self, flow: FlowId, bottleneck: Bottleneck) {
        if self.is_measuring {
            let class = self.flows.get(flow).class;
            self.classes.all[class].bottlenecks.add(bottleneck);
        }
    }

    /// A page of a user behind a terminal, if any, is loaded, or one of its connections has failed.
    pub fn finish_page(
        &mut self,
        (traffic, terminal): (TrafficId, Option<TerminalId>),
        page: &PageLoad,
        completed: bool,
    ) {
        if page.closed >= self.warmup {
            let class = &mut self.classes.all[self.classes.of_traffic[traffic]];
            class.finish_page(completed, page);
            if let Some(terminal) = terminal.filter(|_| !self.terminals.is_empty()) {
                let class = self.classes.of_traffic[traffic].index();
                let load_time = completed.then_some(page.closed - page.opened);
                self.pages.push(Page { ended: page.closed, class, terminal: terminal.index(), load_time });
                if let Some(time) = load_time {
                    self.terminals[terminal].pages.add(time);
                }
            }
        }
    }

    /// Begin and end of the page of any class that took longest, so far.
    pub fn slowest_page(&self) -> Option<(Instant, Instant)> {
        let pages = self.classes.all.iter().filter_map(Class::slowest_page);
        pages.max_by_key(|(opened, closed)| *closed - *opened)
    }

    /// A probe has ended; `steps` is `None` if it failed.
    pub fn finish_probe(&mut self, traffic: TrafficId, steps: Option<ProbeSteps>, now: Instant) {
        if now >= self.warmup {
            self.classes.all[self.classes.of_traffic[traffic]].finish_probe(steps);
        }
    }

    /// Records the goodput of each class from now on, too.
    pub fn record_goodput(&mut self) {
        let none = ClassGoodput { delivered: 0, values: Vec::new() };
        self.class_goodput = self.classes.all.iter().map(|_| none.clone()).collect();
    }

    /// Goodput of each class in the interval before each sample [bit/s]; none without [`Self::record_goodput`].
    pub fn goodput(&self) -> impl Iterator<Item = &[f64]> {
        self.class_goodput.iter().map(|class| class.values.as_slice())
    }

    /// Class of a traffic entry.
    pub fn class_of(&self, traffic: TrafficId) -> ClassId {
        self.classes.of_traffic[traffic]
    }

    /// The series so far.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The drops so far.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Names of the places to which drops refer.
    pub fn place_names(&self) -> &NameList {
        &self.place_names
    }

    /// Names of the directions of links.
    pub fn link_names(&self) -> impl Iterator<Item = &str> {
        self.place_names.iter().skip(self.first_link_name as usize)
    }

    /// Fetches what is recorded of a flow into the cache.
    #[inline]
    pub fn prefetch(&self, flow: FlowId) {
        self.flows.prefetch(flow);
    }

    /// Packets that have arrived at the subject, left it, or been dropped there.
    pub fn passed_subject(&self, parts: Parts<'_>) -> [u64; 3] {
        self.places[self.subject].passed(parts)
    }

    /// The flows so far.
    pub fn flows(&self) -> &[Flow] {
        &self.flows.all
    }

    // ----- terminals -----------------------------------------------------------------------------------------

    /// A flow comes from a user behind a terminal, and goes to a user behind another.
    pub fn behind(&mut self, flow: FlowId, [from, to]: [Option<TerminalId>; 2]) {
        if !self.terminals.is_empty() {
            let flow = self.flows.get(flow);
            (flow.from_terminal, flow.terminal) = (from, to);
        }
    }

    /// A flow moves with its terminals to another gateway; if `is_broken`, its connections end there.
    pub fn hand_over(&mut self, flow: FlowId, [from, to]: [Option<TerminalId>; 2], is_broken: bool) {
        if let Some(count) = self.handed_over.as_mut().filter(|_| self.is_measuring) {
            count[usize::from(is_broken)] += 1;
        }
        if self.terminals.is_empty() || is_broken {
            return;
        }
        let flow = self.flows.get(flow);
        // What it has received so far is the former terminal's.
        for (old, new, is_upload) in [(flow.terminal, to, false), (flow.from_terminal, from, true)] {
            self.moved_bytes.extend(old.zip(new).map(|(old, new)| (old, new, is_upload, flow.measured)));
        }
        (flow.from_terminal, flow.terminal) = (from, to);
    }

    /// A terminal's queues filter an acknowledgement.
    pub fn filtered_ack(&mut self) {
        self.filtered_acks += u64::from(self.is_measuring);
    }

    /// A packet of a terminal takes its return carrier for this time.
    #[inline]
    pub fn occupied_by(&mut self, terminal: TerminalId, time: Duration) {
        if self.is_measuring
            && !self.terminals.is_empty()
            && let Some(back) = &mut self.terminals[terminal].back
        {
            back.carrier_time += time;
        }
    }

    /// A packet from these queues takes the carrier that they share for this time.
    #[inline]
    pub fn occupied(&mut self, queues: GatewayId, time: Duration) {
        if self.is_measuring {
            self.places[self.of_gateway[queues]].occupied += time;
        }
    }

    /// A terminal sends a packet from its transmit queue.
    #[inline]
    pub fn sent_by(&mut self, now: Instant, terminal: TerminalId, bytes: u32, delay: Duration) {
        if self.is_measuring && !self.terminals.is_empty() {
            self.terminals[terminal].sent_back(bytes, delay, self.intervals.at(now));
        }
    }

    /// A carrier sends a packet to a terminal, for which it takes `carrier_time`.
    #[inline]
    pub fn sent_to(
        &mut self,
        now: Instant,
        terminal: TerminalId,
        bytes: u32,
        delay: Duration,
        carrier_time: Duration,
    ) {
        if self.is_measuring {
            self.terminals[terminal].sent(bytes, delay, carrier_time, self.intervals.at(now));
        }
    }

    // ----- queues --------------------------------------------------------------------------------------------

    /// A packet leaves the queue of a link; `repeated` bytes of it are repeated data.
    #[inline]
    pub fn left_link(&mut self, link: LinkDirectionId, delay: Duration, repeated: u32) {
        if let Some(place) = self.of_link[link] {
            self.left(place, delay, repeated);
        }
    }

    /// A packet leaves a gateway's transmit queue; `repeated` bytes of it are repeated data.
    #[inline]
    pub fn left_gateway(&mut self, gateway: GatewayId, delay: Duration, repeated: u32) {
        self.left(self.of_gateway[gateway], delay, repeated);
    }

    #[inline]
    fn left(&mut self, place: PlaceId, delay: Duration, repeated: u32) {
        if self.is_measuring {
            self.places[place].meter.left(delay);
            if place == self.subject {
                self.carried.repeated_bytes += u64::from(repeated);
            }
        }
    }

    /// A packet first arrives at a gateway's transmit queue, so long after its bytes arrived at the receive queue.
    #[inline]
    pub fn passed_pep(&mut self, gateway: GatewayId, delay: Duration) {
        if self.is_measuring {
            self.places[self.of_gateway[gateway]].meter.passed(delay);
        }
    }

    /// A link's queue drops a packet.
    pub fn dropped_at_link(&mut self, now: Instant, link: LinkDirectionId, pkt: &Packet, reason: DropReason) {
        if let Some(place) = self.of_link[link] {
            self.dropped(now, place, self.places[place].names[0], true, pkt, reason);
        }
    }

    /// A gateway drops a packet.
    pub fn dropped_at_gateway(
        &mut self,
        now: Instant,
        id: GatewayId,
        gateway: &Gateway,
        pkt: &Packet,
        reason: DropReason,
        at: GatewayQueue,
    ) {
        let place = self.of_gateway[id];
        let name = self.places[place].names[usize::from(at == GatewayQueue::Transmit)];
        // A packet that overflows the other queue was offered to the AQM earlier, or never: it has no number. Nor has one of
        // several queues, each of which has its own order of arrival.
        let has_number = at == gateway.mark_point() && self.places[place].is_one_queue();
        self.dropped(now, place, name, has_number, pkt, reason);
    }

    fn dropped(
        &mut self,
        now: Instant,
        place: PlaceId,
        name: u32,
        has_number: bool,
        pkt: &Packet,
        reason: DropReason,
    ) {
        if !self.is_measuring {
            return;
        }
        let row = self.flow_of(pkt.flow);
        if let Some(flow) = self.flows.all.get(row.0 as usize) {
            let (is_back, from, to) = (self.places[place].is_back, flow.from_terminal, flow.terminal);
            if let Some(terminal) = if is_back { from.or(to) } else { to.or(from) } {
                self.terminals[terminal].drop_packet(is_back);
            }
        }
        let place = &mut self.places[place];
        let arrival = if has_number { place.meter.dropped(pkt.number) } else { None };
        let reason = match reason {
            DropReason::Aqm => 0,
            DropReason::Overflow => 1,
        };
        let time = self.time(now);
        self.drops.push(&Drop { time, arrival, place: name, reason, flow: row.0, bytes: pkt.len });
    }

    /// Gives a flow another number at queues.
    pub fn add_alias(&mut self, flow: FlowId) -> FlowId {
        self.aliases.push(flow);
        FlowId(LAST_ALIAS - (self.aliases.len() as u32 - 1))
    }

    /// The flow that a queue knows by a number.
    fn flow_of(&self, number: FlowId) -> FlowId {
        let alias = LAST_ALIAS.checked_sub(number.0).and_then(|place| self.aliases.get(place as usize));
        alias.copied().unwrap_or(number)
    }

    /// A link loses a packet, for one of [`REASONS`](super::REASONS).
    pub fn lost(&mut self, now: Instant, link: LinkDirectionId, flow: FlowId, bytes: u32, reason: u8) {
        if self.is_measuring {
            let (time, place) = (self.time(now), self.first_link_name + link.index());
            self.drops.push(&Drop { time, arrival: None, place, reason, flow: flow.0, bytes });
        }
    }

    // ----- measurement ---------------------------------------------------------------------------------------

    /// Time since the measurement began [s].
    fn time(&self, now: Instant) -> f64 {
        (now - self.warmup).as_secs_f64()
    }

    /// Start of the measurement, which is the time of the first sample.
    pub fn begin(&self) -> Instant {
        self.warmup
    }

    /// Time of the next sample; `None` after the last.
    pub fn next_sample(&self) -> Option<Instant> {
        let next = self.warmup + self.interval.times(self.samples + u64::from(self.is_measuring));
        (next <= self.end).then_some(next)
    }

    /// Takes a sample; returns the time of the next. The first one only begins the measurement.
    pub fn sample(&mut self, now: Instant, parts: Parts<'_>) -> Option<Instant> {
        if self.is_measuring {
            let time = self.time(now);
            self.series[0].values.push(time);
            self.samples += 1;
            for place in self.places.iter_mut().filter(|place| place.has_series) {
                let put = |series: usize, value| self.series[series].values.push(value);
                place.sample(now, parts, put);
            }
            let arrived = self.series[self.first_arrived..].iter_mut();
            for (series, value) in arrived.zip(self.arrived.values(self.interval)) {
                series.values.push(value);
            }
            for (goodput, class) in self.class_goodput.iter_mut().zip(self.classes.all.iter()) {
                let bytes = class.delivered - goodput.delivered;
                goodput.values.push(bytes as f64 * 8.0 / self.interval.as_secs_f64());
            }
        } else {
            self.is_measuring = true;
            self.carried = Carried::of(parts.links);
            self.places.iter_mut().for_each(|place| place.begin(now, parts));
        }
        self.arrived = Arrived::default();
        for (goodput, class) in self.class_goodput.iter_mut().zip(self.classes.all.iter()) {
            goodput.delivered = class.delivered;
        }
        let next = now + self.interval;
        (next <= self.end).then_some(next)
    }

    /// Summarizes the measurement at the end of the run.
    pub fn finish(&mut self, now: Instant, parts: Parts<'_>) {
        self.summary = self.places[self.subject].summary(now, parts).unwrap_or_default();
        self.back_summary = self.back.and_then(|back| self.places[back].summary(now, parts));
        for flow in &self.flows.all {
            if let Some(terminal) = flow.terminal {
                self.terminals[terminal].delivered_bytes += flow.measured;
            }
            if let Some(back) = flow.from_terminal.and_then(|from| self.terminals[from].back.as_mut()) {
                back.delivered_bytes += flow.measured;
            }
        }
        for &(old, new, is_upload, bytes) in &self.moved_bytes {
            *self.terminals[old].delivered(is_upload) += bytes;
            *self.terminals[new].delivered(is_upload) -= bytes;
        }
        let repeated_bytes = self.carried.repeated_bytes;
        self.carried = Carried { repeated_bytes, ..Carried::of(parts.links) }.since(self.carried);
    }

    /// Checks that the records agree with each other.
    ///
    /// # Errors
    /// The records that do not agree.
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
        let subject = &self.places[self.subject];
        let placed = self.drops.place.iter().zip(&self.drops.arrival);
        let (mut here, mut numbered) = (0, 0);
        for (_, &arrival) in placed.filter(|(place, _)| subject.names.contains(place)) {
            here += 1;
            numbered += u64::from(arrival != u64::MAX);
        }
        let s = &self.summary;
        let counted = s.aqm_drops + s.overflow_drops + s.drops_elsewhere;
        if counted != here {
            return Err(format!("{here} drops recorded at the subject, {counted} counted"));
        }
        let runs: u64 = subject.meter.drop_runs().map(|(length, n)| u64::from(length) * n).sum();
        if runs != numbered {
            return Err(format!("{runs} drops in runs, {numbered} numbered"));
        }
        Ok(())
    }

    /// The tables of the finished run.
    pub fn into_tables(self) -> Tables {
        Tables {
            drop_runs: self.places[self.subject].meter.drop_runs().collect(),
            series: self.series,
            drops: self.drops,
            places: self.place_names,
            flows: self.flows.all,
            class_of: self.classes.of_traffic.iter().map(|class| class.index()).collect(),
            classes: self.classes.all.into_iter().collect(),
            calls: self.calls,
            viewings: self.viewings,
            terminals: self.terminals,
            intervals: self.intervals,
            pages: self.pages,
            summary: self.summary,
            back_summary: self.back_summary,
            filtered_acks: self.filtered_acks,
            handed_over: self.handed_over,
            carried: self.carried,
        }
    }
}

fn has_handovers(scenario: &Scenario) -> bool {
    let mut groups = scenario.gateways.iter().flat_map(|gateway| gateway.terminals.iter());
    groups.any(|group| group.handover.is_some())
}

fn ladder_of(kind: &TrafficKind) -> Option<Arc<[Rate]>> {
    match kind {
        TrafficKind::Dash(dash) => Some(dash.ladder.clone()),
        _ => None,
    }
}
