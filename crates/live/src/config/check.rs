//! What can be known of a configuration without starting.

use std::fs;
use std::path::Path;

use super::Config;

/// What would keep it from working here: mistakes first, then what may be so on purpose, as when it is checked on
/// another machine.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// It would not start.
    pub errors: Vec<String>,
    /// It would start, or this machine is not the one.
    pub warnings: Vec<String>,
}

/// Looks at the files, devices and settings of this machine that a configuration names.
#[must_use]
pub fn check(config: &Config) -> Findings {
    let mut found = Findings { errors: Vec::new(), warnings: config.warnings.clone() };
    keys(config, &mut found);
    devices(config, &mut found);
    congestion(config, &mut found);
    if let Some(record) = &config.record {
        let folder = record.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            found.errors.push(format!(
                "record.file: found {}; allowed: a file in a folder that exists",
                record.file.display()
            ));
        }
    }
    found
}

fn keys(config: &Config, found: &mut Findings) {
    if !config.keys.is_dir() {
        let problem = format!(
            "satellite.keys: found {}; allowed: a folder made by bentpipe-gateway keygen",
            config.keys.display()
        );
        found.errors.push(problem);
    }
}

fn devices(config: &Config, found: &mut Findings) {
    let outside = [
        config.internet.as_ref().map(|i| ("internet.device", &i.device)),
        config.users.as_ref().map(|u| ("users.device", &u.device)),
    ];
    for (key, device) in outside.into_iter().flatten() {
        if !Path::new("/sys/class/net").join(&device.0).exists() {
            found.warnings.push(format!("{key}: \"{device}\" is not there now"));
        }
    }
}

fn congestion(config: &Config, found: &mut Findings) {
    let Ok(known) = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control") else { return };
    let wanted = &config.tcp.congestion;
    if !known.split_whitespace().any(|name| name == wanted) {
        let known = known.split_whitespace().collect::<Vec<_>>().join(", ");
        found.warnings.push(format!("tcp.congestion: the kernel has no \"{wanted}\" now; it has {known}"));
    }
}
