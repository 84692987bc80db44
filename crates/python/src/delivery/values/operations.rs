//! The table of operations for Python: the class `Answer`, and for each operation its answers.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::tools::made_once::MadeOnce;
use tickwheel_delivery::Answer;
use tickwheel_delivery::internal::{ANSWERS, OPERATIONS};

/// The members of `Answer`, in the order of the native enum.
static MEMBERS: MadeOnce<Vec<Py<PyAny>>> = MadeOnce::new();

/// Adds `Answer` and `OPERATIONS`. `Answer` is a `StrEnum` with a member for each answer. `OPERATIONS` has a dictionary
/// for each operation, from its answers to their HTTP status, exit code and sentence.
pub(crate) fn add_operations(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let words: Vec<_> = ANSWERS.iter().map(|(_, word)| (word.to_uppercase(), *word)).collect();
    let place = PyDict::new(py);
    place.set_item("module", module.name()?)?;
    let class = py.import("enum")?.getattr("StrEnum")?.call(("Answer", words), Some(&place))?;
    module.add("Answer", &class)?;
    let members = MEMBERS.get_or_try_init(py, || class.try_iter()?.map(|member| Ok(member?.unbind())).collect())?;
    let operations = PyDict::new(py);
    for operation in OPERATIONS {
        let replies = PyDict::new(py);
        for reply in operation.replies {
            let meaning = (reply.status, reply.exit_code, reply.sentence);
            replies.set_item(members[reply.answer as usize].bind(py), meaning)?;
        }
        operations.set_item(operation.name, (operation.requests, replies))?;
    }
    module.add("OPERATIONS", operations)
}

/// The member of `Answer`.
pub(crate) fn answer_to_python(py: Python<'_>, answer: Answer) -> PyResult<Bound<'_, PyAny>> {
    let members = MEMBERS.get_or_try_init(py, || Err(PyRuntimeError::new_err("the module was not added")))?;
    Ok(members[answer as usize].bind(py).clone())
}
