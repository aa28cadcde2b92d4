//! Allowed dependencies between the crates, and between the rooms of the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each crate, and the crates that it uses.
const CRATES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("queue", &["units"]),
    ("transport", &["units"]),
    ("quic", &["units", "transport"]),
    ("packet", &["units", "queue"]),
    ("scenario", &["units", "queue", "transport", "gateway"]),
    ("link", &["units", "queue", "scenario"]),
    ("traffic", &["units", "scenario"]),
    ("gateway", &["units", "queue"]),
    ("model", &["units", "queue", "scenario"]),
    ("sim", &["units", "queue", "link", "gateway", "transport", "quic", "scenario", "traffic"]),
    ("capture", &["units", "packet", "quic", "transport", "scenario", "sim"]),
    ("spacelink", &["units"]),
    ("gatewayd", &["units", "packet", "queue", "scenario", "gateway", "spacelink"]),
    // Its tests compare its users with the simulator's. Its benchmark counts the instructions of both engines.
    (
        "testbed",
        &[
            "units",
            "packet",
            "queue",
            "transport",
            "quic",
            "scenario",
            "link",
            "traffic",
            "gatewayd",
            "spacelink",
            "sim",
        ],
    ),
    ("python", &["units", "queue", "scenario", "model", "sim", "capture"]),
];

/// Each room of the simulator, and the rooms that it uses; `build` and the crate's root use all.
const ROOMS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("side", &[]),
    ("bottleneck", &[]),
    ("clock", &["ids", "side"]),
    ("network", &["ids", "side", "bottleneck", "clock"]),
    ("gateways", &["ids", "side", "clock", "network"]),
    ("endpoints", &["ids", "side", "bottleneck", "clock", "network"]),
    ("record", &["ids", "bottleneck", "network", "gateways"]),
    ("apps", &["ids", "clock", "endpoints", "record"]),
    ("engine", &["ids", "side", "bottleneck", "clock", "network", "gateways", "endpoints", "record", "apps"]),
];

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn arrows(listed: &[(&str, &[&str])]) -> Arrows {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    listed.iter().map(|(name, used)| ((*name).to_owned(), names(used))).collect()
}

#[test]
fn crates_use_exactly_the_crates_listed() {
    let manifest = "../../Cargo.toml";
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    let short = |name: &str| name.strip_prefix("bentpipe-").map(str::to_owned);
    let found: Arrows = metadata
        .packages
        .iter()
        .map(|p| (short(&p.name).unwrap(), p.dependencies.iter().filter_map(|d| short(&d.name)).collect()))
        .collect();
    assert_eq!(found, arrows(CRATES));
}

#[test]
fn rooms_of_the_simulator_use_exactly_the_rooms_listed() {
    let mut found: Arrows = ROOMS.iter().map(|(name, _)| ((*name).to_owned(), BTreeSet::new())).collect();
    let source = Path::new("src");
    for (room, used) in &mut found {
        let folder = source.join(room);
        let files = match fs::read_dir(&folder) {
            Ok(files) => files.map(|file| file.unwrap().path()).collect(),
            Err(_) => vec![source.join(format!("{room}.rs"))],
        };
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            // Tests may use any room.
            let code = text.split("#[cfg(test)]").next().unwrap();
            let names = code.split("crate::").skip(1);
            let names =
                names.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap());
            let rooms = names.filter(|name| ROOMS.iter().any(|(room, _)| room == name));
            used.extend(rooms.map(str::to_owned));
        }
        used.remove(room);
    }
    assert_eq!(found, arrows(ROOMS));
}

/// A crate without `autotests` runs a test file only if its manifest or `tests/all.rs` names it.
#[test]
fn every_test_file_is_compiled() {
    for entry in fs::read_dir("..").unwrap() {
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
