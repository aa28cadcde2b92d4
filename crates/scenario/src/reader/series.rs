//! Files of measured series.

use serde::Deserialize;

use super::files::Data;
use crate::model::{Fourier, MeasuredSeries};

/// Name of such a file in messages.
const SERIES: &str = "measured series, a file of `bentpipe model capture`";

#[derive(Deserialize)]
struct Raw {
    bentpipe: String,
    version: u32,
    interval: f64,
    points: u32,
    pep_delay: Fourier,
    load_ratio: Fourier,
    new_connections: Option<Fourier>,
}

/// Reads measured series.
///
/// # Errors
/// The value found and the values allowed.
pub fn series(data: &Data) -> Result<MeasuredSeries, String> {
    let raw: Raw = serde_json::from_slice(&data.bytes)
        .map_err(|e| format!("{}: found JSON with a mistake, {e}; allowed: {SERIES}", data.name))?;
    if (raw.bentpipe.as_str(), raw.version) != ("measured series", 1) {
        let found = format!("\"{}\", version {}", raw.bentpipe, raw.version);
        return Err(format!("{}: found {found}; allowed: {SERIES}, version 1", data.name));
    }
    let period = raw.interval * f64::from(raw.points);
    if !(period.is_finite() && period > 0.0) {
        let found = format!("{} points at an interval of {} s", raw.points, raw.interval);
        return Err(format!("{}: found {found}; allowed: more than none, further apart than 0 s", data.name));
    }
    let named = [
        ("pep_delay", Some(&raw.pep_delay)),
        ("load_ratio", Some(&raw.load_ratio)),
        ("new_connections", raw.new_connections.as_ref()),
    ];
    for (name, series) in named {
        let Some(series) = series else { continue };
        if series.cos.len() != series.sin.len() {
            let found = format!("{} cosines and {} sines", series.cos.len(), series.sin.len());
            return Err(format!("{}, {name}: found {found}; allowed: as many of each", data.name));
        }
        let mut all = series.cos.iter().chain(&series.sin).chain([&series.mean]);
        if !all.all(|x| x.is_finite()) {
            return Err(format!("{}, {name}: found a number without bound; allowed: finite ones", data.name));
        }
    }
    Ok(MeasuredSeries {
        period,
        pep_delay: raw.pep_delay,
        load_ratio: raw.load_ratio,
        new_connections: raw.new_connections,
        digest: data.digest,
    })
}
