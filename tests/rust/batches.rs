//! Many tasks in one call.

use std::sync::mpsc;
use std::time::Duration;

use tickwheel::{Clock, Config, Error, LIMIT_US, SystemTimer, Timer, When};

use crate::support::Manual;

const SECOND: Duration = Duration::from_secs(1);

fn bounded(max_pending: usize) -> Timer<u32> {
    Timer::new(&Config { max_pending: Some(max_pending), ..Config::default() }, Clock::manual(0)).unwrap()
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
