//! Files: the scenario file itself, and the traces and captures that it names. Those are looked up relative to the
//! scenario file's folder, and the canonical form has their digest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Location, quoted};
use crate::model::Digest;

/// Maximum size of a scenario file [bytes].
const LARGEST_TEXT: u64 = 4 << 20;

/// Reads a TOML file. `what` is its content in messages, such as "a scenario".
pub fn read_text(path: &Path, what: &str) -> Result<String, Error> {
    let name = path.display().to_string();
    let fault =
        |problem: String| Error { place: Location::WholeFile(name.clone()), key: String::new(), problem };
    let unreadable = |e: std::io::Error| fault(format!("cannot be read: {e}"));
    if path.is_dir() {
        return Err(fault(format!("found a folder; allowed: {what} file, in TOML")));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(unreadable)?
        .take(LARGEST_TEXT + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST_TEXT {
        return Err(fault(format!("more than {} MiB; allowed: {what} file, in TOML", LARGEST_TEXT >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let (valid, bytes) = (e.utf8_error().valid_up_to(), e.as_bytes());
        let before = &bytes[..valid];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before.rsplit(|b| *b == b'\n').next().unwrap_or_default());
        let place = Location::File(name.clone(), line, column.chars().count() + 1);
        let found = bytes.get(valid).copied().unwrap_or_default();
        let problem = format!("found the byte 0x{found:02x}; allowed: {what} in TOML, in UTF-8");
        Error { place, key: String::new(), problem }
    })
}

/// Maximum size of a data file [bytes].
pub const LARGEST: u64 = 256 << 20;

/// Files around a scenario. Each is read once, so that all settings of a comparison see the same content.
#[derive(Debug, Default)]
pub struct Files {
    folder: PathBuf,
    /// True if no further files are read from disk.
    closed: bool,
    read: Mutex<BTreeMap<PathBuf, Arc<Data>>>,
}

impl Files {
    /// Returns the files around a scenario file.
    pub fn around(scenario: &str) -> Self {
        Self {
            folder: Path::new(scenario).parent().map(Path::to_owned).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Returns files that were packed with a scenario; nothing is read from disk.
    pub fn packed(scenario: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let data = |(name, bytes): (String, Vec<u8>)| {
            (PathBuf::from(&name), Arc::new(Data { digest: Digest::of(&bytes), name, bytes }))
        };
        let read = Mutex::new(files.into_iter().map(data).collect());
        Self { closed: true, read, ..Self::around(scenario) }
    }

    /// Returns the files read so far.
    pub fn all(&self) -> Vec<Arc<Data>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Reads a file. `what` is its content in messages, such as "a trace of frame sizes".
    ///
    /// # Errors
    /// A file that cannot be read, is empty or too large.
    pub fn read(&self, name: &str, what: &str) -> Result<Arc<Data>, String> {
        let path = self.folder.join(name);
        // A thread that panicked while holding the lock left only complete files.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(data) = read.get(&path) {
            return Ok(data.clone());
        }
        let shown = path.display().to_string();
        if self.closed {
            return Err(format!("{shown} is not packed with the scenario; allowed: {what}"));
        }
        let unreadable = |e: std::io::Error| format!("{shown} cannot be read: {e}; allowed: {what}");
        let about = path.metadata().map_err(unreadable)?;
        if !about.is_file() {
            let found = if about.is_dir() { "a folder" } else { "no ordinary file" };
            return Err(format!("{shown}: found {found}; allowed: {what}"));
        }
        if about.len() > LARGEST {
            let found = about.len();
            return Err(format!(
                "{shown}: found {found} B; allowed: {what}, of at most {} MiB",
                LARGEST >> 20
            ));
        }
        let mut bytes = Vec::new();
        File::open(&path).and_then(|f| f.take(LARGEST).read_to_end(&mut bytes)).map_err(unreadable)?;
        if bytes.is_empty() {
            return Err(format!("{shown}: found an empty file; allowed: {what}"));
        }
        let data = Arc::new(Data { name: shown, digest: Digest::of(&bytes), bytes });
        read.insert(path, data.clone());
        Ok(data)
    }
}

/// A file that was read.
#[derive(Debug)]
pub struct Data {
    /// Path, as in messages.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// Identity.
    pub digest: Digest,
}

impl Data {
    /// Returns the non-empty lines of a text, with line numbers from one; without comments (`#`) and surrounding
    /// blanks, and without a byte order mark.
    ///
    /// # Errors
    /// Per line that is not UTF-8, see [`Data::at_line`].
    pub fn lines(&self) -> impl Iterator<Item = Result<(usize, &str), String>> {
        let text = self.bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&self.bytes);
        let lines = text.split(|b| *b == b'\n').enumerate();
        lines.filter_map(|(i, line)| match std::str::from_utf8(line) {
            Ok(line) => {
                let said = line.split('#').next().unwrap_or_default().trim();
                (!said.is_empty()).then_some(Ok((i + 1, said)))
            }
            Err(e) => {
                let byte = line.get(e.valid_up_to()).copied().unwrap_or_default();
                Some(Err(self.at_line(i + 1, &format!("the byte 0x{byte:02x}"), "a text, in UTF-8")))
            }
        })
    }

    /// Returns the message for a mistake in a line.
    pub fn at_line(&self, line: usize, found: &str, allowed: &str) -> String {
        format!("{}:{line}: found {found}; allowed: {allowed}", self.name)
    }

    /// Returns the message for a mistake at a byte, counted from zero.
    pub fn at_byte(&self, byte: usize, found: &str, allowed: &str) -> String {
        format!("{}, byte {byte}: found {found}; allowed: {allowed}", self.name)
    }

    /// Returns the message for a mistake in the whole file.
    pub fn whole(&self, found: &str, allowed: &str) -> String {
        format!("{}: found {found}; allowed: {allowed}", self.name)
    }

    /// Reads one number per line with `read`.
    ///
    /// # Errors
    /// The first line that `read` rejects, or a file without numbers. `allowed` describes the permitted numbers.
    pub fn numbers<T>(&self, read: impl Fn(&str) -> Option<T>, allowed: &str) -> Result<Vec<T>, String> {
        let mut numbers = Vec::new();
        for line in self.lines() {
            let (line, text) = line?;
            let number = read(text).ok_or_else(|| self.at_line(line, &quoted(text), allowed))?;
            numbers.push(number);
        }
        if numbers.is_empty() {
            let each = format!("a text with one number in each line: {allowed}");
            return Err(self.whole("no number", &each));
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> Data {
        Data { name: "a.dat".to_owned(), bytes: bytes.to_vec(), digest: Digest::of(bytes) }
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        let d = data(b"# sizes\n\n 12 # the first\r\n7\n");
        assert_eq!(d.lines().collect::<Result<Vec<_>, _>>(), Ok(vec![(3, "12"), (4, "7")]));
        assert_eq!(d.numbers(|t| t.parse::<u32>().ok(), "a size"), Ok(vec![12, 7]));
        let marked = data(b"\xef\xbb\xbf12\r\n7\r\n");
        assert_eq!(marked.numbers(|t| t.parse::<u32>().ok(), "a size"), Ok(vec![12, 7]));
    }

    #[test]
    fn errors_name_the_line() {
        let read = |bytes: &[u8]| data(bytes).numbers(|t| t.parse::<u32>().ok(), "a size").unwrap_err();
        assert_eq!(read(b"12\n-7\n"), "a.dat:2: found \"-7\"; allowed: a size");
        assert_eq!(read(b"12\n\xff\n"), "a.dat:2: found the byte 0xff; allowed: a text, in UTF-8");
        assert_eq!(
            read(b"# nothing\n"),
            "a.dat: found no number; allowed: a text with one number in each line: a size"
        );
    }

    #[test]
    fn files_are_relative_to_the_scenario_and_read_once() {
        let folder = std::env::temp_dir().join(format!("bentpipe-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.dat");
        std::fs::write(&path, "1\n").expect("a file");
        let files = Files::around(&folder.join("my.toml").display().to_string());
        let first = files.read("a.dat", "a trace").expect("a file");
        std::fs::write(&path, "2\n").expect("a file");
        assert_eq!(files.read("a.dat", "a trace").expect("a file").digest, first.digest);
        std::fs::write(folder.join("empty"), "").expect("a file");
        File::create(folder.join("large")).and_then(|f| f.set_len(LARGEST + 1)).expect("a file");
        let shown = folder.display();
        for (name, expected) in [
            ("empty", format!("{shown}/empty: found an empty file; allowed: a trace")),
            ("large", format!("{shown}/large: found 268435457 B; allowed: a trace, of at most 256 MiB")),
            ("", format!("{shown}/: found a folder; allowed: a trace")),
            (
                "none",
                format!(
                    "{shown}/none cannot be read: No such file or directory (os error 2); allowed: a trace"
                ),
            ),
        ] {
            assert_eq!(files.read(name, "a trace").err(), Some(expected));
        }
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
