//! An event lets messages go that wait for it, and a deadline ends the wait (rule D22).

use super::destinations::{set, world};
use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::events::Event;
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Cancel, Message, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::line::LineWriter;
use crate::sinks::{Delivery, Verdict, Verdicts};
use crate::store::look::messages::PageOf;
use crate::store::look::snapshot::Snapshot;
use crate::store::maintenance::Stop;
use crate::store::maintenance::check::check;
use crate::store::maintenance::check::tests::assert_whole;

pub(super) const LATER_MS: i64 = START_MS + 3_600_000;

pub(super) fn waits_of(message: Message, key: &str, names: &[&str]) -> Item {
    let message = message.with_key(key).until_event(names.iter().copied());
    Item::Put(Incoming::of(crate::message::checked(message, 1 << 20).unwrap()))
}

pub(super) fn at(id: &str, due_ms: i64) -> Message {
    Message { due_ms, ..Message::at(id, std::time::UNIX_EPOCH, "1").json() }
}

pub(super) fn waits(key: &str, id: &str, due_ms: i64, names: &[&str]) -> Item {
    waits_of(at(id, due_ms), key, names)
}

pub(super) fn event(key: &str, id: &str, name: &str) -> Event {
    let (id, key, event) = (id.to_owned(), key.to_owned(), name.to_owned());
    Event { id, key, event, remember_ms: None, payload: br#"{"n":1}"#[..].into(), is_json: true }
}

pub(super) fn happens(event: Event) -> Item {
    Item::Event { event, origin: None }
}

/// The answer and the count.
pub(super) fn let_go(world: &ByHand, event: Event) -> (Answer, Option<u32>) {
    let receipt = world.submit(vec![happens(event)]);
    world.write();
    let answers = receipt.wait(None).unwrap().unwrap();
    (answers.given[0], answers.let_go.first().map(|(_, count)| *count))
}

pub(super) fn line(delivery: &Delivery) -> String {
    let mut out = Vec::new();
    LineWriter::default().write(&mut out, delivery);
    String::from_utf8(out).unwrap()
}

/// The messages that come out now, each as its id and its cause.
fn come(world: &ByHand) -> Vec<String> {
    world.deliver(arrives).iter().map(caused).collect()
}

pub(super) fn caused(delivery: &Delivery) -> String {
    let line = line(delivery);
    let cause = ["event", "deadline"].into_iter().find(|cause| line.contains(&format!(",\"cause\":\"{cause}\"")));
    format!("{} {}", delivery.body.id(), cause.unwrap_or("-"))
}

#[test]
fn an_event_lets_a_message_go_and_the_others_wait_for_their_deadline__d22() {
    for far_ms in [LATER_MS, START_MS + 5_000] {
        let world = ByHand::start(Settings::default());
        world.give(vec![
            waits("k", "a", far_ms, &["paid", "lost"]),
            waits("k", "b", far_ms, &["lost"]),
            waits("other", "c", far_ms, &["paid"]),
            put(Some("k"), "d", far_ms),
        ]);
        assert_eq!(let_go(&world, event("k", "e", "paid")), (Answer::LetGo, Some(1)));
        let sent = world.deliver(arrives);
        assert_eq!((ids(&sent), sent[0].due_ms), (vec!["a"], START_MS));
        let end = ",\"cause\":\"event\",\"event\":{\"name\":\"paid\",\"id\":\"e\",\"payload\":{\"n\":1}}}\n";
        assert!(line(&sent[0]).ends_with(end), "{}", line(&sent[0]));
        world.advance_ms((far_ms - START_MS) as u64);
        let mut came = come(&world);
        came.sort_unstable();
        assert_eq!(came, ["b deadline", "c deadline", "d -"]);
        assert_whole(&world.store(), Digest::number);
    }
}

#[test]
fn an_event_that_comes_after_the_due_time_is_too_late__d22() {
    let world = ByHand::start(Settings::default());
    world.give(vec![waits("k", "a", START_MS + 50, &["paid"]), waits("k", "b", LATER_MS, &["paid"])]);
    world.advance_ms(50); // it is due, and not sent
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(1)));
    assert_eq!(come(&world), ["a deadline", "b event"]);
    world.give(vec![waits("k", "c", START_MS + 50, &["paid"])]);
    assert_eq!(let_go(&world, event("k", "2", "paid")), (Answer::LetGo, Some(0)), "it was due when it came");
    assert_eq!(come(&world), ["c deadline"]);
}

#[test]
fn an_event_is_known_by_its_name__d22() {
    let world = ByHand::start(Settings::default());
    world.give(vec![waits("k", "a", LATER_MS, &["paid"]), waits("k", "b", LATER_MS, &["paid"])]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(2)));
    world.give(vec![waits("k", "c", LATER_MS, &["paid"])]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(2)), "it repeats its first answer");
    let other = Event { payload: b"2"[..].into(), ..event("k", "1", "paid") };
    assert_eq!(let_go(&world, other), (Answer::Conflict, None));
    assert_eq!(let_go(&world, event("k", "1", "lost")).0, Answer::Conflict);
    let world = world.again();
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(2)), "and after a restart");
    assert_eq!(come(&world), ["a event", "b event"]);
    assert_eq!(world.give(vec![waits("k", "a", LATER_MS, &["paid"])]), [Answer::Duplicate]);
    assert_eq!(world.give(vec![waits("k", "a", LATER_MS, &["lost"])]), [Answer::Conflict], "the names are content");
    let summary = world.engine.summary();
    assert_eq!((summary.events, summary.let_go, summary.duplicates, summary.conflicts), (0, 0, 2, 1));
}

#[test]
fn items_of_one_group_count_in_their_order__d22() {
    let world = ByHand::start(Settings::default());
    let near = |id: &str| waits("k", id, START_MS + 100, &["paid"]);
    let receipt = world.submit(vec![
        near("a"),
        happens(event("k", "1", "paid")),
        near("b"),
        Item::Cancel(Cancel { key: Some("k".into()), id: "b".into(), keep_days: 0 }),
        near("c"),
        happens(event("k", "2", "paid")),
        near("d"),
    ]);
    world.write();
    let answers = receipt.wait(None).unwrap().unwrap();
    assert_eq!(answers.let_go, [(1, 1), (5, 1)]);
    assert_eq!(come(&world), ["a event", "c event"]);
    assert_eq!(world.pass_ms(100, arrives).iter().map(caused).collect::<Vec<_>>(), ["d deadline"]);
}

#[test]
fn an_event_may_be_remembered_for_what_comes_later__d22() {
    let world = ByHand::start(Settings::default());
    let remembered = |id: &str, n: u8, ms: i64| Event {
        remember_ms: Some(ms),
        payload: [b'0' + n].into(),
        ..event("k", id, "paid")
    };
    assert_eq!(let_go(&world, remembered("1", 1, 60_000)), (Answer::LetGo, Some(0)));
    assert_eq!(let_go(&world, remembered("2", 2, 5_000)), (Answer::LetGo, Some(0)));
    world.give(vec![waits("k", "a", LATER_MS, &["lost", "paid"]), waits("j", "b", LATER_MS, &["paid"])]);
    let sent = world.deliver(arrives);
    assert!(line(&sent[0]).contains("\"event\":{\"name\":\"paid\",\"id\":\"2\",\"payload\":2}"), "the newest");
    world.advance_ms(5_000);
    world.give(vec![waits("k", "c", LATER_MS, &["paid"])]);
    let sent = world.deliver(arrives);
    assert!(line(&sent[0]).contains("\"id\":\"1\""), "it is not used up: {}", line(&sent[0]));
    let put = Message::at("e", std::time::UNIX_EPOCH, "1").json();
    let put = Message { due_ms: LATER_MS, ..put }.with_key("k").until_event(["paid"]);
    let put = Incoming::of(crate::message::checked(put, 100).unwrap());
    world.give(vec![Item::Replace { put, at_latest_ms: None }]);
    assert_eq!(come(&world), ["e event"]);
    let world = world.again();
    world.advance_ms(60_000);
    world.give(vec![waits("k", "d", LATER_MS, &["paid"])]);
    assert_eq!(come(&world), [""; 0]);
}

#[test]
fn a_cause_never_changes_and_a_move_moves_only_an_open_deadline__d22() {
    let move_to = |id: &str, due_ms| Item::Reschedule(Reschedule { key: Some("k".into()), id: id.into(), due_ms });
    let world = ByHand::start(Settings::default());
    world.give(vec![waits("k", "a", START_MS + 50, &["paid"]), waits("k", "b", LATER_MS, &["paid"])]);
    world.give(vec![move_to("a", START_MS + 20_000), move_to("b", START_MS + 30_000)]);
    let world = world.again();
    world.advance_ms(20_000);
    world.write();
    // It is due, and moved before it is sent: an event comes too late for it.
    assert_eq!(world.give(vec![move_to("a", START_MS + 40_000)]), [Answer::Rescheduled]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(1)));
    assert_eq!(world.give(vec![move_to("b", START_MS + 25_000)]), [Answer::Rescheduled]);
    assert_eq!(come(&world), [""; 0]);
    let world = world.again();
    let sent: Vec<_> = world.pass_ms(30_000, arrives).iter().map(caused).collect();
    assert_eq!(sent, ["b event", "a deadline"]);
    assert_whole(&world.store(), Digest::number);
}

#[test]
fn a_dead_letter_keeps_its_cause_when_it_is_tried_anew__d22() {
    let settings = Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() };
    let world = ByHand::start(settings);
    world.give(vec![waits("k", "a", LATER_MS, &["paid"]), waits("j", "b", START_MS + 10, &["paid"])]);
    let_go(&world, event("k", "1", "paid"));
    world.advance_ms(10);
    let refuses = |_: &Delivery| Verdict::Refused("no".into());
    let mut dead: Vec<_> = world.deliver(refuses).iter().map(caused).collect();
    dead.sort_unstable();
    assert_eq!(dead, ["a event", "b deadline"]);
    let world = world.again();
    let requeue = |key: &str, id: &str| Item::Requeue { id: id.into(), key: Some(key.into()) };
    assert_eq!(world.give(vec![requeue("k", "a"), requeue("j", "b")]), [Answer::Requeued; 2]);
    assert_eq!(let_go(&world, event("j", "2", "paid")), (Answer::LetGo, Some(0)));
    let mut sent: Vec<_> = world.deliver(arrives).iter().map(caused).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["a event", "b deadline"]);
    assert_whole(&world.store(), Digest::number);
}

#[test]
fn a_key_has_at_most_a_thousand_messages_that_wait__d22() {
    let world = ByHand::start(Settings::default());
    let puts: Vec<_> = (0..1_001).map(|id| waits("k", &id.to_string(), LATER_MS, &["paid"])).collect();
    let answers = world.give(puts);
    assert_eq!((answers[..1_000].iter().all(|it| *it == Answer::Accepted), answers[1_000]), (true, Answer::Full));
    assert_eq!(world.give(vec![waits("j", "1", LATER_MS, &["paid"])]), [Answer::Accepted]);
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(1_000)));
    assert_eq!(world.give(vec![waits("k", "1000", LATER_MS, &["paid"])]), [Answer::Accepted]);
    let sent = world.deliver(arrives);
    let order: Vec<_> = sent.iter().map(|it| it.body.id().parse::<usize>().unwrap()).collect();
    assert_eq!(order, (0..1_000).collect::<Vec<_>>(), "in the order of their acceptance");
}

#[test]
fn many_large_messages_that_one_event_lets_go_stay_in_the_store_until_their_turn__d8_d22() {
    let bounds = Bounds { bytes: 1 << 20, lane_bytes: 200 << 10, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..Settings::default() });
    let large = format!("\"{}\"", "x".repeat(50 << 10));
    for id in 0..100 {
        let message = Message::at(&format!("{id:02}"), std::time::UNIX_EPOCH, &large).json();
        world.give(vec![waits_of(Message { due_ms: LATER_MS, ..message }, "k", &["paid"])]);
    }
    assert_eq!(let_go(&world, event("k", "1", "paid")), (Answer::LetGo, Some(100)));
    assert!(world.engine.in_memory().1 <= 1 << 20, "{}", world.engine.in_memory().1);
    let world = world.again();
    let sent = world.pass_ms(100, arrives);
    assert_eq!((sent.len(), sent.iter().filter(|it| line(it).contains("\"id\":\"1\"")).count()), (100, 100));
    assert!(sent.is_sorted_by_key(|it| it.body.id().to_owned()));
}

#[test]
fn a_paused_key_lets_go_later_and_a_named_destination_at_once__d22_d23() {
    let world = world(Settings::default(), &["x", "y"]);
    let to = |name: &str, id: &str| waits_of(at(id, LATER_MS).to(name), "k", &["paid"]);
    world.give(vec![set("x", ""), set("y", ""), to("x", "1"), to("y", "2")]);
    world.give(vec![Item::Pause { key: Some("k".into()), is_paused: true }]);
    assert_eq!(let_go(&world, event("k", "e", "paid")), (Answer::LetGo, Some(2)));
    let all = |world: &ByHand| {
        world.write();
        let mut all = Vec::new();
        while let Some((number, deliveries)) = world.next_send() {
            all.extend(deliveries.iter().map(caused));
            world.engine.settle(number, Verdicts::Delivered, None);
            world.write();
        }
        all.sort_unstable();
        all
    };
    assert_eq!(all(&world), [""; 0]);
    world.give(vec![Item::Pause { key: Some("k".into()), is_paused: false }]);
    assert_eq!(all(&world), ["1 event", "2 event"]);
}

#[test]
fn the_data_of_an_event_goes_with_its_last_message__d22() {
    let world = ByHand::start(Settings::default());
    world.give(vec![waits("k", "a", LATER_MS, &["paid"]), waits("k", "b", LATER_MS, &["paid"])]);
    let_go(&world, event("k", "1", "paid"));
    let_go(&world, event("k", "2", "paid")); // of no use
    let with_data = |world: &ByHand| {
        let db = rusqlite::Connection::open(world.store()).unwrap();
        db.query_row("SELECT count(*), count(data) FROM events", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(with_data(&world), (2_i64, 1_i64));
    assert_eq!(come(&world), ["a event", "b event"]);
    assert_eq!(with_data(&world), (2, 0));
}

#[test]
fn what_waits_for_an_event_and_what_one_let_go_is_seen__d14_d22() {
    let world = ByHand::start(Settings::default());
    world.give(vec![
        waits("k", "near", START_MS + 5_000, &["lost", "paid"]),
        waits("k", "far", LATER_MS, &["paid"]),
        waits("k", "other", LATER_MS, &["repaid"]),
        put(Some("k"), "none", LATER_MS),
    ]);
    let look = || Snapshot::open(&world.store()).unwrap();
    let listed = |until| {
        let of = PageOf {
            key: None,
            destination: None,
            tenant: None,
            until,
            due_from_ms: None,
            due_before_ms: None,
            limit: 9,
            looked_at: 9,
        };
        look().waiting(of, None).unwrap().0.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some("paid")), ["near", "far"]);
    assert_eq!((listed(Some("lost")), listed(Some("aid"))), (vec!["near".to_owned()], vec![]));
    let shown = |id: &str| look().show(Some("k"), id).unwrap().unwrap();
    let near = shown("near");
    assert_eq!((near.until_event.as_deref(), near.cause), (Some("lost paid"), None));
    assert_eq!(shown("none").until_event, None);
    let remembered = Event { remember_ms: Some(60_000), ..event("k", "1", "paid") };
    assert_eq!(let_go(&world, remembered), (Answer::LetGo, Some(2)));
    let far = shown("far");
    assert_eq!((far.until_event.as_deref(), far.cause.as_deref()), (Some("paid"), Some("event")));
    assert_eq!(far.event.as_deref(), Some(r#"{"name":"paid","id":"1","payload":{"n":1}}"#));
    assert_eq!(listed(Some("paid")), [""; 0]);
    let status = look().status(&[]).unwrap();
    assert_eq!((status.waiting_for_events, status.remembered_events), (1, 1));
    let forget = |key: &str| world.give(vec![Item::Forget { key: key.into(), id: "1".into() }]);
    assert_eq!(
        (forget("j"), forget("k"), forget("k")),
        (vec![Answer::Unknown], vec![Answer::Cancelled], vec![Answer::Unknown])
    );
    assert_eq!(look().status(&[]).unwrap().remembered_events, 0);
    world.give(vec![waits("k", "late", LATER_MS, &["paid"])]);
    assert_eq!(listed(Some("paid")), ["late"]);
}

#[test]
fn a_check_finds_waits_that_are_not_those_of_messages__d20_d22() {
    let found = |damage: &str| {
        let world = ByHand::start(Settings::default());
        world.give(vec![
            waits("k", "a", LATER_MS, &["paid"]),
            waits("k", "b", LATER_MS, &["lost"]),
            put(Some("k"), "c", LATER_MS),
        ]);
        let_go(&world, event("k", "1", "paid"));
        assert_whole(&world.store(), Digest::number);
        rusqlite::Connection::open(world.store()).unwrap().execute_batch(damage).unwrap();
        check(&world.store(), &Stop::default()).unwrap().problems.join("; ")
    };
    for (damage, problem) in [
        (
            "DELETE FROM waits WHERE seq = 2",
            "messages whose waits for events are not those of their bodies: 1, number 2",
        ),
        (
            "INSERT INTO waits SELECT 3, key, names, NULL FROM waits WHERE seq = 1",
            "are not those of their bodies: 1, number 3",
        ),
        (
            "INSERT INTO waits SELECT 9, key, names, NULL FROM waits WHERE seq = 1",
            "waits for events without a message: 1, number 9",
        ),
        ("UPDATE waits SET key = key + 1 WHERE seq = 2", "messages that wait for events of another key: 1, number 2"),
        ("UPDATE events SET open = 2", "events with another number of open messages than they say: 1, number 1"),
        ("UPDATE events SET data = NULL", "events that miss their data: 1, number 1"),
        ("DELETE FROM events", "events with another number of open messages than they say: 1, number 1"),
    ] {
        assert!(found(damage).contains(problem), "{damage}: {}", found(damage));
    }
}
