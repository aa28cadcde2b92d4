//! Probability distributions.

use super::cx::{Cx, descending};
use crate::error::Error;
use crate::model::{Distribution, Samples};
use crate::reader::tree::{Path, Step, step};
use crate::schema::forms::{self, DISTRIBUTIONS, Either};
use crate::schema::quantity::{Kind, Quantity};

/// Resolves a distribution. `number` converts a file's quantity.
pub fn distribution<K: Kind, T>(
    cx: &Cx<'_>,
    path: &Path,
    raw: &forms::Distribution<K>,
    number: fn(Quantity<K>) -> T,
) -> Result<Distribution<T>, Error> {
    let table = match raw {
        Either::Plain(x) => return Ok(Distribution::Fixed(number(*x))),
        Either::Table(table) => table,
    };
    let at = |key: &str| step(path, key);
    let given = [
        table.uniform.is_some(),
        table.exponential.is_some(),
        table.normal.is_some(),
        table.erlang.is_some(),
        table.pareto.is_some(),
        table.choice.is_some(),
        table.trace.is_some(),
    ];
    let found: Vec<_> =
        DISTRIBUTIONS.iter().zip(given).filter(|(_, given)| *given).map(|(key, _)| *key).collect();
    if found.len() != 1 {
        let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
        return Err(cx.error(path, format!("found {found}; allowed: one of {}", DISTRIBUTIONS.join(", "))));
    }
    if table.weights.is_some() && table.choice.is_none() {
        let problem = "allowed: only together with choice".to_owned();
        return Err(cx.key_error(&at("weights"), problem));
    }
    if let Some([low, high]) = table.uniform {
        if low.0 > high.0 {
            return Err(descending(cx, &at("uniform"), &format!("{low:?}"), &format!("{high:?}")));
        }
        return Ok(Distribution::Uniform(number(low), number(high)));
    }
    if let Some(mean) = table.exponential {
        return Ok(Distribution::Exponential(number(mean)));
    }
    if let Some(normal) = &table.normal {
        return Ok(Distribution::Normal { mean: number(normal.mean), std: number(normal.std) });
    }
    if let Some(erlang) = &table.erlang {
        return Ok(Distribution::Erlang { shape: erlang.shape.0, mean: number(erlang.mean) });
    }
    if let Some(pareto) = &table.pareto {
        if pareto.shape <= 1.0 {
            let problem =
                format!("found {}; allowed: a number above 1, so that the mean is finite", pareto.shape);
            return Err(cx.error(&step(&at("pareto"), "shape"), problem));
        }
        return Ok(Distribution::Pareto { shape: pareto.shape, mean: number(pareto.mean) });
    }
    if let Some(entries) = &table.choice {
        return choice(cx, path, entries, table.weights.as_deref(), number);
    }
    let name = table.trace.as_deref().unwrap_or_default();
    cx.read(&at("trace"), name, "a text with one number in each line", |data| {
        let values = data.numbers(K::number, &K::number_allowed())?;
        let values = values.into_iter().map(|x| number(Quantity::of(x))).collect();
        Ok(Distribution::Trace(Samples { values, digest: data.digest }))
    })
}

fn choice<K: Kind, T>(
    cx: &Cx<'_>,
    path: &Path,
    entries: &[forms::Distribution<K>],
    weights: Option<&[f64]>,
    number: fn(Quantity<K>) -> T,
) -> Result<Distribution<T>, Error> {
    let at = |key: &str| step(path, key);
    if entries.is_empty() {
        return Err(cx.error(&at("choice"), "found an empty array; allowed: one value at least".to_owned()));
    }
    if let Some(weights) = weights {
        if weights.len() != entries.len() {
            let problem = format!(
                "found an array of {}; allowed: an array of {}, one for each choice",
                weights.len(),
                entries.len()
            );
            return Err(cx.error(&at("weights"), problem));
        }
        if let Some(i) = weights.iter().position(|w| *w < 0.0) {
            let path = [at("weights"), vec![Step::Index(i)]].concat();
            return Err(cx.error(&path, format!("found {}; allowed: a number, not negative", weights[i])));
        }
    }
    let sum = weights.map_or(entries.len() as f64, |weights| weights.iter().sum());
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(cx.error(&at("weights"), format!("found a sum of {sum}; allowed: a sum above 0")));
    }
    let mut all = Vec::new();
    for (i, raw) in entries.iter().enumerate() {
        let path = [at("choice"), vec![Step::Index(i)]].concat();
        if matches!(raw, Either::Table(table) if table.choice.is_some()) {
            let problem = "found a choice within a choice; allowed: one choice with all entries".to_owned();
            return Err(cx.error(&path, problem));
        }
        let weight = weights.map_or(1.0, |weights| weights[i]);
        all.push((weight / sum, distribution(cx, &path, raw, number)?));
    }
    Ok(Distribution::Choice(all.into()))
}
