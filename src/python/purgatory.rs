//! `DelayedOperationPurgatory`: where operations wait for an event on a key, or for their deadline.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString, PyTuple};

use super::args::{self, Given};
use super::border::{Own, attach};
use super::contexts;
use super::coroutine_functions;
use super::errors;
use super::finalizing::{self, ForeignCall};
use super::gil::GilCell;
use super::keys::{Key, Keys};
use super::on_error::OnError;
use super::operation::DelayedOperation;
use super::settings;
use super::shared::not_picklable;
use super::side::{Core, Home, Side};
use super::system::SystemTimer;
use super::timer::Timer;
use crate::purgatory::{Cause, ShortList, WatchError, WatchResult};

/// So many keys are compared all with all; more are not.
const MANY: usize = 16;

/// Where operations wait for an event on a key, or for their deadline, whichever comes first.
///
/// `timer`: where the deadlines are put, a `SystemTimer` or a `ManualTimer`; by default one of its own.
/// `timer_enabled`: with `False` no deadline is set, and operations wait until an event. `on_error(operation,
/// exception)` gets what their methods raise where no caller sees it; by default the timer's. Keys are any hashable
/// value. `len` is the number of operations that wait. After Kafka's `DelayedOperationPurgatory`; see
/// `DelayedOperation` for an example.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(super) struct DelayedOperationPurgatory {
    /// Set by `__init__`.
    made: OnceLock<Made>,
    /// What shutdown found waiting.
    unfinished: GilCell<Option<Py<PyList>>>,
}

/// What a purgatory consists of once it is initialized.
struct Made {
    core: Own<Core>,
    /// Held, so that it takes new deadlines.
    timer: Py<Timer>,
    owns_timer: bool,
}

impl Made {
    /// No thread can check a key any more.
    fn leave(&self, py: Python<'_>) {
        let on_error = &self.core.environment.on_error;
        on_error.owner_is_gone(py);
        self.core.abandon(&Side::new(py));
        on_error.let_go(py); // what still waits for its deadline has a reference of its own
    }
}

/// A purgatory while a call that may run foreign code uses it.
struct Open<'a> {
    core: &'a Arc<Core>,
    _call: ForeignCall,
}

impl Deref for Open<'_> {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        self.core
    }
}

#[pymethods]
impl DelayedOperationPurgatory {
    /// Takes whatever the `__init__` of a subclass takes; ours fills it in.
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(name, timer=None, timer_enabled=True, *, on_error=None)"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { made: OnceLock::new(), unfinished: GilCell::default() }
    }

    #[pyo3(signature = (name, timer=None, timer_enabled=Given::LEFT_OUT, *, on_error=None))]
    fn __init__<'py>(
        &self,
        name: &Bound<'py, PyAny>,
        timer: Option<&Bound<'py, PyAny>>,
        timer_enabled: Given<'py>,
        on_error: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = name.py();
        let _call = ForeignCall::enter(py)?;
        self.check_new()?;
        let timer_enabled = timer_enabled.flag("timer_enabled", true, "with False no deadline is set")?;
        let text = settings::text(name, "name", "it names the purgatory in errors, and its timer")?;
        if let Some(on_error) = on_error {
            coroutine_functions::check_on_error(on_error)?;
        }
        let owns_timer = timer.is_none();
        let timer = if let Some(timer) = timer {
            timer.cast::<Timer>().cloned().map_err(|_| {
                let given = timer.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
                PyTypeError::new_err(format!(
                    "timer must be a SystemTimer or a ManualTimer, got {given}: leave it out for one of its own"
                ))
            })?
        } else {
            let options = PyDict::new(py);
            options.set_item("on_error", on_error)?;
            py.get_type::<SystemTimer>().call((name,), Some(&options))?.cast_into::<Timer>()?
        };
        let open = timer.get().open(py)?;
        let shared = Arc::clone(open.shared());
        shared.check_process(py)?;
        let home = Home {
            name: text,
            shared: Own::new(shared),
            share: open.share().clone_ref(py),
            timer_enabled,
            on_error: OnError::new(on_error),
            has_on_error: on_error.is_some(),
            keys: Arc::new(Keys::default()),
        };
        let core = Own::new(Arc::new(Core::new(home)));
        // Another thread may have been faster.
        self.made.set(Made { core, timer: timer.clone().unbind(), owns_timer }).or_else(|_| self.check_new())
    }

    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.core()?.environment.name)
    }

    /// The timer that its deadlines are on.
    #[getter]
    fn timer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Timer>> {
        Ok(self.made()?.timer.bind(py).clone())
    }

    /// Places on the lists of all keys: an operation under three keys has three [P4].
    #[getter]
    fn watched(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.core_here(py)?.counts(&Side::new(py)).watched)
    }

    /// Operations on the timer [P4].
    #[getter]
    fn num_delayed(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.core_here(py)?.delayed())
    }

    /// What `shutdown` found waiting, in order of arrival; empty before it.
    #[getter]
    fn unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.made()?;
        Ok(self.unfinished_list(py).unwrap_or_else(|| PyList::empty(py)))
    }

    /// How many operations wait.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.core_here(py)?.counts(&Side::new(py)).waiting as usize)
    }

    /// A purgatory is not a container: an empty one is true.
    fn __bool__(&self) -> bool {
        true
    }

    /// Try `operation`; if it is not complete, watch it under every key, try it once more, and set its deadline
    /// [P2].
    ///
    /// Returns `True` only if this call completed it. `keys` is a collection: for one key that is a tuple pass `[key]`.
    /// Equal keys count once. Errors: `ValueError` without a key, or for an operation that waits already; `TypeError`
    /// for a key that is not hashable; `TimerClosed` after `shutdown`; as `add` of the timer: it is then on the timer
    /// that it was on before, if any. What its `try_complete` raises: then it is on none. In all cases it is watched
    /// nowhere.
    #[pyo3(signature = (operation, keys))]
    fn try_complete_else_watch(&self, operation: &Bound<'_, PyAny>, keys: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.watch(&Side::new(operation.py()), operation, keys).map(|watched| watched.is_completed_by_call)
    }

    /// As `try_complete_else_watch`; has `waiter` called with how this wait ends: `True` in time, `False` expired,
    /// `None` taken out. Returns the number of the wait, for `_cancel_wait`; `None` if it was complete before.
    fn _watch(
        &self,
        operation: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
        waiter: &Bound<'_, PyAny>,
    ) -> PyResult<Option<u64>> {
        let py = operation.py();
        let _call = ForeignCall::enter(py)?;
        let watched = self.watch(&Side::with_waiter(py, waiter), operation, keys)?;
        if watched.number.is_none()
            && let Some(how) = operation.cast::<DelayedOperation>()?.get().ended_or_waits(py, waiter)
        {
            waiter.call1((how == Cause::Event,))?;
        }
        Ok(watched.number)
    }

    /// Take `operation` out, if it is still in the wait of that number; whether it was.
    fn _cancel_wait(&self, operation: &Bound<'_, DelayedOperation>, number: u64) -> PyResult<bool> {
        let py = operation.py();
        let core = self.open(py)?;
        let side = Side::new(py);
        let is_out = core.cancel_arrival(&side, operation.as_unbound(), number);
        side.over(is_out)
    }

    /// Try every operation that watches `key`; returns how many this call completed [P3]. An unknown key is 0.
    ///
    /// What one raises goes to `on_error`, and the rest is tried all the same. O(operations under the key). Inside a
    /// `try_complete` it returns 0: the outermost call of this thread makes the check when its own tries have returned,
    /// and before it returns itself. Where such checks ask for each other without end, the timer makes the rest a
    /// little later, after 1 ms and up to 1 s.
    #[pyo3(signature = (key))]
    fn check_and_complete(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = key.py();
        let core = self.core_here(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(0) };
        let Some(key) = core.environment.keys.find(key)? else { return Ok(0) };
        let side = Side::new(py);
        let count = core.check_and_complete(&side, &key);
        side.over(count)
    }

    /// Take out the key's operations that are neither complete nor being completed, and return them in order [P4].
    ///
    /// They are off the timer and off all their keys; the caller may complete them, or watch them again.
    #[pyo3(signature = (key))]
    fn cancel_for_key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = key.py();
        let core = self.core_here(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(PyList::empty(py)) };
        let Some(key) = core.environment.keys.find(key)? else { return Ok(PyList::empty(py)) };
        let side = Side::new(py);
        let cancelled = core.cancel_for_key(&side, &key);
        PyList::new(py, side.over(cancelled)?)
    }

    /// Watch `operation` and wait for it, from asyncio: `True` if it completed in time, `False` if it expired.
    ///
    /// Cancelled, it takes the operation out. Errors: `OperationCancelled` if somebody else takes it out; as
    /// `try_complete_else_watch`. The operation's own methods run in the loop's thread only if the timer's executor is
    /// the loop and all checks are made there.
    #[pyo3(signature = (operation, keys))]
    fn wait<'py>(
        slf: &Bound<'py, Self>,
        operation: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _call = ForeignCall::enter(slf.py())?;
        slf.py().import("tickwheel.aio")?.call_method1("wait", (slf, operation, keys))
    }

    /// Counters: `waiting`, `delayed`, `watched`, `keys`, `completed`, `expired`, `cancelled`, and `waited_ms`: how
    /// long those that completed or expired have waited, taken together.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.core_here(py)?.counts(&Side::new(py));
        let stats = PyDict::new(py);
        stats.set_item("waiting", counts.waiting)?;
        stats.set_item("delayed", counts.delayed)?;
        stats.set_item("watched", counts.watched)?;
        stats.set_item("keys", counts.keys)?;
        stats.set_item("completed", counts.completed)?;
        stats.set_item("expired", counts.expired)?;
        stats.set_item("cancelled", counts.cancelled)?;
        stats.set_item("waited_ms", counts.waited_us as f64 / 1000.0)?;
        Ok(stats)
    }

    /// Stop: let nobody in any more, and return the operations that still wait, in order of arrival.
    ///
    /// They are off the timer and off all keys, and stay in `unfinished`. A timer of its own is shut down first, as
    /// its `shutdown` says, so what is due by now expires; a timer that was given goes on. Calling twice is fine.
    #[pyo3(signature = (timeout_ms=None))]
    fn shutdown<'py>(&self, py: Python<'py>, timeout_ms: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
        let (core, made) = (self.core_here(py)?, self.made()?);
        let Some(_call) = ForeignCall::try_enter(py) else { return self.unfinished(py) };
        timeout_ms.map(|timeout_ms| args::ms(timeout_ms, "timeout_ms")).transpose()?;
        if made.owns_timer {
            made.timer.bind(py).call_method1("shutdown", (timeout_ms,))?;
        }
        let side = Side::new(py);
        let found = core.close(&side);
        // What an earlier call found, or one that came in between, stays.
        let kept = self
            .unfinished
            .with(py, |unfinished| unfinished.get_or_insert_with(|| PyList::empty(py).unbind()).clone_ref(py));
        found.into_iter().try_for_each(|operation| kept.bind(py).append(operation))?;
        side.over(())?; // what is kept is not lost by an exit
        Ok(kept.bind(py).get_slice(0, kept.bind(py).len()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().made()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, _exc, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        _exc: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if slf.get().core()?.environment.shared.is_forked() && !exc_type.is_none() {
            return Ok(()); // a child that leaves its parent's block by sys.exit gets its exit
        }
        let Some(_call) = ForeignCall::try_enter(slf.py()) else { return Ok(()) };
        slf.call_method0("shutdown").map(drop)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_picklable("DelayedOperationPurgatory"))
    }

    /// What only callers of the purgatory can use, its operations and its keys too (border rule 8).
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(Made { core, timer, .. }) = self.made.get()
            && Core::is_quiet(core.arc())
        {
            let home = &core.environment;
            visit.call(timer)?;
            home.on_error.visit(&visit)?;
            // What waits for a reaper is alive in any case: no need to go along the lists.
            let is_alive = home.shared.hides_pending() && core.all_have_deadlines();
            if !is_alive && !home.shared.is_forked() {
                core.try_visit(|operation| visit.call(operation))?;
                home.keys.visit(&visit)?;
            }
        }
        self.unfinished.visit(&visit, |list| visit.call(list))
    }

    /// For what else cannot be cleared: a tuple that is a key, a method of the purgatory itself as `on_error`. As when it is
    /// dropped: no thread can check a key any more.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        if let Some(made) = self.made.get()
            && !made.core.environment.shared.is_forked()
        {
            made.leave(py);
        }
        let unfinished = self.unfinished.with(py, Option::take);
        drop(unfinished);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        let Ok(core) = slf.get().core() else { return Ok(format!("<{class} not initialized>")) };
        if core.environment.shared.is_forked() {
            return Ok(format!("<{class} '{}' of the parent process>", core.environment.name));
        }
        Ok(format!("<{class} '{}' {} waiting>", core.environment.name, slf.get().__len__(slf.py())?))
    }
}

impl DelayedOperationPurgatory {
    /// `RuntimeError` if `__init__` has run before.
    fn check_new(&self) -> PyResult<()> {
        match self.made.get() {
            None => Ok(()),
            Some(made) => Err(PyRuntimeError::new_err(format!(
                "purgatory '{}' is initialized already, and nothing was changed: make a new one for other settings",
                made.core.environment.name
            ))),
        }
    }

    #[inline]
    fn made(&self) -> PyResult<&Made> {
        self.made.get().ok_or_else(uninitialized)
    }

    #[inline]
    fn core(&self) -> PyResult<&Arc<Core>> {
        Ok(self.made()?.core.arc())
    }

    /// The core, in the process that made it.
    fn core_here(&self, py: Python<'_>) -> PyResult<&Arc<Core>> {
        let core = self.core()?;
        core.environment.shared.check_process(py)?;
        Ok(core)
    }

    /// As `core_here`, for a call that may run foreign code. Errors: `TimerClosed` at the end of the interpreter.
    fn open(&self, py: Python<'_>) -> PyResult<Open<'_>> {
        Ok(Open { core: self.core_here(py)?, _call: ForeignCall::enter(py)? })
    }

    fn watch(&self, side: &Side<'_>, operation: &Bound<'_, PyAny>, keys: &Bound<'_, PyAny>) -> PyResult<WatchResult> {
        let py = operation.py();
        let core = self.open(py)?;
        let operation = operation.cast::<DelayedOperation>().map_err(|_| {
            let given = operation.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!("operation must be a DelayedOperation, got {given}: subclass that"))
        })?;
        operation.get().check_process(py)?;
        operation.as_super().get().delay(py)?;
        let keys = core.environment.hold(keys)?;
        if core.environment.timer_enabled {
            side.set_context(contexts::of_add(&core.environment.shared, None, py)?);
        }
        let watched = core.try_complete_else_watch(side, operation.as_unbound(), keys);
        if let Ok(WatchResult { number: Some(number), .. }) = watched
            && side.exits()
        {
            // Another operation's ending raised it. A caller that gets an exception has nothing to cancel.
            core.cancel_arrival(side, operation.as_unbound(), number);
        }
        side.check()?;
        watched.map_err(|error| match error {
            WatchError::Waiting => PyValueError::new_err(
                "this operation waits in a purgatory already: make a new one for each wait, or cancel() it first",
            ),
            WatchError::Closed => errors::purgatory_closed(py, &core.environment.name),
            WatchError::Timer(error) | WatchError::Failed(error) => error,
        })
    }

    /// A copy of what shutdown found waiting; `None` before it.
    fn unfinished_list<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        let list = self.unfinished.with(py, |list| list.as_ref().map(|list| list.clone_ref(py)))?.into_bound(py);
        Some(list.get_slice(0, list.len()))
    }
}

impl Home {
    /// The keys of an operation, each once.
    fn hold(&self, keys: &Bound<'_, PyAny>) -> PyResult<ShortList<Key>> {
        let refuse = || {
            let given = keys.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!("keys must be a collection of keys, got {given}: for one key pass [key]"))
        };
        let is_one = keys.is_instance_of::<PyString>()
            || keys.is_instance_of::<PyBytes>()
            || keys.is_instance_of::<PyByteArray>()
            || (keys.is_instance_of::<PyTuple>() && keys.hasattr("_fields")?); // a named tuple is one key
        if is_one {
            return Err(refuse());
        }
        let (mut held, mut seen) = (ShortList::new(), HashSet::new());
        let mut hold = |key: &Bound<'_, PyAny>| -> PyResult<()> {
            let key = self.keys.hold(key)?;
            let is_new = if held.len() < MANY { !held.contains(&key) } else { seen.insert(key.id()) };
            if is_new {
                held.push(key);
            }
            if held.len() == MANY {
                seen.extend(held.iter().map(Key::id));
            }
            Ok(())
        };
        if let Ok(list) = keys.cast_exact::<PyList>() {
            // Without an iterator object.
            list.iter().try_for_each(|key| hold(&key))?;
        } else {
            keys.try_iter().map_err(|_| refuse())?.try_for_each(|key| hold(&key?))?;
        }
        if held.is_empty() {
            return Err(PyValueError::new_err(
                "an operation needs at least one key to wait for, got none: name what completes it",
            ));
        }
        Ok(held)
    }
}

/// No thread can check a key any more. Operations with a deadline still wait for that; without one, nothing can come.
impl Drop for DelayedOperationPurgatory {
    fn drop(&mut self) {
        finalizing::let_go(std::mem::take(&mut self.unfinished));
        let Some(made) = self.made.take() else { return };
        if made.core.environment.shared.is_forked() {
            return;
        }
        attach(|py| match ForeignCall::try_enter(py) {
            Some(_call) => {
                made.leave(py);
                drop(made);
            }
            None => std::mem::forget(made), // its destructors are foreign code
        });
    }
}

#[cold]
fn uninitialized() -> PyErr {
    PyRuntimeError::new_err(
        "this purgatory is not initialized yet: call super().__init__() with its settings first, in the __init__ of the \
         subclass",
    )
}
