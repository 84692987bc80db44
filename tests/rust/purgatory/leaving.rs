//! Nothing remains of an operation, whichever thread completes it, whenever that is, and whatever is dropped (P5).

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

use super::{HOUR, Op, PATIENCE, Wait, assert_empty, join, purgatory, spawn, until, wait, wait_with, watch, within};

/// Counts the values that are not dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(living: &Arc<AtomicUsize>) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(living))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Key(u32, #[expect(dead_code, reason = "its drop counts")] Counted);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0);
    }
}

struct Request(#[expect(dead_code, reason = "its drop counts")] Counted);

impl DelayedOperation for Request {
    type Key = Key;

    fn try_complete(_: &Operation<Self>) -> bool {
        false
    }

    fn on_complete(&self) {}
}

/// In Kafka this exhausted the memory (apache/kafka#19928): the two other keys kept the operation.
#[test]
fn a_million_operations_under_three_keys_completed_through_one_leave_nothing__p5() {
    const ROUNDS: u32 = 20;
    const ROUND: u32 = 50_000;
    let timer = Arc::new(SystemTimer::new("memory", &Config::default()).unwrap());
    let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
    let living = Arc::new(AtomicUsize::new(0));
    for round in 0..ROUNDS {
        let mut ops = Vec::new();
        for number in 0..ROUND {
            let op = Operation::new(HOUR, Request(Counted::new(&living)));
            // A key of its own, one of a hundred, and one that no other call ever uses.
            let keys = [number, ROUND + number % 100, round * ROUND + 2 * ROUND + number];
            let keys = keys.map(|key| Key(key, Counted::new(&living)));
            assert_eq!(purgatory.try_complete_else_watch(&op, keys), Ok(false));
            ops.push(op);
        }
        assert_eq!((purgatory.watched(), timer.len()), (3 * ROUND as usize, ROUND as usize));
        assert!(ops.iter().all(Operation::force_complete));
        let stats = purgatory.stats();
        assert_eq!((stats.waiting, stats.watched, stats.keys, stats.delayed, timer.len()), (0, 0, 0, 0, 0));
        drop(ops);
        assert_eq!(living.load(Ordering::Relaxed), 0, "operations and keys");
    }
    assert_eq!(purgatory.stats().completed, u64::from(ROUNDS * ROUND));
}

#[test]
fn ten_thousand_operations_leave_one_key_in_any_order__p3() {
    let (timer, purgatory) = purgatory();
    let ops: Vec<_> = (0..10_000).map(|_| wait()).collect();
    for op in &ops {
        watch(&purgatory, op, [1]);
    }
    assert!(ops.iter().step_by(3).all(Operation::force_complete));
    for op in ops.iter().skip(1).step_by(3) {
        op.ready();
    }
    assert_eq!(purgatory.check_and_complete(&1), 3333);
    assert_eq!((purgatory.watched(), purgatory.stats().keys), (3333, 1));
    assert_eq!(purgatory.cancel_for_key(&1).len(), 3333);
    assert_empty(&timer, &purgatory);
}

/// A long list is read in steps.
#[test]
fn a_check_does_not_try_operations_that_came_after_its_begin__p3() {
    const MANY: usize = 1500;
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let late = wait();
        let (there, joins) = (Arc::downgrade(&purgatory), late.clone());
        let on_complete = move |()| {
            watch(&there.upgrade().unwrap(), &joins, [1]);
            joins.ready();
        };
        let first = wait_with(Wait { on_complete: Some(Box::new(on_complete)), ..Wait::default() });
        let ops: Vec<_> = std::iter::once(first).chain((1..MANY).map(|_| wait())).collect();
        for op in &ops {
            watch(&purgatory, op, [1]);
            op.ready();
        }
        assert_eq!(purgatory.check_and_complete(&1), MANY);
        assert!(!late.is_completed());
        assert_eq!(purgatory.check_and_complete(&1), 1);
        assert_empty(&timer, &purgatory);
    });
}

/// An operation that is completed by the keys under which it is being watched.
struct Fickle;

impl DelayedOperation for Fickle {
    type Key = Trigger;

    fn try_complete(_: &Operation<Self>) -> bool {
        false
    }

    fn on_complete(&self) {}
}

/// A key that completes the operation when it is hashed for the n-th time, or dropped.
struct Trigger {
    number: u32,
    op: Operation<Fickle>,
    hashed: AtomicUsize,
    at_hash: usize,
    at_drop: bool,
}

impl Trigger {
    fn new(number: u32, op: &Operation<Fickle>, at_hash: usize, at_drop: bool) -> Self {
        Self { number, op: op.clone(), hashed: AtomicUsize::new(0), at_hash, at_drop }
    }
}

impl PartialEq for Trigger {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Trigger {}

impl Hash for Trigger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.hashed.fetch_add(1, Ordering::Relaxed) + 1 == self.at_hash {
            self.op.force_complete();
        }
        state.write_u32(self.number);
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        if self.at_drop {
            self.op.force_complete();
        }
    }
}

/// Before the call and in the middle of it: a key is hashed to find equal keys, and to find its list.
#[test]
fn an_operation_completed_by_a_keys_hash_while_keys_are_added_is_on_no_list__p5() {
    for at_hash in [1, 2] {
        within(PATIENCE, move || {
            let timer = Arc::new(SystemTimer::new("hash", &Config::default()).unwrap());
            let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
            let op = Operation::new(HOUR, Fickle);
            let keys = [0, at_hash, 0].into_iter().zip(0..);
            let keys = keys.map(|(at_hash, number)| Trigger::new(number, &op, at_hash, false));
            assert_eq!(purgatory.try_complete_else_watch(&op, keys), Ok(false));
            assert!(op.is_completed());
            let stats = purgatory.stats();
            assert_eq!((stats.watched, stats.keys, stats.delayed, timer.len()), (0, 0, 0, 0));
        });
    }
}

/// A key that equals an earlier one is dropped in the middle of the call.
#[test]
fn an_operation_completed_by_a_keys_destructor_while_keys_are_added_is_on_no_list__p5() {
    within(PATIENCE, || {
        let timer = Arc::new(SystemTimer::new("drop", &Config::default()).unwrap());
        let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
        let (other, op) = (Operation::new(HOUR, Fickle), Operation::new(HOUR, Fickle));
        assert_eq!(purgatory.try_complete_else_watch(&other, [Trigger::new(1, &op, 0, false)]), Ok(false));
        let keys = [Trigger::new(1, &op, 0, true), Trigger::new(2, &op, 0, false)];
        assert_eq!(purgatory.try_complete_else_watch(&op, keys), Ok(false));
        assert!(op.is_completed());
        assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (1, 1, 1), "the other one");
        assert!(other.force_complete());
        // Also after a shutdown, when no list takes an operation.
        purgatory.shutdown();
        let late = Operation::new(HOUR, Fickle);
        assert!(purgatory.try_complete_else_watch(&late, [Trigger::new(1, &late, 0, true)]).is_err());
        assert!(late.is_completed());
    });
}

#[test]
fn an_operation_completed_by_another_thread_while_keys_are_added_is_on_no_list__p5() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        for _ in 0..2000 {
            let op = wait();
            let completer = {
                let (op, purgatory) = (op.clone(), Arc::clone(&purgatory));
                spawn(move || {
                    assert!(op.force_complete());
                    assert_eq!((purgatory.watched(), purgatory.num_delayed()), (0, 0), "once it has returned");
                })
            };
            watch(&purgatory, &op, 0..20);
            join([completer]);
        }
        assert_empty(&timer, &purgatory);
    });
}

#[test]
fn a_dropped_purgatory_keeps_its_deadlines__p1() {
    let (timer, purgatory) = purgatory();
    let (sender, receiver) = mpsc::channel();
    let on_expiration = move |()| sender.send(()).unwrap();
    let wait = Wait { on_expiration: Some(Box::new(on_expiration)), ..Wait::default() };
    watch(&purgatory, &Operation::new(Duration::from_millis(20), wait), [1]);
    drop((timer, purgatory));
    receiver.recv_timeout(PATIENCE).unwrap();
    assert!(receiver.recv_timeout(PATIENCE).is_err(), "it expired once, and is freed");
}

/// Whether no operation is left that holds it.
fn is_freed(living: &Arc<OnceLock<()>>) -> bool {
    Arc::strong_count(living) == 1
}

fn holding(living: &Arc<OnceLock<()>>) -> Op {
    let held = Arc::clone(living);
    let on_complete = move |()| _ = held.set(());
    wait_with(Wait { on_complete: Some(Box::new(on_complete)), ..Wait::default() })
}

#[test]
fn a_dropped_purgatory_without_deadlines_frees_its_operations__p5() {
    let living = Arc::new(OnceLock::new());
    let (timer, with_timer) = purgatory();
    let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), false);
    watch(&purgatory, &holding(&living), [1, 2]);
    drop(purgatory);
    assert!(is_freed(&living) && living.get().is_none());
    // A deadline has no effect after the shutdown of the timer.
    watch(&with_timer, &holding(&living), [1, 2]);
    drop(timer.shutdown(None));
    assert!(!is_freed(&living), "an event may still come");
    drop(with_timer);
    assert!(is_freed(&living) && living.get().is_none());
}

/// In both orders, and whether or not the operations that the shutdown returned are dropped.
#[test]
fn a_purgatory_that_is_dropped_before_its_timer_shuts_down_is_freed__p5() {
    let living = Arc::new(OnceLock::new());
    for holds_the_operation in [false, true] {
        let (timer, purgatory) = purgatory();
        let ops = [holding(&living), holding(&living)];
        watch(&purgatory, &ops[0], [1, 2]);
        watch(&purgatory, &ops[1], [2]);
        let held = holds_the_operation.then(|| ops[0].clone());
        drop(ops);
        drop(purgatory);
        assert!(!is_freed(&living), "their deadlines may still come");
        let pending = timer.shutdown(None);
        assert_eq!(pending.len(), 2);
        drop(pending);
        assert_eq!(Arc::strong_count(&living), 1 + usize::from(holds_the_operation));
        if let Some(held) = held {
            assert!(held.cancel() && held.force_complete(), "it is its holder's");
        }
    }
    drop(Arc::into_inner(living).expect("nothing holds it"));
}

#[test]
fn an_operation_that_ends_after_its_purgatory_was_dropped_is_freed__p5() {
    let living = Arc::new(OnceLock::new());
    let (timer, purgatory) = purgatory();
    let ops = [holding(&living), holding(&living)];
    for op in &ops {
        watch(&purgatory, op, [1, 2]);
    }
    drop(purgatory);
    assert!(ops[0].cancel());
    assert!(ops[1].force_complete());
    assert_eq!(timer.len(), 0);
    drop(ops);
    assert!(is_freed(&living));
}

/// The timer has dropped the deadlines, so no expiry can come, and a waiting operation can be taken out.
#[test]
fn after_the_timers_shutdown_an_operation_can_still_be_taken_out__p4() {
    let (timer, purgatory) = purgatory();
    let ops = [wait(), wait(), wait()];
    for (key, op) in (0..).zip(&ops) {
        watch(&purgatory, op, [key, 9]);
    }
    assert_eq!(timer.shutdown(None).len(), 3);
    assert_eq!((purgatory.num_delayed(), purgatory.stats().waiting), (0, 3), "no deadline is left");
    assert_eq!(purgatory.cancel_for_key(&0).len(), 1);
    assert!(ops[1].cancel());
    assert_eq!(purgatory.shutdown().len(), 1);
    assert_empty(&timer, &purgatory);
    assert!(ops.iter().all(Operation::force_complete), "they are their holder's");
    until(|| ops.iter().all(|op| op.ended() == (1, 0)));
}
