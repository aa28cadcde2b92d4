//! Traces in the style of packetdrill: the events of an association, line by line, and the expected packets.
//!
//! ```text
//! 0    connect                  an event, at a time [ms]
//!      > init w65535            all packets it sends then, in this order
//! 100  < init-ack w9000         a packet arrives
//!      > cookie-echo
//!      = cwnd 4000              expected state
//! ```
//!
//! A packet is its chunks: `init wN`, `init-ack wN`, `cookie-echo`, `cookie-ack`, `shutdown N`, `shutdown-ack`,
//! `shutdown-complete`, `abort`, `stale`; `sack N wN gF-L,F-L dN` (cumulative TSN ack, a_rwnd, gaps as TSNs,
//! duplicates, whose size `bN` is given in a SACK that arrives; an expected window may be left out); `data N:LEN`, with `-` before the TSN unless it is the first
//! fragment of a message, and after the length unless it is the last. `rtx` marks a packet of retransmissions. `timer`
//! expects that the association asked to be called at that time; at any other event a timer that is due is an error.
//! `#` begins a comment.

use bentpipe_transport::sctp::{Association, Config, Control, Cookie, Data, Packet, Sack};
use bentpipe_units::Instant;

use crate::script::{self, Endpoint, ms, number};

/// Values of the RFC with round numbers: DATA chunks of at most 1000 bytes on the wire, 984 of them data, immediate
/// SACKs.
pub fn config() -> Config {
    Config { pmtu: 1032, message_len: 984, a_rwnd: 65_535, sack_every: 1, ..Config::default() }
}

/// Runs a trace.
pub fn run(cfg: &Config, trace: &str) -> Association {
    script::run(cfg, trace)
}

/// Runs a trace after a setup that took two RTTs of 100 ms from time 0 on, with a peer's buffer of `window`.
pub fn established(cfg: &Config, window: u32, trace: &str) -> Association {
    let setup = format!("0 connect\n> init\n100 < init-ack w{window}\n> cookie-echo\n200 < cookie-ack\n");
    run(cfg, &(setup + trace))
}

impl Endpoint for Association {
    type Config = Config;
    type Sent = Packet;

    fn open(cfg: &Config, _now: Instant, passive: bool) -> Self {
        if passive { Self::listen(cfg) } else { Self::connect(cfg) }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn handle_timeout(&mut self, cfg: &Config, now: Instant) {
        self.handle_timeout(cfg, now);
    }

    fn on_event(&mut self, cfg: &Config, now: Instant, event: &[&str]) -> bool {
        match event {
            ["write", n] => self.write(cfg, number(n)),
            ["send", n] => self.send(cfg, number(n) as u32),
            ["read", n] => self.read(number(n)),
            ["close"] => self.close(),
            ["abort"] => self.abort(),
            ["<", chunks @ ..] => self.on_packet(cfg, now, &parse(chunks, now)),
            _ => return false,
        }
        true
    }

    fn poll(&mut self, cfg: &Config, now: Instant) -> Option<Packet> {
        let packet = self.poll_transmit(cfg, now)?;
        assert!(packet.wire_len(cfg) <= cfg.pmtu, "{packet:?} is too long");
        Some(packet)
    }

    fn words(packet: &Packet) -> Vec<String> {
        words(packet)
    }

    fn matches(sent: &[String], expected: &[&str]) -> bool {
        // Windows are compared only if given.
        let plain = sent.iter().filter(|w| !w.starts_with('w') || expected.contains(&w.as_str()));
        plain.map(String::as_str).eq(expected.iter().copied())
    }

    fn state(&self, key: &str) -> Option<String> {
        let stats = self.stats();
        Some(match key {
            "cwnd" => stats.cwnd.to_string(),
            "ssthresh" => stats.ssthresh.map_or("none".to_owned(), |bytes| bytes.to_string()),
            "pba" => stats.partial_bytes_acked.to_string(),
            "rwnd" => stats.rwnd.to_string(),
            "in_flight" => stats.in_flight.to_string(),
            "packets_sent" => stats.packets_sent.to_string(),
            "packets_received" => stats.packets_received.to_string(),
            "timeouts" => stats.timeouts.to_string(),
            "retransmissions" => stats.retransmissions.to_string(),
            "fast_retransmits" => stats.fast_retransmits.to_string(),
            "rto" => ms(Some(Instant::ZERO + stats.rto)),
            "srtt" => ms(stats.srtt.map(|srtt| Instant::ZERO + srtt)),
            "rtt" => ms(stats.rtt.map(|rtt| Instant::ZERO + rtt)),
            "timer" => ms(self.poll_timeout()),
            "readable" => self.readable().to_string(),
            "received" => self.received().to_string(),
            "acked" => self.acked().to_string(),
            "send_queue" => self.send_queue().to_string(),
            "established" => self.is_established().to_string(),
            "peer_closed" => self.peer_closed().to_string(),
            "closed" => self.is_closed().to_string(),
            "failed" => self.failed().to_string(),
            _ => return None,
        })
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
        Control::Shutdown { cum_tsn_ack } => vec!["shutdown".into(), cum_tsn_ack.to_string()],
        Control::ShutdownAck => vec!["shutdown-ack".into()],
        Control::ShutdownComplete => vec!["shutdown-complete".into()],
        Control::Abort => vec!["abort".into()],
    };
    if let Some(sack) = &packet.sack {
        words.extend(["sack".into(), sack.cum_tsn_ack.to_string(), format!("w{}", sack.a_rwnd)]);
        if !sack.blocks.is_empty() {
            let gaps: Vec<String> = sack
                .blocks
                .iter()
                .map(|&(from, to)| {
                    format!("{}-{}", sack.cum_tsn_ack + u64::from(from), sack.cum_tsn_ack + u64::from(to))
                })
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

/// Parses a packet that arrives at `now`. `cookie-echo -N`: its cookie was created N ms before.
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
                packet.control =
                    Control::InitAck { a_rwnd, cookie: Cookie { a_rwnd: 65_535, created_at: now } };
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
                packet.control = Control::CookieEcho { cookie: Cookie { a_rwnd, created_at: made } };
            }
            "cookie-ack" => packet.control = Control::CookieAck,
            "stale" => packet.control = Control::StaleCookie,
            "shutdown" => {
                let cum_tsn_ack = number(words.next().expect("cumulative TSN ack"));
                packet.control = Control::Shutdown { cum_tsn_ack };
            }
            "shutdown-ack" => packet.control = Control::ShutdownAck,
            "shutdown-complete" => packet.control = Control::ShutdownComplete,
            "abort" => packet.control = Control::Abort,
            "sack" => {
                let cum_tsn_ack = number(words.next().expect("cumulative TSN ack"));
                let mut sack = Sack { cum_tsn_ack, a_rwnd: window(&mut words), ..Sack::default() };
                if let Some(gaps) = words.peek().and_then(|word| word.strip_prefix('g')) {
                    words.next();
                    sack.blocks = gaps
                        .split(',')
                        .map(|gap| gap.split_once('-').expect("F-L"))
                        .map(|(from, to)| {
                            ((number(from) - cum_tsn_ack) as u16, (number(to) - cum_tsn_ack) as u16)
                        })
                        .collect();
                }
                if let Some(bytes) = words.peek().and_then(|word| word.strip_prefix('b')) {
                    words.next();
                    sack.duplicate_bytes = number(bytes) as u32;
                }
                packet.sack = Some(sack);
            }
            "data" => assert!(packet.push(chunk(words.next().expect("TSN:LEN"))), "too many chunks"),
            _ => panic!("no such chunk: {word}"),
        }
    }
    packet
}

/// Parses `TSN:LEN`, with `-` before it unless it is the first fragment, and after it unless it is the last.
fn chunk(word: &str) -> Data {
    let (begin, end) = (!word.starts_with('-'), !word.ends_with('-'));
    let (tsn, len) = word.trim_matches('-').split_once(':').expect("TSN:LEN");
    Data { tsn: number(tsn), len: number(len) as u16, begin, end }
}
