//! A waiting message gets another due time (D16): it goes out then, once, wherever it was at the moment of the request.

use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

const DAY_MS: i64 = 86_400_000;

fn to(key: Option<&str>, id: &str, after_ms: i64) -> Item {
    Item::Reschedule(Reschedule { id: id.to_owned(), key: key.map(str::to_owned), due_ms: START_MS + after_ms })
}

fn refuse(world: &ByHand) {
    let (number, _) = world.take().expect("it is due");
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
}

/// The ids that go out now. A mark or an attempt may have to be on disk first.
fn sent_now(world: &ByHand) -> Vec<String> {
    (0..3)
        .flat_map(|_| {
            world.write();
            world.send()
        })
        .collect()
}

fn retrying(max_attempts: u32) -> ByHand {
    let retry = Retry { max_attempts, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
    world
}

#[test]
fn it_goes_out_at_its_new_time_from_near_to_far_and_back_also_after_a_crash__d16() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(None, "near", START_MS + 5), put(None, "far", START_MS + DAY_MS)]);
    let asked = vec![to(None, "near", 2 * DAY_MS), to(None, "far", 10), to(None, "other", 10)];
    assert_eq!(world.give(asked), [Answer::Rescheduled, Answer::Rescheduled, Answer::Unknown]);
    assert_eq!(world.engine.open_count(), 2);
    world.advance_ms(9);
    assert!(sent_now(&world).is_empty());
    world = world.again();
    assert!(sent_now(&world).is_empty());
    world.advance_ms(1);
    assert_eq!(sent_now(&world), ["far"]);
    world.advance_ms(DAY_MS as u64);
    assert!(sent_now(&world).is_empty());
    world.advance_ms(DAY_MS as u64);
    assert_eq!(sent_now(&world), ["near"]);
}

#[test]
fn of_what_is_due_in_one_millisecond_it_is_the_last__d4_d16() {
    let world = ByHand::start(Settings::default());
    world.give(["a", "b", "c"].map(|id| put(Some("k"), id, START_MS + 5)).into());
    world.give(vec![to(Some("k"), "a", 5), to(Some("k"), "c", 4)]);
    world.advance_ms(5);
    assert_eq!(sent_now(&world), ["c", "b", "a"]);
}

#[test]
fn it_is_too_late_in_the_moment_of_sending_and_after_the_end__d16() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(None, "a", START_MS)]);
    let (number, _) = world.take().unwrap();
    assert_eq!(world.give(vec![to(None, "a", DAY_MS)]), [Answer::Delivering]);
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(world.give(vec![to(None, "a", DAY_MS)]), [Answer::Delivered]);
    world.give(vec![put(None, "b", START_MS + DAY_MS), cancel(None, "b")]);
    assert_eq!(world.give(vec![to(None, "b", 5)]), [Answer::Cancelled]);
    assert!(world.engine.is_empty());
}

#[test]
fn one_that_waits_for_its_next_attempt_goes_on_with_its_attempts_and_its_key_goes_on_without_it__d6_d16() {
    let world = retrying(3);
    refuse(&world);
    // The failure is not on disk yet, and is reported in the group that moves the message.
    let receipt = world.submit(vec![to(Some("k"), "a", 500)]);
    world.write();
    assert_eq!(super::testing::answered(&receipt).unwrap().unwrap(), [Answer::Rescheduled]);
    assert_eq!(world.send(), ["b"], "the key does not wait");
    world.advance_ms(499);
    world.write();
    assert!(world.take().is_none(), "the time of the next attempt was before that");
    world.advance_ms(1);
    let (number, again) = world.take().unwrap();
    assert_eq!((again[0].attempt, again[0].due_ms, again[0].redelivered), (2, START_MS + 500, true));
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    world.write();
    world.advance_ms(200);
    refuse(&world);
    world.write();
    assert_eq!(world.engine.summary().undeliverable, 1, "it had three attempts");
}

#[test]
fn a_failure_that_is_reported_after_its_message_was_taken_back_leaves_nothing__d6_d7_d16() {
    for asked in [cancel(Some("k"), "a"), to(Some("k"), "a", DAY_MS)] {
        let world = retrying(5);
        let (number, _) = world.take().unwrap();
        world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
        let _receipt = world.submit(vec![asked.clone()]);
        let begun = world.engine.begin_group().unwrap();
        world.advance_ms(100);
        if let Some((number, _)) = world.take() {
            world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
        }
        let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
        world.engine.publish_group(&committed).unwrap();
        world.write();
        let kept = usize::from(matches!(asked, Item::Reschedule(_)));
        assert_eq!(world.engine.with_store(|store| store.tried_count()), kept as u64);
        assert_eq!(world.send(), ["b"]);
    }
}

#[test]
fn one_that_had_no_answer_may_have_arrived_also_for_the_next_process__d5_d16() {
    for after_ms in [6_000, DAY_MS] {
        let mut world = ByHand::start(Settings::default());
        world.give(vec![put(None, "a", START_MS)]);
        let (number, _) = world.take().unwrap();
        let unanswered = Verdict::Unanswered { reason: "504".to_owned(), retry_after_ms: None };
        world.engine.settle(number, Verdicts::Each(vec![unanswered]), None);
        assert_eq!(world.give(vec![to(None, "a", after_ms)]), [Answer::Rescheduled]);
        world = world.again();
        assert_eq!(
            world.engine.with_store(|store| store.may_have_arrived()).unwrap().len(),
            1,
            "the destination is asked"
        );
        world.advance_ms(after_ms as u64);
        world.write();
        let (_, again) = world.take().unwrap();
        assert!(again[0].redelivered);
    }
}

#[test]
fn one_message_that_is_moved_often_is_no_outage__d6_d16() {
    let world = retrying(100);
    for _ in 0..20 {
        while let Some((number, deliveries)) = world.take() {
            let of = |id: &str| match id {
                "a" => Verdict::Unanswered { reason: "504".to_owned(), retry_after_ms: None },
                _ => Verdict::Delivered,
            };
            let verdicts = deliveries.iter().map(|it| of(it.body.id())).collect();
            world.engine.settle(number, Verdicts::Each(verdicts), None);
        }
        world.give(vec![to(Some("k"), "a", 0)]);
        world.write();
    }
    assert_eq!(world.engine.down(), None);
}
