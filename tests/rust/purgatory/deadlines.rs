//! Deadlines on real threads: an operation has exactly one of completion, expiry and cancel.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tickwheel::{Config, DelayedOperationPurgatory, Operation, SystemTimer};

use super::{Op, PATIENCE, Wait, assert_empty, join, purgatory, spawn, until, watch, within};

const BATCH: u32 = 1000;
const DELAY: Duration = Duration::from_millis(2);

fn spin_until(instant: Instant) {
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

/// 100 times a thousand operations are due one after another. At about that time one thread checks their keys in order, and
/// another takes every third operation out. Their start times are adjusted so that each of the three wins about as often.
#[test]
fn an_operation_at_its_deadline_completes_expires_or_is_cancelled_100_000_times__p1_p4() {
    within(PATIENCE * 2, || {
        let (timer, purgatory) = purgatory();
        let (mut fates, mut check_at, mut cancel_at) = ([0; 3], DELAY, DELAY);
        for batch in 0..100 {
            let ops: Vec<Op> = (0..BATCH).map(|_| Operation::new(DELAY, Wait::default())).collect();
            let began = Instant::now();
            for (key, op) in (0..).zip(&ops) {
                watch(&purgatory, op, [key, BATCH + key % 7]);
                op.ready();
            }
            let canceller = {
                let purgatory = Arc::clone(&purgatory);
                spawn(move || {
                    spin_until(began + cancel_at);
                    (0..BATCH).step_by(3).map(|key| purgatory.cancel_for_key(&key).len()).sum::<usize>()
                })
            };
            spin_until(began + check_at);
            let completed: usize = (0..BATCH).map(|key| purgatory.check_and_complete(&key)).sum();
            let cancelled: usize = join([canceller]).into_iter().sum();
            until(|| ops.iter().filter(|op| op.ended().0 == 1).count() + cancelled == ops.len());
            until(|| timer.stats().running == 0);
            let expired = ops.iter().filter(|op| op.ended() == (1, 1)).count();
            assert_eq!(completed + cancelled + expired, ops.len(), "batch {batch}");
            assert!(ops.iter().all(|op| op.ended().0 == u32::from(op.is_completed())), "batch {batch}");
            assert_eq!(ops.iter().filter(|op| op.is_expired()).count(), expired, "batch {batch}");
            assert_empty(&timer, &purgatory);
            fates = [fates[0] + completed, fates[1] + expired, fates[2] + cancelled];
            let step = DELAY / 20;
            check_at = if completed > expired { check_at + step } else { check_at.saturating_sub(step) };
            cancel_at = if cancelled > ops.len() / 6 { cancel_at + step } else { cancel_at.saturating_sub(step) };
        }
        println!("completed, expired, cancelled: {fates:?}");
        assert!(fates.iter().all(|times| *times > 1000), "each in earnest: {fates:?}");
    });
}

/// The last expiries of a timer run during its shutdown. An expiry that was claimed before a cancel took its operation out
/// must not end a later wait of that operation.
#[test]
fn an_old_expiry_of_a_timer_that_shuts_down_ends_no_later_wait__p4() {
    within(PATIENCE * 2, || {
        let second = Arc::new(SystemTimer::new("second", &Config::default()).unwrap());
        let later = DelayedOperationPurgatory::new(Arc::clone(&second), false);
        let mut moved = Vec::new();
        for _ in 0..20 {
            let (timer, purgatory) = purgatory();
            let (go, go_receiver) = mpsc::channel::<()>();
            timer.after(Duration::ZERO, move || go_receiver.recv_timeout(PATIENCE).unwrap()).unwrap();
            let ops: Vec<Op> = (0..5000).map(|_| Operation::new(Duration::ZERO, Wait::default())).collect();
            for op in &ops {
                watch(&purgatory, op, [1]);
            }
            let closing = {
                let timer = Arc::clone(&timer);
                spawn(move || drop(timer.shutdown(None)))
            };
            // The timer refuses an add once it is closed.
            until(|| timer.after(Duration::ZERO, || ()).is_err());
            go.send(()).unwrap();
            for pair in ops.windows(2).skip(2).step_by(3) {
                while !pair[0].is_completed() && !closing.is_finished() {
                    std::hint::spin_loop();
                }
                if pair[1].cancel() {
                    watch(&later, &pair[1], [2]);
                    moved.push(pair[1].clone());
                }
            }
            join([closing]);
        }
        let ended = moved.iter().filter(|op| op.is_completed()).count();
        assert_eq!(ended, 0, "of {} that were cancelled and watched again", moved.len());
        assert_eq!(later.shutdown().len(), moved.len());
    });
}
