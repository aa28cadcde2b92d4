//! What a sender knows of selective acknowledgements: the scoreboard of RFC 6675 section 4 and the counters
//! of RFC 9937.
//!
//! Positions are half open here as everywhere, so `HighRxt` and `RescueRxt` lie one past the RFC's.
//!
//! - IsLost: octets below a gap end are lost when three separate parts above it were SACKed, or more than
//!   two segments' worth of octets. Both only become truer further down, so one position divides the lost
//!   from the others, and it is found from the highest three parts.
//! - SetPipe: octets not SACKed count once if not lost, and once if sent again.

use super::Ranges;
use super::rack::Rack;
use super::segment::Sack;

/// DupThresh of RFC 6675 section 2.
pub(super) const DUP_THRESH: usize = 3;

/// What the segment chosen in recovery is, by the rules of NextSeg().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// The first retransmission of the recovery.
    #[default]
    First,
    /// What is lost, or may be: rules 1 and 3.
    Retransmit,
    /// Data never sent: rule 2.
    Unsent,
    /// The rescue retransmission: rule 4.
    Rescue,
}

/// State of a connection that only one with SACK has.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// What was SACKed between SND.UNA and SND.MAX.
    pub(super) ranges: Ranges,
    /// Its size [bytes].
    pub(super) sacked_bytes: u64,
    /// Octets below that are not SACKed are lost.
    pub(super) lost_below: u64,
    /// HighRxt.
    pub(super) high_rxt: u64,
    /// RescueRxt.
    pub(super) rescue_rxt: u64,
    /// Pipe: octets thought to be in the network.
    pub(super) pipe: u64,
    /// The first retransmission of the recovery is yet to leave.
    pub(super) first_due: bool,
    /// The rule that chose the segment about to leave.
    pub(super) rule: Rule,
    pub(super) prr: Prr,
    /// Loss detection by time, where it is on.
    pub(super) rack: Option<Box<Rack>>,
    /// As a receiver: what arrived twice and is yet to be reported.
    pub(super) dsack: Option<(u64, u64)>,
    /// As a receiver: a position in each of the parts reported first of late, the latest first.
    recent: [u64; Sack::MAX_BLOCKS + 1],
}

/// Proportional rate reduction, RFC 9937 section 6.2.
#[derive(Clone, Debug, Default)]
pub(super) struct Prr {
    /// RecoverFS: what was outstanding when the recovery began [bytes].
    pub(super) recover_fs: u64,
    /// prr_delivered: what arrived since [bytes].
    pub(super) delivered: u64,
    /// prr_out: what was sent since [bytes].
    pub(super) out: u64,
}

impl Prr {
    /// cwnd for an ACK that tells of `delivered` bytes more, in a recovery towards `ssthresh`. `safe`: it
    /// moved SND.UNA and told of no further loss.
    pub(super) fn cwnd(&mut self, delivered: u64, pipe: u64, ssthresh: u64, smss: u64, safe: bool) -> u64 {
        self.delivered += delivered;
        let mut count = if pipe > ssthresh {
            // Proportional: sent in the ratio of ssthresh to RecoverFS to what arrives.
            let due = u128::from(self.delivered) * u128::from(ssthresh);
            let due = due.div_ceil(u128::from(self.recover_fs.max(1)));
            due.saturating_sub(u128::from(self.out)).min(u128::from(u64::MAX)) as u64
        } else {
            // PRR-CRB, as many as arrive, or PRR-SSRB, one segment more, up to ssthresh.
            let bound = self.delivered.saturating_sub(self.out).max(delivered) + if safe { smss } else { 0 };
            bound.min(ssthresh - pipe)
        };
        if self.out == 0 && count == 0 {
            // The fast retransmit goes whatever the above says.
            count = smss;
        }
        pipe.saturating_add(count)
    }
}

impl Scoreboard {
    /// `by_time`: losses are found by RFC 8985.
    pub(super) fn new(by_time: bool) -> Self {
        Self { rack: by_time.then(Box::default), ..Self::default() }
    }

    /// Update() of RFC 6675 section 4: takes in an ACK; how many octets it is the first to SACK.
    pub(super) fn update(&mut self, ack: u64, sack: &Sack, una: u64, max: u64) -> u64 {
        self.sacked_bytes -= self.ranges.trim_below(una);
        self.high_rxt = self.high_rxt.max(una);
        let mut fresh = 0;
        for (start, end) in sack.blocks(ack) {
            // Nothing below SND.UNA is asked for, and a peer cannot have what was never sent.
            let start = start.max(una);
            if start < end && end <= max {
                fresh += self.ranges.insert(start, end);
            }
        }
        self.sacked_bytes += fresh;
        fresh
    }

    /// Finds what is lost. Whether that is more than it was.
    pub(super) fn find_lost(&mut self, una: u64, smss: u64) -> bool {
        let mut above = 0;
        let mut lost = 0;
        for (parts, &(start, end)) in self.ranges.as_slice().iter().rev().enumerate() {
            above += end - start;
            // IsLost() of RFC 6675 section 4, for the octets before this part.
            if parts + 1 >= DUP_THRESH || above > (DUP_THRESH as u64 - 1) * smss {
                lost = start;
                break;
            }
        }
        let before = self.lost_below.max(una);
        self.lost_below = lost;
        lost > before && lost - before > self.ranges.covered(before, lost)
    }

    /// SetPipe() of RFC 6675 section 4.
    pub(super) fn set_pipe(&mut self, una: u64, max: u64) {
        self.pipe = self.in_network(una, max);
    }

    /// What SetPipe() finds [bytes].
    pub(super) fn in_network(&self, una: u64, max: u64) -> u64 {
        let lost = self.lost_below.clamp(una, max);
        let again = self.high_rxt.clamp(una, max);
        // (a) not lost, (b) sent again; some are both.
        let a = max - lost - self.ranges.covered(lost, max);
        let b = again - una - self.ranges.covered(una, again);
        a + b
    }

    /// A recovery begins, with an ACK that tells of `delivered` bytes.
    pub(super) fn begin_recovery(&mut self, una: u64, max: u64, delivered: u64) {
        // RFC 9937 section 6.1, RecoverFS: what was SACKed before does not count, what this very ACK tells of
        // does.
        self.prr.recover_fs = (max - una + delivered).saturating_sub(self.sacked_bytes);
        self.prr.delivered = 0;
        self.prr.out = 0;
        self.first_due = true;
    }

    /// Forgets all, as RFC 2018 section 8 asks for after a timeout: the receiver may have discarded it.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.sacked_bytes = 0;
        self.lost_below = 0;
        self.first_due = false;
    }

    /// The blocks of an ACK of `next`, RFC 2018 section 4, where `ahead` arrived beyond it and `newest` was
    /// the latest to. A FIN at `fin_at` is in the block that reaches it.
    #[cold]
    pub(super) fn sack_blocks(&mut self, next: u64, ahead: &Ranges, newest: u64, fin_at: u64) -> Sack {
        // The first block is the one with the segment that caused this ACK. The others repeat those that were
        // first in the ACKs before, so that each is reported several times.
        if let Some((start, end)) = ahead.containing(newest) {
            let mut place = 0;
            let mut before = newest;
            // Moves the others back by one, as far as the place of one that is in the same part.
            while let Some(position) = self.recent.get_mut(place) {
                std::mem::swap(position, &mut before);
                if (start..end).contains(&before) {
                    break;
                }
                place += 1;
            }
        }
        let mut blocks = [(0, 0); Sack::MAX_BLOCKS];
        let mut count = 0;
        for (start, end) in self.recent.iter().filter_map(|&position| ahead.containing(position)) {
            let block = (start, end + u64::from(end == fin_at));
            if count < Sack::MAX_BLOCKS && !blocks[..count].contains(&block) {
                blocks[count] = block;
                count += 1;
            }
        }
        let sack = Sack::new(next, &blocks[..count]);
        // RFC 2883 section 4: what arrived twice comes first, and is reported once.
        match self.dsack.take() {
            Some(duplicate) => sack.with_dsack(next, duplicate),
            None => sack,
        }
    }
}
