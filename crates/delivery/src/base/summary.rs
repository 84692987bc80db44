//! An engine's counts of messages by outcome (rule D11).
//!
//! Always `resumed + accepted = delivered + cancelled + undeliverable + not_delivered`.

/// Counts since the store was opened, up to the last commit.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel_delivery::{Deliverer, Destination, Message, Verdict};
/// # let folder = tempfile::tempdir()?;
/// # let to = Destination::function(|_| Verdict::Delivered);
/// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
/// let minute = Duration::from_secs(60);
/// deliverer.submit(["tea", "cake", "tea"].map(|id| Message::after(id, minute, "ready")))?.answers()?;
/// deliverer.cancel(None, "cake")?;
/// let summary = deliverer.close(None)?;
/// assert_eq!((summary.accepted, summary.duplicates, summary.cancelled, summary.not_delivered()), (2, 1, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages that were in the store already when it was opened.
    pub resumed: u64,
    /// New messages.
    pub accepted: u64,
    /// Messages that the destination has.
    pub delivered: u64,
    /// Messages whose name was known already.
    pub duplicates: u64,
    /// Messages that were cancelled.
    pub cancelled: u64,
    /// Records that could not be read, and messages that were given up.
    pub dead_letters: u64,
    /// Messages that were given up, or have expired.
    pub undeliverable: u64,
    /// The part of `undeliverable` that expired.
    pub expired: u64,
    /// Dead letters that are tried again. They count as accepted too.
    pub requeued: u64,
    /// Messages that got another due time or another payload.
    pub rescheduled: u64,
    /// Reschedules that came after the message was sent, or for a message that is not known.
    pub reschedules_too_late: u64,
    /// Cancels that came after the message was sent.
    pub cancels_too_late: u64,
    /// Cancels for a message that has not come.
    pub cancels_unknown: u64,
    /// Messages, or events, whose name was known with other content.
    pub conflicts: u64,
    /// Events that came, each once.
    pub events: u64,
    /// Messages that they have let go.
    pub let_go: u64,
}

impl Summary {
    /// Messages that wait, or may not have reached the destination.
    #[must_use]
    pub fn not_delivered(&self) -> u64 {
        (self.resumed + self.accepted).saturating_sub(self.delivered + self.cancelled + self.undeliverable)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.resumed += other.resumed;
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.cancelled += other.cancelled;
        self.dead_letters += other.dead_letters;
        self.undeliverable += other.undeliverable;
        self.expired += other.expired;
        self.rescheduled += other.rescheduled;
        self.requeued += other.requeued;
        self.reschedules_too_late += other.reschedules_too_late;
        self.cancels_too_late += other.cancels_too_late;
        self.conflicts += other.conflicts;
        self.events += other.events;
        self.let_go += other.let_go;
    }
}
