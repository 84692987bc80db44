//! Sending pauses and goes on (D16): after the answer nothing is sent, also by the next process.

use super::testing::{ByHand, START_MS, put};
use crate::due::dispatcher::Event;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::Verdicts;

fn pause(is_paused: bool) -> Item {
    Item::Pause { key: None, is_paused }
}

#[test]
fn nothing_is_sent_after_the_answer_until_it_is_resumed_also_after_a_restart__d16() {
    let mut world = ByHand::start(Settings::default());
    world.give((0..3).map(|n| put(Some("k"), &n.to_string(), START_MS + n)).collect());
    let (number, _) = world.take().expect("the first is due");
    assert_eq!(world.give(vec![pause(true)]), [Answer::Paused]);
    assert_eq!(world.engine.take_events(), [Event::Paused]);
    world.advance_ms(10);
    world.engine.settle(number, Verdicts::Delivered, None);
    world.write();
    assert_eq!(world.engine.summary().delivered, 1, "what was on its way has its outcome");
    assert!(world.take().is_none());
    assert_eq!(world.give(vec![put(None, "new", START_MS)]), [Answer::Accepted]);
    world = world.again();
    assert!(world.engine.is_paused());
    assert_eq!(world.engine.take_events(), [Event::Paused], "whoever starts it is told");
    world.advance_ms(10);
    world.write();
    assert!(world.take().is_none());
    assert_eq!(world.give(vec![pause(true), pause(false)]), [Answer::Paused, Answer::Resumed]);
    let mut sent = Vec::new();
    for _ in 0..6 {
        sent.extend(world.send());
        world.write();
    }
    sent.sort();
    assert_eq!(sent, ["1", "2", "new"]);
    assert!(!world.again().engine.is_paused());
}

#[test]
fn it_goes_on_only_once_that_is_on_disk__d16() {
    let world = ByHand::start(Settings::default());
    world.give(vec![pause(true), put(None, "a", START_MS)]);
    let _receipt = world.submit(vec![pause(false)]);
    let begun = world.engine.begin_group().unwrap();
    assert!(world.take().is_none());
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    assert!(world.take().is_none(), "after a crash it would be paused");
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(world.send(), ["a"]);
}

#[test]
fn what_is_in_the_hands_of_a_sender_and_has_not_begun_waits_too__d16() {
    let world = ByHand::start(Settings::default());
    world.give((0..4).map(|n| put(None, &n.to_string(), START_MS)).collect());
    let (number, deliveries) = world.take().expect("they are due");
    assert_eq!(deliveries.len(), 4);
    let turns = world.engine.lock_dispatcher().in_turn(number);
    assert_eq!(turns.begin(), Some(0));
    world.give(vec![pause(true)]);
    turns.ended();
    assert_eq!(turns.begin(), None, "the next one does not begin");
    world.engine.settle_turns(number, None);
    world.write();
    assert_eq!((world.engine.summary().delivered, world.engine.down()), (1, None));
    assert!(world.take().is_none());
    world.give(vec![pause(false)]);
    assert_eq!(world.send(), ["1", "2", "3"]);
    // If no turn has begun, this does not show that the destination is down.
    world.give(vec![put(None, "a", START_MS)]);
    let (number, _) = world.take().expect("it is due");
    let turns = world.engine.lock_dispatcher().in_turn(number);
    world.give(vec![pause(true)]);
    assert_eq!(turns.begin(), None);
    world.engine.settle_turns(number, None);
    assert_eq!(world.engine.down(), None);
    world.give(vec![pause(false)]);
    assert_eq!(world.send(), ["a"]);
}
