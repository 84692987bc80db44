//! Many tasks in one call, and many calls under one lock.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tickwheel::{Clock, Config, Error, LIMIT_US, SystemTimer, Timer, Wait, When};

use crate::support::Manual;

const SECOND: Duration = Duration::from_secs(1);

fn bounded(max_pending: usize) -> Timer<u32> {
    Timer::new(&Config::default().with_max_pending(max_pending), Clock::manual(0)).unwrap()
}

#[test]
fn add_many_adds_in_order_and_counts_all_delays_from_one_moment__t18() {
    let wheel = Manual::standard();
    let handles = wheel.timer.add_many((0..5_000).map(|id| (Duration::from_millis(7), id))).unwrap();
    assert_eq!((handles.len(), wheel.timer.len()), (5_000, 5_000));
    assert_eq!(wheel.timer.cancel(handles[4_999]), Some(4_999));
    assert!(wheel.wake_at_us(6_999).is_empty());
    assert!(wheel.wake_at_us(7_000).into_iter().eq(0..4_999));
}

#[test]
fn add_many_takes_delays_and_instants__t18() {
    let wheel = Manual::standard();
    wheel.timer.add_many([(When::AfterUs(9_000), 9), (When::AtUs(2_000), 2)]).unwrap();
    assert_eq!(wheel.step_to_us(10_000), [(2_000, 2), (9_000, 9)]);
    let handles = wheel.timer.add_many::<When>([]).unwrap();
    assert!(handles.is_empty());
}

#[test]
fn add_many_adds_all_or_nothing_and_gives_the_tasks_back__t17_t18() {
    let timer = bounded(2_500);
    timer.add(SECOND, 0).unwrap();
    let refused = timer.add_many((0..2_500).map(|id| (SECOND, id))).unwrap_err();
    assert_eq!(*refused.error(), Error::Full { max_pending: 2_500 });
    assert_eq!(timer.len(), 1);
    let tasks = refused.into_task();
    assert!(tasks.iter().map(|(_, task)| *task).eq(0..2_500));
    timer.add_many(tasks.into_iter().skip(1)).expect("one less fits");
    assert_eq!(*timer.add(SECOND, 0).unwrap_err().error(), Error::Full { max_pending: 2_500 });
}

#[test]
fn add_many_adds_nothing_where_one_instant_is_out_of_range__t13() {
    let timer = bounded(10);
    let refused = timer.add_many([(When::AfterUs(0), 1), (When::AtUs(LIMIT_US), 2)]).unwrap_err();
    assert!(refused.to_string().contains("must be due before"), "{refused}");
    assert!(timer.is_empty());
    timer.close();
    assert_eq!(*timer.add_many([(SECOND, 1)]).unwrap_err().error(), Error::Closed);
    assert_eq!(*timer.add_many([(When::AtUs(LIMIT_US), 1)]).unwrap_err().error(), Error::Closed);
    let handle = tickwheel::Handle::from_bits(0);
    assert_eq!(timer.reschedule_many(&[(handle, When::AtUs(LIMIT_US))]), Err(Error::Closed));
}

#[test]
fn a_guard_adds_moves_and_cancels_under_one_lock__t9() {
    let wheel = Manual::standard();
    let mut batch = wheel.timer.lock();
    let first = batch.add(Duration::from_millis(1), 1).unwrap();
    let second = batch.add(Duration::from_millis(2), 2).unwrap();
    batch.add(Duration::from_millis(3), 3).unwrap();
    assert_eq!(batch.cancel(first), Some(1));
    assert!(batch.reschedule(second, Duration::from_millis(4)).unwrap());
    assert!(!batch.reschedule(first, Duration::from_millis(4)).unwrap(), "it was cancelled");
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    drop(batch);
    assert_eq!(wheel.step_to_us(10_000), [(3_000, 3), (4_000, 2)]);
    assert_eq!(wheel.timer.cancel(second), None);
}

#[test]
fn a_guard_gives_back_what_is_refused__t17() {
    let timer = bounded(1);
    let mut batch = timer.lock();
    let first = batch.add(SECOND, 1).unwrap();
    let refused = batch.add(SECOND, 2).unwrap_err();
    assert_eq!(
        (refused.error(), refused.to_string().contains("max_pending=1")),
        (&Error::Full { max_pending: 1 }, true)
    );
    assert_eq!(refused.into_task(), 2);
    assert!(matches!(batch.reschedule(first, When::AtUs(LIMIT_US)), Err(Error::Invalid(_))));
}

#[test]
fn what_a_guard_adds_wakes_the_waiting_thread_when_it_is_dropped__t4() {
    let timer = Timer::new(&Config::default(), Clock::monotonic(0)).unwrap();
    timer.add(Duration::from_secs(3600), 1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| timer.wait(Some(Duration::from_secs(60))));
        timer.lock().add(Duration::ZERO, 2).unwrap();
        assert_eq!(waiting.join().unwrap(), Wait::Due);
    });
}

#[test]
fn a_system_timer_adds_many__t18() {
    let timer = SystemTimer::new("many", &Config::default()).unwrap();
    let (send, receive) = mpsc::channel();
    let callbacks = (0..3).map(|id| {
        let send = send.clone();
        let callback: tickwheel::Callback = Box::new(move || send.send(id).unwrap());
        (Duration::from_millis(1), callback)
    });
    let tasks = timer.add_many(callbacks).unwrap();
    drop(send);
    assert!(receive.iter().eq(0..3));
    assert!(tasks.iter().all(|task| !task.cancel()), "they ran");
}
