use super::*;
use crate::wheel::MAX_NUMBER;

const HOUR_US: u64 = 3_600_000_000;

fn schedule(sizes: &[u32]) -> Schedule<u64> {
    Schedule::new(1, sizes, 0, Precision::Exact)
}

/// 256 slots, one after the other, each from near the last of its 2^32 generations: as after 2^40 operations.
#[test]
fn memory_is_flat_over_2_to_the_40_operations_on_one_bucket__t13() {
    let mut schedule = schedule(&[20]);
    schedule.next_number = MAX_NUMBER - (1 << 41);
    let (stays, _) = schedule.add(0, HOUR_US, 0, 0);
    let mut bytes = Vec::new();
    for _ in 0..256 {
        let (mut handle, _) = schedule.add(0, HOUR_US, 1, 0);
        handle = schedule.slab.set_generation(handle, u32::MAX - 2000);
        for turn in 0..3000 {
            if turn % 3 == 0 {
                schedule.reschedule(0, handle, HOUR_US).unwrap();
            } else {
                assert_eq!(schedule.remove(handle), Some(1));
                assert_eq!(schedule.remove(handle), None);
                handle = schedule.add(0, HOUR_US, 1, 0).0;
            }
        }
        assert_eq!(schedule.remove(handle), Some(1));
        bytes.push(schedule.bytes());
    }
    assert_eq!((schedule.len(), schedule.remove(stays)), (1, Some(0)));
    assert!(bytes[255] <= bytes[0] + 4096, "{} bytes, then {}", bytes[0], bytes[255]);
}

#[test]
fn a_task_of_the_last_generation_can_be_moved__t7() {
    let mut schedule = schedule(&[20]);
    let (handle, _) = schedule.add(0, 5000, 7, 0);
    let last = schedule.slab.set_generation(handle, u32::MAX - 1);
    schedule.reschedule(0, last, 9000).unwrap();
    assert_eq!((schedule.remove(handle), schedule.remove(last), schedule.len()), (None, Some(7), 0));
}

/// It waits on the executor's queue, is moved, and is due again before the queue has come to its first place.
#[test]
fn a_task_that_was_moved_out_of_the_queue_keeps_no_place_there__t6_t7() {
    let mut schedule = schedule(&[20]);
    let (moved, _) = schedule.add(0, 5000, 1, 0);
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    schedule.step(5000, STEP, &mut out, &mut progress);
    schedule.reschedule(5000, moved, 7000).unwrap();
    schedule.add(5000, 6000, 2, 0);
    schedule.step(7000, STEP, &mut out, &mut progress);
    let order: Vec<_> = out.into_iter().map(|ticket| schedule.claim(ticket).map(|claimed| claimed.task)).collect();
    assert_eq!(order, [None, Some(2), Some(1)]);
    assert_eq!((schedule.len(), schedule.released()), (0, 0));
}

/// Its lower half was that of another add 2^32 adds before, in the same slot.
#[test]
fn a_ticket_whose_number_comes_again_claims_only_what_is_released__t9() {
    let mut schedule = schedule(&[20]);
    schedule.add(0, 5000, 1, 0);
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    schedule.step(5000, STEP, &mut out, &mut progress);
    assert_eq!(schedule.claim(out[0]).map(|claimed| claimed.task), Some(1));
    schedule.next_number = 1 << 32;
    let (again, _) = schedule.add(5000, 9000, 2, 0);
    assert_eq!(again.slot(), out[0].slot());
    assert!(schedule.claim(out[0]).is_none(), "it waits");
    schedule.step(9000, STEP, &mut out, &mut progress);
    assert_eq!(out[0], out[1]);
    assert_eq!(schedule.claim(out[0]).map(|claimed| claimed.task), Some(2));
}

/// The entries that were not read yet are placed by the times of the levels at the start of the flush.
#[test]
fn an_add_in_the_middle_of_a_flush_leaves_the_levels_where_they_are__t6() {
    let mut schedule = schedule(&[20]);
    let mut handles: Vec<_> = (0..=STEP as u64).map(|task| schedule.add(0, 15_000 + task % 1000, task, 0).0).collect();
    handles.pop();
    for handle in handles {
        schedule.remove(handle).unwrap();
    }
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    // The first step reads only cancelled entries, so no bucket is armed that the levels may not pass.
    assert!(schedule.step(15_000, STEP, &mut out, &mut progress));
    assert_eq!(schedule.queue.peek(), None);
    schedule.add(900_000, 900_000, 0, 0);
    assert_eq!(schedule.wheel.levels()[0].current_ms, 15);
    while schedule.step(900_000, STEP, &mut out, &mut progress) {}
    let order: Vec<_> = out.into_iter().filter_map(|ticket| schedule.claim(ticket)).map(|task| task.task).collect();
    assert_eq!(order, [STEP as u64, 0]);
}

#[test]
fn the_last_add_numbers_are_in_order_like_any_other__t6() {
    let mut schedule = schedule(&[20]);
    schedule.next_number = MAX_NUMBER - 3;
    for task in 0..3 {
        schedule.add(0, 5000, task, 0);
    }
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    assert!(!schedule.step(5000, STEP, &mut out, &mut progress));
    let order: Vec<_> = out.into_iter().map(|ticket| schedule.claim(ticket).unwrap().task).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn emptied_buckets_are_dropped_in_steps__t9() {
    let mut schedule = schedule(&[65_536]);
    let handles: Vec<_> = (1..=5500).map(|ms| schedule.add(0, ms * 1000, ms, 0).0).collect();
    for handle in handles {
        schedule.remove(handle).unwrap();
    }
    // Many empty buckets are left after this call; its answer is not later than the first task.
    schedule.add(0, 6_000_000, 0, 0);
    assert!(schedule.next_wake_us().is_some_and(|wake_us| wake_us <= 6_000_000));
    let steps = (0..99).take_while(|_| schedule.drop_empty_buckets(STEP)).count();
    assert!((4..12).contains(&steps), "{steps}");
    assert_eq!(schedule.next_wake_us(), Some(6_000_000));
}

/// Of a bucket that only has moved tasks, a call looks at 1,000; what is left tells nothing of the buckets after it.
#[test]
fn a_bucket_that_its_tasks_were_moved_out_of_delays_no_wake_up__t5() {
    for left in [1, 20, 64, 65, 600] {
        let mut schedule = schedule(&[20]);
        let moved: Vec<_> = (0..STEP as u64 + left).map(|task| schedule.add(0, 5_500, task, 0).0).collect();
        let (_, wake_us) = schedule.add(0, 6_300, 0, 0);
        assert_eq!(wake_us, 6_300);
        for handle in moved {
            schedule.reschedule(0, handle, HOUR_US).unwrap();
        }
        let wake_us = schedule.next_wake_us().unwrap();
        assert!(wake_us <= 6_300, "{left} are left: it would wake up at {wake_us} µs");
    }
}

/// In a bucket of level 1, and in the first tick of a bucket of level 2.
#[test]
fn the_entries_of_a_dense_tick_are_one_run_before_they_are_released__t6() {
    for tick_begins_us in [15_000, 400_000] {
        let mut schedule = schedule(&[20]);
        for number in 0..10_000 {
            schedule.add(0, tick_begins_us + 1 + number * 7919 % 999, number, 0);
        }
        let (mut out, mut progress) = (Vec::new(), Progress::default());
        while schedule.step(tick_begins_us, STEP, &mut out, &mut progress) {}
        assert!(out.is_empty() && schedule.front.is_one_run());
        assert_eq!(schedule.front.len(), 10_000);
    }
}

#[test]
fn a_task_that_was_cancelled_while_its_large_bucket_is_flushed_is_not_released__t9() {
    let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
    let count = 10 * STEP as u64;
    let mut handles: Vec<_> =
        (0..count).map(|task| schedule.add(0, 5_000_000 + task * 7919 % 1_000_000, task, 0).0).collect();
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    // After each step one entry that was read and one that was not; after the third, some full pages that were not read.
    let mut step = 0;
    while schedule.step(5_999_999, STEP, &mut out, &mut progress) {
        for task in [step * 500, (step * 500 + 5000) % count] {
            schedule.remove(handles[task as usize]);
        }
        if step == 2 {
            for handle in &handles[6000..9000] {
                schedule.remove(*handle);
            }
        }
        step = (step + 1) % 20;
    }
    handles.retain(|handle| schedule.slab.get(*handle).is_some());
    let mut last = (0, 0);
    let live = out.into_iter().filter_map(|ticket| schedule.claim(ticket)).map(|claimed| {
        assert!(last < (claimed.due_us, claimed.number));
        last = (claimed.due_us, claimed.number);
    });
    assert_eq!(live.count(), handles.len());
    assert_eq!(schedule.len(), 0);
}

#[test]
fn keys_of_cancelled_tasks_go_with_their_time_though_nothing_is_left_to_release() {
    let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
    let mut cancelled = vec![schedule.add(0, 999_999, 0, 0).0]; // all others are due before it: their keys are in the tree
    cancelled.extend((0..20_000).map(|task| schedule.add(0, 600_000 + task, task, 0).0));
    for task in 0..100_000 {
        schedule.add(0, 100 + task, task, 0);
    }
    for handle in cancelled {
        schedule.remove(handle).unwrap();
    }
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    while schedule.step(200_000, STEP, &mut out, &mut progress) {}
    for ticket in out.drain(..) {
        schedule.claim(ticket).unwrap();
    }
    assert_eq!((schedule.len(), schedule.released()), (0, 0));
    while schedule.step(60_000_000, STEP, &mut out, &mut progress) {}
    assert_eq!(schedule.front.sorted().len(), 0);
}

fn released(schedule: &mut Schedule<u64>, now_us: u64) -> Vec<u64> {
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    while schedule.step(now_us, STEP, &mut out, &mut progress) {}
    out.into_iter().filter_map(|ticket| schedule.claim(ticket)).map(|claimed| claimed.task).collect()
}

#[test]
fn a_move_to_a_later_instant_is_seen_and_released_there__t6_t7_t14() {
    let mut schedule = schedule(&[20]);
    let (handle, _) = schedule.add(0, 9_500, 1, 0);
    schedule.add(0, 353_000, 2, 0);
    schedule.reschedule(0, handle, 353_000).unwrap();
    assert_eq!(schedule.due_us(handle), Some(353_000));
    let snapshot = crate::snapshot::of(&schedule, |_, task| *task);
    assert_eq!(snapshot.levels[1].buckets[17].tasks, [2, 1]);
    assert!(snapshot.levels[0].buckets.iter().all(|bucket| bucket.tasks.is_empty()));
    assert!(released(&mut schedule, 352_999).is_empty());
    assert_eq!(released(&mut schedule, 353_000), [2, 1], "the move came after the add");
}

#[test]
fn no_wake_up_is_left_where_a_task_was_moved_or_cancelled__t5_t9() {
    let mut schedule = schedule(&[20]);
    let (moved, _) = schedule.add(0, 5_000, 1, 0);
    let (cancelled, _) = schedule.add(0, 6_000, 2, 0);
    schedule.reschedule(0, moved, 70_000_000).unwrap();
    schedule.remove(cancelled).unwrap();
    assert_eq!(schedule.next_wake_us(), Some(64_000_000), "the cascade of level 4");
    // The slot of the cancelled one has no reminder any more.
    let (_, wake_us) = schedule.add(0, 7_300, 3, 0);
    assert_eq!((wake_us, schedule.next_wake_us()), (7_300, Some(7_300)));
    assert_eq!((released(&mut schedule, 7_299), released(&mut schedule, 7_300)), (vec![], vec![3]));
}

/// The reaper sleeps until the live one; the slot of the other one still has its reminder in the same bucket.
#[test]
fn an_add_that_uses_an_old_reminder_wakes_the_reaper_if_it_is_the_earliest__t5() {
    let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
    schedule.add(0, 5_900_000, 1, 0);
    let (handle, _) = schedule.add(0, 5_100_000, 2, 0);
    schedule.remove(handle).unwrap();
    assert_eq!(schedule.next_wake_us(), Some(5_900_000));
    let (_, wake_us) = schedule.add(0, 5_500_000, 3, 0);
    assert_eq!((wake_us, schedule.next_wake_us()), (5_500_000, Some(5_500_000)));
    assert_eq!(released(&mut schedule, 5_999_999), [3, 1]);
}

/// The lower bits of both times are the same, and so is what a reminder has of them.
#[test]
fn a_move_by_a_multiple_of_what_a_reminder_tells_is_not_early__t5() {
    for times in [1, 2, 1000] {
        let mut schedule = schedule(&[20]);
        let (handle, _) = schedule.add(0, 5_000, 1, 0);
        let due_us = 5_000 + times * (1 << 24) * 1000;
        schedule.reschedule(0, handle, due_us).unwrap();
        assert!(released(&mut schedule, due_us - 1).is_empty());
        assert_eq!(released(&mut schedule, due_us), [1]);
    }
}

/// Each round leaves a reminder for the same millisecond that looks like the first: the flush in between took the earlier one.
#[test]
fn reminders_that_look_alike_release_a_task_once__t7() {
    let mut schedule = schedule(&[20]);
    let far_us = 3_000_000;
    let (handle, _) = schedule.add(0, far_us, 1, 0);
    for round in 0..20 {
        let now_us = round * 6000;
        // 256 reminders later the mark is that of the first.
        for earlier_us in (1..=254).map(|ms| far_us - ms * 1000).chain([now_us + 5000]) {
            schedule.reschedule(now_us, handle, earlier_us).unwrap();
        }
        schedule.reschedule(now_us, handle, far_us).unwrap();
        assert!(released(&mut schedule, now_us + 6000).is_empty());
    }
    let wheel = &schedule.wheel;
    let look_good: usize = wheel.pages().map(|page| wheel.entries_on(&schedule.slab, page).count()).sum();
    assert!(look_good >= 20, "{look_good}");
    let shown = crate::snapshot::of(&schedule, |_, task| *task).levels;
    assert_eq!(shown.iter().flat_map(|level| &level.buckets).flat_map(|bucket| &bucket.tasks).count(), 1);
    assert_eq!((released(&mut schedule, far_us - 1), released(&mut schedule, far_us)), (vec![], vec![1]));
    assert_eq!((schedule.len(), released(&mut schedule, far_us + 60_000)), (0, vec![]));
}

/// The task has a reminder in a higher level that looks like its own.
#[test]
fn a_snapshot_and_the_occupancy_show_a_task_in_the_same_bucket__t14() {
    for moves in [254, 255, 256] {
        let mut schedule = schedule(&[20]);
        let far_us = 890_000;
        let (handle, _) = schedule.add(0, far_us, 1, 0);
        for _ in 0..moves {
            schedule.reschedule(0, handle, 0).unwrap(); // to the front
            schedule.reschedule(0, handle, far_us).unwrap();
        }
        assert!(released(&mut schedule, 500_000).is_empty());
        schedule.reschedule(500_000, handle, 0).unwrap();
        schedule.reschedule(500_000, handle, far_us).unwrap();
        let shown = crate::snapshot::of(&schedule, |_, task| *task).levels;
        let shown: Vec<Vec<usize>> =
            shown.iter().map(|level| level.buckets.iter().map(|bucket| bucket.tasks.len()).collect()).collect();
        let counted: Vec<Vec<usize>> =
            crate::occupancy::of(&schedule, 500_000).levels.iter().map(|level| level.tasks.clone()).collect();
        assert_eq!(shown, counted, "{moves}");
    }
}

#[test]
fn keep_alive_time_outs_do_not_touch_the_buckets() {
    let mut schedule = schedule(&[20]);
    let handles: Vec<_> = (0..1000).map(|task| schedule.add(0, 30_000_000, task, 0).0).collect();
    let bytes = schedule.bytes();
    for now_ms in 1..20_000_u64 {
        schedule.reschedule(now_ms * 1000, handles[(now_ms % 1000) as usize], (now_ms + 30_000) * 1000).unwrap();
    }
    assert_eq!(schedule.bytes(), bytes);
    assert!(released(&mut schedule, 48_999_999).is_empty());
    assert_eq!(released(&mut schedule, 50_000_000).len(), 1000);
}

/// In a bucket of level 7, whose tick of 64,000 s is more than what a reminder tells.
#[test]
fn the_entries_of_a_bucket_with_a_very_long_tick_go_down_once_a_level__t4() {
    let (mut schedule, tick_us, count) = (schedule(&[20]), 64_000_000_000, 20_000);
    for task in 0..count {
        schedule.add(0, 3 * tick_us + task * tick_us / count, task, 0);
    }
    assert_eq!(schedule.wheel.levels().len(), 7);
    let mut order = Vec::new();
    while let Some(event_us) = schedule.next_event_us() {
        order.extend(released(&mut schedule, event_us));
    }
    assert_eq!(order, (0..count).collect::<Vec<_>>());
    assert!(schedule.wheel.cascaded.iter().all(|cascaded| *cascaded <= count), "{:?}", schedule.wheel.cascaded);
    assert_eq!(schedule.wheel.reminder_count(), 0);
}

/// Adds tasks for one far instant, again and again, and uses up the reminder of each by another use of its slot.
fn bytes_after(rounds: u64, count: u64, mut turn: impl FnMut(&mut Schedule<u64>, u64, Handle) -> Handle) -> usize {
    let mut schedule = Schedule::new(1, &[20], 0, Precision::Exact);
    let mut handles: Vec<_> = (0..count).map(|task| schedule.add(0, 86_400_000_000, task, 0).0).collect();
    for round in 0..rounds {
        for handle in &mut handles {
            *handle = turn(&mut schedule, round, *handle);
        }
    }
    schedule.bytes()
}

#[test]
fn tasks_that_pass_through_the_front_leave_no_reminders_that_look_good() {
    // Their numbers grow by twice the count in a round, which for some counts is no change in a hash of them.
    for count in [3000, 128, 5473] {
        let bytes = |rounds| {
            bytes_after(rounds, count, |schedule, _, handle| {
                schedule.reschedule(0, handle, 500).unwrap();
                schedule.reschedule(0, handle, 86_400_000_000).unwrap();
                handle
            })
        };
        assert!(bytes(60) < bytes(10) + 100_000, "{count}: {} {}", bytes(10), bytes(60));
    }
}

#[test]
fn long_timers_that_are_cancelled_beside_short_ones_that_fire_leave_no_empty_pages() {
    let bytes = |rounds| {
        let (mut out, mut progress) = (Vec::new(), Progress::default());
        let mut now_us = 0;
        bytes_after(rounds, 1, |schedule, _, handle| {
            schedule.remove(handle);
            schedule.add(now_us, now_us + 1000, 0, 0);
            now_us += 1000;
            while schedule.step(now_us, 1000, &mut out, &mut progress) {}
            schedule.claim(out.pop().unwrap()).unwrap();
            schedule.add(now_us, 86_400_000_000, 0, 0).0
        })
    };
    assert!(bytes(400_000) < bytes(20_000) + 100_000, "{} {}", bytes(20_000), bytes(400_000));
}

/// Its list has more pages than are counted.
#[test]
fn the_entries_of_a_very_dense_tick_are_one_run_too__t6() {
    let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
    for number in 0..1_200_000 {
        schedule.add(0, 15_000_001 + number * 7919 % 999_983, number, 0);
    }
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    while schedule.step(15_000_000, STEP, &mut out, &mut progress) {}
    assert!(out.is_empty() && schedule.front.is_one_run());
}

#[test]
fn a_recording_says_on_which_level_a_moved_task_would_be__t3() {
    let mut schedule = schedule(&[20]);
    let (handle, _) = schedule.add(0, 30_000_000, 1, 0);
    for (due_us, level) in [(31_000_000, 4), (160_000_000, 5), (8_640_000_000_000, 8)] {
        schedule.reschedule(0, handle, due_us).unwrap();
        assert_eq!(schedule.wheel.level_of(schedule.slab.get(handle).unwrap()), level);
        assert_eq!(schedule.wheel.levels().len(), 4);
        schedule.remove(handle);
        assert_eq!(schedule.add(0, 30_000_000, 1, 0).0.slot(), handle.slot());
        schedule.slab.set_generation(handle, handle.generation());
    }
}

#[test]
fn a_task_that_was_moved_out_of_a_bucket_that_is_being_flushed_is_not_in_the_front__t14() {
    let mut schedule = Schedule::new(1000, &[20], 0, Precision::Exact);
    let handles: Vec<_> = (0..3000).map(|task| schedule.add(0, 5_000_000 + task, task, 0).0).collect();
    let (mut out, mut progress) = (Vec::new(), Progress::default());
    assert!(schedule.step(5_000_000, 1500, &mut out, &mut progress));
    schedule.reschedule(5_000_000, handles[2999], 3_600_000_000).unwrap();
    let snapshot = crate::snapshot::of(&schedule, |_, task| *task);
    let in_buckets: Vec<_> = snapshot.levels.iter().flat_map(|level| &level.buckets).flat_map(|it| &it.tasks).collect();
    assert_eq!((in_buckets, snapshot.front.len()), (vec![&2999], 2999 - out.len()));
}

#[test]
fn the_memory_of_emptied_buckets_goes() {
    let mut schedule = schedule(&[65_536]);
    let handles: Vec<_> = (0..200_000).map(|task| schedule.add(0, (1 + task % 20_000) * 1000, task, 0).0).collect();
    let full = schedule.bytes();
    for handle in handles {
        schedule.remove(handle).unwrap();
    }
    while schedule.drop_empty_buckets(STEP) {}
    assert!(schedule.bytes() < full / 3, "{} of {full}", schedule.bytes());
}
