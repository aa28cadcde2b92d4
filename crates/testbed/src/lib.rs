//! Testbed for live runs: emulated links, clients and servers around the gateway.
//!
//! ```text
//!  servers: nginx or serve ══ TUN ─ emulate ─ TUN ══ gateway ══ TUN ─ emulate ─ TUN ══ terminal ══ TUN ─ emulate ─ TUN ══ clients: load
//! ```
//!
//! `bentpipe-testbed` has a command for each part: [`emulate`], [`serve`] and [`load`]. All read the same [`plan`]. The
//! links ([`links`]) and the users ([`users`]) follow the scenario by the simulator's models, but in real time.

pub mod content;
pub mod datagrams;
pub mod emulate;
pub mod endpoint;
pub mod flows;
pub mod http;
pub mod links;
pub mod load;
pub mod plan;
pub mod quic;
pub mod reactor;
pub mod serve;
pub mod sys;
pub mod table;
pub mod users;

use std::io::{self, Write};

use serde_json::json;

/// Writes an overview of a plan, in a line of JSON.
///
/// # Errors
/// If `out` cannot be written.
pub fn check(plan: &plan::Plan, out: &mut dyn Write) -> io::Result<()> {
    let links = plan.segments.iter().map(|segment| segment.links.len()).sum::<usize>();
    let traffic: Vec<_> =
        plan.workloads.iter().map(|workload| plan.traffic(workload).name.as_str()).collect();
    let overview = json!({
        "scenario": plan.scenario.title,
        "segments": plan.segments.len(),
        "links": links,
        "traffic": traffic,
        "until_s": plan.until.as_secs_f64(),
    });
    endpoint::write_line(out, &overview)
}
