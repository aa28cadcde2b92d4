//! Writes what passed simulated links as pcapng (draft-ietf-opsawg-pcapng), for Wireshark and its relatives.
//!
//! The simulator's packets have no bytes; here they get the headers that they would have had (see [`packet`]).
//!
//! - A file holds one watched link: an interface for each direction, with raw IPv4 and timestamps in nanoseconds since
//!   the beginning of the run. A packet is seen where the link's first node would capture it: what that node sends
//!   when it leaves the queue in front of the link, or comes to the link where there is none, before the link can lose
//!   it; what comes to that node when it arrives.
//! - Only headers are kept, beside the original length, unless a snap length says otherwise; payload is zeros.
//! - A packet's comment says what no header can: that a segment is a retransmission, that the link loses the packet.
//! - Names of hosts, gateways and terminals stand beside their addresses (a Name Resolution Block).

mod packet;
mod sctp;

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use bentpipe_scenario::Scenario;
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

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each packet; none: its headers.
    pub snap: Option<u32>,
    /// Packets of each file; those after it are counted and left out.
    pub packets: u64,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets written.
    pub packets: u64,
    /// Packets left out because the file had as many as it may.
    pub left_out: u64,
    /// TCP segments among those written that the simulator knows to have been sent before, in whole or in part.
    pub retransmissions: u64,
}

/// A capture that is being written.
pub struct Capture<W: Write> {
    writer: PcapNgWriter<W>,
    limits: Limits,
    counts: Counts,
    buffer: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture of these interfaces, which all belong to one watched link.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(out: W, scenario: &Scenario, interfaces: &[Interface], limits: Limits) -> io::Result<Self> {
        let measured = scenario.run.warmup.as_secs_f64();
        let comment = format!(
            "{}. Time 0 is the beginning of the run; measuring begins at {measured} s. Payload is zeros.",
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
            let seen = if interface.outbound { "as it leaves" } else { "as it arrives" };
            let description = format!("{} to {}, {seen}", interface.from, interface.to);
            let mut options = vec![
                InterfaceDescriptionOption::IfName(interface.name.clone().into()),
                InterfaceDescriptionOption::IfDescription(description.into()),
                // Ten to the power of -9 seconds.
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

    /// Adds a packet, seen on the `interface`-th of this file's interfaces. Packets come in the order of time.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn write(&mut self, interface: u32, observation: &Observation) -> io::Result<()> {
        if self.counts.packets == self.limits.packets {
            self.counts.left_out += 1;
            return Ok(());
        }
        self.counts.packets += 1;
        let made = packet::synthesize(observation, &mut self.buffer);
        self.counts.retransmissions += u64::from(made.retransmission);
        let kept = match self.limits.snap {
            None => made.headers,
            Some(snap) => self.buffer.len().min(snap as usize),
        };
        let comment = match (made.retransmission, observation.lost) {
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
    /// When the output cannot be written.
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
    let gateways = (0..).zip(&scenario.gateways).flat_map(|(station, gateway)| {
        [(false, &gateway.name), (true, &gateway.terminal)]
            .map(|(terminal, name)| (packet::gateway_address(station, terminal), name.clone()))
    });
    hosts.chain(gateways)
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
