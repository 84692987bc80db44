//! What a `TimerTask` keeps, in 40 bytes: with what Python adds, a task takes 80, and there may be millions.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::python::core::timer_core::TimerCore;
use crate::python::core::timer_ref::TimerRef;
use crate::python::tools::args::Ms;
use crate::wheel::Handle;

#[derive(Default)]
pub(crate) struct TaskFields {
    pub(crate) callback: Option<Py<PyAny>>,
    /// What most tasks do not have.
    extra: Option<Box<Extra>>,
    /// The timer it is on, if it is on one, and the handle there.
    timer: Option<Py<TimerRef>>,
    handle: u64,
    delay: u32,
    unit: DelayUnit,
    pub(crate) kind: TaskKind,
    /// It refers to nothing but what is written here, so the garbage collector need not know of it while it is pending.
    pub(crate) is_plain: bool,
    /// What it runs is a coroutine function.
    pub(crate) is_coroutine: bool,
}

#[derive(Default)]
struct Extra {
    args: Option<Py<PyTuple>>,
    name: Option<Py<PyString>>,
    /// A delay that is too long, or too fine, for four bytes.
    delay: Option<Ms>,
    /// What a loop runs the callback in, while the task is on a timer.
    context: Option<Py<PyAny>>,
}

/// What the delay counts.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum DelayUnit {
    /// `__init__` has not run.
    #[default]
    None,
    Ms,
    Us,
    /// It stands in [`Extra`].
    Long,
}

/// What a task does when it is due.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskKind {
    #[default]
    Callback,
    /// As [`TaskKind::Callback`]; made by `after` or `at`: lets go of it once it can never run again (T19).
    Once,
    /// As [`TaskKind::Once`]; made by the library for itself: no user is to get it back.
    Internal,
    /// Its class has a `run` of its own.
    Method,
    /// A `DelayedOperation`.
    Expiry,
}

/// Callback and arguments.
pub(crate) type CallbackAndArgs = (Option<Py<PyAny>>, Option<Py<PyTuple>>);

impl TaskFields {
    #[inline]
    pub(crate) fn new(
        delay: Option<Ms>,
        callback: Option<Py<PyAny>>,
        args: Option<Py<PyTuple>>,
        name: Option<Py<PyString>>,
    ) -> Self {
        let has_extra = args.is_some() || name.is_some();
        let extra = has_extra.then(|| Box::new(Extra { args, name, delay: None, context: None }));
        let mut fields = Self { callback, extra, ..Self::default() };
        if let Some(delay) = delay {
            fields.set_delay(delay);
        }
        fields
    }

    #[inline]
    pub(crate) fn set_delay(&mut self, delay: Ms) {
        // Saturating casts; a delay that does not come back the same is not one of these.
        (self.delay, self.unit) = (delay.0 as u32, DelayUnit::Ms);
        #[expect(clippy::float_cmp, reason = "whether it is the same")]
        let is_ms = f64::from(self.delay) == delay.0;
        if !is_ms {
            self.set_fine_delay(delay);
        }
    }

    #[cold]
    fn set_fine_delay(&mut self, delay: Ms) {
        (self.delay, self.unit) = ((delay.0 * 1000.0).round() as u32, DelayUnit::Us);
        if self.delay() == Some(delay) {
            return;
        }
        self.unit = DelayUnit::Long;
        self.extra.get_or_insert_default().delay = Some(delay);
    }

    pub(crate) fn delay(&self) -> Option<Ms> {
        match self.unit {
            DelayUnit::None => None,
            DelayUnit::Ms => Some(Ms(self.delay.into())),
            DelayUnit::Us => Some(Ms(f64::from(self.delay) / 1000.0)),
            DelayUnit::Long => self.extra.as_ref()?.delay,
        }
    }

    pub(crate) fn call(&self, py: Python<'_>) -> CallbackAndArgs {
        let args = self.extra.as_ref().and_then(|extra| extra.args.as_ref());
        (self.callback.as_ref().map(|callback| callback.clone_ref(py)), args.map(|args| args.clone_ref(py)))
    }

    pub(crate) fn name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.extra.as_ref()?.name.as_ref().map(|name| name.clone_ref(py))
    }

    /// Whether it was made by `after`, `at` or the library: it runs once at the most.
    pub(crate) fn is_one_shot(&self) -> bool {
        matches!(self.kind, TaskKind::Once | TaskKind::Internal)
    }

    /// Whether there is something to run.
    pub(crate) fn can_run(&self) -> bool {
        matches!(self.kind, TaskKind::Method | TaskKind::Expiry) || self.callback.is_some()
    }

    /// Whether it refers to an object of the user's, whose destructor may be foreign code.
    pub(crate) fn refers(&self) -> bool {
        self.callback.is_some() || self.extra.is_some()
    }

    /// Callback and arguments of a one-shot task, which can never run again.
    pub(crate) fn take_one_shot_call(&mut self) -> Option<CallbackAndArgs> {
        self.is_one_shot().then(|| (self.callback.take(), self.extra.as_mut().and_then(|extra| extra.args.take())))
    }

    /// The timer it is on, and its handle there.
    pub(crate) fn on(&self) -> Option<(&Arc<TimerCore>, Handle)> {
        self.timer.as_ref().map(|timer_ref| (timer_ref.get().core(), Handle::from_bits(self.handle)))
    }

    /// Returns what timer it was on before, to be dropped where Python code may run.
    #[must_use]
    pub(crate) fn put_on(&mut self, timer_ref: Py<TimerRef>, handle: Handle) -> Option<Py<TimerRef>> {
        self.handle = handle.to_bits();
        self.timer.replace(timer_ref)
    }

    /// It is off its timer, if it is the one with this handle: whether it is, and what keeps the timer, to be dropped where
    /// Python code may run.
    pub(crate) fn take_off(&mut self, handle: Handle) -> (bool, Option<Py<TimerRef>>) {
        let is_this = self.handle == handle.to_bits();
        (is_this, self.timer.take_if(|_| is_this))
    }

    /// Sets what a loop is to run the callback in; returns what that was before.
    #[must_use]
    #[cold]
    pub(crate) fn set_context(&mut self, context: Py<PyAny>) -> Option<Py<PyAny>> {
        self.extra.get_or_insert_default().context.replace(context)
    }

    /// What a loop is to run the callback in.
    #[inline]
    pub(crate) fn take_context(&mut self) -> Option<Py<PyAny>> {
        self.extra.as_mut()?.context.take()
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callback)?;
        let Some(extra) = &self.extra else { return Ok(()) };
        visit.call(&extra.args)?;
        visit.call(&extra.context)
    }

    /// Callback, arguments and context, for the garbage collector: the task cannot be reached any more.
    pub(crate) fn clear(&mut self) -> (CallbackAndArgs, Option<Py<PyAny>>) {
        let call = (self.callback.take(), self.extra.as_mut().and_then(|extra| extra.args.take()));
        (call, self.take_context())
    }
}

/// A test in Python sees whole tasks; that this part stays small is for the compiler to check.
const _: () = assert!(size_of::<TaskFields>() == 40);
