//! Works that only this project's timer can do.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use tickwheel::{Clock, Config, Timer};

use crate::numbers::{HOUR_MS, delays_ms, shuffle};
use crate::pairs::{DELAY_MS, longest_wait, on_threads, timed};
use crate::side::Side;
use crate::sides::tickwheel::{Tickwheel, after, task};
use crate::works::{filled, per_timer_ns, shuffled};
use crate::{memory, pairs};

const AT_A_TIME: usize = 64;

type Ours = Tickwheel<false>;

/// As [`crate::pairs::alone`], on a timer on which thousands were added and cancelled before.
pub fn pair_after_a_burst(count: usize) -> f64 {
    const BURST: usize = 2000;
    let (mut side, keys) = filled::<Ours>(&[DELAY_MS; BURST]);
    for key in keys {
        assert!(side.cancel(key));
    }
    let started = Instant::now();
    for payload in 0..count as u64 {
        let key = side.insert(DELAY_MS, payload);
        assert!(side.cancel(black_box(key)));
    }
    per_timer_ns(started, count)
}

/// As [`crate::pairs::locked`], with only the timer's own lock.
pub fn pairs<const THREADS: usize>(count: usize) -> f64 {
    let side = Ours::new();
    let pair = |payload| {
        let handle = side.timer.add(after(DELAY_MS), task(payload)).expect("in range");
        assert!(side.timer.cancel(black_box(handle)).is_some());
    };
    on_threads(count, THREADS, || (), pair)
}

/// As [`crate::pairs::longest_wait_locked`], with only the timer's own lock.
pub fn longest_wait_of_pairs(count: usize) -> f64 {
    let side = Ours::new();
    let pair = |payload| {
        let mut handle = None;
        let added = timed(|| handle = Some(side.timer.add(after(DELAY_MS), task(payload)).expect("in range")));
        let handle = handle.expect("added");
        added.max(timed(|| assert!(side.timer.cancel(handle).is_some())))
    };
    longest_wait(count, || (), pair)
}

/// As [`crate::pairs::wait_beside_locked`], with only the timer's own lock.
pub fn wait_beside<const PER_MILLE: usize>(count: usize) -> f64 {
    let side = Ours::new();
    let pair = || {
        let handle = side.timer.add(after(DELAY_MS), task(0)).expect("in range");
        assert!(side.timer.cancel(black_box(handle)).is_some());
    };
    pairs::wait_beside(count, PER_MILLE, || (), pair)
}

/// As [`crate::works::cancel`], many in one call.
pub fn cancel_many(count: usize) -> f64 {
    let (side, keys) = shuffled::<Ours>(count);
    let started = Instant::now();
    for keys in keys.chunks(AT_A_TIME) {
        assert!(side.timer.cancel_many(keys).iter().all(Option::is_some));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), 0);
    ns
}

/// As [`memory::after_all_have_gone`]. It checks that no task is kept after its cancel (T9).
pub fn memory_after_all_have_gone(count: usize) -> f64 {
    cancelled_tasks_go_at_once();
    memory::after_all_have_gone::<Ours>(count)
}

fn cancelled_tasks_go_at_once() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
    let task = Rc::new(());
    let add = |delay_ms: &u64| timer.add(after(*delay_ms), Rc::clone(&task)).expect("in range");
    let mut handles: Vec<_> = delays_ms(1000, HOUR_MS).iter().map(add).collect();
    shuffle(&mut handles);
    let (one_by_one, at_once) = handles.split_at(500);
    for (handle, left) in one_by_one.iter().zip((500..1000).rev()) {
        timer.cancel(*handle);
        assert_eq!(Rc::strong_count(&task), 1 + left);
    }
    timer.cancel_many(at_once);
    assert_eq!(Rc::strong_count(&task), 1);
}
