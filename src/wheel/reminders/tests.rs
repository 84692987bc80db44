use super::super::reminder::Mark;
use super::*;

fn reminder(slot: u32) -> Reminder {
    Reminder::new(slot, Mark::default())
}

fn filled(count: u32) -> (Reminders, List) {
    let (mut reminders, mut list) = (Reminders::default(), List::default());
    for slot in 0..count {
        list = reminders.push(list, reminder(slot));
    }
    (reminders, list)
}

fn read_all(reminders: &mut Reminders, list: List, at_a_time: usize) -> Vec<u32> {
    let (mut all, mut batch) = (Vec::new(), vec![Reminder::default(); at_a_time]);
    loop {
        let count = reminders.read(list, &mut batch);
        if count == 0 {
            reminders.free_list(list);
            return all;
        }
        all.extend(batch[..count].iter().map(|reminder| reminder.slot()));
    }
}

const MANY: u32 = 10 * PAGE_SIZE as u32 + 7;

#[test]
fn what_was_pushed_is_read_once_and_the_memory_goes() {
    for at_a_time in [1, 64, 1000] {
        let (mut reminders, list) = filled(MANY);
        let mut other = List::default();
        other = reminders.push(other, reminder(MANY));
        assert_eq!((reminders.len(), reminders.len_of_long(list)), (MANY as usize + 1, Some(MANY as usize)));
        assert_eq!(read_all(&mut reminders, list, at_a_time), (0..MANY).collect::<Vec<_>>());
        assert_eq!((reminders.len(), reminders.peek(other)), (1, Some(reminder(MANY))));
        assert!(reminders.bytes() < 45_000, "{} bytes", reminders.bytes()); // the free pages keep theirs
    }
}

#[test]
fn a_list_is_counted_from_its_third_page_on() {
    for (count, expected) in
        [(0, None), (1, None), (PAGE_SIZE, None), (2 * PAGE_SIZE, None), (2 * PAGE_SIZE + 1, Some(1025))]
    {
        let (reminders, list) = filled(count as u32);
        assert_eq!(reminders.len_of_long(list), expected);
        assert_eq!(
            (reminders.is_at_most(list, 64), reminders.is_at_most(list, PAGE_SIZE)),
            (count <= 64, count <= PAGE_SIZE)
        );
    }
}

#[test]
fn sweeps_drop_what_is_not_wanted_and_give_the_memory_back() {
    let (mut reminders, list) = filled(MANY);
    let mut other = List::default();
    for slot in MANY..2 * MANY {
        other = reminders.push(other, reminder(slot));
    }
    let before = reminders.bytes();
    reminders.read(list, &mut [Reminder::default(); 100]); // a page that was read in part is swept like any other
    let stays = |slot: u32| slot.is_multiple_of(50);
    for _ in 0..50 {
        reminders.sweep(|reminder| stays(reminder.slot()));
    }
    assert_eq!(reminders.len(), (100..2 * MANY).filter(|slot| stays(*slot)).count());
    assert!(reminders.bytes() < before / 8, "{} of {before} bytes", reminders.bytes());
    for (list, slots) in [(list, 100..MANY), (other, MANY..2 * MANY)] {
        assert_eq!(read_all(&mut reminders, list, 64), slots.filter(|slot| stays(*slot)).collect::<Vec<_>>());
    }
}

#[test]
fn lists_grow_and_are_read_between_sweeps() {
    let (mut reminders, mut list) = filled(MANY);
    let (mut next, mut batch, mut read) = (MANY, [Reminder::default(); 100], Vec::new());
    for turn in 0..400 {
        for _ in 0..150 {
            list = reminders.push(list, reminder(next));
            next += 1;
        }
        reminders.sweep(|reminder| reminder.slot() % 3 > 0);
        if turn > 200 {
            let count = reminders.read(list, &mut batch);
            read.extend(batch[..count].iter().map(|reminder| reminder.slot()));
        }
    }
    read.extend(read_all(&mut reminders, list, 64));
    assert!(read.is_sorted());
    let read: std::collections::BTreeSet<_> = read.into_iter().collect();
    assert!((0..next).filter(|slot| slot % 3 > 0).all(|slot| read.contains(&slot)));
    assert_eq!(reminders.len(), 0);
}

#[test]
fn one_that_comes_and_goes_costs_no_allocation() {
    let mut reminders = Reminders::default();
    let mut list = reminders.push(List::default(), reminder(0));
    reminders.read(list, &mut [Reminder::default()]);
    let bytes = reminders.bytes();
    for slot in 0..10_000 {
        list = reminders.push(list, reminder(slot));
        assert_eq!(reminders.read(list, &mut [Reminder::default(); 4]), 1);
        assert_eq!(reminders.peek(list), None);
    }
    assert_eq!(reminders.bytes(), bytes);
}
