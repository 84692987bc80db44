//! Examples for T5, T6 and T9.

use tickwheel::{Precision, Released, When};

use crate::support::{Manual, released};

#[test]
fn the_earlier_add_runs_first_whatever_level_it_came_through__t6() {
    let wheel = Manual::standard();
    wheel.after_ms(25, 0);
    wheel.wake_at_us(15_000);
    wheel.after_ms(10, 1);
    assert_eq!((wheel.place_of(0), wheel.place_of(1)), (Some((2, 1)), Some((1, 5))));
    assert_eq!(wheel.wake_at_us(25_000), [0, 1]);
}

#[test]
fn a_move_takes_a_new_number__t6() {
    let wheel = Manual::standard();
    let first = wheel.after_ms(10, 0);
    wheel.after_ms(10, 1);
    wheel.timer.reschedule(first, When::AfterUs(10_000)).unwrap();
    assert_eq!(wheel.wake_at_us(10_000), [1, 0]);
}

#[test]
fn an_add_that_is_already_due_overtakes_nothing__t6() {
    let wheel = Manual::standard();
    wheel.after_ms(100, 0);
    wheel.timer.clock().set_us(150_000); // the reaper is late
    wheel.timer.add(When::AtUs(50_000), 1).unwrap();
    wheel.timer.add(When::AfterUs(0), 2).unwrap();
    assert_eq!(wheel.wake_at_us(150_000), [0, 1, 2]);
}

#[test]
fn an_exact_timer_sorts_within_a_tick_to_the_microsecond__t5() {
    let wheel = Manual::new(1000, &[20], 0, Precision::Exact);
    for (id, due_us) in [(0, 5_900_000), (1, 5_100_001), (2, 5_100_000)] {
        wheel.timer.add(When::AtUs(due_us), id).unwrap();
    }
    assert_eq!(wheel.step_to_us(9_000_000), [(5_100_000, 2), (5_100_001, 1), (5_900_000, 0)]);
}

#[test]
fn a_tick_timer_is_up_to_one_tick_early__t5() {
    let wheel = Manual::new(1000, &[20], 0, Precision::Tick);
    wheel.timer.add(When::AtUs(5_999_999), 0).unwrap();
    assert_eq!(wheel.step_to_us(9_000_000), [(5_000_000, 0)]);
}

#[test]
fn a_task_can_be_cancelled_until_it_is_claimed__t9() {
    let wheel = Manual::standard();
    let (first, second) = (wheel.after_ms(5, 0), wheel.after_ms(5, 1));
    wheel.timer.clock().set_us(5_000);
    let tickets = released(&wheel.timer);
    assert_eq!((wheel.timer.len(), wheel.timer.stats().executor_depth), (0, 2));
    assert_eq!(wheel.timer.cancel(second), Some(1));
    assert_eq!(wheel.timer.claim(tickets[0]).map(|claimed| claimed.task), Some(0));
    assert_eq!((wheel.timer.claim(tickets[1]).map(|claimed| claimed.task), wheel.timer.cancel(first)), (None, None));
}

#[test]
fn ten_thousand_tasks_of_one_instant_keep_their_order_through_the_steps__t6() {
    let wheel = Manual::new(1, &[3], 0, Precision::Exact);
    for id in 0..10_000 {
        wheel.after_ms(500, id);
    }
    assert_eq!(wheel.wake_at_us(500_000), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn an_add_between_the_steps_of_a_long_advance_keeps_its_place__t6() {
    let wheel = Manual::new(1, &[3], 0, Precision::Exact);
    for id in 0..5_000 {
        wheel.after_ms(500, id);
    }
    wheel.timer.clock().set_us(600_000);
    let mut tickets = Vec::new();
    let mut steps = 0;
    wheel.timer.advance(&mut |batch: Released| {
        tickets.extend(batch.tickets);
        steps += 1;
        if steps == 2 {
            wheel.timer.add(When::AfterUs(0), 9_999).unwrap();
        }
    });
    let ran: Vec<_> = tickets.into_iter().map(|ticket| wheel.timer.claim(ticket).unwrap().task).collect();
    assert!(steps > 2, "the advance was cut into steps");
    assert_eq!(ran, (0..5_000).chain([9_999]).collect::<Vec<_>>());
}

#[test]
fn a_single_task_costs_one_wake_up__t5() {
    let wheel = Manual::new(1000, &[20], 0, Precision::Exact);
    wheel.timer.add(When::AtUs(5_900_000), 0).unwrap();
    assert_eq!(wheel.timer.next_wake_us(), Some(5_900_000), "not at 5 s, when its bucket expires");
    assert_eq!(wheel.wake_at_us(5_900_000), [0]);
    assert_eq!(wheel.timer.next_wake_us(), None);
}

#[test]
fn a_bucket_above_level_1_wakes_when_it_expires__t5() {
    let wheel = Manual::standard();
    wheel.after_ms(39, 0); // level 2, [20, 40)
    wheel.wake_at_us(2_000);
    wheel.after_ms(19, 1); // level 1, 21
    assert_eq!(wheel.reap_to_us(50_000), [(21_000, 1), (39_000, 0)]);
}

#[test]
fn the_last_batch_of_an_advance_says_that_there_is_no_more__t8() {
    for count in [1, 999, 1000, 1001, 3000] {
        let wheel = Manual::standard();
        for id in 0..count {
            wheel.after_ms(5, id);
        }
        wheel.timer.clock().set_us(5_000);
        let mut batches = Vec::new();
        wheel.timer.advance(&mut |batch: Released| batches.push((batch.tickets.len(), batch.more)));
        let (released, more): (Vec<_>, Vec<_>) = batches.into_iter().unzip();
        assert_eq!(released.iter().sum::<usize>(), count as usize);
        assert_eq!(more.iter().position(|more| !more), Some(more.len() - 1), "{count} tasks: {more:?}");
    }
}
