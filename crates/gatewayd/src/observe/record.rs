//! The record of a run: one JSON value per line, in the simulator's names and units.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;

use bentpipe_gateway::{
    GatewayQueue, Intervals, LIMIT_SERIES, Meter, PepBuffers, SERIES, Sample, Snapshot, TerminalMeter,
};
use bentpipe_queue::{DropReason, Packet, Queue};
use bentpipe_spacelink::PeerId;
use bentpipe_units::{Duration, Instant};
use serde_json::{Map, Value, json};

use crate::config::Record;
use crate::sys::clock::Clock;

const DROPS: [&str; 8] = ["time", "arrival", "place", "reason", "flow", "bytes", "client", "server"];

/// Bytes on the spacelink so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Counters of the spacelink.
    pub spacelink: bentpipe_spacelink::Stats,
    /// Bytes of IP packets sent as datagrams, which are not sent again if lost.
    pub datagram_bytes: u64,
}

impl Carried {
    /// Counters since `begin`, as JSON.
    fn since(&self, begin: &Self) -> Value {
        let (now, then) = (&self.spacelink, &begin.spacelink);
        json!({
            "sent_bytes": now.sent_bytes - then.sent_bytes,
            "lost_packets": now.lost_packets - then.lost_packets,
            "lost_bytes": now.lost_bytes - then.lost_bytes,
            "written_bytes": now.written_bytes - then.written_bytes,
            "datagram_bytes": self.datagram_bytes - begin.datagram_bytes,
        })
    }
}

/// State of all queues of an end.
#[derive(Default)]
pub struct QueuesState<'a> {
    /// Counters of all queues together.
    pub snapshot: Snapshot,
    /// Packets in the receive queues.
    pub receive_packets: u64,
    /// Packets in the transmit queues.
    pub transmit_packets: u64,
    /// Bytes in the transmit queues.
    pub transmit_bytes: u64,
    /// The queue that the AQM watches; `None` if there are several.
    pub watched: Option<&'a Queue>,
}

/// A packet that a queue has dropped.
pub struct Drop<'a> {
    /// The packet.
    pub pkt: &'a Packet,
    /// Reason for the drop.
    pub reason: DropReason,
    /// The queue.
    pub place: GatewayQueue,
    /// True if packets are marked there.
    pub at_mark_point: bool,
    /// Its client and its server.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The peer that it would have gone to.
    pub peer: Option<PeerId>,
}

/// Writes the record of a run.
pub struct Recorder {
    out: BufWriter<File>,
    /// Name of the gateway, part of the queue's name in drops.
    name: String,
    interval: Duration,
    drops: bool,
    /// Begin and end of the measurement.
    begin: Instant,
    end: Option<Instant>,
    /// Time of the next sample.
    next: Instant,
    measuring: bool,
    finished: bool,
    has_limits: bool,
    /// Internal state that is recorded: owner and name.
    probes: Vec<(&'static str, &'static str)>,
    /// True if each peer has its queues: packets then have no number in the order of arrival.
    has_many_queues: bool,
    meter: Meter,
    /// Packets of each peer, by its number.
    terminals: Vec<Option<TerminalMeter>>,
    /// Names of removed peers, whose last packets may still come.
    former: BTreeMap<PeerId, String>,
    /// Packets of removed peers whose number another has, by their names.
    removed: Vec<(String, TerminalMeter)>,
    /// Division of a measurement with an end.
    intervals: Option<Intervals>,
    /// Spacelink's counters at the start of the measurement and at the last sample.
    carried: [Carried; 2],
    /// First error of the file.
    fault: Option<io::Error>,
}

impl Recorder {
    /// Begins the file with the names of its columns. The queue that the AQM `watches` comes with true if there are several.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(
        record: &Record,
        name: &str,
        clock: &Clock,
        now: Instant,
        (watched, has_many_queues): (Option<&Queue>, bool),
        has_limits: bool,
    ) -> io::Result<Self> {
        let begin = record.origin_ns.map_or(now, |origin| clock.at(origin)) + record.warmup;
        let begin = begin.max(now);
        let mut recorder = Self {
            out: BufWriter::new(File::create(&record.file)?),
            name: name.to_owned(),
            interval: record.interval,
            drops: record.drops,
            begin,
            end: record.duration.map(|duration| begin + duration),
            next: begin,
            measuring: false,
            finished: false,
            has_limits,
            probes: Vec::new(),
            has_many_queues,
            meter: Meter::new(begin, true),
            terminals: Vec::new(),
            former: BTreeMap::new(),
            removed: Vec::new(),
            intervals: record.duration.map(|duration| Intervals::new(begin, duration)),
            carried: [Carried::default(); 2],
            fault: None,
        };
        let limits = LIMIT_SERIES.iter().filter(|_| has_limits);
        let mut series: Vec<String> =
            ["time"].iter().chain(&SERIES).chain(limits).map(|name| (*name).to_owned()).collect();
        if let Some(watched) = watched {
            watched.probe(&mut |whose, name, _| recorder.probes.push((whose, name)));
        }
        series.extend(recorder.probes.iter().map(|(whose, name)| format!("{whose}.{name}")));
        recorder.line(&json!({ "series": series, "drops": DROPS }));
        Ok(recorder)
    }

    /// Time of the next [`Recorder::sample`].
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        (!self.finished).then_some(self.next)
    }

    /// True during the measurement: from its start to its last sample.
    fn is_on(&self) -> bool {
        self.measuring && !self.finished
    }

    /// Records a packet of `bytes` that leaves the transmit queue for a peer after `delay`.
    pub fn left(&mut self, peer: PeerId, bytes: u32, delay: Duration, now: Instant) {
        if self.is_on() {
            self.meter.left(delay);
            let interval = self.intervals.map_or(0, |intervals| intervals.at(now.max(self.begin)));
            self.terminal(peer).sent(bytes, delay, interval);
        }
    }

    /// Records of a peer.
    fn terminal(&mut self, peer: PeerId) -> &mut TerminalMeter {
        if self.terminals.len() <= peer.index() {
            self.terminals.resize_with(peer.index() + 1, || None);
        }
        let intervals = self.intervals.map_or(0, |intervals| intervals.count());
        self.terminals[peer.index()].get_or_insert_with(|| TerminalMeter::new(intervals))
    }

    /// Keeps the name of a peer that is removed.
    pub fn terminal_removed(&mut self, peer: PeerId, name: &str) {
        self.former.insert(peer, name.to_owned());
    }

    /// Keeps the records of a removed peer whose number a new one gets.
    pub fn terminal_added(&mut self, peer: PeerId) {
        let Some(name) = self.former.remove(&peer) else { return };
        let meter = self.terminals.get_mut(peer.index()).and_then(Option::take);
        self.removed.extend(meter.map(|meter| (name, meter)));
    }

    /// Records bytes that enter the transmit queue `transit` after they came to the gateway.
    pub fn passed(&mut self, transit: Duration) {
        if self.is_on() {
            self.meter.passed(transit);
        }
    }

    /// Records a dropped packet.
    pub fn dropped(&mut self, drop: &Drop<'_>, now: Instant) {
        if !self.is_on() {
            return;
        }
        let Drop { pkt, reason, place, at_mark_point, ends, peer } = *drop;
        if let Some(peer) = peer {
            self.terminal(peer).dropped_packets += 1;
        }
        // A packet that overflows the other queue was offered to the AQM earlier, or never: it has no number.
        let has_number = at_mark_point && !self.has_many_queues;
        let arrival = if has_number { self.meter.dropped(pkt.number) } else { None };
        if self.drops {
            let place = match place {
                GatewayQueue::Receive => "receive",
                GatewayQueue::Transmit => "transmit",
            };
            let place = format!("{} {place}", self.name);
            let time = (now - self.begin).as_secs_f64();
            let [client, server] =
                [ends.map(|ends| ends.0), ends.map(|ends| ends.1)].map(|end| end.map(|end| end.to_string()));
            self.line(
                &json!({ "drop": [time, arrival, place, reason.name(), pkt.flow.0, pkt.len, client, server] }),
            );
        }
    }

    /// Takes a sample if one is due. The one that begins the measurement only notes the counters.
    pub fn sample<'a>(
        &mut self,
        now: Instant,
        queues: impl FnOnce() -> QueuesState<'a>,
        buffers: &PepBuffers,
        carried: impl FnOnce() -> Carried,
    ) {
        if self.finished || now < self.next {
            return;
        }
        let QueuesState { snapshot, receive_packets, transmit_packets, transmit_bytes, watched } = queues();
        self.carried[1] = carried();
        if !self.measuring {
            self.measuring = true;
            self.carried[0] = self.carried[1];
            self.meter.begin(snapshot, now);
            self.next += self.interval;
            return;
        }
        let Sample { offered, arrived, sent, queue_delay, mark_probability, transit_time } =
            self.meter.sample(snapshot, now);
        let mut values = vec![
            (now - self.begin).as_secs_f64(),
            offered,
            arrived,
            sent,
            receive_packets as f64,
            transmit_packets as f64,
            transmit_bytes as f64,
            queue_delay,
            mark_probability,
            buffers.occupied() as f64,
            transit_time,
        ];
        if self.has_limits {
            let (limit, closed) = buffers.limits().unwrap_or((f64::NAN, 0));
            values.extend([limit, f64::from(closed)]);
        }
        // After a reload another algorithm may run, without some of the probes.
        let probes = values.len();
        values.resize(probes + self.probes.len(), f64::NAN);
        if let Some(watched) = watched {
            watched.probe(&mut |whose, name, value| {
                if let Some(i) = self.probes.iter().position(|known| *known == (whose, name)) {
                    values[probes + i] = value;
                }
            });
        }
        self.line(&json!({ "sample": values }));
        self.next += self.interval;
        if self.next <= now {
            // Missed samples are skipped.
            let missed = (now - self.next).as_nanos() / self.interval.as_nanos().max(1) + 1;
            self.next += self.interval.times(missed);
        }
        self.finished = self.end.is_some_and(|end| self.next > end);
    }

    /// Ends the file with the totals of the measurement, those of each peer by its name of `names`, and `more`.
    ///
    /// # Errors
    /// The first error in writing the file.
    pub fn finish(
        mut self,
        now: Instant,
        queues: &QueuesState<'_>,
        names: impl Fn(PeerId) -> String,
        more: Value,
    ) -> io::Result<()> {
        // If the time is over, the last sample was taken at its end.
        let (end, at) = if self.finished { self.meter.last() } else { (queues.snapshot, now) };
        let meter = &self.meter;
        let summary = meter.summary(&end, at).unwrap_or_default();
        let runs: Vec<_> = meter.drop_runs().map(|(length, n)| json!([length, n])).collect();
        let mut counters: Map<String, Value> = (summary.counters().into_iter())
            .map(|(name, value)| {
                (name.to_owned(), if value.fract() == 0.0 { json!(value as u64) } else { json!(value) })
            })
            .collect();
        counters.insert("seconds".to_owned(), json!((at - meter.begin_at()).as_secs_f64()));
        counters.insert("drop_runs".to_owned(), json!(runs));
        let mut last = json!({ "summary": counters, "measured": {
            "begin_s": (meter.begin_at() - self.begin).as_secs_f64(),
            "end_s": (at - self.begin).as_secs_f64(),
        }, "carried": self.carried[1].since(&self.carried[0]), "terminals": self.terminals_json(names) });
        if let (Some(last), Value::Object(more)) = (last.as_object_mut(), more) {
            last.extend(more);
        }
        self.line(&last);
        let flushed = self.out.flush();
        self.fault.map_or(flushed, Err)
    }

    /// Packets of each peer, removed ones included.
    fn terminals_json(&self, names: impl Fn(PeerId) -> String) -> Vec<Value> {
        let present = (0..).map(PeerId).zip(&self.terminals);
        let name = |peer| self.former.get(&peer).cloned().unwrap_or_else(|| names(peer));
        let present = present.filter_map(|(peer, meter)| Some((name(peer), meter.as_ref()?)));
        let removed = self.removed.iter().map(|(name, meter)| (name.clone(), meter));
        let row = |(name, meter): (String, &TerminalMeter)| {
            let intervals =
                meter.intervals.iter().map(|it| json!([it.packets, it.bytes, it.delay.as_secs_f64()]));
            json!({
                "terminal": name,
                "sent_packets": meter.sent_packets,
                "sent_bytes": meter.sent_bytes,
                "dropped_packets": meter.dropped_packets,
                "delays": meter.delays().map(|(delay, packets)| (delay.as_secs_f64(), packets)).collect::<Vec<_>>(),
                "intervals": intervals.collect::<Vec<_>>(),
            })
        };
        present.chain(removed).map(row).collect()
    }

    fn line(&mut self, value: &Value) {
        if self.fault.is_none() {
            self.fault = writeln!(self.out, "{value}").err();
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_gateway::Gateway;

    use super::*;

    /// State of a gateway's queues.
    fn state(gateway: &Gateway, now: Instant) -> QueuesState<'_> {
        QueuesState {
            snapshot: Snapshot::of_gateway(gateway, now),
            watched: Some(gateway.watched_queue()),
            ..QueuesState::default()
        }
    }

    /// A gateway with room for one packet, and the setup of a record of one second after a warm-up of one second.
    fn gateway(test: &str) -> (Gateway, Record) {
        use bentpipe_gateway::{Drain, Processor, Regulator, Setup};
        use bentpipe_queue::{
            Limit, Marking, Queue, QueueConfig, aqm::droptail::DropTail, sched::fifo::Fifo,
        };
        use bentpipe_units::Rate;

        let rate = Rate::from_bps(1000);
        let queue = || {
            let limit = Limit { packets: 1, bytes: u64::MAX };
            let setup = QueueConfig {
                marking: Marking::Drop,
                limit,
                capacity: rate,
                seed: 1,
                name: "test".to_owned(),
            };
            Queue::new(Box::<Fifo>::default(), Box::new(DropTail), &setup)
        };
        let gateway = Gateway::new(Setup {
            receive: queue(),
            receive_rate: None,
            transmit: queue(),
            watch: GatewayQueue::Transmit,
            mark: GatewayQueue::Receive,
            processing: Processor::constant(Duration::ZERO),
            drain: Drain::Regulator(Regulator::new(rate, Duration::ZERO)),
        });
        let record = Record {
            file: std::env::temp_dir().join(format!("bentpipe-record-{test}-{}", std::process::id())),
            interval: Duration::from_millis(500),
            origin_ns: None,
            warmup: Duration::from_secs(1),
            duration: Some(Duration::from_secs(1)),
            drops: true,
        };
        (gateway, record)
    }

    fn recorder(record: &Record, gateway: &Gateway) -> Recorder {
        let queues = (Some(gateway.watched_queue()), false);
        Recorder::new(record, "gateway", &Clock::start(), Instant::ZERO, queues, false).expect("a file")
    }

    /// Ends a record and returns its lines.
    fn lines(recorder: Recorder, record: &Record, gateway: &Gateway) -> Vec<Value> {
        let end = Instant::ZERO + Duration::from_secs(10);
        let name = |peer: PeerId| format!("t{}", peer.index());
        recorder.finish(end, &state(gateway, end), name, json!({})).expect("written");
        let text = std::fs::read_to_string(&record.file).expect("a record");
        std::fs::remove_file(&record.file).expect("to remove it");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Neither the list of drops nor the totals contain packets dropped or sent before or after the measurement.
    #[test]
    fn drops_outside_the_measurement_are_left_out() {
        let (mut gateway, record) = gateway("drops");
        let buffers = PepBuffers::new(1, bentpipe_gateway::Sharing::PerUser);
        let mut recorder = recorder(&record, &gateway);
        for tenth in 0..=24 {
            let now = Instant::ZERO + Duration::from_millis(100 * tenth + 50);
            gateway.transmit(Packet::new(1000, bentpipe_queue::FlowId(0), 0), now);
            while let Some(event) = gateway.poll() {
                if let bentpipe_gateway::Event::Dropped(pkt, reason, place) = event {
                    let at_mark_point = place == gateway.mark_point();
                    let (ends, peer) = (None, Some(PeerId(1)));
                    let drop = Drop { pkt: &pkt, reason, place, at_mark_point, ends, peer };
                    recorder.dropped(&drop, now);
                }
            }
            let at = Instant::ZERO + Duration::from_millis(100 * (tenth + 1));
            let carried = || Carried { datagram_bytes: 1000 * (tenth + 1), ..Carried::default() };
            recorder.sample(at, || state(&gateway, at), &buffers, carried);
        }
        let lines = lines(recorder, &record, &gateway);
        let times: Vec<_> = lines.iter().filter_map(|line| line["drop"][0].as_f64()).collect();
        assert_eq!(times.len(), 10, "{times:?}");
        assert!(times.iter().all(|time| (0.0..1.0).contains(time)), "{times:?}");
        let last = lines.last().expect("the totals");
        assert_eq!(
            (&last["summary"]["drops_elsewhere"], &last["summary"]["seconds"]),
            (&10.into(), &1.0.into())
        );
        assert_eq!(last["carried"]["datagram_bytes"], 10_000);
        let terminal = |key: &str| &last["terminals"][0][key];
        assert_eq!((terminal("terminal"), terminal("dropped_packets")), (&"t1".into(), &10.into()));
    }

    /// One of two terminals is removed, and its number given to another: each has the packets that were sent while it had the
    /// number. Of 60 intervals of a sixtieth of a second, 310 ms is in that with the number 18.
    #[test]
    fn each_terminal_has_its_own_packets() {
        let (gateway, record) = gateway("terminals");
        let buffers = PepBuffers::new(1, bentpipe_gateway::Sharing::PerUser);
        let mut recorder = recorder(&record, &gateway);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        recorder.left(PeerId(0), 1000, Duration::from_millis(1), at(900));
        recorder.sample(at(1000), || state(&gateway, at(1000)), &buffers, Carried::default);
        recorder.left(PeerId(0), 1000, Duration::from_millis(10), at(1310));
        recorder.left(PeerId(1), 500, Duration::from_millis(20), at(1310));
        recorder.terminal_removed(PeerId(1), "old");
        // One that was under way.
        recorder.left(PeerId(1), 100, Duration::from_millis(20), at(1310));
        recorder.terminal_added(PeerId(1));
        recorder.left(PeerId(1), 700, Duration::from_millis(40), at(1400));
        let lines = lines(recorder, &record, &gateway);
        let rows = lines.last().expect("the totals")["terminals"].as_array().expect("rows").clone();
        let sent: Vec<_> =
            rows.iter().map(|row| (row["terminal"].as_str(), row["sent_bytes"].as_u64())).collect();
        assert_eq!(sent, [(Some("t0"), Some(1000)), (Some("t1"), Some(700)), (Some("old"), Some(600))]);
        let intervals = rows[0]["intervals"].as_array().expect("intervals");
        assert_eq!((intervals.len(), &intervals[18]), (60, &json!([1, 1000, 0.01])));
        let delays = rows[2]["delays"].as_array().expect("delays");
        assert_eq!((delays.len(), &delays[0][1]), (1, &2.into()));
        let delay = delays[0][0].as_f64().expect("a delay");
        assert!((delay / 0.02 - 1.0).abs() < 0.01, "{delay}");
    }

    /// Packets arrive every 10 ms and every sample is late, also the first: the rates times their intervals still add up to the
    /// counters.
    #[test]
    fn late_samples_add_up_to_the_counters() {
        let (mut gateway, record) = gateway("late");
        let buffers = PepBuffers::new(1, bentpipe_gateway::Sharing::PerUser);
        let mut recorder = recorder(&record, &gateway);
        for ms in (0..3000).step_by(10) {
            let now = Instant::ZERO + Duration::from_millis(ms);
            gateway.arrive(Packet::new(1000, bentpipe_queue::FlowId(0), 0), now);
            while gateway.poll().is_some() {}
            // Due at 1 s, 1.5 s and 2 s.
            if [1230, 1510, 2170].contains(&ms) {
                recorder.sample(now, || state(&gateway, now), &buffers, Carried::default);
            }
        }
        let lines = lines(recorder, &record, &gateway);
        let last = lines.last().expect("the totals");
        let number = |value: &Value| value.as_f64().expect("a number");
        let mut before = number(&last["measured"]["begin_s"]);
        assert_eq!((before, number(&last["summary"]["seconds"])), (0.23, 0.94));
        let mut bits = 0.0;
        for sample in lines.iter().filter_map(|line| line["sample"].as_array()) {
            let time = number(&sample[0]);
            bits += number(&sample[1]) * (time - before);
            before = time;
        }
        let counted = 8.0 * number(&last["summary"]["offered_bytes"]);
        assert!(counted > 0.0 && (bits - counted).abs() < 1e-6, "{bits} in the samples, {counted} counted");
    }
}
