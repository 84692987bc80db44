//! Keys in doubt and other keys share the places of a sink: each gets its part of the time (D6).

use super::neighbours::{S_US, limits, run};
use super::testing::{ByHand, START_MS, put};
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

fn hangs() -> (u64, Verdict) {
    (10 * S_US, Verdict::Unanswered { reason: "no answer".to_owned(), retry_after_ms: None })
}

/// Two healthy messages are due each second. By turns, one of them would go out every ten seconds.
#[test]
fn in_the_only_place_keys_that_hang_leave_the_others_half_of_the_time__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(1, 0));
    let mut items: Vec<_> = (0..20).map(|bad| put(Some(&format!("bad{bad}")), "0", START_MS)).collect();
    items.extend((0..600).map(|id| put(Some(&format!("h{}", id % 10)), &id.to_string(), START_MS + 500 * id)));
    world.give(items);
    let send = |key: &str| if key.starts_with('h') { (5_000, Verdict::Delivered) } else { hangs() };
    // Five keys take 50 s. Then it counts as down, and the kinds take turns: the first contact with the other 15 takes 300 s.
    let (late_us, healthy) = run(&world, 500 * S_US, &send);
    assert!(healthy == 600 && late_us <= 365 * S_US as i64, "{healthy} came, the latest {late_us} us late");
}

/// Twenty receivers are gone until the second 5. Ordinary messages want all places all the time.
#[test]
fn one_long_call_does_not_hold_up_keys_that_are_tried_again__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(8, 0));
    let mut items = vec![put(Some("long"), "0", START_MS)];
    items.extend((0..20).map(|key| put(Some(&format!("again{key}")), "0", START_MS)));
    items.extend((0..10_000).map(|id| put(Some(&format!("busy{id}")), "0", START_MS)));
    world.give(items);
    let (now_us, back) = (|| world.engine.clock().now_us(), std::cell::Cell::new(0));
    let send = |key: &str| match &key[..4] {
        "long" => (600 * S_US, Verdict::Delivered),
        "agai" if now_us() < 5 * S_US => {
            (5_000, Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None })
        }
        "agai" => {
            back.set(back.get() + 1);
            (5_000, Verdict::Delivered)
        }
        _ => (50_000, Verdict::Delivered),
    };
    run(&world, 40 * S_US, &send);
    assert_eq!(back.get(), 20);
}

/// Two of three messages take three seconds, and are accepted.
#[test]
fn slow_messages_without_a_key_do_not_say_what_is_usual__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(8, 64));
    let mut items: Vec<_> = (0..1_000).map(|id| put(None, &format!("slow{id}"), START_MS + 100 * id)).collect();
    items.extend((0..500).map(|id| put(None, &format!("h{id}"), START_MS + 200 * id)));
    world.give(items);
    let send = |id: &str| (if id.starts_with('h') { 5_000 } else { 3 * S_US }, Verdict::Delivered);
    let (late_us, healthy) = run(&world, 110 * S_US, &send);
    assert!(healthy == 500 && late_us <= 500_000, "{healthy} came, the latest {late_us} us late");
}

/// A spare place becomes free. An old send moves there, and the next one has its ordinary place.
#[test]
fn a_place_that_becomes_free_is_seen_at_once__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(1, 1));
    world.give((0..3).map(|id| put(None, &id.to_string(), START_MS)).collect());
    let take = || world.engine.take(1, usize::MAX, false).map(|it| it.0);
    let first = take().unwrap();
    world.advance_ms(100);
    take().expect("the first one is in the spare place");
    assert_eq!(take(), None);
    world.advance_ms(50);
    world.engine.settle(first, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    assert!(!world.engine.lock_dispatcher().has_ready(), "the second one is young");
    let wake_us = world.engine.timer.next_wake_us().expect("a sender wakes when it is old");
    assert!((199_000..=201_000).contains(&wake_us), "{wake_us}");
    world.advance_ms(50);
    assert!(world.engine.lock_dispatcher().has_ready(), "it is old");
}

#[test]
fn after_a_commit_an_old_send_has_left_its_place__d6() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(1, 1));
    world.give((0..2).map(|id| put(None, &id.to_string(), START_MS)).collect());
    world.engine.take(1, usize::MAX, false).unwrap();
    world.advance_ms(200);
    assert!(world.engine.lock_dispatcher().has_ready());
}
