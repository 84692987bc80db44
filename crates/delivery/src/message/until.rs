//! `until_event` of a message: the events that it waits for (rule D22).

use std::sync::Arc;

use crate::base::display::quoted;
use crate::base::error::BadRecord;

/// The most names that a message waits for, and the most bytes of all of them.
const MOST: (usize, usize) = (16, 1_024);
pub(super) const NAMES: &str = "until_event: 1 to 16 names without spaces, at most 1,024 bytes together, on a message with a key \
                                that does not recur";

/// The events that a message waits for, and why it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// The names of the events, with a space between two.
    pub names: Box<str>,
    /// Why it is due.
    pub cause: Cause,
}

/// Why a message is due that may wait for an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Its due time, when it comes; or an event before that.
    #[default]
    Open,
    /// Its due time. It stays so if the message is moved or tried again.
    Deadline,
    /// An event: its number in the store, and `{"name", "id", "payload"}` as JSON.
    Event(i64, Arc<str>),
}

impl Cause {
    /// Its word, once the message is sent.
    pub(crate) fn word(&self) -> &'static str {
        if matches!(self, Self::Event(..)) { "event" } else { "deadline" }
    }
}

impl Until {
    /// The names are checked when the message is submitted.
    pub(super) fn unchecked<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        // A bad one stands alone behind a line break, where `checked` finds it.
        let bad = names.iter().find(|name| !is_name(name)).map(|bad| format!("\n{bad}"));
        Self { names: bad.unwrap_or_else(|| names.join(" ")).into(), cause: Cause::Open }
    }

    /// Checks the names, and whether a message with this key may have them.
    pub(super) fn of<'a>(
        names: impl IntoIterator<Item = &'a str>,
        key: Option<&str>,
        recurs: bool,
    ) -> Result<Self, BadRecord> {
        if key.is_none() || recurs {
            let what = if recurs { "recurs" } else { "has no key" };
            return Err(BadRecord::new(format!("until_event is on a message that {what}"), NAMES));
        }
        let mut checked: Vec<&str> = names.into_iter().collect();
        if let Some(bad) = checked.iter().find(|name| !is_name(name)) {
            return Err(BadRecord::new(format!("{} is no name of an event", quoted(bad, 80)), NAMES));
        }
        checked.sort_unstable();
        checked.dedup();
        let names = checked.join(" ");
        if checked.is_empty() || checked.len() > MOST.0 || names.len() > MOST.1 {
            let reason = format!("until_event has {} names, and {} bytes", checked.len(), names.len());
            return Err(BadRecord::new(reason, NAMES));
        }
        Ok(Self { names: names.into(), cause: Cause::Open })
    }

    pub(super) fn checked(&self, key: Option<&str>, recurs: bool) -> Result<Self, BadRecord> {
        match self.names.strip_prefix('\n') {
            Some(bad) => Self::of([bad], key, recurs),
            None => Self::of(self.names.split(' '), key, recurs),
        }
    }

    /// Whether it waits for an event with this name.
    pub(crate) fn has(names: &str, event: &str) -> bool {
        names.split(' ').any(|name| name == event)
    }

    pub(super) fn size(&self) -> usize {
        let event = if let Cause::Event(_, data) = &self.cause { data.len() } else { 0 };
        size_of::<Self>() + self.names.len() + event
    }
}

/// Whether an event may have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MOST.1 && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}
