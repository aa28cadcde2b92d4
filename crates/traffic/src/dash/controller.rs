//! Controllers of adaptive video, which choose the rate of each segment.

use bentpipe_scenario::Dash;
use bentpipe_units::{Duration, Rate};

use super::viewing::Rung;

/// Segments whose throughput a [`Throughput`] remembers (Jiang, Sekar & Zhang 2012, FESTIVE).
const REMEMBERED: usize = 20;

/// Share of the estimated throughput that is used (Jiang, Sekar & Zhang 2012, FESTIVE).
const USED: f64 = 0.85;

/// Weight of smoothness in BOLA's utility (Spiteri, Urgaonkar & Sitaraman 2016, γp).
const SMOOTHNESS: f64 = 5.0;

/// Throughput of the last segments, of which the controller `rate` uses a share.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// Inverse throughputs of the last segments [s/bit], and the number of segments received.
    inverse: [f64; REMEMBERED],
    received: usize,
}

impl Throughput {
    /// A segment has arrived so long after its request.
    pub fn add(&mut self, bytes: u64, time: Duration) {
        self.inverse[self.received % REMEMBERED] = time.as_secs_f64() / (bytes as f64 * 8.0);
        self.received += 1;
    }

    /// Highest rate of at most a share of the harmonic mean; the lowest before the first segment.
    pub fn choose(&self, ladder: &[Rate]) -> Rung {
        let known = &self.inverse[..self.received.min(REMEMBERED)];
        // NaN before the first segment.
        let throughput = known.len() as f64 / known.iter().sum::<f64>();
        Rung::last(ladder.iter().take_while(|rate| rate.as_bps() as f64 <= USED * throughput).count())
    }
}

/// BBA-0 (Huang, Johari, McKeown, Trunnell & Watson 2014, section 4, algorithm 1): maps the buffer's level to a rate, and
/// keeps the rung until the map reaches the next higher or lower one.
///
/// Of a buffer of 240 s, 90 s are the reservoir, and the map reaches the highest rate at 216 s; both are scaled to the buffer at
/// hand. The map reaches the highest rate no later than at the highest level at which there is room for another segment.
pub fn bba(dash: &Dash, level: Duration, previous: Rung) -> Rung {
    let (ladder, buffer) = (&dash.ladder, dash.buffer.as_nanos());
    let reservoir = buffer / 8 * 3;
    let full = (buffer - buffer / 10).min(buffer - dash.segment.as_nanos());
    let level = level.as_nanos();
    if level <= reservoir {
        return Rung(0);
    }
    if level >= full {
        return Rung::last(ladder.len());
    }
    let top = ladder.len() - 1;
    let above_lowest = |rung: usize| u128::from(ladder[rung].as_bps() - ladder[0].as_bps());
    // Products, which are exact, stand for the map and the rates.
    let map = above_lowest(top) * u128::from(level - reservoir);
    let rate = |rung: usize| above_lowest(rung) * u128::from(full - reservoir);
    let (higher, lower) = ((previous.index() + 1).min(top), previous.index().saturating_sub(1));
    if map >= rate(higher) {
        Rung::last((0..=top).take_while(|&rung| rate(rung) < map).count())
    } else if map <= rate(lower) {
        Rung::last(1 + (0..=top).take_while(|&rung| rate(rung) <= map).count())
    } else {
        previous
    }
}

/// BOLA-BASIC (Spiteri, Urgaonkar & Sitaraman 2016): the rate S of the highest (V (ln S + γp) - Q) / S,
/// where S is relative to the lowest rate, Q is the level in segments, and V = (Qmax - 1) / (ln Smax + γp).
pub fn bola(dash: &Dash, level: Duration) -> Rung {
    let relative = |rung: usize| dash.ladder[rung].as_bps() as f64 / dash.ladder[0].as_bps() as f64;
    let utility = |rung| libm::log(relative(rung)) + SMOOTHNESS;
    let segments = |media: Duration| media.as_secs_f64() / dash.segment.as_secs_f64();
    let rungs = dash.ladder.len();
    let v = (segments(dash.buffer) - 1.0) / utility(rungs - 1);
    let score = |rung| (v * utility(rung) - segments(level)) / relative(rung);
    let best = (1..rungs).fold(0, |best, rung| if score(rung) > score(best) { rung } else { best });
    Rung::last(best + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dash::player::tests::dash;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The map is linear from 235 kbit/s at 90 s to 5000 kbit/s at 216 s: 2617.5 kbit/s at 153 s.
    #[test]
    fn bba_keeps_the_rung_until_the_map_reaches_its_neighbour() {
        let dash = dash(&[235, 375, 560, 750, 1050, 1750, 2350, 3000, 5000], 240);
        let at = |time, previous| bba(&dash, ms(time), Rung(previous)).0;
        assert_eq!((at(90_000, 5), at(216_000, 5), at(240_000, 0)), (0, 8, 8));
        assert_eq!([0, 5, 6, 7, 8].map(|previous| at(153_000, previous)), [6, 6, 6, 7, 7]);
        assert_eq!((at(90_001, 0), at(90_001, 8), at(215_999, 0)), (0, 1, 7));
    }

    /// Of 30 s, 11.25 s are the reservoir; the level at a request is at most 26 s.
    #[test]
    fn bba_scales_its_map_to_the_buffer() {
        let dash = dash(&[1000, 2000, 3000], 30);
        let at = |time, previous| bba(&dash, ms(time), Rung(previous)).0;
        assert_eq!((at(11_250, 2), at(11_251, 2), at(25_999, 1), at(26_000, 0)), (0, 1, 1, 2));
    }

    /// Qmax = 5, ln 4 + 5 = 6.386, V = 0.6263. The scores of 1 and 2 Mbit/s are equal at Q = V (10 - 5.693) = 2.697, 10.79 s;
    /// those of 2 and 4 Mbit/s at Q = V (2 · 5.693 - 6.386) = 3.132, 12.53 s.
    #[test]
    fn bola_changes_the_rate_where_the_scores_are_equal() {
        let dash = dash(&[1000, 2000, 4000], 20);
        let chosen = [0, 10_700, 10_900, 12_400, 12_600, 16_000].map(|level| bola(&dash, ms(level)).0);
        assert_eq!(chosen, [0, 0, 1, 1, 2, 2]);
    }

    /// Throughputs of 1 and 3 Mbit/s: their harmonic mean is 1.5 Mbit/s, of which 85 % are 1.275 Mbit/s.
    #[test]
    fn throughput_estimate_is_a_harmonic_mean() {
        let ladder = [1000, 1275, 1276].map(|kbps| Rate::from_bps(1000 * kbps));
        let mut throughput = Throughput::default();
        assert_eq!(throughput.choose(&ladder), Rung(0));
        throughput.add(375_000, ms(3000));
        throughput.add(375_000, ms(1000));
        assert_eq!(throughput.choose(&ladder), Rung(1));
        // Twenty more segments, and the first two are forgotten.
        (0..20).for_each(|_| throughput.add(375_000, ms(1000)));
        assert_eq!(throughput.choose(&ladder), Rung(2));
    }
}
