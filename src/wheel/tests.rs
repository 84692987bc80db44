use super::*;

#[test]
fn reschedules_within_one_bucket_leave_the_counts_of_its_pages_right() {
    let (mut wheel, mut slab) = (Wheel::new(1, &[20], 0), Slab::new());
    let due_us = 390_000; // the last bucket of level 2
    let mut handles = Vec::new();
    for number in 0..3000 {
        let handle = slab.insert(due_us, number, number, 0);
        wheel.place(&mut slab, handle.slot(), due_us);
        handles.push(handle);
    }
    let remove_from_bucket = |wheel: &mut Wheel, place| {
        let Place::Bucket(position) = place else { panic!("it is in a bucket, not in {place:?}") };
        wheel.remove(position);
    };
    // This fills some thirty pages. Most of their entries have moved on, and the pages are merged.
    for number in 3000..33_000_u64 {
        let handle = &mut handles[(number * 7 % 3000) as usize];
        let (moved, place) = slab.reschedule(*handle, due_us, number).unwrap();
        remove_from_bucket(&mut wheel, place);
        wheel.place(&mut slab, moved.slot(), due_us);
        *handle = moved;
    }
    for handle in handles {
        remove_from_bucket(&mut wheel, slab.remove(handle).unwrap().place);
    }
    assert!(wheel.lists.bytes() < 10_000, "{} bytes of an empty wheel", wheel.lists.bytes());
}
