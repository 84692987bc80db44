//! A watching call meets events, completions by callers and by deadlines, and a shutdown (P2, P5).

use std::sync::Arc;

use super::{Event, ModelHost, Op, Pool, RUNS, assert_empty, expire_all, purgatory, watch};
use crate::model::{every, join, sample, spawn};
use crate::sync::{JoinHandle, Mutex};

fn check(pool: &Pool, event: &Event, key: u8) -> JoinHandle<()> {
    let (pool, event) = (Arc::clone(pool), event.clone());
    spawn(move || {
        event.happens();
        pool.check_and_complete(&ModelHost, &key);
    })
}

/// Watches under `keys`. For each of them an event happens meanwhile, and its key is checked. Then the operation is complete.
fn watched_while_events_happen(keys: &[u8]) {
    let (pool, events) = (purgatory(), keys.iter().map(|_| Event::default()).collect::<Vec<_>>());
    let op = Op::after(&events);
    let checks: Vec<_> = keys.iter().zip(&events).map(|(key, event)| check(&pool, event, *key)).collect();
    watch(&pool, &op, keys);
    join(checks);
    assert_eq!(op.completed(), 1);
    assert_empty(&pool);
}

/// The thread of the event begins during the first try, which has looked already.
#[test]
fn an_event_between_the_two_tries_is_not_lost__p2() {
    sample(RUNS, || {
        let (pool, event, checking) = (purgatory(), Event::default(), Arc::new(Mutex::new(None)));
        let (pool_there, checking_there) = (Arc::downgrade(&pool), Arc::clone(&checking));
        let op = Op::new(move |op| {
            if event.has_happened() {
                op.force_complete();
            } else if let Some(pool) = pool_there.upgrade() {
                checking_there.lock().get_or_insert_with(|| check(&pool, &event, 1));
            }
        });
        watch(&pool, &op, &[1]);
        join(checking.lock().take());
        assert_eq!(op.completed(), 1);
        assert_empty(&pool);
    });
}

#[test]
fn an_event_at_any_time_of_the_watching_call_is_not_lost__p2() {
    sample(RUNS, || watched_while_events_happen(&[1]));
}

#[test]
fn events_on_several_keys_while_they_are_added_are_not_lost__p2() {
    sample(RUNS, || watched_while_events_happen(&[1, 2]));
    sample(RUNS / 2, || watched_while_events_happen(&[1, 2, 3]));
}

#[test]
fn what_is_completed_while_keys_are_added_is_on_no_list_once_that_returned__p5() {
    sample(RUNS, || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        let completer = {
            let (pool, op) = (Arc::clone(&pool), op.clone());
            spawn(move || {
                assert!(op.force_complete());
                // At any point of the watching call.
                let counts = pool.counts(&ModelHost);
                assert_eq!((counts.watched, counts.delayed, counts.keys), (0, 0, 0));
            })
        };
        assert_eq!(watch(&pool, &op, &[1, 2]), Some(false));
        join([completer]);
        assert_empty(&pool);
    });
}

#[test]
fn what_expires_as_soon_as_it_is_armed_is_on_no_list_afterwards__p2() {
    every(|| {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        let timer = {
            let pool = Arc::clone(&pool);
            spawn(move || expire_all(&pool))
        };
        assert_eq!(watch(&pool, &op, &[1]), Some(false));
        join([timer]);
        assert_eq!(op.expired(), u32::from(pool.environment.armed.lock().is_empty()));
        expire_all(&pool);
        assert_eq!((op.completed(), op.expired()), (1, 1));
        assert_empty(&pool);
    });
}

#[test]
fn a_shutdown_returns_what_it_finds_and_refuses_the_rest__p4() {
    sample(RUNS, || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        let watcher = {
            let (pool, op) = (Arc::clone(&pool), op.clone());
            spawn(move || match watch(&pool, &op, &[1, 2]) {
                // An operation that was accepted is returned by this shutdown or by the other one.
                Some(false) => {}
                None => assert!(!op.cancel(), "a refused operation waits nowhere"),
                Some(true) => panic!("nothing happened"),
            })
        };
        let found = pool.close(&ModelHost);
        join([watcher]);
        assert!(found.len() <= 1, "once, though it has two keys");
        assert_empty(&pool);
        assert_eq!(op.completed(), 0);
        assert!(op.force_complete(), "it is its holder's");
    });
}

#[test]
fn two_watching_calls_of_one_operation_put_it_in_one_place__p2() {
    sample(RUNS, || {
        let pools = [purgatory(), purgatory()];
        let op = Op::after(&[Event::default()]);
        let watchers = pools.clone().map(|pool| {
            let op = op.clone();
            spawn(move || _ = watch(&pool, &op, &[1]))
        });
        join(watchers);
        let watched = pools.each_ref().map(|pool| pool.counts(&ModelHost).watched);
        assert_eq!(watched.iter().sum::<usize>(), 1, "{watched:?}");
        assert!(op.force_complete());
        pools.iter().for_each(assert_empty);
    });
}

#[test]
fn a_watching_call_that_was_overtaken_adds_nothing_more__p2() {
    sample(RUNS, || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        let watcher = {
            let (pool, op) = (Arc::clone(&pool), op.clone());
            spawn(move || _ = watch(&pool, &op, &[1, 2]))
        };
        op.cancel();
        let is_same_process = watch(&pool, &op, &[3]).is_some();
        join([watcher]);
        assert_eq!(pool.counts(&ModelHost).watched, if is_same_process { 1 } else { 2 });
        op.cancel();
        assert_empty(&pool);
    });
}
