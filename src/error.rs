//! Why a timer refuses a call: what was given, what is allowed, and what to do.

use std::borrow::Cow;
use std::fmt;

/// Why a timer refused a call. A call that returns it has changed nothing.
///
/// ```
/// use tickwheel::{Config, Error};
/// let error = Config { tick_ms: 0, ..Config::default() }.check().unwrap_err();
/// assert!(matches!(error, Error::Invalid(_)));
/// assert!(error.to_string().contains("tick_ms must be from 1"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The timer was shut down: it takes no more tasks.
    Closed,
    /// The add would pass `max_pending`.
    Full {
        /// The bound that was set.
        max_pending: usize,
    },
    /// A setting or an instant outside what is allowed; the text says which and what to do.
    Invalid(Cow<'static, str>),
}

impl Error {
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the timer was shut down and takes no more tasks: make a new one"),
            Self::Full { max_pending } => write!(
                f,
                "the timer holds max_pending={max_pending} tasks already: wait until some have run, cancel some, or \
                 raise max_pending"
            ),
            Self::Invalid(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// A refused add: the reason, and the task that was to be added.
///
/// In a function that returns [`Error`], the operator `?` turns it into one and drops the task; in another function,
/// `map_err(Error::from)` does so before the `?`.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Clock, Config, Error, Timer};
///
/// let timer = Timer::new(&Config { max_pending: Some(1), ..Config::default() }, Clock::monotonic(0))?;
/// timer.add(Duration::from_secs(1), "first")?;
/// let refused = timer.add(Duration::from_secs(1), "second").unwrap_err();
/// assert!(matches!(refused.error(), Error::Full { max_pending: 1 }));
/// assert_eq!(refused.into_task(), "second");
/// # Ok::<(), Error>(())
/// ```
pub struct AddError<T> {
    /// In a box, so that the result of an add fits into two registers: through memory, an add and a cancel take a fifth more.
    refused: Box<Refused<T>>,
}

struct Refused<T> {
    error: Error,
    task: Exclusive<T>,
}

impl<T> AddError<T> {
    #[cold]
    pub(crate) fn new(error: Error, task: T) -> Self {
        Self { refused: Box::new(Refused { error, task: Exclusive::new(task) }) }
    }

    /// Why the add was refused.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.refused.error
    }

    /// Gives the task back.
    #[must_use]
    pub fn into_task(self) -> T {
        self.refused.task.into_inner()
    }
}

impl<T> From<AddError<T>> for Error {
    fn from(refused: AddError<T>) -> Self {
        refused.refused.error
    }
}

impl<T> fmt::Debug for AddError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("error", self.error()).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for AddError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl<T> std::error::Error for AddError<T> {}

/// A value that only its owner reaches. So threads may share the rest of the error: `Box<dyn Error + Send + Sync>`
/// needs `Sync`, and a closure is seldom `Sync`.
#[expect(clippy::disallowed_types, reason = "never locked: its type is all that is used")]
struct Exclusive<T>(std::sync::Mutex<T>);

#[expect(clippy::disallowed_types, reason = "never locked: its type is all that is used")]
impl<T> Exclusive<T> {
    fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_closure_travels_as_an_error_of_any_thread() {
        fn boxed<T: Send + 'static>(refused: AddError<T>) -> Box<dyn std::error::Error + Send + Sync> {
            Box::new(refused)
        }
        let callback: Box<dyn FnOnce() + Send> = Box::new(|| ());
        assert_eq!(boxed(AddError::new(Error::Closed, callback)).to_string(), Error::Closed.to_string());
    }
}
