//! A timer that a program drives by itself: by a wait, by `drive`.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tickwheel::{Clock, Config, Error, Released, Timer, Wait, When};

use crate::support::{Manual, released};

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);

fn on_system_clock() -> Timer<u32> {
    Timer::new(&Config::default(), Clock::monotonic(0)).unwrap()
}

#[test]
fn a_wait_ends_when_a_task_is_due_and_not_before__t5() {
    let timer = on_system_clock();
    timer.add(Duration::from_millis(20), 1).unwrap();
    assert_eq!(timer.wait(Some(Duration::from_millis(1))), Wait::TimedOut);
    assert_eq!(timer.wait(None), Wait::Due);
    assert!(timer.clock().now_us() >= 20_000);
    let tickets = released(&timer);
    assert_eq!(timer.claim(tickets[0]).map(|claimed| claimed.task), Some(1));
}

#[test]
fn an_earlier_add_ends_a_wait__t4() {
    let timer = on_system_clock();
    timer.add(HOUR, 1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| timer.wait(Some(PATIENCE)));
        timer.add(Duration::ZERO, 2).unwrap();
        assert_eq!(waiting.join().unwrap(), Wait::Due);
    });
}

#[test]
fn a_wait_ends_when_the_timer_closes_or_is_abandoned_and_empty__t11() {
    for end in [Timer::close, Timer::close_when_empty] {
        let timer = on_system_clock();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| timer.wait(Some(PATIENCE)));
            end(&timer);
            assert_eq!(waiting.join().unwrap(), Wait::Closed);
        });
    }
}

#[test]
fn on_a_manual_clock_a_wait_says_at_once_what_is_so__t15() {
    let wheel = Manual::standard();
    wheel.after_ms(5, 1);
    assert_eq!(wheel.timer.wait(None), Wait::TimedOut);
    wheel.timer.clock().set_us(5_000);
    assert_eq!(wheel.timer.wait(None), Wait::Due);
}

#[test]
fn a_thread_of_the_program_drives_a_timer_until_it_closes__t11() {
    let timer = on_system_clock();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            timer.drive(&mut |released: Released| {
                for ticket in released.tickets {
                    if let Some(claimed) = timer.claim(ticket) {
                        send.send(claimed.task).unwrap();
                    }
                }
            });
        });
        for task in 0..100 {
            timer.add(Duration::ZERO, task).unwrap();
            assert_eq!(receive.recv_timeout(PATIENCE), Ok(task));
        }
        timer.close();
    });
}

#[test]
fn an_executor_may_be_a_trait_object() {
    let wheel = Manual::standard();
    wheel.after_ms(0, 1);
    let mut count = 0;
    let mut take = |released: Released| count += released.tickets.len();
    let executor: &mut dyn tickwheel::Executor = &mut take;
    wheel.timer.advance(executor);
    assert_eq!(count, 1);
}

#[test]
fn an_instant_of_the_system_is_a_reading_of_the_clock__t1() {
    let clock = Clock::monotonic(1_000);
    let before_us = clock.now_us();
    let instant = Instant::now();
    let at_us = clock.reading_us(instant + Duration::from_secs(1));
    assert!((before_us + 1_000_000..=clock.now_up_us() + 1_000_000).contains(&at_us));
    let past = instant.checked_sub(HOUR); // a machine that has just started knows no such instant
    assert!(past.is_none_or(|past| clock.reading_us(past) == 1_000_000));
    let manual = Clock::manual(7);
    assert_eq!(manual.reading_us(instant), 7_000);
    let timer = Timer::new(&Config::default(), Clock::monotonic(0)).unwrap();
    timer.add(When::AtUs(timer.clock().reading_us(instant)), 1).unwrap();
    assert_eq!(timer.wait(None), Wait::Due);
}

#[test]
fn a_drain_ends_a_timer_that_closes_when_it_is_empty__t11() {
    let timer = on_system_clock();
    timer.add(HOUR, 1).unwrap();
    timer.close_when_empty();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| timer.wait(Some(PATIENCE)));
        assert_eq!(timer.drain().len(), 1);
        assert_eq!(waiting.join().unwrap(), Wait::Closed);
    });
}

#[test]
fn a_timer_that_has_closed_because_it_was_empty_takes_no_task_that_nothing_would_drive__t7_t11() {
    let timer = on_system_clock();
    let handle = timer.add(Duration::ZERO, 1).unwrap();
    assert_eq!(timer.wait(None), Wait::Due); // its tick has to end
    let tickets = released(&timer);
    timer.close_when_empty();
    timer.add(Duration::ZERO, 2).expect("it takes tasks until its driver has seen that it is empty");
    assert_eq!(timer.wait(None), Wait::Due);
    timer.advance(&mut |_: Released| ());
    assert_eq!(timer.wait(None), Wait::Closed);
    assert_eq!(timer.reschedule(handle, HOUR), Err(Error::Closed));
    assert_eq!(*timer.add(HOUR, 3).unwrap_err().error(), Error::Closed);
    assert_eq!(timer.claim(tickets[0]).map(|claimed| claimed.task), Some(1), "what is released still runs");
}

#[test]
fn a_timer_shows_its_size_and_none_of_its_tasks() {
    #[expect(dead_code, reason = "a struct of a program, which derives Debug")]
    #[derive(Debug)]
    struct Server {
        timer: Timer<Box<dyn FnOnce() + Send>>,
    }
    let server = Server { timer: Timer::new(&Config::default(), Clock::manual(0)).unwrap() };
    assert_eq!(format!("{server:?}"), "Server { timer: Timer { pending: 0, .. } }");
}
