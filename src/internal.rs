//! Private parts of this crate that the Python bindings use. Do not use them elsewhere: they change in any release, and so do the
//! methods with the attribute `#[doc(hidden)]`. `tests/rust/layout.rs` lists both.

pub use crate::every::Occurrences;
pub use crate::schedule::{STEP, Schedule};
pub use crate::state::{Due, Room, State};
pub use crate::worker::Waiting;

/// The timer's locks and threads.
pub mod sync {
    pub use crate::sync::{
        JoinHandle, Mutex, MutexGuard, PlainCondvar, PlainGuard, PlainMutex, Receiver, Sender, TryRecvError,
        set_system_thread_name, spawn, unbounded, yield_now,
    };

    /// Whether the timer's lock works in a forked child (T12). The lock of `parking_lot` does not, because the child inherits its
    /// table of sleeping threads.
    pub const SURVIVES_FORK: bool = cfg!(not(feature = "parking_lot"));
}

/// The protocol of the purgatory, for a host that is not Rust.
pub mod purgatory {
    pub use crate::purgatory::{
        ArmedDeadline, Cause, Completer, Host, ListId, Locking, MAX_YIELDS, OperationKind, OperationState,
        OperationTypes, Purgatory, RequestedChecks, Rounds, ShortList, TimerCheck, TryResult, WatchError, WatchResult,
        cancel, expire, force_complete, is_idle, shrink, sync_deadline,
    };
}
