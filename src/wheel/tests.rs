use super::*;

const DUE_US: u64 = 390_000; // the last bucket of level 2

fn add(wheel: &mut Wheel, slab: &mut Slab<u64>, due_us: u64, number: u64) -> Handle {
    let (handle, wait_by) = slab.insert((due_us, number), wheel.tick_end_us(), number, 0);
    if let WaitBy::NewReminder(mark) = wait_by {
        wheel.remind(handle.slot(), mark, due_us);
    }
    handle
}

#[test]
fn an_entry_that_takes_a_slot_with_a_reminder_needs_no_other() {
    let (mut wheel, mut slab) = (Wheel::new(1, &[20], 0), Slab::new());
    for number in 0..1000 {
        let handle = add(&mut wheel, &mut slab, DUE_US + number * 1000, number);
        assert!(slab.remove(handle).is_some());
    }
    assert_eq!(wheel.reminders.len(), 1);
    let earlier = add(&mut wheel, &mut slab, DUE_US - 1000, 1000);
    assert_eq!((wheel.reminders.len(), slab.remove(earlier).is_some()), (2, true));
}

#[test]
fn reminders_of_one_slot_for_one_millisecond_do_not_pile_up() {
    let (mut wheel, mut slab) = (Wheel::new(1, &[20], 0), Slab::new());
    for number in 0..100_000 {
        // The slot is used for an earlier time, and then for the same one again.
        let handle = add(&mut wheel, &mut slab, DUE_US - 1000 * (number % 2), number);
        slab.remove(handle);
        wheel.sweep_if_needed(&mut slab);
        if number % 2 == 1 {
            wheel.reminders.read(bucket::list(&wheel.levels[1].buckets[19]), &mut [Reminder::default()]);
        }
    }
    assert!(wheel.reminders.len() < 10_000, "{} reminders", wheel.reminders.len());
}

#[test]
fn memory_follows_the_entries_while_most_are_cancelled() {
    let (mut wheel, mut slab) = (Wheel::new(1, &[20], 0), Slab::new());
    let handles: Vec<_> = (0..100_000).map(|number| add(&mut wheel, &mut slab, DUE_US + number, number)).collect();
    let before = wheel.bytes();
    for (number, handle) in handles.iter().enumerate() {
        if number % 50 > 0 {
            slab.remove(*handle);
            wheel.sweep_if_needed(&mut slab);
        }
    }
    assert!(wheel.reminders.len() <= 2 * slab.capacity() + 4096 && wheel.bytes() <= before, "{} bytes", wheel.bytes());
    for handle in handles.iter().step_by(50) {
        slab.remove(*handle);
        wheel.sweep_if_needed(&mut slab);
    }
    assert!(wheel.bytes() < before / 4, "{} of {before} bytes", wheel.bytes());
}
