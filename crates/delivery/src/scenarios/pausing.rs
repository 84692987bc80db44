//! Sending pauses and goes on (D16): after the answer nothing is sent, also by the next process.

use super::destinations::world;
use super::tenants::of;
use super::testing::{ByHand, START_MS, put};
use crate::due::dispatcher::Event;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::Verdicts;
use crate::store::PartKind;

fn pause(is_paused: bool) -> Item {
    Item::pause(None, is_paused)
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

const PARTS: [(PartKind, &str); 4] =
    [(PartKind::All, ""), (PartKind::Key, "k"), (PartKind::Destination, "x"), (PartKind::Tenant, "t")];

fn until(part: PartKind, name: &str, until_ms: Option<i64>) -> Item {
    Item::Pause { part, name: name.to_owned(), is_paused: true, until_ms }
}

fn sends(world: &ByHand) -> usize {
    world.sent().len()
}

/// A part that is paused until a second from now, with a message of it that is due.
fn paused(part: PartKind, name: &str) -> ByHand {
    let world = world(Settings::default(), &["x"]);
    let asked = vec![until(part, name, Some(START_MS + 1_000)), of("t", Some("x"), Some("k"), "a", START_MS)];
    assert_eq!(world.give(asked), [Answer::Paused, Answer::Accepted]);
    world
}

#[test]
fn a_pause_with_an_end_is_over_then_also_after_a_restart__d16() {
    for (part, name) in PARTS {
        let mut world = paused(part, name);
        world.advance_ms(999);
        assert_eq!(sends(&world), 0, "{part:?}");
        world = world.again();
        assert_eq!(sends(&world), 0, "{part:?}");
        world.advance_ms(1);
        assert_eq!(sends(&world), 1, "{part:?}");
        let is_noted = world.engine.with_store(|store| store.first_pause_end_ms().is_some());
        assert!(!is_noted, "{part:?}");
    }
}

#[test]
fn a_pause_that_ended_while_no_process_ran_is_over__d16() {
    for (part, name) in PARTS {
        let world = paused(part, name);
        world.step_wall_clock_ms(5_000);
        assert_eq!(sends(&world.again()), 1, "{part:?}");
    }
}

#[test]
fn the_end_of_a_pause_follows_the_wall_clock__d16() {
    for (part, name) in PARTS {
        let world = paused(part, name);
        world.step_wall_clock_ms(-60_000);
        world.advance_ms(30_000);
        assert_eq!(sends(&world), 0, "{part:?}: it shows an earlier time than the end");
        world.step_wall_clock_ms(40_000);
        assert_eq!(sends(&world), 1, "{part:?}");
    }
}

#[test]
fn the_last_pause_says_when_it_ends__d16() {
    for (part, name) in PARTS {
        for later in [until(part, name, None), until(part, name, Some(START_MS + 9_000))] {
            let world = paused(part, name);
            world.give(vec![later]);
            world.advance_ms(2_000);
            assert_eq!(sends(&world), 0, "{part:?}");
        }
        let world = paused(part, name);
        world.give(vec![Item::pause_part(part, name, false)]);
        assert_eq!(sends(&world), 1, "{part:?}");
        world.give(vec![until(part, name, None), of("t", Some("x"), Some("k"), "b", START_MS)]);
        world.advance_ms(2_000);
        assert_eq!(sends(&world), 0, "{part:?}: the end of an earlier pause does not end this one");
    }
}

#[test]
fn settings_that_pause_leave_no_end_and_a_removal_forgets_it__d16_d23_d24() {
    let world = paused(PartKind::Tenant, "t");
    world.give(vec![super::tenant_limits::set_tenant("t", r#"{"paused":true}"#)]);
    world.advance_ms(2_000);
    assert_eq!(sends(&world), 0);
    let world = paused(PartKind::Destination, "x");
    world.give(vec![super::destinations::set("x", r#","paused":true"#)]);
    world.advance_ms(2_000);
    assert_eq!(sends(&world), 0);
    let ends = |world: &ByHand| world.engine.with_store(|store| store.first_pause_end_ms());
    assert_eq!(ends(&world), None);
    let world = paused(PartKind::Destination, "x");
    world.give(vec![Item::RemoveDestination { name: "x".to_owned(), dead: true }]);
    assert_eq!(ends(&world), None);
    let world = paused(PartKind::Tenant, "t");
    world.give(vec![super::tenant_limits::remove("t")]);
    assert_eq!((ends(&world), sends(&world)), (None, 1));
}
