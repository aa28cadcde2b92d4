//! The live gateway's daemon.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use bentpipe_gatewayd::config::{Config, Role, check, listing};
use bentpipe_gatewayd::event_loop::{Daemon, rules_left, rules_setup};
use bentpipe_gatewayd::intercept::rules;
use bentpipe_gatewayd::observe::log;
use bentpipe_gatewayd::sys::modem;
use bentpipe_spacelink as spacelink;

const USAGE: &str = "usage: bentpipe-gateway run CONFIG      run an end of the gateway until a signal ends it
       bentpipe-gateway check CONFIG    say what is wrong with a configuration
       bentpipe-gateway rate CONFIG RATE
                                        tell a running gateway the modem's rate, such as '12 Mbps'
       bentpipe-gateway keygen DIR      make keys for both ends
       bentpipe-gateway cleanup CONFIG  take away the rules that a killed one has left";

/// What was given is wrong.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    // Paths need not be text.
    let path = Path::new(arguments.get(1).map_or("".as_ref(), OsString::as_os_str));
    match words.as_slice() {
        ["run", _] => run(path),
        ["check", _] => look(path),
        ["rate", _, rate] => tell(path, rate),
        ["keygen", _] => keygen(path),
        ["cleanup", _] => clean(path),
        ["help" | "--help" | "-h"] => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => complain(USAGE),
    }
}

fn say(text: &str) {
    // Whoever has heard enough closes the pipe.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn complain(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(WRONG)
}

fn read(path: &Path) -> Result<Config, ExitCode> {
    Config::load(path).map_err(|e| complain(&format!("bentpipe-gateway: {e}")))
}

fn run(path: &Path) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    if let Some(error) = check(&config).errors.first() {
        return complain(&format!("bentpipe-gateway: {error}"));
    }
    log::set(config.log.level, config.log.format);
    let file = path.display().to_string();
    for warning in &config.warnings {
        log::warn("config", &[("file", file.as_str().into()), ("problem", warning.as_str().into())]);
    }
    match Daemon::new(config).and_then(Daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bentpipe-gateway: {e}");
            ExitCode::FAILURE
        }
    }
}

fn look(path: &Path) -> ExitCode {
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

fn tell(path: &Path, rate: &str) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let Some(socket) = &config.modem else {
        return complain(&format!(
            "bentpipe-gateway: {}: satellite.modem: missing; required: the socket where a running gateway is told its rate",
            path.display()
        ));
    };
    let rate = match modem::rate(rate) {
        Ok(rate) => rate,
        Err(problem) => return complain(&format!("bentpipe-gateway: rate: {problem}")),
    };
    match modem::tell(socket, rate) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "bentpipe-gateway: {}: {e}; needed: a gateway that runs with this configuration",
                socket.display()
            );
            ExitCode::FAILURE
        }
    }
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

fn clean(path: &Path) -> ExitCode {
    // A file that was broken since it was started from must not keep users' connections from going by: then it may have
    // been either end.
    let (setups, wrong) = match Config::load(path) {
        Ok(config) => (vec![rules_setup(&config)], None),
        Err(e) => ([Role::Gateway, Role::Terminal].map(rules_left).to_vec(), Some(e)),
    };
    let removed = setups.iter().map(rules::remove).fold(Ok(()), Result::and);
    if let Err(e) = &removed {
        eprintln!("bentpipe-gateway: {e}");
    }
    match (wrong, removed) {
        (Some(e), _) => complain(&format!("bentpipe-gateway: {e}")),
        (None, Ok(())) => ExitCode::SUCCESS,
        (None, Err(_)) => ExitCode::FAILURE,
    }
}
