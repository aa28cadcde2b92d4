//! SACK processing: RFC 9260 sections 6.2.1, 6.3.2 and 7.2.

use bentpipe_units::Instant;

use super::association::{Association, ChunkState};
use super::{Config, Sack};

/// Miss indications that indicate a loss, section 7.2.4.
const MISS_THRESHOLD: u8 = 3;

/// Changes that a SACK makes to the outstanding DATA chunks.
#[derive(Default)]
struct AckSummary {
    /// Size of the newly acknowledged DATA chunks [bytes].
    acked: u64,
    /// HTNA of section 7.2.4: highest TSN newly acknowledged.
    highest: u64,
    /// True if the Cumulative TSN Ack Point advanced.
    advanced: bool,
}

impl Association {
    /// Processes a SACK.
    pub(super) fn on_sack(&mut self, cfg: &Config, now: Instant, sack: &Sack) {
        // Section 6.2.1 (D) i: an outdated SACK. A TSN that was never sent cannot be acknowledged.
        if sack.cum_tsn_ack < self.first - 1 || sack.cum_tsn_ack >= self.next_tsn() {
            return;
        }
        self.answered = true;
        let before = self.flight;
        let mut summary = self.ack_cumulative(cfg, now, sack.cum_tsn_ack);
        let reported = self.ack_gap_blocks(cfg, now, sack, &mut summary);
        // (D) ii.
        self.rwnd = u64::from(sack.a_rwnd).saturating_sub(self.flight_data);
        self.grow(cfg, before, &summary, sack.duplicate_bytes.into());
        self.update_timer(now, &summary);
        self.count_misses(cfg, &summary, reported);
    }

    /// Processes the cumulative TSN ack of a SHUTDOWN.
    pub(super) fn on_cumulative_ack(&mut self, cfg: &Config, now: Instant, cum_tsn_ack: u64) {
        if cum_tsn_ack >= self.next_tsn() {
            return;
        }
        let before = self.flight;
        let summary = self.ack_cumulative(cfg, now, cum_tsn_ack);
        self.grow(cfg, before, &summary, 0);
        self.update_timer(now, &summary);
    }

    /// Acknowledges all TSNs up to `cum_tsn_ack`.
    fn ack_cumulative(&mut self, cfg: &Config, now: Instant, cum_tsn_ack: u64) -> AckSummary {
        let mut summary = AckSummary { advanced: cum_tsn_ack >= self.first, ..AckSummary::default() };
        while self.first <= cum_tsn_ack {
            let Some(chunk) = self.chunks.pop_front() else { break };
            let tsn = self.first;
            self.first += 1;
            self.acked += u64::from(chunk.len);
            match chunk.state {
                ChunkState::Acked => {
                    self.gap_acked -= 1;
                    continue;
                }
                ChunkState::Lost => self.lost -= 1,
                ChunkState::Outstanding => {
                    self.flight -= chunk.size();
                    self.flight_data -= u64::from(chunk.len);
                }
            }
            summary.acked += chunk.size();
            summary.highest = tsn;
            self.rto.on_acked(cfg, now, tsn);
        }
        self.lost_from = self.lost_from.max(self.first);
        summary
    }

    /// Processes gap ack blocks and returns the last TSN they report.
    fn ack_gap_blocks(&mut self, cfg: &Config, now: Instant, sack: &Sack, summary: &mut AckSummary) -> u64 {
        if sack.blocks.is_empty() && self.gap_acked == 0 {
            return sack.cum_tsn_ack;
        }
        let last = sack.blocks.last().map_or(sack.cum_tsn_ack, |block| sack.cum_tsn_ack + u64::from(block.1));
        // A report that fills its packet says nothing about TSNs after its last block.
        let full = sack.blocks.len() >= cfg.max_gap_blocks();
        let mut blocks = sack
            .blocks
            .iter()
            .map(|b| (sack.cum_tsn_ack + u64::from(b.0), sack.cum_tsn_ack + u64::from(b.1)));
        let mut block = blocks.next();
        let (mut tsn, mut known) = (self.first, self.gap_acked);
        for chunk in &mut self.chunks {
            while block.is_some_and(|(_, end)| end < tsn) {
                block = blocks.next();
            }
            known -= usize::from(chunk.state == ChunkState::Acked);
            if block.is_some_and(|(start, _)| start <= tsn) {
                if chunk.state != ChunkState::Acked {
                    if chunk.state == ChunkState::Lost {
                        self.lost -= 1;
                    } else {
                        self.flight -= chunk.size();
                        self.flight_data -= u64::from(chunk.len);
                    }
                    chunk.state = ChunkState::Acked;
                    self.gap_acked += 1;
                    summary.acked += chunk.size();
                    summary.highest = summary.highest.max(tsn);
                    self.rto.on_acked(cfg, now, tsn);
                }
            } else if chunk.state == ChunkState::Acked && (tsn <= last || !full) {
                // Section 6.2.1 (D) iii: the receiver reneged. One miss indication, and T3-rtx runs.
                chunk.state = ChunkState::Outstanding;
                chunk.misses = chunk.misses.saturating_add(1);
                self.gap_acked -= 1;
                self.flight += chunk.size();
                self.flight_data += u64::from(chunk.len);
                if self.timer_at.is_none() {
                    self.timer_at = Some(now + self.rto.interval());
                }
            }
            tsn += 1;
            // Beyond the report, only reneged chunks change.
            if tsn > last && (full || known == 0) {
                break;
            }
        }
        last
    }

    /// Sections 7.2.1 and 7.2.2: increases the window. `before`: outstanding data before the SACK [bytes].
    fn grow(&mut self, cfg: &Config, before: u64, summary: &AckSummary, duplicate_bytes: u64) {
        if summary.acked > 0 {
            // Section 7.2.3: more than one packet may be in flight again; section 8.1: the peer answers.
            self.one_packet_in_flight = false;
            self.errors = 0;
        }
        let pmdcs = cfg.pmdcs();
        if self.ssthresh.is_none_or(|ssthresh| self.cwnd <= ssthresh) {
            // Slow start: only if the window was fully used, and not in Fast Recovery.
            if before >= self.cwnd && self.recovery.is_none() {
                self.cwnd += summary.acked.min(u64::from(cfg.slow_start_limit.max(1)) * pmdcs);
            }
        } else {
            // Each SACK counts, also one that only reports duplicates.
            self.partial_bytes_acked += summary.acked + duplicate_bytes;
            if before < self.cwnd {
                self.partial_bytes_acked = self.partial_bytes_acked.min(self.cwnd);
            } else if self.partial_bytes_acked >= self.cwnd {
                self.partial_bytes_acked -= self.cwnd;
                self.cwnd += pmdcs;
            }
        }
        if self.chunks.is_empty() {
            self.partial_bytes_acked = 0;
        }
    }

    /// Updates the timer and ends Fast Recovery.
    fn update_timer(&mut self, now: Instant, summary: &AckSummary) {
        // Section 6.2.1 (D) iv.
        if self.recovery.is_some_and(|exit| self.first > exit) {
            self.recovery = None;
        }
        if self.chunks.is_empty() {
            // Section 6.3.2, R2: everything is acknowledged.
            self.timer_at = None;
        } else if summary.advanced {
            // R3: the earliest outstanding TSN is acknowledged.
            self.timer_at = Some(now + self.rto.interval());
        }
    }

    /// Section 7.2.4: counts miss indications.
    fn count_misses(&mut self, cfg: &Config, summary: &AckSummary, reported: u64) {
        // For TSNs below the highest newly acknowledged; in Fast Recovery, if the Cumulative TSN Ack Point advanced,
        // for all that are reported missing.
        let limit = if self.recovery.is_some() && summary.advanced { reported } else { summary.highest };
        let missing = limit.saturating_sub(self.first) as usize;
        let mut found = false;
        for (tsn, chunk) in (self.first..).zip(self.chunks.iter_mut().take(missing)) {
            if chunk.state != ChunkState::Outstanding || chunk.fast_retransmitted {
                continue;
            }
            chunk.misses = chunk.misses.saturating_add(1);
            if chunk.misses >= MISS_THRESHOLD {
                // (1), (5): marked, once. Section 6.2.1 (C): its size is added to rwnd.
                chunk.state = ChunkState::Lost;
                chunk.fast_retransmitted = true;
                self.flight -= chunk.size();
                self.flight_data -= u64::from(chunk.len);
                self.rwnd += u64::from(chunk.len);
                self.lost += 1;
                self.lost_from = self.lost_from.min(tsn);
                found = true;
            }
        }
        if found && self.recovery.is_none() {
            // (2), (3), (6).
            self.cwnd = self.reduce(cfg);
            self.fast_due = true;
            self.recovery = Some(self.next_tsn() - 1);
            self.stats.fast_retransmits += 1;
        }
    }

    /// Section 7.2.3: ssthresh <- max(cwnd / 2, 4 PMDCS), which it returns [bytes].
    pub(super) fn reduce(&mut self, cfg: &Config) -> u64 {
        let reduced = (self.cwnd / 2).max(4 * cfg.pmdcs());
        self.ssthresh = Some(reduced);
        self.partial_bytes_acked = 0;
        reduced
    }
}
