//! The estimated rate beside the told one, on a fade and on the capacity of real links.
#![allow(clippy::print_stdout, reason = "figures are shown")]

use std::collections::VecDeque;
use std::path::Path;

use bentpipe_spacelink::{LinkObservation, RateBounds, RateEstimator};
use bentpipe_units::{Duration, Instant, Rate};

/// Time of a step.
const STEP: Duration = Duration::from_millis(10);

/// Results of a run.
#[derive(Debug)]
struct Outcome {
    /// Share of the link's capacity that was used.
    utilization: f64,
    /// Mean time that bytes waited in the modem [s].
    delay: f64,
}

/// Runs a fluid link with a modem's queue, fed by a regulator that always has packets. `capacity` has the bytes that the link can
/// carry in each step, `rate` gives the regulator's rate [bit/s] from what it sees, a round trip later.
fn run(
    capacity: &[f64],
    round_trip: Duration,
    mut rate: impl FnMut(usize, LinkObservation, Instant) -> f64,
) -> Outcome {
    let late = (round_trip.as_nanos() / STEP.as_nanos()) as usize;
    let (mut queue, mut delivered, mut waited, mut room) = (0.0, 0.0, 0.0, 0.0);
    let mut seen: VecDeque<LinkObservation> = VecDeque::new();
    let mut now = Instant::ZERO;
    for (step, bytes) in capacity.iter().enumerate() {
        let shown = if seen.len() > late { seen.pop_front() } else { None };
        let unknown = LinkObservation { delivered: 0, round_trip: Duration::ZERO, is_busy: true };
        queue += rate(step, shown.unwrap_or(unknown), now) / 8.0 * STEP.as_secs_f64();
        let sent = f64::min(queue, *bytes);
        queue -= sent;
        delivered += sent;
        room += bytes;
        waited += queue * STEP.as_secs_f64();
        // The delay of a byte that comes now: what waits, at the capacity of the next second.
        let next = &capacity[step..capacity.len().min(step + 100)];
        let speed = next.iter().sum::<f64>() / next.len() as f64 / STEP.as_secs_f64();
        let standing = Duration::from_nanos((queue / speed.max(1000.0) * 1e9) as u64);
        let round_trip = round_trip + standing;
        seen.push_back(LinkObservation { delivered: delivered as u64, round_trip, is_busy: true });
        now += STEP;
    }
    Outcome { utilization: delivered / room, delay: waited / delivered }
}

fn estimated(capacity: &[f64], round_trip: Duration, bounds: RateBounds) -> Outcome {
    let mut estimator = RateEstimator::new(bounds);
    run(capacity, round_trip, |_, seen, now| {
        estimator.observe(seen, now);
        estimator.rate().as_bps() as f64
    })
}

/// A modem that tells 95 % of its mean rate over the last second.
fn told(capacity: &[f64], round_trip: Duration) -> Outcome {
    run(capacity, round_trip, |step, _, _| {
        let last = &capacity[step.saturating_sub(100)..=step];
        0.95 * 8.0 * last.iter().sum::<f64>() / last.len() as f64 / STEP.as_secs_f64()
    })
}

fn bounds(least: u64, most: u64) -> RateBounds {
    RateBounds { least: Rate::from_bps(least), most: Rate::from_bps(most), delay: Duration::from_millis(50) }
}

/// 20 Mbit/s, 8 for a minute, 20 again, over 600 ms. The estimate keeps the queue short and the link busy; a regulator that keeps
/// 20 Mbit/s leaves a queue that grows for the whole minute.
#[test]
fn the_estimate_follows_a_fade() {
    let step = |mbps: f64| mbps * 1e6 / 8.0 * STEP.as_secs_f64();
    let rate = |n: usize| if (6000..12_000).contains(&n) { 8.0 } else { 20.0 };
    let capacity: Vec<f64> = (0..18_000).map(|n| step(rate(n))).collect();
    let trip = Duration::from_millis(600);
    let found = estimated(&capacity, trip, bounds(1_000_000, 20_000_000));
    let (told, fixed) = (told(&capacity, trip), run(&capacity, trip, |_, _, _| 20e6));
    println!("fade: estimated {found:?}, told {told:?}, fixed {fixed:?}");
    assert!(found.utilization > 0.85, "{found:?}");
    assert!(found.delay < 0.25 && fixed.delay > 10.0, "{found:?}, {fixed:?}");
}

/// Capacity of real mobile links (Saturator traces): lines are times [ms] of opportunities to send 1500 bytes.
#[test]
fn the_estimate_follows_real_links() {
    let folder = Path::new("../../../shared/data");
    for (file, most) in [("TMobile-UMTS-driving.down", 10_000_000), ("ATT-LTE-driving-2016.down", 20_000_000)]
    {
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("not run: there is no {file}");
            continue;
        };
        let mut capacity = Vec::new();
        for ms in text.lines().filter_map(|line| line.trim().parse::<usize>().ok()) {
            let step = ms / 10;
            if capacity.len() <= step {
                capacity.resize(step + 1, 0.0);
            }
            capacity[step] += 1500.0;
        }
        let trip = Duration::from_millis(60);
        let found = estimated(&capacity, trip, bounds(100_000, most));
        let (told, fixed) = (told(&capacity, trip), run(&capacity, trip, |_, _, _| most as f64));
        println!("{file}: estimated {found:?}, told {told:?}, fixed {fixed:?}");
        assert!(found.utilization > 0.5 * told.utilization, "{file}: {found:?}, told {told:?}");
        assert!(found.delay < 0.1 * fixed.delay, "{file}: {found:?}, fixed {fixed:?}");
    }
}
