//! Verdicts on packets of a netfilter queue, until the kernel knows them.

use std::collections::VecDeque;
use std::{io, mem};

use super::netlink::{VERDICT, VERDICT_BATCH, verdict};

/// Decision on a packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Waiting,
    Accept,
    Drop,
    /// Accept with the `len` bytes at `at` of [`Decisions::changed`].
    Changed {
        at: usize,
        len: usize,
    },
    /// The kernel knows the verdict, or the packet was never received.
    Gone,
}

/// Approximate size of a datagram with verdicts [bytes].
const DATAGRAM: usize = 32 << 10;

/// Decisions in the order of packet ids, until the kernel knows them.
#[derive(Debug)]
pub(super) struct Decisions {
    /// Id of the first of `list`, or the next id if it is empty.
    pub(super) first: u32,
    pub(super) list: VecDeque<Decision>,
    /// Decisions that the kernel does not know yet.
    ready: usize,
    /// Bytes of changed packets.
    changed: Vec<u8>,
}

impl Decisions {
    pub(super) fn new() -> Self {
        // The first packet of a queue has id 1.
        Self { first: 1, list: VecDeque::new(), ready: 0, changed: Vec::new() }
    }

    /// Adds a received packet. Returns the number of ids skipped since the one before.
    pub(super) fn add(&mut self, id: u32) -> u32 {
        let skipped = id.wrapping_sub(self.first.wrapping_add(self.list.len() as u32));
        // Ids only increase.
        if skipped > u32::MAX / 2 {
            return 0;
        }
        if self.list.is_empty() {
            self.first = id;
        } else {
            self.list.extend(std::iter::repeat_n(Decision::Gone, skipped as usize));
        }
        self.list.push_back(Decision::Waiting);
        skipped
    }

    pub(super) fn decide(&mut self, id: u32, decision: Decision) {
        let place = id.wrapping_sub(self.first) as usize;
        if let Some(slot @ Decision::Waiting) = self.list.get_mut(place) {
            *slot = decision;
            self.ready += 1;
        }
    }

    pub(super) fn decide_changed(&mut self, id: u32, packet: &[u8]) {
        let at = self.changed.len();
        self.changed.extend_from_slice(packet);
        self.decide(id, Decision::Changed { at, len: packet.len() });
    }

    /// Encodes the decisions as messages and calls `send` with about [`DATAGRAM`] bytes at a time.
    ///
    /// Packets leave in the order of arrival, whatever the order of decisions within this call.
    pub(super) fn send_verdicts(
        &mut self,
        number: u16,
        out: &mut Vec<u8>,
        send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.ready == 0 {
            return Ok(());
        }
        out.clear();
        let mut sent = Ok(());
        // The last of a run of accepted packets. One message accepts all up to an id, if none before it waits.
        let (mut run, mut waits) = (None, false);
        for place in 0..self.list.len() {
            let id = self.first.wrapping_add(place as u32);
            match mem::replace(&mut self.list[place], Decision::Gone) {
                Decision::Gone => continue,
                Decision::Waiting => {
                    self.list[place] = Decision::Waiting;
                    waits = true;
                    if let Some(last) = run.take() {
                        verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
                    }
                }
                Decision::Accept if !waits => run = Some(id),
                Decision::Accept => verdict(out, number, VERDICT, libc::NF_ACCEPT, id, None),
                // Sent before the run's message, which would accept it.
                Decision::Drop => verdict(out, number, VERDICT, libc::NF_DROP, id, None),
                Decision::Changed { at, len } => {
                    if let Some(last) = run.take() {
                        verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
                    }
                    verdict(out, number, VERDICT, libc::NF_ACCEPT, id, Some(&self.changed[at..at + len]));
                }
            }
            if out.len() >= DATAGRAM {
                sent = send(out).and(sent);
                out.clear();
            }
        }
        if let Some(last) = run {
            verdict(out, number, VERDICT_BATCH, libc::NF_ACCEPT, last, None);
        }
        if !out.is_empty() {
            sent = send(out).and(sent);
        }
        while let Some(Decision::Gone) = self.list.front() {
            self.list.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.ready = 0;
        self.changed.clear();
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::{big, native};
    use super::*;
    use crate::intercept::nfqueue::WHOLE;

    /// Decodes verdicts: true for a batch verdict, accept (1) or drop (0), id, bytes.
    fn decoded(decisions: &mut Decisions) -> Vec<(bool, u32, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut read = |bytes: &[u8]| {
            let mut at = 0;
            while at < bytes.len() {
                let length = native(bytes, at).unwrap() as usize;
                let kind = u16::from_ne_bytes([bytes[at + 4], bytes[at + 5]]);
                assert!(kind == 0x0301 || kind == 0x0303);
                // Request without acknowledgement; any family, version 0, queue 515.
                assert_eq!(bytes[at + 6..at + 8], 1u16.to_ne_bytes());
                assert_eq!(bytes[at + 16..at + 20], [0, 0, 2, 3]);
                // Attribute 2, 12 bytes with its header.
                assert_eq!(bytes[at + 20..at + 24], [12u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
                let payload = if length > 32 {
                    let size = usize::from(u16::from_ne_bytes([bytes[at + 32], bytes[at + 33]]));
                    assert_eq!(bytes[at + 34..at + 36], 10u16.to_ne_bytes());
                    bytes[at + 36..at + 32 + size].to_vec()
                } else {
                    Vec::new()
                };
                all.push((
                    kind == 0x0303,
                    big(bytes, at + 24).unwrap(),
                    big(bytes, at + 28).unwrap(),
                    payload,
                ));
                assert_eq!(length % 4, 0);
                at += length;
            }
            Ok(())
        };
        decisions.send_verdicts(515, &mut Vec::new(), &mut read).unwrap();
        all
    }

    fn of(first: u32, count: u32) -> Decisions {
        let mut decisions = Decisions { first, ..Decisions::new() };
        for place in 0..count {
            assert_eq!(decisions.add(first.wrapping_add(place)), 0);
        }
        decisions
    }

    #[test]
    fn accepted_packets_in_a_row_need_one_message() {
        let mut decisions = of(1, 5);
        assert_eq!(decoded(&mut decisions), []);
        for id in [3, 1, 2, 5, 4] {
            decisions.decide(id, Decision::Accept);
        }
        assert_eq!(decoded(&mut decisions), [(true, 1, 5, vec![])]);
        assert_eq!(decoded(&mut decisions), []);
        assert_eq!((decisions.first, decisions.list.len()), (6, 0));
    }

    #[test]
    fn drops_are_sent_before_the_batch_around_them() {
        let mut decisions = of(1, 4);
        for id in [1, 2, 4] {
            decisions.decide(id, Decision::Accept);
        }
        decisions.decide(3, Decision::Drop);
        assert_eq!(decoded(&mut decisions), [(false, 0, 3, vec![]), (true, 1, 4, vec![])]);
    }

    #[test]
    fn changed_packets_keep_their_order() {
        let mut decisions = of(1, 5);
        for id in [1, 3, 5] {
            decisions.decide(id, Decision::Accept);
        }
        decisions.decide_changed(4, &[7; 5]);
        decisions.decide_changed(2, &[8; 4]);
        let expected = [
            (true, 1, 1, vec![]),
            (false, 1, 2, vec![8; 4]),
            (true, 1, 3, vec![]),
            (false, 1, 4, vec![7; 5]),
            (true, 1, 5, vec![]),
        ];
        assert_eq!(decoded(&mut decisions), expected);
    }

    #[test]
    fn the_longest_packet_fits_an_attribute() {
        let mut decisions = of(1, 1);
        decisions.decide_changed(1, &vec![7; WHOLE as usize]);
        assert_eq!(decoded(&mut decisions), [(false, 1, 1, vec![7; WHOLE as usize])]);
    }

    #[test]
    fn waiting_packets_get_no_verdict() {
        let mut decisions = of(1, 5);
        for id in [1, 2, 4, 5] {
            decisions.decide(id, Decision::Accept);
        }
        // A second decision on a packet is ignored, and so is one on an unknown packet.
        decisions.decide(4, Decision::Drop);
        decisions.decide(9, Decision::Drop);
        decisions.decide(0, Decision::Drop);
        assert_eq!(
            decoded(&mut decisions),
            [(true, 1, 2, vec![]), (false, 1, 4, vec![]), (false, 1, 5, vec![])]
        );
        decisions.decide(3, Decision::Drop);
        assert_eq!(decoded(&mut decisions), [(false, 0, 3, vec![])]);
        assert_eq!((decisions.first, decisions.list.len()), (6, 0));
    }

    #[test]
    fn skipped_and_wrapped_ids_are_handled() {
        let mut decisions = of(u32::MAX - 1, 1);
        assert_eq!(decisions.add(2), 3);
        // An id that was seen before is ignored.
        assert_eq!(decisions.add(0), 0);
        for id in [u32::MAX - 1, 2] {
            decisions.decide(id, Decision::Accept);
        }
        assert_eq!(decoded(&mut decisions), [(true, 1, 2, vec![])]);
        assert_eq!(decisions.add(5), 2);
        assert_eq!(decisions.first, 5);
    }

    #[test]
    fn many_verdicts_are_sent_in_parts() {
        let mut decisions = of(1, 100);
        for id in 1..=100 {
            decisions.decide_changed(id, &[1; 1500]);
        }
        let mut parts = Vec::new();
        let mut count = |bytes: &[u8]| {
            parts.push(bytes.len());
            if parts.len() == 2 { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        };
        // If the kernel refuses a part, the rest is still sent, and the error is returned.
        assert!(decisions.send_verdicts(0, &mut Vec::new(), &mut count).is_err());
        assert_eq!(parts.iter().sum::<usize>(), 100 * (20 + 12 + 4 + 1500));
        assert!(parts.len() > 3 && parts.iter().all(|part| *part < DATAGRAM + 1600), "{parts:?}");
    }
}
