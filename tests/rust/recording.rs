//! Recordings, and their replay on any wheel: a replay gives the figures that the wheel itself would have given.

use tickwheel::{Config, Event, EventKind, Handle, Precision, Replay, Replayed, Stats, When};

use crate::support::{Manual, Random, released};

/// The settings in which the wheels of a test differ.
type Shape<'a> = (u64, &'a [u32], Precision);

const SHAPES: [Shape<'static>; 10] = [
    (1, &[20], Precision::Exact),
    (1, &[20], Precision::Tick),
    (5, &[20], Precision::Exact),
    (5, &[20], Precision::Tick),
    (1, &[2], Precision::Exact),
    (1, &[64], Precision::Exact),
    (1, &[256], Precision::Tick),
    (10, &[256], Precision::Exact),
    (10, &[4, 20], Precision::Tick),
    (1000, &[60, 60, 12], Precision::Exact),
];

fn config((tick_ms, sizes, precision): Shape) -> Config {
    Config { tick_ms, wheel_sizes: sizes.into(), precision, slack_us: 0, max_slack_us: 0, ..Config::default() }
}

fn replay(shape: Shape, events: &[Event], until_us: u64) -> Replayed {
    let mut replay = Replay::new(&config(shape)).unwrap();
    events.chunks(7).for_each(|events| replay.feed(events).unwrap());
    replay.finish(until_us)
}

fn event(at_us: u64, kind: EventKind, number: u64, due_us: u64) -> Event {
    Event { at_us, number, due_us, other: 0, kind, level: 0 }
}

/// Random calls on a new wheel, driven as by a reaper that is always on time.
fn traffic(wheel: &Manual, seed: u64, unit_us: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut live: Vec<Handle> = Vec::new();
    for id in 0..400 {
        let step_us = random.pick(&[0, 0, 1, 3, 40, 900]) * unit_us;
        if step_us > 0 {
            wheel.reap_to_us(wheel.now_us() + step_us);
        }
        let when = When::AfterUs(random.pick(&[0, 1, 7, 30, 400, 9_000]) * unit_us + random.below(5) * unit_us);
        match random.below(6) {
            0..=2 => live.push(wheel.timer.add(when, id).unwrap()),
            3 => live.extend((0..5).map(|_| wheel.timer.add(when, id).unwrap())),
            4 if !live.is_empty() => {
                let handle = live.swap_remove(random.below(live.len() as u64) as usize);
                wheel.timer.cancel(handle);
            }
            _ if !live.is_empty() => {
                let of = random.below(live.len() as u64) as usize;
                if !wheel.timer.reschedule(live[of], when).unwrap() {
                    live.swap_remove(of);
                }
            }
            _ => {}
        }
    }
    wheel.reap_to_us(wheel.now_us() + 2_000 * unit_us);
    wheel.now_us()
}

/// The figures that both have. A wheel on a manual clock has no wake-ups.
fn counts(stats: &Stats) -> [u64; 4] {
    [stats.added, stats.moved, stats.cancelled, stats.expired]
}

/// A task that was moved to a later time, or whose slot was used again, is placed when its old bucket is looked at. When that is
/// depends on when the next instant was asked for, so a few may go by way of other levels.
fn assert_cascaded_alike(replayed: &Stats, stats: &Stats, case: &str) {
    assert_eq!(replayed.cascaded.len(), stats.cascaded.len(), "{case}");
    let total: u64 = stats.cascaded.iter().sum();
    let apart: u64 = replayed.cascaded.iter().zip(&stats.cascaded).map(|(one, other)| one.abs_diff(*other)).sum();
    assert!(apart <= 1 + total / 100, "{case}: {:?} {:?}", replayed.cascaded, stats.cascaded);
}

/// The counters, computed from the events.
fn counters_of(events: &[Event]) -> Stats {
    let mut stats = Stats::default();
    for event in events {
        match event.kind {
            EventKind::Added => stats.added += 1,
            EventKind::Moved => stats.moved += 1,
            EventKind::Cancelled => stats.cancelled += 1,
            EventKind::Expired => stats.expired += 1,
            EventKind::Woke => stats.wake_ups += 1,
            EventKind::Cascaded => {
                let level = usize::from(event.level);
                stats.cascaded.resize(stats.cascaded.len().max(level), 0);
                stats.cascaded[level - 1] += event.other;
            }
        }
    }
    stats
}

fn wheel(shape: Shape, start_ms: u64) -> Manual {
    let (tick_ms, sizes, precision) = shape;
    Manual::new(tick_ms, sizes, start_ms, precision)
}

#[test]
fn a_recording_and_its_replay_agree_with_the_counters() {
    for seed in 0..30 {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let wheel = wheel(shape, 17 * seed);
        assert!(wheel.timer.record(usize::MAX));
        let until_us = traffic(&wheel, seed, 1000);
        let recorded = wheel.timer.stop_recording();
        let replayed = replay(shape, &recorded.chunks.concat(), until_us);
        assert_eq!((counts(&replayed.stats), replayed.unknown), (counts(&wheel.timer.stats()), 0), "seed {seed}");
        assert_cascaded_alike(&replayed.stats, &wheel.timer.stats(), &format!("seed {seed}"));
        let (counters, stats) = (counters_of(&recorded.chunks.concat()), wheel.timer.stats());
        assert_eq!((counts(&counters), recorded.lost), (counts(&stats), 0), "seed {seed}");
        let cascaded: Vec<_> =
            counters.cascaded.iter().copied().chain(std::iter::repeat(0)).take(stats.cascaded.len()).collect();
        assert_eq!(cascaded, stats.cascaded, "seed {seed}");
        assert!(stats.moved > 0 && stats.cancelled > 0 && stats.expired > 0, "a poor test: {stats:?}");
    }
}

/// The adds, reschedules and cancels of one wheel are replayed on another, and compared with that other wheel under the same
/// calls.
#[test]
fn a_replay_on_another_wheel_does_what_that_wheel_would_have_done__t3_t4() {
    let mut cascaded = 0;
    for seed in 0..40 {
        for unit_us in [1000, 137] {
            let recorded = {
                let wheel = wheel((1, &[20], Precision::Exact), 17 * seed);
                wheel.timer.record(usize::MAX);
                let until_us = traffic(&wheel, seed, unit_us);
                (wheel.timer.stop_recording().chunks.concat(), until_us)
            };
            // With tick precision a task may have run before it is cancelled. Then no cancel is recorded.
            for shape in SHAPES.into_iter().filter(|(.., precision)| *precision == Precision::Exact) {
                let other = wheel(shape, 17 * seed);
                let until_us = traffic(&other, seed, unit_us);
                assert_eq!(until_us, recorded.1);
                let (replayed, stats) = (replay(shape, &recorded.0, until_us), other.timer.stats());
                let case = format!("seed {seed}, unit {unit_us}, {shape:?}");
                assert_eq!(counts(&replayed.stats), counts(&stats), "{case}");
                assert_cascaded_alike(&replayed.stats, &stats, &case);
                assert_eq!((replayed.stats.pending, replayed.unknown), (stats.pending, 0), "{case}");
                assert_eq!(replayed.max_early_us, 0, "{case}");
                cascaded += stats.cascaded.iter().skip(1).sum::<u64>();
            }
        }
    }
    assert!(cascaded > 10_000, "a poor test: {cascaded}");
}

/// Computed by hand: tick 5 and size 4, so level 1 covers 20 ms and level 2 has buckets of 20 ms.
#[test]
fn a_replay_counts_wake_ups_flushes_and_early_time__t5() {
    let events = [(1, 12_000), (2, 13_000), (3, 47_000)].map(|(number, due)| event(0, EventKind::Added, number, due));
    let exact = replay((5, &[4], Precision::Exact), &events, 100_000);
    // Wake-ups: the first add, then 12, 13, 40 (a cascade) and 47.
    assert_eq!((exact.stats.wake_ups, exact.stats.expired, exact.flushed), (5, 3, vec![2, 1]));
    assert_eq!((exact.stats.cascaded, exact.early_us, exact.max_early_us), (vec![3, 1], vec![(0, 3)], 0));
    let tick = replay((5, &[4], Precision::Tick), &events, 100_000);
    // At 10, 40 and 45: two tasks 2 and 3 ms early in one wake-up, one 2 ms early.
    assert_eq!((tick.stats.wake_ups, tick.flushed, tick.max_early_us), (4, vec![2, 1], 3000));
    assert_eq!(tick.early_us.iter().map(|(_, tasks)| tasks).sum::<u64>(), 3);
}

#[test]
fn a_replay_has_no_more_wake_ups_than_the_slack_allows__t5() {
    let events: Vec<_> = (0..1000).map(|us| event(0, EventKind::Added, us + 1, 50_000 + us)).collect();
    let mut dense = Replay::new(&Config { slack_us: 100, max_slack_us: 100, ..config(SHAPES[0]) }).unwrap();
    dense.feed(&events).unwrap();
    let dense = dense.finish(100_000);
    // Wake-ups: the first add, the cascade of level 2 at 40, and eleven from 50.0 to 51.0 ms.
    assert_eq!((dense.stats.expired, dense.stats.wake_ups), (1000, 13));
    assert_eq!(replay(SHAPES[0], &events, 100_000).stats.wake_ups, 1002);
}

#[test]
fn tasks_that_were_added_before_the_recording_are_counted_as_unknown() {
    let events = [event(0, EventKind::Cancelled, 7, 9_000), event(5, EventKind::Added, 8, 9_000)];
    let replayed = replay(SHAPES[0], &events, 10_000);
    assert_eq!((replayed.unknown, replayed.stats.cancelled, replayed.stats.expired), (1, 0, 1));
    let moved = Event { other: 7, ..event(0, EventKind::Moved, 8, 9_000) };
    let replayed = replay(SHAPES[0], &[moved], 10_000);
    assert_eq!((replayed.unknown, replayed.stats.added, replayed.stats.moved, replayed.stats.expired), (1, 1, 0, 1));
}

#[test]
fn a_callback_may_cancel_a_task_of_the_same_instant__t9() {
    let wheel = Manual::standard();
    wheel.timer.record(usize::MAX);
    wheel.after_ms(5, 0);
    let second = wheel.after_ms(5, 1);
    wheel.timer.clock().set_us(5_000);
    let tickets = released(&wheel.timer);
    assert!(wheel.timer.claim(tickets[0]).is_some() && wheel.timer.cancel(second).is_some());
    let replayed = replay(SHAPES[0], &wheel.timer.stop_recording().chunks.concat(), 6_000);
    assert_eq!((replayed.stats.cancelled, replayed.stats.expired, replayed.unknown), (1, 1, 0));
}

#[test]
fn a_number_that_is_added_twice_is_an_error() {
    let twice = [event(0, EventKind::Added, 7, 9_000), event(0, EventKind::Added, 7, 9_000)];
    let error = Replay::new(&config(SHAPES[0])).unwrap().feed(&twice).unwrap_err().to_string();
    assert!(error.contains("got 7 twice: replay one recording at a time"), "{error}");
}

#[test]
fn the_peak_of_the_memory_is_reported() {
    let added: Vec<_> = (1..=100_000).map(|number| event(0, EventKind::Added, number, 3_600_000_000)).collect();
    let cancelled: Vec<_> = (1..=100_000).map(|number| event(1, EventKind::Cancelled, number, 0)).collect();
    let replayed = replay(SHAPES[0], &[added, cancelled].concat(), 2);
    assert_eq!((replayed.peak_pending, replayed.stats.pending), (100_000, 0));
    assert!((3_900_000..5_500_000).contains(&replayed.peak_bytes), "{}", replayed.peak_bytes);
    let nothing = replay(SHAPES[0], &[], 5);
    assert_eq!(nothing, Replayed::default());
}

#[test]
fn a_timer_has_one_recording_at_a_time() {
    let wheel = Manual::standard();
    assert!(wheel.timer.take_recorded(usize::MAX).chunks.is_empty());
    assert!(wheel.timer.record(10) && !wheel.timer.record(10));
    wheel.after_ms(5, 0);
    assert_eq!(wheel.timer.take_recorded(usize::MAX).chunks.concat().len(), 1);
    wheel.timer.stop_recording();
    wheel.after_ms(5, 1);
    assert!(wheel.timer.record(10));
    assert!(wheel.timer.stop_recording().chunks.is_empty());
}

#[test]
fn a_replay_to_the_end_of_time_ends__t13() {
    let added = [event(0, EventKind::Added, 1, 9_000), event(5, EventKind::Added, 2, 3_600_000_000)];
    let replayed = replay(SHAPES[0], &added, u64::MAX);
    assert_eq!((replayed.stats.expired, replayed.stats.pending), (2, 0));
    let at_the_end = event(u64::MAX, EventKind::Cancelled, 1, 9_000);
    let replayed = replay(SHAPES[0], &[added[0], at_the_end, at_the_end], u64::MAX);
    assert_eq!((replayed.stats.expired, replayed.unknown), (1, 2));
    assert_eq!(replay(SHAPES[0], &[], u64::MAX), Replayed::default());
}

#[test]
fn events_at_the_last_instant_of_a_recording_are_replayed__t4() {
    let due_at_the_end = [event(0, EventKind::Added, 1, 90_000), event(50_000, EventKind::Added, 2, 50_000)];
    let replayed = replay(SHAPES[0], &due_at_the_end, 50_000);
    // Each of the two adds wakes the reaper.
    assert_eq!((replayed.stats.expired, replayed.stats.pending, replayed.stats.wake_ups), (1, 1, 2));
    let earlier = replay(SHAPES[0], &due_at_the_end, 0);
    assert_eq!((earlier.stats.expired, earlier.stats.pending), (1, 1), "an end before the last event is that event");
}

#[test]
fn a_refused_feed_changes_nothing() {
    let first = event(0, EventKind::Added, 1, 9_000);
    let good = event(1, EventKind::Added, 2, 9_000);
    let moved = |number, other| Event { other, ..event(1, EventKind::Moved, number, 9_000) };
    let refused = [
        (vec![good, event(1, EventKind::Added, 2, 9_000)], "event 1: the number of an added task must be new, got 2"),
        (vec![good, event(1, EventKind::Added, 1, 9_000)], "event 1: the number of an added task must be new, got 1"),
        (vec![good, moved(1, 2)], "event 1: the number of an added task must be new, got 1"),
        (vec![good, event(1, EventKind::Added, 3, tickwheel::LIMIT_US)], "event 1: a task must be due before"),
        (vec![good, event(u64::MAX, EventKind::Added, 3, 9_000)], "event 1: a task must be due before"),
        (vec![good, event(u64::MAX, EventKind::Cancelled, 3, 0), event(1, EventKind::Added, 3, 9_000)], "event 2: "),
    ];
    for (events, said) in refused {
        let mut replay = Replay::new(&config(SHAPES[0])).unwrap();
        replay.feed(&[first]).unwrap();
        let error = replay.feed(&events).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
        // After the correction the same events are accepted.
        replay
            .feed(&[good, moved(3, 2), event(1, EventKind::Cancelled, 3, 0), event(1, EventKind::Added, 3, 9_000)])
            .unwrap();
        let replayed = replay.finish(10_000);
        assert_eq!(counts(&replayed.stats), [3, 1, 1, 2]);
    }
    let mut replay = Replay::new(&config(SHAPES[0])).unwrap();
    let error = replay.feed(&[event(tickwheel::LIMIT_US, EventKind::Cancelled, 1, 0)]).unwrap_err().to_string();
    assert!(error.starts_with("event 0: a recording must begin before"), "{error}");
    replay.feed(&[first]).unwrap();
    assert_eq!(replay.finish(0).stats.added, 1);
}
