//! Modulation and coding (ModCod) of DVB-S2.

/// A modulation and coding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modcod {
    /// Modulation and code rate.
    pub name: &'static str,
    /// Spectral efficiency [bit/symbol].
    pub efficiency: f64,
    /// Required Es/N0 for a packet error rate of 1e-7 [dB].
    pub threshold: f64,
}

const fn modcod(name: &'static str, efficiency: f64, threshold: f64) -> Modcod {
    Modcod { name, efficiency, threshold }
}

/// ETSI EN 302 307-1 V1.4.1, table 13: normal FECFRAME, no pilots, ideal demodulation, white noise.
pub const MODCODS: &[Modcod] = &[
    modcod("QPSK 1/4", 0.490_243, -2.35),
    modcod("QPSK 1/3", 0.656_448, -1.24),
    modcod("QPSK 2/5", 0.789_412, -0.30),
    modcod("QPSK 1/2", 0.988_858, 1.00),
    modcod("QPSK 3/5", 1.188_304, 2.23),
    modcod("QPSK 2/3", 1.322_253, 3.10),
    modcod("QPSK 3/4", 1.487_473, 4.03),
    modcod("QPSK 4/5", 1.587_196, 4.68),
    modcod("QPSK 5/6", 1.654_663, 5.18),
    modcod("QPSK 8/9", 1.766_451, 6.20),
    modcod("QPSK 9/10", 1.788_612, 6.42),
    modcod("8PSK 3/5", 1.779_991, 5.50),
    modcod("8PSK 2/3", 1.980_636, 6.62),
    modcod("8PSK 3/4", 2.228_124, 7.91),
    modcod("8PSK 5/6", 2.478_562, 9.35),
    modcod("8PSK 8/9", 2.646_012, 10.69),
    modcod("8PSK 9/10", 2.679_207, 10.98),
    modcod("16APSK 2/3", 2.637_201, 8.97),
    modcod("16APSK 3/4", 2.966_728, 10.21),
    modcod("16APSK 4/5", 3.165_623, 11.03),
    modcod("16APSK 5/6", 3.300_184, 11.61),
    modcod("16APSK 8/9", 3.523_143, 12.89),
    modcod("16APSK 9/10", 3.567_342, 13.13),
    modcod("32APSK 3/4", 3.703_295, 12.73),
    modcod("32APSK 4/5", 3.951_571, 13.64),
    modcod("32APSK 5/6", 4.119_540, 14.28),
    modcod("32APSK 8/9", 4.397_854, 15.69),
    modcod("32APSK 9/10", 4.453_027, 16.05),
];

impl Modcod {
    /// Finds a ModCod by name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        MODCODS.iter().find(|m| m.name == name)
    }

    /// Returns the most efficient ModCod that works at an Es/N0 [dB].
    #[must_use]
    pub fn best(signal: f64) -> Option<&'static Self> {
        let working = MODCODS.iter().filter(|m| m.threshold <= signal);
        working.max_by(|a, b| a.efficiency.total_cmp(&b.efficiency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8PSK 9/10 needs 10.98 dB, but 16APSK 3/4 carries more at 10.21.
    #[test]
    fn best_modcod_has_the_highest_efficiency() {
        let best = |signal| Modcod::best(signal).map(|m| m.name);
        assert_eq!(best(-2.36), None);
        assert_eq!(best(-2.35), Some("QPSK 1/4"));
        assert_eq!(best(11.0), Some("16APSK 3/4"));
        assert_eq!(best(5.60), Some("8PSK 3/5"));
        assert_eq!(best(30.0), Some("32APSK 9/10"));
    }

    /// No code exceeds Shannon's limit: the efficiency is below log2(1 + Es/N0) at the threshold.
    #[test]
    fn efficiencies_stay_below_the_shannon_limit() {
        for m in MODCODS {
            let shannon = libm::log2(1.0 + libm::pow(10.0, m.threshold / 10.0));
            assert!(m.efficiency < shannon && m.efficiency > 0.6 * shannon, "{}", m.name);
        }
    }
}
