//! Shared by the tests: a timer on a manual clock, and a small random generator.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tickwheel::{Clock, Config, Handle, Precision, Released, Seen, Snapshot, Ticket, Timer, When};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` on a thread of its own, because it might hang.
pub(crate) fn in_time(body: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        body();
        sender.send(()).unwrap();
    };
    thread::Builder::new().name("in-time".to_owned()).spawn(run).unwrap();
    receiver.recv_timeout(PATIENCE).expect("it neither hangs nor panics");
}

/// Advances once, and returns the tickets of what is released.
pub(crate) fn released<T>(timer: &Timer<T>) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    timer.advance(&mut |batch: Released| tickets.extend(batch.tickets));
    tickets
}

/// A timer of numbered tasks on a manual clock.
pub(crate) struct Manual {
    pub(crate) timer: Timer<u32>,
}

impl Manual {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64, precision: Precision) -> Self {
        let config = Config { tick_ms, wheel_sizes: sizes.into(), precision, ..Config::default() };
        Self { timer: Timer::new(&config, Clock::manual(start_ms)).expect("good settings") }
    }

    /// Tick 1, the default size 20, start 0, exact.
    pub(crate) fn standard() -> Self {
        Self::new(1, &[20], 0, Precision::Exact)
    }

    pub(crate) fn after_ms(&self, delay_ms: u64, id: u32) -> Handle {
        self.timer.add_tagged(When::AfterUs(delay_ms * 1000), id, id).expect("in range")
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.timer.clock().now_us()
    }

    /// Sets the clock and advances once, as a reaper that wakes at that instant. Returns the tasks that ran, in order.
    pub(crate) fn wake_at_us(&self, now_us: u64) -> Vec<u32> {
        self.timer.clock().set_us(now_us);
        let run = |ticket| Some(self.timer.claim(ticket)?.task);
        released(&self.timer).into_iter().filter_map(run).collect()
    }

    /// Moves the clock from event to event. Returns when each task ran.
    pub(crate) fn step_to_us(&self, to_us: u64) -> Vec<(u64, u32)> {
        self.follow(to_us, Timer::next_event_us)
    }

    /// Moves the clock as a reaper that is always on time. Returns when each task ran.
    pub(crate) fn reap_to_us(&self, to_us: u64) -> Vec<(u64, u32)> {
        self.follow(to_us, Timer::next_wake_us)
    }

    fn follow(&self, to_us: u64, next_us: impl Fn(&Timer<u32>) -> Option<u64>) -> Vec<(u64, u32)> {
        let mut ran = Vec::new();
        while let Some(next_us) = next_us(&self.timer).filter(|next_us| *next_us <= to_us) {
            let ids = self.wake_at_us(next_us);
            ran.extend(ids.into_iter().map(|id| (self.now_us(), id)));
        }
        self.timer.clock().set_us(to_us);
        ran
    }

    /// The tag of a task is its id, if [`Manual::after_ms`] added it.
    pub(crate) fn snapshot(&self) -> Snapshot<Seen> {
        self.timer.snapshot()
    }

    /// The level (from 1) and bucket of a task; `None` if it is in no bucket.
    pub(crate) fn place_of(&self, id: u32) -> Option<(usize, usize)> {
        self.snapshot().levels.iter().find_map(|level| {
            let bucket = level.buckets.iter().position(|bucket| bucket.tasks.iter().any(|task| task.tag == id))?;
            Some((level.level, bucket))
        })
    }
}

/// `SplitMix64` (Steele, Lea and Flood, 2014): small, and good enough to choose test cases.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end`, without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
