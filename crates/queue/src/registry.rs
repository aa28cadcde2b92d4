//! Every algorithm there is: one line each.

use crate::law::{Given, Law};
use crate::params::{Param, ParamError, Value, Values};
use crate::{Aqm, Marking, Scheduler, aqm, marking, sched};

/// An active queue management algorithm.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name in scenario files.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// Its settings in the papers.
    pub presets: &'static [Preset],
    /// Where it may be placed.
    pub placement: Placement,
    /// Makes one with checked values.
    ///
    /// # Errors
    /// Where two values do not go together.
    pub build: fn(&Values) -> Result<Box<dyn Aqm>, ParamError>,
    /// Makes its fluid law with checked values; none where it has none.
    ///
    /// # Errors
    /// Where there is none for one of the values.
    pub law: Option<MakeLaw>,
}

/// Makes a fluid law.
pub type MakeLaw = fn(&Values, &Given) -> Result<Box<dyn Law>, ParamError>;

/// Where an algorithm may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It may mark at one place and watch another.
    Anywhere,
    /// It acts on packets in the watched queue, or as they leave it, so it must mark where it watches.
    WatchedQueue,
}

/// A named set of parameters, printed in a paper.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name in the paper.
    pub name: &'static str,
    /// Where it is printed.
    pub source: &'static str,
    /// The parameters that differ from the defaults.
    pub values: &'static [(&'static str, Value)],
    /// The marking method that belongs to it, if one does, and the parameters of that which differ from the defaults.
    pub marking: Option<(&'static Method, &'static [(&'static str, Value)])>,
}

/// A marking method: what a mark does.
#[derive(Debug)]
pub struct Method {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// What a queue has to do.
    pub marking: Marking,
}

/// A scheduler.
#[derive(Debug)]
pub struct Discipline {
    /// Its name in scenario files.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// Where it is defined.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// Whether it signals congestion itself, as an Aqm does: with packets that wait or leave, so where it stands.
    pub signals: bool,
    /// Makes one with checked values.
    ///
    /// # Errors
    /// Where two values do not go together.
    pub build: fn(&Values) -> Result<Box<dyn Scheduler>, ParamError>,
}

/// The AQMs, in the order in which they are listed.
pub const AQMS: &[Algorithm] = &[
    aqm::droptail::ALGORITHM,
    aqm::red::ALGORITHM,
    aqm::ared::ALGORITHM,
    aqm::sred::ALGORITHM,
    aqm::choke::ALGORITHM,
    aqm::fred::ALGORITHM,
    aqm::redfc::ALGORITHM,
    aqm::blue::ALGORITHM,
    aqm::yellow::ALGORITHM,
    aqm::vrc::ALGORITHM,
    aqm::aaqm::ALGORITHM,
    aqm::pi::ALGORITHM,
    aqm::pie::ALGORITHM,
    aqm::rem::ALGORITHM,
    aqm::sfb::ALGORITHM,
    aqm::codel::ALGORITHM,
    aqm::gkvq::ALGORITHM,
    aqm::avq::ALGORITHM,
    aqm::vqred::ALGORITHM,
    aqm::avqred::ALGORITHM,
    aqm::pfavqred::ALGORITHM,
];

/// The schedulers, in the order in which they are listed.
pub const SCHEDULERS: &[Discipline] = &[
    sched::fifo::DISCIPLINE,
    sched::drr::DISCIPLINE,
    sched::lqd::DISCIPLINE,
    sched::swf::DISCIPLINE,
    sched::ssf::DISCIPLINE,
    sched::fq_codel::DISCIPLINE,
    sched::cake::DISCIPLINE,
    sched::fq_pie::DISCIPLINE,
    sched::dualpi2::DISCIPLINE,
];

/// The marking methods, in the order in which they are listed.
pub const MARKINGS: &[Method] = &[marking::DROP, marking::ECN, marking::WINDOW];

/// The AQM of that name.
#[must_use]
pub fn aqm(name: &str) -> Option<&'static Algorithm> {
    AQMS.iter().find(|a| a.name == name)
}

/// The scheduler of that name.
#[must_use]
pub fn scheduler(name: &str) -> Option<&'static Discipline> {
    SCHEDULERS.iter().find(|s| s.name == name)
}

/// The marking method of that name.
#[must_use]
pub fn marking(name: &str) -> Option<&'static Method> {
    MARKINGS.iter().find(|m| m.name == name)
}

/// The preset of that name, capitals ignored, with its algorithm.
#[must_use]
pub fn preset(name: &str) -> Option<(&'static Algorithm, &'static Preset)> {
    AQMS.iter()
        .flat_map(|a| a.presets.iter().map(move |p| (a, p)))
        .find(|(_, p)| p.name.eq_ignore_ascii_case(name))
}
