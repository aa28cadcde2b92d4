//! How the vocabulary of other crates is written in a scenario's canonical form: times in nanoseconds, rates in
//! bits per second, all whole numbers.

use bentpipe_queue::aqm::threshold::Thresholds;
use bentpipe_queue::descriptor::Algorithm;
use bentpipe_queue::{Limit, Marking, Value, Values};
use bentpipe_units::{Duration, Rate};
use serde::ser::{SerializeMap, Serializer};
use serde::{Serialize, ser::SerializeStructVariant};

use crate::distribution::Distribution;
use crate::gateway::MarkingSpec;
use crate::model::SchedulerSpec;

pub fn ns<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    time.as_nanos().serialize(to)
}

pub fn is_nothing(time: &Duration) -> bool {
    time.is_zero()
}

pub fn ns_of<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(Duration::as_nanos).serialize(to)
}

/// For switches that the canonical form names only where they are on.
pub fn is_off(switch: &bool) -> bool {
    !switch
}

pub fn bps<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    rate.as_bps().serialize(to)
}

pub fn bps_of<S: Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::as_bps).serialize(to)
}

pub fn law_of_time<S: Serializer>(law: &Distribution<Duration>, to: S) -> Result<S::Ok, S::Error> {
    write_law(law, Duration::as_nanos, to)
}

pub fn law_of_time_of<S: Serializer>(law: &Option<Distribution<Duration>>, to: S) -> Result<S::Ok, S::Error> {
    match law {
        Some(law) => law_of_time(law, to),
        None => to.serialize_none(),
    }
}

/// A packet's length, which is a plain number where it is fixed.
pub fn length<S: Serializer>(law: &Distribution<u64>, to: S) -> Result<S::Ok, S::Error> {
    match law {
        Distribution::Fixed(bytes) => bytes.serialize(to),
        law => law_of_bytes(law, to),
    }
}

pub fn law_of_bytes<S: Serializer>(law: &Distribution<u64>, to: S) -> Result<S::Ok, S::Error> {
    write_law(law, |bytes| bytes, to)
}

fn write_law<T: Copy, S: Serializer>(
    law: &Distribution<T>,
    number: fn(T) -> u64,
    to: S,
) -> Result<S::Ok, S::Error> {
    match *law {
        Distribution::Fixed(x) => to.serialize_newtype_variant("Distribution", 0, "fixed", &number(x)),
        Distribution::Uniform(low, high) => {
            let mut law = to.serialize_struct_variant("Distribution", 1, "uniform", 2)?;
            law.serialize_field("low", &number(low))?;
            law.serialize_field("high", &number(high))?;
            law.end()
        }
        Distribution::Exponential(mean) => {
            to.serialize_newtype_variant("Distribution", 2, "exponential", &number(mean))
        }
        Distribution::Normal { mean, std } => {
            let mut law = to.serialize_struct_variant("Distribution", 3, "normal", 2)?;
            law.serialize_field("mean", &number(mean))?;
            law.serialize_field("std", &number(std))?;
            law.end()
        }
        Distribution::Erlang { shape, mean } => {
            let mut law = to.serialize_struct_variant("Distribution", 4, "erlang", 2)?;
            law.serialize_field("shape", &shape)?;
            law.serialize_field("mean", &number(mean))?;
            law.end()
        }
        Distribution::Pareto { shape, mean } => {
            let mut law = to.serialize_struct_variant("Distribution", 5, "pareto", 2)?;
            law.serialize_field("shape", &shape)?;
            law.serialize_field("mean", &number(mean))?;
            law.end()
        }
        Distribution::Choice(ref laws) => {
            let laws: Vec<_> =
                laws.iter().map(|(probability, law)| (probability, Written(law, number))).collect();
            to.serialize_newtype_variant("Distribution", 6, "choice", &laws)
        }
        Distribution::Trace(ref samples) => {
            to.serialize_newtype_variant("Distribution", 7, "trace", &samples.digest)
        }
    }
}

/// A law inside another.
struct Written<'a, T>(&'a Distribution<T>, fn(T) -> u64);

impl<T: Copy> Serialize for Written<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write_law(self.0, self.1, to)
    }
}

pub fn limit<S: Serializer>(limit: &Limit, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(2))?;
    map.serialize_entry("packets", &Some(limit.packets).filter(|n| *n != Limit::NONE.packets))?;
    map.serialize_entry("bytes", &Some(limit.bytes).filter(|n| *n != Limit::NONE.bytes))?;
    map.end()
}

pub fn marking<S: Serializer>(marking: &Marking, to: S) -> Result<S::Ok, S::Error> {
    match marking {
        Marking::Drop => "drop",
        Marking::Ecn => "ecn",
        Marking::Window => "window",
    }
    .serialize(to)
}

pub fn algorithm<S: Serializer>(algorithm: &&'static Algorithm, to: S) -> Result<S::Ok, S::Error> {
    algorithm.name.serialize(to)
}

/// A threshold that is always the same as a number, else shares with their times.
pub fn thresholds<S: Serializer>(thresholds: &Option<Thresholds>, to: S) -> Result<S::Ok, S::Error> {
    let Some(thresholds) = thresholds else { return to.serialize_none() };
    match thresholds.constant() {
        Some(th) => th.serialize(to),
        None => to.collect_seq(thresholds.steps().iter().map(|(from, th)| (from.as_nanos(), th))),
    }
}

impl Serialize for SchedulerSpec {
    /// The name of one that has no parameters, else a table.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.discipline.params.is_empty() {
            return self.discipline.name.serialize(to);
        }
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("algorithm", self.discipline.name)?;
        entries(&self.values, &mut map)?;
        map.end()
    }
}

impl Serialize for MarkingSpec {
    /// The name of one that has no parameters, else a table.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.method.params.is_empty() {
            return self.method.name.serialize(to);
        }
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("method", self.method.name)?;
        entries(&self.values, &mut map)?;
        map.end()
    }
}

pub fn values<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    entries(values, &mut map)?;
    map.end()
}

fn entries<M: SerializeMap>(values: &Values, map: &mut M) -> Result<(), M::Error> {
    for (param, value) in values.iter() {
        match value {
            Value::Number(x) => map.serialize_entry(param.name, &x)?,
            Value::Flag(x) => map.serialize_entry(param.name, &x)?,
            Value::Name(x) => map.serialize_entry(param.name, &x)?,
        }
    }
    Ok(())
}

/// A law of time inside a map.
pub struct TimeLaw<'a>(pub &'a Distribution<Duration>);

impl Serialize for TimeLaw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        law_of_time(self.0, to)
    }
}
