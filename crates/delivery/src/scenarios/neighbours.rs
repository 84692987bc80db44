//! Neighbours that once held up others (D6): each test has a case that did.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::testing::{ByHand, START_MS, put};
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

pub(super) const S_US: u64 = 1_000_000;

pub(super) fn limits(young: usize, spare: usize) -> PlaceLimits {
    PlaceLimits { young, spare, hanging: 0, ..PlaceLimits::NONE }
}

/// Runs until `until_us`. `send` says for a key, or for the id of a message without a key, how long a send takes, and how it
/// ends. Returns how late the latest healthy message (`h...`) was, and how many there were.
pub(super) fn run(world: &ByHand, until_us: u64, send: &dyn Fn(&str) -> (u64, Verdict)) -> (i64, usize) {
    let (mut now_us, mut heap) = (0_u64, BinaryHeap::new());
    let mut flights: BTreeMap<u64, Vec<Verdict>> = BTreeMap::new();
    let (mut late_us, mut healthy) = (0, 0);
    while now_us < until_us {
        world.write();
        while let Some((number, deliveries)) = world.engine.take(1, usize::MAX, false) {
            let it = &deliveries[0];
            let name = it.key().unwrap_or(it.id());
            let (takes_us, verdict) = send(name);
            if name.starts_with('h') {
                late_us = late_us.max(it.lateness_us);
                healthy += 1;
            }
            heap.push(Reverse((now_us + takes_us, number)));
            flights.insert(number, vec![verdict]);
        }
        let next_us = heap.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let next_us =
            next_us.min(world.engine.timer.next_wake_us().unwrap_or(u64::MAX)).min(now_us + 50_000).max(now_us + 1);
        world.advance_us(next_us - now_us);
        now_us = next_us;
        while let Some(Reverse((_, number))) = heap.peek().copied().filter(|it| it.0.0 <= now_us) {
            heap.pop();
            world.engine.settle(number, Verdicts::Each(flights.remove(&number).unwrap()), None);
        }
        let _ = world.engine.take_events();
        while let Some((_, through)) = world.engine.queue.take_letters() {
            world.engine.queue.letters_taken(through);
            world.write();
        }
    }
    (late_us, healthy)
}

/// After a dead letter the next message is tried at once, so these keys always have one to send.
#[test]
fn keys_in_doubt_with_a_backlog_do_not_starve_fresh_keys__d6() {
    let retry = Retry { max_attempts: 1, ..Retry::default() };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.engine.set_places(limits(8, 64));
    let mut items = Vec::new();
    for bad in 0..16 {
        items.extend((0..100).map(|id| put(Some(&format!("bad{bad}")), &id.to_string(), START_MS)));
    }
    items.extend((0..20).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS + 500 + 100 * id)));
    world.give(items);
    let send = |key: &str| {
        if key.starts_with('h') { (5_000, Verdict::Delivered) } else { (90_000, Verdict::Refused("no".to_owned())) }
    };
    let (late_us, healthy) = run(&world, 40 * S_US, &send);
    assert_eq!(healthy, 20);
    assert!(late_us <= 16 * 100_000 / 8 + 300_000, "{late_us} us late");
}

/// Neighbours take 5 s for each message, and accept it. Healthy keys have one message each second.
#[test]
fn the_usual_duration_is_not_what_slow_neighbours_need__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(8, 64));
    let mut items = Vec::new();
    for bad in 0..40 {
        items.extend((0..100).map(|id| put(Some(&format!("bad{bad}")), &id.to_string(), START_MS)));
    }
    items.extend((0..200).map(|id| put(Some(&format!("h{id}")), &id.to_string(), START_MS + 2_000 + 1_000 * id)));
    world.give(items);
    let send = |key: &str| (if key.starts_with('h') { 5_000 } else { 5 * S_US }, Verdict::Delivered);
    let (late_us, healthy) = run(&world, 230 * S_US, &send);
    assert_eq!(healthy, 200);
    assert!(late_us <= 40 * 100_000 / 8 + 300_000, "{late_us} us late");
}

/// The spare bytes are taken, so an old send cannot leave its ordinary place.
#[test]
fn a_sender_that_waits_for_a_place_sleeps__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(PlaceLimits { young_bytes: 1, spare_bytes: 20, ..limits(4, 4) });
    // One message in flight that takes long: it moves to a spare place, whatever its size.
    world.give((0..4).map(|id| put(Some(&format!("k{id}")), &id.to_string(), START_MS)).collect());
    let mut flights = Vec::new();
    for _ in 0..4 {
        flights.extend(world.engine.take(1, usize::MAX, false).map(|it| it.0));
        world.advance_ms(200);
    }
    let mut wakes = 0;
    for _ in 0..1_000 {
        if let Some((flight, _)) = world.engine.take(1, usize::MAX, false) {
            flights.push(flight);
        }
        let now_us = world.engine.clock().now_us();
        if world.engine.timer.next_wake_us().is_some_and(|at_us| at_us <= now_us) {
            wakes += 1;
            continue;
        }
        break;
    }
    assert!(wakes < 10, "{wakes} wake-ups at the same instant, {} sends", flights.len());
}

/// After each crash fewer of the messages that may have ended the process go out together.
#[test]
fn after_crashes_those_that_hang_do_not_hold_up_other_keys__d6() {
    for (crashes, hangs) in [(1, 1), (1, 300), (2, 16), (3, 1)] {
        let mut world = ByHand::start(Settings::default());
        world.give((0..1_000).map(|id| put(Some(&format!("k{id:03}")), &id.to_string(), START_MS)).collect());
        for _ in 0..crashes {
            world.write();
            while world.take().is_some() {
                world.write();
            }
            world = world.again();
        }
        world.engine.set_places(limits(1_024, 1_024));
        let is_hanging = |key: &str| key[1..].parse::<u32>().unwrap() < hangs;
        let (mut hanging, mut delivered) = (0, 0);
        for _ in 0..200 {
            world.write();
            while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, true) {
                if is_hanging(deliveries[0].key().unwrap()) {
                    hanging += 1; // no answer
                } else {
                    delivered += 1;
                    world.engine.settle(flight, Verdicts::Delivered, None);
                }
                world.write();
            }
            world.advance_ms(100); // 20 s in all; the time-out is 30 s
        }
        assert_eq!((hanging, delivered), (hangs, 1_000 - hangs), "{crashes} crashes");
    }
}

#[test]
fn who_asks_for_a_minute_gets_it_though_another_key_is_accepted__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..6).map(|id| put(Some(&format!("k{id}")), &id.to_string(), START_MS)).collect());
    let mut again = 0;
    for _ in 0..20 {
        world.write();
        while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, false) {
            let verdict = if deliveries[0].key() == Some("k5") {
                Verdict::Delivered
            } else {
                Verdict::Unanswered { reason: "429".to_owned(), retry_after_ms: Some(60_000) }
            };
            again += usize::from(deliveries[0].attempt > 1);
            world.engine.settle(flight, Verdicts::Each(vec![verdict]), None);
        }
        world.advance_ms(100);
    }
    assert_eq!((world.engine.down(), again), (None, 0));
}

/// The wall clock is stepped back between two processes.
#[test]
fn after_a_restart_no_key_waits_longer_than_its_back_off__d6() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS - 10 * 3_600_000)]);
    world.write();
    let (flight, _) = world.take().unwrap();
    world.engine.settle(flight, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    world.write();
    world.engine.close(Sends::AllEnded).unwrap();
    world.step_wall_clock_ms(-2 * 3_600_000);
    world = world.again();
    let mut waited_s = 0;
    while world.sent().is_empty() && waited_s < 7_200 {
        world.advance_ms(1_000);
        waited_s += 1;
    }
    assert!(waited_s <= 301, "it waited {waited_s} s");
}

#[test]
fn a_destination_that_asks_for_no_wait_at_all_gets_a_short_one__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let mut sends = 0;
    for _ in 0..1_000 {
        world.write();
        while let Some((flight, _)) = world.take() {
            sends += 1;
            let verdict = Verdict::Unanswered { reason: "429".to_owned(), retry_after_ms: Some(1) };
            world.engine.settle(flight, Verdicts::Each(vec![verdict]), None);
        }
        world.advance_ms(1);
    }
    assert!((2..=21).contains(&sends), "{sends} sends in a second");
}

#[test]
fn after_a_restart_a_key_waits_until_the_time_that_its_receiver_gave__d6() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS), put(None, "b", START_MS)]);
    let asks = Verdict::Unanswered { reason: "429".to_owned(), retry_after_ms: Some(3_600_000) };
    assert_eq!(world.deliver(|_| asks.clone()).len(), 2);
    world.advance_ms(600_000);
    world.engine.close(Sends::AllEnded).unwrap();
    world = world.again();
    let early = world.pass_ms(2_990_000, |_| Verdict::Delivered);
    assert_eq!(early.len(), 0, "{early:?}");
    assert_eq!(world.pass_ms(20_000, |_| Verdict::Delivered).len(), 2);
}
