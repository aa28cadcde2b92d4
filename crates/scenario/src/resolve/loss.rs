//! Loss models of a channel.

use super::cx::{Cx, one_of};
use crate::error::Error;
use crate::model::{Clock, GilbertElliott, Loss, LossAt, LossModel, LossOf};
use crate::reader::tree::{Path, Step, step};
use crate::schema::channel as file;
use crate::schema::forms::Either;
use crate::schema::quantity::Whole;

pub fn loss(cx: &Cx<'_>, path: &Path, raw: &mut file::Loss) -> Result<Loss, Error> {
    let table = match raw {
        Either::Plain(share) => return Ok(Loss::independent(share.0)),
        Either::Table(table) => table,
    };
    let nth = table.nth.as_ref().map(|numbers| nth(cx, &step(path, "nth"), numbers)).transpose()?;
    let channel = table.gilbert_elliott.as_ref();
    let channel = channel.map(|raw| gilbert_elliott(cx, &step(path, "gilbert_elliott"), raw)).transpose()?;
    let given = [
        ("probability", table.probability.map(|share| LossModel::Probability(share.0))),
        ("nth", nth.map(LossModel::Nth)),
        ("gilbert_elliott", channel.map(LossModel::GilbertElliott)),
        ("bit_error_rate", table.bit_error_rate.map(|rate| LossModel::BitErrorRate(rate.0))),
    ];
    let keys = given.each_ref().map(|(key, model)| (*key, model.is_some()));
    let mut models = given.into_iter().filter_map(|(_, model)| model);
    let (Some(model), None) = (models.next(), models.next()) else {
        return Err(one_of(cx, path, &keys, &keys.map(|(key, _)| key).join(", ")));
    };
    let of = *table.of.get_or_insert(LossOf::All);
    let at = *table.at.get_or_insert(LossAt::AfterQueue);
    Ok(Loss { model, of, at })
}

fn nth(cx: &Cx<'_>, path: &Path, numbers: &[Whole<1, { u32::MAX }>]) -> Result<Vec<u32>, Error> {
    for (i, pair) in numbers.windows(2).enumerate() {
        let [before, after] = [pair[0].0, pair[1].0];
        if before >= after {
            let problem = format!("found {after} after {before}; allowed: rising numbers");
            return Err(cx.error(&[path, &[Step::Index(i + 1)]].concat(), problem));
        }
    }
    Ok(numbers.iter().map(|n| n.0).collect())
}

fn gilbert_elliott(cx: &Cx<'_>, path: &Path, raw: &file::GilbertElliott) -> Result<GilbertElliott, Error> {
    let clock = match (raw.p, raw.r, raw.good, raw.bad) {
        (Some(p), Some(r), None, None) => {
            if p.0 + r.0 == 0.0 {
                let problem = "found 0 for both p and r; allowed: at least one above 0".to_owned();
                return Err(cx.error(&step(path, "r"), problem));
            }
            Clock::Packet { p: p.0, r: r.0 }
        }
        (None, None, Some(good), Some(bad)) => Clock::Time { good: good.time(), bad: bad.time() },
        (p, r, good, bad) => {
            let keys =
                [("p", p.is_some()), ("r", r.is_some()), ("good", good.is_some()), ("bad", bad.is_some())];
            return Err(one_of(cx, path, &keys, "p and r, good and bad"));
        }
    };
    Ok(GilbertElliott { clock, loss_good: raw.loss_good.0, loss_bad: raw.loss_bad.0 })
}
