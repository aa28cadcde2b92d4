//! Plays a plan's links in real time, between TUN devices in their namespaces.
//!
//! One thread with one loop: it takes what the devices have, lets happen what is due, gives the devices what has arrived,
//! and waits for the next. Packets are taken with the time of the turn of the loop, and given when the loop comes to it:
//! so the delay of a segment is right but for the time of a turn or two, of which the second is measured (`late`).
//!
//! Before the scenario's time zero the links are there already, fresh and with a time of their own; what they hold at time
//! zero arrives as it would have.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use bentpipe_gatewayd::sys::modem;
use bentpipe_gatewayd::sys::tun::Tun;
use bentpipe_gatewayd::sys::{be_ordinary, be_urgent};
use bentpipe_units::{Duration, Instant, Rate};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use serde_json::{Value, json};

use crate::links::{CAUSES, Counts, Links, Passed};
use crate::plan::Plan;
use crate::sys::{self, Clock, Devices, Stop};

/// Packets taken from a device in one turn.
const BATCH: usize = 64;
/// What is due so soon is done at once: less than a system call takes.
const SOON: Duration = Duration::from_micros(2);
/// Where turns come sooner after each other than this, the next waits so long: a turn for each packet costs twice as much as
/// one for some.
const PAUSE: Duration = Duration::from_micros(50);
/// Packets that a device holds for the loop to take.
const WAITING: i32 = 10_000;
/// A gateway that is not there yet is told its modem's rate so much later again.
const AGAIN: Duration = Duration::from_millis(50);
/// Real-time priority, where that is given.
const PRIORITY: i32 = 20;

/// A device, and what passed it [packets].
struct Device {
    tun: Tun,
    devices: Devices,
    longest: usize,
    segment: u32,
    end: u8,
    taken: u64,
    given: u64,
    refused: u64,
}

/// How late packets were given, in bins of [`Late::BIN`].
struct Late {
    bins: Vec<u64>,
    most: Duration,
    sum: u64,
    count: u64,
}

impl Late {
    const BIN: u64 = 5_000;
    const BINS: usize = 10_000;

    fn new() -> Self {
        Self { bins: vec![0; Self::BINS], most: Duration::ZERO, sum: 0, count: 0 }
    }

    fn note(&mut self, late: Duration) {
        let bin = usize::try_from(late.as_nanos() / Self::BIN).unwrap_or(Self::BINS).min(Self::BINS - 1);
        self.bins[bin] += 1;
        self.most = self.most.max(late);
        self.sum += late.as_nanos();
        self.count += 1;
    }

    /// The bound that a share of the packets was not later than [s].
    fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bin, count) in (1..).zip(&self.bins) {
            seen += count;
            if seen >= wanted {
                return (bin * Self::BIN) as f64 * 1e-9;
            }
        }
        self.most.as_secs_f64()
    }

    fn json(&self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        json!({
            "packets": self.count,
            "mean_s": self.sum as f64 * 1e-9 / self.count as f64,
            "median_s": self.quantile(0.5),
            "p99_s": self.quantile(0.99),
            "max_s": self.most.as_secs_f64(),
        })
    }
}

/// Gateways that are told the capacity of their satellite.
struct Modems(Vec<Told>);

struct Told {
    link: String,
    forward: bool,
    socket: PathBuf,
    /// What it was not told yet.
    owed: Option<Rate>,
}

impl Modems {
    fn new(plan: &Plan) -> Self {
        let links = plan.segments.iter().flat_map(|segment| &segment.links);
        let told = links.filter_map(|link| {
            let socket = link.modem.clone()?;
            let name = plan.scenario.links[link.link].name.clone();
            Some(Told { link: name, forward: !link.against, socket, owed: None })
        });
        Self(told.collect())
    }

    /// Tells what has changed, the last of it, and what could not be told before; whether some could not.
    fn tell(&mut self, links: &mut Links) -> bool {
        for (link, forward, rate) in links.changed() {
            for told in self.0.iter_mut().filter(|told| told.link == link && told.forward == forward) {
                told.owed = Some(rate);
            }
        }
        for told in &mut self.0 {
            told.owed = told.owed.filter(|rate| modem::tell(&told.socket, *rate).is_err());
        }
        self.0.iter().any(|told| told.owed.is_some())
    }
}

/// Plays the plan's links until told to stop; then the statistics are on `out`, a line of JSON.
///
/// # Errors
/// Where the devices cannot be made, or `out` cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let mut links = Links::new(plan)?;
    let mut stop = Stop::new()?;
    let mut devices = devices(plan)?;
    // A wait is over in time where real-time priority is not given, too: the default slack is 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
    let is_hurried = be_urgent(PRIORITY);
    let begun = sys::monotonic();
    let clock = Clock::new(plan.origin.unwrap_or(begun));
    let mut prelude = Prelude { links: Links::new(plan)?, clock: Clock::new(begun) };
    let mut modems = Modems::new(plan);
    let cpu = sys::cpu_time();
    writeln!(out, "{}", json!({ "ready": true, "realtime": is_hurried }))?;
    out.flush()?;

    let mut late = Late::new();
    let mut passed: Vec<Passed> = Vec::new();
    let mut readable = vec![true; devices.len()];
    let mut turn = 0;
    loop {
        let last = std::mem::replace(&mut turn, sys::monotonic());
        let is_early = clock.is_early();
        if is_early || !prelude.links.is_empty() {
            let now = prelude.clock.now();
            prelude.links.advance(now, &mut passed);
            if is_early {
                take(&mut devices, &mut readable, &mut prelude.links, now, &mut passed)?;
            }
            for Passed { segment, end, packet, .. } in passed.drain(..) {
                devices[2 * segment as usize + usize::from(end)].give(&packet);
            }
        }
        if !is_early {
            let now = clock.now();
            links.advance(now, &mut passed);
            take(&mut devices, &mut readable, &mut links, now, &mut passed)?;
            for Passed { segment, end, due, packet } in passed.drain(..) {
                // The devices of a segment stand together, its first end first.
                devices[2 * segment as usize + usize::from(end)].give(&packet);
                late.note(clock.now() - due);
                links.give_back(packet);
            }
        }
        let owed = modems.tell(if is_early { &mut prelude.links } else { &mut links });
        if readable.contains(&true) {
            continue;
        }
        if turn - last < PAUSE.as_nanos() {
            sys::sleep(PAUSE);
        }
        let before = prelude.links.due().filter(|_| is_early || !prelude.links.is_empty());
        let before = before.map(|due| prelude.clock.until(due));
        let due = if is_early { Some(Instant::ZERO) } else { links.due() };
        let wait =
            due.map(|due| clock.until(due)).into_iter().chain(before).chain(owed.then_some(AGAIN)).min();
        if wait.is_some_and(|wait| wait <= SOON) {
            continue;
        }
        let stops = stop.descriptors().len();
        let mut fds: Vec<_> =
            devices.iter().map(|d| d.tun.as_fd()).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let stop_fds = stop.descriptors();
        fds.extend(stop_fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        match ppoll(&mut fds, wait.map(sys::timespec), None) {
            Err(Errno::EINTR) | Ok(0) => continue,
            Err(e) => return Err(io::Error::from(e).into()),
            Ok(_) => {}
        }
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        for (readable, fd) in readable.iter_mut().zip(&fds) {
            *readable = is_ready(fd);
        }
        let is_asked = fds[fds.len() - stops..].iter().any(is_ready);
        drop(fds);
        drop(stop_fds);
        if is_asked && stop.is_due() {
            break;
        }
    }
    be_ordinary();
    let seconds = (sys::monotonic() - begun) as f64 * 1e-9;
    let statistics = json!({
        "seconds": seconds,
        "cpu_s": sys::cpu_time() - cpu,
        "realtime": is_hurried,
        "late": late.json(),
        "links": links.counts().map(|(name, forward, counts)| link(name, forward, counts)).collect::<Vec<_>>(),
        "segments": plan.segments.iter().zip(devices.chunks(2)).map(|(segment, ends)| json!({
            "segment": segment.name,
            "ends": ends.iter().map(Device::json).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    writeln!(out, "{}", json!({ "statistics": statistics }))?;
    out.flush()?;
    Ok(())
}

/// The links before the scenario's time zero.
struct Prelude {
    links: Links,
    clock: Clock,
}

/// Takes what packets there are, up to a batch from each device that may have some.
fn take(
    devices: &mut [Device],
    readable: &mut [bool],
    links: &mut Links,
    now: Instant,
    out: &mut Vec<Passed>,
) -> io::Result<()> {
    for (device, readable) in devices.iter_mut().zip(readable) {
        if *readable {
            *readable = device.take(links, now, out)?;
        }
    }
    Ok(())
}

/// Makes the devices of all segments.
fn devices(plan: &Plan) -> Result<Vec<Device>, Box<dyn std::error::Error>> {
    let mut devices = Vec::new();
    for (index, segment) in (0..).zip(&plan.segments) {
        for (side, end) in (0..).zip(&segment.ends) {
            let made = sys::inside(end.netns.as_deref(), || {
                let tun = Tun::open(&end.device, segment.mtu)?;
                tun.set_queue(WAITING)?;
                Ok((tun, Devices::here()?))
            });
            let (tun, counters) = made.map_err(|e| {
                let place = end.netns.as_ref().map_or("here".to_owned(), |path| path.display().to_string());
                format!(
                    "device {} in {place}: {e}; needed: CAP_NET_ADMIN there, and /dev/net/tun",
                    end.device
                )
            })?;
            devices.push(Device {
                tun,
                devices: counters,
                longest: segment.mtu as usize,
                segment: index,
                end: side,
                taken: 0,
                given: 0,
                refused: 0,
            });
        }
    }
    Ok(devices)
}

impl Device {
    /// Takes what packets there are, up to a batch; whether there may be more.
    fn take(&mut self, links: &mut Links, now: Instant, out: &mut Vec<Passed>) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut room = links.room(self.longest);
            match self.tun.read(&mut room) {
                Ok(len) => {
                    room.truncate(len);
                    self.taken += 1;
                    links.arrive(self.segment, 1 - self.end, room, now, out);
                }
                Err(e) => {
                    links.give_back(room);
                    return match e.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                        // The device is down; it may come back.
                        _ if e.raw_os_error() == Some(libc::EIO) => Ok(false),
                        _ => Err(e),
                    };
                }
            }
        }
        Ok(true)
    }

    /// Gives the device a packet.
    fn give(&mut self, packet: &[u8]) {
        match self.tun.write(packet) {
            Ok(()) => self.given += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn json(&self) -> Value {
        json!({
            "device": self.tun.name,
            "taken": self.taken,
            "given": self.given,
            "refused": self.refused,
            "overrun": self.devices.dropped(&self.tun.name),
        })
    }
}

fn link(name: &str, forward: bool, counts: &Counts) -> Value {
    let dropped: serde_json::Map<_, _> = CAUSES
        .iter()
        .zip(counts.dropped)
        .filter(|(_, count)| *count > 0)
        .map(|((_, name), count)| ((*name).to_owned(), count.into()))
        .collect();
    json!({
        "link": name,
        "direction": if forward { "forward" } else { "reverse" },
        "packets": counts.packets,
        "bytes": counts.bytes,
        "arrived": counts.arrived,
        "arrived_bytes": counts.arrived_bytes,
        "dropped": dropped,
        "marked": counts.marked,
        "duplicated": counts.duplicated,
        "reordered": counts.reordered,
        "delay_mean_s": Some(counts.delay_mean()).filter(|mean| mean.is_finite()),
    })
}
