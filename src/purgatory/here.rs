//! Which operations this thread is trying right now, and which keys it is checking.
//!
//! A thread that is inside an operation's `try_complete` must not mark that operation for itself, or a `try_complete`
//! that checks its own key would never end (P6). And what completes inside one is told of only after the outermost has
//! returned, when the purgatory holds no operation's lock on this thread any more. A check of a key from inside a try of
//! that same check is left to the latter, or n operations that check their own key would be tried n! times.

use std::cell::RefCell;

use super::kind::Cause;
use crate::sync::thread_local;

struct Try {
    /// The operation, by address.
    operation: usize,
    won: Option<Cause>,
}

/// A key's list: the address of its purgatory, the key's hash, and the list's number, as keys may have the same hash.
pub(super) type List = (usize, u64, u64);

/// A check of a key.
struct Check {
    list: List,
    /// How many tries it is inside of.
    depth: usize,
    /// It was asked for again from inside.
    again: bool,
}

struct Here {
    /// The outermost first.
    tries: Vec<Try>,
    checks: Vec<Check>,
    /// Whether endings were deferred.
    owes: bool,
}

thread_local! {
    static HERE: RefCell<Here> =
        const { RefCell::new(Here { tries: Vec::new(), checks: Vec::new(), owes: false }) };
}

/// What happened during a try.
pub(super) struct Tried {
    /// How this thread completed the operation, if it did.
    pub(super) won: Option<Cause>,
    /// It was tried inside the try of another one.
    pub(super) is_inside: bool,
    /// It was the outermost, and endings were deferred.
    pub(super) owes: bool,
}

/// Who tells of a completion.
pub(super) enum Teller {
    /// The try of that operation, which this thread is in the middle of.
    Try,
    /// The outermost try.
    Outermost,
    /// Whoever asks.
    Caller,
}

/// This thread tries an operation from now on; `false` if it is trying that one already.
pub(super) fn enter(operation: usize) -> bool {
    HERE.with(|here| {
        let tries = &mut here.borrow_mut().tries;
        let is_new = tries.iter().all(|earlier| earlier.operation != operation);
        if is_new {
            tries.push(Try { operation, won: None });
        }
        is_new
    })
}

/// It tries the innermost one no longer.
pub(super) fn leave() -> Tried {
    HERE.with(|here| {
        let Here { tries, owes, .. } = &mut *here.borrow_mut();
        let won = tries.pop().and_then(|last| last.won);
        let is_inside = !tries.is_empty();
        Tried { won, is_inside, owes: !is_inside && std::mem::take(owes) }
    })
}

/// Whether this thread is trying that operation.
pub(super) fn is_trying(operation: usize) -> bool {
    HERE.with(|here| here.borrow().tries.iter().any(|earlier| earlier.operation == operation))
}

/// This thread has completed that operation.
pub(super) fn won(operation: usize, cause: Cause) -> Teller {
    HERE.with(|here| {
        let Here { tries, owes, .. } = &mut *here.borrow_mut();
        if let Some(own) = tries.iter_mut().find(|earlier| earlier.operation == operation) {
            own.won = Some(cause);
            return Teller::Try;
        }
        if tries.is_empty() {
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

/// This thread checks a key while it lives.
pub(super) struct Checking;

impl Checking {
    /// `None` inside a try of a check of that same list; which then goes on once more.
    pub(super) fn enter(list: List) -> Option<Self> {
        HERE.with(|here| {
            let Here { tries, checks, .. } = &mut *here.borrow_mut();
            let depth = tries.len();
            if let Some(outer) = checks.iter_mut().rev().find(|check| check.list == list && check.depth < depth) {
                outer.again = true;
                return None;
            }
            checks.push(Check { list, depth, again: false });
            Some(Self)
        })
    }

    /// It goes on; by now the key may have another list.
    pub(super) fn goes_over(list: List) {
        HERE.with(|here| {
            if let Some(last) = here.borrow_mut().checks.last_mut() {
                last.list = list;
            }
        });
    }

    /// It is over; or, if it was asked for again from inside, returned to go on.
    pub(super) fn leave(self) -> Option<Self> {
        let goes_on = HERE.with(|here| {
            let checks = &mut here.borrow_mut().checks;
            let goes_on = checks.last_mut().is_some_and(|last| std::mem::take(&mut last.again));
            if !goes_on {
                checks.pop();
            }
            goes_on
        });
        if goes_on {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }
}

/// A key's `Eq` panicked, or the last pass completed nothing.
impl Drop for Checking {
    fn drop(&mut self) {
        HERE.with(|here| here.borrow_mut().checks.pop());
    }
}
