//! When to try again (rule D6): exponential back-off with jitter, so that what failed together does not return together.

#![forbid(unsafe_code)]

/// How often a message is tried, and after what time.
///
/// Example: 1 s, then 2, 4 and 8 s, each shortened by up to a half at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// How often at most; then it is a dead letter.
    pub max_attempts: u32,
    /// The time between the first attempt and the second.
    pub first_ms: u64,
    /// The longest time between two.
    pub longest_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 5, first_ms: 1_000, longest_ms: 300_000 }
    }
}

impl Retry {
    /// The time between this attempt, counted from 1, and the next.
    #[must_use]
    pub fn delay_ms(&self, attempt: u32, random: &mut Random) -> u64 {
        let doublings = attempt.saturating_sub(1).min(63);
        let whole_ms = self.first_ms.saturating_mul(1 << doublings).min(self.longest_ms);
        whole_ms - random.below(whole_ms / 2 + 1)
    }
}

/// A small generator of pseudo-random numbers (splitmix64): a seed repeats a run. Nothing secret depends on it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins a sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }
}
