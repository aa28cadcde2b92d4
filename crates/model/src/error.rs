//! Errors of the models.

use std::fmt;

/// An error of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// A scenario that the equations do not cover: key, value found and permitted values.
    Scenario(String),
    /// A delay longer than the history [s].
    Delay {
        /// Delay.
        lag: f64,
        /// Time at which it occurs.
        at: f64,
        /// Length of the history.
        history: f64,
    },
    /// A diverging solution.
    Diverges {
        /// Variable (index).
        variable: usize,
        /// Time at which it is no longer finite [s].
        at: f64,
        /// Step of the integration [s].
        step: f64,
    },
    /// The caller stopped the solution.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(text) => f.write_str(text),
            Self::Stopped => f.write_str("the solution was stopped"),
            Self::Delay { lag, at, history } => write!(
                f,
                "model.history: the delay at {at} s is {lag} s, found a history of {history} s; allowed: at least the \
                 longest delay"
            ),
            Self::Diverges { variable, at, step } => write!(
                f,
                "model.step: variable {variable} grows without bound at {at} s, found a step of {step} s; allowed: a \
                 shorter one, unless the parameters themselves allow no bounded solution"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Returns an error about the scenario.
pub(crate) fn wrong<T>(text: String) -> Result<T, Error> {
    Err(Error::Scenario(text))
}
