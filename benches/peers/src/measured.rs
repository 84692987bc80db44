//! The result of a work: a figure, and a note about it. As text: the figure on the first line, the note below.

use std::fmt::{Display, Formatter, Result as Written};

pub struct Measured {
    pub value: f64,
    pub note: String,
}

impl Measured {
    /// Reads what [`Display`] wrote.
    pub fn read(text: &str) -> Result<Self, String> {
        let (value, note) = text.split_once('\n').unwrap_or((text, ""));
        let value = value.parse().ok().filter(|value: &f64| value.is_finite());
        let value = value.ok_or_else(|| format!("a figure was expected, and not {text:?}"))?;
        Ok(Self { value, note: note.trim_end().to_owned() })
    }
}

impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self { value, note: String::new() }
    }
}

impl Display for Measured {
    fn fmt(&self, to: &mut Formatter) -> Written {
        writeln!(to, "{:.3}", self.value)?;
        to.write_str(&self.note)
    }
}
