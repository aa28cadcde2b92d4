//! Routing rules and routes.

use std::fmt::{self, Write as _};
use std::io;

use serde::Deserialize;

use super::super::terminal_routes::METRIC;
use super::command::{failed, run};
use super::{Family, MARK, MASK, PROTOCOL, Setup, Side, clients, families};

pub(super) fn routes(setup: &Setup) -> io::Result<()> {
    let (local, tunnel) = (setup.table, setup.table + 1);
    let device = &setup.interface;
    for family in families(setup) {
        let mut batch = String::new();
        let mut rule = |place: u32, what: fmt::Arguments<'_>| {
            let _ = writeln!(batch, "rule add priority {} {what} protocol {PROTOCOL}", setup.table + place);
        };
        rule(0, format_args!("fwmark {MARK:#x}/{MASK:#x} lookup {local}"));
        if setup.tunnel.is_some() {
            for prefix in clients(setup, family) {
                match setup.side {
                    Side::Internet { .. } => rule(1, format_args!("to {prefix} lookup {tunnel}")),
                    Side::Users { .. } => {
                        // Traffic between users.
                        rule(1, format_args!("to {prefix} lookup main"));
                        rule(2, format_args!("from {prefix} iif {device} lookup {tunnel}"));
                    }
                }
            }
        }
        let _ = writeln!(batch, "route add local default dev lo table {local} proto {PROTOCOL}");
        if let Some(name) = &setup.tunnel {
            let mut route = |what: fmt::Arguments<'_>| {
                let _ = writeln!(batch, "route add {what} table {tunnel} proto {PROTOCOL}");
            };
            if setup.terminals {
                // After the terminals' routes, which may have the same prefix.
                let metric = 2 * METRIC;
                clients(setup, family)
                    .for_each(|prefix| route(format_args!("unreachable {prefix} metric {metric}")));
            } else {
                route(format_args!("default dev {name}"));
            }
        }
        run("ip", &[family.flag(), "-batch", "-"], &batch)?;
    }
    Ok(())
}

/// Routing rule as `ip -json rule` prints it.
#[derive(Deserialize)]
struct Listed {
    priority: u32,
    #[serde(default)]
    table: String,
    #[serde(default)]
    protocol: String,
}

pub(super) fn remove_routes(family: Family, first: u32) -> io::Result<()> {
    let listed = run("ip", &[family.flag(), "-N", "-json", "rule", "show"], "")?;
    let listed: Vec<Listed> =
        serde_json::from_str(&listed).map_err(|error| failed("ip -json rule show", error))?;
    let places = first..first + 3;
    let mut batch = String::new();
    for rule in
        listed.iter().filter(|rule| rule.protocol == PROTOCOL.to_string() && places.contains(&rule.priority))
    {
        let _ =
            writeln!(batch, "rule del priority {} lookup {} protocol {PROTOCOL}", rule.priority, rule.table);
    }
    for table in [first, first + 1] {
        let table = table.to_string();
        let protocol = PROTOCOL.to_string();
        let list = ["route", "show", "table", &table, "proto", &protocol];
        let list: Vec<&str> = [family.flag()].into_iter().chain(list).collect();
        // The kernel fails for a missing table.
        if run("ip", &list, "").is_ok_and(|routes| !routes.trim().is_empty()) {
            let _ = writeln!(batch, "route flush table {table} proto {protocol}");
        }
    }
    if !batch.is_empty() {
        run("ip", &[family.flag(), "-batch", "-"], &batch)?;
    }
    Ok(())
}
