//! The live gateway's daemon.

use std::path::Path;
use std::process::ExitCode;

use bentpipe_live::config::{Config, check, listing};
use bentpipe_live::daemon::{Daemon, rules_setup};
use bentpipe_live::{log, rules, spacelink};

const USAGE: &str = "usage: bentpipe-gateway run CONFIG      run an end of the gateway until a signal ends it
       bentpipe-gateway check CONFIG    say what is wrong with a configuration
       bentpipe-gateway keygen DIR      make keys for both ends
       bentpipe-gateway cleanup CONFIG  take away the rules that a killed one has left";

/// What was given is wrong.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["run", path] => run(path),
        ["check", path] => look(path),
        ["keygen", folder] => keygen(Path::new(folder)),
        ["cleanup", path] => clean(path),
        ["help" | "--help" | "-h"] => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => complain(USAGE),
    }
}

#[expect(clippy::print_stdout, reason = "a program's output")]
fn say(text: &str) {
    println!("{text}");
}

fn complain(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(WRONG)
}

fn read(path: &str) -> Result<Config, ExitCode> {
    Config::load(path).map_err(|e| complain(&format!("bentpipe-gateway: {e}")))
}

fn run(path: &str) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    log::set(config.log.level, config.log.format);
    for warning in &config.warnings {
        log::warn("config", &[("file", path.into()), ("problem", warning.as_str().into())]);
    }
    match Daemon::new(config).and_then(Daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bentpipe-gateway: {e}");
            ExitCode::FAILURE
        }
    }
}

fn look(path: &str) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let found = check(&config);
    say(listing(&config).trim_end());
    for text in &found.warnings {
        say(&format!("warning: {text}"));
    }
    for text in &found.errors {
        say(&format!("error: {text}"));
    }
    if found.errors.is_empty() {
        say("as it should be");
        return ExitCode::SUCCESS;
    }
    ExitCode::from(WRONG)
}

fn keygen(folder: &Path) -> ExitCode {
    for name in ["gateway", "terminal"] {
        match spacelink::keygen(folder, name, false) {
            Ok(paths) => paths.iter().for_each(|path| say(&path.display().to_string())),
            Err(e) => return complain(&format!("bentpipe-gateway: {}: {e}", folder.display())),
        }
    }
    ExitCode::SUCCESS
}

fn clean(path: &str) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    match rules::remove(&rules_setup(&config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bentpipe-gateway: {e}");
            ExitCode::FAILURE
        }
    }
}
