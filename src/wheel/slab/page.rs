//! The pages of a slab: which has room, and whose memory is kept.

use super::{Entry, NO_SLOT, PAGE, PAGE_BITS, Slab};

#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) entries: Vec<Entry<T>>,
    pub(super) free: u32,
    pub(super) live: u32,
    /// The generation that a slot starts with when the page is made again.
    pub(super) base: u32,
    /// Whether the page stands in `open`.
    pub(super) is_open: bool,
}

impl<T> Slab<T> {
    #[cold]
    pub(super) fn open_page(&mut self) -> u32 {
        let index = self.pages.len() as u32;
        assert!(index < 1 << (32 - PAGE_BITS), "a timer holds at most 2^32 tasks");
        self.pages.push(Page { entries: Vec::new(), free: NO_SLOT, live: 0, base: 0, is_open: true });
        self.open.push(index);
        index
    }

    /// A page that has no memory gets that of the spare page, or new memory.
    #[cold]
    pub(super) fn give_memory(&mut self, index: u32) {
        let mut entries = self.spare.take().map_or_else(Vec::new, |spare| self.take_memory(spare));
        entries.clear();
        entries.reserve_exact(PAGE);
        self.pages[index as usize].entries = entries;
    }

    /// An empty page becomes the spare one; if there is one already, or if it has no generation left, its memory goes back.
    #[cold]
    pub(super) fn give_back(&mut self, index: u32) {
        if self.spare.is_none() && self.pages[index as usize].is_open {
            self.spare = Some(index);
        } else {
            self.take_memory(index);
        }
    }

    /// Takes the memory of an empty page. Made again, the page starts above every generation that it has handed out.
    fn take_memory(&mut self, index: u32) -> Vec<Entry<T>> {
        let page = &mut self.pages[index as usize];
        page.base = page.entries.iter().map(|entry| entry.generation).max().unwrap_or(0).max(page.base);
        let entries = std::mem::take(&mut page.entries);
        page.free = NO_SLOT;
        if page.base == u32::MAX && page.is_open {
            page.is_open = false;
            self.open.retain(|open| *open != index);
        } else if page.base < u32::MAX && !page.is_open {
            page.is_open = true;
            self.open.push(index);
        }
        entries
    }
}
