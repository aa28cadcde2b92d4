//! Threshold control of an AQM.

use bentpipe_queue::aqm::threshold::{THRESHOLD, Thresholds};
use bentpipe_queue::{Limit, Value};

use super::cx::Cx;
use super::param::read;
use crate::error::Error;
use crate::model::AqmSpec;
use crate::reader::tree::{Path, Step, step};
use crate::schema::aqm::Scalar;
use crate::schema::param::range;

/// Rejects threshold control of an unlimited queue.
pub fn check_threshold(cx: &Cx<'_>, path: &Path, aqm: &AqmSpec, limit: Limit) -> Result<(), Error> {
    match &aqm.threshold {
        Some(th) if !limit.is_bounded() => {
            let problem = format!(
                "found {}, a share of the watched queue's limit; allowed: only if that queue has a limit",
                format_thresholds(th)
            );
            Err(cx.error(&step(path, THRESHOLD.name), problem))
        }
        _ => Ok(()),
    }
}

/// Reads the thresholds of a key: a share, or shares with their start times.
pub fn thresholds(cx: &Cx<'_>, path: &Path, scalar: &Scalar) -> Result<Option<Thresholds>, Error> {
    let Scalar::Steps(steps) = scalar else {
        return Ok(match read(cx, path, &THRESHOLD, scalar)? {
            Value::Number(th) => Some(th.into()),
            Value::Flag(_) | Value::Name(_) => None,
        });
    };
    let at =
        |i: usize, j: usize| [&step(path, THRESHOLD.name)[..], &[Step::Index(i), Step::Index(j)]].concat();
    let steps: Vec<_> = steps.iter().map(|(from, th)| (from.time(), *th)).collect();
    let Some((first, _)) = steps.first() else {
        let problem = "found an empty array; allowed: times and shares, such as [[\"0 s\", 0.95]]";
        return Err(cx.error(&step(path, THRESHOLD.name), problem.to_owned()));
    };
    if !first.is_zero() {
        return Err(cx.error(&at(0, 0), format!("found \"{first}\"; allowed: \"0 s\" for the first")));
    }
    for (i, (from, th)) in steps.iter().enumerate() {
        if !THRESHOLD.range.allows(*th) {
            return Err(cx.error(&at(i, 1), format!("found {th}; allowed: {}", range(&THRESHOLD))));
        }
        if i > 0 && *from <= steps[i - 1].0 {
            let problem = format!("found \"{from}\" after \"{}\"; allowed: rising times", steps[i - 1].0);
            return Err(cx.error(&at(i, 0), problem));
        }
    }
    Ok(Some(Thresholds::new(steps)))
}

/// Formats thresholds: `0.95`, or `0.95, from 125 s 0.5`.
pub fn format_thresholds(thresholds: &Thresholds) -> String {
    let steps = thresholds.steps().iter().skip(1);
    let later: String = steps.map(|(from, th)| format!(", from {from} {th}")).collect();
    format!("{}{later}", thresholds.first())
}
