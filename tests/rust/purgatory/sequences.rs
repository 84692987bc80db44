//! Random sequences of calls, compared with the simplest model: one list that is searched from end to end.

use std::sync::Arc;

use super::{Op, Purgatory, assert_empty, is_same, purgatory, wait};
use crate::support::Random;

const KEYS: u64 = 6;

/// The waiting operations in order of arrival, each with its keys.
struct Model {
    ops: Vec<Op>,
    ready: Vec<bool>,
    complete: Vec<bool>,
    waiting: Vec<(usize, Vec<u32>)>,
    completed: u64,
    cancelled: u64,
}

impl Model {
    fn leave(&mut self, id: usize) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(other, _)| *other != id);
        self.waiting.len() < before
    }

    fn complete(&mut self, id: usize) -> bool {
        let is_first = !std::mem::replace(&mut self.complete[id], true);
        if self.leave(id) {
            self.completed += 1;
        }
        is_first
    }

    fn under(&self, key: u32) -> Vec<usize> {
        self.waiting.iter().filter(|(_, keys)| keys.contains(&key)).map(|(id, _)| *id).collect()
    }

    fn agree(&self, purgatory: &Purgatory) {
        let stats = purgatory.stats();
        let watched = self.waiting.iter().map(|(_, keys)| keys.len()).sum();
        let keys = (0..KEYS as u32).filter(|key| !self.under(*key).is_empty()).count();
        assert_eq!((stats.watched, stats.keys), (watched, keys));
        let waiting = self.waiting.len();
        assert_eq!((stats.waiting, stats.delayed, purgatory.num_delayed()), (waiting as u64, waiting, waiting));
        assert_eq!((stats.completed, stats.cancelled, stats.expired), (self.completed, self.cancelled, 0));
        for (id, op) in self.ops.iter().enumerate() {
            assert_eq!((op.is_completed(), op.ended().0), (self.complete[id], u32::from(self.complete[id])), "{id}");
        }
    }

    fn ids(&self, ops: &[Op]) -> Vec<usize> {
        let id = |op: &Op| self.ops.iter().position(|other| is_same(other, op)).unwrap();
        ops.iter().map(id).collect()
    }
}

fn some_keys(random: &mut Random) -> Vec<u32> {
    let mut keys: Vec<u32> = Vec::new();
    for _ in 0..random.between(1, 4) {
        let key = random.below(KEYS) as u32;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn sequence(seed: u64, steps: usize) {
    let (timer, purgatory) = purgatory();
    let mut random = Random::new(seed);
    let mut model = Model { ops: vec![], ready: vec![], complete: vec![], waiting: vec![], completed: 0, cancelled: 0 };
    for _ in 0..steps {
        if model.ops.is_empty() || random.below(4) == 0 {
            model.ops.push(wait());
            model.ready.push(false);
            model.complete.push(false);
        }
        let id = random.below(model.ops.len() as u64) as usize;
        let op = model.ops[id].clone();
        let key = random.below(KEYS) as u32;
        match random.below(8) {
            0..=2 => {
                let keys = some_keys(&mut random);
                let twice = random.below(3) == 0;
                let given: Vec<u32> = if twice { [&keys[..], &keys[..1]].concat() } else { keys.clone() };
                let watched = purgatory.try_complete_else_watch(&op, given);
                if model.complete[id] {
                    assert_eq!(watched, Ok(false));
                } else if model.waiting.iter().any(|(other, _)| *other == id) {
                    assert!(watched.is_err());
                } else if model.ready[id] {
                    assert_eq!(watched, Ok(true));
                    model.complete[id] = true;
                    model.completed += 1;
                } else {
                    assert_eq!(watched, Ok(false));
                    model.waiting.push((id, keys));
                }
            }
            3 => {
                op.ready();
                model.ready[id] = true;
            }
            4 => {
                let ready: Vec<_> = model.under(key).into_iter().filter(|id| model.ready[*id]).collect();
                assert_eq!(purgatory.check_and_complete(&key), ready.len());
                for id in ready {
                    assert!(model.complete(id));
                }
            }
            5 => assert_eq!(op.force_complete(), model.complete(id)),
            6 => {
                let waited = model.leave(id);
                model.cancelled += u64::from(waited);
                assert_eq!(op.cancel(), waited);
            }
            _ => {
                let cancelled = purgatory.cancel_for_key(&key);
                assert_eq!(model.ids(&cancelled), model.under(key), "in order of arrival");
                for id in model.under(key) {
                    model.leave(id);
                    model.cancelled += 1;
                }
            }
        }
        model.agree(&purgatory);
        assert_eq!(timer.len(), model.waiting.len());
    }
    let left: Vec<usize> = model.waiting.iter().map(|(id, _)| *id).collect();
    assert_eq!(model.ids(&purgatory.shutdown()), left);
    assert_empty(&timer, &purgatory);
    drop(Arc::try_unwrap(purgatory).unwrap());
}

#[test]
fn random_sequences_agree_with_a_slow_model__p1_p5() {
    for seed in 0..300 {
        sequence(seed, 150);
    }
}
