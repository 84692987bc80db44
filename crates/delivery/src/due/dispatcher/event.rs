//! Events of the destination and the clock, for the log (rule D15).

/// An event of the destination, of the clock, or of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The destination is down: it accepts no message, and does not answer for the messages of several keys.
    Down {
        /// Why.
        reason: String,
    },
    /// The destination answers again.
    Up {
        /// How long it was down, in milliseconds.
        after_ms: u64,
        /// No send has shown it: there was nothing to try any more.
        is_untried: bool,
    },
    /// The first attempt of a message failed.
    Failed {
        /// The first 200 characters of its key, if it has one.
        key: Option<String>,
        /// The first 200 characters of its id.
        id: String,
        /// Why.
        reason: String,
    },
    /// A send took too long.
    CutOff {
        /// The number of the send.
        flight: u64,
        /// The first 200 characters of the key of its first message, if it has one.
        key: Option<String>,
        /// The first 200 characters of the id of its first message.
        id: String,
        /// How many messages count as unanswered.
        messages: usize,
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
    /// The wall clock was stepped.
    ClockStepped,
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
    /// The system gives no thread for a further sender. It is asked again and again.
    NoThread {
        /// Why.
        reason: String,
    },
}
