//! The store can't be written, at any statement of a group. Tickets are refused, what the senders reported is kept, and the
//! store is opened anew once it can be written (rules D5, D6, D11).

use super::super::Settings;
use crate::base::error::DeliveryError;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::scenarios::testing::{ByHand, START_MS, answered, put};
use crate::sinks::{Verdict, Verdicts};
use crate::store::sql::failing;

fn several(name: &str, count: usize, after_ms: i64) -> Vec<Item> {
    (0..count).map(|place| put(None, &format!("{name} {place}"), START_MS + after_ms)).collect()
}

fn waits<T>(result: &Result<T, DeliveryError>) -> bool {
    matches!(result, Err(DeliveryError::StoreWaits(_)))
}

fn looks(count: usize, name: &str) -> Vec<Item> {
    (0..count).map(|place| Item::Look { id: format!("{name} {place}"), key: None }).collect()
}

#[test]
fn on_a_full_disk_calls_are_refused_and_all_goes_on_once_there_is_room__d6() {
    let world = ByHand::start(Settings::default());
    assert_eq!(world.give(several("before", 1, 10)), [Answer::Accepted]);
    world.engine.with_store(|store| store.fill(0));
    let receipts: Vec<_> = (0..3).map(|part| world.submit(several(&format!("lost {part}"), 2_000, 10))).collect();
    let failed = world.engine.write(&|| Ok(()));
    assert!(waits(&failed));
    let text = failed.unwrap_err().to_string();
    assert!(
        text.ends_with("can't be written now: database or disk is full; try again: it goes on by itself"),
        "{text}"
    );
    for receipt in receipts {
        assert!(waits(&answered(&receipt).expect("it was refused")));
    }
    assert!(waits(&world.engine.submit(Vec::new())));
    assert_eq!(world.engine.waits_for_store().as_deref().map(|it| it.contains("full")), Some(true));
    world.advance_ms(10);
    assert!(world.take().is_none(), "it would be sent again if its outcome could not be written");
    assert!(!world.engine.is_empty());
    world.engine.open_anew(&|| Ok(())).unwrap();
    assert_eq!(world.engine.waits_for_store(), None);
    assert_eq!(world.engine.open_count(), 1);
    assert_eq!(world.give(several("lost 1", 1, 10)), [Answer::Accepted]);
    assert_eq!(world.sent().iter().map(|it| it.body.id()).collect::<Vec<_>>(), ["before 0", "lost 1 0"]);
}

/// A group with outcomes of each kind, messages, cancels of what memory has, and a pause.
fn a_rich_group() -> (ByHand, crate::group::items::Receipt) {
    let settings = Settings { sink_timeout_ms: 1_000, ..Settings::default() };
    let world = ByHand::start(settings);
    let keyed = (0..40).map(|place| put(Some("k"), &format!("keyed {place}"), START_MS + 10));
    world.give([several("due", 100, 10), several("far", 3, 60_000), keyed.collect()].concat());
    world.advance_ms(10);
    let mut answers = [Verdict::Delivered, Verdict::Delivered, Verdict::Refused("no".into())].into_iter().cycle();
    while let Some((flight, deliveries)) = world.take() {
        let verdicts = deliveries.iter().map(|_| answers.next().expect("it cycles")).collect();
        world.engine.settle(flight, Verdicts::Each(verdicts), None);
    }
    let mut items = several("new", 100, 20);
    items.push(crate::scenarios::testing::cancel(None, "far 1"));
    items.push(crate::scenarios::testing::cancel(Some("k"), "keyed 39"));
    items.push(Item::Letter(crate::store::Letter {
        source: "input".to_owned(),
        line: 1,
        reason: "it is bad".to_owned(),
        allowed: "a good one".to_owned(),
        record: b"{}".to_vec(),
    }));
    let receipt = world.submit(items);
    (world, receipt)
}

/// Everything in the world is delivered; what was delivered before `written` is not sent again.
fn check_the_rest(world: &ByHand, before: u64) {
    let sent = world.pass_ms(120_000, |_| Verdict::Delivered);
    let mut names: Vec<_> = sent.iter().map(|it| it.body.id().to_owned()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "one was sent twice");
    assert!(sent.iter().all(|it| !it.redelivered), "none of them may have arrived");
    assert_eq!(world.engine.summary().delivered, before + count as u64);
    assert_eq!(world.engine.open_count(), 0);
}

/// One group has outcomes and messages. Wherever it fails, nothing of the tickets is left, and each outcome counts once.
#[test]
fn wherever_a_group_fails_the_outcomes_are_kept_and_the_tickets_refused__d6() {
    let mut failures = 0;
    loop {
        let (world, receipt) = a_rich_group();
        failing::after(failures);
        let written = world.engine.write(&|| Ok(()));
        if failing::end() {
            written.unwrap();
            let delivered = world.engine.summary().delivered;
            assert!(answered(&receipt).expect("it is on disk").is_ok());
            check_the_rest(&world, delivered);
            break;
        }
        assert!(waits(&written));
        let answer = answered(&receipt).expect("it has one");
        let summary = world.engine.summary();
        let is_on_disk = summary.delivered > 0; // its letters could not be read, which comes after the commit
        assert_eq!(answer.is_ok(), is_on_disk);
        assert!(is_on_disk || waits(&answer) && summary.accepted == 143, "what is not on disk is not counted");
        world.engine.open_anew(&|| Ok(())).unwrap();
        let delivered = world.engine.summary().delivered;
        assert!(delivered > 60, "the outcomes are written");
        let answers = world.give(looks(100, "new"));
        assert!(answers.iter().all(|it| (*it == Answer::Unknown) != is_on_disk), "all of the ticket, or nothing");
        let far = world.give(looks(3, "far"));
        assert_eq!(far[1], if is_on_disk { Answer::Cancelled } else { Answer::Waiting });
        check_the_rest(&world, delivered);
        failures += 1;
    }
    assert!(failures > 20, "it failed at {failures} statements");
}

/// The opening itself fails, at each of its statements and those of the first group after it.
#[test]
fn wherever_the_opening_fails_it_is_tried_again_and_each_outcome_counts_once__d6() {
    let mut failures = 0;
    loop {
        let (world, _) = a_rich_group();
        failing::after(0);
        assert!(waits(&world.engine.write(&|| Ok(()))));
        failing::after(failures);
        let opened = world.engine.open_anew(&|| Ok(()));
        let is_over = failing::end();
        if !is_over {
            assert!(waits(&opened));
            assert!(waits(&world.engine.submit(Vec::new())));
            world.engine.open_anew(&|| Ok(())).unwrap();
        }
        check_the_rest(&world, world.engine.summary().delivered);
        if is_over {
            break;
        }
        failures += 1;
    }
    assert!(failures > 20, "it failed at {failures} statements");
}

/// The process ends instead. Wherever the group fails, the store has all of it or nothing.
#[test]
fn wherever_in_a_group_the_disk_is_full_nothing_of_it_is_left_and_nothing_is_lost__d5() {
    let (mut failures, mut left) = (0, 0);
    loop {
        let world = ByHand::start(Settings::default());
        world.give([several("due", 600, 10), several("far", 1, 60_000)].concat());
        world.advance_ms(10);
        let mut sent = 0;
        while let Some((flight, deliveries)) = world.take() {
            sent += deliveries.len();
            world.engine.settle(flight, Verdicts::Delivered, None);
        }
        assert_eq!(sent, 600);
        let receipt = world.submit(several("new", 600, 20));
        world.engine.with_store(|store| store.fill(left));
        let written = world.engine.write(&|| Ok(()));
        let summary = world.engine.summary();
        if written.is_ok() {
            assert_eq!((summary.delivered, summary.accepted), (600, 1_201));
            break;
        }
        assert!(waits(&written));
        assert!(waits(&answered(&receipt).expect("it was refused")));
        assert_eq!((summary.delivered, summary.accepted), (0, 601), "what is not on disk is not counted");
        drop(world.engine.close(Sends::Unknown)); // the disk is full, and the process ends
        let world = world.again();
        assert!(world.give(looks(600, "new")).iter().all(|it| *it == Answer::Unknown));
        world.advance_ms(60_000);
        let again = world.deliver(|_| Verdict::Delivered);
        assert_eq!(again.len(), 601);
        assert!(again.iter().all(|it| it.redelivered == (it.body.id() != "far 0")));
        failures += 1;
        left += 1;
    }
    assert!(failures > 3, "it failed at {failures} places");
}

fn fail_once(world: &ByHand) {
    failing::after(0);
    assert!(waits(&world.engine.write(&|| Ok(()))));
    world.engine.open_anew(&|| Ok(())).unwrap();
}

fn no_answer(retry_after_ms: u64) -> Verdict {
    Verdict::Unanswered { reason: "503".into(), retry_after_ms: Some(retry_after_ms) }
}

#[test]
fn a_message_without_an_answer_keeps_its_place_and_its_mark__d4_d5() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "tried", START_MS + 10)]);
    world.advance_ms(10);
    let (flight, _) = world.take().expect("it is due");
    world.engine.settle(flight, Verdicts::Each(vec![no_answer(10_000)]), None);
    fail_once(&world);
    world.give(vec![put(Some("k"), "earlier", START_MS + 5)]);
    let sent = world.pass_ms(60_000, |_| Verdict::Delivered);
    let found: Vec<_> = sent.iter().map(|it| (it.body.id(), it.redelivered)).collect();
    assert_eq!(found, [("tried", true), ("earlier", false)]);
}

#[test]
fn an_alarm_from_before_wakes_nothing__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "tried", START_MS + 10)]);
    world.advance_ms(10);
    let (flight, _) = world.take().expect("it is due");
    world.engine.settle(flight, Verdicts::Each(vec![no_answer(10_000)]), None);
    fail_once(&world);
    world.give(vec![Item::Again(crate::group::items::Failing::Key("k".to_owned()))]);
    assert_eq!(world.deliver(|_| no_answer(100_000)).len(), 1, "it is tried at once");
    assert!(world.pass_ms(50_000, |_| Verdict::Delivered).is_empty(), "it has to wait");
    assert_eq!(world.pass_ms(60_000, |_| Verdict::Delivered).len(), 1);
}
