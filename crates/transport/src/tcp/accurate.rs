//! Accurate ECN feedback, RFC 9768: how many packets arrived with a mark, in three flags of each segment.
//!
//! - SYN: AE, CWR and ECE are set; the SYN-ACK and the ACK of it give the ECN field of what they answer in the same
//!   flags, sections 3.1.1, 3.2.2.1;
//! - after that they are the ACE field, the lowest three bits of `r.cep`, and the sender keeps `s.cep` in step with it,
//!   section 3.2.2.2;
//! - a mark after a packet without one is acknowledged at once, and so are two that were not reported, 3.2.2.5.1.
//!
//! Departures: there is no AccECN option, so bytes are reckoned from packets, each a full segment; and no tests for
//! flags or fields that were mangled on the way (sections 3.2.2.3, 3.2.2.4), for here nothing mangles them. A client
//! that has data to send acknowledges the SYN-ACK with it and so gives no ECN field of that (an exception in 3.2.2.1).

use bentpipe_units::Instant;

use super::connection::{Connection, Phase};
use super::{Config, Ecn, Flags, Segment};

/// The feedback that was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EcnMode {
    /// None: nothing is marked.
    Off,
    /// RFC 3168: marks are echoed until the sender says that it reduced its window.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// The counters of both halves, of which three bits count.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// r.cep: packets that arrived with a mark.
    received: u8,
    /// s.cep: what the peer has of it.
    sent: u8,
    /// Marks that no ACK has told of.
    unreported: u8,
    /// The last packet with data was marked.
    marked: bool,
    /// The ECN field of the peer's SYN or SYN-ACK.
    handshake_ecn: Ecn,
    /// The next ACK without data gives `handshake_ecn`.
    handshake_ecn_due: bool,
    /// The segment at hand gives the ECN field of our SYN-ACK.
    is_handshake_ack: bool,
    /// Marks that the ACK at hand tells of, 255 at the most [packets].
    new_marks: u8,
}

impl Counters {
    /// Section 3.2.1.
    pub(super) const fn new() -> Self {
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

/// The handshake encoding of an ECN field, table 3.
const fn encode_handshake_ecn(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    }
}

impl Connection {
    /// The peer's SYN: the feedback agreed on, table 2 and RFC 3168 section 6.1.1.
    pub(super) fn negotiate_ecn(&mut self, cfg: &Config, seg: &Segment) {
        let answer = seg.flags.has(Flags::ACK);
        let accurate = cfg.ecn && cfg.accurate_ecn;
        self.ecn = match (answer, seg.flags.ace()) {
            _ if !cfg.ecn => EcnMode::Off,
            (_, 0b000) => EcnMode::Off,
            // A SYN with ECE and CWR offers ECN, a SYN-ACK with ECE alone accepts.
            (false, 0b011) => EcnMode::Classic,
            // Section 3.1.2: whatever else a SYN says will one day offer more than this.
            (false, _) if accurate => EcnMode::Accurate,
            (false, 0b111) => EcnMode::Classic,
            (true, 0b001 | 0b101) => EcnMode::Classic,
            // A broken server repeats the flags.
            (true, 0b111) => EcnMode::Off,
            (true, _) if accurate => EcnMode::Accurate,
            _ => EcnMode::Off,
        };
        self.ace.handshake_ecn = seg.ecn;
        if answer && self.ecn == EcnMode::Accurate {
            self.ace.handshake_ecn_due = true;
            // Section 3.2.2.2: a mark on the SYN-ACK counts, once.
            self.ace.received += u8::from(seg.ecn == Ecn::Ce);
        }
    }

    /// The flags of a SYN, or of the answer to one.
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

    /// The ACE field of a segment that leaves; `pure`: an ACK without data.
    #[cold]
    pub(super) fn ace_flags(&mut self, pure: bool) -> Flags {
        self.ace.unreported = 0;
        let greets = std::mem::take(&mut self.ace.handshake_ecn_due) && pure;
        Flags::ACK.with_ace(if greets {
            encode_handshake_ecn(self.ace.handshake_ecn)
        } else {
            self.ace.received
        })
    }

    /// A packet with data arrived, and was taken in.
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

    /// The ACK of our SYN-ACK, section 3.2.2.1 and table 4.
    pub(super) fn on_handshake_ack(&mut self, seg: &Segment) {
        if self.ecn == EcnMode::Accurate && seg.len == 0 {
            self.ace.is_handshake_ack = true;
            self.ace.sent += u8::from(seg.flags.ace() == encode_handshake_ecn(Ecn::Ce));
        }
    }

    /// The ACE field of an ACK. Whether it tells of marks.
    #[cold]
    pub(super) fn on_ace(&mut self, cfg: &Config, now: Instant, seg: &Segment) -> bool {
        self.ace.new_marks = 0;
        // Section 3.2.2.2: an ACK that another has superseded says nothing.
        if std::mem::take(&mut self.ace.is_handshake_ack) || seg.ack < self.una {
            return false;
        }
        let smss = cfg.smss();
        let acked = seg.ack - self.una;
        // What arrived out of order was acknowledged then, with its marks.
        let told = match &self.sack {
            Some(board) => board.ranges.covered(self.una, seg.ack),
            None => u64::from(self.duplicate_acks) * smss,
        };
        let packets = acked.saturating_sub(told).div_ceil(smss);
        let least = u64::from(seg.flags.ace().wrapping_sub(self.ace.sent) & 7);
        // Section 3.2.2.5.2: an ACK of more packets than the field can count may hide cycles of it, and is taken to hide
        // as many as it can.
        let marks = if packets > 7 { packets - (packets - least) % 8 } else { least };
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

    /// How much of the `acked` bytes of an ACK that tells of marks the window may grow for: nothing, as RFC 3168 section
    /// 6.1.2 has it, or what arrived without a mark.
    pub(super) fn unmarked_bytes(&self, cfg: &Config, acked: u64) -> u64 {
        match self.ace.new_marks {
            told @ 1..=254 if cfg.algorithm.is_l4s() => acked.saturating_sub(u64::from(told) * cfg.smss()),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Algorithm, Sack, Timestamps};

    /// A sender of segments of 1000 bytes with 100 of them under way.
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

    /// RFC 9768 section 3.2.2.2 from s.cep = 5 on: three bits wrap at 8, and an ACK that comes late says nothing.
    #[test]
    fn three_bits_count_on() {
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

    /// An ACK of four segments, one of them marked: alpha is 15/16 + 1/16 x 1/4 after it, so that 100 000 (1 - 61/128) =
    /// 52 343 bytes are left. The other three count for growth, for no more than an ACK does: 1000 x 1000 / 52 343 = 19.
    /// DCTCP grows by nothing, nor does Prague where all four are marked.
    #[test]
    fn prague_grows_for_what_was_not_marked() {
        for (algorithm, marks, cwnd) in
            [(Algorithm::Prague, 1, 52_362), (Algorithm::Dctcp, 1, 52_343), (Algorithm::Prague, 4, 50_000)]
        {
            let cfg = Config { mss: 1000, algorithm, ..Config::default() };
            let mut c = sender(&cfg);
            (c.window.cwnd, c.window.ssthresh, c.cwnd_limited) = (100_000, 100_000, true);
            c.on_ack(&cfg, Instant::ZERO, &ack(4, (5 + marks) & 7));
            assert_eq!(c.window.cwnd, cwnd, "{algorithm:?} {marks}");
        }
    }

    /// Section 3.2.2.5.2: of ten packets at once, two marks may be ten, and three cannot be eleven; of seven, all is known.
    #[test]
    fn what_may_have_cycled_is_taken_to_have() {
        let cfg = Config { mss: 1000, algorithm: Algorithm::Dctcp, ..Config::default() };
        for (packets, more, expected) in
            [(7, 0, 0), (7, 7, 7), (8, 0, 8), (10, 2, 10), (10, 3, 3), (20, 4, 20)]
        {
            let mut c = sender(&cfg);
            c.on_ace(&cfg, Instant::ZERO, &ack(packets, (5 + more) & 7));
            assert_eq!(u64::from(c.ace.sent) - 5, expected, "{more} of {packets}");
        }
        // What duplicate ACKs told of is not new.
        let mut c = sender(&cfg);
        c.duplicate_acks = 9;
        c.on_ace(&cfg, Instant::ZERO, &ack(10, 5));
        assert_eq!(c.ace.sent, 5);
    }
}
