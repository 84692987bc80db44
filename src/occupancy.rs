//! How many tasks each bucket has, at one moment: what a page draws of a wheel, however full it is.

use crate::schedule::Schedule;
use crate::timer::Timer;
use crate::wheel::{BucketPage, Entry, Wheel, expiration_ms};

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
#[derive(Debug, Default, Clone, PartialEq, Eq)]
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
    /// How many tasks each bucket has, or will have when its turn comes. A task that was moved to a later instant
    /// counts in the bucket of that instant. O(pending), in steps. A task that is moved meanwhile may count in its old
    /// bucket. A task that comes or leaves meanwhile may count or not.
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
        let mut counted = vec![false; state.schedule.slab.slots()];
        self.unlock_fair(state);
        for pages in pages.chunks(PAGES_AT_A_TIME) {
            let state = self.lock_state();
            for page in pages {
                occupancy.count(&state.schedule, *page, &mut counted);
            }
            self.unlock_fair(state);
        }
        occupancy
    }
}

/// How many pages of a bucket are counted before the lock is let go.
const PAGES_AT_A_TIME: usize = 8;

#[cfg(test)]
pub(crate) fn of<T>(schedule: &Schedule<T>, now_us: u64) -> Occupancy {
    let mut occupancy = without_tasks(schedule, now_us);
    let mut counted = Vec::new();
    schedule.wheel.pages().for_each(|page| occupancy.count(schedule, page, &mut counted));
    occupancy
}

/// The levels, with no task in any bucket.
pub(crate) fn without_tasks<T>(schedule: &Schedule<T>, now_us: u64) -> Occupancy {
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
    /// Counts the tasks of one page in the places where a [snapshot](crate::Snapshot) would list them, each slot once. A
    /// moved task counts in the bucket of its new instant. Tasks in no bucket are in the front. So are the tasks of a
    /// bucket that is being flushed.
    fn count<T>(&mut self, schedule: &Schedule<T>, page: BucketPage, counted: &mut Vec<bool>) {
        let wheel = &schedule.wheel;
        let Some(begin_ms) = expiration_ms(&wheel.levels()[page.level].buckets[page.bucket]) else { return };
        let end_us = begin_ms.saturating_add(self.levels[page.level].tick_ms).saturating_mul(1000);
        for (slot, entry) in wheel.entries_on(&schedule.slab, page) {
            let index = slot as usize;
            if index >= counted.len() {
                counted.resize(index + 1, false);
            }
            // If it is due before, this reminder only looks like its own, which comes earlier.
            if counted[index] || entry.due_us < begin_ms * 1000 {
                continue;
            }
            counted[index] = true;
            self.front = self.front.saturating_sub(1); // of what came meanwhile there may be more
            if entry.due_us < end_us {
                self.levels[page.level].tasks[page.bucket] += 1;
            } else {
                let (level, bucket) = self.bucket_of(wheel, entry);
                self.levels[level].tasks[bucket] += 1;
            }
        }
    }

    /// The level and the bucket, from 0, where an entry of the wheel belongs by its instant.
    pub(crate) fn bucket_of<T>(&mut self, wheel: &Wheel, entry: &Entry<T>) -> (usize, usize) {
        let index = usize::from(wheel.level_of(entry)) - 1;
        while self.levels.len() <= index {
            self.add_level(wheel);
        }
        let level = &self.levels[index];
        (index, (entry.due_us / 1000 / level.tick_ms % level.tasks.len() as u64) as usize)
    }

    /// A level that the wheel gets when a moved task needs it.
    fn add_level(&mut self, wheel: &Wheel) {
        let below = self.levels.last().expect("a wheel has a level");
        let (level, tick_ms) = (below.level + 1, below.interval_ms);
        let size = wheel.size_of_level(level);
        let current_time_ms = below.current_time_ms / tick_ms * tick_ms;
        let tasks = vec![0; size as usize];
        self.levels.push(LevelOccupancy {
            level,
            tick_ms,
            interval_ms: tick_ms.saturating_mul(size),
            current_time_ms,
            tasks,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Precision, Progress, STEP};

    #[test]
    fn a_slot_with_many_reminders_that_look_the_same_counts_once() {
        let mut schedule = Schedule::new(1, &[20], 0, Precision::Exact);
        let far_us = 3_000_000_000;
        let handle = schedule.add(0, far_us, 0_u64, 0).0;
        for round in 0..20_u64 {
            let now_us = round * 6000;
            // 256 reminders later the mark is that of the first.
            for earlier_us in (1..=254).map(|ms| far_us - ms * 1000).chain([now_us + 5000]) {
                schedule.reschedule(now_us, handle, earlier_us).expect("it waits");
            }
            schedule.reschedule(now_us, handle, far_us).expect("it waits");
            let mut out = Vec::new();
            while schedule.step(now_us + 6000, STEP, &mut out, &mut Progress::default()) {}
            assert!(out.is_empty());
            let counted = of(&schedule, 0);
            assert_eq!(counted.levels.iter().flat_map(|level| &level.tasks).sum::<usize>(), 1, "round {round}");
        }
    }

    #[test]
    fn a_later_reminder_that_looks_like_the_tasks_own_does_not_say_where_it_is() {
        let mut schedule = Schedule::new(1, &[20], 0, Precision::Exact);
        let tick_ms = 3_200_000; // of level 6
        let now_us = 10 * tick_ms * 1000;
        schedule.step(now_us, STEP, &mut Vec::new(), &mut Progress::default());
        let own_ms = 18 * tick_ms + 1000;
        let later_us = (own_ms + (1 << 24)) * 1000; // in bucket 3 of the same level, which is read before bucket 18
        let handle = schedule.add(now_us, later_us, 0_u64, 0).0;
        for ms in 1..=255 {
            schedule.reschedule(now_us, handle, later_us - ms * 1000).expect("it waits");
        }
        schedule.reschedule(now_us, handle, own_ms * 1000).expect("it waits");
        let level = &of(&schedule, 0).levels[5];
        assert_eq!((level.tick_ms, level.tasks[3], level.tasks[18]), (tick_ms, 0, 1));
    }
}
