//! Messages are listed, cancelled and requeued by their tenant, at all destinations or at one (D14, D16, D24).

use super::destinations::{message, world};
use super::tenants::of;
use super::testing::{ByHand, START_MS};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::Verdict;
use crate::store::look::messages::PageOf;
use crate::store::look::snapshot::Snapshot;
use crate::store::{ActionKind, Filter, Outcome};

const DAY_MS: i64 = 86_400_000;

fn page<'a>(tenant: Option<&'a str>, destination: Option<&'a str>) -> PageOf<'a> {
    PageOf {
        key: None,
        destination,
        tenant,
        until: None,
        due_from_ms: None,
        due_before_ms: None,
        limit: 100,
        looked_at: 1_000,
    }
}

fn act(id: &str, kind: ActionKind, tenant: &str, destination: Option<&str>) -> Item {
    let (tenant, destination) = (Some(tenant.to_owned()), destination.map(str::to_owned));
    Item::Act { id: id.to_owned(), kind, filter: Filter { destination, tenant, ..Filter::default() } }
}

/// Two tenants at two destinations, each with a message that is near and one that is far.
fn two(settings: Settings) -> ByHand {
    let world = world(settings, &["x", "y"]);
    world.write();
    for (number, (tenant, to)) in [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")].into_iter().enumerate() {
        let due_ms = START_MS + 5_000 + number as i64;
        world.give(vec![
            of(tenant, Some(to), Some("k"), &format!("{tenant}{to} near"), due_ms),
            of(tenant, Some(to), None, &format!("{tenant}{to} far"), due_ms + DAY_MS),
        ]);
    }
    world
}

fn waiting(world: &ByHand, of: PageOf<'_>) -> Vec<String> {
    let (found, next) = Snapshot::open(&world.store()).unwrap().waiting(of, None).unwrap();
    assert!(next.is_none());
    assert!(found.iter().all(|it| of.tenant.is_none() || it.tenant.as_deref() == of.tenant), "{found:?}");
    found.into_iter().map(|it| it.id).collect()
}

#[test]
fn what_waits_of_one_is_listed_near_and_far_at_all_destinations_and_at_one__d14_d24() {
    let mut world = two(Settings::default());
    for _ in 0..2 {
        assert_eq!(waiting(&world, page(Some("a"), None)), ["ax near", "ay near", "ax far", "ay far"]);
        assert_eq!(waiting(&world, page(Some("a"), Some("y"))), ["ay near", "ay far"]);
        assert_eq!(waiting(&world, page(None, Some("x"))), ["ax near", "bx near", "ax far", "bx far"]);
        assert_eq!(waiting(&world, PageOf { key: Some("k"), ..page(Some("b"), None) }), ["bx near", "by near"]);
        assert_eq!(waiting(&world, page(Some("nobody"), None)), [""; 0]);
        assert_eq!(waiting(&world, page(Some("nobody"), Some("x"))), [""; 0]);
        assert_eq!(waiting(&world, page(None, None)).len(), 8);
        world = world.reopen(); // now all have rows
    }
    let look = Snapshot::open(&world.store()).unwrap();
    assert_eq!(look.show(None, "by far").unwrap().unwrap().seen.tenant.as_deref(), Some("b"));
}

#[test]
fn those_of_one_and_no_others_are_cancelled_near_and_far__d16_d24() {
    let world = two(Settings::default());
    assert_eq!(world.give(vec![act("one", ActionKind::Cancel, "a", Some("y"))]), [Answer::Accepted]);
    assert_eq!(world.give(vec![act("one", ActionKind::Cancel, "a", None)]), [Answer::Conflict]);
    assert_eq!(waiting(&world, page(Some("a"), None)), ["ax near", "ax far"]);
    world.give(vec![act("none", ActionKind::Cancel, "nobody", None), act("all", ActionKind::Cancel, "b", None)]);
    (0..3).for_each(|_| world.write());
    assert_eq!(waiting(&world, page(None, None)), ["ax near", "ax far"]);
    let seen = Snapshot::open(&world.store()).unwrap().actions(None).unwrap();
    let told: Vec<_> = seen.iter().map(|it| (it.filter.tenant.as_deref().unwrap(), it.changed)).collect();
    assert_eq!(told, [("b", 4), ("nobody", 0), ("a", 2)]);
}

#[test]
fn a_cancel_of_a_destination_goes_through_its_tenants_in_parts_also_after_a_restart__d8_d16_d24() {
    let mut world = world(Settings::default(), &["x", "y"]);
    let far_ms = START_MS + DAY_MS;
    for tenant in ["a", "b", "c"] {
        let to = |to: &str, it: i64| of(tenant, Some(to), None, &format!("{tenant}{to}{it}"), far_ms + it % 2);
        world.give((0..800).map(|it| to("x", it)).chain([to("y", 0)]).collect());
    }
    let filter = Filter { destination: Some("x".to_owned()), due_before_ms: Some(far_ms + 1), ..Filter::default() };
    let _begun = world.submit(vec![Item::Act { id: "some".to_owned(), kind: ActionKind::Cancel, filter }]);
    let mut left = vec![world.engine.open_count()];
    while world.engine.write(&|| Ok(())).unwrap() && left.ends_with(&[2_403]) {
        left.push(world.engine.open_count());
    }
    assert!(left.ends_with(&[1_403]), "a thousand in a group: {left:?}");
    world = world.again();
    world.write();
    assert_eq!(world.engine.open_count(), 1_203);
    let action = Snapshot::open(&world.store()).unwrap().actions(Some("some")).unwrap().remove(0);
    assert_eq!((action.changed, action.too_late), (1_200, 0));
}

#[test]
fn a_cancel_of_a_destination_leaves_none_where_a_part_is_full__d16_d23() {
    let world = world(Settings::default(), &["x", "y"]);
    let far_ms = START_MS + DAY_MS;
    let items = (0..1_001).map(|it| message("x", None, &it.to_string(), far_ms));
    world.give(
        items.chain([of("a", Some("x"), None, "of a", far_ms), of("a", Some("y"), None, "other", far_ms)]).collect(),
    );
    let world = world.again(); // now all have rows
    let filter = Filter { destination: Some("x".to_owned()), ..Filter::default() };
    world.give(vec![Item::Act { id: "all".to_owned(), kind: ActionKind::Cancel, filter }]);
    (0..5).for_each(|_| world.write());
    assert_eq!(world.engine.open_count(), 1);
}

#[test]
fn dead_letters_of_one_are_listed_and_requeued__d14_d16_d24() {
    let world = two(Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() });
    world.pass_ms(6_000, |_| Verdict::Refused("no".to_owned()));
    let look = || Snapshot::open(&world.store()).unwrap();
    let letters = |destination, tenant| {
        let found = look().letters(i64::MAX, destination, tenant, 10, 100).unwrap();
        found.into_iter().map(|it| it.tenant.unwrap() + &it.destination.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(letters(None, Some("a")), ["ay", "ax"]);
    assert_eq!(letters(Some("x"), Some("b")), ["bx"]);
    assert_eq!(letters(Some("x"), None), ["bx", "ax"]);
    assert_eq!(letters(None, Some("nobody")), [""; 0]);
    let dead = |of| {
        let found = look().ended(Outcome::Dead, of, None).unwrap().0;
        found.into_iter().map(|it| format!("{} of {}", it.id, it.tenant.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(dead(page(Some("b"), None)), ["by near of b", "bx near of b"]);
    assert_eq!(dead(page(Some("b"), Some("x"))), ["bx near of b"]);
    world.give(vec![act("again", ActionKind::Requeue, "b", Some("x"))]);
    assert_eq!(dead(page(Some("b"), None)), ["by near of b"]);
    assert_eq!(dead(page(Some("a"), None)).len(), 2);
    assert_eq!(world.pass_ms(1_000, |_| Verdict::Delivered).len(), 1);
}
