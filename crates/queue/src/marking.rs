//! Marking methods: the action that a mark takes.
//!
//! `drop` drops the packet. `ecn` sets its ECN field (RFC 3168). `window` accepts it, and the gateway behind the mark
//! point cuts the window that it advertises to the packet's sender: buffer flow control, [B07] 2.3.

use crate::descriptor::{MarkingMethod, Preset};
use crate::{Marking, Param, Range, Tune, Unit, Value};

/// The registry's entries.
pub const DROP: MarkingMethod = MarkingMethod {
    name: "drop",
    title: "Drops the packet",
    source: "Jacobson 1988",
    params: &[],
    marking: Marking::Drop,
};

/// See [`DROP`].
pub const ECN: MarkingMethod = MarkingMethod {
    name: "ecn",
    title: "Sets the packet's ECN field to CE; drops a packet of a transport without ECN",
    source: "RFC 3168",
    params: &[],
    marking: Marking::Ecn,
};

/// See [`DROP`].
pub const WINDOW: MarkingMethod = MarkingMethod {
    name: "window",
    title: "The gateway cuts the window that it advertises to the packet's sender; one whose connection is not split is \
            dropped",
    source: "[B07] 2.3",
    params: &[
        Param::number("decr", Unit::One, 0.97, Range::above(0.0, 1.0))
            .doc("Factor by which a mark cuts a connection's limit in the PEP's buffer")
            .origin("[B07] Table 3.2, FC 1")
            .tune(Tune::Linear(0.5, 0.99)),
        Param::number("incr", Unit::One, 0.01, Range::above(0.0, 1.0))
            .doc("Share by which that limit grows again while packets arrive without marks")
            .origin("[B07] Table 3.2")
            .tune(Tune::Log(0.001, 0.1)),
        Param::number("freeze", Unit::Seconds, 0.2, Range::between(0.0, 1e4))
            .doc("Minimum time between two such steps, about a terrestrial round trip")
            .origin("[B07] Table 3.2")
            .tune(Tune::Log(0.05, 1.0)),
    ],
    marking: Marking::Window,
};

/// One of the settings FC 1 to FC 5 of [B07] Table 3.2, counted from 0, with an AQM's parameters.
pub const fn flow_control(
    name: &'static str,
    values: &'static [(&'static str, Value)],
    number: usize,
) -> Preset {
    Preset { name, source: "[B07] Table 3.2", values, marking: Some((&WINDOW, TABLE_3_2[number])) }
}

const TABLE_3_2: [&[(&str, Value)]; 5] = [
    &[("decr", Value::Number(0.97)), INCR, RTT],
    &[("decr", Value::Number(0.95)), INCR, RTT],
    &[("decr", Value::Number(0.90)), INCR, RTT],
    &[("decr", Value::Number(0.80)), INCR, RTT],
    &[("decr", Value::Number(0.50)), INCR, RTT],
];
const INCR: (&str, Value) = ("incr", Value::Number(0.01));
const RTT: (&str, Value) = ("freeze", Value::Number(0.2));
