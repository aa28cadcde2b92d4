//! Frame sizes of video in the format of Arizona State University's public library (P. Seeling, M. Reisslein: Video Transport
//! Evaluation With H.264 Video Traces, IEEE Communications Surveys and Tutorials 14(4), 2012): terse, one size per line, or
//! verbose, with index, type, time and size of a frame, and possibly more.

use bentpipe_units::Duration;

use crate::error::quoted;
use crate::reader::files::Data;

/// Name of such a file in messages.
pub const TRACE: &str =
    "a trace of frame sizes, terse (one in each line) or verbose (index, type, time and size)";

/// Maximum frame size [bytes].
const LARGEST: u32 = 1 << 24;

/// Frames of a file.
#[derive(Debug, PartialEq)]
pub struct Trace {
    /// Frame sizes; at least one is positive [bytes].
    pub sizes: Vec<u32>,
    /// Time between two frames; `None` if the file does not give it.
    pub interval: Option<Duration>,
}

/// Reads a trace of frame sizes.
///
/// # Errors
/// The first line that does not match the format of the lines before it.
pub fn read(data: &Data) -> Result<Trace, String> {
    let mut sizes = Vec::new();
    let mut times: Option<(f64, f64)> = None;
    let mut verbose = None;
    for line in data.lines() {
        let (number, text) = line?;
        let columns: Vec<_> =
            text.split(|c: char| c.is_whitespace() || c == ',').filter(|c| !c.is_empty()).collect();
        // Some files start with the names of the columns.
        if sizes.is_empty() && columns.first().is_some_and(|c| c.to_lowercase().starts_with("frame")) {
            continue;
        }
        let wrong = |found: &str, allowed: &str| data.at_line(number, found, allowed);
        let size = if *verbose.get_or_insert(columns.len() > 1) {
            let [index, kind, time, size, ..] = columns[..] else {
                let found = format!("{} of the columns", columns.len());
                return Err(wrong(&found, "index, type, time and size, and possibly more"));
            };
            if index.parse::<u64>().is_err() {
                return Err(wrong(&quoted(index), "a frame's index, a whole number"));
            }
            if !kind.chars().all(char::is_alphabetic) {
                return Err(wrong(&quoted(kind), "a frame's type, as I, P or B"));
            }
            let time = time.parse::<f64>().ok().filter(|t| t.is_finite() && *t >= 0.0);
            let time = time.ok_or_else(|| wrong(&quoted(columns[2]), "a frame's time, not negative"))?;
            let (first, last) = times.unwrap_or((time, time));
            times = Some((first.min(time), last.max(time)));
            size
        } else if columns.len() == 1 {
            columns[0]
        } else {
            return Err(wrong(&format!("{} columns", columns.len()), "one size, as in the lines before"));
        };
        let allowed = format!("a frame's size in bytes, a whole number of at most {LARGEST}");
        let size = size
            .parse()
            .ok()
            .filter(|size| *size <= LARGEST)
            .ok_or_else(|| wrong(&quoted(size), &allowed))?;
        sizes.push(size);
    }
    if sizes.iter().all(|size| *size == 0) {
        let found = if sizes.is_empty() { "no frame" } else { "empty frames alone" };
        return Err(data.whole(found, TRACE));
    }
    let interval = times.and_then(|(first, last)| spacing(last - first, sizes.len()));
    Ok(Trace { sizes, interval })
}

/// Returns the frame interval from the span of the times of `frames` frames. Frame intervals are below one second:
/// larger ones are in milliseconds, others in seconds.
fn spacing(length: f64, frames: usize) -> Option<Duration> {
    let each = length / (frames as f64 - 1.0);
    let seconds = if each >= 1.0 { each / 1e3 } else { each };
    Some(Duration::from_secs_f64(seconds)).filter(|interval| !interval.is_zero() && seconds.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Digest;

    fn trace(text: &str) -> Result<Trace, String> {
        let bytes = text.as_bytes().to_vec();
        read(&Data { name: "v.dat".to_owned(), digest: Digest::of(&bytes), bytes })
    }

    #[test]
    fn terse_traces_have_one_size_per_line() {
        let expected = Trace { sizes: vec![534, 0, 1542], interval: None };
        assert_eq!(trace("# Star Wars\n534\n0\n1542\n"), Ok(expected));
    }

    /// Frames are in coding order, so that times are not monotonic: 0 to 160 ms in steps of 40 ms.
    #[test]
    fn verbose_traces_give_the_frame_interval() {
        let text = "Frame No.\tFrametype\tTime[ms]\tLength [byte]\n1\tI\t0\t534\n2\tP\t120\t1542\n3\tB\t40\t134\n4\tB\t80\t390\n\
                    5\tP\t160\t20\n";
        let expected =
            Trace { sizes: vec![534, 1542, 134, 390, 20], interval: Some(Duration::from_millis(40)) };
        assert_eq!(trace(text), Ok(expected));
        let seconds = "0 I 0.0 10 38.5\n1 B 0.04 20 37.1\n2 B 0.08 30 37.0\n";
        let expected = Trace { sizes: vec![10, 20, 30], interval: Some(Duration::from_millis(40)) };
        assert_eq!(trace(seconds), Ok(expected));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            (
                "12\n-5\n",
                "v.dat:2: found \"-5\"; allowed: a frame's size in bytes, a whole number of at most 16777216",
            ),
            (
                "1 I 0 99999999\n",
                "v.dat:1: found \"99999999\"; allowed: a frame's size in bytes, a whole number of at most 16777216",
            ),
            (
                "1 I 0 12\n2 P 40\n",
                "v.dat:2: found 3 of the columns; allowed: index, type, time and size, and possibly more",
            ),
            ("1 I 0 12\n2 7 40 12\n", "v.dat:2: found \"7\"; allowed: a frame's type, as I, P or B"),
            ("1 I now 12\n", "v.dat:1: found \"now\"; allowed: a frame's time, not negative"),
            ("one I 0 12\n", "v.dat:1: found \"one\"; allowed: a frame's index, a whole number"),
            ("12\n1 I 0 12\n", "v.dat:2: found 4 columns; allowed: one size, as in the lines before"),
        ] {
            assert_eq!(trace(text).unwrap_err(), expected);
        }
        assert_eq!(trace("# none\n").unwrap_err(), format!("v.dat: found no frame; allowed: {TRACE}"));
        assert_eq!(
            trace("0\n0\n").unwrap_err(),
            format!("v.dat: found empty frames alone; allowed: {TRACE}")
        );
    }
}
