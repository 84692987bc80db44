//! Formats a value for an error message.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The name of the type; empty if it has none.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| String::new(), |name| name.to_string())
}

/// The type and the value.
pub(crate) fn type_and_value(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = text_or(value.get_type().name(), "object", value.py())?;
    let repr = text_or(value.repr(), "?", value.py())?;
    let short: String = repr.chars().take(60).collect();
    let dots = if short.len() < repr.len() { "..." } else { "" };
    Ok(format!("{name} {short}{dots}"))
}

/// The text, or `otherwise` if it cannot be made. Ctrl-C and `SystemExit` are passed on.
pub(crate) fn text_or(text: PyResult<Bound<'_, PyString>>, otherwise: &str, py: Python<'_>) -> PyResult<String> {
    match text {
        Ok(text) => Ok(text.to_string()),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(otherwise.to_owned()),
        Err(exit) => Err(exit),
    }
}

/// Sets items of a dictionary: fields of a value, then variables, each by its name.
macro_rules! set_items {
    ($dict:expr, $value:ident.[$($field:ident),*] $(, $rest:tt)?) => {
        $($dict.set_item(stringify!($field), &$value.$field)?;)*
        $(set_items!($dict, $rest);)?
    };
    ($dict:expr, [$($name:ident),*]) => {
        $($dict.set_item(stringify!($name), &$name)?;)*
    };
}
pub(crate) use set_items;
