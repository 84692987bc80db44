//! The fields of a `TimerTask`, in 40 bytes. With Python's header a task takes 80, and there may be millions.

use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::core::timer_core::TimerCore;
use crate::core::timer_ref::TimerRef;
use crate::tools::times::Ms;
use tickwheel::Handle;

#[derive(Default)]
pub(crate) struct TaskFields {
    pub(crate) callback: Option<Py<PyAny>>,
    /// The fields that most tasks do not need.
    extra: Option<Box<Extra>>,
    /// The timer that it is on, if any; `handle` names its entry there.
    timer: Option<Py<TimerRef>>,
    handle: u64,
    delay: u32,
    unit: DelayUnit,
    pub(crate) kind: TaskKind,
    marks: Marks,
}

/// Facts in two bytes.
#[derive(Default, Clone, Copy)]
struct Marks {
    bits: u16,
}

impl Marks {
    /// Its callback is a coroutine function.
    const COROUTINE: u16 = 1;
    /// It was cancelled, and not added since.
    const CANCELLED: u16 = 2;
    /// Its last add ended with a call.
    const HAS_RUN: u16 = 4;
    /// It refers only to the objects in its fields.
    const PLAIN: u16 = 8;
    /// The unit of the count of running calls. A task that was added again meanwhile may run twice at once, and a
    /// coroutine on a loop very often. [`Waiting`] counts the calls beyond 4,095.
    const ONE_CALL: u16 = 16;

    fn has(self, mark: u16) -> bool {
        self.bits & mark != 0
    }

    /// A call begins. `false` if there is no room to count it.
    #[must_use]
    fn begin_call(&mut self) -> bool {
        let more = self.bits.checked_add(Self::ONE_CALL);
        self.bits = more.unwrap_or(self.bits);
        more.is_some()
    }

    /// A call has ended.
    fn end_call(&mut self) {
        self.bits = self.bits.saturating_sub(Self::ONE_CALL);
    }

    /// Whether there is no room to count another call.
    fn is_full(self) -> bool {
        self.bits > u16::MAX - Self::ONE_CALL
    }

    /// Whether a call has begun that has not ended.
    fn has_call(self) -> bool {
        self.bits >= Self::ONE_CALL
    }

    fn set(&mut self, mark: u16, is_so: bool) {
        self.bits = if is_so { self.bits | mark } else { self.bits & !mark };
    }
}

#[derive(Default)]
struct Extra {
    args: Option<Py<PyTuple>>,
    name: Option<Py<PyString>>,
    /// A delay that does not fit into four bytes: too long, or too fine.
    delay: Ms,
    /// The context in which a loop will run the callback, while the task is on a timer.
    context: Option<Py<PyAny>>,
    /// Few tasks have any, and a pointer keeps this at 40 bytes.
    waiting: Option<Box<Waiting>>,
}

/// What waits for the end of the calls.
#[derive(Default)]
struct Waiting {
    waiters: Vec<Py<PyAny>>,
    /// The running calls that [`Marks`] has no room for.
    more_calls: u64,
}

/// The unit of `delay`.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum DelayUnit {
    /// `__init__` has not run.
    #[default]
    None,
    Ms,
    Us,
    /// The delay is in [`Extra`].
    Long,
}

/// What happens when the task is due.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskKind {
    #[default]
    Callback,
    /// As [`TaskKind::Callback`]; made by `after` or `at`. It drops its callback when it can never run again (T19).
    Once,
    /// As [`TaskKind::Once`]; made by the library for itself, and never given to the user.
    Internal,
    /// Its class has a `run` of its own.
    Method,
    /// One call of a series.
    Periodic,
    /// The deadline of a `DelayedOperation`.
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
        let extra = has_extra.then(|| Box::new(Extra { args, name, ..Extra::default() }));
        let mut fields = Self { callback, extra, ..Self::default() };
        if let Some(delay) = delay {
            fields.set_delay(delay);
        }
        fields
    }

    #[inline]
    pub(crate) fn set_delay(&mut self, delay: Ms) {
        // The casts saturate. A delay that does not convert back to the same value is not a whole number of these
        // units.
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
        self.extra.get_or_insert_default().delay = delay;
    }

    pub(crate) fn delay(&self) -> Option<Ms> {
        match self.unit {
            DelayUnit::None => None,
            DelayUnit::Ms => Some(Ms(self.delay.into())),
            DelayUnit::Us => Some(Ms(f64::from(self.delay) / 1000.0)),
            DelayUnit::Long => Some(self.extra.as_ref()?.delay),
        }
    }

    pub(crate) fn call(&self, py: Python<'_>) -> CallbackAndArgs {
        let args = self.extra.as_ref().and_then(|extra| extra.args.as_ref());
        (self.callback.as_ref().map(|callback| callback.clone_ref(py)), args.map(|args| args.clone_ref(py)))
    }

    pub(crate) fn name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.extra.as_ref()?.name.as_ref().map(|name| name.clone_ref(py))
    }

    /// Whether it was made by `after`, `at` or the library, so that it runs at most once.
    pub(crate) fn is_one_shot(&self) -> bool {
        matches!(self.kind, TaskKind::Once | TaskKind::Internal)
    }

    /// Whether there is something to run.
    pub(crate) fn can_run(&self) -> bool {
        matches!(self.kind, TaskKind::Method | TaskKind::Periodic | TaskKind::Expiry) || self.callback.is_some()
    }

    /// Whether it refers to an object of the user, whose destructor may be foreign code.
    pub(crate) fn refers_to_user_objects(&self) -> bool {
        self.callback.is_some() || self.extra.is_some()
    }

    /// Takes callback and arguments out of a one-shot task, which can never run again.
    pub(crate) fn take_one_shot_call(&mut self) -> Option<CallbackAndArgs> {
        self.is_one_shot().then(|| (self.callback.take(), self.extra.as_mut().and_then(|extra| extra.args.take())))
    }

    /// Puts back what [`Self::take_one_shot_call`] took; returns it if that took nothing.
    #[must_use]
    pub(crate) fn give_back_call(&mut self, (callback, args): CallbackAndArgs) -> Option<CallbackAndArgs> {
        if !self.is_one_shot() || self.callback.is_some() {
            return Some((callback, args));
        }
        self.callback = callback;
        if let Some(args) = args {
            self.extra.get_or_insert_default().args = Some(args);
        }
        None
    }

    /// The timer that it is on.
    pub(crate) fn timer_ref(&self, py: Python<'_>) -> Option<Py<TimerRef>> {
        self.timer.as_ref().map(|timer_ref| timer_ref.clone_ref(py))
    }

    /// The timer that it is on, and its handle there.
    pub(crate) fn timer_and_handle(&self) -> Option<(&Arc<TimerCore>, Handle)> {
        self.timer.as_ref().map(|timer_ref| (timer_ref.get().core(), Handle::from_bits(self.handle)))
    }

    /// Whether it refers only to the objects in these fields, so that the garbage collector can skip it while it is pending.
    pub(crate) fn is_plain(&self) -> bool {
        self.marks.has(Marks::PLAIN)
    }

    pub(crate) fn set_plain(&mut self, is_plain: bool) {
        self.marks.set(Marks::PLAIN, is_plain);
    }

    /// Whether its callback is a coroutine function.
    pub(crate) fn is_coroutine(&self) -> bool {
        self.marks.has(Marks::COROUTINE)
    }

    pub(crate) fn set_coroutine(&mut self, is_coroutine: bool) {
        self.marks.set(Marks::COROUTINE, is_coroutine);
    }

    /// Whether it was cancelled, and not added since.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.marks.has(Marks::CANCELLED)
    }

    /// A cancel took it off its timer.
    pub(crate) fn note_cancelled(&mut self) {
        self.marks.set(Marks::CANCELLED, true);
    }

    /// As before a cancel. Whether there was one.
    pub(crate) fn forget_cancel(&mut self) -> bool {
        let was_cancelled = self.is_cancelled();
        self.marks.set(Marks::CANCELLED, false);
        was_cancelled
    }

    /// It was claimed; `is_this`: and not added again since.
    pub(crate) fn note_claimed(&mut self, is_this: bool) {
        if !self.marks.begin_call() {
            self.waiting_mut().more_calls += 1;
        }
        if is_this {
            self.marks.set(Marks::HAS_RUN, true);
        }
    }

    /// A call has ended; returns the waiters, if no other call runs.
    #[inline]
    #[must_use]
    pub(crate) fn note_ended(&mut self) -> Vec<Py<PyAny>> {
        if self.marks.is_full() && self.take_further_call() {
            return Vec::new();
        }
        self.marks.end_call();
        if self.marks.has_call() { Vec::new() } else { self.take_waiters() }
    }

    /// Whether its last add ended with a call; `None` while that is open.
    pub(crate) fn has_run(&self) -> Option<bool> {
        (self.timer.is_none() && !self.marks.has_call()).then(|| self.marks.has(Marks::HAS_RUN))
    }

    /// The waiters for the end of its call.
    pub(crate) fn waiters_mut(&mut self) -> &mut Vec<Py<PyAny>> {
        &mut self.waiting_mut().waiters
    }

    /// Takes the waiters.
    #[inline]
    #[must_use]
    pub(crate) fn take_waiters(&mut self) -> Vec<Py<PyAny>> {
        let waiting = self.extra.as_mut().and_then(|extra| extra.waiting.as_mut());
        waiting.map_or_else(Vec::new, |waiting| std::mem::take(&mut waiting.waiters))
    }

    fn waiting_mut(&mut self) -> &mut Waiting {
        self.extra.get_or_insert_default().waiting.get_or_insert_default()
    }

    /// Takes one of the calls that the marks have no room for. Whether there was one.
    #[cold]
    fn take_further_call(&mut self) -> bool {
        let waiting = self.waiting_mut();
        let has_one = waiting.more_calls > 0;
        waiting.more_calls -= u64::from(has_one);
        has_one
    }

    /// As [`Self::take_waiters`], unless it was added again or its call runs: then they go on waiting.
    #[must_use]
    pub(crate) fn take_waiters_if_off(&mut self) -> Vec<Py<PyAny>> {
        if self.has_run().is_some() { self.take_waiters() } else { Vec::new() }
    }

    /// Returns the reference to the earlier timer, which is dropped where Python code may run.
    #[must_use]
    pub(crate) fn put_on(&mut self, timer_ref: Py<TimerRef>, handle: Handle) -> Option<Py<TimerRef>> {
        self.handle = handle.to_bits();
        self.marks.set(Marks::CANCELLED | Marks::HAS_RUN, false);
        self.timer.replace(timer_ref)
    }

    /// It leaves the timer that it is on. Returns the reference to that, which is dropped where Python code may run.
    #[inline]
    pub(crate) fn take_timer(&mut self) -> Option<Py<TimerRef>> {
        self.timer.take()
    }

    /// If the task is on this timer with this handle, it leaves it. Returns whether it was, and the reference to the
    /// timer, which is dropped where Python code may run. Another timer may have given it an equal handle since.
    pub(crate) fn take_off(&mut self, core: &TimerCore, handle: Handle) -> (bool, Option<Py<TimerRef>>) {
        let is_this = |timer: &mut Py<TimerRef>| std::ptr::eq(&raw const **timer.get().core(), core);
        let timer = if self.handle == handle.to_bits() { self.timer.take_if(is_this) } else { None };
        (timer.is_some(), timer)
    }

    /// Sets the context in which a loop will run the callback; returns the earlier one.
    #[must_use]
    #[cold]
    pub(crate) fn set_context(&mut self, context: Py<PyAny>) -> Option<Py<PyAny>> {
        self.extra.get_or_insert_default().context.replace(context)
    }

    /// Takes the context in which a loop will run the callback.
    #[inline]
    pub(crate) fn take_context(&mut self) -> Option<Py<PyAny>> {
        self.extra.as_mut()?.context.take()
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callback)?;
        let Some(extra) = &self.extra else { return Ok(()) };
        visit.call(&extra.args)?;
        visit.call(&extra.context)?;
        extra.waiting.iter().flat_map(|waiting| &waiting.waiters).try_for_each(|waiter| visit.call(waiter))
    }

    /// Takes callback, arguments, context and waiters, for the garbage collector: the task is not reachable any more.
    pub(crate) fn clear(&mut self) -> (CallbackAndArgs, Option<Py<PyAny>>, Vec<Py<PyAny>>) {
        let call = (self.callback.take(), self.extra.as_mut().and_then(|extra| extra.args.take()));
        (call, self.take_context(), self.take_waiters())
    }
}

/// Checked by the compiler. A test in Python checks the size of whole tasks.
const _: () = assert!(size_of::<TaskFields>() == 40 && size_of::<Extra>() == 40);
