//! How long a key waits after a send that was not accepted (D6): exponential back-off with jitter, or a list of waits.
//! The jitter keeps keys that failed together from returning together.
//!
//! Example: 1 s, then 2, 4 and 8 s. Each wait is shortened by up to a half, at random. The defaults of all settings are
//! in `run/settings.rs`.

use fastrand::Rng;

/// How often a message is tried, and after which waits.
///
/// ```
/// use tickwheel_delivery::Retry;
/// let three_waits = Retry { waits_ms: vec![5_000, 300_000, 1_800_000], waits_end: true, ..Retry::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often a message is tried if its destination refuses it, with the first time: 1 to 1,000,000. After the last attempt the
    /// message is a dead letter. Attempts without an answer do not count: see
    /// [`Settings::unanswered_for_ms`](crate::Settings::unanswered_for_ms). The default is 8.
    pub max_attempts: u32,
    /// The wait of a key after the first send that was not accepted, 1 ms to 1 day. It doubles after each such send, and each wait is
    /// shortened at random, by up to a half. The default is 1 s.
    pub first_ms: u64,
    /// The longest wait, at most 1 day. The default is 5 minutes.
    pub longest_ms: u64,
    /// A list of exact waits, used instead, each 1 ms to 1 day. Its end is not the end of the message: the last wait is used again and
    /// again, unless `waits_end`.
    pub waits_ms: Vec<u64>,
    /// Whether the end of the list of waits is the end of the message: if the attempt after the last wait is not accepted, whatever
    /// the answers were, it is a dead letter. The number of attempts and the time without an answer do not count then.
    pub waits_end: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 8, first_ms: 1_000, longest_ms: 300_000, waits_ms: Vec::new(), waits_end: false }
    }
}

impl Retry {
    /// The wait in microseconds, after so many sends in a row that were not accepted. The caller gives `rng`, so a
    /// simulation with the same seed repeats the waits.
    #[must_use]
    pub(crate) fn wait_us(&self, fails: u32, rng: &mut Rng) -> u64 {
        let place = fails.saturating_sub(1);
        if let Some(last) = self.waits_ms.len().checked_sub(1) {
            return self.waits_ms[last.min(place as usize)].saturating_mul(1_000);
        }
        let doubled_ms = 1_u64.checked_shl(place).map_or(u64::MAX, |by| self.first_ms.saturating_mul(by));
        let whole_us = doubled_ms.min(self.longest_ms).saturating_mul(1000);
        let half_us = whole_us / 2;
        (whole_us - half_us).saturating_add(rng.u64(0..=half_us))
    }

    /// How many counted attempts make a message a dead letter.
    pub(crate) fn most_attempts(&self) -> u32 {
        if self.waits_end { self.waits_ms.len() as u32 + 1 } else { self.max_attempts }
    }

    /// The longest of the waits.
    pub(crate) fn longest_us(&self) -> u64 {
        self.waits_ms.iter().copied().max().unwrap_or(self.longest_ms).saturating_mul(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Retry =
        Retry { max_attempts: 5, first_ms: 200, longest_ms: 1_000, waits_ms: Vec::new(), waits_end: false };

    #[test]
    fn the_back_off_doubles_and_is_shortened_at_random__d6() {
        let mut rng = Rng::with_seed(1);
        for (attempt, whole_us) in
            [(1, 200_000), (2, 400_000), (3, 800_000), (4, 1_000_000), (100, 1_000_000), (u32::MAX, 1_000_000)]
        {
            let delays: Vec<u64> = (0..200).map(|_| SHORT.wait_us(attempt, &mut rng)).collect();
            let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            assert!(*least >= whole_us / 2 && *most <= whole_us, "{attempt}: {least} to {most}");
            assert!(2 * most > 3 * least, "{attempt}: {least} to {most}");
        }
    }

    #[test]
    fn the_default_waits_a_second_first_and_at_most_five_minutes__d6() {
        let mut rng = Rng::with_seed(1);
        let retry = Retry::default();
        assert_eq!(retry.max_attempts, 8);
        assert!((500_000..=1_000_000).contains(&retry.wait_us(1, &mut rng)));
        assert!((150_000_000..=300_000_000).contains(&retry.wait_us(20, &mut rng)));
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let delays = |seed| {
            let mut rng = Rng::with_seed(seed);
            (1..20).map(|attempt| SHORT.wait_us(attempt, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(delays(5), delays(5));
        assert_ne!(delays(5), delays(6));
    }

    #[test]
    fn a_time_of_odd_length_or_of_none_is_no_error() {
        let mut rng = Rng::with_seed(1);
        let of = |first_ms, longest_ms| Retry {
            max_attempts: 1,
            first_ms,
            longest_ms,
            waits_ms: Vec::new(),
            waits_end: false,
        };
        assert_eq!(of(0, 0).wait_us(1, &mut rng), 0);
        assert!(of(u64::MAX, u64::MAX).wait_us(u32::MAX, &mut rng) >= u64::MAX / 2);
        assert!((500..=1000).contains(&of(1, 1).wait_us(0, &mut rng)));
    }

    #[test]
    fn a_list_of_waits_is_taken_as_it_is_and_its_last_one_again__d6() {
        let retry = Retry { waits_ms: vec![5_000, 300_000, 7_200_000], ..Retry::default() };
        let mut rng = Rng::with_seed(1);
        let waits = [1, 2, 3, 4, u32::MAX].map(|fails| retry.wait_us(fails, &mut rng) / 1_000_000);
        assert_eq!(waits, [5, 300, 7_200, 7_200, 7_200]);
    }
}
