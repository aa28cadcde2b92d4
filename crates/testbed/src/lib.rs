//! What a live run has around the gateway: links that delay, limit and lose packets as the scenario says, and users who
//! fetch pages over them.
//!
//! ```text
//!  servers: nginx or serve ══ TUN ─ emulate ─ TUN ══ gateway ══ TUN ─ emulate ─ TUN ══ terminal ══ TUN ─ emulate ─ TUN ══ clients: load
//! ```
//!
//! `bentpipe-testbed` has a command for each part, and one [`plan`] for all of them. The links are the scenario's, by the
//! simulator's own models ([`links`]); only their time is real ([`emulate`]).

pub mod content;
pub mod datagrams;
pub mod emulate;
pub mod flows;
pub mod http;
pub mod links;
pub mod load;
pub mod plan;
pub mod reactor;
pub mod serve;
pub mod sys;
pub mod table;
pub mod users;

use std::io::{self, Write};

use serde_json::json;

/// Says what a plan comes to, in a line of JSON.
///
/// # Errors
/// Where `out` cannot be written.
pub fn check(plan: &plan::Plan, out: &mut dyn Write) -> io::Result<()> {
    let links = plan.segments.iter().map(|segment| segment.links.len()).sum::<usize>();
    let traffic: Vec<_> = plan.traffic.iter().map(|load| plan.traffic(load).name.as_str()).collect();
    let told = json!({
        "scenario": plan.scenario.title,
        "segments": plan.segments.len(),
        "links": links,
        "traffic": traffic,
        "until_s": plan.until.as_secs_f64(),
    });
    writeln!(out, "{told}")
}
