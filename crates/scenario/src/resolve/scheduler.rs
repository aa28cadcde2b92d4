//! Schedulers.

use bentpipe_queue::registry;
use bentpipe_queue::{Default as ParamDefault, Link};
use bentpipe_units::Rate;

use super::cx::Cx;
use super::param::{check_keys, parameters};
use crate::error::{Error, choices, quoted};
use crate::model::SchedulerSpec;
use crate::reader::tree::{Path, step};
use crate::schema::aqm::{Aqm, Scalar, Scheduler};
use crate::schema::param::shown;

/// Removes the scheduler's name from the table of a setting.
pub fn of_setting(cx: &Cx<'_>, path: &Path, raw: &mut Aqm) -> Result<Option<&'static str>, Error> {
    let Some(i) = raw.0.iter().position(|(key, _)| key == "scheduler") else { return Ok(None) };
    let (_, found) = raw.0.remove(i);
    let names = || registry::SCHEDULERS.iter().map(|s| s.name);
    let at = step(path, "scheduler");
    match &found {
        Scalar::Text(name) => match registry::scheduler(name) {
            Some(discipline) => Ok(Some(discipline.name)),
            None => Err(unknown(cx, &at, name)),
        },
        _ => Err(cx.error(&at, format!("found {}; {}", shown(&found), choices("", names())))),
    }
}

/// Error for an unknown scheduler.
fn unknown(cx: &Cx<'_>, at: &Path, name: &str) -> Error {
    if registry::aqm(name).is_none() {
        return cx.unknown(at, name, registry::SCHEDULERS.iter().map(|s| s.name));
    }
    let found = quoted(name);
    cx.error(
        at,
        format!("found {found}; that is an AQM: algorithm = {found}, in a setting or in the table aqm"),
    )
}

/// Resolves the scheduler at `path` for a link of `capacity` with packets of `mean_packet` [bytes]. Writes every
/// parameter back to `raw`.
pub fn resolve(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: &mut Scheduler,
    capacity: Rate,
    mean_packet: f64,
) -> Result<SchedulerSpec, Error> {
    let key = step(path, "algorithm");
    let at = if cx.root.find(&key).is_some() { &key } else { path };
    let names = || registry::SCHEDULERS.iter().map(|s| s.name);
    let discipline = match raw.get("algorithm") {
        Some(Scalar::Text(name)) => registry::scheduler(name).ok_or_else(|| unknown(cx, at, name))?,
        Some(found) => {
            return Err(cx.error(at, format!("found {}; {}", shown(found), choices("", names()))));
        }
        None => {
            let names = names().collect::<Vec<_>>().join(", ");
            return Err(cx.error(&key, format!("missing; allowed: {names}")));
        }
    };
    check_keys(cx, path, &raw.0, "algorithm", (discipline.name, discipline.params))?;
    let link = Link { capacity, mean_packet };
    let (values, _) = parameters(cx, path, discipline.params, &raw.0, &link, &[])?;
    (discipline.build)(&values).map_err(|e| cx.error(&step(path, e.name), e.problem))?;
    for param in discipline.params {
        if let (None, ParamDefault::FromLink(_, how)) = (raw.get(param.name), param.default) {
            cx.note(&step(path, param.name), None, how.to_owned());
        }
    }
    raw.complete(discipline.name, &values);
    Ok(SchedulerSpec { discipline, values })
}
