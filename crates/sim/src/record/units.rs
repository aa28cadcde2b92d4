//! Records of data units from application to application, for each class of traffic.
//!
//! A unit is what the sending application hands over at once: a packet of a packet source, whatever its transport. The
//! application of a transfer writes whenever the transport can send, so its units are the segments sent for the first
//! time. A unit counts as sent at that time, and as received when the receiving application has read its last byte. On
//! the way a PEP may split the connection, and segments may be retransmitted and cut in other ways: positions in the byte
//! stream identify the units of a stream.

use std::collections::VecDeque;

use bentpipe_scenario::{Pattern, Scenario, Traffic, TrafficKind};
use bentpipe_units::{Duration, Instant};
use hdrhistogram::Histogram;

use super::voice::Voice;
use crate::ids::{ClassId, Id, IdVec, TrafficId};

/// Delays above this are recorded as this [ns].
const MAX_DELAY: u64 = 1_000_000_000_000;

/// Units of one byte stream between its two applications.
#[derive(Debug, Default)]
pub struct UnitsInFlight {
    /// End of each unit in the stream, and the time at which it was sent.
    units: VecDeque<(u64, Instant)>,
    /// Ends of the units sent and received.
    sent: u64,
    received: u64,
}

impl UnitsInFlight {
    /// Starts again for another stream.
    pub fn clear(&mut self) {
        self.units.clear();
        (self.sent, self.received) = (0, 0);
    }

    /// Adds a unit of `bytes`.
    #[inline]
    pub fn send(&mut self, bytes: u64, now: Instant) {
        self.send_to(self.sent + bytes, now);
    }

    /// Adds a unit that ends at a position of the stream, unless it was sent before.
    #[inline]
    pub fn send_to(&mut self, end: u64, now: Instant) {
        if end > self.sent {
            self.sent = end;
            self.units.push_back((end, now));
        }
    }

    /// The receiving application reads `bytes`.
    #[inline]
    pub fn read(&mut self, bytes: u64) {
        self.received += bytes;
    }

    /// Takes the next unit that has been received; returns the time at which it was sent.
    #[inline]
    pub fn next_received(&mut self) -> Option<Instant> {
        match self.units.front() {
            Some(&(end, sent_at)) if end <= self.received => {
                self.units.pop_front();
                Some(sent_at)
            }
            _ => None,
        }
    }

    /// Takes all units left; yields the times at which they were sent.
    pub fn take(&mut self) -> impl Iterator<Item = Instant> {
        self.units.drain(..).map(|(_, sent_at)| sent_at)
    }
}

/// Units of one class that were sent during the measurement and whose fate is known.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Units received.
    pub received: u64,
    /// Units lost: dropped or lost datagrams, and units of streams that failed.
    pub lost: u64,
    /// Delays of the received units, and their sum [ns].
    delays: Option<Histogram<u64>>,
    delay_sum: u64,
    /// Sum over the received units of their flow's jitter estimate [ns].
    jitter_sum: f64,
}

impl Class {
    fn new(name: &str) -> Self {
        let delays = Histogram::new_with_max(MAX_DELAY, 3).ok();
        Self { name: name.to_owned(), received: 0, lost: 0, delays, delay_sum: 0, jitter_sum: 0.0 }
    }

    #[inline]
    pub(super) fn receive(&mut self, delay: Duration, jitter: f64) {
        self.received += 1;
        self.delay_sum += delay.as_nanos();
        self.jitter_sum += jitter;
        if let Some(delays) = &mut self.delays {
            delays.saturating_record(delay.as_nanos());
        }
    }

    /// Counters by name; delays [s] are NaN without units.
    ///
    /// `jitter` is the interarrival jitter (RFC 3550, section 6.4.1, J): mean over the units of their flow's estimate.
    /// Quantiles are exact to a thousandth.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, f64); 7] {
        let delays = self.delays.as_ref().filter(|delays| !delays.is_empty());
        let quantile =
            |share| delays.map_or(f64::NAN, |delays| delays.value_at_quantile(share) as f64 * 1e-9);
        let mean = |sum: f64| sum * 1e-9 / self.received as f64;
        [
            ("received_units", self.received as f64),
            ("lost_units", self.lost as f64),
            ("delay_mean", mean(self.delay_sum as f64)),
            ("delay_p50", quantile(0.5)),
            ("delay_p95", quantile(0.95)),
            ("delay_p99", quantile(0.99)),
            ("jitter", mean(self.jitter_sum)),
        ]
    }
}

/// The classes of a scenario.
#[derive(Debug)]
pub(super) struct Classes {
    pub(super) all: IdVec<ClassId, Class>,
    /// Class of each traffic.
    pub(super) of_traffic: IdVec<TrafficId, ClassId>,
    /// Voice of each traffic's calls; `None` if it carries none.
    pub(super) voice: IdVec<TrafficId, Option<Voice>>,
}

impl Classes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let names = scenario.classes();
        let class_of = |traffic: &Traffic| {
            let place = names.iter().position(|name| *name == traffic.class());
            ClassId::new(place.unwrap_or_default() as u32)
        };
        Self {
            all: names.iter().map(|name| Class::new(name)).collect(),
            of_traffic: scenario.traffic.iter().map(class_of).collect(),
            voice: scenario.traffic.iter().map(|traffic| voice_of(&traffic.kind)).collect(),
        }
    }
}

fn voice_of(kind: &TrafficKind) -> Option<Voice> {
    let TrafficKind::Packets(packets) = kind else { return None };
    match *packets.pattern {
        Pattern::Voip { interval, codec, jitter_buffer, .. } => {
            Some(Voice { codec, interval, fixed_buffer: jitter_buffer })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_unit_is_received_with_its_last_byte() {
        let mut units = UnitsInFlight::default();
        units.send(100, at(1));
        units.send(50, at(2));
        units.read(99);
        assert_eq!(units.next_received(), None);
        units.read(51);
        let received: Vec<_> = std::iter::from_fn(|| units.next_received()).collect();
        assert_eq!(received, [at(1), at(2)]);
    }

    #[test]
    fn a_retransmitted_unit_keeps_its_first_time() {
        let mut units = UnitsInFlight::default();
        units.send_to(100, at(1));
        units.send_to(100, at(5));
        units.send_to(60, at(6));
        units.read(100);
        assert_eq!(units.next_received(), Some(at(1)));
        assert_eq!(units.next_received(), None);
    }
}
