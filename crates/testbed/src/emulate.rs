//! Emulates a plan's links in real time, between TUN devices in their namespaces.
//!
//! One thread reads packets from the devices, advances the links, writes the packets that have arrived to the devices and
//! waits for the next event. Packets enter a link with the time of the current turn and leave when the loop gets to them,
//! so a segment's delay is exact to about two turns. The statistics report the second part (`late`).
//!
//! Before the scenario's time zero, separate links with the same configuration, but no outages of the plan, carry the packets. The packets that they
//! hold at time zero still arrive.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use bentpipe_gatewayd::sys::modem;
use bentpipe_gatewayd::sys::tun::Tun;
use bentpipe_gatewayd::sys::{clear_realtime, set_realtime};
use bentpipe_units::{Duration, Instant, Rate};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use serde_json::{Value, json};

use crate::endpoint::write_line;
use crate::links::{CAUSES, Carried, Counts, Links, Passed};
use crate::plan::Plan;
use crate::sys::{self, Clock, DeviceCounters, Stop};

/// Packets read from a device per turn.
const BATCH: usize = 64;
/// Waits shorter than this are skipped: a system call takes longer.
const MIN_WAIT: Duration = Duration::from_micros(2);
/// Minimum time between turns: a turn for each packet costs twice as much as a turn for several.
const MIN_TURN: Duration = Duration::from_micros(50);
/// Length of a device's transmit queue [packets].
const DEVICE_QUEUE: i32 = 10_000;
/// Time between attempts to reach a gateway's modem socket.
const MODEM_RETRY: Duration = Duration::from_millis(50);
/// Real-time priority, if permitted.
const PRIORITY: i32 = 20;
/// Upper limit of the recorded lateness [ns].
const MAX_LATE: u64 = 1_000_000_000_000;

/// A device and its counters [packets].
struct Device {
    tun: Tun,
    counters: DeviceCounters,
    mtu: usize,
    segment: u32,
    end: u8,
    received: u64,
    sent: u64,
    refused: u64,
}

/// Links with the clock that they run by.
struct Timeline {
    links: Links,
    clock: Clock,
}

/// Packets on the links during the scenario's measurement.
struct Measurement {
    /// Begin and end.
    times: [Instant; 2],
    /// Counters at begin and end, as far as they have passed.
    counted: Vec<Carried>,
}

impl Measurement {
    fn new(plan: &Plan) -> Self {
        let begin = Instant::ZERO + plan.scenario.run.warmup;
        Self { times: [begin, begin + plan.scenario.run.duration], counted: Vec::new() }
    }

    /// Advances the links to `now`, and notes the counters at begin and end on the way.
    fn advance(&mut self, links: &mut Links, now: Instant, out: &mut Vec<Passed>) {
        while let Some(&at) = self.times.get(self.counted.len())
            && at <= now
        {
            links.advance(at, out);
            self.counted.push(links.carried());
        }
        links.advance(now, out);
    }

    /// The counters of the measurement, as far as it has come.
    fn json(&self, links: &Links) -> Value {
        let now = links.carried();
        let [begin, end] = [0, 1].map(|at| self.counted.get(at).copied().unwrap_or(now));
        let Carried { packets, losses, given_up } = end.since(begin);
        json!({ "link_packets": packets, "link_losses": losses, "link_given_up": given_up })
    }
}

/// Gateways that are told the capacity of their satellite link.
struct Modems(Vec<Modem>);

struct Modem {
    link: String,
    forward: bool,
    socket: PathBuf,
    /// Rate that the gateway has not been told yet.
    pending: Option<Rate>,
}

impl Modems {
    fn new(plan: &Plan) -> Self {
        let links = plan.segments.iter().flat_map(|segment| &segment.links);
        let modems = links.filter_map(|link| {
            let socket = link.modem.clone()?;
            let name = plan.scenario.links[link.link].name.clone();
            Some(Modem { link: name, forward: !link.against, socket, pending: None })
        });
        Self(modems.collect())
    }

    /// Sends the latest capacity to each gateway that does not know it. Returns false if one could not be reached.
    fn update(&mut self, links: &mut Links) -> bool {
        for (link, forward, rate) in links.changed() {
            for modem in self.0.iter_mut().filter(|modem| modem.link == link && modem.forward == forward) {
                modem.pending = Some(rate);
            }
        }
        for modem in &mut self.0 {
            modem.pending = modem.pending.filter(|rate| modem::send_rate(&modem.socket, *rate).is_err());
        }
        self.0.iter().all(|modem| modem.pending.is_none())
    }
}

/// Emulates the plan's links until asked to stop. Writes the statistics to `out`, in a line of JSON.
///
/// # Errors
/// If the devices cannot be created, or `out` cannot be written.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let mut stop = Stop::new()?;
    let mut devices = open_devices(plan)?;
    // The default timer slack of 50 µs would delay every wait without real-time priority.
    let _ = nix::sys::prctl::set_timerslack(1);
    let is_realtime = set_realtime(PRIORITY);
    let started = sys::monotonic();
    let mut prelude = Timeline { links: Links::before_zero(plan)?, clock: Clock::new(started) };
    let clock = Clock::new(plan.origin.unwrap_or(started));
    let mut main = Timeline { links: Links::new(plan)?, clock };
    let mut measurement = Measurement::new(plan);
    let mut modems = Modems::new(plan);
    let mut late: Histogram<u64> = Histogram::new_with_max(MAX_LATE, 3)?;
    let cpu_before = sys::cpu_time();
    write_line(out, &json!({ "ready": true, "realtime": is_realtime }))?;

    let mut passed: Vec<Passed> = Vec::new();
    let mut readable = vec![true; devices.len()];
    let mut turn = 0;
    loop {
        let last_turn = std::mem::replace(&mut turn, sys::monotonic());
        let is_early = clock.is_early();
        if is_early || !prelude.links.is_empty() {
            let Timeline { links, clock } = &mut prelude;
            let now = clock.now();
            links.advance(now, &mut passed);
            if is_early {
                receive(&mut devices, &mut readable, links, clock, &mut passed)?;
            }
            for Passed { segment, end, packet, .. } in passed.drain(..) {
                device(&mut devices, segment, end).send(&packet);
            }
        }
        if !is_early {
            let links = &mut main.links;
            let now = clock.now();
            measurement.advance(links, now, &mut passed);
            receive(&mut devices, &mut readable, links, &clock, &mut passed)?;
            for Passed { segment, end, due, packet } in passed.drain(..) {
                device(&mut devices, segment, end).send(&packet);
                late.saturating_record((clock.now() - due).as_nanos());
                links.return_buffer(packet);
            }
        }
        let are_modems_current = modems.update(if is_early { &mut prelude.links } else { &mut main.links });
        if readable.contains(&true) {
            continue;
        }
        if turn - last_turn < MIN_TURN.as_nanos() {
            sys::sleep(MIN_TURN);
        }
        let prelude_due = prelude.links.due().filter(|_| is_early || !prelude.links.is_empty());
        let main_due = if is_early { Some(Instant::ZERO) } else { main.links.due() };
        let wait = [
            prelude_due.map(|due| prelude.clock.until(due)),
            main_due.map(|due| clock.until(due)),
            (!are_modems_current).then_some(MODEM_RETRY),
        ];
        let wait = wait.into_iter().flatten().min();
        if wait.is_some_and(|wait| wait <= MIN_WAIT) {
            continue;
        }
        let stop_fds = stop.descriptors();
        let fds = devices.iter().map(|device| device.tun.as_fd()).chain(stop_fds.iter().copied());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match ppoll(&mut fds, wait.map(sys::timespec), None) {
            Err(Errno::EINTR) | Ok(0) => continue,
            Err(e) => return Err(io::Error::from(e).into()),
            Ok(_) => {}
        }
        for (readable, fd) in readable.iter_mut().zip(&fds) {
            *readable = sys::is_ready(fd);
        }
        let has_stop = fds[readable.len()..].iter().any(sys::is_ready);
        drop(fds);
        drop(stop_fds);
        if has_stop && stop.is_requested() {
            break;
        }
    }
    clear_realtime();
    let statistics = json!({
        "seconds": (sys::monotonic() - started) as f64 * 1e-9,
        "cpu_s": sys::cpu_time() - cpu_before,
        "realtime": is_realtime,
        "late": late_json(&late),
        "measured": measurement.json(&main.links),
        "links": main.links.counts().map(|(name, forward, counts)| link_json(name, forward, counts)).collect::<Vec<_>>(),
        "segments": plan.segments.iter().zip(devices.chunks(2)).map(|(segment, ends)| json!({
            "segment": segment.name,
            "ends": ends.iter().map(Device::json).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    Ok(write_line(out, &json!({ "statistics": statistics }))?)
}

/// Creates the devices of all segments, in the order that [`device`] expects.
fn open_devices(plan: &Plan) -> Result<Vec<Device>, Box<dyn std::error::Error>> {
    let mut devices = Vec::new();
    for (segment_index, segment) in (0..).zip(&plan.segments) {
        for (end_index, end) in (0..).zip(&segment.ends) {
            let opened = sys::inside(end.netns.as_deref(), || {
                let tun = Tun::open(&end.device, segment.mtu)?;
                tun.set_queue(DEVICE_QUEUE)?;
                Ok((tun, DeviceCounters::here()?))
            });
            let (tun, counters) = opened.map_err(|e| {
                let netns = end.netns.as_ref();
                let netns = netns.map_or("this namespace".to_owned(), |path| path.display().to_string());
                format!(
                    "device {} in {netns}: {e}; needed: CAP_NET_ADMIN there, and /dev/net/tun",
                    end.device
                )
            })?;
            devices.push(Device {
                tun,
                counters,
                mtu: segment.mtu as usize,
                segment: segment_index,
                end: end_index,
                received: 0,
                sent: 0,
                refused: 0,
            });
        }
    }
    Ok(devices)
}

/// The device at an end of a segment.
fn device(devices: &mut [Device], segment: u32, end: u8) -> &mut Device {
    &mut devices[2 * segment as usize + usize::from(end)]
}

/// Passes waiting packets to the links, up to a batch from each readable device.
fn receive(
    devices: &mut [Device],
    readable: &mut [bool],
    links: &mut Links,
    clock: &Clock,
    out: &mut Vec<Passed>,
) -> io::Result<()> {
    for (device, readable) in devices.iter_mut().zip(readable) {
        if *readable {
            *readable = device.receive(links, clock, out)?;
        }
    }
    Ok(())
}

impl Device {
    /// Passes waiting packets to the links, up to a batch. Returns true if more may wait.
    fn receive(&mut self, links: &mut Links, clock: &Clock, out: &mut Vec<Passed>) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut packet = links.take_buffer(self.mtu);
            match self.tun.read(&mut packet) {
                Ok(len) => {
                    packet.truncate(len);
                    self.received += 1;
                    // Read now: a packet may have come since the turn began, and none is to leave early.
                    links.arrive(self.segment, 1 - self.end, packet, clock.now(), out);
                }
                Err(e) => {
                    links.return_buffer(packet);
                    return match e.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                        // The device is down and may come up again.
                        _ if e.raw_os_error() == Some(libc::EIO) => Ok(false),
                        _ => Err(e),
                    };
                }
            }
        }
        Ok(true)
    }

    fn send(&mut self, packet: &[u8]) {
        match self.tun.write(packet) {
            Ok(()) => self.sent += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn json(&self) -> Value {
        json!({
            "device": self.tun.name,
            "received": self.received,
            "sent": self.sent,
            "refused": self.refused,
            "overrun": self.counters.dropped(&self.tun.name),
        })
    }
}

/// Time by which packets left a segment too late.
fn late_json(late: &Histogram<u64>) -> Value {
    if late.is_empty() {
        return Value::Null;
    }
    json!({
        "packets": late.len(),
        "mean_s": late.mean() * 1e-9,
        "median_s": late.value_at_quantile(0.5) as f64 * 1e-9,
        "p99_s": late.value_at_quantile(0.99) as f64 * 1e-9,
        "max_s": late.max() as f64 * 1e-9,
    })
}

fn link_json(name: &str, forward: bool, counts: &Counts) -> Value {
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
