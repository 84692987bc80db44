//! The result of reading a record: a message, a cancel, a reschedule, or an error.

use crate::base::error::BadRecord;
use crate::message::events::Event;
use crate::message::fields::Request;
use crate::message::incoming::{Incoming, Origin};
use crate::message::{Cancel, Reschedule, name_size, size_in_memory};

/// The result of reading a record.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// A message to accept.
    Message(Incoming),
    /// A cancel, and where it was read.
    Cancel(Cancel, Origin),
    /// A reschedule, and where it was read.
    Reschedule(Reschedule, Origin),
    /// An event, and where it was read.
    Event(Event, Origin),
    /// A record that can't be used, and where it was read.
    Bad(BadRecord, Origin),
}

impl Parsed {
    /// Turns a request or an error into a result. `origin` tells where the record was read; a message keeps it only
    /// if `keeps_origin` is true.
    pub(crate) fn of(read: Result<Request, BadRecord>, keeps_origin: bool, origin: impl FnOnce() -> Origin) -> Self {
        match read {
            Ok(Request::Message(message)) => Self::Message(Incoming::from_origin(message, keeps_origin.then(origin))),
            Ok(Request::Cancel(cancel)) => Self::Cancel(cancel, origin()),
            Ok(Request::Reschedule(reschedule)) => Self::Reschedule(reschedule, origin()),
            Ok(Request::Event(event)) => Self::Event(event, origin()),
            Err(bad) => Self::Bad(bad, origin()),
        }
    }

    /// Where the record was read, if the origin was kept.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_ref(),
            Self::Cancel(_, origin) | Self::Reschedule(_, origin) | Self::Event(_, origin) | Self::Bad(_, origin) => {
                Some(origin)
            }
        }
    }

    /// The approximate size in memory, in bytes.
    #[must_use]
    pub fn size_in_memory(&self) -> usize {
        match self {
            Self::Message(incoming) => incoming.message.size_in_memory(),
            Self::Cancel(Cancel { id, key, .. }, _) | Self::Reschedule(Reschedule { id, key, .. }, _) => {
                size_in_memory(name_size(key.as_deref(), id))
            }
            Self::Event(event, _) => size_in_memory(event.size()),
            Self::Bad(_, origin) => size_in_memory(origin.record().len()),
        }
    }

    pub(crate) fn origin_mut(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Message(incoming) => incoming.origin.as_mut(),
            Self::Cancel(_, origin) | Self::Reschedule(_, origin) | Self::Event(_, origin) | Self::Bad(_, origin) => {
                Some(origin)
            }
        }
    }
}
