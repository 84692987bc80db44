//! The whole timer at one moment, as plain data (T14).

use std::collections::HashSet;

use crate::schedule::Schedule;
use crate::timer::Timer;
use crate::wheel::{BucketRef, Handle, expiration_ms};

/// One bucket and its tasks, in order of add.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketSnapshot<X> {
    /// When it expires; `None` while it is not armed.
    pub expiration_ms: Option<u64>,
    /// Its tasks.
    pub tasks: Vec<X>,
}

/// One level; level 1 has the finest tick.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelSnapshot<X> {
    /// Counts from 1.
    pub level: usize,
    /// Its tick.
    pub tick_ms: u64,
    /// Tick times size.
    pub interval_ms: u64,
    /// The time it was made at.
    pub start_ms: u64,
    /// The time it stands at, a multiple of its tick.
    pub current_time_ms: u64,
    /// What it covers, half open.
    pub covers_ms: (u64, u64),
    /// Its buckets, from 0.
    pub buckets: Vec<BucketSnapshot<X>>,
}

/// A bucket in the bucket queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArmedBucket {
    /// When it expires.
    pub expiration_ms: u64,
    /// Its level, from 1.
    pub level: usize,
    /// Its number there, from 0.
    pub bucket: usize,
}

/// A task as [`Timer::snapshot`] shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Its handle.
    pub handle: Handle,
    /// The number that came with it.
    pub tag: u32,
}

/// Levels, bucket queue and front.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot<X> {
    /// The levels, the finest first.
    pub levels: Vec<LevelSnapshot<X>>,
    /// The armed buckets by expiration, then level.
    pub queue: Vec<ArmedBucket>,
    /// Tasks not yet released.
    pub size: usize,
    /// The tasks that have left the wheel and wait for their instant, as (due instant in microseconds, task), in order.
    /// The tasks of a bucket that is being flushed are included.
    pub front: Vec<(u64, X)>,
}

impl<T> Timer<T> {
    /// Levels, bucket queue and front at one moment; a task by its handle and its tag.
    ///
    /// For debugging: it holds the lock all the while, O(pending log pending). Tasks that were moved are put into their buckets
    /// first, so a snapshot may add a level.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::{Clock, Config, Timer};
    /// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
    /// timer.add(Duration::from_millis(350), "task")?;
    /// let snapshot = timer.snapshot();
    /// // Level 2 has ticks of 20 ms: its bucket 17 holds [340, 360).
    /// assert_eq!(snapshot.levels[1].buckets[17].expiration_ms, Some(340));
    /// assert_eq!(snapshot.queue[0].bucket, 17);
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<Seen> {
        take(&mut self.lock_state().schedule, |handle, tag, _| Seen { handle, tag })
    }
}

/// The caller holds the lock, so `see` may run no foreign code.
pub fn take<T, X>(schedule: &mut Schedule<T>, mut see: impl FnMut(Handle, u32, &T) -> X) -> Snapshot<X> {
    schedule.settle();
    let slab = &schedule.slab;
    let mut task = |slot: u32| {
        let entry = slab.entry_in(slot);
        let handle = Handle::new(slot, entry.generation);
        see(handle, slab.tag(slot), entry.task.as_ref().expect("a bucket holds only slots in use"))
    };
    // A slot may have a second reminder that looks like the first.
    let mut seen = HashSet::new();
    // A bucket has its entries in the order in which they came, by an add or by a cascade.
    let mut in_order = |bucket| {
        let mut slots: Vec<_> = schedule.wheel.bucket_slots(slab, bucket).filter(|slot| seen.insert(*slot)).collect();
        slots.sort_unstable_by_key(|slot| slab.entry_in(*slot).number());
        slots
    };
    let levels = schedule.wheel.levels().iter().enumerate().map(|(index, level)| LevelSnapshot {
        level: index + 1,
        tick_ms: level.tick_ms,
        interval_ms: level.interval_ms,
        start_ms: level.start_ms,
        current_time_ms: level.current_ms,
        covers_ms: (level.current_ms, level.end_ms()),
        buckets: level
            .buckets
            .iter()
            .map(|bucket| BucketSnapshot {
                expiration_ms: expiration_ms(bucket),
                tasks: in_order(bucket).into_iter().map(&mut task).collect(),
            })
            .collect(),
    });
    let levels = levels.collect();
    let unread = schedule.wheel.unread_slots(slab).filter(|slot| seen.insert(*slot));
    let waiting = schedule.front.sorted().into_iter().filter(|key| slab.get(key.handle).is_some());
    // Tasks in a bucket that is being flushed count as outside the wheel.
    let unread = unread.map(|slot| slab.entry_in(slot).key(slot));
    let mut keys: Vec<_> = waiting.chain(unread).collect();
    keys.sort_unstable();
    let front = keys.into_iter().map(|key| (key.due_us, task(key.handle.slot()))).collect();
    let queue = schedule.queue.sorted().into_iter().map(ArmedBucket::from).collect();
    Snapshot { levels, queue, size: schedule.len(), front }
}

impl From<BucketRef> for ArmedBucket {
    fn from(armed: BucketRef) -> Self {
        Self { expiration_ms: armed.expiration_ms, level: usize::from(armed.level), bucket: armed.bucket as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Precision, Progress, STEP};

    #[test]
    fn a_timer_that_flushes_a_large_bucket_shows_every_task__t14() {
        let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
        let count = 5 * STEP as u64;
        for task in 0..count {
            schedule.add(0, 5_000_000 + task, task, 0);
        }
        let (mut out, mut progress) = (Vec::new(), Progress::default());
        let mut steps = 0;
        while schedule.step(5_000_000, STEP, &mut out, &mut progress) {
            let snapshot = take(&mut schedule, |_, _, task| *task);
            let shown = snapshot.levels.iter().flat_map(|level| &level.buckets).map(|bucket| bucket.tasks.len());
            assert_eq!(shown.sum::<usize>() + snapshot.front.len(), snapshot.size);
            assert!(snapshot.front.is_sorted());
            steps += 1;
        }
        assert!(steps > 3);
    }
}
