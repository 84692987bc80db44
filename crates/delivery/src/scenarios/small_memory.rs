//! Many more messages than memory holds: all are delivered in order and on time, and the bounds hold (D3, D4, D8).

use std::collections::BTreeMap;

use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};

const TINY: Bounds = Bounds { messages: 40, bytes: 40_000, lane_messages: 4, lane_bytes: 6_000 };

fn check_bounds(world: &ByHand, bounds: Bounds) {
    let (messages, bytes) = world.engine.in_memory();
    assert!(messages <= bounds.messages && bytes <= bounds.bytes, "{messages} messages, {bytes} bytes");
}

/// Due time and number of each delivery, by key.
fn by_key(deliveries: &[Delivery]) -> BTreeMap<Option<String>, Vec<(i64, usize)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for it in deliveries {
        let number = it.body.id().parse().expect("a number");
        found.entry(it.body.key().map(str::to_owned)).or_default().push((it.due_ms, number));
    }
    found
}

#[test]
fn thousands_of_overdue_messages_go_out_in_order__d4_d8() {
    for is_global in [false, true] {
        let world = ByHand::start(Settings { is_global, bounds: TINY, ..Settings::default() });
        let mut random = fastrand::Rng::with_seed(3);
        let mut all = Vec::new();
        for number in 0..2_000 {
            let rare = format!("rare {number}");
            let key =
                [None, Some("hot"), Some("hot"), Some("hot"), Some("a"), Some("b"), Some(&*rare)][random.usize(..7)];
            all.push(put(key, &number.to_string(), START_MS - random.i64(0..9_000)));
        }
        for part in all.chunks(1_000) {
            world.give(part.to_vec());
        }
        let sent = world.deliver(|_| {
            check_bounds(&world, TINY);
            Verdict::Delivered
        });
        assert_eq!(sent.len(), 2_000);
        if is_global {
            assert!(sent.iter().map(|it| (it.due_ms, it.seq)).is_sorted());
        }
        for (key, its) in by_key(&sent) {
            assert!(key.is_none() || its.is_sorted(), "{key:?}: {its:?}");
        }
    }
}

#[test]
fn an_earlier_message_is_on_time_while_memory_is_full_of_later_ones__d3_d8() {
    let bounds = Bounds { messages: 4, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..Settings::default() });
    for (key, id, after_ms) in [
        (Some("k"), "second", 2_000),
        (None, "later 0", 3_000),
        (None, "later 1", 3_001),
        (None, "later 2", 3_002),
        (None, "keyless", 500),
        (Some("k"), "first", 1_900),
    ] {
        world.give(vec![put(key, id, START_MS + after_ms)]);
    }
    let sent = world.pass_ms(5_000, arrives);
    assert_eq!(ids(&sent), ["keyless", "first", "second", "later 0", "later 1", "later 2"]);
    assert!(sent.iter().all(|it| it.lateness_us == 0), "{sent:?}");
}

#[test]
fn in_any_order_of_acceptance_messages_go_out_in_order_and_on_time__d3_d4_d8() {
    for lane_messages in [1, 2, 128] {
        let bounds = Bounds { messages: 6, lane_messages, ..Bounds::default() };
        let world = ByHand::start(Settings { bounds, ..Settings::default() });
        let mut random = fastrand::Rng::with_seed(11);
        for number in 0..400 {
            let key = [None, Some("k"), Some("l"), Some("m")][random.usize(..4)];
            world.give(vec![put(key, &number.to_string(), START_MS + 1_000 + random.i64(0..8_000))]);
            check_bounds(&world, bounds);
        }
        let sent = world.pass_ms(20_000, arrives);
        assert_eq!(sent.len(), 400);
        for (key, its) in by_key(&sent) {
            assert!(key.is_none() || its.is_sorted(), "{key:?}: {its:?}");
        }
        let latest_us = sent.iter().map(|it| it.lateness_us).max();
        assert!(latest_us <= Some(1_000), "{latest_us:?} with {lane_messages} of a key");
    }
}

#[test]
fn other_keys_are_on_time_while_one_fails_that_has_thousands_overdue__d4_d8() {
    let retry = Retry { max_attempts: 1_000, waits_ms: vec![60_000], ..Retry::default() };
    let world = ByHand::start(Settings { bounds: TINY, retry, ..Settings::default() });
    world
        .give((0..1_500).map(|number| put(Some("bad"), &format!("bad {number}"), START_MS - 5_000 + number)).collect());
    let keys = ["good 0", "good 1", "good 2"];
    for number in 0..200 {
        world.give(vec![put(Some(keys[number % 3]), &number.to_string(), START_MS + 50 * number as i64)]);
    }
    let mut sent = world.pass_ms(11_000, |it| {
        check_bounds(&world, TINY);
        if it.body.key() == Some("bad") { Verdict::Refused("no".to_owned()) } else { Verdict::Delivered }
    });
    sent.retain(|it| it.body.key() != Some("bad"));
    assert_eq!(sent.len(), 200);
    let latest_us = sent.iter().map(|it| it.lateness_us).max();
    assert!(latest_us <= Some(1_000), "{latest_us:?}");
}
