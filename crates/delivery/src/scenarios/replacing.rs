//! A message takes the place of a waiting message, however often this happens (D16). And a dead letter gets a second
//! life.

use std::time::Duration;

use super::testing::{ByHand, START_MS, arrives, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Answers, Item};
use crate::message::incoming::Incoming;
use crate::message::{Body, Message, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

const DAY_MS: i64 = 86_400_000;

fn replace(id: &str, payload: &str, due_ms: i64, at_latest_ms: Option<i64>) -> Item {
    let body = Body::new(Some("k"), id, payload.as_bytes(), true);
    Item::Replace { put: Incoming::of(Message { body, due_ms, delay_ms: None }), at_latest_ms }
}

fn requeue(id: &str) -> Item {
    Item::Requeue { id: id.to_owned(), key: Some("k".to_owned()) }
}

fn texts(deliveries: &[Delivery]) -> Vec<(String, String)> {
    let text = |it: &Delivery| (it.id().to_owned(), String::from_utf8(it.payload().to_vec()).unwrap());
    deliveries.iter().map(text).collect()
}

fn fail(world: &ByHand, verdict: Verdict) {
    let (number, _) = world.take().expect("it is due");
    world.engine.settle(number, Verdicts::Each(vec![verdict]), None);
    world.write();
}

#[test]
fn the_last_one_goes_out_at_its_time_and_no_other__d16() {
    let mut world = ByHand::start(Settings::default());
    let asked = [
        replace("a", "1", START_MS + 5, None),
        replace("a", "2", START_MS + DAY_MS, None),
        replace("a", "3", START_MS + 7, None),
    ];
    assert_eq!(world.give(asked.into()), [Answer::Accepted, Answer::Replaced, Answer::Replaced]);
    assert_eq!(world.engine.open_count(), 1);
    world = world.again();
    world.advance_ms(6);
    assert_eq!(texts(&world.sent()), []);
    world.advance_ms(1);
    assert_eq!(texts(&world.sent()), [("a".to_owned(), "3".to_owned())]);
    world.advance_ms(2 * DAY_MS as u64);
    assert_eq!(texts(&world.sent()), []);
}

#[test]
fn while_one_is_sent_nothing_is_accepted_and_after_its_end_it_is_a_new_one__d16() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let (number, first) = world.take().unwrap();
    assert_eq!(world.give(vec![replace("a", "2", START_MS, None)]), [Answer::Delivering]);
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(world.give(vec![replace("a", "2", START_MS, None)]), [Answer::Accepted]);
    let again = world.sent();
    assert_eq!(texts(&again), [("a".to_owned(), "2".to_owned())]);
    assert!(!again[0].redelivered);
    assert_ne!(again[0].digest(), first[0].digest(), "a destination must not take it for the one that it has");
    assert_eq!(world.give(vec![cancel(Some("k"), "b"), replace("b", "1", START_MS, None)])[1], Answer::Cancelled);
    assert_eq!(world.give(vec![replace("b", "2", START_MS, None)]), [Answer::Accepted]);
    assert_eq!(texts(&world.sent()), [("b".to_owned(), "2".to_owned())]);
}

#[test]
fn what_was_sent_without_an_answer_is_no_reason_to_take_the_new_one_for_it__d5_d16() {
    let retry = Retry { max_attempts: 5, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let (number, first) = world.take().unwrap();
    let verdict = Verdict::Unanswered { reason: "no answer".to_owned(), retry_after_ms: None };
    world.engine.settle(number, Verdicts::Each(vec![verdict]), None);
    assert_eq!(world.give(vec![replace("a", "2", START_MS, None)]), [Answer::Replaced]);
    let again = world.sent();
    assert_eq!(texts(&again), [("a".to_owned(), "2".to_owned())]);
    assert_eq!((again[0].attempt, again[0].redelivered), (1, false));
    assert_ne!(again[0].digest(), first[0].digest());
}

#[test]
fn the_digest_stays_when_it_is_moved_and_after_a_crash__d5_d16() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS + DAY_MS), replace("a", "2", START_MS, None)]);
    let (_, first) = world.take().unwrap();
    world = world.again();
    world.write();
    let again = world.sent();
    assert!(again[0].redelivered);
    assert_eq!(again[0].digest(), first[0].digest());
}

#[test]
fn one_that_is_put_off_again_and_again_is_due_at_the_latest_so_long_after_the_first__d16() {
    let mut world = ByHand::start(Settings::default());
    for round in 0..5 {
        let due_ms = START_MS + round * 10 + 20;
        let receipt = world.submit(vec![replace("a", &round.to_string(), due_ms, Some(35))]);
        world.write();
        let Answers { given, due_ms: told_ms, .. } = receipt.wait(Some(Duration::ZERO)).unwrap().unwrap();
        assert_eq!(given, [if round == 0 { Answer::Accepted } else { Answer::Replaced }], "{round}");
        assert_eq!(told_ms, [(0, due_ms.min(START_MS + 35))], "the due time on disk");
        world = world.again();
        assert_eq!(texts(&world.sent()), [], "{round}");
        if round == 3 {
            break;
        }
        world.advance_ms(10);
    }
    world.advance_ms(5);
    assert_eq!(texts(&world.sent()), [("a".to_owned(), "3".to_owned())], "35 ms after the first");
    assert_eq!(world.give(vec![replace("a", "5", START_MS + DAY_MS, Some(DAY_MS))]), [Answer::Accepted]);
}

#[test]
fn a_dead_letter_is_tried_anew_and_may_have_arrived__d16() {
    let retry = Retry { max_attempts: 1, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let mut world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
    assert_eq!(world.give(vec![requeue("a"), requeue("c")]), [Answer::Waiting, Answer::Unknown]);
    fail(&world, Verdict::Refused("no".to_owned()));
    world = world.again();
    assert_eq!(world.give(vec![requeue("a"), requeue("a")]), [Answer::Requeued, Answer::Waiting]);
    let again = world.sent();
    assert_eq!(texts(&again).into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((again[1].attempt, again[1].redelivered), (1, true));
    assert_eq!(world.give(vec![requeue("a")]), [Answer::Delivered]);
    let summary = world.engine.summary();
    assert_eq!((summary.requeued, summary.delivered, summary.not_delivered()), (1, 2, 0));
}

#[test]
fn a_letter_goes_with_its_message_and_those_that_come_after_it_are_told__d2_d16() {
    let retry = Retry { max_attempts: 1, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let mut world = ByHand::start(Settings { retry, ..Settings::default() });
    for id in ["a", "b"] {
        world.give(vec![put(Some("k"), id, START_MS)]);
        fail(&world, Verdict::Refused("no".to_owned()));
        let (letters, through) = world.engine.queue.take_letters().expect("one to tell");
        assert_eq!(letters.len(), 1);
        world.engine.queue.letters_taken(through);
        world.write();
        // The newest letter is gone, also when the store is opened: the next one has another number.
        assert_eq!(world.give(vec![requeue(id), cancel(Some("k"), id)]), [Answer::Requeued, Answer::Cancelled]);
        world = world.again();
    }
    assert!(world.engine.is_empty());
}

/// Sends the next message without an answer until it is a dead letter. Returns its first delivery.
fn give_up(world: &ByHand) -> Delivery {
    let mut first = None;
    while world.engine.open_count() > 0 {
        let (number, sent) = world.next_send().expect("it is due");
        let verdict = Verdict::Unanswered { reason: "no answer".to_owned(), retry_after_ms: None };
        world.engine.settle(number, Verdicts::Each(vec![verdict]), None);
        world.write();
        world.advance_ms(200);
        first.get_or_insert(sent[0].clone());
    }
    first.expect("it was sent")
}

/// Messages are dead letters once their key is without an answer for 50 ms.
fn impatient() -> Settings {
    let retry = Retry { max_attempts: 1, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    Settings { retry, unanswered_for_ms: 50, ..Settings::default() }
}

/// A program that is told of a dead letter puts the same message again. The receiver may have it.
#[test]
fn a_dead_letter_that_is_put_again_keeps_its_digest_and_says_that_it_may_have_arrived__d5() {
    let mut world = ByHand::start(impatient());
    let mut digests = Vec::new();
    world.give(vec![put(Some("k"), "a", START_MS)]);
    for round in 0..3 {
        let first = give_up(&world);
        assert_eq!((first.attempt, first.redelivered), (1, round > 0), "{round}");
        digests.push(first.digest());
        let asked = vec![put(Some("k"), "a", START_MS), put(Some("k"), "a", START_MS)];
        assert_eq!(world.give(asked), [Answer::Accepted, Answer::Duplicate], "{round}");
        if round == 1 {
            world = world.again();
        }
    }
    let last = world.deliver(arrives);
    assert_eq!(digests, [last[0].digest(); 3], "the receiver knows it");
    assert!(last[0].redelivered);
}

#[test]
fn other_content_under_the_name_of_a_dead_letter_is_another_message__d5() {
    let mut world = ByHand::start(impatient());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let first = give_up(&world);
    assert_eq!(world.give(vec![put(Some("k"), "a", START_MS + 1)]), [Answer::Accepted]);
    let second = give_up(&world);
    assert!(!second.redelivered);
    assert_ne!(second.digest(), first.digest());
    // It keeps the digest that it has now.
    assert_eq!(world.give(vec![put(Some("k"), "a", START_MS + 1)]), [Answer::Accepted]);
    world = world.again();
    let third = world.deliver(arrives);
    assert!(third[0].redelivered);
    assert_eq!(third[0].digest(), second.digest());
}

/// By it an SQL sink tells a message from an earlier one of the same name, which the store has forgotten.
#[test]
fn what_is_moved_or_tried_anew_keeps_its_first_number__d5_s4() {
    let strict = Retry { max_attempts: 1, ..Retry::default() };
    let mut world = ByHand::start(Settings { retry: strict, ..Settings::default() });
    let Item::Put(mut handed) = put(Some("k2"), "handed", START_MS) else { panic!("it is a message") };
    handed.redelivered = true; // another store may have sent it
    let same = || put(Some("k3"), "same", START_MS);
    world.give(vec![put(Some("k"), "moved", START_MS), Item::Put(handed), same()]);
    for round in 0..3 {
        let moves = [(Some("k".to_owned()), "moved".to_owned()), (Some("k2".to_owned()), "handed".to_owned())]
            .map(|(key, id)| Item::Reschedule(Reschedule { id, key, due_ms: START_MS - round }));
        assert_eq!(world.give(moves.into()), [Answer::Rescheduled; 2]);
        world = world.again();
        world.write();
        let (number, sent) = world.take().expect("they are due");
        let mut found: Vec<_> = sent.iter().map(|it| (it.id(), it.first_seq(), it.seq > it.first_seq())).collect();
        found.sort_unstable();
        assert_eq!(found, [("handed", 0, true), ("moved", 1, true), ("same", 3, round > 0)]);
        let refused = vec![Verdict::Refused("no".to_owned()); 3];
        world.engine.settle(number, Verdicts::Each(refused), None);
        world.write();
        let anew =
            vec![requeue("moved"), Item::Requeue { id: "handed".to_owned(), key: Some("k2".to_owned()) }, same()];
        assert_eq!(world.give(anew), [Answer::Requeued, Answer::Requeued, Answer::Accepted]);
    }
}
