//! A key that waits for its next attempt is tried at once if a caller asks for it (D16).

use std::sync::Arc;

use super::testing::{ByHand, START_MS, answered, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Failing, Item};
use crate::group::writer::Sends;
use crate::message::Reschedule;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::file::owner::Ownership;
use tickwheel::Clock;

const IN_MEMORY_MS: u64 = 5_000;
const PARKED_MS: u64 = 20_000;

fn settings(wait_ms: u64) -> Settings {
    let retry = Retry { max_attempts: 3, waits_ms: vec![wait_ms], ..Retry::default() };
    Settings { retry, ..Settings::default() }
}

fn again(key: Option<&str>, id: &str) -> Item {
    Item::Again(key.map_or_else(|| Failing::Message(id.to_owned()), |key| Failing::Key(key.to_owned())))
}

fn pause(key: Option<&str>, is_paused: bool) -> Item {
    Item::pause(key.map(str::to_owned), is_paused)
}

fn refused() -> Verdict {
    Verdict::Refused("no".to_owned())
}

/// Sends what can go out now, and all of it fails in this way. Returns each id with the number of its attempt.
fn fail_all(world: &ByHand, verdict: &Verdict) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    world.write();
    while let Some((number, deliveries)) = world.next_send() {
        all.extend(deliveries.iter().map(|it| (it.body.id().to_owned(), it.attempt)));
        world.engine.settle(number, Verdicts::Each(vec![verdict.clone(); deliveries.len()]), None);
        world.write();
    }
    all
}

fn one(id: &str, attempt: u32) -> Vec<(String, u32)> {
    vec![(id.to_owned(), attempt)]
}

/// A message with this key that was refused, and waits.
fn waiting(key: Option<&str>, wait_ms: u64) -> ByHand {
    let world = ByHand::start(settings(wait_ms));
    world.give(vec![put(key, "a", START_MS)]);
    assert_eq!(fail_all(&world, &refused()), one("a", 1));
    world.advance_ms(100);
    assert_eq!(fail_all(&world, &refused()), []);
    world
}

/// Runs this for a key and for a message without a key, which waits in memory or in the store.
fn each(check: impl Fn(Option<&str>, u64)) {
    for key in [None, Some("k")] {
        for wait_ms in [IN_MEMORY_MS, PARKED_MS] {
            check(key, wait_ms);
        }
    }
}

#[test]
fn it_is_tried_at_once_one_time_and_then_waits_as_before__d16() {
    each(|key, wait_ms| {
        let world = waiting(key, wait_ms);
        assert_eq!(world.engine.in_memory().0, usize::from(wait_ms == IN_MEMORY_MS));
        assert_eq!(world.give(vec![again(key, "a")]), [Answer::Tried]);
        assert_eq!(fail_all(&world, &refused()), one("a", 2), "{key:?} {wait_ms}");
        world.advance_ms(wait_ms - 1);
        assert_eq!(fail_all(&world, &refused()), [], "{key:?} {wait_ms}: its earlier wait is over");
        world.advance_ms(1);
        assert_eq!(fail_all(&world, &refused()), one("a", 3), "{key:?} {wait_ms}");
        assert_eq!(world.engine.summary().undeliverable, 1, "all tries count");
    });
}

#[test]
fn the_messages_of_its_key_are_sent_in_order__d4() {
    for wait_ms in [IN_MEMORY_MS, PARKED_MS] {
        let world = waiting(Some("k"), wait_ms);
        world.give(vec![put(Some("k"), "before", START_MS - 1), put(Some("k"), "after", START_MS + 1)]);
        world.give(vec![again(Some("k"), "")]);
        let sent: Vec<String> = world.sent().iter().map(|it| it.body.id().to_owned()).collect();
        assert_eq!(sent, ["before", "a", "after"], "{wait_ms}: `a` was refused, so an earlier message goes first");
    }
}

#[test]
fn the_answer_holds_after_a_crash__d16() {
    each(|key, wait_ms| {
        let world = waiting(key, wait_ms);
        assert_eq!(world.give(vec![again(key, "a")]), [Answer::Tried]);
        let world = world.again();
        world.write();
        assert_eq!(world.sent().iter().map(|it| it.attempt).max(), Some(2), "{key:?} {wait_ms}");
    });
}

#[test]
fn after_a_restart_it_is_found_too__d16() {
    each(|key, wait_ms| {
        let world = waiting(key, wait_ms).again();
        assert_eq!(fail_all(&world, &refused()), [], "{key:?} {wait_ms}: it still waits");
        assert_eq!(world.give(vec![again(key, "a")]), [Answer::Tried]);
        assert_eq!(world.sent().len(), 1, "{key:?} {wait_ms}");
    });
}

/// The attempt is reported while the group is written, so a later group has its row.
#[test]
fn an_attempt_that_is_stored_later_does_not_make_it_wait_after_a_crash__d16() {
    each(|key, wait_ms| {
        let world = ByHand::start(settings(wait_ms));
        world.give(vec![put(key, "a", START_MS)]);
        let (number, _) = world.take().expect("it is due");
        let receipt = world.submit(vec![again(key, "a")]);
        let begun = world.engine.begin_group().unwrap();
        world.engine.settle(number, Verdicts::Each(vec![refused()]), None);
        let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
        world.engine.publish_group(&committed).unwrap();
        assert_eq!(answered(&receipt).unwrap().unwrap(), [Answer::Tried]);
        world.write();
        let world = world.again();
        world.write();
        assert_eq!(world.sent().len(), 1, "{key:?} {wait_ms}");
    });
}

#[test]
fn in_a_store_from_which_nothing_delivers_the_next_run_tries_it_at_once__d16() {
    each(|key, wait_ms| {
        let world = waiting(key, wait_ms);
        let wall_us = world.wall_ms() * 1_000;
        let folder = world.end();
        let open = || {
            let path = folder.path().join("store.db");
            let ownership = Ownership::take(&path, &mut |_| (), &mut || false).unwrap();
            Engine::open(ownership, settings(wait_ms), Clock::manual(0), Arc::new(move || wall_us)).unwrap()
        };
        let engine = open();
        for (asked, answer) in [(again(key, "a"), Answer::Tried), (again(Some("other"), ""), Answer::Unknown)] {
            for _ in 0..2 {
                let receipt = engine.submit(vec![asked.clone()]).unwrap();
                engine.write(&|| Ok(())).unwrap();
                assert_eq!(answered(&receipt).unwrap().unwrap(), [answer], "{key:?} {wait_ms}");
            }
        }
        engine.close(Sends::AllEnded).unwrap();
        drop(engine);
        let engine = open();
        engine.start(engine.wall_clock());
        while engine.write(&|| Ok(())).unwrap() {}
        let (_, deliveries) = engine
            .take(64, 1 << 20, false)
            .or_else(|| {
                while engine.write(&|| Ok(())).unwrap() {}
                engine.take(64, 1 << 20, false)
            })
            .expect("it goes out at once");
        assert_eq!(deliveries.len(), 1, "{key:?} {wait_ms}");
    });
}

#[test]
fn what_is_paused_is_not_tried__d16() {
    each(|key, wait_ms| {
        for paused in [None, key] {
            let world = waiting(key, wait_ms);
            world.give(vec![pause(paused, true)]);
            assert_eq!(world.give(vec![again(key, "a")]), [Answer::Paused]);
            assert_eq!(fail_all(&world, &refused()), []);
            assert_eq!(world.give(vec![pause(paused, false), again(key, "a")])[0], Answer::Resumed);
            assert_eq!(world.sent().len(), 1, "{key:?} {wait_ms} {paused:?}");
        }
    });
}

/// The message of a key that was paused comes back in the order of its lane.
#[test]
fn after_a_pause_of_its_key_the_answer_holds_after_a_crash_too__d16() {
    for wait_ms in [IN_MEMORY_MS, PARKED_MS] {
        let world = waiting(Some("k"), wait_ms);
        world.give(vec![pause(Some("k"), true)]);
        world.give(vec![pause(Some("k"), false)]);
        assert_eq!(world.give(vec![again(Some("k"), "")]), [Answer::Tried]);
        let world = world.again();
        world.write();
        assert_eq!(world.sent().len(), 1, "{wait_ms}");
    }
}

#[test]
fn it_says_if_there_is_nothing_to_try__d16() {
    let world = ByHand::start(settings(IN_MEMORY_MS));
    let ask = |key, id| world.give(vec![again(key, id)])[0];
    assert_eq!((ask(Some("k"), ""), ask(None, "a")), (Answer::Unknown, Answer::Unknown));
    let far_ms = START_MS + 3_600_000;
    world.give(vec![put(Some("k"), "far", far_ms), put(None, "far", far_ms), put(None, "soon", START_MS + 1_000)]);
    let answers = (ask(Some("k"), ""), ask(None, "far"), ask(None, "soon"));
    assert_eq!(answers, (Answer::Unknown, Answer::Waiting, Answer::Waiting));
    world.give(vec![put(Some("k"), "now", START_MS), put(None, "now", START_MS)]);
    let (number, deliveries) = world.take().unwrap();
    assert_eq!(deliveries.len(), 2);
    assert_eq!((ask(Some("k"), ""), ask(None, "now")), (Answer::Delivering, Answer::Delivering));
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!((ask(Some("k"), ""), ask(None, "now")), (Answer::Unknown, Answer::Delivered));
}

#[test]
fn a_message_that_was_moved_waits_for_its_due_time_alone__d16() {
    each(|key, wait_ms| {
        let world = waiting(key, wait_ms);
        let due_ms = world.wall_ms() + 3_000;
        let to = Reschedule { id: "a".to_owned(), key: key.map(str::to_owned), due_ms };
        assert_eq!(world.give(vec![Item::Reschedule(to)]), [Answer::Rescheduled]);
        let expected = if key.is_some() { Answer::Unknown } else { Answer::Waiting };
        assert_eq!(world.give(vec![again(key, "a")]), [expected], "{key:?} {wait_ms}");
        assert_eq!(fail_all(&world, &refused()), []);
        world.advance_ms(3_000);
        assert_eq!(world.sent().len(), 1);
    });
}

#[test]
fn in_one_order_of_all_messages_that_one_is_meant__d16() {
    let world = ByHand::start(Settings { is_global: true, ..settings(PARKED_MS) });
    world.give(vec![put(Some("k"), "a", START_MS), put(None, "b", START_MS + 1)]);
    world.advance_ms(10);
    assert_eq!(fail_all(&world, &refused()), one("a", 1));
    assert_eq!(world.give(vec![again(None, "b")]), [Answer::Tried]);
    assert_eq!(fail_all(&world, &refused()), one("a", 2));
    assert_eq!(world.give(vec![again(Some("other"), "")]), [Answer::Tried]);
    assert_eq!(world.sent().len(), 2);
}

#[test]
fn while_the_destination_is_down_it_is_one_of_the_tries_and_ends_no_outage_by_itself__d6() {
    each(|key, wait_ms| {
        let world = ByHand::start(settings(wait_ms));
        let of = |number: usize| key.map(|key| format!("{key}{number}"));
        let away = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None };
        world.give((0..6).map(|number| put(of(number).as_deref(), &number.to_string(), START_MS)).collect());
        assert_eq!(fail_all(&world, &away).len(), 6);
        world.advance_ms(1_000);
        let tried = fail_all(&world, &away).len();
        assert!(world.engine.down().is_some());
        assert_eq!(world.give(vec![again(of(2).as_deref(), "2")]), [Answer::Tried]);
        let mut tries = fail_all(&world, &away);
        assert!(tried + tries.len() <= 4, "{key:?} {wait_ms}: the tries of one second");
        world.advance_ms(1_000);
        tries.extend(fail_all(&world, &away));
        assert!(tries.iter().any(|(id, _)| id == "2"), "{key:?} {wait_ms}: {tries:?}");
        assert!(world.engine.down().is_some());
    });
}
