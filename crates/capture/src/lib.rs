//! Captures of simulated links as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and similar tools; logs of simulated
//! connections as [`qlog`].
//!
//! The simulator's packets have no bytes; `packet` gives them the headers of a real network.
//!
//! - A file holds one watched link: one interface per direction, raw IPv4, timestamps in nanoseconds since the start of
//!   the run. Packets are captured at the link's first node: outgoing ones when they leave the queue (or reach the link,
//!   if it has no queue) and before the link can lose them, incoming ones when they arrive.
//! - The file keeps headers, all of a QUIC packet, and the original length, unless a snap length is set. Other payload is
//!   zeros.
//! - Comments mark retransmissions and packets that the link loses, which no header shows.
//! - A Name Resolution Block maps the addresses of hosts, gateways and terminals to their names.

mod packet;
pub mod qlog;
mod sctp;

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use bentpipe_scenario::{Scenario, TerminalGroup};
use bentpipe_sim::{Interface, Observation};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::name_resolution::{Ipv4Record, NameResolutionBlock, Record};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

pub use packet::{FIRST_PORT, SERVICE_PORT, SPACE_PORT};

/// Limits of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes kept of each packet; `None`: the headers.
    pub snap: Option<u32>,
    /// Maximum number of packets; further ones are only counted.
    pub packets: u64,
}

/// Counters of a capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets written.
    pub packets: u64,
    /// Packets left out because of [`Limits::packets`].
    pub left_out: u64,
    /// Retransmissions among the packets written, whole or partial.
    pub retransmissions: u64,
}

/// Writer of a capture file.
pub struct Capture<W: Write> {
    writer: PcapNgWriter<W>,
    limits: Limits,
    counts: Counts,
    buffer: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Starts a capture of the interfaces of one watched link.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(out: W, scenario: &Scenario, interfaces: &[Interface], limits: Limits) -> io::Result<Self> {
        let measured = scenario.run.warmup.as_secs_f64();
        let comment = format!(
            "{}. Time 0 is the start of the run; the measurement begins at {measured} s. Payload is zeros.",
            scenario.title
        );
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![
                SectionHeaderOption::Comment(comment.into()),
                SectionHeaderOption::UserApplication(concat!("Bentpipe ", env!("CARGO_PKG_VERSION")).into()),
            ],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(out, section).map_err(io_error)?;
        for interface in interfaces {
            let point = if interface.outbound { "on departure" } else { "on arrival" };
            let description = format!("{} to {}, {point}", interface.from, interface.to);
            let mut options = vec![
                InterfaceDescriptionOption::IfName(interface.name.clone().into()),
                InterfaceDescriptionOption::IfDescription(description.into()),
                // 10^-9 s.
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            options.extend(interface.rate.map(|rate| InterfaceDescriptionOption::IfSpeed(rate.as_bps())));
            let snaplen = limits.snap.unwrap_or(0);
            let block = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen, options };
            writer.write_pcapng_block(block).map_err(io_error)?;
        }
        let records = names(scenario).map(|(address, name)| {
            Record::Ipv4(Ipv4Record { ip_addr: Cow::Owned(address.to_vec()), names: vec![name.into()] })
        });
        let block = NameResolutionBlock { records: records.collect(), options: Vec::new() };
        writer.write_pcapng_block(block).map_err(io_error)?;
        Ok(Self { writer, limits, counts: Counts::default(), buffer: Vec::new() })
    }

    /// Adds a packet observed on the interface with this index. Packets must be in the order of time.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn write(&mut self, interface: u32, observation: &Observation) -> io::Result<()> {
        if self.counts.packets == self.limits.packets {
            self.counts.left_out += 1;
            return Ok(());
        }
        self.counts.packets += 1;
        let synthesized = packet::synthesize(observation, &mut self.buffer);
        self.counts.retransmissions += u64::from(synthesized.retransmission);
        let kept = match self.limits.snap {
            None => synthesized.headers,
            Some(snap) => self.buffer.len().min(snap as usize),
        };
        let comment = match (synthesized.retransmission, observation.lost) {
            (false, false) => None,
            (true, false) => Some("retransmission"),
            (false, true) => Some("lost on this link"),
            (true, true) => Some("retransmission, lost on this link"),
        };
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(observation.time.as_nanos()),
            original_len: u32::try_from(self.buffer.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(self.buffer.get(..kept).unwrap_or(&self.buffer)),
            options: comment.into_iter().map(|text| EnhancedPacketOption::Comment(text.into())).collect(),
        };
        self.writer.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(self) -> io::Result<(W, Counts)> {
        let mut out = self.writer.into_inner();
        out.flush()?;
        Ok((out, self.counts))
    }
}

/// Addresses and names of all nodes that send packets.
fn names(scenario: &Scenario) -> impl Iterator<Item = ([u8; 4], String)> {
    let hosts = scenario.hosts.iter().flat_map(|host| {
        (0..host.count).map(|member| match host.count {
            1 => host.name.clone(),
            _ => format!("{}.{member}", host.name),
        })
    });
    let hosts = (0..).zip(hosts).map(|(number, name)| (packet::host_address(number), name));
    let terminals = scenario.gateways.iter().flat_map(|gateway| {
        let members = |group: &TerminalGroup| {
            let (name, count) = (group.name.clone(), group.count);
            (0..count).map(move |member| if count == 1 { name.clone() } else { format!("{name}.{member}") })
        };
        gateway.terminals.iter().flat_map(members).map(|terminal| (gateway.name.clone(), terminal))
    });
    let terminals = (0..).zip(terminals).flat_map(|(number, (gateway, terminal))| {
        [(packet::pep_address(number, false), gateway), (packet::pep_address(number, true), terminal)]
    });
    hosts.chain(terminals)
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
