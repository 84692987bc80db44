//! Restarts while keys fail: they cost no message, and hold up no other key (D5, D6).

use std::time::Duration;

use super::neighbours::{S_US, limits, run};
use super::testing::{ByHand, START_MS, ids, put};
use crate::due::retry::Retry;
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};
use crate::store::Limits;

fn settings() -> Settings {
    Settings { retry: Retry { waits_ms: vec![1_000], ..Retry::default() }, ..Settings::default() }
}

fn failed() -> Verdict {
    Verdict::Failed { reason: "500".to_owned(), retry_after_ms: None }
}

fn unanswered() -> Verdict {
    Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None }
}

/// With keys that may have arrived and keep their place, and without keys.
#[test]
fn restarts_in_an_outage_told_by_500_cost_no_message__d6() {
    for has_key in [false, true] {
        let mut world = ByHand::start(settings());
        let key = |id: usize| has_key.then(|| format!("k{id}"));
        world.give((0..10).map(|id| put(key(id).as_deref(), &id.to_string(), START_MS)).collect());
        for restart in 0..20 {
            assert_eq!(world.deliver(|_| failed()).len(), 10, "restart {restart}");
            world.engine.close(Sends::AllEnded).unwrap();
            world = world.again();
            world.advance_ms(1_000);
        }
        assert_eq!(world.engine.open_count(), 10);
    }
}

#[test]
fn a_close_while_a_message_hangs_does_not_count_as_its_attempt__d6() {
    let mut world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    for close in 0..20 {
        let (_, deliveries) = world.next_send().unwrap_or_else(|| panic!("close {close}"));
        assert_eq!(deliveries[0].redelivered, close > 0);
        world.engine.close(Sends::SomeHang).unwrap();
        world = world.again();
        world.advance_ms(1_000);
    }
}

/// A message that is due soon may be sent at any moment until the close, and after it none is.
#[test]
fn a_close_while_one_hangs_marks_that_one_alone__d5() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("bad"), "hangs", START_MS)]);
    world.give((0..20).map(|id| put(Some(&format!("k{id}")), &id.to_string(), START_MS + 500)).collect());
    let (_, hangs) = world.next_send().expect("it is due");
    assert_eq!(ids(&hangs), ["hangs"]);
    world.engine.close(Sends::SomeHang).unwrap();
    let world = world.again();
    world.advance_ms(1_000);
    let sent = world.sent();
    assert_eq!(sent.len(), 21);
    for it in sent {
        assert_eq!(it.redelivered, it.body.id() == "hangs", "{}", it.body.id());
    }
}

/// Messages that are open for long get a row in the store.
#[test]
fn a_message_that_waits_for_a_place_until_the_close_is_not_marked__d5() {
    let world = ByHand::start(Settings { limits: Limits::tiny(), ..settings() });
    world.give(vec![put(None, "hangs", START_MS)]);
    assert!(world.next_send().is_some());
    for id in 0..40 {
        world.give(vec![put(None, &id.to_string(), START_MS)]);
        world.engine.lock_dispatcher().advance(); // it is ready
    }
    world.engine.close(Sends::SomeHang).unwrap();
    let world = world.again();
    world.advance_ms(1_000);
    let sent = world.sent();
    assert_eq!(sent.len(), 41);
    for it in sent {
        assert_eq!(it.redelivered, it.body.id() == "hangs", "{}", it.body.id());
    }
}

/// Its answer came, and its outcome is on no disk.
#[test]
fn a_close_after_an_answer_that_is_not_committed_marks_that_message__d5() {
    for sends in [Sends::AllEnded, Sends::SomeHang, Sends::Unknown] {
        for key in [None, Some("k")] {
            let world = ByHand::start(settings());
            world.give(vec![put(key, "late", START_MS), put(Some("other"), "other", START_MS)]);
            let late = loop {
                let (number, sent) = world.next_send().expect("both are due");
                world.engine.settle(number, Verdicts::Delivered, None);
                if ids(&sent).contains(&"late") {
                    break sent;
                }
            };
            assert!(!late[0].redelivered);
            world.engine.close(sends).unwrap();
            let world = world.again();
            world.advance_ms(1_000);
            let again = world.sent();
            let marked = again.iter().find(|it| it.body.id() == "late").map(|it| it.redelivered);
            assert_eq!(marked, Some(true), "{sends:?} {key:?}");
        }
    }
}

/// After the crash all of them may have been on their way.
#[test]
fn after_a_crash_keys_in_doubt_do_not_hold_up_others_that_were_on_their_way__d6() {
    for (bad, counted) in [(40, 0), (40, 3), (600, 0)] {
        let world = ByHand::start(settings());
        world.engine.set_places(limits(4, 1_000));
        world.give((0..bad).map(|id| put(Some(&format!("bad{id}")), &id.to_string(), START_MS)).collect());
        for round in 0..=counted {
            world.give(vec![put(None, &format!("good{round}"), START_MS)]);
            world.deliver(|it| match it.key() {
                None => Verdict::Delivered,
                Some(_) if round < counted => failed(),
                Some(_) => unanswered(),
            });
            if round < counted {
                world.advance_ms(1_000);
            }
        }
        world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
        while world.engine.take(1, usize::MAX, false).is_some() {}
        world.advance_ms(1_000);
        let world = world.again();
        world.engine.set_places(limits(4, 8));
        let began_ms = world.wall_ms() - START_MS;
        let send = |key: &str| {
            if key.starts_with('h') { (5_000, Verdict::Delivered) } else { (30 * S_US, unanswered()) }
        };
        let (late_us, healthy) = run(&world, 60 * S_US, &send);
        let late_ms = late_us / 1_000 - began_ms;
        assert!(healthy == 20 && late_ms <= 2_000, "{bad} bad ones: {healthy}, {late_ms} ms after the start");
    }
}

/// A process that is closed soon after a crash sends all that is due.
#[test]
fn a_close_after_a_crash_sends_what_is_due__d5() {
    let world = ByHand::start(settings());
    world.give((0..1_000).map(|id| put(None, &format!("{id:03}"), START_MS)).collect());
    world.write();
    assert!(world.engine.take(1, usize::MAX, false).is_some());
    let world = world.again();
    world.engine.set_places(limits(4, 100));
    let mut sent = 0;
    loop {
        world.write();
        let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, false) else {
            if world.engine.lock_dispatcher().has_more_to_send(Duration::from_secs(1)) {
                continue;
            }
            break;
        };
        sent += deliveries.len();
        world.engine.settle(flight, Verdicts::Delivered, None);
    }
    assert_eq!(sent, 1_000);
}

/// Twenty customers failed once while another message was accepted, and were on their way again at a crash. New customers
/// fail from then on, so the destination is down.
fn down_after_a_crash() -> ByHand {
    let world = ByHand::start(settings());
    world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
    assert_eq!(world.deliver(|_| unanswered()).len(), 20);
    world.give(vec![put(None, "accepted", START_MS)]);
    assert_eq!(world.sent().len(), 1);
    world.advance_ms(1_000);
    while world.engine.take(1, usize::MAX, false).is_some() {}
    let world = world.again();
    world.engine.set_places(limits(4, 1));
    world.give((0..6).map(|id| put(Some(&format!("new{id}")), &id.to_string(), START_MS)).collect());
    world.pass_ms(2_000, |_| unanswered());
    world.pass_ms(60_000, |_| unanswered());
    assert!(world.engine.down().is_some());
    world
}

fn new_ones_fail(it: &Delivery) -> Verdict {
    if it.key().is_some_and(|key| key.starts_with('h')) { Verdict::Delivered } else { unanswered() }
}

#[test]
fn keys_that_failed_before_are_tried_too_while_keys_that_failed_later_are_ready__d6() {
    let world = down_after_a_crash();
    world.pass_ms(120_000, new_ones_fail);
    assert_eq!((world.engine.down(), world.engine.open_count()), (None, 6));
}

#[test]
fn the_highest_number_of_attempts_is_not_passed__d6() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS), put(None, "b", START_MS)]);
    assert_eq!(world.deliver(|_| unanswered()).len(), 2);
    for seq in [1, 2] {
        let mut dispatcher = world.engine.lock_dispatcher();
        let slot = dispatcher.window.find(seq).unwrap();
        dispatcher.window.entry_mut(slot).attempts = u32::MAX;
    }
    world.advance_ms(1_000);
    assert_eq!(world.deliver(|_| unanswered()).len(), 2);
    world.advance_ms(1_000);
    let sent = world.sent();
    assert_eq!(sent.iter().map(|it| it.attempt).collect::<Vec<_>>(), [u32::MAX; 2]);
}

/// Its key has a message that comes later and is due earlier.
#[test]
fn what_may_have_arrived_keeps_its_place_after_restarts__d4() {
    for crashes in [false, true] {
        let mut world = ByHand::start(settings());
        let restarted = |world: ByHand| {
            if !crashes {
                world.engine.close(Sends::AllEnded).unwrap();
            }
            world.again()
        };
        world.give(vec![put(Some("k"), "a", START_MS)]);
        for restart in 0..2 {
            let (number, sent) = world.next_send().unwrap_or_else(|| panic!("crashes: {crashes}, restart {restart}"));
            assert_eq!(ids(&sent), ["a"]);
            world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
            world.write();
            world = restarted(world);
            world.advance_ms(1_000);
        }
        world.give(vec![put(Some("k"), "b", START_MS - 5)]);
        let world = restarted(world);
        let mut order = Vec::new();
        for _ in 0..10 {
            order.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
            world.advance_ms(500);
        }
        assert_eq!(order, ["a", "b"], "crashes: {crashes}");
    }
}
