//! The permitted dependencies between the crates, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Crate, and what it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("queue", &["units"]),
    ("transport", &["units"]),
    ("packet", &["units", "queue"]),
    ("scenario", &["units", "queue", "gateway"]),
    ("link", &["units", "queue", "scenario"]),
    ("traffic", &["units", "scenario"]),
    ("gateway", &["units", "queue"]),
    ("model", &["units", "queue", "scenario"]),
    ("sim", &["units", "queue", "link", "gateway", "transport", "scenario", "traffic"]),
    ("capture", &["units", "packet", "transport", "scenario", "sim"]),
    ("spacelink", &["units"]),
    ("gatewayd", &["units", "packet", "queue", "scenario", "gateway", "spacelink"]),
    // Its tests hold its users against the simulator's.
    ("testbed", &["units", "packet", "queue", "scenario", "link", "traffic", "gatewayd", "sim"]),
    ("python", &["units", "queue", "scenario", "model", "sim", "capture"]),
];

#[test]
fn crates_use_only_what_they_may() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    let short = |name: &str| name.strip_prefix("bentpipe-").map(str::to_owned);
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ARROWS.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();

    let packages: BTreeSet<_> = metadata.packages.iter().filter_map(|p| short(&p.name)).collect();
    assert_eq!(packages, ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for package in &metadata.packages {
        let name = short(&package.name).unwrap();
        for used in package.dependencies.iter().filter_map(|d| short(&d.name)) {
            assert!(allowed[name.as_str()].contains(used.as_str()), "{name} must not use {used}");
        }
    }
}

/// A crate without `autotests` runs a test file only if its manifest or `tests/all.rs` names it.
#[test]
fn every_test_file_is_compiled() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(all) = fs::read_to_string(folder.join("tests/all.rs")) else { continue };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for file in fs::read_dir(folder.join("tests")).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_named = name == "all"
                || all.contains(&format!("mod {name};\n"))
                || manifest.contains(&format!("name = \"{name}\"\n"));
            let is_rust = path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
            assert!(is_named || !is_rust, "{} is not compiled: name it in tests/all.rs", path.display());
        }
    }
}
