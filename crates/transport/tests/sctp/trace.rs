//! Traces in the manner of packetdrill: what happens to an association, line by line, and what it must answer.
//!
//! ```text
//! 0    connect                  an event, at a time [ms]
//!      > init w65535            all it sends then, in this order and no more
//! 100  < init-ack w9000         a packet arrives
//!      > cookie-echo
//!      = cwnd 4000              what its interface must say now
//! ```
//!
//! A packet is its chunks: `init wN`, `init-ack wN`, `cookie-echo`, `cookie-ack`, `shutdown N`, `shutdown-ack`,
//! `shutdown-complete`, `abort`, `stale`; `sack N wN gF-L,F-L dN` (cumulative TSN ack, a_rwnd, gaps as TSNs, duplicates;
//! an expected window may be left out); `data N:LEN`, with `-` before the TSN of a fragment that another comes before,
//! and after the length where another follows. `rtx` marks a packet of retransmissions. `timer` demands that the association asked to be called at that very time; at any other event a
//! timer that is due is an error. `#` begins a comment.

use bentpipe_transport::sctp::{Association, Config, Control, Cookie, Data, Packet, Sack};
use bentpipe_units::{Duration, Instant};

/// RFC values with round numbers: DATA chunks of at most 1000 bytes on the wire, 984 of them data, SACKs at once.
pub fn config() -> Config {
    Config { pmtu: 1032, message: 984, a_rwnd: 65_535, sack_every: 1, ..Config::default() }
}

/// Runs a trace; panics, with the line, where the association differs.
pub fn run(cfg: &Config, trace: &str) -> Association {
    let mut run = Run { cfg, association: None, now: Instant::ZERO, sent: Vec::new(), at: String::new() };
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
    run.association.expect("a trace begins with connect or listen")
}

/// A trace after the set-up, which took 100 ms for each of its two round trips from time 0 on, with a peer's buffer of
/// `window`.
pub fn established(cfg: &Config, window: u32, trace: &str) -> Association {
    let setup = format!("0 connect\n> init\n100 < init-ack w{window}\n> cookie-echo\n200 < cookie-ack\n");
    run(cfg, &(setup + trace))
}

struct Run<'a> {
    cfg: &'a Config,
    association: Option<Association>,
    now: Instant,
    sent: Vec<Packet>,
    at: String,
}

impl Run<'_> {
    fn event(&mut self, at: Instant, event: &[&str]) {
        assert!(at >= self.now, "line {}: back in time", self.at);
        self.now = at;
        let (cfg, now) = (self.cfg, at);
        let association = match event {
            ["connect"] => self.association.insert(Association::connect(cfg)),
            ["listen"] => self.association.insert(Association::listen(cfg)),
            _ => self.association.as_mut().expect("a trace begins with connect or listen"),
        };
        if event == ["timer"] {
            assert_eq!(association.timer(), Some(now), "line {}: the timer", self.at);
            association.on_timer(cfg, now);
        } else {
            let due = association.timer().is_some_and(|timer| timer <= now);
            assert!(!due, "line {}: a timer was due at {:?}", self.at, association.timer());
        }
        match event {
            ["connect" | "listen" | "timer"] => {}
            ["write", n] => association.write(cfg, number(n)),
            ["send", n] => association.send(cfg, number(n) as u32),
            ["read", n] => association.read(number(n)),
            ["close"] => association.close(),
            ["abort"] => association.abort(),
            ["<", chunks @ ..] => association.on_packet(cfg, now, &parse(chunks, now)),
            _ => panic!("line {}: no such event", self.at),
        }
        while let Some(packet) = association.poll_transmit(cfg, now) {
            assert!(packet.wire_len(cfg) <= cfg.pmtu, "line {}: {packet:?} is too long", self.at);
            self.sent.push(packet);
            assert!(self.sent.len() < 10_000, "line {}: it sends without end", self.at);
        }
        self.sent.reverse();
    }

    fn expect(&mut self, expected: &[&str], line: &str) {
        let Some(packet) = self.sent.pop() else {
            panic!("line {line}: nothing more was sent at {}", self.at)
        };
        let sent = words(&packet);
        // Windows are compared where they are given.
        let plain: Vec<&String> =
            sent.iter().filter(|w| !w.starts_with('w') || expected.contains(&w.as_str())).collect();
        assert!(
            plain.iter().map(|w| w.as_str()).eq(expected.iter().copied()),
            "line {line}: sent {}",
            sent.join(" ")
        );
    }

    fn nothing_left(&self) {
        let left: Vec<String> = self.sent.iter().rev().map(|packet| words(packet).join(" ")).collect();
        assert!(left.is_empty(), "after line {}: also sent {left:?}", self.at);
    }

    fn state(&self, key: &str, value: &str, line: &str) {
        let a = self.association.as_ref().expect("a trace begins with connect or listen");
        let stats = a.stats();
        let ms = |at: Instant| format!("{}", at.as_nanos() as f64 / 1e6);
        let found = match key {
            "cwnd" => stats.cwnd.to_string(),
            "ssthresh" => stats.ssthresh.to_string(),
            "pba" => stats.partial_bytes_acked.to_string(),
            "rwnd" => stats.rwnd.to_string(),
            "in_flight" => stats.in_flight.to_string(),
            "timeouts" => stats.timeouts.to_string(),
            "retransmissions" => stats.retransmissions.to_string(),
            "fast_retransmits" => stats.fast_retransmits.to_string(),
            "rto" => ms(Instant::ZERO + stats.rto),
            "srtt" => stats.srtt.map_or_else(|| "none".into(), |srtt| ms(Instant::ZERO + srtt)),
            "timer" => a.timer().map_or_else(|| "none".into(), ms),
            "readable" => a.readable().to_string(),
            "received" => a.received().to_string(),
            "acked" => a.acked().to_string(),
            "unsent_or_unacked" => a.unsent_or_unacked().to_string(),
            "established" => a.is_established().to_string(),
            "peer_closed" => a.peer_closed().to_string(),
            "closed" => a.is_closed().to_string(),
            "failed" => a.failed().to_string(),
            _ => panic!("line {line}: no such state"),
        };
        assert_eq!(found, value, "line {line}, after {}", self.at);
    }
}

fn words(packet: &Packet) -> Vec<String> {
    let mut words: Vec<String> = match packet.control {
        Control::None => vec![],
        Control::Init { a_rwnd } => vec!["init".into(), format!("w{a_rwnd}")],
        Control::InitAck { a_rwnd, .. } => vec!["init-ack".into(), format!("w{a_rwnd}")],
        Control::CookieEcho { .. } => vec!["cookie-echo".into()],
        Control::CookieAck => vec!["cookie-ack".into()],
        Control::StaleCookie => vec!["stale".into()],
        Control::Shutdown { cum } => vec!["shutdown".into(), cum.to_string()],
        Control::ShutdownAck => vec!["shutdown-ack".into()],
        Control::ShutdownComplete => vec!["shutdown-complete".into()],
        Control::Abort => vec!["abort".into()],
    };
    if let Some(sack) = &packet.sack {
        words.extend(["sack".into(), sack.cum.to_string(), format!("w{}", sack.a_rwnd)]);
        if !sack.blocks.is_empty() {
            let gaps: Vec<String> = sack
                .blocks
                .iter()
                .map(|&(from, to)| format!("{}-{}", sack.cum + u64::from(from), sack.cum + u64::from(to)))
                .collect();
            words.push(format!("g{}", gaps.join(",")));
        }
        if sack.duplicates > 0 {
            words.push(format!("d{}", sack.duplicates));
        }
    }
    for data in packet.data() {
        let (begin, end) = (if data.begin { "" } else { "-" }, if data.end { "" } else { "-" });
        words.extend(["data".into(), format!("{begin}{}:{}{end}", data.tsn, data.len)]);
    }
    if packet.retransmission {
        words.push("rtx".into());
    }
    words
}

/// The packet that arrives at `now`; its cookie was made `-N` [ms] before, where `cookie-echo` says so.
fn parse(words: &[&str], now: Instant) -> Packet {
    let mut packet = Packet::default();
    let mut words = words.iter().peekable();
    let window = |words: &mut std::iter::Peekable<std::slice::Iter<'_, &str>>| match words.peek() {
        Some(word) if word.starts_with('w') => number(&words.next().expect("peeked")[1..]) as u32,
        _ => 65_535,
    };
    while let Some(&word) = words.next() {
        match word {
            "init" => packet.control = Control::Init { a_rwnd: window(&mut words) },
            "init-ack" => {
                let a_rwnd = window(&mut words);
                packet.control = Control::InitAck { a_rwnd, cookie: Cookie { a_rwnd: 65_535, made: now } };
            }
            "cookie-echo" => {
                let a_rwnd = window(&mut words);
                let made = match words.peek() {
                    Some(age) if age.starts_with('-') => {
                        let age = number(&words.next().expect("peeked")[1..]);
                        Instant::from_nanos(now.as_nanos() - age * 1_000_000)
                    }
                    _ => now,
                };
                packet.control = Control::CookieEcho { cookie: Cookie { a_rwnd, made } };
            }
            "cookie-ack" => packet.control = Control::CookieAck,
            "stale" => packet.control = Control::StaleCookie,
            "shutdown" => {
                let cum = number(words.next().expect("cumulative TSN ack"));
                packet.control = Control::Shutdown { cum };
            }
            "shutdown-ack" => packet.control = Control::ShutdownAck,
            "shutdown-complete" => packet.control = Control::ShutdownComplete,
            "abort" => packet.control = Control::Abort,
            "sack" => {
                let cum = number(words.next().expect("cumulative TSN ack"));
                let mut sack = Sack { cum, a_rwnd: window(&mut words), ..Sack::default() };
                if let Some(gaps) = words.peek().and_then(|word| word.strip_prefix('g')) {
                    words.next();
                    sack.blocks = gaps
                        .split(',')
                        .map(|gap| gap.split_once('-').expect("F-L"))
                        .map(|(from, to)| ((number(from) - cum) as u16, (number(to) - cum) as u16))
                        .collect();
                }
                packet.sack = Some(sack);
            }
            "data" => assert!(packet.push(chunk(words.next().expect("TSN:LEN"))), "too many chunks"),
            _ => panic!("no such chunk: {word}"),
        }
    }
    packet
}

/// `TSN:LEN`, with `-` before it where a fragment came before, and after it where one follows.
fn chunk(word: &str) -> Data {
    let (begin, end) = (!word.starts_with('-'), !word.ends_with('-'));
    let (tsn, len) = word.trim_matches('-').split_once(':').expect("TSN:LEN");
    Data { tsn: number(tsn), len: number(len) as u16, begin, end }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

fn millis(word: &str) -> Instant {
    let ms: f64 = word.parse().unwrap_or_else(|_| panic!("not a time: {word}"));
    Instant::ZERO + Duration::from_nanos((ms * 1e6).round() as u64)
}
