//! Bytes of simulated packets: IPv4 (RFC 791) with TCP (RFC 9293), SCTP (RFC 9260) or UDP (RFC 768), and a payload of
//! zeros.
//!
//! - Addresses: host n has 10.0.0.1 + n, gateway n 172.16.0.1 + 2 n, and its terminal the next one. A PEP that splits a
//!   connection is transparent: it uses the hosts' addresses on both sides.
//! - Ports: the end that opens a connection has [`FIRST_PORT`] + (flow mod 16384), the other [`SERVICE_PORT`] + the index
//!   of the traffic in the scenario.
//! - Sequence numbers: the initial ones are drawn from flow, leg and direction. The simulator's 64-bit positions, which
//!   start at 0, are added and wrap.
//! - Windows are scaled (RFC 7323 section 2), by the smallest sufficient shift if the transport sets none.
//! - Checksums cover the whole packet with its payload of zeros.
//! - Gateway and terminal exchange UDP between [`SPACE_PORT`]s, for uploads between the ports after it, with a line of text
//!   at the start of the payload.
//!
//! The length of a packet is the simulator's, which counts a fixed header length for each TCP segment, or that of the
//! headers if options make them longer.

use std::io::Write as _;

use bentpipe_packet::build::ipv4_header;
use bentpipe_sim::{Ends, Observation, Packet, PepEnds};
use bentpipe_transport::{pep_link, tcp};
use bentpipe_units::Rng;
use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, UdpHeader};

use crate::sctp;

/// First port of the ends that open connections.
pub const FIRST_PORT: u16 = 49_152;
/// Port of the first traffic's servers.
pub const SERVICE_PORT: u16 = 42_000;
/// Port of gateways and terminals for the PEP link.
pub const SPACE_PORT: u16 = 41_000;

/// Maximum length of an IPv4 packet [bytes].
const MAX_PACKET: usize = u16::MAX as usize;

/// Properties of the bytes written.
pub struct Synthesized {
    /// Length up to the payload of zeros [bytes].
    pub headers: usize,
    /// True for a TCP segment or an SCTP packet with data that was sent before, in whole or in part.
    pub retransmission: bool,
}

/// Writes a packet's bytes to `buffer`, which is cleared first.
pub fn synthesize(observation: &Observation, buffer: &mut Vec<u8>) -> Synthesized {
    buffer.clear();
    let wire = observation.len as usize;
    let headers = match &observation.packet {
        Packet::Tcp { ends, segment, mss, receive_window, window_scale } => {
            let shift = window_scale.unwrap_or_else(|| window_shift(*receive_window));
            tcp(ends, segment, *mss, shift, buffer)
        }
        Packet::Sctp { ends, packet } => {
            let (from, to) = (endpoint(ends, ends.with_data), endpoint(ends, !ends.with_data));
            // The simulator may count another length for the IP header.
            let len = wire.saturating_sub(Ipv4Header::MIN_LEN);
            let mut contents = Vec::new();
            let numbers = |of_sender, port| sctp::Numbers { initial: initial(ends, of_sender), port };
            let (from_end, to_end) = (numbers(ends.with_data, from.1), numbers(!ends.with_data, to.1));
            let headers = sctp::write(packet, &from_end, &to_end, len, &mut contents);
            ip(from, to, IpNumber::SCTP, IpEcn::NotEct, contents.len(), buffer);
            buffer.extend(contents);
            Ipv4Header::MIN_LEN + headers
        }
        Packet::Quic { ends, ecn, payload, .. } => {
            let (from, to) = (endpoint(ends, ends.with_data), endpoint(ends, !ends.with_data));
            udp(from, to, wire, ip_ecn(*ecn), |contents| contents.extend_from_slice(payload), buffer)
        }
        Packet::Datagram { ends } => {
            let (from, to) = (endpoint(ends, ends.with_data), endpoint(ends, !ends.with_data));
            udp(from, to, wire, IpEcn::NotEct, |_| (), buffer)
        }
        Packet::PepData { ends, data } => {
            let (from, to) = pep_ends(*ends);
            udp(from, to, wire, IpEcn::NotEct, |text| describe_data(data, text), buffer)
        }
        Packet::PepAck { ends, ack } => {
            let (from, to) = pep_ends(*ends);
            udp(from, to, wire, IpEcn::NotEct, |text| describe_ack(ack, text), buffer)
        }
    };
    // The simulator may count link-layer framing.
    buffer.resize(buffer.len().max(wire), 0);
    let retransmission = match &observation.packet {
        Packet::Tcp { segment, .. } => segment.retransmission,
        Packet::Sctp { packet, .. } => packet.retransmission,
        Packet::Quic { is_repeated, .. } => *is_repeated,
        _ => false,
    };
    Synthesized { headers, retransmission }
}

// ----- addresses -------------------------------------------------------------------------------------------------------

pub type Endpoint = ([u8; 4], u16);

/// Address of the host with this index among all hosts.
pub fn host_address(number: u32) -> [u8; 4] {
    (0x0a00_0000 | (number.wrapping_add(1) & 0x00ff_ffff)).to_be_bytes()
}

/// Address of a host that has changed it this many times, at least once: in 100.64.0.0/10, as those that a provider shares among
/// its users (RFC 6598).
fn changed_address(number: u32, changes: u32) -> [u8; 4] {
    (0x6440_0000 | (number.wrapping_add(changes << 16) & 0x003f_ffff)).to_be_bytes()
}

/// Address of a terminal, numbered among all, or of its gateway on the link to it.
pub fn pep_address(terminal: u32, is_terminal: bool) -> [u8; 4] {
    let number = terminal.wrapping_mul(2).wrapping_add(1 + u32::from(is_terminal));
    (0xac10_0000 | (number & 0x000f_ffff)).to_be_bytes()
}

fn pep_ends(ends: PepEnds) -> (Endpoint, Endpoint) {
    let port = SPACE_PORT + u16::from(ends.of_uploads);
    let end = |is_terminal| (pep_address(ends.terminal, is_terminal), port);
    (end(!ends.to_terminal), end(ends.to_terminal))
}

/// Address and port of the end that sends a flow's data, or of the other end.
pub fn endpoint(ends: &Ends, sends_data: bool) -> Endpoint {
    let host = if sends_data { ends.sender } else { ends.receiver };
    let is_client = sends_data == ends.sender_opened;
    let port = if is_client {
        FIRST_PORT + (ends.flow % (1 << 14)) as u16
    } else {
        SERVICE_PORT.wrapping_add(ends.traffic as u16)
    };
    let address =
        if is_client && ends.address > 0 { changed_address(host, ends.address) } else { host_address(host) };
    (address, port)
}

// ----- IP and transport -----------------------------------------------------------------------------------------

/// Writes an IPv4 header for `len` bytes of payload.
fn ip(
    from: Endpoint,
    to: Endpoint,
    protocol: IpNumber,
    ecn: IpEcn,
    len: usize,
    buffer: &mut Vec<u8>,
) -> Ipv4Header {
    let len = len.min(MAX_PACKET - Ipv4Header::MIN_LEN) as u16;
    let mut header = Ipv4Header { ecn, ..ipv4_header(from.0, to.0, protocol, len) };
    header.header_checksum = header.calc_header_checksum();
    buffer.extend_from_slice(&header.to_bytes());
    header
}

fn ip_ecn(ecn: tcp::Ecn) -> IpEcn {
    match ecn {
        tcp::Ecn::NotEct => IpEcn::NotEct,
        tcp::Ecn::Ect1 => IpEcn::Ect1,
        tcp::Ecn::Ect0 => IpEcn::Ect0,
        tcp::Ecn::Ce => IpEcn::CongestionExperienced,
    }
}

/// Writes a TCP segment; returns the length of its headers.
fn tcp(ends: &Ends, segment: &tcp::Segment, mss: u32, shift: u8, buffer: &mut Vec<u8>) -> usize {
    use tcp::Flags;
    let (from, to) = (endpoint(ends, ends.with_data), endpoint(ends, !ends.with_data));
    let (flags, syn) = (segment.flags, segment.flags.has(Flags::SYN));
    let wrap = |position: u64, of: bool| initial(ends, of).wrapping_add(position as u32);

    // RFC 7323 section 2.2: the window of a SYN is not scaled.
    let window = if syn { segment.window } else { segment.window >> shift };
    let mut header = TcpHeader::new(from.1, to.1, wrap(segment.seq, ends.with_data), clipped(window));
    (header.syn, header.fin, header.rst) = (syn, flags.has(Flags::FIN), flags.has(Flags::RST));
    (header.ack, header.ece, header.cwr) =
        (flags.has(Flags::ACK), flags.has(Flags::ECE), flags.has(Flags::CWR));
    header.ns = flags.has(Flags::AE);
    if header.ack {
        header.acknowledgment_number = wrap(segment.ack, !ends.with_data);
    }
    let options = options(segment, mss, shift, |position| wrap(position, !ends.with_data));
    // Always fits: timestamps and three SACK blocks take exactly 40 bytes.
    let _ = header.set_options(&options);

    let headers = Ipv4Header::MIN_LEN + header.header_len();
    let payload = (segment.len as usize).min(MAX_PACKET - headers);
    let ip = ip(from, to, IpNumber::TCP, ip_ecn(segment.ecn), header.header_len() + payload, buffer);
    buffer.resize(headers + payload, 0);
    header.checksum = header.calc_checksum_ipv4(&ip, &buffer[headers..]).unwrap_or(0);
    buffer[Ipv4Header::MIN_LEN..headers].copy_from_slice(&header.to_bytes());
    headers
}

/// Options of a segment, padded to 32-bit words as Linux does.
fn options(segment: &tcp::Segment, mss: u32, shift: u8, wrap: impl Fn(u64) -> u32) -> Vec<TcpOptionElement> {
    use TcpOptionElement as Opt;
    let mut options = Vec::new();
    let syn = segment.flags.has(tcp::Flags::SYN);
    if syn {
        options.push(Opt::MaximumSegmentSize(clipped(mss)));
    }
    let stamps = segment.timestamps;
    match (syn && segment.sack.is_permitted(), stamps.is_some()) {
        (true, true) => options.push(Opt::SelectiveAcknowledgementPermitted),
        (true, false) => options.extend([Opt::Noop, Opt::Noop, Opt::SelectiveAcknowledgementPermitted]),
        (false, true) => options.extend([Opt::Noop, Opt::Noop]),
        (false, false) => {}
    }
    if stamps.is_some() {
        options.push(Opt::Timestamp(stamps.value, stamps.echo));
    }
    if syn {
        options.extend([Opt::Noop, Opt::WindowScale(shift)]);
        return options;
    }
    let mut blocks = segment.sack.wire_blocks(segment.ack).map(|(start, end)| (wrap(start), wrap(end)));
    if let Some(first) = blocks.next() {
        let more = [blocks.next(), blocks.next(), blocks.next()];
        options.extend([Opt::Noop, Opt::Noop, Opt::SelectiveAcknowledgement(first, more)]);
    }
    options
}

/// Writes a UDP packet of `wire` bytes, or more if necessary for the text that `text` writes. Returns the length of
/// headers and text.
fn udp(
    from: Endpoint,
    to: Endpoint,
    wire: usize,
    ecn: IpEcn,
    text: impl FnOnce(&mut Vec<u8>),
    buffer: &mut Vec<u8>,
) -> usize {
    const HEADERS: usize = Ipv4Header::MIN_LEN + UdpHeader::LEN;
    buffer.resize(HEADERS, 0);
    text(buffer);
    buffer.truncate(MAX_PACKET);
    let kept = buffer.len();
    buffer.resize(kept.max(wire.min(MAX_PACKET)), 0);
    let payload = buffer.split_off(HEADERS);
    buffer.clear();
    let ip = ip(from, to, IpNumber::UDP, ecn, UdpHeader::LEN + payload.len(), buffer);
    let header = UdpHeader::with_ipv4_checksum(from.1, to.1, &ip, &payload);
    buffer.extend(header.map(|header| header.to_bytes()).unwrap_or_default());
    buffer.extend(payload);
    kept
}

/// `DATA 17 stream 3.0 bytes 1400+1400 below 12 fin`: packet number, stream and its generation, offset and length of the
/// payload, number below which all packets are acknowledged or lost, flags.
fn describe_data(data: &pep_link::Data, text: &mut Vec<u8>) {
    let _ = write!(
        text,
        "DATA {} stream {}.{} bytes {}+{} below {}",
        data.number, data.stream, data.generation, data.offset, data.len, data.least_unacked
    );
    let flags = [
        (data.open, " open"),
        (data.fin, " fin"),
        (data.reset, " reset"),
        (data.retransmission, " retransmission"),
    ];
    flags.iter().filter(|(set, _)| *set).for_each(|(_, word)| text.extend_from_slice(word.as_bytes()));
    text.push(b'\n');
}

/// `ACK 12-17 3-9 after 25000000 ns window 3.0 65000`: received packet numbers, time since the largest arrived, flow
/// control limits of streams.
fn describe_ack(ack: &pep_link::Ack, text: &mut Vec<u8>) {
    text.extend_from_slice(b"ACK");
    for range in ack.ranges() {
        let _ = write!(text, " {}-{}", range.first, range.last);
    }
    let _ = write!(text, " after {} ns", ack.delay.as_nanos());
    for window in ack.windows() {
        let _ = write!(text, " window {}.{} {}", window.stream, window.generation, window.limit);
    }
    text.push(b'\n');
}

/// The initial sequence number of one direction of a connection.
fn initial(ends: &Ends, of_sender: bool) -> u32 {
    let connection = 2 * u64::from(ends.leg) + u64::from(of_sender);
    Rng::stream(u64::from(ends.flow), "capture", connection, "initial sequence number").bits() as u32
}

/// Smallest window scale with which windows up to `largest` fit into 16 bits, at most 14 (RFC 7323 section 2.3).
fn window_shift(largest: u32) -> u8 {
    (32 - largest.leading_zeros()).saturating_sub(16).min(14) as u8
}

fn clipped(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_packet::build::checksum;
    use bentpipe_units::Instant;
    use tcp::{Flags, Sack, Segment};

    fn observation(len: u32, packet: Packet) -> Observation {
        Observation { time: Instant::ZERO, interface: 0, len, lost: false, packet }
    }

    /// True if the checksums of an IPv4 packet and of its TCP or UDP header are correct: the checksum over a range that
    /// includes a correct checksum is 0.
    fn checksums_are_valid(packet: &[u8]) -> bool {
        let length = (packet.len() - 20) as u16;
        let transport = [&packet[12..20], &[0, packet[9]], &length.to_be_bytes(), &packet[20..]];
        checksum(&[&packet[..20]]) == 0 && checksum(&transport) == 0
    }

    const ENDS: Ends = Ends {
        flow: 16384 + 5,
        traffic: 1,
        leg: 0,
        sender: 255,
        receiver: 2,
        with_data: false,
        sender_opened: true,
        address: 0,
    };

    fn segment(seq: u64, ack: u64, len: u32, flags: Flags) -> Segment {
        Segment {
            seq,
            ack,
            len,
            window: 1 << 20,
            cwnd: 0,
            sack: Sack::NONE,
            timestamps: tcp::Timestamps::NONE,
            flags,
            retransmission: false,
            ecn: tcp::Ecn::NotEct,
        }
    }

    fn synthesize_tcp(ends: Ends, segment: Segment, len: u32) -> (Vec<u8>, Synthesized) {
        let mut buffer = vec![1; 7];
        let packet = Packet::Tcp { ends, segment, mss: 1000, receive_window: 1 << 20, window_scale: None };
        let synthesized = synthesize(&observation(len, packet), &mut buffer);
        (buffer, synthesized)
    }

    /// An ACK from the receiver with two SACK blocks, CE and ECE: every field at its position in the headers.
    #[test]
    fn every_field_of_an_ack_is_at_its_position() {
        let far = 5_000_000_000;
        let mut ack = segment(1, far, 0, Flags::ACK | Flags::ECE);
        ack.sack = Sack::new(far, &[(far + 3000, far + 4000), (far + 1000, far + 2000)]);
        ack.ecn = tcp::Ecn::Ce;
        let (packet, synthesized) = synthesize_tcp(ENDS, ack, 40);
        let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_be_bytes(packet[at..at + 2].try_into().unwrap());
        // 20 of IP, 20 of TCP, and 2 + 2 + 16 of options, although the simulator counts 40 in total.
        assert_eq!((packet.len(), half(2), synthesized.headers), (60, 60, 60));
        assert_eq!((packet[0], packet[1], packet[8], packet[9]), (0x45, 3, 64, 6));
        assert_eq!((&packet[12..16], &packet[16..20]), (&[10, 0, 0, 3][..], &[10, 0, 1, 0][..]));
        assert_eq!((half(20), half(22)), (42_001, 49_157));
        assert_eq!(word(24), initial(&ENDS, false).wrapping_add(1));
        let isn = initial(&ENDS, true);
        assert_eq!(word(28), isn.wrapping_add((far % (1 << 32)) as u32));
        assert_eq!((packet[32], packet[33]), (10 << 4, 0x50));
        // 2^20 needs 21 bits, so it is shifted by 5.
        assert_eq!(half(34), 1 << 15);
        assert_eq!(&packet[40..44], &[1, 1, 5, 18]);
        let blocks = [44, 48, 52, 56].map(|at| word(at).wrapping_sub(word(28)));
        assert_eq!(blocks, [3000, 4000, 1000, 2000]);
        assert!(checksums_are_valid(&packet));
    }

    #[test]
    fn a_syn_has_the_options_of_the_connection() {
        let ends = Ends { with_data: true, ..ENDS };
        let mut syn = segment(0, 0, 0, Flags::SYN | Flags::ECE | Flags::CWR);
        syn.sack = Sack::PERMITTED;
        let (packet, _) = synthesize_tcp(ends, syn, 40);
        assert_eq!(u32::from_be_bytes(packet[24..28].try_into().unwrap()), initial(&ends, true));
        assert_eq!(&packet[28..32], &[0; 4]);
        assert_eq!((packet[33], &packet[34..36]), (0xc2, &[0xff, 0xff][..]));
        assert_eq!(&packet[40..52], &[2, 4, 3, 232, 1, 1, 4, 2, 1, 3, 3, 5]);
        assert!(checksums_are_valid(&packet));
    }

    /// Options are as long as the transport counts, and the maximum fits.
    #[test]
    fn timestamps_precede_sack_blocks() {
        let mut ack = segment(1, 1, 0, Flags::ACK);
        ack.sack = Sack::new(1, &[(11, 21), (31, 41), (51, 61)]);
        ack.timestamps = tcp::Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };
        let (packet, synthesized) = synthesize_tcp(ENDS, ack, 40);
        assert_eq!(synthesized.headers as u32, 40 + ack.options_len());
        assert_eq!(&packet[40..56], &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 26]);
        assert_eq!(packet.len(), 80);
        let mut syn = segment(0, 0, 0, Flags::SYN);
        (syn.sack, syn.timestamps) = (Sack::PERMITTED.with_scale(Some(7)), ack.timestamps);
        let mut buffer = Vec::new();
        let packet = Packet::Tcp {
            ends: ENDS,
            segment: syn,
            mss: 1460,
            receive_window: 1 << 20,
            window_scale: Some(7),
        };
        let synthesized = synthesize(&observation(40, packet), &mut buffer);
        assert_eq!(synthesized.headers as u32, 40 + syn.options_len());
        assert_eq!(&buffer[40..60], &[2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7]);
    }

    /// A full segment with 18 bytes of link-layer framing.
    #[test]
    fn a_segments_checksum_covers_its_payload() {
        let ends = Ends { with_data: true, ..ENDS };
        let (packet, synthesized) =
            synthesize_tcp(ends, segment(u64::from(u32::MAX), 1, 1000, Flags::ACK), 1058);
        assert_eq!((packet.len(), synthesized.headers), (1058, 40));
        assert_eq!(u16::from_be_bytes([packet[2], packet[3]]), 1040);
        assert!(checksums_are_valid(&packet[..1040]));
        // Positions wrap: 2^32 - 1 is the initial sequence number less 1.
        let seq = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        assert_eq!(seq, initial(&ends, true).wrapping_sub(1));
    }

    #[test]
    fn packets_of_the_pep_link_are_described_as_text() {
        let data = pep_link::Data {
            number: 17,
            least_unacked: 12,
            offset: 2800,
            stream: 3,
            generation: 1,
            len: 1400,
            open: false,
            fin: true,
            reset: false,
            retransmission: true,
        };
        let mut packet = Vec::new();
        let synthesized = synthesize(
            &observation(
                1440,
                Packet::PepData { ends: PepEnds { terminal: 1, to_terminal: true, of_uploads: false }, data },
            ),
            &mut packet,
        );
        let text = "DATA 17 stream 3.1 bytes 2800+1400 below 12 fin retransmission\n";
        assert_eq!(std::str::from_utf8(&packet[28..synthesized.headers]).unwrap(), text);
        assert_eq!((packet.len(), &packet[12..20]), (1440, &[172, 16, 0, 3, 172, 16, 0, 4][..]));
        assert!(checksums_are_valid(&packet));

        let mut ack = pep_link::Ack::new(bentpipe_units::Duration::from_millis(25));
        ack.push_range(pep_link::AckRange { first: 12, last: 17 });
        ack.push_range(pep_link::AckRange { first: 3, last: 9 });
        ack.push_window(pep_link::WindowUpdate { stream: 3, generation: 0, limit: 65_000 });
        let ends = PepEnds { terminal: 0, to_terminal: false, of_uploads: true };
        let packet_of = Packet::PepAck { ends, ack: Box::new(ack) };
        let synthesized = synthesize(&observation(52, packet_of), &mut packet);
        let text = "ACK 12-17 3-9 after 25000000 ns window 3.0 65000\n";
        assert_eq!(std::str::from_utf8(&packet[28..synthesized.headers]).unwrap(), text);
        assert_eq!(&packet[12..20], &[172, 16, 0, 2, 172, 16, 0, 1]);
        let port = SPACE_PORT + 1;
        assert_eq!(packet[20..24], [port.to_be_bytes(), port.to_be_bytes()].concat());
        assert!(checksums_are_valid(&packet));
    }

    #[test]
    fn the_window_scale_is_the_smallest_sufficient_one() {
        let largest = [0, 65_535, 65_536, 1 << 20, 4 << 20, u32::MAX];
        assert_eq!(largest.map(window_shift), [0, 0, 1, 5, 7, 14]);
    }
}
