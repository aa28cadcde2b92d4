//! The record of a run: one JSON value per line, in the simulator's names and units.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;

use bentpipe_gateway::{Gateway, GatewayQueue, LIMIT_SERIES, PepBuffers, SERIES};
use bentpipe_queue::{Counters, DropReason, Packet, Queue};
use bentpipe_units::{Duration, Instant};
use serde_json::{Value, json};

use crate::config::Record;
use crate::sys::clock::Clock;

const DROPS: [&str; 8] = ["time", "arrival", "place", "reason", "flow", "bytes", "client", "server"];

/// Counters at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    counters: Counters,
    aqm_drops: u64,
    overflow_drops: u64,
    elsewhere: u64,
    sent: u64,
    sent_bytes: u64,
    packet_seconds: f64,
    arrived_bytes: u64,
}

impl Snapshot {
    fn of(gateway: &Gateway, now: Instant) -> Self {
        let (receive, transmit) = (gateway.receive_queue(), gateway.transmit_queue());
        let (at_mark, other) = match gateway.mark_point() {
            GatewayQueue::Receive => (receive, transmit),
            GatewayQueue::Transmit => (transmit, receive),
        };
        let watched = gateway.watched_queue();
        Self {
            counters: *watched.counters(),
            aqm_drops: watched.counters().dropped_on_arrival + at_mark.counters().dropped_in_queue,
            overflow_drops: at_mark.counters().overflowed,
            elsewhere: other.counters().overflowed + other.counters().dropped_in_queue,
            sent: transmit.counters().sent,
            sent_bytes: transmit.state().sent_bytes,
            packet_seconds: transmit.packet_seconds(now),
            arrived_bytes: gateway.arrived_bytes(),
        }
    }
}

/// Distribution of times in buckets of a thousandth, so that memory does not grow with the run.
#[derive(Clone, Debug)]
struct DelayDistribution {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    most: u64,
}

/// Buckets per doubling.
const STEPS: u64 = 1024;

impl DelayDistribution {
    fn new() -> Self {
        Self { counts: Vec::new(), count: 0, sum: 0, most: 0 }
    }

    /// Bucket of a time [ns]: one for each time below 1024, then 1024 per doubling.
    fn bucket(ns: u64) -> usize {
        if ns < STEPS {
            return ns as usize;
        }
        let doubling = ns.ilog2() - STEPS.ilog2();
        (u64::from(doubling) * STEPS + (ns >> doubling)) as usize
    }

    /// Shortest time of a bucket [ns].
    fn least(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < STEPS {
            return bucket;
        }
        let doubling = bucket / STEPS - 1;
        (bucket - doubling * STEPS) << doubling
    }

    fn add(&mut self, time: Duration) {
        let ns = time.as_nanos();
        let bucket = Self::bucket(ns);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.most = self.most.max(ns);
    }

    /// Mean, percentiles 50, 95 and 99, and maximum [s].
    fn five(&self) -> [f64; 5] {
        if self.count == 0 {
            return [f64::NAN; 5];
        }
        let percentile = |share: f64| {
            let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
            let mut seen = 0;
            let bucket = self.counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            bucket.map_or(f64::NAN, |bucket| Self::least(bucket) as f64 * 1e-9)
        };
        let mean = self.sum as f64 / self.count as f64 * 1e-9;
        [mean, percentile(0.5), percentile(0.95), percentile(0.99), self.most as f64 * 1e-9]
    }
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
    end: Instant,
    /// Time of the next sample.
    next: Instant,
    measuring: bool,
    finished: bool,
    has_limits: bool,
    /// Internal state that is recorded: owner and name.
    probes: Vec<(&'static str, &'static str)>,
    first: Snapshot,
    /// Time of `first`: `begin`, or later on a busy machine.
    first_at: Instant,
    last: Snapshot,
    last_at: Instant,
    delays: DelayDistribution,
    delay: (Duration, u64),
    transit: (Duration, u64),
    last_delay: Option<u64>,
    jitter: (u64, u64),
    runs: Vec<u64>,
    run: u64,
    last_drop: u64,
    /// First error of the file.
    fault: Option<io::Error>,
}

impl Recorder {
    /// Begins the file with the names of its columns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(
        record: &Record,
        name: &str,
        clock: &Clock,
        now: Instant,
        gateway: &Gateway,
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
            end: record.duration.map_or(Instant::FAR_FUTURE, |duration| begin + duration),
            next: begin,
            measuring: false,
            finished: false,
            has_limits,
            probes: Vec::new(),
            first: Snapshot::default(),
            first_at: begin,
            last: Snapshot::default(),
            last_at: begin,
            delays: DelayDistribution::new(),
            delay: (Duration::ZERO, 0),
            transit: (Duration::ZERO, 0),
            last_delay: None,
            jitter: (0, 0),
            runs: Vec::new(),
            run: 0,
            last_drop: 0,
            fault: None,
        };
        let limits = LIMIT_SERIES.iter().filter(|_| has_limits);
        let mut series: Vec<String> =
            ["time"].iter().chain(&SERIES).chain(limits).map(|name| (*name).to_owned()).collect();
        gateway.watched_queue().probe(&mut |whose, name, _| recorder.probes.push((whose, name)));
        series.extend(recorder.probes.iter().map(|(whose, name)| format!("{whose}.{name}")));
        recorder.line(&json!({ "series": series, "drops": DROPS }));
        Ok(recorder)
    }

    /// Time of the next [`Recorder::sample`].
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        (!self.finished).then_some(self.next)
    }

    /// True during the measurement: from its begin to its last sample.
    fn is_on(&self) -> bool {
        self.measuring && !self.finished
    }

    /// Records a packet that leaves the transmit queue after `delay`.
    pub fn left(&mut self, delay: Duration) {
        if !self.is_on() {
            return;
        }
        self.delay = (self.delay.0 + delay, self.delay.1 + 1);
        self.delays.add(delay);
        let ns = delay.as_nanos();
        if let Some(last) = self.last_delay.replace(ns) {
            self.jitter = (self.jitter.0 + last.abs_diff(ns), self.jitter.1 + 1);
        }
    }

    /// Records bytes that enter the transmit queue `transit` after they came to the gateway.
    pub fn passed(&mut self, transit: Duration) {
        if self.is_on() {
            self.transit = (self.transit.0 + transit, self.transit.1 + 1);
        }
    }

    /// Records a dropped packet between a client and a server.
    pub fn dropped(
        &mut self,
        pkt: &Packet,
        ends: Option<(SocketAddr, SocketAddr)>,
        reason: DropReason,
        place: GatewayQueue,
        gateway: &Gateway,
        now: Instant,
    ) {
        if !self.is_on() {
            return;
        }
        let arrival = pkt.number.checked_sub(self.first.counters.offered);
        let arrival = arrival.filter(|_| place == gateway.mark_point());
        if let Some(arrival) = arrival {
            if self.run > 0 && arrival == self.last_drop + 1 {
                self.run += 1;
            } else {
                self.close_run();
                self.run = 1;
            }
            self.last_drop = arrival;
        }
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
                &json!({ "drop": [time, arrival, place, reason.name(), pkt.flow, pkt.len, client, server] }),
            );
        }
    }

    fn close_run(&mut self) {
        let run = self.run as usize;
        if run > 0 {
            if self.runs.len() <= run {
                self.runs.resize(run + 1, 0);
            }
            self.runs[run] += 1;
        }
        self.run = 0;
    }

    /// Takes a sample if one is due. The one that begins the measurement only notes the counters.
    pub fn sample(&mut self, now: Instant, gateway: &Gateway, buffers: &PepBuffers) {
        if self.finished || now < self.next {
            return;
        }
        let snapshot = Snapshot::of(gateway, now);
        if !self.measuring {
            (self.measuring, self.first, self.first_at) = (true, snapshot, now);
            (self.last, self.last_at, self.next) = (snapshot, now, self.next + self.interval);
            return;
        }
        let last = std::mem::replace(&mut self.last, snapshot);
        // A late sample covers a longer time.
        let seconds = (now - std::mem::replace(&mut self.last_at, now)).as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
        let offered = snapshot.counters.offered - last.counters.offered;
        let marked = snapshot.counters.marked - last.counters.marked;
        let mean = |(sum, count): (Duration, u64)| sum.as_secs_f64() / count as f64;
        let transmit: &Queue = gateway.transmit_queue();
        let mut values = vec![
            (now - self.begin).as_secs_f64(),
            rate(snapshot.counters.offered_bytes - last.counters.offered_bytes),
            rate(snapshot.arrived_bytes - last.arrived_bytes),
            rate(snapshot.sent_bytes - last.sent_bytes),
            f64::from(gateway.receive_queue().state().packets),
            f64::from(transmit.state().packets),
            transmit.state().bytes as f64,
            mean(std::mem::take(&mut self.delay)),
            if offered == 0 { f64::NAN } else { marked as f64 / offered as f64 },
            buffers.occupied() as f64,
            mean(std::mem::take(&mut self.transit)),
        ];
        if self.has_limits {
            let (limit, closed) = buffers.limits().unwrap_or((f64::NAN, 0));
            values.extend([limit, f64::from(closed)]);
        }
        // After a reload another algorithm may run, without some of the probes.
        let probes = values.len();
        values.resize(probes + self.probes.len(), f64::NAN);
        gateway.watched_queue().probe(&mut |whose, name, value| {
            if let Some(i) = self.probes.iter().position(|known| *known == (whose, name)) {
                values[probes + i] = value;
            }
        });
        self.line(&json!({ "sample": values }));
        self.next += self.interval;
        if self.next <= now {
            // Missed samples are skipped.
            let missed = (now - self.next).as_nanos() / self.interval.as_nanos().max(1) + 1;
            self.next += self.interval.times(missed);
        }
        self.finished = self.next > self.end;
    }

    /// Ends the file with the totals of the measurement and `more`.
    ///
    /// # Errors
    /// The first error in writing the file.
    pub fn finish(mut self, now: Instant, gateway: &Gateway, more: Value) -> io::Result<()> {
        self.close_run();
        // If the time is over, the last sample was taken at its end.
        let (end, at) =
            if self.finished { (self.last, self.last_at) } else { (Snapshot::of(gateway, now), now) };
        let begin = &self.first;
        // The counters run from the first snapshot, which may have been late, to the last.
        let seconds = (at - self.first_at).as_secs_f64();
        let runs: Vec<_> = self
            .runs
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(length, n)| json!([length, n]))
            .collect();
        let mut last = json!({ "summary": {
            "seconds": seconds,
            "offered_packets": end.counters.offered - begin.counters.offered,
            "offered_bytes": end.counters.offered_bytes - begin.counters.offered_bytes,
            "marked_packets": end.counters.marked - begin.counters.marked,
            "aqm_drops": end.aqm_drops - begin.aqm_drops,
            "overflow_drops": end.overflow_drops - begin.overflow_drops,
            "drops_elsewhere": end.elsewhere - begin.elsewhere,
            "sent_packets": end.sent - begin.sent,
            "sent_bytes": end.sent_bytes - begin.sent_bytes,
            "queue_time_average": (end.packet_seconds - begin.packet_seconds) / seconds,
            "queue_delay": self.delays.five(),
            "jitter": self.jitter.0 as f64 * 1e-9 / self.jitter.1 as f64,
            "drop_runs": runs,
        }, "measured": {
            "begin_s": (self.first_at - self.begin).as_secs_f64(),
            "end_s": (at - self.begin).as_secs_f64(),
        }});
        if let (Some(last), Value::Object(more)) = (last.as_object_mut(), more) {
            last.extend(more);
        }
        self.line(&last);
        let flushed = self.out.flush();
        self.fault.map_or(flushed, Err)
    }

    fn line(&mut self, value: &Value) {
        if self.fault.is_none() {
            self.fault = writeln!(self.out, "{value}").err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of a bucket differ by a thousandth at most, and every time is in its bucket.
    #[test]
    fn buckets_have_a_resolution_of_a_thousandth() {
        for ns in [0, 1, 1023, 1024, 1025, 2047, 2048, 1_000_000, 123_456_789, u64::MAX >> 1] {
            let bucket = DelayDistribution::bucket(ns);
            let (least, next) = (DelayDistribution::least(bucket), DelayDistribution::least(bucket + 1));
            assert!(least <= ns && ns < next, "{ns}: {least} {next}");
            assert!((next - least) as f64 <= 1.0 + ns as f64 / 1000.0, "{ns}: {least} {next}");
        }
    }

    /// 1 to 100 ms.
    #[test]
    fn percentiles_are_right() {
        let mut spread = DelayDistribution::new();
        (1..=100).for_each(|ms| spread.add(Duration::from_millis(ms)));
        let expected = [0.0505, 0.050, 0.095, 0.099, 0.100];
        for (found, expected) in spread.five().into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.001, "{found} {expected}");
        }
    }

    /// A gateway with room for one packet, and the setup of a record of one second after a warm-up of one second.
    fn gateway(test: &str) -> (Gateway, Record) {
        use bentpipe_gateway::{Regulator, Setup};
        use bentpipe_queue::{Limit, Marking, QueueConfig, aqm::droptail::DropTail, sched::fifo::Fifo};
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
            processing: Duration::ZERO,
            regulator: Regulator::new(rate, Duration::ZERO),
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
        Recorder::new(record, "gateway", &Clock::start(), Instant::ZERO, gateway, false).expect("a file")
    }

    /// Ends a record and returns its lines.
    fn lines(recorder: Recorder, record: &Record, gateway: &Gateway) -> Vec<Value> {
        recorder.finish(Instant::ZERO + Duration::from_secs(10), gateway, json!({})).expect("written");
        let text = std::fs::read_to_string(&record.file).expect("a record");
        std::fs::remove_file(&record.file).expect("to remove it");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Neither the list of drops nor the totals contain packets dropped before or after the measurement.
    #[test]
    fn drops_outside_the_measurement_are_left_out() {
        let (mut gateway, record) = gateway("drops");
        let buffers = PepBuffers::new(1, bentpipe_gateway::Sharing::PerUser);
        let mut recorder = recorder(&record, &gateway);
        for tenth in 0..=24 {
            let now = Instant::ZERO + Duration::from_millis(100 * tenth + 50);
            gateway.transmit(Packet::new(1000, 0, 0), now);
            while let Some(event) = gateway.poll() {
                if let bentpipe_gateway::Event::Dropped(pkt, reason, place) = event {
                    recorder.dropped(&pkt, None, reason, place, &gateway, now);
                }
            }
            recorder.sample(Instant::ZERO + Duration::from_millis(100 * (tenth + 1)), &gateway, &buffers);
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
            gateway.arrive(Packet::new(1000, 0, 0), now);
            while gateway.poll().is_some() {}
            // Due at 1 s, 1.5 s and 2 s.
            if [1230, 1510, 2170].contains(&ms) {
                recorder.sample(now, &gateway, &buffers);
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
