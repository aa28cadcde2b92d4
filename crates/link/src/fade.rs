//! Rain fade, and a carrier with adaptive coding and modulation.
//!
//! ITU-R P.1853, Annex 1, section 2: a white Gaussian sequence n(kT) is filtered to
//!
//! ```text
//! X(kT) = rho X((k-1)T) + sqrt(1 - rho^2) n(kT),   rho = exp(-beta T)
//! A(kT) = max(0, exp(m + sigma X(kT)) - A_offset)  [dB],   A_offset = exp(m + sigma Q^-1(p_rain))
//! ```
//!
//! where Q^-1 is the inverse of the complementary normal distribution. Without an offset (p_rain = 1) this is the
//! process of Maseng & Bakken (1981). At each step the carrier uses the most efficient DVB-S2 ModCod whose threshold is below
//! the clear-sky Es/N0 less A and a margin; below all thresholds the rate is zero.
//!
//! Links of a region share weather: X = sqrt(c) R + sqrt(1 - c) S with the region's process R and the link's S, two such
//! processes of the same rho, so that X is one too, and two links have the correlation c. ITU-R P.618, section 2.2.4.1, has
//! c over the distance of two stations.
//!
//! *Departures:* the process starts in its stationary state, so that no start has to be discarded; rain does not raise the
//! noise of the receiver; the ModCod follows the signal at once, and the margin accounts for the delay of that.

use bentpipe_scenario as scenario;
use bentpipe_units::{Instant, Rate, Rng};

/// A stationary Gaussian first-order Markov process with mean 0 and variance 1.
#[derive(Clone, Debug)]
struct Process {
    x: f64,
    rng: Rng,
}

impl Process {
    fn new(mut rng: Rng) -> Self {
        Self { x: rng.normal(), rng }
    }

    /// Takes a step with the correlation `rho`.
    fn step(&mut self, rho: f64) {
        self.x = rho * self.x + (1.0 - rho * rho).sqrt() * self.rng.normal();
    }
}

/// Streams of random numbers of a [`Fade`].
#[derive(Clone, Debug)]
pub struct Streams {
    /// Stream of the link's process.
    pub link: Rng,
    /// Stream of its region's process, the same for all links there.
    pub region: Option<Rng>,
}

impl Streams {
    /// The streams of the direction `direction` of `link`.
    #[must_use]
    pub fn of(fade: &scenario::Fade, seed: u64, link: &str, direction: &str) -> Self {
        match &fade.region {
            None => Self { link: Rng::stream(seed, direction, 0, "capacity"), region: None },
            Some(region) => Self {
                link: Rng::stream(seed, link, 0, "weather"),
                region: Some(Rng::stream(seed, &region.name, 0, "region")),
            },
        }
    }
}

/// A carrier under rain fade.
#[derive(Clone, Debug)]
pub struct Fade {
    carrier: scenario::Carrier,
    fade: scenario::Fade,
    /// Correlation of successive values.
    rho: f64,
    /// `A_offset` [dB].
    offset: f64,
    /// The link's process.
    own: Process,
    /// The process of its region, and the correlation there.
    region: Option<(Process, f64)>,
    /// Time of the next step.
    next: Instant,
    rate: Rate,
}

impl Fade {
    /// The rain fade of `carrier`; `streams` are used for nothing else.
    #[must_use]
    pub fn new(carrier: &scenario::Carrier, fade: &scenario::Fade, streams: Streams) -> Self {
        let correlation = fade.region.as_ref().map_or(0.0, |region| region.correlation);
        let rho = libm::exp(-fade.step.as_secs_f64() / fade.correlation_time.as_secs_f64());
        let offset = match fade.rain {
            p if p >= 1.0 => 0.0,
            p if p <= 0.0 => f64::INFINITY,
            p => fade.median * libm::exp(fade.sigma * upper_quantile(p)),
        };
        let mut new = Self {
            carrier: carrier.clone(),
            rho,
            offset,
            own: Process::new(streams.link),
            region: streams.region.map(|rng| (Process::new(rng), correlation)),
            next: Instant::ZERO + fade.step,
            rate: Rate::default(),
            fade: fade.clone(),
        };
        new.choose();
        new
    }

    /// The Gaussian process `X`.
    fn x(&self) -> f64 {
        match &self.region {
            None => self.own.x,
            Some((region, c)) => c.sqrt() * region.x + (1.0 - c).sqrt() * self.own.x,
        }
    }

    /// Current attenuation [dB].
    #[must_use]
    pub fn attenuation(&self) -> f64 {
        (self.fade.median * libm::exp(self.fade.sigma * self.x()) - self.offset).max(0.0)
    }

    /// The rate at `now`, and the time until which it holds.
    pub fn at(&mut self, now: Instant) -> (Rate, Option<Instant>) {
        while self.next <= now {
            self.own.step(self.rho);
            if let Some((region, _)) = &mut self.region {
                region.step(self.rho);
            }
            self.next += self.fade.step;
            self.choose();
        }
        (self.rate, Some(self.next))
    }

    /// Chooses the ModCod.
    fn choose(&mut self) {
        let signal = self.fade.clear_sky - self.attenuation() - self.fade.margin;
        self.rate = self.carrier.modcods.best(signal).map_or(Rate::default(), |m| self.carrier.rate(m));
    }
}

/// The value that a standard normal variable exceeds with probability `p`, by bisection, as it is needed only once.
fn upper_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        let exceeded = 0.5 * libm::erfc(middle * std::f64::consts::FRAC_1_SQRT_2);
        if exceeded > p { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use bentpipe_scenario::{ModcodTable, Modulation};
    use bentpipe_units::Duration;

    use super::*;

    fn fade(rain: f64) -> Fade {
        let fade = scenario::Fade {
            clear_sky: 14.0,
            median: 1.0,
            sigma: 1.0,
            correlation_time: Duration::from_secs(100),
            rain,
            margin: 1.0,
            step: Duration::from_secs(1),
            region: None,
        };
        let carrier = scenario::Carrier {
            symbol_rate: 10_000_000,
            modcods: ModcodTable::DvbS2,
            modulation: Modulation::Fade(fade.clone()),
        };
        Fade::new(&carrier, &fade, Streams::of(&fade, 2, "fade", "fade"))
    }

    /// The process of a direction of a link in a region over `n` seconds.
    fn in_region(region: &str, correlation: f64, link: &str, direction: &str, n: u64) -> Vec<f64> {
        let mut fade = fade(1.0);
        fade.fade.region = Some(scenario::Region { name: region.to_owned(), correlation });
        let streams = Streams::of(&fade.fade, 2, link, direction);
        let mut fade = Fade::new(&fade.carrier, &fade.fade, streams);
        let x = |s| {
            fade.at(Instant::ZERO + Duration::from_secs(s));
            libm::log(fade.attenuation())
        };
        (0..n).map(x).collect()
    }

    /// Mean product of two processes.
    fn covariance(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
    }

    /// Of 400 000 s with a correlation time of 100 s there are some 4000 independent products, whose mean has a standard error of
    /// at most sqrt((1 + c^2) / 4000) = 0.022.
    #[test]
    fn links_of_a_region_have_the_correlation_of_the_file() {
        for c in [0.0, 0.25, 0.8] {
            let link = |region, name| in_region(region, c, name, name, 400_000);
            let (a, b, elsewhere) = (link("north", "a"), link("north", "b"), link("south", "b"));
            assert!((covariance(&a, &b) - c).abs() < 0.09, "{c}: {}", covariance(&a, &b));
            assert!((covariance(&a, &a) - 1.0).abs() < 0.11, "{c}: {}", covariance(&a, &a));
            assert!(covariance(&a, &elsewhere).abs() < 0.09, "{c}: {}", covariance(&a, &elsewhere));
        }
    }

    #[test]
    fn both_directions_of_a_link_in_a_region_have_the_same_rain() {
        let x = |direction| in_region("north", 0.25, "a", direction, 1_000);
        assert_eq!(x("a"), x("a reverse"));
        assert_ne!(x("a"), in_region("north", 0.25, "b", "b", 1_000));
    }

    #[test]
    fn links_with_a_correlation_of_one_have_the_same_rain() {
        assert_eq!(in_region("north", 1.0, "a", "a", 1_000), in_region("north", 1.0, "b", "b", 1_000));
    }

    /// Compared with a table of the normal distribution.
    #[test]
    fn quantiles_agree_with_the_table() {
        for (p, x) in [(0.5, 0.0), (0.158_655_254, 1.0), (0.05, 1.644_853_627), (0.975, -1.959_963_985)] {
            assert!((upper_quantile(p) - x).abs() < 1e-8, "{p}");
        }
    }

    /// ln A is normal with mean 0, variance 1 and correlation exp(-k / 100) over k seconds. Of 400 000 s there are some
    /// 2000 independent values (two correlation times each): standard errors of the mean 0.022, of the variance (the
    /// correlation's square counts: 4000 values) 0.022, of the share of rain (0.3) below 0.011.
    #[test]
    fn attenuation_has_the_distribution_and_correlation_of_p_1853() {
        let mut rain = fade(1.0);
        let n = 400_000u64;
        let x: Vec<f64> = (0..n)
            .map(|s| {
                rain.at(Instant::ZERO + Duration::from_secs(s));
                libm::log(rain.attenuation())
            })
            .collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.11 && (variance - 1.0).abs() < 0.11, "{mean} {variance}");
        let lag = |k: usize| {
            let sum: f64 = x.iter().zip(&x[k..]).map(|(a, b)| (a - mean) * (b - mean)).sum();
            sum / (x.len() - k) as f64 / variance
        };
        assert!((lag(100) - libm::exp(-1.0)).abs() < 0.09, "{}", lag(100));
        assert!((lag(10) - libm::exp(-0.1)).abs() < 0.02, "{}", lag(10));

        let mut sometimes = fade(0.3);
        let wet = (0..n).filter(|s| {
            sometimes.at(Instant::ZERO + Duration::from_secs(*s));
            sometimes.attenuation() > 0.0
        });
        let share = wet.count() as f64 / n as f64;
        assert!((share - 0.3).abs() < 0.055, "{share}");
    }

    /// 14 dB less a margin of 1: 32APSK 3/4 (12.73 dB, 3.703295 bit/symbol) in clear sky; 2.5 dB of rain leave
    /// 10.5 dB, for 16APSK 3/4 (10.21 dB); with 15.4 dB nothing can be sent, as QPSK 1/4 needs -2.35 dB.
    #[test]
    fn the_modulation_follows_the_rain() {
        let mut dry = fade(0.0);
        assert_eq!(dry.at(Instant::ZERO).0, Rate::from_bps(37_032_950));
        let mut wet = fade(1.0);
        let mut rate = |attenuation: f64| {
            wet.own.x = libm::log(attenuation);
            wet.choose();
            wet.rate
        };
        assert_eq!(rate(2.5), Rate::from_bps(29_667_280));
        assert_eq!(rate(15.4), Rate::default());
    }

    /// The filter of P.1853 from the stationary state n(0): X(kT) = rho^k n(0) + sqrt(1 - rho^2) times the sum of rho^(k-i) n(iT).
    #[test]
    fn the_process_is_the_filter_of_p_1853() {
        let mut rain = fade(1.0);
        let mut noise = Rng::stream(2, "fade", 0, "capacity");
        let n: Vec<f64> = (0..10).map(|_| noise.normal()).collect();
        let power = |k: usize| libm::exp(-0.01 * k as f64);
        for k in 0..10 {
            rain.at(Instant::ZERO + Duration::from_secs(k as u64));
            let sum: f64 = (1..=k).map(|i| power(k - i) * n[i]).sum();
            let expected = power(k) * n[0] + (1.0 - power(2)).sqrt() * sum;
            assert!((libm::log(rain.attenuation()) - expected).abs() < 1e-12, "{k}");
        }
    }

    /// X = sqrt(c) R + sqrt(1 - c) S, where R is X with c = 1, and S that of a link of the same stream without a region.
    #[test]
    fn weather_in_a_region_is_the_sum_of_both_processes() {
        let both = in_region("north", 0.25, "a", "a", 100);
        let region = in_region("north", 1.0, "a", "a", 100);
        let alone = fade(1.0);
        let streams = Streams { link: Rng::stream(2, "a", 0, "weather"), region: None };
        let mut alone = Fade::new(&alone.carrier, &alone.fade, streams);
        for (s, (x, region)) in both.iter().zip(region).enumerate() {
            alone.at(Instant::ZERO + Duration::from_secs(s as u64));
            let expected = 0.5 * region + 0.75f64.sqrt() * libm::log(alone.attenuation());
            assert!((x - expected).abs() < 1e-12, "{s}");
        }
    }
}
