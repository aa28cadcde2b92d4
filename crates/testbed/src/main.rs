//! `bentpipe-testbed`: what a live run has around the gateway.

use std::io;
use std::process::ExitCode;

use bentpipe_testbed::plan::Plan;
use bentpipe_testbed::plan::PlanError;
use bentpipe_testbed::{content, emulate, load, serve};

const HELP: &str = "\
bentpipe-testbed: what a live run of a scenario has around the gateway

  bentpipe-testbed emulate PLAN.json   play the links, between TUN devices in their namespaces
  bentpipe-testbed serve PLAN.json     play the servers
  bentpipe-testbed load PLAN.json      play the clients, and write what becomes of their flows
  bentpipe-testbed object FILE BYTES   write an object that `load` knows, for nginx to serve
  bentpipe-testbed check PLAN.json     read a plan, and say what is wrong with it

A plan is described in the documentation of the crate. The first three print a line of JSON when they are ready, and
one with statistics at the end. They end at SIGTERM, at SIGINT, or when standard input is a pipe and closes; `load` ends by
itself, too.
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
            Err(PlanError(format!("found {found}; allowed: a command and its plan\n\n{HELP}")).into())
        }
    }
}

fn object(path: &str, bytes: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Ok(bytes) = bytes.parse() else {
        return Err(PlanError(format!("found \"{bytes}\"; allowed: a number of bytes")).into());
    };
    let fault = |e: io::Error| format!("{path}: {e}");
    let mut file = std::fs::File::create(path).map_err(fault)?;
    Ok(content::write(bytes, &mut file).map_err(fault)?)
}
