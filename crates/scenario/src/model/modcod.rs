//! Modulation and coding (ModCod) of DVB-S2 and DVB-S2X.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A modulation and coding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modcod {
    /// Modulation and code rate.
    pub name: &'static str,
    /// Spectral efficiency [bit/symbol].
    pub efficiency: f64,
    /// Required Es/N0 for a packet error rate of 1e-7, of DVB-S2X a frame error rate of 1e-5 [dB].
    pub threshold: f64,
}

const fn modcod(name: &'static str, efficiency: f64, threshold: f64) -> Modcod {
    Modcod { name, efficiency, threshold }
}

/// ModCods that a carrier can select.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ModcodTable {
    /// Those of DVB-S2.
    #[default]
    #[serde(rename = "dvb-s2")]
    DvbS2,
    /// Those of DVB-S2 and DVB-S2X.
    #[serde(rename = "dvb-s2x")]
    DvbS2x,
}

impl ModcodTable {
    /// Returns the ModCods.
    #[must_use]
    pub fn modcods(self) -> &'static [Modcod] {
        match self {
            Self::DvbS2 => &MODCODS[..DVB_S2],
            Self::DvbS2x => &MODCODS,
        }
    }

    /// Finds a ModCod by name.
    #[must_use]
    pub fn find(self, name: &str) -> Option<&'static Modcod> {
        self.modcods().iter().find(|m| m.name == name)
    }

    /// Returns the most efficient ModCod that works at an Es/N0 [dB].
    #[must_use]
    pub fn best(self, signal: f64) -> Option<&'static Modcod> {
        let working = self.modcods().iter().filter(|m| m.threshold <= signal);
        working.max_by(|a, b| a.efficiency.total_cmp(&b.efficiency))
    }

    /// Returns the least Es/N0 at which a ModCod works [dB].
    #[must_use]
    pub fn least(self) -> f64 {
        self.modcods().iter().map(|m| m.threshold).fold(f64::INFINITY, f64::min)
    }

    /// Returns true for the default.
    #[must_use]
    pub fn is_dvb_s2(&self) -> bool {
        *self == Self::DvbS2
    }
}

/// Number of the ModCods of DVB-S2, which come first.
const DVB_S2: usize = 28;

/// ETSI EN 302 307-1 V1.4.1, table 13, then ETSI EN 302 307-2, table 20a: normal FECFRAME, no pilots, ideal
/// demodulation, white noise.
static MODCODS: [Modcod; DVB_S2 + 39] = [
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
    modcod("QPSK 2/9", 0.434_841, -2.85),
    modcod("QPSK 13/45", 0.567_805, -2.03),
    modcod("QPSK 9/20", 0.889_135, 0.22),
    modcod("QPSK 11/20", 1.088_581, 1.45),
    modcod("8APSK 5/9-L", 1.647_211, 4.73),
    modcod("8APSK 26/45-L", 1.713_601, 5.13),
    modcod("8PSK 23/36", 1.896_173, 6.12),
    modcod("8PSK 25/36", 2.062_148, 7.02),
    modcod("8PSK 13/18", 2.145_136, 7.49),
    modcod("16APSK 1/2-L", 1.972_253, 5.97),
    modcod("16APSK 8/15-L", 2.104_850, 6.55),
    modcod("16APSK 5/9-L", 2.193_247, 6.84),
    modcod("16APSK 26/45", 2.281_645, 7.51),
    modcod("16APSK 3/5", 2.370_043, 7.80),
    modcod("16APSK 3/5-L", 2.370_043, 7.41),
    modcod("16APSK 28/45", 2.458_441, 8.10),
    modcod("16APSK 23/36", 2.524_739, 8.38),
    modcod("16APSK 2/3-L", 2.635_236, 8.43),
    modcod("16APSK 25/36", 2.745_734, 9.27),
    modcod("16APSK 13/18", 2.856_231, 9.71),
    modcod("16APSK 7/9", 3.077_225, 10.65),
    modcod("16APSK 77/90", 3.386_618, 11.99),
    modcod("32APSK 2/3-L", 3.291_954, 11.10),
    modcod("32APSK 32/45", 3.510_192, 11.75),
    modcod("32APSK 11/15", 3.620_536, 12.17),
    modcod("32APSK 7/9", 3.841_226, 13.05),
    modcod("64APSK 32/45-L", 4.206_428, 13.98),
    modcod("64APSK 11/15", 4.338_659, 14.81),
    modcod("64APSK 7/9", 4.603_122, 15.47),
    modcod("64APSK 4/5", 4.735_354, 15.87),
    modcod("64APSK 5/6", 4.936_639, 16.55),
    modcod("128APSK 3/4", 5.163_248, 17.73),
    modcod("128APSK 7/9", 5.355_556, 18.53),
    modcod("256APSK 29/45-L", 5.065_690, 16.98),
    modcod("256APSK 2/3-L", 5.241_514, 17.24),
    modcod("256APSK 31/45-L", 5.417_338, 18.10),
    modcod("256APSK 32/45", 5.593_162, 18.59),
    modcod("256APSK 11/15-L", 5.768_987, 18.84),
    modcod("256APSK 3/4", 5.900_855, 19.57),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// 8PSK 9/10 needs 10.98 dB, but 16APSK 3/4 carries more at 10.21.
    #[test]
    fn best_modcod_has_the_highest_efficiency() {
        let best = |signal| ModcodTable::DvbS2.best(signal).map(|m| m.name);
        assert_eq!(best(-2.36), None);
        assert_eq!(best(-2.35), Some("QPSK 1/4"));
        assert_eq!(best(11.0), Some("16APSK 3/4"));
        assert_eq!(best(5.60), Some("8PSK 3/5"));
        assert_eq!(best(30.0), Some("32APSK 9/10"));
        let best = |signal| ModcodTable::DvbS2x.best(signal).map(|m| m.name);
        assert_eq!(best(-2.86), None);
        assert_eq!(best(-2.85), Some("QPSK 2/9"));
        assert_eq!(best(11.0), Some("16APSK 7/9"));
        assert_eq!(best(30.0), Some("256APSK 3/4"));
    }

    /// A FECFRAME of 64,800 coded bits carries 80 bits of header and the BCH code's parity, 192 bits or, with the codes 2/3 and
    /// 5/6 of DVB-S2, 160, and 128 with 8/9 and 9/10; its symbols fill slots of 90, after a header of 90 (EN 302 307-1,
    /// clauses 5.3 and 5.5.2).
    #[test]
    fn efficiencies_follow_from_the_lengths_of_frames() {
        for m in &MODCODS {
            let (modulation, rate) = m.name.split_once(' ').unwrap();
            let (k, n) = rate.trim_end_matches("-L").split_once('/').unwrap();
            let (k, n): (f64, f64) = (k.parse().unwrap(), n.parse().unwrap());
            let parity = match (modulation, rate) {
                (_, "2/3" | "5/6") | ("32APSK", "2/3-L") => 160.0,
                (_, "8/9" | "9/10") => 128.0,
                _ => 192.0,
            };
            let points = modulation.trim_end_matches("APSK").trim_end_matches("PSK");
            let bits = if points == "Q" { 2.0 } else { libm::log2(points.parse().unwrap()) };
            let slots = (64_800.0 / bits / 90.0_f64).ceil();
            let efficiency = (64_800.0 * k / n - parity - 80.0) / (90.0 * (slots + 1.0));
            assert!((efficiency - m.efficiency).abs() < 1e-6, "{}: {efficiency}", m.name);
        }
    }

    /// No code exceeds Shannon's limit: the efficiency is below log2(1 + Es/N0) at the threshold.
    #[test]
    fn efficiencies_stay_below_the_shannon_limit() {
        for m in &MODCODS {
            let shannon = libm::log2(1.0 + libm::pow(10.0, m.threshold / 10.0));
            assert!(m.efficiency < shannon && m.efficiency > 0.6 * shannon, "{}", m.name);
        }
    }
}
