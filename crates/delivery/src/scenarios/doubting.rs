//! Keys in doubt over restarts, moves and cancels, and how many are remembered (D6, D7, D8).

use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

fn settings(unanswered_for_ms: u64, max_attempts: u32) -> Settings {
    let retry = Retry { max_attempts, waits_ms: vec![1_000], ..Retry::default() };
    Settings { retry, unanswered_for_ms, ..Settings::default() }
}

/// Sends the due messages, and none arrives.
fn fail_all(world: &ByHand, verdict: &Verdict) {
    world.write();
    while let Some((number, deliveries)) = world.take() {
        world.engine.settle(number, Verdicts::Each(vec![verdict.clone(); deliveries.len()]), None);
        world.write();
    }
}

#[test]
fn after_a_cancel_the_key_goes_on_at_once_also_after_a_restart__d7() {
    for restarts in [false, true] {
        let mut world = ByHand::start(Settings {
            retry: Retry { waits_ms: vec![60_000], ..Retry::default() },
            ..Settings::default()
        });
        world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
        fail_all(&world, &Verdict::Refused("no".to_owned()));
        if restarts {
            world.engine.close(true).unwrap();
            world = world.again();
            world.write();
        }
        assert!(world.sent().is_empty(), "the key waits");
        assert_eq!(world.give(vec![cancel(Some("k"), "a")]), [Answer::Cancelled]);
        let sent: Vec<String> = world.sent().iter().map(|it| it.id().to_owned()).collect();
        assert_eq!(sent, ["b"], "{restarts}");
    }
}

#[test]
fn the_time_without_success_counts_once_however_often_the_message_is_moved__d6() {
    let unanswered = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None };
    for moves in [false, true] {
        let world = ByHand::start(settings(6_000, 8));
        world.give(vec![put(Some("k"), "a", START_MS)]);
        let mut after_ms = 0;
        while world.engine.summary().undeliverable == 0 {
            fail_all(&world, &unanswered);
            world.advance_ms(250);
            after_ms += 250;
            if moves && after_ms % 1_000 == 0 {
                let to = Reschedule { id: "a".to_owned(), key: Some("k".to_owned()), due_ms: START_MS, asked_ms: None };
                world.give(vec![Item::Reschedule(to)]);
            }
        }
        assert!((6_000..8_000).contains(&after_ms), "moved {moves}: given up after {after_ms} ms");
    }
}

#[test]
fn keys_whose_messages_were_given_up_are_not_remembered_for_ever__d8() {
    let world = ByHand::start(settings(86_400_000, 1));
    let keys = 10_500;
    world.give((0..keys).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    for _ in 0..1_000 {
        fail_all(&world, &Verdict::Refused("no".to_owned()));
        if world.engine.is_empty() || world.engine.summary().undeliverable == keys {
            break;
        }
    }
    assert_eq!(world.engine.summary().undeliverable, keys);
    assert!(world.engine.doubts().0 <= 10_000, "{} keys", world.engine.doubts().0);
}
