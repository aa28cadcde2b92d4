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
}

const fn high(name: &'static str, good: f64, bad: f64) -> Measure {
    Measure { name, higher: true, good, bad }
}

const fn low(name: &'static str, good: f64, bad: f64) -> Measure {
    Measure { name, higher: false, good, bad }
}

/// Measures of quality.
pub const MEASURES: &[Measure] = &[
    high("voice.r", 80.0, 60.0),
    high("voice.mos", 4.03, 3.1),
    low("voice.delay", 150.0, 400.0),
    low("voice.loss", 1.0, 3.0),
    low("page.ttfb", 0.8, 1.8),
    low("page.load", 2.0, 4.0),
    high("video.mos", 4.0, 3.0),
    low("video.startup", 2.0, 10.0),
    low("video.stalls", 1.0, 7.0),
    low("game.delay", 50.0, 200.0),
    low("game.loss", 0.1, 3.0),
    low("iot.delay", 2000.0, 10_000.0),
    low("iot.loss", 1.0, 10.0),
    low("download.time", 15.0, 60.0),
    high("download.plan", 95.0, 80.0),
    high("responsiveness", 1000.0, 300.0),
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
