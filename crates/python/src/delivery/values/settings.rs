//! The settings of an engine, read from the Python class `Settings`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::calls::failures;
use tickwheel_delivery::internal::{Bounds, SETTINGS};
use tickwheel_delivery::{Allowed, Proxy, Rate, Replicate, Retry, Settings};

const DAY_MS: f64 = 86_400_000.0;

/// Adds `SETTINGS`: for each numeric setting its unit, whether it is a whole number, its range and its default.
pub(crate) fn add_settings(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let settings = PyDict::new(module.py());
    for it in SETTINGS {
        settings.set_item(it.name, (it.unit, it.is_whole, it.least, it.most, it.default))?;
    }
    module.add("SETTINGS", settings)
}

/// How many messages in a second this rate allows, as `0.5/s` or `10/day`.
#[pyfunction]
pub(crate) fn rate_per_s(py: Python<'_>, rate: &str) -> PyResult<f64> {
    Ok(rate_of(py, rate)?.per_s())
}

fn rate_of(py: Python<'_>, text: &str) -> PyResult<Rate> {
    Rate::parse(text).map_err(|error| failures::to_python(py, &error))
}

/// Reads `Settings`. The Python class has checked the ranges.
pub(crate) fn settings_of(given: &Bound<'_, PyAny>) -> PyResult<Settings> {
    let number = |name: &str| -> PyResult<f64> { given.getattr(name)?.extract() };
    let (retry, bounds) = (given.getattr("retry")?, given.getattr("bounds")?);
    let retry = Retry {
        max_attempts: retry.getattr("max_attempts")?.extract()?,
        first_ms: retry.getattr("first_ms")?.extract::<f64>()?.round() as u64,
        longest_ms: retry.getattr("longest_ms")?.extract::<f64>()?.round() as u64,
        waits_ms: retry.getattr("waits_ms")?.extract::<Vec<f64>>()?.iter().map(|ms| ms.round() as u64).collect(),
        waits_end: retry.getattr("waits_end")?.extract()?,
    };
    let rate = |name: &str| -> PyResult<Option<Rate>> {
        let text: Option<String> = given.getattr(name)?.extract()?;
        text.map(|text| rate_of(given.py(), &text)).transpose()
    };
    let proxy = given.getattr("proxy")?.extract::<Option<String>>()?.map(|text| Proxy::parse(&text));
    let proxy = proxy.transpose().map_err(|error| failures::to_python(given.py(), &error))?;
    let replicate = given.getattr("replicate_to")?.extract::<Option<String>>()?.map(|address| Replicate::to(&address));
    let replicate = replicate.transpose().map_err(|error| failures::to_python(given.py(), &error))?;
    let size = |name: &str| -> PyResult<usize> { bounds.getattr(name)?.extract() };
    let bounds = Bounds {
        messages: size("messages")?,
        bytes: size("size")?,
        lane_messages: size("lane_messages")?,
        lane_bytes: size("lane_size")?,
    };
    Ok(Settings {
        is_global: given.getattr("order")?.extract::<String>()? == "global",
        horizon_ms: (number("horizon_s")? * 1000.0).round() as u64,
        retry,
        rate: rate("rate")?,
        tenant_rate: rate("tenant_rate")?,
        tenant_concurrency: given.getattr("tenant_concurrency")?.extract()?,
        concurrency: given.getattr("concurrency")?.extract::<Option<usize>>()?.unwrap_or(usize::MAX),
        sink_timeout_ms: (number("sink_timeout_s")? * 1000.0).round().max(1.0) as u64,
        keep_ids_ms: (number("keep_ids_days")? * DAY_MS).round() as u64,
        unanswered_for_ms: (number("unanswered_for_s")? * 1000.0).round().max(1.0) as u64,
        spare: given.getattr("spare")?.extract()?,
        final_statuses: given.getattr("final_statuses")?.extract()?,
        allowed: Allowed::parse(&given.getattr("allow_addresses")?.extract::<Vec<String>>()?)
            .map_err(|error| failures::to_python(given.py(), &error))?,
        proxy,
        replicate,
        bounds,
        seed: given.getattr("seed")?.extract()?,
        ..Settings::default()
    })
}
