//! The object of a `DelayedOperationPurgatory`: the parts that its `__init__` makes, and what happens when it is freed.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::core::loop_only;
use crate::driving::timer_object::Timer;
use crate::operations::operation;
use crate::operations::operation_host::PythonHost;
use crate::operations::operation_object::{DelayedOperation, NativePurgatory};
use crate::tools::describe;
use crate::tools::errors;
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::attach;
use crate::values::key_collection;
use tickwheel::internal::purgatory::{WatchError, WatchResult};

/// Operations wait here for an event on a key, or for their deadline, whichever comes first.
///
/// `timer`: the timer of the deadlines, a `SystemTimer` or a `ManualTimer`; by default one of its own. `timer_enabled`:
/// with `False` no deadlines are set, and operations wait until an event. `on_error(operation, exception)`: for a timer
/// of its own; it, or that of the given timer, is called with what the methods of an operation raise if no caller sees
/// it. A key is any hashable value. `len` is the number of waiting operations. `DelayedOperation` has an example. After
/// Kafka's `DelayedOperationPurgatory`.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(crate) struct DelayedOperationPurgatory {
    /// Set by `__init__`.
    pub(super) parts: OnceLock<PurgatoryParts>,
    /// The operations that shutdown found waiting.
    pub(super) unfinished: GilCell<Option<Py<PyList>>>,
}

/// The parts of an initialized purgatory.
pub(super) struct PurgatoryParts {
    pub(super) native: ProcessOwned<NativePurgatory>,
    /// Referred to, so that the timer accepts new deadlines.
    pub(super) timer: Py<Timer>,
    pub(super) owns_timer: bool,
}

impl PurgatoryParts {
    /// No thread can check a key any more.
    pub(super) fn abandon(&self, py: Python<'_>) {
        self.native.abandon(&PythonHost::new(py));
    }
}

/// An initialized purgatory, during a call that may run foreign code.
pub(super) struct EnteredPurgatory<'a> {
    pub(super) native: &'a Arc<NativePurgatory>,
    _call: ForeignCall,
}

impl Deref for EnteredPurgatory<'_> {
    type Target = Arc<NativePurgatory>;

    fn deref(&self) -> &Arc<NativePurgatory> {
        self.native
    }
}

impl DelayedOperationPurgatory {
    /// `RuntimeError` if `__init__` has run before.
    pub(super) fn check_new(&self) -> PyResult<()> {
        match self.parts.get() {
            None => Ok(()),
            Some(parts) => Err(PyRuntimeError::new_err(format!(
                "purgatory '{}' is initialized already, and nothing was changed: make a new one for other settings",
                parts.native.environment.name
            ))),
        }
    }

    #[inline]
    pub(super) fn parts(&self) -> PyResult<&PurgatoryParts> {
        self.parts.get().ok_or_else(uninitialized)
    }

    #[inline]
    pub(super) fn native(&self) -> PyResult<&Arc<NativePurgatory>> {
        Ok(self.parts()?.native.arc())
    }

    /// The native purgatory, in the process that made it.
    pub(super) fn checked_native(&self, py: Python<'_>) -> PyResult<&Arc<NativePurgatory>> {
        let native = self.native()?;
        native.environment.core.check_process(py)?;
        Ok(native)
    }

    /// As `checked_native`, for a call that may run foreign code. Errors: `TimerClosed` at the end of the interpreter.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<EnteredPurgatory<'_>> {
        Ok(EnteredPurgatory { native: self.checked_native(py)?, _call: ForeignCall::enter(py)? })
    }

    pub(super) fn watch(
        &self,
        host: &PythonHost<'_>,
        operation: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<WatchResult> {
        let py = operation.py();
        let native = self.enter(py)?;
        let operation = operation.cast::<DelayedOperation>().map_err(|_| {
            let given = describe::type_name(operation);
            PyTypeError::new_err(format!(
                "operation must be a DelayedOperation, got {given}: subclass DelayedOperation"
            ))
        })?;
        operation.get().check_process(py)?;
        operation.as_super().get().delay(py)?;
        let keys = key_collection::read_keys(&native.environment.keys, keys)?;
        if native.environment.timer_enabled {
            host.set_context(loop_only::context_of_add(&native.environment.core, None, py)?);
        }
        let was_cancelled = operation.as_super().get().forget_cancel(py);
        let watched = native.try_complete_else_watch(host, operation.as_unbound(), keys);
        if was_cancelled && watched.is_err() {
            operation::note_cancelled(operation); // it did not wait again
        }
        if let Ok(WatchResult { number: Some(number), .. }) = watched
            && host.has_exit()
        {
            // The ending of another operation raised it. A caller that gets an exception cannot cancel this wait.
            native.cancel_arrival(host, operation.as_unbound(), number);
        }
        host.check_exit()?;
        watched.map_err(|refused| match refused {
            WatchError::Waiting => PyValueError::new_err(
                "this operation waits in a purgatory already: make a new one for each wait, or cancel() it first",
            ),
            WatchError::Closed => errors::purgatory_closed(py, &native.environment.name),
            WatchError::Timer(error) | WatchError::Failed(error) => error,
        })
    }

    /// A copy of the list of operations that shutdown found waiting; `None` before shutdown.
    pub(super) fn unfinished_list<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        let list = self.unfinished.with(py, |list| list.as_ref().map(|list| list.clone_ref(py)))?.into_bound(py);
        Some(list.get_slice(0, list.len()))
    }
}

/// No thread can check a key any more. Operations with a deadline still wait for it; the others can never end.
impl Drop for DelayedOperationPurgatory {
    fn drop(&mut self) {
        finalizing::drop_or_leak(std::mem::take(&mut self.unfinished));
        let Some(parts) = self.parts.take() else { return };
        if parts.native.environment.core.is_forked() {
            return;
        }
        attach(|py| match ForeignCall::try_enter(py) {
            Some(_call) => {
                parts.abandon(py);
                drop(parts);
            }
            None => std::mem::forget(parts), // its destructors are foreign code
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
