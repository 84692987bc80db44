//! Methods that call the purgatory: what counts at once, and which completions run later (P6).

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

use super::{
    Call, CallOnOp, HOUR, Op, OwnLock, PATIENCE, Purgatory, Wait, assert_empty, purgatory, tries_here, until,
    until_empty, wait, wait_with, watch, within,
};

#[test]
fn the_completion_of_an_operation_that_completed_inside_a_try_runs_without_any_lock__p6() {
    let (timer, purgatory) = purgatory();
    let locks = [Arc::new(OwnLock::default()), Arc::new(OwnLock::default())];
    let (sender, receiver) = mpsc::channel();
    let told_of = |name: &'static str| {
        let (sender, locks) = (sender.clone(), locks.clone());
        move |()| sender.send((name, locks.iter().all(|lock| lock.is_free()))).unwrap()
    };
    let inner = wait_with(Wait {
        own_lock: Some(Arc::clone(&locks[1])),
        on_complete: Some(Box::new(told_of("inner"))),
        ..Wait::default()
    });
    let third = wait_with(Wait { on_complete: Some(Box::new(told_of("third"))), ..Wait::default() });
    watch(&purgatory, &inner, [2]);
    watch(&purgatory, &third, [3]);
    let (there, by_hand, in_try) = (Arc::downgrade(&purgatory), third.clone(), sender.clone());
    let on_try = move |op: &Op| {
        if op.is_ready.load(Ordering::Acquire) {
            let purgatory: Arc<Purgatory> = there.upgrade().unwrap();
            assert_eq!(purgatory.check_and_complete(&2), 0, "it is made once the try is over");
            assert!(by_hand.force_complete() && by_hand.is_completed(), "it counts at once");
            assert_eq!(purgatory.watched(), 2, "and is off its lists at once");
            in_try.send(("the try is over", true)).unwrap();
        }
    };
    let outer = wait_with(Wait {
        own_lock: Some(Arc::clone(&locks[0])),
        on_try: Some(Box::new(on_try)),
        on_complete: Some(Box::new(told_of("outer"))),
        ..Wait::default()
    });
    watch(&purgatory, &outer, [1]);
    inner.ready();
    outer.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    let order: Vec<_> = receiver.try_iter().collect();
    assert_eq!(order, [("the try is over", true), ("outer", true), ("third", true), ("inner", true)]);
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_completion_inside_a_try_runs_also_if_the_outer_operation_does_not_complete__p6() {
    let (timer, purgatory) = purgatory();
    let inner = wait();
    watch(&purgatory, &inner, [2]);
    inner.ready();
    let there = Arc::downgrade(&purgatory);
    let on_try = move |_: &Op| _ = there.upgrade().unwrap().check_and_complete(&2);
    let outer = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &outer, [1]);
    assert_eq!((inner.ended(), outer.ended()), ((1, 0), (0, 0)));
    assert!(outer.cancel());
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_check_inside_an_ending_leaves_what_the_tries_before_it_requested__p6() {
    let (timer, purgatory) = purgatory();
    let (requested, other) = (wait(), wait());
    watch(&purgatory, &requested, [2]);
    watch(&purgatory, &other, [3]);
    let (in_try, in_ending) = (Arc::downgrade(&purgatory), Arc::downgrade(&purgatory));
    let on_try = move |_: &Op| _ = in_try.upgrade().unwrap().check_and_complete(&2);
    let on_complete = move |()| assert_eq!(in_ending.upgrade().unwrap().check_and_complete(&3), 1);
    let (on_try, on_complete): (CallOnOp, Call<()>) = (Some(Box::new(on_try)), Some(Box::new(on_complete)));
    let outer = wait_with(Wait { on_try, on_complete, ..Wait::default() });
    watch(&purgatory, &outer, [1]);
    for op in [&requested, &other, &outer] {
        op.ready();
    }
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!((other.ended(), requested.ended()), ((1, 0), (1, 0)), "both before the outermost call returned");
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_try_that_checks_its_own_key_is_not_tried_inside_itself__p6() {
    let (timer, purgatory) = purgatory();
    let there = Arc::downgrade(&purgatory);
    let on_try = move |_: &Op| assert_eq!(there.upgrade().unwrap().check_and_complete(&1), 0);
    let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &op, [1]);
    assert_eq!(op.tries.load(Ordering::Relaxed), 2);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!((op.tries.load(Ordering::Relaxed), op.ended()), (3, (1, 0)));
    assert_empty(&timer, &purgatory);
}

/// Without a limit a hundred operations would be tried 100! times.
#[test]
fn a_hundred_operations_that_check_their_common_key_are_each_tried_about_a_hundred_times__p6() {
    const COUNT: usize = 100;
    let (timer, purgatory) = purgatory();
    let check_own_key = || {
        let there = Arc::downgrade(&purgatory);
        let on_try = move |_: &Op| _ = there.upgrade().unwrap().check_and_complete(&1);
        wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() })
    };
    let ops: Vec<_> = (0..COUNT).map(|_| check_own_key()).collect();
    for op in &ops {
        watch(&purgatory, op, [1]);
    }
    let all = || ops.iter().map(|op| op.tries.load(Ordering::Relaxed) as usize).sum::<usize>();
    let before = (tries_here(), all());
    assert_eq!(purgatory.check_and_complete(&1), 0);
    let tries = tries_here() - before.0;
    // Each try in the timer's thread meanwhile is a check too, and such a check may come during a try here.
    let elsewhere = all() - before.1 - tries;
    let most = COUNT + COUNT * COUNT + elsewhere;
    assert!(tries <= most, "{tries}, {elsewhere} elsewhere: once, and as often again as there may be links in a chain");
    for op in &ops {
        op.ready();
    }
    purgatory.check_and_complete(&1);
    until(|| ops.iter().all(|op| op.ended() == (1, 0))); // the timer checks them too
    until_empty(&timer, &purgatory);
}

/// n operations under a key each. Each try of one checks the keys of all others.
fn mutual(count: u32, purgatory: &Arc<Purgatory>, also: impl Fn(u32) + Clone + Send + Sync + 'static) -> Vec<Op> {
    let is_on = Arc::new(AtomicBool::new(false));
    let op = |number: u32| {
        let (there, also, is_on) = (Arc::downgrade(purgatory), also.clone(), Arc::clone(&is_on));
        let on_try = move |_: &Op| {
            if !is_on.load(Ordering::Acquire) {
                return;
            }
            also(number);
            for other in (0..count).filter(|other| *other != number) {
                there.upgrade().unwrap().check_and_complete(&other);
            }
        };
        let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        watch(purgatory, &op, [number]);
        op
    };
    let ops: Vec<_> = (0..count).map(op).collect();
    is_on.store(true, Ordering::Release); // not during the watching calls
    ops
}

#[test]
fn twelve_operations_that_check_each_others_keys_are_tried_at_most_n_cubed_times__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let ops = mutual(12, &purgatory, |_| ());
        let before = tries_here();
        assert_eq!(purgatory.check_and_complete(&0), 0);
        assert!(tries_here() - before <= 12 * 12 * 12, "{}", tries_here() - before);
        assert!(ops.iter().all(Operation::force_complete));
        until_empty(&timer, &purgatory);
    });
}

/// Each operation makes the next one complete. The next one is the last that is checked, or the first.
#[test]
fn twelve_operations_that_complete_each_other_all_complete__p6() {
    for step in [1, 11, 5] {
        within(PATIENCE, move || {
            let (timer, purgatory) = purgatory();
            let ready: Arc<Vec<AtomicBool>> = Arc::new((0..12).map(|_| AtomicBool::new(false)).collect());
            let all: Arc<std::sync::OnceLock<Vec<Op>>> = Arc::default();
            let (seen, others) = (Arc::clone(&ready), Arc::clone(&all));
            let pass_on = move |number: u32| {
                let next = (number + step) % 12;
                if let Some(ops) = others.get().filter(|_| seen[number as usize].load(Ordering::Acquire)) {
                    ops[number as usize].ready();
                    seen[next as usize].store(true, Ordering::Release);
                }
            };
            let ops = mutual(12, &purgatory, pass_on);
            all.set(ops.clone()).ok().unwrap();
            ready[0].store(true, Ordering::Release);
            let before = tries_here();
            purgatory.check_and_complete(&0);
            assert!(ops.iter().all(|op| op.ended() == (1, 0)), "a link of the chain was lost");
            assert!(tries_here() - before <= 12 * 12 * 12, "{}", tries_here() - before);
            until_empty(&timer, &purgatory);
        });
    }
}

/// A try makes an operation complete that the check has passed already: that event is not lost.
#[test]
fn a_check_finds_an_earlier_operation_that_a_later_try_made_complete__p6() {
    let (timer, purgatory) = purgatory();
    let first = wait();
    watch(&purgatory, &first, [1]);
    let (there, earlier) = (Arc::downgrade(&purgatory), first.clone());
    let is_armed = Arc::new(AtomicU32::new(0));
    let armed = Arc::clone(&is_armed);
    let on_try = move |_: &Op| {
        if armed.load(Ordering::Acquire) == 1 {
            earlier.ready();
            assert_eq!(there.upgrade().unwrap().check_and_complete(&1), 0, "left to the check that is under way");
        }
    };
    let second = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &second, [1]);
    is_armed.store(1, Ordering::Release);
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!((first.ended(), second.ended()), ((1, 0), (0, 0)));
    assert!(second.cancel());
    assert_empty(&timer, &purgatory);
}

#[test]
fn an_operation_that_is_taken_out_inside_its_own_try_is_not_completed_by_that_try__p4() {
    let (timer, purgatory) = purgatory();
    let there: Weak<Purgatory> = Arc::downgrade(&purgatory);
    let on_try = move |op: &Op| {
        if op.is_ready.load(Ordering::Acquire) {
            assert_eq!(there.upgrade().unwrap().cancel_for_key(&1).len(), 1);
            assert!(!op.force_complete(), "it is the canceller's, once the try is over");
        }
    };
    let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &op, [1]);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 0);
    assert_empty(&timer, &purgatory);
    assert_eq!(op.ended(), (0, 0));
    assert!(op.force_complete());
}

/// The running try has looked already, so it does not count as one of the two tries of the watching call.
#[test]
fn an_operation_that_is_watched_again_inside_its_own_try_is_tried_once_more__p2() {
    let (timer, purgatory) = purgatory();
    let (there, is_on) = (Arc::downgrade(&purgatory), Arc::new(AtomicBool::new(false)));
    let moves = Arc::clone(&is_on);
    let op = wait_with(Wait {
        after_try: Some(Box::new(move |op| {
            if moves.swap(false, Ordering::AcqRel) {
                assert!(op.cancel());
                op.ready(); // no other call checks the new key
                watch(&there.upgrade().unwrap(), op, [2]);
            }
        })),
        ..Wait::default()
    });
    watch(&purgatory, &op, [1]);
    is_on.store(true, Ordering::Release);
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!(op.ended(), (1, 0));
    assert_empty(&timer, &purgatory);
}

#[test]
fn an_operation_that_expires_inside_its_own_try_runs_its_expiration__p1() {
    let (timer, purgatory) = purgatory();
    let (there, is_on) = (Arc::clone(&timer), Arc::new(AtomicBool::new(false)));
    let expires = Arc::clone(&is_on);
    let on_try = move |_: &Op| {
        if expires.load(Ordering::Acquire) {
            // Runs the expiry that the timer did not run before its shutdown.
            there.shutdown(None).into_iter().for_each(|pending| (pending.task)());
        }
    };
    let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    watch(&purgatory, &op, [1]);
    is_on.store(true, Ordering::Release);
    assert_eq!(purgatory.check_and_complete(&1), 0, "its time ran out: no event completed it");
    assert_eq!((op.ended(), op.is_expired()), ((1, 1), true));
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_completion_may_watch_another_under_the_same_key__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let (next, there) = (wait(), Arc::downgrade(&purgatory));
        let successor = next.clone();
        let on_complete = move |()| watch(&there.upgrade().unwrap(), &successor, [1]);
        let op = wait_with(Wait { on_complete: Some(Box::new(on_complete)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        op.ready();
        assert_eq!(purgatory.check_and_complete(&1), 1, "what came after the check began is not its business");
        assert_eq!(purgatory.watched(), 1);
        next.ready();
        assert_eq!(purgatory.check_and_complete(&1), 1);
        assert_empty(&timer, &purgatory);
    });
}

/// Each completion completes the next, by its key.
#[test]
fn a_chain_of_completions_runs_to_its_end__p6() {
    const LONG: u32 = 500;
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let completed = Arc::new(AtomicU32::new(0));
        for key in 0..LONG {
            let (there, completed) = (Arc::downgrade(&purgatory), Arc::clone(&completed));
            let on_complete = move |()| {
                completed.fetch_add(1, Ordering::Relaxed);
                there.upgrade().unwrap().check_and_complete(&(key + 1));
            };
            let op = wait_with(Wait { on_complete: Some(Box::new(on_complete)), ..Wait::default() });
            watch(&purgatory, &op, [key]);
            op.ready();
        }
        assert_eq!(purgatory.check_and_complete(&0), 1, "the others were completed by the calls inside");
        assert_eq!(completed.load(Ordering::Relaxed), LONG);
        assert_empty(&timer, &purgatory);
    });
}

/// A key with the same hash as all others, which is slow, but allowed.
#[derive(PartialEq, Eq)]
struct Alike(u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(0);
    }
}

/// An operation whose tries check another key.
struct Asks {
    there: Weak<DelayedOperationPurgatory<Asks>>,
    other: u32,
    is_ready: AtomicBool,
}

impl DelayedOperation for Asks {
    type Key = Alike;

    fn try_complete(this: &Operation<Self>) -> bool {
        this.there.upgrade().unwrap().check_and_complete(&Alike(this.other));
        this.is_ready.load(Ordering::Acquire) && this.force_complete()
    }

    fn on_complete(&self) {}
}

#[test]
fn a_check_inside_a_check_of_another_key_is_made_though_their_hashes_are_alike__p6() {
    let timer = Arc::new(SystemTimer::new("alike", &Config::default()).unwrap());
    let purgatory = Arc::new(DelayedOperationPurgatory::new(timer, true));
    let ops = [1, 2].map(|key| {
        let asks = Asks { there: Arc::downgrade(&purgatory), other: 3 - key, is_ready: AtomicBool::new(false) };
        let op = Operation::new(HOUR, asks);
        assert_eq!(purgatory.try_complete_else_watch(&op, [Alike(key)]), Ok(false));
        op
    });
    ops[1].is_ready.store(true, Ordering::Release);
    assert_eq!(purgatory.check_and_complete(&Alike(1)), 0, "its own is not ready");
    assert!(ops[1].is_completed(), "but the one that it asked for");
}
