use super::*;

fn key(due_us: u64, number: u64) -> ReleaseKey {
    ReleaseKey { due_us, number, slot: number as u32 }
}

/// What is left when nearly nothing is live: the free pages that keep their memory, and a few thousand bytes.
const MOST_BYTES: usize = KEPT_PAGES * PAGE_SIZE * size_of::<ReleaseKey>() + 20_000;

#[derive(Default)]
struct Fixture {
    front: Front,
    live: BTreeSet<ReleaseKey>,
}

impl Fixture {
    fn push(&mut self, key: ReleaseKey) {
        self.live.insert(key);
        self.front.push(key);
    }

    fn extend(&mut self, mut keys: Vec<ReleaseKey>) {
        self.live.extend(&keys);
        if self.front.has_partitions() {
            return self.front.extend_unsorted(&keys);
        }
        keys.sort_unstable();
        self.front.extend(&keys);
    }

    fn cancel(&mut self, key: ReleaseKey) {
        assert!(self.live.remove(&key));
        self.front.remove(&key, |key| self.live.contains(key));
    }

    /// Releases at most `limit` keys, and checks that they are the earliest live ones.
    fn release(&mut self, limit: usize) -> usize {
        let mut released = Vec::new();
        self.front.pop_while(
            limit,
            |_| true,
            |key| {
                let is_live = self.live.contains(key);
                released.extend(is_live.then_some(*key));
                is_live
            },
        );
        for key in &released {
            assert_eq!(self.live.pop_first(), Some(*key));
        }
        assert_eq!(self.front.len(), self.live.len());
        released.len()
    }
}

#[test]
fn keys_come_out_by_instant_then_by_add_number__t6() {
    let mut fixture = Fixture::default();
    for key in [key(3, 1), key(5, 2), key(4, 3), key(5, 0), key(9, 4), key(4, 5)] {
        fixture.push(key);
    }
    assert_eq!(fixture.release(9), 6);
    assert_eq!(fixture.front.first_live(|_| true), None);
}

#[test]
fn a_key_that_is_not_ready_stays() {
    let mut fixture = Fixture::default();
    fixture.push(key(3, 1));
    assert_eq!(fixture.front.pop_while(9, |key| key.due_us < 3, |_| unreachable!("it is not ready")), 0);
    assert_eq!((fixture.front.first_live(|_| true), fixture.front.len()), (Some(key(3, 1)), 1));
}

fn randoms() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1_u64), |seed| {
        Some(seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f))
    })
    .map(|seed| seed >> 33)
}

/// Single keys, steps of a bucket, cancels and releases. The front grows for some turns, then it shrinks for some.
#[test]
fn any_mix_of_adds_cancels_and_releases_keeps_the_order__t6() {
    let mut fixture = Fixture::default();
    let (mut number, mut random) = (0, randoms());
    for turn in 0..3000 {
        let mut next = |end| random.next().unwrap() % end;
        let around = turn * 20;
        match next(8) {
            0..3 => fixture.push(key(around + next(40), number)),
            3..5 => fixture.extend((0..next(300)).map(|offset| key(around + next(500), number + offset)).collect()),
            5 => fixture.extend((0..next(300)).map(|offset| key(around + offset, number + offset)).collect()),
            _ => {
                fixture.release(next(if turn / 500 % 2 == 0 { 100 } else { 1000 }) as usize);
            }
        }
        number += 300;
        for _ in 0..next(if turn / 300 % 2 == 0 { 20 } else { 200 }) {
            let from = key((around + next(500)).saturating_sub(next(1000)), 0);
            if let Some(&key) = fixture.live.range(from..).next() {
                fixture.cancel(key);
            }
        }
        if let Some(first) = fixture.front.first_live(|key| fixture.live.contains(key)) {
            assert_eq!(fixture.live.first(), Some(&first));
        }
    }
    assert!(number > 0 && !fixture.live.is_empty());
    fixture.release(usize::MAX);
    assert!(fixture.live.is_empty() && fixture.front.overlapping.is_empty());
}

#[test]
fn the_steps_of_a_large_bucket_become_runs_and_not_single_keys_in_the_tree() {
    let mut fixture = Fixture::default();
    let mut random = randoms();
    for step in 0..100 {
        fixture.extend((0..1000).map(|offset| key(random.next().unwrap() % 1000, step * 1000 + offset)).collect());
    }
    assert!(fixture.front.tree.len() < 100 && fixture.front.overlapping.len() > 90);
    assert_eq!(fixture.release(usize::MAX), 100_000);
    assert!(fixture.front.bytes() < MOST_BYTES, "{}", fixture.front.bytes());
}

#[test]
fn the_partitions_of_a_dense_bucket_become_one_run__t6() {
    let mut fixture = Fixture::default();
    let mut random = randoms();
    fixture.front.start_bucket(100_000, 5000, 1000);
    for step in 0..100 {
        let due_us = |random: u64| 5000 + random % 1000;
        fixture.extend((0..1000).map(|n| key(due_us(random.next().unwrap()), step * 1000 + n)).collect());
    }
    let cancelled: Vec<_> = fixture.live.iter().copied().filter(|key| key.number % 7 == 0).collect();
    for key in cancelled {
        fixture.cancel(key);
    }
    assert_eq!(fixture.front.sorted().len(), 100_000, "a cancelled key stays until it is read, or swept");
    while fixture.front.has_partitions() {
        let read = fixture.front.sort_partitions(300);
        assert!(read <= 300 + PAGE_SIZE, "{read} in one step");
    }
    assert!(fixture.front.is_one_run());
    assert_eq!(fixture.release(usize::MAX), fixture.front.len() + 85_714);
}

#[test]
fn a_partition_of_many_pages_is_merged_and_one_of_cancelled_keys_is_freed__t6() {
    let mut fixture = Fixture::default();
    fixture.front.start_bucket(7000, 0, 1000);
    fixture.extend((0..5000).rev().map(|number| key(number % 10, number)).collect());
    fixture.extend((5000..5100).map(|number| key(990, number)).collect());
    (5000..5100).for_each(|number| fixture.cancel(key(990, number)));
    while fixture.front.has_partitions() {
        fixture.front.sort_partitions(1);
    }
    assert_eq!(fixture.release(usize::MAX), 5000);
    assert!(fixture.front.bytes() < MOST_BYTES, "{}", fixture.front.bytes());
}

#[test]
fn cancelled_keys_return_their_memory() {
    let mut fixture = Fixture::default();
    (0..100_000).for_each(|number| fixture.push(key(number, number)));
    let full = fixture.front.bytes();
    (0..99_000).for_each(|number| fixture.cancel(key(number, number)));
    assert_eq!(fixture.front.len(), 1000);
    assert!(fixture.front.bytes() < MOST_BYTES + full / 20, "{} of {full}", fixture.front.bytes());
}

#[test]
fn memory_does_not_grow_while_many_keys_come_and_go_and_one_waits() {
    let mut fixture = Fixture::default();
    fixture.push(key(1, 0));
    for number in 1..3_000_000 {
        fixture.push(key(number + 1, number));
        fixture.cancel(key(number + 1, number));
    }
    assert!(fixture.front.bytes() < MOST_BYTES, "{}", fixture.front.bytes());
    assert_eq!(fixture.release(9), 1);
}

#[test]
fn cancelled_keys_leave_the_tree_and_the_overlapping_runs_too() {
    let mut fixture = Fixture::default();
    (0..1000).rev().for_each(|number| fixture.push(key(number, number)));
    (10..1000).rev().for_each(|number| fixture.cancel(key(number, number)));
    assert_eq!(fixture.front.len(), 10);
    assert!(fixture.front.sorted().len() < 200);
    for step in 1..100 {
        fixture.extend((0..1000).map(|number| key(number, step * 1000 + number)).collect());
    }
    fixture.live.iter().copied().collect::<Vec<_>>().into_iter().for_each(|key| fixture.cancel(key));
    assert!(fixture.front.sorted().is_empty() && fixture.front.overlapping.is_empty());
    assert!(fixture.front.lists.used_pages() <= 1, "{} pages", fixture.front.lists.used_pages());
}
