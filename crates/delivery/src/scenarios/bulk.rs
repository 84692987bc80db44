//! Actions on many messages (D16), in parts, beside delivery and over a restart.

use super::testing::{ByHand, START_MS, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::message::incoming::Digest;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::maintenance::check::tests::assert_whole;
use crate::store::{ActionKind, Filter};

const DAY_MS: i64 = 86_400_000;
const MANY: usize = 10_000;

fn act(id: &str, kind: ActionKind, filter: Filter) -> Item {
    Item::Act { id: id.to_owned(), kind, filter }
}

fn of_key(key: &str) -> Filter {
    Filter { key: Some(key.to_owned()), ..Filter::default() }
}

/// An engine that has read all messages that are due soon, so later messages may be near.
fn started(settings: Settings) -> ByHand {
    let world = ByHand::start(settings);
    world.write();
    world
}

fn give_many(world: &ByHand) {
    world.give(many());
    let near = world.engine.with_store(|store| (1..=MANY as i64).filter(|seq| store.is_near(*seq)).count());
    assert!(near > MANY / 10 && near < MANY / 2, "{near} are near");
}

/// Half of them are near, as far as their keys allow it, and half are far. They have two keys or none.
fn many() -> Vec<Item> {
    let key = |n: usize| ["user/a", "user/b", ""].get(n % 3).copied().filter(|key| !key.is_empty());
    let due_ms = |n: usize| START_MS + 5_000 + if n.is_multiple_of(2) { 0 } else { DAY_MS } + n as i64;
    (0..MANY).map(|n| put(key(n), &n.to_string(), due_ms(n))).collect()
}

fn cancelled(world: &ByHand) -> u64 {
    world.engine.summary().cancelled
}

/// Checks that the open messages and the outcomes agree with the store's own check.
fn whole(world: ByHand) {
    let world = world.again();
    assert_whole(&world.store(), Digest::number);
}

#[test]
fn those_of_a_key_and_no_others_are_cancelled_near_and_far__d16() {
    let world = started(Settings::default());
    give_many(&world);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, of_key("user/a"))]), [Answer::Accepted]);
    assert_eq!(cancelled(&world), MANY.div_ceil(3) as u64);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, of_key("user/a"))]), [Answer::Duplicate]);
    assert_eq!(world.give(vec![act("x", ActionKind::Cancel, of_key("user/b"))]), [Answer::Conflict]);
    assert_eq!(world.give(vec![act("x", ActionKind::Requeue, of_key("user/a"))]), [Answer::Conflict]);
    let prefix = Filter { key_prefix: Some("user/".to_owned()), ..Filter::default() };
    world.give(vec![act("y", ActionKind::Cancel, prefix)]);
    assert_eq!(world.engine.open_count(), (MANY / 3) as u64, "those without a key are left");
    let tomorrow = Filter { due_from_ms: Some(START_MS + DAY_MS), ..Filter::default() };
    world.give(vec![act("z", ActionKind::Cancel, tomorrow)]);
    let soon = Filter { due_before_ms: Some(START_MS + 5_000 + MANY as i64), ..Filter::default() };
    assert!(world.engine.open_count() > 1_000, "the near ones are left");
    world.give(vec![act("u", ActionKind::Cancel, soon)]);
    assert_eq!(world.engine.open_count(), 0);
    whole(world);
}

#[test]
fn it_goes_on_after_a_restart_and_leaves_alone_what_came_later__d16() {
    let mut world = started(Settings::default());
    give_many(&world);
    let _ = world.submit(vec![act("x", ActionKind::Cancel, Filter::default())]);
    world.engine.write(&|| Ok(())).unwrap();
    let first = cancelled(&world);
    assert!(first > 0 && first < MANY as u64, "{first} in the first group");
    let later = (0..100).map(|n| put(None, &format!("later {n}"), START_MS + n)).collect();
    let _ = world.submit(later);
    world.engine.write(&|| Ok(())).unwrap();
    world = world.again();
    world.write();
    assert_eq!(world.engine.open_count(), 100);
    assert_eq!(world.engine.with_store(|store| store.progress_of("x")).unwrap(), (MANY as u64, 0));
    whole(world);
}

#[test]
fn what_is_being_sent_is_counted_as_too_late_and_is_delivered__d16() {
    let world = started(Settings::default());
    give_many(&world);
    world.give((0..10).map(|n| put(None, &format!("now {n}"), START_MS)).collect());
    let (number, deliveries) = world.take().unwrap();
    assert_eq!(deliveries.len(), 10);
    world.give(vec![act("x", ActionKind::Cancel, Filter::default())]);
    world.engine.settle(number, Verdicts::Delivered, None);
    world.write();
    assert_eq!(world.engine.with_store(|store| store.progress_of("x")).unwrap(), (MANY as u64, 10));
    assert_eq!((world.engine.summary().delivered, world.engine.open_count()), (10, 0));
    whole(world);
}

#[test]
fn all_dead_letters_are_tried_anew_or_those_of_a_key__d16() {
    let retry = Retry { max_attempts: 1, first_ms: 100, longest_ms: 100, waits_ms: Vec::new(), waits_end: false };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    for n in 0..40 {
        world.give(vec![put(["a", "b"].get(n % 3).copied(), &n.to_string(), START_MS)]);
        let (number, _) = world.take().unwrap();
        world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
        world.write();
    }
    world.give(vec![act("x", ActionKind::Requeue, of_key("b"))]);
    assert_eq!((world.engine.summary().requeued, world.engine.open_count()), (13, 13));
    world.give(vec![act("y", ActionKind::Requeue, Filter::default())]);
    assert_eq!((world.engine.summary().requeued, world.engine.open_count()), (40, 40));
    whole(world);
}
