//! Messages that wait long for their next attempt are in the store, not in memory (D6, D8).

use super::testing::{ByHand, START_MS, cancel, ids, put};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

const UNANSWERED_FOR_MS: u64 = 600_000;

fn settings(waits_ms: &[u64]) -> Settings {
    let retry = Retry { max_attempts: 4, waits_ms: waits_ms.to_vec(), ..Retry::default() };
    Settings { retry, unanswered_for_ms: UNANSWERED_FOR_MS, ..Settings::default() }
}

fn unanswered() -> Verdict {
    Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: None }
}

fn refused() -> Verdict {
    Verdict::Refused("no".to_owned())
}

/// Sends all due messages, and gives each this answer.
fn answer_all(world: &ByHand, verdict: &Verdict) -> Vec<Delivery> {
    world.deliver(|_| verdict.clone())
}

/// Lets the time pass in steps, as an engine does that wakes up for its timer alone, and collects what is sent.
fn pass_ms(world: &ByHand, ms: u64, verdict: &Verdict) -> Vec<(u64, String, u32)> {
    let end_us = world.engine.clock().now_us() + ms * 1_000;
    let mut seen = Vec::new();
    loop {
        for it in answer_all(world, verdict) {
            let at_ms = world.engine.clock().now_us() / 1_000;
            seen.push((at_ms, it.body.id().to_owned(), it.attempt));
        }
        let now_us = world.engine.clock().now_us();
        if now_us >= end_us {
            return seen;
        }
        let next_us =
            world.engine.timer.next_wake_us().unwrap_or(u64::MAX).clamp(now_us + 1_000, end_us.max(now_us + 1_000));
        world.advance_us(next_us - now_us);
    }
}

#[test]
fn a_message_leaves_memory_and_comes_back_at_its_time__d6() {
    for key in [None, Some("k")] {
        for (verdict, may_have_arrived) in [(unanswered(), true), (refused(), false)] {
            let world = ByHand::start(settings(&[20_000]));
            world.give(vec![put(key, "a", START_MS)]);
            let first = answer_all(&world, &verdict);
            assert_eq!((ids(&first), first[0].attempt, first[0].redelivered), (vec!["a"], 1, false));
            assert_eq!(world.engine.in_memory(), (0, 0), "{key:?}");
            world.advance_ms(19_999);
            assert_eq!(answer_all(&world, &verdict).len(), 0, "{key:?}: it is too early");
            world.advance_ms(1);
            let second = answer_all(&world, &verdict);
            assert_eq!((ids(&second), second[0].attempt), (vec!["a"], 2), "{key:?}");
            assert_eq!(second[0].redelivered, may_have_arrived, "{key:?}");
            assert_eq!(second[0].body.payload(), first[0].body.payload());
            assert_eq!(world.engine.in_memory(), (0, 0));
        }
    }
}

#[test]
fn the_timer_has_the_time_at_which_it_is_read__d6() {
    for key in [None, Some("k")] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(key, "a", START_MS)]);
        let seen = pass_ms(&world, 70_000, &unanswered());
        let attempts: Vec<u32> = seen.iter().map(|(.., attempt)| *attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4], "{key:?}: {seen:?}");
        let times: Vec<u64> = seen.iter().map(|(at_ms, ..)| at_ms / 20_000).collect();
        assert_eq!(times, [0, 1, 2, 3], "{key:?}: {seen:?}");
        assert!(seen.iter().all(|(at_ms, ..)| at_ms % 20_000 < 10), "{key:?}: {seen:?}");
    }
}

#[test]
fn what_waits_fills_no_memory_and_stops_nobody__d8() {
    for key in [false, true] {
        let bounds = Bounds { messages: 100, ..Bounds::default() };
        let world = ByHand::start(Settings { bounds, ..settings(&[60_000]) });
        let bad = |number: usize| put(key.then(|| format!("k{number}")).as_deref(), &format!("bad{number}"), START_MS);
        for part in 0..20 {
            world.give((50 * part..50 * (part + 1)).map(bad).collect());
            assert_eq!(answer_all(&world, &refused()).len(), 50, "part {part}, with keys {key}");
        }
        assert_eq!(world.engine.in_memory(), (0, 0));
        world.give(vec![put(Some("good"), "good", START_MS)]);
        assert_eq!(ids(&world.sent()), ["good"]);
        world.advance_ms(60_000);
        assert_eq!(world.engine.open_count(), 1_000);
        let mut back = 0;
        for _ in 0..100 {
            back += world.sent().len();
        }
        assert_eq!((back, world.engine.open_count()), (1_000, 0), "with keys {key}");
    }
}

/// It may have arrived, so its lane stays in the store until it is read: it keeps its place.
#[test]
fn one_that_waits_in_the_store_stays_there_if_the_cursor_goes_back__d4_d6() {
    let bounds = Bounds { messages: 4, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    assert_eq!(ids(&answer_all(&world, &unanswered())), ["a"]);
    world.give(vec![Item::pause(None, true)]);
    world.give((0..6).map(|number| put(None, &number.to_string(), START_MS - 1_000 + number)).collect());
    world.give(vec![put(Some("k"), "b", START_MS - 500), Item::pause(None, false)]);
    let mut sent = (0..4).flat_map(|_| world.sent());
    assert!(sent.all(|it| it.body.key().is_none()), "`b` has passed `a`");
    world.advance_ms(20_000);
    let sent: Vec<_> = (0..4).flat_map(|_| world.sent()).map(|it| it.body.id().to_owned()).collect();
    assert_eq!(sent, ["a", "b"]);
}

#[test]
fn in_memory_that_is_half_full_short_waits_leave_too__d8() {
    let bounds = Bounds { messages: 100, ..Bounds::default() };
    for (count, left) in [(40, 40), (60, 0)] {
        let world = ByHand::start(Settings { bounds, ..settings(&[2_000]) });
        world.give((0..count).map(|number| put(None, &number.to_string(), START_MS)).collect());
        let (number, deliveries) = world.take().unwrap();
        assert_eq!(deliveries.len(), count);
        world.engine.settle(number, Verdicts::Each(vec![refused(); count]), None);
        world.write();
        assert_eq!(world.engine.in_memory().0, left);
        world.advance_ms(2_000);
        assert_eq!(world.sent().len(), count);
    }
}

#[test]
fn the_messages_of_a_key_stay_in_order__d4() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(Some("k"), "b", START_MS), put(Some("k"), "c", START_MS + 1)]);
    assert_eq!(ids(&answer_all(&world, &unanswered())), ["b"]);
    world.give(vec![put(Some("k"), "d", START_MS + 2), put(Some("k"), "a", START_MS - 5)]);
    world.advance_ms(10_000);
    assert_eq!(answer_all(&world, &unanswered()).len(), 0);
    assert_eq!(world.engine.in_memory(), (0, 0));
    world.advance_ms(10_000);
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
    }
    assert_eq!(sent, ["b", "a", "c", "d"], "`b` keeps its place, and `a` is due before the others");
}

/// `b` waits for its next attempt, and `a`, which is due earlier, comes meanwhile or is moved there.
#[test]
fn what_is_due_earlier_goes_before_a_message_that_certainly_did_not_arrive__d4() {
    let unreachable = Verdict::Unreachable { reason: "no".into(), retry_after_ms: None };
    let failed = Verdict::Failed { reason: "no".into(), retry_after_ms: None };
    let kinds = [(refused(), true), (unreachable, true), (unanswered(), false), (failed, false)];
    for (verdict, goes_first) in kinds {
        for wait_ms in [200, 20_000] {
            for (is_moved, is_global) in [(false, false), (true, false), (false, true)] {
                let world = ByHand::start(Settings { is_global, ..settings(&[wait_ms]) });
                world.give(vec![put(Some("k"), "b", START_MS), put(Some("k"), "c", START_MS + 1)]);
                if is_moved {
                    world.give(vec![put(Some("k"), "a", START_MS + 1_000_000)]);
                }
                assert_eq!(ids(&answer_all(&world, &verdict)), ["b"]);
                if is_moved {
                    let (id, key) = ("a".into(), Some("k".into()));
                    world.give(vec![Item::Reschedule(Reschedule { id, key, due_ms: START_MS - 5 })]);
                } else {
                    world.give(vec![put(Some("k"), "a", START_MS - 5)]);
                }
                world.advance_ms(wait_ms - 1);
                assert!(world.sent().is_empty(), "the key waits");
                world.advance_ms(1);
                let mut sent = Vec::new();
                for _ in 0..8 {
                    sent.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
                }
                let expected = if goes_first { ["a", "b", "c"] } else { ["b", "a", "c"] };
                assert_eq!(sent, expected, "{verdict:?}, {wait_ms} ms, moved {is_moved}, global {is_global}");
            }
        }
    }
}

#[test]
fn after_a_restart_it_waits_for_the_rest_of_its_time__d6() {
    for key in [None, Some("k")] {
        for is_clean in [false, true] {
            let world = ByHand::start(settings(&[20_000]));
            world.give(vec![put(key, "a", START_MS), put(None, "other", START_MS + 5_000)]);
            answer_all(&world, &unanswered());
            world.advance_ms(1_000);
            if is_clean {
                world.engine.close(Sends::AllEnded).unwrap();
            }
            let world = world.again();
            world.advance_ms(4_000);
            assert_eq!(ids(&world.sent()), ["other"]);
            world.advance_ms(14_900);
            assert!(answer_all(&world, &unanswered()).is_empty(), "{key:?} {is_clean}");
            world.advance_ms(200);
            let again = answer_all(&world, &unanswered());
            assert_eq!((ids(&again), again[0].redelivered), (vec!["a"], true), "{key:?} {is_clean}");
            assert!(again[0].attempt >= 2);
        }
    }
}

#[test]
fn a_cancel_finds_it_and_lets_its_key_go_on__d7() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS), put(None, "c", START_MS)]);
    answer_all(&world, &unanswered());
    assert_eq!(world.engine.in_memory(), (0, 0));
    assert_eq!(world.give(vec![cancel(Some("k"), "a"), cancel(None, "c")]), [Answer::Cancelled; 2]);
    assert_eq!(ids(&world.sent()), ["b"]);
    assert_eq!(pass_ms(&world, 60_000, &refused()), []);
    assert!(world.engine.is_empty());
}

#[test]
fn the_time_in_the_store_counts_for_unanswered_for__d6() {
    for key in [None, Some("k")] {
        let world = ByHand::start(settings(&[50_000]));
        world.give(vec![put(key, "a", START_MS)]);
        let seen = pass_ms(&world, 2 * UNANSWERED_FOR_MS, &unanswered());
        assert_eq!(world.engine.summary().undeliverable, 1);
        let (last_ms, ..) = seen.last().unwrap();
        assert!((UNANSWERED_FOR_MS..UNANSWERED_FOR_MS + 51_000).contains(last_ms), "{key:?}: {last_ms}");
    }
}

#[test]
fn a_failure_counts_only_if_something_was_accepted_since__d6() {
    for accepts in [false, true] {
        let world = ByHand::start(settings(&[50_000]));
        world.give(vec![put(None, "a", START_MS)]);
        let failed = Verdict::Failed { reason: "500".to_owned(), retry_after_ms: None };
        for round in 0..4 {
            assert_eq!(ids(&answer_all(&world, &failed)), ["a"]);
            if accepts {
                world.advance_ms(10_000);
                world.give(vec![put(None, &format!("good{round}"), START_MS)]);
                assert_eq!(world.sent().len(), 1);
                world.advance_ms(40_000);
            } else {
                world.advance_ms(50_000);
            }
        }
        assert_eq!(world.engine.summary().undeliverable, u64::from(accepts), "four attempts are allowed");
    }
}

#[test]
fn after_an_outage_it_is_tried_at_once__d6() {
    let world = ByHand::start(settings(&[3_600_000]));
    world.give((0..8).map(|number| put(None, &number.to_string(), START_MS)).collect());
    answer_all(&world, &unanswered());
    assert_eq!(world.engine.in_memory(), (0, 0));
    world.advance_ms(1_000);
    assert!(world.take().is_none());
    assert!(world.engine.down().is_some());
    let mut sent = world.sent();
    sent.extend(world.sent());
    assert_eq!(sent.len(), 8, "one was tried, and then the others");
}

#[test]
fn if_the_wall_clock_is_stepped_it_still_comes_back__d3() {
    for by_ms in [-3_600_000, 3_600_000] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(None, "a", START_MS), put(None, "b", START_MS)]);
        answer_all(&world, &refused());
        world.step_wall_clock_ms(by_ms);
        world.engine.follow_clock();
        world.write();
        let seen = pass_ms(&world, 3_700_000, &refused());
        assert!(seen.len() >= 2, "{by_ms}: {seen:?}");
    }
}

/// The disk is slow: the wait is over before the message has left memory.
#[test]
fn what_has_not_left_memory_in_time_goes_out_from_there__d6() {
    for key in [None, Some("k")] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(key, "a", START_MS)]);
        let (number, _) = world.take().unwrap();
        world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
        let begun = world.engine.begin_group().unwrap();
        world.advance_ms(20_000);
        let (number, again) = world.take().expect("it is in memory");
        assert_eq!(again[0].attempt, 2);
        let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
        world.engine.publish_group(&committed).unwrap();
        world.engine.settle(number, Verdicts::Delivered, None);
        world.write();
        assert!(world.engine.is_empty());
    }
}

/// The key is paused between the end of the wait and the reading of the message.
#[test]
fn a_key_that_is_paused_when_its_wait_is_over_goes_on_when_it_is_resumed__d16() {
    for cancels in [false, true] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
        answer_all(&world, &unanswered());
        world.advance_ms(20_000);
        assert!(world.take().is_none(), "it is not read yet");
        let mut asked = vec![Item::pause(Some("k".to_owned()), true)];
        asked.extend(cancels.then(|| cancel(Some("k"), "a")));
        world.give(asked);
        assert_eq!(pass_ms(&world, 60_000, &refused()), []);
        world.give(vec![Item::pause(Some("k".to_owned()), false)]);
        let sent = [world.sent(), world.sent()].concat();
        assert_eq!(ids(&sent).concat(), if cancels { "b" } else { "ab" });
    }
}

/// R1: the wall clock steps back while a message of a key is parked, so that it would be early when it comes back.
#[test]
fn a_key_goes_on_after_a_step_back_of_the_wall_clock__d3() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS + 1)]);
    answer_all(&world, &refused());
    world.step_wall_clock_ms(-60_000);
    world.engine.follow_clock();
    world.write();
    let mut sent = Vec::new();
    for _ in 0..200 {
        world.advance_ms(1_000);
        sent.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
    }
    assert_eq!(sent, ["a", "b"]);
}

/// R2: the cursor moves back before a parked message of a key, which is read ahead again while its key waits.
#[test]
fn it_comes_back_also_if_memory_was_full_meanwhile__d8() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    answer_all(&world, &refused());
    world.give((0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect());
    let mut count = 0;
    for _ in 0..10 {
        count += world.sent().len();
    }
    assert_eq!(count, 30);
    let mut sent = Vec::new();
    for _ in 0..200 {
        world.advance_ms(1_000);
        sent.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
    }
    assert_eq!(sent, ["a"], "{:?}", world.engine.in_memory());
}

/// R3: a crash while a message that was parked is being sent again.
#[test]
fn if_it_is_sent_again_at_a_crash_it_is_marked__d5() {
    for key in [None, Some("k")] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(key, "a", START_MS)]);
        answer_all(&world, &refused());
        world.advance_ms(20_000);
        let (_, second) = world.next_send().unwrap();
        assert_eq!((second[0].attempt, second[0].redelivered), (2, false));
        world.write();
        let world = world.again();
        let third = world.sent();
        assert_eq!(ids(&third), ["a"], "{key:?}");
        assert!(third[0].redelivered, "{key:?}: it may have arrived");
    }
}

/// R4: much is due within the horizon, and a message whose wait is over finds no room.
#[test]
fn messages_of_the_future_do_not_keep_it_out__d8() {
    for key in [Some("k"), None] {
        let bounds = Bounds { messages: 100, ..Bounds::default() };
        let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
        world.give(vec![put(key, "bad", START_MS)]);
        answer_all(&world, &refused());
        world.give(
            (0..1_000).map(|number| put(None, &format!("x{number}"), START_MS + 21_000 + number * 100)).collect(),
        );
        let mut at = None;
        for second in 1..140 {
            world.advance_ms(1_000);
            if world.sent().iter().any(|it| it.body.id() == "bad") {
                at = at.or(Some(second));
            }
        }
        assert_eq!(at, Some(20), "{key:?}");
    }
}

/// R5: as R4, with a backlog that is due.
#[test]
fn a_backlog_does_not_keep_it_out__d8() {
    for key in [Some("k"), None] {
        let bounds = Bounds { messages: 100, ..Bounds::default() };
        let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
        world.give(vec![put(key, "bad", START_MS)]);
        answer_all(&world, &refused());
        world.advance_ms(19_000);
        world.give((0..3_000).map(|number| put(None, &format!("x{number}"), START_MS + number)).collect());
        world.advance_ms(1_000);
        let mut before = 0;
        for _ in 0..200 {
            let sent: Vec<String> = world.sent().iter().map(|it| it.body.id().to_owned()).collect();
            if let Some(place) = sent.iter().position(|id| id == "bad") {
                before += place;
                break;
            }
            before += sent.len();
        }
        assert!(before < 600, "{key:?}: {before} went before it");
    }
}

/// R7: messages without a key that were dead before the last accepted one are no sign of an outage.
#[test]
fn old_failures_are_no_sign_of_an_outage__d6() {
    for key in [true, false] {
        let world = ByHand::start(settings(&[20_000]));
        let bad = |number: usize| put(key.then(|| format!("k{number}")).as_deref(), &format!("bad{number}"), START_MS);
        world.give((0..5).map(bad).collect());
        answer_all(&world, &unanswered());
        world.advance_ms(500);
        world.give(vec![put(None, "good", START_MS)]);
        assert_eq!(ids(&world.sent()), ["good"]);
        pass_ms(&world, 100_000, &unanswered());
        assert_eq!(world.engine.down(), None, "with keys {key}");
    }
}

/// R8: a commit takes longer than the wait. The message goes out from memory, fails again, and is marked again.
#[test]
fn if_it_fails_twice_within_a_commit_it_leaves_with_its_last_attempt__d6() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(None, "x", START_MS)]);
    answer_all(&world, &refused());
    world.advance_ms(1_000);
    world.give(vec![put(None, "a", START_MS)]);
    let (number, _) = world.take().unwrap();
    world.engine.settle(number, Verdicts::Each(vec![refused()]), None);
    let begun = world.engine.begin_group().unwrap();
    world.advance_ms(20_000);
    let (number, again) = world.take().expect("it is in memory");
    assert!(again.iter().any(|it| it.body.id() == "a" && it.attempt == 2));
    world.engine.settle(number, Verdicts::Each(vec![refused(); again.len()]), None);
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.engine.publish_group(&committed).unwrap();
    let soon: Vec<(String, u32)> =
        answer_all(&world, &refused()).iter().map(|it| (it.body.id().to_owned(), it.attempt)).collect();
    assert_eq!(soon, [("x".to_owned(), 2)], "`a` waits another 20 s");
}

/// R11: after an outage, a message whose tries failed in it begins with short waits again.
#[test]
fn after_an_outage_the_waits_are_short_again__d6() {
    for key in [true, false] {
        let world = ByHand::start(settings(&[20_000, 30_000, 40_000, 3_600_000]));
        let bad = |number: usize| put(key.then(|| format!("k{number}")).as_deref(), &format!("bad{number}"), START_MS);
        world.give((0..4).map(bad).collect()); // too few for an outage
        pass_ms(&world, 100_000, &unanswered()); // the fourth wait is an hour
        world.give((4..9).map(bad).collect());
        answer_all(&world, &unanswered());
        world.advance_ms(1_000);
        world.take();
        assert!(world.engine.down().is_some());
        world.give(vec![put(None, "good", START_MS)]);
        world.advance_ms(1_000);
        let mut good = false;
        for _ in 0..20 {
            world.write();
            let Some((number, deliveries)) = world.take() else { continue };
            let is_good = deliveries.iter().any(|it| it.body.id() == "good");
            let verdict = |it: &Delivery| if it.body.id() == "good" { Verdict::Delivered } else { unanswered() };
            world.engine.settle(number, Verdicts::Each(deliveries.iter().map(verdict).collect()), None);
            good |= is_good;
            if is_good {
                break;
            }
        }
        assert!(good && world.engine.down().is_none());
        let seen = pass_ms(&world, 200_000, &refused());
        let of_0 = seen.iter().filter(|(_, id, _)| id == "bad0").count();
        assert!(of_0 >= 2, "with keys {key}: {seen:?}");
    }
}

/// R16: as R2, with a new message of the key that is due before the parked one, and is being sent when that one comes in.
#[test]
fn no_other_message_of_its_key_is_in_flight_beside_it__d4() {
    let bounds = Bounds { messages: 10, lane_messages: 2, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    answer_all(&world, &refused());
    world.advance_ms(20_000);
    assert!(world.take().is_none()); // the wait is over, and `a` is wanted
    let mut items: Vec<_> = (0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect();
    items.push(put(Some("k"), "b", START_MS - 1_500));
    items.extend((0..2_500).map(|number| put(Some("z"), &format!("z{number}"), START_MS - 900)));
    world.give(items);
    let mut in_flight = Vec::new();
    for _ in 0..60 {
        world.write();
        let Some((number, deliveries)) = world.take() else { continue };
        if deliveries.iter().any(|it| it.body.key() == Some("k")) {
            in_flight.push(deliveries[0].body.id().to_owned()); // it has no answer yet
        } else {
            world.engine.settle(number, Verdicts::Delivered, None);
        }
    }
    assert!(in_flight.len() < 2, "{in_flight:?}");
}

#[test]
fn after_a_restart_it_stops_nobody__d8() {
    for key in [false, true] {
        let bounds = Bounds { messages: 100, ..Bounds::default() };
        let world = ByHand::start(Settings { bounds, ..settings(&[3_600_000]) });
        for part in 0..20 {
            let bad =
                |number: usize| put(key.then(|| format!("k{number}")).as_deref(), &format!("bad{number}"), START_MS);
            world.give((10 * part..10 * (part + 1)).map(bad).collect());
            answer_all(&world, &refused());
        }
        world.engine.close(Sends::AllEnded).unwrap();
        let world = world.again();
        world.advance_ms(1_000);
        world.give(vec![put(Some("good"), "good", START_MS)]);
        let mut at = None;
        for second in 0..30 {
            if world.sent().iter().any(|it| it.body.id() == "good") {
                at = Some(second);
                break;
            }
            world.advance_ms(1_000);
        }
        assert_eq!(at, Some(0), "with keys {key}: {:?} in memory", world.engine.in_memory());
    }
}

#[test]
fn after_a_step_back_of_the_wall_clock_its_wait_is_as_long__d3() {
    for key in [Some("k"), None] {
        let world = ByHand::start(settings(&[20_000]));
        world.give(vec![put(key, "a", START_MS - 2 * 86_400_000)]);
        answer_all(&world, &refused());
        world.step_wall_clock_ms(-86_400_000);
        world.engine.follow_clock();
        world.write();
        let seen = pass_ms(&world, 3_600_000, &refused());
        assert!(!seen.is_empty(), "{key:?}: not tried in an hour");
    }
}

/// `a` was refused, so that `b` may go first, as it is due earlier. But it is not known before `a` is read.
#[test]
fn a_key_whose_message_is_wanted_while_memory_is_full_goes_on_in_its_order__d4_d6() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[20_000]) });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    answer_all(&world, &refused());
    world.advance_ms(20_000);
    assert!(world.take().is_none(), "it is wanted, and not read");
    let mut items: Vec<_> = (0..30).map(|number| put(None, &format!("x{number}"), START_MS - 1_000 - number)).collect();
    items.push(put(Some("k"), "b", START_MS - 1_500));
    world.give(items);
    let mut sends = Vec::new();
    while let Some((number, deliveries)) = world.take() {
        assert!(deliveries.iter().all(|it| it.body.key().is_none()), "memory is full");
        sends.push(number);
    }
    for number in sends {
        world.engine.settle(number, Verdicts::Delivered, None);
    }
    world.write();
    let sent = (0..10).flat_map(|_| world.sent()).filter(|it| it.body.key().is_some());
    assert_eq!(sent.map(|it| it.body.id().to_owned()).collect::<Vec<_>>(), ["b", "a"]);
    assert!(world.engine.is_empty(), "{} are left", world.engine.open_count());
}

#[test]
fn after_a_restart_a_key_with_a_backlog_takes_no_memory__d8() {
    let bounds = Bounds { messages: 100, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[3_600_000]) });
    for number in 0..30 {
        world.give(vec![put(Some(&format!("k{number}")), "a", START_MS)]);
        answer_all(&world, &refused());
    }
    for id in ["b", "c", "d"] {
        world.give((0..30).map(|number| put(Some(&format!("k{number}")), id, START_MS + 1)).collect());
    }
    world.engine.close(Sends::AllEnded).unwrap();
    let world = world.again();
    world.write();
    world.give(vec![put(Some("good"), "good", START_MS + 10)]);
    world.advance_ms(10);
    let sent = [world.sent(), world.sent(), world.sent()].concat();
    assert_eq!(ids(&sent), ["good"]);
    assert_eq!(world.engine.in_memory(), (0, 0));
}

#[test]
fn a_message_that_was_not_committed_leaves_with_its_key__d8() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let (number, _) = world.take().unwrap();
    let _receipt = world.submit(vec![put(Some("k"), "b", START_MS + 1)]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.engine.settle(number, Verdicts::Each(vec![refused()]), None);
    world.engine.publish_group(&committed).unwrap();
    world.write();
    world.advance_ms(20_000);
    assert_eq!(ids(&answer_all(&world, &refused())), ["a"]);
    assert_eq!(world.engine.in_memory(), (0, 0));
}

#[test]
fn after_a_crash_what_may_have_arrived_stops_nobody__d8() {
    let bounds = Bounds { messages: 100, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..settings(&[60_000]) });
    for part in 0..6 {
        world.give((0..50).map(|number| put(None, &format!("bad{part} {number}"), START_MS)).collect());
        answer_all(&world, &refused());
    }
    let world = world.again();
    world.write();
    world.advance_ms(61_000);
    world.give(vec![put(None, "good", START_MS + 10)]);
    let mut at = None;
    for second in 0..60 {
        world.write();
        while let Some((number, deliveries)) = world.take() {
            if deliveries.iter().any(|it| it.body.id() == "good") {
                world.engine.settle(number, Verdicts::Delivered, None);
                at = at.or(Some(second));
            }
        }
        world.advance_ms(1_000);
    }
    assert!(at.is_some_and(|second| second <= 1), "{at:?}, with {:?} in memory", world.engine.in_memory());
}

#[test]
fn it_leaves_memory_also_if_a_message_due_earlier_came_meanwhile__d8() {
    let world = ByHand::start(settings(&[20_000]));
    world.give(vec![put(Some("k"), "a", START_MS)]);
    answer_all(&world, &unanswered());
    world.give(vec![put(Some("k"), "c", START_MS - 5)]);
    world.advance_ms(20_000);
    assert_eq!(ids(&answer_all(&world, &unanswered())), ["a"]);
    assert_eq!(world.engine.in_memory(), (0, 0));
    world.advance_ms(20_000);
    let sent = [world.sent(), world.sent()].concat();
    assert_eq!(ids(&sent), ["a", "c"]);
}

/// All messages are placed again. One of them takes its lane into the store, with others of the list.
#[test]
fn a_step_of_the_wall_clock_finds_a_lane_that_goes_to_the_store__d3() {
    let bounds = Bounds { messages: 10, ..Bounds::default() };
    let retry = Retry { max_attempts: 1, waits_ms: vec![3_600_000], ..Retry::default() };
    let world = ByHand::start(Settings { retry, bounds, ..Settings::default() });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    answer_all(&world, &unanswered());
    world.give(vec![put(Some("k"), "b", START_MS + 1)]);
    world.give((0..8).map(|number| put(None, &format!("f{number}"), START_MS - 100 + number)).collect());
    world.engine.close(Sends::AllEnded).unwrap();
    let world = world.again();
    world.write();
    let (fresh, deliveries) = world.take().unwrap();
    assert_eq!(deliveries.len(), 8);
    world.give(vec![put(Some("k"), "x", START_MS - 200)]);
    let of_x = world.take();
    let verdict = |it: &Delivery| if it.body.id() == "f0" { refused() } else { Verdict::Delivered };
    world.engine.settle(fresh, Verdicts::Each(deliveries.iter().map(verdict).collect()), None);
    world.write();
    if let Some((number, _)) = of_x {
        world.engine.settle(number, Verdicts::Delivered, None);
    }
    world.step_wall_clock_ms(-60_000);
    world.engine.follow_clock();
    world.write();
    assert!(world.take().is_none());
}
