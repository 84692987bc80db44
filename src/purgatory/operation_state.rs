//! An operation's state: it is completed once, one thread at a time tries it, and its watch says where it waits.

use std::sync::Arc;

use super::key_list::{Place, ShortList};
use super::operation_types::OperationTypes;
use super::purgatory_core::Purgatory;
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering};

/// The stage: the lowest two bits of the outcome. It changes once to `COMPLETED` or `EXPIRED`, and then never again (P1).
const OPEN: u64 = 0;
/// A cancel took the operation out: a thread that still tries it for the purgatory is too late. A new wait opens it again.
const WITHDRAWN: u64 = 1;
/// Completed by an event, or by a caller.
const COMPLETED: u64 = 2;
const EXPIRED: u64 = 3;
const STAGE: u64 = 3;
/// The other bits of the outcome count the waits.
const ONE_WAIT: u64 = 4;

/// Whether a thread tries the operation (P6).
const IDLE: u8 = 0;
const BUSY: u8 = 1;
/// Busy, and there was a further event: the holding thread tries once more.
const MARKED: u8 = 2;
/// Busy, and takes no more marks: this is the last try of the holding thread.
const LAST: u8 = 3;

/// A kind of operations: its types, and where each operation keeps its state.
pub trait OperationKind: OperationTypes {
    /// The state of this operation.
    fn state(op: &Self::Op) -> &OperationState<Self>;
}

/// How an operation was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// By an event, in time.
    Event,
    /// By its deadline.
    Expiry,
}

/// The result of a request to hold an operation for a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Held,
    /// The holding thread tries once more.
    Marked,
    /// The holding thread is in its last try, and this thread left no mark.
    Last,
}

/// The kinds of completion of an operation, which differ in the stages that allow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completer {
    /// A caller, or a timer to which the operation was added outside of any purgatory: also after a cancel.
    Any,
    /// A try for the purgatory: only while the operation waits.
    Try,
    /// A deadline: only during the wait that it was set for.
    Deadline(WaitNumber),
}

/// The number of one wait of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitNumber(u64);

/// What the protocol keeps in each operation.
pub struct OperationState<K: OperationKind> {
    /// The stage, and in the other 62 bits the number of the wait, which does not overflow.
    outcome: AtomicU64,
    trying: AtomicU8,
    /// Whether the timer has an entry that checks the operation again, because a check could not try it.
    pub(super) is_recheck_scheduled: AtomicBool,
    pub(super) watch: Mutex<Watch<K>>,
}

/// Where an operation waits. A watching call adds to it; the thread that completes or cancels takes all of it.
pub(super) struct Watch<K: OperationKind> {
    /// `None` while the operation does not wait. The reference keeps the purgatory alive until all waits in it have ended.
    pub(super) purgatory: Option<Arc<Purgatory<K>>>,
    pub(super) places: ShortList<Place>,
    pub(super) deadline: Option<K::Deadline>,
    /// The number of this arrival in that purgatory. A watching call whose arrival has ended adds nothing more.
    pub(super) number: u64,
    /// The start of the wait; `u64::MAX` before the second try.
    pub(super) since_us: u64,
}

impl<K: OperationKind> Default for OperationState<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: OperationKind> OperationState<K> {
    /// The state of an operation that waits nowhere yet.
    #[must_use]
    pub fn new() -> Self {
        let watch = Watch { purgatory: None, places: ShortList::new(), deadline: None, number: 0, since_us: 0 };
        Self {
            outcome: AtomicU64::new(OPEN),
            trying: AtomicU8::new(IDLE),
            is_recheck_scheduled: AtomicBool::new(false),
            watch: Mutex::new(watch),
        }
    }

    fn stage(&self) -> u64 {
        self.outcome.load(Ordering::Acquire) & STAGE
    }

    /// Whether the operation is completed.
    pub fn is_completed(&self) -> bool {
        matches!(self.stage(), COMPLETED | EXPIRED)
    }

    /// Whether its deadline completed it.
    pub fn is_expired(&self) -> bool {
        self.stage() == EXPIRED
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage() == OPEN
    }

    /// The wait that the operation is in. Call this with the watch locked: the number changes only under that lock.
    pub(super) fn wait_number(&self) -> WaitNumber {
        WaitNumber(self.outcome.load(Ordering::Relaxed) & !STAGE)
    }

    /// The address, which identifies the operation on this thread.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The one atomic step that decides what completes the operation: `true` for one caller. After a cancel the threads that
    /// still try or expire it fail, and a caller may still complete it.
    pub(super) fn set_completed(&self, cause: Cause, completer: Completer) -> bool {
        let ended = if cause == Cause::Event { COMPLETED } else { EXPIRED };
        let mut now = self.outcome.load(Ordering::Acquire);
        loop {
            let may = match completer {
                Completer::Any => !matches!(now & STAGE, COMPLETED | EXPIRED),
                Completer::Try => now & STAGE == OPEN,
                Completer::Deadline(WaitNumber(wait)) => now == wait | OPEN,
            };
            if !may {
                return false;
            }
            let next = (now & !STAGE) | ended;
            match self.outcome.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(found) => now = found, // another thread has completed it, taken it out, or watched it again
            }
        }
    }

    /// The opposite step: after it, only a caller may complete the operation.
    pub(super) fn withdraw(&self) -> bool {
        self.change(OPEN, |now| now | WITHDRAWN)
    }

    /// Opens it for a new wait, if it was withdrawn.
    pub(super) fn reopen(&self) {
        self.change(WITHDRAWN, |now| (now & !STAGE).wrapping_add(ONE_WAIT));
    }

    /// Called with the watch locked. Under it only completion changes the outcome, so a step that fails once finds the
    /// operation complete.
    fn change(&self, from: u64, to: impl Fn(u64) -> u64) -> bool {
        let now = self.outcome.load(Ordering::Acquire);
        now & STAGE == from && self.outcome.compare_exchange(now, to(now), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A read-modify-write: the thread that makes the check sees all that happened before the calls that found the flag set.
    pub(super) fn clear_recheck_scheduled(&self) {
        self.is_recheck_scheduled.swap(false, Ordering::AcqRel);
    }

    /// Holds the operation for a try, or leaves a mark for the thread that holds it.
    pub(super) fn hold_or_mark(&self) -> Hold {
        self.hold_or(|now| now != LAST)
    }

    /// As [`Self::hold_or_mark`], but marks also a thread in its last try, which then tries once more.
    pub(super) fn hold_or_mark_last_try(&self) -> Hold {
        self.hold_or(|_| true)
    }

    fn hold_or(&self, may_mark: impl Fn(u8) -> bool) -> Hold {
        let mut now = self.trying.load(Ordering::Relaxed);
        loop {
            if now != IDLE && !may_mark(now) {
                return Hold::Last; // nothing is written, so no order is needed
            }
            // A second mark is written too: the holding thread must see what this thread did before it.
            let next = if now == IDLE { BUSY } else { MARKED };
            match self.trying.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return if now == IDLE { Hold::Held } else { Hold::Marked },
                Err(found) => now = found,
            }
        }
    }

    /// Ends the hold, unless it was marked; whether it ended.
    pub(super) fn release(&self, is_last: bool) -> bool {
        let own = if is_last { LAST } else { BUSY };
        self.trying.compare_exchange(own, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Marks an operation that this thread holds; `false` in the last try.
    pub(super) fn mark(&self) -> bool {
        self.trying.compare_exchange(BUSY, MARKED, Ordering::AcqRel, Ordering::Relaxed) != Err(LAST)
    }

    /// As [`Self::mark`], also in the last try.
    pub(super) fn mark_last_try(&self) {
        self.trying.swap(MARKED, Ordering::AcqRel);
    }

    /// Clears the mark, immediately before a further try; `is_last` says that this try is the last.
    pub(super) fn clear_mark(&self, is_last: bool) {
        self.trying.swap(if is_last { LAST } else { BUSY }, Ordering::AcqRel);
    }
}

impl<K: OperationKind> Watch<K> {
    /// Whether the operation still waits as this arrival of that purgatory.
    pub(super) fn is(&self, purgatory: &Arc<Purgatory<K>>, number: u64) -> bool {
        self.number == number && self.purgatory.as_ref().is_some_and(|found| Arc::ptr_eq(found, purgatory))
    }

    pub(super) fn is_in(&self, purgatory: &Purgatory<K>) -> bool {
        self.purgatory.as_ref().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), purgatory))
    }

    /// Sets the deadline, and returns the earlier one. Deadlines are counted only here, so none counts twice.
    pub(super) fn set_deadline(&mut self, deadline: Option<K::Deadline>) -> Option<K::Deadline> {
        let earlier = std::mem::replace(&mut self.deadline, deadline);
        if let Some(purgatory) = &self.purgatory {
            let delayed = &purgatory.counters.delayed;
            match (earlier.is_some(), self.deadline.is_some()) {
                (false, true) => _ = delayed.fetch_add(1, Ordering::Relaxed),
                (true, false) => _ = delayed.fetch_sub(1, Ordering::Relaxed),
                _ => {}
            }
        }
        earlier
    }

    /// Ends the wait. The caller removes what it returns from the lists, without the lock.
    pub(super) fn take(&mut self) -> Option<EndedWait<K>> {
        let deadline = self.set_deadline(None);
        let purgatory = self.purgatory.take()?;
        let places = std::mem::take(&mut self.places);
        Some(EndedWait { purgatory, places, deadline, since_us: self.since_us })
    }
}

/// What a watch had when its wait ended.
pub(super) struct EndedWait<K: OperationKind> {
    pub(super) purgatory: Arc<Purgatory<K>>,
    pub(super) places: ShortList<Place>,
    pub(super) deadline: Option<K::Deadline>,
    pub(super) since_us: u64,
}
