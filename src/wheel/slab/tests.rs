use super::*;

fn add<T>(slab: &mut Slab<T>, task: T) -> Handle {
    slab.insert((1, 1), 0, task, 0).0
}

fn take<T>(slab: &mut Slab<T>, handle: Handle) -> Option<T> {
    Some(slab.remove(handle)?.task)
}

#[test]
fn an_entry_takes_thirty_two_bytes() {
    assert_eq!(size_of::<Entry<Box<u8>>>(), 32);
}

#[test]
fn a_freed_slot_comes_back_with_the_next_generation() {
    let mut slab = Slab::new();
    let first = add(&mut slab, 'a');
    assert_eq!(take(&mut slab, first), Some('a'));
    assert_eq!(take(&mut slab, first), None);
    let second = add(&mut slab, 'b');
    assert_eq!((second.slot(), second.generation()), (0, 1));
    assert!(slab.get(first).is_none());
    assert!(slab.get(second).is_some());
}

#[test]
fn a_slab_that_shrank_issues_no_old_generation() {
    let mut slab = Slab::new();
    let old: Vec<_> = (0..4 * PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    for handle in &old {
        slab.remove(*handle).unwrap();
    }
    assert_eq!(slab.len(), 0);
    let kept: usize = slab.pages.iter().map(|page| page.entries.capacity()).sum();
    assert_eq!(kept, PAGE_SIZE, "all pages but the spare one return their memory");
    let new: Vec<_> = (0..4 * PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    assert!(old.iter().all(|handle| slab.get(*handle).is_none()));
    assert!(new.iter().all(|handle| slab.get(*handle).is_some()));
}

#[test]
fn a_slot_without_generations_left_is_not_used_again() {
    let mut slab = Slab::new();
    let first = add(&mut slab, 'a');
    let last = slab.set_generation(first, u32::MAX - 1);
    assert_eq!(take(&mut slab, last), Some('a'));
    assert_eq!(add(&mut slab, 'b').slot(), 1);
}

#[test]
fn a_page_that_has_lost_its_memory_does_not_start_below_its_generations() {
    let mut slab = Slab::new();
    let handles: Vec<_> = (0..3 * PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    let old = slab.set_generation(handles[PAGE_SIZE + 7], u32::MAX - 1);
    for handle in handles {
        slab.remove(handle);
    }
    slab.remove(old);
    let again: Vec<_> = (0..3 * PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    assert!(again.iter().all(|handle| handle.slot() as usize / PAGE_SIZE != 1));
}

fn capacity<T>(slab: &Slab<T>) -> usize {
    slab.pages.iter().map(|page| page.entries.capacity()).sum()
}

#[test]
fn after_a_burst_a_task_that_comes_and_goes_costs_no_memory() {
    let mut slab = Slab::new();
    let burst: Vec<_> = (0..4 * PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    for handle in burst {
        slab.remove(handle).unwrap();
    }
    for i in 0..3 {
        let handle = add(&mut slab, i);
        assert_eq!(capacity(&slab), PAGE_SIZE);
        slab.remove(handle).unwrap();
        assert_eq!(capacity(&slab), PAGE_SIZE);
    }
}

#[test]
fn a_page_without_generations_left_keeps_no_memory() {
    let mut slab = Slab::new();
    let handles: Vec<_> = (0..PAGE_SIZE).map(|i| add(&mut slab, i)).collect();
    for handle in handles {
        let last = slab.set_generation(handle, u32::MAX - 1);
        slab.remove(last).unwrap();
    }
    assert_eq!(capacity(&slab), 0);
    let handle = add(&mut slab, 0);
    assert_eq!(handle.slot() as usize / PAGE_SIZE, 1);
    slab.remove(handle).unwrap();
    assert_eq!((capacity(&slab), slab.spare_page), (PAGE_SIZE, Some(1)));
}

#[test]
fn a_handle_survives_as_a_number() {
    let handle = Handle::new(7, 9);
    assert_eq!(Handle::from_bits(handle.to_bits()), handle);
}
