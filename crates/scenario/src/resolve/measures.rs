//! Limits of good and bad.

use super::cx::Cx;
use super::nodes::named;
use crate::error::{Error, choices, quoted};
use crate::model::{MEASURES, Measure, Threshold};
use crate::reader::tree::step;
use crate::schema::thresholds::Thresholds;

/// Resolves the limits that the file sets, and fills in the other limit of each.
pub fn thresholds(cx: &mut Cx<'_>, raw: &mut Thresholds) -> Result<Vec<Threshold>, Error> {
    let mut all = Vec::new();
    for (name, limits) in &mut raw.0.0 {
        let path = named("thresholds", name);
        let Some(measure) = MEASURES.iter().find(|m| m.name == name) else {
            let known = MEASURES.iter().map(|m| m.name);
            return Err(cx.key_error(&path, format!("found {}; {}", quoted(name), choices(name, known))));
        };
        for (key, limit) in [("good", limits.good), ("bad", limits.bad)] {
            let (least, most) = measure.scale;
            if let Some(limit) = limit.filter(|limit| !limit.is_finite() || *limit < least || *limit > most) {
                let allowed =
                    if most.is_finite() { format!("{least} to {most}") } else { format!("at least {least}") };
                let problem = format!("found {limit}; allowed: {allowed}");
                return Err(cx.error(&step(&path, key), problem));
            }
        }
        let found @ (good, bad) =
            (*limits.good.get_or_insert(measure.good), *limits.bad.get_or_insert(measure.bad));
        check_order(cx, name, measure, found)?;
        all.push(Threshold { measure: measure.name, good, bad });
    }
    Ok(all)
}

fn check_order(cx: &Cx<'_>, name: &str, measure: &Measure, (good, bad): (f64, f64)) -> Result<(), Error> {
    let (least, better) = if measure.higher { ("at least", "higher") } else { ("at most", "lower") };
    let in_order = if measure.higher { good >= bad } else { good <= bad };
    if in_order {
        return Ok(());
    }
    let path = named("thresholds", name);
    let key = if cx.root.find(&step(&path, "good")).is_some() { "good" } else { "bad" };
    let problem = format!(
        "found good = {good} and bad = {bad}; allowed: a good of {least} bad, because {better} values are better"
    );
    Err(cx.error(&step(&path, key), problem))
}
