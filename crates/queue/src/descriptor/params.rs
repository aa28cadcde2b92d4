//! Parameters of algorithms, described once: the command line, the schema, the documentation and the
//! error messages all follow from these tables.

use std::fmt;

use bentpipe_units::Rate;

/// What a parameter's number means, and so how a scenario file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number without dimension.
    One,
    /// A whole number without dimension.
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

/// Where a parameter's value comes from when the scenario gives none.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// A fixed value.
    Is(Value),
    /// Follows from the link that drains the watched queue; the text says how.
    FromLink(fn(&Link) -> f64, &'static str),
}

/// What an algorithm may know of its link before the run.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Capacity.
    pub capacity: Rate,
    /// Mean length of a packet on it [bytes].
    pub mean_packet: f64,
}

impl Link {
    /// Packets that the link sends in `seconds`, at least one.
    #[must_use]
    pub fn packets_in(&self, seconds: f64) -> f64 {
        (self.capacity.bytes_per_sec() * seconds / self.mean_packet).max(1.0)
    }
}

/// A parameter's value in base units (see [`Unit`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// One of a few names.
    Name(&'static str),
}

/// The values a number may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub min: f64,
    /// Whether the least itself is excluded.
    pub above: bool,
    /// The greatest.
    pub max: f64,
}

impl Range {
    /// From `min` to `max`, both allowed.
    #[must_use]
    pub const fn between(min: f64, max: f64) -> Self {
        Self { min, above: false, max }
    }

    /// Above `min`, and up to `max`.
    #[must_use]
    pub const fn above(min: f64, max: f64) -> Self {
        Self { min, above: true, max }
    }

    /// Whether `x` is allowed. Never for NaN.
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

/// One parameter of one algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What its source calls it; its name where that is the same.
    pub symbol: &'static str,
    /// What the number means.
    pub unit: Unit,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// Its value where none is given.
    pub default: Default,
    /// Where the default comes from: a paper's table, an RFC's section, or how it was found.
    pub origin: &'static str,
    /// What is allowed.
    pub range: Range,
    /// Where a search for good values looks; none for what is not to be tuned.
    pub tune: Option<Tune>,
}

/// Where a search for a parameter's best value looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tune {
    /// Between two values, evenly.
    Linear(f64, f64),
    /// Between two values above zero, evenly in the logarithm.
    Log(f64, f64),
    /// Between two multiples of the default, evenly in the logarithm: for defaults that follow from the link.
    Around(f64, f64),
    /// Each of its values: a switch, or a few names.
    Each,
}

impl Param {
    /// A number with a fixed default.
    #[must_use]
    pub const fn number(
        name: &'static str,
        unit: Unit,
        default: f64,
        range: Range,
        doc: &'static str,
    ) -> Self {
        Self::new(name, unit, doc, Default::Is(Value::Number(default)), range)
    }

    /// A number whose default follows from the link, in the way that `how` says.
    #[must_use]
    pub const fn from_link(
        name: &'static str,
        unit: Unit,
        default: fn(&Link) -> f64,
        how: &'static str,
        range: Range,
        doc: &'static str,
    ) -> Self {
        Self::new(name, unit, doc, Default::FromLink(default, how), range)
    }

    /// A switch.
    #[must_use]
    pub const fn flag(name: &'static str, default: bool, doc: &'static str) -> Self {
        Self::new(name, Unit::Flag, doc, Default::Is(Value::Flag(default)), Range::between(0.0, 1.0))
    }

    /// One of a few names.
    #[must_use]
    pub const fn name(
        name: &'static str,
        names: &'static [&'static str],
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self::new(name, Unit::Name(names), doc, Default::Is(Value::Name(default)), Range::between(0.0, 0.0))
    }

    const fn new(name: &'static str, unit: Unit, doc: &'static str, default: Default, range: Range) -> Self {
        Self { name, symbol: name, unit, doc, default, origin: "", range, tune: None }
    }

    /// … that its source calls `symbol`.
    #[must_use]
    pub const fn symbol(self, symbol: &'static str) -> Self {
        Self { symbol, ..self }
    }

    /// … whose default comes from `origin`.
    #[must_use]
    pub const fn origin(self, origin: &'static str) -> Self {
        Self { origin, ..self }
    }

    /// … whose best value is searched for there.
    #[must_use]
    pub const fn tune(self, tune: Tune) -> Self {
        Self { tune: Some(tune), ..self }
    }
}

/// A value that an algorithm cannot work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// The parameter.
    pub name: &'static str,
    /// The value found and what is allowed, ready to be read.
    pub problem: String,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.problem)
    }
}

impl std::error::Error for ParamError {}

/// The values of all of an algorithm's parameters, defaults filled in.
#[derive(Clone, Debug)]
pub struct Values {
    params: &'static [Param],
    values: Vec<Value>,
}

impl Values {
    /// The values of `params` on `link`: what `given` names, and the defaults for the rest.
    ///
    /// # Errors
    /// Where a given value is of the wrong kind or outside its range. Names that `params` does not have
    /// are the caller's to refuse: they are not looked at.
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
        Ok(Self { params, values })
    }

    /// The parameters with their values, in the order of their description.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, Value)> + '_ {
        self.params.iter().zip(self.values.iter().copied())
    }

    /// The number called `name`.
    ///
    /// # Panics
    /// Where the algorithm's table has no such number: a mistake in the algorithm's own file, met by every
    /// test that builds it.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.iter().find(|(param, _)| param.name == name) {
            Some((_, Value::Number(x))) => x,
            found => panic!("the parameter table has no number {name}, but {found:?}"),
        }
    }

    /// The switch called `name`.
    ///
    /// # Panics
    /// As [`Values::number`].
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.iter().find(|(param, _)| param.name == name) {
            Some((_, Value::Flag(x))) => x,
            found => panic!("the parameter table has no switch {name}, but {found:?}"),
        }
    }

    /// The name that was chosen for `name`.
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
    /// Where it does not hold, naming `low`.
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
