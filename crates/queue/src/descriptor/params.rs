//! Parameters of algorithms: the command line, the schema, the documentation and the error messages follow from these
//! tables.

use std::fmt;

use bentpipe_units::Rate;

/// Unit of a parameter, which also determines its form in scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Dimensionless number.
    One,
    /// Dimensionless whole number.
    Count,
    /// Packets.
    Packets,
    /// Bytes; written `"1400 B"`.
    Bytes,
    /// Seconds; written `"33 ms"`.
    Seconds,
    /// Bits per second; written `"20 Mbps"`.
    BitsPerSecond,
    /// Yes or no.
    Flag,
    /// One of these names.
    Name(&'static [&'static str]),
}

/// Default of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// A fixed value.
    Is(Value),
    /// Derived from the link that drains the watched queue; the text says how.
    FromLink(fn(&Link) -> f64, &'static str),
}

/// Properties of a link that an algorithm may know before the run.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Capacity.
    pub capacity: Rate,
    /// Mean length of a packet on it [bytes].
    pub mean_packet: f64,
}

impl Link {
    /// Returns the number of packets that the link sends in `seconds`, at least 1.
    #[must_use]
    pub fn packets_in(&self, seconds: f64) -> f64 {
        (self.capacity.bytes_per_sec() * seconds / self.mean_packet).max(1.0)
    }
}

/// Value of a parameter in base units (see [`Unit`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// One of a few names.
    Name(&'static str),
}

/// Allowed values of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Minimum value.
    pub min: f64,
    /// True if the least value itself is excluded.
    pub above: bool,
    /// Maximum value.
    pub max: f64,
}

impl Range {
    /// From `min` to `max`, both included.
    #[must_use]
    pub const fn between(min: f64, max: f64) -> Self {
        Self { min, above: false, max }
    }

    /// Above `min` and up to `max`.
    #[must_use]
    pub const fn above(min: f64, max: f64) -> Self {
        Self { min, above: true, max }
    }

    /// Returns true if `x` is allowed; false for NaN.
    #[must_use]
    pub fn allows(&self, x: f64) -> bool {
        x <= self.max && if self.above { x > self.min } else { x >= self.min }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.above { "above" } else { "at least" };
        match (self.min, self.max) {
            (min, max) if min == f64::NEG_INFINITY && max == f64::INFINITY => f.write_str("any number"),
            (min, f64::INFINITY) => write!(f, "{least} {min}"),
            (min, max) => write!(f, "{least} {min} and at most {max}"),
        }
    }
}

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name in scenario files.
    pub name: &'static str,
    /// Symbol in the source; the name if it is the same.
    pub symbol: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Description in one sentence.
    pub doc: &'static str,
    /// Default.
    pub default: Default,
    /// Source of the default: a paper's table, an RFC's section, or how it was found.
    pub origin: &'static str,
    /// Allowed values.
    pub range: Range,
    /// Range of a search; `None` if it is not searched.
    pub tune: Option<Tune>,
    /// True if the default is the link's capacity, and follows it where it varies.
    pub follows_capacity: bool,
}

/// Range of a search for a parameter's best value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tune {
    /// Between two values, on a linear scale.
    Linear(f64, f64),
    /// Between two values above zero, on a logarithmic scale.
    Log(f64, f64),
    /// Between two multiples of the default, on a logarithmic scale: for defaults derived from the link.
    Around(f64, f64),
    /// All values of a flag or of a choice of names.
    Each,
}

impl Param {
    /// A number with a fixed default.
    #[must_use]
    pub const fn number(name: &'static str, unit: Unit, default: f64, range: Range) -> Self {
        Self::new(name, unit, Default::Is(Value::Number(default)), range)
    }

    /// A number whose default is derived from the link, as [`Self::default_doc`] says.
    #[must_use]
    pub const fn from_link(name: &'static str, unit: Unit, range: Range, default: fn(&Link) -> f64) -> Self {
        Self::new(name, unit, Default::FromLink(default, ""), range)
    }

    /// A flag.
    #[must_use]
    pub const fn flag(name: &'static str, default: bool, doc: &'static str) -> Self {
        Self::new(name, Unit::Flag, Default::Is(Value::Flag(default)), Range::between(0.0, 1.0)).doc(doc)
    }

    /// A choice of names.
    #[must_use]
    pub const fn name(
        name: &'static str,
        names: &'static [&'static str],
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::new(name, Unit::Name(names), Default::Is(Value::Name(default)), Range::between(0.0, 0.0))
            .doc(doc)
    }

    const fn new(name: &'static str, unit: Unit, default: Default, range: Range) -> Self {
        let (symbol, doc, origin, tune) = (name, "", "", None);
        Self { name, symbol, unit, doc, default, origin, range, tune, follows_capacity: false }
    }

    /// Sets the description: a phrase without a final point.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// Describes a default that is derived from the link.
    #[must_use]
    pub const fn default_doc(self, how: &'static str) -> Self {
        match self.default {
            Default::FromLink(default, _) => Self { default: Default::FromLink(default, how), ..self },
            Default::Is(_) => self,
        }
    }

    /// Sets the symbol in the source.
    #[must_use]
    pub const fn symbol(self, symbol: &'static str) -> Self {
        Self { symbol, ..self }
    }

    /// Sets the source of the default.
    #[must_use]
    pub const fn origin(self, origin: &'static str) -> Self {
        Self { origin, ..self }
    }

    /// Lets the default follow the link's capacity; see [`Values::capacity`].
    #[must_use]
    pub const fn following_capacity(self) -> Self {
        Self { follows_capacity: true, ..self }
    }

    /// Sets the range of a search.
    #[must_use]
    pub const fn tune(self, tune: Tune) -> Self {
        Self { tune: Some(tune), ..self }
    }
}

/// A value that an algorithm does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// The parameter.
    pub name: &'static str,
    /// The value found and the values allowed.
    pub problem: String,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.problem)
    }
}

impl std::error::Error for ParamError {}

/// Values of all parameters of an algorithm, defaults filled in.
#[derive(Clone, Debug)]
pub struct Values {
    params: &'static [Param],
    values: Vec<Value>,
    /// True for a default that follows the link's capacity.
    following: Vec<bool>,
}

/// A rate that a parameter sets, or that follows the link.
#[derive(Clone, Copy, Debug)]
pub struct FollowedRate {
    /// Set rate; that of the link before the run if it follows the link [bytes/s].
    pub initial: f64,
    /// True if it follows the link.
    pub follows: bool,
}

impl FollowedRate {
    /// Returns the rate while the link has `capacity` [bytes/s]. A link without capacity counts as one byte per second, so
    /// that shares of it are finite.
    #[must_use]
    #[inline]
    pub fn at(&self, capacity: Rate) -> f64 {
        if self.follows { capacity.bytes_per_sec().max(1.0) } else { self.initial }
    }
}

impl Values {
    /// Returns the values of `params` on `link`: those that `given` returns, and defaults for the rest.
    ///
    /// # Errors
    /// A given value of the wrong kind or out of range. Names that are not in `params` are not looked up; the caller
    /// checks them.
    pub fn resolve(
        params: &'static [Param],
        link: &Link,
        given: &dyn Fn(&str) -> Option<Value>,
    ) -> Result<Self, ParamError> {
        let values = params
            .iter()
            .map(|param| match given(param.name) {
                Some(value) => check(param, value),
                None => Ok(match param.default {
                    Default::Is(value) => value,
                    Default::FromLink(of, _) => Value::Number(of(link)),
                }),
            })
            .collect::<Result<_, _>>()?;
        let following = params.iter().map(|p| p.follows_capacity && given(p.name).is_none()).collect();
        Ok(Self { params, values, following })
    }

    /// Fixes all defaults at the capacity that they were derived from, as on a link of constant rate.
    #[must_use]
    pub fn fixed(mut self) -> Self {
        self.following.fill(false);
        self
    }

    /// Returns true if `name` is a default that follows the link's capacity.
    #[must_use]
    pub fn follows(&self, name: &str) -> bool {
        self.params.iter().zip(&self.following).any(|(param, follows)| param.name == name && *follows)
    }

    /// Returns the rate `name`, a parameter in bits per second.
    ///
    /// # Panics
    /// As [`Values::number`].
    #[must_use]
    pub fn capacity(&self, name: &str) -> FollowedRate {
        FollowedRate { initial: self.number(name) / 8.0, follows: self.follows(name) }
    }

    /// Returns the parameters with their values, in the order of their descriptions.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, Value)> + '_ {
        self.params.iter().zip(self.values.iter().copied())
    }

    /// Returns the number `name`.
    ///
    /// # Panics
    /// If the algorithm's table has no such number: a mistake in the algorithm's file, which every test that builds it
    /// meets.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.iter().find(|(param, _)| param.name == name) {
            Some((_, Value::Number(x))) => x,
            found => panic!("the parameter table has no number {name}, but {found:?}"),
        }
    }

    /// Returns the flag `name`.
    ///
    /// # Panics
    /// As [`Values::number`].
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.iter().find(|(param, _)| param.name == name) {
            Some((_, Value::Flag(x))) => x,
            found => panic!("the parameter table has no flag {name}, but {found:?}"),
        }
    }

    /// Returns the choice `name`.
    ///
    /// # Panics
    /// As [`Values::number`].
    #[must_use]
    pub fn name(&self, name: &str) -> &'static str {
        match self.iter().find(|(param, _)| param.name == name) {
            Some((_, Value::Name(x))) => x,
            found => panic!("the parameter table has no choice {name}, but {found:?}"),
        }
    }

    /// Checks that `low < high`.
    ///
    /// # Errors
    /// An error that names `low`, if it is not below `high`.
    pub fn in_order(&self, low: &'static str, high: &'static str) -> Result<(), ParamError> {
        let (a, b) = (self.number(low), self.number(high));
        if a < b {
            return Ok(());
        }
        Err(ParamError {
            name: low,
            problem: format!("found {a}, but it must be below {high}, which is {b}"),
        })
    }
}

fn check(param: &Param, value: Value) -> Result<Value, ParamError> {
    let error = |problem| Err(ParamError { name: param.name, problem });
    match (param.unit, value) {
        (Unit::Flag, Value::Flag(_)) => Ok(value),
        (Unit::Flag, Value::Number(x)) => error(format!("found {x}; allowed: true or false")),
        (Unit::Flag, Value::Name(x)) => error(format!("found {x}; allowed: true or false")),
        (Unit::Name(names), Value::Name(x)) if names.contains(&x) => Ok(value),
        (Unit::Name(names), found) => {
            let found = match found {
                Value::Name(x) => x.to_owned(),
                Value::Number(x) => x.to_string(),
                Value::Flag(x) => x.to_string(),
            };
            error(format!("found {found}; allowed: {}", names.join(", ")))
        }
        (_, Value::Name(x)) => error(format!("found {x}; allowed: a number, {}", param.range)),
        (_, Value::Flag(x)) => error(format!("found {x}; allowed: a number, {}", param.range)),
        (Unit::Count, Value::Number(x)) if x.fract() != 0.0 => {
            error(format!("found {x}; allowed: a whole number, {}", param.range))
        }
        (_, Value::Number(x)) if !param.range.allows(x) => {
            error(format!("found {x}; allowed: {}", param.range))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Rate;

    use super::*;

    #[test]
    fn a_parameter_is_what_its_constructors_say() {
        const RATE: Param =
            Param::from_link("rate", Unit::Seconds, Range::above(0.0, 9.0), |link| link.mean_packet)
                .default_doc("the mean packet")
                .doc("A rate")
                .symbol("r")
                .origin("a table")
                .tune(Tune::Log(1.0, 2.0));
        assert_eq!((RATE.name, RATE.symbol, RATE.doc, RATE.origin), ("rate", "r", "A rate", "a table"));
        assert_eq!(RATE.tune, Some(Tune::Log(1.0, 2.0)));
        assert!(matches!(RATE.default, super::Default::FromLink(_, "the mean packet")));
        assert!(!RATE.follows_capacity && RATE.following_capacity().follows_capacity);
    }

    #[test]
    fn values_out_of_order_are_refused() {
        const PAIR: &[Param] = &[
            Param::number("low", Unit::One, 1.0, Range::between(0.0, 9.0)),
            Param::number("high", Unit::One, 2.0, Range::between(0.0, 9.0)),
        ];
        let link = Link { capacity: Rate::from_bps(1_000_000), mean_packet: 1000.0 };
        let values =
            |low| Values::resolve(PAIR, &link, &|name| (name == "low").then_some(Value::Number(low)));
        assert_eq!(values(1.9).unwrap().in_order("low", "high"), Ok(()));
        let error = values(2.0).unwrap().in_order("low", "high").unwrap_err();
        assert_eq!(error.to_string(), "low: found 2, but it must be below high, which is 2");
    }

    #[test]
    fn values_that_are_not_allowed_are_named_with_those_that_are() {
        const PARAMS: &[Param] = &[
            Param::flag("flag", true, ""),
            Param::name("name", &["one", "other"], "one", ""),
            Param::number("count", Unit::Count, 1.0, Range::between(0.0, 9.0)),
            Param::number("number", Unit::One, 1.0, Range::above(0.0, 9.0)),
        ];
        let link = Link { capacity: Rate::from_bps(1_000_000), mean_packet: 1000.0 };
        let resolve = |param: &str, value| {
            Values::resolve(PARAMS, &link, &|name| (name == param).then_some(value)).map(drop)
        };
        for (param, value) in [
            ("flag", Value::Flag(false)),
            ("name", Value::Name("other")),
            ("count", Value::Number(9.0)),
            ("number", Value::Number(0.5)),
        ] {
            assert_eq!(resolve(param, value), Ok(()));
        }
        for (param, value, problem) in [
            ("flag", Value::Number(1.0), "found 1; allowed: true or false"),
            ("flag", Value::Name("on"), "found on; allowed: true or false"),
            ("name", Value::Name("neither"), "found neither; allowed: one, other"),
            ("name", Value::Number(2.0), "found 2; allowed: one, other"),
            ("name", Value::Flag(true), "found true; allowed: one, other"),
            ("count", Value::Number(1.5), "found 1.5; allowed: a whole number, at least 0 and at most 9"),
            ("count", Value::Number(10.0), "found 10; allowed: at least 0 and at most 9"),
            ("number", Value::Number(0.0), "found 0; allowed: above 0 and at most 9"),
            ("number", Value::Number(f64::NAN), "found NaN; allowed: above 0 and at most 9"),
            ("number", Value::Name("one"), "found one; allowed: a number, above 0 and at most 9"),
            ("number", Value::Flag(true), "found true; allowed: a number, above 0 and at most 9"),
        ] {
            let error = resolve(param, value).unwrap_err();
            assert_eq!(error.to_string(), format!("{param}: {problem}"));
        }
    }
}
