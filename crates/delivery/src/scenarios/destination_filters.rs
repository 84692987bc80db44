//! Messages are listed, cancelled and requeued by their destination (D14, D16, D23).

use super::destinations::{message, world};
use super::testing::{ByHand, START_MS};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::{TakesNamed, Verdict};
use crate::store::look::messages::PageOf;
use crate::store::look::snapshot::Snapshot;
use crate::store::{ActionKind, Filter, Outcome};

const DAY_MS: i64 = 86_400_000;

fn of(destination: &str) -> PageOf<'_> {
    PageOf {
        key: None,
        until: None,
        destination: Some(destination),
        tenant: None,
        due_from_ms: None,
        due_before_ms: None,
        limit: 100,
        looked_at: 1_000,
    }
}

fn act(id: &str, kind: ActionKind, destination: &str) -> Item {
    let filter = Filter { destination: Some(destination.to_owned()), ..Filter::default() };
    Item::Act { id: id.to_owned(), kind, filter }
}

/// Two destinations with messages that are near and far.
fn two(settings: Settings) -> ByHand {
    let world = world(settings, &["a", "b"]);
    world.write();
    for (number, to) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
        let due_ms = START_MS + 5_000 + number as i64;
        world.give(vec![
            message(to, Some("k"), &format!("{to} near {number}"), due_ms),
            message(to, None, &format!("{to} far {number}"), due_ms + DAY_MS),
        ]);
    }
    world
}

fn waiting(world: &ByHand, of: PageOf<'_>) -> Vec<String> {
    let (found, next) = Snapshot::open(&world.store()).unwrap().waiting(of, None).unwrap();
    assert!(next.is_none() && found.iter().all(|it| it.destination.as_deref() == of.destination));
    found.into_iter().map(|it| it.id).collect()
}

#[test]
fn what_waits_for_one_is_listed_near_and_far__d14_d23() {
    let world = two(Settings::default());
    let of_a = ["a near 0", "a near 2", "a near 4", "a far 0", "a far 2", "a far 4"];
    assert_eq!(waiting(&world, of("a")), of_a);
    assert_eq!(waiting(&world, PageOf { key: Some("k"), ..of("b") }), ["b near 1", "b near 3"]);
    let (first, next) = Snapshot::open(&world.store()).unwrap().waiting(PageOf { limit: 4, ..of("a") }, None).unwrap();
    assert_eq!((first.len(), first[3].id.as_str()), (4, "a far 0"));
    let (rest, _) = Snapshot::open(&world.store()).unwrap().waiting(of("a"), next).unwrap();
    assert_eq!(rest.len(), 2);
    let world = world.reopen(); // now all have rows
    assert_eq!(waiting(&world, of("a")), of_a);
    let refused = Snapshot::open(&world.store()).unwrap().waiting(of("nobody"), None).unwrap_err();
    assert_eq!(refused.to_string(), "there is no destination 'nobody': name one that is set");
    let shown = Snapshot::open(&world.store()).unwrap().show(None, "b far 1").unwrap().unwrap();
    assert_eq!(shown.seen.destination.as_deref(), Some("b"));
}

#[test]
fn those_of_one_and_no_others_are_cancelled_near_and_far__d16_d23() {
    let world = two(Settings::default());
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, "nobody")]), [Answer::Refused]);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, "a")]), [Answer::Accepted]);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, "a")]), [Answer::Duplicate]);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, "b")]), [Answer::Conflict]);
    assert_eq!((waiting(&world, of("a")).len(), waiting(&world, of("b")).len()), (0, 4));
    assert_eq!(world.engine.summary().cancelled, 6);
    let seen = Snapshot::open(&world.store()).unwrap().actions(Some("x")).unwrap();
    assert_eq!((seen[0].filter.destination.as_deref(), seen[0].changed), (Some("a"), 6));
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    world.write();
    assert_eq!(world.pass_ms(10_000, |_| Verdict::Delivered).len(), 2, "the others go out");
}

#[test]
fn dead_letters_of_one_are_listed_and_requeued__d14_d16_d23() {
    let world = two(Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() });
    world.pass_ms(6_000, |_| Verdict::Refused("no".to_owned()));
    let look = || Snapshot::open(&world.store()).unwrap();
    let letters = look().letters(i64::MAX, Some("a"), None, 10, 100).unwrap();
    assert_eq!(letters.iter().map(|it| it.n).collect::<Vec<_>>(), [5, 3, 1]);
    assert!(letters.iter().all(|it| it.destination.as_deref() == Some("a")));
    assert_eq!(look().letters(5, Some("a"), None, 1, 100).unwrap()[0].n, 3);
    assert_eq!(look().letters(i64::MAX, None, None, 10, 100).unwrap().len(), 5);
    let dead = |to| look().ended(Outcome::Dead, of(to), None).unwrap().0;
    assert_eq!(dead("b").iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["b near 3", "b near 1"]);
    assert!(dead("b").iter().all(|it| it.destination.as_deref() == Some("b") && it.last_error.is_some()));
    world.give(vec![act("y", ActionKind::Requeue, "b")]);
    assert_eq!((dead("a").len(), dead("b").len()), (3, 0));
    world.give(vec![Item::RemoveDestination { name: "a".to_owned(), dead: false }]);
    (0..3).for_each(|_| world.write());
    assert_eq!(look().letters(i64::MAX, Some("a"), None, 10, 100).unwrap().len(), 3, "also once it was removed");
    assert_eq!(dead("a")[0].destination.as_deref(), Some("a"));
    assert!(look().letters(i64::MAX, Some("nobody"), None, 10, 100).is_err());
    assert_eq!(world.engine.summary().requeued, 2);
    assert_eq!(world.pass_ms(1_000, |_| Verdict::Delivered).len(), 2);
}

#[test]
fn a_letter_whose_name_another_message_has_is_counted__d16_d23() {
    let world = two(Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() });
    world.pass_ms(6_000, |_| Verdict::Refused("no".to_owned()));
    world.give(vec![message("b", Some("k"), "a near 0", START_MS + DAY_MS), act("z", ActionKind::Requeue, "a")]);
    (0..3).for_each(|_| world.write());
    let action = Snapshot::open(&world.store()).unwrap().actions(Some("z")).unwrap().remove(0);
    assert_eq!((action.changed, action.too_late), (2, 1));
}
