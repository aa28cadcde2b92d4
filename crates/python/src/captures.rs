//! The files that packets on links and events of connections are written to.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use bentpipe_capture::qlog::{self, LogCounts};
use bentpipe_capture::{Capture, Counts, Limits};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Interface, LogEvent, Observation, Watch, interfaces};
use pyo3::PyErr;
use pyo3::exceptions::PyOSError;

use crate::errors::WatchError;

/// Files that are being written, one for each watched link.
pub struct Captures {
    files: Vec<(PathBuf, Capture<BufWriter<File>>)>,
    /// For each interface, its file and its number there.
    places: Vec<(usize, u32)>,
    failed: Option<PyErr>,
}

impl Captures {
    /// Makes the files.
    pub fn begin(
        scenario: &Scenario,
        watch: &Watch,
        paths: Vec<PathBuf>,
        limits: Limits,
    ) -> Result<Self, PyErr> {
        let all = interfaces(scenario, &watch.links).map_err(WatchError::new_err)?;
        let mut captures = Self { files: Vec::new(), places: Vec::new(), failed: None };
        for (watched, path) in paths.into_iter().enumerate() {
            let mine: Vec<Interface> = all.iter().filter(|i| i.watched == watched).cloned().collect();
            captures.places.extend((0..mine.len() as u32).map(|place| (watched, place)));
            let begun = File::create_new(&path).and_then(|file| {
                Capture::new(BufWriter::with_capacity(1 << 18, file), scenario, &mine, limits)
            });
            match begun {
                Ok(capture) => captures.files.push((path, capture)),
                Err(error) => return Err(os_error(&path, &error)),
            }
        }
        Ok(captures)
    }

    /// Writes a packet; whether all went well so far.
    pub fn take(&mut self, observation: &Observation) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let Some(&(file, place)) = self.places.get(observation.interface as usize) else { return true };
        let Some((path, capture)) = self.files.get_mut(file) else { return true };
        if let Err(error) = capture.write(place, observation) {
            self.failed = Some(os_error(path, &error));
        }
        self.failed.is_none()
    }

    /// Puts the files on the disk.
    pub fn end(self) -> Result<Vec<Counts>, PyErr> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let close = |capture: Capture<BufWriter<File>>| {
            let (out, counts) = capture.finish()?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            Ok(counts)
        };
        self.files
            .into_iter()
            .map(|(path, file)| close(file).map_err(|error| os_error(&path, &error)))
            .collect()
    }
}

/// Logs of connections that are being written to a folder.
pub struct Logs {
    logs: qlog::Logs,
    failed: Option<PyErr>,
}

impl Logs {
    pub fn begin(scenario: &Scenario, folder: &std::path::Path, events: u64) -> Self {
        Self { logs: qlog::Logs::new(folder, scenario, events), failed: None }
    }

    /// Writes an event; whether all went well so far.
    pub fn take(&mut self, event: &LogEvent) -> bool {
        if self.failed.is_none()
            && let Err(failed) = self.logs.write(event)
        {
            self.failed = Some(os_error(&failed.path, &failed.error));
        }
        self.failed.is_none()
    }

    /// Writes the rest.
    pub fn end(self) -> Result<LogCounts, PyErr> {
        match self.failed {
            Some(error) => Err(error),
            None => self.logs.finish().map_err(|failed| os_error(&failed.path, &failed.error)),
        }
    }
}

fn os_error(path: &std::path::Path, error: &io::Error) -> PyErr {
    let path = path.to_string_lossy().into_owned();
    match error.raw_os_error() {
        Some(number) => {
            // Rust adds the number in brackets; Python keeps it apart.
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path))
        }
        None => PyOSError::new_err(format!("{path}: {error}")),
    }
}
