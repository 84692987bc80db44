//! Flush.

use super::{Armed, Key, List, Placed, Slab, TOUCH, Wheel, bucket, seat};

/// A bucket that was flushed, and how many entries it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) entries: u64,
}

/// A due bucket on its way out: the list of its slots, which is read from its beginning.
#[derive(Debug)]
pub(super) struct Flushing {
    pub(super) list: List,
    level: usize,
    expiration_ms: u64,
    entries: u64,
}

impl Wheel {
    /// Takes a bucket that has come out of the queue apart: its entries leave by [`Wheel::flush`]. Returns about how many
    /// those are, if they fill more than two pages.
    pub(crate) fn open(&mut self, armed: Armed) -> Option<usize> {
        debug_assert!(self.flushing.is_none(), "one bucket at a time");
        let bucket = std::mem::replace(self.bucket_mut(armed), bucket::NEW);
        let (list, level) = (bucket::list(&bucket), usize::from(armed.level) - 1);
        self.flushing = Some(Flushing { list, level, expiration_ms: armed.expiration_ms, entries: 0 });
        self.lists.len_if_long(list)
    }

    /// Adds up to `limit` entries of the opened bucket again. Newly armed buckets and keys for the front are appended to
    /// `arm` and `front`; the caller tells those entries where they stand. Returns how many slots it read; fewer than
    /// `limit` means that the bucket is empty now.
    pub(crate) fn flush<T>(
        &mut self,
        slab: &mut Slab<T>,
        limit: usize,
        arm: &mut Vec<Armed>,
        front: &mut Vec<Key>,
    ) -> usize {
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
                front.extend(slab.keys(slots, position));
                self.lists.read(position, looked_at);
                front.len() - before
            } else {
                self.cascade(slab, (flushing.level, position), looked_at, arm, front)
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
    fn cascade<T>(
        &mut self,
        slab: &mut Slab<T>,
        (level, position): (usize, u32),
        count: usize,
        arm: &mut Vec<Armed>,
        front: &mut Vec<Key>,
    ) -> usize {
        let (mut alive, mut entries) = ([(0, 0); TOUCH], 0);
        let slots = &self.lists.items_at(position)[..count];
        for key in slab.keys(slots, position) {
            alive[entries] = (key.handle.slot, key.due_us);
            entries += 1;
        }
        // Before the first is placed: a page that has been begun is not put together with another.
        self.lists.read(position, count);
        // The level below covers the bucket; all but its first tick goes there, and what is before that further down. From
        // here on a cancel finds them in their new places.
        let number = level - 1;
        let begin_us = number.checked_sub(1).map_or(self.tick_end_us, |number| self.levels[number].end_us);
        let mut lower = 0;
        let Self { lists, levels, .. } = self;
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
            match self.place(slab, *slot, *due_us) {
                Placed::Front => front.push(slab.at(*slot).key(*slot)),
                Placed::Arm(armed) => arm.push(armed),
                Placed::InArmed(_) => {}
            }
        }
        entries
    }
}
