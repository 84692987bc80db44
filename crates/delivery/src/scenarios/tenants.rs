//! Tenants take turns: the backlog of one makes no other one late (D24).

use std::collections::BTreeMap;

use super::destinations::{pause, set, world};
use super::neighbours::limits;
use super::testing::{ByHand, START_MS, arrives, put};
use crate::due::pace::Rate;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Cancel, Extras, Message};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::maintenance::check::tests::assert_whole;
use crate::store::{ActionKind, Filter, Limits};

pub(super) fn of(tenant: &str, to: Option<&str>, key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let (tenant, destination) = (Some(tenant.into()), to.map(Into::into));
    let extras = Extras { destination, tenant, ..Extras::default() };
    let body = Body::new(key, id, b"1", true).with_extras(extras);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

pub(super) fn backlog(tenant: &str, count: usize) -> Vec<Item> {
    (0..count).map(|number| of(tenant, None, None, &format!("{tenant} {number:05}"), START_MS)).collect()
}

fn tenants(deliveries: &[Delivery]) -> String {
    deliveries.iter().map(|it| it.body.tenant().unwrap_or("-")).collect()
}

#[test]
fn a_backlog_of_one_tenant_makes_a_message_of_another_wait_for_two_rounds_at_most__d24() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(2, 0));
    world.give(backlog("a", 50_000));
    for second in 1..=5 {
        world.give(vec![of("b", None, None, &second.to_string(), START_MS + second * 1_000)]);
    }
    let (mut late_ms, mut served, mut now_ms) = (Vec::new(), 0, 0);
    while late_ms.len() < 5 {
        if now_ms % 100 == 0 {
            world.write();
        }
        let sends: Vec<_> = std::iter::from_fn(|| world.engine.take(1, usize::MAX, false)).collect();
        assert_eq!(sends.len(), 2, "all places are used at {now_ms}");
        for (_, deliveries) in &sends {
            if deliveries[0].body.tenant() == Some("b") {
                late_ms.push(deliveries[0].lateness_us / 1_000);
            }
        }
        served += sends.len();
        world.advance_ms(10);
        now_ms += 10;
        for (number, _) in sends {
            world.engine.settle(number, Verdicts::Delivered, None);
        }
    }
    assert!(late_ms.iter().all(|late_ms| *late_ms <= 20), "{late_ms:?}");
    assert!(served >= 990, "{served}");
}

#[test]
fn a_batch_has_messages_of_many_tenants__d24() {
    let world = ByHand::start(Settings::default());
    world.give((0..40).flat_map(|number| backlog(&format!("{number:02}"), 3)).collect());
    world.give(vec![put(None, "of none", START_MS)]);
    let (_, deliveries) = world.engine.take(41, usize::MAX, false).unwrap();
    let mut seen: Vec<_> = deliveries.iter().map(|it| it.body.tenant()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 41, "one of each: {}", tenants(&deliveries));
}

#[test]
fn tenants_of_one_destination_take_turns_and_share_its_places__d23_d24() {
    let world = world(Settings::default(), &["x", "y"]);
    world.give(vec![set("x", r#","concurrency":2"#)]);
    let to_x = |tenant: &str, count: usize| -> Vec<Item> {
        (0..count)
            .map(|id| of(tenant, Some("x"), Some(&id.to_string()), &format!("{tenant}{id:02}"), START_MS))
            .collect()
    };
    world.give([to_x("a", 20), to_x("b", 2), to_x("c", 2)].concat());
    let mut order = String::new();
    while order.len() < 24 {
        let sends: Vec<_> = std::iter::from_fn(|| world.engine.take(1, usize::MAX, true)).collect();
        assert_eq!(sends.len(), 2, "two places: {order}");
        for (number, deliveries) in sends {
            order.push_str(&tenants(&deliveries));
            world.engine.settle(number, Verdicts::Delivered, None);
        }
    }
    assert_eq!(order, format!("abcabc{}", "a".repeat(18)));
}

#[test]
fn a_key_is_in_order_among_the_messages_of_one_tenant__d4_d24() {
    let world = ByHand::start(Settings::default());
    let of = |tenant: &str, id: &str, ms: i64| of(tenant, None, Some("k"), id, START_MS + ms);
    world.give(vec![of("a", "1", 0), of("a", "2", 1), of("b", "3", 2)]);
    world.advance_ms(5);
    let out = |sends: &[(u64, Vec<Delivery>)]| -> Vec<String> {
        sends.iter().flat_map(|(_, it)| it.iter().map(|it| it.body.id().to_owned())).collect()
    };
    let take = || -> Vec<_> { std::iter::from_fn(|| world.engine.take(1, usize::MAX, false)).collect() };
    let sends = take();
    assert_eq!(out(&sends), ["1", "3"], "the second of a waits for the first, and b's for none");
    world.engine.settle(sends[0].0, Verdicts::Delivered, None);
    assert_eq!(out(&take()), ["2"]);
}

#[test]
fn a_backlog_of_one_tenant_leaves_memory_for_another_one__d8_d24() {
    let bounds = Bounds { messages: 100, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..Settings::default() });
    world.engine.set_places(limits(1, 0));
    world.give(backlog("a", 1_000));
    world.give(backlog("b", 5));
    let mut order = String::new();
    while order.len() < 1_005 {
        world.write();
        while let Some((number, deliveries)) = world.engine.take(1, usize::MAX, false) {
            order.push_str(&tenants(&deliveries));
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        world.advance_ms(1);
    }
    let last_b = order.rfind('b').unwrap();
    assert!(last_b <= 120, "{last_b}");
}

#[test]
fn tenants_with_nothing_to_do_leave_memory__d24() {
    let limits = Limits { idle_shares: 3, ..Limits::default() };
    let world = ByHand::start(Settings { limits, ..Settings::default() });
    for round in 0..2 {
        for number in 0..20 {
            world.give(vec![of(&number.to_string(), None, Some("k"), &format!("{round} {number}"), START_MS)]);
            assert_eq!(world.pass_ms(10, arrives).len(), 1, "{round} {number}");
        }
    }
    for _ in 0..20 {
        world.write();
    }
    assert!(world.engine.lock_dispatcher().window.named_shares() <= 4);
}

#[test]
fn all_of_it_outlives_a_restart__d6_d24() {
    let world = ByHand::start(Settings::default());
    world.engine.take_named(TakesNamed::Some).unwrap();
    world.give(vec![set("x", "")]);
    world.give(vec![
        of("a", None, Some("k"), "1", START_MS + 60_000),
        of("b", Some("x"), Some("k"), "2", START_MS + 60_000),
        of("b", None, None, "3", START_MS),
    ]);
    let failed = world.pass_ms(10, |_| Verdict::Failed { reason: "no".to_owned(), retry_after_ms: None });
    assert_eq!(failed.len(), 1);
    let world = world.again();
    let sent = world.pass_ms(70_000, arrives);
    let mut seen: Vec<_> = sent.iter().map(|it| (it.body.id(), it.body.tenant(), it.body.destination())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [("1", Some("a"), None), ("2", Some("b"), Some("x")), ("3", Some("b"), None)]);
    assert_whole(&world.store(), Digest::number);
}

#[test]
fn messages_of_tenants_become_dead_letters_with_their_destination_and_come_back__d23_d24() {
    let world = world(Settings::default(), &["x"]);
    world.give(vec![pause("x", true)]);
    world.give((0..30).map(|id| of(&(id % 3).to_string(), Some("x"), None, &id.to_string(), START_MS)).collect());
    world.give(vec![of("far", Some("x"), None, "far", START_MS + 10_000_000)]);
    let filter = Filter { destination: Some("x".to_owned()), due_from_ms: Some(START_MS + 1), ..Filter::default() };
    world.give(vec![Item::Act { id: "some".to_owned(), kind: ActionKind::Cancel, filter }]);
    world.write();
    assert_eq!(world.engine.with_store(|store| store.open_count()), 30, "the one that is far is cancelled");
    world.give(vec![of("far", Some("x"), None, "farther", START_MS + 20_000_000)]);
    let remove = |dead| Item::RemoveDestination { name: "x".to_owned(), dead };
    assert_eq!(world.give(vec![remove(false)]), [Answer::Refused]);
    assert_eq!(world.give(vec![remove(true)]), [Answer::Removed]);
    for _ in 0..20 {
        world.write();
    }
    assert_eq!(world.engine.with_store(|store| store.open_count()), 0);
    assert_eq!(world.give(vec![set("x", ""), Item::Requeue { id: "4".to_owned(), key: None }])[1], Answer::Requeued);
    let sent = world.pass_ms(10, arrives);
    assert_eq!(sent.iter().map(|it| it.body.tenant()).collect::<Vec<_>>(), [Some("1")]);
    let other = |tenant: &str| of(tenant, Some("x"), None, "new", START_MS + 1_000_000);
    assert_eq!(
        world.give(vec![other("a"), other("a"), other("b")]),
        [Answer::Accepted, Answer::Duplicate, Answer::Conflict]
    );
    let cancel = Cancel { id: "new".to_owned(), key: None, keep_days: 0 };
    assert_eq!(world.give(vec![Item::Cancel(cancel)]), [Answer::Cancelled]);
}

#[test]
fn a_removal_of_a_destination_takes_rows_of_many_tenants_in_each_group__d8_d23_d24() {
    let world = world(Settings::default(), &["x"]);
    let far_ms = START_MS + 86_400_000;
    world.give((0..1_500).map(|it| of(&it.to_string(), Some("x"), None, &it.to_string(), far_ms)).collect());
    let _removed = world.submit(vec![Item::RemoveDestination { name: "x".to_owned(), dead: true }]);
    let mut left = Vec::new();
    while world.engine.write(&|| Ok(())).unwrap() {
        left.push(world.engine.open_count());
    }
    assert!(left.windows(2).all(|it| it[0] - it[1] <= 1_000), "a part in each group: {left:?}");
    assert!(left.len() < 15 && left.ends_with(&[0]), "{left:?}");
}

#[test]
fn with_equal_loads_all_are_served_alike__d24() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(4, 0));
    world.give((0..100).flat_map(|number| backlog(&format!("{number:03}"), 40)).collect());
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..1_000 {
        world.write();
        let (number, deliveries) = world.engine.take(2, usize::MAX, false).unwrap();
        for it in &deliveries {
            *served.entry(it.body.tenant().unwrap().to_owned()).or_default() += 1;
        }
        world.engine.settle(number, Verdicts::Delivered, None);
    }
    let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
    assert!(served.len() == 100 && most - least <= 1, "{least} to {most}");
}

/// Takes all that can be sent now, one message in a send.
pub(super) fn taken(world: &ByHand) -> Vec<(u64, Delivery)> {
    let take = || world.engine.take(1, usize::MAX, true);
    std::iter::from_fn(take).map(|(number, mut deliveries)| (number, deliveries.remove(0))).collect()
}

pub(super) fn count(taken: &[(u64, Delivery)], tenant: &str) -> usize {
    taken.iter().filter(|(_, it)| it.body.tenant() == Some(tenant)).count()
}

#[test]
fn no_more_messages_of_a_tenant_are_out_than_it_may_have_at_all_destinations_together__d24() {
    let settings = Settings { tenant_concurrency: Some(3), ..Settings::default() };
    let world = world(settings, &["x", "y"]);
    let to = |to: &str, tenant: &str| -> Vec<Item> {
        (0..10).map(|id| of(tenant, Some(to), None, &format!("{to}{tenant}{id}"), START_MS)).collect()
    };
    world.give([to("x", "a"), to("y", "a"), to("x", "b")].concat());
    let mut out = taken(&world);
    assert_eq!((count(&out, "a"), count(&out, "b")), (3, 3));
    let mut served = 0;
    while let Some((number, it)) = out.pop() {
        world.engine.settle(number, Verdicts::Delivered, None);
        served += 1;
        let now = taken(&world);
        assert!(now.len() <= 1 && now.iter().all(|(_, new)| new.body.tenant() == it.body.tenant()));
        out.extend(now);
        assert!(count(&out, "a") <= 3 && count(&out, "b") <= 3);
    }
    assert_eq!(served, 30);
    assert_eq!(world.engine.lock_dispatcher().busy_tenants(), 0);
}

#[test]
fn a_batch_has_no_more_of_a_tenant_than_it_may_have_out__d24() {
    let world = ByHand::start(Settings { tenant_concurrency: Some(3), ..Settings::default() });
    world.give([backlog("a", 50), backlog("b", 2)].concat());
    world.give((0..4).map(|id| put(None, &id.to_string(), START_MS)).collect());
    let (number, deliveries) = world.engine.take(100, usize::MAX, false).unwrap();
    let of_a = deliveries.iter().filter(|it| it.body.tenant() == Some("a")).count();
    assert_eq!((of_a, deliveries.len()), (3, 9), "{}", tenants(&deliveries));
    assert!(world.engine.take(100, usize::MAX, false).is_none());
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(world.engine.take(100, usize::MAX, false).unwrap().1.len(), 3);
}

#[test]
fn a_call_that_was_cut_off_keeps_its_place_among_those_of_its_tenant__d24() {
    let settings = Settings { tenant_concurrency: Some(1), sink_timeout_ms: 1_000, ..Settings::default() };
    let world = ByHand::start(settings);
    world.give(backlog("a", 3));
    let hanging = taken(&world);
    assert_eq!(hanging.len(), 1);
    world.advance_ms(5_000);
    assert!(taken(&world).is_empty(), "it has not returned");
    world.engine.settle(hanging[0].0, Verdicts::Delivered, None);
    assert_eq!(taken(&world).len(), 1);
}

#[test]
fn the_rate_of_a_tenant_holds_over_each_second_and_holds_up_no_other__d24() {
    let tenant_rate = Some(Rate { messages: 20, per_us: 1_000_000 });
    let world = ByHand::start(Settings { tenant_rate, ..Settings::default() });
    world.give([backlog("a", 200), backlog("b", 5)].concat());
    let mut sent_ms = Vec::new();
    for now_ms in 0..9_000_u64 {
        for (number, it) in taken(&world) {
            match it.body.tenant() {
                Some("a") => sent_ms.push(now_ms),
                _ => assert!(now_ms <= 200, "{now_ms}"),
            }
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        world.write();
        world.advance_ms(1);
    }
    let within = |from_ms: u64| sent_ms.iter().filter(|at| (from_ms..from_ms + 1_000).contains(*at)).count();
    let most = (0..9_000).map(within).max().unwrap();
    assert!(most <= 22, "20 and what the bucket holds: {most}");
    assert!((0..8_000).map(within).min().unwrap() >= 19);
}

#[test]
fn with_one_order_for_all_tenants_are_one__d4_d24() {
    let world = ByHand::start(Settings { is_global: true, ..Settings::default() });
    world.give((0..6).map(|id| of(&(id % 2).to_string(), None, None, &id.to_string(), START_MS + id)).collect());
    world.advance_ms(10);
    let sent = world.pass_ms(10, arrives);
    assert_eq!(sent.iter().map(|it| it.body.id()).collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(world.engine.lock_dispatcher().window.named_shares(), 0);
}
