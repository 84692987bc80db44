//! tokio's own timer: a boxed `Sleep` for each, polled once to register it.

use std::cell::RefCell;
use std::hint::black_box;
use std::pin::Pin;
use std::ptr::null;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, Sleep, advance, sleep};

use crate::pairs::{DELAY_MS, on_threads};
use crate::side::Side;

/// A runtime with a paused clock, entered by this thread.
pub fn paused() -> &'static Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    enter(runtime);
    runtime
}

/// From here to the end of this thread, the runtime's clock and timers are its own.
pub fn enter(runtime: &'static Runtime) {
    std::mem::forget(runtime.enter());
}

thread_local! {
    static WOKEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The cheapest possible waker: its pointer is the payload, and a wake appends the payload to a list.
static NOTE: RawWakerVTable = RawWakerVTable::new(
    |payload| RawWaker::new(payload, &NOTE),
    |payload| WOKEN.with_borrow_mut(|woken| woken.push(payload.addr() as u64)),
    |payload| WOKEN.with_borrow_mut(|woken| woken.push(payload.addr() as u64)),
    |_| (),
);

fn register(sleep: &mut Pin<Box<Sleep>>, payload: u64) {
    let pointer = null::<()>().wrapping_byte_add(payload as usize);
    // SAFETY: the table's functions never follow the pointer.
    let waker = unsafe { Waker::from_raw(RawWaker::new(pointer, &NOTE)) };
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
}

pub struct Sleeps {
    runtime: &'static Runtime,
    count: usize,
}

impl Side for Sleeps {
    type Key = Pin<Box<Sleep>>;

    fn new() -> Self {
        Self { runtime: paused(), count: 0 }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key {
        let mut sleep = Box::pin(sleep(Duration::from_millis(delay_ms)));
        register(&mut sleep, payload);
        self.count += 1;
        sleep
    }

    fn cancel(&mut self, key: Self::Key) -> bool {
        let pending = !key.is_elapsed();
        drop(key);
        self.count -= usize::from(pending);
        pending
    }

    fn reset(&mut self, mut key: Self::Key, delay_ms: u64) -> Self::Key {
        key.as_mut().reset(Instant::now() + Duration::from_millis(delay_ms));
        key
    }

    fn forget(&mut self, key: Self::Key) {
        std::mem::forget(key); // a `Sleep` is its timer
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.runtime.block_on(advance(Duration::from_millis(1)));
        WOKEN.with_borrow_mut(|woken| {
            self.count -= woken.len();
            fired.append(woken);
        });
    }

    fn len(&self) -> usize {
        self.count
    }
}

/// As [`crate::pairs::two_locked`], with only tokio's own lock: a sleep is made and dropped on any thread.
pub fn two_pairs(count: usize) -> f64 {
    let runtime = paused();
    let pair = |payload| {
        let mut sleep = Box::pin(sleep(Duration::from_millis(DELAY_MS)));
        register(&mut sleep, payload);
        drop(black_box(sleep));
    };
    on_threads(count, 2, || enter(runtime), pair)
}
