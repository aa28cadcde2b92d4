//! Files in deploy/ fit the program: configurations are valid, systemd accepts the unit, and the dashboard and the
//! documentation use existing metrics and keys.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, process};

use crate::prometheus::{parse, shared};
use bentpipe_gatewayd::config::Config;
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn shipped_configurations_are_valid() {
    for (name, role) in [("gateway", "gateway"), ("terminal", "terminal"), ("beam/gateway", "gateway")] {
        let path = root().join(format!("deploy/{name}.toml"));
        let config = Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.role.name(), role);
        assert_eq!(config.warnings, Vec::<String>::new());
    }
}

/// Every expression of the dashboard uses prometheus metrics, and label values that exist.
#[test]
fn the_dashboard_uses_exported_metrics() {
    let prometheus = parse(&shared().prometheus().expect("a snapshot"));
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana-dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 15);
    let mut shown = BTreeSet::new();
    for panel in panels {
        assert!(panel["title"].as_str().is_some_and(|t| !t.is_empty()));
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{}", panel["title"]);
        for target in panel["targets"].as_array().expect("targets") {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let text = target["expr"].as_str().expect("an expression");
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let mut found = 0;
            for (at, _) in text.match_indices("bentpipe_").chain(text.match_indices("process_")) {
                let name: String = text[at..].chars().take_while(|c| is_word(*c)).collect();
                let rest = text[at + name.len()..].strip_prefix('{').expect("a selector");
                let selector = &rest[..rest.find('}').expect("its end")];
                let wanted: Vec<_> = selector
                    .split(',')
                    .filter(|part| *part != "instance=~\"$instance\"")
                    .map(|part| part.split_once('=').expect("a label"))
                    .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
                    .collect();
                let matches = |labels: &[(String, String)]| wanted.iter().all(|pair| labels.contains(pair));
                let there = prometheus.samples.iter().any(|s| s.0 == name && matches(&s.1));
                assert!(there, "{}: {name} {wanted:?} is not prometheus", panel["title"]);
                found += 1;
                shown.insert(name);
            }
            assert!(found > 0, "{text}");
            // A legend uses labels of the first metric, or those that every scrape adds.
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for label in legend.split("{{").skip(1).map(|part| part.split("}}").next().unwrap_or_default()) {
                let has = |labels: &[(String, String)]| labels.iter().any(|(key, _)| key == label);
                let known = prometheus.samples.iter().any(|s| text.contains(&s.0) && has(&s.1));
                assert!(label == "instance" || known, "{text}: no label {label}");
            }
        }
    }
    for name in
        ["bentpipe_bottleneck", "bentpipe_nfqueue_lost_packets_total", "bentpipe_spacelink_rtt_seconds"]
    {
        assert!(shown.contains(name), "{name} is on no panel");
    }
}

#[test]
fn the_documentation_lists_every_metric_and_key() {
    let text =
        read("docs/gateway.md") + &read("docs/gateway-terminals.md") + &read("docs/gateway-monitoring.md");
    let prometheus = parse(&shared().prometheus().expect("a snapshot"));
    let metrics = prometheus.types.keys();
    metrics.for_each(|name| assert!(text.contains(&format!("`{name}`")), "{name} is not documented"));
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("bentpipe_")) {
        assert!(prometheus.types.contains_key(word), "{word} is not exported");
    }
    let record = "\n[record]\nfile = \"x\"\n[tunnel]\n";
    for (name, more) in [("gateway", record), ("terminal", record), ("beam/gateway", "\n[tunnel]\n")] {
        let path = format!("deploy/{name}.toml");
        let config = Config::parse(&(read(&path) + more), root().join(&path));
        let config = config.unwrap_or_else(|e| panic!("{e}"));
        let keys = config.effective.iter().map(|row| row.key.as_str());
        for key in keys.filter(|key| !key.starts_with("gateway.")) {
            // Each terminal has these keys.
            let key = key.strip_prefix("terminal.office-1.").unwrap_or(key);
            let key = key.strip_prefix("terminal.office-2.").unwrap_or(key);
            let key = key.replace("plan.office.", "plan.NAME.");
            assert!(text.contains(&format!("| `{key}` |")), "{key} is not documented");
        }
    }
}

/// Checked by systemd's own tool if it is installed: the unit has no error and little exposure.
#[test]
fn systemd_accepts_the_unit() {
    let folder = env::temp_dir().join(format!("bentpipe-unit-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let unit = folder.join("bentpipe-gateway@.service");
    let text = read("deploy/bentpipe-gateway@.service");
    for line in ["CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW", "NoNewPrivileges=yes", "WatchdogSec="] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}");
    }
    // A program that is not installed would be an error.
    fs::write(&unit, text.replace("/usr/local/bin/bentpipe-gateway", "/bin/true")).expect("a file");
    let analyze = |verb: &[&str]| Command::new("systemd-analyze").args(verb).arg(&unit).output();
    let verified = analyze(&["verify"]);
    let secure = analyze(&["security", "--offline=yes", "--threshold=30", "--no-pager"]);
    fs::remove_dir_all(&folder).expect("an existing file");
    let (Ok(verified), Ok(secure)) = (verified, secure) else { return };
    let stderr = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && stderr.is_empty(), "{stderr}");
    assert!(secure.status.success(), "{}", String::from_utf8_lossy(&secure.stdout));
}
