//! Priorities of HTTP responses (RFC 9218) as those of quinn's streams.

use quinn_proto::StreamId;

/// Priority of a response (RFC 9218, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Urgency, from 0, the highest, to 7 (section 4.1).
    pub urgency: u8,
    /// True if the client can use parts of the response (section 4.2).
    pub incremental: bool,
}

/// Lowest urgency (RFC 9218, section 4.1).
const LEAST_URGENT: i32 = 7;

/// Ranks of each urgency: bit 28 and above hold the urgency, bit 27 and below the order of non-incremental responses.
const URGENCY_SHIFT: u32 = 28;
const FIRST_IN_ORDER: i32 = 1 << 27;

impl Priority {
    /// Rank of a stream at quinn, which sends the streams of the highest rank first and takes turns among equal ones.
    ///
    /// RFC 9218, section 10: the most urgent responses first; among equally urgent ones the non-incremental in the order of
    /// their streams, one after the other, and the incremental at once. Of both kinds, which the section leaves open, the
    /// non-incremental come first.
    pub(crate) fn rank(self, id: StreamId) -> i32 {
        let urgency = i32::from(self.urgency).min(LEAST_URGENT);
        let index = id.index().min(FIRST_IN_ORDER as u64 - 1) as i32;
        let order = if self.incremental { 0 } else { FIRST_IN_ORDER - index };
        (LEAST_URGENT - urgency) << URGENCY_SHIFT | order
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;

    /// In the order in which RFC 9218, section 10, serves them: urgency 0, then 1 by stream, then 3 with equal ranks, then 7.
    #[test]
    fn responses_rank_by_urgency_then_order_then_equally() {
        let rank = |urgency, incremental, stream| {
            Priority { urgency, incremental }.rank(StreamId::new(Side::Client, Dir::Bi, stream))
        };
        let served = [
            rank(0, true, 40),
            rank(1, false, 1),
            rank(1, false, 2),
            rank(1, false, 1 << 40),
            rank(1, true, 0),
            rank(3, false, 9),
            rank(3, true, 3),
            rank(7, true, 0),
        ];
        assert!(served.is_sorted_by(|first, second| first > second), "{served:?}");
        assert_eq!(rank(3, true, 3), rank(3, true, 8));
    }
}
