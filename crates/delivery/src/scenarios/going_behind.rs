//! A key that waits for its next attempt, while memory is full, the wall clock is stepped, or an earlier message comes
//! (D4, D6, D16).

use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Failing, Item};
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::Verdict;

fn settings(wait_ms: u64) -> Settings {
    let retry = Retry { max_attempts: 4, waits_ms: vec![wait_ms], ..Retry::default() };
    Settings { retry, ..Settings::default() }
}

fn refused() -> Verdict {
    Verdict::Refused("no".to_owned())
}

fn all_sent(world: &ByHand) -> Vec<String> {
    let all: Vec<_> = (0..10).flat_map(|_| world.sent()).collect();
    all.iter().map(|it| it.body.id().to_owned()).collect()
}

/// After the step only messages that wait for the timer are placed again. `b` waits for its next attempt then.
#[test]
fn a_message_that_goes_behind_another_is_sent_after_a_step_of_the_wall_clock__d4() {
    for step_ms in [-60_000, 60_000] {
        let world = ByHand::start(settings(5_000));
        world.give(vec![put(Some("k"), "b", START_MS)]);
        assert_eq!(ids(&world.deliver(|_| refused())), ["b"]);
        world.give(vec![put(Some("k"), "a", START_MS - 5)]);
        world.step_wall_clock_ms(step_ms);
        world.engine.follow_clock();
        world.write();
        let mut sent = Vec::new();
        for _ in 0..100 {
            world.advance_ms(1_000);
            sent.extend(all_sent(&world));
        }
        assert_eq!(sent, ["a", "b"], "{step_ms}");
    }
}

/// Memory was full, so the window has forgotten the lane of the key. Its wait is known.
#[test]
fn a_key_whose_lane_is_forgotten_is_tried_at_once__d16() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(3_000_000) });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    assert_eq!(world.deliver(|_| refused()).len(), 1);
    world.give((0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect());
    assert_eq!(world.give(vec![Item::Again(Failing::Key("k".to_owned()))]), [Answer::Tried]);
    let sent = all_sent(&world);
    assert_eq!(sent.len(), 31, "{sent:?}");
}

/// `a` is after the cursor, so it is only in the store.
#[test]
fn the_earlier_one_goes_first_also_if_memory_is_full__d4() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(2_000) });
    world.give(vec![put(Some("k"), "b", START_MS)]);
    assert_eq!(world.deliver(|_| refused()).len(), 1);
    world.give((0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect());
    world.give(vec![put(Some("k"), "a", START_MS - 5)]);
    world.advance_ms(2_000);
    let of_k: Vec<String> = all_sent(&world).into_iter().filter(|id| !id.starts_with('x')).collect();
    assert_eq!(of_k, ["a", "b"]);
}

#[test]
fn what_certainly_did_not_arrive_is_not_marked_if_an_earlier_one_came__d6() {
    for wait_ms in [200, 20_000] {
        let world = ByHand::start(settings(wait_ms));
        world.give(vec![put(Some("k"), "b", START_MS)]);
        assert_eq!(world.deliver(|_| refused()).len(), 1);
        world.give(vec![put(Some("k"), "a", START_MS - 5)]);
        world.advance_ms(wait_ms);
        let sent: Vec<_> = (0..4).flat_map(|_| world.sent()).collect();
        assert_eq!(ids(&sent), ["a", "b"]);
        assert!(!sent[1].redelivered && sent[1].attempt == 2, "{wait_ms}: {:?}", sent[1]);
    }
}

fn unanswered() -> Verdict {
    Verdict::Unanswered { reason: "no answer".to_owned(), retry_after_ms: None }
}

/// `b` waits for its next attempt, in memory or only in the store, and its wait may be over when the process starts. `a`
/// comes before the restart or after it, and `c` was there before.
#[test]
fn a_message_that_may_have_arrived_keeps_its_place_after_a_restart__d4() {
    for (wait_ms, passed_ms) in [(200, 0), (200, 500), (20_000, 0), (20_000, 30_000)] {
        for is_before in [false, true] {
            let mut world = ByHand::start(settings(wait_ms));
            world.give(vec![put(Some("k"), "b", START_MS), put(Some("k"), "c", START_MS + 1)]);
            assert_eq!(ids(&world.deliver(|_| unanswered())), ["b"]);
            let a = || vec![put(Some("k"), "a", START_MS - 5)];
            if is_before {
                world.give(a());
            }
            world.advance_ms(passed_ms);
            world = world.again();
            if !is_before {
                world.give(a());
            }
            let sent = world.pass_ms(2 * wait_ms, arrives);
            assert_eq!(ids(&sent), ["b", "a", "c"], "{wait_ms} {passed_ms} {is_before}");
            assert!(sent[0].redelivered);
        }
    }
}

/// There are more overdue messages than memory takes, so `b` is not read for a while.
#[test]
fn it_keeps_its_place_also_if_memory_is_full_after_the_restart__d4() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let mut world = ByHand::start(Settings { bounds, ..settings(2_000) });
    world.give(vec![put(Some("k"), "b", START_MS)]);
    assert_eq!(world.deliver(|_| unanswered()).len(), 1);
    world.give((0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect());
    world.give(vec![put(Some("k"), "a", START_MS - 2_000)]);
    world = world.again();
    world.advance_ms(2_000);
    let of_k: Vec<String> = all_sent(&world).into_iter().filter(|id| !id.starts_with('x')).collect();
    assert_eq!(of_k, ["b", "a"]);
}

/// It is the message that was tried last. The other one was moved, so it waits for its due time.
#[test]
fn a_message_that_was_moved_after_an_attempt_does_not_hold_up_its_key_after_a_restart__d4_d16() {
    let mut world = ByHand::start(settings(2_000));
    world.give(vec![put(Some("k"), "b", START_MS)]);
    assert_eq!(world.deliver(|_| unanswered()).len(), 1);
    let moved = Reschedule { id: "b".to_owned(), key: Some("k".to_owned()), due_ms: START_MS + 60_000 };
    assert_eq!(world.give(vec![Item::Reschedule(moved), put(Some("k"), "a", START_MS)])[0], Answer::Rescheduled);
    world = world.again();
    assert_eq!(ids(&world.pass_ms(10_000, arrives)), ["a"]);
    let sent = world.pass_ms(60_000, arrives);
    assert_eq!((ids(&sent), sent[0].redelivered), (vec!["b"], true));
}
