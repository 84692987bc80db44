//! The least time between two wake-ups: it doubles while there are many, and is short again when there are few (T5).
//!
//! A wake-up costs the processor some 20 µs, whatever it finds due. 10,000 of them in a second, the most with 100 µs between two,
//! take a fifth of a core. With 800 µs they take a fortieth, and what is due waits for so long at most.
//!
//! Wake-ups are counted in windows of 10 ms. After a window with more than 20 of them (2,000 a second) the time doubles, up to
//! its maximum. After one with fewer than 5 it is the shortest again. Between the two it stays: so it does not swing.

/// How long a window is, at least.
const WINDOW_US: u64 = 10_000;
/// More wake-ups in a window are many.
const MANY: u64 = 20;
/// Fewer wake-ups in a window are few.
const FEW: u64 = 5;

/// The least time between two wake-ups, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// While there are few wake-ups.
    pub(crate) least_us: u64,
    /// While there are many.
    pub(crate) most_us: u64,
}

impl From<u64> for Slack {
    /// Always this.
    fn from(us: u64) -> Self {
        Self { least_us: us, most_us: us }
    }
}

/// The wake-ups of the current window.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    since_us: u64,
    count: u64,
    doublings: u32,
}

impl WakeUps {
    /// Counts a wake-up. Returns how long after it the next one may come.
    pub(crate) fn note(&mut self, now_us: u64, slack: Slack) -> u64 {
        self.count += 1;
        let took_us = now_us.saturating_sub(self.since_us);
        if took_us >= WINDOW_US {
            let in_window = self.count.saturating_mul(WINDOW_US) / took_us;
            if in_window < FEW {
                self.doublings = 0;
            } else if in_window > MANY && self.slack_us(slack) < slack.most_us {
                self.doublings += 1;
            }
            (self.since_us, self.count) = (now_us, 0);
        }
        self.slack_us(slack)
    }

    fn slack_us(&self, slack: Slack) -> u64 {
        slack.least_us.saturating_mul(1 << self.doublings.min(32)).min(slack.most_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: Slack = Slack { least_us: 100, most_us: 1_000 };

    /// What the slack is after each of so many wake-ups, where something is always due; and the time then.
    fn dense(wakes: &mut WakeUps, slack: Slack, from_us: u64, count: usize) -> (Vec<u64>, u64) {
        let mut now_us = from_us;
        let mut slacks = Vec::new();
        for _ in 0..count {
            let slack_us = wakes.note(now_us, slack);
            slacks.push(slack_us);
            now_us += slack_us.max(1);
        }
        (slacks, now_us)
    }

    #[test]
    fn while_there_are_many_it_doubles_until_there_are_not__t5() {
        let (mut wakes, mut second) = (WakeUps::default(), 0);
        let (slacks, mut now_us) = dense(&mut wakes, SLACK, 0, 1_000);
        assert!(slacks.is_sorted());
        assert_eq!((slacks[0], slacks[50], slacks.last()), (100, 100, Some(&800)));
        let end_us = now_us + 1_000_000;
        while now_us < end_us {
            now_us += wakes.note(now_us, SLACK);
            second += 1;
        }
        assert_eq!(second, 1_250);
    }

    #[test]
    fn when_there_are_few_it_is_short_again__t5() {
        let mut wakes = WakeUps::default();
        let (_, now_us) = dense(&mut wakes, SLACK, 0, 1_000);
        assert_eq!(wakes.note(now_us + 5_000, SLACK), 800, "a window is not over");
        assert_eq!(wakes.note(now_us + 50_000, SLACK), 100);
        for at in 1..1_000 {
            assert_eq!(wakes.note(now_us + 50_000 + at * 600, SLACK), 100, "1,667 a second");
        }
    }

    #[test]
    fn it_passes_no_maximum_and_a_given_one_stays__t5() {
        for (slack, last) in [
            (Slack { least_us: 100, most_us: 300 }, 300),
            (Slack::from(100), 100),
            (Slack::from(0), 0),
            (Slack { least_us: 0, most_us: 1_000 }, 0),
            (Slack::from(u64::MAX), u64::MAX),
        ] {
            let mut wakes = WakeUps::default();
            let (slacks, _) =
                if last == u64::MAX { (vec![wakes.note(0, slack)], 0) } else { dense(&mut wakes, slack, 0, 50_000) };
            assert_eq!(slacks.last(), Some(&last), "{slack:?}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_is_near_its_end_is_no_trouble() {
        let mut wakes = WakeUps::default();
        assert_eq!((0..100).map(|_| wakes.note(7, SLACK)).max(), Some(100));
        assert_eq!(wakes.note(u64::MAX, SLACK), 100);
        assert_eq!(wakes.note(3, SLACK), 100);
    }
}
