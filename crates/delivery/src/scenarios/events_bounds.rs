//! Messages that wait for events, and events, within the bounds of memory, of a key, and of a group (rules D8, D22).

use std::sync::Arc;

use super::destinations::{set, world};
use super::events::{LATER_MS, at, event, happens, let_go, waits, waits_of};
use super::testing::{ByHand, arrives, put};
use crate::group::items::{Answer, Item};
use crate::message::events::Event;
use crate::message::incoming::Incoming;
use crate::message::until::Cause;
use crate::message::{Message, checked, size_in_memory};
use crate::run::settings::Settings;

fn remembered(bytes: usize) -> Event {
    let payload = format!("\"{}\"", "x".repeat(bytes)).into_bytes().into();
    Event { remember_ms: Some(60_000), payload, ..event("k", "1", "paid") }
}

/// The data of the event of each message in memory. Each entry has at least the size of its message.
fn data(world: &ByHand) -> Vec<Arc<str>> {
    let dispatcher = world.engine.lock_dispatcher();
    let mut found = Vec::new();
    for (_, entry) in dispatcher.window.slots() {
        let body = entry.body.as_ref().unwrap();
        let size = entry.size as usize + 1_000; // after a start, parts of fixed size are left out
        assert!(size >= size_in_memory(body.size()), "{size} of {}", body.size());
        if let Some(Cause::Event(_, data)) = body.until().map(|until| &until.cause) {
            found.push(data.clone());
        }
    }
    found
}

#[test]
fn the_data_of_a_remembered_event_counts_for_each_message_and_is_read_once__d8_d22() {
    let world = ByHand::start(Settings::default());
    let_go(&world, remembered(100 << 10));
    world.give((0..500).map(|id| waits("k", &format!("{id:03}"), LATER_MS, &["paid"])).collect());
    let once = |found: Vec<Arc<str>>| {
        assert!((2..=40).contains(&found.len()), "of 4 MiB for a key: {}", found.len());
        assert!(found.iter().all(|data| Arc::ptr_eq(data, &found[0])));
    };
    once(data(&world));
    let world = world.again();
    world.write();
    once(data(&world));
    let sent = world.deliver(arrives);
    assert_eq!((sent.len(), sent.is_sorted_by_key(|it| it.body.id().to_owned())), (500, true));
}

#[test]
fn many_events_at_once_take_several_groups_and_are_answered_in_order__d8_d22() {
    let world = ByHand::start(Settings::default());
    let keys: Vec<String> = (0..10).map(|key| format!("k{key}")).collect();
    for key in &keys {
        world.give((0..300).map(|id| waits(key, &id.to_string(), LATER_MS, &["paid"])).collect());
    }
    let mut items: Vec<Item> = keys.iter().map(|key| happens(event(key, "1", "paid"))).collect();
    items.push(waits("k0", "after", LATER_MS, &["paid"]));
    let receipts = [items, vec![happens(event("k0", "2", "paid"))]].map(|items| world.submit(items));
    let mut before = world.engine.summary().let_go;
    loop {
        let more = world.engine.write(&|| Ok(())).unwrap();
        let now = world.engine.summary().let_go;
        assert!(now - before < 1_300, "{}", now - before);
        before = now;
        if !more {
            break;
        }
    }
    let [all, last] = receipts.map(|receipt| receipt.wait(None).unwrap().unwrap());
    assert_eq!(all.let_go, (0..10).map(|place| (place, 300)).collect::<Vec<_>>());
    assert_eq!((all.given.len(), last.let_go), (11, vec![(0, 1)]));
    assert_eq!(world.deliver(arrives).len(), 3_001);
}

fn replace(message: Message) -> Item {
    Item::Replace { put: Incoming::of(checked(message, 1_000).unwrap()), at_latest_ms: None }
}

#[test]
fn a_message_that_waits_in_the_place_of_another_counts_to_the_thousand__d22() {
    let world = ByHand::start(Settings::default());
    world.give((0..1_000).map(|id| waits("k", &id.to_string(), LATER_MS, &["paid"])).collect());
    world.give(vec![put(Some("k"), "plain", LATER_MS)]);
    let waiting = |id: &str| replace(at(id, LATER_MS + 1).with_key("k").until_event(["paid"]));
    assert_eq!(world.give(vec![waiting("plain")]), [Answer::Full]);
    assert_eq!(world.give(vec![put(Some("k"), "plain", LATER_MS)]), [Answer::Duplicate], "it waits as before");
    assert_eq!(world.give(vec![waiting("5")]), [Answer::Replaced], "this one waits already");
    assert_eq!(world.give(vec![replace(at("5", LATER_MS).with_key("k"))]), [Answer::Replaced]);
    assert_eq!(world.give(vec![waiting("plain"), waiting("5")]), [Answer::Replaced, Answer::Full]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(1_000)));
}

#[test]
fn a_message_that_comes_again_is_a_duplicate_although_its_key_is_full__d5_d22() {
    let world = ByHand::start(Settings::default());
    let puts = || (0..1_000).map(|id| waits("k", &id.to_string(), LATER_MS, &["paid"])).collect::<Vec<_>>();
    world.give(puts());
    let again = world.give([puts(), vec![waits("k", "1000", LATER_MS, &["paid"])]].concat());
    assert_eq!(again[..1_000], [Answer::Duplicate; 1_000]);
    assert_eq!(again[1_000], Answer::Full);
    assert_eq!(world.give(vec![waits("k", "1", LATER_MS, &["lost"])]), [Answer::Conflict]);
    assert_eq!(world.give(vec![replace(at("1", LATER_MS).with_key("k").until_event(["lost"]))]), [Answer::Replaced]);
}

#[test]
fn a_dead_letter_that_is_tried_anew_takes_no_place_of_those_that_wait__d16_d22() {
    let world = world(Settings::default(), &["x"]);
    let to_x = |id: &str| waits_of(at(id, LATER_MS).to("x"), "k", &["paid"]);
    world.give(vec![to_x("dead"), Item::RemoveDestination { name: "x".into(), dead: true }]);
    world.give(vec![set("x", "")]);
    let requeue = Item::Requeue { id: "dead".into(), key: Some("k".into()) };
    assert_eq!(world.give(vec![requeue]), [Answer::Requeued]);
    let others = world.give((0..1_000).map(|id| to_x(&id.to_string())).collect());
    assert_eq!(others, [Answer::Accepted; 1_000]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(1_000)), "that one may have arrived");
}

#[test]
fn a_name_with_a_space_is_refused_and_not_taken_for_two__d22() {
    let given = |names: &[&str]| checked(at("a", LATER_MS).with_key("k").until_event(names.iter().copied()), 9);
    assert_eq!(given(&["two words"]).unwrap_err().reason, "'two words' is no name of an event");
    assert_eq!(given(&["a\nb"]).unwrap_err().reason, "'a\\nb' is no name of an event");
    assert!(given(&[]).is_err());
    let checked_twice = checked(given(&["b", "a"]).unwrap(), 9).unwrap();
    assert_eq!(&*checked_twice.body.until().unwrap().names, "a b");
}
