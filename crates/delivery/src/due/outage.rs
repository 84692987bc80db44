//! Whether the destination is down (rule D6), and which keys are tried while it is.
//!
//! - The destination is down when two things are true. No send was accepted for one second, or for eight times the mean
//!   time between accepted sends, up to 10 s. And the last sends of at least five keys ended without an answer about the
//!   message. A key counts only if no accepted send began after its first failed send. A customer that has been dead for a
//!   day says nothing about the destination. The others of a send of which a part was accepted do count: the destination
//!   may have gone in the middle of it.
//! - While it is down, each second is a *round* of at most four tries, three of keys not in doubt and one of a key in
//!   doubt. A try that one kind does not need is the other's. Where one place is free, the kinds take turns. At most 16
//!   tries are out. Each kind goes in its order. What was tried is at the end of it.
//! - If no key without doubt is ready when a round begins, the wait of one key ends: the key that has waited longest. The keys
//!   in doubt that are ready may all be dead.
//! - The outage ends with an accepted send that began while the destination was down. A refusal does not end it. If two
//!   rounds in a row find nothing to try, it ends too: otherwise a service whose messages were cancelled or have expired
//!   would count as down until the next message, and a balancer sends none to it.
//!

use std::collections::VecDeque;

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
/// From one round of tries to the next.
pub(crate) const ROUND_US: u64 = 1_000_000;
/// The tries of a round, of keys that are not in doubt and of keys in doubt.
const TRIES: [usize; 2] = [3, 1];
/// All tries of one round.
pub(crate) const TRIES_OF_A_ROUND: usize = TRIES[0] + TRIES[1];
/// How many tries may be out. If each hangs until its time-out, the next ones go on all the same.
const MOST_OUT: usize = 16;
/// How many past outages are remembered. If there are more, the first two are joined into one.
const MOST_PAST: usize = 256;

/// Whether the destination is up, or since when and why it is down.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    down: Option<Down>,
    /// Keys whose first failed send did not begin before an accepted one. An accepted send empties it.
    newly: FxHashSet<Key>,
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
    /// The start and end of each past outage.
    past: VecDeque<(u64, u64)>,
    /// An alarm is set for the time when the destination may be down.
    pub(crate) is_quiet_armed: bool,
}

#[derive(Debug)]
struct Down {
    since_us: u64,
    reason: String,
    /// The tries that are left in this round, of keys that are not in doubt and of keys in doubt.
    tries: [usize; 2],
    /// The sends of tries that have no answer.
    out: FxHashSet<u64>,
    was_in_doubt: bool,
    /// The last round had nothing to try.
    was_idle: bool,
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

    /// Whether the destination was down at this time, in an outage that is over.
    pub(crate) fn was_down(&self, us: u64) -> bool {
        self.past.iter().any(|(from_us, until_us)| (*from_us..*until_us).contains(&us))
    }

    /// How many messages were accepted. Sends from before an outage do not count while it lasts.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.accepted
    }

    /// The same, if nothing was accepted after this time.
    pub(crate) fn accepted_count_if_none_since(&self, us: u64) -> Option<u64> {
        self.accepted_us.is_none_or(|accepted_us| accepted_us <= us).then_some(self.accepted)
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

    /// The keys that failed only since the last accepted send, if they were a sign of an outage. They are tried at once, one
    /// time.
    pub(crate) fn take_newly(&mut self, was_down: bool) -> Option<FxHashSet<Key>> {
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
        if since_us < self.accepted_began_us {
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
        let quiet_us = (self.gap_us * QUIET_GAPS).clamp(QUIET_US.0, QUIET_US.1);
        may_be_down.then(|| self.quiet_since_us.saturating_add(quiet_us))
    }

    /// Whether the destination is down from now on, and was not before.
    pub(crate) fn goes_down(&mut self, now_us: u64) -> bool {
        if self.down_at_us().is_none_or(|at_us| now_us < at_us) {
            return false;
        }
        let (reason, out) = (self.reason.clone(), FxHashSet::default());
        self.down = Some(Down { since_us: now_us, reason, tries: TRIES, out, was_in_doubt: true, was_idle: false });
        true
    }

    /// The key is no sign of an outage any more: it has no message to send, or its message was refused.
    pub(crate) fn forget(&mut self, key: Key) {
        if !self.newly.is_empty() {
            self.newly.remove(&key);
        }
    }

    /// The same for a key that may have further messages. While the destination is down, it stays one that may be tried.
    pub(crate) fn forget_unless_down(&mut self, key: Key) {
        if !self.is_down() {
            self.forget(key);
        }
    }

    /// Whether a message without a key, of one of these shares, began to fail after the last accepted send.
    pub(crate) fn has_new_message(&self, is_of: impl Fn(u32) -> bool) -> bool {
        self.newly.iter().any(|key| matches!(key, Key::Message(..)) && is_of(key.share()))
    }

    /// A round of the outage that began at `since_us` begins. Returns whether that outage goes on.
    pub(crate) fn begin_round(&mut self, since_us: u64) -> bool {
        let Some(down) = self.down.as_mut().filter(|down| down.since_us == since_us) else { return false };
        down.tries = TRIES;
        true
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
        true
    }

    /// Which kind may be tried now, if the destination is down: whether the try is of a key in doubt.
    pub(crate) fn next_try(&self, has_fresh: bool, has_in_doubt: bool) -> Option<bool> {
        let down = self.down.as_ref()?;
        if down.tries == [0, 0] || down.out.len() >= MOST_OUT {
            return None;
        }
        match (has_fresh && down.tries[0] > 0, has_in_doubt && down.tries[1] > 0) {
            (true, true) => Some(!down.was_in_doubt),
            (false, false) => (has_fresh || has_in_doubt).then_some(has_in_doubt),
            (_, is_in_doubt) => Some(is_in_doubt),
        }
    }

    /// Whether a message may be sent: as a try, while the destination is down.
    pub(crate) fn may_try(&self) -> bool {
        self.down.as_ref().is_none_or(|down| down.tries != [0, 0] && down.out.len() < MOST_OUT)
    }

    /// This send is a try.
    pub(crate) fn use_try(&mut self, is_in_doubt: bool, flight: u64) {
        let Some(down) = &mut self.down else { return };
        down.was_in_doubt = is_in_doubt;
        let own = usize::from(is_in_doubt);
        let from = if down.tries[own] > 0 { own } else { 1 - own };
        down.tries[from] -= 1;
        down.out.insert(flight);
    }

    /// This send has ended, or does not hold others up any more.
    pub(crate) fn try_ended(&mut self, flight: u64) {
        if let Some(down) = &mut self.down {
            down.out.remove(&flight);
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

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// Lets these keys fail for the first time.
    fn fail(outage: &mut Outage, keys: std::ops::Range<i64>, now_us: u64) -> bool {
        let mut is_down = false;
        for key in keys {
            outage.failed(Key::Message(0, key), now_us, now_us, "gone");
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
        assert_eq!(outage.take_newly(false), None, "four are no sign");
        for key in 0..50 {
            outage.failed(Key::Message(0, key), 0, 5 * S, "gone");
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
        assert_eq!(outage.take_newly(true).map(|keys| keys.len()), Some(6));
        assert_eq!(outage.take_newly(true), None);
    }

    #[test]
    fn two_rounds_in_a_row_with_nothing_to_try_end_it__d6() {
        let mut outage = down();
        assert!(!outage.ends_idle(S, true, 2 * S) && !outage.ends_idle(S, false, 3 * S));
        assert!(!outage.ends_idle(S, true, 4 * S));
        assert!(!outage.ends_idle(7, true, 4 * S), "the alarm of an outage that is over");
        assert!(outage.ends_idle(S, true, 5 * S) && !outage.is_down());
        assert_eq!(outage.up_us(0, 6 * S), 2 * S);
        assert_eq!(outage.take_newly(true), None);
        assert!(!outage.ends_idle(S, true, 6 * S));
    }

    #[test]
    fn a_round_has_four_tries_three_of_keys_that_are_not_in_doubt_and_one_of_a_key_in_doubt__d6() {
        let mut outage = down();
        assert_eq!(outage.next_try(false, false), None);
        for (flight, is_in_doubt) in [false, true, false, false].into_iter().enumerate() {
            assert_eq!(outage.next_try(true, true), Some(is_in_doubt), "{flight}");
            outage.use_try(is_in_doubt, flight as u64);
        }
        assert_eq!(outage.next_try(true, true), None);
        assert!(outage.begin_round(S) && !outage.begin_round(7), "the alarm of an outage that is over");
        assert_eq!(outage.next_try(true, true), Some(true), "the kinds take turns");
    }

    #[test]
    fn a_try_that_one_kind_does_not_need_is_the_others__d6() {
        for is_in_doubt in [false, true] {
            let mut outage = down();
            for flight in 0..4 {
                assert_eq!(outage.next_try(!is_in_doubt, is_in_doubt), Some(is_in_doubt));
                outage.use_try(is_in_doubt, flight);
            }
            assert_eq!(outage.next_try(true, true), None);
        }
    }

    #[test]
    fn in_a_single_place_the_kinds_take_turns__d6() {
        let mut outage = down();
        let kinds: Vec<bool> = (0..6)
            .map(|flight| {
                let kind = outage.next_try(true, true).unwrap();
                outage.use_try(kind, flight);
                outage.try_ended(flight);
                outage.begin_round(S);
                kind
            })
            .collect();
        assert_eq!(kinds, [false, true, false, true, false, true]);
    }

    #[test]
    fn at_most_sixteen_tries_are_out__d6() {
        let mut outage = down();
        let mut out = 0;
        for _ in 0..10 {
            while let Some(kind) = outage.next_try(true, true) {
                outage.use_try(kind, out);
                out += 1;
            }
            outage.begin_round(S);
        }
        assert_eq!(out, 16);
        outage.try_ended(3);
        assert!(outage.next_try(true, true).is_some());
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
