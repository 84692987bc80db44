//! Which operations this thread is trying right now.
//!
//! A thread that is inside an operation's `try_complete` must not mark that operation for itself, or a `try_complete`
//! that checks its own key would never end (P6). And what completes inside one is told of only after the outermost has
//! returned, when the purgatory holds no operation's lock on this thread any more. A check inside one is put on a list
//! (see `asked`) for the same reason.
//!
//! What a thread notes here has no destructor, so it is there to the thread's very end: a destructor of another
//! thread-local value may check and complete as any code does.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use smallvec::SmallVec;

use super::host::Cause;
use crate::sync::thread_local;

struct Try {
    /// The operation, by address.
    operation: usize,
    /// The process it is tried in: a child that a try forked is inside no try of its own.
    process: u32,
    won: Option<Cause>,
}

struct Here {
    /// The outermost first. It holds no memory of the heap when it is empty.
    tries: ManuallyDrop<SmallVec<[Try; 4]>>,
    /// Whether endings were deferred.
    owes: bool,
}

thread_local! {
    static HERE: RefCell<Here> = const {
        RefCell::new(Here { tries: ManuallyDrop::new(SmallVec::new_const()), owes: false })
    };
}

/// What happened during a try.
#[derive(Default)]
pub(super) struct Tried {
    /// How this thread completed the operation, if it did.
    pub(super) won: Option<Cause>,
    /// It was tried inside the try of another one.
    pub(super) is_inside: bool,
    /// It was the outermost, and endings were deferred.
    pub(super) owes: bool,
}

/// What tells of a completion.
pub(super) enum Teller {
    /// The try of that operation, which this thread is in the middle of.
    Try,
    /// The outermost try.
    Outermost,
    /// The caller.
    Caller,
}

/// This thread tries an operation while it lives.
pub(super) struct Trying(());

impl Trying {
    /// `None` if this thread is trying that one already.
    pub(super) fn enter(operation: usize, process: u32) -> Option<Self> {
        HERE.with(|here| {
            let tries = &mut here.borrow_mut().tries;
            let is_new = tries.iter().all(|earlier| earlier.operation != operation);
            is_new.then(|| {
                tries.push(Try { operation, process, won: None });
                Self(())
            })
        })
    }

    /// It tries the operation no longer.
    pub(super) fn leave(self) -> Tried {
        std::mem::forget(self);
        leave()
    }
}

/// Where something panicked that should not: the next check of this thread starts clean.
impl Drop for Trying {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() -> Tried {
    HERE.with(|here| {
        let Here { tries, owes } = &mut *here.borrow_mut();
        let Some(Try { process, won, .. }) = tries.pop() else { return Tried::default() };
        if tries.is_empty() {
            tries.shrink_to_fit();
        }
        let is_inside = tries.last().is_some_and(|outer| outer.process == process);
        Tried { won, is_inside, owes: !is_inside && std::mem::take(owes) }
    })
}

/// Whether this thread is trying that operation.
pub(super) fn is_trying(operation: usize) -> bool {
    HERE.with(|here| here.borrow().tries.iter().any(|earlier| earlier.operation == operation))
}

/// Whether this thread is inside a try of this process.
pub(super) fn is_inside(process: u32) -> bool {
    HERE.with(|here| here.borrow().tries.last().is_some_and(|innermost| innermost.process == process))
}

/// The operation of the innermost try of this thread.
pub(super) fn innermost() -> Option<usize> {
    HERE.with(|here| here.borrow().tries.last().map(|innermost| innermost.operation))
}

/// This thread has completed that operation.
pub(super) fn won(operation: usize, cause: Cause, process: u32) -> Teller {
    HERE.with(|here| {
        let Here { tries, owes } = &mut *here.borrow_mut();
        if let Some(own) = tries.iter_mut().find(|earlier| earlier.operation == operation) {
            own.won = Some(cause);
            return Teller::Try;
        }
        if tries.last().is_none_or(|innermost| innermost.process != process) {
            return Teller::Caller;
        }
        *owes = true;
        Teller::Outermost
    })
}

/// An ending was deferred to the outermost try.
pub(super) fn owes() {
    HERE.with(|here| here.borrow_mut().owes = true);
}
