//! T13: the limits of the range, and a century.

use tickwheel::{Clock, Config, Error, LIMIT_MS, LIMIT_US, Precision, Timer, When};

use crate::support::Manual;

#[test]
fn the_last_millisecond_of_the_range_behaves_like_any_other__t13() {
    for sizes in [&[20][..], &[2], &[65_536], &[3, 64]] {
        let wheel = Manual::new(1, sizes, 0, Precision::Exact);
        wheel.timer.add(When::AtUs(LIMIT_US - 1), 0).unwrap();
        wheel.after_ms(1, 1);
        assert_eq!(wheel.step_to_us(LIMIT_US - 2), [(1_000, 1)]);
        assert_eq!(wheel.step_to_us(LIMIT_US - 1), [(LIMIT_US - 1, 0)]);
    }
}

#[test]
fn an_instant_past_the_range_is_refused_and_nothing_is_lost__t13() {
    let wheel = Manual::standard();
    let handle = wheel.after_ms(5, 0);
    for when in [When::AtUs(LIMIT_US), When::AfterUs(LIMIT_US), When::AfterUs(u64::MAX), When::AtUs(u64::MAX)] {
        let error = wheel.timer.add(when, 1).unwrap_err();
        assert!(error.to_string().contains("2^52"), "{error}");
        assert!(wheel.timer.reschedule(handle, when).is_err());
    }
    assert_eq!(wheel.wake_at_us(5_000), [0]);
}

#[test]
fn settings_out_of_range_are_refused_with_what_is_allowed__t13() {
    let refused =
        |config: Config, start_ms| Timer::<()>::new(&config, Clock::manual(start_ms)).unwrap_err().to_string();
    let standard = Config::default;
    let cases = [
        (refused(Config { tick_ms: 0, ..standard() }, 0), "tick_ms must be from 1 to 4503599627370495, got 0"),
        (refused(Config { tick_ms: LIMIT_MS, ..standard() }, 0), "tick_ms must be from 1"),
        (refused(Config { wheel_sizes: vec![20, 1], ..standard() }, 0), "wheel_size must be from 2 to 65536, got 1"),
        (refused(Config { wheel_sizes: vec![65_537], ..standard() }, 0), "got 65537"),
        (refused(Config { wheel_sizes: vec![], ..standard() }, 0), "at least one level"),
        (refused(Config { slack_us: u64::MAX, max_slack_us: u64::MAX, ..standard() }, 0), "slack_us must be below"),
        (refused(Config { max_pending: Some(0), ..standard() }, 0), "max_pending must be at least 1"),
        (refused(standard(), LIMIT_MS), "a clock must start before 2^52 ms"),
    ];
    for (text, expected) in cases {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_full_timer_refuses_an_add_but_never_a_move__t17() {
    let config = Config { max_pending: Some(2), ..Config::default() };
    let timer = Timer::new(&config, Clock::manual(0)).unwrap();
    let first = timer.add(When::AfterUs(1), 'a').unwrap();
    timer.add(When::AfterUs(2), 'b').unwrap();
    let refused = timer.add(When::AfterUs(3), 'c').unwrap_err();
    assert_eq!((refused.error(), refused.to_string().is_empty()), (&Error::Full { max_pending: 2 }, false));
    assert_eq!(refused.into_task(), 'c');
    assert!(timer.reschedule(first, When::AfterUs(9)).unwrap());
    assert_eq!(timer.len(), 2);
}

#[test]
fn the_largest_tick_and_the_largest_wheel_do_not_overflow__t13() {
    for (tick_ms, size) in [(LIMIT_MS - 1, 65_536), (LIMIT_MS - 1, 2), (1 << 40, 65_536)] {
        let wheel = Manual::new(tick_ms, &[size], 0, Precision::Exact);
        wheel.timer.add(When::AtUs(LIMIT_US - 1), 0).unwrap();
        wheel.after_ms(1, 1);
        assert_eq!(wheel.step_to_us(LIMIT_US - 1), [(1_000, 1), (LIMIT_US - 1, 0)]);
    }
}

/// 36,525 days with tasks of all delays, from start times next to the boundary of every level.
#[test]
fn a_century_passes_from_a_start_beside_every_levels_boundary__t13() {
    const DAY_MS: u64 = 86_400_000;
    const CENTURY_DAYS: u64 = 36_525;
    let boundaries = (1..=12).map(|level| 20_u64.pow(level));
    let starts: Vec<u64> = boundaries.flat_map(|edge| [edge - 1, edge, edge + 1]).filter(|ms| *ms < 1 << 51).collect();
    assert!(starts.len() >= 30);
    for start_ms in starts {
        let wheel = Manual::new(1, &[20], start_ms, Precision::Exact);
        wheel.after_ms(CENTURY_DAYS * DAY_MS, u32::MAX);
        // Every 7th day, so that the days are at different places of the levels.
        for day in (0..CENTURY_DAYS).step_by(7) {
            let now_us = (start_ms + day * DAY_MS) * 1000;
            assert_eq!(wheel.wake_at_us(now_us).len(), usize::from(day > 0), "start {start_ms}, day {day}");
            wheel.after_ms(7 * DAY_MS - 1, day as u32);
        }
        assert_eq!(wheel.timer.len(), 2);
        let ran = wheel.step_to_us((start_ms + CENTURY_DAYS * DAY_MS) * 1000);
        assert_eq!(ran.last(), Some(&((start_ms + CENTURY_DAYS * DAY_MS) * 1000, u32::MAX)));
    }
}

#[test]
fn a_cancel_of_many_returns_exactly_the_tasks_that_will_not_run__t9() {
    let wheel = Manual::standard();
    let mut handles: Vec<_> = (0..1000).map(|tag| wheel.after_ms(5, tag)).collect();
    assert!(wheel.timer.cancel(handles[0]).is_some());
    handles.push(handles[7]);
    let cancelled = wheel.timer.cancel_many(&handles);
    let expected: Vec<_> = (0..1000).map(|tag| (tag > 0).then_some(tag)).chain([None]).collect();
    assert_eq!(cancelled, expected, "each handle's own answer");
    assert!(wheel.timer.is_empty() && wheel.timer.cancel_many(&handles).iter().all(Option::is_none));
    assert!(wheel.wake_at_us(5_000).is_empty());
}
