//! The packets of a capture, once, at their times.

use std::sync::Arc;

use bentpipe_scenario::Capture;
use bentpipe_units::Duration;

use crate::Step;

/// A source that replays a capture.
#[derive(Clone, Debug)]
pub struct Replay {
    packets: Arc<[(Duration, u32)]>,
    next: usize,
    last: Duration,
}

impl Replay {
    /// A source at the first packet.
    #[must_use]
    pub fn new(capture: &Capture) -> Self {
        Self { packets: capture.packets.clone(), next: 0, last: Duration::ZERO }
    }

    /// Returns the next packet; `None` at the end.
    pub fn next(&mut self) -> Option<Step> {
        let &(time, len) = self.packets.get(self.next)?;
        self.next += 1;
        let gap = time.saturating_sub(std::mem::replace(&mut self.last, time));
        Some(Step { gap, len })
    }
}
