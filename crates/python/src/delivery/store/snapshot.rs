//! `StoreSnapshot`: one moment of a store, read by the engine's own SQLite. A second SQLite library in the process would drop
//! the locks of the first one.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::calls::failures;
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use crate::delivery::values::destinations::{Destinations, seen_to_python};
use crate::delivery::values::measures::fields;
use crate::delivery::values::replication;
use crate::tools::fork::{BelongsToProcess, ProcessOwned, fork_epoch};
use crate::tools::native_lock::lock_plain;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::DeliveryError;
use tickwheel_delivery::internal::{ActionSeen, Kept, Outcome, PageOf, Seen, Snapshot};

type Position = (i64, i64);
type Page<'py, T> = (Vec<Bound<'py, PyDict>>, Option<T>);
type LetterRow = (i64, i64, String, i64, String, String, Vec<u8>, Option<String>, Option<String>, Option<String>);
/// Number, key, id, due time, outcome, its time, lateness, attempts, and whether it may have arrived.
type Row = (i64, Option<String>, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<u32>, bool);

/// A key, a destination, a tenant, an event, the due times from and before which, and the most messages of a page.
type Asked = (Option<String>, Option<String>, Option<String>, Option<String>, Option<i64>, Option<i64>, usize);

/// A store as it is now, for as long as the block runs. It may be in use, and is left as it was. Bytes that are
/// not UTF-8 come as U+FFFD.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct StoreSnapshot(ProcessOwned<Opened>);

struct Opened {
    epoch: u32,
    /// Until it is closed.
    place: PlainMutex<Option<(Snapshot, SqliteInUse)>>,
}

impl BelongsToProcess for Opened {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts them")]
impl StoreSnapshot {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let in_use = SqliteInUse::begin(py)?;
        let opened = py.detach(|| Snapshot::open(&path));
        let snapshot = opened.map_err(|error| failures::to_python(py, &error))?;
        let place = PlainMutex::new(Some((snapshot, in_use)));
        Ok(Self(ProcessOwned::new(Arc::new(Opened { epoch: fork_epoch(), place }))))
    }

    /// The figures of the store.
    fn status<'py>(&self, py: Python<'py>, due_before_ms: Vec<i64>) -> PyResult<Bound<'py, PyDict>> {
        let it = self.ask(py, |snapshot| snapshot.status(&due_before_ms))?;
        let counts = fields!(
            py,
            it,
            waiting recurring due_before first_due_ms retrying may_have_arrived delivered cancelled dead expired
            dead_letters last_outcome_ms committed_ms: "last_commit_ms" paused_ms: "paused_since_ms" paused_until_ms paused_keys
            paused_key_names pause_ends down_since_ms down_reason waiting_for_events remembered_events
        );
        let taken = self.ask(py, Snapshot::last_owner)?;
        let taken = taken.map(|(epoch, host, process)| replication::taken(py, epoch, Some(&(host, process))));
        counts.set_item("replication", taken.transpose()?)?;
        Ok(counts)
    }

    /// How many named destinations there are, and those with these names, or `limit` of them.
    fn destination_figures<'py>(
        &self,
        py: Python<'py>,
        names: Option<Vec<String>>,
        limit: usize,
        now_ms: i64,
    ) -> PyResult<Destinations<'py>> {
        seen_to_python(py, self.ask(py, |snapshot| snapshot.destination_figures(names.as_deref(), limit, now_ms))?)
    }

    /// When the pause of all messages ends by itself.
    fn paused_until_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        self.ask(py, Snapshot::paused_until_ms)
    }

    /// How many keys are paused.
    fn paused_keys(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, Snapshot::paused_keys)
    }

    /// How many dead letters are kept.
    fn dead_letters(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, Snapshot::dead_letters)
    }

    /// The keys that have failed for longest, and whether all messages with attempts were looked at.
    fn longest_in_doubt<'py>(&self, py: Python<'py>, most: usize) -> PyResult<(Vec<Bound<'py, PyDict>>, bool)> {
        let found = self.ask(py, |snapshot| snapshot.longest_in_doubt(most))?;
        let keys = found
            .keys
            .into_iter()
            .map(|it| Ok(fields!(py, it, key id since_ms fails error: "last_error" next_ms: "next_try_ms" is_paused)));
        Ok((keys.collect::<PyResult<_>>()?, found.is_complete))
    }

    /// A page of open messages, and the position after which the next page begins.
    fn waiting<'py>(
        &self,
        py: Python<'py>,
        of: Asked,
        looked_at: usize,
        after: Option<Position>,
    ) -> PyResult<Page<'py, Position>> {
        page(py, self.ask(py, |snapshot| snapshot.waiting(page_of(&of, looked_at), after))?)
    }

    /// A page of remembered events, and the position after which the next page begins.
    fn remembered<'py>(
        &self,
        py: Python<'py>,
        of: Asked,
        looked_at: usize,
        after: Option<Position>,
    ) -> PyResult<Page<'py, Position>> {
        page(py, self.ask(py, |snapshot| snapshot.remembered(page_of(&of, looked_at), after))?)
    }

    /// A page of recurring messages, and the number after which the next page begins.
    fn recurring<'py>(
        &self,
        py: Python<'py>,
        of: Asked,
        looked_at: usize,
        after_seq: Option<i64>,
    ) -> PyResult<Page<'py, i64>> {
        page(py, self.ask(py, |snapshot| snapshot.recurring(page_of(&of, looked_at), after_seq))?)
    }

    /// A page of messages with this outcome, and the row of the ledger before which the next page begins.
    fn ended<'py>(
        &self,
        py: Python<'py>,
        outcome: i64,
        of: Asked,
        looked_at: usize,
        before_n: Option<i64>,
    ) -> PyResult<Page<'py, i64>> {
        let outcome = Outcome::of(outcome).ok_or_else(|| PyValueError::new_err(format!("no outcome: {outcome}")))?;
        page(py, self.ask(py, |snapshot| snapshot.ended(outcome, page_of(&of, looked_at), before_n))?)
    }

    /// The newest message with this name, with its content.
    fn show<'py>(&self, py: Python<'py>, id: &str, key: Option<&str>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(it) = self.ask(py, |snapshot| snapshot.show(key, id))? else { return Ok(None) };
        let shown = fields!(py, it, next_id key_paused_ms: "key_paused_since_ms" key_paused_until_ms payload expires_ms traceparent until_event cause event);
        shown.set_item("seq", it.seen.seq)?;
        shown.update(seen(py, it.seen)?.as_mapping())?;
        Ok(Some(shown))
    }

    /// Dead letters before this one: number, time, and the letter with the first bytes of its record, its destination, and the
    /// event that let its message go; empty: none did, and it may have waited for one.
    fn letters(
        &self,
        py: Python<'_>,
        before_n: i64,
        destination: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
        bytes: usize,
    ) -> PyResult<Vec<LetterRow>> {
        let found = self.ask(py, |snapshot| snapshot.letters(before_n, destination, tenant, limit, bytes))?;
        let row = |Kept { n, at_ms, letter: it, destination, tenant, event }| {
            (n, at_ms, it.source, it.line, it.reason, it.allowed, it.record, destination, tenant, event)
        };
        Ok(found.into_iter().map(row).collect())
    }

    /// How many dead letters are not written out.
    fn unwritten_letters(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, Snapshot::unwritten_letters)
    }

    /// The last actions, or the one with this id.
    fn actions<'py>(&self, py: Python<'py>, id: Option<&str>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let found = self.ask(py, |snapshot| snapshot.actions(id))?;
        let action = |it: ActionSeen| {
            let action = fields!(py, it, id began_ms ended_ms changed too_late);
            action.set_item("kind", it.kind.name())?;
            let filter = fields!(py, it.filter, key key_prefix due_from_ms due_before_ms destination tenant);
            action.update(filter.as_mapping())?;
            Ok(action)
        };
        found.into_iter().map(action).collect()
    }

    /// Named destinations from this name on: name, and settings in JSON without secrets.
    fn destinations(&self, py: Python<'_>, first: &str, limit: usize) -> PyResult<Vec<(String, String)>> {
        self.ask(py, |snapshot| snapshot.destinations(first, limit))
    }

    /// Tenants that were set or paused, from this name on: name, and settings in JSON.
    fn tenants(&self, py: Python<'_>, first: &str, limit: usize) -> PyResult<Vec<(String, String)>> {
        self.ask(py, |snapshot| snapshot.tenants(first, limit))
    }

    /// Counts of a report.
    fn counts<'py>(&self, py: Python<'py>, now_ms: i64, most_attempts: u32) -> PyResult<Bound<'py, PyDict>> {
        let it = self.ask(py, |snapshot| snapshot.counts(now_ms, most_attempts))?;
        let tried: Vec<_> = it.tried.iter().map(|it| (it.attempts, it.delivered, it.given_up)).collect();
        let counts = fields!(
            py,
            it,
            accepted delivered cancelled undeliverable dead_letters waiting overdue redelivered may_have_arrived since_ms
        );
        counts.set_item("tried", tried)?;
        Ok(counts)
    }

    /// What a forecast is about.
    fn ahead<'py>(&self, py: Python<'py>, now_ms: i64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found = self.ask(py, |snapshot| snapshot.ahead(now_ms))?;
        found.map(|it| Ok(fields!(py, it, from_ms most_ms last_ms messages is_past))).transpose()
    }

    /// How many messages are due in each step.
    fn due_by_step(&self, py: Python<'_>, from_ms: i64, end_ms: i64, step_ms: i64) -> PyResult<Vec<(i64, i64)>> {
        self.ask(py, |snapshot| snapshot.due_by_step(from_ms, end_ms, step_ms))
    }

    /// The keys with the most messages: the key, its messages, and how many of them wait.
    fn busy_keys(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<(String, i64, i64)>> {
        let found = self.ask(py, |snapshot| snapshot.busy_keys(limit))?;
        Ok(found.into_iter().map(|it| (it.key, it.messages, it.waiting)).collect())
    }

    /// How many messages arrived with a lateness, the first time and the last time.
    fn arrivals(&self, py: Python<'_>) -> PyResult<Option<(i64, i64, i64)>> {
        self.ask(py, Snapshot::arrivals)
    }

    /// The start of each step, its messages, and their lateness at p50, p99, p999 and the most.
    fn lateness_by_step(&self, py: Python<'_>, step_ms: i64) -> PyResult<Vec<(i64, i64, [i64; 4])>> {
        let found = self.ask(py, |snapshot| snapshot.lateness_by_step(step_ms))?;
        Ok(found.into_iter().map(|it| (it.start_ms, it.messages, it.lateness_us)).collect())
    }

    /// How many messages have a lateness up to each bound, and above the bound before.
    fn lateness_by_size(&self, py: Python<'_>, bounds_us: Vec<i64>) -> PyResult<Vec<u64>> {
        self.ask(py, |snapshot| snapshot.lateness_by_size(&bounds_us))
    }

    /// The state now, for slices.
    fn extent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let it = self.ask(py, Snapshot::extent)?;
        Ok(fields!(py, it, store_id first_n last_n last_seq dead_letters conflicts))
    }

    /// The position of the open message that is this many messages after a position.
    fn open_after(&self, py: Python<'_>, after: Position, messages: usize) -> PyResult<Option<Position>> {
        self.ask(py, |snapshot| snapshot.open_after(after, messages))
    }

    /// The messages of these rows of the ledger.
    fn ended_slice(&self, py: Python<'_>, after_n: i64, through_n: i64) -> PyResult<Vec<Row>> {
        let found = self.ask(py, |snapshot| snapshot.ended_slice(after_n, through_n))?;
        Ok(found.into_iter().map(row).collect())
    }

    /// The messages between these positions that were open when `until` were the last row and the last message.
    fn open_slice(&self, py: Python<'_>, after: Position, through: Position, until: (i64, i64)) -> PyResult<Vec<Row>> {
        let found = self.ask(py, |snapshot| snapshot.open_slice(after, through, until))?;
        Ok(found.into_iter().map(row).collect())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        raised: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let snapshot = lock_plain(py, self.place(py)?).take();
        let closed = py.detach(|| snapshot.map_or(Ok(()), |(snapshot, _in_use)| snapshot.close()));
        match closed {
            Err(error) if raised.is_none() => Err(failures::to_python(py, &error)),
            _ => Ok(()),
        }
    }
}

impl StoreSnapshot {
    /// The answer, without the GIL.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Snapshot) -> Result<T, DeliveryError> + Send,
    ) -> PyResult<T> {
        let place = self.place(py)?;
        let found = py.detach(|| match &*place.lock() {
            Some((snapshot, _)) => question(snapshot),
            None => Err(closed()),
        });
        found.map_err(|error| failures::to_python(py, &error))
    }

    /// Errors: `WrongUsage` in a forked child.
    fn place(&self, py: Python<'_>) -> PyResult<&PlainMutex<Option<(Snapshot, SqliteInUse)>>> {
        if self.0.epoch != fork_epoch() {
            let text = "this snapshot belongs to the parent process, and SQLite can't be used in a fork of it: start \
                        processes with spawn or forkserver, and open the store there";
            return Err(failures::wrong_usage(py, text));
        }
        Ok(&self.0.place)
    }
}

fn closed() -> DeliveryError {
    DeliveryError::Usage("this snapshot is closed: ask it inside its with block".to_owned())
}

fn page_of(of: &Asked, looked_at: usize) -> PageOf<'_> {
    let (key, destination, tenant, until, due_from_ms, due_before_ms, limit) = of;
    let (due_from_ms, due_before_ms, limit) = (*due_from_ms, *due_before_ms, *limit);
    let (key, destination, tenant) = (key.as_deref(), destination.as_deref(), tenant.as_deref());
    PageOf { key, destination, tenant, until: until.as_deref(), due_from_ms, due_before_ms, limit, looked_at }
}

fn page<T>(py: Python<'_>, (found, next): (Vec<Seen>, Option<T>)) -> PyResult<Page<'_, T>> {
    Ok((found.into_iter().map(|it| seen(py, it)).collect::<PyResult<_>>()?, next))
}

fn seen(py: Python<'_>, it: Seen) -> PyResult<Bound<'_, PyDict>> {
    let seen = fields!(
        py,
        it,
        key id due_ms ended_ms lateness_us attempts last_error next_try_ms may_have_arrived: "redelivered" rule
        destination tenant event_name
    );
    seen.set_item("outcome", it.outcome.map(|outcome| outcome as i64))?;
    Ok(seen)
}

fn row(it: Seen) -> Row {
    let outcome = it.outcome.map(|outcome| outcome as i64);
    let attempts = outcome.map(|_| it.attempts);
    (it.seq, it.key, it.id, it.due_ms, outcome, it.ended_ms, it.lateness_us, attempts, it.may_have_arrived)
}
