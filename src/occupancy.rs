//! How many tasks each bucket has, at one moment: what a page draws of a wheel, however full it is.

#![forbid(unsafe_code)]

use crate::schedule::Schedule;
use crate::timer::Timer;
use crate::wheel::BucketPage;

/// One level; level 1 has the finest tick.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelOccupancy {
    /// Counts from 1.
    pub level: usize,
    /// Its tick.
    pub tick_ms: u64,
    /// Tick times size.
    pub interval_ms: u64,
    /// The time it stands at, a multiple of its tick.
    pub current_time_ms: u64,
    /// How many tasks each of its buckets has.
    pub tasks: Vec<usize>,
}

/// How full a timer is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// The time of this moment. The levels of a timer with nothing to do stand still.
    pub now_us: u64,
    /// The levels, the finest first.
    pub levels: Vec<LevelOccupancy>,
    /// Tasks that have left the wheel and wait for their exact instant.
    pub front: usize,
    /// Tasks not yet released.
    pub size: usize,
}

impl<T> Timer<T> {
    /// How many tasks each bucket has. O(pending), in steps: a task that moves meanwhile may count twice, or not at all.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::{Clock, Config, Timer};
    /// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
    /// timer.add(Duration::from_millis(350), "task")?;
    /// let occupancy = timer.occupancy();
    /// // Level 2 has ticks of 20 ms: its bucket 17 holds [340, 360).
    /// assert_eq!((occupancy.levels[1].tasks[17], occupancy.size), (1, 1));
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let state = self.lock_state();
        let mut occupancy = without_tasks(&state.schedule, self.clock().now_us());
        let pages: Vec<_> = state.schedule.wheel.pages().collect();
        self.unlock_fair(state);
        for pages in pages.chunks(PAGES_AT_A_TIME) {
            let state = self.lock_state();
            for page in pages {
                occupancy.count(&state.schedule, *page);
            }
            self.unlock_fair(state);
        }
        occupancy
    }
}

/// How many pages of a bucket are counted before the lock is let go.
const PAGES_AT_A_TIME: usize = 8;

#[cfg(test)]
fn of<T>(schedule: &Schedule<T>, now_us: u64) -> Occupancy {
    let mut occupancy = without_tasks(schedule, now_us);
    schedule.wheel.pages().for_each(|page| occupancy.count(schedule, page));
    occupancy
}

/// The levels, with no task in any bucket.
fn without_tasks<T>(schedule: &Schedule<T>, now_us: u64) -> Occupancy {
    let levels = schedule.wheel.levels().iter().enumerate().map(|(index, level)| LevelOccupancy {
        level: index + 1,
        tick_ms: level.tick_ms,
        interval_ms: level.interval_ms,
        current_time_ms: level.current_ms,
        tasks: vec![0; level.buckets.len()],
    });
    Occupancy { now_us, levels: levels.collect(), front: schedule.len(), size: schedule.len() }
}

impl Occupancy {
    /// Counts the tasks of one page in its bucket. What is in no bucket is in the front, also what is in a bucket that is being
    /// flushed.
    fn count<T>(&mut self, schedule: &Schedule<T>, page: BucketPage) {
        let count = schedule.wheel.count_on(&schedule.slab, page);
        self.levels[page.level].tasks[page.bucket] += count;
        self.front = self.front.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Precision, Progress, STEP};
    use crate::snapshot;

    #[test]
    fn it_counts_what_a_snapshot_lists_also_in_a_flush() {
        let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
        let mut handles = Vec::new();
        for task in 0..5 * STEP as u64 {
            handles.extend([
                schedule.add(0, 5_000_000 + task, task, 0).0,
                schedule.add(0, 70_000_000 * (task % 300), task, 0).0,
            ]);
        }
        for handle in handles.into_iter().step_by(3) {
            schedule.remove(handle);
        }
        let (mut out, mut progress) = (Vec::new(), Progress::default());
        let mut steps = 0;
        while schedule.step(5_000_000, STEP, &mut out, &mut progress) {
            let (counted, listed) = (of(&schedule, 0), snapshot::take(&mut schedule, |_, _, task| *task));
            assert_eq!((counted.size, counted.front), (listed.size, listed.front.len()));
            for (counted, listed) in counted.levels.iter().zip(&listed.levels) {
                assert_eq!(counted.tasks, listed.buckets.iter().map(|it| it.tasks.len()).collect::<Vec<_>>());
                assert_eq!(counted.current_time_ms, listed.current_time_ms);
            }
            steps += 1;
        }
        assert!(steps > 3);
    }
}
