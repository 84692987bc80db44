//! A rate and a bound of concurrent sends (D18), on clocks that the test moves: how many messages go out, and which
//! ones wait.

use super::testing::{ByHand, START_MS, cancel, many, put, settings};
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

const HOUR_US: u64 = 3_600_000_000;

fn paced(messages: u64, per_us: u64) -> Settings {
    Settings { rate: Some(Rate { messages, per_us }), ..settings() }
}

/// Everything that goes out in this moment.
fn sent(world: &ByHand) -> Vec<String> {
    let mut sent = Vec::new();
    loop {
        world.write();
        let now = world.send();
        if now.is_empty() {
            return sent;
        }
        sent.extend(now);
    }
}

fn down() -> Verdicts {
    Verdicts::Each(vec![Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None }])
}

#[test]
fn a_burst_goes_out_and_then_one_message_after_the_other__d18() {
    let world = ByHand::start(paced(50, 1_000_000));
    world.give(many(8));
    assert_eq!(sent(&world), ["0", "1", "2", "3", "4"]);
    assert_eq!(world.next_wake_us(), 20_000, "it sleeps until there is a token");
    world.advance_ms(19);
    assert!(sent(&world).is_empty());
    world.advance_ms(1);
    assert_eq!(sent(&world), ["5"]);
    world.advance_ms(40);
    assert_eq!(sent(&world), ["6", "7"]);
    world.advance_ms(5_000);
    world.give((0..8).map(|n| put(None, &format!("later {n}"), START_MS)).collect());
    assert_eq!(sent(&world).len(), 5, "a quiet time saves no more than the burst");
}

#[test]
fn what_waits_for_the_rate_is_late_by_that__d18() {
    let world = ByHand::start(paced(1, HOUR_US));
    world.give((0..2).map(|n| put(None, &n.to_string(), START_MS)).collect());
    let (first, deliveries) = world.take().expect("one may go");
    assert_eq!(deliveries.len(), 1);
    world.engine.settle(first, Verdicts::Delivered, None);
    world.write();
    world.advance_ms(HOUR_US / 1000);
    let (_, deliveries) = world.take().expect("an hour later the next may");
    assert_eq!((deliveries[0].lateness_us, deliveries[0].body.id()), (HOUR_US as i64, "1"));
}

#[test]
fn the_order_of_a_key_stays_and_no_key_starves__d18() {
    let world = ByHand::start(paced(10, 1_000_000)); // a burst of one
    let item = |n: i64, key: &str| put(Some(key), &format!("{key}{n}"), START_MS + n);
    world.give(["a", "b"].iter().flat_map(|key| (0..3).map(|n| item(n, key))).collect());
    world.advance_ms(10);
    let mut all = sent(&world);
    while all.len() < 6 {
        world.advance_ms(100);
        let now = sent(&world);
        assert_eq!(now.len(), 1, "{all:?}");
        all.extend(now);
    }
    assert_eq!(all, ["a0", "b0", "a1", "b1", "a2", "b2"]);
}

#[test]
fn a_retry_takes_a_token_and_a_cancelled_message_none__d18() {
    let world = ByHand::start(paced(10, 1_000_000));
    world.give(vec![put(None, "bad", 1), put(None, "gone", 2), put(None, "good", 3)]);
    let (number, deliveries) = world.take().expect("one may go");
    assert_eq!((deliveries.len(), deliveries[0].body.id()), (1, "bad"));
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    assert_eq!(world.give(vec![cancel(None, "gone")]), [Answer::Cancelled]);
    world.advance_ms(100);
    assert_eq!(sent(&world), ["bad"], "its next attempt was due before");
    world.advance_ms(99);
    assert!(sent(&world).is_empty(), "the other one waits for a token");
    world.advance_ms(1);
    assert_eq!(sent(&world), ["good"]);
}

#[test]
fn a_try_while_the_destination_is_down_takes_a_token__d18() {
    let world = ByHand::start(paced(5, 1_000_000));
    world.give(many(9));
    let mut sends = 0;
    for _ in 0..3_000 {
        while let Some((number, deliveries)) = world.take() {
            sends += deliveries.len();
            world.engine.settle(number, down(), None);
            world.write();
        }
        world.advance_ms(1);
    }
    assert!(world.engine.down().is_some());
    assert!((10..=16).contains(&sends), "{sends} sends in three seconds");
    world.advance_ms(60_000);
    assert_eq!(sent(&world).len(), 1);
}

#[test]
fn a_step_of_the_wall_clock_gives_and_takes_nothing__d18() {
    let world = ByHand::start(paced(1, 1_000_000));
    world.give(many(4));
    assert_eq!(sent(&world).len(), 1);
    let mut steps = Vec::new();
    for step_ms in [86_400_000, -86_400_000] {
        world.step_wall_clock_ms(step_ms);
        steps.push(Event::ClockStepped { by_ms: step_ms, to_ms: world.wall_ms() });
        world.engine.follow_clock();
        assert!(sent(&world).is_empty());
        world.advance_ms(999);
        assert!(sent(&world).is_empty());
        world.advance_ms(1);
        assert_eq!(sent(&world).len(), 1);
    }
    assert_eq!(world.engine.take_events(), steps);
}

#[test]
fn a_pause_beside_a_rate_holds_all_and_then_a_burst_goes_out__d18() {
    let world = ByHand::start(paced(50, 1_000_000));
    world.give(many(12));
    assert_eq!(sent(&world).len(), 5);
    assert_eq!(world.give(vec![Item::pause(None, true)]), [Answer::Paused]);
    world.advance_ms(1_000);
    assert!(sent(&world).is_empty());
    assert_eq!(world.give(vec![Item::pause(None, false)]), [Answer::Resumed]);
    assert_eq!(sent(&world).len(), 5);
}

#[test]
fn what_the_rate_holds_back_at_the_end_is_there_for_the_next_run__d18() {
    let world = ByHand::start(paced(1, 1_000_000));
    world.give(many(3));
    assert_eq!(sent(&world), ["0"]);
    let summary = world.engine.close(Sends::AllEnded).unwrap();
    assert_eq!((summary.delivered, summary.not_delivered()), (1, 2));
    let world = world.again();
    assert_eq!(sent(&world), ["1"], "the next run begins with a full bucket");
    world.advance_ms(1_000);
    assert_eq!(sent(&world), ["2"]);
}

#[test]
fn a_fast_rate_sends_in_groups_of_a_millisecond__d18() {
    let world = ByHand::start(paced(100_000, 1_000_000));
    world.give(many(11_000));
    assert_eq!(sent(&world).len(), 10_000);
    let before_us = world.engine.clock().now_us();
    assert_eq!(world.next_wake_us() - before_us, 1_000);
    world.advance_ms(1);
    assert_eq!(sent(&world).len(), 100);
}
