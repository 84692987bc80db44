//! The standard library's ordered map, by due instant and number.

use std::collections::BTreeMap;

use crate::side::Side;

#[derive(Default)]
pub struct Map {
    pending: BTreeMap<(u64, u64), u64>,
    number: u64,
    now_ms: u64,
}

impl Side for Map {
    type Key = (u64, u64);

    fn new() -> Self {
        Self::default()
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key {
        self.number += 1;
        let key = (self.now_ms + delay_ms, self.number);
        self.pending.insert(key, payload);
        key
    }

    fn cancel(&mut self, key: Self::Key) -> bool {
        self.pending.remove(&key).is_some()
    }

    fn reset(&mut self, key: Self::Key, delay_ms: u64) -> Self::Key {
        let payload = self.pending.remove(&key).expect("pending");
        self.insert(delay_ms, payload)
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.now_ms += 1;
        while let Some(first) = self.pending.first_entry() {
            if first.key().0 > self.now_ms {
                return;
            }
            fired.push(first.remove());
        }
    }

    fn len(&self) -> usize {
        self.pending.len()
    }
}
