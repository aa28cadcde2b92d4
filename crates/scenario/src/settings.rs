//! Settings: the algorithms that can take the subject's place, by name.

use bentpipe_queue::descriptor::{Algorithm, MarkingMethod, Placement};
use bentpipe_queue::registry;

use crate::model::{AqmSpec, NO_AQM};
use crate::reader::tree::{At, Node, Step};

/// A setting that the scenario itself defines.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name.
    pub name: String,
    /// AQM at the subject.
    pub aqm: AqmSpec,
    /// Scheduler of the setting; `None` for the scenario's.
    pub scheduler: Option<&'static str>,
    /// Table that replaces the subject's AQM.
    pub(crate) node: Node,
}

/// The changes that a setting makes.
pub(crate) struct Found {
    /// Full name.
    pub name: String,
    /// Table of the AQM.
    pub aqm: Node,
    /// Scheduler; `None` for the scenario's.
    pub scheduler: Option<&'static str>,
    /// Permitted placements of the AQM.
    pub placement: Placement,
    /// Marking method of the AQM's preset.
    pub marking: Option<&'static MarkingMethod>,
}

impl Found {
    /// Returns the setting of an AQM whose table has one entry.
    pub fn aqm(label: &str, key: &str, value: &str, placement: Placement) -> Self {
        let mut aqm = Node::table(At::Setting);
        aqm.set(&[Step::Key(key.to_owned())], Node::text(value, At::Setting));
        Self { name: label.to_owned(), aqm, scheduler: None, placement, marking: None }
    }
}

/// Returns the names of all settings: the scenario's own, then presets, AQMs and schedulers.
pub(crate) fn names(own: &[Setting]) -> impl Iterator<Item = &str> + Clone {
    let own = own.iter().map(|s| s.name.as_str());
    let presets = registry::AQMS.iter().flat_map(|a| a.presets.iter().map(|p| p.name));
    let bare = registry::AQMS.iter().map(|a| a.name).chain(registry::SCHEDULERS.iter().map(|s| s.name));
    own.chain(presets).chain(bare)
}

/// Finds a setting by name. An exact match takes precedence over one that differs in case: "avq" is the algorithm with its
/// defaults, "AVQ" a paper's preset.
pub(crate) fn find(own: &[Setting], name: &str) -> Option<Found> {
    let name = name.trim();
    let similar = |known: &str| known.to_lowercase() == name.to_lowercase();
    find_where(own, |known| known == name).or_else(|| find_where(own, similar))
}

fn find_where(own: &[Setting], is: impl Fn(&str) -> bool) -> Option<Found> {
    let algorithm = |a: &Algorithm| Found::aqm(a.name, "algorithm", a.name, a.placement);
    let own = own.iter().find(|s| is(&s.name)).map(|s| Found {
        name: s.name.clone(),
        aqm: s.node.clone(),
        scheduler: s.scheduler,
        placement: s.aqm.algorithm.placement,
        marking: s.node.get_text("preset").and_then(|name| Some(registry::preset(name)?.1.marking?.0)),
    });
    let preset = || {
        let mut presets = registry::AQMS.iter().flat_map(|a| a.presets.iter().map(move |p| (a, p)));
        let (a, p) = presets.find(|(_, p)| is(p.name))?;
        let found = Found::aqm(p.name, "preset", p.name, a.placement);
        Some(Found { marking: p.marking.map(|(method, _)| method), ..found })
    };
    let bare = || registry::AQMS.iter().find(|a| is(a.name)).map(algorithm);
    let scheduler = || {
        let scheduler = registry::SCHEDULERS.iter().find(|s| is(s.name))?;
        let alone = algorithm(registry::aqm(NO_AQM)?);
        Some(Found { name: scheduler.name.to_owned(), scheduler: Some(scheduler.name), ..alone })
    };
    own.or_else(preset).or_else(bare).or_else(scheduler)
}
