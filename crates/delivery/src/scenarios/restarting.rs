//! Restarts while keys fail: they cost no message, and hold up no other key (D5, D6).

use std::time::Duration;

use super::neighbours::{S_US, limits, run};
use super::testing::{ByHand, START_MS, answered, ids, put};
use crate::due::pace::Rate;
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Failing, Item};
use crate::group::writer::Sends;
use crate::message::incoming::Incoming;
use crate::message::{Body, Message, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};
use crate::store::{CRASHED, Limits};

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

/// After the first close it is noted before each send, as it may end the process.
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

/// After the crash all of them may have been on their way. If a message has counted attempts, only few go out together.
#[test]
fn after_a_crash_keys_in_doubt_do_not_hold_up_others_that_were_on_their_way__d6() {
    for (bad, strikes) in [(40, 0), (40, 3), (600, 0)] {
        let world = ByHand::start(settings());
        world.engine.set_places(limits(4, 1_000));
        world.give((0..bad).map(|id| put(Some(&format!("bad{id}")), &id.to_string(), START_MS)).collect());
        for round in 0..=strikes {
            world.give(vec![put(None, &format!("good{round}"), START_MS)]);
            world.deliver(|it| match it.key() {
                None => Verdict::Delivered,
                Some(_) if round < strikes => failed(),
                Some(_) => unanswered(),
            });
            if round < strikes {
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

/// How many attempts are counted after the crash of a process that was sending suspects, and how many it was sending.
fn counted_at_a_second_crash(most: usize, rate: Option<Rate>, places: usize, answer: bool) -> (usize, usize) {
    let world = ByHand::start(Settings { rate, ..settings() });
    world.give((0..1_000).map(|id| put(None, &format!("{id:03}"), START_MS)).collect());
    world.write();
    assert!(world.engine.take(1, usize::MAX, false).is_some());
    let world = world.again();
    world.engine.set_places(limits(places, 100));
    let (mut sending, mut answered) = (0, 0);
    for _ in 0..20 {
        world.write();
        while let Some((flight, sent)) = world.engine.take(most, usize::MAX, false) {
            if answer && answered < 40 {
                answered += sent.len();
                world.engine.settle(flight, Verdicts::Delivered, None);
            } else {
                sending += sent.len();
            }
            world.write();
        }
    }
    world.write();
    let world = world.again();
    let counted = world.engine.with_store(|store| store.suspects()).unwrap();
    (counted.iter().filter(|it| it.strikes > 0).count(), sending)
}

#[test]
fn a_crash_counts_an_attempt_of_those_that_were_being_sent_and_of_few_others__d5_d6() {
    for answer in [false, true] {
        assert_eq!(counted_at_a_second_crash(1, None, 4, answer), (20, 4));
        assert_eq!(counted_at_a_second_crash(1, None, 40, answer), (80, 40));
        assert_eq!(counted_at_a_second_crash(10, None, 4, answer), (80, 40));
        assert_eq!(counted_at_a_second_crash(1_000, None, 2, answer), (256, 256));
    }
    let rate = Some(Rate { messages: 30, per_us: 1_000_000 }); // a burst of three
    assert_eq!(counted_at_a_second_crash(1, rate, 16, false), (4, 3));
}

fn put_of_size(id: &str, bytes: usize) -> Item {
    let body = Body::new(None, id, format!("{{\"x\":\"{}\"}}", "a".repeat(bytes)).as_bytes(), true);
    Item::Put(Incoming::of(Message { body, due_ms: START_MS, delay_ms: None }))
}

/// Ten large messages fill the limit for bytes, and the first one hangs.
#[test]
fn after_a_crash_small_messages_pass_large_ones__d6() {
    let world = ByHand::start(settings());
    let large = |id: usize| put_of_size(&format!("large{id}"), 10_000);
    world.give((0..10).map(large).chain((0..10).map(|id| put(None, &format!("small{id}"), START_MS))).collect());
    assert!(world.engine.take(1, usize::MAX, false).is_some());
    let world = world.again();
    world.engine.set_places(PlaceLimits { young: 4, spare: 0, young_bytes: 8_000, spare_bytes: 8_000, hanging: 0 });
    let mut small = 0;
    for _ in 0..40 {
        world.write();
        while let Some((flight, sent)) = world.engine.take(1, usize::MAX, false) {
            if sent[0].body.id().starts_with("small") {
                small += 1;
                world.engine.settle(flight, Verdicts::Delivered, None);
            }
            world.write();
        }
        world.advance_ms(500);
    }
    assert_eq!(small, 10);
}

/// Twenty of 600 suspects have a counted attempt: they limit those that are out with them, and no others.
#[test]
fn a_message_with_counted_attempts_does_not_slow_down_all_that_follow__d6() {
    let world = ByHand::start(settings());
    world.give((0..600).map(|id| put(Some(&format!("k{id}")), &format!("{id:05}"), START_MS)).collect());
    world.deliver(|it| if it.body.id().ends_with('0') && it.body.id() < "00200" { failed() } else { unanswered() });
    world.advance_ms(1_000);
    while world.engine.take(1, usize::MAX, false).is_some() {}
    let world = world.again();
    world.engine.set_places(limits(64, 1_000));
    let mut rounds = 0;
    while world.engine.open_count() > 0 {
        world.write();
        let mut flights = Vec::new();
        while let Some((flight, _)) = world.engine.take(1, usize::MAX, false) {
            flights.push(flight);
            world.write();
        }
        for flight in flights {
            world.engine.settle(flight, Verdicts::Delivered, None);
            world.write();
        }
        world.advance_ms(200);
        rounds += 1;
    }
    assert!(rounds < 40, "{rounds} rounds of 200 ms");
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
fn down_after_a_crash(hangs: bool) -> ByHand {
    let world = ByHand::start(settings());
    world.give((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS)).collect());
    assert_eq!(world.deliver(|_| unanswered()).len(), 20);
    world.give(vec![put(None, "accepted", START_MS)]);
    assert_eq!(world.sent().len(), 1);
    world.advance_ms(1_000);
    while world.engine.take(1, usize::MAX, false).is_some() {}
    let world = world.again();
    world.engine.set_places(limits(4, 1));
    let hanging = if hangs { world.next_send() } else { None };
    world.give((0..6).map(|id| put(Some(&format!("new{id}")), &id.to_string(), START_MS)).collect());
    world.pass_ms(2_000, |_| unanswered());
    if let Some((number, _)) = hanging {
        world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
    }
    world.pass_ms(60_000, |_| unanswered());
    assert!(world.engine.down().is_some());
    world
}

fn new_ones_fail(it: &Delivery) -> Verdict {
    if it.key().is_some_and(|key| key.starts_with('h')) { Verdict::Delivered } else { unanswered() }
}

/// One hangs as the outage begins. The others wait for an attempt that is noted.
#[test]
fn a_noted_message_is_tried_before_keys_that_failed_later__d6() {
    let world = down_after_a_crash(true);
    world.pass_ms(11_000, new_ones_fail);
    assert_eq!(world.engine.down(), None);
}

#[test]
fn keys_that_failed_before_are_tried_too_while_keys_that_failed_later_are_ready__d6() {
    let world = down_after_a_crash(false);
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

/// Its key has a message that comes later and is due earlier. Each close and each crash writes a note anew.
#[test]
fn what_may_have_arrived_keeps_its_place_also_with_a_note__d4() {
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
        assert!(world.take().is_none(), "a is noted");
        let world = restarted(world);
        let mut order = Vec::new();
        for _ in 0..10 {
            order.extend(world.sent().iter().map(|it| it.body.id().to_owned()));
            world.advance_ms(500);
        }
        assert_eq!(order, ["a", "b"], "crashes: {crashes}");
    }
}

/// The group with the reschedule is begun when the attempt is noted.
#[test]
fn a_message_that_is_moved_takes_no_attempt_along_that_was_not_made__d16() {
    for tried in [false, true] {
        let max_attempts = if tried { 2 } else { 1 };
        let retry = Retry { max_attempts, ..settings().retry };
        let world = ByHand::start(Settings { retry, ..settings() });
        world.give(vec![put(None, "a", START_MS)]);
        let (number, _) = world.take().unwrap();
        if tried {
            world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
            world.advance_ms(1_000);
            world.write();
        }
        let world = world.again();
        world.write();
        let due_ms = START_MS + 86_400_000;
        let reschedule = Reschedule { id: "a".to_owned(), key: None, due_ms, asked_ms: None };
        let receipt = world.submit(vec![Item::Reschedule(reschedule)]);
        let begun = world.engine.begin_group().unwrap();
        assert!(world.take().is_none(), "it is noted, and the note is in the writer's queue");
        let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
        world.engine.publish_group(&committed).unwrap();
        world.write();
        assert_eq!(answered(&receipt).unwrap().unwrap(), [Answer::Rescheduled]);
        let world = world.again();
        world.advance_ms(86_400_000);
        assert_eq!(ids(&world.sent()), ["a"], "tried: {tried}");
    }
}

/// How many messages arrive in 20 s after the end of the pause, and how many become dead letters.
fn after_the_pause(world: &ByHand) -> (usize, u64) {
    world.give(vec![Item::Pause { key: None, is_paused: false }]);
    let mut arrived = 0;
    for _ in 0..200 {
        arrived += world.sent().len();
        world.advance_ms(100);
    }
    (arrived, world.engine.summary().undeliverable)
}

/// A pause may last for days.
#[test]
fn a_crash_in_a_pause_counts_no_attempts__d6_d16() {
    let retry = Retry { max_attempts: 1, ..settings().retry };
    let world = ByHand::start(Settings { retry, ..settings() });
    world.give((0..40).map(|id| put(None, &format!("{id:02}"), START_MS)).collect());
    assert!(world.take().is_some());
    let world = world.again();
    world.engine.set_places(limits(4, 8));
    world.write();
    assert!(world.engine.take(1, usize::MAX, false).is_none(), "some are noted");
    world.write();
    let (flight, _) = world.engine.take(1, usize::MAX, false).unwrap();
    world.give(vec![Item::Pause { key: None, is_paused: true }]);
    world.engine.settle(flight, Verdicts::Delivered, None);
    world.write();
    assert_eq!(after_the_pause(&world.again()), (39, 0));
}

/// The note of an attempt has no time to wait for, also where the failure before had a long one, or the clock was set back.
#[test]
fn what_is_noted_does_not_wait_anew_after_another_end__d6() {
    for crashes in [true, false] {
        let world = ByHand::start(Settings { is_global: true, ..settings() });
        world.give(vec![put(Some("k"), "a", START_MS)]);
        let (number, _) = world.next_send().unwrap();
        let later = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: Some(3_600_000) };
        world.engine.settle(number, Verdicts::Each(vec![later]), None);
        world.write();
        let world = world.again();
        world.write();
        world.advance_ms(1_000);
        world.give(vec![Item::Again(Failing::Key("k".to_owned()))]);
        assert!(world.next_send().is_some());
        if !crashes {
            world.engine.close(Sends::SomeHang).unwrap();
        }
        let world = world.again();
        world.advance_ms(1_000);
        assert_eq!(ids(&world.sent()), ["a"], "crashes: {crashes}");
    }
    let world = ByHand::start(settings());
    world.give(vec![put(None, "a", START_MS - 86_400_000)]);
    let (number, _) = world.next_send().unwrap();
    world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
    world.write();
    let world = world.again();
    world.advance_ms(2_000);
    assert!(world.next_send().is_some());
    world.step_wall_clock_ms(-3_600_000);
    let world = world.again();
    world.advance_ms(1_000);
    assert_eq!(ids(&world.sent()), ["a"], "the wall clock was set back");
}

/// Nothing is sent after the pause, so no sender reports anything.
#[test]
fn a_pause_takes_notes_back_without_a_sender__d6_d16() {
    for closes in [false, true] {
        let retry = Retry { max_attempts: 1, ..settings().retry };
        let world = ByHand::start(Settings { retry, ..settings() });
        world.give((0..40).map(|id| put(None, &format!("{id:02}"), START_MS)).collect());
        assert!(world.take().is_some());
        let world = world.again();
        world.write();
        assert!(world.take().is_none());
        world.write();
        world.give(vec![Item::Pause { key: None, is_paused: true }]);
        world.write(); // the writer alone
        if closes {
            world.engine.close(Sends::AllEnded).unwrap();
        }
        assert_eq!(after_the_pause(&world.again()), (40, 0), "closes: {closes}");
    }
}

#[test]
fn a_close_during_a_noted_send_keeps_what_is_known_of_it__d6() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS - 86_400_000)]);
    assert!(world.next_send().is_some());
    let world = world.again(); // a crash in the first send: its row has no time
    for _ in 0..5 {
        let (number, _) = world.next_send().unwrap();
        world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
        world.write();
        world.advance_ms(1_000);
    }
    assert!(world.next_send().is_some());
    world.engine.close(Sends::SomeHang).unwrap();
    world.step_wall_clock_ms(-3_600_000);
    let world = world.again();
    let kept = world.engine.with_store(|store| store.attempts(1)).unwrap().unwrap();
    assert!(kept.waited_ms >= 5_000, "{} ms without success", kept.waited_ms);
    world.advance_ms(1_000);
    assert_eq!(ids(&world.sent()), ["a"], "it does not wait for the old time");
}

#[test]
fn a_failure_told_too_late_for_a_commit_counts_no_crash__d6() {
    let retry = Retry { max_attempts: 1, ..settings().retry };
    let world = ByHand::start(Settings { retry, ..settings() });
    world.give(vec![put(Some("k"), "a", START_MS)]);
    assert!(world.next_send().is_some());
    let world = world.again(); // a crash: the next send is noted first
    let (number, _) = world.next_send().unwrap();
    world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
    world.engine.close(Sends::SomeHang).unwrap(); // the writer has not seen it
    let world = world.again();
    let kept = world.engine.with_store(|store| store.attempts(1)).unwrap().unwrap();
    assert_eq!((kept.attempts, kept.strikes), (1, 0), "{kept:?}");
    assert_ne!(kept.error.as_deref(), Some(CRASHED));
    world.advance_ms(1_000);
    assert_eq!(ids(&world.sent()), ["a"]);
}

#[test]
fn a_note_that_is_taken_back_tells_of_no_crash__d6_d16() {
    for closes in [false, true] {
        let world = ByHand::start(settings());
        world.give(vec![put(Some("k"), "a", START_MS)]);
        assert!(world.take().is_some());
        let world = world.again();
        world.write();
        assert!(world.take().is_none(), "it is noted");
        world.write();
        if closes {
            world.engine.close(Sends::AllEnded).unwrap();
        } else {
            world.give(vec![Item::Pause { key: None, is_paused: true }]);
            world.write();
        }
        let kept = world.again().engine.with_store(|store| store.attempts(1)).unwrap();
        let kept = kept.map(|it| (it.attempts, it.error));
        assert!(kept.is_none() || kept == Some((0, None)), "closes: {closes}, {kept:?}");
    }
}

/// The step comes between the note and the send.
#[test]
fn a_noted_message_keeps_its_place_after_a_step_of_the_clock__d4() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let (number, _) = world.next_send().unwrap();
    world.engine.settle(number, Verdicts::Each(vec![unanswered()]), None);
    world.write();
    let world = world.again();
    world.write();
    world.advance_ms(1_000);
    for _ in 0..2 {
        assert!(world.take().is_none(), "it is read, then noted");
        world.write();
    }
    world.step_wall_clock_ms(-10_000);
    assert!(world.take().is_none(), "it would be early");
    world.write();
    world.give(vec![put(Some("k"), "b", START_MS - 5)]);
    let world = world.again();
    world.advance_ms(20_000);
    let mut order = Vec::new();
    for _ in 0..10 {
        order.extend(ids(&world.sent()).iter().map(ToString::to_string));
        world.advance_ms(500);
    }
    assert_eq!(order, ["a", "b"]);
}
