//! Tools that know nothing of timers: locks and the GIL, forks, the end of the interpreter, errors, and values read from
//! Python.

pub(crate) mod args;
pub(crate) mod arrow;
pub(crate) mod describe;
pub(crate) mod errors;
pub(crate) mod finalizing;
pub(crate) mod fork;
pub(crate) mod gil_cell;
pub(crate) mod int64s;
pub(crate) mod interpreters;
pub(crate) mod made_once;
pub(crate) mod native_lock;
pub(crate) mod python_clock;
pub(crate) mod timerfd;
pub(crate) mod times;
