//! A message that may not be sent for long takes no room in memory that others need (D8, D23, D24).

use super::destinations::{message, pause, set, world};
use super::tenant_limits::{pause_tenant, set_tenant};
use super::tenants::of;
use super::testing::{ByHand, START_MS, arrives, put};
use crate::due::pace::Rate;
use crate::due::window::Bounds;
use crate::group::items::Item;
use crate::message::incoming::Incoming;
use crate::message::{Body, Extras, Message};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::{ActionKind, Filter};

fn small(messages: usize) -> Settings {
    Settings { bounds: Bounds { messages, ..Bounds::default() }, ..Settings::default() }
}

/// So many messages of each of 30 tenants.
fn of_each(count: usize, key: Option<&str>) -> Vec<Item> {
    let all = (0..30).flat_map(|it| (0..count).map(move |id| (it, id)));
    all.map(|(it, id)| of(&format!("p{it}"), None, key, &format!("p{it} {id}"), START_MS + id as i64)).collect()
}

fn pauses(is_paused: bool) -> Vec<Item> {
    (0..30).map(|it| pause_tenant(&format!("p{it}"), is_paused)).collect()
}

/// One of another tenant, and one of none.
fn others(world: &ByHand) -> Vec<Item> {
    vec![of("b", None, None, "b", world.wall_ms()), put(None, "none", world.wall_ms())]
}

fn in_memory(world: &ByHand) -> usize {
    world.engine.lock_dispatcher().window.len()
}

#[test]
fn messages_of_paused_tenants_leave_room_for_others__d8_d24() {
    for (count, are_first) in [(1, false), (2, false), (2, true)] {
        let world = ByHand::start(small(20));
        let puts = of_each(count, None);
        // If the pauses come later, memory is full of messages that could be sent.
        let items = if are_first { [puts, pauses(true)] } else { [pauses(true), puts] };
        for items in items {
            world.give(items);
        }
        assert!(world.pass_ms(1_000, arrives).is_empty());
        assert!(in_memory(&world) <= 12, "{}", in_memory(&world));
        world.give(others(&world));
        assert_eq!(world.pass_ms(10, arrives).len(), 2, "{count} of each, {are_first}");
        world.give(pauses(false));
        assert_eq!(world.pass_ms(1_000, arrives).len(), 30 * count);
    }
}

/// Some were tried and wait, some are due later, and some are cancelled or moved meanwhile.
#[test]
fn what_left_memory_because_of_a_pause_comes_back_in_order__d4_d24() {
    for has_key in [true, false] {
        let world = ByHand::start(small(20));
        world.give(of_each(3, has_key.then_some("k")));
        let (number, tried) = world.next_send().unwrap();
        let refused = vec![Verdict::Refused("no".to_owned()); tried.len()];
        world.engine.settle(number, Verdicts::Each(refused), None);
        world.give(pauses(true));
        world.pass_ms(60_000, arrives);
        let filter = Filter { tenant: Some("p3".to_owned()), ..Filter::default() };
        world.give(vec![Item::Act { id: "act".to_owned(), kind: ActionKind::Cancel, filter }]);
        world.pass_ms(1_000, arrives);
        let world = world.again();
        assert!(world.pass_ms(60_000, arrives).is_empty());
        world.give(pauses(false));
        let sent = world.pass_ms(600_000, arrives);
        assert_eq!(sent.len(), 87, "{has_key}");
        for it in (0..30).filter(|it| *it != 3) {
            let of_it = sent.iter().filter(|sent| sent.body.tenant() == Some(&format!("p{it}")));
            let ids: Vec<&str> = of_it.map(|it| it.body.id()).collect();
            let is_in_order = ids.is_sorted();
            assert!(ids.len() == 3 && (is_in_order || !has_key), "{ids:?}");
        }
    }
}

#[test]
fn messages_for_paused_destinations_leave_room_for_others__d8_d23() {
    let names: Vec<String> = (0..31).map(|it| format!("d{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = world(small(20), &names);
    world.give((0..30).map(|it| pause(names[it], true)).collect());
    world.give((0..60).map(|it| message(names[it % 30], None, &it.to_string(), START_MS)).collect());
    assert!(world.pass_ms(1_000, arrives).is_empty());
    world.give(vec![message("d30", None, "b", world.wall_ms())]);
    assert_eq!(world.pass_ms(10, arrives).len(), 1);
    world.give((0..30).map(|it| set(names[it], r#","paused":false"#)).collect());
    assert_eq!(world.pass_ms(1_000, arrives).len(), 60);
}

/// A message an hour, and three of each: memory has none for 59 minutes, and each comes in time.
#[test]
fn messages_that_wait_for_a_slow_rate_leave_room_for_others__d8_d18_d24() {
    let rate = Rate { messages: 1, per_us: 3_600_000_000 };
    for of_tenants in [true, false] {
        let world = if of_tenants {
            ByHand::start(Settings { tenant_rate: Some(rate), ..small(20) })
        } else {
            let names: Vec<String> = (0..30).map(|it| format!("p{it}")).collect();
            let world = world(small(20), &names.iter().map(String::as_str).collect::<Vec<_>>());
            world.engine.take_named(TakesNamed::Some).unwrap();
            world.give(names.iter().map(|name| set(name, r#","rate":"1/h""#)).collect());
            world
        };
        let all = (0..90).map(|it| (format!("p{}", it % 30), it.to_string()));
        let item = |(name, id): (String, String)| {
            if of_tenants { of(&name, None, None, &id, START_MS) } else { message(&name, None, &id, START_MS) }
        };
        world.give(all.map(item).collect());
        assert_eq!(world.pass_ms(10_000, arrives).len(), 30);
        world.give(others(&world));
        assert_eq!(world.pass_ms(10, arrives).len(), 2, "{of_tenants}");
        for hour in 1..=2 {
            assert!(world.pass_ms(3_500_000, arrives).is_empty());
            let sent = world.pass_ms(100_000, arrives);
            assert_eq!(sent.len(), 30, "{of_tenants}, hour {hour}");
            let late_us = sent.iter().map(|it| it.lateness_us).max().unwrap();
            assert!(late_us <= hour * 3_600_000_000 + 10_000, "{of_tenants}: {late_us}");
        }
    }
}

#[test]
fn large_messages_of_paused_tenants_leave_room_for_others__d8_d24() {
    for are_first in [false, true] {
        let world = ByHand::start(Settings::default());
        let large = |tenant: &str, id: &str| {
            let extras = Extras { tenant: Some(tenant.into()), ..Extras::default() };
            let body = Body::new(None, id, &vec![b'1'; 1 << 20], true).with_extras(extras);
            Item::Put(Incoming::of(Message { body, due_ms: START_MS, delay_ms: None }))
        };
        for it in 0..80 {
            let items = [pause_tenant(&format!("p{it}"), true), large(&format!("p{it}"), &it.to_string())];
            let order = if are_first { [1, 0] } else { [0, 1] };
            for at in order {
                world.give(vec![items[at].clone()]);
            }
        }
        assert!(world.pass_ms(1_000, arrives).is_empty());
        world.give(vec![large("b", "b"), put(None, "none", world.wall_ms())]);
        assert_eq!(world.pass_ms(10, arrives).len(), 2);
    }
}

/// Whether they name tenants or not.
#[test]
fn a_destination_has_no_more_of_the_memory_with_tenants_than_without__d8_d23_d24() {
    let gone = |it: &Delivery| match it.body.destination() {
        Some("x") => Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None },
        _ => Verdict::Delivered,
    };
    let most_ms = |tenants: usize, is_paused: bool| {
        let world = world(small(40), &["x", "y"]);
        world.give(vec![pause("x", is_paused)]);
        let to_x = |it: usize| match tenants {
            0 => message("x", None, &it.to_string(), START_MS),
            _ => of(&format!("p{}", it % tenants), Some("x"), None, &it.to_string(), START_MS),
        };
        world.give((0..400).map(to_x).collect());
        world.pass_ms(30_000, gone);
        let late_ms = |id: i32| {
            world.give(vec![message("y", None, &format!("y{id}"), world.wall_ms())]);
            let is_sent = |_: &i64| world.pass_ms(100, gone).iter().any(|it| it.body.destination() == Some("y"));
            (0..600).map(|it| it * 100).find(is_sent).unwrap_or(60_000)
        };
        (0..20).map(late_ms).max().unwrap()
    };
    for is_paused in [false, true] {
        for tenants in [0, 1, 20, 200] {
            let most_ms = most_ms(tenants, is_paused);
            assert!(most_ms <= 1_000, "{most_ms} ms with {tenants}, paused: {is_paused}");
        }
    }
}

/// One tenant of it is loaded, and the destination has all the memory that it may have.
#[test]
fn a_backlog_of_one_tenant_leaves_its_destinations_part_of_memory_to_others_too__d8_d24() {
    let world = world(small(100), &["x", "y"]);
    let to_x = |tenant: &str, count: usize| -> Vec<Item> {
        (0..count).map(|id| of(tenant, Some("x"), None, &format!("{tenant} {id:04}"), START_MS)).collect()
    };
    world.give([to_x("a", 1_000), to_x("b", 5)].concat());
    let mut sent: Vec<Delivery> = Vec::new();
    while sent.len() < 1_005 {
        world.write();
        while let Some((number, deliveries)) = world.engine.take(1, usize::MAX, false) {
            sent.extend(deliveries);
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        world.advance_ms(1);
    }
    let last_of_b = sent.iter().rposition(|it| it.body.tenant() == Some("b")).unwrap();
    assert!(last_of_b <= 120, "{last_of_b}");
}

/// The limit is set lower while memory is full of it.
#[test]
fn a_rate_that_is_set_lower_gives_room_back__d8_d18_d24() {
    let world = ByHand::start(small(40));
    world.give(of_each(5, None));
    world.advance_ms(100);
    world.give((0..30).map(|it| set_tenant(&format!("p{it}"), r#"{"rate":"1/h"}"#)).collect());
    assert_eq!(world.pass_ms(60_000, arrives).len(), 30);
    world.give(others(&world));
    assert_eq!(world.pass_ms(10, arrives).len(), 2);
    world.give((0..30).map(|it| set_tenant(&format!("p{it}"), "{}")).collect());
    assert_eq!(world.pass_ms(1_000, arrives).len(), 120);
}
