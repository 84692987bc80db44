//! A page of a list: a bounded number of items, and the next page in the ring of the list.

/// A page begins small, and has memory for all of them once it has more than this. An empty one keeps memory for this many: an
/// item that comes and goes again and again costs no allocation.
pub(super) const SMALL_PAGE: usize = 64;
/// No page: the list is new.
pub(super) const NO_PAGE: u32 = 0;

#[derive(Debug)]
pub(super) struct Page<I> {
    pub(super) items: Vec<I>,
    /// How many of them were read.
    pub(super) read_count: u32,
    pub(super) next: u32,
    /// Whether it is the last page of its list: only that page grows. A free page counts as one.
    pub(super) is_last: bool,
}

impl<I> Page<I> {
    pub(super) const NEW: Self = Self { items: Vec::new(), read_count: 0, next: NO_PAGE, is_last: true };

    pub(super) fn unread(&self) -> &[I] {
        &self.items[self.read_count as usize..]
    }

    /// All of it was read.
    pub(super) fn empty(&mut self) {
        self.items.clear();
        self.read_count = 0;
        self.items.shrink_to(SMALL_PAGE);
    }
}
