//! Comparison with Linux's TCP: `python/tests/kernel/windows.py` made the table, with the kernel's sender, and an application that
//! writes now and then.

use bentpipe_transport::tcp::{Algorithm, Config, Connection, Estimator, Segment};
use bentpipe_units::{Duration, Instant, Rate};

const TABLE: &str = include_str!("linux/windows.csv");
const RATE: Rate = Rate::from_bps(10_000_000);
const MSS: u64 = 1448;

/// A row of the table.
#[derive(Clone, Debug)]
struct Row {
    case: &'static str,
    rtt: Duration,
    lost: Option<u64>,
    /// Time of a write after the handshake, and its size [segments].
    at: Duration,
    size: u64,
    /// Least and greatest of the kernel's runs before it [segments]; ssthresh is empty without one.
    cwnd: (u64, u64),
    ssthresh: Option<(u64, u64)>,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let (case, numbers) = line.split_once(',').unwrap();
        let numbers: Vec<_> = numbers.split(',').map(|text| text.parse::<u64>().ok()).collect();
        let [rtt, lost, at, size, cwnd_min, cwnd_max, ssthresh_min, ssthresh_max] =
            numbers.try_into().unwrap();
        Row {
            case,
            rtt: Duration::from_millis(rtt.unwrap()),
            lost,
            at: Duration::from_millis(at.unwrap()),
            size: size.unwrap(),
            cwnd: cwnd_min.zip(cwnd_max).unwrap(),
            ssthresh: ssthresh_min.zip(ssthresh_max),
        }
    };
    TABLE.lines().map(row).collect()
}

/// Preset `linux`.
fn config() -> Config {
    Config {
        mss: MSS as u32,
        header_len: 40,
        option_bytes: true,
        timestamps: true,
        window_scale: Some(7),
        initial_window: 10,
        initial_receive_window: Some(65_160),
        receive_window: 6_000_000,
        min_rto: Duration::from_millis(200),
        estimator: Estimator::Linux,
        max_rto: Duration::from_secs(120),
        clock_granularity: Duration::from_micros(1),
        limited_transmit: true,
        sack: true,
        rack: true,
        eifel: true,
        prr: true,
        abc: true,
        delayed_ack: Some(Duration::from_millis(40)),
        algorithm: Algorithm::CubicLinux,
        ..Config::default()
    }
}

/// A link that delivers in order; its queue has no limit.
#[derive(Default)]
struct Link {
    packets: std::collections::VecDeque<(Instant, Segment)>,
    free_at: Instant,
}

impl Link {
    fn send(&mut self, cfg: &Config, now: Instant, segment: Segment, delay: Duration, is_lost: bool) {
        let wire = u64::from(cfg.wire_len(&segment));
        self.free_at = self.free_at.max(now) + RATE.time_to_send(wire);
        if !is_lost {
            self.packets.push_back((self.free_at + delay, segment));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(at, _)| *at)
    }

    fn take(&mut self, now: Instant) -> Option<Segment> {
        let is_due = self.next().is_some_and(|at| at <= now);
        is_due.then(|| self.packets.pop_front()).flatten().map(|(_, segment)| segment)
    }
}

/// Window and ssthresh before each write [segments].
fn simulated(writes: &[Row]) -> Vec<(u64, Option<u64>)> {
    let cfg = config();
    let (rtt, lost) = (writes[0].rtt, writes[0].lost);
    let delay = Duration::from_nanos(rtt.as_nanos() / 2);
    let mut ends = [Connection::connect(&cfg, Instant::ZERO), Connection::listen(&cfg)];
    let mut links = [Link::default(), Link::default()];
    let (mut now, mut sent, mut begun) = (Instant::ZERO, 0, None::<Instant>);
    let mut found = Vec::new();
    while found.len() < writes.len() {
        for (i, end) in ends.iter_mut().enumerate() {
            while let Some(segment) = links[1 - i].take(now) {
                end.on_segment(&cfg, now, &segment);
            }
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(&cfg, now);
            }
            end.read(end.readable());
        }
        if ends[0].is_established() && begun.is_none() {
            begun = Some(now);
        }
        let next = &writes[found.len()];
        let due = begun.map(|begun| begun + next.at);
        if due.is_some_and(|due| due <= now) {
            let stats = ends[0].stats();
            found.push((stats.cwnd / MSS, stats.ssthresh.map(|bytes| bytes / MSS)));
            ends[0].write(next.size * MSS);
        }
        for (i, end) in ends.iter_mut().enumerate() {
            while let Some(segment) = end.poll_transmit(&cfg, now) {
                sent += u64::from(i == 0 && segment.len > 0);
                let is_lost = i == 0 && segment.len > 0 && Some(sent) == lost;
                links[i].send(&cfg, now, segment, delay, is_lost);
            }
        }
        let due = begun.and_then(|begun| Some(begun + writes.get(found.len())?.at));
        let times =
            links.iter().map(Link::next).chain(ends.iter().map(Connection::poll_timeout)).chain([due]);
        now = times.flatten().min().expect("nothing to wait for").max(now);
    }
    found
}

/// At most a segment outside the range of the kernel's runs, in which times differ by up to 3 ms, and all but one inside it:
/// docs/kernel.md says so.
#[test]
fn windows_of_an_application_that_pauses_are_those_of_linux() {
    let off =
        |value: u64, (least, most): (u64, u64)| least.saturating_sub(value).max(value.saturating_sub(most));
    let (mut writes, mut outside) = (0, 0);
    for case in rows().chunk_by(|a, b| a.case == b.case) {
        for (row, (cwnd, ssthresh)) in case.iter().zip(simulated(case)) {
            assert_eq!(row.ssthresh.is_some(), ssthresh.is_some(), "{row:?}");
            let beside = ssthresh.zip(row.ssthresh).map_or(0, |(value, range)| off(value, range));
            let off = beside.max(off(cwnd, row.cwnd));
            assert!(off <= 1, "{cwnd} and {ssthresh:?} segments, but {row:?}");
            (writes, outside) = (writes + 1, outside + off);
        }
    }
    assert_eq!((writes, outside), (243, 1));
}
