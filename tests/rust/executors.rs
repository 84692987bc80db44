//! Special cases of an advance: executors that refuse, panic or advance again, threads that wait for it, misuse.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tickwheel::{Clock, Config, Executor, Handle, Progress, Released, SystemTimer, Ticket, Timer, When};

use crate::support::{Manual, PATIENCE, in_time, released};

/// A timer of numbers, one due at each of the first milliseconds.
fn timer(count: u64) -> (Arc<Timer<u64>>, Vec<Handle>) {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).unwrap();
    let handles = (0..count).map(|task| timer.add(When::AfterUs(task * 1000), task).unwrap()).collect();
    (Arc::new(timer), handles)
}

fn tasks_of(pending: &[tickwheel::Pending<u64>]) -> Vec<u64> {
    pending.iter().map(|pending| pending.task).collect()
}

/// Takes this many tickets, and refuses the others.
struct Takes(usize, Vec<Ticket>);

impl Executor for Takes {
    fn execute(&mut self, mut released: Released) -> Result<(), Released> {
        let refused = released.tickets.split_off(self.0.min(released.tickets.len()));
        self.1.append(&mut released.tickets);
        if refused.is_empty() { Ok(()) } else { Err(Released { tickets: refused, ..released }) }
    }
}

#[test]
fn an_advance_inside_an_advance_is_made_by_the_outer_one__t4() {
    in_time(|| {
        let (timer, _) = timer(1);
        let (inside, mut ran) = (Arc::clone(&timer), Vec::new());
        let outer = timer.advance(&mut |released: Released| {
            ran.extend(released.tickets.into_iter().filter_map(|ticket| Some(inside.claim(ticket)?.task)));
            if ran.len() < 3 {
                inside.clock().set_us(inside.clock().now_us() + 5_000);
                inside.add(When::AfterUs(0), 7).unwrap();
                assert_eq!(
                    inside.advance(&mut |_: Released| unreachable!("the outer one goes on")),
                    Progress::default()
                );
            }
        });
        assert_eq!((outer.released, ran), (3, vec![0, 7, 7]));
        timer.clock().set_us(60_000);
        assert!(timer.advance(&mut |_: Released| ()).is_idle(), "and not once more than it was asked to");
    });
}

#[test]
fn an_advance_of_another_timer_inside_an_advance_is_made_at_once() {
    in_time(|| {
        let ((first, _), (second, _)) = (timer(1), timer(1));
        let progress = first.advance(&mut |_: Released| {
            assert_eq!(
                second.advance(&mut |_: Released| assert!(first.advance(&mut |_: Released| ()).is_idle())).released,
                1
            );
        });
        assert_eq!(progress.released, 1);
    });
}

#[test]
fn a_task_that_an_executor_refuses_does_not_run_and_may_be_added_again__t10() {
    let (timer, handles) = timer(5);
    timer.clock().set_us(10_000);
    let mut takes = Takes(2, Vec::new());
    let progress = timer.advance(&mut takes);
    assert_eq!((progress.released, progress.rejected), (5, 3));
    let taken: Vec<_> = takes.1.into_iter().map(|ticket| timer.claim(ticket).unwrap().task).collect();
    assert_eq!(taken, [0, 1]);
    assert!(timer.cancel(handles[2]).is_none() && timer.cancel(handles[3]).is_none(), "they are off the timer");
    let rejected = timer.take_rejected();
    assert_eq!(tasks_of(&rejected), [2, 3, 4]);
    assert_eq!(rejected[0].due_us, 2_000);
    assert!(timer.take_rejected().is_empty(), "each is given back once");
    timer.add(When::AfterUs(0), rejected[0].task).unwrap();
    let mut takes_all = Takes(usize::MAX, Vec::new());
    let progress = timer.advance(&mut takes_all);
    assert_eq!((progress.buckets, progress.released, progress.rejected), (0, 1, 0));
    assert_eq!((takes_all.1.len(), timer.claim(takes_all.1[0]).unwrap().task), (1, 2));
}

#[test]
fn a_shutdown_does_not_wait_for_refused_tasks_and_returns_them__t10_t11() {
    let (timer, _) = timer(3);
    timer.clock().set_us(1_000);
    assert_eq!(timer.advance(&mut Takes(0, Vec::new())).rejected, 2);
    timer.close();
    assert!(timer.wait_idle(None));
    assert_eq!(tasks_of(&timer.drain()), [0, 1, 2], "in order, with what is still pending");
}

#[test]
fn an_executor_that_panics_rejects_the_tasks_that_it_did_not_claim__t13() {
    let (timer, _) = timer(4);
    timer.clock().set_us(2_000);
    let advance = || {
        timer.advance(&mut |released: Released| {
            assert_eq!(timer.claim(released.tickets[1]).unwrap().task, 1);
            resume_unwind(Box::new("broken"));
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(advance)).is_err(), "the caller of advance hears of it");
    assert_eq!(tasks_of(&timer.take_rejected()), [0, 2]);
    timer.clock().set_us(3_000);
    let tickets = released(&timer);
    assert_eq!(tickets.len(), 1, "the token is free, and the next task is not lost");
    assert_eq!(timer.claim(tickets[0]).unwrap().task, 3);
}

#[test]
fn a_panic_payload_that_panics_when_dropped_loses_no_other_task__t13() {
    /// Panics when it is dropped.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            resume_unwind(Box::new("a destructor"));
        }
    }
    in_time(|| {
        let timer = SystemTimer::new("payload", &Config::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        timer.after(Duration::ZERO, || resume_unwind(Box::new(Bomb))).unwrap();
        timer.after(Duration::from_millis(1), move || sender.send(()).unwrap()).unwrap();
        receiver.recv_timeout(PATIENCE).unwrap();
        assert!(timer.shutdown(None).is_empty());
    });
}

#[test]
fn a_wait_for_callbacks_ends_in_real_time_also_on_a_manual_clock__t11() {
    in_time(|| {
        let (timer, _) = timer(1);
        let tickets = released(&timer);
        timer.close();
        assert!(!timer.wait_idle(Some(Duration::from_millis(1))), "it is released, and did not run");
        let claimed = timer.claim(tickets[0]).unwrap();
        assert!(!timer.wait_idle(Some(Duration::ZERO)));
        drop(claimed);
        assert!(timer.wait_idle(Some(Duration::MAX)));
    });
}

#[test]
fn a_task_counts_as_running_until_what_is_left_of_its_claim_is_dropped__t11_t13() {
    let (timer, _) = timer(3);
    timer.clock().set_us(2_000);
    let tickets = released(&timer);
    let running = || timer.stats().running;
    let whole = timer.claim(tickets[0]).unwrap();
    let moved = timer.claim(tickets[1]).unwrap();
    assert_eq!((moved.task, running()), (1, 2));
    drop(whole);
    assert_eq!(running(), 1);
    let panics = || {
        let _running = timer.claim(tickets[2]).unwrap();
        resume_unwind(Box::new("broken"));
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(running(), 1);
    drop(moved);
    assert!(timer.wait_idle(Some(Duration::ZERO)));
}

#[test]
fn misuse_claims_nothing_that_is_pending__t13() {
    let wheel = Manual::standard();
    let task = wheel.after_ms(0, 0);
    let ticket = released(&wheel.timer)[0];
    assert!(wheel.timer.reschedule(task, Duration::from_millis(5)).unwrap());
    assert!(wheel.timer.claim(ticket).is_none(), "it is not released any more");
    assert_eq!((wheel.timer.stats().running, wheel.timer.len()), (0, 1));
    assert_eq!(wheel.wake_at_us(5_000), [0]);
    assert!(wheel.timer.claim(ticket).is_none(), "it ran");
    assert_eq!(wheel.timer.stats().running, 0);
}

#[test]
fn a_wait_for_callbacks_of_an_open_timer_ends_with_the_last_of_them() {
    in_time(|| {
        let (timer, _) = timer(1);
        let tickets = released(&timer);
        let claimed = timer.claim(tickets[0]).unwrap();
        let (waiting, waits) = (Arc::clone(&timer), mpsc::channel());
        let waiter = thread::Builder::new().name("waiter".to_owned()).spawn(move || {
            waits.0.send(()).unwrap();
            waiting.wait_idle(None)
        });
        waits.1.recv_timeout(PATIENCE).unwrap();
        thread::yield_now(); // the waiting thread most often sleeps by now
        drop(claimed);
        assert!(waiter.unwrap().join().unwrap());
    });
}

/// How often a thread of this process has slept.
#[cfg(target_os = "linux")]
fn sleeps_of(thread: &std::path::Path) -> u64 {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
fn is_asleep(thread: &std::path::Path) -> bool {
    std::fs::read_to_string(thread.join("stat")).unwrap().rsplit(')').next().unwrap().starts_with(" S")
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_advance_sleeps_until_the_first_is_over_and_polls_nothing() {
    let (timer, _) = timer(1);
    let (inside, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let timer = &timer;
    thread::scope(|scope| {
        scope.spawn(move || {
            timer.advance(&mut |_: Released| {
                inside.send(()).unwrap();
                left.recv().unwrap();
            });
        });
        entered.recv_timeout(PATIENCE).unwrap();
        let (sender, receiver) = mpsc::channel();
        let second = scope.spawn(move || {
            sender.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            timer.advance(&mut |_: Released| ());
        });
        let thread = std::path::Path::new("/proc").join(receiver.recv_timeout(PATIENCE).unwrap());
        while !is_asleep(&thread) {
            thread::yield_now();
        }
        // Before that it may sleep for another reason: a page, a lock of the allocator.
        let before = sleeps_of(&thread);
        thread::park_timeout(Duration::from_millis(200)); // enough for a thousand sleeps of a lock that polls
        let polls = sleeps_of(&thread) - before;
        leave.send(()).unwrap();
        second.join().unwrap();
        assert!(polls <= 2, "{polls} wake-ups while it waited for its turn");
    });
}

/// Refuses a task that it did not get.
struct RefusesAnother(Ticket);

impl Executor for RefusesAnother {
    fn execute(&mut self, _released: Released) -> Result<(), Released> {
        Err(Released { tickets: vec![self.0], more: false })
    }
}

#[test]
fn a_task_that_is_not_released_cannot_be_refused__t10() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).unwrap();
    let far = timer.add(When::AtUs(0), "far").unwrap();
    let ticket = released(&timer)[0];
    timer.reschedule(far, When::AtUs(1_000_000)).unwrap();
    timer.add(When::AtUs(1_000), "due").unwrap();
    timer.clock().set_us(2_000);
    assert_eq!(timer.advance(&mut RefusesAnother(ticket)).rejected, 0);
    assert_eq!((timer.len(), timer.take_rejected().len()), (1, 0));
    assert_eq!(timer.cancel(far), Some("far"));
}
