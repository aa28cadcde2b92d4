//! Measures of quality, by which classes of traffic are graded. The Python package grades; a scenario may set the limits.

use serde::Serialize;

/// A measure of quality with its default limits, which are those of `bentpipe.qoe.thresholds`, where their sources are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Name.
    pub name: &'static str,
    /// True if higher values are better.
    pub higher: bool,
    /// Default limit up to which, or from which, values are good.
    pub good: f64,
    /// Default limit beyond which values are bad.
    pub bad: f64,
    /// Smallest and largest value that the measure can have.
    pub scale: (f64, f64),
}

/// Ratings of the E-model (ITU-T G.107, 7.1) and shares [%].
const PERCENT: (f64, f64) = (0.0, 100.0);
/// Opinions of calls (ITU-T G.107, Annex B).
const CALL_MOS: (f64, f64) = (1.0, 4.5);
/// Opinions on a scale of five categories (ITU-T P.910).
const MOS: (f64, f64) = (1.0, 5.0);
/// Times and rates.
const ANY: (f64, f64) = (0.0, f64::INFINITY);

const fn high(name: &'static str, good: f64, bad: f64, scale: (f64, f64)) -> Measure {
    Measure { name, higher: true, good, bad, scale }
}

const fn low(name: &'static str, good: f64, bad: f64, scale: (f64, f64)) -> Measure {
    Measure { name, higher: false, good, bad, scale }
}

/// Measures of quality.
pub const MEASURES: &[Measure] = &[
    high("voice.r", 80.0, 60.0, PERCENT),
    high("voice.mos", 4.03, 3.1, CALL_MOS),
    low("voice.delay", 150.0, 400.0, ANY),
    low("voice.loss", 1.0, 3.0, PERCENT),
    low("page.ttfb", 0.8, 1.8, ANY),
    low("page.load", 2.0, 4.0, ANY),
    high("video.mos", 4.0, 3.0, MOS),
    low("video.startup", 2.0, 10.0, ANY),
    low("video.stalls", 1.0, 7.0, PERCENT),
    low("game.delay", 50.0, 200.0, ANY),
    low("game.loss", 0.1, 3.0, PERCENT),
    low("iot.delay", 2000.0, 10_000.0, ANY),
    low("iot.loss", 1.0, 10.0, PERCENT),
    low("download.time", 15.0, 60.0, ANY),
    high("download.plan", 95.0, 80.0, PERCENT),
    high("responsiveness", 1000.0, 300.0, ANY),
];

/// Limits of a measure that the scenario sets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// Name of the measure.
    pub measure: &'static str,
    /// Limit up to which, or from which, values are good.
    pub good: f64,
    /// Limit beyond which values are bad.
    pub bad: f64,
}
