//! The timer makes the checks that the rounds of a call did not make, and no event is lost (P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Event, ModelHost, Op, Pool, RUNS, assert_empty, purgatory, run_next_check, watch};
use crate::model::{count, every, join, sample, spawn};

const SECOND: Duration = Duration::from_secs(1);

/// Operations under a key each. A try counts, and requests checks of all other keys. The tries of the first operation do not
/// count; they complete it when the count has reached `needed`.
struct Counting {
    pool: Pool,
    ops: Vec<Op>,
    tries: Arc<AtomicU32>,
    counted: Arc<AtomicU32>,
}

impl Counting {
    fn new(number: u8, needed: u32) -> Self {
        let (pool, is_on) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let (tries, counted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let op = |own: u8| {
            let (there, is_on) = (Arc::downgrade(&pool), Arc::clone(&is_on));
            let (tries, counted) = (Arc::clone(&tries), Arc::clone(&counted));
            Op::new(move |op| {
                let Some(pool) = there.upgrade().filter(|_| is_on.load(Ordering::Relaxed) > 0) else { return };
                count(&tries);
                if own > 0 {
                    count(&counted);
                } else if counted.load(Ordering::Relaxed) >= needed {
                    op.force_complete();
                    return;
                }
                for other in (0..number).filter(|other| *other != own) {
                    pool.check_and_complete(&ModelHost, &other);
                }
            })
        };
        let ops: Vec<_> = (0..number).map(op).collect();
        for (key, op) in (0..).zip(&ops) {
            assert_eq!(watch(&pool, op, &[key]), Some(false));
        }
        count(&is_on);
        Self { pool, ops, tries, counted }
    }

    fn tries(&self) -> u32 {
        self.tries.load(Ordering::Relaxed)
    }

    /// Completes all operations, and runs the entries that are still on the timer.
    fn end(self) {
        for op in &self.ops {
            op.force_complete();
        }
        while run_next_check(&self.pool).is_some() {}
        assert_eq!(self.ops[0].completed(), 1);
        assert_empty(&self.pool);
    }
}

#[test]
fn an_event_that_needs_many_rounds_is_not_lost__p6() {
    for (number, needed) in [(2, 1), (2, 2), (2, 10), (2, 1000), (12, 1000), (12, 10_000)] {
        every(move || {
            let counting = Counting::new(number, needed);
            counting.pool.check_and_complete(&ModelHost, &1);
            let n = u32::from(number);
            assert!(counting.tries() <= n * n * n);
            while counting.ops[0].completed() == 0 {
                let before = counting.tries();
                assert!(run_next_check(&counting.pool).is_some(), "lost at {:?} of {needed}", counting.counted);
                assert!(counting.tries() - before <= n, "more than one round");
            }
            counting.end();
        });
    }
}

/// n operations whose tries always request checks cost n tries per second.
#[test]
fn while_nothing_is_completed_the_timer_waits_twice_as_long_each_time_up_to_a_second__p6() {
    every(|| {
        let counting = Counting::new(12, u32::MAX);
        counting.pool.check_and_complete(&ModelHost, &1);
        let waits: Vec<_> =
            (0..13).filter_map(|_| run_next_check(&counting.pool)).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000]);
        // An operation is completed: by a check, and by an entry of the timer.
        let event = Op::new(|op| _ = op.force_complete());
        let before = counting.tries();
        counting.pool.check_and_complete(&ModelHost, &1);
        assert_eq!(counting.pool.environment.timer_checks.lock().len(), 1, "one entry is on the timer");
        assert!(counting.tries() - before <= 12 * 12 * 12);
        drop(event);
        assert_eq!(run_next_check(&counting.pool), Some(SECOND));
        counting.ops[0].force_complete();
        counting.end();
    });
}

/// Two threads leave checks to the timer while it makes others.
#[test]
fn checks_left_to_the_timer_while_it_takes_others_are_not_lost__p6() {
    sample(RUNS / 4, || {
        let counting = Counting::new(2, 6);
        let check = |key| {
            let pool = Arc::clone(&counting.pool);
            spawn(move || _ = pool.check_and_complete(&ModelHost, &key))
        };
        let timer = {
            let pool = Arc::clone(&counting.pool);
            spawn(move || (0..3).for_each(|_| _ = run_next_check(&pool)))
        };
        join([check(0), check(1), timer]);
        while counting.ops[0].completed() == 0 {
            assert!(run_next_check(&counting.pool).is_some(), "lost at {:?}", counting.counted);
        }
        counting.end();
    });
}

/// The entry clears the flag that says that it is on the timer before it takes the checks.
#[test]
fn a_check_left_to_the_timer_while_it_takes_another_is_not_lost__p6() {
    sample(RUNS / 2, || {
        let (pool, event) = (purgatory(), Event::default());
        let ops = [Op::after(&[event.clone()]), Op::after(&[Event::default()])];
        let lists = [0, 1].map(|key| {
            assert_eq!(watch(&pool, &ops[usize::from(key)], &[key]), Some(false));
            pool.watchers.find(&ModelHost, &key).expect("it waits there")
        });
        pool.leave_to_timer(&ModelHost, lists[1], None, 0);
        let asking = {
            let pool = Arc::clone(&pool);
            spawn(move || {
                event.happens();
                pool.leave_to_timer(&ModelHost, lists[0], None, 0);
            })
        };
        run_next_check(&pool);
        join([asking]);
        while run_next_check(&pool).is_some() {}
        assert_eq!(ops.map(|op| op.completed()), [1, 0], "the event was lost");
    });
}
