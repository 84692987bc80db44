//! Where callbacks run: on the timer's own thread, in a pool, or in an asyncio loop.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::tools::describe;

/// Where callbacks run.
#[derive(Default)]
pub(crate) enum CallbackTarget {
    /// On the thread of the timer's own executor.
    #[default]
    OwnThread,
    /// A `concurrent.futures.Executor` of threads.
    Pool(Py<PyAny>),
    /// An asyncio loop.
    Loop(Py<PyAny>),
}

impl CallbackTarget {
    pub(crate) fn from_python(executor: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(executor) = executor else { return Ok(Self::OwnThread) };
        if let Ok(class) = executor.cast::<PyType>() {
            let class = class.name()?;
            return Err(PyTypeError::new_err(format!(
                "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got the class {class}: make \
                 one, as in executor={class}()"
            )));
        }
        if executor.hasattr("call_soon_threadsafe")? {
            return Ok(Self::Loop(executor.clone().unbind()));
        }
        let refuse = |why: &str| {
            let given = describe::type_name(executor);
            PyTypeError::new_err(format!(
                "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got {given}{why}: leave it \
                 out for a thread of the timer's own"
            ))
        };
        if !executor.hasattr("submit")? {
            return Err(refuse(""));
        }
        for (module, class, why) in [
            ("concurrent.futures.process", "ProcessPoolExecutor", ", which runs tasks in other processes"),
            ("concurrent.futures.interpreter", "InterpreterPoolExecutor", ", which runs tasks in other interpreters"),
        ] {
            if is_instance_of(executor, module, class)? {
                return Err(refuse(why));
            }
        }
        // Such a pool runs greenlets, and only in the thread that made it.
        let are_replaced =
            || executor.py().import("tickwheel._system_threads")?.call_method0("are_replaced")?.extract();
        if is_instance_of(executor, "concurrent.futures.thread", "ThreadPoolExecutor")? && are_replaced()? {
            return Err(refuse(" in a program whose threads gevent or eventlet has replaced"));
        }
        Ok(Self::Pool(executor.clone().unbind()))
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::OwnThread => Self::OwnThread,
            Self::Pool(executor) => Self::Pool(executor.clone_ref(py)),
            Self::Loop(executor) => Self::Loop(executor.clone_ref(py)),
        }
    }

    /// The executor that the user passed.
    pub(crate) fn object(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::OwnThread => None,
            Self::Pool(executor) | Self::Loop(executor) => Some(executor),
        }
    }

    /// The loop in which callbacks run.
    pub(crate) fn event_loop(&self) -> Option<&Py<PyAny>> {
        if let Self::Loop(event_loop) = self { Some(event_loop) } else { None }
    }

    /// Whether callbacks run in a loop.
    pub(crate) fn is_loop(&self) -> bool {
        self.event_loop().is_some()
    }

    /// Whether this thread runs the loop. A wait for the loop's callbacks would then never end.
    pub(crate) fn is_loop_of_this_thread(&self, py: Python<'_>) -> PyResult<bool> {
        self.event_loop().map_or(Ok(false), |event_loop| is_loop_of_this_thread(event_loop.bind(py)))
    }
}

/// Whether this thread runs the loop at this moment.
pub(crate) fn is_loop_of_this_thread(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(event_loop.py().import("asyncio")?.call_method0("_get_running_loop")?.is(event_loop))
}

/// Whether it is an instance of that class. The module is looked up and not imported: if there is an instance, the
/// module was imported.
fn is_instance_of(object: &Bound<'_, PyAny>, module: &str, class: &str) -> PyResult<bool> {
    let modules = object.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let module = modules.get_item(module)?;
    let class = module.map(|module| module.getattr_opt(class)).transpose()?.flatten();
    class.map_or(Ok(false), |class| object.is_instance(&class))
}
