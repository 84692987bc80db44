//! When the calls of a series are due.

use super::*;

fn occurrences(every: Every) -> Occurrences {
    Occurrences::new(&every, (0, 0)).expect("the settings are allowed")
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The dues of the next calls; each ends as soon as it is due.
fn dues(mut occurrences: Occurrences, count: usize) -> Vec<u64> {
    let next = || {
        let due_us = occurrences.due_us()?;
        occurrences.end_call((due_us, due_us));
        Some(due_us)
    };
    std::iter::from_fn(next).take(count).collect()
}

/// The example above.
#[test]
fn calls_that_were_missed_are_left_out_or_made_up_for_or_made_once__t20() {
    let every = Every { start: Some(ms(110).into()), ..Every::new(ms(10)) };
    for (missed, then) in [
        (Missed::Skip, vec![140_000, 150_000]),
        (Missed::Last, vec![130_000, 140_000]),
        (Missed::All, vec![120_000, 130_000, 140_000]),
    ] {
        let mut occurrences = occurrences(Every { missed, ..every });
        for (number, due_us) in then.iter().enumerate() {
            occurrences.end_call((134_000, 134_000));
            assert_eq!(occurrences.due_us(), Some(*due_us), "{missed:?}, {number}");
        }
    }
}

#[test]
fn a_gap_counts_from_the_end_of_a_call_rounded_up__t20() {
    let mut occurrences = occurrences(Every::with_gap(ms(10)));
    assert_eq!(occurrences.due_us(), Some(10_000));
    occurrences.end_call((34_000, 34_001));
    assert_eq!(occurrences.due_us(), Some(44_001));
    occurrences.resume((99_000, 99_001));
    assert_eq!(occurrences.due_us(), Some(109_001), "a pause counts as a call");
}

#[test]
fn a_series_ends_after_so_many_calls_or_at_a_time__t20() {
    for every in [Every { from_end: true, ..Every::new(ms(10)) }, Every::new(ms(10))] {
        assert_eq!(dues(occurrences(Every { times: Some(3), ..every }), 9), [10_000, 20_000, 30_000]);
        let until = Some(When::AtUs(20_000));
        assert_eq!(dues(occurrences(Every { until, ..every }), 9), [10_000, 20_000]);
    }
}

#[test]
fn a_call_that_was_added_beside_the_last_one_leaves_none__t20() {
    let mut last = occurrences(Every { times: Some(1), ..Every::new(ms(1)) });
    last.end_call((1_000, 1_000));
    last.end_call((1_500, 1_500));
    assert_eq!(last.due_us(), None);
}

#[test]
fn what_was_due_during_a_pause_is_left_out__t20() {
    for missed in [Missed::All, Missed::Skip, Missed::Last] {
        let mut occurrences = occurrences(Every { missed, ..Every::new(ms(10)) });
        occurrences.resume((9_000, 9_000));
        assert_eq!(occurrences.due_us(), Some(10_000));
        occurrences.resume((35_000, 35_000));
        assert_eq!(occurrences.due_us(), Some(40_000));
    }
}

#[test]
fn a_start_in_the_past_keeps_its_instants__t20() {
    let every = Every { start: Some(When::AtUs(5_000)), ..Every::new(ms(10)) };
    let occurrences = Occurrences::new(&every, (37_000, 37_000)).expect("the settings are allowed");
    assert_eq!(occurrences.due_us(), Some(45_000));
}

#[test]
fn a_call_that_is_due_right_now_was_not_missed__t20() {
    for (now_us, due_us) in [(30_000, 30_000), (30_001, 40_000)] {
        let mut occurrences = occurrences(Every::new(ms(10)));
        assert_eq!(occurrences.due_us(), Some(10_000), "one period from now");
        occurrences.end_call((now_us, now_us));
        assert_eq!(occurrences.due_us(), Some(due_us));
    }
}

#[test]
fn a_call_comes_neither_before_its_instant_nor_after_its_jitter_and_nothing_drifts__t20() {
    let every = Every { start: Some(ms(0).into()), jitter: ms(4), ..Every::new(ms(10)) };
    let found = dues(occurrences(every), 1000);
    let late: Vec<_> = found.iter().zip(0..).map(|(due_us, number)| due_us - number * 10_000).collect();
    assert!(late.iter().all(|late_us| *late_us <= 4_000));
    assert!(late.iter().any(|late_us| *late_us < 1_000) && late.iter().any(|late_us| *late_us > 3_000));
    let occurrences = occurrences(every);
    for number in 0..1000 {
        let due_us = occurrences.due_of(number);
        assert_eq!(occurrences.first_from(due_us), number, "it is still to come at its own instant");
        assert_eq!(occurrences.first_from(due_us + 1), number + 1);
    }
    let gaps = dues(self::occurrences(Every { from_end: true, ..every }), 1000);
    let late: Vec<_> = gaps.windows(2).map(|two| two[1] - two[0] - 10_000).collect();
    assert!(late.iter().all(|late_us| *late_us <= 4_000));
    assert!(late.iter().any(|late_us| *late_us < 1_000) && late.iter().any(|late_us| *late_us > 3_000));
}

#[test]
fn the_last_instants_of_the_range_do_not_overflow__t13() {
    let longest = Duration::from_micros(LIMIT_US - 1);
    for from_end in [false, true] {
        let every = Every { start: Some(When::AtUs(u64::MAX)), from_end, ..Every::new(longest) };
        let mut occurrences = occurrences(every);
        for _ in 0..2 {
            assert_eq!(occurrences.due_us(), Some(u64::MAX));
            occurrences.end_call((u64::MAX, u64::MAX));
            occurrences.resume((u64::MAX, u64::MAX));
        }
    }
}

#[test]
fn a_period_of_nothing_and_a_jitter_of_a_period_are_refused__t13() {
    for (every, says) in [
        (Every::new(Duration::ZERO), "the period must be a microsecond or more, got 0"),
        (Every::new(Duration::MAX), "the period must be below 2^52 ms, got 18446744073709551 ms"),
        (
            Every { jitter: ms(1), ..Every::new(ms(1)) },
            "the jitter must be shorter than the period of 1000 us, got 1000 us",
        ),
        (Every { times: Some(0), ..Every::new(ms(1)) }, "a series has a call or more, got 0 times"),
        (
            Every { until: Some(When::AtUs(9)), ..Every::new(ms(1)) },
            "the first call is due at 1000 us, after the end at 9 us: give a later end",
        ),
    ] {
        let error = Occurrences::new(&every, (0, 0)).expect_err(says);
        assert!(error.to_string().starts_with(says), "{error}");
    }
}
