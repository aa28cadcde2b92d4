//! PFAVQRED, proportionally fair AVQRED: weights AVQRED's marks by the square of a connection's share of the link.
//!
//! [B07] 5.2. The virtual queue, its measured capacity `v_cap` and the marking decision are AVQRED's; the probability
//! `p_a` is multiplied by a weight of the packet's flow:
//!
//! ```text
//! w_f = min(cap, (r_f / r_fair)^2)   r_fair = v_cap / open flows
//! p   = min(1, w_f p_a)              min(1, w_f) from max_th on
//! ```
//!
//! and `w_f = 0` for a connection younger than 100 ms. So a flow at half its fair share is marked a quarter as often as
//! one at its share, and even a full virtual queue does not starve it.
//!
//! *Departures:* the printed equation of the weight is lost; it is certain that the weight is squared in the flow's
//! share, is 0 for young connections and multiplies `p_a`; the rest is our choice. `rate = "window"`: `r_f` is the
//! number of bytes that arrived of the flow, dropped or not, within the last `window`, divided by that time or by the
//! flow's age, whichever is shorter. The window is counted in three steps, and of the oldest step the share inside the
//! window counts. `rate = "lifetime"`: `r_f` is the number of bytes accepted since the flow opened, divided by its age,
//! which needs no window. Open flows are those announced and not yet closed; unannounced flows, as over UDP, open
//! with their first packet and count for `window` after their last, or up to a third of it longer. `share = "arrivals"`:
//! `r_fair` is the rate of all arrivals within the window over the open flows, instead of `v_cap` over them; so marks do
//! not grow with the overload. `cap` limits the weight; by default it does not.
//!
//! Which of them the dissertation used is not known; [a map](../reproduction/pfavqred.md) compares them with its chapter
//! 5.
//!
//! *In a satellite gateway:* the choice if connections should have equal shares and the gateway knows them, as one that
//! splits TCP does. It stands ahead of the PEP like AVQRED, drops almost 40 % more packets on the 2007 gateway for its
//! fairness, and needs 64 to 128 bytes of memory per flow. For the 503 flows of [B07] 5.3 that is 32 KiB in all,
//! where the dissertation expects "a few extra kilo-bytes"; one connection's PEP buffer is larger. A user with many
//! connections gets as many shares, unless a flow is a user.

use std::any::Any;

use bentpipe_units::{Duration, Instant};

use super::active::{Active, Step};
use super::avqred::{self, VirtualQueue};
use super::uniform_dropper::{self, UniformDropper};
use crate::FlowTable;
use crate::descriptor::{Algorithm, Placement, Preset};
use crate::{
    Aqm, Context, FlowEvent, FlowId, Packet, Param, ParamError, Range, Tune, Unit, Value, Values, Verdict,
};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "pfavqred",
    title: "Proportionally fair AVQRED",
    source: "[B07] 5.2",
    params: PARAMS,
    presets: PRESETS,
    placement: Placement::Anywhere,
    build: |values| Ok(Box::new(PfAvqRed::new(values)?)),
    fluid: None,
};

/// Connections younger than this are not marked.
const YOUNG: Duration = Duration::from_millis(100);
/// Number of steps of the window.
const STEPS: u32 = 3;
/// Steps kept per flow: those of the window, and the one that it cuts.
const PLACES: usize = 4;

const PARAMS: &[Param] = &[
    uniform_dropper::MIN_TH,
    uniform_dropper::MAX_TH,
    avqred::ALPHA,
    avqred::MIN_CAPACITY,
    avqred::MAX_CAPACITY,
    avqred::MEAN_PACKET,
    Param::name(
        "rate",
        &["window", "lifetime"],
        "window",
        "Rate of a flow: arrivals within `window`, or accepted bytes since it opened",
    )
    .symbol("r_f")
    .origin(
        "a choice, because the printed equation is lost: of the two it is closer to [B07] Table 5.1's drops over AVQRED's; \
         lifetime is nearer to PFAVQRED's own drops and to Table 5.2",
    )
    .tune(Tune::Each),
    Param::name(
        "share",
        &["capacity", "arrivals"],
        "capacity",
        "Rate that open flows share evenly: the virtual capacity, or that of all arrivals within `window`",
    )
    .origin("a choice, because the printed equation is lost")
    .tune(Tune::Each),
    Param::number("window", Unit::Seconds, 3.0, Range::between(0.01, 600.0))
        .doc("Time for which arrivals are remembered and unannounced flows stay open")
        .origin("a choice, because the printed equation is lost")
        .tune(Tune::Log(0.3, 30.0)),
    Param::number("cap", Unit::One, NO_CAP, Range::above(0.0, NO_CAP))
        .doc("Largest weight of a flow; the default is above all weights that occur")
        .symbol("cap")
        .origin("a choice, because the printed equation is lost: no limit"),
];

/// Weight of a flow that takes the whole link among 10^6 open flows.
const NO_CAP: f64 = 1e12;

const PRESETS: &[Preset] = &[Preset {
    name: "PFAVQRED",
    source: "[B07] Table 3.1",
    values: &[
        ("min_th", Value::Number(60.0)),
        ("max_th", Value::Number(120.0)),
        ("min_capacity", Value::Number(20e6)),
        ("max_capacity", Value::Number(20e6)),
    ],
    marking: None,
}];

/// PFAVQRED's state.
#[derive(Debug)]
pub struct PfAvqRed {
    queue: VirtualQueue,
    dropper: UniformDropper,
    lifetime: bool,
    /// True if open flows share the rate of the arrivals.
    of_arrivals: bool,
    window: Duration,
    cap: f64,
    /// Arrivals of all flows, if their rate is shared.
    total: Total,
    flows: FlowTable<Flow>,
    /// Number of announced flows.
    announced: u32,
    /// Unannounced flows.
    unannounced: Active,
    /// w_f at the last arrival; 0 below `min_th` and for young flows.
    weight: f64,
}

/// Packed, because a table of a hundred thousand exceeds the caches.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Flow {
    /// Bytes that arrived in each of the last steps; with `lifetime`, bytes accepted since it opened, in two halves.
    bytes: [u32; PLACES],
    /// Time when it opened [ns], doubled, plus one if it was announced.
    born: u64,
    /// Step of its last packet.
    step: Step,
}

const _: () = assert!(size_of::<Option<(FlowId, Flow)>>() == 32);

impl Flow {
    fn new(step: Step, announced: bool, opened: Instant) -> Self {
        let born = (opened - Instant::ZERO).as_nanos() << 1 | u64::from(announced);
        Self { bytes: [0; PLACES], born, step }
    }

    #[inline]
    fn announced(&self) -> bool {
        self.born & 1 == 1
    }

    #[inline]
    fn opened(&self) -> Instant {
        Instant::from_nanos(self.born >> 1)
    }

    /// Adds an arrival in a step that is not earlier than the last.
    #[inline]
    fn arrive(&mut self, len: u32, step: Step) {
        let mut bytes = self.bytes;
        if step != self.step {
            for i in 0..step.since(self.step).min(PLACES as u32) as usize {
                bytes[(step.place(PLACES) + PLACES - i) % PLACES] = 0;
            }
            self.step = step;
        }
        let last = &mut bytes[step.place(PLACES)];
        *last = last.saturating_add(len);
        self.bytes = bytes;
    }

    /// Returns the bytes that arrived within the window. The share `elapsed` of the current step is over, and so much
    /// of the oldest step is outside.
    #[inline]
    fn within(&self, elapsed: f64) -> f64 {
        let (bytes, cut) = (self.bytes, self.cut());
        let all: u64 = bytes.iter().map(|&x| u64::from(x)).sum();
        all as f64 - elapsed * f64::from(bytes[cut])
    }

    /// Index of the step that the window cuts.
    #[inline]
    fn cut(&self) -> usize {
        (self.step.place(PLACES) + 1) % PLACES
    }

    #[inline]
    fn accept(&mut self, len: u32) {
        let sum = self.accepted() + u64::from(len);
        self.bytes = [sum as u32, (sum >> 32) as u32, 0, 0];
    }

    /// Returns the bytes accepted since it opened.
    #[inline]
    fn accepted(&self) -> u64 {
        let bytes = self.bytes;
        u64::from(bytes[0]) | u64::from(bytes[1]) << 32
    }
}

/// Arrivals of all flows within the window.
#[derive(Debug)]
struct Total {
    /// Bytes that arrived in each of the last steps.
    bytes: [u64; PLACES],
    /// Step of the last packet.
    step: Step,
    /// Time of the first packet.
    since: Option<Instant>,
}

impl Total {
    /// Adds an arrival in a step that is not earlier than the last.
    fn arrive(&mut self, len: u32, step: Step, now: Instant) {
        self.since.get_or_insert(now);
        for i in 0..step.since(self.step).min(PLACES as u32) as usize {
            self.bytes[(step.place(PLACES) + PLACES - i) % PLACES] = 0;
        }
        self.step = step;
        self.bytes[step.place(PLACES)] += u64::from(len);
    }

    /// Returns the rate of the arrivals within the window [bytes/s], of whose current step the share `elapsed` is over.
    fn rate(&self, window: Duration, elapsed: f64, now: Instant) -> f64 {
        let cut = self.bytes[(self.step.place(PLACES) + 1) % PLACES];
        let within = self.bytes.iter().sum::<u64>() as f64 - elapsed * cut as f64;
        let age = now - self.since.unwrap_or(now);
        within / age.min(window).as_secs_f64()
    }
}

impl PfAvqRed {
    /// # Errors
    /// Unless `min_th < max_th` and `min_capacity <= max_capacity`.
    pub fn new(v: &Values) -> Result<Self, ParamError> {
        v.in_order("min_th", "max_th")?;
        let window = Duration::from_secs_f64(v.number("window"));
        let mut unannounced = Active::new(window, STEPS);
        let step = unannounced.at(Instant::ZERO);
        Ok(Self {
            queue: VirtualQueue::new(v)?,
            dropper: UniformDropper::new(v.number("min_th"), v.number("max_th"), 1.0),
            lifetime: v.name("rate") == "lifetime",
            of_arrivals: v.name("share") == "arrivals",
            window,
            cap: v.number("cap"),
            total: Total { bytes: [0; PLACES], step, since: None },
            flows: FlowTable::default(),
            announced: 0,
            unannounced,
            weight: 0.0,
        })
    }

    fn open(&self) -> u32 {
        self.announced + self.unannounced.active()
    }
}

impl Aqm for PfAvqRed {
    fn arrive(&mut self, pkt: &Packet, cx: &mut Context<'_>) -> Verdict {
        self.queue.serve(cx);
        let step = self.unannounced.at(cx.now);
        let unannounced = &mut self.unannounced;
        // The announced stay until they end.
        if self.flows.len() > self.announced as usize {
            // Two slots per packet: the whole table is visited within as many packets as it has flows, or a few times that.
            self.flows.sweep(2, |_, flow| flow.announced() || unannounced.counts(flow.step));
        }
        let mut fresh = false;
        let flow = self.flows.get_or_insert_with(pkt.flow, || {
            fresh = true;
            Flow::new(step, false, cx.now)
        });
        if fresh {
            unannounced.note(None);
        } else if !flow.announced() {
            unannounced.note(Some(flow.step));
            if !unannounced.counts(flow.step) {
                *flow = Flow::new(step, false, cx.now);
            }
        }
        if self.lifetime {
            flow.step = step;
        } else {
            flow.arrive(pkt.len, step);
        }
        if self.of_arrivals {
            self.total.arrive(pkt.len, step, cx.now);
        }
        let x = self.queue.packets();
        let age = cx.now - flow.opened();
        let weight = if x < self.dropper.min_th || age < YOUNG {
            0.0
        } else {
            let elapsed = unannounced.elapsed(cx.now);
            // Its rate is bytes / time.
            let (bytes, time) = if self.lifetime {
                (flow.accepted() as f64, age)
            } else {
                (flow.within(elapsed), age.min(self.window))
            };
            let shared = if self.of_arrivals {
                self.total.rate(self.window, elapsed, cx.now)
            } else {
                self.queue.v_cap
            };
            let flows = f64::from(self.announced + unannounced.active());
            // The rate over the fair rate, which is shared / flows, with one division.
            let excess = bytes * flows / (time.as_secs_f64() * shared);
            (excess * excess).min(self.cap)
        };
        self.weight = weight;
        if self.dropper.draw_weighted(x, 1.0, weight, cx.rng) { Verdict::Mark } else { Verdict::Pass }
    }

    fn admit(&mut self, pkt: &Packet, _cx: &mut Context<'_>) {
        self.queue.add(pkt.len);
        if self.lifetime
            && let Some(flow) = self.flows.get_mut(pkt.flow)
        {
            flow.accept(pkt.len);
        }
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, cx: &mut Context<'_>) {
        let step = self.unannounced.at(cx.now);
        match self.flows.remove(flow) {
            Some(known) if known.announced() => self.announced -= 1,
            Some(known) => self.unannounced.forget(known.step),
            None => {}
        }
        if event == FlowEvent::Opened {
            self.announced += 1;
            self.flows.get_or_insert_with(flow, || Flow::new(step, true, cx.now));
        }
    }

    fn resume(&mut self, previous: &mut dyn Any) -> bool {
        let Some(was) = previous.downcast_mut::<Self>() else { return false };
        self.weight = was.weight;
        self.queue.resume(&was.queue);
        self.dropper.resume(&was.dropper);
        // Bytes of flows are counted in steps of the window.
        if self.lifetime == was.lifetime && self.unannounced.has_steps_of(&was.unannounced) {
            self.announced = was.announced;
            std::mem::swap(&mut self.total, &mut was.total);
            std::mem::swap(&mut self.flows, &mut was.flows);
            std::mem::swap(&mut self.unannounced, &mut was.unannounced);
        }
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("VQ", self.queue.packets());
        out("v_cap", 8.0 * self.queue.v_cap);
        out("p", self.dropper.probability());
        out("weight", self.weight);
        out("open", f64::from(self.open()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bentpipe_units::Rng;

    use super::super::steps::Steps;
    use super::*;

    const WINDOW: Duration = Duration::from_secs(3);

    fn pfavqred(rate: &'static str, min_th: f64, max_th: f64) -> Steps {
        changed(rate, (min_th, max_th), &[])
    }

    fn changed(rate: &'static str, (min_th, max_th): (f64, f64), values: &[(&'static str, Value)]) -> Steps {
        let given = [
            ("min_th", Value::Number(min_th)),
            ("max_th", Value::Number(max_th)),
            ("rate", Value::Name(rate)),
        ];
        Steps::new(&ALGORITHM, &[&given, values].concat())
    }

    /// Two flows open at 0; flow 1 sends 1000 bytes every millisecond, flow 2 3000. After a second the window of 600 ms
    /// holds 600,000 and 1,800,000 bytes. A third flow, too young to be marked, fills the virtual queue above `min_th`.
    /// Each of three flows has a share of 333,333 bytes/s of the capacity, so the weights are 3² and 9²; of the
    /// arrivals, 4,005,000 bytes/s, they are 0.75² and 2.25², and `cap` limits the larger.
    #[test]
    fn share_window_and_cap_determine_the_weight() {
        for (share, cap, expected) in [
            ("capacity", NO_CAP, [9.0, 81.0]),
            ("arrivals", NO_CAP, [0.5625, 5.0625]),
            ("arrivals", 2.0, [0.5625, 2.0]),
        ] {
            let values =
                [("share", Value::Name(share)), ("window", Value::Number(0.6)), ("cap", Value::Number(cap))];
            let mut pf = changed("window", (1.0, 2.0), &values);
            for flow in [1, 2] {
                pf.flow(0, flow, FlowEvent::Opened);
            }
            for us in (0..1_000_000).step_by(1000) {
                pf.arrive_of(us, 1000, 1);
                pf.arrive_of(us, 3000, 2);
            }
            pf.flow(1_000_000, 3, FlowEvent::Opened);
            for _ in 0..3 {
                pf.arrive_of(1_000_000, 1000, 3);
            }
            for (flow, weight) in [1, 2].into_iter().zip(expected) {
                pf.decide(1_000_000, 0, flow);
                let found = pf.probe("weight");
                assert!((found / weight - 1.0).abs() < 0.01, "{share}, flow {flow}: {found}");
            }
        }
    }

    /// Worked out by hand: v_cap is one byte per microsecond, packets have 1000 bytes, thresholds 2 and 4. Flow 1 opens
    /// at 0, flow 2 at 150 ms. Columns: time [us], flow, weight and p.
    #[test]
    fn arrivals_follow_the_equations() {
        let mut pf = pfavqred("window", 2.0, 4.0);
        pf.flow(0, 1, FlowEvent::Opened);
        pf.flow(150_000, 2, FlowEvent::Opened);
        assert_eq!((pf.probe("open"), pf.probe("v_cap")), (2.0, 8e6));
        for (us, flow, weight, p) in [
            // 200 ms after it opened: the virtual queue is below min_th, so there is no decision.
            (200_000, 1, 0.0, 0.0),
            (200_000, 1, 0.0, 0.0),
            // VQ = 2: p_b = 0. Three packets in 200 ms: 15 000 bytes/s of 500 000: w = 0.03^2.
            (200_000, 1, 0.0009, 0.0),
            // VQ = 3: p_b = 1/2, count 1: p_a = 1/2 / (1 - 1/2) = 1; w = 0.04^2.
            (200_000, 1, 0.0016, 0.0016),
            // VQ = 4, unless the last one was marked: flow 2 is 50 ms old.
            (200_000, 2, 0.0, 0.0),
        ] {
            pf.arrive_of(us, 1000, flow);
            assert!((pf.probe("weight") - weight).abs() < 1e-12, "w is {}", pf.probe("weight"));
            assert!((pf.probe("p") - p).abs() < 1e-12, "p is {}", pf.probe("p"));
        }
    }

    /// From `max_th` on a flow at twice its share is always marked, one at half of it in a quarter of all cases.
    #[test]
    fn full_virtual_queue_does_not_starve_a_light_flow() {
        let mut pf = pfavqred("lifetime", 1.0, 2.0);
        for flow in 0..4 {
            pf.flow(0, flow, FlowEvent::Opened);
        }
        // In 1 s the share of each is 250,000 bytes. Flow 0 sends 500 kB, flow 1 125 kB; the virtual queue, served at
        // one byte per microsecond, stays below min_th.
        for i in 0..1000 {
            pf.arrive_of(i * 1000, 500, 0);
            pf.arrive_of(i * 1000 + 500, 125, 1);
        }
        // Without admission VQ stays above max_th.
        for _ in 0..3 {
            pf.arrive_of(1_000_000, 1000, 3);
        }
        let marks = |pf: &mut Steps, flow| {
            (0..4000).filter(|_| pf.decide(1_000_000, 1, flow) == Verdict::Mark).count()
        };
        assert_eq!(marks(&mut pf, 0), 4000);
        assert!((pf.probe("weight") - 4.0).abs() < 0.02, "{}", pf.probe("weight"));
        let light = marks(&mut pf, 1);
        assert!((pf.probe("weight") - 0.25).abs() < 0.01, "{}", pf.probe("weight"));
        // Five standard errors.
        assert!((863..=1137).contains(&light), "{light}");
    }

    /// [B07] 5.2: the weight is 0 for a connection that started less than 100 ms ago. Flow 1 opens at 0. A flow that is
    /// too young fills the virtual queue; both share one byte per microsecond. After exactly 100 ms flow 1 has two packets of
    /// 1000 bytes, 20,000 bytes/s, 0.04 of its share of 500,000.
    #[test]
    fn flow_is_young_for_less_than_100_ms() {
        let mut pf = pfavqred("window", 1.0, 2.0);
        pf.flow(0, 1, FlowEvent::Opened);
        pf.flow(99_000, 2, FlowEvent::Opened);
        for _ in 0..3 {
            pf.arrive_of(99_999, 1000, 2);
        }
        for (us, weight) in [(99_999, 0.0), (100_000, 0.0016)] {
            pf.decide(us, 1000, 1);
            assert!((pf.probe("weight") - weight).abs() < 1e-12, "{} at {us} us", pf.probe("weight"));
        }
    }

    /// Flow 1 sends 100,000 bytes in its first 100 ms, while it is too young to be marked: after 2 s its rate is 50,000
    /// bytes/s, a tenth of its share of 500,000, and after 4 s a twentieth.
    #[test]
    fn lifetime_rate_falls_with_age() {
        for (us, weight) in [(2_000_000, 0.01), (4_000_000, 0.0025)] {
            let mut pf = pfavqred("lifetime", 1.0, 2.0);
            pf.flow(0, 1, FlowEvent::Opened);
            for i in 0..100 {
                assert_eq!(pf.arrive_of(i * 990, 1000, 1), Verdict::Pass);
            }
            pf.flow(us, 2, FlowEvent::Opened);
            for _ in 0..3 {
                pf.arrive_of(us, 1000, 2);
            }
            pf.decide(us, 1000, 1);
            assert!((pf.probe("weight") - weight).abs() < 1e-12, "{} at {us} us", pf.probe("weight"));
        }
    }

    /// Bytes of flows are counted in steps of the window, or since they opened: other parameters than `window` and `rate`
    /// may change without a loss of the flows. The virtual queue remains in any case.
    #[test]
    fn flows_are_forgotten_if_their_bytes_are_counted_otherwise() {
        let of = |rate, window, cap| {
            [("rate", Value::Name(rate)), ("window", Value::Number(window)), ("cap", Value::Number(cap))]
        };
        for (given, open) in [
            (of("window", 3.0, 2.0), 2.0),
            (of("lifetime", 3.0, NO_CAP), 0.0),
            (of("window", 6.0, NO_CAP), 0.0),
            (of("lifetime", 6.0, NO_CAP), 0.0),
        ] {
            let mut pf = Steps::new(&ALGORITHM, &of("window", 3.0, NO_CAP));
            pf.flow(0, 1, FlowEvent::Opened);
            pf.arrive_of(1000, 1000, 2);
            assert!(pf.replace(Steps::build(&ALGORITHM, &given)));
            assert_eq!((pf.probe("open"), pf.probe("VQ")), (open, 1.0), "{given:?}");
        }
    }

    /// The window in steps compared with the exact sum over the last 3 s, for a flow with bursts of up to four packets
    /// at random times and pauses of up to six steps: the error never exceeds the content of the step that is cut, and is
    /// below 3 % on average. The rate of all arrivals, those of this flow, is that sum over the window.
    #[test]
    fn window_in_steps_is_close_to_the_exact_one() {
        let mut rng = Rng::stream(1, "window", 0, "test");
        let mut active = Active::new(WINDOW, STEPS);
        let (mut flow, mut active) = (Flow::new(active.at(Instant::ZERO), true, Instant::ZERO), active);
        let mut total = Total { bytes: [0; PLACES], step: active.at(Instant::ZERO), since: None };
        let (mut exact, mut now, mut sum, mut error) = (VecDeque::new(), Instant::ZERO, 0.0, 0.0);
        for _ in 0..20_000 {
            let pause = if rng.below(300) == 0 { rng.below(6000) } else { 0 };
            now += Duration::from_secs_f64(rng.exponential(0.05)) + Duration::from_millis(pause);
            let len = 1400 * (1 + rng.below(4) as u32);
            let step = active.at(now);
            flow.arrive(len, step);
            total.arrive(len, step, now);
            exact.push_back((now, len));
            while exact.front().is_some_and(|(at, _)| now - *at > WINDOW) {
                exact.pop_front();
            }
            let truth: f64 = exact.iter().map(|(_, len)| f64::from(*len)).sum();
            let off = (flow.within(active.elapsed(now)) - truth).abs();
            let cut = flow.bytes[flow.cut()];
            assert!(off <= f64::from(cut), "{off} is more than {cut}");
            (sum, error) = (sum + truth, error + off);
            if now >= Instant::ZERO + WINDOW + WINDOW {
                let rate = total.rate(WINDOW, active.elapsed(now), now);
                let own = flow.within(active.elapsed(now));
                assert!((rate * WINDOW.as_secs_f64() - own).abs() < 1e-6, "{rate} is not {own} in 3 s");
            }
        }
        assert!(error / sum < 0.03, "{}", error / sum);
    }

    /// Announced flows are open until they close; unannounced ones until 3 to 4 s after their last packet.
    #[test]
    fn announced_and_unannounced_flows_are_counted() {
        let mut pf = pfavqred("window", 2.0, 4.0);
        let open = |pf: &mut Steps, us| {
            pf.arrive_of(us, 0, 100);
            pf.probe("open") - 1.0
        };
        assert_eq!(open(&mut pf, 0), 0.0);
        pf.flow(10, 1, FlowEvent::Opened);
        pf.flow(10, 2, FlowEvent::Opened);
        pf.arrive_of(20, 1000, 3);
        assert_eq!(open(&mut pf, 30), 3.0);
        // Opened again without having been closed: still one flow. The unannounced one is announced now.
        pf.flow(40, 2, FlowEvent::Opened);
        pf.flow(40, 3, FlowEvent::Opened);
        assert_eq!(open(&mut pf, 50), 3.0);
        pf.flow(60, 3, FlowEvent::Closed);
        pf.flow(60, 4, FlowEvent::Closed);
        assert_eq!(open(&mut pf, 70), 2.0);
        pf.arrive_of(80, 1000, u32::MAX);
        assert_eq!(open(&mut pf, 2_900_000), 3.0);
        assert_eq!(open(&mut pf, 4_050_000), 2.0);
        // A reused number is a young flow, whose past share is not known.
        pf.arrive_of(4_100_000, 1000, u32::MAX);
        pf.flow(4_100_000, 1, FlowEvent::Closed);
        pf.flow(4_100_000, 2, FlowEvent::Closed);
        assert_eq!(open(&mut pf, 4_100_000), 1.0);
    }

    /// Two flows that send at 0.4 and at 1.6 of the capacity, 0.8 and 3.2 of their shares, are marked in the ratio of
    /// about the squares, 16; announced or not.
    #[test]
    fn marks_follow_the_square_of_the_share() {
        for announced in [true, false] {
            let mut pf = pfavqred("window", 10.0, 100_000.0);
            if announced {
                pf.flow(0, 0, FlowEvent::Opened);
                pf.flow(0, 1, FlowEvent::Opened);
            }
            let mut rng = Rng::stream(1, "square", 0, "test");
            let (mut came, mut marked) = ([0.0; 2], [0.0; 2]);
            let mut us = 0;
            while us < 200_000_000 {
                us += rng.exponential(500.0) as u64;
                let flow = u32::from(rng.uniform() < 0.8);
                came[flow as usize] += 1.0;
                marked[flow as usize] += f64::from(u32::from(pf.arrive_of(us, 1000, flow) == Verdict::Mark));
            }
            let ratio = (marked[1] / came[1]) / (marked[0] / came[0]);
            assert!((13.0..=19.0).contains(&ratio), "announced {announced}: {ratio}");
        }
    }

    /// A single flow that sends 100,000 bytes/s, a tenth of the link, for 10 s: 300,000 bytes in the last 3 s, w =
    /// 1/100.
    #[test]
    fn only_the_last_three_seconds_count() {
        let mut pf = pfavqred("window", 0.0, 1e6);
        pf.flow(0, 1, FlowEvent::Opened);
        for ms in (0..10_000).step_by(10) {
            pf.arrive_of(1000 * ms, 1000, 1);
        }
        assert!((pf.probe("weight") - 0.01).abs() < 0.000_2, "{}", pf.probe("weight"));
    }

    /// The accepted bytes of a flow are counted beyond 4 GB.
    #[test]
    fn lifetime_counts_beyond_32_bits() {
        let mut unannounced = Active::new(WINDOW, STEPS);
        let mut flow = Flow::new(unannounced.at(Instant::ZERO), true, Instant::ZERO);
        for _ in 0..3 {
            flow.accept(u32::MAX);
        }
        assert_eq!(flow.accepted(), 3 * u64::from(u32::MAX));
    }
}
