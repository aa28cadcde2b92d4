//! Accurate ECN feedback, RFC 9768: the number of marked packets, in three flags of each segment.
//!
//! - SYN: AE, CWR and ECE are set; the SYN-ACK and its ACK return the ECN field of the packet they answer in the same
//!   flags, sections 3.1.1, 3.2.2.1;
//! - afterwards they form the ACE field, the lowest three bits of `r.cep`, which `s.cep` of the sender follows, section
//!   3.2.2.2;
//! - a mark after an unmarked packet is acknowledged at once, and so are two unreported marks, section 3.2.2.5.1.
//!
//! Departures: no AccECN option, so bytes are derived from packets, each a full segment; no tests for mangled flags or
//! fields (sections 3.2.2.3, 3.2.2.4), because nothing mangles them here. A client with data to send acknowledges the
//! SYN-ACK with it and does not return its ECN field (an exception in 3.2.2.1).

use bentpipe_units::Instant;

use super::connection::{Connection, Phase};
use super::{Config, Ecn, Flags, Segment};

/// Negotiated ECN feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum EcnMode {
    /// Not ECN-capable.
    #[default]
    Off,
    /// RFC 3168: marks are echoed until the sender signals that it reduced its window.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// Mark counters of both directions, of which the ACE field carries three bits.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// r.cep: marked packets received.
    received: u8,
    /// s.cep: the peer's count, as far as reported.
    sent: u8,
    /// Marks not reported in any ACK.
    unreported: u8,
    /// The last data packet was marked.
    marked: bool,
    /// ECN field of the peer's SYN or SYN-ACK.
    handshake_ecn: Ecn,
    /// The next ACK without data returns `handshake_ecn`.
    handshake_ecn_due: bool,
    /// The current segment returns the ECN field of our SYN-ACK.
    is_handshake_ack: bool,
    /// Marks reported by the current ACK, at most 255 [packets].
    new_marks: u8,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: 5,
            sent: 5,
            unreported: 0,
            marked: false,
            handshake_ecn: Ecn::NotEct,
            handshake_ecn_due: false,
            is_handshake_ack: false,
            new_marks: 0,
        }
    }
}

/// Encoding of an ECN field in the handshake, table 3.
const fn encode_handshake_ecn(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    }
}

impl Connection {
    /// Negotiates the feedback with the peer's SYN, table 2 and RFC 3168 section 6.1.1.
    pub(super) fn negotiate_ecn(&mut self, cfg: &Config, seg: &Segment) {
        let answer = seg.flags.has(Flags::ACK);
        let accurate = cfg.ecn && cfg.accurate_ecn;
        self.ecn = match (answer, seg.flags.ace()) {
            _ if !cfg.ecn => EcnMode::Off,
            (_, 0b000) => EcnMode::Off,
            // A SYN with ECE and CWR offers ECN, a SYN-ACK with ECE alone accepts.
            (false, 0b011) => EcnMode::Classic,
            // Section 3.1.2: other values of a SYN are reserved for extensions of accurate ECN.
            (false, _) if accurate => EcnMode::Accurate,
            (false, 0b111) => EcnMode::Classic,
            (true, 0b001 | 0b101) => EcnMode::Classic,
            // A broken server that reflects the flags.
            (true, 0b111) => EcnMode::Off,
            (true, _) if accurate => EcnMode::Accurate,
            _ => EcnMode::Off,
        };
        self.ace.handshake_ecn = seg.ecn;
        if answer && self.ecn == EcnMode::Accurate {
            self.ace.handshake_ecn_due = true;
            // Section 3.2.2.2: a mark on the SYN-ACK counts once.
            self.ace.received += u8::from(seg.ecn == Ecn::Ce);
        }
    }

    /// Flags of a SYN or SYN-ACK.
    pub(super) fn syn_flags(&self, cfg: &Config, answer: bool) -> Flags {
        let base = Flags::SYN.with(Flags::ACK, answer);
        match (answer, self.ecn) {
            (false, _) if !cfg.ecn => base,
            // RFC 3168 section 6.1.1: ECE and CWR offer ECN, ECE alone accepts it.
            (false, _) => base | Flags::ECE | Flags::CWR.with(Flags::AE, cfg.accurate_ecn),
            (true, EcnMode::Off) => base,
            (true, EcnMode::Classic) => base | Flags::ECE,
            (true, EcnMode::Accurate) => base.with_ace(encode_handshake_ecn(self.ace.handshake_ecn)),
        }
    }

    /// Flags with the ACE field of a segment to send; `pure`: an ACK without data.
    #[cold]
    pub(super) fn ace_flags(&mut self, pure: bool) -> Flags {
        self.ace.unreported = 0;
        let in_handshake = std::mem::take(&mut self.ace.handshake_ecn_due) && pure;
        Flags::ACK.with_ace(if in_handshake {
            encode_handshake_ecn(self.ace.handshake_ecn)
        } else {
            self.ace.received
        })
    }

    /// Counts the mark of a data packet.
    #[cold]
    pub(super) fn count_mark(&mut self, ecn: Ecn) {
        let marked = ecn == Ecn::Ce;
        let first = marked && !self.ace.marked;
        self.ace.marked = marked;
        if marked {
            self.ace.received = self.ace.received.wrapping_add(1);
            self.ace.unreported = self.ace.unreported.saturating_add(1);
            // Section 3.2.2.5.1: change-triggered and increment-triggered ACKs.
            self.rx.ack_now |= first || self.ace.unreported >= 2;
        }
    }

    /// Reports a mark that this connection's data got after a PEP had acknowledged it. Only with SACK may an ACK be sent for it at once: without, it would count as a duplicate.
    pub fn echo_mark(&mut self) {
        match self.ecn {
            EcnMode::Off => {}
            EcnMode::Classic => self.rx.echo = true,
            EcnMode::Accurate => {
                self.ace.received = self.ace.received.wrapping_add(1);
                self.ace.unreported = self.ace.unreported.saturating_add(1);
                self.rx.ack_now |= self.sack.is_some() && self.ace.unreported >= 2;
            }
        }
    }

    /// Processes the ACK of our SYN-ACK, section 3.2.2.1 and table 4.
    pub(super) fn on_handshake_ack(&mut self, seg: &Segment) {
        if self.ecn == EcnMode::Accurate && seg.len == 0 {
            self.ace.is_handshake_ack = true;
            self.ace.sent += u8::from(seg.flags.ace() == encode_handshake_ecn(Ecn::Ce));
        }
    }

    /// Processes the ACE field of an ACK. Returns true if it reports marks.
    #[cold]
    pub(super) fn on_ace(&mut self, cfg: &Config, now: Instant, seg: &Segment) -> bool {
        self.ace.new_marks = 0;
        // Section 3.2.2.2: an ACK superseded by another is ignored.
        if std::mem::take(&mut self.ace.is_handshake_ack) || seg.ack < self.una {
            return false;
        }
        let smss = cfg.smss();
        let acked = seg.ack - self.una;
        // Data received out of order was acknowledged earlier, with its marks.
        let known = match &self.sack {
            Some(board) => board.ranges.covered(self.una, seg.ack),
            None => u64::from(self.duplicate_acks) * smss,
        };
        let packets = acked.saturating_sub(known).div_ceil(smss);
        let min_marks = u64::from(seg.flags.ace().wrapping_sub(self.ace.sent) & 7);
        // Section 3.2.2.5.2: the ACE field of an ACK of more packets than it can count may have wrapped; the largest
        // possible number of marks is assumed.
        let marks = if packets > 7 { packets - (packets - min_marks) % 8 } else { min_marks };
        self.ace.sent = self.ace.sent.wrapping_add(marks as u8);
        self.ace.new_marks = marks.min(255) as u8;
        let marked = marks * smss;
        self.algorithm.on_ecn_feedback(acked.max(marked.min(smss)), marked, seg.ack, self.nxt, now);
        if marks == 0 {
            return false;
        }
        if !self.algorithm.is_proportional() {
            return self.on_ece(cfg, now, seg.ack);
        }
        if seg.ack > self.reduced && self.phase == Phase::Open {
            self.algorithm.on_mark(&mut self.window, seg.ack, self.max, smss, now);
        }
        true
    }

    /// The part of the `acked` bytes of an ACK with marks for which the window may grow: none by RFC 3168 section
    /// 6.1.2, or the unmarked part [bytes].
    pub(super) fn unmarked_bytes(&self, cfg: &Config, acked: u64) -> u64 {
        match self.ace.new_marks {
            marks @ 1..=254 if cfg.algorithm.is_l4s() => acked.saturating_sub(u64::from(marks) * cfg.smss()),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::Window;
    use crate::tcp::{Algorithm, Sack, Timestamps};

    /// A sender with 100 segments of 1000 bytes in flight.
    fn sender(cfg: &Config) -> Connection {
        let mut c = Connection::connect(cfg, Instant::ZERO);
        (c.una, c.nxt, c.max, c.ecn) = (1, 100_001, 100_001, EcnMode::Accurate);
        c
    }

    fn ack(segments: u64, ace: u8) -> Segment {
        Segment {
            seq: 1,
            ack: 1 + segments * 1000,
            len: 0,
            window: 1_000_000,
            cwnd: 0,
            sack: Sack::NONE,
            timestamps: Timestamps::NONE,
            flags: Flags::ACK.with_ace(ace),
            retransmission: false,
            ecn: Ecn::NotEct,
        }
    }

    /// RFC 9768 section 3.2.2.2, starting from s.cep = 5: three bits wrap at 8, and a late ACK is ignored.
    #[test]
    fn ace_field_counts_modulo_eight() {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Dctcp, ..Config::default() };
        let mut c = sender(&cfg);
        for (acked, ace, expected) in [
            (1, 5, 5),
            (2, 6, 6),
            (3, 7, 7),
            (4, 0, 8),
            (6, 2, 10),
            (13, 1, 17),
            (12, 7, 17),
            (14, 1, 17),
            (16, 3, 19),
        ] {
            let segment = ack(acked, ace);
            c.on_ace(&cfg, Instant::ZERO, &segment);
            c.una = c.una.max(segment.ack);
            assert_eq!(c.ace.sent, expected, "{acked} {ace}");
        }
    }

    /// An ACK of four segments, one of them marked: alpha becomes 15/16 + 1/16 x 1/4, so 100 000 (1 - 61/128) = 52 343
    /// bytes remain. The other three count for growth, but no more than one ACK: 1000 x 1000 / 52 343 = 19. DCTCP does
    /// not grow, nor does Prague if all four are marked.
    #[test]
    fn prague_window_grows_for_unmarked_bytes_only() {
        for (algorithm, marks, cwnd) in
            [(Algorithm::Prague, 1, 52_362), (Algorithm::Dctcp, 1, 52_343), (Algorithm::Prague, 4, 50_000)]
        {
            let cfg = Config { mss: 1000, algorithm, ..Config::default() };
            let mut c = sender(&cfg);
            (c.window, c.cwnd_limited) = (Window::new(100_000, Some(100_000)), true);
            c.on_ack(&cfg, Instant::ZERO, &ack(4, (5 + marks) & 7));
            assert_eq!(c.window.cwnd, cwnd, "{algorithm:?} {marks}");
        }
    }

    /// Section 3.2.2.5.2: for ten packets acknowledged at once, two marks may be ten, and three cannot be eleven; for
    /// seven the count is exact.
    #[test]
    fn ambiguous_ace_counts_the_most_marks_possible() {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Dctcp, ..Config::default() };
        for (packets, more, expected) in
            [(7, 0, 0), (7, 7, 7), (8, 0, 8), (10, 2, 10), (10, 3, 3), (20, 4, 20)]
        {
            let mut c = sender(&cfg);
            c.on_ace(&cfg, Instant::ZERO, &ack(packets, (5 + more) & 7));
            assert_eq!(u64::from(c.ace.sent) - 5, expected, "{more} of {packets}");
        }
        // Packets reported by duplicate ACKs are not new.
        let mut c = sender(&cfg);
        c.duplicate_acks = 9;
        c.on_ace(&cfg, Instant::ZERO, &ack(10, 5));
        assert_eq!(c.ace.sent, 5);
    }

    /// Marks further on count as marks on arrival. Two that no ACK has reported are acknowledged at once if the ACK cannot
    /// count as a duplicate; a classic echo waits for the next ACK.
    #[test]
    fn marks_behind_a_proxy_are_echoed() {
        let cfg = Config { ecn: true, accurate_ecn: true, ..Config::default() };
        let mut c = sender(&cfg);
        c.echo_mark();
        assert_eq!((c.ace.received, c.rx.ack_now), (6, false));
        c.echo_mark();
        assert_eq!((c.ace.received, c.rx.ack_now), (7, false));
        c.sack = Some(Box::default());
        c.echo_mark();
        assert_eq!((c.ace.received, c.rx.ack_now), (8, true));
        assert_eq!(c.ace_flags(true).ace(), 0);
        c.ecn = EcnMode::Classic;
        c.echo_mark();
        assert!(c.rx.echo);
    }
}
