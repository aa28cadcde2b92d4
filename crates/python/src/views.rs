//! The objects that the methods of an AQM written in Python receive and return.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_queue as queue;
use bentpipe_queue::{Ecn, Limit};
use bentpipe_units::{Duration, Instant};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::lent;

/// Decision of an AQM about a packet.
#[pyclass(frozen, eq, module = "bentpipe")]
#[derive(Clone, Copy, PartialEq)]
pub struct Verdict(pub Action);

/// The action of a [`Verdict`].
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    Pass,
    Mark,
    Drop,
    /// Drops a waiting packet too, sampled in the call of that number.
    DropBoth(queue::QueueSlot, u64),
    Hold(Duration),
}

/// Verdicts allowed in `arrive`, for messages.
pub const VERDICTS: &str =
    "Verdict.PASS, Verdict.MARK, Verdict.DROP, Verdict.hold(seconds) or Verdict.drop_both(slot)";

#[pymethods]
impl Verdict {
    /// No signal.
    #[classattr]
    const PASS: Self = Self(Action::Pass);
    /// Signal congestion by the marking method.
    #[classattr]
    const MARK: Self = Self(Action::Mark);
    /// Drop the packet, whatever the marking method.
    #[classattr]
    const DROP: Self = Self(Action::Drop);

    /// Hold the packet back for `seconds` [s], then call `arrive` again.
    #[staticmethod]
    fn hold(seconds: f64) -> PyResult<Self> {
        if seconds.is_finite() && seconds >= 1e-9 {
            return Ok(Self(Action::Hold(Duration::from_secs_f64(seconds))));
        }
        Err(PyValueError::new_err(format!("hold({seconds}): allowed: a time of at least 1e-9 s")))
    }

    /// Drop the packet and the waiting packet that `Context.sample` returned in this call.
    #[staticmethod]
    fn drop_both(slot: &QueueSlot) -> Self {
        Self(Action::DropBoth(slot.slot, slot.call))
    }

    fn __repr__(&self) -> String {
        match self.0 {
            Action::Pass => "Verdict.PASS".to_owned(),
            Action::Mark => "Verdict.MARK".to_owned(),
            Action::Drop => "Verdict.DROP".to_owned(),
            Action::DropBoth(..) => "Verdict.drop_both(slot)".to_owned(),
            Action::Hold(time) => format!("Verdict.hold({})", time.as_secs_f64()),
        }
    }

    fn __deepcopy__<'py>(this: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        this
    }
}

/// Position of a waiting packet.
#[pyclass(frozen, module = "bentpipe")]
pub struct QueueSlot {
    slot: queue::QueueSlot,
    /// The call in which it was sampled.
    call: u64,
}

/// A packet as the AQM sees it.
#[pyclass(frozen, module = "bentpipe")]
pub struct Packet(pub queue::Packet);

#[pymethods]
impl Packet {
    /// Length on the wire [bytes].
    #[getter]
    fn len(&self) -> u32 {
        self.0.len
    }

    /// Number of its flow.
    #[getter]
    fn flow(&self) -> u32 {
        self.0.flow.0
    }

    /// Codepoint (DSCP), 0 to 63.
    #[getter]
    fn dscp(&self) -> u8 {
        self.0.dscp
    }

    /// Number of packets offered to the AQM before it.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    /// Time when it entered the watched queue [s]; 0 before.
    #[getter]
    fn arrival(&self) -> f64 {
        self.0.arrival.as_secs_f64()
    }

    /// Time when it entered the watched queue [ns]; 0 before.
    #[getter]
    fn arrival_ns(&self) -> u64 {
        self.0.arrival.as_nanos()
    }

    /// ECN field (RFC 3168): no ECN, ECT(0), ECT(1) (RFC 9331), or CE.
    #[getter]
    fn ecn(&self) -> &'static str {
        match self.0.ecn {
            Ecn::NotEct => "not-ect",
            Ecn::Ect => "ect",
            Ecn::Ect1 => "ect1",
            Ecn::Ce => "ce",
        }
    }

    /// True if its connection is split at the gateway, so that its sender's window can be cut.
    #[getter]
    fn split(&self) -> bool {
        self.0.split
    }

    /// True if it tells the gateway to cut that window.
    #[getter]
    fn marked(&self) -> bool {
        self.0.marked
    }

    /// Congestion window of its sender [bytes]; None without TCP data.
    #[getter]
    fn tcp_window(&self) -> Option<u32> {
        self.0.tcp.map(|tcp| tcp.window)
    }

    /// Sequence number of its first byte; None without TCP data.
    #[getter]
    fn tcp_seq(&self) -> Option<u32> {
        self.0.tcp.map(|tcp| tcp.seq)
    }

    /// True if it opens its connection; None without TCP data.
    #[getter]
    fn tcp_syn(&self) -> Option<bool> {
        self.0.tcp.map(|tcp| tcp.syn)
    }

    fn __repr__(&self) -> String {
        format!("<Packet {}: {} B of flow {}>", self.0.number, self.0.len, self.0.flow.0)
    }
}

/// The simulator's context, accessible from Python during one call.
#[derive(Default)]
pub struct Lent {
    context: lent::Lent<queue::Context<'static>>,
    /// Number of the call.
    call: AtomicU64,
}

impl Lent {
    /// Runs `call` with `cx` accessible.
    pub fn lend<R>(&self, cx: &mut queue::Context<'_>, call: impl FnOnce() -> R) -> R {
        self.call.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `cx` is borrowed until this returns. The lifetimes in `Context` end with it; what `look` applies accepts any
        // lifetime, so it cannot keep a reference.
        #[allow(unsafe_code)]
        unsafe {
            self.context.lend(ptr::from_mut(cx).cast(), call)
        }
    }

    /// Number of the current call.
    pub fn call(&self) -> u64 {
        self.call.load(Ordering::Relaxed)
    }

    /// Applies `read` to the current context.
    fn look<R>(&self, read: impl FnOnce(&mut queue::Context<'_>) -> R) -> PyResult<R> {
        let why = "cx, cx.queue and cx.rng can be used only during the call that received them";
        self.context.look(read).ok_or_else(|| PyRuntimeError::new_err(why))
    }
}

/// Time, queue state and random numbers, valid during one call.
#[pyclass(frozen, module = "bentpipe")]
pub struct Context {
    lent: Arc<Lent>,
    /// The watched queue.
    #[pyo3(get)]
    queue: Py<QueueState>,
    /// The AQM's random stream, determined by the run's seed.
    #[pyo3(get)]
    rng: Py<Rng>,
}

impl Context {
    /// A context that shows what `lent` lends.
    pub fn new(py: Python<'_>, lent: &Arc<Lent>) -> PyResult<Self> {
        Ok(Self {
            queue: Py::new(py, QueueState(Arc::clone(lent)))?,
            rng: Py::new(py, Rng(Arc::clone(lent)))?,
            lent: Arc::clone(lent),
        })
    }
}

#[pymethods]
impl Context {
    /// Simulated time [s].
    #[getter]
    fn now(&self) -> PyResult<f64> {
        self.lent.look(|cx| cx.now.as_secs_f64())
    }

    /// Simulated time [ns]; differences are exact.
    #[getter]
    fn now_ns(&self) -> PyResult<u64> {
        self.lent.look(|cx| cx.now.as_nanos())
    }

    /// Return a waiting packet drawn uniformly; only in `arrive`, None if the scheduler cannot.
    fn sample(&self) -> PyResult<Option<(QueueSlot, Packet)>> {
        let call = self.lent.call();
        self.lent.look(|cx| cx.sample().map(|(slot, pkt)| (QueueSlot { slot, call }, Packet(*pkt))))
    }
}

/// The watched queue.
#[pyclass(frozen, module = "bentpipe")]
pub struct QueueState(Arc<Lent>);

#[pymethods]
impl QueueState {
    /// Packets waiting.
    #[getter]
    fn packets(&self) -> PyResult<u32> {
        self.0.look(|cx| cx.queue.packets)
    }

    /// Bytes waiting.
    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.queue.bytes)
    }

    /// Packets held back at the mark point.
    #[getter]
    fn held(&self) -> PyResult<u32> {
        self.0.look(|cx| cx.queue.held)
    }

    /// Maximum number of packets; None without limit.
    #[getter]
    fn limit_packets(&self) -> PyResult<Option<u32>> {
        self.0.look(|cx| Some(cx.queue.limit.packets).filter(|n| *n != Limit::NONE.packets))
    }

    /// Maximum number of bytes; None without limit.
    #[getter]
    fn limit_bytes(&self) -> PyResult<Option<u64>> {
        self.0.look(|cx| Some(cx.queue.limit.bytes).filter(|n| *n != Limit::NONE.bytes))
    }

    /// Capacity of the link that drains it [bytes/s].
    #[getter]
    fn capacity(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.queue.capacity.bytes_per_sec())
    }

    /// Bytes sent over its link since the start of the run.
    #[getter]
    fn sent_bytes(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.queue.sent_bytes)
    }

    /// Time since which its link has been idle [s]; None while it is busy.
    #[getter]
    fn idle_since(&self) -> PyResult<Option<f64>> {
        self.0.look(|cx| cx.queue.idle_since.map(Instant::as_secs_f64))
    }

    /// Time since which its link has been idle [ns]; None while it is busy.
    #[getter]
    fn idle_since_ns(&self) -> PyResult<Option<u64>> {
        self.0.look(|cx| cx.queue.idle_since.map(Instant::as_nanos))
    }
}

/// The AQM's random stream.
#[pyclass(frozen, module = "bentpipe")]
pub struct Rng(Arc<Lent>);

#[pymethods]
impl Rng {
    /// Return a number in [0, 1).
    fn uniform(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.uniform())
    }

    /// Return a number in [low, high).
    fn uniform_in(&self, low: f64, high: f64) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.uniform_in(low, high))
    }

    /// Return one of 0, 1, … n - 1.
    fn below(&self, n: u64) -> PyResult<u64> {
        self.0.look(|cx| cx.rng.below(n))
    }

    /// Return an exponentially distributed number with this mean.
    fn exponential(&self, mean: f64) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.exponential(mean))
    }

    /// Return a normally distributed number with mean 0 and variance 1.
    fn normal(&self) -> PyResult<f64> {
        self.0.look(|cx| cx.rng.normal())
    }

    /// Return 64 random bits.
    fn bits(&self) -> PyResult<u64> {
        self.0.look(|cx| cx.rng.bits())
    }
}
