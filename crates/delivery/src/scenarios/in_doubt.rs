//! The keys in doubt that `status` names: which, since when, why, and when they are tried again (D14).

use super::testing::{ByHand, START_MS, cancel, put};
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::look::snapshot::Snapshot;
use crate::store::look::troubles::KeyInDoubt;

const WAITS_MS: [u64; 2] = [5_000, 20_000];

fn settings(wait_ms: u64) -> Settings {
    let retry = Retry { max_attempts: 3, waits_ms: vec![wait_ms], ..Retry::default() };
    Settings { retry, ..Settings::default() }
}

/// Lets this message be refused now.
fn fail(world: &ByHand, key: Option<&str>, id: &str) {
    world.give(vec![put(key, id, world.wall_ms())]);
    let (number, deliveries) = world.next_send().expect("it is due");
    assert_eq!(deliveries.len(), 1);
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused(format!("no {id}"))]), None);
    world.write();
}

fn longest(world: &ByHand, most: usize) -> Vec<KeyInDoubt> {
    Snapshot::open(&world.store()).unwrap().longest_in_doubt(most).unwrap().keys
}

fn named(found: &[KeyInDoubt]) -> Vec<(Option<&str>, &str)> {
    found.iter().map(|it| (it.key.as_deref(), it.id.as_str())).collect()
}

#[test]
fn the_keys_that_have_failed_for_longest_are_named__d14() {
    for wait_ms in WAITS_MS {
        let mut world = ByHand::start(settings(wait_ms));
        assert_eq!(longest(&world, 3), []);
        for number in 0..5 {
            fail(&world, (number % 2 == 0).then(|| format!("k{number}")).as_deref(), &format!("m{number}"));
            world.advance_ms(100);
        }
        for is_restarted in [false, true] {
            let found = longest(&world, 3);
            let about = format!("{wait_ms} {is_restarted}");
            assert_eq!(named(&found), [(Some("k0"), "m0"), (None, "m1"), (Some("k2"), "m2")], "{about}");
            assert_eq!((found[0].error.as_deref(), found[0].fails), (Some("no m0"), 1), "{about}");
            assert_eq!((found[0].since_ms, found[0].next_ms), (START_MS, START_MS + wait_ms as i64), "{about}");
            world = world.again();
            world.write();
            assert!(world.take().is_none(), "all wait");
        }
    }
}

#[test]
fn the_time_goes_on_until_a_success__d14() {
    for wait_ms in WAITS_MS {
        for key in [None, Some("k")] {
            let world = ByHand::start(settings(wait_ms));
            fail(&world, key, "a");
            world.advance_ms(wait_ms);
            let (number, _) = world.next_send().expect("its wait is over");
            world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("still no".to_owned())]), None);
            world.write();
            let found = longest(&world, 10);
            assert_eq!((found[0].fails, found[0].since_ms), (2, START_MS), "{key:?} {wait_ms}");
            assert_eq!(found[0].error.as_deref(), Some("still no"));
            world.advance_ms(wait_ms);
            assert_eq!(world.sent().len(), 1);
            world.write();
            assert_eq!(longest(&world, 10), []);
        }
    }
}

#[test]
fn what_has_not_failed_or_was_moved_or_cancelled_is_not_named__d14() {
    for wait_ms in WAITS_MS {
        let world = ByHand::start(settings(wait_ms));
        fail(&world, Some("k"), "cancelled");
        fail(&world, Some("moved"), "m");
        world.give(vec![put(Some("k"), "untried", START_MS + 1)]);
        assert_eq!(named(&longest(&world, 10)), [(Some("k"), "cancelled"), (Some("moved"), "m")]);
        let to = Reschedule { id: "m".into(), key: Some("moved".into()), due_ms: START_MS + 60_000 };
        world.give(vec![cancel(Some("k"), "cancelled"), Item::Reschedule(to)]);
        world.write();
        assert_eq!(longest(&world, 10), [], "{wait_ms}");
    }
}
