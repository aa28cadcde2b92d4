//! SCONE: throughput advice of network elements (draft-ietf-scone-protocol-07).
//!
//! A sender puts a SCONE packet ahead of the packets of some datagrams. Network elements on the way write into it the rate that they
//! advise. The receiving end gives the advice to its application; the transport does not act on it.
//!
//! *Departures:* SCONE packets precede 1-RTT packets with data only, so that a handshake carries none, and every packet leaves room for
//! one, since quinn's longest packet cannot vary. There is no random delay between them: a simulated network element updates all of
//! them.

use std::collections::VecDeque;

use bentpipe_units::{Duration, Instant, Rate};

use crate::connection::CID;

/// Time over which advice applies, and after which it expires (section 5.2).
pub const MONITORING_PERIOD: Duration = Duration::from_secs(67);

/// Signal of a sender: no advice is known (section 5.1).
pub(crate) const UNKNOWN: u8 = 127;

/// Length of a SCONE packet ahead of a short header [bytes].
pub const LEN: usize = 1 + 4 + 1 + CID + 1;

/// The transport parameter `scone_supported`, which is empty (section 6): its number, and how it is written.
pub(crate) const PARAMETER: u64 = 0x219e;
pub(crate) const WRITTEN_PARAMETER: [u8; 3] = [0x61, 0x9e, 0];

/// Last bytes of the datagrams that begin a flow (section 6.1).
const INDICATION: [u8; 2] = [0xc8, 0x13];

/// Versions of SCONE packets without the most significant bit, which belongs to the signal (section 5).
const VERSION: u32 = 0x6f7d_c0fd;

/// Datagrams at the beginning of a connection that carry a SCONE packet, and the time between later ones (section 8.1).
const FIRST: u32 = 3;
const INTERVAL: Duration = Duration::from_secs(20);

/// Returns the rate of a signal (section 5.1); `None` if it is unknown.
#[must_use]
pub fn rate(signal: u8) -> Option<Rate> {
    let rate = |signal: u8| (1e5 * libm::pow(10.0, f64::from(signal) / 20.0)).round();
    (signal < UNKNOWN).then(|| Rate::from_bps(rate(signal) as u64))
}

/// Returns the signal of the highest rate that does not exceed `advised`, at least that of 100 kbit/s.
#[must_use]
pub fn signal(advised: Rate) -> u8 {
    (0..UNKNOWN).rev().find(|signal| rate(*signal).is_some_and(|rate| rate <= advised)).unwrap_or(0)
}

/// Signal of the SCONE packet at the start of a datagram, its destination connection id, and its length [bytes].
fn parse(datagram: &[u8]) -> Option<(u8, &[u8], usize)> {
    let version = u32::from_be_bytes(*datagram.get(1..)?.first_chunk()?);
    if datagram[0] & 0x80 == 0 || version & 0x7fff_ffff != VERSION {
        return None;
    }
    let signal = (datagram[0] & 0x3f) << 1 | (version >> 31) as u8;
    let to = usize::from(*datagram.get(5)?);
    let from = usize::from(*datagram.get(6 + to)?);
    let len = 7 + to + from;
    (datagram.len() >= len).then(|| (signal, &datagram[6..6 + to], len))
}

/// Length of the SCONE packet at the start of a datagram [bytes].
pub(crate) fn len(datagram: &[u8]) -> Option<usize> {
    parse(datagram).map(|(.., len)| len)
}

/// A network element advises a rate by its signal: it writes it into the SCONE packet of a datagram, if there is one and it has no
/// lower signal (section 7.1). Returns true if it did.
pub fn advise(datagram: &mut [u8], signal: impl FnOnce() -> u8) -> bool {
    let Some((present, ..)) = parse(datagram) else { return false };
    let signal = signal();
    if signal < present {
        datagram[0] = datagram[0] & 0xc0 | signal >> 1;
        datagram[1] = datagram[1] & 0x7f | signal << 7;
    }
    signal < present
}

/// Returns true if transport parameters contain `scone_supported`.
///
/// # Errors
/// A parameter that is not empty.
pub(crate) fn is_supported(mut params: &[u8]) -> Result<bool, &'static str> {
    let mut is_supported = false;
    while let (Some(id), Some(len)) = (varint(&mut params), varint(&mut params)) {
        let Some((_, rest)) = params.split_at_checked(len as usize) else { break };
        params = rest;
        if id == PARAMETER {
            if len > 0 {
                return Err("scone_supported is not empty");
            }
            is_supported = true;
        }
    }
    Ok(is_supported)
}

/// An integer of variable length (RFC 9000, section 16).
fn varint(from: &mut &[u8]) -> Option<u64> {
    let first = *from.first()?;
    let (bytes, rest) = from.split_at_checked(1 << (first >> 6))?;
    *from = rest;
    Some(bytes[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

/// One end's part.
#[derive(Debug)]
pub(crate) struct Scone {
    /// The client has received nothing yet: its datagrams begin a flow.
    begins_flow: bool,
    /// The peer reads SCONE packets.
    pub peer_supports: bool,
    /// SCONE packets sent, and the time from which the next is due.
    sent: u32,
    due: Instant,
    /// Signals received in the last monitoring period.
    received: VecDeque<(Instant, u8)>,
}

impl Scone {
    pub fn new(is_client: bool) -> Self {
        Self {
            begins_flow: is_client,
            peer_supports: false,
            sent: 0,
            due: Instant::ZERO,
            received: VecDeque::new(),
        }
    }

    /// Adds what this end sends in a datagram beside its packets.
    pub fn send(&mut self, now: Instant, datagram: &mut Vec<u8>, has_data: bool) {
        if self.begins_flow {
            datagram.extend(INDICATION);
        }
        let has_short_header = datagram.first().is_some_and(|first| first & 0x80 == 0);
        if self.peer_supports
            && has_data
            && has_short_header
            && now >= self.due
            && let Some(destination) = datagram.get(1..=CID)
        {
            let mut packet = Vec::with_capacity(LEN);
            packet.push(0x80 | 0x40 | UNKNOWN >> 1);
            packet.extend((VERSION | u32::from(UNKNOWN) << 31).to_be_bytes());
            packet.push(CID as u8);
            packet.extend(destination);
            packet.push(0);
            datagram.splice(0..0, packet);
            self.sent += 1;
            if self.sent >= FIRST {
                self.due = now + INTERVAL;
            }
        }
    }

    /// Takes the SCONE packet off a datagram; returns its signal if it is known and its connection id is that of the packet
    /// that follows (section 5.3).
    pub fn receive(&mut self, datagram: &mut Vec<u8>) -> Option<u8> {
        self.begins_flow = false;
        let (signal, destination, len) = parse(datagram)?;
        let next = &datagram[len..];
        let is_consistent = if next.first()? & 0x80 == 0 {
            next.get(1..=CID) == Some(destination)
        } else {
            next.get(6..6 + destination.len()) == Some(destination)
        };
        datagram.drain(..len);
        Some(signal).filter(|signal| is_consistent && *signal < UNKNOWN)
    }

    /// Takes note of a signal whose datagram was processed.
    pub fn record(&mut self, now: Instant, signal: u8) {
        self.received.retain(|(at, _)| now.since(*at) < MONITORING_PERIOD);
        self.received.push_back((now, signal));
    }

    /// The lowest rate advised in the last monitoring period (section 5.4).
    pub fn advice(&self, now: Instant) -> Option<Rate> {
        let applicable = self.received.iter().filter(|(at, _)| now.since(*at) < MONITORING_PERIOD);
        applicable.map(|(_, signal)| *signal).min().and_then(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Connection, Host};

    fn bps(bps: u64) -> Rate {
        Rate::from_bps(bps)
    }

    /// The draft's table 1, to its three digits.
    #[test]
    fn signals_have_the_rates_of_the_drafts_table() {
        let table = [
            (0, 100e3),
            (1, 112e3),
            (2, 126e3),
            (3, 141e3),
            (20, 1e6),
            (21, 1.12e6),
            (40, 10e6),
            (41, 11.2e6),
            (60, 100e6),
            (61, 112e6),
            (80, 1e9),
            (81, 1.12e9),
            (100, 10e9),
            (101, 11.2e9),
            (120, 100e9),
            (121, 112e9),
            (126, 199.5e9),
        ];
        for (number, printed) in table {
            let rate = rate(number).unwrap();
            assert!((rate.as_bps() as f64 / printed - 1.0).abs() < 0.005, "{number}: {rate:?}");
            assert_eq!(signal(rate), number);
        }
        assert_eq!(rate(UNKNOWN), None);
    }

    #[test]
    fn a_rate_is_advised_by_the_next_lower_signal() {
        let advised = [bps(1), bps(99_999), bps(999_999), bps(1_000_000), bps(1_122_018), bps(1_122_017)];
        assert_eq!(advised.map(signal), [0, 0, 19, 20, 21, 20]);
        assert_eq!(signal(bps(u64::MAX)), 126);
    }

    /// Bytes by hand: a signal of 127 is 0xff 0xef7dc0fd; 21 is 10 and an upper bit of 1.
    #[test]
    fn a_network_element_lowers_the_signal_and_never_raises_it() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut datagram = [&[0x41][..], &id, &[9; 30]].concat();
        let inner = datagram.clone();
        let mut sender = Scone { peer_supports: true, ..Scone::new(false) };
        sender.send(Instant::ZERO, &mut datagram, true);
        assert_eq!(datagram, [&[0xff, 0xef, 0x7d, 0xc0, 0xfd, 8][..], &id, &[0], &inner].concat());
        assert!(advise(&mut datagram, || 21));
        assert_eq!(datagram, [&[0xca, 0xef, 0x7d, 0xc0, 0xfd, 8][..], &id, &[0], &inner].concat());
        assert!(!advise(&mut datagram, || 40) && !advise(&mut datagram, || 21));
        assert!(advise(&mut datagram, || 20));
        assert_eq!(datagram, [&[0xca, 0x6f, 0x7d, 0xc0, 0xfd, 8][..], &id, &[0], &inner].concat());
        let mut receiver = Scone::new(true);
        assert_eq!(receiver.receive(&mut datagram), Some(20));
        assert_eq!(datagram, inner);
        assert!(!advise(&mut datagram, || 0), "other packets stay as they are");
        assert_eq!(datagram, inner);
    }

    #[test]
    fn a_signal_for_another_connection_id_is_discarded() {
        let mut datagram = [&[0x41][..], &[7; 8], &[9; 30]].concat();
        let inner = datagram.clone();
        let mut sender = Scone { peer_supports: true, ..Scone::new(false) };
        sender.send(Instant::ZERO, &mut datagram, true);
        advise(&mut datagram, || 21);
        datagram[6] = 8;
        assert_eq!(Scone::new(true).receive(&mut datagram), None);
        assert_eq!(datagram, inner);
    }

    #[test]
    fn the_lowest_advice_of_a_monitoring_period_applies_until_it_expires() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let mut scone = Scone::new(true);
        assert_eq!(scone.advice(at(0)), None);
        for (time, signal) in [(0, 40), (10, 20), (30, 60)] {
            scone.record(at(time), signal);
        }
        let advice =
            [0, 66, 76, 77, 96, 97].map(|time| scone.advice(at(time)).map(|rate| rate.as_bps() / 1_000_000));
        assert_eq!(advice, [Some(1), Some(1), Some(1), Some(100), Some(100), None]);
    }

    #[test]
    fn three_datagrams_and_then_one_in_twenty_seconds_carry_a_signal() {
        let mut scone = Scone { peer_supports: true, ..Scone::new(false) };
        let mut carries = |ms: u64, first: u8, has_data: bool| {
            let mut datagram = vec![first; 40];
            scone.send(Instant::ZERO + Duration::from_millis(ms), &mut datagram, has_data);
            datagram.len() - 40
        };
        assert_eq!((carries(0, 0xc0, true), carries(0, 0x40, false)), (0, 0), "handshake, and no data");
        assert_eq!(
            [0, 1, 2, 3, 20_001, 20_002, 20_003].map(|ms| carries(ms, 0x40, true)),
            [15, 15, 15, 0, 0, 15, 0]
        );
    }

    #[test]
    fn a_clients_first_datagrams_end_with_the_indication() {
        let mut client = Scone::new(true);
        let mut datagram = vec![0xc0; 40];
        client.send(Instant::ZERO, &mut datagram, false);
        assert_eq!(datagram[40..], [0xc8, 0x13]);
        client.receive(&mut vec![0x40; 40]);
        client.send(Instant::ZERO, &mut datagram, false);
        assert_eq!(datagram.len(), 42);
    }

    /// Parameters by hand: 0x01 with 2 bytes, 0x219e.
    #[test]
    fn support_is_an_empty_parameter() {
        assert_eq!(is_supported(&[1, 2, 0x61, 0x9e]), Ok(false));
        assert_eq!(is_supported(&[1, 2, 0x61, 0x9e, 0x61, 0x9e, 0]), Ok(true));
        assert!(is_supported(&[0x61, 0x9e, 1, 0]).is_err());
        assert_eq!(is_supported(&[0x61, 0x9e]), Ok(false), "cut off");
    }

    /// The datagrams of a small download between two ends of which either may support SCONE; a network element advises
    /// `down` to the client. Returns the client's and the server's advice, and the server's datagrams.
    fn download(client: bool, server: bool, down: u8) -> ([Option<Rate>; 2], Vec<Vec<u8>>) {
        let host = |scone| Host::new(Config { max_udp_payload: 1215, scone, ..Config::default() });
        let (at_client, at_server) = (host(client), host(server));
        let now = Instant::ZERO;
        let mut client = Connection::connect(&at_client, now, 1, None, None);
        let mut server = Connection::listen(&at_server, 1, None);
        let mut sent_down = Vec::new();
        loop {
            let before = sent_down.len();
            while let Some(sent) = client.poll_transmit(now) {
                assert!(sent.payload.len() <= 1215);
                server.receive(now, sent.ecn, sent.payload);
            }
            while let Some(mut sent) = server.poll_transmit(now) {
                assert!(sent.payload.len() <= 1215);
                advise(&mut sent.payload, || down);
                sent_down.push(sent.payload.clone());
                client.receive(now, sent.ecn, sent.payload);
            }
            if client.is_established() && client.streams() == 0 && client.open().is_some() {
                client.write(0, 100);
            } else if server.readable(0) == 100 {
                server.read(0, 100);
                server.write(0, 6000);
            } else if sent_down.len() == before {
                return ([client.advice(now), server.advice(now)], sent_down);
            }
        }
    }

    /// Signal 33 is 10^1.65 times 100 kbit/s. Data of 6000 bytes takes five full packets and a part of one.
    #[test]
    fn ends_that_support_it_carry_the_advice() {
        let carriers = |sent: &[Vec<u8>]| sent.iter().filter(|datagram| len(datagram).is_some()).count();
        let (advice, sent) = download(true, true, 33);
        assert_eq!(advice.map(|rate| rate.map(|rate| rate.as_bps())), [Some(4_466_836), None]);
        assert_eq!(carriers(&sent), 3);
        assert_eq!(
            sent.iter().filter(|datagram| datagram.len() == 1215).count(),
            3,
            "full packets with a signal"
        );
        for (client, server, carried) in [(true, false, 0), (false, true, 0), (false, false, 0)] {
            let (advice, sent) = download(client, server, 33);
            assert_eq!((advice, carriers(&sent)), ([None, None], carried), "{client} {server}");
        }
        assert_eq!(download(true, true, UNKNOWN).0, [None, None], "nobody advises");
    }

    /// A datagram that is repeated on the way, with other advice: its packet is a duplicate and not processed.
    #[test]
    fn advice_without_a_processed_packet_is_ignored() {
        let host = Host::new(Config { max_udp_payload: 1215, scone: true, ..Config::default() });
        let now = Instant::ZERO;
        let mut client = Connection::connect(&host, now, 1, None, None);
        let mut server = Connection::listen(&host, 1, None);
        for _ in 0..4 {
            while let Some(sent) = client.poll_transmit(now) {
                server.receive(now, sent.ecn, sent.payload);
            }
            while let Some(sent) = server.poll_transmit(now) {
                client.receive(now, sent.ecn, sent.payload);
            }
        }
        assert_eq!(server.open(), Some(0));
        server.write(0, 500);
        let mut sent = server.poll_transmit(now).unwrap();
        assert!(advise(&mut sent.payload, || 40));
        client.receive(now, sent.ecn, sent.payload.clone());
        assert_eq!(client.advice(now), rate(40));
        assert!(advise(&mut sent.payload, || 20));
        client.receive(now, sent.ecn, sent.payload);
        assert_eq!(client.advice(now), rate(40));
    }
}
