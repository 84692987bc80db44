//! A name that comes again and again (D16) is found by its newest message, which is looked at first. Each change
//! costs the same as the first one.

use super::making::{DAY_MS, Shelf, TINY, commit, count, done, incoming, tidy};
use crate::message::incoming::Digest;
use crate::store::maintenance::check;
use crate::store::{Accepted, Limits, Outcome, Store};

/// Many blocks in each run, and all of them small.
const SMALL: Limits = Limits { names_in_memory: 50, names_in_block: 5, blocks_in_step: 5, ..TINY };

/// Changes the due time `times` times.
fn change(store: &mut Store, id: &str, times: i64) {
    for due_ms in 0..times {
        commit(store, |store| {
            let known = store.find(None, id).unwrap().expect("it waits");
            store.move_to(&known, due_ms, None, false).unwrap();
            store.finish(&[done(known.seq, known.due_ms, Outcome::Moved, 1)]).unwrap();
            store.upkeep(false).unwrap();
        });
    }
}

fn accept(store: &mut Store, id: &str) -> Accepted {
    commit(store, |store| {
        let mut answers = store.accept(&[incoming(id, 5)], 0).unwrap();
        store.upkeep(false).unwrap();
        answers.remove(0)
    })
}

/// The number of messages looked at before the newest one of a name is found. For an unknown name, all messages that
/// may match.
fn looks(shelf: &Shelf, store: &Store, id: &str) -> usize {
    let newest = store.find(None, id).unwrap().map(|known| known.seq);
    let mut looks = 0;
    let number = (shelf.number)(Digest::of(None, id));
    let is_it = |_, seq| {
        looks += 1;
        Ok((Some(seq) == newest).then_some(seq))
    };
    assert_eq!(store.names.find(&store.db, &[number], is_it).ok().unwrap(), [newest]);
    looks
}

/// Names in the runs. A name counts once for each of its messages there.
fn names_in_runs(store: &Store) -> i64 {
    store.db.query_row("SELECT ifnull(sum(names), 0) FROM runs", [], |row| row.get(0)).unwrap()
}

#[test]
fn one_message_is_looked_at_however_often_the_name_was_changed__d16() {
    let shelf = Shelf::new(SMALL);
    let mut store = shelf.open();
    accept(&mut store, "a");
    for round in 0..10 {
        change(&mut store, "a", 101);
        assert_eq!(looks(&shelf, &store, "a"), 1, "in memory, after {round} rounds");
        assert!(store.names.in_memory() <= 2, "{} names in memory, of one", store.names.in_memory());
        if round % 3 == 2 {
            store = shelf.open();
            assert_eq!(looks(&shelf, &store, "a"), 1, "after a crash");
            assert!(store.names.in_memory() <= 2, "{} names in memory, of one", store.names.in_memory());
        }
    }
    // A run has 50 messages, except for messages that were read again after a crash.
    let (runs, names) = (count(&store, "runs"), names_in_runs(&store));
    assert!((1..=10).contains(&runs) && (10..=20).contains(&names), "{names} names in {runs} runs");
    for id in 0..200 {
        accept(&mut store, &format!("other {id}"));
    }
    tidy(&mut store);
    assert_eq!(looks(&shelf, &store, "a"), 1, "in the runs");
    assert_eq!(looks(&shelf, &store, "other 7"), 1);
    assert_eq!(looks(&shelf, &store, "unknown"), 0);
    assert_eq!(store.find(None, "a").unwrap().unwrap().seq, 1_011);
    check::tests::assert_whole(&shelf.path(), shelf.number);
}

#[test]
fn a_name_that_comes_again_after_its_outcome_is_in_memory_once_too__d16() {
    for outcome in [Outcome::Dead, Outcome::Delivered] {
        let shelf = Shelf::new(SMALL);
        let mut store = shelf.open();
        accept(&mut store, "a");
        for _ in 0..200 {
            commit(&mut store, |store| {
                let known = store.find(None, "a").unwrap().unwrap();
                let message = store.open_message(known.seq).unwrap();
                store.finish(&[done(known.seq, known.due_ms, outcome, 1)]).unwrap();
                if outcome.is_dead() {
                    let answers = store.accept(&[incoming("a", 5)], 0).unwrap();
                    let (seq, first) = (known.seq + 1, Some(1));
                    assert_eq!(answers, [Accepted::New { seq, again: None, first, redelivered: true }]);
                } else {
                    store.write_again(&message, known.content).unwrap();
                }
                store.upkeep(false).unwrap();
            });
        }
        for _ in 0..2 {
            assert_eq!(looks(&shelf, &store, "a"), 1);
            assert!(store.names.in_memory() <= 2, "{} names in memory, of one", store.names.in_memory());
            store = shelf.open();
        }
        assert_eq!(store.find(None, "a").unwrap().unwrap().seq, 201);
    }
}

#[test]
fn two_names_of_one_number_do_not_hide_each_other__d5_d16() {
    let mut shelf = Shelf::new(SMALL);
    shelf.number = |_| 7;
    let mut store = shelf.open();
    accept(&mut store, "a");
    accept(&mut store, "b");
    change(&mut store, "a", 20);
    for is_again in [false, true] {
        assert_eq!((looks(&shelf, &store, "a"), looks(&shelf, &store, "b")), (1, 2), "{is_again}");
        assert_eq!(looks(&shelf, &store, "unknown"), 2, "one of each name");
        store = shelf.open();
    }
    assert_eq!(store.find(None, "b").unwrap().unwrap().seq, 2);
    change(&mut store, "b", 300);
    change(&mut store, "a", 1);
    tidy(&mut store);
    assert_eq!((looks(&shelf, &store, "a"), looks(&shelf, &store, "b")), (1, 2));
    check::tests::assert_whole(&shelf.path(), shelf.number);
}

#[test]
fn what_is_forgotten_of_a_name_does_not_hide_what_is_left_of_it__d5_d16() {
    let shelf = Shelf::new(SMALL);
    let mut store = shelf.open();
    accept(&mut store, "a");
    change(&mut store, "a", 300);
    tidy(&mut store);
    shelf.pass(DAY_MS);
    change(&mut store, "a", 30);
    tidy(&mut store);
    shelf.pass(shelf.keep_ids_ms + 1);
    tidy(&mut store);
    assert_eq!(count(&store, "messages"), 30, "those of the first day are forgotten");
    for _ in 0..2 {
        assert_eq!(store.find(None, "a").unwrap().unwrap().seq, 331);
        assert_eq!(looks(&shelf, &store, "a"), 1);
        assert!(matches!(accept(&mut store, "a"), Accepted::Known(known) if known.seq == 331));
        check::tests::assert_whole(&shelf.path(), shelf.number);
        store = shelf.open();
    }
}
