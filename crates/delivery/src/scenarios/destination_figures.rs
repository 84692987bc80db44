//! Each named destination is seen (D15, D23).

use super::destinations::{due, message, set, world};
use super::testing::{ByHand, START_MS};
use crate::due::dispatcher::Event;
use crate::group::items::Item;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
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
fn one_that_is_paused_does_not_count_as_down__d15_d23() {
    let world = world(Settings::default(), &["gone", "well"]);
    let pause = |paused: bool| world.give(vec![set("gone", &format!(r#","paused":{paused}"#))]);
    let told = || {
        let (counts, found) = world.engine.destination_figures(Some(&["gone".to_owned()]), 0).unwrap();
        let (_, measured) = world.engine.destination_measures(9).unwrap();
        let answers = found[0].answers.clone().unwrap();
        assert_eq!(answers.down_since_ms.is_some(), answers.down_reason.is_some());
        let down = [counts.down.unwrap(), world.engine.destinations_down() as u64, measured[0].down];
        (down, [counts.paused, measured[0].paused], answers.down_since_ms)
    };
    world.give(due("gone", 20));
    world.pass_ms(3_000, answer);
    let since_ms = told().2;
    assert_eq!(told(), ([1; 3], [0; 2], since_ms));
    assert!(since_ms.is_some());
    pause(true);
    assert_eq!(told(), ([0; 3], [1; 2], None));
    pause(false);
    assert_eq!(told(), ([1; 3], [0; 2], since_ms), "the outage goes on");
    world.pass_ms(3_000, |_| Verdict::Delivered);
    assert_eq!(told(), ([0; 3], [0; 2], None));
    world.give((0..6).map(|number| later("gone", &format!("again {number}"), 6_000)).collect());
    let sends: Vec<_> = std::iter::from_fn(|| world.engine.take(1, usize::MAX, true)).collect();
    assert_eq!(sends.len(), 6);
    pause(true);
    world.advance_ms(1_100);
    for (number, deliveries) in sends {
        world.engine.settle(number, Verdicts::Each(deliveries.iter().map(answer).collect()), None);
    }
    world.write();
    assert!(world.engine.lock_dispatcher().is_any_down());
    assert_eq!(told(), ([0; 3], [1; 2], None), "it went down while it was paused");
    pause(false);
    assert_eq!(told().0, [1; 3]);
}

#[test]
fn a_store_where_each_message_names_one_has_no_other__d15_d23() {
    let world = world(Settings::default(), &[]);
    assert_eq!(world.engine.sends().changed_us, None);
    let beside = ByHand::open(Settings::default());
    beside.engine.take_named(TakesNamed::Some).unwrap();
    assert_eq!(beside.engine.sends().changed_us, Some(0));
}

#[test]
fn it_is_seen_which_one_is_late__d15_d23() {
    let world = world(Settings::default(), &["late", "well"]);
    world.give(vec![later("well", "a", 0), later("late", "b", 0)]);
    world.deliver(answer);
    world.advance_ms(1_500);
    world.give(vec![later("well", "c", 500), later("late", "d", 499), later("late", "e", 0)]);
    world.deliver(answer);
    let seen = seen(&world.engine, &["late", "well"]).into_iter().map(|it| it.answers.unwrap());
    assert_eq!(seen.map(|it| (it.delivered, it.late)).collect::<Vec<_>>(), [(3, 2), (2, 0)]);
    let told = |most| world.engine.destination_measures(most).unwrap().1.into_iter();
    let late = |most| told(most).map(|it| (it.name.unwrap_or_default(), it.late, it.lateness_us)).collect::<Vec<_>>();
    let (well, others) = (("well".to_owned(), 0, 1_000_000), (String::new(), 2, 2_501_000));
    assert_eq!(late(1), [well, others]);
}

#[test]
fn a_failed_or_cut_off_send_is_told_with_its_destination__d15_d23() {
    let world = world(Settings { sink_timeout_ms: 1_500, ..Settings::default() }, &["gone"]);
    world.give(due("gone", 1));
    world.deliver(answer);
    world.give(vec![message("gone", None, "hangs", START_MS)]);
    world.engine.take(1, usize::MAX, true).unwrap();
    world.advance_ms(1_500);
    let _ = world.take(); // the first one is tried again
    let named = |it: Event| match it {
        Event::Failed { destination, id, .. } => Some(("failed", destination.unwrap(), id)),
        Event::CutOff { destination, id, .. } => Some(("cut off", destination.unwrap(), id)),
        _ => None,
    };
    let told: Vec<_> = world.engine.take_events().into_iter().filter_map(named).collect();
    let expected = [("failed", "gone 0000"), ("failed", "hangs"), ("cut off", "hangs")];
    assert_eq!(told.len(), 3, "{told:?}");
    for (what, id) in expected {
        assert!(told.contains(&(what, "gone".to_owned(), id.to_owned())), "{told:?}");
    }
}

#[test]
fn what_waits_in_the_store_for_a_later_try_is_seen__d15_d23() {
    let world = world(Settings::default(), &["gone", "a", "b"]);
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
    let (_, found) = world.engine.destination_figures(None, 2).unwrap();
    assert_eq!(names(&found), ["gone", "a"], "what is overdue comes first");
    let (_, measures) = world.engine.destination_measures(9).unwrap();
    assert_eq!(measures[0].overdue_ms, world.wall_ms() - START_MS);
}

#[test]
fn sends_to_named_ones_count_as_all_others_do__d15_d23() {
    let world = world(Settings::default(), &["gone", "well"]);
    world.give([due("gone", 2), due("well", 3)].concat());
    world.deliver(answer);
    let sends = world.engine.sends();
    assert_eq!((sends.attempts, sends.failures), (5, [2, 0, 0, 0]));
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
