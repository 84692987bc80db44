//! Unneeded payloads, old names and old cancels are deleted. Everything that is still needed stays (D5, D7, D8).

use std::sync::atomic::Ordering;

use super::making::{DAY_MS, Shelf, TINY, commit, count, done, incoming, incoming_with, new, tidy};
use crate::message::incoming::Incoming;
use crate::message::recurrence::{Missed, NEVER_MS, Recurrence, Rule, occurrence_id};
use crate::message::{Body, Message};
use crate::store::{Accepted, Limits, Occurrence, Outcome, Store, WaitingRow};

const KEEP_MS: i64 = 8_000;
const PART_MS: i64 = KEEP_MS / 8;

fn shelf(limits: Limits) -> Shelf {
    let mut shelf = Shelf::new(limits);
    shelf.keep_ids_ms = KEEP_MS;
    shelf
}

fn several(name: &str, number: i64) -> Vec<Incoming> {
    (0..number).map(|one| incoming(&format!("{name} {one}"), one)).collect()
}

/// How many of the messages are new.
fn accept(store: &mut Store, items: &[Incoming]) -> usize {
    let answers = commit(store, |store| store.accept(items, 0).unwrap());
    answers.iter().filter(|answer| matches!(answer, Accepted::New { .. })).count()
}

fn finish(store: &mut Store, items: &[Incoming], outcome: Outcome) {
    commit(store, |store| {
        let known = items.iter().map(|item| store.find(item.message.body.key(), item.message.body.id()).unwrap());
        let done: Vec<_> = known.flatten().map(|known| done(known.seq, known.due_ms, outcome, 100)).collect();
        store.finish(&done).unwrap();
    });
}

#[test]
fn a_message_is_forgotten_once_its_outcome_is_old_and_accepted_anew() {
    for outcome in [Outcome::Delivered, Outcome::Cancelled, Outcome::Dead] {
        let shelf = shelf(TINY);
        let mut store = shelf.open();
        let (old, young, open) = (several("old", 30), several("young", 7), several("open", 5));
        accept(&mut store, &old);
        accept(&mut store, &open);
        finish(&mut store, &old, outcome);
        tidy(&mut store);
        shelf.pass(PART_MS);
        accept(&mut store, &young);
        finish(&mut store, &young, Outcome::Delivered);
        tidy(&mut store);
        shelf.pass(KEEP_MS - PART_MS);
        tidy(&mut store);
        assert_eq!(count(&store, "messages"), 42, "exactly as old as ids are kept is not old yet");
        shelf.pass(1);
        tidy(&mut store);
        assert_eq!(count(&store, "messages"), 42, "near messages are in the way");
        let stragglers = store.stragglers();
        assert_eq!(stragglers, [31, 32, 33, 34, 35]);
        let held = |seq: &i64| WaitingRow::untried(seq - 31, *seq, None, 1);
        commit(&mut store, |store| store.hold(&stragglers.iter().map(held).collect::<Vec<_>>()).unwrap());
        tidy(&mut store);
        assert_eq!(accept(&mut store, &young) + accept(&mut store, &open), 0);
        assert_eq!(accept(&mut store, &old), 30);
        assert_eq!(store.open_count(), 35);
    }
}

#[test]
fn few_messages_are_forgotten_in_time_too() {
    let shelf = shelf(Limits::default());
    let mut store = shelf.open();
    let few = several("old", 2);
    accept(&mut store, &few);
    finish(&mut store, &few, Outcome::Delivered);
    tidy(&mut store);
    shelf.pass(KEEP_MS + PART_MS);
    tidy(&mut store);
    assert_eq!(accept(&mut store, &few), 2);
}

#[test]
fn a_step_of_the_wall_clock_forgets_nothing() {
    let mut shelf = shelf(Limits::default());
    shelf.keep_ids_ms = 3 * DAY_MS;
    let mut store = shelf.open();
    let old = several("old", 9);
    accept(&mut store, &old);
    finish(&mut store, &old, Outcome::Delivered);
    commit(&mut store, |store| store.remember_cancel(None, "to come", 0, None).unwrap());
    tidy(&mut store);
    shelf.wall_ms.fetch_add(8 * DAY_MS, Ordering::Relaxed);
    shelf.pass(DAY_MS);
    tidy(&mut store);
    assert_eq!((accept(&mut store, &old), store.remembered_cancels()), (0, 1), "while it is open");
    store = shelf.open();
    shelf.wall_ms.fetch_add(8 * DAY_MS, Ordering::Relaxed);
    drop(store);
    store = shelf.open();
    tidy(&mut store);
    assert_eq!((accept(&mut store, &old), store.remembered_cancels()), (0, 1), "while it is closed");
    shelf.wall_ms.fetch_sub(30 * DAY_MS, Ordering::Relaxed);
    drop(store);
    store = shelf.open();
    shelf.pass(DAY_MS / 2);
    tidy(&mut store);
    assert_eq!((accept(&mut store, &old), store.remembered_cancels()), (0, 1), "back, and half a day later");
    shelf.pass(DAY_MS);
    tidy(&mut store);
    assert_eq!((accept(&mut store, &old), store.remembered_cancels()), (9, 0));
}

#[test]
fn the_time_that_the_store_was_closed_counts_up_to_a_day() {
    let shelf = shelf(Limits::default());
    let mut store = shelf.open();
    let old = several("old", 9);
    accept(&mut store, &old);
    finish(&mut store, &old, Outcome::Delivered);
    tidy(&mut store);
    drop(store);
    shelf.wall_ms.fetch_add(KEEP_MS + 1, Ordering::Relaxed);
    shelf.monotonic_ms.store(5, Ordering::Relaxed); // the machine was started again
    store = shelf.open();
    tidy(&mut store);
    assert_eq!(accept(&mut store, &old), 9);
}

#[test]
fn a_number_is_never_given_twice_though_everything_was_forgotten() {
    let shelf = shelf(TINY);
    let mut store = shelf.open();
    let (mut last, mut last_n) = (0, 0);
    for round in 0..4 {
        let all = several("m", 9);
        assert_eq!(accept(&mut store, &all), 9);
        assert_eq!(store.last_seq(), last + 9);
        last += 9;
        finish(&mut store, &all, Outcome::Delivered);
        last_n += 9;
        tidy(&mut store);
        shelf.pass(KEEP_MS + PART_MS);
        tidy(&mut store);
        assert_eq!((count(&store, "messages"), count(&store, "bodies")), (0, 0));
        if round % 2 == 1 {
            store = shelf.open();
        }
        assert_eq!((store.last_seq(), store.last_n()), (last, last_n));
    }
}

#[test]
fn payloads_go_with_their_outcome_and_only_theirs() {
    let shelf = shelf(TINY);
    let mut store = shelf.open();
    let (finished, open) = (several("done", 30), several("open", 6));
    let all: Vec<Incoming> = finished[..15].iter().chain(&open).chain(&finished[15..]).cloned().collect();
    commit(&mut store, |store| {
        let answers = store.accept(&all, 0).unwrap();
        let hold = |(answer, item): (&Accepted, &Incoming)| match answer {
            Accepted::New { seq, .. } if seq % 3 == 0 => Some(WaitingRow::untried(item.message.due_ms, *seq, None, 1)),
            _ => None,
        };
        store.hold(&answers.iter().zip(&all).filter_map(hold).collect::<Vec<_>>()).unwrap();
    });
    finish(&mut store, &finished, Outcome::Delivered);
    tidy(&mut store);
    assert_eq!(count(&store, "bodies"), 6);
    assert_eq!(store.bodies(&[16, 17, 18, 19, 20, 21]).unwrap().len(), 6);
    assert!(store.bodies(&[15]).is_err());
}

#[test]
fn a_step_deletes_few_of_the_large_payloads() {
    for is_near in [true, false] {
        let shelf = shelf(Limits::default());
        let mut store = shelf.open();
        let large = vec![b'x'; 1 << 20];
        let all: Vec<_> = (0..24).map(|one| incoming_with(None, &one.to_string(), one, &large)).collect();
        commit(&mut store, |store| {
            store.accept(&all, 0).unwrap();
            let held = |seq| WaitingRow::untried(seq - 1, seq, None, 1 << 20);
            store.hold(&(1..=24).map(held).filter(|_| !is_near).collect::<Vec<_>>()).unwrap();
        });
        finish(&mut store, &all[..20], Outcome::Delivered);
        let mut left = vec![24];
        while commit(&mut store, |store| store.upkeep(true).unwrap()) {
            left.push(count(&store, "bodies"));
        }
        left.push(count(&store, "bodies"));
        assert!(left.windows(2).all(|two| two[0] - two[1] <= 5), "{left:?}");
        assert_eq!(left.last(), Some(&4), "{is_near}");
    }
}

#[test]
fn large_payloads_are_deleted_while_it_is_busy_and_small_ones_in_bulk() {
    for (bytes, left) in [(1 << 20, 0), (10, 20)] {
        let shelf = shelf(Limits::default());
        let mut store = shelf.open();
        let all: Vec<_> = (0..20).map(|one| incoming_with(None, &one.to_string(), one, &vec![b'x'; bytes])).collect();
        commit(&mut store, |store| {
            store.accept(&all, 0).unwrap();
            let held = |seq| WaitingRow::untried(seq - 1, seq, None, 1);
            store.hold(&(1..=20).map(held).collect::<Vec<_>>()).unwrap();
        });
        finish(&mut store, &all, Outcome::Delivered);
        for _ in 0..6 {
            commit(&mut store, |store| store.upkeep(false).unwrap());
        }
        assert_eq!(count(&store, "bodies"), left);
    }
}

#[test]
fn names_that_were_forgotten_leave_nothing_behind() {
    let shelf = shelf(TINY);
    let mut store = shelf.open();
    for round in 0..5 {
        let all = several(&format!("round {round}"), 20);
        accept(&mut store, &all);
        finish(&mut store, &all, Outcome::Delivered);
        tidy(&mut store);
        shelf.pass(KEEP_MS + PART_MS);
        tidy(&mut store);
    }
    assert_eq!((count(&store, "messages"), count(&store, "runs"), count(&store, "days")), (0, 0, 0));
    assert_eq!(count(&store, "ledger"), 1);
    assert_eq!(count(&store, "sqlite_master WHERE name GLOB 'run_*'"), 0);
}

#[test]
fn a_run_of_which_little_is_left_is_written_anew() {
    let limits = Limits { names_in_memory: 64, names_in_block: 4, blocks_in_step: 2, ..TINY };
    let shelf = shelf(Limits { names_in_run: 1_000, runs_by_day: 99, ..limits });
    let mut store = shelf.open();
    let (open, finished) = (several("open", 20), several("finished", 236));
    commit(&mut store, |store| {
        store.accept(&open, 0).unwrap();
        let held = |seq| WaitingRow::untried(seq - 1, seq, None, 1);
        store.hold(&(1..=20).map(held).collect::<Vec<_>>()).unwrap();
    });
    for items in finished.chunks(59) {
        accept(&mut store, items);
        tidy(&mut store);
    }
    finish(&mut store, &finished, Outcome::Delivered);
    tidy(&mut store);
    let runs = |store: &Store| {
        let mut select = store.db.prepare("SELECT first_seq, names, left FROM runs ORDER BY first_seq").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect::<Vec<(i64, i64, i64)>>()
    };
    let before = runs(&store);
    shelf.pass(DAY_MS);
    tidy(&mut store);
    assert_eq!(runs(&store), [(1, 20, 20)], "before: {before:?}");
    store = shelf.open();
    assert_eq!(accept(&mut store, &open), 0);
    assert_eq!(accept(&mut store, &finished), 236);
}

#[test]
fn a_remembered_cancel_is_forgotten_in_time_and_not_before() {
    let shelf = shelf(TINY);
    let mut store = shelf.open();
    let remember = |store: &mut Store, name: &str, until_ms| {
        commit(store, |store| {
            for number in 0..5 {
                store.remember_cancel(None, &format!("{name} {number}"), 1_000, until_ms).unwrap();
            }
        });
    };
    remember(&mut store, "old", None);
    remember(&mut store, "long", Some(1_000 + 3 * KEEP_MS));
    shelf.pass(PART_MS);
    remember(&mut store, "young", None);
    shelf.pass(KEEP_MS - PART_MS);
    tidy(&mut store);
    assert_eq!(store.remembered_cancels(), 15);
    shelf.pass(PART_MS);
    tidy(&mut store);
    assert_eq!(store.remembered_cancels(), 10);
    store = shelf.open();
    assert_eq!(store.remembered_cancels(), 10);
    let mut items = several("young", 1);
    items.extend([incoming("old 1", 5), incoming_with(Some("k"), "young 1", 5, b"1"), incoming("long 4", 5)]);
    let answers = commit(&mut store, |store| store.accept(&items, 9).unwrap());
    let new = [Accepted::CancelledBefore(1), new(2), new(3), Accepted::CancelledBefore(4)];
    assert_eq!(answers, new);
    shelf.pass(KEEP_MS);
    tidy(&mut store);
    assert_eq!(store.remembered_cancels(), 4, "those to be kept longer");
    shelf.pass(KEEP_MS + PART_MS);
    tidy(&mut store);
    assert_eq!(store.remembered_cancels(), 0);
}

/// A rule with one open occurrence, which is due at `due_ms`.
fn accept_rule(store: &mut Store, id: &str, due_ms: i64) {
    let rule = Rule::Every { every: 1_000 };
    let rule = Recurrence { rule, missed: Missed::Skip, from_ms: due_ms, given_ms: None, sent_ms: None };
    let body = Body::new(Some("k"), id, b"1", true).recurring(rule);
    let items = [
        Incoming::of(Message { body, due_ms: NEVER_MS, delay_ms: None }),
        incoming_with(Some("k"), &occurrence_id(id, due_ms, 0), due_ms, b"1"),
    ];
    commit(store, |store| {
        let of_seq = store.last_seq() + 1;
        assert_eq!(store.accept(&items, 0).unwrap(), [new(of_seq), new(of_seq + 1)]);
        store
            .put_occurrence(of_seq + 1, Occurrence { of_seq, at_ms: due_ms, after_ms: None, made_ms: 0, stepped_ms: 0 })
            .unwrap();
    });
}

#[test]
fn a_cancel_of_an_occurrence_is_remembered_while_its_rule_may_make_it__d7_d19() {
    for ends in [false, true] {
        let shelf = shelf(TINY);
        let mut store = shelf.open();
        commit(&mut store, |store| {
            // Before there is a rule. Some of them name no occurrence that a rule will make.
            for (key, id, due_ms) in [
                (Some("k"), "beat", 90_000),
                (Some("k"), "beat", 91_000),
                (Some("k"), "beat", 29_000),
                (None, "beat", 90_000),
                (Some("k"), "other", 90_000),
            ] {
                store.remember_cancel(key, &occurrence_id(id, due_ms, 0), 0, None).unwrap();
            }
            store.remember_cancel(Some("k"), "beat@soon", 0, None).unwrap();
        });
        accept_rule(&mut store, "beat", 30_000);
        shelf.pass(KEEP_MS + PART_MS);
        tidy(&mut store);
        let left = |store: &Store| {
            let text = "SELECT count(*) FROM cancels WHERE id LIKE 'beat@1970-01-01T00:01:3_.000Z' AND key = 'k'";
            let count: i64 = store.db.query_row(text, [], |row| row.get(0)).unwrap();
            (count, store.remembered_cancels())
        };
        assert_eq!(left(&store), (2, 2));
        store = shelf.open();
        shelf.pass(KEEP_MS + PART_MS);
        tidy(&mut store);
        assert_eq!(left(&store), (2, 2), "in the next process too");
        commit(&mut store, |store| {
            let occurrence = done(2, 30_000, Outcome::Delivered, 30_000);
            store.finish(&[occurrence]).unwrap();
            store.take_occurrences(&[occurrence]).unwrap();
            if ends {
                store.finish(&[done(1, NEVER_MS, Outcome::Cancelled, 30_000)]).unwrap();
            } else {
                let at_ms = 91_000;
                let next = incoming_with(Some("k"), &occurrence_id("beat", 92_000, 0), at_ms, b"1");
                store.accept(&[next], 0).unwrap();
                store
                    .put_occurrence(3, Occurrence { of_seq: 1, at_ms, after_ms: None, made_ms: 0, stepped_ms: 0 })
                    .unwrap();
            }
        });
        shelf.pass(PART_MS);
        tidy(&mut store);
        assert_eq!(
            left(&store),
            if ends { (0, 0) } else { (1, 1) },
            "the rule has passed the first of them, or has ended"
        );
    }
}

#[test]
fn memory_holds_only_the_newest_names() {
    let limits = Limits { names_in_memory: 100, names_in_block: 10, blocks_in_step: 2, ..Limits::default() };
    let shelf = shelf(limits);
    let mut store = shelf.open();
    for number in 0..300 {
        let items: Vec<_> = (0..10).map(|one| incoming(&format!("{number}.{one}"), 5)).collect();
        assert_eq!(accept(&mut store, &items), 10);
        commit(&mut store, |store| store.upkeep(false).unwrap());
        assert!(store.names.in_memory() <= 200, "{}", store.names.in_memory());
    }
    for number in 0..300 {
        assert_eq!(accept(&mut store, &[incoming(&format!("{number}.7"), 5)]), 0);
    }
}

#[test]
fn a_store_without_runs_makes_them_when_it_is_opened() {
    let mut shelf = shelf(Limits::default());
    let mut store = shelf.open();
    accept(&mut store, &several("m", 300));
    drop(store);
    shelf.limits = TINY;
    store = shelf.open();
    assert!(store.names.in_memory() <= 2 * TINY.names_in_memory);
    assert_eq!(accept(&mut store, &several("m", 300)), 0);
}

#[test]
fn free_pages_are_given_back_to_the_disk() {
    let shelf = shelf(Limits { vacuum_pages: 50, free_pages: 100, ..Limits::default() });
    let mut store = shelf.open();
    let all: Vec<_> = (0..200).map(|one| incoming_with(None, &one.to_string(), one, &[b'x'; 9_000])).collect();
    accept(&mut store, &all);
    finish(&mut store, &all, Outcome::Delivered);
    let pages = |store: &Store| store.db.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = pages(&store);
    tidy(&mut store);
    assert!(before > 400 && pages(&store) < 200, "{before} pages, {} after", pages(&store));
}
