//! The examples of T2, T3, T4 and T16: level, bucket and time of each task.

use tickwheel::Precision;

use crate::support::Manual;

#[test]
fn a_delay_finds_its_level_and_bucket__t3() {
    let wheel = Manual::standard();
    for (id, delay_ms) in [2, 350, 446, 450, 455, 473].into_iter().enumerate() {
        wheel.after_ms(delay_ms, id as u32);
    }
    assert_eq!(wheel.place_of(0), Some((1, 2)), "2 ms");
    assert_eq!(wheel.place_of(1), Some((2, 17)), "350 ms");
    for id in 2..6 {
        assert_eq!(wheel.place_of(id), Some((3, 1)), "446, 450, 455 and 473 ms share a bucket");
    }
    assert_eq!(wheel.snapshot().levels[2].buckets[1].expiration_ms, Some(400));
}

#[test]
fn a_task_of_450_ms_cascades_twice__t4() {
    let wheel = Manual::standard();
    wheel.after_ms(450, 7);
    assert_eq!(wheel.wake_at_us(400_000), [0_u32; 0]);
    assert_eq!(wheel.place_of(7), Some((2, 2)), "[440, 460)");
    assert_eq!(wheel.wake_at_us(440_000), [0_u32; 0]);
    assert_eq!(wheel.place_of(7), Some((1, 10)), "[450, 451)");
    assert_eq!(wheel.wake_at_us(449_999), [0_u32; 0]);
    assert_eq!(wheel.wake_at_us(450_000), [7]);
    assert_eq!(wheel.timer.stats().cascaded, [1, 1, 1]);
}

#[test]
fn after_a_quiet_spell_a_short_task_enters_at_level_1__t16() {
    let wheel = Manual::standard();
    wheel.wake_at_us(2_000);
    wheel.after_ms(8, 0);
    wheel.after_ms(19, 1);
    assert_eq!((wheel.place_of(0), wheel.place_of(1)), (Some((1, 10)), Some((1, 1))));
    let wheel = Manual::standard();
    wheel.wake_at_us(3_600_000_000);
    wheel.after_ms(5, 0);
    assert_eq!(wheel.place_of(0).map(|(level, _)| level), Some(1));
}

#[test]
fn an_add_moves_the_levels_at_most_to_one_tick_before_the_earliest_bucket__t16() {
    let wheel = Manual::standard();
    wheel.after_ms(100, 0);
    wheel.timer.clock().set_us(500_000); // the reaper is late
    wheel.after_ms(5, 1);
    assert!(wheel.snapshot().levels[0].current_time_ms <= 99);
    assert_eq!(wheel.wake_at_us(505_000), [0, 1]);
}

#[test]
fn nothing_is_done_for_empty_ticks__t4() {
    let wheel = Manual::standard();
    wheel.after_ms(205, 0);
    wheel.after_ms(845, 1);
    let mut wakes = Vec::new();
    while let Some(event_us) = wheel.timer.next_event_us() {
        wakes.push(event_us / 1000);
        wheel.wake_at_us(event_us);
    }
    assert_eq!(wakes, [200, 205, 800, 840, 845]);
}

#[test]
fn buckets_at_200_and_840_need_two_wake_ups__t4() {
    let wheel = Manual::new(20, &[64], 0, Precision::Tick);
    wheel.after_ms(205, 0);
    wheel.after_ms(845, 1);
    assert_eq!(wheel.step_to_us(2_000_000), [(200_000, 0), (840_000, 1)]);
}

#[test]
fn one_millisecond_and_a_hundred_days_need_eight_levels_and_three_wake_ups__t4() {
    let wheel = Manual::standard();
    wheel.after_ms(1, 0);
    wheel.after_ms(8_640_000_000, 1);
    assert_eq!(wheel.snapshot().levels.len(), 8);
    let mut wakes = Vec::new();
    while let Some(event_us) = wheel.timer.next_event_us() {
        wakes.push(event_us / 1000);
        wheel.wake_at_us(event_us);
    }
    assert_eq!(wakes, [1, 7_680_000_000, 8_640_000_000]);
}

#[test]
fn kafkas_own_example_covers_3_9_and_27_units__t2() {
    let wheel = Manual::new(1, &[3], 0, Precision::Exact);
    wheel.after_ms(26, 0);
    let covers: Vec<_> = wheel.snapshot().levels.iter().map(|level| level.covers_ms).collect();
    assert_eq!(covers, [(0, 3), (0, 9), (0, 27)]);
}

#[test]
fn four_levels_of_twenty_cover_160_seconds__t2() {
    let wheel = Manual::standard();
    wheel.after_ms(159_999, 0);
    assert_eq!(wheel.snapshot().levels.len(), 4);
    wheel.after_ms(160_000, 1);
    assert_eq!(wheel.snapshot().levels.len(), 5);
    let wheel = Manual::standard();
    wheel.after_ms(160_000, 0);
    assert_eq!(wheel.snapshot().levels.len(), 5, "a new level does not cover its end either");
}

#[test]
fn a_clock_face_has_seconds_minutes_and_hours__t2() {
    let wheel = Manual::new(1000, &[60, 60, 12], 0, Precision::Exact);
    wheel.after_ms(((2 * 60 + 30) * 60 + 15) * 1000, 0);
    let ticks: Vec<_> = wheel.snapshot().levels.iter().map(|level| level.tick_ms).collect();
    assert_eq!(ticks, [1000, 60_000, 3_600_000]);
    assert_eq!(wheel.place_of(0), Some((3, 2)), "two o'clock");
}

#[test]
fn an_emptied_bucket_stays_armed_until_it_comes_to_the_head__t9() {
    let wheel = Manual::standard();
    let handle = wheel.after_ms(5, 0);
    wheel.timer.cancel(handle);
    assert_eq!(wheel.snapshot().queue.len(), 1);
    assert_eq!(wheel.timer.next_event_us(), None);
    assert_eq!(wheel.snapshot().queue.len(), 0);
}

#[test]
fn a_bucket_is_shown_in_order_of_add_also_after_a_cascade__t14() {
    let wheel = Manual::standard();
    wheel.after_ms(47, 1); // on level 2
    wheel.wake_at_us(30_000);
    wheel.after_ms(17, 2); // on level 1; the first task cascades there later
    assert!(wheel.wake_at_us(40_000).is_empty());
    let snapshot = wheel.snapshot();
    let tags: Vec<_> = snapshot.levels[0].buckets[7].tasks.iter().map(|task| task.tag).collect();
    assert_eq!(tags, [1, 2]);
    // The snapshot has the handle of each task, to look the task up after the lock is released.
    let handles: Vec<_> = snapshot.levels[0].buckets[7].tasks.iter().map(|task| task.handle).collect();
    assert_eq!(wheel.timer.cancel_many(&handles), [Some(1), Some(2)]);
}
