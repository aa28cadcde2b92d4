//! Packet sources.

use std::sync::Arc;

use bentpipe_units::Duration;

use super::cx::Cx;
use super::distribution::distribution;
use super::nodes::named;
use crate::error::{Error, quoted};
use crate::model::{
    Absence, Capture, Codec, DATAGRAM_HEADER, Distribution, Frames, Gop, Movie, Pattern, State,
};
use crate::reader::tree::{Path, Step, step};
use crate::reader::{capture, video};
use crate::schema::file::File;
use crate::schema::forms;
use crate::schema::packets as file;
use crate::schema::quantity::{PacketSize, PacketSizeKind, Quantity, Time};
use crate::schema::traffic::Traffic;

/// Returns the packet pattern of each traffic entry; `None` for traffic other than packet sources.
pub fn patterns(cx: &mut Cx<'_>, file: &mut File) -> Result<Vec<Option<Arc<Pattern>>>, Error> {
    let mut all = Vec::new();
    for (name, raw) in &mut file.traffic.0 {
        let path = named("traffic", name);
        all.push(pattern(cx, &path, raw)?.map(Arc::new));
    }
    Ok(all)
}

fn pattern(cx: &mut Cx<'_>, path: &Path, raw: &mut Traffic) -> Result<Option<Pattern>, Error> {
    let at = |key: &str| step(path, key);
    // A transport has to carry a payload; a datagram may be empty.
    let least = DATAGRAM_HEADER + u64::from(raw.source().common().transport.is_some());
    Ok(Some(match raw {
        Traffic::Pages(_) | Traffic::Files(_) | Traffic::Bulk(_) | Traffic::Dash(_) | Traffic::Probe(_) => {
            return Ok(None);
        }
        Traffic::Cbr(t) => Pattern::Cbr { rate: t.rate.rate(), packet: packet(cx, path, &t.packet, least)? },
        Traffic::Poisson(t) => {
            Pattern::Poisson { rate: t.rate.rate(), packet: packet(cx, path, &t.packet, least)? }
        }
        Traffic::OnOff(t) => Pattern::OnOff {
            rate: t.rate.rate(),
            packet: packet(cx, path, &t.packet, least)?,
            on: distribution(cx, &at("on"), &t.on, Quantity::time)?,
            off: distribution(cx, &at("off"), &t.off, Quantity::time)?,
        },
        Traffic::Mmpp(t) => mmpp(cx, path, t, least)?,
        Traffic::Video(t) => video_frames(cx, path, t)?,
        Traffic::Voip(t) => voip(cx, path, t)?,
        Traffic::Replay(t) => Pattern::Replay {
            capture: cx.read(&at("capture"), &t.capture, capture::CAPTURE, |data| {
                Ok(Capture { packets: capture::read(data)?.into(), digest: data.digest })
            })?,
        },
    }))
}

/// Resolves the lengths of packets, of which constants and lower bounds have to be at least `least`.
fn packet(
    cx: &Cx<'_>,
    path: &Path,
    raw: &forms::Distribution<PacketSizeKind>,
    least: u64,
) -> Result<Distribution<u64>, Error> {
    let path = step(path, "packet");
    let packet = distribution(cx, &path, raw, |q| q.0)?;
    check_least(cx, &path, &packet, least)?;
    Ok(packet)
}

fn check_least(cx: &Cx<'_>, path: &Path, packet: &Distribution<u64>, least: u64) -> Result<(), Error> {
    let (path, found) = match packet {
        Distribution::Fixed(length) => (path.to_vec(), *length),
        Distribution::Uniform(low, _) => ([&step(path, "uniform"), &[Step::Index(0)][..]].concat(), *low),
        Distribution::Choice(choices) => {
            let list = step(path, "choice");
            return choices.iter().enumerate().try_for_each(|(i, (_, packet))| {
                check_least(cx, &[&list, &[Step::Index(i)][..]].concat(), packet, least)
            });
        }
        _ => return Ok(()),
    };
    if found >= least {
        return Ok(());
    }
    let problem = format!(
        "found \"{:?}\"; allowed: at least {least} B, of which {DATAGRAM_HEADER} B are headers",
        PacketSize::of(found)
    );
    Err(cx.error(&path, problem))
}

fn mmpp(cx: &Cx<'_>, path: &Path, t: &file::Mmpp, least: u64) -> Result<Pattern, Error> {
    let count = t.states.len();
    if !(2..=100).contains(&count) {
        let problem = format!("found {count}; allowed: at least 2 states and at most 100");
        return Err(cx.error(&step(path, "states"), problem));
    }
    if t.states.iter().all(|state| state.rate.0 == 0) {
        let problem = "found rates of 0 bps alone; allowed: one rate above 0 at least".to_owned();
        return Err(cx.error(&step(path, "states"), problem));
    }
    let at = step(path, "transitions");
    let rows = match &t.transitions {
        Some(rows) => rows.clone(),
        None => (0..count).map(|i| (0..count).map(|j| f64::from(u8::from(i != j))).collect()).collect(),
    };
    if rows.len() != count {
        let problem = format!("found {} rows; allowed: {count}, one for each state", rows.len());
        return Err(cx.error(&at, problem));
    }
    let mut transitions = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        let at = [at.clone(), vec![Step::Index(i)]].concat();
        if row.len() != count {
            let problem =
                format!("found an array of {}; allowed: an array of {count}, one for each state", row.len());
            return Err(cx.error(&at, problem));
        }
        for (j, x) in row.iter().enumerate() {
            if *x < 0.0 || (i == j && *x != 0.0) {
                let allowed = if i == j { "0 on the diagonal" } else { "a number, not negative" };
                let at = [at.clone(), vec![Step::Index(j)]].concat();
                return Err(cx.error(&at, format!("found {x}; allowed: {allowed}")));
            }
        }
        let sum: f64 = row.iter().sum();
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(cx.error(&at, format!("found a sum of {sum}; allowed: a sum above 0")));
        }
        transitions.push(row.into_iter().map(|x| x / sum).collect::<Vec<_>>());
    }
    if let Some((from, to)) = unreachable(&transitions) {
        let problem = format!(
            "found no path from state {} to state {}; allowed: a path between any two states",
            from + 1,
            to + 1
        );
        return Err(cx.error(&at, problem));
    }
    let states = t.states.iter().map(|s| State { rate: s.rate.rate(), sojourn: s.sojourn.time() }).collect();
    Ok(Pattern::Mmpp { states, transitions, packet: packet(cx, path, &t.packet, least)? })
}

/// Returns a state and another that it never leads to.
fn unreachable(transitions: &[Vec<f64>]) -> Option<(usize, usize)> {
    (0..transitions.len()).find_map(|from| {
        let mut reached = vec![false; transitions.len()];
        let mut open = vec![from];
        reached[from] = true;
        while let Some(state) = open.pop() {
            for (next, x) in transitions[state].iter().enumerate() {
                if *x > 0.0 && !std::mem::replace(&mut reached[next], true) {
                    open.push(next);
                }
            }
        }
        reached.iter().position(|reached| !reached).map(|to| (from, to))
    })
}

fn video_frames(cx: &mut Cx<'_>, path: &Path, t: &mut file::Video) -> Result<Pattern, Error> {
    let at = |key: &str| step(path, key);
    let least = DATAGRAM_HEADER + 1;
    if t.packet.0 < least {
        let problem =
            format!("found \"{:?}\"; allowed: at least {least} B, of which 28 B are headers", t.packet);
        return Err(cx.error(&at("packet"), problem));
    }
    if let Some(fps) = t.fps
        && !(fps > 0.0 && fps <= 10_000.0)
    {
        let problem = format!("found {fps}; allowed: a number above 0 and at most 10000");
        return Err(cx.error(&at("fps"), problem));
    }
    let given = t.fps.map(|fps| Duration::from_secs_f64(1.0 / fps));
    let (frames, interval) = match (&t.trace, &t.gop) {
        (Some(_), Some(_)) | (None, None) => {
            let found = if t.gop.is_some() { "both" } else { "neither" };
            return Err(cx.error(path, format!("found {found}; allowed: either trace or gop")));
        }
        (Some(name), None) => {
            let (movie, told) = cx.read(&at("trace"), name, video::TRACE, |data| {
                let trace = video::read(data)?;
                Ok((Movie { sizes: trace.sizes.into(), digest: data.digest }, trace.interval))
            })?;
            let Some(interval) = given.or(told) else {
                let problem =
                    "missing; allowed: a number above 0, because the trace does not give the frame rate";
                return Err(cx.error(&at("fps"), problem.to_owned()));
            };
            (Frames::Trace(movie), interval)
        }
        (None, Some(gop)) => {
            let interval = given.unwrap_or(Duration::from_millis(40));
            (Frames::Gop(group_of_pictures(cx, &at("gop"), gop, interval)?), interval)
        }
    };
    if t.fps.is_none() {
        t.fps = Some((1e3 / interval.as_secs_f64()).round() / 1e3);
        let why = if t.trace.is_some() { "as the times in the trace say" } else { "the default of a gop" };
        cx.note(&at("fps"), None, why.to_owned());
    }
    let spread = t.send == file::Sending::Spread;
    Ok(Pattern::Video { frames, interval, packet: t.packet.0, spread, random_start: t.random_start })
}

/// Proportions of the sizes of I, P and B frames (Test Model 5, ISO/IEC JTC1/SC29/WG11 N0400, 1993, chapter 10).
const PROPORTIONS: [(char, f64); 3] = [('I', 160.0), ('P', 60.0), ('B', 30.0)];

fn group_of_pictures(cx: &Cx<'_>, path: &Path, raw: &file::Gop, interval: Duration) -> Result<Gop, Error> {
    let at = |key: &str| step(path, key);
    let types: Vec<char> = raw.pattern.chars().collect();
    if types.is_empty() || types.len() > 1000 || types.iter().any(|t| !"IPB".contains(*t)) {
        let problem =
            format!("found {}; allowed: letters I, P and B, such as IBBPBBPBBPBB", quoted(&raw.pattern));
        return Err(cx.error(&at("pattern"), problem));
    }
    let sizes = [("i", &raw.i), ("p", &raw.p), ("b", &raw.b)];
    if let Some(rate) = raw.rate {
        if let Some((key, _)) = sizes.iter().find(|(_, size)| size.is_some()) {
            let problem = "allowed: only without rate, which determines all sizes".to_owned();
            return Err(cx.key_error(&at(key), problem));
        }
        let weight =
            |t: char| PROPORTIONS.iter().find(|(name, _)| *name == t).map_or(0.0, |(_, weight)| *weight);
        let bytes = rate.rate().bytes_per_sec() * interval.as_secs_f64() * types.len() as f64;
        let unit = bytes / types.iter().map(|t| weight(*t)).sum::<f64>();
        let size = |t: char| {
            let mean = ((unit * weight(t)).round() as u64).max(1);
            raw.shape.map_or(Distribution::Fixed(mean), |shape| Distribution::Erlang { shape: shape.0, mean })
        };
        return Ok(Gop { pattern: raw.pattern.clone(), i: size('I'), p: size('P'), b: size('B') });
    }
    if raw.shape.is_some() {
        let problem = "allowed: only together with rate".to_owned();
        return Err(cx.key_error(&at("shape"), problem));
    }
    let mut resolved = [Distribution::Fixed(1), Distribution::Fixed(1), Distribution::Fixed(1)];
    for (slot, (key, size)) in resolved.iter_mut().zip(sizes) {
        match size {
            Some(_) if !raw.pattern.contains(&key.to_uppercase()) => {
                let problem = format!(
                    "allowed: only with a frame of type {} in pattern, found {}",
                    key.to_uppercase(),
                    quoted(&raw.pattern)
                );
                return Err(cx.key_error(&at(key), problem));
            }
            Some(size) => *slot = distribution(cx, &at(key), size, |q| q.0)?,
            None if raw.pattern.contains(&key.to_uppercase()) => {
                let problem = format!(
                    "missing; required: the size of a frame of type {}, or rate for all types",
                    key.to_uppercase()
                );
                return Err(cx.error(&at(key), problem));
            }
            None => {}
        }
    }
    let [i, p, b] = resolved;
    Ok(Gop { pattern: raw.pattern.clone(), i, p, b })
}

/// IPv4, UDP and RTP headers (RFC 791, RFC 768, RFC 3550) [bytes].
const VOICE_HEADER: u64 = 20 + 8 + 12;

fn voip(cx: &Cx<'_>, path: &Path, t: &file::Voip) -> Result<Pattern, Error> {
    let at = |key: &str| step(path, key);
    let (interval, frame) = (t.interval.time(), Duration::from_millis(10));
    if interval.as_nanos() % frame.as_nanos() != 0 || interval > Duration::from_millis(200) {
        let problem = format!("found \"{interval}\"; allowed: a multiple of 10 ms, at most 200 ms");
        return Err(cx.error(&at("interval"), problem));
    }
    let per_frame = match t.codec {
        Codec::G711 => 80,
        Codec::G729 => 10,
    };
    Ok(Pattern::Voip {
        packet: VOICE_HEADER + per_frame * (interval.as_nanos() / frame.as_nanos()),
        interval,
        talk: distribution(cx, &at("talk"), &t.talk, Quantity::time)?,
        silence: distribution(cx, &at("silence"), &t.silence, Quantity::time)?,
        codec: t.codec,
        jitter_buffer: t.jitter_buffer.map(|time| time.time()),
    })
}

/// Resolves periods of absence, which must be in ascending order and disjoint.
pub fn absences(cx: &Cx<'_>, path: &Path, raw: &[[Time; 2]]) -> Result<Vec<Absence>, Error> {
    let mut last = None;
    let mut all = Vec::new();
    for (i, [from, until]) in raw.iter().enumerate() {
        let (from, until) = (from.time(), until.time());
        if from >= until || last.is_some_and(|last| from <= last) {
            let path = [step(path, "away"), vec![Step::Index(i)]].concat();
            let problem = format!(
                "found [\"{from}\", \"{until}\"]; allowed: times that rise, from the first pair to the last"
            );
            return Err(cx.error(&path, problem));
        }
        last = Some(until);
        all.push(Absence { from, until });
    }
    Ok(all)
}
