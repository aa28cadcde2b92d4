//! Traces in the manner of packetdrill: what happens to a connection, line by line, and what it must answer.
//!
//! ```text
//! 0    connect                 an event, at a time [ms]
//!      > S 0:0 w65535          all it sends then, in this order and no more
//! 100  < S. 0:0 a1 w9000       a segment arrives
//!      > . 1:1 a1
//!      = cwnd 10000            what its interface must say now
//! ```
//!
//! Segments are flags as tcpdump writes them (`S`, `F`, `R`, `E`, `W`, `.`, and `A` for AE), first and last position of the
//! payload, and words: `aN` ack, `wN` window, `rtx` retransmission, `ect`, `ect1`, `ce`, `sackOK` and `scaleN` on a
//! SYN, `sackN:M,N:M` the blocks in their order, `dsackN:M` the one before them that says what came twice, and `tsV:E` timestamp and echo [ms]. Of an expected segment
//! `aN`, `wN` and `tsV:E` may be left out; the others may not. `timer` and `pace` demand that the connection asked to
//! be called at that very time; at any other event a timer that is due is an error. `#` begins a comment.

use bentpipe_transport::tcp::{Config, Connection, Ecn, Flags, Sack, Segment, Timestamps};
use bentpipe_units::{Duration, Instant};

/// RFC values with round numbers: segments of 1000 bytes, and ACKs at once.
pub fn config() -> Config {
    Config {
        mss: 1000,
        receive_window: 65_535,
        delayed_ack: None,
        clock_granularity: Duration::ZERO,
        ..Config::default()
    }
}

/// Runs a trace; panics, with the line, where the connection differs.
pub fn run(cfg: &Config, trace: &str) -> Connection {
    let mut run = Run { cfg, connection: None, now: Instant::ZERO, sent: Vec::new(), at: String::new() };
    for (number, line) in trace.lines().enumerate() {
        let text = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.split_first() {
            None => continue,
            Some((&">", expected)) => run.expect(expected, &format!("{}: {text}", number + 1)),
            Some((&"=", [key, value])) => run.state(key, value, &format!("{}: {text}", number + 1)),
            Some((time, event)) => {
                run.nothing_left();
                run.at = format!("{}: {text}", number + 1);
                run.event(millis(time), event);
            }
        }
    }
    run.nothing_left();
    run.connection.expect("a trace begins with connect or listen")
}

/// A trace after the handshake, which took 100 ms from time 0 on, with a peer's window of `window`.
pub fn established(cfg: &Config, window: u32, trace: &str) -> Connection {
    run(cfg, &format!("0 connect\n> S 0:0\n100 < S. 0:0 a1 w{window}\n> . 1:1 a1\n{trace}"))
}

struct Run<'a> {
    cfg: &'a Config,
    connection: Option<Connection>,
    now: Instant,
    sent: Vec<Segment>,
    at: String,
}

impl Run<'_> {
    fn event(&mut self, at: Instant, event: &[&str]) {
        assert!(at >= self.now, "line {}: back in time", self.at);
        self.now = at;
        let (cfg, now) = (self.cfg, at);
        let connection = match event {
            ["connect"] => self.connection.insert(Connection::connect(cfg, now)),
            ["listen"] => self.connection.insert(Connection::listen(cfg)),
            _ => self.connection.as_mut().expect("a trace begins with connect or listen"),
        };
        if event == ["timer"] {
            assert_eq!(connection.timer(), Some(now), "line {}: the timer", self.at);
            connection.on_timer(cfg, now);
        } else {
            let due = connection.timer().is_some_and(|timer| timer <= now);
            assert!(!due, "line {}: a timer was due at {:?}", self.at, connection.timer());
        }
        match event {
            ["connect" | "listen" | "timer"] => {}
            ["pace"] => assert_eq!(connection.pace(), Some(now), "line {}: pacing", self.at),
            ["write", n] => connection.write(number(n)),
            ["read", n] => connection.read(number(n)),
            ["window", n] => connection.set_window(number(n) as u32),
            ["close"] => connection.close(),
            ["abort"] => connection.abort(),
            ["<", segment @ ..] => connection.on_segment(cfg, now, &parse(segment)),
            _ => panic!("line {}: no such event", self.at),
        }
        while let Some(segment) = connection.poll_transmit(cfg, now) {
            self.sent.push(segment);
            assert!(self.sent.len() < 10_000, "line {}: it sends without end", self.at);
        }
        self.sent.reverse();
    }

    fn expect(&mut self, expected: &[&str], line: &str) {
        let Some(segment) = self.sent.pop() else {
            panic!("line {line}: nothing more was sent at {}", self.at)
        };
        let sent = words(&segment);
        let matches = expected.iter().all(|word| sent.iter().any(|s| s == word))
            && sent.iter().all(|word| {
                !matches!(&word[..1], "r" | "e" | "s" | "d") || expected.contains(&word.as_str())
            });
        assert!(matches, "line {line}: sent {}", sent.join(" "));
    }

    fn nothing_left(&self) {
        let left: Vec<String> = self.sent.iter().rev().map(|segment| words(segment).join(" ")).collect();
        assert!(left.is_empty(), "after line {}: also sent {left:?}", self.at);
    }

    fn state(&self, key: &str, value: &str, line: &str) {
        let c = self.connection.as_ref().expect("a trace begins with connect or listen");
        let stats = c.stats();
        let ms = |at: Instant| format!("{}", at.as_nanos() as f64 / 1e6);
        let found = match key {
            "cwnd" => stats.cwnd.to_string(),
            "ssthresh" => stats.ssthresh.to_string(),
            "in_flight" => stats.in_flight.to_string(),
            "timeouts" => stats.timeouts.to_string(),
            "retransmissions" => stats.retransmissions.to_string(),
            "fast_retransmits" => stats.fast_retransmits.to_string(),
            "rto" => ms(Instant::ZERO + stats.rto),
            "srtt" => stats.srtt.map_or_else(|| "none".into(), |srtt| ms(Instant::ZERO + srtt)),
            "timer" => c.timer().map_or_else(|| "none".into(), ms),
            "pace" => c.pace().map_or_else(|| "none".into(), ms),
            "readable" => c.readable().to_string(),
            "received" => c.received().to_string(),
            "acked" => c.acked().to_string(),
            "unsent_or_unacked" => c.unsent_or_unacked().to_string(),
            "established" => c.is_established().to_string(),
            "peer_closed" => c.peer_closed().to_string(),
            "closed" => c.is_closed().to_string(),
            "time_wait" => c.in_time_wait().to_string(),
            "failed" => c.failed().to_string(),
            _ => panic!("line {line}: no such state"),
        };
        assert_eq!(found, value, "line {line}, after {}", self.at);
    }
}

fn words(segment: &Segment) -> Vec<String> {
    let mut words = vec![
        format!("{:?}", segment.flags),
        format!("{}:{}", segment.seq, segment.seq + u64::from(segment.len)),
        format!("a{}", segment.ack),
        format!("w{}", segment.window),
    ];
    if segment.retransmission {
        words.push("rtx".into());
    }
    match segment.ecn {
        Ecn::NotEct => {}
        Ecn::Ect1 => words.push("ect1".into()),
        Ecn::Ect0 => words.push("ect".into()),
        Ecn::Ce => words.push("ce".into()),
    }
    if segment.sack.is_permitted() {
        words.push("sackOK".into());
    }
    if let Some(shift) = segment.sack.scale() {
        words.push(format!("scale{shift}"));
    }
    if segment.timestamps.is_some() {
        let Timestamps { value, echo } = segment.timestamps;
        words.push(format!("ts{}:{}", f64::from(value) / 1e3, f64::from(echo) / 1e3));
    }
    let mut blocks: Vec<_> = segment.sack.reported(segment.ack).map(|(s, e)| format!("{s}:{e}")).collect();
    if segment.sack.duplicate(segment.ack).is_some() {
        words.push(format!("dsack{}", blocks.remove(0)));
    }
    if !blocks.is_empty() {
        words.push(format!("sack{}", blocks.join(",")));
    }
    words
}

/// A segment from its words.
pub fn parse(words: &[&str]) -> Segment {
    let [letters, range, rest @ ..] = words else { panic!("a segment has flags and a range") };
    let mut flags = Flags::NONE;
    for letter in letters.chars().filter(|&c| c != '-') {
        flags |= match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            'A' => Flags::AE,
            '.' => Flags::ACK,
            _ => panic!("no such flag: {letter}"),
        };
    }
    let (seq, end) = range.split_once(':').expect("a range has a colon");
    let range = |text: &str| {
        let (start, end) = text.split_once(':').expect("a range has a colon");
        (number(start), number(end))
    };
    let blocks = |text: &str| text.split(',').map(range).collect::<Vec<_>>();
    let sack = rest.iter().find_map(|word| word.strip_prefix("sack"));
    let scale = rest.iter().find_map(|word| word.strip_prefix("scale")).map(|shift| number(shift) as u8);
    let micros = |text: &str| (text.parse::<f64>().expect("a time") * 1e3).round() as u32;
    let timestamps = rest.iter().find_map(|word| word.strip_prefix("ts")?.split_once(':'));
    let find = |letter: char| rest.iter().find_map(|word| word.strip_prefix(letter)).map_or(0, number);
    let mut segment = Segment {
        seq: number(seq),
        ack: find('a'),
        len: (number(end) - number(seq)) as u32,
        window: find('w') as u32,
        cwnd: 0,
        sack: match sack {
            None => Sack::NONE,
            Some("OK") => Sack::PERMITTED,
            Some(text) => Sack::new(find('a'), &blocks(text)),
        }
        .with_scale(scale),
        timestamps: timestamps.map_or(Timestamps::NONE, |(value, echo)| Timestamps {
            value: micros(value),
            echo: micros(echo),
        }),
        flags,
        retransmission: false,
        ecn: match () {
            () if rest.contains(&"ce") => Ecn::Ce,
            () if rest.contains(&"ect") => Ecn::Ect0,
            () if rest.contains(&"ect1") => Ecn::Ect1,
            () => Ecn::NotEct,
        },
    };
    if let Some(text) = rest.iter().find_map(|word| word.strip_prefix("dsack")) {
        segment.sack = segment.sack.with_duplicate(segment.ack, range(text));
    }
    segment
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

fn millis(word: &str) -> Instant {
    let ms: f64 = word.parse().unwrap_or_else(|_| panic!("no time: {word}"));
    Instant::from_nanos((ms * 1e6).round() as u64)
}
