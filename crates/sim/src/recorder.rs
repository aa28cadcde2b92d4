//! What a run writes down: time series, drops, flows, and the counters behind the metrics.

use bentpipe_gateway::{Gateway, Place as GatewayPlace};
use bentpipe_queue::{Counters, DropReason, Packet, Queue};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use crate::network::{Link, Port};
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
    pub place: Vec<u16>,
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
    /// Whether it has an end at all.
    pub finite: bool,
    /// Payload delivered in all [bytes].
    pub delivered: u64,
    /// Payload delivered while measuring [bytes].
    pub measured: u64,
    /// Packets of it that were discarded anywhere.
    pub drops: u32,
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

    /// Payload over time [bit/s], for a measurement from `begin` to `end`. A finite flow counts where it was completed
    /// in that time, an endless one over the time that it was open in it; NaN otherwise.
    #[must_use]
    pub fn goodput(&self, begin: Instant, end: Instant) -> f64 {
        if !self.finite {
            return self.measured as f64 * 8.0 / (end - self.opened.max(begin)).as_secs_f64();
        }
        if self.closed.is_none_or(|closed| closed < begin) {
            return f64::NAN;
        }
        self.delivered as f64 * 8.0 / self.completion_time()
    }
}

/// What went over the spacelinks since the run began [packets].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
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
    /// Packets discarded for the Aqm's verdict.
    pub aqm_drops: u64,
    /// Packets discarded for want of room.
    pub overflow_drops: u64,
    /// Packets that left over the link.
    pub sent_packets: u64,
    /// Bytes that left over the link.
    pub sent_bytes: u64,
    /// Mean over time [packets].
    pub queue_time_mean: f64,
    /// Queueing delay of packets that left [s]: mean, percentiles 50, 95, 99, greatest.
    pub queue_delay: [f64; 5],
    /// Mean difference between the queueing delays of successive packets (RFC 3393) [s].
    pub jitter: f64,
}

/// Where packets queue, as seen by the recorder.
struct Place {
    /// In front of its series' names.
    prefix: String,
    kind: PlaceKind,
    /// Indexes of its names among [`Recorder::place_names`]: ahead of the PEP, behind it; a port has one.
    names: [u16; 2],
    /// Counters at the last sample.
    last: Snapshot,
    /// Counters when measuring began.
    begin: Snapshot,
    /// Queueing delays since the last sample [ns], and how many.
    delay_sum: u64,
    delay_count: u64,
    /// Where its columns begin.
    first_series: usize,
    /// Names of the Aqm's internal state.
    detail: Detail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    Gateway(u32),
    Port(u32),
}

#[derive(Clone, Copy, Default)]
struct Snapshot {
    counters: Counters,
    queue_sent_bytes: u64,
    arrived_bytes: u64,
    packet_seconds: f64,
    overflow_ahead: u64,
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
    of_port: Vec<usize>,
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
    /// Name and gateway of each station.
    pub gateways: Vec<(&'a str, &'a Gateway)>,
    pub ports: &'a [Port],
    pub links: &'a [Link],
    /// Whether the subject is a gateway, and its number among the gateways or ports.
    pub subject: (bool, u32),
}

/// Queueing delays are told apart up to here [ns]; longer ones count as this.
const LONGEST_DELAY: u64 = 1_000_000_000_000;

const GATEWAY_SERIES: [&str; 9] = [
    "offered_load",
    "utilization_in",
    "utilization_out",
    "receive_queue",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
    "pep_buffers",
];
const PORT_SERIES: [&str; 6] = [
    "offered_load",
    "utilization_out",
    "transmit_queue",
    "transmit_queue_bytes",
    "queue_delay",
    "mark_probability",
];

impl Recorder {
    pub fn new(setup: &Setup<'_>) -> Self {
        let mut recorder = Self {
            warmup: Instant::ZERO + setup.warmup,
            end: Instant::ZERO + setup.warmup + setup.duration,
            interval: setup.interval,
            measuring: false,
            samples: 0,
            places: Vec::new(),
            of_port: Vec::new(),
            of_gateway: Vec::new(),
            subject: 0,
            place_names: Vec::new(),
            first_link_name: 0,
            series: vec![Series { name: "time".to_owned(), values: Vec::new() }],
            drops: Drops::default(),
            flows: Vec::new(),
            summary: Summary::default(),
        };
        for (station, &(name, gateway)) in setup.gateways.iter().enumerate() {
            let names = [format!("{name} receive"), format!("{name} transmit")];
            let place = recorder.places.len();
            recorder.of_gateway.push(place);
            let kind = PlaceKind::Gateway(station as u32);
            recorder.add(kind, name, &names, gateway.watched_queue(), &GATEWAY_SERIES, setup.subject);
        }
        for (port, p) in setup.ports.iter().enumerate() {
            let place = recorder.places.len();
            recorder.of_port.push(place);
            let name = &setup.links[p.link as usize].name;
            let names = [name.clone()];
            recorder.add(PlaceKind::Port(port as u32), name, &names, &p.queue, &PORT_SERIES, setup.subject);
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
            PlaceKind::Port(p) => subject == (false, p),
        };
        if is_subject {
            self.subject = self.places.len();
        }
        let prefix = if is_subject { String::new() } else { format!("{name}.") };
        let first_name = self.place_names.len() as u16;
        self.place_names.extend(names.iter().cloned());
        let first_series = self.series.len();
        let mut columns: Vec<String> = series.iter().map(|s| (*s).to_owned()).collect();
        queue.probe(&mut |probe, _| columns.push(format!("aqm.{probe}")));
        for column in columns {
            self.series.push(Series { name: format!("{prefix}{column}"), values: Vec::new() });
        }
        self.places.push(Place {
            prefix,
            kind,
            names: [first_name, first_name + names.len() as u16 - 1],
            last: Snapshot::default(),
            begin: Snapshot::default(),
            delay_sum: 0,
            delay_count: 0,
            first_series,
            detail: Detail {
                delays: is_subject.then(|| Histogram::new_with_max(LONGEST_DELAY, 3).ok()).flatten(),
                jitter_sum: 0,
                jitter_count: 0,
                last_delay: None,
                runs: Runs::default(),
            },
        });
    }

    /// When the first sample is due.
    pub fn first_sample(&self) -> Instant {
        self.warmup
    }

    // ----- what happens --------------------------------------------------------------------------------------

    pub fn open_flow(&mut self, now: Instant, traffic: u32, session: u32, finite: bool) -> u32 {
        self.flows.push(Flow {
            traffic,
            session,
            opened: now,
            closed: None,
            completed: false,
            finite,
            delivered: 0,
            measured: 0,
            drops: 0,
        });
        (self.flows.len() - 1) as u32
    }

    pub fn close_flow(&mut self, now: Instant, flow: u32, completed: bool) {
        let flow = &mut self.flows[flow as usize];
        flow.closed = Some(now);
        flow.completed = completed;
    }

    #[inline]
    pub fn delivered(&mut self, flow: u32, bytes: u64) {
        let flow = &mut self.flows[flow as usize];
        flow.delivered += bytes;
        flow.measured += if self.measuring { bytes } else { 0 };
    }

    #[inline]
    pub fn left_port(&mut self, port: u32, delay: Duration) {
        self.left(self.of_port[port as usize], delay);
    }

    #[inline]
    pub fn left_gateway(&mut self, station: u32, delay: Duration) {
        self.left(self.of_gateway[station as usize], delay);
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

    pub fn dropped_at_port(
        &mut self,
        now: Instant,
        port: u32,
        judged: u64,
        pkt: &Packet,
        reason: DropReason,
    ) {
        let place = self.of_port[port as usize];
        let name = self.places[place].names[0];
        // A port's packets are judged as they enter, so the newest is the one with the last number.
        self.note(now, place, name, Some(judged), pkt, reason);
    }

    pub fn dropped_at_gateway(
        &mut self,
        now: Instant,
        station: u32,
        gateway: &Gateway,
        pkt: &Packet,
        reason: DropReason,
        at: GatewayPlace,
    ) {
        let place = self.of_gateway[station as usize];
        let name = self.places[place].names[usize::from(at == GatewayPlace::Transmit)];
        let judged = gateway.watched_queue().counters().judged;
        // What overflows behind the mark point was judged a while ago: it has no place in the runs.
        let run = (at == gateway.mark_point()).then_some(judged);
        self.note(now, place, name, run, pkt, reason);
    }

    fn note(
        &mut self,
        now: Instant,
        place: usize,
        name: u16,
        judged: Option<u64>,
        pkt: &Packet,
        reason: DropReason,
    ) {
        if !self.measuring {
            return;
        }
        let begin = self.places[place].begin.counters.judged;
        let arrival = judged.map(|judged| judged.saturating_sub(begin + 1));
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
            let name = (self.first_link_name + link as usize) as u16;
            self.push_drop(now, u64::MAX, name, 2, flow, len);
        }
    }

    fn push_drop(&mut self, now: Instant, arrival: u64, place: u16, reason: u8, flow: u32, bytes: u32) {
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
    pub fn sample(&mut self, now: Instant, ports: &[Port], stations: &[Station]) -> Option<Instant> {
        let began = self.measuring;
        self.measuring = true;
        if began {
            self.series[0].values.push((now - self.warmup).as_secs_f64());
        }
        for place in &mut self.places {
            let (queue, sent, arrived, ahead, extra) = match place.kind {
                PlaceKind::Gateway(station) => {
                    let s = &stations[station as usize];
                    let g = &s.gateway;
                    let other = if std::ptr::eq(g.watched_queue(), g.transmit_queue()) {
                        g.receive_queue()
                    } else {
                        g.transmit_queue()
                    };
                    let sent = g.transmit_queue().state().sent_bytes;
                    let received = f64::from(g.receive_queue().state().packets);
                    let extra = Some((received, s.buffers.occupied() as f64, g.transmit_queue()));
                    (g.watched_queue(), sent, g.arrived_bytes(), other.counters().overflowed, extra)
                }
                PlaceKind::Port(port) => {
                    let p = &ports[port as usize];
                    (&p.queue, p.queue.state().sent_bytes, 0, 0, None)
                }
            };
            let shown = extra.map_or(queue, |(_, _, transmit)| transmit);
            let snapshot = Snapshot {
                counters: *queue.counters(),
                queue_sent_bytes: sent,
                arrived_bytes: arrived,
                packet_seconds: shown.packet_seconds(now),
                overflow_ahead: ahead,
            };
            if !began {
                (place.begin, place.last) = (snapshot, snapshot);
                continue;
            }
            let seconds = self.interval.as_secs_f64();
            let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
            let last = std::mem::replace(&mut place.last, snapshot);
            let judged = snapshot.counters.judged - last.counters.judged;
            let marked = snapshot.counters.marked - last.counters.marked;
            let offered = rate(snapshot.counters.judged_bytes - last.counters.judged_bytes);
            let out = rate(snapshot.queue_sent_bytes - last.queue_sent_bytes);
            let (packets, bytes) = (f64::from(shown.state().packets), shown.state().bytes as f64);
            let delay = place.delay_sum as f64 * 1e-9 / place.delay_count as f64;
            (place.delay_sum, place.delay_count) = (0, 0);
            let marks = marked as f64 / judged as f64;
            let mut column = place.first_series;
            let mut put = |value: f64| {
                self.series[column].values.push(value);
                column += 1;
            };
            match extra {
                Some((received, buffered, _)) => {
                    let arriving = rate(snapshot.arrived_bytes - last.arrived_bytes);
                    for value in [offered, arriving, out, received, packets, bytes, delay, marks, buffered] {
                        put(value);
                    }
                }
                None => {
                    for value in [offered, out, packets, bytes, delay, marks] {
                        put(value);
                    }
                }
            }
            queue.probe(&mut |_, value| put(value));
        }
        self.samples += u64::from(began);
        let next = now + self.interval;
        (next <= self.end).then_some(next)
    }

    /// Works out the summary, at the end of the run.
    pub fn finish(&mut self, now: Instant) {
        let place = &mut self.places[self.subject];
        place.detail.runs.close();
        let (begin, end) = (&place.begin, &place.last);
        let seconds = (now - self.warmup).as_secs_f64();
        let delays = place.detail.delays.as_ref();
        let percentile = |q: f64| delays.map_or(f64::NAN, |d| d.value_at_quantile(q) as f64 * 1e-9);
        let since = |of: fn(&Counters) -> u64| of(&end.counters) - of(&begin.counters);
        self.summary = Summary {
            offered_packets: since(|c| c.judged),
            offered_bytes: since(|c| c.judged_bytes),
            aqm_drops: since(|c| c.refused) + since(|c| c.evicted),
            overflow_drops: since(|c| c.overflowed) + end.overflow_ahead - begin.overflow_ahead,
            sent_packets: since(|c| c.sent),
            sent_bytes: end.queue_sent_bytes - begin.queue_sent_bytes,
            queue_time_mean: (end.packet_seconds - begin.packet_seconds) / seconds,
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

    /// When measuring began.
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
        let runs: u64 = self.drop_runs().map(|(length, n)| u64::from(length) * n).sum();
        let prefix = &self.places[self.subject].prefix;
        let names = self.places[self.subject].names;
        let at_subject = |place: &u16| *place == names[0] || *place == names[1];
        let placed = self.drops.place.iter().zip(&self.drops.arrival);
        let recorded =
            placed.filter(|(place, arrival)| at_subject(place) && **arrival != u64::MAX).count() as u64;
        if runs != recorded {
            return Err(format!("{prefix}{runs} drops in runs, {recorded} recorded"));
        }
        Ok(())
    }
}
