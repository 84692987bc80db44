//! Events of the destination and the clock, for the log (rule D15).

/// An event of the destination, of the clock, or of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The destination is down: it accepts no message, and does not answer for the messages of several keys.
    Down {
        /// The name of the destination. `None`: that of messages that name none.
        destination: Option<String>,
        /// Why.
        reason: String,
    },
    /// The destination answers again.
    Up {
        /// As in `Down`.
        destination: Option<String>,
        /// How long it was down, in milliseconds.
        after_ms: u64,
        /// No send has shown it: there was nothing to try any more.
        is_untried: bool,
    },
    /// A destination has failed for as long as its settings say, and is paused.
    Disabled {
        /// Its name.
        destination: String,
        /// Since when it has failed, and the last error.
        reason: String,
    },
    /// An attempt of a message failed: the first, the tenth, the hundredth, and so on.
    Failed {
        /// The name of its destination. `None`: it names none.
        destination: Option<String>,
        /// The first 200 characters of its key, if it has one.
        key: Option<String>,
        /// The first 200 characters of its id.
        id: String,
        /// How many attempts of this message have failed.
        times: u32,
        /// Why.
        reason: String,
    },
    /// A send took too long.
    CutOff {
        /// The number of the send.
        flight: u64,
        /// The name of the destination. `None`: its messages name none.
        destination: Option<String>,
        /// The first 200 characters of the key of its first message, if it has one.
        key: Option<String>,
        /// The first 200 characters of the id of its first message.
        id: String,
        /// How many messages count as unanswered.
        messages: usize,
        /// How many attempts of the first message have failed, with this one.
        times: u32,
    },
    /// Sending was paused: due messages wait.
    Paused,
    /// Sending was resumed.
    Resumed,
    /// The number of paused keys has changed. Due messages of paused keys wait.
    KeysPaused {
        /// How many keys are paused.
        count: usize,
    },
    /// The wall clock was stepped. Messages that wait follow it.
    ClockStepped {
        /// How far, in milliseconds; negative if it went back.
        by_ms: i64,
        /// What it shows now, in milliseconds since 1970.
        to_ms: i64,
    },
    /// The observer was slow, so events were left out.
    LeftOut {
        /// How many events.
        count: u64,
    },
    /// The `sync` of a sink takes long. Nothing is committed until it returns.
    SlowSync {
        /// It has taken longer than this, in seconds.
        after_s: u64,
    },
    /// A checkpoint failed: the store's log was not moved to its place in the file.
    CheckpointFailed {
        /// Why.
        reason: String,
    },
    /// No base of a replicated store was made: rows gather in PostgreSQL, and a new standby takes longer. It is tried again.
    BaseFailed {
        /// Why.
        reason: String,
    },
    /// The store can't be written, for a reason that may pass. Nothing is sent or accepted until it can.
    StoreWaits {
        /// Why.
        reason: String,
    },
    /// The store can be written again.
    StoreGoesOn {
        /// How long it could not be, in milliseconds.
        after_ms: u64,
    },
    /// The environment names a proxy, the settings do not, and webhooks are sent without one.
    ProxyNotUsed {
        /// The name of its variable.
        variable: &'static str,
    },
    /// The system gives no thread for a further sender. It is asked again and again.
    NoThread {
        /// Why.
        reason: String,
    },
}
