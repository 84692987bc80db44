//! Lists in pages: items in order, appended at the end, read from the beginning, taken out anywhere.
//!
//! All lists of a pool share its pages. A list is a ring of pages, named by its last one, and only the last one grows. An item
//! is found by its position: the number of its page and the place in it. A list does not ask whether an item is alive: its
//! entry knows ([`Residents`]). So to take an item out is to count its page down, and the item stays behind, dead.
//!
//! A page in which nothing is alive any more leaves its list at once, and its number is used again; no entry names it then.
//! So neither memory nor positions grow with the number of items that ever came, only with those that are alive. For every
//! page that is filled a few others are looked at, and two neighbours that fit into one page are put together. No call does
//! more than the work of a few pages. All O(1), amortized.
//!
//! Example: items a, b, c of a new list stand in page 1, at 0, 1 and 2. Once b is taken out, it is dead and the page counts
//! two. Once a and c are taken out too, the page is empty, and the next item stands at 0 again.

mod merge;
mod page;
mod splice;

use page::Page;

/// Bits of a position that say where in its page an item stands.
const PAGE_BITS: u32 = 10;
/// Items in a page.
const PAGE: usize = 1 << PAGE_BITS;
/// No page: the list is new.
const NONE: u32 = 0;
/// One position is left over, for callers that need one which no item has: [`NO_POSITION`].
const MOST_PAGES: usize = (1 << (32 - PAGE_BITS)) - 1;
/// The position of no item.
pub(crate) const NO_POSITION: u32 = u32::MAX;
/// A page keeps memory for so many items: one item that comes and goes again and again costs no allocation.
const KEEP: usize = 64;
/// So many free pages keep it.
const KEPT_PAGES: usize = 64;
/// So many neighbours are compared for each page that is filled, and so many pages passed over on the way to them.
const COMPARED: usize = 4;
const PASSED_OVER: usize = 64;
/// Neighbours are put together if they fill no more than this of one page: there should be something to gain.
const ROOM: u32 = PAGE as u32 / 4 * 3;

/// The most pages that are counted of a list.
const COUNTED: usize = 1024;

/// The entries that the items of a list stand for.
pub(crate) trait Residents<I> {
    /// Whether the item's entry is alive and stands at this position.
    fn stands_at(&self, item: I, position: u32) -> bool;

    /// Tells the item's entry that it stands there now.
    fn stand(&mut self, item: I, position: u32);
}

/// A list of a pool, named by its last page. Zero is an empty list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct List(pub(super) u32);

/// A pool of pages.
#[derive(Debug)]
pub(crate) struct Pages<I> {
    /// By number; the first one, [`NONE`], is never used.
    all: Vec<Page<I>>,
    free: Vec<u32>,
    /// Memory for the next large page.
    spare: Vec<I>,
    /// The page that was last compared with its neighbour.
    compared: usize,
}

impl<I> Default for Pages<I> {
    fn default() -> Self {
        Self { all: vec![Page::NEW], free: Vec::new(), spare: Vec::new(), compared: 0 }
    }
}

impl<I: Copy> Pages<I> {
    /// Appends an item, and tells its entry where it stands. Returns the list, which may have a new last page.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of an add")]
    #[inline(always)]
    pub(crate) fn push(&mut self, mut list: List, item: I, residents: &mut impl Residents<I>) -> List {
        let mut page = &mut self.all[list.0 as usize];
        if page.items.len() == page.items.capacity() {
            list = self.make_room(list, 1, residents);
            page = &mut self.all[list.0 as usize];
        }
        let position = position(list.0, page.items.len());
        page.items.push(item); // right behind the question above, which it does not ask again then
        page.live += 1;
        residents.stand(item, position);
        list
    }

    /// As [`Pages::push`] for many.
    pub(crate) fn extend(&mut self, mut list: List, mut items: &[I], residents: &mut impl Residents<I>) -> List {
        while !items.is_empty() {
            let page = &self.all[list.0 as usize];
            if page.items.len() == page.items.capacity() {
                list = self.make_room(list, items.len(), residents);
            }
            let page = &mut self.all[list.0 as usize];
            let (now, later) = items.split_at(items.len().min(page.items.capacity() - page.items.len()));
            for (item, place) in now.iter().zip(page.items.len()..) {
                residents.stand(*item, position(list.0, place));
            }
            page.items.extend_from_slice(now);
            page.live += now.len() as u32;
            items = later;
        }
        list
    }

    /// The item at this position was taken out, or stands elsewhere now.
    #[inline]
    pub(crate) fn remove(&mut self, position: u32) {
        self.leave(position, 1);
    }

    /// Whether nothing in the list is alive.
    pub(crate) fn is_empty(&self, list: List) -> bool {
        let last = &self.all[list.0 as usize];
        last.live == 0 && last.next == list.0
    }

    /// How many items are alive in a list of more than two pages; of a very long one, in its first pages. O(pages).
    #[inline]
    pub(crate) fn len_if_long(&self, list: List) -> Option<usize> {
        let Page { next, previous, .. } = self.all[list.0 as usize];
        (next != previous).then(|| self.len(list)) // of one page or two they are the same
    }

    #[cold]
    fn len(&self, list: List) -> usize {
        self.numbers(list).take(COUNTED).map(|number| self.all[number as usize].live as usize).sum()
    }

    /// The next items to read, dead ones too, and the position of the first. Empty only if the list is: one of them is alive.
    #[inline]
    pub(crate) fn unread(&self, list: List) -> (u32, &[I]) {
        let first = self.all[list.0 as usize].next;
        let page = &self.all[first as usize];
        (position(first, page.read as usize), &page.items[page.read as usize..])
    }

    /// The items of a page from this position on.
    #[inline]
    pub(crate) fn items_at(&self, position: u32) -> &[I] {
        &self.all[(position >> PAGE_BITS) as usize].items[position as usize % PAGE..]
    }

    /// The next `count` items, which begin at this position, have been read. Those that were alive leave next.
    #[inline]
    pub(crate) fn read(&mut self, position: u32, count: usize) {
        self.all[(position >> PAGE_BITS) as usize].read += count as u32;
    }

    /// So many items left the page of this position.
    #[inline]
    pub(crate) fn leave(&mut self, position: u32, count: usize) {
        let number = position >> PAGE_BITS;
        let page = &mut self.all[number as usize];
        page.live -= count as u32;
        if page.live == 0 {
            self.emptied(number);
        }
    }

    /// Gives the last page of an empty list back.
    pub(crate) fn close(&mut self, list: List) {
        debug_assert!(self.is_empty(list), "what is closed has been read");
        if list.0 != NONE {
            self.release(list.0);
        }
    }

    /// All items that were not read, dead ones too, with their positions.
    pub(crate) fn iter(&self, list: List) -> impl Iterator<Item = (u32, &I)> {
        self.numbers(list).flat_map(|number| {
            let page = &self.all[number as usize];
            let items = page.items.iter().enumerate().skip(page.read as usize);
            items.map(move |(place, item)| (position(number, place), item))
        })
    }

    /// The items of a list that are alive and were not read, in order.
    pub(crate) fn live_items(&self, list: List, residents: &impl Residents<I>) -> impl Iterator<Item = I> {
        let items = self.iter(list).map(|(position, item)| (position, *item));
        items.filter(|(position, item)| residents.stands_at(*item, *position)).map(|(_, item)| item)
    }

    /// The pages of a list, the first one first.
    fn numbers(&self, list: List) -> impl Iterator<Item = u32> {
        let first = Some(self.all[list.0 as usize].next);
        std::iter::successors(first, move |number| (*number != list.0).then(|| self.all[*number as usize].next))
    }

    /// What the pool takes of memory. O(pages).
    pub(crate) fn bytes(&self) -> usize {
        let items: usize = self.all.iter().map(|page| page.items.capacity()).sum();
        (items + self.spare.capacity()) * size_of::<I>()
            + self.all.capacity() * size_of::<Page<I>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

fn position(page: u32, place: usize) -> u32 {
    page << PAGE_BITS | place as u32
}

#[cfg(test)]
mod tests;
