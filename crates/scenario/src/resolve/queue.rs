//! Queues in front of links.

use bentpipe_queue::descriptor::Preset;
use bentpipe_queue::{Limit, Marking};
use bentpipe_units::Rate;

use super::cx::Cx;
use super::{aqm, scheduler, threshold};
use crate::error::{Error, quoted};
use crate::model::{Direction, QueueSpec};
use crate::reader::tree::{Path, step};
use crate::schema::forms::Either;
use crate::schema::link as file;
use crate::schema::link::{Amount, MarkingName};
use crate::warning::WarningKind;

pub fn queue(
    cx: &mut Cx<'_>,
    link: &Path,
    raw: Option<&mut file::Queue>,
    direction: &Direction,
    mean_packet: f64,
) -> Result<Option<QueueSpec>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let path = step(link, "queue");
    let Some(rate) = direction.mean_rate() else {
        let problem = "missing; a queue needs a service rate, such as \"20 Mbps\", or a capacity";
        return Err(cx.error(&step(link, "rate"), problem.to_owned()));
    };
    let scheduler = scheduler::resolve(cx, &step(&path, "scheduler"), &mut raw.scheduler, rate, mean_packet)?;
    let limit = limit(cx, &step(&path, "limit"), raw.limit.as_ref(), Some(rate), mean_packet)?;
    let capacity = aqm::Capacity { rate, varies: direction.varies() };
    let aqm = aqm::resolve(cx, &step(&path, "aqm"), &mut raw.aqm, capacity, mean_packet)?;
    check_no_window_preset(cx, &step(&path, "aqm"), aqm.preset)?;
    threshold::check_threshold(cx, &step(&path, "aqm"), &aqm.spec, limit)?;
    Ok(Some(QueueSpec {
        scheduler,
        limit,
        marking: marking(raw.marking),
        aqm: aqm.spec,
        mean_packet: aqm.mean_packet,
    }))
}

/// Resolves a limit of a queue that a link of `rate` drains, with packets of up to `mean_packet` [bytes].
pub fn limit(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: Option<&file::Limit>,
    rate: Option<Rate>,
    mean_packet: f64,
) -> Result<Limit, Error> {
    // The schema bounds a limit to 32 bits.
    let packets = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let (mut limit, time, time_path) = match raw {
        None => (Limit::NONE, None, path.to_vec()),
        Some(Either::Plain(Amount::Packets(n))) => {
            (Limit { packets: packets(n.0), ..Limit::NONE }, None, path.to_vec())
        }
        Some(Either::Plain(Amount::Bytes(bytes))) => {
            (Limit { bytes: bytes.0, ..Limit::NONE }, None, path.to_vec())
        }
        Some(Either::Plain(Amount::Time(time))) => (Limit::NONE, Some(time.time()), path.to_vec()),
        Some(Either::Table(table)) => {
            let limit = Limit {
                packets: table.packets.map_or(u32::MAX, |n| packets(n.0)),
                bytes: table.bytes.map_or(u64::MAX, |bytes| bytes.0),
            };
            (limit, table.time.map(|time| time.time()), step(path, "time"))
        }
    };
    if let Some(time) = time {
        let Some(rate) = rate else {
            let problem = format!(
                "found \"{time}\"; allowed: packets or bytes, because the queue has no rate at which a time could be converted"
            );
            return Err(cx.error(&time_path, problem));
        };
        let bytes = (rate.bytes_per_sec() * time.as_secs_f64()).round() as u64;
        limit.bytes = limit.bytes.min(bytes);
        let number = (bytes as f64 / mean_packet).floor();
        let note =
            format!("{bytes} B at {rate}: {number} packets of {mean_packet} B, the longest of the traffic");
        cx.note(path, None, note);
    }
    if (limit.bytes as f64) < mean_packet {
        cx.warn(WarningKind::ShortQueue, path, "less than the longest packet, which is always dropped");
    }
    Ok(limit)
}

/// Rejects a preset with a marking method at a link's queue, where no connection ends.
fn check_no_window_preset(cx: &Cx<'_>, path: &Path, preset: Option<&'static Preset>) -> Result<(), Error> {
    let Some((preset, (method, _))) = preset.and_then(|p| Some((p, p.marking?))) else { return Ok(()) };
    let problem = format!(
        "found {}; allowed: at a gateway, because its marks cut advertised windows (marking = {}) and no connection ends at a link's queue",
        quoted(preset.name),
        quoted(method.name)
    );
    Err(cx.error(&step(path, "preset"), problem))
}

fn marking(name: MarkingName) -> Marking {
    match name {
        MarkingName::Drop => Marking::Drop,
        MarkingName::Ecn => Marking::Ecn,
    }
}
