//! Results as Arrow tables, handed over without a copy.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, ListArray, RecordBatch,
    RecordBatchIterator, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};
use bentpipe_sim::{
    Back, Call, Flow, Interval, Period, REASONS, Results, Series, Terminal, TraceRow, TraceState, Viewing,
};
use bentpipe_units::{Duration, Instant};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A table that any library with the Arrow PyCapsule interface takes as it is.
#[pyclass(frozen, module = "bentpipe._core")]
pub struct Table(RecordBatch);

#[pymethods]
impl Table {
    /// The table as a stream of Arrow batches (Arrow PyCapsule interface). A requested schema is not looked at,
    /// as the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let schema = self.0.schema();
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}

/// Columns with their names.
pub type Columns = Vec<(String, ArrayRef)>;

/// A table of these columns.
pub fn table(columns: Columns) -> Result<Table, String> {
    let fields: Vec<_> =
        columns.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map(Table).map_err(|e| e.to_string())
}

pub fn column(name: &str, array: impl arrow_array::Array + 'static) -> (String, ArrayRef) {
    (name.to_owned(), Arc::new(array))
}

/// Numbers, with null for what could not be measured.
pub fn numbers(values: Vec<f64>) -> Float64Array {
    if values.iter().any(|x| x.is_nan()) {
        values.into_iter().map(|x| (!x.is_nan()).then_some(x)).collect()
    } else {
        Float64Array::from(values)
    }
}

/// Names, each stored once.
pub fn names<T: AsRef<str>>(
    keys: Vec<i32>,
    names: impl IntoIterator<Item = T>,
) -> DictionaryArray<Int32Type> {
    let values = StringArray::from_iter_values(names);
    DictionaryArray::new(Int32Array::from(keys), Arc::new(values))
}

/// One row a sample.
pub fn series(series: Vec<Series>) -> Columns {
    series.into_iter().map(|s| column(&s.name, numbers(s.values))).collect()
}

/// One row a sample of a model.
pub fn model(table: bentpipe_model::Table) -> Columns {
    table.columns.into_iter().map(|c| column(&c.name, numbers(c.values))).collect()
}

/// One row a packet.
pub fn drops(results: &Results) -> Columns {
    let d = &results.drops;
    let arrivals: UInt64Array = d.arrival.iter().map(|&n| (n != u64::MAX).then_some(n)).collect();
    let places = d.place.iter().map(|&place| place as i32).collect();
    let reasons = d.reason.iter().map(|&reason| i32::from(reason)).collect();
    vec![
        column("time", Float64Array::from(d.time.clone())),
        column("arrival", arrivals),
        column("place", names(places, results.places.iter())),
        column("reason", names(reasons, REASONS)),
        column(
            "flow",
            d.flow.iter().map(|&flow| (flow != u32::MAX).then_some(flow)).collect::<UInt32Array>(),
        ),
        column("bytes", UInt32Array::from(d.bytes.clone())),
    ]
}

/// One row a connection that was open while measuring; times count from the beginning of the measurement.
pub fn flows(results: &Results) -> Columns {
    let begin = results.begin;
    let since = |at: Instant| at.as_secs_f64() - begin.as_secs_f64();
    let open = |flow: &Flow| flow.closed.is_none_or(|closed| closed > begin);
    let flows: Vec<_> = results.flows.iter().enumerate().filter(|(_, flow)| open(flow)).collect();
    let column_of = |f: &dyn Fn(&Flow) -> f64| numbers(flows.iter().map(|(_, flow)| f(flow)).collect());
    let flag_of =
        |f: &dyn Fn(&Flow) -> bool| -> BooleanArray { flows.iter().map(|(_, flow)| Some(f(flow))).collect() };
    let count_of =
        |f: &dyn Fn(&Flow) -> u32| UInt32Array::from_iter_values(flows.iter().map(|(_, flow)| f(flow)));
    let traffic = flows.iter().map(|(_, flow)| flow.traffic as i32).collect();
    let class_names: Vec<_> = results.classes.iter().map(|class| class.name.as_str()).collect();
    let class = flows.iter().map(|(_, flow)| results.class_of[flow.traffic as usize] as i32).collect();
    let of_call = |f: &dyn Fn(&Call) -> f64| -> Float64Array {
        flows.iter().map(|(_, flow)| results.call(flow).map(f).filter(|x| !x.is_nan())).collect()
    };
    let codecs: StringArray =
        flows.iter().map(|(_, flow)| results.call(flow).map(|call| call.voice.codec.name())).collect();
    let count_of_call = |f: &dyn Fn(&Call) -> u64| -> UInt64Array {
        flows.iter().map(|(_, flow)| results.call(flow).map(f)).collect()
    };
    let viewings = || flows.iter().map(|(_, flow)| results.viewing(flow));
    let of_viewing = |f: &dyn Fn(&Viewing) -> f64| -> Float64Array {
        viewings().map(|viewing| viewing.map(f).filter(|x| !x.is_nan())).collect()
    };
    let count_of_viewing =
        |f: &dyn Fn(&Viewing) -> u32| -> UInt32Array { viewings().map(|viewing| viewing.map(f)).collect() };
    let of_periods = |f: &dyn Fn(&Viewing, &Period) -> Option<f64>| {
        let values = |viewing: &Viewing| viewing.periods().iter().map(|p| f(viewing, p)).collect::<Vec<_>>();
        ListArray::from_iter_primitive::<Float64Type, _, _>(viewings().map(|viewing| viewing.map(values)))
    };
    let mut columns = vec![
        column("flow", UInt32Array::from_iter_values(flows.iter().map(|(index, _)| *index as u32))),
        column("session", count_of(&|flow| flow.session)),
        column("traffic", names(traffic, &results.traffic)),
        column("class", names(class, &class_names)),
        column("opened", column_of(&|flow| since(flow.opened))),
        column("closed", column_of(&|flow| flow.closed.map_or(f64::NAN, since))),
        column("completed", flag_of(&|flow| flow.completed)),
        column("failed", flag_of(&|flow| flow.closed.is_some() && !flow.completed && !flow.left)),
        column("bytes", UInt64Array::from_iter_values(flows.iter().map(|(_, flow)| flow.measured))),
        column("completion_time", column_of(&|flow| flow.completion_time())),
        column("goodput", column_of(&|flow| flow.goodput(begin, results.end))),
        column("drops", count_of(&|flow| flow.drops)),
        column("packets", count_of(&|flow| flow.received_packets)),
        column("delay", column_of(&|flow| flow.delay())),
        column("jitter", column_of(&|flow| flow.jitter())),
        column("received_units", count_of(&|flow| flow.received_units)),
        column("lost_units", count_of(&|flow| flow.lost_units)),
        column("played", count_of_call(&|call| call.played)),
        column("late", count_of_call(&|call| call.late)),
        column("mouth_to_ear", of_call(&Call::mouth_to_ear_delay)),
        column("burst_ratio", of_call(&Call::burst_ratio)),
        column("codec", codecs),
        column(
            "startup_delay",
            of_viewing(&|viewing| viewing.startup_delay().map_or(f64::NAN, Duration::as_secs_f64)),
        ),
        column("stalls", count_of_viewing(&Viewing::stalls)),
        column("stalled", of_viewing(&|viewing| viewing.stalled_time().as_secs_f64())),
        column("played_time", of_viewing(&|viewing| viewing.played_time().as_secs_f64())),
        column("bitrate", of_viewing(&Viewing::bitrate)),
        column("switches", count_of_viewing(&Viewing::switches)),
        column("playback_until", of_periods(&|_, period| Some(since(period.until)))),
        column(
            "playback_bitrate",
            of_periods(&|viewing, period| viewing.rate(period).map(|rate| rate.as_bps() as f64)),
        ),
    ];
    if !results.terminals.is_empty() {
        let terminals: Vec<_> = results.terminals.iter().map(|terminal| terminal.name.as_str()).collect();
        let keys: Int32Array = flows.iter().map(|(_, flow)| Some(flow.terminal()? as i32)).collect();
        let values = StringArray::from_iter_values(terminals);
        columns.push(column("terminal", DictionaryArray::new(keys, Arc::new(values))));
    }
    columns
}

/// One row a change; times count from the beginning of the measurement.
pub fn trace(results: &Results) -> Columns {
    let rows = &results.trace;
    let begin = results.begin;
    let number = |f: &dyn Fn(&TraceRow) -> u32| UInt32Array::from_iter_values(rows.iter().map(f));
    let count =
        |f: &dyn Fn(&TraceState) -> u64| UInt64Array::from_iter_values(rows.iter().map(|row| f(&row.state)));
    let seconds = |f: &dyn Fn(&TraceState) -> Option<Duration>| {
        rows.iter().map(|row| f(&row.state).map(|d| d.as_secs_f64())).collect::<Float64Array>()
    };
    let ssthresh = rows.iter().map(|row| row.state.ssthresh);
    let since = |at: Instant| at.as_secs_f64() - begin.as_secs_f64();
    vec![
        column("time", Float64Array::from_iter_values(rows.iter().map(|row| since(row.time)))),
        column("flow", number(&|row| row.flow)),
        column("leg", number(&|row| row.leg)),
        column("cwnd", count(&|state| state.cwnd)),
        column("ssthresh", ssthresh.collect::<UInt64Array>()),
        column("in_flight", count(&|state| state.in_flight)),
        column("rtt", seconds(&|state| state.rtt)),
        column("srtt", seconds(&|state| state.srtt)),
        column("rto", seconds(&|state| Some(state.rto))),
        column("retransmissions", count(&|state| state.retransmissions)),
        column("timeouts", count(&|state| state.timeouts)),
    ]
}

/// One row a terminal of a gateway with several and an interval; `None` if each gateway has one.
pub fn terminal_series(results: &Results) -> Option<Columns> {
    let terminals = &results.terminals;
    if terminals.is_empty() {
        return None;
    }
    let spans: Vec<_> = (0..results.intervals.count()).map(|number| results.intervals.span(number)).collect();
    let names = terminals.iter().flat_map(|terminal| std::iter::repeat_n(&terminal.name, spans.len()));
    let times = terminals.iter().flat_map(|_| spans.iter().map(|span| span.0));
    let rate = |it: &Interval, length: f64| it.bytes as f64 * 8.0 / length;
    let rows = |of: &dyn Fn(&Interval, f64) -> f64| {
        let each = terminals.iter().flat_map(|terminal| terminal.intervals.iter().zip(&spans));
        numbers(each.map(|(it, span)| of(it, span.1)).collect())
    };
    let mut columns = vec![
        column("terminal", StringArray::from_iter_values(names)),
        column("time", Float64Array::from_iter_values(times)),
        column("throughput", rows(&rate)),
        column("queue_delay", rows(&|it, _| it.queue_delay())),
        column("carrier_share", rows(&|it, length| it.carrier_time.as_secs_f64() / length)),
    ];
    if terminals.iter().any(|t| t.back.is_some()) {
        let none = Interval::default();
        let rows = |of: &dyn Fn(&Interval, f64) -> f64| {
            let back = |terminal: &'_ Terminal, number: usize| match &terminal.back {
                Some(back) => back.intervals[number],
                None => none,
            };
            let each = terminals.iter().flat_map(|terminal| {
                spans.iter().enumerate().map(move |(number, span)| (back(terminal, number), span.1))
            });
            numbers(each.map(|(it, length)| of(&it, length)).collect())
        };
        columns.extend([
            column("return_throughput", rows(&rate)),
            column("return_queue_delay", rows(&|it, _| it.queue_delay())),
        ]);
    }
    Some(columns)
}

/// One row a page of a user behind a terminal; `None` if each gateway has one terminal.
pub fn pages(results: &Results) -> Option<Columns> {
    if results.terminals.is_empty() {
        return None;
    }
    let pages = &results.pages;
    let begin = results.begin.as_secs_f64();
    let class_names: Vec<_> = results.classes.iter().map(|class| class.name.as_str()).collect();
    let terminal_names: Vec<_> = results.terminals.iter().map(|terminal| terminal.name.as_str()).collect();
    let times = pages.iter().map(|page| page.ended.as_secs_f64() - begin);
    let load_times = pages.iter().map(|page| page.load_time.map(Duration::as_secs_f64));
    Some(vec![
        column("time", Float64Array::from_iter_values(times)),
        column("class", names(pages.iter().map(|page| page.class as i32).collect(), &class_names)),
        column("terminal", names(pages.iter().map(|page| page.terminal as i32).collect(), &terminal_names)),
        column("load_time", load_times.collect::<Float64Array>()),
    ])
}

/// One row a terminal of a gateway with several; `None` if each gateway has one.
pub fn terminals(results: &Results) -> Option<Columns> {
    let terminals = &results.terminals;
    if terminals.is_empty() {
        return None;
    }
    let text = |of: &dyn Fn(&Terminal) -> &str| StringArray::from_iter_values(terminals.iter().map(of));
    let count = |of: &dyn Fn(&Terminal) -> u64| UInt64Array::from_iter_values(terminals.iter().map(of));
    let delay = |place: usize| numbers(terminals.iter().map(|t| t.queue_delay()[place]).collect());
    let seconds = (results.end - results.begin).as_secs_f64();
    let mut columns = vec![
        column("terminal", text(&|t| &t.name)),
        column("group", text(&|t| &t.group)),
        column(
            "goodput",
            numbers(terminals.iter().map(|t| t.delivered_bytes as f64 * 8.0 / seconds).collect()),
        ),
        column("sent_packets", count(&|t| t.sent_packets)),
        column("sent_bytes", count(&|t| t.sent_bytes)),
        column("dropped_packets", count(&|t| t.dropped_packets)),
        column("carrier_seconds", numbers(terminals.iter().map(|t| t.carrier_time.as_secs_f64()).collect())),
        column("queue_delay_mean", delay(0)),
        column("queue_delay_p50", delay(1)),
        column("queue_delay_p95", delay(2)),
        column("queue_delay_p99", delay(3)),
        column("pages", count(&|t| t.pages.count)),
        column("page_time_mean", numbers(terminals.iter().map(|t| t.pages.mean()).collect())),
        column(
            "page_time_max",
            Float64Array::from_iter(
                terminals.iter().map(|t| (t.pages.count > 0).then(|| t.pages.max.as_secs_f64())),
            ),
        ),
    ];
    if terminals.iter().any(|t| t.pool.is_some()) {
        columns.push(column("pool", StringArray::from_iter(terminals.iter().map(|t| t.pool.as_deref()))));
    }
    if terminals.iter().any(|t| t.back.is_some()) {
        let back = |of: &dyn Fn(&Back) -> u64| {
            UInt64Array::from_iter(terminals.iter().map(|t| t.back.as_deref().map(of)))
        };
        let number = |of: &dyn Fn(&Back) -> f64| {
            numbers(terminals.iter().map(|t| t.back.as_deref().map_or(f64::NAN, of)).collect())
        };
        columns.extend([
            column("return_goodput", number(&|t| t.delivered_bytes as f64 * 8.0 / seconds)),
            column("return_sent_packets", back(&|t| t.sent_packets)),
            column("return_sent_bytes", back(&|t| t.sent_bytes)),
            column("return_dropped_packets", back(&|t| t.dropped_packets)),
            column("return_carrier_seconds", number(&|t| t.carrier_time.as_secs_f64())),
            column("return_queue_delay_mean", number(&|t| t.queue_delay()[0])),
            column("return_queue_delay_p95", number(&|t| t.queue_delay()[2])),
        ]);
    }
    Some(columns)
}

/// One row a length.
pub fn drop_runs(results: &Results) -> Columns {
    vec![
        column("length", UInt32Array::from_iter_values(results.drop_runs.iter().map(|(length, _)| *length))),
        column("count", UInt64Array::from_iter_values(results.drop_runs.iter().map(|(_, count)| *count))),
    ]
}
