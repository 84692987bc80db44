//! A page of a list: a fixed number of items, and its neighbours in the ring of the list.

use crate::wheel::PageNumbering;

/// A position is a page and an offset.
pub(super) type Numbering = PageNumbering<10>;
/// Items in a page.
pub(super) const PAGE_SIZE: usize = Numbering::PAGE_SIZE;
/// No page: the list is new.
pub(super) const NO_PAGE: u32 = 0;

#[derive(Debug)]
pub(super) struct Page<I> {
    pub(super) items: Vec<I>,
    /// How many items are live and were not read.
    pub(super) live_count: u32,
    /// How many items were read.
    pub(super) read_count: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Whether it is the last page of its list: only that page grows. A free page counts as one.
    pub(super) is_last: bool,
}

impl<I> Page<I> {
    pub(super) const NEW: Self =
        Self { items: Vec::new(), live_count: 0, read_count: 0, next: NO_PAGE, previous: NO_PAGE, is_last: true };
}
