//! Video: frames at regular times, each split into packets.

use bentpipe_scenario::{DATAGRAM_HEADER, Frames};
use bentpipe_units::{Duration, Rng};

use crate::Step;

/// A source of video frames.
#[derive(Clone, Debug)]
pub struct Video {
    frames: Frames,
    /// Index of the next frame.
    next: usize,
    interval: Duration,
    /// Maximum part of a frame in a packet [bytes].
    payload: u64,
    spread: bool,
    /// Packets of the current frame, and how many of them have been sent.
    packets: u64,
    sent: u64,
    /// Rest of the current frame [bytes].
    left: u64,
    /// Time from the start of the current frame to the last step.
    since: Duration,
    /// True once the first frame has started.
    begun: bool,
}

impl Video {
    /// A source that starts at a random frame, or at the first. `packet` is the maximum length of a packet [bytes].
    #[must_use]
    pub fn new(
        frames: &Frames,
        interval: Duration,
        packet: u64,
        spread: bool,
        random_start: bool,
        rng: &mut Rng,
    ) -> Self {
        let count = match frames {
            Frames::Trace(movie) => movie.sizes.len(),
            Frames::Gop(gop) => gop.pattern.len(),
        };
        Self {
            frames: frames.clone(),
            next: if random_start { rng.below(count as u64) as usize } else { 0 },
            interval,
            payload: packet.saturating_sub(DATAGRAM_HEADER).max(1),
            spread,
            packets: 0,
            sent: 0,
            left: 0,
            since: Duration::ZERO,
            begun: false,
        }
    }

    /// Returns the next packet, or an empty frame.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        let before = self.since;
        if self.sent == self.packets {
            // Time to the next frame, from the last step of this one.
            let wait = if self.begun { self.interval.saturating_sub(before) } else { Duration::ZERO };
            self.begun = true;
            self.left = self.size(rng);
            (self.packets, self.sent, self.since) = (self.left.div_ceil(self.payload), 0, Duration::ZERO);
            if self.packets == 0 {
                return Step::silent(wait);
            }
            let len = self.cut();
            return Step { gap: wait, len };
        }
        if self.spread {
            self.since = self.interval.times(self.sent).part(self.packets);
        }
        let gap = self.since.saturating_sub(before);
        Step { gap, len: self.cut() }
    }

    /// Takes a packet from the current frame and returns its length, including headers [bytes].
    fn cut(&mut self) -> u32 {
        let carried = self.left.min(self.payload);
        self.left -= carried;
        self.sent += 1;
        (carried + DATAGRAM_HEADER) as u32
    }

    /// Draws or looks up the size of the next frame [bytes].
    fn size(&mut self, rng: &mut Rng) -> u64 {
        let frame = self.next;
        match &self.frames {
            Frames::Trace(movie) => {
                self.next = (frame + 1) % movie.sizes.len();
                u64::from(movie.sizes[frame])
            }
            Frames::Gop(gop) => {
                self.next = (frame + 1) % gop.pattern.len();
                match gop.pattern.as_bytes()[frame] {
                    b'I' => gop.i.draw(rng),
                    b'P' => gop.p.draw(rng),
                    _ => gop.b.draw(rng),
                }
            }
        }
    }
}
