//! Checks of a configuration on this machine, without starting the daemon.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bentpipe_scenario::Origin;

use super::{Config, Role};
use crate::intercept::rules::has_ipv6;
use bentpipe_spacelink::{Certificate, Identity};

/// Problems found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Reasons for the daemon not to start.
    pub errors: Vec<String>,
    /// Probable mistakes, or signs that this is not the machine for the configuration.
    pub warnings: Vec<String>,
}

/// Checks the files, devices and settings of this machine that a configuration names.
#[must_use]
pub fn check(config: &Config) -> Findings {
    let mut found = Findings { errors: Vec::new(), warnings: config.warnings.clone() };
    keys(config, &mut found);
    devices(config, &mut found);
    congestion(config, &mut found);
    ip_versions(config, has_ipv6(), &mut found);
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

/// Checks the files of this end: its key and certificate, and the other end's certificate.
fn keys(config: &Config, found: &mut Findings) {
    let (own, other) = match config.role {
        Role::Gateway => ("gateway", "terminal"),
        Role::Terminal => ("terminal", "gateway"),
    };
    let at = |name: &str, end: &str| config.keys.join(format!("{name}.{end}"));
    let identity = Identity::read(&at(own, "key"), &at(own, "crt")).map(drop);
    let peer = match &config.terminals {
        Some(terminals) => {
            found.errors.extend(terminals.certificates().err());
            Ok(())
        }
        None => Certificate::read(&at(other, "crt")).map(drop),
    };
    for error in [identity, peer].into_iter().filter_map(Result::err) {
        let how = "create it with bentpipe-gateway keygen";
        found.errors.push(format!("satellite.keys: {error}; {how}"));
    }
    let key = at(own, "key");
    if let Some(mode) =
        fs::metadata(&key).ok().map(|known| known.mode() & 0o777).filter(|mode| mode & 0o77 != 0)
    {
        let key = key.display();
        found
            .warnings
            .push(format!("satellite.keys: {key}: mode {mode:04o}, readable by others; recommended: 0600"));
    }
}

fn devices(config: &Config, found: &mut Findings) {
    let outside = [
        config.internet.as_ref().map(|i| ("internet.device", &i.device)),
        config.users.as_ref().map(|u| ("users.device", &u.device)),
    ];
    for (key, device) in outside.into_iter().flatten() {
        if !Path::new("/sys/class/net").join(&device.0).exists() {
            found.warnings.push(format!("{key}: \"{device}\" does not exist now"));
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

fn ip_versions(config: &Config, has_ipv6: bool, found: &mut Findings) {
    let clients = [
        config.internet.as_ref().map(|i| ("internet.clients", &i.clients)),
        config.users.as_ref().map(|u| ("users.clients", &u.clients)),
    ];
    for (key, clients) in clients.into_iter().flatten().filter(|_| !has_ipv6) {
        if let Some(prefix) = clients.iter().find(|prefix| prefix.address.is_ipv6()) {
            found
                .warnings
                .push(format!("{key}: the kernel has no IPv6 now; \"{prefix}\" and the like are left out"));
        }
    }
}

/// Lists every key with its effective value and origin, one per line.
#[must_use]
pub fn listing(config: &Config) -> String {
    let width = config.effective.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let values = config.effective.iter().map(|row| row.value.chars().count()).max().unwrap_or(0).min(36);
    let mut text = String::new();
    for row in &config.effective {
        let origin = match row.origin {
            Origin::Given => "given",
            Origin::Override => "override",
            Origin::Setting => "setting",
            Origin::Preset => "preset",
            Origin::Default => "default",
        };
        let note = if row.note.is_empty() { String::new() } else { format!(": {}", row.note) };
        let _ = writeln!(text, "{:width$}  {:values$}  {origin}{note}", row.key, row.value);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use bentpipe_spacelink::keygen;

    #[test]
    fn missing_files_and_devices_are_found() {
        let folder = std::env::temp_dir().join(format!("bentpipe-check-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let text = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"no-such-device\"\nclients = [\"10.3.0.0/24\"]\n\
            [tcp]\ncongestion = \"no-such-control\"\n[record]\nfile = \"none/x.jsonl\"\n";
        let config = Config::parse(text, folder.join("g.toml")).unwrap();
        let found = check(&config);
        assert_eq!(found.errors.len(), 3, "{:?}", found.errors);
        assert!(
            found.errors[0].contains("keys/gateway.crt: ") || found.errors[0].contains("keys/gateway.key: ")
        );
        assert!(found.errors[1].contains("keys/terminal.crt: "), "{:?}", found.errors);
        assert!(found.errors[2].starts_with("record.file: found "));
        let told = found.warnings.join("; ");
        assert!(told.contains("\"no-such-device\" does not exist now"), "{told}");
        assert!(told.contains("the kernel has no \"no-such-control\" now; it has "), "{told}");

        ["gateway", "terminal"]
            .iter()
            .for_each(|name| drop(keygen(&folder.join("keys"), name, false).unwrap()));
        fs::create_dir_all(folder.join("none")).unwrap();
        let found = check(&config);
        assert_eq!(found.errors, Vec::<String>::new());
        assert!(!found.warnings.iter().any(|text| text.starts_with("satellite.keys: ")), "{found:?}");
        let of_owner_and_group = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.join("keys/gateway.key"), of_owner_and_group).unwrap();
        let warned = check(&config).warnings.join("; ");
        assert!(warned.contains("keys/gateway.key: mode 0640, "), "{warned}");
        fs::write(folder.join("keys/terminal.crt"), "no certificate").unwrap();
        assert_eq!(check(&config).errors.len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn ipv6_users_of_a_kernel_without_ipv6_are_named() {
        let text = "role = \"gateway\"\n[gateway]\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\", \"fd03::/64\"]\n";
        let warnings = |text: &str, has_ipv6| {
            let mut found = Findings::default();
            ip_versions(&Config::parse(text, "g.toml").unwrap(), has_ipv6, &mut found);
            found.warnings
        };
        let expected =
            "internet.clients: the kernel has no IPv6 now; \"fd03::/64\" and the like are left out";
        assert_eq!(warnings(text, false), [expected]);
        assert!(
            warnings(text, true).is_empty()
                && warnings(&text.replace(", \"fd03::/64\"", ""), false).is_empty()
        );
    }

    #[test]
    fn every_key_has_a_line() {
        let text = "role = \"gateway\"\n[gateway]\naqm = { preset = \"AVQRED\" }\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n";
        let text = listing(&Config::parse(text, "g.toml").unwrap());
        let line = |key: &str| {
            let mut lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
            lines.find(|words| words[0] == key).unwrap_or_else(|| panic!("{key} in {text}"))
        };
        assert_eq!(line("role"), ["role", "gateway", "given"]);
        assert_eq!(line("gateway.regulator.rate"), ["gateway.regulator.rate", "20", "Mbps", "given"]);
        assert_eq!(line("gateway.pep.buffer_per"), ["gateway.pep.buffer_per", "user", "default"]);
        assert!(text.lines().any(|l| l.starts_with("gateway.aqm.") && l.contains("  preset")), "{text}");
    }
}
