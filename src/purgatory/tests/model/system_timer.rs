//! The public purgatory on a real `SystemTimer`, with its two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Event, RUNS};
use crate::clock::Clock;
use crate::config::Config;
use crate::model::{count, join, sample, spawn};
use crate::purgatory::{DelayedOperation, DelayedOperationPurgatory, Operation};
use crate::system::SystemTimer;

#[derive(Default)]
struct WaitNumber {
    event: Event,
    completed: AtomicU32,
    expired: AtomicU32,
}

impl DelayedOperation for WaitNumber {
    type Key = u8;

    fn try_complete(this: &Operation<Self>) -> bool {
        this.event.has_happened() && this.force_complete()
    }

    fn on_complete(&self) {
        count(&self.completed);
    }

    fn on_expiration(&self) {
        count(&self.expired);
    }
}

fn purgatory() -> (Arc<SystemTimer>, Arc<DelayedOperationPurgatory<WaitNumber>>) {
    let config = Config { slack_us: 0, ..Config::default() };
    let timer = Arc::new(SystemTimer::on_clock("model", &config, Clock::manual(0)).expect("the settings are allowed"));
    (Arc::clone(&timer), Arc::new(DelayedOperationPurgatory::new(timer, true)))
}

#[test]
fn exactly_at_its_deadline_it_is_completed_or_expires_or_is_cancelled__p1_p4() {
    let fates = Arc::new([const { AtomicU32::new(0) }; 3]);
    let seen = Arc::clone(&fates);
    sample(RUNS, move || {
        let (timer, purgatory) = purgatory();
        let op = Operation::new(Duration::ZERO, WaitNumber::default());
        assert_eq!(purgatory.try_complete_else_watch(&op, [1, 2]), Ok(false));
        let checking = {
            let (purgatory, op) = (Arc::clone(&purgatory), op.clone());
            spawn(move || {
                op.event.happens();
                purgatory.check_and_complete(&1);
            })
        };
        let cancelled = purgatory.cancel_for_key(&2).len() as u32;
        join([checking]);
        let load = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        timer.shutdown(None);
        let (completed, expired) = (load(&op.completed), load(&op.expired));
        assert_eq!(completed + cancelled, 1, "completed {completed}, expired {expired}, cancelled {cancelled}");
        count(&fates[if cancelled == 1 { 2 } else { expired as usize }]);
        let stats = purgatory.stats();
        assert_eq!((stats.watched, stats.delayed, stats.waiting), (0, 0, 0), "{stats:?}");
        assert_eq!(timer.len(), 0);
    });
    assert!(seen.iter().all(|fate| fate.load(Ordering::Relaxed) > 0), "{seen:?}");
}

/// The timer shuts down. Its expiry may be claimed when the operation is taken out, and watched again without a deadline.
#[test]
fn an_expiry_of_a_timer_that_shuts_down_ends_no_later_wait__p4() {
    let fates = Arc::new([const { AtomicU32::new(0) }; 2]);
    let seen = Arc::clone(&fates);
    sample(RUNS, move || {
        let (timer, purgatory) = purgatory();
        let elsewhere = DelayedOperationPurgatory::new(Arc::clone(&timer), false);
        let op = Operation::new(Duration::ZERO, WaitNumber::default());
        assert_eq!(purgatory.try_complete_else_watch(&op, [1]), Ok(false));
        let ending = {
            let timer = Arc::clone(&timer);
            spawn(move || drop(timer.shutdown(None)))
        };
        let moves = op.cancel();
        if moves {
            assert_eq!(elsewhere.try_complete_else_watch(&op, [2]), Ok(false));
        }
        join([ending]);
        assert_eq!(op.expired.load(Ordering::Relaxed), u32::from(!moves));
        count(&fates[usize::from(moves)]);
        assert_eq!(elsewhere.shutdown().len(), usize::from(moves));
        assert_eq!((purgatory.watched(), elsewhere.watched(), timer.len()), (0, 0, 0));
    });
    assert!(seen.iter().all(|fate| fate.load(Ordering::Relaxed) > 0), "{seen:?}");
}

#[test]
fn watching_against_the_timers_shutdown_leaves_nothing_behind__p2() {
    sample(RUNS, || {
        let (timer, purgatory) = purgatory();
        let op = Operation::new(Duration::from_secs(1), WaitNumber::default());
        let ending = {
            let timer = Arc::clone(&timer);
            spawn(move || drop(timer.shutdown(None)))
        };
        let watched = purgatory.try_complete_else_watch(&op, [1]);
        join([ending]);
        // The operation was refused and waits nowhere, or it waits without a deadline, and can be taken out.
        assert_eq!(purgatory.watched(), usize::from(watched.is_ok()));
        assert_eq!(purgatory.shutdown().len(), usize::from(watched.is_ok()));
        assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (0, 0, 0));
    });
}
