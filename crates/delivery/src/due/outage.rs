//! Whether the destination is down (rule D6).
//!
//! - The destination is down when two things are true. No send was accepted for one second, and sends of at least five
//!   keys ended without an answer about the message. A key counts only if it began to fail after the last accepted
//!   send. A customer that has been dead for a day says nothing about the destination.
//! - While it is down, rounds of tries find out whether it is back. The first round comes at once, the next after 0.25
//!   s, and each wait is twice as long, up to 10 s. A round tries up to four keys that have not failed. If all keys
//!   have failed, it tries one of them, even before the end of its wait. A round does not wait for the answers of the
//!   previous round. Beside the rounds, one key that has not failed is tried each second. A key that was accepted lately
//!   is tried before others: if only bad customers have messages, the first healthy one shows that it is not an outage.
//! - The outage ends with an accepted send that began while the destination was down. A refusal does not end it.

use std::collections::VecDeque;

use fastrand::Rng;
use rustc_hash::FxHashSet;

use super::doubt::Key;

/// How many failing keys show that the destination is down.
const DOWN_AFTER_KEYS: usize = 5;
/// How long no send was accepted before the destination counts as down.
const QUIET_US: u64 = 1_000_000;
const FIRST_ROUND_US: u64 = 250_000;
const LONGEST_ROUND_US: u64 = 10_000_000;
/// Tries in one round.
const TRIES: u32 = 4;
/// The most tries of new keys that are kept, beside the rounds. A new try comes each second.
const MOST_NEW_TRIES: u32 = 4;
/// How many keys that were accepted last are known, at least. Twice as many are known at most.
const ACCEPTED_KEYS: usize = 4_096;
/// How many past outages are remembered. If there are more, the first two are joined into one.
const MOST_PAST: usize = 256;

/// Whether the destination is up, or since when and why it is down.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    down: Option<Down>,
    /// Keys that began to fail after the last accepted send.
    newly: FxHashSet<Key>,
    /// Since when no send was accepted, as far as the keys in `newly` show.
    quiet_since_us: u64,
    /// Why the last send of the keys in `newly` was not accepted.
    reason: String,
    accepted_us: Option<u64>,
    accepted: u64,
    /// Lanes whose messages were accepted last, and those before them.
    accepted_lanes: [FxHashSet<i64>; 2],
    /// The start and end of each past outage.
    past: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Down {
    since_us: u64,
    reason: String,
    rounds: u32,
    /// The tries that are left in this round.
    tries: u32,
    /// No try of this round was used.
    is_round_unused: bool,
    new_tries: u32,
}

/// The key that may be tried while the destination is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// A key that has not failed, at random.
    OfRound,
    /// A key that has failed, because there is no other.
    Failed,
    /// The newest key that has not failed.
    New,
}

/// Limits the wait that a destination asks for, to 50 ms to an hour. A wrong `Retry-After` must neither hold messages for
/// ever nor keep the engine busy with one message.
pub(crate) fn bounded(retry_after_ms: u64) -> u64 {
    retry_after_ms.clamp(50, 3_600_000)
}

impl Outage {
    pub(crate) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Since when the destination is down, on the timer's clock, and why.
    pub(crate) fn down(&self) -> Option<(u64, &str)> {
        self.down.as_ref().map(|down| (down.since_us, down.reason.as_str()))
    }

    /// How many messages were accepted. Sends from before an outage do not count while it lasts.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.accepted
    }

    /// The same, if nothing was accepted after this time.
    pub(crate) fn accepted_count_if_none_since(&self, us: u64) -> Option<u64> {
        self.accepted_us.is_none_or(|accepted_us| accepted_us <= us).then_some(self.accepted)
    }

    /// A message of this key was accepted.
    pub(crate) fn knows(&mut self, key: Key) {
        let Key::Lane(number) = key else { return };
        if self.accepted_lanes[0].len() >= ACCEPTED_KEYS {
            self.accepted_lanes.swap(0, 1);
            self.accepted_lanes[0].clear();
        }
        self.accepted_lanes[0].insert(number);
    }

    /// Whether a message of this lane was accepted lately.
    pub(crate) fn is_known(&self, number: i64) -> bool {
        self.accepted_lanes.iter().any(|lanes| lanes.contains(&number))
    }

    /// A send was accepted. It began at `began_us`. If this ends an outage, returns when the outage began.
    pub(crate) fn accepted(&mut self, began_us: u64, now_us: u64) -> Option<u64> {
        let since_us = match &self.down {
            Some(down) if began_us < down.since_us => return None,
            Some(down) => Some(down.since_us),
            None => None,
        };
        self.accepted += 1;
        self.accepted_us = Some(now_us);
        if let Some(since_us) = since_us {
            self.down = None;
            self.remember(since_us, now_us);
        }
        since_us
    }

    /// The keys that failed together since the last accepted send, if they were a sign of an outage. They are tried at
    /// once, but only one time.
    pub(crate) fn take_failed_together(&mut self, was_down: bool) -> Option<FxHashSet<Key>> {
        if self.newly.is_empty() {
            return None;
        }
        let newly = std::mem::take(&mut self.newly);
        was_down.then_some(newly)
    }

    fn remember(&mut self, from_us: u64, until_us: u64) {
        self.past.push_back((from_us, until_us));
        if self.past.len() > MOST_PAST {
            // The time between the first two counts as down. A message may be given up later because of it, but never
            // earlier.
            let (from_us, _) = self.past.pop_front().expect("there are some");
            self.past[0].0 = from_us;
        }
    }

    /// A send of this key ended without an answer about the message. It began at `began_us`. The key has had no success
    /// since `since_us`, when the first send in the series began. Call [`Outage::goes_down`] after it.
    pub(crate) fn failed(&mut self, key: Key, since_us: u64, began_us: u64, reason: &str) {
        if self.accepted_us.is_some_and(|accepted_us| since_us < accepted_us) {
            return; // the key failed while others were accepted
        }
        if self.newly.is_empty() {
            self.quiet_since_us = began_us.max(self.accepted_us.unwrap_or(0));
        }
        self.newly.insert(key);
        reason.clone_into(&mut self.reason);
    }

    /// When the destination is down if no send is accepted until then. `None` if too few keys have failed, or if it is
    /// down already.
    pub(crate) fn down_at_us(&self) -> Option<u64> {
        let may_be_down = self.down.is_none() && self.newly.len() >= DOWN_AFTER_KEYS;
        may_be_down.then(|| self.quiet_since_us.saturating_add(QUIET_US))
    }

    /// Whether the destination is down from now on, and was not before.
    pub(crate) fn goes_down(&mut self, now_us: u64) -> bool {
        if self.down_at_us().is_none_or(|at_us| now_us < at_us) {
            return false;
        }
        self.down = Some(Down {
            since_us: now_us,
            reason: self.reason.clone(),
            rounds: 0,
            tries: TRIES,
            is_round_unused: true,
            new_tries: 0,
        });
        true
    }

    /// The key has no message to send any more, so it is no sign of an outage.
    pub(crate) fn forget(&mut self, key: Key) {
        if !self.newly.is_empty() {
            self.newly.remove(&key);
        }
    }

    /// A key that failed since the last accepted send and for which `may` holds, at random.
    pub(crate) fn any_failed(&self, random: &mut Rng, may: impl Fn(Key) -> bool) -> Option<Key> {
        let first = random.usize(0..self.newly.len().max(1));
        let keys = self.newly.iter().copied();
        keys.clone().skip(first).chain(keys.take(first)).find(|key| may(*key))
    }

    /// Begins a new round of the outage that began at `since_us`. Returns the time until the next round.
    pub(crate) fn begin_round(&mut self, since_us: u64) -> Option<u64> {
        let down = self.down.as_mut().filter(|down| down.since_us == since_us)?;
        (down.tries, down.is_round_unused) = (TRIES, true);
        let after_us = FIRST_ROUND_US.saturating_mul(1 << down.rounds.min(20)).min(LONGEST_ROUND_US);
        down.rounds += 1;
        Some(after_us)
    }

    /// A second of the outage has passed, and one more new key may be tried. Returns whether the outage goes on.
    pub(crate) fn add_new_try(&mut self, since_us: u64) -> bool {
        let Some(down) = self.down.as_mut().filter(|down| down.since_us == since_us) else { return false };
        down.new_tries = (down.new_tries + 1).min(MOST_NEW_TRIES);
        true
    }

    /// The key that may be tried now, if the destination is down.
    pub(crate) fn next_try(&self, has_fresh: bool, has_failed: bool) -> Option<Try> {
        let down = self.down.as_ref()?;
        match (has_fresh, has_failed) {
            (true, _) if down.tries > 0 => Some(Try::OfRound),
            (true, _) if down.new_tries > 0 => Some(Try::New),
            (false, true) if down.tries > 0 && down.is_round_unused => Some(Try::Failed),
            _ => None,
        }
    }

    pub(crate) fn use_try(&mut self, kind: Try) {
        let Some(down) = &mut self.down else { return };
        match kind {
            Try::OfRound => down.tries -= 1,
            Try::Failed => down.tries = 0,
            Try::New => down.new_tries -= 1,
        }
        down.is_round_unused &= kind == Try::New;
    }

    /// How long the destination was up between these two times, as far as past outages are remembered.
    pub(crate) fn up_us(&self, from_us: u64, until_us: u64) -> u64 {
        let now = self.down.as_ref().map(|down| (down.since_us, u64::MAX));
        let mut up_us = until_us.saturating_sub(from_us);
        for (from, until) in self.past.iter().copied().chain(now) {
            up_us = up_us.saturating_sub(until.min(until_us).saturating_sub(from.max(from_us)));
        }
        up_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// Lets these keys fail for the first time.
    fn fail(outage: &mut Outage, keys: std::ops::Range<i64>, now_us: u64) -> bool {
        let mut is_down = false;
        for key in keys {
            outage.failed(Key::Message(key), now_us, now_us, "gone");
            is_down |= outage.goes_down(now_us);
        }
        is_down
    }

    fn down() -> Outage {
        let mut outage = Outage::default();
        fail(&mut outage, 0..5, 0);
        assert!(fail(&mut outage, 5..6, S));
        outage
    }

    #[test]
    fn five_keys_and_a_second_without_an_accepted_send_make_it_down__d6() {
        let mut outage = Outage::default();
        assert!(!fail(&mut outage, 0..4, 0) && !fail(&mut outage, 0..4, 9 * S), "four keys");
        assert!(fail(&mut outage, 4..5, 9 * S));
        assert_eq!(outage.down(), Some((9 * S, "gone")));
        let mut outage = Outage::default();
        assert!(!fail(&mut outage, 0..100, 0), "no second has passed");
        assert_eq!(outage.down_at_us(), Some(S));
        assert!(!outage.goes_down(S - 1) && outage.goes_down(S) && !outage.goes_down(S));
        assert_eq!(outage.down_at_us(), None);
    }

    #[test]
    fn an_accepted_send_begins_the_count_anew_and_keys_that_failed_before_are_no_sign__d6() {
        let mut outage = Outage::default();
        fail(&mut outage, 0..4, 0);
        outage.accepted(0, S);
        assert_eq!(outage.take_failed_together(false), None, "four are no sign");
        for key in 0..50 {
            outage.failed(Key::Message(key), 0, 5 * S, "gone");
            assert_eq!(outage.down_at_us(), None, "it has been failing for long");
        }
        fail(&mut outage, 50..54, 9 * S);
        assert!(!outage.is_down());
        assert!(!fail(&mut outage, 54..55, 9 * S), "others were accepted less than a second before those");
        assert!(fail(&mut outage, 54..55, 10 * S));
    }

    #[test]
    fn only_an_accepted_send_that_began_since_then_ends_it__d6() {
        let mut outage = down();
        assert_eq!(outage.accepted(S - 1, 2 * S), None);
        assert!(outage.is_down());
        assert_eq!(outage.accepted(S, 3 * S), Some(S));
        assert!(!outage.is_down());
        assert_eq!(outage.take_failed_together(true).map(|keys| keys.len()), Some(6));
        assert_eq!(outage.take_failed_together(true), None);
    }

    #[test]
    fn a_round_has_four_tries_of_keys_that_have_not_failed_or_one_of_one_that_has__d6() {
        let mut outage = down();
        assert_eq!(outage.next_try(false, false), None);
        for _ in 0..4 {
            assert_eq!(outage.next_try(true, true), Some(Try::OfRound));
            outage.use_try(Try::OfRound);
        }
        assert_eq!((outage.next_try(true, true), outage.next_try(false, true)), (None, None));
        assert_eq!(outage.begin_round(S), Some(250_000));
        assert_eq!(outage.next_try(false, true), Some(Try::Failed));
        outage.use_try(Try::Failed);
        assert_eq!((outage.next_try(true, true), outage.next_try(false, true)), (None, None));
        outage.begin_round(S);
        outage.use_try(Try::OfRound);
        assert_eq!(outage.next_try(false, true), None, "the round was used by one that had not failed");
        assert_eq!(outage.begin_round(7), None, "the alarm of an outage that is over");
    }

    #[test]
    fn rounds_come_after_twice_the_time_up_to_ten_seconds__d6() {
        let mut outage = down();
        let after: Vec<u64> = (0..8).map(|_| outage.begin_round(S).unwrap() / 1_000).collect();
        assert_eq!(after, [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    }

    #[test]
    fn one_new_key_a_second_is_tried_beside_the_rounds__d6() {
        let mut outage = down();
        (0..4).for_each(|_| outage.use_try(Try::OfRound));
        assert!(outage.add_new_try(S) && !outage.add_new_try(7));
        assert_eq!((outage.next_try(true, true), outage.next_try(false, true)), (Some(Try::New), None));
        outage.use_try(Try::New);
        assert_eq!(outage.next_try(true, true), None);
        assert!((0..9).all(|_| outage.add_new_try(S)));
        (0..4).for_each(|_| outage.use_try(Try::New));
        assert_eq!(outage.next_try(true, true), None, "no more than four are kept");
    }

    #[test]
    fn the_time_of_outages_does_not_count__d6() {
        let mut outage = down(); // since 1 s
        assert_eq!(outage.up_us(0, 9 * S), S);
        outage.accepted(5 * S, 5 * S);
        assert_eq!((outage.up_us(0, 9 * S), outage.up_us(2 * S, 4 * S), outage.up_us(3 * S, 8 * S)), (5 * S, 0, 3 * S));
        assert_eq!((outage.up_us(6 * S, 9 * S), outage.up_us(9 * S, 6 * S)), (3 * S, 0));
        for number in 0..1_000 {
            outage.remember((10 + 2 * number) * S, (11 + 2 * number) * S);
        }
        assert_eq!(outage.past.len(), MOST_PAST);
        assert!(outage.up_us(0, 3_000 * S) <= 2_000 * S, "too little, never too much");
        assert_eq!(outage.up_us(2_000 * S, 2_009 * S), 4 * S);
    }
}
