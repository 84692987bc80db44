//! Messages that come again and again (D19): each occurrence is made with the outcome of the one before.

mod stepping;
mod storm;

use super::testing::{ByHand, START_MS, cancel, put};
use crate::base::times::rfc_3339;
use crate::due::retry::Retry;
use crate::formats::ndjson::fields_of;
use crate::group::items::{Answer, Item};
use crate::message::columns::Columns;
use crate::message::fields::{Request, Schema};
use crate::message::incoming::Incoming;
use crate::message::recurrence::Recurrence;
use crate::message::{MAX_PAYLOAD, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};
use crate::store::{ActionKind, Filter};

/// A record, accepted at the start.
pub(crate) fn record(text: &str) -> Item {
    let schema = Schema::new(Columns::default(), MAX_PAYLOAD);
    match schema.check(&fields_of(text, &schema).unwrap(), Some(START_MS * 1_000_000)).unwrap() {
        Request::Message(message) => Item::Put(Incoming::of(message)),
        other => panic!("{other:?}"),
    }
}

/// Every second from the start on, unless said otherwise.
fn beat(more: &str) -> Item {
    record(&format!(r#"{{"id":"beat","key":"k","every":1000,"due":{START_MS},"payload":1{more}}}"#))
}

fn replace(item: Item) -> Item {
    let Item::Put(put) = item else { panic!("it is no message") };
    Item::Replace { put, at_latest_ms: None }
}

fn look(id: &str) -> Item {
    Item::Look { id: id.to_owned(), key: Some("k".to_owned()) }
}

/// The id of the occurrence so long after the start.
fn at(after_ms: i64) -> String {
    format!("beat@{}", String::from_utf8(rfc_3339(START_MS + after_ms).to_vec()).unwrap())
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|it| it.id()).collect()
}

/// The ids that go out in this many steps of 100 ms.
fn sent_in(world: &ByHand, steps: u32) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..steps {
        world.advance_ms(100);
        all.extend(world.sent().iter().map(|it| it.id().to_owned()));
    }
    all
}

#[test]
fn each_occurrence_is_a_message_that_is_due_when_the_rule_says__d19() {
    let mut world = ByHand::start(Settings::default());
    assert_eq!(world.give(vec![beat("")]), [Answer::Accepted]);
    assert_eq!(world.give(vec![look("beat"), look(&at(0))]), [Answer::Recurring, Answer::Waiting]);
    let first = world.sent();
    assert_eq!(ids(&first), [at(0)]);
    assert_eq!((first[0].key(), first[0].payload(), first[0].due_ms), (Some("k"), b"1".as_slice(), START_MS));
    assert_eq!(sent_in(&world, 9), [] as [&str; 0], "none before its time");
    assert_eq!(sent_in(&world, 1), [at(1_000)]);
    world = world.again();
    assert_eq!(sent_in(&world, 25), [at(2_000), at(3_000)]);
    assert_eq!(
        world.give(vec![look(&at(3_000)), look(&at(4_000)), look(&at(5_000))]),
        [Answer::Delivered, Answer::Waiting, Answer::Unknown]
    );
    assert_eq!(world.engine.open_count(), 2, "the recurring message and its occurrence");
}

#[test]
fn what_was_missed_follows_its_rule_also_where_nothing_ran__d19() {
    for (missed, expected) in [
        ("skip", vec![at(1_000), at(5_000), at(6_000)]),
        ("all", vec![at(1_000), at(2_000), at(3_000), at(4_000), at(5_000), at(6_000)]),
        ("last", vec![at(1_000), at(4_000), at(5_000), at(6_000)]),
    ] {
        let mut world = ByHand::start(Settings::default());
        world.give(vec![beat(&format!(r#","missed":"{missed}""#))]);
        assert_eq!(ids(&world.sent()), [at(0)]);
        // The next was made before nothing ran any more: it waits, and goes out late.
        world.advance_ms(4_500);
        world = world.again();
        let mut all: Vec<String> = world.sent().iter().map(|it| it.id().to_owned()).collect();
        all.extend(sent_in(&world, 15));
        assert_eq!(all, expected, "{missed}");
    }
}

#[test]
fn the_next_is_made_whatever_became_of_the_one_before__d19() {
    let retry = Retry { max_attempts: 1, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![beat("")]);
    let (number, _) = world.take().unwrap();
    let failed = Verdict::Refused("no".to_owned());
    world.engine.settle(number, Verdicts::Each(vec![failed]), None);
    world.write();
    assert_eq!(world.give(vec![look(&at(0)), cancel(Some("k"), &at(1_000))]), [Answer::Dead, Answer::Cancelled]);
    // If an occurrence is cancelled before it is made, it is not made.
    assert_eq!(world.give(vec![cancel(Some("k"), &at(3_000))]), [Answer::Unknown]);
    assert_eq!(sent_in(&world, 45), [at(2_000), at(4_000)]);
    let summary = world.engine.summary();
    assert_eq!((summary.delivered, summary.cancelled, summary.undeliverable), (2, 2, 1));
    assert_eq!(summary.accepted, 2 + 2 + 1 + world.engine.open_count());
}

#[test]
fn a_cancel_ends_it_and_its_occurrence__d7_d19() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    assert_eq!(world.give(vec![cancel(Some("k"), "beat")]), [Answer::Cancelled]);
    assert_eq!(world.give(vec![look("beat"), look(&at(1_000))]), [Answer::Cancelled, Answer::Cancelled]);
    assert_eq!(world.engine.open_count(), 0);
    assert_eq!(sent_in(&world, 30), [] as [&str; 0]);
    // The same message again stays cancelled. Another message of the name begins anew, and so does the same one as a
    // `replace`.
    assert_eq!(world.give(vec![beat("")]), [Answer::Cancelled]);
    world = world.again();
    assert_eq!(world.give(vec![replace(beat(""))]), [Answer::Accepted]);
    assert_eq!(ids(&world.sent()), [at(3_000)], "its first has arrived, and what was missed is left out");
    assert_eq!(
        world.give(vec![cancel(Some("k"), "beat"), beat(r#","missed":"all""#)]),
        [Answer::Cancelled, Answer::Accepted]
    );
    assert_eq!(ids(&world.sent()), [at(1_000), at(2_000)], "that of 3 s has arrived too");
}

#[test]
fn one_that_is_being_sent_when_it_is_cancelled_is_the_last__d7_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    let (number, deliveries) = world.take().unwrap();
    assert_eq!(world.give(vec![cancel(Some("k"), "beat")]), [Answer::Cancelled]);
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(ids(&deliveries), [at(0)]);
    assert_eq!(sent_in(&world, 30), [] as [&str; 0]);
    assert!(world.engine.is_empty());
}

#[test]
fn the_same_again_is_a_duplicate_and_another_takes_its_place__d5_d19() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    assert_eq!(world.give(vec![beat(""), beat("")]), [Answer::Duplicate, Answer::Duplicate]);
    let slower = || record(r#"{"id":"beat","key":"k","every":2500,"payload":2}"#);
    assert_eq!(world.give(vec![slower(), slower()]), [Answer::Replaced, Answer::Duplicate]);
    world = world.again();
    assert_eq!(sent_in(&world, 24), [] as [&str; 0], "the one of 1,000 is not due any more");
    world.advance_ms(100);
    let second = world.sent();
    assert_eq!(ids(&second), [at(2_500)]);
    assert_eq!(second[0].payload(), b"2");
    // The times are the same, but the payload is new, so a destination sees another message.
    world.give(vec![record(r#"{"id":"beat","key":"k","every":2500,"payload":3}"#)]);
    let third = sent_in(&world, 25);
    assert_eq!(third, [at(5_000)]);
    assert_eq!(world.engine.open_count(), 2);
}

#[test]
fn one_that_is_being_sent_when_it_is_replaced_is_followed_by_the_new_rule__d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    let (number, _) = world.take().unwrap();
    let slower = record(r#"{"id":"beat","key":"k","every":2500,"payload":2}"#);
    assert_eq!(world.give(vec![slower]), [Answer::Replaced]);
    assert_eq!(
        world.give(vec![look("beat"), look(&at(0)), look(&at(2_500))]),
        [Answer::Recurring, Answer::Delivering, Answer::Unknown]
    );
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(sent_in(&world, 50), [at(2_500), at(5_000)]);
}

#[test]
fn a_message_and_one_that_recurs_are_no_duplicates_of_each_other__d5_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "beat", START_MS + 500)]);
    assert_eq!(world.give(vec![beat("")]), [Answer::Conflict]);
    assert_eq!(world.give(vec![replace(beat(""))]), [Answer::Replaced]);
    assert_eq!(world.give(vec![put(Some("k"), "beat", START_MS + 500)]), [Answer::Conflict]);
    assert_eq!(sent_in(&world, 10), [at(0), at(1_000)]);
    assert_eq!(world.give(vec![replace(put(Some("k"), "beat", START_MS + 1_500))]), [Answer::Replaced]);
    assert_eq!(sent_in(&world, 30), ["beat"], "its occurrences have ended");
}

#[test]
fn its_occurrence_can_be_put_off_and_the_one_after_it_is_due_by_the_rule__d16_d19() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    let to = |id: &str, after_ms| {
        Item::Reschedule(Reschedule { id: id.to_owned(), key: Some("k".to_owned()), due_ms: START_MS + after_ms })
    };
    assert_eq!(world.give(vec![to(&at(1_000), 1_300)]), [Answer::Rescheduled]);
    assert_eq!(sent_in(&world, 12), [] as [&str; 0]);
    assert_eq!(sent_in(&world, 8), [at(1_000), at(2_000)]);
    // Under the name of the recurring message: its next occurrence.
    assert_eq!(world.give(vec![to("beat", 3_200)]), [Answer::Rescheduled]);
    world = world.again();
    assert_eq!(sent_in(&world, 11), [] as [&str; 0]);
    assert_eq!(sent_in(&world, 9), [at(3_000), at(4_000)]);
    assert_eq!(world.give(vec![look("beat")]), [Answer::Recurring]);
}

#[test]
fn a_filter_of_keys_ends_it_and_one_of_due_times_skips_an_occurrence__d16_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat(""), put(Some("k"), "once", START_MS + 1_500)]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    let act = |id: &str, filter: Filter| Item::Act { id: id.to_owned(), kind: ActionKind::Cancel, filter };
    let from = Filter { due_from_ms: Some(START_MS), ..Filter::default() };
    assert_eq!(world.give(vec![act("from", from)]), [Answer::Accepted]);
    world.write();
    assert_eq!(world.engine.summary().cancelled, 2);
    assert_eq!(sent_in(&world, 20), [at(2_000)]);
    let of_key = Filter { key: Some("k".to_owned()), ..Filter::default() };
    assert_eq!(world.give(vec![act("key", of_key)]), [Answer::Accepted]);
    for _ in 0..3 {
        world.write();
    }
    assert_eq!(world.engine.open_count(), 0);
    assert_eq!(sent_in(&world, 30), [] as [&str; 0]);
    assert_eq!(
        world.engine.summary().cancelled,
        4,
        "that of 3 s was withdrawn once, and none was made to be cancelled"
    );
    let again = record(&format!(r#"{{"id":"beat","key":"k","every":1000,"due":{},"payload":2}}"#, START_MS + 7_000));
    let of_key = Filter { key: Some("k".to_owned()), ..Filter::default() };
    world.give(vec![again, act("key again", of_key)]);
    world.write();
    assert_eq!(world.engine.open_count(), 0);
    let later = record(&format!(r#"{{"id":"beat","key":"k","every":1000,"due":{},"payload":3}}"#, START_MS + 7_000));
    assert_eq!(world.give(vec![later]), [Answer::Accepted]);
    assert_eq!(sent_in(&world, 20), [at(7_000)], "it was withdrawn with its rule, and not cancelled by its own name");
}

#[test]
fn a_pattern_counts_from_its_acceptance__d19() {
    // It starts at 22:13:20 UTC.
    let world = ByHand::start(Settings::default());
    world.give(vec![record(r#"{"id":"beat","cron":"*/15 * * * *","tz":"Asia/Kolkata","text":"hello"}"#)]);
    world.advance_ms(99_999);
    assert!(world.sent().is_empty());
    world.advance_ms(1);
    let first = world.sent();
    assert_eq!((ids(&first), first[0].payload()), (vec![at(100_000).as_str()], br#"{"text":"hello"}"#.as_slice()));
}

#[test]
fn one_whose_rule_has_no_more_times_is_a_dead_letter__d2_d19() {
    let world = ByHand::start(Settings::default());
    let record = format!(r#"{{"id":"beat","every":{},"due":{START_MS},"payload":1}}"#, crate::base::times::MAX_DUE_MS);
    world.give(vec![self::record(&record)]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    let (letters, _) = world.engine.queue.take_letters().expect("one letter");
    assert_eq!(letters[0].reason, "it recurs no more: no occurrence is left before year 10000");
    let text = String::from_utf8(letters[0].record.clone()).unwrap();
    assert!(text.contains(r#""every":253402300799999"#) && text.contains(r#""missed":"skip""#), "{text}");
    assert!(text.contains(r#""due":"2023-11-14T22:13:20.000Z""#), "{text}");
    assert_eq!(world.engine.open_count(), 0);
}

#[test]
fn many_in_one_group_are_made_at_once_and_each_goes_on__d19() {
    let world = ByHand::start(Settings::default());
    let all: Vec<Item> =
        (0..500).map(|n| record(&format!(r#"{{"id":"r{n}","every":1000,"delay_ms":{n},"payload":{n}}}"#))).collect();
    assert_eq!(world.give(all), vec![Answer::Accepted; 500]);
    let sent = sent_in(&world, 24);
    for n in [0, 250, 499] {
        let prefix = format!("r{n}@");
        assert_eq!(sent.iter().filter(|id| id.starts_with(&prefix)).count(), 2 + usize::from(n <= 400), "{n}");
    }
    assert_eq!(world.engine.open_count(), 1_000);
}

#[test]
fn what_was_cancelled_by_its_own_name_stays_so_also_under_another_rule__d7_d19() {
    let world = ByHand::start(Settings::default());
    let later = |text: &str| {
        record(&format!(r#"{{"id":"beat","key":"k","every":1000,"due":{},"payload":"{text}"}}"#, START_MS + 500))
    };
    let of = |after_ms: i64| at(500 + after_ms);
    world.give(vec![later("old")]);
    assert_eq!(world.give(vec![cancel(Some("k"), &of(0)), later("new")]), [Answer::Cancelled, Answer::Replaced]);
    assert_eq!(world.give(vec![look(&of(0)), look(&of(1_000))]), [Answer::Cancelled, Answer::Waiting]);
    // A new rule withdraws the occurrence. If it is then cancelled by its name, it does not come under the next rule
    // either.
    let sooner = || record(&format!(r#"{{"id":"beat","key":"k","every":1000,"due":{},"payload":3}}"#, START_MS + 700));
    assert_eq!(world.give(vec![sooner(), look(&of(1_000))]), [Answer::Replaced, Answer::Cancelled]);
    assert_eq!(world.give(vec![cancel(Some("k"), &of(1_000))]), [Answer::Unknown]);
    assert_eq!(world.give(vec![later("again")]), [Answer::Replaced]);
    assert_eq!(sent_in(&world, 30), [of(2_000)]);
}

#[test]
fn one_that_went_out_before_its_time_does_not_come_again_under_another_rule__d5_d19() {
    let world = ByHand::start(Settings::default());
    let hourly = |text: &str| {
        record(&format!(r#"{{"id":"beat","key":"k","every":3600000,"due":{},"payload":"{text}"}}"#, START_MS + 500))
    };
    world.give(vec![hourly("old")]);
    let now = Item::Reschedule(Reschedule { id: "beat".to_owned(), key: Some("k".to_owned()), due_ms: START_MS });
    assert_eq!(world.give(vec![now]), [Answer::Rescheduled]);
    assert_eq!(ids(&world.sent()), [at(500)]);
    assert_eq!(world.give(vec![hourly("new")]), [Answer::Replaced]);
    assert_eq!(sent_in(&world, 20), [] as [&str; 0]);
    assert_eq!(world.give(vec![look(&at(3_600_500))]), [Answer::Waiting]);
}

#[test]
fn one_that_is_due_goes_out_though_its_rule_has_another_text_since__d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![Item::pause(None, true), beat("")]);
    world.advance_ms(200);
    assert_eq!(world.give(vec![beat(r#","missed":"all""#)]), [Answer::Replaced]);
    world.give(vec![Item::pause(None, false)]);
    assert_eq!(sent_in(&world, 10), [at(0), at(1_000)]);
}

#[test]
fn the_name_of_one_that_was_withdrawn_is_free__d5_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    assert_eq!(world.give(vec![cancel(Some("k"), "beat")]), [Answer::Cancelled]);
    assert_eq!(world.give(vec![put(Some("k"), &at(1_000), START_MS + 50)]), [Answer::Accepted]);
    assert_eq!(sent_in(&world, 1), [at(1_000)]);
}

#[test]
fn a_rule_that_begins_anew_finds_its_way_past_all_that_has_arrived__d8_d19() {
    let world = ByHand::start(Settings::default());
    let fast = || record(&format!(r#"{{"id":"beat","every":10,"missed":"all","due":{START_MS},"payload":1}}"#));
    world.give(vec![fast()]);
    assert_eq!(sent_in(&world, 12).len(), 96, "eight in each step");
    assert_eq!(world.give(vec![cancel(None, "beat"), replace(fast())]), [Answer::Cancelled, Answer::Accepted]);
    assert_eq!(world.engine.open_count(), 2);
    assert_eq!(sent_in(&world, 1)[0], at(1_200), "the first from then on");
}

/// A message for every second from the start on, as in a store that was restored: what is due by `sent_ms` may have
/// been sent.
fn restored(missed: &str, sent_ms: i64) -> Item {
    let Item::Put(mut put) = beat(&format!(r#","missed":"{missed}""#)) else { panic!("it is no message") };
    let rule = Recurrence { sent_ms: Some(sent_ms), ..put.message.body.recurrence().unwrap().clone() };
    put.message.body = put.message.body.recurring(rule);
    Item::Put(put)
}

#[test]
fn after_a_restore_the_occurrences_that_may_have_been_sent_are_marked__d19_d20() {
    let world = ByHand::start(Settings::default());
    world.give(vec![restored("skip", START_MS + 500)]);
    let first = world.sent();
    assert_eq!((ids(&first), first[0].redelivered), (vec![at(0).as_str()], true));
    world.advance_ms(1_000);
    assert!(!world.sent()[0].redelivered);
}

#[test]
fn a_rule_that_takes_the_place_of_one_that_catches_up_marks_what_may_repeat__d19_d20() {
    let mut world = ByHand::start(Settings::default());
    world.advance_ms(4_500);
    world.give(vec![restored("all", START_MS + 5_500)]);
    assert_eq!(world.give(vec![beat(r#","missed":"all","traceparent":null"#)]), [Answer::Duplicate]);
    let other = record(&format!(
        r#"{{"id":"beat","key":"k","every":1000,"due":{START_MS},"missed":"all","payload":"another"}}"#
    ));
    assert_eq!(world.give(vec![other]), [Answer::Replaced]);
    world = world.again();
    let mut marked = Vec::new();
    for _ in 0..22 {
        marked.extend(world.sent().iter().map(|it| (it.id().to_owned(), it.redelivered)));
        world.advance_ms(100);
    }
    let expected: Vec<_> = (0..7).map(|second| (at(1_000 * second), second < 6)).collect();
    assert_eq!(marked, expected);
}

const DAY_MS: i64 = 86_400_000;

#[test]
fn a_cancel_is_remembered_until_its_occurrence_is_made_whatever_keep_ids_says__d7_d19() {
    for is_first in [false, true] {
        let mut world = ByHand::start(Settings { keep_ids_ms: 7 * DAY_MS as u64, ..Settings::default() });
        let rule =
            record(&format!(r#"{{"id":"beat","key":"k","every":{},"due":{START_MS},"payload":1}}"#, 30 * DAY_MS));
        let cancel = cancel(Some("k"), &at(60 * DAY_MS));
        let asked = if is_first { vec![cancel, rule] } else { vec![rule, cancel] };
        let expected = [Answer::Accepted, Answer::Unknown];
        let answers = world.give(asked);
        assert!(expected.iter().all(|answer| answers.contains(answer)), "{answers:?}");
        assert_eq!(ids(&world.sent()), [at(0)]);
        let mut sent = Vec::new();
        for day in 1..=95 {
            world.advance_ms(DAY_MS as u64);
            if day == 40 {
                world = world.again();
            }
            sent.extend(world.sent().iter().map(|it| it.id().to_owned()));
        }
        assert_eq!(sent, [at(30 * DAY_MS), at(90 * DAY_MS)], "{is_first}");
        assert_eq!(world.engine.with_store(|store| store.remembered_cancels()), 0);
    }
}

#[test]
fn an_occurrence_may_be_named_by_any_form_of_its_time__d7_d16_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(ids(&world.sent()), [at(0)]);
    let moved =
        Reschedule { id: "beat@2023-11-14T22:13:22Z".to_owned(), key: Some("k".to_owned()), due_ms: START_MS + 2_500 };
    // The one of 1 s waits. The one of 3 s is not made yet.
    let of_1 = "beat@2023-11-14T23:13:21+01:00";
    let of_3 = "beat@2023-11-14T22:13:23Z";
    assert_eq!(
        world.give(vec![cancel(Some("k"), of_1), cancel(Some("k"), of_3)]),
        [Answer::Cancelled, Answer::Unknown]
    );
    assert_eq!(world.give(vec![Item::Reschedule(moved)]), [Answer::Rescheduled]);
    assert_eq!(sent_in(&world, 45), [at(2_000), at(4_000)]);
    // A message with such an id is no occurrence, and its cancel names it alone.
    let once = "beat@2023-11-14T22:13:26Z";
    world.give(vec![put(Some("k"), once, START_MS + 5_500)]);
    assert_eq!(world.give(vec![cancel(Some("k"), once)]), [Answer::Cancelled]);
    assert_eq!(sent_in(&world, 16), [at(5_000), at(6_000)]);
}
