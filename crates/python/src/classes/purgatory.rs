//! `DelayedOperationPurgatory` as Python sees it: its methods.

use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::classes::purgatory_object::{DelayedOperationPurgatory, PurgatoryParts};
use crate::classes::system::SystemTimer;
use crate::driving::timer_object::Timer;
use crate::operations::operation;
use crate::operations::operation_host::PythonHost;
use crate::operations::operation_object::{DelayedOperation, NativePurgatory};
use crate::operations::purgatory_setup::PurgatorySetup;
use crate::tools::args::{self, Omittable};
use crate::tools::describe::{self, set_items};
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::times;
use crate::values::keys::KeyTable;
use tickwheel::internal::purgatory::Cause;

#[pymethods]
impl DelayedOperationPurgatory {
    /// Takes any arguments, as the `__init__` of a subclass may; `DelayedOperationPurgatory.__init__` fills the object
    /// in.
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(name, timer=None, timer_enabled=True, *, on_error=None)"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { parts: OnceLock::new(), unfinished: GilCell::default() }
    }

    #[pyo3(signature = (name, timer=None, timer_enabled=Omittable::OMITTED, *, on_error=None))]
    fn __init__<'py>(
        &self,
        name: &Bound<'py, PyAny>,
        timer: Option<&Bound<'py, PyAny>>,
        timer_enabled: Omittable<'py>,
        on_error: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = name.py();
        let _call = ForeignCall::enter(py)?;
        self.check_new()?;
        let timer_enabled = timer_enabled.flag("timer_enabled", true, "with False no deadline is set")?;
        let text = args::text(name, "name", "it names the purgatory in errors, and its timer")?;
        let owns_timer = timer.is_none();
        let timer = if let Some(timer) = timer {
            let timer = timer.cast::<Timer>().cloned().map_err(|_| {
                let given = describe::type_name(timer);
                PyTypeError::new_err(format!(
                    "timer must be a SystemTimer or a ManualTimer, got {given}: leave it out for one of its own"
                ))
            })?;
            if on_error.is_some() {
                let text = "on_error is for a timer of its own, and a timer was given: give on_error to that timer";
                return Err(PyValueError::new_err(text));
            }
            timer
        } else {
            let options = PyDict::new(py);
            options.set_item("on_error", on_error)?;
            py.get_type::<SystemTimer>().call((name,), Some(&options))?.cast_into::<Timer>()?
        };
        let entered = timer.get().enter(py)?;
        let core = Arc::clone(entered.core());
        core.check_process(py)?;
        let setup = PurgatorySetup {
            name: text,
            core: ProcessOwned::new(core),
            timer_ref: entered.timer_ref().clone_ref(py),
            timer_enabled,
            keys: Arc::new(KeyTable::default()),
        };
        let native = ProcessOwned::new(Arc::new(NativePurgatory::new(setup)));
        // Another thread may have initialized it first.
        self.parts
            .set(PurgatoryParts { native, timer: timer.clone().unbind(), owns_timer })
            .or_else(|_| self.check_new())
    }

    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.native()?.environment.name)
    }

    /// The timer of its deadlines.
    #[getter]
    fn timer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Timer>> {
        Ok(self.parts()?.timer.bind(py).clone())
    }

    /// How many entries the lists of all keys have: an operation under three keys has three.
    #[getter]
    fn watched(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.checked_native(py)?.counts(&PythonHost::new(py)).watched)
    }

    /// How many operations are on the timer.
    #[getter]
    fn num_delayed(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.checked_native(py)?.delayed())
    }

    /// The operations that `shutdown` found waiting, in order of arrival; empty before `shutdown`.
    #[getter]
    fn unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.parts()?;
        Ok(self.unfinished_list(py).unwrap_or_else(|| PyList::empty(py)))
    }

    /// How many operations wait.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.checked_native(py)?.counts(&PythonHost::new(py)).waiting as usize)
    }

    /// A purgatory is not a container: it is true even if it is empty.
    fn __bool__(&self) -> bool {
        true
    }

    /// Try `operation`; if it is not complete, watch it under every key, try it again and set its deadline.
    ///
    /// Returns `True` only if this call completed it. `keys` is a collection; for a single key that is a tuple pass
    /// `[key]`. Equal keys count once. Errors: `ValueError` without a key, or if the operation waits already;
    /// `TypeError` if a key is not hashable; `TimerClosed` after `shutdown`. Also the errors of the timer's `add`.
    /// After these the operation is on the timer that it was on before, if any. The call also raises what
    /// `try_complete` raises; after that the operation is on no timer. After every error it is watched under no key.
    #[pyo3(signature = (operation, keys))]
    fn try_complete_else_watch(&self, operation: &Bound<'_, PyAny>, keys: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.watch(&PythonHost::new(operation.py()), operation, keys).map(|watched| watched.is_completed_by_call)
    }

    /// As `try_complete_else_watch`, and call `waiter` with the end of this wait: `True` in time, `False` expired,
    /// `None` taken out.
    ///
    /// Returns the number of the wait, for `_cancel_wait`; `None` if the operation was complete before.
    fn _watch(
        &self,
        operation: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
        waiter: &Bound<'_, PyAny>,
    ) -> PyResult<Option<u64>> {
        let py = operation.py();
        let _call = ForeignCall::enter(py)?;
        let watched = self.watch(&PythonHost::with_waiter(py, waiter), operation, keys)?;
        if watched.number.is_none()
            && let Some(how) = operation.cast::<DelayedOperation>()?.get().ended_or_add_waiter(py, waiter)
        {
            waiter.call1((how == Cause::Event,))?;
        }
        Ok(watched.number)
    }

    /// Take `operation` out if it is still in the wait of this number. Returns whether it was.
    fn _cancel_wait(&self, operation: &Bound<'_, DelayedOperation>, number: u64) -> PyResult<bool> {
        let py = operation.py();
        let native = self.enter(py)?;
        let host = PythonHost::new(py);
        let is_out = native.cancel_arrival(&host, operation.as_unbound(), number);
        if is_out {
            operation::note_cancelled(operation);
        }
        host.finish(is_out)
    }

    /// Try every operation under `key`. Returns how many this call completed; 0 for an unknown key.
    ///
    /// What a method raises goes to `on_error`, and the other operations are tried all the same. O(operations under the
    /// key). Inside a `try_complete` it returns 0: the outermost call of this thread makes the check after its own
    /// tries have returned, and before it returns itself. If such checks request each other without end, the timer
    /// makes the remaining ones 1 ms to 1 s later.
    #[pyo3(signature = (key))]
    fn check_and_complete(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = key.py();
        let native = self.checked_native(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(0) };
        let Some(key) = native.environment.keys.find(key)? else { return Ok(0) };
        let host = PythonHost::new(py);
        let count = native.check_and_complete(&host, &key);
        host.finish(count)
    }

    /// Take out the operations under `key` that are neither complete nor being completed. Returns them in order.
    ///
    /// They are off the timer and off all their keys. The caller may complete them, or watch them again.
    #[pyo3(signature = (key))]
    fn cancel_for_key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = key.py();
        let native = self.checked_native(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(PyList::empty(py)) };
        let Some(key) = native.environment.keys.find(key)? else { return Ok(PyList::empty(py)) };
        let host = PythonHost::new(py);
        let cancelled = native.cancel_for_key(&host, &key);
        for operation in &cancelled {
            operation::note_cancelled(operation.bind(py));
        }
        PyList::new(py, host.finish(cancelled)?)
    }

    /// Watch `operation` and wait for it, from asyncio. `True` if it completed in time, `False` if it expired.
    ///
    /// A wait that is cancelled takes the operation out. Errors: `OperationCancelled` if another caller takes it out;
    /// as `try_complete_else_watch`. The operation's methods run in the thread of the loop only if the timer's executor
    /// is that loop and all checks are made there.
    #[pyo3(signature = (operation, keys))]
    fn wait<'py>(
        slf: &Bound<'py, Self>,
        operation: &Bound<'py, PyAny>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _call = ForeignCall::enter(slf.py())?;
        slf.py().import("tickwheel.aio.waiting")?.call_method1("wait", (slf, operation, keys))
    }

    /// Counters: `waiting`, `delayed`, `watched`, `keys`, `completed`, `expired`, `cancelled` and `waited_ms`.
    ///
    /// `waited_ms` is the total time that completed and expired operations have waited.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.checked_native(py)?.counts(&PythonHost::new(py));
        let (stats, waited_ms) = (PyDict::new(py), counts.waited.as_micros() as f64 / 1000.0);
        set_items!(stats, counts.[waiting, delayed, watched, keys, completed, expired, cancelled], [waited_ms]);
        Ok(stats)
    }

    /// Accept no more operations, and return those that still wait, in order of arrival.
    ///
    /// They are off the timer and off all keys, and stay in `unfinished`. If the purgatory made its timer, that is shut
    /// down first, as by the timer's `shutdown`, and operations that are due by now expire. A timer that was passed in
    /// keeps running. A second call is allowed.
    #[pyo3(signature = (timeout_ms=None))]
    fn shutdown<'py>(&self, py: Python<'py>, timeout_ms: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
        let (native, parts) = (self.checked_native(py)?, self.parts()?);
        let Some(_call) = ForeignCall::try_enter(py) else { return self.unfinished(py) };
        timeout_ms.map(|timeout_ms| times::ms(timeout_ms, "timeout_ms")).transpose()?;
        if parts.owns_timer {
            parts.timer.bind(py).call_method1("shutdown", (timeout_ms,))?;
        }
        let host = PythonHost::new(py);
        let found = native.close(&host);
        // Keeps the operations that an earlier or a concurrent call found.
        let unfinished = self
            .unfinished
            .with(py, |unfinished| unfinished.get_or_insert_with(|| PyList::empty(py).unbind()).clone_ref(py));
        found.into_iter().try_for_each(|operation| unfinished.bind(py).append(operation))?;
        host.finish(())?; // an exit does not lose the list
        Ok(unfinished.bind(py).get_slice(0, unfinished.bind(py).len()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().parts()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, _exc, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        _exc: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if slf.get().native()?.environment.core.is_forked() && !exc_type.is_none() {
            return Ok(()); // a child that leaves the block of its parent by sys.exit gets its exit
        }
        let Some(_call) = ForeignCall::try_enter(slf.py()) else { return Ok(()) };
        slf.call_method0("shutdown").map(drop)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("DelayedOperationPurgatory"))
    }

    /// Shows the objects that only callers of the purgatory can use, its operations and keys too (border rule 8).
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(PurgatoryParts { native, timer, .. }) = self.parts.get()
            && NativePurgatory::is_quiet(native.arc())
        {
            let setup = &native.environment;
            visit.call(timer)?;
            // Operations that wait for a reaper are alive in any case, so the lists need no visit.
            let is_alive = setup.core.hides_pending() && native.all_have_deadlines();
            if !is_alive && !setup.core.is_forked() {
                native.try_visit(|operation| visit.call(operation))?;
                setup.keys.visit(&visit)?;
            }
        }
        self.unfinished.visit(&visit, |list| visit.call(list))
    }

    /// For a cycle that nothing else can break: such as a tuple that is a key.
    /// As when the purgatory is freed, no thread can check a key any more.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        if let Some(parts) = self.parts.get()
            && !parts.native.environment.core.is_forked()
        {
            parts.abandon(py);
        }
        let unfinished = self.unfinished.with(py, Option::take);
        drop(unfinished);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        let Ok(native) = slf.get().native() else { return Ok(format!("<{class} not initialized>")) };
        if native.environment.core.is_forked() {
            return Ok(format!("<{class} '{}' of the parent process>", native.environment.name));
        }
        Ok(format!("<{class} '{}' {} waiting>", native.environment.name, slf.get().__len__(slf.py())?))
    }
}
