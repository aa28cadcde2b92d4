//! The gateway daemon.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use bentpipe_gatewayd::config::{Config, Contacts, Role, check, listing};
use bentpipe_gatewayd::event_loop::{Daemon, rules_left, rules_setup};
use bentpipe_gatewayd::intercept::rules;
use bentpipe_gatewayd::observe::{log, status};
use bentpipe_gatewayd::sys::modem;

const USAGE: &str =
    "usage: bentpipe-gateway run CONFIG      run an end of the gateway until SIGTERM or SIGINT
       bentpipe-gateway check CONFIG    check a configuration and list its values
       bentpipe-gateway rate CONFIG RATE
                                        set the modem's rate of a running gateway, such as '12 Mbps'
       bentpipe-gateway status CONFIG [--json]
                                        list the terminals of a running gateway
       bentpipe-gateway keygen DIR [gateway|terminal]
                                        create keys for both ends, or for one of them
       bentpipe-gateway cleanup CONFIG  remove the rules that a killed gateway has left
       bentpipe-gateway --version       print the version";

/// Exit code of wrong arguments or configurations.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    // Paths need not be UTF-8.
    let path = Path::new(arguments.get(1).map_or("".as_ref(), OsString::as_os_str));
    match words.as_slice() {
        ["run", _] => run(path),
        ["check", _] => check_config(path),
        ["rate", _, rate] => set_rate(path, rate),
        ["status", _] => status(path, false),
        ["status", _, "--json"] => status(path, true),
        ["keygen", _] => keygen(path, &["gateway", "terminal"]),
        ["keygen", _, name @ ("gateway" | "terminal")] => keygen(path, &[name]),
        ["cleanup", _] => cleanup(path),
        ["help" | "--help" | "-h"] => {
            print(USAGE);
            ExitCode::SUCCESS
        }
        ["--version" | "-V"] => {
            print(concat!("bentpipe-gateway ", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        _ => usage_error(USAGE),
    }
}

fn print(text: &str) {
    // The reader may have closed the pipe.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn usage_error(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(USAGE_ERROR)
}

fn read(path: &Path) -> Result<Config, ExitCode> {
    Config::load(path).map_err(|e| usage_error(&format!("bentpipe-gateway: {e}")))
}

fn contacts(path: &Path) -> Result<Contacts, ExitCode> {
    Contacts::load(path).map_err(|e| usage_error(&format!("bentpipe-gateway: {e}")))
}

fn run(path: &Path) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let found = check(&config);
    if let Some(error) = found.errors.first() {
        return usage_error(&format!("bentpipe-gateway: {error}"));
    }
    log::set(config.log.level, config.log.format);
    let file = path.display().to_string();
    for warning in &found.warnings {
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

fn check_config(path: &Path) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let found = check(&config);
    print(listing(&config).trim_end());
    for text in &found.warnings {
        print(&format!("warning: {text}"));
    }
    for text in &found.errors {
        print(&format!("error: {text}"));
    }
    if found.errors.is_empty() {
        print("the configuration is valid");
        return ExitCode::SUCCESS;
    }
    ExitCode::from(USAGE_ERROR)
}

fn set_rate(path: &Path, rate: &str) -> ExitCode {
    let contacts = match contacts(path) {
        Ok(contacts) => contacts,
        Err(code) => return code,
    };
    let Some(socket) = &contacts.modem else {
        return usage_error(&format!(
            "bentpipe-gateway: {}: satellite.modem: missing; required: the socket on which a running gateway receives its rate",
            path.display()
        ));
    };
    let rate = match modem::rate(rate) {
        Ok(rate) => rate,
        Err(problem) => return usage_error(&format!("bentpipe-gateway: rate: {problem}")),
    };
    match modem::send_rate(socket, rate) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "bentpipe-gateway: {}: {e}; required: a gateway that runs with this configuration",
                socket.display()
            );
            ExitCode::FAILURE
        }
    }
}

fn status(path: &Path, json: bool) -> ExitCode {
    let contacts = match contacts(path) {
        Ok(contacts) => contacts,
        Err(code) => return code,
    };
    let Some(metrics) = &contacts.metrics else {
        return usage_error(&format!(
            "bentpipe-gateway: {}: metrics.listen: missing; required: the address at which a running gateway answers",
            path.display()
        ));
    };
    let listen = metrics.listen.0;
    let shown = status::read(listen).map_err(|e| e.to_string());
    match shown.and_then(|text| if json { Ok(text) } else { status::table(&text) }) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!(
                "bentpipe-gateway: {listen}: {e}; required: a gateway that runs with this configuration"
            );
            ExitCode::FAILURE
        }
    }
}

fn keygen(folder: &Path, names: &[&str]) -> ExitCode {
    for name in names {
        match bentpipe_spacelink::keygen(folder, name, false) {
            Ok(paths) => paths.iter().for_each(|path| print(&path.display().to_string())),
            Err(e) => return usage_error(&format!("bentpipe-gateway: {}: {e}", folder.display())),
        }
    }
    ExitCode::SUCCESS
}

fn cleanup(path: &Path) -> ExitCode {
    // A configuration that has become invalid must not prevent the removal of the rules; the daemon may have been either
    // end.
    let (setups, wrong) = match Config::load(path) {
        Ok(config) => (vec![rules_setup(&config)], None),
        Err(e) => ([Role::Gateway, Role::Terminal].map(rules_left).to_vec(), Some(e)),
    };
    let removed = setups.iter().map(rules::remove).fold(Ok(()), Result::and);
    if let Err(e) = &removed {
        eprintln!("bentpipe-gateway: {e}");
    }
    match (wrong, removed) {
        (Some(e), _) => usage_error(&format!("bentpipe-gateway: {e}")),
        (None, Ok(())) => ExitCode::SUCCESS,
        (None, Err(_)) => ExitCode::FAILURE,
    }
}
