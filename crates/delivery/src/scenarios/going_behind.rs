//! A key that waits for its next attempt, while memory is full, the wall clock is stepped, or an earlier message comes
//! (D4, D6, D16).

use super::testing::{ByHand, START_MS, ids, put};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Failing, Item};
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
