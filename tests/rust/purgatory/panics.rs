//! A panic affects its own operation only, and nothing of it remains on its thread (P6, P8, T13).

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

use super::{HOUR, Op, PATIENCE, Wait, assert_empty, purgatory, wait, wait_with, watch, within};

/// A payload of a panic whose destructor panics too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_any("the payload");
        }
    }
}

#[test]
fn a_payload_whose_destructor_panics_stops_neither_the_check_nor_the_next_ending__t13() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let (fails, ends) = (Arc::new(AtomicBool::new(false)), wait());
        let is_on = Arc::clone(&fails);
        let on_try = move |_: &Op| {
            if is_on.load(Ordering::Acquire) {
                panic_any(Payload);
            }
        };
        let in_try = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        let in_ending = wait_with(Wait { on_complete: Some(Box::new(|()| panic_any(Payload))), ..Wait::default() });
        for op in [&in_try, &in_ending, &ends] {
            watch(&purgatory, op, [1]);
            op.ready();
        }
        fails.store(true, Ordering::Release);
        assert_eq!(purgatory.check_and_complete(&1), 2);
        assert_eq!((in_ending.ended(), ends.ended()), ((1, 0), (1, 0)));
        fails.store(false, Ordering::Release);
        assert_eq!(purgatory.check_and_complete(&1), 1, "its try dropped it");
        assert_empty(&timer, &purgatory);
    });
}

/// A key that panics where the test wants it.
struct Bad {
    number: u32,
    at_eq: Arc<AtomicBool>,
    at_drop: Arc<AtomicBool>,
}

impl PartialEq for Bad {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.at_eq.load(Ordering::Acquire), "eq");
        self.number == other.number
    }
}

impl Eq for Bad {}

impl Hash for Bad {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.number);
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if self.at_drop.load(Ordering::Acquire) && !std::thread::panicking() {
            panic_any("drop");
        }
    }
}

#[derive(Default)]
struct Asks {
    there: Weak<DelayedOperationPurgatory<Asks>>,
    checks: Option<Bad>,
    is_ready: AtomicBool,
    completed: AtomicU32,
}

impl DelayedOperation for Asks {
    type Key = Bad;

    fn try_complete(this: &Operation<Self>) -> bool {
        if let (Some(there), Some(key)) = (this.there.upgrade(), &this.checks) {
            there.check_and_complete(key);
        }
        this.is_ready.load(Ordering::Acquire) && this.force_complete()
    }

    fn on_complete(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn nothing_remains_of_a_key_that_panics_when_it_is_dropped_or_compared__p5_p6() {
    within(PATIENCE, || {
        let (at_eq, at_drop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let never = Arc::new(AtomicBool::new(false));
        let key = |number, drops: bool| Bad {
            number,
            at_eq: Arc::clone(&at_eq),
            at_drop: Arc::clone(if drops { &at_drop } else { &never }),
        };
        let timer = Arc::new(SystemTimer::new("panics", &Config::default()).unwrap());
        let purgatory = Arc::new(DelayedOperationPurgatory::new(Arc::clone(&timer), true));
        let op = Operation::new(HOUR, Asks::default());
        assert_eq!(purgatory.try_complete_else_watch(&op, [key(1, true), key(2, true), key(3, false)]), Ok(false));
        at_drop.store(true, Ordering::Release);
        let completed = catch_unwind(AssertUnwindSafe(|| op.force_complete()));
        at_drop.store(false, Ordering::Release);
        assert!(completed.is_ok_and(|is_won| is_won), "the caller hears that it has completed it");
        assert_eq!(op.completed.load(Ordering::Acquire), 1);
        assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (0, 0, 0));
        // A key that panics in a check that a try asks for.
        let other = Operation::new(HOUR, Asks::default());
        assert_eq!(purgatory.try_complete_else_watch(&other, [key(5, false)]), Ok(false));
        let there = Arc::downgrade(&purgatory);
        let asks = Operation::new(HOUR, Asks { there, checks: Some(key(5, false)), ..Asks::default() });
        at_eq.store(true, Ordering::Release);
        let watched = catch_unwind(AssertUnwindSafe(|| purgatory.try_complete_else_watch(&asks, [key(6, false)])));
        at_eq.store(false, Ordering::Release);
        assert!(watched.is_err());
        assert_eq!(purgatory.watched(), 1);
        other.is_ready.store(true, Ordering::Release);
        assert_eq!(purgatory.check_and_complete(&key(5, false)), 1, "this thread is inside no try");
        assert_eq!(purgatory.stats().waiting, 0);
    });
}

/// A cancel returns what it has taken out, whatever the destructors of keys do.
#[test]
fn keys_that_panic_when_they_are_dropped_lose_no_operation__p4_t13() {
    for how in ["cancel_for_key", "shutdown", "cancel", "drop"] {
        within(PATIENCE, move || {
            let (at_drop, never) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let key = |number, drops: bool| Bad {
                number,
                at_eq: Arc::clone(&never),
                at_drop: Arc::clone(if drops { &at_drop } else { &never }),
            };
            let timer = Arc::new(SystemTimer::new("panics", &Config::default()).unwrap());
            let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), how != "drop");
            let ops: Vec<_> = (0..3).map(|_| Operation::new(HOUR, Asks::default())).collect();
            for (number, op) in (10..).zip(&ops) {
                // Two keys of its own, which are dropped together.
                let keys = [key(1, false), key(number, true), key(number + 10, true)];
                assert_eq!(purgatory.try_complete_else_watch(op, keys), Ok(false));
            }
            at_drop.store(true, Ordering::Release);
            let taken = match how {
                "cancel_for_key" => purgatory.cancel_for_key(&key(1, false)).len(),
                "shutdown" => purgatory.shutdown().len(),
                "cancel" => ops.iter().filter(|op| op.cancel()).count(),
                _ => {
                    drop(purgatory);
                    ops.iter().filter(|op| !op.is_completed()).count()
                }
            };
            assert_eq!(taken, 3, "{how}");
            assert!(ops.iter().all(|op| !op.cancel() && op.force_complete()), "{how}: they are their holder's");
            assert_eq!(timer.len(), 0);
        });
    }
}

/// Panics when it is dropped.
struct Fragile(Arc<AtomicU32>);

impl Drop for Fragile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_any("the operation");
        }
    }
}

/// The purgatory has the last references.
#[test]
fn an_operation_that_panics_when_it_is_dropped_does_not_stop_the_tries_of_others__p6_t13() {
    within(PATIENCE, || {
        let timer = Arc::new(SystemTimer::new("panics", &Config::default()).unwrap());
        let purgatory = Arc::new(DelayedOperationPurgatory::new(Arc::clone(&timer), true));
        let (is_on, completed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        for _ in 0..5 {
            let (is_on, fragile) = (Arc::clone(&is_on), Fragile(Arc::clone(&completed)));
            let op = Operation::new(HOUR, Late { is_on, fragile });
            assert_eq!(purgatory.try_complete_else_watch(&op, [1]), Ok(false));
        }
        is_on.store(true, Ordering::Release);
        assert_eq!(purgatory.check_and_complete(&1), 5);
        assert_eq!((completed.load(Ordering::Acquire), purgatory.watched(), timer.len()), (5, 0, 0));
    });
}

struct Late {
    is_on: Arc<AtomicBool>,
    fragile: Fragile,
}

impl DelayedOperation for Late {
    type Key = u32;

    fn try_complete(this: &Operation<Self>) -> bool {
        this.is_on.load(Ordering::Acquire) && this.force_complete()
    }

    fn on_complete(&self) {
        self.fragile.0.fetch_add(1, Ordering::AcqRel);
    }
}
