//! The whole timer as plain data (T14).

use crate::occupancy::{self, Occupancy};
use crate::schedule::Schedule;
use crate::timer::Timer;
use crate::wheel::{BucketPage, Entry, Handle, Place, Wheel, expiration_ms};

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
    /// Levels, bucket queue and front; a task by its handle and its tag. O(pending log pending), in steps. A task that
    /// comes, leaves or moves meanwhile is shown as before or as after, or is missing.
    ///
    /// A task that was moved is in the bucket of its new instant, on a level that may not be there yet.
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
        let mut walk = SnapshotWalk::new(&self.lock_state().schedule);
        loop {
            let state = self.lock_state();
            let more = walk.step(&state.schedule, |handle, tag, _| Seen { handle, tag });
            self.unlock_fair(state);
            if !more {
                return walk.finish();
            }
        }
    }
}

/// Takes a snapshot in steps. The caller holds the lock in [`SnapshotWalk::new`] and in a step, and not between.
///
/// The buckets are read first, since only they know which of them reminds of an entry. Then all entries are read in the order of
/// their slots, which no move changes. An entry that the first pass missed is shown where its instant belongs.
#[derive(Debug)]
struct SnapshotWalk<X> {
    /// The levels of the beginning, and those that are needed for entries that were moved.
    shape: Occupancy,
    /// The time each level was made at.
    starts_ms: Vec<u64>,
    /// When each bucket expires, by level.
    expirations_ms: Vec<Vec<Option<u64>>>,
    reminders: std::vec::IntoIter<BucketPage>,
    /// For each slot the number of its entry and the bucket that reminds of it: level and bucket in one number. Zeroed memory,
    /// which the system provides when it is first used: see [`crate::wheel`]'s buckets.
    reminded: Vec<[u64; 2]>,
    next_page: usize,
    found: Vec<Vec<Found<X>>>,
}

#[derive(Debug)]
struct Found<X> {
    /// Level and bucket, from 0; `None` in the front.
    bucket: Option<(usize, usize)>,
    due_us: u64,
    number: u64,
    task: X,
}

impl<X> SnapshotWalk<X> {
    /// Notes the levels and their buckets.
    fn new<T>(schedule: &Schedule<T>) -> Self {
        let levels = schedule.wheel.levels();
        Self {
            shape: occupancy::without_tasks(schedule, 0),
            starts_ms: levels.iter().map(|level| level.start_ms).collect(),
            expirations_ms: levels.iter().map(|level| level.buckets.iter().map(expiration_ms).collect()).collect(),
            reminders: schedule.wheel.pages().collect::<Vec<_>>().into_iter(),
            reminded: vec![[0; 2]; schedule.slab.slots()],
            next_page: 0,
            found: Vec::new(),
        }
    }

    /// Looks at some 1000 entries; whether there are more.
    fn step<T>(&mut self, schedule: &Schedule<T>, see: impl FnMut(Handle, u32, &T) -> X) -> bool {
        for _ in 0..2 {
            let Some(page) = self.reminders.next() else { return self.step_entries(schedule, see) };
            self.note_bucket(schedule, page);
        }
        true
    }

    /// Notes the entries that are due in the bucket of this page.
    fn note_bucket<T>(&mut self, schedule: &Schedule<T>, page: BucketPage) {
        let level = &schedule.wheel.levels()[page.level];
        let Some(begin_ms) = expiration_ms(&level.buckets[page.bucket]) else { return };
        let end_us = begin_ms.saturating_add(level.tick_ms).saturating_mul(1000);
        for (slot, entry) in schedule.wheel.entries_on(&schedule.slab, page) {
            if (begin_ms * 1000..end_us).contains(&entry.due_us)
                && let Some(reminded) = self.reminded.get_mut(slot as usize)
                && reminded[0] != entry.number()
            {
                // The first one counts, as in `occupancy`: a later one only looks like it.
                *reminded = [entry.number(), (page.level as u64) << 32 | page.bucket as u64];
            }
        }
    }

    fn step_entries<T>(&mut self, schedule: &Schedule<T>, mut see: impl FnMut(Handle, u32, &T) -> X) -> bool {
        let Some(entries) = schedule.page(self.next_page) else { return false };
        self.next_page += 1;
        let entries = entries.filter(|(_, entry, _)| entry.place() != Place::Released);
        let found = entries.map(|(handle, entry, task)| Found {
            bucket: self.bucket_of(&schedule.wheel, handle.slot(), entry),
            due_us: entry.due_us,
            number: entry.number(),
            task: see(handle, schedule.slab.tag(handle.slot()), task),
        });
        let found = found.collect();
        self.found.push(found);
        true
    }

    fn bucket_of<T>(&mut self, wheel: &Wheel, slot: u32, entry: &Entry<T>) -> Option<(usize, usize)> {
        match self.reminded.get(slot as usize) {
            _ if entry.place() != Place::Bucket => None,
            Some([number, bucket]) if *number == entry.number() => {
                Some(((bucket >> 32) as usize, (bucket & u64::from(u32::MAX)) as usize))
            }
            // In a bucket of level 1 that is being flushed.
            _ if wheel.is_before_tick_end(entry.due_us) => None,
            _ => Some(self.shape.bucket_of(wheel, entry)),
        }
    }

    /// The snapshot. Without the lock: it sorts all tasks.
    fn finish(self) -> Snapshot<X> {
        let mut found: Vec<_> = self.found.into_iter().flatten().collect();
        // By bucket and number; the front by instant and number.
        found.sort_unstable_by_key(|it| (it.bucket, it.bucket.map_or(it.due_us, |_| 0), it.number));
        let mut expirations_ms = self.expirations_ms;
        let levels = self.shape.levels.iter().enumerate().map(|(index, level)| LevelSnapshot {
            level: level.level,
            tick_ms: level.tick_ms,
            interval_ms: level.interval_ms,
            // A level that is not there yet begins where the one below it stands.
            start_ms: self.starts_ms.get(index).copied().unwrap_or(self.shape.levels[index.max(1) - 1].current_time_ms),
            current_time_ms: level.current_time_ms,
            covers_ms: (level.current_time_ms, level.current_time_ms.saturating_add(level.interval_ms)),
            buckets: expirations_ms
                .get_mut(index)
                .map_or_else(|| vec![None; level.tasks.len()], std::mem::take)
                .into_iter()
                .map(|expiration_ms| BucketSnapshot { expiration_ms, tasks: Vec::new() })
                .collect(),
        });
        let mut levels: Vec<_> = levels.collect();
        let (mut size, mut front) = (0, Vec::new());
        for Found { bucket, due_us, task, .. } in found {
            size += 1;
            match bucket {
                None => front.push((due_us, task)),
                Some((level, bucket)) => {
                    let level: &mut LevelSnapshot<X> = &mut levels[level];
                    let expires_ms = due_us / 1000 / level.tick_ms * level.tick_ms;
                    let bucket = &mut level.buckets[bucket];
                    bucket.expiration_ms.get_or_insert(expires_ms);
                    bucket.tasks.push(task);
                }
            }
        }
        let armed = levels.iter().flat_map(|level| {
            let buckets = level.buckets.iter().enumerate();
            buckets.filter_map(|(bucket, it)| {
                Some(ArmedBucket { expiration_ms: it.expiration_ms?, level: level.level, bucket })
            })
        });
        let mut queue: Vec<_> = armed.collect();
        queue.sort_unstable_by_key(|armed| (armed.expiration_ms, armed.level));
        Snapshot { levels, queue, size, front }
    }
}

/// All of a schedule.
#[cfg(test)]
pub(crate) fn of<T, X>(schedule: &Schedule<T>, mut see: impl FnMut(Handle, &T) -> X) -> Snapshot<X> {
    let mut walk = SnapshotWalk::new(schedule);
    while walk.step(schedule, |handle, _, task| see(handle, task)) {}
    walk.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::schedule::{Precision, Progress, STEP};

    #[test]
    fn a_timer_in_a_flush_shows_and_counts_every_task__t14() {
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
            let counted = occupancy::of(&schedule, 0);
            let in_buckets: usize = counted.levels.iter().flat_map(|level| &level.tasks).sum();
            assert_eq!((counted.front + in_buckets, counted.size), (schedule.len(), schedule.len()));
            let snapshot = of(&schedule, |_, task| *task);
            let shown = snapshot.levels.iter().flat_map(|level| &level.buckets).map(|bucket| bucket.tasks.len());
            assert_eq!(shown.sum::<usize>() + snapshot.front.len(), schedule.len());
            assert!(snapshot.front.is_sorted());
            steps += 1;
        }
        assert!(steps > 3);
    }

    fn shown(occupancy: &Occupancy) -> (usize, Vec<Vec<usize>>) {
        let mut levels: Vec<_> = occupancy.levels.iter().map(|level| level.tasks.clone()).collect();
        let used = levels.iter().rposition(|tasks| tasks.iter().any(|count| *count > 0)).map_or(0, |last| last + 1);
        levels.truncate(used);
        (occupancy.front, levels)
    }

    #[test]
    fn a_task_counts_where_it_is_due_whatever_reminds_of_it_and_a_snapshot_agrees() {
        let mut schedule = Schedule::new(1, &[20], 0, Precision::Exact);
        let mut random = 7_u64;
        let mut random_below = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut tasks = Vec::new();
        for round in 0..200 {
            let now_ms = round * 7;
            let mut out = Vec::new();
            while schedule.step(now_ms * 1000, STEP, &mut out, &mut Progress::default()) {}
            let released: Vec<_> = out.into_iter().filter_map(|ticket| schedule.claim(ticket)).collect();
            tasks.retain(|(handle, _)| released.iter().all(|released| released.handle != *handle));
            for _ in 0..20 {
                let span_ms = [30, 3_000, 300_000, 30_000_000, 20_000_000_000][random_below(5) as usize];
                let due_us = now_ms * 1000 + 1000 + random_below(span_ms * 1000);
                if tasks.is_empty() || random_below(3) == 0 {
                    tasks.push((schedule.add(now_ms * 1000, due_us, 0_u64, 0).0, due_us));
                } else {
                    let of = random_below(tasks.len() as u64) as usize;
                    schedule.reschedule(now_ms * 1000, tasks[of].0, due_us).expect("it waits");
                    tasks[of].1 = due_us;
                }
            }
            let counted = occupancy::of(&schedule, 0);
            assert_eq!(counted.size, tasks.len());
            let before = shown(&counted);
            assert_eq!(before.0 + before.1.iter().flatten().sum::<usize>(), tasks.len());
            if round % 10 == 0 {
                let listed = of(&schedule, |_, _| ());
                let levels = listed.levels.iter().map(|level| level.buckets.iter().map(|it| it.tasks.len()).collect());
                let levels: Vec<Vec<usize>> = levels.collect();
                assert_eq!((listed.front.len(), &levels[..before.1.len()]), (before.0, &before.1[..]), "round {round}");
                assert_eq!(shown(&occupancy::of(&schedule, 0)), before);
            }
        }
        assert!(tasks.len() > 500);
    }

    /// Between two steps tasks come, go, move and cascade.
    #[test]
    fn what_is_pending_all_the_while_is_shown_once_moved_or_not__t14() {
        let mut random = 7_u64;
        let mut random_below = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut schedule = Schedule::new(1, &[20], 0, Precision::Exact);
        let (mut now_us, mut moves) = (0, 0);
        // By task: its handle, and when it is due.
        let mut pending: HashMap<u64, (Handle, u64)> = HashMap::new();
        for round in 0..20_u64 {
            for task in round * 1000..(round + 1) * 1000 {
                let due_us = now_us + random_below([30_000, 5_000_000, 900_000_000][task as usize % 3]);
                pending.insert(task, (schedule.add(now_us, due_us, task, 0).0, due_us));
            }
            let mut all_the_while = pending.clone();
            let mut walk = SnapshotWalk::new(&schedule);
            while walk.step(&schedule, |_, _, task| *task) {
                for _ in 0..30 {
                    let task = random_below((round + 1) * 1000);
                    let Some((handle, due_us)) = pending.get_mut(&task) else { continue };
                    if random_below(3) > 0 {
                        *due_us = now_us + random_below(900_000_000);
                        schedule.reschedule(now_us, *handle, *due_us).expect("it is pending");
                        moves += 1;
                    } else if random_below(4) == 0 {
                        schedule.remove(*handle).expect("it is pending");
                        pending.remove(&task);
                        all_the_while.remove(&task);
                    }
                }
                now_us += random_below(3000);
                let mut out = Vec::new();
                schedule.step(now_us, STEP, &mut out, &mut Progress::default());
                for task in out.into_iter().filter_map(|ticket| schedule.claim(ticket)) {
                    pending.remove(&task.task);
                    all_the_while.remove(&task.task);
                }
            }
            let snapshot = walk.finish();
            let mut times_shown: HashMap<u64, u32> = HashMap::new();
            let in_buckets = snapshot.levels.iter().flat_map(|level| &level.buckets).flat_map(|it| &it.tasks);
            in_buckets.chain(snapshot.front.iter().map(|(_, task)| task)).for_each(|task| {
                *times_shown.entry(*task).or_default() += 1;
            });
            assert_eq!(snapshot.size, times_shown.len(), "nothing is shown twice");
            assert_eq!(all_the_while.keys().filter(|task| !times_shown.contains_key(task)).count(), 0);
        }
        assert!(moves > 1000, "{moves}");
    }
}
