//! Commands that change rules and routes.

use std::fmt;
use std::io::{self, Error, Write as _};
use std::process::{Child, Command, Stdio};

pub(super) fn failed(command: &str, why: impl fmt::Display) -> Error {
    Error::other(format!("{command}: {why}"))
}

pub(super) fn start(command: &str, arguments: &[&str], input: &str) -> io::Result<Child> {
    let mut child = Command::new(command)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(command, error))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that reads nothing reports its own error.
        let _ = pipe.write_all(input.as_bytes());
    }
    Ok(child)
}

/// Output of a command, once it has succeeded.
pub(super) fn ended(command: &str, child: Child) -> io::Result<String> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(command, format_args!("{} ({})", said.trim().replace('\n', "; "), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn run(command: &str, arguments: &[&str], input: &str) -> io::Result<String> {
    ended(command, start(command, arguments, input)?)
}
