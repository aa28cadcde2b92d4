//! Traces in the style of packetdrill: the events of a connection, line by line, and the expected segments.
//!
//! ```text
//! 0    connect                 an event, at a time [ms]
//!      > S 0:0 w65535          all segments it sends then, in this order
//! 100  < S. 0:0 a1 w9000       a segment arrives
//!      > . 1:1 a1
//!      = cwnd 10000            expected state
//! ```
//!
//! Segments are flags as tcpdump prints them (`S`, `F`, `R`, `E`, `W`, `.`, and `A` for AE), first and last position of
//! the payload, and words: `aN` ack, `wN` window, `rtx` retransmission, `ect`, `ect1`, `ce`, `sackOK` and `scaleN` on a
//! SYN, `sackN:M,N:M` the blocks in order, `dsackN:M` the D-SACK block before them, and `tsV:E` timestamp and echo
//! [ms]. An expected segment may leave out `aN`, `wN` and `tsV:E`, but no other word. `timer` and `pace` expect that
//! the connection asked to be called at that time; at any other event a timer that is due is an error. `#` begins a
//! comment.

use bentpipe_transport::tcp::{Config, Connection, Ecn, Flags, Sack, Segment, Timestamps};
use bentpipe_units::{Duration, Instant};

use crate::script::{self, Endpoint, ms, number};

/// Values of the RFCs with round numbers: segments of 1000 bytes and immediate ACKs.
pub fn config() -> Config {
    Config {
        mss: 1000,
        receive_window: 65_535,
        delayed_ack: None,
        clock_granularity: Duration::ZERO,
        ..Config::default()
    }
}

/// Runs a trace.
pub fn run(cfg: &Config, trace: &str) -> Connection {
    script::run(cfg, trace)
}

/// Runs a trace after a handshake that took 100 ms from time 0 on, with a peer's window of `window`.
pub fn established(cfg: &Config, window: u32, trace: &str) -> Connection {
    run(cfg, &format!("0 connect\n> S 0:0\n100 < S. 0:0 a1 w{window}\n> . 1:1 a1\n{trace}"))
}

/// Lines of a trace that expect `count` segments of 1000 bytes, each with `words`.
pub fn segments(count: u64, words: &str) -> String {
    (0..count).map(|i| format!("> . {}:{} {words}\n", 1 + i * 1000, 1001 + i * 1000)).collect()
}

impl Endpoint for Connection {
    type Config = Config;
    type Sent = Segment;

    fn open(cfg: &Config, now: Instant, passive: bool) -> Self {
        if passive { Self::listen(cfg) } else { Self::connect(cfg, now) }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn handle_timeout(&mut self, cfg: &Config, now: Instant) {
        self.handle_timeout(cfg, now);
    }

    fn on_event(&mut self, cfg: &Config, now: Instant, event: &[&str]) -> bool {
        match event {
            ["pace"] => assert_eq!(self.paced_until(), Some(now), "pacing"),
            ["write", n] => self.write(number(n)),
            ["read", n] => self.read(number(n)),
            ["window", n] => self.limit_receive_buffer(number(n) as u32),
            ["close"] => self.close(),
            ["abort"] => self.abort(),
            ["<", segment @ ..] => self.on_segment(cfg, now, &parse(segment)),
            _ => return false,
        }
        true
    }

    fn poll(&mut self, cfg: &Config, now: Instant) -> Option<Segment> {
        let segment = self.poll_transmit(cfg, now);
        let is_drained = segment.is_some() && self.is_drained();
        assert!(!is_drained || self.clone().poll_transmit(cfg, now).is_none(), "more after {segment:?}");
        segment
    }

    fn words(segment: &Segment) -> Vec<String> {
        words(segment)
    }

    fn matches(sent: &[String], expected: &[&str]) -> bool {
        expected.iter().all(|word| sent.iter().any(|s| s == word))
            && sent
                .iter()
                .all(|word| !matches!(&word[..1], "r" | "e" | "s" | "d") || expected.contains(&word.as_str()))
    }

    fn state(&self, key: &str) -> Option<String> {
        let stats = self.stats();
        Some(match key {
            "cwnd" => stats.cwnd.to_string(),
            "ssthresh" => stats.ssthresh.map_or("none".to_owned(), |bytes| bytes.to_string()),
            "in_flight" => stats.in_flight.to_string(),
            "timeouts" => stats.timeouts.to_string(),
            "retransmissions" => stats.retransmissions.to_string(),
            "fast_retransmits" => stats.fast_retransmits.to_string(),
            "rto" => ms(Some(Instant::ZERO + stats.rto)),
            "srtt" => ms(stats.srtt.map(|srtt| Instant::ZERO + srtt)),
            "timer" => ms(self.poll_timeout()),
            "pace" => ms(self.paced_until()),
            "readable" => self.readable().to_string(),
            "received" => self.received().to_string(),
            "acked" => self.acked().to_string(),
            "send_queue" => self.send_queue().to_string(),
            "established" => self.is_established().to_string(),
            "peer_closed" => self.peer_closed().to_string(),
            "closed" => self.is_closed().to_string(),
            "time_wait" => self.in_time_wait().to_string(),
            "failed" => self.failed().to_string(),
            _ => return None,
        })
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
    let mut blocks: Vec<_> = segment.sack.wire_blocks(segment.ack).map(|(s, e)| format!("{s}:{e}")).collect();
    if segment.sack.dsack(segment.ack).is_some() {
        words.push(format!("dsack{}", blocks.remove(0)));
    }
    if !blocks.is_empty() {
        words.push(format!("sack{}", blocks.join(",")));
    }
    words
}

/// Parses a segment.
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
        segment.sack = segment.sack.with_dsack(segment.ack, range(text));
    }
    segment
}
