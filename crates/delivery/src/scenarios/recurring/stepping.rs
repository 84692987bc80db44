//! The wall clock is stepped while rules are there (D19): `every` goes on in its rhythm, a pattern follows the clock,
//! and no id comes twice.

use std::collections::BTreeSet;

use super::{ByHand, at, beat, record, sent_in};
use crate::base::times::rfc_3339;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::scenarios::testing::{START_MS, cancel};
use crate::sinks::{Verdict, Verdicts};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn step(world: &ByHand, by_ms: i64) {
    world.step_wall_clock_ms(by_ms);
    world.engine.follow_clock();
}

/// A rule by a pattern, in UTC. The start is a Tuesday, 22:13:20.
fn cron(pattern: &str, more: &str) -> Item {
    record(&format!(r#"{{"id":"beat","key":"k","cron":"{pattern}","payload":1{more}}}"#))
}

fn time(at_ms: i64) -> String {
    String::from_utf8(rfc_3339(at_ms).to_vec()).unwrap()
}

/// Lets hours pass, in steps of ten minutes. Returns what went out, each with the hours on a clock that nobody steps.
fn hours(world: &ByHand, count: u64) -> Vec<(f64, String)> {
    let mut all = Vec::new();
    for tens in 1..=count * 6 {
        world.advance_ms(600_000);
        all.extend(world.sent().iter().map(|it| (tens as f64 / 6.0, it.id().to_owned())));
    }
    all
}

fn assert_once<'a>(ids: impl IntoIterator<Item = &'a String>) {
    let mut seen = BTreeSet::new();
    for id in ids {
        assert!(seen.insert(id), "{id} came twice");
    }
}

#[test]
fn after_a_step_every_goes_on_in_its_rhythm_and_no_id_comes_twice__d19() {
    for missed in ["skip", "all", "last"] {
        for by_ms in [-2 * HOUR_MS, -2 * HOUR_MS - 300, 3 * DAY_MS, 3 * DAY_MS + 450, 1_000] {
            let world = ByHand::start(Settings::default());
            world.give(vec![beat(&format!(r#","missed":"{missed}""#))]);
            let mut all = sent_in(&world, 23); // 0, 1,000 and 2,000
            step(&world, by_ms);
            let sent = sent_in(&world, 30);
            let expected: Vec<_> =
                [3, 4, 5].map(|n: i64| format!("beat@{}#1", time(START_MS + by_ms + n * 1_000))).into();
            assert_eq!(sent, expected, "{missed}, {by_ms}");
            all.extend(sent);
            step(&world, -by_ms);
            let back = sent_in(&world, 30);
            let expected: Vec<_> = [6, 7, 8].map(|n: i64| format!("beat@{}#2", time(START_MS + n * 1_000))).into();
            assert_eq!(back, expected, "{missed}, {by_ms}, and back");
            all.extend(back);
            assert_once(&all);
            assert_eq!((all.len(), world.engine.open_count()), (9, 2));
        }
    }
}

/// Both clocks go on during a suspend, and no thread runs.
#[test]
fn a_suspend_is_no_step_and_missed_decides__d3_d19() {
    for (missed, expected) in [("skip", [1, 20].as_slice()), ("all", &[1, 2, 3]), ("last", &[1, 19, 20])] {
        let world = ByHand::start(Settings::default());
        world.give(vec![beat(&format!(r#","missed":"{missed}""#))]);
        assert_eq!(sent_in(&world, 5), [at(0)]);
        world.advance_ms(19_100);
        world.engine.follow_clock();
        let sent = sent_in(&world, 9);
        assert_eq!(sent[..expected.len()], expected.iter().map(|n| at(n * 1_000)).collect::<Vec<_>>(), "{missed}");
    }
}

#[test]
fn a_step_that_a_send_sees_first_is_followed_too__d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(sent_in(&world, 5), [at(0)]);
    world.step_wall_clock_ms(-2 * HOUR_MS);
    let sent = sent_in(&world, 20);
    assert_eq!(sent, [1, 2].map(|n: i64| format!("beat@{}#1", time(START_MS - 2 * HOUR_MS + n * 1_000))));
}

#[test]
fn a_step_under_a_second_moves_no_rule__d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(sent_in(&world, 5), [at(0)]);
    step(&world, -999);
    assert_eq!(sent_in(&world, 14), [] as [&str; 0]);
    assert_eq!(sent_in(&world, 11), [at(1_000), at(2_000)]);
}

#[test]
fn a_pattern_follows_the_corrected_time_also_three_days_ahead_and_back__d19() {
    for missed in ["skip", "all", "last"] {
        let mut world = ByHand::start(Settings::default());
        world.give(vec![cron("0 9 * * *", &format!(r#","missed":"{missed}""#))]);
        let day = |days: i64, steps: &str| format!("beat@{}{steps}", time(1_699_952_400_000 + days * DAY_MS));
        assert_eq!(hours(&world, 11), [(65.0 / 6.0, day(1, ""))]);
        step(&world, 3 * DAY_MS);
        let ahead = hours(&world, 1);
        let ids: Vec<&str> = ahead.iter().map(|(_, id)| id.as_str()).collect();
        let expected = match missed {
            "skip" => vec![day(2, "")],
            "all" => vec![day(2, ""), day(3, "#1"), day(4, "#1")],
            _ => vec![day(2, ""), day(4, "#1")],
        };
        assert_eq!(ids, expected, "{missed}: what the clock has passed is due, and then what was missed");
        step(&world, -3 * DAY_MS);
        world.write();
        world = world.again();
        let back = hours(&world, 48);
        let times: Vec<&str> = back.iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(times, [day(2, "#2"), day(3, "#2")], "{missed}: each day at nine again");
        assert_once(ahead.iter().chain(&back).map(|(_, id)| id));
    }
}

#[test]
fn a_pattern_goes_on_right_after_a_step_back_though_it_was_put_just_before__d19() {
    for is_late in [false, true] {
        let world = ByHand::start(Settings::default());
        world.give(vec![cron("* * * * *", "")]);
        if is_late {
            assert_eq!(sent_in(&world, 500).len(), 1);
        }
        step(&world, -2 * HOUR_MS);
        let sent = sent_in(&world, 1_800);
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|id| id.ends_with("#1") && id.starts_with("beat@2023-11-14T20:1")), "{sent:?}");
    }
}

#[test]
fn a_start_further_ahead_is_wall_time_and_stays__d19() {
    let world = ByHand::start(Settings::default());
    let due = START_MS + 5 * HOUR_MS;
    let start = |id: &str, rule: &str| record(&format!(r#"{{"id":"{id}",{rule},"due":{due},"payload":1}}"#));
    world.give(vec![start("a", r#""every":60000"#), start("b", r#""cron":"*/10 * * * *""#)]);
    step(&world, -2 * HOUR_MS);
    let sent = hours(&world, 8);
    let hour = |id: &str| sent.iter().find(|(_, it)| it.starts_with(id)).unwrap().0;
    assert!(hour("a") >= 7.0 && hour("b") >= 7.0, "{sent:?}");
    assert!(sent.iter().any(|(_, id)| *id == format!("a@{}", time(due))), "{sent:?}");
}

#[test]
fn one_that_is_being_sent_keeps_its_id_and_is_tried_again_as_if_nothing_were__d19() {
    let retry = Retry { max_attempts: 9, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    for (by_ms, is_in_flight) in [(-2 * HOUR_MS, true), (-2 * HOUR_MS, false), (3 * DAY_MS, true), (3 * DAY_MS, false)]
    {
        let mut world = ByHand::start(Settings { retry: retry.clone(), ..Settings::default() });
        world.give(vec![beat("")]);
        let (number, deliveries) = world.take().unwrap();
        assert_eq!(deliveries[0].id(), at(0));
        if is_in_flight {
            step(&world, by_ms);
            world.write();
        }
        world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
        world.write();
        if !is_in_flight {
            step(&world, by_ms);
            world.write();
            world = world.again();
        }
        let sent = sent_in(&world, 20);
        let next = |n: i64| format!("beat@{}#1", time(START_MS + by_ms + n * 1_000));
        assert_eq!(sent, [at(0), next(1), next(2)], "{by_ms} {is_in_flight}");
    }
}

#[test]
fn one_that_was_put_off_or_cancelled_by_a_caller_stays_so__d7_d16_d19() {
    let to = |after_ms| {
        Item::Reschedule(Reschedule { id: "beat".to_owned(), key: Some("k".to_owned()), due_ms: START_MS + after_ms })
    };
    // It was put off to a time of the wall clock. The one after it is of the moved rule.
    let world = ByHand::start(Settings::default());
    world.give(vec![beat(""), to(3_000)]);
    step(&world, -1_500);
    assert_eq!(sent_in(&world, 44), [] as [&str; 0]);
    let next = |after_ms: i64, steps: &str| format!("beat@{}{steps}", time(START_MS + after_ms));
    assert_eq!(sent_in(&world, 15), [at(0), next(3_500, "#1"), next(4_500, "#1")][..2]);
    // The next one was cancelled by its name: its place in the rhythm stays empty.
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(sent_in(&world, 5), [at(0)]);
    assert_eq!(world.give(vec![cancel(Some("k"), &at(1_000))]), [Answer::Cancelled]);
    step(&world, -2 * HOUR_MS);
    assert_eq!(sent_in(&world, 14), [] as [&str; 0]);
    assert_eq!(sent_in(&world, 5), [next(2_000 - 2 * HOUR_MS, "#1")]);
    // The same of a pattern, also if the clock shows earlier times again before.
    for by_ms in [-5_000, -3 * HOUR_MS] {
        let world = ByHand::start(Settings::default());
        world.give(vec![cron("0 * * * *", "")]);
        let hour = |hour: i64, steps: &str| next(hour * HOUR_MS - 800_000, steps);
        assert_eq!(world.give(vec![cancel(Some("k"), &hour(1, ""))]), [Answer::Cancelled]);
        step(&world, by_ms);
        let sent: Vec<String> = hours(&world, 6).into_iter().map(|(_, id)| id).collect();
        let hours = if by_ms == -5_000 { 2..=6 } else { -2..=3 };
        let expected: Vec<String> = hours.filter(|it| *it != 1).map(|it| hour(it, "#1")).collect();
        assert_eq!(sent, expected, "{by_ms}");
    }
}

#[test]
fn a_cancel_names_a_time_however_often_the_clock_was_stepped__d7_d19() {
    let world = ByHand::start(Settings::default());
    let plain = |days: i64| format!("beat@{}", time(1_699_952_400_000 + days * DAY_MS));
    world.give(vec![cron("0 9 * * *", "")]);
    assert_eq!(world.give(vec![cancel(Some("k"), &plain(3))]), [Answer::Unknown]);
    step(&world, 3 * DAY_MS);
    assert_eq!(world.sent().len(), 1);
    step(&world, -3 * DAY_MS);
    world.write();
    // The one of the next day has come once, while the clock was ahead, and comes again as `...#2`.
    let look = |id: String| Item::Look { id, key: Some("k".to_owned()) };
    assert_eq!(world.give(vec![look(plain(1) + "#2")]), [Answer::Waiting]);
    step(&world, -2 * HOUR_MS);
    world.write();
    assert_eq!(
        world.give(vec![cancel(Some("k"), &plain(2)), look(plain(1) + "#2")]),
        [Answer::Unknown, Answer::Waiting]
    );
    let sent: Vec<String> = hours(&world, 5 * 24).into_iter().map(|(_, id)| id).collect();
    assert_eq!(sent, [plain(1) + "#2", plain(4) + "#3", plain(5) + "#3"]);
    assert_eq!(world.engine.with_store(|store| store.remembered_cancels()), 0);
}

#[test]
fn the_time_alone_names_the_open_one_where_it_has_a_count__d7_d16_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(sent_in(&world, 5), [at(0)]);
    step(&world, 10_000);
    let moved = |id: String| Item::Reschedule(Reschedule { id, key: Some("k".to_owned()), due_ms: START_MS + 11_300 });
    assert_eq!(world.give(vec![moved(at(11_000))]), [Answer::Rescheduled]);
    assert_eq!(world.give(vec![cancel(Some("k"), &at(12_000))]), [Answer::Unknown]);
    assert_eq!(sent_in(&world, 25), [at(11_000) + "#1", at(13_000) + "#1"]);
    assert_eq!(world.give(vec![cancel(Some("k"), &at(14_000))]), [Answer::Cancelled]);
    assert_eq!(sent_in(&world, 20), [at(15_000) + "#1"]);
}

#[test]
fn a_rule_that_is_replaced_or_ends_at_a_step_goes_on_from_the_corrected_time__d19() {
    for (is_back, is_in_flight) in [(true, false), (true, true), (false, false), (false, true)] {
        let world = ByHand::start(Settings::default());
        world.give(vec![beat("")]);
        assert_eq!(sent_in(&world, 5), [at(0)]);
        let by_ms = if is_back { -2 * HOUR_MS } else { 3 * DAY_MS };
        let mut flight = None;
        if is_in_flight {
            world.advance_ms(500);
            flight = world.take();
        }
        step(&world, by_ms);
        // In the group that sees the step, and before the rule is looked at.
        let from_ms = world.wall_ms() + 700;
        let rule = record(&format!(r#"{{"id":"beat","key":"k","every":2000,"due":{from_ms},"payload":2}}"#));
        assert_eq!(world.give(vec![rule]), [Answer::Replaced]);
        if let Some((number, deliveries)) = flight {
            assert_eq!(deliveries[0].id(), at(1_000));
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        let sent = sent_in(&world, 30);
        assert_eq!(sent, [0, 2_000].map(|ms| format!("beat@{}#1", time(from_ms + ms))), "{is_back} {is_in_flight}");
        step(&world, -by_ms);
        assert_eq!(world.give(vec![cancel(Some("k"), "beat")]), [Answer::Cancelled]);
        assert_eq!(sent_in(&world, 50), [] as [&str; 0]);
        assert!(world.engine.is_empty());
    }
}

#[test]
fn a_step_that_nobody_saw_moves_nothing_and_one_that_undoes_it_does_not_either__d19() {
    // The machine starts again without a clock, and gets the time from the network.
    let mut world = ByHand::start(Settings::default());
    world.give(vec![beat("")]);
    assert_eq!(sent_in(&world, 5), [at(0)]);
    world.step_wall_clock_ms(-8_000 * DAY_MS);
    world = world.again();
    assert_eq!(sent_in(&world, 10), [] as [&str; 0]);
    step(&world, 8_000 * DAY_MS);
    let sent = sent_in(&world, 10);
    assert_eq!(sent, [at(1_000), at(2_000) + "#1"]);
}

/// Rules whose clock is stepped while it is stepped under them, with the end of the process after each group.
#[test]
fn many_rules_follow_in_bounded_pieces_and_a_crash_in_between_loses_none__d8_d19() {
    let mut world = ByHand::start(Settings::default());
    let rule = |n: usize| record(&format!(r#"{{"id":"r{n}","every":60000,"delay_ms":{},"payload":1}}"#, 30_000 + n));
    world.give((0..220).map(rule).collect());
    step(&world, -2 * HOUR_MS);
    let mut pieces = 0;
    let left = |world: &ByHand| world.engine.with_store(|store| (0..220).filter(|n| has_old_time(store, *n)).count());
    let mut before = left(&world);
    assert_eq!(before, 220);
    while before > 0 {
        world.engine.write(&|| Ok(())).unwrap();
        let now = left(&world);
        assert!(before - now <= 50, "{} in one group", before - now);
        pieces += 1;
        if pieces == 2 {
            step(&world, 600_000); // those that were passed are passed again
        }
        if pieces == 3 {
            world = world.again();
        }
        assert!(pieces < 20, "{now} are left");
        before = now;
    }
    world.write();
    let mut all = Vec::new();
    for _ in 0..8 {
        all.extend(sent_in(&world, 100)); // of ten seconds
    }
    assert_once(&all);
    for n in 0..220 {
        let count = all.iter().filter(|id| id.starts_with(&format!("r{n}@"))).count();
        assert_eq!(count, 1, "r{n} in 80 s");
    }
    assert_eq!(world.engine.open_count(), 440);
}

/// Whether the open occurrence of a rule is due by the time before the steps.
fn has_old_time(store: &crate::store::Store, n: usize) -> bool {
    let rule = store.find(None, &format!("r{n}")).unwrap().expect("it is known");
    let (known, _) = store.occurrence_of(rule.seq).unwrap().expect("it is open");
    known.due_ms > START_MS
}
