//! What the destination and the clock did, for the log (rule D15).

/// What the destination and the clock did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Nothing can be told to the destination.
    Down {
        /// Why.
        reason: String,
    },
    /// The destination answers again.
    Up {
        /// After so long, in milliseconds.
        after_ms: u64,
    },
    /// A message failed for the first time.
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
        /// How many messages it had.
        messages: usize,
    },
    /// Sending was paused: what is due waits.
    Paused,
    /// Sending goes on.
    Resumed,
    /// So many keys are paused now: what is due of them waits.
    KeysPaused {
        /// How many.
        count: usize,
    },
    /// The wall clock was stepped.
    ClockStepped,
    /// The observer was slow, and so many events were left out.
    LeftOut {
        /// How many.
        count: u64,
    },
    /// The log of the store could not be moved to its place.
    CheckpointFailed {
        /// Why.
        reason: String,
    },
}
