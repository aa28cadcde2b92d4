//! `bentpipe-testbed`: emulated links, clients and servers for live runs.

use std::io;
use std::process::ExitCode;

use bentpipe_testbed::plan::{Plan, PlanError};
use bentpipe_testbed::{content, emulate, load, serve};

const HELP: &str = "\
bentpipe-testbed: emulated links, clients and servers for a live run of a scenario

  bentpipe-testbed emulate PLAN.json   emulate the links between TUN devices in network namespaces
  bentpipe-testbed serve PLAN.json     run the servers
  bentpipe-testbed load PLAN.json      run the clients and record their flows
  bentpipe-testbed object FILE BYTES   write an object whose content `load` verifies, for nginx to serve
  bentpipe-testbed check PLAN.json     check a plan and print an overview

The documentation of the crate describes plans. The first three print a line of JSON when they are ready and one with
statistics at the end. They end at SIGTERM, at SIGINT, and when standard input is a pipe and closes; `load` also ends at
the plan's end.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    match command(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let is_usage = e.is::<PlanError>();
            eprintln!("bentpipe-testbed: {e}");
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

fn command(words: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    match words {
        ["emulate", path] => emulate::run(&Plan::load(path)?, &mut out),
        ["serve", path] => serve::run(&Plan::load(path)?, &mut out),
        ["load", path] => load::run(&Plan::load(path)?, &mut out),
        ["object", path, bytes] => object(path, bytes),
        ["check", path] => Ok(bentpipe_testbed::check(&Plan::load(path)?, &mut out)?),
        ["-V" | "--version"] => Ok(io::Write::write_all(
            &mut out,
            concat!("bentpipe-testbed ", env!("CARGO_PKG_VERSION"), "\n").as_bytes(),
        )?),
        ["-h" | "--help" | "help"] => Ok(io::Write::write_all(&mut out, HELP.as_bytes())?),
        _ => {
            let found =
                if words.is_empty() { "no command".to_owned() } else { format!("\"{}\"", words.join(" ")) };
            Err(PlanError(format!("found {found}; allowed: a command and a plan\n\n{HELP}")).into())
        }
    }
}

fn object(path: &str, bytes: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Ok(bytes) = bytes.parse() else {
        return Err(PlanError(format!("found \"{bytes}\"; allowed: a whole number of bytes")).into());
    };
    let fault = |e: io::Error| format!("{path}: {e}");
    let mut file = std::fs::File::create(path).map_err(fault)?;
    Ok(content::write(bytes, &mut file).map_err(fault)?)
}
