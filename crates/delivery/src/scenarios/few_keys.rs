//! An outage with few keys (D6): the destination answers 503, or not at all. Five messages without an answer show the
//! outage. With fewer than five keys, up to four messages spend all their attempts before the fifth message is sent.
//!
//! | keys | given up | spent by the others |
//! |---|---|---|
//! | 1, or one order for all | 4 | nothing |
//! | 2 | 3 or 4 | nothing |
//! | 3 | 2 to 4 | nothing |
//! | 4 | 1 to 4 | nothing |
//! | 5 or more | none | nothing |

use super::testing::{ByHand, START_MS, put};
use crate::group::items::Item;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

const OF_EACH_KEY: usize = 10;

fn busy() -> Verdict {
    Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None }
}

/// Sends the due messages. The destination answers each one with `answer`.
fn send_all(world: &ByHand, answer: impl Fn(&Delivery) -> Verdict) -> Vec<Delivery> {
    let mut sent = Vec::new();
    loop {
        world.write();
        let Some((number, deliveries)) = world.take() else { break };
        let verdicts = deliveries.iter().map(&answer).collect();
        world.engine.settle(number, Verdicts::Each(verdicts), None);
        sent.extend(deliveries);
    }
    sent
}

fn items(keys: usize) -> Vec<Item> {
    let names = (0..keys * OF_EACH_KEY).map(|n| (format!("key {}", n % keys), n.to_string()));
    names.map(|(key, id)| put(Some(&key), &id, START_MS)).collect()
}

#[test]
fn an_outage_of_three_minutes_costs_four_messages_at_most_and_the_others_no_attempt__d6() {
    for (keys, expected) in [(1, 4..=4), (2, 3..=4), (3, 2..=4), (4, 1..=4), (5, 0..=0), (8, 0..=0)] {
        for is_global in [false, true] {
            let expected = if is_global { 4..=4 } else { expected.clone() };
            for seed in 0..3 {
                let world = ByHand::start(Settings { is_global, seed, ..Settings::default() });
                world.give(items(keys));
                for _ in 0..900 {
                    send_all(&world, |_| busy());
                    world.advance_ms(200);
                }
                assert_eq!(world.engine.down().as_deref(), Some("503"), "{keys} keys");
                let given_up = world.engine.summary().undeliverable;
                assert!(expected.contains(&given_up), "{keys} keys: {given_up} were given up");
                let mut arrived = 0;
                for _ in 0..900 {
                    for it in send_all(&world, |_| Verdict::Delivered) {
                        assert_eq!(it.attempt, 1, "{keys} keys: an attempt was spent on {it:?}");
                        arrived += 1;
                    }
                    world.advance_ms(200);
                }
                assert_eq!(arrived + given_up as usize, keys * OF_EACH_KEY);
            }
        }
    }
}

#[test]
fn attempts_that_failed_before_the_fifth_message_came_are_given_back_too__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..5).map(|n| put(None, &n.to_string(), START_MS + n * 1_000)).collect());
    let mut attempts = 0;
    for _ in 0..401 {
        attempts = attempts.max(send_all(&world, |_| busy()).iter().map(|it| it.attempt).max().unwrap_or(0));
        world.advance_ms(10);
    }
    assert!(attempts > 2, "the first was tried again while it was alone");
    assert!(world.engine.down().is_some());
    world.advance_ms(60_000);
    let mut sent = send_all(&world, |_| Verdict::Delivered);
    world.advance_ms(60_000);
    sent.extend(send_all(&world, |_| Verdict::Delivered));
    assert_eq!(sent.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1; 5]);
}

#[test]
fn in_one_send_what_has_no_answer_counts_behind_what_has_one__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..7).map(|n| put(None, &n.to_string(), START_MS + i64::from(n > 4) * 10)).collect());
    let sent = send_all(&world, |it| if it.body.id() < "3" { busy() } else { Verdict::Delivered });
    assert_eq!((sent.len(), world.engine.down()), (5, None));
    world.advance_ms(10);
    assert_eq!(send_all(&world, |_| busy()).len(), 2);
    assert_eq!(world.engine.down().as_deref(), Some("503"), "five messages in a row");
    world.advance_ms(60_000);
    let mut sent = send_all(&world, |_| Verdict::Delivered);
    world.advance_ms(60_000);
    sent.extend(send_all(&world, |_| Verdict::Delivered));
    assert_eq!(sent.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1; 5]);
}
