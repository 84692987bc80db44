//! How often the log tells of one failure: in full once a minute, and its repeats as counts (T10).

use std::collections::HashMap;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use crate::tools::gil_cell::GilCell;

const FULL_AGAIN_S: f64 = 60.0;
/// How many different failures are known. When there are more, each is logged in full again.
const MOST: usize = 1_000;

/// The failures of one timer that were logged, by what failed and the line that raised: when in full, by Python's clock,
/// and how often since.
#[derive(Default)]
pub(crate) struct LoggedFailures(GilCell<HashMap<String, (f64, u64)>>);

impl LoggedFailures {
    /// What is to be logged of a failure, and whether with its traceback; `None` for a repeat that is only counted.
    /// `what`: the same for all repeats.
    pub(crate) fn limit(
        &self,
        what: &str,
        message: String,
        error: &Bound<'_, PyBaseException>,
    ) -> PyResult<Option<(String, bool)>> {
        let py = error.py();
        let raised = described(error)?;
        let now_s: f64 = py.import("time")?.call_method0("monotonic")?.extract()?;
        let kind = format!("{what} {raised}");
        Ok(self.0.with(py, |logged| {
            if let Some((_, repeats)) = logged.get_mut(&kind).filter(|(at_s, _)| now_s - *at_s < FULL_AGAIN_S) {
                *repeats += 1;
                let count = *repeats + 1;
                let is_round = count >= 10 && count == 10_u64.pow(count.ilog10());
                let text = || format!("{what} {count} times within a minute, with {raised}: repeats are only counted");
                return is_round.then(|| (text(), false));
            }
            if logged.len() >= MOST {
                logged.clear();
            }
            Some(match logged.insert(kind, (now_s, 0)) {
                Some((_, repeats @ 1..)) => (format!("{message}; {repeats} repeats before were only counted"), true),
                _ => (message, true),
            })
        }))
    }
}

/// The type of an exception, and the line that raised it. Its text may be another one each time.
fn described(error: &Bound<'_, PyBaseException>) -> PyResult<String> {
    let class = error.get_type().qualname()?;
    let (mut last, mut next) = (None, error.getattr("__traceback__")?);
    while !next.is_none() {
        let after = next.getattr("tb_next")?;
        last = Some(std::mem::replace(&mut next, after));
    }
    let Some(last) = last else { return Ok(class.to_string()) };
    let file = last.getattr("tb_frame")?.getattr("f_code")?.getattr("co_filename")?;
    Ok(format!("{class} at {file}, line {}", last.getattr("tb_lineno")?))
}
