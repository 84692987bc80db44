//! The longest time that one call holds the lock, in microseconds, in the worst cases: all entries in one bucket, and all
//! entries in the front.
//!
//! An add or a cancel holds the lock from beginning to end, so its processor time is measured. A long call releases the lock
//! in between, so the longest wait of a second thread is measured.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use fastrand::Rng;
use tickwheel::{Clock, Config, Handle, Released, Timer, When};

use crate::cpu_time::ThreadClock;
use crate::measured::Measured;
use crate::numbers::shuffle;
use crate::watch::watch;

/// A tick of level 4 is 8 s: all entries that are due within one are in one bucket.
const TICK_US: u64 = 8_000_000;
const FIRST_TICK_US: u64 = 10 * TICK_US;
/// All are due between two milliseconds: at the first they leave the wheel, and wait in the front.
const FRONT_US: u64 = 12 * TICK_US;

/// The noise of the machine does not depend on the size of the timer.
const ENOUGH_FOR_NOISE: usize = 1_000_000;

type Numbers = Timer<NonZeroU64>;

pub fn longest(count: usize) -> Measured {
    let mut user = User::new(empty(), None);
    user.goes_through(count);
    let mut control = User::new(empty(), Some(empty()));
    control.goes_through(count.min(ENOUGH_FOR_NOISE));
    summary(&user, &control)
}

/// As [`longest`], with the most buckets that a level can have. Each has one task, and then none.
pub fn of_wide_levels(count: usize) -> Measured {
    let wide = || Timer::new(&Config { wheel_sizes: vec![65_536], ..Config::default() }, Clock::manual(0));
    let mut user = User::new(wide().expect("the settings are good"), None);
    user.empties_many_buckets(count);
    let mut control = User::new(wide().expect("the settings are good"), Some(empty()));
    control.empties_many_buckets(count);
    summary(&user, &control)
}

fn summary(user: &User, control: &User) -> Measured {
    let worst = |us: &BTreeMap<_, f64>| us.values().copied().fold(0.0, f64::max);
    let each: Vec<_> = user.longest_us.iter().map(|(what, us)| format!("{what} {us:.0}")).collect();
    let note = format!(
        "µs by call: {}; of {} waits for a timer that no other thread used, the longest was {:.1}",
        each.join(", "),
        control.waits,
        worst(&control.longest_us)
    );
    Measured { value: worst(&user.longest_us), note }
}

fn empty() -> Numbers {
    Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good")
}

/// The thread that uses the timer, and the longest hold of each kind of call.
struct User {
    timer: Numbers,
    /// In the control run the second thread locks this timer, which no other thread uses, and nothing else is timed.
    unused: Option<Numbers>,
    longest_us: BTreeMap<&'static str, f64>,
    waits: u64,
}

impl User {
    fn new(timer: Numbers, unused: Option<Numbers>) -> Self {
        Self { timer, unused, longest_us: BTreeMap::new(), waits: 0 }
    }

    fn goes_through(&mut self, count: usize) {
        self.uses_a_bucket(count);
        self.uses_the_front(count);
        assert!(self.timer.is_empty());
    }

    fn empties_many_buckets(&mut self, count: usize) {
        let handles: Vec<_> = (1..count.min(65_536) as u64).map(|ms| self.adds(ms * 1000)).collect();
        for handle in handles {
            self.cancels("cancel", handle);
        }
        let wake_us = self.calls("next_wake_us", Timer::next_wake_us);
        assert_eq!(wake_us, None);
        let on_a_new_level = self.adds(65_536 * 2000);
        self.cancels("cancel", on_a_new_level);
    }

    fn uses_a_bucket(&mut self, count: usize) {
        let mut random = Rng::with_seed(count as u64);
        let mut due_us = move || FIRST_TICK_US + random.u64(..TICK_US);
        let mut handles: Vec<_> = (0..count).map(|_| self.adds(due_us())).collect();
        shuffle(&mut handles);
        handles.drain(count * 4 / 5..).for_each(|handle| self.cancels("cancel", handle));
        (handles.len()..count).for_each(|_| handles.push(self.adds(due_us())));
        // Until the bucket's list is full of cancelled entries, and drops them.
        for turn in 0..2 * count {
            let handle = self.adds(due_us());
            self.cancels("cancel", std::mem::replace(&mut handles[turn % count], handle));
        }
        let mut released = Vec::with_capacity(count);
        self.timer.clock().set_us(FIRST_TICK_US + TICK_US);
        self.calls("advance", |timer| timer.advance(&mut |batch: Released| released.extend(batch.tickets)));
        assert_eq!(released.len(), count);
        self.cancels_all(&handles);
    }

    fn uses_the_front(&mut self, count: usize) {
        let in_one_bucket = self.fills(count);
        self.cancels_all(&in_one_bucket);
        let in_the_front = self.fills(count);
        self.timer.clock().set_us(FRONT_US);
        self.calls("advance into the front", |timer| timer.advance(&mut |_: Released| panic!("nothing is due")));
        for handle in in_the_front {
            self.cancels("cancel in the front", handle);
        }
        // Not in the order of their instants.
        let out_of_order: Vec<_> = (0..count as u64).map(|number| self.adds(FRONT_US + 999 - number % 999)).collect();
        for handle in out_of_order {
            self.cancels("cancel in the front", handle);
        }
    }

    fn fills(&mut self, count: usize) -> Vec<Handle> {
        let mut handles: Vec<_> = (0..count).map(|_| self.adds(FRONT_US + 1)).collect();
        shuffle(&mut handles);
        handles
    }

    fn adds(&mut self, due_us: u64) -> Handle {
        self.times("add", |timer| timer.add(When::AtUs(due_us), NonZeroU64::MIN)).expect("in range")
    }

    fn cancels(&mut self, what: &'static str, handle: Handle) {
        assert!(self.times(what, |timer| timer.cancel(handle)).is_some());
    }

    fn cancels_all(&mut self, handles: &[Handle]) {
        let cancelled = self.calls("cancel_many of all", |timer| timer.cancel_many(handles));
        assert!(cancelled.iter().all(Option::is_some));
    }

    /// A call that holds the lock from beginning to end.
    fn times<R>(&mut self, what: &'static str, call: impl FnOnce(&Numbers) -> R) -> R {
        if self.unused.is_some() {
            return call(&self.timer);
        }
        let started_us = ThreadClock::OWN.us();
        let answer = call(&self.timer);
        self.notes(what, ThreadClock::OWN.us() - started_us);
        answer
    }

    /// A call that releases the lock in between.
    fn calls<R>(&mut self, what: &'static str, call: impl FnOnce(&Numbers) -> R) -> R {
        let watched = self.unused.as_ref().unwrap_or(&self.timer);
        let (answer, waits) = watch(watched, || call(&self.timer));
        self.waits += waits.count;
        self.notes(what, waits.longest_us);
        answer
    }

    fn notes(&mut self, what: &'static str, us: f64) {
        let longest_us = self.longest_us.entry(what).or_default();
        *longest_us = longest_us.max(us);
    }
}
