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
