//! Adaptive video.

use bentpipe_units::{Duration, Rate};

use super::cx::Cx;
use super::distribution::distribution;
use super::packets::absences;
use super::traffic::ramp;
use crate::error::Error;
use crate::model::{Dash, TransportIndex};
use crate::reader::tree::{Path, Step, step};
use crate::schema::dash as file;
use crate::schema::quantity::{Quantity, Span};

/// Maximum number of rates of a ladder.
const MOST_RATES: usize = 64;

pub fn dash(cx: &Cx<'_>, path: &Path, t: &file::Dash, transport: TransportIndex) -> Result<Dash, Error> {
    let at = |key: &str| step(path, key);
    let ladder = ladder(cx, &at("ladder"), t)?;
    let (segment, buffer) = (t.segment.time(), t.buffer.time());
    if buffer < segment.times(2) {
        let problem = format!("found \"{buffer}\"; allowed: at least two segments, \"{}\"", segment.times(2));
        return Err(cx.error(&at("buffer"), problem));
    }
    let most = segment.times(buffer.as_nanos() / segment.as_nanos());
    let threshold = |key: &str, given: Option<Span>, default: Duration| {
        let threshold = given.map_or(default, Quantity::time);
        if threshold <= most {
            return Ok(threshold);
        }
        let problem = format!(
            "found \"{threshold}\"; allowed: at most the whole segments that fit into the buffer, \"{most}\""
        );
        Err(cx.error(&at(key), problem))
    };
    let startup = threshold("startup", t.startup, segment)?;
    Ok(Dash {
        transport,
        flows: t.flows.0,
        ladder: ladder.into(),
        segment,
        buffer,
        startup,
        rebuffer: threshold("rebuffer", t.rebuffer, startup)?,
        controller: t.controller,
        size_variation: match &t.size_variation {
            Some(sizes) => Some(distribution(cx, &at("size_variation"), sizes, |q| q.0)?),
            None => None,
        },
        request_size: t.request_size.0,
        watch: match &t.watch {
            Some(watch) => Some(distribution(cx, &at("watch"), watch, Quantity::time)?),
            None => None,
        },
        think_time: distribution(cx, &at("think_time"), &t.think_time, Quantity::time)?,
        start: distribution(cx, &at("start"), &t.start, Quantity::time)?,
        ramp: t.ramp.as_ref().map(ramp),
        away: absences(cx, path, &t.away)?,
    })
}

fn ladder(cx: &Cx<'_>, path: &Path, t: &file::Dash) -> Result<Vec<Rate>, Error> {
    let count = t.ladder.len();
    if !(1..=MOST_RATES).contains(&count) {
        return Err(
            cx.error(path, format!("found {count}; allowed: at least 1 rate and at most {MOST_RATES}"))
        );
    }
    if let Some(i) = (1..count).find(|&i| t.ladder[i].0 <= t.ladder[i - 1].0) {
        let path = [path, &[Step::Index(i)]].concat();
        let problem = format!(
            "found \"{:?}\" after \"{:?}\"; allowed: rates in ascending order",
            t.ladder[i],
            t.ladder[i - 1]
        );
        return Err(cx.error(&path, problem));
    }
    Ok(t.ladder.iter().map(|rate| rate.rate()).collect())
}
