//! Length and sampling of the runs.

use super::cx::Cx;
use crate::error::Error;
use crate::model::Run;
use crate::reader::tree::{Step, step};
use crate::schema::file;

/// Maximum number of samples of a time series.
const MOST_SAMPLES: u64 = 10_000_000;

pub fn run(cx: &Cx<'_>, raw: &file::Run) -> Result<Run, Error> {
    let path = [Step::Key("run".to_owned())];
    let (duration, interval) = (raw.duration.time(), raw.sample_interval.time());
    if interval > duration {
        let problem = format!("found \"{interval}\"; allowed: at most run.duration (\"{duration}\")");
        return Err(cx.error(&step(&path, "sample_interval"), problem));
    }
    let samples = duration.as_nanos().div_ceil(interval.as_nanos());
    if samples > MOST_SAMPLES {
        let problem = format!(
            "found {samples} samples: duration \"{duration}\", sample_interval \"{interval}\"; allowed: at most \
             {MOST_SAMPLES}; shorten the one or lengthen the other"
        );
        return Err(cx.error(&path, problem));
    }
    if duration.as_nanos() % interval.as_nanos() != 0 {
        let problem =
            format!("found \"{duration}\"; allowed: a multiple of sample_interval (\"{interval}\")");
        return Err(cx.error(&step(&path, "duration"), problem));
    }
    Ok(Run {
        warmup: raw.warmup.time(),
        duration,
        sample_interval: interval,
        seed: raw.seed,
        runs: raw.runs.0,
        settings: raw.settings.clone(),
    })
}
