use super::memory::SMALL_PAGE;
use super::page::PAGE_SIZE;
use super::*;

/// The position of each item. Items are numbers.
#[derive(Default)]
struct ItemPositions(Vec<u32>);

impl Positions<u32> for ItemPositions {
    fn is_at_position(&self, item: u32, position: u32) -> bool {
        self.0[item as usize] == position
    }

    fn set_position(&mut self, item: u32, position: u32) {
        let index = item as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, NO_POSITION);
        }
        self.0[index] = position;
    }
}

#[derive(Default)]
struct Fixture {
    pool: ListPool<u32>,
    list: List,
    positions: ItemPositions,
}

impl Fixture {
    fn filled(count: u32) -> Self {
        let mut fixture = Self::default();
        (0..count).for_each(|item| fixture.push(item));
        fixture
    }

    fn push(&mut self, item: u32) {
        self.list = self.pool.push(self.list, item, &mut self.positions);
    }

    fn remove(&mut self, item: u32) {
        self.pool.remove(std::mem::replace(&mut self.positions.0[item as usize], NO_POSITION));
    }

    /// The live items, in order.
    fn items(&self) -> Vec<u32> {
        let items = self.pool.iter_unread(self.list);
        items.filter(|(position, item)| self.positions.0[**item as usize] == *position).map(|(_, item)| *item).collect()
    }

    /// Reads all items, some at a time, and calls `between` after each part.
    fn read_all(&mut self, at_a_time: usize, mut between: impl FnMut(&mut Self)) -> Vec<u32> {
        let mut all = Vec::new();
        loop {
            let (start, items) = self.pool.unread_items(self.list);
            let items = items[..items.len().min(at_a_time)].to_vec();
            if items.is_empty() {
                return all;
            }
            let is_live = |(item, position): &(&u32, u32)| self.positions.is_at_position(**item, *position);
            let live: Vec<_> = items.iter().zip(start..).filter(is_live).map(|(item, _)| *item).collect();
            self.pool.mark_read(start, items.len());
            for item in &live {
                self.positions.0[*item as usize] = NO_POSITION;
            }
            self.pool.remove_from_page(start, live.len());
            all.extend(live);
            between(self);
        }
    }
}

#[test]
fn a_removed_item_leaves_the_order_of_the_others() {
    let mut fixture = Fixture::filled(3);
    assert_eq!(fixture.positions.0, [1024, 1025, 1026]);
    fixture.remove(1);
    assert_eq!(fixture.items(), [0, 2]);
    fixture.remove(0);
    fixture.remove(2);
    assert!(fixture.pool.is_empty(fixture.list));
    fixture.push(3);
    assert_eq!(fixture.positions.0[3], 1024);
}

#[test]
fn a_list_is_split_into_pages_and_joined_again() {
    let mut fixture = Fixture::filled(3 * PAGE_SIZE as u32 + 7);
    let (before, mut pages) = (fixture.items(), Vec::new());
    while !fixture.pool.is_empty(fixture.list) {
        let (page, rest) = fixture.pool.split_first_page(fixture.list);
        fixture.list = rest;
        pages.push(page);
    }
    assert_eq!(
        pages.iter().map(|page| fixture.pool.iter_unread(*page).count()).collect::<Vec<_>>(),
        [PAGE_SIZE, PAGE_SIZE, PAGE_SIZE, 7]
    );
    for page in pages {
        fixture.list = fixture.pool.append(fixture.list, page);
    }
    assert_eq!(fixture.items(), before);
    assert_eq!(fixture.read_all(100, |_| ()), before);
}

#[test]
fn an_append_frees_an_empty_last_page() {
    let mut fixture = Fixture::default();
    for turn in 0..100 {
        let first = turn * (PAGE_SIZE as u32 + 2);
        (first..=first + PAGE_SIZE as u32).for_each(|item| fixture.push(item));
        fixture.remove(first + PAGE_SIZE as u32); // alone in the last page
        let other = fixture.pool.push(List::default(), first + PAGE_SIZE as u32 + 1, &mut fixture.positions);
        fixture.list = fixture.pool.append(fixture.list, other);
        let live = fixture.items();
        assert_eq!((live.len(), live.last()), (PAGE_SIZE + 1, Some(&(first + PAGE_SIZE as u32 + 1))));
        for item in live {
            fixture.remove(item);
        }
    }
    assert!(fixture.pool.pages.len() < 8, "{} pages", fixture.pool.pages.len());
}

#[test]
fn the_order_holds_over_many_pages_and_their_merges() {
    let (before, after) = (20 * PAGE_SIZE as u32, 30 * PAGE_SIZE as u32);
    let mut fixture = Fixture::filled(before);
    let stays = |item: &u32| item.is_multiple_of(50);
    (0..before).filter(|item| !stays(item)).for_each(|item| fixture.remove(item));
    let bytes = fixture.pool.bytes();
    (before..after).for_each(|item| fixture.push(item));
    let expected: Vec<_> = (0..before).filter(stays).chain(before..after).collect();
    assert_eq!(fixture.items(), expected);
    assert!(fixture.pool.bytes() < bytes - 5 * 4 * PAGE_SIZE, "{} of {bytes}", fixture.pool.bytes());
    (0..before).filter(stays).for_each(|item| fixture.remove(item));
    assert_eq!(fixture.items(), expected[expected.len() - 10 * PAGE_SIZE..], "the entries know their new positions");
}

#[test]
fn memory_follows_the_live_items_while_most_are_removed_soon_after() {
    let mut fixture = Fixture::default();
    for item in 0..300 * PAGE_SIZE as u32 {
        fixture.push(item);
        if item >= 1000 && (item - 1000) % 100 != 0 {
            fixture.remove(item - 1000);
        }
    }
    let live = fixture.items().len();
    assert!(fixture.pool.bytes() < 6 * 4 * live, "{} bytes for {live}", fixture.pool.bytes());
    assert!(fixture.items().is_sorted());
}

#[test]
fn memory_and_positions_do_not_grow_while_many_items_come_and_go_and_one_stays() {
    let mut fixture = Fixture::filled(1);
    let mut highest = 0;
    for _ in 0..4_000_000 {
        fixture.push(1);
        highest = highest.max(fixture.positions.0[1]);
        fixture.remove(1);
    }
    assert_eq!(fixture.items(), [0]);
    assert!(fixture.pool.bytes() < 16_000, "{} bytes", fixture.pool.bytes());
    assert!(Numbering::page(highest) < 4, "page {}", Numbering::page(highest));
}

#[test]
fn an_emptied_list_returns_its_memory_in_any_order_of_removal() {
    let orders: [fn(u32) -> u32; 2] = [|item| item, |item| 99_999 - item];
    for order in orders {
        let mut fixture = Fixture::filled(100_000);
        (0..100_000).for_each(|item| fixture.remove(order(item)));
        assert!(fixture.pool.is_empty(fixture.list));
        let items: usize = fixture.pool.pages.iter().map(|page| page.items.capacity()).sum();
        assert!(items <= SMALL_PAGE && fixture.pool.spare_memory.capacity() <= PAGE_SIZE, "{items} items");
    }
}

#[test]
fn each_item_is_read_once_and_in_order_while_others_are_removed() {
    let mut fixture = Fixture::filled(10 * PAGE_SIZE as u32);
    let mut other = List::default();
    let mut next = 10 * PAGE_SIZE as u32;
    let all = fixture.read_all(100, |fixture| {
        // Removes one item that was read and one far ahead, if they are still there. Another list fills pages.
        for item in [next - 10 * PAGE_SIZE as u32, next - 9 * PAGE_SIZE as u32] {
            if fixture.positions.0[item as usize] != NO_POSITION {
                fixture.remove(item);
            }
        }
        for _ in 0..PAGE_SIZE {
            other = fixture.pool.push(other, next, &mut fixture.positions);
            next += 1;
        }
    });
    assert!(all.is_sorted() && all.len() > 8 * PAGE_SIZE, "{}", all.len());
    fixture.pool.free_list(fixture.list);
    let others: Vec<_> = fixture.pool.iter_unread(other).map(|(_, item)| *item).collect();
    assert!(others.into_iter().eq(10 * PAGE_SIZE as u32..next));
}
