//! Records of the resources that limit flows.

use std::borrow::Cow;
use std::sync::Arc;

use crate::bottleneck::Bottleneck;

/// Names of all but [`Bottleneck::Link`], which has the link's.
const NAMES: [&str; 7] =
    ["sender", "start_up", "receive_window", "pep_buffer", "spacelink_window", "carrier", "loss"];

/// Samples of the flows of a class, by what limited the flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Bottlenecks {
    of_kind: [u64; NAMES.len()],
    /// By link of the scenario, up to the last that limited a flow.
    of_link: Vec<u64>,
    /// Names of the scenario's links.
    links: Arc<[String]>,
}

impl Bottlenecks {
    pub(super) fn new(links: Arc<[String]>) -> Self {
        Self { links, ..Self::default() }
    }

    pub(super) fn add(&mut self, bottleneck: Bottleneck) {
        let kind = match bottleneck {
            Bottleneck::Sender => 0,
            Bottleneck::StartUp => 1,
            Bottleneck::ReceiveWindow => 2,
            Bottleneck::PepBuffer => 3,
            Bottleneck::SpacelinkWindow => 4,
            Bottleneck::Carrier => 5,
            Bottleneck::Loss => 6,
            Bottleneck::Link(link) => {
                let link = link as usize;
                self.of_link.resize(self.of_link.len().max(link + 1), 0);
                self.of_link[link] += 1;
                return;
            }
        };
        self.of_kind[kind] += 1;
    }

    /// Samples by what limited the flow: all in `limited_samples`, those of all links in `limited_by_link`, and of one in
    /// `limited_by_link.NAME`. Empty without flows over TCP or QUIC.
    pub(super) fn counters(&self) -> Vec<(Cow<'static, str>, f64)> {
        let of_links: u64 = self.of_link.iter().sum();
        let total = of_links + self.of_kind.iter().sum::<u64>();
        if total == 0 {
            return Vec::new();
        }
        let kinds = NAMES.iter().zip(self.of_kind).chain([(&"link", of_links)]);
        let mut counters: Vec<(Cow<'_, _>, _)> = vec![("limited_samples".into(), total as f64)];
        counters.extend(kinds.map(|(name, samples)| (format!("limited_by_{name}").into(), samples as f64)));
        let links = self.links.iter().zip(&self.of_link).filter(|(_, samples)| **samples > 0);
        counters
            .extend(links.map(|(name, samples)| (format!("limited_by_link.{name}").into(), *samples as f64)));
        counters
    }
}
