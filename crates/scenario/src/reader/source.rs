//! The text of a file and the overrides as trees, and the location of mistakes.

use std::fmt::Write as _;

use toml::de::{DeTable, DeValue};

use crate::error::{Error, Location, quoted};
use crate::reader::tree::{At, Node, Path, Step, Value, dotted, entries_of};

/// The text of a file, and the overrides.
#[derive(Debug)]
pub struct Source {
    /// Name of the file, as given by the user.
    pub file: String,
    /// Offset of each line [bytes].
    lines: Vec<usize>,
    pub text: String,
    pub overrides: Vec<Override>,
}

impl Source {
    /// Parses a text and its overrides.
    ///
    /// # Errors
    /// Text that is not TOML, or an invalid override.
    pub fn parse(file: &str, text: &str, overrides: &[String]) -> Result<(Self, Node), Error> {
        let begins = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let mut source = Self {
            file: file.to_owned(),
            lines: std::iter::once(0).chain(begins).collect(),
            text: text.to_owned(),
            overrides: Vec::new(),
        };
        if text.trim().is_empty() {
            return Err(source.whole("the file is empty; allowed: a scenario, in TOML"));
        }
        let root = read_toml(text).map_err(|(message, place)| Error {
            place: place.map_or(Location::WholeFile(file.to_owned()), |p| source.place(At::File(p), "")),
            key: String::new(),
            problem: format!("not TOML: {message}"),
        })?;
        for (i, text) in overrides.iter().enumerate() {
            source.overrides.push(Override::parse(text, i)?);
        }
        Ok((source, root))
    }

    fn whole(&self, problem: &str) -> Error {
        Error {
            place: Location::WholeFile(self.file.clone()),
            key: String::new(),
            problem: problem.to_owned(),
        }
    }

    /// Returns an error located at `path`: at the value, or at the key if `key`; if the path does not exist, at the
    /// nearest table around it.
    pub fn error(&self, root: &Node, path: &Path, key: bool, problem: String, setting: &str) -> Error {
        let mut node = root;
        let mut at = At::File(0);
        for (i, step) in path.iter().enumerate() {
            let entry_at = match step {
                Step::Key(k) => node.entries().iter().find(|e| e.key == *k).map(|e| e.at),
                Step::Index(_) => None,
            };
            let Some(next) = node.step(step) else { break };
            let last = i + 1 == path.len();
            at = match entry_at {
                // A table is located at its header or brace; its key is more helpful.
                Some(entry_at) if key || !last || matches!(next.value, Value::Table(_)) => entry_at,
                _ => next.at,
            };
            node = next;
        }
        Error { place: self.place(at, setting), key: dotted(root, path), problem }
    }

    fn place(&self, at: At, setting: &str) -> Location {
        match at {
            At::File(offset) => {
                let line = self.lines.partition_point(|begin| *begin <= offset);
                let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
                let before = self.text.get(begin..offset).unwrap_or_default();
                Location::File(self.file.clone(), line.max(1), before.chars().count() + 1)
            }
            At::Override(i) => {
                self.overrides.get(i).map_or(Location::WholeFile(self.file.clone()), Override::place)
            }
            At::Setting => Location::Setting(setting.to_owned()),
        }
    }
}

/// Parses TOML into a tree.
///
/// # Errors
/// A message, and its offset in the text.
pub fn read_toml(text: &str) -> Result<Node, (String, Option<usize>)> {
    let root = DeTable::parse(text).map_err(|e| {
        let mut message = e.message().trim().replace('\n', "; ");
        let place = e.span().map(|s| s.start);
        if let Some(key) = e.span().and_then(|s| text.get(s)).filter(|_| message == "duplicate key") {
            let _ = write!(message, " {}", quoted(key));
        }
        (message, place)
    })?;
    Ok(Node { value: Value::Table(entries_of(root.get_ref())), at: At::File(0) })
}

/// An override of one key.
#[derive(Debug)]
pub struct Override {
    /// Text as given by the user.
    pub text: String,
    /// Parts of the key.
    pub keys: Vec<String>,
    /// Value, located at [`At::Override`].
    pub node: Node,
}

impl Override {
    /// Returns its location in messages.
    pub fn place(&self) -> Location {
        Location::Override(self.text.clone())
    }

    fn parse(text: &str, index: usize) -> Result<Self, Error> {
        let wrong = |key: &str, problem: String| Error {
            place: Location::Override(text.to_owned()),
            key: key.to_owned(),
            problem,
        };
        let Some((key, value)) = split_at_equals(text) else {
            let problem = "no \"=\"; allowed: a key and a value, such as gateway.regulator.rate=\"10 Mbps\"";
            return Err(wrong("", problem.to_owned()));
        };
        let keys = read_key(key).map_err(|problem| wrong("", problem))?;
        let at = At::Override(index);
        // Nested quotes are tedious in a shell, so a value that is not TOML is text.
        let node = match DeValue::parse(value.trim()) {
            Ok(value) => Node::from_toml(value.get_ref(), 0).relocated(at),
            Err(_) => Node::text(value.trim(), at),
        };
        Ok(Self { text: text.to_owned(), keys, node })
    }
}

/// Splits at the first "=" outside quotes.
fn split_at_equals(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (None, '=') => return Some((&text[..i], &text[i + 1..])),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
    }
    None
}

/// Returns the parts of a dotted key.
fn read_key(key: &str) -> Result<Vec<String>, String> {
    let problem =
        || format!("found the key {}; allowed: a dotted key, such as gateway.regulator.rate", quoted(key));
    if key.contains('\n') {
        return Err(problem());
    }
    let mut node = &read_toml(&format!("{key} = 0")).map_err(|_| problem())?;
    let mut keys = Vec::new();
    while let [entry] = node.entries() {
        keys.push(entry.key.clone());
        node = &entry.node;
    }
    if keys.is_empty() { Err(problem()) } else { Ok(with_whole_measure(keys)) }
}

/// Joins the name of a measure of quality, such as `voice.mos`, that was written without quotes.
fn with_whole_measure(mut keys: Vec<String>) -> Vec<String> {
    if keys.first().is_some_and(|key| key == "thresholds") && keys.len() > 2 {
        let has_limit = keys.last().is_some_and(|key| key == "good" || key == "bad");
        let end = keys.len() - usize::from(has_limit);
        let measure = keys[1..end].join(".");
        keys.splice(1..end, [measure]);
    }
    keys
}
