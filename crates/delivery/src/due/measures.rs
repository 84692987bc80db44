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

/// The kinds of failed attempts, as the metrics name them. The set is fixed, because each is a time series.
pub const CAUSES: [&str; 4] = ["unreachable", "unanswered", "failed", "refused"];

/// The place of its cause in [`CAUSES`]; `None` if the attempt did not fail or was not made.
pub(crate) fn cause_of(verdict: &Verdict) -> Option<usize> {
    match verdict {
        Verdict::Delivered | Verdict::NotTried => None,
        Verdict::Unreachable { .. } => Some(0),
        Verdict::Unanswered { .. } => Some(1),
        Verdict::Failed { .. } => Some(2),
        Verdict::Refused(_) | Verdict::Final(_) => Some(3),
    }
}

/// Numbers about sends, since the engine was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendMeasures {
    /// Attempts that ended: the message arrived, or the attempt failed.
    pub attempts: u64,
    /// Attempts that failed, in the order of [`CAUSES`].
    pub failures: [u64; CAUSES.len()],
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
        if let Some(cause) = cause_of(verdict) {
            self.attempts += 1;
            self.failures[cause] += 1;
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
        let (reason, retry_after_ms) = (String::new, None);
        let mut measures = SendMeasures::default();
        for (verdict, cause) in [
            (Verdict::Unreachable { reason: reason(), retry_after_ms }, "unreachable"),
            (Verdict::Unanswered { reason: reason(), retry_after_ms }, "unanswered"),
            (Verdict::Failed { reason: reason(), retry_after_ms }, "failed"),
            (Verdict::Refused(reason()), "refused"),
            (Verdict::Final(reason()), "refused"),
        ] {
            let before = measures.failures;
            measures.ended(&verdict);
            let changed = (0..CAUSES.len()).filter(|it| measures.failures[*it] > before[*it]);
            assert_eq!(changed.map(|it| CAUSES[it]).collect::<Vec<_>>(), [cause], "{verdict:?}");
        }
        measures.ended(&Verdict::Delivered);
        measures.ended(&Verdict::NotTried);
        assert_eq!((measures.attempts, measures.failures), (5, [1, 1, 1, 2]));
    }
}
