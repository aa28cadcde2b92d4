//! Counters over the measurement, behind the metrics.

use std::borrow::Cow;

use super::Terminal;
use crate::ids::{IdVec, LinkDirectionId};
use crate::network::{LinkCounters, LinkDirection};

/// Packets on the PEP links since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PepLinkCounters {
    /// Data packets in both directions, retransmissions included.
    pub sent: u64,
    /// Retransmitted data packets.
    pub retransmitted: u64,
    /// Acknowledgements.
    pub acks: u64,
}

/// Packets on links that may lose some, and repeated data, over the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets sent over links that may lose packets.
    pub link_packets: u64,
    /// Packets among them that the link lost: errors, outages, handovers.
    pub link_losses: u64,
    /// Packets among them that the link layer gave up.
    pub link_given_up: u64,
    /// Bytes of packets sent from the subject's queue that repeat data: retransmissions of the transport, or of the PEP
    /// link.
    pub repeated_bytes: u64,
}

impl Carried {
    /// Packets on all links so far; `repeated_bytes` is 0.
    pub(super) fn of(links: &IdVec<LinkDirectionId, LinkDirection>) -> Self {
        let mut all = Self::default();
        for link in links.iter().filter(|link| link.engine.may_lose()) {
            let LinkCounters { sent, lost, given_up, .. } = link.counters;
            all.link_packets += sent;
            all.link_losses += lost - given_up;
            all.link_given_up += given_up;
        }
        all
    }

    /// Packets on links since `begin`.
    pub(super) fn since(self, begin: Self) -> Self {
        Self {
            link_packets: self.link_packets - begin.link_packets,
            link_losses: self.link_losses - begin.link_losses,
            link_given_up: self.link_given_up - begin.link_given_up,
            repeated_bytes: self.repeated_bytes,
        }
    }
}

impl crate::Results {
    /// Counters of the run by name, from which metrics are computed; NaN where nothing was measured. Those of a class are
    /// named `CLASS.COUNTER`, those of the queues at the terminals `return_COUNTER`; times in seconds.
    ///
    /// A counter added here, or to [`bentpipe_gateway::Summary::counters`], reaches Python and the files of a run.
    #[must_use]
    pub fn counters(&self) -> Vec<(Cow<'static, str>, f64)> {
        let mut counters: Vec<_> =
            self.summary.counters().into_iter().map(|(name, value)| (name.into(), value)).collect();
        if let Some(summary) = &self.back_summary {
            let of_return = summary.counters().into_iter();
            counters.extend(of_return.map(|(name, value)| (format!("return_{name}").into(), value)));
            counters.push(("return_filtered_acks".into(), self.filtered_acks as f64));
        }
        if let Some([survived, broken]) = self.handed_over {
            counters.push(("handover_flows".into(), survived as f64));
            counters.push(("handover_broken_flows".into(), broken as f64));
        }
        let of_run = [
            ("link_packets", self.carried.link_packets as f64),
            ("link_losses", self.carried.link_losses as f64),
            ("link_given_up", self.carried.link_given_up as f64),
            ("repeated_bytes", self.carried.repeated_bytes as f64),
            ("space_packets", self.pep_link.sent as f64),
            ("space_retransmissions", self.pep_link.retransmitted as f64),
            ("space_acks", self.pep_link.acks as f64),
            ("events", self.events as f64),
            ("measured_seconds", (self.end - self.begin).as_secs_f64()),
            ("simulated_seconds", self.end.as_secs_f64()),
        ];
        counters.extend(of_run.map(|(name, value)| (name.into(), value)));
        if let Some(of_terminals) = terminals(&self.terminals, (self.end - self.begin).as_secs_f64()) {
            counters.extend(of_terminals.map(|(name, value)| (name.into(), value)));
        }
        for class in &self.classes {
            let of_class = class
                .counters()
                .into_iter()
                .map(|(name, value)| (format!("{}.{name}", class.name).into(), value));
            counters.extend(of_class);
        }
        counters
    }
}

/// Counters of the terminals of gateways with several; `None` without such terminals.
fn terminals(all: &[Terminal], seconds: f64) -> Option<[(&'static str, f64); 7]> {
    let goodput = |terminal: &Terminal| terminal.delivered_bytes as f64 * 8.0 / seconds;
    let least = all.iter().map(goodput).reduce(f64::min)?;
    let worst = all.iter().map(|terminal| terminal.queue_delay()[2]).fold(f64::NAN, f64::max);
    let busy: f64 = all.iter().map(|terminal| terminal.carrier_time.as_secs_f64()).sum();
    // Jain's index within each group, of which terminals have equal shares, and of goodput over weight among all.
    let fairness = all.chunk_by(|a, b| a.group == b.group).map(|group| jain(group.iter().map(goodput)));
    let fairness = fairness.fold(f64::NAN, f64::min);
    let weighted = jain(all.iter().map(|terminal| goodput(terminal) / f64::from(terminal.weight)));
    let [rain_goodput, rain_time] = in_rain(all);
    Some([
        ("terminal_goodput_min", least),
        ("terminal_jain_index", fairness),
        ("terminal_weighted_jain_index", weighted),
        ("terminal_delay_p95_max", worst),
        ("carrier_seconds", busy),
        ("terminal_rain_goodput", rain_goodput),
        ("terminal_rain_time", rain_time),
    ])
}

/// Goodput and carrier time of the third of each group's terminals to which a byte takes the carrier longest, over those of
/// the third to which it is shortest; NaN without groups of three terminals that packets were sent to.
fn in_rain(all: &[Terminal]) -> [f64; 2] {
    let cost = |terminal: &Terminal| terminal.carrier_time.as_secs_f64() / terminal.sent_bytes as f64;
    let (mut dry, mut wet) = ([0.0; 2], [0.0; 2]);
    for group in all.chunk_by(|a, b| a.group == b.group) {
        let mut sent: Vec<_> = group.iter().filter(|terminal| terminal.sent_bytes > 0).collect();
        sent.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let third = sent.len() / 3;
        for (sum, terminals) in [(&mut dry, &sent[..third]), (&mut wet, &sent[sent.len() - third..])] {
            for terminal in terminals {
                sum[0] += terminal.delivered_bytes as f64;
                sum[1] += terminal.carrier_time.as_secs_f64();
            }
        }
    }
    [wet[0] / dry[0], wet[1] / dry[1]]
}

/// Jain's fairness index; NaN if all values are zero.
fn jain(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for x in values {
        (count, sum, squares) = (count + 1.0, sum + x, squares + x * x);
    }
    sum * sum / (count * squares)
}
