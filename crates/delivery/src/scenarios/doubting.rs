//! Keys in doubt over outages, restarts, moves and cancels, and how many are remembered (D6, D7, D8).

use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Failing, Item};
use crate::group::writer::Sends;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

fn settings(unanswered_for_ms: u64, max_attempts: u32) -> Settings {
    let retry = Retry { max_attempts, waits_ms: vec![1_000], ..Retry::default() };
    Settings { retry, unanswered_for_ms, ..Settings::default() }
}

/// Sends the due messages, and none arrives.
fn fail_all(world: &ByHand, verdict: &Verdict) {
    world.write();
    while let Some((number, deliveries)) = world.take() {
        world.engine.settle(number, Verdicts::Each(vec![verdict.clone(); deliveries.len()]), None);
        world.write();
    }
}

#[test]
fn after_a_cancel_the_key_goes_on_at_once_also_after_a_restart__d7() {
    for restarts in [false, true] {
        let mut world = ByHand::start(Settings {
            retry: Retry { waits_ms: vec![60_000], ..Retry::default() },
            ..Settings::default()
        });
        world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
        fail_all(&world, &Verdict::Refused("no".to_owned()));
        if restarts {
            world.engine.close(Sends::AllEnded).unwrap();
            world = world.again();
            world.write();
        }
        assert!(world.sent().is_empty(), "the key waits");
        assert_eq!(world.give(vec![cancel(Some("k"), "a")]), [Answer::Cancelled]);
        let sent: Vec<String> = world.sent().iter().map(|it| it.id().to_owned()).collect();
        assert_eq!(sent, ["b"], "{restarts}");
    }
}

#[test]
fn the_time_without_success_counts_once_however_often_the_message_is_moved__d6() {
    let unanswered = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None };
    for moves in [false, true] {
        let world = ByHand::start(settings(6_000, 8));
        world.give(vec![put(Some("k"), "a", START_MS)]);
        let mut after_ms = 0;
        while world.engine.summary().undeliverable == 0 {
            fail_all(&world, &unanswered);
            world.advance_ms(250);
            after_ms += 250;
            if moves && after_ms % 1_000 == 0 {
                let to = Reschedule { id: "a".to_owned(), key: Some("k".to_owned()), due_ms: START_MS };
                world.give(vec![Item::Reschedule(to)]);
            }
        }
        assert!((6_000..8_000).contains(&after_ms), "moved {moves}: given up after {after_ms} ms");
        let (letters, _) = world.engine.queue.take_letters().expect("a dead letter");
        assert!(letters[0].reason.ends_with(": no success in 6 s (--unanswered-for), at last: 503"), "{letters:?}");
    }
}

#[test]
fn keys_whose_messages_were_given_up_are_not_remembered_for_ever__d8() {
    let world = ByHand::start(settings(86_400_000, 1));
    let keys = 10_500;
    world.give((0..keys).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    for _ in 0..1_000 {
        fail_all(&world, &Verdict::Refused("no".to_owned()));
        if world.engine.is_empty() || world.engine.summary().undeliverable == keys {
            break;
        }
    }
    assert_eq!(world.engine.summary().undeliverable, keys);
    assert!(world.engine.doubts().0 <= 10_000, "{} keys", world.engine.doubts().0);
}

fn refusing(retry_after_ms: Option<u64>) -> Verdict {
    Verdict::Unreachable { reason: "refused".to_owned(), retry_after_ms }
}

/// All keys fail within half a second, and then wait an hour: no further send would show that the destination is down.
#[test]
fn the_destination_goes_down_although_all_keys_wait__d6() {
    let retry = Retry { waits_ms: vec![400, 3_600_000], ..Retry::default() };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give((0..8).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    fail_all(&world, &refusing(None));
    world.advance_ms(400);
    fail_all(&world, &refusing(None));
    world.advance_ms(599);
    assert!(world.take().is_none() && world.engine.down().is_none(), "it was quiet for less than a second");
    world.advance_ms(1);
    let (number, deliveries) = world.next_send().expect("a try");
    assert!(world.engine.down().is_some());
    assert_eq!(deliveries.len(), 1);
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(world.sent().len(), 7, "the others failed with it, and are tried at once");
    assert!(world.engine.down().is_none());
}

/// Five keys fail, and then one of them gets an answer about its message.
#[test]
fn a_refused_message_shows_that_the_destination_answers__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..5).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    fail_all(&world, &refusing(Some(3_600_000)));
    world.give(vec![Item::Again(Failing::Key("k0".to_owned()))]);
    assert_eq!(world.deliver(|_| Verdict::Refused("no".to_owned())).len(), 1);
    world.advance_ms(2_000);
    let _ = world.take();
    assert_eq!(world.engine.down(), None, "four keys have no answer");
}

/// An earlier process knew that these customers fail while others do not. The three kinds of messages come from the store
/// in three ways: with a place, in the order of the key, or by the time of the next attempt.
#[test]
fn customers_that_failed_before_a_restart_are_no_outage_after_it__d6() {
    let unanswered = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None };
    let cases = [(true, &unanswered), (true, &refusing(None)), (false, &unanswered)];
    for (was_down, (has_key, verdict)) in [false, true].into_iter().flat_map(|it| cases.map(|case| (it, case))) {
        let mut world = ByHand::start(Settings::default());
        let key = |number: i32| has_key.then(|| format!("k{number}"));
        world.give((0..6).map(|number| put(key(number).as_deref(), &number.to_string(), START_MS)).collect());
        fail_all(&world, verdict);
        if !was_down {
            world.advance_ms(10);
            world.give(vec![put(Some("healthy"), "b", START_MS)]);
            assert_eq!(world.sent().len(), 1);
        }
        world.pass_ms(5_000, |_| verdict.clone());
        assert_eq!(world.engine.down().is_some(), was_down);
        world.engine.close(Sends::AllEnded).unwrap();
        world = world.again();
        assert!(!world.pass_ms(30_000, |_| verdict.clone()).is_empty());
        assert_eq!(world.engine.down().is_some(), was_down, "{was_down}, {has_key}, {verdict:?}");
    }
}

#[test]
fn the_key_that_has_waited_longest_is_tried_first__d6() {
    let world = ByHand::start(Settings::default());
    let away = || refusing(Some(3_600_000));
    for key in 0..8 {
        world.give(vec![put(Some(&format!("k{key}")), "a", START_MS)]);
        fail_all(&world, &away());
        world.advance_ms(100);
    }
    let mut tried = Vec::new();
    for _ in 0..10 {
        world.advance_ms(1_000);
        while let Some((number, deliveries)) = world.next_send() {
            tried.push(deliveries[0].key().unwrap().to_owned());
            world.engine.settle(number, Verdicts::Each(vec![away()]), None);
            world.write();
        }
    }
    assert_eq!(tried[..8], ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"]);
}

#[test]
fn a_round_tries_a_key_before_the_end_of_its_wait__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..8).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    fail_all(&world, &refusing(Some(3_600_000)));
    let mut tries = 0;
    for _ in 0..60 {
        world.advance_ms(1_000);
        while let Some((number, deliveries)) = world.next_send() {
            tries += deliveries.len();
            world.engine.settle(number, Verdicts::Each(vec![refusing(Some(3_600_000)); deliveries.len()]), None);
            world.write();
        }
    }
    assert!((58..=60).contains(&tries), "{tries}: one a second");
    let mut sent = 0;
    for _ in 0..10 {
        world.advance_ms(1_000);
        sent += world.sent().len();
    }
    assert_eq!(sent, 8, "it is back, and so are all keys");
}

#[test]
fn no_further_send_goes_out_if_a_message_is_accepted_within_the_second__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..8).map(|key| put(Some(&format!("k{key}")), "a", START_MS)).collect());
    fail_all(&world, &refusing(Some(3_600_000)));
    world.advance_ms(900);
    world.give(vec![put(Some("healthy"), "b", START_MS)]);
    assert_eq!(world.send().len(), 1);
    world.advance_ms(60_000);
    assert!(world.take().is_none() && world.engine.down().is_none());
}

/// One call never returns, the others are quick, and there is always a message of another key.
#[test]
fn keys_in_doubt_do_not_starve_behind_a_call_that_never_returns__d6() {
    let retry = Retry { waits_ms: vec![1_000], ..Retry::default() };
    let world = ByHand::start(Settings { retry, sink_timeout_ms: 3_600_000, ..Settings::default() });
    world.engine.set_places(PlaceLimits { young: 4, spare: 0, hanging: 0, ..PlaceLimits::NONE });
    world.give(vec![put(Some("k"), "bad", START_MS)]);
    assert_eq!(world.deliver(|_| Verdict::Refused("no".to_owned())).len(), 1);
    world.give(vec![put(None, "hangs", START_MS)]);
    let _hangs = world.take().unwrap();
    let mut tried_ms = None;
    for at_ms in (0..10_000).step_by(100) {
        world.give((0..2).map(|number| put(None, &format!("{at_ms} {number}"), START_MS)).collect());
        let (number, deliveries) = world.engine.take(1, 1 << 20, false).expect("one is always ready");
        if deliveries[0].body.id() == "bad" {
            tried_ms = Some(at_ms);
            break;
        }
        world.advance_ms(100);
        world.engine.settle(number, Verdicts::Delivered, None);
    }
    assert_eq!(tried_ms, Some(1_000), "after its wait, in another place");
}

/// A broker stops after the answer of one partition. Of the keys, one alone can fail for the first time after it.
#[test]
fn an_outage_that_begins_in_the_middle_of_a_send_is_found__d6() {
    let world = ByHand::start(Settings::default());
    let unanswered = || Verdict::Unanswered { reason: "no answer".to_owned(), retry_after_ms: None };
    let of_key = |key: usize| [0, 1].map(|n| put(Some(&format!("k{key}")), &n.to_string(), START_MS + n));
    world.give((0..20).flat_map(of_key).collect());
    world.advance_ms(1);
    let (number, deliveries) = world.next_send().unwrap();
    assert_eq!(deliveries.len(), 20);
    world.advance_ms(10);
    let verdicts = (0..20).map(|key| if key == 0 { Verdict::Delivered } else { unanswered() });
    world.engine.settle(number, Verdicts::Each(verdicts.collect()), None);
    world.pass_ms(2_000, |_| unanswered());
    assert!(world.engine.down().is_some());
}
