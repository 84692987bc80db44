//! Marks (S4): no mark passes a message without an outcome on disk, even if the message moves meanwhile. `simulation`
//! compares all marks with a slow search between the steps of the engine. Here the tests ask for marks in the middle of
//! a step, and in the middle of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::Connection;

use super::recurring::record;
use super::testing::{ByHand, START_MS, answered, cancel, letter, put};
use crate::base::kill_point::at_each_place;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::group::writer::{Begun, Committed};
use crate::message::Reschedule;
use crate::message::partition::partition_of_name;
use crate::message::partition::{Earliest, PerPartition};
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::Limits;

const HOUR_MS: i64 = 3_600_000;

fn to(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    Item::Reschedule(Reschedule { id: id.to_owned(), key: key.map(str::to_owned), due_ms })
}

fn replacing(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let Item::Put(put) = put(key, id, due_ms) else { panic!("it is a message") };
    Item::Replace { put, at_latest_ms: None }
}

fn pause_key(key: &str, is_paused: bool) -> Item {
    Item::pause(Some(key.to_owned()), is_paused)
}

/// The mark of the partition of this key.
fn mark(world: &ByHand, key: &str) -> i64 {
    world.engine.marks(world.wall_ms()).unwrap()[usize::from(partition_of_name(Some(key), ""))]
}

/// Sends the due messages, and the destination refuses them.
fn refuse(world: &ByHand) {
    world.write();
    let (number, deliveries) = world.take().expect("it is due");
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned()); deliveries.len()]), None);
    world.write();
}

/// Nothing is tried twice.
fn strict() -> Settings {
    Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() }
}

#[test]
fn a_mark_is_before_the_earliest_that_is_due_and_open_and_before_now__s4() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS - 50), put(Some("k"), "b", START_MS - 20)]);
    world.give(vec![put(Some("k"), "c", START_MS), put(Some("l"), "d", START_MS + 1)]);
    assert_eq!((mark(&world, "k"), mark(&world, "l")), (START_MS - 51, START_MS - 1));
    let (number, _) = world.take().unwrap();
    world.engine.settle(number, Verdicts::Delivered, None);
    assert_eq!(mark(&world, "k"), START_MS - 51, "it has arrived, and that is not on disk");
    world.write();
    assert_eq!(mark(&world, "k"), START_MS - 21);
    world.sent();
    world.advance_ms(5);
    assert_eq!((mark(&world, "k"), mark(&world, "l")), (START_MS + 4, START_MS), "c was due at the first instant");
    world.give(vec![put(Some("k"), "late", START_MS - 70)]);
    assert_eq!(mark(&world, "k"), START_MS - 71, "it goes back");
    assert_eq!(mark(&world.again(), "k"), START_MS - 71, "also after a crash");
}

#[test]
fn one_that_was_given_another_due_time_counts_at_its_first_until_its_outcome__s4_d16() {
    for is_far in [false, true] {
        let first_ms = START_MS + if is_far { HOUR_MS } else { 100 };
        let mut world = ByHand::start(Settings::default());
        world.give(vec![put(Some("k"), "a", first_ms), put(Some("l"), "a", first_ms)]);
        let earlier_and_later = vec![to(Some("k"), "a", first_ms - 50), to(Some("k"), "a", first_ms + HOUR_MS)];
        assert_eq!(world.give(earlier_and_later), [Answer::Rescheduled; 2]);
        world.advance_ms((first_ms - START_MS) as u64);
        world.sent();
        world.advance_ms(10);
        assert_eq!((mark(&world, "k"), mark(&world, "l")), (first_ms - 1, first_ms + 9));
        world = world.again();
        assert_eq!(mark(&world, "k"), first_ms - 1, "also after a crash");
        world.give(vec![to(Some("k"), "a", first_ms + 2 * HOUR_MS)]);
        assert_eq!(mark(&world, "k"), first_ms - 1);
        world.advance_ms(2 * HOUR_MS as u64);
        let sent: Vec<String> = world.sent().iter().map(|it| it.body.id().to_owned()).collect();
        assert_eq!(sent, ["a"]);
        assert_eq!(mark(&world, "k"), world.wall_ms() - 1);
    }
}

#[test]
fn one_that_was_put_off_and_then_cancelled_or_replaced_has_its_outcome__s4_d16() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS + 5), put(Some("l"), "b", START_MS + 5)]);
    world.give(vec![to(Some("k"), "a", START_MS + HOUR_MS), to(Some("l"), "b", START_MS + HOUR_MS)]);
    world.advance_ms(10);
    assert_eq!([mark(&world, "k"), mark(&world, "l")], [START_MS + 4; 2]);
    let answers = world.give(vec![cancel(Some("k"), "a"), replacing(Some("l"), "b", START_MS + HOUR_MS)]);
    assert_eq!(answers, [Answer::Cancelled, Answer::Replaced]);
    assert_eq!([mark(&world, "k"), mark(&world, "l")], [START_MS + 9; 2]);
}

#[test]
fn a_dead_letter_has_its_outcome_and_counts_again_when_it_is_given_again__s4_d16() {
    let world = ByHand::start(strict());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    refuse(&world);
    world.advance_ms(10);
    assert_eq!(mark(&world, "k"), START_MS + 9);
    world.give(vec![Item::Requeue { id: "a".to_owned(), key: Some("k".to_owned()) }]);
    assert_eq!(mark(&world, "k"), START_MS - 1);
}

#[test]
fn what_waits_for_another_attempt_counts__s4() {
    let retry = Retry {
        max_attempts: 5,
        first_ms: HOUR_MS as u64,
        longest_ms: HOUR_MS as u64,
        waits_ms: Vec::new(),
        waits_end: false,
    };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![put(Some("k"), "a", START_MS), put(None, "a", START_MS)]);
    refuse(&world);
    world.advance_ms(10);
    let of_name = usize::from(partition_of_name(None, "a"));
    assert_eq!(mark(&world, "k"), START_MS - 1);
    assert_eq!(world.engine.marks(world.wall_ms()).unwrap()[of_name], START_MS - 1);
}

#[test]
fn a_recurring_message_does_not_count_and_its_occurrence_does__s4_d19() {
    let world = ByHand::start(Settings::default());
    world.give(vec![record(&format!(r#"{{"id": "beat", "key": "k", "every": 1000, "due": {}}}"#, START_MS + 500))]);
    assert_eq!(mark(&world, "k"), START_MS - 1);
    world.advance_ms(600);
    assert_eq!(mark(&world, "k"), START_MS + 499);
    world.sent();
    assert_eq!(mark(&world, "k"), START_MS + 599, "its rule goes on");
}

#[test]
fn of_too_many_overdue_ones_the_first_are_looked_at_and_no_mark_is_after_them__s4_d8() {
    let world = ByHand::start(Settings::default());
    world.give(vec![pause_key("k", true)]);
    world.give((0..20_010).map(|n| put(Some("k"), &n.to_string(), START_MS - 50_000 + n)).collect());
    world.give(vec![put(Some("l"), "a", START_MS - 10), pause_key("l", true)]);
    assert_eq!(mark(&world, "k"), START_MS - 50_001);
    assert_eq!(mark(&world, "l"), START_MS - 50_000 + 19_999 - 1, "that of the last one that was looked at");
    world.give((0..20).map(|n| cancel(Some("k"), &n.to_string())).collect());
    assert_eq!(mark(&world, "l"), START_MS - 11);
}

#[test]
fn marks_need_no_transaction_of_the_writer_to_end__s4() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS - 5)]);
    world.engine.with_store(|store| {
        store.begin().unwrap();
        assert_eq!(mark(&world, "k"), START_MS - 6);
        store.commit().unwrap();
    });
}

/// The last opening of the store, and the number of groups on disk.
fn seen(world: &ByHand) -> (String, i64) {
    let (openings, commits) = world.engine.openings();
    (openings.last().unwrap().0.clone(), commits)
}

/// How many groups the store has now of the opening that was seen; `None` if it does not know the opening.
fn commits_of(world: &ByHand, seen: &(String, i64)) -> Option<i64> {
    let (openings, commits) = world.engine.openings();
    let at = openings.iter().position(|(name, _)| *name == seen.0)?;
    Some(openings.get(at + 1).map_or(commits, |next| next.1))
}

#[test]
fn a_store_that_went_back_has_fewer_groups_of_the_opening_that_was_seen_or_does_not_know_it__s4() {
    for (changed, is_opened_between) in [(put(None, "b", 9), false), (cancel(None, "unknown"), false), (letter(), true)]
    {
        let mut world = ByHand::start(Settings::default());
        world.give(vec![put(None, "a", START_MS + HOUR_MS)]);
        let before = seen(&world);
        world = world.again();
        assert_eq!(commits_of(&world, &before), Some(before.1), "a new process goes on");
        world.give(vec![put(None, "more", START_MS + HOUR_MS)]);
        let (old, store) = (world.store().with_extension("old"), world.store());
        let folder = world.end();
        std::fs::copy(&store, &old).unwrap();
        world = ByHand::go_on(folder);
        if is_opened_between {
            world = world.again();
        }
        world.give(vec![changed]);
        let last = seen(&world);
        let folder = world.end();
        std::fs::rename(&old, &store).unwrap();
        world = ByHand::go_on(folder);
        for n in 0..10 {
            world.give(vec![put(None, &n.to_string(), START_MS + HOUR_MS)]);
        }
        assert!(seen(&world).1 > last.1, "the number alone does not tell");
        assert!(commits_of(&world, &last).is_none_or(|commits| commits < last.1));
        assert_eq!(commits_of(&world, &before), Some(before.1), "it has all that it had then");
    }
}

#[test]
fn some_openings_are_known_by_name_and_no_group_is_counted_without_work__s4() {
    let mut world = ByHand::start(Settings::default());
    let first = seen(&world);
    world.write();
    assert_eq!(seen(&world), first);
    for _ in 0..20 {
        world = world.again();
    }
    assert_eq!(world.engine.openings().0.len(), 16);
    assert_eq!(commits_of(&world, &first), None);
}

/// A window that sends most of its messages back to the store.
fn tiny() -> Settings {
    let bounds = Bounds { messages: 4, bytes: 4_000, lane_messages: 2, lane_bytes: 2_000 };
    Settings { bounds, limits: Limits::tiny(), ..strict() }
}

type Name = (Option<String>, String);

/// The open messages of the file, by a search through all of it, and the first due times of rescheduled messages.
#[derive(Clone, Default)]
struct Plain {
    open: BTreeMap<Name, i64>,
    unmoved: BTreeMap<Name, i64>,
}

impl Plain {
    fn look(&mut self, world: &ByHand) {
        let db = Connection::open(world.store()).unwrap();
        let text = "SELECT key, id, due_ms FROM messages WHERE seq NOT IN (SELECT seq FROM ledger)";
        let mut select = db.prepare(text).unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok(((row.get(0)?, row.get(1)?), row.get(2)?));
        self.open = select.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap();
        self.unmoved.retain(|name, _| self.open.contains_key(name));
    }

    fn marks(&self, now_ms: i64) -> PerPartition {
        let mut earliest = Earliest::default();
        for (name, due_ms) in &self.open {
            let due_ms = self.unmoved.get(name).map_or(*due_ms, |unmoved_ms| *due_ms.min(unmoved_ms));
            earliest.add(partition_of_name(name.0.as_deref(), &name.1), due_ms);
        }
        earliest.marks(now_ms)
    }

    /// Notes the answers that have come.
    fn hear(&mut self, asked: Vec<(Name, bool)>, before: &BTreeMap<Name, i64>, answers: Vec<Answer>) {
        for ((name, is_move), answer) in asked.into_iter().zip(answers) {
            match answer {
                Answer::Rescheduled if is_move => {
                    self.unmoved.entry(name.clone()).or_insert(before[&name]);
                }
                Answer::Accepted | Answer::Replaced | Answer::Requeued => {
                    self.unmoved.remove(&name);
                }
                _ => {}
            }
        }
    }
}

/// Some items with different names; and which of them are reschedules.
fn some(random: &mut fastrand::Rng, now_ms: i64) -> (Vec<Item>, Vec<(Name, bool)>) {
    let mut names: Vec<(Option<&str>, String)> =
        [None, Some("k"), Some("l")].into_iter().flat_map(|key| (0..4).map(move |id| (key, format!("{id}")))).collect();
    random.shuffle(&mut names);
    names.truncate(random.usize(1..4));
    let item = |(key, id): (Option<&str>, String)| {
        let due_ms = now_ms + random.i64(-1_500..300); // only what is overdue holds a mark
        let item = match random.u8(0..12) {
            0 => cancel(key, &id),
            1 | 2 => to(key, &id, due_ms),
            3 => replacing(key, &id, due_ms),
            4 => Item::Requeue { id: id.clone(), key: key.map(Into::into) },
            5 => pause_key("k", random.bool()),
            _ => put(key, &id, due_ms),
        };
        let is_move = matches!(item, Item::Reschedule(_));
        (item, ((key.map(Into::into), id), is_move))
    };
    names.into_iter().map(item).unzip()
}

/// Sends some of the due messages.
fn send_some(world: &ByHand, random: &mut fastrand::Rng) {
    if let Some((number, deliveries)) = world.engine.take(random.usize(1..4), 1 << 20, false) {
        let verdict = |_| if random.u8(0..3) == 0 { Verdict::Refused("no".to_owned()) } else { Verdict::Delivered };
        let verdicts = deliveries.iter().map(verdict).collect();
        world.engine.settle(number, Verdicts::Each(verdicts), None);
    }
}

fn passes(marks: &PerPartition, open: &PerPartition) -> bool {
    marks.iter().zip(open).any(|(mark, open)| mark > open)
}

/// Plays random steps. While a group is written, `look` asks for marks. It gets the messages that were open before, and
/// the names that the group changes in another way than by a reschedule.
fn play(seed: u64, look: impl Fn(&Arc<ByHand>, &Plain, &[Name], &mut fastrand::Rng)) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut plain = Plain::default();
    let mut world = Arc::new(ByHand::start(tiny()));
    for _ in 0..60 {
        let (items, asked) = some(&mut random, world.wall_ms());
        let receipt = world.submit(items);
        if random.bool() {
            send_some(&world, &mut random);
        }
        plain.look(&world);
        let before = plain.open.clone();
        let changed: Vec<Name> = asked.iter().filter(|(_, is_move)| !is_move).map(|(name, _)| name.clone()).collect();
        look(&world, &plain, &changed, &mut random);
        world.write();
        plain.hear(asked, &before, answered(&receipt).expect("it is committed").unwrap());
        plain.look(&world);
        assert_eq!(world.engine.marks(world.wall_ms()).unwrap(), plain.marks(world.wall_ms()), "seed {seed}");
        world.advance_ms(random.u64(0..200));
        if random.u8(0..20) == 0 {
            let ended = Arc::into_inner(world).expect("nothing else has it").again();
            world = Arc::new(ended);
            world.write();
        }
    }
}

/// The next part of a group.
fn part(engine: &Engine, group: Group) -> Group {
    match group {
        Group::Waits => Group::Begun(engine.begin_group().unwrap()),
        Group::Begun(begun) => Group::Committed(engine.commit_group(begun, &|| Ok(())).unwrap()),
        Group::Committed(committed) => {
            engine.publish_group(&committed).unwrap();
            Group::Over
        }
        Group::Over => Group::Over,
    }
}

enum Group {
    Waits,
    Begun(Begun),
    Committed(Committed),
    Over,
}

#[test]
fn no_mark_passes_what_is_open_at_any_place_of_a_transaction__s4() {
    for seed in 0..40 {
        play(seed, |world, before, _, _| {
            let (looks_at, now_ms) = (Arc::clone(world), world.wall_ms());
            let open = before.marks(now_ms);
            at_each_place(Some(Box::new(move |place| {
                let marks = looks_at.engine.marks(now_ms).unwrap();
                assert!(!passes(&marks, &open), "seed {seed}, at {place}: {marks:?} passes {open:?}");
            })));
            let committed = part(&world.engine, part(&world.engine, Group::Waits));
            at_each_place(None);
            part(&world.engine, committed);
        });
    }
}

#[test]
fn no_mark_passes_what_is_open_before_and_after_whatever_is_written_in_between__s4() {
    for seed in 0..300 {
        play(seed, |world, before, changed, random| {
            let (mut group, now_ms) = (Group::Waits, world.wall_ms());
            let marks = world.engine.marks_by(now_ms, 1, &mut || {
                for _ in 0..random.u8(0..3) {
                    group = part(&world.engine, std::mem::replace(&mut group, Group::Over));
                }
            });
            let mut after = Plain::default();
            after.look(world);
            let mut stays = before.clone();
            stays.open.retain(|name, due_ms| {
                let now_due = after.open.get(name).filter(|_| !changed.contains(name));
                if now_due.is_some_and(|now_due| now_due != due_ms) {
                    // It was moved meanwhile: what counts before and after is its first due time.
                    *due_ms = *before.unmoved.get(name).unwrap_or(due_ms);
                }
                now_due.is_some()
            });
            let (marks, open) = (marks.unwrap(), stays.marks(now_ms));
            assert!(!passes(&marks, &open), "seed {seed}: {marks:?} passes {open:?}");
            while !matches!(group, Group::Over) {
                group = part(&world.engine, group);
            }
        });
    }
}
