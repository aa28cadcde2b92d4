//! Link layers, demand assignment and handover.

use bentpipe_units::Duration;

use super::cx::{Cx, descending};
use crate::error::Error;
use crate::model::{Access, Demand, Handover};
use crate::reader::tree::{Path, step};
use crate::schema::channel::{self as file, AccessName, DuringName};
use crate::schema::forms::{Either, Share};
use crate::schema::quantity::{HeaderSize, Rate as RawRate, Time, Whole};

pub fn demand(
    cx: &mut Cx<'_>,
    path: &Path,
    raw: Option<&mut file::Demand>,
    round_trip: Duration,
) -> Option<Demand> {
    let raw = raw?;
    if raw.round_trip.is_none() {
        raw.round_trip = Some(Time::of(round_trip.as_nanos()));
        cx.note(&step(path, "round_trip"), None, "the link's delays, there and back".to_owned());
    }
    let round_trip = raw.round_trip.map_or(round_trip, |t| t.time());
    Some(Demand { frame: raw.frame.time(), round_trip, free: raw.free.rate() })
}

/// Defaults of a kind of access link; docs/links.md has the sources.
struct Kind {
    rate: u64,
    /// [µs]
    overhead: [u64; 2],
    header: u64,
    frame_loss: f64,
    tries: u32,
    /// [µs]
    try_delay: u64,
    /// [µs]
    frame: u64,
}

const fn kind(name: AccessName) -> Kind {
    match name {
        AccessName::Wifi => Kind {
            rate: 54_000_000,
            overhead: [98, 233],
            header: 36,
            frame_loss: 0.1,
            tries: 7,
            try_delay: 0,
            frame: 0,
        },
        AccessName::Wimax => Kind {
            rate: 12_670_000,
            overhead: [0, 0],
            header: 10,
            frame_loss: 0.1,
            tries: 4,
            try_delay: 15_000,
            frame: 5_000,
        },
        AccessName::Umts => Kind {
            rate: 384_000,
            overhead: [0, 0],
            header: 0,
            frame_loss: 0.1,
            tries: 6,
            try_delay: 100_000,
            frame: 10_000,
        },
    }
}

pub fn access(
    cx: &Cx<'_>,
    path: &Path,
    raw: &mut Option<file::Access>,
    rate: &mut Option<RawRate>,
) -> Result<Option<Access>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    if let Either::Plain(name) = raw {
        *raw = Either::Table(file::AccessTable::of(*name));
    }
    let Either::Table(table) = raw else { return Ok(None) };
    let Some(name) = table.kind else {
        let problem = "missing; allowed: wifi, wimax, umts".to_owned();
        return Err(cx.key_error(&step(path, "kind"), problem));
    };
    let known = kind(name);
    rate.get_or_insert(RawRate::of(known.rate));
    let time = |us: u64| Time::of(us * 1000);
    let [low, high] = *table.overhead.get_or_insert(known.overhead.map(time));
    if low.0 > high.0 {
        let (low, high) = (low.time().to_string(), high.time().to_string());
        return Err(descending(cx, &step(path, "overhead"), &low, &high));
    }
    Ok(Some(Access {
        overhead: (low.time(), high.time()),
        header: table.header.get_or_insert(HeaderSize::of(known.header)).0,
        frame_loss: table.frame_loss.get_or_insert(Share(known.frame_loss)).0,
        tries: table.tries.get_or_insert(Whole(known.tries)).0,
        try_delay: table.try_delay.get_or_insert(time(known.try_delay)).time(),
        frame: table.frame.get_or_insert(time(known.frame)).time(),
    }))
}

pub fn handover(
    cx: &Cx<'_>,
    path: &Path,
    raw: Option<&mut file::Handover>,
) -> Result<Option<Handover>, Error> {
    let Some(raw) = raw else { return Ok(None) };
    let [low, high] = raw.delay.map(|t| t.time());
    if low > high {
        return Err(descending(cx, &step(path, "delay"), &low.to_string(), &high.to_string()));
    }
    let (interval, outage) = (raw.interval.time(), raw.outage.time());
    if outage >= interval {
        let problem = format!("found \"{outage}\"; allowed: shorter than the interval (\"{interval}\")");
        return Err(cx.error(&step(path, "outage"), problem));
    }
    let offset = raw.offset.get_or_insert(Time::of(interval.as_nanos())).time();
    if offset > interval {
        let problem = format!("found \"{offset}\"; allowed: at most the interval (\"{interval}\")");
        return Err(cx.error(&step(path, "offset"), problem));
    }
    Ok(Some(Handover { interval, offset, delay: (low, high), outage, loses: raw.during == DuringName::Lose }))
}
