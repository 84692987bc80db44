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

/// How many keys are remembered that do not wait: their last send was slow, or their message was given up. At most
/// twice as many are remembered, so that the list need not be searched each time.
const CALM: usize = 5_000;

/// A key that can be in doubt, of a share of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The number of a lane.
    Lane(u32, i64),
    /// The number of a message that has no key.
    Message(u32, i64),
}

impl Key {
    pub(crate) fn share(self) -> u32 {
        match self {
            Self::Lane(share, _) | Self::Message(share, _) => share,
        }
    }
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
    /// Since when it waits.
    pub(crate) waits_from_us: u64,
    /// The message for which the lane waits, if that message has left memory.
    pub(crate) parked: Option<i64>,
    /// `parked` goes before messages that are due earlier and came meanwhile. `false` after a restart, if it certainly did
    /// not arrive.
    pub(crate) keeps_place: bool,
    /// It failed in an earlier process while others were accepted, so it is no sign of an outage.
    pub(crate) is_no_sign: bool,
    /// The newest place of the key in [`Doubts::calm`].
    calm: Option<u64>,
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
    /// Keys that became calm, the first one first, each with the number of its place. Only the newest place of a key
    /// counts.
    calm: VecDeque<(Key, u64)>,
    next_calm: u64,
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

    /// Whether this holds for any of them.
    pub(crate) fn any(&self, mut holds: impl FnMut(Key, &Doubt) -> bool) -> bool {
        self.by_key.iter().any(|(key, doubt)| holds(*key, doubt))
    }

    /// The key that has waited longest, of those that may be tried. It looks at all keys: once a second, while the
    /// destination is down and no key without doubt is ready.
    pub(crate) fn longest_waiting(&self, may_be_tried: impl Fn(Key) -> bool) -> Option<Key> {
        let waiting = self.by_key.iter().filter(|(key, doubt)| doubt.waits() && may_be_tried(**key));
        waiting.min_by_key(|(_, doubt)| doubt.waits_from_us).map(|(key, _)| *key)
    }

    pub(crate) fn get_or_add(&mut self, key: Key) -> &mut Doubt {
        self.by_key.entry(key).or_default()
    }

    /// A send of this key was accepted, but took long. A message without a key is not remembered, because it has ended.
    pub(crate) fn slowed(&mut self, key: Key) {
        if matches!(key, Key::Lane(..)) && self.by_key.insert(key, Doubt::default()).is_none() {
            self.calms_down(key);
        }
    }

    /// The key does not wait. It is forgotten after [`CALM`] other keys have become calm, unless it waits again.
    pub(crate) fn calms_down(&mut self, key: Key) {
        let Some(doubt) = self.by_key.get_mut(&key) else { return };
        doubt.calm = Some(self.next_calm);
        self.calm.push_back((key, self.next_calm));
        self.next_calm += 1;
        if self.calm.len() > 2 * CALM {
            let by_key = &self.by_key;
            self.calm.retain(|(key, place)| {
                by_key.get(key).is_some_and(|doubt| doubt.calm == Some(*place) && !doubt.waits())
            });
            let over = self.calm.len().saturating_sub(CALM);
            for (key, _) in self.calm.drain(..over) {
                self.by_key.remove(&key);
            }
        }
    }

    pub(crate) fn take_alarms(&mut self) -> impl Iterator<Item = Handle> {
        self.by_key.values_mut().filter_map(|doubt| doubt.alarm.take())
    }

    /// Ends the doubt about this key.
    pub(crate) fn forget(&mut self, key: Key) -> Option<Doubt> {
        self.by_key.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_calm_again_and_again_does_not_push_out_others__d8() {
        let mut doubts = Doubts::default();
        for _ in 0..5 * CALM {
            doubts.slowed(Key::Lane(0, 1));
            if doubts.len() == 1 {
                doubts.slowed(Key::Lane(0, 2));
            }
            doubts.forget(Key::Lane(0, 1));
        }
        assert!(doubts.has(Key::Lane(0, 2)));
        assert!(doubts.calm.len() <= 2 * CALM);
    }

    #[test]
    fn the_keys_that_became_calm_first_are_forgotten_first__d8() {
        let mut doubts = Doubts::default();
        for number in 0..=2 * CALM as i64 {
            doubts.slowed(Key::Lane(0, number));
        }
        assert_eq!(doubts.len(), CALM);
        assert!(!doubts.has(Key::Lane(0, 0)) && doubts.has(Key::Lane(0, 2 * CALM as i64)));
    }
}
