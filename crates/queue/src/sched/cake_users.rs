//! CAKE with host isolation: equal shares for users, and within a user for its flows.
//!
//! Høiland-Jørgensen, Täht & Morton 2018, *Piece of CAKE*, section 3.2; `dual-dsthost` of Linux's sch_cake. It is
//! [`cake`](super::cake) but for the quantum: that of a queue is divided by the number of queues with a backlog that its user
//! has. A user with twenty downloads gets no more than one with a single call, and the call still has a separate queue.
//!
//! Only queues that have sent a quantum and held a packet since (the *old* ones) count, so that a flow that sends little, such
//! as a call, costs its user nothing.
//!
//! *Departures:* besides those of `cake`, at most 64 queues of a user are counted, so that a packet costs at most 64 turns; a
//! user with more gets more than its share. The quotient is rounded down, where sch_cake rounds at random.
//!
//! *In a satellite gateway:* a user is a host behind the terminals, as with `flow_key = "user"`; at a link without a gateway
//! it is the host that receives the data. The algorithm belongs where subscribers share a queue and some have many
//! connections; as `cake`, it drops acknowledged packets at the transmit queue of a gateway with a PEP.

use super::cake::{Cake, PARAMS};
use crate::descriptor::SchedulerAlgorithm;

/// The registry's entry.
pub const ALGORITHM: SchedulerAlgorithm = SchedulerAlgorithm {
    name: "cake_users",
    title: "CAKE with fairness between users",
    source: "Høiland-Jørgensen, Täht & Morton 2018, section 3.2",
    params: PARAMS,
    signals: true,
    build: |values| Ok(Box::new(Cake::new(values)?.fair_between_users())),
};

#[cfg(test)]
mod tests {
    use super::super::buckets::{BucketId, Buckets};
    use super::super::steps::Steps;
    use super::ALGORITHM;
    use crate::{FlowId, Marking, Packet};
    use bentpipe_units::{Id as _, Instant};

    /// Bytes that each queue sends of 3,000 packets of 1000 bytes, if all queues have a backlog; queue i is that of `users[i]`.
    fn sent(users: &[u32], fair: bool) -> Vec<u64> {
        let mut buckets = Buckets::new(64, 1514);
        if fair {
            buckets.be_fair_between_users();
        }
        let mut sent = vec![0; users.len()];
        let packet = |queue: usize| Packet {
            user: FlowId(users[queue]),
            ..Packet::new(1000, FlowId(queue as u32), 0)
        };
        let push = |buckets: &mut Buckets, queue: usize| {
            buckets.push(BucketId::new(queue as u32), &packet(queue));
        };
        for queue in 0..users.len() {
            push(&mut buckets, queue);
            push(&mut buckets, queue);
        }
        for _ in 0..3_000 {
            let Some(bucket) = buckets.turn() else { break };
            if let Some(pkt) = buckets.take(bucket) {
                buckets.charge(bucket, pkt.len);
                let queue = bucket.index() as usize;
                sent[queue] += u64::from(pkt.len);
                push(&mut buckets, queue);
            }
        }
        sent
    }

    /// User 0 has one queue, user 1 two, user 2 four. With fairness between users each gets a third, 1,000,000 bytes, and its
    /// queues equal parts of that; the quanta 1514, 757 and 378 deviate by one part in 757.
    #[test]
    fn users_get_equal_shares_whatever_their_number_of_flows() {
        let users = [0, 1, 1, 2, 2, 2, 2];
        let shares = [1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25];
        for (queue, (bytes, share)) in sent(&users, true).into_iter().zip(shares).enumerate() {
            let expected = 1e6 * share;
            assert!((bytes as f64 - expected).abs() < 5_000.0, "queue {queue}: {bytes}, not {expected}");
        }
        for bytes in sent(&users, false) {
            assert!((bytes as f64 - 3e6 / 7.0).abs() < 2_000.0, "{bytes}");
        }
    }

    /// User 9 has one flow, user 1 three; all have a backlog. Of 2,000 packets each user gets half, with an error of a turn and
    /// of the quanta's rounding (300 and 100 bytes at 8 Mbit/s).
    #[test]
    fn the_scheduler_is_fair_between_users() {
        let mut queue = Steps::new(&ALGORITHM, &[], 10_000, Marking::Drop, 1).queue;
        let mut lost = Vec::new();
        for turn in 0..1500 {
            for (flow, user) in [(9, 9), (1, 1), (2, 1), (3, 1)] {
                let pkt = Packet { user: FlowId(user), ..Packet::new(250, FlowId(flow), turn) };
                queue.enqueue(pkt, Instant::ZERO, &mut lost);
            }
        }
        let sent = (0..2000).filter_map(|_| queue.dequeue(Instant::ZERO, &mut lost));
        let of_nine = sent.filter(|pkt| pkt.user == FlowId(9)).count();
        assert!((985..=1015).contains(&of_nine), "{of_nine}");
    }
}
