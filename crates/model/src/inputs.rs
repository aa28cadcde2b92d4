//! Parameters of the equations as a readable list.

use bentpipe_scenario::Scenario;

use crate::capacity::Capacity;
use crate::error::Error;
use crate::system::{System, name};

/// A parameter of the equations.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Symbol.
    pub symbol: &'static str,
    /// Meaning.
    pub what: &'static str,
    /// Value; infinite if unbounded.
    pub value: f64,
    /// Unit; empty if dimensionless.
    pub unit: &'static str,
}

/// Returns the name of the equations and their parameters. Variable parameters are given as means, capacities as
/// minimum and maximum.
///
/// # Errors
/// A scenario that the equations do not cover.
pub fn inputs(scenario: &Scenario, seed: u64) -> Result<(&'static str, Vec<Input>), Error> {
    let s = System::of(scenario, seed)?;
    let (low, high) = match &s.capacity {
        Capacity::Fixed(rate) => (*rate, *rate),
        Capacity::Steps(steps, _) => {
            steps.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), (_, x)| (low.min(*x), high.max(*x)))
        }
        Capacity::Drawn(rates, _) => {
            rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)))
        }
    };
    let input = |symbol, what, value, unit| Input { symbol, what, value, unit };
    let mut found = vec![
        input("m", "long-lived TCP connections", s.connections, ""),
        input("R", "mean round-trip time of a sender without queueing delay", s.round_trip, "s"),
        input(
            "μ",
            if high > low { "minimum capacity of the link" } else { "capacity of the link" },
            low,
            "packets/s",
        ),
    ];
    if high > low {
        found.push(input("μ", "maximum capacity of the link", high, "packets/s"));
    }
    found.extend([
        input("P", "length of a packet on the link", s.packet, "bytes"),
        input("S", "length of a segment at the mark point", s.segment, "bytes"),
        input("", "limit of the watched queue", s.limit, "packets"),
        input("1 - decr", "share of its window by which a mark reduces it", 1.0 - s.decrease, ""),
        input("MaxRcvWin", "receive window", s.window, "segments"),
        input("W_0", "initial window", s.initial_window, "segments"),
        input("", "datagrams, which do not react to marks", 8.0 * s.background, "bit/s"),
        input("", "share of connections replaced per second", s.replaced, "1/s"),
        input("d", "mean PEP delay", s.pep_delay.mean(), "s"),
        input("ω", "mean load ratio", s.load_ratio.mean(), ""),
    ]);
    if let Some(series) = &s.new_connections {
        found.push(input("υ", "mean share of new connections", series.mean(), ""));
    }
    Ok((name(s.equations), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 50 connections, 2 x (15 + 250 + 15) ms, 20 Mbit/s in packets of 1040 B.
    #[test]
    fn dumbbell_inputs_match_its_file() {
        let path = "../../scenarios/red-dumbbell.toml";
        let scenario = Scenario::load(path, &[]).unwrap();
        let (equations, found) = inputs(&scenario, 1).unwrap();
        assert_eq!(equations, "end_to_end");
        let of = |symbol: &str| found.iter().find(|input| input.symbol == symbol).unwrap().value;
        assert_eq!(of("m"), 50.0);
        assert!((of("R") - 0.56).abs() < 1e-12);
        assert!((of("μ") - 20e6 / (8.0 * 1040.0)).abs() < 1e-9);
        assert_eq!(of("1 - decr"), 0.5);
        assert_eq!(of("S"), 1040.0);
    }
}
