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

#[derive(Debug)]
struct Page<I> {
    items: Vec<I>,
    /// How many are alive and not yet read.
    live: u32,
    /// How many have been read.
    read: u32,
    next: u32,
    previous: u32,
    /// It is the last page of its list, the only one that grows; or it is free.
    is_last: bool,
}

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

impl<I> Page<I> {
    const NEW: Self = Self { items: Vec::new(), live: 0, read: 0, next: NONE, previous: NONE, is_last: true };
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

    /// Takes the first page out of a list of which nothing was read; returns it as a list, and the rest.
    pub(crate) fn split_first(&mut self, list: List) -> (List, List) {
        let first = self.all[list.0 as usize].next;
        if first == list.0 {
            return (list, List::default());
        }
        let page = &mut self.all[first as usize];
        let next = std::mem::replace(&mut page.next, first);
        (page.previous, page.is_last) = (first, true);
        self.all[list.0 as usize].next = next;
        self.all[next as usize].previous = list.0;
        (List(first), list)
    }

    /// Sorts the items of a list of one page, dead ones too, of which nothing was read. An entry knows in which page its
    /// item stands and needs no more.
    pub(crate) fn sort(&mut self, list: List) -> &[I]
    where
        I: Ord,
    {
        let page = &mut self.all[list.0 as usize];
        debug_assert!(page.read == 0 && page.next == list.0, "one page, unread");
        page.items.sort_unstable();
        &page.items
    }

    /// Appends a list that is not empty. O(1).
    pub(crate) fn append(&mut self, list: List, other: List) -> List {
        let mut last = list.0;
        if self.all[last as usize].live == 0 {
            // Only the last page of a list may be empty.
            let previous = self.all[last as usize].previous;
            if previous == last {
                self.close(list);
                return other;
            }
            self.unlink(last);
            last = previous;
        }
        let (first, first_of_other) = (self.all[last as usize].next, self.all[other.0 as usize].next);
        self.all[last as usize].is_last = false;
        self.link(last, first_of_other);
        self.link(other.0, first);
        other
    }

    fn link(&mut self, number: u32, next: u32) {
        self.all[number as usize].next = next;
        self.all[next as usize].previous = number;
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

    /// The last page is at its capacity, and `count` more items come.
    #[cold]
    fn make_room(&mut self, list: List, count: usize, residents: &mut impl Residents<I>) -> List {
        let len = self.all[list.0 as usize].items.len();
        if list.0 != NONE && len < PAGE {
            self.reserve(list.0, (len + count).max(4 * len));
            return list;
        }
        let number = self.take_free();
        if list.0 == NONE {
            let page = &mut self.all[number as usize];
            (page.previous, page.next) = (number, number);
            self.reserve(number, count.max(4));
        } else {
            let last = &mut self.all[list.0 as usize];
            let first = std::mem::replace(&mut last.next, number);
            last.is_last = false;
            self.all[first as usize].previous = number;
            let page = &mut self.all[number as usize];
            (page.previous, page.next) = (list.0, first);
            self.reserve(number, PAGE);
            self.put_some_together(residents);
        }
        List(number)
    }

    /// Makes room for so many items in a page; for a whole page where it would be more than a few.
    fn reserve(&mut self, number: u32, count: usize) {
        let items = &mut self.all[number as usize].items;
        if count <= KEEP {
            items.reserve_exact(count.saturating_sub(items.len()));
        } else if items.capacity() < PAGE {
            let mut large = std::mem::take(&mut self.spare);
            large.reserve_exact(PAGE);
            large.append(items);
            *items = large;
        }
    }

    /// Nothing is alive in the page any more.
    #[inline]
    fn emptied(&mut self, number: u32) {
        let page = &mut self.all[number as usize];
        if page.is_last {
            page.items.clear();
            page.read = 0;
            if page.items.capacity() > KEEP && page.next == number {
                self.keep(number);
            }
        } else {
            self.unlink(number);
        }
    }

    #[cold]
    fn unlink(&mut self, number: u32) {
        let Page { next, previous, .. } = self.all[number as usize];
        self.all[previous as usize].next = next;
        self.all[next as usize].previous = previous;
        self.release(number);
        // The last page may have been emptied before this one: now it is alone.
        let page = &self.all[next as usize];
        if next == previous && page.live == 0 && page.items.capacity() > KEEP {
            self.keep(next);
        }
    }

    fn release(&mut self, number: u32) {
        let page = &mut self.all[number as usize];
        page.items.clear();
        (page.live, page.read, page.is_last) = (0, 0, true);
        if page.items.capacity() > KEEP || self.free.len() >= KEPT_PAGES {
            self.keep(number);
        }
        self.free.push(number);
    }

    /// Takes the memory of an empty page away. The largest is kept for the next large page.
    #[cold]
    fn keep(&mut self, number: u32) {
        let items = std::mem::take(&mut self.all[number as usize].items);
        if items.capacity() > self.spare.capacity() {
            self.spare = items;
        }
    }

    fn take_free(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.all.len() < MOST_PAGES, "a timer holds at most some 2^32 tasks");
            self.all.push(Page::NEW);
            (self.all.len() - 1) as u32
        })
    }

    /// Compares a few pages with their neighbours, and goes on from there the next time.
    fn put_some_together(&mut self, residents: &mut impl Residents<I>) {
        let mut left = COMPARED;
        for _ in 0..PASSED_OVER.min(self.all.len()) {
            self.compared = (self.compared + 1) % self.all.len();
            if self.is_settled(self.compared as u32) {
                self.put_together(self.compared as u32, residents);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Whether it is a page that does not grow, and of which nothing has been read.
    fn is_settled(&self, number: u32) -> bool {
        let page = &self.all[number as usize];
        !page.is_last && page.read == 0
    }

    /// Takes the items of the next page in behind its own, and drops the dead of both.
    fn put_together(&mut self, number: u32, residents: &mut impl Residents<I>) {
        let next = self.all[number as usize].next;
        let live = self.all[number as usize].live + self.all[next as usize].live;
        if live > ROOM || !self.is_settled(next) {
            return;
        }
        let mut items = Vec::with_capacity(live as usize);
        for from in [number, next] {
            for (item, place) in std::mem::take(&mut self.all[from as usize].items).into_iter().zip(0..) {
                if residents.stands_at(item, position(from, place)) {
                    residents.stand(item, position(number, items.len()));
                    items.push(item);
                }
            }
        }
        debug_assert_eq!(items.len() as u32, live, "a page counts what stands in it");
        let page = &mut self.all[number as usize];
        (page.items, page.live) = (items, live);
        self.unlink(next);
    }
}

fn position(page: u32, place: usize) -> u32 {
    page << PAGE_BITS | place as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items are numbers; where each stands is written down here.
    #[derive(Default)]
    struct Places(Vec<u32>);

    impl Residents<u32> for Places {
        fn stands_at(&self, item: u32, position: u32) -> bool {
            self.0[item as usize] == position
        }

        fn stand(&mut self, item: u32, position: u32) {
            let index = item as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, NO_POSITION);
            }
            self.0[index] = position;
        }
    }

    #[derive(Default)]
    struct Bench {
        pages: Pages<u32>,
        list: List,
        places: Places,
    }

    impl Bench {
        fn filled(count: u32) -> Self {
            let mut bench = Self::default();
            (0..count).for_each(|item| bench.push(item));
            bench
        }

        fn push(&mut self, item: u32) {
            self.list = self.pages.push(self.list, item, &mut self.places);
        }

        fn remove(&mut self, item: u32) {
            self.pages.remove(std::mem::replace(&mut self.places.0[item as usize], NO_POSITION));
        }

        /// What is alive, in order.
        fn items(&self) -> Vec<u32> {
            let items = self.pages.iter(self.list).filter(|(position, item)| self.places.stands_at(**item, *position));
            items.map(|(_, item)| *item).collect()
        }

        /// Reads all, some at a time, in between `between` may do something.
        fn read_all(&mut self, at_a_time: usize, mut between: impl FnMut(&mut Self)) -> Vec<u32> {
            let mut all = Vec::new();
            loop {
                let (start, items) = self.pages.unread(self.list);
                let items = items[..items.len().min(at_a_time)].to_vec();
                if items.is_empty() {
                    return all;
                }
                let alive =
                    items.iter().zip(start..).filter(|(item, position)| self.places.stands_at(**item, *position));
                let alive: Vec<_> = alive.map(|(item, _)| *item).collect();
                self.pages.read(start, items.len());
                for item in &alive {
                    self.places.0[*item as usize] = NO_POSITION;
                }
                self.pages.leave(start, alive.len());
                all.extend(alive);
                between(self);
            }
        }
    }

    #[test]
    fn what_is_taken_out_leaves_the_order_of_the_rest() {
        let mut bench = Bench::filled(3);
        assert_eq!(bench.places.0, [1024, 1025, 1026]);
        bench.remove(1);
        assert_eq!(bench.items(), [0, 2]);
        bench.remove(0);
        bench.remove(2);
        assert!(bench.pages.is_empty(bench.list));
        bench.push(3);
        assert_eq!(bench.places.0[3], 1024);
    }

    #[test]
    fn a_list_is_split_into_pages_and_put_together_again() {
        let mut bench = Bench::filled(3 * PAGE as u32 + 7);
        let (before, mut pages) = (bench.items(), Vec::new());
        while !bench.pages.is_empty(bench.list) {
            let (page, rest) = bench.pages.split_first(bench.list);
            bench.list = rest;
            pages.push(page);
        }
        assert_eq!(pages.iter().map(|page| bench.pages.len(*page)).collect::<Vec<_>>(), [PAGE, PAGE, PAGE, 7]);
        for page in pages {
            bench.list = bench.pages.append(bench.list, page);
        }
        assert_eq!(bench.items(), before);
        assert_eq!(bench.read_all(100, |_| ()), before);
    }

    #[test]
    fn an_empty_last_page_is_not_kept_where_a_list_is_appended() {
        let mut bench = Bench::default();
        for turn in 0..100 {
            let first = turn * (PAGE as u32 + 2);
            (first..=first + PAGE as u32).for_each(|item| bench.push(item));
            bench.remove(first + PAGE as u32); // alone in the last page
            let other = bench.pages.push(List::default(), first + PAGE as u32 + 1, &mut bench.places);
            bench.list = bench.pages.append(bench.list, other);
            let alive = bench.items();
            assert_eq!((alive.len(), alive.last()), (PAGE + 1, Some(&(first + PAGE as u32 + 1))));
            for item in alive {
                bench.remove(item);
            }
        }
        assert!(bench.pages.all.len() < 8, "{} pages", bench.pages.all.len());
    }

    #[test]
    fn the_order_holds_over_many_pages_and_while_they_are_put_together() {
        let (before, after) = (20 * PAGE as u32, 30 * PAGE as u32);
        let mut bench = Bench::filled(before);
        let stays = |item: &u32| item.is_multiple_of(50);
        (0..before).filter(|item| !stays(item)).for_each(|item| bench.remove(item));
        let bytes = bench.pages.bytes();
        (before..after).for_each(|item| bench.push(item));
        let expected: Vec<_> = (0..before).filter(stays).chain(before..after).collect();
        assert_eq!(bench.items(), expected);
        assert!(bench.pages.bytes() < bytes - 5 * 4 * PAGE, "{} of {bytes}", bench.pages.bytes());
        (0..before).filter(stays).for_each(|item| bench.remove(item));
        assert_eq!(bench.items(), expected[expected.len() - 10 * PAGE..], "the entries know their new positions");
    }

    #[test]
    fn memory_follows_what_is_alive_while_most_are_taken_out_soon_after() {
        let mut bench = Bench::default();
        for item in 0..300 * PAGE as u32 {
            bench.push(item);
            if item >= 1000 && (item - 1000) % 100 != 0 {
                bench.remove(item - 1000);
            }
        }
        let live = bench.items().len();
        assert!(bench.pages.bytes() < 6 * 4 * live, "{} bytes for {live}", bench.pages.bytes());
        assert!(bench.items().is_sorted());
    }

    #[test]
    fn memory_and_positions_stay_where_they_are_however_many_come_and_go_while_one_lives() {
        let mut bench = Bench::filled(1);
        let mut highest = 0;
        for _ in 0..4_000_000 {
            bench.push(1);
            highest = highest.max(bench.places.0[1]);
            bench.remove(1);
        }
        assert_eq!(bench.items(), [0]);
        assert!(bench.pages.bytes() < 16_000, "{} bytes", bench.pages.bytes());
        assert!(highest >> PAGE_BITS < 4, "page {}", highest >> PAGE_BITS);
    }

    #[test]
    fn a_list_that_is_emptied_gives_its_memory_back_whatever_goes_first() {
        let orders: [fn(u32) -> u32; 2] = [|item| item, |item| 99_999 - item];
        for order in orders {
            let mut bench = Bench::filled(100_000);
            (0..100_000).for_each(|item| bench.remove(order(item)));
            assert!(bench.pages.is_empty(bench.list));
            let items: usize = bench.pages.all.iter().map(|page| page.items.capacity()).sum();
            assert!(items <= KEEP && bench.pages.spare.capacity() <= PAGE, "{items} items");
        }
    }

    #[test]
    fn what_is_read_comes_in_order_and_once_whatever_leaves_meanwhile() {
        let mut bench = Bench::filled(10 * PAGE as u32);
        let mut other = List::default();
        let mut next = 10 * PAGE as u32;
        let all = bench.read_all(100, |bench| {
            // One behind the reading and one far ahead, if they are still there; and another list that fills pages.
            for item in [next - 10 * PAGE as u32, next - 9 * PAGE as u32] {
                if bench.places.0[item as usize] != NO_POSITION {
                    bench.remove(item);
                }
            }
            for _ in 0..PAGE {
                other = bench.pages.push(other, next, &mut bench.places);
                next += 1;
            }
        });
        assert!(all.is_sorted() && all.len() > 8 * PAGE, "{}", all.len());
        bench.pages.close(bench.list);
        let others: Vec<_> = bench.pages.iter(other).map(|(_, item)| *item).collect();
        assert!(others.into_iter().eq(10 * PAGE as u32..next));
    }
}
