//! Which operations this thread is trying right now.
//!
//! A thread inside an operation's `try_complete` must not mark that operation for itself, or a `try_complete` that checks
//! its own key would never end (P6). When an operation is completed inside the try of another one, its ending runs after
//! the outermost try has returned: then this thread holds no operation's lock. For the same reason a check inside a try
//! becomes a request (see `check_requests`).
//!
//! The thread-local value has no destructor, so it exists until the thread has ended: a destructor of another thread-local
//! value may check and complete like any other code.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use smallvec::SmallVec;

use super::operation_state::Cause;
use crate::sync::thread_local;

struct Try {
    /// The operation, by address.
    operation: usize,
    /// The process of the try: a child that a try forked is inside no try of its own.
    process: u32,
    /// How this thread completed the operation, if it did.
    completed: Option<Cause>,
}

struct InProgress {
    /// The outermost first. It holds no heap memory when it is empty.
    tries: ManuallyDrop<SmallVec<[Try; 4]>>,
    has_deferred_endings: bool,
}

thread_local! {
    static IN_PROGRESS: RefCell<InProgress> = const {
        RefCell::new(InProgress { tries: ManuallyDrop::new(SmallVec::new_const()), has_deferred_endings: false })
    };
}

/// What happened during a try.
#[derive(Default)]
pub(super) struct FinishedTry {
    /// How this thread completed the operation, if it did.
    pub(super) completed: Option<Cause>,
    /// The try was inside the try of another operation.
    pub(super) is_inside_try: bool,
    /// The try was the outermost, and endings were deferred.
    pub(super) has_deferred_endings: bool,
}

/// What runs the ending of a completed operation.
pub(super) enum EndingRunner {
    /// The operation's own try, which this thread is inside of.
    OwnTry,
    OutermostTry,
    /// The completing call.
    Caller,
}

/// A try of an operation by this thread, from [`TryScope::enter`] to [`TryScope::leave`].
pub(super) struct TryScope(());

impl TryScope {
    /// `None` if this thread is trying that operation already.
    pub(super) fn enter(operation: usize, process: u32) -> Option<Self> {
        IN_PROGRESS.with(|in_progress| {
            let tries = &mut in_progress.borrow_mut().tries;
            let is_new = tries.iter().all(|earlier| earlier.operation != operation);
            is_new.then(|| {
                tries.push(Try { operation, process, completed: None });
                Self(())
            })
        })
    }

    pub(super) fn leave(self) -> FinishedTry {
        std::mem::forget(self);
        leave()
    }
}

/// After a panic that should not happen: the next check of this thread begins with no try in progress.
impl Drop for TryScope {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() -> FinishedTry {
    IN_PROGRESS.with(|in_progress| {
        let InProgress { tries, has_deferred_endings } = &mut *in_progress.borrow_mut();
        let Some(Try { process, completed, .. }) = tries.pop() else { return FinishedTry::default() };
        if tries.is_empty() {
            tries.shrink_to_fit();
        }
        let is_inside_try = tries.last().is_some_and(|outer| outer.process == process);
        let has_deferred_endings = !is_inside_try && std::mem::take(has_deferred_endings);
        FinishedTry { completed, is_inside_try, has_deferred_endings }
    })
}

/// Whether this thread is trying that operation.
pub(super) fn is_trying(operation: usize) -> bool {
    IN_PROGRESS.with(|in_progress| in_progress.borrow().tries.iter().any(|earlier| earlier.operation == operation))
}

/// Whether this thread is inside a try of this process.
pub(super) fn is_inside_try(process: u32) -> bool {
    IN_PROGRESS.with(|in_progress| in_progress.borrow().tries.last().is_some_and(|inner| inner.process == process))
}

/// The operation of this thread's innermost try.
pub(super) fn innermost_operation() -> Option<usize> {
    IN_PROGRESS.with(|in_progress| in_progress.borrow().tries.last().map(|innermost| innermost.operation))
}

/// This thread has completed that operation: says what runs its ending.
pub(super) fn note_completion(operation: usize, cause: Cause, process: u32) -> EndingRunner {
    IN_PROGRESS.with(|in_progress| {
        let InProgress { tries, has_deferred_endings } = &mut *in_progress.borrow_mut();
        if let Some(own) = tries.iter_mut().find(|earlier| earlier.operation == operation) {
            own.completed = Some(cause);
            return EndingRunner::OwnTry;
        }
        if tries.last().is_none_or(|innermost| innermost.process != process) {
            return EndingRunner::Caller;
        }
        *has_deferred_endings = true;
        EndingRunner::OutermostTry
    })
}

/// An ending was deferred to the outermost try.
pub(super) fn note_deferred_ending() {
    IN_PROGRESS.with(|in_progress| in_progress.borrow_mut().has_deferred_endings = true);
}
