//! Operations of Rust programs: the trait, and the shared reference to an operation.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::super::operation_state::{OperationKind, OperationState};
use super::super::operation_types::OperationTypes;
use crate::system::SystemTimer;
use crate::wheel::Handle;

/// Something that waits for an event, or for its deadline.
///
/// None of its methods runs under a lock of the purgatory, and each may call the purgatory again, for any key. A method that
/// panics is reported by the panic hook, and the next method runs. After Kafka's `DelayedOperation`.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use tickwheel::{DelayedOperation, Operation};
///
/// /// A fetch that waits until a partition has enough bytes.
/// struct Fetch {
///     available: AtomicU32,
///     wanted: u32,
/// }
///
/// impl DelayedOperation for Fetch {
///     type Key = (String, u32); // topic and partition
///
///     fn try_complete(this: &Operation<Self>) -> bool {
///         this.available.load(Ordering::Acquire) >= this.wanted && this.force_complete()
///     }
///
///     fn on_complete(&self) {
///         println!("{} bytes", self.available.load(Ordering::Acquire));
///     }
///
///     fn on_expiration(&self) {
///         println!("fewer than {} in time", self.wanted);
///     }
/// }
/// ```
pub trait DelayedOperation: Sized + Send + Sync + 'static {
    /// What the operation waits for. Equal keys are one key. `Eq` runs under a lock of the purgatory, so it must not call the
    /// purgatory.
    type Key: Eq + Hash + Send + 'static;

    /// Checks whether the event has happened. If so, returns `this.force_complete()`, otherwise `false`.
    fn try_complete(this: &Operation<Self>) -> bool;

    /// Called once, when the operation is complete, in time or not.
    fn on_complete(&self);

    /// Called after [`Self::on_complete`] when the deadline has passed.
    fn on_expiration(&self) {}

    /// Runs `attempt` under the operation's own lock, if it has one. Returns `false` if another thread holds that lock.
    ///
    /// It must not wait for the lock. The lock must be re-entrant: a thread that holds it already must get it again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use parking::ReentrantMutex;
    /// # use tickwheel::{DelayedOperation, Operation};
    /// struct Transfer(ReentrantMutex);
    ///
    /// impl DelayedOperation for Transfer {
    /// #   type Key = u64;
    /// #   fn try_complete(this: &Operation<Self>) -> bool { this.force_complete() }
    /// #   fn on_complete(&self) {}
    ///     fn locked(&self, attempt: &mut dyn FnMut()) -> bool {
    ///         let Some(_guard) = self.0.try_lock() else { return false };
    ///         attempt();
    ///         true
    ///     }
    /// }
    /// # // Stands for any crate with a re-entrant mutex.
    /// # mod parking {
    /// #     pub struct ReentrantMutex;
    /// #     impl ReentrantMutex { pub fn try_lock(&self) -> Option<()> { Some(()) } }
    /// # }
    /// # let mut runs = 0;
    /// # assert!(Operation::new(Duration::ZERO, Transfer(ReentrantMutex)).locked(&mut || runs += 1) && runs == 1);
    /// ```
    fn locked(&self, attempt: &mut dyn FnMut()) -> bool {
        attempt();
        true
    }
}

/// A shared reference to an operation that can wait, and is completed once. A clone refers to the same operation.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{DelayedOperation, Operation};
/// struct Wait {
///     name: &'static str,
/// }
///
/// impl DelayedOperation for Wait {
///     type Key = u64;
///     fn try_complete(_this: &Operation<Self>) -> bool {
///         false
///     }
///     fn on_complete(&self) {}
/// }
///
/// let wait = Operation::new(Duration::from_secs(30), Wait { name: "reply 7" });
/// let same = wait.clone();
/// assert_eq!(wait.name, "reply 7"); // it dereferences to the operation
/// assert!(same.force_complete());
/// assert!(wait.is_completed() && !wait.is_expired());
/// ```
pub struct Operation<O: DelayedOperation>(pub(super) Arc<Inner<O>>);

pub(super) struct Inner<O: DelayedOperation> {
    pub(super) state: OperationState<RustOperations<O>>,
    pub(super) delay: Duration,
    pub(super) operation: O,
}

impl<O: DelayedOperation> Operation<O> {
    /// An operation that expires `delay` after it was watched.
    pub fn new(delay: Duration, operation: O) -> Self {
        Self(Arc::new(Inner { state: OperationState::new(), delay, operation }))
    }

    /// Whether it is complete, in time or not.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.0.state.is_completed()
    }

    /// Whether its deadline completed it. `on_complete` may already ask.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.0.state.is_expired()
    }
}

impl<O: DelayedOperation> Clone for Operation<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: DelayedOperation> Deref for Operation<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.0.operation
    }
}

impl<O: DelayedOperation> fmt::Debug for Operation<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("is_completed", &self.is_completed()).finish_non_exhaustive()
    }
}

/// The operations of Rust programs, as the protocol sees them.
pub(super) struct RustOperations<O>(PhantomData<O>);

pub(crate) struct Environment {
    pub(super) timer: Arc<SystemTimer>,
    pub(super) timer_enabled: bool,
}

#[cfg(not(tickwheel_model))]
type BuildKeyHasher = std::hash::RandomState;
/// A model must run the same every time.
#[cfg(tickwheel_model)]
type BuildKeyHasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

impl<O: DelayedOperation> OperationTypes for RustOperations<O> {
    type Key = O::Key;
    type BuildKeyHasher = BuildKeyHasher;
    /// Enough for the threads of a large machine.
    const SHARDS: usize = 64;
    type Op = Operation<O>;
    type Deadline = Handle;
    type DisarmedDeadline = ();
    type Waiters = ();
    type Environment = Environment;
}

impl<O: DelayedOperation> OperationKind for RustOperations<O> {
    fn state(op: &Operation<O>) -> &OperationState<Self> {
        &op.0.state
    }
}
