//! When messages go out: at their due times by the wall clock, also if it is stepped or runs too slowly (D3); or by their
//! recorded times in a replay (D11).

use super::testing::{ByHand, START_MS, arrives, cancel, ids, put};
use crate::base::clock::DueClock;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};

fn due(id: &str, after_ms: i64) -> Item {
    put(Some("k"), id, START_MS + after_ms)
}

fn lateness_us(deliveries: &[Delivery]) -> Vec<i64> {
    deliveries.iter().map(|it| it.lateness_us).collect()
}

#[test]
fn a_message_goes_out_at_its_due_time_and_an_overdue_one_at_once__d3() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due("a", 250), due("overdue", -5_000)]);
    let overdue = world.deliver(arrives);
    assert_eq!((ids(&overdue), overdue[0].lateness_us), (vec!["overdue"], 5_000_000));
    let sent = world.pass_ms(1_000, arrives);
    let [it] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((it.delivered_at_ms, it.lateness_us, it.attempt, it.redelivered), (START_MS + 250, 0, 1, false));
}

#[test]
fn after_a_step_back_of_the_wall_clock_nothing_is_early_or_in_another_order__d3_d4() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due("b", 500), due("c", 500), due("a", 400)]);
    world.step_wall_clock_ms(-300);
    assert!(world.pass_ms(699, arrives).is_empty(), "`a` was found early");
    world.give(vec![due("d", 500)]);
    let sent = world.pass_ms(101, arrives);
    assert_eq!((ids(&sent), lateness_us(&sent)), (vec!["a", "b", "c", "d"], vec![0; 4]));
    assert_eq!(sent[3].delivered_at_ms, START_MS + 500);
}

#[test]
fn after_a_step_forward_messages_beyond_the_horizon_go_out_at_once__d3() {
    let world = ByHand::start(Settings::default());
    let all: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    world.give(all.iter().zip(3_600_000..).map(|(id, after_ms)| due(id, after_ms)).collect());
    assert_eq!(world.engine.in_memory(), (0, 0));
    world.step_wall_clock_ms(3_600_100);
    world.engine.follow_clock();
    assert_eq!(ids(&world.deliver(arrives)), all);
}

#[test]
fn a_message_between_two_attempts_is_on_time_once_a_wrong_clock_is_right_again__d3() {
    for key in [None, Some("k")] {
        let world = ByHand::start(Settings::default());
        world.give(vec![put(key, "a", START_MS)]);
        assert_eq!(world.deliver(|_| Verdict::Refused("no".to_owned())).len(), 1);
        world.step_wall_clock_ms(-3_600_000);
        world.engine.follow_clock();
        world.advance_ms(1_000);
        assert!(world.sent().is_empty(), "it would be early");
        world.step_wall_clock_ms(3_600_000);
        world.engine.follow_clock();
        assert_eq!(ids(&world.sent()), ["a"], "{key:?}");
    }
}

/// It has an attempt, which was noted before a send that a crash ended.
#[test]
fn a_message_that_would_be_early_after_crashes_does_not_hold_up_its_key__d3_d5() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS + 3_600_000)]);
    world.step_wall_clock_ms(3_600_000);
    world.engine.follow_clock();
    for redelivered in [false, true] {
        let (_, deliveries) = world.next_send().unwrap();
        assert_eq!((deliveries[0].id(), deliveries[0].redelivered), ("a", redelivered));
        world = world.again();
    }
    world.write(); // it is read from the store
    world.step_wall_clock_ms(-3_600_000);
    assert!(world.next_send().is_none(), "it would be early");
    world.engine.follow_clock();
    world.give(vec![put(Some("k"), "b", START_MS)]);
    assert_eq!(ids(&world.deliver(arrives)), ["b"]);
    world.step_wall_clock_ms(3_600_000);
    world.engine.follow_clock();
    assert_eq!(ids(&world.deliver(arrives)), ["a"]);
}

/// The wall clock runs a tenth slower than the timer's.
#[test]
fn with_a_wall_clock_that_is_slow_nothing_is_early_or_late__d3() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due("a", 5_000)]);
    for _ in 0..500 {
        world.step_wall_clock_ms(-1);
        world.advance_ms(10);
        assert!(world.deliver(arrives).is_empty(), "at {}", world.wall_ms());
    }
    assert_eq!(lateness_us(&world.pass_ms(500, arrives)), [0]);
}

fn replay(world: &ByHand, speed: f64, from_ms: i64) {
    world.engine.start(DueClock::replay(world.engine.clock(), speed, from_ms, 0.0));
}

#[test]
fn a_replay_runs_at_its_speed_whatever_the_wall_clock_says__d11() {
    let world = ByHand::open(Settings::default());
    world.give(vec![due("b", 60_000), due("a", 0), due("c", 90_000)]);
    let first_ms = world.engine.first_due_ms().unwrap();
    assert_eq!(first_ms, Some(START_MS));
    assert!(world.pass_ms(7_000, arrives).is_empty(), "recorded messages wait for the start");
    replay(&world, 60.0, START_MS);
    world.step_wall_clock_ms(-1_000_000);
    world.engine.follow_clock();
    assert_eq!(ids(&world.deliver(arrives)), ["a"]);
    assert!(world.pass_ms(999, arrives).is_empty());
    let sent = world.pass_ms(501, arrives);
    assert_eq!((ids(&sent), lateness_us(&sent)), (vec!["b", "c"], vec![0, 0]));
    assert_eq!(sent[1].delivered_at_ms, world.wall_ms());
}

#[test]
fn a_replay_from_a_time_sends_earlier_messages_at_once_and_in_order__d11() {
    let world = ByHand::open(Settings::default());
    world.give(vec![due("c", 2_000), due("b", 500), due("a", 0)]);
    replay(&world, 1.0, START_MS + 1_000);
    let sent = world.deliver(arrives);
    assert_eq!((ids(&sent), lateness_us(&sent)), (vec!["a", "b"], vec![1_000_000, 500_000]));
    assert!(world.pass_ms(999, arrives).is_empty());
    assert_eq!(ids(&world.pass_ms(1, arrives)), ["c"]);
}

#[test]
fn before_a_replay_starts_a_message_can_be_cancelled__d7_d11() {
    let world = ByHand::open(Settings::default());
    world.give(vec![due("a", 10)]);
    assert_eq!(world.give(vec![cancel(Some("k"), "a")]), [Answer::Cancelled]);
    assert_eq!(world.engine.first_due_ms().unwrap(), None);
    replay(&world, 1.0, START_MS);
    assert!(world.pass_ms(100, arrives).is_empty());
    assert_eq!(world.engine.summary().cancelled, 1);
}
