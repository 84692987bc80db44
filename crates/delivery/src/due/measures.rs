//! Measures of an engine's work, for the metrics of `GET /metrics` (rule D15). They cost a few additions for each
//! message. If a number needs a search, it is counted when it is asked for.
//!
//! The dispatcher updates [`SendMeasures`] under its lock. The writer updates [`CommitMeasures`].

use hdrhistogram::Histogram as HdrHistogram;

use crate::sinks::Verdict;

/// The upper bounds of the buckets of a [`Histogram`], in microseconds. A bound belongs to its bucket. One more bucket
/// has the longer durations.
pub const BOUNDS_US: [i64; 18] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The reason of a send that was cut off.
pub(crate) const NO_ANSWER_IN_TIME: &str = "no answer in time";

/// Durations in fixed buckets, from a tenth of a millisecond to a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many durations are in each bucket.
    pub counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations in microseconds.
    pub sum_us: i64,
}

impl Histogram {
    pub(crate) fn add(&mut self, duration_us: i64) {
        self.counts[BOUNDS_US.partition_point(|bound| *bound < duration_us)] += 1;
        self.sum_us = self.sum_us.saturating_add(duration_us);
    }
}

/// Why an attempt failed. The set is fixed, because each cause is a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The send was cut off, or the sink reported a time-out.
    Timeout,
    /// The destination could not be reached.
    Unreachable,
    /// An HTTP status of 300 to 399.
    Status3xx,
    /// An HTTP status of 400 to 499.
    Status4xx,
    /// An HTTP status of 500 to 599.
    Status5xx,
    /// There was no answer about the message, and no other cause fits.
    Unanswered,
    /// The destination does not take the message, or a function raised an exception.
    Refused,
}

impl Cause {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::Unreachable,
        Self::Status3xx,
        Self::Status4xx,
        Self::Status5xx,
        Self::Unanswered,
        Self::Refused,
    ];

    /// The name of the cause in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Status3xx => "status_3xx",
            Self::Status4xx => "status_4xx",
            Self::Status5xx => "status_5xx",
            Self::Unanswered => "unanswered",
            Self::Refused => "refused",
        }
    }

    /// The cause, or `None` if the attempt did not fail or was not made. A status is found in the reason, which begins
    /// with `status 503`. So a program's own sink can report one too.
    fn of(verdict: &Verdict) -> Option<Self> {
        let (reason, other) = match verdict {
            Verdict::Delivered | Verdict::NotTried => return None,
            Verdict::Unreachable { .. } => return Some(Self::Unreachable),
            Verdict::Unanswered { reason, .. } if reason == NO_ANSWER_IN_TIME => return Some(Self::Timeout),
            Verdict::Unanswered { reason, .. } if reason.starts_with("TimeoutError") => return Some(Self::Timeout),
            Verdict::Failed { reason, .. } | Verdict::Unanswered { reason, .. } => (reason, Self::Unanswered),
            Verdict::Refused(reason) | Verdict::Impossible(reason) => (reason, Self::Refused),
        };
        Some(match reason.strip_prefix("status ").and_then(|status| status.bytes().next()) {
            Some(b'3') => Self::Status3xx,
            Some(b'4') => Self::Status4xx,
            Some(b'5') => Self::Status5xx,
            _ => other,
        })
    }
}

/// Numbers about sends, since the engine was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendMeasures {
    /// Attempts that ended: the message arrived, or the attempt failed.
    pub attempts: u64,
    /// Attempts that failed, in the order of [`Cause::ALL`].
    pub failures: [u64; Cause::ALL.len()],
    /// Messages that have arrived, and may have arrived before.
    pub redelivered: u64,
    /// Sends that took too long.
    pub cut_off: u64,
    /// How long a sink needed for each send.
    pub durations: Histogram,
    /// Since when the store's own destination is up, or down, on the timer's clock. `None`: it has none, and each message
    /// names one.
    pub changed_us: Option<u64>,
}

impl SendMeasures {
    pub(crate) fn arrived(&mut self, redelivered: bool) {
        self.attempts += 1;
        self.redelivered += u64::from(redelivered);
    }

    /// Counts an attempt that failed. [`SendMeasures::arrived`] counts one that arrived.
    pub(crate) fn ended(&mut self, verdict: &Verdict) {
        if let Some(cause) = Cause::of(verdict) {
            self.attempts += 1;
            self.failures[cause as usize] += 1;
        }
    }
}

/// Numbers about commits, since the engine was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitMeasures {
    /// How late the delivered messages were.
    pub lateness: Histogram,
    /// How long each transaction took, with the wait for the disk.
    pub durations: Histogram,
    /// When the last transaction ended, or the store was opened, in milliseconds since 1970.
    pub last_ms: i64,
}

/// Lateness of delivered messages in milliseconds, by nearest rank. `None` if no message was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Half of the messages were at most this late.
    pub p50: Option<f64>,
    /// 99 of 100 messages.
    pub p99: Option<f64>,
    /// 999 of 1,000 messages.
    pub p999: Option<f64>,
    /// All messages.
    pub max: Option<f64>,
}

/// The lateness of all messages, in the memory of a histogram. Percentiles are exact below 2 ms, and otherwise at most
/// a thousandth too large.
#[derive(Debug)]
pub(crate) struct Lateness {
    us: HdrHistogram<u64>,
    most_us: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { us: HdrHistogram::new(3).expect("three digits are allowed"), most_us: 0 }
    }
}

impl Lateness {
    pub(crate) fn add(&mut self, lateness_us: i64) {
        let us = u64::try_from(lateness_us).unwrap_or(0);
        self.most_us = self.most_us.max(us);
        let _ = self.us.record(us); // the histogram grows, and takes every value
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let ms = |us: u64| (!self.us.is_empty()).then(|| us.min(self.most_us) as f64 / 1_000.0);
        let at = |quantile: f64| ms(self.us.value_at_quantile(quantile));
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: ms(self.most_us) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_by_nearest_rank_to_a_thousandth__d11() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.percentiles(), Percentiles::default());
        for late_ms in [70, 4, 1, 3, 2] {
            lateness.add(late_ms * 1_000);
        }
        let found = lateness.percentiles();
        assert_eq!((found.p50, found.p99, found.max), (Some(3.001), Some(70.0), Some(70.0)));
        for late_us in [0, -1, i64::MAX] {
            lateness.add(late_us);
        }
        assert_eq!((lateness.us.len(), lateness.percentiles().max), (8, Some(i64::MAX as f64 / 1_000.0)));
        let mut random = fastrand::Rng::with_seed(7);
        let (mut lateness, mut all) = (Lateness::default(), Vec::new());
        for _ in 0..10_000 {
            let late_us = (random.f64() * 20.0).exp() as i64;
            lateness.add(late_us);
            all.push(late_us);
        }
        all.sort_unstable();
        let found = lateness.percentiles();
        for (per_mille, found) in [(500, found.p50), (990, found.p99), (999, found.p999), (1_000, found.max)] {
            let exact = all[per_mille * 10 - 1] as f64 / 1_000.0;
            assert!((found.unwrap() - exact).abs() <= exact / 1_000.0, "{per_mille}: {found:?}, {exact}");
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket__d15() {
        for (place, bound_us) in BOUNDS_US.iter().enumerate() {
            let mut histogram = Histogram::default();
            histogram.add(*bound_us);
            histogram.add(bound_us + 1);
            assert_eq!((histogram.counts[place], histogram.counts[place + 1]), (1, 1));
            assert_eq!((histogram.counts.iter().sum::<u64>(), histogram.sum_us), (2, 2 * bound_us + 1));
        }
    }

    #[test]
    fn each_failure_has_one_cause__d15() {
        let unanswered = |reason: &str| Verdict::Unanswered { reason: reason.to_owned(), retry_after_ms: None };
        let refused = |reason: &str| Verdict::Refused(reason.to_owned());
        let mut measures = SendMeasures::default();
        for (verdict, cause) in [
            (unanswered(NO_ANSWER_IN_TIME), Cause::Timeout),
            (unanswered("TimeoutError: too slow"), Cause::Timeout),
            (Verdict::Unreachable { reason: "status 503".to_owned(), retry_after_ms: None }, Cause::Unreachable),
            (refused("status 301, a redirect, which is not followed"), Cause::Status3xx),
            (unanswered("status 429: slowly"), Cause::Status4xx),
            (refused("status 410, without a text"), Cause::Status4xx),
            (unanswered("status 503"), Cause::Status5xx),
            (unanswered("the connection was closed"), Cause::Unanswered),
            (refused("ValueError: status 503"), Cause::Refused),
            (refused(""), Cause::Refused),
        ] {
            let before = measures.failures;
            measures.ended(&verdict);
            let changed: Vec<_> =
                Cause::ALL.iter().filter(|it| measures.failures[**it as usize] > before[**it as usize]).collect();
            assert_eq!(changed, [&cause], "{verdict:?}");
        }
        measures.ended(&Verdict::Delivered);
        measures.ended(&Verdict::NotTried);
        assert_eq!((measures.attempts, measures.failures.iter().sum::<u64>()), (10, 10));
    }

    #[test]
    fn the_causes_stand_in_the_order_of_their_numbers__d15() {
        assert!(Cause::ALL.iter().enumerate().all(|(place, cause)| *cause as usize == place));
    }
}
