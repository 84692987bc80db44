//! The levels together: insert, remove, advance. The data structure alone: no lock, no clock, no thread.
//!
//! The wheel does not push: [`Wheel::insert`] returns what it armed, [`Wheel::flush`] what it armed and what left it. The
//! caller keeps the queue of armed buckets and the front, and tells the wheel where the clock stands.
//!
//! Example (Kafka's own; unit 1, size 3, start 0): level 1 covers `[0, 3)`, level 2 `[0, 9)`, level 3 `[0, 27)`. A task
//! that expires at 4 goes to level 2, bucket 1, `[3, 6)`; when that bucket expires at 3, level 1 covers `[3, 6)`, and the
//! task cascades to its bucket 1, `[4, 5)`.

#![forbid(unsafe_code)]

mod bucket;
mod level;
mod pages;
mod slab;

pub(crate) use bucket::{Bucket, expiration_ms};
use level::Level;
pub(crate) use pages::{List, NO_POSITION, Pages, Residents};
pub use slab::Handle;
pub(crate) use slab::{Entry, Key, New, Place, Removed, Slab, Was};
use std::hint::black_box;

/// So many entries of a bucket are read before they are placed.
const TOUCH: usize = 64;

/// A bucket that entered, or has to enter, the bucket queue. Levels count from 1, buckets from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) bucket: u32,
}

/// Where [`Wheel::insert`] put an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Nowhere: it is for the front.
    Front,
    /// In a bucket of this level that was armed already.
    InArmed(Armed),
    /// In a bucket that must now enter the queue.
    Arm(Armed),
}

/// A bucket that was flushed, and how many entries it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) entries: u64,
}

/// A due bucket on its way out: the list of its slots, which is read from its beginning.
#[derive(Debug)]
struct Flushing {
    list: List,
    level: usize,
    expiration_ms: u64,
    entries: u64,
}

#[derive(Debug)]
pub(crate) struct Wheel<T> {
    pub(crate) slab: Slab<T>,
    /// The lists of all buckets.
    lists: Pages<u32>,
    levels: Vec<Level>,
    /// When the current tick of level 1 ends, in microseconds: what is due before is for the front.
    tick_end_us: u64,
    /// One size per level, the last one repeating.
    sizes: Vec<u32>,
    flushing: Option<Flushing>,
    /// How many entries left each level for a lower one or for the front.
    pub(crate) cascaded: Vec<u64>,
    /// Buckets that were flushed, for whoever records; `None` while nobody does.
    pub(crate) flushed: Option<Vec<Flushed>>,
}

impl<T> Wheel<T> {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64) -> Self {
        let level = Level::new(tick_ms, sizes[0], start_ms);
        Self {
            slab: Slab::new(),
            lists: Pages::default(),
            tick_end_us: level.next_ms().saturating_mul(1000),
            levels: vec![level],
            sizes: sizes.to_vec(),
            flushing: None,
            cascaded: vec![0],
            flushed: None,
        }
    }

    /// The finest tick.
    pub(crate) fn tick_ms(&self) -> u64 {
        self.levels[0].tick_ms
    }

    /// Takes a task in and places it on the lowest level that covers it (T3). O(levels).
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn insert(&mut self, new: New<T>) -> (Handle, Placed) {
        let due_us = new.due_us;
        let handle = self.slab.insert(new);
        (handle, self.place(handle.slot, due_us))
    }

    /// Moves a task, wherever it stands: as [`Wheel::remove`] and [`Wheel::insert`], but it stays in its slot. O(levels).
    #[inline]
    pub(crate) fn renew(&mut self, handle: Handle, due_us: u64, number: u64) -> Option<(Handle, Placed, Was)> {
        let (handle, was) = self.slab.renew(handle, due_us, number)?;
        if was.place == Place::Bucket {
            self.lists.remove(was.position);
        }
        Some((handle, self.place(handle.slot, due_us), was))
    }

    /// Reads what a cancel or a move of each of these will need, so that the processor fetches it side by side. It changes
    /// nothing but how long the next calls take.
    pub(crate) fn touch(&self, handles: &[Handle]) {
        let positions = handles.iter().map(|handle| self.slab.get(*handle).map_or(0, |entry| entry.position));
        black_box(positions.fold(0, |all, position| all | position));
    }

    /// Takes the task out, wherever it stands; `None` for a stale handle. O(1).
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Removed<T>> {
        let removed = self.slab.remove(handle)?;
        if removed.place == Place::Bucket {
            self.lists.remove(removed.position);
        }
        Some(removed)
    }

    /// Whether all levels stand where they would at `now_us`, if nothing were armed: the finest moves first.
    #[inline]
    pub(crate) fn is_at(&self, now_us: u64) -> bool {
        now_us < self.tick_end_us
    }

    /// Moves every level up to `now_ms`, going up only while a level really moved (T4).
    pub(crate) fn advance(&mut self, now_ms: u64) {
        for level in &mut self.levels {
            if !level.advance(now_ms) {
                break;
            }
        }
        self.tick_end_us = self.levels[0].next_ms().saturating_mul(1000);
    }

    /// Takes a bucket that has come out of the queue apart: its entries leave by [`Wheel::flush`]. Returns about how many
    /// those are, if they fill more than two pages.
    pub(crate) fn open(&mut self, armed: Armed) -> Option<usize> {
        debug_assert!(self.flushing.is_none(), "one bucket at a time");
        let bucket = std::mem::replace(self.bucket_mut(armed), bucket::NEW);
        let (list, level) = (bucket::list(&bucket), usize::from(armed.level) - 1);
        self.flushing = Some(Flushing { list, level, expiration_ms: armed.expiration_ms, entries: 0 });
        self.lists.len_if_long(list)
    }

    /// When the current tick of level 1 ends.
    pub(crate) fn tick_end_us(&self) -> u64 {
        self.tick_end_us
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Adds up to `limit` entries of the opened bucket again. Newly armed buckets and keys for the front are appended to
    /// `arm` and `front`; the caller tells those entries where they stand. Returns how many slots it read; fewer than
    /// `limit` means that the bucket is empty now.
    pub(crate) fn flush(&mut self, limit: usize, arm: &mut Vec<Armed>, front: &mut Vec<Key>) -> usize {
        let Some(mut flushing) = self.flushing.take() else { return 0 };
        let mut read = 0;
        while read < limit {
            let (position, slots) = self.lists.unread(flushing.list);
            let slots = &slots[..slots.len().min(limit - read).min(TOUCH)];
            let looked_at = slots.len();
            if looked_at == 0 {
                self.lists.close(flushing.list);
                if let Some(flushed) = &mut self.flushed {
                    let Flushing { level, expiration_ms, entries, .. } = flushing;
                    flushed.push(Flushed { expiration_ms, level: level as u8 + 1, entries });
                }
                return read;
            }
            let alive = if flushing.level == 0 {
                let before = front.len();
                front.extend(self.slab.keys(slots, position));
                self.lists.read(position, looked_at);
                front.len() - before
            } else {
                self.cascade((flushing.level, position), looked_at, arm, front)
            };
            self.lists.leave(position, alive);
            read += looked_at;
            flushing.entries += alive as u64;
            self.cascaded[flushing.level] += alive as u64;
        }
        self.flushing = Some(flushing);
        limit
    }

    /// Places the next `count` slots of a bucket of an upper level again; returns how many are alive. All their entries are
    /// read before the first is placed: the processor fetches them side by side.
    #[inline(never)] // the loops need the registers for themselves
    fn cascade(
        &mut self,
        (level, position): (usize, u32),
        count: usize,
        arm: &mut Vec<Armed>,
        front: &mut Vec<Key>,
    ) -> usize {
        let (mut alive, mut entries) = ([(0, 0); TOUCH], 0);
        let slots = &self.lists.items_at(position)[..count];
        for key in self.slab.keys(slots, position) {
            alive[entries] = (key.slot, key.due_us);
            entries += 1;
        }
        // Before the first is placed: a page that has been begun is not put together with another.
        self.lists.read(position, count);
        // The level below covers the bucket; all but its first tick goes there, and what is before that further down. From
        // here on a cancel finds them in their new places.
        let number = level - 1;
        let begin_us = number.checked_sub(1).map_or(self.tick_end_us, |number| self.levels[number].end_us);
        let mut lower = 0;
        let Self { slab, lists, levels, .. } = self;
        let level = &mut levels[number];
        for index in 0..entries {
            let (slot, due_us) = alive[index];
            if due_us < begin_us {
                alive[lower] = (slot, due_us);
                lower += 1;
            } else if let Placed::Arm(armed) = seat((slab, lists), (level, number), slot, due_us) {
                arm.push(armed);
            }
        }
        for (slot, due_us) in &alive[..lower] {
            match self.place(*slot, *due_us) {
                Placed::Front => front.push(self.slab.at(*slot).key(*slot)),
                Placed::Arm(armed) => arm.push(armed),
                Placed::InArmed(_) => {}
            }
        }
        entries
    }

    /// Whether an armed bucket has lost all its entries.
    pub(crate) fn is_empty(&self, armed: Armed) -> bool {
        self.lists.is_empty(bucket::list(self.bucket(armed)))
    }

    /// Disarms a bucket that was taken out of the queue because it is empty.
    pub(crate) fn disarm(&mut self, armed: Armed) {
        bucket::disarm(self.bucket_mut(armed));
    }

    /// The earliest instant that an armed bucket may hold.
    pub(crate) fn earliest_us(&self, armed: Armed) -> u64 {
        bucket::earliest_us(self.bucket(armed))
    }

    /// On which level an entry stands, the finest being 1; 0 for the front. Right only just after it was placed.
    pub(crate) fn level_of(&self, entry: &Entry<T>) -> u8 {
        if entry.place != Place::Bucket {
            return 0;
        }
        self.levels.iter().take_while(|level| entry.due_us >= level.end_us).count() as u8 + 1
    }

    /// What it takes of memory, with 8 bytes for a task. O(pages and levels).
    pub(crate) fn bytes(&self) -> usize {
        let buckets: usize = self.levels.iter().map(|level| level.buckets.len()).sum();
        self.slab.bytes() + self.lists.bytes() + buckets * size_of::<Bucket>()
    }

    /// The levels as they stand, the finest first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The slots of a bucket, in the order in which they joined it.
    pub(crate) fn slots(&self, bucket: &Bucket) -> impl Iterator<Item = u32> {
        let slots = self.lists.iter(bucket::list(bucket));
        slots.filter(|(position, slot)| self.slab.stands_at(**slot, *position)).map(|(_, slot)| *slot)
    }

    /// The slots of the bucket that is being flushed which have not been read.
    pub(crate) fn unread_slots(&self) -> impl Iterator<Item = u32> {
        let lists = self.flushing.iter().map(|flushing| flushing.list);
        let slots = lists.flat_map(|list| self.lists.iter(list));
        slots.filter(|(position, slot)| self.slab.stands_at(**slot, *position)).map(|(_, slot)| *slot)
    }

    /// Places an entry that is in its slot already on the lowest level that covers it.
    #[expect(clippy::inline_always, reason = "handing its answer over by memory took a third of a cascade")]
    #[inline(always)]
    fn place(&mut self, slot: u32, due_us: u64) -> Placed {
        if self.is_at(due_us) {
            self.slab.at_mut(slot).stand(Place::Front, NO_POSITION);
            return Placed::Front;
        }
        let level = self.levels.iter().position(|level| due_us < level.end_us);
        let level = level.unwrap_or_else(|| self.make_levels(due_us));
        seat((&mut self.slab, &mut self.lists), (&mut self.levels[level], level), slot, due_us)
    }

    /// Makes levels until the last one covers an instant; returns its number.
    #[cold]
    fn make_levels(&mut self, due_us: u64) -> usize {
        loop {
            let below = &self.levels[self.levels.len() - 1];
            let size = self.sizes[self.levels.len().min(self.sizes.len() - 1)];
            let level = Level::new(below.interval_ms, size, below.current_ms);
            let covers = due_us < level.end_us;
            self.levels.push(level);
            self.cascaded.push(0);
            if covers {
                return self.levels.len() - 1;
            }
        }
    }

    fn bucket(&self, armed: Armed) -> &Bucket {
        &self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }

    fn bucket_mut(&mut self, armed: Armed) -> &mut Bucket {
        &mut self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }
}

/// Places an entry in its bucket of a level that covers it.
#[expect(clippy::inline_always, reason = "see `Wheel::place`")]
#[inline(always)]
fn seat<T>(
    (slab, lists): (&mut Slab<T>, &mut Pages<u32>),
    (level, number): (&mut Level, usize),
    slot: u32,
    due_us: u64,
) -> Placed {
    let (index, ticks) = level.bucket_of(due_us);
    let bucket = &mut level.buckets[index as usize];
    bucket::lower_earliest_us(bucket, due_us);
    bucket::set_list(bucket, lists.push(bucket::list(bucket), slot, slab));
    let armed = |expiration_ms| Armed { expiration_ms, level: number as u8 + 1, bucket: index };
    if let Some(expiration_ms) = bucket::expiration_ms(bucket) {
        debug_assert_eq!(expiration_ms, level.expiration_ms(ticks), "an armed bucket left the range of its level");
        return Placed::InArmed(armed(expiration_ms));
    }
    let expiration_ms = level.expiration_ms(ticks);
    bucket::arm(&mut level.buckets[index as usize], expiration_ms);
    Placed::Arm(armed(expiration_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_within_one_bucket_leave_its_pages_counting_right() {
        let mut wheel = Wheel::new(1, &[20], 0);
        let due_us = 390_000; // the last bucket of level 2
        let add = |number| wheel.insert(New { due_us, number, task: number, tag: 0 }).0;
        let mut handles: Vec<_> = (0..3000).map(add).collect();
        // Some thirty pages are filled by this, most of what they hold has moved on, and they are put together again.
        for number in 3000..33_000_u64 {
            let handle = &mut handles[(number * 7 % 3000) as usize];
            *handle = wheel.renew(*handle, due_us, number).unwrap().0;
        }
        assert!(handles.into_iter().all(|handle| wheel.remove(handle).is_some()));
        assert!(wheel.lists.bytes() < 10_000, "{} bytes of an empty wheel", wheel.lists.bytes());
    }
}
