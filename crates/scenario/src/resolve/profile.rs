//! Profiles of a day.

use bentpipe_units::Duration;

use super::cx::Cx;
use crate::error::Error;
use crate::model::Profile;
use crate::reader::tree::{Path, Step, step};
use crate::schema::profile::Profile as Raw;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Resolves a profile: its points in the time of the run, from the beginning of the run on.
pub fn profile(cx: &Cx<'_>, path: &Path, raw: Option<&Raw>) -> Result<Option<Profile>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let (points, day, start) = raw.parts();
    let (day, start) = (day.time(), start.time());
    let list = match raw {
        Raw::Points(_) => path.to_vec(),
        Raw::Table(_) => step(path, "points"),
    };
    let at = |i: usize, j: usize| [&list[..], &[Step::Index(i), Step::Index(j)]].concat();
    if start >= DAY {
        let problem = format!("found \"{start}\"; allowed: a time of day below \"24 h\"");
        return Err(cx.error(&step(path, "start"), problem));
    }
    let mut last = None;
    for (i, (time, share)) in points.iter().enumerate() {
        let time = time.time();
        if time >= DAY {
            return Err(
                cx.error(&at(i, 0), format!("found \"{time}\"; allowed: a time of day below \"24 h\""))
            );
        }
        if let Some(last) = last.filter(|last| time <= *last) {
            return Err(
                cx.error(&at(i, 0), format!("found \"{time}\" after \"{last}\"; allowed: rising times"))
            );
        }
        if !(0.0..=1.0).contains(share) {
            return Err(
                cx.error(&at(i, 1), format!("found {share}; allowed: a share of the peak, from 0 to 1"))
            );
        }
        last = Some(time);
    }
    if !points.iter().any(|(_, share)| *share > 0.0) {
        let problem =
            "found no share above 0; allowed: times and shares, such as [[\"6 h\", 0.2], [\"20 h\", 1.0]]";
        return Err(cx.error(&list, problem.to_owned()));
    }
    let scaled = |time: Duration| {
        let since = time.as_nanos() + if time < start { DAY.as_nanos() } else { 0 } - start.as_nanos();
        let ns = u128::from(since) * u128::from(day.as_nanos()) / u128::from(DAY.as_nanos());
        Duration::from_nanos(ns as u64)
    };
    let mut points: Vec<_> = points.iter().map(|(time, share)| (scaled(time.time()), *share)).collect();
    points.sort_unstable_by_key(|(time, _)| *time);
    if points.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        let problem =
            format!("found \"{day}\"; allowed: a longer day, in which the points are a nanosecond apart");
        return Err(cx.error(&step(path, "day"), problem));
    }
    Ok(Some(Profile { day, points }))
}
