//! Runs of a model, with the columns of a simulation.

use bentpipe_scenario::Scenario;

use crate::error::{Error, wrong};
use crate::fluid::{
    AQM, Fluid, LARGE, LOST, MARKED, OFFERED, PADHYE, QUEUE, SENT, SMALL, SMALL_WINDOW, VARIABLES,
};
use crate::solve::integrate;
use crate::system::System;

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name, as in a simulation's time series.
    pub name: String,
    /// One value per sample.
    pub values: Vec<f64>,
}

/// A time series: one row per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Columns, `time` first.
    pub columns: Vec<Column>,
}

impl Table {
    /// Returns the values of a column by name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        self.columns.iter().find(|column| column.name == name).map(|column| column.values.as_slice())
    }
}

/// Solves the equations of `scenario` with its subject's AQM over warm-up and duration, and samples them over the duration. The
/// columns are those of a simulation: `time` [s], `offered_load` [bit/s], `throughput` [bit/s],
/// `transmit_queue` [packets], `queue_delay` [s], `mark_probability`, `capacity` [bit/s], the state of the AQM's fluid model as
/// `aqm.NAME`, and `loss_rate`, the packets that marks or a full queue drop per packet offered.
/// Rates are means over a sample. `seed` seeds a random capacity.
///
/// # Errors
/// A scenario that the equations do not cover, or a diverging solution.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Table, Error> {
    run_while(scenario, seed, || true)
}

/// Solves as [`run`] does, while `goes_on` returns true; it is called at each sample.
///
/// # Errors
/// Those of [`run`], and [`Error::Stopped`].
pub fn run_while(scenario: &Scenario, seed: u64, goes_on: impl FnMut() -> bool) -> Result<Table, Error> {
    let system = System::of(scenario, seed)?;
    match system.rules {
        None if system.padhye.is_some() => solve::<PADHYE>(&system, scenario, goes_on),
        None => solve::<VARIABLES>(&system, scenario, goes_on),
        Some(rules) if rules.window <= SMALL_WINDOW => solve::<SMALL>(&system, scenario, goes_on),
        Some(_) => solve::<LARGE>(&system, scenario, goes_on),
    }
}

fn solve<const N: usize>(
    system: &System,
    scenario: &Scenario,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Table, Error> {
    let fluid = Fluid::<N>::new(system);
    let interval = scenario.run.sample_interval.as_nanos();
    let step = scenario.models.step.as_nanos();
    if !interval.is_multiple_of(step) {
        let text = format!("model.step: found {} s; allowed: a part of run.sample_interval", system.step);
        return wrong(text);
    }
    let every = (interval / step) as usize;
    let count = |time: bentpipe_units::Duration| (time.as_nanos() / interval) as usize;
    // The warm-up is rounded up to whole samples.
    let warm = scenario.run.warmup.as_nanos().div_ceil(interval) as usize;
    let samples = warm + count(scenario.run.duration);
    let start = fluid.start();
    let mut aqm_names: Vec<&'static str> = Vec::new();
    let states = system.aqm.states();
    system.aqm.probe(&start[AQM..AQM + states], &mut |name, _| aqm_names.push(name));
    let names = [
        "time",
        "offered_load",
        "throughput",
        "transmit_queue",
        "queue_delay",
        "mark_probability",
        "capacity",
        "loss_rate",
    ];
    let mut columns: Vec<Column> = names
        .iter()
        .map(|name| (*name).to_owned())
        .chain(aqm_names.iter().map(|name| format!("aqm.{name}")))
        .map(|name| Column { name, values: Vec::with_capacity(samples - warm) })
        .collect();
    let seconds = scenario.run.sample_interval.as_secs_f64();
    let (mut before, mut seen) = (start, 0);
    let mut row = Vec::with_capacity(columns.len());
    integrate(&fluid, start, (system.step, samples * every), system.history, every, |t, y| {
        seen += 1;
        if seen > warm {
            let since = |variable: usize| (y[variable] - before[variable]) / seconds;
            let (offered, capacity) = (since(OFFERED), system.capacity.at(t));
            row.clear();
            row.push((seen - warm) as f64 * seconds);
            row.push(8.0 * system.segment * offered);
            row.push(8.0 * system.packet * since(SENT));
            row.push(y[QUEUE]);
            row.push(y[QUEUE] / system.capacity.last_above_zero(t));
            row.push(if offered > 0.0 { since(MARKED) / offered } else { f64::NAN });
            row.push(8.0 * system.packet * capacity);
            let marked = if system.drops { since(MARKED) } else { 0.0 };
            let lost = marked + since(LOST) / system.packets_per_segment;
            row.push(if offered > 0.0 { lost / offered } else { f64::NAN });
            system.aqm.probe(&y[AQM..AQM + states], &mut |_, value| row.push(value));
            for (column, value) in columns.iter_mut().zip(&row) {
                column.values.push(*value);
            }
        }
        before = *y;
        if goes_on() { Ok(()) } else { Err(Error::Stopped) }
    })?;
    Ok(Table { columns })
}
