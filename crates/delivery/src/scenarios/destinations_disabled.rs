//! A destination that has failed for as long as its settings say is paused by itself (D23).

use super::destinations::{message, pause, set, world};
use super::testing::ByHand;
use crate::due::dispatcher::Event;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict};
use crate::store::Limits;
use crate::store::look::destinations::DestinationSeen;

/// 0.02 of a day.
const AFTER_MS: u64 = 1_728_000;
const AFTER: &str = r#","disable_after_days":0.02"#;
const CHANGED: &str = r#","disable_after_days":0.02,"concurrency":9"#;
const MINUTE: u64 = 60_000;

/// One message waits for each of these destinations, and is tried each minute.
fn failing(names: &[&str], more: &str) -> ByHand {
    let retry = Retry { waits_ms: vec![MINUTE], max_attempts: 1_000, ..Retry::default() };
    let world = world(Settings { retry, ..Settings::default() }, names);
    world.give(names.iter().map(|name| set(name, more)).collect());
    world.give(names.iter().map(|name| message(name, None, name, world.wall_ms())).collect());
    world
}

fn fails(_: &Delivery) -> Verdict {
    Verdict::Refused("410 Gone".to_owned())
}

fn restarted(world: ByHand) -> ByHand {
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    world.write();
    world
}

fn seen(world: &ByHand, name: &str) -> DestinationSeen {
    world.engine.destination_figures(Some(&[name.to_owned()]), 1).unwrap().1.remove(0)
}

fn is_paused(world: &ByHand, name: &str) -> bool {
    seen(world, name).paused_since_ms.is_some()
}

/// Since when it fails, as the store has it.
fn noted(world: &ByHand, name: &str) -> Option<i64> {
    world.engine.with_store(|store| store.destination(name).unwrap().failing_ms)
}

#[test]
fn it_is_paused_that_long_after_its_first_failure_and_says_why__d23() {
    let world = failing(&["gone"], AFTER);
    let first_ms = world.wall_ms();
    world.pass_ms(AFTER_MS - 2 * MINUTE, fails);
    assert!(!is_paused(&world, "gone"));
    world.engine.take_events();
    assert!(!world.pass_ms(4 * MINUTE, fails).is_empty());
    let found = seen(&world, "gone");
    let since_ms = found.paused_since_ms.unwrap();
    assert!((first_ms + AFTER_MS as i64..=first_ms + (AFTER_MS + MINUTE) as i64 + 2_000).contains(&since_ms));
    let reason = found.paused_reason.unwrap();
    assert!(reason.starts_with("no success since 20") && reason.ends_with(", at last: 410 Gone"), "{reason}");
    let told = Event::Disabled { destination: "gone".to_owned(), reason };
    assert_eq!(world.engine.take_events().iter().filter(|it| **it == told).count(), 1);
    assert!(world.pass_ms(10 * MINUTE, fails).is_empty(), "nothing is sent");
    let world = restarted(world);
    assert!(world.pass_ms(10 * MINUTE, fails).is_empty(), "also after a restart");
    assert!(seen(&world, "gone").paused_reason.is_some());

    assert_eq!(world.give(vec![pause("gone", false)]), [Answer::Resumed]);
    assert!(world.pass_ms(10 * MINUTE, fails).len() >= 9, "failures count anew");
    assert_eq!(seen(&world, "gone").paused_reason, None);
    assert_eq!(world.pass_ms(10 * MINUTE, |_| Verdict::Delivered).len(), 1);
}

#[test]
fn a_success_a_change_or_a_resume_begins_it_anew_and_without_the_setting_nothing_does__d23() {
    let world = failing(&["well", "changed", "never"], AFTER);
    world.give(vec![set("never", "")]);
    world.pass_ms(AFTER_MS - 2 * MINUTE, fails);
    assert!(noted(&world, "well").is_some() && noted(&world, "changed").is_some());
    assert_eq!(noted(&world, "never"), None);
    world.give(vec![message("well", None, "arrives", world.wall_ms()), set("changed", CHANGED)]);
    world.deliver(|it| if it.body.id() == "arrives" { Verdict::Delivered } else { fails(it) });
    world.write();
    assert_eq!((noted(&world, "well"), noted(&world, "changed")), (None, None));
    world.pass_ms(AFTER_MS - 2 * MINUTE, fails);
    for name in ["well", "changed", "never"] {
        assert!(!is_paused(&world, name), "{name}");
    }
    world.pass_ms(5 * MINUTE, fails);
    assert!(is_paused(&world, "well") && is_paused(&world, "changed") && !is_paused(&world, "never"));
}

#[test]
fn the_time_counts_over_restarts_and_is_written_once_an_outage__d23() {
    let mut world = failing(&["gone"], AFTER);
    let first_ms = world.wall_ms();
    world.pass_ms(MINUTE / 2, fails);
    assert_eq!(noted(&world, "gone"), None, "it may be over at once");
    for _ in 0..5 {
        world.pass_ms(5 * MINUTE, fails);
        let since_ms = noted(&world, "gone").unwrap();
        assert_eq!(seen(&world, "gone").failing_since_ms, Some(since_ms));
        assert!((first_ms..first_ms + 1_000).contains(&since_ms), "{}", since_ms - first_ms);
        world = restarted(world);
    }
    assert!(!is_paused(&world, "gone"));
    world.pass_ms(5 * MINUTE, fails);
    assert!(is_paused(&world, "gone"));
}

/// A file of destinations is applied at each start.
#[test]
fn what_is_set_as_it_is_already_changes_nothing__d23() {
    let secrets = |secret: &str| format!(r#"{AFTER},"secrets":["whsec_{secret}"]"#);
    let world = failing(&["gone"], &secrets("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    world.pass_ms(5 * MINUTE, fails);
    let stored = |world: &ByHand| world.engine.with_store(|store| store.destination("gone").unwrap().settings.clone());
    let (before, since_ms) = (stored(&world), noted(&world, "gone"));
    assert!(since_ms.is_some());
    for same in [AFTER, &secrets("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")] {
        assert_eq!(world.give(vec![set("gone", same)]), [Answer::Replaced]);
        assert_eq!((&stored(&world), noted(&world, "gone")), (&before, since_ms), "{same}");
    }
    world.give(vec![set("gone", &secrets("C2FVsBQIhrscChlQIMV+b5sSYspob7oD"))]);
    assert!(stored(&world) != before && noted(&world, "gone").is_none());
}

/// Else one of very many that gets few messages would never be paused.
#[test]
fn one_without_messages_does_not_forget_that_it_fails__d23() {
    let limits = Limits { idle_shares: 0, ..Limits::default() };
    let retry = Retry { max_attempts: 1, ..Retry::default() };
    let world = world(Settings { retry, limits, ..Settings::default() }, &["gone"]);
    world.give(vec![set("gone", AFTER)]);
    for round in 0..4 {
        world.give(vec![message("gone", None, &format!("{round}"), world.wall_ms())]);
        world.pass_ms(MINUTE / 2, fails);
    }
    assert!(noted(&world, "gone").is_some());
}

#[test]
fn one_that_fails_now_and_then_costs_no_writes__d23() {
    let world = failing(&["flaps"], AFTER);
    for round in 0..200 {
        world.give(vec![message("flaps", None, &format!("{round}"), world.wall_ms())]);
        world.pass_ms(20_000, |it| if it.body.id() == "flaps" { fails(it) } else { Verdict::Delivered });
        assert_eq!(noted(&world, "flaps"), None, "{round}");
    }
    assert!(!is_paused(&world, "flaps"));
}

#[test]
fn one_that_is_down_is_paused_too_and_a_removed_one_is_no_more__d6_d23() {
    let world = failing(&["gone", "removed"], AFTER);
    let away = |_: &Delivery| Verdict::Unreachable { reason: "away".to_owned(), retry_after_ms: None };
    let some =
        |name: &str| (0..10).map(|n| message(name, None, &format!("{name} {n}"), world.wall_ms())).collect::<Vec<_>>();
    world.give([some("gone"), some("removed")].concat());
    world.pass_ms(2 * MINUTE, away);
    assert!(world.engine.destinations_down() >= 1);
    world.give(vec![Item::RemoveDestination { name: "removed".to_owned(), dead: true }]);
    world.pass_ms(AFTER_MS, away);
    assert!(is_paused(&world, "gone"));
    assert!(seen(&world, "gone").paused_reason.unwrap().ends_with("at last: away"));
}
