//! An outage ends when the destination is back, whatever messages of dead customers are beside the others (D6).

use super::neighbours::limits;
use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::message::incoming::Incoming;
use crate::message::{Body, Message};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};

fn unreachable() -> Verdict {
    Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None }
}

fn unanswered(retry_after_ms: Option<u64>) -> Verdict {
    Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms }
}

fn is_dead(it: &Delivery) -> bool {
    it.key().is_some_and(|key| key.starts_with("dead"))
}

fn sized(key: &str, id: &str, bytes: usize) -> Item {
    let body = Body::new(Some(key), id, format!("\"{}\"", "x".repeat(bytes)).as_bytes(), true);
    Item::Put(Incoming::of(Message { body, due_ms: START_MS, delay_ms: None }))
}

/// Five minutes in which all are told to wait, then all but the dead customers are back. Returns after how many seconds the
/// outage ended.
fn ends_after_s(world: &ByHand, retry_after_ms: u64, limit_s: u64) -> u64 {
    let busy = || unanswered(Some(retry_after_ms));
    world.pass_ms(300_000, |it| if is_dead(it) { unreachable() } else { busy() });
    assert!(world.engine.down().is_some());
    let mut at_s = 0;
    while world.engine.down().is_some() && at_s < limit_s {
        world.pass_ms(10_000, |it| if is_dead(it) { unreachable() } else { Verdict::Delivered });
        at_s += 10;
    }
    at_s
}

#[test]
fn messages_of_dead_customers_do_not_keep_others_in_the_store__d6() {
    for (dead, bytes) in [(30, 1_000_000), (2_200, 10)] {
        let world = ByHand::start(Settings::default());
        world.engine.set_places(limits(8, 64));
        world.give((0..dead).map(|id| sized(&format!("dead{id}"), &id.to_string(), bytes)).collect());
        world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
        assert!(ends_after_s(&world, 30_000, 7_200) < 7_200, "{dead} dead customers");
    }
}

/// Its wait is short, so it is ready at each round.
#[test]
fn a_dead_customer_that_is_ready_does_not_keep_rounds_from_others_that_wait__d6() {
    let world =
        ByHand::start(Settings { retry: Retry { waits_ms: vec![1_000], ..Retry::default() }, ..Settings::default() });
    world.engine.set_places(limits(4, 8));
    world.give(vec![put(Some("dead"), "0", START_MS)]);
    world.deliver(|_| unreachable());
    world.advance_ms(1);
    world.give(vec![put(None, "accepted", START_MS)]);
    world.deliver(|it| if is_dead(it) { unreachable() } else { Verdict::Delivered });
    world.advance_ms(2_000);
    world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
    assert!(ends_after_s(&world, 3_600_000, 3_600) <= 300);
}

#[test]
fn keys_without_a_message_to_send_are_no_sign_of_an_outage__d6() {
    let key = |id: usize| format!("k{id}");
    let pause = |id| Item::Pause { key: Some(key(id)), is_paused: true };
    let ends: [&dyn Fn(usize) -> Item; 2] = [&|id| cancel(Some(&key(id)), &id.to_string()), &pause];
    for wait_ms in [1_000, 60_000] {
        for end in ends {
            let world = ByHand::start(Settings::default());
            world.give((0..6).map(|id| put(Some(&key(id)), &id.to_string(), START_MS)).collect());
            assert_eq!(world.deliver(|_| unanswered(Some(wait_ms))).len(), 6);
            world.give((0..6).map(end).collect());
            world.pass_ms(3_600_000, |_| unanswered(None));
            assert_eq!(world.engine.down(), None, "waits of {wait_ms} ms");
        }
    }
}
