//! The rate at which messages go out (D18). It is a token bucket: each attempt takes a token, and tokens come at the
//! rate.
//!
//! - The bucket holds the tokens of 100 ms, and at least one. After a quiet time, this number of messages goes out at
//!   once. If the process gets no processor for 100 ms, it still reaches the rate. In any time `t`, at most `burst +
//!   rate * t` messages go out.
//! - All arithmetic uses integers, so no tokens are lost or gained over the years. A microsecond brings `messages`
//!   parts, and a token has `per_us` parts.
//! - If the bucket is empty, sending waits for an alarm on the wheel, until there are tokens for at least a
//!   millisecond. A fast rate thus wakes a thread a thousand times a second, not once for each message.
//!
//! Example: 50/s is 1 message in 20,000 µs. The bucket holds 5 tokens, or 100,000 parts. Five messages go out at once,
//! and the sixth 20 ms later.

use std::time::Duration;

use crate::base::display::{quoted, with_commas};
use crate::base::error::DeliveryError;

/// The bucket holds the tokens of this time.
const BURST_US: u128 = 100_000;
/// If there is no token, tokens are gathered for this time.
const GATHER_US: u128 = 1_000;
const SECOND_US: u128 = 1_000_000;
const DAY_US: u128 = 86_400 * SECOND_US;
/// The most messages in a second.
const MOST_IN_SECOND: u128 = 1_000_000;

/// With more, the arithmetic of a bucket could overflow.
const MOST_DECIMALS: usize = 3;

const BETWEEN: &str = "it may be one a day to 1,000,000 a second";

/// A number of messages in a time, from one a day to 1,000,000 a second.
///
/// ```
/// use tickwheel_delivery::Rate;
/// assert_eq!(Rate::parse("100/s")?, Rate { messages: 100, per_us: 1_000_000 });
/// assert_eq!(Rate::parse("30/min")?.per_s(), 0.5);
/// assert!(Rate { messages: 0, per_us: 1_000_000 }.check().is_err());
/// # Ok::<(), tickwheel_delivery::DeliveryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The messages.
    pub messages: u64,
    /// The time.
    pub per_us: u64,
}

impl Rate {
    /// Checks that the rate is within bounds.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`], which names the bounds.
    pub fn check(self) -> Result<(), DeliveryError> {
        let (messages, per_us) = (u128::from(self.messages), u128::from(self.per_us));
        if messages * DAY_US >= per_us && per_us > 0 && messages * SECOND_US <= MOST_IN_SECOND * per_us {
            return Ok(());
        }
        let (messages, per) = (with_commas(self.messages as usize), Duration::from_micros(self.per_us));
        Err(DeliveryError::Usage(format!("rate is {messages} in {per:?}: {BETWEEN}")))
    }

    /// Reads `N/s`, `N/min`, `N/h` or `N/day`. `N` may have up to three decimals.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the text is none, or not within bounds.
    pub fn parse(text: &str) -> Result<Self, DeliveryError> {
        let usage = || {
            let text = quoted(text, 40);
            DeliveryError::Usage(format!("the rate {text} is none: write it as 100/s, 0.5/min, 500/h or 1/day"))
        };
        let (count, unit) = text.split_once('/').ok_or_else(usage)?;
        let per_s = match unit {
            "s" => 1,
            "min" => 60,
            "h" => 3_600,
            "day" => 86_400,
            _ => return Err(usage()),
        };
        let (whole, decimals) = count.split_once('.').unwrap_or((count, ""));
        let digits = [whole, decimals].concat();
        if decimals.len() > MOST_DECIMALS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(usage());
        }
        let per_us = per_s * 1_000_000 * 10_u64.pow(decimals.len() as u32);
        let rate = Self { messages: digits.parse().map_err(|_| usage())?, per_us };
        rate.check().map_err(|_| DeliveryError::Usage(format!("rate is {}: {BETWEEN}", quoted(text, 40))))?;
        Ok(rate)
    }

    /// Messages in a second.
    #[must_use]
    pub fn per_s(self) -> f64 {
        self.messages as f64 * SECOND_US as f64 / self.per_us as f64
    }

    /// How many messages go out at once after a quiet time.
    fn burst(self) -> u128 {
        (u128::from(self.messages) * BURST_US / u128::from(self.per_us)).max(1)
    }
}

/// Whether messages may go out now, and how many. Without a rate, all may go out.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bucket: Option<Bucket>,
    /// There was no token, and the alarm has not fired.
    is_waiting: bool,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// Parts of tokens, as of `at_us`.
    parts: u128,
    at_us: u64,
}

impl Pace {
    /// Starts with a full bucket. `now_us` is on a clock without steps.
    pub(crate) fn new(rate: Option<Rate>, now_us: u64) -> Self {
        let full = |rate: Rate| Bucket { rate, parts: rate.burst() * u128::from(rate.per_us), at_us: now_us };
        Self { bucket: rate.map(full), is_waiting: false }
    }

    /// Changes the rate. The bucket is as full as before, so that changes bring no bursts. Without a rate before, it is full.
    pub(crate) fn set(&mut self, rate: Option<Rate>, now_us: u64) {
        let before = self.bucket.take();
        *self = Self::new(rate, now_us);
        if let Some((bucket, before)) = self.bucket.as_mut().zip(before) {
            bucket.parts = bucket.parts * before.parts(now_us) / before.most();
        }
    }

    /// Whether sending does not wait for an alarm.
    pub(crate) fn may_send(&self) -> bool {
        !self.is_waiting
    }

    /// How many messages may go out now.
    pub(crate) fn tokens(&self, now_us: u64) -> usize {
        let Some(bucket) = &self.bucket else { return usize::MAX };
        usize::try_from(bucket.parts(now_us) / u128::from(bucket.rate.per_us)).unwrap_or(usize::MAX)
    }

    /// Whether it is as new.
    pub(crate) fn is_rested(&self, now_us: u64) -> bool {
        self.bucket.as_ref().is_none_or(|it| it.parts(now_us) == it.most()) && !self.is_waiting
    }

    /// Takes the tokens of these messages. There must be enough tokens.
    pub(crate) fn spend(&mut self, messages: usize, now_us: u64) {
        if let Some(bucket) = &mut self.bucket {
            let parts = bucket.parts(now_us) - messages as u128 * u128::from(bucket.rate.per_us);
            (bucket.parts, bucket.at_us) = (parts, bucket.at_us.max(now_us));
        }
    }

    /// Makes sending wait until [`Pace::goes_on`]. Returns how long the wait should last.
    pub(crate) fn wait_us(&mut self, now_us: u64) -> u64 {
        self.is_waiting = true;
        self.bucket.as_ref().map_or(0, |bucket| bucket.empty_for_us(now_us))
    }

    /// The alarm has fired.
    pub(crate) fn goes_on(&mut self) {
        self.is_waiting = false;
    }
}

impl Bucket {
    /// The parts of a full one.
    fn most(&self) -> u128 {
        self.rate.burst() * u128::from(self.rate.per_us)
    }

    /// The parts that are in it now.
    fn parts(&self, now_us: u64) -> u128 {
        let came = u128::from(now_us.saturating_sub(self.at_us)) * u128::from(self.rate.messages);
        (self.parts + came).min(self.most())
    }

    /// The time until there is a token, and at least the tokens of [`GATHER_US`].
    fn empty_for_us(&self, now_us: u64) -> u64 {
        let messages = u128::from(self.rate.messages);
        let wanted = u128::from(self.rate.per_us).max(messages * GATHER_US);
        u64::try_from(wanted.saturating_sub(self.parts(now_us)).div_ceil(messages)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_US: u64 = 7_000_000;

    fn per_second(messages: u64) -> Rate {
        Rate { messages, per_us: 1_000_000 }
    }

    /// Sends as soon as possible, one by one or as many as the tokens allow. Returns when each message went out.
    fn sent_us(rate: Rate, is_one_by_one: bool, until_us: u64) -> Vec<u64> {
        let (mut pace, mut now_us, mut sent) = (Pace::new(Some(rate), START_US), START_US, Vec::new());
        while now_us <= START_US + until_us {
            let tokens = pace.tokens(now_us);
            if tokens == 0 {
                now_us += pace.wait_us(now_us);
                assert!(!pace.may_send());
                pace.goes_on();
                assert!(pace.tokens(now_us) > 0, "the alarm comes when there is a token");
                continue;
            }
            let count = if is_one_by_one { 1 } else { tokens };
            pace.spend(count, now_us);
            sent.extend(std::iter::repeat_n(now_us - START_US, count));
        }
        sent
    }

    #[test]
    fn the_example_of_the_module_holds__d18() {
        assert_eq!(sent_us(per_second(50), true, 60_000), [0, 0, 0, 0, 0, 20_000, 40_000, 60_000]);
    }

    #[test]
    fn changes_of_the_rate_bring_no_burst__d18() {
        let hourly = |messages| Some(Rate { messages, per_us: 3_600_000_000 });
        let mut pace = Pace::new(hourly(100), 0);
        pace.spend(1, 0);
        for messages in [101, 100, 1, 100] {
            pace.set(hourly(messages), 0);
            assert_eq!(pace.tokens(0), 0, "{messages}");
        }
        assert_eq!(pace.tokens(36_000_000), 1);
        pace.set(Some(per_second(1_000)), 36_000_000);
        assert_eq!(pace.tokens(36_000_000), 100, "it was full");
    }

    #[test]
    fn a_slow_rate_sends_one_at_a_time_however_long_it_was_quiet__d18() {
        let hour_us = 3_600_000_000;
        assert_eq!(sent_us(Rate { messages: 1, per_us: hour_us }, false, 2 * hour_us), [0, hour_us, 2 * hour_us]);
        let mut pace = Pace::new(Some(per_second(1)), 0);
        pace.spend(1, 0);
        assert_eq!(pace.tokens(1_000 * hour_us), 1);
    }

    #[test]
    fn no_time_has_more_than_the_burst_and_the_rate_and_none_is_lost__d18() {
        let third = Rate { messages: 1, per_us: 3_000_000 };
        let odd = Rate { messages: 7, per_us: 300_007 };
        for rate in [third, odd, per_second(1), per_second(33), per_second(999), per_second(100_000)] {
            for is_one_by_one in [false, true] {
                let until_us = 10_000 * rate.per_us / rate.messages;
                let sent = sent_us(rate, is_one_by_one, until_us);
                let (messages, per_us) = (u128::from(rate.messages), u128::from(rate.per_us));
                let allowed = |us: u64| rate.burst() * per_us + u128::from(us) * messages;
                for first in [0, 1, sent.len() / 3, sent.len() / 2] {
                    for last in first..sent.len() {
                        let count = (last - first + 1) as u128;
                        assert!(count * per_us <= allowed(sent[last] - sent[first]), "{rate:?} {first} {last}");
                    }
                }
                let least = (allowed(until_us - 2_000) / per_us).saturating_sub(1);
                assert!(sent.len() as u128 >= least, "{rate:?}: {} of {least}", sent.len());
            }
        }
    }

    #[test]
    fn whenever_messages_come_no_time_has_more_than_the_burst_and_the_rate__d18() {
        let mut random = fastrand::Rng::with_seed(5);
        for rate in [Rate { messages: 1, per_us: 3_000_000 }, Rate { messages: 7, per_us: 300_007 }, per_second(200)] {
            let (mut pace, mut now_us, mut sent) = (Pace::new(Some(rate), 0), 0, Vec::new());
            while sent.len() < 500 {
                let most_us = [1, 300, 20_000_000][random.usize(0..3)];
                now_us += random.u64(0..most_us);
                let count = random.usize(0..=pace.tokens(now_us).min(30));
                pace.spend(count, now_us);
                sent.extend(std::iter::repeat_n(now_us, count));
            }
            let (messages, per_us) = (u128::from(rate.messages), u128::from(rate.per_us));
            for (last, last_us) in sent.iter().enumerate() {
                for (first, first_us) in sent[..=last].iter().enumerate() {
                    let allowed = rate.burst() * per_us + u128::from(last_us - first_us) * messages;
                    assert!((last - first + 1) as u128 * per_us <= allowed, "{rate:?} {first} {last}");
                }
            }
        }
    }

    #[test]
    fn a_late_wake_up_costs_nothing_up_to_100_ms__d18() {
        let mut pace = Pace::new(Some(per_second(1_000)), 0);
        assert_eq!(pace.tokens(0), 100);
        pace.spend(100, 0);
        assert_eq!(pace.tokens(100_000), 100);
        pace.spend(100, 100_000);
        assert_eq!(pace.tokens(300_000), 100, "what comes later than that is lost");
    }

    #[test]
    fn a_fast_rate_wakes_once_in_a_millisecond__d18() {
        let mut pace = Pace::new(Some(per_second(100_000)), 0);
        pace.spend(10_000, 0);
        assert_eq!(pace.wait_us(0), 1_000);
        pace.goes_on();
        assert_eq!(pace.tokens(1_000), 100);
    }

    #[test]
    fn a_clock_that_seems_to_go_back_brings_nothing__d18() {
        let mut pace = Pace::new(Some(per_second(1)), 5_000_000);
        pace.spend(1, 5_000_000);
        assert_eq!((pace.tokens(0), pace.tokens(5_999_999), pace.tokens(6_000_000)), (0, 0, 1));
    }

    #[test]
    fn without_a_rate_all_goes_out__d18() {
        let mut pace = Pace::default();
        assert_eq!(pace.tokens(0), usize::MAX);
        pace.spend(usize::MAX, 0);
        assert_eq!(pace.tokens(0), usize::MAX);
        assert!(pace.may_send());
    }

    #[test]
    fn a_text_is_an_exact_rate_or_is_refused__d18() {
        let read = |text: &str| Rate::parse(text).map(|rate| (rate.messages, rate.per_us)).ok();
        assert_eq!(read("100000/s"), Some((100_000, 1_000_000)));
        assert_eq!(read("0.125/h"), Some((125, 3_600_000_000_000)));
        assert_eq!(read("1/day"), Some((1, 86_400_000_000)));
        for none in ["", "5", "5/", "/s", "./s", "-5/s", "+5/s", "5/s\n", "1.0001/s", "1.+5/s", "\u{665}/s", "5/year"] {
            assert!(
                Rate::parse(none).unwrap_err().to_string().contains("is none: write it as 100/s, 0.5/min"),
                "{none}"
            );
        }
        for out in ["0/s", "1000000.001/s", "0.041/h", "0.999/day"] {
            assert!(Rate::parse(out).unwrap_err().to_string().contains("it may be one a day to 1,000,000"), "{out}");
        }
        let longest = Rate::parse("86400000000.000/day").ok();
        let mut pace = Pace::new(longest, 0);
        pace.set(longest, u64::MAX); // it does not overflow
        assert_eq!(pace.tokens(u64::MAX), 100_000);
    }

    #[test]
    fn a_rate_out_of_bounds_is_named__d18() {
        let rate = |messages, per_us| Rate { messages, per_us };
        for good in [rate(1, 1), rate(1, 86_400_000_000), per_second(1_000_000), rate(u64::MAX, u64::MAX)] {
            assert!(good.check().is_ok(), "{good:?}");
        }
        let wrong =
            [rate(0, 1_000_000), rate(1, 0), rate(0, 0), rate(2, 1), rate(1, 86_400_000_001), rate(u64::MAX, 1)];
        for wrong in wrong {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let text = per_second(0).check().unwrap_err().to_string();
        assert_eq!(text, "rate is 0 in 1s: it may be one a day to 1,000,000 a second");
    }
}
