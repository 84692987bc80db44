//! The one public error: what was given, what is allowed, and what to do.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

/// Why a timer refused a call. Nothing was changed by the call that returned it.
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
