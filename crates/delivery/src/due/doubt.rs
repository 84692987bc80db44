//! Keys in doubt: the last send of such a key was not accepted, or was slow (rule D6).
//!
//! - If a send is not accepted, its key waits, and all messages of the key wait with it. A message without a key counts
//!   as its own key.
//! - The wait grows with each send that is not accepted. An accepted send ends the doubt.
//! - A dead letter ends the wait, but not the doubt: the next message of the key is tried at once, in a spare place.
//! - The doubt remembers when the time without success began. If sends end without an answer about the message, this
//!   time decides when the message is given up. The number of attempts does not.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use tickwheel::Handle;

/// How many keys are remembered that do not wait: their last send was slow, or their message was given up.
const MOST_CALM: usize = 10_000;

/// A key that can be in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The number of a lane.
    Lane(i64),
    /// The number of a message that has no key.
    Message(i64),
}

/// The facts about a key in doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Sends in a row that were not accepted, since the last dead letter or expired message. 0 also if the key was only
    /// slow.
    pub(crate) fails: u32,
    /// When the first send of the series without success began, on the timer's clock.
    pub(crate) since_us: Option<u64>,
    /// How many messages the destination had accepted when the last attempt that *failed* ended.
    pub(crate) accepted_before: Option<u64>,
    /// The key waits until this alarm.
    pub(crate) alarm: Option<Handle>,
    /// The time of the alarm, on the timer's clock.
    pub(crate) next_us: u64,
    /// Why the last send was not accepted.
    pub(crate) reason: Box<str>,
}

impl Doubt {
    pub(crate) fn waits(&self) -> bool {
        self.alarm.is_some()
    }
}

/// All keys in doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    by_key: FxHashMap<Key, Doubt>,
    /// Keys that do not wait, the first one first. A key may have failed again since.
    calm: VecDeque<Key>,
}

impl Doubts {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        !self.by_key.is_empty() && self.by_key.contains_key(&key)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Doubt> {
        self.by_key.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Doubt> {
        self.by_key.get_mut(&key)
    }

    pub(crate) fn get_or_add(&mut self, key: Key) -> &mut Doubt {
        self.by_key.entry(key).or_default()
    }

    /// A send of this key was accepted, but took long. A message without a key is not remembered, because it has ended.
    pub(crate) fn slowed(&mut self, key: Key) {
        if matches!(key, Key::Lane(_)) && self.by_key.insert(key, Doubt::default()).is_none() {
            self.calms_down(key);
        }
    }

    /// The key does not wait. It is forgotten after [`MOST_CALM`] other keys have become calm, unless it waits again.
    pub(crate) fn calms_down(&mut self, key: Key) {
        self.calm.push_back(key);
        if self.calm.len() > MOST_CALM
            && let Some(first) = self.calm.pop_front()
            && self.by_key.get(&first).is_some_and(|doubt| !doubt.waits())
        {
            self.by_key.remove(&first);
        }
    }

    /// Ends the doubt about this key.
    pub(crate) fn forget(&mut self, key: Key) -> Option<Doubt> {
        self.by_key.remove(&key)
    }
}
