//! A message without an answer may have arrived (D5, D6). It goes out again with a mark, even if the attempt does not
//! count because the destination was down. A refused message has not arrived, nor has a message if the destination
//! could not be reached.

use super::testing::{ByHand, START_MS, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::message::incoming::Incoming;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

fn unanswered() -> Verdict {
    Verdict::Unanswered { reason: "504".to_owned(), retry_after_ms: None }
}

fn unreachable() -> Verdict {
    Verdict::Unreachable { reason: "connection refused".to_owned(), retry_after_ms: None }
}

fn started(messages: usize) -> ByHand {
    let world = ByHand::start(Settings {
        retry: Retry { max_attempts: 5, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false },
        ..Settings::default()
    });
    world.give((0..messages).map(|id| put(None, &id.to_string(), START_MS)).collect());
    world
}

/// Sends the due messages. The destination answers each with `verdict`. Returns id, attempt, and whether it is marked.
fn send(world: &ByHand, verdict: &Verdict) -> Vec<(String, u32, bool)> {
    let mut sent = Vec::new();
    for _ in 0..3 {
        world.write();
        while let Some((number, deliveries)) = world.take() {
            world.engine.settle(number, Verdicts::Each(vec![verdict.clone(); deliveries.len()]), None);
            sent.extend(deliveries.into_iter().map(|it| (it.body.id().to_owned(), it.attempt, it.redelivered)));
        }
    }
    sent.sort();
    sent
}

/// Sends for two minutes, until nothing is left.
fn send_all(world: &ByHand, verdict: &Verdict) -> Vec<(String, u32, bool)> {
    let mut sent = Vec::new();
    for _ in 0..1_200 {
        sent.extend(send(world, verdict));
        world.advance_ms(100);
    }
    assert!(world.engine.is_empty());
    sent.sort();
    sent
}

fn each(ids: std::ops::Range<usize>, attempt: u32, is_marked: bool) -> Vec<(String, u32, bool)> {
    ids.map(|id| (id.to_string(), attempt, is_marked)).collect()
}

#[test]
fn time_outs_that_turn_out_to_be_an_outage_cost_no_message_and_are_marked__d5_d6() {
    let world = started(5);
    assert_eq!(send(&world, &unanswered()), each(0..5, 1, false));
    for _ in 0..11 {
        world.advance_ms(100);
        send(&world, &unanswered());
    }
    assert_eq!(world.engine.down().as_deref(), Some("504"), "nothing was accepted for a second");
    world.give(vec![put(None, "5", START_MS)]);
    let sent = send_all(&world, &Verdict::Delivered);
    assert_eq!(sent.iter().filter(|it| it.2).map(|it| &*it.0).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert_eq!(sent[5], ("5".to_owned(), 1, false), "it was never sent");
    assert_eq!((world.engine.sends().redelivered, world.engine.summary().undeliverable), (5, 0));
}

#[test]
fn they_are_marked_in_the_next_process_after_a_crash_and_after_an_end__d5_d6() {
    for is_closed in [false, true] {
        let mut world = started(5);
        send(&world, &unanswered());
        world.write();
        if is_closed {
            world.engine.close(Sends::AllEnded).unwrap();
        }
        world = world.again();
        assert_eq!(send_all(&world, &Verdict::Delivered), each(0..5, 2, true), "{is_closed}");
    }
}

#[test]
fn what_could_not_be_told_to_the_destination_is_not_marked_until_a_send_has_no_answer__d5_d6() {
    for (second, is_marked) in [(unreachable(), false), (unanswered(), true)] {
        let world = started(3);
        assert_eq!(send(&world, &unreachable()), each(0..3, 1, false));
        world.advance_ms(100);
        assert_eq!(send(&world, &second), each(0..3, 2, false));
        assert_eq!(send_all(&world, &Verdict::Delivered), each(0..3, 3, is_marked));
    }
}

#[test]
fn an_attempt_after_a_send_without_an_answer_is_marked_and_one_after_a_refusal_is_not__d5_d6() {
    for (verdict, is_marked) in [(unanswered(), true), (Verdict::Refused("400".to_owned()), false)] {
        let world = started(1);
        assert_eq!(send(&world, &verdict), each(0..1, 1, false));
        assert_eq!(send_all(&world, &Verdict::Delivered), each(0..1, 2, is_marked));
    }
}

/// A message of a hand-off: another deliverer, lost with its disk, may have delivered it.
fn put_again(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let Item::Put(incoming) = put(key, id, due_ms) else { panic!("it is a message") };
    Item::Put(Incoming { redelivered: true, ..incoming })
}

#[test]
fn what_a_lost_deliverer_may_have_delivered_is_marked_from_its_first_attempt__s4() {
    let mut world = started(1);
    let answers = world.give(vec![
        put_again(None, "1", START_MS),
        put_again(Some("k"), "2", START_MS + 50),
        put_again(Some("k"), "far", START_MS + 3_600_000),
        put_again(None, "0", START_MS), // it is known here: not marked by that
    ]);
    assert_eq!(answers, [Answer::Accepted, Answer::Accepted, Answer::Accepted, Answer::Duplicate]);
    assert_eq!(send(&world, &Verdict::Delivered), [each(0..1, 1, false), each(1..2, 1, true)].concat());
    world = world.again();
    world.advance_ms(50);
    assert_eq!(send(&world, &Verdict::Delivered), each(2..3, 1, true));
    world.advance_ms(3_600_000);
    assert_eq!(send(&world, &Verdict::Delivered), [("far".to_owned(), 1, true)]);
    assert!(world.engine.is_empty());
}
