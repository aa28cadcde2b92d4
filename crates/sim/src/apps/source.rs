//! Sources: long-lived transfers, flows of packets, and what begins transfers.

use bentpipe_traffic::Generator;
use bentpipe_traffic::dash::Player;
use bentpipe_units::{Duration, Instant, Rng};

use super::{Apps, Kind};
use crate::clock::{Clock, Event};
use crate::ids::{SlotId, SourceId, TrafficId};

/// A source of transfers or packets.
pub struct Source {
    pub traffic: TrafficId,
    /// Number within the traffic.
    pub number: u32,
    pub(super) rng: Rng,
    /// Time of its next action, if any. Events at other times are out of date.
    pub(super) due: Option<Instant>,
    /// Time at which it leaves, if it does.
    pub(super) leaves: Option<Instant>,
    /// The slot of its flow, while it is present.
    pub slot: Option<SlotId>,
    generator: Option<Generator>,
    /// Player of the current viewing.
    pub(super) player: Option<Box<Player>>,
    /// Length of the packet that is due [bytes].
    pub len: u32,
    /// Time from the last packet to the one that is due, at the source's nominal rate.
    pub nominal_gap: Duration,
    /// Transfers begun.
    transfers: u32,
}

/// Action of a source that is due.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// None: the event is out of date.
    Nothing,
    /// Leave, and give up the flow.
    Leave,
    /// Begin a transfer.
    Transfer,
    /// Arrive, and open a long-lived transfer.
    OpenBulk,
    /// Arrive, and open a flow of packets.
    OpenPackets,
    /// Send a packet.
    Packet(SlotId),
    /// Begin a viewing.
    BeginViewing,
    /// Request a segment of a viewing.
    RequestSegment(SlotId),
}

impl Source {
    pub fn new(traffic: TrafficId, number: u32, rng: Rng, due: Option<Instant>) -> Self {
        Self {
            traffic,
            number,
            rng,
            due,
            leaves: None,
            slot: None,
            generator: None,
            player: None,
            len: 0,
            nominal_gap: Duration::ZERO,
            transfers: 0,
        }
    }

    /// Draws the next packet at a share of the nominal rate.
    fn draw_packet(&mut self, rate_share: Option<f64>, now: Instant) {
        let mut step = self.generator.as_mut().and_then(|generator| generator.next(&mut self.rng));
        if let Some(step) = &mut step {
            if self.len > 0 {
                self.nominal_gap = Duration::ZERO;
            }
            self.nominal_gap += step.gap;
            if let Some(share) = rate_share {
                step.gap = step.gap.scaled(1.0 / share);
            }
        }
        (self.due, self.len) = step.map_or((None, 0), |step| (Some(now + step.gap), step.len));
    }
}

impl Apps {
    /// Decides what a source does at its event.
    pub fn due(&mut self, id: SourceId, now: Instant) -> Due {
        let s = &mut self.sources[id];
        if s.leaves == Some(now) {
            return Due::Leave;
        }
        if s.due != Some(now) {
            return Due::Nothing;
        }
        match &self.traffic[s.traffic].kind {
            Kind::Pages { .. } => Due::Nothing,
            Kind::Files { .. } => Due::Transfer,
            Kind::Bulk { .. } => {
                s.due = None;
                Due::OpenBulk
            }
            Kind::Dash(_) => {
                s.due = None;
                s.slot.map_or(Due::BeginViewing, Due::RequestSegment)
            }
            Kind::Packets { pattern } => match s.slot {
                Some(slot) => Due::Packet(slot),
                None => {
                    s.generator = Some(Generator::new(pattern, &mut s.rng));
                    Due::OpenPackets
                }
            },
        }
    }

    /// A source arrives: schedules its leaving, and gives its traffic and hosts.
    pub fn arrive(&mut self, id: SourceId, clock: &mut Clock) -> (TrafficId, (u32, u32)) {
        let (s, now) = (&mut self.sources[id], clock.now());
        let t = &self.traffic[s.traffic];
        let absence = t.presence.leaves(s.number, now);
        let over = match &t.kind {
            Kind::Bulk { lifetime: Some(lifetime), .. } => Some(now + lifetime.draw(&mut s.rng)),
            Kind::Dash(dash) => dash.watch.as_ref().map(|watch| now + watch.draw(&mut s.rng)),
            _ => None,
        };
        s.leaves = absence.into_iter().chain(over).min();
        clock.at_any(s.leaves, Event::Source(id));
        (s.traffic, (s.number % t.from.count, s.number % t.to.count))
    }

    /// A source leaves: schedules its return, at once after the end of a lifetime, after a think time if it is a viewer;
    /// gives the slot of its flow.
    pub fn leave(&mut self, id: SourceId, clock: &mut Clock) -> Option<SlotId> {
        let s = &mut self.sources[id];
        let t = &self.traffic[s.traffic];
        let pause = match &t.kind {
            Kind::Dash(dash) => dash.think_time.draw(&mut s.rng),
            _ => Duration::ZERO,
        };
        s.due = t.presence.present(s.number, clock.now() + pause);
        clock.at_any(s.due, Event::Source(id));
        s.leaves = None;
        s.generator = None;
        s.slot.take()
    }

    /// Lets a source act now, as at its start.
    pub fn call_in(&mut self, id: SourceId, clock: &mut Clock) {
        self.sources[id].due = Some(clock.now());
        clock.at(clock.now(), Event::Source(id));
    }

    /// Sends a source away for good; gives true if it has a flow to give up.
    pub fn send_away(&mut self, id: SourceId) -> bool {
        let s = &mut self.sources[id];
        s.due = None;
        s.slot.is_some()
    }

    /// A source of packets follows the current pattern of its traffic.
    pub fn renew_pattern(&mut self, id: SourceId) {
        let s = &mut self.sources[id];
        if let (Kind::Packets { pattern }, Some(_)) = (&self.traffic[s.traffic].kind, &s.generator) {
            s.generator = Some(Generator::new(pattern, &mut s.rng));
        }
    }

    /// The flow of a source is completed, or has failed: the source sends no more until it returns.
    pub fn detach(&mut self, id: SourceId, slot: SlotId) {
        let s = &mut self.sources[id];
        if s.slot == Some(slot) {
            (s.slot, s.generator, s.due) = (None, None, None);
        }
    }

    /// The flow of a source is broken: it opens another at once, or when it is present again.
    pub fn reconnect(&mut self, id: SourceId, clock: &mut Clock) {
        let s = &mut self.sources[id];
        s.due = self.traffic[s.traffic].presence.present(s.number, clock.now());
        s.leaves = None;
        clock.at_any(s.due, Event::Source(id));
    }

    /// Draws a source's next packet. `rate_share` is the share of the nominal rate that its transport asks for: packets at
    /// a lower rate are farther apart.
    pub fn draw_packet(&mut self, id: SourceId, rate_share: Option<f64>, now: Instant) {
        self.sources[id].draw_packet(rate_share, now);
    }

    /// True if a source's next packet is due now.
    pub fn is_packet_due(&self, id: SourceId, now: Instant) -> bool {
        self.sources[id].due == Some(now)
    }

    /// Schedules a source's next packet.
    pub fn schedule_packet(&self, id: SourceId, clock: &mut Clock) {
        clock.at_any(self.sources[id].due, Event::Source(id));
    }

    /// Begins a source's next transfer: its traffic, hosts and size [bytes].
    pub fn next_transfer(&mut self, id: SourceId) -> Option<(TrafficId, (u32, u32), u64)> {
        let s = &mut self.sources[id];
        let t = &self.traffic[s.traffic];
        let Kind::Files { size, .. } = &t.kind else { return None };
        let size = size.draw(&mut s.rng);
        let hosts = (s.number.wrapping_add(s.transfers) % t.from.count, s.number % t.to.count);
        s.transfers += 1;
        Some((s.traffic, hosts, size))
    }

    /// Schedules the transfer of a source that follows one at `last`, unless that was its last one. A transfer that would
    /// begin while the source is away is left out, and the next interval begins with its return.
    pub fn schedule_transfer(&mut self, id: SourceId, last: Instant, clock: &mut Clock) {
        let s = &mut self.sources[id];
        let t = &self.traffic[s.traffic];
        let Kind::Files { interval, transfers, .. } = &t.kind else { return };
        if s.transfers >= *transfers {
            s.due = None;
            return;
        }
        let due = t.presence.next_arrival(last, || interval.draw(&mut s.rng));
        s.due = Some(due);
        clock.at(due, Event::Source(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Id;
    use bentpipe_scenario::{Codec, Distribution, Pattern};

    /// Talk of 1 s and silence of 1 s at half the rate: packets are 40 ms apart, as are those of 20 ms at the nominal rate.
    #[test]
    fn a_lower_rate_does_not_change_the_nominal_gaps() {
        let pattern = Pattern::Voip {
            packet: 200,
            interval: Duration::from_millis(20),
            talk: Distribution::Fixed(Duration::from_secs(1)),
            silence: Distribution::Fixed(Duration::from_secs(1)),
            codec: Codec::G711,
            jitter_buffer: None,
        };
        let mut source = Source::new(TrafficId::new(0), 0, Rng::stream(1, "source", 0, "test"), None);
        source.generator = Some(Generator::new(&pattern, &mut source.rng));
        let (mut now, mut sent) = (Instant::ZERO, Vec::new());
        while sent.len() < 300 {
            source.draw_packet(Some(0.5), now);
            now = source.due.unwrap();
            if source.len > 0 {
                sent.push((now, source.nominal_gap));
            }
        }
        for pair in sent.windows(2) {
            let (gap, nominal) = (pair[1].0 - pair[0].0, pair[1].1);
            assert_eq!(gap, nominal.times(2));
        }
        let in_talk = sent.iter().filter(|(_, gap)| *gap == Duration::from_millis(20)).count();
        assert!((270..300).contains(&in_talk), "{in_talk}");
    }
}
