//! Algorithms written in Python: what the simulator calls, and what their methods are handed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_queue as queue;
use bentpipe_queue::{Aqm, Ecn, FlowEvent, FlowId, Limit};
use bentpipe_sim::Progress;
use bentpipe_units::{Duration, Instant};
use pyo3::PyErr;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::AlgorithmError;

// ----- what the methods are handed ---------------------------------------------------------------------------

/// What an algorithm says of a packet.
#[pyclass(frozen, eq, module = "bentpipe")]
#[derive(Clone, Copy, PartialEq)]
pub struct Verdict(Say);

#[derive(Clone, Copy, PartialEq)]
enum Say {
    Pass,
    Mark,
    Drop,
    /// With the waiting packet that was shown in the call of that number.
    DropBoth(queue::QueueSlot, u64),
    Hold(Duration),
}

const VERDICTS: &str =
    "Verdict.PASS, Verdict.MARK, Verdict.DROP, Verdict.hold(seconds) or Verdict.drop_both(spot)";

#[pymethods]
impl Verdict {
    /// Nothing to signal.
    #[classattr]
    const PASS: Self = Self(Say::Pass);
    /// Signal congestion, in the way of the marking method.
    #[classattr]
    const MARK: Self = Self(Say::Mark);
    /// Discard, whatever the marking method.
    #[classattr]
    const DROP: Self = Self(Say::Drop);

    /// Keep it out of the queue for so long [s], then ask again.
    #[staticmethod]
    fn hold(seconds: f64) -> PyResult<Self> {
        if seconds.is_finite() && seconds >= 1e-9 {
            return Ok(Self(Say::Hold(Duration::from_secs_f64(seconds))));
        }
        Err(PyValueError::new_err(format!("hold({seconds}): allowed: a time of at least 1e-9 s")))
    }

    /// Discard, and with it the waiting packet that `Cx.sample` has shown in this call.
    #[staticmethod]
    fn drop_both(spot: &Spot) -> Self {
        Self(Say::DropBoth(spot.spot, spot.call))
    }

    fn __repr__(&self) -> String {
        match self.0 {
            Say::Pass => "Verdict.PASS".to_owned(),
            Say::Mark => "Verdict.MARK".to_owned(),
            Say::Drop => "Verdict.DROP".to_owned(),
            Say::DropBoth(..) => "Verdict.drop_both(spot)".to_owned(),
            Say::Hold(time) => format!("Verdict.hold({})", time.as_secs_f64()),
        }
    }

    fn __deepcopy__<'py>(this: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        this
    }
}

/// Where a waiting packet stands.
#[pyclass(frozen, module = "bentpipe")]
pub struct Spot {
    spot: queue::QueueSlot,
    call: u64,
}

/// What an algorithm is told of a packet.
#[pyclass(frozen, module = "bentpipe")]
pub struct Packet(queue::Packet);

#[pymethods]
impl Packet {
    /// Length on the wire [bytes].
    #[getter]
    fn len(&self) -> u32 {
        self.0.len
    }

    #[getter]
    fn flow(&self) -> FlowId {
        self.0.flow
    }

    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    /// [s]
    #[getter]
    fn arrival(&self) -> f64 {
        self.0.arrival.as_secs_f64()
    }

    #[getter]
    fn arrival_ns(&self) -> u64 {
        self.0.arrival.as_nanos()
    }

    #[getter]
    fn ecn(&self) -> &'static str {
        match self.0.ecn {
            Ecn::NotEct => "not-ect",
            Ecn::Ect => "ect",
            Ecn::Ect1 => "ect1",
            Ecn::Ce => "ce",
        }
    }

    #[getter]
    fn split(&self) -> bool {
        self.0.split
    }

    #[getter]
    fn marked(&self) -> bool {
        self.0.marked
    }

    /// [bytes]
    #[getter]
    fn tcp_window(&self) -> Option<u32> {
        self.0.tcp.map(|tcp| tcp.window)
    }

    #[getter]
    fn tcp_seq(&self) -> Option<u32> {
        self.0.tcp.map(|tcp| tcp.seq)
    }

    #[getter]
    fn tcp_syn(&self) -> Option<bool> {
        self.0.tcp.map(|tcp| tcp.syn)
    }

    fn __repr__(&self) -> String {
        format!("<Packet {}: {} B of flow {}>", self.0.number, self.0.len, self.0.flow)
    }
}

/// What the simulator shows for the length of a call.
#[derive(Default)]
struct Lent {
    /// Null between calls, and while it is being looked at.
    at: AtomicPtr<queue::Context<'static>>,
    /// Number of the call.
    call: AtomicU64,
}

impl Lent {
    /// Shows `cx` to whatever `call` does.
    fn lend<R>(&self, cx: &mut queue::Context<'_>, call: impl FnOnce() -> R) -> R {
        self.call.fetch_add(1, Ordering::Relaxed);
        self.at.store(ptr::from_mut(cx).cast(), Ordering::Release);
        let done = call();
        // Another thread of the algorithm's may be just looking.
        while self.at.swap(ptr::null_mut(), Ordering::Acquire).is_null() {
            spin_loop();
        }
        done
    }

    /// Looks at what is shown now.
    fn look<R>(&self, at: impl FnOnce(&mut queue::Context<'_>) -> R) -> PyResult<R> {
        let shown = self.at.swap(ptr::null_mut(), Ordering::Acquire);
        if shown.is_null() {
            let why = "cx, cx.queue and cx.rng can be used only during the call that they were handed to";
            return Err(PyRuntimeError::new_err(why));
        }
        // SAFETY: `lend` has put it here, and has the only other way to it, which it does not use until it has taken it
        // back; and it cannot, nor can anybody else come here, while it is not in its place. Its lifetimes end when
        // `lend` does, and `at` cannot keep what they bound, for it takes any.
        #[allow(unsafe_code)]
        let found = at(unsafe { &mut *shown });
        self.at.store(shown, Ordering::Release);
        Ok(found)
    }
}

/// All that an algorithm may see, for the length of a call.
#[pyclass(frozen, module = "bentpipe")]
pub struct Cx {
    lent: Arc<Lent>,
    #[pyo3(get)]
    queue: Py<QueueState>,
    #[pyo3(get)]
    rng: Py<Rng>,
}

#[pymethods]
impl Cx {
    /// [s]
    #[getter]
    fn now(&self) -> PyResult<f64> {
        self.lent.look(|cx| cx.now.as_secs_f64())
    }

    #[getter]
    fn now_ns(&self) -> PyResult<u64> {
        self.lent.look(|cx| cx.now.as_nanos())
    }

    fn sample(&self) -> PyResult<Option<(Spot, Packet)>> {
        let call = self.lent.call.load(Ordering::Relaxed);
        self.lent.look(|cx| cx.sample().map(|(spot, pkt)| (Spot { spot, call }, Packet(*pkt))))
    }
}

/// The watched queue.
#[pyclass(frozen, module = "bentpipe")]
pub struct QueueState(Arc<Lent>);

#[pymethods]
impl QueueState {
    #[getter]
    fn packets(&self) -> PyResult<u32> {
        self.0.look(|cx| cx.queue.packets)
    }

    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.queue.bytes)
    }

    #[getter]
    fn held(&self) -> PyResult<u32> {
        self.0.look(|cx| cx.queue.held)
    }

    #[getter]
    fn limit_packets(&self) -> PyResult<Option<u32>> {
        self.0.look(|cx| Some(cx.queue.limit.packets).filter(|n| *n != Limit::NONE.packets))
    }

    #[getter]
    fn limit_bytes(&self) -> PyResult<Option<u64>> {
        self.0.look(|cx| Some(cx.queue.limit.bytes).filter(|n| *n != Limit::NONE.bytes))
    }

    /// [bytes/s]
    #[getter]
    fn capacity(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.queue.capacity.bytes_per_sec())
    }

    #[getter]
    fn sent_bytes(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.queue.sent_bytes)
    }

    /// [s]
    #[getter]
    fn idle_since(&self) -> PyResult<Option<f64>> {
        self.0.look(|cx| cx.queue.idle_since.map(Instant::as_secs_f64))
    }

    #[getter]
    fn idle_since_ns(&self) -> PyResult<Option<u64>> {
        self.0.look(|cx| cx.queue.idle_since.map(Instant::as_nanos))
    }
}

/// The algorithm's random stream.
#[pyclass(frozen, module = "bentpipe")]
pub struct Rng(Arc<Lent>);

#[pymethods]
impl Rng {
    fn uniform(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.uniform())
    }

    fn uniform_in(&self, low: f64, high: f64) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.uniform_in(low, high))
    }

    fn below(&self, n: u64) -> PyResult<u64> {
        self.0.look(|cx| cx.rng.below(n))
    }

    fn exponential(&self, mean: f64) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.exponential(mean))
    }

    fn normal(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.normal())
    }

    fn bits(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.rng.bits())
    }
}

// ----- what the simulator calls ------------------------------------------------------------------------------

/// Hears of the first thing that goes wrong with an algorithm, and stops the run.
pub struct Alarm {
    progress: Arc<Progress>,
    failure: Mutex<Option<Failure>>,
}

/// What went wrong with an algorithm.
struct Failure {
    what: String,
    now: Instant,
    cause: Option<PyErr>,
}

impl Alarm {
    pub fn new(progress: Arc<Progress>) -> Self {
        Self { progress, failure: Mutex::default() }
    }

    fn raise(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.progress.cancel();
    }

    fn rang(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What is to be raised, if anything went wrong.
    pub fn error(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // What is no error, such as KeyboardInterrupt, goes on as it is.
        if let Some(other) = failure.cause.as_ref().filter(|cause| !cause.is_instance_of::<PyException>(py)) {
            return Some(other.clone_ref(py));
        }
        let text = format!("{}, at simulated time {} s", failure.what, failure.now.as_secs_f64());
        let error = AlgorithmError::new_err(text);
        error.set_cause(py, failure.cause);
        Some(error)
    }
}

/// An algorithm written in Python.
pub struct PyAqm {
    arrive: Py<PyAny>,
    admit: Option<Py<PyAny>>,
    enqueued: Option<Py<PyAny>>,
    depart: Option<Py<PyAny>>,
    overflowed: Option<Py<PyAny>>,
    flow: Option<Py<PyAny>>,
    wake_at: Option<Py<PyAny>>,
    wake: Option<Py<PyAny>>,
    probe: Option<Py<PyAny>>,
    lent: Arc<Lent>,
    cx: Py<Cx>,
    verdicts: [(Py<PyAny>, queue::Verdict); 3],
    events: [Py<PyString>; 2],
    /// When it was last called.
    now: Instant,
    /// When it wants to be woken, unless it has been called since it was asked.
    wish: Cell<Option<Option<Instant>>>,
    /// The names of what it shows of its state.
    names: RefCell<Option<Vec<&'static str>>>,
    alarm: Arc<Alarm>,
}

impl PyAqm {
    /// The algorithm whose methods `make` gives, by name. Where it cannot, a queue without one, and the alarm rings.
    pub fn make(make: &Py<PyAny>, alarm: &Arc<Alarm>) -> Box<dyn Aqm> {
        let made = Python::attach(|py| {
            let methods = make.bind(py).call0()?.cast_into::<PyDict>()?;
            Self::new(&methods, Arc::clone(alarm))
        });
        match made {
            Ok(aqm) => Box::new(aqm),
            Err(error) => {
                let what = Python::attach(|py| format!("it cannot be set up: {}", named(py, &error)));
                alarm.raise(Failure { what, now: Instant::ZERO, cause: Some(error) });
                Box::new(queue::aqm::droptail::DropTail)
            }
        }
    }

    fn new(methods: &Bound<'_, PyDict>, alarm: Arc<Alarm>) -> PyResult<Self> {
        let py = methods.py();
        let method = |name: &str| Ok::<_, PyErr>(methods.get_item(name)?.map(Bound::unbind));
        let lent = Arc::new(Lent::default());
        let cx = Cx {
            queue: Py::new(py, QueueState(Arc::clone(&lent)))?,
            rng: Py::new(py, Rng(Arc::clone(&lent)))?,
            lent: Arc::clone(&lent),
        };
        let verdict =
            |name, verdict| Ok::<_, PyErr>((py.get_type::<Verdict>().getattr(name)?.unbind(), verdict));
        Ok(Self {
            arrive: method("arrive")?.ok_or_else(|| PyValueError::new_err("there is no method arrive"))?,
            admit: method("admit")?,
            enqueued: method("enqueued")?,
            depart: method("depart")?,
            overflowed: method("overflowed")?,
            flow: method("flow")?,
            wake_at: method("wake_at")?,
            wake: method("wake")?,
            probe: method("probe")?,
            lent,
            cx: Py::new(py, cx)?,
            verdicts: [
                verdict("PASS", queue::Verdict::Pass)?,
                verdict("MARK", queue::Verdict::Mark)?,
                verdict("DROP", queue::Verdict::Drop)?,
            ],
            events: ["opened", "closed"].map(|name| PyString::new(py, name).unbind()),
            now: Instant::ZERO,
            wish: Cell::new(None),
            names: RefCell::new(None),
            alarm,
        })
    }

    /// Calls a method; what it gives goes to `take`. Nothing is called once the alarm has rung.
    fn call<'py, R>(
        &self,
        py: Python<'py>,
        name: &str,
        method: &Py<PyAny>,
        args: impl PyCallArgs<'py>,
        cx: &mut queue::Context<'_>,
        take: impl FnOnce(&Bound<'py, PyAny>) -> Result<R, String>,
    ) -> Option<R> {
        if self.alarm.rang() {
            return None;
        }
        let given = self.lent.lend(cx, || method.bind(py).call1(args));
        self.take(py, name, given, take)
    }

    fn take<'py, R>(
        &self,
        py: Python<'py>,
        name: &str,
        given: PyResult<Bound<'py, PyAny>>,
        take: impl FnOnce(&Bound<'py, PyAny>) -> Result<R, String>,
    ) -> Option<R> {
        let (what, cause) = match given {
            Ok(given) => match take(&given) {
                Ok(taken) => return Some(taken),
                Err(what) => (format!("{name} {what}"), None),
            },
            Err(error) => (format!("{name} raised {}", named(py, &error)), Some(error)),
        };
        self.alarm.raise(Failure { what, now: self.now, cause });
        None
    }

    /// Calls a method about a packet that gives nothing.
    fn tell(
        &mut self,
        name: &str,
        method: impl Fn(&Self) -> Option<&Py<PyAny>>,
        pkt: &queue::Packet,
        cx: &mut queue::Context<'_>,
    ) {
        self.called(cx);
        if let Some(method) = method(self) {
            Python::attach(|py| self.call(py, name, method, (Packet(*pkt), &self.cx), cx, |_| Ok(())));
        }
    }

    /// Calls a method about a packet that gives a verdict.
    fn ask(
        &self,
        name: &str,
        method: &Py<PyAny>,
        pkt: &queue::Packet,
        cx: &mut queue::Context<'_>,
    ) -> queue::Verdict {
        let found = Python::attach(|py| {
            self.call(py, name, method, (Packet(*pkt), &self.cx), cx, |given| self.verdict(name, given))
        });
        found.unwrap_or(queue::Verdict::Pass)
    }

    fn verdict(&self, method: &str, given: &Bound<'_, PyAny>) -> Result<queue::Verdict, String> {
        if let Some((_, verdict)) = self.verdicts.iter().find(|(known, _)| given.is(known)) {
            return Ok(*verdict);
        }
        let arrives = method == "arrive";
        let allowed = if arrives { VERDICTS } else { "Verdict.PASS, Verdict.MARK or Verdict.DROP" };
        let wrong = || format!("returned {}; allowed: {allowed}", shown(given));
        let Ok(verdict) = given.cast::<Verdict>() else { return Err(wrong()) };
        match verdict.get().0 {
            Say::Pass => Ok(queue::Verdict::Pass),
            Say::Mark => Ok(queue::Verdict::Mark),
            Say::Drop => Ok(queue::Verdict::Drop),
            Say::Hold(time) if arrives => Ok(queue::Verdict::Hold(time)),
            Say::DropBoth(spot, call) if arrives => {
                if call == self.lent.call.load(Ordering::Relaxed) {
                    return Ok(queue::Verdict::DropBoth(spot));
                }
                Err("returned Verdict.drop_both with a spot of an earlier call; allowed: one that cx.sample() \
                     has just given"
                    .to_owned())
            }
            Say::Hold(_) | Say::DropBoth(..) => Err(wrong()),
        }
    }

    /// Something has happened, after which it may want to be woken at another time.
    fn called(&mut self, cx: &queue::Context<'_>) {
        self.now = cx.now;
        self.wish.set(None);
    }

    /// Asks when it wants to be woken: not before `least`.
    fn ask_wish(&self, least: Instant) -> Option<Instant> {
        let method = self.wake_at.as_ref().filter(|_| !self.alarm.rang())?;
        Python::attach(|py| {
            let given = method.bind(py).call0();
            self.take(py, "wake_at", given, |given| {
                if given.is_none() {
                    return Ok(None);
                }
                let time = given.extract::<f64>().ok().filter(|s| s.is_finite() && (0.0..1e10).contains(s));
                let time = time.map(|s| Instant::ZERO + Duration::from_secs_f64(s));
                let found = || format!("returned {}", shown(given));
                match time {
                    None => Err(format!("{}; allowed: a time [s], or None for none", found())),
                    Some(at) if at < self.now => Err(format!("{}, which is past", found())),
                    Some(at) if at < least => {
                        Err(format!("{} after a wake at that very time; allowed: a later one", found()))
                    }
                    at => Ok(at),
                }
            })
        })
        .flatten()
    }

    /// Its state, by name: the same names every time.
    fn state(&self, given: &Bound<'_, PyAny>, out: &mut dyn FnMut(&'static str, f64)) -> Result<(), String> {
        let wrong = || format!("returned {}; allowed: a dictionary of names and numbers", shown(given));
        let Ok(state) = given.cast::<PyDict>() else { return Err(wrong()) };
        let mut entries = Vec::with_capacity(state.len());
        for (name, value) in state.iter() {
            let (Ok(name), Ok(value)) = (name.extract::<String>(), value.extract::<f64>()) else {
                return Err(wrong());
            };
            if !value.is_finite() {
                return Err(format!("returned {value} for {name}; allowed: a finite number"));
            }
            entries.push((name, value));
        }
        let mut names = self.names.borrow_mut();
        let names = names.get_or_insert_with(|| entries.iter().map(|(name, _)| kept(name)).collect());
        if !entries.iter().map(|(name, _)| name.as_str()).eq(names.iter().copied()) {
            let now: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
            let (now, names) = (now.join(", "), names.join(", "));
            return Err(format!("returned {now}, but {names} at first; allowed: the same names every time"));
        }
        names.iter().zip(entries).for_each(|(name, (_, value))| out(name, value));
        Ok(())
    }
}

impl Aqm for PyAqm {
    fn arrive(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) -> queue::Verdict {
        self.called(cx);
        self.ask("arrive", &self.arrive, pkt, cx)
    }

    fn admit(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) {
        self.tell("admit", |of| of.admit.as_ref(), pkt, cx);
    }

    fn enqueued(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) {
        self.tell("enqueued", |of| of.enqueued.as_ref(), pkt, cx);
    }

    fn depart(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) -> queue::Verdict {
        let Some(method) = &self.depart else { return queue::Verdict::Pass };
        (self.now, _) = (cx.now, self.wish.set(None));
        self.ask("depart", method, pkt, cx)
    }

    fn overflowed(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) {
        self.tell("overflowed", |of| of.overflowed.as_ref(), pkt, cx);
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, cx: &mut queue::Context<'_>) {
        self.called(cx);
        if let Some(method) = &self.flow {
            let event = &self.events[usize::from(event == FlowEvent::Closed)];
            Python::attach(|py| self.call(py, "flow", method, (flow, event, &self.cx), cx, |_| Ok(())));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake_at.as_ref()?;
        let wish = self.wish.get().unwrap_or_else(|| self.ask_wish(self.now));
        self.wish.set(Some(wish));
        wish
    }

    fn wake(&mut self, cx: &mut queue::Context<'_>) {
        self.called(cx);
        if let Some(method) = &self.wake {
            Python::attach(|py| self.call(py, "wake", method, (&self.cx,), cx, |_| Ok(())));
        }
        // One that wanted to be woken at the same time for ever would stop the clock.
        let wish = self.ask_wish(cx.now + Duration::from_nanos(1));
        self.wish.set(Some(wish));
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        // Whoever waits for the interpreter, perhaps to stop the run, need not wait for the next packet.
        Python::attach(|py| py.detach(|| ()));
        let Some(method) = &self.probe else { return };
        if self.alarm.rang() {
            return;
        }
        Python::attach(|py| {
            let given = method.bind(py).call0();
            self.take(py, "probe", given, |given| self.state(given, out))
        });
    }
}

/// An exception as the last line of its traceback has it.
fn named(py: Python<'_>, error: &PyErr) -> String {
    let value = error.value(py).to_string();
    let name =
        error.get_type(py).qualname().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    if value.is_empty() { name } else { format!("{name}: {value}") }
}

/// A value as Python writes it, cut short.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
    if text.chars().count() <= 60 {
        text
    } else {
        format!("{}…", text.chars().take(60).collect::<String>())
    }
}

/// The name, kept for good: of every name there is one, however many runs use it.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}
