//! `TimerTask`: something to run after a delay.
//!
//! The GIL guards its state, and a change of what timer it is on is made with the GIL and that timer's lock held
//! together; so the handle here and the entry there never disagree.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::python::core::loop_only;
use crate::python::core::timer_core::{NO_INDEX, Shared};
use crate::python::core::timer_ref::Share;
use crate::python::operations::operation;
use crate::python::scheduled::task_fields::{Call, Content, Runs};
use crate::python::tools::args::{self, Ms};
use crate::python::tools::describe;
use crate::python::tools::errors;
use crate::python::tools::finalizing::{self, ForeignCall};
use crate::python::tools::gil_cell::{self, GilCell};
use crate::python::tools::made_once::intern;
use crate::python::tools::native_lock;
use crate::python::values::callback_scope;
use crate::python::values::coroutine_functions;
use crate::state::{Room, State, When};
use crate::sync::MutexGuard;
use crate::wheel::Handle;

/// Something to run after a delay: a callable with arguments, or a subclass with `run()`.
///
/// `delay_ms`: milliseconds from the moment of `add`, int or finite float; zero or less is due at once.
/// `name` is for people: snapshots and error messages show it. A task may be added again, also from its own
/// callback; adding one that is pending moves it. A coroutine function needs a timer whose executor is an asyncio loop.
/// Errors: `ValueError` and `TypeError` for a bad delay or callback. After Kafka's `TimerTask`.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(crate) struct TimerTask {
    cell: GilCell<Content>,
}

/// What is left of a task that was taken off its timer.
pub(crate) struct Remains {
    task: Py<PyAny>,
    /// `None` once the timer has heard that it owes the task nothing more.
    timer: Option<Py<Share>>,
    _call: Option<Call>,
    _context: Option<Py<PyAny>>,
}

impl Remains {
    /// Drops them. No native lock may be held.
    fn settle(mut self, py: Python<'_>) {
        if let Some(timer) = self.timer.take() {
            timer.get().shared().callees.settle(py, 1);
        }
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            native_lock::attach(|py| timer.get().shared().callees.settle(py, 1));
        }
    }
}

/// What to call when a task is due.
pub(crate) enum Run {
    Method,
    Expiry,
    Callback(Option<Py<PyAny>>, Option<Py<PyTuple>>),
}

#[pymethods]
impl TimerTask {
    /// Takes whatever the `__init__` of a subclass takes; ours fills it in.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(delay_ms, callback=None, *args, name=None)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::empty()
    }

    #[pyo3(signature = (delay_ms, callback=None, *args, name=None))]
    fn __init__(
        slf: &Bound<'_, Self>,
        delay_ms: &Bound<'_, PyAny>,
        callback: Option<&Bound<'_, PyAny>>,
        args: &Bound<'_, PyTuple>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let _call = ForeignCall::enter(py)?;
        let delay = args::ms(delay_ms, "delay_ms")?;
        let base = py.get_type::<Self>();
        let overrides_run = !slf.get_type().is(&base) && !slf.get_type().getattr("run")?.is(&base.getattr("run")?);
        match callback {
            Some(callback) => args::callable(callback, "callback")?,
            None if overrides_run => {}
            None => {
                return Err(PyTypeError::new_err(
                    "a TimerTask needs something to run, got no callback: pass one, or override run() in a subclass",
                ));
            }
        }
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let function = callback.map(|callback| callback.clone().unbind());
        let mut content = Content::new(Some(delay), function, args, name.map(name_of).transpose()?);
        content.runs = if overrides_run { Runs::Method } else { Runs::Callback };
        content.is_plain = slf.get_type().is(&base);
        content.is_coroutine = match callback {
            _ if overrides_run => coroutine_functions::is_coroutine_function(&slf.get_type().getattr("run")?)?,
            Some(callback) => coroutine_functions::is_coroutine_function(callback)?,
            None => false,
        };
        Self::initialize(slf, content)
    }

    #[getter]
    fn delay_ms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.delay(py)?.to_python(py)
    }

    #[getter]
    pub(crate) fn name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.cell.with(py, |content| content.name(py))
    }

    /// Called when the task is due; by default `callback(*args)`. Override it in a subclass.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _call = ForeignCall::enter(py)?;
        let (Some(callback), args) = self.cell.with(py, |content| content.call(py)) else {
            return Err(PyValueError::new_err(
                "this task has nothing to run: it was made by after() or at() and has ended, or its class has no run()",
            ));
        };
        callback_scope::call_in_context(None, callback.bind(py), args.as_ref().map(|args| args.bind(py)))
    }

    /// Take the task off its timer; `True` exactly when it is certain that it will not run [T9]. O(1).
    ///
    /// `False` for a task that was never added, was cancelled before, is running or has run. The timer's reference
    /// to the task is dropped at once. Errors: `TimerForked`.
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let Some(_call) = ForeignCall::try_enter(slf.py()) else { return Ok(false) };
        let is_off = slf.get().take_off(slf.py())?;
        if is_off && !slf.get_type().is(slf.py().get_type::<Self>()) {
            operation::sync_deadline(slf.py(), slf.as_any());
        }
        Ok(is_off)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("TimerTask"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let class = slf.get_type().name()?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(format!("<{class}>")) };
        let this = slf.get();
        let (name, callback) = this.cell.with(py, |content| (content.name(py), content.call(py).0));
        let what = match (name, callback) {
            (Some(name), _) => format!(" '{}'", name.bind(py)),
            (None, Some(callback)) => format!(" {}", callback.bind(py).repr()?),
            (None, None) => String::new(),
        };
        let state = if this.on(py).is_some() { " pending" } else { "" };
        Ok(format!("<{class}{what}{state}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.cell.visit(&visit, |content| content.visit(&visit))
    }

    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        let taken = self.cell.with(py, Content::clear);
        drop(taken);
    }
}

impl Drop for TimerTask {
    #[inline]
    fn drop(&mut self) {
        if !self.cell.get_mut().refers() {
            return; // most have let go of what they called
        }
        finalizing::let_go(std::mem::take(&mut self.cell));
    }
}

impl TimerTask {
    /// For a subclass of ours: to be filled in by its `__init__`.
    pub(crate) fn empty() -> Self {
        Self { cell: GilCell::default() }
    }

    /// Makes it the deadline of a `DelayedOperation`.
    pub(crate) fn initialize_expiry(slf: &Bound<'_, Self>, delay: Ms, name: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut content = Content::new(Some(delay), None, None, name.map(name_of).transpose()?);
        content.runs = Runs::Expiry;
        Self::initialize(slf, content)
    }

    fn initialize(slf: &Bound<'_, Self>, content: Content) -> PyResult<()> {
        let old = slf.get().cell.with(slf.py(), |old| {
            let is_free = old.on().is_none();
            is_free.then(|| std::mem::replace(old, content))
        });
        if old.is_none() {
            return Err(PyValueError::new_err("this task is pending: cancel it before it is initialized again"));
        }
        // A one-shot that has ended was off the collector's lists, as it had let go of its callback for good.
        gil_cell::track(slf);
        Ok(())
    }

    /// Takes the task off its timer: `cancel` without a word to the purgatory.
    pub(crate) fn take_off(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.taken_off(py)?.map(|remains| remains.settle(py)).is_some())
    }

    /// As `take_off`; `None` if it was on no timer. What is left is for the caller to drop: destructors are foreign code. When
    /// this returns, the GIL has not been let go since the task left.
    #[inline]
    pub(crate) fn taken_off(&self, py: Python<'_>) -> PyResult<Option<Remains>> {
        loop {
            // With the GIL held throughout, the task cannot move meanwhile: only where the lock is free.
            let taken = self.cell.with(py, |content| {
                let (shared, handle) = content.on().filter(|(shared, _)| !shared.is_forked())?;
                let mut state = shared.timer.state().try_lock()?;
                let task = state.cancel(shared.timer.clock(), handle);
                shared.timer.settle(state);
                // It may be added again: the garbage collector must know of it.
                let is_tracked = task.is_some() && content.is_plain && content.callback.is_some();
                Some(task.map(|task| {
                    let (timer, call, context) = (content.take_off(handle).1, content.let_go(), content.take_context());
                    (Remains { task, timer, _call: call, _context: context }, is_tracked)
                }))
            });
            if let Some(taken) = taken {
                let Some((remains, is_tracked)) = taken else { return Ok(None) };
                if is_tracked {
                    gil_cell::track(remains.task.bind(py));
                }
                return Ok(Some(remains));
            }
            let Some((shared, _)) = self.on(py) else { return Ok(None) };
            drop(shared.lock(py)?); // waits for it, without the GIL
        }
    }

    /// Adds a one-shot task, for `after` and `at`.
    pub(crate) fn add_one_shot<'py>(
        py: Python<'py>,
        share: &Py<Share>,
        (delay, when): (Option<Ms>, When),
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let task = Self::one_shot(py, delay, callback, args)?;
        let shared = share.get().shared();
        loop_only::check_callback(shared, callback)?;
        let context = loop_only::context_of_add(shared, context, py)?;
        shared.check_process(py)?;
        if shared.hides_pending() {
            gil_cell::untrack(&task);
        }
        let (share, reference) = (share.clone_ref(py), task.clone().into_any().unbind());
        let mut state = shared.state(py);
        match state.admit(shared.timer.clock(), when, 1) {
            Ok(due) => {
                let (handle, wakes) = state.add(due, reference, NO_INDEX);
                shared.callees.owe(py, 1);
                let old = task.get().cell.with(py, |content| {
                    if delay.is_none() {
                        content.set_delay(Ms::from_us(due.due_us - due.now_us));
                    }
                    (content.put_on(share, handle), context.and_then(|context| content.set_context(context)))
                });
                drop(state);
                drop(old);
                shared.timer.wake_if(wakes);
                Ok(task)
            }
            Err(error) => {
                drop(state);
                Err(shared.error(py, &error))
            }
        }
    }

    /// A one-shot task that is on no timer.
    fn one_shot<'py>(
        py: Python<'py>,
        delay: Option<Ms>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, Self>> {
        args::callable(callback, "callback")?;
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let mut content = Content::new(delay, Some(callback.clone().unbind()), args, None);
        (content.runs, content.is_plain) = (Runs::Once, true);
        Bound::new(py, Self { cell: GilCell::new(content) })
    }

    /// A one-shot task of the library's own.
    pub(crate) fn internal<'py>(py: Python<'py>, callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let task = Self::one_shot(py, Some(Ms(0.0)), callback, &PyTuple::empty(py))?;
        task.get().cell.with(py, |content| content.runs = Runs::Internal);
        Ok(task)
    }

    /// Whether it is a task of the library's own, which no caller is to get hold of.
    pub(crate) fn is_internal(task: &Bound<'_, PyAny>) -> bool {
        let task = task.cast_exact::<Self>();
        task.is_ok_and(|task| task.get().cell.with(task.py(), |content| content.runs == Runs::Internal))
    }

    pub(crate) fn delay(&self, py: Python<'_>) -> PyResult<Ms> {
        self.cell.with(py, |content| content.delay()).ok_or_else(not_initialized)
    }

    /// Puts the task on a timer, or moves it there (T7); a task of the library's own finds room always. Returns what the
    /// clock read. Runs no Python code, so a native lock may be held.
    pub(crate) fn schedule_with(slf: &Bound<'_, Self>, share: &Py<Share>, when: When, room: Room) -> PyResult<u64> {
        Self::schedule_in(slf, share, when, room, &mut None, &mut Vec::new())
    }

    /// As `schedule_with`, for a callback that is to run in a context. What `context` is afterwards, the one that it had
    /// before or the one that was refused, and what was `removed` with an earlier timer are for the caller to drop, without
    /// a native lock: it may run destructors.
    pub(crate) fn schedule_in(
        slf: &Bound<'_, Self>,
        share: &Py<Share>,
        when: When,
        room: Room,
        context: &mut Option<Py<PyAny>>,
        removed: &mut Vec<Py<PyAny>>,
    ) -> PyResult<u64> {
        let py = slf.py();
        let (this, shared) = (slf.get(), share.get().shared());
        let (is_free, can_run) = this.cell.with(py, |content| (content.on().is_none(), content.can_run()));
        // Most are on no timer. With the GIL held throughout, that stays so: only where the lock is free.
        if is_free
            && can_run
            && !shared.is_forked()
            && let Some(mut state) = shared.timer.state().try_lock()
        {
            let added = state.admit(shared.timer.clock(), when, usize::from(room == Room::IfAny));
            let added = added.map(|due| (due.now_us, state.add(due, slf.clone().into_any().unbind(), NO_INDEX)));
            return match added {
                Ok((now_us, (handle, wakes))) => {
                    shared.callees.owe(py, 1);
                    Self::put_on(slf, state, share, (handle, wakes), context, removed);
                    Ok(now_us)
                }
                Err(error) => {
                    drop(state);
                    Err(shared.error(py, &error))
                }
            };
        }
        loop {
            Self::leave_other_timer(slf, shared, removed)?;
            let mut state = shared.lock(py)?;
            // From here to the end of the block the GIL and the lock are held together.
            let handle = match this.on(py) {
                Some((other, _)) if !Arc::ptr_eq(&other, shared) => {
                    drop(state);
                    continue;
                }
                on => on.map(|(_, handle)| handle).filter(|handle| state.schedule.is_live(*handle)),
            };
            let can_run = this.cell.with(py, |content| content.can_run());
            if !can_run {
                drop(state);
                return Err(PyValueError::new_err(
                    "this task was made by after() or at() and has ended: make a TimerTask to add it again",
                ));
            }
            let count = usize::from(handle.is_none() && room == Room::IfAny);
            let due = match state.admit(shared.timer.clock(), when, count) {
                Ok(due) => due,
                Err(error) => {
                    drop(state);
                    return Err(shared.error(py, &error));
                }
            };
            let moved = handle.and_then(|handle| state.reschedule(handle, due));
            let (handle, wakes) = moved.unwrap_or_else(|| {
                shared.callees.owe(py, 1);
                state.add(due, slf.clone().into_any().unbind(), NO_INDEX)
            });
            Self::put_on(slf, state, share, (handle, wakes), context, removed);
            return Ok(due.now_us);
        }
    }

    /// It was added: with the GIL and the lock still held together, the task gets to know.
    fn put_on(
        slf: &Bound<'_, Self>,
        state: MutexGuard<'_, State<Py<PyAny>>>,
        share: &Py<Share>,
        (handle, wakes): (Handle, bool),
        context: &mut Option<Py<PyAny>>,
        removed: &mut Vec<Py<PyAny>>,
    ) {
        let shared = share.get().shared();
        let share = share.clone_ref(slf.py());
        let (old, is_plain) = slf.get().cell.with(slf.py(), |content| {
            *context = context.take().and_then(|context| content.set_context(context));
            (content.put_on(share, handle), content.is_plain)
        });
        drop(state);
        // Before anything that may let the GIL go, after which it may have run already.
        if is_plain && shared.hides_pending() {
            gil_cell::untrack(slf);
        }
        shared.timer.wake_if(wakes);
        removed.extend(old.map(Py::into_any));
    }

    /// What to call, and in what context; a one-shot task lets go of it.
    pub(crate) fn start(&self, py: Python<'_>) -> (Run, Option<Py<PyAny>>) {
        self.cell.with(py, |content| {
            let run = match content.runs {
                Runs::Method => Run::Method,
                Runs::Expiry => Run::Expiry,
                _ => {
                    let (callback, args) = content.let_go().unwrap_or_else(|| content.call(py));
                    Run::Callback(callback, args)
                }
            };
            (run, content.take_context())
        })
    }

    /// It was claimed from this slot, and is run next. If it has been added again since, that stands.
    pub(crate) fn claimed(slf: &Bound<'_, Self>, handle: Handle) {
        let (left, may_be_added) = slf.get().cell.with(slf.py(), |content| {
            let (is_this, left) = content.take_off(handle);
            (left, is_this && content.is_plain && !content.is_one_shot())
        });
        // Before anything is dropped: a destructor may add it again.
        if may_be_added {
            gil_cell::track(slf);
        }
        drop(left);
    }

    /// What it calls; `None` if its class has a `run` of its own.
    pub(crate) fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.cell.with(py, |content| if content.runs == Runs::Method { None } else { content.call(py).0 })
    }

    /// The delay, and whether what it runs is a coroutine function.
    pub(crate) fn delay_and_kind(&self, py: Python<'_>) -> PyResult<(Ms, bool)> {
        let (delay, is_coroutine) = self.cell.with(py, |content| (content.delay(), content.is_coroutine));
        Ok((delay.ok_or_else(not_initialized)?, is_coroutine))
    }

    /// It was taken out of this slot. If it has been added again since, that stands.
    pub(crate) fn left_timer(slf: &Bound<'_, Self>, handle: Handle) {
        Self::leave_timer(slf, handle, &mut Vec::new());
    }

    /// As `left_timer`; what it let go of is for the caller to drop.
    fn leave_timer(slf: &Bound<'_, Self>, handle: Handle, removed: &mut Vec<Py<PyAny>>) {
        let ((share, context), may_be_added) = slf.get().cell.with(slf.py(), |content| {
            let (is_this, left) = content.take_off(handle);
            let context = if is_this { content.take_context() } else { None };
            ((left, context), is_this && content.is_plain && !content.is_one_shot())
        });
        // As in `claimed`.
        if may_be_added {
            gil_cell::track(slf);
        }
        removed.extend(share.map(Py::into_any).into_iter().chain(context));
    }

    /// It was taken out of its slot and will not be run, so that a one-shot task keeps its callback too.
    pub(crate) fn was_taken_out(slf: &Bound<'_, Self>, handle: Handle) {
        Self::left_timer(slf, handle);
        gil_cell::track(slf);
    }

    /// The timer it is on, and its handle there.
    pub(crate) fn on(&self, py: Python<'_>) -> Option<(Arc<Shared>, Handle)> {
        self.cell.with(py, |content| content.on().map(|(shared, handle)| (Arc::clone(shared), handle)))
    }

    /// How people call it: its name, or what it runs.
    pub(crate) fn label(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (name, callback) = slf.get().cell.with(py, |content| (content.name(py), content.call(py).0));
        if let Some(name) = name {
            return Ok(name.into_any());
        }
        if let Some(callback) = callback
            && let Ok(name) = callback.bind(py).getattr("__qualname__")
        {
            return Ok(name.unbind());
        }
        Ok(slf.get_type().qualname()?.into_any().unbind())
    }

    /// It was cancelled in this slot; a one-shot task can never run again. If it has been added again since, that stands,
    /// and the task keeps its callback.
    pub(crate) fn ended(slf: &Bound<'_, Self>, handle: Handle) {
        let (left, may_be_added) = slf.get().cell.with(slf.py(), |content| {
            let (is_this, left) = content.take_off(handle);
            let taken = is_this.then(|| (content.let_go(), content.take_context()));
            ((left, taken), is_this && content.is_plain && !content.is_one_shot())
        });
        if may_be_added {
            gil_cell::track(slf);
        }
        drop(left);
    }

    /// `ValueError` if the task is pending on another timer; otherwise forgets that one.
    fn leave_other_timer(slf: &Bound<'_, Self>, shared: &Arc<Shared>, removed: &mut Vec<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let Some((other, handle)) = slf.get().on(py) else { return Ok(()) };
        if Arc::ptr_eq(&other, shared) {
            return Ok(());
        }
        if other.is_forked() {
            Self::leave_timer(slf, handle, removed); // the parent's: its locks are not to be touched here
            return Ok(());
        }
        let is_live = other.lock(py)?.schedule.is_live(handle);
        // Another thread may have moved it while this one waited; the caller looks again.
        let is_same = slf.get().on(py).is_some_and(|(now, at)| Arc::ptr_eq(&now, &other) && at == handle);
        if is_live && is_same {
            return Err(PyValueError::new_err(format!(
                "this task is pending on {}: cancel it there before adding it to timer '{}'",
                other.other_than(shared),
                shared.name
            )));
        }
        if is_same {
            Self::leave_timer(slf, handle, removed);
        }
        Ok(())
    }
}

fn not_initialized() -> PyErr {
    PyValueError::new_err("this task was never initialized: call super().__init__(delay_ms) in its __init__")
}

/// The text itself: an object of a subclass of `str` may refer to the task, and the collector is not shown the name.
fn name_of(name: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    let Ok(text) = name.cast::<PyString>() else {
        let given = describe::text_or(name.repr(), "?", name.py())?;
        return Err(PyTypeError::new_err(format!("name must be text, got {given}: it is what snapshots show")));
    };
    if let Ok(exact) = text.cast_exact::<PyString>() {
        return Ok(exact.clone().unbind());
    }
    // By `str` itself and not by `str(name)`, which runs the subclass's own method.
    let exact = name.py().get_type::<PyString>().call_method1(intern!(name.py(), "__str__"), (text,))?;
    Ok(exact.cast_into::<PyString>()?.unbind())
}
