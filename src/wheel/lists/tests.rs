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
            let alive = items.iter().zip(start..).filter(|(item, position)| self.places.stands_at(**item, *position));
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
