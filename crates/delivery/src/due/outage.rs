//! Whether the destination is down (rule D6).
//!
//! - The destination is down when two things are true. No send was accepted for one second, or for eight times the mean
//!   time between accepted sends, up to 10 s. And the last sends of at least five keys ended without an answer about the
//!   message. A key counts only if no accepted send began after its first failed send. A customer that has been dead for a
//!   day says nothing about the destination, nor does one that failed in an earlier process. The others of a send of which
//!   a part was accepted do count: the destination may have gone in the middle of it.
//! - While it is down, rounds of tries find out whether it is back. The first round comes at once, the next after 0.25
//!   s, and each wait is twice as long, up to 10 s. A round does not wait for the answers of the previous round.
//! - A round has four tries: three of keys that have not failed, and one of a key in doubt. Beside the rounds, one key
//!   that has not failed is tried each second.
//! - A key in doubt is *likely* if it was accepted lately, and failed only in this outage. A likely key has one of the first
//!   three tries. So dead customers do not keep it from a try. It keeps no others from a try, because it may be dead too.
//!   New keys that were accepted lately come before other new keys.
//! - The other key in doubt is one that failed only in this outage, if one is ready. In each fourth round it is any key in
//!   doubt: those that failed before may be the ones that are back.
//! - The outage ends with an accepted send that began while the destination was down. A refusal does not end it. If two
//!   rounds in a row find nothing to try, it ends too: otherwise a service whose messages were cancelled or have expired
//!   would count as down until the next message, and a balancer sends none to it.

use std::collections::VecDeque;

use fastrand::Rng;
use rustc_hash::FxHashSet;

use super::doubt::Key;

/// How many failing keys show that the destination is down.
const DOWN_AFTER_KEYS: usize = 5;
/// How long no send was accepted before the destination counts as down, at least and at most.
const QUIET_US: (u64, u64) = (1_000_000, 10_000_000);
/// The same, in mean times between two accepted sends. With random times, one of 3,000 is longer.
const QUIET_GAPS: u64 = 8;
/// The mean time is that of about so many accepted sends, the last ones.
const MEAN_OF: u64 = 16;
const FIRST_ROUND_US: u64 = 250_000;
const LONGEST_ROUND_US: u64 = 10_000_000;
/// Tries of keys that have not failed, and of a likely one, in one round. There is one more, of another key in doubt.
const TRIES: u32 = 3;
/// All tries of one round.
pub(crate) const TRIES_OF_A_ROUND: usize = TRIES as usize + 1;
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
    /// Keys whose first failed send did not begin before an accepted one. An accepted send empties it.
    newly: FxHashSet<Key>,
    /// The keys in `newly` that were accepted lately.
    likely: FxHashSet<Key>,
    /// Since when no send was accepted, as far as the keys in `newly` show.
    quiet_since_us: u64,
    /// Why the last send of the keys in `newly` was not accepted.
    reason: String,
    accepted_us: Option<u64>,
    /// When the newest accepted send began.
    accepted_began_us: u64,
    accepted: u64,
    /// The mean time between two accepted sends, without outages.
    gap_us: u64,
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
    /// The tries of keys that have not failed, and of a likely one, that are left in this round.
    tries: u32,
    may_try_likely: bool,
    /// The try of another key in doubt in this round was not used.
    may_try_failed: bool,
    new_tries: u32,
    last: Option<Try>,
    /// The last round had nothing to try.
    was_idle: bool,
}

/// The key that may be tried while the destination is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// A key that has not failed.
    OfRound,
    /// A likely key.
    Likely,
    /// Another key in doubt.
    Failed,
    /// The newest key that has not failed.
    New,
}

/// The shortest and the longest wait that a destination may ask for. A wrong `Retry-After` must neither hold messages for ever
/// nor keep the engine busy with one message.
pub(crate) const SHORTEST_ASKED_US: u64 = 50_000;
pub(crate) const LONGEST_ASKED_US: u64 = 3_600_000_000;

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
        self.accepted_began_us = self.accepted_began_us.max(began_us);
        if let Some(before_us) = self.accepted_us.replace(now_us)
            && since_us.is_none()
        {
            let gap_us = now_us.saturating_sub(before_us).min(QUIET_US.1);
            let count = (self.accepted - 1).clamp(1, MEAN_OF);
            self.gap_us = (self.gap_us * (count - 1) + gap_us) / count;
        }
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
        self.likely.clear();
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
        if since_us < self.accepted_began_us {
            return; // the key failed while others were accepted
        }
        if self.newly.is_empty() {
            self.quiet_since_us = began_us.max(self.accepted_us.unwrap_or(0));
        }
        self.newly.insert(key);
        if let Key::Lane(number) = key
            && self.is_known(number)
        {
            self.likely.insert(key);
        }
        reason.clone_into(&mut self.reason);
    }

    /// When the destination is down if no send is accepted until then. `None` if too few keys have failed, or if it is
    /// down already.
    pub(crate) fn down_at_us(&self) -> Option<u64> {
        let may_be_down = self.down.is_none() && self.newly.len() >= DOWN_AFTER_KEYS;
        let quiet_us = (self.gap_us * QUIET_GAPS).clamp(QUIET_US.0, QUIET_US.1);
        may_be_down.then(|| self.quiet_since_us.saturating_add(quiet_us))
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
            may_try_likely: true,
            may_try_failed: true,
            new_tries: 0,
            last: None,
            was_idle: false,
        });
        true
    }

    /// The key is no sign of an outage any more: it has no message to send, or its message was refused.
    pub(crate) fn forget(&mut self, key: Key) {
        if !self.newly.is_empty() {
            self.newly.remove(&key);
            self.likely.remove(&key);
        }
    }

    /// The same for a key that may have further messages. While the destination is down, it stays one that may be tried.
    pub(crate) fn forget_unless_down(&mut self, key: Key) {
        if !self.is_down() {
            self.forget(key);
        }
    }

    /// Whether this key began to fail after the last accepted send.
    pub(crate) fn is_new(&self, key: Key) -> bool {
        self.newly.contains(&key)
    }

    /// Whether this key was accepted lately, and began to fail after the last accepted send.
    pub(crate) fn is_likely(&self, key: Key) -> bool {
        self.likely.contains(&key)
    }

    /// Whether a message without a key began to fail after the last accepted send.
    pub(crate) fn has_new_message(&self) -> bool {
        self.newly.iter().any(|key| matches!(key, Key::Message(_)))
    }

    /// A likely key for which `may` holds, at random.
    pub(crate) fn any_likely(&self, random: &mut Rng, may: impl Fn(Key) -> bool) -> Option<Key> {
        any_of(&self.likely, random, may)
    }

    /// A key that failed since the last accepted send and for which `may` holds, at random.
    pub(crate) fn any_new(&self, random: &mut Rng, may: impl Fn(Key) -> bool) -> Option<Key> {
        any_of(&self.newly, random, may)
    }

    /// Begins a new round of the outage that began at `since_us`. Returns the time until the next round.
    pub(crate) fn begin_round(&mut self, since_us: u64) -> Option<u64> {
        let down = self.down.as_mut().filter(|down| down.since_us == since_us)?;
        (down.tries, down.may_try_likely, down.may_try_failed) = (TRIES, true, true);
        let after_us = FIRST_ROUND_US.saturating_mul(1 << down.rounds.min(20)).min(LONGEST_ROUND_US);
        down.rounds += 1;
        Some(after_us)
    }

    /// A round of the outage that began at `since_us` begins, and there is nothing to try if `is_idle`. Returns whether
    /// that ends the outage.
    pub(crate) fn ends_idle(&mut self, since_us: u64, is_idle: bool, now_us: u64) -> bool {
        let Some(down) = self.down.as_mut().filter(|down| down.since_us == since_us) else { return false };
        if !(std::mem::replace(&mut down.was_idle, is_idle) && is_idle) {
            return false;
        }
        self.down = None;
        self.remember(since_us, now_us);
        self.newly.clear();
        self.likely.clear();
        true
    }

    /// A second of the outage has passed, and one more new key may be tried. Returns whether the outage goes on.
    pub(crate) fn add_new_try(&mut self, since_us: u64) -> bool {
        let Some(down) = self.down.as_mut().filter(|down| down.since_us == since_us) else { return false };
        down.new_tries = (down.new_tries + 1).min(MOST_NEW_TRIES);
        true
    }

    /// The key that may be tried now, if the destination is down, of those that are ready. The kinds take turns: if tries
    /// hang in the only place, each kind has it in turn.
    pub(crate) fn next_try(&self, has_fresh: bool, has_likely: bool, has_failed: bool) -> Option<Try> {
        let down = self.down.as_ref()?;
        let likely = (has_likely && down.may_try_likely && down.tries > 0).then_some(Try::Likely);
        let failed = (has_failed && down.may_try_failed).then_some(Try::Failed);
        let fresh = match (down.tries, down.new_tries) {
            _ if !has_fresh => None,
            (0, 0) => None,
            (0, _) => Some(Try::New),
            _ => Some(Try::OfRound),
        };
        match down.last {
            None | Some(Try::Failed) => likely.or(fresh).or(failed),
            Some(Try::Likely) => fresh.or(failed).or(likely),
            Some(Try::OfRound | Try::New) => failed.or(likely).or(fresh),
        }
    }

    /// Whether the key in doubt of this round should be one that failed only in this outage.
    pub(crate) fn prefers_new(&self) -> bool {
        self.down.as_ref().is_none_or(|down| !down.rounds.is_multiple_of(4))
    }

    pub(crate) fn use_try(&mut self, kind: Try) {
        let Some(down) = &mut self.down else { return };
        down.last = Some(kind);
        match kind {
            Try::OfRound => down.tries -= 1,
            Try::Likely => (down.tries, down.may_try_likely) = (down.tries - 1, false),
            Try::Failed => down.may_try_failed = false,
            Try::New => down.new_tries -= 1,
        }
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

/// A key of this set for which `may` holds, at random.
fn any_of(keys: &FxHashSet<Key>, random: &mut Rng, may: impl Fn(Key) -> bool) -> Option<Key> {
    let first = random.usize(0..keys.len().max(1));
    let keys = keys.iter().copied();
    keys.clone().skip(first).chain(keys.take(first)).find(|key| may(*key))
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
        outage.accepted(1, S);
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
    fn two_rounds_in_a_row_with_nothing_to_try_end_it__d6() {
        let mut outage = down();
        assert!(!outage.ends_idle(S, true, 2 * S) && !outage.ends_idle(S, false, 3 * S));
        assert!(!outage.ends_idle(S, true, 4 * S));
        assert!(!outage.ends_idle(7, true, 4 * S), "the alarm of an outage that is over");
        assert!(outage.ends_idle(S, true, 5 * S) && !outage.is_down());
        assert_eq!(outage.up_us(0, 6 * S), 2 * S);
        assert_eq!(outage.take_failed_together(true), None);
        assert!(!outage.ends_idle(S, true, 6 * S));
    }

    #[test]
    fn a_round_has_four_tries_one_of_a_key_in_doubt_and_the_others_of_keys_that_have_not_failed__d6() {
        let mut outage = down();
        assert_eq!(outage.next_try(false, false, false), None);
        for kind in [Try::OfRound, Try::Failed, Try::OfRound, Try::OfRound] {
            assert_eq!(outage.next_try(true, false, true), Some(kind));
            outage.use_try(kind);
        }
        assert_eq!((outage.next_try(true, true, true), outage.next_try(false, true, true)), (None, None));
        assert_eq!(outage.begin_round(S), Some(250_000));
        assert_eq!(outage.next_try(false, false, true), Some(Try::Failed));
        outage.use_try(Try::Failed);
        assert_eq!(
            (outage.next_try(false, false, true), outage.next_try(true, false, true)),
            (None, Some(Try::OfRound))
        );
        (0..3).for_each(|_| outage.use_try(Try::OfRound));
        assert_eq!(outage.next_try(true, true, true), None);
        assert_eq!(outage.begin_round(7), None, "the alarm of an outage that is over");
    }

    #[test]
    fn one_of_the_four_is_that_of_a_likely_key_and_the_kinds_take_turns__d6() {
        let mut outage = down();
        for kind in [Try::Likely, Try::OfRound, Try::Failed, Try::OfRound] {
            assert_eq!(outage.next_try(true, true, true), Some(kind));
            outage.use_try(kind);
        }
        assert_eq!(outage.next_try(true, true, true), None);
        outage.begin_round(S);
        for kind in [Try::Failed, Try::Likely] {
            assert_eq!(outage.next_try(false, true, true), Some(kind), "no key is left that has not failed");
            outage.use_try(kind);
        }
        assert_eq!(outage.next_try(false, true, true), None);
    }

    #[test]
    fn a_key_that_was_accepted_lately_and_fails_now_is_likely__d6() {
        let mut outage = Outage::default();
        (0..3).for_each(|lane| outage.knows(Key::Lane(lane)));
        outage.accepted(0, 0);
        for key in [Key::Lane(1), Key::Lane(2), Key::Lane(7), Key::Message(1)] {
            outage.failed(key, S, S, "gone");
        }
        let random = &mut Rng::with_seed(1);
        assert!(outage.is_likely(Key::Lane(1)) && outage.is_new(Key::Lane(7)) && !outage.is_likely(Key::Lane(7)));
        outage.forget(Key::Lane(1));
        assert_eq!(outage.any_likely(random, |_| true), Some(Key::Lane(2)));
        assert_eq!(outage.any_new(random, |key| key == Key::Message(1)), Some(Key::Message(1)));
        outage.accepted(2 * S, 2 * S);
        outage.take_failed_together(false);
        assert!(!outage.is_likely(Key::Lane(2)) && !outage.is_new(Key::Lane(7)));
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
        outage.use_try(Try::Failed);
        (0..3).for_each(|_| outage.use_try(Try::OfRound));
        assert!(outage.add_new_try(S) && !outage.add_new_try(7));
        assert_eq!((outage.next_try(true, true, true), outage.next_try(false, true, true)), (Some(Try::New), None));
        outage.use_try(Try::New);
        assert_eq!(outage.next_try(true, true, true), None);
        assert!((0..9).all(|_| outage.add_new_try(S)));
        (0..4).for_each(|_| outage.use_try(Try::New));
        assert_eq!(outage.next_try(true, true, true), None, "no more than four are kept");
    }

    #[test]
    fn with_few_accepted_sends_it_is_down_after_eight_times_the_mean_time_between_them__d6() {
        for (gap_us, quiet_us) in [(1_000, S), (S / 2, 4 * S), (60 * S, 10 * S)] {
            let mut outage = Outage::default();
            for n in 0..200 {
                outage.accepted(n * gap_us, n * gap_us);
            }
            let now_us = 199 * gap_us;
            fail(&mut outage, 0..5, now_us);
            let at_us = outage.down_at_us().unwrap() - now_us;
            assert!((quiet_us * 99 / 100..=quiet_us).contains(&at_us), "{gap_us}: {at_us}");
        }
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
