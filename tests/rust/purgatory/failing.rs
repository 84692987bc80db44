//! Methods and keys that panic: which caller gets the panic, and that nothing else changes (P8).
//!
//! `resume_unwind` prints nothing, unlike `panic!`.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

use super::{HOUR, Op, OwnLock, Wait, assert_empty, purgatory, until, until_empty, wait, wait_with, watch};

fn fail() {
    resume_unwind(Box::new("broken"));
}

/// Panics in its n-th try.
fn fails_in(nth: u32, own_lock: Option<Arc<OwnLock>>) -> Op {
    let on_try = move |op: &Op| {
        if op.tries.load(Ordering::Relaxed) == nth {
            fail();
        }
    };
    wait_with(Wait { own_lock, on_try: Some(Box::new(on_try)), ..Wait::default() })
}

#[test]
fn a_try_that_panics_inside_a_check_does_not_stop_the_rest_of_the_key__p8() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let ops = [wait(), fails_in(3, Some(Arc::clone(&own_lock))), wait()];
    for op in &ops {
        watch(&purgatory, op, [1]);
        op.ready();
    }
    assert_eq!(purgatory.check_and_complete(&1), 2);
    assert!(own_lock.is_free());
    assert_eq!(ops.each_ref().map(|op| op.ended().0), [1, 0, 1]);
    assert_eq!(purgatory.check_and_complete(&1), 1, "it waits on, and may be tried again");
    assert_empty(&timer, &purgatory);
}

#[test]
fn the_caller_gets_the_panic_of_a_try_in_the_watching_call_and_the_operation_waits_nowhere__p8() {
    for nth in [1, 2] {
        let (timer, purgatory) = purgatory();
        let op = fails_in(nth, None);
        let watching = catch_unwind(AssertUnwindSafe(|| purgatory.try_complete_else_watch(&op, [1, 2])));
        assert_eq!(*watching.unwrap_err().downcast_ref::<&str>().unwrap(), "broken");
        assert_empty(&timer, &purgatory);
        op.ready();
        assert_eq!(purgatory.check_and_complete(&1), 0);
        assert_eq!(purgatory.try_complete_else_watch(&op, [1]), Ok(true), "it may be watched again");
        assert_eq!(op.ended(), (1, 0));
    }
}

#[test]
fn a_try_that_completes_and_then_panics_has_completed__p8() {
    let (timer, purgatory) = purgatory();
    let on_try = |op: &Op| {
        if op.is_ready.load(Ordering::Acquire) {
            op.force_complete();
            fail();
        }
    };
    let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &op, [1, 2]);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!(op.ended(), (1, 0));
    assert_empty(&timer, &purgatory);
}

#[test]
fn an_expiration_is_reported_after_a_completion_that_panicked__p8() {
    let (timer, purgatory) = purgatory();
    let broken = || Wait { on_complete: Some(Box::new(|()| fail())), ..Wait::default() };
    let ops = [0, 1].map(|delay_ms| Operation::new(Duration::from_millis(delay_ms), broken()));
    for op in &ops {
        watch(&purgatory, op, [1]);
    }
    until(|| ops.iter().all(|op| op.ended() == (1, 1)));
    until_empty(&timer, &purgatory);
}

#[test]
fn a_completion_that_panics_stops_no_other__p8() {
    let (timer, purgatory) = purgatory();
    let ops = [true, false, true, false]
        .map(|fails| wait_with(Wait { on_complete: fails.then(|| Box::new(|()| fail()) as _), ..Wait::default() }));
    for op in &ops {
        watch(&purgatory, op, [2]);
        op.is_ready.store(true, Ordering::Release);
    }
    let there = Arc::downgrade(&purgatory);
    let on_try = move |_: &Op| _ = there.upgrade().unwrap().check_and_complete(&2);
    let outer = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &outer, [1]); // its first try completes them, and their completions run together
    assert_eq!(ops.each_ref().map(|op| op.ended().0), [1; 4]);
    assert!(outer.force_complete());
    assert_empty(&timer, &purgatory);
}

/// A key that the test can make panic.
struct Fragile(u32, Arc<AtomicBool>);

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        if self.1.load(Ordering::Relaxed) {
            fail();
        }
        self.0 == other.0
    }
}

impl Eq for Fragile {}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.0 == 13 {
            fail();
        }
        state.write_u32(self.0);
    }
}

struct Plain;

impl DelayedOperation for Plain {
    type Key = Fragile;

    fn try_complete(_: &Operation<Self>) -> bool {
        false
    }

    fn on_complete(&self) {}
}

#[test]
fn the_caller_gets_the_panic_of_a_key_and_the_operation_waits_nowhere__p8() {
    let timer = Arc::new(SystemTimer::new("fragile", &Config::default()).unwrap());
    let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
    let is_broken = Arc::new(AtomicBool::new(false));
    let key = |number| Fragile(number, Arc::clone(&is_broken));
    let (first, second) = (Operation::new(HOUR, Plain), Operation::new(HOUR, Plain));
    assert_eq!(purgatory.try_complete_else_watch(&first, [key(1)]), Ok(false));
    let breaks = |number| catch_unwind(AssertUnwindSafe(|| purgatory.try_complete_else_watch(&second, [key(number)])));
    is_broken.store(true, Ordering::Relaxed);
    assert!(breaks(1).is_err(), "when it is compared");
    is_broken.store(false, Ordering::Relaxed);
    assert!(breaks(13).is_err(), "when it is hashed");
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (1, 1, 1));
    assert_eq!(purgatory.try_complete_else_watch(&second, [key(1)]), Ok(false), "it may be watched again");
    assert_eq!(purgatory.cancel_for_key(&key(1)).len(), 2);
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (0, 0, 0));
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("a destructor"));
    }
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_does_not_stop_the_rest_of_the_key__p8_t13() {
    let (timer, purgatory) = purgatory();
    let on_try = |op: &Op| {
        if op.is_ready.load(Ordering::Acquire) {
            resume_unwind(Box::new(Bomb));
        }
    };
    let ops = [wait(), wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() }), wait()];
    for op in &ops {
        watch(&purgatory, op, [1]);
        op.ready();
    }
    assert_eq!(purgatory.check_and_complete(&1), 2);
    assert!(ops[1].cancel());
    assert_empty(&timer, &purgatory);
}
