//! Which key goes first if keys in doubt and other keys share ordinary places, because there are no spare ones (rule D6).
//!
//! - Keys in doubt have at most half of the places.
//! - The other keys go first during a slow first contact: while keys in doubt and slow sends of other keys have half of
//!   the places. So the first contact with many keys that hang is over soon, and one long call holds up no key in doubt.
//! - If the first contact goes on, the other keys go first for five minutes, and then keys in doubt have their half for
//!   five minutes.
//! - The only place of a sink cannot be halved. There, a send of a key in doubt that took 10 s is followed by 10 s in which
//!   the other keys go first.

use std::collections::VecDeque;

/// How long the other keys go first, and how long they do not after that.
const PHASE_US: u64 = 300_000_000;
/// A slow send counts for this number of young sends after its end: until the one that follows it can be slow too.
const STILL_SLOW: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// When slow sends ended whose keys were not in doubt, the earliest first.
    slow_ends: VecDeque<u64>,
    /// Since when the other keys go first.
    passed_over_us: Option<u64>,
    /// In the only place, the other keys go first until then.
    others_until_us: u64,
}

impl Sharing {
    /// A slow send ended, and its key was not in doubt. `places`: how many places there are.
    pub(super) fn slow_ended(&mut self, now_us: u64, places: usize) {
        if self.slow_ends.len() >= places {
            self.slow_ends.pop_front();
        }
        self.slow_ends.push_back(now_us);
    }

    /// How many of these sends ended just now.
    pub(super) fn ended_just_now(&self, now_us: u64, young_us: u64) -> usize {
        let recently = |at_us: &&u64| now_us.saturating_sub(**at_us) < young_us.saturating_mul(STILL_SLOW);
        self.slow_ends.iter().rev().take_while(recently).count()
    }

    /// A key in doubt has left the only place, after `took_us`.
    pub(super) fn left_only_place(&mut self, now_us: u64, took_us: u64) {
        self.others_until_us = now_us.saturating_add(took_us.min(PHASE_US));
    }

    /// Whether keys that are not in doubt go first. `is_first_contact_slow` is asked only if it matters.
    pub(super) fn others_go_first(&self, now_us: u64, is_first_contact_slow: impl FnOnce() -> bool) -> bool {
        now_us < self.others_until_us || !self.has_passed_over_enough(now_us) && is_first_contact_slow()
    }

    /// A key in doubt could start, and another key goes first.
    pub(super) fn pass_over(&mut self, now_us: u64) {
        let is_over = self.passed_over_us.is_some_and(|since_us| now_us >= since_us.saturating_add(2 * PHASE_US));
        if is_over || self.passed_over_us.is_none() {
            self.passed_over_us = Some(now_us);
        }
    }

    /// A key in doubt has started.
    pub(super) fn started_in_doubt(&mut self, now_us: u64) {
        if !self.has_passed_over_enough(now_us) {
            self.passed_over_us = None;
        }
    }

    fn has_passed_over_enough(&self, now_us: u64) -> bool {
        self.passed_over_us.is_some_and(|since_us| (PHASE_US..2 * PHASE_US).contains(&now_us.saturating_sub(since_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_go_first_for_five_minutes_and_not_for_the_next_five__d6() {
        let mut sharing = Sharing::default();
        sharing.pass_over(0);
        for (at_s, go_first) in [(299, true), (300, false), (599, false), (600, true), (899, true), (900, false)] {
            let now_us = at_s * 1_000_000;
            assert_eq!(sharing.others_go_first(now_us, || true), go_first, "{at_s}");
            if go_first {
                sharing.pass_over(now_us);
            } else {
                sharing.started_in_doubt(now_us);
            }
        }
    }

    #[test]
    fn slow_sends_count_for_twice_the_time_of_a_young_one_after_their_end__d6() {
        let mut sharing = Sharing::default();
        for at_us in [0, 10, 60] {
            sharing.slow_ended(at_us, 2);
        }
        assert_eq!([60, 209, 210, 259, 260].map(|now_us| sharing.ended_just_now(now_us, 100)), [2, 2, 1, 1, 0]);
    }
}
