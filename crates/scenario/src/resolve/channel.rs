//! What a link does to packets.

use super::{Cx, step};
use crate::channel::{Loss, LossAt, LossLaw, LossOf};
use crate::error::Error;
use crate::file::{self, Either, LossAtName, LossOfName};
use crate::tree::{Path, Step};

pub fn loss(cx: &Cx<'_>, path: &Path, raw: &mut file::Loss) -> Result<Loss, Error> {
    let table = match raw {
        Either::Plain(share) => return Ok(Loss::independent(share.0)),
        Either::Table(table) => table,
    };
    let law = match (table.probability, &table.nth) {
        (Some(share), None) => LossLaw::Probability(share.0),
        (None, Some(numbers)) => {
            let path = step(path, "nth");
            for (i, pair) in numbers.windows(2).enumerate() {
                let [before, after] = [pair[0].0, pair[1].0];
                if before >= after {
                    let problem = format!("found {after} after {before}; allowed: rising numbers");
                    return Err(cx.error(&[&path[..], &[Step::Index(i + 1)]].concat(), problem));
                }
            }
            LossLaw::Nth(numbers.iter().map(|n| n.0).collect())
        }
        (first, second) => {
            return Err(one_of(cx, path, &[("probability", first.is_some()), ("nth", second.is_some())]));
        }
    };
    let of = match table.of.get_or_insert(LossOfName::All) {
        LossOfName::All => LossOf::All,
        LossOfName::Data => LossOf::Data,
    };
    let at = match table.at.get_or_insert(LossAtName::AfterQueue) {
        LossAtName::BeforeQueue => LossAt::BeforeQueue,
        LossAtName::AfterQueue => LossAt::AfterQueue,
    };
    Ok(Loss { law, of, at })
}

/// Not one of the keys is there, but none or several.
fn one_of(cx: &Cx<'_>, path: &Path, keys: &[(&str, bool)]) -> Error {
    let list = |keys: &mut dyn Iterator<Item = &str>| keys.collect::<Vec<_>>().join(", ");
    let found = list(&mut keys.iter().filter(|(_, is_there)| *is_there).map(|(key, _)| *key));
    let found = if found.is_empty() { "none".to_owned() } else { found };
    let allowed = list(&mut keys.iter().map(|(key, _)| *key));
    cx.error(path, format!("found {found}; allowed: one of {allowed}"))
}
