//! An outage ends when the destination is back, whatever messages of dead customers are beside the others (D6).

use super::neighbours::limits;
use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::group::writer::Sends;
use crate::message::incoming::Incoming;
use crate::message::{Body, Extras, Message};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

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

/// By a stop or a crash. Each key was told to wait for an hour.
#[test]
fn an_outage_goes_on_after_a_restart_until_the_destination_is_back__d6() {
    for (has_key, closes, is_back) in
        [(true, true, true), (true, false, false), (false, true, false), (false, false, true)]
    {
        let mut world = ByHand::start(Settings::default());
        let key = |id: usize| has_key.then(|| format!("k{id}"));
        world.give((0..20).map(|id| put(key(id).as_deref(), &id.to_string(), START_MS)).collect());
        let busy = || unanswered(Some(3_600_000));
        world.pass_ms(60_000, |_| busy());
        assert!(world.engine.down().is_some());
        if closes {
            world.engine.close(Sends::AllEnded).unwrap();
        }
        world = world.again();
        if !is_back {
            world.pass_ms(30_000, |_| busy());
            assert!(world.engine.down().is_some(), "{has_key}: it is found again");
        }
        let came = world.pass_ms(11_000, |_| Verdict::Delivered);
        assert_eq!((came.len(), world.engine.open_count()), (20, 0), "{has_key}");
        assert!(world.engine.down().is_none());
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
    let pause = |id| Item::pause(Some(key(id)), true);
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

fn expiring(key: Option<&str>, id: &str) -> Item {
    let extras = Extras { expires_ms: Some(START_MS + 500), ..Extras::default() };
    let body = Body::new(key, id, b"1", true).with_extras(extras);
    Item::Put(Incoming::of(Message { body, due_ms: START_MS, delay_ms: None }))
}

/// Six keys, or messages without keys, fail, and then nothing is left to send. A balancer that reads the state would send
/// no message that shows that the destination is back.
#[test]
fn an_outage_ends_when_nothing_is_left_to_try__d6() {
    for (has_key, wait_ms) in [(true, 1_000), (true, 60_000), (true, 3_600_000), (false, 1_000), (false, 3_600_000)] {
        let six = |of: &dyn Fn(Option<&str>, &str) -> Item| -> Vec<Item> {
            (0..6).map(|id| of(has_key.then(|| format!("k{id}")).as_deref(), &id.to_string())).collect()
        };
        let down = || unanswered(Some(wait_ms));
        let begun = |messages: Vec<Item>| {
            let world = ByHand::start(Settings::default());
            world.give(messages);
            world
        };
        let is_over = |world: &ByHand, how: &str| {
            world.pass_ms(120_000, |_| down());
            assert_eq!(world.engine.down(), None, "{how}, waits of {wait_ms} ms");
            assert_eq!(world.pass_ms(10_000, |_| Verdict::Delivered).len(), 0);
        };
        let world = begun(six(&expiring));
        world.deliver(|_| down());
        is_over(&world, "expired");
        let waiting = || six(&|key, id| put(key, id, START_MS));
        let mut ends = vec![six(&|key, id| cancel(key, id))];
        if has_key {
            let pauses = six(&|key, _| Item::pause(key.map(str::to_owned), true));
            let world = begun(waiting());
            let (number, flight) = world.next_send().unwrap();
            world.give(pauses.clone());
            world.advance_ms(10);
            world.engine.settle(number, Verdicts::Each(vec![down(); flight.len()]), None);
            is_over(&world, "paused in flight");
            ends.push(pauses);
        }
        for end in ends {
            let world = begun(waiting());
            world.pass_ms(5_000, |_| down());
            assert!(world.engine.down().is_some());
            world.give(end);
            is_over(&world, "taken back while it is down");
        }
    }
}

/// A try arrives and ends the outage. Another one, which began before that, is refused.
#[test]
fn a_refusal_counts_only_if_the_destination_was_up_when_its_send_began__d6() {
    let retry = Retry { max_attempts: 1, ..Retry::default() };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
    world.pass_ms(5_000, |_| unanswered(None));
    let mut begun = Vec::new();
    for _ in 0..10 {
        world.advance_ms(1_000);
        begun.extend(world.next_send());
    }
    assert!(world.engine.down().is_some() && begun.len() > 1);
    let no = || Verdict::Refused("no".to_owned());
    let (arrives, refused) = (begun.pop().unwrap(), begun.pop().unwrap());
    world.engine.settle(arrives.0, Verdicts::Delivered, None);
    assert!(world.engine.down().is_none());
    world.engine.settle(refused.0, Verdicts::Each(vec![no()]), None);
    world.write();
    assert_eq!(world.engine.open_count(), 19, "the refused one is tried again");
    let tried = world.deliver(|_| no()).len() as u64;
    assert!(tried > 0);
    assert_eq!(world.engine.open_count(), 19 - tried, "these began while it was up");
}
