//! When to try again (D6): exponential back-off with jitter, so that messages that failed together do not return together.
//!
//! Example: 1 s, then 2, 4 and 8, each shortened by up to a half at random.

#![forbid(unsafe_code)]

use fastrand::Rng;

use crate::base::error::DeliveryError;

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

/// The largest `max_attempts`.
pub(crate) const MOST_ATTEMPTS: u32 = 1_000_000;
/// The largest `first_ms` and `longest_ms`: 400 days.
pub(crate) const LONGEST_MS: u64 = 400 * 86_400_000;

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 5, first_ms: 1_000, longest_ms: 300_000 }
    }
}

impl Retry {
    /// Whether the values are within bounds.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`], which says which one is not.
    pub fn check(&self) -> Result<(), DeliveryError> {
        let Self { max_attempts, first_ms, longest_ms } = *self;
        if !(1..=MOST_ATTEMPTS).contains(&max_attempts) {
            return Err(DeliveryError::Usage(format!("max-attempts is {max_attempts}: it may be 1 to 1,000,000")));
        }
        if !(1..=longest_ms).contains(&first_ms) || longest_ms > LONGEST_MS {
            return Err(DeliveryError::Usage(format!(
                "backoff is {first_ms} ms,{longest_ms} ms: it may be FIRST,LONGEST, each from 1 ms to 400 days, with \
                 FIRST not longer than LONGEST"
            )));
        }
        Ok(())
    }

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

    #[test]
    fn values_out_of_bounds_are_named__d6() {
        assert!(Retry::default().check().is_ok());
        let text = |retry: Retry| retry.check().unwrap_err().to_string();
        assert_eq!(text(Retry { max_attempts: 0, ..SHORT }), "max-attempts is 0: it may be 1 to 1,000,000");
        assert!(
            text(Retry { first_ms: 2_000, ..SHORT }).starts_with("backoff is 2000 ms,1000 ms: it may be FIRST,LONGEST")
        );
        assert!(text(Retry { first_ms: 0, ..SHORT }).contains("each from 1 ms to 400 days"));
        assert!(Retry { longest_ms: LONGEST_MS + 1, ..SHORT }.check().is_err());
    }
}
