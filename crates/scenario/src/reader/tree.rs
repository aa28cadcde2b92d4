//! A scenario as a tree whose nodes know their location.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use toml::de::{DeTable, DeValue};

/// A value and its location.
#[derive(Clone, Debug)]
pub struct Node {
    pub value: Value,
    pub at: At,
}

/// Content of a node.
#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    /// A value that no key accepts, as text: a date, or an integer of more than 64 bits.
    Other(String),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value. The entries of a table are in the order of the file.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub at: At,
    pub node: Node,
}

/// Location of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Scenario file, offset [bytes].
    File(usize),
    /// Override (index).
    Override(usize),
    /// Requested setting.
    Setting,
}

/// A step from a table to a value, or from an array to an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Index(usize),
}

/// Path from the root to a node.
pub type Path = [Step];

impl Node {
    pub fn table(at: At) -> Self {
        Self { value: Value::Table(Vec::new()), at }
    }

    pub fn text(text: &str, at: At) -> Self {
        Self { value: Value::Text(text.to_owned()), at }
    }

    /// Returns the entries of a table; empty for other values.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.node)
    }

    pub fn get_text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn step(&self, step: &Step) -> Option<&Self> {
        match (step, &self.value) {
            (Step::Key(key), _) => self.get(key),
            (Step::Index(i), Value::Array(items)) => items.get(*i),
            _ => None,
        }
    }

    pub fn find(&self, path: &Path) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| node.step(step))
    }

    pub fn find_mut(&mut self, path: &Path) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, step| match (step, &mut node.value) {
            (Step::Key(key), Value::Table(entries)) => {
                entries.iter_mut().find(|e| e.key == *key).map(|e| &mut e.node)
            }
            (Step::Index(i), Value::Array(items)) => items.get_mut(*i),
            _ => None,
        })
    }

    /// Sets the node at `path`. Missing tables on the path are created; other values on the path are replaced by
    /// tables.
    pub fn set(&mut self, path: &Path, node: Self) {
        let at = node.at;
        let Some((step, rest)) = path.split_first() else {
            *self = node;
            return;
        };
        match (step, &mut self.value) {
            (Step::Index(i), Value::Array(items)) => {
                if let Some(item) = items.get_mut(*i) {
                    item.set(rest, node);
                }
            }
            (Step::Index(_), _) => {}
            (Step::Key(key), Value::Table(entries)) => {
                if let Some(entry) = entries.iter_mut().find(|e| e.key == *key) {
                    if rest.is_empty() {
                        entry.at = at;
                    }
                    entry.node.set(rest, node);
                } else {
                    let mut entry = Entry { key: key.clone(), at, node: Self::table(at) };
                    entry.node.set(rest, node);
                    entries.push(entry);
                }
            }
            (Step::Key(_), _) => {
                *self = Self::table(at);
                self.set(path, node);
            }
        }
    }

    /// Removes the entries of a table for which `keep` is false.
    pub fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        if let Value::Table(entries) = &mut self.value {
            entries.retain(keep);
        }
    }

    /// Returns the same value with all nodes at one location.
    pub fn relocated(mut self, at: At) -> Self {
        self.at = at;
        match &mut self.value {
            Value::Array(items) => {
                for item in items {
                    *item = std::mem::replace(item, Self::table(at)).relocated(at);
                }
            }
            Value::Table(entries) => {
                for entry in entries {
                    entry.at = at;
                    entry.node = std::mem::replace(&mut entry.node, Self::table(at)).relocated(at);
                }
            }
            _ => {}
        }
        self
    }

    pub fn from_toml(value: &DeValue<'_>, span: usize) -> Self {
        let value = match value {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Other(number.to_string()),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => Value::Other(number.to_string()),
            },
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(date) => Value::Other(date.to_string()),
            DeValue::Array(items) => {
                Value::Array(items.iter().map(|i| Self::from_toml(i.get_ref(), i.span().start)).collect())
            }
            DeValue::Table(table) => Value::Table(entries_of(table)),
        };
        Self { value, at: At::File(span) }
    }
}

pub fn entries_of(table: &DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().clone().into_owned(),
            at: At::File(key.span().start),
            node: Node::from_toml(value.get_ref(), value.span().start),
        })
        .collect();
    entries.sort_by_key(|e| match e.at {
        At::File(place) => place,
        _ => usize::MAX,
    });
    entries
}

impl fmt::Display for Node {
    /// Formats the value as in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Integer(x) => write!(f, "{x}"),
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Flag(x) => write!(f, "{x}"),
            Value::Other(text) => f.write_str(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Value::Table(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|e| format!("{} = {}", bare_or_quoted(&e.key), e.node)).collect();
                write!(f, "{{ {} }}", entries.join(", "))
            }
        }
    }
}

impl Node {
    /// Formats the value as TOML on one line, so that its type can be read back too.
    pub fn toml(&self) -> String {
        match &self.value {
            // TOML and JSON have the same escapes, but only TOML needs one for DEL.
            Value::Text(text) => {
                serde_json::Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007F")
            }
            Value::Float(x) if x.is_nan() => "nan".to_owned(),
            Value::Float(x) => format!("{x:?}"),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(Self::toml).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|e| format!("{} = {}", bare_or_quoted(&e.key), e.node.toml()))
                    .collect();
                format!("{{ {} }}", entries.join(", "))
            }
            _ => self.to_string(),
        }
    }
}

/// Formats a key as in TOML.
pub fn bare_or_quoted(key: &str) -> Cow<'_, str> {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) {
        Cow::Borrowed(key)
    } else {
        // TOML and JSON have the same escapes.
        Cow::Owned(serde_json::Value::from(key).to_string())
    }
}

/// Returns the path of `key` in the table at `path`.
pub fn step(path: &Path, key: &str) -> Vec<Step> {
    [path, &[Step::Key(key.to_owned())]].concat()
}

/// Formats a path as in `--set`.
pub fn dotted(root: &Node, path: &Path) -> String {
    let mut text = String::new();
    let mut node = Some(root);
    for (i, step) in path.iter().enumerate() {
        node = node.and_then(|n| n.step(step));
        let dot = if text.is_empty() { "" } else { "." };
        let _ = match step {
            Step::Key(key) => write!(text, "{dot}{}", bare_or_quoted(key)),
            // Gateways are addressed by name.
            Step::Index(_) if i == 1 && text == "gateway" => {
                let name = node.and_then(|n| n.get_text("name")).unwrap_or("gateway");
                write!(text, ".{}", bare_or_quoted(name))
            }
            Step::Index(n) => write!(text, "[{}]", n + 1),
        };
    }
    text
}
