use super::*;

#[test]
fn moves_within_one_bucket_leave_its_pages_counting_right() {
    let (mut wheel, mut slab) = (Wheel::new(1, &[20], 0), Slab::new());
    let due_us = 390_000; // the last bucket of level 2
    let mut handles = Vec::new();
    for number in 0..3000 {
        let handle = slab.insert(due_us, number, number, 0);
        wheel.place(&mut slab, handle.slot, due_us);
        handles.push(handle);
    }
    let leave_bucket = |wheel: &mut Wheel, place| {
        let Place::Bucket(position) = place else { panic!("it is in a bucket, not in {place:?}") };
        wheel.remove(position);
    };
    // Some thirty pages are filled by this, most of what they hold has moved on, and they are put together again.
    for number in 3000..33_000_u64 {
        let handle = &mut handles[(number * 7 % 3000) as usize];
        let (moved, place) = slab.renew(*handle, due_us, number).unwrap();
        leave_bucket(&mut wheel, place);
        wheel.place(&mut slab, moved.slot, due_us);
        *handle = moved;
    }
    for handle in handles {
        leave_bucket(&mut wheel, slab.remove(handle).unwrap().place);
    }
    assert!(wheel.lists.bytes() < 10_000, "{} bytes of an empty wheel", wheel.lists.bytes());
}
