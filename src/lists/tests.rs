use super::*;

const PAGE_SIZE: usize = 512;

type Lists = super::Lists<u32, PAGE_SIZE>;

const MANY: u32 = 10 * PAGE_SIZE as u32 + 7;

fn filled(count: u32) -> (Lists, List) {
    let (mut lists, mut list) = (Lists::new(64), List::default());
    for item in 0..count {
        list = lists.push(list, item);
    }
    (lists, list)
}

fn sweep(lists: &mut Lists, keep: impl Fn(u32) -> bool) {
    lists.sweep_page(&mut |item| keep(item));
}

fn read_all(lists: &mut Lists, list: List, at_a_time: usize) -> Vec<u32> {
    let (mut all, mut batch) = (Vec::new(), vec![0; at_a_time]);
    loop {
        let count = lists.read(list, &mut batch);
        if count == 0 {
            lists.free_list(list);
            return all;
        }
        all.extend(&batch[..count]);
    }
}

#[test]
fn what_was_pushed_is_read_once_and_the_memory_goes() {
    for at_a_time in [1, 64, 1000] {
        let (mut lists, list) = filled(MANY);
        let mut other = List::default();
        other = lists.push(other, MANY);
        assert_eq!((lists.len(), lists.len_of_long(list)), (MANY as usize + 1, Some(MANY as usize)));
        assert_eq!(read_all(&mut lists, list, at_a_time), (0..MANY).collect::<Vec<_>>());
        assert_eq!((lists.len(), lists.peek(other)), (1, Some(MANY)));
        assert!(lists.bytes() < 25_000, "{} bytes", lists.bytes()); // the free pages keep theirs
    }
}

#[test]
fn a_pool_keeps_the_memory_of_so_many_free_pages() {
    let mut lists = Lists::new(2);
    let list = lists.extend(List::default(), &(0..MANY).collect::<Vec<_>>());
    assert_eq!(read_all(&mut lists, list, 1000), (0..MANY).collect::<Vec<_>>());
    let kept: usize = lists.pages.iter().map(|page| page.items.capacity()).sum();
    assert!(kept <= 2 * PAGE_SIZE, "{kept} items");
}

#[test]
fn a_list_is_counted_from_its_third_page_on() {
    for (count, expected) in
        [(0, None), (1, None), (PAGE_SIZE, None), (2 * PAGE_SIZE, None), (2 * PAGE_SIZE + 1, Some(1025))]
    {
        let (lists, list) = filled(count as u32);
        assert_eq!(lists.len_of_long(list), expected);
        assert_eq!((lists.is_at_most(list, 64), lists.is_at_most(list, PAGE_SIZE)), (count <= 64, count <= PAGE_SIZE));
    }
}

#[test]
fn sweeps_drop_what_is_not_wanted_and_give_the_memory_back() {
    let (mut lists, list) = filled(MANY);
    let mut other = List::default();
    for item in MANY..2 * MANY {
        other = lists.push(other, item);
    }
    let before = lists.bytes();
    lists.read(list, &mut [0; 100]); // a page that was read in part is swept like any other
    let stays = |item: u32| item.is_multiple_of(50);
    for _ in 0..50 {
        sweep(&mut lists, stays);
    }
    assert_eq!(lists.len(), (100..2 * MANY).filter(|item| stays(*item)).count());
    assert!(lists.bytes() < before / 5, "{} of {before} bytes", lists.bytes());
    for (list, items) in [(list, 100..MANY), (other, MANY..2 * MANY)] {
        assert_eq!(read_all(&mut lists, list, 64), items.filter(|item| stays(*item)).collect::<Vec<_>>());
    }
}

#[test]
fn lists_grow_and_are_read_between_sweeps() {
    let (mut lists, mut list) = filled(MANY);
    let (mut next, mut batch, mut read) = (MANY, [0; 100], Vec::new());
    for turn in 0..400 {
        for _ in 0..150 {
            list = lists.push(list, next);
            next += 1;
        }
        sweep(&mut lists, |item| item % 3 > 0);
        if turn > 200 {
            let count = lists.read(list, &mut batch);
            read.extend_from_slice(&batch[..count]);
        }
    }
    read.extend(read_all(&mut lists, list, 64));
    assert!(read.is_sorted());
    let read: std::collections::BTreeSet<_> = read.into_iter().collect();
    assert!((0..next).filter(|item| item % 3 > 0).all(|item| read.contains(&item)));
    assert_eq!(lists.len(), 0);
}

#[test]
fn memory_follows_the_live_items_while_most_become_useless_soon_after() {
    let (mut lists, mut list) = (Lists::new(4), List::default());
    let is_live = |item: u32, next: u32| item.is_multiple_of(100) || item + 1000 >= next;
    for next in 0..300 * PAGE_SIZE as u32 {
        list = lists.push(list, next);
        let live = next as usize / 100 + 1000;
        lists.sweep_if_above(2 * live, usize::MAX, |item| is_live(item, next));
    }
    let live = 3 * PAGE_SIZE + 1000;
    assert!(lists.len() < 3 * live && lists.bytes() < 6 * 4 * live, "{} items, {} bytes", lists.len(), lists.bytes());
    assert!(lists.iter(list).is_sorted());
}

#[test]
fn one_that_comes_and_goes_costs_no_allocation() {
    let mut lists = Lists::new(64);
    let mut list = lists.push(List::default(), 0);
    lists.read(list, &mut [0]);
    let bytes = lists.bytes();
    for item in 0..10_000 {
        list = lists.push(list, item);
        assert_eq!(lists.read(list, &mut [0; 4]), 1);
        assert_eq!(lists.peek(list), None);
    }
    assert_eq!(lists.bytes(), bytes);
}

#[test]
fn a_list_is_split_into_pages_and_joined_again() {
    let (mut lists, mut list) = filled(3 * PAGE_SIZE as u32 + 7);
    let before: Vec<_> = lists.iter(list).collect();
    let mut pages = Vec::new();
    while list != List::default() {
        let (page, rest) = lists.split_first_page(list);
        list = rest;
        pages.push(page);
    }
    let lens: Vec<_> = pages.iter().map(|page| lists.iter(*page).count()).collect();
    assert_eq!(lens, [PAGE_SIZE, PAGE_SIZE, PAGE_SIZE, 7]);
    for page in pages {
        list = lists.append(list, page);
    }
    list = lists.push(list, 9999);
    assert_eq!(read_all(&mut lists, list, 100), [before, vec![9999]].concat());
}

#[test]
fn a_list_is_freed_with_what_is_left_in_it() {
    let (mut lists, list) = filled(MANY);
    let other = lists.extend(List::default(), &[1, 2, 3]);
    lists.read(list, &mut [0; 100]);
    lists.free_list(list);
    assert_eq!((lists.len(), lists.iter(other).collect::<Vec<_>>()), (3, vec![1, 2, 3]));
    assert_eq!(lists.used_pages(), 1);
}

#[test]
fn an_append_to_a_list_that_was_read_or_swept_keeps_the_order() {
    let (mut lists, mut list) = filled(2 * PAGE_SIZE as u32 + 1);
    for _ in 0..3 {
        sweep(&mut lists, |item| item < PAGE_SIZE as u32);
    }
    let mut other = lists.extend(List::default(), &[9000, 9001]);
    lists.read(other, &mut [0]);
    other = lists.append(List::default(), other);
    list = lists.append(list, other);
    assert_eq!(read_all(&mut lists, list, 64), (0..PAGE_SIZE as u32).chain([9001]).collect::<Vec<_>>());
    assert_eq!((lists.len(), lists.used_pages()), (0, 0));
}
