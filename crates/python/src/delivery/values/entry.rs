//! Something to submit: a record, a message of a program, or another request.

use std::collections::BTreeMap;

use tickwheel_delivery::BadRecord;
use tickwheel_delivery::internal::{Body, Item, Origin, Parsed};

#[derive(Clone)]
pub(crate) enum Entry {
    /// A record of a reader, or a message of a program.
    Read(Parsed),
    /// A message that takes the place of the message with its name, or another request.
    Other(Item),
}

/// The `destinations` and the `tenants` that a token is limited to, as far as it is.
pub(crate) type Limits = BTreeMap<String, Vec<String>>;

/// Id and key of a record, and its due time, if it has one.
pub(crate) type Named<'a> = (&'a str, Option<&'a str>, Option<i64>);

impl Entry {
    /// The item for the engine. A message or an event without its origin makes no dead letter if its name is known with other content.
    pub(crate) fn item(&self, keeps_origin: bool) -> Item {
        let mut item = match self {
            Self::Read(parsed) => parsed.clone().into(),
            Self::Other(item) => item.clone(),
        };
        if let Item::Put(put) | Item::Replace { put, .. } = &mut item
            && !keeps_origin
        {
            put.origin = None;
        }
        if let Item::Event { origin, .. } = &mut item
            && !keeps_origin
        {
            *origin = None;
        }
        item
    }

    /// Where it was read.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Read(parsed) => parsed.origin(),
            Self::Other(Item::Replace { put, .. }) => put.origin.as_ref(),
            Self::Other(_) => None,
        }
    }

    /// The fault of a record that can't be used, and where it was read.
    pub(crate) fn bad(&self) -> Option<(&BadRecord, &Origin)> {
        if let Self::Read(Parsed::Bad(bad, origin)) = self { Some((bad, origin)) } else { None }
    }

    /// Whether the engine answers it. A bad record has its fault instead.
    pub(crate) fn is_answered(&self) -> bool {
        self.bad().is_none() && !matches!(self, Self::Other(Item::Progress(_)))
    }

    /// The name of a record's operation in the table of operations. A bad record has `put`.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Other(Item::Replace { .. }) => "replace",
            Self::Read(Parsed::Cancel(..)) => "cancel",
            Self::Read(Parsed::Reschedule(..)) => "reschedule",
            Self::Read(Parsed::Event(..)) | Self::Other(Item::Event { .. }) => "event",
            _ => "put",
        }
    }

    /// `None` for a bad record. A recurring message has the due time of its first occurrence.
    pub(crate) fn named(&self) -> Option<Named<'_>> {
        match self {
            Self::Read(Parsed::Message(put)) | Self::Other(Item::Replace { put, .. }) => {
                let first_ms = put.message.body.recurrence().and_then(|it| it.first_ms().ok());
                Some((put.message.id(), put.message.key(), Some(first_ms.unwrap_or(put.message.due_ms))))
            }
            Self::Read(Parsed::Cancel(it, _)) => Some((&it.id, it.key.as_deref(), None)),
            Self::Read(Parsed::Reschedule(it, _)) => Some((&it.id, it.key.as_deref(), Some(it.due_ms))),
            Self::Read(Parsed::Event(it, _)) | Self::Other(Item::Event { event: it, .. }) => {
                Some((&it.id, Some(&it.key), None))
            }
            Self::Read(Parsed::Bad(..)) | Self::Other(_) => None,
        }
    }

    /// A message takes the place of the message with its name. A recurring message can't be put off like this: it becomes a
    /// bad record.
    pub(crate) fn replacing(self, at_latest_ms: Option<i64>) -> Self {
        match self {
            Self::Read(Parsed::Message(put)) if at_latest_ms.is_some() && put.message.recurs() => {
                let reason = "a message that recurs can't be debounced".to_owned();
                let bad = BadRecord { reason, allowed: "every or cron without at_latest_ms".to_owned() };
                Self::Read(Parsed::Bad(bad, put.origin.unwrap_or(Origin { source: "".into(), line: 0, record: None })))
            }
            Self::Read(Parsed::Message(put)) => Self::Other(Item::Replace { put, at_latest_ms }),
            other => other,
        }
    }

    /// Anything but a new message within these limits becomes a bad record. One that recurs is refused too: it could take the
    /// place of another one's.
    pub(crate) fn limited_to(self, limits: &Limits) -> Self {
        let is_within = |body: &Body| {
            let name_of = |kind: &str| if kind == "tenants" { body.tenant() } else { body.destination() };
            limits.iter().all(|(kind, names)| name_of(kind).is_some_and(|name| names.iter().any(|it| it == name)))
        };
        match &self {
            Self::Read(Parsed::Bad(..)) => return self,
            Self::Read(Parsed::Message(put)) if is_within(&put.message.body) && !put.message.recurs() => return self,
            _ => {}
        }
        let kinds = limits.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
        let reason = format!("this token is limited to {kinds}, and the record is no new message for one of them");
        let names = limits.values().map(|names| names.join(", ")).collect::<Vec<_>>().join(", and one of ");
        let allowed = format!("messages that do not recur or replace, and name one of {names}");
        let origin = self.origin().cloned().unwrap_or(Origin { source: "".into(), line: 0, record: None });
        Self::Read(Parsed::Bad(BadRecord { reason, allowed }, origin))
    }

    /// A message without a `traceparent` gets this one, which is valid.
    pub(crate) fn traced(mut self, traceparent: &str) -> Self {
        if let Self::Read(Parsed::Message(put)) | Self::Other(Item::Replace { put, .. }) = &mut self
            && put.message.traceparent().is_none()
        {
            put.message = put.message.clone().with_traceparent(traceparent);
        }
        self
    }
}
