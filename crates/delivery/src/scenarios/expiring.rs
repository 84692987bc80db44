//! A message is not delivered past its time (D17): it ends as expired, and is a dead letter.

use super::testing::{ByHand, START_MS, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::incoming::Incoming;
use crate::message::{Body, Extras, Message};
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

fn expiring(key: Option<&str>, id: &str, due_ms: i64, expires_ms: i64) -> Item {
    let extras = Extras { expires_ms: Some(expires_ms), ..Extras::default() };
    let body = Body::new(key, id, b"1", true).with_extras(extras);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

fn look(id: &str) -> Item {
    Item::Look { id: id.to_owned(), key: Some("k".to_owned()) }
}

#[test]
fn it_is_sent_until_its_last_millisecond_and_not_after__d17() {
    let world = ByHand::start(Settings::default());
    world
        .give(vec![expiring(None, "in time", START_MS, START_MS + 10), expiring(None, "late", START_MS, START_MS + 9)]);
    world.advance_ms(10);
    assert_eq!(world.send(), ["in time"]);
    world.write();
    assert!(world.engine.is_empty() || world.engine.queue.take_letters().is_some());
    let summary = world.engine.summary();
    assert_eq!((summary.delivered, summary.undeliverable, summary.expired, summary.dead_letters), (1, 1, 1, 1));
}

#[test]
fn its_letter_says_when_and_can_be_given_again_and_its_key_goes_on__d2_d17() {
    let world = ByHand::start(Settings::default());
    world.give(vec![expiring(Some("k"), "a", START_MS, START_MS + 1), put(Some("k"), "b", START_MS)]);
    world.advance_ms(5);
    assert!(world.take().is_none(), "the key waits until that is on disk");
    assert_eq!(world.give(vec![look("a")]), [Answer::Expired]);
    assert_eq!(world.send(), ["b"]);
    let (letters, _) = world.engine.queue.take_letters().unwrap();
    let record = String::from_utf8(letters[0].record.clone()).unwrap();
    assert_eq!(letters[0].reason, "expired at 2023-11-14T22:13:20.001Z after 0 attempts");
    assert!(record.contains(r#""expires":"2023-11-14T22:13:20.001Z""#), "{record}");
}

#[test]
fn one_that_waits_for_its_next_attempt_expires_too_also_after_a_restart__d17() {
    let retry = Retry { max_attempts: 5, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let mut world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![expiring(Some("k"), "a", START_MS, START_MS + 150)]);
    for attempt in 1..=2 {
        let (number, deliveries) = (0..4)
            .find_map(|_| {
                world.write(); // a mark, and an attempt, have to be on disk
                world.take()
            })
            .expect("it is due");
        assert_eq!(deliveries[0].attempt, attempt);
        world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
        world.write();
        world = world.again();
        world.write();
        world.advance_ms(100);
    }
    for _ in 0..3 {
        assert!(world.take().is_none(), "it has expired");
        world.write();
    }
    assert_eq!(world.give(vec![look("a")]), [Answer::Expired]);
}

#[test]
fn while_sending_pauses_it_waits_and_expires_when_it_would_be_sent__d16_d17() {
    let world = ByHand::start(Settings::default());
    world.give(vec![Item::pause(None, true), expiring(Some("k"), "a", START_MS, START_MS + 1)]);
    world.advance_ms(5);
    assert!(world.take().is_none());
    assert_eq!(world.give(vec![look("a")]), [Answer::Waiting]);
    world.give(vec![Item::pause(None, false)]);
    assert!(world.take().is_none());
    assert_eq!(world.give(vec![look("a")]), [Answer::Expired]);
}

#[test]
fn thousands_expire_in_parts_and_each_once__d8_d17() {
    let world = ByHand::start(Settings::default());
    world.give((0..2_500).map(|id| expiring(None, &id.to_string(), START_MS, START_MS + 1)).collect());
    world.advance_ms(5);
    let mut takes = 0;
    while world.engine.summary().expired < 2_500 {
        assert!(world.take().is_none());
        takes += 1;
        world.write();
        assert!(world.engine.summary().expired <= takes * 1_000);
    }
    assert_eq!((takes, world.engine.open_count()), (3, 0));
}
