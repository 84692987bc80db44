//! The settings that both timers take: checks them and makes the native timer (T13).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::core::callees::Callees;
use crate::core::timer_core::{Driver, TimerCore};
use crate::tools::args::{self, Omittable};
use crate::values::callback_target::CallbackTarget;
use crate::values::coroutine_functions;
use tickwheel::{Clock, Config, LIMIT_MS, Precision, Timer as NativeTimer};

/// The settings of a wheel and of the reaper.
pub(crate) struct WheelSettings<'py> {
    pub(crate) tick_ms: Omittable<'py>,
    pub(crate) wheel_size: Omittable<'py>,
    pub(crate) precision: Omittable<'py>,
    pub(crate) slack_us: Omittable<'py>,
}

/// The settings that both timers take.
pub(crate) struct Settings<'a, 'py> {
    pub(crate) name: &'a Bound<'py, PyAny>,
    pub(crate) wheel: WheelSettings<'py>,
    pub(crate) max_pending: Option<&'a Bound<'py, PyAny>>,
    pub(crate) on_error: Option<&'a Bound<'py, PyAny>>,
}

impl Settings<'_, '_> {
    /// Checks the settings, and makes the native timer.
    pub(crate) fn build(&self, clock: Clock, driver: Driver, target: CallbackTarget) -> PyResult<TimerCore> {
        let py = self.name.py();
        let name = args::text(self.name, "name", "it names the timer's threads and its errors")?;
        let max_pending = match self.max_pending {
            Some(bound) => Some(args::int_in(bound, "max_pending", 1, u64::MAX, "leave it out for no bound")? as usize),
            None => None,
        };
        let config = Config { max_pending, ..config(&self.wheel)? };
        if let Some(on_error) = self.on_error {
            coroutine_functions::check_on_error(on_error)?;
        }
        let native =
            NativeTimer::new(&config, clock).map_err(|error| crate::tools::errors::from_core(py, &name, &error))?;
        let callees = Callees::new(self.on_error, target);
        Ok(TimerCore::new(native, name, driver, callees))
    }
}

/// The settings of a wheel, with defaults for the omitted ones.
pub(crate) fn config(wheel: &WheelSettings<'_>) -> PyResult<Config> {
    let mut config = Config::default();
    if let Some(tick_ms) = wheel.tick_ms.get() {
        config.tick_ms = args::int_in(tick_ms, "tick_ms", 1, LIMIT_MS - 1, "use 1 for a millisecond")?;
    }
    if let Some(wheel_size) = wheel.wheel_size.get() {
        config.wheel_sizes = args::wheel_sizes(wheel_size)?;
    }
    match wheel.precision.get().map(|precision| (precision, precision.extract::<&str>())) {
        None | Some((_, Ok("exact"))) => config.precision = Precision::Exact,
        Some((_, Ok("tick"))) => config.precision = Precision::Tick,
        Some((given, _)) => {
            let given = given.repr()?;
            return Err(PyValueError::new_err(format!(
                "precision must be 'exact' or 'tick', got {given}: 'tick' is up to one tick early, as in Kafka"
            )));
        }
    }
    if let Some(slack_us) = wheel.slack_us.get() {
        let hint = "use 100 for at most 10,000 wake-ups a second";
        config.slack_us = args::int_in(slack_us, "slack_us", 0, LIMIT_MS - 1, hint)?;
        config.max_slack_us = config.slack_us;
    }
    Ok(config)
}

/// The first reading of a clock: an int of milliseconds.
pub(crate) fn start_ms(start_ms: &Bound<'_, PyAny>) -> PyResult<u64> {
    args::int_in(start_ms, "start_ms", 0, LIMIT_MS - 1, "leave it out for the default clock")
}
