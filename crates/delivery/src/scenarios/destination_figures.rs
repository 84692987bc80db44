//! Each named destination is seen (D15, D23).

use super::destinations::{due, message, set, world};
use super::testing::START_MS;
use crate::due::measures::Cause;
use crate::group::items::Item;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};
use crate::store::look::destinations::{DestinationCounts, DestinationSeen};
use crate::store::look::snapshot::Snapshot;

/// Everything arrives but at `gone`.
fn answer(it: &Delivery) -> Verdict {
    match it.body.destination() {
        Some("gone") => Verdict::Unreachable { reason: "refused".to_owned(), retry_after_ms: None },
        _ => Verdict::Delivered,
    }
}

fn seen(engine: &Engine, names: &[&str]) -> Vec<DestinationSeen> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    engine.destination_figures(Some(&names), 0).unwrap().1
}

fn names(found: &[DestinationSeen]) -> Vec<&str> {
    found.iter().map(|it| it.name.as_str()).collect()
}

fn later(to: &str, id: &str, after_ms: i64) -> Item {
    message(to, None, id, START_MS + after_ms)
}

#[test]
fn each_is_seen_with_what_waits_and_what_it_answered__d15_d23() {
    let world = world(Settings::default(), &["gone", "well", "idle"]);
    world.give(vec![set("well", r#","rate":"100/s","concurrency":3"#), set("held", r#","paused":true"#)]);
    world.give([due("gone", 20), due("well", 3), due("held", 5)].concat());
    world.give(vec![later("well", "near", 9_000), later("well", "far", 9_000_000)]);
    world.pass_ms(3_000, answer);
    let (counts, found) = world.engine.destination_figures(None, 3).unwrap();
    assert_eq!(counts, DestinationCounts { all: 4, paused: 1, down: Some(1) });
    assert_eq!(names(&found), ["gone", "held", "idle"], "what is down, then what is overdue, then by name");
    assert_eq!(world.engine.destinations_down(), 1);
    let [gone, well, held] = seen(&world.engine, &["gone", "well", "nobody", "held"]).try_into().unwrap();
    assert_eq!((gone.waiting, gone.overdue, gone.first_due_ms), (20, 20, Some(START_MS)));
    let answers = gone.answers.unwrap();
    assert!(answers.failed >= 20 && answers.delivered == 0, "{answers:?}");
    assert_eq!((answers.last_error.as_deref(), answers.down_reason.as_deref()), (Some("refused"), Some("refused")));
    let now_ms = world.wall_ms();
    assert!((now_ms - 1_500..=now_ms).contains(&answers.last_error_ms.unwrap()), "{answers:?}");
    assert!((START_MS + 1_000..now_ms).contains(&answers.down_since_ms.unwrap()), "{answers:?}");
    assert!(gone.next_try_ms.unwrap() > now_ms - 1_000);
    assert_eq!((well.waiting, well.overdue, well.first_due_ms), (2, 0, Some(START_MS + 9_000)));
    assert_eq!((well.rate.as_deref(), well.concurrency, well.next_try_ms), (Some("100/s"), Some(3), None));
    let answers = well.answers.unwrap();
    assert_eq!((answers.delivered, answers.failed, answers.down_since_ms), (3, 0, None));
    assert_eq!((held.paused_since_ms.is_some(), held.waiting, held.overdue), (true, 5, 5));
    world.pass_ms(3_000, |_| Verdict::Delivered);
    let [gone] = seen(&world.engine, &["gone"]).try_into().unwrap();
    let answers = gone.answers.unwrap();
    assert_eq!((gone.waiting, answers.delivered, answers.down_since_ms), (0, 20, None));
    assert_eq!(world.engine.destinations_down(), 0);
}

#[test]
fn what_waits_in_the_store_for_a_later_try_is_seen__d15_d23() {
    let world = world(Settings::default(), &["gone"]);
    world.give((0..30).map(|number| later("gone", &number.to_string(), 0)).collect());
    let no = |_: &Delivery| Verdict::Refused("no".to_owned());
    world.pass_ms(60_000, no); // what is tried again later has left memory
    let [gone] = seen(&world.engine, &["gone"]).try_into().unwrap();
    assert_eq!((gone.waiting, gone.overdue, gone.first_due_ms), (30, 30, Some(START_MS)));
    let next_ms = gone.next_try_ms.unwrap();
    assert!(next_ms > world.wall_ms(), "{next_ms}");
    let first_ms = world
        .engine
        .with_store(|store| store.next_tried_ms(store.destination("gone").unwrap().share, i64::MIN))
        .unwrap();
    assert_eq!(next_ms, first_ms.unwrap());
    let (_, measures) = world.engine.destination_measures(9).unwrap();
    assert_eq!(measures[0].overdue_ms, world.wall_ms() - START_MS);
}

#[test]
fn sends_to_named_ones_count_as_all_others_do__d15_d23() {
    let world = world(Settings::default(), &["gone", "well"]);
    world.give([due("gone", 2), due("well", 3)].concat());
    world.deliver(answer);
    let sends = world.engine.sends();
    assert_eq!((sends.attempts, sends.failures[Cause::Unreachable as usize]), (5, 2));
    assert!(sends.durations.counts.iter().sum::<u64>() > 0);
}

#[test]
fn the_first_ones_are_measured_alone_and_the_others_together__d15_d23() {
    let world = world(Settings::default(), &["d", "c", "gone", "b", "unused"]);
    for name in ["d", "c", "gone", "b"] {
        world.give(due(name, if name == "gone" { 20 } else { 2 }));
        world.deliver(answer);
    }
    world.pass_ms(2_000, answer);
    world.give(vec![set("c", r#","paused":true"#), set("b", r#","paused":true"#)]);
    let (counts, found) = world.engine.destination_measures(2).unwrap();
    assert_eq!(counts, DestinationCounts { all: 5, paused: 2, down: Some(1) });
    let told = |it: &crate::run::engine::destinations::DestinationMeasures| {
        (it.name.clone(), it.delivered, it.failed > 0, it.down, it.paused)
    };
    let expected =
        [(Some("d".to_owned()), 2, false, 0, 0), (Some("c".to_owned()), 2, false, 0, 1), (None, 2, true, 1, 1)];
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn a_store_that_nothing_delivers_from_shows_what_waits__d14_d23() {
    let world = world(Settings::default(), &["b", "a", "old"]);
    world.give(vec![set("a", r#","paused":true"#)]);
    for number in 0..3 {
        let id = number.to_string();
        world.give(vec![later("b", &format!("b {id}"), 5_000 + number), later("old", &format!("old {id}"), -1)]);
    }
    assert!((1..=6).any(|seq| world.engine.with_store(|store| store.is_near(seq))), "some have no row");
    let look = |path: &std::path::Path| Snapshot::open(path).unwrap().destination_figures(None, 9, START_MS).unwrap();
    let (counts, beside) = look(&world.store());
    let path = world.store();
    let world = world.reopen();
    let (_, found) = look(&path);
    assert_eq!(beside, found, "with messages that are near, and without");
    assert_eq!(counts, DestinationCounts { all: 3, paused: 1, down: None });
    assert_eq!(names(&found), ["old", "a", "b"]);
    assert_eq!((found[0].waiting, found[0].overdue, found[2].waiting, found[2].overdue), (3, 3, 3, 0));
    assert!(found[1].paused_since_ms.is_some() && found[1].answers.is_none());
    drop(world);
}
