//! Errors: one message per mistake, with its location, the value found, the permitted values and the nearest name.

use std::fmt;

/// A mistake in a scenario, an override or the name of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Location of the mistake.
    pub place: Location,
    /// Dotted key as in `--set`; empty if the mistake concerns no key.
    pub key: String,
    /// Message: what was found and what is allowed.
    pub problem: String,
}

/// Location of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Line and column of a file, counted from one.
    File(String, usize, usize),
    /// A file as a whole.
    WholeFile(String),
    /// An override, with its text.
    Override(String),
    /// The requested setting, by name.
    Setting(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Location::File(file, line, column) => write!(f, "{file}:{line}:{column}: ")?,
            Location::WholeFile(file) => write!(f, "{file}: ")?,
            // Keeps the message on one line.
            Location::Override(text) => write!(f, "--set {}: ", text.replace(char::is_control, " "))?,
            Location::Setting(name) => write!(f, "setting {}: ", quoted(name))?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Error {}

/// Returns the name in `known` that is most similar to `name`, ignoring case; `None` if none is similar.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    // Up to a third of the letters may differ: enough for a typo in "delay", too few to confuse it with "rate".
    let reach = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&wanted, &k.to_lowercase()), k))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// Returns "did you mean …? allowed: …" for an unknown name.
pub fn choices<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let mut text = String::new();
    if let Some(near) = nearest(name, known.clone()) {
        text = format!("did you mean \"{near}\"? ");
    }
    let list = known.into_iter().collect::<Vec<_>>().join(", ");
    text + "allowed: " + if list.is_empty() { "none, because none is defined" } else { &list }
}

/// Quotes a value, shortened if it is long.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(LONGEST).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_ignores_case() {
        let known = ["delay", "rate", "between"];
        assert_eq!(nearest("dealy", known), Some("delay"));
        assert_eq!(nearest("Rate", known), Some("rate"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn long_values_are_shortened() {
        assert_eq!(quoted("20 Mbs"), "\"20 Mbs\"");
        assert_eq!(quoted(&"é".repeat(61)), format!("\"{}\"…", "é".repeat(60)));
    }
}
