//! An operation's life: completed once, tried by one thread at a time, and where it waits.

use std::sync::Arc;

use super::Purgatory;
use super::host::{Cause, Kind};
use super::watchers::{Few, Place};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering};

/// What became of it: the lowest two bits of its outcome. Moves once to one of the last two, and stays there (P1).
const OPEN: u64 = 0;
/// Taken out by a cancel: a thread that still tries it for the purgatory comes too late. Watched again, it is open again.
const WITHDRAWN: u64 = 1;
/// Completed, by an event or by its time.
const COMPLETED: u64 = 2;
const EXPIRED: u64 = 3;
const STATE: u64 = 3;
/// The other bits of the outcome: which of its waits it is.
const ONE_WAIT: u64 = 4;

/// Whether a thread tries it (P6).
const IDLE: u8 = 0;
const BUSY: u8 = 1;
/// Busy, and there was a further event: the thread that holds it tries once more.
const MARKED: u8 = 2;
/// Busy, and takes no more marks: the thread that holds it has tried so often that it leaves after this try.
const LAST: u8 = 3;

/// What came of an attempt to hold an operation for trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Held,
    /// The thread that holds it tries once more.
    Marked,
    /// The thread that holds it does not try once more, but leaves soon.
    Last,
}

/// What completes an operation, and so what it may find it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completer {
    /// A caller by hand, or a timer that the operation was put on by itself: also what a cancel has handed out.
    Any,
    /// A try for the purgatory: what waits.
    Try,
    /// A deadline: what is still in the wait that it was set for.
    Deadline(Wait),
}

/// One of the waits of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait(u64);

/// What the protocol keeps in every operation.
pub(crate) struct Life<K: Kind> {
    /// 62 bits for the waits: they are not used up.
    outcome: AtomicU64,
    trying: AtomicU8,
    /// Whether the timer is to check it a little later, as it could not be tried.
    pub(super) is_put_off: AtomicBool,
    pub(super) watch: Mutex<Watch<K>>,
}

/// Where an operation waits. A watching call adds to it, and who completes or cancels takes it all.
pub(super) struct Watch<K: Kind> {
    /// `None` where it does not wait. A purgatory that nobody holds lives until all in it are complete.
    pub(super) purgatory: Option<Arc<Purgatory<K>>>,
    pub(super) places: Few<Place>,
    pub(super) deadline: Option<K::Deadline>,
    /// Which arrival of that purgatory it is; a watching call that was overtaken adds nothing more.
    pub(super) number: u64,
    /// Since when it waits, or for ever.
    pub(super) since_us: u64,
}

impl<K: Kind> Life<K> {
    pub(crate) fn new() -> Self {
        let watch = Watch { purgatory: None, places: Few::new(), deadline: None, number: 0, since_us: 0 };
        Self {
            outcome: AtomicU64::new(OPEN),
            trying: AtomicU8::new(IDLE),
            is_put_off: AtomicBool::new(false),
            watch: Mutex::new(watch),
        }
    }

    fn state(&self) -> u64 {
        self.outcome.load(Ordering::Acquire) & STATE
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(self.state(), COMPLETED | EXPIRED)
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.state() == EXPIRED
    }

    pub(super) fn is_open(&self) -> bool {
        self.state() == OPEN
    }

    /// The wait that it is in; for the thread that has its watch locked, as it is the one that may change that.
    pub(super) fn wait(&self) -> Wait {
        Wait(self.outcome.load(Ordering::Relaxed) & !STATE)
    }

    /// Its address, which names it on this thread.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The one step that decides what completes it. A cancel has overtaken the threads that still try it or expire it; a
    /// caller may complete what a cancel has handed out.
    pub(super) fn win(&self, cause: Cause, completer: Completer) -> bool {
        let ended = if cause == Cause::Event { COMPLETED } else { EXPIRED };
        let mut now = self.outcome.load(Ordering::Acquire);
        loop {
            let may = match completer {
                Completer::Any => !matches!(now & STATE, COMPLETED | EXPIRED),
                Completer::Try => now & STATE == OPEN,
                Completer::Deadline(Wait(wait)) => now == wait | OPEN,
            };
            if !may {
                return false;
            }
            let next = (now & !STATE) | ended;
            match self.outcome.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(found) => now = found, // ended, taken out, or watched again, at this very moment
            }
        }
    }

    /// The same step against it: after it, only the caller may complete it.
    pub(super) fn withdraw(&self) -> bool {
        self.change(OPEN, |now| now | WITHDRAWN)
    }

    /// It is watched again, which is a new wait.
    pub(super) fn reopen(&self) {
        self.change(WITHDRAWN, |now| (now & !STATE).wrapping_add(ONE_WAIT));
    }

    /// Called with the watch locked, under which nothing but completion changes the outcome. So a step that fails once
    /// finds it complete.
    fn change(&self, from: u64, to: impl Fn(u64) -> u64) -> bool {
        let now = self.outcome.load(Ordering::Acquire);
        now & STATE == from && self.outcome.compare_exchange(now, to(now), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A read-modify-write: who makes the check sees all that happened before those who left it to that.
    pub(super) fn is_put_off_no_more(&self) {
        self.is_put_off.swap(false, Ordering::AcqRel);
    }

    /// Holds it for trying; or leaves a mark for the thread that does.
    pub(super) fn hold_or_mark(&self) -> Hold {
        self.hold_or(|now| now != LAST)
    }

    /// As [`Self::hold_or_mark`], also where the thread that holds it should have left.
    pub(super) fn hold_or_mark_the_last(&self) -> Hold {
        self.hold_or(|_| true)
    }

    fn hold_or(&self, may_mark: impl Fn(u8) -> bool) -> Hold {
        let mut now = self.trying.load(Ordering::Relaxed);
        loop {
            if now != IDLE && !may_mark(now) {
                return Hold::Last; // this thread leaves nothing behind, so it needs no order here
            }
            // A mark on a mark is written too: the holder must see what this thread did before it.
            let next = if now == IDLE { BUSY } else { MARKED };
            match self.trying.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return if now == IDLE { Hold::Held } else { Hold::Marked },
                Err(found) => now = found,
            }
        }
    }

    /// Lets it go, unless it was marked.
    pub(super) fn let_go(&self, is_last: bool) -> bool {
        let own = if is_last { LAST } else { BUSY };
        self.trying.compare_exchange(own, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Marks what this thread holds; `false` if it takes no more marks.
    pub(super) fn mark(&self) -> bool {
        self.trying.compare_exchange(BUSY, MARKED, Ordering::AcqRel, Ordering::Relaxed) != Err(LAST)
    }

    /// As [`Life::mark`], also in the last try.
    pub(super) fn mark_the_last(&self) {
        self.trying.swap(MARKED, Ordering::AcqRel);
    }

    /// Takes the mark away, right before it is tried once more; with `is_last`, for the last time.
    pub(super) fn unmark(&self, is_last: bool) {
        self.trying.swap(if is_last { LAST } else { BUSY }, Ordering::AcqRel);
    }
}

impl<K: Kind> Watch<K> {
    /// Whether it still waits as it did when it arrived.
    pub(super) fn is(&self, purgatory: &Arc<Purgatory<K>>, number: u64) -> bool {
        self.number == number && self.purgatory.as_ref().is_some_and(|found| Arc::ptr_eq(found, purgatory))
    }

    pub(super) fn is_in(&self, purgatory: &Purgatory<K>) -> bool {
        self.purgatory.as_ref().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), purgatory))
    }

    /// What the operation's deadline is from now on. The only place that counts deadlines, so none counts twice.
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

    /// Leaves it waiting nowhere; what it held is for the caller to undo, without the lock.
    pub(super) fn take(&mut self) -> Option<Left<K>> {
        let deadline = self.set_deadline(None);
        let purgatory = self.purgatory.take()?;
        let places = std::mem::take(&mut self.places);
        Some(Left { purgatory, places, deadline, since_us: self.since_us })
    }
}

/// What a watch held.
pub(super) struct Left<K: Kind> {
    pub(super) purgatory: Arc<Purgatory<K>>,
    pub(super) places: Few<Place>,
    pub(super) deadline: Option<K::Deadline>,
    pub(super) since_us: u64,
}
