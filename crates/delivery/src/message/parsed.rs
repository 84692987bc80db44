//! What a reader makes of a record: a message, a cancel, a reschedule, or what is wrong with it.

use crate::base::error::BadRecord;
use crate::message::fields::Request;
use crate::message::incoming::Incoming;
use crate::message::origin::Origin;
use crate::message::{Cancel, Reschedule, name_size, size_in_memory};

/// What was read from a record.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// A message to accept.
    Message(Incoming),
    /// A cancel, and where it is.
    Cancel(Cancel, Origin),
    /// Another due time, and where it is.
    Reschedule(Reschedule, Origin),
    /// A record that can't be used, and where it is.
    Bad(BadRecord, Origin),
}

impl Parsed {
    /// What a record asks for, or what is wrong with it. `keeps_origin`: also of a message. `origin`: where it was read.
    #[must_use]
    pub(crate) fn of(read: Result<Request, BadRecord>, keeps_origin: bool, origin: impl FnOnce() -> Origin) -> Self {
        match read {
            Ok(Request::Message(message)) => Self::Message(Incoming::from_origin(message, keeps_origin.then(origin))),
            Ok(Request::Cancel(cancel)) => Self::Cancel(cancel, origin()),
            Ok(Request::Reschedule(reschedule)) => Self::Reschedule(reschedule, origin()),
            Err(bad) => Self::Bad(bad, origin()),
        }
    }

    /// Where it was read, if that was kept.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_ref(),
            Self::Cancel(_, origin) | Self::Reschedule(_, origin) | Self::Bad(_, origin) => Some(origin),
        }
    }

    /// Bytes in memory, about.
    #[must_use]
    pub fn size_in_memory(&self) -> usize {
        match self {
            Self::Message(incoming) => incoming.message.size_in_memory(),
            Self::Cancel(Cancel { id, key, .. }, _) | Self::Reschedule(Reschedule { id, key, .. }, _) => {
                size_in_memory(name_size(key.as_deref(), id))
            }
            Self::Bad(_, origin) => size_in_memory(origin.record().len()),
        }
    }

    pub(crate) fn origin_mut(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_mut(),
            Self::Cancel(_, origin) | Self::Reschedule(_, origin) | Self::Bad(_, origin) => Some(origin),
        }
    }
}
