//! Records of flows.

use bentpipe_queue::FlowId;
use bentpipe_units::{Duration, Instant};

use crate::ids::{CallId, ClassId, Id as _, TerminalId, ViewingId};
use crate::memory::prefetch;

/// One flow from end to end.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Its traffic (an index of [`crate::Results::traffic`]).
    pub traffic: u32,
    /// Number of its session or source within the traffic.
    pub session: u32,
    /// Time at which it was opened.
    pub opened: Instant,
    /// Time at which its last byte arrived, or at which it failed; `None` if it is open.
    pub closed: Option<Instant>,
    /// True if all of it arrived.
    pub completed: bool,
    /// True if it was closed because its source left, as the scenario says.
    pub left: bool,
    /// True if its size is given.
    pub finite: bool,
    /// Payload delivered [bytes].
    pub delivered: u64,
    /// Payload delivered during the measurement [bytes].
    pub measured: u64,
    /// Its packets dropped or lost anywhere during the measurement.
    pub drops: u32,
    /// Its packets with data that arrived from end to end during the measurement, retransmissions included; 0 if a PEP
    /// splits it.
    pub received_packets: u32,
    /// Sums of their delays, and of the differences between successive delays [ns].
    delay_sum: u64,
    jitter_sum: u64,
    /// Delay of the last one [ns].
    last_delay: u64,
    /// Data units sent during the measurement and received by the application.
    pub received_units: u32,
    /// Data units sent during the measurement and lost for good.
    pub lost_units: u32,
    /// Delay of the last unit received [ns], and the jitter estimate (RFC 3550, section 6.4.1, J) [ns].
    last_unit_delay: u64,
    jitter: u64,
    /// True if its data pass the subject.
    pub(super) passes_subject: bool,
    /// Its class of traffic.
    pub(crate) class: ClassId,
    /// The call that it carries; `None` if it carries no voice.
    pub(crate) call: Option<CallId>,
    /// The viewing that it carries; `None` if it carries no adaptive video.
    pub(crate) viewing: Option<ViewingId>,
    /// The terminal behind which its data are received; `None` if its gateway has only one.
    pub(crate) terminal: Option<TerminalId>,
    /// The terminal behind which its data are sent; `None` if its gateway has only one.
    pub(crate) from_terminal: Option<TerminalId>,
}

impl Flow {
    /// Number of the terminal of its user among [`crate::Results::terminals`]: that which receives its data, else that which
    /// sends them; `None` if its gateway has only one.
    #[must_use]
    pub fn terminal(&self) -> Option<usize> {
        self.terminal.or(self.from_terminal).map(|id| id.index() as usize)
    }

    /// Time from opening to the last byte [s]; NaN if it was not completed.
    #[must_use]
    pub fn completion_time(&self) -> f64 {
        match self.closed {
            Some(closed) if self.completed => (closed - self.opened).as_secs_f64(),
            _ => f64::NAN,
        }
    }

    /// Mean one-way delay of its packets [s]; NaN without any.
    #[must_use]
    pub fn delay(&self) -> f64 {
        self.delay_sum as f64 * 1e-9 / f64::from(self.received_packets)
    }

    /// Mean difference between the delays of successive packets (RFC 3550, section 6.4.1, D; RFC 3393) [s]; NaN without
    /// two.
    #[must_use]
    pub fn jitter(&self) -> f64 {
        self.jitter_sum as f64 * 1e-9 / (f64::from(self.received_packets) - 1.0).max(0.0)
    }

    /// Goodput [bit/s] in a measurement from `begin` to `end`: of a finite flow, if it was completed in that time, over its
    /// completion time; of an endless flow, over the time that it was open. NaN otherwise.
    #[must_use]
    pub fn goodput(&self, begin: Instant, end: Instant) -> f64 {
        if !self.finite {
            let until = self.closed.unwrap_or(end);
            return self.measured as f64 * 8.0 / (until - self.opened.max(begin)).as_secs_f64();
        }
        if self.closed.is_none_or(|closed| closed < begin) {
            return f64::NAN;
        }
        self.delivered as f64 * 8.0 / self.completion_time()
    }
}

impl Flow {
    /// A unit is received after `delay`; returns the jitter estimate [ns].
    #[inline]
    pub(super) fn receive_unit(&mut self, delay: Duration) -> u64 {
        let delay = delay.as_nanos();
        if self.received_units > 0 {
            let difference = self.last_unit_delay.abs_diff(delay);
            self.jitter = self.jitter - self.jitter / 16 + difference / 16;
        }
        self.last_unit_delay = delay;
        self.received_units += 1;
        self.jitter
    }
}

/// The records of all flows; the number of a flow is its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    pub(super) all: Vec<Flow>,
}

impl Flows {
    pub(super) fn open(
        &mut self,
        now: Instant,
        traffic: u32,
        session: u32,
        class: ClassId,
        passes_subject: bool,
        finite: bool,
    ) -> FlowId {
        self.all.push(Flow {
            traffic,
            session,
            opened: now,
            closed: None,
            completed: false,
            left: false,
            finite,
            delivered: 0,
            measured: 0,
            drops: 0,
            received_packets: 0,
            delay_sum: 0,
            jitter_sum: 0,
            last_delay: 0,
            received_units: 0,
            lost_units: 0,
            last_unit_delay: 0,
            jitter: 0,
            passes_subject,
            class,
            call: None,
            viewing: None,
            terminal: None,
            from_terminal: None,
        });
        FlowId(self.all.len() as u32 - 1)
    }

    /// Fetches a flow into the cache.
    #[inline]
    pub(super) fn prefetch(&self, flow: FlowId) {
        if let Some(flow) = self.all.get(flow.0 as usize) {
            prefetch(flow);
        }
    }

    #[inline]
    pub(super) fn get(&mut self, flow: FlowId) -> &mut Flow {
        &mut self.all[flow.0 as usize]
    }

    #[inline]
    pub(super) fn received(&mut self, flow: FlowId, delay: Duration) {
        let (flow, delay) = (self.get(flow), delay.as_nanos());
        if flow.received_packets > 0 {
            flow.jitter_sum += flow.last_delay.abs_diff(delay);
        }
        flow.delay_sum += delay;
        flow.last_delay = delay;
        flow.received_packets += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Id;

    /// A run keeps a row for each connection, and its memory grows by nothing else (`make soak`).
    #[test]
    fn a_flow_takes_128_bytes() {
        assert_eq!(size_of::<Flow>(), 128);
    }

    /// Delays of 50, 66, 50 and 66 ms: D is 16 ms each time, so J is 1, 1 + 15/16 and 1.9375 + 14.0625/16 ms.
    #[test]
    fn jitter_estimate_follows_rfc_3550() {
        let mut flows = Flows::default();
        let flow = flows.open(Instant::ZERO, 0, 0, Id::new(0), true, false);
        let found = [50, 66, 50, 66].map(|ms| flows.get(flow).receive_unit(Duration::from_millis(ms)));
        assert_eq!(found, [0, 1_000_000, 1_937_500, 2_816_407]);
    }
}
