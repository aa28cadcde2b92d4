//! Conversational quality of a call by the E-model (ITU-T G.107, 06/2015), narrowband, with G.711 and packet loss concealment
//! (G.113, Appendix I: Ie = 0, Bpl = 25.1).
//!
//! All other parameters have the defaults of G.107, clause 7.7. Echo takes the path of the voice: T = Ta, Tr = 2 Ta. As
//! `bentpipe.qoe.voice.call` in Python; `tests/voice.csv` has values that both must return.

use libm::{exp, log2, log10, pow};

/// Send and receive loudness ratings [dB], sidetone and listener sidetone, D-value, echo loudness ratings.
const SLR: f64 = 8.0;
const RLR: f64 = 2.0;
const STMR: f64 = 15.0;
const LSTR: f64 = 18.0;
const DS: f64 = 3.0;
const TELR: f64 = 65.0;
const WEPL: f64 = 110.0;
/// Circuit noise [dBm0p], noise floor [dBmp], room noise at both sides [dB(A)].
const NC: f64 = -70.0;
const NFOR: f64 = -64.0;
const PS: f64 = 35.0;
const PR: f64 = 35.0;
/// Robustness of the codec against loss, Bpl.
const BPL: f64 = 25.1;
/// Minimum perceivable delay mT [ms], and sensitivity sT, of users by default.
const LEAST: f64 = 100.0;
const SENSITIVITY: f64 = 1.0;

/// Time that a call adds to the network's delay [ms]: 20 ms of voice per packet, and a jitter buffer of 40 ms.
pub const ENDS_MS: f64 = 60.0;

/// Rating R, from 0 to 100, with a one-way delay from mouth to ear of `delay` ms and a random loss of `loss` %.
#[must_use]
pub fn rating(delay: f64, loss: f64) -> f64 {
    let no = noise();
    let ro = 15.0 - 1.5 * (SLR + no);
    let is = loudness(no) + sidetone(delay) + quantization(ro);
    let id = talker_echo(no, delay) + listener_echo(ro, 2.0 * delay) + absolute_delay(delay);
    let ie_eff = 95.0 * loss / (loss + BPL);
    (ro - is - id - ie_eff).clamp(0.0, 100.0)
}

/// MOS of a rating (G.107, Annex B), from 1 to 4.5.
#[must_use]
pub fn mos(r: f64) -> f64 {
    let r = r.clamp(0.0, 100.0);
    (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).clamp(1.0, 4.5)
}

/// MOS of a call over a network with this one-way delay [s] and share of lost packets; `None` if one of them is unknown.
#[must_use]
pub fn call(delay: f64, loss: f64) -> Option<f64> {
    let known = delay.is_finite() && loss.is_finite();
    known.then(|| mos(rating(1e3 * delay.max(0.0) + ENDS_MS, 100.0 * loss.clamp(0.0, 1.0))))
}

fn square(x: f64) -> f64 {
    x * x
}

/// The n-th root of 1 + x^n, about the larger of 1 and x.
fn root(x: f64, n: f64) -> f64 {
    pow(1.0 + pow(x, n), 1.0 / n)
}

/// Sum of noise powers No [dBm0p] (clause 7.2).
fn noise() -> f64 {
    let nos = PS - SLR - DS - 100.0 + 0.004 * square(PS - (SLR + RLR) - DS - 14.0);
    let pre = PR + 10.0 * log10(1.0 + pow(10.0, (10.0 - LSTR) / 10.0));
    let nor = RLR - 121.0 + pre + 0.008 * square(pre - 35.0);
    let powers = [NC, nos, nor, NFOR + RLR].map(|level| pow(10.0, level / 10.0));
    10.0 * log10(powers.iter().sum())
}

/// Impairment by too loud a connection, Iolr (clause 7.3).
fn loudness(no: f64) -> f64 {
    let x = (SLR + RLR + 0.2 * (64.0 + no - RLR)) / 8.0;
    20.0 * (root(x, 8.0) - x)
}

/// Impairment by sidetone, Ist (clause 7.3).
fn sidetone(delay: f64) -> f64 {
    let power = pow(10.0, -STMR / 10.0) + exp(-delay / 4.0) * pow(10.0, -TELR / 10.0);
    let stmro = -10.0 * log10(power);
    12.0 * root((stmro - 13.0).abs() / 6.0, 8.0)
        - 28.0 * root((stmro + 1.0) / 19.4, 35.0)
        - 13.0 * root((stmro - 3.0) / 33.0, 13.0)
        + 29.0
}

/// Impairment by quantization, Iq (clause 7.3), with one quantization distortion unit.
fn quantization(ro: f64) -> f64 {
    let q = 37.0;
    let g = 1.07 + 0.258 * q + 0.0602 * q * q;
    let y = (ro - 100.0) / 15.0 + 46.0 / 8.4 - g / 9.0;
    let z = 46.0 / 30.0 - g / 40.0;
    15.0 * log10(1.0 + pow(10.0, y) + pow(10.0, z))
}

/// Impairment by talker echo, Idte (clause 7.4); zero below 1 ms, where echo is sidetone.
fn talker_echo(no: f64, delay: f64) -> f64 {
    if delay < 1.0 {
        return 0.0;
    }
    let terv =
        TELR - 40.0 * log10((1.0 + delay / 10.0) / (1.0 + delay / 150.0)) + 6.0 * exp(-0.3 * delay * delay);
    let half = (-1.5 * (no - RLR) - (80.0 + 2.5 * (terv - 14.0))) / 2.0;
    (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - exp(-delay))
}

/// Impairment by listener echo, Idle (clause 7.4).
fn listener_echo(ro: f64, round_trip: f64) -> f64 {
    let half = (ro - 10.5 * (WEPL + 7.0) * pow(round_trip + 1.0, -0.25)) / 2.0;
    half + (half * half + 169.0).sqrt()
}

/// Impairment by absolute delay, Idd (clause 7.4).
fn absolute_delay(delay: f64) -> f64 {
    if delay <= LEAST {
        return 0.0;
    }
    let (x, n) = (log2(delay / LEAST), 6.0 * SENSITIVITY);
    25.0 * (root(x, n) - 3.0 * root(x / 3.0, n) + 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is also read by Python's test of the same model.
    #[test]
    fn ratings_are_those_of_the_table_that_python_shares() {
        let rows: Vec<Vec<f64>> = include_str!("../../tests/voice.csv")
            .lines()
            .filter(|line| !line.starts_with(['#', 'd']))
            .map(|line| line.split(',').map(|word| word.parse().expect(line)).collect())
            .collect();
        assert!(rows.len() >= 20);
        for row in rows {
            let [delay, loss, r, value] = row[..] else { panic!("four columns: {row:?}") };
            let found = rating(delay, loss);
            assert!((found - r).abs() < 1e-6, "{delay} ms, {loss} %: R = {found}, not {r}");
            assert!((mos(found) - value).abs() < 1e-6, "{delay} ms, {loss} %: {}, not {value}", mos(found));
        }
    }

    /// G.107, clause 7.7: R = 93.2 and MOS 4.41 with all defaults. With 150 ms and 2 % of loss: 82.5 and 4.12, the worked example of
    /// the lecture that Python's tests name.
    #[test]
    fn ratings_are_those_of_the_recommendation() {
        assert_eq!(format!("{:.1} {:.2}", rating(0.0, 0.0), mos(rating(0.0, 0.0))), "93.2 4.41");
        assert_eq!(format!("{:.1} {:.2}", rating(150.0, 2.0), mos(rating(150.0, 2.0))), "82.5 4.12");
        // The ends add 60 ms.
        assert_eq!(call(0.09, 0.02), Some(mos(rating(150.0, 2.0))));
        assert_eq!((call(f64::NAN, 0.0), call(0.0, f64::NAN)), (None, None));
        assert_eq!(call(10.0, 1.0), Some(1.0));
    }
}
