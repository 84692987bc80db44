//! A key pauses and goes on (D16). After the answer none of its messages is sent, also by the next process. Other
//! messages do not wait.

use super::testing::{ByHand, START_MS, cancel, put, settings};
use crate::due::dispatcher::Event;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};
use crate::store::MOST_PAUSED_KEYS;

fn pause_key(key: &str, is_paused: bool) -> Item {
    Item::pause(Some(key.to_owned()), is_paused)
}

/// Everything that goes out in this moment, sorted.
fn sent(world: &ByHand) -> Vec<String> {
    let mut sent = Vec::new();
    loop {
        world.write();
        let now = world.send();
        if now.is_empty() {
            sent.sort();
            return sent;
        }
        sent.extend(now);
    }
}

fn refused() -> Verdicts {
    Verdicts::Each(vec![Verdict::Refused("no".to_owned())])
}

#[test]
fn nothing_of_a_paused_key_is_sent_until_it_is_resumed_also_after_a_restart__d16() {
    let mut world = ByHand::start(settings());
    world.give((0..3).map(|n| put(Some("k"), &format!("k{n}"), START_MS + n)).collect());
    let (number, _) = world.take().expect("the first is due");
    assert_eq!(world.give(vec![pause_key("k", true)]), [Answer::Paused]);
    assert_eq!(world.engine.take_events(), [Event::KeysPaused { count: 1 }]);
    world.advance_ms(10);
    world.engine.settle(number, Verdicts::Delivered, None);
    assert!(sent(&world).is_empty());
    assert_eq!(world.engine.summary().delivered, 1, "what was on its way has its outcome");
    world.give(vec![put(Some("k"), "k3", START_MS), put(Some("l"), "l", START_MS), put(None, "none", START_MS)]);
    assert_eq!(sent(&world), ["l", "none"], "others go on");
    assert_eq!(world.engine.in_memory().0, 0, "what waits is in the store alone");
    world = world.again();
    assert_eq!(world.engine.take_events(), [Event::KeysPaused { count: 1 }], "whoever starts it is told");
    world.advance_ms(10);
    assert!(sent(&world).is_empty());
    assert_eq!(world.engine.in_memory().0, 0);
    assert_eq!(world.give(vec![pause_key("k", true), pause_key("k", false)]), [Answer::Paused, Answer::Resumed]);
    assert_eq!(world.engine.take_events(), [Event::KeysPaused { count: 0 }]);
    assert_eq!(sent(&world), ["k1", "k2", "k3"]);
    assert_eq!(world.again().engine.take_events(), []);
}

#[test]
fn a_key_goes_on_only_once_that_is_on_disk__d16() {
    let world = ByHand::start(settings());
    world.give(vec![pause_key("k", true), put(Some("k"), "a", START_MS)]);
    let _receipt = world.submit(vec![pause_key("k", false)]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    assert!(world.take().is_none(), "after a crash it would be paused");
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(sent(&world), ["a"]);
}

#[test]
fn the_last_of_several_counts_also_in_one_group__d16() {
    let world = ByHand::start(settings());
    let asked = [true, false, true].map(|is_paused| pause_key("k", is_paused));
    world.give(asked.into_iter().chain([put(Some("k"), "a", START_MS)]).collect());
    assert!(sent(&world).is_empty());
    world.give([false, true, false].map(|is_paused| pause_key("k", is_paused)).to_vec());
    assert_eq!(sent(&world), ["a"]);
}

#[test]
fn a_message_that_failed_is_not_tried_while_its_key_is_paused_and_may_have_arrived__d16() {
    // Beyond the horizon it has a row in the store.
    for after_ms in [0, 60_000] {
        let world = ByHand::start(settings());
        let due_ms = START_MS + after_ms;
        world.give(vec![put(Some("k"), "a", due_ms), put(Some("k"), "b", due_ms + 1)]);
        world.advance_ms(after_ms as u64);
        world.write();
        let (number, deliveries) = world.take().expect("it is due");
        world.engine.settle(number, refused(), None);
        world.give(vec![pause_key("k", true)]);
        world.advance_ms(1_000);
        assert!(sent(&world).is_empty());
        assert_eq!(world.engine.in_memory().0, 0, "its place is free, however long the pause is");
        world.give(vec![pause_key("k", false)]);
        world.write();
        let (number, again) = world.take().expect("it goes on");
        assert_eq!((again[0].seq, again[0].attempt, again[0].redelivered), (deliveries[0].seq, 2, true));
        world.engine.settle(number, Verdicts::Delivered, None);
        assert_eq!(sent(&world), ["b"]);
    }
}

/// A message that was refused once and then paused with its key. It has just left memory, before the next commit.
fn just_left(after_ms: i64) -> ByHand {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS + after_ms)]);
    world.advance_ms(after_ms as u64);
    world.write();
    let (number, _) = world.take().expect("it is due");
    world.engine.settle(number, refused(), None);
    world.give(vec![pause_key("k", true)]);
    world.advance_ms(1_000);
    assert!(world.take().is_none());
    world
}

/// Resumes the key, and returns the next delivery.
fn goes_on(world: &ByHand) -> Delivery {
    world.give(vec![pause_key("k", false)]);
    world.write();
    world.take().expect("it goes on").1.remove(0)
}

#[test]
fn what_has_just_left_memory_is_marked_at_the_end_and_after_a_crash__d16() {
    for after_ms in [0, 60_000] {
        for is_closed in [true, false] {
            let mut world = just_left(after_ms);
            if is_closed {
                world.engine.close(Sends::AllEnded).unwrap();
            }
            world = world.again();
            assert!(goes_on(&world).redelivered, "{after_ms} {is_closed}");
        }
    }
}

#[test]
fn what_has_just_left_memory_is_marked_where_it_is_moved__d16() {
    for after_ms in [0, 60_000] {
        let world = just_left(after_ms);
        let to = Reschedule { id: "a".to_owned(), key: Some("k".to_owned()), due_ms: START_MS };
        assert_eq!(world.give(vec![Item::Reschedule(to)]), [Answer::Rescheduled]);
        assert!(goes_on(&world).redelivered, "{after_ms}");
    }
}

#[test]
fn many_paused_keys_leave_the_memory_to_others__d16() {
    let bounds = Bounds { messages: 20, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings() });
    let key = |n: i64| format!("paused {n}");
    world.give((0..50).map(|n| pause_key(&key(n), true)).collect());
    world.give((0..100).map(|n| put(Some(&key(n % 50)), &n.to_string(), START_MS)).collect());
    world.give((0..10).map(|n| put(Some("k"), &format!("k{n}"), START_MS)).collect());
    assert_eq!(sent(&world).len(), 10);
    assert_eq!(world.engine.in_memory().0, 0);
    let world = world.again();
    world.give((0..10).map(|n| put(Some("k"), &format!("l{n}"), START_MS)).collect());
    assert_eq!(sent(&world).len(), 10);
    assert!(!world.engine.write(&|| Ok(())).unwrap(), "and the writer rests");
    world.give((0..50).map(|n| pause_key(&key(n), false)).collect());
    assert_eq!(sent(&world).len(), 100);
}

#[test]
fn a_message_of_a_paused_key_can_be_cancelled_and_moved__d16() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS + 1), pause_key("k", true)]);
    let to = Reschedule { id: "b".to_owned(), key: Some("k".to_owned()), due_ms: START_MS + 5 };
    let asked = vec![cancel(Some("k"), "a"), Item::Reschedule(to)];
    assert_eq!(world.give(asked), [Answer::Cancelled, Answer::Rescheduled]);
    world.advance_ms(10);
    assert!(sent(&world).is_empty());
    world.give(vec![pause_key("k", false)]);
    assert_eq!(sent(&world), ["b"]);
}

#[test]
fn in_one_order_of_all_messages_no_key_is_paused__d16() {
    let is_global = Settings { is_global: true, ..settings() };
    let world = ByHand::start(is_global.clone());
    let answers = world.give(vec![pause_key("k", true), pause_key("k", false), put(Some("k"), "a", START_MS)]);
    assert_eq!(answers, [Answer::Refused, Answer::Resumed, Answer::Accepted]);
    assert_eq!(sent(&world), ["a"]);
    let world = ByHand::start(settings());
    world.give(vec![pause_key("k", true)]);
    let refused = world.try_reopen_with(is_global).err().expect("a key is paused").to_string();
    assert!(refused.starts_with("keys are paused in this store") && refused.contains("--key KEY"), "{refused}");
}

#[test]
fn no_more_than_ten_thousand_keys_are_paused__d16() {
    let world = ByHand::start(settings());
    let most = MOST_PAUSED_KEYS as usize;
    let answers = world.give((0..most).map(|n| pause_key(&n.to_string(), true)).collect());
    assert!(answers.iter().all(|it| *it == Answer::Paused));
    let asked = vec![pause_key("one more", true), pause_key("7", true), pause_key("7", false), pause_key("new", true)];
    assert_eq!(world.give(asked), [Answer::Refused, Answer::Paused, Answer::Resumed, Answer::Paused]);
    let asked = vec![pause_key("new", false), pause_key("one more", true)];
    assert_eq!(world.give(asked), [Answer::Resumed, Answer::Paused]);
}
