//! Parameters of the analytical models.

use super::cx::Cx;
use crate::error::Error;
use crate::model::Models;
use crate::reader::series;
use crate::reader::tree::step;
use crate::schema::models as file;

/// Maximum number of integration steps in the history.
const MOST_STEPS: u64 = 1_000_000;

pub fn models(cx: &Cx<'_>, raw: Option<&file::Models>) -> Result<Models, Error> {
    let default = file::Models::default();
    let raw = raw.unwrap_or(&default);
    let path = step(&[], "model");
    let (unit, at, history) = (raw.time_unit.time(), raw.step.time(), raw.history.time());
    if at > unit {
        let problem = format!("found {:?}; allowed: at most time_unit, {:?}", raw.step, raw.time_unit);
        return Err(cx.error(&step(&path, "step"), problem));
    }
    if history.as_nanos() / at.as_nanos().max(1) > MOST_STEPS {
        let problem =
            format!("found {:?}; allowed: at most {MOST_STEPS} times step, {:?}", raw.history, raw.step);
        return Err(cx.error(&step(&path, "history"), problem));
    }
    let series = match &raw.series {
        Some(name) => {
            let what = "measured series, a file of `bentpipe model capture`";
            Some(cx.read(&step(&path, "series"), name, what, series::series))
        }
        None => None,
    };
    Ok(Models {
        kind: raw.kind,
        equations: raw.equations,
        feedback: raw.feedback,
        fluid_variant: raw.laws,
        time_unit: unit,
        step: at,
        history,
        series,
        erlang_stages: raw.erlang_stages.0,
        states: raw.states.map(|states| states.0),
    })
}
