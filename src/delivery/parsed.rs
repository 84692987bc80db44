//! What a reader makes of a record: a message, a cancel, or what is wrong with it.

#![forbid(unsafe_code)]

use crate::delivery::error::BadRecord;
use crate::delivery::incoming::Incoming;
use crate::delivery::message::{Cancel, size_in_memory};
use crate::delivery::origin::Origin;

/// What was read from a record.
#[derive(Clone, Debug)]
pub(crate) enum Parsed {
    /// A message to accept.
    Message(Incoming),
    /// A cancel, and where it is.
    Cancel(Cancel, Origin),
    /// A record that can't be used, and where it is.
    Bad(BadRecord, Origin),
}

impl Parsed {
    /// Where it was read, if that was kept.
    #[must_use]
    pub(crate) fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_ref(),
            Self::Cancel(_, origin) | Self::Bad(_, origin) => Some(origin),
        }
    }

    /// Bytes in memory, about.
    #[must_use]
    pub(crate) fn size_in_memory(&self) -> usize {
        match self {
            Self::Message(incoming) => incoming.message.size_in_memory(),
            Self::Cancel(..) => size_in_memory(0),
            Self::Bad(_, origin) => size_in_memory(origin.record().len()),
        }
    }

    pub(crate) fn origin_mut(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_mut(),
            Self::Cancel(_, origin) | Self::Bad(_, origin) => Some(origin),
        }
    }
}
