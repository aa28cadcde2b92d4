//! TCP senders and sources of datagrams whose packets pass the watched queue.

use bentpipe_queue::Marking;
use bentpipe_scenario::{
    Congestion, ConnectionPer, Delay, Ecn, Hop, Http, Pattern, Ramp, Scenario, Tcp, Traffic, TrafficKind,
};
use bentpipe_units::Rate;

use crate::error::{Error, wrong};
use crate::padhye::Padhye;
use crate::population::{MOST_WINDOW, Rules};
use crate::watched_queue::{WatchedQueue, direction_of, key_of};

/// Aggregate of all senders.
#[derive(Default)]
pub(crate) struct Senders {
    pub(crate) connections: f64,
    pub(crate) ramps: Vec<(f64, Option<Ramp>)>,
    /// Share replaced by new connections [1/s]; a number of connections until all are added.
    pub(crate) replaced: f64,
    pub(crate) round_trip: f64,
    /// Mean length of a segment on the wire [bytes].
    pub(crate) segment: f64,
    /// Mean payload of a segment [bytes].
    pub(crate) payload: f64,
    pub(crate) window: f64,
    pub(crate) initial_window: f64,
    /// Segments per ACK.
    per_ack: f64,
    /// Share with limited transmit.
    limited: f64,
    /// Minimum and maximum retransmission timeout [s].
    timeout: f64,
    longest: f64,
    /// First transport that the equations `timeouts` do not cover, and the reason.
    uncovered: Option<(String, &'static str)>,
    /// Datagrams at the mark point [bytes/s].
    pub(crate) background: f64,
    /// Connections whose transport has ECN.
    ecn: f64,
    /// First transport without ECN.
    without_ecn: Option<String>,
    /// Traffic with a rate limit of each connection.
    caps: Vec<(String, Rate)>,
}

impl Senders {
    /// Sums up the senders of `scenario` whose packets pass `queue`.
    pub(crate) fn of(scenario: &Scenario, queue: &WatchedQueue<'_>) -> Result<Self, Error> {
        let mut sum = Self::default();
        // Datagrams pass a gateway whole: the spacelink lengthens them ahead of its queues.
        let header = queue.gateway.and_then(|g| g.spacelink.datagram_header).map_or(0.0, f64::from);
        for traffic in &scenario.traffic {
            let is_its = |hop: &Hop| {
                // Uploads pass the queues of the terminal, or of the link's reverse direction.
                hop.link == queue.link && queue.gateway.map_or(hop.forward, |gateway| gateway.serves(&[*hop]))
            };
            let Some(at) = traffic.route.iter().position(is_its) else { continue };
            check_presence(traffic)?;
            let tcp = traffic.kind.transport().and_then(|i| scenario.transports[i].tcp());
            let (count, ramp, cap) = match &traffic.kind {
                TrafficKind::Pages(pages) => {
                    let side_by_side = match (pages.http, pages.connection_per) {
                        (Some(Http::One), _) => pages.objects_per_page.min(6),
                        (Some(Http::Two | Http::Three | Http::Probe), _) | (None, ConnectionPer::Page) => 1,
                        (None, ConnectionPer::Object) => pages.objects_per_page,
                    };
                    (f64::from(pages.sessions) * f64::from(side_by_side), pages.ramp, pages.rate_cap)
                }
                TrafficKind::Bulk(bulk) => {
                    let lifetime = bulk
                        .lifetime
                        .as_ref()
                        .map_or(f64::INFINITY, |lifetime| lifetime.mean().as_secs_f64());
                    sum.replaced += f64::from(bulk.flows) / lifetime;
                    (f64::from(bulk.flows), bulk.ramp, bulk.rate_cap)
                }
                TrafficKind::Packets(packets) if packets.transport.is_none() => {
                    sum.background +=
                        f64::from(packets.flows) * mean_rate(&traffic.name, &packets.pattern, header)?;
                    continue;
                }
                TrafficKind::Dash(_) => return not_fluid(traffic, "adaptive video"),
                _ => return not_fluid(traffic, "short transfers, or a source behind a transport"),
            };
            let Some(tcp) = tcp else { return not_fluid(traffic, "a transport other than TCP") };
            sum.caps.extend(cap.map(|cap| (traffic.name.clone(), cap)));
            let split = queue.gateway.is_some_and(|g| !g.pep.split.is_empty());
            let way = if split { &traffic.route[..at] } else { &traffic.route[..] };
            check_losses(scenario, way)?;
            if sum.uncovered.is_none() {
                sum.uncovered = uncovered(tcp).map(|what| (tcp.name.clone(), what));
            }
            sum.add(count, ramp, tcp, way.iter().map(|hop| both_ways(scenario, *hop)).sum());
        }
        if sum.connections == 0.0 {
            return wrong(
                "traffic: found no long-lived TCP through the subject's queue; allowed in a fluid model: kinds pages and \
                 bulk, with datagrams beside them"
                    .to_owned(),
            );
        }
        sum.replaced /= sum.connections;
        if sum.round_trip <= 0.0 {
            return wrong("link: found no delay on the way of the senders; allowed in a fluid model: a round trip above 0 s".to_owned());
        }
        Ok(sum)
    }

    /// Returns the effect of marks on the packets of the senders: with the method `ecn` those of a transport without ECN are
    /// dropped.
    pub(crate) fn effect(&self, method: Marking) -> Result<Marking, Error> {
        match &self.without_ecn {
            Some(_) if method == Marking::Ecn && self.ecn == 0.0 => Ok(Marking::Drop),
            Some(name) if method == Marking::Ecn => wrong(format!(
                "transport.{name}.ecn: found none beside other transports with ECN; allowed in a fluid model with marking = \
                 \"ecn\": ECN in all of them, or in none"
            )),
            _ => Ok(method),
        }
    }

    /// Refuses rate limits of connections below an equal share of `capacity` [bit/s] without the datagrams: they would keep
    /// the load below that of the equations.
    pub(crate) fn check_caps(&self, capacity: f64) -> Result<(), Error> {
        let share = (capacity - 8.0 * self.background) / self.connections;
        match self.caps.iter().find(|(_, cap)| (cap.as_bps() as f64) < share) {
            None => Ok(()),
            Some((name, cap)) => wrong(format!(
                "traffic.{name}.rate_cap: found {} bps; allowed in a fluid model: at least an equal share of the link, \
                 {share:.0} bps",
                cap.as_bps()
            )),
        }
    }

    /// Returns the TCP parameters of all senders for the equations `padhye`.
    pub(crate) fn padhye(&self, marking: Marking) -> Result<Padhye, Error> {
        only_drops(marking, "padhye")?;
        Ok(Padhye { segments_per_ack: self.per_ack, timeout: self.timeout, longest: self.longest })
    }

    /// Returns the TCP parameters of all senders for the equations `timeouts`.
    pub(crate) fn rules(&self, marking: Marking) -> Result<Rules, Error> {
        let of = "the equations timeouts";
        only_drops(marking, "timeouts")?;
        if let Some((name, what)) = &self.uncovered {
            return wrong(format!(
                "transport.{name}: found {what}; allowed with {of}: newreno with sack = false and go_back_n = true"
            ));
        }
        let window = self.window.floor();
        if !(2.0..=MOST_WINDOW as f64).contains(&window) {
            return wrong(format!(
                "transport.receive_window: found {} segments in the mean; allowed with {of}: from 2 to {MOST_WINDOW}",
                self.window
            ));
        }
        Ok(Rules {
            window: window as usize,
            initial_window: self.initial_window,
            segments_per_ack: self.per_ack,
            limited_transmit: self.limited,
            round_trip: self.round_trip,
            timeout: self.timeout,
            longest: self.longest,
        })
    }

    /// Adds `count` connections and updates the means.
    fn add(&mut self, count: f64, ramp: Option<Ramp>, tcp: &Tcp, round_trip: f64) {
        let (old, new) = (self.connections, self.connections + count);
        let mean = |of: &mut f64, x: f64| *of = (*of * old + x * count) / new;
        mean(&mut self.round_trip, round_trip);
        mean(&mut self.segment, tcp.full_segment() as f64);
        mean(&mut self.payload, tcp.mss as f64);
        let window = tcp.receive_window.min(tcp.max_window.unwrap_or(u64::MAX));
        mean(&mut self.window, window as f64 / tcp.mss as f64);
        mean(&mut self.initial_window, f64::from(tcp.initial_window));
        mean(&mut self.per_ack, if tcp.delayed_ack.is_some() { 2.0 } else { 1.0 });
        mean(&mut self.limited, f64::from(tcp.limited_transmit));
        mean(&mut self.timeout, tcp.min_rto.as_secs_f64());
        mean(&mut self.longest, tcp.max_rto.as_secs_f64());
        if tcp.ecn == Ecn::Off {
            self.without_ecn.get_or_insert_with(|| tcp.name.clone());
        } else {
            self.ecn += count;
        }
        self.connections = new;
        self.ramps.push((count, ramp));
    }
}

/// Refuses marks that do not drop, after which no sender waits for a timeout.
fn only_drops(marking: Marking, equations: &str) -> Result<(), Error> {
    if marking == Marking::Drop {
        return Ok(());
    }
    wrong(format!("marking: found marks that do not drop; allowed with the equations {equations}: \"drop\""))
}

/// Describes the property of a transport that the equations `timeouts` do not cover.
fn uncovered(tcp: &Tcp) -> Option<&'static str> {
    if tcp.algorithm != Congestion::NewReno {
        Some("another algorithm")
    } else if tcp.sack {
        Some("sack = true")
    } else if !tcp.go_back_n {
        Some("go_back_n = false")
    } else {
        None
    }
}

fn not_fluid<T>(traffic: &Traffic, what: &str) -> Result<T, Error> {
    wrong(format!(
        "traffic.{}: found {what}; allowed in a fluid model: TCP that always has something to send (kinds pages and \
         bulk), and datagrams (cbr, poisson, on_off)",
        traffic.name
    ))
}

/// Refuses traffic that is absent at times or ends: in the equations it is always there.
fn check_presence(traffic: &Traffic) -> Result<(), Error> {
    let (away, bytes) = match &traffic.kind {
        TrafficKind::Pages(pages) => (&pages.away, None),
        TrafficKind::Bulk(bulk) => (&bulk.away, bulk.bytes),
        TrafficKind::Packets(packets) => (&packets.away, None),
        _ => return Ok(()),
    };
    if !away.is_empty() {
        return wrong(format!(
            "traffic.{}.away: found periods of absence; allowed in a fluid model: traffic that is always present",
            traffic.name
        ));
    }
    match bytes {
        None => Ok(()),
        Some(bytes) => wrong(format!(
            "traffic.{}.bytes: found transfers of {bytes} B; allowed in a fluid model: transfers without an end",
            traffic.name
        )),
    }
}

/// Mean rate of a source of datagrams that are `header` bytes longer at the mark point [bytes/s].
fn mean_rate(name: &str, pattern: &Pattern, header: f64) -> Result<f64, Error> {
    let share = match pattern {
        Pattern::Cbr { .. } | Pattern::Poisson { .. } => 1.0,
        Pattern::OnOff { on, off, .. } => {
            let (on, off) = (on.mean().as_secs_f64(), off.mean().as_secs_f64());
            on / (on + off)
        }
        _ => {
            return wrong(format!(
                "traffic.{name}.kind: found {}; allowed for datagrams in a fluid model: cbr, poisson, on_off",
                pattern.name()
            ));
        }
    };
    Ok(share * pattern.nominal_rate().bytes_per_sec() * (1.0 + header / pattern.typical_packet()))
}

/// Refuses losses of data on the path `way` of senders: the equations have no losses but those at the queue.
fn check_losses(scenario: &Scenario, way: &[Hop]) -> Result<(), Error> {
    for hop in way {
        if !direction_of(scenario, *hop).loss.is_none() {
            return wrong(format!(
                "{}: found losses on the path of TCP senders; allowed in a fluid model: none, except behind a PEP",
                key_of(scenario, *hop, "loss")
            ));
        }
    }
    Ok(())
}

/// Mean round-trip delay of a link [s].
fn both_ways(scenario: &Scenario, hop: Hop) -> f64 {
    let link = &scenario.links[hop.link];
    mean_delay(&link.forward.delay) + mean_delay(&link.reverse.delay)
}

fn mean_delay(delay: &Delay) -> f64 {
    delay.fixed.as_secs_f64() + delay.jitter.mean().as_secs_f64()
}
