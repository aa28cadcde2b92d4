//! Effects on a packet between the sender and the delay: loss, outages and handovers.

use bentpipe_scenario::{self as scenario, LossAt, LossOf};
use bentpipe_units::{Duration, Instant, Rng};

use crate::{Loss, Satellite};

/// Reason for which a link lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The link's loss model.
    Loss,
    /// An outage among the [`Impairments`].
    Outage,
    /// The loss probability of the [`Impairments`].
    Impairment,
    /// The gap between two satellites.
    Handover,
    /// The link layer ran out of tries.
    LinkLayer,
}

/// Impairments that a testbed adds to the scenario's.
#[derive(Clone, Debug)]
pub struct Impairments {
    /// Times at which every packet is lost: from, until.
    pub outages: Vec<(Instant, Instant)>,
    /// Loss probability.
    pub loss: f64,
    /// Probability of a packet being held back, and for how long; later packets overtake it.
    pub reorder: (f64, Duration),
    /// Probability of a packet arriving twice.
    pub duplicate: f64,
}

/// The channel of one direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    loss: Loss,
    of: LossOf,
    at: LossAt,
    satellite: Option<Satellite>,
    impairments: Option<(Impairments, Rng)>,
    rng: Rng,
}

impl Channel {
    /// The channel of the direction `name`; `None` if it affects no packet.
    pub(crate) fn new(
        loss: &scenario::Loss,
        satellite: Option<Satellite>,
        impairments: Option<Impairments>,
        seed: u64,
        name: &str,
    ) -> Option<Self> {
        let stream = |purpose| Rng::stream(seed, name, 0, purpose);
        let affects = !loss.is_none() || satellite.is_some() || impairments.is_some();
        affects.then(|| Self {
            loss: Loss::new(loss),
            of: loss.of,
            at: loss.at,
            satellite,
            impairments: impairments.map(|impairments| (impairments, stream("extra"))),
            rng: stream("loss"),
        })
    }

    /// True if packets are lost before they reach the queue.
    pub(crate) fn loses_on_arrival(&self) -> bool {
        !self.loss.is_none() && self.at == LossAt::BeforeQueue
    }

    /// Decides whether the loss model takes a packet at `now`.
    pub(crate) fn loses(&mut self, len: u32, has_payload: bool, now: Instant) -> bool {
        let counts = self.of == LossOf::All || has_payload;
        counts && self.loss.loses(len, now, &mut self.rng)
    }

    /// Applies the channel to a packet that left the sender at `sent`; returns `sent` plus the delay that the satellite
    /// adds.
    pub(crate) fn apply(&mut self, len: u32, has_payload: bool, sent: Instant) -> Result<Instant, LossCause> {
        if self.at == LossAt::AfterQueue && self.loses(len, has_payload, sent) {
            return Err(LossCause::Loss);
        }
        if let Some((impairments, rng)) = &mut self.impairments {
            if impairments.outages.iter().any(|(from, until)| (*from..*until).contains(&sent)) {
                return Err(LossCause::Outage);
            }
            if impairments.loss > 0.0 && rng.uniform() < impairments.loss {
                return Err(LossCause::Impairment);
            }
        }
        let Some(satellite) = &mut self.satellite else { return Ok(sent) };
        if satellite.loses() && satellite.outage(sent).is_some() {
            return Err(LossCause::Handover);
        }
        Ok(sent + satellite.delay(sent))
    }

    /// Draws whether a packet is held back, and for how long.
    pub(crate) fn held_back(&mut self) -> Option<Duration> {
        let (impairments, rng) = self.impairments.as_mut()?;
        let (probability, delay) = impairments.reorder;
        (probability > 0.0 && rng.uniform() < probability).then_some(delay)
    }

    /// Draws whether a packet arrives twice.
    pub(crate) fn duplicates(&mut self) -> bool {
        let Some((impairments, rng)) = &mut self.impairments else { return false };
        impairments.duplicate > 0.0 && rng.uniform() < impairments.duplicate
    }
}
