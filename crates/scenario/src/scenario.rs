//! A scenario: the model, and what it was read from.

use std::sync::Arc;

use serde::Serialize;

use crate::effective::Effective;
use crate::error::Error;
use crate::model::{
    AqmSpec, Gateway, Host, Link, Models, Printed, Run, Subject, Threshold, Traffic, Transport,
};
use crate::reader::Input;
use crate::settings::{self, Setting};
use crate::warning::Warning;

/// A checked and complete scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Title.
    #[serde(skip)]
    pub title: String,
    /// Description.
    #[serde(skip)]
    pub description: Option<String>,
    /// Source of the scenario, such as a publication.
    #[serde(skip)]
    pub source: Option<String>,
    /// Length, sampling and seed of the runs.
    pub run: Run,
    /// Groups of hosts, in the order of the file (as all lists).
    pub hosts: Vec<Host>,
    /// Routers.
    pub routers: Vec<String>,
    /// Links.
    pub links: Vec<Link>,
    /// Gateways.
    pub gateways: Vec<Gateway>,
    /// Transports; includes "default" if any traffic names none.
    pub transports: Vec<Transport>,
    /// Traffic.
    pub traffic: Vec<Traffic>,
    /// Settings that the scenario defines.
    #[serde(skip)]
    pub settings: Vec<Setting>,
    /// Published values to compare with.
    #[serde(skip)]
    pub printed: Vec<Printed>,
    /// Limits of good and bad that the file sets. No run depends on them.
    #[serde(skip)]
    pub thresholds: Vec<Threshold>,
    /// Parameters of the analytical models.
    #[serde(skip)]
    pub models: Models,
    /// Queue that settings apply to and metrics describe.
    pub subject: Subject,
    /// Warnings: permitted combinations that are probably mistakes.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
    /// Errors for overrides of parameters that the AQM in use does not have. They count unless another setting of the same
    /// comparison has the parameter: see [`Scenario::all_used`] and [`Scenario::with_settings`].
    #[serde(skip)]
    pub unused_overrides: Vec<Error>,
    /// Input that a setting is applied to.
    #[serde(skip)]
    pub(crate) input: Arc<Input>,
    /// Name of the applied setting.
    #[serde(skip)]
    pub(crate) setting: Option<String>,
    #[serde(skip)]
    pub(crate) effective: Vec<Effective>,
}

impl Scenario {
    /// Returns true if congestion is signalled behind a gateway's PEP, with packets that it has already acknowledged to
    /// their senders; a dropped packet is then retransmitted over the satellite.
    #[must_use]
    pub fn signals_behind_pep(&self) -> bool {
        self.subject_gateway().is_some_and(Gateway::signals_behind_pep)
    }

    /// Returns the gateway, or the return direction of one, whose queues are the subject; `None` if that is a link.
    #[must_use]
    pub fn subject_gateway(&self) -> Option<&Gateway> {
        match self.subject {
            Subject::Gateway(i) => Some(&self.gateways[i]),
            Subject::Return(i) => self.gateways[i].back.as_deref(),
            Subject::Link(_) => None,
        }
    }

    /// Returns the number of links that one of the scenario's links stands for: one for each host or terminal of a group.
    #[must_use]
    pub fn members(&self, link: &Link) -> u32 {
        crate::resolve::members(link, &self.hosts, &self.gateways)
    }

    /// Returns the classes of traffic, in the order of the file.
    #[must_use]
    pub fn classes(&self) -> Vec<&str> {
        let mut classes = Vec::new();
        for class in self.traffic.iter().map(Traffic::class) {
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        classes
    }

    /// Returns the first unused override as an error; for a single run.
    ///
    /// # Errors
    /// An override of a parameter that the AQM does not have.
    pub fn all_used(&self) -> Result<(), Error> {
        self.unused_overrides.first().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Returns the text of the scenario file, without overrides.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.input.source.text
    }

    /// Returns the file's tables with the overrides, as a TOML table on one line; a chosen setting is not included.
    ///
    /// # Errors
    /// An override that has no effect without a setting.
    pub fn tables(&self) -> Result<String, Error> {
        let (root, unused) = crate::resolve::overridden(&self.input)?;
        unused.into_iter().next().map_or_else(|| Ok(root.toml()), Err)
    }

    /// Returns the overrides as given.
    pub fn overrides(&self) -> impl Iterator<Item = &str> {
        self.input.source.overrides.iter().map(|change| change.text.as_str())
    }

    /// Returns the subject's label in results.
    #[must_use]
    pub fn label(&self) -> &str {
        self.subject_aqm().map_or("", |aqm| &aqm.label)
    }

    /// Returns the AQM of the subject.
    #[must_use]
    pub fn subject_aqm(&self) -> Option<&AqmSpec> {
        match self.subject {
            Subject::Gateway(_) | Subject::Return(_) => self.subject_gateway().map(|gateway| &gateway.aqm),
            Subject::Link(i) => self.links[i].forward.queue.as_ref().map(|q| &q.aqm),
        }
    }

    pub(crate) fn subject_aqm_mut(&mut self) -> Option<&mut AqmSpec> {
        match self.subject {
            Subject::Gateway(i) => self.gateways.get_mut(i.0).map(|g| &mut g.aqm),
            Subject::Return(i) => self.gateways.get_mut(i.0)?.back.as_mut().map(|g| &mut g.aqm),
            Subject::Link(i) => self.links.get_mut(i.0)?.forward.queue.as_mut().map(|q| &mut q.aqm),
        }
    }

    /// Returns every key with its effective value, in the order of the documentation.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Returns the canonical form: all that determines the result of a run, as JSON on one line. Equal text means equal
    /// results. It renders the current fields, without title, description, published values, number of runs and names of
    /// settings.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the names that [`Scenario::with_setting`] accepts.
    pub fn setting_names(&self) -> impl Iterator<Item = &str> + Clone {
        settings::names(&self.settings)
    }
}
