//! AQMs written in Python, as the simulator calls them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_queue as queue;
use bentpipe_queue::{Aqm, FlowEvent, FlowId};
use bentpipe_sim::Progress;
use bentpipe_units::{Duration, Instant};
use pyo3::PyErr;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyException, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::AlgorithmError;
use crate::views::{Action, Context, Lent, Packet, VERDICTS, Verdict};

/// Keeps the first fault of an AQM and stops the run.
pub struct Alarm {
    progress: Arc<Progress>,
    failure: Mutex<Option<Failure>>,
}

/// A fault of an AQM.
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

    /// Returns true after a fault.
    pub fn rang(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the exception for the fault, the same in each call; `None` without a fault.
    pub fn error(&self, py: Python<'_>) -> Option<PyErr> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.as_mut()?;
        // Exceptions that are not errors, such as KeyboardInterrupt, propagate unchanged, once. An AQM does not end the program.
        let is_error = |cause: &PyErr| {
            cause.is_instance_of::<PyException>(py) || cause.is_instance_of::<PySystemExit>(py)
        };
        if let Some(other) = failure.cause.take_if(|cause| !is_error(cause)) {
            return Some(other);
        }
        let text = format!("{}, at simulated time {} s", failure.what, failure.now.as_secs_f64());
        let error = AlgorithmError::new_err(text);
        error.set_cause(py, failure.cause.as_ref().map(|cause| cause.clone_ref(py)));
        Some(error)
    }
}

/// An AQM written in Python.
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
    cx: Py<Context>,
    verdicts: [(Py<PyAny>, queue::Verdict); 3],
    events: [Py<PyString>; 2],
    /// Time of the last call.
    now: Instant,
    /// Result of the last `wake_at`; the outer `None` if the AQM has been called since.
    wake_time: Cell<Option<Option<Instant>>>,
    /// Names that `probe` returned first; they must stay the same.
    names: RefCell<Option<Vec<&'static str>>>,
    alarm: Arc<Alarm>,
}

impl PyAqm {
    /// Builds the AQM from the methods of `algorithm`. If that fails, raises the alarm and returns drop tail.
    pub fn make(algorithm: &Py<PyAny>, alarm: &Arc<Alarm>) -> Box<dyn Aqm> {
        let made = Python::attach(|py| {
            let methods = algorithm.bind(py).call_method0("methods")?.cast_into::<PyDict>()?;
            Self::new(&methods, Arc::clone(alarm))
        });
        match made {
            Ok(aqm) => Box::new(aqm),
            Err(error) => {
                let what =
                    Python::attach(|py| format!("the AQM cannot be built: {}", exception_line(py, &error)));
                alarm.raise(Failure { what, now: Instant::ZERO, cause: Some(error) });
                Box::new(queue::aqm::droptail::DropTail)
            }
        }
    }

    fn new(methods: &Bound<'_, PyDict>, alarm: Arc<Alarm>) -> PyResult<Self> {
        let py = methods.py();
        let method = |name: &str| Ok::<_, PyErr>(methods.get_item(name)?.map(Bound::unbind));
        let lent = Arc::new(Lent::default());
        let cx = Context::new(py, &lent)?;
        let verdict =
            |name, verdict| Ok::<_, PyErr>((py.get_type::<Verdict>().getattr(name)?.unbind(), verdict));
        Ok(Self {
            arrive: method("arrive")?.ok_or_else(|| PyValueError::new_err("no method arrive"))?,
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
            wake_time: Cell::new(None),
            names: RefCell::new(None),
            alarm,
        })
    }

    /// Calls a method and passes its result to `take`. Does nothing after a fault.
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
            Err(error) => (format!("{name} raised {}", exception_line(py, &error)), Some(error)),
        };
        self.alarm.raise(Failure { what, now: self.now, cause });
        None
    }

    /// Calls a method that takes a packet and returns nothing.
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

    /// Calls a method that takes a packet and returns a verdict.
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
            Action::Pass => Ok(queue::Verdict::Pass),
            Action::Mark => Ok(queue::Verdict::Mark),
            Action::Drop => Ok(queue::Verdict::Drop),
            Action::Hold(time) if arrives => Ok(queue::Verdict::Hold(time)),
            Action::DropBoth(slot, call) if arrives => {
                if call == self.lent.call() {
                    return Ok(queue::Verdict::DropBoth(slot));
                }
                Err("returned Verdict.drop_both with a slot from an earlier call; allowed: the slot that cx.sample() \
                     returned in this call"
                    .to_owned())
            }
            Action::Hold(_) | Action::DropBoth(..) => Err(wrong()),
        }
    }

    /// Notes a call, after which the wake time may change.
    fn called(&mut self, cx: &queue::Context<'_>) {
        self.now = cx.now;
        self.wake_time.set(None);
    }

    /// Calls `wake_at`; the time must not be before `least`.
    fn ask_wake_time(&self, least: Instant) -> Option<Instant> {
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
                    None => Err(format!("{}; allowed: a time [s] or None", found())),
                    Some(at) if at < self.now => Err(format!("{}, which is in the past", found())),
                    Some(at) if at < least => {
                        Err(format!("{} after a wake at the same time; allowed: a later time", found()))
                    }
                    at => Ok(at),
                }
            })
        })
        .flatten()
    }

    /// Reports the result of `probe`, which must have the same names each time.
    fn report(&self, given: &Bound<'_, PyAny>, out: &mut dyn FnMut(&'static str, f64)) -> Result<(), String> {
        let wrong = || format!("returned {}; allowed: a dictionary of names and numbers", shown(given));
        let Ok(state) = given.cast::<PyDict>() else { return Err(wrong()) };
        let mut entries = Vec::with_capacity(state.len());
        for (name, value) in state.iter() {
            let (Ok(name), Ok(value)) = (name.extract::<String>(), value.extract::<f64>()) else {
                return Err(wrong());
            };
            if name.contains(char::is_control) {
                return Err(format!(
                    "returned the name {name:?}; allowed: a name without control characters"
                ));
            }
            if !value.is_finite() {
                return Err(format!("returned {value} for {name}; allowed: a finite number"));
            }
            entries.push((name, value));
        }
        let mut names = self.names.borrow_mut();
        let names = names.get_or_insert_with(|| entries.iter().map(|(name, _)| interned(name)).collect());
        if !entries.iter().map(|(name, _)| name.as_str()).eq(names.iter().copied()) {
            let now: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
            let (now, names) = (now.join(", "), names.join(", "));
            return Err(format!(
                "returned {now}, but {names} in the first call; allowed: the same names in each call"
            ));
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
        (self.now, _) = (cx.now, self.wake_time.set(None));
        self.ask("depart", method, pkt, cx)
    }

    fn overflowed(&mut self, pkt: &queue::Packet, cx: &mut queue::Context<'_>) {
        self.tell("overflowed", |of| of.overflowed.as_ref(), pkt, cx);
    }

    fn flow(&mut self, flow: FlowId, event: FlowEvent, cx: &mut queue::Context<'_>) {
        self.called(cx);
        if let Some(method) = &self.flow {
            let event = &self.events[usize::from(event == FlowEvent::Closed)];
            Python::attach(|py| self.call(py, "flow", method, (flow.0, event, &self.cx), cx, |_| Ok(())));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake_at.as_ref()?;
        let time = self.wake_time.get().unwrap_or_else(|| self.ask_wake_time(self.now));
        self.wake_time.set(Some(time));
        time
    }

    fn wake(&mut self, cx: &mut queue::Context<'_>) {
        self.called(cx);
        if let Some(method) = &self.wake {
            Python::attach(|py| self.call(py, "wake", method, (&self.cx,), cx, |_| Ok(())));
        }
        // An AQM that asked for the same time again and again would stop the clock.
        let time = self.ask_wake_time(cx.now + Duration::from_nanos(1));
        self.wake_time.set(Some(time));
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        // Give the interpreter's lock to other threads, one of which may want to stop the run.
        Python::attach(|py| py.detach(|| ()));
        let Some(method) = &self.probe else { return };
        if self.alarm.rang() {
            return;
        }
        Python::attach(|py| {
            let given = method.bind(py).call0();
            self.take(py, "probe", given, |given| self.report(given, out))
        });
    }
}

/// An exception as in the last line of its traceback.
fn exception_line(py: Python<'_>, error: &PyErr) -> String {
    let value = error.value(py).to_string();
    let name =
        error.get_type(py).qualname().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    if value.is_empty() { name } else { format!("{name}: {value}") }
}

/// The `repr` of a value, cut after 60 characters.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
    if text.chars().count() <= 60 {
        text
    } else {
        format!("{}…", text.chars().take(60).collect::<String>())
    }
}

/// Interns a name for the life of the process, once for all runs.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}
