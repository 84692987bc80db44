//! What the protocol needs to know of operations, and of the side it is called from.
//!
//! The protocol is written once, for Rust and for Python. [`Kind`] says what an operation is on that side, [`Host`] how
//! to take a lock there, how to run the user's methods, and how to reach the timer.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::Purgatory;
use super::check_requests::{Asked, Rounds};
use super::operation_state::Life;
use super::timer_check::Later;
use super::watchers::ListName;
use crate::sync::{Mutex, MutexGuard};

/// A kind of operations.
pub(crate) trait Kind: Sized + 'static {
    /// What an operation waits for. The list of a key owns it, so it is dropped when nobody waits for it any more.
    type Key: Eq + Hash + Send + 'static;
    /// What hashes it.
    type Hashing: BuildHasher + Default + Send + Sync;

    /// Over how many locks the keys are spread; a power of two.
    const SHARDS: usize;

    /// A reference to an operation.
    type Op: Send + 'static;
    /// What takes an operation off the timer.
    type Deadline: Send + 'static;
    /// What is left of a deadline that was taken off: dropped without a lock, as destructors are foreign code.
    type Remains;
    /// What is told how a wait ends.
    type Waiters;
    /// What surrounds a purgatory: its timer above all.
    type Home: Send + Sync + 'static;

    fn life(op: &Self::Op) -> &Life<Self>;
}

/// How an operation was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// By an event, in time.
    Event,
    /// Its time ran out.
    Expiry,
}

/// An operation that starts to wait.
pub(crate) struct Armed<K: Kind> {
    /// `None` if it waits until an event.
    pub(crate) deadline: Option<K::Deadline>,
    pub(crate) now_us: u64,
}

/// What came of one call of `try_complete`.
pub(crate) enum Attempt<E> {
    Ran,
    /// A stranger holds the operation's own lock.
    Locked,
    Failed(E),
}

/// The side that the protocol is called from.
pub(crate) trait Host<K: Kind> {
    type Error;

    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T>;

    fn share(&self, op: &K::Op) -> K::Op;

    /// Calls `try_complete`, under the operation's own lock if it has one, without waiting for that.
    fn attempt(&self, op: &K::Op) -> Attempt<Self::Error>;

    /// The deadline that the operation has already, before its wait.
    fn deadline(&self, op: &K::Op) -> Option<K::Deadline>;

    /// Puts the operation on the timer, or moves it there, if this purgatory uses one; and says what deadline it has then,
    /// and what time it is. Refused, it has changed nothing. Called with the operation's watch locked, so it runs nothing
    /// foreign.
    fn arm(&self, home: &K::Home, op: &K::Op) -> Result<Armed<K>, Self::Error>;

    /// Takes the operation off whatever timer it is on; `None` if it is on none. Called as `arm` is.
    fn disarm(&self, op: &K::Op, home: Option<&K::Home>, deadline: Option<&K::Deadline>) -> Option<K::Remains>;

    /// The operation begins to wait in a purgatory with this home. Called with its watch locked: what is to be told of the
    /// end may be noted down.
    fn begins(&self, home: &K::Home, op: &K::Op);

    /// What was noted down is told by the caller, for the operation was taken out. Called with its watch locked.
    fn take_waiters(&self, op: &K::Op) -> K::Waiters;

    /// Tells that the operation was taken out before it was complete.
    fn tell_taken_out(&self, home: &K::Home, op: &K::Op, waiters: K::Waiters);

    /// Puts an entry on the timer, whose executor calls [`Later::make`]. No bound of the timer refuses that.
    fn add_later(&self, home: &K::Home, later: Later<K>) -> Result<(), Self::Error>;

    /// The number of the process that this call is made in.
    fn process(&self) -> u32;

    /// Whether this is still the process that the operations belong to; not in a child that a method forked.
    fn is_here(&self) -> bool;

    /// Lets other threads go first, the longer the more often this one has tried in a row.
    fn give_way(&self, rounds: u32);

    /// Calls `on_complete`, and `on_expiration` after an expiry. `home` is where it waited, if it did: there it is known
    /// whom to tell of a failure.
    fn end(&self, op: &K::Op, cause: Cause, home: Option<&K::Home>);

    /// Keeps an ending until the outermost `try_complete` of this thread has returned.
    fn defer(&self, op: &K::Op, cause: Cause, purgatory: Option<Arc<Purgatory<K>>>);

    /// Ends what was kept, in order.
    fn end_deferred(&self);

    /// What makes a check that was asked for, whatever its purgatory is.
    type Check;

    fn check_of(&self, purgatory: &Arc<Purgatory<K>>, list: ListName) -> Self::Check;

    /// How many operations it completed.
    fn make(&self, check: &Self::Check, rounds: &mut Rounds) -> usize;

    /// Leaves a check to the timer of its purgatory, by [`Purgatory::leave_over`].
    fn leave_over(&self, check: &Self::Check, by: Option<usize>, in_vain: u32);

    /// The checks that this thread was asked for.
    fn asked<T>(&self, f: impl FnOnce(&mut Asked<Self::Check>) -> T) -> T;

    /// Tells of an error that the caller will not see.
    fn report(&self, home: &K::Home, op: &K::Op, error: Self::Error);

    fn now_us(&self, home: &K::Home) -> u64;
}
