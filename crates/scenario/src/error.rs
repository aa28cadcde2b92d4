//! One message for one mistake: where it is, what was found, what is allowed and what is nearest to it.

use std::fmt;

/// A mistake in a scenario, in an override, or in the name of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Where the mistake is.
    pub place: Location,
    /// The key, dotted as `--set` takes it; empty where the mistake is no key's.
    pub key: String,
    /// What was found and what is allowed, ready to be read.
    pub problem: String,
}

/// Where a mistake is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At a line and a column of a file, both counted from one.
    File(String, usize, usize),
    /// In a file as a whole.
    WholeFile(String),
    /// In an override; the text is the override's own.
    Override(String),
    /// In the setting that was asked for, by its name.
    Setting(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Location::File(file, line, column) => write!(f, "{file}:{line}:{column}: ")?,
            Location::WholeFile(file) => write!(f, "{file}: ")?,
            // One message is one line, whatever was typed.
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

/// The one of `known` that `name` most likely was to be, capitals ignored; none where nothing is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    // A third of the letters may be wrong: enough for two slips in "delay", too few to turn it into "rate".
    let reach = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&wanted, &k.to_lowercase()), k))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// "did you mean …? allowed: …", for a name that is not among `known`.
pub fn choices<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let mut text = String::new();
    if let Some(near) = nearest(name, known.clone()) {
        text = format!("did you mean \"{near}\"? ");
    }
    let list = known.into_iter().collect::<Vec<_>>().join(", ");
    text + "allowed: " + if list.is_empty() { "none, for there is none" } else { &list }
}

/// A value as it was found, shortened where it is long.
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
    fn the_nearest_name_is_found_whatever_its_capitals() {
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
