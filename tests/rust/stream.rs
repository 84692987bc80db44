//! What comes due as a stream (T8, T9, T11).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tickwheel::{Clock, Config, DueStream, Timer};

use crate::support::in_time;

/// How often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Wakes a thread that is parked.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn manual() -> Arc<Timer<u32>> {
    Arc::new(Timer::new(&Config::default(), Clock::manual(0)).unwrap())
}

fn next(due: &mut DueStream<u32>, waker: &Waker) -> Poll<Option<u32>> {
    Pin::new(due).poll_next(&mut Context::from_waker(waker))
}

#[test]
fn it_yields_what_comes_due_in_order_and_wakes_who_waits__t6_t8() {
    let timer = manual();
    let (mut executor, mut due) = timer.stream();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    for (delay_ms, task) in [(2, 2), (1, 0), (1, 1)] {
        timer.add(Duration::from_millis(delay_ms), task).unwrap();
    }
    assert_eq!(next(&mut due, &waker), Poll::Pending);
    timer.clock().set_us(2_000);
    timer.advance(&mut executor);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "once, for the first batch that it waits for");
    let came: Vec<_> = (0..3).map(|_| next(&mut due, &waker)).collect();
    assert_eq!(came, [0, 1, 2].map(|task| Poll::Ready(Some(task))));
    assert_eq!(next(&mut due, &waker), Poll::Pending);
    assert!(timer.wait_idle(Some(Duration::ZERO)), "what was yielded has run");
    drop(executor);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_eq!(next(&mut due, &waker), Poll::Ready(None));
}

#[test]
fn a_task_can_be_cancelled_until_it_is_yielded__t9() {
    let timer = manual();
    let (mut executor, mut due) = timer.stream();
    let handles: Vec<_> = (0..3).map(|task| timer.add(Duration::ZERO, task).unwrap()).collect();
    timer.advance(&mut executor);
    drop(executor);
    assert_eq!(timer.cancel(handles[1]), Some(1));
    let waker = Waker::from(Arc::new(Woken::default()));
    let came: Vec<_> = (0..3).map(|_| next(&mut due, &waker)).collect();
    assert_eq!(came, [Some(0), Some(2), None].map(Poll::Ready));
    assert_eq!(timer.cancel(handles[0]), None);
}

#[test]
fn a_stream_that_was_dropped_takes_nothing_and_nothing_is_lost__t10() {
    let timer = manual();
    let (mut executor, mut due) = timer.stream();
    for task in 0..3 {
        timer.add(Duration::from_millis(task.into()), task).unwrap();
    }
    timer.clock().set_us(1_000);
    timer.advance(&mut executor);
    let waker = Waker::from(Arc::new(Woken::default()));
    assert_eq!(next(&mut due, &waker), Poll::Ready(Some(0)));
    drop(due);
    timer.clock().set_us(2_000);
    assert_eq!(timer.advance(&mut executor).rejected, 1);
    let left: Vec<_> = timer.take_rejected().into_iter().map(|pending| pending.task).collect();
    assert_eq!(left, [1, 2], "one was given to the stream, one was refused");
    assert!(timer.wait_idle(Some(Duration::ZERO)));
}

#[test]
fn a_thread_drives_it_for_a_runtime_until_the_timer_closes__t11() {
    in_time(|| {
        let timer = Arc::new(Timer::new(&Config::default(), Clock::monotonic(0)).unwrap());
        let (mut executor, due) = timer.stream();
        let driver = {
            let timer = Arc::clone(&timer);
            thread::Builder::new().spawn(move || timer.drive(&mut executor)).unwrap()
        };
        let adder = {
            let timer = Arc::clone(&timer);
            thread::Builder::new().spawn(move || {
                for task in 0..1_000 {
                    timer.add(Duration::from_micros(task % 7 * 100), task).unwrap();
                }
                timer.close_when_empty();
            })
        };
        let came: Vec<u64> = block_on(due.collect());
        driver.join().unwrap();
        adder.unwrap().join().unwrap();
        assert_eq!((came.len(), came.iter().sum::<u64>()), (1_000, 499_500));
    });
}
