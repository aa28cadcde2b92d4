//! Video: frames at regular times, each cut into packets.

use bentpipe_scenario::{DATAGRAM_HEADER, Frames};
use bentpipe_units::{Duration, Rng};

use crate::Step;

/// A source of frames.
#[derive(Clone, Debug)]
pub struct Video {
    frames: Frames,
    /// The next frame.
    next: usize,
    interval: Duration,
    /// What a packet carries of a frame at most [bytes].
    payload: u64,
    spread: bool,
    /// Packets of the current frame, and how many of them have been sent.
    packets: u64,
    sent: u64,
    /// What is left of it [bytes].
    left: u64,
    /// How long after the beginning of the current frame the last step was.
    since: Duration,
    /// Whether there was a frame yet.
    begun: bool,
}

impl Video {
    /// A source that begins at a frame that is drawn, or at the first. Packets are of at most `packet` bytes.
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

    /// The next packet, or a frame without any.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        let before = self.since;
        if self.sent == self.packets {
            // The time to the next frame, from the last step of this one.
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

    /// Cuts a packet off the current frame: its length, headers included [bytes].
    fn cut(&mut self) -> u32 {
        let carried = self.left.min(self.payload);
        self.left -= carried;
        self.sent += 1;
        (carried + DATAGRAM_HEADER) as u32
    }

    /// The size of the next frame [bytes].
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
