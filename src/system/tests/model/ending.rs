//! A shutdown meets all other calls: each task is accounted for once, and both threads end.

use std::sync::Arc;
use std::time::Duration;

use super::{
    FAR, NOW, Outcomes, RUNS, SOON, SOON_US, advance, every, join, look_through, pass_time, sample, spawn, system,
    timer, with_reaper,
};
use crate::executor::{Executor, Released};
use crate::sync::{JoinHandle, Mutex};
use crate::system::SystemTimer;
use crate::timer::Timer;
use crate::wheel::Handle;
use crate::when::When;

/// An executor without a worker.
struct RefusesAll;

impl Executor for RefusesAll {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        Err(released)
    }
}

fn shut_down(timer: &Arc<SystemTimer>, timeout: Option<Duration>) -> JoinHandle<()> {
    let timer = Arc::clone(timer);
    spawn(move || look_through(timer.shutdown(timeout)))
}

#[test]
fn a_close_is_heard_by_a_reaper_about_to_sleep__t11() {
    every(|| {
        let timer = timer();
        timer.add(When::AfterUs(SOON_US), 1).unwrap();
        let (reaper, released) = with_reaper(&timer);
        timer.close();
        join([reaper]);
        assert!(released.recv().is_err(), "nothing was due");
        assert_eq!(timer.drain().len(), 1);
    });
}

/// Adds, cancels, moves of the clock and shutdowns, all at once.
fn everything_at_once(outcomes: &Outcomes, shutdowns: &[Option<Duration>]) -> Arc<SystemTimer> {
    let timer = system();
    let due = outcomes.add(&timer, 0, NOW).unwrap();
    let soon = outcomes.add(&timer, 1, SOON).unwrap();
    let adder = {
        let (outcomes, timer) = (outcomes.clone(), Arc::clone(&timer));
        spawn(move || {
            outcomes.add(&timer, 2, NOW);
            outcomes.add(&timer, 3, FAR);
        })
    };
    let canceller = {
        let outcomes = outcomes.clone();
        spawn(move || {
            outcomes.cancel(0, &due);
            outcomes.cancel(1, &soon);
        })
    };
    let time = {
        let timer = Arc::clone(&timer);
        spawn(move || pass_time(&timer.timer, SOON_US))
    };
    let shutdowns: Vec<_> = shutdowns.iter().map(|timeout| shut_down(&timer, *timeout)).collect();
    join(shutdowns.into_iter().chain([adder, canceller, time]));
    timer
}

#[test]
fn shutdowns_amid_adds_cancels_and_fires_account_for_each_task_once__t11() {
    for shutdowns in [&[None][..], &[None, None]] {
        sample(RUNS, move || {
            let outcomes = Outcomes::of(4);
            everything_at_once(&outcomes, shutdowns);
            outcomes.check();
        });
    }
}

#[test]
fn each_of_two_shutdowns_returns_after_what_was_due_has_run__t11() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(2), system());
        outcomes.add(&timer, 0, NOW);
        outcomes.add(&timer, 1, FAR);
        let shutdown = || {
            let (outcomes, timer) = (outcomes.clone(), Arc::clone(&timer));
            spawn(move || {
                look_through(timer.shutdown(None));
                assert!(outcomes.ran(0));
            })
        };
        join([shutdown(), shutdown()]);
        outcomes.check();
    });
}

#[test]
fn a_shutdown_that_waits_returns_once_another_has_taken_the_rest__t11() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(2), system());
        outcomes.add(&timer, 0, NOW);
        outcomes.add(&timer, 1, NOW);
        join([None, Some(Duration::ZERO)].map(|timeout| shut_down(&timer, timeout)));
        if let Some(worker) = timer.worker.lock().take() {
            join([worker]);
        }
        outcomes.check();
    });
}

#[test]
fn a_shutdown_that_does_not_wait_shares_the_tasks_out_with_the_worker__t11() {
    sample(RUNS, || {
        let outcomes = Outcomes::of(4);
        let timer = everything_at_once(&outcomes, &[Some(Duration::ZERO)]);
        if let Some(worker) = timer.worker.lock().take() {
            join([worker]);
        }
        outcomes.check();
    });
}

#[test]
fn a_cancel_of_the_last_task_in_line_lets_a_shutdown_return__t11() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(1), system());
        let task = outcomes.add(&timer, 0, NOW).unwrap();
        let shutdown = shut_down(&timer, None);
        outcomes.cancel(0, &task);
        join([shutdown]);
        outcomes.check();
    });
}

#[test]
fn a_shutdown_from_a_callback_joins_nothing_and_another_one_waits_for_it__t11() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(2), system());
        outcomes.add(&timer, 0, FAR);
        let from_inside = Arc::new(Mutex::new(Vec::new()));
        let task = {
            let (inside, from_inside, outcomes) = (Arc::downgrade(&timer), Arc::clone(&from_inside), outcomes.clone());
            timer.after(NOW, move || {
                outcomes.called(1);
                let unfinished = inside.upgrade().map_or(Vec::new(), |timer| timer.shutdown(None));
                from_inside.lock().extend(unfinished);
            })
        };
        task.unwrap();
        join([shut_down(&timer, None)]);
        look_through(std::mem::take(&mut from_inside.lock()));
        outcomes.check();
    });
}

#[test]
fn what_an_executor_refuses_is_cancelled_or_drained_and_a_shutdown_does_not_wait_for_it__t10_t11() {
    sample(RUNS, || {
        let timer = timer();
        let task = timer.add(When::AtUs(0), 1).unwrap();
        let driver = Arc::clone(&timer);
        let reaper = spawn(move || driver.drive(&mut RefusesAll));
        let cancelled = timer.cancel(task);
        timer.close();
        assert!(timer.wait_idle(None));
        join([reaper]);
        let drained = timer.drain();
        assert_eq!(
            cancelled.into_iter().chain(drained.into_iter().map(|pending| pending.task)).collect::<Vec<_>>(),
            [1]
        );
    });
}

/// The last released task is moved away while a thread waits for the timer to be idle.
fn idle_after(move_away: impl Fn(&Timer<u32>, Handle) + Clone + Send + Sync + 'static) {
    sample(RUNS, move || {
        let timer = timer();
        let handle = timer.add(When::AtUs(0), 1).unwrap();
        assert_eq!(advance(&timer).len(), 1);
        let waiting = {
            let timer = Arc::clone(&timer);
            spawn(move || assert!(timer.wait_idle(None)))
        };
        move_away(&timer, handle);
        join([waiting]);
    });
}

#[test]
fn a_move_of_the_last_released_task_ends_a_wait_for_idle__t11() {
    idle_after(|timer, handle| assert!(timer.reschedule(handle, SOON).unwrap()));
}
