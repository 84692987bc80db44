//! The timer makes the checks that are left after the rounds of a call: no event is lost (P6).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tickwheel::Operation;

use super::{Op, PATIENCE, Wait, purgatory, tries_here, until, until_empty, wait_with, watch, within};

/// Operations under a key each. A try of one counts, and asks for checks of all other keys. The first operation is complete
/// when the count is `needed`.
fn counting(count: u32, needed: u32) -> (Arc<tickwheel::SystemTimer>, Arc<super::Purgatory>, Vec<Op>, Arc<AtomicU32>) {
    let (timer, purgatory) = purgatory();
    let (counted, first) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::<Op>::new()));
    let op = |number: u32| {
        let (there, counted, first) = (Arc::downgrade(&purgatory), Arc::clone(&counted), Arc::clone(&first));
        let on_try = move |_: &Op| {
            let (Some(there), Some(first)) = (there.upgrade(), first.get()) else { return };
            if number == 0 {
                if counted.load(Ordering::Acquire) >= needed {
                    first.ready();
                    return;
                }
            } else {
                counted.fetch_add(1, Ordering::AcqRel);
            }
            for other in (0..count).filter(|other| *other != number) {
                there.check_and_complete(&other);
            }
        };
        let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        watch(&purgatory, &op, [number]);
        op
    };
    let ops: Vec<_> = (0..count).map(op).collect();
    first.set(ops[0].clone()).ok().unwrap();
    (timer, purgatory, ops, counted)
}

fn completes(count: u32, needed: u32) {
    within(PATIENCE, move || {
        let (timer, purgatory, ops, _) = counting(count, needed);
        purgatory.check_and_complete(&1);
        until(|| ops[0].ended() == (1, 0));
        for op in &ops {
            op.force_complete();
        }
        until_empty(&timer, &purgatory);
    });
}

/// The first operation completes after `needed` tries of the second, for which the call has too few rounds.
#[test]
fn an_event_that_needs_more_rounds_than_there_are_operations_is_not_lost__p6() {
    for needed in 1..=6 {
        completes(2, needed);
    }
}

#[test]
fn an_event_of_twelve_that_check_each_others_keys_is_not_lost__p6() {
    completes(12, 12 * 12 + 60);
}

/// The timer makes one round each time, so tries that never stop asking cost it only a few tries.
#[test]
fn tries_that_never_stop_asking_cost_the_timer_n_tries_less_and_less_often__p6() {
    within(PATIENCE, || {
        let (timer, purgatory, ops, _) = counting(12, u32::MAX);
        let before = tries_here();
        purgatory.check_and_complete(&1);
        assert!(tries_here() - before <= 12 * 12 * 12);
        let all = || ops.iter().map(|op| op.tries.load(Ordering::Relaxed)).sum::<u32>();
        let (tries, expired, began) = (all(), timer.stats().expired, std::time::Instant::now());
        until(|| timer.stats().expired >= expired + 7);
        assert!(began.elapsed() >= Duration::from_millis(60), "1, 2, 4, 8, 16, 32 ms");
        let (checks, more) = (timer.stats().expired - expired, all() - tries);
        assert!(u64::from(more) <= 12 * (checks + 1), "{more} tries in {checks} checks");
        assert!(timer.len() <= 12 + 1, "the deadlines, and one check");
        assert!(ops.iter().all(Operation::force_complete));
        until_empty(&timer, &purgatory);
    });
}

#[test]
fn after_the_timers_shutdown_the_next_check_finds_what_is_left_over__p6() {
    let (timer, purgatory, ops, counted) = counting(2, 2);
    timer.shutdown(None);
    purgatory.check_and_complete(&1);
    assert_eq!((counted.load(Ordering::Acquire), ops[0].is_completed()), (2, false), "there is no later");
    assert_eq!(purgatory.check_and_complete(&0), 1);
}
