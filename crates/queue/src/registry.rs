//! The lists of AQMs, schedulers and marking methods, one line per entry, and look-ups by name.

use crate::descriptor::{Algorithm, MarkingMethod, Preset, SchedulerAlgorithm};
use crate::{aqm, marking, sched};

/// The AQMs, in listing order.
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
    aqm::avqred_backlog::ALGORITHM,
    aqm::pfavqred::ALGORITHM,
];

/// The schedulers, in listing order.
pub const SCHEDULERS: &[SchedulerAlgorithm] = &[
    sched::fifo::ALGORITHM,
    sched::drr::ALGORITHM,
    sched::lqd::ALGORITHM,
    sched::swf::ALGORITHM,
    sched::ssf::ALGORITHM,
    sched::fq_codel::ALGORITHM,
    sched::cake::ALGORITHM,
    sched::cake_users::ALGORITHM,
    sched::fq_pie::ALGORITHM,
    sched::dualpi2::ALGORITHM,
];

/// The marking methods, in listing order.
pub const MARKINGS: &[MarkingMethod] = &[marking::DROP, marking::ECN, marking::WINDOW];

/// Returns the AQM called `name`.
#[must_use]
pub fn aqm(name: &str) -> Option<&'static Algorithm> {
    AQMS.iter().find(|a| a.name == name)
}

/// Returns the scheduler called `name`.
#[must_use]
pub fn scheduler(name: &str) -> Option<&'static SchedulerAlgorithm> {
    SCHEDULERS.iter().find(|s| s.name == name)
}

/// Returns the marking method called `name`.
#[must_use]
pub fn marking(name: &str) -> Option<&'static MarkingMethod> {
    MARKINGS.iter().find(|m| m.name == name)
}

/// Returns the preset called `name` (case-insensitive) with its algorithm.
#[must_use]
pub fn preset(name: &str) -> Option<(&'static Algorithm, &'static Preset)> {
    AQMS.iter()
        .flat_map(|a| a.presets.iter().map(move |p| (a, p)))
        .find(|(_, p)| p.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_no_other() {
        assert!(AQMS.iter().all(|a| aqm(a.name).is_some_and(|found| found.name == a.name)));
        assert!(SCHEDULERS.iter().all(|s| scheduler(s.name).is_some_and(|found| found.name == s.name)));
        assert!(MARKINGS.iter().all(|m| marking(m.name).is_some_and(|found| found.name == m.name)));
        let name = "no such name";
        assert!(aqm(name).is_none() && scheduler(name).is_none() && marking(name).is_none());
    }

    #[test]
    fn presets_are_found_in_any_case_with_their_algorithm() {
        let found = preset("pfavqred").map(|(algorithm, preset)| (algorithm.name, preset.name));
        assert_eq!(found, Some(("pfavqred", "PFAVQRED")));
        assert!(preset("no such name").is_none());
    }
}
