//! Gateways.

use bentpipe_gateway::{GatewayQueue, Request};
use bentpipe_queue::descriptor::Placement;
use bentpipe_queue::{Link as AqmLink, Marking};
use bentpipe_units::{Duration, Rate};

use super::cx::Cx;
use super::nodes::named;
use super::queue::limit;
use super::{aqm, marking, scheduler, threshold};
use crate::error::{Error, quoted};
use crate::model::{
    AqmSpec, FlowKey, Gateway, Link, MarkingSpec, Pep, Plan, Pool, QueuesPer, ReceiveQueue, Regulator,
    ReturnCarrier, Spacelink, TerminalGroup, Terminals, ThroughputAdvice, TransmitQueue, transmit_rate,
    watched_rate, watched_rate_varies,
};
use crate::reader::tree::{Path, Step, Value, dotted, step};
use crate::schema::gateway::{self as file, RateOrLink};
use crate::schema::quantity::{Size, Time};
use crate::warning::WarningKind;

/// Lowest rate of throughput advice.
const LEAST_ADVICE: Rate = Rate::from_bps(100_000);

/// Returns the path of the i-th gateway: an array element if there are several, else the table.
pub fn path_of(cx: &Cx<'_>, i: usize) -> Vec<Step> {
    let key = Step::Key("gateway".to_owned());
    match cx.root.get("gateway").map(|n| &n.value) {
        Some(Value::Array(_)) => vec![key, Step::Index(i)],
        _ => vec![key],
    }
}

/// Resolves a gateway with both its directions. `links` are the scenario's, with the mean length of packets [bytes].
pub fn gateway(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut file::Gateway,
    (terminals, pools): (Terminals, Vec<Pool>),
    links: (&[Link], f64),
) -> Result<Gateway, Error> {
    let shares_carrier = terminals.only().is_none() || raw.queues_per != QueuesPer::Carrier;
    let mut gateway = one_way(cx, path, raw, (terminals, pools, shares_carrier), links)?;
    if let Some(back) = raw.back.take() {
        let (back, its) = return_direction(cx, path, (raw, back), &gateway, links)?;
        raw.back = Some(back);
        gateway.back = Some(Box::new(its));
    }
    Ok(gateway)
}

/// Resolves the return direction of a gateway: a gateway at each terminal whose satellite link is the return link.
fn return_direction(
    cx: &mut Cx<'_>,
    path: &Path,
    (forward, mut back): (&file::Gateway, file::Return),
    gateway: &Gateway,
    links: (&[Link], f64),
) -> Result<(file::Return, Gateway), Error> {
    let path = step(path, "return");
    let shares_by_pool = gateway.pools.iter().any(|pool| pool.up.is_some());
    let of_return = |pool: &Pool| Pool { share: pool.up.unwrap_or(Plan::NONE), up: None, ..pool.clone() };
    let pools: Vec<_> = gateway.pools.iter().filter(|_| shares_by_pool).map(of_return).collect();
    let pool_pir = |pool: usize| {
        let above = std::iter::successors(Some(pool), |pool| pools[*pool].parent);
        above.filter_map(|pool| pools[pool].share.pir).min()
    };
    let reversed = |group: &TerminalGroup| TerminalGroup {
        link_forward: !group.link_forward,
        plan: group.up,
        up: None,
        pool: group.pool.filter(|_| shares_by_pool),
        pool_pir: group.pool.filter(|_| shares_by_pool).and_then(pool_pir),
        subscribers: Vec::new(),
        handover: None,
        ..group.clone()
    };
    let terminals = Terminals(gateway.terminals.iter().map(reversed).collect());
    for group in terminals.iter() {
        let (link, up) = (&links.0[group.link], group.downlink(links.0));
        let key = |key: &str| {
            let link = named("link", &link.name);
            if group.link_forward { step(&link, key) } else { step(&step(&link, "reverse"), key) }
        };
        if up.queue.is_some() {
            let problem = format!(
                "found a queue in front of the return link; allowed: none, because the terminal's transmit queue, \
                 {}.transmit_queue, is in front of it",
                dotted(cx.root, &path)
            );
            return Err(cx.key_error(&key("queue"), problem));
        }
        if up.demand.is_some() {
            let problem = "found demand assignment on a return link that carries uploads; allowed: a rate, because grants for \
                           the terminal's queues are not supported";
            return Err(cx.key_error(&key("demand"), problem.to_owned()));
        }
        if matches!(back.regulator.rate, RateOrLink::Link) && up.mean_rate().is_none() {
            let problem = format!(
                "missing; required: the rate of the return link, such as \"3 Mbps\", which the queues at the terminals follow, or \
                 {}.regulator.rate",
                dotted(cx.root, &path)
            );
            return Err(cx.key_error(&key("rate"), problem));
        }
    }
    let mut raw = file::Gateway {
        name: format!("{} return", gateway.name),
        terminal: None,
        terminals: Vec::new(),
        queues_per: QueuesPer::Terminal,
        aqm: back.aqm,
        watch: back.watch,
        mark: back.mark,
        marking: back.marking,
        flow_key: back.flow_key,
        receive_queue: back.receive_queue,
        pep: inherited_pep(cx, &step(&path, "pep"), back.pep, &forward.pep),
        transmit_queue: back.transmit_queue,
        regulator: back.regulator,
        spacelink: forward.spacelink.clone(),
        throughput_advice: None,
        back: None,
    };
    let carrier = match &mut back.carrier {
        Some(carrier) => Some(return_carrier(cx, &path, (carrier, &raw.regulator), &terminals, links.0)?),
        None => None,
    };
    let mut its = one_way(cx, &path, &mut raw, (terminals, pools, carrier.is_some()), links)?;
    (its.carrier, its.ack_filter) = (carrier, back.ack_filter);
    let file::Gateway {
        aqm,
        watch,
        mark,
        marking,
        flow_key,
        receive_queue,
        pep,
        transmit_queue,
        regulator,
        ..
    } = raw;
    back = file::Return {
        aqm,
        watch,
        mark,
        marking,
        flow_key,
        receive_queue,
        pep: Some(pep),
        transmit_queue,
        ack_filter: back.ack_filter,
        regulator,
        carrier: back.carrier,
    };
    Ok((back, its))
}

/// Returns the PEP of a terminal; keys that the file does not give at `path` are as the gateway's.
fn inherited_pep(cx: &Cx<'_>, path: &Path, own: Option<file::Pep>, gateways: &file::Pep) -> file::Pep {
    let mut pep = gateways.clone();
    let Some(own) = own else { return pep };
    let is_given = |key: &str| cx.root.find(&step(path, key)).is_some();
    if is_given("split") {
        pep.split = own.split;
    }
    if is_given("delay") {
        pep.delay = own.delay;
    }
    if is_given("delay_std") {
        pep.delay_std = own.delay_std;
    }
    if is_given("delay_correlation") {
        pep.delay_correlation = own.delay_correlation;
    }
    if is_given("rate") {
        pep.rate = own.rate;
    }
    if is_given("buffer") {
        pep.buffer = own.buffer;
    }
    if is_given("buffer_per") {
        pep.buffer_per = own.buffer_per;
    }
    if is_given("receive_buffer") {
        pep.receive_buffer = own.receive_buffer;
    }
    pep
}

/// Resolves the advice of a gateway. The lowest rate that it can tell is 100 kbit/s (draft-ietf-scone-protocol-07, section 5.1).
fn throughput_advice(
    cx: &Cx<'_>,
    path: &Path,
    raw: &file::Gateway,
) -> Result<Option<ThroughputAdvice>, Error> {
    let by_terminal = raw.queues_per == QueuesPer::Terminal;
    let refuse =
        |found: &str, allowed: &str| Err(cx.error(path, format!("found \"{found}\"; allowed: {allowed}")));
    Ok(match raw.throughput_advice {
        None => None,
        Some(file::ThroughputAdvice::Rate(rate)) if rate.rate() < LEAST_ADVICE => {
            return refuse(
                &format!("{rate:?}"),
                "at least \"100 kbps\", the lowest rate that can be advised",
            );
        }
        Some(file::ThroughputAdvice::Rate(rate)) => Some(ThroughputAdvice::Rate(rate.rate())),
        Some(file::ThroughputAdvice::Share) if by_terminal => {
            return refuse("share", "a rate, or \"plan\", because each terminal has its own queues");
        }
        Some(file::ThroughputAdvice::Share) => Some(ThroughputAdvice::Share),
        Some(file::ThroughputAdvice::Plan) if !by_terminal => {
            return refuse("plan", "a rate, or \"share\"; plans need queues_per = \"terminal\"");
        }
        Some(file::ThroughputAdvice::Plan) => Some(ThroughputAdvice::Plan),
    })
}

/// Resolves a return carrier; `path` is that of the return direction.
fn return_carrier(
    cx: &mut Cx<'_>,
    path: &Path,
    (raw, regulator): (&mut file::ReturnCarrier, &file::Regulator),
    terminals: &Terminals,
    links: &[Link],
) -> Result<ReturnCarrier, Error> {
    let path = step(path, "carrier");
    if regulator.tick.is_some() {
        let at = [&path[..path.len() - 1], &step(&at_key("regulator"), "tick")].concat();
        let problem =
            "found a tick; allowed: none with a carrier, whose superframes release packets".to_owned();
        return Err(cx.key_error(&at, problem));
    }
    if raw.round_trip.is_none() {
        let both = |group: &TerminalGroup| {
            let link = &links[group.link];
            link.forward.delay.longest() + link.reverse.delay.longest()
        };
        let longest = terminals.iter().map(both).max().unwrap_or_default();
        raw.round_trip = Some(Time::of(longest.as_nanos()));
        cx.note(&step(&path, "round_trip"), None, "the link's delays, there and back".to_owned());
    }
    Ok(ReturnCarrier {
        superframe: raw.superframe.time(),
        round_trip: raw.round_trip.map(|t| t.time()).unwrap_or_default(),
        request: match raw.request {
            file::RequestName::Rbdc => Request::Rate,
            file::RequestName::Vbdc => Request::Volume,
        },
    })
}

/// Warns of committed rates that the carrier cannot keep even if every link has its highest rate.
fn check_committed(
    cx: &mut Cx<'_>,
    path: &Path,
    (terminals, pools): (&Terminals, &[Pool]),
    links: &[Link],
    (regulator, follows_link): (Rate, bool),
) {
    let highest = |group: &TerminalGroup| {
        group.downlink(links).highest_rate().filter(|_| follows_link).unwrap_or(regulator).as_bps() as f64
    };
    let share = |group: &TerminalGroup| {
        let committed = group.plan.map_or(0, |plan| plan.cra.as_bps()) + group.committed().as_bps();
        f64::from(group.count) * committed as f64 / highest(group)
    };
    let directly = |pool: Option<usize>| terminals.iter().filter(move |group| group.pool == pool);
    // The committed rate of a pool takes the carrier for the least time if the terminal with the best link gets it.
    let mut best = vec![0.0; pools.len()];
    let mut inside = vec![0.0; pools.len() + 1];
    for number in (0..pools.len()).rev() {
        let own = directly(Some(number)).map(highest).fold(best[number], f64::max);
        let taken = inside[number] + directly(Some(number)).map(share).sum::<f64>();
        let taken = taken.max(pools[number].share.cir.as_bps() as f64 / own);
        let parent = pools[number].parent;
        inside[parent.unwrap_or(pools.len())] += taken;
        if let Some(parent) = parent {
            best[parent] = own.max(best[parent]);
        }
    }
    let percent = 100.0 * (inside[pools.len()] + directly(None).map(share).sum::<f64>());
    if percent > 100.0 {
        let sky = if follows_link { " in clear sky" } else { "" };
        let text = format!(
            "the committed rates (cra, cir) of the plans take {percent:.0} % of the carrier{sky}; they cannot all be kept"
        );
        cx.warn(WarningKind::CommittedRates, path, &text);
    }
}

/// Resolves one direction of a gateway: its queues towards these terminals, which share a carrier or not.
fn one_way(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut file::Gateway,
    (terminals, pools, shares_carrier): (Terminals, Vec<Pool>, bool),
    (links, mean_packet): (&[Link], f64),
) -> Result<Gateway, Error> {
    let at = |key: &str| step(path, key);
    let (watch, mark) = (GatewayQueue::from(raw.watch), GatewayQueue::from(raw.mark));
    if (watch, mark) == (GatewayQueue::Receive, GatewayQueue::Transmit) {
        let problem = "found \"transmit\"; allowed: \"receive\" if watch = \"receive\", because a packet that enters the transmit queue has already left the receive queue";
        return Err(cx.error(&at("mark"), problem.to_owned()));
    }
    let receive_rate = raw.receive_queue.rate.map(|r| r.rate());
    if watch == GatewayQueue::Receive && receive_rate.is_none() {
        cx.warn(
            WarningKind::EmptyReceiveQueue,
            &at("watch"),
            "the receive queue is always empty, because it has no rate",
        );
    }
    let (rate, follows_link) = match raw.regulator.rate {
        RateOrLink::Rate(rate) => (rate.rate(), false),
        RateOrLink::Link => {
            let Some(rate) = mean_rate(&terminals, links) else {
                let problem = "found \"link\"; allowed: a rate such as \"20 Mbps\", because the satellite link has none";
                return Err(cx.error(&step(&at("regulator"), "rate"), problem.to_owned()));
            };
            (rate, true)
        }
    };
    if shares_carrier {
        check_committed(cx, path, (&terminals, &pools), links, (rate, follows_link));
    }
    let ack_delay = raw.spacelink.ack_delay.time();
    let bdp = Bdp::of(&terminals, links, (rate, follows_link), ack_delay);
    let transmit_rate = transmit_rate(rate, raw.queues_per, &terminals);
    let drain = watched_rate(watch, receive_rate, transmit_rate);
    let varies = watched_rate_varies(watch, follows_link, raw.queues_per, shares_carrier);
    let capacity = aqm::Capacity { rate: drain, varies };
    let mut aqm = aqm::resolve(cx, &at("aqm"), &mut raw.aqm, capacity, mean_packet)?;
    let its_link = AqmLink { capacity: drain, mean_packet: aqm.mean_packet };
    let given = raw.marking.get("method").is_some();
    let (marking, changed) = marking::resolve(cx, &at("marking"), &mut raw.marking, aqm.preset, &its_link)?;
    aqm.spec.changed.extend(changed);
    per_connection_buffers(cx, path, &mut raw.pep, &marking);
    let (delay_std, delay_correlation) = varying_delay(cx, &at("pep"), &raw.pep)?;
    let longest = mean_packet.max(raw.spacelink.packet.0 as f64);
    let gateway = Gateway {
        name: raw.name.clone(),
        terminals,
        queues_per: raw.queues_per,
        pools,
        aqm: aqm.spec,
        mean_packet: aqm.mean_packet,
        watch,
        mark,
        marking,
        flow_key: raw.flow_key,
        receive_queue: ReceiveQueue {
            limit: limit(
                cx,
                &[at("receive_queue"), at_key("limit")].concat(),
                raw.receive_queue.limit.as_ref(),
                receive_rate,
                longest,
            )?,
            rate: receive_rate,
        },
        pep: Pep {
            split: raw.pep.split.clone(),
            delay: raw.pep.delay.time(),
            delay_std,
            delay_correlation,
            rate: raw.pep.rate.map(|r| r.rate()),
            buffer: raw.pep.buffer.0,
            buffer_per: raw.pep.buffer_per.into(),
            receive_buffer: receive_buffer(cx, &at("pep"), &raw.pep)?,
        },
        transmit_queue: TransmitQueue {
            scheduler: scheduler::resolve(
                cx,
                &[at("transmit_queue"), at_key("scheduler")].concat(),
                &mut raw.transmit_queue.scheduler,
                transmit_rate,
                mean_packet,
            )?,
            limit: limit(
                cx,
                &[at("transmit_queue"), at_key("limit")].concat(),
                raw.transmit_queue.limit.as_ref(),
                Some(transmit_rate),
                longest,
            )?,
        },
        regulator: Regulator { rate, follows_link, tick: raw.regulator.tick.map(|t| t.time()) },
        spacelink: spacelink(cx, &at("spacelink"), &mut raw.spacelink, &bdp)?,
        throughput_advice: throughput_advice(cx, &at("throughput_advice"), raw)?,
        shares_carrier,
        ack_filter: false,
        carrier: None,
        back: None,
    };
    check_placement(cx, &at("aqm"), &gateway.aqm, &gateway)?;
    match aqm.preset.filter(|p| p.marking.is_some() && !given) {
        Some(preset) => {
            let path = step(&at("aqm"), "preset");
            marking::check(cx, &path, preset.name, gateway.marking.method, &gateway)?;
        }
        None => {
            let path = at("marking");
            marking::check(cx, &path, gateway.marking.method.name, gateway.marking.method, &gateway)?;
        }
    }
    threshold::check_threshold(cx, &at("aqm"), &gateway.aqm, gateway.watched_limit())?;
    if gateway.signals_behind_pep() {
        let signals = gateway.transmit_queue.scheduler.discipline.signals;
        let key = if signals { [at("transmit_queue"), at_key("scheduler")].concat() } else { at("mark") };
        if signals && gateway.marking.method.marking == Marking::Window {
            let problem = format!(
                "found {}; allowed if marking = {} and pep.split is not empty: a scheduler that signals nothing, because a packet behind the PEP does not identify the window to cut",
                quoted(gateway.transmit_queue.scheduler.discipline.name),
                quoted(gateway.marking.method.name)
            );
            return Err(cx.error(&key, problem));
        }
        let kind = if signals { WarningKind::SchedulerBehindPep } else { WarningKind::AqmBehindPep };
        cx.warn(
            kind,
            &key,
            "packets of split connections are dropped behind the PEP: the senders do not notice, the spacelink retransmits",
        );
    }
    check_sequence_ranking(cx, path, &gateway);
    for group in gateway.terminals.iter() {
        satellite(cx, &gateway, group, links)?;
    }
    check_window(cx, path, &gateway, &bdp);
    Ok(gateway)
}

/// Mean rate of the satellite links, weighted by the number of terminals; `None` if one has no rate.
fn mean_rate(terminals: &Terminals, links: &[Link]) -> Option<Rate> {
    if let Some(group) = terminals.only() {
        return group.downlink(links).mean_rate();
    }
    let mut sum = 0.0;
    for group in terminals.iter() {
        sum += f64::from(group.count) * group.downlink(links).mean_rate()?.as_bps() as f64;
    }
    Some(Rate::from_bps((sum / f64::from(terminals.count())).round() as u64))
}

fn at_key(key: &str) -> Vec<Step> {
    vec![Step::Key(key.to_owned())]
}

/// Rejects an AQM that acts on dequeued packets unless it marks at the watched queue.
pub fn check_placement(cx: &Cx<'_>, path: &Path, aqm: &AqmSpec, g: &Gateway) -> Result<(), Error> {
    if aqm.algorithm.placement == Placement::Anywhere || g.watch == g.mark {
        return Ok(());
    }
    let problem = format!(
        "found \"{}\" with watch = \"transmit\" and mark = \"receive\"; allowed: the same value for both, because this AQM acts on packets in the queue that it watches",
        aqm.algorithm.name
    );
    Err(cx.error(&step(path, "algorithm"), problem))
}

/// Checks the receive buffer ahead of the PEP's: windows of less than two segments would hardly ever open.
fn receive_buffer(cx: &Cx<'_>, path: &Path, raw: &file::Pep) -> Result<Option<u64>, Error> {
    match raw.receive_buffer {
        Some(found) if found.0 < LEAST_RECEIVE_BUFFER => {
            let problem = format!("found \"{found:?}\"; allowed: at least \"4 KB\", more than two segments");
            Err(cx.error(&step(path, "receive_buffer"), problem))
        }
        given => Ok(given.map(|size| size.0)),
    }
}

/// Gives each connection its own buffer if marks cut windows, unless the file says otherwise.
fn per_connection_buffers(cx: &mut Cx<'_>, path: &Path, raw: &mut file::Pep, marking: &MarkingSpec) {
    let key = step(&step(path, "pep"), "buffer_per");
    if marking.method.marking == Marking::Window && cx.root.find(&key).is_none() {
        raw.buffer_per = file::BufferPer::Connection;
        cx.note(
            &key,
            None,
            "a buffer for each connection, whose limit marks cut ([B07] chapter 6)".to_owned(),
        );
    }
}

/// Longest deviation of the processing time, as a multiple of its mean.
const LARGEST_DEVIATION: u64 = 10;
/// Correlation time of a processing time that varies.
const CORRELATION: Duration = Duration::from_secs(1);

/// Returns deviation and correlation time of the PEP's processing time at `path`; zeros if it is constant.
fn varying_delay(cx: &Cx<'_>, path: &Path, raw: &file::Pep) -> Result<(Duration, Duration), Error> {
    let Some(std) = raw.delay_std.filter(|std| std.0 > 0) else {
        if raw.delay_correlation.is_some() {
            let problem =
                "allowed: only if delay_std is above 0 s, because a constant processing time has none";
            return Err(cx.key_error(&step(path, "delay_correlation"), problem.to_owned()));
        }
        return Ok((Duration::ZERO, Duration::ZERO));
    };
    if std.0 > raw.delay.0.saturating_mul(LARGEST_DEVIATION) {
        let problem = format!(
            "found \"{std:?}\"; allowed: up to \"{:?}\", {LARGEST_DEVIATION} times {}",
            Time::of(raw.delay.0.saturating_mul(LARGEST_DEVIATION)),
            dotted(cx.root, &step(path, "delay"))
        );
        return Err(cx.error(&step(path, "delay_std"), problem));
    }
    Ok((std.time(), raw.delay_correlation.map_or(CORRELATION, |t| t.time())))
}

/// Minimum default of the spacelink's window [bytes].
const LEAST_WINDOW: u64 = 4_000_000;
/// Minimum receive buffer ahead of a PEP's [bytes].
const LEAST_RECEIVE_BUFFER: u64 = 4_000;
/// Minimum default of a stream's window [bytes].
const LEAST_STREAM_WINDOW: u64 = 1_000_000;
/// Step to which derived windows are rounded up [bytes].
const WINDOW_STEP: f64 = 1e5;

/// Bandwidth-delay product of a gateway's satellite link: the highest rate times the longest round trip.
struct Bdp {
    rate: Rate,
    round_trip: Duration,
}

impl Bdp {
    /// The longest of all terminals.
    fn of(
        terminals: &Terminals,
        links: &[Link],
        (regulator, follows_link): (Rate, bool),
        ack_delay: Duration,
    ) -> Self {
        let (mut rate, mut round_trip) = (None, Duration::ZERO);
        for group in terminals.iter() {
            let link = &links[group.link];
            let handover = link.handover.map(|h| h.delay.1.times(2)).unwrap_or_default();
            let both = link.forward.delay.longest() + link.reverse.delay.longest();
            round_trip = round_trip.max(both + handover + ack_delay);
            let highest = group.downlink(links).highest_rate().filter(|_| follows_link).unwrap_or(regulator);
            rate = rate.max(Some(group.peak(highest)));
        }
        Self { rate: rate.unwrap_or(regulator), round_trip }
    }

    fn bytes(&self) -> f64 {
        self.rate.bytes_per_sec() * self.round_trip.as_secs_f64()
    }

    /// Returns `factor` times the product, rounded up, but not less than `least` [bytes], and how it was found.
    fn window(&self, factor: f64, least: u64) -> (u64, String) {
        let bytes = ((factor * self.bytes() / WINDOW_STEP).ceil() * WINDOW_STEP) as u64;
        let times = if factor == 2.0 { "twice " } else { "" };
        let product = format!("{times}{} x {} (round trip and ack_delay)", self.rate, self.round_trip);
        if bytes > least {
            (bytes, format!("the bandwidth-delay product: {product}, rounded up"))
        } else {
            (least, format!("the least default; {product} are {:.1} MB", factor * self.bytes() / 1e6))
        }
    }
}

/// Resolves the spacelink. Windows that the file does not give follow from the bandwidth-delay product: a stream's is one
/// product, with which one stream can fill the link, and the connection's is two, because data behind a loss stays in
/// flight for a second round trip while it is repaired. Receivers that tune their buffers use the same factor: Semke, Mahdavi
/// & Mathis 1998; Linux, `tcp_rcv_space_adjust`.
fn spacelink(cx: &mut Cx<'_>, path: &Path, raw: &mut file::Spacelink, bdp: &Bdp) -> Result<Spacelink, Error> {
    let refuse = |cx: &Cx<'_>, key: &str, found: String, allowed: String| {
        Err(cx.error(&step(path, key), format!("found \"{found}\"; allowed: {allowed}")))
    };
    if raw.header.0 >= raw.packet.0 {
        let allowed = format!("less than the packet (\"{:?}\")", raw.packet);
        return refuse(cx, "header", format!("{:?}", raw.header), allowed);
    }
    let stream_window = match raw.stream_window {
        Some(stream_window) => stream_window,
        None => {
            let (mut bytes, mut how) = bdp.window(1.0, LEAST_STREAM_WINDOW);
            if let Some(window) = raw.window.filter(|window| window.0 < bytes) {
                (bytes, how) = (window.0.max(raw.packet.0), "as window".to_owned());
            }
            cx.note(&step(path, "stream_window"), None, how);
            *raw.stream_window.insert(Size::of(bytes))
        }
    };
    let window = match raw.window {
        Some(window) => window,
        None => {
            let (mut bytes, mut how) = bdp.window(2.0, LEAST_WINDOW);
            if stream_window.0 > bytes {
                (bytes, how) = (stream_window.0, "as stream_window".to_owned());
            }
            cx.note(&step(path, "window"), None, how);
            *raw.window.insert(Size::of(bytes))
        }
    };
    if stream_window.0 < raw.packet.0 {
        let allowed = format!("at least a packet (\"{:?}\")", raw.packet);
        return refuse(cx, "stream_window", format!("{stream_window:?}"), allowed);
    }
    if window.0 < stream_window.0 {
        let allowed = format!("at least stream_window (\"{stream_window:?}\")");
        return refuse(cx, "window", format!("{window:?}"), allowed);
    }
    Ok(Spacelink {
        packet: raw.packet.0,
        header: raw.header.0,
        datagram_header: raw.datagram_header.map(|header| header.0 as u32),
        window: window.0,
        stream_window: stream_window.0,
        ack_every: raw.ack_every.0,
        ack_delay: raw.ack_delay.time(),
        ack_priority: raw.ack_priority,
    })
}

/// Warns of ranking by sequence numbers if flows are not connections.
fn check_sequence_ranking(cx: &mut Cx<'_>, path: &Path, g: &Gateway) {
    let scheduler = &g.transmit_queue.scheduler;
    let by_sequence = scheduler.discipline.name == "ssf" && scheduler.values.name("position") == "sequence";
    if by_sequence && g.flow_key != FlowKey::Connection {
        cx.warn(
            WarningKind::SequenceRanking,
            &[step(path, "transmit_queue"), at_key("scheduler")].concat(),
            "sequence numbers of several connections are not comparable; with flow_key = \"user\" or \"prefix\" set position = \"seen\"",
        );
    }
}

/// Checks the satellite link against its gateway.
fn satellite(cx: &mut Cx<'_>, g: &Gateway, group: &TerminalGroup, links: &[Link]) -> Result<(), Error> {
    let down = group.downlink(links);
    let link_path = named("link", &links[group.link].name);
    let link_path = if group.link_forward { link_path } else { step(&link_path, "reverse") };
    if down.queue.is_some() {
        let problem = format!(
            "a queue in front of the satellite link; allowed: none, because the transmit queue of gateway \"{}\" is in front of it",
            g.name
        );
        return Err(cx.key_error(&step(&link_path, "queue"), problem));
    }
    if !g.regulator.follows_link && down.mean_rate().is_some_and(|rate| rate < g.regulator.rate) {
        cx.warn(
            WarningKind::SlowSatelliteLink,
            &step(&link_path, "rate"),
            "below the regulator's rate: packets will wait in front of the satellite link",
        );
    }
    Ok(())
}

/// Warns of a spacelink window that cannot fill the carrier.
fn check_window(cx: &mut Cx<'_>, path: &Path, g: &Gateway, bdp: &Bdp) {
    if !g.pep.split.is_empty() && (g.spacelink.window as f64) < bdp.bytes() {
        let spacelink = step(path, "spacelink");
        let least = (bdp.bytes() / WINDOW_STEP).ceil() / 10.0;
        let text =
            format!("less than the regulator sends in a round trip of the satellite link, up to {least} MB");
        cx.warn(WarningKind::SmallSpacelinkWindow, &step(&spacelink, "window"), &text);
    }
}
