//! Descriptions of algorithms, schedulers and marking methods: parameters, presets and constructors.
//!
//! An algorithm's file fills in one of these, the [`registry`](crate::registry) lists them, and the command line, the schema,
//! the reference and the error messages follow from them.

mod params;

pub use params::{Default, FollowedRate, Link, Param, ParamError, Range, Tune, Unit, Value, Values};

use crate::fluid::{FluidConfig, FluidModel};
use crate::{Aqm, Marking, Scheduler};

/// An active queue management algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// Name in scenario files.
    pub name: &'static str,
    /// Full name.
    pub title: &'static str,
    /// Paper, RFC or documentation that defines it.
    pub source: &'static str,
    /// Parameters.
    pub params: &'static [Param],
    /// Parameter sets from the papers.
    pub presets: &'static [Preset],
    /// Allowed positions of its mark point and watch point.
    pub placement: Placement,
    /// Builds the algorithm from checked values.
    ///
    /// # Errors
    /// If two values contradict each other.
    pub build: fn(&Values) -> Result<Box<dyn Aqm>, ParamError>,
    /// Builds its fluid model from checked values; `None` if it has no fluid model.
    ///
    /// # Errors
    /// If the fluid model does not cover one of the values.
    pub fluid: Option<BuildFluid>,
}

/// Builds a fluid model.
pub type BuildFluid = fn(&Values, &FluidConfig) -> Result<Box<dyn FluidModel>, ParamError>;

/// Allowed positions of mark point and watch point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Marks at one queue and watches another.
    Anywhere,
    /// Marks at the watched queue only: it acts on waiting or departing packets.
    WatchedQueue,
}

/// A named parameter set from a paper.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in the paper.
    pub name: &'static str,
    /// Paper and table.
    pub source: &'static str,
    /// Parameters that differ from the defaults.
    pub values: &'static [(&'static str, Value)],
    /// Marking method of the preset, with its parameters that differ from the defaults; `None` if any method may be used.
    pub marking: Option<(&'static MarkingMethod, &'static [(&'static str, Value)])>,
}

/// A marking method: the action taken for a mark.
#[derive(Debug)]
pub struct MarkingMethod {
    /// Name in scenario files.
    pub name: &'static str,
    /// One-line description.
    pub title: &'static str,
    /// Paper, RFC or documentation that defines it.
    pub source: &'static str,
    /// Parameters.
    pub params: &'static [Param],
    /// The action.
    pub marking: Marking,
}

/// A scheduler.
#[derive(Debug)]
pub struct SchedulerAlgorithm {
    /// Name in scenario files.
    pub name: &'static str,
    /// Full name.
    pub title: &'static str,
    /// Paper, RFC or documentation that defines it.
    pub source: &'static str,
    /// Parameters.
    pub params: &'static [Param],
    /// True if it signals congestion itself, as an AQM does, with waiting or departing packets.
    pub signals: bool,
    /// Builds the scheduler from checked values.
    ///
    /// # Errors
    /// If two values contradict each other.
    pub build: fn(&Values) -> Result<Box<dyn Scheduler>, ParamError>,
}
