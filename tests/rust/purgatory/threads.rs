//! Many threads check the same operations: no completion is lost, and no thread hangs (P6).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use super::{
    Op, OwnLock, PATIENCE, Purgatory, Wait, assert_empty, join, purgatory, spawn, until, until_empty, wait_with, watch,
    within,
};
use crate::support::Random;

const THREADS: usize = 20;
const OPS: usize = 100;
const ATTEMPTS: usize = 20;

fn pause(random: &mut Random) {
    for _ in 0..random.below(20) {
        thread::yield_now();
    }
}

/// 20 threads make 20 attempts at each of 100 operations. An operation becomes ready right before its last attempt begins. A
/// try looks first and pauses then, so only a further try can see what happens during the pause.
fn attempts(own_lock: Option<&Arc<OwnLock>>) -> Vec<Op> {
    let (timer, purgatory) = purgatory();
    let ready: Arc<Vec<AtomicBool>> = Arc::new((0..OPS).map(|_| AtomicBool::new(false)).collect());
    let op_of = |number: usize| {
        let ready = Arc::clone(&ready);
        let on_try = move |op: &Op| {
            let is_ready = ready[number].load(Ordering::Acquire);
            pause(&mut Random::new(u64::from(op.tries.load(Ordering::Relaxed))));
            if is_ready {
                op.force_complete();
            }
        };
        wait_with(Wait { own_lock: own_lock.cloned(), on_try: Some(Box::new(on_try)), ..Wait::default() })
    };
    let ops: Vec<_> = (0..OPS).map(op_of).collect();
    for (key, op) in (0..).zip(&ops) {
        watch(&purgatory, op, [key, 1000 + key, 5000]);
    }
    let mut random = Random::new(7);
    let mut order: Vec<usize> = (0..OPS * ATTEMPTS).map(|attempt| attempt % OPS).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index as u64 + 1) as usize);
    }
    let begun: Arc<Vec<AtomicUsize>> = Arc::new((0..OPS).map(|_| AtomicUsize::new(0)).collect());
    let threads = order.chunks(OPS * ATTEMPTS / THREADS).map(|share| {
        let (share, begun, ready, purgatory) =
            (share.to_vec(), Arc::clone(&begun), Arc::clone(&ready), Arc::clone(&purgatory));
        spawn(move || {
            for number in share {
                if begun[number].fetch_add(1, Ordering::AcqRel) == ATTEMPTS - 1 {
                    ready[number].store(true, Ordering::Release);
                }
                purgatory.check_and_complete(&(number as u32));
            }
        })
    });
    join(threads.collect::<Vec<_>>());
    if own_lock.is_some() {
        // Some checks were postponed, because another operation was tried under the same lock.
        until(|| ops.iter().all(|op| op.ended() == (1, 0)) && timer.is_empty());
    }
    assert_eq!(ops.iter().filter(|op| op.ended() != (1, 0)).count(), 0, "of {OPS}");
    assert_empty(&timer, &purgatory);
    ops
}

#[test]
fn no_completion_is_lost_in_2000_attempts_of_20_threads__p6() {
    within(PATIENCE, || drop(attempts(None)));
}

#[test]
fn no_completion_is_lost_with_one_lock_for_all_operations__p6() {
    within(PATIENCE, || drop(attempts(Some(&Arc::default()))));
}

/// An operation whose tries first check some keys.
fn checks(purgatory: &Arc<Purgatory>, keys: [u32; 2]) -> Op {
    let purgatory = Arc::downgrade(purgatory);
    let on_try = move |_: &Op| {
        if let Some(purgatory) = purgatory.upgrade() {
            for key in &keys {
                purgatory.check_and_complete(key);
            }
        }
    };
    wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() })
}

/// 8 threads check two operations that check their own keys and each other's, until another thread makes both ready.
fn they_check_each_other(keys: [u32; 2]) {
    within(PATIENCE, move || {
        for _ in 0..100 {
            let (timer, purgatory) = purgatory();
            let ops = keys.map(|key| {
                let op = checks(&purgatory, keys);
                watch(&purgatory, &op, [key]);
                op
            });
            let checkers = (0..8).map(|number| {
                let (purgatory, op) = (Arc::clone(&purgatory), ops[number % 2].clone());
                spawn(move || {
                    for _ in 0..20 {
                        purgatory.check_and_complete(&keys[number % 2]);
                    }
                    op.ready();
                    purgatory.check_and_complete(&keys[number % 2]);
                })
            });
            join(checkers.collect::<Vec<_>>());
            // The timer may have some of the checks.
            until(|| ops.iter().all(|op| op.ended() == (1, 0)));
            until_empty(&timer, &purgatory);
        }
    });
}

#[test]
fn two_operations_that_check_each_other_end__p6() {
    they_check_each_other([1, 2]);
}

#[test]
fn two_operations_that_check_their_common_key_end__p6() {
    they_check_each_other([1, 1]);
}

/// Four threads complete operations whose completions check the same key and others, which completes more.
#[test]
fn completions_that_check_the_same_and_other_keys_end__p6() {
    const KEYS: u32 = 40;
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let there: Weak<Purgatory> = Arc::downgrade(&purgatory);
        let op_of = |key: u32| {
            let there = there.clone();
            let on_complete = move |()| {
                if let Some(purgatory) = there.upgrade() {
                    for next in [key, (key + 1) % KEYS, (key + 7) % KEYS] {
                        purgatory.check_and_complete(&next);
                    }
                }
            };
            wait_with(Wait { on_complete: Some(Box::new(on_complete)), ..Wait::default() })
        };
        let ops: Vec<_> = (0..KEYS * 5).map(|number| (number % KEYS, op_of(number % KEYS))).collect();
        for (key, op) in &ops {
            watch(&purgatory, op, [*key, (key + 3) % KEYS]);
        }
        for (_, op) in &ops {
            op.ready();
        }
        let threads = [0, 10, 20, 30].map(|key| {
            let purgatory = Arc::clone(&purgatory);
            spawn(move || purgatory.check_and_complete(&key))
        });
        join(threads);
        assert!(ops.iter().all(|(_, op)| op.ended() == (1, 0)), "each of them, by whichever thread");
        assert_empty(&timer, &purgatory);
    });
}

/// Threads watch, complete and cancel under few keys: each operation ends in exactly one way.
#[test]
fn each_operation_of_a_crowd_ends_in_one_way__p1_p4() {
    const EACH: usize = 5000;
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let threads = (0..4).map(|seed| {
            let purgatory = Arc::clone(&purgatory);
            spawn(move || {
                let mut random = Random::new(seed);
                let (mut ops, mut cancelled) = (Vec::new(), Vec::new());
                for _ in 0..EACH {
                    let op = wait_with(Wait::default());
                    let keys: Vec<u32> = (0..random.between(1, 3)).map(|_| random.below(8) as u32).collect();
                    if random.below(4) > 0 {
                        op.ready(); // complete at once, or by a check of any thread
                    }
                    purgatory.try_complete_else_watch(&op, keys).unwrap();
                    ops.push(op);
                    let key = random.below(8) as u32;
                    match random.below(6) {
                        0 => cancelled.extend(purgatory.cancel_for_key(&key)),
                        1 => drop(ops[random.below(ops.len() as u64) as usize].force_complete()),
                        2 => ops[random.below(ops.len() as u64) as usize].ready(),
                        _ => drop(purgatory.check_and_complete(&key)),
                    }
                }
                (ops, cancelled)
            })
        });
        let all = join(threads.collect::<Vec<_>>());
        let left = purgatory.shutdown();
        assert_empty(&timer, &purgatory);
        let stats = purgatory.stats();
        let cancelled: usize = all.iter().map(|(_, cancelled)| cancelled.len()).sum();
        assert_eq!(stats.cancelled as usize, cancelled + left.len());
        let ops = || all.iter().flat_map(|(ops, _)| ops);
        assert!(ops().all(|op| op.ended().0 == u32::from(op.is_completed())), "completed once, and only if complete");
        let open = ops().filter(|op| !op.is_completed()).count();
        assert!(open <= cancelled + left.len(), "{open} open, {cancelled} cancelled, {} left", left.len());
        assert!(cancelled > 0 && stats.completed > 0);
    });
}
