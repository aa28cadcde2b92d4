//! Context of resolving a scenario.

use crate::effective::{Notes, Origin};
use crate::error::{Error, choices, quoted};
use crate::reader::Input;
use crate::reader::files::{Data, Files};
use crate::reader::source::Source;
use crate::reader::tree::{At, Node, Path, Value as NodeValue, dotted};
use crate::warning::{Warning, WarningKind};

/// The tree being resolved, with the warnings and notes so far.
pub struct Cx<'a> {
    pub source: &'a Source,
    pub root: &'a Node,
    pub files: &'a Files,
    /// Requested setting; may be empty.
    pub setting: &'a str,
    pub warnings: Vec<Warning>,
    /// Origin and explanation of values, by dotted key.
    pub notes: Notes,
}

impl<'a> Cx<'a> {
    /// Returns a context without warnings and notes.
    pub fn of(input: &'a Input, root: &'a Node, setting: &'a str) -> Self {
        let (warnings, notes) = (Vec::new(), Notes::new());
        Self { source: &input.source, root, files: &input.files, setting, warnings, notes }
    }

    /// Returns an error in the value at `path`.
    pub fn error(&self, path: &Path, problem: String) -> Error {
        self.source.error(self.root, path, false, problem, self.setting)
    }

    /// Returns an error in the key at `path`.
    pub fn key_error(&self, path: &Path, problem: String) -> Error {
        self.source.error(self.root, path, true, problem, self.setting)
    }

    /// Returns an error for the unknown name at `path`.
    pub fn unknown<'k>(
        &self,
        path: &Path,
        name: &str,
        known: impl IntoIterator<Item = &'k str> + Clone,
    ) -> Error {
        self.error(path, format!("found {}; {}", quoted(name), choices(name, known)))
    }

    /// Reads the file that the value at `path` names, and parses it. `what` is its content in messages, such as "a
    /// trace of frame sizes".
    pub fn read<T>(
        &self,
        path: &Path,
        name: &str,
        what: &str,
        take: impl FnOnce(&Data) -> Result<T, String>,
    ) -> Result<T, Error> {
        let data = self.files.read(name, what).and_then(|data| take(&data));
        data.map_err(|problem| self.error(path, problem))
    }

    pub fn note(&mut self, path: &Path, origin: Option<Origin>, text: String) {
        self.notes.insert(self.dotted(path), (origin, text));
    }

    pub fn warn(&mut self, kind: WarningKind, path: &Path, text: &str) {
        let warning = Warning { kind, text: format!("{}: {text}", self.dotted(path)) };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    pub(super) fn dotted(&self, path: &Path) -> String {
        dotted(self.root, path)
    }
}

impl Cx<'_> {
    /// Returns true if a parameter of the algorithm at `path` comes from an override.
    pub fn overridden(&self, path: &Path, name: &str) -> bool {
        let aqm = self.root.find(path);
        aqm.is_some_and(|aqm| match &aqm.value {
            NodeValue::Table(entries) => {
                entries.iter().any(|e| e.key == name && matches!(e.at, At::Override(_)))
            }
            _ => false,
        })
    }
}

/// Returns an error for bounds in descending order.
pub fn descending(cx: &Cx<'_>, path: &Path, low: &str, high: &str) -> Error {
    cx.error(path, format!("found [\"{low}\", \"{high}\"]; allowed: the lower bound first"))
}

/// Returns an error unless exactly one alternative of keys is present.
pub fn one_of(cx: &Cx<'_>, path: &Path, keys: &[(&str, bool)], allowed: &str) -> Error {
    let found: Vec<_> = keys.iter().filter(|(_, is_there)| *is_there).map(|(key, _)| *key).collect();
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    cx.error(path, format!("found {found}; allowed: one of {allowed}"))
}
