use std::collections::BTreeMap;

use super::*;
use crate::wheel::Handle;

fn key(due_us: u64, number: u64) -> Key {
    Key { due_us, number, handle: Handle { slot: number as u32, generation: 0 } }
}

/// The entries that are alive, by their keys, and where each stands.
#[derive(Default)]
struct Entries(BTreeMap<Key, u32>);

impl Residents<Key> for Entries {
    fn stands_at(&self, key: Key, position: u32) -> bool {
        self.0.get(&key) == Some(&position)
    }

    fn stand(&mut self, key: Key, position: u32) {
        self.0.insert(key, position);
    }
}

#[derive(Default)]
struct Bench {
    front: Front,
    entries: Entries,
}

impl Bench {
    fn push(&mut self, key: Key) {
        self.front.push(key, &mut self.entries);
    }

    fn extend(&mut self, mut keys: Vec<Key>) {
        if self.front.is_spread() {
            return self.front.spread(&keys, &mut self.entries);
        }
        keys.sort_unstable();
        self.front.extend(&keys, &mut self.entries);
    }

    fn cancel(&mut self, key: Key) {
        let position = self.entries.0.remove(&key).unwrap();
        self.front.cancelled(position, |key| self.entries.0.contains_key(key));
    }

    /// Releases the earliest keys, at most so many; they are the earliest that are alive.
    fn release(&mut self, limit: usize) -> usize {
        let mut released = Vec::new();
        self.front.pop_while(
            limit,
            |_| true,
            |key| {
                let is_alive = self.entries.0.contains_key(key);
                released.extend(is_alive.then_some(*key));
                is_alive
            },
        );
        for key in &released {
            assert_eq!(self.entries.0.pop_first().map(|(key, _)| key), Some(*key));
        }
        assert_eq!(self.front.len(), self.entries.0.len());
        released.len()
    }
}

#[test]
fn keys_come_out_by_instant_then_by_add_number__t6() {
    let mut bench = Bench::default();
    for key in [key(3, 1), key(5, 2), key(4, 3), key(5, 0), key(9, 4), key(4, 5)] {
        bench.push(key);
    }
    assert_eq!(bench.release(9), 6);
    assert_eq!(bench.front.peek(|_| true), None);
}

#[test]
fn what_may_not_go_stays() {
    let mut bench = Bench::default();
    bench.push(key(3, 1));
    assert_eq!(bench.front.pop_while(9, |key| key.due_us < 3, |_| unreachable!("it may not go")), 0);
    assert_eq!((bench.front.peek(|_| true), bench.front.len()), (Some(key(3, 1)), 1));
}

fn randoms() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1_u64), |seed| {
        Some(seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f))
    })
    .map(|seed| seed >> 33)
}

/// Single keys and steps of a bucket, cancels and releases, in turn mostly more comes than goes and the other way round.
#[test]
fn any_mix_of_keys_cancels_and_releases_comes_out_in_order__t6() {
    let mut bench = Bench::default();
    let (mut number, mut random) = (0, randoms());
    for turn in 0..3000 {
        let mut next = |end| random.next().unwrap() % end;
        let around = turn * 20;
        match next(8) {
            0..3 => bench.push(key(around + next(40), number)),
            3..5 => bench.extend((0..next(300)).map(|offset| key(around + next(500), number + offset)).collect()),
            5 => bench.extend((0..next(300)).map(|offset| key(around + offset, number + offset)).collect()),
            _ => {
                bench.release(next(if turn / 500 % 2 == 0 { 100 } else { 1000 }) as usize);
            }
        }
        number += 300;
        for _ in 0..next(if turn / 300 % 2 == 0 { 20 } else { 200 }) {
            let from = key((around + next(500)).saturating_sub(next(1000)), 0);
            if let Some((&key, _)) = bench.entries.0.range(from..).next() {
                bench.cancel(key);
            }
        }
        if let Some(peeked) = bench.front.peek(|key| bench.entries.0.contains_key(key)) {
            assert_eq!(bench.entries.0.first_key_value().map(|(key, _)| *key), Some(peeked));
        }
    }
    assert!(number > 0 && !bench.entries.0.is_empty());
    bench.release(usize::MAX);
    assert!(bench.entries.0.is_empty() && bench.front.overlapping.is_empty());
}

#[test]
fn the_steps_of_a_large_bucket_are_runs_and_not_stragglers() {
    let mut bench = Bench::default();
    let mut random = randoms();
    for step in 0..100 {
        bench.extend((0..1000).map(|offset| key(random.next().unwrap() % 1000, step * 1000 + offset)).collect());
    }
    assert!(bench.front.stragglers.len() < 100 && bench.front.overlapping.len() > 90);
    assert_eq!(bench.release(usize::MAX), 100_000);
    assert!(bench.front.bytes() < 100_000, "{}", bench.front.bytes());
}

#[test]
fn the_parts_of_a_dense_bucket_become_one_run__t6() {
    let mut bench = Bench::default();
    let mut random = randoms();
    bench.front.expect(100_000, 5000, 1000);
    for step in 0..100 {
        let due_us = |random: u64| 5000 + random % 1000;
        bench.extend((0..1000).map(|n| key(due_us(random.next().unwrap()), step * 1000 + n)).collect());
    }
    let cancelled: Vec<_> = bench.entries.0.keys().copied().filter(|key| key.number % 7 == 0).collect();
    for key in cancelled {
        bench.cancel(key);
    }
    assert_eq!(bench.front.sorted().len(), 100_000, "a dead key stays until its page is dead");
    while bench.front.is_spread() {
        let read = bench.front.gather(300);
        assert!(read <= 300 + 1024, "{read} in one step");
    }
    assert!(bench.front.is_one_run());
    assert_eq!(bench.release(usize::MAX), bench.front.len() + 85_714);
}

#[test]
fn a_part_of_many_pages_is_merged_and_one_of_dead_keys_goes__t6() {
    let mut bench = Bench::default();
    bench.front.expect(7000, 0, 1000);
    bench.extend((0..5000).rev().map(|number| key(number % 10, number)).collect());
    bench.extend((5000..5100).map(|number| key(990, number)).collect());
    (5000..5100).for_each(|number| bench.cancel(key(990, number)));
    while bench.front.is_spread() {
        bench.front.gather(1);
    }
    assert_eq!(bench.release(usize::MAX), 5000);
    assert!(bench.front.bytes() < 100_000, "{}", bench.front.bytes());
}

#[test]
fn cancelled_keys_give_their_memory_back() {
    let mut bench = Bench::default();
    (0..100_000).for_each(|number| bench.push(key(number, number)));
    let full = bench.front.bytes();
    (0..99_000).for_each(|number| bench.cancel(key(number, number)));
    assert_eq!(bench.front.len(), 1000);
    assert!(bench.front.bytes() < full / 20, "{} of {full}", bench.front.bytes());
}

#[test]
fn memory_stays_where_it_is_however_many_come_and_go_while_one_waits() {
    let mut bench = Bench::default();
    bench.push(key(1, 0));
    for number in 1..3_000_000 {
        bench.push(key(number + 1, number));
        bench.cancel(key(number + 1, number));
    }
    assert!(bench.front.bytes() < 100_000, "{}", bench.front.bytes());
    assert_eq!(bench.release(9), 1);
}

#[test]
fn cancelled_stragglers_and_runs_go_too() {
    let mut bench = Bench::default();
    (0..1000).rev().for_each(|number| bench.push(key(number, number)));
    (10..1000).rev().for_each(|number| bench.cancel(key(number, number)));
    assert_eq!(bench.front.len(), 10);
    assert!(bench.front.sorted().len() < 200);
    for step in 1..100 {
        bench.extend((0..1000).map(|number| key(number, step * 1000 + number)).collect());
    }
    bench.entries.0.keys().copied().collect::<Vec<_>>().into_iter().for_each(|key| bench.cancel(key));
    assert!(bench.front.sorted().is_empty() && bench.front.overlapping.is_empty());
}
