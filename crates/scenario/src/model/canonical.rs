//! Serialization of other crates' types in the canonical form.

use bentpipe_gateway::{GatewayQueue, Sharing};
use bentpipe_queue::aqm::threshold::Thresholds;
use bentpipe_queue::descriptor::Algorithm;
use bentpipe_queue::{Limit, Marking, Value, Values};
use bentpipe_transport::tcp::Algorithm as Congestion;
use bentpipe_units::Duration;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

pub fn congestion<S: Serializer>(algorithm: &Congestion, to: S) -> Result<S::Ok, S::Error> {
    algorithm.name().serialize(to)
}

/// True for a time that the canonical form omits because it is zero.
pub fn is_zero(time: &Duration) -> bool {
    time.is_zero()
}

pub fn limit<S: Serializer>(limit: &Limit, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(2))?;
    map.serialize_entry("packets", &Some(limit.packets).filter(|n| *n != Limit::NONE.packets))?;
    map.serialize_entry("bytes", &Some(limit.bytes).filter(|n| *n != Limit::NONE.bytes))?;
    map.end()
}

pub fn marking<S: Serializer>(marking: &Marking, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match marking {
        Marking::Drop => "drop",
        Marking::Ecn => "ecn",
        Marking::Window => "window",
    })
}

pub fn queue<S: Serializer>(queue: &GatewayQueue, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match queue {
        GatewayQueue::Receive => "receive",
        GatewayQueue::Transmit => "transmit",
    })
}

pub fn sharing<S: Serializer>(sharing: &Sharing, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match sharing {
        Sharing::PerUser => "user",
        Sharing::PerConnection => "connection",
    })
}

pub fn algorithm<S: Serializer>(algorithm: &&'static Algorithm, to: S) -> Result<S::Ok, S::Error> {
    algorithm.name.serialize(to)
}

/// Serializes a constant threshold as a number, others as pairs of time and share.
pub fn thresholds<S: Serializer>(thresholds: &Option<Thresholds>, to: S) -> Result<S::Ok, S::Error> {
    let Some(thresholds) = thresholds else { return to.serialize_none() };
    match thresholds.constant() {
        Some(th) => th.serialize(to),
        None => to.collect_seq(thresholds.steps().iter().map(|(from, th)| (from.as_nanos(), th))),
    }
}

pub fn values<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    entries(values, &mut map)?;
    map.end()
}

/// Serializes a name alone if there are no parameters, else a table of `key = name` and the parameters.
pub fn named<S: Serializer>(
    key: &'static str,
    name: &str,
    values: Option<&Values>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let Some(values) = values else { return name.serialize(to) };
    let mut map = to.serialize_map(None)?;
    map.serialize_entry(key, name)?;
    entries(values, &mut map)?;
    map.end()
}

fn entries<M: SerializeMap>(values: &Values, map: &mut M) -> Result<(), M::Error> {
    for (param, value) in values.iter() {
        match value {
            Value::Number(_) if values.follows(param.name) => map.serialize_entry(param.name, "link")?,
            Value::Number(x) => map.serialize_entry(param.name, &x)?,
            Value::Flag(x) => map.serialize_entry(param.name, &x)?,
            Value::Name(x) => map.serialize_entry(param.name, &x)?,
        }
    }
    Ok(())
}
