//! `TimerTask`: something to run after a delay.
//!
//! The GIL guards its state, and a change of what timer it is on is made with the GIL and that timer's lock held
//! together; so the handle here and the entry there never disagree.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::args::{self, Ms};
use super::border::{GilCell, Own};
use super::operation;
use super::shared::{self, NO_INDEX, Shared};
use crate::state::{Room, When};
use crate::wheel::Handle;

/// Something to run after a delay: a callable with arguments, or a subclass with `run()`.
///
/// `delay_ms`: milliseconds from the moment of `add`, int or finite float; zero or less is due at once.
/// `name` is for people: snapshots and error messages show it. A task may be added again, also from its own
/// callback; adding one that is pending moves it. Errors: `ValueError` and `TypeError` for a bad delay or callback.
/// After Kafka's `TimerTask`.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(super) struct TimerTask {
    cell: GilCell<Content>,
}

#[derive(Default)]
struct Content {
    /// `None` until `__init__` has run.
    delay: Option<Ms>,
    callback: Option<Py<PyAny>>,
    args: Option<Py<PyTuple>>,
    name: Option<Py<PyString>>,
    runs: Runs,
    /// Made by the library for itself: no user is to get it back.
    is_internal: bool,
    /// Made by `after` or `at`: lets go of its callback once it can never run again (T19).
    is_one_shot: bool,
    on: Option<(Own<Shared>, Handle)>,
}

/// What a task does when it is due.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Runs {
    #[default]
    Callback,
    /// Its class has a `run` of its own.
    Method,
    /// A `DelayedOperation`.
    Expiry,
}

/// What to call when a task is due.
pub(super) enum Run {
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
        let content = Content {
            delay: Some(delay),
            callback: callback.map(|callback| callback.clone().unbind()),
            args: (!args.is_empty()).then(|| args.clone().unbind()),
            name: name.map(name_of).transpose()?,
            runs: if overrides_run { Runs::Method } else { Runs::Callback },
            ..Content::default()
        };
        slf.get().initialize(py, content)
    }

    #[getter]
    fn delay_ms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.delay(py)?.to_python(py)
    }

    #[getter]
    pub(super) fn name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.cell.with(py, |content| content.name.as_ref().map(|name| name.clone_ref(py)))
    }

    /// Called when the task is due; by default `callback(*args)`. Override it in a subclass.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let clone = |content: &mut Content| {
            let args = content.args.as_ref().map(|args| args.clone_ref(py));
            content.callback.as_ref().map(|callback| (callback.clone_ref(py), args))
        };
        let Some((callback, args)) = self.cell.with(py, clone) else {
            return Err(PyValueError::new_err(
                "this task has nothing to run: it was made by after() or at() and has ended, or its class has no run()",
            ));
        };
        shared::call(py, &callback, args.as_ref())
    }

    /// Take the task off its timer; `True` exactly when it is certain that it will not run [T9]. O(1).
    ///
    /// `False` for a task that was never added, was cancelled before, is running or has run. The timer's reference
    /// to the task is dropped at once. Errors: `TimerForked`.
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let is_off = slf.get().take_off(slf.py())?;
        if is_off {
            operation::sync_deadline(slf.py(), slf.as_any());
        }
        Ok(is_off)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(shared::not_picklable("TimerTask"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let class = slf.get_type().name()?;
        let this = slf.get();
        let (name, callback) = this.cell.with(py, |content| {
            let callback = content.callback.as_ref().map(|callback| callback.clone_ref(py));
            (content.name.as_ref().map(|name| name.clone_ref(py)), callback)
        });
        let what = match (name, callback) {
            (Some(name), _) => format!(" '{}'", name.bind(py)),
            (None, Some(callback)) => format!(" {}", callback.bind(py).repr()?),
            (None, None) => String::new(),
        };
        let state = if this.on(py).is_some() { " pending" } else { "" };
        Ok(format!("<{class}{what}{state}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let visited = self.cell.try_with(|content| {
            visit.call(&content.callback)?;
            visit.call(&content.args)
        });
        visited.unwrap_or(Ok(()))
    }

    fn __clear__(&self) {
        // The collector calls this with the GIL held, and for what nobody can reach any more.
        let taken = self.cell.try_with(|content| (content.callback.take(), content.args.take()));
        drop(taken);
    }
}

impl TimerTask {
    /// For a subclass of ours: to be filled in by its `__init__`.
    pub(super) fn empty() -> Self {
        Self { cell: GilCell::default() }
    }

    /// Makes it the deadline of a `DelayedOperation`.
    pub(super) fn initialize_expiry(&self, py: Python<'_>, delay: Ms, name: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let name = name.map(name_of).transpose()?;
        self.initialize(py, Content { delay: Some(delay), name, runs: Runs::Expiry, ..Content::default() })
    }

    fn initialize(&self, py: Python<'_>, content: Content) -> PyResult<()> {
        if self.cell.with(py, |old| old.on.is_some()) {
            return Err(PyValueError::new_err("this task is pending: cancel it before it is initialized again"));
        }
        let old = self.cell.with(py, |old| std::mem::replace(old, content));
        drop(old);
        Ok(())
    }

    /// Takes the task off its timer: `cancel` without a word to the purgatory.
    pub(super) fn take_off(&self, py: Python<'_>) -> PyResult<bool> {
        loop {
            let Some((shared, _)) = self.on(py) else { return Ok(false) };
            let mut state = shared.lock(py)?;
            // It may have moved while this thread waited for the lock.
            let Some((now_on, handle)) = self.on(py) else { return Ok(false) };
            if !Arc::ptr_eq(&now_on, &shared) {
                drop(state);
                continue;
            }
            let task = state.cancel(shared.timer.clock(), handle);
            shared.timer.settle(state);
            if task.is_some() {
                self.ended(py, handle);
            }
            return Ok(task.is_some());
        }
    }

    /// A one-shot task for `after` and `at`.
    pub(super) fn one_shot<'py>(
        py: Python<'py>,
        delay: Ms,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, Self>> {
        args::callable(callback, "callback")?;
        let content = Content {
            delay: Some(delay),
            callback: Some(callback.clone().unbind()),
            args: (!args.is_empty()).then(|| args.clone().unbind()),
            is_one_shot: true,
            ..Content::default()
        };
        Bound::new(py, Self { cell: GilCell::new(content) })
    }

    /// A one-shot task of the library's own.
    pub(super) fn internal<'py>(py: Python<'py>, callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let task = Self::one_shot(py, Ms(0.0), callback, &PyTuple::empty(py))?;
        task.get().cell.with(py, |content| content.is_internal = true);
        Ok(task)
    }

    pub(super) fn is_internal(&self, py: Python<'_>) -> bool {
        self.cell.with(py, |content| content.is_internal)
    }

    pub(super) fn delay(&self, py: Python<'_>) -> PyResult<Ms> {
        self.cell.with(py, |content| content.delay).ok_or_else(|| {
            PyValueError::new_err("this task was never initialized: call super().__init__(delay_ms) in its __init__")
        })
    }

    /// Puts the task on a timer, or moves it there (T7). Runs no Python code, so a native lock may be held.
    pub(super) fn schedule(slf: &Bound<'_, Self>, shared: &Arc<Shared>, when: When) -> PyResult<()> {
        Self::schedule_with(slf, shared, when, Room::IfAny).map(drop)
    }

    /// As `schedule`; a task of the library's own finds room always. Returns what the clock read.
    pub(super) fn schedule_with(slf: &Bound<'_, Self>, shared: &Arc<Shared>, when: When, room: Room) -> PyResult<u64> {
        let py = slf.py();
        let this = slf.get();
        loop {
            this.leave_other_timer(py, shared)?;
            let mut state = shared.lock(py)?;
            // From here to the end of the block the GIL and the lock are held together.
            let handle = match this.on(py) {
                Some((other, _)) if !Arc::ptr_eq(&other, shared) => {
                    drop(state);
                    continue;
                }
                on => on.map(|(_, handle)| handle).filter(|handle| state.schedule.is_live(*handle)),
            };
            let can_run = this.cell.with(py, |content| content.runs != Runs::Callback || content.callback.is_some());
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
            let (handle, wakes) = moved.unwrap_or_else(|| state.add(due, slf.clone().into_any().unbind(), NO_INDEX));
            let old = this.cell.with(py, |content| content.on.replace((Own::new(Arc::clone(shared)), handle)));
            drop(state);
            drop(old);
            shared.timer.wake_if(wakes);
            return Ok(due.now_us);
        }
    }

    /// What to call; a one-shot task lets go of it.
    pub(super) fn start(&self, py: Python<'_>) -> Run {
        self.cell.with(py, |content| match content.runs {
            Runs::Method => Run::Method,
            Runs::Expiry => Run::Expiry,
            Runs::Callback if content.is_one_shot => Run::Callback(content.callback.take(), content.args.take()),
            Runs::Callback => {
                let args = content.args.as_ref().map(|args| args.clone_ref(py));
                Run::Callback(content.callback.as_ref().map(|callback| callback.clone_ref(py)), args)
            }
        })
    }

    /// It was claimed, cancelled or taken out of this slot. If it has been added again since, that stands.
    pub(super) fn left_timer(&self, py: Python<'_>, handle: Handle) {
        let on = self.cell.with(py, |content| content.on.take_if(|(_, at)| *at == handle));
        drop(on);
    }

    /// The timer it is on, and its handle there.
    pub(super) fn on(&self, py: Python<'_>) -> Option<(Arc<Shared>, Handle)> {
        self.cell.with(py, |content| content.on.as_ref().map(|(shared, handle)| (shared.share(), *handle)))
    }

    /// How people call it: its name, or what it runs.
    pub(super) fn label(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (name, callback) = slf.get().cell.with(py, |content| {
            let callback = content.callback.as_ref().map(|callback| callback.clone_ref(py));
            (content.name.as_ref().map(|name| name.clone_ref(py)), callback)
        });
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

    /// It was cancelled; a one-shot task can never run again.
    pub(super) fn ended(&self, py: Python<'_>, handle: Handle) {
        self.left_timer(py, handle);
        let taken =
            self.cell.with(py, |content| content.is_one_shot.then(|| (content.callback.take(), content.args.take())));
        drop(taken);
    }

    /// `ValueError` if the task is pending on another timer; otherwise forgets that one.
    fn leave_other_timer(&self, py: Python<'_>, shared: &Arc<Shared>) -> PyResult<()> {
        let Some((other, handle)) = self.on(py) else { return Ok(()) };
        if Arc::ptr_eq(&other, shared) {
            return Ok(());
        }
        if other.is_forked() {
            self.left_timer(py, handle); // the parent's: its locks are not to be touched here
            return Ok(());
        }
        let is_live = other.lock(py)?.schedule.is_live(handle);
        // Another thread may have moved it while this one waited; the caller looks again.
        let is_same = self.on(py).is_some_and(|(now, at)| Arc::ptr_eq(&now, &other) && at == handle);
        if is_live && is_same {
            return Err(PyValueError::new_err(format!(
                "this task is pending on timer '{}': cancel it there before adding it to timer '{}'",
                other.name, shared.name
            )));
        }
        if is_same {
            self.left_timer(py, handle);
        }
        Ok(())
    }
}

fn name_of(name: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    let text = name.cast::<PyString>().map(|name| name.clone().unbind());
    text.map_err(|_| PyTypeError::new_err(format!("name must be text, got {name}: it is what snapshots show")))
}
