//! A page of a slab: a fixed number of slots, the free ones chained by their offsets.

use super::super::page_numbering::PageNumbering;
use super::entry::Entry;

/// A slot is a page and an offset.
pub(super) type Numbering = PageNumbering<9>;
/// Slots in a page.
pub(super) const PAGE_SIZE: usize = Numbering::PAGE_SIZE;

#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) entries: Vec<Entry<T>>,
    /// The offset of the first free slot among `entries`.
    pub(super) first_free: u32,
    pub(super) live_count: u32,
    /// The generation of a slot that is used for the first time since the page got its memory.
    pub(super) first_generation: u32,
    /// Whether `pages_with_room` names the page.
    pub(super) has_room: bool,
}
