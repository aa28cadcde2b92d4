//! SACK state of the sender: the scoreboard of RFC 6675 section 4 and the counters of RFC 9937.
//!
//! Ranges are half-open here as everywhere, so `HighRxt` and `RescueRxt` lie one above the RFC's.
//!
//! - IsLost: octets below a gap are lost once three separate ranges above it were SACKed, or more than two segments'
//!   worth of octets. This holds for everything below as well, so one position separates lost octets from the others.
//!   It is found from the highest three ranges.
//! - SetPipe: octets not SACKed count once if not lost, and once if resent.

use std::num::NonZeroU64;

use super::Ranges;
use super::rack::Rack;
use super::segment::Sack;

/// DupThresh of RFC 6675 section 2.
pub(super) const DUP_THRESH: usize = 3;

/// Rule of NextSeg() that selected a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// First retransmission of the recovery.
    #[default]
    First,
    /// Data that is lost or may be: rules 1 and 3.
    Retransmit,
    /// New data: rule 2.
    Unsent,
    /// Rescue retransmission: rule 4.
    Rescue,
}

/// SACK state of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// SACKed data between SND.UNA and SND.MAX.
    pub(super) ranges: Ranges,
    /// Total size of `ranges` [bytes].
    pub(super) sacked_bytes: u64,
    /// DeliveredData of RFC 9937 section 6.2, of the latest ACK [bytes].
    pub(super) delivered: u64,
    /// Octets below this position that are not SACKed are lost.
    pub(super) lost_below: u64,
    /// HighRxt.
    pub(super) high_rxt: u64,
    /// RescueRxt.
    pub(super) rescue_rxt: u64,
    /// Pipe: octets considered in flight.
    pub(super) pipe: u64,
    /// The first retransmission of the recovery has not been sent yet.
    pub(super) first_due: bool,
    /// Rule that selected the segment to be sent next.
    pub(super) rule: Rule,
    pub(super) prr: Prr,
    /// Pipe of ns-2's `Sack1` [segments].
    pub(super) pipe_segments: i64,
    /// `Sack1` sends nothing before the next ACK.
    pub(super) is_held: bool,
    /// State of RACK-TLP, if enabled.
    pub(super) rack: Option<Box<Rack>>,
    /// Receive side: duplicate data to report in the next D-SACK.
    pub(super) dsack: Option<(u64, u64)>,
    /// Receive side: a position in each of the ranges that recent ACKs reported first, the latest first.
    recent: [u64; Sack::MAX_BLOCKS + 1],
}

/// Proportional rate reduction, RFC 9937 section 6.2.
#[derive(Clone, Debug, Default)]
pub(super) struct Prr {
    /// RecoverFS: data outstanding at the start of the recovery [bytes].
    pub(super) recover_fs: u64,
    /// prr_delivered: data delivered since then [bytes].
    pub(super) delivered: u64,
    /// prr_out: data sent since then [bytes].
    pub(super) out: u64,
}

impl Prr {
    /// Returns cwnd after an ACK that delivers `delivered` bytes in a recovery towards `ssthresh`. `safe`: it advanced
    /// SND.UNA and indicated no further loss.
    pub(super) fn cwnd(&mut self, delivered: u64, pipe: u64, ssthresh: u64, smss: u64, safe: bool) -> u64 {
        self.delivered += delivered;
        let mut count = if pipe > ssthresh {
            // Proportional: data sent to data delivered as ssthresh to RecoverFS.
            let due = u128::from(self.delivered) * u128::from(ssthresh);
            let due = due.div_ceil(u128::from(self.recover_fs.max(1)));
            due.saturating_sub(u128::from(self.out)).min(u128::from(u64::MAX)) as u64
        } else {
            // PRR-CRB, as much as was delivered, or PRR-SSRB, one segment more, up to ssthresh.
            let bound = self.delivered.saturating_sub(self.out).max(delivered) + if safe { smss } else { 0 };
            bound.min(ssthresh - pipe)
        };
        if self.out == 0 && count == 0 {
            // The fast retransmit is always sent.
            count = smss;
        }
        pipe.saturating_add(count)
    }
}

impl Scoreboard {
    /// `by_time`: losses are detected by RFC 8985. `lists_lost`: each is reported to the algorithm.
    pub(super) fn new(by_time: bool, lists_lost: bool) -> Self {
        let mut rack: Option<Box<Rack>> = by_time.then(Box::default);
        if let Some(rack) = &mut rack {
            rack.segments.lists_lost = lists_lost;
        }
        Self { rack, ..Self::default() }
    }

    /// Update() of RFC 6675 section 4. Returns how many octets the ACK is the first to SACK.
    pub(super) fn update(&mut self, ack: u64, sack: &Sack, una: u64, max: u64) -> u64 {
        self.sacked_bytes -= self.ranges.trim_below(una);
        self.high_rxt = self.high_rxt.max(una);
        let mut newly_sacked = 0;
        for (start, end) in sack.blocks(ack) {
            // Data below SND.UNA is acknowledged, and a peer cannot have data that was never sent.
            if end <= max {
                newly_sacked += self.ranges.insert(start.max(una), end);
            }
        }
        self.sacked_bytes += newly_sacked;
        newly_sacked
    }

    /// Updates `lost_below`. Returns true if more octets are lost than before.
    pub(super) fn find_lost(&mut self, una: u64, smss: u64) -> bool {
        let mut above = 0;
        let mut lost = 0;
        for (parts, &(start, end)) in self.ranges.as_slice().iter().rev().enumerate() {
            above += end - start;
            // IsLost() of RFC 6675 section 4, for the octets below this range.
            if parts + 1 >= DUP_THRESH || above > (DUP_THRESH as u64 - 1) * smss {
                lost = start;
                break;
            }
        }
        // The octet below a range is not SACKed.
        lost > std::mem::replace(&mut self.lost_below, lost).max(una)
    }

    /// SetPipe() of RFC 6675 section 4.
    pub(super) fn set_pipe(&mut self, una: u64, max: u64) {
        self.pipe = self.in_network(una, max);
    }

    /// The value of Pipe by SetPipe() [bytes].
    pub(super) fn in_network(&self, una: u64, max: u64) -> u64 {
        let lost = self.lost_below.clamp(una, max);
        let again = self.high_rxt.clamp(una, max);
        // (a) not lost, (b) resent; some octets are both.
        let a = max - lost - self.ranges.covered(lost, max);
        let b = again - una - self.ranges.covered(una, again);
        a + b
    }

    /// Starts a recovery with an ACK that delivers `delivered` bytes.
    pub(super) fn begin_recovery(&mut self, una: u64, max: u64, delivered: u64) {
        // RFC 9937 section 6.1, RecoverFS: excludes data SACKed before, includes data that this ACK delivers.
        self.prr.recover_fs = (max - una + delivered).saturating_sub(self.sacked_bytes);
        self.prr.delivered = 0;
        self.prr.out = 0;
        self.first_due = true;
    }

    /// Clears the scoreboard after a timeout, RFC 2018 section 8: the receiver may have discarded SACKed data.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.sacked_bytes = 0;
        self.lost_below = 0;
        self.first_due = false;
    }

    /// The blocks of an ACK of `next`, RFC 2018 section 4. `ahead` has arrived above it, `newest` most recently. A FIN
    /// at `fin_at` is part of the block that reaches it.
    #[cold]
    pub(super) fn sack_blocks(
        &mut self,
        next: u64,
        ahead: &Ranges,
        newest: u64,
        fin_at: Option<NonZeroU64>,
    ) -> Sack {
        // The first block contains the segment that caused this ACK. The others repeat the first blocks of earlier
        // ACKs, so that each is reported several times.
        if let Some((start, end)) = ahead.containing(newest) {
            let mut index = 0;
            let mut before = newest;
            // Moves the other positions back by one, up to one that lies in the same range.
            while let Some(position) = self.recent.get_mut(index) {
                std::mem::swap(position, &mut before);
                if (start..end).contains(&before) {
                    break;
                }
                index += 1;
            }
        }
        let mut blocks = [(0, 0); Sack::MAX_BLOCKS];
        let mut count = 0;
        for (start, end) in self.recent.iter().filter_map(|&position| ahead.containing(position)) {
            let block = (start, end + u64::from(fin_at.is_some_and(|at| at.get() == end)));
            if count < Sack::MAX_BLOCKS && !blocks[..count].contains(&block) {
                blocks[count] = block;
                count += 1;
            }
        }
        let sack = Sack::new(next, &blocks[..count]);
        // RFC 2883 section 4: the D-SACK block comes first and is sent once.
        match self.dsack.take() {
            Some(duplicate) => sack.with_dsack(next, duplicate),
            None => sack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9937 section 6.2, with segments of 1000 bytes and ssthresh = 10 000.
    ///
    /// - Pipe above ssthresh: ceil(prr_delivered x ssthresh / RecoverFS) - prr_out; a third of 1000 is rounded up.
    /// - Otherwise max(prr_delivered - prr_out, DeliveredData), one segment more if the ACK is safe, up to ssthresh.
    /// - Without either, one segment if none was sent yet.
    #[test]
    fn prr_sends_as_much_as_rfc_9937_allows() {
        for (recover_fs, before, out, delivered, pipe, safe, sent) in [
            (20_000, 0, 0, 1000, 19_000, false, 500),
            (20_000, 0, 0, 1000, 19_000, true, 500),
            (30_000, 0, 0, 1000, 19_000, false, 334),
            (20_000, 1000, 0, 3000, 10_001, false, 2000),
            (20_000, 1000, 1000, 1000, 18_000, false, 0),
            (20_000, 1000, 1500, 1000, 18_000, false, 0),
            (20_000, 1000, 999, 1000, 18_000, false, 1),
            (20_000, 0, 0, 0, 18_000, false, 1000),
            (20_000, 0, 0, 1000, 10_000, true, 1000),
            (20_000, 0, 1, 1000, 10_000, true, 0),
            (20_000, 2500, 1000, 500, 5000, false, 2000),
            (20_000, 2500, 1000, 500, 5000, true, 3000),
            (20_000, 300, 5000, 700, 5000, false, 700),
            (20_000, 2500, 1000, 500, 9000, true, 1000),
        ] {
            let mut prr = Prr { recover_fs, delivered: before, out };
            let cwnd = prr.cwnd(delivered, pipe, 10_000, 1000, safe);
            assert_eq!(
                cwnd,
                pipe + sent,
                "{before} + {delivered} of {recover_fs} delivered, {out} sent, {pipe}"
            );
            assert_eq!(prr.delivered, before + delivered);
        }
    }
}
