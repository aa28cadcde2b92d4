//! Packet captures: times and lengths from pcap and pcapng files.

use bentpipe_units::Duration;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{PcapError, TsResolution};

use crate::reader::files::Data;

/// Name of such a file in messages.
pub const CAPTURE: &str = "a capture, in pcap or pcapng";

/// Maximum packet length [bytes].
const LONGEST: u32 = 65_535;

/// Reads a capture: time since the first packet and length on the wire [bytes] of each packet, in order of time.
///
/// # Errors
/// The first violation of the format.
pub fn read(data: &Data) -> Result<Vec<(Duration, u32)>, String> {
    let magic = data.bytes.get(..4).unwrap_or_default();
    let mut packets = match magic {
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng(data)?,
        // Micro- or nanosecond resolution, in either byte order.
        [0xa1, 0xb2, 0xc3, 0xd4]
        | [0xd4, 0xc3, 0xb2, 0xa1]
        | [0xa1, 0xb2, 0x3c, 0x4d]
        | [0x4d, 0x3c, 0xb2, 0xa1] => pcap(data)?,
        other => {
            let hex: Vec<_> = other.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(data.at_byte(0, &hex.join(" "), CAPTURE));
        }
    };
    // A capture of several interfaces can be out of order.
    packets.sort_by_key(|&(time, _)| time);
    let Some(&(first, _)) = packets.first() else { return Err(data.whole("no packet", CAPTURE)) };
    let since = |time: u128| Duration::from_nanos(u64::try_from(time - first).unwrap_or(u64::MAX));
    Ok(packets.into_iter().map(|(time, len)| (since(time), len)).collect())
}

/// Reads a pcap file: time [ns] and length [bytes] of each packet.
fn pcap(data: &Data) -> Result<Vec<(u128, u32)>, String> {
    let (mut rest, parser) = PcapParser::new(&data.bytes).map_err(|e| wrong(data, &data.bytes, &e))?;
    let fraction = match parser.header().ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let mut packets = Vec::new();
    while !rest.is_empty() {
        // Raw, because packets truncated by the snaplen are valid.
        let (after, packet) = parser.next_raw_packet(rest).map_err(|e| wrong(data, rest, &e))?;
        let time = u128::from(packet.ts_sec) * 1_000_000_000 + u128::from(packet.ts_frac) * fraction;
        packets.push((time, checked(data, rest, packet.orig_len)?));
        rest = after;
    }
    Ok(packets)
}

/// Reads a pcapng file: time [ns] and length [bytes] of each packet.
fn pcapng(data: &Data) -> Result<Vec<(u128, u32)>, String> {
    let (mut rest, mut parser) = PcapNgParser::new(&data.bytes).map_err(|e| wrong(data, &data.bytes, &e))?;
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let (after, block) = parser.next_block(rest).map_err(|e| wrong(data, rest, &e))?;
        let found = match block {
            // The parser reports the number as nanoseconds, whatever the interface's resolution.
            Block::EnhancedPacket(p) => Some((p.interface_id, p.timestamp.as_nanos(), p.original_len)),
            Block::Packet(p) => Some((u32::from(p.interface_id), u128::from(p.timestamp), p.original_len)),
            Block::SimplePacket(_) => {
                return Err(data.at_byte(
                    at(data, rest),
                    "a packet without a time",
                    "packets with their times",
                ));
            }
            _ => None,
        };
        if let Some((interface, units, len)) = found {
            let Some(interface) = parser.interfaces().get(interface as usize) else {
                let found = format!("a packet of interface {interface}");
                return Err(data.at_byte(at(data, rest), &found, "an interface described before"));
            };
            packets.push((nanoseconds(units, &interface.options), checked(data, rest, len)?));
        }
        rest = after;
    }
    Ok(packets)
}

/// Converts an interface's time to nanoseconds: in units of if_tsresol (default: microseconds), plus if_tsoffset
/// seconds.
fn nanoseconds(units: u128, options: &[InterfaceDescriptionOption<'_>]) -> u128 {
    let mut resolution = 6;
    let mut offset = 0;
    for option in options {
        match option {
            InterfaceDescriptionOption::IfTsResol(x) => resolution = *x,
            InterfaceDescriptionOption::IfTsOffset(x) => offset = u128::from(*x),
            _ => {}
        }
    }
    let exponent = u32::from(resolution & 0x7f);
    // The most significant bit selects powers of two instead of ten.
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let since =
        base.checked_pow(exponent).map_or(0, |per_second| units.saturating_mul(1_000_000_000) / per_second);
    since + offset * 1_000_000_000
}

/// Checks the length of the packet at the start of `rest`.
fn checked(data: &Data, rest: &[u8], len: u32) -> Result<u32, String> {
    if (1..=LONGEST).contains(&len) {
        return Ok(len);
    }
    let allowed = format!("at least 1 B and at most {LONGEST} B");
    Err(data.at_byte(at(data, rest), &format!("a packet of {len} B"), &allowed))
}

/// Offset of `rest`, the end of the file.
fn at(data: &Data, rest: &[u8]) -> usize {
    data.bytes.len() - rest.len()
}

fn wrong(data: &Data, rest: &[u8], error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => {
            let found = format!("the end of the file after {} B more", rest.len());
            data.at_byte(at(data, rest), &found, "a whole packet or block, as the length in its header says")
        }
        PcapError::InvalidField(what) => {
            data.at_byte(at(data, rest), &format!("a broken block ({what})"), CAPTURE)
        }
        other => data.at_byte(at(data, rest), &other.to_string(), CAPTURE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Digest;

    fn data(bytes: Vec<u8>) -> Data {
        Data { name: "a.pcap".to_owned(), digest: Digest::of(&bytes), bytes }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// A pcap header (version 2.4, snaplen 96, Ethernet), and packets of which 4 bytes are kept.
    fn pcap_bytes(magic: u32, packets: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut bytes = words(&[magic, 0x0004_0002, 0, 0, 96, 1]);
        for (seconds, fraction, len) in packets {
            bytes.extend(words(&[*seconds, *fraction, 4, *len, 0]));
        }
        bytes
    }

    #[test]
    fn pcap_yields_times_and_wire_lengths() {
        let packets = [(100, 999_999, 60), (101, 1, 1514), (101, 0, 90)];
        let expected = |unit: u64| {
            let ns = |n: u64| Duration::from_nanos(n);
            let first = 999_999 * unit;
            vec![(ns(0), 60), (ns(1_000_000_000 - first), 90), (ns(1_000_000_000 + unit - first), 1514)]
        };
        assert_eq!(read(&data(pcap_bytes(0xa1b2_c3d4, &packets))), Ok(expected(1000)));
        assert_eq!(read(&data(pcap_bytes(0xa1b2_3c4d, &packets))), Ok(expected(1)));
    }

    /// A section, an interface in milliseconds and two packets, laid out as in the format's section 4.
    #[test]
    fn pcapng_times_use_the_interface_resolution() {
        let mut bytes = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        bytes.extend(words(&[1, 32, 1, 0, 0x0001_0009, 3, 0, 32]));
        for (time, len) in [(5000, 40), (5250, 1500)] {
            bytes.extend(words(&[6, 36, 0, 0, time, 4, len, 0, 36]));
        }
        let expected = vec![(Duration::ZERO, 40), (Duration::from_millis(250), 1500)];
        assert_eq!(read(&data(bytes)), Ok(expected));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..proptest::test_runner::Config::default()
        })]

        /// Reading a damaged file gives packets in order of time or a message, never a panic.
        #[test]
        fn damaged_captures_yield_packets_or_a_message(
            changes in proptest::collection::vec((0usize..400, proptest::prelude::any::<u8>()), 0..12),
            cut in 0usize..400,
            ng in proptest::prelude::any::<bool>(),
        ) {
            let mut bytes = if ng {
                let mut bytes = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
                bytes.extend(words(&[1, 32, 1, 0, 0x0001_0009, 3, 0, 32]));
                for kind in [6, 6, 2, 3, 4, 5, 9, 6] {
                    bytes.extend(words(&[kind, 44, 0, 0, 5000, 4, 60, 0, 0x0004_0001, 0x6161_6161, 44]));
                }
                bytes
            } else {
                pcap_bytes(0xa1b2_c3d4, &[(0, 0, 60), (1, 0, 60), (2, 0, 1500), (2, 7, 60)])
            };
            for (place, byte) in changes {
                let place = place % bytes.len();
                bytes[place] = byte;
            }
            bytes.truncate(bytes.len().min(cut.max(4)));
            match read(&data(bytes)) {
                Ok(packets) => {
                    proptest::prop_assert!(packets.is_sorted_by_key(|p| p.0));
                    proptest::prop_assert!(packets.iter().all(|p| (1..=LONGEST).contains(&p.1)));
                }
                Err(message) => proptest::prop_assert!(message.starts_with("a.pcap")),
            }
        }
    }

    #[test]
    fn errors_name_the_byte() {
        let message = |bytes: Vec<u8>| read(&data(bytes)).unwrap_err();
        let whole = pcap_bytes(0xa1b2_c3d4, &[(0, 0, 60), (1, 0, 60)]);
        assert_eq!(
            message(whole[..whole.len() - 2].to_vec()),
            "a.pcap, byte 44: found the end of the file after 18 B more; allowed: a whole packet or block, as the length in \
             its header says"
        );
        assert_eq!(
            message(b"12\n13\n".to_vec()),
            "a.pcap, byte 0: found 31 32 0a 31; allowed: a capture, in pcap or pcapng"
        );
        assert_eq!(
            message(pcap_bytes(0xa1b2_c3d4, &[])),
            "a.pcap: found no packet; allowed: a capture, in pcap or pcapng"
        );
        assert_eq!(
            message(pcap_bytes(0xa1b2_c3d4, &[(0, 0, 70_000)])),
            "a.pcap, byte 24: found a packet of 70000 B; allowed: at least 1 B and at most 65535 B"
        );
        let mut bytes = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        bytes.extend(words(&[6, 36, 3, 0, 0, 4, 60, 0, 36]));
        assert_eq!(
            message(bytes),
            "a.pcap, byte 28: found a packet of interface 3; allowed: an interface described before"
        );
    }
}
