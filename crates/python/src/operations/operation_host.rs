//! A call from Python into the protocol: its state until its end, and the place for failures (P8).

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::core::timer_core::TimerCore;
use crate::operations::operation_object::{DelayedOperation, Waiters};
use crate::operations::purgatory_setup::PurgatorySetup;
use crate::tools::errors;
use crate::tools::fork::fork_epoch;
use crate::values::callback_scope;
use crate::values::coroutines;
use crate::values::report_failure::{self, Failure, Source};

/// One call into the protocol.
pub(crate) struct PythonHost<'py> {
    pub(super) py: Python<'py>,
    /// The process in which it was made.
    pub(super) epoch: u32,
    /// A `KeyboardInterrupt` or `SystemExit`, kept until the call is over, so that the protocol finishes its work.
    pub(super) exit: RefCell<Option<PyErr>>,
    /// Whether the caller gets that exit.
    pub(super) propagates: bool,
    /// The waiter of a watching call, which is called with the end of the wait.
    pub(super) waiter: RefCell<Option<Py<PyAny>>>,
    /// The context of a watching call, for the deadline that it sets.
    pub(super) context_of_add: RefCell<Option<Py<PyAny>>>,
    /// References that were replaced when the deadline was set, to be dropped without a lock.
    pub(super) removed: RefCell<Vec<Py<PyAny>>>,
    /// The timer of an operation that is in no purgatory: its failures go to that timer's `on_error`.
    pub(super) timer: Option<&'py Arc<TimerCore>>,
    /// The context in which the methods of an ending run.
    pub(super) context: Option<&'py Py<PyAny>>,
}

impl<'py> PythonHost<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        Self::of_timer(py, true)
    }

    /// For a call by a timer, which may have no caller that an exit reaches.
    pub(crate) fn of_timer(py: Python<'py>, propagates: bool) -> Self {
        Self {
            py,
            epoch: fork_epoch(),
            exit: RefCell::new(None),
            propagates,
            waiter: RefCell::new(None),
            context_of_add: RefCell::new(None),
            removed: RefCell::default(),
            timer: None,
            context: None,
        }
    }

    /// For an operation on this timer; `context` is the context of its add.
    pub(crate) fn with_timer(self, timer: Option<&'py Arc<TimerCore>>, context: Option<&'py Py<PyAny>>) -> Self {
        Self { timer, context, ..self }
    }

    /// For a watching call with a waiter.
    pub(crate) fn with_waiter(py: Python<'py>, waiter: &Bound<'py, PyAny>) -> Self {
        let host = Self::new(py);
        host.waiter.replace(Some(waiter.clone().unbind()));
        host
    }

    /// Sets the context of the deadline that this watching call sets.
    pub(crate) fn set_context(&self, context: Option<Py<PyAny>>) {
        self.context_of_add.replace(context);
    }

    /// Calls the waiters of an operation.
    pub(super) fn call_waiters(
        &self,
        setup: Option<&PurgatorySetup>,
        op: &Py<DelayedOperation>,
        waiters: Option<Box<Waiters>>,
        how: Option<bool>,
    ) {
        let Some(waiters) = waiters else { return };
        for waiter in &waiters.0 {
            if let Err(error) = waiter.call1(self.py, (how,)) {
                self.report_failure(setup, op, None, error);
            }
        }
    }

    /// Calls a method of an operation that ends.
    pub(super) fn call_method(&self, op: &Py<DelayedOperation>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let op = op.bind(self.py);
        let returned = match self.context {
            None => op.call_method0(name),
            Some(_) => callback_scope::call_in_context(self.context, &op.getattr(name)?, None),
        };
        coroutines::check_method_result(&returned?, name)
    }

    pub(crate) fn has_exit(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Returns the call's result, or the exit that was kept.
    pub(crate) fn finish<T>(self, result: T) -> PyResult<T> {
        self.check_exit().map(|()| result)
    }

    /// Returns the exit that was kept, if any.
    pub(crate) fn check_exit(&self) -> PyResult<()> {
        match self.exit.take() {
            Some(exit) => Err(exit),
            None if self.epoch == fork_epoch() => Ok(()),
            // A method forked, and this is the child.
            None => Err(errors::operation_forked(self.py)),
        }
    }

    /// Reports an error that the caller does not see (P8), to the timer of the purgatory, or of the operation.
    pub(super) fn report_failure(
        &self,
        setup: Option<&PurgatorySetup>,
        op: &Py<DelayedOperation>,
        method: Option<&Bound<'_, PyString>>,
        error: PyErr,
    ) {
        if self.epoch != fork_epoch() {
            return; // a method forked, and this is the child: `finish` returns that error
        }
        if self.propagates && callback_scope::is_exit(self.py, &error) {
            self.keep_exit(error);
            return;
        }
        let task = op.bind(self.py).as_any();
        let method = method.map(ToString::to_string);
        let method = method.as_deref();
        let timer = setup.map(|setup| setup.core.arc()).or(self.timer);
        let purgatory = setup.map(|setup| setup.name.as_str());
        let failure = Failure {
            timer: timer.map(|timer| timer.name.as_str()),
            event_loop: timer.and_then(|timer| timer.callees.event_loop(self.py)),
            on_error: timer.and_then(|timer| timer.on_error(self.py)),
            logged: timer.map(|timer| &*timer.logged_failures),
            task,
            name: op.bind(self.py).as_super().get().name(self.py),
            source: Source::Operation { purgatory, method },
            error,
        };
        if let Err(exit) = report_failure::report(self.py, &failure, self.propagates) {
            self.keep_exit(exit);
        }
    }

    pub(super) fn keep_exit(&self, exit: PyErr) {
        let earlier = self.exit.take();
        if earlier.is_some() {
            exit.set_context(self.py, earlier);
        }
        self.exit.replace(Some(exit));
    }
}
