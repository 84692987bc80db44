//! `DeliveryEngine`: the engine with its threads, as Python uses it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::calls::callees::Callees;
use crate::delivery::calls::failures;
use crate::delivery::calls::raised::Raised;
use crate::delivery::engine::core::{self, Core, EXIT_WITHIN, Opening, UseHere};
use crate::delivery::engine::observer::PythonObserver;
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use crate::delivery::sinks::destination::Destination;
use crate::delivery::sinks::sink::PythonSink;
use crate::delivery::values::destinations::{self, Destinations, Tenants};
use crate::delivery::values::items;
use crate::delivery::values::measures::{EngineMeasures, counts_to_python};
use crate::delivery::values::receipts::{Receipts, gives_answers_of, writes_for};
use crate::delivery::values::records::{Options, Parts, Receipt, Records, items_of};
use crate::delivery::values::replication;
use crate::delivery::values::settings::settings_of;
use crate::engine::inspect;
use crate::engine::recording::{EventColumns, columns};
use crate::tools::fork::{ProcessOwned, fork_epoch};
use crate::tools::native_lock::{SIGNAL_CHECK_US, attach};
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::internal::{
    Answers, DueClock, Engine, OpenSink, Opened, Ownership, Running, Ticket, is_open_here,
};
use tickwheel_delivery::{DeliveryError, Replicate, Replication, Settings, Verdict};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// How long to wait while another thread of this process opens or closes the store.
const PASSES_WITHIN: Duration = Duration::from_secs(60);

/// The number of a new engine.
fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// A store that is being delivered, until `close`. Nothing is due before `start`.
///
/// `settings`: a `tickwheel.delivery.model.settings.Settings`. `sink`: a `Destination`, or a function that opens a `Sink` for
/// a store's id. `put_letters` gets lists of dead letters, `put_events` lists of events, both in a
/// thread of their own. `waiting` is called with a text if another process has the store, `standing_by` if one owns the store that
/// this one is replicated to (D21), with each new text. `check` is called again and again while it has; what it raises ends the wait.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct DeliveryEngine(ProcessOwned<Core>);

#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts them")]
impl DeliveryEngine {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one call")]
    #[pyo3(signature = (path, settings, sink, *, put_letters, put_events, waiting, standing_by, check=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        settings: &Bound<'_, PyAny>,
        sink: &Bound<'_, PyAny>,
        put_letters: Py<PyAny>,
        put_events: Py<PyAny>,
        waiting: Py<PyAny>,
        standing_by: Py<PyAny>,
        check: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let _opening = Opening::begin(py)?;
        let settings = settings_of(settings)?;
        let in_use = SqliteInUse::begin(py)?;
        let raised = Raised::default();
        let callees = Callees::of_engine(next_id());
        let open = opener_of(sink, &callees, &raised, settings.concurrency);
        let (put_letters, put_events) = (callees.add(py, put_letters), callees.add(py, put_events));
        let observer = PythonObserver { engine: callees.engine(), put_letters, put_events };
        let is_used = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(Asked { waiting, standing_by, check });
        let opened = py.detach(|| open_all(&path, settings, open, observer, &asked, &raised, &callees, &is_used));
        let (running, receipts) = opened.map_err(|error| match raised.take(py) {
            Some(raised) => raised,
            None => failures::to_python(py, &error),
        })?;
        let core = Arc::new(Core::new(&path, running, receipts, callees, is_used, in_use));
        // The interpreter may have begun to exit.
        if let Err(error) = core::check_not_exiting().and_then(|()| core::list(py, &core)) {
            core.close(py, Some(EXIT_WITHIN))?;
            return Err(error);
        }
        Ok(Self(ProcessOwned::new(core)))
    }

    /// From now on messages are due by the wall clock.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core_in_use(py)?;
        py.detach(|| core.running.start(core.running.engine().wall_clock()));
        Ok(())
    }

    /// From now on recorded times are replayed, `speed` times faster: `from_ms` is in `head_start_ms`.
    fn start_replay(&self, py: Python<'_>, speed: f64, from_ms: i64, head_start_ms: f64) -> PyResult<()> {
        let core = self.core_in_use(py)?;
        let clock = DueClock::replay(core.running.engine().clock(), speed, from_ms, head_start_ms);
        py.detach(|| core.running.start(clock));
        Ok(())
    }

    /// Submits what is given, each part as a ticket of its own, and returns the receipts once all are on disk. `options`: as
    /// `Options` has them. Looks for signals meanwhile; if a handler raises in the wait, some may be accepted.
    #[pyo3(signature = (parts, **options))]
    fn submit(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Receipt>> {
        self.check_may_wait(py)?;
        let (core, options) = (self.core_in_use(py)?, Options::of(options)?);
        let read = parts.iter().map(|part| options.read(part)).collect::<PyResult<Vec<_>>>()?;
        let mut submitted = Vec::with_capacity(read.len());
        for parts in read {
            let (receipt, complete) = tickwheel_delivery::Receipt::pair();
            queue_waiting(py, core, py.detach(|| Ticket::new(items_of(&parts), complete)))?;
            submitted.push((parts, receipt));
        }
        let answered = |(parts, receipt): (Parts, tickwheel_delivery::Receipt)| {
            loop {
                let slice = Some(Duration::from_micros(SIGNAL_CHECK_US));
                if let Some(answers) = py.detach(|| receipt.wait(slice)) {
                    let answers = answers.map_err(|error| failures::to_python(py, &error))?;
                    return Ok(Receipt::new(&parts, &answers));
                }
                py.check_signals()?;
            }
        };
        submitted.into_iter().map(answered).collect()
    }

    /// Submits what is given, and does not wait for the disk: `told` is called with the receipt once all is on disk, or with
    /// an exception. If much is queued, it waits for room. If `waits` is false, it submits nothing then, and returns what
    /// was read, to be given again. If it `follows`, it is refused if one before it was, as the store could not be written.
    #[pyo3(signature = (given, told, *, waits=true, follows=false, **options))]
    fn queue(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        told: Py<PyAny>,
        waits: bool,
        follows: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Records>> {
        let (core, parts) = (self.core_in_use(py)?, Options::of(options)?.read(given)?);
        let complete = core.receipts.completion(py, told, parts.clone());
        let complete = complete.ok_or_else(|| failures::to_python(py, &DeliveryError::Closed))?;
        let items = py.detach(|| items_of(&parts));
        if items.is_empty() && !waits {
            complete(Ok(Answers::default())); // all records are bad, so nothing has to be on disk
            return Ok(None);
        }
        let mut ticket = Ticket::new(items, complete);
        ticket.follows = follows;
        if waits {
            return queue_waiting(py, core, ticket).map(|()| None);
        }
        let submitted = py.detach(|| core.running.engine().submit_within(ticket, Duration::ZERO));
        let not_taken = submitted.map_err(|error| failures::to_python(py, &error))?;
        Ok(not_taken.map(|_| Records(parts)))
    }

    /// Raises `RuntimeError` in the thread that gives the answers: who waits for one there waits for ever.
    fn check_may_wait(&self, py: Python<'_>) -> PyResult<()> {
        if gives_answers_of(self.core(py)?.id) {
            let text = "a callback of an answer's future can't wait for another answer, which comes after it: use \
                        submit and a callback, or another thread";
            return Err(PyRuntimeError::new_err(text));
        }
        Ok(())
    }

    /// The id of what the store knows: another one after it was restored from a backup, or made anew.
    #[getter]
    fn history_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.core(py)?.running.engine().history_id())
    }

    /// How far each input was read by earlier runs, by name.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inputs = PyDict::new(py);
        for (name, progress) in self.core(py)?.running.engine().inputs() {
            inputs.set_item(name, items::progress_to_python(py, progress)?)?;
        }
        Ok(inputs)
    }

    /// The due time of the first message that waits, before `start`.
    #[getter]
    fn first_due_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        self.try_ask(py, Engine::first_due_ms)
    }

    /// The counts of `Summary`.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counts_to_python(py, &self.ask(py, Engine::summary)?)
    }

    /// `p50, p99, p999, max` of the lateness in milliseconds; known once it is closed.
    fn percentiles(&self, py: Python<'_>) -> PyResult<[Option<f64>; 4]> {
        let it = self.ask(py, Engine::percentiles)?;
        Ok([it.p50, it.p99, it.p999, it.max])
    }

    /// The measures of its own work.
    fn measures(&self, py: Python<'_>) -> PyResult<EngineMeasures> {
        let core = self.core(py)?;
        Ok(py.detach(|| EngineMeasures::of(&core.running)))
    }

    /// How many named destinations there are, and those with these names, or `limit` of them.
    fn destination_figures<'py>(
        &self,
        py: Python<'py>,
        names: Option<Vec<String>>,
        limit: usize,
    ) -> PyResult<Destinations<'py>> {
        let found = self.try_ask(py, |engine| engine.destination_figures(names.as_deref(), limit))?;
        destinations::seen_to_python(py, found)
    }

    /// How many named destinations there are, and the first `most` of them that were sent to; at last the sums of the others.
    fn destination_measures<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Destinations<'py>> {
        destinations::measures_to_python(py, self.try_ask(py, |engine| engine.destination_measures(most))?)
    }

    /// At most `limit` tenants, those of `first` and then the busiest; at last the sums of the others.
    fn tenant_figures<'py>(&self, py: Python<'py>, limit: usize, first: Vec<String>) -> PyResult<Tenants<'py>> {
        destinations::tenants_to_python(py, self.ask(py, |engine| engine.tenant_figures(limit, &first))?)
    }

    /// How many named destinations are down.
    #[getter]
    fn destinations_down(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, Engine::destinations_down)
    }

    /// The due time of the first message that waits, and how many are due by each of these times, at most `most` each.
    fn census(&self, py: Python<'_>, until_ms: Vec<i64>, most: u64) -> PyResult<(Option<i64>, Vec<u64>)> {
        let counted = self.try_ask(py, |engine| engine.census(&until_ms, most))?;
        Ok((counted.first_due_ms, counted.due))
    }

    /// The wall clock, and for each partition the instant up to which every outcome is on disk, in milliseconds since 1970.
    fn marks(&self, py: Python<'_>) -> PyResult<(i64, Vec<i64>)> {
        self.try_ask(py, |engine| {
            let now_ms = engine.wall_ms();
            Ok((now_ms, engine.marks(now_ms)?.to_vec()))
        })
    }

    /// The last openings of the store, each with the groups committed before it; and the number of groups on disk.
    fn openings(&self, py: Python<'_>) -> PyResult<(Vec<(String, i64)>, i64)> {
        self.ask(py, |engine| {
            let (openings, commits) = engine.openings();
            (openings.to_vec(), commits)
        })
    }

    /// Takes so many bytes of the budget for a body that is being received; a negative number gives back. Whether there was room.
    fn take_bytes(&self, py: Python<'_>, size: isize) -> PyResult<bool> {
        Ok(self.core(py)?.running.engine().take_bytes(size)) // it takes no lock
    }

    /// Messages and bytes in memory.
    fn in_memory(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.ask(py, Engine::in_memory)
    }

    /// How full the wheel is: a task of it is a millisecond in which messages are due, or a wait of the engine's own.
    fn occupancy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        inspect::occupancy(py, &self.ask(py, |engine| engine.timer().occupancy())?)
    }

    /// For `tickwheel.recording`: begins to record what the timer does, at most so many events; `False`: it is recorded.
    fn _record(&self, py: Python<'_>, bound: usize) -> PyResult<bool> {
        self.ask(py, |engine| engine.timer().record(bound))
    }

    /// As of `Timer`.
    fn _take_recorded<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<EventColumns<'py>> {
        let core = self.core(py)?;
        Ok(columns(py, || core.running.engine().timer().take_recorded(limit)))
    }

    /// As of `Timer`.
    fn _stop_recording<'py>(&self, py: Python<'py>) -> PyResult<EventColumns<'py>> {
        let core = self.core(py)?;
        Ok(columns(py, || core.running.engine().timer().stop_recording()))
    }

    /// The time on the timer's clock.
    fn now_us(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.core(py)?.running.engine().clock().now_us())
    }

    /// The name of the timer.
    #[getter]
    fn name(&self) -> &'static str {
        "deliver"
    }

    /// Why each send to this address of a named destination is refused, if that is known before.
    fn why_refused(&self, py: Python<'_>, url: &str) -> PyResult<Option<String>> {
        Ok(self.core(py)?.running.engine().why_refused(url))
    }

    /// Sends a test message to a named destination: how it ended, what came back, and how long it took in milliseconds.
    fn test_destination(&self, py: Python<'_>, name: &str) -> PyResult<Option<(&'static str, Option<String>, f64)>> {
        let found = self.try_ask(py, |engine| engine.test_destination(name))?;
        Ok(found.map(|(verdict, took)| {
            let (state, reason) = match verdict {
                Verdict::Delivered => ("accepted", None),
                Verdict::Refused(reason) | Verdict::Final(reason) => ("refused", Some(reason)),
                Verdict::Failed { reason, .. } => ("failed", Some(reason)),
                Verdict::Unanswered { reason, .. } | Verdict::Unreachable { reason, .. } => {
                    ("unanswered", Some(reason))
                }
                Verdict::NotTried => ("unanswered", None),
            };
            (state, reason, took.as_secs_f64() * 1_000.0)
        }))
    }

    /// Why the destination is down, if it is.
    #[getter]
    fn down(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.ask(py, Engine::down)
    }

    /// Why the store can't be written now, if it can't.
    #[getter]
    fn waits_for_store(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.ask(py, Engine::waits_for_store)
    }

    /// The figures of a replicated store; `None`: it is not replicated.
    fn replication<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.ask(py, Engine::replication)?.map(|it| replication::to_python(py, it)).transpose()
    }

    /// Whether sending is paused.
    #[getter]
    fn is_paused(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, Engine::is_paused)
    }

    /// Whether a sink is open. After `close`: whether a sink hangs.
    #[getter]
    fn has_open_sinks(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core(py)?;
        Ok(py.detach(|| core.running.has_open_sinks()))
    }

    /// Messages without an outcome.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, Engine::open_count)
    }

    /// After `close`: whether it left dead letters untold. They are told when the store is opened again.
    #[getter]
    fn left_letters(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.core(py)?.running.left_letters())
    }

    /// Raises what ended the run, if anything did.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core(py)?;
        match py.detach(|| core.running.failure()) {
            Some(error) => Err(failures::to_python(py, &error)),
            None => Ok(()),
        }
    }

    /// Ends the run with this error: nothing more is sent.
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let core = self.core(py)?;
        let error = failures::from_python(py, &PyErr::from_value(error.clone()));
        py.detach(|| core.running.fail(&error));
        Ok(())
    }

    /// Whether nothing waits any more, within that time. Raises what ended the run.
    fn wait_until_empty(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        self.core(py)?.wait_until_empty(py, timeout)
    }

    /// Sends what is due by now, commits, and stops. A sink that hangs is waited for until the time-out.
    #[pyo3(signature = (timeout_s=None))]
    fn close(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<()> {
        let timeout = timeout_s.and_then(|timeout_s| Duration::try_from_secs_f64(timeout_s.max(0.0)).ok());
        self.0.arc().close(py, timeout)
    }
}

impl DeliveryEngine {
    /// Errors: `WrongUsage` in a forked child.
    fn core(&self, py: Python<'_>) -> PyResult<&Core> {
        self.0.check_process(py)?;
        Ok(&self.0)
    }

    /// Asks the engine, without the GIL. Errors: `WrongUsage` in a forked child.
    fn ask<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Engine) -> T + Send) -> PyResult<T> {
        let core = self.core(py)?;
        Ok(py.detach(|| ask(core.running.engine())))
    }

    /// Does the same for a question that may fail.
    fn try_ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Engine) -> Result<T, DeliveryError> + Send,
    ) -> PyResult<T> {
        self.ask(py, ask)?.map_err(|error| failures::to_python(py, &error))
    }

    /// Used by calls after which the store has something to keep.
    fn core_in_use(&self, py: Python<'_>) -> PyResult<&Core> {
        let core = self.core(py)?;
        core.is_used.store(true, Ordering::SeqCst);
        Ok(core)
    }
}

/// Queues a ticket. Waits while much is queued, and looks for signals meanwhile: if a handler raises, it is not queued.
fn queue_waiting(py: Python<'_>, core: &Core, mut ticket: Ticket) -> PyResult<()> {
    if writes_for(core.id) {
        let text = "a sink's sync can't submit: the thread that called it writes what is submitted, and waits for it";
        return Err(PyRuntimeError::new_err(text));
    }
    let slice = Duration::from_micros(SIGNAL_CHECK_US);
    loop {
        let submitted = py.detach(|| core.running.engine().submit_within(ticket, slice));
        match submitted.map_err(|error| failures::to_python(py, &error))? {
            None => return Ok(()),
            Some(not_taken) => ticket = not_taken,
        }
        py.check_signals()?;
    }
}

/// Opens a `Destination`, or calls a function that opens a `Sink` for a store's id. `concurrency` comes from the
/// settings.
fn opener_of(sink: &Bound<'_, PyAny>, callees: &Callees, raised: &Raised, concurrency: usize) -> OpenSink {
    if let Ok(destination) = sink.cast::<Destination>() {
        return destination.get().opener(sink.py(), callees, raised, concurrency);
    }
    let open = callees.add(sink.py(), sink.clone().unbind());
    let (callees, raised) = (callees.clone(), raised.clone());
    Arc::new(move |store_id| {
        attach(|py| {
            let open = open.get(py).ok_or(DeliveryError::Closed)?;
            let opened = open.call1((store_id,)).and_then(|object| PythonSink::of(&object, &callees, &raised));
            opened.map(|sink| Opened::Sink(Box::new(sink))).map_err(|error| raised.kept(py, error))
        })
    })
}

/// The functions that are called while another process has the store.
struct Asked {
    waiting: Py<PyAny>,
    standing_by: Py<PyAny>,
    check: Option<Py<PyAny>>,
}

impl Asked {
    /// Errors: an exception of a signal's handler, and an exception of `check`.
    fn may_wait(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        self.check.as_ref().map_or(Ok(()), |check| check.call0(py).map(drop))?;
        core::check_not_exiting()
    }
}

/// Waits as a standby, until `asked` raises.
fn standing_by(to: Replicate, asked: &Arc<Asked>, raised: &Raised) -> Replicate {
    let (asked, raised, last) = (asked.clone(), raised.clone(), PlainMutex::new(String::new()));
    to.while_opening(move |figures| {
        let text = waits_for(figures);
        let is_new = std::mem::replace(&mut *last.lock(), text.clone()) != text;
        attach(|py| {
            let told = if is_new { asked.standing_by.call1(py, (text,)).map(drop) } else { Ok(()) };
            told.and_then(|()| asked.may_wait(py)).map_err(|error| raised.keep(py, error)).is_ok()
        })
    })
}

/// Which process a standby waits for; empty: it is not known yet.
fn waits_for(figures: &Replication) -> String {
    match (&figures.trouble, &figures.owner) {
        (Some(trouble), _) => format!("PostgreSQL does not answer ({trouble}): waiting for it"),
        (None, Some(owner)) => format!("{} owns the store: waiting for it to end", replication::name_of(owner)),
        (None, None) => String::new(),
    }
}

#[expect(clippy::too_many_arguments, reason = "one call")]
fn open_all(
    path: &Path,
    settings: Settings,
    open: OpenSink,
    observer: PythonObserver,
    asked: &Arc<Asked>,
    raised: &Raised,
    callees: &Callees,
    is_used: &Arc<AtomicBool>,
) -> Result<(Running, Receipts), DeliveryError> {
    let mut go_on = {
        let (mut last, mut passing) = (None::<Instant>, None::<Instant>);
        move || {
            if raised.is_some() {
                return false;
            }
            if last.is_some_and(|last| last.elapsed() < Duration::from_micros(SIGNAL_CHECK_US)) {
                return true;
            }
            last = Some(Instant::now());
            attach(|py| match may_wait(py, path, &mut passing, asked) {
                Ok(()) => true,
                Err(error) => {
                    raised.keep(py, error);
                    false
                }
            })
        }
    };
    let mut waits = |text: &str| {
        if is_open_here(path) {
            return;
        }
        attach(|py| {
            // A signal's handler may raise here too: it ends the wait.
            if let Err(error) = asked.waiting.call1(py, (text,)) {
                raised.keep(py, error);
            }
        });
    };
    let mut ownership = Ownership::take(path, &mut waits, &mut go_on)?;
    ownership.remove_unless(is_used.clone());
    let epoch = fork_epoch();
    let receipts = Receipts::start(callees.engine()).map_err(|error| DeliveryError::no_thread(&error))?;
    let replicate = settings.replicate.map(|to| standing_by(to, asked, raised));
    match Running::open(ownership, Settings { replicate, observer: Arc::new(observer), ..settings }, open, 1) {
        Ok(running) => Ok((running, receipts)),
        Err(error) if fork_epoch() != epoch => {
            std::mem::forget(receipts); // its thread is the parent's
            Err(error)
        }
        Err(error) => {
            receipts.end(None);
            Err(error)
        }
    }
}

/// Whether to wait for a locked store. Another process may hold it for long. If an open engine of this process has it,
/// the wait would never end.
///
/// Errors: `WrongUsage`, an exception of a signal's handler, and an exception of `check`.
fn may_wait(py: Python<'_>, path: &Path, passing: &mut Option<Instant>, asked: &Asked) -> PyResult<()> {
    asked.may_wait(py)?;
    let advice = match core::use_here(py, path)? {
        UseHere::None => return Ok(()),
        UseHere::Open => "use that queue, or close it first",
        UseHere::Passing if passing.get_or_insert_with(Instant::now).elapsed() < PASSES_WITHIN => return Ok(()),
        UseHere::Passing => "wait until it is closed",
    };
    Err(failures::wrong_usage(py, &format!("{} is open in this process already: {advice}", path.display())))
}
