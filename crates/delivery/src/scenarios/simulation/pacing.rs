//! How many messages may go out by the rate (D18): counted over all times since the process began.

use super::World;
use super::types::Random;
use crate::due::pace::Rate;

/// Often none.
pub(super) fn rate(random: &mut Random) -> Option<Rate> {
    let (messages, per_us) = match random.below(10) {
        0 => (1, 1_000_000),
        1 => (7, 1_300_007),
        2 => (50, 1_000_000),
        3 => (20_000, 1_000_000),
        _ => return None,
    };
    Some(Rate { messages, per_us })
}

impl World {
    pub(super) fn note_sends(&mut self, count: usize) {
        let now_us = self.engine.clock().now_us();
        let may_go = self.allowed().unwrap_or(u64::MAX);
        assert!(count as u64 <= may_go, "{count} were sent, and {may_go} may be");
        self.sent_us.extend(std::iter::repeat_n(now_us, count));
    }

    /// Whether messages may wait for the rate.
    pub(super) fn is_held_back(&self) -> bool {
        let Some(rate) = self.settings.rate else { return false };
        self.allowed().is_some_and(|allowed| allowed < 1 + rate.messages * 1_000 / rate.per_us)
    }

    fn allowed(&self) -> Option<u64> {
        Some(allowed(self.settings.rate?, &self.sent_us, self.engine.clock().now_us()))
    }
}

/// How many more may go out now, if messages went out at these times. In each period until now, at most the burst and the
/// tokens of this period may go out.
pub(super) fn allowed(rate: Rate, sent_us: &[u64], now_us: u64) -> u64 {
    let Rate { messages, per_us } = rate;
    let burst = (messages * 100_000 / per_us).max(1);
    let sent = sent_us.iter().rev().zip(1..);
    let allowed = |(at_us, sent): (&u64, u64)| (burst * per_us + (now_us - at_us) * messages) / per_us - sent;
    sent.map(allowed).min().unwrap_or(burst).min(burst)
}
