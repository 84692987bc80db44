//! Counters of a timer, and the histogram of its lateness.

/// Classes per doubling of the histogram: a class is at most an eighth wide.
const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;

/// What a timer has done since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tasks that were added. A move counts as moved, not as added.
    pub added: u64,
    /// Pending tasks that were added again.
    pub moved: u64,
    /// Tasks that were cancelled in time.
    pub cancelled: u64,
    /// Tasks that were claimed, to be run.
    pub expired: u64,
    /// How many entries left each level for a lower one or for the front; of large buckets, cancelled ones too.
    pub cascaded: Vec<u64>,
    /// How often the thread that drives the timer woke up.
    pub wake_ups: u64,
    /// Tasks not yet released.
    pub pending: usize,
    /// Tasks that wait on the executor's queue.
    pub executor_depth: usize,
    /// Callbacks that run now.
    pub running: usize,
    /// Lateness of the calls, as (upper bound in microseconds, calls), without the empty classes.
    pub lateness_us: Vec<(u64, u64)>,
}

/// Counts by size, in classes an eighth wide; 0 to 7 have a class each. Recording costs a few nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    classes: Vec<u64>,
}

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        let class = class_of(value);
        match self.classes.get_mut(class) {
            Some(count) => *count += 1,
            None => self.begin(class),
        }
    }

    /// Records the first value of a class above all others.
    #[cold]
    fn begin(&mut self, class: usize) {
        self.classes.resize(class, 0);
        self.classes.push(1);
    }

    pub(crate) fn classes(&self) -> Vec<(u64, u64)> {
        let filled = self.classes.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(class, count)| (upper_bound(class as u64), *count)).collect()
    }
}

fn class_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (u64::from(shift) * SUB + (value >> shift)) as usize
}

/// The largest value of a class.
fn upper_bound(class: u64) -> u64 {
    if class < 2 * SUB {
        return class;
    }
    let shift = class / SUB - 1;
    ((class % SUB + SUB + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_in_a_class_that_is_at_most_an_eighth_wide() {
        for value in (0..5000).chain([65_535, 65_536, 1 << 40, (1 << 52) - 1]) {
            let bound = upper_bound(class_of(value) as u64);
            assert!(value <= bound && bound - value <= value / 8, "{value} in a class up to {bound}");
        }
    }

    #[test]
    fn a_histogram_lists_only_filled_classes() {
        let mut histogram = Histogram::default();
        for value in [3, 3, 100] {
            histogram.record(value);
        }
        assert_eq!(histogram.classes(), [(3, 2), (103, 1)]);
    }
}
