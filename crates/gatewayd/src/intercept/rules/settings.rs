//! Settings of the kernel and of interfaces, recorded in a file before they are changed.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command::failed;
use super::{Family, Setup, families};
use crate::intercept::offload::{self, Feature};

/// Changed settings, as recorded in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Written {
    /// Network namespace of the changes.
    namespace: String,
    /// First routing table.
    pub(super) table: u32,
    sysctls: Vec<Sysctl>,
    offloads: Vec<Offload>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sysctl {
    /// Path below /proc/sys.
    path: String,
    old: String,
    new: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offload {
    interface: String,
    feature: Feature,
}

fn file(setup: &Setup) -> PathBuf {
    setup.folder.join(format!("{}.json", setup.name))
}

fn namespace() -> io::Result<String> {
    Ok(fs::read_link("/proc/thread-self/ns/net")?.to_string_lossy().into_owned())
}

fn about(path: &Path) -> impl FnOnce(Error) -> Error {
    move |error| failed(&path.display().to_string(), error)
}

fn write(setup: &Setup, written: &Written) -> io::Result<()> {
    let (path, next) = (file(setup), file(setup).with_extension("next"));
    let text = serde_json::to_vec_pretty(written)?;
    fs::create_dir_all(&setup.folder).map_err(about(&setup.folder))?;
    fs::write(&next, text).map_err(about(&next))?;
    fs::rename(&next, &path).map_err(about(&path))
}

fn sysctl(path: &str) -> PathBuf {
    Path::new("/proc/sys").join(path)
}

pub(super) fn settings(setup: &Setup) -> io::Result<()> {
    let value = |path: &str| fs::read_to_string(sysctl(path)).map(|text| text.trim().to_owned());
    let mut wanted: Vec<(String, &str)> = Vec::new();
    for family in families(setup) {
        let path = match family {
            Family::V4 => "net/ipv4/ip_forward",
            Family::V6 => "net/ipv6/conf/all/forwarding",
        };
        wanted.push((path.to_owned(), "1"));
    }
    if setup.ecn {
        wanted.push(("net/ipv4/tcp_ecn".to_owned(), "1"));
    }
    // Packets arrive on another interface than their replies take. The stricter of "all" and the interface's own value
    // applies; 2 only requires some route back. IPv6 has no such setting.
    let has_v4 = families(setup).any(|family| family == Family::V4);
    for device in [Some(&setup.interface), setup.tunnel.as_ref()].into_iter().flatten().filter(|_| has_v4) {
        let path = format!("net/ipv4/conf/{device}/rp_filter");
        let strict = |path: &str| Ok::<_, Error>(value(path).map_err(about(&sysctl(path)))? == "1");
        if strict("net/ipv4/conf/all/rp_filter")? || strict(&path)? {
            wanted.push((path, "2"));
        }
    }
    let mut written = Written { namespace: namespace()?, table: setup.table, ..Written::default() };
    for (path, new) in wanted {
        let old = value(&path).map_err(about(&sysctl(&path)))?;
        if old != new {
            written.sysctls.push(Sysctl { path, old, new: new.to_owned() });
        }
    }
    let interface = &setup.interface;
    for feature in [Feature::Gro, Feature::Lro] {
        if setup.offload && offload::get(interface, feature).map_err(|error| failed(interface, error))? {
            written.offloads.push(Offload { interface: interface.clone(), feature });
        }
    }
    write(setup, &written)?;
    for Sysctl { path, new, .. } in &written.sysctls {
        fs::write(sysctl(path), new).map_err(about(&sysctl(path)))?;
    }
    for Offload { interface, feature } in &written.offloads {
        offload::set(interface, *feature, false).map_err(|error| failed(interface, error))?;
    }
    Ok(())
}

/// The recorded settings, if the file can be read.
pub(super) fn read(setup: &Setup) -> Option<Written> {
    serde_json::from_slice(&fs::read(file(setup)).ok()?).ok()
}

/// Restores old settings unless they were changed since.
pub(super) fn restore(setup: &Setup) -> io::Result<()> {
    let path = file(setup);
    if !path.exists() {
        leave(setup);
        return Ok(());
    }
    let here = namespace()?;
    // Without a readable file there is nothing to restore.
    let mut written = read(setup).unwrap_or_default();
    if written.namespace == here {
        // Settings that another gateway of this host needs are handed over to it.
        if let Some((other, mut theirs)) = neighbour(setup, &here) {
            for sysctl in written.sysctls.drain(..) {
                if !theirs.sysctls.iter().any(|known| known.path == sysctl.path) {
                    theirs.sysctls.push(sysctl);
                }
            }
            write(&other, &theirs)?;
        }
        for Sysctl { path, old, new } in &written.sysctls {
            let path = sysctl(path);
            // The settings of a removed device are gone.
            if fs::read_to_string(&path).is_ok_and(|now| now.trim() == new) {
                fs::write(&path, old).map_err(about(&path))?;
            }
        }
        for Offload { interface, feature } in &written.offloads {
            // So are its features.
            if offload::get(interface, *feature).is_ok_and(|on| !on) {
                offload::set(interface, *feature, true).map_err(|error| failed(interface, error))?;
            }
        }
    }
    fs::remove_file(&path).map_err(about(&path))?;
    leave(setup);
    Ok(())
}

/// Removes the folder unless it contains another gateway's file.
fn leave(setup: &Setup) {
    let _ = fs::remove_dir(&setup.folder);
}

/// Another gateway of this namespace with a file in the same folder, and that file.
fn neighbour(setup: &Setup, here: &str) -> Option<(Setup, Written)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&setup.folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter(|path| path.extension() == Some(OsStr::new("json"))).find_map(|path| {
        let name = path.file_stem()?.to_str()?;
        let written: Written = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (name != setup.name && written.namespace == here)
            .then(|| (Setup { name: name.to_owned(), ..setup.clone() }, written))
    })
}
