//! When to try again (D6): exponential back-off with jitter, so that messages that failed together do not return together.
//!
//! Example: 1 s, then 2, 4 and 8, each shortened by up to a half at random.

use fastrand::Rng;

/// How often a message is tried, and after what time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The attempts before a message is a dead letter, with the first one.
    pub max_attempts: u32,
    /// The time after the first attempt, before it is shortened.
    pub first_ms: u64,
    /// No time is longer.
    pub longest_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 5, first_ms: 1_000, longest_ms: 300_000 }
    }
}

impl Retry {
    /// The time between this attempt, counted from 1, and the next, in microseconds. `rng` is the caller's, so that a simulation
    /// with the same seed repeats it.
    #[must_use]
    pub(crate) fn delay_us(&self, attempt: u32, rng: &mut Rng) -> u64 {
        let doubled_ms =
            1_u64.checked_shl(attempt.saturating_sub(1)).map_or(u64::MAX, |by| self.first_ms.saturating_mul(by));
        let whole_us = doubled_ms.min(self.longest_ms).saturating_mul(1000);
        let half_us = whole_us / 2;
        (whole_us - half_us).saturating_add(rng.u64(0..=half_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Retry = Retry { max_attempts: 5, first_ms: 200, longest_ms: 1_000 };

    #[test]
    fn the_back_off_doubles_and_is_shortened_at_random__d6() {
        let mut rng = Rng::with_seed(1);
        for (attempt, whole_us) in
            [(1, 200_000), (2, 400_000), (3, 800_000), (4, 1_000_000), (100, 1_000_000), (u32::MAX, 1_000_000)]
        {
            let delays: Vec<u64> = (0..200).map(|_| SHORT.delay_us(attempt, &mut rng)).collect();
            let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            assert!(*least >= whole_us / 2 && *most <= whole_us, "{attempt}: {least} to {most}");
            assert!(2 * most > 3 * least, "{attempt}: {least} to {most}");
        }
    }

    #[test]
    fn the_default_waits_a_second_first_and_at_most_five_minutes__d6() {
        let mut rng = Rng::with_seed(1);
        let retry = Retry::default();
        assert_eq!(retry.max_attempts, 5);
        assert!((500_000..=1_000_000).contains(&retry.delay_us(1, &mut rng)));
        assert!((150_000_000..=300_000_000).contains(&retry.delay_us(20, &mut rng)));
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let delays = |seed| {
            let mut rng = Rng::with_seed(seed);
            (1..20).map(|attempt| SHORT.delay_us(attempt, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(delays(5), delays(5));
        assert_ne!(delays(5), delays(6));
    }

    #[test]
    fn a_time_of_odd_length_or_of_none_is_no_error() {
        let mut rng = Rng::with_seed(1);
        let of = |first_ms, longest_ms| Retry { max_attempts: 1, first_ms, longest_ms };
        assert_eq!(of(0, 0).delay_us(1, &mut rng), 0);
        assert!(of(u64::MAX, u64::MAX).delay_us(u32::MAX, &mut rng) >= u64::MAX / 2);
        assert!((500..=1000).contains(&of(1, 1).delay_us(0, &mut rng)));
    }
}
