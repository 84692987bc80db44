//! After a crash the destination is asked for the messages that may have arrived (D5, D10).

use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::base::error::DeliveryError;
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Sink, Verdict, Verdicts};

/// A destination that says which messages have arrived; `None`: it cannot be reached.
struct Knows {
    has: Option<Vec<i64>>,
    position: &'static str,
    asked: Vec<i64>,
    from: Option<String>,
}

impl Knows {
    fn all(has: Option<Vec<i64>>) -> Self {
        Self { has, position: "the beginning", asked: Vec::new(), from: None }
    }
}

impl Sink for Knows {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        unreachable!("the test answers")
    }

    fn position(&self) -> Option<String> {
        Some(self.position.to_owned())
    }

    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        self.asked.extend(suspects.iter().map(|it| it.seq));
        self.from = position.map(str::to_owned);
        self.has.clone().ok_or_else(|| DeliveryError::Failed("it cannot be reached".to_owned()))
    }
}

fn due(id: &str, after_ms: i64) -> Item {
    put(Some("k"), id, START_MS + after_ms)
}

/// A new process that asks this destination.
fn recovered(world: ByHand, to: &mut Knows) -> ByHand {
    let world = world.reopen();
    world.engine.recover(Some(to)).unwrap();
    world.begin();
    world
}

fn crashed() -> ByHand {
    let world = ByHand::start(Settings::default());
    world.give(vec![due("1", 10), due("2", 20), due("3", 30)]);
    world
}

#[test]
fn messages_that_the_destination_has_are_not_sent_again_and_others_are_marked__d5_d10() {
    for has in [vec![1], vec![2, 3], vec![1, 2, 3], vec![99]] {
        let mut to = Knows::all(Some(has.clone()));
        let world = recovered(crashed(), &mut to);
        assert_eq!(to.asked, [1, 2, 3]);
        let known = has.iter().filter(|seq| **seq <= 3).count();
        assert_eq!(world.engine.summary().delivered, known as u64);
        let sent = world.pass_ms(100, arrives);
        let expected: Vec<String> = (1..=3).filter(|seq| !has.contains(seq)).map(|seq| seq.to_string()).collect();
        assert_eq!(ids(&sent), expected);
        assert!(sent.iter().all(|it| it.redelivered), "{sent:?}");
        assert!(world.engine.is_empty());
        world.engine.close(Sends::AllEnded).unwrap();
        let mut to = Knows::all(Some(Vec::new()));
        recovered(world, &mut to);
        assert!(to.asked.is_empty(), "{:?}", to.asked);
    }
}

#[test]
fn a_destination_that_cannot_be_asked_ends_the_start_and_changes_nothing__d5() {
    let world = crashed().reopen();
    let failed = world.engine.recover(Some(&mut Knows::all(None))).unwrap_err();
    assert_eq!(failed.to_string(), "it cannot be reached");
    let mut to = Knows::all(Some(Vec::new()));
    let world = recovered(world, &mut to);
    assert_eq!(to.asked, [1, 2, 3]);
    assert!(world.pass_ms(100, arrives).iter().all(|it| it.redelivered));
}

#[test]
fn after_a_clean_end_only_messages_without_an_answer_are_asked_for_and_marked__d5() {
    let retry = Retry { waits_ms: vec![60_000], ..Retry::default() };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![due("delivered", 0), put(None, "unanswered", START_MS), due("waits", 20)]);
    let only_one = |it: &Delivery| match it.body.id() {
        "unanswered" => Verdict::Unanswered { reason: "too slow".to_owned(), retry_after_ms: None },
        _ => Verdict::Delivered,
    };
    assert_eq!(world.deliver(only_one).len(), 2);
    world.engine.close(Sends::AllEnded).unwrap();
    let mut to = Knows::all(Some(Vec::new()));
    let world = recovered(world, &mut to);
    assert_eq!(to.asked, [2]);
    let sent: Vec<_> =
        world.pass_ms(61_000, arrives).into_iter().map(|it| (it.body.id().to_owned(), it.redelivered)).collect();
    assert_eq!(sent, [("waits".to_owned(), false), ("unanswered".to_owned(), true)]);
}

/// Messages after the last commit must be found behind the position.
#[test]
fn the_position_of_the_last_commit_is_kept_and_then_that_of_the_next_start__d10() {
    let world = ByHand::start(Settings::default());
    world.give((0..4).map(|number| put(None, &number.to_string(), START_MS + 10 * number)).collect());
    for position in ["1", "2", "3", "4"] {
        let (number, deliveries) = world.take().expect("one is due");
        assert_eq!(deliveries.len(), 1);
        world.engine.settle(number, Verdicts::Delivered, Some(position.to_owned()));
        if position != "4" {
            world.write();
        }
        world.advance_ms(10);
    }
    let mut second = Knows { position: "100", ..Knows::all(Some(Vec::new())) };
    let world = recovered(world, &mut second);
    assert_eq!((second.asked, second.from.as_deref()), (vec![4], Some("3")));
    let mut third = Knows::all(Some(Vec::new()));
    recovered(world, &mut third);
    assert_eq!(third.from.as_deref(), Some("100"), "where the second process began");
}
