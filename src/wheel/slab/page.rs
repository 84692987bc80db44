//! A page of a slab: a fixed number of slots, the free ones chained by their offsets.
//!
//! A slot is a page in the upper bits, and an offset in the lower ones. Example: slot 514 is page 1, offset 2.

use super::entry::Entry;

const OFFSET_BITS: u32 = 9;
/// Slots in a page.
pub(super) const PAGE_SIZE: usize = 1 << OFFSET_BITS;
/// How many pages the slots of 32 bits can name.
pub(super) const MAX_PAGES: usize = 1 << (32 - OFFSET_BITS);

/// What a slot means.
pub(super) struct Numbering;

impl Numbering {
    #[inline]
    pub(super) const fn page(slot: u32) -> u32 {
        slot >> OFFSET_BITS
    }

    #[inline]
    pub(super) const fn offset(slot: u32) -> usize {
        slot as usize % PAGE_SIZE
    }

    #[inline]
    pub(super) const fn number(page: u32, offset: usize) -> u32 {
        page << OFFSET_BITS | offset as u32
    }
}

#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) entries: Vec<Entry<T>>,
    /// The offset of the first free slot among `entries`.
    pub(super) first_free: u32,
    pub(super) live_count: u32,
    /// The generation of a slot that is used for the first time since the page got its memory.
    pub(super) first_generation: u32,
    /// The highest generation that a slot was given when it became free.
    pub(super) highest_generation: u32,
    /// Whether `pages_with_room` names the page.
    pub(super) has_room: bool,
    /// The number that the caller gave with each task; missing as long as all are 0.
    pub(super) tags: Option<Box<[u32; PAGE_SIZE]>>,
}

impl<T> Page<T> {
    #[inline]
    pub(super) fn tag(&self, offset: usize) -> u32 {
        self.tags.as_ref().map_or(0, |tags| tags[offset])
    }

    pub(super) fn set_tag(&mut self, offset: usize, tag: u32) {
        self.tags.get_or_insert_with(|| Box::new([0; PAGE_SIZE]))[offset] = tag;
    }

    pub(super) fn bytes_of_tags(&self) -> usize {
        self.tags.as_ref().map_or(0, |tags| size_of_val(&**tags))
    }
}
