//! What the protocol needs from its host: the user's methods, the timer, and what belongs to the calling thread.
//!
//! There is a host for Rust (`rust/host.rs`), one for Python in the bindings, and one for the model tests (`model.rs`).

use std::sync::Arc;

use super::check_requests::RequestedChecks;
use super::key_list::ListId;
use super::operation_state::{Cause, OperationKind};
use super::operation_types::Locking;
use super::purgatory_core::Purgatory;
use super::rounds::Rounds;
use super::timer_check::TimerCheck;

/// The longest that a host lets other threads run first, in yields.
pub const MAX_YIELDS: u32 = 100;

/// What [`Host::arm`] has set.
pub struct ArmedDeadline<K: OperationKind> {
    /// `None` if the operation waits until an event.
    pub deadline: Option<K::Deadline>,
    /// What the timer's clock read then.
    pub now_us: u64,
}

/// What one call of `try_complete` came to.
pub enum TryResult<E> {
    /// The code returned, and did not complete the operation.
    Returned,
    /// Another thread holds the operation's own lock.
    Locked,
    /// The code failed.
    Failed(E),
}

/// What the protocol needs from the language whose operations wait here. The defaults are for operations that no other code
/// puts on a timer, without waiters, in a process that does not fork.
pub trait Host<K: OperationKind>: Locking<K> {
    /// The error of the host's own code.
    type Error;

    /// Calls `try_complete`, under the operation's own lock if it has one. Does not wait for that lock.
    fn call_try_complete(&self, op: &K::Op) -> TryResult<Self::Error>;

    /// The deadline that the operation has already, before its wait.
    fn current_deadline(&self, _op: &K::Op) -> Option<K::Deadline> {
        None
    }

    /// Puts the operation on the timer, or moves it there, if this purgatory sets deadlines; returns the deadline that it has
    /// then, and the time. When it is refused, nothing has changed. Called with the operation's watch locked, so it runs no
    /// foreign code.
    ///
    /// # Errors
    /// The timer refuses the deadline.
    fn arm(&self, environment: &K::Environment, op: &K::Op) -> Result<ArmedDeadline<K>, Self::Error>;

    /// Takes the operation off the timer that it is on; `None` if it is on none. Called with the operation's watch locked.
    fn disarm(
        &self,
        op: &K::Op,
        environment: Option<&K::Environment>,
        deadline: Option<&K::Deadline>,
    ) -> Option<K::DisarmedDeadline>;

    /// The operation begins to wait in a purgatory with this environment. Called with its watch locked: the host may store
    /// what must be notified of the end.
    fn wait_begins(&self, _environment: &K::Environment, _op: &K::Op) {}

    /// Takes what [`Self::wait_begins`] stored: the operation was taken out, and the caller notifies. Called with its watch
    /// locked.
    fn take_waiters(&self, _op: &K::Op) -> K::Waiters {
        K::Waiters::default()
    }

    /// Notifies that the operation was taken out before it was complete.
    fn notify_taken_out(&self, _environment: &K::Environment, _op: &K::Op, _waiters: K::Waiters) {}

    /// Puts an entry on the timer, whose executor calls [`TimerCheck::run`]. No bound of the timer refuses it.
    ///
    /// # Errors
    /// The timer refuses the entry.
    fn add_timer_check(&self, environment: &K::Environment, check: TimerCheck<K>) -> Result<(), Self::Error>;

    /// The number of the process that this call was made in.
    fn process(&self) -> u32 {
        0
    }

    /// Whether this is still the process that the call was made in; not so in a child that a method forked.
    fn is_same_process(&self) -> bool {
        true
    }

    /// Lets other threads run first; for longer the more rounds this thread has made.
    fn yield_to_others(&self, rounds: u32);

    /// Calls `on_complete`, and after an expiry `on_expiration`. `environment` is that of the purgatory in which the operation
    /// waited, if it did: a failure is reported there.
    fn run_ending(&self, op: &K::Op, cause: Cause, environment: Option<&K::Environment>);

    /// Keeps an ending until the outermost `try_complete` of this thread has returned.
    fn defer_ending(&self, op: &K::Op, cause: Cause, purgatory: Option<Arc<Purgatory<K>>>);

    /// Runs the deferred endings, in order.
    fn run_deferred_endings(&self);

    /// Makes a requested check, whatever the type of its purgatory.
    type Check;

    /// The check of the operations of one key, to be made later.
    fn list_check(&self, purgatory: &Arc<Purgatory<K>>, list: ListId) -> Self::Check;

    /// Makes the check, by [`Purgatory::check_list`]; returns how many operations it completed.
    fn run_check(&self, check: &Self::Check, rounds: &mut Rounds) -> usize;

    /// Leaves a check to the timer of its purgatory, by [`Purgatory::leave_to_timer`].
    fn leave_to_timer(&self, check: &Self::Check, requested_by: Option<usize>, fruitless_runs: u32);

    /// The checks that tries of this thread requested.
    fn requested_checks<T>(&self, f: impl FnOnce(&mut RequestedChecks<Self::Check>) -> T) -> T;

    /// Reports an error that the caller does not get.
    fn report(&self, environment: &K::Environment, op: &K::Op, error: Self::Error);

    /// What the timer's clock reads.
    fn now_us(&self, environment: &K::Environment) -> u64;
}
